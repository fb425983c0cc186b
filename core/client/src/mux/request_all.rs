//! Many requests by one future.

use super::error::RequestError;
use super::host::{Host, Outcome};
use super::request::{RequestOptions, Terms, Tried, check_opcode};
use super::{Reply, Session};
use crate::Platform;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use poolhouse_core::Instant;
use poolhouse_cql::Request;

/// The number of requests that begin under one lock of a host. More would delay the other users of
/// the host.
const BEGIN_MAX: usize = 1024;

impl<P: Platform> Session<P> {
    /// Sends many requests, and waits for all answers. Returns the result of each request, in the
    /// order of the requests.
    ///
    /// All requests of a call go to one host, the next in the query plan; those of the next call go
    /// to the host after it. From then on each request is independent, as with
    /// [`Session::request`]: it waits for a stream id, goes to the next host if a host does not take
    /// it, and succeeds or fails. The requests that the first host does not take are divided among
    /// the other hosts. The limits of the pools apply: at each host, the requests beyond
    /// `max_requests_per_connection` wait, at most `max_queue_size` of them. All requests begin at
    /// once: if no host takes one because its queue is full, its result is [`RequestError::NoHost`].
    ///
    /// - `requests`: as [`Session::request`] takes them. Servers execute them in any order.
    ///
    /// Dropping the future cancels the requests without a result, as with [`Session::request`], and
    /// drops the results.
    ///
    /// Cost: about half of that of a future for each request. One lock of a host begins up to 1,024
    /// requests, and one lock takes the replies that one read has received; for these the task is
    /// woken once. Each request takes about 300 bytes until the future is dropped.
    ///
    /// # Errors
    ///
    /// Each request has its own [`RequestError`]. The time limit begins for all of them at the first
    /// poll. After it the results are those that have arrived, and [`RequestError::TimedOut`] for
    /// each of the others.
    ///
    /// # Example
    ///
    /// ```
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session};
    /// use poolhouse_cql::{Consistency, Parameters, Request};
    ///
    /// /// Returns the number of statements that have succeeded, and the first error.
    /// async fn run<P: Platform>(session: &Session<P>, statements: &[&str]) -> (usize, Option<RequestError>) {
    ///     let parameters = Parameters::new(Consistency::One);
    ///     let requests: Vec<_> = statements.iter().map(|text| Request::Query { text, parameters }).collect();
    ///     let results = session.request_all(&requests).await;
    ///     let succeeded = results.iter().filter(|result| result.is_ok()).count();
    ///     (succeeded, results.into_iter().find_map(Result::err))
    /// }
    /// ```
    pub fn request_all<'a>(
        &'a self,
        requests: &'a [Request<'a>],
    ) -> impl Future<Output = Vec<Result<Reply, RequestError>>> + use<'a, P> {
        self.request_all_with(requests, RequestOptions::default())
    }

    /// [`Session::request_all`] with options, which apply to each request.
    ///
    /// # Errors
    ///
    /// As [`Session::request_all`].
    pub fn request_all_with<'a>(
        &'a self,
        requests: &'a [Request<'a>],
        options: RequestOptions<'a>,
    ) -> impl Future<Output = Vec<Result<Reply, RequestError>>> + use<'a, P> {
        RequestAll {
            terms: Terms::new(&self.inner.shared, options),
            requests,
            results: None,
            missing: requests.len(),
            batches: Vec::new(),
            tried: BTreeMap::new(),
            outcomes: Vec::new(),
        }
    }
}

/// The requests of one call. Dropping it cancels those that have no result.
struct RequestAll<'a, P: Platform> {
    terms: Terms<'a, P>,
    requests: &'a [Request<'a>],
    /// The results so far; `None` before the first poll.
    results: Option<Vec<Option<Result<Reply, RequestError>>>>,
    /// The number of results that are missing.
    missing: usize,
    /// The hosts that have, or had, requests of this call, and the slot of the batch at each.
    batches: Vec<(Arc<Host>, u32)>,
    /// The hosts that did not take a request, by the index of the request.
    tried: BTreeMap<usize, Box<Tried<'a>>>,
    /// Empty; kept for its memory.
    outcomes: Vec<(usize, Outcome)>,
}

/// A request that is sent again: the host, and the index of the request.
type Next = (Arc<Host>, usize);

impl<P: Platform> RequestAll<'_, P> {
    fn advance(&mut self, waker: &Waker) -> Poll<()> {
        if let Err(error) = self.terms.shared.check_fork() {
            self.fail_all(&error);
            return Poll::Ready(());
        }
        if self.results.is_none() {
            self.start();
        }
        loop {
            let mut refused = Vec::new();
            for place in 0..self.batches.len() {
                self.take_outcomes(place, waker, &mut refused);
            }
            if refused.is_empty() {
                break;
            }
            refused.sort_by_key(|(host, _)| host.id);
            for requests in refused.chunk_by(|(one, _), (other, _)| one.id == other.id) {
                if let [(host, _), ..] = requests {
                    self.begin(host, requests.iter().map(|(_, index)| *index), self.terms.shared.now());
                }
            }
        }
        if self.missing == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends all requests to the first host.
    fn start(&mut self) {
        let results: Vec<_> = self.requests.iter().map(|request| check_opcode(request).err().map(Err)).collect();
        let valid = || results.iter().enumerate().filter(|(_, result)| result.is_none()).map(|(index, _)| index);
        self.missing = valid().count();
        let started = if self.missing == 0 {
            Ok(())
        } else {
            self.terms.start().map(|(host, now)| self.begin(&host, valid(), now))
        };
        self.results = Some(results);
        if let Err(error) = started {
            self.fail_all(&error);
        }
    }

    /// Begins requests at a host.
    fn begin(&mut self, host: &Arc<Host>, indices: impl Iterator<Item = usize>, now: Instant) {
        let Self { terms, requests, batches, tried, .. } = self;
        let mut indices = indices.peekable();
        while indices.peek().is_some() {
            let known = batches.iter().find(|(known, _)| Arc::ptr_eq(known, host)).map(|(_, batch)| *batch);
            let some = indices.by_ref().take(BEGIN_MAX);
            let messages = some
                .map(|index| (index, terms.message(&requests[index]), terms.waits(tried.get(&index).map(Box::as_ref))));
            let batch = terms.shared.step_at(now, host, |change| change.begin_all(known, messages, terms.deadline));
            if known.is_none() {
                batches.push((Arc::clone(host), batch));
            }
        }
    }

    /// Takes the outcomes of the requests at a host. Requests that are sent again are added to
    /// `refused`.
    fn take_outcomes(&mut self, place: usize, waker: &Waker, refused: &mut Vec<Next>) {
        let Some((host, batch)) = self.batches.get(place).map(|(host, batch)| (Arc::clone(host), *batch)) else {
            return;
        };
        loop {
            let mut outcomes = core::mem::take(&mut self.outcomes);
            let are_granted = host.take_outcomes(batch, &mut outcomes, &mut Some(waker.clone()));
            for (index, outcome) in outcomes.drain(..) {
                let tried = self.tried.get(&index).map(Box::as_ref);
                match self.terms.judge(&host, tried, outcome) {
                    ControlFlow::Break(result) => self.finish(index, result),
                    ControlFlow::Continue(again) => {
                        let mut tried = self.tried.remove(&index);
                        match self.terms.pass_on(&mut tried, &host, index, again) {
                            Ok((next, _)) => {
                                refused.push((next, index));
                                self.tried.extend(tried.map(|tried| (index, tried)));
                            }
                            Err(error) => self.finish(index, Err(error)),
                        }
                    }
                }
            }
            self.outcomes = outcomes;
            if !are_granted {
                return;
            }
            let Self { terms, requests, .. } = &*self;
            terms.shared.step(&host, |change| change.send_granted(batch, |index| terms.message(&requests[index])));
        }
    }

    fn finish(&mut self, index: usize, result: Result<Reply, RequestError>) {
        if let Some(place @ None) = self.results.as_mut().and_then(|results| results.get_mut(index)) {
            *place = Some(result);
            self.missing -= 1;
        }
    }

    /// Fails the requests that have no result.
    fn fail_all(&mut self, error: &RequestError) {
        // In the child of a fork, the first poll ends here.
        self.results.get_or_insert_with(|| self.requests.iter().map(|_| None).collect());
        for index in 0..self.requests.len() {
            self.finish(index, Err(error.clone()));
        }
    }
}

impl<P: Platform> Future for RequestAll<'_, P> {
    type Output = Vec<Result<Reply, RequestError>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.advance(context.waker()));
        let results = this.results.replace(Vec::new()).unwrap_or_default();
        assert_eq!(results.len(), this.requests.len(), "the future of requests is polled after it was ready");
        Poll::Ready(results.into_iter().flatten().collect())
    }
}

impl<P: Platform> Drop for RequestAll<'_, P> {
    fn drop(&mut self) {
        for (host, batch) in &self.batches {
            self.terms.shared.step_in_drop(host, |change| change.cancel_all(*batch));
        }
    }
}
