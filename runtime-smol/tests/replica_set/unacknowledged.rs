//! Writes with the write concern `w: 0`, which have no reply.

use super::support::{client, counts_agree, eventually, known, options, refused, run, sent, still_set};
use alloc::sync::Arc;
use bson::{Document, RawDocumentBuf, doc};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{ClosedReason, PoolEvent};
use poolhouse_smol::poolhouse_driver::{CommandStage, EventKinds, ExchangeError, OperationError};
use poolhouse_smol::poolhouse_wire::WireErrorKind;
use poolhouse_smol::{
    Client, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, Event, Notice, Subscription,
    TransactionOptions,
};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{Cut, FailPoint, FailPointMode, FakeServer, Fault, FaultKind, FaultRule};
use poolhouse_tests::patience::Stopwatch;
use smol::future::FutureExt as _;

const MORE_TO_COME: u32 = 2;

fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }], "writeConcern": { "w": 0 } }
}

/// A client that knows the set, with at most one connection to each member.
async fn with_one_connection() -> (FakeReplicaSet, Arc<FakeServer>, Client) {
    let set = still_set();
    let client = client(options(&set.uri()).max_pool_size(1));
    known(&client, &set).await;
    let primary = set.server(set.primary().expect("a primary"));
    (set, primary, client)
}

async fn count(client: &Client) -> usize {
    let found = client.run_command("db", doc! { "find": "c" }).await.expect("a reply");
    found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch").len()
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Outcome {
    ok: f64,
}

/// In each form of a command. All of them use one connection, one after the other.
#[test]
fn write_without_acknowledgement_has_no_reply_and_no_session() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let ok = doc! { "ok": 1 };
        assert_eq!(client.run_command("db", insert(1)).await.expect("sent"), ok);
        assert_eq!(client.run_command_as::<Outcome>("db", insert(2)).await.expect("sent"), Outcome { ok: 1.0 });
        let raw = RawDocumentBuf::try_from(&insert(3)).expect("a document");
        let reply = client.run_raw_command("db", &raw).await.expect("sent");
        assert_eq!(Document::try_from(reply).expect("a document"), ok);
        let mut connection = client.check_out().await.expect("a connection");
        assert_eq!(connection.run_command("db", insert(4)).await.expect("sent"), ok);
        assert_eq!(connection.run_command("db", insert(5)).await.expect("sent"), ok);
        // The next reply on the connection is that of the next command.
        let reply = connection.run_command("db", doc! { "buildInfo": 1 }).await.expect("a reply");
        assert!(reply.contains_key("version"), "{reply}");
        drop(connection);
        assert_eq!(count(&client).await, 5);
        let inserts = sent(&primary, "insert");
        assert_eq!(inserts.len(), 5);
        for received in &inserts {
            assert_eq!(received.flags, Some(MORE_TO_COME));
            assert_eq!(received.connection, inserts[0].connection);
            let body = received.body.as_ref().expect("the command is short");
            assert!(!body.contains_key("lsid") && !body.contains_key("txnNumber"), "{body}");
        }
        // Its errors are not known: the id exists already.
        assert_eq!(client.run_command("db", insert(1)).await.expect("sent"), ok);
        client.close().await;
    });
}

/// It ends before the server has executed it.
#[test]
fn write_without_acknowledgement_does_not_wait_for_the_server() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let blocked = Duration::from_secs(2);
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["insert"]).block(blocked));
        let begun = Stopwatch::start();
        client.run_command("db", insert(1)).await.expect("sent");
        begun.assert_below(blocked);
        assert_eq!(count(&client).await, 1, "the server executes the commands of a connection in order");
        client.close().await;
    });
}

/// Command Logging and Monitoring, on unacknowledged writes.
#[test]
fn events_of_a_write_without_acknowledgement_are_a_start_and_a_success() {
    run(async {
        let (_set, _primary, client) = with_one_connection().await;
        let mut events = client.subscribe_to(EventKinds::COMMANDS);
        client.run_command("db", insert(1)).await.expect("sent");
        let seen: Vec<_> = core::iter::from_fn(|| events.try_next())
            .map(|notice| {
                let Notice::Event { event: Event::Command(event), .. } = notice else {
                    panic!("no event of a command: {notice:?}")
                };
                event
            })
            .collect();
        let [started, ended] = &seen[..] else { panic!("{seen:?}") };
        assert!(matches!(started.get().stage, CommandStage::Started));
        assert!(matches!(ended.get().stage, CommandStage::Succeeded { .. }));
        assert_eq!(Document::try_from(ended.get().document).expect("BSON"), doc! { "ok": 1 });
        assert_eq!(started.get().request_id, ended.get().request_id);
        client.close().await;
    });
}

/// Its reply has data, or an error that is no failed write.
#[test]
fn other_command_without_acknowledgement_has_its_reply() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        client.run_command("db", insert(1)).await.expect("sent");
        let drop_it = || doc! { "drop": "c", "writeConcern": { "w": 0 } };
        let reply = client.run_command("db", drop_it()).await.expect("a reply");
        assert_eq!(reply.get_str("ns").ok(), Some("db.c"), "{reply}");
        assert_eq!(refused(client.run_command("db", drop_it()).await).code(), Some(26), "no such collection");
        for received in sent(&primary, "drop") {
            assert_eq!(received.flags, Some(0));
            assert!(received.body.is_some_and(|body| !body.contains_key("lsid")));
        }
        client.close().await;
    });
}

#[test]
fn write_without_acknowledgement_is_refused_where_its_outcome_matters() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let mut session = client.start_session(ClientSessionOptions::new());
        for _ in 0..2 {
            let error = refused(session.run_command("db", insert(1)).await);
            assert!(matches!(error, Error::Session(_)) && error.to_string().contains("w: 0"), "{error}");
            if !session.in_transaction() {
                session.start_transaction(TransactionOptions::new()).expect("it starts");
            }
        }
        session.run_command("db", doc! { "insert": "d", "documents": [{}] }).await.expect("the transaction goes on");
        session.commit_transaction().await.expect("a commit");
        drop(session);
        for fields in [doc! { "lsid": 1 }, doc! { "lsid": 1, "txnNumber": 1 }] {
            let mut command = insert(1);
            command.extend(fields);
            let error = refused(client.run_command("db", command).await);
            assert!(matches!(error, Error::Session(_)) && error.to_string().contains("w: 0"), "{error}");
        }
        for command in [insert(1), doc! { "find": "c", "writeConcern": { "w": 0 } }] {
            let cursor: Result<Cursor, _> =
                client.run_cursor_command("db", command, CommandOptions::new(), CursorOptions::new()).await;
            let error = refused(cursor.map(drop));
            assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains("w: 0"), "{error}");
        }
        // Only that of the transaction.
        assert_eq!((primary.count_of("insert"), primary.count_of("find")), (1, 0));
        counts_agree(&client, &[Arc::clone(&primary)], 2).await;
        client.close().await;
    });
}

/// The connection has failed before the write, and the client finds that out during the write.
#[test]
fn write_without_acknowledgement_is_not_retried_after_it_may_have_been_sent() {
    run(async {
        let (set, primary, client) = with_one_connection().await;
        for (acknowledged, idempotent) in [(true, true), (false, false), (false, true)] {
            client.run_command("db", doc! { "ping": 1 }).await.expect("a connection");
            let connection = sent(&primary, "ping").last().expect("a ping").connection;
            primary.cut(connection, Cut::Rst);
            let is_cut = || primary.look(|view| view.open().all(|open| open.id != connection));
            eventually("the connection is cut", is_cut).await;
            let before = primary.count_of("insert");
            let mut command = insert(1);
            if acknowledged {
                command.remove("writeConcern");
            }
            let options = CommandOptions::new().idempotent(idempotent);
            let outcome = client.run_command_with("db", command, options).await;
            if acknowledged {
                outcome.expect("the second attempt succeeds");
                assert_eq!(primary.count_of("insert"), before + 1);
                continue;
            }
            let error = refused(outcome);
            let Error::Operation(OperationError::Exchange(ExchangeError::Network(_)), _) = error else {
                panic!("{error:?}")
            };
            assert_eq!(primary.count_of("insert"), before, "idempotent: {idempotent}");
            known(&client, &set).await;
        }
        client.close().await;
    });
}

/// Returns the number of connections that were closed because of an error.
fn failed(events: &mut Subscription) -> usize {
    let is_failed = |notice: &Notice| {
        let Notice::Event { event: Event::Pool(PoolEvent::ConnectionClosed { reason, .. }), .. } = notice else {
            return false;
        };
        *reason == ClosedReason::Error
    };
    core::iter::from_fn(|| events.try_next()).filter(is_failed).count()
}

/// It was certainly not sent: no connection was established.
#[test]
fn write_without_acknowledgement_is_retried_if_it_was_not_sent() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let mut events = client.subscribe_to(EventKinds::POOLS);
        // The next connection is that of the write, not that of the monitor.
        counts_agree(&client, &[Arc::clone(&primary)], 2).await;
        primary.inject(FaultRule::once(Fault::CloseOnAccept(Cut::Rst)));
        client.run_command("db", insert(1)).await.expect("the second attempt succeeds");
        assert_eq!(primary.look(|view| view.fault_count(FaultKind::CloseOnAccept)), 1);
        assert_eq!(failed(&mut events), 1, "connections that were not established");
        assert_eq!(count(&client).await, 1);
        assert_eq!(primary.count_of("insert"), 1);
        client.close().await;
    });
}

/// The next command does not take the reply for its own: its connection is closed.
#[test]
fn unwanted_reply_closes_the_connection_of_the_next_command() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let mut events = client.subscribe_to(EventKinds::POOLS);
        primary.inject(FaultRule::once(Fault::UnwantedReply).on_command("insert"));
        client.run_command("db", insert(1)).await.expect("sent");
        // An error of the protocol is no network error, so also a read is not repeated.
        let error = refused(client.run_command("db", doc! { "find": "c" }).await);
        let Error::Operation(OperationError::Exchange(ExchangeError::Wire(wire)), _) = &error else {
            panic!("{error:?}")
        };
        assert!(matches!(wire.kind(), WireErrorKind::ResponseTo { .. }), "{wire:?}");
        assert_eq!(failed(&mut events), 1);
        assert_eq!(count(&client).await, 1);
        // A write without a reply does not look for replies. The next command finds the first one.
        primary.inject(FaultRule::always(Fault::UnwantedReply).on_command("insert").times(3));
        for id in 2..5 {
            client.run_command("db", insert(id)).await.expect("sent");
        }
        refused(client.run_command("db", doc! { "buildInfo": 1 }).await);
        assert_eq!(count(&client).await, 4);
        client.close().await;
    });
}

/// The command is larger than the buffers of the sockets, and the server does not read.
#[test]
fn write_that_ends_in_the_middle_closes_its_connection() {
    run(async {
        let (_set, primary, client) = with_one_connection().await;
        let large = || {
            let text = "x".repeat(12_000_000);
            doc! { "insert": "c", "documents": [{ "text": text }], "writeConcern": { "w": 0 } }
        };
        client.run_command("db", doc! { "ping": 1 }).await.expect("a connection");
        for dropped in [false, true] {
            let connections = primary.accepted_count();
            primary.freeze();
            let mut connection = client.check_out().await.expect("a connection");
            let limit = Duration::from_millis(300);
            if dropped {
                let sending = async { connection.run_command("db", large()).await.map(drop) };
                let impatient = async {
                    smol::Timer::after(limit).await;
                    Err(Error::from(OperationError::Busy))
                };
                let outcome = sending.or(impatient).await;
                assert!(matches!(outcome, Err(Error::Operation(OperationError::Busy, _))), "{outcome:?}");
                let error = refused(connection.run_command("db", doc! { "ping": 1 }).await);
                assert!(matches!(error, Error::Operation(OperationError::Broken(Cause::Cancelled), _)), "{error:?}");
                drop(connection);
            } else {
                drop(connection);
                let hurried = CommandOptions::new().timeout(limit).idempotent(true);
                let error = refused(client.run_command_with("db", large(), hurried).await);
                assert!(error.is_timeout(), "{error:?}");
            }
            primary.thaw();
            // On another connection.
            client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
            assert!(primary.accepted_count() > connections);
        }
        assert_eq!(primary.count_of("insert"), 0);
        // The same command is sent if there is time for it.
        client.run_command("db", large()).await.expect("sent");
        assert_eq!(count(&client).await, 1);
        client.close().await;
    });
}
