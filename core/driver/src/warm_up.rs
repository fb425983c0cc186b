//! Establishing connections before they are needed.
//!
//! A warm-up does not check connections out: the pool fills itself in the background, to the
//! largest number that a task waits for, and operations have priority. Waiting tasks have slots in
//! the server's state. They are woken when the pool has their number of connections, or when
//! filling has ended or failed.

use super::client_core::ClientCore;
use super::driven::{Drive, Driven};
use super::error::OperationError;
use super::runtime::{Runtime, register};
use super::select::SelectionRequest;
use super::server::Server;
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer;
use poolhouse_core::pool::{CheckOutError, Memory, PoolConfig, PoolEvent, PoolState};
use poolhouse_core::storage::Store;

/// The slot of a task that waits until a pool is filled.
pub(super) enum Warmer {
    /// No task has the slot.
    Free,
    Waits {
        /// The number of connections; `None` is `minPoolSize`.
        count: Option<u32>,
        waker: Option<Waker>,
        /// The error of the first connection that was not established meanwhile.
        failed: Option<CheckOutError>,
    },
}

/// The number of connections that `count` stands for.
fn goal(count: Option<u32>, config: &PoolConfig) -> u32 {
    count.unwrap_or(config.options().min_pool_size)
}

impl<R: Runtime> ClientCore<R> {
    /// Waits until a suitable server is found and its pool has the given number of established
    /// connections, so the first operations find connections available.
    ///
    /// - `request`: the requirements for the server.
    /// - `conns`: the number of connections, in use or available; at most `maxPoolSize`. `None` is
    ///   `minPoolSize`. The pool's current options apply: [`ClientCore::reconfigure_pools`] may
    ///   change them meanwhile.
    /// - `deadline`: `None` is no deadline; serverSelectionTimeoutMS also bounds the wait for the
    ///   server.
    ///
    /// Missing connections are established in the background, one at a time; connections that
    /// operations establish count too. Operations are not delayed, and waitQueueTimeoutMS does not
    /// apply. If the pool is cleared, filling continues when the server is available again.
    /// `maxIdleTimeMS` also applies to connections beyond `minPoolSize`. When no task waits any
    /// more, the pool stops filling.
    ///
    /// Cost: allocates only for connections and for the slot of the waiting task.
    /// Events: `ConnectionCreated` and `ConnectionReady`.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`], [`OperationError::Closed`],
    /// [`OperationError::Abandoned`]: no server in time, or the client is closed.
    /// [`OperationError::Timeout`]: too few connections in time. [`OperationError::CheckOut`],
    /// [`OperationError::Authentication`]: while this waited, a connection to the server could not
    /// be established, for this or for an operation; the error is that of a check-out. The warm-up
    /// does not retry. [`OperationError::CheckOut`] is also returned if the server was
    /// removed or the client was closed ([`CheckOutError::PoolClosed`]), and if there is no free
    /// slot to wait in ([`CheckOutError::Busy`]). If the number of connections is reached, these
    /// errors are not returned.
    pub async fn warm_up(
        &self,
        request: &SelectionRequest<'_>,
        conns: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<(), OperationError> {
        let server = self.select_server(request, deadline).await?;
        self.warm_up_server(&server, conns, deadline).await
    }

    pub(super) async fn warm_up_server(
        &self,
        server: &R::ServerHandle,
        conns: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<(), OperationError> {
        let mut place = WarmerSlot::<R> { core: self, server, index: None };
        let mut expiry = pin!(self.sleep_until(deadline));
        poll_fn(|context| {
            self.check_fork()?;
            let polled = server.poll_warm(self.now(), &mut place.index, conns, context.waker());
            if let Poll::Ready(result) = polled {
                return Poll::Ready(result.map_err(|error| self.explain(server, error)));
            }
            expiry.as_mut().poll(context).map(|()| Err(OperationError::Timeout))
        })
        .await
    }
}

/// The slot of a waiting task; freed on drop.
struct WarmerSlot<'h, R: Runtime> {
    core: &'h ClientCore<R>,
    server: &'h R::ServerHandle,
    index: Option<usize>,
}

impl<R: Runtime> Drop for WarmerSlot<'_, R> {
    fn drop(&mut self) {
        if self.core.is_forked() {
            core::mem::forget(self.server.clone());
        } else if let Some(index) = self.index {
            self.server.leave_warmers(self.core.now(), index);
        }
    }
}

impl<R: Runtime> Server<R> {
    /// Ready if the pool has `count` connections; otherwise raises the pool's fill target and
    /// registers `waker`, which is woken when that may have changed.
    ///
    /// - `place`: the caller's slot, `None` until it has one.
    fn poll_warm(
        &self,
        now: Instant,
        place: &mut Option<usize>,
        count: Option<u32>,
        waker: &Waker,
    ) -> Poll<Result<(), CheckOutError>> {
        let mut waker = Some(waker.clone());
        self.step(|state, observer| {
            let goal = goal(count, state.pool.config());
            if goal == 0 || state.pool.is_filled(goal) {
                return Poll::Ready(Ok(()));
            }
            if state.pool.state() == PoolState::Closed {
                return Poll::Ready(Err(CheckOutError::PoolClosed));
            }
            let joined = place.or_else(|| state.join_warmers(count));
            *place = joined;
            let slot = joined.and_then(|index| state.warmers.slots_mut().get_mut(index));
            let polled = match slot {
                Some(Warmer::Waits { failed: Some(error), .. }) => Poll::Ready(Err(*error)),
                Some(Warmer::Waits { waker: kept, .. }) => {
                    register(kept, &mut waker);
                    Poll::Pending
                }
                Some(Warmer::Free) | None => {
                    let waiting = state.pool.counts().waiting;
                    Poll::Ready(Err(CheckOutError::Busy { waiting }))
                }
            };
            state.retarget(now, observer);
            polled
        })
    }

    fn leave_warmers(&self, now: Instant, index: usize) {
        let _left = self.step(|state, observer| {
            let place = state.warmers.slots_mut().get_mut(index)?;
            let left = core::mem::replace(place, Warmer::Free);
            state.warming -= 1;
            state.retarget(now, observer);
            Some(left)
        });
    }
}

impl<M: Memory, C, K> Driven<M, C, K> {
    fn join_warmers(&mut self, count: Option<u32>) -> Option<usize> {
        let free = self.warmers.slots().iter().position(|warmer| matches!(warmer, Warmer::Free));
        let index = match free {
            Some(index) => index,
            None => {
                self.warmers.try_push(Warmer::Free).ok()?;
                self.warmers.slots().len() - 1
            }
        };
        *self.warmers.slots_mut().get_mut(index)? = Warmer::Waits { count, waker: None, failed: None };
        self.warming += 1;
        Some(index)
    }

    /// Sets the pool's fill target to the largest number that a task waits for.
    pub(super) fn retarget(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        let config = *self.pool.config();
        let goals = self.warmers.slots().iter().filter_map(|warmer| match warmer {
            Warmer::Waits { count, failed: None, .. } => Some(goal(*count, &config)),
            Warmer::Waits { .. } | Warmer::Free => None,
        });
        let target = goals.max().unwrap_or(0);
        if target != self.pool.fill_target() {
            self.pool.set_fill_target(now, target, observer);
        }
    }

    /// Stores the error of a connection that was not established, for all waiting tasks.
    pub(super) fn fail_warmers(&mut self, error: CheckOutError) {
        for warmer in self.warmers.slots_mut() {
            if let Warmer::Waits { failed, .. } = warmer {
                failed.get_or_insert(error);
            }
        }
    }

    /// Takes the waker of a task that must poll again: the pool has its number of connections, or
    /// stopped filling, or failed to establish a connection.
    pub(super) fn take_warmer(&mut self) -> Option<Waker> {
        if self.warming == 0 {
            return None;
        }
        let Self { pool, warmers, .. } = self;
        let over = pool.fill_target() == 0;
        warmers.slots_mut().iter_mut().find_map(|warmer| {
            let Warmer::Waits { count, waker, failed } = warmer else { return None };
            let due = over || failed.is_some() || pool.is_filled(goal(*count, pool.config()));
            if due { waker.take() } else { None }
        })
    }
}
