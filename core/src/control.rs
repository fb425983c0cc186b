//! The control plane of a client: the topology and the monitors of its servers, as one machine.
//!
//! Read first: SDAM, "Multi-threaded or asynchronous monitoring"; Server Monitoring, "Connection Pool Management".
//!
//! News of a monitoring connection goes to its [`Monitor`]; if that ends a check, the outcome is applied to the
//! [`Topology`] before anything else happens, and what the topology then owes is routed within the same call: requests and
//! cancellations of checks to the monitors, the rest to the host as [`ControlAction`]s. The host keeps one lock around
//! this machine and carries out [`ControlAction::Pool`] under it: a description and the state of its
//! pool change together, and nobody sees half of it (SDAM-64, MON-52, MON-53).
//!
//! What a monitor wants of its sockets is polled by line ([`Control::poll_line`]), because each line is driven by a task of its own.
//! A load-balanced topology has no monitors.
//!
//! # Selectors
//!
//! Whoever finds no suitable server asks for a check of all ([`Control::request_check`]) and waits for
//! [`ControlAction::WakeSelectors`], which follows every check that ends, whatever it brought (MON-18). The request is dropped where a
//! check is in flight, so it is made anew at each wake-up: then a server is checked every 500 ms for as long as somebody waits (SDAM-85).
//!
//! # Pace
//!
//! An address is dialed for a first check no earlier than [`MIN_HEARTBEAT_FREQUENCY`] after the last dial of the same address, also when its server has left
//! the topology meanwhile and is another one now. Otherwise a member could make the client dial a host as often as it sends replies.
//! The dials of some servers that left are remembered one by one; when more leave within that time, every new server waits.
//!
//! # Time
//!
//! A clock that goes back is held at the last value seen, for all monitors and the topology alike, so that no event is
//! earlier than the one before it.

#[cfg(test)]
mod tests;

use crate::hooks::{Point, fires};
use crate::machine::{Observer, Stale};
use crate::monitor::{
    CheckOutcome, Line, LineId, MIN_HEARTBEAT_FREQUENCY, Monitor, MonitorAction, MonitorConfig, MonitorEvent,
    MonitorState,
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

/// Whoever watches a control machine: heartbeats and the topology's events. `()` watches nothing.
pub trait ControlObserver: Observer<MonitorEvent> + SdamObserver {}

impl<O: Observer<MonitorEvent> + SdamObserver + ?Sized> ControlObserver for O {}

/// What the host must do, in this order, under the lock that is around the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlAction {
    /// Make the pool of a new server, and start what drives its monitor.
    ServerAdded(ServerId),
    /// Tell the pool of a server.
    Pool(ServerId, PoolCommand),
    /// Close the pool of a server that is gone; its monitor has ended.
    ServerRemoved(ServerId),
    /// Wake whoever waits for a suitable server.
    WakeSelectors,
}

/// How many servers that left are remembered one by one, where memory is not smaller.
const DEPARTED_MAX: usize = 64;

/// A server that left.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Departed {
    /// A hash of its address. Another address that has the same one waits for 500 ms at most, which does no harm.
    address: u32,
    /// When it was dialed last.
    dialed: Instant,
}

/// A topology and the monitors of its servers.
///
/// Equal ones have been through the same, and answer every call alike.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Control<M: Memory> {
    topology: Topology<M>,
    monitors: Slots<Option<Monitor>, <M as Memory>::PerServer<Option<Monitor>>>,
    /// When each monitor wants to be called.
    due: Due<M>,
    /// Servers that left less than [`MIN_HEARTBEAT_FREQUENCY`] after their last dial.
    departed: Slots<Departed, <M as Memory>::PerServer<Departed>>,
    /// The last dial of those among them that there was no room for.
    forgotten: Option<Instant>,
    config: MonitorConfig,
    /// The latest instant seen.
    clock: Instant,
    /// The topology's membership when the monitors were last brought in step.
    membership: (u32, u32),
    /// A check has ended, and selectors were not woken for it.
    wake: bool,
    /// Places of monitors whose lines may owe something new: from the first one to before the last one.
    touched: Range<usize>,
}

type Due<M> = Deadlines<Slots<Instant, <M as Memory>::PerServer<Instant>>>;

impl<M: Memory> Control<M> {
    /// A topology of these options with a monitor for each seed, all of which check at once.
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

    /// A closed topology without servers, to be opened where it is.
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

    /// [`Control::new`] of a vacant one, in its place. After an error it is of no use.
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

    /// News: a monitoring connection stands. See [`Monitor::handle_dialed`].
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection is given up; drop the socket.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        server: ServerId,
        line: LineId,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.hold_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_dialed(now, line, known, &mut observer_there)?;
        self.conclude(now, server, outcome, None, observer);
        Ok(())
    }

    /// News: a monitoring connection was answered. See [`Monitor::handle_reply`].
    ///
    /// - `matched`: whether another reply follows.
    ///
    /// Cost: that of [`Topology::handle_hello`], no allocation when nothing changes. Owes [`ControlAction::WakeSelectors`] if it ends
    /// a check.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection is given up; nothing changed.
    ///
    /// Source: Server Monitoring, "Monitor thread" (MON-18, MON-52, MON-53).
    pub fn handle_reply(
        &mut self,
        now: Instant,
        server: ServerId,
        line: LineId,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.hold_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_reply(now, line, reply, matched, known, &mut observer_there)?;
        self.conclude(now, server, outcome, Some(reply), observer);
        Ok(())
    }

    /// News: a monitoring connection failed. See [`Monitor::handle_failed`].
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was given up; nothing changed.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        server: ServerId,
        line: LineId,
        cause: Cause,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.hold_clock(now);
        let known = self.is_known(server);
        let (monitor, mut observer_there) = self.monitor_in(server, observer).ok_or(Stale)?;
        let outcome = monitor.handle_failed(now, line, cause, known, &mut observer_there)?;
        self.conclude(now, server, outcome, None, observer);
        Ok(())
    }

    /// News: the hello of an application's connection, which tells of the server as a check does (MON-20).
    pub fn handle_app_hello(
        &mut self,
        now: Instant,
        server: ServerId,
        hello: &HelloReply<'_>,
        observer: &mut impl ControlObserver,
    ) {
        let now = self.hold_clock(now);
        self.topology.handle_hello(now, server, hello, None, observer);
        self.route(now, observer);
    }

    /// News: an application's operation failed, or a connection could not be established for one.
    ///
    /// The host clears the pool as [`Verdict::clear`] says, in the same step and before the connection goes back.
    ///
    /// Source: SDAM, "Error handling" (SDAM-65..86).
    pub fn handle_app_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
        observer: &mut impl ControlObserver,
    ) -> Verdict {
        let now = self.hold_clock(now);
        let verdict = self.topology.handle_app_error(now, server, error, observer);
        self.route(now, observer);
        verdict
    }

    /// News: the hosts of the deployment were looked up again. See [`Topology::handle_seeds`].
    ///
    /// Monitors of members that are gone end, those of new ones check as soon as the [pace](self#pace) allows.
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
        let now = self.hold_clock(now);
        let result = self.topology.handle_seeds(now, seeds, observer);
        self.route(now, observer);
        result
    }

    /// Asks for a check of every server as soon as it may be: somebody found none that suits (MON-15, SDAM-85).
    ///
    /// Dropped, not remembered, where a check is in flight: see the [module](self) for who asks again, and when.
    ///
    /// Cost: O(servers).
    pub fn request_check(&mut self, now: Instant) {
        let now = self.hold_clock(now);
        for place in 0..self.monitors.slots().len() {
            if let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(place) {
                monitor.request_check(now);
                note_due::<M>(&mut self.due, monitor.server().index(), monitor.poll_timeout());
            }
        }
    }

    /// Ends everything: monitors at once, then the topology.
    ///
    /// Owes [`ControlAction::ServerRemoved`] for each server. Events: the heartbeats in flight fail, then those of [`Topology::close`].
    ///
    /// Source: SDAM, "Client closing" (SDAM-10, MON-49, LOG-08).
    pub fn close(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.hold_clock(now);
        for place in 0..self.monitors.slots().len() {
            if let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(place) {
                let server = monitor.server();
                monitor.close(now, &mut There { topology: &self.topology, server, observer });
                self.rearm(place);
            }
        }
        self.topology.close(now, observer);
        self.route(now, observer);
    }

    /// Begins the checks that are due, and ends those that are too late: the earliest first.
    ///
    /// Cost: O(log n) in the number of servers for each one concerned, besides what its outcome costs.
    ///
    /// # Panics
    ///
    /// When a monitor does not do what is due, which is a bug in this crate.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.hold_clock(now);
        while self.due.earliest().is_some_and(|at| at <= now) {
            let Some(place) = self.due.first() else { break };
            let Some(Some(monitor)) = self.monitors.slots().get(place as usize) else { break };
            let server = monitor.server();
            let known = self.is_known(server);
            let Some((monitor, mut observer_there)) = self.monitor_in(server, observer) else { break };
            let outcome = monitor.handle_timeout(now, known, &mut observer_there);
            self.conclude(now, server, outcome, None, observer);
            assert!(self.due.of(place).is_none_or(|at| at > now), "what was due is not done");
        }
    }

    /// The next action owed to the host, which carries out all of them before anybody else sees the machine.
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
                // Passed on to the monitors within the step.
                TopologyAction::CancelCheck(_) | TopologyAction::RequestCheck(_) => continue,
            });
        }
        core::mem::take(&mut self.wake).then_some(ControlAction::WakeSelectors)
    }

    /// What a monitor wants of one of its connections, or `None` when it wants nothing now.
    pub fn poll_line(&mut self, now: Instant, server: ServerId, line: Line) -> Option<MonitorAction> {
        let now = self.hold_clock(now);
        self.monitor_mut(server)?.poll_line(now, line)
    }

    /// Whether [`Control::poll_line`] has something.
    #[must_use]
    pub fn owes_line(&self, server: ServerId, line: Line) -> bool {
        self.monitor(server).is_some_and(|monitor| monitor.owes_line(line))
    }

    /// Whether the monitor of this server is no more: its lines want nothing ever again.
    #[must_use]
    pub fn is_ended(&self, server: ServerId) -> bool {
        self.topology.server(server).is_none()
    }

    /// Where to look for servers whose lines owe something, or ended, since this was asked for the last time: their places are
    /// in this range.
    #[doc(hidden)]
    pub fn take_touched(&mut self) -> Range<usize> {
        core::mem::replace(&mut self.touched, 0..0)
    }

    /// The earliest instant at which something is due; `None` exactly when nothing is. Cost: O(1).
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
            assert_ne!(monitor.state(), MonitorState::Ended, "what follows a check begins in its own step");
            let is_member = self.topology.server(monitor.server()).is_some();
            assert_eq!(is_member, monitor.state() != MonitorState::Closed, "exactly members are checked");
        }
        let is_balanced = self.topology.description().topology_type() == TopologyType::LoadBalanced;
        for server in self.topology.servers() {
            let is_monitored = self.monitor(server.server()).is_some();
            assert!(is_monitored != is_balanced || self.membership != self.topology.membership(), "not monitored");
        }
        self.due.assert_invariants(|place| {
            self.monitors.slots().get(place as usize)?.as_ref().and_then(Monitor::poll_timeout)
        });
    }

    fn hold_clock(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    fn monitor_mut(&mut self, server: ServerId) -> Option<&mut Monitor> {
        let monitor = self.monitors.slots_mut().get_mut(server.index() as usize)?.as_mut();
        monitor.filter(|monitor| monitor.server() == server)
    }

    /// A monitor, and an observer that is told which server it is of.
    fn monitor_in<'s, O>(
        &'s mut self,
        server: ServerId,
        observer: &'s mut O,
    ) -> Option<(&'s mut Monitor, There<'s, M, O>)> {
        let Self { topology, monitors, .. } = self;
        let monitor = monitors.slots_mut().get_mut(server.index() as usize)?.as_mut();
        let monitor = monitor.filter(|monitor| monitor.server() == server)?;
        Some((monitor, There { topology, server, observer }))
    }

    /// After news for a monitor: applies the outcome of the check that it ended, if any, to the topology, begins what follows the check, and notes
    /// when the monitor is due.
    ///
    /// - `reply`: of a check that succeeded.
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
            // Even if it changed nothing: a waiting selector asks for the next check (MON-18).
            self.wake = true;
            self.route(now, observer);
            let known = self.is_known(server);
            if let Some((monitor, mut observer_there)) = self.monitor_in(server, observer) {
                let ended = monitor.state() != MonitorState::Ended
                    || monitor.handle_timeout(now, known, &mut observer_there).is_none();
                assert!(ended, "what follows a check is no outcome");
            }
        }
        self.wake |= fires(Point::WakeSelectors);
        self.rearm(server.index() as usize);
    }

    fn is_known(&self, server: ServerId) -> bool {
        self.topology.server(server).is_some_and(|description| description.server_type().is_known())
    }

    /// The monitor at this place has changed: notes when it wants to be called, and that its lines may owe something.
    fn rearm(&mut self, place: usize) {
        let Some(Some(monitor)) = self.monitors.slots().get(place) else { return };
        widen(&mut self.touched, place);
        note_due::<M>(&mut self.due, monitor.server().index(), monitor.poll_timeout());
    }

    /// Passes on what the topology owes to monitors: checks, and who came and went.
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

    /// Closes the monitors of servers that are gone, and starts those of new ones, which come in the order of their places.
    ///
    /// [`Full`]: memory is out. What is missing is made up for with the next news.
    fn sync_monitors(&mut self, now: Instant, observer: &mut impl ControlObserver) -> Result<(), Full> {
        for place in 0..self.monitors.slots().len() {
            let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(place) else { continue };
            let server = monitor.server();
            if self.topology.server(server).is_none() && monitor.state() != MonitorState::Closed {
                monitor.close(now, &mut There { topology: &self.topology, server, observer });
                let dialed = monitor.last_dial();
                self.remember(now, server, dialed);
                self.rearm(place);
            }
        }
        if self.topology.description().topology_type() == TopologyType::LoadBalanced {
            return Ok(());
        }
        let Self { topology, monitors, due, departed, forgotten, config, touched, .. } = self;
        for description in topology.servers() {
            let server = description.server();
            let place = server.index() as usize;
            while monitors.slots().len() <= place {
                monitors.try_push(None)?;
            }
            due.grow(place + 1)?;
            let Some(kept) = monitors.slots_mut().get_mut(place) else { continue };
            if kept.as_ref().is_none_or(|monitor| monitor.server() != server) {
                let monitor = kept.insert(Monitor::new(server, *config));
                let address = topology.address(server).map_or(0, hash);
                let same = departed.slots().iter().filter(|departed| departed.address == address);
                let dialed = same.map(|departed| departed.dialed).max().max(*forgotten);
                match dialed.filter(|dialed| is_recent(now, *dialed)) {
                    Some(dialed) => monitor.start_after(now, dialed),
                    None => monitor.start(now, &mut There { topology, server, observer }),
                }
                widen(touched, place);
                note_due::<M>(due, server.index(), monitor.poll_timeout());
            }
        }
        Ok(())
    }

    /// Remembers the last dial of a server that left, for as long as the pace depends on it.
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

/// FNV-1a.
fn hash(address: &str) -> u32 {
    address.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Tells an observer where a monitor's event happened.
struct There<'t, M: Memory, O> {
    topology: &'t Topology<M>,
    server: ServerId,
    observer: &'t mut O,
}

impl<M: Memory, O: Observer<MonitorEvent>> Observer<MonitorEvent> for There<'_, M, O> {
    #[inline]
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        let Self { topology, server, observer } = self;
        let address = topology.address(*server);
        let context = EventContext { topology: Some(topology.id()), address, ..EventContext::NONE };
        observer.on_event_in(now, event, &context);
    }
}

/// Makes a range of places include one more.
#[doc(hidden)]
pub fn widen(range: &mut Range<usize>, place: usize) {
    *range = if Range::is_empty(range) { place..place + 1 } else { range.start.min(place)..range.end.max(place + 1) };
}

/// Notes when the monitor at this place wants to be called.
fn note_due<M: Memory>(due: &mut Due<M>, place: u32, at: Option<Instant>) {
    if due.of(place) == at {
        return;
    }
    due.remove(place);
    if let Some(at) = at {
        let noted = due.insert(place, at);
        assert!(noted.is_ok(), "a monitor has a place among the deadlines before it starts");
    }
}

impl<M: Memory> fmt::Debug for Control<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("servers", &self.topology.server_count()).finish_non_exhaustive()
    }
}
