//! Where a multiplexed pool keeps its slots, and what is in one.

use super::AcquireError;
use super::streams::Streams;
use super::types::MuxConnId;
use crate::Instant;
use crate::storage::deadlines::Deadlines;
use crate::storage::table::{Slot, Table};
use crate::storage::{Slots, Store};
use crate::time::Past;

/// A connection of a multiplexed pool. Its stream ids are in a table beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MuxConnSlot {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MuxWaiterSlot {
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

/// Where a multiplexed pool keeps its slots: [`MuxFixed`] or, with feature `alloc`, `MuxOnHeap`.
pub trait MuxMemory {
    /// As many as connections.
    type PerConn<T>: Store<T>;
    /// As many as requests that wait.
    type PerWaiter<T>: Store<T>;
    /// The words that hold the stream ids of one connection.
    type Words: Store<u64>;
}

pub(super) type Conns<M, const LISTS: usize> = Table<MuxConnSlot, <M as MuxMemory>::PerConn<Slot<MuxConnSlot>>, LISTS>;
pub(super) type ConnStreams<M> = Streams<Slots<u64, <M as MuxMemory>::Words>>;
pub(super) type AllStreams<M> = Slots<ConnStreams<M>, <M as MuxMemory>::PerConn<ConnStreams<M>>>;
pub(super) type Waiters<M, const LISTS: usize> =
    Table<MuxWaiterSlot, <M as MuxMemory>::PerWaiter<Slot<MuxWaiterSlot>>, LISTS>;
pub(super) type WaiterDeadlines<M> = Deadlines<Slots<Instant, <M as MuxMemory>::PerWaiter<Instant>>>;

/// In place: up to `CONNS` connections, trashed ones included, `WAITERS` requests that wait, and stream ids in `WORDS` words for each connection
/// ([`stream_words`](super::stream_words) of as many as there are to be). What the options allow beyond is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxFixed<const CONNS: usize, const WAITERS: usize, const WORDS: usize>;

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> MuxMemory for MuxFixed<CONNS, WAITERS, WORDS> {
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
    type Words = heapless::Vec<u64, WORDS>;
}

/// On the heap, growing when a connection is created or more requests wait than ever before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxOnHeap;

#[cfg(feature = "alloc")]
impl MuxMemory for MuxOnHeap {
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
    type Words = crate::storage::Heap<u64>;
}
