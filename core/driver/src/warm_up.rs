//! Connections before they are needed.
//!
//! Who warms a pool up holds nothing of it: the pool fills itself in the background, to the most that anybody waits for, and operations
//! come first. Those who wait are on a list of the server, and woken when their number is there, or will not be.

use super::error::OperationError;
use super::event::Tap;
use super::hub::Hub;
use super::runtime::{Runtime, register};
use super::select::Wanted;
use super::server::{Server, ServerState};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOutError, PoolConfig, PoolState};
use poolhouse_core::storage::Store;

/// The place of a task that waits until a pool is filled.
pub(super) enum Warmer {
    /// Nobody's.
    Free,
    Waits {
        /// `None` is `minPoolSize`.
        count: Option<u32>,
        waker: Option<Waker>,
        /// What became of the first connection that was not established meanwhile.
        failed: Option<CheckOutError>,
    },
}

/// How many connections that are.
fn goal(count: Option<u32>, config: &PoolConfig) -> u32 {
    count.unwrap_or(config.options().min_pool_size)
}

impl<R: Runtime> Hub<R> {
    /// Waits until a server suits and its pool has so many connections established, so that the first operations find them.
    ///
    /// - `wanted`: which server. `conns`: how many connections, in use or available; no more than `maxPoolSize`. `None` is `minPoolSize`.
    ///   Both are those of the time: [`Hub::reconfigure_pools`] may change them meanwhile.
    /// - `deadline`: `None` is for ever; serverSelectionTimeoutMS applies besides to the wait for the server.
    ///
    /// What is missing is established in the background, one connection at a time, and whatever operations establish counts too.
    /// Operations are not kept waiting, and waitQueueTimeoutMS is nothing to it. If the pool is cleared, this goes on when the server is
    /// well again. Connections beyond `minPoolSize` perish by `maxIdleTimeMS` like any other. When the last one who waits has given up, the pool
    /// is filled no further. Cost: no allocation but for the connections, and for a place among those who wait. Events: `ConnectionCreated` and
    /// `ConnectionReady`.
    ///
    /// # Errors
    ///
    /// [`OperationError::ServerSelection`], [`OperationError::Closed`], [`OperationError::Abandoned`]: no server in time, or none any more.
    /// [`OperationError::Timeout`]: not so many connections in time. [`OperationError::CheckOut`], [`OperationError::Authentication`]:
    /// a connection to the server, of this or of an operation, could not be established meanwhile, as a check-out would be told; nothing is tried again, that is for the
    /// caller to say. Or the server has gone or the client was closed ([`CheckOutError::PoolClosed`]), or there is no place to wait
    /// ([`CheckOutError::Busy`]). It is no error if there are as many connections all the same.
    pub async fn warm_up(
        &self,
        wanted: &Wanted<'_>,
        conns: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<(), OperationError> {
        let server = self.select_server(wanted, deadline).await?;
        self.warm_up_server(&server, conns, deadline).await
    }

    pub(super) async fn warm_up_server(
        &self,
        server: &R::ServerHandle,
        conns: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<(), OperationError> {
        let mut place = WarmerPlace::<R> { hub: self, server, index: None };
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

/// The place of somebody who waits; left when that ends or is dropped.
struct WarmerPlace<'h, R: Runtime> {
    hub: &'h Hub<R>,
    server: &'h R::ServerHandle,
    index: Option<usize>,
}

impl<R: Runtime> Drop for WarmerPlace<'_, R> {
    fn drop(&mut self) {
        if self.hub.is_inherited() {
            core::mem::forget(self.server.clone());
        } else if let Some(index) = self.index {
            self.server.leave_warmers(self.hub.now(), index);
        }
    }
}

impl<R: Runtime> Server<R> {
    /// Whether so many connections are there; if not, has the pool filled, and wakes `waker` when there is news.
    ///
    /// - `place`: where the caller waits, once it does.
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
            let seat = joined.and_then(|index| state.warmers.slots_mut().get_mut(index));
            let polled = match seat {
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

impl<R: Runtime> ServerState<R> {
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

    /// Has the pool filled to the most that anybody waits for.
    pub(super) fn retarget(&mut self, now: Instant, observer: &mut Tap<'_, R::Events>) {
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

    /// Tells those who wait of a connection that was not established.
    pub(super) fn fail_warmers(&mut self, error: CheckOutError) {
        for warmer in self.warmers.slots_mut() {
            if let Warmer::Waits { failed, .. } = warmer {
                failed.get_or_insert(error);
            }
        }
    }

    /// Who is to look again: there are as many connections as they wait for, or the pool is filled no further, or one was not established.
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
