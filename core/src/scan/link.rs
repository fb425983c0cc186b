//! The one connection to a server, and what its checks have left.

use super::action::{ScanAction, SocketId};
use crate::monitor::{HeartbeatId, Rtt};
use crate::{Instant, ServerId};
use poolhouse_wire::hello::{HelloKind, HelloReply};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// It is being connected; `owed`: the host has not begun.
    Dial { owed: bool },
    /// A hello is under way; `owed`: the host has not sent it.
    Hello { hello: HelloKind, owed: bool },
    /// Nothing, since then.
    Idle { since: Instant },
    /// It is checked out.
    InUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Socket {
    pub(super) id: SocketId,
    pub(super) step: Step,
    /// Whether its first hello was answered well.
    pub(super) greeted: bool,
    /// Whether the server accepts `hello` on it.
    pub(super) hello_ok: bool,
    pub(super) server_connection: Option<i64>,
}

impl Socket {
    /// The hello that it says next.
    pub(super) const fn hello(&self) -> HelloKind {
        let legacy = !self.hello_ok;
        if self.greeted { HelloKind::Poll { legacy } } else { HelloKind::Handshake { legacy } }
    }

    /// Takes from a good reply what concerns the connection.
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

/// A place for a server's connection.
#[allow(unnameable_types, reason = "part of a sealed trait's associated type: nothing outside can use it")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) server: Option<ServerId>,
    /// The connection before, which the host must still close. It is told so before it is told to dial again.
    pub(super) hangup: Option<SocketId>,
    pub(super) socket: Option<Socket>,
    pub(super) rtt: Rtt,
    /// The scan in which it was checked last.
    pub(super) scanned: u32,
    /// The scan in which it was checked a second time.
    pub(super) rescanned: u32,
    /// Until when it is left alone.
    pub(super) cooldown: Option<Instant>,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { server: None, hangup: None, socket: None, rtt: Rtt::new(), scanned: 0, rescanned: 0, cooldown: None }
    }

    /// Makes it the place of another server, or of none.
    pub(super) fn assign(&mut self, server: Option<ServerId>) {
        self.hang_up();
        *self = Self { server, hangup: self.hangup, ..Self::new() };
    }

    /// Gives the connection up: owes `Hangup` if the host was ever told of it.
    pub(super) fn hang_up(&mut self) {
        if let Some(socket) = self.socket.take() {
            if socket.step != (Step::Dial { owed: true }) {
                assert!(self.hangup.is_none(), "the connection before was closed before this one was dialed");
                self.hangup = Some(socket.id);
            }
        }
    }

    /// Gives up a connection that never stood: there is nothing to close.
    pub(super) fn fail_dial(&mut self) {
        let dialing = self.socket.take().is_some_and(|socket| socket.step == Step::Dial { owed: false });
        assert!(dialing, "the dial was under way");
    }

    /// The connection, if it is this one and the host knows of it.
    pub(super) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.socket.as_mut().filter(|socket| socket.id == id && socket.step != (Step::Dial { owed: true }))
    }

    /// What the host must do on the connection, once.
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
