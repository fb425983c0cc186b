//! Replies that come too late for whoever asked.
//!
//! An operation that ran out of time, or was given up, leaves a connection on which exactly its reply is outstanding. To close it costs
//! the server an end and a handshake at the moment when it is slow anyway. So, for a short while, the reply is awaited by
//! the clock task of the server's pool, and thrown away; then the connection goes back as good as new. To the pool it is in use until then: it
//! counts towards `maxPoolSize`, nobody else is given it, and `ConnectionCheckedIn` follows when it is clean, or when it is closed.
//!
//! A server has at most 64 of them; what comes on top is closed at once, as each reply that comes has all of them looked at.
//!
//! Nothing is drained that was not sent whole, that broke the protocol, whose pool was cleared since, or while the clock task does not run.

use super::connection::Held;
use super::hub::Hub;
use super::runtime::{Locked, Runtime};
use super::server::{Server, is_earlier};
use alloc::vec::Vec;
use core::pin::pin;
use core::task::{Context, Poll};
use poolhouse_core::pool::{Health, Lease, PoolState};
use poolhouse_core::{Cause, Instant};

/// How many late replies of a server are waited for.
const DRAINS_MAX: usize = 64;

/// A connection whose reply is late.
pub(super) struct Drain<R: Runtime> {
    pub(super) lease: Lease,
    pub(super) connection: Held<R>,
    /// What it is closed for if the reply does not come.
    pub(super) cause: Cause,
    /// Until when it may come.
    pub(super) deadline: Instant,
}

/// What a server keeps for its clock task.
pub(super) struct Late<R: Runtime> {
    /// Not taken over by the clock task yet.
    fresh: Vec<Drain<R>>,
    /// How many it has taken over.
    taken: usize,
    /// Whether there is a task that will.
    attended: bool,
}

impl<R: Runtime> Late<R> {
    pub(super) const EMPTY: Self = Self { fresh: Vec::new(), taken: 0, attended: false };
}

impl<R: Runtime> Server<R> {
    /// Leaves a connection to the clock task. Gives it back when waiting for its reply makes no sense.
    pub(super) fn drain(&self, drain: Drain<R>) -> Result<(), Drain<R>> {
        let (result, clock, _waker) = self.state.with(|state| {
            let conn = drain.lease.conn();
            let closed = state.pool.state() == PoolState::Closed;
            let current = state.origin(conn).is_some_and(|origin| origin.generation == origin.pool_generation);
            let place = state.late.fresh.try_reserve(1);
            let full = state.late.fresh.len() + state.late.taken >= DRAINS_MAX;
            if closed || !current || full || !state.late.attended || place.is_err() {
                return (Err(drain), None, None);
            }
            let Some(cell) = state.cell(conn).filter(|cell| !cell.interrupted) else {
                return (Err(drain), None, None);
            };
            cell.deadline = None;
            let waker = cell.waker.take();
            state.late.fresh.push(drain);
            (Ok(()), state.clock.take(), waker)
        });
        if let Some(clock) = clock {
            let _ = R::contain(|| clock.wake());
        }
        result
    }
}

/// The late replies that a clock task waits for. Given up when it ends, is dropped or panics.
pub(super) struct LateReplies<'s, R: Runtime> {
    hub: &'s Hub<R>,
    server: &'s Server<R>,
    drains: Vec<Drain<R>>,
}

impl<'s, R: Runtime> LateReplies<'s, R> {
    pub(super) fn attend(hub: &'s Hub<R>, server: &'s Server<R>) -> Self {
        server.state.with(|state| state.late.attended = true);
        Self { hub, server, drains: Vec::new() }
    }

    /// The earlier one of `at` and the end of the first reply's time.
    pub(super) fn earliest(&self, at: Option<Instant>) -> Option<Instant> {
        let first = self.drains.iter().map(|drain| drain.deadline).min();
        if is_earlier(first, at) { first } else { at }
    }

    /// Reads what has come, and settles what came to an end. Whether the task, which sleeps until `at`, must sleep anew.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, at: Option<Instant>) -> bool {
        let Self { hub, server, drains } = self;
        let now = hub.now();
        let mut fresh = server.state.with(|state| {
            state.late.taken += state.late.fresh.len();
            core::mem::take(&mut state.late.fresh)
        });
        drains.append(&mut fresh);
        let mut place = 0;
        while let Some(drain) = drains.get_mut(place) {
            match drain.poll(server, now, context) {
                Poll::Pending => place += 1,
                Poll::Ready(health) => {
                    let Drain { lease, connection, .. } = drains.swap_remove(place);
                    server.state.with(|state| state.late.taken = state.late.taken.saturating_sub(1));
                    server.check_in(|| now, lease, &mut Some(connection), health);
                }
            }
        }
        is_earlier(self.earliest(None), at)
    }
}

impl<R: Runtime> Drop for LateReplies<'_, R> {
    fn drop(&mut self) {
        let (closed, fresh) = self.server.state.with(|state| {
            state.late.attended = false;
            state.late.taken = 0;
            (state.pool.state() == PoolState::Closed, core::mem::take(&mut state.late.fresh))
        });
        for Drain { lease, connection, cause, .. } in self.drains.drain(..).chain(fresh) {
            // What is returned to a closed pool is closed for that.
            let health = if closed { Health::Healthy } else { Health::Broken(cause) };
            let _ = R::contain(|| self.server.check_in(|| self.hub.now(), lease, &mut Some(connection), health));
        }
    }
}

impl<R: Runtime> Drain<R> {
    /// Reads on. What the connection is returned as, once that is known.
    ///
    /// Each call begins to read anew: that loses nothing, as a stream keeps what a dropped read did not return.
    fn poll(&mut self, server: &Server<R>, now: Instant, context: &mut Context<'_>) -> Poll<Health> {
        if server.poll_interrupted(self.lease.conn(), context.waker()).is_ready() {
            return Poll::Ready(Health::Broken(Cause::Interrupted));
        }
        let received = pin!(self.connection.receive()).poll(context);
        match received {
            Poll::Ready(Ok(_)) => {
                self.connection.rest();
                Poll::Ready(Health::Healthy)
            }
            Poll::Ready(Err(error)) => Poll::Ready(Health::Broken(error.cause().unwrap_or(self.cause))),
            Poll::Pending if self.deadline <= now => Poll::Ready(Health::Broken(self.cause)),
            Poll::Pending => Poll::Pending,
        }
    }
}
