use super::*;
use crate::liveness::tests::conns;
use crate::log::LogOptions;
use crate::log::tests::capture::Captured;
use crate::log::tests::capture::capture;
use crate::log::{CONNECTION, DEPLOYMENT, LogStyle};
use alloc::borrow::ToOwned as _;
use alloc::vec::Vec;
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::cluster::ClusterQuery;
use poolhouse_core::mux::{MuxClosed, MuxId};
use poolhouse_core::pool::{ClosedReason, ConnId, OnHeap, Pool, PoolConfig, PoolOptions};
use poolhouse_core::pool::{PoolEvent, PoolId};
use poolhouse_core::topology::{self, Topology, TopologyOptions};
use poolhouse_wire::bson::RawDocument;

fn ready(number: u32) -> PoolEvent {
    PoolEvent::PoolReady { pool: PoolId::new(number.into()) }
}

fn publish(queue: &LogQueue) {
    if queue.kinds() != EventKinds::NONE {
        queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &EventContext::of_server("a:1"));
    }
}

#[test]
fn queued_messages_are_emitted_at_delivery() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        publish(&queue);
        publish(&queue);
        assert!(queue.shared.lock().entries.counts() == (2, 0), "both are queued");
        queue.deliver();
    });
    assert_eq!(captured.len(), 2);
    assert_eq!(captured[0].text("serverHost"), "a");
    assert!(queue.shared.lock().entries.is_empty() && !queue.shared.lock().emptied);
}

#[test]
fn address_of_a_server_is_known_without_its_context() {
    let queue = LogQueue::new(LogOptions::DEFAULT).of_server("b:2");
    let captured = capture(|| {
        queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        queue.deliver();
    });
    assert_eq!(captured[0].text("serverHost"), "b");
}

#[test]
#[doc(alias = "LOG-37")]
fn without_a_subscriber_nothing_is_queued() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    publish(&queue);
    let off = LogQueue::new(LogOptions::OFF);
    capture(|| {
        off.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        assert!(off.kinds() == EventKinds::NONE);
    });
    assert!(queue.shared.lock().entries.is_empty() && off.shared.lock().entries.is_empty());
}

#[test]
fn queue_is_bounded_and_reports_the_number_of_dropped_messages() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        (0..LOG_QUEUE_EVENTS + 5).for_each(|_| publish(&queue));
        queue.deliver();
        publish(&queue);
        queue.deliver();
    });
    assert_eq!(captured.len(), LOG_QUEUE_EVENTS + 2);
    let lost = &captured[LOG_QUEUE_EVENTS];
    assert_eq!((lost.level, lost.message()), (tracing::Level::WARN, "Log messages were lost"));
    assert_eq!(captured[LOG_QUEUE_EVENTS + 1].message(), "Connection pool ready", "and it goes on");
}

#[test]
fn number_of_dropped_messages_is_in_the_text_style() {
    let queue = LogQueue::new(LogOptions { style: LogStyle::Text, ..LogOptions::DEFAULT });
    let captured = capture(|| {
        (0..LOG_QUEUE_EVENTS + 5).for_each(|_| publish(&queue));
        queue.deliver();
    });
    assert_eq!(captured[LOG_QUEUE_EVENTS].message(), "Log messages were lost: 5");
}

/// The options may let the queue keep whole replies, and the server chooses the length of each
/// reply.
#[test]
fn log_queue_is_bounded_in_bytes() {
    let queue =
        LogQueue::new(LogOptions { document_length_max: usize::MAX, heartbeat_replies: true, ..LogOptions::DEFAULT });
    // { "me": "xx.." }
    let (length, text) = (1_u32 << 20, "x".repeat(1 << 20));
    let parts = [&(length + 14).to_le_bytes(), &b"\x02me\0"[..], &(length + 1).to_le_bytes(), text.as_bytes(), b"\0\0"];
    let bytes = parts.concat();
    let context = EventContext::of_server("a:1").with_reply(RawDocument::new(&bytes).unwrap());
    let captured = capture(|| {
        for _ in 0..20 {
            queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &context);
        }
        let (kept, lost) = queue.shared.lock().entries.counts();
        assert!(kept < LOG_QUEUE_BYTES >> 20 && kept as u64 + lost == 20, "{kept} kept, {lost} lost");
        queue.deliver();
        publish(&queue);
        queue.deliver();
    });
    let warnings = captured.iter().filter(|message| message.level == tracing::Level::WARN);
    assert_eq!(warnings.map(|message| message.message()).collect::<alloc::vec::Vec<_>>(), ["Log messages were lost"]);
    assert_eq!(
        captured.last().map(|message| message.message()),
        Some("Connection pool ready"),
        "later messages are emitted"
    );
}

#[test]
fn subscriber_may_publish_and_deliver_itself() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    capture(|| {
        publish(&queue);
        let mut count = 0;
        queue.shared.empty(|_| {
            count += 1;
            if count < 3 {
                publish(&queue);
                // This call does not emit: the thread that empties the queue also emits entries
                // that arrive meanwhile.
                queue.deliver();
            }
        });
        assert_eq!(count, 3);
    });
}

/// Changes by several threads are emitted in their order, and by one thread at a time.
#[test]
#[doc(alias = "LOG-01")]
fn events_of_several_threads_are_emitted_in_order_by_one_thread_at_a_time() {
    const THREADS: u32 = 4;
    const EACH: u32 = 1000;
    let queue = LogQueue::new(LogOptions::DEFAULT);
    // Represents the lock that protects the changes.
    let changes = Mutex::new(0);
    let (busy, emitted, begin) =
        (AtomicBool::new(false), Mutex::new(alloc::vec::Vec::new()), std::sync::Barrier::new(THREADS as usize));
    let emit = |next| {
        assert!(!busy.swap(true, Ordering::SeqCst), "two at once");
        let Next::Entry(Entry { content: Content::Event(Event::Pool(PoolEvent::PoolReady { pool })), .. }) = next
        else {
            panic!("none was lost")
        };
        emitted.lock().expect("not poisoned").push(pool);
        assert!(busy.swap(false, Ordering::SeqCst), "another one was here");
    };
    let work = || {
        capture(|| {
            begin.wait();
            for _ in 0..EACH {
                {
                    let mut changes = changes.lock().expect("not poisoned");
                    *changes += 1;
                    queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(*changes)));
                }
                queue.shared.empty(emit);
            }
        });
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let expected: alloc::vec::Vec<PoolId> = (1..=THREADS * EACH).map(|number| PoolId::new(number.into())).collect();
    assert_eq!(*emitted.lock().expect("not poisoned"), expected);
}

/// Only the message at which the subscriber panics is lost. The change that the message reports
/// takes effect, and later messages are emitted.
#[test]
fn panic_of_a_subscriber_loses_one_message() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    let captured = capture(|| {
        publish(&queue);
        queue.shared.empty(|_| panic!("a subscriber's"));
        publish(&queue);
        queue.deliver();
    });
    assert_eq!(captured.len(), 1);
}

/// Panics when `enabled` is called.
struct Undecided;

impl tracing::Subscriber for Undecided {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        panic!("a subscriber's");
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// `enabled` is called under the lock of the object that changes.
#[test]
fn subscriber_that_panics_in_enabled_receives_no_message() {
    let queue = LogQueue::new(LogOptions::DEFAULT);
    tracing::subscriber::with_default(Undecided, || {
        assert!(queue.kinds() == EventKinds::NONE);
        queue.publish(Instant::ORIGIN, EventRef::Pool(&ready(1)));
        assert!(queue.shared.lock().entries.is_empty());
        queue.deliver();
    });
}

#[test]
fn queued_reply_is_cut_to_the_logged_length() {
    let queue = LogQueue::new(LogOptions { document_length_max: 1, heartbeat_replies: true, ..LogOptions::DEFAULT });
    capture(|| {
        let context = EventContext::NONE.with_reply(RawDocument::EMPTY);
        let (entry, bytes) = queue.entry(&EventRef::Pool(&ready(1)), &context, &mut None);
        assert_eq!((entry.reply.as_deref(), bytes), (Some("{..."), entry.reply.as_ref().map_or(0, String::capacity)));
    });
}

/// The events of a host of Cassandra, in the order in which its pool emits them.
fn host_events(queue: &LogQueue, events: &[(MuxEvent, &Reason)]) {
    for (event, reason) in events {
        let context = EventContext::of_server("db").with_reason(reason);
        queue.publish_in(Instant::ORIGIN, EventRef::Mux(event), &context);
    }
    queue.deliver();
}

#[test]
fn host_of_cassandra_is_reported_down_once_and_up_once() {
    let (mux, refused) = (MuxId::new(1), Reason::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
    let conns = conns();
    let ready = |conn| (MuxEvent::ConnectionReady { mux, conn, duration: Duration::ZERO }, &Reason::NONE);
    let closed = |conn, cause| {
        (MuxEvent::ConnectionClosed { mux, conn, reason: MuxClosed::Error(cause), in_flight: 0 }, &refused)
    };
    let lines = |captured: &[Captured]| -> Vec<(Level, String)> {
        let lines = captured.iter().filter(|message| message.target == DEPLOYMENT);
        lines.map(|message| (message.level, message.message().to_owned())).collect()
    };
    let captured = capture(|| {
        let queue = LogQueue::of(System::Cassandra, LogOptions::DEFAULT).of_server("db");
        let request = MuxEvent::ReplyReceived { mux, conn: conns[0], stream: 1 };
        host_events(&queue, &[ready(conns[0]), ready(conns[1]), (request, &Reason::NONE)]);
        host_events(&queue, &[closed(conns[0], Cause::Network), closed(conns[1], Cause::Network)]);
        host_events(&queue, &[closed(conns[0], Cause::Network), ready(conns[0])]);
        host_events(&queue, &[closed(conns[0], Cause::Authentication), closed(conns[0], Cause::Authentication)]);
    });
    let expected = [
        (Level::WARN, "server down: db: network error: connection refused".to_owned()),
        (Level::INFO, "server reconnected: db".to_owned()),
        (Level::WARN, "authentication failed: db: connection refused".to_owned()),
    ];
    assert_eq!(lines(&captured), expected);
    let debug: Vec<_> = captured.iter().filter(|message| message.target == CONNECTION).collect();
    assert_eq!(debug.len(), 8, "each event but that of a request: {debug:?}");
    assert_eq!((debug[0].text("serverHost"), debug[0].fields.get("serverPort")), ("db", Some(&9042_u64.into())));
}

#[test]
fn message_of_a_host_is_one_sentence_as_text() {
    let (mux, conn) = (MuxId::new(1), conns()[0]);
    let reason = Reason::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
    let closed = MuxEvent::ConnectionClosed { mux, conn, reason: MuxClosed::Error(Cause::Network), in_flight: 0 };
    let captured = capture(|| {
        let options = LogOptions { style: LogStyle::Text, deployment: LevelFilter::OFF, ..LogOptions::DEFAULT };
        let queue = LogQueue::of(System::Cassandra, options).of_server("db");
        host_events(&queue, &[(closed, &reason)]);
    });
    let [message] = &captured[..] else { panic!("one message, not {captured:?}") };
    assert_eq!(message.fields.len(), 1);
    assert_eq!(message.message(), alloc::format!("db: {closed}: connection refused"));
}

#[test]
fn generic_pool_is_reported_by_its_name() {
    let pool = PoolId::new(1);
    let reason = Reason::new(std::io::Error::other("no route to the cache"));
    let conn = pool_conn();
    let (closed, cause) = (ClosedReason::Error, Some(Cause::Other));
    let failed = PoolEvent::ConnectionClosed { pool, conn, reason: closed, cause };
    let ready = PoolEvent::ConnectionReady { pool, conn, duration: Duration::ZERO };
    let captured = capture(|| {
        let queue = LogQueue::of(System::Generic, LogOptions::DEFAULT).of_server("cache");
        for event in [failed, failed, ready, failed] {
            let context = EventContext::of_server("cache").with_reason(&reason);
            queue.publish_in(Instant::ORIGIN, EventRef::Pool(&event), &context);
        }
        queue.deliver();
    });
    let lines: Vec<_> = captured.iter().filter(|message| message.target == DEPLOYMENT).map(Captured::message).collect();
    assert_eq!(lines, ["server down: cache: no route to the cache", "server reconnected: cache"]);
    let message = captured.iter().find(|message| message.target == CONNECTION).expect("a message");
    assert_eq!(message.text("poolName"), "cache");
    assert!(!message.fields.contains_key("serverPort") && !message.fields.contains_key("serverHost"));
}

#[test]
fn cluster_is_reported_in_lines_without_its_first_nodes() {
    let node = |last| core::net::SocketAddr::from(([127, 0, 0, last], 9042));
    let at = |second| Instant::ORIGIN.saturating_add(Duration::from_secs(second));
    let captured = capture(|| {
        let queue = LogQueue::of(System::Cassandra, LogOptions::DEFAULT);
        let events = [
            (0, ClusterEvent::ControlFailed { cause: Cause::Network }),
            (1, ClusterEvent::ControlFailed { cause: Cause::Network }),
            (2, ClusterEvent::ControlConnected { peer: Some(node(1)) }),
            (3, ClusterEvent::NodeAdded { node: node(1) }),
            (3, ClusterEvent::NodeAdded { node: node(2) }),
            (3, ClusterEvent::NodesRead { count: 2 }),
            (4, ClusterEvent::NodeAdded { node: node(3) }),
            (4, ClusterEvent::RowsIgnored { count: 1 }),
            (4, ClusterEvent::NodesRead { count: 3 }),
            (5, ClusterEvent::SchemaChanged),
            (5, ClusterEvent::RowsIgnored { count: 1 }),
            (5, ClusterEvent::NodesRead { count: 3 }),
            // The node accepts connections, and answers no query.
            (6, ClusterEvent::QueryFailed { query: ClusterQuery::Peers }),
            (7, ClusterEvent::ControlConnected { peer: Some(node(1)) }),
            (8, ClusterEvent::QueryFailed { query: ClusterQuery::Local }),
        ];
        for (second, event) in events {
            let context = EventContext::of_server("seed.example:9042");
            queue.publish_in(at(second), EventRef::Cluster(&event), &context);
        }
        queue.deliver();
    });
    let lines: Vec<_> = captured.iter().filter(|message| message.target == DEPLOYMENT).map(Captured::message).collect();
    let expected = [
        "control connection lost: seed.example:9042: network error",
        "control connection established: seed.example:9042, 2 nodes",
        "node added: 127.0.0.3:9042",
        "1 row of the tables of nodes is ignored: each needs an address with a port that no other has, a data centre and a \
         rack",
        "control connection lost: seed.example:9042: the node has not answered the query Peers as it must",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn rows_that_are_ignored_again_have_a_line() {
    let captured = capture(|| {
        let queue = LogQueue::of(System::Cassandra, LogOptions { topology: LevelFilter::OFF, ..LogOptions::DEFAULT });
        for count in [2, 2, 0, 2, 1] {
            if count > 0 {
                queue.publish(Instant::ORIGIN, EventRef::Cluster(&ClusterEvent::RowsIgnored { count }));
            }
            queue.publish(Instant::ORIGIN, EventRef::Cluster(&ClusterEvent::NodesRead { count: 3 }));
        }
        queue.deliver();
    });
    let counts: Vec<_> =
        captured.iter().filter_map(|line| line.message().split_once(" of ")).map(|(rows, _)| rows).collect();
    assert_eq!(counts, ["2 rows", "2 rows", "1 row"]);
}

#[test]
fn nodes_that_go_up_and_down_without_end_have_few_lines() {
    let (mux, conn) = (MuxId::new(1), conns()[0]);
    let reason = MuxClosed::Error(Cause::Network);
    let node = core::net::SocketAddr::from(([127, 0, 0, 1], 9042));
    let captured = capture(|| {
        let options = LogOptions { topology: LevelFilter::OFF, connection: LevelFilter::OFF, ..LogOptions::DEFAULT };
        let queue = LogQueue::of(System::Cassandra, options);
        let hosts = ["a:1", "b:2"].map(|address| (queue.of_server(address), address));
        for second in 0..120 {
            let now = Instant::ORIGIN.saturating_add(Duration::from_secs(second));
            for event in [ClusterEvent::NodeDown { node }, ClusterEvent::NodeUp { node }, ClusterEvent::NoLocalNodes] {
                queue.publish(now, EventRef::Cluster(&event));
            }
            let closed = MuxEvent::ConnectionClosed { mux, conn, reason, in_flight: 0 };
            let ready = MuxEvent::ConnectionReady { mux, conn, duration: Duration::ZERO };
            for (host, address) in &hosts {
                let context = EventContext::of_server(address);
                host.publish_in(now, EventRef::Mux(&closed), &context);
                host.publish_in(now, EventRef::Mux(&ready), &context);
            }
        }
        queue.deliver();
    });
    let (missing, others): (Vec<_>, Vec<_>) =
        captured.iter().map(Captured::message).partition(|line| line.starts_with("no node"));
    assert_eq!(others.len(), 2 * NODE_LINES_MAX as usize, "in two minutes");
    assert!(others.contains(&"server down: b:2: network error"), "lines of hosts count, too");
    assert_eq!(missing.len(), 120, "one for each reading of the tables");
}

#[test]
fn lost_control_connection_has_a_line_later_if_there_are_too_many_lines() {
    let at = |second| Instant::ORIGIN.saturating_add(Duration::from_secs(second));
    let captured = capture(|| {
        let queue = LogQueue::of(System::Cassandra, LogOptions::DEFAULT);
        let publish = |second, event| queue.publish(at(second), EventRef::Cluster(&event));
        publish(0, ClusterEvent::NodesRead { count: 0 });
        for port in 0..u16::try_from(NODE_LINES_MAX).expect("small") {
            publish(0, ClusterEvent::NodeDown { node: ([127, 0, 0, 1], port).into() });
        }
        for second in [1, 61, 62] {
            publish(second, ClusterEvent::ControlFailed { cause: Cause::Network });
        }
        queue.deliver();
    });
    let lost = captured.iter().filter(|message| message.message().starts_with("control connection lost"));
    assert_eq!(lost.count(), 1);
}

/// The text of a manager's error is chosen by a server.
#[test]
fn reason_of_a_generic_pool_is_one_short_line() {
    let long = ["\u{1b}[31m\nWARN forged\u{202e}", &"x".repeat(1 << 20)].concat();
    let (pool, conn, reason) = (PoolId::new(1), pool_conn(), Reason::new(std::io::Error::other(long)));
    let event = PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(Cause::Other) };
    let queue = LogQueue::of(System::Generic, LogOptions::DEFAULT).of_server("cache");
    let captured = capture(|| {
        queue.publish_in(Instant::ORIGIN, EventRef::Pool(&event), &EventContext::NONE.with_reason(&reason));
        queue.deliver();
    });
    let line = captured.iter().find(|message| message.target == DEPLOYMENT).expect("a line").message();
    assert!(line.starts_with("server down: cache: ") && line.len() < 1024, "{line}");
    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line}");
}

/// The error of a manager or a platform, whose text is made by the application.
#[derive(Debug)]
struct Texted(Arc<AtomicBool>);

impl core::error::Error for Texted {}

impl core::fmt::Display for Texted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        assert!(!self.0.load(Ordering::Relaxed), "a lock is held");
        f.write_str("out of order")
    }
}

#[test]
fn text_of_a_reason_is_made_at_delivery() {
    let is_locked = Arc::new(AtomicBool::new(true));
    let (pool, conn, reason) = (PoolId::new(1), pool_conn(), Reason::new(Texted(Arc::clone(&is_locked))));
    let broken = PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(Cause::Other) };
    let refused = MuxClosed::Error(Cause::Authentication);
    let refused = MuxEvent::ConnectionClosed { mux: MuxId::new(1), conn: conns()[0], reason: refused, in_flight: 0 };
    let lost = ClusterEvent::ControlFailed { cause: Cause::Network };
    let captured = capture(|| {
        for (system, event) in [
            (System::Generic, EventRef::Pool(&broken)),
            (System::Cassandra, EventRef::Mux(&refused)),
            (System::Cassandra, EventRef::Cluster(&lost)),
        ] {
            let queue = LogQueue::of(system, LogOptions::DEFAULT).of_server("a");
            is_locked.store(true, Ordering::Relaxed);
            queue.publish_in(Instant::ORIGIN, event, &EventContext::of_server("a").with_reason(&reason));
            is_locked.store(false, Ordering::Relaxed);
            queue.deliver();
        }
    });
    let lines: Vec<_> = captured.iter().filter(|message| message.target == DEPLOYMENT).map(Captured::message).collect();
    let expected = [
        "server down: a: out of order",
        "authentication failed: a: out of order",
        "control connection lost: a: network error: out of order",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn address_in_the_context_of_an_event_takes_precedence() {
    let queue = LogQueue::new(LogOptions::DEFAULT).of_server("b:2");
    let captured = capture(|| {
        for address in ["b:2", "c:3"] {
            queue.publish_in(Instant::ORIGIN, EventRef::Pool(&ready(1)), &EventContext::of_server(address));
        }
        queue.deliver();
    });
    assert!(captured.iter().map(|event| event.text("serverHost")).eq(["b", "c"]), "{captured:?}");
}

/// If a server is down, only the server has a line, and its pool has none. A refused credential has
/// one line until the server accepts a connection.
#[test]
fn each_fact_of_a_pool_has_one_line() {
    use poolhouse_core::pool::ClosedReason;
    use poolhouse_core::{Cause, ObjectId};
    let (pool, conn) = (PoolId::new(1), crate::log::tests::connection_id());
    let refused =
        PoolEvent::ConnectionClosed { pool, conn, reason: ClosedReason::Error, cause: Some(Cause::Authentication) };
    let cleared = |service_id| PoolEvent::PoolCleared {
        pool,
        service_id,
        interrupt_in_use_connections: false,
        cause: Some(Cause::Network),
    };
    let ready = PoolEvent::ConnectionReady { pool, conn, duration: core::time::Duration::ZERO };
    let lines = LogOptions { connection: tracing::level_filters::LevelFilter::OFF, ..LogOptions::DEFAULT };
    let (one, other) = (LogQueue::new(lines).of_server("a:1"), LogQueue::new(lines).of_server("b:2"));
    let captured = capture(|| {
        let publish = |queue: &LogQueue, event: &PoolEvent| queue.publish(Instant::ORIGIN, EventRef::Pool(event));
        publish(&one, &cleared(None));
        publish(&one, &cleared(Some(ObjectId([0xcd; 12]))));
        (0..3).for_each(|_| publish(&one, &refused));
        publish(&other, &refused);
        publish(&one, &ready);
        publish(&one, &refused);
        one.deliver();
        other.deliver();
    });
    assert!(captured.iter().all(|event| event.target == crate::log::DEPLOYMENT), "{captured:?}");
    let lines: alloc::vec::Vec<_> = captured.iter().map(|event| event.message()).collect();
    let expected = [
        "pool cleared: a:1, service cdcdcdcdcdcdcdcdcdcdcdcd: network error",
        "authentication failed: a:1",
        "authentication failed: a:1",
        "authentication failed: b:2",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn session_without_logs_observes_nothing() {
    let of = |options| LogQueue::of(System::Cassandra, options).kinds();
    let lines = LogOptions { deployment: LevelFilter::TRACE, ..LogOptions::OFF };
    capture(|| {
        assert!(of(LogOptions::OFF) == EventKinds::NONE);
        assert!(of(LogOptions { topology: LevelFilter::TRACE, ..LogOptions::OFF }) == EventKinds::CLUSTER);
        assert!(of(LogOptions { connection: LevelFilter::TRACE, ..LogOptions::OFF }) == EventKinds::MUX);
        assert!(of(lines) == EventKinds::MUX | EventKinds::CLUSTER);
    });
}

/// The filter of a subscriber changes while operations wait.
#[test]
fn waits_whose_ends_are_not_seen_are_forgotten() {
    let queue = LogQueue::new(LogOptions { server_selection: LevelFilter::OFF, ..LogOptions::DEFAULT });
    let config = TopologyOptions { seeds: &["a:1"], ..TopologyOptions::default() }.validate().expect("valid");
    let topology =
        Topology::<topology::OnHeap>::new(Instant::ORIGIN, TopologyId::new(3), config, &mut ()).expect("room");
    let publish = |stage| {
        if queue.kinds().intersects(EventKinds::SELECTION_WAITS) {
            let event = SelectionEvent::new(stage, "write", topology.description());
            queue.publish(Instant::ORIGIN, EventRef::Selection(&event));
        }
    };
    let begin = || publish(SelectionStage::Waiting { remaining: None, again: false });
    let end = || publish(SelectionStage::Waited { duration: Duration::from_secs(2), is_selected: true });
    let twice = |publish: &dyn Fn()| (0..2).for_each(|_| publish());
    assert_eq!(capture(|| twice(&begin)), []);
    twice(&end);
    let captured = capture(|| {
        twice(&begin);
        twice(&end);
        queue.deliver();
    });
    let lines: Vec<_> = captured.iter().map(Captured::message).collect();
    assert_eq!(lines, ["operations wait for a server no more: 2 had waited, the longest 2.0s"]);
}

/// Messages about check-outs have the level *debug*.
#[test]
fn log_of_warnings_does_not_observe_check_outs() {
    let warnings = LogOptions { connection: LevelFilter::WARN, topology: LevelFilter::WARN, ..LogOptions::DEFAULT };
    for (options, is_observed) in [(LogOptions::DEFAULT, true), (warnings, false)] {
        let queue = LogQueue::new(options);
        capture(|| {
            assert!(queue.kinds().intersects(EventKinds::POOLS) && queue.kinds().intersects(EventKinds::TOPOLOGY));
            assert_eq!(queue.kinds().intersects(EventKinds::CHECK_OUTS), is_observed);
        });
    }
}

/// The id of a connection.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other event is of a new connection")]
fn pool_conn() -> ConnId {
    let mut events: Vec<(Instant, PoolEvent)> = Vec::new();
    let config = PoolOptions { min_pool_size: 1, ..PoolOptions::DEFAULT }.validate().expect("valid options");
    let mut pool = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(1), PoolConfig::DEFAULT, &mut events);
    pool.reconfigure(Instant::ORIGIN, config, &mut events);
    pool.ready(Instant::ORIGIN, &mut events);
    let created = events.iter().find_map(|(_, event)| match event {
        PoolEvent::ConnectionCreated { conn, .. } => Some(*conn),
        _ => None,
    });
    created.expect("a connection is being created")
}
