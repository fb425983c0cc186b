//! Rules of the update table that the official test files do not cover.

use super::*;
use TopologyAction::{Pool, RequestCheck, ServerAdded, ServerRemoved, WakeSelectors};

#[test]
#[doc(alias = "SDAM-08")]
fn new_topology_owes_its_servers_and_nothing_else() {
    let mut net = open(TopologyOptions { seeds: &["b", "a"], ..TopologyOptions::default() });
    assert_eq!(net.actions(), [ServerAdded(net.at("b")), ServerAdded(net.at("a"))]);
}

/// The tuples are in the text.
#[test]
#[doc(alias = "SDAM-23")]
fn error_of_a_stale_primary_contains_the_newer_election() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 2, 1));
    net.hello("b", &elected(&["a", "b"], 1, 3));
    assert_eq!(
        net.see("b").error().unwrap().to_string(),
        "primary marked stale due to electionId/setVersion mismatch, (010101010101010101010101, 3) is stale compared to \
         (020202020202020202020202, 1)"
    );
    net.hello("b", &HelloReply { set_version: None, election_id: None, ..elected(&["a", "b"], 1, 3) });
    assert!(net.see("b").error().unwrap().to_string().contains("(null, null) is stale compared to"));
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
}

/// A deposed primary is checked at once, and its pool is not changed.
#[test]
#[doc(alias("SDAM-24", "SDAM-55", "SDAM-56"))]
fn deposed_primary_is_checked_and_its_pool_not_cleared() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 1, 1));
    net.drain();
    net.hello("b", &elected(&["a", "b"], 2, 1));
    assert_eq!(net.see("a").error(), Some(ServerError::NewerPrimary));
    assert_eq!(net.see("a").error().unwrap().to_string(), "primary marked stale due to discovery of newer primary");
    let (a, b) = (net.at("a"), net.at("b"));
    assert_eq!(net.actions(), [RequestCheck(a), Pool(b, PoolCommand::Ready), WakeSelectors]);
}

/// The pool of a primary that turns out stale is not marked ready.
#[test]
#[doc(alias("SDAM-53", "SDAM-63"))]
fn pool_of_a_stale_primary_is_not_ready() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 2, 1));
    net.drain();
    assert!(!net.hello("b", &elected(&["a", "b"], 1, 1)));
    assert_eq!(net.actions(), [WakeSelectors]);
}

#[test]
#[doc(alias = "SDAM-63")]
fn pool_is_ready_for_data_bearing_servers_only() {
    let lists = Lists { hosts: &["a"], arbiters: &["b"], ..Lists::default() };
    let mut net = ready(&["a", "b"]);
    net.hello("b", &HelloReply { arbiter_only: true, ..lists.of(member(&[])) });
    assert_eq!(net.actions(), [WakeSelectors]);
    net.hello("a", &lists.of(secondary(&[])));
    assert_eq!(net.actions(), [Pool(net.at("a"), PoolCommand::Ready), WakeSelectors]);
}

/// A direct connection uses any server that is known.
#[test]
#[doc(alias("SDAM-01", "SDAM-63"))]
fn pool_of_a_direct_connection_is_ready_for_any_known_server() {
    for hello in [
        HelloReply { arbiter_only: true, ..member(&["x"]) },
        HelloReply { is_replica_set: true, ..standalone() },
        HelloReply { hidden: true, ..secondary(&["x"]) },
        mongos(),
    ] {
        let mut net = open(TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() });
        net.drain();
        assert!(net.hello("a", &hello));
        assert_eq!(net.actions(), [Pool(net.at("a"), PoolCommand::Ready), WakeSelectors]);
        assert_eq!(net.topology_type(), TopologyType::Single);
        assert_eq!(net.topology.server_count(), 1);
    }
}

/// Whatever type the server has, neither its type nor its hosts change the topology.
#[test]
#[doc(alias = "SDAM-33")]
fn direct_connection_keeps_its_type_for_every_server_type() {
    let mut net = open(TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() });
    for (hello, becomes) in [
        (primary(&["a", "b"]), ServerType::RsPrimary),
        (mongos(), ServerType::Mongos),
        (standalone(), ServerType::Standalone),
        (secondary(&["b"]), ServerType::RsSecondary),
    ] {
        assert!(net.hello("a", &hello));
        assert_eq!(net.see("a").server_type(), becomes);
        assert_eq!((net.topology_type(), net.topology.server_count()), (TopologyType::Single, 1));
    }
    net.fail("a", Cause::Network);
    assert_eq!(net.see("a").server_type(), ServerType::Unknown);
    assert_eq!(net.topology_type(), TopologyType::Single);
}

#[test]
#[doc(alias = "SDAM-34")]
fn direct_connection_to_another_set_is_an_error() {
    let options = TopologyOptions {
        seeds: &["a"],
        replica_set: Some("other"),
        direct_connection: true,
        ..TopologyOptions::default()
    };
    for hello in [primary(&["a"]), standalone()] {
        let mut net = open(options);
        net.drain();
        assert!(!net.hello("a", &hello));
        assert_eq!(net.see("a").error(), Some(ServerError::WrongSetName));
        assert_eq!(net.actions(), [WakeSelectors]);
    }
}

/// The texts, and that they are removed with their cause.
#[test]
#[doc(alias = "SDAM-35")]
fn incompatible_server_makes_the_topology_unusable_while_it_is_known() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &HelloReply { max_wire_version: 7, ..mongos() });
    assert_eq!(
        net.topology.description().compatibility_error().unwrap().to_string(),
        "Server at a:27017 reports wire version 7, but this version of Poolhouse requires at least 8 (MongoDB 4.2)."
    );
    net.fail("a", Cause::Network);
    assert!(net.topology.description().is_compatible(), "an Unknown server does not count");
    net.hello("b", &HelloReply { min_wire_version: 26, max_wire_version: 30, ..mongos() });
    assert_eq!(
        net.topology.description().compatibility_error().unwrap().to_string(),
        "Server at b:27017 requires wire version 26, but this version of Poolhouse only supports up to 25."
    );
    assert_eq!(net.topology.description().compatibility_error().unwrap().address(), "b:27017");
    for (min_wire_version, max_wire_version) in [(25, 30), (0, 8)] {
        net.hello("b", &HelloReply { min_wire_version, max_wire_version, ..mongos() });
        assert!(net.topology.description().is_compatible(), "the first and the last that are spoken");
    }
    net.hello("b", &mongos());
    assert!(net.topology.description().is_compatible());
}

#[test]
#[doc(alias = "SDAM-36")]
fn topology_without_servers_warns() {
    let mut net = open(TopologyOptions::default());
    assert_eq!(net.lines().last().unwrap(), "NoServers");
    assert_eq!(net.actions(), []);
    let mut net = open(TopologyOptions { seeds: &["a"], replica_set: Some("rs"), ..TopologyOptions::default() });
    net.drain();
    net.hello("a", &standalone());
    assert_eq!(
        net.lines(),
        ["ServerClosed a:27017", "ReplicaSetNoPrimary rs [a:27017: Unknown] -> ReplicaSetNoPrimary rs []", "NoServers"]
    );
}

/// Late results of a removed server, even when another one has its slot.
#[test]
#[doc(alias("SDAM-37", "SDAM-59"))]
fn results_of_a_removed_server_change_nothing() {
    let mut net = ready(&["a", "b"]);
    let old = net.at("b");
    net.hello("a", &primary(&["a"]));
    assert_eq!(net.topology.address(old), Some("b:27017"), "its address is there until its host was told");
    assert!(net.actions().contains(&ServerRemoved(old)));
    assert_eq!(net.topology.address(old), None);
    net.hello("a", &primary(&["a", "c"]));
    assert_eq!(net.at("c").index(), old.index(), "the place is used again");
    net.drain();
    assert!(!net.hello_of(old, &primary(&["b"])));
    net.topology.handle_failed(net.now, old, Cause::Network, &mut net.lines);
    assert_eq!(net.lines(), Vec::<String>::new());
    assert_eq!(net.actions(), []);
    assert_eq!(net.topology.server(old).map(|server| server.server()), None);
}

/// The number of seeds counts, not the number of remaining servers.
#[test]
#[doc(alias = "SDAM-40")]
fn last_of_several_seeds_that_is_standalone_is_removed() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &standalone());
    net.hello("b", &standalone());
    assert_eq!(net.topology.server_count(), 0);
    assert_eq!(net.topology_type(), TopologyType::Unknown);
}

/// The `me` part.
#[test]
#[doc(alias = "SDAM-48")]
fn member_with_another_me_is_removed_while_a_primary_is_known() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "b"]));
    net.hello("b", &HelloReply { me: Some("x"), ..secondary(&["a", "b"]) });
    assert_eq!(net.types(), [("a:27017".into(), ServerType::RsPrimary)]);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
}

/// The hosts of a member are ignored while a primary exists; a former primary names the
/// next one.
#[test]
#[doc(alias = "SDAM-48")]
fn former_primary_hints_at_the_next_one() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "b"]));
    net.hello("a", &HelloReply { primary: Some("b"), ..secondary(&["a", "b", "c"]) });
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    assert_eq!(net.see("b").server_type(), ServerType::PossiblePrimary);
    assert_eq!(net.topology.find("c"), None);
}

/// The type alone changes, and an error stays.
#[test]
#[doc(alias = "SDAM-47")]
fn hint_leaves_the_error_of_an_unknown_server() {
    let mut net = ready(&["a", "b"]);
    net.fail("b", Cause::NetworkTimeout);
    net.hello("a", &HelloReply { primary: Some("b"), ..secondary(&["a", "b"]) });
    assert_eq!(net.see("b").server_type(), ServerType::PossiblePrimary);
    assert_eq!(net.see("b").error(), Some(ServerError::Failed(Cause::NetworkTimeout)));
}

#[test]
#[doc(alias = "SDAM-60")]
fn election_of_a_member_that_is_no_primary_is_ignored() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 1, 1));
    let boast = HelloReply { election_id: Some(ObjectId([9; 12])), set_version: Some(9), ..secondary(&["a", "b"]) };
    net.hello("b", &boast);
    let seen = net.topology.description();
    assert_eq!((seen.max_election_id(), seen.max_set_version()), (Some(ObjectId([1; 12])), Some(1)));
    net.fail("a", Cause::Network);
    net.hello("b", &boast);
    net.hello("a", &elected(&["a", "b"], 1, 1));
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
}

/// The election id is compared first; the set version may decrease with a newer election.
#[test]
#[doc(alias = "SDAM-50")]
fn newer_election_wins_over_a_larger_set_version() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 1, 5));
    net.hello("b", &elected(&["a", "b"], 2, 1));
    assert_eq!(net.see("b").server_type(), ServerType::RsPrimary);
    assert_eq!(net.topology.description().max_set_version(), Some(1));
}

/// Before 6.0 the set version is compared first.
#[test]
#[doc(alias = "SDAM-51")]
fn larger_set_version_wins_before_6_0() {
    let old = |election, version| HelloReply { max_wire_version: 16, ..elected(&["a", "b"], election, version) };
    let mut net = ready(&["a", "b"]);
    net.hello("a", &old(1, 5));
    net.hello("b", &old(2, 1));
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
    assert!(matches!(net.see("b").error(), Some(ServerError::StalePrimary { .. })));
    net.hello("b", &old(1, 6));
    assert_eq!(net.see("b").server_type(), ServerType::RsPrimary);
    // Without an election id nothing is compared, and the maximum of versions stays.
    net.hello("a", &HelloReply { election_id: None, ..old(1, 2) });
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
    assert_eq!(net.topology.description().max_set_version(), Some(6));
    assert_eq!(net.topology.description().max_election_id(), Some(ObjectId([1; 12])));
}

#[test]
#[doc(alias = "SDAM-52")]
fn elections_compare_as_bytes() {
    let election = |bytes| HelloReply { election_id: Some(ObjectId(bytes)), ..elected(&["a", "b"], 0, 1) };
    let mut net = ready(&["a", "b"]);
    net.hello("a", &election([0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    net.hello("b", &election([0x7f, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]));
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
}

#[test]
#[doc(alias = "SDAM-61")]
fn session_timeout_is_the_least_of_servers_with_data() {
    let minutes = |minutes| HelloReply { logical_session_timeout_minutes: minutes, ..mongos() };
    let mut net = ready(&["a", "b"]);
    let timeout = |net: &Net<OnHeap>| net.topology.description().logical_session_timeout_minutes();
    assert_eq!(timeout(&net), None);
    net.hello("a", &minutes(Some(30)));
    net.hello("b", &minutes(Some(20)));
    assert_eq!(timeout(&net), Some(20));
    net.hello("b", &minutes(None));
    assert_eq!(timeout(&net), None);
    net.fail("b", Cause::Network);
    assert_eq!(timeout(&net), Some(30));
}

/// Waiting selectors are woken after every check, and after all other effects.
#[test]
#[doc(alias("MON-18", "SDAM-62"))]
fn selectors_are_woken_last() {
    let mut net = ready(&["a"]);
    for hello in [primary(&["a", "b", "c"]), primary(&["a"]), primary(&["a"])] {
        net.hello("a", &hello);
        let actions = net.actions();
        assert_eq!(actions.iter().filter(|action| **action == WakeSelectors).count(), 1);
        assert_eq!(actions.last(), Some(&WakeSelectors));
    }
}

/// Description first, then the pool; in-use connections only after a
/// timeout.
#[test]
#[doc(alias("MON-53", "MON-54", "SDAM-64"))]
fn failed_check_clears_the_pool_of_an_unknown_server() {
    for (cause, interrupt) in [
        (Cause::Network, false),
        (Cause::NetworkTimeout, true),
        (Cause::Command { code: 11_600 }, false),
        (Cause::Protocol, false),
    ] {
        let mut net = ready(&["a"]);
        net.hello("a", &primary(&["a"]));
        net.drain();
        net.fail("a", cause);
        assert_eq!(net.see("a").server_type(), ServerType::Unknown);
        assert_eq!(net.see("a").error().unwrap().to_string(), cause.to_string());
        let clear = PoolCommand::Clear { interrupt_in_use_connections: interrupt, cause };
        assert_eq!(net.actions(), [Pool(net.at("a"), clear), WakeSelectors]);
    }
}

/// A pending action that was revoked is never returned.
#[test]
fn ready_is_revoked_by_a_failure_before_it_was_polled() {
    let mut net = ready(&["a"]);
    net.hello("a", &primary(&["a"]));
    net.fail("a", Cause::NetworkTimeout);
    net.fail("a", Cause::Network);
    let clear = PoolCommand::Clear { interrupt_in_use_connections: true, cause: Cause::NetworkTimeout };
    assert_eq!(net.actions(), [Pool(net.at("a"), clear), WakeSelectors]);
    net.fail("a", Cause::Network);
    net.hello("a", &primary(&["a"]));
    let clear = PoolCommand::Clear { interrupt_in_use_connections: false, cause: Cause::Network };
    assert_eq!(net.actions(), [Pool(net.at("a"), clear), Pool(net.at("a"), PoolCommand::Ready), WakeSelectors]);
}

#[test]
fn server_added_and_removed_before_a_poll_owes_nothing() {
    let mut net = ready(&["a"]);
    net.hello("a", &primary(&["a", "b"]));
    net.hello("a", &primary(&["a"]));
    assert_eq!(net.actions(), [Pool(net.at("a"), PoolCommand::Ready), WakeSelectors]);
}

#[test]
#[doc(alias = "LOG-18")]
fn readable_and_writable_servers_follow_the_table() {
    let seen = |net: &Net<OnHeap>| {
        let seen = net.topology.description();
        let by_secondary = |server: &ServerDescription<'_>| server.server_type() == ServerType::RsSecondary;
        (seen.has_readable_server(), seen.has_readable_server_by(by_secondary), seen.has_writable_server())
    };
    let mut net = ready(&["a", "b"]);
    assert_eq!(seen(&net), (false, false, false));
    net.hello("a", &secondary(&["a", "b"]));
    assert_eq!(seen(&net), (false, true, false));
    net.hello("b", &primary(&["a", "b"]));
    assert_eq!(seen(&net), (true, true, true));
    let mut net = ready(&["a", "b"]);
    net.hello("a", &mongos());
    assert_eq!(seen(&net), (true, true, true));
    net.fail("a", Cause::Network);
    assert_eq!(seen(&net), (false, false, false));
    let mut net = open(TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() });
    assert_eq!(seen(&net), (false, false, false));
    net.hello("a", &secondary(&["a"]));
    assert_eq!(seen(&net), (true, true, true));
    let net = open(TopologyOptions { seeds: &["a"], load_balanced: true, ..TopologyOptions::default() });
    assert_eq!(seen(&net), (true, true, true));
}

#[test]
#[doc(alias("SDAM-38", "SDAM-70"))]
fn load_balanced_topology_is_ready_and_never_changes() {
    let mut net = open(TopologyOptions { seeds: &["a"], load_balanced: true, ..TopologyOptions::default() });
    let a = net.at("a");
    assert_eq!(net.actions(), [ServerAdded(a), Pool(a, PoolCommand::Ready), WakeSelectors]);
    net.lines();
    assert!(net.hello("a", &HelloReply { max_wire_version: 1, ..primary(&["b"]) }));
    net.fail("a", Cause::Network);
    assert_eq!(net.types(), [("a:27017".into(), ServerType::LoadBalancer)]);
    assert_eq!((net.see("a").min_wire_version(), net.see("a").max_wire_version()), (None, None));
    let seen = net.topology.description();
    assert!(seen.is_compatible());
    assert_eq!(seen.logical_session_timeout_minutes(), None);
    assert_eq!(net.actions(), []);
    assert_eq!(net.lines(), Vec::<String>::new());
}

/// A ghost does not affect the topology, and is removed by its next reply if the
/// topology has another type.
#[test]
#[doc(alias("SDAM-41", "SDAM-43"))]
fn ghost_stays_when_a_router_is_found_until_its_next_reply() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &HelloReply { is_replica_set: true, ..standalone() });
    net.hello("b", &mongos());
    assert_eq!(net.topology_type(), TopologyType::Sharded);
    assert_eq!(net.see("a").server_type(), ServerType::RsGhost);
    net.hello("a", &HelloReply { is_replica_set: true, ..standalone() });
    assert_eq!(net.topology.server_count(), 1);
}
