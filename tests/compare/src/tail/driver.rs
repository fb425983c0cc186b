//! The official driver on tokio.

use super::{LastOf, PATIENCE};
use crate::clients::official;
use crate::measure::Waits;
use core::net::SocketAddr;
use core::task::{Context, Waker};
use core::time::Duration;
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use smol::channel::{Receiver, unbounded};
use std::time::Instant;

/// An observed event of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Ready,
    Asked,
    /// A check-out succeeded, after this duration.
    Out(Duration),
}

/// A client with a known server and a ready pool of at least `min` connections, and the events of
/// the pool.
async fn ready(server: SocketAddr, min: u32, max: u32) -> (Client, Receiver<Seen>) {
    let (put, seen) = unbounded();
    let mut options = official(server);
    (options.min_pool_size, options.max_pool_size) = (Some(min), Some(max));
    options.cmap_event_handler = Some(EventHandler::callback(move |event| {
        #[allow(clippy::wildcard_enum_match_arm, reason = "other events do not affect the measurement")]
        let what = match event {
            CmapEvent::PoolReady(_) => Seen::Ready,
            CmapEvent::ConnectionCheckoutStarted(_) => Seen::Asked,
            CmapEvent::ConnectionCheckedOut(event) => Seen::Out(event.duration),
            _ => return,
        };
        // The receiver may be dropped already.
        let _ = put.try_send(what);
    }));
    let client = Client::with_options(options).expect("valid options");
    // A client discovers its server from its creation on.
    until(&seen, |what| what == Seen::Ready).await;
    (client, seen)
}

async fn until(seen: &Receiver<Seen>, wanted: impl Fn(Seen) -> bool) {
    let found =
        tokio::time::timeout(PATIENCE, async { while !wanted(seen.recv().await.expect("the client is open")) {} });
    found.await.expect("the event occurs in time");
}

async fn ping(client: &Client) {
    let reply = client.database("admin").run_command(doc! { "ping": 1 }).await.expect("answered");
    assert!(reply.contains_key("ok"));
}

/// A burst of tasks. Returns the duration of each check-out, and of each operation including it.
pub(super) async fn burst(server: SocketAddr, tasks: usize, max: u32, warm: bool) -> [Vec<Duration>; 2] {
    let (client, seen) = ready(server, if warm { max } else { 0 }, max).await;
    if warm {
        client.warm_connection_pool().await;
    }
    while seen.try_recv().is_ok() {}
    let (last, all_done) = LastOf::new(tasks);
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (client, last) = (client.clone(), last.clone());
            tokio::spawn(async move {
                ping(&client).await;
                let done = start.elapsed();
                last.is_done();
                done
            })
        })
        .collect();
    all_done.recv().await.expect("the last task sends a message");
    let mut done = Vec::new();
    for task in running {
        done.push(task.await.expect("no panic"));
    }
    let granted = core::iter::from_fn(|| seen.try_recv().ok()).filter_map(|what| match what {
        Seen::Out(took) => Some(took),
        Seen::Ready | Seen::Asked => None,
    });
    let granted: Vec<Duration> = granted.collect();
    client.shutdown().await;
    [granted, done]
}

/// Cancels this number of check-outs on a pool of one connection, which is in use. Returns the
/// duration of the next operation after the connection is returned.
///
/// The connection is in use by a ping, to which the server delays its reply.
pub(super) async fn after_abandoned(server: SocketAddr, count: usize) -> Duration {
    let (client, seen) = ready(server, 0, 1).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { ping(&client).await }
    });
    until(&seen, |what| matches!(what, Seen::Out(_))).await;
    for _ in 0..count {
        let waiting = client.clone();
        let mut waiting = Box::pin(async move { ping(&waiting).await });
        // The driver requests a connection from its pool within a few polls.
        loop {
            assert!(
                waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
                "the connection is in use"
            );
            if seen.try_recv() == Ok(Seen::Asked) {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(waiting);
    }
    assert!(!first.is_finished(), "the server delays the reply for long enough");
    first.await.expect("no panic");
    let start = Instant::now();
    ping(&client).await;
    let took = start.elapsed();
    client.shutdown().await;
    took
}

/// The time from the creation of a client to the end of its first ping.
pub(super) async fn cold(server: SocketAddr) -> Duration {
    let start = Instant::now();
    let client = Client::with_options(official(server)).expect("valid options");
    ping(&client).await;
    let took = start.elapsed();
    client.shutdown().await;
    took
}

/// Lets this number of tasks ping for this time.
pub(super) async fn fair(server: SocketAddr, tasks: usize, connections: u32, turn: Duration) -> Vec<Waits> {
    let (client, _seen) = ready(server, connections, connections).await;
    client.warm_connection_pool().await;
    let end = Instant::now() + turn;
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut waits = Waits::new();
                loop {
                    let begun = Instant::now();
                    ping(&client).await;
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
        all.push(task.await.expect("no panic"));
    }
    client.shutdown().await;
    all
}
