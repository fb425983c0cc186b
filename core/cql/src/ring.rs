//! The token ring: which nodes have the replicas of a partition.
//!
//! Sources: Cassandra's `SimpleStrategy` and `NetworkTopologyStrategy`; its documentation,
//! "Dynamo", "Replication Strategy".

#[cfg(test)]
mod tests;

use super::rows::Pairs;
use super::token::Token;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The maximum number of nodes of a ring.
pub const RING_NODES_MAX: usize = 4096;
/// The maximum number of tokens of a ring: 128 of each of the most nodes.
pub const RING_TOKENS_MAX: usize = RING_NODES_MAX * 128;
/// The maximum replication factor for which replicas are computed; larger ones are treated as this
/// one.
pub const REPLICAS_MAX: usize = 16;
/// The maximum number of replicas of all tokens, about a hundred times those of a cluster with a
/// thousand nodes. The data centres beyond it have no replicas.
const ALL_REPLICAS_MAX: usize = RING_TOKENS_MAX * REPLICAS_MAX;

/// How a keyspace is replicated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Replication {
    /// `SimpleStrategy`: on the nodes that follow the token.
    Simple {
        /// Number of replicas.
        factor: usize,
    },
    /// `NetworkTopologyStrategy`: in each of these data centres on nodes that follow the token, in
    /// different racks if there are enough.
    NetworkTopology {
        /// Name of each data centre, and number of its replicas. In ascending order of the names,
        /// each once.
        factors: Vec<(String, usize)>,
    },
}

impl Replication {
    /// The maximum number of data centres that [`Replication::read`] accepts.
    pub const DATA_CENTERS_MAX: usize = 64;

    /// Reads the column `replication` of `system_schema.keyspaces`. `None` if it is malformed, or if
    /// the strategy does not place replicas by token.
    ///
    /// - `options`: `class`, and the options of the strategy.
    #[must_use]
    pub fn read(options: Pairs<'_>) -> Option<Self> {
        let mut class = None;
        let mut factors = Vec::new();
        for (name, value) in options {
            let (name, value) = (core::str::from_utf8(name?).ok()?, core::str::from_utf8(value?).ok()?);
            if name == "class" {
                class = Some(value.rsplit('.').next().unwrap_or(value));
                continue;
            }
            if factors.len() == Self::DATA_CENTERS_MAX {
                return None;
            }
            // `3/1`: one of three replicas is transient.
            let number = value.split('/').next().unwrap_or(value);
            factors.push((name.to_owned(), number.parse::<u32>().ok()?.try_into().ok()?));
        }
        factors.sort_unstable();
        match class? {
            "SimpleStrategy" => {
                let (_, factor) = factors.iter().find(|(name, _)| name == "replication_factor")?;
                Some(Self::Simple { factor: *factor })
            }
            "NetworkTopologyStrategy" => {
                factors.dedup_by(|one, other| one.0 == other.0);
                Some(Self::NetworkTopology { factors })
            }
            _ => None,
        }
    }
}

/// Why a ring cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RingError {
    /// More than [`RING_NODES_MAX`] nodes.
    TooManyNodes,
    /// More than [`RING_TOKENS_MAX`] tokens.
    TooManyTokens,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyNodes => write!(f, "the ring has more than {RING_NODES_MAX} nodes"),
            Self::TooManyTokens => write!(f, "the ring has more than {RING_TOKENS_MAX} tokens"),
        }
    }
}

impl core::error::Error for RingError {}

/// The tokens of all nodes, in order. Nodes are named by their index in the list of which the ring
/// was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Ascending, each token once.
    tokens: Vec<Token>,
    /// The node of each token.
    owners: Vec<u16>,
    nodes: Vec<Place>,
    /// The names of the data centres.
    data_centers: Vec<String>,
}

/// The location of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    data_center: u16,
    /// Number of the rack. Racks of different data centres have different numbers.
    rack: u16,
    /// Whether it has a token that is no earlier node's.
    is_in_ring: bool,
}

/// A node of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingNode<'a> {
    /// Name of its data centre.
    pub data_center: &'a str,
    /// Name of its rack.
    pub rack: &'a str,
    /// Its tokens, in any order.
    pub tokens: &'a [Token],
}

impl Ring {
    /// Builds the ring of these nodes. If several nodes have the same token, it is that of the
    /// first.
    ///
    /// Cost: O(t log t) for t tokens.
    ///
    /// # Errors
    ///
    /// [`RingError`]: there are too many nodes or tokens.
    pub fn new<'a>(nodes: impl IntoIterator<Item = RingNode<'a>>) -> Result<Self, RingError> {
        let mut entries = Vec::new();
        let mut places = Vec::new();
        let mut racks: Vec<(u16, &str)> = Vec::new();
        let mut data_centers: Vec<&str> = Vec::new();
        for node in nodes {
            if places.len() == RING_NODES_MAX {
                return Err(RingError::TooManyNodes);
            }
            if entries.len().saturating_add(node.tokens.len()) > RING_TOKENS_MAX {
                return Err(RingError::TooManyTokens);
            }
            let number = u16::try_from(places.len()).map_err(|_| RingError::TooManyNodes)?;
            entries.extend(node.tokens.iter().map(|token| (*token, number)));
            let data_center = index_of(&mut data_centers, node.data_center)?;
            let rack = index_of(&mut racks, (data_center, node.rack))?;
            places.push(Place { data_center, rack, is_in_ring: false });
        }
        entries.sort_unstable();
        entries.dedup_by_key(|(token, _)| *token);
        for (_, owner) in &entries {
            if let Some(place) = places.get_mut(usize::from(*owner)) {
                place.is_in_ring = true;
            }
        }
        let data_centers = data_centers.into_iter().map(ToOwned::to_owned).collect();
        let (tokens, owners) = entries.into_iter().unzip();
        Ok(Self { tokens, owners, nodes: places, data_centers })
    }

    /// Computes the replicas of each token.
    ///
    /// - `data_center`: omits the replicas of other data centres. `None`: all replicas; those of
    ///   `NetworkTopologyStrategy` are ordered by the name of their data centre.
    ///
    /// Cost: O(t r²) for t tokens and r replicas of each; memory for t (2 r + 12) bytes.
    #[must_use]
    pub fn replicas(&self, replication: &Replication, data_center: Option<&str>) -> Replicas {
        let number = |name: &str| {
            let at = self.data_centers.iter().position(|one| one == name)?;
            u16::try_from(at).ok()
        };
        let (mut walks, mut replicas) = (Vec::new(), 0);
        match replication {
            Replication::Simple { factor } => {
                // Without racks, and as if all nodes were in one data centre.
                let group_of = |node: u16| Some(node);
                walks.push(self.walk(*factor, group_of));
                if let Some(name) = data_center {
                    return Replicas::merge(&self.tokens, &walks, |node| {
                        self.place(node).map(|place| place.data_center) == number(name)
                    });
                }
            }
            Replication::NetworkTopology { factors } => {
                for (name, factor) in factors {
                    if data_center.is_some_and(|only| only != name) {
                        continue;
                    }
                    let Some(number) = number(name) else { continue };
                    let walk = self.walk(*factor, |node| {
                        self.place(node).filter(|place| place.data_center == number).map(|place| place.rack)
                    });
                    replicas += walk.found.len();
                    if replicas > ALL_REPLICAS_MAX {
                        break;
                    }
                    walks.push(walk);
                }
            }
        }
        Replicas::merge(&self.tokens, &walks, |_| true)
    }

    /// The number of different tokens.
    #[must_use]
    pub const fn token_count(&self) -> usize {
        self.tokens.len()
    }

    fn place(&self, node: u16) -> Option<Place> {
        self.nodes.get(usize::from(node)).copied()
    }

    /// Computes the nodes that follow each token, with as few repeated groups as possible.
    ///
    /// A walk over the ring from a token takes the first node of each group, and the first nodes of
    /// repeated groups while there are fewer groups than replicas. Here the ring is traversed once,
    /// backwards: the nodes in the order of a walk from a token are its owner, then the others in
    /// the order of a walk from the next token. Of these only as many are kept as a walk may take.
    ///
    /// - `group_of`: the rack of a node; `None` if the node has no replicas of this walk.
    fn walk(&self, factor: usize, group_of: impl Fn(u16) -> Option<u16>) -> Walk {
        let members = (0..).zip(&self.nodes).filter(|(_, place)| place.is_in_ring);
        let mut groups: Vec<u16> = members.filter_map(|(node, _)| group_of(node)).collect();
        let nodes_count = groups.len();
        groups.sort_unstable();
        groups.dedup();
        let factor = factor.min(REPLICAS_MAX);
        let width = factor.min(nodes_count);
        let repeats_max = factor.saturating_sub(groups.len());
        let mut found = Vec::new();
        if width > 0 {
            found.resize(width * self.owners.len(), 0);
        }
        // With repeats there are fewer groups than replicas, so this is short, too.
        let near_max = if repeats_max == 0 { width } else { usize::MAX };
        let mut near: Vec<(u16, u16)> = Vec::new();
        // The first round finds the order of the nodes at the end of the ring.
        for (at, owner) in self.owners.iter().enumerate().rev().chain(self.owners.iter().enumerate().rev()) {
            if width == 0 {
                break;
            }
            if let Some(group) = group_of(*owner) {
                let mut same = 0;
                near.retain(|(node, other)| {
                    same += usize::from(*other == group && node != owner);
                    node != owner && (*other != group || same <= repeats_max)
                });
                near.insert(0, (*owner, group));
                near.truncate(near_max);
            }
            let place = found.get_mut(at * width..(at + 1) * width).unwrap_or_default();
            choose(&near, repeats_max, place);
        }
        Walk { width, found }
    }
}

/// Takes the first node of each group, and the first `repeats` others, in their order.
fn choose(near: &[(u16, u16)], mut repeats: usize, place: &mut [u16]) {
    let mut nodes = near.iter().enumerate().filter(|(at, (_, group))| {
        let is_repeated = near.iter().take(*at).any(|(_, other)| other == group);
        if is_repeated {
            let is_taken = repeats > 0;
            repeats = repeats.saturating_sub(1);
            is_taken
        } else {
            true
        }
    });
    // In the first round there may be fewer.
    for slot in place {
        let Some((_, (node, _))) = nodes.next() else { return };
        *slot = *node;
    }
}

/// Returns the index of an entry, which is added if it is missing.
fn index_of<T: PartialEq>(entries: &mut Vec<T>, entry: T) -> Result<u16, RingError> {
    let at = entries.iter().position(|one| *one == entry).unwrap_or_else(|| {
        entries.push(entry);
        entries.len() - 1
    });
    u16::try_from(at).map_err(|_| RingError::TooManyNodes)
}

/// The nodes of one walk for each token.
struct Walk {
    width: usize,
    found: Vec<u16>,
}

/// The replicas of each token: see [`Ring::replicas`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    tokens: Vec<Token>,
    /// The end of each token's nodes in `nodes`.
    ends: Vec<u32>,
    nodes: Vec<u16>,
}

impl Replicas {
    fn merge(tokens: &[Token], walks: &[Walk], is_wanted: impl Fn(u16) -> bool) -> Self {
        let width: usize = walks.iter().map(|walk| walk.width).sum();
        let mut nodes = Vec::with_capacity(width * tokens.len());
        let mut ends = Vec::with_capacity(tokens.len());
        for at in 0..tokens.len() {
            for walk in walks {
                let found = walk.found.get(at * walk.width..(at + 1) * walk.width).unwrap_or_default();
                nodes.extend(found.iter().copied().filter(|node| is_wanted(*node)));
            }
            // At most `ALL_REPLICAS_MAX`.
            ends.push(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        }
        nodes.shrink_to_fit();
        Self { tokens: tokens.to_vec(), ends, nodes }
    }

    /// Returns the nodes with the replicas of a token, by their index. The first is the owner, unless
    /// it was omitted. Empty if no node has a token.
    ///
    /// Cost: O(log t) for t tokens; no allocation.
    #[must_use]
    pub fn of(&self, token: Token) -> &[u16] {
        // A node has the range that ends with its token; the range after the last token is that of
        // the first.
        let at = self.tokens.partition_point(|one| *one < token);
        let at = if at == self.tokens.len() { 0 } else { at };
        let end = |at: usize| self.ends.get(at).map(|end| usize::try_from(*end).unwrap_or(usize::MAX));
        let start = at.checked_sub(1).and_then(end).unwrap_or(0);
        end(at).and_then(|end| self.nodes.get(start..end)).unwrap_or_default()
    }
}
