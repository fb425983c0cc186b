//! Why something failed, small enough to keep in a slot.

use core::fmt;

/// Why a connection, a check or a check-out failed.
///
/// `Copy` and without text of a peer, so that it fits into slots, events and errors of every build, and
/// can hold no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The socket failed: refused, reset, or closed by the peer.
    Network,
    /// The peer did not answer in time.
    NetworkTimeout,
    /// The host name could not be resolved.
    Dns,
    /// The peer's certificate or host name was refused. An I/O error inside the TLS handshake is [`Cause::Network`].
    Certificate,
    /// The peer broke the wire protocol.
    Protocol,
    /// The server answered a command with `ok: 0` and this code (0 when it gave none).
    Command {
        /// The numeric error code.
        code: i32,
    },
    /// The server refused the credentials, or could not prove that it knows them.
    Authentication,
    /// Load-balanced mode, and the server's hello named no `serviceId`.
    MissingServiceId,
    /// The server's monitor timed out and interrupted the connections in use.
    Interrupted,
    /// The caller gave up.
    Cancelled,
    /// The pool or the client was closed.
    Closed,
    /// The process was forked; what belongs to the parent is not used by the child.
    Forked,
    /// This side is out of memory, table places or descriptors.
    Resources,
}

impl Cause {
    /// Whether this is a network error or a network timeout: the failures that may be repaired by another connection.
    #[must_use]
    pub const fn is_network(self) -> bool {
        matches!(self, Self::Network | Self::NetworkTimeout)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "network error",
            Self::NetworkTimeout => "network timeout",
            Self::Dns => "host name not resolved",
            Self::Certificate => "certificate refused",
            Self::Protocol => "wire protocol error",
            Self::Command { code } => return write!(f, "command failed with code {code}"),
            Self::Authentication => "authentication failed",
            Self::MissingServiceId => {
                "Driver attempted to initialize in load balancing mode, but the server does not support this mode"
            }
            Self::Interrupted => "interrupted due to server monitor timeout",
            Self::Cancelled => "cancelled by the caller",
            Self::Closed => "closed",
            Self::Forked => "the process was forked",
            Self::Resources => "out of local resources",
        })
    }
}

impl core::error::Error for Cause {}

const _: () = assert!(size_of::<Option<Cause>>() == 8);
