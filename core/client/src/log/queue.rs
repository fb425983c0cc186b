//! Log messages of the driver: stored under the lock of the object that changes, emitted outside of
//! it.

#[cfg(test)]
mod tests;

use super::deployment::{self, Fact};
use super::waits::Waits;
use super::{Extra, LogOptions, Logs, Reply, TOPOLOGY, Truncated};
use crate::events::System;
use crate::liveness::Liveness;
use crate::lock;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_core::mux::MuxEvent;
use poolhouse_core::observe::{EventContext, contain};
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::{OwnedTopologyDescription, TopologyId};
use poolhouse_core::{Instant, Reason};
use poolhouse_driver::{Backlog, Event, EventKinds, EventRef, Next, Publish, SelectionEvent, SelectionStage};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Limit on the number of events that are kept for a subscriber that lags behind.
pub const LOG_QUEUE_EVENTS: usize = 8192;

/// Limit in bytes on the heap memory of these events: 8 MiB of descriptions, addresses and replies.
pub const LOG_QUEUE_BYTES: usize = 8 << 20;

/// [`Logs`] for the driver: a subscriber may be slow, and may use the client, without blocking a
/// pool.
///
/// Events are emitted in the order of their changes, and never by two threads at the same time. The
/// first task that delivers events after the change emits them. If a subscriber panics, only that
/// message is lost. When [`LOG_QUEUE_EVENTS`] or [`LOG_QUEUE_BYTES`] is exceeded, the newest events
/// are dropped, and a warning reports their number.
///
/// Clones share the queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    logs: Logs,
    shared: Arc<Shared>,
    system: System,
    /// Address of the server of these events, or the name of the pool. Entries share it instead of copying
    /// it.
    address: Option<Arc<str>>,
    /// What is known of the server, or of the cluster.
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether the server has refused a credential, and no connection to it has been established
    /// since.
    is_refused: bool,
    /// Not of a server of MongoDB: its topology knows more.
    liveness: Liveness,
    /// Whether a line has reported that the tables of the cluster cannot be read, and none was read since.
    has_lost_control: bool,
    /// Whether the control connection is new: its tables were not read yet.
    is_new_control: bool,
    /// Whether the tables were read: the nodes of the first ones are no news.
    has_read: bool,
    /// Rows of the last tables that were ignored.
    ignored_rows: u32,
    /// Those of the tables that are being read.
    now_ignored: u32,
}

/// The maximum number of lines about nodes and the control connection of a session in a minute: a node chooses
/// how many there are.
const NODE_LINES_MAX: u32 = 60;

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Whether the queue has entries.
    waiting: AtomicBool,
    waits: Mutex<Waits>,
    /// Whether operations wait, by the events that were seen.
    has_waits: AtomicBool,
    /// The time of the first of the last lines about nodes, and their number.
    node_lines: Mutex<Option<(Instant, u32)>>,
}

#[derive(Debug, Default)]
struct Queue {
    entries: Backlog<Entry>,
    /// The last copy of a description of the topology: consecutive events share it.
    last: Option<OwnedTopologyDescription>,
    /// Whether a task is emptying the queue.
    emptied: bool,
}

/// The content of an entry.
#[derive(Debug)]
enum Content {
    Event(Event),
    /// A line about the deployment, to which the reason is added.
    Line(Level, String),
}

#[derive(Debug)]
struct Entry {
    content: Content,
    topology: Option<TopologyId>,
    address: Option<Arc<str>>,
    reply: Option<String>,
    reason: Reason,
    /// How many operations wait besides that of the event.
    others_waiting: usize,
}

impl LogQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(options: LogOptions) -> Self {
        Self::of(System::Mongodb, options)
    }

    pub(crate) fn of(system: System, options: LogOptions) -> Self {
        Self { logs: Logs::new(options), shared: Arc::default(), system, address: None, known: Arc::default() }
    }

    /// Whether slow requests of Cassandra are logged.
    #[inline]
    pub(crate) fn logs_slow_requests(&self) -> bool {
        self.system == System::Cassandra && self.logs.options.slow_command.is_some()
    }

    /// Returns the logger that emits at once, for messages outside of any lock.
    pub(crate) const fn logs(&self) -> &Logs {
        &self.logs
    }

    fn entry(
        &self,
        event: &EventRef<'_>,
        context: &EventContext<'_>,
        last: &mut Option<OwnedTopologyDescription>,
    ) -> (Entry, usize) {
        let address = match (&self.address, context.address) {
            (Some(known), None) => Some(Arc::clone(known)),
            (Some(known), Some(address)) if **known == *address => Some(Arc::clone(known)),
            (_, address) => address.map(Arc::from),
        };
        let length = self.logs.options.document_length_max;
        let shown = context.reply.filter(|_| self.logs.options.heartbeat_replies);
        let reply = shown.map(|reply| Truncated::new(reply.relaxed_json(), length).to_string());
        let event = event.copy_after(last);
        // The messages of a pool do not have it, and that of a generic pool may have any size.
        let reason = context.reason.filter(|_| !matches!(event, Event::Pool(_))).cloned().unwrap_or_default();
        // A shared address is counted for each entry: it is short.
        let texts = address.as_ref().map_or(0, |address| address.len()) + reply.as_ref().map_or(0, String::capacity);
        let bytes = event.heap_bytes() + texts;
        let (content, topology) = (Content::Event(event), context.topology);
        (Entry { content, topology, address, reply, reason, others_waiting: 0 }, bytes)
    }

    /// Adds an entry with its size in bytes on the heap. `make` is called under the lock of the
    /// queue, and only if there is capacity.
    fn push(&self, make: impl FnOnce(&mut Option<OwnedTopologyDescription>) -> (Entry, usize)) {
        let mut queue = self.shared.lock();
        let Queue { entries, last, .. } = &mut *queue;
        entries.push(LOG_QUEUE_EVENTS, LOG_QUEUE_BYTES, || make(last));
        drop(queue);
        self.shared.waiting.store(true, Ordering::Release);
    }

    fn push_fact(&self, fact: &Fact<'_>) {
        self.push_line(fact.level(), fact.to_string(), fact.reason());
    }

    fn push_line(&self, level: Level, line: String, reason: Option<&Reason>) {
        let bytes = line.capacity();
        let (content, reason) = (Content::Line(level, line), reason.cloned().unwrap_or_default());
        let (topology, address, reply) = (None, None, None);
        self.push(|_| (Entry { content, topology, address, reply, reason, others_waiting: 0 }, bytes));
    }

    fn push_if_logged(&self, fact: &Fact<'_>) {
        if self.logs.logs_deployment() && self.logs.logs_fact(fact) {
            self.push_fact(fact);
        }
    }

    /// Adds the line about a node of a cluster, or the control connection. Returns false if there were too many.
    fn push_of_node(&self, now: Instant, fact: &Fact<'_>) -> bool {
        let is_logged = self.logs.logs_deployment() && self.logs.logs_fact(fact);
        if is_logged && !self.shared.may_add_node_line(now) {
            return false;
        }
        if is_logged {
            self.push_fact(fact);
        }
        true
    }

    /// Adds the line about the deployment for a pool's event, if the event contains a new fact.
    fn push_facts_of_pool(&self, event: &PoolEvent, context: &EventContext<'_>) {
        let is_turn = matches!(event, PoolEvent::ConnectionReady { .. } | PoolEvent::PoolClosed { .. });
        if !Fact::may_be_in(event) && !is_turn {
            return;
        }
        let mut known = lock(&self.known);
        known.is_refused &= !matches!(event, PoolEvent::ConnectionReady { .. });
        let address = context.address.or(self.address.as_deref());
        let mut context = *context;
        context.address = address;
        if self.system == System::Generic {
            // It is cleared by the application only.
            if let Some(turn) = known.liveness.on_pool_event(event) {
                self.push_if_logged(&Fact::of_turn(turn, &context));
            }
            return;
        }
        let Some(fact) = Fact::of_pool(event, &context) else { return };
        if !self.logs.logs_deployment() {
            return;
        }
        let is_news = match fact {
            // If the whole pool was cleared, its server is down, and the topology's event reports
            // that.
            Fact::PoolCleared { service, .. } => service.is_some(),
            Fact::AuthenticationFailed { .. } => !core::mem::replace(&mut known.is_refused, true),
            Fact::PrimaryLost { .. }
            | Fact::PrimaryFound { .. }
            | Fact::ServerDown { .. }
            | Fact::Unreachable { .. }
            | Fact::WrongSet { .. }
            | Fact::Incompatible(_)
            | Fact::Cluster { .. }
            | Fact::Discovered { .. }
            | Fact::ServerReconnected { .. } => true,
        };
        if is_news {
            self.push_fact(&fact);
        }
    }

    /// Adds the line about a host of Cassandra, if the event contains a new fact.
    fn push_facts_of_host(&self, now: Instant, event: &MuxEvent, context: &EventContext<'_>) {
        let mut known = lock(&self.known);
        known.is_refused &= !matches!(event, MuxEvent::ConnectionReady { .. });
        if let Some(turn) = known.liveness.on_mux_event(event) {
            self.push_of_node(now, &Fact::of_turn(turn, context));
        }
        let refusal = Fact::of_host(event, context);
        if let Some(fact) = refusal.filter(|_| !core::mem::replace(&mut known.is_refused, true)) {
            self.push_of_node(now, &fact);
        }
    }

    /// Adds the line about a cluster of Cassandra, if the event contains a new fact.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is a fact for operators")]
    fn push_facts_of_cluster(&self, now: Instant, event: &ClusterEvent, context: &EventContext<'_>) {
        let known = &mut *lock(&self.known);
        let fact = Fact::Cluster { event, address: context.address, reason: context.reason };
        let is_news = match event {
            ClusterEvent::ControlConnected { .. } => {
                known.is_new_control = true;
                false
            }
            ClusterEvent::ControlFailed { .. } | ClusterEvent::QueryFailed { .. } | ClusterEvent::OtherCluster => {
                known.is_new_control = false;
                known.has_lost_control = known.has_lost_control || self.push_of_node(now, &fact);
                false
            }
            ClusterEvent::NodesRead { count } => {
                (known.has_read, known.has_lost_control) = (true, false);
                known.ignored_rows = core::mem::take(&mut known.now_ignored);
                let fact = Fact::Discovered { address: context.address, count: *count };
                known.is_new_control = known.is_new_control && !self.push_of_node(now, &fact);
                false
            }
            ClusterEvent::RowsIgnored { count } => {
                known.now_ignored = *count;
                known.ignored_rows != *count
            }
            ClusterEvent::NodeAdded { .. } if !known.has_read => false,
            ClusterEvent::NodeAdded { .. }
            | ClusterEvent::NodeRemoved { .. }
            | ClusterEvent::NodeUp { .. }
            | ClusterEvent::NodeDown { .. } => {
                self.push_of_node(now, &fact);
                false
            }
            // At most once for each reading of the tables.
            ClusterEvent::NoLocalNodes => true,
            _ => false,
        };
        if is_news {
            self.push_if_logged(&fact);
        }
    }

    /// Adds the message of an operation that waits for a server, unless it is one of many.
    fn push_wait(&self, now: Instant, event: &SelectionEvent<'_>, context: &EventContext<'_>) {
        let mut waits = lock(&self.shared.waits);
        match event.stage {
            SelectionStage::Waiting { again, .. } => {
                self.shared.has_waits.store(true, Ordering::Relaxed);
                let others_waiting = waits.begin(now, event.selector, again);
                if let Some(others_waiting) = others_waiting.filter(|_| self.logs.logs_selection_waits()) {
                    self.push(|last| {
                        let (entry, bytes) = self.entry(&EventRef::Selection(event), context, last);
                        (Entry { others_waiting, ..entry }, bytes)
                    });
                }
            }
            SelectionStage::Waited { duration, is_selected } => {
                let line = waits.end(duration, is_selected);
                if let Some(line) = line.filter(|_| self.logs.logs_deployment_at_info()) {
                    self.push_line(Level::INFO, line, None);
                }
            }
            SelectionStage::Started | SelectionStage::Succeeded { .. } | SelectionStage::Failed { .. } => {}
        }
    }

    #[inline]
    fn kinds_now(&self) -> EventKinds {
        // The level is checked first, because that does not call a subscriber.
        if LevelFilter::current() < LevelFilter::WARN {
            return EventKinds::NONE;
        }
        // A subscriber is asked for each event instead, because a host has many steps.
        if self.system == System::Cassandra {
            return self.logs.cassandra_kinds();
        }
        contain(|| self.logs.kinds()).unwrap_or_default()
    }

    fn emit(&self, entry: &Entry) {
        let reply = entry.reply.as_deref().map(Reply::Text);
        let address = entry.address.as_deref();
        let is_name = self.system == System::Generic;
        let extra = Extra { topology: entry.topology, address, is_name, reply, reason: Some(&entry.reason) };
        match &entry.content {
            Content::Event(Event::Pool(event)) => self.logs.pool(event, &extra),
            Content::Event(Event::Heartbeat(event)) => self.logs.heartbeat(event, &extra),
            Content::Event(Event::Sdam(event)) => self.logs.sdam(&event.get()),
            Content::Event(Event::Selection(event)) => self.logs.selection(&event.get(), entry.others_waiting),
            Content::Event(Event::Mux(event)) => self.logs.mux(event, &extra),
            Content::Event(Event::Cluster(event)) => tracing::debug!(target: TOPOLOGY, "{event}"),
            Content::Event(_) => {}
            Content::Line(level, line) => deployment::emit(*level, line, Some(&entry.reason)),
        }
    }
}

impl Publish for LogQueue {
    #[inline]
    fn kinds(&self) -> EventKinds {
        let kinds = self.kinds_now();
        if !kinds.intersects(EventKinds::SELECTION_WAITS) {
            self.shared.forget_waits();
        }
        kinds
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        // A subscriber that panics in this check does not receive the event.
        let _ = contain(|| {
            if let EventRef::Command(event) = &event {
                return self.logs.command(event);
            }
            // It is no fact for operators.
            if event.kind().intersects(EventKinds::REQUESTS) {
                return;
            }
            let is_wanted = match &event {
                EventRef::Pool(_) => self.logs.logs_connections(),
                EventRef::Heartbeat(_) => self.logs.logs_topology(),
                EventRef::Sdam(event) => self.logs.logs_sdam(event),
                EventRef::Selection(event) if event.kind().intersects(EventKinds::SELECTION_WAITS) => {
                    self.push_wait(now, event, context);
                    false
                }
                EventRef::Selection(_) => self.logs.logs_selections(),
                EventRef::Mux(_) => self.logs.logs_connections(),
                EventRef::Cluster(_) => self.logs.logs_topology(),
                EventRef::Command(_) => false,
                _ => false,
            };
            if is_wanted {
                self.push(|last| self.entry(&event, context, last));
            }
            match &event {
                EventRef::Pool(event) => self.push_facts_of_pool(event, context),
                EventRef::Sdam(event) => self.logs.report_facts(event, context, |fact| self.push_fact(fact)),
                EventRef::Mux(event) => self.push_facts_of_host(now, event, context),
                EventRef::Cluster(event) => self.push_facts_of_cluster(now, event, context),
                EventRef::Heartbeat(_) | EventRef::Selection(_) | EventRef::Command(_) => {}
                _ => {}
            }
        });
    }

    fn of_server(&self, address: &str) -> Self {
        Self { address: Some(Arc::from(address)), known: Arc::default(), ..self.clone() }
    }

    #[inline]
    fn deliver(&self) {
        if self.shared.waiting.load(Ordering::Acquire) {
            self.shared.empty(|next| match next {
                Next::Entry(entry) => self.emit(&entry),
                Next::Lagged(count) => self.logs.warn_of_lost(count),
            });
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more line about a node is written.
    fn may_add_node_line(&self, now: Instant) -> bool {
        let mut lines = lock(&self.node_lines);
        let (since, count) = lines.get_or_insert((now, 0));
        if now.saturating_since(*since) >= Duration::from_secs(60) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= NODE_LINES_MAX
    }

    /// Forgets the operations that wait: no subscriber receives the ends of their waits.
    #[inline]
    fn forget_waits(&self) {
        if self.has_waits.load(Ordering::Relaxed) {
            self.has_waits.store(false, Ordering::Relaxed);
            *lock(&self.waits) = Waits::default();
        }
    }

    /// Empties the queue, unless another task is emptying it: that task also emits entries that are
    /// added meanwhile.
    fn empty(&self, mut emit: impl FnMut(Next<Entry>)) {
        {
            let mut queue = self.lock();
            if queue.emptied {
                return;
            }
            queue.emptied = true;
        }
        while let Some(next) = self.next() {
            // If a subscriber panics, only its message is lost. The change is complete, and later
            // messages are emitted.
            let _ = contain(|| emit(next));
        }
    }

    /// Takes the next entry. If the queue is empty, clears `emptied` under the same lock, so an
    /// entry that is added afterwards is emitted by its own task.
    fn next(&self) -> Option<Next<Entry>> {
        let mut queue = self.lock();
        if let Some(next) = queue.entries.pop() {
            return Some(next);
        }
        queue.emptied = false;
        self.waiting.store(false, Ordering::Release);
        None
    }
}
