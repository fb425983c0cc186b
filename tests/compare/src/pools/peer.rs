//! The common interface of all pools.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::time::Instant;

/// Time limit of a check-out, in the pools with a limit; no wait gets close to it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A pool with connections that do nothing, all of them established.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    /// A connection that is checked out; dropping it returns it.
    type Held<'a>: Send
    where
        Self: 'a;

    /// A check-out as an application writes it.
    fn get(&self) -> impl Future<Output = Self::Held<'_>> + Send;
}

/// Check-out and check-in while a connection is available. If a background task still returns it,
/// this waits for that.
pub(crate) fn once<P: Peer>(pool: &P) {
    let mut future = pin!(pool.get());
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(held) => drop(held),
        Poll::Pending => drop(smol::future::block_on(future)),
    }
}

/// Check-out, one turn of the executor with the connection, check-in, and one turn without it.
/// Returns the duration of the check-out, and when it ended.
pub(crate) async fn cycle<P: Peer>(pool: &P) -> (Duration, Instant) {
    let start = Instant::now();
    let held = pool.get().await;
    let granted = Instant::now();
    smol::future::yield_now().await;
    drop(held);
    smol::future::yield_now().await;
    (granted - start, granted)
}

/// Creates all connections in pools that create them on demand.
pub(crate) async fn warm<P: Peer>(pool: &P, connections: usize) {
    let mut held = Vec::with_capacity(connections);
    for _ in 0..connections {
        held.push(pool.get().await);
    }
}
