//! Why a connection of a session failed, or was not established.

use super::Reply;
use crate::Platform;
use crate::net::Net;
use alloc::string::{String, ToString};
use core::fmt;
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
            Self::Refused(text) => f.write_str(text),
            Self::UnexpectedReply { stream, opcode, code } => {
                write!(f, "the server sent {opcode} on stream {stream}, on which no request waits for a reply")?;
                code.map_or(Ok(()), |code| write!(f, ": {code}"))
            }
        }
    }
}

impl core::error::Error for Finding {}

impl From<Finding> for Reason {
    fn from(finding: Finding) -> Self {
        Self::new(finding)
    }
}
