//! The interface that a hosted runtime implements.

use super::clock;
use alloc::vec::Vec;
use core::net::SocketAddr;
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_core::Instant;
use std::io;
use std::path::Path;

/// A hosted runtime: its clock, timers, sockets and tasks.
///
/// The [`Client`](super::Client) is generic over this trait; an adapter such as `poolhouse-smol`
/// implements it and exports an alias of the client. The futures are `Send`, so the tasks of the
/// client and of its users can run on any thread. Dropping a future cancels its work without
/// waiting and without side effects: a connection that is not yet established is closed.
///
/// If a method or one of its futures panics in a background task of the client, the panic is
/// caught: it fails one attempt, and the task restarts after 500 ms. In an operation of the user,
/// the panic propagates to the user, and the operation's connection is closed.
pub trait Platform: Clone + Send + Sync + 'static {
    /// The driver name in the client metadata; at most 32 bytes.
    const DRIVER_NAME: &'static str;
    /// The driver version in the client metadata; at most 24 bytes.
    const DRIVER_VERSION: &'static str;
    /// The language and runtime in the client metadata, such as `Rust/smol`.
    const PLATFORM_NAME: &'static str;

    /// Whether the platform works in the child of a fork. Either its executor and reactor are
    /// created for each client and not shared by the whole process, or the platform detects that
    /// they belong to another process. False by default: then a new client in a child is refused
    /// ([`SetupError::Forked`](crate::SetupError::Forked)) if its parent, or an earlier ancestor,
    /// had created a client on such a platform.
    const SURVIVES_FORK: bool = false;

    /// A connected TCP socket. Writes are passed to the system at once; dropping it closes it.
    type Tcp: AsyncRead + AsyncWrite + Unpin + Send + Sync;
    /// A connected Unix domain socket, with the requirements of [`Platform::Tcp`]; any type on
    /// systems without such sockets.
    type Unix: AsyncRead + AsyncWrite + Unpin + Send + Sync;
    /// A UDP socket that is connected to one peer.
    type Udp: Send + Sync;
    /// A spawned task. Dropping it cancels the task without waiting for the cancellation.
    type Task: Send;

    /// Returns the current time of a monotonic clock, in nanoseconds since an origin that the
    /// platform chooses. It is called under locks: it must not call the client, nor panic.
    #[inline]
    fn now(&self) -> Instant {
        clock::now()
    }

    /// Returns once `now()` is at least `at`, never earlier. [`clock::to_std`] converts `at` for
    /// the standard library.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send;

    /// Returns uniform random bits, for a choice between equal candidates. They need not be
    /// unpredictable. It is called under a lock: it must not call the client, nor panic.
    fn entropy(&self) -> u32 {
        fastrand::u32(..)
    }

    /// Fills `bytes` with unpredictable random bytes, for nonces and query ids. By default they are
    /// from the operating system.
    ///
    /// # Errors
    ///
    /// The operating system cannot supply random bytes.
    fn fill_secret(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::from)
    }

    /// Returns the addresses of a host, with `port`, in the system's order of preference
    /// (`getaddrinfo`). Blocks no thread that polls tasks.
    ///
    /// A lookup outlives the attempt to connect that began it: if its future is pending at the limit of
    /// time, the next attempt for the host polls it on, perhaps in another task. A client has at most
    /// one pending lookup for each host, and at most four in all. A panic is an error of the lookup.
    ///
    /// - `host`: a name, or an IPv6 address with a zone.
    ///
    /// # Errors
    ///
    /// The name is not resolved. An empty result means the same.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;

    /// Connects to a TCP address. Small writes are not delayed (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    fn connect_tcp(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send;

    /// Connects to a Unix domain socket.
    ///
    /// # Errors
    ///
    /// The error of the operating system; [`io::ErrorKind::Unsupported`] on systems without Unix
    /// domain sockets.
    fn connect_unix(&self, path: &Path) -> impl Future<Output = io::Result<Self::Unix>> + Send;

    /// Returns a UDP socket on a port that the system chooses, connected to `peer`: it receives
    /// only datagrams of `peer`.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    fn connect_udp(&self, peer: SocketAddr) -> impl Future<Output = io::Result<Self::Udp>> + Send;

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Receives one datagram, truncated to the length of `buffer`. Returns the number of bytes
    /// stored.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Runs a future in the background until it ends or the returned task is dropped. If the
    /// executor stops and drops the future before it ends, the client is closed: operations then
    /// fail with [`OperationError::Abandoned`](poolhouse_driver::OperationError::Abandoned).
    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static;
}
