//! For each invariant of the events, a history that breaks only that; and runs with one falsified
//! output.

pub(super) mod falsified;

use super::{Counts, Oracle};
use crate::fuzz;
use crate::rng::Rng;
use crate::seeds::caught;
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::{Cause, Instant, ServerId};

/// The time in milliseconds, and the event.
type Step = (u64, MonitorEvent);

const fn id(connection: u64) -> HeartbeatId {
    HeartbeatId { server: ServerId::new(1), connection, server_connection: None }
}

const fn begun(at: u64, awaited: bool) -> Step {
    (at, MonitorEvent::HeartbeatStarted { id: id(1), awaited })
}

const fn good(at: u64, awaited: bool) -> Step {
    (at, MonitorEvent::HeartbeatSucceeded { id: id(1), awaited, duration: Duration::ZERO })
}

const fn bad(at: u64, cause: Cause) -> Step {
    (at, MonitorEvent::HeartbeatFailed { id: id(1), awaited: false, duration: Duration::ZERO, cause })
}

fn judge(steps: &[Step]) -> Result<(), String> {
    judge_of(steps, true)
}

fn judge_of(steps: &[Step], is_known: bool) -> Result<(), String> {
    let mut oracle = Oracle::default();
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    caught(|| steps.iter().for_each(|(ms, event)| oracle.event(at(*ms), event, is_known)))
}

#[test]
fn each_wrong_event_breaks_its_invariant() {
    let other = MonitorEvent::HeartbeatSucceeded { id: id(2), awaited: false, duration: Duration::ZERO };
    let network = Cause::Network;
    let wrong: [(&str, &[Step], Step); 12] = [
        ("S1", &[begun(0, false)], begun(0, false)),
        ("S2", &[], good(0, false)),
        ("S2", &[begun(0, false)], good(0, true)),
        ("S2", &[begun(0, false)], (0, other)),
        ("S15", &[], begun(0, true)),
        ("S15", &[begun(0, false), bad(0, network)], begun(0, true)),
        ("S15", &[begun(0, false), good(0, false)], begun(1, true)),
        ("S3", &[begun(0, false), good(0, false)], begun(499, false)),
        ("S3", &[begun(0, false), bad(0, Cause::Protocol)], begun(0, false)),
        ("S6", &[begun(0, false), bad(0, network)], begun(1, false)),
        ("S20", &[begun(0, false), bad(0, network), begun(0, false), bad(0, network)], begun(0, false)),
        ("S20", &[begun(0, false), bad(0, network), begun(0, false), bad(499, network)], begun(499, false)),
    ];
    for (id, right, wrong) in wrong {
        judge(right).expect(id);
        let error = judge(&[right, &[wrong]].concat()).expect_err(id);
        assert!(error.contains(id), "{id}: {error}");
    }
    let retried = [begun(0, false), bad(0, network), begun(0, false)];
    judge(&retried).expect("a retry");
    let error = judge_of(&retried, false).expect_err("the server was Unknown");
    assert!(error.contains("S6: a retry, but"), "{error}");
    let right = [begun(0, false), bad(0, network), begun(0, false), bad(500, network), begun(500, false)];
    judge(&right).expect("retries in intervals of half a second");
    judge(&[begun(0, false), good(0, false), begun(500, false)]).expect("the shortest pause");
}

#[test]
fn check_without_an_end_is_an_error() {
    let mut oracle = Oracle::default();
    oracle.assert_ended();
    oracle.event(Instant::ORIGIN, &begun(0, false).1, false);
    caught(|| oracle.assert_ended()).expect_err("it is in flight");
}

#[test]
fn runs_of_two_hundred_seeds_have_these_counts() {
    let mut seen = Counts::default();
    for seed in 0..200 {
        let mut rng = Rng::stream(seed, "trace");
        let bytes: Vec<u8> = (0..300).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        seen.add(&fuzz::monitor::run(&bytes));
    }
    expect!["Counts { starts: 2150, ends: 2150, streamed: 374, failed: 1131, timeouts: 756, cancelled: 208, closed: 56, retries: 163, stale: 1372, measured: 40 }"].assert_eq(&format!("{seen:?}"));
}
