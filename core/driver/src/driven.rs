//! The pool machine with the state beside its slots: the connections, the wakers and deadlines of
//! their operations, the wakers of waiters, and the tasks that work for the pool.
//!
//! [`Driven`] is plain data behind one lock. [`Drive::step`] changes it under the lock and runs the
//! effects of the change (tasks to wake, connections to drop) after the lock is released. Nothing
//! is awaited under the lock.
//!
//! One check-out: [`Drive::check_out`] grants a connection, or adds a waiter.
//! [`Drive::poll_check_out`] registers the waker of a waiter, and takes its outcome.
//! [`Drive::check_in`] returns the connection to its slot.
//!
//! The pool of a MongoDB server is driven by this module, and so is the pool of a
//! [`Manager`](crate::pool::Manager).

use super::event::{Publish, Tap};
use super::runtime::{BaseRuntime, register};
use super::warm_up::Warmer;
#[cfg(feature = "alloc")]
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Poll, Waker};
use poolhouse_core::machine::Observer;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, Claim, ConnId, EstablishError, Health, Lease, Memory, Pool, PoolAction, PoolEvent,
    PoolState, Stale, WaiterId,
};
use poolhouse_core::storage::Store;
use poolhouse_core::{Cause, Instant};

/// The state of one pool.
///
/// - `C`: a connection.
/// - `K`: what is stored about an established connection. It is not moved at check-outs.
pub(super) struct Driven<M: Memory, C, K> {
    pub(super) pool: Pool<M>,
    pub(super) conn_slots: M::PerConn<ConnSlot<C, K>>,
    waiters: M::PerWaiter<Option<Waker>>,
    workers: M::PerConn<Worker>,
    /// The number of workers in state `Worker::Called`: each will establish one of the
    /// connections that are owed.
    called: u32,
    /// Tasks that wait until the pool is filled; at most as many as there can be connections.
    pub(super) warmers: M::PerConn<Warmer>,
    /// The number of tasks in `warmers`.
    pub(super) warming: u32,
    pub(super) clock: Option<Waker>,
    /// The instant until which the clock task sleeps; `None` if it sleeps until it is woken.
    armed: Option<Instant>,
    /// A further instant at which the clock task has work, besides the timeout of the pool.
    due: Option<Instant>,
    /// Whether there may be effects that were not found yet.
    unsettled: bool,
    /// The index of the next slot to search for an overdue operation; `None` when all were
    /// searched.
    overdue: Option<usize>,
    /// The index of the next slot to search for an operation to wake, after the pool was closed.
    /// From then on the slots get no deadlines.
    closing: usize,
}

/// State of a connection slot.
pub(super) struct ConnSlot<C, K> {
    pub(super) owner: Option<ConnId>,
    pub(super) interrupted: bool,
    pub(super) socket: Option<C>,
    pub(super) known: Option<K>,
    /// The waker of the task that performs I/O on the connection.
    pub(super) waker: Option<Waker>,
    /// The deadline of this I/O. The clock task watches it, so an operation that ends in time needs
    /// no timer.
    pub(super) deadline: Option<Instant>,
    /// The last deadline that has passed.
    expired: Option<Instant>,
}

impl<C, K> ConnSlot<C, K> {
    /// Takes the waker of the operation if its deadline has passed.
    fn take_overdue(&mut self) -> Option<Waker> {
        if self.deadline.is_none() || self.deadline != self.expired {
            return None;
        }
        self.deadline = None;
        self.waker.take()
    }

    const fn new(owner: Option<ConnId>) -> Self {
        Self { owner, interrupted: false, socket: None, known: None, waker: None, deadline: None, expired: None }
    }
}

/// The slot of a task that establishes connections.
pub(super) enum Worker {
    /// No task has the slot.
    Free,
    /// The worker establishes a connection, or is about to poll for one.
    Busy,
    Waiting(Waker),
    /// The worker was woken, and has not polled since.
    Called,
}

impl Worker {
    /// Takes the waker of a waiting worker, which then is called.
    fn take_waiting(&mut self) -> Option<Waker> {
        if !matches!(self, Self::Waiting(_)) {
            return None;
        }
        match core::mem::replace(self, Self::Called) {
            Self::Waiting(waker) => Some(waker),
            Self::Free | Self::Busy | Self::Called => None,
        }
    }
}

/// An effect of a change, which runs after the lock is released.
pub(super) enum Effect<C> {
    Wake(Waker),
    Drop(C),
}

impl<C> Effect<C> {
    pub(super) fn run(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Drop(connection) => drop(connection),
        }
    }
}

/// Room for the next two effects. Most changes have one: the empty second slot shows this without
/// taking the lock again.
pub(super) type Effects<C> = [Option<Effect<C>>; 2];

impl<M: Memory, C, K> Driven<M, C, K> {
    /// An empty pool's state.
    #[inline]
    pub(super) fn new(pool: Pool<M>) -> Self {
        Self {
            pool,
            conn_slots: Store::empty(),
            waiters: Store::empty(),
            workers: Store::empty(),
            called: 0,
            warmers: Store::empty(),
            warming: 0,
            clock: None,
            armed: None,
            due: None,
            unsettled: true,
            overdue: None,
            closing: 0,
        }
    }

    /// Overwrites the state with that of [`Driven::new`]. A new state would be large on the stack.
    pub(super) fn reset(&mut self, pool: Pool<M>) {
        let Self { conn_slots, waiters, workers, warmers, .. } = self;
        while conn_slots.pop().is_some()
            || waiters.pop().is_some()
            || workers.pop().is_some()
            || warmers.pop().is_some()
        {}
        self.pool = pool;
        (self.called, self.warming, self.closing) = (0, 0, 0);
        (self.clock, self.armed, self.due, self.overdue) = (None, None, None, None);
        self.unsettled = true;
    }

    /// Whether the changes so far have no effects.
    #[inline]
    fn is_settled(&mut self) -> bool {
        self.unsettled |= self.pool.take_changed();
        !self.unsettled
    }

    /// Moves the next effects of the changes so far into `effects`, which are empty.
    #[inline(never)]
    fn take_effects(&mut self, effects: &mut Effects<C>) {
        let [first, second] = effects;
        self.take_effect(first);
        if first.is_some() {
            self.take_effect(second);
        }
        self.unsettled = second.is_some();
    }

    /// Moves the next effect of the changes so far, if there is one, into `place`, which is empty.
    fn take_effect(&mut self, place: &mut Option<Effect<C>>) {
        while let Some(action) = self.pool.poll_prompt() {
            *place = match action {
                PoolAction::Wake(id) => {
                    self.waiters.slots_mut().get_mut(id.index() as usize).and_then(Option::take).map(Effect::Wake)
                }
                PoolAction::Close(id) => self.conn_slot(id).and_then(|slot| slot.socket.take()).map(Effect::Drop),
                PoolAction::Interrupt(id) => self.conn_slot(id).and_then(|slot| {
                    slot.interrupted = true;
                    slot.waker.take().map(Effect::Wake)
                }),
                PoolAction::Establish(_) => None,
            };
            if place.is_some() {
                return;
            }
        }
        *place = self.next_to_wake().map(Effect::Wake);
    }

    /// Takes the waker of the next task that has work after the changes so far.
    fn next_to_wake(&mut self) -> Option<Waker> {
        if let Some(waker) = self.take_warmer() {
            return Some(waker);
        }
        if let Some(place) = &mut self.overdue {
            if let Some(waker) = take_from(self.conn_slots.slots_mut(), place, ConnSlot::take_overdue) {
                return Some(waker);
            }
            self.overdue = None;
        }
        if self.pool.state() == PoolState::Closed {
            // Workers and the clock task end with the pool. From now on operations in progress use
            // their own timers.
            let timed = |slot: &mut ConnSlot<C, K>| slot.deadline.take().and(slot.waker.take());
            if let Some(waker) = take_from(self.conn_slots.slots_mut(), &mut self.closing, timed) {
                return Some(waker);
            }
            return self.call_worker().or_else(|| self.clock.take());
        }
        if self.pool.owed_establish_count() > self.called {
            if let Some(waker) = self.call_worker() {
                return Some(waker);
            }
        }
        if self.clock.is_some() && is_earlier(self.timeout(), self.armed) {
            return self.clock.take();
        }
        None
    }

    /// When the clock task has work for the pool.
    fn timeout(&self) -> Option<Instant> {
        let pool = self.pool.poll_timeout();
        if is_earlier(self.due, pool) { self.due } else { pool }
    }

    /// Sets the further instant at which the clock task has work; `None` if there is none.
    pub(super) fn set_due(&mut self, due: Option<Instant>) {
        self.due = due;
        self.unsettled = true;
    }

    /// [`Driven::set_due`], unless the clock task has work earlier.
    pub(super) fn set_due_earlier(&mut self, due: Option<Instant>) {
        if is_earlier(due, self.due) {
            self.set_due(due);
        }
    }

    /// Takes the waker of a worker that waits for a connection to establish.
    fn call_worker(&mut self) -> Option<Waker> {
        let waker = self.workers.slots_mut().iter_mut().find_map(Worker::take_waiting)?;
        self.called += 1;
        Some(waker)
    }

    /// Sets a worker's slot to `now`. Returns the former value, which must be dropped without the
    /// lock.
    fn replace_worker(&mut self, worker: usize, now: Worker) -> Option<Worker> {
        let before = core::mem::replace(self.workers.slots_mut().get_mut(worker)?, now);
        let was_called = matches!(before, Worker::Called);
        self.called -= u32::from(was_called);
        // Another worker may have to be called instead.
        self.unsettled |= was_called;
        Some(before)
    }

    /// The slot of a connection; `None` if the slot is used by another connection now.
    pub(super) fn conn_slot(&mut self, id: ConnId) -> Option<&mut ConnSlot<C, K>> {
        self.conn_slots.slots_mut().get_mut(id.index() as usize).filter(|slot| slot.owner == Some(id))
    }

    /// Initializes the slot of a connection that is about to be established; false if there is no
    /// memory. Cold: may allocate.
    fn occupy(&mut self, id: ConnId) -> bool {
        while self.conn_slots.slots().len() <= id.index() as usize {
            if self.conn_slots.try_push(ConnSlot::new(None)).is_err() {
                return false;
            }
        }
        if let Some(slot) = self.conn_slots.slots_mut().get_mut(id.index() as usize) {
            *slot = ConnSlot::new(Some(id));
        }
        true
    }

    /// Reports to the pool that a connection could not be established. Nothing changes if the pool
    /// has abandoned the connection. Returns a waker that must be dropped without a lock.
    pub(super) fn fail_establish(
        &mut self,
        now: Instant,
        id: ConnId,
        error: EstablishError,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Option<Waker> {
        let waker = self.conn_slot(id).and_then(|slot| slot.waker.take());
        let failed = CheckOutError::EstablishFailed { cause: error.cause, overloaded: error.overloaded };
        if self.pool.handle_establish_failed(now, id, error, observer).is_ok() && self.warming > 0 {
            self.fail_warmers(failed);
        }
        waker
    }

    /// Marks the overdue operations, and returns the earliest deadline of the others.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        for slot in self.conn_slots.slots_mut() {
            if slot.deadline.is_some_and(|at| at <= now) {
                slot.expired = slot.deadline;
                self.overdue = Some(0);
                self.unsettled = true;
            } else if is_earlier(slot.deadline, next) {
                next = slot.deadline;
            }
        }
        next
    }

    /// Adds a slot for the waker of a new waiter if there is none, and stores the waker.
    #[inline(never)]
    fn add_waiter(
        &mut self,
        id: WaiterId,
        waker: &mut Option<Waker>,
        observer: &mut impl Observer<PoolEvent>,
    ) -> Result<Begun<C>, CheckOutError> {
        while self.waiters.slots().len() <= id.index() as usize {
            if self.waiters.try_push(None).is_err() {
                // The pool replaces a time in the past by that of the check-out.
                self.pool.cancel(Instant::ORIGIN, id, observer);
                let waiting = self.pool.counts().waiting;
                return Err(CheckOutError::Busy { waiting });
            }
        }
        if let Some(slot) = self.waiters.slots_mut().get_mut(id.index() as usize) {
            debug_assert!(slot.is_none(), "the waker of a waiter is removed with it");
            core::mem::swap(slot, waker);
        }
        Ok(Begun::Queued(id))
    }

    fn take_socket(&mut self, lease: &Lease) -> Option<C> {
        self.conn_slot(lease.conn()).and_then(|slot| slot.socket.take())
    }
}

/// Returns the first result of `take` that is not `None`, beginning with the item at `place`;
/// `place` then is the index of the next item.
fn take_from<T, U>(items: &mut [T], place: &mut usize, mut take: impl FnMut(&mut T) -> Option<U>) -> Option<U> {
    while let Some(item) = items.get_mut(*place) {
        *place += 1;
        let taken = take(item);
        if taken.is_some() {
            return taken;
        }
    }
    None
}

/// Whether `one` is before `other`; `None` is after all instants.
#[doc(hidden)]
pub const fn is_earlier(one: Option<Instant>, other: Option<Instant>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.as_nanos() < other.as_nanos(),
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The [`Driven`] of a pool.
pub(super) type DrivenOf<D> =
    Driven<<<D as Drive>::Runtime as BaseRuntime>::Memory, <D as Drive>::Connection, <D as Drive>::Known>;
type EventsOf<D> = <<D as Drive>::Runtime as BaseRuntime>::Events;

/// Whether the last check-out of a pool waited. Only a hint: it is changed without the lock, and a
/// cloned `Server` has its own. Without `alloc` it is always false, because the lock is held by one
/// core only.
#[derive(Default)]
pub(super) struct LastWaited {
    #[cfg(feature = "alloc")]
    waited: AtomicBool,
}

impl LastWaited {
    #[inline]
    pub(super) fn get(&self) -> bool {
        #[cfg(feature = "alloc")]
        return self.waited.load(Ordering::Relaxed);
        #[cfg(not(feature = "alloc"))]
        false
    }

    #[inline]
    pub(super) fn set(&self, waited: bool) {
        #[cfg(feature = "alloc")]
        self.waited.store(waited, Ordering::Relaxed);
        #[cfg(not(feature = "alloc"))]
        let _ = waited;
    }
}

/// A [`Driven`] behind its lock. Each kind of pool implements the first four methods; the others
/// are the steps of its callers and tasks.
pub(super) trait Drive {
    type Runtime: BaseRuntime;
    type Connection;
    type Known;

    /// The publisher of the pool's events.
    fn events(&self) -> &EventsOf<Self>;

    /// The server's address, or the pool's name, in events.
    fn name(&self) -> &str;

    /// Whether the last check-out waited.
    fn last_waited(&self) -> &LastWaited;

    /// Calls `f` under the lock.
    fn with<T>(&self, f: impl FnOnce(&mut DrivenOf<Self>) -> T) -> T;

    /// Changes the pool under its lock, then runs the effects.
    #[inline]
    fn step<T>(&self, change: impl FnOnce(&mut DrivenOf<Self>, &mut Tap<'_, EventsOf<Self>>) -> T) -> T {
        let mut tap = Tap::of_server(self.events(), self.name());
        let mut effects = [None, None];
        let result = self.with(|state| {
            let result = change(state, &mut tap);
            if !state.is_settled() {
                state.take_effects(&mut effects);
            }
            result
        });
        if effects[0].is_some() {
            self.run_effects(&mut effects);
        }
        if tap.is_active() {
            self.events().deliver();
        }
        result
    }

    #[inline(never)]
    fn run_effects(&self, effects: &mut Effects<Self::Connection>) {
        let run = |effect: Effect<Self::Connection>| {
            // Wakers and sockets run foreign code: a panic there must not lose the result of the step.
            let _ = Self::Runtime::contain(|| effect.run());
        };
        loop {
            let [first, second] = effects;
            first.take().map(run);
            let Some(second) = second.take() else { break };
            run(second);
            self.with(|state| state.take_effects(effects));
        }
    }

    /// Changes the pool under its lock, without running effects. For callers that hold the client
    /// core's lock and call [`Drive::settle`] afterwards.
    fn change<T>(&self, change: impl FnOnce(&mut DrivenOf<Self>, &mut Tap<'_, EventsOf<Self>>) -> T) -> T {
        self.with(|state| change(state, &mut Tap::of_server(self.events(), self.name())))
    }

    /// Runs the effects of [`Drive::change`].
    fn settle(&self) {
        self.step(|_, _| ());
    }

    /// Checks a connection out, or adds a waiter.
    ///
    /// - `clock`: read under the lock, and only if the time matters.
    /// - `deadline`: called under the lock, with the time, if no connection is available.
    /// - `waker`: registered if the check-out must wait; otherwise it is left here. With `None`, a
    ///   check-out that waits is not woken until [`Drive::poll_check_out`] has registered a waker.
    #[inline]
    fn check_out(
        &self,
        clock: impl FnOnce() -> Instant,
        deadline: impl FnOnce(Instant) -> Option<Instant>,
        waker: &mut Option<Waker>,
    ) -> Result<Begun<Self::Connection>, CheckOutError> {
        self.step(|state, observer| match state.pool.check_out_with(clock, deadline, observer)? {
            CheckOut::Granted(lease) => Ok(Begun::Granted(state.take_socket(&lease), lease)),
            CheckOut::Queued(id) => state.add_waiter(id, waker, observer),
        })
    }

    /// Polls a check-out that has no outcome yet. While it waits, `waker` is registered, which is
    /// woken when there is an outcome.
    ///
    /// - `waiter`: of [`Drive::check_out`]. After a check-out that waited ([`Drive::last_waited`]),
    ///   callers do not begin the next one, which will probably wait too, but poll it with `None`
    ///   here: the clock is read and the waker is cloned before the lock is taken, so that it is
    ///   taken once, and for a shorter time.
    /// - `deadline`: as in [`Drive::check_out`].
    fn poll_check_out(
        &self,
        waiter: &mut Option<WaiterId>,
        clock: impl FnOnce() -> Instant,
        deadline: impl FnOnce(Instant) -> Option<Instant>,
        waker: &Waker,
    ) -> Poll<Claimed<Self::Connection>> {
        if waiter.is_some() {
            // The task was probably woken because there is an outcome: the waker is cloned only if
            // there is none.
            return match self.claim(waiter, None) {
                Poll::Pending => self.claim(waiter, Some(waker.clone())),
                claimed @ Poll::Ready(_) => claimed,
            };
        }
        let (now, mut cloned) = (clock(), Some(waker.clone()));
        match self.check_out(|| now, deadline, &mut cloned) {
            Ok(Begun::Granted(connection, lease)) => {
                self.last_waited().set(false);
                // A panic here would lose the connection.
                let _ = Self::Runtime::contain(|| drop(cloned));
                Poll::Ready(Ok((connection, lease)))
            }
            Ok(Begun::Queued(id)) => {
                *waiter = Some(id);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Returns the outcome of a waiting check-out and clears `waiter`. While there is none, registers
    /// `waker`. The clock is not read, because other calls decide the outcome.
    fn claim(&self, waiter: &mut Option<WaiterId>, mut waker: Option<Waker>) -> Poll<Claimed<Self::Connection>> {
        let Some(id) = *waiter else { return Poll::Ready(Err(CheckOutError::Cancelled)) };
        // A claim has no effects and no events.
        let (claimed, left) = self.with(|state| {
            let claim = state.pool.claim(Instant::ORIGIN, id);
            let mut left = None;
            match (&claim, state.waiters.slots_mut().get_mut(id.index() as usize)) {
                (Claim::Waiting, Some(slot)) if waker.is_some() => register(slot, &mut waker),
                // The claim revokes the waking that is owed.
                (Claim::Granted(_) | Claim::Failed(_), Some(slot)) => left = slot.take(),
                // The slot belongs to another waiter now.
                (Claim::Waiting | Claim::Stale, _) | (_, None) => {}
            }
            let claimed = match claim {
                Claim::Waiting => Poll::Pending,
                Claim::Granted(lease) => Poll::Ready(Ok((state.take_socket(&lease), lease))),
                Claim::Failed(error) => Poll::Ready(Err(error)),
                Claim::Stale => Poll::Ready(Err(CheckOutError::Cancelled)),
            };
            (claimed, left)
        });
        if claimed.is_ready() {
            *waiter = None;
            // A panic here would lose the connection.
            let _ = Self::Runtime::contain(|| drop((waker, left)));
        }
        claimed
    }

    fn cancel(&self, now: Instant, id: WaiterId) {
        let _left = self.step(|state, observer| {
            state.pool.cancel(now, id, observer);
            state.waiters.slots_mut().get_mut(id.index() as usize).and_then(Option::take)
        });
    }

    /// Puts the connection back into its slot, and returns the lease. Returns whether the pool is
    /// closed.
    ///
    /// - `clock`: as in [`Drive::check_out`].
    /// - `connection`: taken; if it is `None`, the connection is broken.
    #[inline]
    fn check_in(
        &self,
        clock: impl FnOnce() -> Instant,
        lease: Lease,
        connection: &mut Option<Self::Connection>,
        health: Health,
    ) -> bool {
        let (is_closed, _waker) = self.step(|state, observer| {
            let health = if connection.is_none() { Health::Broken(Cause::Cancelled) } else { health };
            let mut waker = None;
            if let Some(slot) = state.conn_slot(lease.conn()) {
                slot.deadline = None;
                slot.socket = connection.take();
                waker = slot.waker.take();
            }
            let returned = state.pool.check_in_with(clock, lease, health, observer);
            debug_assert!(returned.is_ok(), "a guard returns its lease to the pool that issued it");
            (state.pool.state() == PoolState::Closed, waker)
        });
        is_closed
    }

    /// Ready if the connection was interrupted; otherwise registers `waker`, which is woken when it
    /// is.
    fn poll_interrupted(&self, id: ConnId, waker: &Waker) -> Poll<()> {
        let mut waker = Some(waker.clone());
        self.with(|state| match state.conn_slot(id) {
            Some(slot) if !slot.interrupted => {
                register(&mut slot.waker, &mut waker);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
    }

    /// Returns whether an operation on the connection may continue; if it may, registers `waker`,
    /// which is woken when that changes.
    ///
    /// - `deadline`: the operation's; `None` is no deadline.
    fn watch(&self, id: ConnId, deadline: Option<Instant>, waker: &Waker) -> Watch {
        let mut waker = Some(waker.clone());
        let (watch, clock) = self.with(|state| {
            let closed = state.pool.state() == PoolState::Closed;
            let late = is_earlier(deadline, state.armed) && !closed;
            let slot = match state.conn_slot(id) {
                Some(slot) if !slot.interrupted => slot,
                _ => return (Watch::Interrupted, None),
            };
            if deadline.is_some() && deadline <= slot.expired {
                return (Watch::TimedOut, None);
            }
            register(&mut slot.waker, &mut waker);
            if closed {
                slot.deadline = None;
                return (Watch::WithoutClock, None);
            }
            slot.deadline = deadline;
            (Watch::Going, if late { state.clock.take() } else { None })
        });
        if let Some(clock) = clock {
            let _ = Self::Runtime::contain(|| clock.wake());
        }
        watch
    }

    /// Takes a slot for one more worker; `None` if there are as many workers as there can be
    /// connections.
    fn join_workers(&self) -> Option<usize> {
        self.with(|state| {
            let free = state.workers.slots().iter().position(|worker| matches!(worker, Worker::Free));
            let place = match free {
                Some(place) => place,
                None => {
                    state.workers.try_push(Worker::Free).ok()?;
                    state.workers.slots().len() - 1
                }
            };
            *state.workers.slots_mut().get_mut(place)? = Worker::Busy;
            Some(place)
        })
    }

    /// Frees a worker's slot. If the worker had been called, another one is called.
    fn leave_workers(&self, worker: usize) {
        let _left = self.step(|state, _| state.replace_worker(worker, Worker::Free));
    }

    /// The next connection to establish; `None` once the pool is closed.
    fn poll_establish(&self, now: Instant, worker: usize, waker: &Waker) -> Poll<Option<ConnId>> {
        let mut waker = Some(waker.clone());
        let (polled, _before) = self.step(|state, observer| {
            let before = state.replace_worker(worker, Worker::Busy);
            while let Some(id) = state.pool.poll_establish() {
                if state.occupy(id) {
                    return (Poll::Ready(Some(id)), before);
                }
                let error = EstablishError { cause: Cause::Resources, overloaded: false, clear: None };
                // A new connection has no waker.
                let _none = state.fail_establish(now, id, error, observer);
            }
            if state.pool.state() == PoolState::Closed {
                return (Poll::Ready(None), before);
            }
            if let Some(waker) = waker.take() {
                state.replace_worker(worker, Worker::Waiting(waker));
            }
            (Poll::Pending, before)
        });
        polled
    }

    /// The deadline of the operation that waits for a connection that is being established; `None`
    /// if no operation waits, or if the one that waits has no deadline.
    fn waiter_deadline(&self, now: Instant, id: ConnId) -> Option<Instant> {
        self.step(|state, observer| state.pool.waiter_deadline(now, id, observer))
    }

    /// Reports to the pool that a connection is established. Returns it if the pool has abandoned
    /// it.
    fn established(
        &self,
        now: Instant,
        id: ConnId,
        connection: Self::Connection,
        known: Self::Known,
    ) -> Option<Self::Connection> {
        let (late, _waker) = self.step(|state, observer| {
            // The connection must be in its slot before it can be granted.
            let Some(slot) = state.conn_slot(id) else { return (Some(connection), None) };
            let waker = slot.waker.take();
            slot.known = Some(known);
            slot.socket = Some(connection);
            match state.pool.handle_established(now, id, observer) {
                Ok(()) => (None, waker),
                Err(Stale) => (state.conn_slot(id).and_then(|slot| slot.socket.take()), waker),
            }
        });
        late
    }

    /// Runs expired timeouts of the pool, registers the clock task's waker, and returns the next
    /// deadline.
    fn poll_clock(&self, now: Instant, waker: &Waker) -> ClockState {
        let mut waker = Some(waker.clone());
        let (state, _left) = self.step(|state, observer| {
            while state.pool.poll_timeout().is_some_and(|at| at <= now) {
                state.pool.handle_timeout(now, observer);
            }
            if state.pool.state() == PoolState::Closed {
                // A guard may keep the pool longer than its clock task lives.
                return (ClockState::Ended, state.clock.take());
            }
            register(&mut state.clock, &mut waker);
            let operations = state.expire(now);
            let pool = state.timeout();
            state.armed = if is_earlier(operations, pool) { operations } else { pool };
            (ClockState::Armed(state.armed), None)
        });
        state
    }

    /// Whether the pool or an operation has an earlier deadline than the one until which the clock
    /// task sleeps.
    fn clock_is_late(&self, waker: &Waker) -> bool {
        let mut waker = Some(waker.clone());
        self.with(|state| {
            register(&mut state.clock, &mut waker);
            let late = |at| is_earlier(at, state.armed);
            state.pool.state() == PoolState::Closed
                || late(state.timeout())
                || state.conn_slots.slots().iter().any(|slot| late(slot.deadline))
        })
    }
}

/// The next step of a server's clock task.
pub(super) enum ClockState {
    /// Poll again at this instant, or when woken.
    Armed(Option<Instant>),
    /// The pool is closed.
    Ended,
}

/// Whether an operation may go on.
pub(super) enum Watch {
    /// It may. Its task is woken when it is interrupted, or when its deadline has passed.
    Going,
    /// It may, but it must watch its deadline itself: the pool is closed, and its clock task has
    /// ended.
    WithoutClock,
    /// It must end: the connection was interrupted, or no longer exists.
    Interrupted,
    /// It must end: its deadline has passed.
    TimedOut,
}

/// The state of a check-out after its first step.
pub(super) enum Begun<C> {
    Granted(Option<C>, Lease),
    Queued(WaiterId),
}

/// The outcome of a check-out.
pub(super) type Claimed<C> = Result<(Option<C>, Lease), CheckOutError>;

/// A worker's slot in its pool; freed when the task ends, is dropped or panics.
pub(super) struct WorkerSlot<'d, D: Drive> {
    pub(super) pool: &'d D,
    pub(super) index: usize,
}

impl<D: Drive> Drop for WorkerSlot<'_, D> {
    fn drop(&mut self) {
        let _ = D::Runtime::contain(|| self.pool.leave_workers(self.index));
    }
}
