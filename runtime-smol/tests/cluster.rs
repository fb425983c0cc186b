//! Sessions on smol that discover their hosts, against fake Cassandra servers that lie or not.

#![allow(missing_docs, reason = "a test")]

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use poolhouse_smol::mux::cql::{
    Consistency, Encoder, ErrorCode, Limits, Opcode, Outgoing, Token, Version, encode_envelope,
};
use poolhouse_smol::mux::{
    Batch, ClusterEvent, ClusterOptions, ClusterQuery, CqlHost, MuxEvent, MuxOptions, RequestError, RetryPolicy,
    Session, SessionOptions, Speculation,
};
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_smol::{EventKinds, EventRef, Smol, Subscription};
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Cut, Order, RequestKind, Rule, cell_of};
use poolhouse_tests::patience::{PATIENCE, Stopwatch, cluster_event, connection_refused, eventually, run};

/// The queries of the control connection.
const PEERS: &str = "SELECT native_address, native_port, ";
const OLD_PEERS: &str = "SELECT rpc_address, data_center, ";
const LOCAL: &str = "SELECT cluster_name, partitioner, ";
const OLD_LOCAL: &str = "SELECT cluster_name, partitioner, broadcast_address, rpc_address, data_center, ";
const NEW_LOCAL: &str = "SELECT cluster_name, partitioner, broadcast_address, rpc_address, rpc_port, ";

/// A token far from those of the fake servers, which are their ports.
const FAR: i64 = i64::MIN / 2;

fn server() -> CqlServer {
    CqlServer::start(CqlServerOptions::default()).expect("a server")
}

fn options(contact: &CqlServer) -> SessionOptions {
    let cluster = ClusterOptions {
        debounce: Duration::from_millis(20),
        refresh_interval: Duration::from_secs(3600),
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..ClusterOptions::DEFAULT
    };
    let mut options = SessionOptions::contact_points([contact.address().to_string()]);
    options.cluster = cluster;
    // The servers have the same address.
    options.version(Version::V4).request_timeout(PATIENCE).node_ports(true)
}

/// A session, and the events of its cluster.
fn session(options: SessionOptions) -> (Session, Subscription) {
    let subscribers = Subscribers::default();
    let events = subscribers.subscribe(EventKinds::CLUSTER, 16_384, |_| true);
    (Session::with_platform(Smol, options, subscribers).expect("valid options"), events)
}

async fn event(events: &mut Subscription, wanted: impl Fn(ClusterEvent) -> bool) -> ClusterEvent {
    cluster_event(events, PATIENCE, "the event", wanted).await
}

/// A row of `system.peers_v2`.
#[derive(Clone)]
struct Peer {
    address: Option<IpAddr>,
    port: u16,
    data_center: Option<&'static str>,
    tokens: Option<Vec<String>>,
}

impl Peer {
    fn new(address: SocketAddr) -> Self {
        let (address, port) = (Some(address.ip()), address.port());
        Self { address, port, data_center: Some("datacenter1"), tokens: Some(vec![FAR.to_string()]) }
    }
}

fn int(value: usize) -> [u8; 4] {
    i32::try_from(value).expect("small").to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn bytes(value: Option<&[u8]>) -> Vec<u8> {
    value.map_or_else(|| (-1_i32).to_be_bytes().to_vec(), |value| [&int(value.len()), value].concat())
}

/// A message of a server on a stream, in version 4.
fn message(stream: i16, opcode: Opcode, body: &[u8]) -> Vec<u8> {
    let mut envelope = Vec::new();
    let outgoing = Outgoing::new(Version::V4, stream);
    encode_envelope(&mut envelope, outgoing, opcode, &Limits::DEFAULT, |writer| writer.raw(body).map(drop))
        .expect("it fits");
    envelope
}

/// The answer to the query for peers.
fn peers(rows: &[Peer]) -> Act {
    let mut body = [int(2), int(1), int(5)].concat();
    body.extend([string("system"), string("peers_v2")].concat());
    for (name, kind) in [
        ("native_address", &[0, 0x10][..]),
        ("native_port", &[0, 9]),
        ("data_center", &[0, 13]),
        ("rack", &[0, 13]),
        ("tokens", &[0, 0x22, 0, 13]),
    ] {
        body.extend([&string(name), kind].concat());
    }
    body.extend(int(rows.len()));
    for row in rows {
        let address = row.address.map(|ip| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        });
        let tokens = row.tokens.as_ref().map(|tokens| {
            let texts: Vec<u8> = tokens.iter().flat_map(|token| bytes(Some(token.as_bytes()))).collect();
            [&int(tokens.len())[..], &texts].concat()
        });
        body.extend(bytes(address.as_deref()));
        body.extend(bytes(Some(&int(row.port.into()))));
        body.extend(bytes(row.data_center.map(str::as_bytes)));
        body.extend(bytes(Some(b"rack1")));
        body.extend(bytes(tokens.as_deref()));
    }
    Act::Raw(message(0, Opcode::Result, &body))
}

/// Sets the peers of a server.
fn set_peers(server: &CqlServer, rows: &[Peer]) -> usize {
    server.add(Rule::on(RequestKind::Query, peers(rows)).text(PEERS))
}

/// Sets the row of `system.local` of a server: the name, the type and the value of some columns; the
/// others are those of a usual node.
fn set_local(server: &CqlServer, cells: &[(&str, u8, &[u8])]) -> usize {
    let port = int(server.address().port().into());
    let mut row: Vec<(&str, u8, &[u8])> = vec![
        ("cluster_name", 13, b"poolhouse"),
        ("rpc_address", 16, &[127, 0, 0, 1]),
        ("rpc_port", 9, &port),
        ("data_center", 13, b"datacenter1"),
        ("rack", 13, b"rack1"),
        ("partitioner", 13, b"org.apache.cassandra.dht.Murmur3Partitioner"),
    ];
    for cell in cells {
        row.retain(|(name, ..)| *name != cell.0);
        row.push(*cell);
    }
    let mut body = [int(2), int(1), int(row.len())].concat();
    body.extend([string("system"), string("local")].concat());
    for (name, kind, _) in &row {
        body.extend([string(name), vec![0, *kind]].concat());
    }
    body.extend(int(1));
    for (.., cell) in row {
        body.extend(bytes(Some(cell)));
    }
    server.add(Rule::on(RequestKind::Query, Act::Raw(message(0, Opcode::Result, &body))).text(LOCAL))
}

/// An event of a node.
fn node_event(kind: &str, change: &str, node: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = node.ip() else { panic!("an address of four bytes") };
    let body = [&string(kind)[..], &string(change), &[4], &ip.octets(), &int(node.port().into())].concat();
    message(-1, Opcode::Event, &body)
}

fn queries(server: &CqlServer, text: &str) -> usize {
    server.log().iter().filter(|request| request.text.starts_with(text)).count()
}

fn addresses(session: &Session) -> Vec<SocketAddr> {
    session.cluster().expect("it finds its hosts").nodes.iter().map(|node| node.address).collect()
}

fn sorted(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.sort();
    addresses
}

/// The requests of the application that a server has received.
fn echoes(server: &CqlServer) -> usize {
    queries(server, "echo")
}

#[test]
fn session_finds_its_hosts_and_routes_by_token() {
    let (one, two) = (server(), server());
    set_peers(&one, &[Peer::new(two.address())]);
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: two.address() }).await;
        eventually("the keyspaces are known", || {
            session.cluster().is_some_and(|status| status.routed_keyspaces == 1) && session.hosts().len() == 2
        })
        .await;
        eventually("both are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
        assert_eq!(addresses(&session), sorted(vec![one.address(), two.address()]));
        for number in 0..100_u32 {
            let key = number.to_be_bytes();
            // A node has the tokens up to its own.
            let token = Token::of(&key).number();
            let is_of_one = token > FAR && token <= one.address().port().into();
            let before = (echoes(&one), echoes(&two));
            let call = session.query("echo tea").consistency(Consistency::One);
            call.routing("poolhouse", &key).send().await.expect("a reply");
            let after = (echoes(&one) - before.0, echoes(&two) - before.1);
            assert_eq!(after, if is_of_one { (1, 0) } else { (0, 1) }, "{number}");
        }
        // An unknown keyspace: the hosts in rotation.
        let before = (echoes(&one), echoes(&two));
        for _ in 0..10 {
            let call = session.query("echo tea").consistency(Consistency::One);
            call.routing("elsewhere", b"1").send().await.expect("a reply");
        }
        assert_eq!((echoes(&one) - before.0, echoes(&two) - before.1), (5, 5));
        // The replica fails, and another host takes the request.
        two.kill().expect("it ends");
        let key = (0..u32::MAX).map(u32::to_be_bytes).find(|key| Token::of(key).number() < FAR).expect("a key");
        eventually("its connection is closed", || session.hosts().iter().any(|host| host.state.open == 0)).await;
        let call = session.query("echo tea").consistency(Consistency::One);
        call.routing("poolhouse", &key).send().await.expect("a reply of the other");
        session.close().await;
    });
}

#[test]
fn nodes_of_other_data_centers_are_remote_or_ignored() {
    let (one, two, three) = (server(), server(), server());
    let far = |server: &CqlServer| Peer { data_center: Some("far"), ..Peer::new(server.address()) };
    set_peers(&one, &[far(&two), far(&three)]);
    run(async {
        let options = options(&one).local_data_center("datacenter1").remote_hosts(1);
        let (session, mut events) = session(options);
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: two.address() }).await;
        eventually("the hosts are known", || session.hosts().len() == 3).await;
        let distances: Vec<_> = session.hosts().iter().map(|host| host.config.options().distance).collect();
        use poolhouse_smol::mux::Distance;
        assert_eq!(distances, [Distance::Local, Distance::Remote, Distance::Ignored]);
        for _ in 0..6 {
            session.query("echo tea").consistency(Consistency::One).send().await.expect("a reply");
        }
        assert_eq!(echoes(&one), 6);
    });
}

#[test]
fn cluster_with_another_partitioner_is_not_routed() {
    let one = server();
    set_local(&one, &[("partitioner", 13, b"RandomPartitioner")]);
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        eventually("the keyspaces are read", || queries(&one, "SELECT keyspace_name") == 1).await;
        // Their answer was processed before that to the next query.
        one.push(&node_event("TOPOLOGY_CHANGE", "NEW_NODE", one.address()));
        eventually("the tables are read again", || queries(&one, PEERS) == 2).await;
        assert_eq!(session.cluster().expect("it finds its hosts").routed_keyspaces, 0);
        session.close().await;
    });
}

#[test]
fn lying_tables_cost_one_event() {
    let one = server();
    let own = Peer::new(one.address());
    let other = |port| Peer { port, ..Peer::new("127.0.0.9:1".parse().expect("an address")) };
    let mut rows = vec![
        own,
        other(1),
        other(1),
        Peer { address: None, ..other(2) },
        Peer { address: Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), ..other(3) },
        Peer { data_center: None, ..other(4) },
        other(0),
    ];
    let refused = rows.len() - 1;
    rows.push(Peer { tokens: None, ..other(5) });
    rows.push(Peer { tokens: Some(vec!["tea".to_owned(), String::new()]), ..other(6) });
    // A thousand nodes, whose tokens are all the same.
    rows.extend((1000..2000).map(other));
    set_peers(&one, &rows);
    run(async {
        // No pool is opened to the nodes, which do not exist.
        let options = options(&one).local_data_center("elsewhere");
        let (session, mut events) = session(options);
        let ignored = event(&mut events, |event| matches!(event, ClusterEvent::RowsIgnored { .. })).await;
        assert_eq!(ignored, ClusterEvent::RowsIgnored { count: u32::try_from(refused).expect("few") });
        event(&mut events, |event| event == ClusterEvent::NoLocalNodes).await;
        eventually("the hosts are known", || session.hosts().len() == rows.len() - refused + 1).await;
        assert_eq!((queries(&one, PEERS), queries(&one, LOCAL)), (1, 1));
        session.close().await;
    });
}

#[test]
fn malformed_answers_are_no_storm() {
    let one = server();
    for body in [&[0, 0, 0, 2, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff][..], &[0, 0, 0, 1], &[]] {
        let rule = one.add(Rule::on(RequestKind::Query, Act::Raw(message(0, Opcode::Result, body))).text(PEERS));
        run(async {
            let (session, mut events) = session(options(&one));
            for _ in 0..3 {
                event(&mut events, |event| event == ClusterEvent::QueryFailed { query: ClusterQuery::Peers }).await;
            }
            // The contact point is used meanwhile.
            session.query("echo tea").consistency(Consistency::One).send().await.expect("a reply");
            assert_eq!(addresses(&session), []);
            one.remove(rule);
            event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
            session.close().await;
        });
    }
}

#[test]
fn old_server_has_old_tables() {
    let one = server();
    for text in [NEW_LOCAL, PEERS] {
        let invalid = Act::Error(ErrorCode::INVALID.number(), "undefined column, or unconfigured table".to_owned());
        one.add(Rule::on(RequestKind::Query, invalid).text(text));
    }
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        assert_eq!((queries(&one, LOCAL), queries(&one, OLD_LOCAL), queries(&one, NEW_LOCAL)), (2, 1, 1));
        assert_eq!((queries(&one, PEERS), queries(&one, OLD_PEERS)), (1, 1));
        session.close().await;
    });
}

#[test]
fn tables_are_read_by_the_names_of_columns() {
    let one = server();
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        eventually("the keyspaces are read", || queries(&one, "SELECT keyspace_name, replication ") == 1).await;
        assert_eq!(queries(&one, "SELECT *"), 0);
        session.close().await;
    });
}

#[test]
fn port_of_a_node_is_that_of_the_contact_point_unless_an_option_allows_its_own() {
    let (one, two) = (server(), server());
    let named = SocketAddr::new("127.0.0.9".parse().expect("an address"), two.address().port());
    set_peers(&one, &[Peer::new(named)]);
    for (node_ports, port) in [(false, one.address().port()), (true, named.port())] {
        run(async {
            let (session, mut events) = session(options(&one).local_data_center("elsewhere").node_ports(node_ports));
            let node = SocketAddr::new(named.ip(), port);
            event(&mut events, |event| event == ClusterEvent::NodeAdded { node }).await;
            // Events name the port of the node, too.
            one.push(&node_event("STATUS_CHANGE", "DOWN", named));
            event(&mut events, |event| event == ClusterEvent::NodeDown { node }).await;
            session.close().await;
        });
    }
}

#[test]
fn nodes_are_reached_where_the_application_says() {
    let (one, two) = (server(), server());
    let inner: SocketAddr = "10.1.2.3:9042".parse().expect("an address");
    set_peers(&one, &[Peer::new(inner)]);
    run(async {
        let outer = two.address();
        let options = options(&one).address_translator(move |node| if node == inner { outer } else { node });
        let (session, mut events) = session(options);
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: outer }).await;
        eventually("both are connected", || {
            session.hosts().len() == 2 && session.hosts().iter().all(|host| host.state.open > 0)
        })
        .await;
        assert_eq!(addresses(&session), sorted(vec![one.address(), outer]));
        one.push(&node_event("STATUS_CHANGE", "DOWN", inner));
        event(&mut events, |event| event == ClusterEvent::NodeDown { node: outer }).await;
        session.close().await;
    });
}

#[test]
fn no_connection_is_opened_to_a_node_that_the_application_does_not_want() {
    let (one, two) = (server(), server());
    set_peers(&one, &[Peer::new(two.address())]);
    run(async {
        let unwanted = two.address();
        let options = options(&one).host_filter(move |node| node.address != unwanted);
        let (session, mut events) = session(options);
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: unwanted }).await;
        eventually("the hosts are known", || session.hosts().len() == 2).await;
        for _ in 0..10 {
            session.query("echo tea").consistency(Consistency::One).send().await.expect("a reply");
        }
        // The control connection is opened to the contact point again. The other node would be drawn in half of them.
        for _ in 0..8 {
            one.cut_all(Cut::Reset);
            event(&mut events, |event| matches!(event, ClusterEvent::ControlConnected { .. })).await;
            assert_eq!(two.counts().accepted, 0);
        }
        session.close().await;
    });
}

#[test]
fn requests_for_a_data_center_that_no_node_is_in_fail_at_once_and_name_those_that_exist() {
    let one = server();
    run(async {
        let (session, mut events) = session(options(&one).local_data_center("DC9"));
        event(&mut events, |event| event == ClusterEvent::NoLocalNodes).await;
        let status = session.cluster().expect("it finds its hosts");
        assert_eq!(status.missing_data_center.as_deref(), Some("DC9"));
        let begun = Stopwatch::start();
        let error = session.query("echo tea").send().await.expect_err("no host");
        begun.assert_below(Duration::from_secs(1));
        assert_eq!(
            error.to_string(),
            "no node is in the local data centre \"DC9\": the cluster has \"datacenter1\"; correct \
             local_data_center, or allow remote_hosts"
        );
        let both = session.request_all(&vec![session.query("echo tea"); 2]).await;
        assert!(matches!(&both[..], [Err(RequestError::UnknownDataCenter(_)), Err(_)]), "{both:?}");
        session.close().await;
    });
}

#[test]
fn events_change_the_nodes() {
    let (one, two) = (server(), server());
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        eventually("the keyspaces are known", || session.cluster().is_some_and(|status| status.routed_keyspaces == 1))
            .await;
        let read = queries(&one, PEERS);
        // Events without a meaning.
        one.push(&message(-1, Opcode::Event, b"tea"));
        one.push(&message(-1, Opcode::Event, &string("TEA_CHANGE")));
        for _ in 0..100 {
            one.push(&node_event("STATUS_CHANGE", "DOWN", two.address()));
            one.push(&node_event("STATUS_CHANGE", "LEFT", one.address()));
        }
        let rule = set_peers(&one, &[Peer::new(two.address())]);
        for _ in 0..50 {
            one.push(&node_event("TOPOLOGY_CHANGE", "NEW_NODE", two.address()));
        }
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: two.address() }).await;
        // Two, if the events were divided by a pause of this machine.
        let readings = queries(&one, PEERS) - read;
        assert!((1..=10).contains(&readings), "{readings}");
        one.push(&node_event("STATUS_CHANGE", "DOWN", two.address()));
        event(&mut events, |event| event == ClusterEvent::NodeDown { node: two.address() }).await;
        one.push(&node_event("STATUS_CHANGE", "UP", two.address()));
        event(&mut events, |event| event == ClusterEvent::NodeUp { node: two.address() }).await;
        let change = [string("CREATED"), string("KEYSPACE"), string("shop")].concat();
        one.push(&message(-1, Opcode::Event, &[string("SCHEMA_CHANGE"), change].concat()));
        event(&mut events, |event| event == ClusterEvent::SchemaChanged).await;
        eventually("the keyspaces are read again", || queries(&one, "SELECT keyspace_name") == 2).await;
        // A node leaves while a request is in flight at it.
        eventually("the hosts are connected", || {
            session.hosts().len() == 2 && session.hosts().iter().all(|host| host.state.open > 0)
        })
        .await;
        let held = two.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }));
        let ids: Vec<_> = session
            .hosts()
            .iter()
            .filter(|host| host.address == two.address().to_string())
            .map(|host| host.id)
            .collect();
        let mut pending = Box::pin(session.query("echo tea").consistency(Consistency::One).hosts(&ids).send());
        assert!(smol::future::poll_once(&mut pending).await.is_none());
        eventually("it has the request", || two.held_count() == 1).await;
        one.remove(rule);
        one.push(&node_event("TOPOLOGY_CHANGE", "REMOVED_NODE", two.address()));
        event(&mut events, |event| event == ClusterEvent::NodeRemoved { node: two.address() }).await;
        two.remove(held);
        assert_eq!(two.release(Order::Kept), 1);
        pending.await.expect("its reply");
        session.close().await;
    });
}

#[test]
fn node_that_is_reported_to_be_up_is_connected_to_before_the_pause_ends() {
    let (one, two) = (server(), server());
    run(async {
        set_peers(&one, &[Peer::new(two.address())]);
        two.kill().expect("it refuses connections");
        let (session, mut events) = session(options(&one));
        let mut closed =
            session.subscribe_where(|event| matches!(event, EventRef::Mux(MuxEvent::ConnectionClosed { .. })));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: two.address() }).await;
        // The third pause lasts for 4 s.
        for _ in 0..3 {
            closed.next().await.expect("an attempt fails");
        }
        let failed = Stopwatch::start();
        two.resume().expect("it accepts connections");
        one.push(&node_event("STATUS_CHANGE", "UP", two.address()));
        eventually("both nodes are used", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        failed.assert_below(Duration::from_secs(3));
        session.close().await;
    });
}

#[test]
fn control_connection_moves_to_another_node_of_the_cluster() {
    let (one, two) = (server(), server());
    set_peers(&one, &[Peer::new(two.address())]);
    set_peers(&two, &[Peer { tokens: Some(vec!["7".to_owned()]), ..Peer::new(one.address()) }]);
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: two.address() }).await;
        one.kill().expect("it ends");
        event(&mut events, |event| event == ClusterEvent::ControlConnected { peer: Some(two.address()) }).await;
        event(&mut events, |event| event == ClusterEvent::NodeChanged { node: one.address() }).await;
        assert_eq!(session.hosts().len(), 2);
        // A server of another cluster on the same port is left.
        set_local(&two, &[("cluster_name", 13, b"coffee")]);
        two.push(&node_event("TOPOLOGY_CHANGE", "NEW_NODE", one.address()));
        event(&mut events, |event| event == ClusterEvent::OtherCluster).await;
        one.resume().expect("it listens");
        event(&mut events, |event| event == ClusterEvent::ControlConnected { peer: Some(one.address()) }).await;
        session.close().await;
    });
}

#[test]
fn contact_point_with_a_name_is_replaced_without_loss() {
    let one = server();
    run(async {
        let contact = format!("localhost:{}", one.address().port());
        let mut named = options(&one);
        named.hosts = SessionOptions::contact_points([contact]).hosts;
        let (session, mut events) = session(named.mux(MuxOptions { pool_timeout: PATIENCE, ..MuxOptions::DEFAULT }));
        // They wait for the first connection while the hosts are replaced.
        let calls = vec![session.query("echo tea").consistency(Consistency::One); 100];
        let replies = session.request_all(&calls).await;
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        session.query("echo tea").consistency(Consistency::One).send().await.expect("a reply");
        eventually("the node is a host", || session.hosts()[0].address == one.address().to_string()).await;
        session.close().await;
    });
}

#[test]
fn hosts_cannot_be_set_if_they_are_discovered() {
    let one = server();
    run(async {
        let (session, _events) = session(options(&one));
        let error = session.set_hosts(&[]).expect_err("refused");
        assert!(error.to_string().contains("discovers"), "{error}");
        session.close().await;
        let fixed = Session::new(SessionOptions::new([one.address().to_string()])).expect("valid options");
        assert_eq!(fixed.cluster(), None);
    });
}

#[test]
fn silent_server_is_left_in_time() {
    let one = server();
    one.add(Rule::on(RequestKind::Query, Act::Lose).text(LOCAL));
    run(async {
        let mut options = options(&one);
        options.cluster.query_timeout = Duration::from_millis(30);
        let (session, mut events) = session(options);
        for _ in 0..3 {
            event(&mut events, |event| event == ClusterEvent::QueryFailed { query: ClusterQuery::Local }).await;
        }
        session.close().await;
    });
}

#[test]
fn statement_is_prepared_on_each_host_that_executes_it() {
    for version in Version::ALL {
        let (one, two) = (server(), server());
        let options = SessionOptions::new([one.address().to_string(), two.address().to_string()]);
        run(async {
            let session = Session::new(options.version(version).request_timeout(PATIENCE)).expect("valid options");
            eventually("both are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
            let statement = session.prepare("echo ?").await.expect("prepared");
            assert_eq!((statement.text(), statement.variable_count()), ("echo ?", 1));
            assert!(statement.key_positions().is_empty());
            for _ in 0..6 {
                let call = session.execute(&statement, &("tea",)).consistency(Consistency::One);
                let reply = call.send().await.expect("a reply");
                assert_eq!(cell_of(reply.body()), Some(&b"tea"[..]), "{version}");
            }
            let prepared =
                |server: &CqlServer| server.log().iter().filter(|request| request.kind == RequestKind::Prepare).count();
            // The other host describes the variables first, for the text with a space behind it.
            assert_eq!((prepared(&one), prepared(&two)), (1, 2), "{version}");
            session.close().await;
        });
    }
}

#[test]
fn statement_that_is_forgotten_at_once_is_an_error() {
    let one = server();
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        let statement = session.prepare("echo tea").await.expect("prepared");
        let rule = Rule::on(RequestKind::Execute, Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned()));
        one.add(rule);
        let call = session.execute(&statement, &()).consistency(Consistency::One);
        let error = call.send().await.expect_err("refused");
        let RequestError::Server(error) = error else { panic!("{error:?}") };
        assert_eq!(error.code, ErrorCode::UNPREPARED);
        let executed = || one.log().iter().filter(|request| request.kind == RequestKind::Execute).count();
        assert_eq!(executed(), 4, "and after each of three preparations");
        let calls = [session.execute(&statement, &()).consistency(Consistency::One)];
        let Some(Err(RequestError::Server(error))) = session.request_all(&calls).await.pop() else { panic!("refused") };
        assert_eq!((error.code, executed()), (ErrorCode::UNPREPARED, 8));
        session.close().await;
    });
}

#[test]
fn statement_that_is_forgotten_again_while_it_is_prepared_is_no_error() {
    let one = server();
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        let statement = session.prepare("echo tea").await.expect("prepared");
        let forgotten = || Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned());
        let call = session.execute(&statement, &()).consistency(Consistency::One);
        one.add(Rule::on(RequestKind::Execute, forgotten()).times(3));
        call.clone().send().await.expect("a reply");
        one.add(Rule::on(RequestKind::Execute, forgotten()).times(3));
        session.request_all(&[call]).await.pop().expect("one result").expect("a reply");
        session.close().await;
    });
}

#[test]
fn statement_is_executed_elsewhere_if_its_host_fails_while_it_prepares() {
    let forgotten = || Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned());
    for failing in [RequestKind::Prepare, RequestKind::Execute] {
        let (one, two) = (server(), server());
        run(async {
            let hosts = [one.address().to_string(), two.address().to_string()];
            let session = Session::new(SessionOptions::new(hosts).request_timeout(PATIENCE)).expect("valid options");
            let statement = session.prepare("echo tea").await.expect("prepared");
            let hosts: Vec<_> = session.hosts().iter().map(|host| host.id).collect();
            let call = session.execute(&statement, &()).consistency(Consistency::One).idempotent(true);
            call.clone().hosts(&hosts[1..]).send().await.expect("both have it");
            one.add(Rule::on(RequestKind::Execute, forgotten()).times(1));
            one.refuse().expect("no connection follows");
            one.add(Rule::on(failing, Act::Close(Cut::Reset)));
            let before = echoes(&two);
            call.hosts(&hosts).send().await.expect("a reply");
            assert_eq!(echoes(&two) - before, 1, "{failing:?}");
            session.close().await;
        });
    }
}

/// A server that has received the request ends its connection, and no other takes it.
#[test]
fn execution_that_was_lost_is_in_the_error_also_after_a_preparation() {
    let forgotten = || Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned());
    let closes = |kind| Rule::on(kind, Act::Close(Cut::Reset));
    for (is_lost_before, at_once) in [(false, false), (false, true), (true, false), (true, true)] {
        let servers: Vec<_> = (0..if is_lost_before { 2 } else { 1 }).map(|_| server()).collect();
        run(async {
            let hosts = servers.iter().map(|server| server.address().to_string());
            let session = Session::new(SessionOptions::new(hosts).request_timeout(PATIENCE)).expect("valid options");
            let statement = session.prepare("echo tea").await.expect("prepared");
            let ids: Vec<_> = session.hosts().iter().map(|host| host.id).collect();
            let call = session.execute(&statement, &()).consistency(Consistency::One).idempotent(true).hosts(&ids);
            for id in &ids {
                let one = [*id];
                call.clone().hosts(&one).send().await.expect("all have it");
            }
            servers.iter().for_each(|server| server.refuse().expect("no connection follows"));
            match &servers[..] {
                [first, second] => {
                    first.add(closes(RequestKind::Execute));
                    second.add(Rule::on(RequestKind::Execute, forgotten()).times(1));
                    second.add(closes(RequestKind::Prepare));
                }
                servers => {
                    servers[0].add(Rule::on(RequestKind::Execute, forgotten()).times(1));
                    servers[0].add(closes(RequestKind::Execute));
                }
            }
            let result = if at_once { session.request_all(&[call]).await.pop() } else { Some(call.send().await) };
            let error = result.expect("one result").expect_err("no host is left");
            assert!(matches!(error, RequestError::NoHost(_)) && error.may_have_executed(), "{error}");
            session.close().await;
        });
    }
}

#[test]
fn statement_is_executed_again_with_the_columns_of_the_caller() {
    let one = server();
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).version(Version::V5);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        let statement = session.prepare("echo tea").await.expect("prepared");
        one.add(
            Rule::on(RequestKind::Execute, Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned())).times(1),
        );
        // The table has other columns now: the same statement, no variables, no described columns.
        let id = [&16_u16.to_be_bytes(), statement.id()].concat();
        let body = [&int(4)[..], &id, &string("other columns"), &int(4), &int(0), &int(0), &int(4), &int(1)].concat();
        let reply = |stream| {
            let (mut envelope, mut segment) = (Vec::new(), Vec::new());
            let outgoing = Outgoing::new(Version::V5, stream);
            encode_envelope(&mut envelope, outgoing, Opcode::Result, &Limits::DEFAULT, |it| it.raw(&body).map(drop))
                .expect("it fits");
            Encoder::new(Version::V5, None).encode(&envelope, &mut segment).expect("it fits");
            segment
        };
        one.add(Rule::on(RequestKind::Prepare, Act::Lose));
        let execution = session.execute(&statement, &()).consistency(Consistency::One).send();
        let answers = async {
            answer(&one, RequestKind::Prepare, 2, reply).await;
            answer(&one, RequestKind::Prepare, 3, reply).await;
        };
        smol::future::zip(execution, answers).await.0.expect("a reply");
        let executed = one.log().into_iter().filter(|request| request.kind == RequestKind::Execute);
        let ids: Vec<_> = executed.map(|request| request.metadata_id).collect();
        // That of the fake server is the id of the statement.
        assert_eq!(ids, [statement.id(), statement.id()]);
        session.close().await;
    });
}

#[test]
fn answer_without_a_prepared_statement_is_an_error() {
    for (body, is_malformed) in [(&[0, 0, 0, 1][..], false), (&[0, 0, 0, 4, 0], true)] {
        let one = server();
        one.add(Rule::on(RequestKind::Prepare, Act::Raw(message(1, Opcode::Result, body))));
        run(async {
            let options = SessionOptions::new([one.address().to_string()]).version(Version::V4);
            let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
            let error = session.prepare("echo ?").await.expect_err("no statement");
            assert_eq!(matches!(error, RequestError::Reply(_)), is_malformed, "{error}");
            assert_eq!(matches!(error, RequestError::Unexpected(Opcode::Result)), !is_malformed, "{error}");
            session.close().await;
        });
    }
}

#[test]
fn error_of_several_attempts_is_one_after_which_a_server_may_have_executed() {
    let (one, two) = (server(), server());
    one.add(Rule::statements(Act::Lose));
    two.add(Rule::any(Act::Mute));
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let mux = MuxOptions { pool_timeout: PATIENCE, ..MuxOptions::DEFAULT };
        let session = Session::new(SessionOptions::new(hosts).mux(mux)).expect("valid options");
        eventually("a host is connected", || session.hosts()[0].state.open == 1).await;
        // The second attempt waits for a connection, or would begin without time.
        for delay in [Duration::from_millis(10), PATIENCE] {
            let ids = session.hosts().iter().map(|host| host.id).collect::<Vec<_>>();
            let call =
                session.query("echo tea").consistency(Consistency::One).timeout(Duration::from_millis(100)).hosts(&ids);
            let speculation = Speculation { delay, hosts_max: 2 };
            let error = call.speculation(speculation).send().await.expect_err("no answer");
            assert!(matches!(error, RequestError::TimedOut { sent: true, .. }), "{delay:?}: {error}");
        }
        session.close().await;
    });
}

#[test]
fn attempts_continue_with_the_hosts_that_replace_theirs() {
    let (one, two) = (server(), server());
    one.add(Rule::any(Act::Mute));
    run(async {
        let mux = MuxOptions { pool_timeout: PATIENCE, ..MuxOptions::DEFAULT };
        let options = SessionOptions::new([one.address().to_string()]).request_timeout(PATIENCE).mux(mux);
        let session = Session::new(options).expect("valid options");
        let speculation = Speculation { delay: PATIENCE, hosts_max: 2 };
        let call = session.query("echo tea").consistency(Consistency::One);
        let mut attempts = Box::pin(call.speculation(speculation).send());
        assert!(smol::future::poll_once(&mut attempts).await.is_none(), "it waits for a connection");
        session.set_hosts(&[CqlHost::local(two.address().to_string())]).expect("a valid host");
        assert_eq!(cell_of(attempts.await.expect("a reply").body()), Some(&b"tea"[..]));
        session.close().await;
    });
}

/// Answers the request with this number of its kind, after a rule has lost its reply.
async fn answer(server: &CqlServer, kind: RequestKind, number: usize, reply: impl FnOnce(i16) -> Vec<u8>) {
    let streams = || {
        let log = server.log().into_iter();
        log.filter(|request| request.kind == kind).map(|request| request.stream).collect::<Vec<_>>()
    };
    eventually("the request arrives", || streams().len() == number).await;
    server.push(&reply(streams()[number - 1]));
}

#[test]
fn unavailable_replicas_may_be_available_to_the_next_host() {
    let (one, two) = (server(), server());
    let unavailable = || Rule::statements(Act::Error(ErrorCode::UNAVAILABLE.number(), "too few".into()));
    one.add(unavailable());
    run(async {
        let session = |hosts: &[&CqlServer]| {
            let hosts = hosts.iter().map(|host| host.address().to_string());
            Session::new(SessionOptions::new(hosts).request_timeout(PATIENCE)).expect("valid options")
        };
        let both = session(&[&one, &two]);
        let ids: Vec<_> = both.hosts().iter().map(|host| host.id).collect();
        let call = both.query("echo tea").consistency(Consistency::One).idempotent(true);
        call.clone().hosts(&ids).send().await.expect("the other host has replicas");
        let calls = [call.clone().hosts(&ids)];
        let [batched] = &both.request_all(&calls).await[..] else { panic!("one result") };
        assert!(batched.is_ok(), "{batched:?}");
        let never = call.clone().hosts(&ids).retry(RetryPolicy::Fallthrough);
        let error = never.send().await.expect_err("it is sent once");
        assert!(matches!(&error, RequestError::Server(error) if error.code == ErrorCode::UNAVAILABLE), "{error}");
        // The request is sent again only once, and the last error is the result.
        two.add(unavailable());
        let twice: Vec<_> = ids.iter().chain(&ids).copied().collect();
        let before = echoes(&one) + echoes(&two);
        let error = call.clone().hosts(&twice).send().await.expect_err("no host has replicas");
        assert!(matches!(&error, RequestError::Server(error) if error.message == "too few"), "{error}");
        assert_eq!(echoes(&one) + echoes(&two) - before, 2);
        // A server may have executed a part of it.
        let before = echoes(&one) + echoes(&two);
        let error = call.hosts(&twice).idempotent(false).send().await.expect_err("it is sent once");
        assert!(matches!(error, RequestError::Server(_)), "{error}");
        assert_eq!(echoes(&one) + echoes(&two) - before, 1);
        // Without another host, and if the others are not available.
        two.kill().expect("it refuses connections");
        let pair = session(&[&one, &two]);
        let alone = session(&[&one]);
        for session in [&pair, &alone] {
            let call = session.query("echo tea").consistency(Consistency::One).idempotent(true);
            let error = call.send().await.expect_err("no other host");
            assert!(matches!(error, RequestError::Server(_)), "{error}");
        }
        pair.close().await;
        both.close().await;
        alone.close().await;
    });
}

#[test]
fn read_without_data_is_repeated_once_by_the_same_host() {
    let (one, two) = (server(), server());
    one.add(Rule::statements(Act::Lose));
    let timeout = |stream| {
        // Level ONE: one replica has answered, one was required, without the data.
        let details = [&[0, 1][..], &int(1), &int(1), &[0]].concat();
        let body = [&ErrorCode::READ_TIMEOUT.number().to_be_bytes()[..], &string("late"), &details].concat();
        message(stream, Opcode::Error, &body)
    };
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let options = SessionOptions::new(hosts).version(Version::V4).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        let ids: Vec<_> = session.hosts().iter().map(|host| host.id).collect();
        let call = session.query("echo tea").consistency(Consistency::One).hosts(&ids);
        let answers = async {
            answer(&one, RequestKind::Query, 1, timeout).await;
            answer(&one, RequestKind::Query, 2, timeout).await;
        };
        let (result, ()) = smol::future::zip(call.clone().send(), answers).await;
        let error = result.expect_err("the second read is late as well");
        assert!(matches!(&error, RequestError::Server(error) if error.code == ErrorCode::READ_TIMEOUT), "{error}");
        let calls = [call];
        let answers = async {
            answer(&one, RequestKind::Query, 3, timeout).await;
            answer(&one, RequestKind::Query, 4, timeout).await;
        };
        let (results, ()) = smol::future::zip(session.request_all(&calls), answers).await;
        assert!(matches!(&results[..], [Err(RequestError::Server(_))]), "{results:?}");
        assert_eq!(echoes(&two), 0);
        session.close().await;
    });
}

/// The answer to a query for the version of the schema.
fn schema_version(stream: i16, version: u8) -> Vec<u8> {
    let mut body = [int(2), int(1), int(1)].concat();
    body.extend([string("system"), string("local"), string("schema_version"), vec![0, 12]].concat());
    body.extend([int(1).to_vec(), bytes(Some(&[version; 16]))].concat());
    message(stream, Opcode::Result, &body)
}

#[test]
fn schema_agreement_is_waited_for() {
    let (one, two) = (server(), server());
    for server in [&one, &two] {
        server.add(Rule::on(RequestKind::Query, Act::Lose).text("SELECT schema_version"));
    }
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let options = SessionOptions::new(hosts).version(Version::V4).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        let number = Cell::new(0);
        let versions = async |versions: [u8; 2]| {
            number.set(number.get() + 1);
            for (server, version) in [&one, &two].into_iter().zip(versions) {
                answer(server, RequestKind::Query, number.get(), |stream| schema_version(stream, version)).await;
            }
        };
        let answers = async {
            versions([2, 1]).await;
            versions([2, 1]).await;
            versions([2, 2]).await;
        };
        let (agreed, ()) = smol::future::zip(session.schema_agreement(PATIENCE), answers).await;
        assert!(agreed.expect("versions"));
        let differ = async {
            loop {
                versions([2, 1]).await;
            }
        };
        assert!(!smol::future::or(session.schema_agreement(Duration::from_secs(1)), differ).await.expect("versions"));
        session.close().await;
    });
}

/// Unless no host answers.
#[test]
fn host_that_does_not_answer_has_no_schema() {
    let (one, two) = (server(), server());
    two.kill().expect("it refuses connections");
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let options = SessionOptions::new(hosts).version(Version::V4).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        assert!(session.schema_agreement(PATIENCE).await.expect("the version of the first"));
        one.kill().expect("it refuses connections");
        let error = session.schema_agreement(Duration::from_secs(1)).await.expect_err("no host answers");
        assert!(matches!(error, RequestError::NoHost(_)), "{error}");
        let voids = server();
        voids.add(Rule::on(RequestKind::Query, Act::Lose).text("SELECT schema_version"));
        session.set_hosts(&[CqlHost::local(voids.address().to_string())]).expect("a valid host");
        let answers = answer(&voids, RequestKind::Query, 1, |stream| message(stream, Opcode::Result, &int(1)));
        let (error, ()) = smol::future::zip(session.schema_agreement(PATIENCE), answers).await;
        assert!(matches!(error, Err(RequestError::Unexpected(Opcode::Result))), "{error:?}");
        session.close().await;
    });
}

#[test]
fn statement_that_changes_the_schema_waits_for_all_hosts() {
    let (one, two) = (server(), server());
    one.add(Rule::on(RequestKind::Query, Act::Lose).text("CREATE"));
    let limit = Duration::from_millis(300);
    run(async {
        // The request number, the option, and the readings at both hosts after it.
        for (number, agreement, readings) in [(1, Some(PATIENCE), 1), (3, None, 1), (4, Some(limit), 2)] {
            if agreement == Some(limit) {
                two.add(Rule::on(RequestKind::Query, Act::Lose).text("SELECT schema_version"));
            }
            let options = SessionOptions::new([&one, &two].map(|server| server.address().to_string()));
            let options = options.version(Version::V4).request_timeout(PATIENCE).schema_agreement(agreement);
            let session = Session::new(options).expect("valid options");
            let first: Vec<_> = session.hosts().iter().take(1).map(|host| host.id).collect();
            let create = session.query("CREATE KEYSPACE shop").hosts(&first).send();
            let (result, ()) =
                smol::future::zip(create, answer(&one, RequestKind::Query, number, schema_changed)).await;
            if agreement == Some(limit) {
                let error = result.expect_err("a host does not answer");
                assert!(matches!(error, RequestError::SchemaDisagreement { limit: told } if told == limit), "{error}");
                assert!(error.may_have_executed());
            } else {
                result.expect("the schema agrees");
            }
            let read = |server| queries(server, "SELECT schema_version");
            assert!(read(&one) >= readings && read(&two) >= readings, "{number}: {}, {}", read(&one), read(&two));
            assert!(agreement == Some(limit) || (read(&one), read(&two)) == (readings, readings));
            session.close().await;
        }
    });
}

/// The answer to a statement that has created a keyspace.
fn schema_changed(stream: i16) -> Vec<u8> {
    let change = [string("CREATED"), string("KEYSPACE"), string("shop")].concat();
    message(stream, Opcode::Result, &[&int(5)[..], &change].concat())
}

/// Sends a text with a value. Returns how often a text was prepared until then.
async fn preparations(session: &Session, server: &CqlServer) -> usize {
    let call = session.query("echo ?").values(("tea",)).consistency(Consistency::One);
    call.send().await.expect("a reply");
    server.log().iter().filter(|request| request.kind == RequestKind::Prepare).count()
}

#[test]
fn texts_are_prepared_anew_after_a_statement_that_changes_the_schema() {
    let one = server();
    one.add(Rule::on(RequestKind::Query, Act::Lose).text("CREATE"));
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).version(Version::V4).request_timeout(PATIENCE);
        let session = Session::new(options.schema_agreement(None)).expect("valid options");
        assert_eq!((preparations(&session, &one).await, preparations(&session, &one).await), (1, 1));
        let create = || session.query("CREATE KEYSPACE shop").consistency(Consistency::One);
        let answers = answer(&one, RequestKind::Query, 1, schema_changed);
        smol::future::zip(create().send(), answers).await.0.expect("it is created");
        assert_eq!(preparations(&session, &one).await, 2);
        let calls = [create()];
        let answers = answer(&one, RequestKind::Query, 2, schema_changed);
        smol::future::zip(session.request_all(&calls), answers).await.0.pop().expect("one").expect("it is created");
        assert_eq!(preparations(&session, &one).await, 3);
        session.close().await;
    });
}

#[test]
fn texts_are_prepared_anew_after_another_client_has_changed_the_schema() {
    let one = server();
    run(async {
        let (session, mut events) = session(options(&one));
        eventually("the keyspaces are known", || session.cluster().is_some_and(|status| status.routed_keyspaces == 1))
            .await;
        assert_eq!((preparations(&session, &one).await, preparations(&session, &one).await), (1, 1));
        let change = [string("SCHEMA_CHANGE"), string("CREATED"), string("KEYSPACE"), string("shop")].concat();
        one.push(&message(-1, Opcode::Event, &change));
        event(&mut events, |event| event == ClusterEvent::SchemaChanged).await;
        assert_eq!(preparations(&session, &one).await, 2);
        session.close().await;
    });
}

/// Its table was dropped, and created again with another type.
#[test]
fn statement_whose_variables_have_changed_is_outdated() {
    let one = server();
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).version(Version::V4);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        let statement = session.prepare("echo ?").await.expect("prepared");
        one.add(Rule::on(RequestKind::Execute, Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned())));
        one.add(Rule::on(RequestKind::Prepare, Act::Lose));
        let id = [&16_u16.to_be_bytes(), statement.id()].concat();
        let variable = [string("poolhouse"), string("answers"), string("v0"), vec![0, 9]].concat();
        let body = [&int(4)[..], &id, &int(1), &int(1), &int(0), &variable, &int(0), &int(0)].concat();
        let answered =
            |number| answer(&one, RequestKind::Prepare, number, |stream| message(stream, Opcode::Result, &body));
        let call = session.execute(&statement, &("tea",));
        let (result, ()) = smol::future::zip(call.clone().send(), answered(2)).await;
        assert!(matches!(result, Err(RequestError::Outdated)), "{result:?}");
        // From now on nothing of this statement is sent: not what is bound already, and nothing new.
        let calls = [call.clone(), call.clone(), session.execute(&statement, &("tea",))];
        let results = session.request_all(&calls).await;
        assert!(results.iter().all(|result| matches!(result, Err(RequestError::Outdated))), "{results:?}");
        let mut batch = Batch::logged();
        batch.execute(&statement, &("tea",));
        for call in [call, session.batch(&batch)] {
            assert!(matches!(call.send().await, Err(RequestError::Outdated)));
        }
        let count = |kind| one.log().iter().filter(|request| request.kind == kind).count();
        assert_eq!((count(RequestKind::Execute), count(RequestKind::Prepare)), (1, 2));
        session.close().await;
    });
}

/// Its table was dropped and created again, with another type and back, or its statement has another id now.
#[test]
fn text_whose_statement_has_changed_is_prepared_anew() {
    let forgotten = || Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned());
    for (are_many, has_other_id) in [(false, false), (true, false), (false, true), (true, true)] {
        let one = server();
        run(async {
            let options = SessionOptions::new([one.address().to_string()]).version(Version::V4);
            let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
            let call = || session.query("echo ?").values(("tea",)).consistency(Consistency::One);
            call().send().await.expect("prepared, and executed");
            one.add(Rule::on(RequestKind::Execute, forgotten()).times(1));
            // The first PREPARE asks for the variables, and the next one for the id.
            let (kind, last) = if has_other_id { (13, 3) } else { (9, 2) };
            one.add(Rule::on(RequestKind::Prepare, Act::Lose).times(last - 1));
            let variable = [string("poolhouse"), string("answers"), string("v0"), vec![0, kind]].concat();
            let body =
                [&int(4)[..], &string("another id"), &int(1), &int(1), &int(0), &variable, &int(0), &int(0)].concat();
            let answered = async {
                for number in 2..=usize::try_from(last).expect("small") {
                    answer(&one, RequestKind::Prepare, number, |stream| message(stream, Opcode::Result, &body)).await;
                }
            };
            let sent =
                async { if are_many { session.request_all(&[call()]).await.remove(0) } else { call().send().await } };
            let (result, ()) = smol::future::zip(sent, answered).await;
            let reply = result.unwrap_or_else(|error| panic!("{are_many}, {has_other_id}: {error}"));
            assert_eq!(cell_of(reply.body()), Some(&b"tea"[..]));
            session.close().await;
        });
    }
}

/// The first server has received the request and ends its connection; the second one has other variables, and ends its
/// connection when the text is prepared anew.
#[test]
fn execution_that_was_lost_is_in_the_error_also_after_a_text_was_prepared_anew() {
    for are_many in [false, true] {
        let (lost, one) = (server(), server());
        run(async {
            let hosts = [&lost, &one].map(|server| server.address().to_string());
            let options = SessionOptions::new(hosts.clone()).version(Version::V4).request_timeout(PATIENCE);
            let session = Session::new(options).expect("valid options");
            let ids = hosts.map(|address| {
                session.hosts().into_iter().find(|host| host.address == address).expect("a host of the session").id
            });
            let call = || session.query("echo ?").values(("tea",)).consistency(Consistency::One).idempotent(true);
            for id in [ids[1], ids[0]] {
                call().hosts(&[id]).send().await.expect("all have it");
            }
            let closes = |kind| Rule::on(kind, Act::Close(Cut::Reset));
            for server in [&lost, &one] {
                server.refuse().expect("no connection follows");
            }
            lost.add(closes(RequestKind::Execute));
            let forgotten = Act::Error(ErrorCode::UNPREPARED.number(), "forgotten".to_owned());
            one.add(Rule::on(RequestKind::Execute, forgotten).times(1));
            one.add(Rule::on(RequestKind::Prepare, Act::Lose).times(1));
            one.add(closes(RequestKind::Prepare));
            let variable = [string("poolhouse"), string("answers"), string("v0"), vec![0, 9]].concat();
            let body =
                [&int(4)[..], &string("another id"), &int(1), &int(1), &int(0), &variable, &int(0), &int(0)].concat();
            let call = call().hosts(&ids);
            let sent =
                async { if are_many { session.request_all(&[call]).await.remove(0) } else { call.send().await } };
            let answered = answer(&one, RequestKind::Prepare, 2, |stream| message(stream, Opcode::Result, &body));
            let error = smol::future::zip(sent, answered).await.0.expect_err("no host is left");
            assert!(matches!(error, RequestError::NoHost(_)) && error.may_have_executed(), "{are_many}: {error}");
            session.close().await;
        });
    }
}

#[test]
fn statement_that_cannot_be_prepared_fails_its_own_calls_only() {
    let (one, two) = (server(), server());
    two.add(
        Rule::on(RequestKind::Prepare, Act::Error(ErrorCode::INVALID.number(), "no table".to_owned())).text("echo bad"),
    );
    run(async {
        let session = |server: &CqlServer| {
            Session::new(SessionOptions::new([server.address().to_string()]).request_timeout(PATIENCE)).expect("valid")
        };
        let (first, second) = (session(&one), session(&two));
        let good = first.prepare("echo tea").await.expect("prepared");
        let bad = first.prepare("echo bad").await.expect("prepared");
        // The other host has neither.
        let calls = [&good, &bad, &good].map(|statement| second.execute(statement, &()));
        let results = second.request_all(&calls).await;
        assert!(matches!(results[..], [Ok(_), Err(RequestError::Server(_)), Ok(_)]), "{results:?}");
        first.close().await;
        second.close().await;
    });
}

#[test]
fn page_of_a_call_that_is_not_idempotent_is_requested_once() {
    for (is_idempotent, count) in [(Some(false), 1), (None, 2)] {
        let (one, two) = (server(), server());
        for server in [&one, &two] {
            server.add(Rule::statements(Act::Close(Cut::Reset)));
        }
        run(async {
            let hosts = [one.address().to_string(), two.address().to_string()];
            let session = Session::new(SessionOptions::new(hosts).request_timeout(PATIENCE)).expect("valid options");
            eventually("both are connected", || session.hosts().iter().all(|host| host.state.open > 0)).await;
            let call = session.query("echo tea");
            let call = is_idempotent.map_or(call.clone(), |is_idempotent| call.idempotent(is_idempotent));
            let page = call.pages().next_page().await.expect("an item");
            assert_eq!(matches!(page, Err(RequestError::Lost { .. })), is_idempotent.is_some(), "{page:?}");
            let sent =
                |server: &CqlServer| server.log().iter().filter(|request| request.kind == RequestKind::Query).count();
            assert_eq!(sent(&one) + sent(&two), count, "{is_idempotent:?}");
            session.close().await;
        });
    }
}

#[test]
fn call_of_another_session_is_refused() {
    let (one, two) = (server(), server());
    run(async {
        let session = |server: &CqlServer| {
            Session::new(SessionOptions::new([server.address().to_string()]).request_timeout(PATIENCE)).expect("valid")
        };
        let (first, second) = (session(&one), session(&two));
        let results = first.request_all(&[first.query("echo tea"), second.query("echo tea")]).await;
        assert!(matches!(results[..], [Ok(_), Err(RequestError::Foreign)]), "{results:?}");
        assert_eq!((echoes(&one), echoes(&two)), (1, 0));
        first.close().await;
        second.close().await;
    });
}

#[test]
fn pages_end_although_the_server_repeats_a_position() {
    let one = server();
    one.add(Rule::statements(Act::Lose));
    // A page without rows, and the position after it.
    let page = |stream, position: &str| {
        let body = [&int(2)[..], &int(2 | 4), &int(1), &bytes(Some(position.as_bytes())), &int(0)].concat();
        message(stream, Opcode::Result, &body)
    };
    run(async {
        let options = SessionOptions::new([one.address().to_string()]).version(Version::V4);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        let mut pages = session.query("echo tea").consistency(Consistency::One).pages();
        let first = answer(&one, RequestKind::Query, 1, |stream| page(stream, "1"));
        smol::future::zip(pages.next_page(), first).await.0.expect("the first page").expect("a reply");
        let second = answer(&one, RequestKind::Query, 2, |stream| page(stream, "1"));
        let error = smol::future::zip(pages.next_page(), second).await.0.expect("an error");
        let error = error.expect_err("the same page again");
        assert!(matches!(error, RequestError::RepeatedPage), "{error}");
        assert!(pages.next_page().await.is_none());
        // An empty position is that after the last page.
        let mut pages = session.query("echo tea").consistency(Consistency::One).pages();
        let only = answer(&one, RequestKind::Query, 3, |stream| page(stream, ""));
        smol::future::zip(pages.next_page(), only).await.0.expect("the only page").expect("a reply");
        assert!(pages.next_page().await.is_none());
        session.close().await;
    });
}

#[test]
fn request_without_answer_is_sent_to_further_hosts() {
    let (one, two) = (server(), server());
    run(async {
        let options = SessionOptions::new([one.address().to_string(), two.address().to_string()]);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        eventually("both hosts are connected", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        let begin =
            |speculation| session.query("echo tea").consistency(Consistency::One).speculation(speculation).send();
        // In time: one request for each.
        let late = Speculation { delay: PATIENCE, hosts_max: 2 };
        for _ in 0..4 {
            begin(late).await.expect("a reply");
        }
        assert_eq!((echoes(&one), echoes(&two)), (2, 2));
        // A host that does not answer. The requests begin at `one` and `two` in turn.
        let rule = one.add(Rule::statements(Act::Lose));
        let soon = Speculation { delay: Duration::from_millis(10), hosts_max: 9 };
        for at_one in [3, 4] {
            two.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }).times(1));
            let answer = async {
                eventually("both hosts are asked", || (echoes(&one), two.held_count()) == (at_one, 1)).await;
                two.release(Order::Kept);
            };
            let (reply, ()) = smol::future::zip(begin(soon), answer).await;
            assert_eq!(cell_of(reply.expect("a reply").body()), Some(&b"tea"[..]));
            begin(late).await.expect("a reply");
        }
        assert_eq!((echoes(&one), echoes(&two)), (4, 6));
        // No host answers: each is asked once. On a machine that stalls, the limit may pass before that.
        let other = two.add(Rule::statements(Act::Lose));
        let mut asked = (0, 0);
        for round in 0.. {
            let text = format!("echo {round};");
            let call = session.query(&text).consistency(Consistency::One).timeout(Duration::from_millis(50));
            let error = call.speculation(soon).send().await.expect_err("no answer");
            assert!(error.is_timeout(), "{error}");
            asked = (queries(&one, &text), queries(&two, &text));
            if asked.0 + asked.1 > 1 {
                break;
            }
        }
        assert_eq!(asked, (1, 1));
        // An error of a server is an answer. A single host is asked once.
        one.remove(rule);
        two.remove(other);
        let error = session.query("SELEC 1").consistency(Consistency::One).speculation(late).send().await;
        assert!(matches!(error, Err(RequestError::Server(_))), "{error:?}");
        let none = Speculation { hosts_max: 0, ..soon };
        let single = session.query("echo once").consistency(Consistency::One);
        single.speculation(none).send().await.expect("a reply");
        assert_eq!(queries(&one, "echo once") + queries(&two, "echo once"), 1);
        // Hosts that fail: the next attempt begins at once.
        one.kill().expect("it ends");
        two.kill().expect("it ends");
        eventually("the connections are closed", || session.hosts().iter().all(|host| host.state.open == 0)).await;
        let error = begin(late).await.expect_err("no host");
        assert!(matches!(error, RequestError::NoHost(_)), "{error}");
        session.close().await;
    });
}

/// A server that sends these bytes when it has received some, then closes the connection, or keeps it.
fn foreign(answer: Option<&'static [u8]>, closes: bool) -> SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            // An error means that the client has closed the connection.
            let _ = answer.map(|answer| stream.read(&mut [0; 64]).and_then(|_| stream.write_all(answer)));
            if !closes {
                kept.push(stream);
            }
        }
    });
    address
}

/// The error of a request to this address.
fn error_at(address: SocketAddr, options: impl FnOnce(SessionOptions) -> SessionOptions) -> String {
    run(async {
        let session = Session::new(options(SessionOptions::new([address.to_string()]))).expect("valid options");
        let error = session.query("echo tea").consistency(Consistency::One).send().await.expect_err("no Cassandra");
        session.close().await;
        error.to_string()
    })
}

#[test]
fn session_to_another_protocol_says_so() {
    // A reply of mongod: length, id, responseTo, OP_MSG.
    const MONGOD: &[u8] = &[40, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0];
    // An alert of 7 bytes, which are less than an envelope's header.
    const TLS: &[u8] = &[0x15, 3, 3, 0, 2, 2, 70];
    for (answer, closes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], true, "it is an HTTP server"),
        (b"-ERR unknown command\r\n", false, "it is a Redis server"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", false, "it is an SSH server"),
        (MONGOD, false, "it is a MongoDB server"),
        (TLS, true, "it requires TLS"),
        (b"\x4a\x00\x00\x00\x0a5.7.0", true, "is this the port of Cassandra's clients?"),
    ] {
        let error = error_at(foreign(Some(answer), closes), |options| options);
        let whole = format!("the server sent bytes that are no envelope of Cassandra's protocol: {expected}");
        assert!(error.contains(&whole), "{error}");
    }
    let error = error_at(foreign(Some(b""), true), |options| options);
    assert!(error.contains("the server closed the connection before it answered: does it require TLS"), "{error}");
}

#[test]
fn session_to_a_server_that_does_not_answer_says_so() {
    let short = Duration::from_millis(300);
    let silent = || foreign(None, false);
    // The pool gives up before the attempt to connect, or after it. Nobody was busy.
    let error = error_at(silent(), |options| options.mux(MuxOptions { pool_timeout: short, ..MuxOptions::DEFAULT }));
    let expected = "no connection was open in time (no answer to the handshake: is this a Cassandra server's port?";
    assert!(error.contains(expected), "{error}");
    let error = error_at(silent(), |options| options.connect_timeout(short));
    let expected = "network timeout (no answer to the handshake in 300ms: is this a Cassandra server's port?";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn error_lists_the_hosts_with_the_reasons_of_the_system_and_one_notation_of_codes() {
    let (one, two) = (server(), server());
    let refuses = Act::Error(ErrorCode::INVALID.number(), "Keyspace 'nope' does not exist".to_owned());
    one.add(Rule::on(RequestKind::Startup, refuses));
    two.kill().expect("it ends");
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let session = Session::new(SessionOptions::new(hosts.clone()).version(Version::V4)).expect("valid options");
        eventually("both have failed", || session.hosts().iter().all(|host| host.refusal.is_some())).await;
        let error = session.query("echo tea").consistency(Consistency::One).send().await.expect_err("no host");
        let text = error.to_string();
        let refused = "no connection to the host is open: the server refused with code 0x2200 (Keyspace 'nope'";
        let closed = format!("no connection to the host is open: network error ({})", connection_refused());
        for (host, reason) in hosts.iter().zip([refused, &closed]) {
            assert!(text.contains(&format!("{host}: {reason}")), "{text}");
        }
        let mut source = core::error::Error::source(&error);
        while let Some(cause) = source {
            assert!(!cause.to_string().contains("8704"), "{cause}");
            source = cause.source();
        }
        session.close().await;
    });
}

#[test]
fn refused_password_names_the_option() {
    let mut options = CqlServerOptions::default();
    options.credentials = Some(("ann".into(), "right".into()));
    let one = CqlServer::start(options).expect("a server");
    let error = error_at(one.address(), |options| options.credential("ann", "hunter2"));
    assert!(error.contains("authentication failed") && error.contains("check SessionOptions::credential"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
