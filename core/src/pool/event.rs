//! Events of a pool.
//!
//! Read first: CMAP, "Connection Pool Monitoring".

use super::{CheckOutError, ConnId, PoolId, PoolOptions};
use crate::{Cause, ObjectId};
use core::fmt;
use core::time::Duration;

/// The eleven events of a pool. Each contains the pool's id, not its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PoolEvent {
    /// The pool was created, and is paused.
    PoolCreated {
        /// The pool.
        pool: PoolId,
        /// Its options; [`PoolOptions::non_default`] lists those that the user changed.
        options: PoolOptions,
    },
    /// The pool hands out connections from now on.
    PoolReady {
        /// The pool.
        pool: PoolId,
    },
    /// The connections of the pool, or of one service, are stale from now on.
    PoolCleared {
        /// The pool.
        pool: PoolId,
        /// The service, in load-balanced mode.
        service_id: Option<ObjectId>,
        /// Whether connections in use are interrupted as well.
        interrupt_in_use_connections: bool,
        /// The error that the pool was cleared with, if any.
        cause: Option<Cause>,
    },
    /// The pool is closed permanently.
    PoolClosed {
        /// The pool.
        pool: PoolId,
    },
    /// A connection was created and will be established.
    ConnectionCreated {
        /// The pool.
        pool: PoolId,
        /// The connection.
        conn: ConnId,
    },
    /// A connection is established.
    ConnectionReady {
        /// The pool.
        pool: PoolId,
        /// The connection.
        conn: ConnId,
        /// Time since it was created.
        duration: Duration,
    },
    /// A connection is no longer in the pool; its socket is about to be closed.
    ConnectionClosed {
        /// The pool.
        pool: PoolId,
        /// The connection.
        conn: ConnId,
        /// The reason, as in the specification.
        reason: ClosedReason,
        /// The error behind [`ClosedReason::Error`].
        cause: Option<Cause>,
    },
    /// A check-out started.
    ConnectionCheckOutStarted {
        /// The pool.
        pool: PoolId,
    },
    /// A check-out ended without a connection.
    ConnectionCheckOutFailed {
        /// The pool.
        pool: PoolId,
        /// The reason, as in the specification.
        reason: CheckOutFailedReason,
        /// The error that the caller receives.
        error: CheckOutError,
        /// Time since the check-out started.
        duration: Duration,
    },
    /// A check-out ended with a connection.
    ConnectionCheckedOut {
        /// The pool.
        pool: PoolId,
        /// The connection.
        conn: ConnId,
        /// Time since the check-out started.
        duration: Duration,
    },
    /// A connection was returned.
    ConnectionCheckedIn {
        /// The pool.
        pool: PoolId,
        /// The connection.
        conn: ConnId,
    },
}

impl PoolEvent {
    /// The pool that emitted the event.
    #[must_use]
    pub const fn pool(&self) -> PoolId {
        match *self {
            Self::PoolCreated { pool, .. }
            | Self::PoolReady { pool }
            | Self::PoolCleared { pool, .. }
            | Self::PoolClosed { pool }
            | Self::ConnectionCreated { pool, .. }
            | Self::ConnectionReady { pool, .. }
            | Self::ConnectionClosed { pool, .. }
            | Self::ConnectionCheckOutStarted { pool }
            | Self::ConnectionCheckOutFailed { pool, .. }
            | Self::ConnectionCheckedOut { pool, .. }
            | Self::ConnectionCheckedIn { pool, .. } => pool,
        }
    }

    /// The event's name in the specification.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolCreated { .. } => "PoolCreated",
            Self::PoolReady { .. } => "PoolReady",
            Self::PoolCleared { .. } => "PoolCleared",
            Self::PoolClosed { .. } => "PoolClosed",
            Self::ConnectionCreated { .. } => "ConnectionCreated",
            Self::ConnectionReady { .. } => "ConnectionReady",
            Self::ConnectionClosed { .. } => "ConnectionClosed",
            Self::ConnectionCheckOutStarted { .. } => "ConnectionCheckOutStarted",
            Self::ConnectionCheckOutFailed { .. } => "ConnectionCheckOutFailed",
            Self::ConnectionCheckedOut { .. } => "ConnectionCheckedOut",
            Self::ConnectionCheckedIn { .. } => "ConnectionCheckedIn",
        }
    }
}

impl fmt::Display for PoolEvent {
    /// Writes the event's name and its fields on one line, without the pool's id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let because = |f: &mut fmt::Formatter<'_>, cause: &Option<Cause>| match cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        };
        match self {
            Self::PoolCreated { options, .. } => {
                options.non_default().try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            Self::PoolReady { .. } | Self::PoolClosed { .. } | Self::ConnectionCheckOutStarted { .. } => Ok(()),
            Self::PoolCleared { service_id, interrupt_in_use_connections, cause, .. } => {
                if let Some(service_id) = service_id {
                    write!(f, " serviceId={service_id}")?;
                }
                write!(f, " interruptInUseConnections={interrupt_in_use_connections}")?;
                because(f, cause)
            }
            Self::ConnectionCreated { conn, .. } | Self::ConnectionCheckedIn { conn, .. } => {
                write!(f, " {}", conn.connection_id())
            }
            Self::ConnectionReady { conn, duration, .. } | Self::ConnectionCheckedOut { conn, duration, .. } => {
                write!(f, " {} after {duration:.1?}", conn.connection_id())
            }
            Self::ConnectionClosed { conn, reason, cause, .. } => {
                write!(f, " {} ({})", conn.connection_id(), reason.name())?;
                because(f, cause)
            }
            Self::ConnectionCheckOutFailed { reason, error, duration, .. } => {
                write!(f, " ({}) after {duration:.1?}: {error}", reason.name())
            }
        }
    }
}

/// The reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ClosedReason {
    /// The pool was cleared since the connection was created, or the connection was retired.
    Stale,
    /// It was available for longer than `maxIdleTimeMS`, or exceeded a lowered `maxPoolSize`.
    Idle,
    /// It could not be established, or failed in use.
    Error,
    /// The pool was closed.
    PoolClosed,
}

impl ClosedReason {
    /// The reason's name in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Idle => "idle",
            Self::Error => "error",
            Self::PoolClosed => "poolClosed",
        }
    }
}

/// The reason for the failure of a check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CheckOutFailedReason {
    /// The pool was closed.
    PoolClosed,
    /// The deadline of the check-out has passed.
    Timeout,
    /// The pool is paused or was cleared, the connection could not be established, or the caller
    /// cancelled the check-out.
    ConnectionError,
}

impl CheckOutFailedReason {
    /// The reason's name in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolClosed => "poolClosed",
            Self::Timeout => "timeout",
            Self::ConnectionError => "connectionError",
        }
    }
}
