//! State of the oracle of a monitor: its phase, its connections, and their start times.

use super::lines::{Doing, Wiring};
use super::{Input, Outputs, Seen};
use crate::oracle::{Checks, Violation};
use core::time::Duration;
use poolhouse_core::monitor::{CheckOutcome, MonitorEvent, MonitorOptions, MonitorState, ServerMonitoringMode};
use poolhouse_core::{Cause, Instant, TopologyVersion};

pub(super) type Judged = Result<(), Violation>;

/// minHeartbeatFrequencyMS.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longer samples count as this.
const LONGEST: Duration = Duration::from_secs(3600);
/// The average is kept in this fraction of a nanosecond.
const PARTS: u128 = 1_000_000_000;

/// Checks one monitor. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) options: MonitorOptions,
    pub(super) now: Instant,
    pub(super) phase: Phase,
    pub(super) check: Wiring,
    pub(super) ping: Wiring,
    /// Time of the next RTT measurement.
    pub(super) ping_due: Option<Instant>,
    pub(super) ping_dialed: Option<Instant>,
    /// Deadline of the RTT connection when the server stopped streaming.
    pub(super) ping_left: Option<Instant>,
    pub(super) streaming: bool,
    pub(super) known: bool,
    pub(super) retried: Option<Instant>,
    /// The number of the newest connection.
    pub(super) newest: u64,
    average: Option<u128>,
    samples: Vec<Duration>,
}

/// Phase of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    New,
    Waiting { ended: Instant, due: Option<Instant>, asked: bool },
    Checking { awaited: bool },
    Settling { ended: Instant, outcome: CheckOutcome, next: Next },
    Closed,
}

/// Required action after a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    Wait(Duration),
    Retry,
    Read,
    Await(TopologyVersion),
}

/// State of the oracle within one step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    pub(super) was: Phase,
    pub(super) started: bool,
    pub(super) ended: bool,
    pub(super) reported: usize,
    /// The failure of the check connection that this call causes.
    pub(super) failure: Option<Cause>,
    /// The report was of a connection that was being dialed.
    pub(super) dialing: bool,
    /// Whether the report is of the current connection.
    pub(super) current: bool,
}

impl Oracle {
    /// Creates the oracle of a monitor with these options that has not started.
    #[must_use]
    pub const fn new(options: MonitorOptions) -> Self {
        Self {
            options,
            now: Instant::ORIGIN,
            phase: Phase::New,
            check: Wiring::NONE,
            ping: Wiring::NONE,
            ping_due: None,
            ping_dialed: None,
            ping_left: None,
            streaming: false,
            known: false,
            retried: None,
            newest: 0,
            average: None,
            samples: Vec::new(),
        }
    }

    /// Checks one step.
    ///
    /// - `now`: the time passed to the machine. A time before the last one is replaced by the last
    ///   one.
    ///
    /// # Errors
    ///
    /// The first broken invariant. The oracle must not be used after that.
    pub fn step(&mut self, now: Instant, input: Input, outputs: &Outputs<'_>, checks: &mut Checks) -> Judged {
        self.now = self.now.max(now);
        let mut scene = Scene {
            input,
            checks,
            was: self.phase,
            started: false,
            ended: false,
            reported: outputs.events.len(),
            failure: None,
            dialing: false,
            current: false,
        };
        self.apply_call(&mut scene);
        for (at, event) in outputs.events {
            let held = self.now;
            scene
                .checks
                .check("S21", *at == held, || format!("an event of {at:?} in a step at {held:?}: {event:?}"))?;
            self.event(event, &mut scene)?;
        }
        self.result(&outputs.answer, &mut scene)?;
        match outputs.seen {
            Some(seen) => self.at_rest(&seen, &mut scene),
            None => Ok(()),
        }
    }

    pub(super) const fn may_stream(&self) -> bool {
        match self.options.server_monitoring_mode {
            ServerMonitoringMode::Auto => !self.options.is_faas,
            ServerMonitoringMode::Stream => true,
            ServerMonitoringMode::Poll => false,
        }
    }

    /// Deadline of an operation that begins now. The end of time is no limit.
    pub(super) fn limit(&self, awaited: bool) -> Option<Instant> {
        let limit = self.options.connect_timeout?;
        self.after(self.now, if awaited { limit + self.options.heartbeat_frequency } else { limit })
    }

    pub(super) fn after(&self, start: Instant, duration: Duration) -> Option<Instant> {
        Some(start.saturating_add(duration)).filter(|at| *at < Instant::MAX)
    }

    /// A check begins or ends.
    fn event(&mut self, event: &MonitorEvent, scene: &mut Scene<'_>) -> Judged {
        match *event {
            MonitorEvent::HeartbeatStarted { id, awaited } => self.started(id.connection, awaited, scene),
            MonitorEvent::HeartbeatSucceeded { awaited, duration, .. } => self.ended(awaited, duration, None, scene),
            MonitorEvent::HeartbeatFailed { awaited, duration, cause, .. } => {
                self.ended(awaited, duration, Some(cause), scene)
            }
            _ => Ok(()),
        }
    }

    fn started(&mut self, number: u64, awaited: bool, scene: &mut Scene<'_>) -> Judged {
        let busy = matches!(self.phase, Phase::Checking { .. });
        scene.checks.check("S1", !busy, || "a second check begins during a check".into())?;
        scene.checks.check("S18", self.phase != Phase::Closed, || "a check begins after the end".into())?;
        match self.phase {
            Phase::Waiting { ended, due, asked } => {
                let soonest = ended.saturating_add(PAUSE_MIN);
                let now = self.now;
                scene.checks.check("S3", now >= soonest, || format!("begun at {now:?}, ended at {ended:?}"))?;
                let id = if asked { "S5" } else { "S4" };
                scene
                    .checks
                    .check(id, due.is_some_and(|due| due <= now), || format!("begun at {now:?}, due at {due:?}"))?;
                scene.checks.check("S3", !awaited, || "awaited after a pause".into())?;
            }
            Phase::Settling { next, .. } => match next {
                Next::Retry => scene.checks.check("S6", !awaited, || "a retry that is awaited".into())?,
                Next::Read | Next::Await(_) => {
                    scene.checks.check("S15", awaited, || "the next check of a stream is not awaited".into())?;
                }
                Next::Wait(_) => {
                    let is_failed =
                        !matches!(scene.was, Phase::Settling { outcome: CheckOutcome::Succeeded { .. }, .. });
                    let id = if is_failed { "S6" } else { "S3" };
                    return scene.checks.check(id, false, || "a check follows at once".into());
                }
            },
            Phase::New | Phase::Checking { .. } | Phase::Closed => {}
        }
        scene.started = true;
        self.begin(number, awaited, scene)?;
        self.phase = Phase::Checking { awaited };
        Ok(())
    }

    fn ended(&mut self, awaited: bool, duration: Duration, cause: Option<Cause>, scene: &mut Scene<'_>) -> Judged {
        let Phase::Checking { awaited: started } = self.phase else {
            return scene.checks.check("S2", false, || "a check ends that has not begun".into());
        };
        scene
            .checks
            .check("S2", awaited == started && !scene.ended, || format!("awaited {started}, and then {awaited}"))?;
        let passed = self.now.saturating_since(self.check.since);
        scene.checks.check("S2", duration == passed, || {
            format!("the event reports {duration:?}, but {passed:?} have passed")
        })?;
        let expected = match scene.input {
            Input::Cancel => Some(Cause::Cancelled),
            Input::Close => Some(Cause::Closed),
            Input::Reply(..) | Input::Failed(..) | Input::Timeout | Input::Dialed(_) => scene.failure,
            _ => return scene.checks.check("S2", false, || format!("a check ends by {:?}", scene.input)),
        };
        let id = match (expected, scene.input) {
            (Some(Cause::NetworkTimeout), _) | (_, Input::Timeout) => "S16",
            (_, Input::Cancel | Input::Close) => "S18",
            (Some(Cause::Protocol), _) => "S15",
            _ => "S2",
        };
        scene
            .checks
            .check(id, cause == expected, || format!("it failed by {expected:?}, but the event reports {cause:?}"))?;
        scene.ended = true;
        let ended = self.now;
        let Some(cause) = cause else {
            self.succeed(awaited, duration, scene);
            return Ok(());
        };
        let was_known = core::mem::replace(&mut self.known, false);
        let was_retried = self.retried.is_some_and(|at| self.now.saturating_since(at) < PAUSE_MIN);
        let frequency = self.options.heartbeat_frequency;
        self.hang_up_all();
        if scene.input != Input::Close {
            self.forget_samples();
        }
        self.phase = match scene.input {
            Input::Cancel => Phase::Waiting { ended, due: self.after(ended, frequency), asked: false },
            Input::Close => Phase::Closed,
            _ => {
                let is_network = matches!(cause, Cause::Network | Cause::NetworkTimeout) && was_known;
                let next = match (is_network, was_retried) {
                    (false, _) => Next::Wait(frequency),
                    (true, true) => Next::Wait(PAUSE_MIN),
                    (true, false) => Next::Retry,
                };
                let outcome = CheckOutcome::Failed { cause, interrupt: cause == Cause::NetworkTimeout };
                Phase::Settling { ended, outcome, next }
            }
        };
        Ok(())
    }

    fn succeed(&mut self, awaited: bool, duration: Duration, scene: &Scene<'_>) {
        let Input::Reply(_, reply) = scene.input else { return };
        self.check.answered(&reply);
        if !awaited {
            self.add_sample(duration);
        }
        let next = match reply.topology_version {
            _ if !self.may_stream() => Next::Wait(self.options.heartbeat_frequency),
            _ if reply.more_to_come => Next::Read,
            Some(version) => Next::Await(version),
            None => Next::Wait(self.options.heartbeat_frequency),
        };
        if matches!(next, Next::Wait(_)) {
            self.stop_streaming();
        }
        let outcome = CheckOutcome::Succeeded { awaited, sample: (!awaited).then_some(duration) };
        self.phase = Phase::Settling { ended: self.now, outcome, next };
    }

    pub(super) fn add_sample(&mut self, sample: Duration) {
        let sample = sample.min(LONGEST);
        let parts = sample.as_nanos() * PARTS;
        self.average = Some(self.average.map_or(parts, |average| (parts + 4 * average) / 5));
        if self.samples.len() == 10 {
            self.samples.remove(0);
        }
        self.samples.push(sample);
    }

    pub(super) fn forget_samples(&mut self) {
        self.average = None;
        self.samples.clear();
    }

    fn at_rest(&self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        let (state, outcome) = match self.phase {
            Phase::New => (MonitorState::New, None),
            Phase::Waiting { .. } => (MonitorState::Waiting, None),
            Phase::Checking { .. } => (MonitorState::Checking, None),
            Phase::Settling { outcome, .. } => (MonitorState::Ended, Some(outcome)),
            Phase::Closed => (MonitorState::Closed, None),
        };
        scene.checks.check("S2", seen.state == state, || {
            format!("the getter returns {:?}, the events imply {state:?}", seen.state)
        })?;
        scene.checks.check("S7", seen.outcome == outcome, || {
            format!("the getter returns {:?}, but {outcome:?} is due", seen.outcome)
        })?;
        let streams = self.streaming;
        scene
            .checks
            .check("S14", seen.streaming == streams, || format!("streams: {}, not {streams}", seen.streaming))?;
        let reported = seen.average.map(|average| average.as_nanos() * PARTS);
        let is_near = match (reported, self.average) {
            (Some(reported), Some(own)) => reported.abs_diff(own) <= PARTS,
            (reported, own) => reported == own,
        };
        scene
            .checks
            .check("S13", is_near, || format!("{:?} in the mean, not {:?} parts", seen.average, self.average))?;
        let minimum = match self.samples.as_slice() {
            [] | [_] => Duration::ZERO,
            more => more.iter().min().copied().unwrap_or_default(),
        };
        scene
            .checks
            .check("S13", seen.minimum == minimum, || format!("{:?} at least, not {minimum:?}", seen.minimum))?;
        let (check, id) = match self.phase {
            Phase::Waiting { due, asked, .. } => (due, if asked { "S5" } else { "S4" }),
            Phase::Checking { .. } => (self.check.deadline, "S16"),
            Phase::New => (None, "S21"),
            Phase::Settling { ended, .. } => (Some(ended), "S21"),
            Phase::Closed => (None, "S18"),
        };
        let due = [check, self.ping.deadline, self.ping_due].into_iter().flatten().min();
        let is_line_left = !streams && seen.timeout.is_some() && seen.timeout == self.ping_left;
        let id = if is_line_left && seen.timeout != due { "S14" } else { id };
        scene.checks.check(id, seen.timeout == due, || {
            format!("due is {due:?}, but poll_timeout returns {:?}", seen.timeout)
        })?;
        scene.checks.add("S21");
        if scene.input == Input::Timeout {
            let is_settling = matches!(self.phase, Phase::Settling { .. });
            let is_left = !is_settling && seen.timeout.is_some_and(|at| at <= self.now);
            scene.checks.check("S21", !is_left, || "something is due after handle_timeout".into())?;
        }
        Ok(())
    }

    /// Whether the operation of a monitor connection has exceeded its deadline.
    pub(super) fn is_late(&self, wiring: Wiring) -> bool {
        wiring.deadline.is_some_and(|at| at <= self.now) && wiring.doing != Doing::Nothing
    }
}
