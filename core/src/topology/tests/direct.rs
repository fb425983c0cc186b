//! The memory of one server with a direct connection.

use super::*;
use crate::replies::pairs;

const OPTIONS: TopologyOptions<'static> =
    TopologyOptions { seeds: &["a"], replica_set: None, direct_connection: true, load_balanced: false };

/// Room for "a:27017", and for two set names of six bytes.
type Small = Direct<31>;

fn direct(replica_set: Option<&str>) -> Net<Small> {
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
        TopologyOptions { replica_set: Some("expect"), ..OPTIONS },
    ] {
        let mut lines = Lines::default();
        let config = options.validate().unwrap();
        let topology = Topology::<Small>::new(Instant::ORIGIN, TopologyId::new(7), config, &mut lines);
        assert_eq!(topology.is_ok(), options.direct_connection, "{options:?}");
        assert_eq!(lines.0.is_empty(), topology.is_err());
    }
}

#[test]
fn names_in_replies_are_ignored() {
    let mut net = direct(None);
    let long = "x".repeat(300);
    let invalid = ["no address:x", &long];
    let hellos = [
        primary(&["a", "b", "c"]),
        HelloReply { me: Some("other:1"), primary: Some("not an address:"), ..primary(&["a", "d"]) },
        HelloReply { passives: texts(&["b"]), arbiters: texts(&["c"]), ..primary(&invalid) },
        HelloReply { tags: pairs(&[("dc", "ny")]), ..primary(&["a"]) },
    ];
    for (number, hello) in hellos.iter().enumerate() {
        assert!(net.hello("a", hello));
        let server = net.see("a");
        let hosts = server.hosts().chain(server.passives()).chain(server.arbiters());
        assert_eq!((hosts.count(), server.tags().count()), (0, 0), "{number}");
        assert_eq!((server.me(), server.primary(), server.set_name()), (None, None, Some("rs")));
        assert_eq!(net.actions().last(), Some(&TopologyAction::WakeSelectors));
        // Only the first reply changes what is stored.
        let expected: &[&str] = match number {
            0 => &["a:27017: Unknown -> RSPrimary", "Single [a:27017: Unknown] -> Single [a:27017: RSPrimary]"],
            _ => &[],
        };
        assert_eq!(net.lines(), expected, "{number}");
    }
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
    for expected in [None, Some("expect")] {
        let mut net = direct(expected);
        for number in 100..1_000 {
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
    let long = "x".repeat(17);
    assert!(!net.hello("a", &HelloReply { set_name: Some(&long), ..primary(&["a"]) }));
    assert_eq!(net.see("a").error(), Some(ServerError::Beyond { limit: Limit::Texts, count: 3 }));
    assert!(net.hello("a", &primary(&["a"])));
}

#[test]
fn topology_is_opened_again_with_another_set_name() {
    let mut net = direct(Some("first0"));
    for name in [Some("other0"), None, Some("other1"), Some("other2"), None] {
        net.hello("a", &HelloReply { set_name: Some("other!"), ..primary(&["a"]) });
        net.topology.close(net.now, &mut net.lines);
        net.drain();
        assert_eq!(net.topology.server_count(), 0);
        let options = TopologyOptions { replica_set: name, ..OPTIONS };
        net.topology.open(net.now, TopologyId::new(8), options.validate().unwrap(), &mut net.lines).unwrap();
        assert!(net.hello("a", &HelloReply { set_name: name, is_writable_primary: true, ..standalone() }));
    }
}

#[test]
fn set_name_that_is_expected_must_fit() {
    for (name, fits) in [("x".repeat(16), true), ("x".repeat(17), false)] {
        let config = TopologyOptions { replica_set: Some(&name), ..OPTIONS }.validate().unwrap();
        let topology = Topology::<Small>::new(Instant::ORIGIN, TopologyId::new(7), config, &mut Lines::default());
        assert_eq!(topology.is_ok(), fits);
    }
}
