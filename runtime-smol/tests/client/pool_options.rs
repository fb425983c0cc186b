//! Pool options that change while the client exists; connections established before they are
//! needed.

use super::support::{
    PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, refused, run, server,
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolCounts};
use poolhouse_smol::poolhouse_driver::{OperationError, SelectionRequest};
use poolhouse_smol::{Client, Error, PoolOptions};
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{FailPoint, FailPointMode};
use std::time::Instant;

fn reconfigure(client: &Client, options: PoolOptions) {
    client.core().reconfigure_pools(options.validate().expect("valid options"));
}

fn counts(client: &Client) -> PoolCounts {
    client.servers()[0].pool.counts
}

async fn warm_up(client: &Client, conns: Option<u32>, limit: Duration) -> Result<(), OperationError> {
    let deadline = client.now().saturating_add(limit);
    client.core().warm_up(&SelectionRequest::WRITE, conns, Some(deadline)).await
}

/// When the maximum is raised, waiters are served; when it is lowered, surplus connections
/// are closed at check-in.
#[test]
#[doc(alias = "CMAP-01")]
fn pool_grows_and_shrinks_while_it_is_used() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let client = client(options);
        let held = client.check_out().await.expect("a connection");
        let arrived = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..9)
            .map(|_| {
                let (client, arrived) = (client.clone(), Arc::clone(&arrived));
                smol::spawn(async move {
                    let mut guard = client.check_out().await?;
                    guard.run_command("admin", bson::doc! { "ping": 1 }).await?;
                    // Held until all connections are checked out.
                    arrived.fetch_add(1, Ordering::Relaxed);
                    eventually("ten connections", || arrived.load(Ordering::Relaxed) == 9).await;
                    Ok::<(), Error>(())
                })
            })
            .collect();
        eventually("all wait", || counts(&client).waiting == 9).await;
        reconfigure(&client, PoolOptions { max_pool_size: 10, max_connecting: 5, ..PoolOptions::DEFAULT });
        for task in waiting {
            task.await.expect("a connection");
        }
        assert_eq!(counts(&client).available, 9);
        reconfigure(&client, PoolOptions { max_pool_size: 3, ..PoolOptions::DEFAULT });
        assert_eq!(counts(&client), PoolCounts { available: 2, in_use: 1, ..PoolCounts::default() });
        reconfigure(&client, PoolOptions { max_pool_size: 2, min_pool_size: 2, ..PoolOptions::DEFAULT });
        drop(held);
        at_rest(&server, &client, 1).await;
        assert_eq!(counts(&client).available, 2);
        reconfigure(&client, PoolOptions { min_pool_size: 6, ..PoolOptions::DEFAULT });
        eventually("the pool is filled", || counts(&client).available == 6).await;
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

/// The number of workers follows the raised maxConnecting.
#[test]
#[doc(alias = "CMAP-05")]
fn more_connections_are_established_at_once_when_max_connecting_is_raised() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_connecting = 1;
        options.app_name = Some("slow".to_owned());
        let client = client(options);
        let held = client.check_out().await.expect("a connection");
        let hello = ["hello", "isMaster"];
        let point = FailPoint::new(FailPointMode::AlwaysOn, &hello).app_name("slow").block(Duration::from_secs(3600));
        server.set_fail_point(point);
        let before = server.accepted_count();
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { client.check_out_timeout(None).await.map(drop) })
            })
            .collect();
        // All wait for handshakes that do not end.
        eventually("one is established", || server.accepted_count() == before + 1).await;
        assert_eq!(counts(&client).pending, 1);
        reconfigure(&client, PoolOptions { max_connecting: 4, ..PoolOptions::DEFAULT });
        eventually("three more", || server.accepted_count() == before + 4).await;
        assert_eq!(counts(&client).pending, 4);
        client.close().await;
        for task in waiting {
            assert_eq!(refused(task.await).check_out(), Some(&CheckOutError::PoolClosed));
        }
        drop(held);
    });
}

/// Including servers that are discovered later.
#[test]
fn changed_options_apply_to_present_and_future_pools() {
    run(async {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(2).by_hand()).expect("the set starts");
        let mut options = poolhouse_smol::ClientOptions::parse(&set.uri()).expect("the string is right");
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        let client = client(options);
        reconfigure(&client, PoolOptions { min_pool_size: 2, ..PoolOptions::DEFAULT });
        let filled = |members: usize| {
            let servers = client.servers();
            servers.len() == members && servers.iter().all(|server| server.pool.counts.available == 2)
        };
        eventually("both are filled", || filled(2)).await;
        set.add(Default::default()).expect("it starts");
        set.settle();
        eventually("the third is filled", || filled(3)).await;
        client.close().await;
    });
}

#[test]
fn warm_up_establishes_the_requested_number() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.min_pool_size = 3;
        options.pool.max_pool_size = 8;
        let client = client(options);
        warm_up(&client, None, PATIENCE).await.expect("it is warm");
        assert!(counts(&client).available >= 3);
        warm_up(&client, Some(6), PATIENCE).await.expect("it is warm");
        assert!(counts(&client).available >= 6);
        let mut watch = Watch::of(&client);
        // A connection in use counts as established.
        let held = client.check_out().await.expect("a connection");
        warm_up(&client, Some(6), PATIENCE).await.expect("it is warm");
        assert_eq!(count(&watch.pool_names(), "ConnectionCreated"), 0);
        // The number is limited by maxPoolSize.
        warm_up(&client, Some(1_000_000), PATIENCE).await.expect("it is warm");
        assert_eq!(counts(&client).total(), 8);
        drop(held);
        at_rest(&server, &client, 1).await;
        assert_eq!(counts(&client).available, 8);
        client.close().await;
    });
}

#[test]
fn warm_up_ends_at_its_deadline() {
    run(async {
        let server = server();
        server.freeze();
        let client = client(options(&server));
        let begun = Instant::now();
        let error = warm_up(&client, Some(2), Duration::from_millis(100)).await.expect_err("nobody is there");
        assert!(matches!(error, OperationError::ServerSelection(_)), "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(100));
        server.thaw();
        ping(&client).await.expect("a ping");
        server.set_fail_point(
            FailPoint::new(FailPointMode::AlwaysOn, &["hello", "isMaster"]).block(Duration::from_secs(3600)),
        );
        let error = warm_up(&client, Some(3), Duration::from_millis(100)).await.expect_err("they hang");
        assert_eq!(error, OperationError::Timeout);
        let now = counts(&client);
        assert_eq!((now.available, now.in_use, now.waiting), (1, 0, 0), "it has nothing");
        client.close().await;
        let error = warm_up(&client, Some(3), PATIENCE).await.expect_err("closed");
        assert_eq!(operation(&Error::from(error)), OperationError::Closed);
    });
}
