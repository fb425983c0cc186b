//! The memory of a pool and the contents of its slots.

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
    /// The waiter that the connection is bound to, or `NIL`.
    pub(super) waiter: u32,
    /// The service of the connection in load-balanced mode, or `NIL` before the hello reply.
    pub(super) service: u32,
    pub(super) pinned: Pinned,
    pub(super) fate: Fate,
}

/// Whether a connection is closed when it is checked in, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    /// It can be reused.
    Reusable,
    /// It is closed: [`Pool::retire`](super::Pool::retire) was called.
    Retired,
    /// It is closed: an interrupt is owed, or was polled.
    Interrupted,
}

/// A check-out that waits, or whose outcome has not been claimed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaiterSlot {
    pub(super) started: Past<Instant>,
    /// The caller's own deadline.
    pub(super) deadline: Option<Instant>,
    /// The pending connection that the waiter is bound to, or `NIL`.
    pub(super) conn: u32,
    pub(super) verdict: Verdict,
}

/// The outcome of a check-out, until it is claimed.
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
            fate: Fate::Reusable,
        }
    }
}

/// The memory of a pool: [`Fixed`] or, with feature `alloc`, `OnHeap`.
pub trait Memory {
    /// One slot for each connection.
    type PerConn<T>: Store<T>;
    /// One slot for each check-out that waits.
    type PerWaiter<T>: Store<T>;
    /// One slot for each service behind a load balancer.
    type PerService<T>: Store<T>;
}

pub(super) type Conns<M, const LISTS: usize> = Table<ConnSlot, <M as Memory>::PerConn<Slot<ConnSlot>>, LISTS>;
pub(super) type Waiters<M, const LISTS: usize> = Table<WaiterSlot, <M as Memory>::PerWaiter<Slot<WaiterSlot>>, LISTS>;
pub(super) type Services<M> = Table<ServiceSlot, <M as Memory>::PerService<Slot<ServiceSlot>>, 1>;
pub(super) type WaiterDeadlines<M> = Deadlines<Slots<Instant, <M as Memory>::PerWaiter<Instant>>>;

/// Memory inside the pool, of fixed capacity: up to `CONNS` connections, `WAITERS` check-outs that
/// wait and, in load-balanced mode, `SERVICES` services: [`Pool::new`](super::Pool::new) panics for a
/// load-balanced pool without slots for services. A `maxPoolSize` above `CONNS` means
/// `CONNS`. A check-out that finds no free waiter slot fails with [`CheckOutError::Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed<const CONNS: usize, const WAITERS: usize, const SERVICES: usize = 0>;

impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Memory for Fixed<CONNS, WAITERS, SERVICES> {
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
    type PerService<T> = heapless::Vec<T, SERVICES>;
}

/// Memory on the heap. It grows when a connection is created, and when more check-outs wait than
/// ever before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnHeap;

#[cfg(feature = "alloc")]
impl Memory for OnHeap {
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
    type PerService<T> = crate::storage::Heap<T>;
}
