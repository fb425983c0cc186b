//! Metrics of the driver.

use super::PoolMetrics;
use alloc::sync::Arc;
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer;
use poolhouse_core::observe::contain;
use poolhouse_driver::{EventKinds, EventRef, Publish};
use std::sync::{Mutex, PoisonError};

/// Publishes [`PoolMetrics`] for each server of the driver. A panic of the recorder is caught. If
/// it occurs when the series of a pool are registered, that pool has no metrics; if it occurs
/// later, one event is lost.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Metrics of the server to which this instance belongs. The lock is never contended: events
    /// are published under the lock of their pool.
    pool: Option<Arc<Mutex<PoolMetrics>>>,
}

impl Metrics {
    /// Creates metrics for a client.
    #[must_use]
    pub const fn new() -> Self {
        Self { pool: None }
    }
}

impl Publish for Metrics {
    #[inline]
    fn kinds(&self) -> EventKinds {
        if self.pool.is_some() { EventKinds::POOLS | EventKinds::CHECK_OUTS } else { EventKinds::NONE }
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        if let (Some(pool), EventRef::Pool(event)) = (&self.pool, event) {
            let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = contain(|| pool.on_event(now, event));
        }
    }

    fn of_server(&self, address: &str) -> Self {
        Self { pool: contain(|| PoolMetrics::new(address)).map(Mutex::new).map(Arc::new) }
    }
}
