//! Calls of the application.

use super::{Conn, Model, Outcome, Place, Waiter, nanos, reason_of};
use crate::machines::pool::Event;
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::pool::{CheckOutError, Clear, ClosedReason, Health, Pinned, PoolOptions, PoolState, Reuse};

/// Immediate result of a check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedOut {
    /// Granted this connection.
    Granted(u64),
    /// It waits under this number.
    Queued(u64),
    /// It failed.
    Failed(CheckOutError),
}

impl Model {
    /// CMAP-61..70.
    pub fn check_out(&mut self, now: u64, deadline: Option<u64>) -> CheckedOut {
        self.begin(now);
        self.emit(Event::Started);
        let before = self.available().len();
        let outcome = self.try_check_out(deadline);
        self.refuses = false;
        let granted = usize::from(matches!(outcome, CheckedOut::Granted(_)));
        let has_closed = before > self.available().len() + granted;
        match outcome {
            CheckedOut::Granted(id) => self.emit(Event::CheckedOut(id, Duration::ZERO)),
            CheckedOut::Failed(error) => self.emit(Event::Failed(reason_of(error), error, Duration::ZERO)),
            CheckedOut::Queued(_) => {}
        }
        // Without background population, this is what fills the pool (CMAP-55). With it, this
        // replaces the connections that were closed during the check-out.
        if granted == 0 || has_closed || !self.in_background() {
            self.serve(true);
        }
        outcome
    }

    fn try_check_out(&mut self, deadline: Option<u64>) -> CheckedOut {
        match self.state {
            PoolState::Closed => return CheckedOut::Failed(CheckOutError::PoolClosed),
            PoolState::Paused => return CheckedOut::Failed(CheckOutError::PoolCleared { cause: self.cleared_by }),
            PoolState::Ready => {}
        }
        while let Some(next) = self.next_available() {
            let Some(reason) = self.perished(&next) else {
                self.conn_mut(next.id).place = Place::InUse;
                return CheckedOut::Granted(next.id);
            };
            self.close_conn(next.id, reason, None, Some(Place::OwesClose));
        }
        if deadline.is_some_and(|at| at <= self.now) {
            return CheckedOut::Failed(CheckOutError::WaitQueueTimeout { usage: self.usage() });
        }
        if self.waiters.len() >= self.room.waiters || self.refuses {
            let waiting = u32::try_from(self.waiting()).expect("few check-outs");
            return CheckedOut::Failed(CheckOutError::Busy { waiting });
        }
        self.last_number += 1;
        let number = self.last_number;
        self.waiters.push(Waiter {
            number,
            outcome: Outcome::Waiting,
            started: self.now,
            deadline,
            limit: self.options.wait_queue_timeout.map(nanos),
            bound: None,
            owes_wake: false,
        });
        // An unbound pending connection will be ready before a new one.
        let fit =
            |conn: &&Conn| conn.place.is_pending() && conn.bound.is_none() && !conn.background && !self.is_stale(conn);
        if let Some(id) = self.conns.iter().find(fit).map(|conn| conn.id) {
            self.rebind(id);
        }
        CheckedOut::Queued(number)
    }

    /// The available connection that a check-out takes next.
    fn next_available(&self) -> Option<Conn> {
        let available = self.available();
        match self.options.reuse {
            Reuse::Newest => available.last().cloned(),
            Reuse::Oldest => available.first().cloned(),
        }
    }

    /// Closes an available connection, or one in use when it is checked in.
    pub fn retire(&mut self, now: u64, id: u64) {
        self.begin(now);
        match self.conn(id).map(|conn| conn.place) {
            Some(Place::Available) => {
                self.close_conn(id, ClosedReason::Stale, None, Some(Place::OwesClose));
                self.serve(self.in_background());
            }
            Some(Place::InUse) => self.conn_mut(id).retired = true,
            Some(Place::OwesEstablish | Place::Establishing | Place::OwesAbandon | Place::OwesClose) | None => {}
        }
    }

    /// Available connections, oldest first.
    pub(super) fn available(&self) -> Vec<Conn> {
        let mut list: Vec<_> = self.conns.iter().filter(|conn| conn.place == Place::Available).cloned().collect();
        list.sort_by_key(|conn| conn.turn);
        list
    }

    /// Takes the outcome. Returns `None` for a number with an already claimed outcome.
    pub fn claim(&mut self, now: u64, number: u64) -> Option<Outcome> {
        self.advance(now);
        let outcome = self.waiter(number)?.outcome;
        if outcome != Outcome::Waiting {
            self.waiters.retain(|waiter| waiter.number != number);
        }
        Some(outcome)
    }

    /// P11..P13.
    pub fn cancel(&mut self, now: u64, number: u64) {
        self.advance(now);
        if self.waiter(number).is_none() {
            return;
        }
        self.begin(now);
        let Some(outcome) = self.waiter(number).map(|waiter| waiter.outcome) else { return };
        match outcome {
            Outcome::Waiting => {
                if let Some(id) = self.fail(number, CheckOutError::Cancelled) {
                    self.rebind(id);
                }
            }
            Outcome::Granted(id) => self.take_back(id, Health::Healthy),
            Outcome::Failed(_) => {}
        }
        self.waiters.retain(|waiter| waiter.number != number);
    }

    /// CMAP-72, CMAP-73.
    pub fn check_in(&mut self, now: u64, id: u64, health: Health) {
        self.begin(now);
        self.take_back(id, health);
    }

    fn take_back(&mut self, id: u64, health: Health) {
        self.emit(Event::CheckedIn(id));
        let conn = self.conn_mut(id);
        assert_eq!(conn.place, Place::InUse, "P5: only a connection in use is returned");
        conn.pinned = Pinned::No;
        conn.owes_interrupt = false;
        let conn = conn.clone();
        let perished = match health {
            Health::Broken(cause) => Some((ClosedReason::Error, Some(cause))),
            Health::Healthy if self.state == PoolState::Closed => Some((ClosedReason::PoolClosed, None)),
            Health::Healthy if self.is_stale(&conn) => Some((ClosedReason::Stale, None)),
            Health::Healthy if self.is_beyond_max() => Some((ClosedReason::Idle, None)),
            Health::Healthy => None,
        };
        match perished {
            Some((reason, cause)) => {
                self.close_conn(id, reason, cause, Some(Place::OwesClose));
                self.serve(self.in_background());
            }
            None => self.give(id),
        }
    }

    /// Whether a check-out needs neither the time nor an observer: the newest available connection
    /// is usable, and no other work is due.
    #[must_use]
    pub fn is_untimed_check_out(&self) -> bool {
        let newest = self.available().last().cloned();
        let is_good = newest.is_some_and(|conn| conn.service.is_none() && !self.is_stale(&conn));
        let is_plain = self.options.background && self.options.reuse == Reuse::Newest;
        self.state == PoolState::Ready && is_plain && self.options.max_idle_time.is_none() && is_good
    }

    /// Whether the check-in of a healthy connection needs neither the time nor an observer: the
    /// connection becomes available, or goes to a waiter, and no waiter has a time limit.
    ///
    /// After [`Model::reconfigure`] a pool may refuse such a check-in.
    #[must_use]
    pub fn is_untimed_check_in(&self, id: u64) -> bool {
        let is_good = |conn: &Conn| {
            conn.place == Place::InUse && conn.pinned == Pinned::No && conn.service.is_none() && !self.is_stale(conn)
        };
        let is_plain = self.conn(id).is_some_and(is_good) && self.options.max_idle_time.is_none();
        is_plain && self.state != PoolState::Closed && !self.has_limits() && !self.is_beyond_max()
    }

    /// A check-out at the time of the last call. Its events are those that an observer would have
    /// received.
    pub fn check_out_without_clock(&mut self) -> u64 {
        assert!(self.is_untimed_check_out(), "the check-out needs the time or an observer");
        match self.check_out(self.now, None) {
            CheckedOut::Granted(id) => id,
            other @ (CheckedOut::Queued(_) | CheckedOut::Failed(_)) => panic!("must be granted, not {other:?}"),
        }
    }

    /// A check-in at the time of the last call. Its event is the one that an observer would have
    /// received.
    pub fn check_in_without_clock(&mut self, id: u64) {
        assert!(self.is_untimed_check_in(id), "the check-in of {id} needs the time or an observer");
        self.check_in(self.now, id, Health::Healthy);
    }

    /// Whether the options have been changed.
    #[must_use]
    pub const fn is_reconfigured(&self) -> bool {
        self.reconfigured
    }

    /// Changes the options. The mode and the background setting stay.
    pub fn reconfigure(&mut self, now: u64, options: PoolOptions) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        self.begin(now);
        self.reconfigured = true;
        let PoolOptions { load_balanced, background, max_idle_time, .. } = self.options;
        self.options = PoolOptions { load_balanced, background, ..options };
        // Without maxIdleTimeMS the clock need not have been read, so the idle time starts now.
        if max_idle_time.is_none() && options.max_idle_time.is_some() {
            let now = self.now;
            for conn in self.conns.iter_mut().filter(|conn| conn.place == Place::Available) {
                conn.available_since = now;
            }
        }
        for conn in self.available() {
            if self.is_beyond_max() {
                let reason = self.perished(&conn).unwrap_or(ClosedReason::Idle);
                self.close_conn(conn.id, reason, None, Some(Place::OwesClose));
            }
        }
        // The new options may allow more connections, for waiters and in the background.
        self.serve(self.in_background());
    }

    /// Sets the one-time fill target, in connections; 0 cancels it.
    pub fn set_fill_target(&mut self, now: u64, count: u32) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        self.begin(now);
        if count > self.fill_target {
            self.populate_at = None;
        }
        self.fill_target = count;
        self.serve(self.in_background());
    }

    /// CMAP-93.
    pub fn pin(&mut self, id: u64, pinned: Pinned) {
        self.conn_mut(id).pinned = pinned;
    }

    /// CMAP-39, CMAP-41, CMAP-42.
    pub fn ready(&mut self, now: u64) {
        self.advance(now);
        if self.state == PoolState::Paused {
            self.state = PoolState::Ready;
            self.cleared_by = None;
            self.no_back_off();
            self.emit(Event::PoolReady);
            self.serve(self.in_background());
        }
    }

    /// CMAP-75..89. Returns false if this kind of clear belongs to the other mode.
    pub fn clear(&mut self, now: u64, clear: Clear, cause: Option<Cause>) -> bool {
        let of_mode = self.is_of_mode(clear);
        if of_mode {
            self.begin(now);
            self.raise(clear, cause);
            self.finish_clear(clear, cause);
        }
        of_mode
    }

    pub(super) fn is_of_mode(&self, clear: Clear) -> bool {
        matches!(clear, Clear::Service(_)) == self.options.load_balanced
    }

    /// Increases the generation and emits the event.
    pub(super) fn raise(&mut self, clear: Clear, cause: Option<Cause>) {
        if self.state == PoolState::Closed {
            return;
        }
        let any = self.conns.iter().any(|conn| conn.place == Place::Available);
        match clear {
            Clear::All { interrupt_in_use_connections: interrupt } => {
                self.generation += 1;
                self.run_due = any;
                if self.state == PoolState::Ready {
                    self.no_back_off();
                    // A load balancer has no monitor that could mark the pool ready again.
                    if !self.options.load_balanced {
                        self.state = PoolState::Paused;
                        // Check-outs fail with this cause until the pool is ready again.
                        self.cleared_by = cause;
                    }
                    self.emit(Event::PoolCleared { service: None, interrupt, cause });
                }
            }
            Clear::Service(service) => {
                if let Some((generation, _)) = self.services.get_mut(&service) {
                    *generation += 1;
                    self.run_due |= any;
                }
                if self.state == PoolState::Ready {
                    self.emit(Event::PoolCleared { service: Some(service), interrupt: false, cause });
                }
            }
        }
    }

    /// Interrupts the requested connections, and fails the waiters.
    pub(super) fn finish_clear(&mut self, clear: Clear, cause: Option<Cause>) {
        let Clear::All { interrupt_in_use_connections: interrupt } = clear else { return };
        if self.state == PoolState::Closed {
            return;
        }
        if interrupt {
            self.abandon_pending(ClosedReason::Stale, cause);
            self.interrupt_in_use();
        }
        self.fail_all(CheckOutError::PoolCleared { cause });
    }

    fn abandon_pending(&mut self, reason: ClosedReason, cause: Option<Cause>) {
        for conn in self.conns.clone().iter().filter(|conn| conn.place.is_pending()) {
            if let Some(number) = conn.bound {
                self.waiter_mut(number).bound = None;
            }
            let reported = conn.place == Place::Establishing;
            self.close_conn(conn.id, reason, cause, reported.then_some(Place::OwesAbandon));
        }
    }

    fn interrupt_in_use(&mut self) {
        for conn in self.conns.iter_mut().filter(|conn| conn.place == Place::InUse && !conn.interrupted) {
            conn.interrupted = true;
            conn.owes_interrupt = true;
        }
    }

    /// CMAP-36..40.
    pub fn close(&mut self, now: u64) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        self.begin(now);
        self.state = PoolState::Closed;
        self.run_due = false;
        self.fill_target = 0;
        for conn in self.available() {
            self.close_conn(conn.id, ClosedReason::PoolClosed, None, Some(Place::OwesClose));
        }
        self.abandon_pending(ClosedReason::PoolClosed, None);
        self.fail_all(CheckOutError::PoolClosed);
        self.emit(Event::PoolClosed);
    }

    /// CMAP-30, CMAP-100.
    pub fn reset_after_fork(&mut self, now: u64) {
        self.advance(now);
        if self.state == PoolState::Closed {
            return;
        }
        self.begin(now);
        let cause = Some(Cause::Forked);
        for (generation, _) in self.services.values_mut() {
            *generation += 1;
        }
        self.raise(Clear::All { interrupt_in_use_connections: true }, cause);
        self.abandon_pending(ClosedReason::Stale, cause);
        self.interrupt_in_use();
        self.fail_all(CheckOutError::PoolCleared { cause });
        for conn in self.available() {
            self.close_conn(conn.id, ClosedReason::Stale, None, Some(Place::OwesClose));
        }
        self.serve(self.in_background());
    }

    /// CMAP-25, CMAP-54, CMAP-57.
    pub fn handle_timeout(&mut self, now: u64) {
        self.begin(now);
        if self.in_background() {
            self.run_due = false;
            for conn in self.available() {
                if let Some(reason) = self.perished(&conn) {
                    self.close_conn(conn.id, reason, None, Some(Place::OwesClose));
                }
            }
        }
        self.serve(self.in_background());
    }

    /// Advances the time. Expired waits end before any other change (P19, P21).
    pub(super) fn begin(&mut self, now: u64) {
        self.advance(now);
        let usage = self.usage();
        let mut freed = Vec::new();
        while let Some(number) = self.next_late() {
            freed.extend(self.fail(number, CheckOutError::WaitQueueTimeout { usage }));
        }
        for id in freed {
            self.rebind(id);
        }
    }

    /// The late check-out that ends next: in the order of the pool, or else the oldest if it is
    /// late, else the one that has been late for longest.
    fn next_late(&self) -> Option<u64> {
        let mut late: Vec<(u64, u64)> =
            self.queue().filter_map(|waiter| Some((self.due(waiter)?, waiter.number))).collect();
        late.retain(|&(at, _)| at <= self.now);
        late.sort_unstable();
        let is_late = |number: &&u64| late.iter().any(|(_, late)| late == *number);
        if let Some(next) = self.ends.iter().find(is_late) {
            return Some(*next);
        }
        let oldest = self.queue().next()?.number;
        late.iter().find(|&&(_, number)| number == oldest).or(late.first()).map(|&(_, number)| number)
    }
}
