//! The memory of one server with a direct connection.

use super::*;

const OPTIONS: TopologyOptions<'static> =
    TopologyOptions { seeds: &["a"], replica_set: None, direct_connection: true, load_balanced: false };

fn direct(replica_set: Option<&str>) -> Net<Direct<64>> {
    let mut net = open_in(TopologyOptions { replica_set, ..OPTIONS });
    net.drain();
    net
}

#[test]
fn only_a_direct_connection_fits() {
    for options in [
        TopologyOptions { direct_connection: false, ..OPTIONS },
        TopologyOptions { direct_connection: false, replica_set: Some("rs"), ..OPTIONS },
        TopologyOptions { direct_connection: false, load_balanced: true, ..OPTIONS },
        TopologyOptions { direct_connection: false, seeds: &["a", "b"], ..OPTIONS },
        TopologyOptions { seeds: &[], ..OPTIONS },
    ] {
        let mut lines = Lines::default();
        let config = options.validate().unwrap();
        let topology = Topology::<Direct<64>>::new(Instant::ORIGIN, TopologyId::new(7), config, &mut lines);
        assert_eq!(topology.is_ok(), options.direct_connection, "{options:?}");
        assert_eq!(lines.0.is_empty(), topology.is_err());
    }
}

#[test]
fn names_in_replies_are_ignored() {
    let mut net = direct(None);
    let long = "x".repeat(300);
    for hello in [
        primary(&["a", "b", "c"]),
        HelloReply { me: Some("other:1"), primary: Some("not an address:"), ..primary(&["a", "d"]) },
        HelloReply { passives: texts(&["b"]), arbiters: texts(&["c"]), ..primary(&["no address:x", &long]) },
    ] {
        assert!(net.hello("a", &hello));
    }
    // The second and the third reply change nothing that is stored.
    let lines = net.lines();
    assert_eq!(lines, ["a:27017: Unknown -> RSPrimary", "Single [a:27017: Unknown] -> Single [a:27017: RSPrimary]"]);
    let server = net.see("a");
    assert_eq!(server.hosts().chain(server.passives()).chain(server.arbiters()).count() + server.tags().count(), 0);
    assert_eq!((server.me(), server.primary(), server.set_name()), (None, None, Some("rs")));
    assert_eq!(net.actions().last(), Some(&TopologyAction::WakeSelectors));
    net.hello("a", &secondary(&["b"]));
    assert_eq!(net.types(), [("a:27017".into(), ServerType::RsSecondary)]);
}

#[test]
#[doc(alias("SDAM-33", "SDAM-34"))]
fn expected_set_name_is_checked() {
    let mut net = direct(Some("rs"));
    assert!(net.hello("a", &primary(&["a"])));
    assert!(!net.hello("a", &HelloReply { set_name: Some("other"), ..primary(&["a"]) }));
    assert_eq!(net.see("a").error(), Some(ServerError::WrongSetName));
    assert!(!net.hello("a", &standalone()));
    assert!(net.hello("a", &primary(&["a"])));
    assert_eq!(net.topology_type(), TopologyType::Single);
}

#[test]
fn set_names_that_change_in_each_reply_do_not_fill_the_memory() {
    for expected in [None, Some("rs")] {
        let mut net = direct(expected);
        for number in 0..1_000 {
            let name = format!("set{number}");
            let is_known = net.hello("a", &HelloReply { set_name: Some(&name), ..primary(&["a"]) });
            assert_eq!(is_known, expected.is_none());
            let error = net.see("a").error();
            assert_eq!(error, expected.map(|_| ServerError::WrongSetName));
        }
    }
}

#[test]
fn set_name_that_does_not_fit_is_a_temporary_error() {
    let mut net = direct(None);
    let long = "x".repeat(60);
    assert!(!net.hello("a", &HelloReply { set_name: Some(&long), ..primary(&["a"]) }));
    assert_eq!(net.see("a").error(), Some(ServerError::Beyond { limit: Limit::Texts, count: 4 }));
    assert!(net.hello("a", &primary(&["a"])));
}

#[test]
fn topology_is_opened_again_after_its_end() {
    let mut net = direct(None);
    net.hello("a", &primary(&["a"]));
    net.topology.close(net.now, &mut net.lines);
    net.drain();
    assert_eq!(net.topology.server_count(), 0);
    net.topology.open(net.now, TopologyId::new(8), OPTIONS.validate().unwrap(), &mut net.lines).unwrap();
    assert!(net.hello("a", &standalone()));
    assert_eq!(net.types(), [("a:27017".into(), ServerType::Standalone)]);
}
