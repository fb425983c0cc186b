//! A pool of any connections: Redis, PostgreSQL, SMTP, HTTP/1.1 or your own protocol.
//!
//! Implement [`Manager`] for a type that opens connections. [`Pool::builder`] creates the pool; its
//! tasks run on the platform's executor. See the guide [`pool`](crate::guide::pool).
//!
//! A MongoDB client uses the same pool for each server: [`poolhouse_driver::pool`] describes the
//! steps of a check-out.

use super::events::{Events, System};
use super::fork;
use super::net::Net;
use super::tasks::Tasks;
use super::{Error, NEXT_CLIENT, Platform};
#[cfg(feature = "tracing")]
use crate::log::LogOptions;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;
use core::time::Duration;
use poolhouse_core::pool::{PoolCounts, PoolId, PoolState, Reuse};
use poolhouse_core::{ConfigError, Reason};
use poolhouse_driver::pool::{Options, Pool as Core};
use poolhouse_driver::{BaseRuntime as _, EventKinds, EventRef, SUBSCRIPTION_EVENTS, Subscribers, Subscription};

/// Opens and checks connections. The methods may be written as `async fn`.
///
/// If `connect` panics, the check-out that waits for it fails. If another method panics, the
/// connection is closed; after a check, the check-out takes another one.
pub trait Manager: Send + Sync + 'static {
    /// A connection. Dropping it closes it, without blocking.
    type Connection: Send + 'static;
    /// The reason why a connection cannot be opened or used.
    type Error: core::error::Error + Send + Sync + 'static;

    /// Opens a connection that is ready for use: connected, and authenticated where the protocol
    /// requires it. The pool bounds the time ([`Builder::connect_timeout`]), and drops the future
    /// at the limit.
    ///
    /// # Errors
    ///
    /// The check-out that the connection was opened for fails with [`PoolError::Connect`].
    ///
    /// [`PoolError::Connect`]: poolhouse_driver::pool::PoolError::Connect
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Checks a connection that was used before, for example by a ping, before it is used again. By
    /// default every connection passes. The pool limits the time as for `connect`.
    ///
    /// # Errors
    ///
    /// The connection is closed, and the check-out takes another one.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = connection;
        core::future::ready(Ok(()))
    }

    /// Whether a returned connection must be closed: its peer has closed it, or a reply is
    /// outstanding. It must not block. False by default.
    fn is_broken(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Whether a connection can be used again although its owner panicked: the connection itself records
    /// an operation that was not completed, and `is_broken`, which is asked first, reports it. It must
    /// not block. False by default: then the connection is closed.
    fn survives_panic(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }
}

/// The maximum number of tasks that open connections.
const WORKERS_MAX: u32 = 128;

/// The adapter from a [`Manager`] to the trait of the driver.
#[doc(hidden)]
pub struct Hosted<M>(M);

impl<M: Manager> poolhouse_driver::pool::Manager for Hosted<M> {
    type Connection = M::Connection;
    type Error = Arc<M::Error>;

    async fn connect(&self) -> Result<M::Connection, Arc<M::Error>> {
        self.0.connect().await.map_err(Arc::new)
    }

    async fn check(&self, connection: &mut M::Connection) -> Result<(), Arc<M::Error>> {
        self.0.check(connection).await.map_err(Arc::new)
    }

    fn reason(error: &Arc<M::Error>) -> Reason {
        Reason::new(Arc::clone(error))
    }

    fn is_broken(&self, connection: &M::Connection) -> bool {
        self.0.is_broken(connection)
    }

    fn survives_panic(&self, connection: &M::Connection) -> bool {
        self.0.survives_panic(connection)
    }
}

impl<M> fmt::Debug for Hosted<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hosted(..)")
    }
}

/// Why a check-out failed. The manager's error `E` is in an `Arc`.
pub type PoolError<E> = poolhouse_driver::pool::PoolError<Arc<E>>;

/// A connection that is checked out: it dereferences to the manager's connection. Dropping it
/// returns the connection. It keeps the pool's memory allocated, but does not keep the pool open.
pub type Pooled<M, P> = poolhouse_driver::pool::Pooled<Hosted<M>, Net<P>, Arc<Core<Hosted<M>, Net<P>>>>;

/// A pool of the connections of a [`Manager`]: a handle that is cheap to clone. Dropping the last
/// clone closes the pool.
///
/// In the child of a fork, a pool of the parent process is inert: see the guide
/// [`forking`](crate::guide::forking).
pub struct Pool<M: Manager, P: Platform> {
    inner: Arc<Inner<M, P>>,
}

struct Inner<M: Manager, P: Platform> {
    core: Arc<Core<Hosted<M>, Net<P>>>,
    /// Shared so that the child of a fork can leak it.
    tasks: Arc<Tasks<P>>,
}

impl<M: Manager, P: Platform + Default> Pool<M, P> {
    /// Creates a builder with the default options on the default platform.
    pub fn builder(manager: M) -> Builder<M, P> {
        Self::builder_on(P::default(), manager)
    }
}

impl<M: Manager, P: Platform> Pool<M, P> {
    /// Creates a builder with the default options on this platform.
    pub fn builder_on(platform: P, manager: M) -> Builder<M, P> {
        Builder {
            manager,
            platform,
            options: Options::DEFAULT,
            name: String::from("pool"),
            #[cfg(feature = "tracing")]
            log: LogOptions::from_environment(|name| std::env::var(name).ok()),
            subscribers: Subscribers::default(),
        }
    }

    /// Checks out a connection. If none is available, one is opened, up to [`Builder::max_size`],
    /// or the call waits. Waiting check-outs are served in the order of their arrival.
    ///
    /// The future may be dropped at any await: no connection is lost.
    ///
    /// # Errors
    ///
    /// [`PoolError`](poolhouse_driver::pool::PoolError): a connection could not be opened, the time
    /// limit has passed, or the pool is closed.
    pub fn get(&self) -> impl Future<Output = Result<Pooled<M, P>, PoolError<M::Error>>> {
        Core::get_from(Arc::clone(&self.inner.core))
    }

    /// Checks out a connection that is available now, without a check ([`Manager::check`]).
    ///
    /// # Errors
    ///
    /// `PoolError::WaitTimeout` if none is available.
    pub fn try_get(&self) -> Result<Pooled<M, P>, PoolError<M::Error>> {
        Core::try_get_from(Arc::clone(&self.inner.core))
    }

    /// Returns the manager.
    #[must_use]
    pub fn manager(&self) -> &M {
        &self.inner.core.manager().0
    }

    /// Makes all present connections unusable, for example after a failover of the server.
    /// Available ones are closed at once, the others when they are returned. Waiting check-outs
    /// continue to wait, for new connections. An attempt to connect that is in progress counts
    /// against the maximum until it ends, at most [`Builder::connect_timeout`].
    pub fn clear(&self) {
        self.inner.core.clear();
    }

    /// Changes the maximum number of connections. Surplus connections are closed: available ones at
    /// once, the others when they are returned.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: zero, or less than the minimum. Nothing has changed.
    pub fn resize(&self, max_size: u32) -> Result<(), ConfigError> {
        self.inner.core.resize(max_size)
    }

    /// Closes the pool. Waiting check-outs fail at once, and available connections are closed.
    /// Returns when all connections in use have been returned and the tasks have ended. If the
    /// future is dropped earlier, this happens in the background.
    pub async fn close(&self) {
        self.inner.core.close();
        self.inner.core.drained().await;
        if !self.is_forked() {
            self.inner.tasks.all_ended().await;
        }
    }

    /// Whether the pool is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.core.is_closed()
    }

    /// Returns the state of the pool at one instant; an empty one in the child of a fork.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        if self.is_forked() {
            return PoolStatus { state: PoolState::Closed, counts: PoolCounts::default(), waiting: Vec::new() };
        }
        // Allocated before the lock is taken. If more waiters arrive meanwhile, the surplus is left
        // out.
        let snapshot = self.inner.core.snapshot();
        let mut waiting = Vec::with_capacity(snapshot.counts.waiting as usize);
        self.inner.core.visit_waiters(|time| {
            if waiting.len() < waiting.capacity() {
                waiting.push(time);
            }
        });
        PoolStatus { state: snapshot.state, counts: snapshot.counts, waiting }
    }

    /// Subscribes to all events from now on. The subscription keeps up to 1,024 events for a reader
    /// that lags behind.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_to(EventKinds::ALL)
    }

    /// Subscribes to the events of these kinds. Without [`EventKinds::CHECK_OUTS`], a check-out emits
    /// no event, and costs some ten instructions more than without a subscription.
    #[must_use]
    pub fn subscribe_to(&self, kinds: EventKinds) -> Subscription {
        self.inner.core.events().subscribers().subscribe(kinds, SUBSCRIPTION_EVENTS, |_| true)
    }

    /// Subscribes to the events for which `filter` returns true. The filter is called under a lock:
    /// it must only inspect the event, and must not call the pool. If it panics, the subscription
    /// ends before that event.
    #[must_use]
    pub fn subscribe_where(&self, filter: impl Fn(&EventRef<'_>) -> bool + Send + 'static) -> Subscription {
        self.inner.core.events().subscribers().subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, filter)
    }

    fn is_forked(&self) -> bool {
        self.inner.core.runtime().is_forked()
    }
}

impl<M: Manager, P: Platform> Clone for Pool<M, P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Manager, P: Platform> fmt::Debug for Pool<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.core.fmt(f)
    }
}

impl<M: Manager, P: Platform> Drop for Inner<M, P> {
    fn drop(&mut self) {
        if self.core.runtime().is_forked() {
            // Sockets, wakers and tasks belong to the parent process.
            core::mem::forget((Arc::clone(&self.core), Arc::clone(&self.tasks)));
            return;
        }
        self.core.close();
    }
}

/// The state of a pool at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Whether the pool is open ([`PoolState::Ready`]) or closed.
    pub state: PoolState,
    /// The connections and waiters.
    pub counts: PoolCounts,
    /// How long each waiting check-out has waited, the longest first.
    pub waiting: Vec<Duration>,
}

/// The options of a pool. The setters check nothing; [`Builder::build`] does. For each time limit,
/// `None` means no limit.
#[must_use = "`build` creates the pool"]
pub struct Builder<M, P> {
    manager: M,
    platform: P,
    options: Options,
    name: String,
    #[cfg(feature = "tracing")]
    log: LogOptions,
    subscribers: Subscribers,
}

impl<M, P> Builder<M, P> {
    /// Sets all options at once.
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The pool's name in logs and metrics. Default `pool`.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The maximum number of connections; at least 1. Default 10.
    pub fn max_size(mut self, max_size: u32) -> Self {
        self.options.max_size = max_size;
        self
    }

    /// The number of connections that are kept open. Default 0.
    pub fn min_size(mut self, min_size: u32) -> Self {
        self.options.min_size = min_size;
        self
    }

    /// The maximum number of connections that are opened at the same time; at least 1, and in
    /// effect at most 128. Default 2.
    pub fn max_connecting(mut self, max_connecting: u32) -> Self {
        self.options.max_connecting = max_connecting;
        self
    }

    /// The maximum time of a check-out. Default 30 s.
    pub fn wait_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.wait_timeout = limit.into();
        self
    }

    /// The maximum time in which a connection is opened, and that of a check. Default 10 s.
    pub fn connect_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.connect_timeout = limit.into();
        self
    }

    /// The idle time after which an available connection is closed. Default `None`.
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.idle_timeout = limit.into();
        self
    }

    /// The age at which a connection is closed, with a random deviation of up to a tenth. Default
    /// 30 min.
    pub fn max_lifetime(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.max_lifetime = limit.into();
        self
    }

    /// The order in which available connections are used. Default [`Reuse::Newest`].
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.options.reuse = reuse;
        self
    }

    /// Whether [`Manager::check`] is called for a connection that was used before. Default true.
    pub fn check_before_reuse(mut self, is_checked: bool) -> Self {
        self.options.check_before_reuse = is_checked;
        self
    }

    /// The maximum pause after failed attempts to connect. A pause ends when another connection is
    /// opened. Default 5 s.
    pub fn max_backoff(mut self, limit: Duration) -> Self {
        self.options.max_backoff = limit;
        self
    }

    /// Sets what is logged.
    #[cfg(feature = "tracing")]
    pub fn log(self, log: LogOptions) -> Self {
        Self { log, ..self }
    }

    /// Subscribes to all events, including those emitted while the pool is created.
    pub fn subscribe(&self) -> Subscription {
        self.subscribers.subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, |_| true)
    }
}

impl<M: Manager, P: Platform> Builder<M, P> {
    /// Creates the pool and starts its tasks. Returns without waiting for a connection.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`]: an option is out of its range (`SetupError::Config`), or this is the child
    /// of a fork (`SetupError::Forked`). No task was started.
    pub fn build(self) -> Result<Pool<M, P>, Error> {
        fork::check::<P>()?;
        let config = self.options.validate()?;
        let events = Events::new(
            System::Generic,
            self.subscribers.clone(),
            #[cfg(feature = "tracing")]
            self.log,
        );
        fork::begin::<P>()?;
        let id = PoolId::new(u64::from(NEXT_CLIENT.fetch_add(1, Ordering::Relaxed)) << 32);
        let runtime = Net::new(self.platform.clone());
        let core = Arc::new(Core::new(Hosted(self.manager), runtime, config, id, self.name, &events));
        let tasks = Arc::new(Tasks::new(self.subscribers));
        // `resize` may raise `max_size` later, so it does not limit the number of workers.
        for _ in 0..config.options().max_connecting.min(WORKERS_MAX) {
            tasks.spawn(&self.platform, Core::run_worker(Arc::clone(&core)));
        }
        tasks.spawn(&self.platform, Core::run_clock(Arc::clone(&core)));
        Ok(Pool { inner: Arc::new(Inner { core, tasks }) })
    }
}

impl<M, P> fmt::Debug for Builder<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
