//! What an oracle knows of a pool: rebuilt from what was called and what was told, never asked for.

use super::{Answer, Event, Input, Outputs, Room};
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, Clear, PoolOptions, PoolState};
use poolhouse_core::{Instant, ObjectId};

/// The first wait after an attempt in the background failed; it doubles up to the last.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(100);
pub(super) const PAUSE_LAST: Duration = Duration::from_secs(10);

/// Judges one pool. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) options: PoolOptions,
    pub(super) room: Room,
    /// `None` until it was told of.
    pub(super) state: Option<PoolState>,
    pub(super) was_ready: bool,
    /// It is being closed: from its first connection that is gone for this reason, until it says so.
    pub(super) closing: bool,
    pub(super) now: Instant,
    pub(super) generation: u64,
    pub(super) services: BTreeMap<ObjectId, u64>,
    /// Those that count.
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) pending: u32,
    pub(super) available: u32,
    pub(super) in_use: u32,
    /// The number of the newest connection.
    pub(super) newest: u64,
    /// Of those that are gone: whose socket is to be closed, and whose establishment is to be given up.
    pub(super) owed_closes: BTreeSet<u64>,
    pub(super) owed_ends: BTreeSet<u64>,
    /// The turn of who came last.
    pub(super) turn: u64,
    /// Those who wait, in the order in which they came.
    pub(super) queue: Vec<Waiter>,
    /// Those who do not wait any more, and do not know it yet; and whether they were woken.
    pub(super) settled: BTreeMap<u64, (Fate, bool)>,
    /// Who waits for which connection cannot be told: two timed out that cannot be told apart.
    pub(super) unsure: bool,
    /// Those who ended since, by their numbers: it may have been somebody else who came at the same time.
    pub(super) doubtful: BTreeMap<u64, Waiter>,
    /// After a failure in the background: when it goes on, and how long it pauses the next time.
    pub(super) pause_until: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) fill_target: u32,
    /// Connections were available when the pool was cleared, and there was no run in the background since.
    pub(super) sweep: bool,
    /// When something is due, as the pool said last.
    pub(super) said: Option<Instant>,
    /// Somebody looked after the last call.
    pub(super) looked: bool,
    /// There may be more than `maxPoolSize`, or pending than `maxConnecting`, since those were lowered.
    pub(super) shrunk: bool,
}

/// A connection that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) created: Instant,
    pub(super) place: Place,
    pub(super) generation: u64,
    pub(super) service: Option<ObjectId>,
    /// Since when it is available.
    pub(super) since: Instant,
    /// For whom it is established.
    pub(super) purpose: Purpose,
    /// Its `Establish` was polled.
    pub(super) told: bool,
    pub(super) interrupted: bool,
    pub(super) owes_interrupt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Pending,
    Available,
    InUse,
}

/// For whom a connection is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    Nobody,
    Background,
    /// Whoever came in with this number.
    Waiter(u64),
}

/// Somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// Its turn: 1, 2, 3, .. in the order in which they came.
    pub(super) turn: u64,
    /// What its host calls it; 0 until that is known.
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) own: Option<Instant>,
    /// Until when it may wait by the options.
    pub(super) queue: Option<Instant>,
    pub(super) bound: Option<u64>,
}

impl Waiter {
    /// Whether nothing that is told can tell them apart.
    pub(super) fn is_twin(&self, other: &Self) -> bool {
        self.started == other.started && self.number > 0
    }

    /// Until when it waits; what is at the end of time never comes.
    pub(super) fn until(&self) -> Option<Instant> {
        let by_options = if self.bound.is_some() { None } else { self.queue };
        self.own.or(by_options).filter(|at| *at < Instant::MAX)
    }
}

/// How a check-out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Granted(u64),
    Failed(CheckOutError),
}

/// What is only of interest within a step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    /// The pool's state before.
    pub(super) was: Option<PoolState>,
    pub(super) waited: usize,
    /// How many connections counted before.
    pub(super) had: usize,
    /// The turn of who has just come.
    pub(super) newcomer: Option<u64>,
    /// How that ended at once.
    pub(super) outcome: Option<Fate>,
    /// The clear that the call brings about.
    pub(super) clear: Option<Clear>,
    pub(super) cleared: bool,
    /// Somebody failed because of it.
    pub(super) failing: bool,
    pub(super) timed_out: bool,
    pub(super) readied: bool,
    pub(super) created: u32,
    pub(super) checked_in: Option<u64>,
    /// The connection that the call is about was being established.
    pub(super) fresh: bool,
    /// The connection that the call is about is gone.
    pub(super) gone: bool,
    pub(super) closed: u32,
    /// Whoever lost the connection that it was bound to in this step, and must end now.
    pub(super) bereft: Option<u64>,
    /// The most that were established at a time.
    pub(super) established: u32,
}

impl Oracle {
    /// Of a pool that is about to be made with these options, in memory for so many.
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

    /// Judges one step.
    ///
    /// - `now`: as the machine was told; one that goes back is held at the last value seen. A call in the wrong mode changes nothing, not even that.
    /// - `input`: the call. `outputs`: what was seen. `checks`: counts what was looked at.
    ///
    /// # Errors
    ///
    /// The first invariant that is broken. After that the oracle is of no use.
    pub fn step(
        &mut self,
        now: Instant,
        input: Input,
        outputs: &Outputs<'_>,
        checks: &mut Checks,
    ) -> Result<(), Violation> {
        // A call that is refused for its mode is not looked at, and neither is its time.
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
            bereft: None,
            established: self.available + self.in_use,
        };
        self.hear(&mut scene);
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

    /// What a call means before anything is told of it.
    fn hear(&mut self, scene: &mut Scene<'_>) {
        let is_closed = self.state == Some(PoolState::Closed);
        if let Input::Established { conn } | Input::EstablishFailed { conn, .. } = scene.input {
            scene.fresh = self.conns.get(&conn).is_some_and(|it| it.place == Place::Pending);
        }
        if let Input::Clear { clear, .. } = scene.input {
            scene.clear = Some(clear);
        } else if scene.input == Input::Fork {
            // Of every kind of pool.
            scene.clear = Some(Clear::All { interrupt_in_use_connections: true });
        } else if let Input::EstablishFailed { conn, error } = scene.input {
            // What was of no use already says nothing new.
            let is_news = self.conns.get(&conn).is_some_and(|it| scene.fresh && !self.is_stale(it));
            scene.clear = error.clear.filter(|_| is_news);
        } else if let Input::Reconfigure { options } = scene.input {
            if !is_closed {
                let PoolOptions { load_balanced, background, max_idle_time, .. } = self.options;
                self.options = PoolOptions { load_balanced, background, ..options };
                self.shrunk = true;
                // Without maxIdleTimeMS the clock need not have been read, so the idle time counts from now.
                if max_idle_time.is_none() && options.max_idle_time.is_some() {
                    let now = self.now;
                    self.conns.values_mut().filter(|it| it.place == Place::Available).for_each(|it| it.since = now);
                }
            }
        } else if let Input::Fill { count } = scene.input {
            if !is_closed {
                self.pause_until = self.pause_until.filter(|_| count <= self.fill_target);
                self.fill_target = count;
            }
        }
        let is_fork = scene.input == Input::Fork;
        scene.clear = scene.clear.filter(|clear| !is_closed && (is_fork || self.is_mode_of(*clear)));
        // One that is paused says nothing of it.
        if let Some(clear) = scene.clear.filter(|_| self.state == Some(PoolState::Paused)) {
            self.raise(clear, is_fork);
        }
    }

    /// Whether a clear belongs to the pool's mode.
    pub(super) const fn is_mode_of(&self, clear: Clear) -> bool {
        matches!(clear, Clear::Service(_)) == self.options.load_balanced
    }

    /// A generation rises.
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
        conn.generation != of_service.copied().unwrap_or(self.generation)
    }

    /// Whether it was available for too long.
    pub(super) fn is_idle(&self, conn: &Conn) -> bool {
        self.options.max_idle_time.is_some_and(|idle| self.now > conn.since.saturating_add(idle))
    }

    pub(super) const fn total(&self) -> u32 {
        self.pending + self.available + self.in_use
    }

    pub(super) const fn is_beyond_max(&self) -> bool {
        self.options.max_pool_size > 0 && self.total() > self.options.max_pool_size
    }

    /// Whether the pool keeps itself filled and tidy.
    pub(super) const fn is_in_background(&self) -> bool {
        self.options.background || self.fill_target > 0
    }

    /// How many connections a target means.
    pub(super) fn goal_of(&self, target: u32) -> u32 {
        let max = self.options.max_pool_size;
        target.min(self.room.conns).min(if max == 0 { u32::MAX } else { max })
    }

    /// How many connections the pool fills itself to.
    pub(super) fn goal(&self) -> u32 {
        let min = self.options.min_pool_size;
        if self.fill_target == 0 { min } else { min.max(self.goal_of(self.fill_target)) }
    }

    /// Whether the memory has a place for one more.
    pub(super) fn has_place(&self) -> bool {
        let taken = self.conns.len() + self.owed_closes.len() + self.owed_ends.len();
        taken < self.room.conns as usize
    }

    /// Whether options allow one more.
    pub(super) const fn may_create(&self) -> bool {
        let PoolOptions { max_pool_size: max, max_connecting, .. } = self.options;
        self.pending < max_connecting && (max == 0 || self.total() < max)
    }

    pub(super) fn has_background(&self) -> bool {
        let is_it = |conn: &Conn| conn.place == Place::Pending && conn.purpose == Purpose::Background;
        self.pending > 0 && self.conns.values().any(is_it)
    }

    /// Moves a connection from one count to another; `None` is out.
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

    /// The generation that a connection was given, if it counts.
    #[must_use]
    pub fn conn_generation(&self, conn: u64) -> Option<u64> {
        self.conns.get(&conn).map(|conn| conn.generation)
    }

    /// What the pool is told to have been at last.
    #[must_use]
    pub const fn state(&self) -> Option<PoolState> {
        self.state
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many connections count.
    #[must_use]
    pub const fn conn_count(&self) -> u32 {
        self.total()
    }

    /// Until when the last of those waits who wait for so long and no longer.
    #[must_use]
    pub fn last_limit(&self) -> Option<Instant> {
        self.queue.iter().filter_map(Waiter::until).max()
    }

    /// Faults have stopped, and everything was returned for as long as it takes: nobody waits any more.
    ///
    /// - `limited`: no connection was established and none returned, and time has gone on: only those wait still who wait for ever, or whose
    ///   limit is to come.
    ///
    /// # Errors
    ///
    /// When somebody still waits.
    pub fn at_peace(&self, limited: bool, checks: &mut Checks) -> Result<(), Violation> {
        if limited {
            let late = self.queue.iter().find(|waiter| waiter.until().is_some_and(|at| at <= self.now));
            return checks.check("P52", late.is_none(), || format!("{late:?} still waits"));
        }
        checks.check("P51", self.queue.is_empty(), || format!("{} still wait", self.queue.len()))
    }

    /// The pool is closed, everything was returned, claimed and polled: nothing is left.
    ///
    /// # Errors
    ///
    /// When something is.
    pub fn after_close(&self, checks: &mut Checks) -> Result<(), Violation> {
        let closed = self.state == Some(PoolState::Closed);
        checks.check("P43", closed, || format!("the pool is {:?}", self.state))?;
        let left = (self.total(), self.queue.len(), self.services.len());
        checks.check("P43", left == (0, 0, 0), || format!("connections, check-outs, services: {left:?} are left"))?;
        let owed = (self.owed_closes.len(), self.owed_ends.len(), self.settled.len());
        checks.check("P43", owed == (0, 0, 0), || format!("closes, interrupts, outcomes: {owed:?} are owed"))?;
        checks.check("P43", self.said.is_none(), || format!("something is due at {:?}", self.said))
    }

    /// How the newcomer's call and its events fit together, and what must be over within the step.
    fn conclude(&self, events: &[(Instant, Event)], scene: &mut Scene<'_>) -> Result<(), Violation> {
        if let Some(turn) = scene.bereft.filter(|_| !self.unsure) {
            let waits = self.queue.iter().any(|waiter| waiter.turn == turn);
            scene
                .checks
                .check("P24", !waits, || "its connection could not be established, and it still waits".into())?;
        }
        if scene.input == Input::Poll(super::Owed::Any)
            || matches!(scene.input, Input::Claim { .. } | Input::Pin { .. })
        {
            scene.checks.check("P47", events.is_empty(), || format!("{:?} led to {events:?}", scene.input))?;
        }
        // Each connection and each check-out changes a few times in a step at most.
        let bound = 8 + 4 * (scene.had + scene.waited + scene.created as usize);
        let many = || format!("{} events of {} connections and {} check-outs", events.len(), scene.had, scene.waited);
        scene.checks.check("P48", events.len() <= bound, many)?;
        if scene.newcomer.is_some() && !matches!(scene.input, Input::CheckOut { .. }) {
            return Err(Violation { id: "P28", what: "a check-out has started that nobody asked for".into() });
        }
        Ok(())
    }
}
