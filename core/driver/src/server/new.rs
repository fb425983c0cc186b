//! Creating a server: on the heap, or in the slot of a removed one.

#[cfg(feature = "alloc")]
use super::Late;
use super::{Driven, PoolConfig, PoolId, Runtime, Server, ServerState};
use crate::event::Tap;
use core::fmt;
#[cfg(feature = "alloc")]
use core::time::Duration;
use poolhouse_core::pool::Pool;
use poolhouse_core::storage::{Full, Store};
use poolhouse_core::{Instant, ServerId};

/// A server that is not shared yet.
pub struct NewServer<R: Runtime> {
    id: ServerId,
    address: R::Text,
    events: R::Events,
    now: Instant,
    pool: PoolId,
    config: PoolConfig,
}

impl<R: Runtime> NewServer<R> {
    /// Its pool, empty and paused.
    fn pool(&self) -> Pool<R::Memory> {
        Pool::new(self.now, self.pool, self.config, &mut Tap::of_server(&self.events, self.address.as_ref()))
    }

    /// Creates the server, with its state in shared storage.
    ///
    /// - `keep`: moves the state behind a lock.
    ///
    /// # Errors
    ///
    /// The error that `keep` returned.
    pub fn share(self, keep: impl FnOnce(ServerState<R>) -> Result<R::ServerLock, Full>) -> Result<Server<R>, Full> {
        let state = keep(ServerState::of(self.pool()))?;
        let Self { id, address, events, .. } = self;
        Ok(Server::new(id, address, events, state))
    }

    /// Creates the server in the slot of a removed one. No handle of that may exist, and its
    /// connections must have been taken ([`ServerState::take_left`]).
    ///
    /// - `place`: the state in the slot.
    /// - `lock`: the reference to the slot.
    #[inline(never)]
    pub fn settle(self, place: &mut ServerState<R>, lock: R::ServerLock) -> Server<R> {
        place.reset(self.pool());
        let Self { id, address, events, .. } = self;
        Server::new(id, address, events, lock)
    }
}

impl<R: Runtime> fmt::Debug for NewServer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewServer")
            .field("id", &self.id)
            .field("address", &self.address.as_ref())
            .finish_non_exhaustive()
    }
}

impl<R: Runtime> Server<R> {
    /// Creates a server with an empty, paused pool.
    ///
    /// - `pool`: unique among the pools of the process.
    pub(in super::super) fn create(
        now: Instant,
        id: ServerId,
        pool: PoolId,
        address: R::Text,
        config: PoolConfig,
        events: R::Events,
    ) -> NewServer<R> {
        NewServer { id, address, events, now, pool, config }
    }
}

impl<R: Runtime> ServerState<R> {
    /// Creates the state of a free slot: its pool is closed.
    #[must_use]
    pub fn vacant() -> Self {
        Self::of(Pool::closed())
    }

    /// Takes a remaining connection after the last handle of the server was dropped; the caller
    /// drops it without the lock. When this returns `None`, the slot can be reused.
    pub fn take_left(&mut self) -> Option<impl Sized + use<R>> {
        self.driven.conn_slots.slots_mut().iter_mut().find_map(|slot| slot.socket.take())
    }

    /// Overwrites the state with that of [`ServerState::of`]. A new state would be large on the
    /// stack.
    fn reset(&mut self, pool: Pool<R::Memory>) {
        self.driven.reset(pool);
        self.refusal = None;
        #[cfg(feature = "alloc")]
        {
            self.late = Late::EMPTY;
            self.failure = None;
            self.round_trip_minimum = Duration::ZERO;
        }
    }

    #[inline]
    pub(super) fn of(pool: Pool<R::Memory>) -> Self {
        Self {
            driven: Driven::new(pool),
            refusal: None,
            #[cfg(feature = "alloc")]
            failure: None,
            #[cfg(feature = "alloc")]
            round_trip_minimum: Duration::ZERO,
            #[cfg(feature = "alloc")]
            late: Late::EMPTY,
        }
    }
}
