//! The client's platform on smol: timers, sockets, tasks.

use core::net::SocketAddr;
use poolhouse_client::poolhouse_core::Instant;
use poolhouse_client::{Platform, clock};
use smol::Async;
use std::io;
use std::net::{TcpStream, UdpSocket};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The platform on smol. Its tasks run on smol's global executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smol;

impl Platform for Smol {
    const DRIVER_NAME: &'static str = env!("CARGO_PKG_NAME");
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/smol";

    type Tcp = Async<TcpStream>;
    #[cfg(unix)]
    type Unix = Async<UnixStream>;
    #[cfg(not(unix))]
    type Unix = Async<TcpStream>;
    type Udp = Async<UdpSocket>;
    type Task = smol::Task<()>;

    async fn sleep_until(&self, at: Instant) {
        match clock::to_std(at) {
            Some(at) => {
                smol::Timer::at(at).await;
            }
            None => core::future::pending().await,
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        smol::net::resolve((host, port)).await
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let stream = Async::<TcpStream>::connect(address).await?;
        // Without TCP_NODELAY, small requests wait for the peer's delayed acknowledgement. A
        // failure is ignored, because the socket is usable.
        let _ = stream.get_ref().set_nodelay(true);
        Ok(stream)
    }

    #[cfg(unix)]
    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        Async::<UnixStream>::connect(path).await
    }

    #[cfg(not(unix))]
    async fn connect_unix(&self, _path: &Path) -> io::Result<Self::Unix> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        let any = if peer.is_ipv6() { SocketAddr::from(([0; 16], 0)) } else { SocketAddr::from(([0; 4], 0)) };
        let socket = Async::<UdpSocket>::bind(any)?;
        socket.get_ref().connect(peer)?;
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
        smol::spawn(work)
    }
}
