//! The tasks that run in the background of a client.

use super::fork::Bound;
use super::{Platform, lock};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use event_listener::Event;
use poolhouse_driver::Subscribers;
use std::sync::Mutex;

/// All background tasks of a client. Those that have not ended are cancelled when it is dropped.
pub(super) struct Tasks<P: Platform> {
    handles: Mutex<Vec<Handle<P::Task>>>,
    running: Arc<Running>,
}

struct Handle<T> {
    /// Kept for its drop.
    _task: T,
    alive: Weak<Alive>,
}

struct Running {
    count: AtomicUsize,
    all_ended: Event,
    /// Without tasks nothing happens any more.
    subscribers: Subscribers,
}

/// A task owns it until its work is done and dropped.
struct Alive {
    running: Arc<Running>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if self.running.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.running.subscribers.close();
            self.running.all_ended.notify(usize::MAX);
        }
    }
}

impl<P: Platform> Tasks<P> {
    /// - `subscribers`: they are told the end when all tasks have ended.
    pub(super) fn new(subscribers: Subscribers) -> Self {
        let running = Running { count: AtomicUsize::new(0), all_ended: Event::new(), subscribers };
        Self { handles: Mutex::default(), running: Arc::new(running) }
    }

    /// Starts a task, and forgets those that have ended.
    pub(super) fn spawn(&self, platform: &P, work: impl Future<Output = ()> + Send + 'static) {
        self.running.count.fetch_add(1, Ordering::AcqRel);
        let alive = Arc::new(Alive { running: Arc::clone(&self.running) });
        let watched = Arc::downgrade(&alive);
        let work = Bound::new(async move {
            // Dropped after the work, however that ends.
            let _alive = alive;
            work.await;
        });
        // In the child of a fork it ends.
        let task = platform.spawn(async move {
            let _: Option<()> = work.await;
        });
        let mut handles = lock(&self.handles);
        // Only when most tasks have ended: the cost for each handle is then constant on average.
        if handles.len() / 2 > self.running.count.load(Ordering::Acquire) {
            handles.retain(|handle| handle.alive.strong_count() > 0);
        }
        handles.push(Handle { _task: task, alive: watched });
    }

    /// How many handles are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        lock(&self.handles).len()
    }

    /// Returns when all tasks have ended, and dropped what they had. Cancel-safe; any number may wait.
    pub(super) async fn all_ended(&self) {
        while self.running.count.load(Ordering::Acquire) > 0 {
            let listener = self.running.all_ended.listen();
            // Else the last one might end before anybody listens.
            if self.running.count.load(Ordering::Acquire) > 0 && Bound::new(listener).await.is_none() {
                return;
            }
        }
    }
}
