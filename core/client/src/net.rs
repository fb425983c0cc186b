//! The driver's runtime for a hosted platform: [`Net`].

use super::fork::{ProcessFuture, Socket};
use super::lookup::{Found, Lookups, Work};
use super::resolver::before;
use super::{Events, Platform, dial};
#[cfg(feature = "tls")]
use crate::tls::{TlsConfig, TlsStream};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::future::pending;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::observe::contain;
use poolhouse_core::pool::OnHeap;
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, HostAddress, Instant, Reason, topology};
use poolhouse_driver::{
    BaseRuntime, ConnectError, ForkGuard, Guarded, NewServer, Runtime, Server, ServerState, TaskGuard,
};
use poolhouse_uri::dns::{LookupError, Resolver};
use std::io;
use std::path::Path;
use std::sync::Mutex;

/// The driver's runtime on a hosted platform: its sockets and timers, memory on the heap, and
/// events for subscribers.
#[derive(Clone)]
pub struct Net<P> {
    platform: P,
    /// Detects that this process is a fork of the one that created the value.
    birth: ForkGuard,
    resolver: Option<Arc<dyn Resolver>>,
    lookups: Arc<Lookups>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl<P: Platform> Net<P> {
    /// Creates the runtime of this process on a platform.
    ///
    /// # Panics
    ///
    /// On its first call in a process, if the system has no memory for fork detection.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            birth: ForkGuard::default(),
            resolver: None,
            lookups: Arc::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the resolver for host addresses. The platform resolves the hosts for which the resolver
    /// returns `None`, and all hosts if there is no resolver.
    #[must_use]
    pub fn with_resolver(self, resolver: Option<Arc<dyn Resolver>>) -> Self {
        Self { resolver, ..self }
    }

    /// Sets the TLS configuration of TCP connections; with `None`, they are not encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: Option<TlsConfig>) -> Self {
        Self { tls, ..self }
    }

    /// Returns the TLS configuration of TCP connections.
    #[cfg(feature = "tls")]
    pub const fn tls(&self) -> Option<&TlsConfig> {
        self.tls.as_ref()
    }

    /// Returns the platform.
    pub const fn platform(&self) -> &P {
        &self.platform
    }

    /// Returns the addresses of a host: from the resolver if it handles hosts, else from the
    /// platform. An IP address needs no lookup.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        // An IPv6 address with a zone is not passed to the resolver.
        if let Some(resolver) = self.resolver.as_ref().filter(|_| !host.contains(':')) {
            if let Some(found) = resolver.lookup_addresses(host).await {
                // An empty result means that the name is not resolved, as it does from the
                // platform.
                let found = match found {
                    Ok(found) if found.is_empty() => Err(LookupError::NoRecords),
                    found => found,
                };
                let found = found.map_err(|error| ConnectError::new(Cause::Dns, Reason::new(error)))?;
                return Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
            }
        }
        let begin = || -> Work { Box::pin(look_up(self.platform.clone(), host.to_owned(), port)) };
        let mut found = self.lookups.find(host, || self.platform.now(), begin).await?;
        found.iter_mut().for_each(|address| address.set_port(port));
        Ok(found)
    }

    /// Discards the lookups that have outlived the attempts which began them, once the client is closed.
    pub(super) fn discard_lookups(&self) {
        self.lookups.discard_abandoned();
    }

    /// Connects a socket to the address, without TLS.
    async fn dial(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream<P>, ConnectError> {
        match *address {
            HostAddress::Tcp { host, port } => {
                let lookup = self.addresses(host, port);
                let addresses = match deadline {
                    Some(at) => before(&self.platform, at, lookup)
                        .await
                        .unwrap_or_else(|| Err(io_error(Cause::Dns, io::ErrorKind::TimedOut.into())))?,
                    None => lookup.await?,
                };
                let connected = dial::connect_any(&self.platform, &addresses).await;
                connected
                    .map(|socket| Stream::Tcp(Socket::new(socket)))
                    .map_err(|error| io_error(Cause::Network, error))
            }
            HostAddress::Unix(path) => {
                let connected = self.platform.connect_unix(Path::new(path)).await;
                connected
                    .map(|socket| Stream::Unix(Socket::new(socket)))
                    .map_err(|error| io_error(Cause::Network, error))
            }
        }
    }
}

impl<P: Platform> BaseRuntime for Net<P> {
    type Lock<T> = Mutex<T>;
    type Memory = OnHeap;
    type Text = String;
    type Events = Events;

    #[inline]
    fn now(&self) -> Instant {
        self.platform.now()
    }

    fn entropy(&self) -> u32 {
        self.platform.entropy()
    }

    async fn sleep_until(&self, at: Instant) {
        if ProcessFuture::new(self.platform.sleep_until(at)).await.is_none() {
            // In the child of a fork, the timer never fires: no operation continues there.
            pending().await
        }
    }

    #[inline]
    fn is_forked(&self) -> bool {
        self.birth.is_forked()
    }

    #[inline]
    fn contain<T>(work: impl FnOnce() -> T) -> Option<T> {
        contain(work)
    }

    fn run_task<T, F>(guard: TaskGuard<T>, begin: impl FnMut(T) -> F) -> impl Future<Output = ()>
    where
        T: Deref<Target: Guarded<Runtime = Self>> + Clone,
        F: Future<Output = ()>,
    {
        guard.run_restarting(begin)
    }
}

impl<P: Platform> Runtime for Net<P> {
    type Stream = Stream<P>;
    type Buffer = Vec<u8>;
    type Topology = topology::OnHeap;
    type ServerLock = Mutex<ServerState<Self>>;
    type ServerHandle = Arc<Server<Self>>;

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        let mut bytes = [0; 24];
        self.platform.fill_secret(&mut bytes).ok()?;
        Some(bytes)
    }

    fn is_private(&self, stream: &Stream<P>) -> bool {
        match stream {
            Stream::Tcp(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => self.tls.as_ref().is_some_and(TlsConfig::verifies_servers),
            Stream::Unix(_) => true,
        }
    }

    fn is_encrypted(&self, stream: &Stream<P>) -> bool {
        !matches!(stream, Stream::Tcp(_))
    }

    /// Connects a socket, with TLS where it is configured. A Unix domain socket stays on this
    /// machine and never uses TLS.
    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream<P>, ConnectError> {
        let stream = self.dial(address, deadline).await?;
        #[cfg(feature = "tls")]
        if let (Some(tls), HostAddress::Tcp { host, .. }) = (&self.tls, address) {
            return stream.encrypted(tls, host).await;
        }
        Ok(stream)
    }

    #[cfg(feature = "tls")]
    fn stream_cause(error: &io::Error) -> Cause {
        crate::tls::cause_of(error)
    }

    fn stream_reason(error: io::Error) -> Reason {
        Reason::new(error)
    }

    fn buffers(&self, _stream: &Stream<P>) -> Result<(Vec<u8>, Vec<u8>), Full> {
        Ok((Vec::new(), Vec::new()))
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<Arc<Server<Self>>, Full> {
        server.share(|state| Ok(Mutex::new(state))).map(Arc::new)
    }
}

impl<P: Platform> fmt::Debug for Net<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("platform", &P::PLATFORM_NAME).finish_non_exhaustive()
    }
}

async fn look_up<P: Platform>(platform: P, host: String, port: u16) -> Found {
    let found = platform.resolve(&host, port).await.map_err(|error| io_error(Cause::Dns, error))?;
    if found.is_empty() {
        return Err(io_error(Cause::Dns, io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

fn io_error(cause: Cause, error: io::Error) -> ConnectError {
    ConnectError::new(cause, Reason::new(error))
}

/// A connected socket.
#[non_exhaustive]
pub enum Stream<P: Platform> {
    /// TCP.
    Tcp(Socket<P::Tcp>),
    /// TLS on TCP.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<Socket<P::Tcp>>>),
    /// A Unix domain socket.
    Unix(Socket<P::Unix>),
}

#[cfg(feature = "tls")]
impl<P: Platform> Stream<P> {
    async fn encrypted(self, tls: &TlsConfig, host: &str) -> Result<Self, ConnectError> {
        match self {
            Self::Tcp(socket) => match TlsStream::connect(tls, host, socket).await {
                Ok(stream) => Ok(Self::Tls(Box::new(stream))),
                Err(error) => Err(ConnectError::new(error.cause(), Reason::new(error))),
            },
            stream @ (Self::Tls(_) | Self::Unix(_)) => Ok(stream),
        }
    }
}

impl<P: Platform> ErrorType for Stream<P> {
    type Error = io::Error;
}

impl<P: Platform> Read for Stream<P> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, io::Error> {
        match self {
            Self::Tcp(socket) => socket.read(buf).await,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(buf).await,
            Self::Unix(socket) => socket.read(buf).await,
        }
    }
}

impl<P: Platform> Write for Stream<P> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, io::Error> {
        match self {
            Self::Tcp(socket) => socket.write(buf).await,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(buf).await,
            Self::Unix(socket) => socket.write(buf).await,
        }
    }

    /// Flushes TLS. Plain sockets have no write buffer.
    async fn flush(&mut self) -> Result<(), io::Error> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.flush().await,
        }
    }
}

impl<P: Platform> fmt::Debug for Stream<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp(..)",
            #[cfg(feature = "tls")]
            Self::Tls(_) => "Tls(..)",
            Self::Unix(_) => "Unix(..)",
        })
    }
}
