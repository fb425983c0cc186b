//! The record of a step of a control machine: the call and all observed outputs.

use crate::oracle::monitor::Action;
use poolhouse_core::control::ControlAction;
use poolhouse_core::monitor::{MonitorConnKind, MonitorEvent};
use poolhouse_core::topology::{
    AppError, AppErrorKind, HandshakePhase, SdamEvent, ServerDescription, ServerError, TopologyType, Verdict,
};
use poolhouse_core::{Cause, Instant, ServerId, TopologyVersion};

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The machine was created.
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
    /// `poll_conn`.
    PollConn(ServerId, MonitorConnKind),
}

/// An application's error, reduced to the fields that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The generation of its connection differs from that of the pool.
    pub stale: bool,
    /// Its connection was being established.
    pub before: bool,
    /// It carries the label of an overloaded server.
    pub overloaded: bool,
    /// Its kind.
    pub kind: FaultKind,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A network error.
    Network,
    /// A network timeout.
    Timeout,
    /// An error reply, with its code if any, and its `topologyVersion`.
    Command(Option<i32>, Option<TopologyVersion>),
    /// Any other error.
    Other,
}

impl Fault {
    /// Converts an error.
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

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No value.
    None,
    /// `Ok(())`.
    Done,
    /// The connection is stale, or the capacity is exhausted.
    Stale,
    /// The consequences of an error.
    Verdict(Verdict),
    /// The result of a poll.
    Action(Option<ControlAction>),
    /// The result of a poll of a monitor connection.
    MonitorAction(Option<Action>),
}

/// The properties of a server that are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Looks {
    /// Its type is known.
    pub known: bool,
    /// It is a data-bearing server.
    pub data: bool,
    /// A check of it, or an operation on it, has failed.
    pub failed: bool,
    /// Its `topologyVersion`.
    pub version: Option<TopologyVersion>,
}

impl Looks {
    /// Converts a description.
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

/// An event that an observer received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A check begins or ends.
    Beat(MonitorEvent),
    /// A server was added.
    Opened(ServerId),
    /// A server description has changed.
    Changed(ServerId, Looks),
    /// A server was removed.
    Closed(ServerId),
    /// The last event.
    Ended,
    /// Any other event of the topology.
    Other,
}

impl Event {
    /// Converts an event.
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

/// The observed outputs of a step.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a> {
    /// The result of the call.
    pub answer: Answer,
    /// The events that an observer received during the call.
    pub events: &'a [(Instant, Event)],
    /// Getters after the call.
    pub seen: Seen,
}
