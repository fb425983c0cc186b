//! Messages of commands (Command Logging and Monitoring).

use super::*;
use crate::log::LogQueue;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::{Instant, ObjectId};
use poolhouse_driver::{CommandEvent, CommandStage, EventKinds, EventRef, OperationError, Publish};
use poolhouse_wire::bson::{DocumentWriter, RawDocument};

/// The messages of a ping that takes 2 ms and fails if there is an error.
fn ping(options: LogOptions, error: Option<&OperationError>) -> Vec<Captured> {
    let (mut command, mut reply) = (Vec::new(), Vec::new());
    DocumentWriter::write(&mut command, |body| body.int32("ping", 1).map(drop)).expect("room");
    DocumentWriter::write(&mut reply, |body| body.int32("ok", 1).map(drop)).expect("room");
    let [command, reply] = [&command, &reply].map(|bytes| RawDocument::new(bytes).expect("BSON"));
    let duration = Duration::from_millis(2);
    let end = match error {
        None => CommandStage::Succeeded { duration },
        Some(error) => CommandStage::Failed { duration, error },
    };
    let document = |end| if error.is_some() { RawDocument::EMPTY } else { end };
    capture(|| {
        let logs = LogQueue::new(options);
        for (stage, document) in [(CommandStage::Started, command), (end, document(reply))] {
            let mut event = CommandEvent::new(stage, "ping");
            (event.database, event.address, event.document) = ("db", "a:1", document);
            (event.request_id, event.operation_id, event.connection_id) = (5, 6, 7);
            (event.server_connection_id, event.service_id) = (Some(8), Some(ObjectId([3; 12])));
            logs.publish(Instant::ORIGIN, EventRef::Command(&event));
        }
    })
}

fn text(captured: &Captured, field: &str) -> Option<String> {
    let value = captured.fields.get(field)?;
    if let capture::Value::Text(text) = value { Some(text.clone()) } else { panic!("no text: {value:?}") }
}

#[test]
fn structured_messages_have_the_fields_of_the_specification() {
    let seen = ping(LogOptions::DEFAULT, None);
    assert_eq!(seen.len(), 2);
    let common: [(&str, capture::Value); 9] = [
        ("commandName", "ping".into()),
        ("databaseName", "db".into()),
        ("requestId", 5_i64.into()),
        ("operationId", 6_i64.into()),
        ("driverConnectionId", 7_u64.into()),
        ("serverConnectionId", 8_i64.into()),
        ("serverHost", "a".into()),
        ("serverPort", 1_u64.into()),
        ("serviceId", "030303030303030303030303".into()),
    ];
    for captured in &seen {
        assert_eq!((captured.level, captured.target.as_str()), (Level::DEBUG, COMMAND));
        for (name, value) in &common {
            assert_eq!(captured.fields.get(*name), Some(value), "{name}");
        }
    }
    assert_eq!(text(&seen[0], "message").as_deref(), Some("Command started"));
    assert_eq!(text(&seen[0], "command").as_deref(), Some("{\"ping\":1}"));
    assert_eq!(text(&seen[1], "message").as_deref(), Some("Command succeeded"));
    assert_eq!(text(&seen[1], "reply").as_deref(), Some("{\"ok\":1}"));
    assert_eq!(seen[1].fields.get("durationMS"), Some(&2.0.into()));
    let failed = &ping(LogOptions::DEFAULT, Some(&OperationError::Timeout))[1];
    assert_eq!(text(failed, "message").as_deref(), Some("Command failed"));
    assert_eq!(text(failed, "failure"), Some(OperationError::Timeout.to_string()));
}

#[test]
fn documents_are_truncated() {
    let options = LogOptions { document_length_max: 5, ..LogOptions::DEFAULT };
    assert_eq!(text(&ping(options, None)[0], "command").as_deref(), Some("{\"pin..."));
}

#[test]
fn unstructured_messages_are_sentences() {
    let options = LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT };
    let of = |seen: &[Captured]| seen.iter().filter_map(|captured| text(captured, "message")).collect::<Vec<_>>();
    let on = "on database \"db\"";
    let rest = "using a connection with driver-generated ID 7 and server-generated ID 8 to a:1 with service ID \
                030303030303030303030303. The requestID is 5 and the operation ID is 6.";
    let expected = [
        alloc::format!("Command \"ping\" started {on} {rest} Command: {{\"ping\":1}}"),
        alloc::format!("Command \"ping\" succeeded {on} in 2 ms {rest} Command reply: {{\"ok\":1}}"),
    ];
    assert_eq!(of(&ping(options, None)), expected);
    let failed = alloc::format!("Command \"ping\" failed {on} in 2 ms {rest} Error: {}", OperationError::Closed);
    assert_eq!(of(&ping(options, Some(&OperationError::Closed)))[1], failed);
}

#[test]
fn slow_request_of_cassandra_is_one_sentence_as_text() {
    let logs = Logs::new(LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT });
    let seen = capture(|| {
        logs.slow_request("QUERY", Duration::from_millis(2), Some("a:1"), None);
        logs.slow_request("BATCH", Duration::from_millis(3), None, Some(&"the future\nwas dropped"));
    });
    assert!(seen.iter().all(|captured| captured.fields.len() == 1), "{seen:?}");
    let lines: Vec<_> = seen.iter().map(Captured::message).collect();
    assert_eq!(lines, ["Slow request QUERY of a:1: 2 ms", "Slow request BATCH: 3 ms: the future was dropped"]);
}

#[test]
fn slow_command_is_a_warning_without_documents() {
    let warned = |limit, style| {
        let options = LogOptions { slow_command: Some(Duration::from_millis(limit)), style, ..LogOptions::DEFAULT };
        ping(options, None).into_iter().filter(|captured| captured.level == Level::WARN).collect::<Vec<_>>()
    };
    assert_eq!(warned(3, LogStyle::Structured), []);
    let seen = warned(2, LogStyle::Structured);
    assert_eq!(seen.len(), 1);
    assert_eq!(text(&seen[0], "message").as_deref(), Some("Slow command"));
    assert_eq!(seen[0].fields.get("durationMS"), Some(&2.0.into()));
    assert!(!seen[0].fields.contains_key("reply"));
    let line = text(&warned(2, LogStyle::Text)[0], "message");
    assert_eq!(line.as_deref(), Some("Slow command \"ping\" on database \"db\" of a:1: 2 ms"));
}

#[test]
fn events_are_requested_only_for_a_subscriber() {
    type Filter = fn(&tracing::Metadata<'_>) -> bool;
    let kinds = |options, filter: Filter| {
        let mut kinds = EventKinds::NONE;
        capture::capture_where(filter, || kinds = LogQueue::new(options).kinds());
        kinds.intersects(EventKinds::COMMANDS)
    };
    let (all, warnings): (Filter, Filter) = (|_| true, |meta| *meta.level() == Level::WARN);
    assert!(kinds(LogOptions::DEFAULT, all) && !kinds(LogOptions::OFF, all));
    let slow = LogOptions { slow_command: Some(Duration::ZERO), ..LogOptions::DEFAULT };
    assert!(!kinds(LogOptions::DEFAULT, warnings) && kinds(slow, warnings));
}
