mod errors;
mod options;
mod polling;
mod report;
mod rtt;
mod streaming;
mod table;

use super::*;
use crate::ObjectId;

/// The fields of an event that tests compare; durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Started { awaited: bool },
    Succeeded { awaited: bool, ms: u128 },
    Failed { awaited: bool, ms: u128, cause: Cause },
}

const STARTED: Seen = Seen::Started { awaited: false };
const STARTED_AWAITED: Seen = Seen::Started { awaited: true };

#[derive(Default)]
struct Log {
    events: heapless::Vec<MonitorEvent, 64>,
}

impl Observer<MonitorEvent> for Log {
    fn on_event(&mut self, _now: Instant, event: &MonitorEvent) {
        self.events.push(*event).expect("the log is long enough");
    }
}

/// A monitor with a clock, a log, and a host that the test drives.
struct Rig {
    monitor: Monitor,
    now: Instant,
    log: Log,
    /// Whether the server is known.
    known: bool,
    /// The outcome of the last input, until it is applied.
    outcome: Option<CheckOutcome>,
}

impl Rig {
    fn new(options: MonitorOptions) -> Self {
        let config = options.validate().expect("valid options");
        Self {
            monitor: Monitor::new(ServerId::new(7), config),
            now: at(0),
            log: Log::default(),
            known: false,
            outcome: None,
        }
    }

    fn polling() -> Self {
        Self::new(MonitorOptions { server_monitoring_mode: ServerMonitoringMode::Poll, ..MonitorOptions::DEFAULT })
    }

    fn streaming() -> Self {
        Self::new(MonitorOptions::DEFAULT)
    }

    /// Streaming, with the first awaitable hello taken by the host and the RTT connection being
    /// dialed, at 0 ms.
    fn streaming_from_the_start() -> Self {
        let mut rig = Self::streaming();
        let conn = rig.connect();
        rig.reply(conn, &VERSIONED).expect("current");
        rig.settle();
        rig.actions();
        rig.log.events.clear();
        rig
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = at(ms);
        self
    }

    fn start(&mut self) {
        self.monitor.start(self.now, &mut self.log);
        self.monitor.assert_invariants();
    }

    /// Starts, advances the check connection to the point where its handshake is sent, and returns
    /// it.
    fn connect(&mut self) -> MonitorConnId {
        self.start();
        self.dial()
    }

    /// Takes the pending dial of the check connection, and the hello after it.
    fn dial(&mut self) -> MonitorConnId {
        let dialed = self.actions().iter().find_map(|action| match action {
            MonitorAction::Dial(conn) if conn.kind() == MonitorConnKind::Check => Some(*conn),
            MonitorAction::Dial(_)
            | MonitorAction::Hangup(_)
            | MonitorAction::SendHello { .. }
            | MonitorAction::ReadNext { .. } => None,
        });
        let conn = dialed.expect("a dial is owed");
        self.dialed(conn).expect("current");
        assert!(matches!(self.actions()[..], [MonitorAction::SendHello { .. }]));
        conn
    }

    fn dialed(&mut self, conn: MonitorConnId) -> Result<(), Stale> {
        let result = self.monitor.handle_dialed(self.now, conn, self.known, &mut self.log);
        self.monitor.assert_invariants();
        self.note(result)
    }

    fn reply(&mut self, conn: MonitorConnId, reply: &Answer) -> Result<(), Stale> {
        let result = self.monitor.handle_reply(self.now, conn, &reply.0, reply.1, self.known, &mut self.log);
        self.monitor.assert_invariants();
        self.note(result)
    }

    fn fail(&mut self, conn: MonitorConnId, cause: Cause) -> Result<(), Stale> {
        let result = self.monitor.handle_failed(self.now, conn, cause, self.known, &mut self.log);
        self.monitor.assert_invariants();
        self.note(result)
    }

    fn timeout(&mut self) {
        self.outcome = self.monitor.handle_timeout(self.now, self.known, &mut self.log);
        self.monitor.assert_invariants();
        let is_left = self.outcome.is_none() && self.monitor.poll_timeout().is_some_and(|due| due <= self.now);
        assert!(!is_left, "nothing due is left over");
    }

    fn note(&mut self, result: Result<Option<CheckOutcome>, Stale>) -> Result<(), Stale> {
        self.outcome = result?;
        Ok(())
    }

    fn cancel(&mut self) {
        self.monitor.cancel_check(self.now, &mut self.log);
        self.known = false;
        self.monitor.assert_invariants();
    }

    fn close(&mut self) {
        self.monitor.close(self.now, &mut self.log);
        self.monitor.assert_invariants();
    }

    /// Applies the outcome: a successful check makes the server known, a failed one unknown.
    fn settle(&mut self) -> Option<CheckOutcome> {
        let outcome = self.outcome.take();
        if let Some(outcome) = outcome {
            self.settle_as(matches!(outcome, CheckOutcome::Succeeded { .. }));
        }
        outcome
    }

    /// Acts as a host that has applied the outcome, after which the server is known or not.
    fn settle_as(&mut self, known: bool) {
        self.known = known;
        let none = self.monitor.handle_timeout(self.now, known, &mut self.log);
        assert_eq!(none, None, "what follows a check is no outcome");
        self.monitor.assert_invariants();
    }

    fn actions(&mut self) -> heapless::Vec<MonitorAction, 8> {
        let mut actions = heapless::Vec::new();
        while let Some(action) = self.monitor.poll_action(self.now) {
            actions.push(action).expect("no flood of actions");
            self.monitor.assert_invariants();
        }
        actions
    }

    /// Returns the events since the last call.
    fn seen(&mut self) -> heapless::Vec<Seen, 64> {
        let seen = self.log.events.iter().map(|event| match *event {
            MonitorEvent::HeartbeatStarted { awaited, .. } => Seen::Started { awaited },
            MonitorEvent::HeartbeatSucceeded { awaited, duration, .. } => {
                Seen::Succeeded { awaited, ms: duration.as_millis() }
            }
            MonitorEvent::HeartbeatFailed { awaited, duration, cause, .. } => {
                Seen::Failed { awaited, ms: duration.as_millis(), cause }
            }
        });
        let seen = seen.collect();
        self.log.events.clear();
        seen
    }

    fn due(&self) -> Option<Instant> {
        self.monitor.poll_timeout()
    }

    /// Returns the connection of the only pending dial.
    fn only_dial(&mut self) -> MonitorConnId {
        match self.actions()[..] {
            [MonitorAction::Dial(conn)] => conn,
            ref other => panic!("not one dial: {other:?}"),
        }
    }
}

/// A reply, and whether another one follows.
type Answer = (HelloReply<'static>, Matched);

/// A valid reply without other fields.
const OK: Answer = (HelloReply::OK, Matched::Last);
/// A valid reply of a server that can stream.
const VERSIONED: Answer = (HelloReply { topology_version: Some(version(1)), ..HelloReply::OK }, Matched::Last);
/// A valid reply that another one follows.
const STREAMED: Answer = (VERSIONED.0, Matched::MoreComes);
/// A reply with `ok: 0`.
const REFUSED: Answer = (HelloReply { ok: false, code: 91, ..HelloReply::OK }, Matched::Last);

const fn version(counter: i64) -> TopologyVersion {
    TopologyVersion { process_id: ObjectId([1; 12]), counter }
}

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn failed(cause: Cause) -> Option<CheckOutcome> {
    Some(CheckOutcome::Failed { cause, interrupt: matches!(cause, Cause::NetworkTimeout) })
}
