//! Events on their way to subscribers.

use crate::Instant;
use crate::machine::Observer;
use crate::monitor::MonitorEvent;
use crate::pool::PoolEvent;
use crate::topology::SdamEvent;

/// Anything that may be watched of a client, borrowed from what it happened to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventRef<'a> {
    /// Of a pool.
    Pool(&'a PoolEvent),
    /// Of a server's monitor.
    Heartbeat(&'a MonitorEvent),
    /// Of the topology.
    Sdam(&'a SdamEvent<'a>),
}

/// Anything that may be watched of a client, to be kept.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Of a pool.
    Pool(PoolEvent),
    /// Of a server's monitor.
    Heartbeat(MonitorEvent),
    /// Of the topology.
    Sdam(alloc::boxed::Box<crate::topology::OwnedSdamEvent>),
}

#[cfg(feature = "alloc")]
impl EventRef<'_> {
    /// A copy to keep. Allocates for events of the topology.
    #[must_use]
    pub fn to_owned(&self) -> Event {
        match *self {
            Self::Pool(event) => Event::Pool(*event),
            Self::Heartbeat(event) => Event::Heartbeat(*event),
            Self::Sdam(event) => Event::Sdam(alloc::boxed::Box::new(event.to_owned())),
        }
    }
}

#[cfg(feature = "alloc")]
impl core::fmt::Display for Event {
    /// The event's name, then what it tells, on one line.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Pool(event) => event.fmt(f),
            Self::Heartbeat(event) => event.fmt(f),
            Self::Sdam(event) => event.fmt(f),
        }
    }
}

/// Where events go.
///
/// `publish` is called under the lock of what is being changed, so that events keep their order: it notes
/// the event down and returns. It must not call the shell.
pub trait Publish: Clone {
    /// Whether anybody listens. When not, nothing is published.
    fn is_active(&self) -> bool;

    /// Takes note of an event.
    fn publish(&self, now: Instant, event: EventRef<'_>);

    /// Called after events were published, outside every lock: the place to wake whoever reads them.
    fn deliver(&self) {}
}

/// Nobody listens.
impl Publish for () {
    fn is_active(&self) -> bool {
        false
    }

    fn publish(&self, _now: Instant, _event: EventRef<'_>) {}
}

/// The observer that the shell gives to its machines.
pub(super) struct Tap<'a, E> {
    events: &'a E,
    active: bool,
}

impl<'a, E: Publish> Tap<'a, E> {
    #[inline]
    pub(super) fn new(events: &'a E) -> Self {
        Self { events, active: events.is_active() }
    }
}

impl<E: Publish> Observer<PoolEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        if self.active {
            self.events.publish(now, EventRef::Pool(event));
        }
    }
}

impl<E: Publish> Observer<MonitorEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        if self.active {
            self.events.publish(now, EventRef::Heartbeat(event));
        }
    }
}

impl<'e, E: Publish> Observer<SdamEvent<'e>> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'e>) {
        if self.active {
            self.events.publish(now, EventRef::Sdam(event));
        }
    }
}
