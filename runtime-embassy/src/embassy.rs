//! The driver's runtime on embassy.

use crate::Layout;
use crate::lock::ExecutorLock;
use crate::place::{self, Place, PlaceRef, ServerRef};
use crate::slot::{Buffer, Slots, Socket};
#[cfg(feature = "tls")]
use crate::tls::TlsSocket;
use core::fmt;
use core::future::poll_fn;
use core::net::Ipv4Addr;
use core::task::{Poll, Waker};
use embassy_futures::select::{Either, select};
use embassy_net::{IpAddress, Stack};
use embassy_time::{TICK_HZ, Timer};
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, HostAddress, Instant};
use poolhouse_driver::{BaseRuntime, ConnectError, Locked, NewServer, Runtime};

/// The longest address of a server, in bytes: its name, a colon and its port.
pub const ADDRESS_BYTES_MAX: usize = 80;

/// Fills a buffer with unpredictable random bytes.
pub type Random = fn(&mut [u8]);

/// The runtime of a client: embassy's clock and timers, embassy-net's sockets, memory in a static.
pub struct Embassy<L: Layout> {
    pub(crate) stack: Stack<'static>,
    pub(crate) slots: Slots,
    pub(crate) desk: &'static Desk<L>,
    pub(crate) places: &'static [Option<Place<L>>],
    pub(crate) random: Option<Random>,
    /// Whether every connection must be encrypted.
    pub(crate) encrypts: bool,
}

/// The wakers of tasks that wait for a socket.
pub(crate) type Desk<L> = ExecutorLock<<L as Layout>::Dialers>;

impl<L: Layout> Embassy<L> {
    /// Returns the network stack that the connections use.
    #[must_use]
    pub const fn stack(&self) -> Stack<'static> {
        self.stack
    }

    pub(crate) const fn slots(&self) -> Slots {
        self.slots
    }

    /// The number of free sockets: those that are neither used by a connection nor being closed.
    /// All of [`Layout::SOCKETS`] are free once the client is closed and its last connections have
    /// been closed.
    #[must_use]
    pub fn free_sockets(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_free()).count()
    }

    /// Wakes the tasks that wait for a socket, after a socket became free.
    pub(crate) fn call_dialers(&self) {
        while let Some(dialer) = self.desk.with(|desk| desk.as_mut().iter_mut().find_map(Option::take)) {
            dialer.wake();
        }
    }

    /// Waits for a free socket. There is one for each possible connection; a returned socket
    /// becomes free again when it has been closed.
    async fn borrow_socket(&self) -> Socket {
        poll_fn(|context| match self.slots.borrow() {
            Some(socket) => Poll::Ready(socket),
            None => {
                self.wait_for_socket(context.waker());
                Poll::Pending
            }
        })
        .await
    }

    /// Registers the waker of a connecting task. Connecting tasks are one per server, or a single
    /// one for all servers.
    fn wait_for_socket(&self, waker: &Waker) {
        let crowded = self.desk.with(|desk| {
            let places = desk.as_mut();
            if places.iter().flatten().any(|kept| kept.will_wake(waker)) {
                return None;
            }
            let place = match places.iter().position(Option::is_none) {
                Some(free) => places.get_mut(free),
                None => places.first_mut(),
            };
            place.and_then(|place| place.replace(waker.clone()))
        });
        // If all slots are taken, the waker that is replaced is woken, so its task registers again.
        if let Some(other) = crowded {
            other.wake();
        }
    }

    /// Resolves a host to an address.
    async fn address(&self, host: &str, deadline: Option<Instant>) -> Result<IpAddress, ConnectError> {
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Ok(address.into());
        }
        let asked = self.look_up(host);
        let Some(at) = deadline else { return asked.await };
        match select(asked, self.sleep_until(at)).await {
            Either::First(found) => found,
            Either::Second(()) => Err(Cause::Dns.into()),
        }
    }

    #[cfg(feature = "dns")]
    async fn look_up(&self, host: &str) -> Result<IpAddress, ConnectError> {
        let found = self.stack.dns_query(host, embassy_net::dns::DnsQueryType::A).await;
        found.ok().and_then(|found| found.first().copied()).ok_or(Cause::Dns.into())
    }

    #[cfg(not(feature = "dns"))]
    #[expect(clippy::unused_async, reason = "stands in for one that waits")]
    async fn look_up(&self, _host: &str) -> Result<IpAddress, ConnectError> {
        Err(Cause::Dns.into())
    }
}

impl<L: Layout> BaseRuntime for Embassy<L> {
    type Lock<T> = ExecutorLock<T>;
    type Memory = L::Pool;
    type Text = heapless::String<ADDRESS_BYTES_MAX, u8>;
    type Events = L::Events;

    #[inline]
    fn now(&self) -> Instant {
        now()
    }

    /// Without a source of random bytes, the clock is used.
    fn entropy(&self) -> u32 {
        let Some(random) = self.random else { return entropy_of_the_clock() };
        let mut bytes = [0; 4];
        random(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    async fn sleep_until(&self, at: Instant) {
        sleep_until(at).await;
    }
}

impl<L: Layout> Runtime for Embassy<L> {
    type Stream = Stream;
    type Buffer = Buffer;
    type Topology = L::Topology;
    type ServerLock = PlaceRef<L>;
    type ServerHandle = ServerRef<L>;

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        let mut bytes = [0; 24];
        self.random?(&mut bytes);
        Some(bytes)
    }

    /// Without a cable or a lease this fails at once, and monitors retry at their usual interval.
    /// It cannot wait for the network: embassy-net wakes only one task when that changes, and that
    /// task belongs to the application.
    async fn connect(&self, address: &HostAddress<'_>, deadline: Option<Instant>) -> Result<Stream, ConnectError> {
        let HostAddress::Tcp { host, port } = *address else { return Err(Cause::Network.into()) };
        let address = self.address(host, deadline).await?;
        // Dropping this future at any await returns the socket to its slot.
        let mut socket = self.borrow_socket().await;
        let tcp = socket.as_mut().ok_or(Cause::Resources)?;
        tcp.connect((address, port)).await.map_err(|_| Cause::Network)?;
        if !self.encrypts {
            return Ok(Stream::Tcp(socket));
        }
        #[cfg(feature = "tls")]
        {
            let socket = TlsSocket::begin(socket, host)?;
            socket.opened().await?;
            Ok(Stream::Tls(socket))
        }
        // A client that requires TLS makes no connection without it.
        #[cfg(not(feature = "tls"))]
        Err(Cause::Resources.into())
    }

    fn stream_cause(error: &StreamError) -> Cause {
        error.0
    }

    fn is_private(&self, stream: &Stream) -> bool {
        match stream {
            Stream::Tcp(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => true,
        }
    }

    fn buffers(&self, stream: &Stream) -> Result<(Buffer, Buffer), Full> {
        match stream {
            Stream::Tcp(socket) => socket.slot().buffers(),
            #[cfg(feature = "tls")]
            Stream::Tls(socket) => socket.slot().buffers(),
        }
    }

    fn has_place(&self) -> bool {
        self.places.iter().flatten().any(Place::is_free)
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<ServerRef<L>, Full> {
        place::share(self.places, server)
    }
}

impl<L: Layout> fmt::Debug for Embassy<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embassy").field("sockets", &L::SOCKETS).finish_non_exhaustive()
    }
}

/// The time since the start of the clock.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::from_nanos(nanos_of(embassy_time::Instant::now().as_ticks()))
}

/// Returns at the first tick of the clock that is not before `at`.
pub(crate) async fn sleep_until(at: Instant) {
    Timer::at(embassy_time::Instant::from_ticks(ticks_of(at.as_nanos()))).await;
}

/// Bits for choices among equals, from the clock.
pub(crate) fn entropy_of_the_clock() -> u32 {
    let ticks = embassy_time::Instant::now().as_ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [.., a, b, c, d] = ticks.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Converts ticks of the clock to nanoseconds, rounded down.
const fn nanos_of(ticks: u64) -> u64 {
    if NANOS_PER_SEC.is_multiple_of(TICK_HZ) {
        return ticks.saturating_mul(NANOS_PER_SEC / TICK_HZ);
    }
    let nanos = ticks as u128 * NANOS_PER_SEC as u128 / TICK_HZ as u128;
    saturate(nanos)
}

/// The first tick at or after this number of nanoseconds.
const fn ticks_of(nanos: u64) -> u64 {
    if NANOS_PER_SEC.is_multiple_of(TICK_HZ) {
        return nanos.div_ceil(NANOS_PER_SEC / TICK_HZ);
    }
    let ticks = (nanos as u128 * TICK_HZ as u128).div_ceil(NANOS_PER_SEC as u128);
    saturate(ticks)
}

#[allow(clippy::cast_possible_truncation, reason = "it was compared")]
const fn saturate(count: u128) -> u64 {
    if count > u64::MAX as u128 { u64::MAX } else { count as u64 }
}

/// A connected socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream {
    /// TCP.
    Tcp(Socket),
    /// TLS over TCP.
    #[cfg(feature = "tls")]
    Tls(TlsSocket),
}

/// The error of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamError(pub Cause);

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl embedded_io_async::Error for StreamError {
    fn kind(&self) -> ErrorKind {
        if self.0 == Cause::Network { ErrorKind::ConnectionReset } else { ErrorKind::Other }
    }
}

/// The stack's socket errors have only one cause.
const CUT: StreamError = StreamError(Cause::Network);

impl ErrorType for Stream {
    type Error = StreamError;
}

impl Read for Stream {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        match self {
            Self::Tcp(socket) => socket.as_mut().ok_or(CUT)?.read(buf).await.map_err(|_| CUT),
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.read(buf).await.map_err(StreamError),
        }
    }
}

impl Write for Stream {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, StreamError> {
        match self {
            Self::Tcp(socket) => socket.as_mut().ok_or(CUT)?.write(buf).await.map_err(|_| CUT),
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.write(buf).await.map_err(StreamError),
        }
    }

    /// The network stack sends without a flush. The peer's reply shows that it has received the
    /// data.
    async fn flush(&mut self) -> Result<(), StreamError> {
        match self {
            Self::Tcp(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.flush().await.map_err(StreamError),
        }
    }
}
