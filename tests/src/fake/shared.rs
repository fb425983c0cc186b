//! What the server's thread and its owner share, and what can be observed of it.

use alloc::collections::{BTreeMap, VecDeque};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bson::{Document, oid::ObjectId};
use event_listener::Event;

use super::FakeOptions;
use super::auth::Auth;
use super::compress::Algorithm;
use super::errors::{CommandError, is_not_primary, is_retryable_write, is_shutdown};
use super::fail_point::FailPoints;
use super::fault::{Cut, FaultKind, Faults};
use super::state::{ErrorVersions, ServerState, TopologyVersion};
use super::store::{Documents, Store};

/// Command names that are counted apart; further ones share one counter.
const NAMES_MAX: usize = 256;
/// Closed connections that are remembered.
const CLOSED_MAX: usize = 1024;
/// Longest command name that is kept.
const NAME_BYTES_MAX: usize = 128;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The client closed it.
    ByClient,
    /// The client's socket failed, with the error's text.
    Io(String),
    /// A fail point closed it.
    FailPoint,
    /// A fault closed it.
    Fault(FaultKind),
    /// The client sent what no client may send.
    BadInput(super::BadInput),
    /// There were too many connections.
    TooMany,
    /// The server was killed or stopped.
    Stopped,
}

/// What is known of one connection.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Counts from 1 over the server's whole life; also the greeting's `connectionId`.
    pub id: u64,
    /// The client's address; `None` on a unix socket.
    pub peer: Option<core::net::SocketAddr>,
    /// `client` of the handshake.
    pub client: Option<Document>,
    /// What its first hello and the server agreed to compress with.
    pub compressors: Vec<Algorithm>,
    /// `client.application.name` of the handshake.
    pub app_name: Option<String>,
    /// Greetings received, each turn of an exhaust stream included.
    pub hellos_count: u64,
    /// Commands received.
    pub commands_count: u64,
    /// Replies sent, each one of an exhaust stream included.
    pub replies_count: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// `None` while it is open.
    pub ended: Option<Ended>,
}

/// Messages that one algorithm compressed, each with its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompressionCounts {
    /// Requests that came compressed.
    pub received_count: u64,
    /// Their bytes once inflated.
    pub received_bytes: u64,
    /// Their bytes as they came.
    pub received_packed_bytes: u64,
    /// Replies that were sent compressed.
    pub replied_count: u64,
    /// Their bytes before.
    pub replied_bytes: u64,
    /// Their bytes as they went.
    pub replied_packed_bytes: u64,
}

/// One received command.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Received {
    /// Counts from 1 over the server's whole life.
    pub serial: u64,
    /// When it was received.
    pub at: Instant,
    /// The connection.
    pub connection: u64,
    /// The message's requestID.
    pub request_id: i32,
    /// The flags of the OP_MSG; `None` = OP_QUERY.
    pub flags: Option<u32>,
    /// What it was compressed with.
    pub algorithm: Option<Algorithm>,
    /// The command's name.
    pub name: String,
    /// The command; `None` when it was larger than 16 KiB.
    pub body: Option<Document>,
}

/// One record of the log; records and their buffers are used again in turn.
#[derive(Debug)]
struct Record {
    serial: u64,
    at: Instant,
    connection: u64,
    request_id: i32,
    flags: Option<u32>,
    algorithm: Option<Algorithm>,
    name: String,
    body: Vec<u8>,
}

/// A request as the log takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) request_id: i32,
    pub(crate) flags: Option<u32>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) name: &'a str,
    /// The encoded body; empty = not to be kept.
    pub(crate) body: &'a [u8],
}

#[derive(Debug)]
struct Log {
    records: VecDeque<Record>,
    records_max: usize,
}

impl Log {
    const BODY_BYTES_MAX: usize = 16 * 1024;

    fn push(&mut self, serial: u64, connection: u64, entry: Entry<'_>) {
        if self.records_max == 0 {
            return;
        }
        let mut record = if self.records.len() < self.records_max { None } else { self.records.pop_front() }
            .unwrap_or_else(|| Record {
                serial,
                at: Instant::now(),
                connection,
                request_id: 0,
                flags: None,
                algorithm: None,
                name: String::new(),
                body: Vec::new(),
            });
        record.serial = serial;
        record.at = Instant::now();
        record.connection = connection;
        record.request_id = entry.request_id;
        record.flags = entry.flags;
        record.algorithm = entry.algorithm;
        record.name.clear();
        record.name.push_str(entry.name);
        record.body.clear();
        if entry.body.len() <= Self::BODY_BYTES_MAX {
            record.body.extend_from_slice(entry.body);
        }
        self.records.push_back(record);
    }
}

/// An order to one connection.
#[derive(Debug)]
pub(crate) enum Order {
    Send(Vec<u8>),
    Cut(Cut),
    /// End in order once no reply is under way.
    Close,
}

/// What the sockets are wanted to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Listening,
    Refusing,
    Killed,
    Stopped,
}

/// What the thread reports of its sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// Something else is wanted of them since.
    Turning,
    Listening,
    Refusing,
    Killed,
    Stopped,
    Failed(std::io::ErrorKind, String),
}

/// The next number of the sequence that the seed began.
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Everything under the lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: ServerState,
    pub(crate) version: TopologyVersion,
    pub(crate) wanted: Wanted,
    pub(crate) sockets: Sockets,
    pub(crate) frozen: bool,
    pub(crate) fail_points: FailPoints,
    pub(crate) faults: Faults,
    pub(crate) auth: Auth,
    pub(crate) store: Store,
    pub(crate) orders: BTreeMap<u64, Vec<Order>>,
    pub(crate) started: Instant,
    accepted: u64,
    open: BTreeMap<u64, ConnectionInfo>,
    closed: VecDeque<ConnectionInfo>,
    commands_count: u64,
    replies_count: u64,
    compression: BTreeMap<Algorithm, CompressionCounts>,
    by_name: BTreeMap<String, u64>,
    awaiting: usize,
    exhausting: usize,
    log: Log,
    random: u64,
    watchers: usize,
}

impl Inner {
    pub(crate) fn accept(&mut self, peer: Option<core::net::SocketAddr>) -> u64 {
        self.accepted += 1;
        let info = ConnectionInfo {
            id: self.accepted,
            peer,
            client: None,
            compressors: Vec::new(),
            app_name: None,
            hellos_count: 0,
            commands_count: 0,
            replies_count: 0,
            sent_bytes: 0,
            ended: None,
        };
        self.open.insert(self.accepted, info);
        self.accepted
    }

    pub(crate) fn end(&mut self, id: u64, reason: Ended) {
        self.orders.remove(&id);
        self.auth.end(id);
        let Some(mut info) = self.open.remove(&id) else { return };
        info.ended = Some(reason);
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(info);
    }

    pub(crate) fn open_mut(&mut self, id: u64) -> Option<&mut ConnectionInfo> {
        self.open.get_mut(&id)
    }

    pub(crate) fn record(&mut self, connection: u64, entry: Entry<'_>) {
        self.commands_count += 1;
        let mut name = entry.name;
        if name.len() > NAME_BYTES_MAX {
            name = "(too long)";
        }
        let entry = Entry { name, ..entry };
        if let Some(count) = self.by_name.get_mut(name) {
            *count += 1;
        } else {
            let name = if self.by_name.len() < NAMES_MAX { name } else { "(other)" };
            *self.by_name.entry(name.to_owned()).or_default() += 1;
        }
        if let Some(info) = self.open.get_mut(&connection) {
            info.commands_count += 1;
        }
        let serial = self.commands_count;
        self.log.push(serial, connection, entry);
    }

    /// Notes that a reply was sent, and how many bytes the connection has sent by now.
    pub(crate) fn replied(&mut self, connection: u64, sent_bytes: u64) {
        self.replies_count += 1;
        if let Some(info) = self.open.get_mut(&connection) {
            info.replies_count += 1;
            info.sent_bytes = sent_bytes;
        }
    }

    /// Notes that a message was compressed: received, or sent.
    pub(crate) fn note_compressed(&mut self, algorithm: Algorithm, replied: bool, bytes: usize, packed_bytes: usize) {
        let counts = self.compression.entry(algorithm).or_default();
        let (messages, all, packed) = match replied {
            true => (&mut counts.replied_count, &mut counts.replied_bytes, &mut counts.replied_packed_bytes),
            false => (&mut counts.received_count, &mut counts.received_bytes, &mut counts.received_packed_bytes),
        };
        *messages += 1;
        *all += u64::try_from(bytes).unwrap_or(0);
        *packed += u64::try_from(packed_bytes).unwrap_or(0);
    }

    pub(crate) fn await_started(&mut self, exhaust: bool) {
        self.awaiting += 1;
        self.exhausting += usize::from(exhaust);
    }

    pub(crate) fn await_ended(&mut self, exhaust: bool) {
        self.awaiting -= 1;
        self.exhausting -= usize::from(exhaust);
    }

    /// The topologyVersion that an error of this code carries.
    pub(crate) fn error_version(&self, code: i32) -> Option<TopologyVersion> {
        let carries = match self.state.error_versions {
            ErrorVersions::AsSeen => self.state.role.is_replicated() && is_not_primary(code),
            ErrorVersions::Always => is_not_primary(code) || is_shutdown(code),
            ErrorVersions::Never => false,
        };
        (carries && self.state.topology_version).then_some(self.version)
    }

    /// Orders every connection to end.
    pub(crate) fn close_all(&mut self) {
        for &connection in self.open.keys() {
            self.orders.entry(connection).or_default().push(Order::Close);
            self.faults.count(FaultKind::CutNow);
        }
    }

    /// The reply of an error to a command, as the server is now. Members of release 4.4 and later say themselves which
    /// writes with a transaction number can be retried.
    pub(crate) fn refusal(&self, mut error: CommandError, command: &Document) -> Document {
        let labels = self.state.role.is_replicated() && self.state.topology_version;
        let write = command.contains_key("txnNumber") && !command.contains_key("autocommit");
        if labels && write && is_retryable_write(error.code) && error.labels.is_none() {
            error.labels = Some(vec!["RetryableWriteError".to_owned()]);
        }
        error.document(self.error_version(error.code))
    }

    pub(crate) fn entropy(&mut self) -> u64 {
        splitmix64(&mut self.random)
    }

    /// A killed process loses what it had in memory only.
    pub(crate) fn forget_process(&mut self) {
        self.fail_points.clear();
        self.store.forget_cursors();
        self.orders.clear();
        self.frozen = false;
    }

    /// A process that starts anew has another identity.
    pub(crate) fn new_process(&mut self) {
        self.version = TopologyVersion { process_id: ObjectId::new(), counter: 0 };
        self.started = Instant::now();
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { inner: self }
    }
}

/// The server as it is at one instant; given to the predicates of
/// [`FakeServer::wait_until`](super::FakeServer::wait_until).
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    inner: &'a Inner,
}

impl<'a> View<'a> {
    /// Connections accepted over the server's whole life.
    pub fn accepted_count(self) -> u64 {
        self.inner.accepted
    }

    /// Connections open now.
    pub fn open_count(self) -> usize {
        self.inner.open.len()
    }

    /// The open connections, oldest first.
    pub fn open(self) -> impl Iterator<Item = &'a ConnectionInfo> {
        self.inner.open.values()
    }

    /// The last 1,024 connections that ended, in the order of their ends.
    pub fn closed(self) -> impl Iterator<Item = &'a ConnectionInfo> {
        self.inner.closed.iter()
    }

    /// The connection with this id, open or among the last that ended.
    pub fn connection(self, id: u64) -> Option<&'a ConnectionInfo> {
        self.inner.open.get(&id).or_else(|| self.inner.closed.iter().find(|info| info.id == id))
    }

    /// `database.user` of everybody who has authenticated on a connection that is open.
    pub fn users_on(self, id: u64) -> &'a [String] {
        self.inner.auth.users_on(id)
    }

    /// Commands received over the server's whole life; each turn of an exhaust stream is one.
    pub fn commands_count(self) -> u64 {
        self.inner.commands_count
    }

    /// Commands of this name received. Names beyond the first 256 are counted together as `(other)`.
    pub fn count_of(self, name: &str) -> u64 {
        self.inner.by_name.get(name).copied().unwrap_or(0)
    }

    /// Replies sent whole (as far as a fault let them).
    pub fn replies_count(self) -> u64 {
        self.inner.replies_count
    }

    /// What this algorithm has done over the server's whole life.
    pub fn compression(self, algorithm: Algorithm) -> CompressionCounts {
        self.inner.compression.get(&algorithm).copied().unwrap_or_default()
    }

    /// Hellos that wait for a change of state now.
    pub fn awaiting_count(self) -> usize {
        self.inner.awaiting
    }

    /// Those of them that are part of an exhaust stream.
    pub fn exhausting_count(self) -> usize {
        self.inner.exhausting
    }

    /// How often a fault of this kind has struck.
    pub fn fault_count(self, kind: FaultKind) -> u64 {
        self.inner.faults.counts().into_iter().find(|(each, _)| *each == kind).map_or(0, |(_, count)| count)
    }

    /// How often the fail point of this name has fired since the process started.
    pub fn fail_point_count(self, name: &str) -> u64 {
        self.inner.fail_points.fired(name)
    }

    /// The logged commands, oldest first. Bodies are decoded on the way: not for hot loops.
    pub fn log(self) -> impl Iterator<Item = Received> + 'a {
        self.inner.log.records.iter().map(|record| Received {
            serial: record.serial,
            at: record.at,
            connection: record.connection,
            request_id: record.request_id,
            flags: record.flags,
            algorithm: record.algorithm,
            name: record.name.clone(),
            body: Document::from_reader(record.body.as_slice()).ok(),
        })
    }
}

/// A condition that did not come true in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut {
    /// How long it was waited for.
    pub after: Duration,
}

impl core::fmt::Display for TimedOut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "not within {:?}", self.after)
    }
}

impl core::error::Error for TimedOut {}

/// The lock, and how both sides are woken.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// For threads in [`Shared::wait_until`].
    changed: Condvar,
    /// For the tasks of the server's thread.
    control: Event,
    /// Rules in force; lets a reply skip the lock when there are none.
    rules: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(options: &FakeOptions, documents: Documents) -> Self {
        let mut inner = Inner {
            state: options.state.clone(),
            version: TopologyVersion { process_id: ObjectId::new(), counter: 0 },
            wanted: Wanted::Listening,
            sockets: Sockets::Turning,
            frozen: false,
            fail_points: FailPoints::default(),
            faults: Faults::default(),
            auth: Auth::new(&[], options.auth_required, options.scram_lie, || 0),
            store: Store::new(documents),
            orders: BTreeMap::new(),
            started: Instant::now(),
            accepted: 0,
            open: BTreeMap::new(),
            closed: VecDeque::new(),
            commands_count: 0,
            replies_count: 0,
            compression: BTreeMap::new(),
            by_name: BTreeMap::new(),
            awaiting: 0,
            exhausting: 0,
            log: Log { records: VecDeque::new(), records_max: options.log_max },
            random: options.seed,
            watchers: 0,
        };
        inner.auth = Auth::new(&options.users, options.auth_required, options.scram_lie, || inner.entropy());
        Self { inner: Mutex::new(inner), changed: Condvar::new(), control: Event::new(), rules: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that observers may wait for.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.lock();
        let result = change(&mut inner);
        let watched = inner.watchers > 0;
        drop(inner);
        if watched {
            self.changed.notify_all();
        }
        result
    }

    /// Changes something that the server's tasks must learn of.
    pub(crate) fn order<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let result = self.with(|inner| {
            let result = change(inner);
            self.rules.store(inner.faults.rules_count(), Ordering::Release);
            result
        });
        self.control.notify(usize::MAX);
        result
    }

    /// Whether any fault rule is in force.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.load(Ordering::Acquire) > 0
    }

    pub(crate) fn listen(&self) -> event_listener::EventListener {
        self.control.listen()
    }

    /// Waits for `condition`, looking again after each change, at most `limit`.
    pub(crate) fn wait_until(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&Inner) -> bool,
    ) -> Result<(), TimedOut> {
        let start = Instant::now();
        let mut inner = self.lock();
        inner.watchers += 1;
        let outcome = loop {
            if condition(&inner) {
                break Ok(());
            }
            let waited = start.elapsed();
            if waited >= limit {
                break Err(TimedOut { after: waited });
            }
            inner = self.changed.wait_timeout(inner, limit - waited).unwrap_or_else(PoisonError::into_inner).0;
        };
        inner.watchers -= 1;
        outcome
    }
}
