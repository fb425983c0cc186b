//! Events on their way to subscribers.

use crate::machine::Observer;
use crate::monitor::MonitorEvent;
use crate::pool::PoolEvent;
use crate::Instant;

/// Anything that may be watched of a client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Of a pool.
    Pool(PoolEvent),
    /// Of a server's monitor.
    Heartbeat(MonitorEvent),
}

/// Where events go.
///
/// `publish` is called under the lock of what is being changed, so that events keep their order: it notes
/// the event down and returns. It must not call the shell.
pub trait Publish {
    /// Whether anybody listens. When not, no event is even built.
    fn is_active(&self) -> bool;

    /// Takes note of an event.
    fn publish(&self, now: Instant, event: Event);
}

/// Nobody listens.
impl Publish for () {
    fn is_active(&self) -> bool {
        false
    }

    fn publish(&self, _now: Instant, _event: Event) {}
}

/// The observer that the shell gives to its machines.
pub(super) struct Tap<'a, E> {
    events: &'a E,
    active: bool,
}

impl<'a, E: Publish> Tap<'a, E> {
    pub(super) fn new(events: &'a E) -> Self {
        Self { events, active: events.is_active() }
    }
}

impl<E: Publish> Observer<PoolEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        if self.active {
            self.events.publish(now, Event::Pool(*event));
        }
    }
}

impl<E: Publish> Observer<MonitorEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        if self.active {
            self.events.publish(now, Event::Heartbeat(*event));
        }
    }
}
