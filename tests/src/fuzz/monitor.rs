//! Arbitrary inputs to a monitor, in any order and at any time, compared with its naive model.

use core::time::Duration;

use crate::choices::{Bytes, Choices};
use crate::reply::CheckReply;
use poolhouse_core::monitor::{
    CheckOutcome, Monitor, MonitorAction, MonitorConnId, MonitorConnKind, MonitorEvent, MonitorOptions,
    ServerMonitoringMode, Stale,
};
use poolhouse_core::{Cause, CertificateFault, Instant, ObjectId, ServerId, TopologyVersion};

use crate::model::monitor::{Counts, ModelAction, ModelMonitor, Trace, assert_same};
use crate::oracle::monitor::Watched;

/// Executes the run of a monitor that the bytes describe: its options, then inputs until the bytes
/// end.
///
/// # Panics
///
/// On a finding: the monitor breaks a rule.
pub fn monitor(data: &[u8]) {
    run(data);
}

/// Like [`monitor`]. Returns the counts of the run.
///
/// # Panics
///
/// On a finding: the monitor breaks a rule.
pub fn run(data: &[u8]) -> Counts {
    let mut choices = Bytes::new(data);
    let mut run = Run::new(&mut choices);
    if choices.below(16) != 0 {
        run.start();
    }
    while !choices.is_over() {
        run.step(&mut choices);
        run.compare();
    }
    run.end()
}

/// Inputs of a run in which servers and hosts mostly behave correctly.
const CALM: [u32; 24] = [1, 2, 3, 4, 4, 4, 5, 9, 11, 11, 13, 14, 14, 14, 14, 14, 14, 19, 19, 19, 19, 19, 20, 21];

struct Run {
    /// Whether few faults occur.
    calm: bool,
    monitor: Watched,
    model: ModelMonitor,
    trace: Trace,
    now: Instant,
    /// The instant of the last input. Its outcome is applied at this instant.
    reported: Instant,
    events: Vec<(Instant, MonitorEvent)>,
    /// All connection ids that were ever named, and some that never were.
    ids: Vec<MonitorConnId>,
}

impl Run {
    fn new(choices: &mut Bytes<'_>) -> Self {
        let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
        let options = MonitorOptions {
            heartbeat_frequency: Duration::from_millis(choices.one_of(&[500, 501, 1_000, 10_000])),
            connect_timeout: choices
                .one_of(&[None, Some(1), Some(200), Some(10_000), Some(10_000), Some(10_000), Some(2_147_483_647)])
                .map(Duration::from_millis),
            server_monitoring_mode: choices.one_of(&modes),
            is_faas: choices.below(8) == 0,
            server_api: choices.below(2) == 0,
        };
        let config = options.validate().expect("options within their ranges");
        let server = ServerId::new(choices.below(256));
        let now = Instant::from_nanos(u64::from(choices.below(256)));
        Self {
            calm: choices.below(3) != 0,
            monitor: Watched::new(server, config),
            model: ModelMonitor::new(server, &options),
            trace: Trace::default(),
            now,
            reported: now,
            events: Vec::new(),
            ids: foreign_ids(),
        }
    }

    fn step(&mut self, choices: &mut Bytes<'_>) {
        self.reported = self.now;
        let input = if self.calm { choices.one_of(&CALM) } else { choices.below(24) };
        match input {
            0 => self.start(),
            1 => {
                self.monitor.request_check(self.now);
                self.model.request_check(self.now);
            }
            2 if !self.calm || choices.below(8) == 0 => {
                self.monitor.cancel_check(self.now, &mut self.events);
                self.model.cancel_check(self.now);
            }
            3 if choices.below(16) == 0 => {
                self.monitor.close(self.now, &mut self.events);
                self.model.close(self.now);
            }
            3 => {
                let known = choices.below(2) == 0;
                self.monitor.set_server_known(known);
                self.model.set_server_known(known);
            }
            4 => {
                let millis = choices.one_of(&[0, 1, 5, 100, 499, 500, 1_000]);
                self.now = self.now.saturating_add(Duration::from_millis(millis));
            }
            5..=8 => self.jump_to_due(),
            9 => self.jump_before_due(),
            10 => self.timeout(Instant::from_nanos(self.now.as_nanos() / 2)),
            11 => self.timeout(self.now),
            12 if choices.below(32) == 0 => self.now = Instant::MAX,
            13 => self.nonsense(choices),
            14..=18 => self.answer(MonitorConnKind::Check, choices),
            19 | 20 => self.answer(MonitorConnKind::Rtt, choices),
            _ => self.take_actions(),
        }
        self.apply(choices);
    }

    fn start(&mut self) {
        self.monitor.start(self.now, &mut self.events);
        self.model.start(self.now);
    }

    /// Advances the time of the monitor and of the model.
    fn timeout(&mut self, now: Instant) {
        self.reported = now;
        self.monitor.handle_timeout(now, &mut self.events);
        self.model.timeout(now);
        let is_left = self.monitor.outcome().is_none() && self.monitor.poll_timeout().is_some_and(|due| due <= now);
        assert!(!is_left, "S21: a due timer is left");
    }

    fn jump_to_due(&mut self) {
        if let Some(due) = self.monitor.poll_timeout() {
            self.now = self.now.max(due);
            self.timeout(self.now);
        }
    }

    fn jump_before_due(&mut self) {
        if let Some(due) = self.monitor.poll_timeout().filter(|&due| due > self.now) {
            self.now = Instant::from_nanos(due.as_nanos() - 1);
            let seen = self.events.len();
            self.timeout(self.now);
            assert_eq!(self.events.len(), seen, "S21: an early call emitted an event");
            assert_eq!(self.monitor.poll_timeout(), Some(due), "S21: an early call changed the deadline");
        }
    }

    /// The host takes all actions, and records the connections.
    fn take_actions(&mut self) {
        loop {
            let action = self.monitor.poll_action(self.now);
            let expected = self.model.take_action(self.now);
            assert_eq!(action.map(ModelAction::from), expected, "S14, S15, S17: the action");
            match action {
                Some(MonitorAction::Dial(line)) => self.ids.push(line),
                Some(MonitorAction::SendHello { .. } | MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_)) => {}
                None => return,
            }
        }
    }

    /// A valid report about a monitor connection that waits for one.
    fn answer(&mut self, kind: MonitorConnKind, choices: &mut Bytes<'_>) {
        self.take_actions();
        let Some(id) = self.newest(kind) else { return };
        match self.model.waits_for_reply(id) {
            Some(_) if choices.below(if self.calm { 40 } else { 6 }) == 0 => {
                let cause = any_cause(choices);
                self.failed(id, cause);
            }
            Some(true) => {
                let reply = likely_reply(choices);
                self.reply(id, &reply);
            }
            Some(false) => self.dialed(id),
            None => {}
        }
    }

    /// An arbitrary report about an arbitrary connection.
    fn nonsense(&mut self, choices: &mut Bytes<'_>) {
        let id = choices.one_of(&self.ids);
        self.any_report(id, choices);
    }

    /// An arbitrary report about the newest connection of this kind.
    fn report(&mut self, kind: MonitorConnKind, choices: &mut Bytes<'_>) {
        if let Some(id) = self.newest(kind) {
            self.any_report(id, choices);
        }
    }

    fn newest(&self, kind: MonitorConnKind) -> Option<MonitorConnId> {
        self.ids.iter().rev().find(|id| id.kind() == kind).copied()
    }

    fn any_report(&mut self, id: MonitorConnId, choices: &mut Bytes<'_>) {
        match choices.below(3) {
            0 => self.dialed(id),
            1 => {
                let reply = any_reply(choices);
                self.reply(id, &reply);
            }
            _ => {
                let cause = any_cause(choices);
                self.failed(id, cause);
            }
        }
    }

    fn dialed(&mut self, id: MonitorConnId) {
        let before = self.monitor.monitor().clone();
        let result = self.monitor.handle_dialed(self.now, id, &mut self.events);
        let current = self.model.dialed(self.now, id);
        self.check_stale(&before, result, current);
    }

    fn reply(&mut self, id: MonitorConnId, reply: &CheckReply) {
        let before = self.monitor.monitor().clone();
        let result = self.monitor.handle_reply(self.now, id, &reply.hello(), reply.matched(), &mut self.events);
        let current = self.model.reply(self.now, id, reply);
        self.check_stale(&before, result, current);
    }

    fn failed(&mut self, id: MonitorConnId, cause: Cause) {
        let before = self.monitor.monitor().clone();
        let result = self.monitor.handle_failed(self.now, id, cause, &mut self.events);
        let current = self.model.failed(self.now, id, cause);
        self.check_stale(&before, result, current);
    }

    fn check_stale(&mut self, before: &Monitor, result: Result<(), Stale>, current: bool) {
        assert_eq!(result.is_ok(), current, "S21: whether the report is stale");
        if result.is_err() {
            self.trace.seen.stale += 1;
            assert_eq!(self.monitor.state(), before.state(), "a stale report changes nothing");
            assert_eq!(self.monitor.poll_timeout(), before.poll_timeout(), "a stale report changes nothing");
        }
    }

    /// Applies the outcome, if there is one. Sometimes another input precedes it, or the topology
    /// disagrees.
    fn apply(&mut self, choices: &mut Bytes<'_>) {
        assert_eq!(self.monitor.outcome(), self.model.outcome(), "S7, S8: the outcome");
        let Some(outcome) = self.monitor.outcome() else { return };
        match choices.below(128) {
            0 => {
                self.monitor.cancel_check(self.reported, &mut self.events);
                self.model.cancel_check(self.reported);
            }
            1 => {
                self.monitor.close(self.reported, &mut self.events);
                self.model.close(self.reported);
            }
            2 => {
                self.monitor.request_check(self.reported);
                self.model.request_check(self.reported);
            }
            3 => self.report(MonitorConnKind::Check, choices),
            4 => self.report(MonitorConnKind::Rtt, choices),
            _ => {}
        }
        assert_eq!(
            self.monitor.outcome().is_some(),
            self.model.outcome().is_some(),
            "S7: until it is applied or closed"
        );
        let good = matches!(outcome, CheckOutcome::Succeeded { .. });
        let known = good && choices.below(8) != 0;
        self.monitor.settle(self.reported, known, &mut self.events);
        self.model.settle(self.reported, known);
    }

    /// Compares all observable state of the monitor with the model.
    fn compare(&mut self) {
        assert_same(&self.monitor, &mut self.model, &mut self.events, &mut self.trace);
    }

    /// Closes the monitor, and checks that nothing is left.
    fn end(mut self) -> Counts {
        self.monitor.close(self.now, &mut self.events);
        self.model.close(self.now);
        self.compare();
        self.take_actions();
        self.trace.assert_ended();
        assert_eq!(self.monitor.poll_timeout(), None, "S18: no timers after close");
        assert_eq!(self.monitor.poll_action(self.now), None, "S18: no action is owed after close");
        Counts { measured: self.model.measured(), ..self.trace.seen }
    }
}

/// Connection ids of another monitor.
fn foreign_ids() -> Vec<MonitorConnId> {
    let config = MonitorOptions::DEFAULT.validate().expect("the defaults are valid");
    let mut other = Monitor::new(ServerId::new(u32::MAX), config);
    let mut ids = Vec::new();
    let mut now = Instant::ORIGIN;
    other.start(now, &mut ());
    while ids.len() < 6 {
        now = now.saturating_add(Duration::from_secs(60));
        match other.poll_action(now) {
            Some(MonitorAction::Dial(conn)) => {
                ids.push(conn);
                let _ = other.handle_dialed(now, conn, true, &mut ());
            }
            Some(MonitorAction::SendHello { conn, .. }) => {
                let reply = CheckReply { topology_version: Some(version(0, 0)), ..CheckReply::OK };
                let _ = other.handle_reply(now, conn, &reply.hello(), reply.matched(), true, &mut ());
            }
            Some(MonitorAction::ReadNext { .. } | MonitorAction::Hangup(_)) => {}
            None => {}
        }
        let _ = other.handle_timeout(now, true, &mut ());
    }
    ids
}

const fn version(process: u8, counter: i64) -> TopologyVersion {
    TopologyVersion { process_id: ObjectId([process; 12]), counter }
}

fn any_version(choices: &mut Bytes<'_>) -> Option<TopologyVersion> {
    match choices.below(5) {
        0 => None,
        1 => Some(version(choices.one_of(&[0, 1]), i64::MIN)),
        2 => Some(version(choices.one_of(&[0, 1]), i64::MAX)),
        _ => Some(version(choices.one_of(&[0, 1]), i64::from(choices.below(256)))),
    }
}

/// A plausible reply of a correct server.
fn likely_reply(choices: &mut Bytes<'_>) -> CheckReply {
    if choices.below(8) == 0 {
        return any_reply(choices);
    }
    CheckReply {
        hello_ok: choices.below(2) == 0,
        more_to_come: choices.below(3) == 0,
        topology_version: any_version(choices),
        ..CheckReply::OK
    }
}

fn any_reply(choices: &mut Bytes<'_>) -> CheckReply {
    CheckReply {
        ok: choices.below(2) == 0,
        code: choices.one_of(&[0, 91, 11_600, i32::MIN, i32::MAX]),
        hello_ok: choices.below(2) == 0,
        more_to_come: choices.below(2) == 0,
        topology_version: any_version(choices),
        server_connection: choices.one_of(&[None, Some(1), Some(i64::MIN)]),
    }
}

fn any_cause(choices: &mut Bytes<'_>) -> Cause {
    choices.one_of(&[
        Cause::Network,
        Cause::NetworkTimeout,
        Cause::Network,
        Cause::NetworkTimeout,
        Cause::Dns,
        Cause::Certificate(CertificateFault::Expired),
        Cause::Protocol,
        Cause::Resources,
        Cause::Command { code: 1 },
    ])
}
