//! Messages of topologies and heartbeats (LOG-29..33, LOG-36, LOG-39).

use super::capture::Value;
use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::control::Control;
use poolhouse_core::monitor::{MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions};
use poolhouse_core::topology::{self, TopologyOptions};
use poolhouse_core::{Cause, ObjectId, ServerId, TopologyVersion};
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// A direct connection to one server, with the logger as observer.
struct Rig {
    control: Control<topology::OnHeap>,
    server: ServerId,
    now: Instant,
    logs: Logs,
}

impl Rig {
    fn new(options: LogOptions) -> Self {
        let (now, mut logs) = (Instant::ORIGIN, Logs::new(options));
        let seeds = ["DB.example:27018"];
        let config = TopologyOptions { seeds: &seeds, direct_connection: true, ..TopologyOptions::default() };
        let config = config.validate().expect("valid");
        let control = Control::new(
            now,
            TopologyId::new(42),
            config,
            MonitorOptions::DEFAULT.validate().expect("valid"),
            &mut logs,
        )
        .expect("room");
        let server = control.topology().find("db.example:27018").expect("a member");
        Self { control, server, now, logs }
    }

    /// Advances the check connection to the point where a reply is due.
    fn connect(&mut self) -> MonitorConnId {
        loop {
            match self.control.poll_conn(self.now, self.server, MonitorConnKind::Check).expect("a check is due") {
                MonitorAction::Hangup(_) => {}
                MonitorAction::Dial(conn) => {
                    self.control.handle_dialed(self.now, self.server, conn, &mut self.logs).expect("wanted");
                }
                MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn } => return conn,
            }
        }
    }

    /// Delivers, 2.5 ms later, a reply of a server that can stream.
    fn reply(&mut self, conn: MonitorConnId, document: RawDocument<'_>) {
        self.now = self.now.saturating_add(Duration::from_micros(2500));
        let topology_version = Some(TopologyVersion { process_id: ObjectId([1; 12]), counter: 5 });
        let hello = HelloReply {
            is_writable_primary: true,
            max_wire_version: 21,
            topology_version,
            connection_id: Some(77),
            ..HelloReply::OK
        };
        let mut observer = Within::new(&mut self.logs, EventContext::NONE.with_reply(document));
        let (now, server) = (self.now, self.server);
        self.control.handle_reply(now, server, conn, &hello, Matched::Last, &mut observer).expect("wanted");
    }

    fn fail(&mut self, conn: MonitorConnId, cause: Cause) {
        self.now = self.now.saturating_add(Duration::from_millis(3));
        self.control.handle_failed(self.now, self.server, conn, cause, &mut self.logs).expect("wanted");
    }
}

fn document(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |writer| {
        writer.value("ok", poolhouse_wire::bson::RawValue::Double(1.0))?;
        writer.value("text", poolhouse_wire::bson::RawValue::String(text))?;
        Ok(())
    })
    .expect("room");
    bytes
}

/// Runs a check that succeeds with a document, an awaited one that fails, its retry that fails too,
/// and the close.
fn run(options: LogOptions, text: &str) -> Vec<Captured> {
    let bytes = document(text);
    let document = RawDocument::new(&bytes).expect("whole");
    capture(|| {
        let mut rig = Rig::new(options);
        let conn = rig.connect();
        rig.reply(conn, document);
        let conn = rig.connect();
        rig.fail(conn, Cause::Network);
        let conn = rig.connect();
        rig.fail(conn, Cause::NetworkTimeout);
        rig.control.close(rig.now, &mut rig.logs);
    })
}

fn named<'c>(captured: &'c [Captured], message: &str) -> Vec<&'c Captured> {
    captured.iter().filter(|event| event.message() == message).collect()
}

fn id() -> (&'static str, Value) {
    ("topologyId", 42_u64.into())
}

fn message(text: &str) -> (&'static str, Value) {
    ("message", text.into())
}

fn server() -> [(&'static str, Value); 2] {
    [("serverHost", "db.example".into()), ("serverPort", 27018_u64.into())]
}

#[test]
#[doc(alias("LOG-29", "LOG-30"))]
fn all_events_of_a_topology_are_logged_in_order() {
    let captured = capture(|| {
        let mut rig = Rig::new(LogOptions::DEFAULT);
        rig.control.close(rig.now, &mut rig.logs);
    });
    let described = |event: &Captured, previous: &str, new: &str| {
        let descriptions = [("previousDescription", previous.into()), ("newDescription", new.into())];
        event.check(TOPOLOGY, &[&[message("Topology description changed"), id()], &descriptions[..]].concat());
    };
    captured[0].check(TOPOLOGY, &[message("Starting topology monitoring"), id()]);
    described(&captured[1], "Unknown []", "Single [db.example:27018: Unknown]");
    captured[2].check(TOPOLOGY, &[&[message("Starting server monitoring"), id()], &server()[..]].concat());
    assert_eq!(captured[3].message(), "Server heartbeat started");
    assert_eq!(captured[4].message(), "Server heartbeat failed");
    captured[5].check(TOPOLOGY, &[&[message("Stopped server monitoring"), id()], &server()[..]].concat());
    described(&captured[6], "Single [db.example:27018: Unknown]", "Unknown []");
    captured[7].check(TOPOLOGY, &[message("Stopped topology monitoring"), id()]);
    assert_eq!(captured.len(), 8);
}

#[test]
#[doc(alias("LOG-29", "LOG-31", "LOG-33"))]
fn heartbeats_are_logged_with_their_connection() {
    let captured = run(MESSAGES, "hello");
    let heartbeat = |event: &Captured, text: &str, fields: &[(&str, Value)]| {
        event.check(TOPOLOGY, &[&[message(text), id()], &server()[..], fields].concat());
    };
    let started = named(&captured, "Server heartbeat started");
    let (driver, awaited) = (|id: u64| ("driverConnectionId", id.into()), |is: bool| ("awaited", is.into()));
    let known = ("serverConnectionId", 77_i64.into());
    heartbeat(started[0], "Server heartbeat started", &[driver(1), awaited(false)]);
    heartbeat(started[1], "Server heartbeat started", &[driver(1), awaited(true), known.clone()]);
    let succeeded = named(&captured, "Server heartbeat succeeded");
    let reply = ("reply", r#"{"ok":1.0,"text":"hello"}"#.into());
    let duration = ("durationMS", 2.5.into());
    let fields = [driver(1), awaited(false), known.clone(), duration, reply];
    heartbeat(succeeded[0], "Server heartbeat succeeded", &fields);
    let failed = named(&captured, "Server heartbeat failed");
    let (duration, failure) = (("durationMS", 3.0.into()), ("failure", "network error".into()));
    heartbeat(failed[0], "Server heartbeat failed", &[driver(1), awaited(true), known, duration.clone(), failure]);
    let retry = started[2].fields["driverConnectionId"].clone();
    let fields = [("driverConnectionId", retry), awaited(false), duration, ("failure", "network timeout".into())];
    heartbeat(failed[1], "Server heartbeat failed", &fields);
    assert_eq!((started.len(), succeeded.len(), failed.len()), (3, 1, 2));
}

#[test]
fn reply_of_a_heartbeat_is_not_logged_by_default() {
    let options = LogOptions { heartbeat_replies: false, ..MESSAGES };
    let captured = run(options, "hello");
    assert!(named(&captured, "Server heartbeat succeeded")[0].fields.keys().all(|field| field != "reply"));
    let captured = run(LogOptions { style: LogStyle::Text, ..options }, "hello");
    assert!(captured.iter().all(|event| !event.message().contains("Reply")));
    assert_eq!(options, LogOptions { deployment: LevelFilter::OFF, ..LogOptions::DEFAULT });
}

#[test]
#[doc(alias = "LOG-36")]
fn reply_is_cut_at_the_limit_between_characters() {
    let cut = |limit: usize, text: &str| {
        let options = LogOptions { document_length_max: limit, ..MESSAGES };
        let captured = run(options, text);
        String::from(named(&captured, "Server heartbeat succeeded")[0].text("reply"))
    };
    let all = r#"{"ok":1.0,"text":"aéb"}"#;
    assert_eq!(cut(all.len(), "aéb"), all);
    assert_eq!(cut(19, "aéb"), r#"{"ok":1.0,"text":"a..."#);
    assert_eq!(cut(20, "aéb"), r#"{"ok":1.0,"text":"a..."#, "half a character is none");
    assert_eq!(cut(21, "aéb"), r#"{"ok":1.0,"text":"aé..."#);
    assert_eq!(cut(0, "aéb"), "...");
    let long = "x".repeat(5000);
    assert_eq!(cut(LogOptions::DEFAULT.document_length_max, &long).len(), 1003);
    assert_eq!(cut(usize::MAX, &long).len(), 5020);
}

#[test]
#[doc(alias = "LOG-40")]
fn sentences_follow_the_templates() {
    let captured = run(TEXT, "hi");
    assert!(captured.iter().all(|event| event.fields.len() == 1 && event.target == TOPOLOGY), "one field only");
    let texts: Vec<&str> = captured.iter().map(Captured::message).collect();
    let connection = |driver: u32| format!("for db.example:27018 on connection with driver-generated ID {driver}");
    let (first, in_topology) = (connection(1), "in topology with ID 42");
    let known = format!("{first} and server-generated ID 77 {in_topology}");
    let expected = [
        String::from("Starting monitoring for topology with ID 42"),
        String::from(
            "Description changed for topology with ID 42. Previous description: Unknown []. New description: Single \
             [db.example:27018: Unknown]",
        ),
        String::from("Starting monitoring for server db.example:27018 in topology with ID 42"),
        format!("Heartbeat started {first} {in_topology}. Awaited: false"),
        format!("Heartbeat succeeded in 2.5 ms {known}. Awaited: false. Reply: {{\"ok\":1.0,\"text\":\"hi\"}}"),
    ];
    assert_eq!(texts[..5], expected);
    assert!(texts.contains(&&*format!("Heartbeat failed in 3 ms {known}. Awaited: true. Failure: network error")));
    let end = [
        "Stopped monitoring for server db.example:27018 in topology with ID 42",
        "Description changed for topology with ID 42. Previous description: Single [db.example:27018: Unknown (network \
         timeout)]. New description: Unknown []",
        "Stopped monitoring for topology with ID 42",
    ];
    assert_eq!(texts[texts.len() - 3..], end);
}

#[test]
fn lost_last_server_is_a_warning() {
    let captured = capture(|| {
        let mut logs = Logs::default();
        let seeds = ["a:1"];
        let options = TopologyOptions { seeds: &seeds, replica_set: Some("rs"), ..TopologyOptions::default() };
        let config = options.validate().expect("valid");
        let topology =
            topology::Topology::<topology::OnHeap>::new(Instant::ORIGIN, TopologyId::new(9), config, &mut logs);
        let mut topology = topology.expect("room");
        let server = topology.find("a:1").expect("a member");
        // A standalone is no member of a set.
        let hello = HelloReply { is_writable_primary: true, max_wire_version: 21, ..HelloReply::OK };
        topology.handle_hello(Instant::ORIGIN, server, &hello, None, &mut logs);
    });
    let last = captured.last().expect("some");
    assert_eq!((last.level, last.message()), (Level::WARN, "The topology has no servers"));
}

/// A topology without servers causes a warning in either style. The topology logs the change of a
/// server's description; the server does not.
#[test]
fn topology_events_are_logged_by_their_kind() {
    use poolhouse_core::topology::SdamEvent;
    let empty = SdamEvent::NoServers { topology: TopologyId::new(5) };
    for options in [LogOptions::DEFAULT, TEXT] {
        let captured = capture(|| Logs::new(options).on_event(Instant::ORIGIN, &empty));
        let [event] = captured.as_slice() else { panic!("one message: {captured:?}") };
        assert_eq!((event.level, event.target.as_str()), (Level::WARN, TOPOLOGY));
        assert!(event.message().contains("has no servers"), "{event:?}");
    }
    assert_eq!(format!("{}", text::Sdam(&empty)), "The topology with ID 5 has no servers");
}

/// Heartbeats alone, without the address of their server.
#[test]
#[doc(alias = "LOG-34")]
fn heartbeats_are_logged_at_the_level_of_the_topology() {
    use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
    let id = HeartbeatId { server: ServerId::new(1), connection: 2, server_connection: Some(3) };
    let event = MonitorEvent::HeartbeatStarted { id, awaited: true };
    let logged = |options| capture(|| Logs::new(options).on_event(Instant::ORIGIN, &event));
    let captured = logged(LogOptions::DEFAULT);
    let [started] = captured.as_slice() else { panic!("one message: {captured:?}") };
    assert_eq!((started.message(), started.target.as_str()), ("Server heartbeat started", TOPOLOGY));
    assert_eq!(logged(LogOptions { topology: LevelFilter::INFO, ..LogOptions::DEFAULT }), []);
}

/// The log message includes the error of the operating system.
#[test]
fn failed_heartbeat_is_logged_with_its_reason() {
    let reason = Reason::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
    for (options, field, expected) in [
        (LogOptions::DEFAULT, "failure", "network error: connection refused"),
        (TEXT, "message", "Failure: network error: connection refused"),
    ] {
        let captured = capture(|| {
            let mut rig = Rig::new(options);
            let conn = rig.connect();
            let mut logs = Within::new(rig.logs, EventContext::NONE.with_reason(&reason));
            rig.control.handle_failed(rig.now, rig.server, conn, Cause::Network, &mut logs).expect("wanted");
        });
        let failed =
            captured.iter().find(|message| message.text("message").contains("eartbeat failed")).expect("logged");
        assert!(failed.text(field).ends_with(expected), "{}", failed.text(field));
    }
}
