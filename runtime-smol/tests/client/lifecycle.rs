//! Servers that crash and restart, or freeze.

use super::support::{
    PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, refused, run, server,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, ClosedReason, PoolEvent};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, Event, ServerMonitoringMode};
use poolhouse_tests::fake::{FailPoint, FailPointMode};
use smol::Task;
use std::time::Instant;

/// Limit of each operation of a load.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Tolerance for a busy machine; far less than the time until the next scheduled check.
const SLACK: Duration = Duration::from_secs(15);

struct Load {
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    tasks: Vec<Task<()>>,
}

impl Load {
    /// Starts tasks that ping until they are stopped. Each operation ends within its deadline, by
    /// success or failure.
    fn start(client: &Client, tasks: usize) -> Self {
        let (stop, succeeded, failed) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let tasks = (0..tasks)
            .map(|_| {
                let (client, stop) = (client.clone(), Arc::clone(&stop));
                let (succeeded, failed) = (Arc::clone(&succeeded), Arc::clone(&failed));
                smol::spawn(async move {
                    while !stop.load(Ordering::Acquire) {
                        let begun = Instant::now();
                        let outcome = async {
                            let mut guard = client.check_out_timeout(Some(DEADLINE)).await?;
                            guard.run_command("admin", bson::doc! { "ping": 1 }).await
                        };
                        let outcome = outcome.await;
                        assert!(begun.elapsed() < DEADLINE + SLACK, "{:?}: {outcome:?}", begun.elapsed());
                        let counter = if outcome.is_ok() { &succeeded } else { &failed };
                        counter.fetch_add(1, Ordering::Release);
                        if outcome.is_err() {
                            smol::Timer::after(Duration::from_millis(5)).await;
                        }
                    }
                })
            })
            .collect();
        Self { stop, succeeded, failed, tasks }
    }

    async fn more_successes(&self, count: usize) {
        let from = self.succeeded.load(Ordering::Acquire);
        eventually("operations succeed", || self.succeeded.load(Ordering::Acquire) >= from + count).await;
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            task.await;
        }
        self.failed.load(Ordering::Acquire)
    }
}

/// The main function: the server is killed under load and restarts. No operation outlives its
/// deadline, the pool is cleared once, and both sides count the same connections afterwards.
#[test]
fn killed_server_is_used_again_after_its_restart_under_load() {
    for mode in [ServerMonitoringMode::Stream, ServerMonitoringMode::Poll] {
        run(async {
            let server = server();
            let mut options = options(&server);
            options.monitor.server_monitoring_mode = mode;
            options.pool.max_pool_size = 5;
            let client = client(options);
            let load = Load::start(&client, 16);
            load.more_successes(200).await;
            let lines = if mode == ServerMonitoringMode::Stream { 2 } else { 1 };
            for round in 1..=2 {
                server.wait_until(PATIENCE, |view| view.open_count() == 5 + lines).expect("the pool is full");
                let mut watch = Watch::over(client.subscribe_where(|event| {
                    matches!(
                        event,
                        poolhouse_smol::EventRef::Pool(
                            PoolEvent::PoolCleared { .. }
                                | PoolEvent::PoolReady { .. }
                                | PoolEvent::ConnectionClosed { .. }
                        )
                    )
                }));
                server.kill().expect("it is killed");
                watch.until_pool("PoolCleared", |event| matches!(event, PoolEvent::PoolCleared { .. })).await;
                eventually("its connections are closed", || {
                    client.servers().first().is_some_and(|server| server.pool.counts.total() == 0)
                })
                .await;
                server.restart().expect("it starts");
                let begun = Instant::now();
                watch.until_pool("PoolReady", |event| matches!(event, PoolEvent::PoolReady { .. })).await;
                load.more_successes(200).await;
                assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
                let names = watch.pool_names();
                assert_eq!(count(&names, "PoolCleared"), 1, "{mode:?} round {round}: {names:?}");
                assert_eq!(count(&names, "PoolReady"), 1, "{mode:?} round {round}: {names:?}");
                assert_eq!(count(&names, "ConnectionClosed"), 5, "{mode:?} round {round}: {names:?}");
            }
            let failed = load.end().await;
            assert!(failed > 0, "nobody noticed");
            at_rest(&server, &client, lines).await;
            client.close().await;
            server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        });
    }
}

/// When the monitor times out, operations in flight are interrupted, even without
/// their own deadline.
#[test]
#[doc(alias("CMAP-82", "CMAP-84", "MON-54"))]
fn frozen_server_interrupts_operations_in_flight() {
    for mode in [ServerMonitoringMode::Stream, ServerMonitoringMode::Poll] {
        run(async {
            let server = server();
            let mut options = options(&server);
            options.timeout = None;
            options.monitor.server_monitoring_mode = mode;
            options.monitor.heartbeat_frequency = Duration::from_millis(500);
            options.monitor.connect_timeout = Some(Duration::from_secs(2));
            options.pool.max_pool_size = 3;
            let client = client(options);
            ping(&client).await.expect("a ping");
            // Two connections are available for any caller; one is checked out and unused at the
            // moment.
            let two = [client.check_out().await, client.check_out().await];
            let mut idle = client.check_out().await.expect("a connection");
            drop(two);
            let mut watch = Watch::of(&client);
            // Two pings are in flight before the server freezes, and four wait.
            let pings = server.count_of("ping");
            server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(Duration::from_secs(600)));
            let tasks: Vec<_> = (0..6)
                .map(|_| {
                    let client = client.clone();
                    smol::spawn(async move { refused(ping(&client).await) })
                })
                .collect();
            server.wait_until(PATIENCE, |view| view.count_of("ping") == pings + 2).expect("two are in flight");
            eventually("the others wait", || {
                client.servers().first().is_some_and(|server| server.pool.counts.waiting == 4)
            })
            .await;
            server.freeze();
            let cleared = watch.until_pool("PoolCleared", |event| matches!(event, PoolEvent::PoolCleared { .. })).await;
            let PoolEvent::PoolCleared { interrupt_in_use_connections, cause, .. } = cleared else { unreachable!() };
            assert!(interrupt_in_use_connections);
            assert_eq!(cause, Some(Cause::NetworkTimeout));
            let sent = server.count_of("buildInfo");
            for _ in 0..2 {
                // Nothing was sent: the command may be tried on another connection (CMAP-84).
                let error = refused(idle.run_command("admin", bson::doc! { "buildInfo": 1 }).await);
                let cause = Some(Cause::NetworkTimeout);
                assert_eq!(error.check_out(), Some(&CheckOutError::PoolCleared { cause }));
                assert!(error.is_retryable());
            }
            drop(idle);
            // The tasks end while the server is frozen.
            let mut errors = Vec::new();
            for task in tasks {
                errors.push(operation(&task.await));
            }
            server.clear_fail_points();
            server.thaw();
            for error in &errors {
                // In flight, or waiting for a connection.
                assert!(matches!(error, OperationError::Interrupted(_) | OperationError::CheckOut(_)), "{error:?}");
            }
            assert_eq!(
                errors.iter().filter(|error| matches!(error, OperationError::Interrupted(_))).count(),
                2,
                "{errors:?}"
            );
            ping(&client).await.expect("a ping");
            assert_eq!(server.count_of("buildInfo"), sent, "nothing is sent on an interrupted connection");
            let lines = if mode == ServerMonitoringMode::Stream { 2 } else { 1 };
            at_rest(&server, &client, lines).await;
            watch.catch_up();
            for event in &watch.seen {
                if let Event::Pool(PoolEvent::ConnectionClosed { reason, .. }) = event {
                    assert!(matches!(reason, ClosedReason::Stale | ClosedReason::Error), "{reason:?}");
                }
            }
            client.close().await;
        });
    }
}

/// A server that starts after its client is found by the checks.
#[test]
fn server_that_starts_later_is_found() {
    run(async {
        let server = server();
        server.kill().expect("it is killed");
        let client = client(options(&server));
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { ping(&client).await })
            })
            .collect();
        eventually("they have begun", || client.servers().len() == 1).await;
        server.restart().expect("it starts");
        for task in waiting {
            task.await.expect("a ping");
        }
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

/// The pool is filled to minPoolSize in the background, and again after the
/// server was away.
#[test]
#[doc(alias("CMAP-54", "CMAP-57"))]
fn pool_is_filled_to_its_minimum_and_filled_again() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.min_pool_size = 4;
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        let client = client(options);
        let filled = || client.servers().first().is_some_and(|server| server.pool.counts.available == 4);
        eventually("the pool is filled", filled).await;
        let mut watch = Watch::of(&client);
        server.kill().expect("it is killed");
        watch.until_pool("PoolCleared", |event| matches!(event, PoolEvent::PoolCleared { .. })).await;
        server.restart().expect("it starts");
        watch.until_pool("PoolReady", |event| matches!(event, PoolEvent::PoolReady { .. })).await;
        eventually("the pool is filled again", filled).await;
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

/// Idle connections are closed after maxIdleTimeMS, without any call to the
/// client.
#[test]
#[doc(alias("CMAP-19", "CMAP-57"))]
fn idle_connections_are_closed_in_time() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_idle_time = Some(Duration::from_millis(50));
        let client = client(options);
        let guards = [client.check_out().await, client.check_out().await, client.check_out().await];
        assert!(guards.iter().all(Result::is_ok));
        let mut watch = Watch::of(&client);
        drop(guards);
        for _ in 0..3 {
            assert_eq!(watch.until_closed().await, ClosedReason::Idle);
        }
        server.wait_until(PATIENCE, |view| view.open_count() == 1).expect("only the monitor's is open");
        ping(&client).await.expect("a ping");
        client.close().await;
    });
}
