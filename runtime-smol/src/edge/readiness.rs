//! One direction of a socket: whether it is ready, and the task that waits for it.
//!
//! `tests/tests/interleavings/edge.rs` compiles this file with the lock of a model.

use super::Mutex;
use core::task::{Context, Poll, Waker};
use poolhouse_client::poolhouse_core::observe::contain;
use poolhouse_client::poolhouse_driver::{Lock, Locked as _};

/// What the system has reported. It reports each once.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum News {
    /// An operation may succeed.
    Ready,
    /// The direction has ended or failed.
    Ended,
}

/// The news of one direction.
///
/// An operation takes the news first, and adds it again if the next operation may succeed too: news
/// that arrives during the operation is not lost.
pub(crate) struct Readiness(Mutex<State>);

#[derive(Default)]
struct State {
    news: Option<News>,
    waiting: Option<Waker>,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self(Lock::new(State::default()))
    }

    /// Takes the news. If there is none, the task is woken once there is. Only the task that has
    /// polled last is woken.
    pub(crate) fn poll_take(&self, context: &Context<'_>) -> Poll<News> {
        if let Some(news) = self.0.with(|state| state.news.take()) {
            return Poll::Ready(news);
        }
        // Cloned and dropped without the lock, because a waker may call anything.
        let waker = context.waker().clone();
        let (news, unused) = self.0.with(|state| match state.news.take() {
            None => (None, state.waiting.replace(waker)),
            news @ Some(_) => (news, Some(waker)),
        });
        drop(unused);
        news.map_or(Poll::Pending, Poll::Ready)
    }

    /// Adds news, and wakes the task that waits. Catches a panic of its waker.
    pub(crate) fn add(&self, news: News) {
        let waiting = self.0.with(|state| {
            state.news = state.news.max(Some(news));
            state.waiting.take()
        });
        if let Some(waiting) = waiting {
            let _ = contain(|| waiting.wake());
        }
    }
}
