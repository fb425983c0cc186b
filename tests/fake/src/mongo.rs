//! A fake mongod on loopback that implements the real wire protocol.
//!
//! It answers hellos (also awaited and streamed) and pings, keeps small collections in memory,
//! fails commands by MongoDB's `failCommand`, and injects faults into its byte stream on request.
//! It shares no code with poolhouse-core, so that each checks the other.
//!
//! ```
//! use core::time::Duration;
//! use poolhouse_fake::mongo::{BlockingClient, FailPoint, FailPointMode, FakeOptions, FakeServer};
//!
//! # fn main() -> std::io::Result<()> {
//! let server = FakeServer::start(FakeOptions::default())?;
//! let mut client = BlockingClient::connect(server.address(), Duration::from_secs(5))?;
//! assert!(client.hello("app")?.get_bool("isWritablePrimary").is_ok_and(|it_is| it_is));
//! server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(91));
//! assert!(client.run("admin", bson::doc! { "ping": 1 })?.get_i32("code").is_ok_and(|code| code == 91));
//! # Ok(())
//! # }
//! ```
//!
//! Sections to read first: Server Monitoring, "Streaming Protocol". For anything that they
//! leave open, the behaviour is that observed on a real mongod.

#[doc(hidden)]
pub mod auth;
pub mod balancer;
mod client;
mod commands;
mod compress;
mod connection;
#[doc(hidden)]
pub mod errors;
mod fail_point;
mod fault;
pub mod mongoses;
pub mod replica_set;
mod shared;
mod state;
mod store;
mod thread;
mod transactions;
#[doc(hidden)]
pub mod wire;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;

pub use self::auth::{FakeUser, ScramLie};
pub use self::client::{BlockingClient, Reply, hello};
pub use self::compress::{Algorithm, ReplyCompression, compressed, compressed_raw};
pub use self::fail_point::{FAIL_COMMAND, FailPoint, FailPointMode};
pub use self::fault::{Cut, Fault, FaultKind, FaultRule};
pub use self::shared::{CompressionCounts, ConnectionInfo, Ended, Received, TimedOut, View};
pub use self::state::{LastWrite, Role, ServerState, TopologyVersion};
pub use self::wire::BadInput;

use self::shared::{Order, RequestedState, Shared, Sockets};
use self::store::Documents;
#[doc(hidden)]
pub use self::thread::bind;
#[cfg(feature = "tls")]
use crate::tls::ServerTls;

/// Time limit for an operation of the server's thread; much longer than it needs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of a fake server. The default is a standalone on a free port of 127.0.0.1.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FakeOptions {
    /// Loopback address to listen on.
    pub ip: IpAddr,
    /// Port to listen on; 0 = any free one.
    pub port: u16,
    /// TLS on the TCP port, without plain text; the unix socket stays plain.
    #[cfg(feature = "tls")]
    pub tls: Option<ServerTls>,
    /// Additional unix socket to listen on; removed at the end.
    pub unix_path: Option<PathBuf>,
    /// The server's description of itself.
    pub state: ServerState,
    /// Largest number of simultaneous connections; further ones are closed at once.
    pub connections_max: usize,
    /// Longest message that is read, bytes; for a longer one the connection is closed.
    pub message_bytes_max: usize,
    /// Limit of unread bytes of all connections together.
    pub buffer_bytes_max: usize,
    /// Limit of the size of all collections together, bytes.
    pub store_bytes_max: usize,
    /// Number of commands that the log keeps; 0 = no log.
    pub log_max: usize,
    /// Users that can authenticate. With users, `saslSupportedMechs` is answered with their
    /// mechanisms, else with those of the state.
    pub users: Vec<FakeUser>,
    /// Whether commands fail with code 13 on connections without an authenticated user.
    pub auth_required: bool,
    /// The fault in SCRAM, if any.
    pub scram_lie: Option<ScramLie>,
    /// Seed of fail points that fire by probability.
    pub seed: u64,
}

impl Default for FakeOptions {
    fn default() -> Self {
        Self {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            #[cfg(feature = "tls")]
            tls: None,
            unix_path: None,
            state: ServerState::default(),
            connections_max: 4096,
            message_bytes_max: 48_000_000,
            buffer_bytes_max: 256 * 1024 * 1024,
            store_bytes_max: 64 * 1024 * 1024,
            log_max: 1024,
            users: Vec::new(),
            auth_required: false,
            scram_lie: None,
            seed: 1,
        }
    }
}

impl FakeOptions {
    /// The default with another description of the server.
    pub fn with_state(state: ServerState) -> Self {
        Self { state, ..Self::default() }
    }

    /// The default with access control and these users.
    pub fn with_users(users: Vec<FakeUser>) -> Self {
        Self { users, auth_required: true, ..Self::default() }
    }
}

/// A running fake server. Dropping it resets its connections and ends its thread.
///
/// All methods may be called from any thread. Those that change the sockets
/// ([`refuse`](Self::refuse), [`resume`](Self::resume), [`kill`](Self::kill),
/// [`restart`](Self::restart)) return when it is done.
#[derive(Debug)]
pub struct FakeServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Starts a server; returns when it listens.
    ///
    /// # Errors
    /// `InvalidInput` if the address is not loopback, or the TLS options are invalid; otherwise
    /// those of the sockets.
    pub fn start(options: FakeOptions) -> io::Result<Self> {
        let documents = Documents::new(options.store_bytes_max);
        Self::start_on(options, documents)
    }

    /// Starts a server on documents that may be shared with other servers.
    fn start_on(options: FakeOptions, documents: Documents) -> io::Result<Self> {
        if !options.ip.is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the fake server listens on loopback only"));
        }
        let tls = connection::tls_config(&options)?;
        let (socket, address) = thread::bind(SocketAddr::new(options.ip, options.port))?;
        let shared = Arc::new(Shared::new(&options, documents));
        let thread = std::thread::Builder::new().name("poolhouse-fake".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || thread::run(shared, options, tls, socket, address)
        })?;
        let server = Self { shared, address, thread: Some(thread) };
        server.until(RequestedState::Listening)?;
        Ok(server)
    }

    /// Returns the TCP address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the connection string of this server alone.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    // The server's description of itself.

    /// Returns the description.
    pub fn state(&self) -> ServerState {
        self.shared.with(|inner| inner.state.clone())
    }

    /// Replaces the description, increments the topologyVersion's counter and answers the waiting
    /// hellos.
    pub fn set_state(&self, state: ServerState) {
        self.update_state(|old| *old = state);
    }

    /// Changes the description in place; otherwise as [`set_state`](Self::set_state).
    pub fn update_state(&self, change: impl FnOnce(&mut ServerState)) {
        self.shared.order(|inner| {
            change(&mut inner.state);
            inner.version.counter += 1;
        });
    }

    /// Replaces the description as [`set_state`](Self::set_state) does and ends every connection;
    /// waiting hellos are answered first.
    fn set_state_and_close(&self, state: ServerState) {
        self.shared.order(|inner| {
            inner.state = state;
            inner.version.counter += 1;
            inner.close_all();
        });
    }

    /// Changes the description without a new topologyVersion, as replication progress does.
    fn amend_state(&self, change: impl FnOnce(&mut ServerState)) {
        self.shared.with(|inner| change(&mut inner.state));
    }

    /// Returns the process's id and its count of changes.
    pub fn topology_version(&self) -> TopologyVersion {
        self.shared.with(|inner| inner.version)
    }

    // Access control.

    /// Sets the fault in SCRAM.
    pub fn set_scram_lie(&self, lie: Option<ScramLie>) {
        self.shared.with(|inner| inner.auth.lie = lie);
    }

    /// Returns `database.user` of each user authenticated on an open connection.
    pub fn users_on(&self, connection: u64) -> Vec<String> {
        self.look(|view| view.users_on(connection).to_vec())
    }

    // Fail points and faults.

    /// Sets the fail point that `configureFailPoint: "failCommand"` sets.
    pub fn set_fail_point(&self, point: FailPoint) {
        self.set_named_fail_point(FAIL_COMMAND, point);
    }

    /// Sets a further fail point; of those that fire the first in the order of names is applied. At
    /// most 64.
    pub fn set_named_fail_point(&self, name: &str, point: FailPoint) {
        self.shared.order(|inner| inner.fail_points.set(name, point));
    }

    /// Removes all fail points.
    pub fn clear_fail_points(&self) {
        self.shared.order(|inner| inner.fail_points.clear());
    }

    /// Adds a rule; of the rules that match a reply the oldest is applied.
    ///
    /// # Panics
    /// With more than 1,024 rules in force.
    pub fn inject(&self, rule: impl Into<FaultRule>) {
        let added = self.shared.order(|inner| inner.faults.add(rule.into()));
        assert!(added, "at most 1,024 fault rules");
    }

    /// Removes all rules. A connection that is already silent stays so.
    pub fn clear_faults(&self) {
        self.shared.order(|inner| inner.faults.clear());
    }

    /// Cuts a connection now. No-op if it is closed.
    pub fn cut(&self, connection: u64, by: Cut) {
        self.shared.order(|inner| {
            if inner.open_mut(connection).is_some() {
                inner.orders.entry(connection).or_default().push(Order::Cut(by));
                inner.faults.count(FaultKind::CutNow);
            }
        });
    }

    // Process and sockets.

    /// Stops listening: new connections are refused, open connections stay. The port stays
    /// reserved. No-op on a killed server.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn refuse(&self) -> io::Result<()> {
        if self.shared.with(|inner| inner.wanted == RequestedState::Killed) {
            return Ok(());
        }
        self.turn_to(RequestedState::Refusing, Some(FaultKind::Refuse))
    }

    /// Listens again after [`refuse`](Self::refuse).
    ///
    /// # Errors
    /// `InvalidInput` on a killed server, which requires [`restart`](Self::restart); otherwise
    /// those of the sockets.
    pub fn resume(&self) -> io::Result<()> {
        if self.shared.with(|inner| inner.wanted == RequestedState::Killed) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the server was killed; restart it"));
        }
        self.turn_to(RequestedState::Listening, None)
    }

    /// Ends the process as `kill -9` does: every connection is reset, new connections are refused,
    /// fail points and cursors are lost. Documents, fault rules and the log are kept.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn kill(&self) -> io::Result<()> {
        self.turn_to(RequestedState::Killed, Some(FaultKind::Kill))
    }

    /// Starts a new process on the same port: another processId, counter 0. Kills the old one first
    /// if it runs.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn restart(&self) -> io::Result<()> {
        if self.shared.with(|inner| inner.wanted != RequestedState::Killed) {
            self.kill()?;
        }
        self.shared.order(shared::Inner::new_process);
        self.turn_to(RequestedState::Listening, None)
    }

    /// Stops the process as SIGSTOP does: connecting succeeds, but the server sends no bytes.
    pub fn freeze(&self) {
        self.shared.order(|inner| {
            inner.frozen = true;
            inner.faults.count(FaultKind::Freeze);
        });
    }

    /// Continues after [`freeze`](Self::freeze); requests received in the meantime are answered.
    pub fn thaw(&self) {
        self.shared.order(|inner| inner.frozen = false);
    }

    // Observation.

    /// Calls `look` with the current state. The server is locked during the call.
    pub fn look<R>(&self, look: impl FnOnce(View<'_>) -> R) -> R {
        self.shared.with(|inner| look(inner.view()))
    }

    /// Waits until the condition holds, checked after every event, at most `limit`.
    ///
    /// # Errors
    /// [`TimedOut`]: the condition was false at every check.
    pub fn wait_until(&self, limit: Duration, mut condition: impl FnMut(View<'_>) -> bool) -> Result<(), TimedOut> {
        self.shared.wait_until(limit, |inner| condition(inner.view()))
    }

    /// Returns the number of open connections.
    pub fn open_count(&self) -> usize {
        self.look(|view| view.open_count())
    }

    /// Returns the number of connections accepted over the server's lifetime.
    pub fn accepted_count(&self) -> u64 {
        self.look(|view| view.accepted_count())
    }

    /// Returns the number of received commands of this name.
    pub fn count_of(&self, name: &str) -> u64 {
        self.look(|view| view.count_of(name))
    }

    /// Returns the logged commands, oldest first.
    pub fn log(&self) -> Vec<Received> {
        self.look(|view| view.log().collect())
    }

    fn turn_to(&self, wanted: RequestedState, kind: Option<FaultKind>) -> io::Result<()> {
        self.shared.order(|inner| {
            if inner.wanted != wanted {
                inner.wanted = wanted;
                inner.sockets = Sockets::Changing;
            }
            if let Some(kind) = kind {
                inner.faults.count(kind);
            }
        });
        self.until(wanted)
    }

    /// Waits until the thread has changed its sockets to the requested state.
    fn until(&self, wanted: RequestedState) -> io::Result<()> {
        let reached = match wanted {
            RequestedState::Listening => Sockets::Listening,
            RequestedState::Refusing => Sockets::Refusing,
            RequestedState::Killed => Sockets::Killed,
            RequestedState::Stopped => Sockets::Stopped,
        };
        let mut failure = None;
        let waited = self.shared.wait_until(PATIENCE, |inner| {
            if let Sockets::Failed(kind, text) = &inner.sockets {
                failure = Some(io::Error::new(*kind, text.clone()));
            }
            failure.is_some() || inner.sockets == reached
        });
        match failure {
            Some(error) => Err(error),
            None => waited.map_err(|timed_out| io::Error::new(io::ErrorKind::TimedOut, timed_out)),
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.order(|inner| inner.wanted = RequestedState::Stopped);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; dropping must not panic again.
            let _ = thread.join();
        }
    }
}
