//! Rows of the tables of nodes, without a network.

use super::tables::{COLUMNS_MAX, NAME_BYTES_MAX, NODE_TOKENS_MAX, REPLICATION_BYTES_MAX, ROWS_MAX, TOKENS_BYTES_MAX};
use super::*;
use crate::mux::routing::REPLICATIONS_MAX;
use alloc::format;
use alloc::vec;
use core::net::IpAddr;
use poolhouse_core::cluster::NodeRow;
use poolhouse_cql::{Outcome, OutcomeKind, RING_TOKENS_MAX};

fn int(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("small").to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&int(bytes.len()), bytes].concat()
}

/// The body of rows whose columns are texts, or sets of texts.
fn body(names: &[&str], rows: &[&[&[u8]]]) -> Vec<u8> {
    let mut body = [int(1), int(names.len())].concat();
    body.extend([string("system"), string("nodes")].concat());
    for name in names {
        body.extend(string(name));
        body.extend([0, 13]);
    }
    body.extend(int(rows.len()));
    body.extend(rows.iter().flat_map(|row| row.iter()).flat_map(|cell| long(cell)));
    body
}

fn rows(body: &[u8]) -> Rows<'_> {
    Outcome { kind: OutcomeKind::Rows, body }.rows().expect("well-formed").expect("rows")
}

fn tokens(count: usize) -> Vec<u8> {
    let mut cell = int(count).to_vec();
    cell.extend((0..count).flat_map(|_| long(b"7")));
    cell
}

/// The result of a computation that only yields, and the number of its turns.
fn finish<T>(work: impl Future<Output = T>) -> (T, usize) {
    let mut work = core::pin::pin!(work);
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    for turns in 1.. {
        if let core::task::Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return (done, turns);
        }
    }
    unreachable!("it ends")
}

fn options() -> SessionOptions {
    SessionOptions::contact_points(["10.0.0.1", "db"])
}

fn read_peers(body: &[u8]) -> Vec<NodeRow> {
    let options = options();
    finish(tables::peers(rows(body), &Addresses::new(&options, None))).0
}

#[test]
fn tokens_of_all_rows_are_not_many_more_than_those_of_a_ring() {
    let most = tokens(NODE_TOKENS_MAX);
    let row: &[&[u8]] = &[b"r1", &most];
    let body = body(&["rack", "tokens"], &vec![row; RING_TOKENS_MAX / NODE_TOKENS_MAX + 2]);
    let read: Vec<usize> = read_peers(&body).iter().map(|row| row.tokens.len()).collect();
    assert_eq!(read.iter().sum::<usize>(), RING_TOKENS_MAX + 1);
    assert_eq!(read.last(), Some(&0));
}

#[test]
fn row_beyond_a_limit_lacks_what_is_too_long() {
    let (most, more) = (tokens(NODE_TOKENS_MAX), tokens(NODE_TOKENS_MAX + 1));
    let (long, longer) = (vec![b'x'; NAME_BYTES_MAX], vec![b'x'; NAME_BYTES_MAX + 1]);
    let body = body(&["rack", "data_center", "tokens"], &[&[&long, &longer, &most], &[&longer, &long, &more]]);
    let read = read_peers(&body);
    assert_eq!((read[0].rack.is_some(), read[0].data_center.is_some()), (true, false));
    assert_eq!((read[1].rack.is_some(), read[1].data_center.is_some()), (false, true));
    assert_eq!((read[0].tokens.len(), read[1].tokens.len()), (NODE_TOKENS_MAX, 0));
    // Nor has the node of the control connection more.
    let tokens_of_local = |tokens: &[u8]| {
        let body = super::tests::body(&["cluster_name", "tokens"], &[&[b"cluster", tokens]]);
        tables::local_row(rows(&body), &Addresses::new(&options(), None)).expect("a name").node.tokens.len()
    };
    assert_eq!((tokens_of_local(&most), tokens_of_local(&more)), (NODE_TOKENS_MAX, 0));
}

#[test]
fn cell_that_is_too_long_is_not_read() {
    let with_nulls = |bytes: usize| {
        let count = (bytes - 4 - 5) / 4;
        let nulls = (0..count).flat_map(|_| (-1_i32).to_be_bytes());
        int(count + 1).into_iter().chain(long(b"7")).chain(nulls).collect::<Vec<u8>>()
    };
    let (most, more) = (with_nulls(TOKENS_BYTES_MAX - 3), with_nulls(TOKENS_BYTES_MAX + 1));
    assert_eq!((most.len(), more.len()), (TOKENS_BYTES_MAX - 3, TOKENS_BYTES_MAX + 1));
    let read = read_peers(&body(&["tokens"], &[&[&most], &[&more]]));
    assert_eq!((&read[0].tokens[..], &read[1].tokens[..]), (&[7][..], &[][..]));
    let replicated = |name_bytes: usize| {
        let name = "x".repeat(name_bytes);
        let cell = replication(&[("class", "NetworkTopologyStrategy"), (&name, "3")]);
        let body = body(&["keyspace_name", "replication"], &[&[b"shop", &cell]]);
        finish(tables::keyspaces(rows(&body), None)).0.names().count()
    };
    assert_eq!((replicated(REPLICATION_BYTES_MAX / 2), replicated(REPLICATION_BYTES_MAX)), (1, 0));
}

#[test]
fn first_column_of_a_name_is_read() {
    let read = read_peers(&body(&["rack", "rack", "rack"], &[&[b"r1", b"r2", b"r3"]]));
    assert_eq!(read[0].rack.as_deref(), Some("r1"));
}

/// What a session finds out about the cluster from these answers.
fn discovered(options: &SessionOptions, peer: Option<SocketAddr>, local: &[u8], peers: &[u8]) -> ClusterStatus {
    let now = Instant::ORIGIN;
    let mut discovery = Discovery::new(now, options, 1);
    let addresses = Addresses::new(options, peer);
    let cluster = &mut discovery.cluster;
    while let Some(action) = cluster.poll_action(now) {
        match action {
            ClusterAction::Connect(_) => cluster.handle_connected(now, peer, &mut ()),
            ClusterAction::Send(ClusterQuery::Register) => cluster.handle_registered(),
            ClusterAction::Send(ClusterQuery::Local) => {
                let row = tables::local_row(rows(local), &addresses).expect("a name");
                cluster.handle_local(now, row, &mut ());
            }
            ClusterAction::Send(ClusterQuery::Peers) => {
                cluster.handle_peers(now, finish(tables::peers(rows(peers), &addresses)).0, &mut ());
            }
            ClusterAction::Send(ClusterQuery::Keyspaces) => cluster.handle_keyspaces(),
            ClusterAction::Publish => {}
            ClusterAction::Close | ClusterAction::Send(ClusterQuery::OldLocal | ClusterQuery::OldPeers) => {
                panic!("the answers are good: {action:?}")
            }
        }
    }
    discovery.status(&Hosts::new(Vec::new()))
}

/// Two nodes that one address reaches are one node.
#[test]
fn rows_of_an_address_that_is_known_are_counted() {
    let found = |options: &SessionOptions| {
        let peer = Some(SocketAddr::from(([10, 0, 0, 1], 9042)));
        let ip = |number: u8| [10, 0, 0, number];
        let port = |number: u32| number.to_be_bytes();
        let local =
            body(&["cluster_name", "rpc_address", "data_center", "rack"], &[&[b"cluster", &ip(1), b"east", b"r1"]]);
        let peers = body(
            &["native_address", "native_port", "data_center", "rack"],
            &[
                &[&ip(2), &port(9042), b"east", b"r1"],
                &[&ip(2), &port(9043), b"east", b"r1"],
                &[&ip(3), &port(9042), b"east", b"r1"],
            ],
        );
        let status = discovered(options, peer, &local, &peers);
        (status.nodes.len(), status.ignored_rows)
    };
    assert_eq!(found(&options()), (3, 1));
    assert_eq!(found(&options().node_ports(true)), (4, 0));
    let one = options().address_translator(|_| SocketAddr::from(([10, 0, 0, 9], 9042)));
    assert_eq!(found(&one), (1, 3));
}

/// It accepts clients at all of its addresses, so the row does not name one.
#[test]
fn node_without_an_address_for_clients_is_reached_at_that_of_the_connection_or_for_other_nodes() {
    let local = body(
        &["cluster_name", "broadcast_address", "rpc_address", "rpc_port", "data_center", "rack"],
        &[&[b"cluster", &[10, 0, 0, 5], &[0, 0, 0, 0], &9043_u32.to_be_bytes(), b"east", b"r1"]],
    );
    let found = |options: &SessionOptions, peer: Option<([u8; 4], u16)>| {
        let status = discovered(options, peer.map(SocketAddr::from), &local, &body(&["rack"], &[]));
        let [node] = &status.nodes[..] else { panic!("one node: {status:?}") };
        node.address.to_string()
    };
    let translated = options().address_translator(|node| {
        let [.., last] = match node.ip() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(_) => panic!("{node}"),
        };
        SocketAddr::from(([10, 9, 9, last], node.port() + 10_000))
    });
    // Over a Unix socket, and with a contact point that is a name.
    assert_eq!(found(&options(), None), "10.0.0.5:9042");
    assert_eq!(found(&options().node_ports(true), None), "10.0.0.5:9043");
    assert_eq!(found(&translated, None), "10.9.9.5:19042");
    let named = Some(([0, 0, 0, 0], 19042));
    assert_eq!(found(&options(), named), "10.0.0.5:19042");
    assert_eq!(found(&translated, named), "10.9.9.5:29042");
    assert_eq!(found(&translated, Some(([10, 0, 0, 1], 19042))), "10.0.0.1:19042");
}

/// The rows of an answer with this body.
fn answered(body: &[u8], rows_max: usize) -> Option<usize> {
    Outcome { kind: OutcomeKind::Rows, body }.rows_within(COLUMNS_MAX, rows_max).ok()?.map(|rows| rows.len())
}

#[test]
fn answer_with_too_many_rows_or_columns_is_refused() {
    let row: &[&[u8]] = &[b"r1"];
    let many = |count| body(&["rack"], &vec![row; count]);
    assert_eq!(answered(&many(ROWS_MAX), ROWS_MAX), Some(ROWS_MAX));
    assert_eq!(answered(&many(ROWS_MAX + 1), ROWS_MAX), None);
    assert_eq!(answered(&body(&["rack"; COLUMNS_MAX], &[]), ROWS_MAX), Some(0));
    assert_eq!(answered(&body(&["rack"; COLUMNS_MAX + 1], &[]), ROWS_MAX), None);
    // Their names and types are 64 KiB at most.
    let name = |bytes: usize| body(&["x".repeat(bytes).as_str(), "rack"], &[]);
    assert_eq!((answered(&name(65_000), 1), answered(&name(65_530), 1)), (Some(0), None));
    // The columns are not even looked at: they are missing.
    let claimed = [int(0), int(COLUMNS_MAX + 1)].concat();
    let error = Outcome { kind: OutcomeKind::Rows, body: &claimed }.rows_within(COLUMNS_MAX, 1).expect_err("too many");
    assert!(error.to_string().contains("column count"), "{error}");
}

fn replication(pairs: &[(&str, &str)]) -> Vec<u8> {
    let parts = pairs.iter().flat_map(|(key, value)| [long(key.as_bytes()), long(value.as_bytes())].concat());
    int(pairs.len()).into_iter().chain(parts).collect()
}

#[test]
fn keyspaces_of_few_replications_are_routed() {
    let class = |name| ("class", name);
    let simple = |factor| replication(&[class("SimpleStrategy"), ("replication_factor", factor)]);
    let (one, local) = (simple("1"), replication(&[class("LocalStrategy")]));
    let factors: Vec<String> = (2..20).map(|factor| factor.to_string()).collect();
    let others: Vec<Vec<u8>> = factors.iter().map(|factor| simple(factor)).collect();
    let long = vec![b'x'; NAME_BYTES_MAX + 1];
    let mut found: Vec<Vec<&[u8]>> = vec![
        vec![b"shop", &one],
        vec![b"tea", &one],
        vec![b"system_auth", &one],
        vec![b"local", &local],
        vec![&long, &one],
    ];
    found.extend(others.iter().map(|other| vec![&b"other"[..], other]));
    let found: Vec<&[&[u8]]> = found.iter().map(Vec::as_slice).collect();
    let body = body(&["keyspace_name", "replication"], &found);
    let (keyspaces, _) = finish(tables::keyspaces(rows(&body), None));
    let names: Vec<&str> = keyspaces.names().collect();
    assert_eq!(names[..3], ["shop", "tea", "other"]);
    assert_eq!(names.len(), 1 + REPLICATIONS_MAX);
}

#[test]
fn rows_and_nodes_are_read_with_pauses() {
    let most = tokens(100);
    let row: &[&[u8]] = &[b"r1", &most];
    let body = body(&["rack", "tokens"], &vec![row; 1_600]);
    let options = options();
    let (_, turns) = finish(tables::peers(rows(&body), &Addresses::new(&options, None)));
    assert_eq!(turns, 401);
    let node = |number: u16| {
        let tokens = (0..32).map(|token| i64::from(number) << 8 | token).collect();
        let node = Node { data_center: String::from("east"), rack: String::from("r1"), tokens, is_up: true };
        (SocketAddr::from(([10, 0, number.to_be_bytes()[0], number.to_be_bytes()[1]], 9042)), Arc::new(node))
    };
    let nodes: Nodes = (0..2_048).map(node).collect();
    assert_eq!(finish(hosts_of(&nodes, &options)).1, 9);
    let mut keyspaces = Keyspaces::default();
    keyspaces.add(String::from("shop"), poolhouse_cql::Replication::Simple { factor: 16 }, None);
    let (routes, turns) = finish(Routes::new(&nodes, &keyspaces, None));
    assert_eq!(routes.map(|routes| routes.keyspace_count()), Ok(1));
    assert!((280..400).contains(&turns), "{turns}");
}

#[test]
fn addresses_are_those_of_nodes_that_may_be_reached() {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let peer = Some(SocketAddr::from(([10, 0, 0, 1], 19042)));
    let with = |options: &SessionOptions, node: &str| Addresses::new(options, peer).of(ip(node), Some(7000));
    let port =
        |options: &SessionOptions, port| Addresses::new(options, peer).of(ip("10.0.0.2"), port).map(|at| at.port());
    let usual = options();
    assert_eq!(port(&usual, Some(7000)), Some(19042));
    assert_eq!(port(&usual.clone().node_ports(true), Some(7000)), Some(7000));
    assert_eq!(port(&usual.clone().node_ports(true), None), Some(19042));
    assert_eq!(port(&usual.clone().node_ports(true), Some(0)), None);
    assert_eq!(Addresses::new(&usual, None).of(ip("10.0.0.2"), Some(1)), Some(SocketAddr::from(([10, 0, 0, 2], 9042))));
    assert_eq!(with(&usual, "::ffff:10.0.0.2"), Some(SocketAddr::from(([10, 0, 0, 2], 19042))));
    let (link_local, multicast) = (["169.254.169.254", "::ffff:169.254.1.1", "fe80::1"], ["224.0.0.1", "ff02::1"]);
    for refused in link_local.iter().chain(&multicast).chain(&["0.0.0.0", "::", "::ffff:0.0.0.0", "255.255.255.255"]) {
        assert_eq!(with(&usual, refused), None, "{refused}");
    }
    let metadata = ["fd00:ec2::254", "100.100.100.200", "64:ff9b::a9fe:a9fe", "64:ff9b::", "64:ff9b::6464:64c8"];
    for refused in metadata {
        assert_eq!(with(&usual, refused), None, "{refused}");
    }
    for usable in ["fd00:ec2::253", "100.100.100.201", "64:ff9b::a00:1", "64:ff9b:1::a9fe:a9fe"] {
        assert_eq!(with(&usual, usable), Some(SocketAddr::new(ip(usable), 19042)), "{usable}");
    }
    let near = SessionOptions::contact_points(["169.254.0.1"]);
    assert!(link_local.iter().all(|node| with(&near, node).is_some()));
    assert!(multicast.iter().all(|node| with(&near, node).is_none()));
    // What the application returns is checked as well.
    let moved = usual.address_translator(|node| SocketAddr::new([10, 9, 9, 9].into(), node.port() + 1));
    assert_eq!(with(&moved, "10.0.0.2"), Some(SocketAddr::from(([10, 9, 9, 9], 19043))));
    let panics = options().address_translator(|node| panic!("no network has {node}"));
    assert_eq!(with(&panics, "10.0.0.2"), None);
    let wrong = options().address_translator(|node| SocketAddr::new([0, 0, 0, 0].into(), node.port()));
    assert_eq!(with(&wrong, "10.0.0.2"), None);
}

#[test]
fn functions_of_the_options_are_shown_without_content() {
    let options = options().host_filter(|_| true).address_translator(|address| address).node_ports(true);
    let shown = format!("{:?}", options.clone());
    assert!(shown.contains("node_ports: true, host_filter: true, address_translator: true"), "{shown}");
}

#[test]
fn data_center_without_nodes_is_named_with_those_that_exist() {
    let node = |number: u8, data_center: &str| {
        let node = Node { data_center: data_center.into(), rack: String::new(), tokens: Vec::new(), is_up: true };
        (SocketAddr::from(([10, 0, 0, number], 9042)), Arc::new(node))
    };
    let nodes = Nodes::from([node(1, "dc2"), node(2, "dc1"), node(3, "dc2")]);
    let missing = UnknownDataCenter::of("DC9", &nodes).expect("no node is in it");
    assert_eq!(
        (missing.data_center.as_str(), &missing.found[..]),
        ("DC9", &[String::from("dc1"), String::from("dc2")][..])
    );
    assert_eq!(UnknownDataCenter::of("dc1", &nodes), None);
    assert_eq!(UnknownDataCenter::of("DC9", &Nodes::new()), None, "nothing is known yet");
    let many = (0..100).map(|number| node(number, &format!("dc{number}"))).collect();
    assert_eq!(UnknownDataCenter::of("DC9", &many).expect("no node is in it").found.len(), SHOWN_MAX);
}

#[test]
fn tokens_are_known_with_one_partitioner() {
    let with = |name: &[u8]| {
        let body = body(&["key", "partitioner"], &[&[b"local", name]]);
        tables::has_known_tokens(rows(&body))
    };
    assert!(with(b"org.apache.cassandra.dht.Murmur3Partitioner"));
    assert!(with(b"Murmur3Partitioner"));
    assert!(!with(b"org.apache.cassandra.dht.RandomPartitioner"));
    assert!(!with(b""));
    assert!(!tables::has_known_tokens(rows(&body(&["key"], &[&[b"local"]]))));
}

#[test]
fn available_nodes_are_remote_before_others() {
    use Distance::{Ignored, Local, Remote};
    let node = |number: u8, data_center: &str, is_up| {
        let node = Node { data_center: data_center.into(), rack: String::from("r1"), tokens: Vec::new(), is_up };
        (SocketAddr::from(([10, 0, 0, number], 9042)), Arc::new(node))
    };
    let nodes = Nodes::from([
        node(1, "west", false),
        node(2, "west", true),
        node(3, "west", true),
        node(4, "north", false),
        node(5, "east", false),
    ]);
    let of = |local: Option<&str>, remote_max| {
        let local = local.map(String::from);
        let options = SessionOptions { local_data_center: local, ..options() }.remote_hosts(remote_max);
        let (hosts, unwanted) = finish(hosts_of(&nodes, &options)).0;
        assert_eq!(unwanted, BTreeSet::new());
        let mut hosts: Vec<_> = hosts.into_iter().map(|host| (host.address, host.distance)).collect();
        hosts.sort_unstable();
        hosts.into_iter().map(|(_, distance)| distance).collect::<Vec<_>>()
    };
    assert_eq!(of(Some("east"), 1), [Ignored, Remote, Ignored, Remote, Local]);
    assert_eq!(of(Some("east"), 3), [Remote, Remote, Remote, Remote, Local]);
    assert_eq!(of(None, 0), [Local; 5]);
    // Nodes that the application does not want are ignored, and count as no remote host.
    let options = options().local_data_center("east").remote_hosts(1).host_filter(|node| {
        assert!(node.address.ip() != IpAddr::from([10, 0, 0, 1]), "a filter that panics refuses the node");
        node.address.ip() != IpAddr::from([10, 0, 0, 2]) && (node.data_center.as_str(), node.token_count) != ("east", 0)
    });
    let (hosts, unwanted) = finish(hosts_of(&nodes, &options)).0;
    let used: Vec<_> = hosts.into_iter().filter(|host| host.distance != Ignored).map(|host| host.address).collect();
    assert_eq!(used, ["10.0.0.3:9042", "10.0.0.4:9042"]);
    assert_eq!(
        unwanted.into_iter().map(|node| node.to_string()).collect::<Vec<_>>(),
        ["10.0.0.1:9042", "10.0.0.2:9042", "10.0.0.5:9042"]
    );
}

#[test]
fn availability_is_no_part_of_the_place_of_a_node() {
    let node = |tokens: &[i64], is_up| {
        let node = Node { data_center: String::from("east"), rack: String::from("r1"), tokens: tokens.into(), is_up };
        Nodes::from([(SocketAddr::from(([10, 0, 0, 1], 9042)), Arc::new(node))])
    };
    assert!(have_same_places(&node(&[1], true), &node(&[1], false)));
    assert!(!have_same_places(&node(&[1], true), &node(&[2], true)));
    assert!(!have_same_places(&node(&[1], true), &Nodes::new()));
}
