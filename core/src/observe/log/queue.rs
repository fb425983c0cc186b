//! Log messages of the async shell: noted down under the lock of what is being changed, emitted outside of it.

#[cfg(test)]
mod tests;

use super::{LogOptions, Logs, Reply, Said, TOPOLOGY, Truncated};
use crate::Instant;
use crate::observe::{EventContext, contain};
use crate::shell::{Backlog, Event, EventRef, Next, Publish};
use crate::topology::{OwnedTopologyDescription, TopologyId};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::level_filters::LevelFilter;

/// How many events may wait for a subscriber that is behind.
pub const LOG_QUEUE_EVENTS: usize = 8192;

/// How many bytes of descriptions, addresses and replies the events have together that may wait for a subscriber that is behind: 8 MiB.
pub const LOG_QUEUE_BYTES: usize = 8 << 20;

/// [`Logs`] for the async shell: a subscriber may be slow, and may even use the client, without holding up a pool.
///
/// Events are emitted in the order of their changes, and never by two threads at once (LOG-01), by whichever task comes first after the
/// change. A subscriber that panics is passed over, and the message with it. Of more than [`LOG_QUEUE_EVENTS`] or [`LOG_QUEUE_BYTES`] that wait the newest are lost, and a warning says how many.
///
/// Clones are of the same queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    logs: Logs,
    shared: Arc<Shared>,
    /// Of the server whose events these are, so that each need not copy it.
    address: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is something in the queue.
    waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    entries: Backlog<Entry>,
    /// The topology's last description that was copied: consecutive events share it.
    last: Option<OwnedTopologyDescription>,
    /// Somebody empties it.
    emptied: bool,
}

#[derive(Debug)]
struct Entry {
    event: Event,
    topology: Option<TopologyId>,
    address: Option<Arc<str>>,
    reply: Option<String>,
}

impl LogQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(options: LogOptions) -> Self {
        Self { logs: Logs::new(options), shared: Arc::default(), address: None }
    }

    /// What emits on the spot, for what is told where no lock is held.
    #[cfg(feature = "client")]
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
        let reply = context.reply.map(|reply| Truncated::new(reply.relaxed_json(), length).to_string());
        let event = event.to_owned_after(last);
        // An address that is shared with others counts, too: it is short.
        let texts = address.as_ref().map_or(0, |address| address.len()) + reply.as_ref().map_or(0, String::capacity);
        let bytes = event.heap_bytes() + texts;
        (Entry { event, topology: context.topology, address, reply }, bytes)
    }

    fn emit(&self, entry: &Entry) {
        let reply = entry.reply.as_deref().map(Reply::Text);
        let said = Said { topology: entry.topology, address: entry.address.as_deref(), reply };
        match &entry.event {
            Event::Pool(event) => self.logs.pool(event, &said),
            Event::Heartbeat(event) => self.logs.heartbeat(event, &said),
            Event::Sdam(event) => self.logs.sdam(&event.get()),
            Event::Mux(_) => {}
        }
    }
}

impl Publish for LogQueue {
    #[inline]
    fn is_active(&self) -> bool {
        // Where nobody listens to warnings, nobody is asked.
        LevelFilter::current() >= LevelFilter::WARN
            && contain(|| self.logs.logs_connections() || self.logs.logs_topology() || self.logs.warns_of_topology())
                .unwrap_or(false)
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        self.publish_in(now, event, &EventContext::NONE);
    }

    fn publish_in(&self, _now: Instant, event: EventRef<'_>, context: &EventContext<'_>) {
        let is_wanted = contain(|| match &event {
            EventRef::Pool(_) => self.logs.logs_connections(),
            EventRef::Heartbeat(_) => self.logs.logs_topology(),
            EventRef::Sdam(event) => self.logs.logs_sdam(event),
            // No specification has messages for them.
            EventRef::Mux(_) => false,
        });
        if is_wanted != Some(true) {
            return;
        }
        let mut queue = self.shared.lock();
        let Queue { entries, last, .. } = &mut *queue;
        entries.push(LOG_QUEUE_EVENTS, LOG_QUEUE_BYTES, || self.entry(&event, context, last));
        drop(queue);
        self.shared.waiting.store(true, Ordering::Release);
    }

    fn of_server(&self, address: &str) -> Self {
        Self { address: Some(Arc::from(address)), ..self.clone() }
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

    /// Empties the queue, unless somebody does; that one then sees what was added meanwhile.
    fn empty(&self, mut emit: impl FnMut(Next<Entry>)) {
        {
            let mut queue = self.lock();
            if queue.emptied {
                return;
            }
            queue.emptied = true;
        }
        while let Some(next) = self.next() {
            // Neither the change that this follows nor the messages behind it are lost for a subscriber that panics.
            let _ = contain(|| emit(next));
        }
    }

    /// What is next. Under the same lock as finding nothing, the emptying ends.
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
