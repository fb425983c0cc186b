//! The two connections of a monitor, derived from its actions and the reports of its host.

use super::book::{Next, Oracle, Phase, Scene};
use super::{Action, Input};
use crate::oracle::Violation;
use crate::reply::CheckReply;
use poolhouse_core::Instant;
use poolhouse_core::monitor::{HelloKind, MonitorConnKind};

type Judged = Result<(), Violation>;

/// State of a monitor connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wiring {
    /// The number of its connection. It is 0 for a new connection with an unpolled dial action.
    pub(super) number: Option<u64>,
    pub(super) hello_ok: bool,
    pub(super) doing: Doing,
    /// The action for its operation has not been polled.
    pub(super) owed: bool,
    pub(super) since: Instant,
    pub(super) deadline: Option<Instant>,
    /// The previous connection must be closed by the host.
    pub(super) hangup: Option<u64>,
}

/// Operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Nothing,
    Dial,
    Hello(HelloKind),
    Read,
}

impl Wiring {
    pub(super) const NONE: Self = Self {
        number: None,
        hello_ok: false,
        doing: Doing::Nothing,
        owed: false,
        since: Instant::ORIGIN,
        deadline: None,
        hangup: None,
    };

    pub(super) const fn is_awaited(&self) -> bool {
        matches!(self.doing, Doing::Read | Doing::Hello(HelloKind::Awaitable { .. }))
    }

    pub(super) const fn answered(&mut self, reply: &CheckReply) {
        self.hello_ok |= reply.hello_ok;
        self.doing = Doing::Nothing;
        self.deadline = None;
    }

    /// Abandons the connection. The host must close it if its dial action was polled.
    pub(super) fn hang_up(&mut self) {
        let is_unheard = self.doing == Doing::Dial && self.owed;
        self.hangup = self.number.filter(|_| !is_unheard).or(self.hangup);
        self.number = None;
        self.doing = Doing::Nothing;
        self.owed = false;
        self.deadline = None;
    }

    /// Whether a report with this number is of the current connection.
    pub(super) fn is_known(&self, number: u64) -> bool {
        self.number == Some(number) && !(self.doing == Doing::Dial && self.owed)
    }
}

impl Oracle {
    pub(super) const fn wiring(&mut self, kind: MonitorConnKind) -> &mut Wiring {
        match kind {
            MonitorConnKind::Check => &mut self.check,
            MonitorConnKind::Rtt => &mut self.ping,
        }
    }

    pub(super) fn stop_streaming(&mut self) {
        self.streaming = false;
        self.ping_left = self.ping.deadline;
        self.ping_due = None;
        self.ping.hang_up();
    }

    pub(super) fn hang_up_all(&mut self) {
        self.check.hang_up();
        self.stop_streaming();
    }

    /// A check begins on a connection.
    pub(super) fn begin(&mut self, number: u64, awaited: bool, scene: &mut Scene<'_>) -> Judged {
        let deadline = self.limit(awaited);
        let (now, newest) = (self.now, self.newest);
        let doing = match (self.check.number, self.phase) {
            (None, _) => {
                scene.checks.check("S1", number > newest, || format!("connection {number} is used again"))?;
                self.newest = number;
                self.check.number = Some(number);
                self.check.hello_ok = self.options.server_api;
                Doing::Dial
            }
            (Some(own), phase) => {
                scene
                    .checks
                    .check("S18", own == number, || format!("{number} is used, but the connection is {own}"))?;
                let legacy = !self.check.hello_ok;
                match phase {
                    Phase::Settling { next: Next::Read, .. } => Doing::Read,
                    Phase::Settling { next: Next::Await(topology_version), .. } => {
                        let max_await_time = self.options.heartbeat_frequency;
                        Doing::Hello(HelloKind::Awaitable { legacy, topology_version, max_await_time })
                    }
                    _ => Doing::Hello(HelloKind::Poll { legacy }),
                }
            }
        };
        let wiring = &mut self.check;
        (wiring.doing, wiring.owed, wiring.since, wiring.deadline) = (doing, true, now, deadline);
        if awaited && !self.streaming {
            self.streaming = true;
            let soonest = match self.ping_dialed {
                Some(at) => self.after(at, super::book::PAUSE_MIN),
                None => Some(now),
            };
            self.ping_due = soonest.map(|soonest| soonest.max(now));
            self.ping_if_due();
        }
        Ok(())
    }

    /// A measurement begins when it is due.
    pub(super) fn ping_if_due(&mut self) {
        if self.ping_due.is_none_or(|due| due > self.now) {
            return;
        }
        self.ping_due = None;
        let (now, deadline) = (self.now, self.limit(false));
        let doing = if self.ping.number.is_some() {
            Doing::Hello(HelloKind::Poll { legacy: !self.ping.hello_ok })
        } else {
            self.newest += 1;
            self.ping_dialed = Some(now);
            self.ping.number = Some(self.newest);
            self.ping.hello_ok = self.options.server_api;
            Doing::Dial
        };
        let wiring = &mut self.ping;
        (wiring.doing, wiring.owed, wiring.since, wiring.deadline) = (doing, true, now, deadline);
    }

    /// The RTT connection has failed. The measurement is repeated after an interval.
    pub(super) fn ping_failed(&mut self) {
        self.ping.hang_up();
        self.ping_due = self.ping_due.or(self.after(self.now, self.options.heartbeat_frequency));
    }

    pub(super) fn polled(
        &mut self,
        of: Option<MonitorConnKind>,
        action: Option<Action>,
        scene: &mut Scene<'_>,
    ) -> Judged {
        let Some(action) = action else {
            let owes = |wiring: &Wiring| wiring.hangup.is_some() || wiring.owed;
            let check = of != Some(MonitorConnKind::Rtt) && owes(&self.check);
            let ping = of != Some(MonitorConnKind::Check) && owes(&self.ping);
            return scene.checks.check("S21", !check && !ping, || format!("owed: {:?}, {:?}", self.check, self.ping));
        };
        let (Action::Dial(wire) | Action::Hello(wire, _) | Action::Read(wire) | Action::Hangup(wire)) = action;
        scene.checks.check(
            "S14",
            wire.kind == MonitorConnKind::Check || self.streaming || matches!(action, Action::Hangup(_)),
            || format!("{action:?} while the server does not stream"),
        )?;
        let (now, streams) = (self.now, self.streaming);
        let wiring = self.wiring(wire.kind);
        if let Action::Hangup(_) = action {
            let is_owed = wiring.hangup == Some(wire.number);
            wiring.hangup = None;
            return scene.checks.check("S18", is_owed, || format!("{action:?} is not due"));
        }
        let expected = match wiring.doing {
            _ if !wiring.owed => None,
            Doing::Nothing => None,
            Doing::Dial => wiring.number.map(|number| Action::Dial(super::Wire { number, ..wire })),
            Doing::Hello(kind) => wiring.number.map(|number| Action::Hello(super::Wire { number, ..wire }, kind)),
            Doing::Read => wiring.number.map(|number| Action::Read(super::Wire { number, ..wire })),
        };
        let id = match (action, expected) {
            (Action::Hello(_, HelloKind::Handshake { .. }), _)
            | (_, Some(Action::Hello(_, HelloKind::Handshake { .. }))) => "S17",
            (Action::Read(_) | Action::Hello(_, HelloKind::Awaitable { .. }), _) if streams => "S15",
            (_, Some(Action::Read(_) | Action::Hello(_, HelloKind::Awaitable { .. }))) => "S15",
            _ => "S1",
        };
        scene
            .checks
            .check(id, expected == Some(action), || format!("{expected:?} is due, but {action:?} was polled"))?;
        let is_hung_up = wiring.hangup.is_none();
        scene.checks.check("S18", is_hung_up, || "the previous connection was not closed".into())?;
        wiring.owed = false;
        if matches!(action, Action::Hello(..)) {
            wiring.since = now;
        }
        Ok(())
    }

    /// The host has dialed. The handshake follows, with the same deadline.
    pub(super) fn dialed(&mut self, kind: MonitorConnKind) {
        let now = self.now;
        let wiring = self.wiring(kind);
        wiring.doing = Doing::Hello(HelloKind::Handshake { legacy: !wiring.hello_ok });
        wiring.owed = true;
        wiring.since = now;
    }

    /// Whether a report is of a current connection.
    pub(super) fn is_current(&mut self, input: Input) -> bool {
        match input {
            Input::Dialed(wire) => {
                let wiring = self.wiring(wire.kind);
                wiring.is_known(wire.number) && wiring.doing == Doing::Dial
            }
            Input::Reply(wire, _) | Input::Failed(wire, _) => self.wiring(wire.kind).is_known(wire.number),
            _ => true,
        }
    }
}
