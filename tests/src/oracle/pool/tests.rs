//! For each id, the shortest sequence of events that breaks only that invariant; and correct ones,
//! which pass.

use super::Oracle;
use crate::machines::pool::Event;
use crate::oracle::tests::breaks;
use crate::oracle::{Checks, Violation};
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolOptions};
use poolhouse_core::{Cause, Instant};

type Step = (u64, Event);

const ONE: PoolOptions = PoolOptions { max_pool_size: 1, max_connecting: 1, ..PoolOptions::DEFAULT };
const TWO: PoolOptions = PoolOptions { max_pool_size: 2, max_connecting: 2, ..ONE };
const CLEARED: CheckOutError = CheckOutError::PoolCleared { cause: None };

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn failed(error: CheckOutError, after: u64) -> Event {
    let reason = match error {
        CheckOutError::PoolClosed => CheckOutFailedReason::PoolClosed,
        CheckOutError::WaitQueueTimeout { .. } => CheckOutFailedReason::Timeout,
        _ => CheckOutFailedReason::ConnectionError,
    };
    Event::Failed(reason, error, ms(after))
}

const fn clear(interrupt: bool) -> Event {
    Event::PoolCleared { service: None, interrupt, cause: None }
}

const fn closed(conn: u64, reason: ClosedReason) -> Event {
    Event::Closed(conn, reason, None)
}

/// A ready pool and these events, all at once.
fn ready(options: PoolOptions, more: &[Event]) -> Vec<Step> {
    let events = [&[Event::PoolCreated(options), Event::PoolReady], more].concat();
    events.into_iter().map(|event| (0, event)).collect()
}

/// Connection 1 is being established for a check-out.
fn waiting(options: PoolOptions, more: &[Event]) -> Vec<Step> {
    ready(options, &[&[Event::Started, Event::Created(1)], more].concat())
}

/// Connection 1 is in use.
fn in_use(options: PoolOptions, more: &[Event]) -> Vec<Step> {
    waiting(options, &[&[Event::Ready(1, ms(0)), Event::CheckedOut(1, ms(0))], more].concat())
}

/// Connection 1 is available.
fn idle(options: PoolOptions, more: &[Event]) -> Vec<Step> {
    in_use(options, &[&[Event::CheckedIn(1)], more].concat())
}

fn judge(steps: &[Step], checks: &mut Checks) -> Result<Oracle, Violation> {
    let mut oracle = Oracle::default();
    for (at, event) in steps {
        oracle.event(Instant::from_nanos(at * 1_000_000), event, checks)?;
    }
    Ok(oracle)
}

#[test]
fn each_wrong_event_breaks_only_its_invariant() {
    let idling = PoolOptions { max_idle_time: Some(ms(10)), ..ONE };
    let closing = [closed(1, ClosedReason::PoolClosed), Event::PoolClosed];
    let stale = [clear(false), Event::PoolReady, Event::Started];
    let wrong = [
        ("P2", waiting(PoolOptions { max_connecting: 2, ..ONE }, &[]), (0, Event::Created(2))),
        ("P3", waiting(PoolOptions { max_connecting: 1, ..TWO }, &[]), (0, Event::Created(2))),
        ("P5", in_use(ONE, &[Event::Started]), (0, Event::CheckedOut(1, ms(0)))),
        ("P5", idle(ONE, &closing), (0, closed(1, ClosedReason::PoolClosed))),
        ("P6", ready(ONE, &[]), (0, Event::Created(2))),
        ("P6", ready(ONE, &[]), (0, closed(1, ClosedReason::Error))),
        ("P8", idle(ONE, &[]), (0, Event::CheckedOut(1, ms(0)))),
        ("P8", ready(ONE, &[Event::Started]), (3, failed(CheckOutError::Cancelled, 2))),
        (
            "P9",
            [in_use(ONE, &[Event::Started]), vec![(1, Event::Started), (2, Event::CheckedIn(1))]].concat(),
            (2, Event::CheckedOut(1, ms(1))),
        ),
        ("P17", idle(TWO, &[Event::Started]), (0, Event::Created(2))),
        ("P25", vec![(5, Event::PoolCreated(ONE))], (4, Event::PoolReady)),
        ("P26", idle(idling, &[]), (10, closed(1, ClosedReason::Idle))),
        ("P26", [idle(idling, &[]), vec![(11, Event::Started)]].concat(), (11, Event::CheckedOut(1, ms(0)))),
        ("P26", idle(PoolOptions { max_pool_size: 0, ..ONE }, &[]), (0, closed(1, ClosedReason::Idle))),
        ("P27", waiting(ONE, &[]), (0, Event::CheckedOut(1, ms(0)))),
        ("P27", in_use(ONE, &[]), (0, closed(1, ClosedReason::Error))),
        ("P27", idle(ONE, &[]), (0, Event::CheckedIn(1))),
        ("P27", idle(ONE, &[]), (0, Event::Ready(1, ms(0)))),
        ("P29", ready(ONE, &[]), (0, Event::PoolReady)),
        ("P29", ready(ONE, &[]), (0, Event::PoolCreated(ONE))),
        ("P29", ready(ONE, &[clear(false)]), (0, clear(false))),
        ("P29", vec![], (0, Event::PoolReady)),
        (
            "P30",
            [waiting(ONE, &[]), vec![(1, clear(true)), (1, failed(CLEARED, 1))]].concat(),
            (1, closed(1, ClosedReason::Stale)),
        ),
        ("P31", idle(ONE, &[]), (0, closed(1, ClosedReason::Stale))),
        (
            "P31",
            ready(ONE, &[Event::Started]),
            (0, Event::Failed(CheckOutFailedReason::Timeout, CheckOutError::Cancelled, ms(0))),
        ),
        ("P31", idle(ONE, &[Event::Started, closing[0]]), (0, failed(CLEARED, 0))),
        ("P32", waiting(ONE, &[]), (5, Event::Ready(1, ms(4)))),
        ("P32", idle(ONE, &[Event::Started]), (5, Event::CheckedOut(1, ms(4)))),
        ("P33", ready(ONE, &[Event::PoolClosed]), (0, Event::PoolReady)),
        ("P33", ready(ONE, &[Event::PoolClosed, Event::Started]), (0, failed(CLEARED, 0))),
        ("P35", idle(ONE, &stale), (0, Event::CheckedOut(1, ms(0)))),
        ("P36", waiting(ONE, &stale), (0, Event::Ready(1, ms(0)))),
        ("P37", vec![(0, Event::PoolCreated(ONE))], (0, Event::Created(1))),
        ("P38", ready(ONE, &[clear(false)]), (0, Event::Created(1))),
        (
            "P39",
            [waiting(ONE, &[]), vec![(1, Event::Started), (2, Event::Started), (3, clear(false))]].concat(),
            (3, failed(CLEARED, 2)),
        ),
        ("P42", idle(ONE, &[]), (0, Event::PoolClosed)),
        ("P42", ready(ONE, &[Event::Started]), (0, Event::PoolClosed)),
    ];
    for (id, right, wrong) in wrong {
        breaks(id, &right, &wrong, |steps| judge(steps, &mut Checks::default()));
    }
}

#[test]
fn right_events_pass() {
    let mut checks = Checks::default();
    let pass = |steps: &[Step], checks: &mut Checks| drop(judge(steps, checks).expect("right"));
    let wait = (0, Event::Started);
    let served = vec![wait, (3, Event::CheckedIn(1)), (3, Event::CheckedOut(1, ms(3)))];
    pass(&[in_use(ONE, &[]), served].concat(), &mut checks);
    // A younger check-out is cancelled, and one that is refused at once ends before an older one.
    pass(&waiting(ONE, &[Event::Started, failed(CheckOutError::Cancelled, 0)]), &mut checks);
    let idling = PoolOptions { max_idle_time: Some(ms(10)), ..ONE };
    pass(&[idle(idling, &[]), vec![(11, closed(1, ClosedReason::Idle))]].concat(), &mut checks);
    // Interrupted connections end before the check-outs, and later ones at any time.
    let interrupted = [clear(true), closed(1, ClosedReason::Stale), failed(CLEARED, 0), Event::PoolReady];
    let again = [Event::Started, Event::Created(2), Event::Closed(2, ClosedReason::Error, Some(Cause::Network))];
    pass(&waiting(ONE, &[&interrupted[..], &again].concat()), &mut checks);
    // A load-balanced pool stays ready, and the services of its connections are unknown.
    let balanced = PoolOptions { load_balanced: true, ..TWO };
    let fork = [clear(true), closed(1, ClosedReason::Stale), failed(CLEARED, 0)];
    pass(&waiting(balanced, &[&fork[..], &again].concat()), &mut checks);
    assert!(checks.of("P9") > 0 && checks.of("P30") > 0);
}

#[test]
fn changes_without_an_event_are_passed_on() {
    let mut checks = Checks::default();
    let mut event = |oracle: &mut Oracle, event| oracle.event(Instant::from_nanos(1_000_000), &event, &mut checks);
    let mut oracle = judge(&idle(TWO, &[Event::Started, Event::CheckedOut(1, ms(0))]), &mut Checks::default());
    let oracle = oracle.as_mut().expect("right");
    oracle.retired(1);
    event(oracle, Event::CheckedIn(1)).expect("it is in use");
    event(oracle, closed(1, ClosedReason::Stale)).expect("it is retired");
    oracle.advance(Instant::from_nanos(1_000_000));
    oracle.reconfigured(PoolOptions { max_pool_size: 1, ..TWO });
    event(oracle, Event::Created(2)).expect("there is room for one");
    assert_eq!(event(oracle, Event::Created(3)).expect_err("there is room for one").id, "P2");
}
