//! The client and its memory. Depends on the runtime and the runners.

use crate::config::Config;
use crate::embassy::{Dialers, Embassy};
use crate::error::SetupError;
use crate::layout::{ADDRESS_BYTES_MAX, BufferMemory as _, Layout, PerConnection as _, Zero};
use crate::lock::ExecutorLock;
use crate::run::Runner;
use crate::server_slot::ServerSlot;
use crate::slot::{Buffer, Slot};
use core::cell::Cell;
use core::fmt;
use core::future::poll_fn;
use core::task::Waker;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::monitor::ServerMonitoringMode;
use poolhouse_core::pool::PoolOptions;
use poolhouse_core::selection::{ReadPreference, SelectionCriteria};
use poolhouse_core::topology::{Memory as _, TopologyType};
use poolhouse_driver::{
    Attempts, BaseRuntime as _, ClientCore, CommandOptions, CoreConfig, ExchangeError, Guard, Login, OperationError,
    RetryPolicy, SelectionRequest, ServerSnapshot, append_read_preference,
};
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::compress::Compressors;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};

/// The state of a client. Store it in a static: `StaticCell<Resources<Sizes<1, 4, 8>>>`,
/// initialized with `init_with(Resources::new)`.
pub struct Resources<L: Layout> {
    core: Option<ClientCore<Embassy<L>>>,
    shared: Shared<L>,
}

/// State that connections and handles refer to.
struct Shared<L: Layout> {
    server_slots: L::PerServer<ServerSlot<Embassy<L>>>,
    slots: L::PerConnection<Slot<L::Network>>,
    dialers: Dialers<L>,
    closing: Cell<Option<Waker>>,
}

impl<L: Layout> Resources<L> {
    /// Creates the state of a client that has not been built.
    #[must_use]
    pub fn new() -> Self {
        // Invalid sizes fail the build here.
        const { assert!(L::SOCKETS > 0) };
        let dialers = ExecutorLock::holding(L::per_server());
        let shared = Shared { server_slots: L::per_server(), slots: Zero::ZERO, dialers, closing: Cell::new(None) };
        Self { core: None, shared }
    }
}

impl<L: Layout> Default for Resources<L> {
    fn default() -> Self {
        Self::new()
    }
}

/// The buffers of a client's connections, which are most of its memory. Store them in a static of
/// their own: it is initialized with zeros, and therefore takes neither flash nor stack. Example:
/// `ConstStaticCell<Buffers<Sizes<1, 4, 8>>>`.
pub struct Buffers<L: Layout>(L::BufferMemory);

impl<L: Layout> Buffers<L> {
    /// Creates buffers filled with zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self(Zero::ZERO)
    }
}

impl<L: Layout> Default for Buffers<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Layout> fmt::Debug for Buffers<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the size is shown.
        write!(f, "Buffers({} bytes)", size_of::<Self>())
    }
}

impl<L: Layout> fmt::Debug for Resources<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resources").field("bytes", &size_of::<Self>()).finish_non_exhaustive()
    }
}

/// A MongoDB client: a handle that may be copied to any task of its executor.
///
/// The client keeps a pool and a monitor for each server. Nothing happens until the [`Runner`]
/// runs. Any future of a client may be dropped at any await: no connection is lost and no state
/// remains.
pub struct Client<L: Layout> {
    core: &'static ClientCore<Embassy<L>>,
    config: &'static Config,
}

impl<L: Layout> Clone for Client<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for Client<L> {}

impl<L: Layout<Events = ()>> Client<L> {
    /// Creates a client in this memory, without an observer of its events.
    ///
    /// - `network`: must have room for [`Layout::SOCKETS`] sockets. embassy-net's stack needs room for its own
    ///   sockets for DHCP and DNS in addition, and panics when a socket is added to a full stack.
    ///
    /// Cost: O(sockets). No I/O before the runner runs.
    ///
    /// # Errors
    ///
    /// [`SetupError`].
    pub fn new(
        resources: &'static mut Resources<L>,
        buffers: &'static mut Buffers<L>,
        network: L::Network,
        config: &'static Config,
    ) -> Result<(Self, Runner<L>), SetupError> {
        Self::with_events(resources, buffers, network, config, ())
    }
}

impl<L: Layout> Client<L> {
    /// [`Client::new`] with an observer of the events of pools, monitors and the topology.
    ///
    /// - `events`: must record the event and return, see [`Publish`](crate::Publish). Calling the
    ///   client from it panics ([`ExecutorLock`]).
    ///
    /// # Errors
    ///
    /// [`SetupError`].
    pub fn with_events(
        resources: &'static mut Resources<L>,
        buffers: &'static mut Buffers<L>,
        network: L::Network,
        config: &'static Config,
        events: L::Events,
    ) -> Result<(Self, Runner<L>), SetupError> {
        Self::build(resources, buffers, network, config, events, false)
    }

    /// - `encrypts`: whether every connection must be encrypted.
    pub(crate) fn build(
        resources: &'static mut Resources<L>,
        buffers: &'static mut Buffers<L>,
        network: L::Network,
        config: &'static Config,
        events: L::Events,
        encrypts: bool,
    ) -> Result<(Self, Runner<L>), SetupError> {
        if config.options().seeds.iter().any(|seed| seed.len() + PORT_BYTES > ADDRESS_BYTES_MAX) {
            return Err(SetupError::Full);
        }
        if L::MONITOR_CONNS < 2 && config.options().monitor.server_monitoring_mode != ServerMonitoringMode::Poll {
            return Err(SetupError::Streaming);
        }
        if L::Topology::DIRECT_ONLY && !config.options().direct_connection {
            return Err(SetupError::NotDirect);
        }
        let core_config = core_config(config, u32::try_from(L::WORKERS).unwrap_or(u32::MAX))?;
        let Resources { core, shared } = resources;
        ServerSlot::open(shared.server_slots.as_mut());
        let shared: &'static Shared<L> = shared;
        let Shared { server_slots, slots, dialers, closing } = shared;
        for (slot, memory) in slots.iter().zip(buffers.0.split()) {
            slot.open(memory, network);
        }
        let random = config.options().random;
        let runtime =
            Embassy { network, slots, dialers, closing, server_slots: server_slots.as_ref(), random, encrypts };
        let core: &'static ClientCore<Embassy<L>> = core.insert(ClientCore::vacant(runtime, core_config, events));
        open(core, config)?;
        Ok((Self { core, config }, Runner::new(core)))
    }

    /// Runs a command on a server that accepts writes, and returns the reply if its `ok` is 1.
    ///
    /// - `body`: writes the elements of the command into the connection's buffer; `$db` is added.
    ///   Called once for each attempt.
    /// - `reply`: the buffer that the reply is copied to.
    ///
    /// The operation takes at most [`Options::timeout`](crate::Options::timeout). If it failed before
    /// it was sent, it is attempted again until then, with pauses; without a timeout once. An
    /// operation that an overloaded server refused is attempted at most twice more, after pauses.
    ///
    /// Cost: no allocation; the reply is copied once ([`Client::check_out`] avoids the copy).
    ///
    /// # Errors
    ///
    /// [`OperationError::Command`] if the server returns an error. [`ExchangeError::Encode`] if the
    /// command is larger than the connection's send buffer. [`ExchangeError::ReplyTooLarge`] if the
    /// reply is larger than the connection's receive buffer, or larger than `reply`, in which case
    /// the connection is kept; in both cases the command was executed.
    /// [`CheckOutError::Busy`](poolhouse_core::pool::CheckOutError::Busy) and
    /// [`OperationError::Busy`] if the queue of waiting tasks is full.
    ///
    /// Source: Run Command.
    pub async fn run_command<'r>(
        &self,
        database: &str,
        body: impl Fn(&mut DocumentWriter<'_, Buffer>) -> Result<(), EncodeError>,
        reply: &'r mut [u8],
    ) -> Result<RawDocument<'r>, OperationError> {
        self.run_command_with(database, body, reply, CommandOptions::new()).await
    }

    /// [`Client::run_command`] with its own options.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_command_with<'r>(
        &self,
        database: &str,
        body: impl Fn(&mut DocumentWriter<'_, Buffer>) -> Result<(), EncodeError>,
        reply: &'r mut [u8],
        options: CommandOptions<'_>,
    ) -> Result<RawDocument<'r>, OperationError> {
        let client = self.config.options();
        let inherited = options.client_read_preference.then_some(client.read_preference);
        let read_preference = options.read_preference.or(inherited);
        let deadline = self.deadline(options.limit_or(client.timeout));
        let policy = RetryPolicy { enabled: options.retry, idempotent: options.idempotent, ..RetryPolicy::DEFAULT };
        let mut attempts: Attempts<'_, _, OperationError> =
            self.core.attempts(self.criteria(read_preference), deadline, policy);
        loop {
            let mut guard = attempts.next().await?;
            let told = guard.preference_to_send(read_preference, client.direct_connection);
            let written = guard
                .run_command(database, |writer| {
                    body(writer)?;
                    told.as_ref().map_or(Ok(()), |preference| append_read_preference(writer, preference))
                })
                .await;
            match written {
                Ok(found) => return copy(found, reply),
                Err(error) => attempts.failed(error)?,
            }
        }
    }

    /// [`Client::run_command`] with a command that was encoded before, and a reply buffer of the
    /// caller.
    ///
    /// # Errors
    ///
    /// As [`Client::run_command`].
    pub async fn run_raw_command<'r>(
        &self,
        database: &str,
        command: RawDocument<'_>,
        reply: &'r mut [u8],
    ) -> Result<RawDocument<'r>, OperationError> {
        self.run_command(database, |writer| writer.extend(command).map(drop), reply).await
    }

    /// Checks out a connection to a server that accepts writes. Dropping the guard checks the
    /// connection in. Replies are read in the connection's receive buffer.
    ///
    /// [`Options::timeout`](crate::Options::timeout) starts now. It covers the check-out and all
    /// operations on the connection.
    ///
    /// # Errors
    ///
    /// [`OperationError`]: no server or no connection was available in time.
    pub async fn check_out(&self) -> Result<Guard<'static, Embassy<L>>, OperationError> {
        self.check_out_preferring(None).await
    }

    /// [`Client::check_out`] with a read preference.
    ///
    /// # Errors
    ///
    /// As [`Client::check_out`].
    pub async fn check_out_preferring(
        &self,
        read_preference: Option<ReadPreference<'_>>,
    ) -> Result<Guard<'static, Embassy<L>>, OperationError> {
        let deadline = self.deadline(self.config.options().timeout);
        let request = SelectionRequest { criteria: self.criteria(read_preference), deprioritized: &[] };
        self.core.check_out(&request, deadline).await
    }

    /// Waits until the pool of a server that accepts writes has this many connections; `None` means
    /// `minPoolSize`.
    ///
    /// # Errors
    ///
    /// See [`ClientCore::warm_up`].
    pub async fn warm_up(&self, connections: Option<u32>) -> Result<(), OperationError> {
        let deadline = self.deadline(self.config.options().timeout);
        let request = SelectionRequest { criteria: self.criteria(None), deprioritized: &[] };
        self.core.warm_up(&request, connections, deadline).await
    }

    /// Calls `visit` with each server, its description and its pool: see
    /// [`ClientCore::for_each_server`].
    pub fn for_each_server(&self, visit: impl FnMut(ServerSnapshot<'_>)) {
        self.core.for_each_server(visit);
    }

    /// Returns the type of the deployment.
    #[must_use]
    pub fn topology_type(&self) -> TopologyType {
        self.core.topology_type()
    }

    /// Closes the client. Waiting operations fail when they are polled next. Connections in use are closed when they
    /// are checked in; the runner closes all others. [`Client::open`] opens the client again.
    pub fn close(&self) {
        self.core.close();
    }

    /// After [`Client::close`], waits until no connection is left and the work for all servers has ended: the last
    /// [`Guard`] was dropped, and each server has acknowledged the end of its connections, or 1 s was not enough
    /// for that. Then the network can be turned off and the device can sleep. Cancel-safe. For one task at a
    /// time: of several, only the last to wait is woken.
    pub async fn closed(&self) {
        let runtime = self.core.runtime();
        poll_fn(|context| runtime.poll_free(context.waker())).await;
    }

    /// Opens the client again after [`Client::closed`]: with the same memory, runner and handles, and
    /// with new connections to the seeds of its options. Operations wait for a server as those of a new client
    /// do, also those that were not polled since the close. Nothing happens if the client is open.
    ///
    /// # Errors
    ///
    /// [`SetupError::InUse`] while a connection of the closed client is left. [`SetupError::Abandoned`] if
    /// a runner was dropped.
    pub fn open(&self) -> Result<(), SetupError> {
        if !self.core.is_closed() {
            return Ok(());
        }
        if self.core.is_abandoned() {
            return Err(SetupError::Abandoned);
        }
        if !self.core.runtime().is_free() {
            return Err(SetupError::InUse);
        }
        open(self.core, self.config)
    }

    /// Returns the client core, which has the complete interface of the driver.
    #[must_use]
    pub const fn core(&self) -> &'static ClientCore<Embassy<L>> {
        self.core
    }

    /// The criteria by which an operation selects its server.
    fn criteria<'a>(&self, read_preference: Option<ReadPreference<'a>>) -> SelectionCriteria<'a> {
        let criteria = read_preference.map_or(SelectionCriteria::write(), SelectionCriteria::read);
        criteria
            .with_local_threshold(self.config.options().local_threshold)
            .with_heartbeat_frequency(self.config.options().monitor.heartbeat_frequency)
    }

    /// The deadline of an operation that starts now.
    fn deadline(&self, timeout: Option<Duration>) -> Option<Instant> {
        timeout.map(|timeout| self.core.runtime().now().saturating_add(timeout))
    }
}

impl<L: Layout> fmt::Debug for Client<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("core", self.core).finish_non_exhaustive()
    }
}

/// Opens a vacant or closed client core for the seeds of the options.
fn open<L: Layout>(core: &ClientCore<Embassy<L>>, config: &Config) -> Result<(), SetupError> {
    Ok(core.open(config.options().topology().validate()?)?)
}

/// Additional bytes of a seed without a port: a colon and a port.
const PORT_BYTES: usize = 6;

/// - `workers`: the maximum number of connections of a server that are established at the same time.
fn core_config(config: &Config, workers: u32) -> Result<CoreConfig, SetupError> {
    let options = config.options();
    let pool = PoolOptions { max_connecting: options.pool.max_connecting.min(workers), ..options.pool };
    let metadata = MetadataOptions {
        application_name: options.app_name,
        driver_name: "poolhouse",
        driver_version: env!("CARGO_PKG_VERSION"),
        os_type: "unknown",
        platform: Some("Rust, embassy"),
        ..MetadataOptions::default()
    };
    #[cfg(feature = "auth")]
    let login = options.credential.map(Login::new).transpose()?;
    #[cfg(not(feature = "auth"))]
    let login: Option<Login> = None;
    Ok(CoreConfig {
        // Not invalid: the options were validated, and there is a worker.
        pool: pool.validate().unwrap_or(config.pool()),
        monitor: config.monitor(),
        connect_timeout: options.monitor.connect_timeout,
        command_timeout: options.timeout,
        server_selection_timeout: options.server_selection_timeout,
        compressors: Compressors::NONE,
        zlib_compression_level: None,
        drain_timeout: Duration::ZERO,
        metadata: ClientMetadata::new(&metadata)?,
        server_api: None,
        login,
        client: 0,
    })
}

/// Copies a reply into the caller's buffer.
fn copy<'r>(found: RawDocument<'_>, reply: &'r mut [u8]) -> Result<RawDocument<'r>, OperationError> {
    let found = found.as_bytes();
    let limit = reply.len();
    let saturate = |count| u32::try_from(count).unwrap_or(u32::MAX);
    let too_large = ExchangeError::ReplyTooLarge { bytes: saturate(found.len()), limit: saturate(limit) };
    let place = reply.get_mut(..found.len()).ok_or(too_large)?;
    place.copy_from_slice(found);
    RawDocument::new(place).map_err(|error| ExchangeError::Wire(error).into())
}
