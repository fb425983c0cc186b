//! Tasks that are dropped, and panics in the user's code.

use super::support::{PATIENCE, Watch, eventually, operation, options, refused, run, server};
use core::panic::AssertUnwindSafe;
use poolhouse_smol::poolhouse_client as client;
use poolhouse_smol::poolhouse_client::{ClientOptions, Error};
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, ClosedReason, PoolCounts, PoolEvent, PoolState};
use poolhouse_smol::poolhouse_driver::{OperationError, Subscribers};
use poolhouse_smol::{Event, EventRef, Notice, Smol};
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

/// A panic in the user's code is propagated to the user.
#[test]
fn connection_whose_user_panics_is_closed() {
    run(async {
        let server = server();
        let (client, _) = probed(options(&server));
        let mut closes =
            client.subscribe_where(|event| matches!(event, EventRef::Pool(PoolEvent::ConnectionClosed { .. })));
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
            assert_eq!(client.servers()[0].pool.counts, PoolCounts::default(), "outstanding: {outstanding}");
            let Some(Notice::Event { event: Event::Pool(event), .. }) = closes.try_next() else {
                panic!("it is closed")
            };
            let PoolEvent::ConnectionClosed { reason, cause, .. } = event else { panic!("{event:?}") };
            assert_eq!((reason, cause), (ClosedReason::Error, Some(Cause::Panicked)));
        }
        ping(&client).await.expect("another connection");
        assert_eq!(server.accepted_count(), 4, "the monitor's and three more");
        client.close().await;
    });
}

/// The next owner waits while the connection is in use.
#[test]
fn waiter_gets_another_connection_when_the_owner_panics() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_pool_size = 1;
        let (client, _) = probed(options);
        let held = client.check_out().await.expect("a connection");
        let first = held.connection_id();
        let waiting = smol::spawn({
            let client = client.clone();
            async move { client.check_out().await.map(|connection| connection.connection_id()) }
        });
        eventually("it waits", || client.servers()[0].pool.counts.waiting == 1).await;
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let _held = held;
            panic!("as the test wants it");
        }));
        assert!(panicked.is_err());
        assert_ne!(waiting.await.expect("another connection"), first);
        client.close().await;
    });
}

/// A destructor that runs while its thread unwinds has not panicked itself, but its connection is closed too.
#[test]
fn destructor_can_use_a_connection_while_its_thread_unwinds() {
    struct Pings(Client);

    impl Drop for Pings {
        fn drop(&mut self) {
            smol::block_on(ping(&self.0)).expect("a ping");
        }
    }

    run(async {
        let server = server();
        let (client, _) = probed(options(&server));
        ping(&client).await.expect("a ping");
        let pings = Pings(client.clone());
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let _pings = pings;
            panic!("as the test wants it");
        }));
        assert!(panicked.is_err());
        assert_eq!(client.servers()[0].pool.counts, PoolCounts::default());
        ping(&client).await.expect("another connection");
        client.close().await;
    });
}
