//! The pool, its model, and the state of a host. Pool and model are compared after each operation.

use super::kind::{Counters, Kind};
use super::{Shape, Trace, next_kind, same};
use crate::choices::Choices;
use crate::model::pool::{Event, Model, Room};
use crate::oracle::pool::{Bounded, Watched};
use poolhouse_core::pool::{
    ConnId, Lease, OnHeap, Pool, PoolAction, PoolConfig, PoolEvent, PoolId, PoolState, WaiterId,
};
use poolhouse_core::{Instant, ObjectId};

/// Upper bound of the time of a run.
pub(super) const TIME_MAX: u64 = 1_000_000_000 * 1_000_000;

/// Number of closed connections that are still used in calls.
const GONE_MAX: usize = 8;

/// The services behind the load balancer.
pub(super) const SERVICES: [ObjectId; 3] = [ObjectId([1; 12]), ObjectId([2; 12]), ObjectId([3; 12])];

/// A pool with its model and its host.
pub(super) struct Simulation<'a, M: Bounded> {
    pub(super) shape: &'a Shape,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) pool: Watched<M>,
    pub(super) model: Model,
    pub(super) log: Vec<(Instant, PoolEvent)>,
    pub(super) now: u64,
    pub(super) leases: Vec<Lease>,
    /// Unclaimed check-outs, and their numbers in the model.
    pub(super) waiters: Vec<(WaiterId, u64)>,
    /// Ids of check-outs that have ended.
    pub(super) used_up: Vec<WaiterId>,
    /// Connections that the host is establishing, from its view.
    pub(super) establishing: Vec<ConnId>,
    /// All connections that were polled to be established, in this order.
    pub(super) begun: Vec<ConnId>,
    /// Connections that the pool may know, and some closed ones.
    pub(super) known: Vec<ConnId>,
    pub(super) gone: Vec<ConnId>,
    pub(super) foreign: Option<Lease>,
}

impl<'a, M: Bounded> Simulation<'a, M> {
    pub(super) fn new(shape: &'a Shape, room: Room, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let mut log = Vec::new();
        let now = 1_000_000_000;
        let config = shape.options.validate().expect("options that were drawn to be valid");
        Self {
            shape,
            counters,
            trace,
            pool: Watched::new(Instant::from_nanos(now), PoolId::new(1), config, &mut log),
            model: Model::new(now, shape.options, room),
            log,
            now,
            leases: Vec::new(),
            waiters: Vec::new(),
            used_up: Vec::new(),
            establishing: Vec::new(),
            begun: Vec::new(),
            known: Vec::new(),
            gone: Vec::new(),
            foreign: None,
        }
    }

    /// Executes the complete run.
    pub(super) fn run(mut self, choices: &mut impl Choices) {
        self.compare();
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
            self.compare();
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

    pub(super) fn number_of(&self, waiter: WaiterId) -> u64 {
        let found = self.waiters.iter().find(|(id, _)| *id == waiter);
        found.expect("the pool wakes an open check-out").1
    }

    /// Compares all observable state of the pool with the model.
    pub(super) fn compare(&mut self) {
        let mut actual: Vec<(u64, Event)> = Vec::with_capacity(self.log.len());
        for (at, event) in self.log.drain(..) {
            if let PoolEvent::ConnectionCreated { conn, .. } = event {
                self.known.push(conn);
            }
            actual.push((at.as_nanos(), translated(&event)));
        }
        if let Some(trace) = self.trace {
            trace.borrow_mut().extend(actual.iter().map(|(_, event)| format!("{:>20} {event:?}", "->")));
        }
        self.counters.events += u64::try_from(actual.len()).unwrap_or(0);
        same::assert_events(actual, core::mem::take(&mut self.model.events));
        same::assert_state(&self.pool, &self.model, &SERVICES);

        let (pool, model, gone) = (&self.pool, &self.model, &mut self.gone);
        self.known.retain(|&conn| {
            let is_there = same::assert_conn(pool, model, conn);
            if !is_there {
                if gone.len() == GONE_MAX {
                    gone.remove(0);
                }
                gone.push(conn);
            }
            is_there
        });
        for &conn in &self.gone {
            assert_eq!(self.pool.conn_generation(conn), None, "{conn:?} no longer exists");
        }
        self.establishing.retain(|conn| !self.gone.contains(conn));
    }

    /// Takes one action of a kind. Returns false if none is owed.
    pub(super) fn poll(&mut self, establish: bool, prompt: bool) -> bool {
        let action = match (establish, prompt) {
            (true, false) => self.pool.poll_establish().map(PoolAction::Establish),
            (false, true) => self.pool.poll_prompt(),
            _ => self.pool.poll_action(self.at()),
        };
        let model = &self.model;
        let nothing_prompt =
            model.owed_wakes().is_empty() && model.owed_interrupts().is_empty() && model.owed_closes().is_empty();
        self.note(|| format!("poll: {action:?}"));
        match action {
            None => {
                assert!(!establish || model.owed_establishes().is_empty(), "an Establish is owed");
                assert!(!prompt || nothing_prompt, "a Wake, Interrupt or Close is owed");
            }
            Some(PoolAction::Establish(conn)) => {
                let id = conn.connection_id().get();
                assert_eq!(model.owed_establishes().first(), Some(&id), "the oldest is established first");
                self.model.took_establish(id);
                self.establishing.push(conn);
                self.begun.push(conn);
            }
            Some(PoolAction::Wake(waiter)) => {
                let number = self.number_of(waiter);
                assert!(model.owed_wakes().contains(&number), "a Wake that is not owed");
                self.model.took_wake(number);
            }
            Some(PoolAction::Interrupt(conn)) => {
                let id = conn.connection_id().get();
                assert!(model.owed_interrupts().contains(&id), "an Interrupt that is not owed");
                self.model.took_interrupt(id);
            }
            Some(PoolAction::Close(conn)) => {
                let id = conn.connection_id().get();
                assert!(model.owed_closes().contains(&id), "a Close that is not owed");
                self.model.took_close(id);
            }
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
        // The end of time is excluded: after it everything is always due.
        let last = self.pool.oracle().last_limit().map(|at| at.as_nanos().min(TIME_MAX));
        while let Some(due) = self.pool.poll_timeout().map(Instant::as_nanos).filter(|due| Some(*due) <= last) {
            self.now = self.now.max(due);
            self.tick();
            self.compare();
        }
        for place in (0..self.waiters.len()).rev() {
            self.claim(place);
            self.compare();
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
        let rounds = 2 * self.waiters.len() + 8;
        for _ in 0..rounds {
            self.compare();
            self.drain();
            self.tick();
            self.compare();
            while let Some(conn) = self.establishing.pop() {
                if self.shape.options.load_balanced && self.pool.conn_service(conn).is_none() {
                    let full = self.service(conn, SERVICES[0]);
                    if full {
                        let _ = self.service(conn, SERVICES[1]);
                    }
                }
                self.established(conn);
                self.compare();
            }
            for place in (0..self.waiters.len()).rev() {
                self.claim(place);
                self.compare();
            }
            while !self.leases.is_empty() {
                self.check_in(0, None);
                self.compare();
            }
        }
        assert_eq!(self.pool.counts().waiting, 0, "a check-out waits forever");
        self.pool.assert_peace(false);
    }

    /// After the close and all returns, nothing may be left (P43).
    fn end(&mut self) {
        self.close();
        self.compare();
        while !self.leases.is_empty() {
            self.check_in(0, None);
            self.compare();
        }
        for place in (0..self.waiters.len()).rev() {
            self.cancel(place);
            self.compare();
        }
        while !self.leases.is_empty() {
            self.check_in(0, None);
        }
        self.drain();
        self.compare();
        let counts = self.pool.counts();
        assert_eq!((counts.total(), counts.waiting), (0, 0), "something is left");
        assert_eq!(self.pool.service_count(), 0, "a service is left");
        assert_eq!(self.pool.poll_timeout(), None, "something is due");
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
            let poolhouse_core::pool::CheckOut::Granted(lease) = ({
                let Some(PoolAction::Wake(waiter)) = other.poll_prompt() else { unreachable!("it was granted") };
                other.cancel(now, waiter, &mut ());
                other.check_out(now, None, &mut ()).expect("it is available")
            }) else {
                unreachable!("it is available")
            };
            lease
        })
    }
}

/// Converts an event of the pool to one of the model.
pub(crate) fn translated(event: &PoolEvent) -> Event {
    let id = |conn: ConnId| conn.connection_id().get();
    let nanos = |duration: core::time::Duration| u64::try_from(duration.as_nanos()).expect("a short time");
    assert_eq!(event.pool(), PoolId::new(1), "the event of another pool");
    match *event {
        PoolEvent::PoolCreated { options, .. } => Event::PoolCreated(options),
        PoolEvent::PoolReady { .. } => Event::PoolReady,
        PoolEvent::PoolCleared { service_id, interrupt_in_use_connections, cause, .. } => {
            Event::PoolCleared { service: service_id, interrupt: interrupt_in_use_connections, cause }
        }
        PoolEvent::PoolClosed { .. } => Event::PoolClosed,
        PoolEvent::ConnectionCreated { conn, .. } => Event::Created(id(conn)),
        PoolEvent::ConnectionReady { conn, duration, .. } => Event::Ready(id(conn), nanos(duration)),
        PoolEvent::ConnectionClosed { conn, reason, cause, .. } => Event::Closed(id(conn), reason, cause),
        PoolEvent::ConnectionCheckOutStarted { .. } => Event::Started,
        PoolEvent::ConnectionCheckOutFailed { reason, error, duration, .. } => {
            Event::Failed(reason, error, nanos(duration))
        }
        PoolEvent::ConnectionCheckedOut { conn, duration, .. } => Event::CheckedOut(id(conn), nanos(duration)),
        PoolEvent::ConnectionCheckedIn { conn, .. } => Event::CheckedIn(id(conn)),
        _ => unreachable!("an event that the model does not contain: {event:?}"),
    }
}
