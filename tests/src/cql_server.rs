//! A fake Cassandra node on loopback that speaks the native protocol, versions 3, 4 and 5, and misbehaves on request.
//!
//! ```
//! use core::time::Duration;
//! use poolhouse_cql::Version;
//! use poolhouse_tests::cql_server::{Act, CqlClient, CqlServer, CqlServerOptions, Order, Rule};
//!
//! # fn main() -> std::io::Result<()> {
//! let server = CqlServer::start(CqlServerOptions::default())?;
//! let mut client = CqlClient::open(server.address(), Version::V5, Duration::from_secs(5))?;
//! client.startup(None, None)?;
//! server.add(Rule::statements(Act::Hold { count: 2, order: Order::Reversed }).text("echo "));
//! client.query(7, "echo seven")?;
//! client.query(8, "echo eight")?;
//! assert_eq!(client.reply()?.cell(), Some((8, &b"eight"[..])));
//! assert_eq!(client.reply()?.cell(), Some((7, &b"seven"[..])));
//! # Ok(())
//! # }
//! ```
//!
//! # What it speaks
//!
//! OPTIONS, STARTUP (lz4 and snappy), AUTH_RESPONSE by PasswordAuthenticator if it has credentials, REGISTER and events by
//! [`push`](CqlServer::push), QUERY, PREPARE, EXECUTE, BATCH; everything by core's own codec, looked at from the other side. Clients of others (PyPI's `cassandra-driver`,
//! the crate `scylla`) take it for a cluster of one node, Cassandra 4.1. Statements are answered by what their text begins with:
//!
//! | statement | answer |
//! |---|---|
//! | `echo TEXT` | one row with one cell, a varchar: the text. [`cell_of`] finds it |
//! | `bytes N` or `bytes N TEXT` | one row with one cell, a blob of N bytes (at most 64 MiB): the text again and again |
//! | `void` or `void ..` | no rows |
//! | `delay N STATEMENT` | that of the statement, N milliseconds later (at most an hour) |
//! | `SELECT .. FROM ..` | of `system.local`, `system.peers`, `system.peers_v2`, `system_schema.*`, `system_virtual_schema.*`: rows; conditions are passed over |
//! | `USE KEYSPACE` | the keyspace is set, whatever it is called |
//!
//! Anything else is a syntax error. Variables (`?`) are varchars, and stand for their text wherever they are: `echo ?`, `bytes ?`, also with
//! QUERY. A BATCH does nothing, and that always succeeds.
//!
//! # What it does not
//!
//! It stores nothing, knows no schema but that of its own tables, sends all rows at once, and nothing for tracing, custom payloads or warnings. An [`Act::Error`]
//! is a code and a message, without what some codes tell besides. There are no versions before 3, and no beta of any.
//!
//! # What it does wrong
//!
//! [`Rule`]s say so: for the whole server, for one connection, by the kind of request, or by text. Besides [`refuse`](CqlServer::refuse) and
//! [`resume`](CqlServer::resume) (on the same port), [`cut_all`](CqlServer::cut_all), [`pause_reading`](CqlServer::pause_reading) for back-pressure,
//! [`set_piece_bytes`](CqlServer::set_piece_bytes) for replies in pieces, [`send_raw`](CqlServer::send_raw) for bytes that nobody asked for.
//!
//! # What it costs
//!
//! A thread for each connection, which takes all that one `read` brought and sends all replies to it by one `write`; a second one from the
//! first delayed reply on. A request takes no lock, as long as there are no rules and no log ([`log_max`](CqlServerOptions::log_max) = 0). Replies to what was read
//! together leave together: a client that never reads stops the server at its own connection.
//!
//! Sections to read first: Native Protocol v5, all but the serialization of data types.

mod body;
mod client;
mod connection;
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

use poolhouse_cql::{Compression, EVENT_STREAM, EventKind, Limits, Opcode, Outgoing, Version, encode_envelope};

pub use self::client::{CqlClient, CqlReply, broken_by};
pub use self::rule::{Act, Cut, Order, Part, Rule};
pub use self::shared::{ConnectionInfo, Counts, Received};
pub use self::statement::cell_of;

use self::link::Link;
use self::shared::{Shared, lock};

/// What STARTUP and SUPPORTED call the language.
const CQL_VERSION: &str = "3.4.6";
/// Connections that the system keeps for the server before it takes them.
const BACKLOG: i32 = 1024;
/// Pause after a failed accept, for example while there are no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// How a server is set up. The default: any free port, all versions and compressions, no password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqlServerOptions {
    /// Loopback address to listen on.
    pub ip: IpAddr,
    /// Port to listen on; 0 = any free one.
    pub port: u16,
    /// The versions that are spoken. Others get a protocol error, and the connection is closed.
    pub versions: Vec<Version>,
    /// The compressions that are offered.
    pub compressions: Vec<Compression>,
    /// User and password that clients must know, if any.
    pub credentials: Option<(String, String)>,
    /// How many requests the log keeps; 0 = no log.
    pub log_max: usize,
    /// How much is read at a time, bytes.
    pub read_bytes: usize,
}

impl Default for CqlServerOptions {
    fn default() -> Self {
        Self {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            versions: Version::ALL.into(),
            compressions: Compression::ALL.into(),
            credentials: None,
            log_max: 1024,
            read_bytes: 256 * 1024,
        }
    }
}

impl CqlServerOptions {
    /// The default without a log: nothing is done for a request but to answer it.
    #[must_use]
    pub fn fast() -> Self {
        Self { log_max: 0, ..Self::default() }
    }

    /// The default, but for the versions that are spoken.
    #[must_use]
    pub fn with_versions(versions: &[Version]) -> Self {
        Self { versions: versions.into(), ..Self::default() }
    }

    /// The same, and it asks for a password.
    #[must_use]
    pub fn with_credentials(self, user: &str, password: &str) -> Self {
        Self { credentials: Some((user.to_owned(), password.to_owned())), ..self }
    }
}

impl fmt::Debug for CqlServerOptions {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ip, port, versions, compressions, credentials, log_max, read_bytes } = self;
        f.debug_struct("CqlServerOptions")
            .field("ip", ip)
            .field("port", port)
            .field("versions", versions)
            .field("compressions", compressions)
            .field("credentials", &credentials.is_some())
            .field("log_max", log_max)
            .field("read_bytes", read_bytes)
            .finish()
    }
}

/// An event, as [`CqlServer::push`] sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Push {
    /// `NEW_NODE`, `REMOVED_NODE` or another change of the cluster's members.
    Topology(String, SocketAddr),
    /// `UP`, `DOWN`.
    Status(String, SocketAddr),
    /// `CREATED`, `UPDATED`, `DROPPED`, and the keyspace.
    Keyspace(String, String),
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

/// Where connections come in.
#[derive(Debug)]
struct Door {
    /// Bound for the server's life, so that the port stays ours. It never listens.
    _holder: OwnedFd,
    /// Another one each time: what a socket accepts that was shut down before is shut down, too.
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
    let (socket, _) = crate::fake::bind(address)?;
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
    /// `InvalidInput` for an address that is not loopback, or without any version; otherwise those of the sockets.
    pub fn start(options: CqlServerOptions) -> io::Result<Self> {
        if !options.ip.is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the fake server listens on loopback only"));
        }
        if options.versions.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a server speaks one version at least"));
        }
        let (holder, address) = crate::fake::bind(SocketAddr::new(options.ip, options.port))?;
        let listener = Mutex::new(Some(listen(address)?));
        let door = Arc::new(Door { _holder: holder, listener, is_over: AtomicBool::new(false) });
        let shared = Arc::new(Shared::new(&options, address));
        let thread = std::thread::Builder::new().name("poolhouse-cql".to_owned()).spawn({
            let (shared, door) = (Arc::clone(&shared), Arc::clone(&door));
            move || accept(&shared, &door)
        })?;
        Ok(Self { shared, address, door, thread: Some(thread) })
    }

    /// Where it listens, or will again.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    // What it does wrong.

    /// Adds a rule; it holds for requests that come from now on. Tells its number.
    pub fn add(&self, rule: Rule) -> usize {
        self.shared.add_rule(rule)
    }

    /// Takes a rule out of force. What was delayed or kept by it stays so.
    pub fn remove(&self, number: usize) {
        self.shared.change_script(|rules| rules.retain(|rule| rule.number != number));
    }

    /// Takes all rules out of force. What was delayed or kept by them stays so; connections that are mute or not read from, too.
    pub fn clear_rules(&self) {
        self.shared.change_script(Vec::clear);
    }

    /// How often a rule had its way, in force or not.
    pub fn struck(&self, number: usize) -> u64 {
        self.shared.struck(number)
    }

    /// Sends all replies that are kept by [`Act::Hold`], for each connection in this order; tells how many they were.
    ///
    /// Does not wait until clients have read them, unless they are more than fits into the sockets.
    pub fn release(&self, order: Order) -> usize {
        // What cannot be sent is that of a connection that has ended.
        self.shared.links().iter().filter_map(|link| link.release(order).ok()).sum()
    }

    /// Sends everything in pieces of so many bytes, each by a write of its own; 0 = as it is.
    pub fn set_piece_bytes(&self, bytes: usize) {
        self.shared.piece_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Reads nothing more, from any connection. What one `read` brings that has begun already is kept and not looked at.
    pub fn pause_reading(&self) {
        self.shared.paused.store(true, Ordering::SeqCst);
    }

    /// Reads on, also from connections that [`Act::StopReading`] has stopped.
    pub fn resume_reading(&self) {
        self.shared.paused.store(false, Ordering::SeqCst);
        for link in self.shared.links() {
            link.stopped.store(false, Ordering::SeqCst);
        }
        self.shared.open_gate();
    }

    /// Forgets all prepared statements, as a node does that is started anew.
    pub fn forget_prepared(&self) {
        self.shared.forget_prepared();
    }

    /// Ends a connection now. No-op if it has ended.
    pub fn cut(&self, connection: u64, cut: Cut) {
        if let Some(link) = self.shared.link(connection) {
            link.cut(cut);
        }
    }

    /// Ends all connections now.
    pub fn cut_all(&self, cut: Cut) {
        for link in self.shared.links() {
            link.cut(cut);
        }
    }

    /// Sends bytes on a connection now, as they are. No-op if it has ended.
    pub fn send_raw(&self, connection: u64, bytes: &[u8]) {
        if let Some(link) = self.shared.link(connection) {
            // It may end at this moment.
            let _ = link.send_raw(bytes, 0);
        }
    }

    /// Sends an event to all connections that have registered, for whatever kind; tells how many.
    pub fn push(&self, push: &Push) -> usize {
        let links = self.shared.links();
        let registered = links.iter().filter(|link| link.registered.load(Ordering::SeqCst));
        registered
            .filter(|link| link.send(&push.envelope(link.version().unwrap_or(Version::NEWEST)), 0, false).is_ok())
            .count()
    }

    /// Lets nobody in any more: connecting is refused. Connections that are open stay, and the port stays ours. No-op if it is so already.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn refuse(&self) -> io::Result<()> {
        let Some(listener) = lock(&self.door.listener).take() else { return Ok(()) };
        // Its thread may wait for somebody to come.
        Ok(rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both)?)
    }

    /// Lets clients in again, on the same port. No-op if they are let in.
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

    /// Ends as a process does that is killed: connecting is refused, every connection is reset. [`resume`](Self::resume) brings it back.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn kill(&self) -> io::Result<()> {
        self.refuse()?;
        self.cut_all(Cut::Reset);
        self.shared.wait_for_end();
        Ok(())
    }

    // What can be observed.

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// The connections that are open, in the order that they were accepted in.
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.shared.links().iter().map(|link| link.info()).collect()
    }

    /// Replies that are kept by [`Act::Hold`].
    pub fn held_count(&self) -> usize {
        self.shared.links().iter().map(|link| link.held_count()).sum()
    }

    /// The requests that the log has, the oldest first.
    pub fn log(&self) -> Vec<Received> {
        self.shared.log()
    }

    /// Waits until a condition holds, looked at each millisecond; false if it did not within `limit`.
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

impl Push {
    fn envelope(&self, version: Version) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = encode_envelope(
            &mut bytes,
            Outgoing::new(version, EVENT_STREAM),
            Opcode::Event,
            &Limits::DEFAULT,
            |body| {
                let (kind, change) = match self {
                    Self::Topology(change, _) => (EventKind::Topology, change),
                    Self::Status(change, _) => (EventKind::Status, change),
                    Self::Keyspace(change, _) => (EventKind::Schema, change),
                };
                body.string(kind.name())?.string(change)?;
                match self {
                    Self::Topology(_, node) | Self::Status(_, node) => {
                        match node.ip() {
                            IpAddr::V4(ip) => body.byte(4)?.raw(&ip.octets())?,
                            IpAddr::V6(ip) => body.byte(16)?.raw(&ip.octets())?,
                        };
                        body.int(i32::from(node.port()))?;
                    }
                    Self::Keyspace(_, keyspace) => {
                        body.string("KEYSPACE")?.string(keyspace)?;
                    }
                }
                Ok(())
            },
        );
        debug_assert!(written.is_ok(), "an event of short names");
        bytes
    }
}

impl Drop for CqlServer {
    fn drop(&mut self) {
        self.door.is_over.store(true, Ordering::SeqCst);
        // Its thread finds out at once, or when it looks the next time.
        let _ = self.refuse();
        self.shared.open_gate();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did that would have been seen.
            let _ = thread.join();
        }
        self.cut_all(Cut::Reset);
        self.shared.wait_for_end();
    }
}

/// The thread that lets connections in.
fn accept(shared: &Arc<Shared>, door: &Arc<Door>) {
    let mut id = 0;
    while !door.is_over() {
        let Some(listener) = door.listener() else {
            shared.wait_while(|| door.listener().is_none() && !door.is_over());
            continue;
        };
        let Ok((stream, peer)) = listener.accept() else {
            // Shut, or it passes.
            if door.listener().is_some_and(|now| Arc::ptr_eq(&now, &listener)) {
                std::thread::sleep(ACCEPT_PAUSE);
            }
            continue;
        };
        // Without it small replies would wait for each other.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        id += 1;
        let link = Arc::new(Link::new(id, peer, stream, Arc::clone(shared)));
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
