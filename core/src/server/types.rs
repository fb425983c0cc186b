//! Values exchanged between a server machine and its host, and the state of a connection.

use crate::Cause;
use crate::machine::Stale;
use crate::monitor::{HelloKind, MonitorConnId};
use crate::pool::{ConnId, WaiterId};
use core::fmt;
use poolhouse_wire::handshake::{Established, Handshake, HandshakeError};
use poolhouse_wire::hello::HelloExchange;
use poolhouse_wire::message::{Exchange, Matched, Message};
use poolhouse_wire::{EncodeError, WireError};

/// Identifies a socket of a server machine. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketId {
    /// A connection of the pool.
    Pool(ConnId),
    /// A connection of the monitor.
    Monitor(MonitorConnId),
}

/// An action that a server machine owes its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerAction {
    /// Connect to the server, TLS included; then call `handle_dialed` or `handle_failed`.
    Dial(SocketId),
    /// Bytes are due: call `poll_transmit` and send them.
    Transmit(SocketId),
    /// Close this socket, if it is still open. A command in progress on it has failed: check the
    /// connection in.
    Close(SocketId),
    /// The outcome of this check-out is available: wake its task, which calls `claim`.
    Wake(WaiterId),
    /// A check of the server has ended. A task that waits until the pool is ready must read the
    /// pool's state again.
    Checked,
}

/// The result of handling received bytes.
#[derive(Clone, Copy, Debug)]
pub enum Received<'b> {
    /// No message is complete, and nothing was consumed.
    NeedMore {
        /// The minimum number of missing bytes; at least 1. The peer announced it: do not allocate
        /// all of it at once, but grow the buffer as bytes arrive.
        bytes_min: usize,
    },
    /// Bytes of a handshake or of a check were handled. Call `handle_input` again with the rest,
    /// even if it is empty.
    Handled {
        /// The number of bytes to remove from the front of the input. 0 if the authenticator has
        /// done one step of a long computation; a host that shares its thread yields before the
        /// next call.
        consumed_bytes: usize,
    },
    /// A whole reply to a command. An error in it that concerns the server's state has been applied
    /// to the server's description and to the pool.
    Reply {
        /// The reply.
        message: Message<'b>,
        /// Whether another reply follows.
        matched: Matched,
        /// The number of bytes to remove from the front of the input.
        consumed_bytes: usize,
    },
}

/// The socket can no longer be used: close it. If its connection is checked out, check it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketError {
    /// The machine has already abandoned the socket, or has not yet reported it as connected.
    Stale,
    /// The connection had already failed, for this cause.
    Failed(Cause),
    /// The connection was not established.
    Handshake(HandshakeError),
    /// The peer violated the protocol, in a check or in the reply to a command.
    Wire(WireError),
}

impl From<Stale> for SocketError {
    fn from(Stale: Stale) -> Self {
        Self::Stale
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => Stale.fmt(f),
            Self::Failed(cause) => cause.fmt(f),
            Self::Handshake(error) => error.fmt(f),
            Self::Wire(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Stale | Self::Failed(_) | Self::Wire(_) => None,
            Self::Handshake(error) => error.source(),
        }
    }
}

/// A command was not written, and no reply to it will arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandNotSent {
    /// The connection has failed for this cause: check it in.
    Failed(Cause),
    /// The reply to the previous command is still due.
    Busy,
    /// The command cannot be encoded. The connection can be used further.
    Encode(EncodeError),
}

impl fmt::Display for CommandNotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(cause) => cause.fmt(f),
            Self::Busy => f.write_str("the reply to the previous command is still due"),
            Self::Encode(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CommandNotSent {}

/// A connection of the monitor.
#[derive(Debug)]
pub(super) struct MonitorConn {
    pub(super) id: MonitorConnId,
    pub(super) exchange: HelloExchange,
    /// The hello that is due.
    pub(super) hello: Option<HelloKind>,
}

/// A connection of the pool.
#[allow(unnameable_types, reason = "part of a sealed trait's associated type: nothing outside can use it")]
#[derive(Debug)]
pub(super) struct PoolConn<'a, A> {
    pub(super) id: ConnId,
    pub(super) owed: Owed,
    pub(super) state: State<'a, A>,
}

/// The action that is owed for a connection, in addition to those of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    Nothing,
    Transmit,
    Close,
}

#[derive(Debug)]
pub(super) enum State<'a, A> {
    /// The host connects the socket.
    Dialing,
    Greeting(Handshake<'a, A>),
    Ready {
        established: Established,
        exchange: Exchange,
    },
    /// Unusable. A connection in use keeps its cause until it is checked in.
    Failed(Cause),
}
