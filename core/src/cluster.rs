//! The nodes of a Cassandra cluster, found by one control connection.
//!
//! A [`Cluster`] decides which node the control connection is opened to, which queries are sent on
//! it and when, and which nodes exist according to the answers. It is in this crate, and not beside
//! the protocol in `poolhouse-cql`, because its [events](ClusterEvent) go to the subscribers of the
//! driver, which has no part in the protocol. The host decodes answers and events of the server and
//! passes their content.
//!
//! A host of the machine, for its one control connection:
//!
//! - [`ClusterAction::Connect`]: connects and calls [`Cluster::handle_connected`] or
//!   [`Cluster::handle_failed`];
//! - [`ClusterAction::Send`]: sends a query, and calls the method that takes its answer;
//! - [`ClusterAction::Close`]: closes the connection, and ignores answers that arrive later;
//! - [`ClusterAction::Publish`]: reads [`Cluster::nodes`].
//!
//! The server's answers and events are not trusted: rows without an address, data centre or rack,
//! repeated rows, rows of the node itself and surplus rows are ignored, and an event of an unknown
//! node costs at most one reading of the tables in [`ClusterOptions::debounce`].
//!
//! Sources: Native Protocol, "EVENT", "REGISTER"; Cassandra's documentation, "Virtual Tables" and
//! "Snitch"; the behaviour of the DataStax Java driver 4, "Control connection" and "Node metadata".

mod event;
#[cfg(feature = "alloc")]
mod machine;
#[cfg(all(test, feature = "alloc"))]
mod tests;

pub use event::{ClusterEvent, ClusterQuery};
#[cfg(feature = "alloc")]
pub use machine::{Cluster, ClusterAction, ClusterOptions, LocalRow, NODES_MAX, Node, NodeRow, ServerEvent, Target};
