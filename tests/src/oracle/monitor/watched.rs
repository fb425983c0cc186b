//! A monitor with an oracle that checks each call.

use super::{Action, Answer, Input, Oracle, Outputs, Seen, Wire};
use crate::machines::monitor::Hosted;
use crate::oracle::Checks;
use crate::reply::CheckReply;
use core::ops::Deref;
use poolhouse_core::monitor::{Monitor, MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind, MonitorEvent};
use poolhouse_core::{Cause, Instant, Observer, ServerId, Stale};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// A [`Monitor`] and its oracle. It has the methods of a monitor, and panics with the id of a
/// broken invariant.
#[derive(Clone, Debug)]
pub struct Watched {
    monitor: Hosted,
    oracle: Oracle,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, MonitorEvent)>,
}

/// Passes events to the oracle and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, MonitorEvent)>,
    observer: &'t mut O,
}

impl<O: Observer<MonitorEvent>> Observer<MonitorEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &MonitorEvent) {
        self.events.push((now, *event));
        self.observer.on_event(now, event);
    }
}

/// Calls the monitor with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {
        $self.monitor.$method($($argument,)* &mut Tee { events: &mut $self.events, observer: $observer })
    };
}

impl Watched {
    /// [`Monitor::new`].
    #[must_use]
    pub fn new(server: ServerId, config: MonitorConfig) -> Self {
        let oracle = Oracle::new(*config.options());
        Self {
            monitor: Hosted::new(Monitor::new(server, config)),
            oracle,
            checks: Checks::default(),
            events: Vec::new(),
        }
    }

    /// The check counts.
    #[must_use]
    pub const fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Takes the check counts and resets them to 0.
    pub fn take_checks(&mut self) -> Checks {
        core::mem::take(&mut self.checks)
    }

    fn judge(&mut self, now: Instant, input: Input, answer: Answer) {
        let rtt = self.monitor.rtt();
        let seen = Seen {
            state: self.monitor.state(),
            outcome: self.monitor.outcome(),
            streaming: self.monitor.is_streaming(),
            timeout: self.monitor.poll_timeout(),
            average: rtt.average(),
            minimum: rtt.minimum(),
        };
        #[cfg(test)]
        let (answer, seen) = tests::falsified::step(answer, &mut self.events, seen);
        let outputs = Outputs { answer, events: &self.events, seen: Some(seen) };
        if let Err(violation) = self.oracle.step(now, input, &outputs, &mut self.checks) {
            panic!("{violation}\n  in {input:?}: {answer:?}, {:?}", self.events);
        }
        self.events.clear();
    }

    /// [`Monitor::start`].
    ///
    /// # Panics
    ///
    /// When an invariant is broken. This holds for all methods that change state.
    pub fn start(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        observed!(self, observer, start(now));
        self.judge(now, Input::Start, Answer::None);
    }

    /// [`Monitor::start_after`].
    pub fn start_after(&mut self, now: Instant, dialed: Instant) {
        self.monitor.start_after(now, dialed);
        self.judge(now, Input::StartAfter(dialed), Answer::None);
    }

    /// [`Monitor::request_check`].
    pub fn request_check(&mut self, now: Instant) {
        self.monitor.request_check(now);
        self.judge(now, Input::Request, Answer::None);
    }

    /// [`Monitor::cancel_check`].
    pub fn cancel_check(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        observed!(self, observer, cancel_check(now));
        self.judge(now, Input::Cancel, Answer::None);
    }

    /// [`Hosted::set_server_known`].
    pub fn set_server_known(&mut self, known: bool) {
        self.monitor.set_server_known(known);
        self.judge(Instant::ORIGIN, Input::Known(known), Answer::None);
    }

    /// [`Monitor::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        observed!(self, observer, close(now));
        self.judge(now, Input::Close, Answer::None);
    }

    /// [`Hosted::settle`].
    pub fn settle(&mut self, now: Instant, known: bool, observer: &mut impl Observer<MonitorEvent>) {
        observed!(self, observer, settle(now, known));
        self.judge(now, Input::Settle { known }, Answer::None);
    }

    /// [`Monitor::handle_dialed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_dialed(now, conn));
        self.judge(now, Input::Dialed(Wire::of(conn)), taken(result));
        result
    }

    /// [`Monitor::handle_reply`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_reply(now, conn, reply, matched));
        self.judge(now, Input::Reply(Wire::of(conn), CheckReply::of(reply, matched)), taken(result));
        result
    }

    /// [`Monitor::handle_failed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        cause: Cause,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_failed(now, conn, cause));
        self.judge(now, Input::Failed(Wire::of(conn), cause), taken(result));
        result
    }

    /// [`Monitor::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        observed!(self, observer, handle_timeout(now));
        self.judge(now, Input::Timeout, Answer::None);
    }

    /// [`Monitor::poll_action`].
    pub fn poll_action(&mut self, now: Instant) -> Option<MonitorAction> {
        let polled = self.monitor.poll_action(now);
        self.judge(now, Input::Poll(None), Answer::Action(polled.as_ref().map(Action::of)));
        polled
    }

    /// [`Monitor::poll_conn`].
    pub fn poll_conn(&mut self, now: Instant, kind: MonitorConnKind) -> Option<MonitorAction> {
        let polled = self.monitor.poll_conn(now, kind);
        self.judge(now, Input::Poll(Some(kind)), Answer::Action(polled.as_ref().map(Action::of)));
        polled
    }
}

fn taken(result: Result<(), Stale>) -> Answer {
    if result.is_ok() { Answer::Done } else { Answer::Stale }
}

/// The getters of the machine.
impl Deref for Watched {
    type Target = Hosted;

    fn deref(&self) -> &Hosted {
        &self.monitor
    }
}

#[cfg(test)]
mod tests;
