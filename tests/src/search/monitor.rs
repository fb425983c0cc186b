//! The monitor: a server that may send any reply at any time, and an application that requests
//! checks, cancels and closes.

use super::{Figures, Limits, Scope, Stopped, search};
use crate::canon::Canon;
use crate::oracle::Checks;
use crate::oracle::monitor::{Counts, Watched};
use crate::reply::CheckReply;
use core::hash::Hash;
use core::time::Duration;
use poolhouse_core::monitor::{
    CheckOutcome, Monitor, MonitorAction, MonitorConnId, MonitorConnKind, MonitorOptions, MonitorState,
    ServerMonitoringMode,
};
use poolhouse_core::{Cause, Instant, ObjectId, ServerId, TopologyVersion};

/// A scope of the monitor.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// Whether the server may stream.
    pub mode: ServerMonitoringMode,
    /// heartbeatFrequencyMS and connectTimeoutMS, in ticks of 250 ms.
    pub ticks: [u32; 2],
    /// Largest number of steps; `None`: unlimited.
    pub depth: Option<u32>,
    /// The situations that must be reached.
    pub reaches: u64,
}

/// A tick: half of minHeartbeatFrequencyMS.
const TICK: Duration = Duration::from_millis(250);

/// Four ticks, in nanoseconds: older times count as equal.
const HORIZON: u64 = 1_000_000_000;

/// The situations that searches must reach.
mod mark {
    pub(super) const STREAMED: u64 = 1;
    pub(super) const TIMEOUT: u64 = 1 << 1;
    pub(super) const CANCELLED: u64 = 1 << 2;
    pub(super) const CLOSED: u64 = 1 << 3;
    pub(super) const RETRY: u64 = 1 << 4;
    pub(super) const STALE: u64 = 1 << 5;
    pub(super) const MEASURED: u64 = 1 << 6;
    pub(super) const FAILED: u64 = 1 << 7;
    pub(super) const SERVER: u64 = TIMEOUT | CANCELLED | CLOSED | RETRY | STALE | FAILED;
    pub(super) const NAMES: [&str; 8] = [
        "a streamed reply",
        "a timeout",
        "a check cancelled",
        "a check closed",
        "a retry at once",
        "stale news",
        "a measurement",
        "a failed check",
    ];
}

/// The scopes.
#[must_use]
pub fn scopes() -> Vec<Shape> {
    let shape = |name, mode, ticks, reaches| Shape { name, mode, ticks, depth: None, reaches };
    vec![
        shape("polling", ServerMonitoringMode::Poll, [4, 2], mark::SERVER),
        shape("polling, without a limit", ServerMonitoringMode::Poll, [3, 0], mark::SERVER & !mark::TIMEOUT),
        shape("streaming", ServerMonitoringMode::Stream, [3, 2], mark::SERVER | mark::STREAMED | mark::MEASURED),
    ]
}

impl Shape {
    /// Runs the search.
    pub fn run(&self) -> Result<Figures, Stopped> {
        search(self, Limits { depth: self.depth, ..Limits::all(2_000_000) })
    }

    fn options(&self) -> MonitorOptions {
        let [heartbeat, connect] = self.ticks.map(|ticks| TICK * ticks);
        MonitorOptions {
            heartbeat_frequency: heartbeat,
            connect_timeout: Some(connect).filter(|limit| !limit.is_zero()),
            server_monitoring_mode: self.mode,
            ..MonitorOptions::DEFAULT
        }
    }
}

/// A reply of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A successful reply without a topologyVersion.
    Plain,
    /// A reply with a topologyVersion of this counter: newer, older or equal.
    Version(i64),
    /// The same, with moreToCome.
    More(i64),
    /// An error.
    NotOk,
}

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The monitor starts.
    Start,
    /// A check is requested.
    Request,
    /// An application's connection has failed.
    Cancel,
    /// The monitor is closed.
    Close,
    /// A tick after which the monitor is called.
    Tick,
    /// The driver takes an effect.
    Take,
    /// The connection is established.
    Dialed(MonitorConnKind),
    /// A reply, and whether the server is known after it.
    Reply(MonitorConnKind, Answer, bool),
    /// The connection fails.
    Failed(MonitorConnKind, Cause),
    /// A result for a connection that was abandoned.
    Late(MonitorConnKind),
}

/// A monitor, and the state of the simulated driver.
#[derive(Clone, Debug)]
pub struct State {
    /// Its oracle is not part of the state: it checks each step against the preceding ones.
    monitor: Watched,
    now: Instant,
    /// The current monitor connection of each kind, and the previous one.
    lines: [Option<MonitorConnId>; 2],
    before: [Option<MonitorConnId>; 2],
    marks: u64,
}

const fn place(kind: MonitorConnKind) -> usize {
    match kind {
        MonitorConnKind::Check => 0,
        MonitorConnKind::Rtt => 1,
    }
}

const fn reply(answer: Answer) -> CheckReply {
    match answer {
        Answer::Plain => CheckReply::OK,
        Answer::Version(counter) => CheckReply { topology_version: version_of(counter), ..CheckReply::OK },
        Answer::More(counter) => {
            CheckReply { topology_version: version_of(counter), more_to_come: true, ..CheckReply::OK }
        }
        Answer::NotOk => CheckReply { ok: false, code: 91, ..CheckReply::OK },
    }
}

const fn version_of(counter: i64) -> Option<TopologyVersion> {
    Some(TopologyVersion { process_id: ObjectId([1; 12]), counter })
}

impl Scope for Shape {
    type State = State;
    type Input = Input;

    fn start(&self) -> State {
        let options = self.options();
        let server = ServerId::new(1);
        State {
            monitor: Watched::new(server, options.validate().expect("the options of a scope are valid")),
            now: Instant::from_nanos(1_000_000_000),
            lines: [None; 2],
            before: [None; 2],
            marks: 0,
        }
    }

    fn inputs(&self, state: &State, inputs: &mut Vec<Input>) {
        match state.monitor.state() {
            MonitorState::New => inputs.push(Input::Start),
            MonitorState::Closed => {}
            MonitorState::Waiting | MonitorState::Checking | MonitorState::Ended => {
                inputs.extend([Input::Request, Input::Cancel, Input::Tick, Input::Close]);
            }
        }
        if [MonitorConnKind::Check, MonitorConnKind::Rtt].into_iter().any(|line| state.monitor.owes_conn(line)) {
            inputs.push(Input::Take);
        }
        for conn in [MonitorConnKind::Check, MonitorConnKind::Rtt] {
            if state.before[place(conn)].is_some() {
                inputs.push(Input::Late(conn));
            }
            let Some(id) = state.lines[place(conn)] else { continue };
            inputs.extend([Cause::Network, Cause::NetworkTimeout, Cause::Dns].map(|cause| Input::Failed(conn, cause)));
            match state.monitor.model().waits_for_reply(id) {
                Some(false) => inputs.push(Input::Dialed(conn)),
                // An unsolicited reply violates the protocol, regardless of its content.
                None => inputs.push(Input::Reply(conn, Answer::Plain, true)),
                Some(true) => {
                    let answers = [Answer::Plain, Answer::Version(1), Answer::Version(2), Answer::More(2)];
                    inputs.extend(answers.map(|answer| Input::Reply(conn, answer, true)));
                    inputs.extend([Answer::Plain, Answer::More(1)].map(|answer| Input::Reply(conn, answer, false)));
                    inputs.push(Input::Reply(conn, Answer::NotOk, false));
                }
            }
        }
    }

    fn step(&self, state: &mut State, input: Input) {
        let seen = state.monitor.seen();
        let mut known = false;
        match input {
            Input::Start => state.monitor.start(state.now),
            Input::Request => state.monitor.request_check(state.now),
            Input::Cancel => state.monitor.cancel_check(state.now),
            Input::Close => state.monitor.close(state.now),
            Input::Tick => {
                state.now = state.now.saturating_add(TICK);
                state.monitor.handle_timeout(state.now);
            }
            Input::Take => state.take(),
            Input::Dialed(conn) => {
                let id = state.lines[place(conn)].expect("the host has a connection");
                let _stale = state.monitor.handle_dialed(state.now, id);
            }
            Input::Reply(conn, answer, is_known) => {
                known = is_known;
                let id = state.lines[place(conn)].expect("the host has a connection");
                let _stale = state.monitor.handle_reply(state.now, id, &reply(answer));
            }
            Input::Failed(conn, cause) => {
                let id = state.lines[place(conn)].expect("the host has a connection");
                // After a failed dial there is no connection to close.
                if state.monitor.model().waits_for_reply(id) == Some(false) {
                    state.before[place(conn)] = state.lines[place(conn)].take();
                }
                let _stale = state.monitor.handle_failed(state.now, id, cause);
            }
            Input::Late(conn) => {
                let id = state.before[place(conn)].expect("the host had a connection");
                let before = state.monitor.clone();
                let _stale = state.monitor.handle_failed(state.now, id, Cause::Network);
                assert_eq!(*before, *state.monitor, "a stale report changes nothing");
            }
        }
        state.apply(known);
        state.mark(&seen);
    }

    fn print(&self, state: &State) -> u128 {
        let mut canon = Canon::new(state.now.as_nanos(), HORIZON, None);
        let monitor: &Monitor = state.monitor.monitor();
        (monitor, state.monitor.is_known()).hash(&mut canon);
        let is_there = |id: &Option<MonitorConnId>| id.is_some();
        (state.lines.each_ref().map(is_there), state.before.each_ref().map(is_there)).hash(&mut canon);
        // For a connection that the monitor has abandoned, and the driver has not yet closed.
        let news = state.lines.map(|id| id.and_then(|id| state.monitor.model().waits_for_reply(id)));
        news.hash(&mut canon);
        canon.print()
    }

    fn marks(&self, state: &State) -> u64 {
        state.marks
    }

    fn take_checks(&self, _state: &mut State) -> Option<Checks> {
        None
    }

    fn reaches(&self) -> Vec<(u64, &'static str)> {
        let bits = (0..).map(|bit| 1 << bit);
        bits.zip(mark::NAMES).filter(|(bit, _)| self.reaches & bit != 0).collect()
    }

    fn end(&self, mut state: State) {
        state.monitor.close(state.now);
        while state.monitor.owes_conn(MonitorConnKind::Check) || state.monitor.owes_conn(MonitorConnKind::Rtt) {
            state.take();
        }
        state.monitor.assert_over(state.now);
        assert_eq!(state.lines, [None; 2], "S18: no connection is left after close");
    }
}

impl State {
    /// The driver takes one effect.
    fn take(&mut self) {
        match self.monitor.poll_action(self.now) {
            Some(MonitorAction::Dial(id)) => self.lines[place(id.kind())] = Some(id),
            Some(MonitorAction::Hangup(id)) => {
                let kept = &mut self.lines[place(id.kind())];
                assert_eq!(*kept, Some(id), "the closed connection is not that of the host");
                self.before[place(id.kind())] = kept.take();
            }
            Some(MonitorAction::SendHello { conn, .. } | MonitorAction::ReadNext { conn }) => {
                assert_eq!(self.lines[place(conn.kind())], Some(conn), "the action must be for the host's connection");
            }
            None => panic!("an action is owed"),
        }
    }

    /// Applies the outcome of a check, if there is one.
    fn apply(&mut self, known: bool) {
        let Some(outcome) = self.monitor.outcome() else { return };
        let known = known && matches!(outcome, CheckOutcome::Succeeded { .. });
        self.monitor.settle(self.now, known);
    }

    fn mark(&mut self, before: &Counts) {
        let seen = self.monitor.seen();
        let bits = [
            (mark::STREAMED, seen.streamed > before.streamed),
            (mark::TIMEOUT, seen.timeouts > before.timeouts),
            (mark::CANCELLED, seen.cancelled > before.cancelled),
            (mark::CLOSED, seen.closed > before.closed),
            (mark::RETRY, seen.retries > before.retries),
            (mark::STALE, seen.stale > before.stale),
            (mark::MEASURED, seen.measured > 0),
            (mark::FAILED, seen.failed > before.failed),
        ];
        self.marks = bits.into_iter().filter(|(_, is_seen)| *is_seen).map(|(bit, _)| bit).sum();
    }
}
