//! What passes between a scan and its host.

use crate::{Instant, ServerId};
use core::num::NonZeroU64;
use poolhouse_wire::hello::HelloKind;

/// Names one connection, and no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(super) server: ServerId,
    pub(super) number: NonZeroU64,
}

impl SocketId {
    /// The server that it leads to.
    #[must_use]
    pub const fn server(self) -> ServerId {
        self.server
    }

    /// driverConnectionId: 1, 2, 3, .. over all servers in the order of their making, never used twice.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number.get()
    }
}

/// What the host must do, one after the other, each with its answer before the next is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanAction {
    /// Close this connection. No answer is wanted.
    Hangup(SocketId),
    /// Connect to the server of this connection; then call `handle_dialed` or `handle_failed`.
    Dial {
        /// The connection.
        socket: SocketId,
        /// When it is too late; no limit if `None`.
        deadline: Option<Instant>,
    },
    /// Write a hello and read its reply; then call `handle_reply` or `handle_failed`.
    SendHello {
        /// The connection.
        socket: SocketId,
        /// What to write: never an awaitable one; the first one with `loadBalanced` in a load-balanced topology.
        hello: HelloKind,
        /// When it is too late; no limit if `None`.
        deadline: Option<Instant>,
    },
}

/// What a selection wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanStep {
    /// The server is selected, and this connection to it is checked out: use it, then check it in.
    Selected(SocketId),
    /// Take and carry out the actions, then ask again.
    Work,
    /// Sleep until then, then ask again: servers are not scanned more often than every 500 ms.
    Wait(Instant),
}
