//! Where a pool keeps its slots, and what is in one.

use super::{CheckOutError, ConnId, Generation, Pinned};
use crate::storage::deadlines::Deadlines;
use crate::storage::table::{NIL, Slot, Table};
use crate::storage::{Slots, Store};
use crate::time::Past;
use crate::{Instant, ObjectId};

/// A connection of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConnSlot {
    pub(super) created: Past<Instant>,
    pub(super) available_since: Instant,
    pub(super) generation: Generation,
    /// The waiter for which it is being established.
    pub(super) waiter: u32,
    /// Its service, in load-balanced mode once hello told.
    pub(super) service: u32,
    pub(super) pinned: Pinned,
    pub(super) interrupted: bool,
}

/// A check-out that could not be served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaiterSlot {
    pub(super) started: Past<Instant>,
    /// The caller's own deadline.
    pub(super) deadline: Option<Instant>,
    /// The connection that is being established for it.
    pub(super) conn: u32,
    pub(super) verdict: Verdict,
}

/// How a check-out ended, kept until it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Waiting,
    Granted(ConnId),
    Failed(CheckOutError),
}

/// A service behind a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceSlot {
    pub(super) id: ObjectId,
    pub(super) generation: Generation,
    pub(super) count: u32,
}

impl ConnSlot {
    pub(super) const fn new(now: Instant, generation: Generation) -> Self {
        Self {
            created: Past(now),
            available_since: now,
            generation,
            waiter: NIL,
            service: NIL,
            pinned: Pinned::No,
            interrupted: false,
        }
    }
}

/// Where a pool keeps its slots: [`Fixed`] or, with feature `alloc`, `OnHeap`.
pub trait Memory {
    /// As many as connections.
    type PerConn<T>: Store<T>;
    /// As many as check-outs that wait.
    type PerWaiter<T>: Store<T>;
    /// As many as services behind a load balancer.
    type PerService<T>: Store<T>;
}

pub(super) type Conns<M, const LISTS: usize> = Table<ConnSlot, <M as Memory>::PerConn<Slot<ConnSlot>>, LISTS>;
pub(super) type Waiters<M, const LISTS: usize> = Table<WaiterSlot, <M as Memory>::PerWaiter<Slot<WaiterSlot>>, LISTS>;
pub(super) type Services<M> = Table<ServiceSlot, <M as Memory>::PerService<Slot<ServiceSlot>>, 1>;
pub(super) type WaiterDeadlines<M> = Deadlines<Slots<Instant, <M as Memory>::PerWaiter<Instant>>>;

/// In place: up to `CONNS` connections, `WAITERS` check-outs that wait and, in load-balanced mode,
/// `SERVICES` services. `maxPoolSize` beyond `CONNS` means `CONNS`; a check-out that finds no place to wait
/// fails with [`CheckOutError::Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed<const CONNS: usize, const WAITERS: usize, const SERVICES: usize = 0>;

impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Memory for Fixed<CONNS, WAITERS, SERVICES> {
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
    type PerService<T> = heapless::Vec<T, SERVICES>;
}

/// On the heap, growing when a connection is created or more check-outs wait than ever before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnHeap;

#[cfg(feature = "alloc")]
impl Memory for OnHeap {
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
    type PerService<T> = crate::storage::Heap<T>;
}
