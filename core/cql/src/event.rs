//! Cluster events that servers push to clients.
//!
//! Read first: Native Protocol, "EVENT", "REGISTER".

#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use super::error::CqlError;
use super::notation::{Reader, Strings};

/// A kind of event that a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Nodes join and leave the cluster.
    Topology,
    /// Nodes become available and unavailable.
    Status,
    /// The schema changes.
    Schema,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Topology, Self::Status, Self::Schema];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topology => "TOPOLOGY_CHANGE",
            Self::Status => "STATUS_CHANGE",
            Self::Schema => "SCHEMA_CHANGE",
        }
    }
}

/// A cluster event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A node joined, left or moved.
    Topology {
        /// `NEW_NODE`, `REMOVED_NODE`, in v3 also `MOVED_NODE`.
        change: &'a str,
        /// The node's address for clients.
        node: SocketAddr,
    },
    /// A node became available or unavailable.
    Status {
        /// `UP`, `DOWN`.
        change: &'a str,
        /// The node's address for clients.
        node: SocketAddr,
    },
    /// The schema changed.
    Schema(SchemaChange<'a>),
    /// An event of an unknown kind.
    Other {
        /// The name of its kind.
        kind: &'a str,
    },
}

impl<'a> Event<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, CqlError> {
        let name = reader.string()?;
        let kind = EventKind::ALL.into_iter().find(|kind| kind.name() == name);
        Ok(match kind {
            Some(EventKind::Topology) => Self::Topology { change: reader.string()?, node: reader.inet()? },
            Some(EventKind::Status) => Self::Status { change: reader.string()?, node: reader.inet()? },
            Some(EventKind::Schema) => Self::Schema(SchemaChange::read(reader)?),
            None => Self::Other { kind: name },
        })
    }
}

/// A change of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// `CREATED`, `UPDATED`, `DROPPED`.
    pub change: &'a str,
    /// `KEYSPACE`, `TABLE`, `TYPE`, from v4 on `FUNCTION` and `AGGREGATE`.
    pub target: &'a str,
    /// The keyspace that changed, or that contains the changed object.
    pub keyspace: &'a str,
    /// The name of the object; `None` for a keyspace.
    pub name: Option<&'a str>,
    /// The types of the arguments of a function or an aggregate.
    pub arguments: Strings<'a>,
}

impl<'a> SchemaChange<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, CqlError> {
        let (change, target, keyspace) = (reader.string()?, reader.string()?, reader.string()?);
        let name = if target == "KEYSPACE" { None } else { Some(reader.string()?) };
        let has_arguments = matches!(target, "FUNCTION" | "AGGREGATE");
        let arguments = if has_arguments { reader.strings()? } else { Strings::EMPTY };
        Ok(Self { change, target, keyspace, name, arguments })
    }
}
