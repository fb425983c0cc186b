//! What is told of a step of a monitor: the call, and everything that was seen of it.

use crate::reply::CheckReply;
use core::time::Duration;
use poolhouse_core::monitor::{CheckOutcome, HelloKind, Line, LineId, MonitorAction, MonitorEvent, MonitorState};
use poolhouse_core::{Cause, Instant};

/// A connection: its line and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// Which of the two lines.
    pub line: Line,
    /// Its number.
    pub number: u64,
}

impl Wire {
    /// The one of this id.
    #[must_use]
    pub const fn of(id: LineId) -> Self {
        Self { line: id.line(), number: id.number() }
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
        /// Whether the server is known now.
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
    /// `poll_action`, or `poll_line` of one.
    Poll(Option<Line>),
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing.
    None,
    /// `Ok(())`.
    Done,
    /// The connection is given up.
    Stale,
    /// What was polled, if anything.
    Action(Option<Action>),
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Dial.
    Dial(Wire),
    /// Write a hello.
    Hello(Wire, HelloKind),
    /// Read on.
    Read(Wire),
    /// Hang up.
    Hangup(Wire),
}

impl Action {
    /// What this action says.
    #[must_use]
    pub const fn of(action: &MonitorAction) -> Self {
        match *action {
            MonitorAction::Dial(id) => Self::Dial(Wire::of(id)),
            MonitorAction::SendHello { line, hello } => Self::Hello(Wire::of(line), hello),
            MonitorAction::ReadNext { line } => Self::Read(Wire::of(line)),
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

/// What was seen of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// What the call returned.
    pub answer: Answer,
    /// What an observer was told meanwhile.
    pub events: &'a [(Instant, MonitorEvent)],
    /// Getters afterwards; `None` when nobody looked.
    pub seen: Option<Seen>,
}
