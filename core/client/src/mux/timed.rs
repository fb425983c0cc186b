//! Measuring requests: how long they take and how they end, for metrics, and for lines about slow ones.

use super::error::RequestError;
use super::{Reply, Shared};
use crate::Platform;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use poolhouse_core::Instant;
use poolhouse_cql::Opcode;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use {crate::Net, poolhouse_driver::BaseRuntime as _};

/// Measures a request, if something may use that.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[inline(always)]
pub(super) const fn timed<P: Platform, F>(shared: &Shared<P>, opcode: Opcode, request: F) -> Timed<'_, P, F> {
    Timed { request, shared, opcode, has_begun: false, since: None }
}

/// Without a user, a request is not measured.
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
#[inline(always)]
pub(super) fn timed<P: Platform, F>(_: &Shared<P>, _: Opcode, request: F) -> F {
    request
}

/// A request that is measured from its first poll to its result. If it is dropped before that, it was cancelled.
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(super) struct Timed<'a, P: Platform, F> {
    request: F,
    shared: &'a Shared<P>,
    opcode: Opcode,
    has_begun: bool,
    /// While the request is measured.
    since: Option<Instant>,
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl<P: Platform, F: Future<Output = Result<Reply, RequestError>> + Unpin> Future for Timed<'_, P, F> {
    type Output = Result<Reply, RequestError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_begun && self.shared.events.times_operations() && !self.shared.is_forked() {
            self.since = Some(self.shared.now());
            self.shared.events.operations_begin(1);
        }
        self.has_begun = true;
        let result = ready!(Pin::new(&mut self.request).poll(context));
        if let Some(since) = self.since.take() {
            self.shared.measured(self.opcode, since, &result);
        }
        Poll::Ready(result)
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl<P: Platform, F> Drop for Timed<'_, P, F> {
    fn drop(&mut self) {
        if let Some(since) = self.since.filter(|_| !self.shared.is_forked()) {
            // The drop may run during a panic, in which another panic aborts the process.
            let _ = Net::<P>::contain(|| {
                self.shared.cancelled(self.opcode, since);
            });
        }
    }
}

impl<P: Platform> Shared<P> {
    /// Records the end of a request.
    #[cold]
    pub(super) fn measured(&self, opcode: Opcode, since: Instant, result: &Result<Reply, RequestError>) {
        // In the child of a fork, a lock of the metrics may be held for ever.
        if self.is_forked() {
            return;
        }
        let (name, error) = (opcode.name(), result.as_ref().err());
        let duration = self.now().saturating_since(since);
        self.events.operation_ended(name, error.map(RequestError::type_name).as_deref(), duration);
        #[cfg(feature = "tracing")]
        if self.events.logs().is_slow(duration) {
            let answered = result.as_ref().ok().and_then(|reply| self.address_of(reply.host()));
            let failure = error.map(|error| -> &dyn core::fmt::Display { error });
            self.events.logs().slow_request(name, duration, answered.as_deref(), failure);
        }
    }

    /// Records a request whose future was dropped before its result.
    #[cold]
    pub(super) fn cancelled(&self, opcode: Opcode, since: Instant) {
        let duration = self.now().saturating_since(since);
        self.events.operation_ended(opcode.name(), Some("cancelled"), duration);
        #[cfg(feature = "tracing")]
        if self.events.logs().is_slow(duration) {
            self.events.logs().slow_request(opcode.name(), duration, None, Some(&"the future was dropped"));
        }
    }

    /// The address of a host.
    #[cfg(feature = "tracing")]
    pub(super) fn address_of(&self, id: poolhouse_core::mux::MuxId) -> Option<alloc::string::String> {
        self.hosts().by_id(id).map(|host| host.address.clone())
    }
}
