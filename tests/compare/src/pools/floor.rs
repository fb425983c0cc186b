//! A hand-written baseline of a pool with a fair queue and time limits: a lock, a stack of
//! connections, a list of waiters that receive returned connections, and a timer wheel for their
//! deadlines.
//!
//! It cannot create connections, detect broken ones, or be closed. Each check-out has a deadline,
//! for which the clock is read. The lazy variant reads the clock only when a check-out must wait.
//! The wheel advances when a check-out starts waiting.

use super::peer::{LIMIT, Peer};
use super::wheel::{Arena, List, QUEUE, Wheel};
use alloc::sync::Arc;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

#[derive(Clone)]
pub(crate) struct Floor {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    /// Whether the clock is read on each check-out.
    reads_clock: bool,
    state: Mutex<State>,
}

struct State {
    free: Vec<u64>,
    waiters: Arena<Waiter>,
    queue: List,
    wheel: Wheel,
}

/// A waiting check-out.
struct Waiter {
    verdict: Verdict,
    waker: Option<Waker>,
}

enum Verdict {
    Waiting,
    Granted(u64),
    TimedOut,
}

impl Floor {
    pub(crate) fn new(connections: u64) -> Self {
        Self::with_clock(connections, true)
    }

    /// Creates the variant that reads the clock only when a check-out must wait.
    pub(crate) fn lazy(connections: u64) -> Self {
        Self::with_clock(connections, false)
    }

    fn with_clock(connections: u64, reads_clock: bool) -> Self {
        let free = (0..connections).collect();
        let state = State { free, waiters: Arena::new(), queue: List::new(), wheel: Wheel::new() };
        Self { shared: Arc::new(Shared { origin: Instant::now(), reads_clock, state: Mutex::new(state) }) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under the lock")
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("this runs for less than centuries")
    }

    fn give_back(&self, connection: u64) {
        let woken = self.lock().hand_on(connection);
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

impl State {
    /// Passes a connection to the oldest waiter, or returns it to the stack. Returns the waker of
    /// the waiter.
    fn hand_on(&mut self, connection: u64) -> Option<Waker> {
        let Some(oldest) = self.queue.first() else {
            self.free.push(connection);
            return None;
        };
        self.settle(oldest, Verdict::Granted(connection))
    }

    fn settle(&mut self, place: u32, verdict: Verdict) -> Option<Waker> {
        self.queue.remove::<QUEUE, _>(&mut self.waiters, place);
        self.wheel.remove(&mut self.waiters, place);
        let waiter = self.waiters.at(place);
        waiter.verdict = verdict;
        waiter.waker.take()
    }

    fn enter(&mut self, now_ns: u64, waker: Waker) -> u32 {
        while let Some(late) = self.wheel.expired(&self.waiters, now_ns) {
            if let Some(waker) = self.settle(late, Verdict::TimedOut) {
                waker.wake();
            }
        }
        let place = self.waiters.insert(Waiter { verdict: Verdict::Waiting, waker: Some(waker) });
        self.queue.push::<QUEUE, _>(&mut self.waiters, place);
        let limit = u64::try_from(LIMIT.as_nanos()).expect("half a minute");
        self.wheel.insert(&mut self.waiters, place, now_ns + limit);
        place
    }
}

/// The future of a check-out.
pub(crate) struct Get<'p> {
    shared: &'p Shared,
    place: Option<u32>,
}

impl<'p> Future for Get<'p> {
    type Output = Held<'p>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Held<'p>> {
        let shared = self.shared;
        let asked_at = (self.place.is_none() && shared.reads_clock).then(|| shared.now_ns());
        let mut state = shared.lock();
        let Some(place) = self.place else {
            return match state.free.pop() {
                Some(connection) => Poll::Ready(Held { shared, connection }),
                None => {
                    let now_ns = asked_at.unwrap_or_else(|| shared.now_ns());
                    self.place = Some(state.enter(now_ns, context.waker().clone()));
                    Poll::Pending
                }
            };
        };
        let waiter = state.waiters.at(place);
        match waiter.verdict {
            Verdict::Waiting => {
                let known = waiter.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
                if !known {
                    waiter.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            Verdict::Granted(connection) => {
                state.waiters.remove(place);
                self.place = None;
                Poll::Ready(Held { shared, connection })
            }
            Verdict::TimedOut => panic!("no wait reaches the time limit"),
        }
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.shared.lock();
        let woken = match state.waiters.at(place).verdict {
            Verdict::Waiting => {
                let _own = state.settle(place, Verdict::TimedOut);
                None
            }
            Verdict::Granted(connection) => state.hand_on(connection),
            Verdict::TimedOut => None,
        };
        state.waiters.remove(place);
        drop(state);
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

/// A connection in use.
pub(crate) struct Held<'p> {
    shared: &'p Shared,
    connection: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.give_back(self.connection);
    }
}

impl Peer for Floor {
    type Held<'a> = Held<'a>;

    fn get(&self) -> impl Future<Output = Held<'_>> + Send {
        Get { shared: &self.shared, place: None }
    }
}
