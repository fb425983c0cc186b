//! Messages of server selection (Server Selection, "Logging").

use super::*;
use crate::log::LogQueue;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::selection::{SelectionError, SelectionFailure};
use poolhouse_core::topology::{OnHeap, Topology, TopologyOptions};
use poolhouse_driver::{EventKinds, EventRef, OperationError, Publish, SelectionEvent, SelectionStage};

/// The reason of a selection without the topology, whose servers another field has.
const TIMED_OUT: &str = "no suitable server within 30 s; topology: Unknown, 2 servers, 0 known";

/// The messages of all stages, and the text of the topology.
fn messages(options: LogOptions) -> (Vec<Captured>, String) {
    let config = TopologyOptions { seeds: &["a:1", "b:2"], ..TopologyOptions::default() }.validate().expect("valid");
    let topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(3), config, &mut ()).expect("room");
    let failure = SelectionFailure::TimedOut { waited: Duration::from_secs(30) };
    let report = SelectionError::new(failure, topology.description()).detail(topology.description());
    let timed_out = OperationError::ServerSelection(report.into());
    let stages: [SelectionStage<'_>; 8] = [
        SelectionStage::Started,
        SelectionStage::Waiting { remaining: Some(Duration::from_millis(1500)), again: false },
        SelectionStage::Waited { duration: Duration::from_millis(2), is_selected: true },
        SelectionStage::Waiting { remaining: None, again: false },
        SelectionStage::Succeeded { address: "a:1" },
        SelectionStage::Failed { error: Some(&timed_out) },
        SelectionStage::Failed { error: Some(&OperationError::Closed) },
        SelectionStage::Failed { error: None },
    ];
    let seen = capture(|| {
        let logs = LogQueue::new(options);
        for stage in stages {
            let mut event = SelectionEvent::new(stage, "write", topology.description());
            (event.operation, event.operation_id) = (Some("insert"), Some(6));
            logs.publish(Instant::ORIGIN, EventRef::Selection(&event));
        }
        logs.deliver();
    });
    (seen, topology.description().to_string())
}

#[test]
fn structured_messages_have_the_fields_of_the_specification() {
    let (seen, topology) = messages(LogOptions::DEFAULT);
    let failure = OperationError::Closed.to_string();
    type Message<'a> = (Level, &'a str, &'a [(&'a str, capture::Value)]);
    let expected: [Message<'_>; 7] = [
        (Level::DEBUG, "Server selection started", &[]),
        (Level::INFO, "Waiting for suitable server to become available", &[("remainingTimeMS", 1500_u64.into())]),
        (Level::INFO, "Waiting for suitable server to become available", &[]),
        (Level::DEBUG, "Server selection succeeded", &[("serverHost", "a".into()), ("serverPort", 1_u64.into())]),
        (Level::DEBUG, "Server selection failed", &[("failure", TIMED_OUT.into())]),
        (Level::DEBUG, "Server selection failed", &[("failure", failure.as_str().into())]),
        (Level::DEBUG, "Server selection failed", &[("failure", "the operation was dropped".into())]),
    ];
    assert_eq!(seen.len(), expected.len());
    for (seen, (level, message, own)) in seen.iter().zip(expected) {
        assert_eq!((seen.level, seen.target.as_str()), (level, SERVER_SELECTION));
        let common = [
            ("message", message.into()),
            ("selector", "write".into()),
            ("operation", "insert".into()),
            ("operationId", 6_i64.into()),
            ("topologyDescription", topology.as_str().into()),
        ];
        let fields = common.iter().chain(own).map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        assert_eq!(seen.fields, fields);
    }
}

#[test]
fn unstructured_messages_are_sentences() {
    let (seen, topology) = messages(LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT });
    let end = format!("Selector: write, topology description: {topology}");
    let expected = [
        format!("Server selection started for operation insert with ID 6. {end}"),
        format!(
            "Waiting for server to become available for operation insert with ID 6. Remaining time: 1500 ms. {end}"
        ),
        format!("Waiting for server to become available for operation insert with ID 6. {end}"),
        format!("Server selection succeeded for operation insert with ID 6. Selected server: a:1. {end}"),
        format!("Server selection failed for operation insert with ID 6. Failure: {TIMED_OUT}. {end}"),
        format!("Server selection failed for operation insert with ID 6. Failure: {}. {end}", OperationError::Closed),
        format!("Server selection failed for operation insert with ID 6. Failure: the operation was dropped. {end}"),
    ];
    assert_eq!(seen.iter().map(Captured::message).collect::<Vec<_>>(), expected);
    assert_eq!(seen.iter().filter(|seen| seen.level == Level::INFO).count(), 2);
}

#[test]
#[doc(alias = "LOG-34")]
fn events_are_requested_only_for_a_subscriber() {
    type Filter = fn(&tracing::Metadata<'_>) -> bool;
    let kinds = |options, filter: Filter| {
        let mut kinds = EventKinds::NONE;
        capture::capture_where(filter, || kinds = LogQueue::new(options).kinds());
        [EventKinds::SELECTIONS, EventKinds::SELECTION_WAITS].map(|kind| kinds.intersects(kind))
    };
    let (all, info): (Filter, Filter) = (|_| true, |meta| *meta.level() <= Level::INFO);
    let of = |server_selection| LogOptions { server_selection, ..LogOptions::DEFAULT };
    assert_eq!(kinds(LogOptions::DEFAULT, all), [true, true]);
    assert_eq!(kinds(LogOptions::OFF, all), [false, false]);
    assert_eq!(kinds(LogOptions::DEFAULT, info), [false, true], "an operation that does not wait has no event");
    assert_eq!(kinds(of(LevelFilter::INFO), all), [false, true]);
    assert_eq!(kinds(of(LevelFilter::WARN), all), [false, true], "the line at the end of many waits");
    let of_both = LogOptions { deployment: LevelFilter::WARN, ..of(LevelFilter::WARN) };
    assert_eq!(kinds(of_both, all), [false, false]);
    assert_eq!(messages(of(LevelFilter::INFO)).0.len(), 2);
    assert_eq!(messages(LogOptions::OFF).0, []);
}
