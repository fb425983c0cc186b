//! State of the oracle of a pool. It is derived only from calls and events, never from getters.

use super::{Answer, Event, Input, Outputs, Room};
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, Clear, PoolOptions, PoolState};
use poolhouse_core::{Instant, ObjectId};

/// The first pause after a failed attempt in the background. It doubles up to the longest one.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(100);
pub(super) const PAUSE_LAST: Duration = Duration::from_secs(10);

/// Checks one pool. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) options: PoolOptions,
    pub(super) room: Room,
    /// `None` until an event has set it.
    pub(super) state: Option<PoolState>,
    pub(super) was_ready: bool,
    /// The pool is being closed: from the first connection that is closed for this reason until the
    /// event PoolClosed.
    pub(super) closing: bool,
    pub(super) now: Instant,
    pub(super) generation: u64,
    pub(super) services: BTreeMap<ObjectId, u64>,
    /// Connections that the pool counts.
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) pending: u32,
    pub(super) available: u32,
    pub(super) in_use: u32,
    /// The number of the newest connection.
    pub(super) newest: u64,
    /// Closed connections with a socket that must be closed, and with an establishment that must be
    /// abandoned.
    pub(super) owed_closes: BTreeSet<u64>,
    pub(super) owed_ends: BTreeSet<u64>,
    /// The turn of the newest waiter.
    pub(super) turn: u64,
    /// Waiters in order of arrival.
    pub(super) queue: Vec<Waiter>,
    /// Waiters with an unclaimed outcome, and whether they were woken.
    pub(super) settled: BTreeMap<u64, (Fate, bool)>,
    /// The waiter of a connection is ambiguous: two indistinguishable waiters have timed out.
    pub(super) unsure: bool,
    /// Waiters that have ended since then, by number. A twin may have ended instead.
    pub(super) doubtful: BTreeMap<u64, Waiter>,
    /// After a failure in the background: the end of the pause, and the length of the next pause.
    pub(super) pause_until: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) fill_target: u32,
    /// Connections were available when the pool was cleared, and no background run has followed.
    pub(super) sweep: bool,
    /// The deadline that the pool returned last.
    pub(super) said: Option<Instant>,
    /// The getters were read after the last call.
    pub(super) looked: bool,
    /// `maxPoolSize` or `maxConnecting` was lowered, so the counts may exceed them.
    pub(super) shrunk: bool,
}

/// A connection that the pool counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) created: Instant,
    pub(super) place: Place,
    pub(super) generation: u64,
    pub(super) service: Option<ObjectId>,
    /// The time since which it is available.
    pub(super) since: Instant,
    /// The purpose of its establishment.
    pub(super) purpose: Purpose,
    /// Its `Establish` was polled.
    pub(super) reported: bool,
    pub(super) interrupted: bool,
    /// `retire` was called while it was in use.
    pub(super) retired: bool,
    pub(super) owes_interrupt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Pending,
    Available,
    InUse,
}

/// The purpose of an establishment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Nobody,
    Background,
    /// For the waiter with this turn.
    Waiter(u64),
}

/// A check-out that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// Its turn: 1, 2, 3, .. in order of arrival.
    pub(super) turn: u64,
    /// The number that its host uses; 0 until it is known.
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) own: Option<Instant>,
    /// The end of its wait according to the options.
    pub(super) queue: Option<Instant>,
    pub(super) bound: Option<u64>,
    /// The limit of the options also applies while it is bound.
    pub(super) keeps_limit: bool,
}

impl Waiter {
    /// Whether no event can distinguish the two waiters.
    pub(super) fn is_twin(&self, other: &Self) -> bool {
        self.started == other.started && self.number > 0
    }

    /// The end of its wait. The end of time is no limit.
    pub(super) fn until(&self) -> Option<Instant> {
        let by_options = if self.bound.is_some() && !self.keeps_limit { None } else { self.queue };
        self.own.or(by_options).filter(|at| *at < Instant::MAX)
    }
}

/// How a check-out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Granted(u64),
    Failed(CheckOutError),
}

/// State of the oracle within one step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    /// The state of the pool before the step.
    pub(super) was: Option<PoolState>,
    pub(super) waited: usize,
    /// Number of counted connections before the step.
    pub(super) had: usize,
    /// The turn of the check-out that this call made.
    pub(super) newcomer: Option<u64>,
    /// The immediate result of that check-out.
    pub(super) outcome: Option<Fate>,
    /// The clear that the call causes.
    pub(super) clear: Option<Clear>,
    pub(super) cleared: bool,
    /// A check-out has failed because of the clear.
    pub(super) failing: bool,
    pub(super) timed_out: bool,
    pub(super) readied: bool,
    pub(super) created: u32,
    pub(super) checked_in: Option<u64>,
    /// The connection of the call was being established.
    pub(super) fresh: bool,
    /// The connection of the call was closed.
    pub(super) gone: bool,
    pub(super) closed: u32,
    /// The waiter that lost its bound connection in this step, and must end in this step.
    pub(super) unbound_waiter: Option<u64>,
    /// The maximum number of established connections in the step.
    pub(super) established: u32,
}

impl Oracle {
    /// Creates the oracle of a pool that is created next with these options and memory of this
    /// capacity.
    #[must_use]
    pub const fn new(options: PoolOptions, room: Room) -> Self {
        Self {
            options,
            room,
            state: None,
            was_ready: false,
            closing: false,
            now: Instant::ORIGIN,
            generation: 0,
            services: BTreeMap::new(),
            conns: BTreeMap::new(),
            pending: 0,
            available: 0,
            in_use: 0,
            newest: 0,
            owed_closes: BTreeSet::new(),
            owed_ends: BTreeSet::new(),
            turn: 0,
            queue: Vec::new(),
            settled: BTreeMap::new(),
            unsure: false,
            doubtful: BTreeMap::new(),
            pause_until: None,
            pause: PAUSE_FIRST,
            fill_target: 0,
            sweep: false,
            said: None,
            looked: false,
            shrunk: false,
        }
    }

    /// The time of the last step.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Checks one step.
    ///
    /// - `now`: the time passed to the machine. A time before the last one is replaced by the last
    ///   one. A call in the wrong mode changes nothing, not even the time.
    /// - `input`: the call. `outputs`: the observed outputs. `checks`: counts the checks.
    ///
    /// # Errors
    ///
    /// The first broken invariant. The oracle must not be used after that.
    pub fn step(
        &mut self,
        now: Instant,
        input: Input,
        outputs: &Outputs<'_>,
        checks: &mut Checks,
    ) -> Result<(), Violation> {
        // A call that is rejected for its mode has no effect, not even on the time.
        if outputs.answer != Answer::WrongMode {
            self.now = self.now.max(now);
        }
        let mut scene = Scene {
            input,
            checks,
            was: self.state,
            waited: self.queue.len(),
            had: self.conns.len(),
            newcomer: None,
            outcome: None,
            clear: None,
            cleared: false,
            failing: false,
            timed_out: false,
            readied: false,
            created: 0,
            checked_in: None,
            fresh: false,
            gone: false,
            closed: 0,
            unbound_waiter: None,
            established: self.available + self.in_use,
        };
        self.apply_call(&mut scene);
        for (at, event) in outputs.events {
            let held = self.now;
            let what = || format!("an event of {at:?} in a step at {held:?}: {event:?}");
            scene.checks.check("P25", *at == held || (input == Input::Unseen && *at >= held), what)?;
            self.event(*at, *event, &mut scene)?;
            scene.established = scene.established.max(self.available + self.in_use);
        }
        if input != Input::Unseen {
            self.result(&outputs.answer, &mut scene)?;
            self.conclude(outputs.events, &mut scene)?;
        }
        self.bind_all();
        self.looked = outputs.seen.is_some();
        match outputs.seen {
            Some(seen) => self.at_rest(&seen, &mut scene),
            None => Ok(()),
        }
    }

    /// Applies a call to the state before its events are processed.
    fn apply_call(&mut self, scene: &mut Scene<'_>) {
        let is_closed = self.state == Some(PoolState::Closed);
        if let Input::Established { conn } | Input::EstablishFailed { conn, .. } = scene.input {
            scene.fresh = self.conns.get(&conn).is_some_and(|it| it.place == Place::Pending);
        }
        if let Input::Clear { clear, .. } = scene.input {
            scene.clear = Some(clear);
        } else if scene.input == Input::Fork {
            // A fork clears all kinds of pools.
            scene.clear = Some(Clear::All { interrupt_in_use_connections: true });
        } else if let Input::EstablishFailed { conn, error } = scene.input {
            // A connection that was already stale does not cause a clear.
            let is_news = self.conns.get(&conn).is_some_and(|it| scene.fresh && !self.is_stale(it));
            scene.clear = error.clear.filter(|_| is_news);
        } else if let Input::Reconfigure { options } = scene.input {
            if !is_closed {
                let PoolOptions { load_balanced, background, max_idle_time, .. } = self.options;
                self.options = PoolOptions { load_balanced, background, ..options };
                self.shrunk = true;
                // Without maxIdleTimeMS the clock need not have been read, so the idle time starts
                // now.
                if max_idle_time.is_none() && options.max_idle_time.is_some() {
                    let now = self.now;
                    self.conns.values_mut().filter(|it| it.place == Place::Available).for_each(|it| it.since = now);
                }
            }
        } else if let Input::Retire { conn } = scene.input {
            if let Some(conn) = self.conns.get_mut(&conn).filter(|conn| conn.place != Place::Pending) {
                conn.retired = true;
            }
        } else if let Input::Fill { count } = scene.input {
            if !is_closed {
                self.pause_until = self.pause_until.filter(|_| count <= self.fill_target);
                self.fill_target = count;
            }
        }
        let is_fork = scene.input == Input::Fork;
        scene.clear = scene.clear.filter(|clear| !is_closed && (is_fork || self.is_mode_of(*clear)));
        // A paused pool emits no event for a clear.
        if let Some(clear) = scene.clear.filter(|_| self.state == Some(PoolState::Paused)) {
            self.raise(clear, is_fork);
        }
    }

    /// Whether a clear belongs to the pool's mode.
    pub(super) const fn is_mode_of(&self, clear: Clear) -> bool {
        matches!(clear, Clear::Service(_)) == self.options.load_balanced
    }

    /// Increases a generation.
    pub(super) fn raise(&mut self, clear: Clear, all_services: bool) {
        self.sweep |= self.available > 0;
        match clear {
            Clear::All { .. } => self.generation += 1,
            Clear::Service(service) => {
                if let Some(generation) = self.services.get_mut(&service) {
                    *generation += 1;
                }
            }
        }
        if all_services {
            self.services.values_mut().for_each(|generation| *generation += 1);
        }
    }

    pub(super) fn is_stale(&self, conn: &Conn) -> bool {
        let of_service = conn.service.and_then(|service| self.services.get(&service));
        conn.retired || conn.generation != of_service.copied().unwrap_or(self.generation)
    }

    /// Whether the connection exceeded maxIdleTimeMS.
    pub(super) fn is_idle(&self, conn: &Conn) -> bool {
        self.options.max_idle_time.is_some_and(|idle| self.now > conn.since.saturating_add(idle))
    }

    pub(super) const fn total(&self) -> u32 {
        self.pending + self.available + self.in_use
    }

    pub(super) const fn is_beyond_max(&self) -> bool {
        self.options.max_pool_size > 0 && self.total() > self.options.max_pool_size
    }

    /// Whether the pool fills and prunes itself in the background.
    pub(super) const fn is_in_background(&self) -> bool {
        self.options.background || self.fill_target > 0
    }

    /// Number of connections that a fill target results in.
    pub(super) fn goal_of(&self, target: u32) -> u32 {
        let max = self.options.max_pool_size;
        target.min(self.room.conns).min(if max == 0 { u32::MAX } else { max })
    }

    /// Number of connections to which the pool fills itself.
    pub(super) fn goal(&self) -> u32 {
        let min = self.options.min_pool_size;
        if self.fill_target == 0 { min } else { min.max(self.goal_of(self.fill_target)) }
    }

    /// Whether the memory has a free connection slot.
    pub(super) fn has_slot(&self) -> bool {
        let taken = self.conns.len() + self.owed_closes.len() + self.owed_ends.len();
        taken < self.room.conns as usize
    }

    /// Whether the options allow one more connection.
    pub(super) const fn may_create(&self) -> bool {
        let PoolOptions { max_pool_size: max, max_connecting, .. } = self.options;
        self.pending < max_connecting && (max == 0 || self.total() < max)
    }

    pub(super) fn has_background(&self) -> bool {
        let is_it = |conn: &Conn| conn.place == Place::Pending && conn.purpose == Purpose::Background;
        self.pending > 0 && self.conns.values().any(is_it)
    }

    /// Moves a connection from one count to another; `None` is outside the pool.
    pub(super) fn count(&mut self, from: Option<Place>, to: Option<Place>) {
        for (place, up) in [(from, false), (to, true)] {
            let count = match place {
                None => continue,
                Some(Place::Pending) => &mut self.pending,
                Some(Place::Available) => &mut self.available,
                Some(Place::InUse) => &mut self.in_use,
            };
            *count = if up { *count + 1 } else { *count - 1 };
        }
    }

    /// The generation of a connection that the pool counts.
    #[must_use]
    pub fn conn_generation(&self, conn: u64) -> Option<u64> {
        self.conns.get(&conn).map(|conn| conn.generation)
    }

    /// The last state of the pool according to its events.
    #[must_use]
    pub const fn state(&self) -> Option<PoolState> {
        self.state
    }

    /// Number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Number of counted connections.
    #[must_use]
    pub const fn conn_count(&self) -> u32 {
        self.total()
    }

    /// The latest end of a wait, of the waiters with a limit.
    #[must_use]
    pub fn last_limit(&self) -> Option<Instant> {
        self.queue.iter().filter_map(Waiter::until).max()
    }

    /// Checks that no check-out waits after the faults have stopped and connections were returned
    /// for long enough.
    ///
    /// - `limited`: no connection was established or returned, and time has advanced. Only waiters
    ///   without a limit, or with a limit in the future, may be left.
    ///
    /// # Errors
    ///
    /// When a waiter is left.
    pub fn at_peace(&self, limited: bool, checks: &mut Checks) -> Result<(), Violation> {
        if limited {
            let late = self.queue.iter().find(|waiter| waiter.until().is_some_and(|at| at <= self.now));
            return checks.check("P52", late.is_none(), || format!("{late:?} still waits"));
        }
        checks.check("P51", self.queue.is_empty(), || format!("{} still wait", self.queue.len()))
    }

    /// Checks that nothing is left after the pool was closed and all connections, outcomes and
    /// actions were returned, claimed and polled.
    ///
    /// # Errors
    ///
    /// When something is left.
    pub fn after_close(&self, checks: &mut Checks) -> Result<(), Violation> {
        let closed = self.state == Some(PoolState::Closed);
        checks.check("P43", closed, || format!("the pool is {:?}", self.state))?;
        let left = (self.total(), self.queue.len(), self.services.len());
        checks.check("P43", left == (0, 0, 0), || format!("connections, check-outs, services: {left:?} are left"))?;
        let owed = (self.owed_closes.len(), self.owed_ends.len(), self.settled.len());
        checks.check("P43", owed == (0, 0, 0), || format!("closes, interrupts, outcomes: {owed:?} are owed"))?;
        checks.check("P43", self.said.is_none(), || format!("something is due at {:?}", self.said))
    }

    /// Checks the new check-out against its events, and the obligations that must be met within the
    /// step.
    fn conclude(&self, events: &[(Instant, Event)], scene: &mut Scene<'_>) -> Result<(), Violation> {
        if let Some(turn) = scene.unbound_waiter.filter(|_| !self.unsure) {
            let waits = self.queue.iter().any(|waiter| waiter.turn == turn);
            scene
                .checks
                .check("P24", !waits, || "its connection could not be established, but it still waits".into())?;
        }
        if scene.input == Input::Poll(super::Owed::Any)
            || matches!(scene.input, Input::Claim { .. } | Input::Pin { .. })
        {
            scene.checks.check("P47", events.is_empty(), || format!("{:?} led to {events:?}", scene.input))?;
        }
        // Each connection and each check-out changes only a few times in a step.
        let bound = 8 + 4 * (scene.had + scene.waited + scene.created as usize);
        let many = || format!("{} events of {} connections and {} check-outs", events.len(), scene.had, scene.waited);
        scene.checks.check("P48", events.len() <= bound, many)?;
        if scene.newcomer.is_some() && !matches!(scene.input, Input::CheckOut { .. }) {
            return Err(Violation { id: "P28", what: "a check-out has started without a call".into() });
        }
        Ok(())
    }
}
