//! How operations fail.

#[cfg(test)]
mod tests;

use super::connection::ExchangeError;
use crate::Cause;
use crate::pool::CheckOutError;
use crate::topology::StateChange;
use crate::wire::Labels;
use core::fmt;

/// Why no server was selected, with the topology as it was.
#[cfg(feature = "alloc")]
pub type SelectionReport = alloc::boxed::Box<crate::selection::DetailedSelectionError>;
/// Why no server was selected, with the topology as it was.
#[cfg(not(feature = "alloc"))]
pub type SelectionReport = crate::selection::SelectionError;

/// An operation failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OperationError {
    /// No suitable server was found in time, or none ever will be. Tells the topology as it was.
    ServerSelection(SelectionReport),
    /// No connection could be checked out.
    CheckOut(CheckOutError),
    /// The request or its reply did not get through.
    Exchange(ExchangeError),
    /// The operation's deadline has passed. The connection is closed, unless nothing had been sent yet or the reply comes soon after.
    Timeout,
    /// The server's monitor timed out, and the connection was interrupted in the middle of the operation. (One that had not
    /// been sent yet fails with [`CheckOutError::PoolCleared`].)
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
            Self::ServerSelection(_) | Self::CheckOut(_) | Self::Command { .. } | Self::Busy | Self::Closed => None,
        }
    }

    /// Whether another server, or the same one a moment later, may well do what this one did not: a network error, an interruption, a
    /// change of the server's state. What was asked for may have happened all the same.
    ///
    /// Source: Retryable Reads, "Retryable Error".
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Exchange(error) => matches!(error, ExchangeError::Network),
            Self::Interrupted => true,
            Self::Command { code, .. } => is_transient_code(*code),
            Self::Broken(cause) => cause.is_network() || matches!(cause, Cause::Interrupted),
            Self::CheckOut(_) => self.is_retryable(),
            Self::ServerSelection(_) | Self::Timeout | Self::Busy | Self::Closed => false,
        }
    }

    /// Whether nothing can have happened at a server yet, so that any operation may be tried once more (CMAP-67, CMAP-84).
    ///
    /// Among them: the server left the topology while the operation waited for a connection (if it was the client that was closed, the
    /// next attempt ends at once), and a connection that was not established because of a network error or a change of the server's state.
    ///
    /// Source: Retryable Reads and Retryable Writes, on errors of the connection handshake.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::CheckOut(CheckOutError::PoolClosed) => true,
            Self::CheckOut(CheckOutError::EstablishFailed { cause: Cause::Command { code }, overloaded }) => {
                *overloaded || is_transient_code(*code)
            }
            Self::CheckOut(CheckOutError::EstablishFailed { cause, overloaded }) => *overloaded || cause.is_network(),
            Self::CheckOut(error) => error.is_retryable(),
            Self::Command { labels, .. } => labels.contains(Labels::RETRYABLE_ERROR),
            Self::ServerSelection(_)
            | Self::Exchange(_)
            | Self::Timeout
            | Self::Interrupted
            | Self::Broken(_)
            | Self::Busy
            | Self::Closed => false,
        }
    }
}

/// Whether a code says that the server's state has changed, or that it cannot serve for the moment.
///
/// Source: Retryable Reads, "Retryable Error".
const fn is_transient_code(code: i32) -> bool {
    StateChange::of_code(code).is_some() || matches!(code, 6 | 7 | 89 | 134 | 262 | 9001)
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
            Self::ServerSelection(report) => report.fmt(f),
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
