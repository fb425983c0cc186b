//! The byte streams of connections: sockets, and TLS over them. Depends on the sockets' slots, not on the
//! runtime.

use crate::network::Network;
#[cfg(feature = "tls")]
use crate::slot::Slot;
use crate::slot::{Buffer, Socket, StreamError};
#[cfg(feature = "tls")]
use core::fmt;
use embassy_net::Stack;
use embedded_io_async::{ErrorType, Read, Write};
#[cfg(feature = "tls")]
use poolhouse_core::Cause;
use poolhouse_core::storage::Full;

/// A connected socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream<N: Network = Stack<'static>> {
    /// TCP.
    Tcp(Socket<N>),
    /// TLS over TCP.
    #[cfg(feature = "tls")]
    Tls(TlsSocket<N>),
}

impl<N: Network> Stream<N> {
    /// Its receive and send buffer.
    pub(crate) fn buffers(&self) -> Result<(Buffer, Buffer), Full> {
        match self {
            Self::Tcp(socket) => socket.slot().buffers(),
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.slot.buffers(),
        }
    }
}

impl<N: Network> ErrorType for Stream<N> {
    type Error = StreamError;
}

impl<N: Network> Read for Stream<N> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, StreamError> {
        match self {
            Self::Tcp(socket) => socket.read(buf).await,
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.read(buf).await.map_err(StreamError),
        }
    }
}

impl<N: Network> Write for Stream<N> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, StreamError> {
        match self {
            Self::Tcp(socket) => socket.write(buf).await,
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.write(buf).await.map_err(StreamError),
        }
    }

    async fn flush(&mut self) -> Result<(), StreamError> {
        match self {
            Self::Tcp(socket) => socket.flush().await,
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.flush().await.map_err(StreamError),
        }
    }
}

/// An encrypted connection. Dropping it sends close_notify if possible, and returns its socket to
/// be closed.
///
/// Dropping a read loses no data, but the session continues to wait for the peer: a write before
/// the peer has sent something fails with [`Cause::Cancelled`].
#[cfg(feature = "tls")]
pub struct TlsSocket<N: Network = Stack<'static>> {
    slot: &'static Slot<N>,
}

#[cfg(feature = "tls")]
impl<N: Network> TlsSocket<N> {
    /// Starts a session over a connected socket, in the lane of its slot.
    ///
    /// Not `async`, so the future of connecting does not store the socket and the name.
    ///
    /// # Errors
    ///
    /// [`Cause::Certificate`] if `host` is a name that no certificate can contain.
    pub(crate) fn begin(socket: Socket<N>, host: &str) -> Result<Self, Cause> {
        let slot = socket.slot();
        slot.mailbox().begin(socket, host)?;
        Ok(Self { slot })
    }

    /// Waits until the handshake is done.
    ///
    /// # Errors
    ///
    /// Those of the handshake.
    pub(crate) async fn opened(&self) -> Result<(), Cause> {
        self.slot.mailbox().opened().await
    }

    async fn read(&self, buf: &mut [u8]) -> Result<usize, Cause> {
        self.slot.mailbox().read(buf).await
    }

    async fn write(&self, buf: &[u8]) -> Result<usize, Cause> {
        self.slot.mailbox().write(buf).await
    }

    async fn flush(&self) -> Result<(), Cause> {
        self.slot.mailbox().flush().await
    }
}

#[cfg(feature = "tls")]
impl<N: Network> Drop for TlsSocket<N> {
    fn drop(&mut self) {
        self.slot.mailbox().release();
    }
}

#[cfg(feature = "tls")]
impl<N: Network> fmt::Debug for TlsSocket<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSocket(..)")
    }
}
