//! Publishing events to subscribers.

#[cfg(feature = "alloc")]
mod command;
#[cfg(feature = "alloc")]
mod selection;

#[cfg(feature = "alloc")]
pub use command::{CommandEvent, CommandStage, OwnedCommandEvent};
#[cfg(feature = "alloc")]
pub use selection::{OwnedSelectionEvent, SelectionEvent, SelectionStage};

use core::ops::BitOr;
use poolhouse_core::Instant;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_core::machine::Observer;
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::observe::{EventContext, Tee};
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::SdamEvent;

/// An event of a client, borrowed from its source.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventRef<'a> {
    /// An event of a pool.
    Pool(&'a PoolEvent),
    /// An event of a server's monitor.
    Heartbeat(&'a MonitorEvent),
    /// An event of the topology.
    Sdam(&'a SdamEvent<'a>),
    /// An event of a multiplexed pool.
    Mux(&'a MuxEvent),
    /// An event of a Cassandra cluster.
    Cluster(&'a ClusterEvent),
    /// An event of a command.
    #[cfg(feature = "alloc")]
    Command(&'a CommandEvent<'a>),
    /// An event of the selection of a server.
    #[cfg(feature = "alloc")]
    Selection(&'a SelectionEvent<'a>),
}

/// Kinds of events, as a set: `EventKinds::POOLS | EventKinds::TOPOLOGY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventKinds(u16);

impl EventKinds {
    /// No events.
    pub const NONE: Self = Self(0);
    /// Events of each check-out: `ConnectionCheckOutStarted`, `ConnectionCheckOutFailed`,
    /// `ConnectionCheckedOut` and `ConnectionCheckedIn`. Of the events of pools, only these are
    /// emitted for each operation.
    pub const CHECK_OUTS: Self = Self(1);
    /// All other events of pools.
    pub const POOLS: Self = Self(2);
    /// Events of the servers' monitors.
    pub const HEARTBEATS: Self = Self(4);
    /// Events of the topology.
    pub const TOPOLOGY: Self = Self(8);
    /// Events of multiplexed pools, without those of [`EventKinds::REQUESTS`].
    pub const MUX: Self = Self(16);
    /// Events of Cassandra clusters.
    pub const CLUSTER: Self = Self(32);
    /// Events of commands, each with a copy of the command or of its reply.
    pub const COMMANDS: Self = Self(64);
    /// The start and the end of each selection of a server, with a copy of the topology's
    /// description.
    pub const SELECTIONS: Self = Self(128);
    /// The begin and the end of each wait for a suitable server.
    pub const SELECTION_WAITS: Self = Self(256);
    /// `StreamAcquired` of requests that did not wait, and `ReplyReceived`. Of the events of multiplexed
    /// pools, only these are emitted for each request.
    pub const REQUESTS: Self = Self(512);
    /// All events but those of commands, which have the data of the application, and those of
    /// selections, which copy a description for each operation.
    pub const ALL: Self = Self(63 | Self::REQUESTS.0);

    /// Whether the two sets have a common kind.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The inverse of [`EventKinds::to_bits`].
    #[cfg(feature = "std")]
    pub(super) const fn from_bits(bits: u16) -> Self {
        Self(bits & (Self::ALL.0 | Self::COMMANDS.0 | Self::SELECTIONS.0 | Self::SELECTION_WAITS.0))
    }

    #[cfg(feature = "std")]
    pub(super) const fn to_bits(self) -> u16 {
        self.0
    }

    const fn of_pool(event: &PoolEvent) -> Self {
        let is_of_check_out = matches!(
            event,
            PoolEvent::ConnectionCheckOutStarted { .. }
                | PoolEvent::ConnectionCheckOutFailed { .. }
                | PoolEvent::ConnectionCheckedOut { .. }
                | PoolEvent::ConnectionCheckedIn { .. }
        );
        if is_of_check_out { Self::CHECK_OUTS } else { Self::POOLS }
    }

    const fn of_mux(event: &MuxEvent) -> Self {
        let is_of_request =
            matches!(event, MuxEvent::StreamAcquired { waited: None, .. } | MuxEvent::ReplyReceived { .. });
        if is_of_request { Self::REQUESTS } else { Self::MUX }
    }
}

impl BitOr for EventKinds {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl EventRef<'_> {
    /// The kind of the event.
    #[must_use]
    pub const fn kind(&self) -> EventKinds {
        match self {
            Self::Pool(event) => EventKinds::of_pool(event),
            Self::Heartbeat(_) => EventKinds::HEARTBEATS,
            Self::Sdam(_) => EventKinds::TOPOLOGY,
            Self::Mux(event) => EventKinds::of_mux(event),
            Self::Cluster(_) => EventKinds::CLUSTER,
            #[cfg(feature = "alloc")]
            Self::Command(_) => EventKinds::COMMANDS,
            #[cfg(feature = "alloc")]
            Self::Selection(event) => event.kind(),
        }
    }
}

/// An owned event of a client.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An event of a pool.
    Pool(PoolEvent),
    /// An event of a server's monitor.
    Heartbeat(MonitorEvent),
    /// An event of the topology.
    Sdam(alloc::boxed::Box<poolhouse_core::topology::OwnedSdamEvent>),
    /// An event of a multiplexed pool.
    Mux(MuxEvent),
    /// An event of a Cassandra cluster.
    Cluster(ClusterEvent),
    /// An event of a command.
    Command(alloc::boxed::Box<OwnedCommandEvent>),
    /// An event of the selection of a server.
    Selection(alloc::boxed::Box<OwnedSelectionEvent>),
}

#[cfg(feature = "alloc")]
impl EventRef<'_> {
    /// Returns an owned copy. Allocates for events of the topology, of commands and of selections.
    #[must_use]
    pub fn to_owned(&self) -> Event {
        self.copy_after(&mut None)
    }

    /// Returns an owned copy that shares unchanged parts with earlier copies.
    ///
    /// - `last`: the last description of the topology that was copied.
    #[doc(hidden)]
    pub fn copy_after(&self, last: &mut Option<poolhouse_core::topology::OwnedTopologyDescription>) -> Event {
        match *self {
            Self::Pool(event) => Event::Pool(*event),
            Self::Heartbeat(event) => Event::Heartbeat(*event),
            Self::Sdam(event) => Event::Sdam(alloc::boxed::Box::new(event.copy_after(last))),
            Self::Mux(event) => Event::Mux(*event),
            Self::Cluster(event) => Event::Cluster(*event),
            Self::Command(event) => Event::Command(alloc::boxed::Box::new(event.to_owned())),
            Self::Selection(event) => Event::Selection(alloc::boxed::Box::new(event.copy_after(last))),
        }
    }
}

#[cfg(feature = "std")]
impl Event {
    /// Returns the bytes of its heap memory, shared parts included.
    #[doc(hidden)]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Sdam(event) => size_of_val(&**event) + event.heap_bytes(),
            Self::Command(event) => size_of_val(&**event) + event.heap_bytes(),
            Self::Selection(event) => size_of_val(&**event) + event.heap_bytes(),
            Self::Pool(_) | Self::Heartbeat(_) | Self::Mux(_) | Self::Cluster(_) => 0,
        }
    }
}

#[cfg(feature = "alloc")]
impl core::fmt::Display for Event {
    /// Writes the event's name and its fields on one line.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Pool(event) => event.fmt(f),
            Self::Heartbeat(event) => event.fmt(f),
            Self::Sdam(event) => event.fmt(f),
            Self::Mux(event) => event.fmt(f),
            Self::Cluster(event) => event.fmt(f),
            Self::Command(event) => event.get().fmt(f),
            Self::Selection(event) => event.get().fmt(f),
        }
    }
}

/// A publisher of events.
///
/// `publish` is called under the lock of the state that is being changed, so events keep their
/// order: it stores the event and returns. It must not call the driver, and no method may panic:
/// with feature `std` a panic of `publish` or `publish_in` is caught, and the event is lost; a
/// panic of another method, or without `std`, unwinds through the driver, which may lose a
/// connection or an action.
pub trait Publish: Clone {
    /// The kinds of events that have a subscriber. Others are not published. Without
    /// [`EventKinds::CHECK_OUTS`] and [`EventKinds::SELECTIONS`] among them, a check-out that finds a
    /// connection emits no event and reads no clock for one.
    fn kinds(&self) -> EventKinds;

    /// Stores an event.
    fn publish(&self, now: Instant, event: EventRef<'_>);

    /// [`Publish::publish`] with the event's context, which the event does not contain.
    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let _ = context;
        self.publish(now, event);
    }

    /// Returns the publisher for the events of one server's pool. Called when the server is added,
    /// before its first event.
    ///
    /// - `address`: the server's address, as the topology names it.
    #[must_use]
    fn of_server(&self, address: &str) -> Self {
        let _ = address;
        self.clone()
    }

    /// Wakes the readers of events. Called after events were published, without a lock.
    fn deliver(&self) {}
}

/// A publisher without subscribers.
impl Publish for () {
    fn kinds(&self) -> EventKinds {
        EventKinds::NONE
    }

    fn publish(&self, _now: Instant, _event: EventRef<'_>) {}
}

/// Publishes to both.
impl<A: Publish, B: Publish> Publish for Tee<A, B> {
    #[inline]
    fn kinds(&self) -> EventKinds {
        self.0.kinds() | self.1.kinds()
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        if self.0.kinds().intersects(event.kind()) {
            self.0.publish_in(now, event, context);
        }
        if self.1.kinds().intersects(event.kind()) {
            self.1.publish_in(now, event, context);
        }
    }

    fn of_server(&self, address: &str) -> Self {
        Self(self.0.of_server(address), self.1.of_server(address))
    }

    #[inline]
    fn deliver(&self) {
        self.0.deliver();
        self.1.deliver();
    }
}

/// The observer that the driver passes to its machines.
#[allow(missing_debug_implementations, reason = "hidden: never shown")]
#[doc(hidden)]
pub struct Tap<'a, E> {
    events: &'a E,
    kinds: EventKinds,
    /// The server of the pool that the events belong to.
    address: Option<&'a str>,
}

impl<'a, E: Publish> Tap<'a, E> {
    #[inline]
    #[doc(hidden)]
    pub fn new(events: &'a E) -> Self {
        Self { events, kinds: events.kinds(), address: None }
    }

    /// Creates the observer for the pool of the server at this address.
    #[doc(hidden)]
    #[inline]
    pub fn of_server(events: &'a E, address: &'a str) -> Self {
        Self { events, kinds: events.kinds(), address: Some(address) }
    }

    /// Whether any event is published.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.kinds != EventKinds::NONE
    }

    #[inline]
    fn publish(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        if self.kinds.intersects(event.kind()) {
            self.publish_to_subscribers(now, event, context);
        }
    }

    /// Not inlined: most events have no subscriber.
    #[inline(never)]
    fn publish_to_subscribers(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let mut own = EventContext::NONE;
        own.address = self.address;
        let publish = || self.events.publish_in(now, event, &context.or(&own));
        #[cfg(feature = "std")]
        let _ = poolhouse_core::observe::contain(publish);
        #[cfg(not(feature = "std"))]
        publish();
    }
}

impl<E: Publish> Observer<PoolEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    /// A pool needs an enabled observer only for the events of check-outs.
    #[inline]
    fn is_enabled(&self) -> bool {
        self.kinds.intersects(EventKinds::CHECK_OUTS)
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &PoolEvent, context: &EventContext<'_>) {
        self.publish(now, EventRef::Pool(event), context);
    }
}

impl<E: Publish> Observer<MonitorEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &MonitorEvent, context: &EventContext<'_>) {
        self.publish(now, EventRef::Heartbeat(event), context);
    }
}

impl<'e, E: Publish> Observer<SdamEvent<'e>> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'e>) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &SdamEvent<'e>, context: &EventContext<'_>) {
        self.publish(now, EventRef::Sdam(event), context);
    }
}

impl<E: Publish> Observer<MuxEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &MuxEvent, context: &EventContext<'_>) {
        // The kind depends on the event: without a subscriber it is not computed.
        if self.is_active() {
            self.publish(now, EventRef::Mux(event), context);
        }
    }
}

impl<E: Publish> Observer<ClusterEvent> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &ClusterEvent) {
        self.on_event_in(now, event, &EventContext::NONE);
    }

    #[inline]
    fn on_event_in(&mut self, now: Instant, event: &ClusterEvent, context: &EventContext<'_>) {
        self.publish(now, EventRef::Cluster(event), context);
    }
}

#[cfg(feature = "alloc")]
impl<'e, E: Publish> Observer<SelectionEvent<'e>> for Tap<'_, E> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &SelectionEvent<'e>) {
        self.publish(now, EventRef::Selection(event), &EventContext::NONE);
    }
}
