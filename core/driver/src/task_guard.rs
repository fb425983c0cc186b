//! The guards of background tasks.
//!
//! Operations rely on background tasks: monitors find servers, workers establish connections, clock
//! tasks watch deadlines. Each such task has a task guard, [`TaskGuard`]. A task that is dropped
//! before its end is never replaced, so dropping its guard closes the client, pool or session:
//! present and later waiters get an error at once instead of waiting for ever.
//!
//! If the runtime catches panics ([`BaseRuntime::contain`]), a panic does not end a task: its
//! future is dropped, which reports the current step as failed, and the task starts again after
//! half a second.

use super::runtime::BaseRuntime;
use core::fmt;
use core::future::poll_fn;
use core::ops::Deref;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::ServerId;

/// The pause of a task between a panic and its new start.
const REST: Duration = Duration::from_millis(500);
/// The maximum number of attempts to pause. If the clock or timer panics each time, the task cannot
/// continue.
const RESTS_MAX: usize = 8;

/// What background tasks work for: a client core, a pool or a session.
pub trait Guarded {
    /// Contains panics, and starts tasks again after them.
    type Runtime: BaseRuntime;

    /// The runtime.
    fn runtime(&self) -> &Self::Runtime;

    /// Closes it because a task was dropped before its end. Nothing happens if it is closed for ever, and in
    /// the child of a fork. If the clock panics, nothing has changed, and the call can be repeated.
    ///
    /// - `server`: the server of the task. If it was removed, nothing happens.
    fn abandon(&self, server: Option<ServerId>);
}

/// A task guard: held by a task that its owner requires. If it is dropped before
/// [`TaskGuard::end`], it closes the owner ([`Guarded::abandon`]): a client core as
/// [`ClientCore::close`](super::ClientCore::close) does, and operations fail with
/// [`OperationError::Abandoned`](super::OperationError::Abandoned); except if the client was closed
/// before, or the task's server was removed.
///
/// The tasks of the driver ([`ClientCore::run_clock`](super::ClientCore::run_clock),
/// [`ClientCore::run_server_task`](super::ClientCore::run_server_task) and its parts) hold their
/// guards from the creation of their futures. Hosts use this type for the task that starts the
/// tasks of new servers ([`ClientCore::next_server`](super::ClientCore::next_server)), and for
/// tasks that are not created yet.
#[must_use = "dropping it closes the client"]
pub struct TaskGuard<T: Deref<Target: Guarded>> {
    owner: T,
    server: Option<ServerId>,
    ended: bool,
}

impl<T: Deref<Target: Guarded>> TaskGuard<T> {
    /// Creates the guard of a task.
    ///
    /// - `owner`: what the task works for, for example a reference to a client core.
    /// - `server`: the task's server; `None` if the task is for the whole client.
    pub const fn new(owner: T, server: Option<ServerId>) -> Self {
        Self { owner, server, ended: false }
    }

    /// What the task works for.
    pub const fn owner(&self) -> &T {
        &self.owner
    }

    /// Ends the guard without closing the owner: the task is complete.
    pub fn end(mut self) {
        self.ended = true;
    }

    /// Runs the task until it completes, by [`BaseRuntime::run_task`]. Dropping the future earlier
    /// drops the guard, before the work of the task.
    ///
    /// - `begin`: creates the future of the work; called again after a panic that the runtime
    ///   caught.
    pub fn run<F: Future<Output = ()>>(self, begin: impl FnMut(T) -> F) -> impl Future<Output = ()>
    where
        T: Clone,
    {
        <T::Target as Guarded>::Runtime::run_task(self, begin)
    }

    /// [`TaskGuard::run`] without catching panics.
    pub async fn run_once<F: Future<Output = ()>>(self, begin: impl FnOnce(T) -> F)
    where
        T: Clone,
    {
        let mut work = pin!(begin(self.owner.clone()));
        // Dropped before `work`, so the guards in `work` find the owner closed, and their waiters
        // get that error only.
        let mut guard = self;
        work.as_mut().await;
        guard.ended = true;
    }

    /// [`TaskGuard::run`] for runtimes that catch panics in [`BaseRuntime::contain`]: starts the
    /// work again half a second after each panic.
    pub async fn run_restarting<F: Future<Output = ()>>(self, mut begin: impl FnMut(T) -> F)
    where
        T: Clone,
    {
        let owner = self.owner.clone();
        let mut work = pin!(restart(owner.runtime(), || begin(owner.clone())));
        // As in `run_once`.
        let mut guard = self;
        guard.ended = work.as_mut().await;
    }
}

impl<T: Deref<Target: Guarded>> Drop for TaskGuard<T> {
    fn drop(&mut self) {
        if !self.ended {
            // A panic may be in progress, and a second one would abort the process. If the clock
            // panics, nothing has changed yet, so the attempt is repeated.
            let abandon = || self.owner.abandon(self.server);
            let _closed = (0..3).any(|_| <T::Target as Guarded>::Runtime::contain(abandon).is_some());
        }
    }
}

impl<T: Deref<Target: Guarded>> fmt::Debug for TaskGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGuard").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Runs work until it completes, and starts it again half a second after each panic.
///
/// Returns whether it completed; false if the pause panicked too, eight times in a row.
pub(super) async fn restart<E: BaseRuntime, F: Future<Output = ()>>(runtime: &E, mut begin: impl FnMut() -> F) -> bool {
    while !contained::<E, F>(&mut begin).await {
        let mut rests = 0;
        while !contained::<E, _>(|| async { runtime.sleep_until(runtime.now().saturating_add(REST)).await }).await {
            rests += 1;
            if rests == RESTS_MAX {
                return false;
            }
        }
    }
    true
}

/// Runs a future and drops it. Returns whether all of this was without a panic.
async fn contained<E: BaseRuntime, F: Future<Output = ()>>(begin: impl FnOnce() -> F) -> bool {
    let mut work = pin!(None);
    let begun = E::contain(|| work.set(Some(begin())));
    let done = poll_fn(|context| {
        let polled = E::contain(|| work.as_mut().as_pin_mut().map(|work| work.poll(context)));
        match polled.flatten() {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(())) => Poll::Ready(true),
            None => Poll::Ready(false),
        }
    })
    .await;
    let dropped = E::contain(|| work.set(None));
    begun.is_some() && done && dropped.is_some()
}
