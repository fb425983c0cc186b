//! What a node of Cassandra that lies in its tables can cause in a session that reads them: how long it blocks
//! the executor, how much memory stays, and how many sockets are open.

extern crate alloc;

use alloc::sync::Arc;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use core::time::Duration;
use poolhouse_allocator::Counting;
use poolhouse_smol::mux::cql::Version;
use poolhouse_smol::mux::{ClusterEvent, ClusterOptions, ClusterQuery, Session, SessionOptions};
use poolhouse_smol::poolhouse_driver::Subscribers;
use poolhouse_smol::{EventKinds, EventRef, Smol, Subscription};
use poolhouse_tests::patience::{PATIENCE, cluster_event, eventually, eventually_showing, processor_time, run};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: Counting = Counting(note);

static HELD: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_SERVER: Cell<bool> = const { Cell::new(false) };
}

/// Counts the bytes that all threads hold, except those of servers.
fn note(taken: usize, given: usize) {
    // In a thread that is ending, the thread-local value may be destroyed already.
    if !IS_SERVER.try_with(Cell::get).unwrap_or(false) {
        HELD.fetch_add(taken.cast_signed() - given.cast_signed(), Ordering::Relaxed);
    }
}

/// Serializes the tests, which measure the process.
static TURN: Mutex<()> = Mutex::new(());

/// The answers of a node to the queries of a control connection: the bodies of its results.
#[derive(Default)]
struct Tables {
    local: Vec<u8>,
    peers: Vec<u8>,
    keyspaces: Vec<u8>,
    /// Sent after the answer to each query for peers.
    events: Vec<u8>,
}

/// A node in version 4, whose bytes are chosen by the test. Its threads end with their connections or
/// with the process.
struct Node {
    address: SocketAddr,
    tables: Arc<Mutex<Tables>>,
}

impl Node {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let local = local(address);
        let tables = Arc::new(Mutex::new(Tables { local, keyspaces: keyspaces(&[]), ..Tables::default() }));
        let shared = Arc::clone(&tables);
        std::thread::spawn(move || {
            IS_SERVER.set(true);
            for stream in listener.incoming().flatten() {
                let tables = Arc::clone(&shared);
                std::thread::spawn(move || {
                    IS_SERVER.set(true);
                    // An error means that the client has closed the connection.
                    let _ = serve(stream, &tables);
                });
            }
        });
        Self { address, tables }
    }

    fn set(&self, change: impl FnOnce(&mut Tables)) {
        change(&mut self.tables.lock().expect("no test has failed"));
    }
}

fn serve(mut stream: TcpStream, tables: &Mutex<Tables>) -> std::io::Result<()> {
    const SUPPORTED: u8 = 6;
    const READY: u8 = 2;
    const RESULT: u8 = 8;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]) as usize;
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let text = String::from_utf8_lossy(&body);
        let (opcode, answer, events) = match header[4] {
            5 => {
                let versions = [&[0, 1][..], &string("CQL_VERSION"), &[0, 1], &string("3.4.6")];
                (SUPPORTED, versions.concat(), Vec::new())
            }
            7 => {
                let tables = tables.lock().expect("no test has failed");
                let peers = || (tables.peers.clone(), tables.events.clone());
                let (body, events) = if text.contains("system.local") {
                    (tables.local.clone(), Vec::new())
                } else if text.contains("system.peers") {
                    peers()
                } else {
                    (tables.keyspaces.clone(), Vec::new())
                };
                (RESULT, body, events)
            }
            _ => (READY, Vec::new(), Vec::new()),
        };
        let mut answered = vec![0x84, 0, header[2], header[3], opcode];
        answered.extend(int(answer.len()));
        answered.extend(answer);
        answered.extend(events);
        stream.write_all(&answered)?;
    }
}

fn int(value: usize) -> [u8; 4] {
    i32::try_from(value).expect("small").to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).expect("short").to_be_bytes(), text.as_bytes()].concat()
}

fn bytes(value: &[u8]) -> Vec<u8> {
    [&int(value.len()), value].concat()
}

/// A list, a set or a map: of a map, keys and values in turn.
fn list<T: AsRef<[u8]>>(count: usize, parts: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut list = int(count).to_vec();
    list.extend(parts.into_iter().flat_map(|part| bytes(part.as_ref())));
    list
}

/// A column: its name and its type.
type Column<'a> = (&'a str, &'a [u8]);

const TEXT: &[u8] = &[0, 13];
const INET: &[u8] = &[0, 16];
const INT: &[u8] = &[0, 9];
const SET: &[u8] = &[0, 0x22, 0, 13];
const MAP: &[u8] = &[0, 0x21, 0, 13, 0, 13];

/// The body of a result.
fn rows(columns: &[Column<'_>], rows: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut body = [int(2), int(1), int(columns.len())].concat();
    body.extend([string("system"), string("table")].concat());
    for (name, kind) in columns {
        body.extend([&string(name), *kind].concat());
    }
    body.extend(int(rows.len()));
    for cell in rows.iter().flatten() {
        body.extend(bytes(cell));
    }
    body
}

fn local(address: SocketAddr) -> Vec<u8> {
    let columns = [
        ("cluster_name", TEXT),
        ("rpc_address", INET),
        ("rpc_port", INT),
        ("data_center", TEXT),
        ("rack", TEXT),
        ("partitioner", TEXT),
        ("tokens", SET),
    ];
    let texts = |text: &str| text.as_bytes().to_vec();
    let row = vec![
        texts("cluster"),
        vec![127, 0, 0, 1],
        int(address.port().into()).to_vec(),
        texts("dc1"),
        texts("rack1"),
        texts("org.apache.cassandra.dht.Murmur3Partitioner"),
        list(1, ["7"]),
    ];
    rows(&columns, &[row])
}

/// A peer of the node.
#[derive(Clone)]
struct Peer {
    number: usize,
    port: u16,
    data_center: String,
    rack: String,
    tokens: Vec<u8>,
    /// Whether its address is 127.0.0.1, that of all honest nodes.
    is_honest: bool,
}

impl Peer {
    fn new(number: usize) -> Self {
        Self {
            number,
            port: 1,
            data_center: "dc1".into(),
            rack: "rack1".into(),
            tokens: list(1, [number.to_string()]),
            is_honest: false,
        }
    }

    fn address(&self) -> SocketAddr {
        let number = if self.is_honest { 1 } else { u32::try_from(self.number).expect("small") + 256 };
        SocketAddr::new(Ipv4Addr::from(0x7f00_0000 + number).into(), self.port)
    }
}

fn peers(peers: &[Peer]) -> Vec<u8> {
    let columns =
        [("native_address", INET), ("native_port", INT), ("data_center", TEXT), ("rack", TEXT), ("tokens", SET)];
    let row = |peer: &Peer| {
        let IpAddr::V4(ip) = peer.address().ip() else { panic!("an address of four bytes") };
        let (data_center, rack) = (peer.data_center.clone().into_bytes(), peer.rack.clone().into_bytes());
        vec![ip.octets().to_vec(), int(peer.port.into()).to_vec(), data_center, rack, peer.tokens.clone()]
    };
    rows(&columns, &peers.iter().map(row).collect::<Vec<_>>())
}

/// The keyspaces with these replications: the class and its options.
fn keyspaces(replications: &[Vec<(String, String)>]) -> Vec<u8> {
    let row = |(number, pairs): (usize, &Vec<(String, String)>)| {
        let parts = pairs.iter().flat_map(|(name, value)| [name, value]);
        vec![format!("shop{number}").into_bytes(), list(pairs.len(), parts)]
    };
    let found: Vec<_> = replications.iter().enumerate().map(row).collect();
    rows(&[("keyspace_name", TEXT), ("replication", MAP)], &found)
}

fn topology(factors: impl IntoIterator<Item = (String, usize)>) -> Vec<(String, String)> {
    let class = ("class".to_owned(), "NetworkTopologyStrategy".to_owned());
    core::iter::once(class).chain(factors.into_iter().map(|(name, factor)| (name, factor.to_string()))).collect()
}

fn options(node: &Node) -> SessionOptions {
    let mut options = SessionOptions::contact_points([node.address.to_string()]);
    options.cluster = ClusterOptions {
        debounce: Duration::from_millis(20),
        refresh_interval: Duration::from_secs(3600),
        query_timeout: PATIENCE,
        backoff_min: Duration::from_millis(200),
        ..ClusterOptions::DEFAULT
    };
    options.version(Version::V4).request_timeout(PATIENCE).node_ports(true)
}

/// Measures the longest processor time for which another task of the executor, which has one thread, did not
/// run. Other load of the machine adds nothing to it.
struct Ticker {
    is_over: Arc<AtomicBool>,
    task: smol::Task<(Duration, Duration)>,
}

impl Ticker {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let task = smol::spawn(async move {
            let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
            while !ends.load(Ordering::Relaxed) {
                let before = processor_time();
                smol::future::yield_now().await;
                let gap = processor_time() - before;
                longest = longest.max(gap);
                // A turn without work of others takes a few microseconds.
                if gap > Duration::from_micros(100) {
                    all += gap;
                }
            }
            (longest, all)
        });
        Self { is_over, task }
    }

    async fn end(self, what: &str) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        let (longest, all) = self.task.await;
        println!("{what}: at most {longest:?} without a turn, {all:?} in all");
        longest
    }
}

/// A session, and the failures of its control connection.
fn session(options: SessionOptions) -> (Session, Subscription) {
    let subscribers = Subscribers::default();
    let events = subscribers.subscribe(EventKinds::CLUSTER, 64, |event| {
        use ClusterEvent::{ControlFailed, QueryFailed};
        matches!(event, EventRef::Cluster(QueryFailed { .. } | ControlFailed { .. }))
    });
    (Session::with_platform(Smol, options, subscribers).expect("valid options"), events)
}

/// Waits until the answer to the query for peers, which has this lie, was refused. Nothing fails before.
async fn refused(events: &mut Subscription, lie: &str) {
    let event = cluster_event(events, PATIENCE, &format!("the refusal of {lie}"), |_| true).await;
    assert_eq!(event, ClusterEvent::QueryFailed { query: ClusterQuery::Peers }, "{lie}: {event}");
}

/// Waits for a state of a session whose node has this lie.
async fn reached(lie: &str, what: &str, session: &Session, events: &mut Subscription, condition: impl FnMut() -> bool) {
    let state = || {
        let mut status = session.cluster();
        // Nodes are numerous, and have long names.
        let nodes = status.as_mut().map(|status| core::mem::take(&mut status.nodes).len());
        let failures: Vec<_> = core::iter::from_fn(|| events.try_next()).collect();
        format!("{} hosts, {nodes:?} nodes, {status:?}, {failures:?}", session.hosts().len())
    };
    eventually_showing(&format!("{lie}: {what}"), condition, state).await;
}

/// The limit on the processor time for which one poll blocks the executor, as in .github/SECURITY.md.
const BLOCKED_MAX: Duration = Duration::from_millis(20);

/// A name for each node, which all begin alike.
fn names(bytes: usize) -> Vec<String> {
    (0..4_095).map(|number| format!("{}{number:04}", "x".repeat(bytes - 4))).collect()
}

#[test]
fn data_centers_and_racks_without_number_do_not_block_the_executor() {
    let _turn = TURN.lock();
    for (what, is_rack, bytes) in [
        ("centres of 255 bytes", false, 255),
        ("racks of 255 bytes", true, 255),
        ("centres of 3,800 bytes", false, 3_800),
        ("racks of 3,800 bytes", true, 3_800),
    ] {
        let node = Node::start();
        let found: Vec<Peer> = names(bytes)
            .into_iter()
            .enumerate()
            .map(|(number, name)| match is_rack {
                true => Peer { rack: name, ..Peer::new(number) },
                false => Peer { data_center: name, ..Peer::new(number) },
            })
            .collect();
        node.set(|tables| tables.peers = peers(&found));
        run(async {
            let ticker = Ticker::start();
            let (session, mut events) = session(options(&node).local_data_center("elsewhere"));
            // Names that are too long are those of no node.
            let expected = if bytes > 255 { 1 } else { 4_096 };
            reached(what, "the hosts are known", &session, &mut events, || {
                session.hosts().len() == expected
                    && session.cluster().is_some_and(|cluster| cluster.nodes.len() == expected)
            })
            .await;
            let longest = ticker.end(what).await;
            session.close().await;
            assert!(longest <= BLOCKED_MAX, "{what}: {longest:?}");
        });
    }
}

#[test]
fn tokens_and_replications_do_not_block_the_executor() {
    let _turn = TURN.lock();
    let node = Node::start();
    // 512 nodes in 8 racks, with as many tokens as a ring may have.
    let all = poolhouse_smol::mux::cql::RING_TOKENS_MAX;
    let of_each = all / 512;
    let mut number = 1_u64;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number.cast_signed().to_string()
    };
    let found: Vec<Peer> = (0..511)
        .map(|number| {
            let tokens: Vec<String> = (0..of_each).map(|_| next()).collect();
            Peer { rack: format!("rack{}", number % 8), tokens: list(of_each, &tokens), ..Peer::new(number) }
        })
        .collect();
    let replications: Vec<_> = (9..17).map(|factor| topology([("dc1".to_owned(), factor)])).collect();
    node.set(|tables| (tables.peers, tables.keyspaces) = (peers(&found), keyspaces(&replications)));
    run(async {
        let ticker = Ticker::start();
        let (session, mut events) = session(options(&node).local_data_center("dc1"));
        reached("tokens", "the keyspaces are routed", &session, &mut events, || {
            session.cluster().is_some_and(|status| status.routed_keyspaces > 0)
        })
        .await;
        let longest = ticker.end("tokens").await;
        session.close().await;
        assert!(longest <= BLOCKED_MAX, "{longest:?}");
    });
}

#[test]
fn columns_and_rows_without_number_do_not_block_the_executor() {
    let _turn = TURN.lock();
    let columns = |count: usize| {
        let mut body = [int(2), int(1), int(count)].concat();
        body.extend([string("system"), string("table")].concat());
        body.extend((0..count).flat_map(|_| [0, 0, 0, 13]));
        body.extend(int(0));
        body
    };
    let few = [("native_address", INET)];
    let many_rows = rows(&few, &vec![vec![vec![127, 0, 0, 2]]; 2_000_000]);
    for (what, body) in [("columns", columns(4_000_000)), ("rows", many_rows)] {
        let node = Node::start();
        node.set(|tables| tables.peers = body);
        run(async {
            let ticker = Ticker::start();
            let (session, mut events) = session(options(&node));
            refused(&mut events, what).await;
            let longest = ticker.end(what).await;
            session.close().await;
            assert!(longest <= BLOCKED_MAX, "{what}: {longest:?}");
        });
    }
}

/// A tuple of so many elements that its description fills an answer.
fn long_type() -> Vec<u8> {
    let ints = || INT.repeat(65_535);
    let tuple = |elements: Vec<u8>, count: usize| {
        [&[0, 0x31][..], &u16::try_from(count).expect("few").to_be_bytes(), &elements].concat()
    };
    tuple(tuple(ints(), 65_535).repeat(127), 127)
}

#[test]
fn cells_and_types_of_many_elements_do_not_block_the_executor() {
    let _turn = TURN.lock();
    let nulls = {
        let count = (16 << 20) / 4 - 1024;
        let mut tokens = int(count).to_vec();
        tokens.resize(4 + 4 * count, 0xff);
        Peer { tokens, ..Peer::new(1) }
    };
    let tokens = list(1536, (0..1536_usize).map(|number| ((number * 7919) % 1000).to_string()));
    let mut many: Vec<Column<'_>> = vec![("native_address", INET), ("data_center", TEXT), ("rack", TEXT)];
    many.extend([("tokens", SET); 61]);
    let row = |number: u8| {
        let mut row = vec![vec![127, 0, 9, number], b"dc1".to_vec(), b"rack1".to_vec()];
        row.extend(core::iter::repeat_n(tokens.clone(), 61));
        row
    };
    let columns = rows(&many, &(1..=16).map(row).collect::<Vec<_>>());
    for (what, body) in [("null tokens", peers(&[nulls])), ("columns of tokens", columns)] {
        let node = Node::start();
        node.set(|tables| tables.peers = body);
        run(async {
            let ticker = Ticker::start();
            let (session, mut events) = session(options(&node));
            reached(what, "the nodes are known", &session, &mut events, || {
                session.cluster().is_some_and(|status| status.nodes.len() > 1)
            })
            .await;
            let longest = ticker.end(what).await;
            session.close().await;
            assert!(longest <= BLOCKED_MAX, "{what}: {longest:?}");
        });
    }
    let node = Node::start();
    node.set(|tables| tables.peers = rows(&[("native_address", &long_type())], &[vec![vec![127, 0, 0, 2]]]));
    run(async {
        let ticker = Ticker::start();
        let (session, mut events) = session(options(&node));
        refused(&mut events, "type").await;
        let longest = ticker.end("type").await;
        session.close().await;
        assert!(longest <= BLOCKED_MAX, "type: {longest:?}");
    });
    let empty = {
        let pairs = (16 << 20) / 8 - 1024;
        let mut cell = int(pairs).to_vec();
        cell.resize(4 + 8 * pairs, 0);
        cell
    };
    let classes = {
        let other = (0..100_000).map(|number| ("class".to_owned(), format!("d{number}")));
        list(100_000, other.flat_map(|(name, value)| [name, value]))
    };
    let good = list(2, ["class", "NetworkTopologyStrategy", "dc1", "1"]);
    for (what, cell) in [("empty pairs", empty), ("classes", classes)] {
        let found = [vec![b"a".to_vec(), cell], vec![b"b".to_vec(), good.clone()]];
        let body = rows(&[("keyspace_name", TEXT), ("replication", MAP)], &found);
        let node = Node::start();
        node.set(|tables| (tables.peers, tables.keyspaces) = (peers(&[Peer::new(1)]), body));
        run(async {
            let ticker = Ticker::start();
            let (session, mut events) = session(options(&node).local_data_center("dc1"));
            reached(what, "the keyspace is routed", &session, &mut events, || {
                session.cluster().is_some_and(|status| status.routed_keyspaces == 1)
            })
            .await;
            let longest = ticker.end(what).await;
            session.close().await;
            assert!(longest <= BLOCKED_MAX, "{what}: {longest:?}");
        });
    }
}

#[test]
fn events_without_number_do_not_block_the_executor() {
    let _turn = TURN.lock();
    let node = Node::start();
    let found: Vec<Peer> = (0..4_095).map(Peer::new).collect();
    let last = found.last().expect("many").address();
    let IpAddr::V4(ip) = last.ip() else { panic!("an address of four bytes") };
    let body = [&string("STATUS_CHANGE")[..], &string("UP"), &[4], &ip.octets(), &int(last.port().into())].concat();
    let event = [&[0x84, 0, 0xff, 0xff, 12][..], &bytes(&body)].concat();
    node.set(|tables| {
        tables.peers = peers(&found);
        tables.events = event.repeat(50_000);
        tables.keyspaces = keyspaces(&[topology([("elsewhere".to_owned(), 1)])]);
    });
    run(async {
        let ticker = Ticker::start();
        let (session, mut events) = session(options(&node).local_data_center("elsewhere"));
        reached("events", "the hosts are known", &session, &mut events, || session.hosts().len() == 4_096).await;
        // The answer to this query follows the events. Its keyspace makes it known.
        reached("events", "they were read", &session, &mut events, || {
            session.cluster().is_some_and(|status| status.routed_keyspaces == 1)
        })
        .await;
        let longest = ticker.end("events").await;
        session.close().await;
        assert!(longest <= BLOCKED_MAX, "{longest:?}");
    });
}

/// The bytes that the process holds, when they have not changed for a while.
async fn settled() -> isize {
    let mut before = HELD.load(Ordering::Relaxed);
    for _ in 0..50 {
        smol::Timer::after(Duration::from_millis(100)).await;
        let now = HELD.load(Ordering::Relaxed);
        if now.abs_diff(before) < 4_096 {
            return now;
        }
        before = now;
    }
    before
}

#[test]
fn control_connection_keeps_nothing_of_its_answers() {
    let _turn = TURN.lock();
    let huge = "x".repeat(14_000_000);
    let unread = {
        let row = vec![vec![127, 0, 1, 0], int(1).to_vec(), b"dc1".to_vec(), b"r".to_vec(), huge.clone().into_bytes()];
        let columns =
            [("native_address", INET), ("native_port", INT), ("data_center", TEXT), ("rack", TEXT), ("x", TEXT)];
        rows(&columns, &[row])
    };
    let centre = peers(&[Peer { data_center: huge, ..Peer::new(0) }]);
    let usual = peers(&[Peer::new(0)]);
    let mut honest = None;
    for (what, body) in [("usual answer", usual), ("column that nobody reads", unread), ("name of a centre", centre)] {
        let node = Node::start();
        node.set(|tables| tables.peers = body);
        run(async {
            let before = settled().await;
            let (session, mut events) = session(options(&node).local_data_center("elsewhere"));
            reached(what, "the hosts are known", &session, &mut events, || {
                session.cluster().is_some_and(|cluster| !cluster.nodes.is_empty())
            })
            .await;
            let kept = settled().await - before;
            println!("{what}: {kept} bytes are kept");
            let more = kept - *honest.get_or_insert(kept);
            // Both numbers are settled to 4 KiB.
            assert!(more <= (256 + 8) << 10, "{what}: {more} bytes more than of a usual answer");
            session.close().await;
        });
    }
}

/// The open descriptors of the process.
#[cfg(target_os = "linux")]
fn descriptors() -> usize {
    std::fs::read_dir("/dev/fd").expect("the descriptors").count()
}

/// Linux has every address of 127.0.0.0/8 without configuration.
#[cfg(target_os = "linux")]
#[test]
fn thousands_of_silent_nodes_open_few_sockets_and_delay_no_other() {
    let _turn = TURN.lock();
    let node = Node::start();
    // The kernel accepts connections, and nobody answers on them: the client is alone in having descriptors.
    let silent = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let other = Node::start();
    let mut found: Vec<Peer> = (0..3_000).map(|number| Peer { port, ..Peer::new(number) }).collect();
    let same = |node: &Node| Peer { is_honest: true, port: node.address.port(), ..Peer::new(3_001) };
    found.push(same(&other));
    node.set(|tables| tables.peers = peers(&found));
    run(async {
        let before = descriptors();
        // The silent nodes are waited for until the end of the test.
        let options = options(&node).connect_timeout(Duration::from_secs(600));
        let (session, mut events) = session(options);
        reached("silent nodes", "the hosts are known", &session, &mut events, || session.hosts().len() == 3_002).await;
        let address = other.address.to_string();
        let ids: Vec<_> = session.hosts().iter().filter(|host| host.address == address).map(|host| host.id).collect();
        session.query("a row").send().await.expect("the contact point answers");
        session.query("a row").hosts(&ids).send().await.expect("the other node answers");
        let mut most = 0;
        for _ in 0..50 {
            most = most.max(descriptors() - before);
            smol::Timer::after(Duration::from_millis(20)).await;
        }
        println!("{most} descriptors");
        // Half of the attempts are kept for hosts that requests wait for, and for those with a connection. Those of the
        // two nodes are at both ends.
        assert!((16..=64).contains(&most), "{most} descriptors");
        session.close().await;
    });
}

/// Linux has every address of 127.0.0.0/8 without configuration.
#[cfg(target_os = "linux")]
#[test]
fn silent_hosts_of_many_connections_delay_no_other() {
    let _turn = TURN.lock();
    let silent = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let good = Node::start();
    let hosts = (1..4).map(|number| format!("127.0.7.{number}:{port}")).chain([good.address.to_string()]);
    run(async {
        // The silent hosts are waited for until the end of the test.
        let mut options = SessionOptions::new(hosts).version(Version::V4).connect_timeout(Duration::from_secs(600));
        (options.mux.local.core_connections, options.mux.local.max_connections) = (11, 11);
        let session = Session::new(options.request_timeout(PATIENCE)).expect("valid options");
        let ids: Vec<_> = session.hosts().iter().map(|host| host.id).collect();
        let asked: Vec<_> = ids[..3]
            .iter()
            .map(|id| {
                let (session, id) = (session.clone(), [*id]);
                smol::spawn(async move { drop(session.query("a row").hosts(&id).send().await) })
            })
            .collect();
        eventually("requests wait for the silent hosts", || {
            session.hosts().iter().filter(|host| host.state.queued > 0).count() == 3
        })
        .await;
        session.query("a row").hosts(&ids[3..]).send().await.expect("the good host answers");
        eventually("its other connections are open", || session.hosts()[3].state.open == 11).await;
        drop(asked);
        session.close().await;
    });
}
