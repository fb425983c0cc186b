//! Server slots. A slot is taken while a handle of its server exists, and then reused.

use crate::lock::ExecutorLock;
use crate::{Embassy, Layout};
use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use poolhouse_core::storage::Full;
use poolhouse_driver::{Locked, NewServer, Server, ServerState};

/// A slot for the state of one server.
#[allow(unnameable_types, reason = "part of a sealed trait: nothing outside can use it")]
#[derive(Debug)]
pub struct Place<L: Layout> {
    state: ExecutorLock<ServerState<Embassy<L>>>,
    /// The number of handles.
    handles: Cell<u32>,
}

impl<L: Layout> Place<L> {
    pub(crate) fn vacant() -> Self {
        Self { state: ExecutorLock::holding(ServerState::vacant()), handles: Cell::new(0) }
    }

    /// Initializes the slots one after the other: initializing them together would need stack for
    /// all of them.
    #[inline(never)]
    pub(crate) fn open(places: &mut [Option<Self>]) {
        for place in places {
            *place = Some(Self::vacant());
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.handles.get() == 0
    }
}

/// Stores the server in the first free slot.
pub(crate) fn share<L: Layout>(
    places: &'static [Option<Place<L>>],
    server: NewServer<Embassy<L>>,
) -> Result<ServerRef<L>, Full> {
    let place = places.iter().flatten().find(|place| place.is_free()).ok_or(Full)?;
    place.handles.set(1);
    let server = place.state.with(|state| server.settle(state, PlaceRef { place }));
    Ok(ServerRef(server))
}

/// A counted reference to a taken slot.
#[derive(Debug)]
pub struct PlaceRef<L: Layout> {
    place: &'static Place<L>,
}

impl<L: Layout> Clone for PlaceRef<L> {
    fn clone(&self) -> Self {
        let handles = &self.place.handles;
        handles.set(handles.get().saturating_add(1));
        Self { place: self.place }
    }
}

impl<L: Layout> Drop for PlaceRef<L> {
    fn drop(&mut self) {
        let left = self.place.handles.get().saturating_sub(1);
        if left == 0 {
            // The last handle returns the remaining sockets to their slots before this slot becomes
            // free.
            while let Some(left) = self.place.state.with(ServerState::take_left) {
                drop(left);
            }
        }
        self.place.handles.set(left);
    }
}

impl<L: Layout> Locked<ServerState<Embassy<L>>> for PlaceRef<L> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut ServerState<Embassy<L>>) -> R) -> R {
        self.place.state.with(f)
    }
}

/// A handle of a server.
pub struct ServerRef<L: Layout>(Server<Embassy<L>>);

impl<L: Layout> Clone for ServerRef<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L: Layout> Deref for ServerRef<L> {
    type Target = Server<Embassy<L>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<L: Layout> fmt::Debug for ServerRef<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
