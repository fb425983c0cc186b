//! The machine with the answers of the test.

use super::*;
use crate::{Cause, Instant, Observer};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

const OPTIONS: ClusterOptions = ClusterOptions::DEFAULT;

#[derive(Clone, Default)]
struct Log(Vec<ClusterEvent>);

impl Observer<ClusterEvent> for Log {
    fn on_event(&mut self, _: Instant, event: &ClusterEvent) {
        self.0.push(*event);
    }
}

#[derive(Clone)]
struct Rig {
    cluster: Cluster,
    now: Instant,
    log: Log,
}

fn ip(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::new(ip(number), 9042)
}

fn row(number: u8) -> NodeRow {
    NodeRow {
        address: Some(ip(number)),
        port: Some(9042),
        data_center: Some(String::from("east")),
        rack: Some(String::from("r1")),
        tokens: vec![i64::from(number)],
    }
}

fn local(number: u8) -> LocalRow {
    LocalRow { cluster_name: String::from("tea"), broadcast_address: None, node: row(number) }
}

impl Rig {
    fn new(contacts: usize) -> Self {
        let now = Instant::ORIGIN;
        Self { cluster: Cluster::new(now, OPTIONS, contacts, 7), now, log: Log::default() }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        self.cluster.handle_timeout(self.now, &mut self.log);
        self.cluster.assert_invariants();
    }

    fn action(&mut self) -> Option<ClusterAction> {
        let action = self.cluster.poll_action(self.now);
        self.cluster.assert_invariants();
        action
    }

    fn connect(&mut self) {
        assert!(matches!(self.action(), Some(ClusterAction::Connect(_))));
        self.cluster.handle_connected(self.now, Some(address(1)), &mut self.log);
    }

    /// Connects to this peer, and sends the first query for nodes.
    fn connect_to(&mut self, peer: SocketAddr) {
        assert!(matches!(self.action(), Some(ClusterAction::Connect(_))));
        self.cluster.handle_connected(self.now, Some(peer), &mut self.log);
        self.expect(ClusterQuery::Register);
        self.cluster.handle_registered();
        self.expect(ClusterQuery::Local);
    }

    fn expect(&mut self, query: ClusterQuery) {
        assert_eq!(self.action(), Some(ClusterAction::Send(query)));
        assert_eq!(self.action(), None, "one query at a time");
    }

    /// Answers the queries for nodes: the node 1, and these peers.
    fn read(&mut self, peers: impl IntoIterator<Item = NodeRow>) {
        self.expect(ClusterQuery::Local);
        self.cluster.handle_local(self.now, local(1), &mut self.log);
        self.expect(ClusterQuery::Peers);
        self.cluster.handle_peers(self.now, peers, &mut self.log);
        let count = u32::try_from(self.cluster.nodes().len()).expect("few");
        assert_eq!(self.log.0.pop(), Some(ClusterEvent::NodesRead { count }), "each reading ends by this");
        assert_eq!(self.action(), Some(ClusterAction::Publish));
    }

    /// Connects and answers all queries.
    fn discover(&mut self, peers: impl IntoIterator<Item = NodeRow>) {
        self.connect();
        self.expect(ClusterQuery::Register);
        self.cluster.handle_registered();
        self.read(peers);
        self.expect(ClusterQuery::Keyspaces);
        self.cluster.handle_keyspaces();
        assert_eq!(self.action(), Some(ClusterAction::Publish));
        assert_eq!(self.action(), None);
    }

    fn event(&mut self, event: ServerEvent) {
        self.cluster.handle_event(self.now, event, &mut self.log);
    }

    fn events(&mut self) -> Vec<ClusterEvent> {
        core::mem::take(&mut self.log.0)
    }

    fn numbers(&self) -> Vec<u8> {
        let last = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => 0,
        };
        self.cluster.nodes().keys().map(last).collect()
    }
}

#[test]
fn nodes_of_the_tables_are_found_and_read_again() {
    let mut rig = Rig::new(2);
    rig.discover([row(2), row(3)]);
    assert_eq!(rig.numbers(), [1, 2, 3]);
    assert_eq!(rig.cluster.name(), Some("tea"));
    assert_eq!(
        rig.events(),
        [
            ClusterEvent::ControlConnected { peer: Some(address(1)) },
            ClusterEvent::NodeAdded { node: address(1) },
            ClusterEvent::NodeAdded { node: address(2) },
            ClusterEvent::NodeAdded { node: address(3) },
        ]
    );
    let until = rig.cluster.poll_timeout().expect("the next reading");
    assert_eq!(until.saturating_since(rig.now), OPTIONS.refresh_interval);
    rig.pass(OPTIONS.refresh_interval);
    let moved = NodeRow { rack: Some(String::from("r2")), ..row(3) };
    rig.read([moved, row(4)]);
    assert_eq!(rig.numbers(), [1, 3, 4]);
    assert_eq!(
        rig.events(),
        [
            ClusterEvent::NodeChanged { node: address(3) },
            ClusterEvent::NodeAdded { node: address(4) },
            ClusterEvent::NodeRemoved { node: address(2) },
        ]
    );
}

#[test]
fn order_of_tokens_does_not_matter() {
    let mut rig = Rig::new(1);
    let with = |tokens| NodeRow { tokens, ..row(2) };
    rig.discover([with(vec![3, 1, 2])]);
    rig.events();
    rig.pass(OPTIONS.refresh_interval);
    rig.read([with(vec![2, 3, 1])]);
    assert_eq!(rig.events(), []);
}

#[test]
fn many_events_cause_one_reading() {
    let mut rig = Rig::new(1);
    rig.discover([row(2)]);
    rig.events();
    for _ in 0..1000 {
        rig.event(ServerEvent::Topology);
        rig.event(ServerEvent::Status { node: address(9), is_up: true });
        rig.event(ServerEvent::Status { node: address(8), is_up: false });
        assert_eq!(rig.action(), None);
        rig.pass(OPTIONS.debounce / 1000);
    }
    rig.read([row(2), row(9)]);
    assert_eq!(rig.numbers(), [1, 2, 9]);
    assert_eq!(rig.action(), None);
}

#[test]
fn event_during_a_reading_causes_another() {
    let mut rig = Rig::new(1);
    rig.discover([row(2)]);
    rig.pass(OPTIONS.refresh_interval);
    rig.expect(ClusterQuery::Local);
    rig.event(ServerEvent::Topology);
    rig.cluster.handle_local(rig.now, local(1), &mut rig.log);
    rig.expect(ClusterQuery::Peers);
    rig.cluster.handle_peers(rig.now, [row(2)], &mut rig.log);
    assert_eq!(rig.action(), Some(ClusterAction::Publish));
    assert_eq!(rig.action(), None);
    rig.pass(OPTIONS.debounce);
    rig.read([row(2), row(3)]);
}

#[test]
fn change_of_the_schema_reads_the_keyspaces() {
    let mut rig = Rig::new(1);
    rig.discover([]);
    rig.events();
    rig.event(ServerEvent::Schema);
    assert_eq!(rig.action(), None);
    rig.pass(OPTIONS.debounce);
    rig.expect(ClusterQuery::Keyspaces);
    rig.event(ServerEvent::Schema);
    rig.cluster.handle_keyspaces();
    assert_eq!(rig.action(), Some(ClusterAction::Publish));
    rig.pass(OPTIONS.debounce);
    rig.expect(ClusterQuery::Keyspaces);
    assert_eq!(rig.events(), [ClusterEvent::SchemaChanged; 2]);
}

#[test]
fn status_of_known_nodes_is_kept() {
    let mut rig = Rig::new(1);
    rig.discover([row(2)]);
    rig.events();
    let (node, is_up) = (address(2), false);
    for _ in 0..3 {
        rig.event(ServerEvent::Status { node, is_up });
    }
    assert_eq!(rig.events(), [ClusterEvent::NodeDown { node }]);
    rig.pass(OPTIONS.refresh_interval);
    rig.read([row(2)]);
    assert!(!rig.cluster.nodes()[&node].is_up, "the tables do not contain the status");
    rig.event(ServerEvent::Status { node, is_up: true });
    assert_eq!(rig.events(), [ClusterEvent::NodeUp { node }]);
}

#[test]
fn lying_rows_are_ignored_and_counted() {
    let mut rig = Rig::new(1);
    let lies = [
        row(1),
        row(2),
        NodeRow { rack: Some(String::from("other")), ..row(2) },
        NodeRow { address: None, ..row(3) },
        NodeRow { address: Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), ..row(3) },
        NodeRow { data_center: None, ..row(3) },
        NodeRow { rack: None, ..row(3) },
        NodeRow { port: Some(0), ..row(3) },
        NodeRow { tokens: Vec::new(), ..row(4) },
        NodeRow::default(),
    ];
    rig.discover(lies);
    assert_eq!(rig.numbers(), [1, 2, 4]);
    assert_eq!(rig.cluster.nodes()[&address(2)].rack, "r1");
    assert!(rig.events().contains(&ClusterEvent::RowsIgnored { count: 8 }));
    assert_eq!(rig.cluster.ignored_rows(), 8);
}

#[test]
fn surplus_rows_are_ignored() {
    let mut rig = Rig::new(1);
    let many = (0..10_000_u16).map(|port| NodeRow { port: Some(port + 10_000), ..row(2) });
    rig.discover(many);
    assert_eq!(rig.cluster.nodes().len(), NODES_MAX);
    assert!(rig.events().contains(&ClusterEvent::RowsIgnored { count: 10_001 - 4096 }));
}

#[test]
fn address_of_the_peer_is_that_of_a_node_that_listens_everywhere() {
    for given in [None, Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED))] {
        let mut rig = Rig::new(1);
        rig.connect();
        rig.expect(ClusterQuery::Register);
        rig.cluster.handle_registered();
        rig.expect(ClusterQuery::Local);
        let node = NodeRow { address: given, port: None, ..row(5) };
        rig.cluster.handle_local(rig.now, LocalRow { node, ..local(5) }, &mut rig.log);
        rig.expect(ClusterQuery::Peers);
        rig.cluster.handle_peers(rig.now, [], &mut rig.log);
        assert_eq!(rig.numbers(), [1]);
    }
}

#[test]
fn address_of_a_known_node_is_that_of_its_connection() {
    let mut rig = Rig::new(1);
    rig.discover([row(2)]);
    rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    rig.connect_to(address(2));
    rig.events();
    // It listens on another address than that under which the clients reach it.
    rig.cluster.handle_local(rig.now, local(5), &mut rig.log);
    rig.expect(ClusterQuery::Peers);
    rig.cluster.handle_peers(rig.now, [row(1)], &mut rig.log);
    let expected = vec![ClusterEvent::NodeChanged { node: address(2) }, ClusterEvent::NodesRead { count: 2 }];
    assert_eq!((rig.numbers(), rig.events()), (vec![1, 2], expected));
}

#[test]
fn address_for_other_nodes_is_that_of_a_contact_point_with_a_name() {
    let nowhere = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let unknown = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 9042);
    for (broadcast_address, expected) in [(Some(address(5)), vec![5]), (Some(unknown), vec![]), (None, vec![])] {
        let mut rig = Rig::new(1);
        rig.connect_to(unknown);
        assert_eq!(rig.events().last(), Some(&ClusterEvent::ControlConnected { peer: None }));
        let node = NodeRow { address: nowhere, port: None, ..row(5) };
        rig.cluster.handle_local(rig.now, LocalRow { node, broadcast_address, ..local(5) }, &mut rig.log);
        let _peers = rig.cluster.poll_action(rig.now);
        rig.cluster.handle_peers(rig.now, [], &mut rig.log);
        assert_eq!(rig.numbers(), expected, "{broadcast_address:?}");
    }
}

#[test]
fn old_server_is_asked_for_its_old_tables() {
    let mut rig = Rig::new(1);
    rig.connect();
    rig.expect(ClusterQuery::Register);
    rig.cluster.handle_registered();
    rig.expect(ClusterQuery::Local);
    rig.cluster.handle_local(rig.now, local(1), &mut rig.log);
    rig.expect(ClusterQuery::Peers);
    rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
    rig.expect(ClusterQuery::OldPeers);
    rig.cluster.handle_peers(rig.now, [NodeRow { port: None, ..row(2) }], &mut rig.log);
    assert_eq!(rig.action(), Some(ClusterAction::Publish));
    rig.expect(ClusterQuery::Keyspaces);
    rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
    assert_eq!(rig.action(), None);
    assert_eq!(rig.cluster.nodes().keys().copied().collect::<Vec<_>>(), [address(1), address(2)]);
    assert!(rig.cluster.is_connected());
}

#[test]
fn node_of_another_cluster_is_left() {
    let mut rig = Rig::new(2);
    rig.discover([row(2)]);
    rig.events();
    rig.pass(OPTIONS.refresh_interval);
    rig.expect(ClusterQuery::Local);
    let other = LocalRow { cluster_name: String::from("coffee"), ..local(1) };
    rig.cluster.handle_local(rig.now, other, &mut rig.log);
    assert_eq!(rig.events(), [ClusterEvent::OtherCluster]);
    assert_eq!(rig.action(), Some(ClusterAction::Close));
    assert!(matches!(rig.action(), Some(ClusterAction::Connect(Target::Node(_)))));
    assert_eq!(rig.numbers(), [1, 2]);
}

#[test]
fn failed_queries_close_the_connection() {
    let mut rig = Rig::new(1);
    rig.connect();
    rig.expect(ClusterQuery::Register);
    rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
    assert_eq!(rig.action(), Some(ClusterAction::Close));
    // A row without a location.
    rig.connect();
    rig.expect(ClusterQuery::Register);
    rig.cluster.handle_registered();
    rig.expect(ClusterQuery::Local);
    rig.cluster.handle_local(rig.now, LocalRow::default(), &mut rig.log);
    assert_eq!(rig.action(), Some(ClusterAction::Close));
    assert_eq!(rig.action(), None, "the third attempt is later");
    rig.pass(OPTIONS.backoff_min);
    // No answer.
    rig.connect();
    rig.expect(ClusterQuery::Register);
    rig.pass(OPTIONS.query_timeout);
    assert_eq!(rig.action(), Some(ClusterAction::Close));
    let failed = |event: &ClusterEvent| matches!(event, ClusterEvent::QueryFailed { .. });
    assert_eq!(rig.events().iter().filter(|event| failed(event)).count(), 3);
}

#[test]
fn first_contact_point_is_random() {
    for shift in [0, 8] {
        let mut counts = [0_u32; 4];
        // Multiples of an odd number, as evenly spread as the platform's entropy.
        for number in 0..400_u32 {
            let seed = u64::from(number.wrapping_mul(0x9e37_79b9)) << shift;
            let mut cluster = Cluster::new(Instant::ORIGIN, OPTIONS, 4, seed);
            let Some(ClusterAction::Connect(Target::Contact(index))) = cluster.poll_action(Instant::ORIGIN) else {
                panic!("a contact point")
            };
            counts[index] += 1;
        }
        assert!(counts.iter().all(|count| (50..=150).contains(count)), "{shift}: {counts:?}");
    }
}

#[test]
fn every_target_is_tried_with_growing_pauses() {
    let mut rig = Rig::new(3);
    rig.discover([row(2), row(3)]);
    rig.event(ServerEvent::Status { node: address(2), is_up: false });
    rig.pass(OPTIONS.backoff_max);
    rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    let (mut targets, mut pauses) = (Vec::new(), Vec::new());
    for _ in 0..12 {
        let Some(ClusterAction::Connect(target)) = rig.action() else { panic!("an attempt is due") };
        targets.push(target);
        assert_eq!((rig.action(), rig.cluster.poll_timeout()), (None, None));
        rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
        let until = rig.cluster.poll_timeout().expect("a pause");
        let pause = until.saturating_since(rig.now);
        pauses.push(pause);
        if !pause.is_zero() {
            assert_eq!(rig.action(), None);
        }
        rig.pass(pause);
    }
    let mut up = targets[..2].to_vec();
    up.sort_by_key(|target| alloc::format!("{target:?}"));
    assert_eq!(up, [Target::Node(address(1)), Target::Node(address(3))]);
    assert_eq!(targets[3], Target::Node(address(2)));
    let mut contacts = [targets[2], targets[4], targets[5]];
    contacts.sort_by_key(|target| alloc::format!("{target:?}"));
    assert_eq!(contacts, [0, 1, 2].map(Target::Contact));
    assert_eq!(targets[..6], targets[6..]);
    assert_eq!(pauses[0], Duration::ZERO);
    for (place, pause) in pauses.iter().enumerate().skip(1) {
        let longest = (OPTIONS.backoff_min * (1 << (place - 1))).min(OPTIONS.backoff_max);
        assert!(*pause >= longest / 2 && *pause <= longest, "{place}: {pause:?}");
    }
}

#[test]
fn contact_point_is_tried_after_every_second_node() {
    let mut rig = Rig::new(2);
    rig.discover((2..=7).map(row));
    rig.pass(OPTIONS.backoff_max);
    rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    let mut targets = Vec::new();
    for _ in 0..20 {
        let Some(ClusterAction::Connect(target)) = rig.action() else { panic!("an attempt is due") };
        targets.push(target);
        rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
        rig.pass(OPTIONS.backoff_max);
    }
    for group in targets.chunks_exact(3).take(3) {
        assert!(matches!(group, [Target::Node(_), Target::Node(_), Target::Contact(_)]), "{targets:?}");
    }
    assert!(targets[2] != targets[5] && targets[2] == targets[8]);
    // All seven nodes, and then from the beginning.
    let mut nodes: Vec<_> = targets[..10].iter().filter(|target| matches!(target, Target::Node(_))).collect();
    nodes.sort_by_key(|target| alloc::format!("{target:?}"));
    nodes.dedup();
    assert_eq!(nodes.len(), 7);
    assert_eq!(targets[..10], targets[10..]);
}

#[test]
fn connections_that_end_soon_are_not_opened_in_a_storm() {
    let mut rig = Rig::new(1);
    let begun = rig.now;
    for _ in 0..20 {
        rig.discover([]);
        rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
        let until = rig.cluster.poll_timeout().expect("a pause");
        let pause = until.saturating_since(rig.now);
        rig.pass(pause);
    }
    assert!(rig.now.saturating_since(begun) > OPTIONS.backoff_max * 5);
}

#[test]
fn late_and_early_reports_change_nothing() {
    let mut rig = Rig::new(1);
    let before = rig.cluster.clone();
    rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    rig.cluster.handle_connected(rig.now, None, &mut rig.log);
    rig.cluster.handle_registered();
    rig.cluster.handle_local(rig.now, local(1), &mut rig.log);
    rig.cluster.handle_peers(rig.now, [row(2)], &mut rig.log);
    rig.cluster.handle_keyspaces();
    rig.cluster.handle_query_failed(rig.now, false, &mut rig.log);
    rig.event(ServerEvent::Topology);
    assert_eq!((rig.cluster.clone(), rig.events()), (before, vec![]));
    // Answers to other queries than that which was sent.
    rig.connect();
    rig.expect(ClusterQuery::Register);
    rig.cluster.handle_local(rig.now, local(1), &mut rig.log);
    rig.cluster.handle_peers(rig.now, [row(2)], &mut rig.log);
    rig.cluster.handle_keyspaces();
    assert_eq!((rig.action(), rig.numbers()), (None, vec![]));
}

/// Any sequence of reports keeps the invariants, and queries are rare.
#[test]
fn any_reports_keep_the_invariants() {
    for seed in 1..300_u64 {
        let mut random = seed;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut rig = Rig::new(2);
        let (begun, mut sent) = (rig.now, 0);
        for _ in 0..300 {
            let number = u8::try_from(below(6)).expect("small");
            match below(10) {
                0 => rig.cluster.handle_connected(rig.now, Some(address(number)), &mut rig.log),
                1 if below(4) == 0 => rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log),
                2 => rig.cluster.handle_registered(),
                3 => rig.cluster.handle_local(rig.now, local(number), &mut rig.log),
                4 => rig.cluster.handle_peers(rig.now, (0..number).map(row), &mut rig.log),
                5 => rig.cluster.handle_keyspaces(),
                6 if below(4) == 0 => rig.cluster.handle_query_failed(rig.now, below(2) == 0, &mut rig.log),
                7 => rig.event(ServerEvent::Topology),
                8 => rig.event(ServerEvent::Status { node: address(number), is_up: below(2) == 0 }),
                _ => rig.event(ServerEvent::Schema),
            }
            rig.cluster.assert_invariants();
            while let Some(action) = rig.action() {
                sent += u32::from(matches!(action, ClusterAction::Send(_)));
            }
            rig.pass(Duration::from_millis(below(50)));
        }
        let seconds = rig.now.saturating_since(begun).as_secs();
        // Two queries for nodes and one for keyspaces in a second, and those of each connection.
        let connections = rig.events().iter().filter(|event| event.name() == "ControlConnected").count();
        let connections = u64::try_from(connections).expect("few");
        assert!(u64::from(sent) <= 3 * (seconds + 1) + 4 * connections, "seed {seed}: {sent}");
    }
}

#[test]
fn option_out_of_range_is_refused_by_name() {
    assert_eq!(OPTIONS.validate(), Ok(()));
    for (options, name) in [
        (ClusterOptions { debounce: Duration::ZERO, ..OPTIONS }, "debounceMS"),
        (ClusterOptions { refresh_interval: Duration::ZERO, ..OPTIONS }, "refreshIntervalMS"),
        (ClusterOptions { query_timeout: Duration::ZERO, ..OPTIONS }, "queryTimeoutMS"),
        (ClusterOptions { backoff_min: Duration::ZERO, ..OPTIONS }, "backoffMinMS"),
        (ClusterOptions { backoff_max: Duration::from_millis(1), ..OPTIONS }, "backoffMaxMS"),
    ] {
        assert_eq!(options.validate().expect_err(name).option(), name);
    }
}

#[test]
fn events_are_shown_on_one_line() {
    let shown = |event: ClusterEvent| alloc::format!("{event}");
    assert_eq!(shown(ClusterEvent::NodeAdded { node: address(2) }), "NodeAdded 10.0.0.2:9042");
    assert_eq!(shown(ClusterEvent::ControlConnected { peer: None }), "ControlConnected");
    assert_eq!(shown(ClusterEvent::NoLocalNodes), "NoLocalNodes");
    assert_eq!(shown(ClusterEvent::QueryFailed { query: ClusterQuery::Peers }), "QueryFailed: Peers");
    assert_eq!(shown(ClusterEvent::RowsIgnored { count: 2 }), "RowsIgnored: 2");
    assert_eq!(shown(ClusterEvent::NodesRead { count: 2 }), "NodesRead: 2");
    assert!(shown(ClusterEvent::ControlFailed { cause: Cause::Network }).starts_with("ControlFailed: "));
}

#[test]
fn address_in_another_form_is_that_of_the_same_node() {
    let mapped = |text: &str| NodeRow { address: Some(text.parse().expect("an address")), ..row(2) };
    let mut rig = Rig::new(1);
    rig.discover([row(2), mapped("::ffff:10.0.0.2"), mapped("::ffff:10.0.0.1"), mapped("::ffff:0.0.0.0")]);
    assert_eq!(rig.numbers(), [1, 2]);
    assert_eq!(rig.events().last(), Some(&ClusterEvent::NodeAdded { node: address(2) }));
    rig.event(ServerEvent::Status { node: "[::ffff:10.0.0.2]:9042".parse().expect("an address"), is_up: false });
    assert_eq!(rig.events(), [ClusterEvent::NodeDown { node: address(2) }]);
    // A contact point in the other form is the node, too.
    let mut rig = Rig::new(1);
    rig.connect_to("[::ffff:10.0.0.1]:9042".parse().expect("an address"));
    let own = NodeRow { address: Some("::ffff:0.0.0.0".parse().expect("an address")), ..row(1) };
    rig.cluster.handle_local(rig.now, LocalRow { node: own, ..local(1) }, &mut rig.log);
    rig.expect(ClusterQuery::Peers);
    rig.cluster.handle_peers(rig.now, [row(2)], &mut rig.log);
    assert_eq!(rig.numbers(), [1, 2]);
}

#[test]
fn old_server_is_asked_for_columns_that_it_has() {
    let mut rig = Rig::new(1);
    rig.connect_to(address(1));
    for readings in 0..2 {
        // Answers take time, and nothing is published before the nodes are known.
        if readings == 0 {
            rig.pass(Duration::from_millis(1));
            rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
        }
        rig.expect(ClusterQuery::OldLocal);
        rig.cluster.handle_local(rig.now, local(1), &mut rig.log);
        if readings == 0 {
            rig.expect(ClusterQuery::Peers);
            rig.pass(Duration::from_millis(1));
            rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
        }
        rig.expect(ClusterQuery::OldPeers);
        rig.cluster.handle_peers(rig.now, [row(2)], &mut rig.log);
        assert_eq!(rig.action(), Some(ClusterAction::Publish));
        if readings == 0 {
            rig.expect(ClusterQuery::Keyspaces);
            rig.cluster.handle_keyspaces();
            assert_eq!(rig.action(), Some(ClusterAction::Publish));
        }
        rig.pass(OPTIONS.refresh_interval);
    }
    // A server that has not even those is no node, and one without an address, a data centre or a rack neither.
    let mut other = rig.clone();
    other.expect(ClusterQuery::OldLocal);
    let nameless = LocalRow { node: NodeRow { rack: None, ..row(1) }, ..local(1) };
    other.cluster.handle_local(other.now, nameless, &mut other.log);
    assert_eq!(other.events().last(), Some(&ClusterEvent::QueryFailed { query: ClusterQuery::OldLocal }));
    rig.expect(ClusterQuery::OldLocal);
    rig.cluster.handle_query_failed(rig.now, true, &mut rig.log);
    assert_eq!(rig.events().last(), Some(&ClusterEvent::QueryFailed { query: ClusterQuery::OldLocal }));
    assert_eq!(rig.action(), Some(ClusterAction::Close));
}

#[test]
fn control_connection_is_not_opened_to_ignored_nodes() {
    let mut rig = Rig::new(1);
    rig.discover((2..10).map(row));
    rig.cluster.ignore((2..9).map(address).collect());
    rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    let mut targets = Vec::new();
    for _ in 0..30 {
        rig.pass(OPTIONS.backoff_max);
        let Some(ClusterAction::Connect(target)) = rig.action() else { panic!("it connects again") };
        targets.push(target);
        rig.cluster.handle_failed(rig.now, Cause::Network, &mut rig.log);
    }
    let wanted = [Target::Node(address(1)), Target::Node(address(9)), Target::Contact(0)];
    assert!(targets.iter().all(|target| wanted.contains(target)), "{targets:?}");
    assert!(wanted.iter().all(|target| targets.contains(target)), "{targets:?}");
}
