//! The words that a multiplexed pool and its host exchange.

use super::AcquireError;
use crate::storage::table::Key;
use core::num::NonZeroU64;

/// Names a pool in streams and events. Whoever drives it picks it, different for any two pools whose streams could meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MuxId(u32);

impl MuxId {
    /// The pool with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number that was picked.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Names a connection of one pool, for as long as the pool knows it and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxConnId(pub(super) Key);

impl MuxConnId {
    /// Its place, for tables beside the pool's. Free to be taken by another connection once this one is gone.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index
    }

    /// Its number: 1 for the first connection of the pool, then rising by 1.
    #[must_use]
    pub const fn number(self) -> NonZeroU64 {
        self.0.serial
    }
}

/// Names a request that waits for a connection that takes it, until its outcome is claimed or it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxWaiterId(pub(super) Key);

impl MuxWaiterId {
    /// Its place, for tables beside the pool's.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0.index
    }
}

/// The right to one stream id of one connection, until it is released. It cannot be cloned, so a second release does not compile.
#[must_use = "a stream that is dropped keeps its id for ever: release it"]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub(super) conn: MuxConnId,
    pub(super) id: u16,
    pub(super) mux: MuxId,
}

impl Stream {
    /// The connection that the request goes by.
    #[must_use]
    pub const fn conn(&self) -> MuxConnId {
        self.conn
    }

    /// The stream id, below 32,768.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The pool that it goes back to.
    #[must_use]
    pub const fn mux(&self) -> MuxId {
        self.mux
    }

    /// The same stream of a clone of the pool, for searches that clone a pool together with its host.
    #[cfg(feature = "sim")]
    pub const fn cloned(&self) -> Self {
        Self { conn: self.conn, id: self.id, mux: self.mux }
    }
}

/// What became of a request at once.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// A connection takes it.
    Granted(Stream),
    /// It waits: see [`Mux::claim`](super::Mux::claim).
    Queued(MuxWaiterId),
}

/// What became of a request that waited.
#[must_use]
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum MuxClaim {
    /// Nothing yet.
    Waiting,
    /// A connection takes it.
    Granted(Stream),
    /// It failed.
    Failed(AcquireError),
    /// It is not known: claimed or cancelled before.
    Stale,
}

/// Whether a request was written, for whoever gives it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// No byte of it was: there will be no reply, and its id is free.
    No,
    /// Some may have been. Unless the reply is there, the id is kept until it comes.
    Perhaps,
}

/// Whose reply it is.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// A request's that waits for it. The host wakes it; it takes the reply and releases the stream.
    Request,
    /// One's that was given up: it is thrown away, and its id is free.
    Late,
    /// A heartbeat's.
    Heartbeat,
}

/// What a multiplexed pool wants of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MuxAction {
    /// Connect and shake hands, then [`Mux::handle_established`](super::Mux::handle_established) or
    /// [`Mux::handle_establish_failed`](super::Mux::handle_establish_failed).
    Establish(MuxConnId),
    /// Ask the peer whether it is there, by this stream id.
    Heartbeat(MuxConnId, u16),
    /// Close its socket, or give up establishing it. Requests that are in flight on it fail, each once. The id is used up.
    Close(MuxConnId),
    /// The outcome of a request that waited is there: claim it.
    Wake(MuxWaiterId),
}

/// The state of a multiplexed pool at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostState {
    /// Connections that take requests.
    pub open: u32,
    /// Connections that are being established, or are about to be.
    pub establishing: u32,
    /// Connections that are not needed and take no requests, kept for a while in case that they are needed again.
    pub trashed: u32,
    /// Connections that take no requests any more, and are closed when the last one is answered.
    pub retired: u32,
    /// Requests whose replies are outstanding, on all connections.
    pub in_flight: u32,
    /// Requests that were given up and whose replies are outstanding.
    pub orphaned: u32,
    /// Requests that wait for a connection that takes them.
    pub queued: u32,
    /// How many requests the open connections take, those in flight included.
    pub capacity: u32,
}
