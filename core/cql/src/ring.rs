//! The token ring: which nodes have the replicas of a partition.
//!
//! Sources: Cassandra's `SimpleStrategy` and `NetworkTopologyStrategy`; its documentation,
//! "Dynamo", "Replication Strategy".

#[cfg(test)]
mod tests;

use super::rows::Pairs;
use super::token::Token;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The maximum number of nodes of a ring.
pub const RING_NODES_MAX: usize = 4096;
/// The maximum number of tokens of a ring: 256 of each of 1,024 nodes, or 64 of each of the most nodes.
pub const RING_TOKENS_MAX: usize = 1024 * 256;
/// The maximum replication factor for which replicas are computed; larger ones are treated as this
/// one.
pub const REPLICAS_MAX: usize = 16;
/// The maximum number of replicas of all tokens, five times those of a cluster with a thousand nodes. The data
/// centres beyond it have no replicas.
const ALL_REPLICAS_MAX: usize = RING_TOKENS_MAX * REPLICAS_MAX;
/// The tokens that one step of a [`RingBuilder`] puts in order.
const STEP_TOKENS: usize = 8 * 1024;
/// The nodes that one step of a [`Placement`] looks at: some hundred microseconds.
const STEP_NODES: usize = 32 * 1024;

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
        // The class, and of the other strategy the factor for data centres that are not named.
        if options.len() > Self::DATA_CENTERS_MAX + 2 {
            return None;
        }
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
    tokens: Arc<[Token]>,
    /// The node of each token.
    owners: Vec<u16>,
    nodes: Vec<Place>,
    /// The number of each data centre.
    data_centers: BTreeMap<String, u16>,
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

/// A ring that is built node after node, so that its host can do other work between them.
#[derive(Clone, Debug, Default)]
pub struct RingBuilder {
    owners: BTreeMap<Token, u16>,
    /// The tokens that were put in order, and their owners.
    ordered: (Vec<Token>, Vec<u16>),
    /// Those that several nodes have are counted for each.
    token_count: usize,
    nodes: Vec<Place>,
    data_centers: BTreeMap<String, u16>,
    racks: BTreeMap<(u16, String), u16>,
}

impl RingBuilder {
    /// Adds a node. Tokens of earlier nodes stay theirs.
    ///
    /// Cost: O(log n) for n nodes, and O(log t) for each of its tokens.
    ///
    /// # Errors
    ///
    /// [`RingError`]: there are too many nodes or tokens; nothing was added.
    ///
    /// # Panics
    ///
    /// After [`RingBuilder::step`]: the tokens that are in order already would not be in order with these.
    pub fn add(&mut self, node: RingNode<'_>) -> Result<(), RingError> {
        assert!(self.ordered.0.is_empty(), "nodes are added before the tokens are put in order");
        let Self { owners, token_count, nodes, data_centers, racks, .. } = self;
        if nodes.len() == RING_NODES_MAX {
            return Err(RingError::TooManyNodes);
        }
        if token_count.saturating_add(node.tokens.len()) > RING_TOKENS_MAX {
            return Err(RingError::TooManyTokens);
        }
        // There are no more of each than nodes.
        let next = |count: usize| u16::try_from(count).map_err(|_| RingError::TooManyNodes);
        let (number, center, rack) = (next(nodes.len())?, next(data_centers.len())?, next(racks.len())?);
        let data_center = match data_centers.get(node.data_center) {
            Some(known) => *known,
            None => *data_centers.entry(String::from(node.data_center)).or_insert(center),
        };
        let rack = *racks.entry((data_center, String::from(node.rack))).or_insert(rack);
        *token_count += node.tokens.len();
        let mut is_in_ring = false;
        for token in node.tokens {
            is_in_ring |= *owners.entry(*token).or_insert(number) == number;
        }
        nodes.push(Place { data_center, rack, is_in_ring });
        Ok(())
    }

    /// Puts some tokens in order, in about a millisecond, after the last node was added. Returns whether tokens are
    /// left.
    pub fn step(&mut self) -> bool {
        for _ in 0..STEP_TOKENS {
            let Some((token, owner)) = self.owners.pop_first() else { return false };
            self.ordered.0.push(token);
            self.ordered.1.push(owner);
        }
        true
    }

    /// Returns the ring, after the tokens that are left were put in order.
    #[must_use]
    pub fn build(mut self) -> Ring {
        while self.step() {}
        let Self { ordered: (tokens, owners), nodes, data_centers, .. } = self;
        Ring { tokens: tokens.into(), owners, nodes, data_centers }
    }
}

impl Ring {
    /// Builds the ring of these nodes. If several nodes have the same token, it is that of the
    /// first.
    ///
    /// Cost: O(t log t) for t tokens. [`RingBuilder`] does the same in parts.
    ///
    /// # Errors
    ///
    /// [`RingError`]: there are too many nodes or tokens.
    pub fn new<'a>(nodes: impl IntoIterator<Item = RingNode<'a>>) -> Result<Self, RingError> {
        let mut builder = RingBuilder::default();
        nodes.into_iter().try_for_each(|node| builder.add(node))?;
        Ok(builder.build())
    }

    /// Computes the replicas of each token.
    ///
    /// - `data_center`: omits the replicas of other data centres. `None`: all replicas; those of
    ///   `NetworkTopologyStrategy` are ordered by the name of their data centre.
    ///
    /// Cost: O(t r²) for t tokens and r replicas of each; memory for t (2 r + 4) bytes. [`Ring::place`]
    /// does the same in parts.
    #[must_use]
    pub fn replicas(&self, replication: &Replication, data_center: Option<&str>) -> Replicas {
        self.place(replication, data_center).finish()
    }

    /// Begins [`Ring::replicas`].
    ///
    /// Cost: O(t + n) for t tokens and n nodes.
    #[must_use]
    pub fn place(&self, replication: &Replication, data_center: Option<&str>) -> Placement<'_> {
        let number = |name: &str| self.data_centers.get(name).copied();
        let mut walk_of = vec![NOWHERE; self.data_centers.len()];
        let (mut factors, mut only) = (Vec::new(), None);
        let has_groups_of_racks = match replication {
            // Without racks, and as if all nodes were in one data centre.
            Replication::Simple { factor } => {
                walk_of.fill(0);
                factors.push(*factor);
                // No data centre has this number.
                only = data_center.map(|name| number(name).unwrap_or(u16::MAX));
                false
            }
            Replication::NetworkTopology { factors: all } => {
                let wanted = all.iter().filter(|(name, _)| data_center.is_none_or(|only| only == name));
                for (name, factor) in wanted {
                    let Some(walk) = number(name).and_then(|at| walk_of.get_mut(usize::from(at))) else { continue };
                    *walk = factors.len();
                    factors.push(*factor);
                }
                true
            }
        };
        let mut placement = Placement {
            ring: self,
            walks: Vec::new(),
            walk_of,
            has_groups_of_racks,
            only,
            replicas: Replicas {
                tokens: Arc::clone(&self.tokens),
                ends: Vec::with_capacity(self.tokens.len()),
                nodes: Vec::new(),
            },
        };
        placement.begin(&factors);
        placement
    }

    /// The number of different tokens.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }
}

/// The number of no walk.
const NOWHERE: usize = usize::MAX;

/// The computation of [`Ring::replicas`] in steps, between which its host can do other work.
///
/// A walk over the ring from a token takes the first node of each rack of a data centre, and the first nodes
/// of repeated racks while there are fewer racks than replicas. Here the ring is traversed once, backwards:
/// the nodes in the order of a walk from a token are its owner, then the others in the order of a walk
/// from the next token. Of these only as many are kept as a walk may take.
#[derive(Clone, Debug)]
pub struct Placement<'r> {
    ring: &'r Ring,
    walks: Vec<Walk>,
    /// The walk of each data centre, or [`NOWHERE`].
    walk_of: Vec<usize>,
    /// Whether nodes are taken of different racks. Otherwise each node is a group of its own.
    has_groups_of_racks: bool,
    /// Replicas in other data centres are omitted.
    only: Option<u16>,
    /// Those of the last tokens, in descending order of the tokens.
    replicas: Replicas,
}

/// The nodes that follow a token in one data centre.
#[derive(Clone, Debug)]
struct Walk {
    width: usize,
    /// How many nodes of groups that have one already are taken.
    repeats_max: usize,
    /// The maximum number of nodes in `near`.
    near_max: usize,
    /// The next nodes of each group, in their order.
    near: Vec<Near>,
    /// Those of them that have the replicas.
    chosen: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Near {
    node: u16,
    group: u16,
    /// The number of nodes of the same group that precede it.
    rank: usize,
}

impl Walk {
    /// Moves the owner of a token to the front.
    fn advance(&mut self, owner: u16, group: u16) {
        if self.near.first().is_some_and(|first| first.node == owner) {
            return;
        }
        let mut same = 0;
        self.near.retain_mut(|one| {
            if one.node != owner && one.group == group {
                same += 1;
                one.rank = same;
            }
            one.node != owner && one.rank <= self.repeats_max
        });
        self.near.insert(0, Near { node: owner, group, rank: 0 });
        self.near.truncate(self.near_max);
        self.choose();
    }

    /// Takes the first node of each group, and the first others, in their order.
    fn choose(&mut self) {
        let mut repeats = self.repeats_max;
        self.chosen.clear();
        for one in &self.near {
            if self.chosen.len() == self.width {
                return;
            }
            if one.rank > 0 {
                let Some(left) = repeats.checked_sub(1) else { continue };
                repeats = left;
            }
            self.chosen.push(one.node);
        }
    }
}

impl Placement<'_> {
    /// The walk and the group of a node; `None` if the node has no replicas.
    fn location(&self, node: u16) -> Option<(usize, u16)> {
        let place = self.ring.nodes.get(usize::from(node)).filter(|place| place.is_in_ring)?;
        let walk = *self.walk_of.get(usize::from(place.data_center))?;
        (walk != NOWHERE).then_some((walk, if self.has_groups_of_racks { place.rack } else { node }))
    }

    /// Prepares the walks: their order at the end of the ring is that of its beginning.
    fn begin(&mut self, factors: &[usize]) {
        // There are no more groups than nodes.
        let mut sizes = vec![0_usize; self.ring.nodes.len()];
        let (mut members, mut groups) = (vec![0_usize; factors.len()], vec![0_usize; factors.len()]);
        for (walk, group) in (0..).zip(&self.ring.nodes).filter_map(|(node, _)| self.location(node)) {
            let Some(size) = sizes.get_mut(usize::from(group)) else { continue };
            members[walk] += 1;
            groups[walk] += usize::from(*size == 0);
            *size += 1;
        }
        let mut all = 0_usize;
        for ((factor, members), groups) in factors.iter().zip(members).zip(groups) {
            let factor = (*factor).min(REPLICAS_MAX);
            let mut width = factor.min(members);
            all = all.saturating_add(width.saturating_mul(self.ring.tokens.len()));
            if all > ALL_REPLICAS_MAX {
                width = 0;
            }
            let repeats_max = factor.saturating_sub(groups);
            // With repeats there are fewer groups than replicas, so this is short, too.
            let near_max = if width == 0 || repeats_max == 0 { width } else { groups.saturating_mul(repeats_max + 1) };
            self.walks.push(Walk { width, repeats_max, near_max, near: Vec::new(), chosen: Vec::new() });
        }
        let mut is_seen = vec![false; self.ring.nodes.len()];
        let mut counts = vec![0_usize; self.ring.nodes.len()];
        for owner in &self.ring.owners {
            let Some((walk, group)) = self.location(*owner) else { continue };
            let (Some(walk), Some(rank), Some(is_seen)) =
                (self.walks.get_mut(walk), counts.get_mut(usize::from(group)), is_seen.get_mut(usize::from(*owner)))
            else {
                continue;
            };
            if !core::mem::replace(is_seen, true) && walk.near.len() < walk.near_max && *rank <= walk.repeats_max {
                walk.near.push(Near { node: *owner, group, rank: *rank });
                *rank += 1;
            }
        }
        self.walks.iter_mut().for_each(Walk::choose);
    }

    /// The number of replicas of all tokens, at most.
    #[must_use]
    pub fn replica_count(&self) -> usize {
        self.walks.iter().map(|walk| walk.width).sum::<usize>() * self.ring.tokens.len()
    }

    /// Computes the replicas of some tokens, in less than a millisecond. Returns whether tokens are left.
    pub fn step(&mut self) -> bool {
        let mut left = STEP_NODES;
        while left > 0 {
            let Some(at) = self.ring.tokens.len().checked_sub(self.replicas.ends.len() + 1) else { return false };
            let owner = self.ring.owners.get(at).copied().unwrap_or_default();
            let mut looked_at = 1;
            if let Some((walk, group)) = self.location(owner) {
                if let Some(walk) = self.walks.get_mut(walk).filter(|walk| walk.width > 0) {
                    walk.advance(owner, group);
                    looked_at += walk.near.len();
                }
            }
            let nodes = &mut self.replicas.nodes;
            for walk in &self.walks {
                match self.only {
                    None => nodes.extend_from_slice(&walk.chosen),
                    Some(only) => {
                        let places = &self.ring.nodes;
                        let is_wanted =
                            |node: &u16| places.get(usize::from(*node)).is_some_and(|place| place.data_center == only);
                        nodes.extend(walk.chosen.iter().copied().filter(is_wanted));
                    }
                }
                looked_at += 1 + walk.width;
            }
            // At most `ALL_REPLICAS_MAX`.
            self.replicas.ends.push(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
            left = left.saturating_sub(looked_at);
        }
        true
    }

    /// Returns the replicas, after those of the tokens that are left were computed.
    #[must_use]
    pub fn finish(mut self) -> Replicas {
        while self.step() {}
        self.replicas.nodes.shrink_to_fit();
        self.replicas
    }
}

/// The replicas of each token: see [`Ring::replicas`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    tokens: Arc<[Token]>,
    /// The end of each token's nodes in `nodes`. The first is that of the last token.
    ends: Vec<u32>,
    nodes: Vec<u16>,
}

impl Replicas {
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
        let Some(at) = self.tokens.len().checked_sub(at + 1) else { return &[] };
        let end = |at: usize| self.ends.get(at).map(|end| usize::try_from(*end).unwrap_or(usize::MAX));
        let start = at.checked_sub(1).and_then(end).unwrap_or(0);
        end(at).and_then(|end| self.nodes.get(start..end)).unwrap_or_default()
    }
}
