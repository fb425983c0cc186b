//! The client.

use crate::runtime::{Smol, spawn};
use crate::{ClientOptions, CommandError, CommandOptions, Error};
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::ops::AsyncFnOnce;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use poolhouse_core::selection::{ReadMode, ReadPreference, SelectionCriteria};
use poolhouse_core::shell::{
    EventRef, Hub, HubConfig, PoolSnapshot, Runtime, SUBSCRIPTION_EVENTS, Subscribers, Subscription, Wanted,
};
use poolhouse_core::storage::Full;
use poolhouse_core::topology::TopologyOptions;
use poolhouse_core::wire::bson::{DocumentWriter, RawDocument};
use poolhouse_core::wire::hello::{ClientMetadata, Environment, MetadataOptions};
use poolhouse_core::{Instant, ServerId, ServerType, shell};
use smol::Task;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A MongoDB client: a handle that is cheap to clone and share. Its last clone's drop ends its background tasks.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Arc<Hub<Smol>>,
    options: ClientOptions,
    tasks: Tasks,
    /// Held by whoever waits for the end of the tasks.
    closing: smol::lock::Mutex<()>,
}

/// The background tasks. A task that is dropped is cancelled.
type Tasks = Arc<Mutex<Vec<Task<()>>>>;

/// Pools of all clients of the process have different numbers. Each client takes a range that it will not use up.
static NEXT_CLIENT: AtomicU32 = AtomicU32::new(0);
const POOLS_PER_CLIENT: u32 = 1 << 16;

impl Client {
    /// A client for the server of a connection string. Starts its background tasks and returns; the first operation
    /// waits for the server.
    ///
    /// # Errors
    ///
    /// [`Error::Uri`]: see [`ClientOptions::parse`].
    pub fn connect(uri: &str) -> Result<Self, Error> {
        Self::new(ClientOptions::parse(uri)?)
    }

    /// A client with these options. Performs no I/O itself; its tasks run on smol's global executor.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], [`Error::Topology`] or [`Error::Metadata`]: nothing was started.
    pub fn new(options: ClientOptions) -> Result<Self, Error> {
        Self::start(options, Subscribers::default())
    }

    /// [`Client::new`] with a subscription that misses nothing: it begins with the events of the client's own making.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub fn new_subscribed(options: ClientOptions) -> Result<(Self, Subscription), Error> {
        let events = Subscribers::default();
        let subscription = events.subscribe(SUBSCRIPTION_EVENTS, |_| true);
        Ok((Self::start(options, events)?, subscription))
    }

    fn start(options: ClientOptions, events: Subscribers) -> Result<Self, Error> {
        let mut environment = Environment::detect(|name| std::env::var(name).ok());
        environment.is_docker = Path::new("/.dockerenv").exists();
        let metadata = ClientMetadata::new(&MetadataOptions {
            application_name: options.app_name.as_deref(),
            driver_name: "poolhouse-smol",
            driver_version: env!("CARGO_PKG_VERSION"),
            os_type: os_type(),
            os_name: Some(std::env::consts::OS),
            os_architecture: Some(std::env::consts::ARCH),
            os_version: None,
            platform: Some("Rust/smol"),
            environment: Some(&environment),
        })?;
        let mut monitor = options.monitor;
        monitor.is_faas |= environment.is_faas();
        let seeds: Vec<&str> = options.hosts.iter().map(String::as_str).collect();
        let topology = TopologyOptions {
            seeds: &seeds,
            replica_set: options.replica_set.as_deref(),
            direct_connection: options.direct_connection,
            load_balanced: options.pool.load_balanced,
        };
        let config = HubConfig {
            pool: options.pool.validate()?,
            monitor: monitor.validate()?,
            connect_timeout: options.monitor.connect_timeout,
            server_selection_timeout: options.server_selection_timeout,
            compressors: options.compressors,
            zlib_compression_level: options.zlib_compression_level,
            metadata,
            first_pool: NEXT_CLIENT.fetch_add(1, Ordering::Relaxed).wrapping_mul(POOLS_PER_CLIENT),
        };
        let hub = Hub::new(Smol, config, topology.validate()?, events).map_err(|Full| Error::OutOfMemory)?;
        let hub = Arc::new(hub);
        let tasks = Tasks::default();
        let clock = Arc::clone(&hub);
        let starter = start_servers(Arc::clone(&hub), Arc::downgrade(&tasks));
        lock(&tasks).extend([spawn(async move { clock.run_clock().await }), spawn(starter)]);
        let closing = smol::lock::Mutex::new(());
        Ok(Self { inner: Arc::new(Inner { hub, options, tasks, closing }) })
    }

    /// Runs a command on a server that accepts writes, and gives the reply if it says `ok`.
    ///
    /// The operation may take as long as [`ClientOptions::timeout`] allows. One that failed before it was sent is tried once more.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] when the server refuses; [`Error::Operation`] when none is reached or none answers;
    /// [`Error::Bson`] for a document that cannot be encoded.
    pub async fn run_command(&self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        self.run_command_with(database, command, CommandOptions::new()).await
    }

    /// [`Client::run_command`] with options of its own.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command_with(
        &self,
        database: &str,
        command: bson::Document,
        options: CommandOptions<'_>,
    ) -> Result<bson::Document, Error> {
        let bytes = command.to_vec().map_err(|error| Error::Bson(error.to_string()))?;
        let deadline = self.deadline(options.timeout.or(self.inner.options.timeout));
        let mut failed: Option<(ServerId, Error)> = None;
        loop {
            let deprioritized = failed.as_ref().map(|(id, _)| *id);
            let wanted = self.wanted(options.read_preference, deprioritized.as_slice());
            let server = match self.inner.hub.select_server(&wanted, deadline).await {
                Ok(server) => server,
                // That no server suits a second attempt says less than why there is one (Retryable Reads, "Implementing Retryable Reads").
                Err(error) => return Err(failed.map_or(Error::Operation(error), |(_, first)| first)),
            };
            let id = server.id();
            let error = match self.inner.hub.check_out_of(server, deadline).await {
                Ok(guard) => {
                    let preference = self.told_preference(&guard, options.read_preference);
                    match (Guard { guard }).run(database, &bytes, preference.as_ref()).await {
                        Ok(reply) => return Ok(reply),
                        Err(error) => error,
                    }
                }
                Err(error) => Error::Operation(error),
            };
            let again = error.is_retryable() || (options.repeatable && error.is_transient());
            if failed.is_some() || !again {
                return Err(error);
            }
            failed = Some((id, error));
        }
    }

    fn wanted<'a>(&self, read_preference: Option<ReadPreference<'a>>, deprioritized: &'a [ServerId]) -> Wanted<'a> {
        let criteria = read_preference.map_or(SelectionCriteria::write(), SelectionCriteria::read);
        let criteria = criteria
            .with_local_threshold(self.inner.options.local_threshold)
            .with_heartbeat_frequency(self.inner.options.monitor.heartbeat_frequency);
        Wanted { criteria, deprioritized }
    }

    /// What a server is told of the read preference: nothing that it does without, and on a direct connection to a member of a set
    /// that any member may answer.
    fn told_preference<'a>(
        &self,
        guard: &shell::Guard<'_, Smol>,
        preference: Option<ReadPreference<'a>>,
    ) -> Option<ReadPreference<'a>> {
        let server_type = guard.established().map_or(ServerType::Unknown, |established| established.server_type);
        if server_type == ServerType::Standalone {
            return None;
        }
        let preference = preference.filter(|preference| preference.options().mode != ReadMode::Primary);
        let direct = self.inner.options.direct_connection && server_type != ServerType::Mongos;
        preference.or_else(|| direct.then_some(ReadPreference::of(ReadMode::PrimaryPreferred)))
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.map(|timeout| Smol.now().saturating_add(timeout))
    }

    /// Checks out a connection to a server that accepts writes. Dropping the guard returns it.
    ///
    /// The time of [`ClientOptions::timeout`] begins now, for this and for everything done under the guard.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`]: no server, or no connection in time.
    pub async fn check_out(&self) -> Result<Guard<'_>, Error> {
        self.check_out_by(self.inner.options.timeout).await
    }

    /// [`Client::check_out`] with a time limit of its own; `None` is for ever.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_by(&self, timeout: Option<Duration>) -> Result<Guard<'_>, Error> {
        let wanted = self.wanted(None, &[]);
        Ok(Guard { guard: self.inner.hub.check_out(&wanted, self.deadline(timeout)).await? })
    }

    /// [`Client::check_out`] of a connection to a server of the user's choice.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_preferring(&self, read_preference: ReadPreference<'_>) -> Result<Guard<'_>, Error> {
        let wanted = self.wanted(Some(read_preference), &[]);
        Ok(Guard { guard: self.inner.hub.check_out(&wanted, self.deadline(self.inner.options.timeout)).await? })
    }

    /// Runs `work` with a connection of its own, which goes back to the pool whatever happens.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`]; what `work` returns is passed on.
    pub async fn with_connection<T>(&self, work: impl AsyncFnOnce(&mut Guard<'_>) -> T) -> Result<T, Error> {
        let mut guard = self.check_out().await?;
        Ok(work(&mut guard).await)
    }

    /// What is known of each server and its pool, all of one instant.
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

    /// The pool of the server, if there is one.
    #[must_use]
    pub fn pool_snapshot(&self) -> Option<PoolSnapshot> {
        self.servers().first().map(|server| server.pool)
    }

    /// Listens to everything that happens from now on. Up to 1,024 events are kept for a reader that is behind.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.subscribe_where(|_| true)
    }

    /// Listens to the events that pass a filter, which must only look.
    #[must_use]
    pub fn subscribe_where(&self, filter: fn(&EventRef<'_>) -> bool) -> Subscription {
        self.inner.hub.events().subscribe(SUBSCRIPTION_EVENTS, filter)
    }

    /// The clock of events and deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        Smol.now()
    }

    /// The shell beneath, for what this crate does not wrap.
    #[must_use]
    pub fn hub(&self) -> &Hub<Smol> {
        &self.inner.hub
    }

    /// Closes the client: operations that wait fail at once, idle connections are closed, connections in use are
    /// closed when they are returned. Returns when all background tasks have ended.
    pub async fn close(&self) {
        self.inner.hub.close();
        // One after the other: who comes second finds that all tasks have ended, too.
        let _closing = self.inner.closing.lock().await;
        loop {
            let task = lock(&self.inner.tasks).pop();
            match task {
                Some(task) => task.await,
                None => break,
            }
        }
        self.inner.hub.events().close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("servers", &self.servers()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.close();
        self.hub.events().close();
    }
}

/// Starts the tasks of each new server, until the client is closed or gone.
async fn start_servers(hub: Arc<Hub<Smol>>, tasks: Weak<Mutex<Vec<Task<()>>>>) {
    while let Some(server) = hub.next_server().await {
        let Some(tasks) = tasks.upgrade() else { return };
        let mut tasks = lock(&tasks);
        tasks.retain(|task| !task.is_finished());
        for task in hub.server_tasks() {
            let (hub, server) = (Arc::clone(&hub), Arc::clone(&server));
            tasks.push(spawn(async move { hub.run_server_task(&server, task).await }));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handshake's name for the kind of operating system.
fn os_type() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    }
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

/// A connection that is checked out. Dropping it returns it to its pool; one that is dropped while a reply is
/// outstanding, or after an error, is closed.
#[derive(Debug)]
pub struct Guard<'c> {
    guard: shell::Guard<'c, Smol>,
}

impl<'c> Guard<'c> {
    /// Runs a command on this connection.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`]. After an [`Error::Operation`] the connection is of no further use.
    pub async fn run_command(&mut self, database: &str, command: bson::Document) -> Result<bson::Document, Error> {
        let bytes = command.to_vec().map_err(|error| Error::Bson(error.to_string()))?;
        self.run(database, &bytes, None).await
    }

    async fn run(
        &mut self,
        database: &str,
        command: &[u8],
        read_preference: Option<&ReadPreference<'_>>,
    ) -> Result<bson::Document, Error> {
        let command = RawDocument::new(command).map_err(|error| Error::Bson(error.to_string()))?;
        let write = |body: &mut DocumentWriter<'_, Vec<u8>>| {
            body.extend(command)?;
            read_preference.map_or(Ok(()), |preference| shell::append_read_preference(body, preference))
        };
        match self.guard.run_command(database, write).await {
            Ok(reply) => reply.try_into().map_err(|error: bson::error::Error| Error::Bson(error.to_string())),
            Err(shell::OperationError::Command { code, .. }) => Err(self.refusal(code)),
            Err(error) => Err(Error::Operation(error)),
        }
    }

    /// The guard beneath, which writes commands and reads replies without the bson crate's documents.
    pub const fn raw(&mut self) -> &mut shell::Guard<'c, Smol> {
        &mut self.guard
    }

    /// The specification's id of the connection: its number in the pool.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.guard.connection_id()
    }

    fn refusal(&self, code: i32) -> Error {
        let reply = self.guard.reply().and_then(|reply| bson::Document::try_from(reply).ok()).unwrap_or_default();
        let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
        Error::Command(Box::new(CommandError {
            code,
            code_name: reply.get_str("codeName").ok().map(str::to_owned),
            message: reply.get_str("errmsg").ok().map(str::to_owned),
            labels: labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect(),
            reply,
        }))
    }
}
