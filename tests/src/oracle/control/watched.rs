//! A control machine with an oracle that checks each call.

use super::{Answer, Event, Fault, Input, Oracle, Outputs, Seen};
use crate::oracle::Checks;
use crate::oracle::monitor::Action;
use core::ops::Deref;
use poolhouse_core::control::{Control, ControlAction, ControlObserver};
use poolhouse_core::monitor::{MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind, MonitorEvent};
use poolhouse_core::observe::EventContext;
use poolhouse_core::storage::Full;
use poolhouse_core::topology::{AppError, Memory, SdamEvent, TopologyConfig, TopologyId, Verdict};
use poolhouse_core::{Cause, Instant, Observer, ServerId, Stale};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// A [`Control`] and its oracle. It has the methods of a control machine, and panics with the id of
/// a broken invariant.
pub struct Watched<M: Memory> {
    control: Control<M>,
    oracle: Oracle,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, Event)>,
}

/// Passes events to the oracle and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, Event)>,
    observer: &'t mut O,
}

impl<O: Observer<MonitorEvent>> Observer<MonitorEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        self.events.push((now, Event::Beat(*event)));
        self.observer.on_event(now, event);
    }

    fn on_event_in(&mut self, now: Instant, event: &MonitorEvent, context: &EventContext<'_>) {
        self.events.push((now, Event::Beat(*event)));
        self.observer.on_event_in(now, event, context);
    }
}

impl<'e, O: Observer<SdamEvent<'e>>> Observer<SdamEvent<'e>> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &SdamEvent<'e>) {
        self.events.push((now, Event::of(event)));
        self.observer.on_event(now, event);
    }

    fn on_event_in(&mut self, now: Instant, event: &SdamEvent<'e>, context: &EventContext<'_>) {
        self.events.push((now, Event::of(event)));
        self.observer.on_event_in(now, event, context);
    }
}

/// Calls the machine with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {
        $self.control.$method($($argument,)* &mut Tee { events: &mut $self.events, observer: $observer })
    };
}

impl<M: Memory> Watched<M> {
    /// [`Control::new`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    ///
    /// # Panics
    ///
    /// When an invariant is broken. This holds for all methods that change state.
    pub fn new(
        now: Instant,
        id: TopologyId,
        topology: TopologyConfig<'_>,
        monitor: MonitorConfig,
        observer: &mut impl ControlObserver,
    ) -> Result<Self, Full> {
        let mut events = Vec::new();
        let control = Control::new(now, id, topology, monitor, &mut Tee { events: &mut events, observer })?;
        let mut watched = Self { control, oracle: Oracle::new(), checks: Checks::default(), events };
        watched.judge(now, Input::New, Answer::None);
        Ok(watched)
    }

    /// The check counts.
    #[must_use]
    pub const fn checks(&self) -> &Checks {
        &self.checks
    }

    fn judge(&mut self, now: Instant, input: Input, answer: Answer) {
        let topology = self.control.topology().description().topology_type();
        let seen = Seen { topology, timeout: self.control.poll_timeout() };
        #[cfg(test)]
        let (answer, seen) = tests::falsified::step(answer, &mut self.events, seen);
        let outputs = Outputs { answer, events: &self.events, seen };
        if let Err(violation) = self.oracle.step(now, input, &outputs, &mut self.checks) {
            panic!("{violation}\n  in {input:?}: {answer:?}, {:?}", self.events);
        }
        self.events.clear();
    }

    /// [`Control::handle_dialed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_dialed(now, server, conn));
        self.judge(now, Input::Dialed(server), taken(result));
        result
    }

    /// [`Control::handle_reply`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_reply(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let version = reply.topology_version.filter(|_| reply.ok);
        let result = observed!(self, observer, handle_reply(now, server, conn, reply, matched));
        self.judge(now, Input::Reply(server, version), taken(result));
        result
    }

    /// [`Control::handle_failed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        server: ServerId,
        conn: MonitorConnId,
        cause: Cause,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_failed(now, server, conn, cause));
        self.judge(now, Input::Failed(server, cause), taken(result));
        result
    }

    /// [`Control::handle_app_hello`].
    pub fn handle_app_hello(
        &mut self,
        now: Instant,
        server: ServerId,
        hello: &HelloReply<'_>,
        observer: &mut impl ControlObserver,
    ) {
        observed!(self, observer, handle_app_hello(now, server, hello));
        self.judge(now, Input::Hello(server, hello.topology_version), Answer::None);
    }

    /// [`Control::handle_app_error`].
    pub fn handle_app_error(
        &mut self,
        now: Instant,
        server: ServerId,
        error: &AppError<'_>,
        observer: &mut impl ControlObserver,
    ) -> Verdict {
        let verdict = observed!(self, observer, handle_app_error(now, server, error));
        self.judge(now, Input::Error(server, Fault::of(error)), Answer::Verdict(verdict));
        verdict
    }

    /// [`Control::handle_seeds`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_seeds<'s>(
        &mut self,
        now: Instant,
        seeds: impl Iterator<Item = &'s str> + Clone,
        observer: &mut impl ControlObserver,
    ) -> Result<(), Full> {
        let result = observed!(self, observer, handle_seeds(now, seeds));
        self.judge(now, Input::Seeds, if result.is_ok() { Answer::Done } else { Answer::Stale });
        result
    }

    /// [`Control::request_check`].
    pub fn request_check(&mut self, now: Instant) {
        self.control.request_check(now);
        self.judge(now, Input::Request, Answer::None);
    }

    /// [`Control::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        observed!(self, observer, close(now));
        self.judge(now, Input::Close, Answer::None);
    }

    /// [`Control::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl ControlObserver) {
        observed!(self, observer, handle_timeout(now));
        self.judge(now, Input::Timeout, Answer::None);
    }

    /// [`Control::poll_action`].
    pub fn poll_action(&mut self) -> Option<ControlAction> {
        let polled = self.control.poll_action();
        self.judge(Instant::ORIGIN, Input::Poll, Answer::Action(polled));
        polled
    }

    /// [`Control::poll_conn`].
    pub fn poll_conn(&mut self, now: Instant, server: ServerId, kind: MonitorConnKind) -> Option<MonitorAction> {
        let polled = self.control.poll_conn(now, server, kind);
        self.judge(now, Input::PollConn(server, kind), Answer::MonitorAction(polled.as_ref().map(Action::of)));
        polled
    }
}

fn taken(result: Result<(), Stale>) -> Answer {
    if result.is_ok() { Answer::Done } else { Answer::Stale }
}

/// The getters of the machine.
impl<M: Memory> Deref for Watched<M> {
    type Target = Control<M>;

    fn deref(&self) -> &Control<M> {
        &self.control
    }
}

impl<M: Memory> core::fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Watched").field("control", &self.control).field("oracle", &self.oracle).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
