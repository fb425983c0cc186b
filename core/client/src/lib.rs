//! The hosted client, written once for every runtime that has threads, sockets and a heap.
//!
//! A [`Client`] keeps a pool and a monitor for each server of its deployment. What a runtime supplies is its [`Platform`]: an
//! adapter such as `poolhouse-smol` implements it and names the client after itself. [`Net`] makes of it the
//! `Runtime` of the [driver](poolhouse_driver).
//!
//! Dropping any future of a client is safe at any point.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
extern crate std;

pub mod api;
pub mod clock;
mod command;
mod connection;
mod database;
mod dial;
mod error;
mod events;
mod fork;
pub mod guide;
#[cfg(feature = "tracing")]
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod mux;
mod net;
mod options;
mod platform;
#[cfg(test)]
#[allow(dead_code, reason = "shared with the tests of poolhouse-core")]
#[path = "../../src/replies.rs"]
mod replies;
mod resolver;
mod srv;
mod tasks;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub mod tls;

pub use command::CommandOptions;
pub use connection::Connection;
pub use database::Database;
pub use error::{CommandError, Error, OptionError, SetupError};
pub use events::Events;
pub use fork::Socket;
pub use net::{Net, Stream};
pub use options::{ClientOptions, DriverInfo, OwnedReadPreference, WriteConcern};
pub use platform::Platform;
#[cfg(feature = "auth")]
pub use poolhouse_auth;
pub use resolver::DnsResolver;
pub use {poolhouse_core, poolhouse_cql, poolhouse_driver, poolhouse_uri, poolhouse_wire};

#[cfg(feature = "tls")]
use crate::tls::{TlsConfig, TlsWarning};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use event_listener::Event;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::storage::Full;
use poolhouse_core::topology::OwnedTopologyDescription;
use poolhouse_core::{Instant, ServerType};
use poolhouse_driver::{
    EventRef, ForkReset, Hub, HubConfig, OperationError, PoolSnapshot, Runtime as _, SUBSCRIPTION_EVENTS, Subscribers,
    Subscription,
};
use poolhouse_uri::dns::SrvPoll;
use poolhouse_wire::hello::Environment;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tasks::Tasks;

/// A MongoDB client: a handle that is cheap to clone and share. Its last clone's drop ends its background tasks.
///
/// An adapter names it after its platform, as `poolhouse_smol::Client`:
///
/// ```ignore
/// let client = Client::new("mongodb://localhost:27017/shop").await?;
/// client.database("shop").run_command(doc! { "insert": "orders", "documents": [{ "what": "tea" }] }).await?;
///
/// // Several commands on one connection; a drop returns it.
/// let mut connection = client.check_out().await?;
/// connection.run_command("shop", doc! { "find": "orders" }).await?;
/// ```
///
/// Not for use on both sides of a `fork`: see the guide [`forking`](crate::guide::forking).
pub struct Client<P: Platform> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: Platform> {
    hub: Arc<Hub<Net<P>>>,
    options: ClientOptions,
    tasks: Arc<Tasks<P>>,
}

/// The number of the next client of the process.
static NEXT_CLIENT: AtomicU32 = AtomicU32::new(0);

impl<P: Platform + Default> Client<P> {
    /// A client for the deployment of a connection string. Starts its background tasks and returns; the first operation
    /// waits for a server.
    ///
    /// The hosts of a `mongodb+srv://` string are looked up first, by a [`DnsResolver`] that asks the system's name servers. With
    /// anything else only files are waited for, as by [`Client::with_options`].
    ///
    /// # Errors
    ///
    /// Those of [`ClientOptions::resolve`]: [`SetupError::Uri`], [`SetupError::Unsupported`], [`SetupError::Credential`], [`SetupError::Seedlist`]; and those of
    /// [`Client::with_options`].
    pub async fn new(uri: &str) -> Result<Self, Error> {
        Self::new_with(uri, |options| options).await
    }

    /// [`Client::new`] with further options: `Client::new_with(uri, |options| options.timeout(limit)).await`.
    ///
    /// - `change`: called with the options of the connection string, after the lookup.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub async fn new_with(uri: &str, change: impl FnOnce(ClientOptions) -> ClientOptions) -> Result<Self, Error> {
        fork::check::<P>()?;
        let platform = P::default();
        let mut options = ClientOptions::resolve(uri, Arc::new(DnsResolver::new(platform.clone()))).await?;
        // This resolver does not look up addresses, so it is needed only to look up the hosts again.
        options.resolver = options.resolver.filter(|_| options.srv.is_some());
        Self::with_platform(platform, change(options), Subscribers::default())
    }

    /// A client with these options. Its tasks run on the platform's executor; whom they speak to is not waited for.
    ///
    /// It looks at files, on the thread that calls it: whether this is a container is told by one; with TLS it reads those that the options
    /// name, or the platform's store of certificates, which may take some milliseconds.
    ///
    /// # Errors
    ///
    /// As [`ClientOptions::validate`]: [`SetupError::Config`], [`SetupError::Option`], [`SetupError::Topology`], [`SetupError::Metadata`], [`SetupError::Credential`];
    /// with the feature `tls`, `SetupError::Tls` for options that contradict each other and for a file that cannot be read or used.
    /// [`SetupError::OutOfMemory`]. [`SetupError::Forked`] in the child of a fork: see the guide [`forking`](crate::guide::forking). Nothing was started.
    pub fn with_options(options: ClientOptions) -> Result<Self, Error> {
        Self::with_platform(P::default(), options, Subscribers::default())
    }

    /// [`Client::with_options`] with a subscription that misses nothing: it begins with the events of the client's own making.
    ///
    /// # Errors
    ///
    /// As [`Client::with_options`].
    pub fn new_subscribed(options: ClientOptions) -> Result<(Self, Subscription), Error> {
        let events = Subscribers::default();
        let subscription = events.subscribe(SUBSCRIPTION_EVENTS, |_| true);
        Ok((Self::with_platform(P::default(), options, events)?, subscription))
    }
}

impl<P: Platform> Client<P> {
    /// A client on this platform, whose events go to `events` from the first.
    ///
    /// # Errors
    ///
    /// As [`Client::with_options`].
    pub fn with_platform(platform: P, options: ClientOptions, events: Subscribers) -> Result<Self, Error> {
        fork::check::<P>()?;
        options.validate()?;
        let login = options.login()?;
        let mut environment = Environment::detect(|name| std::env::var(name).ok());
        environment.is_docker = Path::new("/.dockerenv").exists();
        let metadata = options.metadata::<P>(&environment)?;
        let mut monitor = options.monitor;
        monitor.is_faas |= environment.is_faas();
        let seeds = options.seeds();
        let topology = options.topology_options(&seeds).validate()?;
        let config = HubConfig {
            pool: options.pool.validate()?,
            monitor: monitor.validate()?,
            connect_timeout: options.monitor.connect_timeout,
            command_timeout: options.handshake_command_timeout(),
            server_selection_timeout: options.server_selection_timeout,
            compressors: options.compressors,
            zlib_compression_level: options.zlib_compression_level,
            late_reply: options.late_reply,
            metadata,
            login,
            client: NEXT_CLIENT.fetch_add(1, Ordering::Relaxed),
        };
        let runtime = Net::new(platform);
        #[cfg(feature = "tls")]
        let runtime = runtime.with_tls(options.tls.as_ref().map(TlsConfig::build).transpose()?);
        let events = Events::new(events, &options);
        #[cfg(feature = "tracing")]
        for warning in &options.warnings {
            events.logs().warn_of_options(warning);
        }
        #[cfg(all(feature = "tls", feature = "tracing"))]
        for warning in runtime.tls().map_or(&[][..], TlsConfig::warnings) {
            events.logs().warn_of_options(warning);
        }
        let runtime = runtime.with_resolver(options.resolver.clone());
        let hub = Hub::new(runtime, config, topology, events).map_err(|Full| SetupError::OutOfMemory)?;
        let hub = Arc::new(hub);
        fork::begin::<P>()?;
        let platform = hub.runtime().platform();
        let tasks = Arc::new(Tasks::new(hub.events().subscribers().clone()));
        let clock = Hub::attend(Arc::clone(&hub), None, |hub| async move { hub.keep_clock().await });
        tasks.spawn(platform, clock);
        let closing = Arc::new(Event::new());
        let (starting, closes) = (Arc::downgrade(&tasks), NotifyOnDrop(Arc::clone(&closing)));
        let starter = Hub::attend(Arc::clone(&hub), None, move |hub| {
            let _lives_on = &closes;
            start_servers(hub, Weak::clone(&starting))
        });
        tasks.spawn(platform, starter);
        if let (Some(srv), Some(resolver)) = (options.srv.clone(), options.resolver.clone()) {
            let interval = options.monitor.heartbeat_frequency;
            let polls = Hub::attend(Arc::clone(&hub), None, move |hub| {
                let poll = SrvPoll::new(hub.runtime().platform().now(), srv.question.clone(), srv.ttl, interval);
                srv::run(hub, Arc::clone(&closing), Arc::clone(&resolver), poll)
            });
            tasks.spawn(platform, polls);
        }
        Ok(Self { inner: Arc::new(Inner { hub, options, tasks }) })
    }

    /// The options that it was made with, its credential and the password of its TLS key among them, so that a client of a copy of them
    /// gets in as this one does; their `Debug` tells no secret. Those of its pools may have changed since: [`Client::pool_options`].
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// What is known of the deployment: its type, and each server's last answer. A copy, which stays as it is.
    #[must_use]
    pub fn topology(&self) -> OwnedTopologyDescription {
        self.inner.hub.topology()
    }

    /// What is known of each server and its pool. What is said of the servers is of one instant; their pools are looked at one after the other.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let mut servers = Vec::new();
        self.inner.hub.for_each_server(|server| {
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

    /// Listens to everything that happens from now on. For a reader that is behind up to 1,024 events are kept
    /// ([`SUBSCRIPTION_EVENTS`]), with up to 4 MiB of descriptions of servers ([`SUBSCRIPTION_BYTES`](poolhouse_driver::SUBSCRIPTION_BYTES)).
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_where(|_| true)
    }

    /// Listens to the events that pass a filter, which must only look. If it panics, the subscription ends before that event.
    #[must_use]
    pub fn subscribe_where(&self, filter: impl Fn(&EventRef<'_>) -> bool + Send + Sync + 'static) -> Subscription {
        self.inner.hub.events().subscribers().subscribe(SUBSCRIPTION_EVENTS, filter)
    }

    /// What is to be said, loudly, about the TLS options; nothing where there is no TLS. With the feature `tracing` it has been logged.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_warnings(&self) -> &[TlsWarning] {
        self.inner.hub.runtime().tls().map_or(&[], TlsConfig::warnings)
    }

    /// Waits until a server that accepts writes is known and its pool has `minPoolSize` connections established, one at least, so
    /// that the first operations find them. Whether it is worth failing over is for the caller to say.
    ///
    /// - `timeout`: `None` is no limit; `serverSelectionTimeoutMS` limits the wait for the server besides.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server or not so many connections in time, or a connection to it could not be established meanwhile:
    /// see [`Hub::warm_up`].
    pub async fn warm_up(&self, timeout: impl Into<Option<Duration>>) -> Result<(), Error> {
        let connections = self.pool_options().min_pool_size.max(1);
        let deadline = self.deadline(timeout.into());
        Ok(self.inner.hub.warm_up(&self.wanted(None), Some(connections), deadline).await?)
    }

    /// The options of its pools that are in force.
    #[must_use]
    pub fn pool_options(&self) -> PoolOptions {
        *self.inner.hub.pool_config().options()
    }

    /// Puts other options in force for the pools of all servers, those that will be found later too. `load_balanced` and `background`
    /// stay as they are. What follows at once, and what later: [`Pool::reconfigure`](poolhouse_core::pool::Pool::reconfigure).
    ///
    /// # Errors
    ///
    /// [`SetupError::Config`]: an option is out of its range; nothing has changed. [`Error::Operation`] in the child of a fork.
    pub fn set_pool_options(&self, options: PoolOptions) -> Result<(), Error> {
        if self.is_inherited() {
            return Err(Error::Operation(OperationError::Forked));
        }
        self.inner.hub.reconfigure_pools(options.validate()?);
        Ok(())
    }

    /// The clock of events and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.hub.runtime().platform().now()
    }

    /// The shell beneath, for what this crate does not wrap.
    #[must_use]
    pub fn hub(&self) -> &Hub<Net<P>> {
        &self.inner.hub
    }

    /// Closes the client: operations that wait fail at once, idle connections are closed, connections in use are
    /// closed when they are returned. Returns when all background tasks have ended, and ends the subscriptions; if it is dropped before,
    /// those end at once, and the tasks by themselves. In the child of a fork it returns, and nothing is closed.
    pub async fn close(&self) {
        if self.is_inherited() {
            return;
        }
        let _subscribers = CloseOnDrop(self.inner.hub.events().subscribers());
        self.inner.hub.close();
        self.inner.tasks.all_ended().await;
    }
}

impl<P: Platform> Client<P> {
    /// For the child of a fork: gives up all connections of an inherited client, so that its pools are empty. Elsewhere it does nothing, and says
    /// so. The client is of no more use afterwards than before: see the guide [`forking`](crate::guide::forking).
    ///
    /// The first operation that fails there, and the first look at the servers, do the same by themselves.
    ///
    /// Cost: O(servers + connections) the first time; no system call, and no lock is waited for. Events: none.
    ///
    /// Source: CMAP, "Forking" (CMAP-30, CMAP-100).
    pub fn reset_after_fork(&self) -> ForkReset {
        self.inner.hub.reset_after_fork()
    }

    fn is_inherited(&self) -> bool {
        self.inner.hub.runtime().is_inherited()
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

impl<P: Platform> Drop for Inner<P> {
    fn drop(&mut self) {
        if self.hub.runtime().is_inherited() {
            // What they hold is kept for ever: tasks, and the wakers of those who wait, are other threads'.
            core::mem::forget((Arc::clone(&self.hub), Arc::clone(&self.tasks)));
            return;
        }
        self.hub.close();
        self.hub.events().subscribers().close();
    }
}

/// Notifies all who listen when it is dropped.
struct NotifyOnDrop(Arc<Event>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify(usize::MAX);
    }
}

/// Starts the tasks of each new server, and more workers when they are asked for, until the client is closed or gone.
async fn start_servers<P: Platform>(hub: Arc<Hub<Net<P>>>, tasks: Weak<Tasks<P>>) {
    while let Some(server) = hub.next_server().await {
        let Some(tasks) = tasks.upgrade() else { return };
        for task in hub.server_tasks(&server) {
            let server = Arc::clone(&server);
            let work = Hub::attend(Arc::clone(&hub), Some(server.id()), move |hub| {
                let server = Arc::clone(&server);
                async move { hub.work(&server, task).await }
            });
            tasks.spawn(hub.runtime().platform(), work);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One server at one instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its address.
    pub address: String,
    /// What it was at its last check.
    pub server_type: ServerType,
    /// The moving average of its round-trip time; `None` while it is unknown.
    pub round_trip_average: Option<Duration>,
    /// The minimum of its last ten round-trip times; `None` while there are fewer than two.
    pub round_trip_minimum: Option<Duration>,
    /// Its pool.
    pub pool: PoolSnapshot,
}
