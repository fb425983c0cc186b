//! Futures that are dropped in large numbers, late, or polled by several tasks. The contract shows
//! that each may be dropped at each of its polls.

use super::support::{
    Bell, DropIt, PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, poll_times, refused,
    run, server,
};
use alloc::sync::Arc;
use core::task::{Context, Waker};
use core::time::Duration;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, Error};
use poolhouse_tests::fake::FakeServer;
use poolhouse_tests::patience::Stopwatch;

/// Fills two collections with different documents, which identify the collection of a reply.
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
    assert_eq!(client.servers()[0].pool.generation, 0, "the pool was cleared");
}

/// Abandoned waiters add nothing to the time of the next one.
#[test]
fn abandoned_waiters_do_not_delay_the_next_one() {
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
        eventually("all wait", || {
            client.servers().first().is_some_and(|server| server.pool.counts.waiting as usize == WAITERS)
        })
        .await;
        let next = smol::spawn({
            let client = client.clone();
            async move { find(&client, "other").await }
        });
        eventually("one more waits", || {
            client.servers().first().is_some_and(|server| server.pool.counts.waiting as usize == WAITERS + 1)
        })
        .await;
        for waiter in waiters {
            waiter.cancel().await;
        }
        assert_eq!(client.servers()[0].pool.counts.waiting, 1);
        let begun = Stopwatch::start();
        drop(guard);
        assert_eq!(next.await.expect("a reply"), "other");
        // A coarse bound: what is proven is that none of the thousand waiters was served.
        begun.assert_below(PATIENCE / 2);
        assert_eq!(server.count_of("ping"), 0);
        all_is_well(&server, &client).await;
        client.close().await;
    });
}

/// Waiters and operations cancelled at random moments, by many tasks at a time.
#[test]
fn concurrent_cancellations_lose_no_connection() {
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

/// A dropped selection leaves no trace, and other selections are still served.
#[test]
fn dropped_selection_leaves_no_state() {
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

/// A command with a deadline that passes before it is sent is not sent, and its connection stays.
#[test]
fn expired_command_is_not_sent() {
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

/// A future that moves to another task wakes that task, in every state.
#[test]
fn future_is_woken_by_the_waker_of_its_last_poll() {
    run(async {
        let server = server();
        server.freeze();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        // Waits for the server, then for its connection.
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
        // Waits for the connection that the first future holds.
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
