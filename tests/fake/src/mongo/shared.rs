//! State shared by the server's thread and its owner, and the observable part of it.

use alloc::collections::{BTreeMap, VecDeque};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, Timestamp, doc, oid::ObjectId};
use event_listener::Event;

use super::FakeOptions;
use super::auth::Auth;
use super::compress::Algorithm;
use super::errors::{CommandError, is_not_primary, is_retryable_write};
use super::fail_point::FailPoints;
use super::fault::{Cut, FaultKind, Faults};
use super::state::{ServerState, TopologyVersion};
use super::store::{Documents, Store};

/// Number of command names that have separate counters; further names share one counter.
const NAMES_MAX: usize = 256;
/// Number of closed connections that are kept.
const CLOSED_MAX: usize = 1024;
/// Longest command name that is kept, bytes.
const NAME_BYTES_MAX: usize = 128;

/// The reason for the end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The client closed it.
    ByClient,
    /// The client's socket failed, with the text of the error.
    Io(String),
    /// A fail point closed it.
    FailPoint,
    /// A fault closed it.
    Fault(FaultKind),
    /// The client sent invalid bytes.
    BadInput(super::BadInput),
    /// There were too many connections.
    TooMany,
    /// The server was killed or stopped.
    Stopped,
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Numbered from 1 over the server's lifetime; also the greeting's `connectionId`.
    pub id: u64,
    /// The client's address; `None` on a unix socket.
    pub peer: Option<core::net::SocketAddr>,
    /// `client` of the handshake.
    pub client: Option<Document>,
    /// The compression algorithms that its first hello negotiated.
    pub compressors: Vec<Algorithm>,
    /// `client.application.name` of the handshake.
    pub app_name: Option<String>,
    /// Hellos received, including each round of an exhaust stream.
    pub hellos_count: u64,
    /// Commands received.
    pub commands_count: u64,
    /// Replies sent, including each one of an exhaust stream.
    pub replies_count: u64,
    /// Bytes of the replies.
    pub sent_bytes: u64,
    /// The reason for its end; `None` while it is open.
    pub ended: Option<Ended>,
}

/// Counts of the messages that were compressed by one algorithm; sizes include the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompressionCounts {
    /// Compressed requests.
    pub received_count: u64,
    /// Their uncompressed size, bytes.
    pub received_bytes: u64,
    /// Their compressed size, bytes.
    pub received_packed_bytes: u64,
    /// Compressed replies.
    pub replied_count: u64,
    /// Their uncompressed size, bytes.
    pub replied_bytes: u64,
    /// Their compressed size, bytes.
    pub replied_packed_bytes: u64,
}

/// A received command.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Received {
    /// Numbered from 1 over the server's lifetime.
    pub serial: u64,
    /// When it was received.
    pub at: Instant,
    /// The connection.
    pub connection: u64,
    /// The message's requestID.
    pub request_id: i32,
    /// The flags of the OP_MSG; `None` = OP_QUERY.
    pub flags: Option<u32>,
    /// The algorithm with which it was compressed.
    pub algorithm: Option<Algorithm>,
    /// The command's name.
    pub name: String,
    /// The command; `None` if it was larger than 16 KiB.
    pub body: Option<Document>,
}

/// A record of the log; records and their buffers are reused.
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

/// A request to be logged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) request_id: i32,
    pub(crate) flags: Option<u32>,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) name: &'a str,
    /// The encoded body; empty = not kept.
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
    Cut(Cut),
    /// Close in an orderly way after the reply in progress.
    Close,
}

/// The requested state of the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestedState {
    Listening,
    Refusing,
    Killed,
    Stopped,
}

/// The state of the sockets as reported by the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// Another state was requested and is not yet reached.
    Changing,
    Listening,
    Refusing,
    Killed,
    Stopped,
    Failed(std::io::ErrorKind, String),
}

/// Returns the next number of the sequence determined by the seed.
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The state under the lock.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: ServerState,
    pub(crate) version: TopologyVersion,
    pub(crate) wanted: RequestedState,
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

    /// Records that a reply was sent, and the number of bytes sent on the connection so far.
    pub(crate) fn replied(&mut self, connection: u64, sent_bytes: u64) {
        self.replies_count += 1;
        if let Some(info) = self.open.get_mut(&connection) {
            info.replies_count += 1;
            info.sent_bytes = sent_bytes;
        }
    }

    /// Counts a compressed message, received or sent.
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

    /// Returns the topologyVersion of an error with this code, as observed on a server of 6.0: "not
    /// primary" errors of replica set members carry it, fail points with the codes of a shutdown do
    /// not, and a standalone's errors never do.
    pub(crate) fn error_version(&self, code: i32) -> Option<TopologyVersion> {
        let carries = self.state.role.is_replicated() && is_not_primary(code);
        (carries && self.state.topology_version).then_some(self.version)
    }

    /// Orders every connection to close.
    pub(crate) fn close_all(&mut self) {
        for &connection in self.open.keys() {
            self.orders.entry(connection).or_default().push(Order::Close);
            self.faults.count(FaultKind::CutNow);
        }
    }

    /// Returns the reply for a failed command, with the current state. Members of release 4.4 and
    /// later label the errors of writes with a transaction number that can be retried.
    pub(crate) fn refusal(&self, mut error: CommandError, command: &Document) -> Document {
        let labels = self.state.role.is_replicated() && self.state.topology_version;
        let is_end = ["commitTransaction", "abortTransaction"].iter().any(|name| command.contains_key(name));
        let write = command.contains_key("txnNumber") && (is_end || !command.contains_key("autocommit"));
        if labels && write && is_retryable_write(error.code) && error.labels.is_none() {
            error.labels = Some(vec!["RetryableWriteError".to_owned()]);
        }
        // LockTimeout, WriteConflict, SnapshotUnavailable, NoSuchTransaction.
        let is_transient = matches!(error.code, 24 | 112 | 246 | 251) || !is_end && is_retryable_write(error.code);
        if command.contains_key("autocommit") && is_transient && error.labels.is_none() {
            error.labels = Some(vec!["TransientTransactionError".to_owned()]);
        }
        let mut reply = error.document(self.error_version(error.code));
        self.add_times(&mut reply);
        reply
    }

    /// Adds the times of the cluster and of the operation; returns them.
    pub(crate) fn add_times(&self, reply: &mut Document) -> Option<Timestamp> {
        let (seconds, increment) = self.state.cluster_time?;
        let time = Timestamp { time: seconds, increment };
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; 20] };
        let signature = doc! { "hash": hash, "keyId": 1_i64 };
        reply.insert("$clusterTime", doc! { "clusterTime": time, "signature": signature });
        reply.insert("operationTime", time);
        Some(time)
    }

    pub(crate) fn entropy(&mut self) -> u64 {
        splitmix64(&mut self.random)
    }

    /// Discards the state that a killed process loses.
    pub(crate) fn forget_process(&mut self) {
        self.fail_points.clear();
        self.store.forget_cursors();
        self.orders.clear();
        self.frozen = false;
    }

    /// Sets a new process id and start time, as for a new process.
    pub(crate) fn new_process(&mut self) {
        self.version = TopologyVersion { process_id: ObjectId::new(), counter: 0 };
        self.started = Instant::now();
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { inner: self }
    }
}

/// The server at one instant, as passed to the predicates of
/// [`FakeServer::wait_until`](super::FakeServer::wait_until).
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    inner: &'a Inner,
}

impl<'a> View<'a> {
    /// Returns the number of connections accepted over the server's lifetime.
    pub fn accepted_count(self) -> u64 {
        self.inner.accepted
    }

    /// Returns the number of open connections.
    pub fn open_count(self) -> usize {
        self.inner.open.len()
    }

    /// Returns the open connections, oldest first.
    pub fn open(self) -> impl Iterator<Item = &'a ConnectionInfo> {
        self.inner.open.values()
    }

    /// Returns the last 1,024 connections that ended, in the order of their ends.
    pub fn closed(self) -> impl Iterator<Item = &'a ConnectionInfo> {
        self.inner.closed.iter()
    }

    /// Returns the connection with this id, open or among the last that ended.
    pub fn connection(self, id: u64) -> Option<&'a ConnectionInfo> {
        self.inner.open.get(&id).or_else(|| self.inner.closed.iter().find(|info| info.id == id))
    }

    /// Returns `database.user` of each user authenticated on an open connection.
    pub fn users_on(self, id: u64) -> &'a [String] {
        self.inner.auth.users_on(id)
    }

    /// Returns the number of commands received over the server's lifetime; each round of an exhaust
    /// stream counts as one.
    pub fn commands_count(self) -> u64 {
        self.inner.commands_count
    }

    /// Returns the number of received commands of this name. Names beyond the first 256 are counted
    /// together as `(other)`.
    pub fn count_of(self, name: &str) -> u64 {
        self.inner.by_name.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of replies sent, including those changed by faults.
    pub fn replies_count(self) -> u64 {
        self.inner.replies_count
    }

    /// Returns the counts of this algorithm over the server's lifetime.
    pub fn compression(self, algorithm: Algorithm) -> CompressionCounts {
        self.inner.compression.get(&algorithm).copied().unwrap_or_default()
    }

    /// Returns the number of hellos that currently wait for a change of state.
    pub fn awaiting_count(self) -> usize {
        self.inner.awaiting
    }

    /// Returns the number of those that are part of an exhaust stream.
    pub fn exhausting_count(self) -> usize {
        self.inner.exhausting
    }

    /// Returns how many times a fault of this kind was injected.
    pub fn fault_count(self, kind: FaultKind) -> u64 {
        self.inner.faults.count_of(kind)
    }

    /// Returns the logged commands, oldest first. Decodes each body: not for hot loops.
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

/// A condition was not met in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut {
    /// The time limit.
    pub after: Duration,
}

impl core::fmt::Display for TimedOut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "not within {:?}", self.after)
    }
}

impl core::error::Error for TimedOut {}

/// The lock, and the signals in both directions.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Wakes threads in [`Shared::wait_until`].
    changed: Condvar,
    /// Wakes the tasks of the server's thread.
    control: Event,
    /// Number of rules in force; if it is 0, a reply does not take the lock.
    rules: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(options: &FakeOptions, documents: Documents) -> Self {
        let mut inner = Inner {
            state: options.state.clone(),
            version: TopologyVersion { process_id: ObjectId::new(), counter: 0 },
            wanted: RequestedState::Listening,
            sockets: Sockets::Changing,
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

    /// Changes state for which observers may wait.
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

    /// Changes state and wakes the server's tasks.
    pub(crate) fn order<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let result = self.with(|inner| {
            let result = change(inner);
            self.rules.store(inner.faults.rules_count(), Ordering::Release);
            result
        });
        self.control.notify(usize::MAX);
        result
    }

    /// Returns whether any fault rule is in force.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.load(Ordering::Acquire) > 0
    }

    pub(crate) fn listen(&self) -> event_listener::EventListener {
        self.control.listen()
    }

    /// Waits for `condition`, checked after each change, at most `limit`.
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
