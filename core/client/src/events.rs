//! The observer of a client's events.

#[cfg(feature = "tracing")]
use crate::log::{LogOptions, LogQueue, Logs};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::observe::EventContext;
#[cfg(feature = "metrics")]
use poolhouse_core::observe::contain;
use poolhouse_driver::{EventKinds, EventRef, Publish, Subscribers};

/// What the servers of events speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum System {
    #[default]
    Mongodb,
    Cassandra,
    /// Anything: the pool of a [`Manager`](crate::pool::Manager), with a name instead of an address.
    Generic,
}

#[cfg(feature = "metrics")]
impl System {
    /// The value of OpenTelemetry's `db.system.name`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mongodb => "mongodb",
            Self::Cassandra => "cassandra",
            Self::Generic => "other",
        }
    }
}

/// Forwards the events of a client, a session or a pool to its subscribers. With the feature `tracing` they
/// are also logged; with `metrics` they are also recorded as metrics.
#[derive(Clone, Debug)]
pub struct Events {
    subscribers: Subscribers,
    #[cfg(feature = "tracing")]
    logs: LogQueue,
    #[cfg(feature = "metrics")]
    metrics: Metrics,
}

impl Events {
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        allow(unused_variables, reason = "subscribers know it")
    )]
    pub(super) fn new(system: System, subscribers: Subscribers, #[cfg(feature = "tracing")] log: LogOptions) -> Self {
        Self {
            subscribers,
            #[cfg(feature = "tracing")]
            logs: LogQueue::of(system, log),
            #[cfg(feature = "metrics")]
            metrics: Metrics::of(system),
        }
    }

    /// The events of a session in a test of one of its parts.
    #[cfg(test)]
    pub(super) fn of_test() -> Self {
        Self::new(
            System::Cassandra,
            Subscribers::default(),
            #[cfg(feature = "tracing")]
            LogOptions::OFF,
        )
    }

    /// Returns the log for messages that do not belong to an event.
    #[cfg(feature = "tracing")]
    pub(super) const fn logs(&self) -> &Logs {
        self.logs.logs()
    }

    /// Whether the durations of operations are of use.
    #[inline]
    pub(super) fn times_operations(&self) -> bool {
        #[cfg(feature = "metrics")]
        if self.metrics.client().is_some() {
            return true;
        }
        // MongoDB's slow commands are found by their events.
        #[cfg(feature = "tracing")]
        return self.logs.logs_slow_requests();
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// Counts operations that begin.
    pub(super) fn operations_begin(&self, count: usize) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.client() {
            let _ = contain(|| metrics.operations_begin(count));
        }
        let _ = count;
    }

    /// Counts an operation that has ended, with its duration.
    ///
    /// - `error`: the type of its error; `None` after a success.
    pub(super) fn operation_ended(&self, name: &str, error: Option<&str>, duration: Duration) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.client() {
            // A recorder that panics loses one value.
            let _ = contain(|| metrics.operation_ended(name, error, duration));
        }
        let _ = (name, error, duration);
    }

    /// Counts attempts of an operation after its first.
    #[inline]
    pub(super) fn retried(&self, count: u32) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.client().filter(|_| count > 0) {
            let _ = contain(|| metrics.retried(count));
        }
        let _ = count;
    }

    /// Counts an attempt of a request while an earlier one is not answered.
    pub(super) fn speculated(&self) {
        #[cfg(feature = "metrics")]
        if let Some(metrics) = self.metrics.client() {
            let _ = contain(|| metrics.speculated());
        }
    }

    /// Returns the subscribers.
    #[must_use]
    pub const fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }
}

impl Publish for Events {
    #[inline]
    fn kinds(&self) -> EventKinds {
        let kinds = self.subscribers.kinds();
        #[cfg(feature = "tracing")]
        let kinds = kinds | self.logs.kinds();
        #[cfg(feature = "metrics")]
        let kinds = kinds | self.metrics.kinds();
        kinds
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        allow(unused_variables, reason = "the context is of interest to logs and metrics only")
    )]
    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        #[cfg(feature = "metrics")]
        if self.metrics.kinds().intersects(event.kind()) {
            self.metrics.publish_in(now, event, context);
        }
        #[cfg(feature = "tracing")]
        self.logs.publish_in(now, event, context);
        if self.subscribers.kinds().intersects(event.kind()) {
            self.subscribers.publish(now, event);
        }
    }

    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        allow(unused_variables, reason = "subscribers know it")
    )]
    fn of_server(&self, address: &str) -> Self {
        Self {
            subscribers: self.subscribers.clone(),
            #[cfg(feature = "tracing")]
            logs: self.logs.of_server(address),
            #[cfg(feature = "metrics")]
            metrics: self.metrics.of_server(address),
        }
    }

    #[inline]
    fn deliver(&self) {
        #[cfg(feature = "tracing")]
        self.logs.deliver();
        self.subscribers.deliver();
    }
}
