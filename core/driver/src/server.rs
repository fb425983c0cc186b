//! One server: its pool behind a lock, and what the server has reported.
//!
//! The pool is driven by [`Drive`]. Callers that hold the client core's lock use [`Drive::change`],
//! and [`Drive::settle`] after they have released it.

mod fork;
mod new;

pub use new::NewServer;

use super::connection::Held;
#[cfg(feature = "alloc")]
use super::drain::Late;
use super::driven::{Drive, Driven, DrivenOf, LastWaited};
use super::error::{CheckOutFailure, OperationError};
use super::login::Refusal;
#[cfg(feature = "alloc")]
use super::runtime::ConnectError;
use super::runtime::{Locked, Runtime};
use core::fmt;
use core::task::Waker;
#[cfg(feature = "alloc")]
use core::time::Duration;
use poolhouse_core::observe::{EventContext, Within};
use poolhouse_core::pool::{
    CheckOutError, Clear, ConnId, EstablishError, Generation, Lease, Pinned, PoolConfig, PoolCounts, PoolId, PoolState,
    ServiceError,
};
use poolhouse_core::topology::PoolCommand;
use poolhouse_core::{Cause, Instant, ObjectId, Reason, ServerId};
use poolhouse_wire::handshake::Established;

/// One server of a client, and its pool.
pub struct Server<R: Runtime> {
    id: ServerId,
    address: R::Text,
    events: R::Events,
    last_waited: LastWaited,
    pub(super) state: R::ServerLock,
}

impl<R: Runtime<ServerLock: Clone>> Clone for Server<R> {
    /// Another handle of the same server.
    fn clone(&self) -> Self {
        let Self { id, address, events, state, .. } = self;
        Self::new(*id, address.clone(), events.clone(), state.clone())
    }
}

/// The state behind the lock of a server: its pool, and what the server has reported.
pub struct ServerState<R: Runtime> {
    pub(super) driven: Driven<R::Memory, Held<R>, Established>,
    /// The last reason why a connection was not authenticated; cleared when a connection is
    /// established.
    refusal: Option<Refusal>,
    /// The last reason why the server could not be reached, for an operation or by the monitor;
    /// cleared when a connection for an operation is established.
    #[cfg(feature = "alloc")]
    pub(super) failure: Option<ConnectError>,
    /// The minimum round-trip time, copied from the topology, so that a command needs no lock of the
    /// client core. Zero while it is unknown.
    #[cfg(feature = "alloc")]
    round_trip_minimum: Duration,
    #[cfg(feature = "alloc")]
    pub(super) late: Late<R>,
}

impl<R: Runtime> Drive for Server<R> {
    type Runtime = R;
    type Connection = Held<R>;
    type Known = Established;

    #[inline]
    fn events(&self) -> &R::Events {
        &self.events
    }

    #[inline]
    fn name(&self) -> &str {
        self.address()
    }

    #[inline]
    fn last_waited(&self) -> &LastWaited {
        &self.last_waited
    }

    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut DrivenOf<Self>) -> T) -> T {
        self.state.with(|state| f(&mut state.driven))
    }
}

impl<R: Runtime> ServerState<R> {
    /// The generation and the service of a connection; `None` if it no longer exists.
    pub(super) fn origin(&self, id: ConnId) -> Option<Origin> {
        let service_id = self.driven.pool.conn_service(id);
        let pool_generation = match service_id {
            Some(service_id) => self.driven.pool.service_generation(service_id),
            None => self.driven.pool.generation(),
        };
        let generation = self.driven.pool.conn_generation(id)?.get();
        Some(Origin { generation, pool_generation: pool_generation.get(), service_id })
    }

    fn snapshot(&self) -> PoolSnapshot {
        let pool = &self.driven.pool;
        PoolSnapshot { state: pool.state(), generation: pool.generation().get(), counts: pool.counts() }
    }
}

impl<R: Runtime> Server<R> {
    fn new(id: ServerId, address: R::Text, events: R::Events, state: R::ServerLock) -> Self {
        Self { id, address, events, last_waited: LastWaited::default(), state }
    }

    /// The server's id in its topology.
    pub const fn id(&self) -> ServerId {
        self.id
    }

    /// The server's address, as the topology names it.
    pub fn address(&self) -> &str {
        self.address.as_ref()
    }

    /// The pool at one instant.
    pub fn pool_snapshot(&self) -> PoolSnapshot {
        self.state.with(|state| state.snapshot())
    }

    /// The number of operations in progress, those that wait for a connection included.
    pub(super) fn operation_count(&self) -> u32 {
        self.with(|state| {
            let counts = state.pool.counts();
            counts.in_use.saturating_add(counts.waiting)
        })
    }

    /// Executes a command of the topology, under the client core's lock.
    pub(super) fn command(&self, now: Instant, command: PoolCommand) {
        match command {
            PoolCommand::Ready => self.change(|state, observer| state.pool.ready(now, observer)),
            PoolCommand::Clear { interrupt_in_use_connections, cause } => {
                self.clear(now, Clear::All { interrupt_in_use_connections }, cause);
            }
        }
    }

    /// Clears the pool, under the client core's lock.
    pub(super) fn clear(&self, now: Instant, clear: Clear, cause: Cause) {
        let cleared = self.change(|state, observer| state.pool.clear(now, clear, Some(cause), observer));
        debug_assert!(cleared.is_ok(), "the topology judges by its pools' mode");
    }

    /// Stores the minimum round-trip time, under the client core's lock.
    #[cfg(feature = "alloc")]
    pub(super) fn note_round_trip(&self, minimum: Option<Duration>) {
        self.state.with(|state| state.round_trip_minimum = minimum.unwrap_or_default());
    }

    #[cfg(feature = "alloc")]
    pub(super) fn round_trip_minimum(&self) -> Duration {
        self.state.with(|state| state.round_trip_minimum)
    }

    /// Changes the pool's options, under the client core's lock.
    pub(super) fn reconfigure(&self, now: Instant, config: PoolConfig) {
        self.change(|state, observer| {
            state.pool.reconfigure(now, config, observer);
            if state.warming > 0 {
                state.retarget(now, observer);
            }
        });
    }

    /// Closes the pool, under the client core's lock.
    pub(super) fn close(&self, now: Instant) {
        self.change(|state, observer| state.pool.close(now, observer));
    }

    /// Stores how a connection that is checked out is used.
    pub(super) fn pin(&self, lease: &Lease, pinned: Pinned) {
        let pinned = self.with(|state| state.pool.pin(lease, pinned));
        debug_assert!(pinned.is_ok(), "a guard has a lease of its own server");
    }

    /// [`Drive::established`]. Failures before it are no longer the reason of later ones.
    pub(super) fn established(
        &self,
        now: Instant,
        id: ConnId,
        connection: Held<R>,
        known: Established,
    ) -> Option<Held<R>> {
        self.forget_failure();
        let _refusal = self.state.with(|state| state.refusal.take());
        Drive::established(self, now, id, connection, known)
    }

    /// The server's hello when the connection was established; `None` if the connection no longer
    /// exists.
    pub(super) fn known(&self, id: ConnId) -> Option<Established> {
        self.with(|state| state.conn_slot(id).and_then(|slot| slot.known))
    }

    /// Stores the service of a connection, in load-balanced mode.
    pub(super) fn note_service(&self, id: ConnId, service_id: ObjectId) -> Result<Generation, ServiceError> {
        self.step(|state, _| state.pool.handle_service(id, service_id))
    }

    /// Stores why a connection was not authenticated, for the check-outs that wait for it. Failures
    /// of another kind do not replace it, so check-outs that have not polled yet can still report
    /// it.
    pub(super) fn note_refusal(&self, refusal: Refusal) {
        let _before = self.state.with(|state| state.refusal.replace(refusal));
    }

    /// The error of a check-out of this server.
    pub(super) fn explain(&self, error: CheckOutError) -> OperationError {
        let address = self.address();
        let report =
            self.state.with(|state| state.refusal.as_ref().and_then(|refusal| refusal.explain(error, address)));
        if let Some(report) = report {
            return OperationError::Authentication(report);
        }
        let failure = CheckOutFailure::new(error, address);
        #[cfg(feature = "alloc")]
        let failure = CheckOutFailure { reason: self.reason_of_check_out(error), ..failure };
        OperationError::CheckOut(failure)
    }

    /// Reports to the pool that a connection could not be established, under the client core's
    /// lock. Returns a waker that must be dropped without a lock.
    pub(super) fn fail_establish(
        &self,
        now: Instant,
        id: ConnId,
        error: EstablishError,
        reason: &Reason,
    ) -> Option<Waker> {
        let context = EventContext::NONE.with_reason(reason);
        self.change(|state, observer| state.fail_establish(now, id, error, &mut Within::new(observer, context)))
    }

    /// The generation and the service of a connection, to judge its errors; `None` if the
    /// connection no longer exists.
    pub(super) fn origin(&self, id: ConnId) -> Option<Origin> {
        self.state.with(|state| state.origin(id))
    }
}

impl<R: Runtime> fmt::Debug for ServerState<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("pool", &self.driven.pool.id()).finish_non_exhaustive()
    }
}

impl<R: Runtime> fmt::Debug for Server<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("id", &self.id)
            .field("address", &self.address())
            .field("pool", &self.pool_snapshot())
            .finish_non_exhaustive()
    }
}

/// The generation and the service of a connection.
pub(super) struct Origin {
    /// The connection's generation.
    pub(super) generation: u64,
    /// The current generation of its pool, or of its service.
    pub(super) pool_generation: u64,
    pub(super) service_id: Option<ObjectId>,
}

/// A pool at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Whether it hands out connections.
    pub state: PoolState,
    /// How many times it was cleared.
    pub generation: u64,
    /// Its connections and waiters.
    pub counts: PoolCounts,
}
