//! Sockets and buffers, which are lent to connections and returned. Depends on the network.
//!
//! A socket exists as long as the client; connections borrow it. A returned socket waits until the
//! runner has closed it, which notifies the server, before it is lent again.

use crate::layout::{ConnectionBuffers, Zero};
use crate::lock::ExecutorLock;
use crate::network::Network;
#[cfg(feature = "tls")]
use crate::tls::Mailbox;
use core::fmt;
use core::task::{Poll, Waker};
use embassy_net::Stack;
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use poolhouse_core::Cause;
use poolhouse_core::storage::Full;
use poolhouse_driver::Locked;
use poolhouse_wire::Sink;

/// The slot of a connection: its socket and buffers.
pub(crate) struct Slot<N: Network> {
    state: ExecutorLock<State<N::Socket>>,
    buffers: BufferSlot,
    /// The mailbox of the socket's TLS session.
    #[cfg(feature = "tls")]
    mailbox: Mailbox<Socket<N>>,
}

struct State<S> {
    socket: SocketState<S>,
    /// The waker of the task that closes the socket.
    closer: Option<Waker>,
}

/// The state of a socket.
enum SocketState<S> {
    /// Lent to a connection, or being closed.
    Lent,
    /// Returned, to be closed.
    Returned(S),
    /// Closed, can be lent.
    Free(S),
}

impl<N: Network> Zero for Slot<N> {
    /// A slot without socket and buffers.
    const ZERO: Self = Self {
        state: ExecutorLock::holding(State { socket: SocketState::Lent, closer: None }),
        buffers: BufferSlot(ExecutorLock::holding(FreeBuffers { input: None, output: None })),
        #[cfg(feature = "tls")]
        mailbox: Mailbox::ZERO,
    };
}

impl<N: Network> Slot<N> {
    /// Creates the socket, and stores it with its buffers.
    pub(crate) fn open(&self, buffers: ConnectionBuffers, network: N) {
        let ConnectionBuffers { receive, send, socket_receive, socket_send } = buffers;
        let socket = network.socket(socket_receive, socket_send);
        let before = self.state.with(|state| core::mem::replace(&mut state.socket, SocketState::Free(socket)));
        drop(before);
        self.buffers.0.with(|free| *free = FreeBuffers { input: Some(receive), output: Some(send) });
    }

    /// The mailbox of the socket's TLS session.
    #[cfg(feature = "tls")]
    pub(crate) const fn mailbox(&'static self) -> &'static Mailbox<Socket<N>> {
        &self.mailbox
    }

    /// The socket, if it and both buffers are free.
    pub(crate) fn borrow(&'static self) -> Option<Socket<N>> {
        if !self.buffers.is_free() {
            return None;
        }
        let socket = self.state.with(|state| match core::mem::replace(&mut state.socket, SocketState::Lent) {
            SocketState::Free(socket) => Some(socket),
            other @ (SocketState::Lent | SocketState::Returned(_)) => {
                state.socket = other;
                None
            }
        })?;
        Some(Socket { slot: self, socket: Some(socket) })
    }

    /// Whether a connection may borrow it.
    pub(crate) fn is_free(&self) -> bool {
        self.buffers.is_free() && self.state.with(|state| matches!(state.socket, SocketState::Free(_)))
    }

    /// Returns a socket that must be closed; if there is none, `waker` is woken when one is
    /// returned.
    pub(crate) fn poll_returned(&'static self, waker: &Waker) -> Poll<Socket<N>> {
        let (socket, _replaced) =
            self.state.with(|state| match core::mem::replace(&mut state.socket, SocketState::Lent) {
                SocketState::Returned(socket) => (Poll::Ready(socket), None),
                other @ (SocketState::Lent | SocketState::Free(_)) => {
                    state.socket = other;
                    (Poll::Pending, state.closer.replace(waker.clone()))
                }
            });
        socket.map(|socket| Socket { slot: self, socket: Some(socket) })
    }

    /// Makes a closed socket free.
    pub(crate) fn put_back(&self, mut socket: Socket<N>) {
        if let Some(socket) = socket.socket.take() {
            self.state.with(|state| state.socket = SocketState::Free(socket));
        }
    }

    /// The buffers for the connection that has borrowed the socket.
    pub(crate) fn buffers(&'static self) -> Result<(Buffer, Buffer), Full> {
        self.buffers.take()
    }
}

impl<N: Network> fmt::Debug for Slot<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.state.with(|state| match state.socket {
            SocketState::Lent => "Lent",
            SocketState::Returned(_) => "Returned",
            SocketState::Free(_) => "Free",
        });
        write!(f, "Slot({socket})")
    }
}

/// The error of a read or a write of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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

/// The errors of sockets have only one cause.
const CUT: StreamError = StreamError(Cause::Network);

/// A socket that is lent to one connection. Dropping it returns it to be closed.
pub struct Socket<N: Network = Stack<'static>> {
    slot: &'static Slot<N>,
    /// `None` only during drop.
    socket: Option<N::Socket>,
}

impl<N: Network> Socket<N> {
    pub(crate) const fn slot(&self) -> &'static Slot<N> {
        self.slot
    }

    pub(crate) const fn as_mut(&mut self) -> Option<&mut N::Socket> {
        self.socket.as_mut()
    }
}

impl<N: Network> ErrorType for Socket<N> {
    type Error = StreamError;
}

impl<N: Network> Read for Socket<N> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        self.as_mut().ok_or(CUT)?.read(buf).await.map_err(|_| CUT)
    }
}

impl<N: Network> Write for Socket<N> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, StreamError> {
        self.as_mut().ok_or(CUT)?.write(buf).await.map_err(|_| CUT)
    }

    async fn flush(&mut self) -> Result<(), StreamError> {
        self.as_mut().ok_or(CUT)?.flush().await.map_err(|_| CUT)
    }
}

impl<N: Network> Drop for Socket<N> {
    fn drop(&mut self) {
        let Some(mut socket) = self.socket.take() else { return };
        N::begin_close(&mut socket);
        let closer = self.slot.state.with(|state| {
            state.socket = SocketState::Returned(socket);
            state.closer.take()
        });
        if let Some(closer) = closer {
            closer.wake();
        }
    }
}

impl<N: Network> fmt::Debug for Socket<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Socket(..)")
    }
}

/// The buffers of a connection that are not lent.
struct BufferSlot(ExecutorLock<FreeBuffers>);

struct FreeBuffers {
    input: Option<&'static mut [u8]>,
    output: Option<&'static mut [u8]>,
}

impl BufferSlot {
    fn is_free(&self) -> bool {
        self.0.with(|free| free.input.is_some() && free.output.is_some())
    }

    fn take(&'static self) -> Result<(Buffer, Buffer), Full> {
        let (input, output) = self.0.with(|free| (free.input.take(), free.output.take()));
        let buffer =
            |side, bytes: Option<&'static mut [u8]>| bytes.map(|bytes| Buffer { slot: self, side, bytes, len: 0 });
        // If only one was free, dropping it returns it.
        match (buffer(Side::Input, input), buffer(Side::Output, output)) {
            (Some(input), Some(output)) => Ok((input, output)),
            _ => Err(Full),
        }
    }
}

/// Selects one of the two buffers.
#[derive(Clone, Copy)]
enum Side {
    Input,
    Output,
}

/// A receive or send buffer of a connection. Dropping it returns it.
pub struct Buffer {
    slot: &'static BufferSlot,
    side: Side,
    /// Empty only during drop.
    bytes: &'static mut [u8],
    len: usize,
}

impl Sink for Buffer {
    #[inline]
    fn written(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline]
    fn written_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or_default()
    }

    #[inline]
    fn append(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.len.checked_add(bytes.len()).ok_or(Full)?;
        self.bytes.get_mut(self.len..end).ok_or(Full)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl poolhouse_driver::Buffer for Buffer {
    fn resize(&mut self, len: usize) -> Result<(), Full> {
        if len > self.bytes.len() {
            return Err(Full);
        }
        self.len = len;
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn limit(&self) -> usize {
        self.bytes.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        self.slot.0.with(|free| match self.side {
            Side::Input => free.input = Some(bytes),
            Side::Output => free.output = Some(bytes),
        });
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the lengths are shown.
        write!(f, "Buffer({} of {} bytes)", self.len, self.bytes.len())
    }
}
