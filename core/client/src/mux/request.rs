//! Requests: selection of the host, and the outcome.

use super::error::{Rejection, RejectionReason, RequestError, ServerError};
use super::host::{Answer, Failure, Host, Message};
use super::plan::Plan;
use super::{Reply, Session, Shared};
use crate::{Net, Platform};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::{Poll, Waker};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, MuxId};
use poolhouse_cql::{Consistency, ErrorCode, Flags, Opcode, Parameters, Request, Response};
use poolhouse_driver::BaseRuntime as _;

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
    /// connection fails or the server is overloaded.
    pub idempotent: bool,
    /// The hosts to try, in this order; a host may be repeated, and other hosts are skipped.
    /// `None`: the local hosts in rotation, then the remote hosts.
    pub hosts: Option<&'o [MuxId]>,
}

impl<P: Platform> Session<P> {
    /// Sends a request, and waits for the answer.
    ///
    /// The pool of the next host in the query plan grants a stream id on its least busy connection,
    /// or queues the request for at most `pool_timeout`. If the host does not take the request, the
    /// next host is asked. If no host takes it, the error contains the reason of each.
    ///
    /// - `request`: [`Request::Query`], `Prepare`, `Execute`, `Batch` or `Options`.
    ///
    /// Dropping the future cancels the request. A request that already has a stream id is
    /// nevertheless sent and executed, and the id stays reserved until the answer arrives. A future
    /// that is not polled any more keeps its stream id or its position in the queue. A connection
    /// with more than 64 MiB of output, because its server does not read, takes no more requests.
    ///
    /// Cost: two short locks of the host; no allocation except for the answer's body.
    ///
    /// # Errors
    ///
    /// [`RequestError`]. An answer of the server that is an error is [`RequestError::Server`].
    pub async fn request(&self, request: &Request<'_>) -> Result<Reply, RequestError> {
        self.request_with(request, RequestOptions::default()).await
    }

    /// [`Session::request`] with a statement without values.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn query(&self, text: &str, consistency: Consistency) -> Result<Reply, RequestError> {
        self.request(&Request::Query { text, parameters: Parameters::new(consistency) }).await
    }

    /// [`Session::request`] with options.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub async fn request_with(
        &self,
        request: &Request<'_>,
        options: RequestOptions<'_>,
    ) -> Result<Reply, RequestError> {
        let shared = &*self.inner.shared;
        shared.check_fork()?;
        let opcode = request.opcode();
        match opcode {
            Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch | Opcode::Options => {}
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
            | Opcode::AuthSuccess => return Err(RequestError::Unsupported(opcode)),
        }
        let message = Message { request, flags: options.flags };
        let mut now = shared.now();
        let timeout = options.timeout.or(shared.options.request_timeout);
        let deadline = timeout.map(|timeout| now.saturating_add(timeout));
        let mut plan = Plan::new(shared, options.hosts);
        let mut rejections: Vec<Rejection> = Vec::new();
        let is_over = |now| deadline.is_some_and(|at| at <= now);
        loop {
            let Some(host) = plan.next() else {
                // The hosts may have been replaced while removed ones were tried.
                if plan.renew(shared, &rejections) { continue } else { break }
            };
            // Without time nothing is sent.
            if is_over(now) {
                shared.check_open()?;
                return Err(RequestError::TimedOut { address: host.address.clone(), sent: false });
            }
            let reason = match (Flight { shared, host, slot: None }).wait(message, now, deadline).await? {
                Ok(answer) => match understood(shared, host, answer)? {
                    Ok(reply) => return Ok(reply),
                    Err(error) if passes_on(&error, options.idempotent) => RejectionReason::Refused(error.code),
                    Err(error) => return Err(RequestError::Server(error)),
                },
                Err(Failure::Rejected(error)) => RejectionReason::Pool(error),
                Err(Failure::Lost { cause, sent }) if options.idempotent || !sent => {
                    RejectionReason::Lost { cause, sent }
                }
                Err(Failure::Encode(error)) => return Err(RequestError::Encode(error)),
                Err(Failure::TimedOut { sent }) => {
                    let sent = sent || rejections.iter().any(Rejection::may_have_executed);
                    return Err(RequestError::TimedOut { address: host.address.clone(), sent });
                }
                Err(Failure::Lost { cause, .. }) => {
                    shared.check_open()?;
                    return Err(RequestError::Lost { address: host.address.clone(), cause });
                }
            };
            shared.check_open()?;
            let refusal = match reason {
                RejectionReason::Pool(AcquireError::Down { .. }) => {
                    host.look(now, |_, _, refusal| refusal.map(alloc::string::String::from))
                }
                RejectionReason::Pool(_) | RejectionReason::Lost { .. } | RejectionReason::Refused(_) => None,
            };
            rejections.push(Rejection { host: host.id, address: host.address.clone(), reason, refusal });
            now = shared.now();
            if is_over(now) {
                break;
            }
        }
        shared.check_open()?;
        match rejections.last() {
            Some(last) if is_over(now) => {
                let sent = rejections.iter().any(Rejection::may_have_executed);
                Err(RequestError::TimedOut { address: last.address.clone(), sent })
            }
            _ => Err(RequestError::NoHost(rejections)),
        }
    }
}

/// Converts an answer to a reply, or to the error that the server returned.
fn understood<P: Platform>(
    shared: &Shared<P>,
    host: &Host,
    answer: Answer,
) -> Result<Result<Reply, Box<ServerError>>, RequestError> {
    let Answer { header, body } = answer;
    let reply = Reply { host: host.id, header, body };
    if header.opcode != Opcode::Error {
        return Ok(Ok(reply));
    }
    let (code, message) = match reply.response() {
        Ok(Response::Error(failure)) => (failure.code, shared.options.shown(failure.message)),
        Ok(_) => return Ok(Ok(reply)),
        Err(error) => return Err(RequestError::Reply(error)),
    };
    Ok(Err(Box::new(ServerError { code, message, reply })))
}

/// Whether a request is sent to the next host after this error.
fn passes_on(error: &ServerError, idempotent: bool) -> bool {
    error.code == ErrorCode::IS_BOOTSTRAPPING || idempotent && error.code == ErrorCode::OVERLOADED
}

/// A request at one host. Dropping it cancels the request.
struct Flight<'a, P: Platform> {
    shared: &'a Shared<P>,
    host: &'a Arc<Host>,
    slot: Option<u32>,
}

impl<P: Platform> Flight<'_, P> {
    /// Waits for the answer.
    ///
    /// - `now`: the time of the first poll.
    async fn wait(
        mut self,
        message: Message<'_>,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Result<Result<Answer, Failure>, RequestError> {
        poll_fn(|context| self.poll(context.waker(), message, now, deadline)).await
    }

    fn poll(
        &mut self,
        waker: &Waker,
        message: Message<'_>,
        begun: Instant,
        deadline: Option<Instant>,
    ) -> Poll<Result<Result<Answer, Failure>, RequestError>> {
        let Self { shared, host, slot } = self;
        if let Err(error) = shared.check_fork() {
            return Poll::Ready(Err(error));
        }
        let Some(place) = *slot else {
            let waker = waker.clone();
            return match shared.step_at(begun, host, |change| change.begin(message, deadline, waker)) {
                Ok(begun) => {
                    *slot = Some(begun);
                    Poll::Pending
                }
                Err(failure) => Poll::Ready(Ok(Err(failure))),
            };
        };
        if let Some(outcome) = host.outcome(place) {
            *slot = None;
            return Poll::Ready(Ok(outcome));
        }
        let mut waker = Some(waker.clone());
        let polled = shared.step(host, |change| change.poll(place, message, &mut waker));
        if polled.is_ready() {
            *slot = None;
        }
        polled.map(Ok)
    }
}

impl<P: Platform> Drop for Flight<'_, P> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // In the child of a fork, the slot belongs to the parent process.
            if !self.shared.is_forked() {
                // The drop may run during a panic of the clock. A time in the past is safe: a pool
                // replaces it by the latest time that it has received.
                let now = Net::<P>::contain(|| self.shared.now()).unwrap_or(Instant::ORIGIN);
                self.shared.step_at(now, self.host, |change| change.cancel(slot));
            }
        }
    }
}
