//! The events of a pool, with numbers. Traces of them can be written and read.

use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolEvent, PoolOptions};
use poolhouse_core::{Cause, ObjectId};

/// An event of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The pool was created.
    PoolCreated(PoolOptions),
    /// The pool grants connections.
    PoolReady,
    /// Connections became stale.
    PoolCleared {
        /// The service, if only its connections are stale.
        service: Option<ObjectId>,
        /// Whether connections in use are interrupted.
        interrupt: bool,
        /// The cause.
        cause: Option<Cause>,
    },
    /// The pool was closed.
    PoolClosed,
    /// A connection was created.
    Created(u64),
    /// A connection was established.
    Ready(u64, Duration),
    /// A connection was closed.
    Closed(u64, ClosedReason, Option<Cause>),
    /// A check-out was started.
    Started,
    /// A check-out failed.
    Failed(CheckOutFailedReason, CheckOutError, Duration),
    /// A connection was checked out.
    CheckedOut(u64, Duration),
    /// A connection was returned.
    CheckedIn(u64),
}

impl Event {
    /// Converts an event.
    #[must_use]
    pub fn of(event: &PoolEvent) -> Self {
        match *event {
            PoolEvent::PoolCreated { options, .. } => Self::PoolCreated(options),
            PoolEvent::PoolReady { .. } => Self::PoolReady,
            PoolEvent::PoolCleared { service_id, interrupt_in_use_connections, cause, .. } => {
                Self::PoolCleared { service: service_id, interrupt: interrupt_in_use_connections, cause }
            }
            PoolEvent::PoolClosed { .. } => Self::PoolClosed,
            PoolEvent::ConnectionCreated { conn, .. } => Self::Created(conn.connection_id().get()),
            PoolEvent::ConnectionReady { conn, duration, .. } => Self::Ready(conn.connection_id().get(), duration),
            PoolEvent::ConnectionClosed { conn, reason, cause, .. } => {
                Self::Closed(conn.connection_id().get(), reason, cause)
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => Self::Started,
            PoolEvent::ConnectionCheckOutFailed { reason, error, duration, .. } => {
                Self::Failed(reason, error, duration)
            }
            PoolEvent::ConnectionCheckedOut { conn, duration, .. } => {
                Self::CheckedOut(conn.connection_id().get(), duration)
            }
            PoolEvent::ConnectionCheckedIn { conn, .. } => Self::CheckedIn(conn.connection_id().get()),
            _ => unreachable!("an unknown event: {event:?}"),
        }
    }
}
