//! The pool: a few clients, with all interactions between them and the network, of any duration.

mod host;
mod scopes;

pub use host::Host;
pub use scopes::{bigger, scopes};

use super::{Figures, Limits, Scope, Stopped, search};
use crate::model::pool::{Outcome, Place};
use crate::oracle::Checks;
use crate::oracle::pool::Bounded;
use core::hash::Hash;
use core::marker::PhantomData;
use host::SERVICES;
use poolhouse_core::Cause;
use poolhouse_core::pool::{Clear, Fixed, Health, OnHeap, Pool, PoolOptions, PoolState};

/// Situations that searches must reach: bits and names.
pub mod mark {
    /// A check-out waits.
    pub const QUEUE: u64 = 1;
    /// A timer is due at once.
    pub const DUE: u64 = 1 << 1;
    /// A waiter timed out.
    pub const TIMEOUT: u64 = 1 << 2;
    /// A stale connection was closed.
    pub const STALE: u64 = 1 << 3;
    /// An idle connection was closed.
    pub const IDLE: u64 = 1 << 4;
    /// A failed connection was closed.
    pub const ERROR: u64 = 1 << 5;
    /// A connection was closed because the pool was closed.
    pub const CLOSED: u64 = 1 << 6;
    /// A check-out failed because the pool was cleared or paused.
    pub const CLEARED: u64 = 1 << 7;
    /// A connection in use was interrupted.
    pub const INTERRUPT: u64 = 1 << 8;
    /// An establishment was abandoned.
    pub const ABANDON: u64 = 1 << 9;
    /// A result for a stale connection id.
    pub const STALE_NEWS: u64 = 1 << 10;
    /// There was no slot for a waiter.
    pub const BUSY: u64 = 1 << 11;
    /// A check-out was cancelled that had been granted.
    pub const CANCEL_GRANTED: u64 = 1 << 12;
    /// A check-out was cancelled for which a connection was being established.
    pub const CANCEL_BOUND: u64 = 1 << 13;
    /// A connection was handed directly to a waiter.
    pub const HANDED_ON: u64 = 1 << 14;
    /// A connection was established in the background.
    pub const BACKGROUND: u64 = 1 << 15;
    /// There are more connections than maxPoolSize.
    pub const SURPLUS: u64 = 1 << 16;
    /// There was no slot for another service.
    pub const SERVICE_FULL: u64 = 1 << 17;
    /// A connection was returned without reading the clock.
    pub const UNTIMED: u64 = 1 << 18;

    /// Their names, in the order of the bits.
    pub const NAMES: [&str; 19] = [
        "a queue",
        "something due at once",
        "a timeout",
        "a stale close",
        "an idle close",
        "a close by an error",
        "a close with the pool",
        "a check-out failed by a clear",
        "an interrupt",
        "an abandoned establishment",
        "stale news",
        "no waiter slot",
        "a grant cancelled",
        "a bound waiter cancelled",
        "a connection handed on",
        "background work",
        "more than maxPoolSize",
        "no service slot",
        "a check-in without the clock",
    ];
}

/// Optional inputs, in addition to check-outs, claims, check-ins and established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Can {
    /// Check-outs are cancelled.
    Cancel,
    /// Ended check-outs are claimed and cancelled again.
    Again,
    /// Connections fail in use.
    Break,
    /// Connections cannot be established.
    Fail,
    /// Establishments fail, and that clears the pool.
    FailClear,
    /// The pool is cleared, ready or not.
    Clear,
    /// The pool is cleared with interruption.
    Interrupt,
    /// One service is cleared.
    ClearService,
    /// The pool is closed.
    Close,
    /// The process is forked.
    Fork,
    /// The clock advances by one tick, and the pool is called.
    Tick,
    /// The clock advances by one tick, and the pool is not called.
    Pass,
    /// The driver calls when the pool has a due timer.
    Due,
    /// Check-outs have a deadline, of one or two ticks.
    Deadline,
    /// The options change.
    Reconfigure,
    /// The pool is filled, or that is revoked.
    Fill,
    /// Clients without a subscriber, which do not read the clock.
    Untimed,
}

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A check-out.
    CheckOut,
    /// A check-out with a deadline in this many ticks.
    CheckOutBy(u8),
    /// A check-out that does not read the clock.
    CheckOutUntimed,
    /// A check-in that does not read the clock.
    CheckInUntimed(u8),
    /// The outcome of this check-out is taken.
    Claim(u8),
    /// This check-out is cancelled.
    Cancel(u8),
    /// An ended check-out is claimed and cancelled again.
    Again,
    /// This lease is returned.
    CheckIn(u8),
    /// This lease is returned broken.
    Break(u8),
    /// The driver takes an establishment.
    PollEstablish,
    /// The driver takes another effect.
    PollPrompt,
    /// This establishment succeeds.
    Established(u8),
    /// It fails.
    Fail(u8),
    /// It fails, and that clears the pool.
    FailClear(u8),
    /// It is assigned to this service.
    Service(u8, u8),
    /// A clear.
    Clear,
    /// A clear with interruption.
    Interrupt,
    /// A clear of this service.
    ClearService(u8),
    /// The pool is marked ready.
    Ready,
    /// It is closed.
    Close,
    /// The process is forked.
    Fork,
    /// A tick after which the pool is called.
    Tick,
    /// A tick after which the pool is not called.
    Pass,
    /// The driver calls when a timer is due.
    Due,
    /// These options are applied.
    Reconfigure(u8),
    /// The pool is filled to this many connections.
    Fill(u8),
}

impl Input {
    /// Number of kinds of inputs that can be limited.
    pub(super) const LIMITED: usize = 6;

    /// The index of its limit.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others have no limit")]
    const fn limit(self) -> Option<usize> {
        match self {
            Self::Clear | Self::Interrupt | Self::ClearService(_) | Self::FailClear(_) | Self::Fork => Some(0),
            Self::Fail(_) => Some(1),
            Self::Break(_) => Some(2),
            Self::Tick | Self::Pass => Some(3),
            Self::Reconfigure(_) => Some(4),
            Self::Fill(_) => Some(5),
            _ => None,
        }
    }
}

/// The storage of the pool's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// On the heap.
    Heap,
    /// In place, with capacity for 2 connections, 3 check-outs and 1 service.
    Fixed2,
    /// In place, with more capacity than a scope needs.
    Fixed4,
}

/// A scope of the pool.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The options of the pool.
    pub options: PoolOptions,
    /// Further options that may be applied.
    pub others: Vec<PoolOptions>,
    /// The storage of its slots.
    pub store: Store,
    /// Largest number of clients that wait for or hold a connection.
    pub clients: usize,
    /// The optional inputs.
    pub can: Vec<Can>,
    /// The driver executes effects at once, except establishments.
    pub eager: bool,
    /// How many times each of the six limited inputs may occur; 255 is unlimited.
    pub limits: [u8; Input::LIMITED],
    /// A tick, in nanoseconds.
    pub tick: u64,
    /// Age in nanoseconds from which on all times are equal.
    pub horizon: u64,
    /// The pool is never marked ready.
    pub never_ready: bool,
    /// The situations that must be reached.
    pub reaches: u64,
    /// Largest number of states; exceeding it is an error.
    pub states: usize,
}

impl Shape {
    /// Runs the search.
    pub fn run(&self) -> Result<Figures, Stopped> {
        let limits = Limits::all(self.states);
        match self.store {
            Store::Heap => search(&PoolScope::<OnHeap>(self, PhantomData), limits),
            Store::Fixed2 => search(&PoolScope::<Fixed<2, 3, 1>>(self, PhantomData), limits),
            Store::Fixed4 => search(&PoolScope::<Fixed<4, 4, 2>>(self, PhantomData), limits),
        }
    }

    fn can(&self, what: Can) -> bool {
        self.can.contains(&what)
    }
}

struct PoolScope<'s, M>(&'s Shape, PhantomData<M>);

/// Returns the indices of a list, in the type of inputs.
fn places(len: usize) -> impl Iterator<Item = u8> {
    0..u8::try_from(len).expect("a few")
}

impl<M: Bounded + Clone> Scope for PoolScope<'_, M>
where
    Pool<M>: Hash,
{
    type State = Host<M>;
    type Input = Input;

    fn start(&self) -> Host<M> {
        Host::new(self.0)
    }

    fn inputs(&self, host: &Host<M>, inputs: &mut Vec<Input>) {
        let shape = self.0;
        if host.pool.waiters().len() + host.leases.len() < shape.clients {
            inputs.push(Input::CheckOut);
            if shape.can(Can::Deadline) {
                inputs.extend([Input::CheckOutBy(1), Input::CheckOutBy(2)]);
            }
            if shape.can(Can::Untimed) && host.pool.model().is_untimed_check_out() {
                inputs.push(Input::CheckOutUntimed);
            }
        }
        for place in places(host.pool.waiters().len()) {
            let number = host.pool.waiters()[usize::from(place)].1;
            if host.pool.model().waiter(number).is_some_and(|waiter| waiter.outcome != Outcome::Waiting) {
                inputs.push(Input::Claim(place));
            }
            if shape.can(Can::Cancel) {
                inputs.push(Input::Cancel(place));
            }
        }
        for place in places(host.leases.len()) {
            inputs.push(Input::CheckIn(place));
            let conn = host.leases[usize::from(place)].conn();
            if shape.can(Can::Untimed) && host.pool.model().is_untimed_check_in(conn.connection_id().get()) {
                inputs.push(Input::CheckInUntimed(place));
            }
            if shape.can(Can::Break) {
                inputs.push(Input::Break(place));
            }
        }
        for place in places(host.establishing.len()) {
            self.news(host, place, inputs);
        }
        if host.owes(true) {
            inputs.push(Input::PollEstablish);
        }
        if !shape.eager && host.owes(false) {
            inputs.push(Input::PollPrompt);
        }
        if host.pool.state() == PoolState::Paused && !shape.never_ready {
            inputs.push(Input::Ready);
        }
        self.rarer(host, inputs);
        inputs.retain(|input| input.limit().is_none_or(|limit| host.left[limit] > 0));
    }

    fn step(&self, host: &mut Host<M>, input: Input) {
        if let Some(left) = input.limit().map(|limit| &mut host.left[limit]).filter(|left| **left != u8::MAX) {
            *left -= 1;
        }
        self.apply(host, input);
        if host.pool.model().has_background() {
            host.mark(mark::BACKGROUND);
        }
        host.look();
        if self.0.eager {
            host.drain(false);
            host.look();
        }
    }

    fn print(&self, host: &Host<M>) -> u128 {
        host.print(self.0)
    }

    fn marks(&self, host: &Host<M>) -> u64 {
        host.marks
    }

    fn take_checks(&self, host: &mut Host<M>) -> Option<Checks> {
        Some(host.pool.take_checks())
    }

    fn reaches(&self) -> Vec<(u64, &'static str)> {
        let bits = (0..).map(|bit| 1 << bit);
        bits.zip(mark::NAMES).filter(|(bit, _)| self.0.reaches & bit != 0).collect()
    }

    fn end(&self, mut host: Host<M>) {
        host.end(self.0);
    }
}

impl<M: Bounded + Clone> PoolScope<'_, M>
where
    Pool<M>: Hash,
{
    /// Collects the possible results of an establishment.
    fn news(&self, host: &Host<M>, place: u8, inputs: &mut Vec<Input>) {
        let conn = host.establishing[usize::from(place)];
        let pending =
            host.pool.model().conn(conn.connection_id().get()).is_some_and(|conn| conn.place == Place::Establishing);
        if self.0.options.load_balanced && pending && host.pool.conn_service(conn).is_none() {
            inputs.extend(places(SERVICES.len()).map(|service| Input::Service(place, service)));
        }
        inputs.push(Input::Established(place));
        if self.0.can(Can::Fail) {
            inputs.push(Input::Fail(place));
        }
        if self.0.can(Can::FailClear) {
            inputs.push(Input::FailClear(place));
        }
    }

    fn rarer(&self, host: &Host<M>, inputs: &mut Vec<Input>) {
        let shape = self.0;
        let closed = host.pool.state() == PoolState::Closed;
        let kinds = [
            (Can::Clear, Input::Clear),
            (Can::Interrupt, Input::Interrupt),
            (Can::Close, Input::Close),
            (Can::Fork, Input::Fork),
            (Can::Tick, Input::Tick),
            (Can::Pass, Input::Pass),
            (Can::Again, Input::Again),
        ];
        inputs.extend(kinds.into_iter().filter(|(can, _)| shape.can(*can)).map(|(_, input)| input));
        if closed {
            inputs.retain(|input| !matches!(input, Input::Close));
        }
        if shape.can(Can::ClearService) {
            inputs.extend(places(SERVICES.len()).map(Input::ClearService));
        }
        if shape.can(Can::Due) && host.pool.poll_timeout().is_some() {
            inputs.push(Input::Due);
        }
        inputs.extend(places(shape.others.len()).map(Input::Reconfigure));
        if shape.can(Can::Fill) {
            inputs.extend([Input::Fill(0), Input::Fill(1), Input::Fill(2)]);
        }
    }

    fn apply(&self, host: &mut Host<M>, input: Input) {
        let shape = self.0;
        let all = |interrupt_in_use_connections| Clear::All { interrupt_in_use_connections };
        match input {
            Input::CheckOut => host.check_out(None),
            Input::CheckOutBy(ticks) => host.check_out(Some(host.now + u64::from(ticks) * shape.tick)),
            Input::CheckOutUntimed => {
                let lease = host.pool.check_out_without_clock();
                host.leases.push(lease);
            }
            Input::CheckInUntimed(place) => {
                let lease = host.leases.remove(place.into());
                host.pool.check_in_without_clock(lease);
                host.mark(mark::UNTIMED);
            }
            Input::Claim(place) => host.claim(place.into()),
            Input::Cancel(place) => host.cancel(place.into()),
            Input::Again => host.again(),
            Input::CheckIn(place) => host.check_in(place.into(), Health::Healthy),
            Input::Break(place) => host.check_in(place.into(), Health::Broken(Cause::Network)),
            Input::PollEstablish => assert!(host.poll(true), "an Establish is owed"),
            Input::PollPrompt => assert!(host.poll(false), "an action is owed"),
            Input::Established(place) => {
                let conn = host.establishing.remove(place.into());
                host.established(conn);
            }
            Input::Fail(place) => {
                let conn = host.establishing.remove(place.into());
                host.failed(conn, None);
            }
            Input::FailClear(place) => {
                let conn = host.establishing.remove(place.into());
                host.failed(conn, Some(all(false)));
            }
            Input::Service(place, service) => {
                let conn = host.establishing[usize::from(place)];
                if host.pool.handle_service(conn, SERVICES[usize::from(service)]).is_err() {
                    host.mark(mark::SERVICE_FULL);
                }
            }
            Input::Clear => host.clear(all(false)),
            Input::Interrupt => host.clear(all(true)),
            Input::ClearService(service) => host.clear(Clear::Service(SERVICES[usize::from(service)])),
            Input::Ready => host.ready(),
            Input::Close => host.close(),
            Input::Fork => host.fork(),
            Input::Tick => {
                host.now += shape.tick;
                host.tick();
            }
            Input::Pass => host.now += shape.tick,
            Input::Due => {
                let due = host.pool.poll_timeout().expect("something is due");
                host.now = host.now.max(due.as_nanos());
                host.tick();
            }
            Input::Reconfigure(number) => {
                host.reconfigure(shape.others[usize::from(number)]);
                if host.pool.model().is_beyond_max() {
                    host.mark(mark::SURPLUS);
                }
            }
            Input::Fill(count) => host.fill(count.into()),
        }
    }
}
