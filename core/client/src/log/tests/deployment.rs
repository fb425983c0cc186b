//! The log lines for operators: one for each fact, and none for its consequences.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use poolhouse_core::pool::{ClosedReason, PoolEvent, PoolId};
use poolhouse_core::topology::{
    self, AppError, AppErrorKind, CommandError, HandshakePhase, ReplyError, Topology, TopologyOptions,
};
use poolhouse_core::{Cause, ObjectId};
use poolhouse_wire::bson::{RawArray, RawDocument};
use poolhouse_wire::hello::HelloReply;

/// Only the lines for operators.
const LINES: LogOptions = LogOptions { deployment: LevelFilter::TRACE, heartbeat_replies: false, ..LogOptions::OFF };

/// An array of texts. Its bytes are never freed.
fn texts(texts: &[&str]) -> RawArray<'static> {
    let texts: bson::Document = texts.iter().enumerate().map(|(i, text)| (i.to_string(), (*text).into())).collect();
    let bytes = texts.to_vec().expect("encodable").leak();
    RawArray::from_document(RawDocument::new(bytes).expect("a document"))
}

/// A replica set of two members. Its observer is the logger.
struct Set {
    topology: Topology<topology::OnHeap>,
    logs: Logs,
}

impl Set {
    fn new() -> Self {
        let mut logs = Logs::new(LINES);
        let seeds = ["a:1", "b:1"];
        let options = TopologyOptions { seeds: &seeds, replica_set: Some("rs"), ..TopologyOptions::default() };
        let config = options.validate().expect("valid");
        let topology = Topology::new(Instant::ORIGIN, TopologyId::new(9), config, &mut logs).expect("room");
        Self { topology, logs }
    }

    fn hello(&mut self, address: &str, is_primary: bool, election: u8) {
        let server = self.topology.find(address).expect("a member");
        let hello = HelloReply {
            is_writable_primary: is_primary,
            secondary: !is_primary,
            set_name: Some("rs"),
            set_version: Some(1),
            election_id: is_primary.then_some(ObjectId([election; 12])),
            max_wire_version: 21,
            hosts: texts(&["a:1", "b:1"]),
            ..HelloReply::OK
        };
        self.topology.handle_hello(Instant::ORIGIN, server, &hello, None, &mut self.logs);
    }

    fn fail(&mut self, address: &str, cause: Cause) {
        let server = self.topology.find(address).expect("a member");
        self.topology.handle_failed(Instant::ORIGIN, server, cause, &mut self.logs);
    }

    fn app_error(&mut self, address: &str, phase: HandshakePhase, kind: AppErrorKind<'_>) {
        let server = self.topology.find(address).expect("a member");
        let error = AppError { generation: 0, pool_generation: 0, phase, kind, overloaded: false, service_id: None };
        let _verdict = self.topology.handle_app_error(Instant::ORIGIN, server, &error, &mut self.logs);
    }
}

fn lines(act: impl FnOnce()) -> Vec<String> {
    let of = |event: &Captured| {
        assert_eq!((event.target.as_str(), event.fields.len()), (DEPLOYMENT, 1), "{event:?}");
        format!("{} {}", event.level, event.message())
    };
    capture(act).iter().map(of).collect()
}

/// The lines that follow the one for the first primary.
fn lines_after_start(act: impl FnOnce(&mut Set)) -> Vec<String> {
    let mut lines = lines(|| {
        let mut set = Set::new();
        set.hello("a:1", true, 1);
        set.hello("b:1", false, 1);
        act(&mut set);
        set.topology.close(Instant::ORIGIN, &mut set.logs);
    });
    assert_eq!(lines.remove(0), "INFO primary found: a:1 of replica set rs");
    lines
}

#[test]
fn lost_primary_has_one_line_and_the_next_primary_has_one() {
    let lines = lines_after_start(|set| {
        set.fail("a:1", Cause::Network);
        for _ in 0..3 {
            set.fail("a:1", Cause::NetworkTimeout);
            set.fail("a:1", Cause::Network);
        }
        set.hello("b:1", true, 2);
        set.hello("a:1", false, 2);
    });
    let expected = [
        "WARN primary lost: a:1 of replica set rs: network error",
        "INFO primary found: b:1 of replica set rs",
        "INFO server reconnected: a:1",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn server_that_stays_down_has_one_line() {
    let lines = lines_after_start(|set| {
        set.fail("b:1", Cause::NetworkTimeout);
        set.fail("b:1", Cause::Network);
        set.fail("b:1", Cause::NetworkTimeout);
        set.hello("b:1", false, 1);
        set.hello("b:1", false, 1);
    });
    assert_eq!(lines, ["WARN server down: b:1: network timeout", "INFO server reconnected: b:1"]);
}

#[test]
fn server_that_was_never_reached_has_a_line() {
    let lines = lines(|| {
        let mut set = Set::new();
        set.fail("b:1", Cause::Dns);
        set.fail("b:1", Cause::Dns);
    });
    assert_eq!(lines, ["WARN server down: b:1: host name not resolved"]);
}

#[test]
fn primary_that_is_replaced_at_once_is_not_reported_as_lost() {
    let lines = lines_after_start(|set| {
        set.hello("b:1", true, 2);
        set.hello("a:1", false, 2);
    });
    assert_eq!(lines, ["INFO primary found: b:1 of replica set rs, before it was a:1"]);
}

#[test]
fn primary_that_steps_down_is_reported_as_lost_and_not_as_down() {
    let lines = lines_after_start(|set| {
        set.hello("a:1", false, 1);
        set.hello("a:1", true, 2);
        let command = Some(ReplyError { code: Some(10_107), message: "" });
        let error = CommandError { command, write_concern: None, topology_version: None };
        set.app_error("a:1", HandshakePhase::After, AppErrorKind::Command(error));
        set.hello("a:1", false, 2);
    });
    let expected = [
        "WARN primary lost: a:1 of replica set rs: it is RSSecondary now",
        "INFO primary found: a:1 of replica set rs",
        "WARN primary lost: a:1 of replica set rs: the server is not the writable primary (code 10107)",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn server_that_refuses_the_credential_is_not_reported_as_down() {
    let lines = lines_after_start(|set| {
        for _ in 0..3 {
            set.app_error("a:1", HandshakePhase::Before, AppErrorKind::Other(Cause::Authentication));
            set.hello("a:1", true, 1);
        }
        set.app_error("b:1", HandshakePhase::Before, AppErrorKind::Other(Cause::Authentication));
        set.hello("b:1", false, 1);
        // A server that goes down is reported even if it refused the credential before.
        set.app_error("b:1", HandshakePhase::Before, AppErrorKind::Other(Cause::Authentication));
        set.fail("b:1", Cause::Network);
    });
    assert_eq!(lines, ["WARN server down: b:1: network error"]);
}

fn refused() -> PoolEvent {
    let cause = Some(Cause::Authentication);
    let conn = crate::log::tests::connection_id();
    PoolEvent::ConnectionClosed { pool: PoolId::new(1), conn, reason: ClosedReason::Error, cause }
}

fn cleared(service_id: Option<ObjectId>) -> PoolEvent {
    let cause = Some(Cause::Network);
    PoolEvent::PoolCleared { pool: PoolId::new(1), service_id, interrupt_in_use_connections: false, cause }
}

#[test]
fn pool_that_the_application_drives_reports_clears_and_refused_credentials() {
    let lines = lines(|| {
        let mut logs = logs(LINES);
        logs.on_event(Instant::ORIGIN, &cleared(None));
        logs.on_event(Instant::ORIGIN, &cleared(Some(ObjectId([0xab; 12]))));
        logs.on_event(Instant::ORIGIN, &refused());
        Logs::new(LINES).on_event(Instant::ORIGIN, &refused());
    });
    let expected = [
        "WARN pool cleared: db.example:27018: network error",
        "WARN pool cleared: db.example:27018, service abababababababababababab: network error",
        "WARN authentication failed: db.example:27018",
        "WARN authentication failed: an unknown server",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn lines_below_the_configured_level_are_not_emitted() {
    let count = |deployment, wants: fn(&tracing::Metadata<'_>) -> bool| {
        let act = || {
            let mut set = Set::new();
            set.logs = Logs::new(LogOptions { deployment, ..LogOptions::OFF });
            set.hello("a:1", true, 1);
            set.fail("a:1", Cause::Network);
        };
        capture::capture_where(wants, act).len()
    };
    assert_eq!(count(LevelFilter::TRACE, |_| true), 2);
    assert_eq!(count(LevelFilter::WARN, |_| true), 1);
    assert_eq!(count(LevelFilter::ERROR, |_| true), 0);
    assert_eq!(count(LevelFilter::TRACE, |meta| *meta.level() == Level::WARN), 1, "RUST_LOG=warn");
}

#[test]
fn names_from_a_peer_are_escaped_and_shortened() {
    assert_eq!(format!("{}", Name("a\n\u{1b}[2J:1")), "a\\n\\u{1b}[2J:1");
    assert_eq!(format!("{}", Name(&"x".repeat(300))).len(), NAME_BYTES_MAX + 3);
}

#[test]
fn durations_have_at_most_three_decimals() {
    let shown = |nanos| format!("{}", millis(core::time::Duration::from_nanos(nanos)));
    assert_eq!(shown(50_252_936), "50.253");
    assert_eq!(shown(1), "0");
    assert_eq!(shown(499_500), "0.5");
    for nanos in (0..20_000_000_000).step_by(7_919_003) {
        let text = shown(nanos);
        assert!(text.split_once('.').is_none_or(|(_, decimals)| decimals.len() <= 3), "{text}");
    }
    assert!(millis(core::time::Duration::MAX).is_finite());
}

#[test]
fn server_with_unsupported_versions_is_reported_once() {
    let lines = lines(|| {
        let mut set = Set::new();
        set.hello("a:1", true, 1);
        let server = set.topology.find("b:1").expect("a member");
        let old = HelloReply { secondary: true, set_name: Some("rs"), max_wire_version: 1, ..HelloReply::OK };
        for _ in 0..2 {
            set.topology.handle_hello(Instant::ORIGIN, server, &old, None, &mut set.logs);
        }
    });
    let [.., line] = &lines[..] else { panic!("a line: {lines:?}") };
    assert!(line.starts_with("WARN incompatible server: ") && line.contains("b:1"), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("incompatible")).count(), 1, "{lines:?}");
}
