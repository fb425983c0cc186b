//! The pool of poolhouse-core behind a lock, with connections that do nothing: a minimal driver.
//!
//! Deadlines are stored; as in the floor, no timer fires at them.

use super::peer::{LIMIT, Peer};
use alloc::sync::Arc;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use poolhouse_core::Instant;
use poolhouse_core::pool::{
    CheckOut, Claim, Health, Lease, OnHeap, Pool, PoolAction, PoolConfig, PoolId, PoolOptions, WaiterId,
};
use std::sync::{Mutex, MutexGuard};
use std::time;

#[derive(Clone)]
pub(crate) struct Locked {
    shared: Arc<Shared>,
}

struct Shared {
    origin: time::Instant,
    state: Mutex<State>,
}

struct State {
    pool: Pool<OnHeap>,
    /// Indexed by the index of the waiter.
    wakers: Vec<Option<Waker>>,
}

pub(crate) fn config(connections: u32) -> PoolConfig {
    let options = PoolOptions { max_pool_size: connections, max_connecting: connections, ..PoolOptions::DEFAULT };
    options.validate().expect("valid")
}

impl Locked {
    pub(crate) fn new(connections: u32) -> Self {
        let mut pool = Pool::new(Instant::ORIGIN, PoolId::new(0), config(connections), &mut ());
        pool.ready(Instant::ORIGIN, &mut ());
        let state = Mutex::new(State { pool, wakers: Vec::new() });
        Self { shared: Arc::new(Shared { origin: time::Instant::now(), state }) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under the lock")
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).expect("less than centuries"))
    }
}

impl State {
    /// Executes the pool's actions. Returns the waker of the waiter that was granted a connection,
    /// at most one.
    fn act(&mut self, now: Instant) -> Option<Waker> {
        let mut woken = None;
        while let Some(action) = self.pool.poll_prompt() {
            match action {
                PoolAction::Wake(id) => woken = self.wakers[id.index() as usize].take().or(woken),
                PoolAction::Establish(conn) => self.pool.handle_established(now, conn, &mut ()).expect("it is pending"),
                PoolAction::Interrupt(_) | PoolAction::Close(_) => {}
            }
        }
        while let Some(conn) = self.pool.poll_establish() {
            self.pool.handle_established(now, conn, &mut ()).expect("it is pending");
        }
        woken
    }
}

/// The future of a check-out.
pub(crate) struct Get<'p> {
    shared: &'p Shared,
    waiter: Option<WaiterId>,
}

impl<'p> Future for Get<'p> {
    type Output = Held<'p>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Held<'p>> {
        let shared = self.shared;
        let now = shared.now();
        let mut state = shared.lock();
        if self.waiter.is_none() {
            match state.pool.check_out(now, Some(now.saturating_add(LIMIT)), &mut ()).expect("it is ready") {
                CheckOut::Granted(lease) => return Poll::Ready(Held { shared, lease: Some(lease) }),
                CheckOut::Queued(id) => {
                    let place = id.index() as usize;
                    if state.wakers.len() <= place {
                        state.wakers.resize(place + 1, None);
                    }
                    self.waiter = Some(id);
                    // A connection that is established at once is granted to this check-out, which
                    // needs no wake-up.
                    let _nobody = state.act(now);
                }
            }
        }
        let Some(id) = self.waiter else { return Poll::Pending };
        match state.pool.claim(now, id) {
            Claim::Granted(lease) => {
                self.waiter = None;
                Poll::Ready(Held { shared, lease: Some(lease) })
            }
            Claim::Waiting => {
                let place = &mut state.wakers[id.index() as usize];
                if !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *place = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Claim::Failed(error) => panic!("no wait reaches the time limit: {error}"),
            Claim::Stale => panic!("its own id"),
        }
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        let Some(id) = self.waiter else { return };
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.pool.cancel(now, id, &mut ());
        let _own = state.wakers[id.index() as usize].take();
        let woken = state.act(now);
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

/// A connection in use.
pub(crate) struct Held<'p> {
    shared: &'p Shared,
    lease: Option<Lease>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.pool.check_in(now, lease, Health::Healthy, &mut ()).expect("a lease of this pool");
        let woken = state.act(now);
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

impl Peer for Locked {
    type Held<'a> = Held<'a>;

    fn get(&self) -> impl Future<Output = Held<'_>> + Send {
        Get { shared: &self.shared, waiter: None }
    }
}
