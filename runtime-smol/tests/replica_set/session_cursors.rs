//! Cursors in sessions of the application: the session that they take, other commands between their
//! batches, and transactions that begin or end meanwhile.

use super::support::{PATIENCE, eventually, refused, run, sent};
use super::transactions::{
    balanced, count, field, fields, filled, in_use, insert, once, poll_once, session, set_with, started,
};
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::{
    ClientSession, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, SessionCursor,
    TransactionOptions,
};

async fn cursor(session: &mut ClientSession) -> SessionCursor {
    let find = doc! { "find": "c", "batchSize": 3 };
    let options = CursorOptions::new().batch_size(2);
    session.run_cursor_command("db", find, CommandOptions::new(), options).await.expect("a cursor")
}

async fn ids(session: &mut ClientSession, cursor: &mut SessionCursor) -> Vec<i32> {
    let mut ids = Vec::new();
    while let Some(document) = cursor.try_next(session).await.expect("a document") {
        ids.push(document.get_i32("_id").expect("an id"));
    }
    ids
}

#[test]
fn cursor_in_a_transaction_has_its_fields() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = started(&client);
        let mut found = cursor(&mut session).await;
        assert_eq!(ids(&mut session, &mut found).await, (0..10).collect::<Vec<_>>());
        drop(cursor(&mut session).await);
        session.commit_transaction().await.expect("it is committed");
        let find = &sent(&primary, "find")[0];
        let mores = sent(&primary, "getMore");
        assert_eq!(mores.len(), 4);
        for more in &mores {
            let number = field(find, "txnNumber").expect("a number");
            assert_eq!(fields(more), doc! { "txnNumber": number, "autocommit": false });
            assert_eq!(field(more, "lsid"), field(find, "lsid"));
        }
        assert_eq!(primary.count_of("killCursors"), 0, "the server closes it at the end of the transaction");
        drop(session);
        client.close().await;
    });
}

/// Its server closes the cursor with the transaction.
#[test]
fn transaction_is_repeated_although_its_failed_cursor_is_closed() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        primary.set_fail_point(once(&["getMore"]).error(112));
        let mut calls = 0;
        let work = async |session: &mut ClientSession| {
            calls += 1;
            let mut cursor = cursor(session).await;
            let mut count = 0;
            loop {
                match cursor.try_next(session).await {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => return Ok::<_, Error>(count),
                    Err(error) => {
                        cursor.close(session).await.expect("nothing is sent");
                        return Err(error);
                    }
                }
            }
        };
        let count = session(&client).with_transaction(TransactionOptions::new(), work).await;
        assert_eq!((count.expect("the second succeeds"), calls), (10, 2));
        assert_eq!(primary.count_of("killCursors"), 0);
        client.close().await;
    });
}

#[test]
fn cursor_in_a_session_is_closed_when_it_is_dropped() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = session(&client);
        drop(cursor(&mut session).await);
        eventually("it is closed", || primary.count_of("killCursors") == 1).await;
        cursor(&mut session).await.close(&mut session).await.expect("it is closed");
        let kill = sent(&primary, "killCursors").pop().expect("a command");
        assert_eq!(field(&kill, "lsid"), field(&sent(&primary, "find")[1], "lsid"));
        drop(session);
        client.close().await;
    });
}

#[test]
fn cursor_of_a_session_ends_when_a_request_for_a_batch_is_dropped() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = session(&client);
        let mut cursor = cursor(&mut session).await;
        for _ in 0..3 {
            cursor.try_next(&mut session).await.expect("a document of the first batch");
        }
        primary.set_fail_point(once(&["getMore"]).block(Duration::from_millis(200)));
        poll_once(cursor.try_next(&mut session)).await;
        let error = refused(cursor.try_next(&mut session).await);
        assert!(matches!(error, Error::Cursor(_)), "{error}");
        assert!(cursor.try_next(&mut session).await.expect("it has ended").is_none());
        eventually("it is closed", || primary.count_of("killCursors") == 1).await;
        drop(cursor);
        drop(session);
        client.close().await;
    });
}

/// Three documents of the first batch.
async fn first_batch(session: &mut ClientSession, cursor: &mut SessionCursor) {
    for id in 0..3 {
        let document = cursor.try_next(session).await.expect("a document").expect("not the end");
        assert_eq!(document.get_i32("_id").ok(), Some(id));
    }
}

fn is_refused<T>(outcome: Result<T, Error>, reason: &str) -> bool {
    matches!(refused(outcome.map(drop)), Error::Session(text) if text.contains(reason))
}

#[test]
fn other_commands_of_the_session_run_between_the_batches_of_its_cursors() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        for in_transaction in [false, true] {
            let mut session = if in_transaction { started(&client) } else { session(&client) };
            let mut one = cursor(&mut session).await;
            let mut other = cursor(&mut session).await;
            for id in 0..10 {
                for cursor in [&mut one, &mut other] {
                    let document = cursor.try_next(&mut session).await.expect("a document").expect("not the end");
                    assert_eq!(document.get_i32("_id").ok(), Some(id));
                    session.run_command("db", doc! { "find": "other" }).await.expect("a reply");
                }
            }
            let ids = sent(&primary, "getMore").iter().filter_map(|more| field(more, "lsid")).collect::<Vec<_>>();
            let own = field(sent(&primary, "find").last().expect("a command"), "lsid");
            assert_eq!(ids.last(), own.as_ref());
            assert_eq!(one.try_next(&mut session).await.expect("the end"), None);
            if in_transaction {
                session.commit_transaction().await.expect("it is committed");
            }
        }
        client.close().await;
    });
}

/// Also of a session that has the server session of the first one, which was dropped.
#[test]
fn cursor_is_refused_in_another_session() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut opener = session(&client);
        let mut found = cursor(&mut opener).await;
        let mut other = session(&client);
        assert!(is_refused(found.try_next(&mut other).await, "another session"));
        first_batch(&mut opener, &mut found).await;
        assert!(is_refused(found.next_if_any(&mut other).await, "another session"));
        assert!(is_refused(found.next_raw(&mut other).await.map(drop), "another session"));
        assert!(found.try_next(&mut opener).await.expect("it has not ended").is_some());
        let finds = sent(&primary, "find");
        let mores = primary.count_of("getMore");
        drop((opener, other));

        let mut next = session(&client);
        next.run_command("db", doc! { "find": "c" }).await.expect("a reply");
        assert_eq!(field(&sent(&primary, "find")[1], "lsid"), field(&finds[0], "lsid"), "it is used again");
        assert!(is_refused(found.try_next(&mut next).await, "another session"));
        assert_eq!((primary.count_of("getMore"), primary.count_of("killCursors")), (mores, 0));
        assert!(found.is_alive());
        assert!(is_refused(found.close(&mut next).await, "another session"));
        eventually("it is closed as if it were dropped", || primary.count_of("killCursors") == 1).await;
        drop(next);
        client.close().await;
    });
}

#[test]
fn cursor_of_a_transaction_ends_with_it() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = session(&client);
        for begins_another in [false, true] {
            session.start_transaction(TransactionOptions::new()).expect("the previous one is committed");
            let (mut one, other, dropped) =
                (cursor(&mut session).await, cursor(&mut session).await, cursor(&mut session).await);
            session.commit_transaction().await.expect("it is committed");
            if begins_another {
                session.start_transaction(TransactionOptions::new()).expect("the previous one is committed");
            }
            first_batch(&mut session, &mut one).await;
            assert!(is_refused(one.try_next(&mut session).await, "has ended"));
            assert_eq!(one.try_next(&mut session).await.expect("the end"), None);
            other.close(&mut session).await.expect("nothing is sent");
            drop(dropped);
            if begins_another {
                insert(&mut session).await.expect("the new transaction is not affected");
                session.commit_transaction().await.expect("it is committed");
            }
        }
        assert_eq!((primary.count_of("getMore"), primary.count_of("killCursors")), (0, 0));
        assert_eq!(count(&client).await, 11);
        drop(session);
        client.close().await;
    });
}

/// A server would refuse its `getMore`, and abort the transaction.
#[test]
fn cursor_from_before_a_transaction_goes_on_after_it() {
    run(async {
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = session(&client);
        let (mut one, other, dropped) =
            (cursor(&mut session).await, cursor(&mut session).await, cursor(&mut session).await);
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        let other_one = doc! { "insert": "other", "documents": [{}] };
        session.run_command("db", other_one).await.expect("a reply");
        first_batch(&mut session, &mut one).await;
        assert!(is_refused(one.try_next(&mut session).await, "before the transaction"));
        other.close(&mut session).await.expect("it is closed");
        drop(dropped);
        eventually("both are closed", || primary.count_of("killCursors") == 2).await;
        for kill in sent(&primary, "killCursors") {
            assert_eq!(fields(&kill), Document::new(), "not in the transaction");
        }
        assert_eq!(primary.count_of("getMore"), 0);
        session.commit_transaction().await.expect("it is committed");
        assert_eq!(ids(&mut session, &mut one).await, (3..10).collect::<Vec<_>>());
        drop(session);
        client.close().await;
    });
}

/// Every connection has one owner, in whichever order the cursor, the transaction and the session end.
#[test]
fn cursors_of_sessions_behind_a_load_balancer_return_their_connections() {
    run(async {
        let (balancer, client) = balanced(10);
        filled(&client).await;
        let killed = || balancer.backends().iter().map(|it| it.count_of("killCursors")).sum::<u64>();
        let mut session = started(&client);
        let mut found = cursor(&mut session).await;
        assert_eq!(ids(&mut session, &mut found).await, (0..10).collect::<Vec<_>>());
        assert_eq!(in_use(&client), 1, "that of the transaction");
        session.abort_transaction().await.expect("it is open");
        assert_eq!(in_use(&client), 0);

        // The transaction ends first; then the session, with an abort.
        for is_dropped in [false, true] {
            session.start_transaction(TransactionOptions::new()).expect("the previous one is aborted");
            let found = cursor(&mut session).await;
            assert_eq!(in_use(&client), 1);
            if is_dropped {
                drop(core::mem::replace(&mut session, client.start_session(ClientSessionOptions::new())));
            } else {
                session.abort_transaction().await.expect("it is open");
            }
            eventually("the connection is returned", || in_use(&client) == 0).await;
            drop(found);
        }
        assert_eq!(killed(), 0);

        // Without a transaction, the cursor has its own connection, also in a transaction that begins later.
        let (mut one, other) = (cursor(&mut session).await, cursor(&mut session).await);
        assert_eq!(in_use(&client), 2);
        session.start_transaction(TransactionOptions::new()).expect("no transaction is open");
        insert(&mut session).await.expect("a reply");
        assert_eq!(in_use(&client), 3);
        first_batch(&mut session, &mut one).await;
        assert!(is_refused(one.try_next(&mut session).await, "before the transaction"));
        other.close(&mut session).await.expect("it is closed");
        assert_eq!((in_use(&client), killed()), (2, 1));
        session.abort_transaction().await.expect("it is open");
        assert!(one.try_next(&mut session).await.expect("a document").is_some());
        assert_eq!(in_use(&client), 1, "that of the cursor");
        drop(session);
        assert_eq!(in_use(&client), 1);
        drop(one);
        eventually("it is closed on its connection", || killed() == 2 && in_use(&client) == 0).await;
        client.close().await;
    });
}

/// Client Side Operations Timeout, "Cursors".
#[test]
fn limit_of_close_replaces_that_of_the_cursor() {
    run(async {
        let limit = Duration::from_secs(1);
        let slow = || once(&["killCursors"]).block(limit * 6 / 5);
        let limited = || CommandOptions::new().timeout(limit);
        let find = || doc! { "find": "c", "batchSize": 3 };
        let (_set, primary, client) = set_with(|_| {}).await;
        filled(&client).await;
        let mut session = session(&client);
        for own in [PATIENCE, Duration::ZERO] {
            for in_session in [false, true] {
                primary.set_fail_point(slow());
                let closed = if in_session {
                    let found = session.run_cursor_command("db", find(), limited(), CursorOptions::new()).await;
                    let found: SessionCursor = found.expect("a cursor");
                    found.close_within(&mut session, own).await
                } else {
                    let found = client.run_cursor_command("db", find(), limited(), CursorOptions::new()).await;
                    let found: Cursor = found.expect("a cursor");
                    found.close_within(own).await
                };
                closed.expect("it is closed in time");
                let rest_ms = field(sent(&primary, "killCursors").last().expect("a command"), "maxTimeMS");
                let rest_ms = rest_ms.and_then(|rest_ms| rest_ms.as_i64());
                assert_eq!(rest_ms.is_some_and(|rest_ms| rest_ms > 1_000), own == PATIENCE, "{own:?}: {rest_ms:?}");
                assert!(own == PATIENCE || rest_ms.is_none(), "{own:?}: {rest_ms:?}");
            }
        }
        let late: Cursor = client.database("db").run_cursor_command(find()).await.expect("a cursor");
        primary.set_fail_point(slow());
        let error = refused(late.close_within(limit / 10).await);
        assert!(error.is_timeout(), "{error:?}");

        let kills = primary.count_of("killCursors");
        let work = async |session: &mut ClientSession| cursor(session).await.close_within(session, PATIENCE).await;
        let outcome = session.with_transaction(TransactionOptions::new().timeout(PATIENCE), work).await;
        assert!(is_refused(outcome, "time limit"));
        assert_eq!(primary.count_of("killCursors"), kills);
        drop(session);
        client.close().await;
    });
}
