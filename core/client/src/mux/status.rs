//! Status of hosts and their connections.

use super::host::Host;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use poolhouse_core::Instant;
use poolhouse_core::cluster::Node;
use poolhouse_core::mux::{HostState, MuxConfig, MuxId};
use poolhouse_cql::Version;

/// A connection of a host at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// Number of the connection in its pool, from 1.
    pub number: u64,
    /// Number of requests in flight on it.
    pub in_flight: u32,
    /// Whether it takes more requests.
    pub takes_requests: bool,
}

/// A host at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatus {
    /// Id of the host in events.
    pub id: MuxId,
    /// Its address.
    pub address: String,
    /// State of its pool.
    pub state: HostState,
    /// Options of its pool.
    pub config: MuxConfig,
    /// Its established connections, oldest first; those that take no more requests are last.
    pub connections: Vec<ConnectionStatus>,
    /// The protocol version that the next connection tries first: see
    /// [`LOWER_VERSION_FOR`](super::LOWER_VERSION_FOR).
    pub version: Version,
    /// Why the last attempt to connect failed: the server's text if it refused the connection,
    /// otherwise the underlying error, such as that of the operating system. The first 256 bytes on
    /// one line, control characters replaced by spaces. `None` if there is no such error, if the
    /// server's text contains the password, and after the server has accepted a connection.
    pub refusal: Option<String>,
}

/// A session's view of its cluster, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The name of the cluster, once it was read.
    pub name: Option<String>,
    /// Whether there is a control connection.
    pub is_connected: bool,
    /// The nodes, in the order of their addresses. Empty until the tables were read.
    pub nodes: Vec<NodeStatus>,
    /// Number of rows of nodes that the last reading has ignored: those of a node at the address of another, at an
    /// address that is refused, without a data centre or rack, and those beyond the most nodes. The session does
    /// not use such nodes, and their data is not routed.
    pub ignored_rows: u32,
    /// Number of keyspaces for which the location of the data is known.
    pub routed_keyspaces: usize,
    /// The local data centre of the options, if the tables were read and no node is in it. Then requests go to
    /// remote hosts, or fail with [`RequestError::UnknownDataCenter`](super::RequestError::UnknownDataCenter).
    pub missing_data_center: Option<String>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its address for clients.
    pub address: SocketAddr,
    /// Name of its data centre.
    pub data_center: String,
    /// Name of its rack.
    pub rack: String,
    /// Number of its tokens.
    pub token_count: usize,
    /// Whether it is available, according to the last event about it.
    pub is_up: bool,
}

impl NodeStatus {
    pub(super) fn of(address: SocketAddr, node: &Node) -> Self {
        let Node { data_center, rack, tokens, is_up } = node;
        let (data_center, rack) = (data_center.clone(), rack.clone());
        Self { address, data_center, rack, token_count: tokens.len(), is_up: *is_up }
    }
}

impl HostStatus {
    pub(super) fn of(now: Instant, host: &Host) -> Self {
        host.look(now, |mux, version, refusal| {
            let mut connections = Vec::new();
            mux.for_each_conn(|conn, in_flight, takes_requests| {
                connections.push(ConnectionStatus { number: conn.number().get(), in_flight, takes_requests });
            });
            Self {
                id: host.id,
                address: host.address.clone(),
                state: mux.state(),
                config: *mux.config(),
                connections,
                version,
                refusal: refusal.map(String::from),
            }
        })
    }
}
