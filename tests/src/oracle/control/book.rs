//! State of the oracle of a control machine: the properties of each server, its checks, and the
//! actions on its pool.

use super::{Answer, Event, Input, Looks, Outputs};
use crate::oracle::monitor::Action;
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::{MonitorConnKind, MonitorEvent};
use poolhouse_core::topology::{PoolCommand, TopologyType};
use poolhouse_core::{Cause, Instant, ServerId};

pub(super) type Judged = Result<(), Violation>;

/// minHeartbeatFrequencyMS.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Checks one control machine. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) now: Instant,
    pub(super) servers: BTreeMap<ServerId, Server>,
    pub(super) topology: TopologyType,
    pub(super) closed: bool,
    /// A check has ended, and selectors have not been woken for it yet.
    wake: bool,
    /// Selectors were woken. No other action may follow.
    woken: bool,
    /// The host has taken all actions after each call, so the state between two calls can be
    /// checked.
    prompt: bool,
    /// All actions have been taken.
    drained: bool,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) looks: Looks,
    /// It is a member according to the events.
    pub(super) open: bool,
    pub(super) added: bool,
    /// Its pool is ready.
    pub(super) ready: bool,
    /// The causes for which its pool must be cleared.
    clear: Vec<Cause>,
    /// The check in flight, and whether it is awaited.
    pub(super) beat: Option<bool>,
    /// The time and the result of the last check.
    ended: Option<(Instant, Option<Cause>)>,
    was_known: bool,
    retried: Option<Instant>,
    dials: VecDeque<Instant>,
}

/// State of the oracle within one step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    /// Servers with a check that ended, and the cause of its failure.
    pub(super) ended: Vec<(ServerId, Option<Cause>)>,
    /// Servers with a changed description.
    pub(super) changed: Vec<ServerId>,
    pub(super) reported: usize,
    /// Properties, before the call, of the server that the call concerns.
    pub(super) was: Option<Looks>,
    pub(super) was_beating: bool,
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

impl Oracle {
    /// Creates the oracle of a machine that is created next.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            now: Instant::ORIGIN,
            servers: BTreeMap::new(),
            topology: TopologyType::Unknown,
            closed: false,
            wake: false,
            woken: false,
            prompt: true,
            drained: true,
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
        let about = match input {
            Input::Dialed(server) | Input::Reply(server, _) | Input::Failed(server, _) => Some(server),
            Input::Hello(server, _) | Input::Error(server, _) | Input::PollConn(server, _) => Some(server),
            _ => None,
        };
        let server = about.and_then(|server| self.servers.get(&server)).filter(|server| server.open);
        let mut scene = Scene {
            input,
            checks,
            ended: Vec::new(),
            changed: Vec::new(),
            reported: outputs.events.len(),
            was: server.map(|server| server.looks),
            was_beating: server.is_some_and(|server| server.beat.is_some()),
        };
        if !matches!(input, Input::Poll | Input::PollConn(..)) {
            // A call before all actions are taken makes the state between calls incomplete.
            self.prompt &= self.drained;
            self.drained = false;
            self.woken = false;
        }
        for (at, event) in outputs.events {
            let held = self.now;
            scene
                .checks
                .check("S21", *at <= held, || format!("an event of {at:?} in a step at {held:?}: {event:?}"))?;
            self.event(event, &mut scene)?;
        }
        self.topology = outputs.seen.topology;
        self.result(&outputs.answer, &mut scene)?;
        self.after_checks(&mut scene)?;
        if input == Input::Timeout {
            let left = outputs.seen.timeout.filter(|at| *at <= self.now);
            scene.checks.check("S21", left.is_none(), || format!("due at {left:?} after handle_timeout"))?;
        }
        if self.closed {
            let due = outputs.seen.timeout;
            scene.checks.check("S18", due.is_none(), || format!("due at {due:?} after the end"))?;
            let beating = self.servers.values().any(|server| server.beat.is_some());
            scene.checks.check("S18", !beating, || "a check has not ended".into())?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, scene: &mut Scene<'_>) -> Judged {
        scene.checks.check("S21", !self.closed, || format!("{event:?} after the last event"))?;
        match *event {
            Event::Opened(id) => {
                let server = self.servers.entry(id).or_default();
                scene.checks.check("S21", !server.open, || format!("{id:?} was opened twice"))?;
                server.open = true;
            }
            Event::Changed(id, looks) => {
                let server = self.servers.entry(id).or_default();
                scene.checks.check("S21", server.open, || format!("{id:?} changes, but is not a member"))?;
                server.looks = looks;
                scene.changed.push(id);
            }
            Event::Closed(id) => {
                let server = self.servers.entry(id).or_default();
                scene.checks.check("S21", server.open, || format!("{id:?} closes, but is not a member"))?;
                server.open = false;
                server.looks = Looks::default();
            }
            Event::Ended => self.closed = true,
            Event::Other => {}
            Event::Beat(beat) => self.beat(&beat, scene)?,
        }
        Ok(())
    }

    fn beat(&mut self, event: &MonitorEvent, scene: &mut Scene<'_>) -> Judged {
        let (id, now) = (event.id().server, self.now);
        let server = self.servers.entry(id).or_default();
        let (awaited, cause) = match *event {
            MonitorEvent::HeartbeatStarted { awaited, .. } => {
                scene.checks.check("S1", server.beat.is_none(), || format!("two checks of {id:?} at once"))?;
                server.beat = Some(awaited);
                return server.is_in_time(now, awaited, scene);
            }
            MonitorEvent::HeartbeatSucceeded { awaited, .. } => (awaited, None),
            MonitorEvent::HeartbeatFailed { awaited, cause, .. } => (awaited, Some(cause)),
            _ => return Ok(()),
        };
        let started = server.beat.take();
        scene.checks.check("S2", started == Some(awaited), || {
            format!("a check with awaited {started:?} began, one with awaited {awaited} ends")
        })?;
        server.ended = Some((now, cause));
        server.was_known = server.looks.known;
        let is_given_up = matches!(cause, Some(Cause::Cancelled | Cause::Closed));
        if !is_given_up {
            self.wake = true;
            scene.ended.push((id, cause));
            server.clear.extend(cause);
        }
        Ok(())
    }

    /// Checks the changes that the end of a check must cause within its step.
    fn after_checks(&self, scene: &mut Scene<'_>) -> Judged {
        for (id, cause) in &scene.ended {
            let Some(server) = self.servers.get(id).filter(|server| server.open) else { continue };
            if cause.is_some() {
                scene.checks.check("S7", !server.looks.known, || format!("{id:?} failed, but is known"))?;
            } else if let Input::Reply(_, Some(version)) = scene.input {
                let known = scene.was.and_then(|was| was.version);
                let is_older = known
                    .is_some_and(|known| known.process_id == version.process_id && version.counter < known.counter);
                let is_changed = scene.changed.contains(id);
                scene
                    .checks
                    .check("S9", !(is_older && is_changed), || format!("{version:?} was applied after {known:?}"))?;
            }
        }
        if let Input::Hello(id, Some(version)) = scene.input {
            let known = scene.was.and_then(|was| was.version);
            let is_older =
                known.is_some_and(|known| known.process_id == version.process_id && version.counter < known.counter);
            let is_changed = scene.changed.contains(&id);
            scene
                .checks
                .check("S9", !(is_older && is_changed), || format!("{version:?} was applied after {known:?}"))?;
        }
        Ok(())
    }

    fn result(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Judged {
        match (scene.input, answer) {
            (Input::Dialed(_) | Input::Reply(..) | Input::Failed(..), Answer::Stale) => {
                let reported = scene.reported;
                scene.checks.check("S21", reported == 0, || format!("a stale report caused {reported} events"))
            }
            (Input::Error(id, fault), Answer::Verdict(verdict)) => self.verdict(id, &fault, verdict, scene),
            (Input::Poll, Answer::Action(action)) => match action {
                Some(action) => self.polled(action, scene),
                None => self.at_rest(scene),
            },
            (Input::PollConn(id, MonitorConnKind::Check), Answer::MonitorAction(Some(Action::Dial(_)))) => {
                let now = self.now;
                let server = self.servers.entry(id).or_default();
                server.dials.push_back(now);
                if server.dials.len() < 3 {
                    return Ok(());
                }
                let first = server.dials.pop_front().unwrap_or(now);
                let span = now.saturating_since(first);
                scene.checks.check("S20", span >= PAUSE_MIN, || format!("three dials of {id:?} in {span:?}"))
            }
            (Input::PollConn(id, _), Answer::MonitorAction(Some(action))) => {
                let is_open = self.servers.get(&id).is_some_and(|server| server.open);
                let may = is_open || matches!(action, Action::Hangup(_));
                scene.checks.check("S18", may, || format!("{id:?} was removed, but owes {action:?}"))
            }
            _ => Ok(()),
        }
    }

    fn polled(&mut self, action: &ControlAction, scene: &mut Scene<'_>) -> Judged {
        let was_woken = self.woken;
        scene.checks.check("S8", !was_woken, || format!("{action:?} after selectors were woken"))?;
        let (prompt, is_single) = (self.prompt, self.topology == TopologyType::Single);
        match *action {
            ControlAction::ServerAdded(id) => {
                let server = self.servers.entry(id).or_default();
                scene.checks.check("S21", !server.added, || format!("{id:?} is added twice"))?;
                server.added = true;
                Ok(())
            }
            ControlAction::ServerRemoved(id) => {
                let was = self.servers.remove(&id);
                let is_right = was.is_some_and(|server| server.added && !server.open);
                scene.checks.check("S21", is_right, || format!("{id:?} is removed"))
            }
            ControlAction::WakeSelectors => {
                self.woken = true;
                self.wake = false;
                Ok(())
            }
            ControlAction::Pool(id, PoolCommand::Ready) => {
                let server = self.servers.entry(id).or_default();
                let suits = server.looks.data || (is_single && server.looks.known) || (!prompt && server.looks.known);
                scene.checks.check("S8", suits && server.added, || {
                    format!("a pool must not be ready for {id:?}: {:?}", server.looks)
                })?;
                server.ready = true;
                Ok(())
            }
            ControlAction::Pool(id, PoolCommand::Clear { interrupt_in_use_connections, cause }) => {
                let server = self.servers.entry(id).or_default();
                let is_timeout = server.clear.contains(&Cause::NetworkTimeout);
                let is_owed = server.clear.contains(&cause);
                scene.checks.check("S7", is_owed, || format!("{id:?} is cleared for {cause:?}"))?;
                scene.checks.check("S7", interrupt_in_use_connections == is_timeout, || {
                    format!("interrupts: {interrupt_in_use_connections}, causes {:?}", server.clear)
                })?;
                let is_after = !server.looks.known || !prompt;
                scene.checks.check("S7", is_after, || format!("{id:?} is cleared, but still known"))?;
                server.clear.clear();
                server.ready = false;
                Ok(())
            }
        }
    }

    /// All actions are taken: descriptions and pools must agree.
    fn at_rest(&mut self, scene: &mut Scene<'_>) -> Judged {
        self.drained = true;
        let is_left = self.wake && !self.closed;
        scene.checks.check("S8", !is_left, || "a check has ended, but selectors are not woken".into())?;
        self.wake = false;
        if self.closed || self.topology == TopologyType::LoadBalanced {
            return Ok(());
        }
        let is_single = self.topology == TopologyType::Single;
        for (id, server) in self.servers.iter().filter(|(_, server)| server.open && server.added) {
            let owed = &server.clear;
            scene.checks.check("S7", owed.is_empty(), || format!("{id:?} failed by {owed:?}, but is not cleared"))?;
            let looks = &server.looks;
            let must = looks.data || (is_single && looks.known);
            scene.checks.check("S8", !must || server.ready, || format!("{id:?} is {looks:?}, its pool paused"))?;
            scene
                .checks
                .check("S7", !(looks.failed && server.ready), || format!("{id:?} is {looks:?}, its pool ready"))?;
        }
        Ok(())
    }
}

impl Server {
    /// A check must not begin before it is due.
    fn is_in_time(&mut self, now: Instant, awaited: bool, scene: &mut Scene<'_>) -> Judged {
        let Some((ended, cause)) = self.ended else {
            return scene.checks.check("S3", !awaited, || "the first check is awaited".into());
        };
        if awaited {
            let follows = ended == now && cause.is_none();
            return scene.checks.check("S3", follows, || format!("awaited at {now:?}, after {cause:?} at {ended:?}"));
        }
        scene.checks.add("S3");
        if now.saturating_since(ended) >= PAUSE_MIN {
            return Ok(());
        }
        let is_network = matches!(cause, Some(Cause::Network | Cause::NetworkTimeout));
        scene.checks.check("S3", is_network, || format!("at {now:?}, after {cause:?} at {ended:?}"))?;
        let last = self.retried.replace(now);
        let is_first = self.was_known && last.is_none_or(|last| now.saturating_since(last) >= PAUSE_MIN);
        scene.checks.check("S6", is_first, || format!("retried at {now:?} and {last:?}, known: {}", self.was_known))
    }
}
