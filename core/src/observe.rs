//! Observers of events, their combination, and the context of events.
//!
//! An event identifies its pool or server by number, to stay small. Log messages also need the
//! server's address and, for a heartbeat, the server's reply. The emitter passes these in an
//! [`EventContext`] of borrowed data, which costs nothing until it is read: see
//! [`Observer::on_event_in`].
//!
//! - [`Within`] adds the context for hosts that drive a machine themselves.
//! - [`Tee`] passes the same events to two observers.
//! - `poolhouse_client::log` (feature `tracing`) and `poolhouse_client::metrics` (feature
//!   `metrics`) contain observers that write log messages and metrics.

#[cfg(test)]
mod tests;
mod truncate;

pub use truncate::Truncated;

use crate::id::TopologyId;
use crate::{Instant, Reason};
use poolhouse_wire::bson::RawDocument;

/// Receives the events of a machine at the time of each change.
///
/// Called while the machine is being changed, so it should only record the event. `()` ignores all
/// events and compiles to nothing.
pub trait Observer<E> {
    /// Called once for each event, in the order in which the changes were made.
    fn on_event(&mut self, now: Instant, event: &E);

    /// Whether the observer uses events. A machine need not read the clock for a disabled observer,
    /// but may pass events to it. An observer is enabled by default.
    #[inline]
    fn is_enabled(&self) -> bool {
        true
    }

    /// [`Observer::on_event`] with context that is not part of the event. Called by emitters that
    /// have it.
    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        let _ = context;
        self.on_event(now, event);
    }
}

impl<E> Observer<E> for () {
    #[inline]
    fn on_event(&mut self, _now: Instant, _event: &E) {}

    #[inline]
    fn is_enabled(&self) -> bool {
        false
    }
}

impl<E, O: Observer<E>> Observer<E> for Option<O> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        if let Some(observer) = self {
            observer.on_event(now, event);
        }
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        self.as_ref().is_some_and(Observer::is_enabled)
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        if let Some(observer) = self {
            observer.on_event_in(now, event, context);
        }
    }
}

impl<E, O: Observer<E> + ?Sized> Observer<E> for &mut O {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        (**self).on_event(now, event);
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        (**self).is_enabled()
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        (**self).on_event_in(now, event, context);
    }
}

#[cfg(feature = "alloc")]
impl<E: Clone> Observer<E> for alloc::vec::Vec<(Instant, E)> {
    fn on_event(&mut self, now: Instant, event: &E) {
        self.push((now, event.clone()));
    }
}

/// Context of an event. Every field may be missing.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct EventContext<'a> {
    /// The topology of the server.
    pub topology: Option<TopologyId>,
    /// The address of the server.
    pub address: Option<&'a str>,
    /// The reply of a heartbeat that succeeded.
    pub reply: Option<RawDocument<'a>>,
    /// The reason of the failure that the event reports.
    pub reason: Option<&'a Reason>,
}

impl<'a> EventContext<'a> {
    /// An empty context.
    pub const NONE: EventContext<'static> = EventContext { topology: None, address: None, reply: None, reason: None };

    /// The context of a server with this address, in the normal form of a topology.
    #[must_use]
    pub const fn of_server(address: &'a str) -> Self {
        Self { address: Some(address), ..Self::NONE }
    }

    /// Adds the topology of the server.
    #[must_use]
    pub const fn with_topology(self, topology: TopologyId) -> Self {
        Self { topology: Some(topology), ..self }
    }

    /// Adds the reply that the event reports.
    #[must_use]
    pub const fn with_reply(self, reply: RawDocument<'a>) -> Self {
        Self { reply: Some(reply), ..self }
    }

    /// Adds the reason of the failure that the event reports.
    #[must_use]
    pub const fn with_reason(self, reason: &'a Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Fills the missing fields from `other`.
    #[must_use]
    pub fn or<'b>(&self, other: &EventContext<'b>) -> EventContext<'b>
    where
        'a: 'b,
    {
        EventContext {
            topology: self.topology.or(other.topology),
            address: self.address.or(other.address),
            reply: self.reply.or(other.reply),
            reason: self.reason.or(other.reason),
        }
    }
}

/// Adds a context to all events that it passes to an observer.
///
/// ```
/// use poolhouse_core::observe::{EventContext, Within};
/// use poolhouse_core::pool::{OnHeap, Pool, PoolConfig, PoolEvent, PoolId};
/// use poolhouse_core::{Instant, Observer};
///
/// struct Print;
///
/// impl Observer<PoolEvent> for Print {
///     fn on_event(&mut self, _now: Instant, event: &PoolEvent) {
///         println!("{event}");
///     }
///
///     fn on_event_in(&mut self, _now: Instant, event: &PoolEvent, context: &EventContext<'_>) {
///         println!("{event} of {}", context.address.unwrap_or("?"));
///     }
/// }
///
/// let now = Instant::from_nanos(0);
/// let mut observer = Within::new(Print, EventContext::of_server("localhost:27017"));
/// let mut pool = Pool::<OnHeap>::new(now, PoolId::new(1), PoolConfig::DEFAULT, &mut observer);
/// pool.ready(now, &mut observer);
/// ```
#[derive(Clone, Debug)]
pub struct Within<'c, O> {
    observer: O,
    context: EventContext<'c>,
}

impl<'c, O> Within<'c, O> {
    /// Creates an observer that passes events to `observer` with `context`.
    pub const fn new(observer: O, context: EventContext<'c>) -> Self {
        Self { observer, context }
    }
}

impl<E, O: Observer<E>> Observer<E> for Within<'_, O> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        self.observer.on_event_in(now, event, &self.context);
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        self.observer.is_enabled()
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        self.observer.on_event_in(now, event, &context.or(&self.context));
    }
}

/// Two observers of the same events, called in this order. Also combines two implementations of
/// `Publish` of `poolhouse-driver`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tee<A, B>(pub A, pub B);

impl<E, A: Observer<E>, B: Observer<E>> Observer<E> for Tee<A, B> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &E) {
        self.0.on_event(now, event);
        self.1.on_event(now, event);
    }

    #[inline]
    fn is_enabled(&self) -> bool {
        self.0.is_enabled() || self.1.is_enabled()
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &E, context: &EventContext<'_>) {
        self.0.on_event_in(now, event, context);
        self.1.on_event_in(now, event, context);
    }
}

/// Runs code of an application and catches its panic; `None` if it panicked.
#[doc(hidden)]
#[cfg(feature = "std")]
pub fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(core::panic::AssertUnwindSafe(work)).ok()
}
