//! Poolhouse on smol.

use super::{LastOf, PATIENCE};
use crate::measure::Waits;
use core::net::SocketAddr;
use core::task::{Context, Waker};
use core::time::Duration;
use poolhouse_exchange::mongo;
use poolhouse_smol::poolhouse_core::pool::PoolState;
use poolhouse_smol::{Client, ClientOptions};
use std::time::Instant;

/// A client with a known server and a ready pool of at least `min` connections.
async fn ready(server: SocketAddr, min: u32, max: u32) -> Client {
    let options = ClientOptions::new(server.to_string()).max_pool_size(max).min_pool_size(min);
    let (client, mut events) = Client::new_subscribed(options).expect("valid options");
    let is_ready = || client.servers().first().is_some_and(|server| server.pool.state == PoolState::Ready);
    while !is_ready() {
        events.next().await.expect("the client is open");
    }
    client
}

/// A burst of tasks. Returns the duration of each check-out, and of each operation including it.
pub(super) async fn burst(server: SocketAddr, tasks: usize, max: u32, warm: bool) -> [Vec<Duration>; 2] {
    let client = ready(server, if warm { max } else { 0 }, max).await;
    if warm {
        client.warm_up(PATIENCE).await.expect("a server that answers");
    }
    let (last, all_done) = LastOf::new(tasks);
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (client, last) = (client.clone(), last.clone());
            smol::spawn(async move {
                let begun = Instant::now();
                let mut connection = client.check_out().await.expect("a connection");
                let granted = begun.elapsed();
                let ping = connection.raw().run_command("admin", |body| body.int32("ping", 1).map(drop)).await;
                assert!(!ping.expect("answered").is_empty());
                let done = start.elapsed();
                drop(connection);
                last.is_done();
                (granted, done)
            })
        })
        .collect();
    all_done.recv().await.expect("the last task sends a message");
    let mut times = [Vec::new(), Vec::new()];
    for task in running {
        let (granted, done) = task.await;
        times[0].push(granted);
        times[1].push(done);
    }
    client.close().await;
    times
}

/// Cancels this number of check-outs on a pool of one connection, which is in use. Returns the
/// duration of the next operation after the connection is returned.
pub(super) async fn after_abandoned(server: SocketAddr, count: usize) -> Duration {
    let client = ready(server, 0, 1).await;
    let held = client.check_out().await.expect("a connection");
    for _ in 0..count {
        let mut waiting = Box::pin(client.check_out());
        assert!(
            waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "the connection is in use"
        );
        drop(waiting);
    }
    drop(held);
    let start = Instant::now();
    mongo::ping(&client).await;
    let took = start.elapsed();
    client.close().await;
    took
}

/// The time from the creation of a client to the end of its first ping.
pub(super) async fn cold(server: SocketAddr) -> Duration {
    let start = Instant::now();
    let client = Client::with_options(ClientOptions::new(server.to_string())).expect("valid options");
    mongo::ping(&client).await;
    let took = start.elapsed();
    client.close().await;
    took
}

/// Lets this number of tasks ping for this time.
pub(super) async fn fair(server: SocketAddr, tasks: usize, connections: u32, turn: Duration) -> Vec<Waits> {
    let options = ClientOptions::new(server.to_string());
    let client: Client = mongo::warm_client(options, connections, None).await;
    let end = Instant::now() + turn;
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let client = client.clone();
            smol::spawn(async move {
                let mut waits = Waits::new();
                loop {
                    let begun = Instant::now();
                    mongo::ping(&client).await;
                    let done = Instant::now();
                    // The wait that exceeds the turn is the last one, and is counted like the
                    // others.
                    waits.add(done - begun);
                    if done >= end {
                        return waits;
                    }
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in running {
        all.push(task.await);
    }
    client.close().await;
    all
}
