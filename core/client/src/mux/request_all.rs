//! Many calls by one future.

use super::call::Call;
use super::error::{Rejection, RequestError, ServerError};
use super::host::{Change, Host, Outcome};
use super::prepared::Statement;
use super::request::{REPAIRS_MAX, Tried, Trip};
use super::{Reply, Session, Shared};
use crate::{Net, Platform};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::MuxId;
use poolhouse_cql::{ErrorCode, Opcode};
use poolhouse_driver::BaseRuntime as _;

/// The number of requests that begin under one lock of a host. More would delay the other users of
/// the host.
const BEGIN_MAX: usize = 1024;

impl<P: Platform> Session<P> {
    /// Sends many calls, and waits for all answers. Returns the result of each call, in their order.
    ///
    /// Calls with values that contain a partition key, or with their own hosts, go to the first host of
    /// their plan. The others go to one host, the next in the query plan; those of the next
    /// `request_all` go to the host after it. From then on each call is independent, as with
    /// [`Call::send`]: it waits for a stream id, goes to the next host if a host does not take
    /// it, is prepared again on a host that does not have its statement, and succeeds or fails. The calls
    /// that the first host does not take are divided among the other hosts. The limits of the pools apply:
    /// at each host, the requests beyond `max_requests_per_connection` wait, at most `max_queue_size` of
    /// them. All begin at once: if no host takes one because its queue is full, its result is
    /// [`RequestError::NoHost`].
    ///
    /// Texts with values that the session has not prepared are prepared first, one after the other, also those of
    /// batches. No call is sent before that.
    ///
    /// - `calls`: with their options, except [`Call::speculation`]; the time limit is the longest of their
    ///   limits. Servers execute them in any order. Statements that change the schema are not waited for.
    ///
    /// Dropping the future cancels the calls without a result, as with [`Call::send`], and
    /// drops the results.
    ///
    /// Cost: about half of that of a future for each call. One lock of a host begins up to 1,024
    /// requests, and one lock takes the replies that one read has received; for these the task is
    /// woken once. Each call takes about 300 bytes until the future is dropped.
    ///
    /// # Errors
    ///
    /// Each call has its own [`RequestError`]. The time limit begins for all of them at the first
    /// poll. After it the results are those that have arrived, and [`RequestError::TimedOut`] for
    /// each of the others.
    ///
    /// # Example
    ///
    /// ```
    /// use poolhouse_client::Platform;
    /// use poolhouse_client::mux::{RequestError, Session, Statement};
    ///
    /// // Prepared from: INSERT INTO shop.readings (sensor, at, value) VALUES (?, ?, ?)
    /// async fn write<P: Platform>(
    ///     session: &Session<P>,
    ///     insert: &Statement,
    ///     readings: &[(i32, i64, f64)],
    /// ) -> Result<(), RequestError> {
    ///     for some in readings.chunks(1_000) {
    ///         let calls: Vec<_> = some.iter().map(|one| session.execute(insert, one).idempotent(true)).collect();
    ///         session.request_all(&calls).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn request_all<'a>(
        &'a self,
        calls: &'a [Call<'a, P>],
    ) -> impl Future<Output = Vec<Result<Reply, RequestError>>> + Send + use<'a, P> {
        if calls.iter().all(|call| call.is_of(self) && call.body.is_ready()) {
            let mut all = RequestAll::new(calls, None, REPAIRS_MAX);
            all.is_timed = true;
            All::Ready(all)
        } else {
            All::Preparing(Box::pin(self.prepare_and_request_all(calls)))
        }
    }

    /// [`Session::request_all`], if texts have values, values do not fit, or calls are those of another session.
    async fn prepare_and_request_all(&self, calls: &[Call<'_, P>]) -> Vec<Result<Reply, RequestError>> {
        let shared = &self.inner.shared;
        let begun = shared.now();
        let deadline = longest_limit(calls).map(|limit| begun.saturating_add(limit));
        let mut preparing = Preparing::new(shared, calls, begun);
        let mut ready = Vec::new();
        for call in calls {
            // A statement that is prepared here is known to the calls after this one.
            let prepared = match call.is_of(self) {
                true => call.clone().until(deadline).prepared().await,
                false => Err(RequestError::Foreign),
            };
            preparing.ended(prepared.map(|call| ready.push(call)).err());
        }
        let mut all = RequestAll::new(&ready, deadline, REPAIRS_MAX);
        all.timed_since = preparing.since.take();
        let mut replies = all.await.into_iter();
        let closed = || Err(RequestError::Closed);
        let errors = core::mem::take(&mut preparing.errors).into_iter();
        errors.map(|error| error.map_or_else(|| replies.next().unwrap_or_else(closed), Err)).collect()
    }
}

/// Calls whose statements are being prepared. Each counts as an operation from then on: those without an error are
/// cancelled if this is dropped.
struct Preparing<'a, P: Platform> {
    shared: &'a Shared<P>,
    calls: &'a [Call<'a, P>],
    /// The errors of the first calls; `None` for each that can be sent.
    errors: Vec<Option<RequestError>>,
    /// When they began, if they are measured.
    since: Option<Instant>,
}

impl<'a, P: Platform> Preparing<'a, P> {
    fn new(shared: &'a Shared<P>, calls: &'a [Call<'a, P>], begun: Instant) -> Self {
        let since = Some(begun).filter(|_| shared.events.times_operations() && !shared.is_forked());
        if since.is_some() {
            shared.events.operations_begin(calls.len());
        }
        Self { shared, calls, errors: Vec::with_capacity(calls.len()), since }
    }

    /// Takes the error of the next call.
    fn ended(&mut self, error: Option<RequestError>) {
        let error = match (error, self.since, self.calls.get(self.errors.len())) {
            (Some(error), Some(since), Some(call)) => {
                let result = Err(error);
                self.shared.measured(call.body.opcode(), since, &result);
                result.err()
            }
            (error, ..) => error,
        };
        self.errors.push(error);
    }
}

impl<P: Platform> Drop for Preparing<'_, P> {
    fn drop(&mut self) {
        let Some(since) = self.since.filter(|_| !self.shared.is_forked()) else { return };
        let has_failed = |index: usize| self.errors.get(index).is_some_and(Option::is_some);
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = Net::<P>::contain(|| {
            for (_, call) in self.calls.iter().enumerate().filter(|(index, _)| !has_failed(*index)) {
                self.shared.cancelled(call.body.opcode(), since);
            }
        });
    }
}

/// The longest time limit of these calls; `None`: one has no limit.
fn longest_limit<P: Platform>(calls: &[Call<'_, P>]) -> Option<Duration> {
    let longest = |one: Option<Duration>, other: Option<Duration>| Some(one?.max(other?));
    calls.iter().map(Call::limit).reduce(longest).flatten()
}

type Results = Vec<Result<Reply, RequestError>>;

enum All<'a, P: Platform> {
    Ready(RequestAll<'a, P>),
    Preparing(Pin<Box<dyn Future<Output = Results> + Send + 'a>>),
}

impl<P: Platform> Future for All<'_, P> {
    type Output = Results;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(all) => Pin::new(all).poll(context),
            Self::Preparing(boxed) => boxed.as_mut().poll(context),
        }
    }
}

/// The results of some calls, each with the index of its call.
type Repaired = Vec<(usize, Result<Reply, RequestError>)>;

/// Many calls on their way. Dropping it cancels those that have no result.
pub(super) struct RequestAll<'a, P: Platform> {
    calls: &'a [Call<'a, P>],
    trip: Trip,
    /// The results so far; `None` before the first poll.
    results: Option<Vec<Option<Result<Reply, RequestError>>>>,
    /// The number of results that are missing.
    missing: usize,
    /// The hosts that have, or had, requests of this future, and the slot of the group at each.
    groups: Vec<(Arc<Host>, u32)>,
    /// The hosts that did not take a call, by the index of the call.
    tried: BTreeMap<usize, Box<Tried>>,
    /// Empty; kept for its memory.
    outcomes: Vec<(usize, Outcome)>,
    /// Calls that wait until a host has prepared their statements again.
    repairs: Vec<Pin<Box<dyn Future<Output = Repaired> + Send + 'a>>>,
    repairs_max: u8,
    /// Whether each call is measured as an operation from the first poll on, if something uses that.
    is_timed: bool,
    /// When the calls began, once they are measured.
    timed_since: Option<Instant>,
}

/// A call that is sent again: the host, and the index of the call.
type Next = (Arc<Host>, usize);

/// A call of a statement that a host does not have.
type Unprepared = (usize, Box<ServerError>);

impl<'a, P: Platform> RequestAll<'a, P> {
    /// - `calls`: each is ready.
    /// - `deadline`: `None`: the longest limit of the calls.
    /// - `repairs_max`: how often a call may be prepared again.
    pub(super) fn new(calls: &'a [Call<'a, P>], deadline: Option<Instant>, repairs_max: u8) -> Self {
        Self {
            calls,
            trip: Trip { deadline, ..Trip::default() },
            results: None,
            missing: calls.len(),
            groups: Vec::new(),
            tried: BTreeMap::new(),
            outcomes: Vec::new(),
            repairs: Vec::new(),
            repairs_max,
            is_timed: false,
            timed_since: None,
        }
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let [first, ..] = self.calls else {
            self.results.get_or_insert_default();
            return Poll::Ready(());
        };
        if let Err(error) = first.shared.check_fork() {
            self.fail_all(&error);
            return Poll::Ready(());
        }
        if self.results.is_none() {
            self.start(first);
        }
        loop {
            let (mut refused, mut unprepared) = (Vec::new(), Vec::new());
            for place in 0..self.groups.len() {
                self.take_outcomes(place, context.waker(), &mut refused, &mut unprepared);
            }
            self.repair(unprepared, context);
            if refused.is_empty() {
                break;
            }
            refused.sort_by_key(|(host, _)| host.id);
            for requests in refused.chunk_by(|(one, _), (other, _)| one.id == other.id) {
                if let [(host, _), ..] = requests {
                    self.begin(host, requests.iter().map(|(_, index)| *index), first.shared.now());
                }
            }
        }
        if self.missing == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends each call to its first host.
    fn start(&mut self, first: &Call<'a, P>) {
        self.results = Some(self.calls.iter().map(|_| None).collect());
        self.calls.iter().for_each(Call::warn_of_large);
        let now = self.trip.begin(first.shared, longest_limit(self.calls));
        if self.is_timed && first.shared.events.times_operations() {
            first.shared.events.operations_begin(self.calls.len());
            self.timed_since = Some(now);
        }
        if self.calls.iter().all(Call::is_anywhere) {
            match first.first_host(self.trip, 0, now) {
                Ok(host) => self.begin(&host, 0..self.calls.len(), now),
                Err(error) => self.fail_all(&error),
            }
            return;
        }
        let mut common = None;
        let mut by_host: Vec<(Arc<Host>, Vec<usize>)> = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            let host = if call.is_anywhere() {
                common.get_or_insert_with(|| call.first_host(self.trip, 0, now)).clone()
            } else {
                call.first_host(self.trip, index, now)
            };
            match host {
                Ok(host) => match by_host.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &host)) {
                    Some((_, indices)) => indices.push(index),
                    None => by_host.push((host, Vec::from([index]))),
                },
                Err(error) => self.finish(index, Err(error)),
            }
        }
        for (host, indices) in by_host {
            self.begin(&host, indices.into_iter(), now);
        }
    }

    /// Begins requests at a host.
    fn begin(&mut self, host: &Arc<Host>, indices: impl Iterator<Item = usize>, now: Instant) {
        let Self { trip, calls, groups, tried, .. } = self;
        let mut indices = indices.peekable();
        while indices.peek().is_some() {
            let known = groups.iter().find(|(known, _)| Arc::ptr_eq(known, host)).map(|(_, group)| *group);
            let some = indices.by_ref().take(BEGIN_MAX);
            let messages = some.map(|index| {
                let call = &calls[index];
                (index, &call.body, call.waits(tried.get(&index).map(Box::as_ref)))
            });
            let begin = |change: &mut Change<'_>| change.begin_all(known, messages, trip.deadline);
            let group = calls[0].shared.step_at(now, host, begin);
            if known.is_none() {
                groups.push((Arc::clone(host), group));
            }
        }
    }

    /// Takes the outcomes of the requests at a host. Calls that are sent again are added to
    /// `refused`, those of a statement that the host does not have to `unprepared`.
    fn take_outcomes(
        &mut self,
        place: usize,
        waker: &Waker,
        refused: &mut Vec<Next>,
        unprepared: &mut Vec<Unprepared>,
    ) {
        let Some((host, group)) = self.groups.get(place).map(|(host, group)| (Arc::clone(host), *group)) else {
            return;
        };
        loop {
            let mut outcomes = core::mem::take(&mut self.outcomes);
            let are_granted = host.take_outcomes(group, &mut outcomes, &mut Some(waker.clone()));
            for (index, outcome) in outcomes.drain(..) {
                match outcome {
                    Ok(reply) if reply.header.opcode != Opcode::Error => self.finish(index, Ok(reply)),
                    outcome => self.judge(&host, index, outcome, refused, unprepared),
                }
            }
            self.outcomes = outcomes;
            if !are_granted {
                return;
            }
            let calls = self.calls;
            calls[0].shared.step(&host, |change| change.send_granted(group, |index| &calls[index].body));
        }
    }

    #[cold]
    fn judge(
        &mut self,
        host: &Arc<Host>,
        index: usize,
        outcome: Outcome,
        refused: &mut Vec<Next>,
        unprepared: &mut Vec<Unprepared>,
    ) {
        let call = &self.calls[index];
        match call.judge(host, self.tried.get(&index).map(Box::as_ref), outcome) {
            ControlFlow::Break(Err(RequestError::Server(error)))
                if error.code == ErrorCode::UNPREPARED && self.repairs_max > 0 && !call.body.is_text() =>
            {
                unprepared.push((index, error));
            }
            ControlFlow::Break(result) => self.finish(index, result),
            ControlFlow::Continue(again) => {
                let mut tried = self.tried.remove(&index);
                match call.pass_on(self.trip, &mut tried, host, index, again) {
                    Ok((next, _)) => {
                        refused.push((next, index));
                        self.tried.extend(tried.map(|tried| (index, tried)));
                    }
                    Err(error) => self.finish(index, Err(error)),
                }
            }
        }
    }

    /// Lets hosts prepare the statements that they do not have, and takes the results of the calls that
    /// were sent again after that.
    fn repair(&mut self, mut unprepared: Vec<Unprepared>, context: &mut Context<'_>) {
        unprepared.sort_by_key(|(index, error)| (error.reply.host, *index));
        let mut unprepared = unprepared.into_iter().peekable();
        while let Some((first, mut error)) = unprepared.next() {
            let host = error.reply.host;
            let mut earlier = BTreeMap::from([(first, core::mem::take(&mut error.earlier))]);
            while let Some((index, error)) = unprepared.next_if(|(_, error)| error.reply.host == host) {
                earlier.insert(index, error.earlier);
            }
            let (deadline, repairs_max) = (self.trip.deadline, self.repairs_max - 1);
            self.repairs.push(Box::pin(repaired(self.calls, earlier, deadline, error, repairs_max)));
        }
        let mut repairs = core::mem::take(&mut self.repairs);
        repairs.retain_mut(|repair| match repair.as_mut().poll(context) {
            Poll::Ready(results) => {
                for (index, result) in results {
                    self.finish(index, result);
                }
                false
            }
            Poll::Pending => true,
        });
        self.repairs = repairs;
    }

    fn finish(&mut self, index: usize, result: Result<Reply, RequestError>) {
        if cfg!(any(feature = "metrics", feature = "tracing")) && self.timed_since.is_some() {
            self.measure(index, &result);
        }
        if let (Ok(reply), Some(call)) = (&result, self.calls.get(index)) {
            if reply.is_schema_change() {
                call.shared.forget_statements();
            }
        }
        if let Some(place @ None) = self.results.as_mut().and_then(|results| results.get_mut(index)) {
            *place = Some(result);
            self.missing -= 1;
        }
    }

    /// Records the end of a call, unless it has a result.
    #[cold]
    fn measure(&self, index: usize, result: &Result<Reply, RequestError>) {
        let has_result = self.results.as_ref().is_none_or(|results| results.get(index).is_none_or(Option::is_some));
        if let (Some(since), Some(call), false) = (self.timed_since, self.calls.get(index), has_result) {
            call.shared.measured(call.body.opcode(), since, result);
        }
    }

    /// Fails the calls that have no result.
    fn fail_all(&mut self, error: &RequestError) {
        // In the child of a fork, the first poll ends here.
        self.results.get_or_insert_with(|| self.calls.iter().map(|_| None).collect());
        for index in 0..self.calls.len() {
            self.finish(index, Err(error.clone()));
        }
    }
}

/// Prepares the statements of these calls on the host that does not have them, and sends the calls there
/// again. If that host fails meanwhile, the calls begin anew.
///
/// - `earlier`: the hosts that did not take each of the calls before, by its index.
/// - `error`: that of the first of these calls.
/// - `repairs_max`: how often a call may be prepared again after this.
async fn repaired<'a, P: Platform>(
    calls: &'a [Call<'a, P>],
    mut earlier: BTreeMap<usize, Vec<Rejection>>,
    deadline: Option<Instant>,
    error: Box<ServerError>,
    repairs_max: u8,
) -> Repaired {
    let host: [MuxId; 1] = [error.reply.host];
    let mut statements: Vec<&Statement> = Vec::new();
    for statement in earlier.keys().flat_map(|index| calls[*index].body.statements()) {
        if !statements.iter().any(|known| known.id() == statement.id()) {
            statements.push(statement);
        }
    }
    let prepared = calls[0].shared.prepare_on(host[0], &statements, deadline, &error).await;
    // A statement that cannot be prepared fails its own calls only.
    let failure = |index: &usize| {
        let ids = calls[*index].body.statements();
        let mut pairs = statements.iter().zip(&prepared);
        pairs.find_map(|(one, result)| {
            let is_failed = result.is_err() && ids.iter().any(|statement| statement.id() == one.id());
            if is_failed { result.clone().err() } else { None }
        })
    };
    let (failed, good): (Vec<_>, Vec<_>) =
        earlier.keys().map(|index| (*index, failure(index))).partition(|one| one.1.is_some());
    let mut results: Repaired = failed.into_iter().filter_map(|(index, error)| Some((index, Err(error?)))).collect();
    let again: Vec<_> = good.iter().map(|(index, _)| calls[*index].clone().hosts(&host)).collect();
    results.extend(good.iter().map(|(index, _)| *index).zip(RequestAll::new(&again, deadline, repairs_max).await));
    let mut lost = Vec::new();
    results.retain_mut(|(index, result)| {
        let Err(RequestError::NoHost(hosts)) = result else { return true };
        earlier.entry(*index).or_default().append(hosts);
        lost.push(*index);
        false
    });
    if !lost.is_empty() {
        let anew: Vec<_> = lost.iter().map(|index| calls[*index].clone()).collect();
        results.extend(lost.into_iter().zip(RequestAll::new(&anew, deadline, repairs_max).await));
    }
    // Once for each call: not in the repairs of a repair.
    if repairs_max + 1 == REPAIRS_MAX {
        renew_all(calls, deadline, &mut results).await;
    }
    let mut of = |index| earlier.remove(&index).unwrap_or_default();
    results.into_iter().map(|(index, result)| (index, result.map_err(|error| error.after(of(index))))).collect()
}

/// Prepares the texts anew whose statements have changed, and sends their calls again.
async fn renew_all<P: Platform>(calls: &[Call<'_, P>], deadline: Option<Instant>, results: &mut Repaired) {
    let (mut places, mut again) = (Vec::new(), Vec::new());
    for (place, (index, result)) in results.iter_mut().enumerate() {
        let Some(call) = calls[*index].renewable(result) else { continue };
        match call.until(deadline).prepared().await {
            Ok(call) => {
                places.push(place);
                again.push(call);
            }
            Err(error) => *result = Err(error),
        }
    }
    for (place, result) in places.into_iter().zip(RequestAll::new(&again, deadline, 1).await) {
        results[place].1 = result;
    }
}

impl<P: Platform> Call<'_, P> {
    /// Whether no host is better for the call than others.
    #[inline]
    fn is_anywhere(&self) -> bool {
        self.hosts.is_none() && self.body.is_plain_text()
    }

    fn is_of(&self, session: &Session<P>) -> bool {
        core::ptr::eq(self.shared, &*session.inner.shared)
    }
}

impl<P: Platform> Future for RequestAll<'_, P> {
    type Output = Vec<Result<Reply, RequestError>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.advance(context));
        let results = this.results.replace(Vec::new()).unwrap_or_default();
        assert_eq!(results.len(), this.calls.len(), "the future of requests is polled after it was ready");
        Poll::Ready(results.into_iter().flatten().collect())
    }
}

impl<P: Platform> Drop for RequestAll<'_, P> {
    fn drop(&mut self) {
        for (host, group) in &self.groups {
            self.calls[0].shared.step_in_drop(host, |change| change.cancel_all(*group));
        }
        let is_measured = self.missing > 0;
        let Some(since) = self.timed_since.filter(|_| is_measured && !self.calls[0].shared.is_forked()) else {
            return;
        };
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = Net::<P>::contain(|| {
            let has_result =
                |index: usize| self.results.as_ref().is_some_and(|all| all.get(index).is_some_and(Option::is_some));
            for (_, call) in self.calls.iter().enumerate().filter(|(index, _)| !has_result(*index)) {
                call.shared.cancelled(call.body.opcode(), since);
            }
        });
    }
}
