//! A blocking client for administrative commands: one request, one reply, a deadline.
//!
//! It shares no code with the crates under test, so that both cannot have the same bug.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bson::{Bson, Document, doc};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{APP_NAME, MongodError};

/// Length of a message header.
const HEADER_BYTES: usize = 16;

/// Header, flags and the kind of the only section.
const PREFIX_BYTES: usize = HEADER_BYTES + 5;

/// The default limit of servers for their messages, bytes.
const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// The opcode of OP_MSG.
const OP_MSG: i32 = 2013;

/// Plain text, or TLS.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }
}

/// A connection after its `hello`.
#[derive(Debug)]
pub(super) struct Client {
    stream: Stream,
    request_id: i32,
}

impl Client {
    /// Connects and sends `hello`.
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        deadline: Instant,
    ) -> Result<Self, MongodError> {
        let doing = || format!("connecting to {address}");
        let left = remaining(deadline).map_err(MongodError::io(doing()))?;
        let stream = TcpStream::connect_timeout(&address, left).map_err(MongodError::io(doing()))?;
        stream.set_nodelay(true).map_err(MongodError::io(doing()))?;
        let stream = match tls {
            None => Stream::Plain(stream),
            Some(config) => {
                let connection = ClientConnection::new(config, address.ip().into()).map_err(io::Error::other);
                let connection = connection.map_err(MongodError::io(doing()))?;
                Stream::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
        };
        let mut client = Self { stream, request_id: 0 };
        let hello = doc! {
            "hello": 1,
            "client": {
                "application": { "name": APP_NAME },
                "driver": { "name": APP_NAME, "version": env!("CARGO_PKG_VERSION") },
                "os": { "type": std::env::consts::OS },
            },
        };
        client.run_command("admin", hello, deadline)?;
        Ok(client)
    }

    /// Runs one command; after any error except [`MongodError::Command`] the connection is
    /// unusable.
    pub(super) fn run_command(
        &mut self,
        database: &str,
        mut command: Document,
        deadline: Instant,
    ) -> Result<Document, MongodError> {
        let name = command.keys().next().cloned().unwrap_or_default();
        command.insert("$db", database);
        self.request_id = self.request_id.wrapping_add(1);
        let request = encode(self.request_id, &command)?;
        let reply = self.exchange(&request, deadline).map_err(MongodError::io(format!("command {name}")))?;
        accepted(decode(&reply, self.request_id)?)
    }

    /// Writes the request and reads one complete message.
    fn exchange(&mut self, request: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
        let mut rest = request;
        while !rest.is_empty() {
            self.limit(deadline)?;
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut message = vec![0; 4];
        self.read_exact(&mut message, deadline)?;
        let length = int32(&message, 0).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(length));
        let length = length.ok_or_else(|| io::Error::other("the message claims an impossible length"))?;
        message.resize(length, 0);
        self.read_exact(&mut message[4..], deadline)?;
        Ok(message)
    }

    /// Sets the time limits of the next operations. TLS may read in order to write, and write in
    /// order to read.
    fn limit(&self, deadline: Instant) -> io::Result<()> {
        let left = Some(remaining(deadline)?);
        self.stream.socket().set_read_timeout(left)?;
        self.stream.socket().set_write_timeout(left)
    }

    fn read_exact(&mut self, mut rest: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !rest.is_empty() {
            self.limit(deadline)?;
            match self.stream.read(rest) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => rest = &mut rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the time until `deadline`; an error if there is none left.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Encodes an OP_MSG with one document.
pub(super) fn encode(request_id: i32, command: &Document) -> Result<Vec<u8>, MongodError> {
    let body = command.to_vec().map_err(|error| MongodError::Malformed(format!("the command itself: {error}")))?;
    let length = i32::try_from(PREFIX_BYTES + body.len());
    let length = length.map_err(|_| MongodError::Malformed("the command itself is too long".to_owned()))?;
    let mut message = Vec::with_capacity(PREFIX_BYTES + body.len());
    for field in [length, request_id, 0, OP_MSG, 0] {
        message.extend_from_slice(&field.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(&body);
    Ok(message)
}

/// Returns the document of an OP_MSG that answers `request_id`.
pub(super) fn decode(message: &[u8], request_id: i32) -> Result<Document, MongodError> {
    let expected = [
        ("responseTo", int32(message, 8), Some(request_id)),
        ("opcode", int32(message, 12), Some(OP_MSG)),
        ("flags", int32(message, HEADER_BYTES), Some(0)),
        ("kind", message.get(PREFIX_BYTES - 1).map(|kind| i32::from(*kind)), Some(0)),
    ];
    for (field, is, should) in expected {
        if is != should {
            return Err(MongodError::Malformed(format!("{field} is {is:?} instead of {should:?}")));
        }
    }
    let mut body = message.get(PREFIX_BYTES..).unwrap_or_default();
    let document = Document::from_reader(&mut body).map_err(|error| MongodError::Malformed(error.to_string()))?;
    if body.is_empty() {
        Ok(document)
    } else {
        Err(MongodError::Malformed(format!("{} bytes follow the document", body.len())))
    }
}

/// Returns the reply, or the error that it contains.
fn accepted(reply: Document) -> Result<Document, MongodError> {
    if matches!(reply.get("ok"), Some(Bson::Double(1.0) | Bson::Int32(1) | Bson::Int64(1))) {
        return Ok(reply);
    }
    let text = |key| reply.get_str(key).unwrap_or_default().to_owned();
    Err(MongodError::Command {
        code: reply.get_i32("code").unwrap_or_default(),
        name: text("codeName"),
        message: text("errmsg"),
        reply: Box::new(reply),
    })
}

/// Returns the little-endian integer at `at`.
fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(i32::from_le_bytes)
}
