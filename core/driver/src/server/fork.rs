//! A server in the child of a fork: see [`ClientCore::reset_after_fork`].

use super::{PoolCounts, PoolSnapshot, PoolState, Server, ServerState};
use crate::client_core::ClientCore;
use crate::runtime::{Locked, Runtime};
use poolhouse_core::storage::Store;

impl<R: Runtime> Server<R> {
    /// Abandons all connections; false if the lock is held.
    pub(in super::super) fn reset_after_fork(&self) -> bool {
        let reset = self.state.try_with(|state| {
            let pool = state.driven.pool.start_over();
            let mut left = core::mem::replace(state, ServerState::of(pool));
            // Frees the buffers. In a child, dropping the runtime's stream does not touch the
            // socket.
            for slot in left.driven.conn_slots.slots_mut() {
                drop(slot.socket.take());
            }
            // Leaks the wakers of the waiters too: dropping a waker may run any code.
            core::mem::forget(left);
        });
        reset.is_some()
    }

    /// The pool at one instant; an empty one if this is the child of a fork and the lock is held.
    pub(in super::super) fn snapshot_in(&self, core: &ClientCore<R>) -> PoolSnapshot {
        if !core.is_forked() {
            return self.pool_snapshot();
        }
        let nothing = PoolSnapshot { state: PoolState::Paused, generation: 0, counts: PoolCounts::default() };
        self.state.try_with(|state| state.snapshot()).unwrap_or(nothing)
    }
}
