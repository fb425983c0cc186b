//! A pool, its model and its oracle. Each call is applied to the pool and to the model. The events
//! are checked by the oracle, and everything observable is compared with the model.

use super::Oracle;
use crate::machines::pool::Event;
use crate::model::pool::{CheckedOut, Model, Outcome, Place, Room};
use crate::oracle::{Checks, Violation};
use core::fmt::Debug;
use core::ops::Deref;
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, CheckOutFailedReason, Claim, Clear, ClosedReason, ConnId, EstablishError, Fixed,
    ForeignLease, Generation, Health, Lease, Memory, OnHeap, Pinned, Pool, PoolAction, PoolConfig, PoolEvent, PoolId,
    PoolState, ServiceError, Stale, WaiterId, WrongMode,
};
use poolhouse_core::sim::chance::{self, Point};
use poolhouse_core::{Cause, Instant, ObjectId, Observer};

/// Number of closed connections that are still checked.
const GONE_MAX: usize = 8;

/// Memory that declares its capacities.
pub trait Bounded: Memory + Clone + PartialEq {
    /// The capacities.
    const ROOM: Room;
}

impl Bounded for OnHeap {
    const ROOM: Room = Room::ENDLESS;
}

impl<const CONNS: usize, const WAITERS: usize, const SERVICES: usize> Bounded for Fixed<CONNS, WAITERS, SERVICES> {
    const ROOM: Room = Room { conns: CONNS, waiters: WAITERS, services: SERVICES };
}

/// A [`Pool`] with its model and its oracle. It has the methods of a pool, and panics with the id
/// of a broken invariant.
#[derive(Debug)]
pub struct Watched<M: Bounded> {
    pool: Pool<M>,
    model: Model,
    oracle: Oracle,
    checks: Checks,
    /// Events of this call so far.
    events: Vec<(Instant, Event)>,
    /// Check-outs with an unclaimed outcome, and their numbers in the model; the oldest first.
    waiters: Vec<(WaiterId, u64)>,
    /// Connections that the pool contains, in the order of their creation, and some that it no
    /// longer contains.
    conns: Vec<ConnId>,
    gone: Vec<ConnId>,
    /// Services that were used in calls.
    services: Vec<ObjectId>,
}

/// A call, with what decides which invariants it may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    New,
    CheckOut { was: PoolState },
    Claim { waiter: u64 },
    Cancel { was: Option<Outcome> },
    CheckIn { is_own: bool },
    Clear { interrupts: bool },
    Service,
    Established { was_pending: bool },
    EstablishFailed { was_pending: bool },
    Timeout { was_due: bool },
    Pin,
    Poll,
    Other,
}

impl Call {
    /// The invariant that a wrong result breaks.
    const fn of_result(self) -> &'static str {
        match self {
            Self::CheckOut { was: PoolState::Paused } => "P38",
            Self::CheckOut { was: PoolState::Closed } => "P42",
            Self::CheckOut { was: PoolState::Ready } => "P15",
            Self::Claim { waiter: 0 } => "P47",
            Self::Claim { .. } => "P8",
            Self::CheckIn { is_own: true } => "P16",
            Self::CheckIn { is_own: false } => "P7",
            Self::Service => "P45",
            Self::Established { was_pending: true } => "P36",
            Self::EstablishFailed { was_pending: true } => "P24",
            Self::Established { .. } | Self::EstablishFailed { .. } => "P41",
            Self::New | Self::Cancel { .. } | Self::Clear { .. } | Self::Timeout { .. } => "P47",
            Self::Pin | Self::Poll | Self::Other => "P47",
        }
    }

    /// The invariant that a wait breaks which this call should have ended.
    const fn of_wait(self) -> &'static str {
        match self {
            Self::Cancel { was: Some(Outcome::Granted(_)) } => "P13",
            Self::Cancel { .. } => "P11",
            Self::CheckIn { .. } => "P14",
            Self::Established { .. } => "P12",
            Self::Timeout { .. } => "P23",
            _ => "P10",
        }
    }

    /// The invariant that an event breaks which is missing, or (`is_missing` is false) must not be.
    fn of_event(self, event: &Event, is_missing: bool, model: &Model) -> &'static str {
        if self == (Self::Timeout { was_due: false }) {
            return "P50";
        }
        match event {
            Event::PoolCreated(_) => "P37",
            Event::PoolReady | Event::PoolCleared { .. } => "P29",
            Event::PoolClosed => "P42",
            Event::Started => "P28",
            Event::Created(_) if is_missing && model.unbound() < model.waiting() => self.of_wait(),
            Event::Created(_) if model.is_pausing() => "P53",
            Event::Created(_) => "P4",
            Event::Ready(..) => "P36",
            Event::CheckedOut(..) if is_missing => self.of_wait(),
            Event::CheckedOut(..) => "P21",
            Event::CheckedIn(_) if matches!(self, Self::Cancel { .. }) => "P13",
            Event::CheckedIn(_) => "P16",
            Event::Closed(_, reason, _) => self.of_close(*reason),
            Event::Failed(reason, error, _) => match (reason, error) {
                (CheckOutFailedReason::Timeout, _) if is_missing => "P19",
                (CheckOutFailedReason::Timeout, _) => "P18",
                (CheckOutFailedReason::PoolClosed, _) => "P42",
                (_, CheckOutError::PoolCleared { .. }) if matches!(self, Self::CheckOut { .. }) => "P38",
                (_, CheckOutError::PoolCleared { .. }) => "P39",
                (_, CheckOutError::EstablishFailed { .. }) => "P24",
                (_, CheckOutError::Busy { .. }) => "P48",
                (CheckOutFailedReason::ConnectionError, _) => "P11",
            },
        }
    }

    const fn of_close(self, reason: ClosedReason) -> &'static str {
        match (reason, self) {
            (ClosedReason::Idle, _) => "P26",
            (ClosedReason::PoolClosed, _) => "P42",
            (ClosedReason::Error, Self::EstablishFailed { .. }) => "P24",
            (ClosedReason::Error, _) => "P31",
            (ClosedReason::Stale, Self::Established { .. }) => "P36",
            (ClosedReason::Stale, Self::Clear { interrupts: true }) => "P30",
            (ClosedReason::Stale, Self::Timeout { .. }) => "P44",
            (ClosedReason::Stale, Self::CheckOut { .. }) => "P15",
            (ClosedReason::Stale, _) => "P35",
        }
    }

    /// The invariant that two different events of one kind break.
    fn of_difference(self, actual: &Event, expected: &Event, model: &Model) -> &'static str {
        match (actual, expected) {
            (Event::CheckedOut(..), Event::CheckedOut(..)) => "P9",
            (Event::Failed(..), Event::Failed(_, CheckOutError::EstablishFailed { .. }, _)) => "P46",
            (Event::Closed(..), Event::Closed(..)) | (Event::PoolCleared { .. }, Event::PoolCleared { .. }) => "P31",
            _ if core::mem::discriminant(actual) == core::mem::discriminant(expected) => "P31",
            // The expected event is missing, or the other one is too early.
            _ => self.of_event(expected, true, model),
        }
    }
}

/// Passes events to the checks and to the caller's observer.
struct Tee<'t, O> {
    events: &'t mut Vec<(Instant, Event)>,
    conns: &'t mut Vec<ConnId>,
    observer: &'t mut O,
}

impl<O: Observer<PoolEvent>> Observer<PoolEvent> for Tee<'_, O> {
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        if let PoolEvent::ConnectionCreated { conn, .. } = event {
            self.conns.push(*conn);
        }
        self.events.push((now, Event::of(event)));
        self.observer.on_event(now, event);
    }
}

/// Calls the pool with a `Tee` as the observer.
macro_rules! observed {
    ($self:ident, $observer:ident, $method:ident($($argument:expr),*)) => {{
        let result = $self.pool.$method(
            $($argument,)*
            &mut Tee { events: &mut $self.events, conns: &mut $self.conns, observer: $observer },
        );
        $self.note_ends();
        result
    }};
}

const fn number(conn: ConnId) -> u64 {
    conn.connection_id().get()
}

impl<M: Bounded> Watched<M> {
    /// [`Pool::new`].
    pub fn new(now: Instant, id: PoolId, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) -> Self {
        let (mut events, mut conns) = (Vec::new(), Vec::new());
        let pool = Pool::new(now, id, config, &mut Tee { events: &mut events, conns: &mut conns, observer });
        let mut watched = Self {
            pool,
            model: Model::new(now.as_nanos(), *config.options(), M::ROOM),
            oracle: Oracle::default(),
            checks: Checks::default(),
            events,
            waiters: Vec::new(),
            conns,
            gone: Vec::new(),
            services: Vec::new(),
        };
        watched.judge(Call::New, (), ());
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

    /// Check-outs with an unclaimed outcome, and their numbers in the model; the oldest first.
    #[must_use]
    pub fn waiters(&self) -> &[(WaiterId, u64)] {
        &self.waiters
    }

    /// Connections that the pool contains, in the order of their creation.
    #[must_use]
    pub fn conns(&self) -> &[ConnId] {
        &self.conns
    }

    /// Some connections that the pool no longer contains.
    #[must_use]
    pub fn gone(&self) -> &[ConnId] {
        &self.gone
    }

    /// Checks that no check-out waits after the faults have stopped and connections were returned
    /// for long enough.
    ///
    /// - `limited`: no connection was established or returned, and time has advanced. Only waiters
    ///   without a limit, or with a limit in the future, may be left.
    pub fn assert_peace(&mut self, limited: bool) {
        if limited {
            self.require("P52", !self.model.has_late(), "a check-out still waits");
        } else {
            self.require("P51", self.model.waiting() == 0, "a check-out still waits");
        }
    }

    /// Checks that nothing is left after the pool was closed and all connections, outcomes and
    /// actions were returned, claimed and polled.
    pub fn assert_over(&mut self) {
        let is_over = self.model.state() == PoolState::Closed && self.model.is_empty();
        self.require("P43", is_over && self.model.poll_timeout().is_none(), "something is left");
    }

    fn require(&mut self, id: &'static str, holds: bool, what: &str) {
        self.checks.check(id, holds, || what.into()).unwrap_or_else(|violation| panic!("{violation}"));
    }

    /// Compares the results of a call, its events, and the state after it.
    fn judge<A: PartialEq + Debug>(&mut self, call: Call, actual: A, expected: A) {
        #[cfg(test)]
        crate::oracle::tests::falsify::step(self, &tests::falsified::kinds());
        let judged = self.judge_events(call).and_then(|()| {
            self.checks.check(call.of_result(), actual == expected, || {
                format!("the pool returned {actual:?}, the model {expected:?}")
            })
        });
        if let Err(violation) = judged.and_then(|()| self.judge_state(call)) {
            panic!("{violation}\n  in {call:?}: {actual:?}, {:?}", self.events);
        }
        self.pool.assert_invariants();
        self.events.clear();
    }

    fn judge_events(&mut self, call: Call) -> Result<(), Violation> {
        for (at, event) in &self.events {
            self.oracle.event(*at, event, &mut self.checks)?;
        }
        let mut expected = core::mem::take(&mut self.model.events);
        self.model.set_ends(Vec::new());
        in_one_order(&mut self.events);
        in_one_order(&mut expected);
        if self.events != expected {
            return Err(difference(call, &self.events, &expected, &self.model));
        }
        let checks = &mut self.checks;
        for (_, event) in &expected {
            checks.add(call.of_event(event, true, &self.model));
            if let Event::Created(_) = event {
                checks.add("P10");
            }
            if let Event::Failed(CheckOutFailedReason::Timeout, ..) = event {
                ["P18", "P21", "P22", "P23"].into_iter().for_each(|id| checks.add(id));
            }
            if let Event::Failed(_, CheckOutError::EstablishFailed { .. }, _) = event {
                checks.add("P46");
            }
            if let Event::CheckedOut(..) = event {
                checks.add("P9");
            }
        }
        if call == (Call::Timeout { was_due: false }) {
            checks.add("P50");
        }
        if self.model.is_pausing() {
            checks.add("P53");
        }
        Ok(())
    }

    /// Compares all observable state of the pool.
    fn judge_state(&mut self, call: Call) -> Result<(), Violation> {
        let Self { pool, model, checks, .. } = self;
        let now = model.now();
        let counts = pool.counts();
        let [pending, available, in_use] = model.counts();
        let actual = [counts.pending, counts.available, counts.in_use, counts.waiting].map(|count| count as usize);
        checks.same(
            "P1",
            "pending, available, in use, waiting",
            actual,
            [pending, available, in_use, model.waiting()],
        )?;
        checks.same("P29", "state", pool.state(), model.state())?;
        checks.same("P34", "generation", pool.generation().get(), model.generation())?;
        let due = pool.poll_timeout().map(|at| at.as_nanos().max(now));
        checks.same("P20", "poll_timeout", due, model.poll_timeout().map(|at| at.max(now)))?;
        checks.same("P4", "fill target", pool.fill_target(), model.fill_target())?;
        let filled = |count| (pool.is_filled(count), model.is_filled(count));
        for (actual, expected) in [0, 1, 2, 5].map(filled) {
            checks.same("P4", "whether connections are established", actual, expected)?;
        }
        checks.same("P45", "services", pool.service_count() as usize, model.service_count())?;
        for &service in &self.services {
            let actual = pool.service_generation(service).get();
            checks.same("P45", "generation of a service", actual, model.service_generation(service))?;
        }
        for &conn in self.conns.iter().chain(&self.gone) {
            let expected = model.conn(number(conn));
            let generation = pool.conn_generation(conn).map(Generation::get);
            checks.same("P34", "generation of a connection", generation, expected.map(|conn| conn.generation))?;
            let service = expected.and_then(|conn| conn.service);
            checks.same("P45", "service of a connection", pool.conn_service(conn), service)?;
        }
        if matches!(call, Call::Timeout { .. }) {
            checks.check("P19", due.is_none_or(|due| due > now), || "something is due after handle_timeout".into())?;
        }
        self.gone.extend(self.conns.extract_if(.., |conn| model.conn(number(*conn)).is_none()));
        self.gone.drain(..self.gone.len().saturating_sub(GONE_MAX));
        Ok(())
    }

    /// Passes to the model the order in which check-outs have timed out, if there are several: that of
    /// their wake-ups.
    fn note_ends(&mut self) {
        let is_timeout = |event: &Event| matches!(event, Event::Failed(CheckOutFailedReason::Timeout, ..));
        if self.events.iter().filter(|(_, event)| is_timeout(event)).count() < 2 {
            return;
        }
        let ends = self.woken(self.pool.clone());
        self.model.set_ends(ends);
    }

    /// The check-outs that this pool wakes, in order.
    fn woken(&self, mut pool: Pool<M>) -> Vec<u64> {
        let woken = core::iter::from_fn(|| pool.poll_prompt());
        let numbers = woken.filter_map(|action| match action {
            PoolAction::Wake(waiter) => Some(self.number_of(waiter)),
            PoolAction::Establish(_) | PoolAction::Interrupt(_) | PoolAction::Close(_) => None,
        });
        numbers.collect()
    }

    /// Passes to the model the fault points with an observable effect that have fired in a check-out.
    fn note_fired(&mut self, before: [u64; Point::COUNT]) {
        let after = chance::fired();
        let times = |point: Point| after[point as usize] - before[point as usize];
        for _ in 0..times(Point::OldestAvailable) {
            self.model.reuse_oldest();
        }
        if times(Point::RefuseWaiter) > 0 {
            self.model.refuse_next();
        }
    }

    /// The number of a check-out in the model; 0 for a check-out that has ended.
    fn number_of(&self, waiter: WaiterId) -> u64 {
        self.waiters.iter().find(|(known, _)| *known == waiter).map_or(0, |(_, number)| *number)
    }

    fn forget(&mut self, waiter: WaiterId) {
        self.waiters.retain(|(known, _)| *known != waiter);
    }

    fn use_service(&mut self, service: ObjectId) {
        if !self.services.contains(&service) {
            self.services.push(service);
        }
    }

    /// [`Pool::check_out`].
    pub fn check_out(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<CheckOut, CheckOutError> {
        let (was, fired) = (self.model.state(), chance::fired());
        let outcome = observed!(self, observer, check_out(now, deadline));
        self.note_fired(fired);
        let expected = self.model.check_out(now.as_nanos(), deadline.map(Instant::as_nanos));
        let actual = match &outcome {
            Ok(CheckOut::Granted(lease)) => CheckedOut::Granted(number(lease.conn())),
            Ok(CheckOut::Queued(waiter)) => {
                let number = if let CheckedOut::Queued(number) = expected { number } else { 0 };
                self.waiters.push((*waiter, number));
                CheckedOut::Queued(number)
            }
            Err(error) => CheckedOut::Failed(*error),
        };
        self.judge(Call::CheckOut { was }, actual, expected);
        outcome
    }

    /// [`Pool::claim`].
    pub fn claim(&mut self, now: Instant, waiter: WaiterId) -> Claim {
        let claim = self.pool.claim(now, waiter);
        let waiter_number = self.number_of(waiter);
        let expected = self.model.claim(now.as_nanos(), waiter_number);
        let actual = match &claim {
            Claim::Waiting => Some(Outcome::Waiting),
            Claim::Granted(lease) => Some(Outcome::Granted(number(lease.conn()))),
            Claim::Failed(error) => Some(Outcome::Failed(*error)),
            Claim::Stale => None,
        };
        if claim != Claim::Waiting {
            self.forget(waiter);
        }
        self.judge(Call::Claim { waiter: waiter_number }, actual, expected);
        claim
    }

    /// [`Pool::cancel`].
    pub fn cancel(&mut self, now: Instant, waiter: WaiterId, observer: &mut impl Observer<PoolEvent>) {
        // A cancelled check-out is not woken. If it has timed out together with others, a copy shows their order.
        let is_due = self.pool.poll_timeout().is_some_and(|due| due <= now);
        let ends = is_due.then(|| {
            let mut copy = self.pool.clone();
            copy.handle_timeout(now, &mut ());
            self.woken(copy)
        });
        observed!(self, observer, cancel(now, waiter));
        if let Some(ends) = ends {
            self.model.set_ends(ends);
        }
        let number = self.number_of(waiter);
        let was = self.model.waiter(number).map(|waiter| waiter.outcome);
        self.forget(waiter);
        self.model.cancel(now.as_nanos(), number);
        self.judge(Call::Cancel { was }, (), ());
    }

    /// [`Pool::check_in`].
    pub fn check_in(
        &mut self,
        now: Instant,
        lease: Lease,
        health: Health,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), ForeignLease> {
        let conn = self.own(&lease);
        let result = observed!(self, observer, check_in(now, lease, health));
        match conn {
            Some(conn) => self.model.check_in(now.as_nanos(), conn, health),
            None => self.model.advance(now.as_nanos()),
        }
        self.judge(Call::CheckIn { is_own: conn.is_some() }, result.is_ok(), conn.is_some());
        result
    }

    /// [`Pool::check_out_with`] without an enabled observer, when neither the time nor an observer
    /// is needed. It is checked against the events of a check-out with an observer that returns the
    /// same connection at the time of the last call.
    pub fn check_out_without_clock(&mut self) -> Lease {
        let now = Instant::from_nanos(self.model.now());
        let fired = chance::fired();
        let outcome = self.pool.check_out_with(|| panic!("the clock was read"), |_| None, &mut ());
        self.note_fired(fired);
        let Ok(CheckOut::Granted(lease)) = outcome else { panic!("a connection is available, but: {outcome:?}") };
        let conn = number(lease.conn());
        self.events.extend([(now, Event::Started), (now, Event::CheckedOut(conn, Duration::ZERO))]);
        let expected = self.model.check_out_without_clock();
        self.judge(Call::CheckOut { was: PoolState::Ready }, conn, expected);
        lease
    }

    /// [`Pool::check_in_with`] of a healthy connection without an enabled observer, when neither
    /// the time nor an observer is needed. It is checked in the same way as
    /// [`Watched::check_out_without_clock`].
    pub fn check_in_without_clock(&mut self, lease: Lease) {
        let (now, conn) = (Instant::from_nanos(self.model.now()), number(lease.conn()));
        let returned = self.pool.check_in_with(|| panic!("the clock was read"), lease, Health::Healthy, &mut ());
        self.events.push((now, Event::CheckedIn(conn)));
        self.model.check_in_without_clock(conn);
        // A waiter may have taken the connection.
        let taken = self.model.events.iter().filter(|(_, event)| matches!(event, Event::CheckedOut(..)));
        self.events.extend(taken.copied());
        self.judge(Call::CheckIn { is_own: true }, returned, Ok(()));
    }

    fn own(&self, lease: &Lease) -> Option<u64> {
        (lease.pool() == self.pool.id()).then(|| number(lease.conn()))
    }

    /// [`Pool::ready`].
    pub fn ready(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, ready(now));
        self.model.ready(now.as_nanos());
        self.judge(Call::Other, (), ());
    }

    /// [`Pool::clear`].
    pub fn clear(
        &mut self,
        now: Instant,
        clear: Clear,
        cause: Option<Cause>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), WrongMode> {
        let result = observed!(self, observer, clear(now, clear, cause));
        if let Clear::Service(service) = clear {
            self.use_service(service);
        }
        let expected = self.model.clear(now.as_nanos(), clear, cause);
        let interrupts = clear == Clear::All { interrupt_in_use_connections: true };
        self.judge(Call::Clear { interrupts }, result.is_ok(), expected);
        result
    }

    /// [`Pool::close`].
    pub fn close(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, close(now));
        self.model.close(now.as_nanos());
        self.judge(Call::Other, (), ());
    }

    /// [`Pool::reset_after_fork`].
    pub fn reset_after_fork(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, reset_after_fork(now));
        self.model.reset_after_fork(now.as_nanos());
        self.judge(Call::Clear { interrupts: true }, (), ());
    }

    /// [`Pool::handle_service`].
    pub fn handle_service(&mut self, conn: ConnId, service: ObjectId) -> Result<Generation, ServiceError> {
        let result = self.pool.handle_service(conn, service);
        self.use_service(service);
        let expected = self.model.service(number(conn), service);
        if expected == Err(ServiceError::Full) {
            self.checks.add("P48");
        }
        self.judge(Call::Service, result.map(Generation::get), expected);
        result
    }

    fn is_pending(&self, conn: ConnId) -> bool {
        let place = self.model.conn(number(conn)).map(|conn| conn.place);
        matches!(place, Some(Place::OwesEstablish | Place::Establishing))
    }

    /// [`Pool::handle_established`].
    pub fn handle_established(
        &mut self,
        now: Instant,
        conn: ConnId,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        let was_pending = self.is_pending(conn);
        let result = observed!(self, observer, handle_established(now, conn));
        let expected = self.model.established(now.as_nanos(), number(conn));
        self.judge(Call::Established { was_pending }, result.is_ok(), expected);
        result
    }

    /// [`Pool::handle_establish_failed`].
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        conn: ConnId,
        error: EstablishError,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<(), Stale> {
        let was_pending = self.is_pending(conn);
        let result = observed!(self, observer, handle_establish_failed(now, conn, error));
        let expected = self.model.establish_failed(now.as_nanos(), number(conn), error);
        self.judge(Call::EstablishFailed { was_pending }, result.is_ok(), expected);
        result
    }

    /// [`Pool::pin`].
    pub fn pin(&mut self, lease: &Lease, pinned: Pinned) -> Result<(), Stale> {
        let result = self.pool.pin(lease, pinned);
        let conn = self.own(lease);
        if let Some(conn) = conn {
            self.model.pin(conn, pinned);
        }
        self.judge(Call::Pin, result.is_ok(), conn.is_some());
        result
    }

    /// [`Pool::reconfigure`].
    pub fn reconfigure(&mut self, now: Instant, config: PoolConfig, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, reconfigure(now, config));
        self.model.reconfigure(now.as_nanos(), *config.options());
        self.oracle.advance(Instant::from_nanos(self.model.now()));
        self.oracle.reconfigured(*self.model.options());
        let is_closed = self.model.state() == PoolState::Closed;
        let is_in_force = is_closed || self.pool.config().options() == self.model.options();
        self.judge(Call::Other, is_in_force, true);
    }

    /// [`Pool::set_fill_target`].
    pub fn set_fill_target(&mut self, now: Instant, count: u32, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, set_fill_target(now, count));
        self.model.set_fill_target(now.as_nanos(), count);
        self.judge(Call::Other, (), ());
    }

    /// [`Pool::retire`].
    pub fn retire(&mut self, now: Instant, id: ConnId, observer: &mut impl Observer<PoolEvent>) {
        observed!(self, observer, retire(now, id));
        self.model.retire(now.as_nanos(), number(id));
        self.oracle.retired(number(id));
        self.judge(Call::Other, (), ());
    }

    /// [`Pool::poll_establish`].
    pub fn poll_establish(&mut self) -> Option<ConnId> {
        let polled = self.pool.poll_establish();
        self.polled(true, false, polled.map(PoolAction::Establish));
        polled
    }

    /// [`Pool::poll_prompt`].
    pub fn poll_prompt(&mut self) -> Option<PoolAction> {
        let polled = self.pool.poll_prompt();
        self.polled(false, true, polled);
        polled
    }

    /// An action must be owed and of the polled kinds; without one, none of these kinds is owed.
    fn polled(&mut self, establish: bool, prompt: bool, action: Option<PoolAction>) {
        let model = &self.model;
        let (id, is_owed) = match action {
            None if prompt && !model.owed_wakes().is_empty() => ("P8", false),
            None if prompt && !model.owed_interrupts().is_empty() => ("P40", false),
            None if prompt && !model.owed_closes().is_empty() => ("P5", false),
            None => ("P5", !establish || model.owed_establishes().is_empty()),
            // The oldest is established first.
            Some(PoolAction::Establish(conn)) => {
                ("P5", establish && model.owed_establishes().first() == Some(&number(conn)))
            }
            Some(PoolAction::Close(conn)) => ("P5", prompt && model.owed_closes().contains(&number(conn))),
            Some(PoolAction::Interrupt(conn)) => ("P40", prompt && model.owed_interrupts().contains(&number(conn))),
            Some(PoolAction::Wake(waiter)) => {
                let known = self.waiters.iter().find(|(known, _)| *known == waiter);
                ("P8", prompt && known.is_some_and(|(_, number)| model.owed_wakes().contains(number)))
            }
        };
        self.checks
            .check(id, is_owed, || format!("polled {action:?}"))
            .unwrap_or_else(|violation| panic!("{violation}"));
        match action {
            None => {}
            Some(PoolAction::Establish(conn)) => self.model.took_establish(number(conn)),
            Some(PoolAction::Close(conn)) => self.model.took_close(number(conn)),
            Some(PoolAction::Interrupt(conn)) => self.model.took_interrupt(number(conn)),
            Some(PoolAction::Wake(waiter)) => self.model.took_wake(self.number_of(waiter)),
        }
        self.judge(Call::Poll, (), ());
    }
}

/// The calls that every machine has: see `poolhouse_core::machine`.
#[allow(missing_docs, reason = "the machine documents them")]
impl<M: Bounded> Watched<M> {
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<PoolEvent>) {
        let was_due = self.model.poll_timeout().is_some_and(|due| due <= now.as_nanos().max(self.model.now()));
        observed!(self, observer, handle_timeout(now));
        self.model.handle_timeout(now.as_nanos());
        self.judge(Call::Timeout { was_due }, (), ());
    }

    pub fn poll_action(&mut self, now: Instant) -> Option<PoolAction> {
        let polled = self.pool.poll_action(now);
        self.polled(true, true, polled);
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

impl<M: Bounded> Clone for Watched<M>
where
    Pool<M>: Clone,
{
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            model: self.model.clone(),
            oracle: self.oracle.clone(),
            checks: self.checks.clone(),
            events: self.events.clone(),
            waiters: self.waiters.clone(),
            conns: self.conns.clone(),
            gone: self.gone.clone(),
            services: self.services.clone(),
        }
    }
}

/// Sorts each run of timeouts by the length of the wait: check-outs that time out in one call may
/// do so in any order.
fn in_one_order(events: &mut [(Instant, Event)]) {
    let is_timeout = |event: &Event| matches!(event, Event::Failed(CheckOutFailedReason::Timeout, ..));
    for run in events.chunk_by_mut(|(_, one), (_, next)| is_timeout(one) && is_timeout(next)) {
        run.sort_by_key(|(_, event)| if let Event::Failed(.., duration) = event { *duration } else { Duration::ZERO });
    }
}

/// The invariant that the first difference breaks.
fn difference(call: Call, actual: &[(Instant, Event)], expected: &[(Instant, Event)], model: &Model) -> Violation {
    let place = actual.iter().zip(expected).take_while(|(actual, expected)| actual == expected).count();
    let id = match (actual.get(place), expected.get(place)) {
        (Some((at, actual)), Some((due, expected))) if actual == expected => {
            debug_assert_ne!(at, due, "they differ");
            "P25"
        }
        (Some((_, actual)), Some((_, expected))) => call.of_difference(actual, expected, model),
        (None, Some((_, expected))) => call.of_event(expected, true, model),
        (Some((_, actual)), None) => call.of_event(actual, false, model),
        (None, None) => unreachable!("they differ"),
    };
    Violation { id, what: format!("events of the pool: {actual:?}, of the model: {expected:?}") }
}

#[cfg(test)]
mod tests;
