//! What an oracle knows of a multiplexed pool: who has which stream id, rebuilt from what was called and told.

use super::{Input, Outputs, Seen};
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, BTreeSet};
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, MuxConfig, Written};

type Judged = Result<(), Violation>;

/// Judges one multiplexed pool. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) config: MuxConfig,
    /// Whether its memory ends somewhere.
    pub(super) bounded: bool,
    pub(super) closed: bool,
    pub(super) now: Instant,
    pub(super) newest: u64,
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) owed_closes: BTreeSet<u64>,
    /// Those who wait, in the order in which they came.
    pub(super) queue: Vec<Waiter>,
    /// Those who do not wait any more, and do not know it yet; and whether they were woken.
    pub(super) settled: BTreeMap<u64, (Fate, bool)>,
    /// Something has failed since a connection was established: the next attempt may pause.
    pub(super) troubled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) place: Place,
    pub(super) created: Instant,
    /// Its `Establish` was polled.
    pub(super) told: bool,
    /// Ids that are not free.
    pub(super) ids: BTreeMap<u16, Use>,
    pub(super) in_flight: u32,
    pub(super) late: u32,
    /// Its peer is asked; by this id, once that is known.
    pub(super) heartbeat: Option<Option<u16>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Pending,
    Open,
    Trashed,
    Retired,
}

/// What an id is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Use {
    Waiting,
    Answered,
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// What its host calls it; 0 until that is known.
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Granted(u64, u16),
    Failed(AcquireError),
}

/// What is only of interest within a step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    /// How the request ended that the call is.
    pub(super) outcome: Option<Fate>,
    /// It waits.
    pub(super) queued: bool,
    /// One that must be retired within the step.
    pub(super) worn: Option<u64>,
    /// Connections that are gone.
    pub(super) gone: Vec<u64>,
    pub(super) told: usize,
    /// What the reply was, by its event.
    pub(super) reply: Option<super::Answer>,
}

impl Conn {
    pub(super) fn free(&self, ids: u32) -> u32 {
        let taken = self.ids.len() + usize::from(self.heartbeat.is_some());
        ids.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Frees an id that no reply will come by.
    pub(super) fn take_back(&mut self, id: u16, written: Written) {
        match self.ids.get(&id) {
            Some(Use::Answered) => drop(self.ids.remove(&id)),
            Some(Use::Waiting) if written == Written::No => {
                self.ids.remove(&id);
                self.in_flight -= 1;
            }
            Some(Use::Waiting | Use::Late) | None => {}
        }
    }
}

impl Oracle {
    /// Of a pool that is about to be made with these options.
    ///
    /// - `bounded`: whether its memory ends somewhere.
    #[must_use]
    pub const fn new(config: MuxConfig, bounded: bool) -> Self {
        Self {
            config,
            bounded,
            closed: false,
            now: Instant::ORIGIN,
            newest: 0,
            conns: BTreeMap::new(),
            owed_closes: BTreeSet::new(),
            queue: Vec::new(),
            settled: BTreeMap::new(),
            troubled: false,
        }
    }

    /// Judges one step.
    ///
    /// - `now`: as the machine was told; one that goes back is held at the last value seen.
    ///
    /// # Errors
    ///
    /// The first invariant that is broken. After that the oracle is of no use.
    pub fn step(&mut self, now: Instant, input: Input, outputs: &Outputs<'_>, checks: &mut Checks) -> Judged {
        // What is another pool's is handed back before anything else.
        if !matches!(input, Input::Release { stream: None, .. }) {
            self.now = self.now.max(now);
        }
        let mut scene = Scene {
            input,
            checks,
            outcome: None,
            queued: false,
            worn: None,
            gone: Vec::new(),
            told: outputs.events.len(),
            reply: None,
        };
        self.hear(&scene);
        for (at, event) in outputs.events {
            let held = self.now;
            scene
                .checks
                .check("P25", *at == held, || format!("an event of {at:?} in a step at {held:?}: {event:?}"))?;
            self.event(*event, &mut scene)?;
        }
        self.result(&outputs.answer, &mut scene)?;
        let is_left = scene.worn.filter(|conn| self.conns.get(conn).is_some_and(|it| it.place != Place::Retired));
        scene.checks.check("M3", is_left.is_none(), || format!("{is_left:?} is worn, and goes on"))?;
        match outputs.seen {
            Some(seen) => self.at_rest(&seen, &mut scene),
            None => Ok(()),
        }
    }

    /// What a call means before anything is told of it.
    fn hear(&mut self, scene: &Scene<'_>) {
        match scene.input {
            Input::Release { stream: Some((conn, id)), written } => {
                if let Some(conn) = self.conns.get_mut(&conn) {
                    conn.take_back(id, written);
                }
            }
            Input::Cancel { waiter } => {
                if let Some((Fate::Granted(conn, id), _)) = self.settled.get(&waiter) {
                    if let Some(conn) = self.conns.get_mut(conn) {
                        conn.take_back(*id, Written::No);
                    }
                }
            }
            Input::EstablishFailed { .. } | Input::Failed { .. } => self.troubled = true,
            Input::Reply { .. } | Input::Reconfigure | Input::Close | Input::New | Input::Acquire { .. } => {}
            Input::Claim { .. } | Input::Established { .. } | Input::Received { .. } | Input::Poll | Input::Timeout => {
            }
            Input::Release { stream: None, .. } => {}
        }
    }

    /// How many count towards the maximum.
    pub(super) fn count(&self, place: Place) -> u32 {
        u32::try_from(self.conns.values().filter(|conn| conn.place == place).count()).unwrap_or(u32::MAX)
    }

    /// Whether a connection takes one more.
    pub(super) fn takes(&self, conn: &Conn) -> bool {
        let Some(host) = self.config.host() else { return false };
        let ids = self.config.options().streams_per_connection;
        conn.place == Place::Open && conn.in_flight < host.max_requests_per_connection && conn.free(ids) > 0
    }

    fn at_rest(&self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        let state = seen.state;
        let told = [state.open, state.establishing, state.trashed, state.retired, state.in_flight, state.orphaned];
        let own = [
            self.count(Place::Open),
            self.count(Place::Pending),
            self.count(Place::Trashed),
            self.count(Place::Retired),
            self.conns.values().map(|conn| conn.in_flight).sum(),
            self.conns.values().map(|conn| conn.late).sum(),
        ];
        scene.checks.check("P1", told == own, || {
            format!("open, establishing, trashed, retired, in flight, orphaned are {told:?}, and {own:?} by the events")
        })?;
        let waiting = self.queue.len();
        scene
            .checks
            .check("P1", state.queued as usize == waiting, || format!("{} wait, not {waiting}", state.queued))?;
        scene.checks.check("M6", seen.closed == self.closed, || format!("closed: {}", seen.closed))?;
        if waiting > 0 {
            let spare = self.conns.iter().find(|(_, conn)| self.takes(conn)).map(|(number, _)| number);
            scene.checks.check("M5", spare.is_none(), || format!("{waiting} wait beside connection {spare:?}"))?;
            let count = self.count(Place::Open) + self.count(Place::Pending);
            let may = self.config.host().is_some_and(|host| count < host.max_connections);
            let is_idle = self.count(Place::Pending) == 0 && may && !self.troubled && !self.bounded;
            scene.checks.check("M5", !is_idle, || format!("{waiting} wait, and no connection is opened"))?;
        }
        if self.closed {
            let left = (self.conns.len(), waiting, seen.timeout);
            scene
                .checks
                .check("M6", left == (0, 0, None), || format!("connections, requests, due: {left:?} are left"))?;
        }
        if scene.input == Input::Timeout {
            let late = self.queue.iter().find(|waiter| waiter.until <= self.now && waiter.until < Instant::MAX);
            scene.checks.check("P19", late.is_none(), || format!("{late:?} was to time out"))?;
        }
        Ok(())
    }

    /// The pool is closed, everything was released, claimed and polled: nothing is left.
    ///
    /// # Errors
    ///
    /// When something is.
    pub fn after_close(&self, checks: &mut Checks) -> Judged {
        let left = (self.conns.len(), self.queue.len(), self.owed_closes.len(), self.settled.len());
        checks.check("M6", self.closed && left == (0, 0, 0, 0), || {
            format!("connections, requests, closes, outcomes: {left:?} are left")
        })
    }

    /// Faults have stopped, and everything was released for as long as it takes: nobody waits any more.
    ///
    /// # Errors
    ///
    /// When somebody still does.
    pub fn at_peace(&self, checks: &mut Checks) -> Judged {
        checks.check("M5", self.queue.is_empty(), || format!("{} still wait", self.queue.len()))
    }
}
