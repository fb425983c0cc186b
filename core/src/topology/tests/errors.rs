//! The effects of application errors.

use super::*;
use crate::CertificateFault;
use crate::pool::Clear;
use AppErrorKind::{Command, Network, NetworkTimeout, Other};
use HandshakePhase::{After, Before};
use poolhouse_wire::Phase;
use poolhouse_wire::handshake::HandshakeError;

const ALL: Option<Clear> = Some(Clear::All { interrupt_in_use_connections: false });

fn error(kind: AppErrorKind<'_>, phase: HandshakePhase) -> AppError<'_> {
    AppError { generation: 3, pool_generation: 3, phase, kind, overloaded: false, service_id: None }
}

fn reply(code: Option<i32>, message: &str) -> CommandError<'_> {
    CommandError { command: Some(ReplyError { code, message }), write_concern: None, topology_version: None }
}

/// A primary, without pending actions.
fn net() -> Net<OnHeap> {
    let mut net = ready(&["a"]);
    net.hello("a", &primary(&["a"]));
    net.drain();
    net
}

fn judged(error: &AppError<'_>) -> (Verdict, Net<OnHeap>) {
    let mut net = net();
    let verdict = net.app("a", error);
    (verdict, net)
}

fn is_ignored(error: &AppError<'_>) -> bool {
    let (verdict, mut net) = judged(error);
    let is_known = net.see("a").server_type() == ServerType::RsPrimary;
    assert_eq!(is_known, verdict == Verdict::default());
    assert_eq!(is_known, net.actions().is_empty() && net.lines().is_empty());
    is_known
}

/// Older generations, and generations above the pool's.
#[test]
#[doc(alias = "SDAM-65")]
fn error_of_another_generation_changes_nothing() {
    for generation in [0, 2, 4, u64::MAX] {
        assert!(is_ignored(&AppError { generation, ..error(Network, After) }), "{generation}");
    }
    assert!(!is_ignored(&error(Network, After)));
}

#[test]
#[doc(alias = "SDAM-67")]
fn error_with_a_topology_version_that_is_not_newer_changes_nothing() {
    let version = |process, counter| Some(TopologyVersion { process_id: ObjectId([process; 12]), counter });
    for (topology_version, ignored) in
        [(version(1, 4), true), (version(1, 5), true), (version(1, 6), false), (version(2, 0), false), (None, false)]
    {
        let mut net = ready(&["a"]);
        net.hello("a", &HelloReply { topology_version: version(1, 5), ..primary(&["a"]) });
        net.drain();
        let stale = Command(CommandError { topology_version, ..reply(Some(10_107), "") });
        let verdict = net.app("a", &error(stale, After));
        assert_eq!(verdict.marked_unknown, !ignored, "{topology_version:?}");
        let kept = if ignored { version(1, 5) } else { topology_version };
        assert_eq!(net.see("a").topology_version(), kept);
    }
}

/// Labeled errors of a handshake, of every kind.
#[test]
#[doc(alias = "SDAM-68")]
fn overload_in_a_handshake_changes_nothing() {
    for kind in [Network, NetworkTimeout, Command(reply(Some(462), "")), Command(reply(Some(91), ""))] {
        assert!(is_ignored(&AppError { overloaded: true, ..error(kind, Before) }));
    }
    assert!(is_ignored(&AppError { overloaded: true, ..error(Network, After) }));
}

#[test]
#[doc(alias("SDAM-69", "SDAM-75"))]
fn any_other_error_of_a_handshake_marks_unknown_and_clears() {
    for (kind, shown) in [
        (Network, Cause::Network),
        (NetworkTimeout, Cause::NetworkTimeout),
        (Other(Cause::Dns), Cause::Dns),
        (Other(Cause::Certificate(CertificateFault::Expired)), Cause::Certificate(CertificateFault::Expired)),
        (Other(Cause::Authentication), Cause::Authentication),
        (Other(Cause::Protocol), Cause::Protocol),
        (Command(reply(Some(18), "Authentication failed.")), Cause::Command { code: 18 }),
        (Command(reply(None, "")), Cause::Command { code: 0 }),
    ] {
        let (verdict, net) = judged(&error(kind, Before));
        assert_eq!(verdict.clear, ALL, "{kind:?}");
        assert!(verdict.marked_unknown);
        assert!(!verdict.request_check);
        assert!(verdict.cancel_check, "{kind:?}");
        assert_eq!(net.see("a").error(), Some(ServerError::Failed(shown)));
    }
}

/// Except failures that this side causes.
#[test]
#[doc(alias = "SDAM-75")]
fn own_failure_does_not_change_the_server() {
    for cause in [Cause::Cancelled, Cause::Closed, Cause::Forked, Cause::Interrupted, Cause::Resources] {
        assert!(is_ignored(&error(Other(cause), Before)));
    }
}

/// A state change in a handshake has both effects: Unknown with its topologyVersion, and a clear
/// (ambiguity 7).
#[test]
fn state_change_in_a_handshake_clears_too() {
    let (verdict, net) = judged(&error(Command(reply(Some(10_107), "")), Before));
    assert_eq!(verdict.clear, ALL);
    assert!(verdict.request_check && verdict.cancel_check);
    assert!(matches!(net.see("a").error(), Some(ServerError::StateChange { code: 10_107, .. })));
}

#[test]
#[doc(alias = "SDAM-71")]
fn timeout_of_an_operation_changes_nothing() {
    assert!(is_ignored(&error(NetworkTimeout, After)));
    assert!(is_ignored(&error(Other(Cause::Protocol), After)));
}

#[test]
#[doc(alias("MON-50", "SDAM-72", "SDAM-73", "SDAM-74"))]
fn network_error_marks_unknown_clears_and_cancels_but_requests_no_check() {
    let (verdict, mut net) = judged(&error(Network, After));
    assert_eq!(
        verdict,
        Verdict { clear: ALL, marked_unknown: true, request_check: false, cancel_check: true, scan_stale: false }
    );
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    assert_eq!(net.lines()[0], "a:27017: RSPrimary -> Unknown");
    assert_eq!(net.actions(), [TopologyAction::CancelCheck(net.at("a")), TopologyAction::WakeSelectors]);
}

#[test]
#[doc(alias("SDAM-76", "SDAM-80", "SDAM-81", "SDAM-82", "SDAM-83"))]
fn state_change_codes_have_the_effects_of_their_kind() {
    use StateChange::{NotWritablePrimary, Recovering, ShuttingDown};
    for (code, change, text) in [
        (11_600, ShuttingDown, "the node is shutting down (code 11600)"),
        (91, ShuttingDown, "the node is shutting down (code 91)"),
        (11_602, Recovering, "the node is recovering (code 11602)"),
        (13_436, Recovering, "the node is recovering (code 13436)"),
        (189, Recovering, "the node is recovering (code 189)"),
        (10_107, NotWritablePrimary, "the server is not the writable primary (code 10107)"),
        (13_435, NotWritablePrimary, "the server is not the writable primary (code 13435)"),
        (10_058, NotWritablePrimary, "the server is not the writable primary (code 10058)"),
    ] {
        let (verdict, mut net) = judged(&error(Command(reply(Some(code), "")), After));
        assert_eq!(verdict.clear.is_some(), change == ShuttingDown, "{code}");
        assert_eq!(verdict.scan_stale, change != Recovering, "{code}");
        assert!(verdict.marked_unknown && verdict.request_check && !verdict.cancel_check);
        assert_eq!(net.see("a").error(), Some(ServerError::StateChange { change, code }));
        assert_eq!(net.see("a").error().unwrap().to_string(), text);
        assert_eq!(net.actions(), [TopologyAction::RequestCheck(net.at("a")), TopologyAction::WakeSelectors]);
    }
    for code in [0, 1, 11_601, 64, 112, 251] {
        assert!(is_ignored(&error(Command(reply(Some(code), "not master")), After)), "{code}");
    }
}

/// Messages are compared only without a code.
#[test]
#[doc(alias = "SDAM-77")]
fn message_is_evaluated_only_without_a_code() {
    for (message, change) in [
        ("not master", Some(StateChange::NotWritablePrimary)),
        ("err: not master now", Some(StateChange::NotWritablePrimary)),
        ("not master or secondary", Some(StateChange::Recovering)),
        ("the node is recovering", Some(StateChange::Recovering)),
        ("not master; node is recovering", Some(StateChange::Recovering)),
        ("duplicate key", None),
        ("", None),
    ] {
        let (verdict, net) = judged(&error(Command(reply(None, message)), After));
        assert_eq!(verdict.marked_unknown, change.is_some(), "{message}");
        assert_eq!(verdict.clear, None);
        let shown = change.map(|change| ServerError::StateChange { change, code: 0 });
        assert_eq!(net.see("a").error(), shown);
        assert!(is_ignored(&error(Command(reply(Some(1), message)), After)));
    }
}

#[test]
#[doc(alias("SDAM-78", "SDAM-79"))]
fn write_concern_error_is_examined_the_same_way() {
    let with = |command, code, message| CommandError {
        command,
        write_concern: Some(ReplyError { code, message }),
        topology_version: None,
    };
    let (verdict, _) = judged(&error(Command(with(None, Some(91), "")), After));
    assert_eq!(verdict.clear, ALL);
    let (verdict, _) = judged(&error(Command(with(None, Some(189), "")), After));
    assert!(verdict.request_check && verdict.clear.is_none());
    let (verdict, _) = judged(&error(Command(with(None, None, "not master")), After));
    assert!(verdict.scan_stale);
    let other = Some(ReplyError { code: Some(64), message: "" });
    let (verdict, _) = judged(&error(Command(with(other, Some(10_107), "")), After));
    assert!(verdict.marked_unknown);
    assert!(is_ignored(&error(Command(with(None, Some(64), "not master")), After)));
    let nothing = CommandError { command: None, write_concern: None, topology_version: None };
    assert!(is_ignored(&error(Command(nothing), After)));
    assert!(is_ignored(&error(Command(nothing), Before)));
}

#[test]
#[doc(alias = "SDAM-70")]
fn load_balancer_stays_and_only_the_service_is_cleared() {
    let service = ObjectId([8; 12]);
    let cases = [
        (error(Network, After), true),
        (error(Command(reply(Some(91), "")), After), true),
        (error(Command(reply(Some(10_107), "")), After), false),
        (error(NetworkTimeout, After), false),
        (error(NetworkTimeout, Before), true),
        (error(Other(Cause::Authentication), Before), true),
        (AppError { overloaded: true, ..error(Network, Before) }, false),
        (AppError { generation: 2, ..error(Network, After) }, false),
    ];
    for (case, clears) in cases {
        for service_id in [None, Some(service)] {
            let mut net = open(TopologyOptions { seeds: &["a"], load_balanced: true, ..TopologyOptions::default() });
            net.drain();
            let verdict = net.app("a", &AppError { service_id, ..case });
            let clear = service_id.filter(|_| clears).map(Clear::Service);
            assert_eq!(verdict, Verdict { clear, ..Verdict::default() }, "{case:?}");
            assert_eq!(net.see("a").server_type(), ServerType::LoadBalancer);
            assert_eq!(net.actions(), []);
            assert_eq!(net.lines(), Vec::<String>::new());
        }
    }
}

#[test]
#[doc(alias = "SDAM-22")]
fn limits_that_a_reply_exceeds_are_named_with_their_numbers() {
    let of = |limit| ServerError::Beyond { limit, count: 5 }.to_string();
    assert_eq!(of(Limit::Names), "the hello reply names more than 5 hosts");
    assert_eq!(of(Limit::Texts), "more than 5 different addresses and tags");
    assert_eq!(of(Limit::Servers), "more than 5 members, or too many replaced at once");
    let bad = |field, place| ServerError::BadAddress { field, place }.to_string();
    assert_eq!(bad(AddressField::Me, 0), "the hello reply's me is not a valid address");
    assert_eq!(bad(AddressField::Hosts, 2), "the hello reply's hosts[2] is not a valid address");
}

#[test]
fn a_failed_handshake_is_classified_by_its_cause() {
    let of = |cause| HandshakeError::new(Phase::Hello, cause);
    assert_eq!(AppErrorKind::from(&of(Cause::Network)), AppErrorKind::Network);
    assert_eq!(AppErrorKind::from(&of(Cause::NetworkTimeout)), AppErrorKind::NetworkTimeout);
    let topology_version = Some(TopologyVersion { process_id: ObjectId([1; 12]), counter: 2 });
    let refused = HandshakeError { topology_version, ..of(Cause::Command { code: 91 }) };
    let command = Some(ReplyError { code: Some(91), message: "" });
    let expected = CommandError { command, write_concern: None, topology_version };
    assert_eq!(AppErrorKind::from(&refused), AppErrorKind::Command(expected));
    for cause in [Cause::Dns, Cause::Authentication, Cause::Protocol, Cause::Certificate(CertificateFault::Expired)] {
        assert_eq!(AppErrorKind::from(&of(cause)), AppErrorKind::Other(cause));
        assert_eq!(AppErrorKind::from(&of(cause)).cause(), cause);
    }
}

#[test]
fn the_cause_of_a_reply_with_two_errors_is_that_of_the_command() {
    let error = |code| Some(ReplyError { code, message: "not told" });
    let cause = |command, write_concern| {
        AppErrorKind::Command(CommandError { command, write_concern, topology_version: None }).cause()
    };
    assert_eq!(cause(error(Some(91)), error(Some(64))), Cause::Command { code: 91 });
    assert_eq!(cause(None, error(Some(64))), Cause::Command { code: 64 });
    assert_eq!(cause(error(None), None), Cause::Command { code: 0 });
    assert_eq!(AppErrorKind::Network.cause(), Cause::Network);
    assert_eq!(AppErrorKind::NetworkTimeout.cause(), Cause::NetworkTimeout);
}
