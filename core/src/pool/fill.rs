//! Filling a pool beyond `minPoolSize`, once.
//!
//! Read first: CMAP, "Populating the Pool with Connections" (CMAP-54..57), which knows `minPoolSize` only: the target is ours.

use super::{Memory, Pool, PoolEvent, PoolState};
use crate::Instant;
use crate::machine::Observer;

impl<M: Memory> Pool<M> {
    /// Lets the pool be filled until so many connections are established, in use or available, as if `minPoolSize` were
    /// as high for that long.
    ///
    /// One connection at a time, so that check-outs come first. No more than `maxPoolSize`, whatever that is by then, nor than there
    /// is room for. The target is gone once it is reached, and when the pool is closed; a clear leaves it, and the pool goes on when it
    /// is ready. Until then the pool works in the background also without [`PoolOptions::background`](super::PoolOptions::background).
    /// A target that is raised does not wait for the pause after the failure of an earlier attempt.
    ///
    /// - `count`: takes the place of the target before; 0 is none.
    ///
    /// Cost: O(waiters that are served), no allocation but for a connection that is created. Owes at most one `Establish`.
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

    /// How many connections the pool is being filled to; 0 when it is not.
    #[must_use]
    pub const fn fill_target(&self) -> u32 {
        self.fill_target
    }

    /// Whether so many connections are established and fit for use, or as many as there may be. Of a pool that is not ready, no; nor of
    /// one that was cleared while connections were available, until its background run has sorted them.
    ///
    /// Cost: O(1).
    #[must_use]
    pub fn is_filled(&self, count: u32) -> bool {
        let counts = self.counts();
        let established = counts.available + counts.in_use;
        self.state == PoolState::Ready && !self.sweep_due && established >= self.fill_goal(count)
    }

    /// `count`, or as many as there may be.
    pub(super) fn fill_goal(&self, count: u32) -> u32 {
        let max = self.config.options.max_pool_size;
        let limit = self.conns.limit();
        count.min(if max == 0 { limit } else { max.min(limit) })
    }

    /// How many connections the pool wants to have.
    #[inline]
    pub(super) fn population_goal(&self) -> u32 {
        let min = self.config.options.min_pool_size;
        if self.fill_target == 0 { min } else { min.max(self.fill_goal(self.fill_target)) }
    }

    /// Forgets the target once it is reached.
    #[cold]
    pub(super) fn note_filled(&mut self) {
        if self.is_filled(self.fill_target) {
            self.fill_target = 0;
        }
    }

    /// Whether the pool keeps itself filled and tidy: always, or until it is filled.
    #[inline]
    pub(super) const fn is_in_background(&self) -> bool {
        self.config.options.background || self.fill_target > 0
    }
}
