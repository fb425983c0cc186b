//! Poolhouse on tokio, so that the peers that require tokio are compared on the same executor.
//!
//! This platform is not published: an application on tokio has other clients.

use core::net::SocketAddr;
use poolhouse_client::{Platform, clock};
use poolhouse_core::Instant;
use std::io;
use std::path::Path;
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt as _};
use tokio_util::task::AbortOnDropHandle;

/// The platform on tokio. Its tasks run on the runtime whose context the client is created in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tokio;

impl Platform for Tokio {
    const DRIVER_NAME: &'static str = env!("CARGO_PKG_NAME");
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/tokio";

    type Tcp = Compat<TcpStream>;
    type Unix = Compat<UnixStream>;
    type Udp = UdpSocket;
    type Task = AbortOnDropHandle<()>;

    async fn sleep_until(&self, at: Instant) {
        match clock::to_std(at) {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => core::future::pending().await,
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }

    async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Self::Tcp> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream.compat())
    }

    async fn connect_unix(&self, path: &Path) -> io::Result<Self::Unix> {
        Ok(UnixStream::connect(path).await?.compat())
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
        AbortOnDropHandle::new(tokio::spawn(work))
    }
}
