//! Connections that go from one task to another.

use super::bench::{Bench, Client};
use super::model::{Depth, explore, join, task};
use poolhouse_core::pool::PoolCounts;

#[test]
fn two_tasks_share_the_one_connection() {
    explore("check-out, ping and check-in by two tasks", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let tasks = [task(client.clone().ping()), task(client.clone().ping())];
        for task in tasks {
            join(task).expect("answered");
        }
        assert_eq!(client.counts(), PoolCounts { available: 1, ..PoolCounts::default() });
    });
}
