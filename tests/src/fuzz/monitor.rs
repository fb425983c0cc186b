//! Arbitrary inputs to a monitor, in any order and at any time, compared with its naive model.

use core::time::Duration;

use crate::choices::{Bytes, Choices};
use crate::reply::CheckReply;
use poolhouse_core::monitor::{
    CheckOutcome, Monitor, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, ServerMonitoringMode,
};
use poolhouse_core::{Cause, CertificateFault, Instant, ObjectId, ServerId, TopologyVersion};

use crate::oracle::monitor::{Counts, Watched};

/// Executes the run of a monitor that the bytes describe: its options, then inputs until the bytes
/// end.
pub fn monitor(data: &[u8]) {
    run(data);
}

/// Like [`monitor`]. Returns the counts of the run.
pub fn run(data: &[u8]) -> Counts {
    let mut choices = Bytes::new(data);
    let mut run = Run::new(&mut choices);
    if choices.below(16) != 0 {
        run.monitor.start(run.now);
    }
    while !choices.is_over() {
        run.step(&mut choices);
    }
    run.end()
}

/// Inputs of a run in which servers and hosts mostly behave correctly.
const CALM: [u32; 24] = [1, 2, 3, 4, 4, 4, 5, 9, 11, 11, 13, 14, 14, 14, 14, 14, 14, 19, 19, 19, 19, 19, 20, 21];

struct Run {
    /// Whether few faults occur.
    calm: bool,
    monitor: Watched,
    now: Instant,
    /// The instant of the last input. Its outcome is applied at this instant.
    reported: Instant,
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
            now,
            reported: now,
            ids: foreign_ids(),
        }
    }

    fn step(&mut self, choices: &mut Bytes<'_>) {
        self.reported = self.now;
        let input = if self.calm { choices.one_of(&CALM) } else { choices.below(24) };
        match input {
            0 => self.monitor.start(self.now),
            1 => self.monitor.request_check(self.now),
            2 if !self.calm || choices.below(8) == 0 => self.monitor.cancel_check(self.now),
            3 if choices.below(16) == 0 => self.monitor.close(self.now),
            3 => {
                let known = choices.below(2) == 0;
                self.monitor.set_server_known(known);
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

    /// Advances the time of the monitor.
    fn timeout(&mut self, now: Instant) {
        self.reported = now;
        self.monitor.handle_timeout(now);
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
            self.timeout(self.now);
        }
    }

    /// The host takes all actions, and records the connections.
    fn take_actions(&mut self) {
        while let Some(action) = self.monitor.poll_action(self.now) {
            if let MonitorAction::Dial(line) = action {
                self.ids.push(line);
            }
        }
    }

    /// A valid report about a monitor connection that waits for one.
    fn answer(&mut self, kind: MonitorConnKind, choices: &mut Bytes<'_>) {
        self.take_actions();
        let Some(id) = self.newest(kind) else { return };
        match self.monitor.model().waits_for_reply(id) {
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
        let _stale = self.monitor.handle_dialed(self.now, id);
    }

    fn reply(&mut self, id: MonitorConnId, reply: &CheckReply) {
        let _stale = self.monitor.handle_reply(self.now, id, reply);
    }

    fn failed(&mut self, id: MonitorConnId, cause: Cause) {
        let _stale = self.monitor.handle_failed(self.now, id, cause);
    }

    /// Applies the outcome, if there is one. Sometimes another input precedes it, or the topology
    /// disagrees.
    fn apply(&mut self, choices: &mut Bytes<'_>) {
        let Some(outcome) = self.monitor.outcome() else { return };
        match choices.below(128) {
            0 => self.monitor.cancel_check(self.reported),
            1 => self.monitor.close(self.reported),
            2 => self.monitor.request_check(self.reported),
            3 => self.report(MonitorConnKind::Check, choices),
            4 => self.report(MonitorConnKind::Rtt, choices),
            _ => {}
        }
        let good = matches!(outcome, CheckOutcome::Succeeded { .. });
        let known = good && choices.below(8) != 0;
        self.monitor.settle(self.reported, known);
    }

    /// Closes the monitor, and checks that nothing is left.
    fn end(mut self) -> Counts {
        self.monitor.close(self.now);
        self.take_actions();
        self.monitor.assert_over(self.now);
        self.monitor.seen()
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
        Cause::Cancelled,
        Cause::NetworkTimeout,
        Cause::Dns,
        Cause::Certificate(CertificateFault::Expired),
        Cause::Protocol,
        Cause::Resources,
        Cause::Command { code: 1 },
    ])
}
