//! Cursors that request the next batch before the last one is used up.

use super::support::{client, eventually, known, options, refused, run, sent, still_set};
use alloc::sync::Arc;
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::{Client, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, SessionCursor, TimeoutMode};
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer};
use smol::future::poll_once;

/// A client with one connection to a server, without a time limit, and ten documents.
async fn filled() -> (FakeReplicaSet, Arc<FakeServer>, Client) {
    let set = still_set();
    let mut options = options(&set.uri());
    options.timeout = None;
    options.pool.max_pool_size = 1;
    let client = client(options);
    known(&client, &set).await;
    let primary = set.server(set.primary().expect("a primary"));
    let documents: Vec<_> = (0..10).map(|id| doc! { "_id": id }).collect();
    client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("a reply");
    (set, primary, client)
}

fn find() -> Document {
    doc! { "find": "c", "batchSize": 3 }
}

fn ahead() -> CursorOptions {
    CursorOptions::new().batch_size(3).read_ahead(true)
}

async fn cursor(client: &Client) -> Cursor {
    client.run_cursor_command("db", find(), CommandOptions::new(), ahead()).await.expect("a cursor")
}

/// Reads some documents, and checks that they are those from this id on.
async fn read(cursor: &mut Cursor, ids: core::ops::Range<i32>) {
    for id in ids {
        assert_eq!(cursor.try_next().await.expect("a document"), Some(doc! { "_id": id }));
    }
}

fn point(mode: FailPointMode) -> FailPoint {
    FailPoint::new(mode, &["getMore"])
}

#[test]
fn next_batch_is_requested_before_the_last_one_is_used_up() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut cursor = cursor(&client).await;
        for (ids, requests) in [(0..1, 1), (1..3, 1), (3..4, 2), (4..6, 2), (6..7, 3)] {
            read(&mut cursor, ids).await;
            eventually("the batch is requested", || sent(&primary, "getMore").len() >= requests).await;
            assert_eq!(sent(&primary, "getMore").len(), requests);
        }
        read(&mut cursor, 7..10).await;
        assert_eq!(cursor.try_next().await.expect("the end"), None);
        client.run_command("db", doc! { "ping": 1 }).await.expect("its connection was returned");
        assert_eq!((sent(&primary, "getMore").len(), sent(&primary, "killCursors").len()), (3, 0));
        client.close().await;
    });
}

#[test]
fn error_of_a_batch_is_returned_after_the_documents_before_it() {
    run(async {
        let (_set, primary, client) = filled().await;
        for (requests, code) in [(1, 50), (2, 43)] {
            primary.set_fail_point(point(FailPointMode::Times(1)).error(code));
            let mut cursor = cursor(&client).await;
            read(&mut cursor, 0..1).await;
            eventually("the batch is refused", || sent(&primary, "getMore").len() == requests).await;
            read(&mut cursor, 1..3).await;
            refused(cursor.try_next().await);
            assert_eq!(cursor.try_next().await.expect("it has ended"), None);
            // The server has no cursor after the second error.
            eventually("it is closed", || sent(&primary, "killCursors").len() == 1).await;
            client.run_command("db", doc! { "ping": 1 }).await.expect("its connection was returned");
            assert_eq!(sent(&primary, "killCursors").len(), 1);
        }
        client.close().await;
    });
}

#[test]
fn dropped_cursor_is_closed_once_and_returns_its_connection() {
    run(async {
        let (_set, primary, client) = filled().await;
        for (documents, block) in [(1, false), (3, false), (5, false), (1, true)] {
            let before = sent(&primary, "killCursors").len();
            if block {
                primary.set_fail_point(point(FailPointMode::Times(1)).block(Duration::from_millis(50)));
            }
            let mut cursor = cursor(&client).await;
            read(&mut cursor, 0..documents).await;
            drop(cursor);
            eventually("it is closed", || sent(&primary, "killCursors").len() == before + 1).await;
            client.run_command("db", doc! { "ping": 1 }).await.expect("its connection was returned");
            assert_eq!(sent(&primary, "killCursors").len(), before + 1);
        }
        let mut closed = cursor(&client).await;
        read(&mut closed, 0..2).await;
        closed.close().await.expect("closed");
        assert_eq!(sent(&primary, "killCursors").len(), 5);
        client.close().await;
    });
}

#[test]
fn dropped_future_leaves_the_request_to_the_next_call() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut cursor = cursor(&client).await;
        let connection = sent(&primary, "find")[0].connection;
        let has_replied =
            || primary.look(|view| view.connection(connection).is_some_and(|it| it.replies_count == it.commands_count));
        for (first, batches) in [(0, 1), (3, 2), (6, 3)] {
            primary.freeze();
            read(&mut cursor, first..first + 3).await;
            assert!(poll_once(cursor.try_next()).await.is_none(), "the batch is prepared");
            primary.thaw();
            // The next request follows the first document of this batch, and must find the server frozen.
            eventually("the batch is sent", || sent(&primary, "getMore").len() == batches && has_replied()).await;
        }
        read(&mut cursor, 9..10).await;
        assert_eq!(cursor.try_next().await.expect("the end"), None);
        assert_eq!(sent(&primary, "getMore").len(), 3);
        client.close().await;
    });
}

/// A time limit of each call, a tailable cursor, and the default.
#[test]
fn no_batch_is_requested_ahead_where_it_could_do_harm() {
    run(async {
        let (_set, primary, client) = filled().await;
        let (limit, wait) = (Duration::from_secs(20), Duration::from_secs(1));
        let cases = [
            (CommandOptions::new(), ahead().read_ahead(false)),
            (CommandOptions::new().timeout(limit), ahead()),
            (CommandOptions::new(), ahead().max_await_time(wait)),
        ];
        for (options, further) in cases {
            let cursor = client.run_cursor_command("db", find(), options, further).await;
            let mut cursor: Cursor = cursor.expect("a cursor");
            read(&mut cursor, 0..3).await;
            // The only connection is free.
            client.run_command("db", doc! { "ping": 1 }).await.expect("a reply");
            assert_eq!(sent(&primary, "getMore").len(), 0);
            cursor.close().await.expect("closed");
        }
        client.close().await;
    });
}

#[test]
#[doc(alias = "P57")]
fn no_batch_is_requested_ahead_in_a_session_of_the_application() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut session = client.start_session(ClientSessionOptions::new());
        let cursor = session.run_cursor_command("db", find(), CommandOptions::new(), ahead()).await;
        let mut cursor: SessionCursor = cursor.expect("a cursor");
        for _ in 0..3 {
            cursor.try_next(&mut session).await.expect("a document").expect("not the end");
        }
        client.run_command("db", doc! { "ping": 1 }).await.expect("the only connection is free");
        assert_eq!(sent(&primary, "getMore").len(), 0);
        cursor.close(&mut session).await.expect("closed");
        drop(session);
        client.close().await;
    });
}

/// The limit of the lifetime is that of all requests, so it may pass while documents are used.
#[test]
fn cursor_with_a_limit_of_its_lifetime_reads_ahead() {
    run(async {
        let (_set, primary, client) = filled().await;
        let within = CommandOptions::new().timeout(Duration::from_secs(20));
        let options = ahead().timeout_mode(TimeoutMode::CursorLifetime);
        let mut cursor: Cursor = client.run_cursor_command("db", find(), within, options).await.expect("a cursor");
        read(&mut cursor, 0..1).await;
        eventually("the batch is requested", || sent(&primary, "getMore").len() == 1).await;
        read(&mut cursor, 1..10).await;
        assert_eq!(cursor.try_next().await.expect("the end"), None);
        client.close().await;
    });
}
