//! The words that a pool and its host exchange.

use super::CheckOutError;
use crate::hooks::Word;
use crate::storage::table::Key;
use crate::{Cause, ObjectId};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

/// Names a pool in leases and events. The host picks it, different for any two pools whose leases could meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(u64);

impl PoolId {
    /// The pool with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number that the host picked.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Names a connection of one pool, for as long as the pool knows it and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId(pub(super) Key);

impl ConnId {
    /// Its place, for tables beside the pool's. Free to be taken by another connection once this one is gone.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index
    }

    /// The specification's connection id: 1 for the first connection of the pool, then rising by 1 (CMAP-16).
    #[must_use]
    pub const fn connection_id(self) -> NonZeroU64 {
        self.0.serial
    }
}

/// Names a check-out that waits, until its outcome is claimed or it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId(pub(super) Key);

impl WaiterId {
    /// Its place, for tables beside the pool's.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index
    }
}

/// The right to use a connection, until it is checked in. It cannot be cloned, so a second check-in does not compile.
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

    /// The pool that it goes back to.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        self.pool
    }

    /// The same lease of a clone of the pool, for searches that clone a pool together with its host.
    #[cfg(feature = "sim")]
    pub const fn cloned(&self) -> Self {
        Self { conn: self.conn, pool: self.pool }
    }
}

/// What became of a check-out at once.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum CheckOut {
    /// A connection was there.
    Granted(Lease),
    /// It waits: see [`Pool::claim`](super::Pool::claim).
    Queued(WaiterId),
}

/// What became of a check-out that waited.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Nothing yet.
    Waiting,
    /// It has a connection.
    Granted(Lease),
    /// It failed.
    Failed(CheckOutError),
    /// It is not known: claimed or cancelled before.
    Stale,
}

/// The state of a connection that is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It answered all that it was asked.
    Healthy,
    /// A network or protocol error, a timeout, or a reply that is still outstanding: it is closed (CMAP-20).
    Broken(Cause),
}

/// What a connection of a load-balanced pool is pinned to (CMAP-93).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pinned {
    /// Nothing.
    #[default]
    No,
    /// A cursor.
    Cursor,
    /// A transaction.
    Transaction,
}

/// Which connections become stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clear {
    /// All of the pool, which is paused. Not for load-balanced pools.
    All {
        /// Whether connections in use are interrupted, and pending ones abandoned.
        interrupt_in_use_connections: bool,
    },
    /// Those of one service of a load-balanced pool, which stays ready.
    Service(ObjectId),
}

/// Why a connection could not be established, and what whoever judges failures makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EstablishError {
    /// Why.
    pub cause: Cause,
    /// Whether the error carries the labels `SystemOverloadedError` and `RetryableError` (CMAP-95..98).
    pub overloaded: bool,
    /// Whether the failure clears the pool. A kind that belongs to the other mode is ignored, and so is the failure of
    /// a connection that is stale already.
    pub clear: Option<Clear>,
}

/// How many times a pool was cleared.
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
    /// Not until [`Pool::ready`](super::Pool::ready).
    Paused,
    /// Yes.
    Ready,
    /// Never again.
    Closed,
}

/// How many connections and waiters a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// All connections: what `maxPoolSize` limits.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.pending + self.available + self.in_use
    }
}

/// What a pool owes its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolAction {
    /// The outcome of this check-out is there: wake whoever waits for it.
    Wake(WaiterId),
    /// Stop what this connection does. In use: its operation fails, and it is checked in. Being established: its
    /// socket is dropped, and nothing is reported.
    Interrupt(ConnId),
    /// Close the socket of this connection, without waiting for it.
    Close(ConnId),
    /// Connect, shake hands and authenticate, then report [`Pool::handle_established`](super::Pool::handle_established) or
    /// [`Pool::handle_establish_failed`](super::Pool::handle_establish_failed).
    Establish(ConnId),
}
