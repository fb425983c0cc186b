//! Token-aware routing: which hosts have the replicas of a partition.

use super::control::pause;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use hashbrown::HashMap;
use poolhouse_core::cluster::{NODES_MAX, Node};
use poolhouse_cql::{RING_NODES_MAX, RING_TOKENS_MAX, Replicas, Replication, RingBuilder, RingError, RingNode, Token};
use poolhouse_driver::yield_now;
use std::hash::RandomState;

/// The maximum number of different replications for which replicas are computed.
pub(super) const REPLICATIONS_MAX: usize = 8;

/// The maximum number of replicas of all tokens and replications: 16 MiB, and ten times those of a cluster of 1,000
/// nodes with 256 tokens each, for one replication of three replicas in its data centre.
const REPLICAS_ALL_MAX: usize = 32 * RING_TOKENS_MAX;

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

    pub(super) fn to_owned(self) -> (String, Token) {
        (self.keyspace.into(), self.token)
    }

    pub(super) fn of((keyspace, token): &'o (String, Token)) -> Self {
        Self { keyspace, token: *token }
    }
}

/// The keyspaces of a cluster, with those replications that are routed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keyspaces {
    replications: Vec<Replication>,
    /// The name of each keyspace, and the place of its replication.
    all: Vec<(String, usize)>,
}

impl Keyspaces {
    /// Adds a keyspace. Those of the server itself, and of surplus replications, are not routed.
    ///
    /// - `data_center`: that of local hosts; `None` if all are local.
    pub(super) fn add(&mut self, name: String, mut replication: Replication, data_center: Option<&str>) {
        if name == "system" || name.starts_with("system_") {
            return;
        }
        if let (Replication::NetworkTopology { factors }, Some(only)) = (&mut replication, data_center) {
            factors.retain(|(name, _)| name == only);
        }
        let known = self.replications.iter().position(|known| *known == replication);
        let Some(place) = known.or_else(|| {
            (self.replications.len() < REPLICATIONS_MAX).then(|| {
                self.replications.push(replication);
                self.replications.len() - 1
            })
        }) else {
            return;
        };
        self.all.push((name, place));
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.all.iter().map(|(name, _)| name.as_str())
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

/// The number of nodes that are added to the ring before other tasks run. Each may have the most tokens.
const NODES_TURN: usize = 8;

impl Routes {
    /// Computes the replicas, in parts of less than some milliseconds, between which other tasks run.
    ///
    /// - `data_center`: that of local hosts; `None` if all are local.
    ///
    /// Cost: linear in the tokens, for each of at most [`REPLICATIONS_MAX`] replications that differ in
    /// the data centre, up to [`REPLICAS_ALL_MAX`] replicas. The keyspaces of others are not routed.
    ///
    /// # Errors
    ///
    /// The ring is too large.
    pub(super) async fn new(
        nodes: &BTreeMap<SocketAddr, Arc<Node>>,
        keyspaces: &Keyspaces,
        data_center: Option<&str>,
    ) -> Result<Self, RingError> {
        let mut builder = RingBuilder::default();
        let mut tokens = Vec::new();
        for (number, node) in nodes.values().enumerate() {
            tokens.clear();
            tokens.extend(node.tokens.iter().copied().map(Token::new));
            builder.add(RingNode { data_center: &node.data_center, rack: &node.rack, tokens: &tokens })?;
            pause(number, NODES_TURN).await;
        }
        while builder.step() {
            yield_now().await;
        }
        let ring = builder.build();
        let mut left = REPLICAS_ALL_MAX;
        let mut computed = Vec::new();
        for replication in &keyspaces.replications {
            yield_now().await;
            let mut placement = ring.place(replication, data_center);
            let Some(rest) = left.checked_sub(placement.replica_count()) else {
                computed.push(None);
                continue;
            };
            left = rest;
            while placement.step() {
                yield_now().await;
            }
            computed.push(Some(Arc::new(placement.finish())));
        }
        yield_now().await;
        let known =
            keyspaces.all.iter().filter_map(|(name, place)| Some((name.clone(), computed.get(*place)?.clone()?)));
        let keyspaces = known.collect();
        Ok(Self { nodes: nodes.keys().map(ToString::to_string).collect(), keyspaces })
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
