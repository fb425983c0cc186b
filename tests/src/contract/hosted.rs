//! Implementations of [`Platform`] as subjects, and the cases that only hosted clients support.

mod crowd;
mod cursors;
mod dropping;
mod ending;
mod mux;
mod panics;
mod transactions;

use super::{Client, Limits, PLANNED_PANIC, Shape, Subject, Witness};
use crate::suite::Suite;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::cell::Cell;
use core::fmt;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use event_listener::Event;
use futures_lite::{AsyncRead, AsyncWrite};
use poolhouse_client as client;
use poolhouse_client::{ClientOptions, Connection, Error, Net, Platform};
use poolhouse_core::Instant;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_driver::{ClientCore, Subscribers};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Adds the cases that need threads and a heap.
pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = dropping::add::<P>(suite);
    let suite = panics::add::<P>(suite);
    let suite = ending::add::<P>(suite);
    let suite = crowd::add::<P>(suite);
    let suite = transactions::add::<P>(suite);
    let suite = cursors::add::<P>(suite);
    // Multiplexed pools have no separate path for a client without a subscriber.
    if super::is_unobserved() { suite } else { mux::add::<P>(suite) }
}

/// Returns the id of the one document of a collection.
async fn find<P: Platform>(client: &client::Client<P>, name: &str) -> Result<String, Error> {
    let reply = client.run_command("db", bson::doc! { "find": name }).await?;
    Ok(first_id(&reply).to_owned())
}

/// [`find`] over this connection.
async fn find_by<P: Platform>(connection: &mut Connection<'_, P>, name: &str) -> Result<String, Error> {
    let reply = connection.run_command("db", bson::doc! { "find": name }).await?;
    Ok(first_id(&reply).to_owned())
}

/// Returns the id of the first document of a reply.
fn first_id(reply: &bson::Document) -> &str {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let first = batch.first().and_then(bson::Bson::as_document).expect("a document");
    first.get_str("_id").expect("an id")
}

/// Runs tasks on the executor of a platform, and waits for all of them.
async fn join<P: Platform, T: Send + 'static>(
    platform: &P,
    tasks: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tally = Arc::new(Tally { results: Mutex::default(), ended: Event::new() });
    let running: Vec<_> = tasks
        .enumerate()
        .map(|(place, task)| {
            let mut ending = Ending { tally: Arc::clone(&tally), place, result: None };
            platform.spawn(async move { ending.note(task.await) })
        })
        .collect();
    let is_over = || lock(&tally.results).len() == running.len();
    while !is_over() {
        let listener = tally.ended.listen();
        if !is_over() {
            listener.await;
        }
    }
    let results = core::mem::take(&mut *lock(&tally.results));
    results.into_values().map(|result| result.expect("no task has panicked")).collect()
}

/// The outcomes of tasks.
struct Tally<T> {
    results: Mutex<BTreeMap<usize, Option<T>>>,
    ended: Event,
}

/// Records the outcome of a task when it is dropped.
struct Ending<T> {
    tally: Arc<Tally<T>>,
    place: usize,
    result: Option<T>,
}

impl<T> Ending<T> {
    fn note(&mut self, result: T) {
        self.result = Some(result);
    }
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        lock(&self.tally.results).insert(self.place, self.result.take());
        self.tally.ended.notify(usize::MAX);
    }
}

/// A platform under test.
#[derive(Debug)]
pub struct Hosted<P: Platform> {
    runtime: Net<Probe<P>>,
}

impl<P: Platform + Default> Subject for Hosted<P> {
    type Runtime = Net<Probe<P>>;
    type Client = HostedClient<P>;

    const LIMITS: Limits = Limits::NONE;

    fn with(case: impl AsyncFnOnce(&Self)) {
        let subject = Self { runtime: Net::new(Probe::default()) };
        super::block_on(case(&subject));
    }

    fn runtime(&self) -> &Net<Probe<P>> {
        &self.runtime
    }

    fn client(&self, shape: &Shape) -> HostedClient<P> {
        HostedClient::new(options(shape), Subscribers::default())
    }
}

/// Converts a shape to client options for the fake server.
pub(super) fn options(shape: &Shape) -> ClientOptions {
    let mut options = ClientOptions::new(shape.server.to_string());
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    options.monitor.heartbeat_frequency = Duration::from_secs(1000);
    options.monitor.connect_timeout = shape.connect_timeout;
    options.server_selection_timeout = shape.server_selection_timeout;
    options.drain_timeout = shape.drain_timeout;
    options.pool.max_pool_size = shape.max_pool_size;
    options.pool.min_pool_size = shape.min_pool_size;
    options.pool.wait_queue_timeout = shape.wait_queue_timeout;
    options
}

/// A client on a platform that is instrumented.
#[derive(Debug)]
pub struct HostedClient<P: Platform> {
    client: client::Client<Probe<P>>,
    platform: Probe<P>,
    _witness: Witness,
}

impl<P: Platform + Default> HostedClient<P> {
    /// Creates a client with these options.
    pub(super) fn new(options: ClientOptions, events: Subscribers) -> Self {
        Self::on(Probe::default(), options, events)
    }

    /// Creates a client with these options on this platform, for which a panic may have been
    /// planned.
    pub(super) fn on(platform: Probe<P>, options: ClientOptions, events: Subscribers) -> Self {
        let witness = Witness::new(&events);
        let client = client::Client::with_platform(platform.clone(), options, events).expect("valid options");
        Self { client, platform, _witness: witness }
    }

    /// The client.
    pub const fn client(&self) -> &client::Client<Probe<P>> {
        &self.client
    }

    /// Its platform.
    pub const fn platform(&self) -> &Probe<P> {
        &self.platform
    }
}

impl<P: Platform> Client for HostedClient<P> {
    type Runtime = Net<Probe<P>>;

    fn core(&self) -> &ClientCore<Self::Runtime> {
        self.client.core()
    }

    fn drop_runner(&self) {
        self.platform.drop_tasks();
    }
}

/// The operation in which a [`Probe`] panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Panic {
    /// No operation.
    Never,
    /// The next read of the clock.
    Now,
    /// The next timer.
    Sleep,
    /// The next connect.
    Connect,
    /// The next start of a task.
    Spawn,
    /// The next read of a TCP socket that is ready: with bytes, the end, or an error.
    Read,
    /// The next write to a TCP socket.
    Write,
}

/// Panics once if a panic was planned for this operation.
#[inline]
fn pass(panic: &AtomicU8, at: Panic) {
    if panic.load(Ordering::Relaxed) == at as u8
        && panic.compare_exchange(at as u8, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    {
        panic!("{PLANNED_PANIC}: {at:?}");
    }
}

/// A platform that forwards to another one, except where a case changes its behaviour.
#[derive(Clone)]
pub struct Probe<P: Platform> {
    inner: P,
    panic: Arc<AtomicU8>,
    blocked: Arc<AtomicU64>,
    tasks: Tasks<P>,
    next: Arc<AtomicU64>,
    running: Arc<AtomicUsize>,
    polling: Arc<AtomicUsize>,
    writes: Arc<Writes>,
}

/// Control of the writes to TCP sockets.
#[derive(Debug, Default)]
struct Writes {
    are_held: AtomicBool,
    /// The number of writes that took bytes.
    count: AtomicU64,
    held: Mutex<Vec<Waker>>,
}

type Tasks<P> = Arc<Mutex<BTreeMap<u64, <P as Platform>::Task>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Platform + Default> Default for Probe<P> {
    fn default() -> Self {
        Self {
            inner: P::default(),
            panic: Arc::default(),
            blocked: Arc::default(),
            tasks: Arc::default(),
            next: Arc::default(),
            running: Arc::default(),
            polling: Arc::default(),
            writes: Arc::default(),
        }
    }
}

impl<P: Platform> Probe<P> {
    /// Makes TCP sockets take no bytes until [`Probe::release_writes`].
    pub fn hold_writes(&self) {
        self.writes.are_held.store(true, Ordering::SeqCst);
    }

    /// Lets TCP sockets take bytes again.
    pub fn release_writes(&self) {
        self.writes.are_held.store(false, Ordering::SeqCst);
        core::mem::take(&mut *lock(&self.writes.held)).into_iter().for_each(Waker::wake);
    }

    /// Number of writes to TCP sockets that took bytes.
    pub fn writes_count(&self) -> u64 {
        self.writes.count.load(Ordering::SeqCst)
    }

    /// Plans one panic in the next operation of this kind.
    pub fn panic_next(&self, at: Panic) {
        self.panic.store(at as u8, Ordering::SeqCst);
    }

    /// Whether a planned panic has not occurred yet.
    pub fn is_panic_due(&self) -> bool {
        self.panic.load(Ordering::SeqCst) != Panic::Never as u8
    }

    /// Number of tasks whose future has not been dropped yet.
    pub fn tasks_count(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Number of writes to TCP sockets that were pending because the peer and all buffers on the
    /// way were full.
    pub fn blocked_count(&self) -> u64 {
        self.blocked.load(Ordering::SeqCst)
    }

    /// Whether no task is being polled at this moment.
    pub fn is_quiet(&self) -> bool {
        self.polling.load(Ordering::SeqCst) == 0
    }

    /// Drops all tasks, as an executor does when it ends.
    pub fn drop_tasks(&self) {
        let dropped = core::mem::take(&mut *lock(&self.tasks));
        drop(dropped);
    }

    #[inline]
    fn pass(&self, at: Panic) {
        pass(&self.panic, at);
    }
}

/// A TCP socket of a [`Probe`].
#[derive(Debug)]
pub struct ProbeTcp<S> {
    socket: S,
    panic: Arc<AtomicU8>,
    blocked: Arc<AtomicU64>,
    writes: Arc<Writes>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ProbeTcp<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_read(context, buf);
        // A read that is pending may occur in any task at any time.
        if polled.is_ready() {
            pass(&self.panic, Panic::Read);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProbeTcp<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        pass(&self.panic, Panic::Write);
        if self.writes.are_held.load(Ordering::SeqCst) {
            lock(&self.writes.held).push(context.waker().clone());
            // If the release happened before the waker was added, it did not wake this task.
            if self.writes.are_held.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
        }
        let polled = Pin::new(&mut self.socket).poll_write(context, buf);
        let counter = if polled.is_pending() { &self.blocked } else { &self.writes.count };
        counter.fetch_add(1, Ordering::SeqCst);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(context)
    }
}

impl<P: Platform> fmt::Debug for Probe<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("platform", &P::PLATFORM_NAME).finish_non_exhaustive()
    }
}

std::thread_local! {
    static AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread polls a task of a [`Probe`], or is in [`at_work`]. Allocates nothing.
#[must_use]
pub fn is_at_work() -> bool {
    // A thread that is ending runs no task.
    AT_WORK.try_with(Cell::get).unwrap_or(false)
}

/// Runs a closure that counts as work of a task.
pub fn at_work<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            AT_WORK.set(self.0);
        }
    }
    let _before = Before(AT_WORK.replace(true));
    work()
}

/// Guard that counts a task while it is polled.
struct Polling<'a>(&'a AtomicUsize);

impl<'a> Polling<'a> {
    fn new(polling: &'a AtomicUsize) -> Self {
        polling.fetch_add(1, Ordering::SeqCst);
        Self(polling)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Guard that counts a task until its future is dropped.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A task of a [`Probe`].
pub struct ProbeTask<P: Platform> {
    tasks: Tasks<P>,
    number: u64,
}

impl<P: Platform> fmt::Debug for ProbeTask<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeTask").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<P: Platform> Drop for ProbeTask<P> {
    fn drop(&mut self) {
        let task = lock(&self.tasks).remove(&self.number);
        drop(task);
    }
}

impl<P: Platform> Platform for Probe<P> {
    const DRIVER_NAME: &'static str = P::DRIVER_NAME;
    const DRIVER_VERSION: &'static str = P::DRIVER_VERSION;
    const PLATFORM_NAME: &'static str = P::PLATFORM_NAME;
    const SURVIVES_FORK: bool = P::SURVIVES_FORK;

    type Tcp = ProbeTcp<P::Tcp>;
    type Unix = P::Unix;
    type Udp = P::Udp;
    type Task = ProbeTask<P>;

    fn now(&self) -> Instant {
        self.pass(Panic::Now);
        self.inner.now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send {
        self.pass(Panic::Sleep);
        self.inner.sleep_until(at)
    }

    fn entropy(&self) -> u32 {
        self.inner.entropy()
    }

    fn fill_secret(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.fill_secret(bytes)
    }

    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        self.inner.resolve(host, port)
    }

    fn connect_tcp(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send {
        self.pass(Panic::Connect);
        let (connecting, panic) = (self.inner.connect_tcp(address), Arc::clone(&self.panic));
        let (blocked, writes) = (Arc::clone(&self.blocked), Arc::clone(&self.writes));
        async move { Ok(ProbeTcp { socket: connecting.await?, panic, blocked, writes }) }
    }

    fn connect_unix(&self, path: &Path) -> impl Future<Output = io::Result<Self::Unix>> + Send {
        self.inner.connect_unix(path)
    }

    fn connect_udp(&self, peer: SocketAddr) -> impl Future<Output = io::Result<Self::Udp>> + Send {
        self.inner.connect_udp(peer)
    }

    fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> impl Future<Output = io::Result<usize>> + Send {
        self.inner.send_udp(socket, datagram)
    }

    fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send {
        self.inner.receive_udp(socket, buffer)
    }

    fn spawn<F>(&self, work: F) -> ProbeTask<P>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.pass(Panic::Spawn);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::SeqCst);
        let alive = Alive(Arc::clone(&self.running));
        let work = async move {
            // Declared first, so it is dropped after the work, also after a panic.
            let _alive = alive;
            work.await;
        };
        let (mut work, polling) = (Box::pin(work), Arc::clone(&self.polling));
        let work = poll_fn(move |context| {
            let _polling = Polling::new(&polling);
            at_work(|| work.as_mut().poll(context))
        });
        // A task that ends stays in the list until its handle is dropped.
        lock(&self.tasks).insert(number, self.inner.spawn(work));
        ProbeTask { tasks: Arc::clone(&self.tasks), number }
    }
}
