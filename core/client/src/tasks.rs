//! Background tasks of a client.

use super::fork::ProcessFuture;
use super::{Platform, lock};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use event_listener::Event;
use poolhouse_driver::Subscribers;
use std::sync::Mutex;

/// All background tasks of a client. Dropping it cancels the tasks that have not ended.
pub(super) struct Tasks<P: Platform> {
    handles: Mutex<Vec<Handle<P::Task>>>,
    running: Arc<Running>,
    /// The tasks that end cursors and transactions.
    ends: Arc<Running>,
}

struct Handle<T> {
    /// Dropping it cancels the task.
    _task: T,
    alive: Weak<Alive>,
}

/// Counts tasks that have not ended.
#[derive(Default)]
struct Running {
    count: AtomicUsize,
    all_ended: Event,
    /// Closed when the last task ends, because no events follow then. `None` if other tasks may still
    /// publish events.
    subscribers: Option<Subscribers>,
}

impl Running {
    fn begin(self: &Arc<Self>) -> Alive {
        self.count.fetch_add(1, Ordering::AcqRel);
        Alive { running: Arc::clone(self) }
    }

    /// Returns when all have ended and their futures were dropped. Cancel-safe; any number of callers
    /// may wait.
    async fn all_ended(&self) {
        while self.count.load(Ordering::Acquire) > 0 {
            let listener = self.all_ended.listen();
            // Checked after the listener is registered: the last one may have ended before that.
            if self.count.load(Ordering::Acquire) > 0 && ProcessFuture::new(listener).await.is_none() {
                return;
            }
        }
    }
}

/// A token that a task owns until its work has ended and was dropped.
struct Alive {
    running: Arc<Running>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.running.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(subscribers) = &self.running.subscribers {
                subscribers.close();
            }
            self.running.all_ended.notify(usize::MAX);
        }
    }
}

impl<P: Platform> Tasks<P> {
    /// - `subscribers`: closed when all tasks have ended.
    pub(super) fn new(subscribers: Subscribers) -> Self {
        let running = Running { subscribers: Some(subscribers), ..Running::default() };
        Self { handles: Mutex::default(), running: Arc::new(running), ends: Arc::default() }
    }

    /// Spawns a task, and discards the handles of ended tasks.
    pub(super) fn spawn(&self, platform: &P, work: impl Future<Output = ()> + Send + 'static) {
        let alive = Arc::new(self.running.begin());
        let watched = Arc::downgrade(&alive);
        let work = ProcessFuture::new(async move {
            // Dropped after the work, whether the work ends or is cancelled.
            let _alive = alive;
            work.await;
        });
        // In the child of a fork, `work` returns `None` and the task ends.
        let task = platform.spawn(async move {
            let _: Option<()> = work.await;
        });
        let mut handles = lock(&self.handles);
        // Prunes only when more than half of the tasks have ended: amortized O(1) for each handle.
        if handles.len() / 2 > self.running.count.load(Ordering::Acquire) {
            handles.retain(|handle| handle.alive.strong_count() > 0);
        }
        handles.push(Handle { _task: task, alive: watched });
    }

    /// Returns the number of stored handles.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        lock(&self.handles).len()
    }

    /// Spawns a task that ends a cursor or a transaction. It must have a time limit.
    pub(super) fn spawn_end(&self, platform: &P, work: impl Future<Output = ()> + Send + 'static) {
        let alive = self.ends.begin();
        self.spawn(platform, async move {
            // Dropped after the work.
            let _alive = alive;
            work.await;
        });
    }

    /// Returns when the tasks of [`Self::spawn_end`] have ended.
    pub(super) async fn ends_ended(&self) {
        self.ends.all_ended().await;
    }

    /// Returns when all tasks have ended.
    pub(super) async fn all_ended(&self) {
        self.running.all_ended().await;
    }
}
