//! Calls on their way: selection of the host, the outcome, and what is left to do after it.

use super::call::Call;
use super::error::{Rejection, RejectionReason, RequestError, ServerError};
use super::failure::text_of;
use super::host::{Failure, Host, Outcome};
use super::plan::Plan;
use super::retry::{is_retried_once, repeats_host};
use super::{Reply, Shared};
use crate::{Platform, lock};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::marker::PhantomData;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use poolhouse_core::mux::AcquireError;
use poolhouse_core::{Instant, Reason};
use poolhouse_cql::{ErrorCode, Opcode, Response};

/// How often the statements of a call are prepared again.
pub(super) const REPAIRS_MAX: u8 = 3;

/// The state that all attempts of a call share.
#[derive(Clone, Copy, Default)]
pub(super) struct Trip {
    /// Set at the first poll.
    pub(super) deadline: Option<Instant>,
    /// The number of the query plan.
    pub(super) turn: usize,
}

impl Trip {
    /// Sets the deadline, unless it is set, and the number of the plan, and returns the time.
    #[inline]
    pub(super) fn begin<P: Platform>(&mut self, shared: &Shared<P>, timeout: Option<Duration>) -> Instant {
        let now = shared.now();
        if self.deadline.is_none() {
            self.deadline = timeout.map(|timeout| now.saturating_add(timeout));
        }
        self.turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        now
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|at| at <= now)
    }
}

impl<'a, P: Platform> Call<'a, P> {
    fn is_idempotent(&self) -> bool {
        self.idempotent == Some(true)
    }

    /// The time limit.
    #[inline]
    pub(super) fn limit(&self) -> Option<Duration> {
        self.timeout.or(self.shared.options.request_timeout)
    }

    /// Returns the first host of the plan.
    ///
    /// Nothing is allocated for a plan until its first host does not take the request.
    ///
    /// - `spread`: as [`Self::pass_on`] takes it.
    #[inline(always)]
    pub(super) fn first_host(&self, trip: Trip, spread: usize, now: Instant) -> Result<Arc<Host>, RequestError> {
        let (shared, turn) = (self.shared, trip.turn.wrapping_add(spread));
        let host = if self.body.is_plain_text() {
            lock(&shared.hosts).first(turn, self.hosts, None).cloned()
        } else {
            self.routed_host(turn)?
        };
        match host {
            Some(host) if !trip.is_over(now) => Ok(host),
            // Without time nothing is sent.
            host => {
                shared.check_open()?;
                Err(host.map_or_else(|| shared.no_host(self.hosts.is_some()), |host| timed_out(&host.address, false)))
            }
        }
    }

    /// [`Self::first_host`] of a call that may have a location of its data.
    fn routed_host(&self, turn: usize) -> Result<Option<Arc<Host>>, RequestError> {
        if self.body.is_outdated() {
            return Err(RequestError::Outdated);
        }
        // The search for the replicas is longer than a clone, so it is not done under the lock.
        Ok(self.shared.hosts().first(turn, self.hosts, self.body.routing()).cloned())
    }

    /// Whether the request waits for the first connection of the current host.
    #[inline]
    pub(super) fn waits(&self, tried: Option<&Tried>) -> bool {
        self.hosts.is_some() || tried.is_some_and(|tried| tried.plan.waits())
    }

    /// Returns the result of the request, or why it is sent again.
    #[inline]
    pub(super) fn judge(
        &self,
        host: &Host,
        tried: Option<&Tried>,
        outcome: Outcome,
    ) -> ControlFlow<Result<Reply, RequestError>, Again> {
        match outcome {
            Ok(reply) if reply.header.opcode != Opcode::Error => ControlFlow::Break(Ok(reply)),
            Ok(reply) => self.judge_error(tried, reply),
            Err(failure) => self.judge_failure(host, tried, failure),
        }
    }

    #[cold]
    fn judge_error(&self, tried: Option<&Tried>, reply: Reply) -> ControlFlow<Result<Reply, RequestError>, Again> {
        let (code, message, is_sent_again) = match reply.response() {
            Ok(Response::Error(failure)) => {
                let has_retried = tried.is_some_and(Tried::has_retried);
                let retry = self.retry.unwrap_or(self.shared.options.retry);
                let is_sent_again = retry.allows(&failure, self.is_idempotent(), has_retried);
                (failure.code, self.shared.options.shown(failure.message), is_sent_again)
            }
            Ok(_) => return ControlFlow::Break(Ok(reply)),
            Err(error) => return ControlFlow::Break(Err(RequestError::Reply(error))),
        };
        let reason = RejectionReason::Refused(code);
        if is_sent_again && matches!(code, ErrorCode::IS_BOOTSTRAPPING | ErrorCode::OVERLOADED) {
            return ControlFlow::Continue(Again::after(reason));
        }
        let earlier = tried.map_or_else(Vec::new, |tried| tried.rejections.clone());
        let error = Box::new(ServerError { code, message, reply, earlier });
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
        tried: Option<&Tried>,
        failure: Failure,
    ) -> ControlFlow<Result<Reply, RequestError>, Again> {
        let error = match failure {
            Failure::Rejected(error) => return ControlFlow::Continue(Again::after(RejectionReason::Pool(error))),
            Failure::Connecting => return ControlFlow::Continue(Again::default()),
            Failure::Lost { cause, reason, sent } if self.is_idempotent() || !sent => {
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
        trip: Trip,
        tried: &mut Option<Box<Tried>>,
        host: &Arc<Host>,
        spread: usize,
        again: Again,
    ) -> Result<(Arc<Host>, Instant), RequestError> {
        let shared = self.shared;
        shared.check_open()?;
        let now = shared.now();
        let Tried { plan, rejections, error } = &mut **tried.get_or_insert_with(|| {
            let turn = trip.turn.wrapping_add(spread);
            let plan = Plan::after(host.id, shared.hosts(), turn, self.hosts, self.body.routing());
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
                RejectionReason::Pool(AcquireError::TimedOut { .. }) => host.absence(),
                RejectionReason::Lost { .. } => text_of(&again.lost),
                RejectionReason::Pool(_) | RejectionReason::Refused(_) => None,
            };
            rejections.push(Rejection { host: host.id, address: host.address.clone(), reason, refusal });
        } else {
            plan.put_off(host);
        }
        if trip.is_over(now) {
            return Err(timed_out(&host.address, rejections.iter().any(Rejection::may_have_executed)));
        }
        if matches!(again.reason, Some(RejectionReason::Refused(code)) if repeats_host(code)) {
            plan.repeat();
            shared.events.retried(1);
            return Ok((Arc::clone(host), now));
        }
        let mut next = plan.next();
        // The hosts may have been replaced while removed ones were tried.
        if next.is_none() && plan.renew(shared.hosts(), rejections) {
            next = plan.next();
        }
        // A host whose pool has no stream id made no attempt.
        let is_retry = next.is_some() && !matches!(again.reason, None | Some(RejectionReason::Pool(_)));
        shared.events.retried(u32::from(is_retry));
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
pub(super) struct Tried {
    plan: Plan,
    rejections: Vec<Rejection>,
    /// The last error of a server, unless it was overloaded after that: the result if no host is left.
    error: Option<Box<ServerError>>,
}

impl Tried {
    fn may_have_executed(&self) -> bool {
        self.rejections.iter().any(Rejection::may_have_executed)
    }

    /// Whether the request was sent again after an error for which it is only once.
    fn has_retried(&self) -> bool {
        let mut reasons = self.rejections.iter().map(|one| one.reason);
        reasons.any(|reason| matches!(reason, RejectionReason::Refused(code) if is_retried_once(code)))
    }
}

impl<P: Platform> Shared<P> {
    /// Why no host can be tried.
    ///
    /// - `is_chosen`: whether the application chose the hosts.
    #[cold]
    pub(super) fn no_host(&self, is_chosen: bool) -> RequestError {
        match self.hosts().missing() {
            Some(missing) if !is_chosen => RequestError::UnknownDataCenter(Arc::clone(missing)),
            Some(_) | None => RequestError::NoHost(Vec::new()),
        }
    }
}

fn timed_out(address: &str, sent: bool) -> RequestError {
    RequestError::TimedOut { address: String::from(address), sent }
}

/// The attempts of a call, one host after another. Dropping it cancels the attempt at the current host.
///
/// - `C`: the call, or a reference to it.
pub(super) struct Flight<'a, P: Platform, C: Borrow<Call<'a, P>>> {
    call: C,
    trip: Trip,
    /// The current host; `None` before the first poll.
    host: Option<Arc<Host>>,
    /// The slot at the current host, until its outcome is taken.
    slot: Option<u32>,
    tried: Option<Box<Tried>>,
    has_ended: bool,
    calls: PhantomData<Call<'a, P>>,
}

impl<'a, P: Platform, C: Borrow<Call<'a, P>>> Flight<'a, P, C> {
    /// - `call`: is ready: [`Body::is_ready`](super::call::Body::is_ready).
    #[inline]
    pub(super) fn new(call: C) -> Self {
        let trip = Trip::default();
        Self { call, trip, host: None, slot: None, tried: None, has_ended: false, calls: PhantomData }
    }

    /// Sets the deadline, if it is known. Otherwise the first poll sets it.
    pub(super) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.trip.deadline = deadline;
        self
    }

    pub(super) fn call(&self) -> &Call<'a, P> {
        self.call.borrow()
    }

    /// The deadline, after the first poll.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.trip.deadline
    }

    /// Begins an attempt at the current host. The outcome is available at once only if it fails.
    fn begin(&mut self, now: Instant, waker: &Waker) -> Poll<Outcome> {
        let Self { trip, call, host: Some(host), slot, tried, .. } = self else { return Poll::Pending };
        let call: &Call<'_, P> = (*call).borrow();
        let (waits, waker) = (call.waits(tried.as_deref()), waker.clone());
        match call.shared.step_at(now, host, |change| change.begin(&call.body, waits, trip.deadline, waker)) {
            Ok(begun) => {
                *slot = Some(begun);
                Poll::Pending
            }
            Err(failure) => Poll::Ready(Err(failure)),
        }
    }

    /// Takes the outcome of the attempt at the current host.
    fn poll_slot(&mut self, waker: &Waker) -> Poll<Outcome> {
        let Self { call, host: Some(host), slot: Some(slot), .. } = self else { return Poll::Pending };
        let outcome = match host.outcome(*slot) {
            Some(outcome) => outcome,
            None => {
                let mut waker = Some(waker.clone());
                let call: &Call<'_, P> = (*call).borrow();
                ready!(call.shared.step(host, |change| change.poll(*slot, &call.body, &mut waker)))
            }
        };
        self.slot = None;
        Poll::Ready(outcome)
    }

    #[inline(always)]
    fn advance(&mut self, waker: &Waker) -> Poll<Result<Reply, RequestError>> {
        let shared = self.call().shared;
        shared.check_fork()?;
        let mut outcome = if self.host.is_some() {
            ready!(self.poll_slot(waker))
        } else {
            let Self { call, trip, .. } = &mut *self;
            let call: &Call<'_, P> = (*call).borrow();
            let now = trip.begin(shared, call.limit());
            self.host = Some(call.first_host(*trip, 0, now)?);
            ready!(self.begin(now, waker))
        };
        loop {
            let Self { trip, call, host: Some(host), tried, .. } = &mut *self else { return Poll::Pending };
            let call: &Call<'_, P> = (*call).borrow();
            let again = match call.judge(host, tried.as_deref(), outcome) {
                ControlFlow::Break(result) => return Poll::Ready(result),
                ControlFlow::Continue(again) => again,
            };
            let (next, now) = call.pass_on(*trip, tried, host, 0, again)?;
            self.host = Some(next);
            outcome = ready!(self.begin(now, waker));
        }
    }
}

impl<'a, P: Platform, C: Borrow<Call<'a, P>> + Unpin> Future for Flight<'a, P, C> {
    type Output = Result<Reply, RequestError>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.has_ended, "the future of a request is polled after it was ready");
        let polled = this.advance(context.waker());
        this.has_ended = polled.is_ready();
        polled
    }
}

impl<'a, P: Platform, C: Borrow<Call<'a, P>>> Drop for Flight<'a, P, C> {
    fn drop(&mut self) {
        if let (Some(slot), Some(host)) = (self.slot.take(), &self.host) {
            self.call.borrow().shared.step_in_drop(host, |change| change.cancel(slot));
        }
    }
}

impl<P: Platform> Call<'_, P> {
    /// Sets the time limit by a deadline that was set before.
    pub(super) fn until(mut self, deadline: Option<Instant>) -> Self {
        if let Some(at) = deadline {
            self.timeout = Some(at.saturating_since(self.shared.now()));
        }
        self
    }

    /// Whether something is left to do after this result: a host does not have a prepared statement, or
    /// the schema has changed.
    #[inline]
    pub(super) fn is_unsettled(&self, result: &Result<Reply, RequestError>) -> bool {
        match result {
            Ok(reply) => reply.is_schema_change(),
            Err(RequestError::Outdated) => true,
            Err(_) => self.is_unprepared(result),
        }
    }
}

/// Does the rest after a result: prepares statements again, and waits for the agreement of the schema.
pub(super) async fn settle<P: Platform>(
    call: &Call<'_, P>,
    deadline: Option<Instant>,
    result: Result<Reply, RequestError>,
) -> Result<Reply, RequestError> {
    let reply = if result.is_ok() { result } else { renew(call, deadline, result).await }?;
    call.shared.agree_after(&reply).await?;
    Ok(reply)
}

/// Repairs a call that a host has refused, because it does not have a statement of it. If the statement is one
/// of a text that the session has prepared, and its variables or its id have changed, the text is prepared
/// anew, once.
pub(super) async fn renew<P: Platform>(
    call: &Call<'_, P>,
    deadline: Option<Instant>,
    result: Result<Reply, RequestError>,
) -> Result<Reply, RequestError> {
    let mut earlier = Vec::new();
    let result = if call.is_unprepared(&result) { repair(call, deadline, result, &mut earlier).await } else { result };
    let result = match call.renewable(&result) {
        Some(call) => match call.until(deadline).prepared().await {
            Ok(call) => {
                let result = Flight::new(&call).until(deadline).await;
                if call.is_unprepared(&result) { repair(&call, deadline, result, &mut earlier).await } else { result }
            }
            Err(error) => Err(error),
        },
        None => result,
    };
    result.map_err(|error| error.after(earlier))
}

/// Prepares the statements of a call on the host that has answered that it does not have one of them, and
/// sends the call there again: a few times, because the host may have forgotten one meanwhile. If the host
/// fails, the call begins anew: the other hosts may take it.
///
/// - `earlier`: receives the hosts that did not take the call before its last attempt.
async fn repair<P: Platform>(
    call: &Call<'_, P>,
    deadline: Option<Instant>,
    mut result: Result<Reply, RequestError>,
    earlier: &mut Vec<Rejection>,
) -> Result<Reply, RequestError> {
    for left in (0..REPAIRS_MAX).rev() {
        let mut error = match result {
            Err(RequestError::Server(error)) if error.code == ErrorCode::UNPREPARED => error,
            result => return result,
        };
        earlier.append(&mut error.earlier);
        // Nothing was executed there.
        let host = [error.reply.host()];
        let prepared = call.shared.prepare_on(host[0], &call.body.statements(), deadline, &error).await;
        result = match prepared.into_iter().collect::<Result<Vec<()>, _>>() {
            Ok(_) => Flight::new(call.clone().hosts(&host)).until(deadline).await,
            Err(error @ RequestError::NoHost(_)) => Err(error),
            Err(error) => return Err(error),
        };
        if let Err(RequestError::NoHost(hosts)) = &mut result {
            if left > 0 {
                earlier.append(hosts);
                result = Flight::new(call).until(deadline).await;
            }
        }
    }
    result
}
