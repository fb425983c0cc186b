//! The behavior of a pool alone, requirement by requirement, on both kinds of memory. The
//! invariants P are listed in `tests/src/invariants.rs`.
#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at the kinds that they are about")]

mod bad_input;
mod chances;
mod check_in;
mod check_out;
mod clear;
mod clock;
mod close;
mod equality;
mod establish;
mod fill;
mod fixed;
mod load_balanced;
mod options;
mod populate;
mod reconfigure;
mod report;
mod reuse;
mod scarce;
mod time;
mod wait_queue;

use super::*;
use alloc::vec::Vec;

/// Runs a body on a pool on the heap and on one in fixed memory. The pool is paused.
macro_rules! on_each_memory {
    ($options:expr, |$rig:ident| $body:block) => {{
        {
            #[allow(unused_mut, reason = "not every body changes it")]
            let mut $rig = Rig::<OnHeap>::new($options);
            $body
        }
        {
            #[allow(unused_mut, reason = "not every body changes it")]
            let mut $rig = Rig::<Fixed<8, 8, 4>>::new($options);
            $body
        }
    }};
}
use on_each_memory;

const DEFAULT: PoolOptions = PoolOptions::DEFAULT;
const ALL: Clear = Clear::All { interrupt_in_use_connections: false };
const INTERRUPT: Clear = Clear::All { interrupt_in_use_connections: true };
const REFUSED: EstablishError = EstablishError { cause: Cause::Network, overloaded: true, clear: None };

/// A pool, its host, and the events it has emitted. Invariants are checked after every step.
struct Rig<M: Memory> {
    pool: Pool<M>,
    now: Instant,
    seen: Vec<(Instant, PoolEvent)>,
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at(millis: u64) -> Instant {
    Instant::ORIGIN.saturating_add(ms(millis))
}

impl<M: Memory> Rig<M> {
    fn new(options: PoolOptions) -> Self {
        let mut seen = Vec::new();
        let config = options.validate().expect("valid options");
        let pool = Pool::new(Instant::ORIGIN, PoolId::new(7), config, &mut seen);
        let rig = Self { pool, now: Instant::ORIGIN, seen };
        rig.pool.assert_invariants();
        rig
    }

    /// Calls the pool, and checks its invariants.
    fn act<R>(&mut self, act: impl FnOnce(&mut Pool<M>, Instant, &mut Vec<(Instant, PoolEvent)>) -> R) -> R {
        let result = act(&mut self.pool, self.now, &mut self.seen);
        self.pool.assert_invariants();
        result
    }

    fn ready(&mut self) {
        self.act(|pool, now, seen| pool.ready(now, seen));
    }

    fn clear(&mut self, clear: Clear) {
        self.act(|pool, now, seen| pool.clear(now, clear, Some(Cause::Network), seen)).expect("the pool's mode");
    }

    fn close(&mut self) {
        self.act(|pool, now, seen| pool.close(now, seen));
    }

    /// Sets the clock without calling the pool.
    fn at(&mut self, millis: u64) {
        self.now = at(millis);
    }

    /// Sets the clock, and calls the pool.
    fn tick(&mut self, millis: u64) {
        self.at(millis);
        self.act(|pool, now, seen| pool.handle_timeout(now, seen));
    }

    fn check_out(&mut self, deadline: Option<Instant>) -> Result<CheckOut, CheckOutError> {
        self.act(|pool, now, seen| pool.check_out(now, deadline, seen))
    }

    /// A check-out that has to wait.
    fn queue(&mut self) -> WaiterId {
        self.queue_until(None)
    }

    fn queue_until(&mut self, deadline: Option<Instant>) -> WaiterId {
        match self.check_out(deadline).expect("not refused") {
            CheckOut::Queued(waiter) => waiter,
            CheckOut::Granted(lease) => panic!("{lease:?} was there"),
        }
    }

    /// A check-out that finds a connection.
    fn take(&mut self) -> Lease {
        match self.check_out(None).expect("not refused") {
            CheckOut::Granted(lease) => lease,
            CheckOut::Queued(waiter) => panic!("{waiter:?} has to wait"),
        }
    }

    /// A check-out, with the establishment of its connection if necessary.
    fn lease(&mut self) -> Lease {
        match self.check_out(None).expect("not refused") {
            CheckOut::Granted(lease) => lease,
            CheckOut::Queued(waiter) => {
                self.establish();
                self.granted(waiter)
            }
        }
    }

    /// Leases of new connections, all at once.
    fn leases<const N: usize>(&mut self) -> [Lease; N] {
        [(); N].map(|()| self.lease())
    }

    /// Fills the pool with this many available connections.
    fn fill<const N: usize>(&mut self) {
        for lease in self.leases::<N>() {
            self.give_back(lease);
        }
        self.actions();
        self.seen.clear();
    }

    fn claim(&mut self, waiter: WaiterId) -> Claim {
        self.act(|pool, now, _| pool.claim(now, waiter))
    }

    fn granted(&mut self, waiter: WaiterId) -> Lease {
        match self.claim(waiter) {
            Claim::Granted(lease) => lease,
            other => panic!("not granted, but {other:?}"),
        }
    }

    fn failed(&mut self, waiter: WaiterId) -> CheckOutError {
        match self.claim(waiter) {
            Claim::Failed(error) => error,
            other => panic!("not failed, but {other:?}"),
        }
    }

    fn cancel(&mut self, waiter: WaiterId) {
        self.act(|pool, now, seen| pool.cancel(now, waiter, seen));
    }

    fn give_back(&mut self, lease: Lease) {
        self.check_in(lease, Health::Healthy).expect("this pool's");
    }

    fn check_in(&mut self, lease: Lease, health: Health) -> Result<(), ForeignLease> {
        self.act(|pool, now, seen| pool.check_in(now, lease, health, seen))
    }

    /// Begins the next establishment.
    fn begin(&mut self) -> ConnId {
        self.act(|pool, _, _| pool.poll_establish()).expect("an establishment is owed")
    }

    fn established(&mut self, conn: ConnId) -> Result<(), Stale> {
        self.act(|pool, now, seen| pool.handle_established(now, conn, seen))
    }

    fn establish_failed(&mut self, conn: ConnId, error: EstablishError) -> Result<(), Stale> {
        self.act(|pool, now, seen| pool.handle_establish_failed(now, conn, error, seen))
    }

    /// Begins and completes the next establishment.
    fn establish(&mut self) -> ConnId {
        let conn = self.begin();
        self.established(conn).expect("pending");
        conn
    }

    /// Takes every pending action.
    fn actions(&mut self) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        while let Some(action) = self.act(|pool, now, _| pool.poll_action(now)) {
            actions.push(action);
        }
        actions
    }

    /// Takes the pending actions without beginning an establishment.
    fn prompt(&mut self) -> Vec<PoolAction> {
        let mut actions = Vec::new();
        while let Some(action) = self.act(|pool, _, _| pool.poll_prompt()) {
            actions.push(action);
        }
        actions
    }

    /// Returns the events since the last call.
    fn events(&mut self) -> Vec<PoolEvent> {
        self.seen.drain(..).map(|(_, event)| event).collect()
    }

    /// Returns their names, without the prefix that all names share.
    fn names(&mut self) -> Vec<&'static str> {
        self.events().iter().map(|event| event.name().trim_start_matches("Connection")).collect()
    }

    /// The numbers of pending, available and in-use connections and of waiters.
    fn counts(&self) -> [u32; 4] {
        let PoolCounts { pending, available, in_use, waiting } = self.pool.counts();
        [pending, available, in_use, waiting]
    }
}

/// The connection and the reason of each `ConnectionClosed`.
fn closed(events: &[PoolEvent]) -> Vec<(u64, &'static str)> {
    events
        .iter()
        .filter_map(|event| match event {
            PoolEvent::ConnectionClosed { conn, reason, .. } => Some((conn.connection_id().get(), reason.name())),
            _ => None,
        })
        .collect()
}

/// The errors of each `ConnectionCheckOutFailed`, with its reason.
fn failures(events: &[PoolEvent]) -> Vec<(CheckOutError, &'static str)> {
    events
        .iter()
        .filter_map(|event| match event {
            PoolEvent::ConnectionCheckOutFailed { error, reason, .. } => Some((*error, reason.name())),
            _ => None,
        })
        .collect()
}
