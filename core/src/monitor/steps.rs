//! Internal steps of a monitor: they begin and end checks and RTT measurements.

use core::num::NonZeroU64;

use crate::Cause;
use crate::machine::Observer;
use crate::monitor::link::{Conn, Step};
use crate::monitor::{
    CheckOutcome, HeartbeatId, HelloKind, MIN_HEARTBEAT_FREQUENCY, Monitor, MonitorConnId, MonitorConnKind,
    MonitorEvent, Next, Phase, later,
};
use crate::storage::table::Serial;
use crate::time::Instant;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

impl Monitor {
    /// Allocates an id for the next connection of this kind.
    fn next_id(&mut self, kind: MonitorConnKind) -> MonitorConnId {
        self.serial_last = Serial(self.serial_last.0.checked_add(1).expect("fewer than 2^64 connections"));
        MonitorConnId { serial: NonZeroU64::new(self.serial_last.0).expect("counts from 1"), kind }
    }

    /// The connectTimeoutMS deadline of a step that begins at `now`.
    fn answer_deadline(&self, now: Instant) -> Option<Instant> {
        self.config.answer_limit().and_then(|limit| later(now, limit))
    }

    /// Begins a check that is answered at once, on the existing connection or on a new one.
    pub(super) fn begin_check(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        assert!(!matches!(self.phase, Phase::Checking | Phase::Closed), "one check at a time");
        assert!(!self.streaming, "no check begins while streaming");
        let deadline = self.answer_deadline(now);
        match self.check.conn() {
            Some(conn) => {
                let hello = HelloKind::Poll { legacy: !conn.hello_ok };
                self.check.begin(now, Step::Hello(hello), deadline);
            }
            None => {
                let id = self.next_id(MonitorConnKind::Check);
                self.check_dialed = Some(now);
                self.check.dial(now, id, self.config.server_api(), deadline);
            }
        }
        self.phase = Phase::Checking;
        self.emit_started(now, false, observer);
    }

    /// Begins a check that waits for the server to change.
    pub(super) fn begin_awaited(&mut self, now: Instant, step: Step, observer: &mut impl Observer<MonitorEvent>) {
        assert!(self.config.streaming_enabled(), "nothing is awaited while streaming is disabled");
        let deadline = self.config.awaited_limit().and_then(|limit| later(now, limit));
        self.check.begin(now, step, deadline);
        self.phase = Phase::Checking;
        self.emit_started(now, true, observer);
        if !self.streaming {
            self.streaming = true;
            let soonest = self.ping_dialed.map_or(Some(now), |at| later(at, MIN_HEARTBEAT_FREQUENCY));
            self.ping_due = soonest.map(|soonest| soonest.max(now));
            self.begin_ping_if_due(now);
        }
    }

    /// Begins the step that follows a check, which ended at `ended`.
    pub(super) fn begin_next(
        &mut self,
        now: Instant,
        ended: Instant,
        next: Next,
        observer: &mut impl Observer<MonitorEvent>,
    ) {
        match next {
            Next::Wait => {
                self.phase = Phase::Waiting { ended, due: later(ended, self.config.heartbeat_frequency()) };
            }
            Next::WaitBriefly => {
                self.phase = Phase::Waiting { ended, due: later(ended, MIN_HEARTBEAT_FREQUENCY) };
            }
            Next::Retry => {
                self.retried = Some(now);
                self.begin_check(now, observer);
            }
            Next::ReadOn => self.begin_awaited(now, Step::ReadNext, observer),
            Next::Await(topology_version) => {
                let hello = HelloKind::Awaitable {
                    legacy: self.check.conn().is_none_or(|conn| !conn.hello_ok),
                    topology_version,
                    max_await_time: self.config.heartbeat_frequency(),
                };
                self.begin_awaited(now, Step::Hello(hello), observer);
            }
        }
    }

    /// Ends streaming and closes the RTT connection.
    pub(super) fn stop_streaming(&mut self) {
        self.streaming = false;
        self.ping_due = None;
        self.ping.hang_up();
    }

    /// Begins a hello for RTT if it is due.
    pub(super) fn begin_ping_if_due(&mut self, now: Instant) {
        if self.ping_due.is_none_or(|due| due > now) {
            return;
        }
        assert!(self.streaming, "round-trip times are measured while streaming");
        self.ping_due = None;
        let deadline = self.answer_deadline(now);
        match self.ping.conn() {
            Some(conn) => {
                let hello = HelloKind::Poll { legacy: !conn.hello_ok };
                self.ping.begin(now, Step::Hello(hello), deadline);
            }
            None => {
                let id = self.next_id(MonitorConnKind::Rtt);
                self.ping_dialed = Some(now);
                self.ping.dial(now, id, self.config.server_api(), deadline);
            }
        }
    }

    pub(super) fn succeed_ping(&mut self, now: Instant, reply: &HelloReply<'_>) {
        let since = self.ping.exchange().map(|exchange| exchange.since.0).expect("the reply was due");
        self.ping.answered(reply);
        self.rtt.add_sample(now.saturating_since(since));
        self.ping_due = later(now, self.config.heartbeat_frequency());
    }

    pub(super) fn succeed_check(
        &mut self,
        now: Instant,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> CheckOutcome {
        assert!(matches!(self.phase, Phase::Checking), "the reply was due");
        let exchange = *self.check.exchange().expect("the reply was due");
        let awaited = exchange.step.is_awaited();
        let duration = now.saturating_since(exchange.since.0);
        self.check.answered(reply);
        if !awaited {
            self.rtt.add_sample(duration);
        }
        let conn = self.check.conn().expect("the connection stays open");
        let id = self.heartbeat_id(conn);
        let next = match reply.topology_version {
            _ if !self.config.streaming_enabled() => Next::Wait,
            _ if matched == Matched::MoreComes => Next::ReadOn,
            Some(version) => Next::Await(version),
            None => Next::Wait,
        };
        if next == Next::Wait {
            self.stop_streaming();
        }
        self.phase = Phase::Ended { at: now, next };
        observer.on_event(now, &MonitorEvent::HeartbeatSucceeded { id, awaited, duration });
        CheckOutcome::Succeeded { awaited, sample: if awaited { None } else { Some(duration) } }
    }

    /// Handles a failure of the connection of this kind: closes it, and ends the check in flight on
    /// it, if any.
    pub(super) fn fail(
        &mut self,
        now: Instant,
        kind: MonitorConnKind,
        cause: Cause,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Option<CheckOutcome> {
        match kind {
            MonitorConnKind::Rtt => {
                self.fail_ping(now);
                None
            }
            MonitorConnKind::Check if matches!(self.phase, Phase::Checking) => {
                Some(self.fail_check(now, cause, known, observer))
            }
            MonitorConnKind::Check => {
                self.check.hang_up();
                if let Phase::Ended { next: next @ (Next::ReadOn | Next::Await(_)), .. } = &mut self.phase {
                    // The stream has ended with its connection. A server that replies and then
                    // closes the connection is checked once per MIN_HEARTBEAT_FREQUENCY.
                    *next = Next::WaitBriefly;
                    self.stop_streaming();
                }
                None
            }
        }
    }

    /// Handles a failure or timeout of the RTT connection.
    pub(super) fn fail_ping(&mut self, now: Instant) {
        assert!(self.streaming, "the RTT connection exists only while streaming");
        self.ping.hang_up();
        self.ping_due = self.ping_due.or(later(now, self.config.heartbeat_frequency()));
    }

    fn fail_check(
        &mut self,
        now: Instant,
        cause: Cause,
        known: bool,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> CheckOutcome {
        self.emit_failed(now, cause, observer);
        self.check.hang_up();
        self.stop_streaming();
        self.rtt.reset();
        let next = if cause == Cause::Cancelled {
            // The host lost the check, which says nothing about the server.
            Next::WaitBriefly
        } else if !(cause.is_network() && known) {
            Next::Wait
        } else if self.retried.is_some_and(|at| now.saturating_since(at) < MIN_HEARTBEAT_FREQUENCY) {
            Next::WaitBriefly
        } else {
            Next::Retry
        };
        self.phase = Phase::Ended { at: now, next };
        CheckOutcome::Failed { cause, interrupt: cause == Cause::NetworkTimeout }
    }

    const fn heartbeat_id(&self, conn: &Conn) -> HeartbeatId {
        HeartbeatId { server: self.server, connection: conn.id.number(), server_connection: conn.server_connection }
    }

    fn emit_started(&self, now: Instant, awaited: bool, observer: &mut impl Observer<MonitorEvent>) {
        let id = self.heartbeat_id(self.check.conn().expect("a check has a connection"));
        observer.on_event(now, &MonitorEvent::HeartbeatStarted { id, awaited });
    }

    pub(super) fn emit_failed(&self, now: Instant, cause: Cause, observer: &mut impl Observer<MonitorEvent>) {
        let exchange = self.check.exchange().expect("a check in flight has an exchange");
        let id = self.heartbeat_id(&exchange.conn);
        let awaited = exchange.step.is_awaited();
        let duration = now.saturating_since(exchange.since.0);
        observer.on_event(now, &MonitorEvent::HeartbeatFailed { id, awaited, duration, cause });
    }
}
