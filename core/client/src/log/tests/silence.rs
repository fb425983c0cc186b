//! Which messages are received, and the cost if no subscriber is active (LOG-34, LOG-37, LOG-38).

use super::capture::capture_where;
use super::*;
use poolhouse_core::pool::{OnHeap, Pool, PoolConfig, PoolId};
use poolhouse_core::topology::{self, Topology, TopologyOptions};

fn run(options: LogOptions) {
    let now = Instant::ORIGIN;
    let mut logs = logs(options);
    let mut pool = Pool::<OnHeap>::new(now, PoolId::new(1), PoolConfig::DEFAULT, &mut logs);
    pool.close(now, &mut logs);
    let seeds = ["a:1"];
    let config = TopologyOptions { seeds: &seeds, ..TopologyOptions::default() }.validate().expect("valid");
    let mut topology = Topology::<topology::OnHeap>::new(now, TopologyId::new(3), config, &mut logs).expect("room");
    topology.close(now, &mut logs);
}

#[test]
#[doc(alias("LOG-35", "LOG-38", "LOG-39"))]
fn components_are_filtered_by_target_by_any_subscriber() {
    let of = |captured: alloc::vec::Vec<Captured>| {
        let count = |target: &str| captured.iter().filter(|event| event.target == target).count();
        (count(CONNECTION), count(TOPOLOGY))
    };
    assert_eq!(of(capture_where(|_| true, || run(LogOptions::DEFAULT))), (2, 6));
    assert_eq!(of(capture_where(|meta| meta.target() == CONNECTION, || run(LogOptions::DEFAULT))), (2, 0));
    assert_eq!(of(capture_where(|meta| meta.target() == TOPOLOGY, || run(LogOptions::DEFAULT))), (0, 6));
    assert_eq!(of(capture_where(|meta| *meta.level() < Level::DEBUG, || run(LogOptions::DEFAULT))), (0, 0), "LOG-38");
}

#[test]
#[doc(alias = "LOG-34")]
fn minimum_level_of_a_component_applies_to_every_subscriber() {
    let connection = LogOptions { topology: LevelFilter::INFO, ..LogOptions::DEFAULT };
    assert!(capture(|| run(connection)).iter().all(|event| event.target == CONNECTION));
    let topology = LogOptions { connection: LevelFilter::WARN, ..LogOptions::DEFAULT };
    assert!(capture(|| run(topology)).iter().all(|event| event.target == TOPOLOGY));
    assert_eq!(capture(|| run(LogOptions::OFF)), []);
}

#[test]
#[doc(alias = "LOG-37")]
fn without_a_subscriber_no_component_is_active() {
    let logs = Logs::default();
    assert!(capture_where(|_| false, || assert!(!logs.logs_connections() && !logs.logs_topology())).is_empty());
    capture(|| assert!(logs.logs_connections() && logs.logs_topology()));
}
