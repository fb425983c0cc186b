//! A naive pool: two lists that are scanned for each question.
//!
//! Written from CMAP-01..102 and the [invariants](crate::invariants) P1..P60. It shares value types
//! with the machine (causes, reasons, errors), but no logic: durations are nanoseconds, connections
//! and check-outs are numbers.

mod commands;
mod news;
mod words;

pub use commands::CheckedOut;

use crate::machines::pool::Event;
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, Pinned, PoolOptions, PoolState, Usage};
use poolhouse_core::{Cause, Instant, ObjectId};

/// Capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Connections, including closed ones with an owed close action.
    pub conns: usize,
    /// Check-outs with an unclaimed outcome.
    pub waiters: usize,
    /// Services.
    pub services: usize,
}

impl Room {
    /// No limits.
    pub const ENDLESS: Self = Self { conns: usize::MAX, waiters: usize::MAX, services: usize::MAX };
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The host has not taken the establish action.
    OwesEstablish,
    /// The host is establishing it.
    Establishing,
    /// Available for check-out.
    Available,
    /// Checked out.
    InUse,
    /// Closed, but the host has not taken the action to abandon the establishment.
    OwesAbandon,
    /// Closed, but the host has not taken the action to close the socket.
    OwesClose,
}

impl Place {
    const fn is_pending(self) -> bool {
        matches!(self, Self::OwesEstablish | Self::Establishing)
    }
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Its number.
    pub id: u64,
    /// Its state.
    pub place: Place,
    /// The generation of the pool, or of its service, at its creation.
    pub generation: u64,
    /// Its service, once known.
    pub service: Option<ObjectId>,
    created: u64,
    available_since: u64,
    /// Increases with each connection that becomes available.
    turn: u64,
    pinned: Pinned,
    interrupted: bool,
    retired: bool,
    owes_interrupt: bool,
    /// The check-out for which it is established.
    bound: Option<u64>,
    background: bool,
}

/// State of a check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Not decided yet.
    Waiting,
    /// Granted this connection.
    Granted(u64),
    /// It failed.
    Failed(CheckOutError),
}

/// A check-out that was not served immediately.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Its number. Older check-outs have smaller numbers.
    pub number: u64,
    /// Its state.
    pub outcome: Outcome,
    started: u64,
    deadline: Option<u64>,
    /// waitQueueTimeoutMS when the wait began; 0 is no limit.
    limit: Option<u64>,
    /// The connection that is established for it.
    bound: Option<u64>,
    owes_wake: bool,
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    /// Events since they were last taken, with their times.
    pub events: Vec<(Instant, Event)>,
    options: PoolOptions,
    room: Room,
    state: PoolState,
    now: u64,
    generation: u64,
    services: BTreeMap<ObjectId, (u64, u32)>,
    conns: Vec<Conn>,
    waiters: Vec<Waiter>,
    cleared_by: Option<Cause>,
    last_id: u64,
    last_number: u64,
    last_turn: u64,
    /// Earliest time at which the next connection is established in the background.
    populate_at: Option<u64>,
    /// A clear has requested a background run.
    run_due: bool,
    backoff_ms: u64,
    /// Connections opened in the background, each less than a second after the one before it.
    opened: u32,
    /// When the last one was opened.
    opened_at: u64,
    /// The one-time fill target, in connections.
    fill_target: u32,
    /// The options have been changed.
    reconfigured: bool,
    /// The next check-out finds no room to wait.
    refuses: bool,
    /// The order in which the pool ends check-outs that are late at the same time.
    ends: Vec<u64>,
}

/// The first pause after a failure in the background.
const BACKOFF_FIRST_MS: u64 = 100;
/// The longest pause.
const BACKOFF_LAST_MS: u64 = 10_000;
const SECOND_NS: u64 = 1_000_000_000;

impl Model {
    /// Creates a pool: paused and empty (CMAP-32, P37).
    #[must_use]
    pub fn new(now: u64, options: PoolOptions, room: Room) -> Self {
        Self {
            events: vec![(Instant::from_nanos(now), Event::PoolCreated(options))],
            options,
            room,
            state: PoolState::Paused,
            now,
            generation: 0,
            services: BTreeMap::new(),
            conns: Vec::new(),
            waiters: Vec::new(),
            cleared_by: None,
            last_id: 0,
            last_number: 0,
            last_turn: 0,
            populate_at: None,
            run_due: false,
            backoff_ms: BACKOFF_FIRST_MS,
            opened: 0,
            opened_at: now,
            fill_target: 0,
            reconfigured: false,
            refuses: false,
            ends: Vec::new(),
        }
    }

    /// The time of the last input.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Whether the pool grants connections.
    #[must_use]
    pub const fn state(&self) -> PoolState {
        self.state
    }

    /// Number of clears.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The options in force.
    #[must_use]
    pub const fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Number of clears of a service; 0 for a service without connections (CMAP-90).
    #[must_use]
    pub fn service_generation(&self, service: ObjectId) -> u64 {
        self.services.get(&service).map_or(0, |&(generation, _)| generation)
    }

    /// Number of services that have connections.
    #[must_use]
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// A connection that the pool counts, or for which it still owes an action.
    #[must_use]
    pub fn conn(&self, id: u64) -> Option<&Conn> {
        self.conns.iter().find(|conn| conn.id == id)
    }

    /// A check-out with an unclaimed outcome.
    #[must_use]
    pub fn waiter(&self, number: u64) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.number == number)
    }

    /// Whether check-outs with an unclaimed outcome, connections, services or owed actions are
    /// left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.conns.is_empty() && self.services.is_empty()
    }

    /// The end of the last wait that has a limit.
    #[must_use]
    pub fn last_limit(&self) -> Option<u64> {
        self.queue().filter_map(|waiter| self.due(waiter)).max()
    }

    /// Whether a check-out still waits at its limit.
    #[must_use]
    pub fn has_late(&self) -> bool {
        self.queue().filter_map(|waiter| self.due(waiter)).any(|at| at <= self.now)
    }

    /// Whether the next attempt in the background must wait for the end of a pause.
    #[must_use]
    pub fn is_pausing(&self) -> bool {
        self.populate_at.max(self.rate_ends_at()).is_some_and(|at| at > self.now)
    }

    /// Whether a connection is being established for a waiter.
    #[must_use]
    pub fn is_bound(&self, number: u64) -> bool {
        self.waiter(number).is_some_and(|waiter| waiter.bound.is_some())
    }

    /// Pending, available and in-use connections (CMAP-21).
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        let count = |test: fn(Place) -> bool| self.conns.iter().filter(|conn| test(conn.place)).count();
        [count(Place::is_pending), count(|place| place == Place::Available), count(|place| place == Place::InUse)]
    }

    /// Number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue().count()
    }

    /// Number of waiters for which no connection is being established.
    #[must_use]
    pub fn unbound(&self) -> usize {
        self.queue().filter(|waiter| waiter.bound.is_none()).count()
    }

    fn limits(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue().filter_map(|waiter| self.due(waiter))
    }

    /// Whether a waiter has a time limit.
    fn has_limits(&self) -> bool {
        self.limits().next().is_some()
    }

    /// The earliest deadline (P20).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let deadlines = self.limits();
        let perishing = self.conns.iter().filter(|conn| conn.place == Place::Available && self.in_background());
        let perishing = perishing.filter_map(|conn| self.idle_at(conn));
        let run = (self.run_due && self.in_background()).then_some(self.now);
        // A connection slot is free and a waiter is unserved.
        let serve = (self.may_create() && self.unbound() > 0).then_some(self.now);
        let populate = if self.in_background() && self.wants_population() && self.conns.len() < self.room.conns {
            self.populate_at.max(self.rate_ends_at()).or_else(|| self.may_create().then_some(self.now))
        } else {
            None
        };
        deadlines.chain(perishing).chain(run).chain(serve).chain(populate).min()
    }

    /// Waiters with an owed wake action.
    #[must_use]
    pub fn owed_wakes(&self) -> Vec<u64> {
        self.waiters.iter().filter(|waiter| waiter.owes_wake).map(|waiter| waiter.number).collect()
    }

    /// Connections with an owed interrupt action.
    #[must_use]
    pub fn owed_interrupts(&self) -> Vec<u64> {
        let owed = self.conns.iter().filter(|conn| conn.owes_interrupt || conn.place == Place::OwesAbandon);
        owed.map(|conn| conn.id).collect()
    }

    /// Connections with an owed close action.
    #[must_use]
    pub fn owed_closes(&self) -> Vec<u64> {
        self.conns.iter().filter(|conn| conn.place == Place::OwesClose).map(|conn| conn.id).collect()
    }

    /// Connections with an owed establish action, in the order of their creation.
    #[must_use]
    pub fn owed_establishes(&self) -> Vec<u64> {
        self.conns.iter().filter(|conn| conn.place == Place::OwesEstablish).map(|conn| conn.id).collect()
    }

    /// A fault point of the pool has made the oldest available connection the newest.
    pub fn reuse_oldest(&mut self) {
        if let Some(oldest) = self.available().first().map(|conn| conn.id) {
            self.last_turn += 1;
            self.conn_mut(oldest).turn = self.last_turn;
        }
    }

    /// A fault point of the pool makes it refuse the next check-out that must wait.
    pub const fn refuse_next(&mut self) {
        self.refuses = true;
    }

    /// Sets the order in which the next call ends check-outs that are late at the same time. It
    /// decides which of their connections are bound to which other check-outs.
    pub fn set_ends(&mut self, ends: Vec<u64>) {
        self.ends = ends;
    }

    // --- The requirements, in the terms that the commands use ---

    fn emit(&mut self, event: Event) {
        self.events.push((Instant::from_nanos(self.now), event));
    }

    const fn since(&self, started: u64) -> Duration {
        Duration::from_nanos(self.now - started)
    }

    /// Every call sets the time, also one without another effect. A time before the current one is
    /// ignored (P25).
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    fn queue(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().filter(|waiter| waiter.outcome == Outcome::Waiting)
    }

    /// End of the wait of a check-out. waitQueueTimeoutMS applies only to a check-out without a
    /// deadline (CMAP-28), and only until a connection is being established for it (CMAP-26),
    /// unless the options extend it.
    fn due(&self, waiter: &Waiter) -> Option<u64> {
        let applies = waiter.bound.is_none() || self.options.limits_establishing;
        let limit = waiter.limit.filter(|_| applies);
        let by_option = limit.map(|limit| waiter.started.saturating_add(limit));
        let at = if waiter.deadline.is_some() { waiter.deadline } else { by_option };
        // The end of time is never reached.
        at.filter(|&at| at < u64::MAX - 1)
    }

    /// The maximum number of connections.
    fn limit(&self) -> usize {
        match self.options.max_pool_size as usize {
            0 => self.room.conns,
            max => max.min(self.room.conns),
        }
    }

    fn total(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Whether there are more connections than the maximum: only after it was lowered.
    #[must_use]
    pub fn is_beyond_max(&self) -> bool {
        self.options.max_pool_size > 0 && self.total() > self.options.max_pool_size as usize
    }

    fn may_create(&self) -> bool {
        let below_limits = self.total() < self.limit() && self.counts()[0] < self.options.max_connecting as usize;
        self.state == PoolState::Ready && below_limits && self.conns.len() < self.room.conns
    }

    /// The fill target of the pool; 0 is none.
    #[must_use]
    pub const fn fill_target(&self) -> u32 {
        self.fill_target
    }

    /// Whether this many connections, or the maximum, are established and fit.
    #[must_use]
    pub fn is_filled(&self, count: u32) -> bool {
        let [_, available, in_use] = self.counts();
        self.state == PoolState::Ready && !self.run_due && available + in_use >= self.limit().min(count as usize)
    }

    /// Whether it establishes connections in the background: always, or during a fill.
    const fn in_background(&self) -> bool {
        self.options.background || self.fill_target > 0
    }

    /// Whether a connection is being established for no particular check-out.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.conns.iter().any(|conn| conn.place.is_pending() && conn.background)
    }

    /// Connections that were opened in the background without a pause of a second since.
    fn opened(&self) -> u32 {
        if self.opened_at.saturating_add(SECOND_NS) > self.now { self.opened } else { 0 }
    }

    /// The end of the pause after as many connections were opened as are kept (P53).
    fn rate_ends_at(&self) -> Option<u64> {
        let limit = u32::try_from(self.limit()).unwrap_or(u32::MAX);
        let rate = self.options.min_pool_size.max(self.fill_target.min(limit));
        let is_reached = self.opened() > 0 && self.opened() >= rate;
        is_reached.then(|| self.opened_at.saturating_add(SECOND_NS))
    }

    fn wants_population(&self) -> bool {
        let min = (self.options.min_pool_size.max(self.fill_target) as usize).min(self.limit());
        let at_it = self.conns.iter().any(|conn| conn.place.is_pending() && conn.background);
        self.state == PoolState::Ready && self.total() < min && !at_it
    }

    /// CMAP-18. In load-balanced mode only the generation of the service counts (CMAP-91).
    fn is_stale(&self, conn: &Conn) -> bool {
        let current = match (self.options.load_balanced, conn.service) {
            (false, _) => self.generation,
            (true, None) => conn.generation,
            (true, Some(service)) => self.service_generation(service),
        };
        conn.interrupted || conn.retired || conn.generation != current
    }

    /// The time at which an available connection will exceed maxIdleTimeMS (CMAP-19).
    fn idle_at(&self, conn: &Conn) -> Option<u64> {
        let limit = self.options.max_idle_time.map_or(0, nanos);
        (limit > 0).then(|| conn.available_since.saturating_add(limit).saturating_add(1))
    }

    fn perished(&self, conn: &Conn) -> Option<ClosedReason> {
        if self.is_stale(conn) {
            Some(ClosedReason::Stale)
        } else if self.idle_at(conn).is_some_and(|at| at <= self.now) {
            Some(ClosedReason::Idle)
        } else {
            None
        }
    }

    fn conn_mut(&mut self, id: u64) -> &mut Conn {
        self.conns.iter_mut().find(|conn| conn.id == id).expect("a connection of the model")
    }

    fn waiter_mut(&mut self, number: u64) -> &mut Waiter {
        self.waiters.iter_mut().find(|waiter| waiter.number == number).expect("a check-out of the model")
    }

    /// CMAP-44.
    fn create(&mut self) -> u64 {
        self.last_id += 1;
        self.conns.push(Conn {
            id: self.last_id,
            place: Place::OwesEstablish,
            generation: self.generation,
            service: None,
            created: self.now,
            available_since: 0,
            turn: 0,
            pinned: Pinned::No,
            interrupted: false,
            retired: false,
            owes_interrupt: false,
            bound: None,
            background: false,
        });
        self.emit(Event::Created(self.last_id));
        self.last_id
    }

    fn bind(&mut self, number: u64, id: u64) {
        self.waiter_mut(number).bound = Some(id);
        self.conn_mut(id).bound = Some(number);
    }

    /// Binds an unbound pending connection to the oldest waiter that has none.
    fn rebind(&mut self, id: u64) {
        self.conn_mut(id).bound = None;
        let conn = self.conn(id).cloned().expect("a connection of the model");
        let first = self.queue().find(|waiter| waiter.bound.is_none()).map(|waiter| waiter.number);
        if let Some(number) = first.filter(|_| !self.is_stale(&conn)) {
            self.bind(number, id);
        }
    }

    /// Creates connections for waiters, the oldest first, and then for minPoolSize or the fill
    /// target (CMAP-54, CMAP-63, CMAP-64).
    fn serve(&mut self, populate: bool) {
        while self.may_create() {
            let Some(number) = self.queue().find(|waiter| waiter.bound.is_none()).map(|waiter| waiter.number) else {
                break;
            };
            let id = self.create();
            self.bind(number, id);
        }
        if self.fill_target > 0 && self.is_filled(self.fill_target) {
            self.fill_target = 0;
        }
        let is_due = self.populate_at.is_none_or(|at| at <= self.now) && self.rate_ends_at().is_none();
        if populate && self.wants_population() && is_due {
            self.populate_at = None;
            if !self.may_create() {
                return;
            }
            let id = self.create();
            self.conn_mut(id).background = true;
        }
    }

    /// Grants an established connection to the oldest waiter, also if it was created for another
    /// one (CMAP-23, CMAP-66).
    fn give(&mut self, id: u64) {
        let Some(oldest) = self.queue().next().cloned() else {
            if self.is_beyond_max() {
                self.close_conn(id, ClosedReason::Idle, None, Some(Place::OwesClose));
                return;
            }
            self.last_turn += 1;
            let (now, turn) = (self.now, self.last_turn);
            let conn = self.conn_mut(id);
            conn.place = Place::Available;
            conn.available_since = now;
            conn.turn = turn;
            return;
        };
        let heir = self.conn_mut(id).bound.take().filter(|&number| number != oldest.number);
        let waiter = self.waiter_mut(oldest.number);
        waiter.outcome = Outcome::Granted(id);
        waiter.owes_wake = true;
        waiter.bound = None;
        self.conn_mut(id).place = Place::InUse;
        self.emit(Event::CheckedOut(id, self.since(oldest.started)));
        if let Some(other) = oldest.bound.filter(|&other| other != id) {
            match heir {
                Some(number) => self.bind(number, other),
                None => self.rebind(other),
            }
        }
    }

    /// Ends the wait of a check-out. A connection that was being established for it becomes
    /// unbound.
    fn fail(&mut self, number: u64, error: CheckOutError) -> Option<u64> {
        let waiter = self.waiter_mut(number);
        waiter.outcome = Outcome::Failed(error);
        waiter.owes_wake = true;
        let (bound, started) = (waiter.bound.take(), waiter.started);
        self.emit(Event::Failed(reason_of(error), error, self.since(started)));
        if let Some(id) = bound {
            self.conn_mut(id).bound = None;
        }
        bound
    }

    fn fail_all(&mut self, error: CheckOutError) {
        for number in self.queue().map(|waiter| waiter.number).collect::<Vec<_>>() {
            self.fail(number, error);
        }
    }

    /// Removes a connection from the counts and emits its event. It stays in the list only while
    /// the host must take an action (CMAP-47).
    fn close_conn(&mut self, id: u64, reason: ClosedReason, cause: Option<Cause>, owed: Option<Place>) {
        let conn = self.conn_mut(id);
        conn.owes_interrupt = false;
        conn.bound = None;
        let service = conn.service.take();
        if let Some(place) = owed {
            conn.place = place;
        } else {
            self.conns.retain(|conn| conn.id != id);
        }
        if let Some(service) = service {
            let (generation, count) = self.services[&service];
            if count == 1 {
                self.services.remove(&service);
            } else {
                self.services.insert(service, (generation, count - 1));
            }
        }
        self.emit(Event::Closed(id, reason, cause));
    }

    fn usage(&self) -> Option<Usage> {
        let pinned = |to| {
            let count = self.conns.iter().filter(|conn| conn.place == Place::InUse && conn.pinned == to).count();
            u32::try_from(count).expect("few connections")
        };
        self.options.load_balanced.then(|| Usage {
            max_pool_size: self.options.max_pool_size,
            cursors: pinned(Pinned::Cursor),
            transactions: pinned(Pinned::Transaction),
            others: pinned(Pinned::No),
        })
    }
}

const fn reason_of(error: CheckOutError) -> CheckOutFailedReason {
    match error {
        CheckOutError::PoolClosed => CheckOutFailedReason::PoolClosed,
        CheckOutError::WaitQueueTimeout { .. } => CheckOutFailedReason::Timeout,
        CheckOutError::PoolCleared { .. }
        | CheckOutError::EstablishFailed { .. }
        | CheckOutError::Busy { .. }
        | CheckOutError::Cancelled
        | _ => CheckOutFailedReason::ConnectionError,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
