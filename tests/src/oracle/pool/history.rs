//! Checks of each event of a pool: whether it is allowed now, and whether its data are correct.
//!
//! The calls are not visible, so the caller's deadlines, the causes of failures and the services of
//! connections are not checked.

use crate::machines::pool::Event;
use crate::oracle::{Checks, Violation};
use alloc::collections::BTreeMap;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, ClosedReason, PoolOptions, PoolState};

type Judged = Result<(), Violation>;

/// Checks the events of one pool. See the [module](super).
#[derive(Clone, Debug)]
pub struct Oracle {
    options: PoolOptions,
    /// `None` until an event has set it.
    state: Option<PoolState>,
    was_ready: bool,
    /// The pool is being closed: from the first connection that is closed for this reason until the
    /// event PoolClosed.
    closing: bool,
    now: Instant,
    generation: u64,
    /// Connections that the pool counts.
    conns: BTreeMap<u64, Conn>,
    /// The number of the newest connection.
    newest: u64,
    /// The starts of the check-outs that wait, in order of arrival.
    queue: Vec<Instant>,
    /// The last clear interrupts, and check-outs have failed because of it.
    interrupts: bool,
    is_failing: bool,
}

/// A connection that the pool counts.
#[derive(Clone, Copy, Debug)]
struct Conn {
    created: Instant,
    place: Place,
    generation: u64,
    /// The time since which it is available.
    since: Instant,
    retired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Pending,
    Available,
    InUse,
}

impl Default for Oracle {
    fn default() -> Self {
        Self {
            options: PoolOptions::DEFAULT,
            state: None,
            was_ready: false,
            closing: false,
            now: Instant::ORIGIN,
            generation: 0,
            conns: BTreeMap::new(),
            newest: 0,
            queue: Vec::new(),
            interrupts: false,
            is_failing: false,
        }
    }
}

impl Oracle {
    /// The options have changed, which has no event.
    pub fn reconfigured(&mut self, options: PoolOptions) {
        // Without maxIdleTimeMS the clock need not have been read, so the idle time starts now.
        if self.options.max_idle_time.is_none() {
            self.conns.values_mut().for_each(|conn| conn.since = self.now);
        }
        self.options = options;
    }

    /// A connection is closed as soon as it is not in use, which has no event.
    pub fn retired(&mut self, conn: u64) {
        if let Some(conn) = self.conns.get_mut(&conn).filter(|conn| conn.place != Place::Pending) {
            conn.retired = true;
        }
    }

    /// The time has advanced, which has no event.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Checks one event.
    ///
    /// # Errors
    ///
    /// The broken invariant. The oracle must not be used after that.
    pub fn event(&mut self, at: Instant, event: &Event, checks: &mut Checks) -> Judged {
        let before = self.now;
        checks.check("P25", at >= before, || format!("an event of {at:?} after one of {before:?}: {event:?}"))?;
        self.now = at;
        if !matches!(event, Event::PoolCreated(_)) {
            checks.check("P29", self.state.is_some(), || format!("{event:?} before PoolCreated"))?;
        }
        if self.state == Some(PoolState::Closed) {
            let is_end = match event {
                Event::CheckedIn(_) | Event::Closed(..) | Event::Started => true,
                Event::Failed(reason, ..) => *reason == CheckOutFailedReason::PoolClosed,
                Event::PoolCreated(_) | Event::PoolReady | Event::PoolCleared { .. } | Event::PoolClosed => false,
                Event::Created(_) | Event::Ready(..) | Event::CheckedOut(..) => false,
            };
            checks.check("P33", is_end, || format!("{event:?} after PoolClosed"))?;
        }
        match *event {
            Event::PoolCreated(options) => {
                checks.check("P29", self.state.is_none(), || "a pool is created twice".into())?;
                self.options = options;
                self.state = Some(PoolState::Paused);
                Ok(())
            }
            Event::PoolReady => {
                self.is_state(PoolState::Paused, event, checks)?;
                self.state = Some(PoolState::Ready);
                self.was_ready = true;
                (self.interrupts, self.is_failing) = (false, false);
                Ok(())
            }
            Event::PoolCleared { service, interrupt, .. } => {
                self.is_state(PoolState::Ready, event, checks)?;
                (self.interrupts, self.is_failing) = (interrupt, false);
                if service.is_none() {
                    self.generation += 1;
                    // A load balancer has no monitor that could mark the pool ready again.
                    if !self.options.load_balanced {
                        self.state = Some(PoolState::Paused);
                    }
                }
                Ok(())
            }
            Event::PoolClosed => {
                (self.closing, self.state) = (false, Some(PoolState::Closed));
                let left = (self.count(Place::Pending), self.count(Place::Available), self.queue.len());
                checks.check("P42", left == (0, 0, 0), || {
                    format!("pending, available, waiting: {left:?} are left in a closed pool")
                })
            }
            Event::Created(conn) => self.created(conn, checks),
            Event::Ready(conn, duration) => self.ready(conn, duration, checks),
            Event::Closed(conn, reason, _) => self.closed(conn, reason, checks),
            Event::Started => {
                self.queue.push(at);
                Ok(())
            }
            Event::Failed(reason, error, duration) => self.failed(reason, error, duration, checks),
            Event::CheckedOut(conn, duration) => self.checked_out(conn, duration, checks),
            Event::CheckedIn(conn) => self.checked_in(conn, checks),
        }
    }

    fn is_state(&self, expected: PoolState, event: &Event, checks: &mut Checks) -> Judged {
        let state = self.state;
        checks.check("P29", state == Some(expected), || format!("{event:?} of a pool in state {state:?}"))
    }

    fn count(&self, place: Place) -> u32 {
        u32::try_from(self.conns.values().filter(|conn| conn.place == place).count()).unwrap_or(u32::MAX)
    }

    fn total(&self) -> u32 {
        u32::try_from(self.conns.len()).unwrap_or(u32::MAX)
    }

    /// Whether the connection is stale; unknown in load-balanced mode, because its service is.
    fn is_stale(&self, conn: &Conn) -> Option<bool> {
        (!self.options.load_balanced).then_some(conn.retired || conn.generation != self.generation)
    }

    /// Whether the connection exceeded maxIdleTimeMS.
    fn is_idle(&self, conn: &Conn) -> bool {
        self.options.max_idle_time.is_some_and(|idle| self.now > conn.since.saturating_add(idle))
    }

    fn created(&mut self, number: u64, checks: &mut Checks) -> Judged {
        let (expected, state) = (self.newest + 1, self.state);
        checks.check("P6", number == expected, || format!("connection {number} after {}", expected - 1))?;
        checks.check("P37", self.was_ready, || "a new pool creates a connection".into())?;
        checks.check("P38", state == Some(PoolState::Ready), || {
            format!("a pool in state {state:?} creates a connection")
        })?;
        let is_usable =
            |conn: &&Conn| conn.place == Place::Available && self.is_stale(conn) == Some(false) && !self.is_idle(conn);
        let spare = self.conns.values().find(is_usable).filter(|_| !self.queue.is_empty());
        checks.check("P17", spare.is_none(), || format!("a connection is created although {spare:?} is available"))?;
        self.newest = number;
        let (now, generation) = (self.now, self.generation);
        let conn = Conn { created: now, place: Place::Pending, generation, since: now, retired: false };
        self.conns.insert(number, conn);
        let (total, pending) = (self.total(), self.count(Place::Pending));
        let PoolOptions { max_pool_size: max, max_connecting, .. } = self.options;
        checks.check("P2", max == 0 || total <= max, || format!("{total} connections, but maxPoolSize is {max}"))?;
        checks.check("P3", pending <= max_connecting, || {
            format!("{pending} are being established, but maxConnecting is {max_connecting}")
        })
    }

    fn ready(&mut self, number: u64, duration: Duration, checks: &mut Checks) -> Judged {
        let conn = self.in_place(number, &[Place::Pending], "becomes ready", checks)?;
        checks.check("P36", self.is_stale(&conn) != Some(true), || format!("{number} is stale, but becomes ready"))?;
        self.lasted(duration, conn.created, checks)?;
        self.conns.insert(number, Conn { place: Place::Available, since: self.now, ..conn });
        Ok(())
    }

    /// The connection must exist and be in one of these states.
    fn in_place(&self, number: u64, places: &[Place], what: &str, checks: &mut Checks) -> Result<Conn, Violation> {
        let found = self.conns.get(&number).copied();
        let place = found.map(|conn| conn.place);
        checks.check("P27", place.is_some_and(|place| places.contains(&place)), || {
            format!("{number} {what}, but is {place:?}")
        })?;
        Ok(found.expect("it was checked"))
    }

    /// A duration must be the time since `start`.
    fn lasted(&self, duration: Duration, start: Instant, checks: &mut Checks) -> Judged {
        let passed = self.now.saturating_since(start);
        checks
            .check("P32", duration == passed, || format!("the event reports {duration:?}, but {passed:?} have passed"))
    }

    fn closed(&mut self, number: u64, reason: ClosedReason, checks: &mut Checks) -> Judged {
        let is_old = number <= self.newest;
        checks.check(if is_old { "P5" } else { "P6" }, self.conns.contains_key(&number), || {
            format!("an unknown connection {number} is closed")
        })?;
        // A connection in use must be checked in before it is closed.
        let conn = self.in_place(number, &[Place::Pending, Place::Available], "is closed", checks)?;
        match reason {
            ClosedReason::Stale => {
                checks.check("P31", self.is_stale(&conn) != Some(false), || format!("{number} is closed as stale"))?;
            }
            ClosedReason::Idle => {
                let max = self.options.max_pool_size;
                let is_surplus = max > 0 && self.total() > max;
                let is_over = conn.place == Place::Available && (self.is_idle(&conn) || is_surplus);
                checks.check("P26", is_over, || format!("{number} is closed as idle since {:?}", conn.since))?;
            }
            ClosedReason::Error | ClosedReason::PoolClosed => {}
        }
        if conn.place == Place::Pending && conn.generation != self.generation && self.interrupts {
            checks.check("P30", !self.is_failing, || format!("{number} is closed after check-outs failed"))?;
        }
        self.conns.remove(&number);
        self.closing |= reason == ClosedReason::PoolClosed && self.state != Some(PoolState::Closed);
        Ok(())
    }

    fn failed(
        &mut self,
        reason: CheckOutFailedReason,
        error: CheckOutError,
        duration: Duration,
        checks: &mut Checks,
    ) -> Judged {
        let (now, state) = (self.now, self.state);
        let expected = match error {
            CheckOutError::PoolClosed => CheckOutFailedReason::PoolClosed,
            CheckOutError::WaitQueueTimeout { .. } => CheckOutFailedReason::Timeout,
            _ => CheckOutFailedReason::ConnectionError,
        };
        let is_closed = self.closing || self.state == Some(PoolState::Closed);
        let holds = reason == expected && (reason == CheckOutFailedReason::PoolClosed || !is_closed);
        checks.check("P31", holds, || format!("failed as {}: {error:?}, but the pool is {state:?}", reason.name()))?;
        let place = self.queue.iter().position(|started| now.saturating_since(*started) == duration);
        checks.check("P8", place.is_some(), || format!("no waiter could fail: {error:?} after {duration:?}"))?;
        let place = place.expect("it was checked");
        self.lasted(duration, self.queue[place], checks)?;
        if matches!(error, CheckOutError::PoolCleared { .. } | CheckOutError::PoolClosed) {
            // A check-out that is refused at once is the youngest.
            let is_refused = duration.is_zero() && place + 1 == self.queue.len();
            self.is_failing |= !is_refused;
            let is_first = place == 0 || is_refused || self.options.load_balanced;
            checks.check("P39", is_first, || "a younger waiter fails before an older one".into())?;
        }
        self.queue.remove(place);
        Ok(())
    }

    fn checked_out(&mut self, number: u64, duration: Duration, checks: &mut Checks) -> Judged {
        let place = self.conns.get(&number).map(|conn| conn.place);
        checks.check("P5", place != Some(Place::InUse), || format!("{number} is checked out twice"))?;
        let conn = self.in_place(number, &[Place::Available], "is checked out", checks)?;
        checks.check("P35", self.is_stale(&conn) != Some(true), || format!("{number} is stale, but checked out"))?;
        checks.check("P26", !self.is_idle(&conn), || format!("{number} is idle since {:?}", conn.since))?;
        checks.check("P8", !self.queue.is_empty(), || format!("{number} is checked out without a request"))?;
        let passed = |started: &Instant| self.now.saturating_since(*started);
        let is_other = passed(&self.queue[0]) != duration && self.queue.iter().any(|it| passed(it) == duration);
        checks
            .check("P9", !is_other, || format!("{number} is granted to a waiter of {duration:?}, not to the oldest"))?;
        self.lasted(duration, self.queue[0], checks)?;
        self.queue.remove(0);
        self.conns.insert(number, Conn { place: Place::InUse, ..conn });
        Ok(())
    }

    fn checked_in(&mut self, number: u64, checks: &mut Checks) -> Judged {
        let conn = self.in_place(number, &[Place::InUse], "is checked in", checks)?;
        self.conns.insert(number, Conn { place: Place::Available, since: self.now, ..conn });
        Ok(())
    }
}
