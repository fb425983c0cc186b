//! A stream that encrypts what is written to it, and decrypts what is read.

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
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};
use std::io::{self, Read as _, Write as _};

/// Encrypted bytes that one read takes in: a whole record.
const INPUT_BYTES: usize = 16 * 1024 + 256;
/// Reads that are tried for the reason of a failed write.
const LAST_READS_MAX: usize = 16;
/// Times that a read takes something in without any plaintext in it, one after the other, before others have their turn.
const FRUITLESS_ROUNDS_MAX: u32 = 32;
/// A buffer of encrypted bytes for sending that has become larger than this is given back.
const KEEP_BYTES_MAX: usize = INPUT_BYTES;

/// TLS over a connected stream.
///
/// - Dropping a read loses nothing: every byte that the inner stream gave is taken in before anything else is awaited.
/// - A write returns as soon as its bytes are encrypted and kept, at most 64 KiB of them; what came before is sent first when that is full.
///   [`Write::flush`] sends the rest. A write or flush that is dropped has either taken bytes or not; encrypted bytes that it leaves behind
///   go out first next time, because a record that is cut or left out would end the connection.
/// - Reading sends besides what is still to be sent, since the peer may wait for it; and reads although that cannot be sent, since the peer may wait for that.
/// - A read gives way now and then to others of its task, so that a peer that sends records with nothing in them is still subject to deadlines.
/// - An end of the inner stream that the peer did not announce is an error (`UnexpectedEof`), not an end.
/// - Dropping the stream tries once, without waiting, to tell the peer that nothing follows.
///
/// The inner stream's own reads and writes must be such that dropping them loses no byte, and that a new one goes on where that one was: those of a socket are.
///
/// Costs some 20 KiB per connection while it is idle.
pub struct TlsStream<S: Read<Error = io::Error> + Write> {
    socket: S,
    tls: Box<ClientConnection>,
    /// Encrypted bytes that came, of which `taken..received` are not taken in yet.
    input: Box<[u8]>,
    taken: usize,
    received: usize,
    /// Encrypted bytes to be sent, of which `sent` are.
    output: Vec<u8>,
    sent: usize,
    /// Whether the inner stream may still hold something back.
    flush_is_due: bool,
}

impl<S: Read<Error = io::Error> + Write> TlsStream<S> {
    /// Shakes hands with the server.
    ///
    /// - `host`: the name or address that the server is reached by, which its certificate must be for. A name is also sent in the clear
    ///   (SNI), an address is not.
    ///
    /// Waits for as long as the peer lets it: bound the time, and drop the future. Dropping it closes `socket`.
    ///
    /// # Errors
    ///
    /// [`TlsHandshakeError`], whose [`cause`](TlsHandshakeError::cause) says which part of it may mean an overloaded server.
    ///
    /// Source: CMAP, "Establishing a Connection (Internal Implementation)" (CMAP-45).
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
        // The last flight: until it is sent, the handshake has not ended for the server.
        stream.send_all().await?;
        Ok(stream)
    }

    /// The inner stream, for its socket options.
    pub const fn get_ref(&self) -> &S {
        &self.socket
    }

    /// `TLSv1_2` or `TLSv1_3`.
    pub fn protocol(&self) -> Option<&'static str> {
        self.tls.protocol_version().and_then(|version| {
            [(ProtocolVersion::TLSv1_2, "TLSv1_2"), (ProtocolVersion::TLSv1_3, "TLSv1_3")]
                .into_iter()
                .find_map(|(known, name)| (known == version).then_some(name))
        })
    }

    /// Whether the handshake was a short one, that went on with an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Takes encrypted bytes in, waiting for some if there are none. `false`: none will come any more.
    async fn take_in(&mut self) -> io::Result<bool> {
        if self.taken == self.received {
            let received = poll_fn(|context| {
                // The peer may send nothing before it has this, or take nothing before what it has sent is taken.
                let sent = pin!(self.send_all()).poll(context);
                match sent {
                    Poll::Ready(sent) => Poll::Ready(sent.map(|()| None)),
                    Poll::Pending => pin!(self.socket.read(&mut self.input)).poll(context).map(|read| read.map(Some)),
                }
            });
            // Nothing is awaited between the end of a read and the place where its bytes are noted.
            let received = match received.await? {
                Some(received) => received,
                None => self.socket.read(&mut self.input).await?,
            };
            self.received = received.min(self.input.len());
            self.taken = 0;
        }
        let taken = self.take();
        if taken.is_err() {
            // The peer is told why, if that can be done at once.
            self.send_at_once();
        }
        taken
    }

    /// Decrypts of what has come as much as there is room for. `false`: nothing has, and nothing will come any more.
    fn take(&mut self) -> io::Result<bool> {
        let mut rest = self.input.get(self.taken..self.received).unwrap_or_default();
        let count = self.tls.read_tls(&mut rest)?;
        self.taken += count;
        match self.tls.process_new_packets() {
            Ok(_) => Ok(count > 0),
            Err(error) => Err(stream_error(error)),
        }
    }

    /// Sends all that is encrypted.
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
                Err(error) => return Err(self.last_words().unwrap_or(error)),
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

    /// Why the peer has hung up, if it has said so and that has arrived: a refusal of this side's certificate may be overtaken by the
    /// reset that follows it.
    fn last_words(&mut self) -> Option<io::Error> {
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
                // What is of the stream itself says no more than the failed write does.
                Err(error) => {
                    return Some(error)
                        .filter(|error| error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()));
                }
            }
        }
        None
    }

    /// Sends what can be sent without waiting.
    fn send_at_once(&mut self) {
        let sending = pin!(self.send_all());
        // Whether it is done, under way or failed: there is nobody to tell.
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
                    if rounds == FRUITLESS_ROUNDS_MAX {
                        // A peer that always has another empty record must not keep its reader from the time.
                        rounds = 0;
                        give_way().await;
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

/// Is pending once, and ready at once after that.
async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if core::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
