//! Ids, leases, outcomes and actions of a pool.

use super::CheckOutError;
use crate::hooks::Word;
use crate::storage::table::Key;
use crate::{Cause, ObjectId};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

/// Identifies a pool in leases and events. The host chooses the number; two pools with leases that
/// could be mixed up need different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PoolId(u64);

impl PoolId {
    /// The pool with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number that the host chose.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Identifies a connection of one pool. The id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub(super) Key);

impl ConnId {
    /// The connection's slot index, for tables parallel to the pool's slots. Another connection may
    /// use the index after this one has left the pool.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }

    /// The specification's connection id: 1 for the first connection of the pool, then rising by 1.
    #[must_use]
    pub const fn connection_id(self) -> NonZeroU64 {
        self.0.serial
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ConnId {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "ConnId({=u64})", self.connection_id().get());
    }
}

/// Identifies a check-out that waits, until its outcome is claimed or it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId(pub(super) Key);

impl WaiterId {
    /// The waiter's slot index, for tables parallel to the pool's slots.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }
}

/// The right to use a connection until it is checked in. It cannot be cloned, so a second check-in
/// does not compile.
#[must_use = "a lease that is dropped leaves its connection in use for ever: check it in"]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(super) conn: ConnId,
    pub(super) pool: PoolId,
}

impl Lease {
    /// The connection.
    #[must_use]
    pub const fn conn(&self) -> ConnId {
        self.conn
    }

    /// The pool that issued the lease.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The same lease for a clone of the pool, for searches that clone a pool together with its
    /// host.
    #[cfg(feature = "sim")]
    pub const fn cloned(&self) -> Self {
        Self { conn: self.conn, pool: self.pool }
    }
}

/// The immediate result of a check-out.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum CheckOut {
    /// A connection was available.
    Granted(Lease),
    /// The check-out waits: see [`Pool::claim`](super::Pool::claim).
    Queued(WaiterId),
}

/// The result of a check-out that waited.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// No outcome yet.
    Waiting,
    /// The check-out has a connection.
    Granted(Lease),
    /// The check-out failed.
    Failed(CheckOutError),
    /// Unknown id: the check-out was claimed or cancelled before.
    Stale,
}

/// The state of a connection that is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The connection can be reused: every reply was read completely.
    Healthy,
    /// A network or protocol error, a timeout, or an outstanding reply: the connection is closed.
    Broken(Cause),
}

/// The use that a connection of a load-balanced pool is pinned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pinned {
    /// Not pinned.
    #[default]
    No,
    /// Pinned to a cursor.
    Cursor,
    /// Pinned to a transaction.
    Transaction,
}

/// The scope of a clear: which connections become stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clear {
    /// All connections of the pool, which is paused. Not for load-balanced pools.
    All {
        /// Whether connections in use are interrupted, and pending ones abandoned.
        interrupt_in_use_connections: bool,
    },
    /// The connections of one service of a load-balanced pool, which stays ready.
    Service(ObjectId),
}

/// The cause of a failure to establish a connection, and whether it clears the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EstablishError {
    /// The cause.
    pub cause: Cause,
    /// Whether the error has the labels `SystemOverloadedError` and `RetryableError`.
    pub overloaded: bool,
    /// Whether the failure clears the pool, and how. Ignored if the kind belongs to the other mode,
    /// or if the connection is stale already.
    pub clear: Option<Clear>,
}

/// The number of times a pool or a service was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub(crate) u64);

impl Generation {
    /// The number of clears.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Hash for Generation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Generation.hash(self.0, state);
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a pool hands out connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolState {
    /// Check-outs fail until [`Pool::ready`](super::Pool::ready).
    Paused,
    /// Connections are handed out.
    Ready,
    /// Closed permanently; check-outs fail.
    Closed,
}

/// The numbers of connections and waiters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PoolCounts {
    /// Connections that are being established.
    pub pending: u32,
    /// Connections that can be checked out.
    pub available: u32,
    /// Connections that are checked out.
    pub in_use: u32,
    /// Check-outs that wait, whether or not a connection is being established for them.
    pub waiting: u32,
}

impl PoolCounts {
    /// All connections: the number that `maxPoolSize` limits.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.pending + self.available + self.in_use
    }
}

/// An action that a pool owes its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolAction {
    /// The outcome of this check-out is available: wake its task.
    Wake(WaiterId),
    /// Interrupt the I/O of this connection. If it is in use, its operation fails and it is checked
    /// in. If it is being established, drop its socket and report nothing.
    Interrupt(ConnId),
    /// Close the socket of this connection, without waiting for the end of the close.
    Close(ConnId),
    /// Connect, shake hands and authenticate, then report
    /// [`Pool::handle_established`](super::Pool::handle_established) or
    /// [`Pool::handle_establish_failed`](super::Pool::handle_establish_failed).
    Establish(ConnId),
}
