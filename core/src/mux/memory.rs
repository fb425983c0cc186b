//! Where a multiplexed pool keeps its slots, and what is in one.

use super::AcquireError;
use super::streams::Streams;
use super::types::MuxConnId;
use crate::Instant;
use crate::sim::Past;
use crate::storage::Store;
use crate::storage::deadlines::Node;
use crate::storage::table::Slot;

/// A connection of a multiplexed pool. Its stream ids are in a table beside.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxConnSlot {
    pub(super) created: Past<Instant>,
    /// From when on it is of no more use, once it is trashed.
    pub(super) until: Instant,
    /// When the peer was last heard.
    pub(super) heard: Instant,
    pub(super) in_flight: u32,
    /// A reply has come.
    pub(super) answered: bool,
    pub(super) heartbeat: Option<Heartbeat>,
}

/// A question whether the peer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Heartbeat {
    pub(super) stream: u16,
    pub(super) asked: Instant,
    /// The host was told.
    pub(super) told: bool,
}

/// A request that could not be taken at once.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxWaiterSlot {
    pub(super) started: Past<Instant>,
    pub(super) verdict: Verdict,
}

/// How a request that waited ended, kept until it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Waiting,
    Granted(MuxConnId, u16),
    Failed(AcquireError),
}

mod sealed {
    use super::{Instant, MuxConnSlot, MuxWaiterSlot, Node, Slot, Store, Streams};
    use core::hash::Hash;

    #[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
    pub trait MuxMemory {
        type Conns: Store<Slot<MuxConnSlot>> + Clone + Eq + Hash;
        type Waiters: Store<Slot<MuxWaiterSlot>> + Clone + Eq + Hash;
        type Nodes: Store<Node> + Clone + Eq + Hash;
        type Deadlines: Store<Instant> + Clone + Eq + Hash;
        type Minima: Store<Instant> + Clone + Eq + Hash;
        /// The stream ids of one connection.
        type Words: Store<u64> + Clone + Eq + Hash;
        /// Those of all connections.
        type Streams: Store<Streams<Self::Words>> + Clone + Eq + Hash;
        /// As many as connections.
        type PerConn<T>: Store<T>;
        /// As many as waiters.
        type PerWaiter<T>: Store<T>;
    }
}
pub(crate) use sealed::MuxMemory as Stores;

/// Where a multiplexed pool keeps its slots: [`MuxFixed`] or, with feature `alloc`, `MuxOnHeap`. Sealed.
pub trait MuxMemory: Stores {}

/// In place: up to `CONNS` connections, trashed ones included, `WAITERS` requests that wait, and stream ids in `WORDS` words for each connection
/// ([`stream_words`](super::stream_words) of as many as there are to be). What the options allow beyond is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxFixed<const CONNS: usize, const WAITERS: usize, const WORDS: usize>;

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> Stores for MuxFixed<CONNS, WAITERS, WORDS> {
    type Conns = heapless::Vec<Slot<MuxConnSlot>, CONNS>;
    type Waiters = heapless::Vec<Slot<MuxWaiterSlot>, WAITERS>;
    type Nodes = heapless::Vec<Node, WAITERS>;
    type Deadlines = heapless::Vec<Instant, WAITERS>;
    type Minima = heapless::Vec<Instant, WAITERS>;
    type Words = heapless::Vec<u64, WORDS>;
    type Streams = heapless::Vec<Streams<Self::Words>, CONNS>;
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
}

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> MuxMemory for MuxFixed<CONNS, WAITERS, WORDS> {}

/// On the heap, growing when a connection is created or more requests wait than ever before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxOnHeap;

#[cfg(feature = "alloc")]
impl Stores for MuxOnHeap {
    type Conns = crate::storage::Heap<Slot<MuxConnSlot>>;
    type Waiters = crate::storage::Heap<Slot<MuxWaiterSlot>>;
    type Nodes = crate::storage::Heap<Node>;
    type Deadlines = crate::storage::Heap<Instant>;
    type Minima = crate::storage::Heap<Instant>;
    type Words = crate::storage::Heap<u64>;
    type Streams = crate::storage::Heap<Streams<Self::Words>>;
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
}

#[cfg(feature = "alloc")]
impl MuxMemory for MuxOnHeap {}
