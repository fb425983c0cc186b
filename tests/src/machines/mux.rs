//! The events of a multiplexed pool, with numbers.

use core::time::Duration;
use poolhouse_core::mux::{AcquireError, MuxClosed, MuxConnId, MuxEvent, MuxOptions};

/// An event of one multiplexed pool, with numbers instead of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// PoolCreated.
    PoolCreated(MuxOptions),
    /// PoolReconfigured.
    Reconfigured(MuxOptions),
    /// PoolClosed.
    PoolClosed,
    /// ConnectionCreated.
    Created(u64),
    /// ConnectionReady, with the time since the creation.
    Ready(u64, Duration),
    /// ConnectionTrashed, with the number of requests in flight on it.
    Trashed(u64, u32),
    /// ConnectionResurrected.
    Resurrected(u64),
    /// ConnectionRetired, with the number of its ids that wait for late replies.
    Retired(u64, u32),
    /// ConnectionClosed, with the number of requests in flight on it.
    Closed(u64, MuxClosed, u32),
    /// HeartbeatStarted.
    HeartbeatStarted(u64),
    /// HeartbeatSucceeded, with the time since the start.
    HeartbeatSucceeded(u64, Duration),
    /// HeartbeatFailed.
    HeartbeatFailed(u64),
    /// StreamAcquired: the connection, the stream id (in the model: the request, until the pool has
    /// named the id), and the time in the queue.
    Acquired(u64, u64, Option<Duration>),
    /// RequestQueued, with the number of waiters.
    Queued(u32),
    /// AcquireFailed, with the time in the queue.
    Failed(AcquireError, Option<Duration>),
    /// ReplyReceived, with the stream id.
    Reply(u64, u16),
    /// StreamOrphaned, with the stream id and the number of ids of the connection that wait for
    /// late replies.
    Orphaned(u64, u16, u32),
    /// LateReply, with the stream id.
    Late(u64, u16),
    /// UnknownReply.
    Unknown(u64, i32),
}

impl Event {
    /// Converts an event.
    #[must_use]
    pub fn of(event: &MuxEvent) -> Self {
        let id = |conn: MuxConnId| conn.number().get();
        match *event {
            MuxEvent::PoolCreated { config, .. } => Self::PoolCreated(*config.options()),
            MuxEvent::PoolReconfigured { config, .. } => Self::Reconfigured(*config.options()),
            MuxEvent::PoolClosed { .. } => Self::PoolClosed,
            MuxEvent::ConnectionCreated { conn, .. } => Self::Created(id(conn)),
            MuxEvent::ConnectionReady { conn, duration, .. } => Self::Ready(id(conn), duration),
            MuxEvent::ConnectionTrashed { conn, in_flight, .. } => Self::Trashed(id(conn), in_flight),
            MuxEvent::ConnectionResurrected { conn, .. } => Self::Resurrected(id(conn)),
            MuxEvent::ConnectionRetired { conn, orphaned, .. } => Self::Retired(id(conn), orphaned),
            MuxEvent::ConnectionClosed { conn, reason, in_flight, .. } => Self::Closed(id(conn), reason, in_flight),
            MuxEvent::HeartbeatStarted { conn, .. } => Self::HeartbeatStarted(id(conn)),
            MuxEvent::HeartbeatSucceeded { conn, duration, .. } => Self::HeartbeatSucceeded(id(conn), duration),
            MuxEvent::HeartbeatFailed { conn, .. } => Self::HeartbeatFailed(id(conn)),
            MuxEvent::StreamAcquired { conn, stream, waited, .. } => {
                Self::Acquired(id(conn), u64::from(stream), waited)
            }
            MuxEvent::RequestQueued { queued, .. } => Self::Queued(queued),
            MuxEvent::AcquireFailed { error, waited, .. } => Self::Failed(error, waited),
            MuxEvent::ReplyReceived { conn, stream, .. } => Self::Reply(id(conn), stream),
            MuxEvent::StreamOrphaned { conn, stream, orphaned, .. } => Self::Orphaned(id(conn), stream, orphaned),
            MuxEvent::LateReply { conn, stream, .. } => Self::Late(id(conn), stream),
            MuxEvent::UnknownReply { conn, stream, .. } => Self::Unknown(id(conn), stream),
            _ => unreachable!("an event of an unknown kind: {event:?}"),
        }
    }
}
