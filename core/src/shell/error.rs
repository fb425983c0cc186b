//! How operations fail.

use super::connection::ExchangeError;
use crate::Cause;
use crate::pool::CheckOutError;
use crate::wire::Labels;
use core::fmt;

/// An operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError {
    /// No suitable server was found in time.
    ServerSelection,
    /// No connection could be checked out.
    CheckOut(CheckOutError),
    /// The request or its reply did not get through.
    Exchange(ExchangeError),
    /// The operation's deadline has passed. The connection is closed, unless nothing had been sent yet.
    Timeout,
    /// The server's monitor timed out, and the connection was interrupted.
    Interrupted,
    /// The server answered with `ok: 0`. The connection is as good as before.
    Command {
        /// The numeric error code; 0 when it gave none.
        code: i32,
        /// The error labels that are known.
        labels: Labels,
    },
    /// The connection of this guard failed before.
    Broken(Cause),
    /// Too many tasks wait for a suitable server.
    Busy,
    /// The client is closed.
    Closed,
}

impl OperationError {
    /// What the error makes of the connection: `None` when it is as good as before.
    #[must_use]
    pub const fn connection_cause(&self) -> Option<Cause> {
        match self {
            Self::Exchange(error) => error.cause(),
            Self::Timeout => Some(Cause::NetworkTimeout),
            Self::Interrupted => Some(Cause::Interrupted),
            Self::Broken(cause) => Some(*cause),
            Self::ServerSelection | Self::CheckOut(_) | Self::Command { .. } | Self::Busy | Self::Closed => None,
        }
    }

    /// Whether nothing can have happened at a server yet, so that any operation may be tried once more (CMAP-67, CMAP-84).
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::CheckOut(error) => error.is_retryable(),
            Self::Command { labels, .. } => labels.contains(Labels::RETRYABLE_ERROR),
            Self::ServerSelection
            | Self::Exchange(_)
            | Self::Timeout
            | Self::Interrupted
            | Self::Broken(_)
            | Self::Busy
            | Self::Closed => false,
        }
    }
}

impl From<ExchangeError> for OperationError {
    fn from(error: ExchangeError) -> Self {
        Self::Exchange(error)
    }
}

impl From<CheckOutError> for OperationError {
    fn from(error: CheckOutError) -> Self {
        Self::CheckOut(error)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerSelection => f.write_str("no suitable server was found in time"),
            Self::CheckOut(error) => error.fmt(f),
            Self::Exchange(error) => error.fmt(f),
            Self::Timeout => f.write_str("the operation's deadline has passed"),
            Self::Interrupted => f.write_str("the connection was interrupted due to server monitor timeout"),
            Self::Command { code, .. } => write!(f, "the command failed with code {code}"),
            Self::Broken(cause) => write!(f, "the connection failed before: {cause}"),
            Self::Busy => f.write_str("too many tasks wait for a suitable server"),
            Self::Closed => f.write_str("the client is closed"),
        }
    }
}

impl core::error::Error for OperationError {}
