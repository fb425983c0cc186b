//! Errors and hellos of applications, and their effects on monitors.

use super::*;
use crate::pool::Clear;
use crate::topology::{AppErrorKind, CommandError, HandshakePhase, ReplyError};

pub(super) const fn app_error(kind: AppErrorKind<'static>) -> AppError<'static> {
    AppError {
        generation: 0,
        pool_generation: 0,
        phase: HandshakePhase::After,
        kind,
        overloaded: false,
        service_id: None,
    }
}

/// A state change error, with the topologyVersion of [`versioned`].
pub(super) const fn state_change(code: i32, counter: i64) -> AppError<'static> {
    app_error(AppErrorKind::Command(CommandError {
        command: Some(ReplyError { code: Some(code), message: "" }),
        write_concern: None,
        topology_version: Some(TopologyVersion { process_id: ObjectId([7; 12]), counter }),
    }))
}

const ALL: Clear = Clear::All { interrupt_in_use_connections: false };

#[test]
#[doc(alias("MON-20", "MON-55"))]
fn hello_of_an_application_updates_the_topology_and_its_monitors() {
    let hosts = ["a", "b"];
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.control.handle_app_hello(rig.now, a, &primary(&hosts, 1), &mut rig.log);
    rig.control.assert_invariants();
    let b = rig.id("b");
    assert_eq!(rig.server_type("a"), ServerType::RsPrimary);
    let ready = ControlAction::Pool(a, PoolCommand::Ready);
    assert_eq!(rig.actions(), [ready, ControlAction::ServerAdded(b), ControlAction::WakeSelectors]);
    assert_eq!(rig.lines().last().unwrap(), "#2 started");
    // MON-55: the server is known now, so a network error of the first check is retried at once.
    rig.fail("a", Cause::Network);
    assert_eq!(rig.lines().last().unwrap(), "#1 started");
}

#[test]
#[doc(alias("MON-21", "SDAM-75"))]
fn connection_that_cannot_be_established_marks_its_server_unknown_unless_that_is_overloaded() {
    for overloaded in [true, false] {
        let mut rig = open(&["a"]);
        let a = rig.id("a");
        rig.check("a", &standalone());
        rig.drain();
        let error = AppError { phase: HandshakePhase::Before, overloaded, ..app_error(AppErrorKind::NetworkTimeout) };
        let verdict = rig.control.handle_app_error(rig.now, a, &error, &mut rig.log);
        rig.control.assert_invariants();
        assert_eq!(verdict.clear, (!overloaded).then_some(ALL));
        assert_eq!(rig.server_type("a").is_known(), overloaded);
        assert_eq!(rig.actions().is_empty(), overloaded);
    }
}

#[test]
#[doc(alias("MON-50", "S18", "SDAM-85"))]
fn network_error_of_an_application_cancels_the_check_which_then_waits() {
    let (mut rig, conn) = streaming(MonitorOptions::DEFAULT);
    let a = rig.id("a");
    rig.now = at(300);
    let verdict = rig.control.handle_app_error(rig.now, a, &app_error(AppErrorKind::Network), &mut rig.log);
    rig.control.assert_invariants();
    assert_eq!((verdict.clear, verdict.cancel_check), (Some(ALL), true));
    let lines = rig.lines();
    assert_eq!(lines[0], "ServerDescriptionChanged a:27017 Standalone -> Unknown: network error");
    assert_eq!(lines.last().unwrap(), "#1 failed: cancelled by the caller");
    assert_eq!(rig.actions(), [ControlAction::WakeSelectors], "the host clears the pool as the verdict says");
    assert_eq!(rig.conn("a", MonitorConnKind::Check), MonitorAction::Hangup(conn));
    assert!(!rig.control.owes_conn(a, MonitorConnKind::Check), "no retry at once");
    assert_eq!(rig.control.poll_timeout(), Some(at(10_300)));
    // SDAM-85: unless a selector waits.
    rig.control.request_check(rig.now);
    assert_eq!(rig.control.poll_timeout(), Some(at(800)));
    assert_eq!(rig.reply(a, conn, &standalone()), Err(Stale));
}

/// Every error that ends an establishment cancels the check in flight, because
/// the server may answer a streaming check only after heartbeatFrequencyMS.
#[test]
#[doc(alias("SDAM-69", "SDAM-75"))]
fn failed_establishment_cancels_the_streaming_check() {
    let refused = CommandError {
        command: Some(ReplyError { code: Some(18), message: "Authentication failed." }),
        write_concern: None,
        topology_version: None,
    };
    for kind in [
        AppErrorKind::Command(refused),
        AppErrorKind::NetworkTimeout,
        AppErrorKind::Other(Cause::Authentication),
        AppErrorKind::Other(Cause::Protocol),
        state_change(11_600, 9).kind,
    ] {
        let (mut rig, conn) = streaming(MonitorOptions::DEFAULT);
        let a = rig.id("a");
        rig.now = at(300);
        let error = AppError { phase: HandshakePhase::Before, ..app_error(kind) };
        let verdict = rig.control.handle_app_error(rig.now, a, &error, &mut rig.log);
        rig.control.assert_invariants();
        assert!(verdict.marked_unknown && verdict.cancel_check, "{kind:?}");
        assert_eq!(rig.lines().last().unwrap(), "#1 failed: cancelled by the caller", "{kind:?}");
        assert_eq!(rig.conn("a", MonitorConnKind::Check), MonitorAction::Hangup(conn));
        // The next operation finds no server, and the check that it requests begins 500 ms after
        // the error.
        rig.control.request_check(rig.now);
        assert_eq!(rig.control.poll_timeout(), Some(at(800)), "{kind:?}");
    }
}

#[test]
#[doc(alias = "SDAM-74")]
fn no_check_at_once_after_a_network_error() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.check("a", &standalone());
    rig.now = at(1_000);
    let verdict = rig.control.handle_app_error(rig.now, a, &app_error(AppErrorKind::Network), &mut rig.log);
    assert!(verdict.marked_unknown && !verdict.request_check);
    rig.control.assert_invariants();
    assert_eq!(rig.control.poll_timeout(), Some(at(10_000)));
}

#[test]
#[doc(alias("S12", "SDAM-71"))]
fn network_timeout_of_an_operation_does_not_change_the_server() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    rig.check("a", &standalone());
    rig.drain();
    let verdict = rig.control.handle_app_error(rig.now, a, &app_error(AppErrorKind::NetworkTimeout), &mut rig.log);
    assert_eq!(verdict, Verdict::default());
    assert_eq!((rig.actions(), rig.lines()), (Vec::new(), Vec::new()));
}

#[test]
#[doc(alias("S10", "SDAM-65"))]
fn error_of_another_generation_changes_nothing() {
    for (generation, pool_generation) in [(0, 1), (1, 0)] {
        let mut rig = open(&["a"]);
        let a = rig.id("a");
        rig.check("a", &standalone());
        rig.drain();
        for kind in [state_change(91, 9).kind, AppErrorKind::Network] {
            let error = AppError { generation, pool_generation, ..app_error(kind) };
            assert_eq!(rig.control.handle_app_error(rig.now, a, &error, &mut rig.log), Verdict::default());
        }
        rig.control.assert_invariants();
        assert_eq!((rig.actions(), rig.lines()), (Vec::new(), Vec::new()));
        assert_eq!(rig.control.poll_timeout(), Some(at(10_000)));
    }
}

#[test]
#[doc(alias("MON-55", "S11", "SDAM-81", "SDAM-83"))]
fn state_change_requests_a_check_and_clears_only_at_shutdown() {
    for (code, clear) in [(91, Some(ALL)), (11_600, Some(ALL)), (10_107, None), (189, None)] {
        let mut rig = open(&["a", "b"]);
        let a = rig.id("a");
        rig.check("a", &versioned(mongos(), 5));
        rig.now = at(2_000);
        let verdict = rig.control.handle_app_error(rig.now, a, &state_change(code, 6), &mut rig.log);
        rig.control.assert_invariants();
        assert_eq!((verdict.clear, verdict.request_check), (clear, true));
        assert_eq!(rig.server_type("a"), ServerType::Unknown);
        assert_eq!(rig.control.poll_timeout(), Some(at(2_000)), "now, as the last check ended long ago");
        rig.timeout();
        let MonitorAction::SendHello { conn, .. } = rig.conn("a", MonitorConnKind::Check) else {
            panic!("the check that was asked for")
        };
        // MON-55: the server was Unknown already, so its network error is not retried at once.
        rig.control.handle_failed(rig.now, a, conn, Cause::Network, &mut rig.log).unwrap();
        assert_eq!(rig.control.monitor(a).unwrap().state(), MonitorState::Waiting);
    }
}

#[test]
#[doc(alias("MON-16", "S5"))]
fn request_while_a_check_is_in_flight_is_dropped() {
    let mut rig = open(&["a"]);
    let a = rig.id("a");
    let conn = rig.connect("a");
    for _ in 0..1_000 {
        rig.control.request_check(rig.now);
    }
    let error = state_change(10_107, 6);
    assert!(rig.control.handle_app_error(rig.now, a, &error, &mut rig.log).request_check);
    rig.control.assert_invariants();
    assert!(!rig.control.owes_conn(a, MonitorConnKind::Check));
    rig.reply(a, conn, &standalone()).unwrap();
    assert_eq!(rig.control.poll_timeout(), Some(at(10_000)));
}

#[test]
#[doc(alias("SDAM-55", "SDAM-56"))]
fn deposed_primary_gets_a_check_and_keeps_its_pool() {
    let hosts = ["a", "b", "c"];
    let mut rig: Rig = set_of_three();
    let (a, b) = (rig.id("a"), rig.id("b"));
    rig.at(200).control.request_check(at(200));
    rig.at(500).timeout();
    // "b" is checked first, and has been elected.
    rig.check("c", &secondary(&hosts));
    rig.check("a", &primary(&hosts, 1));
    rig.drain();
    rig.now = at(900);
    rig.check("b", &primary(&hosts, 2));
    assert_eq!(rig.server_type("a"), ServerType::Unknown);
    assert_eq!(rig.actions(), [ControlAction::Pool(b, PoolCommand::Ready), ControlAction::WakeSelectors]);
    assert_eq!(rig.control.poll_timeout(), Some(at(1_000)), "minHeartbeatFrequencyMS after its last check");
    rig.at(1_000).timeout();
    rig.connect("a");
    assert_eq!(rig.control.monitor(a).unwrap().state(), MonitorState::Checking);
}

/// The primary that was deposed is Unknown, so its network error is not retried at
/// once.
#[test]
#[doc(alias("MON-55", "S6"))]
fn deposed_primary_is_not_retried_at_once() {
    let hosts = ["a", "b", "c"];
    let mut rig: Rig = set_of_three();
    rig.at(10_000).timeout();
    rig.check("b", &primary(&hosts, 2));
    assert_eq!(rig.server_type("a"), ServerType::Unknown);
    rig.lines();
    rig.fail("a", Cause::Network);
    let lines = rig.lines();
    assert_eq!(lines[0], "#1 failed: network error");
    assert!(!lines.iter().any(|line| line == "#1 started"), "{lines:?}");
}
