//! Starting the tasks of new servers.

use super::hub::{Hub, State};
use super::runtime::{Locked, Runtime};
use super::select::Seat;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use poolhouse_core::storage::Store;

impl<R: Runtime> State<R> {
    /// Takes the waker of a task that waits for a new server.
    pub(super) fn take_starter(&mut self) -> Option<Waker> {
        self.starters.slots_mut().iter_mut().find_map(Seat::take_waiting)
    }
}

impl<R: Runtime> Hub<R> {
    /// Returns the next server with tasks to start: see [`Hub::server_tasks`] and
    /// [`Hub::run_server_task`]. The same server may be returned more than once. `None` once the
    /// client is closed. At most as many tasks as there can be servers may wait at the same time;
    /// further ones are never woken.
    ///
    /// Dropping the future is safe, because another call can follow. A task that starts the tasks
    /// of new servers for the client's lifetime holds a [`TaskGuard`](super::TaskGuard).
    pub async fn next_server(&self) -> Option<R::ServerHandle> {
        let mut place = StarterPlace { hub: self, index: None };
        poll_fn(|context| place.poll_next(context.waker())).await
    }
}

/// The slot of a task that waits for a new server; freed when the task has a server or is dropped.
struct StarterPlace<'h, R: Runtime> {
    hub: &'h Hub<R>,
    index: Option<usize>,
}

impl<R: Runtime> StarterPlace<'_, R> {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Option<R::ServerHandle>> {
        // The caller may have freed the slot of a removed server: a server without a slot can be
        // added now.
        if self.hub.state.with(|state| state.unplaced) {
            self.hub.step(|_, _, _| ());
        }
        let index = &mut self.index;
        let mut waker = Some(waker.clone());
        self.hub.state.with(|state| {
            for entry in state.servers.slots_mut().iter_mut().flatten() {
                if core::mem::take(&mut entry.fresh) {
                    return Poll::Ready(Some(entry.server.clone()));
                }
            }
            if state.closed {
                return Poll::Ready(None);
            }
            let free = || state.starters.slots().iter().position(|seat| matches!(seat, Seat::Free));
            let place = index.or_else(free).unwrap_or(state.starters.slots().len());
            // More tasks wait than there can be servers: this one would never receive a server.
            if place == state.starters.slots().len() && state.starters.try_push(Seat::Free).is_err() {
                return Poll::Pending;
            }
            *index = Some(place);
            if let Some(seat) = state.starters.slots_mut().get_mut(place) {
                seat.wait(&mut waker);
            }
            Poll::Pending
        })
    }
}

impl<R: Runtime> Drop for StarterPlace<'_, R> {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        let _left = self.hub.state.with(|state| {
            let seat = state.starters.slots_mut().get_mut(index)?;
            Some(core::mem::replace(seat, Seat::Free))
        });
    }
}
