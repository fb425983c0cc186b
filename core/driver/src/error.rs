//! How operations fail.

#[cfg(test)]
mod tests;

use super::connection::ExchangeError;
use super::login::LoginReport;
use core::fmt;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::topology::StateChange;
use poolhouse_core::{Cause, Reason};
use poolhouse_wire::Labels;

/// Why no server was selected, with the topology as it was.
#[cfg(feature = "alloc")]
pub type SelectionReport = alloc::boxed::Box<poolhouse_core::selection::DetailedSelectionError>;
/// Why no server was selected, with the topology as it was.
#[cfg(not(feature = "alloc"))]
pub type SelectionReport = poolhouse_core::selection::SelectionError;

/// The address of the server that an error is of, as the topology names it.
///
/// Without feature `alloc` it is kept in the error itself, which holds IPv4 addresses with their ports and other short ones whole; of a longer one it
/// is the front and `...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    #[cfg(feature = "alloc")]
    text: alloc::boxed::Box<str>,
    #[cfg(not(feature = "alloc"))]
    text: Short,
}

/// As long as makes no error larger than the assertion below allows.
#[cfg(any(test, not(feature = "alloc")))]
type Short = heapless::String<23, u8>;

/// What fits of a text, and a mark if that is not all.
#[cfg(any(test, not(feature = "alloc")))]
fn shorten(text: &str) -> Short {
    let mut short = Short::new();
    let mark = if text.len() <= short.capacity() { "" } else { "..." };
    let mut end = text.len().min(short.capacity() - mark.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for part in [text.get(..end).unwrap_or_default(), mark] {
        let fits = short.push_str(part);
        debug_assert!(fits.is_ok(), "there is room for so much and the mark");
    }
    short
}

impl ServerAddress {
    #[doc(hidden)]
    pub fn new(address: &str) -> Self {
        #[cfg(feature = "alloc")]
        let text = address.into();
        #[cfg(not(feature = "alloc"))]
        let text = shorten(address);
        Self { text }
    }

    /// The text; empty if the server is not known.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whose message follows.
    pub(super) fn introduce(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { Ok(()) } else { write!(f, "{self}: ") }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// No connection to a server could be checked out:
/// `db.example:27017: Could not establish a connection: network error: Connection refused (os error 111)`.
///
/// Source: CMAP, "Connection Pool Errors" (CMAP-99).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CheckOutFailure {
    /// Why.
    pub error: CheckOutError,
    /// Whose pool it was.
    pub address: ServerAddress,
    /// The error of the operating system, TLS or the resolver if a connection was not established; the pool's counts if the wait timed out.
    pub reason: Reason,
}

impl CheckOutFailure {
    #[doc(hidden)]
    pub fn new(error: CheckOutError, address: &str) -> Self {
        Self { error, address: ServerAddress::new(address), reason: Reason::NONE }
    }
}

impl fmt::Display for CheckOutFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.introduce(f)?;
        self.error.fmt(f)?;
        self.reason.append(f)
    }
}

impl core::error::Error for CheckOutFailure {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(self.reason.source().unwrap_or(&self.error))
    }
}

/// An operation failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OperationError {
    /// No suitable server was found in time, or none ever will be. Tells the topology as it was.
    ServerSelection(SelectionReport),
    /// No connection could be checked out.
    CheckOut(CheckOutFailure),
    /// No connection could be checked out, because the one that was established for it was not authenticated.
    Authentication(LoginReport),
    /// The request or its reply did not get through.
    Exchange(ExchangeError),
    /// The operation's deadline has passed. The connection is closed, unless nothing had been sent yet or the reply comes soon after.
    Timeout,
    /// The server's monitor timed out, and the connection was interrupted in the middle of the operation. (One that had not
    /// been sent yet fails with [`CheckOutError::PoolCleared`].) Tells the server's address.
    Interrupted(ServerAddress),
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
    /// The client is closed because its background tasks are gone: what runs one was dropped while the client was open. See
    /// [`Attendance`](super::Attendance).
    Abandoned,
    /// The client is that of the process that this one was forked from. Nothing was sent.
    Forked,
}

/// It is returned by value wherever an operation can fail.
#[cfg(any(feature = "alloc", target_pointer_width = "32"))]
const _: () = assert!(size_of::<OperationError>() <= 56);

impl OperationError {
    pub(super) fn check_out_of(address: &str, error: CheckOutError) -> Self {
        Self::CheckOut(CheckOutFailure::new(error, address))
    }

    /// The check-out's error, if it was one.
    #[must_use]
    pub const fn check_out(&self) -> Option<&CheckOutError> {
        match self {
            Self::CheckOut(failure) => Some(&failure.error),
            Self::Authentication(failure) => Some(&failure.check_out),
            Self::ServerSelection(_)
            | Self::Exchange(_)
            | Self::Timeout
            | Self::Interrupted(_)
            | Self::Command { .. }
            | Self::Broken(_)
            | Self::Busy
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => None,
        }
    }

    /// What the error makes of the connection: `None` when it is as good as before.
    #[must_use]
    pub const fn connection_cause(&self) -> Option<Cause> {
        match self {
            Self::Exchange(error) => error.cause(),
            Self::Timeout => Some(Cause::NetworkTimeout),
            Self::Interrupted(_) => Some(Cause::Interrupted),
            Self::Broken(cause) => Some(*cause),
            Self::ServerSelection(_)
            | Self::CheckOut(_)
            | Self::Authentication(_)
            | Self::Command { .. }
            | Self::Busy
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => None,
        }
    }

    /// Whether another server, or the same one a moment later, may well do what this one did not: a network error, an interruption, a
    /// change of the server's state. What was asked for may have happened all the same.
    ///
    /// Source: Retryable Reads, "Retryable Error".
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Exchange(error) => matches!(error, ExchangeError::Network(_)),
            Self::Interrupted(_) => true,
            Self::Command { code, .. } => is_transient_code(*code),
            Self::Broken(cause) => cause.is_network() || matches!(cause, Cause::Interrupted),
            Self::CheckOut(_) | Self::Authentication(_) => self.is_retryable(),
            Self::ServerSelection(_) | Self::Timeout | Self::Busy | Self::Closed | Self::Abandoned | Self::Forked => {
                false
            }
        }
    }

    /// Whether an overloaded server refused the command or the connection for it: the error has the labels `SystemOverloadedError` and
    /// `RetryableError`. Nothing has happened at the server then.
    ///
    /// Source: Client Backpressure, "Retryable Overload Error" (CMAP-95).
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        if let Self::Command { labels, .. } = self {
            return labels.contains(Labels::SYSTEM_OVERLOADED_ERROR.union(Labels::RETRYABLE_ERROR));
        }
        matches!(self.check_out(), Some(CheckOutError::EstablishFailed { overloaded: true, .. }))
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
            Self::CheckOut(failure) => is_retryable_check_out(&failure.error),
            Self::Authentication(failure) => is_retryable_check_out(&failure.check_out),
            Self::Command { labels, .. } => labels.contains(Labels::RETRYABLE_ERROR),
            Self::ServerSelection(_)
            | Self::Exchange(_)
            | Self::Timeout
            | Self::Interrupted(_)
            | Self::Broken(_)
            | Self::Busy
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => false,
        }
    }
}

const fn is_retryable_check_out(error: &CheckOutError) -> bool {
    match error {
        CheckOutError::PoolClosed => true,
        CheckOutError::EstablishFailed { cause: Cause::Command { code }, overloaded } => {
            *overloaded || is_transient_code(*code)
        }
        CheckOutError::EstablishFailed { cause, overloaded } => *overloaded || cause.is_network(),
        CheckOutError::PoolCleared { .. }
        | CheckOutError::WaitQueueTimeout { .. }
        | CheckOutError::Busy { .. }
        | CheckOutError::Cancelled => error.is_retryable(),
        _ => error.is_retryable(),
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

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerSelection(report) => report.fmt(f),
            Self::CheckOut(failure) => failure.fmt(f),
            Self::Authentication(failure) => failure.fmt(f),
            Self::Exchange(error) => error.fmt(f),
            Self::Timeout => f.write_str("the operation's deadline has passed"),
            Self::Interrupted(address) => {
                write!(f, "Connection to {address} interrupted due to server monitor timeout")
            }
            Self::Command { code, .. } => write!(f, "the command failed with code {code}"),
            Self::Broken(cause) => write!(f, "the connection failed before: {cause}"),
            Self::Busy => f.write_str("too many tasks wait for a suitable server"),
            Self::Closed => f.write_str("the client is closed"),
            Self::Abandoned => f.write_str(
                "the client's background tasks are gone: a task of its runner or executor was dropped while it was open",
            ),
            Self::Forked => f.write_str("the client was made before this process was forked, and is the parent's"),
        }
    }
}

impl core::error::Error for OperationError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            #[cfg(feature = "alloc")]
            Self::ServerSelection(report) => Some(&**report),
            #[cfg(not(feature = "alloc"))]
            Self::ServerSelection(report) => Some(report),
            Self::CheckOut(failure) => Some(failure),
            #[cfg(feature = "alloc")]
            Self::Authentication(failure) => Some(&**failure),
            #[cfg(not(feature = "alloc"))]
            Self::Authentication(failure) => Some(failure),
            Self::Exchange(error) => Some(error),
            Self::Broken(cause) => Some(cause),
            Self::Timeout
            | Self::Interrupted(_)
            | Self::Command { .. }
            | Self::Busy
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => None,
        }
    }
}
