//! A multiplexed pool with an oracle that checks each call.

use super::{Action, Answer, Event, Input, Oracle, Outputs, Seen};
use crate::oracle::Checks;
use core::ops::Deref;
use poolhouse_core::mux::{
    Acquire, AcquireError, ForeignStream, Mux, MuxAction, MuxClaim, MuxConfig, MuxConnId, MuxEvent, MuxFixed, MuxId,
    MuxMemory, MuxOnHeap, MuxWaiterId, Reply, ReplyError, Stream, Written,
};
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, Instant, Observer, Stale};

/// Memory that declares whether its capacity is limited.
pub trait Bounded: MuxMemory {
    /// Whether it is bounded.
    const BOUNDED: bool;
}

impl Bounded for MuxOnHeap {
    const BOUNDED: bool = false;
}

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> Bounded for MuxFixed<CONNS, WAITERS, WORDS> {
    const BOUNDED: bool = true;
}

/// A [`Mux`] and its oracle. It has the methods of a multiplexed pool, and panics with the id of a
/// broken invariant.
pub struct Watched<M: Bounded> {
    mux: Mux<M>,
    oracle: Oracle,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, Event)>,
    /// Requests with an unclaimed outcome, and their numbers in the oracle.
    waiters: Vec<(MuxWaiterId, u64)>,
    waiter_last: u64,
}

/// Passes events to the oracle and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, Event)>,
    observer: &'t mut O,
}

impl<O: Observer<MuxEvent>> Observer<MuxEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        self.events.push((now, Event::of(event)));
        self.observer.on_event(now, event);
    }
}

/// Calls the pool with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {
        $self.mux.$method($($argument,)* &mut Tee { events: &mut $self.events, observer: $observer })
    };
}

impl<M: Bounded> Watched<M> {
    /// [`Mux::new`].
    ///
    /// # Panics
    ///
    /// When an invariant is broken. This holds for all methods that change state.
    pub fn new(now: Instant, id: MuxId, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) -> Self {
        let mut events = Vec::new();
        let mux = Mux::new(now, id, config, &mut Tee { events: &mut events, observer });
        let oracle = Oracle::new(config, M::BOUNDED);
        let mut watched = Self { mux, oracle, checks: Checks::default(), events, waiters: Vec::new(), waiter_last: 0 };
        watched.judge(now, Input::New, Answer::None);
        watched
    }

    /// The oracle.
    #[must_use]
    pub const fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// The check counts.
    #[must_use]
    pub const fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Takes the check counts and resets them to 0.
    pub fn take_checks(&mut self) -> Checks {
        core::mem::take(&mut self.checks)
    }

    /// [`Oracle::at_peace`].
    ///
    /// # Panics
    ///
    /// When a waiter is left.
    pub fn assert_peace(&mut self) {
        self.oracle.at_peace(&mut self.checks).unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// [`Oracle::after_close`].
    ///
    /// # Panics
    ///
    /// When something is left.
    pub fn assert_over(&mut self) {
        self.oracle.after_close(&mut self.checks).unwrap_or_else(|violation| panic!("{violation}"));
    }

    fn judge(&mut self, now: Instant, input: Input, answer: Answer) {
        let seen = Seen { state: self.mux.state(), closed: self.mux.is_closed(), timeout: self.mux.poll_timeout() };
        let outputs = Outputs { answer, events: &self.events, seen: Some(seen) };
        if let Err(violation) = self.oracle.step(now, input, &outputs, &mut self.checks) {
            panic!("{violation}\n  in {input:?}: {answer:?}, {:?}", self.events);
        }
        self.events.clear();
    }

    fn number_of(&self, waiter: MuxWaiterId) -> u64 {
        self.waiters.iter().find(|(known, _)| *known == waiter).map_or(0, |(_, number)| *number)
    }

    fn forget(&mut self, waiter: MuxWaiterId) {
        self.waiters.retain(|(known, _)| *known != waiter);
    }

    /// [`Mux::reserve`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn reserve(&mut self, waiters: u32) -> Result<(), Full> {
        self.mux.reserve(waiters)
    }

    /// [`Mux::acquire`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn acquire(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Acquire, AcquireError> {
        let outcome = observed!(self, observer, acquire(now, deadline));
        let answer = match &outcome {
            Ok(Acquire::Granted(stream)) => Answer::Granted(stream.conn().number().get(), stream.id()),
            Ok(Acquire::Queued(waiter)) => {
                self.waiter_last += 1;
                self.waiters.push((*waiter, self.waiter_last));
                Answer::Queued(self.waiter_last)
            }
            Err(error) => Answer::Failed(*error),
        };
        self.judge(now, Input::Acquire { deadline }, answer);
        outcome
    }

    /// [`Mux::claim`].
    pub fn claim(&mut self, now: Instant, waiter: MuxWaiterId) -> MuxClaim {
        let claim = self.mux.claim(now, waiter);
        let number = self.number_of(waiter);
        let answer = match &claim {
            MuxClaim::Waiting => Answer::Waiting,
            MuxClaim::Granted(stream) => Answer::Granted(stream.conn().number().get(), stream.id()),
            MuxClaim::Failed(error) => Answer::Failed(*error),
            MuxClaim::Stale => Answer::Stale,
        };
        if claim != MuxClaim::Waiting {
            self.forget(waiter);
        }
        self.judge(now, Input::Claim { waiter: number }, answer);
        claim
    }

    /// [`Mux::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: MuxWaiterId, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, cancel(now, waiter));
        let number = self.number_of(waiter);
        self.forget(waiter);
        self.judge(now, Input::Cancel { waiter: number }, Answer::None);
    }

    /// [`Mux::release`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn release(
        &mut self,
        now: Instant,
        stream: Stream,
        written: Written,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), ForeignStream> {
        let own = (stream.mux() == self.mux.id()).then(|| (stream.conn().number().get(), stream.id()));
        let result = observed!(self, observer, release(now, stream, written));
        let answer = if result.is_ok() { Answer::Done } else { Answer::Stale };
        self.judge(now, Input::Release { stream: own, written }, answer);
        result
    }

    /// [`Mux::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, reconfigure(now, config));
        self.judge(now, Input::Reconfigure, Answer::None);
    }

    /// [`Mux::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, close(now));
        self.judge(now, Input::Close, Answer::None);
    }

    /// [`Mux::handle_established`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_established(now, conn));
        self.judge(now, Input::Established { conn: conn.number().get() }, taken(result));
        result
    }

    /// [`Mux::handle_establish_failed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_establish_failed(now, conn, cause));
        self.judge(now, Input::EstablishFailed { conn: conn.number().get(), cause }, taken(result));
        result
    }

    /// [`Mux::handle_failed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_failed(now, conn, cause));
        self.judge(now, Input::Failed { conn: conn.number().get(), cause }, taken(result));
        result
    }

    /// [`Mux::handle_received`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_received(&mut self, now: Instant, conn: MuxConnId) -> Result<(), Stale> {
        let result = self.mux.handle_received(now, conn);
        self.judge(now, Input::Received { conn: conn.number().get() }, taken(result));
        result
    }

    /// [`Mux::handle_reply`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        stream: i32,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Reply, ReplyError> {
        let result = observed!(self, observer, handle_reply(now, conn, stream));
        let answer = match result {
            Ok(reply) => Answer::Reply(reply),
            Err(ReplyError::Unknown { .. }) => Answer::Unknown,
            Err(_) => Answer::Stale,
        };
        self.judge(now, Input::Reply { conn: conn.number().get(), stream }, answer);
        result
    }
}

fn taken(result: Result<(), Stale>) -> Answer {
    if result.is_ok() { Answer::Done } else { Answer::Stale }
}

/// The calls that every machine has: see `poolhouse_core::machine`.
#[allow(missing_docs, reason = "the machine documents them")]
impl<M: Bounded> Watched<M> {
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, handle_timeout(now));
        self.judge(now, Input::Timeout, Answer::None);
    }

    pub fn poll_action(&mut self, now: Instant) -> Option<MuxAction> {
        let polled = self.mux.poll_action(now);
        let action = polled.map(|action| match action {
            MuxAction::Establish(conn) => Action::Establish(conn.number().get()),
            MuxAction::Close(conn) => Action::Close(conn.number().get()),
            MuxAction::Wake(waiter) => Action::Wake(self.number_of(waiter)),
            MuxAction::Heartbeat(conn, id) => Action::Heartbeat(conn.number().get(), id),
        });
        self.judge(Instant::ORIGIN, Input::Poll, Answer::Action(action));
        polled
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.mux.poll_timeout()
    }

    pub fn assert_invariants(&self) {
        self.mux.assert_invariants();
    }
}

/// The getters of the machine.
impl<M: Bounded> Deref for Watched<M> {
    type Target = Mux<M>;

    fn deref(&self) -> &Mux<M> {
        &self.mux
    }
}

impl<M: Bounded> Clone for Watched<M>
where
    Mux<M>: Clone,
{
    fn clone(&self) -> Self {
        Self {
            mux: self.mux.clone(),
            oracle: self.oracle.clone(),
            checks: self.checks.clone(),
            events: self.events.clone(),
            waiters: self.waiters.clone(),
            waiter_last: self.waiter_last,
        }
    }
}

impl<M: Bounded> core::fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Watched").field("mux", &self.mux).field("oracle", &self.oracle).finish_non_exhaustive()
    }
}
