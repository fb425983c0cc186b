//! Token-aware routing: which hosts have the replicas of a partition.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hashbrown::HashMap;
use poolhouse_core::cluster::{NODES_MAX, Node};
use poolhouse_cql::{RING_NODES_MAX, Replicas, Replication, Ring, RingError, RingNode, Token};
use std::hash::RandomState;

/// The maximum number of different replications for which replicas are computed.
const REPLICATIONS_MAX: usize = 8;

/// The location of the data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing<'o> {
    keyspace: &'o str,
    token: Token,
}

impl<'o> Routing<'o> {
    /// Creates the location of a partition.
    ///
    /// - `keyspace`: its name, as the system tables contain it: in lower case unless it was created
    ///   in quotation marks.
    /// - `partition_key`: as [`Token::of`] takes it.
    #[must_use]
    pub fn new(keyspace: &'o str, partition_key: &[u8]) -> Self {
        Self { keyspace, token: Token::of(partition_key) }
    }
}

/// The replicas of the keyspaces of a cluster.
#[derive(Default)]
pub(super) struct Routes {
    /// The address of each node.
    nodes: Vec<String>,
    /// Keyspaces with the same replication share their replicas.
    keyspaces: HashMap<String, Arc<Replicas>, RandomState>,
}

const _: () = assert!(NODES_MAX <= RING_NODES_MAX);

impl Routes {
    /// Computes the replicas.
    ///
    /// - `data_center`: that of local hosts; `None` if all are local.
    ///
    /// Cost: linear in the tokens, for each of at most [`REPLICATIONS_MAX`] replications that differ in
    /// the data centre. The keyspaces of others, and those of the server itself, are not routed.
    ///
    /// # Errors
    ///
    /// The ring is too large.
    pub(super) fn new(
        nodes: &BTreeMap<SocketAddr, Node>,
        keyspaces: &[(String, Replication)],
        data_center: Option<&str>,
    ) -> Result<Self, RingError> {
        let tokens: Vec<Vec<Token>> =
            nodes.values().map(|node| node.tokens.iter().copied().map(Token::new).collect()).collect();
        let ring = Ring::new(nodes.values().zip(&tokens).map(|(node, tokens)| RingNode {
            data_center: &node.data_center,
            rack: &node.rack,
            tokens,
        }))?;
        let mut computed: Vec<(Replication, Arc<Replicas>)> = Vec::new();
        let mut found = HashMap::default();
        let is_system = |name: &str| name == "system" || name.starts_with("system_");
        for (name, replication) in keyspaces.iter().filter(|(name, _)| !is_system(name)) {
            let replication = reduced(replication, data_center);
            let replicas = match computed.iter().find(|(known, _)| *known == replication) {
                Some((_, replicas)) => Arc::clone(replicas),
                None if computed.len() == REPLICATIONS_MAX => continue,
                None => {
                    let replicas = Arc::new(ring.replicas(&replication, data_center));
                    computed.push((replication, Arc::clone(&replicas)));
                    replicas
                }
            };
            found.insert(name.clone(), replicas);
        }
        Ok(Self { nodes: nodes.keys().map(ToString::to_string).collect(), keyspaces: found })
    }

    /// The address of each node.
    pub(super) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The number of keyspaces.
    pub(super) fn keyspace_count(&self) -> usize {
        self.keyspaces.len()
    }

    /// The nodes with the replicas of a partition, by index. Empty if the keyspace is unknown.
    pub(super) fn replicas(&self, routing: Routing<'_>) -> &[u16] {
        self.keyspaces.get(routing.keyspace).map_or(&[], |replicas| replicas.of(routing.token))
    }
}

/// The replication without other data centres than this one.
fn reduced(replication: &Replication, data_center: Option<&str>) -> Replication {
    let mut replication = replication.clone();
    if let (Replication::NetworkTopology { factors }, Some(only)) = (&mut replication, data_center) {
        factors.retain(|(name, _)| name == only);
    }
    replication
}
