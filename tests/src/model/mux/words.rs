//! The state of the model for a search: all values that decide its future behaviour.

use super::{Conn, Heartbeat, Model, Outcome, Place, Stand, Waiter};
use crate::canon::Canon;
use core::hash::Hash;

impl Model {
    /// Connections and requests are identified by their positions, and times are made canonical by
    /// the search.
    pub fn words(&self, canon: &mut Canon) {
        let Self {
            events,
            options,
            room: _,
            now,
            closed,
            conns,
            waiters,
            window,
            down,
            reported_up,
            pause,
            random,
            ..
        } = self;
        let Self { last_conn: _, last_waiter: _, last_request: _, .. } = self;
        assert!(events.is_empty(), "events were taken");
        (options, closed, reported_up, pause, random).hash(canon);
        (window.map(|(_, most)| most), down.map(|down| (down.cause, down.refuses))).hash(canon);
        canon.time(*now);
        canon.time(window.map_or(0, |(at, _)| at));
        canon.time(down.map_or(0, |down| down.since));
        canon.time(down.map_or(0, |down| down.until));
        (conns.len(), waiters.len()).hash(canon);
        for conn in conns {
            Self::words_of_conn(conn, canon);
        }
        for waiter in waiters {
            self.words_of_waiter(waiter, canon);
        }
    }

    fn words_of_conn(conn: &Conn, canon: &mut Canon) {
        // A scope keeps the first stream of all connections, or of none.
        let Conn { id: _, first: _, created: _, .. } = conn;
        let Conn { place, requests, ids, heard, polled, answered, replaced, until, heartbeat, .. } = conn;
        (place, ids, answered, replaced, heartbeat.is_some()).hash(canon);
        canon.time(*heard);
        canon.time(*polled);
        if *place == Place::Trashed {
            canon.time(*until);
        }
        if let Some(Heartbeat { asked, id }) = heartbeat {
            canon.time(*asked);
            id.hash(canon);
        }
        let stands = |stand: &Stand| match stand {
            Stand::Waiting => 0_u8,
            Stand::Answered => 1,
            Stand::Late => 2,
        };
        let mut sorted: Vec<_> = requests.iter().map(|request| (request.id, stands(&request.stand))).collect();
        sorted.sort_unstable();
        sorted.hash(canon);
    }

    fn words_of_waiter(&self, waiter: &Waiter, canon: &mut Canon) {
        let Waiter { number: _, outcome, started: _, until, owes_wake } = waiter;
        owes_wake.hash(canon);
        match outcome {
            Outcome::Waiting => canon.time(*until),
            Outcome::Granted(id, request) => {
                let place = self.conns.iter().position(|conn| conn.id == *id);
                let requests = place.map(|place| &self.conns[place].requests);
                let known = requests.and_then(|known| known.iter().find(|known| known.number == *request));
                (place, known.and_then(|known| known.id)).hash(canon);
            }
            Outcome::Failed(error) => error.hash(canon),
        }
        core::mem::discriminant(outcome).hash(canon);
    }
}
