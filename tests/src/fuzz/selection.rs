//! Selection among random servers, compared with its naive model.

use poolhouse_core::ServerType;
use poolhouse_core::selection::{Candidate, ReadMode, Selection, has_readable_server, select};
use poolhouse_core::topology::TopologyType;

use crate::choices::{Bytes, Choices};
use crate::model::selection::{Deployment, Query, Server, Tags, selected, with_core};

/// Results of random selections. They prove that all cases occur.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// The criteria were invalid.
    pub invalid: u32,
    /// No server was suitable.
    pub none: u32,
    /// One server was in the window.
    pub one: u32,
    /// Several servers were in the window.
    pub several: u32,
    /// Suitable servers were outside the window.
    pub narrowed: u32,
    /// A deprioritized server had to be used.
    pub fell_back: u32,
}

fn tags(choices: &mut Bytes<'_>) -> Tags {
    let mut tags = Tags::new();
    for name in ["dc", "rack"] {
        match choices.below(3) {
            0 => {}
            value => drop(tags.insert(name.to_owned(), value.to_string())),
        }
    }
    tags
}

const TYPES: [TopologyType; 8] = [
    TopologyType::ReplicaSetWithPrimary,
    TopologyType::ReplicaSetNoPrimary,
    TopologyType::ReplicaSetWithPrimary,
    TopologyType::ReplicaSetNoPrimary,
    TopologyType::Sharded,
    TopologyType::Single,
    TopologyType::Unknown,
    TopologyType::LoadBalanced,
];
const SERVERS: [ServerType; 14] = [
    ServerType::RsSecondary,
    ServerType::RsSecondary,
    ServerType::RsSecondary,
    ServerType::RsSecondary,
    ServerType::RsPrimary,
    ServerType::Mongos,
    ServerType::Mongos,
    ServerType::Unknown,
    ServerType::PossiblePrimary,
    ServerType::Standalone,
    ServerType::RsArbiter,
    ServerType::RsOther,
    ServerType::RsGhost,
    ServerType::LoadBalancer,
];

/// Runs one selection from `bytes`, with the core and with the model.
pub fn selection(bytes: &[u8]) -> Counts {
    let mut choices = Bytes::new(bytes);
    let deployment = deployment(&mut choices);
    let query = query(&mut choices, deployment.servers.len());
    let expected = selected(&deployment, &query);
    let entropy = choices.below(u32::MAX);
    let mut counts = Counts::default();
    with_core(&query, |criteria| {
        let selection = criteria.and_then(|criteria| Selection::new(&deployment, &criteria, &query.deprioritized));
        let (Ok(selection), Ok((suitable, window))) = (&selection, &expected) else {
            assert_eq!(selection.is_err(), expected.is_err(), "{deployment:?} {query:?}: {selection:?}");
            counts.invalid += 1;
            return;
        };
        let places = |server: crate::model::selection::Seen<'_>| server.id();
        assert_eq!(
            &selection.suitable().map(places).collect::<Vec<_>>(),
            suitable,
            "suitable: {deployment:?} {query:?}"
        );
        assert_eq!(&selection.in_window().map(places).collect::<Vec<_>>(), window, "window: {deployment:?} {query:?}");
        assert_eq!(selection.is_empty(), suitable.is_empty());
        let loads = |place: usize| u32::try_from(place % 3).unwrap_or(0);
        let chosen = selection.choose(loads, entropy).map(places);
        assert_eq!(chosen.is_none(), window.is_empty());
        if let Some(chosen) = chosen {
            assert!(window.contains(&chosen));
            let most = window.iter().map(|&place| loads(place)).max().unwrap_or(0);
            let busiest = window.iter().filter(|&&place| loads(place) == most).count();
            assert!(
                busiest > 1 || window.len() == 1 || loads(chosen) < most,
                "the busiest of several servers was chosen"
            );
        }
        let criteria = criteria.expect("valid");
        let again = select(&deployment, &criteria, &query.deprioritized, loads, entropy).expect("valid");
        assert_eq!(again, chosen);
        assert_eq!(has_readable_server(&deployment, &criteria), !suitable.is_empty());
        match window.len() {
            0 => counts.none += 1,
            1 => counts.one += 1,
            _ => counts.several += 1,
        }
        counts.narrowed += u32::from(window.len() < suitable.len());
        counts.fell_back += u32::from(suitable.iter().any(|place| query.deprioritized.contains(place)));
    });
    counts
}

fn deployment(choices: &mut Bytes<'_>) -> Deployment {
    let topology_type = choices.one_of(&TYPES);
    let count = choices.below(7);
    let servers = (0..count).map(|place| Server {
        address: format!("{place}:27017"),
        server_type: choices.one_of(&SERVERS),
        rtt_nanos: choices
            .one_of(&[None, Some(5), Some(5), Some(12), Some(20), Some(21), Some(60)])
            .map(|ms| ms * 1_000_000),
        tags: tags(choices),
        update_nanos: u64::from(choices.below(120)) * 1_000_000_000,
        write_ms: choices.one_of(&[
            None,
            Some(0),
            Some(1_000),
            Some(50_000),
            Some(100_000),
            Some(100_001),
            Some(180_000),
            Some(i64::MIN),
            Some(i64::MAX),
        ]),
    });
    Deployment { topology_type, servers: servers.collect() }
}

fn query(choices: &mut Bytes<'_>, servers: usize) -> Query {
    let write = choices.below(5) == 0;
    let mode = choices.one_of(&ReadMode::ALL);
    let sets = choices.below(4);
    let tag_sets = (0..sets).map(|_| tags(choices)).collect();
    let max_staleness_seconds = choices.one_of(&[
        None,
        None,
        Some(0),
        Some(89),
        Some(90),
        Some(100),
        Some(120),
        Some(180),
        Some(u64::from(u32::MAX)),
    ]);
    let heartbeat_ms = choices.one_of(&[10_000, 500, 80_000, 80_001, 90_000]);
    let threshold_ms = choices.one_of(&[15, 0, 16, 1_000]);
    let deprioritized = (0..servers).filter(|_| choices.below(4) == 0).collect();
    Query { write, mode, tag_sets, max_staleness_seconds, heartbeat_ms, threshold_ms, deprioritized }
}
