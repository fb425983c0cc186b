//! The errors of operations.

#[cfg(test)]
mod tests;

use super::connection::ExchangeError;
use super::login::LoginReport;
use core::fmt;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::topology::StateChange;
use poolhouse_core::{Cause, Reason};
use poolhouse_wire::Labels;

/// Why no server was selected, with the topology at that time.
#[cfg(feature = "alloc")]
pub type SelectionReport = alloc::boxed::Box<poolhouse_core::selection::DetailedSelectionError>;
/// Why no server was selected.
#[cfg(not(feature = "alloc"))]
pub type SelectionReport = poolhouse_core::selection::SelectionError;

/// The address of the server of an error, as the topology names it.
///
/// Without feature `alloc` the address is stored in the error itself: IPv4 addresses with ports and
/// other short addresses completely, of longer addresses the beginning and `...`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    #[cfg(feature = "alloc")]
    text: alloc::boxed::Box<str>,
    #[cfg(not(feature = "alloc"))]
    text: Short,
}

/// The longest text with which errors satisfy the assertion on their size below.
#[cfg(any(test, not(feature = "alloc")))]
type Short = heapless::String<23, u8>;

/// The beginning of a text, with `...` if it is cut.
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

    /// Returns the address; empty if the server is unknown.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Writes the address before the server's error message.
    pub(super) fn introduce(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { Ok(()) } else { write!(f, "{self}: ") }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ServerAddress {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}", self.as_str());
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// No connection to a server could be checked out: `db.example:27017: Could not establish a
/// connection: network error: Connection refused (os error 111)`.
///
/// Source: CMAP, "Connection Pool Errors".
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct CheckOutFailure {
    /// The error of the check-out.
    pub error: CheckOutError,
    /// The server of the pool.
    pub address: ServerAddress,
    /// The underlying error of the operating system, TLS or the resolver if a connection was not
    /// established; the pool's counts if the wait timed out.
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

poolhouse_wire::debug_as_display!(CheckOutFailure);

impl core::error::Error for CheckOutFailure {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(self.reason.source().unwrap_or(&self.error))
    }
}

/// The error of an operation.
#[derive(Clone, PartialEq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum OperationError {
    /// No suitable server was found in time, or none can be found. Contains the topology at that
    /// time.
    ServerSelection(SelectionReport),
    /// No connection could be checked out.
    CheckOut(CheckOutFailure),
    /// No connection could be checked out, because the connection that was established for it was
    /// not authenticated.
    Authentication(LoginReport),
    /// The exchange of the request and its reply failed.
    Exchange(ExchangeError),
    /// The operation's deadline has passed. The connection is closed, unless nothing was sent, or
    /// the reply arrives soon.
    Timeout,
    /// The server's monitor timed out, and the connection was interrupted during the operation.
    /// Contains the server's address. (An operation that was not sent yet fails with
    /// [`CheckOutError::PoolCleared`].)
    Interrupted(ServerAddress),
    /// The server replied with `ok: 0`. The connection remains usable.
    Command {
        /// The numeric error code; 0 if the reply has none.
        code: i32,
        /// The known error labels.
        labels: Labels,
    },
    /// The connection of this guard had failed earlier.
    Broken(Cause),
    /// Too many tasks wait for a suitable server.
    Busy,
    /// The client is closed.
    Closed,
    /// The client is closed because a background task was dropped while the client was open. See
    /// [`TaskGuard`](super::TaskGuard).
    Abandoned,
    /// The process was forked, and the client belongs to the parent. Nothing was sent.
    Forked,
}

/// Errors are returned by value in all operations, so their size matters.
#[cfg(any(feature = "alloc", target_pointer_width = "32"))]
const _: () = assert!(size_of::<OperationError>() <= 56);

impl OperationError {
    pub(super) fn check_out_of(address: &str, error: CheckOutError) -> Self {
        Self::CheckOut(CheckOutFailure::new(error, address))
    }

    /// Returns the check-out's error, if the check-out failed.
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

    /// Returns the cause of the connection's failure; `None` if the connection remains usable.
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

    /// Whether another server, or the same server a moment later, may succeed: a network error, an
    /// interruption, or a change of the server's state. The operation may nevertheless have been
    /// executed.
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

    /// Whether an overloaded server refused the command or its connection: the error has the labels
    /// `SystemOverloadedError` and `RetryableError`. Then the server has executed nothing.
    ///
    /// Source: Client Backpressure, "Retryable Overload Error".
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        if let Self::Command { labels, .. } = self {
            return labels.contains(Labels::SYSTEM_OVERLOADED_ERROR.union(Labels::RETRYABLE_ERROR));
        }
        matches!(self.check_out(), Some(CheckOutError::EstablishFailed { overloaded: true, .. }))
    }

    /// Whether the operation was certainly not executed by a server, so any operation may be
    /// retried.
    ///
    /// Includes: the server left the topology while the operation waited for a connection (if the
    /// client was closed instead, the next attempt fails at once); and a connection was not
    /// established because of a network error or a change of the server's state.
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
    let CheckOutError::EstablishFailed { cause, overloaded } = error else {
        return matches!(error, CheckOutError::PoolClosed) || error.is_retryable();
    };
    *overloaded || if let Cause::Command { code } = cause { is_transient_code(*code) } else { cause.is_network() }
}

/// Whether a code reports a change of the server's state, or that it is temporarily unavailable.
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
            Self::Abandoned => {
                f.write_str("the client is closed: a task of its runner or executor was dropped while it was open")
            }
            Self::Forked => {
                f.write_str("the client was created before the fork of this process and belongs to the parent")
            }
        }
    }
}

poolhouse_wire::debug_as_display!(OperationError);

impl core::error::Error for OperationError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // These four add no text to their errors, so they are no links of the chain.
            Self::ServerSelection(report) => report.source(),
            Self::CheckOut(failure) => failure.source(),
            Self::Authentication(failure) => failure.source(),
            Self::Exchange(error) => error.source(),
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
