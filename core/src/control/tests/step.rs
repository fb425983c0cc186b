//! A check and its consequences are one step.

use super::*;

fn clear(server: ServerId, cause: Cause) -> ControlAction {
    let interrupt_in_use_connections = cause == Cause::NetworkTimeout;
    ControlAction::Pool(server, PoolCommand::Clear { interrupt_in_use_connections, cause })
}

const fn ready(server: ServerId) -> ControlAction {
    ControlAction::Pool(server, PoolCommand::Ready)
}

#[test]
#[doc(alias("MON-52", "S8", "SDAM-63"))]
fn after_a_good_check_ready_is_owed_in_the_same_step_and_selectors_wake_last() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    assert!(!rig.control.is_closed());
    rig.check("a", &standalone());
    assert_eq!(rig.server_type("a"), ServerType::Standalone);
    assert_eq!(rig.actions(), [ready(a), ControlAction::WakeSelectors]);
    assert_eq!(
        rig.lines(),
        [
            "#1 succeeded",
            "ServerDescriptionChanged a:27017 Unknown -> Standalone",
            "TopologyDescriptionChanged Unknown -> Single [a:27017: Standalone]",
        ]
    );
}

#[test]
#[doc(alias("S8", "SDAM-63"))]
fn pool_of_a_member_without_data_is_ready_only_for_a_direct_connection() {
    let hosts = ["a"];
    let others = [
        HelloReply { arbiter_only: true, ..member(&hosts) },
        HelloReply { hidden: true, ..member(&hosts) },
        HelloReply { is_replica_set: true, ..standalone() },
        member(&hosts),
    ];
    for hello in &others {
        let mut rig = open(&["a"]);
        rig.check("a", hello);
        assert!(rig.control.topology().servers().next().unwrap().server_type().is_known());
        assert_eq!(rig.actions(), [ControlAction::WakeSelectors], "{hello:?}");
        let options = TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() };
        let mut rig: Rig = open_with(options, POLLING);
        rig.drain();
        let a = rig.id("a");
        rig.check("a", hello);
        assert_eq!(rig.actions(), [ready(a), ControlAction::WakeSelectors], "{hello:?}");
    }
}

#[test]
#[doc(alias("MON-53", "MON-55", "S7", "SDAM-64"))]
fn after_a_failed_check_the_server_is_unknown_before_the_clear_is_owed() {
    for cause in [Cause::Network, Cause::Command { code: 6 }, Cause::Protocol, Cause::Dns] {
        let mut rig = open(&["a", "b"]);
        let a = rig.id("a");
        rig.check("a", &mongos());
        rig.drain();
        rig.at(10_000).timeout();
        rig.drain();
        rig.fail("a", cause);
        assert_eq!(rig.server_type("a"), ServerType::Unknown);
        assert_eq!(rig.actions(), [clear(a, cause), ControlAction::WakeSelectors]);
        let lines = rig.lines();
        assert_eq!(lines[0], format!("#1 failed: {cause}"));
        assert_eq!(lines[1], format!("ServerDescriptionChanged a:27017 Mongos -> Unknown: {cause}"));
        assert!(lines[2].starts_with("TopologyDescriptionChanged Sharded -> Sharded"), "{}", lines[2]);
        // MON-55: only a network error is retried at once, after all other events were emitted.
        let retried = lines.get(3).is_some_and(|line| line == "#1 started");
        assert_eq!((retried, lines.len()), if cause.is_network() { (true, 4) } else { (false, 3) });
        // On a new connection, after the hang-up of the old one.
        assert!(matches!(rig.conn("a", MonitorConnKind::Check), MonitorAction::Hangup(_)));
        assert_eq!(rig.control.owes_conn(a, MonitorConnKind::Check), retried);
    }
}

/// A reply that is not ok is a failure.
#[test]
#[doc(alias = "MON-53")]
fn reply_that_is_not_ok_fails_the_check() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let conn = rig.connect("a");
    let reply = HelloReply { ok: false, code: 91, ..HelloReply::OK };
    rig.control.handle_reply(rig.now, a, conn, &reply, Matched::Last, &mut rig.log).unwrap();
    rig.control.assert_invariants();
    assert_eq!(rig.actions(), [clear(a, Cause::Command { code: 91 }), ControlAction::WakeSelectors]);
}

/// A network timeout interrupts connections in use, whether the host or the clock detects
/// it.
#[test]
#[doc(alias = "MON-54")]
fn check_that_times_out_interrupts_connections_in_use() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.connect("a");
    assert_eq!(rig.control.poll_timeout(), Some(at(10_000)));
    rig.at(9_999).timeout();
    assert_eq!(rig.actions(), []);
    rig.at(10_000).timeout();
    assert_eq!(rig.actions(), [clear(a, Cause::NetworkTimeout), ControlAction::WakeSelectors]);
    // At the deadline it is a timeout even if the socket reports another error.
    let mut rig = open(&["a"]);
    let conn = rig.connect("a");
    rig.now = at(10_000);
    rig.control.handle_failed(rig.now, a, conn, Cause::Network, &mut rig.log).unwrap();
    assert_eq!(rig.actions(), [clear(a, Cause::NetworkTimeout), ControlAction::WakeSelectors]);
    // A dial that completes too late is a timeout, too.
    let mut rig = open(&["a"]);
    let MonitorAction::Dial(conn) = rig.conn("a", MonitorConnKind::Check) else { panic!("it is dialed") };
    assert_eq!(rig.control.handle_dialed(at(10_000), a, conn, &mut rig.log), Ok(()));
    rig.control.assert_invariants();
    assert_eq!(rig.actions(), [clear(a, Cause::NetworkTimeout), ControlAction::WakeSelectors]);
}

/// A `Ready` that was not taken before the server failed is revoked.
#[test]
fn ready_is_revoked_by_a_failure() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.check("a", &standalone());
    rig.at(10_000).timeout();
    rig.fail("a", Cause::Network);
    assert_eq!(rig.actions(), [clear(a, Cause::Network), ControlAction::WakeSelectors]);
}

/// Also a check with a reply that is too old to count.
#[test]
#[doc(alias("MON-18", "S9"))]
fn every_check_that_ends_wakes_selectors() {
    let mut rig = open(&["a"]);
    rig.check("a", &versioned(standalone(), 5));
    rig.drain();
    rig.at(10_000).timeout();
    rig.check("a", &versioned(standalone(), 4));
    assert_eq!(rig.actions(), [ControlAction::WakeSelectors]);
    rig.at(20_000).timeout();
    rig.check("a", &versioned(standalone(), 5));
    let a = rig.id("a");
    assert_eq!(rig.actions(), [ready(a), ControlAction::WakeSelectors]);
    rig.at(30_000).timeout();
    rig.fail("a", Cause::Network);
    assert_eq!(rig.actions().last(), Some(&ControlAction::WakeSelectors));
    rig.fail("a", Cause::Network);
    assert_eq!(rig.actions().last(), Some(&ControlAction::WakeSelectors));
}

/// An application's error is newer than a reply that was in flight. Selectors that
/// still wait request further checks.
#[test]
#[doc(alias("S9", "SDAM-85"))]
fn server_unknown_after_an_old_reply_is_checked_at_each_request() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.check("a", &versioned(standalone(), 5));
    rig.at(10_000).timeout();
    let conn = rig.connect("a");
    let not_primary = super::app::state_change(10_107, 7);
    assert!(rig.control.handle_app_error(rig.now, a, &not_primary, &mut rig.log).marked_unknown);
    rig.drain();
    rig.control.request_check(rig.now);
    rig.reply(a, conn, &versioned(standalone(), 6)).unwrap();
    assert_eq!(rig.server_type("a"), ServerType::Unknown);
    assert_eq!(rig.actions(), [ControlAction::WakeSelectors], "and its pool is not made ready");
    rig.control.request_check(rig.now);
    assert_eq!(rig.control.poll_timeout(), Some(at(10_500)));
}

/// The description has the monitor's round-trip times.
#[test]
#[doc(alias("MON-45", "SDAM-25"))]
fn round_trip_times_of_the_monitor_reach_the_description() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let conn = rig.connect("a");
    rig.at(8).reply(a, conn, &standalone()).unwrap();
    let times = |rig: &Rig| {
        let server = rig.control.topology().server(rig.id("a")).unwrap();
        (server.round_trip_time(), server.min_round_trip_time())
    };
    assert_eq!(times(&rig), (Some(Duration::from_millis(8)), Some(Duration::ZERO)));
    rig.at(10_008).timeout();
    let conn = rig.connect("a");
    rig.at(10_011).reply(a, conn, &standalone()).unwrap();
    assert_eq!(times(&rig), (Some(Duration::from_millis(7)), Some(Duration::from_millis(3))));
    // The hello of an application's connection yields no round-trip time.
    rig.control.handle_app_hello(rig.now, a, &versioned(standalone(), 1), &mut rig.log);
    assert_eq!(times(&rig), (Some(Duration::from_millis(7)), Some(Duration::from_millis(3))));
}

/// The next read of a stream begins once the last reply is applied.
#[test]
#[doc(alias("LOG-13", "MON-33"))]
fn streamed_reply_is_applied_before_the_next_check_begins() {
    let (mut rig, conn) = streaming(MonitorOptions::DEFAULT);
    let a = rig.id("a");
    let hello = HelloReply { max_wire_version: 20, ..versioned(standalone(), 6) };
    rig.now = at(40);
    rig.control.handle_reply(rig.now, a, conn, &hello, Matched::MoreComes, &mut rig.log).unwrap();
    rig.control.assert_invariants();
    assert_eq!(
        rig.lines(),
        [
            "#1 succeeded",
            "ServerDescriptionChanged a:27017 Standalone -> Standalone",
            "TopologyDescriptionChanged Single -> Single [a:27017: Standalone]",
            "#1 started",
        ]
    );
    assert_eq!(rig.conn("a", MonitorConnKind::Check), MonitorAction::ReadNext { conn });
}

/// Results of the RTT connection cause no event and no action.
#[test]
#[doc(alias("MON-42", "S13"))]
fn rtt_connection_changes_no_description() {
    let (mut rig, _) = streaming(MonitorOptions::DEFAULT);
    let a = rig.id("a");
    let MonitorAction::Dial(rtt) = rig.conn("a", MonitorConnKind::Rtt) else { panic!("it is dialed") };
    rig.control.handle_dialed(rig.now, a, rtt, &mut rig.log).unwrap();
    assert!(matches!(rig.conn("a", MonitorConnKind::Rtt), MonitorAction::SendHello { .. }));
    rig.at(3).reply(a, rtt, &mongos()).unwrap();
    rig.control.handle_failed(rig.now, a, rtt, Cause::Network, &mut rig.log).unwrap();
    rig.control.assert_invariants();
    assert_eq!(rig.server_type("a"), ServerType::Standalone);
    assert_eq!((rig.actions(), rig.lines()), (Vec::new(), Vec::new()));
}
