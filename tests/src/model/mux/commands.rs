//! Calls of the application.

use super::{Down, Model, Outcome, Place, Stand, Waiter, later};
use crate::machines::mux::Event;
use poolhouse_core::mux::{AcquireError, MuxClosed, MuxOptions, Written};

/// Immediate result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// Granted a stream id of this connection, as this request.
    Granted(u64, u64),
    /// It waits under this number.
    Queued(u64),
    /// It is rejected.
    Failed(AcquireError),
}

impl Model {
    /// Requests a stream id.
    pub fn acquire(&mut self, now: u64, deadline: Option<u64>) -> Acquired {
        self.advance(now);
        if self.queue().next().is_none() {
            if let Some(id) = self.least_busy() {
                let request = self.grant(id, None);
                self.provide(false);
                return Acquired::Granted(id, request);
            }
        }
        let outcome = self.acquire_otherwise(deadline);
        if let Acquired::Failed(error) = outcome {
            self.emit(Event::Failed(error, None));
        }
        outcome
    }

    fn acquire_otherwise(&mut self, deadline: Option<u64>) -> Acquired {
        if self.closed {
            return Acquired::Failed(AcquireError::Closed);
        }
        if self.host().is_none() {
            return Acquired::Failed(AcquireError::Ignored);
        }
        self.provide(true);
        if self.queue().next().is_none() {
            if let Some(id) = self.least_busy() {
                return Acquired::Granted(id, self.grant(id, None));
            }
        }
        if let Some(cause) = self.down_cause() {
            return Acquired::Failed(AcquireError::Down { cause });
        }
        let (in_flight, queued) = (self.in_flight(), self.state().queued);
        let MuxOptions { max_queue_size: queue_max, pool_timeout, .. } = self.options;
        let busy = Acquired::Failed(AcquireError::Busy { in_flight, queued, queue_max });
        if queued >= queue_max || pool_timeout.is_zero() {
            return busy;
        }
        let until = later(self.now, pool_timeout).min(deadline.unwrap_or(u64::MAX));
        if until <= self.now {
            return Acquired::Failed(AcquireError::TimedOut { in_flight, queued: queued + 1 });
        }
        if self.waiters.len() >= self.room.waiters {
            return busy;
        }
        self.last_waiter += 1;
        let number = self.last_waiter;
        let (outcome, started) = (Outcome::Waiting, self.now);
        self.waiters.push(Waiter { number, outcome, started, until, owes_wake: false });
        self.emit(Event::Queued(queued + 1));
        Acquired::Queued(number)
    }

    /// Whether a request would wait for the first connection, which then is created.
    pub fn must_connect(&mut self, now: u64) -> bool {
        if self.state().open > 0 {
            return false;
        }
        self.advance(now);
        self.provide(true);
        let waits = self.wants_growth(true) && self.down_cause().is_none();
        self.state().open == 0 && (self.pending() > 0 || waits)
    }

    /// Claims the outcome of a waiter. Returns `None` for an unknown waiter.
    pub fn claim(&mut self, now: u64, number: u64) -> Option<Outcome> {
        self.advance(now);
        let outcome = self.waiter(number)?.outcome;
        if outcome != Outcome::Waiting {
            self.waiters.retain(|waiter| waiter.number != number);
        }
        Some(outcome)
    }

    /// Cancels a waiter.
    pub fn cancel(&mut self, now: u64, number: u64) {
        self.advance(now);
        let Some(outcome) = self.waiter(number).map(|waiter| waiter.outcome) else { return };
        if outcome == Outcome::Waiting {
            self.settle(number, Outcome::Failed(AcquireError::Cancelled));
        }
        self.waiters.retain(|waiter| waiter.number != number);
        if let Outcome::Granted(conn, request) = outcome {
            self.release(now, conn, request, Written::No);
        }
    }

    /// Releases a stream id.
    pub fn release(&mut self, now: u64, conn: u64, request: u64, written: Written) {
        self.advance(now);
        let Some(known) = self.conns.iter_mut().find(|known| known.id == conn) else { return };
        let Some(place) = known.requests.iter().position(|known| known.number == request) else { return };
        match (known.requests[place].stand, written) {
            (Stand::Late, _) => unreachable!("the id was released before"),
            (Stand::Answered, _) => {
                known.requests.remove(place);
                self.serve();
            }
            (Stand::Waiting, Written::No) => {
                known.requests.remove(place);
                self.one_less(conn);
            }
            (Stand::Waiting, Written::Perhaps) => {
                known.requests[place].stand = Stand::Late;
                let id = known.requests[place].id.expect("the machine has reported the id");
                let (late, ids, retired) = (known.count(Stand::Late), known.ids, known.place == Place::Retired);
                self.emit(Event::Orphaned(conn, id, late));
                // Late replies occupy more than a quarter of the usable ids.
                if (ids - late) * 4 < ids * 3 && !retired {
                    self.retire(conn);
                    self.provide(false);
                    self.fail_if_down();
                } else {
                    self.one_less(conn);
                }
            }
        }
    }

    /// Changes the options.
    pub fn reconfigure(&mut self, now: u64, options: MuxOptions) {
        self.advance(now);
        if self.closed {
            return;
        }
        self.options = Self::with_streams(options, self.options.streams_per_connection);
        self.emit(Event::Reconfigured(self.options));
        let Some(host) = self.host() else {
            self.fail_queue(AcquireError::Ignored);
            self.give_up_pending(0);
            for place in [Place::Open, Place::Trashed] {
                while let Some(id) = self.first_at(place) {
                    self.retire(id);
                }
            }
            return;
        };
        let max = host.max_connections;
        if let Some(down) = self.down {
            let until = down.until.min(later(down.since, self.longest(down.cause)));
            self.down = Some(Down { until, ..down });
        }
        self.give_up_pending(max.saturating_sub(self.state().open));
        self.trash_beyond(max);
        // The window starts again.
        self.window = None;
        self.look();
        self.serve();
        self.provide(false);
        self.fail_if_down();
    }

    /// Abandons the newest pending connections beyond a number, first those that the host has not
    /// begun to establish.
    fn give_up_pending(&mut self, number: u32) {
        for place in [Place::OwesEstablish, Place::Establishing] {
            while self.pending() > number {
                let Some(id) = self.at(place).last().map(|conn| conn.id) else { break };
                self.lose(id, MuxClosed::PoolClosed);
            }
        }
    }

    /// Replaces all connections that the host has begun to establish.
    pub fn replace_connections(&mut self, now: u64) {
        self.advance(now);
        self.down = None;
        while let Some(id) = self.first_at(Place::Establishing) {
            self.lose(id, MuxClosed::Replaced);
        }
        for place in [Place::Open, Place::Trashed] {
            while let Some(id) = self.first_at(place) {
                self.conn_mut(id).replaced = true;
                self.retire(id);
            }
        }
        self.provide(false);
        self.fail_if_down();
    }

    /// Closes the pool.
    pub fn close(&mut self, now: u64) {
        self.advance(now);
        if self.closed {
            return;
        }
        self.closed = true;
        self.fail_queue(AcquireError::Closed);
        for place in [Place::OwesEstablish, Place::Establishing, Place::Open, Place::Trashed, Place::Retired] {
            while let Some(id) = self.first_at(place) {
                self.lose(id, MuxClosed::PoolClosed);
            }
        }
        self.window = None;
        self.emit(Event::PoolClosed);
    }
}
