//! The tasks of a pool.

use super::error::Failure;
use super::{BaseRuntime, Drive, Expiry, Locked, Manager, Pool, hold};
use crate::driven::{ClockState, WorkerSlot};
use crate::task_guard::{Guarded, TaskGuard};
use core::future::{pending, poll_fn};
use core::ops::Deref;
use core::pin::pin;
use core::task::{Poll, Waker};
use core::time::Duration;
use poolhouse_core::observe::{EventContext, Within};
use poolhouse_core::pool::{ConnId, EstablishError};
use poolhouse_core::storage::Store as _;
use poolhouse_core::{Cause, Instant, ServerId};

/// The pause after the first failed attempt to connect.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);

impl<M: Manager, R: BaseRuntime> Pool<M, R> {
    /// Opens connections, one after the other, until the pool is closed. Dropping the future
    /// earlier closes the pool.
    pub fn run_worker<H: Deref<Target = Self> + Clone>(pool: H) -> impl Future<Output = ()> {
        TaskGuard::new(pool, None).run(|pool| async move { pool.keep_opening().await })
    }

    /// Ends waiting check-outs and connections at their time limits, until the pool is closed.
    /// Dropping the future earlier closes the pool.
    pub fn run_clock<H: Deref<Target = Self> + Clone>(pool: H) -> impl Future<Output = ()> {
        TaskGuard::new(pool, None).run(|pool| async move { pool.keep_clock().await })
    }

    async fn keep_opening(&self) {
        // There is no work for more workers than connections.
        let Some(index) = self.join_workers() else { return };
        let place = WorkerSlot { pool: self, index };
        while let Some(conn) =
            poll_fn(|context| self.poll_establish(self.runtime.now(), place.index, context.waker())).await
        {
            let mut opening = Opening { pool: self, conn: Some(conn) };
            match self.open(conn).await {
                Some(Ok(connection)) => self.opened(conn, connection),
                Some(Err(failure)) => self.failed(conn, failure),
                // The pool has abandoned the connection: nothing is reported.
                None => {}
            }
            opening.conn = None;
        }
    }

    /// Opens a connection after the pause that earlier failures require; `None` if the pool
    /// abandons it.
    async fn open(&self, conn: ConnId) -> Option<Result<M::Connection, Failure<M::Error>>> {
        while let Some(at) = self.retry_at() {
            let mut expiry = pin!(self.runtime.sleep_until(at));
            // Another worker may end the pause, or set the time of the next attempt anew.
            let paused = poll_fn(|context| match self.retry_at() {
                Some(retry_at) if retry_at == at => expiry.as_mut().poll(context),
                Some(_) | None => Poll::Ready(()),
            });
            self.unless_abandoned(conn, paused).await?;
        }
        let opened = self.unless_abandoned(conn, self.limited(self.manager.connect())).await?;
        Some(match opened {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(Failure::Connect(error)),
            None => Err(Failure::Timeout),
        })
    }

    /// The earliest time of the next attempt to connect; `None` if it has passed.
    fn retry_at(&self) -> Option<Instant> {
        self.state.with(|state| state.retry_at).filter(|at| *at > self.runtime.now())
    }

    /// The result of `work`; `None` if the pool abandons the connection before.
    async fn unless_abandoned<T>(&self, conn: ConnId, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            // Registers the waker before the work is polled, so no wake-up is lost between them.
            if self.poll_interrupted(conn, context.waker()).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// The result of `work`; `None` after [`Options::connect_timeout`](super::Options). The clock is
    /// not read if the work is done at once.
    pub(super) async fn limited<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let limit = self.config.options().connect_timeout;
        let mut work = pin!(work);
        let mut expiry = pin!(None);
        poll_fn(|context| {
            if let Poll::Ready(result) = work.as_mut().poll(context) {
                return Poll::Ready(Some(result));
            }
            if expiry.is_none() {
                let at = limit.map(|limit| self.runtime.now().saturating_add(limit));
                expiry.set(Some(self.sleep_until(at)));
            }
            let expiry = expiry.as_mut().as_pin_mut();
            expiry.map_or(Poll::Pending, |expiry| expiry.poll(context).map(|()| None))
        })
        .await
    }

    async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => self.runtime.sleep_until(at).await,
            None => pending().await,
        }
    }

    fn opened(&self, conn: ConnId, connection: M::Connection) {
        let was_failing = self.state.with(|state| {
            (state.failures, state.is_error_last) = (0, false);
            state.retry_at.take().is_some()
        });
        let now = self.runtime.now();
        let expiry = self.expiry(now);
        let abandoned = self.established(now, conn, hold(connection), expiry);
        self.step(|state, _| state.set_due_earlier(expiry));
        let _ = R::contain(|| drop(abandoned));
        if was_failing {
            self.end_pauses();
        }
    }

    /// Wakes the workers that pause before their next attempt, and others that open connections.
    #[cold]
    fn end_pauses(&self) {
        for index in 0..self.with(|state| state.conn_slots.slots().len()) {
            let waker = self.with(|state| {
                let slot = state.conn_slots.slots_mut().get_mut(index)?;
                if slot.socket.is_none() && slot.known.is_none() { slot.waker.take() } else { None }
            });
            let _ = R::contain(|| waker.map(Waker::wake));
        }
    }

    /// The end of the lifetime of a connection that is opened now.
    fn expiry(&self, now: Instant) -> Expiry {
        let lifetime = self.config.options().max_lifetime?;
        Some(now.saturating_add(lifetime - self.share(lifetime / 10)))
    }

    /// A random share of a duration.
    fn share(&self, of: Duration) -> Duration {
        let nanos = u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
        let share = (u128::from(nanos) * u128::from(self.runtime.entropy())) >> 32;
        Duration::from_nanos(u64::try_from(share).unwrap_or(nanos))
    }

    fn failed(&self, conn: ConnId, failure: Failure<M::Error>) {
        // The causes that the error of the check-out is made from.
        let (cause, mut error) = match failure {
            Failure::Connect(error) => (Cause::Other, Some(error)),
            Failure::Timeout => (Cause::NetworkTimeout, None),
            Failure::Interrupted => (Cause::Cancelled, None),
        };
        let reason = error.as_ref().and_then(|error| R::contain(|| M::reason(error))).unwrap_or_default();
        let now = self.runtime.now();
        // Stored before the check-out fails, which reads it.
        self.state.with(|state| {
            let pause = BACKOFF_FIRST.saturating_mul(1 << state.failures.min(16));
            let pause = pause.min(self.config.options().max_backoff);
            state.failures = state.failures.saturating_add(1);
            let retry_at = now.saturating_add(pause - self.share(pause / 4));
            // Tasks that pause sleep until the time before, so a further failure sets no earlier one.
            state.retry_at = state.retry_at.max(Some(retry_at));
            state.is_error_last = error.is_some();
            if error.is_some() {
                // The error before is dropped without the lock.
                core::mem::swap(&mut state.error, &mut error);
            }
        });
        let establish = EstablishError { cause, overloaded: false, clear: None };
        let context = EventContext::NONE.with_reason(&reason);
        let _waker = self
            .step(|state, observer| state.fail_establish(now, conn, establish, &mut Within::new(observer, context)));
    }

    async fn keep_clock(&self) {
        loop {
            self.retire_expired();
            let state = poll_fn(|context| Poll::Ready(self.poll_clock(self.runtime.now(), context.waker()))).await;
            let ClockState::Armed(at) = state else { return };
            let mut expiry = pin!(self.sleep_until(at));
            poll_fn(|context| {
                if self.clock_is_late(context.waker()) {
                    return Poll::Ready(());
                }
                expiry.as_mut().poll(context)
            })
            .await;
        }
    }

    /// Retires connections at the end of their lifetimes.
    fn retire_expired(&self) {
        let now = self.runtime.now();
        self.step(|state, observer| {
            let mut next = None;
            for slot in state.conn_slots.slots_mut() {
                let (Some(id), Some(known)) = (slot.owner, &mut slot.known) else { continue };
                match *known {
                    Some(at) if at <= now => {
                        *known = None;
                        state.pool.retire(now, id, observer);
                    }
                    Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                    None => {}
                }
            }
            state.set_due(next);
        });
    }
}

impl<M: Manager, R: BaseRuntime> Guarded for Pool<M, R> {
    type Runtime = R;

    fn runtime(&self) -> &R {
        Self::runtime(self)
    }

    #[cold]
    fn abandon(&self, _server: Option<ServerId>) {
        if !self.is_closed() {
            self.state.with(|state| state.abandoned = true);
            self.close();
        }
    }
}

/// A connection that is being opened. Reports to the pool that it failed if the worker is dropped
/// or panics.
struct Opening<'p, M: Manager, R: BaseRuntime> {
    pool: &'p Pool<M, R>,
    /// `None` once the worker has reported the outcome.
    conn: Option<ConnId>,
}

impl<M: Manager, R: BaseRuntime> Drop for Opening<'_, M, R> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn {
            let _ = R::contain(|| self.pool.failed(conn, Failure::Interrupted));
        }
    }
}
