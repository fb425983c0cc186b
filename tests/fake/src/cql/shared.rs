//! State shared by the threads of the server.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::CqlServerOptions;
use super::codec::Compression;
use super::kind::RequestKind;
use super::link::Link;
use super::rule::{Counted, InForce, Rule, Script};
use super::tables::Node;

/// The ordering of all counters: no other data depends on them.
const ORDER: Ordering = Ordering::SeqCst;

/// Largest number of prepared statements.
const PREPARED_MAX: usize = 4096;

/// Counts over the server's lifetime, except `open` and `waiting`, which are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that are open.
    pub open: u64,
    /// Requests received, of any kind.
    pub requests: u64,
    /// STARTUPs received.
    pub startups: u64,
    /// Requests without a reply so far, on open connections.
    pub waiting: u64,
    /// The maximum of `waiting`.
    pub waiting_max: u64,
    /// Calls of `read` that returned bytes. Requests that arrive together are read together.
    pub reads: u64,
    /// Calls of `write`.
    pub writes: u64,
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its connection.
    pub connection: u64,
    /// The version of the protocol.
    pub version: u8,
    /// Its kind.
    pub kind: RequestKind,
    /// Its stream id.
    pub stream: i16,
    /// The text of a QUERY, a PREPARE, or of the statement of an EXECUTE; the options of a STARTUP
    /// as `KEY=VALUE`, separated by blanks. Else empty. At most a kilobyte.
    pub text: String,
    /// The id of the result's description in an EXECUTE from v5 on. Else empty.
    pub metadata_id: Vec<u8>,
}

/// The number of waiting requests of a server or of one connection, and its maximum.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    now: AtomicU64,
    most: AtomicU64,
}

impl Waiting {
    pub(super) fn add(&self, count: u64) {
        let now = self.now.fetch_add(count, ORDER) + count;
        self.most.fetch_max(now, ORDER);
    }

    /// Subtracts `count`, at most the current number; returns the number subtracted.
    pub(super) fn remove(&self, count: u64) -> u64 {
        let before = self.now.fetch_update(ORDER, ORDER, |now| Some(now.saturating_sub(count)));
        before.unwrap_or_else(|before| before).min(count)
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(ORDER)
    }

    pub(super) fn most(&self) -> u64 {
        self.most.load(ORDER)
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node: Node,
    pub(super) versions: Vec<u8>,
    pub(super) compressions: Vec<Compression>,
    pub(super) credentials: Option<(String, String)>,
    pub(super) read_bytes: usize,
    pub(super) log_max: usize,

    pub(super) accepted: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) startups: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) waiting: Waiting,
    /// Size of the pieces in which output is written; 0 = unsplit.
    pub(super) piece_bytes: AtomicUsize,

    /// Incremented by each change of the script.
    script_number: AtomicU64,
    script: Mutex<Arc<Script>>,
    /// All rules ever added, by number.
    rules: Mutex<Vec<Arc<Counted>>>,

    log: Mutex<VecDeque<Received>>,
    /// Statements by id.
    prepared: Mutex<HashMap<[u8; 16], Arc<[u8]>>>,

    connections: Mutex<BTreeMap<u64, Arc<Link>>>,
    pub(super) paused: AtomicBool,
    /// Guards the conditions for which threads block.
    gate: Mutex<()>,
    gate_changed: Condvar,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is ignored: a thread that panicked has already failed its test.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(options: &CqlServerOptions, address: SocketAddr) -> Self {
        let newest = options.versions.iter().copied().max().unwrap_or_default();
        Self {
            node: Node { address, version: newest, keyspaces: options.keyspaces.clone() },
            versions: options.versions.clone(),
            compressions: options.compressions.clone(),
            credentials: options.credentials.clone(),
            read_bytes: options.read_bytes.max(1),
            log_max: options.log_max,
            accepted: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            startups: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            waiting: Waiting::default(),
            piece_bytes: AtomicUsize::new(0),
            script_number: AtomicU64::new(0),
            script: Mutex::default(),
            rules: Mutex::default(),
            log: Mutex::default(),
            prepared: Mutex::default(),
            connections: Mutex::default(),
            paused: AtomicBool::new(false),
            gate: Mutex::new(()),
            gate_changed: Condvar::new(),
        }
    }

    // Script.

    pub(super) fn script_number(&self) -> u64 {
        self.script_number.load(Ordering::Acquire)
    }

    pub(super) fn script(&self) -> Arc<Script> {
        Arc::clone(&lock(&self.script))
    }

    pub(super) fn add_rule(&self, rule: Rule) -> usize {
        let rule = Arc::new(Counted::new(rule));
        let number = {
            let mut all = lock(&self.rules);
            all.push(Arc::clone(&rule));
            all.len() - 1
        };
        self.change_script(|rules| rules.push(InForce { number, rule }));
        number
    }

    pub(super) fn change_script(&self, change: impl FnOnce(&mut Vec<InForce>)) {
        let mut script = lock(&self.script);
        let mut rules = script.rules.clone();
        change(&mut rules);
        *script = Arc::new(Script { rules });
        self.script_number.fetch_add(1, Ordering::Release);
    }

    pub(super) fn struck(&self, number: usize) -> u64 {
        lock(&self.rules).get(number).map_or(0, |rule| rule.struck())
    }

    // Counts and log.

    pub(super) fn log(&self) -> Vec<Received> {
        lock(&self.log).iter().cloned().collect()
    }

    pub(super) fn append_log(&self, received: &mut Vec<Received>) {
        if received.is_empty() {
            return;
        }
        let mut log = lock(&self.log);
        log.extend(received.drain(..));
        let over = log.len().saturating_sub(self.log_max);
        log.drain(..over);
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            accepted: self.accepted.load(ORDER),
            open: u64::try_from(lock(&self.connections).len()).unwrap_or(u64::MAX),
            requests: self.requests.load(ORDER),
            startups: self.startups.load(ORDER),
            waiting: self.waiting.now(),
            waiting_max: self.waiting.most(),
            reads: self.reads.load(ORDER),
            writes: self.writes.load(ORDER),
        }
    }

    // Prepared statements.

    /// Stores a statement; returns false if there are too many.
    pub(super) fn prepare(&self, id: [u8; 16], text: &[u8]) -> bool {
        let mut prepared = lock(&self.prepared);
        if prepared.len() >= PREPARED_MAX && !prepared.contains_key(&id) {
            return false;
        }
        prepared.entry(id).or_insert_with(|| text.into());
        true
    }

    pub(super) fn prepared(&self, id: &[u8]) -> Option<Arc<[u8]>> {
        lock(&self.prepared).get(id).cloned()
    }

    // Connections.

    pub(super) fn register(&self, link: &Arc<Link>) {
        lock(&self.connections).insert(link.id, Arc::clone(link));
    }

    pub(super) fn unregister(&self, id: u64) {
        lock(&self.connections).remove(&id);
        self.open_gate();
    }

    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.connections).values().cloned().collect()
    }

    /// Wakes all blocked threads, so that they check their conditions again.
    pub(super) fn open_gate(&self) {
        let _gate = lock(&self.gate);
        self.gate_changed.notify_all();
    }

    /// Blocks while a condition holds, checked after each change.
    pub(super) fn wait_while(&self, condition: impl Fn() -> bool) {
        if !condition() {
            return;
        }
        let mut gate = lock(&self.gate);
        while condition() {
            gate = self.gate_changed.wait(gate).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Blocks until the last connection has ended.
    pub(super) fn wait_for_end(&self) {
        self.wait_while(|| !lock(&self.connections).is_empty());
    }
}
