//! Where a pool keeps its slots, and what is in one.

use super::{CheckOutError, ConnId, Generation, Pinned};
use crate::sim::Past;
use crate::storage::Store;
use crate::storage::deadlines::Node;
use crate::storage::table::{NIL, Slot};
use crate::{Instant, ObjectId};

/// A connection of a pool.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnSlot {
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
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterSlot {
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
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceSlot {
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

mod sealed {
    use super::{ConnSlot, Instant, Node, ServiceSlot, Slot, Store, WaiterSlot};
    use core::hash::Hash;

    #[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
    pub trait Memory {
        type Conns: Store<Slot<ConnSlot>> + Clone + Eq + Hash;
        type Waiters: Store<Slot<WaiterSlot>> + Clone + Eq + Hash;
        type Nodes: Store<Node> + Clone + Eq + Hash;
        type Deadlines: Store<Instant> + Clone + Eq + Hash;
        type Minima: Store<Instant> + Clone + Eq + Hash;
        type Services: Store<Slot<ServiceSlot>> + Clone + Eq + Hash;
        /// As many as connections, for what the shell keeps beside them.
        type PerConn<T>: Store<T>;
        /// As many as waiters.
        type PerWaiter<T>: Store<T>;
    }
}
pub(crate) use sealed::Memory as Stores;

/// Where a pool keeps its slots: [`Fixed`] or, with feature `alloc`, `OnHeap`. Sealed.
pub trait Memory: Stores {}

/// In place: up to `CONNS` connections, `WAITERS` check-outs that wait and, in load-balanced mode,
/// `SERVICES` services. `maxPoolSize` beyond `CONNS` means `CONNS`; a check-out that finds no place to wait
/// fails with [`CheckOutError::Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed<const CONNS: usize, const WAITERS: usize, const SERVICES: usize = 0>;

impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Stores for Fixed<CONNS, WAITERS, SERVICES> {
    type Conns = heapless::Vec<Slot<ConnSlot>, CONNS>;
    type Waiters = heapless::Vec<Slot<WaiterSlot>, WAITERS>;
    type Nodes = heapless::Vec<Node, WAITERS>;
    type Deadlines = heapless::Vec<Instant, WAITERS>;
    type Minima = heapless::Vec<Instant, WAITERS>;
    type Services = heapless::Vec<Slot<ServiceSlot>, SERVICES>;
    type PerConn<T> = heapless::Vec<T, CONNS>;
    type PerWaiter<T> = heapless::Vec<T, WAITERS>;
}

impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Memory for Fixed<CONNS, WAITERS, SERVICES> {}

/// On the heap, growing when a connection is created or more check-outs wait than ever before.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OnHeap;

#[cfg(feature = "alloc")]
impl Stores for OnHeap {
    type Conns = crate::storage::Heap<Slot<ConnSlot>>;
    type Waiters = crate::storage::Heap<Slot<WaiterSlot>>;
    type Nodes = crate::storage::Heap<Node>;
    type Deadlines = crate::storage::Heap<Instant>;
    type Minima = crate::storage::Heap<Instant>;
    type Services = crate::storage::Heap<Slot<ServiceSlot>>;
    type PerConn<T> = crate::storage::Heap<T>;
    type PerWaiter<T> = crate::storage::Heap<T>;
}

#[cfg(feature = "alloc")]
impl Memory for OnHeap {}
