//! The pool with its model, and the state of a host.

use super::kind::{Counters, Kind};
use super::{Shape, Trace, next_kind};
use crate::choices::Choices;
use crate::machines::pool::Event;
use crate::oracle::pool::{Bounded, Watched};
use poolhouse_core::pool::{
    Claim, ConnId, Lease, OnHeap, Pool, PoolAction, PoolConfig, PoolEvent, PoolId, PoolState, WaiterId,
};
use poolhouse_core::{Instant, ObjectId};

/// Upper bound of the time of a run.
pub(super) const TIME_MAX: u64 = 1_000_000_000 * 1_000_000;

/// The services behind the load balancer.
pub(super) const SERVICES: [ObjectId; 3] = [ObjectId([1; 12]), ObjectId([2; 12]), ObjectId([3; 12])];

/// A pool and its host.
pub(super) struct Simulation<'a, M: Bounded> {
    pub(super) shape: &'a Shape,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) pool: Watched<M>,
    pub(super) log: Vec<(Instant, PoolEvent)>,
    pub(super) now: u64,
    pub(super) leases: Vec<Lease>,
    /// Ids of check-outs that have ended.
    pub(super) used_up: Vec<WaiterId>,
    /// Connections that the host is establishing, from its view.
    pub(super) establishing: Vec<ConnId>,
    /// All connections that were polled to be established, in this order.
    pub(super) begun: Vec<ConnId>,
    pub(super) foreign: Option<Lease>,
}

impl<'a, M: Bounded> Simulation<'a, M> {
    pub(super) fn new(shape: &'a Shape, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let mut log = Vec::new();
        let now = 1_000_000_000;
        let config = shape.options.validate().expect("options that were drawn to be valid");
        Self {
            shape,
            counters,
            trace,
            pool: Watched::new(Instant::from_nanos(now), PoolId::new(1), config, &mut log),
            log,
            now,
            leases: Vec::new(),
            used_up: Vec::new(),
            establishing: Vec::new(),
            begun: Vec::new(),
            foreign: None,
        }
    }

    /// Executes the complete run.
    pub(super) fn run(mut self, choices: &mut impl Choices) {
        self.look();
        let mut last = None;
        for _ in 0..self.shape.steps {
            if choices.is_over() {
                break;
            }
            let Shape { weights, sticky, .. } = self.shape;
            last = next_kind(Kind::ALL, *weights, *sticky, last, |kind| self.is_enabled(kind), choices);
            let Some(kind) = last else { break };
            self.counters.count(kind);
            self.operate(kind, choices);
            self.look();
        }
        // In the other half of the runs, waiters with a limit are served when the faults stop.
        if self.shape.steps.is_multiple_of(2) {
            self.silence();
        }
        self.peace();
        self.end();
        self.counters.note_life(self.pool.checks());
    }

    pub(super) fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(super) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.borrow_mut().push(format!("{:>16} {}", self.now, text()));
        }
    }

    /// Takes note of the last events.
    pub(super) fn look(&mut self) {
        self.counters.events += u64::try_from(self.log.len()).unwrap_or(0);
        if let Some(trace) = self.trace {
            trace.borrow_mut().extend(self.log.iter().map(|(_, event)| format!("{:>20} {:?}", "->", Event::of(event))));
        }
        self.log.clear();
        let gone = self.pool.gone();
        self.establishing.retain(|conn| !gone.contains(conn));
    }

    /// Takes one action of a kind. Returns false if none is owed.
    pub(super) fn poll(&mut self, establish: bool, prompt: bool) -> bool {
        let action = match (establish, prompt) {
            (true, false) => self.pool.poll_establish().map(PoolAction::Establish),
            (false, true) => self.pool.poll_prompt(),
            _ => self.pool.poll_action(self.at()),
        };
        self.note(|| format!("poll: {action:?}"));
        if let Some(PoolAction::Establish(conn)) = action {
            self.establishing.push(conn);
            self.begun.push(conn);
        }
        action.is_some()
    }

    pub(super) fn drain(&mut self) {
        while self.poll(true, true) {}
    }

    /// The server does not answer and no connection is returned: each waiter with a limit must have
    /// ended by then (P52).
    fn silence(&mut self) {
        if self.pool.state() != PoolState::Ready {
            return;
        }
        self.note(|| "silence".into());
        // What is overdue is due now. The end of time is excluded: after it everything is always due.
        let last = self.pool.model().last_limit().map(|at| at.max(self.now).min(TIME_MAX));
        while let Some(due) = self.pool.poll_timeout().map(Instant::as_nanos).filter(|due| Some(*due) <= last) {
            self.now = self.now.max(due);
            self.tick();
            self.look();
        }
        for place in (0..self.pool.waiters().len()).rev() {
            self.claim(place);
            self.look();
        }
        self.pool.assert_peace(true);
    }

    /// Faults have stopped and all connections are returned: each check-out must end soon (P51).
    fn peace(&mut self) {
        if self.pool.state() == PoolState::Closed {
            return;
        }
        self.note(|| "peace".into());
        self.ready();
        let rounds = 2 * self.pool.waiters().len() + 8;
        for _ in 0..rounds {
            self.look();
            self.drain();
            self.tick();
            self.look();
            while let Some(conn) = self.establishing.pop() {
                if self.shape.options.load_balanced && self.pool.conn_service(conn).is_none() {
                    let full = self.service(conn, SERVICES[0]);
                    if full {
                        let _ = self.service(conn, SERVICES[1]);
                    }
                }
                self.established(conn);
                self.look();
            }
            for place in (0..self.pool.waiters().len()).rev() {
                self.claim(place);
                self.look();
            }
            while !self.leases.is_empty() {
                self.check_in(0, None);
                self.look();
            }
        }
        self.pool.assert_peace(false);
    }

    /// After the close and all returns, nothing may be left (P43).
    fn end(&mut self) {
        self.close();
        self.look();
        while !self.leases.is_empty() {
            self.check_in(0, None);
            self.look();
        }
        for place in (0..self.pool.waiters().len()).rev() {
            self.cancel(place);
            self.look();
        }
        while !self.leases.is_empty() {
            self.check_in(0, None);
        }
        self.drain();
        self.look();
        // The pool has what the model has.
        self.pool.assert_over();
    }

    /// Creates a lease of another pool.
    pub(super) fn foreign_lease(&mut self) -> Lease {
        self.foreign.take().unwrap_or_else(|| {
            let now = self.at();
            let mut other = Pool::<OnHeap>::new(now, PoolId::new(2), PoolConfig::DEFAULT, &mut ());
            other.ready(now, &mut ());
            let _ = other.check_out(now, None, &mut ()).expect("it is ready");
            let conn = other.poll_establish().expect("it owes one");
            other.handle_established(now, conn, &mut ()).expect("it is pending");
            let Some(PoolAction::Wake(waiter)) = other.poll_prompt() else { unreachable!("it was granted") };
            let Claim::Granted(lease) = other.claim(now, waiter) else { unreachable!("it was granted") };
            lease
        })
    }
}
