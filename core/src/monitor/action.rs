//! Values exchanged between a monitor and its host: connection ids, actions and check outcomes.

use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;
use core::time::Duration;

use crate::Cause;
use crate::storage::table::Serial;
use poolhouse_wire::hello::HelloKind;

/// The two connections of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MonitorConnKind {
    /// The connection whose replies describe the server.
    Check,
    /// The connection that only measures round-trip times, while the check connection streams.
    Rtt,
}

/// Identifies one connection of a monitor. Each dial has a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorConnId {
    pub(super) serial: NonZeroU64,
    pub(super) kind: MonitorConnKind,
}

impl Hash for MonitorConnId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Serial(self.number()), self.kind).hash(state);
    }
}

impl MonitorConnId {
    /// Whether it is the check connection or the RTT connection.
    #[must_use]
    pub const fn kind(self) -> MonitorConnKind {
        self.kind
    }

    /// driverConnectionId: 1, 2, 3, .. in the order of creation, counted over both connections;
    /// never reused.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.serial.get()
    }
}

/// An action that the host must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MonitorAction {
    /// Connect to the server, TLS included; then call `handle_dialed` or `handle_failed`. Never use
    /// a pooled connection.
    Dial(MonitorConnId),
    /// Write a hello and read one reply; then call `handle_reply` or `handle_failed`.
    SendHello {
        /// The connection.
        conn: MonitorConnId,
        /// The hello to write.
        hello: HelloKind,
    },
    /// Write nothing and read one more reply; then call `handle_reply` or `handle_failed`.
    ReadNext {
        /// The connection.
        conn: MonitorConnId,
    },
    /// Cancel the operation in progress on this connection and close it. No result is expected; a
    /// result that is reported nevertheless is rejected as [`Stale`](crate::Stale).
    Hangup(MonitorConnId),
}

/// The result of a check, which the host must apply to the server's description and to its pool
/// before the next call.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckOutcome {
    /// The server answered `ok: 1`. Update the description from the reply, then mark the pool ready.
    Succeeded {
        /// Whether the check was awaited. If so, its duration is not a round-trip time.
        awaited: bool,
        /// The round-trip time, if this check measured one. Already added to
        /// [`Monitor::rtt`](super::Monitor::rtt).
        sample: Option<Duration>,
    },
    /// Mark the server Unknown with `cause`, then clear its pool.
    Failed {
        /// The failure.
        cause: Cause,
        /// Clear with interruptInUseConnections: it was a network timeout.
        interrupt: bool,
    },
}

const _: () = assert!(size_of::<MonitorConnId>() == 16);
const _: () = assert!(size_of::<MonitorAction>() <= 64);
