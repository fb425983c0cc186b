//! The pool, its model, and whatever a host would hold; after each operation the two are compared.

use super::kind::{Counters, Kind};
use super::{Shape, Trace};
use crate::choices::Choices;
use crate::model::pool::{Event, Model, Room};
use poolhouse_core::pool::{
    CheckOutFailedReason, ConnId, Lease, Memory, OnHeap, Pool, PoolAction, PoolConfig, PoolEvent, PoolId, PoolState,
    WaiterId,
};
use poolhouse_core::{Instant, Machine, ObjectId};

/// How many connections that are gone are still asked about.
const GONE_MAX: usize = 8;

/// The services behind the load balancer.
pub(super) const SERVICES: [ObjectId; 3] = [ObjectId([1; 12]), ObjectId([2; 12]), ObjectId([3; 12])];

/// A pool and what belongs to it.
pub(super) struct World<'a, M: Memory> {
    pub(super) shape: &'a Shape,
    pub(super) counters: &'a mut Counters,
    trace: Option<&'a Trace>,
    pub(super) pool: Pool<M>,
    pub(super) model: Model,
    pub(super) log: Vec<(Instant, PoolEvent)>,
    pub(super) now: u64,
    pub(super) leases: Vec<Lease>,
    /// Check-outs whose outcome was not taken, and their numbers in the model.
    pub(super) waiters: Vec<(WaiterId, u64)>,
    /// Ids of check-outs that are over.
    pub(super) used_up: Vec<WaiterId>,
    /// What the host is establishing, as far as it knows.
    pub(super) establishing: Vec<ConnId>,
    /// Connections that the pool may know, and some that it does not any more.
    pub(super) known: Vec<ConnId>,
    pub(super) gone: Vec<ConnId>,
    pub(super) foreign: Option<Lease>,
}

impl<'a, M: Memory> World<'a, M> {
    pub(super) fn new(shape: &'a Shape, room: Room, counters: &'a mut Counters, trace: Option<&'a Trace>) -> Self {
        let mut log = Vec::new();
        let now = 1_000_000_000;
        let config = shape.options.validate().expect("options that were drawn to be valid");
        Self {
            shape,
            counters,
            trace,
            pool: Pool::new(Instant::from_nanos(now), PoolId::new(1), config, &mut log),
            model: Model::new(now, shape.options, room),
            log,
            now,
            leases: Vec::new(),
            waiters: Vec::new(),
            used_up: Vec::new(),
            establishing: Vec::new(),
            known: Vec::new(),
            gone: Vec::new(),
            foreign: None,
        }
    }

    /// A whole life.
    pub(super) fn live(mut self, choices: &mut impl Choices) {
        self.compare();
        let mut last = None;
        for _ in 0..self.shape.steps {
            if choices.is_over() {
                break;
            }
            let again = last.filter(|&kind| {
                self.shape.sticky > 0 && self.is_enabled(kind) && choices.below(100) < self.shape.sticky
            });
            let Some(kind) = again.or_else(|| self.draw(choices)) else { break };
            last = Some(kind);
            self.counters.count(kind);
            self.operate(kind, choices);
            self.compare();
        }
        self.peace();
        self.end();
    }

    fn draw(&self, choices: &mut impl Choices) -> Option<Kind> {
        let mut weights = self.shape.weights;
        for (kind, weight) in Kind::ALL.into_iter().zip(&mut weights) {
            if *weight > 0 && !self.is_enabled(kind) {
                *weight = 0;
            }
        }
        let any = weights.iter().any(|&weight| weight > 0);
        any.then(|| Kind::ALL[choices.weighted(&weights)])
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
        found.expect("the pool speaks of a check-out that is not over").1
    }

    /// Everything that can be seen of the pool is as the model says.
    pub(super) fn compare(&mut self) {
        let mut actual: Vec<(u64, Event)> = Vec::with_capacity(self.log.len());
        for (at, event) in self.log.drain(..) {
            if let PoolEvent::ConnectionCreated { conn, .. } = event {
                self.known.push(conn);
            }
            actual.push((at.as_nanos(), translate(&event)));
        }
        if let Some(trace) = self.trace {
            trace.borrow_mut().extend(actual.iter().map(|(_, event)| format!("{:>20} {event:?}", "->")));
        }
        self.counters.events += u64::try_from(actual.len()).unwrap_or(0);
        let mut expected = core::mem::take(&mut self.model.events);
        if actual != expected {
            // Of check-outs that time out in one call, any may be first.
            in_any_order(&mut actual);
            in_any_order(&mut expected);
            assert_eq!(actual, expected, "events: the pool's left, the model's right");
        }
        self.pool.assert_invariants();

        let counts = self.pool.counts();
        let [pending, available, in_use] = self.model.counts();
        let actual = [counts.pending, counts.available, counts.in_use, counts.waiting].map(|count| count as usize);
        assert_eq!(actual, [pending, available, in_use, self.model.waiting()], "pending, available, in use, waiting");
        assert_eq!(self.pool.state(), self.model.state(), "state");
        assert_eq!(self.pool.generation().get(), self.model.generation(), "generation");
        assert_eq!(self.pool.fill_target(), self.model.fill_target(), "fill target");
        for count in [0, 1, 2, 5] {
            assert_eq!(self.pool.is_filled(count), self.model.is_filled(count), "whether {count} are there");
        }
        assert_eq!(self.pool.service_count() as usize, self.model.service_count(), "services");
        for service in SERVICES {
            let generation = self.pool.service_generation(service).get();
            assert_eq!(generation, self.model.service_generation(service), "generation of {service}");
        }
        // Whatever should have been done before is due now.
        let due = self.pool.poll_timeout().map(|at| at.as_nanos().max(self.model.now()));
        let expected = self.model.poll_timeout().map(|at| at.max(self.model.now()));
        assert_eq!(due, expected, "poll_timeout");

        let (pool, model, gone) = (&self.pool, &self.model, &mut self.gone);
        self.known.retain(|&conn| {
            let expected = model.conn(conn.connection_id().get());
            let generation = pool.conn_generation(conn).map(|generation| generation.get());
            assert_eq!(generation, expected.map(|conn| conn.generation), "generation of {conn:?}");
            assert_eq!(pool.conn_service(conn), expected.and_then(|conn| conn.service), "service of {conn:?}");
            if expected.is_none() {
                if gone.len() == GONE_MAX {
                    gone.remove(0);
                }
                gone.push(conn);
            }
            expected.is_some()
        });
        for &conn in &self.gone {
            assert_eq!(self.pool.conn_generation(conn), None, "{conn:?} is gone");
        }
        self.establishing.retain(|conn| !self.gone.contains(conn));
    }

    /// Takes one action of a kind, or finds that none is owed.
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

    /// No faults any more, and everything is returned: each check-out has its end soon (P51).
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
        assert_eq!(self.pool.counts().waiting, 0, "a check-out waits for ever");
    }

    /// After the close and all returns nothing is left (P43).
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
    }

    /// A lease of another pool.
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

fn translate(event: &PoolEvent) -> Event {
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
        _ => unreachable!("an event that the model does not know: {event:?}"),
    }
}

/// Sorts each run of timeouts by how long they waited.
fn in_any_order(events: &mut [(u64, Event)]) {
    let is_timeout = |event: &Event| matches!(event, Event::Failed(CheckOutFailedReason::Timeout, ..));
    for run in events.chunk_by_mut(|(_, one), (_, next)| is_timeout(one) && is_timeout(next)) {
        run.sort_by_key(|(_, event)| if let Event::Failed(.., duration) = event { *duration } else { 0 });
    }
}
