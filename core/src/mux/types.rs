//! Ids, streams, outcomes and actions of a multiplexed pool.

use super::AcquireError;
use crate::storage::table::Key;
use core::num::NonZeroU64;

/// Identifies a pool in streams and events. The driver chooses the number; two pools with streams
/// that could be mixed up need different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MuxId(u64);

impl MuxId {
    /// The pool with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number that the driver chose.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Identifies a connection of one pool. The id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxConnId(pub(super) Key);

impl MuxConnId {
    /// The connection's slot index, for tables parallel to the pool's slots. Another connection may
    /// use the index after this one has left the pool.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }

    /// Its number: 1 for the first connection of the pool, then rising by 1.
    #[must_use]
    pub const fn number(self) -> NonZeroU64 {
        self.0.serial
    }
}

/// Identifies a request that waits for a connection, until its outcome is claimed or it is
/// cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxWaiterId(pub(super) Key);

impl MuxWaiterId {
    /// The request's slot index, for tables parallel to the pool's slots.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index()
    }
}

/// The right to use one stream id of one connection until it is released. It cannot be cloned, so a
/// second release does not compile.
#[must_use = "a stream that is dropped keeps its id for ever: release it"]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub(super) conn: MuxConnId,
    pub(super) id: u16,
    pub(super) mux: MuxId,
}

impl Stream {
    /// The connection to write the request on.
    #[must_use]
    pub const fn conn(&self) -> MuxConnId {
        self.conn
    }

    /// The stream id, below 32,768.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The pool that issued the stream.
    #[must_use]
    pub const fn mux(&self) -> MuxId {
        self.mux
    }

    /// The same stream for a clone of the pool, for searches that clone a pool together with its
    /// driver.
    #[cfg(feature = "sim")]
    pub const fn cloned(&self) -> Self {
        Self { conn: self.conn, id: self.id, mux: self.mux }
    }
}

/// The immediate result of a request.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// A connection takes the request.
    Granted(Stream),
    /// The request waits: see [`Mux::claim`](super::Mux::claim).
    Queued(MuxWaiterId),
}

/// The result of a request that waited.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum MuxClaim {
    /// No outcome yet.
    Waiting,
    /// A connection takes the request.
    Granted(Stream),
    /// The request failed.
    Failed(AcquireError),
    /// Unknown id: the request was claimed or cancelled before.
    Stale,
}

/// Whether bytes of an abandoned request were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// No byte was written: no reply will arrive, and the id is free.
    No,
    /// Bytes may have been written. The id stays reserved until the reply arrives.
    Perhaps,
}

/// The kind of request that a reply belongs to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// A request that waits for it. The driver wakes the request's task, which takes the reply and
    /// releases the stream.
    Request,
    /// A request that was abandoned: the reply is dropped, and the id is free.
    Late,
    /// A heartbeat.
    Heartbeat,
}

/// An action that a multiplexed pool owes its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MuxAction {
    /// Connect and shake hands, then report
    /// [`Mux::handle_established`](super::Mux::handle_established) or
    /// [`Mux::handle_establish_failed`](super::Mux::handle_establish_failed).
    Establish(MuxConnId),
    /// Send a heartbeat with this stream id.
    Heartbeat(MuxConnId, u16),
    /// Close the socket of the connection, or abandon its establishment. Requests in flight on it
    /// fail, each once. The id is no longer valid.
    Close(MuxConnId),
    /// The outcome of a request that waited is available: claim it.
    Wake(MuxWaiterId),
}

/// The state of a multiplexed pool at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostState {
    /// Connections that take requests.
    pub open: u32,
    /// Connections that are being established, or are about to be.
    pub establishing: u32,
    /// Surplus connections, which take no requests and are kept for resurrection.
    pub trashed: u32,
    /// Connections that take no more requests, and are closed when the last one is answered.
    pub retired: u32,
    /// Requests with outstanding replies, on all connections.
    pub in_flight: u32,
    /// Requests that were abandoned and have outstanding replies.
    pub orphaned: u32,
    /// Requests that wait for a connection.
    pub queued: u32,
    /// The number of requests that the open connections take, those in flight included.
    pub capacity: u32,
}
