//! Values exchanged between a scan and its host.

use crate::{Instant, ServerId};
use core::num::NonZeroU64;
use poolhouse_wire::hello::HelloKind;

/// Identifies one connection; ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId {
    pub(super) server: ServerId,
    pub(super) number: NonZeroU64,
}

impl SocketId {
    /// The server of the connection.
    #[must_use]
    pub const fn server(self) -> ServerId {
        self.server
    }

    /// driverConnectionId: 1, 2, 3, .. over all servers in the order of creation, never reused.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number.get()
    }
}

/// An action that the host must carry out. The result of each one is reported before the next one
/// is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanAction {
    /// Close this connection. No result is expected.
    Hangup(SocketId),
    /// Connect to the server of this connection; then call `handle_dialed` or `handle_failed`.
    Dial {
        /// The connection.
        socket: SocketId,
        /// The deadline; `None` means no limit.
        deadline: Option<Instant>,
    },
    /// Write a hello and read its reply; then call `handle_reply` or `handle_failed`.
    SendHello {
        /// The connection.
        socket: SocketId,
        /// The hello to write, never an awaitable one; in a load-balanced topology the first one
        /// has `loadBalanced`.
        hello: HelloKind,
        /// The deadline; `None` means no limit.
        deadline: Option<Instant>,
    },
}

/// The next step of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanStep {
    /// A server is selected, and this connection to it is checked out: use it, then check it in.
    Selected(SocketId),
    /// Poll and carry out the actions, then call `select` again.
    Work,
    /// Sleep until this instant, then call `select` again. Two scans are at least 500 ms apart.
    Wait(Instant),
}
