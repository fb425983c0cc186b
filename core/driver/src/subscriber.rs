//! Subscriptions: events in order, for observers, in bounded memory.
//!
//! Each subscription has its own queue, bounded in events and in their bytes. If the queue is full,
//! new events are dropped, and [`Notice::Lagged`] is at their position; publishing and other
//! subscriptions are not delayed.

#[cfg(test)]
mod tests;

use super::backlog::{Backlog, Next};
use super::event::{Event, EventKinds, EventRef, Publish};
use super::fork::ForkGuard;
use super::runtime::register;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use core::task::{Context, Poll, Waker};
use poolhouse_core::Instant;
use poolhouse_core::observe::contain;
use poolhouse_core::topology::OwnedTopologyDescription;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The default number of events that a subscription keeps for a reader that lags.
pub const SUBSCRIPTION_EVENTS: usize = 1024;

/// The limit on the heap memory of the events that a subscription keeps for a reader that lags: 4
/// MiB, some two thousand changes of a replica set of three. Events of the topology have heap memory
/// (descriptions and addresses), and those of commands (documents) and selections (descriptions).
pub const SUBSCRIPTION_BYTES: usize = 4 << 20;

/// All subscriptions of a client. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Subscribers {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    birth: ForkGuard,
    /// The kinds of events of all subscriptions.
    kinds: AtomicU16,
    /// An event was published since readers were last woken.
    unread: AtomicBool,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    queues: Vec<(EventKinds, Weak<Mutex<Queue>>)>,
    /// The topology's last description that was copied: consecutive events share it.
    last: Option<OwnedTopologyDescription>,
    /// No event will be published any more.
    closed: bool,
}

struct Queue {
    notices: Backlog<(Instant, Event)>,
    limit: usize,
    filter: Box<dyn Fn(&EventRef<'_>) -> bool + Send>,
    closed: bool,
    waker: Option<Waker>,
}

/// An item of a subscription.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An event.
    Event {
        /// The time of the event, on the runtime's clock.
        at: Instant,
        /// The event.
        event: Event,
    },
    /// The reader lagged: events after this point were dropped.
    Lagged {
        /// The number of dropped events.
        count: u64,
    },
}

/// A stream of events, from the subscription until the client is closed or dropped, or the filter
/// panics. In the child of a fork it has ended.
#[derive(Debug)]
pub struct Subscription {
    birth: ForkGuard,
    queue: Arc<Mutex<Queue>>,
    /// The list from which this subscription removes itself on drop.
    shared: Weak<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscribers {
    /// Subscribes to the events of these kinds that pass a filter. After [`Subscribers::close`], and
    /// in the child of a fork, the subscription has no events.
    ///
    /// - `kinds`: events of other kinds are not stored, and `filter` is not called for them.
    /// - `limit`: the maximum number of events that are kept for a reader that lags; at least 1.
    ///   Fewer are kept if their memory would exceed [`SUBSCRIPTION_BYTES`].
    /// - `filter`: called under the lock of the state that is being changed, so it must only
    ///   inspect the event, and must not call the client or session. If it panics, the subscription
    ///   ends before that event.
    #[must_use]
    pub fn subscribe(
        &self,
        kinds: EventKinds,
        limit: usize,
        filter: impl Fn(&EventRef<'_>) -> bool + Send + 'static,
    ) -> Subscription {
        let (limit, filter) = (limit.max(1), Box::new(filter));
        let birth = self.shared.birth.clone();
        let queue = Queue { notices: Backlog::default(), limit, filter, closed: birth.is_forked(), waker: None };
        let queue = Arc::new(Mutex::new(queue));
        if !birth.is_forked() {
            let mut list = lock(&self.shared.list);
            if list.closed {
                lock(&queue).closed = true;
            } else {
                list.queues.push((kinds, Arc::downgrade(&queue)));
                self.shared.count_kinds(&list);
            }
        }
        Subscription { birth, queue, shared: Arc::downgrade(&self.shared) }
    }

    /// Ends all subscriptions. Events that are already queued can still be read.
    pub fn close(&self) {
        if self.shared.birth.is_forked() {
            return;
        }
        let queues = {
            let mut list = lock(&self.shared.list);
            list.closed = true;
            let queues = core::mem::take(&mut list.queues);
            self.shared.count_kinds(&list);
            queues
        };
        end(&queues);
    }
}

/// Ends the subscriptions of these queues.
fn end(queues: &[(EventKinds, Weak<Mutex<Queue>>)]) {
    for queue in queues.iter().filter_map(|(_, queue)| queue.upgrade()) {
        let waker = {
            let mut queue = lock(&queue);
            queue.closed = true;
            queue.waker.take()
        };
        if let Some(waker) = waker {
            // A panic of this waker must not prevent the others from being woken.
            let _ = contain(|| waker.wake());
        }
    }
}

impl Publish for Subscribers {
    #[inline]
    fn kinds(&self) -> EventKinds {
        EventKinds::from_bits(self.shared.kinds.load(Ordering::Acquire))
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        if self.shared.birth.is_forked() {
            return;
        }
        let mut list = lock(&self.shared.list);
        let List { queues, last, .. } = &mut *list;
        // All subscriptions share one copy.
        let mut copy = None;
        let observing = queues.iter().filter(|(kinds, _)| kinds.intersects(event.kind()));
        for queue in observing.filter_map(|(_, queue)| queue.upgrade()) {
            let mut queue = lock(&queue);
            if queue.closed {
                continue;
            }
            match contain(|| (queue.filter)(&event)) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    queue.closed = true;
                    self.shared.unread.store(true, Ordering::Release);
                    continue;
                }
            }
            let limit = queue.limit;
            queue.notices.push(limit, SUBSCRIPTION_BYTES, || {
                let event = copy.get_or_insert_with(|| event.copy_after(last)).clone();
                let bytes = event.heap_bytes();
                ((now, event), bytes)
            });
            if queue.waker.is_some() {
                self.shared.unread.store(true, Ordering::Release);
            }
        }
    }

    #[inline]
    fn deliver(&self) {
        while self.shared.unread.load(Ordering::Acquire) {
            let waker = self.shared.next_reader();
            match waker {
                Some(waker) => {
                    let _ = contain(|| waker.wake());
                }
                None => break,
            }
        }
    }
}

impl Shared {
    /// Stores the kinds of events of all subscriptions. Called under the lock of the list.
    fn count_kinds(&self, list: &List) {
        let kinds = list.queues.iter().fold(EventKinds::NONE, |all, (kinds, _)| all | *kinds);
        self.kinds.store(kinds.to_bits(), Ordering::Release);
    }

    /// Takes the waker of a reader that waits although its queue has items.
    fn next_reader(&self) -> Option<Waker> {
        let list = lock(&self.list);
        let waker = list.queues.iter().filter_map(|(_, queue)| queue.upgrade()).find_map(|queue| {
            let mut queue = lock(&queue);
            if queue.notices.is_empty() && !queue.closed { None } else { queue.waker.take() }
        });
        if waker.is_none() {
            // Under the lock that publishing takes, so no event is missed.
            self.unread.store(false, Ordering::Release);
        }
        waker
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.birth.is_forked() {
            return;
        }
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        end(&list.queues);
    }
}

impl Subscription {
    /// Returns the next notice; `None` after the last one, when the client is closed or dropped.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Notice> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the next notice, if one is available.
    pub fn try_next(&mut self) -> Option<Notice> {
        if self.birth.is_forked() { None } else { lock(&self.queue).pop() }
    }

    /// [`Subscription::next`] for hand-written futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        if self.birth.is_forked() {
            return Poll::Ready(None);
        }
        let mut waker = Some(context.waker().clone());
        let mut queue = lock(&self.queue);
        if let Some(notice) = queue.pop() {
            return Poll::Ready(Some(notice));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        register(&mut queue.waker, &mut waker);
        Poll::Pending
    }
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (len, lagged) = self.notices.counts();
        f.debug_struct("Queue").field("len", &len).field("lost", &lagged).finish_non_exhaustive()
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Notice> {
        Some(match self.notices.pop()? {
            Next::Entry((at, event)) => Notice::Event { at, event },
            Next::Lagged(count) => Notice::Lagged { count },
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.birth.is_forked() {
            // A lock may be held by a thread that does not exist here, and dropping a waker may
            // take a lock.
            core::mem::forget(Arc::clone(&self.queue));
            return;
        }
        let Some(shared) = self.shared.upgrade() else { return };
        let mut list = lock(&shared.list);
        list.queues.retain(|(_, queue)| !core::ptr::eq(queue.as_ptr(), Arc::as_ptr(&self.queue)));
        if list.queues.is_empty() {
            list.last = None;
        }
        shared.count_kinds(&list);
    }
}
