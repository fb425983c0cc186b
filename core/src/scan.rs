//! Monitoring for a client with a single thread and no tasks: servers are checked inline, before an
//! operation that needs it.
//!
//! Read first: Server Monitoring, "Single-threaded monitoring"; Server Selection, "Single-threaded
//! server selection" and "Checking an Idle Socket After socketCheckIntervalMS"; SDAM, "Not writable
//! primary and node is recovering".
//!
//! A [`Scan`] owns a [`Topology`] and the state of one connection to each server. The connection
//! transmits both the hellos and the application's commands. There is no background work: an
//! operation begins a selection, and each step returns what the host must do next, until a
//! connection is selected:
//!
//! ```text
//! let mut selecting = scan.begin(now);
//! let socket = loop {
//!     match scan.select(now, &mut selecting, &criteria, &deprioritized, random(), observer)? {
//!         ScanStep::Selected(socket) => break socket,
//!         ScanStep::Wait(until) => sleep(until),
//!         ScanStep::Work => while let Some(action) = scan.poll_action(now) {
//!             // Dial, send a hello, hang up; then handle_dialed, handle_reply or handle_failed.
//!         },
//!     }
//! };
//! // .. one command and its reply; then, if the reply or the socket had an error, scan.handle_app_error(..) ..
//! scan.check_in(now, socket, Health::Healthy);
//! ```
//!
//! Servers are checked one after the other. A scan is due before an operation in three cases: the
//! last one ended at least heartbeatFrequencyMS (60 s) ago, the topology is stale, or no server
//! suits. It never begins within 500 ms of the last one. The first operation makes the first scan.
//! A selection may take as long as a scan, with or without `serverSelectionTryOnce`: in the worst
//! case connectTimeoutMS for every server that does not answer and is not cooling down.
//!
//! A load-balanced topology is never scanned. Its connection is dialed when an operation needs it.
//!
//! # Relation to the monitor
//!
//! A scan does not use [`Monitor`](crate::monitor::Monitor)s, which check in the background:
//!
//! - A monitor has its own schedule: at least 500 ms between two of its checks, and at most one
//!   immediate retry in 500 ms. A scan checks a server when an operation has selected it, and every
//!   check of a known server has its own retry.
//! - A monitor owns its connection, and a reply between two checks breaks it. A connection of a
//!   scan is checked out by operations between its checks.
//! - A monitor's connections are numbered for each server, and belong to that server until its
//!   monitor ends. Those of a scan are numbered over all servers, and a slot owes the `Hangup` of
//!   its previous server's connection after it was assigned to another server.
//! - An overloaded server's reply ends a monitor's connection, and not a scan's.
//!
//! They share [`Rtt`](crate::monitor::Rtt), the events, and the parsing and application of replies.
//!
//! # Settled where the specification is silent or contradicts itself
//!
//! - A server cools down after a *check* that failed other than by an error reply, and not after
//!   every change to Unknown: otherwise a server that has just reported that it is no longer
//!   primary would be skipped by the scan that its report makes due. A server that is cooling down
//!   is skipped even if a member reports it as the primary.
//! - A check that fails by a network error on a known server is retried at once, on a new
//!   connection. The server cools down only if the retry fails too. So an idle connection
//!   that a firewall has dropped causes one more dial and no outage.
//! - An error reply to a hello with the label SystemOverloadedError changes neither the connection
//!   nor the server. If it answered the first hello of a connection, the hello is repeated
//!   before the connection is used.
//! - A primary that another one deposes during a scan is checked a second time in that scan, but
//!   not a third time.
//! - A scan makes at most [`CHECKS_PER_SERVER_MAX`] checks for each of n + 2 servers, where n is
//!   the largest number of members during the scan: members that contradict each other, or report
//!   invented names, cannot prolong it further.
//! - A connection that is still checked out when another selection takes a step is closed, because
//!   it may hold a partial reply.

mod action;
mod check;
mod link;
mod options;
mod select;
#[cfg(test)]
mod tests;

pub use action::{ScanAction, ScanStep, SocketId};
pub use options::{COOLDOWN, SOCKET_CHECK_INTERVAL, ScanConfig, ScanOptions};
pub use select::Selecting;

use crate::control::ControlObserver;
use crate::hooks::origin;
use crate::machine::Stale;
use crate::pool::Health;
use crate::storage::{Full, Store};
use crate::topology::{
    AppError, AppErrorKind, HandshakePhase, Memory, Topology, TopologyAction, TopologyConfig, TopologyId, TopologyType,
    Verdict,
};
use crate::{Cause, Instant, ServerId};
use check::Check;
use core::fmt;
use link::{Link, Step};
use poolhouse_wire::Labels;
use poolhouse_wire::hello::HelloReply;

/// The maximum number of checks in a scan, for each of n + 2 servers, where n is the largest number
/// of members during the scan. One check each is usual. A server is checked a second time when
/// primaries depose each other, or when it is removed and added again within the scan.
pub const CHECKS_PER_SERVER_MAX: u32 = 4;

/// The state of a scan in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    started: Instant,
    checks: u32,
    /// The largest number of members during the scan.
    servers_max: u32,
    /// Random bits that break ties.
    entropy: u32,
}

/// A topology whose servers are checked inline. See the [module](self) for its use.
pub struct Scan<M: Memory> {
    topology: Topology<M>,
    links: M::PerServer<Link>,
    config: ScanConfig,
    /// The latest instant seen.
    clock: Instant,
    running: Option<Running>,
    /// The number of scans begun.
    scan_last: u32,
    /// The time at which the last scan ended.
    scan_ended: Option<Instant>,
    /// The number of scans ended.
    ends: u32,
    /// Whether a scan is due, regardless of the age of the last one.
    stale: bool,
    check: Option<Check>,
    /// The number of the newest connection.
    socket_last: u64,
    /// The number of connections that the host must still close.
    hangups: u32,
}

impl<M: Memory> Scan<M> {
    /// Creates a topology with these options. No connection is dialed before the first selection.
    ///
    /// Cost: O(seeds). Events: those of [`Topology::new`].
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room for the seeds.
    ///
    /// Source: SDAM, "Initial servers".
    pub fn new(
        now: Instant,
        id: TopologyId,
        topology: TopologyConfig<'_>,
        scan: ScanConfig,
        observer: &mut impl ControlObserver,
    ) -> Result<Self, Full> {
        let topology = Topology::new(now, id, topology, observer)?;
        let mut scan = Self {
            topology,
            links: Store::empty(),
            config: scan,
            clock: now,
            running: None,
            scan_last: origin(),
            scan_ended: None,
            ends: origin(),
            stale: true,
            check: None,
            socket_last: 0,
            hangups: 0,
        };
        scan.route();
        Ok(scan)
    }

    /// Checks a connection in after an operation.
    ///
    /// - `health`: `Broken` after any network or protocol error, or with a reply outstanding.
    ///
    /// Cost: O(1). Owes `Hangup` if it is broken.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed since; nothing changed.
    pub fn check_in(&mut self, now: Instant, socket: SocketId, health: Health) -> Result<(), Stale> {
        let now = self.advance(now);
        let link = self.link_mut(socket.server).ok_or(Stale)?;
        let open = link.socket_mut(socket).filter(|socket| socket.step == Step::InUse).ok_or(Stale)?;
        match health {
            Health::Healthy => open.step = Step::Idle { since: now },
            Health::Broken(_) => self.hang_up(socket.server),
        }
        Ok(())
    }

    /// Ends the check in flight, and closes the connections and the topology. Closing again is a
    /// no-op.
    ///
    /// Cost: O(servers). Owes `Hangup` for every connection. Events: `HeartbeatFailed` if a check
    /// was in flight, then those of [`Topology::close`].
    ///
    /// Source: SDAM, "Client closing".
    pub fn close(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.advance(now);
        if let Some(check) = self.check.take() {
            self.emit_failed(now, &check, Cause::Closed, observer);
        }
        self.running = None;
        self.topology.close(now, observer);
        self.route();
    }

    /// Handles an established connection. Its hello follows, within the deadline of the dial.
    ///
    /// Cost: O(1); at or after the deadline that of [`Scan::handle_failed`].
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed; drop the socket.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        socket: SocketId,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let check = self.check_of(socket)?;
        let open = self.link_mut(socket.server).and_then(|link| link.socket_mut(socket)).ok_or(Stale)?;
        if open.step != (Step::Dial { owed: false }) {
            return Err(Stale);
        }
        open.step = Step::Hello { hello: open.hello(), owed: true };
        if check.is_late(now) {
            self.fail(now, Cause::NetworkTimeout, observer);
        }
        Ok(())
    }

    /// Handles a reply to a hello.
    ///
    /// A reply at or after the deadline is a timeout; an unsolicited one is a protocol error.
    ///
    /// Cost: that of [`Topology::handle_hello`] and O(servers). Owes the actions of the next check.
    /// Events: `HeartbeatSucceeded` or `HeartbeatFailed`, those of the topology, `HeartbeatStarted`
    /// of the next check.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed; nothing changed.
    ///
    /// Source: Server Monitoring, "Scanning" and "Handling of backpressure labels".
    pub fn handle_reply(
        &mut self,
        now: Instant,
        socket: SocketId,
        reply: &HelloReply<'_>,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let check = self.check_of(socket)?;
        let open = self.link_mut(socket.server).and_then(|link| link.socket_mut(socket)).ok_or(Stale)?;
        let asked = matches!(open.step, Step::Hello { owed: false, .. });
        match reply {
            _ if check.is_late(now) => self.fail(now, Cause::NetworkTimeout, observer),
            _ if !asked => self.fail(now, Cause::Protocol, observer),
            HelloReply { ok: true, .. } => self.succeed(now, &check, reply, observer),
            _ if reply.labels.contains(Labels::SYSTEM_OVERLOADED_ERROR) => {
                self.pass_over(now, &check, reply.code, observer);
            }
            _ => self.fail(now, Cause::Command { code: reply.code }, observer),
        }
        Ok(())
    }

    /// Handles a failed dial, write or read of a check. At or after the deadline the cause is the
    /// timeout.
    ///
    /// Marks the server Unknown and closes the connection; after a network error a server that was
    /// known is checked again at once.
    ///
    /// Cost: O(servers). Owes `Hangup` unless the dial failed, and the actions of the next check.
    /// Events: `HeartbeatFailed`, those of [`Topology::handle_failed`], `HeartbeatStarted` of the
    /// next check.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed, or is not being checked; nothing changed.
    ///
    /// Source: Server Monitoring, "Network or command error during server check", "cooldownMS".
    pub fn handle_failed(
        &mut self,
        now: Instant,
        socket: SocketId,
        cause: Cause,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let now = self.advance(now);
        let check = self.check_of(socket)?;
        let link = self.link_mut(socket.server).ok_or(Stale)?;
        let open = link.socket_mut(socket).ok_or(Stale)?;
        if open.step == (Step::Dial { owed: false }) {
            // The host has no socket to close.
            link.fail_dial();
        }
        self.fail(now, if check.is_late(now) { Cause::NetworkTimeout } else { cause }, observer);
        Ok(())
    }

    /// Handles a failure of an operation, or of an authentication, on a connection that is checked
    /// out.
    ///
    /// The server may become Unknown, and the topology stale: then the next operation begins with a
    /// scan. The connection is closed after a network error or any other error that is not in a
    /// reply, after every error during the handshake, and when the server shuts down; otherwise it
    /// stays checked out.
    ///
    /// - `phase`: `Before` until the connection is ready for use. `overloaded`: whether the error
    ///   has the label `SystemOverloadedError`.
    ///
    /// Cost: that of [`Topology::handle_app_error`]. Owes `Hangup` if the connection is closed.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed; nothing changed.
    ///
    /// Source: SDAM, "Error handling".
    pub fn handle_app_error(
        &mut self,
        now: Instant,
        socket: SocketId,
        phase: HandshakePhase,
        kind: AppErrorKind<'_>,
        overloaded: bool,
        observer: &mut impl ControlObserver,
    ) -> Result<Verdict, Stale> {
        let now = self.advance(now);
        let link = self.link_mut(socket.server).ok_or(Stale)?;
        link.socket_mut(socket).filter(|socket| socket.step == Step::InUse).ok_or(Stale)?;
        let error = AppError { generation: 0, pool_generation: 0, phase, kind, overloaded, service_id: None };
        let verdict = self.topology.handle_app_error(now, socket.server, &error, observer);
        self.stale |= verdict.scan_stale;
        let spoiled = !matches!(kind, AppErrorKind::Command(_)) || phase == HandshakePhase::Before;
        if spoiled || verdict.clear.is_some() {
            self.hang_up(socket.server);
        }
        if verdict.marked_unknown {
            if let Some(link) = self.link_mut(socket.server) {
                link.rtt.reset();
            }
        }
        self.route();
        Ok(verdict)
    }

    /// Fails the check in flight if its deadline has passed. A call before [`Scan::poll_timeout`]
    /// changes nothing.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        let now = self.advance(now);
        if self.check.as_ref().is_some_and(|check| check.is_late(now)) {
            self.fail(now, Cause::NetworkTimeout, observer);
        }
    }

    /// Returns the next action owed to the host, or `None`: connections to close first, then the
    /// action of the check in flight.
    ///
    /// Cost: O(1); O(servers) while connections must be closed.
    pub fn poll_action(&mut self, now: Instant) -> Option<ScanAction> {
        let now = self.advance(now);
        if self.hangups > 0 {
            if let Some(socket) = self.links.slots_mut().iter_mut().find_map(|link| link.hangup.take()) {
                self.hangups -= 1;
                return Some(ScanAction::Hangup(socket));
            }
        }
        let check = self.check.as_mut()?;
        let link = self.links.slots_mut().get_mut(check.server.index() as usize)?;
        let action = link.take_action(check.deadline)?;
        if let ScanAction::SendHello { .. } = action {
            check.since = now;
        }
        Some(action)
    }

    /// The deadline of the check in flight; `None` without a check or without a limit.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match &self.check {
            Some(check) => check.deadline,
            None => None,
        }
    }

    /// The topology.
    #[must_use]
    pub const fn topology(&self) -> &Topology<M> {
        &self.topology
    }

    /// The options.
    #[must_use]
    pub const fn config(&self) -> &ScanConfig {
        &self.config
    }

    /// Whether a server is being checked: the check must end before a server is selected.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.check.is_some()
    }

    /// Whether the next operation begins with a scan, regardless of the age of the last one.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        self.stale
    }

    /// The time at which the last scan ended.
    #[must_use]
    pub const fn last_scan(&self) -> Option<Instant> {
        self.scan_ended
    }

    /// Checks every internal invariant, O(n). For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.topology.assert_invariants();
        let mut hangups = 0;
        for link in self.links.slots() {
            hangups += u32::from(link.hangup.is_some());
            let member = link.server.is_none_or(|server| self.topology.server(server).is_some());
            assert!(member, "a slot is assigned to a server that is no member");
            let Some(socket) = &link.socket else { continue };
            assert_eq!(Some(socket.id.server), link.server, "a connection belongs to another server than its slot");
            assert!(socket.id.number() <= self.socket_last, "a connection number exceeds the counter");
            let checked = matches!(socket.step, Step::Dial { .. } | Step::Hello { .. });
            let is_it = self.check.as_ref().is_some_and(|check| Some(check.server) == link.server);
            assert_eq!(checked, is_it, "a connection is busy exactly with the check in flight");
            let is_dial_owed = socket.step == Step::Dial { owed: true };
            assert!(link.hangup.is_none() || is_dial_owed, "a dial was polled before the hang-up");
        }
        assert_eq!(hangups, self.hangups, "connections to be closed are counted");
        for server in self.topology.servers().map(|server| server.server()) {
            assert!(self.link(server).is_some(), "a member has no slot");
        }
        if let Some(check) = &self.check {
            assert!(self.link(check.server).is_some_and(|link| link.socket.is_some()), "a check has a connection");
        }
        assert!(self.running.is_none() || self.check.is_some(), "a scan in progress has no check in flight");
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    fn link(&self, server: ServerId) -> Option<&Link> {
        let link = self.links.slots().get(server.index() as usize)?;
        (link.server == Some(server)).then_some(link)
    }

    fn link_mut(&mut self, server: ServerId) -> Option<&mut Link> {
        let link = self.links.slots_mut().get_mut(server.index() as usize)?;
        (link.server == Some(server)).then_some(link)
    }

    fn is_load_balanced(&self) -> bool {
        self.topology.description().topology_type() == TopologyType::LoadBalanced
    }

    /// Closes a server's connection.
    fn hang_up(&mut self, server: ServerId) {
        let Some(link) = self.link_mut(server) else { return };
        let before = u32::from(link.hangup.is_some());
        link.hang_up();
        self.hangups += u32::from(link.hangup.is_some()) - before;
    }

    /// Takes all actions of the topology and updates the slots. With one connection to each server
    /// and no monitors, only added and removed servers and check requests matter.
    fn route(&mut self) {
        while let Some(action) = self.topology.poll_action() {
            match action {
                TopologyAction::ServerAdded(server) => self.assign(server, true),
                TopologyAction::ServerRemoved(server) => self.assign(server, false),
                TopologyAction::RequestCheck(server) => self.check_again(server),
                TopologyAction::Pool(..) | TopologyAction::CancelCheck(_) | TopologyAction::WakeSelectors => {}
            }
        }
    }

    fn assign(&mut self, server: ServerId, is_member: bool) {
        let index = server.index() as usize;
        while self.links.slots().len() <= index {
            // One slot for each slot of the topology. If growing fails for lack of memory, the
            // server is never checked.
            if self.links.try_push(Link::new()).is_err() {
                return;
            }
        }
        let link = &mut self.links.slots_mut()[index];
        let before = u32::from(link.hangup.is_some());
        link.assign(is_member.then_some(server));
        self.hangups += u32::from(link.hangup.is_some()) - before;
    }
}

impl<M: Memory> fmt::Debug for Scan<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("topology", &self.topology.description())
            .field("busy", &self.is_busy())
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}
