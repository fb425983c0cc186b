use alloc::vec::Vec;

use super::*;
use crate::CqlErrorKind;
use crate::tests::{hex, string};

fn read(bytes: &[u8]) -> Result<Event<'_>, CqlError> {
    Event::read(&mut Reader::new(bytes, 9))
}

fn strings(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| string(text)).collect()
}

#[test]
fn events_of_nodes_are_read() {
    let node = "127.0.0.1:9042".parse().expect("an address");
    let inet = hex("047f00000100002352");
    for change in ["NEW_NODE", "REMOVED_NODE", "MOVED_NODE", "whatever comes"] {
        let bytes = [strings(&["TOPOLOGY_CHANGE", change]), inet.clone()].concat();
        assert_eq!(read(&bytes), Ok(Event::Topology { change, node }));
    }
    let bytes = [strings(&["STATUS_CHANGE", "DOWN"]), inet].concat();
    assert_eq!(read(&bytes), Ok(Event::Status { change: "DOWN", node }));
    for end in 0..bytes.len() {
        let error = read(&bytes[..end]).expect_err("cut");
        assert!(matches!(error.kind(), CqlErrorKind::Truncated { .. }), "{error} at {end}");
    }
}

#[test]
fn schema_changes_name_what_was_changed() {
    let change = |texts: &[&str], rest: &[u8]| [strings(&["SCHEMA_CHANGE"]), strings(texts), rest.to_vec()].concat();
    let keyspace = change(&["DROPPED", "KEYSPACE", "ks"], &[]);
    let Ok(Event::Schema(found)) = read(&keyspace) else { panic!("a change") };
    assert_eq!((found.change, found.target, found.keyspace, found.name), ("DROPPED", "KEYSPACE", "ks", None));
    let table = change(&["UPDATED", "TYPE", "ks", "t"], &[]);
    let Ok(Event::Schema(found)) = read(&table) else { panic!("a change") };
    assert_eq!((found.target, found.name, found.arguments.len()), ("TYPE", Some("t"), 0));
    let function = change(&["CREATED", "AGGREGATE", "ks", "f"], &[&[0, 2][..], &strings(&["int", "text"])].concat());
    let Ok(Event::Schema(found)) = read(&function) else { panic!("a change") };
    assert_eq!(found.arguments.collect::<Vec<_>>(), ["int", "text"]);
    for end in 0..function.len() {
        assert!(read(&function[..end]).is_err(), "at {end}");
    }
}

#[test]
fn unknown_kinds_are_named() {
    assert_eq!(read(&strings(&["CLIENT_ROUTES_CHANGE", "x"])), Ok(Event::Other { kind: "CLIENT_ROUTES_CHANGE" }));
}
