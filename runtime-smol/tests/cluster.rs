//! Sessions on smol that discover their hosts, against fake Cassandra servers that lie or not.

#![allow(missing_docs, reason = "a test")]

use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use poolhouse_smol::mux::cql::{
    Consistency, Encoder, ErrorCode, Limits, Opcode, Outgoing, Parameters, Request, Token, Value, Version,
    encode_envelope,
};
use poolhouse_smol::mux::{
    ClusterEvent, ClusterOptions, ClusterQuery, CqlHost, MuxEvent, MuxOptions, RequestError, RequestOptions,
    RetryPolicy, Session, SessionOptions, Speculation,
};
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_smol::{Event, EventKinds, EventRef, Notice, Smol, Subscription};
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Cut, Order, RequestKind, Rule, cell_of};
use poolhouse_tests::patience::{PATIENCE, eventually, run};
use std::time::Instant;

/// The queries of the control connection.
const PEERS: &str = "SELECT * FROM system.peers_v2";
const LOCAL: &str = "SELECT * FROM system.local";

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
    options.version(Version::V4).request_timeout(PATIENCE)
}

/// A session, and the events of its cluster.
fn session(options: SessionOptions) -> (Session, Subscription) {
    let subscribers = Subscribers::default();
    let events = subscribers.subscribe(EventKinds::CLUSTER, 16_384, |_| true);
    (Session::with_platform(Smol, options, subscribers).expect("valid options"), events)
}

async fn event(events: &mut Subscription, wanted: impl Fn(ClusterEvent) -> bool) -> ClusterEvent {
    let next = async {
        loop {
            match events.next().await {
                Some(Notice::Event { event: Event::Cluster(event), .. }) if wanted(event) => return event,
                Some(_) => {}
                None => panic!("the events have ended"),
            }
        }
    };
    let limit = async {
        smol::Timer::after(PATIENCE).await;
        panic!("the event does not arrive")
    };
    smol::future::or(next, limit).await
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
            let options = RequestOptions::default().routing("poolhouse", &key);
            let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
            session.request_with(&request, options).await.expect("a reply");
            let after = (echoes(&one) - before.0, echoes(&two) - before.1);
            assert_eq!(after, if is_of_one { (1, 0) } else { (0, 1) }, "{number}");
        }
        // An unknown keyspace: the hosts in rotation.
        let before = (echoes(&one), echoes(&two));
        for _ in 0..10 {
            let options = RequestOptions::default().routing("elsewhere", b"1");
            let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
            session.request_with(&request, options).await.expect("a reply");
        }
        assert_eq!((echoes(&one) - before.0, echoes(&two) - before.1), (5, 5));
        // The replica fails, and another host takes the request.
        two.kill().expect("it ends");
        let key = (0..u32::MAX).map(u32::to_be_bytes).find(|key| Token::of(key).number() < FAR).expect("a key");
        eventually("its connection is closed", || session.hosts().iter().any(|host| host.state.open == 0)).await;
        let options = RequestOptions::default().routing("poolhouse", &key);
        let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
        session.request_with(&request, options).await.expect("a reply of the other");
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
            session.query("echo tea", Consistency::One).await.expect("a reply");
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
            session.query("echo tea", Consistency::One).await.expect("a reply");
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
    one.add(
        Rule::on(RequestKind::Query, Act::Error(ErrorCode::INVALID.number(), "unconfigured table".to_owned()))
            .text(PEERS),
    );
    run(async {
        let (session, mut events) = session(options(&one));
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        assert_eq!(queries(&one, "SELECT * FROM system.peers"), 2);
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
        eventually("the hosts are known", || session.hosts().len() == 2).await;
        let held = two.add(Rule::statements(Act::Hold { count: usize::MAX, order: Order::Kept }));
        let ids: Vec<_> = session
            .hosts()
            .iter()
            .filter(|host| host.address == two.address().to_string())
            .map(|host| host.id)
            .collect();
        let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
        let options = RequestOptions { hosts: Some(&ids), ..RequestOptions::default() };
        let mut pending = Box::pin(session.request_with(&request, options));
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
        let failed = Instant::now();
        two.resume().expect("it accepts connections");
        one.push(&node_event("STATUS_CHANGE", "UP", two.address()));
        eventually("both nodes are used", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        assert!(failed.elapsed() < Duration::from_secs(3), "{:?}", failed.elapsed());
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
        let requests = [Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) }; 100];
        let replies = session.request_all(&requests).await;
        event(&mut events, |event| event == ClusterEvent::NodeAdded { node: one.address() }).await;
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        session.query("echo tea", Consistency::One).await.expect("a reply");
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
            assert_eq!((statement.key_positions(), statement.routing(&[])), (&[][..], None));
            let values = [Value::Bytes(b"tea")];
            let parameters = Parameters::new(Consistency::One).values(&values);
            for _ in 0..6 {
                let reply = session.execute(&statement, parameters, RequestOptions::default()).await.expect("a reply");
                assert_eq!(cell_of(reply.body()), Some(&b"tea"[..]), "{version}");
            }
            let prepared =
                |server: &CqlServer| server.log().iter().filter(|request| request.kind == RequestKind::Prepare).count();
            assert_eq!((prepared(&one), prepared(&two)), (1, 1), "{version}");
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
        let parameters = Parameters::new(Consistency::One);
        let error = session.execute(&statement, parameters, RequestOptions::default()).await.expect_err("refused");
        let RequestError::Server(error) = error else { panic!("{error:?}") };
        assert_eq!(error.code, ErrorCode::UNPREPARED);
        let executed = one.log().iter().filter(|request| request.kind == RequestKind::Execute).count();
        assert_eq!(executed, 2);
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
            let options = RequestOptions { hosts: Some(&hosts), idempotent: true, ..RequestOptions::default() };
            let parameters = Parameters::new(Consistency::One);
            let on_two = RequestOptions { hosts: hosts.get(1..), ..options };
            session.execute(&statement, parameters, on_two).await.expect("both have it");
            one.add(Rule::on(RequestKind::Execute, forgotten()).times(1));
            one.refuse().expect("no connection follows");
            one.add(Rule::on(failing, Act::Close(Cut::Reset)));
            let before = echoes(&two);
            session.execute(&statement, parameters, options).await.expect("a reply");
            assert_eq!(echoes(&two) - before, 1, "{failing:?}");
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
        let execution = session.execute(&statement, Parameters::new(Consistency::One), RequestOptions::default());
        smol::future::zip(execution, answer(&one, RequestKind::Prepare, 2, reply)).await.0.expect("a reply");
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
        one.add(Rule::on(RequestKind::Prepare, Act::Raw(message(0, Opcode::Result, body))));
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
    let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
    let options = RequestOptions { timeout: Some(Duration::from_millis(100)), ..RequestOptions::default() };
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
            let options = RequestOptions { hosts: Some(&ids), ..options };
            let speculation = Speculation { delay, hosts_max: 2 };
            let error = session.request_speculatively(&request, options, speculation).await.expect_err("no answer");
            assert!(matches!(error, RequestError::TimedOut { sent: true, .. }), "{delay:?}: {error}");
        }
        session.close().await;
    });
}

#[test]
fn attempts_continue_with_the_hosts_that_replace_theirs() {
    let (one, two) = (server(), server());
    one.add(Rule::any(Act::Mute));
    let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
    run(async {
        let mux = MuxOptions { pool_timeout: PATIENCE, ..MuxOptions::DEFAULT };
        let options = SessionOptions::new([one.address().to_string()]).request_timeout(PATIENCE).mux(mux);
        let session = Session::new(options).expect("valid options");
        let speculation = Speculation { delay: PATIENCE, hosts_max: 2 };
        let attempts = session.request_speculatively(&request, RequestOptions::default(), speculation);
        let mut attempts = Box::pin(attempts);
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
    let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
    run(async {
        let session = |hosts: &[&CqlServer]| {
            let hosts = hosts.iter().map(|host| host.address().to_string());
            Session::new(SessionOptions::new(hosts).request_timeout(PATIENCE)).expect("valid options")
        };
        let both = session(&[&one, &two]);
        let ids: Vec<_> = both.hosts().iter().map(|host| host.id).collect();
        let options = RequestOptions { hosts: Some(&ids), idempotent: true, ..RequestOptions::default() };
        both.request_with(&request, options).await.expect("the other host has replicas");
        let [batched] = &both.request_all_with(&[request], options).await[..] else { panic!("one result") };
        assert!(batched.is_ok(), "{batched:?}");
        let never = RequestOptions { retry: Some(RetryPolicy::Fallthrough), ..options };
        let error = both.request_with(&request, never).await.expect_err("it is sent once");
        assert!(matches!(&error, RequestError::Server(error) if error.code == ErrorCode::UNAVAILABLE), "{error}");
        // The request is sent again only once, and the last error is the result.
        two.add(unavailable());
        let twice: Vec<_> = ids.iter().chain(&ids).copied().collect();
        let before = echoes(&one) + echoes(&two);
        let options = RequestOptions { hosts: Some(&twice), ..options };
        let error = both.request_with(&request, options).await.expect_err("no host has replicas");
        assert!(matches!(&error, RequestError::Server(error) if error.message == "too few"), "{error}");
        assert_eq!(echoes(&one) + echoes(&two) - before, 2);
        // A server may have executed a part of it.
        let before = echoes(&one) + echoes(&two);
        let error = both.request_with(&request, RequestOptions { idempotent: false, ..options }).await;
        let error = error.expect_err("it is sent once");
        assert!(matches!(error, RequestError::Server(_)), "{error}");
        assert_eq!(echoes(&one) + echoes(&two) - before, 1);
        // Without another host, and if the others are not available.
        two.kill().expect("it refuses connections");
        let options = RequestOptions { hosts: None, ..options };
        let pair = session(&[&one, &two]);
        let alone = session(&[&one]);
        for session in [&pair, &alone] {
            let error = session.request_with(&request, options).await.expect_err("no other host");
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
    let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
    run(async {
        let hosts = [one.address().to_string(), two.address().to_string()];
        let options = SessionOptions::new(hosts).version(Version::V4).request_timeout(PATIENCE);
        let session = Session::new(options).expect("valid options");
        let ids: Vec<_> = session.hosts().iter().map(|host| host.id).collect();
        let options = RequestOptions { hosts: Some(&ids), ..RequestOptions::default() };
        let answers = async {
            answer(&one, RequestKind::Query, 1, timeout).await;
            answer(&one, RequestKind::Query, 2, timeout).await;
        };
        let (result, ()) = smol::future::zip(session.request_with(&request, options), answers).await;
        let error = result.expect_err("the second read is late as well");
        assert!(matches!(&error, RequestError::Server(error) if error.code == ErrorCode::READ_TIMEOUT), "{error}");
        let requests = [request];
        let answers = async {
            answer(&one, RequestKind::Query, 3, timeout).await;
            answer(&one, RequestKind::Query, 4, timeout).await;
        };
        let (results, ()) = smol::future::zip(session.request_all_with(&requests, options), answers).await;
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
        let mut pages = session.pages("echo tea", Parameters::new(Consistency::One), None);
        let first = answer(&one, RequestKind::Query, 1, |stream| page(stream, "1"));
        smol::future::zip(pages.next_page(), first).await.0.expect("the first page").expect("a reply");
        let second = answer(&one, RequestKind::Query, 2, |stream| page(stream, "1"));
        let error = smol::future::zip(pages.next_page(), second).await.0.expect("an error");
        let error = error.expect_err("the same page again");
        assert!(matches!(error, RequestError::RepeatedPage), "{error}");
        assert!(pages.next_page().await.is_none());
        // An empty position is that after the last page.
        let mut pages = session.pages("echo tea", Parameters::new(Consistency::One), None);
        let only = answer(&one, RequestKind::Query, 3, |stream| page(stream, ""));
        smol::future::zip(pages.next_page(), only).await.0.expect("the only page").expect("a reply");
        assert!(pages.next_page().await.is_none());
        session.close().await;
    });
}

#[test]
fn request_without_answer_is_sent_to_further_hosts() {
    let (one, two) = (server(), server());
    let request = Request::Query { text: "echo tea", parameters: Parameters::new(Consistency::One) };
    run(async {
        let options = SessionOptions::new([one.address().to_string(), two.address().to_string()]);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        eventually("both hosts are connected", || session.hosts().iter().all(|host| host.state.open == 1)).await;
        let begin = |speculation| session.request_speculatively(&request, RequestOptions::default(), speculation);
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
            let request = Request::Query { text: &text, parameters: Parameters::new(Consistency::One) };
            let options = RequestOptions { timeout: Some(Duration::from_millis(50)), ..RequestOptions::default() };
            let error = session.request_speculatively(&request, options, soon).await.expect_err("no answer");
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
        let wrong = Request::Query { text: "SELEC 1", parameters: Parameters::new(Consistency::One) };
        let error = session.request_speculatively(&wrong, RequestOptions::default(), late).await;
        assert!(matches!(error, Err(RequestError::Server(_))), "{error:?}");
        let none = Speculation { hosts_max: 0, ..soon };
        let single = Request::Query { text: "echo once", parameters: Parameters::new(Consistency::One) };
        session.request_speculatively(&single, RequestOptions::default(), none).await.expect("a reply");
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
