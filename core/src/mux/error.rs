//! How commands of a multiplexed pool fail.

use super::Stream;
use crate::Cause;
use core::fmt;

/// A request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireError {
    /// Every connection is busy, and there is no room to wait.
    Busy {
        /// Requests in flight on all connections of the host.
        in_flight: u32,
        /// Requests that wait already.
        queued: u32,
        /// How many may.
        queue_max: u32,
    },
    /// It waited as long as it might.
    TimedOut {
        /// Requests in flight on all connections of the host.
        in_flight: u32,
        /// Requests that waited, this one included.
        queued: u32,
    },
    /// There is no connection to the host, and the last attempt to make one failed.
    Down {
        /// Why.
        cause: Cause,
    },
    /// The host is to be ignored.
    Ignored,
    /// The pool is closed, and stays so.
    Closed,
    /// The caller gave up. Seen in events only.
    Cancelled,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { in_flight, queued, queue_max } => write!(
                f,
                "the host is busy: {in_flight} requests are in flight, and {queued} of at most {queue_max} wait"
            ),
            Self::TimedOut { in_flight, queued } => {
                write!(f, "the host was busy for too long: {in_flight} requests are in flight, and {queued} waited")
            }
            Self::Down { cause } => write!(f, "there is no connection to the host: {cause}"),
            Self::Ignored => f.write_str("the host is ignored"),
            Self::Closed => f.write_str("the pool is closed"),
            Self::Cancelled => f.write_str("cancelled by the caller"),
        }
    }
}

impl core::error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        if let Self::Down { cause } = self { Some(cause) } else { None }
    }
}

/// A reply that nobody asked for. Its connection is closed: whoever sends such replies may as well send others' replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplyError {
    /// The connection is gone already; the reply is thrown away.
    Stale,
    /// No request waits for a reply by this stream id.
    Unknown {
        /// The id, as it was read.
        stream: i32,
    },
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("a reply on a connection that is gone"),
            Self::Unknown { stream } => write!(f, "a reply by stream id {stream}, which no request has"),
        }
    }
}

impl core::error::Error for ReplyError {}

/// A stream was released to a pool that did not issue it. Nothing changed; here it is.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignStream(pub Stream);

impl fmt::Display for ForeignStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another pool issued the stream")
    }
}

impl core::error::Error for ForeignStream {}
