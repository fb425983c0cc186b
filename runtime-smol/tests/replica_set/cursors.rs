//! Cursors: the commands that the servers receive for them, and hostile replies.

use super::support::{client, eventually, known, options, refused, run, sent, still_set};
use bson::{Bson, Document, doc};
use core::time::Duration;
use poolhouse_smol::{
    Client, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, ReadMode, ReadPreference,
    SessionCursor, TransactionOptions,
};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer, Received};
use poolhouse_tests::patience::Stopwatch;
use smol::stream::StreamExt;

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Order {
    #[serde(rename = "_id")]
    id: i32,
}

/// Writes ten documents.
async fn filled(client: &Client) {
    let documents: Vec<_> = (0..10).map(|id| doc! { "_id": id }).collect();
    client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("a reply");
}

fn find() -> Document {
    doc! { "find": "c", "batchSize": 3 }
}

async fn cursor(client: &Client) -> Cursor {
    client.database("db").run_cursor_command(find()).await.expect("a cursor")
}

/// A cursor after its first batch. Its further batches have one document each.
async fn read(client: &Client) -> Cursor {
    let further = CursorOptions::new().batch_size(1);
    let cursor = client.database("db").run_cursor_command_with(find(), CommandOptions::new(), further).await;
    let mut cursor: Cursor = cursor.expect("a cursor");
    for _ in 0..3 {
        cursor.try_next().await.expect("a document of the first batch");
    }
    cursor
}

fn all(set: &FakeReplicaSet, name: &str) -> Vec<(usize, Received)> {
    (0..3).flat_map(|member| sent(&set.server(member), name).into_iter().map(move |found| (member, found))).collect()
}

fn field(received: &Received, name: &str) -> Option<Bson> {
    received.body.as_ref().expect("the command is short").get(name).cloned()
}

async fn primary_of(client: &Client, set: &FakeReplicaSet) -> alloc::sync::Arc<FakeServer> {
    known(client, set).await;
    set.server(set.primary().expect("a primary"))
}

/// On secondaries too: all commands of a cursor go to the same server, in the same session.
#[test]
#[doc(alias = "P58")]
fn batches_are_from_the_server_and_the_session_of_the_cursor() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        filled(&client).await;
        let options = || CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
        for _ in 0..8 {
            let further = CursorOptions::new().batch_size(4).comment("orders").max_await_time(Duration::from_secs(2));
            let cursor = client.database("db").run_cursor_command_with(find(), options(), further).await;
            let orders: Result<Vec<Order>, Error> = cursor.expect("a cursor").try_collect().await;
            let ids: Vec<_> = orders.expect("ten").iter().map(|order| order.id).collect();
            assert_eq!(ids, (0..10).collect::<Vec<_>>());
        }
        let (finds, mores) = (all(&set, "find"), all(&set, "getMore"));
        assert_eq!((finds.len(), mores.len()), (8, 16));
        for (member, more) in &mores {
            let of_this = |(at, find): &&(usize, Received)| at == member && field(find, "lsid") == field(more, "lsid");
            assert!(finds.iter().any(|find| of_this(&find)), "{more:?}");
            assert_eq!(field(more, "collection"), Some(Bson::String("c".into())));
            assert_eq!(field(more, "batchSize"), Some(Bson::Int64(4)));
            assert_eq!(field(more, "comment"), Some(Bson::String("orders".into())));
            assert_eq!(field(more, "maxTimeMS"), Some(Bson::Int64(2_000)));
        }
        assert_eq!(all(&set, "killCursors").len(), 0, "the server has closed each exhausted cursor");
        client.close().await;
    });
}

/// The replies of a change stream, which the fake server does not have.
#[test]
fn next_if_any_requests_one_batch_and_the_token_is_that_of_the_last_batch() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let time = bson::Timestamp { time: 70, increment: 2 };
        let answer = |command: &str, id: i64, batch: &[Document], token: Option<i32>| {
            let mut cursor = doc! { "id": id, "ns": "db.c", "firstBatch": batch, "nextBatch": batch };
            if let Some(token) = token {
                cursor.insert("postBatchResumeToken", doc! { "_data": token });
            }
            let reply = doc! { "cursor": cursor, "operationTime": time, "ok": 1 };
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &[command]).reply(reply));
        };
        let data = |token: Option<&bson::RawDocument>| token.map(|token| token.get_i32("_data").expect("a number"));
        // A cursor of the server, of which the replies withhold the documents.
        let single = || doc! { "find": "c", "batchSize": 1 };
        let id = |found: Document| found.get_document("cursor").and_then(|it| it.get_i64("id")).expect("an id");
        let further = || CursorOptions::new().batch_size(1);
        let own = id(client.run_command("db", single()).await.expect("a cursor"));
        answer("find", own, &[], Some(1));
        let cursor = client.database("db").run_cursor_command_with(find(), CommandOptions::new(), further()).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        assert_eq!((data(cursor.post_batch_resume_token()), cursor.operation_time()), (Some(1), Some(time)));
        answer("getMore", own, &[], Some(2));
        assert_eq!(cursor.next_if_any().await.expect("an empty batch"), None);
        assert!(cursor.is_alive());
        assert_eq!(data(cursor.post_batch_resume_token()), Some(2));
        answer("getMore", own, &[doc! { "_id": 1 }, doc! { "_id": 2 }], Some(3));
        for id in 1..3 {
            assert_eq!(cursor.next_if_any().await.expect("a document"), Some(doc! { "_id": id }));
            assert_eq!(data(cursor.post_batch_resume_token()), Some(3));
        }
        answer("getMore", own, &[], None);
        assert_eq!(cursor.next_if_any().await.expect("an empty batch"), None);
        assert_eq!((cursor.is_alive(), cursor.post_batch_resume_token()), (true, None));
        answer("getMore", 0, &[], Some(4));
        assert_eq!(cursor.next_if_any().await.expect("the end"), None);
        assert_eq!((cursor.is_alive(), cursor.operation_time()), (false, Some(time)));
        assert_eq!(data(cursor.post_batch_resume_token()), Some(4), "a stream is resumed after its end");
        assert_eq!(primary.count_of("getMore"), 4);

        let own = id(client.run_command("db", single()).await.expect("a cursor"));
        answer("find", own, &[], Some(5));
        let cursor = client.database("db").run_cursor_command_with(find(), CommandOptions::new(), further()).await;
        let mut cursor: Cursor = cursor.expect("a cursor");
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["getMore"]).error(136));
        assert_eq!(refused(cursor.next_if_any().await).code(), Some(136));
        assert_eq!((cursor.is_alive(), cursor.operation_time()), (false, Some(time)));
        assert_eq!(data(cursor.post_batch_resume_token()), Some(5), "a stream is resumed after an error");
        eventually("it is closed", || primary.count_of("killCursors") == 1).await;

        let mut session = client.start_session(ClientSessionOptions::new());
        let own = id(session.run_command("db", single()).await.expect("a cursor"));
        answer("find", own, &[], None);
        let cursor = session.run_cursor_command("db", find(), CommandOptions::new(), further()).await;
        let mut cursor: SessionCursor = cursor.expect("a cursor");
        assert_eq!((cursor.post_batch_resume_token(), cursor.operation_time()), (None, Some(time)));
        answer("getMore", own, &[], Some(5));
        assert_eq!(cursor.next_if_any(&mut session).await.expect("an empty batch"), None);
        assert_eq!((cursor.is_alive(), data(cursor.post_batch_resume_token())), (true, Some(5)));
        answer("getMore", 0, &[doc! { "_id": 1 }], Some(6));
        assert_eq!(cursor.next_if_any(&mut session).await.expect("a document"), Some(doc! { "_id": 1 }));
        assert!(!cursor.is_alive());
        assert_eq!(cursor.next_if_any(&mut session).await.expect("the end"), None);
        assert_eq!(primary.count_of("killCursors"), 1);
        drop(cursor);
        drop(session);
        client.close().await;
    });
}

#[test]
fn session_of_an_exhausted_cursor_is_used_again() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        for command in [doc! { "find": "c" }, find(), doc! { "find": "c" }, doc! { "find": "c", "limit": 1 }] {
            let mut cursor: Cursor = client.database("db").run_cursor_command(command).await.expect("a cursor");
            while cursor.try_next().await.expect("a document").is_some() {}
        }
        let finds = sent(&primary, "find");
        assert_eq!(finds.len(), 4);
        assert!(finds.iter().all(|it| field(it, "lsid") == field(&finds[0], "lsid")), "{finds:?}");
        client.close().await;
    });
}

#[test]
fn raw_documents_are_read_in_place() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        filled(&client).await;
        let mut cursor = cursor(&client).await;
        let mut ids = Vec::new();
        while let Some(document) = cursor.next_raw().await.expect("a document") {
            ids.push(document.get_i32("_id").expect("an id"));
        }
        assert_eq!(ids, (0..10).collect::<Vec<_>>());
        assert!(cursor.next_raw().await.expect("still the end").is_none());
        client.close().await;
    });
}

#[test]
fn dropped_and_closed_cursors_are_closed_on_their_server() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        drop(cursor(&client).await);
        eventually("the dropped cursor is closed", || sent(&primary, "killCursors").len() == 1).await;
        let mut closed = cursor(&client).await;
        closed.try_next().await.expect("a document");
        closed.close().await.expect("it is closed");
        let kills = sent(&primary, "killCursors");
        assert_eq!(kills.len(), 2);
        // While a batch is requested: its reply has the id that is closed then.
        let mut waiting = read(&client).await;
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["getMore"]).block(Duration::from_millis(50)));
        assert!(smol::future::poll_once(waiting.try_next()).await.is_none(), "the batch is requested");
        drop(waiting);
        eventually("the cursor that waited is closed", || sent(&primary, "killCursors").len() == 3).await;
        client.close().await;
    });
}

#[test]
fn client_is_closed_after_dropped_cursors_and_transactions_were_ended() {
    run(async {
        // On a machine that stalls, `close` may give up after a second.
        let primary = loop {
            let set = still_set();
            let client = client(options(&set.uri()));
            let primary = primary_of(&client, &set).await;
            filled(&client).await;
            let mut session = client.start_session(ClientSessionOptions::new());
            session.start_transaction(TransactionOptions::new()).expect("none is open");
            session.run_command("db", doc! { "insert": "c", "documents": [{}] }).await.expect("inserted");
            let cursor = cursor(&client).await;
            let ends = ["killCursors", "abortTransaction"];
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(2), &ends).block(Duration::from_millis(50)));
            drop(cursor);
            drop(session);
            let begun = std::time::Instant::now();
            client.close().await;
            if begun.elapsed() < Duration::from_secs(1) {
                break primary;
            }
        };
        for command in ["killCursors", "abortTransaction", "endSessions"] {
            assert_eq!(sent(&primary, command).len(), 1, "{command}");
        }
        // Their sessions were unused when all sessions were ended.
        let ended = sent(&primary, "endSessions").pop().and_then(|command| command.body).expect("a command");
        assert_eq!(ended.get_array("endSessions").expect("ids").len(), 2);
    });
}

#[test]
fn client_is_closed_although_a_cursor_is_not_ended() {
    run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        options.pool.max_pool_size = 1;
        let client = client(options);
        filled(&client).await;
        let cursor = cursor(&client).await;
        // The cursor waits for the connection.
        let held = client.check_out().await.expect("a connection");
        drop(cursor);
        let begun = Stopwatch::start();
        client.close().await;
        begun.assert_below(Duration::from_secs(8));
        drop(held);
    });
}

#[test]
fn hostile_replies_are_errors_that_name_the_fault() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let first = [
            (doc! { "ok": 1 }, "no cursor"),
            (doc! { "cursor": { "ns": "db.c", "firstBatch": [] }, "ok": 1 }, "no id"),
            (doc! { "cursor": { "id": 0_i64, "firstBatch": [] }, "ok": 1 }, "no namespace"),
            (doc! { "cursor": { "id": 0_i64, "ns": "db.c" }, "ok": 1 }, "no batch"),
            (doc! { "cursor": { "id": 0_i64, "ns": "other.c", "firstBatch": [] }, "ok": 1 }, "namespace"),
        ];
        for (reply, text) in first {
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).reply(reply));
            let outcome = client.database("db").run_cursor_command::<Document>(find()).await.map(drop);
            let error = refused(outcome);
            assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains(text), "{error}");
        }
        let further = [
            (doc! { "cursor": { "id": 77_i64, "ns": "db.c", "nextBatch": [] }, "ok": 1 }, "another cursor id"),
            (doc! { "cursor": { "id": 0_i64, "ns": "db.d", "nextBatch": [] }, "ok": 1 }, "another namespace"),
            (doc! { "cursor": { "id": 0_i64, "ns": "db.c", "nextBatch": [1] }, "ok": 1 }, "no document"),
        ];
        for (reply, text) in further {
            let mut cursor = read(&client).await;
            primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["getMore"]).reply(reply));
            let error = refused(cursor.try_next().await);
            assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains(text), "{error}");
            assert_eq!(cursor.try_next().await.expect("it has ended"), None);
        }
        // The server has the first two of them still.
        eventually("both are closed", || sent(&primary, "killCursors").len() == 2).await;
        client.close().await;
    });
}

#[test]
fn document_of_another_type_is_skipped_with_an_error() {
    #[derive(Debug, serde::Deserialize)]
    struct Strict {
        #[serde(rename = "missing")]
        _missing: i32,
    }
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        known(&client, &set).await;
        filled(&client).await;
        let mut cursor: Cursor<Strict> = client.database("db").run_cursor_command(find()).await.expect("a cursor");
        for _ in 0..10 {
            assert!(matches!(refused(cursor.try_next().await), Error::Bson(_)));
        }
        assert!(cursor.try_next().await.expect("the end").is_none());
        client.close().await;
    });
}

#[test]
fn cursor_is_closed_on_its_server_after_an_error_that_leaves_it_open() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let point = |code| FailPoint::new(FailPointMode::Times(1), &["getMore"]).error(code);
        for (point, kills) in [(point(10_107), 1), (point(43), 0), (point(237), 0), (point(50), 1)] {
            known(&client, &set).await;
            let before = sent(&primary, "killCursors").len();
            let mut cursor = read(&client).await;
            primary.set_fail_point(point);
            refused(cursor.try_next().await);
            assert_eq!(cursor.try_next().await.expect("it has ended"), None);
            if kills > 0 {
                eventually("it is closed", || sent(&primary, "killCursors").len() == before + 1).await;
            }
            client.run_command("db", doc! { "ping": 1 }).await.expect("a ping");
            assert_eq!(sent(&primary, "killCursors").len(), before + kills);
        }
        client.close().await;
    });
}

#[test]
fn request_for_a_batch_is_repeated_after_an_overload() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let overload = |mode| {
            let point = FailPoint::new(mode, &["getMore"]).error(462);
            point.labels(&["SystemOverloadedError", "RetryableError"])
        };
        let mut cursor = read(&client).await;
        primary.set_fail_point(overload(FailPointMode::Times(2)));
        assert_eq!(cursor.try_next().await.expect("a document"), Some(doc! { "_id": 3 }));
        assert_eq!(sent(&primary, "getMore").len(), 3);
        primary.set_fail_point(overload(FailPointMode::Times(3)));
        assert!(refused(cursor.try_next().await).is_overload());
        assert_eq!(sent(&primary, "getMore").len(), 6);
        eventually("it is closed", || sent(&primary, "killCursors").len() == 1).await;
        client.close().await;
    });
}

/// Without timeoutMS: the server never replies to the request.
#[test]
fn close_of_the_client_does_not_await_the_batch_of_a_dropped_cursor() {
    run(async {
        let set = still_set();
        let mut options = options(&set.uri());
        options.timeout = None;
        let client = client(options);
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let mut cursor = read(&client).await;
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["getMore"]).block(Duration::from_secs(600)));
        let mut next = Box::pin(cursor.try_next());
        assert!(smol::future::poll_once(&mut next).await.is_none());
        eventually("the batch is requested", || sent(&primary, "getMore").len() == 1).await;
        drop(next);
        drop(cursor);
        eventually("it is closed", || sent(&primary, "killCursors").len() == 1).await;
        client.close().await;
    });
}

#[test]
fn dropped_close_closes_the_cursor_in_the_background() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        filled(&client).await;
        let cursor = read(&client).await;
        drop(cursor.close());
        eventually("it is closed", || sent(&primary, "killCursors").len() == 1).await;
        let cursor = read(&client).await;
        let block = FailPoint::new(FailPointMode::Times(1), &["killCursors"]).block(Duration::from_secs(600));
        primary.set_fail_point(block);
        let mut close = Box::pin(cursor.close());
        assert!(smol::future::poll_once(&mut close).await.is_none());
        eventually("it is requested", || sent(&primary, "killCursors").len() == 2).await;
        drop(close);
        eventually("it is requested again", || sent(&primary, "killCursors").len() == 3).await;
        client.close().await;
    });
}

#[test]
fn cursor_that_cannot_be_used_is_closed_on_its_server() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        let foreign = doc! { "cursor": { "id": 55_i64, "ns": "other.a.b", "firstBatch": [] }, "ok": 1 };
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).reply(foreign));
        let outcome = client.database("db").run_cursor_command::<Document>(find()).await.map(drop);
        assert!(matches!(refused(outcome), Error::Cursor(_)));
        let (finds, kills) = (sent(&primary, "find"), sent(&primary, "killCursors"));
        assert_eq!(kills.len(), 1);
        assert_eq!(kills[0].connection, finds[0].connection);
        assert_eq!(field(&kills[0], "lsid"), field(&finds[0], "lsid"));
        assert_eq!(field(&kills[0], "killCursors"), Some(Bson::String("a.b".into())));
        assert_eq!(field(&kills[0], "$db"), Some(Bson::String("other".into())));
        assert_eq!(field(&kills[0], "cursors"), Some(Bson::Array(vec![Bson::Int64(55)])));
        client.close().await;
    });
}

#[test]
fn element_that_is_no_document_ends_the_cursor() {
    run(async {
        let set = still_set();
        let client = client(options(&set.uri()));
        let primary = primary_of(&client, &set).await;
        let odd = doc! { "cursor": { "id": 55_i64, "ns": "db.c", "firstBatch": [1, { "_id": 1 }] }, "ok": 1 };
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["find"]).reply(odd));
        let mut cursor = cursor(&client).await;
        assert!(matches!(refused(cursor.try_next().await), Error::Cursor(_)));
        assert_eq!(cursor.try_next().await.expect("it has ended"), None);
        eventually("it is closed", || sent(&primary, "killCursors").len() == 1).await;
        client.close().await;
    });
}
