//! The waiter for which each connection is established, by the rules of the
//! [pool](poolhouse_core::pool). The next created connection is bound to a waiter that has none.
//! The waiter keeps it until another connection serves it. The connection that is then left over is
//! bound to the waiter that lost its own connection in this way, or else to the oldest unbound
//! waiter.

use super::book::{Fate, Oracle, Place, Purpose, Waiter};

impl Oracle {
    /// Position in the queue of the oldest unbound waiter that has not timed out.
    pub(super) fn oldest_unbound(&self) -> Option<usize> {
        let is_late = |waiter: &Waiter| waiter.until().is_some_and(|at| at <= self.now);
        self.queue.iter().position(|waiter| waiter.bound.is_none() && !is_late(waiter))
    }

    /// Binds unbound pending connections to waiters without one.
    pub(super) fn bind_all(&mut self) {
        while self.pending > 0 {
            let Some(place) = self.oldest_unbound() else { return };
            let is_free = |conn: &&u64| {
                let it = &self.conns[*conn];
                it.place == Place::Pending && it.purpose == Purpose::Nobody && !self.is_stale(it)
            };
            let Some(conn) = self.conns.keys().find(is_free).copied() else { return };
            self.bind(conn, place);
        }
    }

    pub(super) fn bind(&mut self, conn: u64, place: usize) {
        let waiter = &mut self.queue[place];
        waiter.bound = Some(conn);
        let turn = waiter.turn;
        if let Some(it) = self.conns.get_mut(&conn) {
            it.purpose = Purpose::Waiter(turn);
        }
    }

    /// Unbinds a connection. The oldest unbound waiter receives it, unless it is stale.
    pub(super) fn pass_on(&mut self, conn: u64) {
        let Some(it) = self.conns.get_mut(&conn).filter(|it| it.place == Place::Pending) else { return };
        it.purpose = Purpose::Nobody;
        let is_stale = self.conns.get(&conn).is_some_and(|it| self.is_stale(it));
        if let Some(place) = self.oldest_unbound().filter(|_| !is_stale) {
            self.bind(conn, place);
        }
    }

    /// Removes a waiter from the queue.
    pub(super) fn remove_waiter(&mut self, place: usize) -> Waiter {
        let waiter = self.queue.remove(place);
        if let Some(conn) = waiter.bound {
            self.pass_on(conn);
        }
        waiter
    }

    /// Grants this connection to the oldest waiter.
    pub(super) fn serve_oldest(&mut self, conn: u64) -> Option<Waiter> {
        if self.queue.is_empty() {
            return None;
        }
        let served = self.queue.remove(0);
        let purpose = match self.conns.get_mut(&conn) {
            Some(it) => core::mem::replace(&mut it.purpose, Purpose::Nobody),
            None => Purpose::Nobody,
        };
        let Some(left) = served.bound.filter(|left| *left != conn) else { return Some(served) };
        let loser = match purpose {
            Purpose::Waiter(turn) => self.queue.iter().position(|waiter| waiter.turn == turn),
            Purpose::Nobody | Purpose::Background => None,
        };
        match loser {
            Some(place) => self.bind(left, place),
            None => self.pass_on(left),
        }
        Some(served)
    }

    /// The connection is no longer being established.
    pub(super) fn unbind(&mut self, conn: u64) -> Option<u64> {
        let waiter = self.queue.iter_mut().find(|waiter| waiter.bound == Some(conn))?;
        waiter.bound = None;
        Some(waiter.turn)
    }

    /// The call shows that this check-out has ended. If the oracle assumed that it waits, a twin
    /// was confused with it.
    pub(super) fn has_ended(&mut self, number: u64) {
        let Some(place) = self.queue.iter().position(|waiter| waiter.number == number && number > 0) else { return };
        let waiting = self.queue[place];
        let twin =
            self.doubtful.values().find(|ended| ended.is_twin(&waiting) && self.settled.contains_key(&ended.number));
        if let Some(twin) = twin.copied() {
            self.exchange_states(place, twin);
        }
    }

    /// The call shows that this check-out still waits. If the oracle assumed that it has ended, a
    /// twin was confused with it.
    pub(super) fn has_not_ended(&mut self, number: u64) {
        let Some(twin) = self.doubtful.get(&number).filter(|_| self.settled.contains_key(&number)).copied() else {
            return;
        };
        if let Some(place) = self.queue.iter().position(|waiter| waiter.is_twin(&twin)) {
            self.exchange_states(place, twin);
        }
    }

    /// The call shows how this check-out has ended. If the oracle assumed another result, a twin
    /// was confused with it.
    pub(super) fn ends_as(&mut self, number: u64, fate: Fate) {
        let (Some(own), Some((thought, is_woken))) = (self.doubtful.get(&number), self.settled.get(&number).copied())
        else {
            return;
        };
        if thought == fate {
            return;
        }
        let is_it = |twin: &&Waiter| {
            twin.is_twin(own) && self.settled.get(&twin.number).is_some_and(|(other, _)| *other == fate)
        };
        let Some(twin) = self.doubtful.values().find(is_it).map(|twin| twin.number) else { return };
        self.settled.insert(number, (fate, is_woken));
        if let Some((other, _)) = self.settled.get_mut(&twin) {
            *other = thought;
        }
    }

    /// Exchanges the assumed states of a waiter in the queue and of its twin, which has ended.
    fn exchange_states(&mut self, place: usize, ended: Waiter) {
        let waiting = self.queue.remove(place);
        if let Some(fate) = self.settled.remove(&ended.number) {
            self.settled.insert(waiting.number, fate);
        }
        self.doubtful.remove(&ended.number);
        self.doubtful.insert(waiting.number, Waiter { bound: ended.bound, ..waiting });
        let back = Waiter { bound: waiting.bound, ..ended };
        let place = self.queue.partition_point(|waiter| waiter.turn < back.turn);
        self.queue.insert(place, back);
        if let Some(it) = back.bound.and_then(|conn| self.conns.get_mut(&conn)) {
            it.purpose = Purpose::Waiter(back.turn);
        }
    }
}
