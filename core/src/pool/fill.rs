//! Filling of a pool beyond `minPoolSize`, once.
//!
//! Read first: CMAP, "Populating the Pool with Connections". It specifies
//! `minPoolSize` only; the fill target is an extension.

use super::{Memory, Pool, PoolEvent, PoolState};
use crate::Instant;
use crate::machine::Observer;

impl<M: Memory> Pool<M> {
    /// Sets a fill target: until `count` connections are established (in use or available), the
    /// pool is filled as if `minPoolSize` were `count`.
    ///
    /// Connections are established one at a time, so check-outs take precedence. The target is
    /// limited by the current `maxPoolSize` and by the capacity of the memory. It ends when it is
    /// reached, or when the pool is closed. A clear keeps it, and filling continues when the pool
    /// is ready. A pool with a target works in the background even without
    /// [`PoolOptions::background`](super::PoolOptions::background). A higher target is filled at
    /// once, without the pause after an earlier failure. In any second, at most `count` connections,
    /// or `minPoolSize` if that is higher, are opened for it.
    ///
    /// - `count`: replaces the previous target; 0 means none.
    ///
    /// Cost: O(waiters that are served), no allocation except for a created connection. Owes at
    /// most one `Establish`.
    /// Events: perhaps `ConnectionCreated`.
    pub fn set_fill_target(&mut self, now: Instant, count: u32, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        let now = self.begin(now, observer);
        if count > self.fill_target {
            self.populate_at = None;
        }
        self.fill_target = count;
        self.serve(now, observer);
    }

    /// The number of connections the pool is being filled to; 0 if no target is set.
    #[must_use]
    pub const fn fill_target(&self) -> u32 {
        self.fill_target
    }

    /// Whether `count` connections, or as many as the limits allow, are established and not stale.
    /// False if the pool is not ready. Also false after a clear that found available connections,
    /// until they have been checked.
    ///
    /// Cost: O(1).
    #[must_use]
    pub fn is_filled(&self, count: u32) -> bool {
        let counts = self.counts();
        let established = counts.available + counts.in_use;
        self.state == PoolState::Ready && !self.sweep_due && established >= self.fill_goal(count)
    }

    /// `count`, or the maximum number of connections if that is lower.
    pub(super) fn fill_goal(&self, count: u32) -> u32 {
        let max = self.config.options.max_pool_size;
        let limit = self.conns.limit();
        count.min(if max == 0 { limit } else { max.min(limit) })
    }

    /// The number of connections that the background work keeps.
    #[inline]
    pub(super) fn population_goal(&self) -> u32 {
        let min = self.config.options.min_pool_size;
        if self.fill_target == 0 { min } else { min.max(self.fill_goal(self.fill_target)) }
    }

    /// Removes the target if it is reached.
    #[cold]
    pub(super) fn note_filled(&mut self) {
        if self.is_filled(self.fill_target) {
            self.fill_target = 0;
        }
    }

    /// Whether the pool populates itself and closes perished connections in the background: always,
    /// or until its target is reached.
    #[inline]
    pub(super) const fn is_in_background(&self) -> bool {
        self.config.options.background || self.fill_target > 0
    }
}
