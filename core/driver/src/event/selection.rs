//! Events of server selection.
//!
//! Read first: Server Selection, "Logging".

use super::EventKinds;
use crate::error::OperationError;
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::time::Duration;
use poolhouse_core::topology::{OwnedTopologyDescription, TopologyDescription};

/// An event of the selection of a server: its start, the begin and the end of its wait if no server is
/// suitable, and one end. Each attempt of an operation selects a server; a command on the
/// server of its cursor or transaction, or on a connection that is checked out, selects none.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SelectionEvent<'a> {
    /// The start, the wait, or the end with its outcome.
    pub stage: SelectionStage<'a>,
    /// The requirements for the server: `write`, or `read from` and the read preference.
    pub selector: &'a str,
    /// The name of the command; `None` for a check-out that belongs to no command of the application,
    /// and for a warm-up.
    pub operation: Option<&'a str>,
    /// The id of the operation, which the events of its commands have too; `None` if the operation has
    /// no name.
    pub operation_id: Option<i64>,
    /// The topology, by which the server was selected.
    pub topology: TopologyDescription<'a>,
}

/// The start of a selection, its wait, or its end with the outcome.
#[derive(Clone, Copy, Debug)]
pub enum SelectionStage<'a> {
    /// The selection begins.
    Started,
    /// No server is suitable, so the selection waits for a change of the topology.
    Waiting {
        /// The time until the selection fails; `None` if it has no limit.
        remaining: Option<Duration>,
        /// Whether an earlier selection of the same operation has waited.
        again: bool,
    },
    /// The selection waits no more: a server was selected, it failed, or it was dropped.
    Waited {
        /// How long it has waited.
        duration: Duration,
        /// Whether a server was selected.
        is_selected: bool,
    },
    /// A server was selected.
    Succeeded {
        /// The address of the server.
        address: &'a str,
    },
    /// No server was selected.
    Failed {
        /// The error; `None` if the future of the selection was dropped.
        error: Option<&'a OperationError>,
    },
}

impl<'a> SelectionEvent<'a> {
    /// Creates an event without the operation, such as for a test of a publisher.
    #[must_use]
    pub const fn new(stage: SelectionStage<'a>, selector: &'a str, topology: TopologyDescription<'a>) -> Self {
        Self { stage, selector, operation: None, operation_id: None, topology }
    }

    /// The name of the event.
    #[must_use]
    pub const fn event_name(&self) -> &'static str {
        match self.stage {
            SelectionStage::Started => "ServerSelectionStarted",
            SelectionStage::Waiting { .. } => "ServerSelectionWaiting",
            SelectionStage::Waited { .. } => "ServerSelectionWaited",
            SelectionStage::Succeeded { .. } => "ServerSelectionSucceeded",
            SelectionStage::Failed { .. } => "ServerSelectionFailed",
        }
    }

    /// The kind of the event.
    #[must_use]
    pub const fn kind(&self) -> EventKinds {
        match self.stage {
            SelectionStage::Waiting { .. } | SelectionStage::Waited { .. } => EventKinds::SELECTION_WAITS,
            SelectionStage::Started | SelectionStage::Succeeded { .. } | SelectionStage::Failed { .. } => {
                EventKinds::SELECTIONS
            }
        }
    }

    /// Returns an owned copy.
    #[must_use]
    pub fn to_owned(&self) -> OwnedSelectionEvent {
        self.copy_after(&mut None)
    }

    /// Returns an owned copy. An unchanged description is shared with the last copy.
    ///
    /// - `last`: the last description of the topology that was copied.
    pub(super) fn copy_after(&self, last: &mut Option<OwnedTopologyDescription>) -> OwnedSelectionEvent {
        let topology = self.topology.copy_like(last.as_ref());
        *last = Some(topology.clone());
        OwnedSelectionEvent {
            stage: match self.stage {
                SelectionStage::Started => OwnedStage::Started,
                SelectionStage::Waiting { remaining, again } => OwnedStage::Waiting(remaining, again),
                SelectionStage::Waited { duration, is_selected } => OwnedStage::Waited(duration, is_selected),
                SelectionStage::Succeeded { address } => OwnedStage::Succeeded(address.to_owned()),
                SelectionStage::Failed { error } => OwnedStage::Failed(error.cloned()),
            },
            selector: self.selector.to_owned(),
            operation: self.operation.map(str::to_owned),
            operation_id: self.operation_id,
            topology,
        }
    }
}

impl fmt::Display for SelectionEvent<'_> {
    /// Writes no description of the topology.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.event_name())?;
        if let Some(operation) = self.operation {
            write!(f, " {operation}")?;
        }
        write!(f, " ({})", self.selector)?;
        match self.stage {
            SelectionStage::Started | SelectionStage::Waiting { remaining: None, .. } => Ok(()),
            SelectionStage::Waiting { remaining: Some(remaining), .. } => write!(f, ", at most {remaining:?}"),
            SelectionStage::Waited { duration, .. } => write!(f, " for {duration:.1?}"),
            SelectionStage::Succeeded { address } => write!(f, ": {address}"),
            SelectionStage::Failed { error: Some(error) } => write!(f, ": {error}"),
            SelectionStage::Failed { error: None } => f.write_str(": cancelled"),
        }
    }
}

/// An owned [`SelectionEvent`].
#[derive(Clone, Debug)]
pub struct OwnedSelectionEvent {
    stage: OwnedStage,
    selector: String,
    operation: Option<String>,
    operation_id: Option<i64>,
    topology: OwnedTopologyDescription,
}

#[derive(Clone, Debug)]
enum OwnedStage {
    Started,
    Waiting(Option<Duration>, bool),
    Waited(Duration, bool),
    Succeeded(String),
    Failed(Option<OperationError>),
}

impl OwnedSelectionEvent {
    /// Returns the event.
    #[must_use]
    pub fn get(&self) -> SelectionEvent<'_> {
        SelectionEvent {
            stage: match &self.stage {
                OwnedStage::Started => SelectionStage::Started,
                OwnedStage::Waiting(remaining, again) => {
                    SelectionStage::Waiting { remaining: *remaining, again: *again }
                }
                OwnedStage::Waited(duration, is_selected) => {
                    SelectionStage::Waited { duration: *duration, is_selected: *is_selected }
                }
                OwnedStage::Succeeded(address) => SelectionStage::Succeeded { address },
                OwnedStage::Failed(error) => SelectionStage::Failed { error: error.as_ref() },
            },
            selector: &self.selector,
            operation: self.operation.as_deref(),
            operation_id: self.operation_id,
            topology: self.topology.get(),
        }
    }

    /// The bytes of its heap memory, including shared parts.
    #[cfg(feature = "std")]
    pub(super) fn heap_bytes(&self) -> usize {
        let topology = self.topology.heap_bytes();
        let stage = match &self.stage {
            OwnedStage::Started | OwnedStage::Waiting(..) | OwnedStage::Waited(..) => 0,
            OwnedStage::Succeeded(address) => address.len(),
            // The error has a description too.
            OwnedStage::Failed(error) => error.as_ref().map_or(0, |_| topology),
        };
        stage + self.operation.as_ref().map_or(0, String::len) + self.selector.len() + topology
    }
}
