//! smol as the shell sees it: clock, timers, sockets.

use alloc::sync::Arc;
use core::future::Future;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::pool::OnHeap;
use poolhouse_core::shell::{ConnectError, Endpoint, Runtime, Server, Subscribers};
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, Instant, topology};
use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use std::io;
use std::net::TcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Mutex};

/// Poolhouse's runtime on smol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smol;

/// The origin of this process's instants.
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

impl Runtime for Smol {
    type Stream = Stream;
    type Buffer = Vec<u8>;
    type Lock<T> = Mutex<T>;
    type Memory = OnHeap;
    type Topology = topology::OnHeap;
    type Text = String;
    type ServerHandle = Arc<Server<Self>>;
    type Events = Subscribers;

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn entropy(&self) -> u32 {
        fastrand::u32(..)
    }

    async fn sleep_until(&self, at: Instant) {
        match ORIGIN.checked_add(core::time::Duration::from_nanos(at.as_nanos())) {
            Some(at) => {
                smol::Timer::at(at).await;
            }
            None => core::future::pending().await,
        }
    }

    async fn connect(&self, endpoint: &Endpoint<'_>) -> Result<Stream, ConnectError> {
        match *endpoint {
            Endpoint::Tcp { host, port } => connect_tcp(host, port).await,
            Endpoint::Unix { path } => connect_unix(path).await,
        }
    }

    fn buffer(&self) -> Result<Vec<u8>, Full> {
        Ok(Vec::new())
    }

    fn share_server(&self, server: Server<Self>) -> Result<Arc<Server<Self>>, Full> {
        Ok(Arc::new(server))
    }
}

async fn connect_tcp(host: &str, port: u16) -> Result<Stream, ConnectError> {
    let addresses = smol::net::resolve((host, port)).await.map_err(|_| ConnectError(Cause::Dns))?;
    if addresses.is_empty() {
        return Err(ConnectError(Cause::Dns));
    }
    for address in addresses {
        if let Ok(stream) = Async::<TcpStream>::connect(address).await {
            // Without it small requests wait for the peer's delayed acknowledgement. A socket that refuses is usable still.
            let _ = stream.get_ref().set_nodelay(true);
            return Ok(Stream::Tcp(stream));
        }
    }
    Err(ConnectError(Cause::Network))
}

#[cfg(unix)]
async fn connect_unix(path: &str) -> Result<Stream, ConnectError> {
    Async::<UnixStream>::connect(path).await.map(Stream::Unix).map_err(|_| ConnectError(Cause::Network))
}

#[cfg(not(unix))]
async fn connect_unix(_path: &str) -> Result<Stream, ConnectError> {
    Err(ConnectError(Cause::Network))
}

/// A connected socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream {
    /// TCP.
    Tcp(Async<TcpStream>),
    /// A Unix domain socket.
    #[cfg(unix)]
    Unix(Async<UnixStream>),
}

impl ErrorType for Stream {
    type Error = io::Error;
}

impl Read for Stream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, io::Error> {
        match self {
            Self::Tcp(stream) => stream.read(buf).await,
            #[cfg(unix)]
            Self::Unix(stream) => stream.read(buf).await,
        }
    }
}

impl Write for Stream {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, io::Error> {
        match self {
            Self::Tcp(stream) => stream.write(buf).await,
            #[cfg(unix)]
            Self::Unix(stream) => stream.write(buf).await,
        }
    }

    /// Nothing is held back between this and the socket.
    async fn flush(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

/// Runs a future on smol's global executor until it ends or the task is dropped.
pub(crate) fn spawn<F>(future: F) -> smol::Task<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    smol::spawn(future)
}
