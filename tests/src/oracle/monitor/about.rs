//! The record of a step of a monitor: the call and all observed outputs.

use crate::reply::CheckReply;
use core::time::Duration;
use poolhouse_core::monitor::{
    CheckOutcome, HelloKind, MonitorAction, MonitorConnId, MonitorConnKind, MonitorEvent, MonitorState,
};
use poolhouse_core::{Cause, Instant};

/// A monitor connection: its kind and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// Its kind.
    pub kind: MonitorConnKind,
    /// Its number.
    pub number: u64,
}

impl Wire {
    /// Converts an id.
    #[must_use]
    pub const fn of(id: MonitorConnId) -> Self {
        Self { kind: id.kind(), number: id.number() }
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// `start`.
    Start,
    /// `start_after`.
    StartAfter(Instant),
    /// `request_check`.
    Request,
    /// `cancel_check`.
    Cancel,
    /// `set_server_known`.
    Known(bool),
    /// `close`.
    Close,
    /// `settle`.
    Settle {
        /// Whether the server is known after the outcome was applied.
        known: bool,
    },
    /// `handle_dialed`.
    Dialed(Wire),
    /// `handle_reply`.
    Reply(Wire, CheckReply),
    /// `handle_failed`.
    Failed(Wire, Cause),
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`, or `poll_conn` of one.
    Poll(Option<MonitorConnKind>),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// No value.
    None,
    /// `Ok(())`.
    Done,
    /// The connection was abandoned.
    Stale,
    /// The result of a poll.
    Action(Option<Action>),
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Dial.
    Dial(Wire),
    /// Write a hello.
    Hello(Wire, HelloKind),
    /// Continue to read.
    Read(Wire),
    /// Hang up.
    Hangup(Wire),
}

impl Action {
    /// Converts an action.
    #[must_use]
    pub const fn of(action: &MonitorAction) -> Self {
        match *action {
            MonitorAction::Dial(id) => Self::Dial(Wire::of(id)),
            MonitorAction::SendHello { conn, hello } => Self::Hello(Wire::of(conn), hello),
            MonitorAction::ReadNext { conn } => Self::Read(Wire::of(conn)),
            MonitorAction::Hangup(id) => Self::Hangup(Wire::of(id)),
        }
    }
}

/// Getters after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// `state`.
    pub state: MonitorState,
    /// `outcome`.
    pub outcome: Option<CheckOutcome>,
    /// `is_streaming`.
    pub streaming: bool,
    /// `poll_timeout`.
    pub timeout: Option<Instant>,
    /// The average of the round-trip times.
    pub average: Option<Duration>,
    /// Their recent minimum.
    pub minimum: Duration,
}

/// The observed outputs of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// The result of the call.
    pub answer: Answer,
    /// The events that an observer received during the call.
    pub events: &'a [(Instant, MonitorEvent)],
    /// Getters after the call; `None` if they were not read.
    pub seen: Option<Seen>,
}
