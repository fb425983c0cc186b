//! The client on compio, a runtime with one thread per core.
//!
//! The sockets, timers and futures of compio are `!Send`, but a [`Platform`] promises `Send` ones.
//! [`SendWrapper`] keeps that promise without a second thread and without a copy: it remembers the
//! thread that created a value, and compares it with the current thread at each use. Therefore a
//! client, its tasks and its users live on one thread; create a client for each thread.
//!
//! The type of a client does not show its thread, so the compiler accepts a handle on another
//! thread. There, an operation on an existing connection fails with an error. Its socket is not
//! closed until the process ends: only its own thread can drop it. Connecting, timeouts and new
//! tasks use the runtime of the thread that polls them, and panic if it has none.
//!
//! Sockets wait for readiness (`POLL_ADD` on an io_uring) and are then read and written with
//! nonblocking calls. Reads with owned buffers, the usual ones of compio, do not fit: the client
//! drops reads that wait, and a dropped read must not take bytes with it.

use compio::net::{TcpStream, ToSocketAddrsAsync, UnixStream};
use compio::runtime::fd::PollFd;
use compio::runtime::{JoinHandle, spawn};
use compio_send_wrapper::SendWrapper;
use futures_io::{AsyncRead, AsyncWrite};
use poolhouse_client::{Platform, clock};
use poolhouse_core::Instant;
use std::future::{pending, poll_fn};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{net, os::unix};

/// A client of one thread. It must be created in a [`compio::runtime::Runtime`], and used there.
pub type Client = poolhouse_client::Client<Compio>;

/// The platform: the runtime of the current thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compio;

/// A nonblocking socket, which its thread waits for.
#[derive(Debug)]
pub struct Socket<S: AsFd>(SendWrapper<PollFd<S>>);

impl<S: AsFd> Socket<S> {
    fn new(socket: S) -> io::Result<Self> {
        Ok(Self(SendWrapper::new(PollFd::new(socket)?)))
    }

    fn get(&self) -> io::Result<&PollFd<S>> {
        self.0.get().ok_or_else(|| io::Error::other("the connection belongs to another thread"))
    }
}

impl<S: AsFd + 'static> AsyncRead for Socket<S>
where
    for<'a> &'a S: Read,
{
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.get()?.poll_read(context, buf)
    }
}

impl<S: AsFd + 'static> AsyncWrite for Socket<S>
where
    for<'a> &'a S: Write,
{
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get()?.poll_write(context, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Platform for Compio {
    const DRIVER_NAME: &'static str = "poolhouse-compio";
    const DRIVER_VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PLATFORM_NAME: &'static str = "Rust/compio";

    type Tcp = Socket<net::TcpStream>;
    type Unix = Socket<unix::net::UnixStream>;
    type Udp = Socket<UdpSocket>;
    type Task = JoinHandle<()>;

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send {
        SendWrapper::new(async move {
            match clock::to_std(at) {
                Some(at) => compio::time::sleep_until(at).await,
                None => pending().await,
            }
        })
    }

    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        SendWrapper::new(async move { Ok((host, port).to_socket_addrs_async().await?.collect()) })
    }

    fn connect_tcp(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Tcp>> + Send {
        SendWrapper::new(async move {
            let connected = TcpStream::connect(address).await?;
            let socket = net::TcpStream::from(connected.as_fd().try_clone_to_owned()?);
            let _ = socket.set_nodelay(true);
            socket.set_nonblocking(true)?;
            Socket::new(socket)
        })
    }

    fn connect_unix(&self, path: &Path) -> impl Future<Output = io::Result<Self::Unix>> + Send {
        SendWrapper::new(async move {
            let connected = UnixStream::connect(path).await?;
            let socket = unix::net::UnixStream::from(connected.as_fd().try_clone_to_owned()?);
            socket.set_nonblocking(true)?;
            Socket::new(socket)
        })
    }

    async fn connect_udp(&self, peer: SocketAddr) -> io::Result<Self::Udp> {
        let any = if peer.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        Socket::new(socket)
    }

    async fn send_udp(&self, socket: &Self::Udp, datagram: &[u8]) -> io::Result<usize> {
        poll_fn(|context| socket.get()?.poll_write_with(context, |socket| socket.send(datagram))).await
    }

    async fn receive_udp(&self, socket: &Self::Udp, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| socket.get()?.poll_read_with(context, |socket| socket.recv(buffer))).await
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, work: F) -> Self::Task {
        spawn(work)
    }
}
