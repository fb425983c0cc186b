//! The end of a client: it is closed, or one of its tasks was dropped.

use super::client_core::{ClientCore, State};
use super::error::OperationError;
use super::event::Tap;
use super::runtime::{Locked, Runtime};
use super::task_guard::Guarded;
use poolhouse_core::pool::CheckOutError;
use poolhouse_core::{Instant, ServerId};

impl<R: Runtime> State<R> {
    fn close(&mut self, now: Instant, tap: &mut Tap<'_, R::Events>) {
        self.control.close(now, tap);
        self.closed = true;
        self.wake_selectors = Some(0);
    }

    /// Whether the tasks of the client end.
    pub(super) const fn has_ended(&self) -> bool {
        self.closed && !R::REOPENS
    }

    /// The error of operations after the end of the client.
    pub(super) const fn end(&self) -> OperationError {
        if self.abandoned { OperationError::Abandoned } else { OperationError::Closed }
    }
}

impl<R: Runtime> ClientCore<R> {
    /// Closes the client with its monitors and pools. Waiting operations fail at once; connections
    /// in use are closed when they are returned. The background tasks end, or wait for
    /// [`ClientCore::open`] ([`Runtime::REOPENS`]). In the child of a fork nothing happens.
    ///
    /// Source: SDAM, "Client closing"; CMAP, "Closing a Connection Pool".
    pub fn close(&self) {
        if !self.is_forked() {
            self.step(State::close);
        }
    }

    /// Whether [`ClientCore::close`] was called, or a task guard closed the client: see
    /// [`TaskGuard`](super::TaskGuard).
    pub fn is_closed(&self) -> bool {
        self.look(|state| state.closed).unwrap_or(true)
    }

    /// Whether the client was closed because a task was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.look(|state| state.abandoned).unwrap_or(true)
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
}

impl<R: Runtime> Guarded for ClientCore<R> {
    type Runtime = R;

    fn runtime(&self) -> &R {
        Self::runtime(self)
    }

    #[cold]
    fn abandon(&self, server: Option<ServerId>) {
        if self.is_forked() {
            return;
        }
        self.step(|state, now, tap| {
            if state.has_ended() || server.is_some_and(|id| state.control.is_ended(id)) {
                return;
            }
            state.abandoned = true;
            if !state.closed {
                state.close(now, tap);
            }
        });
    }
}
