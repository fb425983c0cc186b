//! The byte streams of connections: TCP, and TLS over it. Depends on the sockets' slots, not on the
//! runtime.

#[cfg(feature = "tls")]
use crate::slot::Slot;
use crate::slot::{Buffer, Socket};
use core::fmt;
use embedded_io_async::{ErrorKind, ErrorType, Read, Write};
use poolhouse_core::Cause;
use poolhouse_core::storage::Full;

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

impl Stream {
    /// Its receive and send buffer.
    pub(crate) fn buffers(&self) -> Result<(Buffer, Buffer), Full> {
        match self {
            Self::Tcp(socket) => socket.slot().buffers(),
            #[cfg(feature = "tls")]
            Self::Tls(socket) => socket.slot.buffers(),
        }
    }
}

/// The error of a read or a write of a [`Stream`].
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

/// An encrypted connection. Dropping it sends close_notify if possible, and returns its socket to
/// be closed.
///
/// Dropping a read loses no data, but the session continues to wait for the peer: a write before
/// the peer has sent something fails with [`Cause::Cancelled`].
#[cfg(feature = "tls")]
pub struct TlsSocket {
    slot: &'static Slot,
}

#[cfg(feature = "tls")]
impl TlsSocket {
    /// Starts a session over a connected socket, in the lane of its slot.
    ///
    /// Not `async`, so the future of connecting does not store the socket and the name.
    ///
    /// # Errors
    ///
    /// [`Cause::Certificate`] if `host` is a name that no certificate can contain.
    pub(crate) fn begin(socket: Socket, host: &str) -> Result<Self, Cause> {
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
impl Drop for TlsSocket {
    fn drop(&mut self) {
        self.slot.mailbox().release();
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSocket(..)")
    }
}
