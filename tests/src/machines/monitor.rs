//! A monitor with the state that its host keeps: whether the server is known, and the outcome that
//! has not been applied yet.

use core::ops::Deref;
use poolhouse_core::monitor::{CheckOutcome, Monitor, MonitorAction, MonitorConnId, MonitorEvent, MonitorState};
use poolhouse_core::{Cause, Instant, Observer, Stale};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::message::Matched;

/// A monitor and its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hosted {
    monitor: Monitor,
    known: bool,
    outcome: Option<CheckOutcome>,
}

impl Hosted {
    /// Creates the host of a monitor for an unknown server.
    #[must_use]
    pub const fn new(monitor: Monitor) -> Self {
        Self { monitor, known: false, outcome: None }
    }

    /// The monitor alone.
    #[must_use]
    pub const fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Whether the server is known, according to the host.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// The outcome that has not been applied yet.
    #[must_use]
    pub fn outcome(&self) -> Option<CheckOutcome> {
        self.outcome.filter(|_| self.monitor.state() == MonitorState::Ended)
    }

    /// Sets whether the server is known, after a change that was not caused by a check.
    pub const fn set_server_known(&mut self, known: bool) {
        self.known = known;
    }

    /// The outcome was applied: the next step of the monitor begins.
    pub fn settle(&mut self, now: Instant, known: bool, observer: &mut impl Observer<MonitorEvent>) {
        self.outcome = None;
        if self.monitor.state() == MonitorState::Ended {
            self.known = known;
            let outcome = self.monitor.handle_timeout(now, known, observer);
            assert_eq!(outcome, None, "a new outcome before the last one was applied");
        }
    }

    /// [`Monitor::start`].
    pub fn start(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        self.monitor.start(now, observer);
    }

    /// [`Monitor::request_check`].
    pub fn request_check(&mut self, now: Instant) {
        self.monitor.request_check(now);
    }

    /// [`Monitor::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        self.monitor.close(now, observer);
    }

    /// [`Monitor::poll_action`].
    pub fn poll_action(&mut self, now: Instant) -> Option<MonitorAction> {
        self.monitor.poll_action(now)
    }

    /// [`Monitor::cancel_check`], by a host that has marked the server Unknown.
    pub fn cancel_check(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        if !matches!(self.monitor.state(), MonitorState::New | MonitorState::Closed) {
            self.known = false;
        }
        self.monitor.cancel_check(now, observer);
    }

    /// [`Monitor::handle_dialed`].
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let outcome = self.monitor.handle_dialed(now, conn, self.known, observer)?;
        self.note(outcome);
        Ok(())
    }

    /// [`Monitor::handle_reply`].
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        reply: &HelloReply<'_>,
        matched: Matched,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let outcome = self.monitor.handle_reply(now, conn, reply, matched, self.known, observer)?;
        self.note(outcome);
        Ok(())
    }

    /// [`Monitor::handle_failed`].
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MonitorConnId,
        cause: Cause,
        observer: &mut impl Observer<MonitorEvent>,
    ) -> Result<(), Stale> {
        let outcome = self.monitor.handle_failed(now, conn, cause, self.known, observer)?;
        self.note(outcome);
        Ok(())
    }

    /// [`Monitor::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MonitorEvent>) {
        assert_eq!(self.outcome(), None, "the outcome must be applied first");
        let outcome = self.monitor.handle_timeout(now, self.known, observer);
        self.note(outcome);
    }

    fn note(&mut self, outcome: Option<CheckOutcome>) {
        if let Some(outcome) = outcome {
            let previous = self.outcome.replace(outcome);
            assert_eq!(previous, None, "S7: one outcome for each check, applied before the next one");
            if matches!(outcome, CheckOutcome::Failed { .. }) {
                self.known = false;
            }
        }
    }
}

/// The getters.
impl Deref for Hosted {
    type Target = Monitor;

    fn deref(&self) -> &Monitor {
        &self.monitor
    }
}
