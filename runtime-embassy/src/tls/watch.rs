//! The filter between embedded-tls and the socket: it rejects records that are not allowed in the
//! present phase.
//!
//! Read first: RFC 8446, "Record Layer", "Middlebox Compatibility Mode".

use core::cell::Cell;
use embedded_io_async::{Error as _, ErrorKind, ErrorType, Read, Write};
use poolhouse_core::Cause;

/// The version in every record, except in the first one of a client.
pub(super) const VERSION: [u8; 2] = [3, 3];
/// The maximum bytes of a record, of which 256 are for the overhead of encryption.
const RECORD_BYTES_MAX: u16 = 16 * 1024 + 256;
/// The maximum number of consecutive records without progress: those of the handshake, or without
/// data.
const WITHOUT_PROGRESS_MAX: u8 = 32;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const HEADER_BYTES: usize = 5;

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The server's first record, its hello, is expected: unencrypted.
    Hello,
    /// The rest of the handshake: encrypted.
    Handshake,
    /// The handshake is done; records contain data.
    Open,
}

/// The phase that is passed to the cipher, in the last byte of a record's version, which
/// embedded-tls forwards unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Handshake = 3,
    Open = 4,
}

impl Mark {
    pub(super) const fn of(byte: u8) -> Option<Self> {
        match byte {
            3 => Some(Self::Handshake),
            4 => Some(Self::Open),
            _ => None,
        }
    }
}

/// State that the session and its transport share.
#[derive(Debug)]
pub(super) struct Watch {
    phase: Cell<Phase>,
    without_progress: Cell<u8>,
    fault: Cell<Option<Cause>>,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { phase: Cell::new(Phase::Hello), without_progress: Cell::new(0), fault: Cell::new(None) }
    }

    /// Marks the handshake as done.
    pub(super) fn open(&self) {
        self.phase.set(Phase::Open);
        self.without_progress.set(0);
    }

    /// Resets the count of records without data.
    pub(super) fn progress(&self) {
        self.without_progress.set(0);
    }

    /// Whether the handshake is done.
    pub(super) fn is_open(&self) -> bool {
        self.phase.get() == Phase::Open
    }

    /// The cause of the transport's failure, if it has failed.
    pub(super) fn fault(&self) -> Option<Cause> {
        self.fault.get()
    }

    /// Checks a record's header and marks it. Returns the length of the record, or `None` if the
    /// record is not allowed.
    fn admit(&self, header: &mut [u8; HEADER_BYTES]) -> Option<u16> {
        let [kind, major, minor, high, low] = header;
        let len = u16::from_be_bytes([*high, *low]);
        let is_allowed = match (self.phase.get(), *kind) {
            (Phase::Hello, HANDSHAKE) => {
                self.phase.set(Phase::Handshake);
                true
            }
            (Phase::Hello, ALERT) | (Phase::Handshake | Phase::Open, DATA) => true,
            (Phase::Handshake, CHANGE_CIPHER_SPEC) => len == 1,
            (Phase::Hello | Phase::Handshake | Phase::Open, _) => false,
        };
        let without_progress = self.without_progress.get();
        self.without_progress.set(without_progress.saturating_add(1));
        if !is_allowed
            || [*major, *minor] != VERSION
            || len > RECORD_BYTES_MAX
            || without_progress >= WITHOUT_PROGRESS_MAX
        {
            return None;
        }
        let mark = if self.phase.get() == Phase::Open { Mark::Open } else { Mark::Handshake };
        *minor = mark as u8;
        Some(len)
    }

    fn fail(&self, cause: Cause, kind: ErrorKind) -> ErrorKind {
        self.fault.set(Some(cause));
        kind
    }
}

/// A transport that checks incoming records.
pub(super) struct Watched<'w, S> {
    socket: S,
    watch: &'w Watch,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that were received, and that were passed on.
    received: usize,
    passed: usize,
    /// Bytes of the record that were not read yet.
    left: u16,
}

impl<'w, S> Watched<'w, S> {
    pub(super) const fn new(socket: S, watch: &'w Watch) -> Self {
        Self { socket, watch, header: [0; HEADER_BYTES], received: 0, passed: 0, left: 0 }
    }
}

impl<S> ErrorType for Watched<'_, S> {
    type Error = ErrorKind;
}

impl<S: Read> Watched<'_, S> {
    /// Waits for a complete header. Returns `false` if the peer has ended the stream.
    async fn header(&mut self) -> Result<bool, ErrorKind> {
        if self.passed == HEADER_BYTES && self.left == 0 {
            self.received = 0;
            self.passed = 0;
        }
        while self.received < HEADER_BYTES {
            let room = self.header.get_mut(self.received..).unwrap_or_default();
            let limit = room.len();
            let read = self.socket.read(room).await;
            let count = read.map_err(|error| self.watch.fail(Cause::Network, error.kind()))?;
            if count == 0 {
                return Ok(false);
            }
            self.received += count.min(limit);
            if self.received == HEADER_BYTES {
                let admitted = self.watch.admit(&mut self.header);
                self.left = admitted.ok_or_else(|| self.watch.fail(Cause::Protocol, ErrorKind::InvalidData))?;
            }
        }
        Ok(true)
    }
}

impl<S: Read> Read for Watched<'_, S> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        if buf.is_empty() || !self.header().await? {
            return Ok(0);
        }
        let header = self.header.get(self.passed..).unwrap_or_default();
        if !header.is_empty() {
            let count = header.len().min(buf.len());
            buf.iter_mut().zip(header).for_each(|(to, from)| *to = *from);
            self.passed += count;
            return Ok(count);
        }
        let limit = buf.len().min(usize::from(self.left));
        let room = buf.get_mut(..limit).unwrap_or_default();
        let read = self.socket.read(room).await;
        let count = read.map_err(|error| self.watch.fail(Cause::Network, error.kind()))?.min(limit);
        self.left = self.left.saturating_sub(u16::try_from(count).unwrap_or(u16::MAX));
        Ok(count)
    }
}

impl<S: Write> Write for Watched<'_, S> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        let written = self.socket.write(buf).await;
        match written {
            Ok(0) if !buf.is_empty() => Err(self.watch.fail(Cause::Network, ErrorKind::WriteZero)),
            Ok(count) => Ok(count.min(buf.len())),
            Err(error) => Err(self.watch.fail(Cause::Network, error.kind())),
        }
    }

    /// The network stack sends without a flush. The peer's reply shows that it has received the
    /// data.
    async fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}
