//! The events of a pool, by numbers, so that a trace can be written down and read again.

use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolEvent, PoolOptions};
use poolhouse_core::{Cause, ObjectId};

/// An event of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The pool exists.
    PoolCreated(PoolOptions),
    /// It hands out connections.
    PoolReady,
    /// Connections are stale.
    PoolCleared {
        /// Those of a service.
        service: Option<ObjectId>,
        /// Whether connections in use are interrupted.
        interrupt: bool,
        /// Why.
        cause: Option<Cause>,
    },
    /// It is closed.
    PoolClosed,
    /// A connection is to be established.
    Created(u64),
    /// It is established.
    Ready(u64, Duration),
    /// It is gone.
    Closed(u64, ClosedReason, Option<Cause>),
    /// Somebody asks for a connection.
    Started,
    /// Nobody gets one.
    Failed(CheckOutFailedReason, CheckOutError, Duration),
    /// Somebody gets one.
    CheckedOut(u64, Duration),
    /// A connection was returned.
    CheckedIn(u64),
}

impl Event {
    /// What this event says.
    ///
    /// # Panics
    ///
    /// Of a kind of event that is not known.
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
            _ => unreachable!("an event that is not known: {event:?}"),
        }
    }
}
