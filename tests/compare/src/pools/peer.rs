//! What all pools are seen as here.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::time::Instant;

/// How long a check-out may wait, where it is limited; nobody gets near it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A pool whose connections do nothing, and are all there.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    /// A connection that is checked out; it goes back when it is dropped.
    type Held<'a>: Send
    where
        Self: 'a;

    /// A check-out as a user writes it.
    fn get(&self) -> impl Future<Output = Self::Held<'_>> + Send;
}

/// Check-out and check-in where a connection is there, or as good as there: where a task returns it, it is waited for.
pub(crate) fn once<P: Peer>(pool: &P) {
    let mut future = pin!(pool.get());
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(held) => drop(held),
        Poll::Pending => drop(smol::future::block_on(future)),
    }
}

/// Check-out, one turn of the executor with the connection, check-in, and one turn without it. How long the check-out took, and when it ended.
pub(crate) async fn cycle<P: Peer>(pool: &P) -> (Duration, Instant) {
    let start = Instant::now();
    let held = pool.get().await;
    let granted = Instant::now();
    smol::future::yield_now().await;
    drop(held);
    smol::future::yield_now().await;
    (granted - start, granted)
}

/// Has all connections made, where a pool makes them when they are wanted.
pub(crate) async fn warm<P: Peer>(pool: &P, connections: usize) {
    let mut held = Vec::with_capacity(connections);
    for _ in 0..connections {
        held.push(pool.get().await);
    }
}
