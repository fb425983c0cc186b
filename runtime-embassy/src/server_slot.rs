//! Server slots, of any runtime: depends on the lock alone. A slot is taken while a handle of its
//! server exists, and then reused.

use crate::lock::ExecutorLock;
use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::task::{Poll, Waker};
use poolhouse_core::storage::Full;
use poolhouse_driver::{Locked, NewServer, Runtime, Server, ServerState};

/// A slot for the state of one server.
pub(crate) struct ServerSlot<R: Runtime> {
    state: ExecutorLock<ServerState<R>>,
    /// The number of handles.
    handles: Cell<u32>,
    /// The task that waits until the slot is free.
    waiting: Cell<Option<Waker>>,
}

impl<R: Runtime> ServerSlot<R> {
    pub(crate) fn vacant() -> Self {
        Self { state: ExecutorLock::holding(ServerState::vacant()), handles: Cell::new(0), waiting: Cell::new(None) }
    }

    /// Initializes the slots one after the other: initializing them together would need stack for
    /// all of them.
    #[inline(never)]
    pub(crate) fn open(slots: &mut [Option<Self>]) {
        for slot in slots {
            *slot = Some(Self::vacant());
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.handles.get() == 0
    }

    /// Whether it is free. If not, the waker is woken when it is.
    pub(crate) fn poll_free(&self, waker: &Waker) -> Poll<()> {
        if self.is_free() {
            return Poll::Ready(());
        }
        self.waiting.set(Some(waker.clone()));
        Poll::Pending
    }
}

impl<R: Runtime> fmt::Debug for ServerSlot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSlot").field("handles", &self.handles).finish_non_exhaustive()
    }
}

/// Stores the server in the first free slot.
pub(crate) fn share<R: Runtime<ServerLock = ServerSlotRef<R>>>(
    slots: &'static [Option<ServerSlot<R>>],
    server: NewServer<R>,
) -> Result<ServerRef<R>, Full> {
    let slot = slots.iter().flatten().find(|slot| slot.is_free()).ok_or(Full)?;
    slot.handles.set(1);
    let server = slot.state.with(|state| server.settle(state, ServerSlotRef { slot }));
    Ok(ServerRef(server))
}

/// A counted reference to a taken slot.
#[derive(Debug)]
pub struct ServerSlotRef<R: Runtime + 'static> {
    slot: &'static ServerSlot<R>,
}

impl<R: Runtime> Clone for ServerSlotRef<R> {
    fn clone(&self) -> Self {
        let handles = &self.slot.handles;
        handles.set(handles.get().saturating_add(1));
        Self { slot: self.slot }
    }
}

impl<R: Runtime> Drop for ServerSlotRef<R> {
    fn drop(&mut self) {
        let left = self.slot.handles.get().saturating_sub(1);
        if left == 0 {
            // The last handle returns the remaining sockets to their slots before this slot becomes
            // free.
            while let Some(left) = self.slot.state.with(ServerState::take_left) {
                drop(left);
            }
        }
        self.slot.handles.set(left);
        if left == 0
            && let Some(waiting) = self.slot.waiting.take()
        {
            waiting.wake();
        }
    }
}

impl<R: Runtime> Locked<ServerState<R>> for ServerSlotRef<R> {
    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut ServerState<R>) -> T) -> T {
        self.slot.state.with(f)
    }
}

/// A handle of a server.
pub struct ServerRef<R: Runtime>(Server<R>);

impl<R: Runtime<ServerLock: Clone>> Clone for ServerRef<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runtime> Deref for ServerRef<R> {
    type Target = Server<R>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<R: Runtime> fmt::Debug for ServerRef<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
