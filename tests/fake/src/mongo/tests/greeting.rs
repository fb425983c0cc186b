//! Hellos, awaited and streamed (MON-65).

use std::time::Instant;

use bson::oid::ObjectId;

use super::super::{Role, hello};
use super::*;

#[test]
fn hello_of_a_standalone_has_the_fields_of_a_real_server() {
    let server = start();
    let reply = connect(&server).hello("app").unwrap();
    let names: Vec<&str> = reply.keys().map(String::as_str).collect();
    let expected = [
        "helloOk",
        "isWritablePrimary",
        "topologyVersion",
        "maxBsonObjectSize",
        "maxMessageSizeBytes",
        "maxWriteBatchSize",
        "localTime",
        "logicalSessionTimeoutMinutes",
        "connectionId",
        "minWireVersion",
        "maxWireVersion",
        "readOnly",
        "ok",
    ];
    assert_eq!(names, expected);
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 17);
    assert_eq!(counter(&reply), 0);
}

#[test]
fn hello_ok_is_answered_only_to_clients_that_send_it() {
    let (server, mut client) = connected();
    assert!(!client.run("admin", doc! { "hello": 1 }).unwrap().contains_key("helloOk"));
    let legacy = client.run("admin", doc! { "isMaster": 1, "helloOk": true }).unwrap();
    assert!(legacy.get_bool("helloOk").unwrap());
    assert!(legacy.get_bool("ismaster").unwrap());
    assert!(!legacy.contains_key("isWritablePrimary"));
    server.update_state(|state| state.hello_ok = false);
    assert!(!client.run("admin", doc! { "hello": 1, "helloOk": true }).unwrap().contains_key("helloOk"));
}

#[test]
fn legacy_hello_by_op_query_is_answered_by_op_reply() {
    let (_server, mut client) = connected();
    let asked = client.send_query("admin.$cmd", doc! { "ismaster": 1, "helloOk": true }).unwrap();
    let reply = client.read().unwrap();
    assert_eq!((reply.response_to, reply.flags), (asked, None));
    assert!(reply.body.get_bool("ismaster").unwrap());
    let asked = client.send_query("admin.$cmd", doc! { "$query": { "isMaster": 1 } }).unwrap();
    assert_eq!(client.read().unwrap().response_to, asked);
    client.send_query("admin.$cmd", doc! { "ping": 1 }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 352);
    client.send_query("db.things", doc! {}).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 5_739_101);
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

#[test]
fn mechanisms_and_service_are_returned_on_request_only() {
    let services = vec![ObjectId::new(), ObjectId::new()];
    let server = start_as(ServerState::load_balanced(services.clone()));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut client = connect(&server);
        let asked = doc! { "hello": 1, "loadBalanced": true, "saslSupportedMechs": "admin.user" };
        let reply = client.run("admin", asked).unwrap();
        assert_eq!(reply.get_array("saslSupportedMechs").unwrap().len(), 2);
        assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid");
        seen.push(reply.get_object_id("serviceId").unwrap());
        let plain = client.run("admin", doc! { "hello": 1 }).unwrap();
        assert!(!plain.contains_key("serviceId"));
        assert!(!plain.contains_key("saslSupportedMechs"));
    }
    seen.sort();
    let mut services = services;
    services.sort();
    assert_eq!(seen, services);
}

#[test]
fn client_metadata_is_stored_once_and_validated() {
    let (server, mut client) = connected();
    client.hello("mine").unwrap();
    server.look(|view| {
        let info = view.open().next().unwrap();
        assert_eq!(info.app_name.as_deref(), Some("mine"));
        assert!(info.client.as_ref().unwrap().contains_key("driver"));
    });
    assert_eq!(code(&client.run("admin", hello("other")).unwrap()), 186);
    let bare = doc! { "driver": { "name": "x" } };
    assert_eq!(code(&connect(&server).run("admin", doc! { "hello": 1, "client": bare }).unwrap()), 183);
    assert_eq!(code(&connect(&server).run("admin", hello(&"a".repeat(129))).unwrap()), 184);
    let mut long = hello("a");
    long.get_document_mut("client").unwrap().insert("filler", "z".repeat(512));
    assert_eq!(code(&connect(&server).run("admin", long).unwrap()), 185);
}

/// TopologyVersion without maxAwaitTimeMS, or the reverse, is an error.
#[test]
#[doc(alias = "MON-65")]
fn awaitable_hello_requires_both_of_its_arguments() {
    let (_server, mut client, first) = greeted();
    for missing in ["topologyVersion", "maxAwaitTimeMS"] {
        let mut asked = awaitable(&first, 10_000);
        asked.remove(missing);
        assert_eq!(code(&client.run("admin", asked).unwrap()), 31368);
    }
    let mut ahead = awaitable(&first, 10_000);
    ahead.get_document_mut("topologyVersion").unwrap().insert("counter", 5_i64);
    assert_eq!(code(&client.run("admin", ahead.clone()).unwrap()), 51764);
    ahead.get_document_mut("topologyVersion").unwrap().insert("counter", -1_i64);
    assert_eq!(code(&client.run("admin", ahead.clone()).unwrap()), 31372);
    ahead.get_document_mut("topologyVersion").unwrap().insert("counter", 0_i32);
    assert_eq!(code(&client.run("admin", ahead).unwrap()), 14);
    assert_eq!(code(&client.run("admin", awaitable(&first, -1)).unwrap()), 51024);
}

/// Another processId or an older counter is answered at once.
#[test]
#[doc(alias = "MON-65")]
fn awaitable_hello_of_another_state_is_answered_at_once() {
    let (server, mut client, first) = greeted();
    let mut other = awaitable(&first, 3_600_000);
    other.get_document_mut("topologyVersion").unwrap().insert("processId", ObjectId::new());
    assert!(is_ok(&client.run("admin", other).unwrap()));
    server.update_state(|_| {});
    let reply = client.run("admin", awaitable(&first, 3_600_000)).unwrap();
    assert_eq!(counter(&reply), 1);
}

/// The wait ends at its timeout.
#[test]
#[doc(alias = "MON-65")]
fn awaitable_hello_is_answered_after_its_timeout() {
    let (server, mut client, first) = greeted();
    let start = Instant::now();
    let reply = client.run("admin", awaitable(&first, 60)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(counter(&reply), 0);
    assert_eq!(server.look(|view| view.awaiting_count()), 0);
}

/// The wait ends with a change of state.
#[test]
#[doc(alias = "MON-65")]
fn change_of_state_answers_waiting_hellos() {
    let (server, mut client, first) = greeted();
    client.send(0, awaitable(&first, 3_600_000)).unwrap();
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 1).unwrap();
    let hosts = ["a:1", "b:2"];
    server.set_state(ServerState::member(Role::Secondary, "rs", &hosts, "a:1", Some("b:2")));
    let reply = client.read().unwrap();
    assert!(!reply.more_to_come());
    assert_eq!(counter(&reply.body), 1);
    assert!(!reply.body.get_bool("isWritablePrimary").unwrap());
    assert!(reply.body.get_bool("secondary").unwrap());
    assert_eq!(reply.body.get_str("setName").unwrap(), "rs");
    assert_eq!(reply.body.get_str("primary").unwrap(), "b:2");
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 0).unwrap();
}

/// MoreToCome if exhaustAllowed; each later reply answers the one before it.
#[test]
#[doc(alias = "MON-65")]
fn exhaust_hello_streams_replies_that_answer_each_other() {
    let (server, mut client, first) = greeted();
    let asked = client.send(EXHAUST_ALLOWED, awaitable(&first, 3_600_000)).unwrap();
    let mut answers = asked;
    for turn in 1..=3 {
        server.wait_until(PATIENCE, |view| view.exhausting_count() == 1 && view.count_of("hello") == 1 + turn).unwrap();
        server.update_state(|_| {});
        let reply = client.read().unwrap();
        assert!(reply.more_to_come());
        assert_eq!(reply.response_to, answers);
        assert_eq!(counter(&reply.body), i64::try_from(turn).unwrap());
        answers = reply.request_id;
    }
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0 && view.awaiting_count() == 0).unwrap();
}

/// A stream continues after a timeout without a change.
#[test]
#[doc(alias = "MON-65")]
fn exhaust_hello_continues_after_its_timeout() {
    let (_server, mut client, first) = greeted();
    client.send(EXHAUST_ALLOWED, awaitable(&first, 5)).unwrap();
    for _ in 0..3 {
        let reply = client.read().unwrap();
        assert!(reply.more_to_come());
        assert_eq!(counter(&reply.body), 0);
    }
}

/// Never moreToCome with ok: 0; the connection stays usable.
#[test]
#[doc(alias = "MON-65")]
fn error_ends_an_exhaust_stream() {
    let (server, mut client, first) = greeted();
    client.send(EXHAUST_ALLOWED, awaitable(&first, 3_600_000)).unwrap();
    server.wait_until(PATIENCE, |view| view.exhausting_count() == 1).unwrap();
    let point = super::super::FailPoint::new(super::super::FailPointMode::Times(1), &["hello"]).error(91);
    server.set_fail_point(point);
    server.update_state(|_| {});
    assert!(client.read().unwrap().more_to_come());
    let reply = client.read().unwrap();
    assert_eq!(code(&reply.body), 91);
    assert!(!reply.more_to_come());
    assert!(is_ok(&client.run("admin", ping()).unwrap()));
}

/// MoreToCome only for clients that set exhaustAllowed, and only for an awaitable hello.
#[test]
#[doc(alias = "MON-65")]
fn exhaust_is_used_only_on_request() {
    let (_server, mut client, first) = greeted();
    client.send(0, awaitable(&first, 1)).unwrap();
    assert!(!client.read().unwrap().more_to_come());
    client.send(EXHAUST_ALLOWED, ping()).unwrap();
    assert!(!client.read().unwrap().more_to_come());
    client.send(EXHAUST_ALLOWED, doc! { "hello": 1, "$db": "admin" }).unwrap();
    assert_eq!(code(&client.read().unwrap().body), 51756);
}

#[test]
fn server_without_topology_version_never_waits() {
    let server = start_as(ServerState::without_topology_version());
    let mut client = connect(&server);
    let first = client.hello("app").unwrap();
    assert!(!first.contains_key("topologyVersion"));
    assert!(!first.contains_key("helloOk"));
    let version = doc! { "processId": ObjectId::new(), "counter": 0_i64 };
    let asked = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 3_600_000, "$db": "admin" };
    client.send(EXHAUST_ALLOWED, asked).unwrap();
    assert!(!client.read().unwrap().more_to_come());
}

#[test]
fn client_that_closes_while_its_hello_waits_is_detected() {
    let (server, mut client, first) = greeted();
    client.send(0, awaitable(&first, 3_600_000)).unwrap();
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 1).unwrap();
    drop(client);
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
}

#[test]
fn request_behind_a_waiting_hello_is_answered_after_it() {
    let (server, mut client, first) = greeted();
    let waiting = client.send(0, awaitable(&first, 3_600_000)).unwrap();
    let behind = client.send(0, ping()).unwrap();
    server.wait_until(PATIENCE, |view| view.awaiting_count() == 1).unwrap();
    server.update_state(|_| {});
    assert_eq!(client.read().unwrap().response_to, waiting);
    assert_eq!(client.read().unwrap().response_to, behind);
}

/// Errors of a change of state carry the topologyVersion.
#[test]
#[doc(alias = "MON-65")]
fn not_primary_errors_carry_the_topology_version() {
    let server = start_as(ServerState::member(Role::Secondary, "rs", &["a:1"], "a:1", None));
    let mut client = connect(&server);
    let refused = client.run("db", doc! { "insert": "c", "documents": [{}] }).unwrap();
    assert_eq!(code(&refused), 10107);
    assert_eq!(counter(&refused), 0);
    assert_eq!(code(&client.run("db", doc! { "find": "c" }).unwrap()), 13435);
    let lenient = doc! { "find": "c", "$readPreference": { "mode": "secondaryPreferred" } };
    assert!(is_ok(&client.run("db", lenient.clone()).unwrap()));
    server.update_state(|state| state.role = Role::Other);
    assert_eq!(code(&client.run("db", lenient).unwrap()), 13436);
    let shutdown = super::super::FailPoint::new(super::super::FailPointMode::AlwaysOn, &["ping"]).error(91);
    server.set_fail_point(shutdown);
    assert!(!client.run("admin", ping()).unwrap().contains_key("topologyVersion"));
}

#[test]
fn roles_are_reported_by_hello() {
    let (server, mut client) = connected();
    let cases = [
        (Role::Mongos, doc! { "isWritablePrimary": true, "msg": "isdbgrid" }),
        (Role::Primary, doc! { "isWritablePrimary": true, "secondary": false }),
        (Role::Arbiter, doc! { "isWritablePrimary": false, "arbiterOnly": true }),
        (Role::Other, doc! { "isWritablePrimary": false, "secondary": false }),
        (Role::Ghost, doc! { "isWritablePrimary": false, "isreplicaset": true }),
    ];
    for (role, expected) in cases {
        server.update_state(|state| state.role = role);
        let reply = client.run("admin", doc! { "hello": 1 }).unwrap();
        for (name, value) in expected {
            assert_eq!(reply.get(&name), Some(&value), "{role:?} {name}");
        }
    }
    server.update_state(|state| {
        state.fields = doc! { "maxWireVersion": 999, "tags": { "dc": "x" } };
    });
    let reply = client.run("admin", doc! { "hello": 1 }).unwrap();
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 999);
    assert!(reply.contains_key("tags"));
}
