//! The client's platform on async-std: timers, sockets, tasks.

use async_std::net::{TcpStream, ToSocketAddrs, UdpSocket};
#[cfg(unix)]
use async_std::os::unix::net::UnixStream;
use async_std::task::{self, JoinHandle};
use core::net::SocketAddr;
use core::panic::AssertUnwindSafe;
use core::pin::pin;
use core::task::{Context, Waker};
use poolhouse_client::Platform;
use poolhouse_client::poolhouse_core::Instant;
use std::io;
use std::panic::catch_unwind;
use std::path::Path;

/// The platform on async-std. Its tasks run on async-std's executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsyncStd;

impl Platform for AsyncStd {
    const DRIVER_NAME: &'static str = env!("CARGO_PKG_NAME");
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/async-std";

    type Tcp = TcpStream;
    #[cfg(unix)]
    type Unix = UnixStream;
    #[cfg(not(unix))]
    type Unix = TcpStream;
    type Udp = UdpSocket;
    type Task = Task;

    async fn sleep_until(&self, at: Instant) {
        // async-std measures the duration from a later reading of the same clock, so the sleep
        // never ends too early.
        task::sleep(at.saturating_since(self.now())).await;
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs().await?.collect())
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let stream = TcpStream::connect(address).await?;
        // Without TCP_NODELAY, small requests wait for the peer's delayed acknowledgement. A
        // failure is ignored, because the socket is usable.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    #[cfg(unix)]
    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        UnixStream::connect(path).await
    }

    #[cfg(not(unix))]
    async fn connect_unix(&self, _path: &Path) -> io::Result<Self::Unix> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        let any = if peer.is_ipv6() { SocketAddr::from(([0; 16], 0)) } else { SocketAddr::from(([0; 4], 0)) };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(peer).await?;
        Ok(socket)
    }

    async fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> io::Result<usize> {
        socket.send(datagram).await
    }

    async fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<usize> {
        socket.recv(buffer).await
    }

    fn spawn<F>(&self, work: F) -> Self::Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Task(Some(task::spawn(work)))
    }
}

/// An async-std task that is cancelled on drop: dropping async-std's own handle would detach the
/// task.
#[derive(Debug)]
pub struct Task(Option<JoinHandle<()>>);

impl Drop for Task {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        // The first poll cancels the task; further polls would wait for its end. If the task has
        // panicked, `cancel` panics too; the first panic was already reported.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _ = pin!(handle.cancel()).poll(&mut Context::from_waker(Waker::noop()));
        }));
    }
}
