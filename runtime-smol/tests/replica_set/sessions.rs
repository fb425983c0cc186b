//! Sessions, retries of reads and writes, and write errors: the commands that the servers receive.

use super::support::{client, eventually, insert, known, options, ping, refused, run, sent, still_set};
use bson::{Bson, Document, doc};
use core::time::Duration;
use poolhouse_smol::{
    Client, ClientSessionOptions, CommandOptions, Cursor, Error, ReadMode, ReadPreference, ServerApi,
    TransactionOptions,
};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, Received};

const CODES: [i32; 4] = [91, 189, 10_107, 11_600];

fn body(received: &Received) -> &Document {
    received.body.as_ref().expect("the command is short")
}

fn lsid(received: &Received) -> &Bson {
    body(received).get("lsid").expect("a session")
}

fn txn_number(received: &Received) -> Option<i64> {
    body(received).get_i64("txnNumber").ok()
}

/// The inserts that any member has received, in order.
fn inserts(set: &FakeReplicaSet) -> Vec<Received> {
    let mut all: Vec<_> = (0..3).flat_map(|member| sent(&set.server(member), "insert")).collect();
    all.sort_by_key(|received| received.at);
    all
}

async fn count(client: &Client) -> usize {
    let reply = client.run_command("db", doc! { "find": "c" }).await.expect("a reply");
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    batch.expect("a batch").len()
}

#[test]
fn write_is_retried_in_its_session_with_its_number_and_executed_once() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let mut written = 0;
        let closes = FailPoint::new(FailPointMode::Times(1), &["insert"]).close();
        let points = CODES.map(|code| FailPoint::new(FailPointMode::Times(1), &["insert"]).error(code));
        for point in points.into_iter().chain([closes]) {
            known(&client, &set).await;
            let before = inserts(&set).len();
            primary.set_fail_point(point.clone());
            insert(&client, CommandOptions::new()).await.expect("the second attempt succeeds");
            written += 1;
            let inserts = inserts(&set).split_off(before);
            let [first, second] = inserts.as_slice() else { panic!("{point:?}: {inserts:?}") };
            assert_eq!(lsid(first), lsid(second), "{point:?}");
            assert!(txn_number(first).is_some(), "{point:?}");
            assert_eq!(txn_number(first), txn_number(second), "{point:?}");
            assert_eq!(count(&client).await, written, "{point:?}");
        }
        client.close().await;
    });
}

#[test]
fn commands_are_retried_only_as_the_options_allow() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let many = doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] };
        let single = doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] };
        // It has a reply, but no number.
        let unacknowledged = doc! { "findAndModify": "c", "remove": true, "writeConcern": { "w": 0 } };
        let read = doc! { "find": "c" };
        let commit = doc! { "commitTransaction": 1, "lsid": { "id": 1 }, "txnNumber": 1_i64, "autocommit": false };
        let cases = [
            (true, true, &read, 2),
            (false, true, &read, 1),
            (true, true, &single, 2),
            (true, false, &single, 1),
            (true, true, &many, 1),
            (true, true, &unacknowledged, 1),
            // Transactions: the end of one is retried in any case.
            (false, false, &commit, 2),
        ];
        for (reads, writes, command, attempts) in cases {
            let mut options = options(&set.uri());
            (options.retry_reads, options.retry_writes) = (reads, writes);
            // Without a time limit, there is one retry at most.
            options.timeout = None;
            let client = client(options);
            known(&client, &set).await;
            let name = command.keys().next().expect("a command").as_str();
            let before = sent(&primary, name).len();
            let point = FailPoint::new(FailPointMode::Times(4), &[name]).error(91);
            primary.set_fail_point(point.labels(&["RetryableWriteError"]));
            let error = refused(client.run_command("db", command.clone()).await);
            assert_eq!(error.code(), Some(91));
            assert_eq!(sent(&primary, name).len() - before, attempts, "{command}");
            primary.set_fail_point(FailPoint::new(FailPointMode::Off, &[name]));
            client.close().await;
        }
    });
}

#[test]
fn servers_without_sessions_and_standalone_servers_get_no_fields_for_them() {
    run(async {
        let mut old = FakeOptions::default();
        old.state.session_timeout_minutes = None;
        for (options, has_session) in [(old, false), (FakeOptions::default(), true)] {
            let server = FakeServer::start(options).expect("it starts");
            let client = client(super::support::options(&server.uri()));
            insert(&client, CommandOptions::new()).await.expect("a reply");
            let insert = &sent(&server, "insert")[0];
            assert_eq!(body(insert).contains_key("lsid"), has_session);
            assert_eq!(txn_number(insert), None);
            let mut session = client.start_session(ClientSessionOptions::new());
            let outcome = session.run_command("db", doc! { "ping": 1 }).await;
            assert_eq!(matches!(outcome, Err(Error::Session(_))), !has_session, "{outcome:?}");
            client.close().await;
        }
    });
}

/// By monitors, handshakes, operations, cursors and the end of sessions.
#[test]
fn every_command_has_the_version_of_the_stable_api() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()).server_api(ServerApi::V1.strict(true)));
        known(&client, &set).await;
        for _ in 0..2 {
            insert(&client, CommandOptions::new()).await.expect("a reply");
        }
        let cursor = client.database("db").run_cursor_command(doc! { "find": "c", "batchSize": 1 }).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        while cursor.next_raw().await.expect("a document").is_some() {}
        let mut session = client.start_session(ClientSessionOptions::new());
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        session.run_command("db", doc! { "insert": "c", "documents": [{}] }).await.expect("a reply");
        session.commit_transaction().await.expect("it is committed");
        drop(session);
        client.close().await;
        let log = primary.log();
        for name in ["hello", "insert", "find", "getMore", "commitTransaction", "endSessions"] {
            assert!(log.iter().any(|received| received.name == name), "{name}");
        }
        for received in &log {
            assert_eq!(body(received).get_str("apiVersion").ok(), Some("1"), "{received:?}");
            assert_eq!(body(received).get_bool("apiStrict").ok(), Some(true), "{received:?}");
        }
    });
}

/// Makes a server send this cluster time with each reply.
fn send_cluster_time(server: &FakeServer, time: (u32, u32)) {
    let mut state = server.state();
    state.cluster_time = Some(time);
    server.set_state(state);
}

#[test]
fn cluster_time_is_repeated_to_every_member() {
    run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        // The client selects each secondary, also one that was slow at first.
        options.local_threshold = Duration::from_secs(5);
        let client = client(options);
        known(&client, &set).await;
        let (primary, secondary) = (set.primary().expect("a primary"), set.primary().map_or(0, |it| (it + 1) % 3));
        send_cluster_time(&set.server(primary), (50, 3));
        ping(&client).await.expect("a ping");
        let preference = ReadPreference::of(ReadMode::Secondary);
        while set.server(secondary).count_of("ping") == 0 {
            super::support::ping_with(&client, CommandOptions::new().read_preference(preference))
                .await
                .expect("a ping");
        }
        let pings = sent(&set.server(secondary), "ping");
        let time = body(&pings[0]).get_document("$clusterTime").expect("a time");
        assert_eq!(time.get_timestamp("clusterTime").ok(), Some(bson::Timestamp { time: 50, increment: 3 }));
        assert!(time.get_document("signature").is_ok());
        client.close().await;
    });
}

/// The codes with which a server refuses a cluster time, before it executes the command.
const CLUSTER_TIME_REFUSED: [(i32, &str); 5] = [
    (204, "TimeProofMismatch"),
    (205, "ClusterTimeFailsRateLimiter"),
    (209, "StaleClusterTime"),
    (210, "CannotVerifyAndSignLogicalTime"),
    (211, "KeyNotFound"),
];

fn refusal_of_time((code, name): (i32, &str)) -> Document {
    doc! { "ok": 0, "code": code, "codeName": name, "errmsg": "the time is refused" }
}

/// The seconds of the cluster times that the pings had.
fn times_of_pings(server: &FakeServer) -> Vec<Option<u32>> {
    let time =
        |ping: &Received| Some(body(ping).get_document("$clusterTime").ok()?.get_timestamp("clusterTime").ok()?.time);
    sent(server, "ping").iter().map(time).collect()
}

#[test]
fn cluster_time_that_a_server_refuses_is_forgotten() {
    run(async {
        for refused in CLUSTER_TIME_REFUSED {
            let set = still_set();
            let primary = set.server(set.primary().expect("a primary"));
            let client = client(options(&set.uri()));
            known(&client, &set).await;
            send_cluster_time(&primary, (u32::MAX, 3));
            ping(&client).await.expect("a ping");
            send_cluster_time(&primary, (50, 3));
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).reply(refusal_of_time(refused)));
            for _ in 0..3 {
                ping(&client).await.expect("an attempt without the refused time");
            }
            assert_eq!(times_of_pings(&primary), [None, Some(u32::MAX), None, None, Some(50)], "{refused:?}");
            client.close().await;
        }
    });
}

#[test]
fn cluster_time_of_a_session_that_a_server_refuses_is_forgotten() {
    run(async {
        for refused in CLUSTER_TIME_REFUSED {
            let set = still_set();
            let primary = set.server(set.primary().expect("a primary"));
            let client = client(options(&set.uri()));
            known(&client, &set).await;
            send_cluster_time(&primary, (50, 3));
            let mut session = client.start_session(ClientSessionOptions::new());
            let time = bson::Timestamp { time: u32::MAX, increment: 1 };
            session.advance_cluster_time(&doc! { "clusterTime": time }).expect("a time");
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).reply(refusal_of_time(refused)));
            for _ in 0..2 {
                session.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
            }
            assert_eq!(times_of_pings(&primary), [Some(u32::MAX), None, Some(50)], "{refused:?}");
            drop(session);
            client.close().await;
        }
    });
}

#[test]
fn command_whose_time_is_always_refused_is_repeated_once() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        send_cluster_time(&primary, (50, 3));
        ping(&client).await.expect("a ping");
        for refused in CLUSTER_TIME_REFUSED {
            let before = sent(&primary, "ping").len();
            let always = FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).reply(refusal_of_time(refused));
            primary.set_fail_point(always);
            let error = ping(&client).await.expect_err("the server refuses it always");
            assert_eq!(error.code(), Some(refused.0));
            assert_eq!(sent(&primary, "ping").len() - before, 2);
            // The next refusal needs a time again.
            primary.set_fail_point(FailPoint::new(FailPointMode::Off, &["ping"]));
            ping(&client).await.expect("a ping");
        }
        client.close().await;
    });
}

/// A member that lies about its timeout, or has left, affects the sessions only while it says so.
#[test]
fn sessions_are_reused_by_the_timeout_of_the_present_deployment() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let liar = set.server(set.primary().map_or(0, |it| (it + 1) % 3));
        let says = |minutes| {
            let mut state = liar.state();
            state.session_timeout_minutes = Some(minutes);
            liar.set_state(state);
        };
        let timeout_is = async |minutes| {
            eventually("the client knows it", || client.topology().logical_session_timeout_minutes() == Some(minutes))
                .await;
        };
        for minutes in [0, 1] {
            says(minutes);
            timeout_is(minutes.into()).await;
            for _ in 0..3 {
                ping(&client).await.expect("a ping");
            }
            says(30);
            timeout_is(30).await;
            let before = sent(&primary, "ping").len();
            for _ in 0..10 {
                ping(&client).await.expect("a ping");
            }
            let pings = sent(&primary, "ping").split_off(before);
            assert!(pings.iter().all(|ping| lsid(ping) == lsid(&pings[0])), "after {minutes} min: {pings:?}");
        }
        client.close().await;
    });
}

#[test]
fn read_of_a_session_follows_its_writes() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        send_cluster_time(&primary, (60, 1));
        let mut session = client.start_session(ClientSessionOptions::new());
        session.run_command("db", doc! { "insert": "c", "documents": [{}] }).await.expect("a reply");
        let expected = bson::Timestamp { time: 60, increment: 1 };
        assert_eq!(session.operation_time(), Some(expected));
        session.run_command("db", doc! { "find": "c", "readConcern": { "level": "majority" } }).await.expect("a reply");
        let mut other = client.start_session(ClientSessionOptions::new().causal_consistency(false));
        other.advance_operation_time(expected);
        other.run_command("db", doc! { "find": "c" }).await.expect("a reply");
        let finds = sent(&primary, "find");
        let concern = body(&finds[0]).get_document("readConcern").expect("a read concern");
        assert_eq!(concern, &doc! { "level": "majority", "afterClusterTime": expected });
        assert!(!body(&finds[1]).contains_key("readConcern"));
        assert_ne!(lsid(&finds[0]), lsid(&finds[1]), "both sessions are in use");
        let own = session.run_command("db", doc! { "ping": 1, "lsid": { "id": 1 } }).await;
        assert!(matches!(refused(own), Error::Session(_)));
        let unacknowledged = doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 0 } };
        assert!(matches!(refused(session.run_command("db", unacknowledged).await), Error::Session(_)));
        assert_eq!(sent(&primary, "insert").len(), 1, "nothing was sent");
        drop((session, other));
        client.close().await;
    });
}

#[test]
fn replies_to_commands_of_a_session_are_decoded() {
    #[derive(serde::Deserialize)]
    struct Inserted {
        n: i64,
    }

    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let mut session = client.start_session(ClientSessionOptions::new());
        let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }];
        let insert = doc! { "insert": "c", "documents": documents.to_vec() };
        let Inserted { n } = session.run_command_as("db", insert.clone()).await.expect("a reply");
        assert_eq!(n, 2);
        let twice = session.run_command_as::<Inserted>("db", insert).await.err();
        assert_eq!(twice.expect("both exist").code(), Some(11_000));
        let other = session.run_command_as::<Inserted>("db", doc! { "find": "c" }).await.err();
        assert!(matches!(other, Some(Error::Bson(_))), "{other:?}");
        let inserts = inserts(&set);
        assert_eq!(lsid(&inserts[0]), lsid(&inserts[1]));
        client.close().await;
    });
}

#[test]
fn hostile_cluster_time_is_ignored() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let hostile = doc! { "$clusterTime": { "clusterTime": 5 }, "ok": 1 };
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).reply(hostile));
        ping(&client).await.expect("the server has executed the command");
        ping(&client).await.expect("a ping");
        assert!(!body(&sent(&primary, "ping")[1]).contains_key("$clusterTime"));
        client.close().await;
    });
}

#[test]
fn write_errors_are_errors_unless_the_reply_is_requested() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let twice = || doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 1 }, { "_id": 2 }] };
        let Error::Write(error) = refused(client.run_command("db", twice()).await) else { panic!("a write error") };
        assert_eq!((error.code, error.index), (11_000, Some(1)));
        assert_eq!(error.reply.get_i32("n").ok(), Some(1));
        assert!(error.message.as_ref().is_some_and(|text| text.contains("duplicate key")), "{error}");
        let in_reply = CommandOptions::new().write_errors_in_reply(true);
        let reply = client.run_command_with("db", twice(), in_reply).await.expect("the reply is requested");
        assert_eq!(reply.get_array("writeErrors").map(Vec::len).ok(), Some(1));

        let late = doc! { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "late" };
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).write_concern_error(late));
        let error = refused(insert(&client, CommandOptions::new()).await);
        let text = error.to_string();
        assert!(text.ends_with(": the write concern was not satisfied: code 64 (WriteConcernFailed): late"), "{text}");
        let Error::Write(error) = error else { panic!("a write error") };
        assert_eq!((error.index, error.reply.get_i32("n").ok()), (None, Some(1)));
        client.close().await;
    });
}

/// Only the application has numbers for its own session; the client numbers its own.
#[test]
fn numbers_of_the_application_need_its_session() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let fields = doc! { "txnNumber": 100_i64, "startTransaction": true, "autocommit": false };
        for mut command in [
            doc! { "insert": "c", "documents": [{}] },
            doc! { "commitTransaction": 1 },
            doc! { "abortTransaction": 1 },
            doc! { "getMore": 5_i64, "collection": "c" },
        ] {
            let name = command.keys().next().expect("a command").clone();
            let is_write = name == "insert";
            if is_write {
                command.extend(fields.clone());
            }
            let error = refused(client.run_command("db", command.clone()).await);
            assert!(matches!(error, Error::Session(_)), "{command}: {error}");
            if name != "getMore" {
                let mut session = client.start_session(ClientSessionOptions::new());
                let error = refused(session.run_command("db", command.clone()).await);
                assert!(matches!(error, Error::Session(_)), "{command}: {error}");
            }
            assert_eq!(sent(&primary, &name).len(), 0, "{command}");
        }
        let mut own = doc! { "insert": "c", "documents": [{}], "lsid": { "id": 1 } };
        own.extend(doc! { "txnNumber": 100_i64 });
        client.run_command("db", own).await.expect("a reply");
        assert_eq!(txn_number(&inserts(&set)[0]), Some(100));
        client.close().await;
    });
}

#[test]
fn command_whose_retries_are_off_is_sent_once_and_without_number() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        let overload = FailPoint::new(FailPointMode::Times(1), &["insert"]).error(462);
        for point in [
            FailPoint::new(FailPointMode::Times(1), &["insert"]).error(91),
            overload.labels(&["SystemOverloadedError", "RetryableError"]),
        ] {
            known(&client, &set).await;
            let before = inserts(&set).len();
            primary.set_fail_point(point);
            refused(insert(&client, CommandOptions::new().retry(false)).await);
            let inserts = inserts(&set).split_off(before);
            assert_eq!(inserts.iter().map(txn_number).collect::<Vec<_>>(), [None]);
        }
        client.close().await;
    });
}

#[test]
fn later_cluster_time_of_the_session_and_the_client_is_sent() {
    run(async {
        let set = still_set();
        let primary = set.server(set.primary().expect("a primary"));
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        send_cluster_time(&primary, (50, 1));
        let at = |time: &Document| time.get_timestamp("clusterTime").expect("a time").time;
        let mut session = client.start_session(ClientSessionOptions::new());
        assert_eq!(session.cluster_time(), None);
        assert!(matches!(refused(session.advance_cluster_time(&doc! { "clusterTime": 5 })), Error::Bson(_)));
        session.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
        for (own, latest) in [(40, 50), (70, 70), (60, 70)] {
            let own = doc! { "clusterTime": bson::Timestamp { time: own, increment: 1 }, "signature": {} };
            session.advance_cluster_time(&own).expect("a cluster time");
            assert_eq!(session.cluster_time().as_ref().map(at), Some(latest));
            session.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
            let pings = sent(&primary, "ping");
            let sent = body(pings.last().expect("a ping")).get_document("$clusterTime").expect("a time");
            assert_eq!(at(sent), latest);
        }
        for concern in [
            doc! { "level": "linearizable" },
            doc! { "level": "snapshot", "atClusterTime": bson::Timestamp { time: 1, increment: 1 } },
        ] {
            session.run_command("db", doc! { "find": "c", "readConcern": concern.clone() }).await.expect("a reply");
            let finds = sent(&primary, "find");
            assert_eq!(body(finds.last().expect("one")).get_document("readConcern").ok(), Some(&concern));
        }
        drop(session);
        client.close().await;
    });
}
