//! Why a connection of a session failed, or was not established.

use super::Reply;
use crate::Platform;
use crate::net::Net;
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;
use poolhouse_core::{Cause, Reason};
use poolhouse_cql::{CqlEncodeError, CqlError, ErrorCode, Opcode, Response};
use poolhouse_driver::Runtime as _;
use poolhouse_wire::peer_text::one_line;
use std::io;

/// Why a connection failed, or was not established.
#[derive(Debug)]
pub(super) struct LinkFailure {
    pub(super) cause: Cause,
    /// The underlying error, or a [`Finding`].
    pub(super) reason: Reason,
}

impl LinkFailure {
    pub(super) fn of_stream<P: Platform>(error: io::Error) -> Self {
        Self { cause: Net::<P>::stream_cause(&error), reason: Net::<P>::stream_reason(error) }
    }

    pub(super) fn of(cause: Cause, finding: Finding) -> Self {
        Self { cause, reason: finding.into() }
    }
}

impl From<Cause> for LinkFailure {
    fn from(cause: Cause) -> Self {
        Self { cause, reason: Reason::NONE }
    }
}

impl From<CqlError> for LinkFailure {
    fn from(error: CqlError) -> Self {
        Self { cause: error.into(), reason: Reason::new(error) }
    }
}

impl From<CqlEncodeError> for LinkFailure {
    fn from(error: CqlEncodeError) -> Self {
        Self { cause: error.into(), reason: Reason::new(error) }
    }
}

/// The text of a reason, on one line.
pub(super) fn text_of(reason: &Reason) -> Option<String> {
    reason.get().map(|error| one_line(&error.to_string()).collect())
}

/// A reason that is not an error of the platform or of the decoder.
#[derive(Debug)]
pub(super) enum Finding {
    /// A read returned no bytes.
    Closed,
    /// A read returned no bytes, and none was received before.
    ClosedAtOnce,
    /// The time limit has passed before the server accepted the connection.
    NotAccepted { limit: Option<Duration> },
    /// The time limit has passed during the handshake.
    NoAnswer { limit: Option<Duration> },
    /// The first bytes of the server are no envelope.
    Foreign(Foreign),
    /// The server refused the connection with this text.
    Refused(String),
    /// No request waits for the reply.
    UnexpectedReply {
        stream: i16,
        opcode: Opcode,
        /// That of an error.
        code: Option<ErrorCode>,
    },
}

impl Finding {
    pub(super) fn unexpected(reply: &Reply) -> Self {
        let code = match reply.response() {
            Ok(Response::Error(failure)) => Some(failure.code),
            Ok(_) | Err(_) => None,
        };
        Self::UnexpectedReply { stream: reply.header.stream, opcode: reply.header.opcode, code }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::ClosedAtOnce => f.write_str(
                "the server closed the connection before it answered: does it require TLS, and is this the port of \
                 Cassandra's clients?",
            ),
            Self::NotAccepted { limit } => {
                f.write_str("no connection")?;
                write_limit(f, *limit)?;
                f.write_str(": is the host up, and does a firewall drop the packets?")
            }
            Self::NoAnswer { limit } => {
                f.write_str("no answer to the handshake")?;
                write_limit(f, *limit)?;
                f.write_str(": is this a Cassandra server's port? A MongoDB or Redis server would wait for more bytes")
            }
            Self::Foreign(foreign) => foreign.fmt(f),
            Self::Refused(text) => f.write_str(text),
            Self::UnexpectedReply { stream, opcode, code } => {
                write!(f, "the server sent {opcode} on stream {stream}, on which no request waits for a reply")?;
                code.map_or(Ok(()), |code| write!(f, ": {code}"))
            }
        }
    }
}

fn write_limit(f: &mut fmt::Formatter<'_>, limit: Option<Duration>) -> fmt::Result {
    limit.map_or(Ok(()), |limit| write!(f, " in {limit:?}"))
}

impl core::error::Error for Finding {}

/// The protocol of a server that does not speak Cassandra's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    Http,
    MongoDb,
    Redis,
    Ssh,
    Tls,
    Unknown,
}

impl Foreign {
    /// The number of first bytes that are enough: the header of a MongoDB message.
    pub(super) const BYTES: usize = 16;

    /// Recognizes the protocol by the server's first bytes. `None` if they may be those of Cassandra.
    pub(super) fn of(first: &[u8]) -> Option<Self> {
        // A reply of Cassandra begins with its version, with the bit of a reply.
        const VERSIONS: core::ops::RangeInclusive<u8> = 0x81..=0x86;
        match first {
            [version, ..] if VERSIONS.contains(version) => None,
            [] => None,
            // An alert or a handshake, of TLS 1.0 to 1.3.
            [0x15 | 0x16, 3, 0..=4, ..] => Some(Self::Tls),
            // OP_REPLY and OP_MSG, after the length and the ids.
            [_, _, _, _, _, _, _, _, _, _, _, _, 1, 0, 0, 0, ..]
            | [_, _, _, _, _, _, _, _, _, _, _, _, 0xdd, 7, 0, 0, ..] => Some(Self::MongoDb),
            _ if first.starts_with(b"HTTP/") => Some(Self::Http),
            _ if first.starts_with(b"SSH-") => Some(Self::Ssh),
            _ if first.starts_with(b"-ERR ") || first.starts_with(b"-NOAUTH ") => Some(Self::Redis),
            _ => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent bytes that are no envelope of Cassandra's protocol: ")?;
        f.write_str(match self {
            Self::Http => "it is an HTTP server",
            Self::MongoDb => "it is a MongoDB server",
            Self::Redis => "it is a Redis server",
            Self::Ssh => "it is an SSH server",
            Self::Tls => "it requires TLS",
            Self::Unknown => "is this the port of Cassandra's clients?",
        })
    }
}

impl From<Finding> for Reason {
    fn from(finding: Finding) -> Self {
        Self::new(finding)
    }
}
