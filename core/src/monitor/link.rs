//! One connection at a time of a monitor: dialed, busy with one exchange, idle, or down.

use crate::machine::Stale;
use crate::monitor::action::{Line, LineId, MonitorAction};
use crate::time::{Instant, Past};
use poolhouse_wire::hello::{HelloKind, HelloReply};

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) id: LineId,
    /// Whether the server accepts `hello` on it.
    pub(super) hello_ok: bool,
    /// The number that the server gave it.
    pub(super) server_connection: Option<i64>,
}

/// What a busy connection is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Dial,
    Hello(HelloKind),
    ReadNext,
}

impl Step {
    /// Whether the server may wait for a change before it answers.
    pub(super) const fn is_awaited(self) -> bool {
        match self {
            Self::Dial | Self::Hello(HelloKind::Handshake { .. } | HelloKind::Poll { .. }) => false,
            Self::Hello(HelloKind::Awaitable { .. }) | Self::ReadNext => true,
        }
    }
}

/// What a busy connection does, since when and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub(super) conn: Conn,
    pub(super) step: Step,
    /// The host has not taken the action yet.
    owed: bool,
    /// When the hello was taken to be sent; before that, when the exchange began.
    pub(super) since: Past<Instant>,
    deadline: Option<Instant>,
}

impl Exchange {
    /// Whether the limit has passed. The instant of the deadline itself is too late.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether a reply is due: its hello, if any, was taken by the host.
    pub(super) const fn expects_reply(&self) -> bool {
        !self.owed && !matches!(self.step, Step::Dial)
    }

    /// Whether the connection is not there yet.
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

/// A line: its connection of now, and the hang-up of the one before if the host still owes it.
///
/// The host is never told to dial before it was told to hang up, so one place for the hang-up is enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    state: State,
    hangup: Option<LineId>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { state: State::Down, hangup: None }
    }

    /// `Down -> Busy`: owes `Dial`.
    pub(super) fn dial(&mut self, now: Instant, id: LineId, hello_ok: bool, deadline: Option<Instant>) {
        assert!(self.state == State::Down, "a line has one connection at a time");
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
        assert!(exchange.is_dialing() && !exchange.owed, "the dial was taken by the host");
        exchange.step = Step::Hello(HelloKind::Handshake { legacy: !exchange.conn.hello_ok });
        exchange.owed = true;
        exchange.since = Past(now);
    }

    /// `Busy -> Idle`: the reply was good. Takes from it what concerns the connection.
    pub(super) fn answered(&mut self, reply: &HelloReply<'_>) {
        let State::Busy(exchange) = &self.state else { panic!("only an exchange is answered") };
        assert!(exchange.expects_reply(), "a reply was due");
        let mut conn = exchange.conn;
        conn.hello_ok |= reply.hello_ok;
        conn.server_connection = conn.server_connection.or(reply.connection_id);
        self.state = State::Idle(conn);
    }

    /// `Busy | Idle -> Down`: owes `Hangup` if the host was ever told of the connection.
    pub(super) fn hang_up(&mut self) {
        match self.state {
            State::Busy(exchange) if exchange.is_dialing() && exchange.owed => {}
            State::Busy(Exchange { conn, .. }) | State::Idle(conn) => {
                assert!(self.hangup.is_none(), "the connection before was hung up before this one was dialed");
                self.hangup = Some(conn.id);
            }
            State::Down => {}
        }
        self.state = State::Down;
    }

    /// Forgets that `id` is to be hung up: its dial has failed, there is nothing to hang up.
    pub(super) fn waive_hangup(&mut self, id: LineId) {
        assert!(self.hangup == Some(id), "a failed connection was going to be hung up");
        self.hangup = None;
    }

    /// Checks that news about `id` is about the connection of now, and that the host knows it.
    pub(super) fn check(&self, id: LineId) -> Result<(), Stale> {
        let known = match &self.state {
            State::Busy(exchange) => exchange.conn.id == id && !(exchange.is_dialing() && exchange.owed),
            State::Idle(conn) => conn.id == id,
            State::Down => false,
        };
        if known { Ok(()) } else { Err(Stale) }
    }

    /// What the connection is busy with.
    pub(super) const fn exchange(&self) -> Option<&Exchange> {
        match &self.state {
            State::Busy(exchange) => Some(exchange),
            State::Idle(_) | State::Down => None,
        }
    }

    /// The connection, if there is one or one is being dialed.
    pub(super) const fn conn(&self) -> Option<&Conn> {
        match &self.state {
            State::Busy(exchange) => Some(&exchange.conn),
            State::Idle(conn) => Some(conn),
            State::Down => None,
        }
    }

    /// Whether a connection is there and nothing is being done on it.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle(_))
    }

    /// Whether a dial is under way that the host has begun.
    pub(super) const fn is_dialing(&self) -> bool {
        matches!(&self.state, State::Busy(exchange) if exchange.is_dialing() && !exchange.owed)
    }

    /// Whether there is no connection and none is being dialed.
    pub(super) const fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    /// When the exchange is too late.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Busy(exchange) => exchange.deadline,
            State::Idle(_) | State::Down => None,
        }
    }

    /// Whether the host must do something.
    pub(super) const fn owes(&self) -> bool {
        match &self.state {
            State::Busy(exchange) if exchange.owed => true,
            State::Busy(_) | State::Idle(_) | State::Down => self.hangup.is_some(),
        }
    }

    /// The hang-up that the host must do first.
    pub(super) const fn take_hangup(&mut self) -> Option<MonitorAction> {
        match self.hangup.take() {
            Some(id) => Some(MonitorAction::Hangup(id)),
            None => None,
        }
    }

    /// The action of the exchange, once.
    pub(super) fn take_action(&mut self, now: Instant) -> Option<MonitorAction> {
        let State::Busy(exchange) = &mut self.state else { return None };
        if !exchange.owed {
            return None;
        }
        assert!(self.hangup.is_none(), "the connection before is hung up first");
        exchange.owed = false;
        let line = exchange.conn.id;
        Some(match exchange.step {
            Step::Dial => MonitorAction::Dial(line),
            Step::Hello(hello) => {
                exchange.since = Past(now);
                MonitorAction::SendHello { line, hello }
            }
            Step::ReadNext => MonitorAction::ReadNext { line },
        })
    }

    /// Checks that the connection of now and the one before belong to `line`, and are two.
    pub(super) fn assert_invariants(&self, line: Line, serial_last: u64) {
        if let Some(conn) = self.conn() {
            assert_eq!(conn.id.line, line, "a line holds its own connections");
            assert!(conn.id.number() <= serial_last, "numbers come from the counter");
        }
        if let Some(before) = self.hangup {
            assert_eq!(before.line, line, "a line hangs up its own connections");
            assert!(
                self.conn().is_none_or(|conn| conn.id.number() > before.number()),
                "newer ones have higher numbers"
            );
            let untold = match &self.state {
                State::Down => true,
                State::Busy(exchange) => exchange.is_dialing() && exchange.owed,
                State::Idle(_) => false,
            };
            assert!(untold, "the host is told to hang up before it is told to dial");
        }
    }
}
