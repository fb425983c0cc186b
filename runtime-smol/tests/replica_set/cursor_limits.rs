//! The time limit of a cursor as a whole.
//!
//! Read first: Client Side Operations Timeout, "Cursors".

use super::support::{client, counts_agree, eventually, known, options, refused, run, sent, still_set};
use alloc::sync::Arc;
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::{
    Client, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, SessionCursor, TimeoutMode,
    TransactionOptions,
};
use poolhouse_tests::fake::balancer::FakeBalancer;
use poolhouse_tests::fake::replica_set::FakeReplicaSet;
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeServer, Received};
use poolhouse_tests::patience::Stopwatch;
use smol::future::FutureExt as _;

const DOCUMENTS: usize = 10;
const LIMIT: Duration = Duration::from_secs(2);

/// A client that knows the set, without a time limit, and ten documents.
async fn filled() -> (FakeReplicaSet, Arc<FakeServer>, Client) {
    let set = still_set();
    let mut options = options(&set.uri());
    options.timeout = None;
    let client = client(options);
    known(&client, &set).await;
    let primary = set.server(set.primary().expect("a primary"));
    fill(&client).await;
    (set, primary, client)
}

async fn fill(client: &Client) {
    let documents: Vec<_> = (0..10).map(|id| doc! { "_id": id }).collect();
    client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("a reply");
}

fn find() -> Document {
    doc! { "find": "c", "batchSize": 2 }
}

fn lifetime() -> CursorOptions {
    CursorOptions::new().batch_size(2).timeout_mode(TimeoutMode::CursorLifetime)
}

fn within(limit: Duration) -> CommandOptions<'static> {
    CommandOptions::new().timeout(limit)
}

async fn cursor(client: &Client, limit: Duration, options: CursorOptions) -> Result<Cursor, Error> {
    client.run_cursor_command("db", find(), within(limit), options).await
}

/// Reads the documents to the end or to an error. Returns their number.
async fn read(cursor: &mut Cursor) -> (usize, Result<(), Error>) {
    let mut count = 0;
    loop {
        match cursor.next_raw().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Ok(())),
            Err(error) => return (count, Err(error)),
        }
    }
}

fn max_time(received: &Received) -> Option<i64> {
    received.body.as_ref().expect("the command is short").get_i64("maxTimeMS").ok()
}

async fn expired() {
    smol::Timer::after(LIMIT + Duration::from_millis(50)).await;
}

#[test]
fn first_command_has_max_time_and_further_ones_have_none() {
    run(async {
        let (_set, primary, client) = filled().await;
        let long = Duration::from_secs(20);
        let mut cursor = cursor(&client, long, lifetime()).await.expect("a cursor");
        let (count, outcome) = read(&mut cursor).await;
        outcome.expect("in time");
        assert_eq!(count, DOCUMENTS);
        let first = max_time(&sent(&primary, "find")[0]);
        assert!(first.is_some_and(|time| (1..=20_000).contains(&time)), "{first:?}");
        let further: Vec<_> = sent(&primary, "getMore").iter().map(max_time).collect();
        assert!(further.len() >= 4 && further.iter().all(Option::is_none), "{further:?}");
        client.close().await;
    });
}

/// Each batch is in time, and all of them together are not.
#[test]
fn limit_of_a_lifetime_applies_to_all_batches_together() {
    run(async {
        let (_set, primary, client) = filled().await;
        primary.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["getMore"]).block(LIMIT * 3 / 10));
        for mode in [TimeoutMode::CursorLifetime, TimeoutMode::Iteration] {
            let begun = Stopwatch::start();
            let options = CursorOptions::new().batch_size(2).timeout_mode(mode);
            let mut cursor = cursor(&client, LIMIT, options).await.expect("a cursor");
            let (count, outcome) = read(&mut cursor).await;
            if mode == TimeoutMode::Iteration {
                outcome.expect("each batch is in time");
                assert_eq!(count, DOCUMENTS);
                continue;
            }
            let error = refused(outcome);
            assert!(error.is_timeout(), "{error:?}");
            assert!((2..DOCUMENTS).contains(&count), "{count}");
            begun.assert_below(LIMIT * 2);
            assert!(cursor.next_raw().await.expect("it has ended").is_none());
            // The time of killCursors begins when it is sent.
            eventually("it is closed", || primary.count_of("killCursors") == 1).await;
        }
        client.close().await;
    });
}

/// A server that replies with empty batches does not renew the limit of a call.
#[test]
fn empty_batches_do_not_renew_the_limit_of_an_iteration() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut session = client.start_session(ClientSessionOptions::new());
        for in_session in [false, true] {
            // A cursor of the server, of which the replies below withhold the documents.
            let single = doc! { "find": "c", "batchSize": 1 };
            let found = if in_session {
                session.run_command("db", single).await
            } else {
                client.run_command("db", single).await
            };
            let id = found.expect("a cursor").get_document("cursor").and_then(|it| it.get_i64("id")).expect("an id");
            let empty = doc! { "id": id, "ns": "db.c", "firstBatch": [], "nextBatch": [] };
            let replies = FailPoint::new(FailPointMode::AlwaysOn, &["find", "getMore"]);
            primary.set_fail_point(replies.reply(doc! { "cursor": empty, "ok": 1 }).block(LIMIT / 5));
            let options = CursorOptions::new().batch_size(1);
            let (begun, before) = (Stopwatch::start(), primary.count_of("getMore"));
            let outcome = if in_session {
                let cursor = session.run_cursor_command("db", find(), within(LIMIT), options).await;
                let mut cursor: SessionCursor = cursor.expect("a cursor");
                cursor.try_next(&mut session).or(given_up()).await
            } else {
                let mut cursor = cursor(&client, LIMIT, options).await.expect("a cursor");
                // A future that is dropped does not renew it either.
                let impatient = async {
                    smol::Timer::after(LIMIT / 2).await;
                    Ok(None)
                };
                assert_eq!(cursor.try_next().or(impatient).await.expect("no document"), None);
                cursor.try_next().or(given_up()).await
            };
            let error = refused(outcome);
            assert!(error.is_timeout(), "{error:?}");
            begun.assert_below(LIMIT * 8 / 5);
            assert!(primary.count_of("getMore") >= before + 2, "batches were empty");
            primary.clear_fail_points();
        }
        drop(session);
        client.close().await;
    });
}

/// `maxTimeMS` is the wait for documents, or the rest of the limit if that is shorter.
#[test]
fn empty_batches_do_not_renew_the_limit_of_a_tailable_cursor() {
    run(async {
        let (_set, primary, client) = filled().await;
        // A cursor of the server, of which the replies below withhold the documents.
        let found = client.run_command("db", doc! { "find": "c", "batchSize": 1 }).await.expect("a cursor");
        let id = found.get_document("cursor").and_then(|it| it.get_i64("id")).expect("an id");
        let empty = doc! { "id": id, "ns": "db.c", "firstBatch": [], "nextBatch": [] };
        let replies = FailPoint::new(FailPointMode::AlwaysOn, &["find", "getMore"]);
        primary.set_fail_point(replies.reply(doc! { "cursor": empty, "ok": 1 }).block(LIMIT / 5));
        let wait = LIMIT * 9 / 10;
        let options = CursorOptions::new().batch_size(1).max_await_time(wait);
        let begun = Stopwatch::start();
        let mut cursor = cursor(&client, LIMIT, options).await.expect("a cursor");
        let error = refused(cursor.try_next().or(given_up()).await);
        assert!(error.is_timeout(), "{error:?}");
        begun.assert_below(LIMIT * 8 / 5);
        let times: Vec<_> = sent(&primary, "getMore").iter().filter_map(max_time).collect();
        assert!(times.len() >= 2 && u128::try_from(times[0]).is_ok_and(|time| time <= wait.as_millis()), "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] < pair[0]), "{times:?}");
        client.close().await;
    });
}

async fn given_up() -> Result<Option<Document>, Error> {
    smol::Timer::after(LIMIT * 3).await;
    panic!("the limit of the call was renewed")
}

/// It has no further batches, so the server may apply the limit to the whole.
#[test]
fn aggregation_that_writes_its_output_has_max_time() {
    run(async {
        let (_set, primary, client) = filled().await;
        for (stage, is_timed) in
            [(doc! { "$out": "d" }, true), (doc! { "$merge": { "into": "d" } }, true), (doc! { "$match": {} }, false)]
        {
            let command = doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
            let cursor: Result<Cursor, _> =
                client.run_cursor_command("db", command.clone(), within(LIMIT), CursorOptions::new()).await;
            assert_eq!(refused(cursor.map(drop)).code(), Some(59), "the fake server has no aggregations");
            let sent = max_time(sent(&primary, "aggregate").last().expect("a command"));
            assert_eq!(sent.is_some(), is_timed, "{command}: {sent:?}");
        }
        client.close().await;
    });
}

/// The server applies it to the first command only.
#[test]
fn first_command_of_a_cursor_that_awaits_data_has_max_time() {
    run(async {
        let (_set, primary, client) = filled().await;
        let find = |tailable, awaits| doc! { "find": "c", "batchSize": 2, "tailable": tailable, "awaitData": awaits };
        for (command, is_timed) in [
            (doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} }, true),
            (find(true, true), true),
            (find(true, false), false),
            (find(false, true), false),
        ] {
            let name = command.keys().next().expect("a command").clone();
            for (limit, is_timed) in [(LIMIT, is_timed), (Duration::MAX, false)] {
                // The fake server has no such cursors.
                let cursor: Result<Cursor, _> =
                    client.run_cursor_command("db", command.clone(), within(limit), CursorOptions::new()).await;
                assert!(matches!(refused(cursor.map(drop)), Error::Command(_)), "{command}");
                let sent = max_time(sent(&primary, &name).last().expect("a command"));
                assert_eq!(sent.is_some(), is_timed, "{command}: {sent:?}");
            }
        }
        client.close().await;
    });
}

#[test]
fn documents_of_a_batch_are_returned_after_the_limit() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut cursor = cursor(&client, LIMIT, lifetime()).await.expect("a cursor");
        expired().await;
        for _ in 0..2 {
            assert!(cursor.next_raw().await.expect("it was received in time").is_some());
        }
        let error = refused(cursor.next_raw().await.map(drop));
        assert!(error.is_timeout(), "{error:?}");
        eventually("it is closed", || primary.count_of("killCursors") == 1).await;
        assert_eq!(primary.count_of("getMore"), 0);
        counts_agree(&client, &[Arc::clone(&primary)], 2).await;
        client.close().await;
    });
}

/// Also while `killCursors` takes longer than the rest of the limit would be.
#[test]
fn close_has_a_limit_of_its_own() {
    run(async {
        let (_set, primary, client) = filled().await;
        let cursor = cursor(&client, LIMIT, lifetime()).await.expect("a cursor");
        expired().await;
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["killCursors"]).block(LIMIT / 4));
        cursor.close().await.expect("it is closed");
        let time = max_time(&sent(&primary, "killCursors")[0]).expect("the limit is that of close");
        assert!((1..=2_000).contains(&time), "{time}");
        for (options, lifetime) in [(CommandOptions::new(), CursorOptions::new()), (within(Duration::MAX), lifetime())]
        {
            let cursor: Result<Cursor, _> = client.run_cursor_command("db", find(), options, lifetime).await;
            cursor.expect("a cursor").close().await.expect("it is closed");
            assert_eq!(max_time(sent(&primary, "killCursors").last().expect("a command")), None);
        }
        client.close().await;
    });
}

/// A request for a batch that was dropped is continued, and has the same limit.
#[test]
fn dropped_future_does_not_renew_the_limit() {
    run(async {
        let (_set, primary, client) = filled().await;
        let begun = Stopwatch::start();
        let mut cursor = cursor(&client, LIMIT, lifetime()).await.expect("a cursor");
        for _ in 0..2 {
            assert!(cursor.next_raw().await.expect("a document").is_some());
        }
        primary.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["getMore"]).block(LIMIT * 5));
        let mut attempts = 0;
        let error = loop {
            let waiting = async { Some(cursor.next_raw().await.map(|found| found.is_some())) };
            let impatient = async {
                smol::Timer::after(LIMIT / 5).await;
                None
            };
            match waiting.or(impatient).await {
                None => attempts += 1,
                Some(outcome) => break refused(outcome),
            }
        };
        assert!(error.is_timeout() && attempts >= 2, "{error:?} after {attempts} attempts");
        begun.assert_below(LIMIT * 3);
        assert_eq!(primary.count_of("getMore"), 1);
        client.close().await;
    });
}

#[test]
fn limit_of_a_lifetime_applies_in_sessions_and_transactions() {
    run(async {
        let (_set, primary, client) = filled().await;
        let mut session = client.start_session(ClientSessionOptions::new());
        for in_transaction in [false, true] {
            if in_transaction {
                session.start_transaction(TransactionOptions::new()).expect("it starts");
            }
            let kills = primary.count_of("killCursors");
            let cursor = session.run_cursor_command("db", find(), within(LIMIT), lifetime()).await;
            let mut cursor: SessionCursor = cursor.expect("a cursor");
            assert!(max_time(sent(&primary, "find").last().expect("a command")).is_some());
            expired().await;
            for _ in 0..2 {
                assert!(cursor.next_raw(&mut session).await.expect("it was received in time").is_some());
            }
            let error = refused(cursor.next_raw(&mut session).await.map(drop));
            assert!(error.is_timeout(), "{error:?}");
            // Nothing was sent, so a repetition of the transaction would help nothing.
            assert!(!error.has_label("TransientTransactionError"), "{error:?}");
            drop(cursor);
            assert_eq!(primary.count_of("getMore"), 0);
            if in_transaction {
                session.abort_transaction().await.expect("the server closes its cursor");
            } else {
                eventually("it is closed", || primary.count_of("killCursors") == kills + 1).await;
            }
        }
        drop(session);
        client.close().await;
    });
}

/// The connection of the cursor returns to its pool, after its cursor was closed on it.
#[test]
fn limit_of_a_lifetime_behind_a_load_balancer() {
    run(async {
        let balancer = FakeBalancer::start(1).expect("it starts");
        let mut options = options(&balancer.uri());
        options.timeout = None;
        let client = client(options);
        fill(&client).await;
        let mut cursor = cursor(&client, LIMIT, lifetime()).await.expect("a cursor");
        assert_eq!(client.servers()[0].pool.counts.in_use, 1, "that of the cursor");
        expired().await;
        let (count, outcome) = read(&mut cursor).await;
        assert!(count == 2 && refused(outcome).is_timeout());
        let backend = balancer.backend(0);
        eventually("it is closed", || backend.count_of("killCursors") == 1).await;
        eventually("its connection is returned", || {
            let counts = client.servers()[0].pool.counts;
            (counts.in_use, counts.available) == (0, 1)
        })
        .await;
        assert_eq!(backend.count_of("getMore"), 0);
        client.close().await;
    });
}

#[test]
fn modes_and_limits_that_contradict_the_command_are_refused() {
    run(async {
        let (_set, primary, client) = filled().await;
        let second = Duration::from_secs(1);
        let limited = within(second);
        let tailable = doc! { "find": "c", "tailable": true, "awaitData": true };
        let aggregate = |stage: Document| doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
        let await_data = |time| CursorOptions::new().max_await_time(time);
        let iteration = || CursorOptions::new().timeout_mode(TimeoutMode::Iteration);
        let cases = [
            (aggregate(doc! { "$out": "d" }), limited, iteration(), "$out"),
            (aggregate(doc! { "$merge": { "into": "d" } }), limited, iteration(), "$merge"),
            (find(), CommandOptions::new(), lifetime(), "needs a timeout"),
            (tailable.clone(), limited, lifetime(), "tailable"),
            (aggregate(doc! { "$changeStream": {} }), limited, lifetime(), "tailable"),
            (find(), limited, lifetime().max_await_time(second / 2), "tailable"),
            (tailable.clone(), limited, await_data(second), "max_await_time"),
            (tailable.clone(), limited, await_data(second * 2), "max_await_time"),
        ];
        for (command, options, cursor_options, word) in cases {
            let cursor: Result<Cursor, _> =
                client.run_cursor_command("db", command.clone(), options, cursor_options).await;
            let error = refused(cursor.map(drop));
            assert!(matches!(error, Error::Cursor(_)) && error.to_string().contains(word), "{command}: {error}");
        }
        assert_eq!((primary.count_of("find"), primary.count_of("aggregate")), (0, 0));
        // These agree: a shorter wait, and no limit at all.
        for (options, cursor_options) in [
            (limited, await_data(second / 2)),
            (CommandOptions::new(), await_data(second)),
            (within(Duration::MAX), lifetime()),
        ] {
            let cursor: Result<Cursor, _> = client.run_cursor_command("db", find(), options, cursor_options).await;
            drop(cursor.expect("a cursor"));
        }
        // A stage that only has a field of that name is sent. The fake server has no aggregations.
        let stage = doc! { "$match": { "$changeStream": 1 } };
        let cursor: Result<Cursor, _> = client.run_cursor_command("db", aggregate(stage), limited, lifetime()).await;
        assert_eq!(refused(cursor.map(drop)).code(), Some(59));
        assert_eq!(primary.count_of("aggregate"), 1);
        client.close().await;
    });
}
