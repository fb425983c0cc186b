//! Errors of a pool.

use super::{CheckOutFailedReason, Lease};
use crate::{Cause, Stale};
use core::fmt;

/// A check-out ended without a connection.
///
/// Source: CMAP, "Connection Pool Errors".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CheckOutError {
    /// The pool is closed permanently.
    PoolClosed,
    /// The pool is paused, or was cleared while this check-out waited. The check-out can be
    /// retried. The error must not mark the server as unknown again: the error that cleared the
    /// pool did so.
    PoolCleared {
        /// The error that the pool was cleared with, if any.
        cause: Option<Cause>,
    },
    /// The check-out's own deadline has passed or, for a check-out without one,
    /// `waitQueueTimeoutMS`.
    WaitQueueTimeout {
        /// In load-balanced mode, the use of the connections.
        usage: Option<Usage>,
    },
    /// The connection that was being established for this check-out failed.
    EstablishFailed {
        /// The cause.
        cause: Cause,
        /// Whether the error has the labels `SystemOverloadedError` and `RetryableError`.
        overloaded: bool,
    },
    /// No waiter slot is free.
    Busy {
        /// The number of check-outs that wait.
        waiting: u32,
    },
    /// The caller cancelled the check-out. Appears in events only.
    Cancelled,
}

impl CheckOutError {
    /// The reason in the event of this failure.
    #[must_use]
    pub const fn reason(&self) -> CheckOutFailedReason {
        match self {
            Self::PoolClosed => CheckOutFailedReason::PoolClosed,
            Self::WaitQueueTimeout { .. } => CheckOutFailedReason::Timeout,
            Self::PoolCleared { .. } | Self::EstablishFailed { .. } | Self::Busy { .. } | Self::Cancelled => {
                CheckOutFailedReason::ConnectionError
            }
        }
    }

    /// Whether the operation may be retried, because it has not reached a server.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::PoolCleared { .. } | Self::EstablishFailed { overloaded: true, .. })
    }

    /// The error's type in the specification, or a similar name where the specification has none.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolClosed => "PoolClosedError",
            Self::PoolCleared { .. } => "PoolClearedError",
            Self::WaitQueueTimeout { .. } => "WaitQueueTimeoutError",
            Self::EstablishFailed { .. } => "ConnectionError",
            Self::Busy { .. } => "BusyError",
            Self::Cancelled => "CancelledError",
        }
    }
}

impl fmt::Display for CheckOutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolClosed => f.write_str("Attempted to check out a connection from closed connection pool"),
            Self::PoolCleared { cause: None } => f.write_str("Connection pool was cleared"),
            Self::PoolCleared { cause: Some(cause) } => {
                write!(f, "Connection pool was cleared because another operation failed with: {cause}")
            }
            Self::WaitQueueTimeout { usage } => {
                f.write_str("Timed out while checking out a connection from connection pool")?;
                match usage {
                    Some(usage) => write!(f, ". {usage}"),
                    None => Ok(()),
                }
            }
            Self::EstablishFailed { cause, .. } => write!(f, "Could not establish a connection: {cause}"),
            Self::Busy { waiting } => write!(f, "Too many check-outs wait for a connection: {waiting}"),
            Self::Cancelled => f.write_str("The check-out was cancelled by its caller"),
        }
    }
}

impl core::error::Error for CheckOutError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::PoolCleared { cause: Some(cause) } | Self::EstablishFailed { cause, .. } => Some(cause),
            Self::PoolCleared { cause: None }
            | Self::PoolClosed
            | Self::WaitQueueTimeout { .. }
            | Self::Busy { .. }
            | Self::Cancelled => None,
        }
    }
}

/// Numbers of connections of a load-balanced pool by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Usage {
    /// `maxPoolSize`; 0 means no limit.
    pub max_pool_size: u32,
    /// Connections pinned to cursors.
    pub cursors: u32,
    /// Connections pinned to transactions.
    pub transactions: u32,
    /// Other connections in use.
    pub others: u32,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_pool_size, cursors, transactions, others } = self;
        write!(
            f,
            "maxPoolSize: {max_pool_size}, connections in use by cursors: {cursors}, \
             connections in use by transactions: {transactions}, connections in use by other operations: {others}"
        )
    }
}

/// Another pool issued the lease, or the connection has left this pool. Nothing changed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ForeignLease(pub Lease);

impl fmt::Display for ForeignLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was not checked out from this pool")
    }
}

impl core::error::Error for ForeignLease {}

/// The kind of clear does not fit the pool's mode: a load-balanced pool is cleared by service, any
/// other pool as a whole. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrongMode;

impl fmt::Display for WrongMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this kind of clear belongs to the other mode: clear a load-balanced pool by service, any other pool as a whole")
    }
}

impl core::error::Error for WrongMode {}

/// The `serviceId` of a connection could not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceError {
    /// The connection is no longer being established.
    Stale,
    /// The pool is not load-balanced.
    WrongMode,
    /// No service slot is free: fail the establishment with [`Cause::Resources`].
    Full,
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => Stale.fmt(f),
            Self::WrongMode => f.write_str("the pool is not load-balanced"),
            Self::Full => f.write_str("no slot for another service is free"),
        }
    }
}

impl core::error::Error for ServiceError {}
