//! Events of a cluster.

use crate::Cause;
use crate::mux::HexCode;
use core::fmt;
use core::net::SocketAddr;

/// A query on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterQuery {
    /// REGISTER for events of topology, status and schema.
    Register,
    /// The row of `system.local`.
    Local,
    /// The row of `system.local` with the columns that servers before 4.0 have, too.
    OldLocal,
    /// The rows of `system.peers_v2`.
    Peers,
    /// The rows of `system.peers`, which servers before 4.0 have instead.
    OldPeers,
    /// The rows of `system_schema.keyspaces`.
    Keyspaces,
}

/// The events of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// The control connection is established.
    ControlConnected {
        /// The peer's address; `None` for a Unix socket, and for a contact point that is a name.
        peer: Option<SocketAddr>,
    },
    /// The control connection was closed, or was not established. Another node is tried next.
    ControlFailed {
        /// Why.
        cause: Cause,
    },
    /// The node of the control connection is of another cluster. The connection is closed.
    OtherCluster,
    /// A query was not answered in time, or its answer was an error or malformed.
    QueryFailed {
        /// The query.
        query: ClusterQuery,
    },
    /// A node was found in the tables.
    NodeAdded {
        /// Its address for clients.
        node: SocketAddr,
    },
    /// The tables no longer contain a node.
    NodeRemoved {
        /// Its address for clients.
        node: SocketAddr,
    },
    /// The data centre, the rack or the tokens of a node are others than before.
    NodeChanged {
        /// Its address for clients.
        node: SocketAddr,
    },
    /// A server reported that a node is available again.
    NodeUp {
        /// Its address for clients.
        node: SocketAddr,
    },
    /// A server reported that a node is unavailable. Its connections stay as long as they work.
    NodeDown {
        /// Its address for clients.
        node: SocketAddr,
    },
    /// The tables of nodes were read.
    NodesRead {
        /// The number of nodes.
        count: u32,
    },
    /// Rows of the tables of nodes were ignored: without an address, data centre or rack, repeated,
    /// of the node itself, or surplus.
    RowsIgnored {
        /// Number of rows in the tables of this reading.
        count: u32,
    },
    /// No node is in the local data centre, so requests go to remote nodes, if any. The name of the
    /// data centre may be wrong.
    NoLocalNodes,
    /// The schema has changed.
    SchemaChanged,
}

impl ClusterEvent {
    /// The event's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ControlConnected { .. } => "ControlConnected",
            Self::ControlFailed { .. } => "ControlFailed",
            Self::OtherCluster => "OtherCluster",
            Self::QueryFailed { .. } => "QueryFailed",
            Self::NodeAdded { .. } => "NodeAdded",
            Self::NodeRemoved { .. } => "NodeRemoved",
            Self::NodeChanged { .. } => "NodeChanged",
            Self::NodeUp { .. } => "NodeUp",
            Self::NodeDown { .. } => "NodeDown",
            Self::NodesRead { .. } => "NodesRead",
            Self::RowsIgnored { .. } => "RowsIgnored",
            Self::NoLocalNodes => "NoLocalNodes",
            Self::SchemaChanged => "SchemaChanged",
        }
    }
}

impl fmt::Display for ClusterEvent {
    /// Writes the event's name and its fields on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::ControlConnected { peer: Some(node) }
            | Self::NodeAdded { node }
            | Self::NodeRemoved { node }
            | Self::NodeChanged { node }
            | Self::NodeUp { node }
            | Self::NodeDown { node } => write!(f, " {node}"),
            Self::ControlFailed { cause } => write!(f, ": {}", HexCode(*cause)),
            Self::QueryFailed { query } => write!(f, ": {query:?}"),
            Self::NodesRead { count } | Self::RowsIgnored { count } => write!(f, ": {count}"),
            Self::ControlConnected { peer: None } | Self::OtherCluster | Self::NoLocalNodes | Self::SchemaChanged => {
                Ok(())
            }
        }
    }
}
