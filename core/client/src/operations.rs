//! Measuring the operations of a MongoDB client: how long they take and how they end, for metrics.
//!
//! Requests of Cassandra are measured in `mux/timed.rs`.

use super::events::Events;
use super::{Net, Platform};
use poolhouse_core::Instant;
use poolhouse_driver::BaseRuntime as _;

/// Measures one operation. If it is dropped before [`Timer::end`], the operation was cancelled.
pub(crate) struct Timer<'a, P: Platform> {
    runtime: &'a Net<P>,
    events: &'a Events,
    /// The name of the operation.
    name: &'a str,
    since: Instant,
    has_ended: bool,
}

impl<'a, P: Platform> Timer<'a, P> {
    /// Begins to measure an operation; `None` if nothing uses the result.
    ///
    /// - `name`: called only if something does.
    #[inline]
    pub(crate) fn begin(runtime: &'a Net<P>, events: &'a Events, name: impl FnOnce() -> &'a str) -> Option<Self> {
        if !events.times_operations() || runtime.is_forked() {
            return None;
        }
        let since = runtime.now();
        events.operations_begin(1);
        Some(Self { runtime, events, name: name(), since, has_ended: false })
    }

    /// Ends the operation.
    ///
    /// - `error`: the type of its error; `None` after a success.
    pub(crate) fn end(mut self, error: Option<&str>) {
        self.has_ended = true;
        // In the child of a fork, a lock of the metrics may be held for ever.
        if !self.runtime.is_forked() {
            self.record(error);
        }
    }

    fn record(&self, error: Option<&str>) {
        let duration = self.runtime.now().saturating_since(self.since);
        self.events.operation_ended(self.name, error, duration);
    }
}

impl<P: Platform> Drop for Timer<'_, P> {
    fn drop(&mut self) {
        if !self.has_ended && !self.runtime.is_forked() {
            // The drop may run during a panic, in which another panic aborts the process.
            let _ = Net::<P>::contain(|| self.record(Some("cancelled")));
        }
    }
}
