//! Starting the tasks of new servers.

use super::client_core::{ClientCore, State};
use super::runtime::{Locked, Runtime};
use super::select::WakerSlot;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use poolhouse_core::storage::Store;

impl<R: Runtime> State<R> {
    /// Takes the waker of a task that waits for a new server.
    pub(super) fn take_starter(&mut self) -> Option<Waker> {
        self.starters.slots_mut().iter_mut().find_map(WakerSlot::take_waiting)
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Returns the next server with tasks to start: see [`ClientCore::server_tasks`] and
    /// [`ClientCore::run_server_task`]. The same server may be returned more than once. `None` once
    /// the client is closed, unless it may be opened again ([`Runtime::REOPENS`]). At most as many
    /// tasks as there can be servers may wait at the same time; further ones are never woken.
    ///
    /// Dropping the future is safe, because another call can follow. A task that starts the tasks
    /// of new servers for the client's lifetime holds a [`TaskGuard`](super::TaskGuard).
    pub async fn next_server(&self) -> Option<R::ServerHandle> {
        let mut place = StarterSlot { core: self, index: None };
        poll_fn(|context| place.poll_next(context.waker())).await
    }
}

/// The slot of a task that waits for a new server; freed when the task has a server or is dropped.
struct StarterSlot<'h, R: Runtime> {
    core: &'h ClientCore<R>,
    index: Option<usize>,
}

impl<R: Runtime> StarterSlot<'_, R> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<R::ServerHandle>> {
        // The caller may have freed the slot of a removed server: a server without a slot can be
        // added now.
        if self.core.state.with(|state| state.unplaced) {
            self.core.step(|_, _, _| ());
        }
        let index = &mut self.index;
        let mut waker = Some(waker.clone());
        self.core.state.with(|state| {
            for entry in state.servers.slots_mut().iter_mut().flatten() {
                if core::mem::take(&mut entry.fresh) {
                    return Poll::Ready(Some(entry.server.clone()));
                }
            }
            if state.has_ended() {
                return Poll::Ready(None);
            }
            let free = || state.starters.slots().iter().position(|slot| matches!(slot, WakerSlot::Free));
            let place = index.or_else(free).unwrap_or(state.starters.slots().len());
            // More tasks wait than there can be servers: this one would never receive a server.
            if place == state.starters.slots().len() && state.starters.try_push(WakerSlot::Free).is_err() {
                return Poll::Pending;
            }
            *index = Some(place);
            if let Some(slot) = state.starters.slots_mut().get_mut(place) {
                slot.wait(&mut waker);
            }
            Poll::Pending
        })
    }
}

impl<R: Runtime> Drop for StarterSlot<'_, R> {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let _left = self.core.state.with(|state| {
            let slot = state.starters.slots_mut().get_mut(index)?;
            Some(core::mem::replace(slot, WakerSlot::Free))
        });
    }
}
