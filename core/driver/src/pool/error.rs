//! Errors of check-outs.

use core::fmt;
use poolhouse_core::pool::PoolCounts;

/// Why a check-out has no connection.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PoolError<E> {
    /// A connection could not be opened: the error of
    /// [`Manager::connect`](super::Manager::connect).
    Connect(E),
    /// A connection was not opened within
    /// [`Options::connect_timeout`](super::Options::connect_timeout).
    ConnectTimeout,
    /// No connection was available within [`Options::wait_timeout`](super::Options::wait_timeout).
    WaitTimeout {
        /// The connections and the other waiters at the end of the wait.
        counts: PoolCounts,
        /// The error of the last attempt to open a connection, if that failed.
        last: Option<E>,
    },
    /// The task that opened a connection was dropped or panicked.
    Interrupted,
    /// No memory, or no slot of a fixed capacity, for one more waiter or connection.
    Busy {
        /// The number of waiters.
        waiting: u32,
    },
    /// The pool was closed.
    Closed,
    /// The pool was closed because one of its tasks was dropped: an executor has ended before it.
    Abandoned,
    /// This process was forked from the one that created the pool.
    Forked,
}

impl<E> PoolError<E> {
    /// Whether a time limit ended the check-out.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::WaitTimeout { .. })
    }
}

impl<E: fmt::Display> fmt::Display for PoolError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "could not connect: {error}"),
            Self::ConnectTimeout => f.write_str("could not connect: time limit exceeded"),
            Self::WaitTimeout { counts, last } => {
                let PoolCounts { pending, in_use, waiting, .. } = counts;
                write!(
                    f,
                    "no connection was available in time: {in_use} in use, {pending} being opened, \
                     {waiting} other check-outs wait"
                )?;
                match last {
                    Some(error) => write!(f, "; the last attempt to connect failed: {error}"),
                    None => Ok(()),
                }
            }
            Self::Interrupted => f.write_str("could not connect: the task that opens connections was interrupted"),
            Self::Busy { waiting } => write!(f, "no slot for one more waiter: {waiting} check-outs wait"),
            Self::Closed => f.write_str("the pool is closed"),
            Self::Abandoned => f.write_str("the pool is closed: a task of it was dropped"),
            Self::Forked => {
                f.write_str("the pool was created before the fork of this process and belongs to the parent")
            }
        }
    }
}

/// The text, because `main` and `unwrap` print `Debug`.
impl<E: fmt::Display> fmt::Debug for PoolError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: core::error::Error + 'static> core::error::Error for PoolError<E> {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Connect(error) | Self::WaitTimeout { last: Some(error), .. } => Some(error),
            Self::ConnectTimeout
            | Self::WaitTimeout { last: None, .. }
            | Self::Interrupted
            | Self::Busy { .. }
            | Self::Closed
            | Self::Abandoned
            | Self::Forked => None,
        }
    }
}

/// Why an attempt to open a connection failed.
pub(super) enum Failure<E> {
    Connect(E),
    Timeout,
    Interrupted,
}
