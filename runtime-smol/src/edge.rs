//! A platform with fewer system calls: smol's executor and an edge-triggered reactor (feature
//! `edge`).
//!
//! The reactor of [`Smol`](crate::Smol), async-io, registers a socket again for each wait, and sets
//! a timer of the system at each wait. The reactor of [`Edge`] registers a socket once, takes a
//! read that does not fill its buffer as the last one until there is news, and needs no timer of the
//! system. It is one thread for the process, which the first use starts; `smol` itself stays on
//! async-io.
//!
//! ```
//! use poolhouse_smol::bson::doc;
//! use poolhouse_smol::edge::{self, Client};
//!
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri();
//! # smol::block_on(async {
//! let client = Client::new(&uri).await?;
//! // As with `poolhouse_smol::Client`, any executor may poll the futures of the client.
//! client.run_command("admin", doc! { "ping": 1 }).await?;
//! // On the thread of the reactor, no other thread has to be woken when the reply is there.
//! let pings = edge::spawn({
//!     let client = client.clone();
//!     async move { client.run_command("admin", doc! { "ping": 1 }).await }
//! });
//! pings.await?;
//! client.close().await;
//! # Ok::<(), poolhouse_smol::Error>(())
//! # })?;
//! # Ok::<(), poolhouse_smol::Error>(())
//! ```
//!
//! # When to use it
//!
//! For tasks that send many small commands to MongoDB, with [`spawn`]: system calls are most of the
//! client's work then. With tasks of any other executor, `Edge` is slower than `Smol`, because each
//! reply has to wake another thread. So is a session of Cassandra, with [`spawn`] too (0.77 of the
//! requests of `Smol`): its tasks, which read the replies, run on smol's executor.
//!
//! On Linux, with 10 connections, both processes on a core of their own, at commit fa458d9c on a machine that
//! was not idle (the sections `clients` and `servers` of `tests/compare` have these rows):
//!
//! | `ping` | 1 task | 10 tasks | 100 tasks |
//! |---|---|---|---|
//! | system calls by `strace -c -f` on a mongod: `Smol` | 7.8 | 6.2 | 5.8 |
//! | `Edge`, tasks by [`spawn`] | 3.0 | 2.1 | 2.4 |
//! | `Edge`, tasks by `smol::spawn` | 5.0 | 3.0 | 2.9 |
//! | commands a second on a fast fake server, `Smol` = 1: `Edge`, [`spawn`] | 1.02 | 1.21 | 1.07 |
//! | `Edge`, `smol::spawn` | 0.89 | 0.72 | 0.76 |
//! | processor time for a command, `Smol` = 1: `Edge`, [`spawn`] | 0.90 | 0.86 | 0.85 |
//! | `Edge`, `smol::spawn` | 1.12 | 1.36 | 1.25 |
//!
//! # Costs
//!
//! - A thread and three descriptors of the system. They stay until the process ends.
//! - On Linux, timers are up to 1 ms late; those of `Smol` are not.
//!
//! The module exists on Linux, Android, macOS, iOS and the BSDs.

mod reactor;
mod readiness;
mod socket;
#[cfg(test)]
mod tests;
mod timers;

pub use socket::Socket;

use alloc::vec::Vec;
use core::future::poll_fn;
use core::net::SocketAddr;
use poolhouse_client::Platform;
use poolhouse_client::poolhouse_core::Instant;
use reactor::{Reactor, Sleep};
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;

/// A client on the edge-triggered reactor: see [`poolhouse_client::Client`].
pub type Client = poolhouse_client::Client<Edge>;

/// Runs a task on the thread of the reactor.
///
/// The thread reads the replies of its tasks itself, so a command needs one write, one read, and a
/// share of one wait for all tasks. The tasks must be short between two awaits, as on any executor:
/// while one runs, no other runs, and no socket or timer of the platform [`Edge`] is served.
///
/// Dropping the returned task cancels it. If it panics, the others continue. In the child of a fork
/// no task runs. A task must not fork: the child would take events of the parent's sockets.
///
/// # Panics
///
/// The system has no descriptor or thread for the reactor, at its first use.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> smol::Task<T> {
    Reactor::get().executor.spawn(future)
}

/// The platform on the edge-triggered reactor. The background tasks of its clients run on smol's global executor,
/// and names are resolved on smol's thread pool.
///
/// # Panics
///
/// The first socket or timer of the process starts the reactor, and panics if the system has no descriptor
/// or thread for it; the next one tries again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edge;

impl Platform for Edge {
    const DRIVER_NAME: &'static str = env!("CARGO_PKG_NAME");
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/smol";

    type Tcp = Socket<TcpStream>;
    type Unix = Socket<UnixStream>;
    type Udp = Socket<UdpSocket>;
    type Task = smol::Task<()>;

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send {
        Sleep::until(at)
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        smol::net::resolve((host, port)).await
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let stream = Socket::new(TcpStream::from(mio::net::TcpStream::connect(address)?))?;
        let check = |stream: &TcpStream| match stream.take_error()? {
            Some(error) => Err(error),
            None => match stream.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
                connected => connected.map(drop),
            },
        };
        poll_fn(|context| stream.poll_write_with(context, check)).await?;
        // Without TCP_NODELAY, small requests wait for the peer's delayed acknowledgement. A
        // failure is ignored, because the socket is usable.
        let _ = stream.get_ref().set_nodelay(true);
        Ok(stream)
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        // The system connects such sockets at once.
        Socket::new(UnixStream::from(mio::net::UnixStream::connect(path)?))
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        let any = if peer.is_ipv6() { SocketAddr::from(([0; 16], 0)) } else { SocketAddr::from(([0; 4], 0)) };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(peer)?;
        Socket::new(socket)
    }

    async fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> io::Result<usize> {
        poll_fn(|context| socket.poll_write_with(context, |socket| socket.send(datagram))).await
    }

    async fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| socket.poll_read_with(context, |socket| socket.recv(buffer))).await
    }

    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        smol::spawn(work)
    }
}
