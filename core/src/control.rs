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

#[cfg(test)]
mod tests;

use crate::machine::{Machine, Observer, Stale};
use crate::monitor::{
    CheckOutcome, CheckReply, Line, LineId, Monitor, MonitorAction, MonitorConfig, MonitorEvent, MonitorState,
};
use crate::storage::{Full, Store};
use crate::topology::{
    AppError, CheckAction, HelloInfo, HelloLists, Memory, PoolCommand, RoundTrip, SdamObserver, Stores, Topology,
    TopologyAction, TopologyConfig, TopologyId, TopologyType, Verdict,
};
use crate::{Cause, Instant, ServerId};
use core::fmt;

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

/// A topology and the monitors of its servers.
pub struct Control<M: Memory> {
    topology: Topology<M>,
    monitors: <M as Stores>::PerServer<Option<Monitor>>,
    config: MonitorConfig,
    /// The topology's membership when the monitors were last brought in step.
    membership: (u32, u32),
}

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
        let topology = Topology::new(now, id, topology, observer)?;
        let mut control = Self { topology, monitors: Store::EMPTY, config: monitor, membership: (0, 0) };
        control.route(now, observer);
        Ok(control)
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
        let result = self.monitor_mut(server).ok_or(Stale)?.handle_dialed(now, line, observer);
        self.apply_failure(now, server, observer);
        result
    }

    /// News: a monitoring connection was answered. See [`Monitor::handle_reply`].
    ///
    /// - `reply`: what the monitor needs of it. `hello`: what the topology needs; `None` when the reply is not ok, and
    ///   a reply without it counts as that.
    ///
    /// Cost: that of [`Topology::handle_hello`], no allocation when nothing changes.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection is given up; nothing changed.
    ///
    /// Source: Server Monitoring, "Monitor thread" (MON-18, MON-52, MON-53).
    pub fn handle_reply<L: HelloLists>(
        &mut self,
        now: Instant,
        server: ServerId,
        line: LineId,
        reply: &CheckReply,
        hello: Option<&HelloInfo<'_, L>>,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let monitor = self.monitor_mut(server).ok_or(Stale)?;
        // A reply of which there is nothing to tell is none that is ok.
        let reply = CheckReply { ok: reply.ok && hello.is_some(), ..*reply };
        monitor.handle_reply(now, line, &reply, observer)?;
        let rtt = monitor.rtt();
        let round_trip = rtt.average().map(|average| RoundTrip { average, minimum: rtt.minimum() });
        if let (Some(CheckOutcome::Succeeded { .. }), Some(hello)) = (monitor.outcome(), hello) {
            self.topology.handle_hello(now, server, hello, round_trip, observer);
            self.settle(now, server, observer);
        }
        self.apply_failure(now, server, observer);
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
        self.monitor_mut(server).ok_or(Stale)?.handle_failed(now, line, cause, observer)?;
        self.apply_failure(now, server, observer);
        Ok(())
    }

    /// News: the hello of an application's connection, which tells of the server as a check does (MON-20).
    pub fn handle_app_hello<L: HelloLists>(
        &mut self,
        now: Instant,
        server: ServerId,
        hello: &HelloInfo<'_, L>,
        observer: &mut impl ControlObserver,
    ) {
        self.topology.handle_hello(now, server, hello, None, observer);
        self.sync_known(server);
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
        let verdict = self.topology.handle_app_error(now, server, error, observer);
        self.sync_known(server);
        self.route(now, observer);
        verdict
    }

    /// Asks for a check of every server as soon as it may be: somebody found none that suits (MON-15, SDAM-85).
    pub fn request_check(&mut self, now: Instant) {
        for monitor in self.monitors.slots_mut().iter_mut().flatten() {
            monitor.request_check(now);
        }
    }

    /// Ends everything: monitors at once, then the topology.
    ///
    /// Owes [`ControlAction::ServerRemoved`] for each server. Events: the heartbeats in flight fail, then those of [`Topology::close`].
    ///
    /// Source: SDAM, "Client closing" (SDAM-10, MON-49, LOG-08).
    pub fn close(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        for monitor in self.monitors.slots_mut().iter_mut().flatten() {
            monitor.close(now, observer);
        }
        self.topology.close(now, observer);
        self.route(now, observer);
    }

    /// Begins the checks that are due, and ends those that are too late.
    ///
    /// Cost: O(servers).
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        for index in 0..self.monitors.slots().len() {
            let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(index) else { continue };
            if monitor.poll_timeout().is_none_or(|at| at > now) {
                continue;
            }
            monitor.handle_timeout(now, observer);
            let server = monitor.server();
            self.apply_failure(now, server, observer);
        }
    }

    /// The next action owed to the host, which carries out all of them before anybody else sees the machine.
    pub fn poll_action(&mut self) -> Option<ControlAction> {
        loop {
            return Some(match self.topology.poll_action()? {
                TopologyAction::ServerAdded(id) => ControlAction::ServerAdded(id),
                TopologyAction::ServerRemoved(id) => ControlAction::ServerRemoved(id),
                TopologyAction::Pool(id, command) => ControlAction::Pool(id, command),
                TopologyAction::WakeSelectors => ControlAction::WakeSelectors,
                // Passed on to the monitors within the step.
                TopologyAction::CancelCheck(_) | TopologyAction::RequestCheck(_) => continue,
            });
        }
    }

    /// What a monitor wants of one of its connections, or `None` when it wants nothing now.
    pub fn poll_line(&mut self, now: Instant, server: ServerId, line: Line) -> Option<MonitorAction> {
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

    /// The earliest instant at which something is due; `None` exactly when nothing is. Cost: O(servers).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.monitors.slots().iter().flatten().filter_map(Machine::poll_timeout).min()
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
            assert!(monitor.outcome().is_none(), "an outcome is applied in its own step");
            let member = self.topology.server(monitor.server()).is_some();
            assert!(member || monitor.state() == MonitorState::Closed, "a server that is gone is not checked");
        }
    }

    fn monitor_mut(&mut self, server: ServerId) -> Option<&mut Monitor> {
        let monitor = self.monitors.slots_mut().get_mut(server.index() as usize)?.as_mut();
        monitor.filter(|monitor| monitor.server() == server)
    }

    /// Applies the outcome of a check that failed, if there is one.
    fn apply_failure(&mut self, now: Instant, server: ServerId, observer: &mut impl ControlObserver) {
        let Some(CheckOutcome::Failed { cause, .. }) = self.monitor(server).and_then(Monitor::outcome) else {
            return;
        };
        self.topology.handle_failed(now, server, cause, observer);
        self.settle(now, server, observer);
    }

    /// Lets a monitor go on after its outcome was applied.
    fn settle(&mut self, now: Instant, server: ServerId, observer: &mut impl ControlObserver) {
        self.route(now, observer);
        let known = self.is_known(server);
        if let Some(monitor) = self.monitor_mut(server) {
            monitor.settle(now, known, observer);
        }
    }

    fn is_known(&self, server: ServerId) -> bool {
        self.topology.server(server).is_some_and(|description| description.server_type().is_known())
    }

    /// Tells a monitor what something else than its checks made of its server.
    fn sync_known(&mut self, server: ServerId) {
        let known = self.is_known(server);
        if let Some(monitor) = self.monitor_mut(server) {
            monitor.set_server_known(known);
        }
    }

    /// Passes on what the topology owes to monitors: checks, and who came and went.
    fn route(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let membership = self.topology.membership();
        if self.membership != membership {
            self.membership = membership;
            self.sync_monitors(now, observer);
        }
        while let Some(action) = self.topology.poll_check_action() {
            match action {
                CheckAction::Request(server) => {
                    if let Some(monitor) = self.monitor_mut(server) {
                        monitor.request_check(now);
                    }
                }
                CheckAction::Cancel(server) => {
                    if let Some(monitor) = self.monitor_mut(server) {
                        monitor.cancel_check(now, observer);
                    }
                }
            }
        }
    }

    /// Closes the monitors of servers that are gone, and starts those of new ones.
    fn sync_monitors(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        for index in 0..self.monitors.slots().len() {
            let Some(Some(monitor)) = self.monitors.slots_mut().get_mut(index) else { continue };
            if self.topology.server(monitor.server()).is_none() {
                monitor.close(now, observer);
            }
        }
        if self.topology.description().topology_type() == TopologyType::LoadBalanced {
            return;
        }
        let mut last = 0;
        // In the order of their numbers, which is that of their coming.
        while let Some(server) = self
            .topology
            .servers()
            .map(|server| server.server())
            .filter(|id| id.number() > last)
            .min_by_key(|id| id.number())
        {
            last = server.number();
            if self.monitor(server).is_none() {
                self.start_monitor(now, server, observer);
            }
        }
    }

    fn start_monitor(&mut self, now: Instant, server: ServerId, observer: &mut impl ControlObserver) {
        let index = server.index() as usize;
        while self.monitors.slots().len() <= index {
            // As many places as the topology has; growing may fail when memory is out, and then the server is never known.
            if self.monitors.try_push(None).is_err() {
                return;
            }
        }
        let mut monitor = Monitor::new(server, self.config);
        monitor.start(now, observer);
        if let Some(place) = self.monitors.slots_mut().get_mut(index) {
            *place = Some(monitor);
        }
    }
}

impl<M: Memory> fmt::Debug for Control<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("servers", &self.topology.server_count()).finish_non_exhaustive()
    }
}
