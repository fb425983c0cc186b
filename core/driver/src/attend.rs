//! The background tasks of a client, and the end of the client: it is closed, or one of these tasks
//! was dropped.
//!
//! Operations rely on background tasks: monitors find servers, workers establish connections, clock
//! tasks watch deadlines. Each such task has a task guard, [`Attendance`]. A task that is dropped
//! before its end is never replaced, so dropping its guard closes the client: present and later
//! waiters get an error at once instead of waiting for ever.
//!
//! If the runtime catches panics ([`BaseRuntime::contain`]), a panic does not end a task: its future is
//! dropped, which reports the current step as failed, and the task starts again after half a
//! second.

use super::error::OperationError;
use super::event::Tap;
use super::hub::{Hub, State};
use super::runtime::{BaseRuntime, Locked, Runtime};
use core::fmt;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::Deref;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::{Instant, ServerId};

/// The pause of a task between a panic and its new start.
const REST: Duration = Duration::from_millis(500);
/// The maximum number of attempts to pause. If the clock or timer panics each time, the task cannot
/// continue.
const RESTS_MAX: usize = 8;

/// A task guard: held by a task that the client requires. If it is dropped before
/// [`Attendance::end`], it closes the client as [`Hub::close`] does, and operations fail with
/// [`OperationError::Abandoned`]; except if the client was closed before, or the task's server was
/// removed.
///
/// The tasks of the driver ([`Hub::run_clock`], [`Hub::run_server_task`] and its parts) hold their
/// guards from the creation of their futures. Hosts use this type for the task that starts the
/// tasks of new servers ([`Hub::next_server`]), and for tasks that are not created yet.
#[must_use = "dropping it closes the client"]
pub struct Attendance<R: Runtime, H: Deref<Target = Hub<R>>> {
    hub: H,
    server: Option<ServerId>,
    ended: bool,
    runtime: PhantomData<fn() -> R>,
}

impl<R: Runtime, H: Deref<Target = Hub<R>>> Attendance<R, H> {
    /// Creates the guard of a task.
    ///
    /// - `server`: the task's server; `None` if the task is for the whole client.
    pub const fn new(hub: H, server: Option<ServerId>) -> Self {
        Self { hub, server, ended: false, runtime: PhantomData }
    }

    /// The client core.
    pub const fn hub(&self) -> &H {
        &self.hub
    }

    /// Ends the guard without closing the client: the task is complete.
    pub fn end(mut self) {
        self.ended = true;
    }
}

impl<R: Runtime, H: Deref<Target = Hub<R>>> Drop for Attendance<R, H> {
    fn drop(&mut self) {
        if !self.ended {
            // A panic may be in progress, and a second one would abort the process. If the clock
            // panics, nothing has changed yet, so the attempt is repeated.
            let _closed = (0..3).any(|_| R::contain(|| self.hub.abandon(self.server)).is_some());
        }
    }
}

impl<R: Runtime, H: Deref<Target = Hub<R>>> fmt::Debug for Attendance<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attendance").field("server", &self.server).finish_non_exhaustive()
    }
}

impl<R: Runtime> State<R> {
    fn close(&mut self, now: Instant, tap: &mut Tap<'_, R::Events>) {
        self.control.close(now, tap);
        self.closed = true;
        self.wake_selectors = Some(0);
    }

    /// The error of operations after the end of the client.
    pub(super) const fn end(&self) -> OperationError {
        if self.abandoned { OperationError::Abandoned } else { OperationError::Closed }
    }
}

impl<R: Runtime> Hub<R> {
    /// Closes the client with its monitors and pools. Waiting operations fail at once; connections
    /// in use are closed when they are returned. The background tasks end. In the child of a fork
    /// nothing happens.
    ///
    /// Source: SDAM, "Client closing"; CMAP, "Closing a Connection Pool" (SDAM-10, MON-49,
    /// CMAP-36).
    pub fn close(&self) {
        if !self.is_inherited() {
            self.step_state(State::close);
        }
    }

    /// Whether [`Hub::close`] was called, or a task guard closed the client: see [`Attendance`].
    pub fn is_closed(&self) -> bool {
        self.look(|state| state.closed).unwrap_or(true)
    }

    /// Closes the client because a task was dropped: of this server, or of the client.
    #[cold]
    fn abandon(&self, server: Option<ServerId>) {
        if self.is_inherited() {
            return;
        }
        self.step_state(|state, now, tap| {
            if !state.closed && !server.is_some_and(|id| state.control.is_ended(id)) {
                state.abandoned = true;
                state.close(now, tap);
            }
        });
    }

    /// The error of a check-out from this server.
    #[cold]
    #[inline(never)]
    pub(super) fn explain(&self, server: &R::ServerHandle, error: CheckOutError) -> OperationError {
        if error == CheckOutError::PoolClosed && self.state.with(|state| state.abandoned) {
            return OperationError::Abandoned;
        }
        server.explain(error)
    }

    /// Runs a task until it completes. Its task guard exists from this call on.
    ///
    /// - `begin`: creates the future of the task; called again after a panic.
    #[doc(hidden)]
    pub fn attend<H, F>(hub: H, server: Option<ServerId>, mut begin: impl FnMut(H) -> F) -> impl Future<Output = ()>
    where
        H: Deref<Target = Self> + Clone,
        F: Future<Output = ()>,
    {
        let attendance = Attendance::new(hub, server);
        async move {
            let hub = attendance.hub().clone();
            let mut work = pin!(hub.runtime().keep_up(|| begin(hub.clone())));
            // Dropped before `work`, so the guards in `work` find the client closed, and their
            // waiters get that error only.
            let mut attendance = attendance;
            attendance.ended = work.as_mut().await;
        }
    }
}

/// Runs a task until it completes, and starts it again half a second after each panic:
/// [`BaseRuntime::keep_up`] for runtimes that catch panics in [`BaseRuntime::contain`].
///
/// Returns whether it completed; false if the pause panicked too, eight times in a row.
pub async fn restart<E: BaseRuntime, F: Future<Output = ()>>(runtime: &E, mut begin: impl FnMut() -> F) -> bool {
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
