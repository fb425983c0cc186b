//! Sockets and buffers, which are lent to connections and returned.
//!
//! A socket exists as long as the client; connections borrow it. A returned socket waits until the
//! runner has closed it, which notifies the server, before it is lent again.

use crate::layout::{ConnectionBuffers, Zero};
use crate::lock::ExecutorLock;
#[cfg(feature = "tls")]
use crate::tls::Mailbox;
use core::fmt;
use core::task::{Poll, Waker};
use embassy_net::Stack;
use embassy_net::tcp::TcpSocket;
#[cfg(feature = "tls")]
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_core::storage::Full;
use poolhouse_driver::Locked;
use poolhouse_wire::Sink;

/// The slot of a connection: its socket and buffers.
pub(crate) struct Slot {
    state: ExecutorLock<State>,
    /// The mailbox of the socket's TLS session.
    #[cfg(feature = "tls")]
    mailbox: Mailbox<Socket>,
}

struct State {
    socket: SocketState,
    /// The buffers that are not lent.
    input: Option<&'static mut [u8]>,
    output: Option<&'static mut [u8]>,
    /// The waker of the task that closes the socket.
    closer: Option<Waker>,
}

/// The state of a socket.
enum SocketState {
    /// Lent to a connection, or being closed.
    Lent,
    /// Returned, to be closed.
    Returned(TcpSocket<'static>),
    /// Closed, can be lent.
    Free(TcpSocket<'static>),
}

impl Zero for Slot {
    /// A slot without socket and buffers.
    const ZERO: Self = Self {
        state: ExecutorLock::holding(State { socket: SocketState::Lent, input: None, output: None, closer: None }),
        #[cfg(feature = "tls")]
        mailbox: Mailbox::ZERO,
    };
}

impl Slot {
    /// Creates the socket, and stores it with its buffers.
    pub(crate) fn open(&self, buffers: ConnectionBuffers, stack: Stack<'static>) {
        let ConnectionBuffers { receive, send, tcp_receive, tcp_send } = buffers;
        let mut socket = TcpSocket::new(stack, tcp_receive, tcp_send);
        // Requests are written as a whole before their reply is awaited, so delaying small segments
        // has no benefit.
        socket.set_nagle_enabled(false);
        let before = self.state.with(|state| {
            core::mem::replace(
                state,
                State { socket: SocketState::Free(socket), input: Some(receive), output: Some(send), closer: None },
            )
        });
        drop(before);
    }

    /// The mailbox of the socket's TLS session.
    #[cfg(feature = "tls")]
    pub(crate) const fn mailbox(&'static self) -> &'static Mailbox<Socket> {
        &self.mailbox
    }

    /// The socket, if it and both buffers are free.
    pub(crate) fn borrow(&'static self) -> Option<Socket> {
        let socket = self.state.with(|state| {
            if state.input.is_none() || state.output.is_none() {
                return None;
            }
            match core::mem::replace(&mut state.socket, SocketState::Lent) {
                SocketState::Free(socket) => Some(socket),
                other @ (SocketState::Lent | SocketState::Returned(_)) => {
                    state.socket = other;
                    None
                }
            }
        })?;
        Some(Socket { slot: self, socket: Some(socket) })
    }

    /// Whether a connection may borrow it.
    pub(crate) fn is_free(&self) -> bool {
        self.state.with(|state| {
            matches!(state.socket, SocketState::Free(_)) && state.input.is_some() && state.output.is_some()
        })
    }

    /// Returns a socket that must be closed; if there is none, `waker` is woken when one is
    /// returned.
    pub(crate) fn poll_returned(&'static self, waker: &Waker) -> Poll<Socket> {
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
    pub(crate) fn put_back(&self, mut socket: Socket) {
        if let Some(socket) = socket.socket.take() {
            self.state.with(|state| state.socket = SocketState::Free(socket));
        }
    }

    /// The buffers for the connection that has borrowed the socket.
    pub(crate) fn buffers(&'static self) -> Result<(Buffer, Buffer), Full> {
        let (input, output) = self.state.with(|state| (state.input.take(), state.output.take()));
        let buffer =
            |side, bytes: Option<&'static mut [u8]>| bytes.map(|bytes| Buffer { slot: self, side, bytes, len: 0 });
        // If only one was free, dropping it returns it.
        match (buffer(Side::Input, input), buffer(Side::Output, output)) {
            (Some(input), Some(output)) => Ok((input, output)),
            _ => Err(Full),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.state.with(|state| match state.socket {
            SocketState::Lent => "Lent",
            SocketState::Returned(_) => "Returned",
            SocketState::Free(_) => "Free",
        });
        write!(f, "Slot({socket})")
    }
}

/// A socket that is lent to one connection. Dropping it returns it to be closed.
pub struct Socket {
    slot: &'static Slot,
    /// `None` only during drop.
    socket: Option<TcpSocket<'static>>,
}

impl Socket {
    pub(crate) const fn slot(&self) -> &'static Slot {
        self.slot
    }

    pub(crate) const fn as_mut(&mut self) -> Option<&mut TcpSocket<'static>> {
        self.socket.as_mut()
    }
}

#[cfg(feature = "tls")]
impl ErrorType for Socket {
    type Error = embassy_net::tcp::Error;
}

#[cfg(feature = "tls")]
impl Read for Socket {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Self::Error> {
        self.as_mut().ok_or(embassy_net::tcp::Error::ConnectionReset)?.read(buf).await
    }
}

#[cfg(feature = "tls")]
impl Write for Socket {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Self::Error> {
        self.as_mut().ok_or(embassy_net::tcp::Error::ConnectionReset)?.write(buf).await
    }

    async fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(mut socket) = self.socket.take() else { return };
        // The network stack sends FIN even if the runner, which closes sockets, was dropped.
        socket.close();
        let closer = self.slot.state.with(|state| {
            state.socket = SocketState::Returned(socket);
            state.closer.take()
        });
        if let Some(closer) = closer {
            closer.wake();
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Socket(..)")
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
    slot: &'static Slot,
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
        self.slot.state.with(|state| match self.side {
            Side::Input => state.input = Some(bytes),
            Side::Output => state.output = Some(bytes),
        });
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets: only the lengths are shown.
        write!(f, "Buffer({} of {} bytes)", self.len, self.bytes.len())
    }
}
