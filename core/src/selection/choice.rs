//! Suitable servers, the latency window, and the choice of one server.
//!
//! Read first: Server Selection, "Server Selection Algorithm", "Read operations", "Write
//! operations", "tag_sets", "maxStalenessSeconds", "Filtering suitable servers based on the latency
//! window".

use super::candidate::{Candidate, Candidates};
use super::criteria::{Operation, ReadMode, SelectionCriteria, TagSet};
use super::error::{SelectionError, SelectionFailure};
use crate::topology::TopologyType;
use crate::{ConfigError, Instant, ServerType};
use core::time::Duration;

/// The condition that the suitable servers satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule<'c> {
    /// Every server, Unknown ones included.
    Any,
    /// Every server that answered.
    Available,
    Mongos,
    Primary,
    /// Secondaries with these tags that are not too stale.
    Secondary(TagSet<'c>),
    /// Such secondaries, and the primary if it has these tags.
    Member(TagSet<'c>),
}

/// The reference for the staleness of a secondary, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    /// The primary's last update time minus its last write.
    Primary { lag: i128 },
    /// The last write of the freshest secondary.
    Secondary { write: i128 },
}

/// The staleness limit and its reference. Without a reference (`None`), no secondary is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    freshness: Option<Freshness>,
    /// maxStalenessSeconds minus heartbeatFrequencyMS, in nanoseconds.
    allowed: i128,
}

/// The servers that suit an operation. It borrows the topology, and each call evaluates it anew.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'c, T: Candidates> {
    topology: T,
    /// `None` when no server is suitable.
    rule: Option<Rule<'c>>,
    limit: Option<Limit>,
    /// The deprioritized servers. Empty if no server would suit without them.
    left_out: &'c [<T::Server as Candidate>::Id],
    /// The longest round-trip time of the latency window; `None` when no suitable server has a
    /// time.
    longest: Option<Duration>,
}

impl<'c, T: Candidates> Selection<'c, T> {
    /// Finds the suitable servers.
    ///
    /// - `deprioritized`: servers that are used only if no other suits, such as those on which the
    ///   operation has already failed.
    ///
    /// Cost: O(servers x (tag sets + deprioritized)), no allocation.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: maxStalenessSeconds is too small for this topology.
    ///
    /// Source: Server Selection, "Server Selection Algorithm".
    pub fn new(
        topology: T,
        criteria: &SelectionCriteria<'c>,
        deprioritized: &'c [<T::Server as Candidate>::Id],
    ) -> Result<Self, ConfigError> {
        criteria.check(topology.topology_type())?;
        let limit = Limit::of(topology, criteria);
        let mut selection = Self { topology, rule: None, limit, left_out: deprioritized, longest: None };
        if !selection.find_rule(criteria) && !deprioritized.is_empty() {
            selection.left_out = &[];
            selection.find_rule(criteria);
        }
        let shortest = selection.suitable().filter_map(|server| server.round_trip_time()).min();
        selection.longest = shortest.map(|shortest| shortest.saturating_add(criteria.local_threshold()));
        Ok(selection)
    }

    /// Whether no server is suitable.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rule.is_none()
    }

    /// The suitable servers, in the topology's order.
    pub fn suitable(&self) -> impl Iterator<Item = T::Server> + Clone {
        self.topology.candidates().filter(|server| self.rule.is_some_and(|rule| self.suits(rule, server)))
    }

    /// The suitable servers whose round-trip time is at most localThresholdMS longer than the
    /// shortest, in the topology's order.
    pub fn in_window(&self) -> impl Iterator<Item = T::Server> + Clone {
        self.suitable().filter(|server| match (self.longest, server.round_trip_time()) {
            (Some(longest), Some(time)) => time <= longest,
            (Some(_), None) => false,
            (None, _) => true,
        })
    }

    /// Whether this server is suitable.
    #[must_use]
    pub fn is_suitable(&self, server: <T::Server as Candidate>::Id) -> bool {
        self.suitable().any(|candidate| candidate.id() == server)
    }

    /// Draws two different servers of the window at random, and returns the one with fewer
    /// operations in progress; on a tie the first one drawn.
    ///
    /// - `operation_count`: the number of operations in progress on a server. A client with one
    ///   operation at a time returns 0.
    /// - `entropy`: 32 uniformly distributed random bits.
    ///
    /// Cost: O(servers), and at most two calls of `operation_count`.
    ///
    /// Source: Server Selection, "operationCount-based selection within the latency window".
    pub fn choose(
        &self,
        mut operation_count: impl FnMut(<T::Server as Candidate>::Id) -> u32,
        entropy: u32,
    ) -> Option<T::Server> {
        let Some((first, second)) = draw_two(self.in_window().count(), entropy) else {
            return self.in_window().next();
        };
        let one = self.in_window().nth(first)?;
        let other = self.in_window().nth(second)?;
        if operation_count(other.id()) < operation_count(one.id()) { Some(other) } else { Some(one) }
    }

    /// Stores the first rule that selects a server, and returns whether one does.
    fn find_rule(&mut self, criteria: &SelectionCriteria<'c>) -> bool {
        self.rule = self.first_rule(criteria);
        self.rule.is_some()
    }

    fn first_rule(&self, criteria: &SelectionCriteria<'c>) -> Option<Rule<'c>> {
        let found = |rule: Rule<'c>| {
            let suits = self.topology.candidates().any(|server| self.suits(rule, &server));
            suits.then_some(rule)
        };
        let options = criteria.read_preference().options();
        // An empty list is equivalent to one empty set.
        let sets: &[TagSet<'c>] = if options.tag_sets.is_empty() { &[&[]] } else { options.tag_sets };
        let tagged = |rule: fn(TagSet<'c>) -> Rule<'c>| sets.iter().find_map(|tags| found(rule(tags)));
        match (self.topology.topology_type(), criteria.operation()) {
            (TopologyType::Unknown, _) | (TopologyType::ReplicaSetNoPrimary, Operation::Write) => None,
            (TopologyType::LoadBalanced, _) => found(Rule::Any),
            (TopologyType::Single, _) => found(Rule::Available),
            (TopologyType::Sharded, _) => found(Rule::Mongos),
            (TopologyType::ReplicaSetWithPrimary, Operation::Write) => found(Rule::Primary),
            (TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary, Operation::Read) => {
                match options.mode {
                    ReadMode::Primary => found(Rule::Primary),
                    ReadMode::PrimaryPreferred => found(Rule::Primary).or_else(|| tagged(Rule::Secondary)),
                    ReadMode::Secondary => tagged(Rule::Secondary),
                    ReadMode::SecondaryPreferred => tagged(Rule::Secondary).or_else(|| found(Rule::Primary)),
                    ReadMode::Nearest => tagged(Rule::Member),
                }
            }
        }
    }

    fn suits(&self, rule: Rule<'c>, server: &T::Server) -> bool {
        let server_type = server.server_type();
        let is_primary = server_type == ServerType::RsPrimary;
        let is_fresh_secondary =
            || server_type == ServerType::RsSecondary && self.limit.is_none_or(|limit| limit.allows(server));
        let has_tags = |tags: TagSet<'c>| tags.iter().all(|(name, value)| server.has_tag(name, value));
        let suits = match rule {
            Rule::Any => true,
            Rule::Available => server_type.is_known(),
            Rule::Mongos => server_type == ServerType::Mongos,
            Rule::Primary => is_primary,
            Rule::Secondary(tags) => is_fresh_secondary() && has_tags(tags),
            Rule::Member(tags) => (is_primary || is_fresh_secondary()) && has_tags(tags),
        };
        suits && !self.left_out.contains(&server.id())
    }
}

impl Limit {
    /// The staleness limit of a read, if it has one.
    fn of<T: Candidates>(topology: T, criteria: &SelectionCriteria<'_>) -> Option<Self> {
        let seconds = criteria.read_preference().options().max_staleness_seconds.filter(|seconds| *seconds > 0)?;
        let heartbeat = nanos_of(criteria.heartbeat_frequency());
        let allowed = i128::from(seconds) * 1_000_000_000 - heartbeat;
        let lag_of = |server: T::Server| Some(nanos_at(server.last_update_time()) - write_nanos(&server)?);
        let primary = topology
            .candidates()
            .find(|server| server.server_type() == ServerType::RsPrimary)
            .and_then(lag_of)
            .map(|lag| Freshness::Primary { lag });
        let secondary = || {
            let secondaries = topology.candidates().filter(|server| server.server_type() == ServerType::RsSecondary);
            let write = secondaries.filter_map(|server| write_nanos(&server)).max();
            write.map(|write| Freshness::Secondary { write })
        };
        Some(Self { freshness: primary.or_else(secondary), allowed })
    }

    fn allows(&self, server: &impl Candidate) -> bool {
        let Some(write) = write_nanos(server) else { return false };
        let behind = match self.freshness {
            None => return false,
            Some(Freshness::Primary { lag }) => nanos_at(server.last_update_time()) - write - lag,
            Some(Freshness::Secondary { write: freshest }) => freshest - write,
        };
        behind <= self.allowed
    }
}

/// The product fits into an `i128`: 64-bit milliseconds in nanoseconds need far fewer bits.
fn write_nanos(server: &impl Candidate) -> Option<i128> {
    server.last_write_date_ms().map(|date_ms| i128::from(date_ms) * 1_000_000)
}

fn nanos_at(at: Instant) -> i128 {
    i128::from(at.as_nanos())
}

fn nanos_of(duration: Duration) -> i128 {
    i128::from(duration.as_secs()) * 1_000_000_000 + i128::from(duration.subsec_nanos())
}

/// Draws two different numbers below `count` at random; `None` if there are no two. For hosts that
/// keep the servers of a latency window: [`Selection::choose`] without a search.
///
/// - `entropy`: 32 uniformly distributed random bits.
///
/// Source: Server Selection, "operationCount-based selection within the latency window".
#[must_use]
pub fn draw_two(count: usize, entropy: u32) -> Option<(usize, usize)> {
    if count < 2 {
        return None;
    }
    let (first, rest) = draw(entropy, count);
    let (second, _) = draw(rest, count - 1);
    Some((first, if second < first { second } else { second + 1 }))
}

/// Returns a number below `count` from uniform bits, and bits for the next draw.
fn draw(entropy: u32, count: usize) -> (usize, u32) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let product = u64::from(entropy) * u64::from(count);
    let [.., a, b, c, d] = product.to_be_bytes();
    (usize::try_from(product >> 32).unwrap_or(0), u32::from_be_bytes([a, b, c, d]))
}

/// Selects a server, or returns `None` if none suits now.
///
/// - `deprioritized`, `operation_count`, `entropy`: see [`Selection::new`] and
///   [`Selection::choose`].
///
/// `Ok(None)`: no server suits now, but one may suit later; see [`Selector`](super::Selector).
///
/// Cost: O(servers x (tag sets + deprioritized)), no allocation.
///
/// # Errors
///
/// [`SelectionError`]: waiting cannot help, because the topology's wire versions are not supported,
/// or maxStalenessSeconds is too small for the topology.
///
/// Source: Server Selection, "Server Selection Algorithm".
pub fn select<T: Candidates>(
    topology: T,
    criteria: &SelectionCriteria<'_>,
    deprioritized: &[<T::Server as Candidate>::Id],
    operation_count: impl FnMut(<T::Server as Candidate>::Id) -> u32,
    entropy: u32,
) -> Result<Option<<T::Server as Candidate>::Id>, SelectionError> {
    check_compatible(topology)?;
    let selection = Selection::new(topology, criteria, deprioritized)
        .map_err(|error| SelectionError::new(SelectionFailure::Criteria(error), topology))?;
    Ok(selection.choose(operation_count, entropy).map(|server| server.id()))
}

/// [`select`] in a topology of type Single, without the code for other types: every request suits its server,
/// if that is known.
///
/// # Errors
///
/// [`SelectionError`]: waiting cannot help, because the server's wire versions are not supported.
///
/// Source: Server Selection, "Topology type: Single".
pub fn select_direct<T: Candidates>(topology: T) -> Result<Option<<T::Server as Candidate>::Id>, SelectionError> {
    check_compatible(topology)?;
    Ok(topology.candidates().find(|server| server.server_type().is_known()).map(|server| server.id()))
}

fn check_compatible<T: Candidates>(topology: T) -> Result<(), SelectionError> {
    topology
        .wire_mismatch()
        .map_or(Ok(()), |mismatch| Err(SelectionError::new(SelectionFailure::Incompatible(mismatch), topology)))
}

/// Whether a server that suits a read is available.
///
/// Source: SDAM Logging and Monitoring, "hasReadableServer".
#[must_use]
pub fn has_readable_server<T: Candidates>(topology: T, criteria: &SelectionCriteria<'_>) -> bool {
    Selection::new(topology, criteria, &[]).is_ok_and(|selection| !selection.is_empty())
}

/// Whether a server that suits a write is available.
///
/// Source: SDAM Logging and Monitoring, "hasWritableServer".
#[must_use]
pub fn has_writable_server<T: Candidates>(topology: T) -> bool {
    has_readable_server(topology, &SelectionCriteria::write())
}
