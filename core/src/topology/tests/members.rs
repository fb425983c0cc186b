//! Options, addresses, descriptions.

use super::*;
use crate::replies::pairs;

#[test]
#[doc(alias("SDAM-05", "SDAM-07"))]
fn topology_starts_with_the_type_of_its_options() {
    let start = |seeds: &[&str], replica_set, direct_connection, load_balanced| {
        let options = TopologyOptions { seeds, replica_set, direct_connection, load_balanced };
        options.validate().unwrap().topology_type()
    };
    assert_eq!(start(&["a"], None, false, false), TopologyType::Unknown);
    assert_eq!(start(&["a", "b"], None, false, false), TopologyType::Unknown);
    assert_eq!(start(&["a"], Some("rs"), false, false), TopologyType::ReplicaSetNoPrimary);
    assert_eq!(start(&["a"], None, true, false), TopologyType::Single);
    assert_eq!(start(&["a"], Some("rs"), true, false), TopologyType::Single);
    assert_eq!(start(&["a"], None, false, true), TopologyType::LoadBalanced);
}

#[test]
#[doc(alias = "SDAM-06")]
fn contradicting_options_are_refused() {
    let check = |seeds: &[&str], replica_set, direct_connection, load_balanced| {
        TopologyOptions { seeds, replica_set, direct_connection, load_balanced }.validate().unwrap_err()
    };
    assert_eq!(check(&["a", "b"], None, true, false), TopologyConfigError::DirectWithManySeeds);
    assert_eq!(check(&["a", "b"], None, false, true), TopologyConfigError::LoadBalancedWithManySeeds);
    assert_eq!(check(&["a"], None, true, true), TopologyConfigError::LoadBalancedAndDirect);
    assert_eq!(check(&["a"], Some("rs"), false, true), TopologyConfigError::LoadBalancedWithReplicaSet);
    let error = check(&["a", "b:x"], None, false, false);
    assert_eq!(error, TopologyConfigError::BadSeed(1));
    assert_eq!(error.to_string(), "the host at index 1 is not a valid address");
}

#[test]
#[doc(alias("SDAM-04", "SDAM-28"))]
fn addresses_are_lower_case_with_port_and_brackets() {
    for (text, normal, parts) in [
        ("LOCALHOST", "localhost:27017", HostAddress::Tcp { host: "localhost", port: 27017 }),
        ("a.Example.com:1", "a.example.com:1", HostAddress::Tcp { host: "a.example.com", port: 1 }),
        ("10.0.0.1:65535", "10.0.0.1:65535", HostAddress::Tcp { host: "10.0.0.1", port: 65535 }),
        ("a:027", "a:27", HostAddress::Tcp { host: "a", port: 27 }),
        ("[::1]", "[::1]:27017", HostAddress::Tcp { host: "::1", port: 27017 }),
        ("[FE80::1%eth0]:10", "[fe80::1%eth0]:10", HostAddress::Tcp { host: "fe80::1%eth0", port: 10 }),
        ("/tmp/Mongo-27017.sock", "/tmp/Mongo-27017.sock", HostAddress::Unix("/tmp/Mongo-27017.sock")),
    ] {
        let net = ready(&[text]);
        let server = net.topology.servers().next().unwrap();
        assert_eq!(server.address(), normal);
        assert_eq!(server.host_address(), parts);
        assert_eq!(net.topology.find(text), Some(server.server()));
        assert_eq!(net.topology.address(server.server()), Some(normal));
    }
}

#[test]
fn a_path_of_255_bytes_is_an_address_and_a_longer_one_is_none() {
    let path = format!("/{}.sock", "x".repeat(249));
    assert_eq!(path.len(), 255);
    let mut net = ready(&[path.as_str()]);
    assert_eq!(net.see(&path).address(), path);
    net.hello(&path, &standalone());
    let longer = format!("/{path}");
    let options = TopologyOptions { seeds: &[longer.as_str()], ..TopologyOptions::default() };
    assert!(options.validate().is_err());
}

#[test]
fn invalid_addresses_are_refused() {
    let long = "x".repeat(256);
    let nul = "/tmp/\0.sock";
    for text in [
        "",
        ":1",
        "a:",
        "a:0",
        "a:65536",
        "a:99999999999",
        "a:000080",
        "a:-1",
        "a:1 ",
        " a",
        "a b",
        "a:b:c",
        "::1",
        "[::1",
        "[::1]x",
        "[]",
        "[x]:1",
        "[::1%]",
        "a/b",
        "a@b",
        "a\0b",
        "a\u{7f}",
        "a,b",
        "[::1]:",
        &long,
        nul,
    ] {
        let options = TopologyOptions { seeds: &[text], ..TopologyOptions::default() };
        assert_eq!(options.validate(), Err(TopologyConfigError::BadSeed(0)), "{text:?}");
    }
}

#[test]
fn repeated_seed_is_one_server() {
    let net = ready(&["a", "A:27017", "b"]);
    assert_eq!(net.topology.server_count(), 2);
}

#[test]
#[doc(alias("LOG-05", "SDAM-12", "SDAM-27"))]
fn equal_description_is_replaced_without_an_event() {
    let mut net = ready(&["a"]);
    let hello = HelloReply { last_write_date_ms: Some(10), ..primary(&["a"]) };
    net.hello("a", &hello);
    net.drain();
    let before = net.see("a").last_update_time();
    let times = RoundTrip { average: Duration::from_secs(1), minimum: Duration::from_millis(1) };
    let now = net.now.saturating_add(Duration::from_secs(9));
    let server = net.at("a");
    let again = HelloReply { last_write_date_ms: Some(20), ..hello };
    assert!(net.topology.handle_hello(now, server, &again, Some(times), &mut net.lines));
    let after = net.see("a");
    assert!(after.last_update_time() > before);
    assert_eq!(after.last_update_time(), now);
    assert_eq!(after.round_trip_time(), Some(Duration::from_secs(1)));
    assert_eq!(after.min_round_trip_time(), Some(Duration::from_millis(1)));
    assert_eq!(after.last_write_date_ms(), Some(20));
    assert_eq!(net.lines(), Vec::<String>::new());
}

#[test]
#[doc(alias = "SDAM-25")]
fn round_trip_is_kept_between_known_types_and_lost_with_unknown() {
    let mut net = ready(&["a"]);
    assert_eq!(net.see("a").round_trip_time(), None);
    net.hello("a", &primary(&["a"]));
    // An application's hello yields no round-trip time, but changes the type.
    let server = net.at("a");
    net.topology.handle_hello(net.now, server, &secondary(&["a"]), None, &mut ());
    assert_eq!(net.see("a").server_type(), ServerType::RsSecondary);
    assert_eq!(net.see("a").round_trip_time(), Some(Duration::from_millis(5)));
    assert_eq!(net.see("a").min_round_trip_time(), Some(Duration::from_millis(4)));
    net.fail("a", Cause::Network);
    assert_eq!(net.see("a").round_trip_time(), None);
    assert_eq!(net.see("a").min_round_trip_time(), None);
    net.topology.handle_hello(net.now, server, &secondary(&["a"]), None, &mut ());
    assert_eq!(net.see("a").round_trip_time(), None);
}

#[test]
#[doc(alias("SDAM-26", "SDAM-29", "SDAM-30"))]
fn description_contains_the_fields_of_the_reply() {
    let mut net = ready(&["a"]);
    let version = TopologyVersion { process_id: ObjectId([3; 12]), counter: 4 };
    let lists = Lists { hosts: &["A", "b"], passives: &["C:1"], arbiters: &["d"], tags: &[("dc", "ny"), ("e", "")] };
    let hello = HelloReply {
        me: Some("A:27017"),
        primary: Some("B"),
        set_version: Some(5),
        election_id: Some(ObjectId([6; 12])),
        min_wire_version: 7,
        last_write_date_ms: Some(8),
        logical_session_timeout_minutes: Some(9),
        topology_version: Some(version),
        is_cryptd: true,
        ..lists.of(secondary(&[]))
    };
    net.hello("a", &hello);
    let seen = net.see("a");
    assert_eq!(seen.me(), Some("a:27017"));
    assert_eq!(seen.primary(), Some("b:27017"));
    assert_eq!(seen.set_name(), Some("rs"));
    assert_eq!(seen.set_version(), Some(5));
    assert_eq!(seen.election_id(), Some(ObjectId([6; 12])));
    assert_eq!((seen.min_wire_version(), seen.max_wire_version()), (Some(7), Some(21)));
    assert_eq!(seen.last_write_date_ms(), Some(8));
    assert_eq!(seen.logical_session_timeout_minutes(), Some(9));
    assert_eq!(seen.topology_version(), Some(version));
    assert!(seen.is_cryptd());
    assert_eq!(seen.hosts().collect::<Vec<_>>(), ["a:27017", "b:27017"]);
    assert_eq!(seen.passives().collect::<Vec<_>>(), ["c:1"]);
    assert_eq!(seen.arbiters().collect::<Vec<_>>(), ["d:27017"]);
    assert_eq!(seen.tags().collect::<Vec<_>>(), [("dc", "ny"), ("e", "")]);
    assert_eq!(seen.error(), None);
}

/// Whether a change of each single field causes an event.
#[test]
#[doc(alias = "SDAM-32")]
fn equality_looks_at_exactly_the_fields_of_the_specification() {
    let version = |counter| Some(TopologyVersion { process_id: ObjectId([1; 12]), counter });
    let lists = Lists { hosts: &["a", "b"], passives: &["c"], arbiters: &["d"], tags: &[("x", "1"), ("y", "2")] };
    let base = HelloReply { topology_version: version(1), ..lists.of(secondary(&[])) };
    let with = |change: &dyn Fn(&mut Hello<'static>)| {
        let mut hello = base;
        change(&mut hello);
        hello
    };
    let cases: [(&str, bool, Hello<'_>); 21] = [
        ("type", true, with(&|hello| hello.secondary = false)),
        ("min wire", true, with(&|hello| hello.min_wire_version = 1)),
        ("max wire", true, with(&|hello| hello.max_wire_version = 20)),
        ("me", true, with(&|hello| hello.me = Some("a"))),
        ("hosts", true, with(&|hello| hello.hosts = texts(&["a", "b", "e"]))),
        ("passives", true, with(&|hello| hello.passives = texts(&["e"]))),
        ("arbiters", true, with(&|hello| hello.arbiters = texts(&[]))),
        ("host as passive", true, with(&|hello| (hello.hosts, hello.passives) = (texts(&["a"]), texts(&["b", "c"])))),
        ("tags", true, with(&|hello| hello.tags = pairs(&[("x", "1"), ("y", "3")]))),
        ("fewer tags", true, with(&|hello| hello.tags = pairs(&[("x", "1")]))),
        ("setVersion", true, with(&|hello| hello.set_version = Some(1))),
        ("electionId", true, with(&|hello| hello.election_id = Some(ObjectId([0; 12])))),
        ("primary", true, with(&|hello| hello.primary = Some("b"))),
        ("session timeout", true, with(&|hello| hello.logical_session_timeout_minutes = Some(1))),
        ("topologyVersion", true, with(&|hello| hello.topology_version = version(2))),
        ("iscryptd", true, with(&|hello| hello.is_cryptd = true)),
        ("last write", false, with(&|hello| hello.last_write_date_ms = Some(1))),
        ("order of hosts", false, with(&|hello| hello.hosts = texts(&["b", "a"]))),
        ("order of tags", false, with(&|hello| hello.tags = pairs(&[("y", "2"), ("x", "1")]))),
        ("spelling", false, with(&|hello| hello.hosts = texts(&["A:27017", "b:27017"]))),
        ("twice", false, with(&|hello| hello.hosts = texts(&["a", "a", "b"]))),
    ];
    for (what, is_event, changed) in cases {
        let mut net = ready(&["a"]);
        net.hello("a", &base);
        net.drain();
        net.hello("a", &changed);
        let told = net.lines().iter().any(|line| line.starts_with("a:27017: "));
        assert_eq!(told, is_event, "{what}");
    }
}

/// The error counts too.
#[test]
#[doc(alias = "SDAM-32")]
fn another_error_is_another_description() {
    let mut net = ready(&["a"]);
    net.fail("a", Cause::Network);
    assert_eq!(net.lines()[0], "a:27017: Unknown -> Unknown");
    net.fail("a", Cause::Network);
    assert_eq!(net.lines(), Vec::<String>::new());
    net.fail("a", Cause::NetworkTimeout);
    assert_eq!(net.lines()[0], "a:27017: Unknown -> Unknown");
}

/// The set name.
#[test]
#[doc(alias = "SDAM-32")]
fn another_set_name_is_another_description() {
    let mut net = open(TopologyOptions { seeds: &["a"], direct_connection: true, ..TopologyOptions::default() });
    net.hello("a", &secondary(&[]));
    net.drain();
    net.hello("a", &HelloReply { set_name: Some("other"), ..secondary(&[]) });
    assert_eq!(net.lines()[0], "a:27017: RSSecondary -> RSSecondary");
    assert_eq!(net.see("a").set_name(), Some("other"));
}

#[test]
#[doc(alias("SDAM-11", "SDAM-31"))]
fn only_an_older_topology_version_of_the_same_process_is_ignored() {
    let version = |process, counter| Some(TopologyVersion { process_id: ObjectId([process; 12]), counter });
    let cases = [
        (version(1, 4), false),
        (version(1, i64::MIN), false),
        (version(1, 5), true),
        (version(1, i64::MAX), true),
        (version(2, i64::MIN), true),
        (None, true),
    ];
    for (new, is_taken) in cases {
        let mut net = ready(&["a"]);
        net.hello("a", &HelloReply { topology_version: version(1, 5), ..primary(&["a"]) });
        net.drain();
        let known = net.hello("a", &HelloReply { topology_version: new, ..secondary(&["a"]) });
        assert!(known);
        let is_secondary = net.see("a").server_type() == ServerType::RsSecondary;
        assert_eq!(is_secondary, is_taken, "{new:?}");
        assert_eq!(net.actions().is_empty(), !is_taken, "{new:?}");
    }
}

#[test]
fn clock_that_goes_back_keeps_the_latest_time() {
    let mut net = ready(&["a"]);
    net.hello("a", &primary(&["a"]));
    let latest = net.now;
    net.now = Instant::ORIGIN;
    net.hello("a", &primary(&["a"]));
    assert_eq!(net.see("a").last_update_time(), latest);
}

/// A copy is a snapshot; later changes do not affect it.
#[test]
#[doc(alias = "SDAM-62")]
fn copies_do_not_change_with_the_topology() {
    let mut net = ready(&["a", "b"]);
    let tags = Lists { hosts: &["a", "b"], tags: &[("dc", "ny")], ..Lists::default() };
    net.hello("a", &HelloReply { me: Some("a"), ..tags.of(primary(&[])) });
    let shown = net.topology.description().to_string();
    let copy = net.topology.description().to_owned();
    let server = net.see("a").to_owned();
    let id = net.at("a");
    net.hello("a", &primary(&["c"]));
    net.actions();
    assert_eq!(copy.get().to_string(), shown);
    assert_eq!(copy.get().server(id).unwrap().tags().collect::<Vec<_>>(), [("dc", "ny")]);
    assert_eq!(server.get().address(), "a:27017");
    assert_eq!(server.get().me(), Some("a:27017"));
    assert_eq!(server.get().set_name(), Some("rs"));
    assert_eq!(server.get().hosts().collect::<Vec<_>>(), ["a:27017", "b:27017"]);
    assert_eq!(server.get().tags().collect::<Vec<_>>(), [("dc", "ny")]);
    let event = SdamEvent::ServerClosed { topology: TopologyId::new(1), server: id, address: "x" }.to_owned();
    assert!(matches!(event, OwnedSdamEvent::ServerClosed { address, .. } if address == "x"));
}

/// A copy stores its servers without gaps. An id still finds its server there, and the id of a
/// removed server finds none.
#[test]
fn copies_find_servers_by_their_ids() {
    let mut net = ready(&["a", "b", "c"]);
    let [a, b, c] = ["a", "b", "c"].map(|address| net.at(address));
    net.hello("b", &primary(&["b", "c"]));
    net.actions();
    let copy = net.topology.description().to_owned();
    for description in [copy.get(), net.topology.description()] {
        let found = [a, b, c].map(|id| description.server(id).map(|server| (server.server(), server.address().len())));
        assert_eq!(found, [None, Some((b, 7)), Some((c, 7))]);
        assert!(description.server(ServerId::new(9)).is_none());
    }
}

#[test]
fn debug_of_descriptions_shows_the_distinguishing_fields() {
    let mut net = ready(&["a", "b"]);
    net.hello("a", &elected(&["a", "b"], 2, 9));
    let shown = format!("{:?}", net.topology.description());
    assert!(shown.starts_with("TopologyDescription { type: ReplicaSetWithPrimary, set_name: Some(\"rs\")"), "{shown}");
    let election = ObjectId([2; 12]);
    for said in ["\"a:27017\"", "\"b:27017\"", "RsPrimary", "set_version: Some(9)", &format!("{election:?}")] {
        assert!(shown.contains(said), "{said} is not in {shown}");
    }
    let (copy, server) = (net.topology.description().to_owned(), net.see("a").to_owned());
    assert_eq!(format!("{copy:?}"), shown);
    assert_eq!(copy.get().id(), net.topology.description().id());
    let one = format!("{:?}", net.see("a"));
    assert!(shown.contains(&one), "{one} is not in {shown}");
    assert_eq!(format!("{server:?}"), one);
}

#[test]
#[doc(alias = "SDAM-06")]
fn texts_of_refused_options_name_the_options() {
    let of = |options: TopologyOptions<'_>| options.validate().unwrap_err().to_string();
    let balanced = TopologyOptions { load_balanced: true, ..TopologyOptions::default() };
    assert_eq!(
        of(TopologyOptions { seeds: &["a", "b"], ..balanced }),
        "loadBalanced is true, but there is more than one host"
    );
    assert_eq!(
        of(TopologyOptions { seeds: &["a"], direct_connection: true, ..balanced }),
        "loadBalanced and directConnection are both true"
    );
}

#[test]
#[doc(alias = "SDAM-35")]
fn incompatible_server_is_named_in_the_error() {
    let mut net = ready(&["a"]);
    net.hello("a", &HelloReply { min_wire_version: 999, max_wire_version: 1000, ..standalone() });
    let description = net.topology.description();
    let error = description.compatibility_error().expect("too new");
    assert_eq!((error.address(), error.mismatch()), ("a:27017", WireMismatch::ServerTooNew(999)));
    assert!(error.to_string().starts_with("Server at a:27017 requires wire version 999"), "{error}");
}
