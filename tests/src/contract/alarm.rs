//! A waker for futures that are polled by hand.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use event_listener::{Event, Listener};

/// The waker of a future that is polled by hand; records when it was woken.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    woken: AtomicBool,
    event: Event,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.event.notify(usize::MAX);
    }
}

impl Alarm {
    /// Polls a future once with this waker.
    pub(super) fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        future.poll(&mut Context::from_waker(&waker))
    }

    /// Returns when this waker was woken since the last call.
    pub(super) async fn rung(&self) {
        while !self.woken.swap(false, Ordering::SeqCst) {
            let listener = self.event.listen();
            if !self.woken.load(Ordering::SeqCst) {
                listener.await;
            }
        }
    }

    /// The blocking variant of [`Alarm::rung`].
    pub(super) fn wait(&self) {
        while !self.woken.swap(false, Ordering::SeqCst) {
            let listener = self.event.listen();
            if !self.woken.load(Ordering::SeqCst) {
                listener.wait();
            }
        }
    }

    /// The number of existing wakers.
    pub(super) fn wakers(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }
}
