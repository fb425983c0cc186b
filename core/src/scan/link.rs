//! The connection to a server, and the results of its checks that later checks need.

use super::action::{ScanAction, SocketId};
use crate::monitor::{HeartbeatId, Rtt};
use crate::{Instant, ServerId};
use poolhouse_wire::hello::{HelloKind, HelloReply};

/// The operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Being dialed. `owed`: the host has not polled the dial.
    Dial { owed: bool },
    /// A hello is in flight. `owed`: the host has not polled it.
    Hello { hello: HelloKind, owed: bool },
    /// Idle since this instant.
    Idle { since: Instant },
    /// Checked out.
    InUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Socket {
    pub(super) id: SocketId,
    pub(super) step: Step,
    /// Whether the connection's first hello succeeded.
    pub(super) greeted: bool,
    /// Whether the server accepts `hello` on it; otherwise legacy hello is used.
    pub(super) hello_ok: bool,
    pub(super) server_connection: Option<i64>,
}

impl Socket {
    /// The next hello of this connection.
    pub(super) const fn hello(&self) -> HelloKind {
        let legacy = !self.hello_ok;
        if self.greeted { HelloKind::Poll { legacy } } else { HelloKind::Handshake { legacy } }
    }

    /// Stores the connection properties that a successful reply contains.
    pub(super) fn answered(&mut self, now: Instant, reply: &HelloReply<'_>) {
        self.greeted = true;
        self.hello_ok |= reply.hello_ok;
        self.server_connection = self.server_connection.or(reply.connection_id);
        self.step = Step::Idle { since: now };
    }

    pub(super) const fn heartbeat_id(&self) -> HeartbeatId {
        let SocketId { server, number } = self.id;
        HeartbeatId { server, connection: number.get(), server_connection: self.server_connection }
    }
}

/// A slot for a server's connection.
#[allow(unnameable_types, reason = "part of a sealed trait's associated type: nothing outside can use it")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) server: Option<ServerId>,
    /// The previous connection, if the host must still close it. Its `Hangup` is returned before
    /// the next `Dial`.
    pub(super) hangup: Option<SocketId>,
    pub(super) socket: Option<Socket>,
    pub(super) rtt: Rtt,
    /// The scan in which it was last checked.
    pub(super) scanned: u32,
    /// The scan in which a second check of it was requested.
    pub(super) rescanned: u32,
    /// The end of the cooldown.
    pub(super) cooldown: Option<Instant>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { server: None, hangup: None, socket: None, rtt: Rtt::new(), scanned: 0, rescanned: 0, cooldown: None }
    }

    /// Assigns the slot to another server, or to none.
    pub(super) fn assign(&mut self, server: Option<ServerId>) {
        self.hang_up();
        *self = Self { server, hangup: self.hangup, ..Self::new() };
    }

    /// Discards the connection; owes `Hangup` if the host has polled its dial.
    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.take() {
            if socket.step != (Step::Dial { owed: true }) {
                assert!(self.hangup.is_none(), "the previous hang-up was not polled before the dial");
                self.hangup = Some(socket.id);
            }
        }
    }

    /// Discards a connection whose dial failed: the host has no socket to close.
    pub(super) fn fail_dial(&mut self) {
        let dialing = self.socket.take().is_some_and(|socket| socket.step == Step::Dial { owed: false });
        assert!(dialing, "a dial is in progress");
    }

    /// The connection with this id, if it is the current one and the host has polled its dial.
    pub(super) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.socket.as_mut().filter(|socket| socket.id == id && socket.step != (Step::Dial { owed: true }))
    }

    /// Takes the action owed on the connection; it is returned once.
    pub(super) fn take_action(&mut self, deadline: Option<Instant>) -> Option<ScanAction> {
        let socket = self.socket.as_mut()?;
        let id = socket.id;
        match &mut socket.step {
            Step::Dial { owed } if *owed => {
                *owed = false;
                Some(ScanAction::Dial { socket: id, deadline })
            }
            Step::Hello { hello, owed } if *owed => {
                *owed = false;
                Some(ScanAction::SendHello { socket: id, hello: *hello, deadline })
            }
            Step::Dial { .. } | Step::Hello { .. } | Step::Idle { .. } | Step::InUse => None,
        }
    }
}
