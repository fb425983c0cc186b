//! What a topology owes its host, and what it is told of an application's errors.

use crate::pool::Clear;
use crate::{Cause, ObjectId, ServerId, TopologyVersion};
use core::time::Duration;
use poolhouse_wire::handshake::HandshakeError;

/// The round-trip times that go with a good check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    /// The moving average.
    pub average: Duration,
    /// The minimum of the last samples; zero until there are two.
    pub minimum: Duration,
}

/// What must be done after an input, in the same step, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopologyAction {
    /// A server is new: make its pool, and unless the topology is load-balanced start its monitor.
    ServerAdded(ServerId),
    /// Tell the pool of this server.
    Pool(ServerId, PoolCommand),
    /// Cancel the check of this server that is in flight, and close its connection (MON-50).
    CancelCheck(ServerId),
    /// Ask the monitor of this server for a check at once (SDAM-55, SDAM-81).
    RequestCheck(ServerId),
    /// A server is gone: close its monitor and its pool. Its id means nothing from now on.
    ServerRemoved(ServerId),
    /// Wake whoever waits for a suitable server. Last of all.
    WakeSelectors,
}

/// What a topology wants of a monitor. [`Topology::poll_check_action`](super::Topology::poll_check_action) gives it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckAction {
    /// Cancel the check of this server that is in flight, and close its connection (MON-50).
    Cancel(ServerId),
    /// Ask for a check at once (SDAM-55, SDAM-81).
    Request(ServerId),
}

/// What a pool is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolCommand {
    /// Hand out connections.
    Ready,
    /// All connections are stale: a check failed.
    Clear {
        /// Whether those in use are interrupted: the check timed out (MON-54).
        interrupt_in_use_connections: bool,
        /// Why the check failed.
        cause: Cause,
    },
}

/// Whether the connection of an error was ready for applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandshakePhase {
    /// It was being established: connecting, hello or authentication.
    Before,
    /// It was in use.
    After,
}

/// What went wrong on an application's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppErrorKind<'a> {
    /// The socket failed, or could not be connected; no timeout.
    Network,
    /// The server did not answer in time.
    NetworkTimeout,
    /// The server answered, and the answer has an error in it.
    Command(CommandError<'a>),
    /// Anything else that ends an establishment: DNS, certificate, refused credentials, a breach of protocol.
    Other(Cause),
}

impl AppErrorKind<'_> {
    /// The same in one word, without texts: what a pool is told that is cleared because of it. Of a reply with two errors it is the command's own.
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

/// The failure of an establishment: of the socket, a server's error, or one that says nothing of the server.
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

/// The errors in a server's reply. `writeErrors` are not among them: they say nothing of the server (SDAM-79).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandError<'a> {
    /// `code` and `errmsg` of a reply with `ok: 0`; `None` when `ok` is 1.
    pub command: Option<ReplyError<'a>>,
    /// `code` and `errmsg` in `writeConcernError` (SDAM-78).
    pub write_concern: Option<ReplyError<'a>>,
    /// `topologyVersion` of the reply.
    pub topology_version: Option<TopologyVersion>,
}

/// One error of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyError<'a> {
    /// `code`, if it has one.
    pub code: Option<i32>,
    /// `errmsg`, looked at only without a code (SDAM-77).
    pub message: &'a str,
}

/// An error of an application's operation, or of the establishment of a connection for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AppError<'a> {
    /// The generation of the connection: of the pool when its establishment began or, load-balanced and once the
    /// service is known, of that service (SDAM-66).
    pub generation: u64,
    /// The generation that the pool, or that service, has now.
    pub pool_generation: u64,
    /// Whether the connection was ready.
    pub phase: HandshakePhase,
    /// What went wrong.
    pub kind: AppErrorKind<'a>,
    /// Whether the error has the label `SystemOverloadedError`.
    pub overloaded: bool,
    /// The service that the connection reached, in load-balanced mode.
    pub service_id: Option<ObjectId>,
}

/// What follows from an application's error.
///
/// `clear` is for whoever reports the error: it tells the pool, in the same step, by [`Pool::clear`](crate::pool::Pool::clear) or
/// with the news that the establishment failed. The others say what was decided; the checks are owed as
/// [`TopologyAction`]s besides.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Which connections become stale.
    pub clear: Option<Clear>,
    /// Whether the server was marked Unknown.
    pub marked_unknown: bool,
    /// Whether a check at once is asked for; owed as [`TopologyAction::RequestCheck`].
    pub request_check: bool,
    /// Whether the check in flight is cancelled; owed as [`TopologyAction::CancelCheck`].
    pub cancel_check: bool,
    /// Whether a client without monitors must scan before its next operation (SDAM-82).
    pub scan_stale: bool,
}
