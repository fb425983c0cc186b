//! The state of the model for a search: all values that decide its future behaviour.

use super::{Conn, Model, Outcome, Place, SECOND_NS, Waiter};
use crate::canon::Canon;
use core::hash::Hash;

impl Model {
    /// Connections and check-outs are identified by their positions; times and generations are made
    /// canonical by the search.
    pub fn words(&self, canon: &mut Canon) {
        let Self { events, options, room: _, state, now, generation, services, conns, waiters, cleared_by, .. } = self;
        let Self { last_id: _, last_number: _, last_turn: _, populate_at, run_due, backoff_ms, fill_target, .. } = self;
        let Self { opened: _, opened_at, .. } = self;
        assert!(events.is_empty(), "events were taken");
        (options, state, cleared_by, populate_at.is_some(), run_due, backoff_ms, fill_target).hash(canon);
        canon.time(*now);
        canon.time(populate_at.unwrap_or(0));
        let opened = self.opened();
        opened.hash(canon);
        // The end of the second, which is in the future: an age would be cut off at the horizon.
        canon.time(if opened > 0 { opened_at.saturating_add(SECOND_NS) } else { 0 });
        canon.generation(*generation);
        for (id, (generation, count)) in services {
            (id, count).hash(canon);
            canon.generation(*generation);
        }
        (conns.len(), waiters.len()).hash(canon);
        for conn in conns {
            self.words_of_conn(conn, canon);
        }
        for waiter in waiters {
            self.words_of_waiter(waiter, canon);
        }
    }

    fn words_of_conn(&self, conn: &Conn, canon: &mut Canon) {
        let Conn { id: _, place, generation, service, created: _, available_since, turn, .. } = conn;
        let Conn { pinned, interrupted, retired, owes_interrupt, bound, background, .. } = conn;
        (place, service, pinned, interrupted, retired, owes_interrupt, background).hash(canon);
        canon.generation(*generation);
        bound.map(|number| self.waiters.iter().position(|waiter| waiter.number == number)).hash(canon);
        if *place == Place::Available {
            canon.time(*available_since);
            let older = self.conns.iter().filter(|other| other.place == Place::Available && other.turn < *turn);
            older.count().hash(canon);
        }
    }

    fn words_of_waiter(&self, waiter: &Waiter, canon: &mut Canon) {
        let Waiter { number: _, outcome, started: _, deadline, limit, bound, owes_wake } = waiter;
        let place_of = |id: u64| self.conns.iter().position(|conn| conn.id == id);
        match outcome {
            Outcome::Granted(id) => (1_u8, place_of(*id)).hash(canon),
            Outcome::Waiting => {
                (0_u8, limit, deadline.is_some()).hash(canon);
                canon.time(self.due(waiter).unwrap_or(u64::MAX));
            }
            Outcome::Failed(error) => (2_u8, error).hash(canon),
        }
        (bound.map(place_of), owes_wake).hash(canon);
    }
}
