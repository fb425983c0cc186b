//! Other options for a pool that lives.
//!
//! Read first: CMAP, "Connection Pool Options" (CMAP-01..06), which knows options from the beginning only: this is ours.

use super::{ClosedReason, Memory, Pool, PoolConfig, PoolEvent, PoolOptions, PoolState, conn};
use crate::Instant;
use crate::machine::Observer;

impl<M: Memory> Pool<M> {
    /// Puts other options in force. `load_balanced` and `background` stay as they are, whatever `config` says.
    ///
    /// - A lower `maxPoolSize`: available connections beyond it are closed, the oldest first, as if idle for too long. What is in use
    ///   beyond it is closed when it is returned, even if somebody waits, and what is being established when it is there and nobody waits.
    /// - A higher `maxPoolSize` or `maxConnecting`: whoever waits is served at once, as far as the new limits allow.
    /// - A higher `minPoolSize`: the pool is filled as after [`Pool::ready`]. A lower one closes nothing.
    /// - A lower `maxConnecting`: what is being established goes on.
    /// - `maxIdleTimeMS`: counts from when each connection became available; if there was none before, from now.
    /// - `waitQueueTimeoutMS`: of check-outs that begin to wait from now on, and bring no deadline.
    ///
    /// Of a pool that is paused the same holds once it is ready; on a closed one nothing happens.
    ///
    /// Cost: O(available connections that are closed + waiters that are served), no allocation but for connections that are created.
    /// Owes a `Close` or an `Establish` for each. Events: `ConnectionClosed`, `ConnectionCreated`.
    pub fn reconfigure(&mut self, now: Instant, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        let now = self.begin(now, observer);
        let config = config.in_mode_of(self.config);
        if self.config.idle_ns == 0 && config.idle_ns > 0 {
            self.restart_idle_time(now);
        }
        self.config = config;
        self.shrunk = true;
        while self.is_beyond_max() {
            let Some(index) = self.conns.front(conn::AVAILABLE) else { break };
            let reason = self.conns.at(index).and_then(|slot| self.perished(now, slot)).unwrap_or(ClosedReason::Idle);
            self.close_conn(now, index, reason, None, observer);
        }
        self.serve(now, observer);
    }

    /// Counts the idle time of available connections from now: without `maxIdleTimeMS`, a check-in does not read the clock.
    fn restart_idle_time(&mut self, now: Instant) {
        let mut next = self.conns.front(conn::AVAILABLE);
        while let Some(index) = next {
            if let Some(slot) = self.conns.at_mut(index) {
                slot.available_since = now;
            }
            next = self.conns.next(index);
        }
    }

    /// Whether there are more connections than `maxPoolSize`, since that was lowered.
    pub(super) fn is_beyond_max(&mut self) -> bool {
        if !self.shrunk {
            return false;
        }
        let (is_beyond, is_busy) = self.excess();
        self.shrunk = is_beyond || is_busy;
        is_beyond
    }

    /// Whether there are more connections than `maxPoolSize`, and whether more are pending than `maxConnecting`.
    pub(super) fn excess(&self) -> (bool, bool) {
        let PoolOptions { max_pool_size: max, max_connecting, .. } = self.config.options;
        (max > 0 && self.counts().total() > max, self.pending_count() > max_connecting)
    }
}
