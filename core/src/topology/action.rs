//! Actions that a topology owes its host, and descriptions of application errors that the host
//! passes to it.

use crate::pool::Clear;
use crate::{Cause, ObjectId, ServerId, TopologyVersion};
use core::time::Duration;
use poolhouse_wire::handshake::HandshakeError;

/// The round-trip times measured with a successful check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    /// The moving average.
    pub average: Duration,
    /// The minimum of the last samples; zero while there are fewer than two.
    pub minimum: Duration,
}

/// An action that the host must carry out after an input, in the same step, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopologyAction {
    /// A server was added: create its pool and, unless the topology is load-balanced, start its
    /// monitor.
    ServerAdded(ServerId),
    /// Apply the command to the pool of this server.
    Pool(ServerId, PoolCommand),
    /// Cancel the check in flight of this server, and close its connection.
    CancelCheck(ServerId),
    /// Request an immediate check from the monitor of this server.
    RequestCheck(ServerId),
    /// A server was removed: close its monitor and its pool. Its id is invalid from now on.
    ServerRemoved(ServerId),
    /// Wake all tasks that wait for a suitable server. Always the last action.
    WakeSelectors,
}

/// An action for a monitor, returned separately by
/// [`Topology::poll_check_action`](super::Topology::poll_check_action).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckAction {
    /// Cancel the check in flight of this server, and close its connection.
    Cancel(ServerId),
    /// Request an immediate check.
    Request(ServerId),
}

/// A command for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolCommand {
    /// Mark the pool ready: connections may be checked out.
    Ready,
    /// Make all connections stale, because a check failed.
    Clear {
        /// Whether connections in use are interrupted: the check timed out.
        interrupt_in_use_connections: bool,
        /// The cause of the check's failure.
        cause: Cause,
    },
}

/// Whether the connection had completed its handshake when the error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakePhase {
    /// It was being established: connecting, hello or authentication.
    Before,
    /// It was established and in use.
    After,
}

/// The kind of an error on an application's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppErrorKind<'a> {
    /// The socket failed, or could not be connected, other than by a timeout.
    Network,
    /// The server did not answer before the timeout.
    NetworkTimeout,
    /// The server's reply contains an error.
    Command(CommandError<'a>),
    /// Any other failure of an establishment: DNS, certificate, refused credentials, a protocol
    /// error.
    Other(Cause),
}

impl AppErrorKind<'_> {
    /// The error as a [`Cause`] without text, to be passed to a pool that is cleared because of it.
    /// If a reply has two errors, the command's own error is used.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Network => Cause::Network,
            Self::NetworkTimeout => Cause::NetworkTimeout,
            Self::Command(error) => {
                let error = error.command.or(error.write_concern);
                Cause::Command { code: error.and_then(|error| error.code).unwrap_or(0) }
            }
            Self::Other(cause) => *cause,
        }
    }
}

/// The failure of an establishment: a socket error, a server's error, or a failure unrelated to the
/// server's state.
///
/// Source: SDAM, "Error handling".
impl From<&HandshakeError> for AppErrorKind<'_> {
    fn from(error: &HandshakeError) -> Self {
        if error.cause == Cause::Network {
            Self::Network
        } else if error.cause == Cause::NetworkTimeout {
            Self::NetworkTimeout
        } else if let Cause::Command { code } = error.cause {
            let command = Some(ReplyError { code: Some(code), message: "" });
            let topology_version = error.topology_version;
            Self::Command(CommandError { command, write_concern: None, topology_version })
        } else {
            Self::Other(error.cause)
        }
    }
}

/// The errors in a server's reply. `writeErrors` are excluded: they are unrelated to the server's
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandError<'a> {
    /// `code` and `errmsg` of a reply with `ok: 0`; `None` when `ok` is 1.
    pub command: Option<ReplyError<'a>>,
    /// `code` and `errmsg` in `writeConcernError`.
    pub write_concern: Option<ReplyError<'a>>,
    /// `topologyVersion` of the reply.
    pub topology_version: Option<TopologyVersion>,
}

/// One error of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyError<'a> {
    /// `code`, if the error has one.
    pub code: Option<i32>,
    /// `errmsg`, evaluated only if there is no code.
    pub message: &'a str,
}

/// An error of an application's operation, or of establishing a connection for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AppError<'a> {
    /// The generation of the connection: the pool's generation when its establishment began or,
    /// load-balanced and once the service is known, that of the service.
    pub generation: u64,
    /// The current generation of the pool, or of that service.
    pub pool_generation: u64,
    /// Whether the connection's handshake was complete.
    pub phase: HandshakePhase,
    /// The kind of the error.
    pub kind: AppErrorKind<'a>,
    /// Whether the error has the label `SystemOverloadedError`.
    pub overloaded: bool,
    /// The service that the connection reached, in load-balanced mode.
    pub service_id: Option<ObjectId>,
}

/// The consequences of an application's error.
///
/// The caller that reports the error must apply `clear` to the pool in the same step, by
/// [`Pool::clear`](crate::pool::Pool::clear) or together with the report of the failed
/// establishment. The other fields describe decisions already made; the checks are also owed as
/// [`TopologyAction`]s.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The connections that become stale.
    pub clear: Option<Clear>,
    /// Whether the server was marked Unknown.
    pub marked_unknown: bool,
    /// Whether an immediate check is requested; owed as [`TopologyAction::RequestCheck`].
    pub request_check: bool,
    /// Whether the check in flight is cancelled; owed as [`TopologyAction::CancelCheck`].
    pub cancel_check: bool,
    /// Whether a client without monitors must scan before its next operation.
    pub scan_stale: bool,
}
