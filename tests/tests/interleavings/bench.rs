//! A client in memory, with locks of the model.

use super::model::{Boxed, Turnstile, done, poll};
use super::sleepers::Sleepers;
use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::task::{Poll, Waker};
use core::time::Duration;
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::{Fixed, PoolCounts, PoolOptions, PoolState};
use poolhouse_core::storage::Full;
use poolhouse_core::topology::{self, TopologyOptions};
use poolhouse_core::{Cause, HostAddress, Instant};
use poolhouse_driver::{
    BaseRuntime, ClientCore, ConnectError, CoreConfig, Guard, Lock, Locked, NewServer, OperationError, Runtime,
    SelectionRequest, Server, ServerState, Subscribers,
};
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};
use poolhouse_wire::message::{Decoded, Limits, Outgoing, decode_message, encode_message};

/// Maximum number of advances of the clock.
const MOVES_MAX: usize = 1_000;

/// The state of the peers. loom does not track it, so it changes only while nothing is explored.
#[derive(Default)]
struct Shared {
    /// An exception to that: one task of a scenario advances the time, and only when a deadline is
    /// awaited. Operations that other tasks begin afterwards start later by that time; nothing else
    /// in them depends on it.
    now: AtomicU64,
    /// Until this time, the clock advances whenever a task sleeps; 0: never. After it the clock
    /// stands still.
    flies_until: AtomicU64,
    /// Peers refuse connections.
    refuses: AtomicBool,
    /// The number of reads that will fail.
    cuts: AtomicUsize,
    /// Peers answer no request.
    mute: AtomicBool,
    /// Replies to `ping` are kept in [`Bench::held`].
    holds: AtomicBool,
    /// The role in hello replies.
    role: AtomicUsize,
    /// The number of hello requests.
    hello_count: AtomicUsize,
    /// The number of sockets opened so far.
    dials: AtomicUsize,
    /// The number of open sockets.
    stream_count: AtomicUsize,
}

/// The role in hello replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Standalone,
    /// The primary of a set of two.
    Primary,
    Secondary,
}

/// Replies that the test releases.
#[derive(Default)]
pub(crate) struct Held {
    released: bool,
    /// The waiting reader of each stream.
    readers: Vec<(usize, Waker)>,
}

impl Held {
    fn listen(&mut self, stream: usize, waker: &Waker) {
        self.readers.retain(|(reader, _)| *reader != stream);
        self.readers.push((stream, waker.clone()));
    }
}

/// Whether the held replies were released; if not, registers the waker of this stream's reader.
type Listen = fn(&Turnstile<Held>, usize, &Waker) -> Poll<()>;

/// A runtime with time and peers under control of the test.
#[derive(Clone)]
pub(crate) struct Bench {
    shared: Arc<Shared>,
    held: Arc<Turnstile<Held>>,
    /// How a reader waits for a held reply.
    listen: Listen,
    /// Tasks that sleep until a task advances the time; `None` if the time advances automatically
    /// or stands still.
    sleepers: Option<Arc<Sleepers>>,
}

pub(crate) type BenchCore = ClientCore<Bench>;
pub(crate) type BenchServer = Server<Bench>;

impl Bench {
    pub(crate) fn new() -> Self {
        let shared = Shared { now: AtomicU64::new(1), ..Shared::default() };
        Self { shared: Arc::new(shared), held: Arc::new(Lock::new(Held::default())), listen, sleepers: None }
    }

    /// A bench with a task that advances the time: see [`Bench::keep_time`].
    pub(crate) fn with_sleepers() -> Self {
        Self { sleepers: Some(Arc::default()), ..Self::new() }
    }

    /// A bench with streams that register their wakers incorrectly.
    pub(crate) fn with_careless_streams() -> Self {
        Self { listen: listen_carelessly, ..Self::new() }
    }

    /// From now on, for this duration, the clock advances to the deadline of each task that sleeps.
    pub(crate) fn let_time_fly(&self, time: Duration) {
        self.shared.flies_until.store(self.now().saturating_add(time).as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.shared.now.store(self.now().saturating_add(time).as_nanos(), Ordering::Relaxed);
    }

    /// Advances the time to the earliest deadline of a sleeping task, repeatedly until
    /// [`Bench::stop_time`].
    ///
    /// - `pause`: runs between two advances, and lets other tasks run.
    pub(crate) async fn keep_time(self, pause: impl Fn()) {
        let Some(sleepers) = &self.sleepers else { return };
        let mut moves = 0;
        while let Some(at) = poll_fn(|context| sleepers.poll_first(context.waker())).await {
            moves += 1;
            assert!(moves < MOVES_MAX, "time passes, but a task waits forever");
            sleepers.wake_until(at, || self.shared.now.fetch_max(at, Ordering::Relaxed));
            pause();
        }
    }

    pub(crate) fn stop_time(&self) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.stop();
        }
    }

    pub(crate) fn refuse(&self) {
        self.shared.refuses.store(true, Ordering::Relaxed);
    }

    /// Peers accept connections again.
    pub(crate) fn accept(&self) {
        self.shared.refuses.store(false, Ordering::Relaxed);
    }

    /// The next `count` reads fail, on any stream.
    pub(crate) fn cut(&self, count: usize) {
        self.shared.cuts.store(count, Ordering::Relaxed);
    }

    /// Ends all faults.
    pub(crate) fn recover(&self) {
        self.accept();
        self.cut(0);
        self.shared.mute.store(false, Ordering::Relaxed);
    }

    pub(crate) fn mute(&self) {
        self.shared.mute.store(true, Ordering::Relaxed);
    }

    /// Replies to `ping` wait for [`Bench::release`].
    pub(crate) fn hold(&self) {
        self.shared.holds.store(true, Ordering::Relaxed);
    }

    /// Releases the reply that is held or will be held. May be explored.
    pub(crate) fn release(&self) {
        let readers = self.held.with(|held| {
            held.released = true;
            core::mem::take(&mut held.readers)
        });
        readers.into_iter().for_each(|(_, reader)| reader.wake());
    }

    pub(crate) fn become_(&self, role: Role) {
        self.shared.role.store(role as usize, Ordering::Relaxed);
    }

    pub(crate) fn hello_count(&self) -> usize {
        self.shared.hello_count.load(Ordering::Relaxed)
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.shared.stream_count.load(Ordering::Relaxed)
    }
}

fn listen(held: &Turnstile<Held>, stream: usize, waker: &Waker) -> Poll<()> {
    held.with(|held| {
        if held.released {
            return Poll::Ready(());
        }
        held.listen(stream, waker);
        Poll::Pending
    })
}

/// A flaw that the model must find: checks the state first and registers the waker later. The reply
/// may be released in between.
fn listen_carelessly(held: &Turnstile<Held>, stream: usize, waker: &Waker) -> Poll<()> {
    if held.with(|held| held.released) {
        return Poll::Ready(());
    }
    held.with(|held| held.listen(stream, waker));
    Poll::Pending
}

/// A socket to a peer that has its answer ready before the request is written.
pub(crate) struct Stream {
    bench: Bench,
    number: usize,
    unread: Vec<u8>,
    /// Bytes that can be read after the release.
    held: Vec<u8>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.bench.shared.stream_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ErrorType for Stream {
    type Error = ErrorKind;
}

impl Read for Stream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        let Self { bench, number, unread, held } = self;
        poll_fn(|context| {
            let cut = |cuts: usize| cuts.checked_sub(1);
            if bench.shared.cuts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, cut).is_ok() {
                return Poll::Ready(Err(ErrorKind::ConnectionReset));
            }
            if !unread.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if held.is_empty() || (bench.listen)(&bench.held, *number, context.waker()).is_pending() {
                return Poll::Pending;
            }
            unread.append(held);
            Poll::Ready(Ok(()))
        })
        .await?;
        let count = buf.len().min(unread.len());
        buf[..count].copy_from_slice(&unread[..count]);
        unread.drain(..count);
        Ok(count)
    }
}

impl Write for Stream {
    /// Accepts one whole message.
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        let Ok(Decoded::Done { value: message, .. }) = decode_message(buf, &Limits::DEFAULT) else {
            panic!("the bytes are not a complete message")
        };
        let shared = &self.bench.shared;
        let is_ping = message.body().iter().next().and_then(Result::ok).is_some_and(|first| first.key == "ping");
        if !is_ping {
            shared.hello_count.fetch_add(1, Ordering::Relaxed);
        }
        if shared.mute.load(Ordering::Relaxed) {
            return Ok(buf.len());
        }
        let reply = reply(message.header().request_id, shared.role.load(Ordering::Relaxed));
        if is_ping && shared.holds.load(Ordering::Relaxed) {
            self.held.extend_from_slice(&reply);
        } else {
            self.unread.extend_from_slice(&reply);
        }
        Ok(buf.len())
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

/// The reply to any request.
fn reply(request_id: i32, role: usize) -> Vec<u8> {
    let mut reply = Vec::new();
    encode_message(&mut reply, Outgoing::reply(1, request_id), &Limits::DEFAULT, |message| {
        message.body(|body| {
            if role != Role::Standalone as usize {
                body.str("setName", "rs")?.str("me", "a:27017")?;
                body.array("hosts", |hosts| hosts.str("a:27017")?.str("b:27017").map(drop))?;
            }
            body.boolean("secondary", role == Role::Secondary as usize)?;
            body.boolean("isWritablePrimary", role != Role::Secondary as usize)?;
            body.boolean("helloOk", true)?.int32("maxWireVersion", 21)?.int32("minWireVersion", 6)?;
            body.double("ok", 1.0).map(drop)
        })
    })
    .expect("a reply");
    reply
}

impl BaseRuntime for Bench {
    type Lock<T> = Turnstile<T>;
    type Memory = Fixed<2, 8>;
    type Text = String;
    type Events = Subscribers;

    fn now(&self) -> Instant {
        Instant::from_nanos(self.shared.now.load(Ordering::Relaxed))
    }

    fn entropy(&self) -> u32 {
        0
    }

    async fn sleep_until(&self, at: Instant) {
        if let Some(sleepers) = &self.sleepers {
            return sleepers.sleep_until(at.as_nanos(), || self.now().as_nanos()).await;
        }
        poll_fn(|_| {
            if at.as_nanos() <= self.shared.flies_until.load(Ordering::Relaxed) {
                self.shared.now.fetch_max(at.as_nanos(), Ordering::Relaxed);
                return Poll::Ready(());
            }
            if self.now() >= at { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Runtime for Bench {
    type Stream = Stream;
    type Buffer = Vec<u8>;
    type Topology = topology::OnHeap;
    type ServerLock = Turnstile<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, _: &HostAddress<'_>, _: Option<Instant>) -> Result<Stream, ConnectError> {
        if self.shared.refuses.load(Ordering::Relaxed) {
            return Err(Cause::Network.into());
        }
        self.shared.stream_count.fetch_add(1, Ordering::Relaxed);
        let number = self.shared.dials.fetch_add(1, Ordering::Relaxed);
        Ok(Stream { bench: self.clone(), number, unread: Vec::new(), held: Vec::new() })
    }

    fn buffers(&self, _stream: &Stream) -> Result<(Vec<u8>, Vec<u8>), Full> {
        Ok((Vec::new(), Vec::new()))
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        server.share(|state| Ok(Lock::new(state))).map(Arc::new)
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) bench: Bench,
    pub(crate) core: Arc<BenchCore>,
    pub(crate) server: Arc<BenchServer>,
    idle: Arc<Idle>,
}

/// Waiting tasks of a client, kept while the client exists: without them it would be closed.
#[derive(Default)]
struct Idle(std::sync::Mutex<Vec<Boxed<()>>>);

impl Drop for Idle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // When a model fails, its threads unwind after their locks are gone.
            core::mem::forget(core::mem::take(self.0.get_mut().expect("whole")));
        }
    }
}

impl Client {
    /// A client that has no information about its server.
    pub(crate) fn new(bench: Bench) -> Self {
        Self::with(bench, |_| ())
    }

    pub(crate) fn with(bench: Bench, change: impl FnOnce(&mut CoreConfig)) -> Self {
        Self::watched(bench, Subscribers::default(), change)
    }

    /// A client with observed events.
    pub(crate) fn watched(bench: Bench, events: Subscribers, change: impl FnOnce(&mut CoreConfig)) -> Self {
        let role = bench.shared.role.load(Ordering::Relaxed);
        let options = TopologyOptions {
            seeds: &["a"],
            direct_connection: role == Role::Standalone as usize,
            replica_set: (role != Role::Standalone as usize).then_some("rs"),
            ..Default::default()
        };
        let metadata = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
        let mut config = CoreConfig {
            pool: PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT }.validate().expect("valid"),
            monitor: MonitorOptions::DEFAULT.validate().expect("valid"),
            connect_timeout: None,
            command_timeout: None,
            server_selection_timeout: Duration::from_secs(30),
            compressors: Compressors::NONE,
            zlib_compression_level: None,
            drain_timeout: Duration::ZERO,
            metadata: ClientMetadata::new(&metadata).expect("short"),
            server_api: None,
            login: None,
            client: 0,
        };
        change(&mut config);
        let core = ClientCore::new(bench.clone(), config, options.validate().expect("valid"), events).expect("room");
        let server = done(core.next_server()).expect("the seed");
        // Each task is returned once, so no other caller starts these tasks.
        drop(core.server_tasks(&server));
        Self { bench, core: Arc::new(core), server, idle: Arc::default() }
    }

    /// A client with a checked server, and its monitor, which waits for a request.
    pub(crate) fn checked(self) -> (Self, Boxed<()>) {
        let mut check = self.check();
        for _ in 0..4 {
            assert!(poll(&mut check).is_pending());
        }
        assert_eq!(self.server.pool_snapshot().state, PoolState::Ready);
        (self, check)
    }

    /// A client with a checked server, which will not be checked again.
    pub(crate) fn known(self) -> Self {
        let (client, check) = self.checked();
        client.keep(check);
        client
    }

    /// A client with an available connection.
    pub(crate) fn connected(self) -> Self {
        let (client, check) = self.connected_and_check();
        client.keep(check);
        client
    }

    /// A client with an available connection, and its monitor.
    pub(crate) fn connected_and_check(self) -> (Self, Boxed<()>) {
        let (client, check) = self.checked();
        let checking = client.clone();
        let mut check_out: Boxed<()> = Box::pin(async move { drop(checking.check_out().await.expect("established")) });
        assert!(poll(&mut check_out).is_pending());
        let mut worker = client.worker();
        for _ in 0..2 {
            assert!(poll(&mut worker).is_pending());
        }
        assert!(poll(&mut check_out).is_ready());
        assert_eq!(client.counts(), PoolCounts { available: 1, ..PoolCounts::default() });
        client.keep(worker);
        (client, check)
    }

    fn keep(&self, task: Boxed<()>) {
        self.idle.0.lock().expect("whole").push(task);
    }

    pub(crate) fn check(&self) -> Boxed<()> {
        let Self { core, server, .. } = self.clone();
        Box::pin(async move { core.run_check(&server).await })
    }

    pub(crate) fn worker(&self) -> Boxed<()> {
        let Self { core, server, .. } = self.clone();
        Box::pin(async move { core.run_worker(&server).await })
    }

    pub(crate) fn pool_clock(&self) -> Boxed<()> {
        let Self { core, server, .. } = self.clone();
        Box::pin(async move { core.run_pool_clock(&server).await })
    }

    pub(crate) fn clock(&self) -> Boxed<()> {
        let core = Arc::clone(&self.core);
        Box::pin(async move { core.run_clock().await })
    }

    /// Checks out a connection of the server.
    pub(crate) async fn check_out(&self) -> Result<Guard<'_, Bench>, OperationError> {
        self.core.check_out_of(Arc::clone(&self.server), None, None).await
    }

    /// Selects the server, checks out a connection, exchanges one message, and checks the
    /// connection in.
    pub(crate) async fn ping(self) -> Result<(), OperationError> {
        let mut guard = self.core.check_out(&SelectionRequest::WRITE, None).await?;
        ping(&mut guard).await
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        self.server.pool_snapshot().counts
    }
}

/// One command and its reply.
pub(crate) async fn ping(guard: &mut Guard<'_, Bench>) -> Result<(), OperationError> {
    guard.run_command("db", |body| body.int32("ping", 1).map(drop)).await.map(drop)
}
