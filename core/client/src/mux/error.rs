//! Errors of a session's requests.

use super::Reply;
use super::options::KEYSPACE_RULE;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_core::mux::{AcquireError, HexCode, MuxId};
use poolhouse_core::{Cause, Reason};
use poolhouse_cql::{BindError, CqlEncodeError, CqlError, ErrorCode, Opcode, RowError};

/// Why a request failed.
#[derive(Clone)]
#[non_exhaustive]
pub enum RequestError {
    /// No host took the request. Each host is listed with its reason, in the order of the attempts.
    /// The request was not executed, unless one of the hosts
    /// [may have executed it](RequestError::may_have_executed).
    NoHost(Vec<Rejection>),
    /// No node is in the local data centre of the options, and no other host is used:
    /// [`SessionOptions::local_data_center`](super::SessionOptions::local_data_center). Nothing was sent.
    UnknownDataCenter(Arc<UnknownDataCenter>),
    /// The time limit of the request has passed.
    TimedOut {
        /// The host that had the request last.
        address: String,
        /// Whether the request was sent, or may still be sent, to this host or an earlier one. Then
        /// a server may execute it.
        sent: bool,
    },
    /// The connection failed before the answer arrived. The server may have executed the request.
    Lost {
        /// The host that had the request.
        address: String,
        /// Why the connection failed.
        cause: Cause,
        /// The underlying error, if there is one.
        reason: Reason,
    },
    /// The server answered with an error.
    Server(Box<ServerError>),
    /// The server's answer is malformed.
    Reply(CqlError),
    /// A row of the server's answer is no value of the wanted type.
    Row(Box<RowError>),
    /// The server's answer is of another kind than the request requires.
    Unexpected(Opcode),
    /// The server's answer has more rows than one.
    ManyRows {
        /// Their number.
        count: usize,
    },
    /// The position after a page is that before it, so the stream of pages would have no end.
    RepeatedPage,
    /// The statement has changed the schema, and not all hosts have the new one after this time, or none has
    /// answered: [`SessionOptions::schema_agreement`](super::SessionOptions::schema_agreement).
    SchemaDisagreement {
        /// The limit of the options.
        limit: Duration,
    },
    /// The bind variables of a prepared statement have changed since it was prepared, because its table was
    /// dropped and created again. From now on this statement is refused: prepare it again. Nothing was executed,
    /// except perhaps by an earlier attempt of an idempotent call, whose connection was lost.
    Outdated,
    /// A value does not fit its variable. Nothing was sent.
    Bind(Box<BindError>),
    /// The session cannot use the keyspace: [`Session::use_keyspace`](super::Session::use_keyspace).
    Keyspace(Box<KeyspaceError>),
    /// The request cannot be encoded. Nothing was sent.
    Encode(CqlEncodeError),
    /// The call was made by another session than that which sends it. Nothing was sent.
    Foreign,
    /// The session is closed.
    Closed,
    /// The executor dropped the session's tasks: the session cannot be used any more.
    Abandoned,
    /// The session was created in a parent process, before a fork.
    Forked,
}

/// The local data centre of a session, if no node is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownDataCenter {
    /// The local data centre.
    pub data_center: String,
    /// The data centres that have nodes: the first 16, in ascending order.
    pub found: Vec<String>,
}

impl fmt::Display for UnknownDataCenter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no node is in the local data centre {:?}: the cluster has ", self.data_center)?;
        for (index, name) in self.found.iter().enumerate() {
            write!(f, "{}{name:?}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("; correct local_data_center, or allow remote_hosts")
    }
}

/// A host that did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// The host.
    pub host: MuxId,
    /// Its address.
    pub address: String,
    /// Why it did not take the request.
    pub reason: RejectionReason,
    /// If the host is down, why the last attempt to connect failed:
    /// [`HostStatus::refusal`](super::HostStatus::refusal). If no connection was open until the time limit, also
    /// what the attempt waits for. If the connection was lost, the underlying error, if there is one.
    pub refusal: Option<String>,
}

/// Why a host did not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectionReason {
    /// The pool rejected it.
    Pool(AcquireError),
    /// The connection failed before any byte of the request was sent, or the request is idempotent.
    Lost {
        /// Why the connection failed.
        cause: Cause,
        /// Whether bytes of the request were sent.
        sent: bool,
    },
    /// The server answered with an error, after which the request was sent again.
    Refused(ErrorCode),
}

/// A keyspace that a session cannot use. Its connections keep their keyspace.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceError {
    /// The name.
    pub keyspace: String,
    /// The address of the server that refused it. `None`: no keyspace can have the name, and nothing
    /// was sent.
    pub address: Option<String>,
    /// The server's text, as that of a [`ServerError`].
    pub message: String,
}

/// An error that a server returned for a request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerError {
    /// The kind of the error.
    pub code: ErrorCode,
    /// The server's text: its first 256 bytes on one line, control characters replaced by spaces.
    /// Empty if it contains the session's password.
    pub message: String,
    /// The whole answer, as received. [`Response::Error`](poolhouse_cql::Response::Error) has the
    /// full text and further fields.
    pub reply: Reply,
    /// The hosts that did not take the request before.
    pub(super) earlier: Vec<Rejection>,
}

impl RequestError {
    /// Whether a time limit has passed: that of the request, or that of the pool of every host.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::NoHost(hosts) => {
                let timed_out =
                    |host: &Rejection| matches!(host.reason, RejectionReason::Pool(AcquireError::TimedOut { .. }));
                !hosts.is_empty() && hosts.iter().all(timed_out)
            }
            Self::UnknownDataCenter(_)
            | Self::Lost { .. }
            | Self::Server(_)
            | Self::Reply(_)
            | Self::Row(_)
            | Self::Unexpected(_)
            | Self::ManyRows { .. }
            | Self::RepeatedPage
            | Self::SchemaDisagreement { .. }
            | Self::Outdated
            | Self::Bind(_)
            | Self::Keyspace(_)
            | Self::Encode(_)
            | Self::Foreign
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => false,
        }
    }

    /// The type of the error in metrics: `error.type`.
    pub(crate) fn type_name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::TimedOut { .. } => "timeout",
            Self::NoHost(_) | Self::UnknownDataCenter(_) => "no_server",
            Self::Lost { .. } => "network",
            Self::Server(error) => return Cow::Owned(format!("{:#06x}", error.code.number())),
            Self::Reply(_) | Self::Row(_) | Self::Unexpected(_) | Self::ManyRows { .. } | Self::RepeatedPage => "reply",
            Self::SchemaDisagreement { .. } => "schema_disagreement",
            Self::Outdated => "outdated",
            Self::Bind(_) | Self::Encode(_) | Self::Foreign => "invalid",
            Self::Keyspace(_) => "keyspace",
            Self::Closed | Self::Abandoned | Self::Forked => "closed",
        })
    }

    /// The same error, if only the preparation of a statement has failed: then nothing was executed.
    pub(super) fn of_preparation(mut self) -> Self {
        if let Self::TimedOut { sent, .. } = &mut self {
            *sent = false;
        }
        if let Self::NoHost(hosts) = &mut self {
            for host in hosts {
                if let RejectionReason::Lost { sent, .. } = &mut host.reason {
                    *sent = false;
                }
            }
        }
        self
    }

    /// The same error, after these hosts did not take the request.
    pub(super) fn after(mut self, mut earlier: Vec<Rejection>) -> Self {
        match &mut self {
            Self::TimedOut { sent, .. } => *sent |= earlier.iter().any(Rejection::may_have_executed),
            Self::NoHost(hosts) => {
                earlier.append(hosts);
                *hosts = earlier;
            }
            Self::Lost { .. }
            | Self::Server(_)
            | Self::Reply(_)
            | Self::Row(_)
            | Self::Unexpected(_)
            | Self::ManyRows { .. }
            | Self::RepeatedPage
            | Self::SchemaDisagreement { .. }
            | Self::Closed
            | Self::Abandoned
            | Self::UnknownDataCenter(_)
            | Self::Outdated
            | Self::Bind(_)
            | Self::Keyspace(_)
            | Self::Encode(_)
            | Self::Foreign
            | Self::Forked => {}
        }
        self
    }

    /// Whether a server may have executed the request.
    #[must_use]
    pub fn may_have_executed(&self) -> bool {
        match self {
            Self::TimedOut { sent, .. } => *sent,
            Self::NoHost(hosts) => hosts.iter().any(Rejection::may_have_executed),
            Self::Lost { .. }
            | Self::Server(_)
            | Self::Reply(_)
            | Self::Row(_)
            | Self::Unexpected(_)
            | Self::ManyRows { .. }
            | Self::RepeatedPage
            | Self::SchemaDisagreement { .. }
            | Self::Closed
            | Self::Abandoned => true,
            Self::UnknownDataCenter(_)
            | Self::Outdated
            | Self::Bind(_)
            | Self::Keyspace(_)
            | Self::Encode(_)
            | Self::Foreign
            | Self::Forked => false,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost(hosts) => {
                f.write_str("no host took the request")?;
                if hosts.is_empty() {
                    f.write_str(": no host is left that it may use; check the hosts of the request, or the data centre and the hosts of the session")?;
                }
                for (place, host) in hosts.iter().enumerate() {
                    write!(f, "{}{host}", if place == 0 { ": " } else { "; " })?;
                }
                Ok(())
            }
            Self::UnknownDataCenter(error) => error.fmt(f),
            Self::TimedOut { address, sent: true } => write!(f, "{address} did not answer in time"),
            Self::TimedOut { address, sent: false } => write!(f, "{address} did not take the request in time"),
            Self::Lost { address, cause, reason } => {
                write!(f, "the connection to {address} failed: {}", HexCode(*cause))?;
                reason.append(f)
            }
            Self::Server(error) => error.fmt(f),
            Self::Reply(error) => write!(f, "malformed response: {error}"),
            Self::Row(error) => error.fmt(f),
            Self::Bind(error) => error.fmt(f),
            Self::Keyspace(error) => error.fmt(f),
            Self::Unexpected(opcode) => write!(f, "{opcode} is no answer to the request"),
            Self::ManyRows { count } => write!(f, "the answer has {count} rows, expected at most one"),
            Self::SchemaDisagreement { limit } => write!(
                f,
                "the statement was executed, but not all hosts have the new schema after {limit:?}: wait for \
                 schema_agreement before the next request"
            ),
            Self::Outdated => {
                f.write_str("the bind variables of the statement have changed since it was prepared: prepare it again")
            }
            Self::RepeatedPage => {
                f.write_str("the server returned the position of the same page again: the pages would have no end")
            }
            Self::Encode(error) => write!(f, "the request cannot be encoded: {error}"),
            Self::Foreign => f.write_str("the call was made by another session: make it by the session that sends it"),
            Self::Closed => f.write_str("the session is closed"),
            Self::Abandoned => f.write_str("the executor dropped the tasks of the session: create a new session"),
            Self::Forked => {
                f.write_str("the session was created before the fork of this process and belongs to the parent")
            }
        }
    }
}

poolhouse_wire::debug_as_display!(RequestError);

impl core::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // These variants add no text to their errors, so they are no links of the chain.
            Self::Server(error) => error.source(),
            Self::Row(error) => error.source(),
            Self::Bind(error) => error.source(),
            Self::Reply(error) => Some(error),
            Self::Encode(error) => Some(error),
            Self::Lost { cause, reason, .. } => Some(reason.source().unwrap_or(cause)),
            // An error has only one source, so this is the error of the first host.
            Self::NoHost(hosts) => match &hosts.first()?.reason {
                RejectionReason::Pool(error) => Some(error),
                RejectionReason::Lost { cause, .. } => Some(cause),
                RejectionReason::Refused(_) => None,
            },
            Self::UnknownDataCenter(_)
            | Self::TimedOut { .. }
            | Self::Keyspace(_)
            | Self::Unexpected(_)
            | Self::ManyRows { .. }
            | Self::RepeatedPage
            | Self::SchemaDisagreement { .. }
            | Self::Outdated
            | Self::Foreign
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => None,
        }
    }
}

impl Rejection {
    /// Whether the host's server may have executed the request. Such a request is idempotent, or
    /// reads.
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
            // Nobody was busy: the pool has no connection yet.
            RejectionReason::Pool(AcquireError::TimedOut { in_flight: 0, .. }) if self.refusal.is_some() => {
                f.write_str("no connection was open in time")
            }
            RejectionReason::Pool(error) => error.fmt(f),
            RejectionReason::Lost { cause, .. } => write!(f, "the connection failed: {}", HexCode(cause)),
            RejectionReason::Refused(code) => write!(f, "the server refused: {code}"),
        }?;
        if let Some(refusal) = &self.refusal {
            write!(f, " ({refusal})")?;
        }
        match self.reason {
            RejectionReason::Pool(AcquireError::Down { cause: Cause::Authentication }) => {
                f.write_str("; check SessionOptions::credential")
            }
            RejectionReason::Pool(_) | RejectionReason::Lost { .. } | RejectionReason::Refused(_) => Ok(()),
        }
    }
}

impl fmt::Display for KeyspaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keyspace, address, message } = self;
        let Some(address) = address else { return write!(f, "keyspace is {keyspace:?}, but must {KEYSPACE_RULE}") };
        write!(f, "{address} does not accept the keyspace {keyspace:?}")?;
        if !message.is_empty() {
            write!(f, ": {message}")?;
        }
        f.write_str("; create it, or pass its name in the case in which the server stores it")
    }
}

poolhouse_wire::debug_as_display!(KeyspaceError);

impl core::error::Error for KeyspaceError {}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

poolhouse_wire::debug_as_display!(ServerError);

impl core::error::Error for ServerError {}
