//! What may be watched of a multiplexed pool.

use super::{AcquireError, MuxConfig, MuxConnId, MuxId};
use crate::Cause;
use core::fmt;
use core::time::Duration;

/// Why a connection of a multiplexed pool is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MuxClosed {
    /// It was not needed for `idle_timeout`.
    Idle,
    /// Too many of its stream ids waited for late replies.
    Worn,
    /// It failed.
    Error(Cause),
    /// The pool is closed, or its host ignored.
    PoolClosed,
}

/// The events of a multiplexed pool. Each names its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MuxEvent {
    /// The pool exists.
    PoolCreated {
        /// The pool.
        mux: MuxId,
        /// Its options.
        config: MuxConfig,
    },
    /// Its options were changed.
    PoolReconfigured {
        /// The pool.
        mux: MuxId,
        /// Its options from now on.
        config: MuxConfig,
    },
    /// The pool is closed for good.
    PoolClosed {
        /// The pool.
        mux: MuxId,
    },
    /// A connection is to be established.
    ConnectionCreated {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A connection takes requests from now on.
    ConnectionReady {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Since it was created.
        duration: Duration,
    },
    /// A connection is not needed: it takes no more requests, and is kept for a while.
    ConnectionTrashed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Requests in flight on it.
        in_flight: u32,
    },
    /// A connection that was not needed takes requests again.
    ConnectionResurrected {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A connection takes no more requests: too many of its stream ids wait for late replies, or it is not to be used any more.
    ConnectionRetired {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// How many of its ids wait for late replies.
        orphaned: u32,
    },
    /// A connection is no longer in the pool; its socket is about to be closed, and the requests on it fail.
    ConnectionClosed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Why.
        reason: MuxClosed,
        /// Requests that were in flight on it.
        in_flight: u32,
    },
    /// The peer is asked whether it is there.
    HeartbeatStarted {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// It is.
    HeartbeatSucceeded {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Since it was asked.
        duration: Duration,
    },
    /// It did not answer in time.
    HeartbeatFailed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A request has a stream id.
    StreamAcquired {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
        /// Since it was asked for.
        duration: Duration,
    },
    /// A request waits for a connection that takes it.
    RequestQueued {
        /// The pool.
        mux: MuxId,
        /// How many wait, this one included.
        queued: u32,
    },
    /// A request ended without a stream id.
    AcquireFailed {
        /// The pool.
        mux: MuxId,
        /// Why.
        error: AcquireError,
        /// Since it was asked for.
        duration: Duration,
    },
    /// A request was answered.
    ReplyReceived {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
    },
    /// A request was given up before its reply came; its id is kept until it does.
    StreamOrphaned {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
        /// How many ids of the connection wait for late replies.
        orphaned: u32,
    },
    /// The reply to a request that was given up came, and its id is free.
    LateReply {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
    },
    /// A reply came that nobody had asked for. The connection is closed.
    UnknownReply {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id, as it was read.
        stream: i32,
    },
}

impl MuxEvent {
    /// The event's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolCreated { .. } => "PoolCreated",
            Self::PoolReconfigured { .. } => "PoolReconfigured",
            Self::PoolClosed { .. } => "PoolClosed",
            Self::ConnectionCreated { .. } => "ConnectionCreated",
            Self::ConnectionReady { .. } => "ConnectionReady",
            Self::ConnectionTrashed { .. } => "ConnectionTrashed",
            Self::ConnectionResurrected { .. } => "ConnectionResurrected",
            Self::ConnectionRetired { .. } => "ConnectionRetired",
            Self::ConnectionClosed { .. } => "ConnectionClosed",
            Self::HeartbeatStarted { .. } => "HeartbeatStarted",
            Self::HeartbeatSucceeded { .. } => "HeartbeatSucceeded",
            Self::HeartbeatFailed { .. } => "HeartbeatFailed",
            Self::StreamAcquired { .. } => "StreamAcquired",
            Self::RequestQueued { .. } => "RequestQueued",
            Self::AcquireFailed { .. } => "AcquireFailed",
            Self::ReplyReceived { .. } => "ReplyReceived",
            Self::StreamOrphaned { .. } => "StreamOrphaned",
            Self::LateReply { .. } => "LateReply",
            Self::UnknownReply { .. } => "UnknownReply",
        }
    }

    /// The pool that it is of.
    #[must_use]
    pub const fn mux(&self) -> MuxId {
        match *self {
            Self::PoolCreated { mux, .. }
            | Self::PoolReconfigured { mux, .. }
            | Self::PoolClosed { mux }
            | Self::ConnectionCreated { mux, .. }
            | Self::ConnectionReady { mux, .. }
            | Self::ConnectionTrashed { mux, .. }
            | Self::ConnectionResurrected { mux, .. }
            | Self::ConnectionRetired { mux, .. }
            | Self::ConnectionClosed { mux, .. }
            | Self::HeartbeatStarted { mux, .. }
            | Self::HeartbeatSucceeded { mux, .. }
            | Self::HeartbeatFailed { mux, .. }
            | Self::StreamAcquired { mux, .. }
            | Self::RequestQueued { mux, .. }
            | Self::AcquireFailed { mux, .. }
            | Self::ReplyReceived { mux, .. }
            | Self::StreamOrphaned { mux, .. }
            | Self::LateReply { mux, .. }
            | Self::UnknownReply { mux, .. } => mux,
        }
    }

    /// The connection that it is of.
    #[must_use]
    pub const fn conn(&self) -> Option<MuxConnId> {
        match *self {
            Self::PoolCreated { .. }
            | Self::PoolReconfigured { .. }
            | Self::PoolClosed { .. }
            | Self::RequestQueued { .. }
            | Self::AcquireFailed { .. } => None,
            Self::ConnectionCreated { conn, .. }
            | Self::ConnectionReady { conn, .. }
            | Self::ConnectionTrashed { conn, .. }
            | Self::ConnectionResurrected { conn, .. }
            | Self::ConnectionRetired { conn, .. }
            | Self::ConnectionClosed { conn, .. }
            | Self::HeartbeatStarted { conn, .. }
            | Self::HeartbeatSucceeded { conn, .. }
            | Self::HeartbeatFailed { conn, .. }
            | Self::StreamAcquired { conn, .. }
            | Self::ReplyReceived { conn, .. }
            | Self::StreamOrphaned { conn, .. }
            | Self::LateReply { conn, .. }
            | Self::UnknownReply { conn, .. } => Some(conn),
        }
    }
}

impl fmt::Display for MuxEvent {
    /// The event's name, then what it tells, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Some(conn) = self.conn() {
            write!(f, " connection {}", conn.number())?;
        }
        match self {
            Self::ConnectionReady { duration, .. } | Self::HeartbeatSucceeded { duration, .. } => {
                write!(f, " after {duration:.1?}")
            }
            Self::ConnectionTrashed { in_flight, .. } => write!(f, ", {in_flight} in flight"),
            Self::ConnectionRetired { orphaned, .. } => write!(f, ", {orphaned} orphaned"),
            Self::ConnectionClosed { reason, in_flight, .. } => {
                match reason {
                    MuxClosed::Idle => f.write_str(": idle"),
                    MuxClosed::Worn => f.write_str(": worn"),
                    MuxClosed::Error(cause) => write!(f, ": {cause}"),
                    MuxClosed::PoolClosed => f.write_str(": pool closed"),
                }?;
                if *in_flight > 0 { write!(f, ", {in_flight} in flight") } else { Ok(()) }
            }
            Self::StreamAcquired { stream, duration, .. } => write!(f, " stream {stream} after {duration:.1?}"),
            Self::RequestQueued { queued, .. } => write!(f, ", {queued} wait"),
            Self::AcquireFailed { error, duration, .. } => write!(f, " after {duration:.1?}: {error}"),
            Self::ReplyReceived { stream, .. } | Self::LateReply { stream, .. } => write!(f, " stream {stream}"),
            Self::StreamOrphaned { stream, orphaned, .. } => write!(f, " stream {stream}, {orphaned} orphaned"),
            Self::UnknownReply { stream, .. } => write!(f, " stream {stream}"),
            Self::PoolCreated { .. }
            | Self::PoolReconfigured { .. }
            | Self::PoolClosed { .. }
            | Self::ConnectionCreated { .. }
            | Self::ConnectionResurrected { .. }
            | Self::HeartbeatStarted { .. }
            | Self::HeartbeatFailed { .. } => Ok(()),
        }
    }
}
