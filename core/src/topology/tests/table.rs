//! The update table: the effect of a server of each type on a topology of each type.

use super::*;
use crate::CertificateFault;

fn ghost<'a>() -> Hello<'a> {
    HelloReply { is_replica_set: true, ..standalone() }
}

fn arbiter<'a>(hosts: &'a [&'a str]) -> Hello<'a> {
    HelloReply { arbiter_only: true, ..member(hosts) }
}

/// Changes the set of a reply to another one.
fn foreign(hello: Hello<'_>) -> Hello<'_> {
    HelloReply { set_name: Some("other"), ..hello }
}

fn members(net: &Net<OnHeap>) -> Vec<String> {
    net.types().into_iter().map(|(address, _)| address).collect()
}

/// A primary "a", and a secondary "b".
fn pair() -> Net<OnHeap> {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "b"]));
    net.hello("b", &secondary(&["a", "b"]));
    net
}

/// One seed is enough, and the set is followed while members fail and others replace them.
#[test]
#[doc(alias = "SDAM-02")]
fn set_is_discovered_from_one_seed_and_followed_through_failures_and_reconfiguration() {
    let mut net = ready(&["a"]);
    net.hello("a", &secondary(&["a", "b"]));
    net.hello("b", &secondary(&["a", "b", "c"]));
    assert_eq!(members(&net), ["a:27017", "b:27017", "c:27017"]);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary, "it works without a primary");
    net.hello("c", &elected(&["a", "b", "c"], 1, 1));
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    net.fail("c", Cause::Network);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    assert_eq!(members(&net).len(), 3, "who is down is still a member");
    net.hello("b", &elected(&["b", "c", "d"], 2, 2));
    net.drain();
    let mut left = members(&net);
    left.sort_unstable();
    assert_eq!(left, ["b:27017", "c:27017", "d:27017"]);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    net.hello("c", &secondary(&["b", "c", "d"]));
    assert_eq!(net.see("c").server_type(), ServerType::RsSecondary, "and comes back");
}

#[test]
#[doc(alias = "SDAM-03")]
fn each_router_has_its_own_round_trip_time() {
    let times = |ms| RoundTrip { average: Duration::from_millis(ms), minimum: Duration::from_millis(ms - 1) };
    let mut net = ready(&["a", "b"]);
    for (address, ms) in [("a", 3), ("b", 30), ("a", 4)] {
        let server = net.at(address);
        assert!(net.topology.handle_hello(net.now, server, &mongos(), Some(times(ms)), &mut net.lines));
    }
    assert_eq!(net.topology_type(), TopologyType::Sharded);
    assert_eq!(net.see("a").round_trip_time(), Some(Duration::from_millis(4)));
    assert_eq!(net.see("b").round_trip_time(), Some(Duration::from_millis(30)));
    net.fail("a", Cause::Network);
    assert_eq!(net.types(), [("a:27017".into(), ServerType::Unknown), ("b:27017".into(), ServerType::Mongos)]);
    assert_eq!(net.see("b").min_round_trip_time(), Some(Duration::from_millis(29)));
}

/// The server was never checked, and counts as Unknown for the topology.
#[test]
#[doc(alias = "SDAM-20")]
fn possible_primary_counts_as_unknown() {
    let mut net = ready(&["a"]);
    net.hello("a", &HelloReply { primary: Some("b"), ..secondary(&["a", "b"]) });
    assert_eq!(net.see("b").server_type(), ServerType::PossiblePrimary);
    assert!(!net.see("b").server_type().is_known());
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    assert!(!net.topology.description().has_writable_server());
    net.hello("b", &secondary(&["a", "b"]));
    assert_eq!(net.see("b").server_type(), ServerType::RsSecondary, "what it says itself counts");
    net.hello("a", &HelloReply { primary: Some("b"), ..secondary(&["a", "b"]) });
    assert_eq!(net.see("b").server_type(), ServerType::RsSecondary, "a hint is for the Unknown only");
}

/// Each way to become Unknown has its own error text, and the text is removed when the
/// server is known again.
#[test]
#[doc(alias = "SDAM-22")]
fn unknown_server_has_an_error_text() {
    let causes = [
        Cause::Network,
        Cause::NetworkTimeout,
        Cause::Dns,
        Cause::Certificate(CertificateFault::Expired),
        Cause::Certificate(CertificateFault::WrongName),
        Cause::Protocol,
        Cause::Command { code: 91 },
        Cause::MissingServiceId,
        Cause::Resources,
    ];
    let mut texts = Vec::new();
    let mut net = ready(&["a", "b"]);
    for cause in causes {
        net.hello("a", &elected(&["a", "b"], 1, 1));
        assert_eq!(net.see("a").error(), None);
        net.fail("a", cause);
        texts.push(net.see("a").error().unwrap().to_string());
    }
    // Errors from replies, and from other servers' replies.
    net.hello("a", &elected(&["a", "b"], 2, 1));
    net.hello("b", &elected(&["a", "b"], 1, 1));
    texts.push(net.see("b").error().unwrap().to_string());
    net.hello("b", &elected(&["a", "b"], 3, 1));
    texts.push(net.see("a").error().unwrap().to_string());
    net.hello("a", &HelloReply { me: Some("a:x"), ..secondary(&["a", "b"]) });
    texts.push(net.see("a").error().unwrap().to_string());
    net.hello("a", &secondary(&["a", "b:0"]));
    texts.push(net.see("a").error().unwrap().to_string());
    let direct = TopologyOptions {
        seeds: &["c"],
        replica_set: Some("x"),
        direct_connection: true,
        ..TopologyOptions::default()
    };
    let mut direct = open(direct);
    direct.hello("c", &secondary(&["c"]));
    texts.push(direct.see("c").error().unwrap().to_string());
    // Errors that an application received.
    for code in [10_107, 11_602, 91] {
        net.hello("b", &elected(&["a", "b"], 3, 1));
        let reply = ReplyError { code: Some(code), message: "" };
        let error = CommandError { command: Some(reply), write_concern: None, topology_version: None };
        let kind = AppErrorKind::Command(error);
        let phase = HandshakePhase::After;
        let error = AppError { generation: 0, pool_generation: 0, phase, kind, overloaded: false, service_id: None };
        assert!(net.app("b", &error).marked_unknown);
        texts.push(net.see("b").error().unwrap().to_string());
    }
    assert!(texts.iter().all(|text| text.len() > 10), "{texts:#?}");
    let count = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), count, "each has its own: {texts:#?}");
}

#[test]
#[doc(alias("SDAM-21", "SDAM-39"))]
fn unknown_servers_and_ghosts_do_not_determine_the_type() {
    let mut net = ready(&["a", "b"]);
    net.fail("a", Cause::Network);
    assert!(net.hello("b", &HelloReply { is_replica_set: true, ..member(&["b", "c"]) }));
    assert_eq!(net.topology_type(), TopologyType::Unknown);
    assert_eq!(net.topology.description().set_name(), None);
    assert_eq!(net.types(), [("a:27017".into(), ServerType::Unknown), ("b:27017".into(), ServerType::RsGhost)]);
}

#[test]
#[doc(alias = "SDAM-42")]
fn first_member_of_a_set_determines_the_topology_type() {
    let hosts = ["a", "b", "c"];
    for (hello, server_type, topology_type) in [
        (primary(&hosts), ServerType::RsPrimary, TopologyType::ReplicaSetWithPrimary),
        (secondary(&hosts), ServerType::RsSecondary, TopologyType::ReplicaSetNoPrimary),
        (arbiter(&hosts), ServerType::RsArbiter, TopologyType::ReplicaSetNoPrimary),
        (member(&hosts), ServerType::RsOther, TopologyType::ReplicaSetNoPrimary),
        (HelloReply { hidden: true, ..secondary(&hosts) }, ServerType::RsOther, TopologyType::ReplicaSetNoPrimary),
    ] {
        let mut net = ready(&["a", "x"]);
        net.hello("a", &hello);
        assert_eq!((net.see("a").server_type(), net.topology_type()), (server_type, topology_type));
        assert_eq!(net.topology.description().set_name(), Some("rs"));
        // Only a primary removes servers that are not its members.
        assert_eq!(net.topology.find("x").is_some(), server_type != ServerType::RsPrimary);
        assert!(net.topology.find("b").is_some() && net.topology.find("c").is_some());
    }
}

#[test]
#[doc(alias = "SDAM-44")]
fn set_without_a_primary_removes_servers_of_no_set() {
    let options =
        TopologyOptions { seeds: &["a", "b", "c", "d", "e"], replica_set: Some("rs"), ..TopologyOptions::default() };
    let mut net = open(options);
    net.fail("a", Cause::Network);
    net.hello("b", &ghost());
    net.hello("c", &standalone());
    net.hello("d", &mongos());
    assert_eq!(members(&net), ["a:27017", "b:27017", "e:27017"]);
    assert_eq!(net.see("b").server_type(), ServerType::RsGhost);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    net.hello("e", &primary(&["a", "b", "e"]));
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
}

#[test]
#[doc(alias = "SDAM-45")]
fn set_has_no_primary_when_its_primary_changes_its_type() {
    type Change = fn(&mut Net<OnHeap>, &str);
    let changes: [(bool, Change); 5] = [
        (true, |net, of| net.fail(of, Cause::Network)),
        (true, |net, of| _ = net.hello(of, &ghost())),
        (true, |net, of| _ = net.hello(of, &secondary(&["a", "b"]))),
        (false, |net, of| _ = net.hello(of, &standalone())),
        (false, |net, of| _ = net.hello(of, &mongos())),
    ];
    for (stays, change) in changes {
        let mut net = pair();
        change(&mut net, "a");
        assert_eq!(net.topology.find("a").is_some(), stays);
        assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
        assert_eq!(net.see("b").server_type(), ServerType::RsSecondary);
        // The failure of another member does not affect the primary.
        let mut net = pair();
        change(&mut net, "b");
        assert_eq!(net.topology.find("b").is_some(), stays);
        assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
        assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
    }
}

#[test]
#[doc(alias = "SDAM-46")]
fn member_without_a_primary_sets_the_name_and_adds_hosts() {
    let mut net = ready(&["a", "b", "x"]);
    let lists = Lists { hosts: &["a", "c"], passives: &["d"], arbiters: &["e"], ..Lists::default() };
    net.hello("a", &lists.of(secondary(&[])));
    assert_eq!(net.topology.description().set_name(), Some("rs"));
    let all = ["a:27017", "b:27017", "x:27017", "c:27017", "d:27017", "e:27017"];
    assert_eq!(members(&net), all, "all kinds of hosts are added, and nobody goes");
    net.hello("x", &foreign(secondary(&["x", "y"])));
    assert_eq!(net.topology.find("x"), None, "who is of another set goes");
    assert_eq!(net.topology.find("y"), None, "and its hosts mean nothing");
    assert_eq!(net.topology.description().set_name(), Some("rs"));
    assert_eq!(net.topology.server_count(), 5);
}

#[test]
#[doc(alias = "SDAM-49")]
fn primary_of_another_set_is_removed_and_its_hosts_ignored() {
    let mut net = pair();
    net.hello("a", &foreign(primary(&["a", "x"])));
    assert_eq!(net.types(), [("b:27017".into(), ServerType::RsSecondary)]);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    assert_eq!(net.topology.description().set_name(), Some("rs"));
    // While another primary exists, the topology still has one.
    let mut net = pair();
    net.hello("b", &foreign(elected(&["b", "x"], 9, 9)));
    assert_eq!(net.types(), [("a:27017".into(), ServerType::RsPrimary)]);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    assert_eq!(net.topology.description().max_election_id(), None, "nor does its election");
}

/// The other primary becomes Unknown, and no other server.
#[test]
#[doc(alias = "SDAM-54")]
fn new_primary_makes_the_other_primary_unknown() {
    let hosts = ["a", "b", "c"];
    let mut net = ready(&hosts);
    net.hello("a", &elected(&hosts, 1, 1));
    net.hello("c", &secondary(&hosts));
    net.hello("b", &elected(&hosts, 2, 1));
    let expected = [ServerType::Unknown, ServerType::RsPrimary, ServerType::RsSecondary];
    assert_eq!(net.types().into_iter().map(|(_, server_type)| server_type).collect::<Vec<_>>(), expected);
    assert_eq!(net.see("a").error(), Some(ServerError::NewerPrimary));
    assert_eq!((net.see("a").set_name(), net.see("a").election_id(), net.see("a").hosts().count()), (None, None, 0));
}
