//! Errors of a multiplexed pool.

use super::Stream;
use crate::Cause;
use core::fmt;

/// A request was not granted a stream id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquireError {
    /// Every connection is busy, or none is open yet, and the queue is full.
    Busy {
        /// Requests in flight on all connections of the host.
        in_flight: u32,
        /// Requests that wait already.
        queued: u32,
        /// The maximum number of requests that wait.
        queue_max: u32,
    },
    /// The request waited until its deadline.
    TimedOut {
        /// Requests in flight on all connections of the host.
        in_flight: u32,
        /// Requests that waited, this one included.
        queued: u32,
    },
    /// No connection to the host is open or pending, and the last attempt to establish one failed.
    Down {
        /// The cause.
        cause: Cause,
    },
    /// The host's distance is [`Distance::Ignored`](super::Distance::Ignored).
    Ignored,
    /// The pool is closed permanently.
    Closed,
    /// The caller cancelled the request. Appears in events only.
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
            Self::Down { cause } => write!(f, "no connection to the host is open: {}", HexCode(*cause)),
            Self::Ignored => f.write_str("the host is ignored"),
            Self::Closed => f.write_str("the pool is closed"),
            Self::Cancelled => f.write_str("cancelled by the caller"),
        }
    }
}

impl core::error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            // The text has the code, in another notation.
            Self::Down { cause: Cause::Command { .. } } => None,
            Self::Down { cause } => Some(cause),
            Self::Busy { .. } | Self::TimedOut { .. } | Self::Ignored | Self::Closed | Self::Cancelled => None,
        }
    }
}

/// Shows a cause with the code of a refusal as the protocol's description writes it: `0x2200`.
#[derive(Clone, Copy, Debug)]
pub struct HexCode(pub Cause);

impl fmt::Display for HexCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Cause::Command { code } = self.0 {
            write!(f, "the server refused with code {code:#06x}")
        } else {
            self.0.fmt(f)
        }
    }
}

/// An unexpected reply. After an unknown one the connection is closed, because later replies may be
/// assigned to wrong requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplyError {
    /// The connection had already left the pool; the reply is dropped.
    Stale,
    /// No request waits for a reply with this stream id.
    Unknown {
        /// The id, as it was read.
        stream: i32,
    },
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("a reply arrived on a connection that has left the pool"),
            Self::Unknown { stream } => write!(f, "a reply has stream id {stream}, which no request uses"),
        }
    }
}

impl core::error::Error for ReplyError {}

/// A stream was released to a pool that did not issue it. Nothing changed; the field contains the
/// stream.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignStream(pub Stream);

impl fmt::Display for ForeignStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another pool issued the stream")
    }
}

impl core::error::Error for ForeignStream {}
