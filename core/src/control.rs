//! The control plane of a client: the topology and the monitors of its servers, as one machine.
//!
//! Read first: SDAM, "Multi-threaded or asynchronous monitoring"; Server Monitoring, "Connection
//! Pool Management".
//!
//! An input from a monitor connection is passed to its [`Monitor`]; if it ends a check, the outcome
//! is applied to the [`Topology`] first, and the actions that the topology then owes are routed
//! within the same call: requests and cancellations of checks to the monitors, the rest to the host
//! as [`ControlAction`]s. The host keeps one lock around this machine and carries out
//! [`ControlAction::Pool`] under it, so a description and the state of its pool change together,
//! and no other task observes one without the other.
//!
//! Socket actions of monitors are polled by connection ([`Control::poll_conn`]), because each
//! monitor connection is driven by a separate task. A load-balanced topology has no monitors.
//!
//! # Selectors
//!
//! A selector that finds no suitable server requests a check of all servers
//! ([`Control::request_check`]) and waits for [`ControlAction::WakeSelectors`], which follows the
//! end of every check, with any outcome. A server with a check in flight drops the
//! request, so selectors repeat it at each wake-up: a server is then checked every 500 ms while a
//! selector waits.
//!
//! # Pace
//!
//! The first check of an address begins no earlier than [`MIN_HEARTBEAT_FREQUENCY`] after the last
//! dial of that address. This holds even if its server has left the topology since and was added
//! again with a new id: otherwise a member could make the client dial a host as often as the member
//! replies. The last dials of a limited number of removed servers are stored separately. When more
//! servers are removed within that time, every new server waits.
//!
//! # Time
//!
//! When the clock goes backwards, the latest instant seen is kept, for all monitors and the
//! topology, so no event is earlier than the previous one.

#[cfg(test)]
mod tests;

use crate::hooks::{Point, fires};
use crate::machine::{Observer, Stale};
use crate::monitor::{
    CheckOutcome, MIN_HEARTBEAT_FREQUENCY, Monitor, MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind,
    MonitorEvent, MonitorState,
};
use crate::observe::EventContext;
use crate::storage::deadlines::Deadlines;
use crate::storage::{Full, Slots, Store};
use crate::topology::{
    AppError, CheckAction, Memory, PoolCommand, RoundTrip, SdamObserver, Topology, TopologyAction, TopologyConfig,
    TopologyId, TopologyType, Verdict,
};
use crate::{Cause, Instant, ServerId};
use core::fmt;
use core::ops::Range;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// An observer of a control machine: it receives the heartbeat events and the topology's events.
/// `()` ignores all events.
pub trait ControlObserver: Observer<MonitorEvent> + SdamObserver {}

impl<O: Observer<MonitorEvent> + SdamObserver + ?Sized> ControlObserver for O {}

/// An action that the host must carry out, in this order, under the lock around the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlAction {
    /// Create the pool of a new server, and start the tasks that drive its monitor.
    ServerAdded(ServerId),
    /// Apply the command to the pool of a server.
    Pool(ServerId, PoolCommand),
    /// Close the pool of a removed server; its monitor has ended.
    ServerRemoved(ServerId),
    /// Wake all tasks that wait for a suitable server.
    WakeSelectors,
}

/// The maximum number of removed servers that are stored separately, if memory has room for that
/// many.
const DEPARTED_MAX: usize = 64;

/// A removed server.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Departed {
    /// A hash of its address. Another address with the same hash waits for at most 500 ms without
    /// need, which is harmless.
    address: u32,
    /// The time of its last dial.
    dialed: Instant,
}

/// A topology and the monitors of its servers.
///
/// Equal values have processed the same inputs and answer every call in the same way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Control<M: Memory> {
    topology: Topology<M>,
    monitors: Slots<Option<Monitor>, <M as Memory>::PerServer<Option<Monitor>>>,
    /// The deadline of each monitor.
    due: Due<M>,
    /// Servers that were removed less than [`MIN_HEARTBEAT_FREQUENCY`] after their last dial.
    departed: Slots<Departed, <M as Memory>::PerServer<Departed>>,
    /// The latest dial of a removed server that `departed` had no room for.
    forgotten: Option<Instant>,
    config: MonitorConfig,
    /// The latest instant seen.
    clock: Instant,
    /// The topology's membership when the monitors were last synchronized with it.
    membership: (u32, u32),
    /// Whether a check has ended and `WakeSelectors` has not been returned since.
    wake: bool,
    /// The range of monitor slots whose connections may have new owed actions.
    touched: Range<usize>,
}

type Due<M> = Deadlines<Slots<Instant, <M as Memory>::PerServer<Instant>>>;

impl<M: Memory> Control<M> {
    /// Creates a topology with these options and a monitor for each seed; all monitors begin a
    /// check at once.
    ///
    /// Cost: O(seeds). Events: those of [`Topology::new`], then `HeartbeatStarted` of each monitor.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room for the seeds.
    pub fn new(
        now: Instant,
        id: TopologyId,
        topology: TopologyConfig<'_>,
        monitor: MonitorConfig,
        observer: &mut impl ControlObserver,
    ) -> Result<Self, Full> {
        let mut control = Self::vacant(monitor);
        control.open(now, id, topology, observer)?;
        Ok(control)
    }

    /// Creates a closed topology without servers, to be initialized in place by `open`.
    #[doc(hidden)]
    #[inline]
    pub fn vacant(monitor: MonitorConfig) -> Self {
        Self {
            topology: Topology::vacant(),
            monitors: Slots::empty(),
            due: Due::<M>::empty(),
            departed: Slots::empty(),
            forgotten: None,
            config: monitor,
            clock: Instant::ORIGIN,
            membership: (0, 0),
            wake: false,
            touched: 0..0,
        }
    }

    /// Initializes a value created by `vacant`, or a closed one, like [`Control::new`]. After an error it
    /// must not be used.
    #[doc(hidden)]
    pub fn open(
        &mut self,
        now: Instant,
        id: TopologyId,
        topology: TopologyConfig<'_>,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Full> {
        self.topology.open(now, id, topology, observer)?;
        self.clock = now;
        self.route(now, observer);
        Ok(())
    }

    /// The topology.
    #[must_use]
    pub const fn topology(&self) -> &Topology<M> {
        &self.topology
    }

    /// The monitor of a server, unless it has none.
    #[must_use]
    pub fn monitor(&self, server: ServerId) -> Option<&Monitor> {
        let monitor = self.monitors.slots().get(server.index() as usize)?.as_ref();
        monitor.filter(|monitor| monitor.server() == server)
    }

    /// Whether the topology was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.topology.is_closed()
    }

    /// Handles an established monitor connection. See [`Monitor::handle_dialed`].
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed or replaced; drop the socket.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_dialed(now, conn, known, &mut observer_there)?;
        self.conclude(now, server, outcome, None, observer);
        Ok(())
    }

    /// Handles a reply on a monitor connection. See [`Monitor::handle_reply`].
    ///
    /// - `matched`: whether another reply follows.
    ///
    /// Cost: that of [`Topology::handle_hello`], no allocation when nothing changes. Owes
    /// [`ControlAction::WakeSelectors`] if it ends a check.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed or replaced; nothing changed.
    ///
    /// Source: Server Monitoring, "Monitor thread".
    pub fn handle_reply(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_reply(now, conn, reply, matched, known, &mut observer_there)?;
        self.conclude(now, server, outcome, Some(reply), observer);
        Ok(())
    }

    /// Handles a failed monitor connection. See [`Monitor::handle_failed`].
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed or replaced; nothing changed.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        cause: Cause,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_failed(now, conn, cause, known, &mut observer_there)?;
        self.conclude(now, server, outcome, None, observer);
        Ok(())
    }

    /// Handles the hello reply of an application's connection, which updates the description like a
    /// check.
    pub fn handle_app_hello(
        &mut self,
        now: Instant,
        server: ServerId,
        hello: &HelloReply<'_>,
        observer: &mut impl ControlObserver,
    ) {
        let now = self.advance_clock(now);
        self.topology.handle_hello(now, server, hello, None, observer);
        self.route(now, observer);
    }

    /// Handles a failed operation of an application, or a failed establishment of a connection for
    /// one.
    ///
    /// The host clears the pool as specified by [`Verdict::clear`], in the same step and before the
    /// connection is checked in.
    ///
    /// Source: SDAM, "Error handling".
    pub fn handle_app_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
        observer: &mut impl ControlObserver,
    ) -> Verdict {
        let now = self.advance_clock(now);
        let verdict = self.topology.handle_app_error(now, server, error, observer);
        self.route(now, observer);
        verdict
    }

    /// Handles a new lookup of the deployment's hosts. See [`Topology::handle_seeds`].
    ///
    /// The monitors of removed members end; those of new members begin a check as soon as the
    /// [pace](self#pace) allows.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room for the new ones; nothing changed.
    ///
    /// Source: Polling SRV Records for mongos Discovery, "Implementation".
    pub fn handle_seeds<'s>(
        &mut self,
        now: Instant,
        seeds: impl Iterator<Item = &'s str> + Clone,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Full> {
        let now = self.advance_clock(now);
        let result = self.topology.handle_seeds(now, seeds, observer);
        self.route(now, observer);
        result
    }

    /// Requests a check of every server as soon as the minimum interval allows, because a selector
    /// found no suitable server.
    ///
    /// Dropped, not stored, for a server with a check in flight: selectors repeat the request, see
    /// the [module](self).
    ///
    /// Cost: O(servers).
    pub fn request_check(&mut self, now: Instant) {
        let now = self.advance_clock(now);
        for index in 0..self.monitors.slots().len() {
            if let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(index) {
                monitor.request_check(now);
                note_due::<M>(&mut self.due, monitor.server().index(), monitor.poll_timeout());
            }
        }
    }

    /// Closes all monitors, then the topology.
    ///
    /// Owes [`ControlAction::ServerRemoved`] for each server. Events: `HeartbeatFailed` of the
    /// checks in flight, then those of [`Topology::close`].
    ///
    /// Source: SDAM, "Client closing".
    pub fn close(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.advance_clock(now);
        for index in 0..self.monitors.slots().len() {
            if let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(index) {
                let server = monitor.server();
                monitor.close(now, &mut InContext { topology: &self.topology, server, observer });
                self.rearm(index);
            }
        }
        self.topology.close(now, observer);
        self.route(now, observer);
    }

    /// Begins the checks that are due and fails those whose deadline has passed, the earliest
    /// first.
    ///
    /// Cost: O(log n) in the number of servers for each affected monitor, in addition to the cost
    /// of its outcome.
    ///
    /// # Panics
    ///
    /// Panics when a monitor does not carry out a step that is due, which is a bug in this crate.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.advance_clock(now);
        while self.due.earliest().is_some_and(|at| at <= now) {
            let Some(index) = self.due.first() else { break };
            let Some(Some(monitor)) = self.monitors.slots().get(index as usize) else { break };
            let server = monitor.server();
            let known = self.is_known(server);
            let Some((monitor, mut observer_there)) = self.monitor_in(server, observer) else { break };
            let outcome = monitor.handle_timeout(now, known, &mut observer_there);
            self.conclude(now, server, outcome, None, observer);
            assert!(self.due.of(index).is_none_or(|at| at > now), "a step that was due was not carried out");
        }
    }

    /// Returns the next action owed to the host, which carries out all of them before any other
    /// task accesses the machine.
    pub fn poll_action(&mut self) -> Option<ControlAction> {
        while let Some(action) = self.topology.poll_action() {
            return Some(match action {
                TopologyAction::ServerAdded(id) => ControlAction::ServerAdded(id),
                TopologyAction::ServerRemoved(id) => ControlAction::ServerRemoved(id),
                TopologyAction::Pool(id, command) => ControlAction::Pool(id, command),
                TopologyAction::WakeSelectors => {
                    self.wake = false;
                    ControlAction::WakeSelectors
                }
                // Already routed to the monitors within the step.
                TopologyAction::CancelCheck(_) | TopologyAction::RequestCheck(_) => continue,
            });
        }
        core::mem::take(&mut self.wake).then_some(ControlAction::WakeSelectors)
    }

    /// Returns the next action of one of a monitor's connections, or `None` when none is owed.
    pub fn poll_conn(&mut self, now: Instant, server: ServerId, kind: MonitorConnKind) -> Option<MonitorAction> {
        let now = self.advance_clock(now);
        self.monitor_mut(server)?.poll_conn(now, kind)
    }

    /// Takes the action owed on a connection if it is [`MonitorAction::ReadNext`]. For hosts that
    /// read continuously.
    pub(crate) fn take_read(&mut self, server: ServerId, conn: MonitorConnId) {
        if let Some(monitor) = self.monitor_mut(server) {
            monitor.take_read(conn);
        }
    }

    /// Whether [`Control::poll_conn`] would return an action.
    #[must_use]
    pub fn owes_conn(&self, server: ServerId, kind: MonitorConnKind) -> bool {
        self.monitor(server).is_some_and(|monitor| monitor.owes_conn(kind))
    }

    /// Whether the monitor of this server has ended: its connections never owe an action again.
    #[must_use]
    pub fn is_ended(&self, server: ServerId) -> bool {
        self.topology.server(server).is_none()
    }

    /// Returns, and resets, the range of slots of servers whose connections may owe an action, or
    /// whose monitor may have ended, since the last call.
    #[doc(hidden)]
    pub fn take_touched(&mut self) -> Range<usize> {
        core::mem::replace(&mut self.touched, 0..0)
    }

    /// The earliest instant at which a step is due; `None` exactly when none is. Cost: O(1).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.earliest()
    }

    /// Checks every internal invariant. For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.topology.assert_invariants();
        for monitor in self.monitors.slots().iter().flatten() {
            monitor.assert_invariants();
            assert_ne!(monitor.state(), MonitorState::Ended, "the step after a check has not begun");
            let is_member = self.topology.server(monitor.server()).is_some();
            assert_eq!(is_member, monitor.state() != MonitorState::Closed, "exactly the monitors of members are open");
        }
        let is_balanced = self.topology.description().topology_type() == TopologyType::LoadBalanced;
        for server in self.topology.servers() {
            let is_monitored = self.monitor(server.server()).is_some();
            assert!(is_monitored != is_balanced || self.membership != self.topology.membership(), "not monitored");
        }
        self.due.assert_invariants(|index| {
            self.monitors.slots().get(index as usize)?.as_ref().and_then(Monitor::poll_timeout)
        });
    }

    fn advance_clock(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    fn monitor_mut(&mut self, server: ServerId) -> Option<&mut Monitor> {
        let monitor = self.monitors.slots_mut().get_mut(server.index() as usize)?.as_mut();
        monitor.filter(|monitor| monitor.server() == server)
    }

    /// Returns a monitor, and an observer that adds the server and its address to each event.
    fn monitor_in<'s, O>(
        &'s mut self,
        server: ServerId,
        observer: &'s mut O,
    ) -> Option<(&'s mut Monitor, InContext<'s, M, O>)> {
        let Self { topology, monitors, .. } = self;
        let monitor = monitors.slots_mut().get_mut(server.index() as usize)?.as_mut();
        let monitor = monitor.filter(|monitor| monitor.server() == server)?;
        Some((monitor, InContext { topology, server, observer }))
    }

    /// Completes an input of a monitor: applies the outcome of the check that it ended, if any, to
    /// the topology, begins the step that follows the check, and stores the monitor's deadline.
    ///
    /// - `reply`: the reply that ended a successful check.
    fn conclude(
        &mut self,
        now: Instant,
        server: ServerId,
        outcome: Option<CheckOutcome>,
        reply: Option<&HelloReply<'_>>,
        observer: &mut impl ControlObserver,
    ) {
        if let Some(outcome) = outcome {
            match (outcome, reply) {
                (CheckOutcome::Failed { cause, .. }, _) => self.topology.handle_failed(now, server, cause, observer),
                (CheckOutcome::Succeeded { .. }, Some(reply)) => {
                    let rtt = self.monitor(server).map(Monitor::rtt);
                    let round_trip =
                        rtt.and_then(|rtt| rtt.average().map(|average| RoundTrip { average, minimum: rtt.minimum() }));
                    self.topology.handle_hello(now, server, reply, round_trip, observer);
                }
                (CheckOutcome::Succeeded { .. }, None) => unreachable!("only a reply makes a check succeed"),
            }
            // Emitted even if the description did not change: a waiting selector then requests the
            // next check (MON-18).
            self.wake = true;
            self.route(now, observer);
            let known = self.is_known(server);
            if let Some((monitor, mut observer_there)) = self.monitor_in(server, observer) {
                let ended = monitor.state() != MonitorState::Ended
                    || monitor.handle_timeout(now, known, &mut observer_there).is_none();
                assert!(ended, "the step after a check returned an outcome");
            }
        }
        self.wake |= fires(Point::WakeSelectors);
        self.rearm(server.index() as usize);
    }

    fn is_known(&self, server: ServerId) -> bool {
        self.topology.server(server).is_some_and(|description| description.server_type().is_known())
    }

    /// Stores the deadline of the monitor in this slot after a change, and marks the slot as
    /// touched.
    fn rearm(&mut self, index: usize) {
        let Some(Some(monitor)) = self.monitors.slots().get(index) else { return };
        widen(&mut self.touched, index);
        note_due::<M>(&mut self.due, monitor.server().index(), monitor.poll_timeout());
    }

    /// Routes the topology's check requests to the monitors, and applies changes of membership.
    fn route(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let membership = self.topology.membership();
        if self.membership != membership && self.sync_monitors(now, observer).is_ok() {
            self.membership = membership;
        }
        while let Some(action) = self.topology.poll_check_action() {
            let (CheckAction::Request(server) | CheckAction::Cancel(server)) = action;
            if let Some((monitor, mut observer_there)) = self.monitor_in(server, observer) {
                match action {
                    CheckAction::Request(_) => monitor.request_check(now),
                    CheckAction::Cancel(_) => monitor.cancel_check(now, &mut observer_there),
                }
                self.rearm(server.index() as usize);
            }
        }
    }

    /// Closes the monitors of removed servers and starts those of new ones, in slot order.
    ///
    /// [`Full`]: out of memory. The missing monitors are added with the next input.
    fn sync_monitors(&mut self, now: Instant, observer: &mut impl ControlObserver) -> Result<(), Full> {
        for index in 0..self.monitors.slots().len() {
            let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(index) else { continue };
            let server = monitor.server();
            if self.topology.server(server).is_none() && monitor.state() != MonitorState::Closed {
                monitor.close(now, &mut InContext { topology: &self.topology, server, observer });
                let dialed = monitor.last_dial();
                self.remember(now, server, dialed);
                self.rearm(index);
            }
        }
        if self.topology.description().topology_type() == TopologyType::LoadBalanced {
            return Ok(());
        }
        let Self { topology, monitors, due, departed, forgotten, config, touched, .. } = self;
        for description in topology.servers() {
            let server = description.server();
            let index = server.index() as usize;
            while monitors.slots().len() <= index {
                monitors.try_push(None)?;
            }
            due.grow(index + 1)?;
            let Some(kept) = monitors.slots_mut().get_mut(index) else { continue };
            if kept.as_ref().is_none_or(|monitor| monitor.server() != server) {
                let monitor = kept.insert(Monitor::new(server, *config));
                let address = topology.address(server).map_or(0, hash);
                let same = departed.slots().iter().filter(|departed| departed.address == address);
                let dialed = same.map(|departed| departed.dialed).max().max(*forgotten);
                match dialed.filter(|dialed| is_recent(now, *dialed)) {
                    Some(dialed) => monitor.start_after(now, dialed),
                    None => monitor.start(now, &mut InContext { topology, server, observer }),
                }
                widen(touched, index);
                note_due::<M>(due, server.index(), monitor.poll_timeout());
            }
        }
        Ok(())
    }

    /// Stores the last dial of a removed server while the pace depends on it.
    fn remember(&mut self, now: Instant, server: ServerId, dialed: Option<Instant>) {
        let Some(dialed) = dialed.filter(|dialed| is_recent(now, *dialed)) else { return };
        if let Some(address) = self.topology.address(server) {
            let departed = Departed { address: hash(address), dialed };
            let mut slots = self.departed.slots_mut().iter_mut();
            if let Some(slot) = slots.find(|slot| !is_recent(now, slot.dialed)) {
                *slot = departed;
                return;
            }
            if self.departed.slots().len() < DEPARTED_MAX && self.departed.try_push(departed).is_ok() {
                return;
            }
        }
        self.forgotten = self.forgotten.max(Some(dialed));
    }
}

fn is_recent(now: Instant, dialed: Instant) -> bool {
    now.saturating_since(dialed) < MIN_HEARTBEAT_FREQUENCY
}

/// The FNV-1a hash.
fn hash(address: &str) -> u32 {
    address.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Adds the topology and the server's address to each event of a monitor.
struct InContext<'t, M: Memory, O> {
    topology: &'t Topology<M>,
    server: ServerId,
    observer: &'t mut O,
}

impl<M: Memory, O: Observer<MonitorEvent>> Observer<MonitorEvent> for InContext<'_, M, O> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        let Self { topology, server, observer } = self;
        let address = topology.address(*server);
        let context = EventContext { topology: Some(topology.id()), address, ..EventContext::NONE };
        observer.on_event_in(now, event, &context);
    }
}

/// Extends a range of slots by one slot.
#[doc(hidden)]
pub fn widen(range: &mut Range<usize>, index: usize) {
    *range = if Range::is_empty(range) { index..index + 1 } else { range.start.min(index)..range.end.max(index + 1) };
}

/// Stores the deadline of the monitor in this slot.
fn note_due<M: Memory>(due: &mut Due<M>, index: u32, at: Option<Instant>) {
    if due.of(index) == at {
        return;
    }
    due.remove(index);
    if let Some(at) = at {
        let noted = due.insert(index, at);
        assert!(noted.is_ok(), "a monitor has a deadline slot before it starts");
    }
}

impl<M: Memory> fmt::Debug for Control<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("servers", &self.topology.server_count()).finish_non_exhaustive()
    }
}
