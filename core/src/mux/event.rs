//! Events of a multiplexed pool.

use super::error::HexCode;
use super::{AcquireError, MuxConfig, MuxConnId, MuxId};
use crate::Cause;
use core::fmt;
use core::time::Duration;

/// The reason for closing a connection of a multiplexed pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MuxClosed {
    /// It was not needed for `idle_timeout`.
    Idle,
    /// Too many of its stream ids were reserved for late replies.
    Worn,
    /// All connections of the pool were replaced.
    Replaced,
    /// It failed.
    Error(Cause),
    /// The pool was closed, or its host is ignored.
    PoolClosed,
}

/// The events of a multiplexed pool. Each contains the pool's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MuxEvent {
    /// The pool was created.
    PoolCreated {
        /// The pool.
        mux: MuxId,
        /// Its options.
        config: MuxConfig,
    },
    /// The pool's options were changed.
    PoolReconfigured {
        /// The pool.
        mux: MuxId,
        /// Its options from now on.
        config: MuxConfig,
    },
    /// The pool is closed permanently.
    PoolClosed {
        /// The pool.
        mux: MuxId,
    },
    /// A connection was created and will be established.
    ConnectionCreated {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A connection is established and takes requests.
    ConnectionReady {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Time since it was created.
        duration: Duration,
    },
    /// A connection is surplus: it takes no more requests, and is closed after `idle_timeout`
    /// unless it is resurrected.
    ConnectionTrashed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Requests in flight on it.
        in_flight: u32,
    },
    /// A trashed connection takes requests again.
    ConnectionResurrected {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A connection takes no more requests: too many of its stream ids are reserved for late
    /// replies, all connections are replaced, or the host is ignored.
    ConnectionRetired {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The number of its ids that are reserved for late replies.
        orphaned: u32,
    },
    /// A connection is no longer in the pool; its socket is about to be closed, and the requests on
    /// it fail.
    ConnectionClosed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The reason.
        reason: MuxClosed,
        /// Requests that were in flight on it.
        in_flight: u32,
    },
    /// A heartbeat was started on a connection.
    HeartbeatStarted {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A heartbeat was answered.
    HeartbeatSucceeded {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// Time since it was started.
        duration: Duration,
    },
    /// A heartbeat was not answered in time, or could not be started.
    HeartbeatFailed {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
    },
    /// A request was granted a stream id.
    StreamAcquired {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
        /// How long it waited in the queue; `None` if it did not.
        waited: Option<Duration>,
    },
    /// A request waits for a connection.
    RequestQueued {
        /// The pool.
        mux: MuxId,
        /// The number of waiting requests, this one included.
        queued: u32,
    },
    /// A request ended without a stream id.
    AcquireFailed {
        /// The pool.
        mux: MuxId,
        /// The error.
        error: AcquireError,
        /// How long it waited in the queue; `None` if it did not.
        waited: Option<Duration>,
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
    /// A request was abandoned before its reply arrived; its id stays reserved until then.
    StreamOrphaned {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
        /// The number of ids of the connection that are reserved for late replies.
        orphaned: u32,
    },
    /// The reply to an abandoned request arrived, and its id is free.
    LateReply {
        /// The pool.
        mux: MuxId,
        /// The connection.
        conn: MuxConnId,
        /// The id.
        stream: u16,
    },
    /// An unexpected reply arrived. The connection is closed.
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

    /// The pool that emitted the event.
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

    /// The connection of the event, if any.
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
    /// Writes the event's name and its fields on one line, without the pool's id.
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
                    MuxClosed::Replaced => f.write_str(": replaced"),
                    MuxClosed::Error(cause) => write!(f, ": {}", HexCode(*cause)),
                    MuxClosed::PoolClosed => f.write_str(": pool closed"),
                }?;
                if *in_flight > 0 { write!(f, ", {in_flight} in flight") } else { Ok(()) }
            }
            Self::StreamAcquired { stream, waited, .. } => {
                write!(f, " stream {stream} after {:.1?}", waited.unwrap_or_default())
            }
            Self::RequestQueued { queued, .. } => write!(f, ", {queued} wait"),
            Self::AcquireFailed { error, waited, .. } => {
                write!(f, " after {:.1?}: {error}", waited.unwrap_or_default())
            }
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
