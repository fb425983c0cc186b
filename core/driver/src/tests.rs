//! A client core over sockets of the test, polled by the test.

/// Implements the parts of a base runtime that delegate to the [`Bench`] in this field: clock,
/// entropy and timers.
macro_rules! of_the_bench {
    ($bench:tt) => {
        fn now(&self) -> Instant {
            self.$bench.now()
        }

        fn entropy(&self) -> u32 {
            self.$bench.entropy()
        }

        async fn sleep_until(&self, at: Instant) {
            self.$bench.sleep_until(at).await;
        }
    };
}

mod abandoned;
mod crowd;
mod fork;
mod limits;
mod locks;
#[cfg(feature = "auth")]
mod login;
mod monitor;
mod panics;
mod places;
mod pool;
mod reasons;
mod report;
mod retries;
mod scant;
mod selections;
mod shown;
mod stale;
mod time;
mod unacknowledged;
mod wakers;
mod warm_up;
mod wide;
mod workers;

use super::*;
use crate::driven::Drive as _;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::future::{pending, poll_fn};
use core::ops::Deref;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::monitor::MonitorOptions;
use poolhouse_core::pool::{CheckOutError, Fixed, PoolCounts, PoolOptions};
use poolhouse_core::storage::Full;
use poolhouse_core::topology::{self, PoolCommand, TopologyOptions};
use poolhouse_core::{Cause, HostAddress, Instant, ObjectId};
use poolhouse_wire::Sink;
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};
use poolhouse_wire::message::{Decoded, Flags, Limits, Outgoing, decode_message, encode_message};
use std::panic::catch_unwind;
use std::sync::Mutex;

/// The outcome of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dial {
    /// The connection is established at once.
    Stands,
    /// The dial never completes.
    Hangs,
    Panics,
}

/// The peer's answer to an authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "auth"), expect(dead_code, reason = "there is none"))]
pub(super) enum Answer {
    Accepts,
    Refuses(String),
    KeepsSilent,
    /// Answers with a message that is not a reply.
    Babbles,
    /// Runs SCRAM-SHA-256 with this salt.
    #[cfg(feature = "auth")]
    Scram(&'static str),
}

/// A runtime with a clock that the test advances, and with a peer that answers everything with a
/// valid hello reply.
#[derive(Clone)]
pub(super) struct Bench {
    dial: Arc<Mutex<Dial>>,
    /// Whether the peer sends no replies.
    mute: Arc<Mutex<bool>>,
    now: Arc<AtomicU64>,
    /// The number of clock reads.
    looks: Arc<AtomicUsize>,
    /// The delay of the peer's replies, in nanoseconds.
    delay: Arc<AtomicU64>,
    /// The number of bytes written to all sockets.
    written: Arc<AtomicUsize>,
    answer: Arc<Mutex<Answer>>,
    /// The number of replies that remain for a client that lets the peer stream replies.
    flood: Arc<AtomicUsize>,
    has_entropy: Arc<AtomicBool>,
    is_private: Arc<AtomicBool>,
    /// Whether sockets accept no byte.
    deaf: Arc<AtomicBool>,
    /// Whether writes are pending.
    stuck: Arc<AtomicBool>,
    /// Whether the peer also replies to requests that have no reply.
    talkative: Arc<AtomicBool>,
    /// Whether the runtime reports that the process was forked.
    inherited: Arc<AtomicBool>,
    /// The contents of memory when it was released.
    left: Arc<Mutex<Vec<Vec<u8>>>>,
    /// The operation that panics, and how many more times.
    faulty: Arc<Mutex<Option<(Part, usize)>>>,
    /// The instant until which the last sleep lasts.
    last_sleep: Arc<AtomicU64>,
    /// All random bits.
    entropy: Arc<AtomicU32>,
}

/// The operations of a runtime that can panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Now,
    Connect,
    Buffers,
    Sleep,
    Read,
}

/// A buffer that moves whenever it grows, and records its memory when it is released.
pub(super) struct Page {
    bench: Bench,
    bytes: Vec<u8>,
    len: usize,
}

impl Page {
    pub(super) fn of(bench: &Bench) -> Self {
        Self { bench: bench.clone(), bytes: Vec::new(), len: 0 }
    }

    fn reallocate(&mut self, capacity: usize) {
        let mut bytes = vec![0; capacity];
        bytes[..self.len].copy_from_slice(&self.bytes[..self.len]);
        self.bench.left.lock().unwrap().push(core::mem::replace(&mut self.bytes, bytes));
    }
}

impl Sink for Page {
    fn written(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn written_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.len + bytes.len();
        if end > self.bytes.len() {
            self.reallocate(end);
        }
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Buffer for Page {
    fn resize(&mut self, len: usize) -> Result<(), Full> {
        if len > self.bytes.len() {
            self.reallocate(len);
        }
        self.len = len;
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn limit(&self) -> usize {
        usize::MAX
    }

    fn shrink(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.reallocate(self.len);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.bench.left.lock().unwrap().push(core::mem::take(&mut self.bytes));
    }
}

pub(super) struct Stream {
    bench: Bench,
    unread: Vec<u8>,
    /// The request id of the last reply of a stream of replies.
    flowing: Option<i32>,
    /// Reads are pending before this time.
    readable_at: Instant,
    #[cfg(feature = "auth")]
    scram: login::Prover,
}

impl Stream {
    pub(super) fn of(bench: &Bench) -> Self {
        Self {
            bench: bench.clone(),
            unread: Vec::new(),
            flowing: None,
            readable_at: bench.now(),
            #[cfg(feature = "auth")]
            scram: login::Prover::default(),
        }
    }
}

impl Stream {
    /// Adds bytes that the server sends before it replies.
    pub(super) fn precede(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Adds one more streamed reply if one remains.
    fn flow(&mut self, last: i32) {
        if self.bench.flood.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            return;
        }
        self.flowing = Some(last + 1);
        let outgoing = Outgoing::reply(last + 1, last).with_flags(Flags::MORE_TO_COME);
        encode_message(&mut self.unread, outgoing, &Limits::DEFAULT, |message| {
            message.body(|body| {
                body.boolean("ismaster", true)?.int32("maxWireVersion", 21)?.int32("minWireVersion", 6)?;
                body.document("topologyVersion", |version| {
                    version.object_id("processId", ObjectId([1; 12]))?.int64("counter", 1).map(drop)
                })?;
                body.double("ok", 1.0).map(drop)
            })
        })
        .unwrap();
    }
}

impl ErrorType for Stream {
    type Error = Infallible;
}

impl Read for Stream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        if let Some(last) = self.flowing.filter(|_| self.unread.is_empty()) {
            self.flow(last);
        }
        self.bench.pass_through(Part::Read);
        let is_there = || !self.unread.is_empty() && self.bench.now() >= self.readable_at;
        poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending }).await;
        let count = buf.len().min(self.unread.len());
        buf[..count].copy_from_slice(&self.unread[..count]);
        self.unread.drain(..count);
        Ok(count)
    }
}

impl Write for Stream {
    /// Accepts one whole message.
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        if self.bench.deaf.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let is_free = || !self.bench.stuck.load(Ordering::Relaxed);
        poll_fn(|_| if is_free() { Poll::Ready(()) } else { Poll::Pending }).await;
        self.bench.written.fetch_add(buf.len(), Ordering::Relaxed);
        let Ok(Decoded::Done { value: message, .. }) = decode_message(buf, &Limits::DEFAULT) else {
            panic!("no whole message")
        };
        self.readable_at =
            self.bench.now().saturating_add(Duration::from_nanos(self.bench.delay.load(Ordering::Relaxed)));
        let has_reply = !message.flags().contains(Flags::MORE_TO_COME) || self.bench.talkative.load(Ordering::Relaxed);
        if has_reply && !*self.bench.mute.lock().unwrap() {
            let name = message.body().iter().next().and_then(Result::ok).map_or("", |first| first.key);
            let answer = name.starts_with("sasl").then(|| self.bench.answer.lock().unwrap().clone());
            if answer == Some(Answer::KeepsSilent) {
                return Ok(buf.len());
            }
            if message.flags().contains(Flags::EXHAUST_ALLOWED) {
                self.flow(message.header().request_id);
                return Ok(buf.len());
            }
            let floods = self.bench.flood.load(Ordering::Relaxed) > 0;
            let (mut payload, mut over) = (String::new(), true);
            #[cfg(feature = "auth")]
            if let Some(Answer::Scram(salt)) = answer {
                (payload, over) = self.scram.answer(salt, message.body());
            }
            let outgoing = Outgoing::reply(1, message.header().request_id);
            encode_message(&mut self.unread, outgoing, &Limits::DEFAULT, |message| {
                message.body(|body| match &answer {
                    Some(Answer::Babbles) => body.str("ok", "perhaps").map(drop),
                    Some(Answer::Refuses(text)) => {
                        body.double("ok", 0.0)?.int32("code", 18)?.str("errmsg", text).map(drop)
                    }
                    Some(_) => {
                        body.int32("conversationId", 1)?.boolean("done", over)?;
                        body.binary("payload", 0, payload.as_bytes())?.double("ok", 1.0).map(drop)
                    }
                    None => {
                        body.boolean("ismaster", true)?.int32("maxWireVersion", 21)?.int32("minWireVersion", 6)?;
                        if floods {
                            body.document("topologyVersion", |version| {
                                version.object_id("processId", ObjectId([1; 12]))?.int64("counter", 1).map(drop)
                            })?;
                        }
                        body.double("ok", 1.0).map(drop)
                    }
                })
            })
            .unwrap();
        }
        Ok(buf.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl BaseRuntime for Bench {
    type Lock<T> = Mutex<T>;
    type Memory = Fixed<1, 8, 1>;
    type Text = String;
    type Events = Subscribers;

    fn now(&self) -> Instant {
        self.pass_through(Part::Now);
        self.looks.fetch_add(1, Ordering::Relaxed);
        Instant::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn entropy(&self) -> u32 {
        self.entropy.load(Ordering::Relaxed)
    }

    async fn sleep_until(&self, at: Instant) {
        self.pass_through(Part::Sleep);
        self.last_sleep.store(at.as_nanos(), Ordering::Relaxed);
        poll_fn(|_| if self.now() >= at { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(work)).ok()
    }

    fn run_task<T, F>(guard: TaskGuard<T>, begin: impl FnMut(T) -> F) -> impl Future<Output = ()>
    where
        T: Deref<Target: Guarded<Runtime = Self>> + Clone,
        F: Future<Output = ()>,
    {
        guard.run_restarting(begin)
    }

    fn is_forked(&self) -> bool {
        self.inherited.load(Ordering::Relaxed)
    }
}

impl Runtime for Bench {
    type Stream = Stream;
    type Buffer = Page;
    type Topology = topology::OnHeap;
    type ServerLock = Mutex<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    async fn connect(&self, _: &HostAddress<'_>, _: Option<Instant>) -> Result<Stream, ConnectError> {
        self.pass_through(Part::Connect);
        let dial = *self.dial.lock().unwrap();
        match dial {
            Dial::Stands => Ok(Stream::of(self)),
            Dial::Hangs => pending().await,
            Dial::Panics => panic!("as the test wants it"),
        }
    }

    fn buffers(&self, _stream: &Stream) -> Result<(Page, Page), Full> {
        self.pass_through(Part::Buffers);
        Ok((Page::of(self), Page::of(self)))
    }

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        self.has_entropy.load(Ordering::Relaxed).then_some([7; 24])
    }

    fn is_private(&self, _stream: &Stream) -> bool {
        self.is_private.load(Ordering::Relaxed)
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        server.share(|state| Ok(Mutex::new(state))).map(Arc::new)
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            dial: Arc::new(Mutex::new(Dial::Stands)),
            mute: Arc::new(Mutex::new(false)),
            now: Arc::new(AtomicU64::new(1)),
            looks: Arc::default(),
            delay: Arc::default(),
            written: Arc::new(AtomicUsize::new(0)),
            answer: Arc::new(Mutex::new(Answer::Accepts)),
            flood: Arc::default(),
            has_entropy: Arc::new(AtomicBool::new(true)),
            is_private: Arc::new(AtomicBool::new(true)),
            deaf: Arc::default(),
            stuck: Arc::default(),
            talkative: Arc::default(),
            inherited: Arc::default(),
            left: Arc::default(),
            faulty: Arc::default(),
            last_sleep: Arc::default(),
            entropy: Arc::default(),
        }
    }

    fn dial(&self, dial: Dial) {
        *self.dial.lock().unwrap() = dial;
    }

    /// Makes an operation panic this many times.
    fn break_down(&self, part: Part, times: usize) {
        *self.faulty.lock().unwrap() = Some((part, times));
    }

    fn pass_through(&self, part: Part) {
        let mut faulty = self.faulty.lock().unwrap();
        if let Some((broken, times)) = faulty.as_mut().filter(|(broken, times)| *broken == part && *times > 0) {
            *times -= 1;
            let broken = *broken;
            drop(faulty);
            panic!("{broken:?} panics, as the test wants it");
        }
    }

    fn mute(&self, mute: bool) {
        *self.mute.lock().unwrap() = mute;
    }

    fn advance_to(&self, now: Instant) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }
}

/// A client core with one server, without running tasks. The server's pool is ready without a
/// check.
fn open() -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>) {
    open_with(None)
}

fn open_with(login: Option<Login>) -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>) {
    open_as(|config| {
        config.connect_timeout = login.as_ref().map(|_| Duration::from_secs(1));
        config.login = login;
    })
}

fn open_as(change: impl FnOnce(&mut CoreConfig)) -> (Bench, Arc<ClientCore<Bench>>, Arc<Server<Bench>>) {
    let bench = Bench::new();
    let (core, server) = core_of(bench.clone(), change);
    (bench, core, server)
}

/// A client core with one server. The server's pool is ready without a check.
fn core_of<R>(runtime: R, change: impl FnOnce(&mut CoreConfig)) -> (Arc<ClientCore<R>>, R::ServerHandle)
where
    R: Runtime<Events = Subscribers>,
{
    let core =
        core_for(runtime, TopologyOptions { seeds: &["a"], direct_connection: true, ..Default::default() }, change);
    let server = done(core.next_server()).expect("the seed");
    server.command(core.now(), PoolCommand::Ready);
    server.settle();
    (Arc::new(core), server)
}

/// A client core without running tasks.
fn core_for<R>(runtime: R, topology: TopologyOptions<'_>, change: impl FnOnce(&mut CoreConfig)) -> ClientCore<R>
where
    R: Runtime<Events = Subscribers>,
{
    let metadata = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
    let mut config = CoreConfig {
        pool: PoolOptions::DEFAULT.validate().unwrap(),
        monitor: MonitorOptions::DEFAULT.validate().unwrap(),
        connect_timeout: None,
        command_timeout: None,
        server_selection_timeout: Duration::from_secs(30),
        compressors: Compressors::NONE,
        zlib_compression_level: None,
        drain_timeout: DRAIN_TIMEOUT,
        metadata: ClientMetadata::new(&metadata).unwrap(),
        server_api: None,
        login: None,
        client: 0,
    };
    change(&mut config);
    ClientCore::new(runtime, config, topology.validate().unwrap(), Subscribers::default()).unwrap()
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A worker without a task guard: it can be dropped without effect on the client.
fn worker<'a>(core: &'a ClientCore<Bench>, server: &'a Arc<Server<Bench>>) -> Boxed<'a, ()> {
    Box::pin(core.keep_establishing(server))
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the output of a future that completes at its first poll.
fn done<F: Future>(future: F) -> F::Output {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn counts(server: &Server<Bench>) -> PoolCounts {
    server.pool_snapshot().counts
}
