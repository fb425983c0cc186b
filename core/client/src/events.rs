//! The observer of a client's events.

#[cfg(feature = "tracing")]
use crate::log::{LogOptions, LogQueue, Logs};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use poolhouse_core::Instant;
use poolhouse_core::observe::EventContext;
use poolhouse_driver::{EventKinds, EventRef, Publish, Subscribers};

/// Forwards the events of a client or of a pool to its subscribers. With the feature `tracing` they
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
    pub(super) fn new(subscribers: Subscribers, #[cfg(feature = "tracing")] log: LogOptions) -> Self {
        Self {
            subscribers,
            #[cfg(feature = "tracing")]
            logs: LogQueue::new(log),
            #[cfg(feature = "metrics")]
            metrics: Metrics::new(),
        }
    }

    /// Returns the log for messages that do not belong to an event.
    #[cfg(feature = "tracing")]
    pub(super) const fn logs(&self) -> &Logs {
        self.logs.logs()
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
        not(feature = "tracing"),
        allow(unused_variables, reason = "the context is of interest to the log only")
    )]
    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        #[cfg(feature = "metrics")]
        self.metrics.publish(now, event);
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
