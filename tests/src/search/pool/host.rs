//! A pool, its model, and a simulated driver with every permitted behaviour.

use super::{Input, Shape, mark};
use crate::canon::Canon;
use crate::model::pool::{Event, Model, Outcome};
use crate::oracle::pool::{Bounded, Watched};
use crate::sim::same;
use core::hash::Hash;
use poolhouse_core::pool::{
    CheckOutError, Claim, Clear, ClosedReason, ConnId, EstablishError, Health, Lease, Pool, PoolAction, PoolEvent,
    PoolId, PoolState, WaiterId,
};
use poolhouse_core::{Cause, Instant, ObjectId};

/// The services behind the load balancer.
pub(super) const SERVICES: [ObjectId; 2] = [ObjectId([1; 12]), ObjectId([2; 12])];

/// Start time of a search, in nanoseconds.
const BEGIN: u64 = 1_000_000_000;

/// A pool, its model, and the state of the simulated driver.
#[derive(Debug)]
pub struct Host<M: Bounded> {
    /// With its oracle, which is not part of the state: it checks each step against the preceding
    /// ones.
    pub(super) pool: Watched<M>,
    pub(super) model: Model,
    log: Vec<(Instant, PoolEvent)>,
    pub(super) now: u64,
    pub(super) leases: Vec<Lease>,
    /// Check-outs whose outcome was not claimed, and their numbers in the model; the oldest first.
    pub(super) waiters: Vec<(WaiterId, u64)>,
    /// Establishments that the driver has taken and not ended.
    pub(super) establishing: Vec<ConnId>,
    /// Connections that the pool contains, in the order in which they were created.
    known: Vec<ConnId>,
    /// A connection that it no longer contains, and an ended check-out.
    pub(super) gone: Option<ConnId>,
    pub(super) over: Option<WaiterId>,
    /// Remaining number of each limited input.
    pub(super) left: [u8; Input::LIMITED],
    pub(super) marks: u64,
}

impl<M: Bounded + Clone> Clone for Host<M> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            model: self.model.clone(),
            log: Vec::new(),
            now: self.now,
            leases: self.leases.iter().map(Lease::cloned).collect(),
            waiters: self.waiters.clone(),
            establishing: self.establishing.clone(),
            known: self.known.clone(),
            gone: self.gone,
            over: self.over,
            left: self.left,
            marks: 0,
        }
    }
}

impl<M: Bounded + Clone> Host<M> {
    pub(super) fn new(shape: &Shape) -> Self {
        let mut log = Vec::new();
        let config = shape.options.validate().expect("the options of a scope are valid");
        let mut host = Self {
            pool: Watched::new(Instant::from_nanos(BEGIN), PoolId::new(1), config, &mut log),
            model: Model::new(BEGIN, shape.options, shape.room),
            log,
            now: BEGIN,
            leases: Vec::new(),
            waiters: Vec::new(),
            establishing: Vec::new(),
            known: Vec::new(),
            gone: None,
            over: None,
            left: shape.limits,
            marks: 0,
        };
        host.compare();
        host
    }

    /// Hashes everything that determines further behaviour.
    pub(super) fn print(&self, shape: &Shape) -> u128
    where
        Pool<M>: Hash,
    {
        let generation = (!shape.options.load_balanced).then(|| self.pool.generation().get());
        let mut canon = Canon::new(self.now, shape.horizon, generation);
        let pool: &Pool<M> = &self.pool;
        pool.hash(&mut canon);
        self.model.words(&mut canon);
        let places = |conns: &[ConnId], canon: &mut Canon| {
            conns.len().hash(canon);
            conns.iter().for_each(|conn| conn.index().hash(canon));
        };
        places(&self.known, &mut canon);
        // The driver may report results in any order, so the order of the list is not part of the
        // state.
        let mut sorted: Vec<u32> = self.establishing.iter().map(|conn| conn.index()).collect();
        sorted.sort_unstable();
        sorted.hash(&mut canon);
        let mut sorted: Vec<u32> = self.leases.iter().map(|lease| lease.conn().index()).collect();
        sorted.sort_unstable();
        sorted.hash(&mut canon);
        self.waiters.len().hash(&mut canon);
        self.waiters.iter().for_each(|(waiter, _)| waiter.index().hash(&mut canon));
        (self.left, self.gone.is_some(), self.over.is_some()).hash(&mut canon);
        canon.print()
    }

    pub(super) fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(super) fn mark(&mut self, bit: u64) {
        self.marks |= bit;
    }

    /// Checks that the observable state of the pool equals that of the model.
    pub(super) fn compare(&mut self) {
        let mut actual: Vec<(u64, Event)> = Vec::with_capacity(self.log.len());
        let mut marks = 0;
        for (at, event) in self.log.drain(..) {
            if let PoolEvent::ConnectionCreated { conn, .. } = event {
                self.known.push(conn);
            }
            let event = crate::sim::translated(&event);
            marks |= mark_of(&event);
            actual.push((at.as_nanos(), event));
        }
        self.marks |= marks;
        same::assert_events(actual, core::mem::take(&mut self.model.events));
        let due = same::assert_state(&self.pool, &self.model, &SERVICES);
        if self.model.waiting() > 0 {
            self.marks |= mark::QUEUE;
        }
        if due == Some(self.now) {
            self.marks |= mark::DUE;
        }
        self.compare_conns();
        assert!(
            self.gone.is_none_or(|conn| self.pool.conn_generation(conn).is_none()),
            "P6: a connection id is used again"
        );
    }

    fn compare_conns(&mut self) {
        let (pool, model, gone) = (&self.pool, &self.model, &mut self.gone);
        self.known.retain(|&conn| {
            let is_there = same::assert_conn(pool, model, conn);
            if !is_there {
                *gone = Some(conn);
            }
            is_there
        });
        // The driver may report a result for a connection whose interruption it has not yet taken.
        let is_there = |conn: &ConnId| model.conn(conn.connection_id().get()).is_some();
        self.establishing.retain(is_there);
    }

    /// Takes one effect of a kind; returns false if none is pending.
    pub(super) fn poll(&mut self, establish: bool) -> bool {
        let action = match establish {
            true => self.pool.poll_establish().map(PoolAction::Establish),
            false => self.pool.poll_prompt(),
        };
        match action {
            None => assert!(!self.owes(establish), "an action is owed"),
            Some(PoolAction::Establish(conn)) => {
                let id = conn.connection_id().get();
                assert_eq!(self.model.owed_establishes().first(), Some(&id), "the oldest is established first");
                self.model.took_establish(id);
                self.establishing.push(conn);
            }
            Some(PoolAction::Wake(waiter)) => {
                let found = self.waiters.iter().find(|(id, _)| *id == waiter);
                let number = found.expect("a Wake of an open check-out").1;
                assert!(self.model.owed_wakes().contains(&number), "a Wake that is not owed");
                self.model.took_wake(number);
            }
            Some(PoolAction::Interrupt(conn)) => {
                let id = conn.connection_id().get();
                assert!(self.model.owed_interrupts().contains(&id), "an Interrupt that is not owed");
                let in_use = self.leases.iter().any(|lease| lease.conn() == conn);
                self.mark(if in_use { mark::INTERRUPT } else { mark::ABANDON });
                self.model.took_interrupt(id);
            }
            Some(PoolAction::Close(conn)) => {
                let id = conn.connection_id().get();
                assert!(self.model.owed_closes().contains(&id), "a Close that is not owed");
                self.model.took_close(id);
            }
        }
        action.is_some()
    }

    /// Returns whether the model has a pending effect of this kind.
    pub(super) fn owes(&self, establish: bool) -> bool {
        let model = &self.model;
        if establish {
            return !model.owed_establishes().is_empty();
        }
        !(model.owed_wakes().is_empty() && model.owed_interrupts().is_empty() && model.owed_closes().is_empty())
    }

    pub(super) fn drain(&mut self, establish: bool) {
        while self.poll(false) {}
        while establish && self.poll(true) {}
    }

    /// Calls `handle_timeout`, and checks that no due work is left.
    pub(super) fn tick(&mut self) {
        let now = self.at();
        self.pool.handle_timeout(now, &mut self.log);
        self.model.handle_timeout(self.now);
        assert!(self.pool.poll_timeout().is_none_or(|due| due > now), "P19: due work was not done");
    }

    pub(super) fn model_has_background(&self) -> bool {
        self.model.has_background()
    }

    pub(super) fn check_out(&mut self, deadline: Option<u64>) {
        let outcome = self.pool.check_out(self.at(), deadline.map(Instant::from_nanos), &mut self.log);
        let expected = self.model.check_out(self.now, deadline);
        let refused = same::check_out(outcome, expected, &mut self.leases, &mut self.waiters);
        if matches!(refused, Some(CheckOutError::Busy { .. })) {
            self.mark(mark::BUSY);
        }
    }

    pub(super) fn claim(&mut self, place: usize) {
        let (waiter, number) = self.waiters[place];
        let outcome = self.pool.claim(self.at(), waiter);
        if same::claim(outcome, self.model.claim(self.now, number), &mut self.leases) {
            self.over = Some(self.waiters.remove(place).0);
        }
    }

    pub(super) fn cancel(&mut self, place: usize) {
        let (waiter, number) = self.waiters.remove(place);
        if matches!(self.model.waiter(number).map(|waiter| waiter.outcome), Some(Outcome::Granted(_))) {
            self.mark(mark::CANCEL_GRANTED);
        } else if self.model.is_bound(number) {
            self.mark(mark::CANCEL_BOUND);
        }
        self.pool.cancel(self.at(), waiter, &mut self.log);
        self.model.cancel(self.now, number);
        self.over = Some(waiter);
    }

    /// Claims and cancels ended check-outs: the pool must return `Claim::Stale`.
    pub(super) fn again(&mut self) {
        let Some(waiter) = self.over else { return };
        assert_eq!(self.pool.claim(self.at(), waiter), Claim::Stale);
        self.pool.cancel(self.at(), waiter, &mut self.log);
        self.model.advance(self.now);
    }

    pub(super) fn check_in(&mut self, place: usize, health: Health) {
        let lease = self.leases.remove(place);
        let (id, waiting) = (lease.conn().connection_id().get(), self.model.waiting());
        assert_eq!(self.pool.check_in(self.at(), lease, health, &mut self.log), Ok(()));
        self.model.check_in(self.now, id, health);
        if health == Health::Healthy && self.model.waiting() < waiting {
            self.mark(mark::HANDED_ON);
        }
    }

    pub(super) fn established(&mut self, conn: ConnId) {
        let reported = self.pool.handle_established(self.at(), conn, &mut self.log);
        let expected = self.model.established(self.now, conn.connection_id().get());
        assert_eq!(reported.is_ok(), expected, "handle_established");
        if reported.is_err() {
            self.mark(mark::STALE_NEWS);
        }
    }

    pub(super) fn failed(&mut self, conn: ConnId, clear: Option<Clear>) {
        let error = EstablishError { cause: Cause::Network, overloaded: false, clear };
        let reported = self.pool.handle_establish_failed(self.at(), conn, error, &mut self.log);
        let expected = self.model.establish_failed(self.now, conn.connection_id().get(), error);
        assert_eq!(reported.is_ok(), expected, "handle_establish_failed");
        if reported.is_err() {
            self.mark(mark::STALE_NEWS);
        }
    }

    pub(super) fn service(&mut self, conn: ConnId, service: ObjectId) -> bool {
        let reported = self.pool.handle_service(conn, service);
        let expected = self.model.service(conn.connection_id().get(), service);
        assert_eq!(reported.map(|generation| generation.get()), expected, "handle_service");
        reported.is_ok()
    }

    pub(super) fn clear(&mut self, clear: Clear) {
        let reported = self.pool.clear(self.at(), clear, None, &mut self.log);
        assert_eq!(reported.is_ok(), self.model.clear(self.now, clear, None), "clear");
    }

    pub(super) fn ready(&mut self) {
        self.pool.ready(self.at(), &mut self.log);
        self.model.ready(self.now);
    }

    pub(super) fn close(&mut self) {
        self.pool.close(self.at(), &mut self.log);
        self.model.close(self.now);
    }

    pub(super) fn fork(&mut self) {
        self.pool.reset_after_fork(self.at(), &mut self.log);
        self.model.reset_after_fork(self.now);
    }

    pub(super) fn reconfigure(&mut self, options: poolhouse_core::pool::PoolOptions) {
        self.pool.reconfigure(self.at(), options.validate().expect("valid options"), &mut self.log);
        self.model.reconfigure(self.now, options);
    }

    pub(super) fn fill(&mut self, count: u32) {
        self.pool.set_fill_target(self.at(), count, &mut self.log);
        self.model.set_fill_target(self.now, count);
    }

    /// Continues without faults and checks everything in: each check-out must end soon (P51). Then
    /// closes the pool: nothing may be left (P43).
    pub(super) fn end(&mut self, shape: &Shape) {
        self.ready();
        for _ in 0..2 * self.waiters.len() + 4 {
            self.drain(true);
            self.tick();
            self.compare();
            while let Some(conn) = self.establishing.pop() {
                if shape.options.load_balanced && self.pool.conn_service(conn).is_none() {
                    let _there = self.service(conn, SERVICES[0]) || self.service(conn, SERVICES[1]);
                }
                self.established(conn);
            }
            for place in (0..self.waiters.len()).rev() {
                self.claim(place);
            }
            while !self.leases.is_empty() {
                self.check_in(0, Health::Healthy);
            }
            self.compare();
        }
        assert_eq!(self.waiters.len(), 0, "P51: a check-out waits forever");
        self.close();
        self.drain(true);
        self.compare();
        let counts = self.pool.counts();
        assert_eq!((counts.total(), counts.waiting, self.pool.service_count()), (0, 0, 0), "P43: something is left");
        assert_eq!(self.pool.poll_timeout(), None, "P43: something is due");
        assert_eq!(self.pool.state(), PoolState::Closed);
        self.pool.assert_over();
    }
}

/// Returns the situation that an event shows.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events show no situation of interest")]
const fn mark_of(event: &Event) -> u64 {
    match event {
        Event::Closed(_, ClosedReason::Stale, _) => mark::STALE,
        Event::Closed(_, ClosedReason::Idle, _) => mark::IDLE,
        Event::Closed(_, ClosedReason::Error, _) => mark::ERROR,
        Event::Closed(_, ClosedReason::PoolClosed, _) => mark::CLOSED,
        Event::Failed(_, CheckOutError::WaitQueueTimeout { .. }, _) => mark::TIMEOUT,
        Event::Failed(_, CheckOutError::PoolCleared { .. }, _) => mark::CLEARED,
        _ => 0,
    }
}
