//! Shared by the tests: clients, their event logs, and futures that are dropped.

use super::net::Net;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use embassy_net::Stack;
use poolhouse_embassy::poolhouse_core::monitor::MonitorEvent;
use poolhouse_embassy::poolhouse_core::pool::{ClosedReason, PoolEvent};
use poolhouse_embassy::poolhouse_core::{Cause, Instant, ServerType};
use poolhouse_embassy::poolhouse_driver::{Event, PoolSnapshot};
use poolhouse_embassy::{
    Buffers, Client, Direct, DocumentWriter, EventKinds, EventRef, Layout, MonitorOptions, OperationError, Options,
    Publish, RawDocument, Resources, Runner, ServerMonitoringMode, Sizes,
};
use poolhouse_tests::fake::{FakeOptions, FakeServer, Fault, FaultRule};
pub(crate) use poolhouse_tests::patience::{PATIENCE, eventually, refused};
use std::sync::Mutex;

/// One server.
pub(crate) type Small = Sizes<1, 4, 8, 4096, 1024, 1024, Log>;
/// The same, without the code for other deployments.
pub(crate) type DirectOnly = Sizes<1, 4, 8, 4096, 1024, 1024, Log, 1, Stack<'static>, 2048, 2, Direct<64>>;

/// The interval of checks: it ends only when a test advances its clock.
pub(crate) const UNASKED: Duration = Duration::from_secs(120);

pub(crate) fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

/// The server receives every hello from now on, and answers none.
pub(crate) fn ignore_hello(server: &FakeServer) {
    for name in ["hello", "isMaster"] {
        server.inject(FaultRule::always(Fault::Silence).on_command(name));
    }
}

/// Strings with a static lifetime.
pub(crate) fn seeds<T: ToString>(addresses: &[T]) -> &'static [&'static str] {
    let texts: Vec<&'static str> = addresses.iter().map(|address| &*address.to_string().leak()).collect();
    texts.leak()
}

/// Options for one server with a polling monitor (one connection, one check), which makes counts
/// exact.
pub(crate) fn options(server: &FakeServer) -> Options {
    Options {
        seeds: seeds(&[server.address()]),
        direct_connection: true,
        monitor: MonitorOptions {
            server_monitoring_mode: ServerMonitoringMode::Poll,
            heartbeat_frequency: UNASKED,
            ..MonitorOptions::DEFAULT
        },
        timeout: Some(PATIENCE),
        ..Options::DEFAULT
    }
}

/// All events of a client.
#[derive(Clone, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<(Instant, Event)>>>);

impl Publish for Log {
    fn kinds(&self) -> EventKinds {
        EventKinds::ALL
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.0.borrow_mut().push((now, event.to_owned()));
    }
}

impl Log {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.borrow().iter().map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn pool_events(&self) -> Vec<PoolEvent> {
        let pool = |event| if let Event::Pool(event) = event { Some(event) } else { None };
        self.events().into_iter().filter_map(pool).collect()
    }

    pub(crate) fn pool_names(&self) -> Vec<&'static str> {
        self.pool_events().iter().map(PoolEvent::name).collect()
    }

    /// The number of events of a pool with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.pool_names().iter().filter(|each| **each == name).count()
    }

    /// Why connections were closed, in order.
    pub(crate) fn closed(&self) -> Vec<ClosedReason> {
        let closed = |event| if let PoolEvent::ConnectionClosed { reason, .. } = event { Some(reason) } else { None };
        self.pool_events().into_iter().filter_map(closed).collect()
    }

    /// Why checks have failed, in order.
    pub(crate) fn heartbeat_failures(&self) -> Vec<Cause> {
        let failed = |event| {
            if let Event::Heartbeat(MonitorEvent::HeartbeatFailed { cause, .. }) = event { Some(cause) } else { None }
        };
        self.events().into_iter().filter_map(failed).collect()
    }

    /// How many checks have succeeded.
    pub(crate) fn heartbeats(&self) -> usize {
        let succeeded = |event: &Event| matches!(event, Event::Heartbeat(MonitorEvent::HeartbeatSucceeded { .. }));
        self.events().iter().filter(|event| succeeded(event)).count()
    }

    /// Discards the events so far.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// A running client.
pub(crate) struct Rig<L: Layout> {
    pub(crate) client: Client<L>,
    pub(crate) log: Log,
    /// The number of polls of the runner.
    pub(crate) polls: Rc<Cell<u64>>,
}

/// A client on this network, in leaked memory.
pub(crate) fn rig<L: Layout<Events = Log, Network = Stack<'static>>>(net: &Net, options: Options) -> Rig<L> {
    let (rig, runner) = made(net, options);
    Rig { polls: net.spawn(async move { runner.run().await }), ..rig }
}

/// A client with a runner that is not started yet.
pub(crate) fn made<L: Layout<Events = Log, Network = Stack<'static>>>(
    net: &Net,
    options: Options,
) -> (Rig<L>, Runner<L>) {
    let config = Box::leak(Box::new(options.validate().expect("the options are right")));
    let resources = Box::leak(Box::new(Resources::<L>::new()));
    let buffers = Box::leak(Box::new(Buffers::new()));
    let log = Log::default();
    let (client, runner) =
        Client::with_events(resources, buffers, net.stack, config, log.clone()).expect("it can begin");
    (Rig { client, log, polls: Rc::default() }, runner)
}

/// A client of one server, which it can reach.
pub(crate) fn small(net: &Net, server: &FakeServer) -> Rig<Small> {
    net.open_to(server);
    rig(net, options(server))
}

impl<L: Layout> Rig<L> {
    /// The pool of the one server.
    pub(crate) fn pool(&self) -> PoolSnapshot {
        let mut found = None;
        self.client.for_each_server(|server| found = Some(server.pool));
        found.expect("a server")
    }

    /// The type of the one server.
    pub(crate) fn server_type(&self) -> ServerType {
        let mut found = ServerType::Unknown;
        self.client.for_each_server(|server| found = server.server_type);
        found
    }

    pub(crate) async fn known(&self) {
        eventually("the server is known", || self.server_type() != ServerType::Unknown).await;
    }

    /// The number of sockets in use.
    pub(crate) fn sockets_away(&self) -> usize {
        L::SOCKETS - self.client.core().runtime().free_sockets()
    }

    /// One attempt, without the client's own retry.
    pub(crate) async fn ping(&self) -> Result<(), OperationError> {
        ping(&self.client).await
    }

    /// Waits until nothing is in progress in the pool, and server and sockets agree with it.
    ///
    /// - `monitoring`: connections of the monitor.
    pub(crate) async fn at_rest(&self, server: &FakeServer, monitoring: usize) {
        let look = || {
            let counts = self.pool().counts;
            let quiet = counts.in_use == 0 && counts.pending == 0 && counts.waiting == 0;
            let conns = monitoring + counts.available as usize;
            (quiet && server.open_count() == conns && self.sockets_away() == conns, counts, server.open_count())
        };
        let begun = std::time::Instant::now();
        while !look().0 {
            assert!(begun.elapsed() < PATIENCE, "not at rest: {:?}, {} sockets away", look(), self.sockets_away());
            async_io::Timer::after(Duration::from_millis(1)).await;
        }
    }

    /// Closes the client, and checks that every socket is returned and that every server's
    /// connections are closed.
    pub(crate) async fn end(&self, servers: &[&FakeServer]) {
        self.client.close();
        eventually("all sockets are at home", || self.sockets_away() == 0).await;
        for server in servers {
            eventually("the server has no connection", || server.open_count() == 0).await;
        }
    }
}

/// One attempt, without the client's own retry.
pub(crate) async fn ping<L: Layout>(client: &Client<L>) -> Result<(), OperationError> {
    let mut guard = client.check_out().await?;
    guard.run_command("admin", |writer| writer.int32("ping", 1).map(drop)).await.map(drop)
}

/// Inserts one document, which has this id.
pub(crate) async fn insert<L: Layout>(client: &Client<L>, collection: &str, id: i32) -> Result<(), OperationError> {
    let mut reply = [0; 256];
    let written = |writer: &mut DocumentWriter<'_, _>| {
        writer.str("insert", collection)?;
        writer.array("documents", |documents| {
            documents.document(|document| document.int32("_id", id).map(drop)).map(drop)
        })?;
        Ok(())
    };
    client.run_command("db", written, &mut reply).await.map(drop)
}

/// The id of the first document of a collection.
pub(crate) async fn find<L: Layout>(client: &Client<L>, collection: &str) -> Result<i32, OperationError> {
    let mut reply = [0; 1024];
    let reply = client.run_command("db", |writer| writer.str("find", collection).map(drop), &mut reply).await?;
    Ok(first_id(reply))
}

fn first_id(reply: RawDocument<'_>) -> i32 {
    let document: bson::Document = bson::Document::from_reader(reply.as_bytes()).expect("a document");
    let cursor = document.get_document("cursor").expect("a cursor");
    let batch = cursor.get_array("firstBatch").expect("a batch");
    batch[0].as_document().expect("a document").get_i32("_id").expect("an id")
}

/// Parses a reply.
pub(crate) fn document(reply: RawDocument<'_>) -> bson::Document {
    bson::Document::from_reader(reply.as_bytes()).expect("a document")
}

/// A waker for futures that are polled by hand.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    listener: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        if let Some(listener) = self.listener.lock().expect("not poisoned").take() {
            listener.wake();
        }
    }
}

impl Bell {
    /// Waits until the waker was woken, and resets it.
    pub(crate) async fn rung(&self) {
        let rung = poll_fn(|context| {
            self.listener.lock().expect("not poisoned").replace(context.waker().clone());
            if self.rung.swap(false, Ordering::SeqCst) { Poll::Ready(true) } else { Poll::Pending }
        });
        let limit = async {
            async_io::Timer::after(PATIENCE).await;
            false
        };
        assert!(futures_lite::future::or(rung, limit).await, "the waker is never woken");
    }
}

/// The time at which a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropIt {
    AtOnce,
    /// When its waker was woken: its result is available, but was not polled.
    WhenWoken,
}

/// Polls a future a number of times, then drops it. Returns its output if it was ready by then.
pub(crate) async fn poll_times<F: Future>(future: F, times: usize, drop_it: DropIt) -> Option<F::Output> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    for polled in 1..=times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if polled < times || drop_it == DropIt::WhenWoken {
            bell.rung().await;
        }
    }
    None
}
