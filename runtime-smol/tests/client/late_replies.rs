//! Replies that arrive after their operation has ended: the connection is kept if they arrive
//! within the drain timeout.

use super::support::{
    DropIt, PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, poll_times, refused, run,
    server,
};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::{ClosedReason, PoolEvent};
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, Error, Event};
use poolhouse_tests::fake::{Cut, FailPoint, FailPointMode, FakeServer, Fault, FaultRule};
use std::time::Instant;

/// Longer than any test may take: an earlier end has another cause.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Time until a late reply arrives.
const LATE: Duration = Duration::from_millis(1500);
/// Time until its operation ends.
const SOON: Duration = Duration::from_millis(200);

/// At most one connection, with this drain timeout.
fn one(server: &FakeServer, drain_timeout: Duration) -> ClientOptions {
    let mut options = options(server);
    options.pool.max_pool_size = 1;
    options.drain_timeout = drain_timeout;
    options
}

/// Makes the server answer this many pings late.
fn answer_late(server: &FakeServer, pings: u32, late: Duration) {
    server.set_fail_point(FailPoint::new(FailPointMode::Times(pings), &["ping"]).block(late));
}

async fn ping_within(client: &Client, limit: Duration) -> Result<(), Error> {
    client.check_out_timeout(Some(limit)).await?.run_command("admin", bson::doc! { "ping": 1 }).await.map(drop)
}

/// The id of the connection of the next operation. Checks that the operation receives the reply to
/// its own request.
async fn next_connection(client: &Client) -> u64 {
    let mut guard = client.check_out().await.expect("a connection");
    let reply = guard.run_command("admin", bson::doc! { "buildInfo": 1 }).await.expect("a reply");
    assert!(reply.contains_key("version"), "not the reply to buildInfo: {reply}");
    guard.connection_id()
}

#[test]
fn connection_of_a_timed_out_operation_is_reused_after_its_late_reply() {
    run(async {
        let server = server();
        let client = client(one(&server, PATIENCE));
        let id = next_connection(&client).await;
        let mut watch = Watch::of(&client);
        for round in 1..=3 {
            answer_late(&server, 1, LATE);
            assert_eq!(operation(&refused(ping_within(&client, SOON).await)), OperationError::Timeout);
            let counts = client.servers()[0].pool.counts;
            assert_eq!((counts.in_use, counts.available), (1, 0), "round {round}: it is in use until it is clean");
            assert_eq!(next_connection(&client).await, id, "round {round}");
        }
        at_rest(&server, &client, 1).await;
        assert_eq!(server.accepted_count(), 2);
        let names = watch.pool_names();
        assert_eq!(count(&names, "ConnectionClosed"), 0);
        assert_eq!(count(&names, "ConnectionCheckedOut"), 6);
        assert_eq!(count(&names, "ConnectionCheckedIn"), 6);
        client.close().await;
    });
}

/// For each part of the reply that has arrived: nothing, or a part that the cancelled operation has
/// read.
#[test]
fn connection_of_a_cancelled_operation_is_reused_after_its_late_reply() {
    run(async {
        let server = server();
        let client = client(one(&server, PATIENCE));
        let id = next_connection(&client).await;
        answer_late(&server, 1, LATE);
        assert!(poll_times(ping(&client), 1, DropIt::AtOnce).is_none());
        assert_eq!(next_connection(&client).await, id);
        server.inject(FaultRule::once(Fault::Trickle { gap: Duration::from_millis(50) }).on_command("ping"));
        assert!(poll_times(ping(&client), 3, DropIt::WhenWoken).is_none(), "the reply came byte by byte");
        assert_eq!(next_connection(&client).await, id);
        at_rest(&server, &client, 1).await;
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

#[test]
fn connection_that_has_refused_a_command_is_reused_after_its_late_reply() {
    run(async {
        let server = server();
        let client = client(one(&server, PATIENCE));
        let id = next_connection(&client).await;
        answer_late(&server, 1, LATE);
        let mut connection = client.check_out().await.expect("a connection");
        assert!(poll_times(connection.run_command("admin", bson::doc! { "ping": 1 }), 1, DropIt::AtOnce).is_none());
        let second = connection.run_command("admin", bson::doc! { "ping": 1 }).await;
        assert_eq!(operation(&refused(second)), OperationError::Broken(Cause::Cancelled));
        drop(connection);
        assert_eq!(next_connection(&client).await, id);
        client.close().await;
    });
}

#[test]
fn connection_without_a_reply_within_the_drain_timeout_is_closed() {
    run(async {
        let server = server();
        let client = client(one(&server, LATE));
        let id = next_connection(&client).await;
        let mut watch = Watch::of(&client);
        server.inject(FaultRule::once(Fault::Silence).on_command("ping"));
        let begun = Instant::now();
        assert_eq!(operation(&refused(ping_within(&client, SOON).await)), OperationError::Timeout);
        assert_eq!(watch.until_closed().await, ClosedReason::Error);
        assert!(begun.elapsed() >= SOON + LATE, "{:?}", begun.elapsed());
        assert_ne!(next_connection(&client).await, id);
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

#[test]
fn connection_is_closed_at_once_without_a_drain_timeout() {
    run(async {
        let server = server();
        let client = client(one(&server, Duration::ZERO));
        let id = next_connection(&client).await;
        let mut watch = Watch::of(&client);
        answer_late(&server, 1, FOR_EVER);
        assert!(poll_times(ping(&client), 1, DropIt::AtOnce).is_none());
        let counts = client.servers()[0].pool.counts;
        assert_eq!((counts.in_use, counts.available), (0, 0));
        assert_eq!(watch.until_closed().await, ClosedReason::Error);
        assert_ne!(next_connection(&client).await, id);
        client.close().await;
    });
}

/// The server cannot answer a request that it received only in part: nothing is drained.
#[test]
fn connection_of_a_partly_sent_request_is_closed_at_once() {
    run(async {
        let server = server();
        let client = client(one(&server, FOR_EVER));
        next_connection(&client).await;
        let mut watch = Watch::of(&client);
        server.freeze();
        let mut guard = client.check_out_timeout(Some(LATE)).await.expect("a connection");
        // More bytes than socket buffers hold when the peer does not read.
        let bytes = vec![0; 15 << 20];
        let large = bson::doc! { "ping": 1, "x": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes } };
        assert_eq!(operation(&refused(guard.run_command("admin", large).await)), OperationError::Timeout);
        drop(guard);
        assert_eq!(client.servers()[0].pool.counts.in_use, 0);
        assert_eq!(watch.until_closed().await, ClosedReason::Error);
        server.thaw();
        next_connection(&client).await;
        client.close().await;
    });
}

#[test]
fn many_late_replies_at_once_lose_no_connection() {
    const OPERATIONS: usize = 40;
    run(async {
        let server = server();
        let mut options = options(&server);
        options.drain_timeout = PATIENCE;
        options.pool.max_pool_size = u32::try_from(OPERATIONS).expect("few");
        options.pool.max_connecting = 8;
        let client = client(options);
        let mut guards = Vec::new();
        for _ in 0..OPERATIONS {
            guards.push(client.check_out().await.expect("a connection"));
        }
        drop(guards);
        let mut watch = Watch::of(&client);
        answer_late(&server, u32::try_from(OPERATIONS).expect("few"), LATE);
        let tasks: Vec<_> = (0..OPERATIONS)
            .map(|task| {
                let client = client.clone();
                // Some operations exceed their limit, the others are dropped.
                smol::spawn(async move {
                    if task.is_multiple_of(2) {
                        drop(refused(ping_within(&client, SOON).await));
                    } else {
                        let limit = async {
                            smol::Timer::after(SOON).await;
                            Ok(())
                        };
                        drop(smol::future::or(ping(&client), limit).await);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        at_rest(&server, &client, 1).await;
        let counts = client.servers()[0].pool.counts;
        assert_eq!(counts.available as usize, OPERATIONS);
        assert_eq!(server.accepted_count(), 1 + u64::try_from(OPERATIONS).expect("few"));
        assert_eq!(count(&watch.pool_names(), "ConnectionClosed"), 0);
        let again: Vec<_> = (0..OPERATIONS).map(|_| next_connection(&client)).collect();
        for one in again {
            one.await;
        }
        client.close().await;
    });
}

/// Closing does not drain, and a connection that is checked in to a closed pool is closed
/// with that reason.
#[test]
#[doc(alias = "CMAP-37")]
fn close_ends_draining() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.drain_timeout = FOR_EVER;
        let client = client(options);
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(client.check_out().await.expect("a connection"));
        }
        drop(guards);
        let mut watch = Watch::of(&client);
        answer_late(&server, 3, FOR_EVER);
        let pings: Vec<_> = (0..3).map(|_| ping_within(&client, SOON)).collect();
        for each in pings {
            assert_eq!(operation(&refused(each.await)), OperationError::Timeout);
        }
        client.close().await;
        let closed: Vec<_> = watch
            .read_to_the_end()
            .await
            .iter()
            .filter_map(|event| {
                if let Event::Pool(PoolEvent::ConnectionClosed { reason, .. }) = event { Some(*reason) } else { None }
            })
            .collect();
        assert_eq!(closed, [ClosedReason::PoolClosed; 3]);
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
    });
}

/// An operation that is in flight when the client is closed, and dropped later.
#[test]
fn operation_cancelled_after_the_close_leaves_no_connection() {
    run(async {
        let server = server();
        let client = client(one(&server, FOR_EVER));
        next_connection(&client).await;
        answer_late(&server, 1, FOR_EVER);
        let mut guard = client.check_out().await.expect("a connection");
        {
            let mut pinging = Box::pin(guard.run_command("admin", bson::doc! { "ping": 1 }));
            assert!(poll_times(&mut pinging, 1, DropIt::AtOnce).is_none());
            client.close().await;
        }
        drop(guard);
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
    });
}

/// The server's monitor times out while the reply is drained.
#[test]
#[doc(alias = "CMAP-82")]
fn draining_is_interrupted_with_the_connections_in_use() {
    run(async {
        let server = server();
        let mut options = one(&server, FOR_EVER);
        options.monitor.connect_timeout = Some(Duration::from_millis(500));
        let client = client(options);
        // On a machine that stalls, an attempt to connect may exceed its limit.
        while client.check_out().await.is_err() {}
        let id = next_connection(&client).await;
        let mut watch = Watch::of(&client);
        server.inject(FaultRule::once(Fault::Silence).on_command("ping"));
        // The limit may also pass before the ping is sent: then no reply is drained.
        while client.servers()[0].pool.counts.in_use == 0 {
            assert_eq!(operation(&refused(ping_within(&client, SOON).await)), OperationError::Timeout);
        }
        server.freeze();
        client.core().request_check();
        assert!(matches!(watch.until_closed().await, ClosedReason::Stale | ClosedReason::Error));
        server.thaw();
        while client.check_out().await.is_err() {}
        assert_ne!(next_connection(&client).await, id);
        at_rest(&server, &client, 1).await;
        client.close().await;
    });
}

/// Bytes other than the reply close the connection, and do not change the server's description.
#[test]
fn invalid_or_truncated_late_reply_closes_the_connection() {
    run(async {
        let server = server();
        let client = client(one(&server, FOR_EVER));
        let faults =
            [Fault::WrongResponseTo, Fault::Garbage(vec![0xff; 64]), Fault::CutStream { after_bytes: 1, by: Cut::Fin }];
        for fault in faults {
            let id = next_connection(&client).await;
            let mut watch = Watch::of(&client);
            answer_late(&server, 1, LATE);
            server.inject(FaultRule::once(fault.clone()).on_command("ping"));
            assert_eq!(operation(&refused(ping_within(&client, SOON).await)), OperationError::Timeout);
            assert_eq!(watch.until_closed().await, ClosedReason::Error, "{fault:?}");
            assert_ne!(next_connection(&client).await, id, "{fault:?}");
            eventually("one connection", || server.open_count() == 2).await;
        }
        assert_eq!(client.servers()[0].pool.generation, 0);
        client.close().await;
    });
}
