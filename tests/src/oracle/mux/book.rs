//! State of the oracle of a multiplexed pool: the owner of each stream id, derived from calls and
//! events.

use super::{Input, Outputs, Seen};
use crate::oracle::{Checks, Violation};
use alloc::collections::{BTreeMap, BTreeSet};
use poolhouse_core::Instant;
use poolhouse_core::mux::{AcquireError, MuxConfig, Written};

type Judged = Result<(), Violation>;

/// Checks one multiplexed pool. See the [module](super).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    pub(super) config: MuxConfig,
    /// Whether its memory has a capacity limit.
    pub(super) bounded: bool,
    pub(super) closed: bool,
    pub(super) now: Instant,
    pub(super) newest: u64,
    pub(super) conns: BTreeMap<u64, Conn>,
    pub(super) owed_closes: BTreeSet<u64>,
    /// Waiters in order of arrival.
    pub(super) queue: Vec<Waiter>,
    /// Waiters with an unclaimed outcome, and whether they were woken.
    pub(super) settled: BTreeMap<u64, (Fate, bool)>,
    /// A failure has occurred since a connection was last established, so the next attempt may be
    /// delayed.
    pub(super) troubled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conn {
    pub(super) place: Place,
    pub(super) created: Instant,
    /// Its `Establish` was polled.
    pub(super) reported: bool,
    /// Stream ids that are in use.
    pub(super) ids: BTreeMap<u16, Use>,
    pub(super) in_flight: u32,
    pub(super) late: u32,
    /// The heartbeat in flight, with its stream id once that is known.
    pub(super) heartbeat: Option<Option<u16>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Pending,
    Open,
    Trashed,
    Retired,
}

/// State of a stream id that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Use {
    Waiting,
    Answered,
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// The number that its host uses; 0 until it is known.
    pub(super) number: u64,
    pub(super) started: Instant,
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fate {
    Granted(u64, u16),
    Failed(AcquireError),
}

/// State of the oracle within one step.
#[derive(Debug)]
pub(super) struct Scene<'c> {
    pub(super) input: Input,
    pub(super) checks: &'c mut Checks,
    /// The result of the request that this call made.
    pub(super) outcome: Option<Fate>,
    /// The request waits.
    pub(super) queued: bool,
    /// The connection that must be retired within the step.
    pub(super) worn: Option<u64>,
    /// Connections that were closed.
    pub(super) gone: Vec<u64>,
    pub(super) reported: usize,
    /// The kind of the reply, according to its event.
    pub(super) reply: Option<super::Answer>,
}

impl Conn {
    pub(super) fn free(&self, ids: u32) -> u32 {
        let taken = self.ids.len() + usize::from(self.heartbeat.is_some());
        ids.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Frees a stream id on which no reply can arrive.
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
    /// Creates the oracle of a pool that is created next with these options.
    ///
    /// - `bounded`: whether its memory has a capacity limit.
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

    /// Checks one step.
    ///
    /// - `now`: the time passed to the machine. A time before the last one is replaced by the last
    ///   one.
    ///
    /// # Errors
    ///
    /// The first broken invariant. The oracle must not be used after that.
    pub fn step(&mut self, now: Instant, input: Input, outputs: &Outputs<'_>, checks: &mut Checks) -> Judged {
        // The stream of another pool is returned before the call has an effect, even on the clock.
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
            reported: outputs.events.len(),
            reply: None,
        };
        self.apply_call(&scene);
        for (at, event) in outputs.events {
            let held = self.now;
            scene
                .checks
                .check("P25", *at == held, || format!("an event of {at:?} in a step at {held:?}: {event:?}"))?;
            self.event(*event, &mut scene)?;
        }
        self.result(&outputs.answer, &mut scene)?;
        let is_left = scene.worn.filter(|conn| self.conns.get(conn).is_some_and(|it| it.place != Place::Retired));
        scene.checks.check("M3", is_left.is_none(), || format!("{is_left:?} must be retired, but accepts requests"))?;
        match outputs.seen {
            Some(seen) => self.at_rest(&seen, &mut scene),
            None => Ok(()),
        }
    }

    /// Applies a call to the state before its events are processed.
    fn apply_call(&mut self, scene: &Scene<'_>) {
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

    /// Number of connections that count towards the maximum.
    pub(super) fn count(&self, place: Place) -> u32 {
        u32::try_from(self.conns.values().filter(|conn| conn.place == place).count()).unwrap_or(u32::MAX)
    }

    /// Whether a connection accepts one more request.
    pub(super) fn takes(&self, conn: &Conn) -> bool {
        let Some(host) = self.config.host() else { return false };
        let ids = self.config.options().streams_per_connection;
        conn.place == Place::Open && conn.in_flight < host.max_requests_per_connection && conn.free(ids) > 0
    }

    fn at_rest(&self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        let state = seen.state;
        let reported = [state.open, state.establishing, state.trashed, state.retired, state.in_flight, state.orphaned];
        let own = [
            self.count(Place::Open),
            self.count(Place::Pending),
            self.count(Place::Trashed),
            self.count(Place::Retired),
            self.conns.values().map(|conn| conn.in_flight).sum(),
            self.conns.values().map(|conn| conn.late).sum(),
        ];
        scene.checks.check("P1", reported == own, || {
            format!(
                "open, establishing, trashed, retired, in flight, orphaned are {reported:?}, but {own:?} by the events"
            )
        })?;
        let waiting = self.queue.len();
        scene
            .checks
            .check("P1", state.queued as usize == waiting, || format!("{} wait, not {waiting}", state.queued))?;
        scene.checks.check("M6", seen.closed == self.closed, || format!("closed: {}", seen.closed))?;
        if waiting > 0 {
            let spare = self.conns.iter().find(|(_, conn)| self.takes(conn)).map(|(number, _)| number);
            scene.checks.check("M5", spare.is_none(), || {
                format!("{waiting} wait although connection {spare:?} accepts requests")
            })?;
            let count = self.count(Place::Open) + self.count(Place::Pending);
            let may = self.config.host().is_some_and(|host| count < host.max_connections);
            let is_idle = self.count(Place::Pending) == 0 && may && !self.troubled && !self.bounded;
            scene.checks.check("M5", !is_idle, || format!("{waiting} wait, but no connection is opened"))?;
        }
        if self.closed {
            let left = (self.conns.len(), waiting, seen.timeout);
            scene
                .checks
                .check("M6", left == (0, 0, None), || format!("connections, requests, due: {left:?} are left"))?;
        }
        if scene.input == Input::Timeout {
            let late = self.queue.iter().find(|waiter| waiter.until <= self.now && waiter.until < Instant::MAX);
            scene.checks.check("P19", late.is_none(), || format!("{late:?} should have timed out"))?;
        }
        Ok(())
    }

    /// Checks that nothing is left after the pool was closed and all streams, outcomes and actions
    /// were released, claimed and polled.
    ///
    /// # Errors
    ///
    /// When something is left.
    pub fn after_close(&self, checks: &mut Checks) -> Judged {
        let left = (self.conns.len(), self.queue.len(), self.owed_closes.len(), self.settled.len());
        checks.check("M6", self.closed && left == (0, 0, 0, 0), || {
            format!("connections, requests, closes, outcomes: {left:?} are left")
        })
    }

    /// Checks that no request waits after the faults have stopped and streams were released for
    /// long enough.
    ///
    /// # Errors
    ///
    /// When a waiter is left.
    pub fn at_peace(&self, checks: &mut Checks) -> Judged {
        checks.check("M5", self.queue.is_empty(), || format!("{} still wait", self.queue.len()))
    }
}
