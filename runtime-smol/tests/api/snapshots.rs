//! Public snapshots of a client.

use super::support::{client, options, run, server};
use bson::doc;
use core::time::Duration;
use poolhouse_smol::ClientOptions;
use poolhouse_smol::poolhouse_core::ServerType;
use poolhouse_smol::poolhouse_core::pool::PoolState;
use poolhouse_smol::poolhouse_core::topology::TopologyType;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};

#[test]
fn topology_is_a_copy_that_does_not_change() {
    run(async {
        let server = server();
        let client = client(options(&server));
        client.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
        let copy = client.topology();
        client.close().await;
        let seen = copy.get();
        assert_eq!(seen.topology_type(), TopologyType::Single);
        let types: Vec<_> = seen.servers().map(|it| (it.address().to_owned(), it.server_type())).collect();
        assert_eq!(types, [(server.address().to_string(), ServerType::Standalone)]);
        assert!(seen.has_writable_server());
        assert!(!client.topology().has_writable_server(), "a new one tells that it is closed");
        assert_eq!(client.servers(), []);
    });
}

#[test]
fn snapshots_contain_servers_and_their_pools() {
    run(async {
        let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).expect("the set starts");
        let options = ClientOptions::parse(&set.uri()).expect("a right string").timeout(Duration::from_secs(20));
        let client = client(options);
        let held = client.check_out().await.expect("a connection");
        let servers = client.servers();
        let primary = set.address(set.primary().expect("a primary")).to_string();
        let primary = servers.iter().find(|server| server.address == primary).expect("it is known");
        assert_eq!((primary.server_type, primary.pool.state), (ServerType::RsPrimary, PoolState::Ready));
        assert_eq!(primary.pool.counts.in_use, 1);
        assert!(primary.round_trip_average.is_some());
        drop(held);
        let topology = client.topology();
        assert_eq!(topology.topology_type(), TopologyType::ReplicaSetWithPrimary);
        assert_eq!(topology.set_name(), Some(&*set.set_name()));
        let of_client = client.servers();
        assert_eq!(topology.servers().count(), of_client.len());
        client.close().await;
    });
}
