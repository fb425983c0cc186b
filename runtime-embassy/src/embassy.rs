//! The driver's runtime on embassy: joins the clock, sockets, streams and server slots. Depends
//! neither on the client nor on its runners.

use crate::clock;
use crate::config::Random;
use crate::layout::{ADDRESS_BYTES_MAX, Layout, PerConnection as _};
use crate::lock::ExecutorLock;
use crate::network::Network;
use crate::server_slot::{self, ServerRef, ServerSlot, ServerSlotRef};
use crate::slot::{Buffer, Slot, Socket, StreamError};
use crate::stream::Stream;
#[cfg(feature = "tls")]
use crate::stream::TlsSocket;
use core::cell::Cell;
use core::fmt;
use core::future::poll_fn;
use core::ops::Range;
use core::task::{Poll, Waker};
use embassy_futures::select::{Either, select};
use poolhouse_core::storage::Full;
use poolhouse_core::{Cause, HostAddress, Instant};
use poolhouse_driver::{BaseRuntime, ConnectError, Locked, NewServer, Runtime};

/// The runtime of a client: embassy's clock and timers, the sockets of a network, memory in a static.
pub struct Embassy<L: Layout> {
    pub(crate) network: L::Network,
    pub(crate) slots: &'static L::PerConnection<Slot<L::Network>>,
    pub(crate) dialers: &'static Dialers<L>,
    /// The task that waits until all sockets are free.
    pub(crate) closing: &'static Cell<Option<Waker>>,
    pub(crate) server_slots: &'static [Option<ServerSlot<Self>>],
    pub(crate) random: Option<Random>,
    /// Whether every connection must be encrypted.
    pub(crate) encrypts: bool,
}

/// The wakers of tasks that wait for a socket.
pub(crate) type Dialers<L> = ExecutorLock<<L as Layout>::PerServer<Waker>>;

impl<L: Layout> Embassy<L> {
    /// Returns the network that the connections use.
    #[must_use]
    pub const fn network(&self) -> L::Network {
        self.network
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot<L::Network>> + use<L> {
        self.slots.iter()
    }

    /// The number of free sockets: those that are neither used by a connection nor being closed.
    /// All of [`Layout::SOCKETS`] are free once the client is closed and its last connections have
    /// been closed.
    #[must_use]
    pub fn free_sockets(&self) -> usize {
        self.slots().filter(|slot| slot.is_free()).count()
    }

    /// Whether no connection and no server is left. If one is, the waker is woken when it may be gone.
    pub(crate) fn poll_free(&self, waker: &Waker) -> Poll<()> {
        for slot in self.server_slots.iter().flatten() {
            if slot.poll_free(waker).is_pending() {
                return Poll::Pending;
            }
        }
        if self.free_sockets() == L::SOCKETS {
            return Poll::Ready(());
        }
        self.closing.set(Some(waker.clone()));
        Poll::Pending
    }

    /// Whether no connection and no server is left.
    pub(crate) fn is_free(&self) -> bool {
        self.server_slots.iter().flatten().all(ServerSlot::is_free) && self.free_sockets() == L::SOCKETS
    }

    /// Wakes the tasks that wait for a socket, and the one that waits for all of them, after a socket became free.
    pub(crate) fn wake_dialers(&self) {
        while let Some(dialer) = self.dialers.with(|dialers| dialers.as_mut().iter_mut().find_map(Option::take)) {
            dialer.wake();
        }
        if let Some(closing) = self.closing.take() {
            closing.wake();
        }
    }

    /// Connects, TLS included, with one of these slots.
    async fn dial(
        &self,
        slots: Range<usize>,
        address: &HostAddress<'_>,
        deadline: Option<Instant>,
    ) -> Result<Stream<L::Network>, ConnectError> {
        let HostAddress::Tcp { host, port } = *address else { return Err(Cause::Network.into()) };
        let address = self.address(host, deadline).await?;
        // Dropping this future at any await returns the socket to its slot.
        let mut socket = self.borrow_socket(slots).await;
        let connecting = socket.as_mut().ok_or(Cause::Resources)?;
        self.network.connect(connecting, address, port).await?;
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

    /// Waits for a free socket in one of these slots. There is one for each possible connection; a returned
    /// socket becomes free again when it has been closed.
    async fn borrow_socket(&self, slots: Range<usize>) -> Socket<L::Network> {
        poll_fn(|context| match self.slots().take(slots.end).skip(slots.start).find_map(Slot::borrow) {
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
        let replaced = self.dialers.with(|dialers| {
            let dialers = dialers.as_mut();
            if dialers.iter().flatten().any(|kept| kept.will_wake(waker)) {
                return None;
            }
            let slot = match dialers.iter().position(Option::is_none) {
                Some(free) => dialers.get_mut(free),
                None => dialers.first_mut(),
            };
            slot.and_then(|slot| slot.replace(waker.clone()))
        });
        // If all slots are taken, the waker that is replaced is woken, so its task registers again.
        if let Some(other) = replaced {
            other.wake();
        }
    }

    /// Resolves a host to an address.
    async fn address(&self, host: &str, deadline: Option<Instant>) -> Result<<L::Network as Network>::Address, Cause> {
        let asked = self.network.resolve(host);
        let Some(at) = deadline else { return asked.await };
        match select(asked, self.sleep_until(at)).await {
            Either::First(found) => found,
            Either::Second(()) => Err(Cause::Dns),
        }
    }
}

impl<L: Layout> BaseRuntime for Embassy<L> {
    type Lock<T> = ExecutorLock<T>;
    type Memory = L::Pool;
    type Text = heapless::String<ADDRESS_BYTES_MAX, u8>;
    type Events = L::Events;

    #[inline]
    fn now(&self) -> Instant {
        clock::now()
    }

    /// Without a source of random bytes, the clock is used.
    fn entropy(&self) -> u32 {
        let Some(random) = self.random else { return clock::entropy() };
        let mut bytes = [0; 4];
        random(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    async fn sleep_until(&self, at: Instant) {
        clock::sleep_until(at).await;
    }
}

impl<L: Layout> Runtime for Embassy<L> {
    type Stream = Stream<L::Network>;
    type Buffer = Buffer;
    type Topology = L::Topology;
    type ServerLock = ServerSlotRef<Self>;
    type ServerHandle = ServerRef<Self>;

    const REOPENS: bool = true;

    fn secret_entropy(&self) -> Option<[u8; 24]> {
        let mut bytes = [0; 24];
        self.random?(&mut bytes);
        Some(bytes)
    }

    fn connect(
        &self,
        address: &HostAddress<'_>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Stream<L::Network>, ConnectError>> {
        self.dial(0..L::POOL_SOCKETS, address, deadline)
    }

    fn connect_monitor(
        &self,
        address: &HostAddress<'_>,
    ) -> impl Future<Output = Result<Stream<L::Network>, ConnectError>> {
        self.dial(L::POOL_SOCKETS..L::SOCKETS, address, None)
    }

    fn stream_cause(error: &StreamError) -> Cause {
        error.0
    }

    fn is_private(&self, stream: &Stream<L::Network>) -> bool {
        match stream {
            Stream::Tcp(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => true,
        }
    }

    fn buffers(&self, stream: &Stream<L::Network>) -> Result<(Buffer, Buffer), Full> {
        stream.buffers()
    }

    fn has_slot(&self) -> bool {
        self.server_slots.iter().flatten().any(ServerSlot::is_free)
    }

    fn share_server(&self, server: NewServer<Self>) -> Result<ServerRef<Self>, Full> {
        server_slot::share(self.server_slots, server)
    }
}

impl<L: Layout> fmt::Debug for Embassy<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embassy").field("sockets", &L::SOCKETS).finish_non_exhaustive()
    }
}
