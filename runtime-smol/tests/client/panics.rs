//! Tasks that are dropped, and panics in the user's code.

use super::support::{PATIENCE, Watch, eventually, operation, options, refused, run, server};
use core::panic::AssertUnwindSafe;
use poolhouse_smol::Smol;
use poolhouse_smol::poolhouse_client as client;
use poolhouse_smol::poolhouse_client::{ClientOptions, Error};
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, PoolCounts, PoolState};
use poolhouse_smol::poolhouse_driver::{OperationError, Subscribers};
use poolhouse_tests::contract::hosted::{Panic, Probe};
use smol::future::FutureExt;

type Client = client::Client<Probe<Smol>>;

fn probed(options: ClientOptions) -> (Client, Probe<Smol>) {
    let probe = Probe::default();
    (Client::with_platform(probe.clone(), options, Subscribers::default()).expect("the options are right"), probe)
}

/// One attempt, without the client's own retry.
async fn ping(client: &Client) -> Result<(), client::Error> {
    client.check_out().await?.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

/// Subscriptions end, and closing returns at once, because the tasks have ended.
#[test]
fn client_without_its_executor_fails_waiters_and_closes() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let (client, probe) = probed(options);
        let mut held = client.check_out().await.expect("a connection");
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                smol::spawn(async move { refused(ping(&client).await) })
            })
            .collect();
        eventually("all wait", || client.servers().first().is_some_and(|server| server.pool.counts.waiting == 4)).await;
        let mut watch = Watch::over(client.subscribe());
        probe.drop_tasks();
        for task in waiting {
            assert_eq!(operation(&task.await), OperationError::Abandoned);
        }
        assert_eq!(operation(&refused(ping(&client).await)), OperationError::Abandoned);
        watch.read_to_the_end().await;
        held.run_command("admin", bson::doc! { "ping": 1 }).await.expect("its reply");
        drop(held);
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        client.close().await;
    });
}

#[test]
fn panic_while_connecting_fails_one_attempt() {
    run(async {
        let server = server();
        let (client, probe) = probed(options(&server));
        eventually("the server is known", || {
            client.servers().first().is_some_and(|server| server.pool.state == PoolState::Ready)
        })
        .await;
        for _ in 0..3 {
            probe.panic_next(Panic::Connect);
            let mut held = Vec::new();
            let error = loop {
                match client.check_out().await {
                    Ok(connection) => held.push(connection),
                    Err(error) => break error,
                }
            };
            let failed = CheckOutError::EstablishFailed { cause: Cause::Cancelled, overloaded: false };
            assert_eq!(error.check_out(), Some(&failed));
            held.push(client.check_out().await.expect("another connection"));
        }
        client.close().await;
    });
}

/// A check that panicked has failed; waiters are served by the next check.
#[test]
fn panic_in_a_check_fails_one_check() {
    run(async {
        let server = server();
        let probe = Probe::<Smol>::default();
        probe.panic_next(Panic::Connect);
        let client = Client::with_platform(probe.clone(), options(&server), Subscribers::default()).expect("a client");
        ping(&client).await.expect("a ping");
        assert!(!probe.is_panic_due());
        client.close().await;
    });
}

/// A panic in the user's code is propagated to the user; the connection is checked in and stays
/// usable.
#[test]
fn connection_is_checked_in_when_its_user_panics() {
    run(async {
        let server = server();
        let (client, _) = probed(options(&server));
        for outstanding in [false, true] {
            let work = client.with_connection(async |connection| -> Result<(), Error> {
                connection.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a ping");
                if outstanding {
                    let command = connection.run_command("admin", bson::doc! { "ping": 1 });
                    let _ = smol::future::poll_once(command).await;
                }
                panic!("as the test wants it");
            });
            assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
            // An outstanding reply is drained in the background.
            eventually("it is returned", || {
                let counts = client.servers()[0].pool.counts;
                counts == PoolCounts { available: 1, ..PoolCounts::default() }
            })
            .await;
        }
        assert_eq!(server.accepted_count(), 2, "the monitor's and one more");
        client.close().await;
    });
}
