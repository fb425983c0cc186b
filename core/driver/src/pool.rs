//! A pool of any connections: a [`Manager`] opens and checks them, [`Pool`] keeps them.
//!
//! The pool is the machine of `poolhouse-core` with the driver that a MongoDB server's pool has
//! too: waiters are served in the order of their arrival, every check-out has exactly one outcome,
//! and any future may be dropped at any await.
//!
//! # One check-out
//!
//! [`Pool::get`] takes an available connection under the lock. If none is available, the check-out
//! becomes a waiter, and one of the pool's workers ([`Pool::run_worker`]) opens a connection for
//! it. A connection that was used before is checked ([`Manager::check`]) before it is returned; one
//! that fails the check is closed, and the next one is taken. Dropping the [`Pooled`] returns the
//! connection.
//!
//! # Tasks
//!
//! The host runs [`Options::max_connecting`] workers and one clock task ([`Pool::run_clock`]). If
//! one of them is dropped, the pool is closed, so no waiter waits for ever.
//!
//! Source: CMAP, for the order of waiters, the states of connections and the events. Lifetimes,
//! checks and back-off are extensions.

mod error;
mod options;
mod pooled;
mod tasks;

pub use error::PoolError;
pub use options::{Config, Options};
pub use pooled::Pooled;

use super::driven::{Begun, Claimed, Drive, Driven, DrivenOf, LastWaited};
use super::event::{Publish, Tap};
use super::runtime::{BaseRuntime, Lock as _, Locked, is_unwinding, register};
use super::server::PoolSnapshot;
use core::fmt;
use core::future::poll_fn;
use core::ops::Deref;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_core::pool::{self as machine, CheckOutError, Clear, Health, Lease, Memory, PoolId, PoolState, WaiterId};
use poolhouse_core::storage::Store;
use poolhouse_core::{Cause, ConfigError, Instant, Reason};

/// Opens connections and judges them.
pub trait Manager {
    /// A connection. Dropping it closes it.
    type Connection;
    /// The reason why a connection cannot be opened or used.
    type Error: Clone;

    /// Opens a connection that is ready for use: connected, and authenticated where the protocol
    /// requires it. The pool bounds the time ([`Options::connect_timeout`]) and drops the future at
    /// the limit.
    ///
    /// # Errors
    ///
    /// The check-out that the connection was opened for fails with [`PoolError::Connect`], which
    /// has a clone of the last error. It is cloned under the lock of the pool: `clone` must not
    /// call the pool.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>>;

    /// Checks a connection that was used before, by a ping for example, before it is used again. By
    /// default every connection is good. The pool bounds the time as that of connecting.
    ///
    /// # Errors
    ///
    /// The connection is closed, and the check-out takes another one; also after a panic, if the
    /// runtime catches panics.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), Self::Error>> {
        let _ = connection;
        core::future::ready(Ok(()))
    }

    /// The error for logs. Called without a lock. By default there is none.
    fn reason(error: &Self::Error) -> Reason {
        let _ = error;
        Reason::NONE
    }

    /// Whether a returned connection must be closed: its peer has closed it, or a reply is
    /// outstanding. Called without a lock. False by default.
    fn is_broken(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Whether a connection can be used again although its owner panicked: the connection itself records
    /// an operation that was not completed, and [`Manager::is_broken`], which is asked first, reports
    /// it. Called without a lock, and only with feature `std`: firmware does not unwind. False by
    /// default.
    fn survives_panic(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// A connection in the pool. With a heap it is boxed, so that a check-out moves only its address.
#[cfg(feature = "alloc")]
pub(super) type Held<C> = alloc::boxed::Box<Conn<C>>;
#[cfg(not(feature = "alloc"))]
pub(super) type Held<C> = Conn<C>;

pub(super) struct Conn<C> {
    connection: C,
    /// While the connection is checked out. It lies here and not in [`Pooled`], so that futures
    /// return a small value.
    lease: Option<Lease>,
    /// Whether no check-out has had the connection.
    is_fresh: bool,
    /// Whether the connection must not be used again.
    is_broken: bool,
}

fn hold<C>(connection: C) -> Held<C> {
    let conn = Conn { connection, lease: None, is_fresh: true, is_broken: false };
    #[cfg(feature = "alloc")]
    let conn = alloc::boxed::Box::new(conn);
    conn
}

/// The end of a connection's lifetime; `None` if it has no limit.
pub(super) type Expiry = Option<Instant>;

/// A pool of the connections of a [`Manager`].
pub struct Pool<M: Manager, R: BaseRuntime> {
    manager: M,
    runtime: R,
    events: R::Events,
    name: R::Text,
    config: Config,
    last_waited: LastWaited,
    state: R::Lock<State<M, R>>,
}

struct State<M: Manager, R: BaseRuntime> {
    driven: Driven<R::Memory, Held<M::Connection>, Expiry>,
    /// The last error of the manager. It is kept after a success, for check-outs that failed
    /// before.
    error: Option<M::Error>,
    /// Whether the last attempt to connect failed with `error`.
    is_error_last: bool,
    /// The number of attempts that failed since the last success.
    failures: u32,
    /// The time before which no attempt begins, after a failure.
    retry_at: Option<Instant>,
    /// A task was dropped before the pool was closed.
    abandoned: bool,
    /// Tasks that wait until a closed pool has no connection in use.
    closers: <R::Memory as Memory>::PerWaiter<Option<Waker>>,
}

impl<M: Manager, R: BaseRuntime> Drive for Pool<M, R> {
    type Runtime = R;
    type Connection = Held<M::Connection>;
    type Known = Expiry;

    #[inline]
    fn events(&self) -> &R::Events {
        &self.events
    }

    #[inline]
    fn name(&self) -> &str {
        self.name.as_ref()
    }

    #[inline]
    fn last_waited(&self) -> &LastWaited {
        &self.last_waited
    }

    #[inline]
    fn with<T>(&self, f: impl FnOnce(&mut DrivenOf<Self>) -> T) -> T {
        self.state.with(|state| f(&mut state.driven))
    }
}

impl<M: Manager, R: BaseRuntime> Pool<M, R> {
    /// Creates a pool. It opens no connection before its tasks run.
    ///
    /// - `id`: a number for events, unique among the pools of the process.
    /// - `name`: a name for events and logs.
    ///
    /// Events: `PoolCreated`, `PoolReady`.
    pub fn new(manager: M, runtime: R, config: Config, id: PoolId, name: R::Text, events: &R::Events) -> Self {
        let events = events.of_server(name.as_ref());
        let now = runtime.now();
        let mut tap = Tap::of_server(&events, name.as_ref());
        let mut pool = machine::Pool::new(now, id, config.pool(), &mut tap);
        pool.ready(now, &mut tap);
        let state = State {
            driven: Driven::new(pool),
            error: None,
            is_error_last: false,
            failures: 0,
            retry_at: None,
            abandoned: false,
            closers: Store::empty(),
        };
        Self { manager, runtime, config, last_waited: LastWaited::default(), state: R::Lock::new(state), name, events }
    }

    /// The manager.
    pub const fn manager(&self) -> &M {
        &self.manager
    }

    /// The runtime.
    pub const fn runtime(&self) -> &R {
        &self.runtime
    }

    /// The options that the pool was created with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The publisher of the pool's events.
    pub const fn events(&self) -> &R::Events {
        &self.events
    }

    /// Checks out a connection, and waits for one if none is available: at most
    /// [`Options::wait_timeout`], or for ever without such a limit. Waiting check-outs are served
    /// in the order of their arrival.
    ///
    /// After a connection fails its check, another one is taken, and the time limit begins anew.
    /// Cancel-safe: a check-out whose future is dropped leaves the queue, or returns its
    /// connection.
    ///
    /// Cost: with a connection available no allocation, and no reading of the clock unless
    /// [`Options::idle_timeout`] is set, events are observed, or the check-out before this one waited.
    /// Events: `ConnectionCheckOutStarted`, then `ConnectionCheckedOut` or
    /// `ConnectionCheckOutFailed`.
    ///
    /// # Errors
    ///
    /// [`PoolError`].
    pub async fn get(&self) -> Result<Pooled<M, R, &Self>, PoolError<M::Error>> {
        Self::get_from(self).await
    }

    /// [`Pool::get`] through any pointer to the pool, which the [`Pooled`] keeps.
    ///
    /// # Errors
    ///
    /// [`PoolError`].
    pub async fn get_from<H>(mut pool: H) -> Result<Pooled<M, R, H>, PoolError<M::Error>>
    where
        H: Deref<Target = Self> + Clone,
    {
        // The end of the wait, once the check-out waits.
        let mut deadline = None;
        loop {
            pool.check_fork()?;
            let end = |now| pool.end_of_wait(&mut deadline, now);
            let outcome = if pool.last_waited.get() {
                CheckingOut { pool: &*pool, deadline: &mut deadline, waiter: None }.await
            } else {
                match pool.check_out(|| pool.runtime.now(), end, &mut None) {
                    Ok(Begun::Granted(connection, lease)) => Ok((connection, lease)),
                    Ok(Begun::Queued(id)) => {
                        pool.last_waited.set(true);
                        CheckingOut { pool: &*pool, deadline: &mut deadline, waiter: Some(id) }.await
                    }
                    Err(error) => Err(error),
                }
            };
            match outcome {
                Ok((None, lease)) => return Err(pool.lacks_connection(lease)),
                Ok((Some(connection), lease)) => {
                    let mut pooled = Pooled::new(pool, lease, connection);
                    if pooled.is_usable().await {
                        return Ok(pooled);
                    }
                    pool = pooled.pool().clone();
                    deadline = None;
                }
                // `Pool::clear` fails the waiters of the machine. They wait again, in the order in
                // which their tasks are polled.
                Err(CheckOutError::PoolCleared { .. }) if !pool.is_closed() => {}
                Err(error) => {
                    // In the child of a fork the lock may be held by a thread that does not exist.
                    pool.check_fork()?;
                    return Err(pool.explain(error));
                }
            }
        }
    }

    /// Checks out a connection if one is available now. It is not checked ([`Manager::check`]).
    ///
    /// Events: as [`Pool::get`].
    ///
    /// # Errors
    ///
    /// [`PoolError::WaitTimeout`] if no connection is available; none is opened. Otherwise as
    /// [`Pool::get`].
    pub fn try_get_from<H>(pool: H) -> Result<Pooled<M, R, H>, PoolError<M::Error>>
    where
        H: Deref<Target = Self>,
    {
        pool.check_fork()?;
        // A deadline in the past: the check-out does not wait.
        match pool.check_out(|| pool.runtime.now(), |_| Some(Instant::ORIGIN), &mut None) {
            Ok(Begun::Granted(Some(connection), lease)) => {
                let mut pooled = Pooled::new(pool, lease, connection);
                pooled.mark_used();
                Ok(pooled)
            }
            Ok(Begun::Granted(None, lease)) => Err(pool.lacks_connection(lease)),
            Ok(Begun::Queued(id)) => {
                debug_assert!(false, "a check-out without time does not wait");
                pool.cancel(pool.runtime.now(), id);
                Err(PoolError::Busy { waiting: 0 })
            }
            Err(error) => Err(pool.explain(error)),
        }
    }

    /// Returns the end of a check-out's wait that was stored before a clear; `None` at first: then the
    /// machine applies the same limit, unless it is zero, which is no limit there. Stores the end for a
    /// wait that begins now.
    fn end_of_wait(&self, stored: &mut Option<Instant>, now: Instant) -> Option<Instant> {
        let end = stored.or_else(|| Some(now.saturating_add(self.config.options().wait_timeout?)));
        core::mem::replace(stored, end).or_else(|| end.filter(|end| *end <= now))
    }

    fn explain(&self, error: CheckOutError) -> PoolError<M::Error> {
        self.state.with(|state| {
            #[expect(clippy::wildcard_enum_match_arm, reason = "all others mean that the pool is closed")]
            match error {
                // The cause is that of this check-out: other attempts may have ended since.
                CheckOutError::EstablishFailed { cause: Cause::Other, .. } => {
                    state.error.clone().map_or(PoolError::Interrupted, PoolError::Connect)
                }
                CheckOutError::EstablishFailed { cause: Cause::NetworkTimeout, .. } => PoolError::ConnectTimeout,
                CheckOutError::EstablishFailed { cause: Cause::Resources, .. } => {
                    PoolError::Busy { waiting: state.driven.pool.counts().waiting }
                }
                CheckOutError::EstablishFailed { .. } => PoolError::Interrupted,
                CheckOutError::WaitQueueTimeout { .. } => PoolError::WaitTimeout {
                    counts: state.driven.pool.counts(),
                    last: state.error.as_ref().filter(|_| state.is_error_last).cloned(),
                },
                CheckOutError::Busy { waiting } => PoolError::Busy { waiting },
                _ if state.abandoned => PoolError::Abandoned,
                _ => PoolError::Closed,
            }
        })
    }

    #[cold]
    fn lacks_connection(&self, lease: Lease) -> PoolError<M::Error> {
        debug_assert!(false, "a granted connection is in its slot");
        self.give_back(lease, &mut None);
        PoolError::Interrupted
    }

    fn check_fork(&self) -> Result<(), PoolError<M::Error>> {
        if self.runtime.is_forked() { Err(PoolError::Forked) } else { Ok(()) }
    }

    /// Makes all present connections unusable, after a failover of the server for example.
    /// Available ones are closed at once, the others when they are returned. Waiting check-outs
    /// continue to wait, for new connections; their time limits remain.
    ///
    /// Events: `PoolCleared`, `ConnectionClosed`, `ConnectionCheckOutFailed` of waiters, which
    /// start again; `PoolReady`.
    pub fn clear(&self) {
        if self.runtime.is_forked() {
            return;
        }
        let now = self.runtime.now();
        self.step(|state, observer| {
            let cleared = state.pool.clear(now, Clear::All { interrupt_in_use_connections: false }, None, observer);
            debug_assert!(cleared.is_ok(), "the pool has no services");
            state.pool.ready(now, observer);
        });
    }

    /// Returns a lease, and its connection unless it was detached.
    fn give_back(&self, lease: Lease, connection: &mut Option<Held<M::Connection>>) {
        if self.runtime.is_forked() {
            // In the child of a fork the connection belongs to the parent, also its socket.
            core::mem::forget(connection.take());
            return;
        }
        let health = connection.as_ref().map_or(Health::Broken(Cause::Other), |conn| self.health(conn));
        if self.check_in(|| self.runtime.now(), lease, connection, health) {
            self.wake_closers();
        }
    }

    /// Whether a returned connection can be used again.
    #[inline]
    fn health(&self, conn: &Conn<M::Connection>) -> Health {
        let (manager, connection) = (&self.manager, &conn.connection);
        if conn.is_broken || R::contain(|| manager.is_broken(connection)).unwrap_or(true) {
            return Health::Broken(Cause::Other);
        }
        if is_unwinding() && !R::contain(|| manager.survives_panic(connection)).unwrap_or(false) {
            return Health::Broken(Cause::Panicked);
        }
        Health::Healthy
    }

    /// Changes the maximum number of connections. Surplus connections are closed: available ones at
    /// once, the others when they are returned.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: as for [`Options::max_size`]. Nothing changed.
    pub fn resize(&self, max_size: u32) -> Result<(), ConfigError> {
        if self.runtime.is_forked() {
            return Ok(());
        }
        let config = Options { max_size, ..*self.config.options() }.validate()?;
        let now = self.runtime.now();
        self.step(|state, observer| state.pool.reconfigure(now, config.pool(), observer));
        Ok(())
    }

    /// Closes the pool. Waiting check-outs fail, available connections are closed, connections in
    /// use are closed when they are returned, and the tasks end. [`Pool::drained`] waits for this.
    pub fn close(&self) {
        if !self.runtime.is_forked() {
            let now = self.runtime.now();
            self.step(|state, observer| state.pool.close(now, observer));
            self.wake_closers();
        }
    }

    /// Whether [`Pool::close`] was called, or a task of the pool was dropped.
    pub fn is_closed(&self) -> bool {
        self.runtime.is_forked() || self.with(|state| state.pool.state() == PoolState::Closed)
    }

    /// Returns once the pool is closed and no connection is in use. Cancel-safe. In the child of a
    /// fork it returns at once.
    pub async fn drained(&self) {
        let mut closer = Closer { pool: self, place: None };
        poll_fn(|context| closer.poll(context.waker())).await;
    }

    fn wake_closers(&self) {
        // A drained pool remains drained, so no slot is taken again.
        while let Some(slot) = self.state.with(|state| if state.is_drained() { state.closers.pop() } else { None }) {
            let _ = R::contain(|| slot.map(Waker::wake));
        }
    }

    /// The pool at one instant.
    pub fn snapshot(&self) -> PoolSnapshot {
        self.with(|state| {
            let pool = &state.pool;
            PoolSnapshot { state: pool.state(), generation: pool.generation().get(), counts: pool.counts() }
        })
    }

    /// Calls `visit` with the time that each waiting check-out has waited, the oldest first.
    ///
    /// - `visit`: called under the lock; it must not call the pool.
    pub fn visit_waiters(&self, mut visit: impl FnMut(Duration)) {
        if !self.runtime.is_forked() {
            let now = self.runtime.now();
            self.with(|state| state.pool.waiting_since().for_each(|since| visit(now.saturating_since(since))));
        }
    }
}

impl<M: Manager, R: BaseRuntime> State<M, R> {
    fn is_drained(&self) -> bool {
        let pool = &self.driven.pool;
        pool.state() == PoolState::Closed && pool.counts().in_use == 0
    }
}

/// A check-out without an outcome; cancelled on drop. If it is polled after its outcome, it begins
/// again.
struct CheckingOut<'p, M: Manager, R: BaseRuntime> {
    pool: &'p Pool<M, R>,
    /// The end of the wait, once the check-out waits.
    deadline: &'p mut Option<Instant>,
    /// While the check-out waits.
    waiter: Option<WaiterId>,
}

impl<M: Manager, R: BaseRuntime> Future for CheckingOut<'_, M, R> {
    type Output = Claimed<Held<M::Connection>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, deadline, waiter } = &mut *self;
        // In the child of a fork no outcome is ever decided.
        if pool.runtime.is_forked() {
            return Poll::Ready(Err(CheckOutError::Cancelled));
        }
        let end = |now| pool.end_of_wait(deadline, now);
        pool.poll_check_out(waiter, || pool.runtime.now(), end, context.waker())
    }
}

impl<M: Manager, R: BaseRuntime> Drop for CheckingOut<'_, M, R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(id) = self.waiter.filter(|_| !self.pool.runtime.is_forked()) {
            self.pool.cancel(self.pool.runtime.now(), id);
            // The check-out may have been granted the last connection of a closed pool.
            self.pool.wake_closers();
        }
    }
}

/// A task that waits until the pool is drained; its waker is removed on drop.
struct Closer<'p, M: Manager, R: BaseRuntime> {
    pool: &'p Pool<M, R>,
    /// The slot of its waker.
    place: Option<usize>,
}

impl<M: Manager, R: BaseRuntime> Closer<'_, M, R> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        if self.pool.runtime.is_forked() {
            return Poll::Ready(());
        }
        let mut kept = Some(waker.clone());
        let polled = self.pool.state.with(|state| {
            if state.is_drained() {
                return Poll::Ready(());
            }
            if self.place.is_none() {
                self.place = state.closers.slots().iter().position(Option::is_none);
            }
            if self.place.is_none() && state.closers.try_push(None).is_ok() {
                self.place = Some(state.closers.slots().len() - 1);
            }
            if let Some(slot) = self.place.and_then(|place| state.closers.slots_mut().get_mut(place)) {
                register(slot, &mut kept);
            }
            Poll::Pending
        });
        if polled.is_pending() && self.place.is_none() {
            // All slots of a fixed capacity are taken: the task polls until the pool is drained.
            waker.wake_by_ref();
        }
        polled
    }
}

impl<M: Manager, R: BaseRuntime> Drop for Closer<'_, M, R> {
    fn drop(&mut self) {
        if let Some(place) = self.place.filter(|_| !self.pool.runtime.is_forked()) {
            let _left = self.pool.state.with(|state| state.closers.slots_mut().get_mut(place).and_then(Option::take));
        }
    }
}

impl<M: Manager, R: BaseRuntime> fmt::Debug for Pool<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pool");
        shown.field("name", &self.name.as_ref());
        if !self.runtime.is_forked() {
            shown.field("pool", &self.snapshot());
        }
        shown.finish_non_exhaustive()
    }
}
