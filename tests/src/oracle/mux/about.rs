//! The record of a step of a multiplexed pool: the call and all observed outputs.

use core::time::Duration;
use poolhouse_core::mux::{AcquireError, HostState, MuxClosed, MuxConfig, MuxEvent, Reply, Written};
use poolhouse_core::{Cause, Instant};

/// A call. Connections are identified by their numbers, and waiters by numbers that the recorder
/// assigns, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The pool was created.
    New,
    /// `acquire`.
    Acquire {
        /// The deadline of the request.
        deadline: Option<Instant>,
    },
    /// `claim`; 0 for a request that has ended.
    Claim {
        /// Its number.
        waiter: u64,
    },
    /// `cancel`; 0 for a request that has ended.
    Cancel {
        /// Its number.
        waiter: u64,
    },
    /// `release`.
    Release {
        /// Connection and stream id, or `None` for a stream of another pool.
        stream: Option<(u64, u16)>,
        /// Whether the request was written.
        written: Written,
    },
    /// `reconfigure`.
    Reconfigure,
    /// `close`.
    Close,
    /// `handle_established`.
    Established {
        /// The connection.
        conn: u64,
    },
    /// `handle_establish_failed`.
    EstablishFailed {
        /// The connection.
        conn: u64,
        /// The cause.
        cause: Cause,
    },
    /// `handle_failed`.
    Failed {
        /// The connection.
        conn: u64,
        /// The cause.
        cause: Cause,
    },
    /// `handle_received`.
    Received {
        /// The connection.
        conn: u64,
    },
    /// `handle_reply`.
    Reply {
        /// The connection.
        conn: u64,
        /// The stream id as it was read.
        stream: i32,
    },
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`.
    Poll,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// No value.
    None,
    /// `Ok(())`.
    Done,
    /// A stream id of a connection is granted.
    Granted(u64, u16),
    /// The request waits, under this number.
    Queued(u64),
    /// It still waits.
    Waiting,
    /// It failed.
    Failed(AcquireError),
    /// The id is stale, or of another pool.
    Stale,
    /// The owner of a reply.
    Reply(Reply),
    /// The reply has no owner.
    Unknown,
    /// The result of a poll.
    Action(Option<Action>),
}

/// An action, with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Establish this connection.
    Establish(u64),
    /// Close this connection.
    Close(u64),
    /// Wake this waiter.
    Wake(u64),
    /// Send a heartbeat on this connection, with this stream id.
    Heartbeat(u64, u16),
}

/// Getters after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// `state`.
    pub state: HostState,
    /// `is_closed`.
    pub closed: bool,
    /// `poll_timeout`.
    pub timeout: Option<Instant>,
}

/// The observed outputs of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// The result of the call.
    pub answer: Answer,
    /// The events that an observer received during the call.
    pub events: &'a [(Instant, Event)],
    /// Getters after the call; `None` if they were not read.
    pub seen: Option<Seen>,
}

/// An event, with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The pool was created, or its options were changed.
    Options(MuxConfig),
    /// The pool was closed.
    PoolClosed,
    /// A connection was created.
    Created(u64),
    /// A connection was established.
    Ready(u64, Duration),
    /// A connection was trashed, with this number of requests in flight.
    Trashed(u64, u32),
    /// A connection was resurrected.
    Resurrected(u64),
    /// A connection accepts no more requests; this number of its ids wait for late replies.
    Retired(u64, u32),
    /// A connection was closed, with this number of requests in flight.
    Closed(u64, MuxClosed, u32),
    /// A heartbeat was started.
    HeartbeatStarted(u64),
    /// A heartbeat was answered.
    HeartbeatSucceeded(u64),
    /// A heartbeat failed.
    HeartbeatFailed(u64),
    /// A stream id was granted to a request.
    Acquired(u64, u16, Duration),
    /// A request was queued, with the number of waiters.
    Queued(u32),
    /// A request failed without a stream id.
    Failed(AcquireError, Duration),
    /// A reply to a request.
    Replied(u64, u16),
    /// A request was cancelled; this number of ids wait for late replies.
    Orphaned(u64, u16, u32),
    /// The late reply to a cancelled request.
    Late(u64, u16),
    /// A reply without a request.
    Unknown(u64, i32),
}

impl Event {
    /// Converts an event.
    ///
    /// # Panics
    ///
    /// On an unknown kind of event.
    #[must_use]
    pub fn of(event: &MuxEvent) -> Self {
        let conn = event.conn().map_or(0, |conn| conn.number().get());
        match *event {
            MuxEvent::PoolCreated { config, .. } | MuxEvent::PoolReconfigured { config, .. } => Self::Options(config),
            MuxEvent::PoolClosed { .. } => Self::PoolClosed,
            MuxEvent::ConnectionCreated { .. } => Self::Created(conn),
            MuxEvent::ConnectionReady { duration, .. } => Self::Ready(conn, duration),
            MuxEvent::ConnectionTrashed { in_flight, .. } => Self::Trashed(conn, in_flight),
            MuxEvent::ConnectionResurrected { .. } => Self::Resurrected(conn),
            MuxEvent::ConnectionRetired { orphaned, .. } => Self::Retired(conn, orphaned),
            MuxEvent::ConnectionClosed { reason, in_flight, .. } => Self::Closed(conn, reason, in_flight),
            MuxEvent::HeartbeatStarted { .. } => Self::HeartbeatStarted(conn),
            MuxEvent::HeartbeatSucceeded { .. } => Self::HeartbeatSucceeded(conn),
            MuxEvent::HeartbeatFailed { .. } => Self::HeartbeatFailed(conn),
            MuxEvent::StreamAcquired { stream, duration, .. } => Self::Acquired(conn, stream, duration),
            MuxEvent::RequestQueued { queued, .. } => Self::Queued(queued),
            MuxEvent::AcquireFailed { error, duration, .. } => Self::Failed(error, duration),
            MuxEvent::ReplyReceived { stream, .. } => Self::Replied(conn, stream),
            MuxEvent::StreamOrphaned { stream, orphaned, .. } => Self::Orphaned(conn, stream, orphaned),
            MuxEvent::LateReply { stream, .. } => Self::Late(conn, stream),
            MuxEvent::UnknownReply { stream, .. } => Self::Unknown(conn, stream),
            _ => unreachable!("an unknown event: {event:?}"),
        }
    }
}
