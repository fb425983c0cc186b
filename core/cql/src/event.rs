//! What happens in the cluster.
//!
//! Read first: Native Protocol, "EVENT", "REGISTER".

#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use super::error::CqlError;
use super::notation::{Reader, Strings};

/// A kind of event that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Nodes come and go.
    Topology,
    /// Nodes go up and down.
    Status,
    /// The schema changes.
    Schema,
}

impl EventKind {
    /// Every one.
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

/// Something happened in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A node came, went or moved.
    Topology {
        /// `NEW_NODE`, `REMOVED_NODE`, in v3 `MOVED_NODE` too.
        change: &'a str,
        /// Where clients reach it.
        node: SocketAddr,
    },
    /// A node went up or down.
    Status {
        /// `UP`, `DOWN`.
        change: &'a str,
        /// Where clients reach it.
        node: SocketAddr,
    },
    /// The schema changed.
    Schema(SchemaChange<'a>),
    /// Something that nobody here has asked for.
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

/// What was changed of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// `CREATED`, `UPDATED`, `DROPPED`.
    pub change: &'a str,
    /// `KEYSPACE`, `TABLE`, `TYPE`, from v4 on `FUNCTION` and `AGGREGATE`.
    pub target: &'a str,
    /// The keyspace, or the one that it is in.
    pub keyspace: &'a str,
    /// The name, unless it is a keyspace.
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
