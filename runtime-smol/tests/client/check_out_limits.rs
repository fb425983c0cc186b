//! How long an operation waits for a connection when all are in use (CMAP-28).

use super::support::{PATIENCE, client, refused, run, server};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::CheckOutError;
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Connection, Error, ServerMonitoringMode};
use poolhouse_tests::fake::FakeServer;
use smol::future::FutureExt;
use std::time::Instant;

const LIMIT: Duration = Duration::from_millis(100);

/// A client of one connection.
fn narrow(server: &FakeServer, rest: &str) -> Client {
    let uri = format!("mongodb://{}/?maxPoolSize=1&{rest}", server.address());
    let mut options = ClientOptions::parse(&uri).expect("the string is right");
    assert!(options.warnings.is_empty(), "{:?}", options.warnings);
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    client(options)
}

/// Checks out the only connection, however long it takes to establish it.
async fn take(client: &Client) -> Connection<'_> {
    let begun = Instant::now();
    loop {
        match client.check_out().await {
            Ok(connection) => return connection,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Checks that a call fails because no connection is available, and after the limit.
async fn fails_at_the_limit<T: core::fmt::Debug>(what: &str, call: impl Future<Output = Result<T, Error>>) {
    let begun = Instant::now();
    let error = refused(call.await);
    assert_eq!(error.check_out(), Some(&CheckOutError::WaitQueueTimeout { usage: None }), "{what}");
    assert!(error.is_timeout() && begun.elapsed() >= LIMIT, "{what}: {:?}", begun.elapsed());
}

async fn ping_with(client: &Client, options: CommandOptions<'_>) -> Result<bson::Document, Error> {
    client.run_command_with("admin", bson::doc! { "ping": 1 }, options).await
}

/// A test that waits longer than its limit ends by the limit of [`run`], which is far below these
/// minutes.
const MINUTES: Duration = Duration::from_secs(600);

#[test]
#[doc(alias = "CMAP-28")]
fn with_a_timeout_a_check_out_ends_at_the_server_selection_timeout() {
    run(async {
        let server = server();
        let client = narrow(&server, "timeoutMS=600000&serverSelectionTimeoutMS=100");
        let held = take(&client).await;
        fails_at_the_limit("check_out", async { client.check_out().await.map(drop) }).await;
        fails_at_the_limit("with its own", async { client.check_out_timeout(Some(MINUTES)).await.map(drop) }).await;
        fails_at_the_limit("run_command", ping_with(&client, CommandOptions::new())).await;
        fails_at_the_limit("with its own", ping_with(&client, CommandOptions::new().timeout(MINUTES))).await;
        drop(held);
        client.close().await;
        // The limit of an operation counts even if the client has none.
        let client = narrow(&server, "serverSelectionTimeoutMS=100&waitQueueTimeoutMS=600000");
        let held = take(&client).await;
        fails_at_the_limit("with its own", ping_with(&client, CommandOptions::new().timeout(MINUTES))).await;
        drop(held);
        client.close().await;
        // A timeout that never ends also counts.
        let client = narrow(&server, "timeoutMS=600000&serverSelectionTimeoutMS=100&waitQueueTimeoutMS=1");
        let held = take(&client).await;
        fails_at_the_limit("longest", ping_with(&client, CommandOptions::new().timeout(Duration::MAX))).await;
        drop(held);
        client.close().await;
    });
}

#[test]
#[doc(alias = "CMAP-28")]
fn with_a_timeout_the_wait_queue_timeout_does_not_apply() {
    run(async {
        let server = server();
        let client = narrow(&server, "timeoutMS=600000&serverSelectionTimeoutMS=600000&waitQueueTimeoutMS=1");
        let held = take(&client).await;
        let patient = async {
            let outcome = ping_with(&client, CommandOptions::new()).await;
            assert!(server.count_of("ping") > 0, "it ended before it was sent: {outcome:?}");
        };
        let mut patient = core::pin::pin!(patient);
        let later = async {
            smol::Timer::after(LIMIT).await;
        };
        patient.as_mut().or(later).await;
        drop(held);
        patient.await;
        client.close().await;
    });
}

#[test]
#[doc(alias("CMAP-06", "CMAP-28", "CMAP-99"))]
fn without_a_timeout_the_wait_queue_timeout_applies() {
    run(async {
        let server = server();
        let client = narrow(&server, "waitQueueTimeoutMS=100");
        let held = take(&client).await;
        fails_at_the_limit("check_out", async { client.check_out().await.map(drop) }).await;
        fails_at_the_limit("run_command", ping_with(&client, CommandOptions::new())).await;
        let text = refused(client.check_out().await).to_string();
        let fixed = "Timed out while checking out a connection from connection pool";
        let use_of_the_pool = "maxPoolSize 1, 1 in use, 0 being established, 0 others waiting";
        assert_eq!(text, format!("{}: {fixed}: {use_of_the_pool}", server.address()), "CMAP-99");
        drop(held);
        client.close().await;
        // A check-out without a deadline also ends at the wait queue timeout.
        let client = narrow(&server, "waitQueueTimeoutMS=100&timeoutMS=600000&serverSelectionTimeoutMS=600000");
        let held = take(&client).await;
        fails_at_the_limit("none", async { client.check_out_timeout(None).await.map(drop) }).await;
        drop(held);
        client.close().await;
    });
}
