//! The client for hosted platforms, written once for every runtime that has threads, sockets and a
//! heap.
//!
//! Use it to run the clients on another runtime, or to write a library that works with every
//! adapter. Applications on smol or async-std use `poolhouse-smol` or `poolhouse-async-std`.
//!
#![cfg_attr(not(doctest), doc = include_str!("example.md"))]
//!
//! A [`Client`] keeps a pool and a monitor for each server of its deployment. Each runtime supplies
//! a [`Platform`]: an adapter crate such as `poolhouse-smol` implements it and exports type aliases
//! such as `poolhouse_smol::Client`. [`Net`] implements the `Runtime` trait of the
//! [driver](poolhouse_driver) on top of a `Platform`.
//!
//! A [`Session`](mux::Session) does the same for Cassandra, a [`Pool`] for connections of any other
//! protocol. Every future may be dropped at each await.
//!
//! Read next: the [guides](guide), [`adapter`](guide::adapter) first for another runtime.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
extern crate std;

pub mod api;
pub mod clock;
mod command;
mod connection;
mod convert;
mod cursor;
mod database;
mod dial;
mod error;
mod events;
mod fork;
pub mod guide;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod liveness;
#[cfg(feature = "tracing")]
pub mod log;
mod lookup;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod mux;
mod net;
mod operations;
mod options;
mod platform;
pub mod pool;
mod resolver;
mod session;
#[cfg(feature = "tracing")]
pub mod spans;
#[cfg(not(feature = "tracing"))]
#[path = "spans/off.rs"]
mod spans;
mod srv;
mod tasks;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub mod tls;
mod transaction;

pub use connection::Connection;
pub use cursor::{Cursor, CursorOptions, SessionCursor, TimeoutMode};
pub use database::Database;
pub use error::{CommandError, Error, OptionError, SetupError, WriteError};
pub use events::Events;
use events::System;
pub use fork::Socket;
pub use net::{Net, Stream};
pub use options::{ClientOptions, ClientWarning, DriverInfo, OwnedReadPreference, WriteConcern};
pub use platform::Platform;
pub use pool::Pool;
#[cfg(feature = "auth")]
pub use poolhouse_auth;
pub use poolhouse_driver::CommandOptions;
pub use resolver::DnsResolver;
pub use session::{ClientSession, ClientSessionOptions};
pub use transaction::{TransactionAttempts, TransactionOptions};
pub use {poolhouse_core, poolhouse_cql, poolhouse_driver, poolhouse_uri, poolhouse_wire};

#[cfg(feature = "tls")]
use crate::tls::TlsConfig;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
#[cfg(feature = "tracing")]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use event_listener::Event;
use options::Metadata;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::storage::Full;
use poolhouse_core::topology::OwnedTopologyDescription;
use poolhouse_core::{Instant, ServerType};
use poolhouse_driver::{
    BaseRuntime as _, ClientCore, CoreConfig, EventKinds, EventRef, ForkReset, OperationError, PoolSnapshot,
    SUBSCRIPTION_EVENTS, Subscribers, Subscription, TaskGuard,
};
use poolhouse_uri::dns::SrvPoll;
use poolhouse_uri::{ConnectionString, UriWarning};
use poolhouse_wire::hello::Environment;
use session::Sessions;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tasks::Tasks;

/// A MongoDB client: a handle that is cheap to clone and share. Dropping the last clone closes the
/// client and stops its background tasks.
///
/// Each adapter crate exports an alias for its platform, such as `poolhouse_smol::Client`:
///
/// ```ignore
/// let client = Client::new("mongodb://localhost:27017/shop").await?;
/// client.database("shop").run_command(doc! { "insert": "orders", "documents": [{ "what": "tea" }] }).await?;
///
/// // Several commands on one connection; dropping it returns it to the pool.
/// let mut connection = client.check_out().await?;
/// connection.run_command("shop", doc! { "count": "orders" }).await?;
/// ```
///
/// A client must not be used on both sides of a `fork`: see the guide
/// [`forking`](crate::guide::forking).
pub struct Client<P: Platform> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: Platform> {
    core: Arc<ClientCore<Net<P>>>,
    options: ClientOptions,
    warnings: Vec<ClientWarning>,
    sessions: Sessions,
    metadata: Mutex<Metadata>,
    tasks: Arc<Tasks<P>>,
    /// Whether the log has the warning about a cursor that `run_command` left open.
    #[cfg(feature = "tracing")]
    has_warned_of_cursor: AtomicBool,
}

/// The number of the next client that this process creates.
static NEXT_CLIENT: AtomicU32 = AtomicU32::new(0);

impl<P: Platform + Default> Client<P> {
    /// Creates a client for the deployment of a connection string. Starts its background tasks and
    /// returns without waiting for a server; the first operation waits for one.
    ///
    /// For a `mongodb+srv://` string, the hosts are looked up before the client is created, by a
    /// [`DnsResolver`] that queries the system's name servers. For any other string, the only wait
    /// is for file reads, as in [`Client::with_options`].
    ///
    /// An option with a value that is not allowed (`maxPoolSize=many`) is refused, and so is an
    /// unknown option that resembles a known one (`tsl=true`). [`Client::with_options`] with
    /// [`ClientOptions::parse`] ignores them. Other unknown options, and options that have no effect,
    /// are among the [`Client::warnings`].
    ///
    /// # Errors
    ///
    /// [`SetupError::Mistake`]: an option is refused. The errors of [`ClientOptions::resolve`]:
    /// [`SetupError::Uri`], [`SetupError::Unsupported`], [`SetupError::Credential`],
    /// [`SetupError::Seedlist`]; and the errors of [`Client::with_options`].
    pub async fn new(uri: &str) -> Result<Self, Error> {
        Self::new_with(uri, |options| options).await
    }

    /// Creates a client as [`Client::new`] does, with further options: `Client::new_with(uri,
    /// |options| options.timeout(limit)).await`.
    ///
    /// - `change`: called with the options of the connection string, after the lookup, unless one is
    ///   refused.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub async fn new_with(uri: &str, change: impl FnOnce(ClientOptions) -> ClientOptions) -> Result<Self, Error> {
        fork::check::<P>()?;
        let platform = P::default();
        // Checked before the lookup, because its failure would hide a mistake, and after it, because a
        // TXT record has options too.
        refuse_mistakes(ConnectionString::parse(uri)?.warnings())?;
        let mut options = ClientOptions::resolve(uri, Arc::new(DnsResolver::new(platform.clone()))).await?;
        refuse_mistakes(&options.warnings)?;
        // This resolver returns no host addresses, so the client keeps it only for repeated SRV
        // lookups.
        options.resolver = options.resolver.filter(|_| options.srv.is_some());
        Self::with_platform(platform, change(options), Subscribers::default())
    }

    /// Creates a client with these options. Its background tasks run on the platform's executor;
    /// the call does not wait for any server.
    ///
    /// It reads files on the calling thread: it checks for `/.dockerenv` to detect a container.
    /// With TLS, it also reads the files named in the options, or the platform's certificate store,
    /// which may take some milliseconds.
    ///
    /// # Errors
    ///
    /// As [`ClientOptions::validate`]: [`SetupError::Config`], [`SetupError::Option`],
    /// [`SetupError::Topology`], [`SetupError::Metadata`], [`SetupError::Credential`]; with the
    /// feature `tls`, `SetupError::Tls` for options that contradict each other and for a file that
    /// cannot be read or used. [`SetupError::OutOfMemory`]. [`SetupError::Forked`] in the child of
    /// a fork: see the guide [`forking`](crate::guide::forking). After an error, no task was
    /// started.
    pub fn with_options(options: ClientOptions) -> Result<Self, Error> {
        Self::with_platform(P::default(), options, Subscribers::default())
    }

    /// Creates a client as [`Client::with_options`] does, with a subscription that receives every
    /// event, including those emitted while the client is created.
    ///
    /// # Errors
    ///
    /// As [`Client::with_options`].
    pub fn new_subscribed(options: ClientOptions) -> Result<(Self, Subscription), Error> {
        let events = Subscribers::default();
        let subscription = events.subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, |_| true);
        Ok((Self::with_platform(P::default(), options, events)?, subscription))
    }
}

impl<P: Platform> Client<P> {
    /// Creates a client on this platform. `events` receives every event, including those emitted
    /// while the client is created.
    ///
    /// # Errors
    ///
    /// As [`Client::with_options`].
    pub fn with_platform(platform: P, options: ClientOptions, events: Subscribers) -> Result<Self, Error> {
        fork::check::<P>()?;
        let options = options.with_zero_as_no_limit();
        options.validate()?;
        let login = options.login()?;
        let mut environment = Environment::detect(|name| std::env::var(name).ok());
        environment.is_docker = Path::new("/.dockerenv").exists();
        let metadata = options.metadata::<P>(&[], &environment)?;
        let mut monitor = options.monitor;
        monitor.is_faas |= environment.is_faas();
        monitor.server_api |= options.server_api.is_some();
        let seeds = options.seeds();
        let topology = options.topology_options(&seeds).validate()?;
        let config = CoreConfig {
            pool: options.pool.validate()?,
            monitor: monitor.validate()?,
            connect_timeout: options.monitor.connect_timeout,
            command_timeout: options.handshake_command_timeout(),
            server_selection_timeout: options.server_selection_timeout,
            compressors: options.compressors,
            zlib_compression_level: options.zlib_compression_level,
            drain_timeout: options.drain_timeout,
            metadata,
            server_api: options.server_api,
            login,
            client: NEXT_CLIENT.fetch_add(1, Ordering::Relaxed),
        };
        let runtime = Net::new(platform);
        #[cfg(feature = "tls")]
        let runtime = runtime.with_tls(options.tls.as_ref().map(TlsConfig::build).transpose()?);
        let events = Events::new(
            System::Mongodb,
            events,
            #[cfg(feature = "tracing")]
            options.log,
        );
        let of_uri = options.warnings.iter().cloned().map(ClientWarning::Uri);
        let warnings = of_uri.chain(options.without_effect.iter().cloned());
        #[cfg(feature = "tls")]
        let of_tls = runtime.tls().map_or(&[][..], TlsConfig::warnings).iter().cloned();
        #[cfg(feature = "tls")]
        let warnings = warnings.chain(of_tls.map(ClientWarning::Tls));
        let warnings: Vec<_> = warnings.collect();
        #[cfg(feature = "tracing")]
        for warning in &warnings {
            events.logs().warn_of_options(warning);
        }
        let runtime = runtime.with_resolver(options.resolver.clone());
        let core = ClientCore::new(runtime, config, topology, events).map_err(|Full| SetupError::OutOfMemory)?;
        let core = Arc::new(core);
        fork::begin::<P>()?;
        let platform = core.runtime().platform();
        let tasks = Arc::new(Tasks::new(core.events().subscribers().clone()));
        let clock = TaskGuard::new(Arc::clone(&core), None).run(|core| async move { core.keep_clock().await });
        tasks.spawn(platform, clock);
        let closing = Arc::new(Event::new());
        let (starting, closes) = (Arc::downgrade(&tasks), NotifyOnDrop(Arc::clone(&closing)));
        let starter = TaskGuard::new(Arc::clone(&core), None).run(move |core| {
            let _lives_on = &closes;
            start_servers(core, Weak::clone(&starting))
        });
        tasks.spawn(platform, starter);
        if let (Some(srv), Some(resolver)) = (options.srv.clone(), options.resolver.clone()) {
            let interval = options.monitor.heartbeat_frequency;
            let polls = TaskGuard::new(Arc::clone(&core), None).run(move |core| {
                let poll = SrvPoll::new(core.runtime().platform().now(), srv.question.clone(), srv.ttl, interval);
                srv::run(core, Arc::clone(&closing), Arc::clone(&resolver), poll)
            });
            tasks.spawn(platform, polls);
        }
        let (sessions, metadata) = (Sessions::default(), Mutex::new(Metadata::new(environment)));
        let inner = Inner {
            core,
            options,
            warnings,
            sessions,
            metadata,
            tasks,
            #[cfg(feature = "tracing")]
            has_warned_of_cursor: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the options that the client was created with. They include its credential and the
    /// password of its TLS key, so a client created from a copy can authenticate in the same way;
    /// their `Debug` output contains no secret. The pool options may have changed since: see
    /// [`Client::pool_options`].
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Returns a copy of the topology description: the topology type and the last known description
    /// of each server. Later changes do not affect the copy.
    #[must_use]
    pub fn topology(&self) -> OwnedTopologyDescription {
        self.inner.core.topology()
    }

    /// Returns the status of each server and its pool. The server descriptions are of the same
    /// instant; the pools are read one after the other.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let mut servers = Vec::new();
        self.inner.core.for_each_server(|server| {
            servers.push(ServerStatus {
                address: server.address.to_owned(),
                server_type: server.server_type,
                round_trip_average: server.round_trip_average,
                round_trip_minimum: server.round_trip_minimum,
                pool: server.pool,
            });
        });
        servers
    }

    /// Subscribes to all events from now on, except those of commands and of selections
    /// ([`EventKinds::ALL`]). For a reader that lags behind, the subscription keeps
    /// up to 1,024 events ([`SUBSCRIPTION_EVENTS`]), with up to 4 MiB of server descriptions
    /// ([`SUBSCRIPTION_BYTES`](poolhouse_driver::SUBSCRIPTION_BYTES)).
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_to(EventKinds::ALL)
    }

    /// Subscribes to the events of these kinds. Without [`EventKinds::CHECK_OUTS`] and
    /// [`EventKinds::SELECTIONS`], a check-out that does not wait emits no event, and costs some ten
    /// instructions more than without a subscription.
    #[must_use]
    pub fn subscribe_to(&self, kinds: EventKinds) -> Subscription {
        self.inner.core.events().subscribers().subscribe(kinds, SUBSCRIPTION_EVENTS, |_| true)
    }

    /// Subscribes to the events for which `filter` returns true. The filter is called under a lock:
    /// it must only inspect the event, and must not call the client or session. If it panics, the
    /// subscription ends before that event.
    #[must_use]
    pub fn subscribe_where(&self, filter: impl Fn(&EventRef<'_>) -> bool + Send + 'static) -> Subscription {
        self.inner.core.events().subscribers().subscribe(EventKinds::ALL, SUBSCRIPTION_EVENTS, filter)
    }

    /// Returns the warnings about the options: the ignored and deprecated parts of the connection
    /// string, its options that have no effect, and the risks of the TLS options. With the feature
    /// `tracing`, they were logged at *warn* when the client was created.
    #[must_use]
    pub fn warnings(&self) -> &[ClientWarning] {
        &self.inner.warnings
    }

    /// Waits until a server that accepts writes is known and its pool has `minPoolSize` connections
    /// established (at least 1), so the first operations need not wait for them. The caller decides
    /// whether a failure is fatal.
    ///
    /// - `timeout`: limits the whole call; `None` is no limit. The wait for the server is also
    ///   limited by `serverSelectionTimeoutMS`.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server was found, too few connections were established in time, or
    /// establishing a connection to the server failed during the wait: see [`ClientCore::warm_up`].
    pub async fn warm_up(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let connections = self.pool_options().min_pool_size.max(1);
        let deadline = self.deadline(timeout.into());
        Ok(self.inner.core.warm_up(&self.selection_request(None), Some(connections), deadline).await?)
    }

    /// Returns the pool options that are in force.
    #[must_use]
    pub fn pool_options(&self) -> PoolOptions {
        *self.inner.core.pool_config().options()
    }

    /// Changes the options of the pools of all servers, including servers that are found later.
    /// `load_balanced` and `background` keep their values.
    /// [`Pool::reconfigure`](poolhouse_core::pool::Pool::reconfigure) documents which changes take
    /// effect at once and which later.
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`]: an option is out of its range; nothing has changed.
    /// [`Error::Operation`] in the child of a fork.
    pub fn set_pool_options(&self, options: PoolOptions) -> Result<(), Error> {
        if self.is_forked() {
            return Err(Error::from(OperationError::Forked));
        }
        self.inner.core.reconfigure_pools(options.validate()?);
        Ok(())
    }

    /// Returns the current time on the clock of events and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.core.runtime().platform().now()
    }

    /// Returns the client core of the driver, for functions that this crate does not wrap.
    #[must_use]
    pub fn core(&self) -> &ClientCore<Net<P>> {
        &self.inner.core
    }

    /// Closes the client. Waits at most a second until the servers have closed the cursors and aborted
    /// the transactions that were dropped before; what was sent by then is awaited, at most 10 s in
    /// all. If a connection is available at once, the unused sessions are ended on a server, which
    /// takes at most a second, too. Then pending operations fail at once, idle connections are closed,
    /// and connections in use are closed when they are returned. Returns when all background tasks
    /// have ended, and ends the subscriptions. If the returned future is dropped earlier, the
    /// subscriptions end at once and the tasks end in the background. In the child of a fork, it
    /// returns at once and closes nothing.
    pub async fn close(&self) {
        if self.is_forked() {
            return;
        }
        let _subscribers = CloseOnDrop(self.inner.core.events().subscribers());
        let closing = CoreCloseOnDrop(&self.inner.core);
        let until = self.now().saturating_add(session::END_TIMEOUT);
        let ends = self.inner.tasks.ends_ended();
        let _: Option<()> = resolver::before(self.inner.core.runtime().platform(), until, ends).await;
        self.end_sessions().await;
        drop(closing);
        self.inner.tasks.all_ended().await;
        self.inner.core.runtime().discard_lookups();
    }

    /// Abandons all connections of a client in the child of a fork, which empties its pools. In a
    /// process that is not such a child it does nothing and returns [`ForkReset::NotForked`]. The
    /// client stays unusable in the child: see the guide [`forking`](crate::guide::forking).
    ///
    /// The first operation in the child, which fails, and the first call there that reads the
    /// client's state, perform this reset implicitly.
    ///
    /// Cost: O(servers + connections) the first time; it makes no system call and waits for no
    /// lock. Events: none.
    ///
    /// Source: CMAP, "Forking".
    pub fn reset_after_fork(&self) -> ForkReset {
        self.inner.core.reset_after_fork()
    }

    fn is_forked(&self) -> bool {
        self.inner.core.runtime().is_forked()
    }
}

impl<P: Platform> Clone for Client<P> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<P: Platform> fmt::Debug for Client<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("servers", &self.servers()).finish_non_exhaustive()
    }
}

/// Ends the subscriptions when it is dropped.
struct CloseOnDrop<'a>(&'a Subscribers);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Closes the client core when it is dropped.
struct CoreCloseOnDrop<'a, P: Platform>(&'a ClientCore<Net<P>>);

impl<P: Platform> Drop for CoreCloseOnDrop<'_, P> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        if self.core.runtime().is_forked() {
            // Both are leaked: they own task handles and wakers of tasks, which belong to threads
            // that do not exist in the child.
            core::mem::forget((Arc::clone(&self.core), Arc::clone(&self.tasks)));
            return;
        }
        self.core.close();
        self.core.events().subscribers().close();
    }
}

/// Notifies all listeners when it is dropped.
struct NotifyOnDrop(Arc<Event>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify(usize::MAX);
    }
}

/// Starts the tasks of each new server, and further workers when the client core requests them,
/// until the client is closed or dropped.
async fn start_servers<P: Platform>(core: Arc<ClientCore<Net<P>>>, tasks: Weak<Tasks<P>>) {
    while let Some(server) = core.next_server().await {
        let Some(tasks) = tasks.upgrade() else { return };
        for task in core.server_tasks(&server) {
            let server = Arc::clone(&server);
            let work = TaskGuard::new(Arc::clone(&core), Some(server.id())).run(move |core| {
                let server = Arc::clone(&server);
                async move { core.work(&server, task).await }
            });
            tasks.spawn(core.runtime().platform(), work);
        }
    }
}

/// Refuses what [`UriWarning::is_mistake`] finds.
fn refuse_mistakes(warnings: &[UriWarning]) -> Result<(), Error> {
    match warnings.iter().find(|warning| warning.is_mistake()) {
        Some(mistake) => Err(SetupError::Mistake(Box::new(mistake.clone())).into()),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status of a server at one instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's address.
    pub address: String,
    /// The server's type as of its last check.
    pub server_type: ServerType,
    /// The moving average of the server's round-trip times; `None` while the server is unknown.
    pub round_trip_average: Option<Duration>,
    /// The minimum of its last ten round-trip times; `None` while there are fewer than two.
    pub round_trip_minimum: Option<Duration>,
    /// A snapshot of the server's pool.
    pub pool: PoolSnapshot,
}
