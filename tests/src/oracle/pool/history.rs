//! Checks of each event of a pool: whether it is allowed now, and whether its data are correct.

use super::book::{Conn, Fate, Oracle, PAUSE_FIRST, PAUSE_LAST, Place, Purpose, Scene, Waiter};
use super::{Event, Input};
use crate::oracle::Violation;
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, Clear, ClosedReason, Health, PoolState};
use poolhouse_core::{Cause, Instant, ObjectId};

type Judged = Result<(), Violation>;

impl Oracle {
    pub(super) fn event(&mut self, at: Instant, event: Event, scene: &mut Scene<'_>) -> Judged {
        self.now = at;
        if !matches!(event, Event::PoolCreated(_)) {
            scene.checks.check("P29", self.state.is_some(), || format!("{event:?} before PoolCreated"))?;
        }
        if self.state == Some(PoolState::Closed) {
            let is_end = match event {
                Event::CheckedIn(_) | Event::Closed(..) | Event::Started => true,
                Event::Failed(reason, ..) => reason == CheckOutFailedReason::PoolClosed,
                Event::PoolCreated(_) | Event::PoolReady | Event::PoolCleared { .. } | Event::PoolClosed => false,
                Event::Created(_) | Event::Ready(..) | Event::CheckedOut(..) => false,
            };
            scene.checks.check("P33", is_end, || format!("{event:?} after PoolClosed"))?;
        }
        match event {
            Event::PoolCreated(options) => self.pool_created(options, scene),
            Event::PoolReady => self.pool_ready(scene),
            Event::PoolCleared { service, interrupt, cause } => self.pool_cleared(service, interrupt, cause, scene),
            Event::PoolClosed => self.pool_closed(scene),
            Event::Created(conn) => self.created(conn, scene),
            Event::Ready(conn, duration) => self.ready(conn, duration, scene),
            Event::Closed(conn, reason, cause) => self.closed(conn, reason, cause, scene),
            Event::Started => {
                self.started(scene);
                Ok(())
            }
            Event::Failed(reason, error, duration) => self.failed(reason, error, duration, scene),
            Event::CheckedOut(conn, duration) => self.checked_out(conn, duration, scene),
            Event::CheckedIn(conn) => self.checked_in(conn, scene),
        }
    }

    fn pool_created(&mut self, options: poolhouse_core::pool::PoolOptions, scene: &mut Scene<'_>) -> Judged {
        scene.checks.check("P29", self.state.is_none(), || "a pool is created twice".into())?;
        self.options = options;
        self.state = Some(PoolState::Paused);
        Ok(())
    }

    fn pool_ready(&mut self, scene: &mut Scene<'_>) -> Judged {
        let may = self.state == Some(PoolState::Paused) && matches!(scene.input, Input::Ready | Input::Unseen);
        let state = self.state;
        scene.checks.check("P29", may, || format!("PoolReady of a pool in state {state:?}, by {:?}", scene.input))?;
        self.state = Some(PoolState::Ready);
        self.was_ready = true;
        scene.readied = true;
        scene.clear = None;
        scene.failing = false;
        Ok(())
    }

    fn pool_cleared(
        &mut self,
        service: Option<ObjectId>,
        interrupt: bool,
        cause: Option<Cause>,
        scene: &mut Scene<'_>,
    ) -> Judged {
        let state = self.state;
        scene
            .checks
            .check("P29", state == Some(PoolState::Ready), || format!("PoolCleared of a pool in state {state:?}"))?;
        let reported = match service {
            Some(service) => Clear::Service(service),
            None => Clear::All { interrupt_in_use_connections: interrupt },
        };
        if scene.input != Input::Unseen {
            let expected = scene.clear.filter(|_| !scene.cleared);
            scene.checks.check("P29", expected == Some(reported), || {
                format!("the event reports {reported:?}, but {expected:?} is due")
            })?;
            let why = match scene.input {
                Input::Clear { cause, .. } => cause,
                Input::EstablishFailed { error, .. } => Some(error.cause),
                Input::Fork => Some(Cause::Forked),
                _ => None,
            };
            scene
                .checks
                .check("P31", why == cause, || format!("cleared by {why:?}, but the event reports {cause:?}"))?;
        }
        scene.cleared = true;
        scene.failing = false;
        scene.clear = Some(reported);
        self.raise(reported, scene.input == Input::Fork);
        if service.is_none() {
            // A load balancer has no monitor that could mark the pool ready again.
            if !self.options.load_balanced {
                self.state = Some(PoolState::Paused);
            }
            self.pause_until = None;
            self.pause = PAUSE_FIRST;
        }
        Ok(())
    }

    fn pool_closed(&mut self, scene: &mut Scene<'_>) -> Judged {
        let may = matches!(scene.input, Input::Close | Input::Unseen);
        scene.checks.check("P29", may, || format!("PoolClosed by {:?}", scene.input))?;
        self.closing = false;
        self.state = Some(PoolState::Closed);
        self.sweep = false;
        self.fill_target = 0;
        self.pause_until = None;
        let left = (self.pending, self.available, self.queue.len());
        scene.checks.check("P42", left == (0, 0, 0), || {
            format!("pending, available, waiting: {left:?} are left in a closed pool")
        })
    }

    fn created(&mut self, number: u64, scene: &mut Scene<'_>) -> Judged {
        let expected = self.newest + 1;
        scene.checks.check("P6", number == expected, || format!("connection {number} after {}", expected - 1))?;
        let state = self.state;
        scene.checks.check("P37", self.was_ready, || "a new pool creates a connection".into())?;
        scene.checks.check("P38", state == Some(PoolState::Ready), || {
            format!("a pool in state {state:?} creates a connection")
        })?;
        self.newest = number;
        scene.created += 1;
        self.bind_all();
        let waiting = self.oldest_unbound();
        let options = self.options;
        let usable =
            || self.conns.values().any(|it| it.place == Place::Available && !self.is_stale(it) && !self.is_idle(it));
        let spared = self.available > 0 && waiting.is_some() && usable();
        scene.checks.check("P17", !spared, || "a connection is created although one is available".into())?;
        if let Input::Established { conn } = scene.input {
            let is_pending = self.conns.get(&conn).is_some_and(|it| it.place == Place::Pending);
            scene.checks.check("P17", !is_pending, || format!("created before {conn} is ready"))?;
        }
        if waiting.is_none() {
            self.created_in_background(scene)?;
        }
        let generation = self.generation;
        let conn = Conn {
            created: self.now,
            place: Place::Pending,
            generation,
            service: None,
            since: self.now,
            purpose: if waiting.is_some() { Purpose::Nobody } else { Purpose::Background },
            reported: false,
            interrupted: false,
            retired: false,
            owes_interrupt: false,
        };
        self.conns.insert(number, conn);
        self.count(None, Some(Place::Pending));
        if let Some(place) = waiting {
            self.bind(number, place);
        }
        let (total, pending) = (self.total(), self.pending);
        scene.checks.check("P2", options.max_pool_size == 0 || total <= options.max_pool_size, || {
            format!("{total} connections, but maxPoolSize is {}", options.max_pool_size)
        })?;
        scene.checks.check("P3", pending <= options.max_connecting, || {
            format!("{pending} are being established, but maxConnecting is {}", options.max_connecting)
        })?;
        let taken = self.conns.len() + self.owed_closes.len() + self.owed_ends.len();
        scene.checks.check("P48", taken <= self.room.conns as usize, || format!("{taken} connection slots are in use"))
    }

    /// A connection is created for no waiter, to fill the pool.
    fn created_in_background(&mut self, scene: &mut Scene<'_>) -> Judged {
        // Events do not show fill targets.
        if scene.input == Input::Unseen {
            return Ok(());
        }
        let (total, goal) = (self.total(), self.goal());
        scene
            .checks
            .check("P4", total < goal, || format!("a connection is created, although {total} of {goal} exist"))?;
        let twice = self.has_background();
        scene.checks.check("P4", !twice, || "two connections are established in the background at once".into())?;
        let (now, until) = (self.now, self.pause_until);
        scene.checks.check("P53", until.is_none_or(|until| until <= now), || {
            format!("the next attempt is at {now:?}, but must not be before {until:?}")
        })?;
        self.pause_until = None;
        Ok(())
    }

    fn ready(&mut self, number: u64, duration: Duration, scene: &mut Scene<'_>) -> Judged {
        let found = self.conns.get(&number).copied().filter(|it| it.place == Place::Pending);
        let Some(conn) = found else {
            return scene
                .checks
                .check("P27", false, || format!("{number} becomes ready, but is not being established"));
        };
        scene.checks.add("P27");
        let is_news = matches!(scene.input, Input::Established { conn } if conn == number);
        scene
            .checks
            .check("P27", is_news || scene.input == Input::Unseen, || format!("{number} by {:?}", scene.input))?;
        let stale = self.is_stale(&conn) && !(scene.input == Input::Unseen && self.options.load_balanced);
        scene.checks.check("P36", !stale, || format!("{number} is stale, but becomes ready"))?;
        self.lasted(duration, conn.created, scene)?;
        if conn.purpose == Purpose::Background {
            self.pause_until = None;
            self.pause = PAUSE_FIRST;
        }
        let now = self.now;
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.place = Place::Available;
            conn.since = now;
        }
        self.count(Some(Place::Pending), Some(Place::Available));
        Ok(())
    }

    /// A duration must be the time since `start`.
    fn lasted(&self, duration: Duration, start: Instant, scene: &mut Scene<'_>) -> Judged {
        let passed = self.now.saturating_since(start);
        scene
            .checks
            .check("P32", duration == passed, || format!("the event reports {duration:?}, but {passed:?} have passed"))
    }

    fn closed(&mut self, number: u64, reason: ClosedReason, cause: Option<Cause>, scene: &mut Scene<'_>) -> Judged {
        let Some(conn) = self.conns.get(&number).copied() else {
            let is_old = number <= self.newest;
            return scene.checks.check(if is_old { "P5" } else { "P6" }, false, || {
                format!("an unknown connection {number} is closed")
            });
        };
        scene.checks.add("P5");
        // A connection in use must be checked in before it is closed.
        scene.checks.check("P27", conn.place != Place::InUse, || format!("{number} is closed while it is in use"))?;
        self.is_true(number, &conn, reason, cause, scene)?;
        if let Some(Clear::All { interrupt_in_use_connections: true }) =
            scene.clear.filter(|_| conn.place == Place::Pending)
        {
            scene.checks.check("P30", !scene.failing, || format!("{number} is closed after check-outs failed"))?;
        }
        let is_news = match scene.input {
            Input::Established { conn } | Input::EstablishFailed { conn, .. } => conn == number,
            Input::CheckIn { conn, .. } => conn == Some(number),
            _ => false,
        };
        // The reported connection was closed as surplus in this step.
        scene.gone |= is_news && conn.place == Place::Pending;
        scene.closed += 1;
        self.conns.remove(&number);
        self.count(Some(conn.place), None);
        self.forget_service(conn.service);
        if conn.place != Place::Pending {
            self.owed_closes.insert(number);
        } else {
            if conn.reported && !is_news {
                self.owed_ends.insert(number);
            }
            let unbound_waiter = self.unbind(number);
            if is_news {
                scene.unbound_waiter = unbound_waiter;
            }
            if is_news && conn.purpose == Purpose::Background && reason == ClosedReason::Error {
                self.pause_for_a_while();
            }
        }
        if scene.input == Input::Unseen {
            self.owed_closes.clear();
            self.owed_ends.clear();
            self.closing |= reason == ClosedReason::PoolClosed && self.state != Some(PoolState::Closed);
        }
        Ok(())
    }

    /// A pause after a background failure that did not clear the pool.
    fn pause_for_a_while(&mut self) {
        if self.state == Some(PoolState::Ready) {
            self.pause_until = Some(self.now.saturating_add(self.pause));
            self.pause = (self.pause * 2).min(PAUSE_LAST);
        }
    }

    fn forget_service(&mut self, service: Option<ObjectId>) {
        let Some(service) = service else { return };
        if !self.conns.values().any(|conn| conn.service == Some(service)) {
            self.services.remove(&service);
        }
    }

    /// Checks the reason of a close.
    fn is_true(
        &self,
        number: u64,
        conn: &Conn,
        reason: ClosedReason,
        cause: Option<Cause>,
        scene: &mut Scene<'_>,
    ) -> Judged {
        let unseen = scene.input == Input::Unseen;
        let is_closing = self.state == Some(PoolState::Closed) || scene.input == Input::Close;
        let error = match scene.input {
            Input::EstablishFailed { conn, error } if conn == number => Some(error.cause),
            Input::CheckIn { conn: Some(conn), health: Health::Broken(cause) } if conn == number => Some(cause),
            Input::Established { conn: at } if at == number && self.options.load_balanced && conn.service.is_none() => {
                Some(Cause::MissingServiceId)
            }
            _ => None,
        };
        let holds = match reason {
            ClosedReason::Stale => self.is_stale(conn) || (unseen && self.options.load_balanced),
            ClosedReason::Idle => return self.is_over(number, conn, scene),
            ClosedReason::Error => unseen || (error.is_some() && error == cause),
            ClosedReason::PoolClosed => unseen || is_closing,
        };
        scene.checks.check("P31", holds, || format!("{number} is closed as {}: {cause:?}", reason.name()))
    }

    /// The connection exceeded maxIdleTimeMS, or is surplus.
    fn is_over(&self, number: u64, conn: &Conn, scene: &mut Scene<'_>) -> Judged {
        let is_free = conn.place == Place::Available;
        let holds = is_free && (self.is_idle(conn) || self.is_beyond_max());
        scene.checks.check("P26", holds, || format!("{number} is closed as idle since {:?}", conn.since))
    }

    fn started(&mut self, scene: &mut Scene<'_>) {
        let timeout = self.options.wait_queue_timeout;
        let own = match scene.input {
            Input::CheckOut { deadline } => deadline,
            _ => None,
        };
        let turn = self.turn + 1;
        let queue = timeout.map(|timeout| self.now.saturating_add(timeout));
        self.turn = turn;
        self.queue.push(Waiter {
            turn,
            number: 0,
            started: self.now,
            own,
            queue,
            bound: None,
            keeps_limit: self.options.limits_establishing,
        });
        scene.newcomer = Some(turn);
    }

    fn failed(
        &mut self,
        reason: CheckOutFailedReason,
        error: CheckOutError,
        duration: Duration,
        scene: &mut Scene<'_>,
    ) -> Judged {
        self.is_reason(reason, error, scene)?;
        let Some(place) = self.failed_waiter(error, duration, scene) else {
            return scene.checks.check("P8", false, || format!("no waiter could fail: {error:?} after {duration:?}"));
        };
        scene.checks.add("P8");
        self.lasted(duration, self.queue[place].started, scene)?;
        let waiter = self.queue[place];
        if matches!(error, CheckOutError::WaitQueueTimeout { .. }) {
            self.timed_out(&waiter, scene)?;
        }
        if matches!(error, CheckOutError::PoolCleared { .. } | CheckOutError::PoolClosed) {
            let is_refused = scene.newcomer == Some(waiter.turn);
            scene.failing |= !is_refused;
            let is_own = matches!(scene.input, Input::Established { .. }) || self.options.load_balanced;
            let is_first = place == 0 || is_refused || is_own;
            scene.checks.check("P39", is_first, || "a younger waiter fails before an older one".into())?;
        }
        self.remove_waiter(place);
        self.settle(waiter, Fate::Failed(error), scene);
        Ok(())
    }

    fn timed_out(&self, waiter: &Waiter, scene: &mut Scene<'_>) -> Judged {
        if scene.input == Input::Unseen {
            return Ok(());
        }
        let until = waiter.until();
        scene.checks.check("P22", until.is_some(), || "a waiter without a limit timed out".into())?;
        let now = self.now;
        scene.checks.check("P18", until.is_some_and(|until| until <= now), || {
            format!("timed out at {now:?}, but its deadline is {until:?}")
        })?;
        scene.timed_out = true;
        Ok(())
    }

    /// The reason of a failure must match its error and the state of the pool.
    fn is_reason(&self, reason: CheckOutFailedReason, error: CheckOutError, scene: &mut Scene<'_>) -> Judged {
        let unseen = scene.input == Input::Unseen;
        let is_closing = self.closing || self.state == Some(PoolState::Closed) || scene.input == Input::Close;
        let (expected, holds) = match error {
            CheckOutError::PoolClosed => (CheckOutFailedReason::PoolClosed, unseen || is_closing),
            CheckOutError::WaitQueueTimeout { .. } => (CheckOutFailedReason::Timeout, true),
            CheckOutError::PoolCleared { .. } => {
                let is_paused = self.state == Some(PoolState::Paused) || scene.clear.is_some();
                let is_stale = matches!(scene.input, Input::Established { .. });
                (CheckOutFailedReason::ConnectionError, is_paused || is_stale || unseen)
            }
            CheckOutError::EstablishFailed { cause, overloaded } => {
                self.is_label(cause, overloaded, scene)?;
                (CheckOutFailedReason::ConnectionError, true)
            }
            CheckOutError::Busy { .. } => {
                (CheckOutFailedReason::ConnectionError, self.room.waiters < u32::MAX || unseen)
            }
            CheckOutError::Cancelled => {
                (CheckOutFailedReason::ConnectionError, unseen || matches!(scene.input, Input::Cancel { .. }))
            }
            _ => (reason, false),
        };
        let state = self.state;
        scene.checks.check("P31", reason == expected && holds, || {
            format!("failed as {}: {error:?}, but the pool is {state:?}", reason.name())
        })
    }

    /// The error of an establishment must be passed on unchanged, with its labels.
    fn is_label(&self, cause: Cause, overloaded: bool, scene: &mut Scene<'_>) -> Judged {
        match scene.input {
            Input::EstablishFailed { error, .. } => {
                let same = (error.cause, error.overloaded) == (cause, overloaded);
                scene.checks.check("P46", same, || format!("{error:?} became {cause:?}, overloaded: {overloaded}"))
            }
            Input::Established { .. } => {
                let is_missing = cause == Cause::MissingServiceId && !overloaded;
                scene.checks.check("P46", is_missing, || format!("{cause:?}, overloaded: {overloaded}"))
            }
            Input::Unseen => Ok(()),
            _ => scene.checks.check("P31", false, || format!("{:?} fails an establishment", scene.input)),
        }
    }

    /// Position in the queue of the check-out that failed.
    fn failed_waiter(&mut self, error: CheckOutError, duration: Duration, scene: &Scene<'_>) -> Option<usize> {
        let now = self.now;
        let fits = |waiter: &Waiter| now.saturating_since(waiter.started) == duration;
        if scene.input == Input::Unseen {
            return self.queue.iter().position(fits);
        }
        let by_turn = |turn| self.queue.iter().position(|waiter| waiter.turn == turn);
        match error {
            CheckOutError::Cancelled => {
                let Input::Cancel { waiter } = scene.input else { return None };
                self.has_not_ended(waiter);
                self.queue.iter().position(|it| it.number == waiter && waiter > 0)
            }
            CheckOutError::PoolCleared { .. } | CheckOutError::PoolClosed => {
                match (scene.input, scene.unbound_waiter) {
                    (Input::CheckOut { .. }, _) => by_turn(scene.newcomer?),
                    (Input::Established { .. }, Some(turn)) => by_turn(turn),
                    // Several check-outs fail in one call: the first one with a matching duration
                    // is taken.
                    _ => self.queue.iter().position(fits),
                }
            }
            CheckOutError::EstablishFailed { .. } => {
                let own = scene.unbound_waiter.and_then(by_turn);
                let is_other = self.unsure && own.is_none_or(|place| !fits(&self.queue[place]));
                if is_other { self.queue.iter().position(fits) } else { own }
            }
            CheckOutError::WaitQueueTimeout { .. } => self.timed_out_waiter(fits),
            _ => by_turn(scene.newcomer?),
        }
    }

    /// Position in the queue of the check-out that timed out: the oldest one first, then the one
    /// that is late for longest.
    fn timed_out_waiter(&mut self, fits: impl Fn(&Waiter) -> bool) -> Option<usize> {
        let is_late = |waiter: &Waiter| waiter.until().is_some_and(|at| at <= self.now);
        let late = || self.queue.iter().enumerate().filter(|(_, waiter)| fits(waiter) && is_late(waiter));
        let first = late().map(|(_, waiter)| waiter.until()).min();
        let Some(first) = first else { return self.queue.iter().position(fits) };
        // Or a left-over connection was passed to the oldest unbound waiter after its deadline.
        let unbound = self.queue.iter().position(|waiter| waiter.bound.is_none());
        let mut same =
            late().filter(|(place, waiter)| *place == 0 || waiter.until() == first || unbound == Some(*place));
        let place = if late().next()?.0 == 0 { 0 } else { late().find(|(_, waiter)| waiter.until() == first)?.0 };
        let is_unsure = same.clone().nth(1).is_some() && same.any(|(_, it)| it.bound.is_some());
        self.unsure |= is_unsure;
        Some(place)
    }

    /// Records the end of a wait.
    fn settle(&mut self, waiter: Waiter, fate: Fate, scene: &mut Scene<'_>) {
        if scene.newcomer == Some(waiter.turn) {
            scene.outcome = Some(fate);
        } else if waiter.number > 0 {
            self.settled.insert(waiter.number, (fate, false));
            if self.unsure {
                self.doubtful.insert(waiter.number, waiter);
            }
        }
    }

    fn checked_out(&mut self, number: u64, duration: Duration, scene: &mut Scene<'_>) -> Judged {
        let Some(conn) = self.conns.get(&number).copied() else {
            return scene.checks.check("P27", false, || format!("an unknown connection {number} is checked out"));
        };
        scene.checks.check("P5", conn.place != Place::InUse, || format!("{number} is checked out twice"))?;
        scene
            .checks
            .check("P27", conn.place == Place::Available, || format!("{number} is checked out, but not ready"))?;
        let stale = self.is_stale(&conn) && !(scene.input == Input::Unseen && self.options.load_balanced);
        scene.checks.check("P35", !stale, || format!("{number} is stale, but checked out"))?;
        scene.checks.check("P26", !self.is_idle(&conn), || format!("{number} is idle since {:?}", conn.since))?;
        let now = self.now;
        let Some(oldest) = self.queue.first().copied() else {
            return scene.checks.check("P8", false, || format!("{number} is checked out without a request"));
        };
        scene.checks.add("P8");
        let passed = |waiter: &Waiter| now.saturating_since(waiter.started);
        let other = passed(&oldest) != duration && self.queue.iter().any(|waiter| passed(waiter) == duration);
        scene
            .checks
            .check("P9", !other, || format!("{number} is granted to a waiter of {duration:?}, not to the oldest"))?;
        self.lasted(duration, oldest.started, scene)?;
        let is_new = scene.newcomer == Some(oldest.turn);
        scene.checks.check("P21", is_new || oldest.until().is_none_or(|until| until > now), || {
            format!("{number} is granted to a waiter that should have timed out at {:?}", oldest.until())
        })?;
        self.serve_oldest(number);
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.place = Place::InUse;
            conn.purpose = Purpose::Nobody;
        }
        self.count(Some(Place::Available), Some(Place::InUse));
        self.settle(oldest, Fate::Granted(number), scene);
        Ok(())
    }

    fn checked_in(&mut self, number: u64, scene: &mut Scene<'_>) -> Judged {
        let is_in_use = self.conns.get(&number).is_some_and(|conn| conn.place == Place::InUse);
        scene.checks.check("P27", is_in_use, || format!("{number} is checked in, but not in use"))?;
        let is_asked = match scene.input {
            Input::CheckIn { conn, .. } => conn == Some(number),
            Input::Cancel { waiter } => {
                self.ends_as(waiter, Fate::Granted(number));
                self.settled.get(&waiter).is_some_and(|(fate, _)| *fate == Fate::Granted(number))
            }
            Input::Unseen => true,
            _ => false,
        };
        scene.checks.check("P5", is_asked, || format!("{number} is checked in by {:?}", scene.input))?;
        let now = self.now;
        if let Some(conn) = self.conns.get_mut(&number) {
            conn.place = Place::Available;
            conn.since = now;
            conn.interrupted = false;
            conn.owes_interrupt = false;
        }
        self.count(Some(Place::InUse), Some(Place::Available));
        scene.checked_in = Some(number);
        Ok(())
    }
}
