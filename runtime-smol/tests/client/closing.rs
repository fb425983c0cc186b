//! The end of a client.

use super::support::{PATIENCE, UNASKED, Watch, client, eventually, operation, options, ping, refused, run, server};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolState};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, Event, PoolSnapshot, ServerMonitoringMode};
use poolhouse_tests::fake::{FakeServer, Fault, FaultRule};
use std::time::Instant;

fn streaming(server: &FakeServer) -> Client {
    let mut options = options(server);
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Stream;
    // No time limit may end the calls instead of the close.
    options.monitor.connect_timeout = Some(UNASKED);
    client(options)
}

/// Closes the client. Checks that it did not wait for a distant timer and left no connection.
async fn closes_promptly(server: &FakeServer, client: &Client) {
    let begun = Instant::now();
    client.close().await;
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
    let is_closed = |pool: PoolSnapshot| pool.state == PoolState::Closed && pool.counts.total() == 0;
    assert!(client.servers().first().is_none_or(|server| is_closed(server.pool)));
}

/// Closing does not wait for the reply to the monitor's awaitable hello, which would arrive
/// in two minutes.
#[test]
#[doc(alias = "MON-49")]
fn close_interrupts_an_awaited_check() {
    run(async {
        let server = server();
        let client = streaming(&server);
        ping(&client).await.expect("a ping");
        server.wait_until(PATIENCE, |view| view.exhausting_count() == 1).expect("a check waits");
        let mut watch = Watch::of(&client);
        closes_promptly(&server, &client).await;
        watch.read_to_the_end().await;
    });
}

#[test]
fn close_interrupts_dials_handshakes_and_awaited_checks() {
    run(async {
        let server = server();
        // At the very beginning.
        closes_promptly(&server, &streaming(&server)).await;
        // While every handshake hangs.
        server.freeze();
        let client = streaming(&server);
        let waiting = smol::spawn({
            let client = client.clone();
            async move { refused(ping(&client).await) }
        });
        smol::future::yield_now().await;
        closes_promptly_frozen(&client).await;
        assert_eq!(operation(&waiting.await), OperationError::Closed);
        server.thaw();
        // While a connection of the pool hangs in its handshake.
        let client = streaming(&server);
        eventually("the server is known", || {
            client.servers().first().is_some_and(|server| server.pool.state == PoolState::Ready)
        })
        .await;
        server.wait_until(PATIENCE, |view| view.exhausting_count() == 1 && view.open_count() == 2).expect("it streams");
        server.inject(FaultRule::always(Fault::Silence));
        let waiting = smol::spawn({
            let client = client.clone();
            async move { refused(ping(&client).await) }
        });
        server.wait_until(PATIENCE, |view| view.open_count() == 3).expect("it dials");
        closes_promptly(&server, &client).await;
        let error = waiting.await;
        assert_eq!(error.check_out(), Some(&CheckOutError::PoolClosed));
    });
}

async fn closes_promptly_frozen(client: &Client) {
    let begun = Instant::now();
    client.close().await;
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn closed_client_refuses_operations_and_can_be_closed_again() {
    run(async {
        let server = server();
        let client = client(options(&server));
        ping(&client).await.expect("a ping");
        let other = client.clone();
        // Both return only when the tasks have ended.
        let ((), ()) = smol::future::zip(client.close(), other.close()).await;
        assert!(client.core().is_closed());
        client.close().await;
        assert_eq!(operation(&refused(ping(&client).await)), OperationError::Closed);
        assert_eq!(operation(&refused(client.check_out_timeout(None).await)), OperationError::Closed);
        client.core().request_check();
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        assert_eq!(server.accepted_count(), 2);
    });
}

/// Nothing will ever happen again: a subscription ends at once.
#[test]
fn subscription_to_a_closed_client_ends_at_once() {
    run(async {
        let server = server();
        let client = client(options(&server));
        ping(&client).await.expect("a ping");
        client.close().await;
        let mut late = client.subscribe();
        let next = async { Some(late.next().await.is_none()) };
        let limit = async {
            smol::Timer::after(PATIENCE).await;
            None
        };
        assert_eq!(smol::future::or(next, limit).await, Some(true));
    });
}

#[test]
fn dropped_client_closes_connections_and_ends_subscriptions() {
    run(async {
        let server = server();
        let client = streaming(&server);
        let clone = client.clone();
        ping(&client).await.expect("a ping");
        server.wait_until(PATIENCE, |view| view.exhausting_count() == 1).expect("a check waits");
        let mut watch = Watch::of(&client);
        drop(client);
        // A clone remains usable.
        ping(&clone).await.expect("a ping");
        drop(clone);
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        let seen = watch.read_to_the_end().await;
        assert!(super::support::pool_names(seen).contains(&"PoolClosed"));
    });
}

/// Many clients of one process, created and closed while they work.
#[test]
fn clients_are_created_and_closed_under_load() {
    run(async {
        let server = server();
        for round in 0..30 {
            let client = streaming(&server);
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    let client = client.clone();
                    smol::spawn(async move { while let Ok(()) = ping(&client).await {} })
                })
                .collect();
            if round % 3 > 0 {
                let from = server.count_of("ping");
                server.wait_until(PATIENCE, |view| view.count_of("ping") > from).expect("it works");
            }
            client.close().await;
            for task in tasks {
                task.await;
            }
            drop(client);
        }
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
    });
}

/// A monitor between two checks has no connection to close, and still ends.
#[test]
fn close_ends_a_monitor_that_waits_for_its_next_check() {
    run(async {
        let server = server();
        server.refuse().expect("it refuses");
        let (client, subscription) = Client::new_subscribed(options(&server)).expect("the options are right");
        let mut watch = Watch::over(subscription);
        watch
            .until("a check that failed", |event| {
                matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatFailed { .. }))
            })
            .await;
        // Time for its task to start waiting. Without it the test would prove less; its result does
        // not depend on it.
        smol::Timer::after(Duration::from_millis(50)).await;
        closes_promptly(&server, &client).await;
    });
}
