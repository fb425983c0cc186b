//! What passes between a monitor and its host: connections by their ids, actions, replies, outcomes.

use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;
use core::time::Duration;

use crate::Cause;
use crate::storage::table::Serial;
use poolhouse_wire::hello::HelloKind;

/// The two connections of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// The one whose replies say what the server is.
    Check,
    /// The one that only measures round-trip times, while the other one streams.
    Rtt,
}

/// Names one connection of a monitor, and no later one: the same `line` gets a new number with each dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineId {
    pub(super) serial: NonZeroU64,
    pub(super) line: Line,
}

impl Hash for LineId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Serial(self.number()), self.line).hash(state);
    }
}

impl LineId {
    /// Which of the two connections it is.
    #[must_use]
    pub const fn line(self) -> Line {
        self.line
    }

    /// driverConnectionId: 1, 2, 3, .. over both lines in the order of their making, never used twice.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.serial.get()
    }
}

/// What the host must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MonitorAction {
    /// Connect to the server, TLS included; then call `handle_dialed` or `handle_failed`. Never a connection of a pool
    /// (MON-11).
    Dial(LineId),
    /// Write a hello and read one reply; then call `handle_reply` or `handle_failed`.
    SendHello {
        /// The connection.
        line: LineId,
        /// What to write.
        hello: HelloKind,
    },
    /// Write nothing and read one more reply; then call `handle_reply` or `handle_failed` (MON-32).
    ReadNext {
        /// The connection.
        line: LineId,
    },
    /// Give up whatever is being done on this connection, and close it. No answer is wanted; one that comes anyway is
    /// [`Stale`](crate::Stale).
    Hangup(LineId),
}

/// How a check ended: what the host must apply to the server's description and to its pool before the next call.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckOutcome {
    /// The server answered `ok: 1`. Update the description by the reply, then mark the pool ready (MON-52).
    Succeeded {
        /// Whether the reply had been waited for. If so, it says nothing about the round-trip time (MON-41).
        awaited: bool,
        /// The round-trip time, if this check measured one; it is in [`Monitor::rtt`](super::Monitor::rtt) already.
        sample: Option<Duration>,
    },
    /// Mark the server Unknown with `cause`, then clear its pool (MON-53).
    Failed {
        /// The failure.
        cause: Cause,
        /// Clear with interruptInUseConnections: it was a network timeout (MON-54).
        interrupt: bool,
    },
}

const _: () = assert!(size_of::<LineId>() == 16);
const _: () = assert!(size_of::<MonitorAction>() <= 64);
