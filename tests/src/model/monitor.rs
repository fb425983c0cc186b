//! A naive monitor that the real one is compared with.
//!
//! It keeps all connections and samples of the run and counts time in 128 bits, which cannot
//! overflow. After each input it computes the expected events, outcome, actions and next deadline.
//! It shares only the types of the public interface with the machine. Comments name the
//! [invariants](crate::invariants) S1..S21.

use core::time::Duration;

use crate::reply::CheckReply;
use poolhouse_core::monitor::{
    CheckOutcome, HeartbeatId, HelloKind, MonitorAction, MonitorConnId, MonitorConnKind, MonitorEvent, MonitorOptions,
    MonitorState, ServerMonitoringMode,
};
use poolhouse_core::{Cause, Instant, ServerId, TopologyVersion};

/// minHeartbeatFrequencyMS, in nanoseconds.
const PAUSE_MIN: u128 = 500_000_000;

/// The clock of the machine cannot represent later instants. A deadline beyond this is never due.
const NEVER: u128 = u64::MAX as u128 - 1;

/// The step that a connection performs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Dial,
    Handshake,
    Poll,
    Awaitable(TopologyVersion),
    Next,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    asked: Asked,
    /// The host has taken the action.
    taken: bool,
    since: u128,
    deadline: Option<u128>,
}

#[derive(Clone, Debug)]
struct Connection {
    kind: MonitorConnKind,
    /// The host has taken the dial action.
    reported: bool,
    gone: bool,
    hangup_owed: bool,
    hello_ok: bool,
    server_connection: Option<i64>,
    flight: Option<Flight>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Sleep,
    SleepBriefly,
    Retry,
    Read,
    Await(TopologyVersion),
}

/// The naive monitor.
#[derive(Clone, Debug)]
pub struct ModelMonitor {
    server: ServerId,
    heartbeat: Duration,
    connect_limit: Option<Duration>,
    may_stream: bool,
    server_api: bool,
    clock: u128,
    started: bool,
    closed: bool,
    known: bool,
    /// Connection `n` is at index `n - 1`.
    connections: Vec<Connection>,
    last_end: Option<u128>,
    sleeping_until: Option<Option<u128>>,
    measuring: bool,
    ping_due: Option<u128>,
    ping_dials: Vec<u128>,
    retries: Vec<u128>,
    samples: Vec<u128>,
    average: f64,
    measured: u64,
    pending: Option<(CheckOutcome, Then)>,
    /// Expected events since the list was last cleared.
    pub events: Vec<(Instant, MonitorEvent)>,
}

impl ModelMonitor {
    /// Creates a model of a monitor with these options.
    #[must_use]
    pub const fn new(server: ServerId, options: &MonitorOptions) -> Self {
        let may_stream = match options.server_monitoring_mode {
            ServerMonitoringMode::Auto => !options.is_faas,
            ServerMonitoringMode::Stream => true,
            ServerMonitoringMode::Poll => false,
        };
        Self {
            server,
            heartbeat: options.heartbeat_frequency,
            connect_limit: options.connect_timeout,
            may_stream,
            server_api: options.server_api,
            clock: 0,
            started: false,
            closed: false,
            known: false,
            connections: Vec::new(),
            last_end: None,
            sleeping_until: None,
            measuring: false,
            ping_due: None,
            ping_dials: Vec::new(),
            retries: Vec::new(),
            samples: Vec::new(),
            average: 0.0,
            measured: 0,
            pending: None,
            events: Vec::new(),
        }
    }

    /// The monitor was started.
    pub fn start(&mut self, now: Instant) {
        self.tick(now);
        if !self.started && !self.closed {
            self.started = true;
            self.check_now();
        }
    }

    /// A check was requested (S5).
    pub fn request_check(&mut self, now: Instant) {
        self.tick(now);
        let Some(until) = self.sleeping_until else { return };
        let soonest = self.last_end.expect("slept after a check") + PAUSE_MIN;
        if soonest < NEVER {
            let soonest = soonest.max(self.clock);
            self.sleeping_until = Some(Some(until.map_or(soonest, |until| until.min(soonest))));
        }
    }

    /// The check was cancelled (S18).
    pub fn cancel_check(&mut self, now: Instant) {
        self.tick(now);
        if !self.started || self.closed {
            return;
        }
        if self.check_flight().is_some() {
            self.failed_event(Cause::Cancelled);
            self.drop_conn(MonitorConnKind::Check);
            self.sleep(self.clock, self.heartbeat.as_nanos());
        }
        if let Some((_, then)) = &mut self.pending {
            *then = Then::Sleep;
        }
        self.drop_conn(MonitorConnKind::Check);
        self.stop_measuring();
        self.samples.clear();
        self.known = false;
    }

    /// Sets whether the server is known, after a change that was not caused by this monitor.
    pub const fn set_server_known(&mut self, known: bool) {
        self.known = known;
    }

    /// The monitor was closed (S18).
    pub fn close(&mut self, now: Instant) {
        self.tick(now);
        if self.check_flight().is_some() {
            self.failed_event(Cause::Closed);
        }
        self.drop_conn(MonitorConnKind::Check);
        self.stop_measuring();
        self.closed = true;
        self.sleeping_until = None;
        self.pending = None;
    }

    /// The outcome was applied.
    pub fn settle(&mut self, now: Instant, known: bool) {
        self.tick(now);
        let Some((_, then)) = self.pending.take() else { return };
        self.known = known;
        let ended = self.last_end.expect("a check has ended");
        match then {
            Then::Sleep => self.sleep(ended, self.heartbeat.as_nanos()),
            Then::SleepBriefly => self.sleep(ended, PAUSE_MIN),
            Then::Retry => {
                self.retries.push(self.clock);
                self.check_now();
            }
            Then::Read => self.await_reply(Asked::Next),
            Then::Await(version) => self.await_reply(Asked::Awaitable(version)),
        }
    }

    /// A dial has succeeded. Returns `false` if the report is stale.
    pub fn dialed(&mut self, now: Instant, id: MonitorConnId) -> bool {
        self.tick(now);
        let Some(place) = self.current(id) else { return false };
        let clock = self.clock;
        let Some(flight) = &mut self.connections[place].flight else { return false };
        if flight.asked != Asked::Dial {
            return false;
        }
        if flight.deadline.is_some_and(|deadline| clock >= deadline) {
            self.conn_failed(id.kind(), Cause::NetworkTimeout);
        } else {
            *flight = Flight { asked: Asked::Handshake, taken: false, since: clock, deadline: flight.deadline };
        }
        true
    }

    /// A reply was received. Returns `false` if the report is stale.
    pub fn reply(&mut self, now: Instant, id: MonitorConnId, reply: &CheckReply) -> bool {
        self.tick(now);
        let Some(place) = self.current(id) else { return false };
        let conn = id.kind();
        let Some(flight) = self.connections[place].flight else {
            self.conn_failed(conn, Cause::Protocol);
            return true;
        };
        let awaited = matches!(flight.asked, Asked::Awaitable(_) | Asked::Next);
        if flight.deadline.is_some_and(|deadline| self.clock >= deadline) {
            self.conn_failed(conn, Cause::NetworkTimeout);
        } else if flight.asked == Asked::Dial || !flight.taken {
            self.conn_failed(conn, Cause::Protocol);
        } else if !reply.ok {
            self.conn_failed(conn, Cause::Command { code: reply.code });
        } else if reply.more_to_come && !awaited {
            self.conn_failed(conn, Cause::Protocol);
        } else {
            self.answered(place, flight, reply);
        }
        true
    }

    /// A connection has failed. Returns `false` if the report is stale.
    pub fn failed(&mut self, now: Instant, id: MonitorConnId, cause: Cause) -> bool {
        self.tick(now);
        let Some(place) = self.current(id) else { return false };
        let flight = self.connections[place].flight;
        let late = flight.and_then(|flight| flight.deadline).is_some_and(|deadline| self.clock >= deadline);
        self.conn_failed(id.kind(), if late { Cause::NetworkTimeout } else { cause });
        if flight.is_some_and(|flight| flight.asked == Asked::Dial) {
            self.connections[place].hangup_owed = false;
        }
        true
    }

    /// The clock has advanced.
    pub fn timeout(&mut self, now: Instant) {
        self.tick(now);
        let late = |flight: Option<Flight>, clock| {
            flight.and_then(|flight| flight.deadline).is_some_and(|deadline| clock >= deadline)
        };
        if late(self.check_flight(), self.clock) {
            self.conn_failed(MonitorConnKind::Check, Cause::NetworkTimeout);
        } else if self.sleeping_until.flatten().is_some_and(|until| until <= self.clock) {
            self.check_now();
        }
        if late(self.flight_of(MonitorConnKind::Rtt), self.clock) {
            self.conn_failed(MonitorConnKind::Rtt, Cause::NetworkTimeout);
        }
        self.ping_if_due();
    }

    /// The next action. The host takes it.
    pub fn take_action(&mut self, now: Instant) -> Option<ModelAction> {
        self.tick(now);
        for kind in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            if let Some(place) = self.connections.iter().position(|conn| conn.kind == kind && conn.hangup_owed) {
                self.connections[place].hangup_owed = false;
                return Some(ModelAction { kind, number: place as u64 + 1, what: What::Hangup });
            }
        }
        for kind in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            let Some(place) = self.place_of(kind) else { continue };
            let clock = self.clock;
            let max_await_time = self.heartbeat;
            let conn = &mut self.connections[place];
            let legacy = !conn.hello_ok;
            let Some(flight) = conn.flight.as_mut().filter(|flight| !flight.taken) else { continue };
            flight.taken = true;
            let what = match flight.asked {
                Asked::Dial => {
                    conn.reported = true;
                    What::Dial
                }
                Asked::Next => What::Read,
                Asked::Handshake => What::Hello(HelloKind::Handshake { legacy }),
                Asked::Poll => What::Hello(HelloKind::Poll { legacy }),
                Asked::Awaitable(topology_version) => {
                    What::Hello(HelloKind::Awaitable { legacy, topology_version, max_await_time })
                }
            };
            if matches!(what, What::Hello(_)) {
                flight.since = clock;
            }
            return Some(ModelAction { kind, number: place as u64 + 1, what });
        }
        None
    }

    /// The exact instant of the next deadline (S4, S5, S7, S14, S16, S21).
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let deadline = |line| self.flight_of(line).and_then(|flight: Flight| flight.deadline);
        let all = [
            // The outcome is applied at once.
            self.pending.and(self.last_end),
            self.sleeping_until.flatten(),
            deadline(MonitorConnKind::Check),
            deadline(MonitorConnKind::Rtt),
            self.ping_due,
        ];
        let earliest = all.into_iter().flatten().min()?;
        Some(Instant::from_nanos(
            u64::try_from(earliest).expect("deadlines beyond the range of the clock are never due"),
        ))
    }

    /// The state, as the events imply it.
    #[must_use]
    pub fn state(&self) -> MonitorState {
        match self {
            Self { closed: true, .. } => MonitorState::Closed,
            Self { started: false, .. } => MonitorState::New,
            Self { pending: Some(_), .. } => MonitorState::Ended,
            _ if self.check_flight().is_some() => MonitorState::Checking,
            _ => MonitorState::Waiting,
        }
    }

    /// Whether the server streams, so that round-trip times are measured separately.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        self.measuring
    }

    /// Whether the server is known.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// The outcome that has not been applied yet.
    #[must_use]
    pub fn outcome(&self) -> Option<CheckOutcome> {
        self.pending.map(|(outcome, _)| outcome)
    }

    /// The average in nanoseconds, and the minimum (S13).
    #[must_use]
    pub fn round_trip(&self) -> (Option<f64>, Duration) {
        let average = if self.samples.is_empty() { None } else { Some(self.average) };
        let last = &self.samples[self.samples.len().saturating_sub(10)..];
        let minimum = if last.len() < 2 { 0 } else { last.iter().copied().min().unwrap_or(0) };
        (average, Duration::from_nanos(u64::try_from(minimum).expect("samples are short")))
    }

    /// Number of samples from the RTT connection.
    #[must_use]
    pub const fn measured(&self) -> u64 {
        self.measured
    }

    /// The reply that this monitor connection waits for, so a host can answer.
    #[must_use]
    pub fn waits_for_reply(&self, id: MonitorConnId) -> Option<bool> {
        let flight = self.connections[self.current(id)?].flight?;
        if flight.taken { Some(flight.asked != Asked::Dial) } else { None }
    }

    fn tick(&mut self, now: Instant) {
        self.clock = self.clock.max(u128::from(now.as_nanos()));
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.clock).expect("the clock fits into 64 bits"))
    }

    fn place_of(&self, kind: MonitorConnKind) -> Option<usize> {
        self.connections.iter().position(|conn| conn.kind == kind && !conn.gone)
    }

    fn flight_of(&self, kind: MonitorConnKind) -> Option<Flight> {
        self.connections[self.place_of(kind)?].flight
    }

    fn check_flight(&self) -> Option<Flight> {
        self.flight_of(MonitorConnKind::Check)
    }

    fn streams(&self) -> bool {
        let settling = matches!(self.pending, Some((_, Then::Read | Then::Await(_))));
        let waits = self.check_flight().is_some_and(|flight| matches!(flight.asked, Asked::Awaitable(_) | Asked::Next));
        settling || waits
    }

    fn current(&self, id: MonitorConnId) -> Option<usize> {
        let place = self.place_of(id.kind())?;
        let named = place as u64 + 1 == id.number();
        if named && self.connections[place].reported { Some(place) } else { None }
    }

    fn limit(&self, extra: u128) -> Option<u128> {
        let deadline = self.clock + self.connect_limit?.as_nanos() + extra;
        Some(deadline).filter(|deadline| *deadline < NEVER)
    }

    fn sleep(&mut self, from: u128, time: u128) {
        self.last_end = Some(from);
        self.sleeping_until = Some(if from + time < NEVER { Some(from + time) } else { None });
    }

    fn ask(&mut self, kind: MonitorConnKind, asked: Asked, deadline: Option<u128>) {
        let flight = Some(Flight { asked, taken: false, since: self.clock, deadline });
        if let Some(place) = self.place_of(kind) {
            assert!(self.connections[place].flight.is_none(), "S1: a connection has one operation at a time");
            self.connections[place].flight = flight;
            return;
        }
        if kind == MonitorConnKind::Rtt {
            self.ping_dials.push(self.clock);
        }
        self.connections.push(Connection {
            kind,
            reported: false,
            gone: false,
            hangup_owed: false,
            hello_ok: self.server_api,
            server_connection: None,
            flight: Some(Flight { asked: Asked::Dial, taken: false, since: self.clock, deadline }),
        });
    }

    fn check_now(&mut self) {
        self.sleeping_until = None;
        let deadline = self.limit(0);
        self.ask(MonitorConnKind::Check, Asked::Poll, deadline);
        self.started_event(false);
    }

    fn await_reply(&mut self, asked: Asked) {
        let deadline = self.limit(self.heartbeat.as_nanos());
        self.ask(MonitorConnKind::Check, asked, deadline);
        self.started_event(true);
        if !self.measuring {
            self.measuring = true;
            let soonest = self.ping_dials.last().map_or(self.clock, |last| self.clock.max(last + PAUSE_MIN));
            self.ping_due = Some(soonest).filter(|&due| due < NEVER || due == self.clock);
            self.ping_if_due();
        }
    }

    fn ping_if_due(&mut self) {
        if self.ping_due.is_some_and(|due| due <= self.clock) {
            self.ping_due = None;
            let deadline = self.limit(0);
            self.ask(MonitorConnKind::Rtt, Asked::Poll, deadline);
        }
    }

    fn drop_conn(&mut self, kind: MonitorConnKind) {
        if let Some(place) = self.place_of(kind) {
            let conn = &mut self.connections[place];
            conn.gone = true;
            conn.hangup_owed = conn.reported;
            conn.flight = None;
        }
    }

    fn stop_measuring(&mut self) {
        self.drop_conn(MonitorConnKind::Rtt);
        self.ping_due = None;
        self.measuring = false;
    }

    fn conn_failed(&mut self, kind: MonitorConnKind, cause: Cause) {
        match kind {
            MonitorConnKind::Rtt => {
                let was_busy = self.flight_of(MonitorConnKind::Rtt).is_some();
                self.drop_conn(MonitorConnKind::Rtt);
                if was_busy {
                    self.ping_due = Some(self.clock + self.heartbeat.as_nanos()).filter(|&due| due < NEVER);
                }
            }
            MonitorConnKind::Check if self.check_flight().is_none() => {
                self.drop_conn(MonitorConnKind::Check);
                if let Some((_, then @ (Then::Read | Then::Await(_)))) = &mut self.pending {
                    *then = Then::SleepBriefly;
                    self.stop_measuring();
                }
            }
            MonitorConnKind::Check => {
                self.failed_event(cause);
                self.drop_conn(MonitorConnKind::Check);
                self.stop_measuring();
                self.samples.clear();
                self.last_end = Some(self.clock);
                let network = matches!(cause, Cause::Network | Cause::NetworkTimeout);
                let recently = self.retries.last().is_some_and(|last| self.clock < last + PAUSE_MIN);
                let then = match (network && self.known, recently) {
                    _ if cause == Cause::Cancelled => Then::SleepBriefly,
                    (false, _) => Then::Sleep,
                    (true, true) => Then::SleepBriefly,
                    (true, false) => Then::Retry,
                };
                self.known = false;
                let interrupt = cause == Cause::NetworkTimeout;
                self.pending = Some((CheckOutcome::Failed { cause, interrupt }, then));
            }
        }
    }

    fn answered(&mut self, place: usize, flight: Flight, reply: &CheckReply) {
        let conn = &mut self.connections[place];
        conn.flight = None;
        conn.hello_ok |= reply.hello_ok;
        conn.server_connection = conn.server_connection.or(reply.server_connection);
        let took = self.clock - flight.since;
        let duration = Duration::from_nanos(u64::try_from(took).expect("the clock has 64 bits"));
        let awaited = matches!(flight.asked, Asked::Awaitable(_) | Asked::Next);
        if !awaited {
            let took = took.min(3_600_000_000_000);
            let value = took as f64;
            self.average = if self.samples.is_empty() { value } else { 0.2 * value + 0.8 * self.average };
            self.samples.push(took);
        }
        match self.connections[place].kind {
            MonitorConnKind::Rtt => {
                self.measured += 1;
                self.ping_due = Some(self.clock + self.heartbeat.as_nanos()).filter(|&due| due < NEVER);
            }
            MonitorConnKind::Check => {
                let id = self.heartbeat_id(place);
                self.events.push((self.now(), MonitorEvent::HeartbeatSucceeded { id, awaited, duration }));
                self.last_end = Some(self.clock);
                let then = if !self.may_stream {
                    Then::Sleep
                } else if reply.more_to_come {
                    Then::Read
                } else {
                    reply.topology_version.map_or(Then::Sleep, Then::Await)
                };
                let sample = if awaited { None } else { Some(duration) };
                self.pending = Some((CheckOutcome::Succeeded { awaited, sample }, then));
                if !self.streams() {
                    self.stop_measuring();
                }
            }
        }
    }

    fn heartbeat_id(&self, place: usize) -> HeartbeatId {
        HeartbeatId {
            server: self.server,
            connection: place as u64 + 1,
            server_connection: self.connections[place].server_connection,
        }
    }

    fn started_event(&mut self, awaited: bool) {
        let place = self.place_of(MonitorConnKind::Check).expect("a check has a connection");
        let id = self.heartbeat_id(place);
        self.events.push((self.now(), MonitorEvent::HeartbeatStarted { id, awaited }));
    }

    fn failed_event(&mut self, cause: Cause) {
        let place = self.place_of(MonitorConnKind::Check).expect("a check has a connection");
        let id = self.heartbeat_id(place);
        let flight = self.connections[place].flight.expect("a check is in flight");
        let awaited = matches!(flight.asked, Asked::Awaitable(_) | Asked::Next);
        let took = u64::try_from(self.clock - flight.since).expect("the clock has 64 bits");
        let duration = Duration::from_nanos(took);
        self.events.push((self.now(), MonitorEvent::HeartbeatFailed { id, awaited, duration, cause }));
    }
}

/// An expected action, in terms of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelAction {
    /// The kind of the connection.
    pub kind: MonitorConnKind,
    /// Its number.
    pub number: u64,
    /// The action.
    pub what: What,
}

/// The kinds of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Dial.
    Dial,
    /// Write a hello.
    Hello(HelloKind),
    /// Continue to read.
    Read,
    /// Hang up.
    Hangup,
}

impl From<MonitorAction> for ModelAction {
    fn from(action: MonitorAction) -> Self {
        let (conn, what) = match action {
            MonitorAction::Dial(conn) => (conn, What::Dial),
            MonitorAction::SendHello { conn, hello } => (conn, What::Hello(hello)),
            MonitorAction::ReadNext { conn } => (conn, What::Read),
            MonitorAction::Hangup(conn) => (conn, What::Hangup),
        };
        Self { kind: conn.kind(), number: conn.number(), what }
    }
}
