//! Replies that are wrong, huge or contradictory, and limited memory.

use super::*;

fn hosts(range: core::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("host{number}.example.net:27017")).collect()
}

fn borrowed(hosts: &[String]) -> Vec<&str> {
    hosts.iter().map(String::as_str).collect()
}

/// More than a real set can have.
#[test]
#[doc(alias = "SDAM-22")]
fn reply_with_ten_thousand_hosts_makes_its_server_unknown() {
    let many = hosts(0..10_000);
    let many = borrowed(&many);
    let mut net = ready(&["a", "b"]);
    net.hello("b", &secondary(&["a", "b"]));
    for hello in [primary(&many), secondary(&many)] {
        assert!(!net.hello("a", &hello));
        let error = net.see("a").error().unwrap();
        assert_eq!(error, ServerError::Beyond { limit: Limit::Names, count: 512 });
        assert_eq!(error.to_string(), "the hello reply names more than 512 hosts");
        assert_eq!(net.topology.server_count(), 2);
        assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
    }
    assert!(net.hello("a", &primary(&["a", "b"])));
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
}

#[test]
fn reply_with_too_many_members_does_not_change_the_topology() {
    let many = hosts(0..2_047 + 512);
    let many = borrowed(&many);
    let (seeds, more) = many.split_at(2_000);
    let beyond = ServerError::Beyond { limit: Limit::Servers, count: 2048 };
    let mut net = ready(seeds);
    for hello in [secondary(&more[..512]), secondary(&more[..49])] {
        assert!(!net.hello(seeds[0], &hello));
        assert_eq!(net.see(seeds[0]).error(), Some(beyond));
        assert_eq!(net.topology_type(), TopologyType::Unknown);
        assert_eq!(net.topology.description().set_name(), None);
    }
    assert_eq!(beyond.to_string(), "more than 2048 members, or too many replaced at once");
    net.hello(seeds[0], &secondary(&more[..48]));
    assert_eq!(net.topology.server_count(), 2_048);
}

#[test]
fn fields_of_addresses_have_their_names_in_a_reply() {
    let fields =
        [AddressField::Hosts, AddressField::Passives, AddressField::Arbiters, AddressField::Me, AddressField::Primary];
    assert_eq!(fields.map(AddressField::name), ["hosts", "passives", "arbiters", "me", "primary"]);
}

#[test]
fn reply_with_a_bad_address_makes_its_server_unknown() {
    let long = "x".repeat(300);
    for bad in ["", "b:0", "b:65536", "b:x", "b c", "[::1", &long] {
        let listed = [long.as_str(), "b"];
        let listed = if bad == long { &listed[..] } else { &["b", bad][..] };
        let place = u16::from(bad != long);
        let of = |lists: Lists<'_>| lists.of(secondary(&[]));
        let none = Lists::default();
        for (hello, field, place) in [
            (of(Lists { hosts: listed, ..none }), AddressField::Hosts, place),
            (of(Lists { passives: listed, ..none }), AddressField::Passives, place),
            (of(Lists { arbiters: listed, ..none }), AddressField::Arbiters, place),
            (HelloReply { me: Some(bad), ..secondary(&["a"]) }, AddressField::Me, 0),
            (HelloReply { primary: Some(bad), ..secondary(&["a"]) }, AddressField::Primary, 0),
        ] {
            let mut net = ready(&["a"]);
            assert!(!net.hello("a", &hello));
            let error = net.see("a").error().unwrap();
            assert_eq!(error, ServerError::BadAddress { field, place });
            assert!(error.to_string().contains(field.name()));
            assert_eq!(net.topology.server_count(), 1);
        }
    }
}

#[test]
fn contradictory_roles_are_resolved_by_their_order() {
    let all = HelloReply {
        is_writable_primary: true,
        secondary: true,
        arbiter_only: true,
        hidden: true,
        is_replica_set: true,
        is_db_grid: true,
        ..member(&["a"])
    };
    for (hello, wanted) in [
        (all, ServerType::RsGhost),
        (HelloReply { is_replica_set: false, ..all }, ServerType::Mongos),
        (HelloReply { is_db_grid: false, is_replica_set: false, ..all }, ServerType::RsOther),
        (HelloReply { is_db_grid: false, is_replica_set: false, hidden: false, ..all }, ServerType::RsPrimary),
        (HelloReply { secondary: true, arbiter_only: true, ..member(&["a"]) }, ServerType::RsSecondary),
        (HelloReply { set_name: None, is_db_grid: false, is_replica_set: false, ..all }, ServerType::Standalone),
    ] {
        let mut net = open(TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() });
        net.hello("a", &hello);
        assert_eq!(net.see("a").server_type(), wanted);
    }
}

#[test]
fn unusual_numbers_are_accepted() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &HelloReply { set_version: Some(-1), ..elected(&["a", "b"], 1, 0) });
    assert_eq!(net.topology.description().max_set_version(), Some(-1));
    net.hello("b", &HelloReply { set_version: Some(i64::MIN), ..elected(&["a", "b"], 1, 0) });
    assert_eq!(net.see("a").server_type(), ServerType::RsPrimary);
    let wire = HelloReply { min_wire_version: i32::MAX, max_wire_version: i32::MIN, ..primary(&["a", "b"]) };
    net.hello("a", &wire);
    assert!(!net.topology.description().is_compatible());
    let odd = HelloReply {
        logical_session_timeout_minutes: Some(-5),
        last_write_date_ms: Some(i64::MIN),
        ..primary(&["a", "b"])
    };
    net.hello("a", &odd);
    net.topology.assert_invariants();
}

/// A primary that lists no host, not even itself, is believed.
#[test]
#[doc(alias("SDAM-57", "SDAM-58"))]
fn primary_without_hosts_empties_the_set() {
    let mut net = ready(&["a", "b"]);
    assert!(!net.hello("a", &primary(&[])));
    assert_eq!(net.topology.server_count(), 0);
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
}

#[test]
#[doc(alias = "SDAM-21")]
fn hosts_of_a_ghost_are_ignored() {
    let mut net = ready(&["a"]);
    net.hello("a", &HelloReply { is_replica_set: true, ..primary(&["x", "y"]) });
    assert_eq!(net.types(), [("a:27017".into(), ServerType::RsGhost)]);
    assert_eq!(net.topology_type(), TopologyType::Unknown);
    assert_eq!(net.topology.description().set_name(), None);
}

type Small = Fixed<4, 4, 8, 128>;

fn small() -> Net<Small> {
    let mut net = open_in(TopologyOptions { seeds: &["a"], ..TopologyOptions::default() });
    net.drain();
    net
}

#[test]
fn fixed_memory_follows_a_set_that_fits() {
    let mut net = small();
    net.hello("a", &primary(&["a", "b", "c"]));
    net.drain();
    // One member is replaced: four slots, three members.
    net.hello("a", &primary(&["a", "b", "d"]));
    assert_eq!(net.actions().len(), 4);
    net.hello("b", &secondary(&["a", "b", "d"]));
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    assert!(net.topology.servers().all(|server| server.error().is_none()));
}

#[test]
fn exceeding_fixed_memory_is_a_temporary_error() {
    let (long, longer) = ("x".repeat(200), "x".repeat(256));
    for (hello, limit, count) in [
        (primary(&["a", "b", "c", "d", "e"]), Limit::Names, 4),
        (primary(&["b", "c", "d", "e"]), Limit::Servers, 4),
        (primary(&["a", &long]), Limit::Texts, 8),
        (HelloReply { set_name: Some(&long), ..primary(&["a"]) }, Limit::Texts, 8),
        (HelloReply { set_name: Some(&longer), ..primary(&["a"]) }, Limit::SetName, 255),
    ] {
        let mut net = small();
        assert!(!net.hello("a", &hello));
        assert_eq!(net.see("a").error(), Some(ServerError::Beyond { limit, count }));
        assert_eq!(net.topology_type(), TopologyType::Unknown);
        assert!(net.hello("a", &primary(&["a", "b"])));
        assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    }
}

/// A set whose members were all replaced between two checks, or whose seeds have other names than
/// its members: the first reply makes room for the second.
#[test]
fn members_that_do_not_fit_are_added_by_the_next_check() {
    let beyond = ServerError::Beyond { limit: Limit::Servers, count: 4 };
    for hosts in [["a", "d", "e"], ["d", "e", "f"]] {
        let mut net = small();
        net.hello("a", &primary(&["a", "b", "c"]));
        net.drain();
        assert!(!net.hello("a", &primary(&hosts)));
        assert_eq!(net.see("a").error(), Some(beyond));
        assert_eq!(net.topology.servers().map(|it| it.address().to_string()).collect::<Vec<_>>(), ["a:27017"]);
        assert_eq!(net.topology_type(), TopologyType::ReplicaSetNoPrimary);
        let asked = net.actions();
        assert!(asked.iter().any(|action| matches!(action, TopologyAction::RequestCheck(_))), "{asked:?}");
        net.hello("a", &primary(&hosts));
        let mut members: Vec<_> = net.topology.servers().map(|it| it.address().to_string()).collect();
        members.sort_unstable();
        assert_eq!(members, hosts.map(|host| format!("{host}:27017")));
    }
    // A stale primary removes no server.
    let mut net = small();
    let of = |version, hosts| HelloReply {
        set_version: Some(version),
        election_id: Some(ObjectId([9; 12])),
        ..primary(hosts)
    };
    net.hello("a", &of(2, &["a", "b", "c"]));
    net.drain();
    net.hello("b", &of(1, &["b", "d", "e"]));
    assert_eq!(net.topology.server_count(), 3);
}

#[test]
fn seeds_beyond_fixed_memory_are_refused() {
    let config =
        TopologyOptions { seeds: &["a", "b", "c", "d", "e"], ..TopologyOptions::default() }.validate().unwrap();
    let mut lines = Lines::default();
    let topology = Topology::<Small>::new(Instant::ORIGIN, TopologyId::new(1), config, &mut lines);
    assert_eq!(topology.map(|_| ()), Err(Full));
    assert!(lines.0.is_empty());
}

/// Texts that are no longer referenced make room for others.
#[test]
fn fixed_memory_serves_any_number_of_successive_names() {
    let mut net = small();
    for round in 0..1_000 {
        let other = format!("h{round}");
        let tag = format!("{round}");
        let listed = ["a", other.as_str()];
        let lists = Lists { hosts: &listed, tags: &[("t", &tag)], ..Lists::default() };
        assert!(net.hello("a", &lists.of(primary(&[]))), "{round}");
        assert_eq!(net.see("a").tags().collect::<Vec<_>>(), [("t", tag.as_str())]);
        net.drain();
    }
}

/// A peer that invents names cannot make the memory grow without limit.
#[test]
fn growable_memory_releases_unused_names() {
    let mut net = ready(&["a"]);
    for round in 0..200 {
        let mut listed = hosts(round * 50..round * 50 + 50);
        listed.push("a".into());
        net.hello("a", &primary(&borrowed(&listed)));
        net.drain();
        let texts = net.topology.texts.view().slots.len();
        assert!(texts < 300, "{texts} texts after {round} rounds");
        assert!(net.topology.servers.slots().len() <= 102);
    }
}

#[test]
fn members_are_added_after_the_last_serial_number() {
    let mut net = ready(&["a"]);
    net.topology.last_serial = u32::MAX - 1;
    assert!(net.hello("a", &primary(&["a", "b", "c"])));
    assert_eq!((net.at("b").number(), net.at("c").number()), (u32::MAX, 1));
    assert_ne!(net.at("c"), net.at("a"), "the first member has this number at another index");
    assert!(net.hello("a", &primary(&["a", "d"])));
    assert_eq!(net.topology.server_count(), 2);
}

fn tagged<'a>(tags: &'a [(&'a str, &'a str)]) -> Hello<'a> {
    Lists { hosts: &["a"], tags, ..Lists::default() }.of(primary(&[]))
}

/// The server is known without the other tags, and a repeated reply changes nothing.
#[test]
fn tags_beyond_the_limit_are_left_out() {
    let names: Vec<String> = (0..4_000).map(|number| format!("tag{number}")).collect();
    let tags: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let mut net = ready(&["a"]);
    for _ in 0..2 {
        assert!(net.hello("a", &tagged(&tags)));
        assert_eq!(net.see("a").tags().collect::<Vec<_>>(), tags[..511], "together with one host");
    }
    assert_eq!(
        net.lines().iter().filter(|line| line.starts_with("a:27017")).count(),
        1,
        "the repeated reply changes nothing"
    );
    let mut small = small();
    assert!(small.hello("a", &tagged(&tags)));
    assert_eq!(small.see("a").tags().len(), 3);
}

#[test]
fn tags_that_are_too_long_are_left_out() {
    let value = "v".repeat(250);
    let tags = [("12345", value.as_str()), ("123456", value.as_str()), ("dc", "ny")];
    let mut net = ready(&["a"]);
    assert!(net.hello("a", &tagged(&tags)));
    assert_eq!(net.see("a").tags().collect::<Vec<_>>(), [tags[0], tags[2]]);
}

/// Otherwise a hostile member could direct the client to any Unix socket of this machine, without
/// encryption even if `tls` is true.
#[test]
fn reply_that_names_a_unix_socket_is_refused() {
    for path in ["/tmp/evil.sock", "/var/run/docker", "evil.sock"] {
        let listed = ["a", path];
        let lists = |hosts, passives, arbiters| Lists { hosts, passives, arbiters, tags: &[] };
        let of = |lists: Lists<'_>| lists.of(secondary(&[]));
        for (hello, field, place) in [
            (of(lists(&listed, &[], &[])), AddressField::Hosts, 1),
            (of(lists(&[], &listed, &[])), AddressField::Passives, 1),
            (of(lists(&["a"], &[], &listed)), AddressField::Arbiters, 1),
            (HelloReply { me: Some(path), ..secondary(&["a"]) }, AddressField::Me, 0),
            (HelloReply { primary: Some(path), ..secondary(&["a"]) }, AddressField::Primary, 0),
            (of(Lists { arbiters: &[], tags: &[], hosts: &[path], passives: &[] }), AddressField::Hosts, 0),
        ] {
            let mut net = ready(&["a"]);
            // The topology already stores the path as the name of a set. That does not permit it as
            // an address.
            net.hello("a", &HelloReply { set_name: Some(path), ..secondary(&["a"]) });
            assert!(!net.hello("a", &hello));
            assert_eq!(net.see("a").error(), Some(ServerError::BadAddress { field, place }), "{path}");
            assert_eq!(net.types(), [("a:27017".into(), ServerType::Unknown)]);
        }
    }
}

#[test]
fn path_of_an_earlier_seed_is_refused() {
    let seed = "/tmp/mongodb-27017.sock";
    // The removal of the seed may have been polled or not.
    for drains in [true, false] {
        let mut net = ready(&[seed]);
        net.topology.close(net.now, &mut net.lines);
        if drains {
            net.drain();
        }
        let options = TopologyOptions { seeds: &["a"], ..TopologyOptions::default() };
        net.topology.open(net.now, TopologyId::new(8), options.validate().unwrap(), &mut net.lines).unwrap();
        assert!(!net.hello("a", &primary(&["a", seed])));
        let error = ServerError::BadAddress { field: AddressField::Hosts, place: 1 };
        assert_eq!(net.see("a").error(), Some(error), "{drains}");
    }
}

/// The application chose the path, so it is permitted until the topology is closed.
#[test]
fn server_may_name_a_path_that_is_a_seed() {
    let seed = "/tmp/mongodb-27017.sock";
    let mut net = ready(&[seed]);
    let hosts = [seed, "b"];
    assert!(net.hello(seed, &HelloReply { me: Some(seed), ..primary(&hosts) }));
    assert_eq!(net.topology_type(), TopologyType::ReplicaSetWithPrimary);
    assert!(!net.hello("b", &elected(&["b", "/tmp/mongodb-27018.sock"], 1, 1)), "another path is not a seed");
    assert!(net.hello("b", &elected(&["b"], 1, 1)));
    net.drain();
    assert_eq!(net.topology.server_count(), 1, "the seed was removed");
    // Many other names make the topology drop the names that it does not use.
    for round in 0..10 {
        let others = hosts_of(round);
        net.hello("b", &elected(&borrowed(&others), 1, 1));
        net.drain();
    }
    assert!(net.hello("b", &elected(&hosts, 1, 1)));
    assert_eq!(net.at(seed).index(), 0);
}

/// The host "b" and a hundred other hosts.
fn hosts_of(round: usize) -> Vec<String> {
    let mut listed = hosts(round * 100..round * 100 + 100);
    listed.push("b".into());
    listed
}

#[test]
fn repeated_tag_is_stored_once() {
    let mut net = ready(&["a"]);
    let tags = &[("dc", "ny"), ("rack", "1"), ("dc", "ny"), ("dc", "la")];
    net.hello("a", &Lists { hosts: &["a"], tags, ..Lists::default() }.of(primary(&[])));
    assert_eq!(net.see("a").tags().collect::<Vec<_>>(), [("dc", "ny"), ("rack", "1"), ("dc", "la")]);
}

/// Routers and ghosts keep their type with a set name and without.
#[test]
fn added_or_removed_set_name_is_a_change() {
    let mut net = ready(&["a"]);
    let named = HelloReply { set_name: Some("rs"), ..mongos() };
    for (hello, name) in
        [(mongos(), None), (named, Some("rs")), (mongos(), None), (mongos(), None), (named, Some("rs"))]
    {
        assert!(net.hello("a", &hello));
        let see = net.see("a");
        assert_eq!((see.set_name(), see.server_type()), (name, ServerType::Mongos));
    }
    assert_eq!(net.lines().iter().filter(|line| line.starts_with("a:27017")).count(), 4, "one reply said nothing new");
}

/// The formatter returns an error when the text does not fit, wherever it is cut.
#[test]
fn errors_that_do_not_fit_are_not_cut_silently() {
    let errors = [
        ServerError::StateChange { change: StateChange::Recovering, code: 91 },
        ServerError::Beyond { limit: Limit::Texts, count: 64 },
        ServerError::BadAddress { field: AddressField::Hosts, place: 3 },
        ServerError::WrongSetName,
    ];
    errors.iter().for_each(crate::storage::tests::assert_never_cut_silently);
}

#[test]
fn set_name_that_a_server_chose_is_shown_on_one_line() {
    let mut net = ready(&["a"]);
    net.hello("a", &HelloReply { set_name: Some("rs\nWARN\u{9b}2J\u{202e}"), ..primary(&["a"]) });
    let topology = net.topology.description();
    assert_eq!(topology.set_name(), Some("rs\nWARN\u{9b}2J\u{202e}"));
    assert!(topology.to_string().contains(" rs WARN 2J  ["), "{topology}");
}
