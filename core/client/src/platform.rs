//! What a hosted runtime supplies.

use super::clock;
use alloc::vec::Vec;
use core::net::SocketAddr;
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_core::Instant;
use std::io;
use std::path::Path;

/// A hosted runtime: its clock and timers, its sockets, its tasks.
///
/// A [`Client`](super::Client) is written once over this; an adapter such as `poolhouse-smol` implements it and names the
/// client after itself. The futures are `Send`, so that the client's tasks and its users' may run on any thread. Dropping one gives
/// up what it does, without waiting and without a trace: a half-made connection is closed.
///
/// A panic of what is called here, or of a future of it, is contained where it is the client's own work that called: it costs one attempt, and that work goes on
/// after 500 ms. In an operation of the user's it is the user's; a connection that the operation has is returned.
pub trait Platform: Clone + Send + Sync + 'static {
    /// What a server is told of the driver: its name, at most 32 bytes.
    const DRIVER_NAME: &'static str;
    /// What a server is told of the driver: its version, at most 24 bytes.
    const DRIVER_VERSION: &'static str;
    /// What a server is told of language and runtime, such as `Rust/smol`.
    const PLATFORM_NAME: &'static str;

    /// Whether the platform is as good as new in the child of a fork: its executor and its reactor are not those of the process, but made for each
    /// client or found to be another's. False, by default: then a child is refused a client ([`SetupError::Forked`](crate::SetupError::Forked)) if its parent,
    /// or one before that, had made one on such a platform.
    const SURVIVES_FORK: bool = false;

    /// A connected TCP socket. What is written goes to the system at once; dropping it closes it.
    type Tcp: AsyncRead + AsyncWrite + Unpin + Send + Sync;
    /// A connected Unix domain socket, as [`Platform::Tcp`]; any type where there are none.
    type Unix: AsyncRead + AsyncWrite + Unpin + Send + Sync;
    /// A UDP socket that speaks to one peer.
    type Udp: Send + Sync;
    /// A task that was spawned. Dropping it cancels the task without waiting for that.
    type Task: Send;

    /// Nanoseconds since an origin of the platform's choice, on a clock that does not go back.
    #[inline]
    fn now(&self) -> Instant {
        clock::now()
    }

    /// Returns once `now()` is at least `at`; never earlier. [`clock::to_std`] helps.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send;

    /// Uniform random bits, for choices among equals; need not be secret.
    fn entropy(&self) -> u32 {
        fastrand::u32(..)
    }

    /// Fills `bytes` with random ones that nobody can guess: nonces, ids of questions. By default the system's.
    ///
    /// # Errors
    ///
    /// The system has none.
    fn fill_secret(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::from)
    }

    /// The addresses of a host, with `port`, in the order of the system's preference (`getaddrinfo`). Blocks no thread of tasks.
    ///
    /// - `host`: a name, or an IPv6 address with a zone.
    ///
    /// # Errors
    ///
    /// The name is not resolved. No addresses mean the same.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;

    /// Connects to a TCP address; small writes are not held back (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The system's.
    fn connect_tcp(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send;

    /// Connects to a Unix domain socket.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::Unsupported`] where there are none.
    fn connect_unix(&self, path: &Path) -> impl Future<Output = io::Result<Self::Unix>> + Send;

    /// A UDP socket on a port of the system's choice, connected to `peer`: it takes datagrams from nobody else.
    ///
    /// # Errors
    ///
    /// The system's.
    fn connect_udp(&self, peer: SocketAddr) -> impl Future<Output = io::Result<Self::Udp>> + Send;

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// The system's.
    fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Receives one datagram, cut off at the end of `buffer`; how many bytes of it there are.
    ///
    /// # Errors
    ///
    /// The system's.
    fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Runs a future in the background until it ends or the task is dropped. A future that is dropped before, because the executor ends, closes its client:
    /// operations then fail with [`OperationError::Abandoned`](poolhouse_driver::OperationError::Abandoned).
    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static;
}
