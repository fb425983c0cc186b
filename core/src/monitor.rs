//! One server's check loop: polling, streaming, immediate checks, cancellation, and round-trip
//! times.
//!
//! Read first: Server Monitoring, "Monitoring", "Polling Protocol", "Streaming Protocol",
//! "Measuring RTT", "Requesting an immediate check", "Network or command error during server check"
//! and "hello or legacy hello Cancellation"; SDAM Logging and Monitoring, the heartbeat events.
//!
//! # Overview
//!
//! A [`Monitor`] owns up to two connections, identified by [`MonitorConnId`]s. The check connection
//! ([`MonitorConnKind::Check`]) sends hello commands to the server; each reply, or its absence, is
//! a *check*. While the server streams, the RTT connection ([`MonitorConnKind::Rtt`]) measures the
//! round-trip time and is used for nothing else.
//!
//! ```text
//!              start                 reply, failure, deadline
//!   New ─────────────────▶ Checking ──────────────────────────▶ Ended
//!                            ▲   ▲                                │ handle_timeout, at once
//!             due, requested │   └──── streaming, or a retry ─────┤
//!                            │                                    ▼
//!                            └──────────────────────────────── Waiting
//!
//!   close: from anywhere to Closed.   cancel_check: from Checking to Waiting, without a connection.
//! ```
//!
//! # Composition
//!
//! A monitor has no access to server descriptions or pools. An input that ends a check returns a
//! [`CheckOutcome`], which the host applies: the description first, then the pool. The step that
//! follows the check (the retry, the next streamed reply or the wait) is due at once and begins in
//! the next [`Monitor::handle_timeout`], so events are emitted in the order in which changes are
//! applied:
//!
//! ```text
//! if let Some(outcome) = monitor.handle_reply(now, conn, &reply, matched, known, observer)? {    // HeartbeatSucceeded
//!     apply(outcome, reply);                           // ServerDescriptionChanged, then the pool's events
//!     monitor.handle_timeout(now, known, observer);    // HeartbeatStarted of the next check, if it is now
//! }
//! while let Some(action) = monitor.poll_action(now) { .. }
//! ```
//!
//! `known`: whether the server's type was known before the input. A host without a topology passes
//! whether the last check succeeded and nothing has marked the server Unknown since. Only the
//! immediate retry after a network error depends on it.
//!
//! # Intervals
//!
//! Between the end of a check and the start of the next one, at least `heartbeat_frequency` passes,
//! or [`MIN_HEARTBEAT_FREQUENCY`] when a check is requested. There are two exceptions: the next
//! reply of a streaming server, and the one retry after a network error on a server that was known.
//! That retry is allowed once per [`MIN_HEARTBEAT_FREQUENCY`], so a server that repeatedly answers
//! the handshake and then closes the connection is checked at that interval, not in a busy loop. A
//! [`Control`](crate::control::Control) applies the same interval to an address that leaves the
//! topology and returns.
//!
//! When the clock goes backwards, the monitor keeps the latest instant seen. A deadline later than
//! [`Instant::MAX`] never expires.

mod action;
mod event;
mod link;
mod options;
mod rtt;
mod steps;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub use crate::machine::Stale;
pub use action::{CheckOutcome, MonitorAction, MonitorConnId, MonitorConnKind};
pub use event::{HeartbeatId, MonitorEvent};
pub(crate) use options::check_connect_timeout;
pub use options::{MIN_HEARTBEAT_FREQUENCY, MonitorConfig, MonitorOptions, ServerMonitoringMode};
pub use poolhouse_wire::hello::HelloKind;
pub use rtt::Rtt;

use crate::Cause;
use crate::machine::Observer;
use crate::monitor::link::Link;
use crate::storage::table::Serial;
use crate::time::Instant;
use crate::{ServerId, TopologyVersion};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// The step that follows a finished check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// Wait for heartbeatFrequencyMS.
    Wait,
    /// Wait for minHeartbeatFrequencyMS only: a retry was due, but the previous retry is too
    /// recent; or the host lost the check.
    WaitBriefly,
    /// Check at once on a new connection.
    Retry,
    /// Read the next reply of the stream.
    ReadOn,
    /// Send an awaitable hello.
    Await(TopologyVersion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not started.
    New,
    /// Between two checks. `due` is `None` if no check will become due.
    Waiting { ended: Instant, due: Option<Instant> },
    /// A check is in flight on the check connection.
    Checking,
    /// A check has ended; `next` is due.
    Ended { at: Instant, next: Next },
    /// Final.
    Closed,
}

/// A monitor's state, for snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MonitorState {
    /// Not started yet.
    New,
    /// Between two checks.
    Waiting,
    /// A check is in flight.
    Checking,
    /// A check has ended, and [`Monitor::handle_timeout`] is due.
    Ended,
    /// Closed; final.
    Closed,
}

/// A check in flight, and what it waits for.
#[cfg(feature = "alloc")]
#[doc(hidden)]
#[derive(Debug)]
pub struct CheckInFlight {
    /// Whether it waits for the connection; otherwise it waits for a reply.
    pub is_dialing: bool,
    pub since: Instant,
}

/// One server's check loop. See the [module](self) for its states and its composition.
///
/// Equal monitors have processed the same inputs and answer every call in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Monitor {
    server: ServerId,
    config: MonitorConfig,
    phase: Phase,
    /// The latest instant seen.
    clock: Instant,
    /// The number of the newest connection.
    serial_last: Serial,
    /// The time of the last immediate retry.
    retried: Option<Instant>,
    /// The time of the last dial of the check connection.
    check_dialed: Option<Instant>,
    check: Link,
    ping: Link,
    /// Whether the check connection streams and the RTT connection measures.
    streaming: bool,
    /// The time of the next RTT hello. `None` unless streaming, and while a measurement is in
    /// flight.
    ping_due: Option<Instant>,
    /// The time of the last dial of the RTT connection.
    ping_dialed: Option<Instant>,
    rtt: Rtt,
}

impl Monitor {
    /// Creates a monitor of `server` that has not started.
    #[must_use]
    pub const fn new(server: ServerId, config: MonitorConfig) -> Self {
        Self {
            server,
            config,
            phase: Phase::New,
            clock: Instant::ORIGIN,
            serial_last: Serial(0),
            retried: None,
            check_dialed: None,
            check: Link::new(),
            ping: Link::new(),
            streaming: false,
            ping_due: None,
            ping_dialed: None,
            rtt: Rtt::new(),
        }
    }

    /// Begins to check the server.
    ///
    /// `New -> Checking`; a no-op in any other state.
    ///
    /// - `now`: must be from the same clock in all calls.
    ///
    /// Cost: O(1), no allocation. Owes `Dial`.
    /// Events: `HeartbeatStarted`.
    ///
    /// Source: Server Monitoring, "Monitoring".
    pub fn start(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        let now = self.advance_clock(now);
        if matches!(self.phase, Phase::New) {
            self.begin_check(now, observer);
        }
    }

    /// Starts like [`Monitor::start`], for an address that a previous monitor, now ended, dialed at
    /// `dialed`: the first check begins [`MIN_HEARTBEAT_FREQUENCY`] after that.
    ///
    /// `New -> Waiting`; a no-op in any other state.
    ///
    /// - `now`: must be from the same clock in all calls. `dialed`: not after `now`.
    ///
    /// Cost: O(1), no allocation. Events: none.
    pub fn start_after(&mut self, now: Instant, dialed: Instant) {
        self.advance_clock(now);
        if matches!(self.phase, Phase::New) {
            self.phase = Phase::Waiting { ended: dialed, due: later(dialed, MIN_HEARTBEAT_FREQUENCY) };
        }
    }

    /// The time of the last dial of either connection.
    pub(crate) fn last_dial(&self) -> Option<Instant> {
        self.check_dialed.max(self.ping_dialed)
    }

    /// Requests a check as soon as the minimum interval allows.
    ///
    /// In `Waiting` the next check becomes due [`MIN_HEARTBEAT_FREQUENCY`] after the end of the
    /// last one, or now if that has passed; [`Monitor::handle_timeout`] begins it. In any other
    /// state the request is dropped, not stored, so many requests cause one check.
    ///
    /// - `now`: must be from the same clock in all calls.
    ///
    /// Cost: O(1), no allocation.
    /// Events: none.
    ///
    /// Source: Server Monitoring, "Requesting an immediate check".
    pub fn request_check(&mut self, now: Instant) {
        let now = self.advance_clock(now);
        if let Phase::Waiting { ended, due } = &mut self.phase {
            if let Some(soonest) = later(*ended, MIN_HEARTBEAT_FREQUENCY) {
                let soonest = soonest.max(now);
                *due = Some(due.map_or(soonest, |due| due.min(soonest)));
            }
        }
    }

    /// Cancels the check in flight and closes the connection. Must be called when the server was
    /// marked Unknown because an application's connection to it failed with a network error other
    /// than a timeout, or could not be established.
    ///
    /// `Checking -> Waiting`, for heartbeatFrequencyMS as after a failure, without an immediate
    /// retry. `Waiting` stays, but its connection is closed; `Ended` stays, and its connection is
    /// not used further; otherwise a no-op. The next check uses a new connection. RTT samples are
    /// discarded.
    ///
    /// - `now`: must be from the same clock in all calls.
    ///
    /// Cost: O(1), no allocation. Owes at most two `Hangup`s. Returns no outcome: the caller has
    /// already marked the server Unknown.
    /// Events: `HeartbeatFailed` with [`Cause::Cancelled`] if a check was in flight.
    ///
    /// Source: Server Monitoring, "hello or legacy hello Cancellation".
    pub fn cancel_check(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        let now = self.advance_clock(now);
        match &mut self.phase {
            Phase::New | Phase::Closed => return,
            Phase::Waiting { .. } => {}
            Phase::Ended { next, .. } => *next = Next::Wait,
            Phase::Checking => {
                self.emit_failed(now, Cause::Cancelled, observer);
                self.phase = Phase::Waiting { ended: now, due: later(now, self.config.heartbeat_frequency()) };
            }
        }
        self.check.hang_up();
        self.stop_streaming();
        self.rtt.reset();
    }

    /// The check in flight: whether its connection is still being dialed, and when its current step
    /// (the dial or the wait for the reply) began.
    #[doc(hidden)]
    #[cfg(feature = "alloc")]
    pub fn check_in_flight(&self) -> Option<CheckInFlight> {
        let exchange = self.check.exchange()?;
        Some(CheckInFlight { is_dialing: matches!(exchange.step, link::Step::Dial), since: exchange.since.0 })
    }

    /// Ends the monitor at once, without waiting for pending operations.
    ///
    /// `any -> Closed`, which is final.
    ///
    /// - `now`: must be from the same clock in all calls.
    ///
    /// Cost: O(1), no allocation. Owes at most two `Hangup`s, and no action after them.
    /// Events: `HeartbeatFailed` with [`Cause::Closed`] if a check was in flight.
    ///
    /// Source: Server Monitoring, "hello or legacy hello Cancellation".
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        let now = self.advance_clock(now);
        if matches!(self.phase, Phase::Checking) {
            self.emit_failed(now, Cause::Closed, observer);
        }
        self.check.hang_up();
        self.stop_streaming();
        self.phase = Phase::Closed;
    }

    /// Handles a successful dial.
    ///
    /// The handshake's hello follows, within the deadline of the dial. A call at or after that
    /// deadline counts as a timeout.
    ///
    /// - `now`: must be from the same clock in all calls. `conn`: from the `Dial`. `known`: whether
    ///   the server's type is known.
    ///
    /// Cost: O(1), no allocation. Owes `SendHello`, or `Hangup`.
    /// Events: none, or `HeartbeatFailed` after the deadline. Returns the outcome in that case.
    ///
    /// # Errors
    ///
    /// [`Stale`]: this dial was abandoned, or its result was already handled; nothing changed, drop
    /// the socket.
    ///
    /// Source: Server Monitoring, "Socket timeout".
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<Option<CheckOutcome>, Stale> {
        let now = self.advance_clock(now);
        let link = self.link_mut(conn);
        link.check(conn)?;
        if !link.is_dialing() {
            return Err(Stale);
        }
        if link.exchange().is_some_and(|exchange| exchange.is_late(now)) {
            return Ok(self.fail(now, conn.kind, Cause::NetworkTimeout, known, observer));
        }
        link.dialed(now);
        Ok(None)
    }

    /// Handles a reply to a hello.
    ///
    /// On the check connection it ends the check: `Checking -> Ended`. On the RTT connection only
    /// its time is used; a reply that is not ok closes that connection. Two kinds of reply are
    /// protocol errors and close the connection: an unsolicited one, and one that announces another
    /// reply although its hello did not allow that. Between two checks this does not count as a
    /// failed check. A reply at or after the deadline counts as a timeout.
    ///
    /// - `now`: must be from the same clock in all calls. `conn`: from the `SendHello` or
    ///   `ReadNext`.
    /// - `reply`: every reply, in the order of arrival. `matched`: whether another one
    ///   follows.
    /// - `known`: whether the server's type is known, before this reply.
    ///
    /// Cost: O(1), no allocation. Owes at most two `Hangup`s.
    /// Events: `HeartbeatSucceeded` or `HeartbeatFailed` if a check was in flight. Returns the
    /// outcome in that case.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed or replaced; nothing changed.
    ///
    /// Source: Server Monitoring, "Streaming Protocol" and "Measuring RTT".
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<Option<CheckOutcome>, Stale> {
        let now = self.advance_clock(now);
        let link = self.link_mut(conn);
        link.check(conn)?;
        let failure = link.exchange().map_or(Some(Cause::Protocol), |exchange| {
            if exchange.is_late(now) {
                Some(Cause::NetworkTimeout)
            } else if !exchange.expects_reply() {
                Some(Cause::Protocol)
            } else if !reply.ok {
                Some(Cause::Command { code: reply.code })
            } else if matched == Matched::MoreComes && !exchange.step.is_awaited() {
                Some(Cause::Protocol)
            } else {
                None
            }
        });
        Ok(match (failure, conn.kind) {
            (Some(cause), _) => self.fail(now, conn.kind, cause, known, observer),
            (None, MonitorConnKind::Check) => Some(self.succeed_check(now, reply, matched, observer)),
            (None, MonitorConnKind::Rtt) => {
                self.succeed_ping(now, reply);
                None
            }
        })
    }

    /// Handles a failed dial, write or read, or a connection closed by the peer.
    ///
    /// On the check connection it ends the check: `Checking -> Ended`; between two checks the
    /// connection is discarded and nothing else changes. On the RTT connection the connection is
    /// discarded, and a new one is dialed for the next measurement. At or after the deadline the
    /// cause is the timeout.
    ///
    /// - `now`: must be from the same clock in all calls. `conn`: of any action. `cause`: the
    ///   failure. [`Cause::Cancelled`] if the host lost the check, for example because its task
    ///   panicked: the next check begins [`MIN_HEARTBEAT_FREQUENCY`] later, whether the server was
    ///   known or not.
    /// - `known`: whether the server's type is known, before this failure.
    ///
    /// Cost: O(1), no allocation. Owes `Hangup` unless the dial failed.
    /// Events: `HeartbeatFailed` if a check was in flight. Returns the outcome in that case.
    ///
    /// # Errors
    ///
    /// [`Stale`]: the connection was closed or replaced; nothing changed.
    ///
    /// Source: Server Monitoring, "Network or command error during server check".
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        cause: Cause,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<Option<CheckOutcome>, Stale> {
        let now = self.advance_clock(now);
        let link = self.link_mut(conn);
        link.check(conn)?;
        let late = link.exchange().is_some_and(|exchange| exchange.is_late(now));
        let dialing = link.is_dialing();
        let outcome = self.fail(now, conn.kind, if late { Cause::NetworkTimeout } else { cause }, known, observer);
        if dialing {
            self.link_mut(conn).waive_hangup(conn);
        }
        Ok(outcome)
    }

    /// Begins the steps that are due and fails those whose deadline has passed.
    ///
    /// After a check: begins the next streamed reply, the retry or the wait; otherwise begins the
    /// check that is due. A dial together with its hello fails after connectTimeoutMS, and an
    /// awaited reply after connectTimeoutMS + heartbeatFrequencyMS. Then an RTT measurement begins
    /// if it is due.
    ///
    /// `Ended -> Checking` when the server streams or a retry is due, else `Ended -> Waiting`;
    /// `Waiting -> Checking`, `Checking -> Ended`. A call before [`Monitor::poll_timeout`] changes
    /// nothing.
    ///
    /// - `now`: must be from the same clock in all calls. `known`: whether the server's type is
    ///   known.
    ///
    /// Cost: O(1), no allocation. Owes at most one action on each connection, and two `Hangup`s.
    /// Events: `HeartbeatStarted` if a check begins, `HeartbeatFailed` if a check's deadline has
    /// passed. Returns the outcome in that case.
    ///
    /// Source: Server Monitoring, "Monitor thread", "Socket timeout" and "Measuring RTT".
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Option<CheckOutcome> {
        let now = self.advance_clock(now);
        let mut outcome = None;
        match self.phase {
            Phase::Ended { at, next } => {
                self.begin_next(now, at, next, observer);
                return None;
            }
            Phase::Checking => {
                if self.check.exchange().is_some_and(|exchange| exchange.is_late(now)) {
                    outcome = self.fail(now, MonitorConnKind::Check, Cause::NetworkTimeout, known, observer);
                }
            }
            Phase::Waiting { due, .. } => {
                if due.is_some_and(|due| due <= now) {
                    self.begin_check(now, observer);
                }
            }
            Phase::New | Phase::Closed => {}
        }
        if self.ping.exchange().is_some_and(|exchange| exchange.is_late(now)) {
            self.fail_ping(now);
        }
        self.begin_ping_if_due(now);
        outcome
    }

    /// Returns the next action that the host must carry out, or `None`; hang-ups are first.
    ///
    /// Cost: O(1).
    pub fn poll_action(&mut self, now: Instant) -> Option<MonitorAction> {
        let now = self.advance_clock(now);
        self.check
            .take_hangup()
            .or_else(|| self.ping.take_hangup())
            .or_else(|| self.check.take_action(now))
            .or_else(|| self.ping.take_action(now))
    }

    /// The earliest instant at which a step is due; `None` exactly when none is. In `Ended` this
    /// instant has already passed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let check = match self.phase {
            Phase::Waiting { due, .. } => due,
            Phase::Checking => self.check.deadline(),
            Phase::Ended { at, .. } => Some(at),
            Phase::New | Phase::Closed => None,
        };
        [check, self.ping.deadline(), self.ping_due].into_iter().flatten().min()
    }

    /// Returns the next action of one connection, like [`Monitor::poll_action`], for hosts that
    /// drive each connection in a separate task.
    pub fn poll_conn(&mut self, now: Instant, kind: MonitorConnKind) -> Option<MonitorAction> {
        let now = self.advance_clock(now);
        let link = match kind {
            MonitorConnKind::Check => &mut self.check,
            MonitorConnKind::Rtt => &mut self.ping,
        };
        link.take_hangup().or_else(|| link.take_action(now))
    }

    /// Takes the action owed on a connection if it is [`MonitorAction::ReadNext`].
    pub(crate) fn take_read(&mut self, conn: MonitorConnId) {
        let link = self.link_mut(conn);
        if link.check(conn).is_ok() {
            link.take_read();
        }
    }

    /// Whether [`Monitor::poll_conn`] would return an action.
    #[must_use]
    pub const fn owes_conn(&self, kind: MonitorConnKind) -> bool {
        match kind {
            MonitorConnKind::Check => self.check.owes(),
            MonitorConnKind::Rtt => self.ping.owes(),
        }
    }

    /// The monitored server.
    #[must_use]
    pub const fn server(&self) -> ServerId {
        self.server
    }

    /// The options.
    #[must_use]
    pub const fn config(&self) -> &MonitorConfig {
        &self.config
    }

    /// The round-trip times, measured by either connection.
    #[must_use]
    pub const fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Whether the check connection streams. The RTT connection is used only then.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// The monitor's state.
    #[must_use]
    pub const fn state(&self) -> MonitorState {
        match &self.phase {
            Phase::New => MonitorState::New,
            Phase::Waiting { .. } => MonitorState::Waiting,
            Phase::Checking => MonitorState::Checking,
            Phase::Ended { .. } => MonitorState::Ended,
            Phase::Closed => MonitorState::Closed,
        }
    }

    /// Checks every internal invariant. For tests, fuzzing and simulation.
    ///
    /// # Panics
    ///
    /// Panics when an invariant is broken, which is a bug in this crate.
    pub fn assert_invariants(&self) {
        self.check.assert_invariants(MonitorConnKind::Check, self.serial_last.0);
        self.ping.assert_invariants(MonitorConnKind::Rtt, self.serial_last.0);
        self.rtt.assert_invariants();
        let in_flight = self.check.exchange();
        assert_eq!(
            in_flight.is_some(),
            matches!(self.phase, Phase::Checking),
            "the check connection is busy exactly while a check is in flight"
        );
        match self.phase {
            Phase::New | Phase::Closed => {
                assert!(self.check.is_down() && self.ping.is_down(), "no connection before the start or after the end");
                assert_eq!(self.poll_timeout(), None, "no step is due before the start or after the end");
            }
            Phase::Waiting { ended, due } => {
                assert!(!self.streaming, "a streaming server is not left waiting");
                assert!(ended <= self.clock, "the last check has ended");
                if let (Some(due), Some(soonest)) = (due, later(ended, MIN_HEARTBEAT_FREQUENCY)) {
                    assert!(due >= soonest, "no check sooner than minHeartbeatFrequencyMS after the last");
                }
            }
            Phase::Checking => {
                let awaited = in_flight.is_some_and(|exchange| exchange.step.is_awaited());
                assert_eq!(awaited, self.streaming, "a check is awaited exactly while streaming");
            }
            Phase::Ended { at, next } => match next {
                Next::Wait => assert!(at <= self.clock, "the check has ended"),
                Next::Retry | Next::WaitBriefly => assert!(self.check.is_down(), "retried only on a new connection"),
                Next::ReadOn | Next::Await(_) => {
                    assert!(self.check.is_idle(), "a stream continues on the same connection")
                }
            },
        }
        assert!(!self.streaming || self.config.streaming_enabled(), "no streaming where it is disabled");
        assert!(self.streaming || self.ping.is_down(), "the RTT connection exists only while streaming");
        assert!(
            self.ping_due.is_none() || self.ping.exchange().is_none(),
            "an RTT measurement is due or in flight, not both"
        );
        assert!(self.ping_due.is_none() || self.streaming, "an RTT measurement is due without streaming");
        assert!(self.retried.is_none() || self.serial_last.0 > 1, "a retry uses a second connection");
    }

    /// Advances the stored clock and returns it: `now`, unless the clock has gone backwards.
    fn advance_clock(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    const fn link_mut(&mut self, conn: MonitorConnId) -> &mut Link {
        match conn.kind {
            MonitorConnKind::Check => &mut self.check,
            MonitorConnKind::Rtt => &mut self.ping,
        }
    }
}

/// `duration` after `start`; `None` at or beyond [`Instant::MAX`], which is never reached.
fn later(start: Instant, duration: Duration) -> Option<Instant> {
    let at = start.saturating_add(duration);
    if at == Instant::MAX { None } else { Some(at) }
}

const _: () = assert!(size_of::<Monitor>() <= 520);
