//! Subscriptions: events in order, to whoever listens, in bounded memory.
//!
//! Each subscription has a queue of its own, bounded in events and in their bytes. One that is not read fills up and then loses the newest events, which
//! [`Notice::Lost`] says in their place; nobody else is held up.

#[cfg(test)]
mod tests;

use super::backlog::{Backlog, Next};
use super::event::{Event, EventRef, Publish};
use super::fork::Birth;
use super::runtime::register;
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use poolhouse_core::Instant;
use poolhouse_core::observe::contain;
use poolhouse_core::topology::OwnedTopologyDescription;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many events a subscription keeps for a reader that is behind, unless it asks for another number.
pub const SUBSCRIPTION_EVENTS: usize = 1024;

/// The limit on the heap memory of the events that a subscription keeps for a reader that is behind: 4 MiB, some two thousand changes of a set of three. Only
/// events of the topology have such memory: descriptions and addresses.
pub const SUBSCRIPTION_BYTES: usize = 4 << 20;

/// All subscriptions of a client. Clones are of the same.
#[derive(Clone, Debug, Default)]
pub struct Subscribers {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    birth: Birth,
    active: AtomicBool,
    /// Something was published since readers were last woken.
    unread: AtomicBool,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    queues: Vec<Weak<Mutex<Queue>>>,
    /// The topology's last description that was copied: consecutive events share it.
    last: Option<OwnedTopologyDescription>,
    /// Nothing will ever be published again.
    closed: bool,
}

struct Queue {
    notices: Backlog<(Instant, Event)>,
    limit: usize,
    filter: Box<dyn Fn(&EventRef<'_>) -> bool + Send>,
    closed: bool,
    waker: Option<Waker>,
}

/// What a subscription yields.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Something happened.
    Event {
        /// When, on the runtime's clock.
        at: Instant,
        /// What.
        event: Event,
    },
    /// The subscription was not read for so long that events after this point are missing.
    Lost {
        /// How many.
        count: u64,
    },
}

/// A stream of events, from the moment of subscribing until the client is closed or dropped, or the filter panics. In the child of a fork it has ended.
#[derive(Debug)]
pub struct Subscription {
    birth: Birth,
    queue: Arc<Mutex<Queue>>,
    /// Keeps the list that this subscription leaves when it is dropped.
    shared: Weak<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscribers {
    /// Begins to listen to what passes a filter. After [`Subscribers::close`] that is nothing, nor is it in the child of a fork.
    ///
    /// - `limit`: how many events are kept for a reader that is behind; at least 1. Fewer are kept if their memory would exceed [`SUBSCRIPTION_BYTES`].
    /// - `filter`: called under the lock of what is being changed, so it only looks. If it panics, the subscription ends before that event.
    #[must_use]
    pub fn subscribe(
        &self,
        limit: usize,
        filter: impl Fn(&EventRef<'_>) -> bool + Send + Sync + 'static,
    ) -> Subscription {
        let (limit, filter) = (limit.max(1), Box::new(filter));
        let birth = self.shared.birth.clone();
        let queue = Queue { notices: Backlog::default(), limit, filter, closed: birth.is_inherited(), waker: None };
        let queue = Arc::new(Mutex::new(queue));
        if !birth.is_inherited() {
            let mut list = lock(&self.shared.list);
            if list.closed {
                lock(&queue).closed = true;
            } else {
                list.queues.push(Arc::downgrade(&queue));
                self.shared.active.store(true, Ordering::Release);
            }
        }
        Subscription { birth, queue, shared: Arc::downgrade(&self.shared) }
    }

    /// Ends every subscription once it is read to its end.
    pub fn close(&self) {
        if self.shared.birth.is_inherited() {
            return;
        }
        let queues = {
            let mut list = lock(&self.shared.list);
            list.closed = true;
            self.shared.active.store(false, Ordering::Release);
            core::mem::take(&mut list.queues)
        };
        end(&queues);
    }
}

/// Ends the subscriptions of these queues.
fn end(queues: &[Weak<Mutex<Queue>>]) {
    for queue in queues.iter().filter_map(Weak::upgrade) {
        let waker = {
            let mut queue = lock(&queue);
            queue.closed = true;
            queue.waker.take()
        };
        if let Some(waker) = waker {
            // The others hear of it whatever this one does.
            let _ = contain(|| waker.wake());
        }
    }
}

impl Publish for Subscribers {
    #[inline]
    fn is_active(&self) -> bool {
        self.shared.active.load(Ordering::Acquire)
    }

    fn publish(&self, now: Instant, event: EventRef<'_>) {
        if self.shared.birth.is_inherited() {
            return;
        }
        let mut list = lock(&self.shared.list);
        let List { queues, last, .. } = &mut *list;
        // All subscriptions share one copy.
        let mut copy = None;
        for queue in queues.iter().filter_map(Weak::upgrade) {
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
    /// The waker of a reader that waits although there is something to read.
    fn next_reader(&self) -> Option<Waker> {
        let list = lock(&self.list);
        let waker = list.queues.iter().filter_map(Weak::upgrade).find_map(|queue| {
            let mut queue = lock(&queue);
            if queue.notices.is_empty() && !queue.closed { None } else { queue.waker.take() }
        });
        if waker.is_none() {
            // Under the lock, which publishing takes: nothing that is published now is missed.
            self.unread.store(false, Ordering::Release);
        }
        waker
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.birth.is_inherited() {
            return;
        }
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        end(&list.queues);
    }
}

impl Subscription {
    /// The next notice; `None` after the last one, when the client is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Notice> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next notice, if there is one now.
    pub fn try_next(&mut self) -> Option<Notice> {
        if self.birth.is_inherited() { None } else { lock(&self.queue).pop() }
    }

    /// [`Subscription::next`] for hand-written futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        if self.birth.is_inherited() {
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
            Next::Lagged(count) => Notice::Lost { count },
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.birth.is_inherited() {
            // A lock may be held by a thread that is not there, and a waker take one.
            core::mem::forget(Arc::clone(&self.queue));
            return;
        }
        let Some(shared) = self.shared.upgrade() else { return };
        let mut list = lock(&shared.list);
        list.queues.retain(|queue| !core::ptr::eq(queue.as_ptr(), Arc::as_ptr(&self.queue)));
        if list.queues.is_empty() {
            list.last = None;
            shared.active.store(false, Ordering::Release);
        }
    }
}
