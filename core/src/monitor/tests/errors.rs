use super::*;
use crate::CertificateFault;

/// Polling, with a known server and a hello that the host has sent at 10,000 ms.
fn known_and_checking() -> (Rig, MonitorConnId) {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.at(10_000).timeout();
    assert_eq!(rig.actions().len(), 1);
    rig.seen();
    (rig, conn)
}

/// MON-53.
#[test]
#[doc(alias("LOG-14", "MON-53"))]
fn a_failed_check_closes_the_connection_and_emits_its_event_first() {
    // LOG-14: the event carries the failure. It is emitted before the outcome is applied, and its
    // consequences follow after.
    let (mut rig, conn) = known_and_checking();
    rig.at(10_040).fail(conn, Cause::Network).expect("current");
    assert_eq!(rig.outcome, failed(Cause::Network));
    let failure = Seen::Failed { awaited: false, ms: 40, cause: Cause::Network };
    assert_eq!(rig.seen()[..], [failure]);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_040)), "what follows is due at once");
    rig.settle();
    assert_eq!(rig.seen()[..], [STARTED]);
}

/// MON-54.
#[test]
#[doc(alias = "MON-54")]
fn only_a_network_timeout_interrupts_connections_in_use() {
    for cause in [
        Cause::Network,
        Cause::NetworkTimeout,
        Cause::Protocol,
        Cause::Dns,
        Cause::Certificate(CertificateFault::Expired),
    ] {
        let (mut rig, conn) = known_and_checking();
        rig.fail(conn, cause).expect("current");
        let interrupt = cause == Cause::NetworkTimeout;
        assert_eq!(rig.outcome, Some(CheckOutcome::Failed { cause, interrupt }));
    }
}

/// MON-55.
#[test]
#[doc(alias("LOG-14", "MON-55", "MON-56"))]
fn a_network_error_on_a_known_server_is_retried_at_once_and_only_once() {
    for cause in [Cause::Network, Cause::NetworkTimeout] {
        let (mut rig, conn) = known_and_checking();
        rig.fail(conn, cause).expect("current");
        rig.settle();
        let [MonitorAction::Hangup(first), MonitorAction::Dial(second)] = rig.actions()[..] else {
            panic!("a new connection at once")
        };
        assert_eq!(first, conn);
        rig.fail(second, cause).expect("current");
        rig.settle();
        assert_eq!(rig.actions().len(), 0, "a failed dial has nothing to hang up");
        assert_eq!(rig.due(), Some(at(20_000)), "MON-56: an unknown server waits");
        let failure = Seen::Failed { awaited: false, ms: 0, cause };
        assert_eq!(rig.seen()[..], [failure, STARTED, failure], "LOG-14: the retry is visible");
    }
}

/// MON-56.
#[test]
#[doc(alias = "MON-56")]
fn other_failures_wait_even_on_a_known_server() {
    for cause in [
        Cause::Protocol,
        Cause::Dns,
        Cause::Certificate(CertificateFault::Expired),
        Cause::Resources,
        Cause::Command { code: 1 },
    ] {
        let (mut rig, conn) = known_and_checking();
        rig.fail(conn, cause).expect("current");
        rig.settle();
        assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
        assert_eq!(rig.due(), Some(at(20_000)));
    }
    let (mut rig, conn) = known_and_checking();
    rig.reply(conn, &REFUSED).expect("current");
    assert_eq!(rig.settle(), failed(Cause::Command { code: 91 }));
    assert_eq!(rig.due(), Some(at(20_000)));
    rig.monitor.request_check(at(10_001));
    assert_eq!(rig.due(), Some(at(10_500)));
    rig.at(10_500).timeout();
    assert!(matches!(rig.actions()[..], [MonitorAction::Hangup(first), MonitorAction::Dial(_)] if first == conn));
}

#[test]
fn a_check_that_the_host_lost_is_repeated_after_500_ms() {
    let first_check = || {
        let mut rig = Rig::polling();
        let conn = rig.connect();
        (rig, conn)
    };
    for (mut rig, conn) in [known_and_checking(), first_check()] {
        let lost_at = rig.now;
        rig.fail(conn, Cause::Cancelled).expect("current");
        rig.settle();
        assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
        let again = lost_at.saturating_add(MIN_HEARTBEAT_FREQUENCY);
        assert_eq!(rig.due(), Some(again), "the loss says nothing about the server");
        rig.now = again;
        rig.timeout();
        assert!(matches!(rig.actions()[..], [MonitorAction::Dial(_)]), "a new connection");
    }
}

/// MON-55.
#[test]
#[doc(alias = "MON-55")]
fn the_first_check_of_a_server_is_not_retried() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_000)));
}

/// MON-57.
#[test]
#[doc(alias = "MON-57")]
fn an_applications_error_that_made_the_server_unknown_prevents_the_retry() {
    let (mut rig, conn) = known_and_checking();
    rig.known = false;
    assert_eq!(rig.monitor.state(), MonitorState::Checking);
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    assert_eq!(rig.actions().len(), 1);
    assert_eq!(rig.due(), Some(at(20_000)));
}

/// MON-20.
#[test]
#[doc(alias = "MON-20")]
fn a_server_known_by_an_applications_hello_is_retried() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.known = true;
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    assert_eq!(rig.actions().len(), 2, "hang up, dial");
}

#[test]
fn a_good_reply_that_the_topology_ignored_leaves_the_server_unknown() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle_as(false);
    rig.at(10_000).timeout();
    rig.actions();
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    assert_eq!(rig.due(), Some(at(20_000)), "no retry");
}

/// MON-50, MON-55.
#[test]
#[doc(alias("MON-50", "MON-55"))]
fn a_server_whose_check_was_cancelled_counts_as_unknown() {
    let (mut rig, _) = known_and_checking();
    rig.cancel();
    rig.actions();
    rig.at(20_000).timeout();
    let second = rig.dial();
    rig.fail(second, Cause::Network).expect("current");
    rig.settle();
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(second)], "no retry");
}

/// MON-55.
#[test]
#[doc(alias = "MON-55")]
fn a_server_that_closes_after_the_handshake_is_retried_once_in_500_ms() {
    let mut rig = Rig::streaming_from_the_start();
    let first = rig.monitor.check.conn().expect("connected").id;
    rig.fail(first, Cause::Network).expect("current");
    rig.settle();
    let second = rig.dial();
    rig.at(20).reply(second, &VERSIONED).expect("current");
    rig.settle();
    rig.actions();
    rig.at(30).fail(second, Cause::Network).expect("current");
    rig.settle();
    assert!(rig.actions().iter().all(|action| matches!(action, MonitorAction::Hangup(_))));
    assert_eq!(rig.due(), Some(at(530)), "minHeartbeatFrequencyMS instead of a second retry");
    rig.at(530).timeout();
    let third = rig.dial();
    rig.reply(third, &VERSIONED).expect("current");
    rig.settle();
    rig.actions();
    rig.at(540).fail(third, Cause::Network).expect("current");
    rig.settle();
    assert!(rig.actions().iter().any(|action| matches!(action, MonitorAction::Dial(_))), "the next one is granted");
}

/// MON-50.
#[test]
#[doc(alias = "MON-50")]
fn cancelling_closes_the_connection_and_waits_as_after_a_failure() {
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let rtt = rig.monitor.ping.conn().expect("dialing").id;
    rig.at(70).cancel();
    assert_eq!(rig.outcome, None, "whoever cancels has marked the server");
    assert_eq!(rig.seen()[..], [Seen::Failed { awaited: true, ms: 70, cause: Cause::Cancelled }]);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(check), MonitorAction::Hangup(rtt)]);
    assert_eq!(rig.due(), Some(at(10_070)), "not a retry at once");
    assert_eq!(rig.reply(check, &STREAMED), Err(Stale));
    assert_eq!(rig.monitor.rtt().average(), None);
    rig.monitor.request_check(at(80));
    assert_eq!(rig.due(), Some(at(570)));
    rig.at(570).timeout();
    assert_eq!(rig.only_dial().kind(), MonitorConnKind::Check);
}

/// MON-50.
#[test]
#[doc(alias = "MON-50")]
fn cancelling_between_checks_closes_the_idle_connection_and_keeps_the_due_time() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.seen();
    rig.at(4_000).cancel();
    assert_eq!(rig.seen().len(), 0);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_000)));
}

#[test]
fn cancelling_a_dial_that_the_host_has_not_begun_owes_nothing() {
    let mut rig = Rig::polling();
    rig.start();
    rig.cancel();
    assert_eq!(rig.actions().len(), 0);
    assert_eq!(rig.seen()[..], [STARTED, Seen::Failed { awaited: false, ms: 0, cause: Cause::Cancelled }]);
}

#[test]
fn cancelling_while_an_outcome_is_applied_cancels_the_next_step() {
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.cancel();
    assert!(rig.outcome.is_some());
    rig.settle();
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_000)));
    assert!(!rig.monitor.is_streaming());
}

/// MON-49.
#[test]
#[doc(alias("LOG-11", "MON-49"))]
fn close_ends_a_streamed_wait_at_once() {
    // LOG-11: the last Started event has its end.
    let mut rig = Rig::streaming_from_the_start();
    let check = rig.monitor.check.conn().expect("connected").id;
    let rtt = rig.monitor.ping.conn().expect("dialing").id;
    rig.at(2_000).close();
    assert_eq!(rig.seen()[..], [Seen::Failed { awaited: true, ms: 2_000, cause: Cause::Closed }]);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(check), MonitorAction::Hangup(rtt)]);
    assert_eq!(rig.due(), None);
    rig.close();
    rig.start();
    rig.monitor.request_check(at(2_001));
    rig.cancel();
    rig.timeout();
    assert_eq!(rig.monitor.state(), MonitorState::Closed);
    assert_eq!((rig.seen().len(), rig.actions().len()), (0, 0));
    assert_eq!(rig.reply(check, &STREAMED), Err(Stale));
    assert_eq!(rig.fail(rtt, Cause::Network), Err(Stale));
}

#[test]
fn closing_while_an_outcome_is_applied_drops_the_outcome() {
    let mut rig = Rig::streaming();
    let conn = rig.connect();
    rig.reply(conn, &VERSIONED).expect("current");
    rig.close();
    rig.seen();
    rig.settle_as(true);
    assert_eq!(rig.seen().len(), 0);
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
}

#[test]
fn an_idle_connection_that_breaks_is_no_failed_check() {
    let mut rig = Rig::polling();
    let conn = rig.connect();
    rig.reply(conn, &OK).expect("current");
    rig.settle();
    rig.seen();
    rig.fail(conn, Cause::Network).expect("current");
    assert_eq!((rig.settle(), rig.seen().len()), (None, 0));
    assert_eq!(rig.actions()[..], [MonitorAction::Hangup(conn)]);
    assert_eq!(rig.due(), Some(at(10_000)));
}

#[test]
fn late_results_of_an_old_connection_are_stale() {
    let (mut rig, conn) = known_and_checking();
    rig.fail(conn, Cause::Network).expect("current");
    rig.settle();
    let before = rig.monitor.clone();
    assert_eq!(rig.reply(conn, &OK), Err(Stale));
    assert_eq!(rig.fail(conn, Cause::Network), Err(Stale));
    assert_eq!(rig.dialed(conn), Err(Stale));
    assert_eq!(rig.monitor, before);
    let unknown = rig.monitor.check.conn().expect("a dial is owed").id;
    assert_eq!(rig.dialed(unknown), Err(Stale), "a dial that was not handed out has no news");
    assert_eq!(rig.monitor, before);
}

/// If the host drops an outcome, its effect on the server is lost, but the monitor continues.
#[test]
fn step_after_a_check_begins_at_the_next_due_call() {
    let (mut rig, conn) = known_and_checking();
    rig.fail(conn, Cause::Network).expect("current");
    assert_eq!(rig.due(), Some(rig.now));
    rig.timeout();
    assert_eq!(rig.monitor.state(), MonitorState::Checking, "the retry");
}

/// LOG-11.
#[test]
#[doc(alias = "LOG-11")]
fn every_started_has_one_end_whatever_ends_the_check() {
    for end in 0..6 {
        let (mut rig, conn) = known_and_checking();
        rig.log.events.clear();
        match end {
            0 => rig.reply(conn, &OK).expect("current"),
            1 => rig.reply(conn, &REFUSED).expect("current"),
            2 => rig.fail(conn, Cause::Network).expect("current"),
            3 => rig.at(20_000).timeout(),
            4 => rig.cancel(),
            _ => rig.close(),
        }
        let seen = rig.seen();
        assert_eq!(seen.len(), 1, "end {end}");
        assert!(!matches!(seen[0], Seen::Started { .. }));
    }
}
