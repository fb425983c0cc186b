//! Checks between any two calls of a pool: counts, no avoidable wait, and exact deadlines.

use super::book::{Oracle, Place, Scene};
use super::{Input, Seen};
use crate::oracle::Violation;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::PoolState;

type Judged = Result<(), Violation>;

impl Oracle {
    pub(super) fn at_rest(&mut self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        let counts = seen.counts;
        let reported = [counts.pending, counts.available, counts.in_use, counts.waiting];
        let own = [self.pending, self.available, self.in_use, u32::try_from(self.queue.len()).unwrap_or(u32::MAX)];
        scene.checks.check("P1", reported == own, || {
            format!("pending, available, in use, waiting are {reported:?}, but {own:?} by the events")
        })?;
        let max = self.options.max_pool_size;
        self.shrunk &= self.is_beyond_max() || self.pending > self.options.max_connecting;
        scene
            .checks
            .check("P2", max == 0 || self.total() <= max || self.shrunk, || format!("{} connections", self.total()))?;
        let state = self.state;
        scene.checks.check("P29", state == Some(seen.state), || {
            format!("the getter returns {:?}, the events imply {state:?}", seen.state)
        })?;
        let generation = self.generation;
        scene.checks.check("P34", seen.generation == generation, || {
            format!("the generation is {}, but there were {generation} clears", seen.generation)
        })?;
        let services = self.services.len();
        scene.checks.check("P45", seen.services as usize == services, || {
            format!("{} services are kept, but {services} have connections", seen.services)
        })?;
        self.filled(seen, scene)?;
        if state == Some(PoolState::Ready) {
            self.no_avoidable_wait(scene)?;
            self.is_filling(seen, scene)?;
        }
        if is_served(scene) {
            let late = self.queue.iter().find(|waiter| waiter.until().is_some_and(|at| at <= self.now));
            scene.checks.check("P19", late.is_none(), || format!("{late:?} should have timed out"))?;
        }
        // An expired pause is due until a call processes it. It is then removed, even if no
        // connection may be created. While the memory has no free slot, nothing is due, so the
        // removal is observed when a slot is free again.
        let is_reported = seen.timeout.is_some_and(|at| at <= self.now);
        if self.pause_until.is_some_and(|at| at <= self.now) && self.wants_more() && self.has_slot() && !is_reported {
            self.pause_until = None;
        }
        self.is_due(seen.timeout, scene)?;
        self.said = seen.timeout;
        self.unsure &= self.pending > 0;
        let settled = &self.settled;
        self.doubtful.retain(|number, _| settled.contains_key(number));
        Ok(())
    }

    /// The fill target stays until it is reached.
    fn filled(&mut self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        let (own, reported) = (self.fill_target, seen.fill_target);
        let is_reached = scene.established >= self.goal_of(own);
        scene.checks.check("P4", reported == own || (reported == 0 && is_reached), || {
            format!("the fill target is {reported}, but {own} were requested")
        })?;
        self.fill_target = reported;
        Ok(())
    }

    /// Whether the pool is below its goal and has no pending background connection.
    fn wants_more(&self) -> bool {
        self.state == Some(PoolState::Ready) && self.total() < self.goal() && !self.has_background()
    }

    /// P10, or the invariant of the call that should have served the waiter.
    fn no_avoidable_wait(&self, scene: &mut Scene<'_>) -> Judged {
        if self.queue.is_empty() {
            return Ok(());
        }
        let id = match scene.input {
            Input::CheckIn { .. } => "P14",
            Input::Cancel { .. } if scene.checked_in.is_some() => "P13",
            Input::Cancel { .. } => "P11",
            Input::Established { .. } => "P12",
            _ if scene.timed_out => "P23",
            _ => "P10",
        };
        let is_usable =
            |it: &super::book::Conn| it.place == Place::Available && !self.is_stale(it) && !self.is_idle(it);
        let spare = if self.available > 0 { self.conns.iter().find(|(_, it)| is_usable(it)) } else { None };
        scene.checks.add("P10");
        scene
            .checks
            .check(id, spare.is_none(), || format!("{} wait although {spare:?} is available", self.queue.len()))?;
        if self.room.conns < u32::MAX {
            // A slot that became free is used in the next call, which is due.
            return Ok(());
        }
        let waits = self.oldest_unbound().is_some() && self.may_create();
        scene.checks.check(id, !waits, || "a check-out waits although a connection may be created".into())
    }

    /// A pool below its goal creates a connection, or has a reason not to.
    fn is_filling(&self, seen: &Seen, scene: &mut Scene<'_>) -> Judged {
        if !self.is_in_background() {
            return Ok(());
        }
        let may = self.may_create() && self.has_slot() && self.pause_until.is_none_or(|until| until <= self.now);
        let is_due = seen.timeout.is_some_and(|at| at <= self.now);
        scene.checks.check("P4", !(may && self.wants_more()) || is_due, || {
            format!("{} of {} connections exist, but none is being created", self.total(), self.goal())
        })
    }

    /// The earliest deadline.
    fn is_due(&self, reported: Option<Instant>, scene: &mut Scene<'_>) -> Judged {
        let mut due = self.queue.iter().filter_map(super::book::Waiter::until).min();
        let mut earlier = |at: Instant| due = Some(due.map_or(at, |due| due.min(at)));
        let background = self.is_in_background();
        if background {
            if self.available > 0 {
                let available = || self.conns.values().filter(|it| it.place == Place::Available);
                if available().any(|it| self.is_stale(it)) {
                    let is_reported = reported.is_some_and(|at| at <= self.now);
                    scene.checks.check("P44", is_reported, || {
                        format!("stale connections are available, but poll_timeout returns {reported:?}")
                    })?;
                    earlier(self.now);
                }
                if let (Some(since), Some(idle)) = (available().map(|it| it.since).min(), self.options.max_idle_time) {
                    let last = since.saturating_add(idle);
                    if last < Instant::MAX {
                        earlier(last.saturating_add(Duration::from_nanos(1)));
                    }
                }
            }
            if let Some(until) = self.pause_until.filter(|_| self.wants_more() && self.has_slot()) {
                earlier(until);
            }
        }
        let waits = self.oldest_unbound().is_some() || (background && self.wants_more() && self.pause_until.is_none());
        if waits && self.state == Some(PoolState::Ready) && self.may_create() && self.has_slot() {
            earlier(self.now);
        }
        let (reported, due) = (reported.map(|at| at.max(self.now)), due.map(|at| at.max(self.now)));
        let is_spare = self.sweep && background && reported == Some(self.now);
        scene.checks.check("P20", reported == due || is_spare, || {
            format!("due is {due:?}, but poll_timeout returns {reported:?}")
        })?;
        if scene.input == Input::Timeout {
            let is_left = reported.is_some_and(|at| at <= self.now);
            scene.checks.check("P19", !is_left, || "something is due after handle_timeout".into())?;
        }
        Ok(())
    }
}

/// Whether the call processes all waiters.
fn is_served(scene: &Scene<'_>) -> bool {
    match scene.input {
        Input::CheckOut { .. } => !matches!(scene.outcome, Some(super::book::Fate::Granted(_))),
        Input::CheckIn { .. } => scene.checked_in.is_some(),
        Input::Cancel { waiter } => waiter > 0,
        Input::Established { .. } | Input::EstablishFailed { .. } => scene.fresh || scene.gone,
        Input::Ready => scene.readied,
        Input::Clear { .. } => scene.clear.is_some(),
        Input::Close | Input::Fork | Input::Timeout => true,
        Input::Reconfigure { .. } | Input::Fill { .. } | Input::Retire { .. } => true,
        Input::Unseen
        | Input::New
        | Input::Claim { .. }
        | Input::Service { .. }
        | Input::Pin { .. }
        | Input::Poll(_) => false,
    }
}
