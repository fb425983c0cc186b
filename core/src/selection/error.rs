//! Reasons why no server was selected.
//!
//! Read first: Server Selection, "Server selection errors".

use super::candidate::{Candidate, Candidates};
use crate::ConfigError;
use crate::time::Seconds;
#[cfg(feature = "alloc")]
use crate::topology::OwnedTopologyDescription;
use crate::topology::{TopologyDescription, TopologyType, WireMismatch};
#[cfg(feature = "alloc")]
use crate::{Reason, ServerId};
#[cfg(feature = "alloc")]
use alloc::{string::String, vec::Vec};
use core::fmt;
use core::time::Duration;

/// The reason of a failed selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SelectionFailure {
    /// No server was suitable for this long: serverSelectionTimeoutMS has passed.
    TimedOut {
        /// The duration of the selection.
        waited: Duration,
    },
    /// No server was suitable after the servers were scanned once (serverSelectionTryOnce).
    TriedOnce,
    /// The topology's wire versions are not supported; returned without waiting.
    Incompatible(WireMismatch),
    /// The criteria contradict the topology; returned without waiting.
    Criteria(ConfigError),
    /// The topology was closed.
    Closed,
}

/// The reason why no server was selected, with a summary of the topology. Small, and free of text
/// from a peer.
///
/// [`SelectionError::describe`] adds the servers' current descriptions, and with `alloc`
/// `SelectionError::detail` adds a copy of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SelectionError {
    failure: SelectionFailure,
    topology_type: TopologyType,
    servers: u32,
    known: u32,
}

impl SelectionError {
    /// Creates an error with a summary of this topology.
    pub fn new<T: Candidates>(failure: SelectionFailure, topology: T) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let known = topology.candidates().filter(|server| server.server_type().is_known()).count();
        Self {
            failure,
            topology_type: topology.topology_type(),
            servers: count(topology.candidates().count()),
            known: count(known),
        }
    }

    /// The reason.
    #[must_use]
    pub const fn failure(&self) -> SelectionFailure {
        self.failure
    }

    /// The type of the topology.
    #[must_use]
    pub const fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    /// The number of servers.
    #[must_use]
    pub const fn servers(&self) -> u32 {
        self.servers
    }

    /// The number of servers that had answered.
    #[must_use]
    pub const fn known(&self) -> u32 {
        self.known
    }

    /// The error with the topology, for display.
    #[must_use]
    pub const fn describe<'a>(&self, topology: TopologyDescription<'a>) -> Described<'a> {
        Described { error: *self, topology }
    }

    /// The error with a copy of the topology, for storage.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn detail(&self, topology: TopologyDescription<'_>) -> DetailedSelectionError {
        DetailedSelectionError { error: *self, topology: topology.to_owned(), notes: Vec::new(), hint: None }
    }

    fn fmt_failure(&self, f: &mut fmt::Formatter<'_>, topology: Option<TopologyDescription<'_>>) -> fmt::Result {
        match self.failure {
            SelectionFailure::TimedOut { waited } => write!(f, "no suitable server within {}", Seconds(waited)),
            SelectionFailure::TriedOnce => f.write_str("no suitable server after scanning once"),
            SelectionFailure::Criteria(error) => fmt::Display::fmt(&error, f),
            SelectionFailure::Closed => f.write_str("the client is closed"),
            SelectionFailure::Incompatible(mismatch) => {
                match topology.and_then(|topology| topology.compatibility_error()) {
                    Some(error) => fmt::Display::fmt(&error, f),
                    None => match mismatch {
                        WireMismatch::ServerTooNew(version) => {
                            write!(f, "a server requires wire version {version}, which is too new")
                        }
                        WireMismatch::ServerTooOld(version) => {
                            write!(f, "a server reports wire version {version}, which is too old")
                        }
                    },
                }
            }
        }
    }
}

/// For example `no suitable server within 30 s; topology: ReplicaSetNoPrimary, 3 servers, 1 known`.
impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_failure(f, None)?;
        write!(f, "; topology: {}, {} servers, {} known", self.topology_type, self.servers, self.known)
    }
}

impl core::error::Error for SelectionError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        if let SelectionFailure::Criteria(error) = &self.failure { Some(error) } else { None }
    }
}

/// A [`SelectionError`] with the topology: each server with its address, type and error.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    error: SelectionError,
    topology: TopologyDescription<'a>,
}

/// `no suitable server within 30 s; topology: ReplicaSetNoPrimary rs [a:27017: Unknown (network
/// timeout), ..]`.
impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt_failure(f, Some(self.topology))?;
        write!(f, "; topology: {}", self.topology)
    }
}

/// Additional information on a server, beyond its description.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ServerNote {
    /// The connection to it failed: the reason of the error in its description.
    Failed(Reason),
    /// It has not replied yet: its first check has been connecting for this long.
    Connecting(Duration),
    /// It has not replied yet: its first check has been waiting for the reply to hello for this
    /// long.
    Awaiting(Duration),
}

#[cfg(feature = "alloc")]
impl fmt::Display for ServerNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(reason) => reason.fmt(f),
            Self::Connecting(time) => write!(f, "no reply yet: connecting for {}", Seconds(*time)),
            Self::Awaiting(time) => write!(f, "no reply yet: waiting for the reply to hello for {}", Seconds(*time)),
        }
    }
}

/// A [`SelectionError`] with the topology at that time, and notes on its servers.
#[cfg(feature = "alloc")]
#[derive(Clone)]
pub struct DetailedSelectionError {
    error: SelectionError,
    topology: OwnedTopologyDescription,
    notes: Vec<(ServerId, ServerNote)>,
    hint: Option<String>,
}

#[cfg(feature = "alloc")]
impl DetailedSelectionError {
    /// The error in short form.
    #[must_use]
    pub const fn error(&self) -> &SelectionError {
        &self.error
    }

    /// The topology at the time of the error.
    #[must_use]
    pub fn topology(&self) -> TopologyDescription<'_> {
        self.topology.get()
    }

    /// The note on a server of [`topology`](Self::topology), if any.
    #[must_use]
    pub fn note(&self, server: ServerId) -> Option<&ServerNote> {
        self.notes.iter().find(|(noted, _)| *noted == server).map(|(_, note)| note)
    }

    /// A likely configuration error and its remedy, if one was detected.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    #[doc(hidden)]
    pub fn add_note(&mut self, server: ServerId, note: ServerNote) {
        self.notes.push((server, note));
    }

    #[doc(hidden)]
    pub fn add_hint(&mut self, hint: String) {
        self.hint = Some(hint);
    }
}

#[cfg(feature = "alloc")]
poolhouse_wire::debug_as_display!(DetailedSelectionError);

/// Equal if both have the same error and the same text.
#[cfg(feature = "alloc")]
impl PartialEq for DetailedSelectionError {
    fn eq(&self, other: &Self) -> bool {
        use alloc::string::ToString;
        self.error == other.error && self.to_string() == other.to_string()
    }
}

/// Like [`Described`], with the notes and the hint: `no suitable server within 30 s; topology:
/// Unknown [a:27017: Unknown (network error: Connection refused (os error 111))]`.
#[cfg(feature = "alloc")]
impl fmt::Display for DetailedSelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = self.topology();
        self.error.fmt_failure(f, Some(topology))?;
        write!(f, "; topology: ")?;
        topology.fmt_with(f, |f, server| {
            let (note, error) = (self.note(server.server()), server.error());
            if note.is_none() && error.is_none() {
                return Ok(());
            }
            f.write_str(" (")?;
            if let Some(error) = error {
                error.fmt(f)?;
            }
            if let Some(note) = note {
                write!(f, "{}{note}", if error.is_some() { ": " } else { "" })?;
            }
            f.write_str(")")
        })?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// The text of [`Display`](fmt::Display), formatted on the device: builds without a heap have
/// [`SelectionError`] only.
#[cfg(all(feature = "alloc", feature = "defmt"))]
impl defmt::Format for DetailedSelectionError {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}", defmt::Display2Format(self));
    }
}

#[cfg(feature = "alloc")]
impl core::error::Error for DetailedSelectionError {
    /// The reason of the first server that has one.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.notes.iter().find_map(|(_, note)| match note {
            ServerNote::Failed(reason) => reason.source(),
            ServerNote::Connecting(_) | ServerNote::Awaiting(_) => None,
        })
    }
}
