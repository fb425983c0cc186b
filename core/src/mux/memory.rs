//! The memory of a multiplexed pool and the contents of its slots.

use super::AcquireError;
use super::streams::Streams;
use super::types::MuxConnId;
use crate::Instant;
use crate::storage::deadlines::Deadlines;
use crate::storage::table::{Slot, Table};
use crate::storage::{Slots, Store};
use crate::time::Past;

/// A connection of a multiplexed pool. Its stream ids are in a separate table with the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MuxConnSlot {
    pub(super) created: Past<Instant>,
    /// The time at which a trashed connection expires.
    pub(super) until: Instant,
    /// The time of the last bytes from the peer.
    pub(super) received_at: Instant,
    /// The time at which the last heartbeat was started; before the first, that of the establishment.
    pub(super) heartbeat_at: Instant,
    pub(super) in_flight: u32,
    /// Whether a reply was received on this connection.
    pub(super) answered: bool,
    /// Whether it was retired because all connections are replaced.
    pub(super) is_replaced: bool,
    pub(super) heartbeat: Option<Heartbeat>,
}

/// A heartbeat that has not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Heartbeat {
    pub(super) stream: u16,
    /// When it was started, or bytes were received after it was sent.
    pub(super) asked: Instant,
    /// Whether the driver has polled the action.
    pub(super) polled: bool,
}

/// A request that waits, or whose outcome has not been claimed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MuxWaiterSlot {
    pub(super) started: Past<Instant>,
    pub(super) verdict: Verdict,
}

/// The outcome of a request that waited, kept until it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Waiting,
    Granted(MuxConnId, u16),
    Failed(AcquireError),
}

/// The memory of a multiplexed pool: [`MuxFixed`] or, with feature `alloc`, `MuxOnHeap`.
pub trait MuxMemory {
    /// One slot for each connection.
    type PerConn<T>: Store<T>;
    /// One slot for each waiting request.
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

/// Memory inside the pool, of fixed capacity: up to `CONNS` connections, trashed ones included,
/// `WAITERS` waiting requests, and stream ids in `WORDS` words for each connection
/// ([`stream_words`](super::stream_words) computes `WORDS` from the number of ids). The pool
/// reduces options that exceed the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxFixed<const CONNS: usize, const WAITERS: usize, const WORDS: usize>;

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> MuxMemory for MuxFixed<CONNS, WAITERS, WORDS> {
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
    type Words = heapless::Vec<u64, WORDS>;
}

/// Memory on the heap. It grows when a connection is created, and when more requests wait than ever
/// before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MuxOnHeap;

#[cfg(feature = "alloc")]
impl MuxMemory for MuxOnHeap {
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
    type Words = crate::storage::Heap<u64>;
}
