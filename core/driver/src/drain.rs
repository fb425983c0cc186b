//! Replies that arrive after their operation has timed out or was cancelled.
//!
//! Such an operation leaves a connection with exactly one outstanding reply. Closing it would cost
//! the server a disconnect and a handshake while it is slow already. Therefore the clock task of
//! the server's pool waits for the reply for a short time and discards it; then the connection is
//! returned and reusable. Until then it is in use for the pool: it counts towards `maxPoolSize`, is
//! not granted, and `ConnectionCheckedIn` follows when the reply was read, or when the connection
//! is closed.
//!
//! A server has at most 64 such connections, because each arriving reply makes the clock task poll
//! all of them. Further ones are closed at once.
//!
//! A connection is not drained if its request was not sent completely, if the protocol was
//! violated, if its pool was cleared since, or while the clock task does not run.

use super::client_core::ClientCore;
use super::connection::Held;
use super::driven::{Drive, is_earlier};
use super::runtime::{Locked, Runtime};
use super::server::Server;
use alloc::vec::Vec;
use core::pin::pin;
use core::task::{Context, Poll};
use poolhouse_core::pool::{Health, Lease, PoolState};
use poolhouse_core::{Cause, Instant};

/// The maximum number of late replies of a server that are awaited.
const DRAINS_MAX: usize = 64;

/// A connection with a late reply.
pub(super) struct Drain<R: Runtime> {
    pub(super) lease: Lease,
    pub(super) connection: Held<R>,
    /// The cause of closing if the reply does not arrive.
    pub(super) cause: Cause,
    /// When the wait for the reply ends.
    pub(super) deadline: Instant,
}

/// The connections that a server's clock task drains.
pub(super) struct Late<R: Runtime> {
    /// Connections that the clock task has not taken over yet.
    fresh: Vec<Drain<R>>,
    /// The number of connections that it has taken over.
    taken: usize,
    /// Whether the clock task runs.
    attended: bool,
}

impl<R: Runtime> Late<R> {
    pub(super) const EMPTY: Self = Self { fresh: Vec::new(), taken: 0, attended: false };
}

impl<R: Runtime> Server<R> {
    /// Passes a connection to the clock task. Returns it if it cannot be drained.
    pub(super) fn drain(&self, drain: Drain<R>) -> Result<(), Drain<R>> {
        let (result, clock, _waker) = self.state.with(|state| {
            let conn = drain.lease.conn();
            let closed = state.driven.pool.state() == PoolState::Closed;
            let current = state.origin(conn).is_some_and(|origin| origin.generation == origin.pool_generation);
            let place = state.late.fresh.try_reserve(1);
            let full = state.late.fresh.len() + state.late.taken >= DRAINS_MAX;
            if closed || !current || full || !state.late.attended || place.is_err() {
                return (Err(drain), None, None);
            }
            let Some(slot) = state.driven.conn_slot(conn).filter(|slot| !slot.interrupted) else {
                return (Err(drain), None, None);
            };
            slot.deadline = None;
            let waker = slot.waker.take();
            state.late.fresh.push(drain);
            (Ok(()), state.driven.clock.take(), waker)
        });
        if let Some(clock) = clock {
            let _ = R::contain(|| clock.wake());
        }
        result
    }
}

/// The late replies that a clock task waits for. Abandoned when it ends, is dropped or panics.
pub(super) struct LateReplies<'s, R: Runtime> {
    core: &'s ClientCore<R>,
    server: &'s Server<R>,
    drains: Vec<Drain<R>>,
}

impl<'s, R: Runtime> LateReplies<'s, R> {
    pub(super) fn attend(core: &'s ClientCore<R>, server: &'s Server<R>) -> Self {
        server.state.with(|state| state.late.attended = true);
        Self { core, server, drains: Vec::new() }
    }

    /// The earlier of `at` and the first deadline of a reply.
    pub(super) fn earliest(&self, at: Option<Instant>) -> Option<Instant> {
        let first = self.drains.iter().map(|drain| drain.deadline).min();
        if is_earlier(first, at) { first } else { at }
    }

    /// Reads arrived replies, and returns each connection with a complete, failed or overdue reply
    /// to the pool. Returns whether the task, which sleeps until `at`, must set its timer again.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, at: Option<Instant>) -> bool {
        let Self { core, server, drains } = self;
        let now = core.now();
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
            (state.driven.pool.state() == PoolState::Closed, core::mem::take(&mut state.late.fresh))
        });
        for Drain { lease, connection, cause, .. } in self.drains.drain(..).chain(fresh) {
            // A closed pool closes returned connections for its own reason.
            let health = if closed { Health::Healthy } else { Health::Broken(cause) };
            let _ = R::contain(|| self.server.check_in(|| self.core.now(), lease, &mut Some(connection), health));
        }
    }
}

impl<R: Runtime> Drain<R> {
    /// Reads the reply. Ready with the connection's health when the reply is complete, failed or
    /// overdue.
    ///
    /// Each call starts a new read. That loses no bytes, because a stream keeps those that a
    /// dropped read did not return.
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
