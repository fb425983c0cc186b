//! How requests of a session fail.

use super::Reply;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use poolhouse_core::Cause;
use poolhouse_core::mux::{AcquireError, MuxId};
use poolhouse_cql::{CqlEncodeError, CqlError, ErrorCode, Opcode};

/// A request failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// No host took it: each with its reason, in the order in which they were asked. It was not executed, unless it was
    /// [idempotent](super::RequestOptions::idempotent) and one of them [may have](RequestError::may_have_executed).
    NoHost(Vec<Rejection>),
    /// The time that it may take is over.
    TimedOut {
        /// Whom it was with.
        address: String,
        /// Whether it was, perhaps, sent, or will be, to this host or one that was asked before: it may be executed.
        sent: bool,
    },
    /// Its connection failed before the answer came. The server may have executed it.
    Lost {
        /// Whom it was with.
        address: String,
        /// Why.
        cause: Cause,
    },
    /// The server answered with an error.
    Server(Box<ServerError>),
    /// The server's answer makes no sense.
    Reply(CqlError),
    /// The request cannot be written. Nothing was sent.
    Encode(CqlEncodeError),
    /// Not for users to say: what begins a connection, and what asks for events.
    Unsupported(Opcode),
    /// The session is closed.
    Closed,
    /// The executor that ran the session's tasks has dropped them. Nobody serves the session any more.
    Abandoned,
    /// The session is of the process that this one was forked from.
    Forked,
}

/// A host that did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The host.
    pub host: MuxId,
    /// Its address.
    pub address: String,
    /// Why.
    pub reason: RejectionReason,
    /// The text of its server when it last refused a connection (see [`HostStatus::refusal`](super::HostStatus::refusal)), or what the operating
    /// system, TLS or the resolver reported when it could not be dialed.
    pub refusal: Option<String>,
}

/// Why a host did not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectionReason {
    /// Its pool did not.
    Pool(AcquireError),
    /// Its connection failed before anything of the request was sent; or later, and the request may be repeated.
    Lost {
        /// Why.
        cause: Cause,
        /// Whether some of it was.
        sent: bool,
    },
    /// Its server answered that it cannot serve it now.
    Refused(ErrorCode),
}

/// A server's answer that a request has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerError {
    /// What failed.
    pub code: ErrorCode,
    /// The server's text: its first 256 bytes on one line, control characters replaced by spaces. Empty if the session's password is in it.
    pub message: String,
    /// The whole answer, as the server sent it: [`Response::Error`](poolhouse_cql::Response::Error) has all of the text, and more.
    pub reply: Reply,
}

impl RequestError {
    /// Whether time was up: the request's, or of each host that did not take it.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::NoHost(hosts) => {
                let timed_out =
                    |host: &Rejection| matches!(host.reason, RejectionReason::Pool(AcquireError::TimedOut { .. }));
                !hosts.is_empty() && hosts.iter().all(timed_out)
            }
            Self::Lost { .. }
            | Self::Server(_)
            | Self::Reply(_)
            | Self::Encode(_)
            | Self::Unsupported(_)
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => false,
        }
    }

    /// Whether a server may have executed the request.
    #[must_use]
    pub fn may_have_executed(&self) -> bool {
        match self {
            Self::TimedOut { sent, .. } => *sent,
            Self::NoHost(hosts) => hosts.iter().any(Rejection::may_have_executed),
            Self::Lost { .. } | Self::Server(_) | Self::Reply(_) | Self::Closed | Self::Abandoned => true,
            Self::Encode(_) | Self::Unsupported(_) | Self::Forked => false,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost(hosts) => {
                f.write_str("no host took the request")?;
                for (place, host) in hosts.iter().enumerate() {
                    write!(f, "{}{host}", if place == 0 { ": " } else { "; " })?;
                }
                Ok(())
            }
            Self::TimedOut { address, sent: true } => write!(f, "{address} did not answer in time"),
            Self::TimedOut { address, sent: false } => write!(f, "{address} did not take the request in time"),
            Self::Lost { address, cause } => write!(f, "the connection to {address} failed: {cause}"),
            Self::Server(error) => error.fmt(f),
            Self::Reply(error) => write!(f, "the answer makes no sense: {error}"),
            Self::Encode(error) => write!(f, "the request cannot be written: {error}"),
            Self::Unsupported(opcode) => write!(f, "{opcode} is for the session to say"),
            Self::Closed => f.write_str("the session is closed"),
            Self::Abandoned => f.write_str("the tasks of the session were dropped"),
            Self::Forked => f.write_str("the session is of the process that this one was forked from"),
        }
    }
}

impl core::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // Not the box that it is in, so that it can be told what it is.
            Self::Server(error) => Some(&**error),
            Self::Reply(error) => Some(error),
            Self::Encode(error) => Some(error),
            Self::Lost { cause, .. } => Some(cause),
            // Of the first host.
            Self::NoHost(hosts) => match &hosts.first()?.reason {
                RejectionReason::Pool(error) => Some(error),
                RejectionReason::Lost { cause, .. } => Some(cause),
                RejectionReason::Refused(_) => None,
            },
            Self::TimedOut { .. } | Self::Unsupported(_) | Self::Closed | Self::Abandoned | Self::Forked => None,
        }
    }
}

impl Rejection {
    /// Whether its server may have executed the request, which was then idempotent.
    #[must_use]
    pub fn may_have_executed(&self) -> bool {
        match self.reason {
            RejectionReason::Pool(_) => false,
            RejectionReason::Lost { sent, .. } => sent,
            RejectionReason::Refused(code) => code != ErrorCode::IS_BOOTSTRAPPING,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.address)?;
        match self.reason {
            RejectionReason::Pool(error) => error.fmt(f),
            RejectionReason::Lost { cause, .. } => write!(f, "the connection failed: {cause}"),
            RejectionReason::Refused(code) => write!(f, "the server refused: {code}"),
        }?;
        match &self.refusal {
            Some(refusal) => write!(f, " ({refusal})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl core::error::Error for ServerError {}
