//! What is told of a step of a multiplexed pool: the call, and everything that was seen of it.

use core::time::Duration;
use poolhouse_core::mux::{AcquireError, HostState, MuxClosed, MuxConfig, MuxEvent, Reply, Written};
use poolhouse_core::{Cause, Instant};

/// A call. Connections go by their numbers; requests that wait by numbers that whoever records gives them, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The pool was made.
    New,
    /// `acquire`.
    Acquire {
        /// Its own deadline.
        deadline: Option<Instant>,
    },
    /// `claim`; 0 of a request that is over.
    Claim {
        /// Its number.
        waiter: u64,
    },
    /// `cancel`; 0 of a request that is over.
    Cancel {
        /// Its number.
        waiter: u64,
    },
    /// `release`.
    Release {
        /// Connection and stream id, or `None` of another pool's.
        stream: Option<(u64, u16)>,
        /// Whether it was written.
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
        /// Why.
        cause: Cause,
    },
    /// `handle_failed`.
    Failed {
        /// The connection.
        conn: u64,
        /// Why.
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
        /// The id, as it was read.
        stream: i32,
    },
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`.
    Poll,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing.
    None,
    /// `Ok(())`.
    Done,
    /// A connection and an id are granted.
    Granted(u64, u16),
    /// A request waits, by this number.
    Queued(u64),
    /// It still waits.
    Waiting,
    /// It failed.
    Failed(AcquireError),
    /// What is spoken of is not there (any more), or not this pool's.
    Stale,
    /// Whose a reply is.
    Reply(Reply),
    /// It is nobody's.
    Unknown,
    /// What was polled, if anything.
    Action(Option<Action>),
}

/// An action, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Establish this connection.
    Establish(u64),
    /// Close this connection.
    Close(u64),
    /// Wake this request.
    Wake(u64),
    /// Ask the peer on this connection, by this id.
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

/// What was seen of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// What the call returned.
    pub answer: Answer,
    /// What an observer was told meanwhile.
    pub events: &'a [(Instant, Event)],
    /// Getters afterwards; `None` when nobody looked.
    pub seen: Option<Seen>,
}

/// An event, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The pool exists, or has other options.
    Options(MuxConfig),
    /// It is closed.
    PoolClosed,
    /// A connection is to be established.
    Created(u64),
    /// It is.
    Ready(u64, Duration),
    /// It is not needed, with so many requests in flight.
    Trashed(u64, u32),
    /// It is needed again.
    Resurrected(u64),
    /// It takes no more requests, with so many ids that wait for late replies.
    Retired(u64, u32),
    /// It is gone, with so many requests in flight.
    Closed(u64, MuxClosed, u32),
    /// Its peer is asked.
    HeartbeatStarted(u64),
    /// It answered.
    HeartbeatSucceeded(u64),
    /// It did not.
    HeartbeatFailed(u64),
    /// A request has an id.
    Acquired(u64, u16, Duration),
    /// So many wait.
    Queued(u32),
    /// A request has none, and does not wait.
    Failed(AcquireError, Duration),
    /// A reply to a request.
    Replied(u64, u16),
    /// A request is given up; so many ids wait for late replies.
    Orphaned(u64, u16, u32),
    /// The reply to one that was given up.
    Late(u64, u16),
    /// A reply to none.
    Unknown(u64, i32),
}

impl Event {
    /// What this event says.
    ///
    /// # Panics
    ///
    /// Of a kind of event that is not known.
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
            _ => unreachable!("an event that is not known: {event:?}"),
        }
    }
}
