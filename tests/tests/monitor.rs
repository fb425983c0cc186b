//! Random simulated runs of a monitor against its naive model, and a dead server.

use core::time::Duration;

use poolhouse_core::monitor::{
    CheckOutcome, Monitor, MonitorAction, MonitorConnId, MonitorConnKind, MonitorEvent, MonitorOptions,
};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, TopologyVersion};
use poolhouse_tests::fuzz;
use poolhouse_tests::hunt::MONITOR;
use poolhouse_tests::machines::monitor::Hosted;
use poolhouse_tests::oracle::monitor::Counts;
use poolhouse_tests::reply::CheckReply;
use poolhouse_tests::seeds::bytes_of_seeds;
use poolhouse_wire::message::Matched;

/// S1-S7, S13-S18, S21.
#[test]
#[doc(alias("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S13", "S14", "S15", "S16", "S17", "S18", "S21"))]
fn random_runs_agree_with_the_model() {
    let mut seen = Counts::default();
    let runs = bytes_of_seeds(&MONITOR, |bytes| seen.add(&fuzz::monitor::run(bytes)));
    eprintln!("{seen:?}");
    let Counts { starts, ends, streamed, failed, timeouts, cancelled, closed, retries, stale, measured } = seen;
    assert_eq!(starts, ends);
    let kinds = [streamed, failed, timeouts, cancelled, closed, retries, stale, measured];
    assert!(kinds.iter().all(|&count| count >= runs / 20), "some kinds did not occur often enough: {seen:?}");
}

/// The behaviours of the simulated servers.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    /// Refuses every connection, after it had streamed normally for a second.
    Dies,
    /// Accepts connections, and breaks each at the first hello.
    Resets,
    /// Answers the first hello of each connection, and breaks the connection 10 ms after the
    /// second.
    GreetsAndResets,
}

/// Times of dials, in milliseconds.
#[derive(Debug, Default)]
struct Dials {
    check: Vec<u64>,
    rtt: Vec<u64>,
}

/// Drives one monitor for `seconds` of virtual time, with a check request in every millisecond.
/// Returns the times of its dials.
fn dials_of(behaviour: Behaviour, seconds: u64) -> Dials {
    let options = MonitorOptions { heartbeat_frequency: Duration::from_millis(500), ..MonitorOptions::DEFAULT };
    let mut monitor = Hosted::new(Monitor::new(ServerId::new(1), options.validate().expect("valid")));
    let mut dials = Dials::default();
    let mut greeted: Vec<MonitorConnId> = Vec::new();
    let mut breaks: Option<(u64, MonitorConnId)> = None;
    let reply = CheckReply {
        topology_version: Some(TopologyVersion { process_id: ObjectId([1; 12]), counter: 1 }),
        ..CheckReply::OK
    };
    monitor.start(Instant::ORIGIN, &mut ());
    for ms in 0..seconds * 1_000 {
        let now = Instant::from_nanos(ms * 1_000_000);
        let dead = behaviour != Behaviour::Dies || ms >= 1_000;
        monitor.request_check(now);
        monitor.handle_timeout(now, &mut ());
        if behaviour == Behaviour::Dies && ms == 1_000 {
            let check = greeted.iter().rfind(|id| id.kind() == MonitorConnKind::Check).copied().expect("connected");
            monitor.handle_failed(now, check, Cause::Network, &mut ()).expect("streaming");
        }
        if let Some((_, conn)) = breaks.take_if(|(at, _)| *at <= ms) {
            let _ = monitor.handle_failed(now, conn, Cause::Network, &mut ());
        }
        for turn in 0.. {
            assert!(turn < 1_000, "the monitor loops at {ms} ms");
            if let Some(outcome) = monitor.outcome() {
                monitor.settle(now, matches!(outcome, CheckOutcome::Succeeded { .. }), &mut ());
            }
            match monitor.poll_action(now) {
                Some(MonitorAction::Dial(id)) => {
                    match id.kind() {
                        MonitorConnKind::Check => dials.check.push(ms),
                        MonitorConnKind::Rtt => dials.rtt.push(ms),
                    }
                    if dead && behaviour == Behaviour::Dies {
                        monitor.handle_failed(now, id, Cause::Network, &mut ()).expect("dialing");
                    } else {
                        monitor.handle_dialed(now, id, &mut ()).expect("dialing");
                    }
                }
                Some(MonitorAction::SendHello { conn, .. }) => {
                    let first = !greeted.contains(&conn);
                    if behaviour == Behaviour::Resets {
                        monitor.handle_failed(now, conn, Cause::Network, &mut ()).expect("current");
                    } else if !first && behaviour == Behaviour::GreetsAndResets {
                        breaks = Some((ms + 10, conn));
                    } else if first {
                        greeted.push(conn);
                        monitor.handle_reply(now, conn, &reply.hello(), reply.matched(), &mut ()).expect("current");
                    }
                }
                Some(MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_)) => {}
                None => break,
            }
        }
    }
    dials
}

/// The maximum number of `dials` in any window of half a second.
fn most_in_half_a_second(dials: &[u64]) -> usize {
    dials.iter().map(|&from| dials.iter().filter(|&&at| at >= from && at < from + 500).count()).max().unwrap_or(0)
}

/// With a check request in every millisecond.
#[test]
#[doc(alias = "S20")]
fn a_dead_server_costs_at_most_two_connects_in_half_a_second() {
    for behaviour in [Behaviour::Dies, Behaviour::Resets] {
        let dials = dials_of(behaviour, 20);
        let mut all: Vec<u64> = [dials.check, dials.rtt].concat();
        all.sort_unstable();
        all.retain(|&at| behaviour != Behaviour::Dies || at >= 1_000);
        assert!(all.len() > 30, "too few dials: {}", all.len());
        assert!(most_in_half_a_second(&all) <= 2, "{all:?}");
    }
}

/// The immediate retry is granted once in half a second.
#[test]
#[doc(alias("S3", "S20"))]
fn server_that_greets_and_resets_is_not_checked_in_a_hot_loop() {
    let dials = dials_of(Behaviour::GreetsAndResets, 20);
    assert!(most_in_half_a_second(&dials.check) <= 2, "{dials:?}");
    assert!(most_in_half_a_second(&dials.rtt) <= 1, "{dials:?}");
}

/// A healthy server is known within a round trip of the start, and heartbeats continue.
#[test]
#[doc(alias = "S19")]
fn healthy_server_is_checked_forever() {
    let config = MonitorOptions::DEFAULT.validate().expect("valid");
    let mut monitor = Hosted::new(Monitor::new(ServerId::new(1), config));
    let mut seen: Vec<(Instant, MonitorEvent)> = Vec::new();
    let mut now = Instant::ORIGIN;
    monitor.start(now, &mut seen);
    for _ in 0..100 {
        while let Some(action) = monitor.poll_action(now) {
            match action {
                MonitorAction::Dial(conn) => monitor.handle_dialed(now, conn, &mut seen).expect("dialing"),
                MonitorAction::SendHello { conn, .. } => {
                    now = now.saturating_add(Duration::from_millis(3));
                    monitor
                        .handle_reply(now, conn, &CheckReply::OK.hello(), Matched::Last, &mut seen)
                        .expect("current");
                    monitor.settle(now, true, &mut seen);
                }
                MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_) => panic!("unexpected action: {action:?}"),
            }
        }
        now = monitor.poll_timeout().expect("another check");
        monitor.handle_timeout(now, &mut seen);
    }
    let good = seen.iter().filter(|(_, event)| matches!(event, MonitorEvent::HeartbeatSucceeded { .. })).count();
    assert_eq!(good, 100);
    assert_eq!(now.as_nanos(), 100 * 10_003_000_000);
}
