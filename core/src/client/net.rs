//! A hosted platform as the shell sees it: [`Net`].

use super::{Events, Platform, dial};
use crate::pool::OnHeap;
use crate::shell::{ConnectError, Endpoint, Runtime, Server};
use crate::storage::Full;
use crate::{Cause, Instant, topology};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use embedded_io_async::{ErrorType, Read, Write};
use futures_io::{AsyncRead, AsyncWrite};
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// The shell's runtime on a hosted platform: its sockets and timers, memory on the heap, events to subscribers.
#[derive(Clone)]
pub struct Net<P> {
    platform: P,
}

impl<P: Platform> Net<P> {
    /// The runtime on this platform.
    pub const fn new(platform: P) -> Self {
        Self { platform }
    }

    /// The platform.
    pub const fn platform(&self) -> &P {
        &self.platform
    }

    /// A socket that is connected to the endpoint, and nothing more.
    async fn dial(&self, endpoint: &Endpoint<'_>) -> Result<Stream<P>, ConnectError> {
        match *endpoint {
            Endpoint::Tcp { host, port } => {
                let addresses =
                    dial::addresses(&self.platform, host, port).await.map_err(|_| ConnectError(Cause::Dns))?;
                let connected = dial::connect_any(&self.platform, &addresses).await;
                connected.map(Stream::Tcp).map_err(|_| ConnectError(Cause::Network))
            }
            Endpoint::Unix { path } => {
                let connected = self.platform.connect_unix(Path::new(path)).await;
                connected.map(Stream::Unix).map_err(|_| ConnectError(Cause::Network))
            }
        }
    }
}

impl<P: Platform> Runtime for Net<P> {
    type Stream = Stream<P>;
    type Buffer = Vec<u8>;
    type Lock<T> = Mutex<T>;
    type Memory = OnHeap;
    type Topology = topology::OnHeap;
    type Text = String;
    type ServerHandle = Arc<Server<Self>>;
    type Events = Events;

    #[inline]
    fn now(&self) -> Instant {
        self.platform.now()
    }

    fn entropy(&self) -> u32 {
        self.platform.entropy()
    }

    #[inline]
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> {
        self.platform.sleep_until(at)
    }

    /// Dials; what is spoken beneath the wire protocol begins here.
    async fn connect(&self, endpoint: &Endpoint<'_>) -> Result<Stream<P>, ConnectError> {
        let stream = self.dial(endpoint).await?;
        Ok(stream)
    }

    fn buffer(&self) -> Result<Vec<u8>, Full> {
        Ok(Vec::new())
    }

    fn share_server(&self, server: Server<Self>) -> Result<Arc<Server<Self>>, Full> {
        Ok(Arc::new(server))
    }
}

impl<P: Platform> fmt::Debug for Net<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("platform", &P::PLATFORM_NAME).finish_non_exhaustive()
    }
}

/// A connected socket.
#[non_exhaustive]
pub enum Stream<P: Platform> {
    /// TCP.
    Tcp(P::Tcp),
    /// A Unix domain socket.
    Unix(P::Unix),
}

impl<P: Platform> Stream<P> {
    #[inline]
    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => Pin::new(socket).poll_read(context, buf),
            Self::Unix(socket) => Pin::new(socket).poll_read(context, buf),
        }
    }

    #[inline]
    fn poll_write(&mut self, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => Pin::new(socket).poll_write(context, buf),
            Self::Unix(socket) => Pin::new(socket).poll_write(context, buf),
        }
    }
}

impl<P: Platform> ErrorType for Stream<P> {
    type Error = io::Error;
}

impl<P: Platform> Read for Stream<P> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, io::Error> {
        poll_fn(|context| self.poll_read(context, buf)).await
    }
}

impl<P: Platform> Write for Stream<P> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, io::Error> {
        poll_fn(|context| self.poll_write(context, buf)).await
    }

    /// Nothing is held back between this and the socket.
    async fn flush(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

impl<P: Platform> fmt::Debug for Stream<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp(..)",
            Self::Unix(_) => "Unix(..)",
        })
    }
}
