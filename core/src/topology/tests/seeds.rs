//! Hosts that were looked up again: Polling SRV Records for mongos Discovery.

use super::*;

fn sharded(seeds: &[&str]) -> Net<OnHeap> {
    let mut net = ready(seeds);
    for seed in seeds {
        net.hello(seed, &mongos());
    }
    net.drain();
    net
}

fn change<M: Memory>(net: &mut Net<M>, seeds: &[&str]) -> Result<(), Full> {
    net.tick();
    let result = net.topology.handle_seeds(net.now, seeds.iter().copied(), &mut net.lines);
    net.topology.assert_invariants();
    result
}

#[test]
fn hosts_are_removed_and_added_in_one_update() {
    let mut net = sharded(&["a", "b", "c"]);
    let (b, kept) = (net.at("b"), net.at("a"));
    change(&mut net, &["A:27017", "d", "c", "d"]).unwrap();
    let lines = net.lines();
    assert_eq!(lines[..2], ["ServerClosed b:27017", "ServerOpening d:27017"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(net.at("a"), kept, "who stays is the same server");
    let d = net.at("d");
    assert_eq!(
        net.actions(),
        [TopologyAction::ServerRemoved(b), TopologyAction::ServerAdded(d), TopologyAction::WakeSelectors]
    );
    assert_eq!(net.see("a").server_type(), ServerType::Mongos);
    assert_eq!(net.see("d").server_type(), ServerType::Unknown);
    assert_eq!(net.topology_type(), TopologyType::Sharded);
    net.hello("d", &mongos());
    assert_eq!(net.see("d").server_type(), ServerType::Mongos);
}

#[test]
fn same_hosts_in_another_order_change_nothing() {
    let mut net = sharded(&["a", "b"]);
    change(&mut net, &["b", "a:27017"]).unwrap();
    assert_eq!(net.lines(), [""; 0]);
    assert_eq!(net.actions(), [TopologyAction::WakeSelectors]);
}

/// The hosts are from a name server, which may be hostile.
#[test]
fn path_among_hosts_that_were_looked_up_is_ignored() {
    let mut net = sharded(&["a"]);
    change(&mut net, &["/tmp/evil.sock", "evil.sock"]).unwrap();
    assert_eq!(net.types(), [("a:27017".to_string(), ServerType::Mongos)]);
    change(&mut net, &["/tmp/evil.sock", "b"]).unwrap();
    assert_eq!(net.types(), [("b:27017".to_string(), ServerType::Unknown)]);
}

#[test]
fn no_hosts_at_all_change_nothing() {
    let mut net = sharded(&["a", "b"]);
    for seeds in [&[][..], &["no address:x", ""]] {
        change(&mut net, seeds).unwrap();
        assert_eq!((net.topology.server_count(), net.lines(), net.actions()), (2, Vec::new(), Vec::new()));
    }
    change(&mut net, &["", "b"]).unwrap();
    assert_eq!(net.types(), [("b:27017".to_string(), ServerType::Mongos)]);
}

#[test]
fn looked_up_hosts_do_not_change_other_topologies() {
    let set = TopologyOptions { seeds: &["a"], replica_set: Some("rs"), ..TopologyOptions::default() };
    let single = TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() };
    let balanced = TopologyOptions { seeds: &["a"], load_balanced: true, ..TopologyOptions::default() };
    for options in [set, single, balanced] {
        let mut net = open(options);
        net.drain();
        change(&mut net, &["b", "c"]).unwrap();
        assert_eq!((net.topology.server_count(), net.lines()), (1, Vec::new()), "{options:?}");
        assert_eq!(net.actions(), []);
    }
    let mut net = sharded(&["a"]);
    net.topology.close(net.now, &mut ());
    net.drain();
    change(&mut net, &["b"]).unwrap();
    assert_eq!((net.topology.server_count(), net.actions()), (0, Vec::new()));
}

#[test]
fn unknown_topology_accepts_other_hosts_and_takes_their_type() {
    // A single remaining host may be a standalone server; with several hosts, a standalone server
    // is removed.
    let mut net = ready(&["a", "b"]);
    change(&mut net, &["c"]).unwrap();
    net.hello("c", &standalone());
    assert_eq!((net.topology_type(), net.topology.server_count()), (TopologyType::Single, 1));
    let mut net = ready(&["a"]);
    change(&mut net, &["b", "c"]).unwrap();
    net.hello("c", &standalone());
    assert_eq!((net.topology_type(), net.topology.server_count()), (TopologyType::Unknown, 1));
    let mut net = ready(&["a"]);
    change(&mut net, &["b", "c"]).unwrap();
    net.hello("c", &mongos());
    assert_eq!((net.topology_type(), net.topology.server_count()), (TopologyType::Sharded, 2));
}

#[test]
fn results_of_a_removed_host_change_nothing() {
    let mut net = sharded(&["a", "b"]);
    let a = net.at("a");
    change(&mut net, &["b"]).unwrap();
    net.drain();
    assert!(!net.hello_of(a, &mongos()));
    assert_eq!((net.lines(), net.actions()), (Vec::new(), Vec::new()));
}

#[test]
fn without_room_for_new_hosts_nothing_changes() {
    let options = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() };
    let mut net = open_in::<Fixed<3, 8, 16, 256>>(options);
    net.drain();
    assert_eq!(change(&mut net, &["c", "d"]), Err(Full), "there are places for one more than there were");
    assert_eq!((net.topology.server_count(), net.lines()), (2, Vec::new()));
    change(&mut net, &["a", "c"]).unwrap();
    assert_eq!(net.topology.server_count(), 2);
    net.drain();
    // Names that are no longer used are released, however often names change.
    for round in 0..100 {
        let name = format!("host{round}");
        change(&mut net, &["a", &name]).unwrap();
        net.drain();
    }
    assert_eq!(net.topology.server_count(), 2);
}
