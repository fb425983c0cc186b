//! A pool with its model, and a simulated driver with every permitted behaviour.

use super::{Input, Shape, mark};
use crate::canon::Canon;
use crate::model::pool::Outcome;
use crate::oracle::pool::{Bounded, Watched};
use core::hash::Hash;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, Claim, Clear, ClosedReason, ConnId, EstablishError, Health, Lease, Pool, PoolAction,
    PoolEvent, PoolId, PoolOptions, WaiterId,
};
use poolhouse_core::{Cause, Instant, ObjectId};

/// The services behind the load balancer.
pub(super) const SERVICES: [ObjectId; 2] = [ObjectId([1; 12]), ObjectId([2; 12])];

/// Start time of a search, in nanoseconds.
const BEGIN: u64 = 1_000_000_000;

/// A pool with its model, and the state of the simulated driver.
#[derive(Debug)]
pub struct Host<M: Bounded> {
    /// Its oracle is not part of the state: it checks each event against the preceding ones.
    pub(super) pool: Watched<M>,
    log: Vec<(Instant, PoolEvent)>,
    pub(super) now: u64,
    pub(super) leases: Vec<Lease>,
    /// Establishments that the driver has taken and not ended.
    pub(super) establishing: Vec<ConnId>,
    /// An ended check-out.
    pub(super) over: Option<WaiterId>,
    /// Remaining number of each limited input.
    pub(super) left: [u8; Input::LIMITED],
    pub(super) marks: u64,
}

impl<M: Bounded + Clone> Clone for Host<M> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            log: Vec::new(),
            now: self.now,
            leases: self.leases.iter().map(Lease::cloned).collect(),
            establishing: self.establishing.clone(),
            over: self.over,
            left: self.left,
            marks: 0,
        }
    }
}

impl<M: Bounded + Clone> Host<M> {
    pub(super) fn new(shape: &Shape) -> Self {
        let config = shape.options.validate().expect("the options of a scope are valid");
        Self {
            pool: Watched::new(Instant::from_nanos(BEGIN), PoolId::new(1), config, &mut ()),
            log: Vec::new(),
            now: BEGIN,
            leases: Vec::new(),
            establishing: Vec::new(),
            over: None,
            left: shape.limits,
            marks: 0,
        }
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
        self.pool.model().words(&mut canon);
        self.pool.conns().len().hash(&mut canon);
        self.pool.conns().iter().for_each(|conn| conn.index().hash(&mut canon));
        // The driver may report results in any order, so the order of the list is not part of the
        // state.
        let mut sorted: Vec<u32> = self.establishing.iter().map(|conn| conn.index()).collect();
        sorted.sort_unstable();
        sorted.hash(&mut canon);
        let mut sorted: Vec<u32> = self.leases.iter().map(|lease| lease.conn().index()).collect();
        sorted.sort_unstable();
        sorted.hash(&mut canon);
        self.pool.waiters().len().hash(&mut canon);
        self.pool.waiters().iter().for_each(|(waiter, _)| waiter.index().hash(&mut canon));
        (self.left, self.over.is_some()).hash(&mut canon);
        canon.print()
    }

    pub(super) fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(super) fn mark(&mut self, bit: u64) {
        self.marks |= bit;
    }

    /// Marks the situations that the last events and the state show.
    pub(super) fn look(&mut self) {
        self.marks |= self.log.drain(..).fold(0, |marks, (_, event)| marks | mark_of(&event));
        if self.pool.counts().waiting > 0 {
            self.mark(mark::QUEUE);
        }
        if self.pool.poll_timeout().is_some_and(|due| due <= self.at()) {
            self.mark(mark::DUE);
        }
        // The driver may report a result for a connection whose interruption it has not yet taken.
        let model = self.pool.model();
        self.establishing.retain(|conn| model.conn(conn.connection_id().get()).is_some());
    }

    /// Takes one effect of a kind; returns false if none is pending.
    pub(super) fn poll(&mut self, establish: bool) -> bool {
        let action = match establish {
            true => self.pool.poll_establish().map(PoolAction::Establish),
            false => self.pool.poll_prompt(),
        };
        if let Some(PoolAction::Establish(conn)) = action {
            self.establishing.push(conn);
        }
        if let Some(PoolAction::Interrupt(conn)) = action {
            let in_use = self.leases.iter().any(|lease| lease.conn() == conn);
            self.mark(if in_use { mark::INTERRUPT } else { mark::ABANDON });
        }
        action.is_some()
    }

    /// Returns whether the pool has a pending effect of this kind.
    pub(super) fn owes(&self, establish: bool) -> bool {
        let model = self.pool.model();
        if establish {
            return !model.owed_establishes().is_empty();
        }
        !(model.owed_wakes().is_empty() && model.owed_interrupts().is_empty() && model.owed_closes().is_empty())
    }

    pub(super) fn drain(&mut self, establish: bool) {
        while self.poll(false) {}
        while establish && self.poll(true) {}
    }

    pub(super) fn tick(&mut self) {
        self.pool.handle_timeout(self.at(), &mut self.log);
    }

    pub(super) fn check_out(&mut self, deadline: Option<u64>) {
        match self.pool.check_out(self.at(), deadline.map(Instant::from_nanos), &mut self.log) {
            Ok(CheckOut::Granted(lease)) => self.leases.push(lease),
            Err(CheckOutError::Busy { .. }) => self.mark(mark::BUSY),
            Ok(CheckOut::Queued(_)) | Err(_) => {}
        }
    }

    pub(super) fn claim(&mut self, place: usize) {
        let (waiter, _) = self.pool.waiters()[place];
        match self.pool.claim(self.at(), waiter) {
            Claim::Waiting => return,
            Claim::Granted(lease) => self.leases.push(lease),
            Claim::Failed(_) | Claim::Stale => {}
        }
        self.over = Some(waiter);
    }

    pub(super) fn cancel(&mut self, place: usize) {
        let (waiter, number) = self.pool.waiters()[place];
        let model = self.pool.model();
        if matches!(model.waiter(number).map(|waiter| waiter.outcome), Some(Outcome::Granted(_))) {
            self.mark(mark::CANCEL_GRANTED);
        } else if model.is_bound(number) {
            self.mark(mark::CANCEL_BOUND);
        }
        self.pool.cancel(self.at(), waiter, &mut self.log);
        self.over = Some(waiter);
    }

    /// Claims and cancels an ended check-out: the pool must return `Claim::Stale`.
    pub(super) fn again(&mut self) {
        let Some(waiter) = self.over else { return };
        let _stale = self.pool.claim(self.at(), waiter);
        self.pool.cancel(self.at(), waiter, &mut self.log);
    }

    pub(super) fn check_in(&mut self, place: usize, health: Health) {
        let (lease, waiting) = (self.leases.remove(place), self.pool.counts().waiting);
        self.pool.check_in(self.at(), lease, health, &mut self.log).expect("a lease of this pool");
        if health == Health::Healthy && self.pool.counts().waiting < waiting {
            self.mark(mark::HANDED_ON);
        }
    }

    pub(super) fn established(&mut self, conn: ConnId) {
        if self.pool.handle_established(self.at(), conn, &mut self.log).is_err() {
            self.mark(mark::STALE_NEWS);
        }
    }

    pub(super) fn failed(&mut self, conn: ConnId, clear: Option<Clear>) {
        let error = EstablishError { cause: Cause::Network, overloaded: false, clear };
        if self.pool.handle_establish_failed(self.at(), conn, error, &mut self.log).is_err() {
            self.mark(mark::STALE_NEWS);
        }
    }

    pub(super) fn clear(&mut self, clear: Clear) {
        let _is_of_mode = self.pool.clear(self.at(), clear, None, &mut self.log);
    }

    pub(super) fn ready(&mut self) {
        self.pool.ready(self.at(), &mut self.log);
    }

    pub(super) fn close(&mut self) {
        self.pool.close(self.at(), &mut self.log);
    }

    pub(super) fn fork(&mut self) {
        self.pool.reset_after_fork(self.at(), &mut self.log);
    }

    pub(super) fn reconfigure(&mut self, options: PoolOptions) {
        self.pool.reconfigure(self.at(), options.validate().expect("valid options"), &mut self.log);
    }

    pub(super) fn fill(&mut self, count: u32) {
        self.pool.set_fill_target(self.at(), count, &mut self.log);
    }

    /// Continues without faults and checks everything in: each check-out must end soon (P51). Then
    /// closes the pool: nothing may be left (P43).
    pub(super) fn end(&mut self, shape: &Shape) {
        self.ready();
        for _ in 0..2 * self.pool.waiters().len() + 4 {
            self.drain(true);
            self.tick();
            self.look();
            while let Some(conn) = self.establishing.pop() {
                if shape.options.load_balanced && self.pool.conn_service(conn).is_none() {
                    let _there = SERVICES.iter().any(|service| self.pool.handle_service(conn, *service).is_ok());
                }
                self.established(conn);
            }
            for place in (0..self.pool.waiters().len()).rev() {
                self.claim(place);
            }
            while !self.leases.is_empty() {
                self.check_in(0, Health::Healthy);
            }
        }
        self.pool.assert_peace(false);
        self.close();
        self.drain(true);
        self.pool.assert_over();
    }
}

/// Returns the situation that an event shows.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events show no situation of interest")]
const fn mark_of(event: &PoolEvent) -> u64 {
    match event {
        PoolEvent::ConnectionClosed { reason: ClosedReason::Stale, .. } => mark::STALE,
        PoolEvent::ConnectionClosed { reason: ClosedReason::Idle, .. } => mark::IDLE,
        PoolEvent::ConnectionClosed { reason: ClosedReason::Error, .. } => mark::ERROR,
        PoolEvent::ConnectionClosed { reason: ClosedReason::PoolClosed, .. } => mark::CLOSED,
        PoolEvent::ConnectionCheckOutFailed { error: CheckOutError::WaitQueueTimeout { .. }, .. } => mark::TIMEOUT,
        PoolEvent::ConnectionCheckOutFailed { error: CheckOutError::PoolCleared { .. }, .. } => mark::CLEARED,
        _ => 0,
    }
}
