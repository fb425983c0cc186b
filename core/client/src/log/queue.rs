//! Log messages of the driver: stored under the lock of the object that changes, emitted outside of
//! it.

#[cfg(test)]
mod tests;

use super::deployment::{self, Fact};
use super::{Extra, LogOptions, Logs, Reply, TOPOLOGY, Truncated};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use poolhouse_core::observe::{EventContext, contain};
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::{OwnedTopologyDescription, TopologyId};
use poolhouse_core::{Instant, Reason};
use poolhouse_driver::{Backlog, Event, EventKinds, EventRef, Next, Publish};
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
    /// Address of the server of these events. Entries share it instead of copying it.
    address: Option<Arc<str>>,
    /// Whether the server has refused a credential, and no connection to it has been established
    /// since.
    refused: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Whether the queue has entries.
    waiting: AtomicBool,
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
    /// A line about the deployment.
    Line(Level, String),
}

#[derive(Debug)]
struct Entry {
    content: Content,
    topology: Option<TopologyId>,
    address: Option<Arc<str>>,
    reply: Option<String>,
    reason: Reason,
}

impl LogQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(options: LogOptions) -> Self {
        Self { logs: Logs::new(options), shared: Arc::default(), address: None, refused: Arc::default() }
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
        let reason = context.reason.cloned().unwrap_or_default();
        // A shared address is counted for each entry: it is short.
        let texts = address.as_ref().map_or(0, |address| address.len()) + reply.as_ref().map_or(0, String::capacity);
        let bytes = event.heap_bytes() + texts;
        (Entry { content: Content::Event(event), topology: context.topology, address, reply, reason }, bytes)
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
        let line = fact.to_string();
        let bytes = line.capacity();
        let content = Content::Line(fact.level(), line);
        self.push(|_| (Entry { content, topology: None, address: None, reply: None, reason: Reason::NONE }, bytes));
    }

    /// Adds the line about the deployment for a pool's event, if the event contains a new fact.
    fn push_facts_of_pool(&self, event: &PoolEvent, context: &EventContext<'_>) {
        if matches!(event, PoolEvent::ConnectionReady { .. }) {
            self.refused.store(false, Ordering::Relaxed);
        }
        let address = context.address.or(self.address.as_deref());
        let mut context = *context;
        context.address = address;
        let Some(fact) = Fact::of_pool(event, &context) else { return };
        if !self.logs.logs_deployment() {
            return;
        }
        let is_news = match fact {
            // If the whole pool was cleared, its server is down, and the topology's event reports
            // that.
            Fact::PoolCleared { service, .. } => service.is_some(),
            Fact::AuthenticationFailed { .. } => !self.refused.swap(true, Ordering::Relaxed),
            Fact::PrimaryLost { .. }
            | Fact::PrimaryFound { .. }
            | Fact::ServerDown { .. }
            | Fact::ServerReconnected { .. } => true,
        };
        if is_news {
            self.push_fact(&fact);
        }
    }

    fn emit(&self, entry: &Entry) {
        let reply = entry.reply.as_deref().map(Reply::Text);
        let extra =
            Extra { topology: entry.topology, address: entry.address.as_deref(), reply, reason: Some(&entry.reason) };
        match &entry.content {
            Content::Event(Event::Pool(event)) => self.logs.pool(event, &extra),
            Content::Event(Event::Heartbeat(event)) => self.logs.heartbeat(event, &extra),
            Content::Event(Event::Sdam(event)) => self.logs.sdam(&event.get()),
            Content::Event(Event::Selection(event)) => self.logs.selection(&event.get()),
            Content::Event(_) => {}
            Content::Line(level, line) => deployment::emit(*level, line),
        }
    }
}

impl Publish for LogQueue {
    #[inline]
    fn kinds(&self) -> EventKinds {
        // The level is checked first, because that does not call a subscriber.
        if LevelFilter::current() < LevelFilter::WARN {
            return EventKinds::NONE;
        }
        contain(|| self.logs.kinds()).unwrap_or_default()
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, _now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        // A subscriber that panics in this check does not receive the event.
        let _ = contain(|| {
            if let EventRef::Command(event) = &event {
                return self.logs.command(event);
            }
            let is_wanted = match &event {
                EventRef::Pool(_) => self.logs.logs_connections(),
                EventRef::Heartbeat(_) => self.logs.logs_topology(),
                EventRef::Sdam(event) => self.logs.logs_sdam(event),
                EventRef::Selection(event) => self.logs.logs_selection(event.stage),
                // No specification defines messages for these events.
                EventRef::Mux(_) | EventRef::Cluster(_) | EventRef::Command(_) => false,
                _ => false,
            };
            if is_wanted {
                self.push(|last| self.entry(&event, context, last));
            }
            match &event {
                EventRef::Pool(event) => self.push_facts_of_pool(event, context),
                EventRef::Sdam(event) => self.logs.report_facts(event, context, |fact| self.push_fact(fact)),
                EventRef::Heartbeat(_)
                | EventRef::Selection(_)
                | EventRef::Mux(_)
                | EventRef::Cluster(_)
                | EventRef::Command(_) => {}
                _ => {}
            }
        });
    }

    fn of_server(&self, address: &str) -> Self {
        Self { address: Some(Arc::from(address)), refused: Arc::default(), ..self.clone() }
    }

    #[inline]
    fn deliver(&self) {
        if self.shared.waiting.load(Ordering::Acquire) {
            self.shared.empty(|next| match next {
                Next::Entry(entry) => self.emit(&entry),
                Next::Lagged(count) => {
                    tracing::warn!(target: TOPOLOGY, message = "Log messages were lost", "count" = count);
                }
            });
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
