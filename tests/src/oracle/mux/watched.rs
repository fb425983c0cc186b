//! A multiplexed pool and its model. Each call is applied to both, and everything observable is
//! compared.

use crate::machines::mux::Event;
use crate::model::mux::{Acquired, Model, Outcome, Place, Room};
use crate::oracle::{Checks, Violation};
use core::fmt::Debug;
use core::ops::Deref;
use poolhouse_core::mux::{
    Acquire, AcquireError, ForeignStream, Mux, MuxAction, MuxClaim, MuxConfig, MuxConnId, MuxEvent, MuxFixed, MuxId,
    MuxMemory, MuxOnHeap, MuxWaiterId, Reply, ReplyError, Stream, Written, stream_words,
};
use poolhouse_core::{Cause, Instant, Observer, Stale};

/// Number of closed connections that are still checked.
const GONE_MAX: usize = 8;

/// Memory that declares its capacities.
pub trait Bounded: MuxMemory {
    /// The capacities.
    const ROOM: Room;
}

impl Bounded for MuxOnHeap {
    const ROOM: Room = Room::ENDLESS;
}

impl<const CONNS: usize, const WAITERS: usize, const WORDS: usize> Bounded for MuxFixed<CONNS, WAITERS, WORDS> {
    const ROOM: Room = Room { conns: CONNS, waiters: WAITERS, ids: ids_in(WORDS) };
}

/// The number of stream ids that fit into this number of words.
const fn ids_in(words: usize) -> u32 {
    let mut ids = 0;
    while stream_words(ids + 64) <= words {
        ids += 64;
    }
    ids
}

/// A [`Mux`] and its model. It has the methods of a multiplexed pool, and panics with the id of a
/// broken invariant.
#[derive(Debug)]
pub struct Watched<M: Bounded> {
    mux: Mux<M>,
    model: Model,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, Event)>,
    /// Requests with an unclaimed outcome, and their numbers in the model; the oldest first.
    waiters: Vec<(MuxWaiterId, u64)>,
    /// Connections that the pool contains, in the order of their creation, and some that it no
    /// longer contains.
    conns: Vec<MuxConnId>,
    gone: Vec<MuxConnId>,
}

/// Passes events to the checks and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, Event)>,
    conns: &'t mut Vec<MuxConnId>,
    observer: &'t mut O,
}

impl<O: Observer<MuxEvent>> Observer<MuxEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &MuxEvent) {
        if let MuxEvent::ConnectionCreated { conn, .. } = event {
            self.conns.push(*conn);
        }
        self.events.push((now, Event::of(event)));
        self.observer.on_event(now, event);
    }
}

/// Calls the pool with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {
        $self.mux.$method(
            $($argument,)*
            &mut Tee { events: &mut $self.events, conns: &mut $self.conns, observer: $observer },
        )
    };
}

const fn number(conn: MuxConnId) -> u64 {
    conn.number().get()
}

impl<M: Bounded> Watched<M> {
    /// [`Mux::new`].
    pub fn new(now: Instant, id: MuxId, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) -> Self {
        let (mut events, mut conns) = (Vec::new(), Vec::new());
        let mux = Mux::new(now, id, config, &mut Tee { events: &mut events, conns: &mut conns, observer });
        let model = Model::new(now.as_nanos(), *config.options(), M::ROOM);
        let (checks, waiters, gone) = (Checks::default(), Vec::new(), Vec::new());
        let mut watched = Self { mux, model, checks, events, waiters, conns, gone };
        watched.judge("M6", (), ());
        watched
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
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

    /// Requests with an unclaimed outcome, and their numbers in the model; the oldest first.
    #[must_use]
    pub fn waiters(&self) -> &[(MuxWaiterId, u64)] {
        &self.waiters
    }

    /// Connections that the pool contains, in the order of their creation.
    #[must_use]
    pub fn conns(&self) -> &[MuxConnId] {
        &self.conns
    }

    /// Some connections that the pool no longer contains.
    #[must_use]
    pub fn gone(&self) -> &[MuxConnId] {
        &self.gone
    }

    /// Checks that no request waits after the faults have stopped and streams were released for
    /// long enough.
    pub fn assert_peace(&mut self) {
        let left = self.model.queue().next();
        let what = format!("{left:?} still waits");
        self.require("M5", left.is_none(), &what);
    }

    /// Checks that nothing is left after the pool was closed and all streams, outcomes and actions
    /// were released, claimed and polled.
    pub fn assert_over(&mut self) {
        let is_over = self.model.is_closed() && self.model.is_empty() && self.model.poll_timeout().is_none();
        self.require("M6", is_over, "something is left");
    }

    fn require(&mut self, id: &'static str, holds: bool, what: &str) {
        self.checks.check(id, holds, || what.into()).unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// Compares the results of a call, its events, and the state after it.
    ///
    /// - `id`: the invariant that a wrong result breaks.
    fn judge<A: PartialEq + Debug>(&mut self, id: &'static str, actual: A, expected: A) {
        #[cfg(test)]
        crate::oracle::tests::falsify::step(self, &tests::falsified::kinds());
        let judged = self.judge_events().and_then(|()| self.checks.same(id, "result", &actual, &expected));
        if let Err(violation) = judged.and_then(|()| self.judge_state()) {
            panic!("{violation}\n  result {actual:?}, events {:?}", self.events);
        }
        self.mux.assert_invariants();
        self.events.clear();
    }

    fn judge_events(&mut self) -> Result<(), Violation> {
        let mut expected = core::mem::take(&mut self.model.events);
        // The pool chooses the stream id of a request, so the model takes it from the event.
        for ((_, actual), (_, expected)) in self.events.iter().zip(&mut expected) {
            if let (Event::Acquired(conn, id, _), Event::Acquired(same, request, _)) = (actual, expected) {
                if conn == same {
                    self.model.name(*conn, *request, u16::try_from(*id).expect("an id of the pool"));
                    *request = *id;
                }
            }
        }
        in_one_order(&mut self.events);
        in_one_order(&mut expected);
        if self.events != expected {
            return Err(difference(&self.events, &expected, &self.model));
        }
        for (_, event) in &expected {
            self.checks.add(of_event(event, true, &self.model));
            let more: &[&str] = match event {
                Event::Created(_) => &["P2", "P6"],
                Event::Ready(..) => &["P32"],
                Event::Acquired(..) => &["M1", "M6", "P25"],
                Event::Closed(..) => &["M4"],
                Event::Failed(AcquireError::TimedOut { .. }, _) => &["P18"],
                _ => &[],
            };
            more.iter().for_each(|id| self.checks.add(id));
        }
        Ok(())
    }

    /// Compares all observable state of the pool.
    fn judge_state(&mut self) -> Result<(), Violation> {
        let Self { mux, model, checks, .. } = self;
        checks.same("P1", "state", mux.state(), model.state())?;
        checks.same("P20", "poll_timeout", mux.poll_timeout().map(Instant::as_nanos), model.poll_timeout())?;
        checks.same("M6", "options", mux.config().options(), model.options())?;
        checks.same("M6", "whether it is closed", mux.is_closed(), model.is_closed())?;
        let mut actual = Vec::new();
        mux.for_each_conn(|conn, in_flight, open| actual.push((number(conn), in_flight, open)));
        let expected = model.established().map(|conn| (conn.id, conn.in_flight(), conn.place == Place::Open));
        checks.same("M6", "connections, the oldest in each state first", actual, expected.collect::<Vec<_>>())?;
        for &conn in self.conns.iter().chain(&self.gone) {
            let expected = model.conn(number(conn)).filter(|conn| conn.place != Place::OwesClose);
            let expected = expected.map(crate::model::mux::Conn::in_flight);
            checks.same("M4", "in flight on a connection", mux.conn_in_flight(conn), expected)?;
        }
        self.gone.extend(self.conns.extract_if(.., |conn| model.conn(number(*conn)).is_none()));
        self.gone.drain(..self.gone.len().saturating_sub(GONE_MAX));
        Ok(())
    }

    /// The number of a request in the model; 0 for a request that has ended.
    fn number_of(&self, waiter: MuxWaiterId) -> u64 {
        self.waiters.iter().find(|(known, _)| *known == waiter).map_or(0, |(_, number)| *number)
    }

    fn forget(&mut self, waiter: MuxWaiterId) {
        self.waiters.retain(|(known, _)| *known != waiter);
    }

    /// [`Mux::acquire`].
    pub fn acquire(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Acquire, AcquireError> {
        let outcome = observed!(self, observer, acquire(now, deadline));
        // The two largest instants are both the end of time.
        let deadline = deadline.map(|at| at.as_nanos().min(u64::MAX - 1));
        let expected = self.model.acquire(now.as_nanos(), deadline);
        let actual = match &outcome {
            // The id is that of the event, which is compared.
            Ok(Acquire::Granted(stream)) => Acquired::Granted(number(stream.conn()), granted(&self.events, stream)),
            Ok(Acquire::Queued(waiter)) => {
                let number = if let Acquired::Queued(number) = expected { number } else { 0 };
                self.waiters.push((*waiter, number));
                Acquired::Queued(number)
            }
            Err(error) => Acquired::Failed(*error),
        };
        let expected = match expected {
            Acquired::Granted(conn, _) => Acquired::Granted(conn, 1),
            other @ (Acquired::Queued(_) | Acquired::Failed(_)) => other,
        };
        self.judge("M4", actual, expected);
        outcome
    }

    /// [`Mux::must_connect`].
    pub fn must_connect(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) -> bool {
        let actual = observed!(self, observer, must_connect(now));
        let expected = self.model.must_connect(now.as_nanos());
        self.judge("M4", actual, expected);
        actual
    }

    /// [`Mux::claim`].
    pub fn claim(&mut self, now: Instant, waiter: MuxWaiterId) -> MuxClaim {
        let claim = self.mux.claim(now, waiter);
        let expected = self.model.claim(now.as_nanos(), self.number_of(waiter));
        let actual = match &claim {
            MuxClaim::Waiting => Some(Outcome::Waiting),
            MuxClaim::Granted(stream) => {
                let conn = number(stream.conn());
                let is_gone = self.model.established().all(|known| known.id != conn);
                let of_id = self.model.request(conn, stream.id()).unwrap_or(0);
                Some(Outcome::Granted(conn, if is_gone { ended(expected) } else { of_id }))
            }
            MuxClaim::Failed(error) => Some(Outcome::Failed(*error)),
            MuxClaim::Stale => None,
        };
        if claim != MuxClaim::Waiting {
            self.forget(waiter);
        }
        self.judge("M4", actual.map(in_any_turn), expected.map(in_any_turn));
        claim
    }

    /// [`Mux::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: MuxWaiterId, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, cancel(now, waiter));
        self.model.cancel(now.as_nanos(), self.number_of(waiter));
        self.forget(waiter);
        self.judge("M4", (), ());
    }

    /// [`Mux::release`].
    pub fn release(
        &mut self,
        now: Instant,
        stream: Stream,
        written: Written,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), ForeignStream> {
        let is_own = stream.mux() == self.mux.id();
        let (conn, id) = (number(stream.conn()), stream.id());
        let result = observed!(self, observer, release(now, stream, written));
        // The stream of another pool is returned before the call has an effect, even on the clock.
        if is_own {
            // The request may have ended with its connection.
            let request = self.model.request(conn, id).unwrap_or(0);
            self.model.release(now.as_nanos(), conn, request, written);
        }
        self.judge("M4", result.is_ok(), is_own);
        result
    }

    /// [`Mux::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, config: MuxConfig, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, reconfigure(now, config));
        self.model.reconfigure(now.as_nanos(), *config.options());
        self.judge("M6", (), ());
    }

    /// [`Mux::replace_connections`].
    pub fn replace_connections(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, replace_connections(now));
        self.model.replace_connections(now.as_nanos());
        self.judge("M3", (), ());
    }

    /// [`Mux::set_entropy`].
    pub const fn set_entropy(&mut self, entropy: u32) {
        self.mux.set_entropy(entropy);
        self.model.set_entropy(entropy);
    }

    /// [`Mux::keep_first_stream`].
    pub fn keep_first_stream(&mut self) {
        self.mux.keep_first_stream();
        self.model.keep_first_stream();
        self.judge("M1", (), ());
    }

    /// [`Mux::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, close(now));
        self.model.close(now.as_nanos());
        self.judge("M6", (), ());
    }

    /// [`Mux::handle_established`].
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_established(now, conn));
        let expected = self.model.handle_established(now.as_nanos(), number(conn));
        self.judge("M6", result.is_ok(), expected);
        result
    }

    /// [`Mux::handle_establish_failed`].
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_establish_failed(now, conn, cause));
        let expected = self.model.handle_establish_failed(now.as_nanos(), number(conn), cause);
        self.judge("M6", result.is_ok(), expected);
        result
    }

    /// [`Mux::handle_host_up`].
    pub fn handle_host_up(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, handle_host_up(now));
        self.model.handle_host_up(now.as_nanos());
        self.judge("M6", (), ());
    }

    /// [`Mux::handle_failed`].
    pub fn handle_failed(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        cause: Cause,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_failed(now, conn, cause));
        let expected = self.model.handle_failed(now.as_nanos(), number(conn), cause);
        self.judge("M6", result.is_ok(), expected);
        result
    }

    /// [`Mux::handle_reply`].
    pub fn handle_reply(
        &mut self,
        now: Instant,
        conn: MuxConnId,
        stream: i32,
        observer: &mut impl Observer<MuxEvent>,
    ) -> Result<Reply, ReplyError> {
        let result = observed!(self, observer, handle_reply(now, conn, stream));
        let expected = self.model.handle_reply(now.as_nanos(), number(conn), stream);
        self.judge("M2", result, expected);
        result
    }
}

/// The calls that every machine has: see `poolhouse_core::machine`.
#[allow(missing_docs, reason = "the machine documents them")]
impl<M: Bounded> Watched<M> {
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<MuxEvent>) {
        observed!(self, observer, handle_timeout(now));
        self.model.handle_timeout(now.as_nanos());
        self.judge("M6", (), ());
        let (now, due) = (self.model.now(), self.mux.poll_timeout());
        let is_done = due.is_none_or(|due| due.as_nanos() > now);
        self.require("P19", is_done, "due work was not done");
    }

    pub fn poll_action(&mut self, now: Instant) -> Option<MuxAction> {
        let polled = self.mux.poll_action(now);
        let model = &self.model;
        let owed = [Place::OwesClose, Place::OwesEstablish].map(|place| model.at(place).next().is_some());
        let [owes_close, owes_establish] = owed;
        let (owes_wake, owes_heartbeat) = (!model.owed_wakes().is_empty(), !model.owed_heartbeats().is_empty());
        // Wakes first, and establishments last.
        let (id, may) = match polled {
            None if owes_wake => ("P8", false),
            None => ("M6", !owes_close && !owes_establish && !owes_heartbeat),
            Some(MuxAction::Wake(_)) => ("P8", owes_wake),
            Some(MuxAction::Close(_)) => ("M6", !owes_wake),
            Some(MuxAction::Heartbeat(..)) => ("M6", owes_heartbeat),
            Some(MuxAction::Establish(_)) => ("M6", !owes_wake && !owes_heartbeat && !owes_close),
        };
        self.require(id, may, &format!("polled {polled:?}"));
        match polled {
            None => {}
            Some(MuxAction::Wake(waiter)) => self.model.took_wake(self.number_of(waiter)),
            Some(MuxAction::Close(conn)) => self.model.took_close(number(conn)),
            Some(MuxAction::Heartbeat(conn, stream)) => self.model.took_heartbeat(number(conn), stream),
            Some(MuxAction::Establish(conn)) => self.model.took_establish(number(conn)),
        }
        self.judge("M6", (), ());
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
            model: self.model.clone(),
            checks: self.checks.clone(),
            events: self.events.clone(),
            waiters: self.waiters.clone(),
            conns: self.conns.clone(),
            gone: self.gone.clone(),
        }
    }
}

/// How many events grant this stream: one, if it is granted to a request.
fn granted(events: &[(Instant, Event)], stream: &Stream) -> u64 {
    let is_it = |event: &Event| matches!(event, Event::Acquired(_, id, _) if *id == u64::from(stream.id()));
    events.iter().filter(|(_, event)| is_it(event)).count() as u64
}

/// The number of a request that has ended with its connection.
const fn ended(outcome: Option<Outcome>) -> u64 {
    if let Some(Outcome::Granted(_, request)) = outcome { request } else { 0 }
}

/// Waiters that time out in one call may do so in any order.
const fn in_any_turn(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(AcquireError::TimedOut { in_flight, .. }) => {
            Outcome::Failed(AcquireError::TimedOut { in_flight, queued: 0 })
        }
        Outcome::Waiting | Outcome::Granted(..) | Outcome::Failed(_) => outcome,
    }
}

/// Sorts each run of timeouts by the length of the wait: waiters that time out in one call may do
/// so in any order.
fn in_one_order(events: &mut [(Instant, Event)]) {
    let is_timeout = |event: &Event| matches!(event, Event::Failed(AcquireError::TimedOut { .. }, _));
    for run in events.chunk_by_mut(|(_, one), (_, next)| is_timeout(one) && is_timeout(next)) {
        let waited = |event: &Event| if let Event::Failed(_, waited) = event { *waited } else { None };
        let mut sorted: Vec<_> = run.iter().map(|(_, event)| waited(event)).collect();
        sorted.sort_unstable();
        for ((_, event), waited) in run.iter_mut().zip(sorted) {
            if let Event::Failed(_, own) = event {
                *own = waited;
            }
        }
    }
}

/// The invariant that an event breaks which is missing, or (`is_missing` is false) must not be.
fn of_event(event: &Event, is_missing: bool, model: &Model) -> &'static str {
    match event {
        Event::Reply(..) | Event::Late(..) | Event::Unknown(..) => "M2",
        Event::Retired(..) | Event::Orphaned(..) => "M3",
        Event::Failed(AcquireError::TimedOut { .. }, _) => {
            if is_missing {
                "P19"
            } else {
                "P18"
            }
        }
        Event::Failed(..) => "M4",
        Event::Acquired(..) | Event::Queued(_) => "M5",
        Event::Created(_) if model.queue().next().is_some() => "M5",
        Event::Created(_) | Event::Ready(..) | Event::Trashed(..) | Event::Resurrected(_) | Event::Closed(..) => "M6",
        Event::HeartbeatStarted(_) | Event::HeartbeatSucceeded(..) | Event::HeartbeatFailed(_) => "M6",
        Event::PoolCreated(_) | Event::Reconfigured(_) | Event::PoolClosed => "M6",
    }
}

/// The invariant that the first difference breaks.
fn difference(actual: &[(Instant, Event)], expected: &[(Instant, Event)], model: &Model) -> Violation {
    let place = actual.iter().zip(expected).take_while(|(actual, expected)| actual == expected).count();
    let id = match (actual.get(place), expected.get(place)) {
        (Some((_, actual)), Some((_, expected))) if actual == expected => "P25",
        (Some((_, Event::Acquired(conn, ..))), Some((_, Event::Acquired(other, ..)))) if conn != other => "M6",
        (Some((_, Event::Created(_))), Some((_, Event::Created(_)))) => "P6",
        (Some((_, Event::Ready(..))), Some((_, Event::Ready(..)))) => "P32",
        (Some((_, Event::Closed(..))), Some((_, Event::Closed(..)))) => "M4",
        (_, Some((_, expected))) => of_event(expected, true, model),
        (Some((_, actual)), None) => of_event(actual, false, model),
        (None, None) => unreachable!("they differ"),
    };
    Violation { id, what: format!("events of the pool: {actual:?}, of the model: {expected:?}") }
}

#[cfg(test)]
mod tests;
