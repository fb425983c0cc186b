//! A stream that encrypts writes and decrypts reads.

use super::TlsConfig;
use super::error::{TlsHandshakeError, stream_error};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use embedded_io_async::{ErrorType, Read, Write};
use poolhouse_driver::yield_now;
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};
use std::io::{self, Read as _, Write as _};

/// The maximum number of encrypted bytes of one read: a whole record.
const INPUT_BYTES: usize = 16 * 1024 + 256;
/// The maximum number of reads that search for the reason of a failed write.
const LAST_READS_MAX: usize = 16;
/// The number of consecutive rounds without plaintext after which a read yields to other futures of
/// its task.
const EMPTY_ROUNDS_MAX: u32 = 32;
/// A larger buffer of encrypted output is freed when it is empty.
const KEEP_BYTES_MAX: usize = INPUT_BYTES;

/// TLS over a connected stream.
///
/// - Dropping a read loses nothing: bytes from the inner stream are stored before anything else is
///   awaited.
/// - A write returns as soon as its bytes are encrypted and buffered, at most 64 KiB of them. If
///   the buffer is full, its content is sent first. [`Write::flush`] sends the rest. A write or
///   flush that is dropped has accepted either all of its bytes or none. The next operation first
///   sends the encrypted bytes that are left, because a truncated or missing record would end the
///   connection.
/// - A read also sends pending output, because the peer may wait for it. It reads even while that
///   output cannot be sent, because the peer may wait until its own output is read.
/// - A read yields to other futures of its task at intervals, so deadlines apply even if the peer
///   sends only empty records.
/// - The end of the inner stream without the peer's close notification is an error
///   (`UnexpectedEof`), not the end of this stream.
/// - Dropping the stream tries once, without waiting, to send a close notification to the peer.
///
/// The reads and writes of the inner stream must lose no byte when they are dropped, and a new one
/// must continue where the dropped one stopped. Those of a socket do.
///
/// Memory: about 20 KiB per idle connection.
pub struct TlsStream<S: Read<Error = io::Error> + Write> {
    socket: S,
    tls: Box<ClientConnection>,
    /// Encrypted input, of which `taken..received` is not decrypted yet.
    input: Box<[u8]>,
    taken: usize,
    received: usize,
    /// Encrypted output, of which the first `sent` bytes are sent.
    output: Vec<u8>,
    sent: usize,
    /// Whether the inner stream may still buffer output.
    flush_is_due: bool,
}

impl<S: Read<Error = io::Error> + Write> TlsStream<S> {
    /// Performs the handshake with the server.
    ///
    /// - `host`: the name or address that was dialed, for which the server's certificate must be
    ///   issued. A name is also sent unencrypted (SNI), an address is not.
    ///
    /// The handshake has no time limit: the caller must limit the time, and drop the future.
    /// Dropping it closes `socket`.
    ///
    /// # Errors
    ///
    /// [`TlsHandshakeError`]. Its [`cause`](TlsHandshakeError::cause) shows whether the server may
    /// be overloaded.
    ///
    /// Source: CMAP, "Establishing a Connection (Internal Implementation)".
    pub async fn connect(config: &TlsConfig, host: &str, socket: S) -> Result<Self, TlsHandshakeError> {
        let mut stream = Self {
            socket,
            tls: Box::new(config.connection(host)?),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            taken: 0,
            received: 0,
            output: Vec::new(),
            sent: 0,
            flush_is_due: false,
        };
        stream.send_all().await?;
        while stream.tls.is_handshaking() {
            if !stream.take_in().await? {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
        // Sends the last flight: the server completes the handshake only when it has received this.
        stream.send_all().await?;
        Ok(stream)
    }

    /// Returns the inner stream, for its socket options.
    pub const fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Returns `TLSv1_2` or `TLSv1_3`.
    pub fn protocol(&self) -> Option<&'static str> {
        self.tls.protocol_version().and_then(|version| {
            [(ProtocolVersion::TLSv1_2, "TLSv1_2"), (ProtocolVersion::TLSv1_3, "TLSv1_3")]
                .into_iter()
                .find_map(|(known, name)| (known == version).then_some(name))
        })
    }

    /// Whether the handshake was shortened because it resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Decrypts input; waits for input if none is buffered. `false`: the inner stream has ended.
    async fn take_in(&mut self) -> io::Result<bool> {
        if self.taken == self.received {
            let received = poll_fn(|context| {
                // The peer may wait for this output before it sends, or wait until its own output
                // is read.
                let sent = pin!(self.send_all()).poll(context);
                match sent {
                    Poll::Ready(sent) => Poll::Ready(sent.map(|()| None)),
                    Poll::Pending => pin!(self.socket.read(&mut self.input)).poll(context).map(|read| read.map(Some)),
                }
            });
            // No await between the end of a read and the update of `received`: no byte is lost.
            let received = match received.await? {
                Some(received) => received,
                None => self.socket.read(&mut self.input).await?,
            };
            self.received = received.min(self.input.len());
            self.taken = 0;
        }
        let taken = self.take();
        if taken.is_err() {
            // Sends the alert with the reason to the peer, if that is possible without waiting.
            self.send_at_once();
        }
        taken
    }

    /// Decrypts as much of the buffered input as the plaintext buffer can hold. `false`: no input
    /// is left, because the inner stream has ended.
    fn take(&mut self) -> io::Result<bool> {
        let mut rest = self.input.get(self.taken..self.received).unwrap_or_default();
        let count = self.tls.read_tls(&mut rest)?;
        self.taken += count;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(count > 0),
            Err(error) => Err(stream_error(error)),
        }
    }

    /// Sends all encrypted output.
    async fn send_all(&mut self) -> io::Result<()> {
        loop {
            if self.sent == self.output.len() {
                self.sent = 0;
                self.output.clear();
                if !self.tls.wants_write() {
                    break;
                }
                while self.tls.wants_write() {
                    self.tls.write_tls(&mut self.output)?;
                }
            }
            let rest = self.output.get(self.sent..).unwrap_or_default();
            match self.socket.write(rest).await {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count.min(rest.len()),
                Err(error) => return Err(self.close_reason().unwrap_or(error)),
            }
            self.flush_is_due = true;
        }
        if self.output.capacity() > KEEP_BYTES_MAX {
            self.output = Vec::new();
        }
        if self.flush_is_due {
            self.socket.flush().await?;
            self.flush_is_due = false;
        }
        Ok(())
    }

    /// Returns the peer's reason for closing the connection, if it has arrived. When a server
    /// refuses this side's certificate, it sends an alert and resets the connection; the reset may
    /// make a write fail before the alert is read.
    fn close_reason(&mut self) -> Option<io::Error> {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..LAST_READS_MAX {
            if self.taken == self.received {
                let read = match pin!(self.socket.read(&mut self.input)).poll(&mut context) {
                    Poll::Ready(Ok(count @ 1..)) => count,
                    Poll::Ready(Ok(0) | Err(_)) | Poll::Pending => return None,
                };
                self.received = read.min(self.input.len());
                self.taken = 0;
            }
            match self.take() {
                Ok(true) => {}
                Ok(false) => return None,
                // An error of the inner stream adds nothing to that of the failed write.
                Err(error) => {
                    return Some(error)
                        .filter(|error| error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()));
                }
            }
        }
        None
    }

    /// Sends as much output as possible without waiting.
    fn send_at_once(&mut self) {
        let sending = pin!(self.send_all());
        // No caller needs the result: complete, pending or failed.
        let _: Poll<io::Result<()>> = sending.poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl<S: Read<Error = io::Error> + Write> Drop for TlsStream<S> {
    fn drop(&mut self) {
        if !self.tls.is_handshaking() && !std::thread::panicking() {
            self.tls.send_close_notify();
            self.send_at_once();
        }
    }
}

impl<S: Read<Error = io::Error> + Write> ErrorType for TlsStream<S> {
    type Error = io::Error;
}

impl<S: Read<Error = io::Error> + Write> Read for TlsStream<S> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, io::Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut more = true;
        let mut rounds = 0;
        loop {
            match self.tls.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && more => {
                    if rounds == EMPTY_ROUNDS_MAX {
                        // Yields, so a peer that sends empty records without end cannot keep the
                        // task from checking deadlines.
                        rounds = 0;
                        yield_now().await;
                    }
                    rounds += 1;
                    more = self.take_in().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                read => return read,
            }
        }
    }
}

impl<S: Read<Error = io::Error> + Write> Write for TlsStream<S> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, io::Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        if let count @ 1.. = self.tls.writer().write(buf)? {
            return Ok(count);
        }
        self.send_all().await?;
        match self.tls.writer().write(buf)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => Ok(count),
        }
    }

    async fn flush(&mut self) -> Result<(), io::Error> {
        self.send_all().await
    }
}

impl<S: Read<Error = io::Error> + Write> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("protocol", &self.protocol()).finish_non_exhaustive()
    }
}
