//! Change of the options of an existing pool.
//!
//! Read first: CMAP, "Connection Pool Options". It specifies the options at creation
//! only; their change is an extension.

use super::{ClosedReason, Memory, Pool, PoolConfig, PoolEvent, PoolOptions, PoolState, conn};
use crate::Instant;
use crate::machine::Observer;

impl<M: Memory> Pool<M> {
    /// Changes the options. `load_balanced` and `background` are not changed, whatever their values
    /// in `config`.
    ///
    /// - A lower `maxPoolSize`: available connections beyond it are closed, the oldest first, as if
    ///   idle for too long. A connection in use beyond it is closed when it is checked in, even if
    ///   a check-out waits. A pending one is closed if no check-out waits when it is established.
    /// - A higher `maxPoolSize` or `maxConnecting`: waiters are served at once, within the new
    ///   limits.
    /// - A higher `minPoolSize`: the pool is filled as after [`Pool::ready`]. A lower one closes
    ///   nothing.
    /// - A lower `maxConnecting`: pending connections continue.
    /// - `maxIdleTimeMS`: counted from the time when each connection became available; if there was
    ///   no limit before, from now.
    /// - `waitQueueTimeoutMS`: applies to check-outs without a deadline that begin to wait from now
    ///   on.
    ///
    /// In a paused pool the same takes effect once it is ready. No effect on a closed pool.
    ///
    /// Cost: O(available connections that are closed + waiters that are served), and O(available
    /// connections) when `maxIdleTimeMS` is switched on; no allocation except for created
    /// connections. Owes a `Close` or an `Establish` for each. Events: `ConnectionClosed`,
    /// `ConnectionCreated`.
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

    /// Restarts the idle time of available connections at `now`. Their `available_since` may be
    /// stale, because a check-in without `maxIdleTimeMS` does not read the clock.
    fn restart_idle_time(&mut self, now: Instant) {
        let mut next = self.conns.front(conn::AVAILABLE);
        while let Some(index) = next {
            if let Some(slot) = self.conns.at_mut(index) {
                slot.available_since = now;
            }
            next = self.conns.next(index);
        }
    }

    /// Whether the pool has more connections than a `maxPoolSize` that was lowered.
    pub(super) fn is_beyond_max(&mut self) -> bool {
        if !self.shrunk {
            return false;
        }
        let (is_beyond, is_busy) = self.excess();
        self.shrunk = is_beyond || is_busy;
        is_beyond
    }

    /// Whether the pool has more connections than `maxPoolSize`, and whether it has more pending
    /// connections than `maxConnecting`.
    pub(super) fn excess(&self) -> (bool, bool) {
        let PoolOptions { max_pool_size: max, max_connecting, .. } = self.config.options;
        (max > 0 && self.counts().total() > max, self.pending_count() > max_connecting)
    }
}
