//! What is told of a step of a control machine: the call, and everything that was seen of it.

use crate::oracle::monitor::Action;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::{Line, MonitorEvent};
use poolhouse_core::topology::{
    AppError, AppErrorKind, HandshakePhase, SdamEvent, ServerDescription, ServerError, TopologyType, Verdict,
};
use poolhouse_core::{Cause, Instant, ServerId, TopologyVersion};

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The machine was made.
    New,
    /// `handle_dialed`.
    Dialed(ServerId),
    /// `handle_reply`, with the `topologyVersion` of the hello.
    Reply(ServerId, Option<TopologyVersion>),
    /// `handle_failed`.
    Failed(ServerId, Cause),
    /// `handle_app_hello`, with its `topologyVersion`.
    Hello(ServerId, Option<TopologyVersion>),
    /// `handle_app_error`.
    Error(ServerId, Fault),
    /// `handle_seeds`.
    Seeds,
    /// `request_check`.
    Request,
    /// `close`.
    Close,
    /// `handle_timeout`.
    Timeout,
    /// `poll_action`.
    Poll,
    /// `poll_line`.
    PollLine(ServerId, Line),
}

/// An application's error, as far as it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Its connection is of another generation than its pool.
    pub stale: bool,
    /// Its connection was being established.
    pub before: bool,
    /// It carries the label of an overloaded server.
    pub overloaded: bool,
    /// What it is.
    pub kind: FaultKind,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The network.
    Network,
    /// The network, in time.
    Timeout,
    /// The server said so, by this code if any, and this `topologyVersion`.
    Command(Option<i32>, Option<TopologyVersion>),
    /// Anything else.
    Other,
}

impl Fault {
    /// What this error says.
    #[must_use]
    pub fn of(error: &AppError<'_>) -> Self {
        let kind = match error.kind {
            AppErrorKind::Network => FaultKind::Network,
            AppErrorKind::NetworkTimeout => FaultKind::Timeout,
            AppErrorKind::Other(_) => FaultKind::Other,
            AppErrorKind::Command(reply) => {
                let code = reply.command.and_then(|error| error.code);
                FaultKind::Command(code, reply.topology_version)
            }
        };
        Self {
            stale: error.generation != error.pool_generation,
            before: error.phase == HandshakePhase::Before,
            overloaded: error.overloaded,
            kind,
        }
    }
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    None,
    /// `Ok(())`.
    Done,
    /// The connection is given up, or there is no room.
    Stale,
    /// What follows from an error.
    Verdict(Verdict),
    /// What was polled, if anything.
    Action(Option<ControlAction>),
    /// What was polled of a line, if anything.
    Line(Option<Action>),
}

/// What a server looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Looks {
    /// Its type is known.
    pub known: bool,
    /// It has data to be read.
    pub data: bool,
    /// A check of it, or an operation on it, has failed.
    pub failed: bool,
    /// Its `topologyVersion`.
    pub version: Option<TopologyVersion>,
}

impl Looks {
    /// Those of this description.
    #[must_use]
    pub fn of(description: &ServerDescription<'_>) -> Self {
        let server_type = description.server_type();
        Self {
            known: server_type.is_known(),
            data: server_type.is_data_bearing(),
            failed: matches!(description.error(), Some(ServerError::Failed(_))),
            version: description.topology_version(),
        }
    }
}

/// What an observer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A check begins or ends.
    Beat(MonitorEvent),
    /// A server is a member.
    Opened(ServerId),
    /// It looks otherwise.
    Changed(ServerId, Looks),
    /// It is none any more.
    Closed(ServerId),
    /// The last event.
    Ended,
    /// Any other of the topology.
    Other,
}

impl Event {
    /// What this event says.
    #[must_use]
    pub fn of(event: &SdamEvent<'_>) -> Self {
        match event {
            SdamEvent::ServerOpening { server, .. } => Self::Opened(*server),
            SdamEvent::ServerDescriptionChanged { server, new, .. } => Self::Changed(*server, Looks::of(new)),
            SdamEvent::ServerClosed { server, .. } => Self::Closed(*server),
            SdamEvent::TopologyClosed { .. } => Self::Ended,
            _ => Self::Other,
        }
    }
}

/// Getters after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The type of the topology.
    pub topology: TopologyType,
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
    /// Getters afterwards.
    pub seen: Seen,
}
