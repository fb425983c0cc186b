//! A fake Cassandra node on loopback that speaks the native protocol, versions 3, 4 and 5, and
//! injects faults on request.
//!
//! ```
//! use poolhouse_fake::cql::{Act, CqlServer, CqlServerOptions, Order, Rule};
//!
//! # fn main() -> std::io::Result<()> {
//! let server = CqlServer::start(CqlServerOptions::default())?;
//! server.add(Rule::statements(Act::Hold { count: 2, order: Order::Reversed }).text("echo "));
//! println!("{}", server.address()); // for the client under test
//! # Ok(())
//! # }
//! ```
//!
//! # Supported requests
//!
//! OPTIONS, STARTUP (lz4 and snappy), AUTH_RESPONSE by PasswordAuthenticator if credentials are
//! set, REGISTER (events only by [`push`](CqlServer::push)), QUERY, PREPARE, EXECUTE, BATCH. Its [codec] is its own.
//! A test sends the same bytes to it and to Cassandra 5.0, and compares the shapes of the replies. Other drivers (PyPI's `cassandra-driver`, the crate
//! `scylla`) accept it as a cluster of one node, Cassandra 4.1. The prefix of a statement's text
//! selects the reply:
//!
//! | statement | answer |
//! |---|---|
//! | `echo TEXT` | one row with one cell, a varchar: the text. [`cell_of`] reads it |
//! | `bytes N` or `bytes N TEXT` | one row with one cell, a blob of N bytes (at most 64 MiB): the text, repeated |
//! | `void` or `void ..` | no rows |
//! | `delay N STATEMENT` | the statement's reply, delayed by N milliseconds (at most an hour) |
//! | `SELECT .. FROM ..` | rows of `system.local`, `system.peers`, `system.peers_v2`, `system_schema.*`, `system_virtual_schema.*`; conditions are ignored |
//! | `USE KEYSPACE` | sets the keyspace; any name is accepted, unless [`keyspaces`](CqlServerOptions::keyspaces) lists them |
//!
//! Any other statement is a syntax error. Variables (`?`) of the first four are varchars, and are replaced
//! by their text in any position: `echo ?`, `bytes ?`, also with QUERY. Those of `SELECT` have the types
//! of the columns before them. A BATCH has no effect and always succeeds.
//!
//! # Not supported
//!
//! The server stores no data, has no schema except that of its own tables, sends all rows in one
//! page, and ignores tracing, custom payloads and warnings. Statements that change data or the schema
//! are syntax errors. An [`Act::Error`] consists of a code and a message, without the additional fields
//! of some codes. Versions before 3 and beta versions are not supported.
//!
//! The inputs of `tests/hosted/tests/cassandra/recording.rs` in the repository have replies of the same shape as
//! those of Cassandra 5.0, also where those are unexpected: before STARTUP, some errors are sent on stream 0; in versions 3 and 4, a request with the opcode
//! or the direction of a reply is not consumed, and each later read is answered by the same error; in version 5,
//! segments are sent after a STARTUP with an unsupported `CQL_VERSION`.
//!
//! # Faults
//!
//! Faults are defined by [`Rule`]s: for the whole server, by the kind of request, or by text. In
//! addition: [`refuse`](CqlServer::refuse) and [`resume`](CqlServer::resume) (on the same port),
//! [`cut_all`](CqlServer::cut_all), [`pause_reading`](CqlServer::pause_reading) for back-pressure,
//! [`set_piece_bytes`](CqlServer::set_piece_bytes) for replies in pieces.
//!
//! # Cost
//!
//! One thread for each connection, which processes all bytes of one `read` and sends the replies by
//! one `write`; a second thread from the first delayed reply on. A request takes no lock while
//! there are no rules and no log ([`log_max`](CqlServerOptions::log_max) = 0). Replies to requests
//! of the same read are sent together: a client that never reads blocks the thread of its own
//! connection.
//!
//! Sections to read first: Native Protocol v5, all but the serialization of data types.

mod body;
pub mod codec;
mod connection;
mod kind;
mod link;
mod rule;
mod shared;
mod statement;
mod tables;

use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Instant;

pub use self::codec::Compression;
pub use self::kind::RequestKind;
pub use self::rule::{Act, Cut, Order, Part, Rule};
pub use self::shared::{Counts, Received};
pub use self::statement::cell_of;

use self::link::Link;
use self::shared::{Shared, lock};

/// The version of CQL in STARTUP and SUPPORTED.
const CQL_VERSION: &str = "3.4.6";
/// The versions of the protocol, the newest first.
const VERSIONS: [u8; 3] = [5, 4, 3];
/// Length of the kernel's queue of connections that are not yet accepted.
const BACKLOG: i32 = 1024;
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// Options of a server. The default: any free port, all versions and compressions, no password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqlServerOptions {
    /// Loopback address to listen on.
    pub ip: IpAddr,
    /// Port to listen on; 0 = any free one.
    pub port: u16,
    /// The supported versions, of 3, 4 and 5. Other versions are answered by a protocol error.
    pub versions: Vec<u8>,
    /// The offered compressions.
    pub compressions: Vec<Compression>,
    /// The keyspaces that `USE` accepts, besides those of the server itself; `None`: any name.
    pub keyspaces: Option<Vec<String>>,
    /// The required user and password, if any.
    pub credentials: Option<(String, String)>,
    /// Number of requests that the log keeps; 0 = no log.
    pub log_max: usize,
    /// Size of the read buffer, bytes.
    pub read_bytes: usize,
}

impl Default for CqlServerOptions {
    fn default() -> Self {
        Self {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            versions: VERSIONS.into(),
            compressions: Compression::ALL.into(),
            keyspaces: None,
            credentials: None,
            log_max: 1024,
            read_bytes: 256 * 1024,
        }
    }
}

impl CqlServerOptions {
    /// The default without a log, which minimizes the work for each request.
    #[must_use]
    pub fn fast() -> Self {
        Self { log_max: 0, ..Self::default() }
    }

    /// The default with these versions.
    #[must_use]
    pub fn with_versions(versions: &[u8]) -> Self {
        Self { versions: versions.into(), ..Self::default() }
    }

    /// The same options with a required password.
    #[must_use]
    pub fn with_credentials(self, user: &str, password: &str) -> Self {
        Self { credentials: Some((user.to_owned(), password.to_owned())), ..self }
    }
}

impl fmt::Debug for CqlServerOptions {
    /// Prints only whether a password is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, port, versions, compressions, keyspaces, credentials, log_max, read_bytes } = self;
        f.debug_struct("CqlServerOptions")
            .field("ip", ip)
            .field("port", port)
            .field("versions", versions)
            .field("compressions", compressions)
            .field("keyspaces", keyspaces)
            .field("credentials", &credentials.is_some())
            .field("log_max", log_max)
            .field("read_bytes", read_bytes)
            .finish()
    }
}

/// A running server. Dropping it ends its connections and its threads.
///
/// All methods may be called from any thread.
pub struct CqlServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

/// The listening socket.
#[derive(Debug)]
struct Door {
    /// Bound for the server's lifetime, so that the port stays reserved. It never listens.
    _holder: OwnedFd,
    /// Replaced after each shutdown: connections accepted by a socket that was shut down are shut
    /// down, too.
    listener: Mutex<Option<Arc<TcpListener>>>,
    is_over: AtomicBool,
}

impl Door {
    fn listener(&self) -> Option<Arc<TcpListener>> {
        lock(&self.listener).clone()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

fn listen(address: SocketAddr) -> io::Result<Arc<TcpListener>> {
    let (socket, _) = crate::mongo::bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(Arc::new(TcpListener::from(socket)))
}

impl fmt::Debug for CqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqlServer")
            .field("address", &self.address)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl CqlServer {
    /// Starts a server; returns when it listens.
    ///
    /// # Errors
    /// `InvalidInput` if the address is not loopback, or if there is no version or an unknown one; otherwise those of
    /// the sockets.
    pub fn start(options: CqlServerOptions) -> io::Result<Self> {
        if !options.ip.is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the fake server listens on loopback only"));
        }
        if options.versions.is_empty() || options.versions.iter().any(|version| !VERSIONS.contains(version)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a server supports some of the versions 3, 4 and 5",
            ));
        }
        let (holder, address) = crate::mongo::bind(SocketAddr::new(options.ip, options.port))?;
        let listener = Mutex::new(Some(listen(address)?));
        let door = Arc::new(Door { _holder: holder, listener, is_over: AtomicBool::new(false) });
        let shared = Arc::new(Shared::new(&options, address));
        let thread = std::thread::Builder::new().name("poolhouse-cql".to_owned()).spawn({
            let (shared, door) = (Arc::clone(&shared), Arc::clone(&door));
            move || accept(&shared, &door)
        })?;
        Ok(Self { shared, address, door, thread: Some(thread) })
    }

    /// Returns the address on which it listens, also while it refuses connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    // Faults.

    /// Adds a rule, which applies to requests received from now on. Returns its number.
    pub fn add(&self, rule: Rule) -> usize {
        self.shared.add_rule(rule)
    }

    /// Removes a rule. Replies that it has delayed or held stay delayed or held.
    pub fn remove(&self, number: usize) {
        self.shared.change_script(|rules| rules.retain(|rule| rule.number != number));
    }

    /// Removes all rules. Replies that they have delayed or held stay so, and so do connections
    /// that are mute.
    pub fn clear_rules(&self) {
        self.shared.change_script(Vec::clear);
    }

    /// Returns how many times a rule was applied, also if it was removed.
    pub fn struck(&self, number: usize) -> u64 {
        self.shared.struck(number)
    }

    /// Sends all replies held by [`Act::Hold`], for each connection in this order; returns their
    /// number.
    ///
    /// Does not wait until clients have read them, unless they exceed the socket buffers.
    pub fn release(&self, order: Order) -> usize {
        // Sending fails only on a connection that has ended.
        self.shared.links().iter().filter_map(|link| link.release(order).ok()).sum()
    }

    /// Sends these bytes on every open connection, neither framed nor compressed, for example an
    /// event. Connections that end meanwhile do not receive them.
    pub fn push(&self, bytes: &[u8]) {
        for link in self.shared.links() {
            // Sending fails only on a connection that has ended.
            let _ = link.send_raw(bytes, 0);
        }
    }

    /// Sends all output in pieces of this many bytes, each by a separate write; 0 = unsplit.
    pub fn set_piece_bytes(&self, bytes: usize) {
        self.shared.piece_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Stops reading from all connections. The bytes of a `read` that has already begun are kept
    /// and not processed.
    pub fn pause_reading(&self) {
        self.shared.paused.store(true, Ordering::SeqCst);
    }

    /// Resumes reading.
    pub fn resume_reading(&self) {
        self.shared.paused.store(false, Ordering::SeqCst);
        self.shared.open_gate();
    }

    /// Ends all connections now.
    pub fn cut_all(&self, cut: Cut) {
        for link in self.shared.links() {
            link.cut(cut);
        }
    }

    /// Stops listening: new connections are refused. Open connections stay, and the port stays
    /// reserved. No-op if it does not listen.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn refuse(&self) -> io::Result<()> {
        let Some(listener) = lock(&self.door.listener).take() else { return Ok(()) };
        self.wake(listener)
    }

    /// Wakes the thread, which may be blocked in accept.
    #[cfg(not(target_vendor = "apple"))]
    #[expect(clippy::unused_self, clippy::needless_pass_by_value, reason = "other systems use both")]
    fn wake(&self, listener: Arc<TcpListener>) -> io::Result<()> {
        Ok(rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both)?)
    }

    /// Wakes the thread, which may be blocked in accept: here, only a connection ends it.
    #[cfg(target_vendor = "apple")]
    fn wake(&self, listener: Arc<TcpListener>) -> io::Result<()> {
        drop(std::net::TcpStream::connect(self.address)?);
        while Arc::strong_count(&listener) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Listens again, on the same port. No-op if it listens.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn resume(&self) -> io::Result<()> {
        {
            let mut listener = lock(&self.door.listener);
            if listener.is_none() {
                *listener = Some(listen(self.address)?);
            }
        }
        self.shared.open_gate();
        Ok(())
    }

    /// Ends as a killed process does: new connections are refused, every connection is reset.
    /// [`resume`](Self::resume) starts it again.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn kill(&self) -> io::Result<()> {
        self.refuse()?;
        self.cut_all(Cut::Reset);
        self.shared.wait_for_end();
        Ok(())
    }

    // Observation.

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Returns the number of replies held by [`Act::Hold`].
    pub fn held_count(&self) -> usize {
        self.shared.links().iter().map(|link| link.held_count()).sum()
    }

    /// Returns the requests in the log, the oldest first.
    pub fn log(&self) -> Vec<Received> {
        self.shared.log()
    }

    /// Waits until a condition holds, checked every millisecond; false if it did not within
    /// `limit`.
    pub fn wait_until(&self, limit: Duration, mut condition: impl FnMut(&Self) -> bool) -> bool {
        let begun = Instant::now();
        loop {
            if condition(self) {
                return true;
            }
            if begun.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for CqlServer {
    fn drop(&mut self) {
        self.door.is_over.store(true, Ordering::SeqCst);
        // The thread ends at once, or at its next check of `is_over`.
        let _ = self.refuse();
        self.shared.open_gate();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
        self.cut_all(Cut::Reset);
        self.shared.wait_for_end();
    }
}

/// The thread that accepts connections.
fn accept(shared: &Arc<Shared>, door: &Arc<Door>) {
    let mut id = 0;
    while !door.is_over() {
        let Some(listener) = door.listener() else {
            shared.wait_while(|| door.listener().is_none() && !door.is_over());
            continue;
        };
        let accepted = listener.accept();
        if !door.listener().is_some_and(|now| Arc::ptr_eq(&now, &listener)) {
            continue;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // Otherwise small replies are delayed by Nagle's algorithm.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        id += 1;
        let link = Arc::new(Link::new(id, stream, Arc::clone(shared)));
        shared.register(&link);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let spawned = std::thread::Builder::new().name(format!("poolhouse-cql-{id}")).spawn({
            let (link, shared) = (Arc::clone(&link), Arc::clone(shared));
            move || connection::serve(&link, &shared)
        });
        if spawned.is_err() {
            link.end(Cut::Reset);
        }
    }
}
