//! The client's monitors, each with an oracle. The control machine calls its monitors internally.
//! The calls are inferred from their effect, and repeated on a monitor with an oracle.

use crate::oracle::Checks;
use crate::oracle::monitor::{Hosted, Watched};
use crate::reply::CheckReply;
use alloc::collections::BTreeMap;
use poolhouse_core::control::Control;
use poolhouse_core::monitor::{MonitorAction, MonitorConfig, MonitorConnId, MonitorConnKind, MonitorState};
use poolhouse_core::topology::OnHeap;
use poolhouse_core::{Cause, Instant, ServerId};

/// A call to a monitor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Dialed(MonitorConnId),
    Reply(MonitorConnId, CheckReply),
    Failed(MonitorConnId, Cause),
    Timeout,
    Request,
    Cancel,
    Settle,
    Close,
}

/// Additional monitor calls that a call of the control machine may cause.
const MORE: [&[Call]; 8] = [
    &[],
    &[Call::Settle],
    &[Call::Request],
    &[Call::Cancel],
    &[Call::Cancel, Call::Request],
    &[Call::Close],
    &[Call::Request, Call::Settle],
    &[Call::Cancel, Call::Settle],
];

/// Calls a monitor, with or without an oracle.
macro_rules! tell {
    ($call:expr, $monitor:expr, $now:expr, $known:expr) => {
        match $call {
            Call::Dialed(conn) => drop($monitor.handle_dialed($now, conn, &mut ())),
            Call::Reply(conn, reply) => {
                let _ = $monitor.handle_reply($now, conn, &reply.hello(), reply.matched(), &mut ());
            }
            Call::Failed(conn, cause) => drop($monitor.handle_failed($now, conn, cause, &mut ())),
            Call::Timeout => $monitor.handle_timeout($now, &mut ()),
            Call::Request => $monitor.request_check($now),
            Call::Cancel => $monitor.cancel_check($now, &mut ()),
            Call::Settle => $monitor.settle($now, $known, &mut ()),
            Call::Close => $monitor.close($now, &mut ()),
        }
    };
}

/// The state of the server after a step is the input of its monitor in the next step.
fn note_known(watched: &mut Watched, known: bool) {
    if watched.is_known() != known {
        watched.set_server_known(known);
    }
}

pub(super) struct Monitors {
    kept: BTreeMap<ServerId, Watched>,
    config: MonitorConfig,
    now: Instant,
    /// The check counts of removed monitors.
    checks: Checks,
}

impl Monitors {
    pub(super) fn new(config: MonitorConfig) -> Self {
        Self { kept: BTreeMap::new(), config, now: Instant::ORIGIN, checks: Checks::default() }
    }

    /// Repeats the monitor calls of a call to the control machine.
    ///
    /// - `call`: the call of the monitor that it causes directly, or of all monitors; if any.
    pub(super) fn follow(
        &mut self,
        control: &Control<OnHeap>,
        now: Instant,
        about: Option<ServerId>,
        call: Option<Call>,
    ) {
        self.now = self.now.max(now);
        let now = self.now;
        for server in control.topology().servers().map(|server| server.server()) {
            let Some(real) = control.monitor(server) else { continue };
            if !self.kept.contains_key(&server) {
                let mut watched = Watched::new(server, self.config);
                // A monitor waits if its address was dialed less than 500 ms ago.
                let due = real.poll_timeout().filter(|_| real.state() == MonitorState::Waiting);
                let dialed = due.map(|due| due.as_nanos().saturating_sub(500_000_000));
                match dialed {
                    Some(dialed) => watched.start_after(now, Instant::from_nanos(dialed)),
                    None => watched.start(now, &mut ()),
                }
                self.kept.insert(server, watched);
            }
        }
        let checks = &mut self.checks;
        self.kept.retain(|&server, watched| {
            let Some(real) = control.monitor(server) else {
                watched.close(now, &mut ());
                checks.merge(watched.checks());
                return false;
            };
            let known = control.topology().server(server).is_some_and(|server| server.server_type().is_known());
            let is_due = watched.poll_timeout().is_some_and(|at| at <= now);
            let first = call.filter(|call| match call {
                Call::Timeout => is_due,
                _ => about.is_none_or(|about| about == server),
            });
            if first.is_none() && *watched.monitor() == *real {
                note_known(watched, known);
                return true;
            }
            let becomes_real = |more: &&[Call]| {
                let mut monitor: Hosted = (**watched).clone();
                first.iter().chain(*more).for_each(|call| tell!(*call, monitor, now, known));
                *monitor.monitor() == *real
            };
            let more = MORE.into_iter().find(becomes_real);
            let more = more.unwrap_or_else(|| {
                panic!(
                    "S21: no sequence of calls explains the effect of {call:?} on {server:?}:\n  {:?}\n  {real:?}",
                    **watched
                )
            });
            first.iter().chain(more).for_each(|call| tell!(*call, watched, now, known));
            note_known(watched, known);
            true
        });
    }

    /// The result of a poll of a monitor connection.
    pub(super) fn polled(
        &mut self,
        now: Instant,
        server: ServerId,
        kind: MonitorConnKind,
        action: Option<&MonitorAction>,
    ) {
        self.now = self.now.max(now);
        let Some(watched) = self.kept.get_mut(&server) else { return assert!(action.is_none(), "S18: {action:?}") };
        let own = watched.poll_conn(self.now, kind);
        assert_eq!(own.as_ref(), action, "S21: the action of {server:?} for {kind:?}");
    }

    /// The check counts of the oracles.
    pub(super) fn checks(&self) -> Checks {
        let mut checks = self.checks.clone();
        self.kept.values().for_each(|watched| checks.merge(watched.checks()));
        checks
    }
}
