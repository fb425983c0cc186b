//! A blocking client of the native protocol, to observe the server. Of poolhouse-cql it uses only
//! the codec.

use alloc::collections::VecDeque;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use poolhouse_cql::{
    Compression, Consistency, CqlAuthenticator, CqlError, CqlErrorKind, Decoder, Direction, Encoder, Envelope,
    ErrorCode, Header, Limits, Opcode, Outgoing, Parameters, Password, Request, Response, Startup, Version,
    encode_envelope,
};

use super::statement::cell_of;

/// A connection to a server that speaks the native protocol. It blocks; a read or write that
/// exceeds the time limit is an error.
#[derive(Debug)]
pub struct CqlClient {
    stream: TcpStream,
    version: Version,
    decoder: Decoder<Vec<u8>>,
    /// Set after the reply to STARTUP.
    encoder: Option<Encoder>,
    /// Requests that the next flush sends.
    requests: Vec<u8>,
    replies: VecDeque<CqlReply>,
    buffer: Vec<u8>,
}

/// A received reply or event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqlReply {
    /// Its header.
    pub header: Header,
    /// Its body, decompressed.
    pub body: Vec<u8>,
}

impl CqlReply {
    /// The stream id.
    pub fn stream(&self) -> i16 {
        self.header.stream
    }

    /// Returns the stream id, and the cell of the reply to an `echo` or `bytes`; `None` for other
    /// replies.
    pub fn cell(&self) -> Option<(i16, &[u8])> {
        (self.header.opcode == Opcode::Result).then(|| cell_of(&self.body)).flatten().map(|cell| (self.stream(), cell))
    }

    /// Returns the code and message of an ERROR; `None` for other replies.
    pub fn error(&self) -> Option<(ErrorCode, &str)> {
        let envelope = Envelope { header: self.header, body: &self.body };
        match envelope.response() {
            Ok(Response::Error(failure)) => Some((failure.code, failure.message)),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Returns the violation of the protocol, if reading failed because of one.
pub fn broken_by(error: &io::Error) -> Option<CqlErrorKind> {
    let inner = error.get_ref()?.downcast_ref::<CqlError>()?;
    Some(inner.kind())
}

impl CqlClient {
    /// Connects; sends nothing.
    ///
    /// - `limit`: time limit for connecting, and for each call that reads or writes.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn open(address: SocketAddr, version: Version, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self {
            stream,
            version,
            decoder: Decoder::new(version, Direction::Response, Limits::DEFAULT, Vec::new(), Vec::new()),
            encoder: None,
            requests: Vec::new(),
            replies: VecDeque::new(),
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Performs the handshake.
    ///
    /// - `compression`: the requested compression.
    /// - `credentials`: user and password, if the server requires them.
    ///
    /// # Errors
    /// `PermissionDenied` with the server's message if it refuses; `InvalidData` for an unexpected
    /// reply; those of [`reply`](Self::reply).
    pub fn startup(&mut self, compression: Option<Compression>, credentials: Option<(&str, &str)>) -> io::Result<()> {
        let startup = Startup { compression, ..Startup::default() };
        self.request(0, &Request::Startup(startup))?;
        let mut reply = self.reply()?;
        if matches!(reply.header.opcode, Opcode::Ready | Opcode::Authenticate) {
            self.decoder.set_compression(compression);
            self.decoder.set_started();
            self.encoder = Some(Encoder::new(self.version, compression));
        }
        if reply.header.opcode == Opcode::Authenticate {
            let Some((username, password)) = credentials else {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the server requires a password"));
            };
            let mut token = Vec::new();
            let password = Password { username, password };
            encode_envelope(&mut token, self.outgoing(0), Opcode::AuthResponse, &Limits::DEFAULT, |body| {
                body.bytes_with(|body| password.write_token(body)).map(drop)
            })
            .map_err(io::Error::other)?;
            self.requests.extend_from_slice(&token);
            self.flush()?;
            reply = self.reply()?;
        }
        if let Some((code, message)) = reply.error() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{code}: {message}")));
        }
        if matches!(reply.header.opcode, Opcode::Ready | Opcode::AuthSuccess) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected reply to STARTUP: {}", reply.header.opcode)))
    }

    fn outgoing(&self, stream: i16) -> Outgoing {
        Outgoing::new(self.version, stream)
    }

    /// Appends a request to those that the next [`flush`](Self::flush) sends.
    ///
    /// # Errors
    /// `Other` if it cannot be encoded.
    pub fn queue(&mut self, stream: i16, request: &Request<'_>) -> io::Result<()> {
        let outgoing = self.outgoing(stream);
        request.encode(&mut self.requests, outgoing, &Limits::DEFAULT).map(drop).map_err(io::Error::other)
    }

    /// Sends the queued requests, by one write if the socket accepts all bytes.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn flush(&mut self) -> io::Result<()> {
        let requests = core::mem::take(&mut self.requests);
        match &mut self.encoder {
            Some(encoder) => {
                let mut wire = Vec::new();
                encoder.encode(&requests, &mut wire).map_err(io::Error::other)?;
                self.stream.write_all(&wire)
            }
            None => self.stream.write_all(&requests),
        }
    }

    /// Sends a request, and all queued requests.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue) and [`flush`](Self::flush).
    pub fn request(&mut self, stream: i16, request: &Request<'_>) -> io::Result<()> {
        self.queue(stream, request)?;
        self.flush()
    }

    /// Sends a QUERY.
    ///
    /// # Errors
    /// Those of [`request`](Self::request).
    pub fn query(&mut self, stream: i16, text: &str) -> io::Result<()> {
        self.request(stream, &Request::Query { text, parameters: Parameters::new(Consistency::One) })
    }

    /// Appends a QUERY to those that the next [`flush`](Self::flush) sends.
    ///
    /// # Errors
    /// Those of [`queue`](Self::queue).
    pub fn queue_query(&mut self, stream: i16, text: &str) -> io::Result<()> {
        self.queue(stream, &Request::Query { text, parameters: Parameters::new(Consistency::One) })
    }

    /// Sends bytes unmodified.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the next reply or event.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the stream; `InvalidData` for bytes that violate the protocol
    /// (see [`broken_by`]); otherwise those of the socket: `WouldBlock` if no reply arrived in
    /// time.
    pub fn reply(&mut self) -> io::Result<CqlReply> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(reply);
            }
            let count = self.stream.read(&mut self.buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = self.buffer.get(..count).unwrap_or_default();
            loop {
                let invalid = |error: CqlError| io::Error::new(io::ErrorKind::InvalidData, error);
                let step = self.decoder.decode(rest).map_err(invalid)?;
                rest = rest.get(step.consumed_bytes..).unwrap_or_default();
                let Some(Envelope { header, body }) = step.envelope else { break };
                self.replies.push_back(CqlReply { header, body: body.to_vec() });
            }
        }
    }

    /// Returns whether no reply arrives within this time; a reply that arrives is kept.
    ///
    /// # Errors
    /// Those of [`reply`](Self::reply), except the timeout.
    pub fn is_silent_for(&mut self, time: Duration) -> io::Result<bool> {
        let limit = self.stream.read_timeout()?;
        self.stream.set_read_timeout(Some(time))?;
        let result = self.reply();
        self.stream.set_read_timeout(limit)?;
        match result {
            Ok(reply) => {
                self.replies.push_front(reply);
                Ok(false)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
