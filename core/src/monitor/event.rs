//! Events of a monitor.
//!
//! Read first: SDAM Logging and Monitoring, the heartbeat events; Server Monitoring, "SDAM
//! Monitoring".

use core::fmt;
use core::time::Duration;

use crate::Cause;
use crate::ServerId;

/// The connection that a heartbeat uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HeartbeatId {
    /// The server that is checked.
    pub server: ServerId,
    /// driverConnectionId: the number of the monitor's connection, 1, 2, 3, .. in the order of
    /// creation.
    pub connection: u64,
    /// serverConnectionId: the number that the server assigned to the connection; `None` before the
    /// first hello reply.
    pub server_connection: Option<i64>,
}

/// A heartbeat: one check of a server.
///
/// Strictly paired: each `HeartbeatStarted` is followed by exactly one of the other two before the
/// next one, also when the check is cancelled or the monitor is closed. The RTT connection
/// emits none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MonitorEvent {
    /// A check begins: a new connection will be dialed, a hello written, or the next reply of a
    /// stream read.
    HeartbeatStarted {
        /// Server and connection.
        id: HeartbeatId,
        /// Whether the server may delay its reply until it changes.
        awaited: bool,
    },
    /// The server answered with `ok: 1`.
    HeartbeatSucceeded {
        /// Server and connection.
        id: HeartbeatId,
        /// As in the event of the start.
        awaited: bool,
        /// From sending the hello to its parsed reply; for a streamed reply, from the start of the
        /// check. Without `awaited` it is also the RTT sample.
        duration: Duration,
    },
    /// The check failed, was cancelled ([`Cause::Cancelled`]), or the monitor was closed
    /// ([`Cause::Closed`]).
    HeartbeatFailed {
        /// Server and connection.
        id: HeartbeatId,
        /// As in the event of the start.
        awaited: bool,
        /// From sending the hello, or from the start of the check when no hello was sent.
        duration: Duration,
        /// The failure.
        cause: Cause,
    },
}

impl MonitorEvent {
    /// Server and connection.
    #[must_use]
    pub const fn id(&self) -> &HeartbeatId {
        match self {
            Self::HeartbeatStarted { id, .. }
            | Self::HeartbeatSucceeded { id, .. }
            | Self::HeartbeatFailed { id, .. } => id,
        }
    }

    /// Whether the server may delay its reply until it changes.
    #[must_use]
    pub const fn awaited(&self) -> bool {
        match self {
            Self::HeartbeatStarted { awaited, .. }
            | Self::HeartbeatSucceeded { awaited, .. }
            | Self::HeartbeatFailed { awaited, .. } => *awaited,
        }
    }
}

const _: () = assert!(size_of::<MonitorEvent>() <= 64);

impl fmt::Display for MonitorEvent {
    /// Writes the event's name and fields on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeartbeatStarted { awaited, .. } => write!(f, "ServerHeartbeatStarted awaited={awaited}"),
            Self::HeartbeatSucceeded { awaited, duration, .. } => {
                write!(f, "ServerHeartbeatSucceeded awaited={awaited} after {duration:.1?}")
            }
            Self::HeartbeatFailed { awaited, duration, cause, .. } => {
                write!(f, "ServerHeartbeatFailed awaited={awaited} after {duration:.1?}: {cause}")
            }
        }
    }
}
