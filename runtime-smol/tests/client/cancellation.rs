//! Futures that are dropped at any of their polls lose nothing and leave nothing behind.

use super::support::{
    Bell, DropIt, PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, poll_times, refused,
    run, server,
};
use alloc::sync::Arc;
use core::task::{Context, Waker};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::ClosedReason;
use poolhouse_smol::poolhouse_core::shell::OperationError;
use poolhouse_smol::{Client, Error};
use poolhouse_tests::fake::{FakeServer, Fault, FaultRule};
use std::time::Instant;

/// Polls that no operation here needs more of.
const POLLS_MAX: usize = 200;

/// Two collections whose documents tell which of them was asked.
async fn fill(client: &Client) {
    for name in ["one", "other"] {
        let insert = bson::doc! { "insert": name, "documents": [{ "_id": name }] };
        client.run_command("db", insert).await.expect("an insert");
    }
}

async fn find(client: &Client, name: &str) -> Result<String, Error> {
    let reply = client.run_command("db", bson::doc! { "find": name }).await?;
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let found = batch.first().and_then(bson::Bson::as_document).expect("a document");
    Ok(found.get_str("_id").expect("an id").to_owned())
}

async fn all_is_well(server: &FakeServer, client: &Client) {
    at_rest(server, client, 1).await;
    assert_eq!(find(client, "other").await.expect("the next operation succeeds"), "other");
    at_rest(server, client, 1).await;
    assert_eq!(client.pool_snapshot().expect("a server").generation, 0, "the pool was cleared");
}

/// The whole way of an operation: selection, check-out, establishing, sending, receiving one byte after the other.
#[test]
fn operation_dropped_at_any_poll_leaves_nothing_behind() {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        run(async {
            let server = server();
            let mut options = options(&server);
            options.pool.max_pool_size = 1;
            let client = client(options);
            fill(&client).await;
            server.inject(FaultRule::always(Fault::Trickle { gap: Duration::from_micros(200) }).on_command("find"));
            let mut most = 0;
            for times in 1..=POLLS_MAX {
                let done = poll_times(find(&client, "one"), times, drop_it);
                if let Some(found) = done {
                    assert_eq!(found.expect("it succeeds"), "one");
                    break;
                }
                most = times;
                // Every tenth in full; the others leave the next one a pool as it is.
                if times % 10 == 1 {
                    server.clear_faults();
                    all_is_well(&server, &client).await;
                    server.inject(
                        FaultRule::always(Fault::Trickle { gap: Duration::from_micros(200) }).on_command("find"),
                    );
                }
            }
            assert!(most > 3, "{drop_it:?}: dropped after {most} polls at most");
            server.clear_faults();
            all_is_well(&server, &client).await;
            client.close().await;
        });
    }
}

/// From the first operation of a client, which waits for the server and for its connection.
#[test]
fn first_operation_dropped_at_any_poll_leaves_nothing_behind() {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        run(async {
            let server = server();
            server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
            let mut finished = false;
            for times in 1..=POLLS_MAX {
                let client = client(options(&server));
                finished = poll_times(ping(&client), times, drop_it).is_some();
                ping(&client).await.expect("the next operation succeeds");
                at_rest(&server, &client, 1).await;
                client.close().await;
                server.wait_until(super::support::PATIENCE, |view| view.open_count() == 0).expect("all are closed");
                if finished {
                    break;
                }
            }
            assert!(finished, "{drop_it:?}: not done after {POLLS_MAX} polls");
        });
    }
}

/// A check-out that waits for a connection in use: dropped while it waits, or when the connection was granted to it and
/// it has not noticed.
#[test]
fn check_out_dropped_at_any_poll_gives_the_connection_to_the_next() {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        run(async {
            let server = server();
            let mut options = options(&server);
            options.pool.max_pool_size = 1;
            let client = client(options);
            fill(&client).await;
            let guard = client.check_out().await.expect("a connection");
            let returned = smol::spawn({
                let client = client.clone();
                async move {
                    // The guard's connection comes back while the other waits.
                    eventually("one waits", || client.pool_snapshot().is_some_and(|pool| pool.counts.waiting == 1))
                        .await;
                }
            });
            if drop_it == DropIt::AtOnce {
                assert!(poll_times(client.check_out(), 1, drop_it).is_none());
                returned.cancel().await;
                drop(guard);
            } else {
                // It is polled by hand once, then woken by the grant.
                let bell = Arc::new(Bell::default());
                let waker = Waker::from(Arc::clone(&bell));
                let mut context = Context::from_waker(&waker);
                let mut waiting = Box::pin(client.check_out());
                assert!(waiting.as_mut().poll(&mut context).is_pending());
                returned.await;
                drop(guard);
                assert!(bell.wait(), "not woken");
                let counts = client.pool_snapshot().expect("a server").counts;
                assert_eq!((counts.in_use, counts.available), (1, 0), "granted, not noticed");
                drop(waiting);
            }
            let counts = client.pool_snapshot().expect("a server").counts;
            assert_eq!((counts.in_use, counts.available, counts.waiting), (0, 1, 0), "{drop_it:?}");
            all_is_well(&server, &client).await;
            // The same connection all the time.
            assert_eq!(server.accepted_count(), 2);
            client.close().await;
        });
    }
}

#[test]
fn guard_dropped_before_its_reply_closes_the_connection() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.late_reply = Duration::ZERO;
        let client = client(options);
        fill(&client).await;
        let mut watch = Watch::of(&client);
        for _ in 0..10 {
            server.freeze();
            assert!(poll_times(find(&client, "one"), 1, DropIt::AtOnce).is_none());
            server.thaw();
            assert_eq!(watch.until_closed().await, ClosedReason::Error);
            all_is_well(&server, &client).await;
        }
        client.close().await;
    });
}

/// Abandoned waiters add nothing to the time of the next one.
#[test]
fn abandoned_waiters_cost_the_next_one_nothing() {
    const WAITERS: usize = 1000;
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        fill(&client).await;
        let guard = client.check_out().await.expect("a connection");
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping(&client).await })
            })
            .collect();
        eventually("all wait", || client.pool_snapshot().is_some_and(|pool| pool.counts.waiting as usize == WAITERS))
            .await;
        let next = smol::spawn({
            let client = client.clone();
            async move { find(&client, "other").await }
        });
        eventually("one more waits", || {
            client.pool_snapshot().is_some_and(|pool| pool.counts.waiting as usize == WAITERS + 1)
        })
        .await;
        for waiter in waiters {
            waiter.cancel().await;
        }
        assert_eq!(client.pool_snapshot().expect("a server").counts.waiting, 1);
        let begun = Instant::now();
        drop(guard);
        assert_eq!(next.await.expect("a reply"), "other");
        // A guard only: what is proven is that none of the thousand was served on the way.
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
        assert_eq!(server.count_of("ping"), 0);
        all_is_well(&server, &client).await;
        client.close().await;
    });
}

/// Waiters and operations cancelled at random moments, by many tasks at a time.
#[test]
fn cancelling_in_a_crowd_loses_no_connection() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 3;
        let client = client(options);
        fill(&client).await;
        let tasks: Vec<_> = (0..32_u64)
            .map(|task| {
                let client = client.clone();
                smol::spawn(async move {
                    for round in 0..20_u64 {
                        let patience = Duration::from_micros((task * 7919 + round * 104_729) % 1500);
                        let name = if (task + round) % 2 == 0 { "one" } else { "other" };
                        let found = async { Some(find(&client, name).await) };
                        let limit = async {
                            smol::Timer::after(patience).await;
                            None
                        };
                        if let Some(found) = smol::future::or(found, limit).await {
                            assert_eq!(found.expect("a reply"), name);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        all_is_well(&server, &client).await;
        client.close().await;
    });
}

/// Selection that is dropped leaves no trace, and others are still served.
#[test]
fn selection_dropped_while_no_server_is_known_leaves_nothing() {
    run(async {
        let server = server();
        server.freeze();
        let client = client(options(&server));
        for drop_it in [DropIt::AtOnce; 50] {
            assert!(poll_times(ping(&client), 1, drop_it).is_none());
        }
        let waiting: Vec<_> = (0..50)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping(&client).await })
            })
            .collect();
        server.thaw();
        for task in waiting {
            task.await.expect("a ping");
        }
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

/// A command whose time was over before it was sent is not sent, and its connection stays.
#[test]
fn command_that_is_too_late_is_not_sent() {
    run(async {
        let server = server();
        let client = client(options(&server));
        ping(&client).await.expect("a ping");
        let mut guard = client.check_out().await.expect("a connection");
        let now = client.now();
        guard.raw().set_deadline(Some(now));
        let error = refused(guard.run_command("admin", bson::doc! { "ping": 1 }).await);
        assert_eq!(operation(&error), OperationError::Timeout);
        guard.raw().set_deadline(None);
        guard.run_command("admin", bson::doc! { "buildInfo": 1 }).await.expect("a reply");
        drop(guard);
        assert_eq!(server.count_of("ping"), 1);
        assert_eq!(server.accepted_count(), 2);
        let mut watch = Watch::of(&client);
        ping(&client).await.expect("a ping");
        assert_eq!(count(&watch.pool_names(), "ConnectionClosed"), 0);
        client.close().await;
    });
}

/// A future that moves to another task is woken there, whatever it waits for.
#[test]
fn future_is_woken_by_the_waker_of_its_last_poll() {
    run(async {
        let server = server();
        server.freeze();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        // It waits for the server, then for its connection.
        let mut first = Box::pin(client.check_out());
        let stale = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&stale));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        server.thaw();
        assert!(bell.wait(), "the selector's new waker");
        let guard = first.await.expect("a connection");
        // It waits for the connection of the other.
        let mut second = Box::pin(client.check_out());
        let waker = Waker::from(Arc::clone(&stale));
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let waker = Waker::from(Arc::clone(&bell));
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(guard);
        assert!(bell.wait(), "the waiter's new waker");
        drop(second.await.expect("a connection"));
        client.close().await;
    });
}

/// What is dropped leaves no waker behind, and so keeps nobody's task.
#[test]
fn dropped_future_leaves_no_waker_behind() {
    run(async {
        let server = server();
        server.freeze();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        let bell = Arc::new(Bell::default());
        let poll_once = |future: &mut dyn FnMut(&mut Context<'_>) -> bool| {
            let waker = Waker::from(Arc::clone(&bell));
            assert!(future(&mut Context::from_waker(&waker)));
        };
        // One that selects.
        let mut selecting = Box::pin(client.check_out());
        poll_once(&mut |context| selecting.as_mut().poll(context).is_pending());
        assert!(Arc::strong_count(&bell) > 1);
        drop(selecting);
        // The reactor forgets its timer a little later; the next news of the server would come in two minutes.
        let begun = Instant::now();
        eventually("nobody holds the selector's waker", || Arc::strong_count(&bell) == 1).await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        server.thaw();
        // One that waits in the queue.
        let mut guard = client.check_out().await.expect("a connection");
        let mut waiting = Box::pin(client.check_out());
        poll_once(&mut |context| waiting.as_mut().poll(context).is_pending());
        drop(waiting);
        assert_eq!(Arc::strong_count(&bell), 1);
        // One whose reply is outstanding.
        server.freeze();
        let mut sent = Box::pin(guard.run_command("admin", bson::doc! { "ping": 1 }));
        poll_once(&mut |context| sent.as_mut().poll(context).is_pending());
        drop(sent);
        drop(guard);
        server.thaw();
        eventually("nobody holds the waker", || Arc::strong_count(&bell) == 1).await;
        client.close().await;
    });
}
