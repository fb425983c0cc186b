//! Who works for a client in the background, and the end of the client: it is closed, or nobody does that work any more.
//!
//! Operations rely on work that others do: monitors find servers, workers establish connections, clocks keep the time of those who wait. Each
//! such work has its [`Attendance`]. One that is dropped before its end is never made up for, so the client is closed with it: whoever
//! waits, and whoever comes later, is told so at once instead of waiting for ever.
//!
//! Where panics can be caught ([`Runtime::contain`]) one in the work is not its end: the work is dropped, reports what it was at as failed, and
//! begins again after half a second.

use super::error::OperationError;
use super::event::Tap;
use super::hub::{Hub, State};
use super::runtime::{Locked, Runtime};
use core::fmt;
use core::future::poll_fn;
use core::marker::PhantomData;
use core::ops::Deref;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::{Instant, ServerId};

/// How long work that has panicked rests before it begins again.
const REST: Duration = Duration::from_millis(500);
/// How often it tries to rest. A clock or a timer that panics each time is of no more use.
const RESTS_MAX: usize = 8;

/// Held by what a client cannot do without. Dropped before [`Attendance::end`], it closes the client as [`Hub::close`] does, and operations fail with
/// [`OperationError::Abandoned`]; unless the client was closed before, or its server is gone.
///
/// The tasks of the shell ([`Hub::run_clock`], [`Hub::run_server_task`] and those that it stands for) hold theirs from the moment when their future is made. It is
/// for hosts: of what starts the tasks of new servers ([`Hub::next_server`]), and of tasks that are still to be made.
#[must_use = "dropping it closes the client"]
pub struct Attendance<R: Runtime, H: Deref<Target = Hub<R>>> {
    hub: H,
    server: Option<ServerId>,
    ended: bool,
    runtime: PhantomData<fn() -> R>,
}

impl<R: Runtime, H: Deref<Target = Hub<R>>> Attendance<R, H> {
    /// For work that begins.
    ///
    /// - `server`: the one that it is for; `None` if it is for the client as a whole.
    pub const fn new(hub: H, server: Option<ServerId>) -> Self {
        Self { hub, server, ended: false, runtime: PhantomData }
    }

    /// The client's hub.
    pub const fn hub(&self) -> &H {
        &self.hub
    }

    /// The work has come to its own end, and is needed no more.
    pub fn end(mut self) {
        self.ended = true;
    }
}

impl<R: Runtime, H: Deref<Target = Hub<R>>> Drop for Attendance<R, H> {
    fn drop(&mut self) {
        if !self.ended {
            // Perhaps in the middle of a panic, in which there must be no other. A clock that panics once more has panicked before anything was done.
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

    /// Why there is no server any more.
    pub(super) const fn end(&self) -> OperationError {
        if self.abandoned { OperationError::Abandoned } else { OperationError::Closed }
    }
}

impl<R: Runtime> Hub<R> {
    /// Closes the client: its monitors and pools. Operations that wait fail at once; connections in use are closed
    /// when they are returned. The tasks of the runner end. In the child of a fork nothing happens.
    ///
    /// Source: SDAM, "Client closing"; CMAP, "Closing a Connection Pool" (SDAM-10, MON-49, CMAP-36).
    pub fn close(&self) {
        if !self.is_inherited() {
            self.step_state(State::close);
        }
    }

    /// Whether [`Hub::close`] was called, or the client was abandoned: see [`Attendance`].
    pub fn is_closed(&self) -> bool {
        self.look(|state| state.closed).unwrap_or(true)
    }

    /// Work was dropped: of this server, or of the client.
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

    /// Does some work until it comes to its own end, with its [`Attendance`] from now on.
    ///
    /// - `begin`: makes a future of the work, and after a panic another one.
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
            // Dropped before the work, whose own guards then find the client closed: what waits for them hears of that alone.
            let mut attendance = attendance;
            attendance.ended = work.as_mut().await;
        }
    }
}

/// Does some work until it comes to its own end, and begins anew half a second after each panic: [`Runtime::keep_up`] for runtimes whose
/// [`Runtime::contain`] catches panics.
///
/// Whether it came to its end; not if the pause panicked as well, eight times in a row.
pub async fn restart<R: Runtime, F: Future<Output = ()>>(runtime: &R, mut begin: impl FnMut() -> F) -> bool {
    while !contained::<R, F>(&mut begin).await {
        let mut rests = 0;
        while !contained::<R, _>(|| async { runtime.sleep_until(runtime.now().saturating_add(REST)).await }).await {
            rests += 1;
            if rests == RESTS_MAX {
                return false;
            }
        }
    }
    true
}

/// Does some work; whether that ended without a panic. In either case it is dropped by then.
async fn contained<R: Runtime, F: Future<Output = ()>>(begin: impl FnOnce() -> F) -> bool {
    let mut work = pin!(None);
    let begun = R::contain(|| work.set(Some(begin())));
    let done = poll_fn(|context| {
        let polled = R::contain(|| work.as_mut().as_pin_mut().map(|work| work.poll(context)));
        match polled.flatten() {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(())) => Poll::Ready(true),
            None => Poll::Ready(false),
        }
    })
    .await;
    let dropped = R::contain(|| work.set(None));
    begun.is_some() && done && dropped.is_some()
}
