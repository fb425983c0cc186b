//! Ordinary commands.

use bson::Bson;

use super::super::wire::{CHECKSUM_PRESENT, MORE_TO_COME};
use super::super::{FailPoint, FailPointMode, Fault, FaultKind, FaultRule, Role};
use super::*;

#[test]
fn replies_answer_their_requests_with_separate_ids() {
    let (server, mut client) = connected();
    let asked: Vec<i32> = (0..50).map(|_| client.send(0, ping()).unwrap()).collect();
    let mut own = Vec::new();
    for id in asked {
        let reply = client.read().unwrap();
        assert_eq!(reply.response_to, id);
        assert_eq!(reply.body, doc! { "ok": 1.0 });
        own.push(reply.request_id);
    }
    own.dedup();
    assert_eq!(own.len(), 50);
    assert_eq!(server.count_of("ping"), 50);
}

#[test]
fn pings_with_different_bodies_are_distinguished() {
    let (server, mut client) = connected();
    for comment in ["a", "b", "b", "a", "longer"] {
        assert!(is_ok(&client.run("admin", doc! { "ping": 1, "comment": comment }).unwrap()));
    }
    let bodies: Vec<Document> = server.log().into_iter().filter_map(|received| received.body).collect();
    let comments: Vec<&str> = bodies.iter().map(|body| body.get_str("comment").unwrap()).collect();
    assert_eq!(comments, ["a", "b", "b", "a", "longer"]);
}

#[test]
fn unknown_command_is_error_59() {
    let server = start();
    let reply = connect(&server).run("admin", doc! { "nonsense": 1 }).unwrap();
    assert_eq!(code(&reply), 59);
    assert_eq!(reply.get_str("codeName").unwrap(), "CommandNotFound");
    assert_eq!(reply.get_str("errmsg").unwrap(), "no such command: 'nonsense'");
}

#[test]
fn op_msg_without_database_is_refused() {
    let (_server, mut client) = connected();
    client.send(0, doc! { "ping": 1 }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 40571);
    client.send(0, doc! { "ping": 1 }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 40571);
    client.send(0, doc! { "ping": 1, "$db": 1 }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 14);
}

#[test]
fn checksum_is_answered_by_a_checksum() {
    let (_server, mut client) = connected();
    client.send(CHECKSUM_PRESENT, ping()).unwrap();
    // `read` verifies the checksum.
    assert_eq!(client.read().unwrap().flags, Some(CHECKSUM_PRESENT));
    client.send(0, ping()).unwrap();
    assert_eq!(client.read().unwrap().flags, Some(0));
}

#[test]
fn request_with_more_to_come_is_not_answered() {
    let (_server, mut client) = connected();
    client.send(MORE_TO_COME, doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "db" }).unwrap();
    let found = client.run("db", doc! { "find": "c" }).unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
}

#[test]
fn request_with_more_to_come_is_answered_by_a_fault_only() {
    let (server, mut client) = connected();
    server.inject(FaultRule::once(Fault::UnwantedReply).on_command("insert"));
    let insert = || doc! { "insert": "c", "documents": [{}], "$db": "db" };
    // Not the fault of a usual request.
    client.send(0, insert()).unwrap();
    assert!(client.read().unwrap().body.contains_key("n"));
    client.send(MORE_TO_COME, insert()).unwrap();
    assert!(client.read().unwrap().body.contains_key("n"));
    client.send(MORE_TO_COME, insert()).unwrap();
    client.send(0, ping()).unwrap();
    assert!(!client.read().unwrap().body.contains_key("n"), "that of the ping");
    assert_eq!(server.look(|view| view.fault_count(FaultKind::UnwantedReply)), 1);
}

#[test]
fn build_info_parameters_and_sessions_are_answered() {
    let (_server, mut client) = connected();
    let info = client.run("admin", doc! { "buildInfo": 1 }).unwrap();
    assert_eq!(info.get_str("version").unwrap(), "6.0.5");
    assert_eq!(info.get_array("versionArray").unwrap(), &[6, 0, 5, 0].map(Bson::Int32));
    let version = client.run("admin", doc! { "getParameter": 1, "featureCompatibilityVersion": 1 }).unwrap();
    assert_eq!(version.len(), 2);
    assert!(!is_ok(&client.run("admin", doc! { "getParameter": 1, "nothing": 1 }).unwrap()));
    assert!(is_ok(&client.run("admin", doc! { "endSessions": [] }).unwrap()));
    assert!(client.run("admin", doc! { "startSession": 1 }).unwrap().contains_key("id"));
    assert!(client.run("admin", doc! { "whatsmyuri": 1 }).unwrap().get_str("you").unwrap().starts_with("127.0.0.1:"));
}

#[test]
fn server_status_counts_connections() {
    let server = start();
    drop(connect(&server));
    server.wait_until(PATIENCE, |view| view.closed().count() == 1).unwrap();
    let mut client = connect(&server);
    let status = client.run("admin", doc! { "serverStatus": 1 }).unwrap();
    let connections = status.get_document("connections").unwrap();
    assert_eq!(connections.get_i32("current").unwrap(), 1);
    assert_eq!(connections.get_i64("totalCreated").unwrap(), 2);
}

#[test]
fn inserted_documents_are_found_in_batches() {
    let (_server, mut client) = connected();
    let documents: Vec<Document> = (0..250).map(|n| doc! { "_id": n, "x": n % 3, "deep": { "y": n } }).collect();
    let reply = client.run("db", doc! { "insert": "c", "documents": documents }).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 250);
    let mut reply = client.run("db", doc! { "find": "c", "batchSize": 100, "skip": 10, "limit": 230 }).unwrap();
    let mut seen = 0;
    let mut name = "firstBatch";
    loop {
        let cursor = reply.get_document("cursor").unwrap();
        assert_eq!(cursor.get_str("ns").unwrap(), "db.c");
        for document in cursor.get_array(name).unwrap() {
            assert_eq!(document.as_document().unwrap().get_i32("_id").unwrap(), seen + 10);
            seen += 1;
        }
        name = "nextBatch";
        let id = cursor.get_i64("id").unwrap();
        if id == 0 {
            break;
        }
        assert_eq!(code(&client.run("db", doc! { "getMore": id, "collection": "other" }).unwrap()), 13);
        reply = client.run("db", doc! { "getMore": id, "collection": "c", "batchSize": 65 }).unwrap();
    }
    assert_eq!(seen, 230);
    let filtered = client.run("db", doc! { "find": "c", "filter": { "x": 1_i64, "deep.y": { "$eq": 4.0 } } }).unwrap();
    assert_eq!(filtered.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 1);
    assert_eq!(code(&client.run("db", doc! { "find": "c", "filter": { "x": { "$gt": 1 } } }).unwrap()), 238);
    assert_eq!(code(&client.run("db", doc! { "find": "c", "sort": { "x": 1 } }).unwrap()), 238);
}

#[test]
fn documents_of_a_sequence_are_inserted() {
    use std::io::Write;
    let (_server, mut client) = connected();
    let mut sections = vec![0, 0, 0, 0, 1];
    let documents: Vec<u8> = (0..3).flat_map(|n| doc! { "_id": n }.to_vec().unwrap()).collect();
    sections.extend_from_slice(&i32::try_from(4 + 10 + documents.len()).unwrap().to_le_bytes());
    sections.extend_from_slice(b"documents\0");
    sections.extend_from_slice(&documents);
    sections.push(0);
    sections.extend_from_slice(&doc! { "insert": "c", "$db": "db" }.to_vec().unwrap());
    let mut frame = i32::try_from(16 + sections.len()).unwrap().to_le_bytes().to_vec();
    for word in [7, 0, 2013] {
        frame.extend_from_slice(&i32::to_le_bytes(word));
    }
    frame.extend_from_slice(&sections);
    client.stream().write_all(&frame).unwrap();
    let reply = client.read().unwrap();
    assert_eq!(reply.response_to, 7);
    assert_eq!(reply.body.get_i32("n").unwrap(), 3);
}

#[test]
fn duplicate_keys_and_wrong_batches_are_errors() {
    let (_server, mut client) = connected();
    let twice = doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 1.0 }, { "_id": 2 }] };
    let reply = client.run("db", twice.clone()).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let failure = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(failure.get_i32("index").unwrap(), 1);
    assert_eq!(failure.get_i32("code").unwrap(), 11000);
    let mut unordered = twice;
    unordered.insert("ordered", false);
    let reply = client.run("db", unordered).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 2);
    assert_eq!(code(&client.run("db", doc! { "insert": "c", "documents": [] }).unwrap()), 16);
    assert_eq!(code(&client.run("db", doc! { "insert": "c" }).unwrap()), 40414);
    assert_eq!(code(&client.run("db", doc! { "insert": "", "documents": [{}] }).unwrap()), 73);
    assert_eq!(code(&client.run("db", doc! { "insert": "c", "documents": [{}], "txnNumber": 1_i64 }).unwrap()), 20);
}

#[test]
fn numbered_write_is_executed_once() {
    let server = start_as(ServerState { role: Role::Primary, ..ServerState::default() });
    let mut client = connect(&server);
    let insert = |id: i32, number: i64| {
        doc! { "insert": "c", "documents": [{ "_id": id }], "lsid": { "id": 1 }, "txnNumber": number }
    };
    let first = client.run("db", insert(1, 5)).unwrap();
    assert_eq!(client.run("db", insert(1, 5)).unwrap(), first, "not a duplicate key");
    assert_eq!(code(&client.run("db", insert(2, 4)).unwrap()), 225);
    assert!(is_ok(&client.run("db", insert(2, 6)).unwrap()));
    let found = client.run("db", doc! { "find": "c" }).unwrap();
    assert_eq!(found.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len(), 2);
}

#[test]
fn cursor_is_used_in_its_session_only() {
    let (_server, mut client) = connected();
    client.run("db", doc! { "insert": "c", "documents": [{}, {}] }).unwrap();
    let reply = client.run("db", doc! { "find": "c", "batchSize": 1, "lsid": { "id": 1 } }).unwrap();
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_eq!(code(&client.run("db", doc! { "getMore": id, "collection": "c" }).unwrap()), 13);
    let more = doc! { "getMore": id, "collection": "c", "lsid": { "id": 1 } };
    assert!(is_ok(&client.run("db", more).unwrap()));
}

#[test]
fn cluster_time_and_replaced_replies_are_sent() {
    let server = start_as(ServerState { cluster_time: Some((7, 2)), ..ServerState::default() });
    let mut client = connect(&server);
    let time = bson::Timestamp { time: 7, increment: 2 };
    let reply = client.run("admin", doc! { "ping": 1 }).unwrap();
    assert_eq!(reply.get_timestamp("operationTime").unwrap(), time);
    assert_eq!(reply.get_document("$clusterTime").unwrap().get_timestamp("clusterTime").unwrap(), time);
    server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).reply(doc! { "ok": 1.0, "other": true }));
    assert_eq!(client.run("admin", doc! { "ping": 1 }).unwrap(), doc! { "ok": 1.0, "other": true });
}

#[test]
fn cursors_are_killed_and_collections_dropped() {
    let (_server, mut client) = connected();
    client.run("db", doc! { "insert": "c", "documents": [{}, {}, {}] }).unwrap();
    let reply = client.run("db", doc! { "find": "c", "batchSize": 0 }).unwrap();
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let killed = client.run("db", doc! { "killCursors": "c", "cursors": [id, 5_i64] }).unwrap();
    assert_eq!(killed.get_array("cursorsKilled").unwrap(), &[Bson::Int64(id)]);
    assert_eq!(killed.get_array("cursorsNotFound").unwrap(), &[Bson::Int64(5)]);
    assert_eq!(code(&client.run("db", doc! { "getMore": id, "collection": "c" }).unwrap()), 43);
    let names = client.run("admin", doc! { "listDatabases": 1 }).unwrap();
    assert!(names.to_string().contains("\"db\""));
    assert!(is_ok(&client.run("db", doc! { "drop": "c" }).unwrap()));
    assert_eq!(code(&client.run("db", doc! { "drop": "c" }).unwrap()), 26);
}

#[test]
fn full_store_refuses_documents() {
    let server = FakeServer::start(FakeOptions { store_bytes_max: 1000, ..FakeOptions::default() }).unwrap();
    let mut client = connect(&server);
    let insert = || doc! { "insert": "c", "documents": [{ "filler": "x".repeat(600) }] };
    assert_eq!(client.run("db", insert()).unwrap().get_i32("n").unwrap(), 1);
    let reply = client.run("db", insert()).unwrap();
    assert_eq!(reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().get_i32("code").unwrap(), 14031);
    client.run("db", doc! { "drop": "c" }).unwrap();
    assert_eq!(client.run("db", insert()).unwrap().get_i32("n").unwrap(), 1);
}

#[test]
fn log_keeps_the_last_commands() {
    let server = FakeServer::start(FakeOptions { log_max: 3, ..FakeOptions::default() }).unwrap();
    let mut client = connect(&server);
    for n in 0..5 {
        client.run("admin", doc! { "ping": n }).unwrap();
    }
    let log = server.log();
    let serials: Vec<u64> = log.iter().map(|received| received.serial).collect();
    assert_eq!(serials, [3, 4, 5]);
    assert_eq!(log[2].body.as_ref().unwrap().get_i32("ping").unwrap(), 4);
    assert_eq!((log[2].name.as_str(), log[2].flags, log[2].connection), ("ping", Some(0), 1));
}
