//! Requests: which host is asked, and what becomes of that.

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
use poolhouse_driver::Runtime as _;

/// What is said of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions<'o> {
    /// How long it may take, with all that it waits for; `None` is as long as the session's options allow. [`Duration::MAX`] is no limit.
    pub timeout: Option<Duration>,
    /// The flags of its envelope, such as [`Flags::TRACING`]. The body must begin with what they promise. [`Flags::COMPRESSION`] is the session's to set.
    pub flags: Flags,
    /// Whether it does no harm to execute it twice. Then it goes to the next host when its connection fails, or the server has too much to do.
    pub idempotent: bool,
    /// The hosts to ask, in this order, one perhaps twice; others are passed over. `None`: those that are near by turns, then those that are farther away.
    pub hosts: Option<&'o [MuxId]>,
}

impl<P: Platform> Session<P> {
    /// Sends a request, and waits for the answer.
    ///
    /// The pool of the next host by the query plan gives it a stream id on its least busy connection, or lets it wait for one, up to `pool_timeout`. A host that
    /// does not take it passes it to the next one; when none does, the error says why each did not.
    ///
    /// - `request`: [`Request::Query`], `Prepare`, `Execute`, `Batch` or `Options`.
    ///
    /// Dropping the future gives the request up. Once it has a stream id it is sent, and executed, all the same, and the id is kept until the answer came. A
    /// future that is not polled any more keeps what it has. A connection that has more than 64 MiB to send, because its server takes nothing, takes no more.
    ///
    /// Cost: two short locks of the host, no allocation but for the answer's body.
    ///
    /// # Errors
    ///
    /// [`RequestError`]. An answer that is an error is [`RequestError::Server`].
    pub async fn request(&self, request: &Request<'_>) -> Result<Reply, RequestError> {
        self.request_with(request, RequestOptions::default()).await
    }

    /// [`Session::request`] with a statement that has no values.
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
                // Hosts may have been replaced while those that are gone were asked.
                if plan.renew(shared, &rejections) { continue } else { break }
            };
            let reason = match (Flight { shared, host, slot: None }).land(message, now, deadline).await? {
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

/// An answer: the server's, or its error.
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

/// Whether a request goes to the next host after this answer.
fn passes_on(error: &ServerError, idempotent: bool) -> bool {
    error.code == ErrorCode::IS_BOOTSTRAPPING || idempotent && error.code == ErrorCode::OVERLOADED
}

/// A request with one host. Dropping it gives it up.
struct Flight<'a, P: Platform> {
    shared: &'a Shared<P>,
    host: &'a Arc<Host>,
    slot: Option<u32>,
}

impl<P: Platform> Flight<'_, P> {
    /// - `now`: the time of the first poll.
    async fn land(
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
            return match shared.turn_at(begun, host, |turn| turn.begin(message, deadline, waker)) {
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
        let polled = shared.turn(host, |turn| turn.poll(place, message, &mut waker));
        if polled.is_ready() {
            *slot = None;
        }
        polled.map(Ok)
    }
}

impl<P: Platform> Drop for Flight<'_, P> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // In the child of a fork it is the parent's.
            if !self.shared.is_inherited() {
                // Perhaps in the middle of a panic of the clock. A time that has passed does as well: pools hold it at the last that they have seen.
                let now = Net::<P>::contain(|| self.shared.now()).unwrap_or(Instant::ORIGIN);
                self.shared.turn_at(now, self.host, |turn| turn.give_up(slot));
            }
        }
    }
}
