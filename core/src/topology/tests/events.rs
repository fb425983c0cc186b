//! Events and their order.

use super::*;

#[test]
#[doc(alias("LOG-02", "LOG-03", "LOG-04", "LOG-10"))]
fn topology_opens_with_its_seeds_unknown() {
    let mut net = open(TopologyOptions { seeds: &["b", "a"], ..TopologyOptions::default() });
    assert_eq!(
        net.lines(),
        [
            "TopologyOpening",
            "Unknown [] -> Unknown [b:27017: Unknown, a:27017: Unknown]",
            "ServerOpening b:27017",
            "ServerOpening a:27017",
        ]
    );
}

/// With members that are added and removed in one update.
#[test]
#[doc(alias = "LOG-06")]
fn events_of_servers_precede_that_of_the_topology() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "c", "d"]));
    assert_eq!(
        net.lines(),
        [
            "a:27017: Unknown -> RSPrimary",
            "ServerClosed b:27017",
            "ServerOpening c:27017",
            "ServerOpening d:27017",
            "Unknown [a:27017: Unknown, b:27017: Unknown] -> \
             ReplicaSetWithPrimary rs [a:27017: RSPrimary, c:27017: Unknown, d:27017: Unknown]",
        ]
    );
}

#[test]
fn event_of_a_deposed_primary_follows_that_of_the_new_one() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "b"]));
    net.drain();
    net.hello("b", &primary(&["a", "b"]));
    let lines = net.lines();
    assert_eq!(lines[..2], ["b:27017: Unknown -> RSPrimary", "a:27017: RSPrimary -> Unknown"]);
    assert_eq!(lines.len(), 3);
}

/// A description that is replaced twice in one step causes one event, or none.
#[test]
#[doc(alias = "LOG-05")]
fn repeated_reply_of_a_stale_primary_emits_no_events() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 2, 1));
    net.hello("b", &elected(&["a", "b"], 1, 1));
    net.drain();
    net.hello("b", &elected(&["a", "b"], 1, 1));
    assert_eq!(net.lines(), Vec::<String>::new());
}

/// PossiblePrimary is a kind of Unknown.
#[test]
#[doc(alias("LOG-05", "SDAM-20"))]
fn possible_primary_alone_is_no_event() {
    let mut net = ready(&["a", "b"]);
    let hello = HelloReply { primary: Some("b"), ..secondary(&["a", "b"]) };
    net.hello("a", &hello);
    assert_eq!(net.lines().len(), 2);
    net.fail("b", Cause::Network);
    net.drain();
    net.hello("a", &hello);
    assert_eq!(net.see("b").server_type(), ServerType::PossiblePrimary);
    assert_eq!(net.lines(), Vec::<String>::new());
}

/// A removed server causes the event of its removal, and no other.
#[test]
#[doc(alias = "LOG-07")]
fn removed_responder_is_only_closed() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &standalone());
    assert_eq!(
        net.lines(),
        ["ServerClosed a:27017", "Unknown [a:27017: Unknown, b:27017: Unknown] -> Unknown [b:27017: Unknown]"]
    );
}

#[test]
#[doc(alias("LOG-02", "LOG-07", "LOG-08", "SDAM-10"))]
fn close_emits_servers_then_unknown_then_the_end() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &primary(&["a", "b"]));
    net.drain();
    let (a, b) = (net.at("a"), net.at("b"));
    net.topology.close(net.now, &mut net.lines);
    net.topology.close(net.now, &mut net.lines);
    assert_eq!(
        net.lines(),
        [
            "ServerClosed a:27017",
            "ServerClosed b:27017",
            "ReplicaSetWithPrimary rs [a:27017: RSPrimary, b:27017: Unknown] -> Unknown []",
            "TopologyClosed",
        ]
    );
    assert!(net.topology.is_closed());
    assert_eq!(
        net.actions(),
        [TopologyAction::ServerRemoved(a), TopologyAction::ServerRemoved(b), TopologyAction::WakeSelectors]
    );
    net.topology.handle_failed(net.now, a, Cause::Network, &mut net.lines);
    assert!(!net.hello_of(b, &primary(&["b"])));
    assert_eq!(net.lines(), Vec::<String>::new());
    assert_eq!(net.actions(), []);
}

#[test]
#[doc(alias("LOG-19", "LOG-20"))]
fn load_balanced_topology_opens_and_closes_in_order() {
    let mut net = open(TopologyOptions { seeds: &["a"], load_balanced: true, ..TopologyOptions::default() });
    net.topology.close(net.now, &mut net.lines);
    assert_eq!(
        net.lines(),
        [
            "TopologyOpening",
            "Unknown [] -> LoadBalanced [a:27017: Unknown]",
            "ServerOpening a:27017",
            "a:27017: Unknown -> LoadBalancer",
            "LoadBalanced [a:27017: Unknown] -> LoadBalanced [a:27017: LoadBalancer]",
            "ServerClosed a:27017",
            "LoadBalanced [a:27017: LoadBalancer] -> Unknown []",
            "TopologyClosed",
        ]
    );
}

#[test]
#[doc(alias("LOG-01", "LOG-09"))]
fn every_event_contains_the_id_of_its_topology() {
    struct Ids(Vec<(TopologyId, Instant)>);
    impl Observer<SdamEvent<'_>> for Ids {
        fn on_event(&mut self, now: Instant, event: &SdamEvent<'_>) {
            self.0.push((event.topology(), now));
        }
    }
    let mut ids = Ids(Vec::new());
    let config = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }.validate().unwrap();
    let mut topology = Topology::<OnHeap>::new(Instant::ORIGIN, TopologyId::new(9), config, &mut ids).unwrap();
    let server = topology.find("a").unwrap();
    topology.handle_hello(Instant::from_nanos(5), server, &primary(&["a", "b"]), None, &mut ids);
    topology.close(Instant::from_nanos(3), &mut ids);
    assert!(ids.0.len() > 8);
    assert!(ids.0.iter().all(|(id, _)| *id == TopologyId::new(9)));
    assert!(ids.0.is_sorted_by_key(|(_, now)| *now));
}

/// Keeps copies of events, and the texts of their originals.
#[derive(Default)]
struct Copies(Vec<(String, String, OwnedSdamEvent)>);

impl Observer<SdamEvent<'_>> for Copies {
    fn on_event(&mut self, _now: Instant, event: &SdamEvent<'_>) {
        self.0.push((event.to_string(), format!("{event:?}"), event.to_owned()));
    }
}

#[test]
fn copy_of_an_event_displays_the_same_text() {
    let mut copies = Copies::default();
    let now = Instant::from_nanos(1_000);
    let options = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() };
    let config = options.validate().unwrap();
    let mut topology = Topology::<OnHeap>::new(now, TopologyId::new(7), config, &mut copies).unwrap();
    let a = topology.find("a").unwrap();
    topology.handle_hello(now, a, &primary(&["a", "c"]), None, &mut copies);
    topology.handle_failed(now, a, Cause::Network, &mut copies);
    topology.handle_hello(now, a, &primary(&[]), None, &mut copies);
    topology.close(now, &mut copies);
    let mut names: Vec<_> = copies.0.iter().map(|(_, _, copy)| copy.get().name()).collect();
    for (text, shown, copy) in &copies.0 {
        assert_eq!(copy.to_string(), *text);
        assert_eq!(format!("{:?}", copy.get()), *shown);
        assert_eq!(copy.get().topology(), TopologyId::new(7));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(
        names,
        [
            "NoServers",
            "ServerClosed",
            "ServerDescriptionChanged",
            "ServerOpening",
            "TopologyClosed",
            "TopologyDescriptionChanged",
            "TopologyOpening"
        ]
    );
}
