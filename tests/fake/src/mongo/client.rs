//! A small blocking client for tests that returns every message as received.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use bson::{Document, doc};

use super::compress::{Algorithm, compressed};
use super::wire::{self, Form, HEADER_BYTES};

/// Longest reply that the client reads, bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A received reply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The message's own requestID.
    pub request_id: i32,
    /// The requestID of the request that it answers.
    pub response_to: i32,
    /// The flags of the OP_MSG; `None` = OP_REPLY.
    pub flags: Option<u32>,
    /// The algorithm with which it was compressed.
    pub algorithm: Option<Algorithm>,
    /// The document.
    pub body: Document,
}

impl Reply {
    /// Returns whether another reply follows without a request.
    pub fn more_to_come(&self) -> bool {
        self.flags.is_some_and(|flags| flags & wire::MORE_TO_COME != 0)
    }
}

/// A blocking connection over any stream.
#[derive(Debug)]
pub struct BlockingClient<S = TcpStream> {
    stream: S,
    request_id: i32,
}

impl BlockingClient<TcpStream> {
    /// Connects; reads time out after `read_limit`.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn connect(address: SocketAddr, read_limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, read_limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(read_limit))?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> BlockingClient<S> {
    /// Creates a client over a connected stream.
    pub fn over(stream: S) -> Self {
        Self { stream, request_id: 0 }
    }

    /// Returns the stream, for reading and writing arbitrary bytes.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends `command` to `database` and reads its reply.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for a reply that is malformed or answers another request.
    pub fn run(&mut self, database: &str, command: Document) -> io::Result<Document> {
        let request_id = self.send(0, with_database(command, database))?;
        let reply = self.read()?;
        if reply.response_to != request_id {
            return Err(invalid(format!("request {request_id} was answered as {}", reply.response_to)));
        }
        Ok(reply.body)
    }

    /// Sends a hello with an application name and reads its reply.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn hello(&mut self, app_name: &str) -> io::Result<Document> {
        self.run("admin", hello(app_name))
    }

    /// Sends an OP_MSG with these flags; returns its requestID.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self, flags: u32, body: Document) -> io::Result<i32> {
        self.request_id += 1;
        let mut out = Vec::new();
        wire::encode_msg(&mut out, self.request_id, 0, flags, &body);
        self.stream.write_all(&out)?;
        Ok(self.request_id)
    }

    /// Sends a compressed OP_MSG; returns its requestID.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_compressed(&mut self, algorithm: Algorithm, flags: u32, body: Document) -> io::Result<i32> {
        self.request_id += 1;
        let mut out = Vec::new();
        wire::encode_msg(&mut out, self.request_id, 0, flags, &body);
        self.stream.write_all(&compressed(algorithm, &out))?;
        Ok(self.request_id)
    }

    /// Sends an OP_QUERY; returns its requestID.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_query(&mut self, collection: &str, body: Document) -> io::Result<i32> {
        self.request_id += 1;
        let mut out = Vec::new();
        wire::encode_query(&mut out, self.request_id, collection, &body);
        self.stream.write_all(&out)?;
        Ok(self.request_id)
    }

    /// Reads one message.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for a malformed message.
    pub fn read(&mut self) -> io::Result<Reply> {
        let mut frame = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut frame)?;
        let header = wire::header(&frame, REPLY_BYTES_MAX).map_err(invalid)?;
        let length = header.map_or(HEADER_BYTES, |header| header.length);
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[HEADER_BYTES..])?;
        let message = wire::decode(&frame).map_err(invalid)?;
        let flags = match message.form {
            Form::Msg { flags } => Some(flags),
            Form::Query | Form::Reply => None,
        };
        let (request_id, response_to) = (message.header.request_id, message.header.response_to);
        Ok(Reply { request_id, response_to, flags, algorithm: message.algorithm, body: message.body })
    }
}

/// Returns a hello with the client metadata that servers require.
pub fn hello(app_name: &str) -> Document {
    doc! {
        "hello": 1,
        "helloOk": true,
        "client": {
            "application": { "name": app_name },
            "driver": { "name": "poolhouse-tests", "version": "0" },
            "os": { "type": "any" },
        },
        "$db": "admin",
    }
}

fn with_database(mut command: Document, database: &str) -> Document {
    command.entry("$db".to_owned()).or_insert_with(|| database.into());
    command
}

fn invalid(error: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
