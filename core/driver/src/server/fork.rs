//! A server in the child of a fork: see [`Hub::reset_after_fork`].

use super::{PoolCounts, PoolSnapshot, PoolState, Server, ServerState};
use crate::hub::Hub;
use crate::runtime::{Locked, Runtime};
use poolhouse_core::storage::Store;

impl<R: Runtime> Server<R> {
    /// Gives up all connections; false if the lock is held.
    pub(in super::super) fn reset_after_fork(&self) -> bool {
        let reset = self.state.try_with(|state| {
            let pool = state.pool.start_over();
            let mut left = core::mem::replace(state, ServerState::of(pool));
            // Buffers are freed; the runtime's sockets know what not to do.
            for cell in left.cells.slots_mut() {
                drop(cell.socket.take());
            }
            // With the wakers of those who wait: to drop one may do anything.
            core::mem::forget(left);
        });
        reset.is_some()
    }

    /// What the pool is doing; in the child of a fork nothing, if it cannot be looked at.
    pub(in super::super) fn snapshot_in(&self, hub: &Hub<R>) -> PoolSnapshot {
        if !hub.is_inherited() {
            return self.pool_snapshot();
        }
        let nothing = PoolSnapshot { state: PoolState::Paused, generation: 0, counts: PoolCounts::default() };
        self.state.try_with(|state| state.snapshot()).unwrap_or(nothing)
    }
}
