//! Naive server selection over plain lists, in the steps of the specification. The core's selection
//! is compared with it.
//!
//! Read first: Server Selection, "Server Selection Algorithm", "Read operations", "tag_sets",
//! "maxStalenessSeconds"; Max Staleness, "Smallest allowed value for maxStalenessSeconds".

use alloc::collections::BTreeMap;
use core::time::Duration;

use poolhouse_core::selection::{Candidate, Candidates, ReadMode};
use poolhouse_core::topology::{TopologyType, WireMismatch};
use poolhouse_core::{Instant, ServerType};

/// Tag names and values.
pub type Tags = BTreeMap<String, String>;

/// A server description.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// Its address.
    pub address: String,
    /// Its type.
    pub server_type: ServerType,
    /// Its average round-trip time, in nanoseconds.
    pub rtt_nanos: Option<u64>,
    /// Its tags.
    pub tags: Tags,
    /// Time of its last update, in nanoseconds.
    pub update_nanos: u64,
    /// Time of its last write, in milliseconds.
    pub write_ms: Option<i64>,
}

/// A topology description.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its type.
    pub topology_type: TopologyType,
    /// Its servers.
    pub servers: Vec<Server>,
}

/// The criteria of an operation.
#[derive(Clone, Debug)]
pub struct Query {
    /// Whether it writes.
    pub write: bool,
    /// The mode of the read preference.
    pub mode: ReadMode,
    /// Tag sets, best first.
    pub tag_sets: Vec<Tags>,
    /// maxStalenessSeconds.
    pub max_staleness_seconds: Option<u64>,
    /// heartbeatFrequencyMS.
    pub heartbeat_ms: u64,
    /// localThresholdMS.
    pub threshold_ms: u64,
    /// Indices of the deprioritized servers.
    pub deprioritized: Vec<usize>,
}

/// The criteria are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

/// The indices of the suitable servers, and of those in the latency window.
///
/// # Errors
/// [`Invalid`], in the cases that the specifications require.
pub fn selected(deployment: &Deployment, query: &Query) -> Result<(Vec<usize>, Vec<usize>), Invalid> {
    if !query.write {
        check(deployment, query)?;
    }
    let all: Vec<usize> = (0..deployment.servers.len()).collect();
    let preferred: Vec<usize> = all.iter().copied().filter(|place| !query.deprioritized.contains(place)).collect();
    let mut suitable = find(deployment, query, &preferred);
    if suitable.is_empty() {
        suitable = find(deployment, query, &all);
    }
    let times = suitable.iter().filter_map(|&place| deployment.servers[place].rtt_nanos);
    let Some(shortest) = times.min() else { return Ok((suitable.clone(), suitable)) };
    let longest = shortest + query.threshold_ms * 1_000_000;
    let near =
        |place: &usize| deployment.servers[*place].rtt_nanos.is_some_and(|time| (shortest..=longest).contains(&time));
    let window = suitable.iter().copied().filter(near).collect();
    Ok((suitable, window))
}

fn is_replica_set(deployment: &Deployment) -> bool {
    [TopologyType::ReplicaSetNoPrimary, TopologyType::ReplicaSetWithPrimary].contains(&deployment.topology_type)
}

fn check(deployment: &Deployment, query: &Query) -> Result<(), Invalid> {
    let seconds = query.max_staleness_seconds;
    let is_limited = seconds.is_some_and(|seconds| seconds > 0) || query.tag_sets.iter().any(|tags| !tags.is_empty());
    if query.mode == ReadMode::Primary && is_limited {
        return Err(Invalid);
    }
    let too_small = |seconds: u64| seconds < 90 || seconds * 1_000 < query.heartbeat_ms + 10_000;
    if is_replica_set(deployment) && seconds.is_some_and(too_small) { Err(Invalid) } else { Ok(()) }
}

/// The suitable servers among `places`.
fn find(deployment: &Deployment, query: &Query, places: &[usize]) -> Vec<usize> {
    let of = |wanted: &[ServerType]| -> Vec<usize> {
        places.iter().copied().filter(|&place| wanted.contains(&deployment.servers[place].server_type)).collect()
    };
    let primary = || of(&[ServerType::RsPrimary]);
    let secondaries = || tagged(deployment, query, &fresh(deployment, query, &of(&[ServerType::RsSecondary])));
    match deployment.topology_type {
        TopologyType::Unknown => Vec::new(),
        TopologyType::LoadBalanced => places.to_vec(),
        TopologyType::Single => {
            let away = of(&[ServerType::Unknown, ServerType::PossiblePrimary]);
            places.iter().copied().filter(|place| !away.contains(place)).collect()
        }
        TopologyType::Sharded => of(&[ServerType::Mongos]),
        TopologyType::ReplicaSetNoPrimary if query.write => Vec::new(),
        TopologyType::ReplicaSetWithPrimary if query.write => primary(),
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => match query.mode {
            ReadMode::Primary => primary(),
            ReadMode::Secondary => secondaries(),
            ReadMode::PrimaryPreferred if primary().is_empty() => secondaries(),
            ReadMode::PrimaryPreferred => primary(),
            ReadMode::SecondaryPreferred if secondaries().is_empty() => primary(),
            ReadMode::SecondaryPreferred => secondaries(),
            ReadMode::Nearest => {
                let members = of(&[ServerType::RsPrimary, ServerType::RsSecondary]);
                tagged(deployment, query, &fresh(deployment, query, &members))
            }
        },
    }
}

/// Removes the secondaries that are too stale.
fn fresh(deployment: &Deployment, query: &Query, places: &[usize]) -> Vec<usize> {
    let Some(seconds) = query.max_staleness_seconds.filter(|seconds| *seconds > 0) else { return places.to_vec() };
    let nanos = |ms: i64| i128::from(ms) * 1_000_000;
    let primary = deployment.servers.iter().find(|server| server.server_type == ServerType::RsPrimary);
    let primary = primary.and_then(|server| Some((i128::from(server.update_nanos), nanos(server.write_ms?))));
    let secondaries = deployment.servers.iter().filter(|server| server.server_type == ServerType::RsSecondary);
    let freshest = secondaries.filter_map(|server| server.write_ms).max();
    let staleness = |server: &Server| -> Option<i128> {
        if server.server_type == ServerType::RsPrimary {
            return Some(0);
        }
        let write = nanos(server.write_ms?);
        let behind = match primary {
            Some((primary_update, primary_write)) => {
                (i128::from(server.update_nanos) - write) - (primary_update - primary_write)
            }
            None => nanos(freshest?) - write,
        };
        Some(behind + i128::from(query.heartbeat_ms) * 1_000_000)
    };
    let limit = i128::from(seconds) * 1_000_000_000;
    let is_fresh = |place: &usize| staleness(&deployment.servers[*place]).is_some_and(|staleness| staleness <= limit);
    places.iter().copied().filter(is_fresh).collect()
}

/// Keeps the servers that match the first tag set that any server matches.
fn tagged(deployment: &Deployment, query: &Query, places: &[usize]) -> Vec<usize> {
    if query.tag_sets.is_empty() {
        return places.to_vec();
    }
    let having = |tags: &Tags| -> Vec<usize> {
        let has =
            |place: &usize| tags.iter().all(|(name, value)| deployment.servers[*place].tags.get(name) == Some(value));
        places.iter().copied().filter(has).collect()
    };
    query.tag_sets.iter().map(having).find(|found| !found.is_empty()).unwrap_or_default()
}

/// A server of a [`Deployment`], as input of the core.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    place: usize,
    server: &'a Server,
}

impl Seen<'_> {
    /// Its index in the deployment.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }
}

impl Candidate for Seen<'_> {
    type Id = usize;

    fn id(&self) -> usize {
        self.place
    }

    fn server_type(&self) -> ServerType {
        self.server.server_type
    }

    fn round_trip_time(&self) -> Option<Duration> {
        self.server.rtt_nanos.map(Duration::from_nanos)
    }

    fn last_write_date_ms(&self) -> Option<i64> {
        self.server.write_ms
    }

    fn last_update_time(&self) -> Instant {
        Instant::from_nanos(self.server.update_nanos)
    }

    fn has_tag(&self, name: &str, value: &str) -> bool {
        self.server.tags.get(name).is_some_and(|found| found == value)
    }
}

impl<'a> Candidates for &'a Deployment {
    type Server = Seen<'a>;

    fn topology_type(&self) -> TopologyType {
        self.topology_type
    }

    fn wire_mismatch(&self) -> Option<WireMismatch> {
        None
    }

    fn candidates(&self) -> impl Iterator<Item = Seen<'a>> + Clone {
        let deployment: &'a Deployment = self;
        deployment.servers.iter().enumerate().map(|(place, server)| Seen { place, server })
    }
}

/// Calls `with` with the criteria of a query, in the types of the core.
pub fn with_core<R>(
    query: &Query,
    with: impl FnOnce(Result<poolhouse_core::selection::SelectionCriteria<'_>, poolhouse_core::ConfigError>) -> R,
) -> R {
    use poolhouse_core::selection::{ReadPreferenceOptions, SelectionCriteria};
    let sets: Vec<Vec<(&str, &str)>> = query
        .tag_sets
        .iter()
        .map(|tags| tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
        .collect();
    let sets: Vec<&[(&str, &str)]> = sets.iter().map(Vec::as_slice).collect();
    let criteria = if query.write {
        Ok(SelectionCriteria::write())
    } else {
        let max_staleness_seconds = query.max_staleness_seconds;
        let options = ReadPreferenceOptions { mode: query.mode, tag_sets: &sets, max_staleness_seconds };
        options.validate().map(SelectionCriteria::read)
    };
    with(criteria.map(|criteria| {
        criteria
            .with_heartbeat_frequency(Duration::from_millis(query.heartbeat_ms))
            .with_local_threshold(Duration::from_millis(query.threshold_ms))
    }))
}
