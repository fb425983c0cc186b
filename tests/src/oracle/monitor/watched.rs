//! A monitor, its model and its oracle. Each call is applied to the monitor and to the model, and
//! everything observable is compared.

use super::{Counts, Oracle};
use crate::machines::monitor::Hosted;
use crate::model::monitor::{ModelAction, ModelMonitor, What};
use crate::reply::CheckReply;
use core::fmt::Debug;
use core::ops::Deref;
use core::time::Duration;
use poolhouse_core::monitor::{
    CheckOutcome, HelloKind, Monitor, MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind, MonitorEvent,
    MonitorState,
};
use poolhouse_core::{Cause, Instant, ServerId, Stale};

/// A [`Monitor`] with its model and its oracle. It has the methods of a monitor, and panics with
/// the id of a broken invariant.
#[derive(Clone, Debug)]
pub struct Watched {
    monitor: Hosted,
    model: ModelMonitor,
    oracle: Oracle,
    /// Events of this call so far.
    events: Vec<(Instant, MonitorEvent)>,
}

/// A call, which decides what invariant its events may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Start,
    Request,
    End,
    Settle { is_failed: bool },
    Report,
    Timeout,
    Poll,
}

impl Call {
    const fn of_events(self) -> &'static str {
        match self {
            Self::Start | Self::Report => "S2",
            Self::Request => "S5",
            Self::End => "S18",
            Self::Settle { is_failed: true } => "S6",
            Self::Settle { is_failed: false } => "S15",
            Self::Timeout => "S4",
            Self::Poll => "S21",
        }
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    None,
    /// Whether the report was of a current connection.
    Current(bool),
    Action(Option<ModelAction>),
}

/// Everything that is observable after a call.
#[derive(Clone, Debug)]
pub(super) struct Outputs {
    pub(super) answer: Answer,
    pub(super) events: Vec<(Instant, MonitorEvent)>,
    pub(super) state: MonitorState,
    pub(super) outcome: Option<CheckOutcome>,
    pub(super) streaming: bool,
    pub(super) due: Option<Instant>,
    /// The average of the round-trip times in nanoseconds, and their recent minimum.
    pub(super) round_trip: (Option<f64>, Duration),
}

impl Watched {
    /// [`Monitor::new`].
    #[must_use]
    pub fn new(server: ServerId, config: MonitorConfig) -> Self {
        Self {
            monitor: Hosted::new(Monitor::new(server, config)),
            model: ModelMonitor::new(server, config.options()),
            oracle: Oracle::default(),
            events: Vec::new(),
        }
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &ModelMonitor {
        &self.model
    }

    /// The counts so far.
    #[must_use]
    pub const fn seen(&self) -> Counts {
        Counts { measured: self.model.measured(), ..self.oracle.seen }
    }

    /// [`Monitor::start`].
    pub fn start(&mut self, now: Instant) {
        self.monitor.start(now, &mut self.events);
        self.model.start(now);
        self.judge(Call::Start, Answer::None, Answer::None);
    }

    /// [`Monitor::request_check`].
    pub fn request_check(&mut self, now: Instant) {
        self.monitor.request_check(now);
        self.model.request_check(now);
        self.judge(Call::Request, Answer::None, Answer::None);
    }

    /// [`Monitor::cancel_check`].
    pub fn cancel_check(&mut self, now: Instant) {
        self.monitor.cancel_check(now, &mut self.events);
        self.model.cancel_check(now);
        self.judge(Call::End, Answer::None, Answer::None);
    }

    /// [`Hosted::set_server_known`].
    pub fn set_server_known(&mut self, known: bool) {
        self.monitor.set_server_known(known);
        self.model.set_server_known(known);
        self.judge(Call::Poll, Answer::None, Answer::None);
    }

    /// [`Monitor::close`].
    pub fn close(&mut self, now: Instant) {
        self.monitor.close(now, &mut self.events);
        self.model.close(now);
        self.judge(Call::End, Answer::None, Answer::None);
    }

    /// [`Hosted::settle`].
    pub fn settle(&mut self, now: Instant, known: bool) {
        let is_failed = matches!(self.model.outcome(), Some(CheckOutcome::Failed { .. }));
        self.monitor.settle(now, known, &mut self.events);
        self.model.settle(now, known);
        self.judge(Call::Settle { is_failed }, Answer::None, Answer::None);
    }

    /// [`Monitor::handle_dialed`].
    pub fn handle_dialed(&mut self, now: Instant, conn: MonitorConnId) -> Result<(), Stale> {
        let was_known = self.model.is_known();
        let result = self.monitor.handle_dialed(now, conn, &mut self.events);
        let is_current = self.model.dialed(now, conn);
        self.judge_report(result, is_current, was_known)
    }

    /// [`Monitor::handle_reply`].
    pub fn handle_reply(&mut self, now: Instant, conn: MonitorConnId, reply: &CheckReply) -> Result<(), Stale> {
        let was_known = self.model.is_known();
        let result = self.monitor.handle_reply(now, conn, &reply.hello(), reply.matched(), &mut self.events);
        let is_current = self.model.reply(now, conn, reply);
        self.judge_report(result, is_current, was_known)
    }

    /// [`Monitor::handle_failed`].
    pub fn handle_failed(&mut self, now: Instant, conn: MonitorConnId, cause: Cause) -> Result<(), Stale> {
        let was_known = self.model.is_known();
        let result = self.monitor.handle_failed(now, conn, cause, &mut self.events);
        let is_current = self.model.failed(now, conn, cause);
        self.judge_report(result, is_current, was_known)
    }

    /// [`Monitor::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let was_known = self.model.is_known();
        self.monitor.handle_timeout(now, &mut self.events);
        self.model.timeout(now);
        self.judge_after(Call::Timeout, Answer::None, Answer::None, was_known);
        let is_due = self.monitor.poll_timeout().is_some_and(|due| due <= now);
        assert!(self.monitor.outcome().is_some() || !is_due, "S21: due work was not done");
    }

    /// [`Monitor::poll_action`].
    pub fn poll_action(&mut self, now: Instant) -> Option<MonitorAction> {
        let polled = self.monitor.poll_action(now);
        let expected = self.model.take_action(now);
        self.judge(Call::Poll, Answer::Action(polled.map(ModelAction::from)), Answer::Action(expected));
        polled
    }

    /// Checks that a closed monitor has nothing left.
    pub fn assert_over(&mut self, now: Instant) {
        self.oracle.assert_ended();
        assert_eq!(self.monitor.poll_timeout(), None, "S18: no timers after close");
        assert_eq!(self.poll_action(now), None, "S18: no action is owed after close");
    }

    fn judge_report(&mut self, result: Result<(), Stale>, is_current: bool, was_known: bool) -> Result<(), Stale> {
        self.oracle.seen.stale += u64::from(!is_current);
        self.judge_after(Call::Report, Answer::Current(result.is_ok()), Answer::Current(is_current), was_known);
        result
    }

    fn judge(&mut self, call: Call, actual: Answer, expected: Answer) {
        self.judge_after(call, actual, expected, false);
    }

    /// Compares the outputs of a call with those of the model, and passes the events to the oracle.
    ///
    /// - `was_known`: whether the server was known before the call.
    fn judge_after(&mut self, call: Call, answer: Answer, expected: Answer, was_known: bool) {
        let rtt = self.monitor.rtt();
        let average = rtt.average_femtos().map(|femtos| femtos as f64 / 1e6);
        let outputs = Outputs {
            answer,
            events: core::mem::take(&mut self.events),
            state: self.monitor.state(),
            outcome: self.monitor.outcome(),
            streaming: self.monitor.is_streaming(),
            due: self.monitor.poll_timeout(),
            round_trip: (average, rtt.minimum()),
        };
        #[cfg(test)]
        let outputs = super::tests::falsified::step(outputs);
        self.compare(call, &outputs, expected);
        for (now, event) in &outputs.events {
            self.oracle.event(*now, event, was_known);
        }
        self.monitor.assert_invariants();
    }

    fn compare(&mut self, call: Call, actual: &Outputs, expected: Answer) {
        let same = |id: &str, what: &str, actual: &dyn Debug, expected: &dyn Debug, is_same: bool| {
            assert!(is_same, "{id}: {what}: {actual:?}, in the model {expected:?}, in {call:?}");
        };
        let (events, model) = (core::mem::take(&mut self.model.events), &self.model);
        let id = match &events.first().or(actual.events.first()) {
            Some((_, MonitorEvent::HeartbeatFailed { cause: Cause::NetworkTimeout, .. })) => "S16",
            _ => call.of_events(),
        };
        same(id, "events", &actual.events, &events, actual.events == events);
        let id = match (actual.answer, expected) {
            (Answer::Action(actual), Answer::Action(expected)) => of_action(expected.or(actual)),
            _ => "S21",
        };
        same(id, "result", &actual.answer, &expected, actual.answer == expected);
        same("S2", "state", &actual.state, &model.state(), actual.state == model.state());
        same("S7", "outcome", &actual.outcome, &model.outcome(), actual.outcome == model.outcome());
        let streaming = model.is_streaming();
        same("S14", "streaming", &actual.streaming, &streaming, actual.streaming == streaming);
        let due = model.next_due();
        let id = match model.state() {
            _ if call == Call::Request => "S5",
            MonitorState::Waiting => "S4",
            MonitorState::Checking => "S16",
            MonitorState::Ended => "S7",
            MonitorState::New | MonitorState::Closed => "S18",
        };
        same(id, "next deadline", &actual.due, &due, actual.due == due);
        let (average, minimum) = model.round_trip();
        // The machine counts whole femtoseconds.
        let is_near = match (actual.round_trip.0, average) {
            (Some(actual), Some(average)) => (actual - average).abs() <= 1e-5 + average * 1e-12,
            (actual, average) => actual == average,
        };
        let is_same = is_near && actual.round_trip.1 == minimum;
        same("S13", "round-trip times", &actual.round_trip, &(average, minimum), is_same);
    }
}

/// The invariant that a wrong action breaks.
const fn of_action(expected: Option<ModelAction>) -> &'static str {
    match expected {
        None => "S21",
        Some(ModelAction { kind: MonitorConnKind::Rtt, .. }) => "S14",
        Some(ModelAction { what: What::Hangup, .. }) => "S18",
        Some(ModelAction { what: What::Hello(HelloKind::Handshake { .. }), .. }) => "S17",
        Some(ModelAction { what: What::Read | What::Hello(HelloKind::Awaitable { .. }), .. }) => "S15",
        Some(ModelAction { what: What::Dial | What::Hello(HelloKind::Poll { .. }), .. }) => "S1",
    }
}

/// The getters of the machine.
impl Deref for Watched {
    type Target = Hosted;

    fn deref(&self) -> &Hosted {
        &self.monitor
    }
}
