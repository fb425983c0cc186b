//! A pool with an oracle that checks each call.

use super::{Action, Answer, Event, Input, Oracle, Outputs, Owed, Room, Seen};
use crate::oracle::Checks;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, Claim, Clear, ConnId, EstablishError, Fixed, ForeignLease, Generation, Health, Lease,
    Memory, OnHeap, Pinned, Pool, PoolAction, PoolConfig, PoolEvent, PoolId, ServiceError, Stale, WaiterId, WrongMode,
};
use poolhouse_core::{Cause, Instant, ObjectId, Observer};

/// Memory that declares its capacities.
pub trait Bounded: Memory + Clone + PartialEq {
    /// The capacities.
    const ROOM: Room;
}

impl Bounded for OnHeap {
    const ROOM: Room = Room::ENDLESS;
}

#[expect(clippy::cast_possible_truncation, reason = "the capacity of fixed memory is small")]
impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Bounded for Fixed<CONNS, WAITERS, SERVICES> {
    const ROOM: Room = Room { conns: CONNS as u32, waiters: WAITERS as u32, services: SERVICES as u32 };
}

/// A [`Pool`] and its oracle. It has the methods of a pool, and panics with the id of a broken
/// invariant.
pub struct Watched<M: Bounded> {
    pool: Pool<M>,
    oracle: Oracle,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, Event)>,
    /// Check-outs with an unclaimed outcome, and their numbers in the oracle.
    waiters: Vec<(WaiterId, u64)>,
    waiter_last: u64,
}

/// Passes events to the oracle and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, Event)>,
    observer: &'t mut O,
}

impl<O: Observer<PoolEvent>> Observer<PoolEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        self.events.push((now, Event::of(event)));
        self.observer.on_event(now, event);
    }
}

/// Calls the pool with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {
        $self.pool.$method($($argument,)* &mut Tee { events: &mut $self.events, observer: $observer })
    };
}

impl<M: Bounded> Watched<M> {
    /// [`Pool::new`].
    ///
    /// # Panics
    ///
    /// When an invariant is broken. This holds for all methods that change state.
    pub fn new(now: Instant, id: PoolId, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) -> Self {
        let mut events = Vec::new();
        let pool = Pool::new(now, id, config, &mut Tee { events: &mut events, observer });
        let oracle = Oracle::new(*config.options(), M::ROOM);
        let mut watched = Self { pool, oracle, checks: Checks::default(), events, waiters: Vec::new(), waiter_last: 0 };
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
    pub fn assert_peace(&mut self, limited: bool) {
        self.oracle.at_peace(limited, &mut self.checks).unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// [`Oracle::after_close`].
    ///
    /// # Panics
    ///
    /// When something is left.
    pub fn assert_over(&mut self) {
        self.oracle.after_close(&mut self.checks).unwrap_or_else(|violation| panic!("{violation}"));
    }

    fn seen(&self) -> Seen {
        Seen {
            counts: self.pool.counts(),
            state: self.pool.state(),
            generation: self.pool.generation().get(),
            services: self.pool.service_count(),
            fill_target: self.pool.fill_target(),
            timeout: self.pool.poll_timeout(),
        }
    }

    fn judge(&mut self, now: Instant, input: Input, answer: Answer) {
        let outputs = Outputs { answer, events: &self.events, seen: Some(self.seen()) };
        if let Err(violation) = self.oracle.step(now, input, &outputs, &mut self.checks) {
            panic!("{violation}\n  in {input:?}: {answer:?}, {:?}", self.events);
        }
        self.events.clear();
    }

    /// The number of a check-out in the oracle; 0 for a check-out that has ended.
    fn number_of(&self, waiter: WaiterId) -> u64 {
        self.waiters.iter().find(|(known, _)| *known == waiter).map_or(0, |(_, number)| *number)
    }

    fn forget(&mut self, waiter: WaiterId) {
        self.waiters.retain(|(known, _)| *known != waiter);
    }

    /// [`Pool::check_out`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn check_out(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let outcome = observed!(self, observer, check_out(now, deadline));
        let answer = match &outcome {
            Ok(CheckOut::Granted(lease)) => Answer::Granted(lease.conn().connection_id().get()),
            Ok(CheckOut::Queued(waiter)) => {
                self.waiter_last += 1;
                self.waiters.push((*waiter, self.waiter_last));
                Answer::Queued(self.waiter_last)
            }
            Err(error) => Answer::Failed(*error),
        };
        self.judge(now, Input::CheckOut { deadline }, answer);
        outcome
    }

    /// [`Pool::claim`].
    pub fn claim(&mut self, now: Instant, waiter: WaiterId) -> Claim {
        let claim = self.pool.claim(now, waiter);
        let number = self.number_of(waiter);
        let answer = match &claim {
            Claim::Waiting => Answer::Waiting,
            Claim::Granted(lease) => Answer::Granted(lease.conn().connection_id().get()),
            Claim::Failed(error) => Answer::Failed(*error),
            Claim::Stale => Answer::Stale,
        };
        if claim != Claim::Waiting {
            self.forget(waiter);
        }
        self.judge(now, Input::Claim { waiter: number }, answer);
        claim
    }

    /// [`Pool::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, cancel(now, waiter));
        let number = self.number_of(waiter);
        self.forget(waiter);
        self.judge(now, Input::Cancel { waiter: number }, Answer::None);
    }

    /// [`Pool::check_in`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn check_in(
        &mut self,
        now: Instant,
        lease: Lease,
        health: Health,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), ForeignLease> {
        let conn = self.own(&lease);
        let result = observed!(self, observer, check_in(now, lease, health));
        let answer = if result.is_ok() { Answer::Done } else { Answer::Stale };
        self.judge(now, Input::CheckIn { conn, health }, answer);
        result
    }

    /// [`Pool::check_out_with`] without an enabled observer, when neither the time nor an observer
    /// is needed. It is checked against the events of a check-out with an observer that returns the
    /// same connection at the time of the last call.
    ///
    /// # Panics
    ///
    /// When an invariant is broken, the clock is read, or no connection is granted.
    pub fn check_out_without_clock(&mut self) -> Lease {
        let now = self.oracle.now();
        let outcome = self.pool.check_out_with(|| panic!("the clock was read"), None, &mut ());
        let Ok(CheckOut::Granted(lease)) = outcome else { panic!("a connection is available, but: {outcome:?}") };
        let conn = lease.conn().connection_id().get();
        self.events.extend([(now, Event::Started), (now, Event::CheckedOut(conn, Duration::ZERO))]);
        self.judge(now, Input::CheckOut { deadline: None }, Answer::Granted(conn));
        lease
    }

    /// [`Pool::check_in_with`] of a healthy connection without an enabled observer, when neither
    /// the time nor an observer is needed. It is checked in the same way as
    /// [`Watched::check_out_without_clock`].
    ///
    /// # Panics
    ///
    /// When an invariant is broken, the clock is read, or the lease is of another pool.
    pub fn check_in_without_clock(&mut self, lease: Lease) {
        let (now, own) = (self.oracle.now(), self.own(&lease));
        let returned = self.pool.check_in_with(|| panic!("the clock was read"), lease, Health::Healthy, &mut ());
        returned.expect("a lease of this pool");
        self.events.extend(own.map(|conn| (now, Event::CheckedIn(conn))));
        self.judge(now, Input::CheckIn { conn: own, health: Health::Healthy }, Answer::Done);
    }

    fn own(&self, lease: &Lease) -> Option<u64> {
        (lease.pool() == self.pool.id()).then(|| lease.conn().connection_id().get())
    }

    /// [`Pool::ready`].
    pub fn ready(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, ready(now));
        self.judge(now, Input::Ready, Answer::None);
    }

    /// [`Pool::clear`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn clear(
        &mut self,
        now: Instant,
        clear: Clear,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), WrongMode> {
        let result = observed!(self, observer, clear(now, clear, cause));
        let answer = if result.is_ok() { Answer::Done } else { Answer::WrongMode };
        self.judge(now, Input::Clear { clear, cause }, answer);
        result
    }

    /// [`Pool::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, close(now));
        self.judge(now, Input::Close, Answer::None);
    }

    /// [`Pool::reset_after_fork`].
    pub fn reset_after_fork(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, reset_after_fork(now));
        self.judge(now, Input::Fork, Answer::None);
    }

    /// [`Pool::handle_service`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_service(&mut self, conn: ConnId, service_id: ObjectId) -> Result<Generation, ServiceError> {
        let result = self.pool.handle_service(conn, service_id);
        let answer = match result {
            Ok(generation) => Answer::Generation(generation.get()),
            Err(ServiceError::WrongMode) => Answer::WrongMode,
            Err(ServiceError::Full) => Answer::Full,
            Err(_) => Answer::Stale,
        };
        let conn = conn.connection_id().get();
        self.judge(Instant::ORIGIN, Input::Service { conn, service: service_id }, answer);
        result
    }

    /// [`Pool::handle_established`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: ConnId,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_established(now, conn));
        self.judge(now, Input::Established { conn: conn.connection_id().get() }, taken(result));
        result
    }

    /// [`Pool::handle_establish_failed`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: ConnId,
        error: EstablishError,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        let result = observed!(self, observer, handle_establish_failed(now, conn, error));
        self.judge(now, Input::EstablishFailed { conn: conn.connection_id().get(), error }, taken(result));
        result
    }

    /// [`Pool::pin`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn pin(&mut self, lease: &Lease, pinned: Pinned) -> Result<(), Stale> {
        let result = self.pool.pin(lease, pinned);
        let conn = self.own(lease);
        self.judge(Instant::ORIGIN, Input::Pin { conn }, taken(result));
        result
    }

    /// [`Pool::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, reconfigure(now, config));
        self.judge(now, Input::Reconfigure { options: *config.options() }, Answer::None);
    }

    /// [`Pool::set_fill_target`].
    pub fn set_fill_target(&mut self, now: Instant, count: u32, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, set_fill_target(now, count));
        self.judge(now, Input::Fill { count }, Answer::None);
    }

    /// [`Pool::retire`].
    pub fn retire(&mut self, now: Instant, id: ConnId, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, retire(now, id));
        self.judge(now, Input::Retire { conn: id.connection_id().get() }, Answer::None);
    }

    /// [`Pool::poll_establish`].
    pub fn poll_establish(&mut self) -> Option<ConnId> {
        let polled = self.pool.poll_establish();
        self.polled(Owed::Establish, polled.map(PoolAction::Establish));
        polled
    }

    /// [`Pool::poll_prompt`].
    pub fn poll_prompt(&mut self) -> Option<PoolAction> {
        let polled = self.pool.poll_prompt();
        self.polled(Owed::Prompt, polled);
        polled
    }

    fn polled(&mut self, owed: Owed, action: Option<PoolAction>) {
        let action = action.map(|action| match action {
            PoolAction::Establish(conn) => Action::Establish(conn.connection_id().get()),
            PoolAction::Interrupt(conn) => Action::Interrupt(conn.connection_id().get()),
            PoolAction::Close(conn) => Action::Close(conn.connection_id().get()),
            PoolAction::Wake(waiter) => Action::Wake(self.number_of(waiter)),
        });
        self.judge(Instant::ORIGIN, Input::Poll(owed), Answer::Action(action));
    }

    /// [`Pool::reserve`].
    ///
    /// # Errors
    ///
    /// The errors of that method.
    pub fn reserve(&mut self, conns: u32, waiters: u32) -> Result<(), poolhouse_core::storage::Full> {
        self.pool.reserve(conns, waiters)
    }

    /// [`Pool::conn_generation`], which must equal the generation in the oracle (P34).
    ///
    /// # Panics
    ///
    /// When the generations differ.
    #[must_use]
    pub fn conn_generation(&self, conn: ConnId) -> Option<Generation> {
        let generation = self.pool.conn_generation(conn);
        if let Some(own) = self.oracle.conn_generation(conn.connection_id().get()) {
            assert_eq!(generation.map(Generation::get), Some(own), "P34: the generation of {conn:?}");
        }
        generation
    }
}

fn taken(result: Result<(), Stale>) -> Answer {
    if result.is_ok() { Answer::Done } else { Answer::Stale }
}

/// The calls that every machine has: see `poolhouse_core::machine`.
#[allow(missing_docs, reason = "the machine documents them")]
impl<M: Bounded> Watched<M> {
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, handle_timeout(now));
        self.judge(now, Input::Timeout, Answer::None);
    }

    pub fn poll_action(&mut self, now: Instant) -> Option<PoolAction> {
        let polled = self.pool.poll_action(now);
        self.polled(Owed::Any, polled);
        polled
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pool.poll_timeout()
    }

    pub fn assert_invariants(&self) {
        self.pool.assert_invariants();
    }
}

/// The getters of the machine.
impl<M: Bounded> Deref for Watched<M> {
    type Target = Pool<M>;

    fn deref(&self) -> &Pool<M> {
        &self.pool
    }
}

impl<M: Bounded> core::fmt::Debug for Watched<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Watched").field("pool", &self.pool).field("oracle", &self.oracle).finish_non_exhaustive()
    }
}

impl<M: Bounded> Clone for Watched<M>
where
    Pool<M>: Clone,
{
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            oracle: self.oracle.clone(),
            checks: self.checks.clone(),
            events: self.events.clone(),
            waiters: self.waiters.clone(),
            waiter_last: self.waiter_last,
        }
    }
}

/// The check counts are not compared.
impl<M: Bounded> PartialEq for Watched<M>
where
    Pool<M>: PartialEq,
{
    fn eq(&self, other: &Self) -> bool {
        (&self.pool, &self.oracle, &self.waiters) == (&other.pool, &other.oracle, &other.waiters)
    }
}

impl<M: Bounded> Eq for Watched<M> where Pool<M>: Eq {}

impl<M: Bounded> Hash for Watched<M>
where
    Pool<M>: Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pool.hash(state);
        self.oracle.hash(state);
        self.waiters.hash(state);
    }
}
