//! State of one of a monitor's two connections: being dialed, busy with one exchange, idle, or
//! down.

use crate::machine::Stale;
use crate::monitor::action::{MonitorAction, MonitorConnId, MonitorConnKind};
use crate::time::{Instant, Past};
use poolhouse_wire::hello::{HelloKind, HelloReply};

/// State of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) id: MonitorConnId,
    /// Whether the server accepts `hello` on it; otherwise legacy hello is used.
    pub(super) hello_ok: bool,
    /// The number that the server assigned to it.
    pub(super) server_connection: Option<i64>,
}

/// The operation of a busy connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Dial,
    Hello(HelloKind),
    ReadNext,
}

impl Step {
    /// Whether the server may wait for a change before it replies.
    pub(super) const fn is_awaited(self) -> bool {
        match self {
            Self::Dial | Self::Hello(HelloKind::Handshake { .. } | HelloKind::Poll { .. }) => false,
            Self::Hello(HelloKind::Awaitable { .. }) | Self::ReadNext => true,
        }
    }
}

/// The operation of a busy connection, its start and its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub(super) conn: Conn,
    pub(super) step: Step,
    /// Whether the host has not polled the action yet.
    owed: bool,
    /// The time at which the host polled the hello; before that, the time at which the exchange
    /// began.
    pub(super) since: Past<Instant>,
    deadline: Option<Instant>,
}

impl Exchange {
    /// Whether `now` is at or after the deadline.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether the host has polled the action, so a reply to it is expected.
    pub(super) const fn expects_reply(&self) -> bool {
        !self.owed && !matches!(self.step, Step::Dial)
    }

    /// Whether the connection is not established yet.
    const fn is_dialing(&self) -> bool {
        matches!(self.step, Step::Dial)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Down,
    Idle(Conn),
    Busy(Exchange),
}

/// One of a monitor's two connections: the current one, and the pending hang-up of the previous
/// one.
///
/// The host always receives the hang-up before the next dial, so storage for one hang-up is enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    state: State,
    hangup: Option<MonitorConnId>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { state: State::Down, hangup: None }
    }

    /// `Down -> Busy`: owes `Dial`.
    pub(super) fn dial(&mut self, now: Instant, id: MonitorConnId, hello_ok: bool, deadline: Option<Instant>) {
        assert!(self.state == State::Down, "the previous connection is still in use");
        let conn = Conn { id, hello_ok, server_connection: None };
        self.state = State::Busy(Exchange { conn, step: Step::Dial, owed: true, since: Past(now), deadline });
    }

    /// `Idle -> Busy`: owes the action of `step`.
    pub(super) fn begin(&mut self, now: Instant, step: Step, deadline: Option<Instant>) {
        let State::Idle(conn) = self.state else { panic!("an exchange begins on an idle connection") };
        assert!(step != Step::Dial, "a connection is dialed once");
        self.state = State::Busy(Exchange { conn, step, owed: true, since: Past(now), deadline });
    }

    /// `Busy (dialing) -> Busy (handshake)`, within the same deadline.
    pub(super) fn dialed(&mut self, now: Instant) {
        let State::Busy(exchange) = &mut self.state else { panic!("only a dial succeeds as a dial") };
        assert!(exchange.is_dialing() && !exchange.owed, "the host has polled the dial");
        exchange.step = Step::Hello(HelloKind::Handshake { legacy: !exchange.conn.hello_ok });
        exchange.owed = true;
        exchange.since = Past(now);
    }

    /// `Busy -> Idle` after a valid reply. Stores the connection properties that the reply
    /// contains.
    pub(super) fn answered(&mut self, reply: &HelloReply<'_>) {
        let State::Busy(exchange) = &self.state else { panic!("only an exchange is answered") };
        assert!(exchange.expects_reply(), "a reply was due");
        let mut conn = exchange.conn;
        conn.hello_ok |= reply.hello_ok;
        conn.server_connection = conn.server_connection.or(reply.connection_id);
        self.state = State::Idle(conn);
    }

    /// `Busy | Idle -> Down`: owes `Hangup` if the host has received the connection's id.
    pub(super) fn hang_up(&mut self) {
        match self.state {
            State::Busy(exchange) if exchange.is_dialing() && exchange.owed => {}
            State::Busy(Exchange { conn, .. }) | State::Idle(conn) => {
                assert!(self.hangup.is_none(), "the previous hang-up was not polled before the dial");
                self.hangup = Some(conn.id);
            }
            State::Down => {}
        }
        self.state = State::Down;
    }

    /// Drops the pending hang-up of `id`: its dial failed, so no socket has to be closed.
    pub(super) fn waive_hangup(&mut self, id: MonitorConnId) {
        assert!(self.hangup == Some(id), "the hang-up of the failed connection is owed");
        self.hangup = None;
    }

    /// Checks that `id` is the current connection, and that the host has received it.
    pub(super) fn check(&self, id: MonitorConnId) -> Result<(), Stale> {
        let known = match &self.state {
            State::Busy(exchange) => exchange.conn.id == id && !(exchange.is_dialing() && exchange.owed),
            State::Idle(conn) => conn.id == id,
            State::Down => false,
        };
        if known { Ok(()) } else { Err(Stale) }
    }

    /// The operation in progress.
    pub(super) const fn exchange(&self) -> Option<&Exchange> {
        match &self.state {
            State::Busy(exchange) => Some(exchange),
            State::Idle(_) | State::Down => None,
        }
    }

    /// The connection, established or being dialed.
    pub(super) const fn conn(&self) -> Option<&Conn> {
        match &self.state {
            State::Busy(exchange) => Some(&exchange.conn),
            State::Idle(conn) => Some(conn),
            State::Down => None,
        }
    }

    /// Whether the connection is established and no operation is in progress.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// Whether the host has begun to dial and has not reported the result.
    pub(super) const fn is_dialing(&self) -> bool {
        matches!(&self.state, State::Busy(exchange) if exchange.is_dialing() && !exchange.owed)
    }

    /// Whether no connection is established or being dialed.
    pub(super) const fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// The deadline of the exchange.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Busy(exchange) => exchange.deadline,
            State::Idle(_) | State::Down => None,
        }
    }

    /// Whether the host must carry out an action.
    pub(super) const fn owes(&self) -> bool {
        match &self.state {
            State::Busy(exchange) if exchange.owed => true,
            State::Busy(_) | State::Idle(_) | State::Down => self.hangup.is_some(),
        }
    }

    /// Takes the pending hang-up, which the host must carry out first.
    pub(super) const fn take_hangup(&mut self) -> Option<MonitorAction> {
        match self.hangup.take() {
            Some(id) => Some(MonitorAction::Hangup(id)),
            None => None,
        }
    }

    /// Takes the action of the exchange; it is returned once.
    pub(super) fn take_action(&mut self, now: Instant) -> Option<MonitorAction> {
        let State::Busy(exchange) = &mut self.state else { return None };
        if !exchange.owed {
            return None;
        }
        assert!(self.hangup.is_none(), "a hang-up is polled before the next action");
        exchange.owed = false;
        let conn = exchange.conn.id;
        Some(match exchange.step {
            Step::Dial => MonitorAction::Dial(conn),
            Step::Hello(hello) => {
                exchange.since = Past(now);
                MonitorAction::SendHello { conn, hello }
            }
            Step::ReadNext => MonitorAction::ReadNext { conn },
        })
    }

    /// Takes the action of the exchange if it is `ReadNext`.
    pub(super) fn take_read(&mut self) {
        if let State::Busy(exchange) = &mut self.state {
            exchange.owed &= exchange.step != Step::ReadNext;
        }
    }

    /// Checks that the current connection and the previous one are of this `kind` and are
    /// different.
    pub(super) fn assert_invariants(&self, kind: MonitorConnKind, serial_last: u64) {
        if let Some(conn) = self.conn() {
            assert_eq!(conn.id.kind, kind, "a connection has the id of the other kind");
            assert!(conn.id.number() <= serial_last, "a connection number exceeds the counter");
        }
        if let Some(before) = self.hangup {
            assert_eq!(before.kind, kind, "a hang-up has the id of the other kind");
            assert!(
                self.conn().is_none_or(|conn| conn.id.number() > before.number()),
                "the newer connection has the lower number"
            );
            let is_dial_owed = match &self.state {
                State::Down => true,
                State::Busy(exchange) => exchange.is_dialing() && exchange.owed,
                State::Idle(_) => false,
            };
            assert!(is_dial_owed, "a dial was polled before the hang-up");
        }
    }
}
