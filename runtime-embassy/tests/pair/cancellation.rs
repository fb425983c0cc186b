//! Futures that are dropped at any of their polls lose nothing and leave nothing behind.

use super::net::run;
use super::support::{
    Bell, DropIt, Log, PATIENCE, Rig, Small, eventually, find, insert, options, ping, poll_times, refused, rig, server,
    small,
};
use alloc::sync::Arc;
use core::future::Future;
use core::task::{Context, Waker};
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::pool::ClosedReason;
use poolhouse_embassy::{OperationError, Options, PoolOptions, Sizes};
use poolhouse_tests::fake::FakeServer;

/// Upper bound of the polls of each operation here.
const POLLS_MAX: usize = 200;

/// Fills two collections with different documents, which identify the collection of a reply.
async fn fill<const C: usize, const W: usize>(rig: &Rig<Sizes<1, C, W, 4096, 1024, 1024, Log>>) {
    insert(&rig.client, "one", 1).await.expect("an insert");
    insert(&rig.client, "other", 2).await.expect("an insert");
}

async fn all_is_well<const C: usize, const W: usize>(
    server: &FakeServer,
    rig: &Rig<Sizes<1, C, W, 4096, 1024, 1024, Log>>,
) {
    rig.at_rest(server, 1).await;
    assert_eq!(find(&rig.client, "other").await.expect("the next operation succeeds"), 2);
    rig.at_rest(server, 1).await;
    assert_eq!(rig.pool().generation, 0, "the pool was cleared");
}

fn one_connection(server: &FakeServer) -> Options {
    let pool = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
    Options { pool, ..options(server) }
}

/// Starts with the first operation of a client, which waits for the server and for its connection.
/// Every other run delays the frames.
#[test]
fn first_operation_dropped_at_any_poll_leaves_no_connection() {
    for drop_it in [DropIt::AtOnce, DropIt::WhenWoken] {
        let mut finished = false;
        for times in 1..=POLLS_MAX {
            run(async |net| {
                let server = server();
                let rig = small(net, &server);
                if times % 2 == 0 {
                    net.cable.delay.set(Duration::from_micros(100));
                }
                finished = poll_times(rig.ping(), times, drop_it).await.is_some();
                rig.ping().await.expect("the next operation succeeds");
                rig.at_rest(&server, 1).await;
                rig.end(&[&server]).await;
            });
            if finished {
                break;
            }
        }
        assert!(finished, "{drop_it:?}: not done after {POLLS_MAX} polls");
    }
}

/// The drain timeout is off here: the connection is closed.
#[test]
fn guard_dropped_before_its_reply_closes_the_connection() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, one_connection(&server));
        fill(&rig).await;
        for _ in 0..10 {
            rig.log.clear();
            server.freeze();
            assert!(poll_times(find(&rig.client, "one"), 1, DropIt::AtOnce).await.is_none());
            server.thaw();
            assert_eq!(find(&rig.client, "other").await.expect("a reply"), 2);
            assert_eq!(rig.log.closed(), [ClosedReason::Error]);
        }
        all_is_well(&server, &rig).await;
        rig.end(&[&server]).await;
    });
}

/// Waiters and operations cancelled at random moments, by many tasks at a time.
#[test]
fn cancelling_in_a_crowd_loses_no_connection() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_pool_size: 3, ..PoolOptions::DEFAULT };
        let rig: Rig<Sizes<1, 4, 32, 4096, 1024, 1024, Log>> = rig(net, Options { pool, ..options(&server) });
        fill(&rig).await;
        let tasks: Vec<_> = (0..32_u64)
            .map(|task| {
                let client = rig.client;
                net.spawn_task(async move {
                    for round in 0..20_u64 {
                        let patience = Duration::from_micros((task * 7919 + round * 104_729) % 3000);
                        let (name, id) = if (task + round) % 2 == 0 { ("one", 1) } else { ("other", 2) };
                        let found = async { Some(find(&client, name).await) };
                        let limit = async {
                            async_io::Timer::after(patience).await;
                            None
                        };
                        if let Some(found) = futures_lite::future::or(found, limit).await {
                            assert_eq!(found.expect("a reply"), id);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        all_is_well(&server, &rig).await;
        rig.end(&[&server]).await;
    });
}

/// A dropped selection leaves no trace, and other selections are still served.
#[test]
fn selection_dropped_while_no_server_is_known_leaves_nothing() {
    run(async |net| {
        let server = server();
        server.freeze();
        let rig = small(net, &server);
        for _ in 0..50 {
            assert!(poll_times(rig.ping(), 1, DropIt::AtOnce).await.is_none());
        }
        let client = rig.client;
        let waiting: Vec<_> = (0..8).map(|_| net.spawn_task(async move { ping(&client).await })).collect();
        server.thaw();
        for task in waiting {
            task.await.expect("a ping");
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A command with a deadline that passes before it is sent is not sent, and its connection stays.
#[test]
fn command_that_is_too_late_is_not_sent() {
    run(async |net| {
        let server = server();
        let rig = small(net, &server);
        let mut guard = rig.client.check_out().await.expect("a connection");
        net.skip(PATIENCE).await;
        let error = refused(guard.run_command("admin", |it| it.int32("ping", 1).map(drop)).await);
        assert_eq!(error, OperationError::Timeout);
        guard.set_deadline(None);
        guard.run_command("admin", |it| it.int32("buildInfo", 1).map(drop)).await.expect("a reply");
        drop(guard);
        assert_eq!(server.count_of("ping"), 0);
        rig.at_rest(&server, 1).await;
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

/// A future that moves to another task wakes that task, in every state.
#[test]
fn future_is_woken_by_the_waker_of_its_last_poll() {
    run(async |net| {
        let server = server();
        server.freeze();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, one_connection(&server));
        let [stale, bell] = [(); 2].map(|()| Arc::new(Bell::default()));
        let poll_by = |future: &mut core::pin::Pin<Box<dyn Future<Output = _>>>, bell: &Arc<Bell>| {
            let waker = Waker::from(Arc::clone(bell));
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        };
        // Waits for the server, then for its connection.
        let client: &'static _ = Box::leak(Box::new(rig.client));
        let mut first: core::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(client.check_out());
        poll_by(&mut first, &stale);
        poll_by(&mut first, &bell);
        server.thaw();
        bell.rung().await;
        let guard = first.await.expect("a connection");
        // Waits for the connection that the first future holds.
        let mut second: core::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(client.check_out());
        poll_by(&mut second, &stale);
        poll_by(&mut second, &bell);
        drop(guard);
        bell.rung().await;
        drop(second.await.expect("a connection"));
        rig.end(&[&server]).await;
    });
}

/// A dropped future leaves no waker behind, which would keep its task alive.
#[test]
fn dropped_future_leaves_no_waker_behind() {
    run(async |net| {
        let server = server();
        server.freeze();
        net.open_to(&server);
        let rig: Rig<Small> = rig(net, one_connection(&server));
        let bell = Arc::new(Bell::default());
        let poll_once = |future: &mut dyn FnMut(&mut Context<'_>) -> bool| {
            let waker = Waker::from(Arc::clone(&bell));
            assert!(future(&mut Context::from_waker(&waker)));
        };
        // A future in server selection. embassy's timer queue keeps the waker until its deadline,
        // even if the future is dropped.
        let mut selecting = Box::pin(rig.client.check_out());
        poll_once(&mut |context| selecting.as_mut().poll(context).is_pending());
        drop(selecting);
        server.thaw();
        rig.known().await;
        net.skip(Duration::from_secs(31)).await;
        assert_eq!(Arc::strong_count(&bell), 1);
        // A future in the wait queue.
        let guard = rig.client.check_out().await.expect("a connection");
        let mut waiting = Box::pin(rig.client.check_out());
        poll_once(&mut |context| waiting.as_mut().poll(context).is_pending());
        drop(waiting);
        assert_eq!(Arc::strong_count(&bell), 1);
        drop(guard);
        eventually("at rest", || rig.pool().counts.available == 1).await;
        rig.end(&[&server]).await;
    });
}
