//! Requests: selection of the host, and the outcome.

use super::error::{Rejection, RejectionReason, RequestError, ServerError};
use super::failure::text_of;
use super::host::{Failure, Host, Message, Outcome};
use super::plan::Plan;
use super::retry::{RetryPolicy, is_retried_once, repeats_host};
use super::routing::Routing;
use super::{Reply, Session, Shared};
use crate::{Platform, lock};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use poolhouse_core::mux::{AcquireError, MuxId};
use poolhouse_core::{Instant, Reason};
use poolhouse_cql::{Consistency, ErrorCode, Flags, Opcode, Parameters, Request, Response};

/// Options of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions<'o> {
    /// Limit on the time of the request, including all waiting. `None`: the limit of the session's
    /// options. [`Duration::MAX`]: no limit. Zero: the request fails.
    pub timeout: Option<Duration>,
    /// The flags of its envelope, such as [`Flags::TRACING`]. The body must begin with the fields
    /// that the flags imply. [`Flags::COMPRESSION`] is ignored: only the session sets it.
    pub flags: Flags,
    /// Whether executing the request twice is harmless. If so, it is sent to the next host when its
    /// connection fails, and after more errors of servers: see [`RetryPolicy`].
    pub idempotent: bool,
    /// Whether the request is sent again after an error of a server. `None`: the policy of the
    /// session's options.
    pub retry: Option<RetryPolicy>,
    /// The hosts to try, in this order; a host may be repeated, and other hosts are skipped.
    /// `None`: the local hosts in rotation, then the remote hosts.
    pub hosts: Option<&'o [MuxId]>,
    /// The location of the data: the local hosts that have replicas are tried first. Without
    /// effect if `hosts` is set, if the session does not discover its hosts, or if the keyspace is
    /// unknown.
    pub routing: Option<Routing<'o>>,
}

impl<'o> RequestOptions<'o> {
    /// Sets the location of the data.
    ///
    /// - `partition_key`: as [`Token::of`](poolhouse_cql::Token::of) takes it.
    #[must_use]
    pub fn routing(self, keyspace: &'o str, partition_key: &[u8]) -> Self {
        Self { routing: Some(Routing::new(keyspace, partition_key)), ..self }
    }
}

impl<P: Platform> Session<P> {
    /// Sends a request, and waits for the answer.
    ///
    /// The pool of the next host in the query plan grants a stream id on its least busy connection,
    /// or queues the request for at most `pool_timeout`. If the host does not take the request, the
    /// next host is asked. A host without an open connection, which is being connected or will be after a
    /// pause, is asked after the other hosts of its distance, unless the options name it; then the request
    /// waits for the connection. If no host takes the request, the error contains the reason of each. After
    /// some errors of servers, the request is sent again: see [`RetryPolicy`].
    ///
    /// - `request`: [`Request::Query`], `Prepare`, `Execute`, `Batch` or `Options`.
    ///
    /// Dropping the future cancels the request. A request that already has a stream id is
    /// nevertheless sent and executed, and the id stays reserved until the answer arrives. A future
    /// that is not polled any more keeps its stream id or its position in the queue. A connection
    /// with more than 64 MiB of output, because its server does not read, takes no more requests.
    ///
    /// Cost: two short locks of the host. Allocates only the answer's body, or a share of a buffer:
    /// see [`Reply`].
    ///
    /// # Errors
    ///
    /// [`RequestError`]. An answer of the server that is an error is [`RequestError::Server`].
    pub fn request<'a>(
        &'a self,
        request: &'a Request<'a>,
    ) -> impl Future<Output = Result<Reply, RequestError>> + use<'a, P> {
        self.request_with(request, RequestOptions::default())
    }

    /// [`Session::request`] with a statement without values.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub fn query<'a>(
        &'a self,
        text: &'a str,
        consistency: Consistency,
    ) -> impl Future<Output = Result<Reply, RequestError>> + use<'a, P> {
        let request = Request::Query { text, parameters: Parameters::new(consistency) };
        Flight::new(&self.inner.shared, request, RequestOptions::default())
    }

    /// [`Session::request`] with options.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub fn request_with<'a>(
        &'a self,
        request: &'a Request<'a>,
        options: RequestOptions<'a>,
    ) -> impl Future<Output = Result<Reply, RequestError>> + use<'a, P> {
        Flight::new(&self.inner.shared, request, options)
    }
}

/// The data that all attempts of a request share.
pub(super) struct Terms<'a, P: Platform> {
    pub(super) shared: &'a Shared<P>,
    timeout: Option<Duration>,
    /// Set at the first poll.
    pub(super) deadline: Option<Instant>,
    chosen: Option<&'a [MuxId]>,
    routing: Option<Routing<'a>>,
    /// The number of the query plan.
    turn: usize,
    flags: Flags,
    idempotent: bool,
    retry: RetryPolicy,
}

impl<'a, P: Platform> Terms<'a, P> {
    pub(super) fn new(shared: &'a Shared<P>, options: RequestOptions<'a>) -> Self {
        let RequestOptions { timeout, flags, idempotent, retry, hosts, routing } = options;
        let retry = retry.unwrap_or(shared.options.retry);
        Self { shared, timeout, deadline: None, chosen: hosts, routing, turn: 0, flags, idempotent, retry }
    }

    pub(super) const fn message<'r>(&self, request: &'r Request<'r>) -> Message<'r> {
        Message { request, flags: self.flags }
    }

    /// Sets the deadline and the number of the plan, and returns the first host and the time.
    ///
    /// Nothing is allocated for a plan until its first host does not take the request.
    pub(super) fn start(&mut self) -> Result<(Arc<Host>, Instant), RequestError> {
        let shared = self.shared;
        let now = shared.now();
        let timeout = self.timeout.or(shared.options.request_timeout);
        self.deadline = timeout.map(|timeout| now.saturating_add(timeout));
        self.turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        let host = match self.routing {
            // The search for the replicas is longer than a clone, so it is not done under the lock.
            Some(_) => shared.hosts().first(self.turn, self.chosen, self.routing).cloned(),
            None => lock(&shared.hosts).first(self.turn, self.chosen, None).cloned(),
        };
        match host {
            Some(host) if !self.is_over(now) => Ok((host, now)),
            // Without time nothing is sent.
            host => {
                shared.check_open()?;
                Err(host.map_or(RequestError::NoHost(Vec::new()), |host| timed_out(&host.address, false)))
            }
        }
    }

    /// Whether the request waits for the first connection of the current host.
    pub(super) fn waits(&self, tried: Option<&Tried<'_>>) -> bool {
        self.chosen.is_some() || tried.is_some_and(|tried| tried.plan.waits())
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|at| at <= now)
    }

    /// Returns the result of the request, or why it is sent again.
    #[inline]
    pub(super) fn judge(
        &self,
        host: &Host,
        tried: Option<&Tried<'_>>,
        outcome: Outcome,
    ) -> ControlFlow<Result<Reply, RequestError>, Again> {
        match outcome {
            Ok(reply) if reply.header.opcode != Opcode::Error => ControlFlow::Break(Ok(reply)),
            Ok(reply) => self.judge_error(tried, reply),
            Err(failure) => self.judge_failure(host, tried, failure),
        }
    }

    #[cold]
    fn judge_error(&self, tried: Option<&Tried<'_>>, reply: Reply) -> ControlFlow<Result<Reply, RequestError>, Again> {
        let (code, message, is_sent_again) = match reply.response() {
            Ok(Response::Error(failure)) => {
                let has_retried = tried.is_some_and(Tried::has_retried);
                let is_sent_again = self.retry.allows(&failure, self.idempotent, has_retried);
                (failure.code, self.shared.options.shown(failure.message), is_sent_again)
            }
            Ok(_) => return ControlFlow::Break(Ok(reply)),
            Err(error) => return ControlFlow::Break(Err(RequestError::Reply(error))),
        };
        let reason = RejectionReason::Refused(code);
        if is_sent_again && matches!(code, ErrorCode::IS_BOOTSTRAPPING | ErrorCode::OVERLOADED) {
            return ControlFlow::Continue(Again::after(reason));
        }
        let error = Box::new(ServerError { code, message, reply });
        if is_sent_again {
            ControlFlow::Continue(Again { error: Some(error), ..Again::after(reason) })
        } else {
            ControlFlow::Break(Err(RequestError::Server(error)))
        }
    }

    #[cold]
    fn judge_failure(
        &self,
        host: &Host,
        tried: Option<&Tried<'_>>,
        failure: Failure,
    ) -> ControlFlow<Result<Reply, RequestError>, Again> {
        let error = match failure {
            Failure::Rejected(error) => return ControlFlow::Continue(Again::after(RejectionReason::Pool(error))),
            Failure::Connecting => return ControlFlow::Continue(Again::default()),
            Failure::Lost { cause, reason, sent } if self.idempotent || !sent => {
                let again = Again::after(RejectionReason::Lost { cause, sent });
                return ControlFlow::Continue(Again { lost: reason, ..again });
            }
            Failure::Lost { cause, reason, .. } => match self.shared.check_open() {
                Ok(()) => RequestError::Lost { address: host.address.clone(), cause, reason },
                Err(error) => error,
            },
            Failure::Encode(error) => RequestError::Encode(error),
            Failure::TimedOut { sent } => timed_out(&host.address, sent || tried.is_some_and(Tried::may_have_executed)),
        };
        ControlFlow::Break(Err(error))
    }

    /// Records why a host did not take the request, and returns the host that has it next and the
    /// time.
    ///
    /// - `spread`: is added to the number of the plan, to send the requests of a batch to different
    ///   hosts.
    #[cold]
    pub(super) fn pass_on(
        &self,
        tried: &mut Option<Box<Tried<'a>>>,
        host: &Arc<Host>,
        spread: usize,
        again: Again,
    ) -> Result<(Arc<Host>, Instant), RequestError> {
        let shared = self.shared;
        shared.check_open()?;
        let now = shared.now();
        let Tried { plan, rejections, error } = &mut **tried.get_or_insert_with(|| {
            let turn = self.turn.wrapping_add(spread);
            let plan = Plan::after(host.id, shared.hosts(), turn, self.chosen, self.routing);
            Box::new(Tried { plan, rejections: Vec::new(), error: None })
        });
        if let Some(reason) = again.reason {
            if again.error.is_some() || matches!(reason, RejectionReason::Refused(ErrorCode::OVERLOADED)) {
                *error = again.error;
            }
            let refusal = match reason {
                RejectionReason::Pool(AcquireError::Down { .. }) => {
                    host.look(now, |_, _, refusal| refusal.map(String::from))
                }
                RejectionReason::Lost { .. } => text_of(&again.lost),
                RejectionReason::Pool(_) | RejectionReason::Refused(_) => None,
            };
            rejections.push(Rejection { host: host.id, address: host.address.clone(), reason, refusal });
        } else {
            plan.put_off(host);
        }
        if self.is_over(now) {
            return Err(timed_out(&host.address, rejections.iter().any(Rejection::may_have_executed)));
        }
        if matches!(again.reason, Some(RejectionReason::Refused(code)) if repeats_host(code)) {
            plan.repeat();
            return Ok((Arc::clone(host), now));
        }
        let mut next = plan.next();
        // The hosts may have been replaced while removed ones were tried.
        if next.is_none() && plan.renew(shared.hosts(), rejections) {
            next = plan.next();
        }
        next.map(|next| (next, now)).ok_or_else(|| match error.take() {
            Some(error) => RequestError::Server(error),
            None => RequestError::NoHost(core::mem::take(rejections)),
        })
    }
}

/// Why a request is sent again.
#[derive(Default)]
pub(super) struct Again {
    /// `None`: the host has no connection yet.
    reason: Option<RejectionReason>,
    /// The server's error.
    error: Option<Box<ServerError>>,
    /// Why the connection failed.
    lost: Reason,
}

impl Again {
    fn after(reason: RejectionReason) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }
}

/// The hosts that did not take a request, and the plan for the others.
pub(super) struct Tried<'o> {
    plan: Plan<'o>,
    rejections: Vec<Rejection>,
    /// The last error of a server, unless it was overloaded after that: the result if no host is left.
    error: Option<Box<ServerError>>,
}

impl Tried<'_> {
    fn may_have_executed(&self) -> bool {
        self.rejections.iter().any(Rejection::may_have_executed)
    }

    /// Whether the request was sent again after an error for which it is only once.
    fn has_retried(&self) -> bool {
        let mut reasons = self.rejections.iter().map(|one| one.reason);
        reasons.any(|reason| matches!(reason, RejectionReason::Refused(code) if is_retried_once(code)))
    }
}

fn timed_out(address: &str, sent: bool) -> RequestError {
    RequestError::TimedOut { address: String::from(address), sent }
}

/// Checks that an application may send the request.
pub(super) const fn check_opcode(request: &Request<'_>) -> Result<(), RequestError> {
    let opcode = request.opcode();
    match opcode {
        Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch | Opcode::Options => Ok(()),
        Opcode::Startup
        | Opcode::AuthResponse
        | Opcode::Register
        | Opcode::Error
        | Opcode::Ready
        | Opcode::Authenticate
        | Opcode::Supported
        | Opcode::Result
        | Opcode::Event
        | Opcode::AuthChallenge
        | Opcode::AuthSuccess => Err(RequestError::Unsupported(opcode)),
    }
}

/// A request. Dropping it cancels the attempt at the current host.
///
/// - `R`: the request, or a reference to it.
struct Flight<'a, P: Platform, R> {
    terms: Terms<'a, P>,
    request: R,
    /// The current host; `None` before the first poll.
    host: Option<Arc<Host>>,
    /// The slot at the current host, until its outcome is taken.
    slot: Option<u32>,
    tried: Option<Box<Tried<'a>>>,
    has_ended: bool,
}

impl<'a, P: Platform, R> Flight<'a, P, R> {
    fn new(shared: &'a Shared<P>, request: R, options: RequestOptions<'a>) -> Self {
        let terms = Terms::new(shared, options);
        Self { terms, request, host: None, slot: None, tried: None, has_ended: false }
    }
}

impl<'a, P: Platform, R: Borrow<Request<'a>>> Flight<'a, P, R> {
    /// Begins an attempt at the current host. The outcome is available at once only if it fails.
    fn begin(&mut self, now: Instant, waker: &Waker) -> Poll<Outcome> {
        let Self { terms, request, host: Some(host), slot, tried, .. } = self else { return Poll::Pending };
        let (waits, waker) = (terms.waits(tried.as_deref()), waker.clone());
        match terms
            .shared
            .step_at(now, host, |change| change.begin(terms.message((*request).borrow()), waits, terms.deadline, waker))
        {
            Ok(begun) => {
                *slot = Some(begun);
                Poll::Pending
            }
            Err(failure) => Poll::Ready(Err(failure)),
        }
    }

    /// Takes the outcome of the attempt at the current host.
    fn poll_slot(&mut self, waker: &Waker) -> Poll<Outcome> {
        let Self { terms, request, host: Some(host), slot: Some(slot), .. } = self else { return Poll::Pending };
        let outcome = match host.outcome(*slot) {
            Some(outcome) => outcome,
            None => {
                let mut waker = Some(waker.clone());
                ready!(terms.shared.step(host, |change| change.poll(
                    *slot,
                    terms.message((*request).borrow()),
                    &mut waker
                )))
            }
        };
        self.slot = None;
        Poll::Ready(outcome)
    }

    fn advance(&mut self, waker: &Waker) -> Poll<Result<Reply, RequestError>> {
        self.terms.shared.check_fork()?;
        let mut outcome = if self.host.is_some() {
            ready!(self.poll_slot(waker))
        } else {
            check_opcode(self.request.borrow())?;
            let (host, now) = self.terms.start()?;
            self.host = Some(host);
            ready!(self.begin(now, waker))
        };
        loop {
            let Self { terms, host: Some(host), tried, .. } = &mut *self else { return Poll::Pending };
            let again = match terms.judge(host, tried.as_deref(), outcome) {
                ControlFlow::Break(result) => return Poll::Ready(result),
                ControlFlow::Continue(again) => again,
            };
            let (next, now) = terms.pass_on(tried, host, 0, again)?;
            self.host = Some(next);
            outcome = ready!(self.begin(now, waker));
        }
    }
}

impl<'a, P: Platform, R: Borrow<Request<'a>> + Unpin> Future for Flight<'a, P, R> {
    type Output = Result<Reply, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.has_ended, "the future of a request is polled after it was ready");
        let polled = this.advance(context.waker());
        this.has_ended = polled.is_ready();
        polled
    }
}

impl<P: Platform, R> Drop for Flight<'_, P, R> {
    fn drop(&mut self) {
        if let (Some(slot), Some(host)) = (self.slot.take(), &self.host) {
            self.terms.shared.step_in_drop(host, |change| change.cancel(slot));
        }
    }
}
