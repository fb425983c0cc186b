//! A blocking client for administrative commands: one request, one reply, a deadline.
//!
//! It shares no code with the crates under test, so that both cannot have the same bug.

use alloc::sync::Arc;
use core::fmt::Debug;
use core::net::SocketAddr;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use bson::{Bson, Document};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{APP_NAME, MongodError};
use crate::fake::{BlockingClient, hello};

/// Plain text, or TLS.
trait Stream: Read + Write + Debug + Send {}

impl<S: Read + Write + Debug + Send> Stream for S {}

/// A stream with a deadline of all its operations.
#[derive(Debug)]
struct Limited {
    stream: Box<dyn Stream>,
    /// Its socket.
    socket: TcpStream,
    deadline: Instant,
}

impl Limited {
    /// Sets the time limits of the next operation. TLS may read in order to write, and write in
    /// order to read.
    fn limit(&self) -> io::Result<()> {
        let left = Some(remaining(self.deadline)?);
        self.socket.set_read_timeout(left)?;
        self.socket.set_write_timeout(left)
    }
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(buffer)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.limit()?;
        self.stream.flush()
    }
}

/// A connection after its `hello`.
#[derive(Debug)]
pub(super) struct Client(BlockingClient<Limited>);

impl Client {
    /// Connects and sends `hello`.
    pub(super) fn connect(
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        deadline: Instant,
    ) -> Result<Self, MongodError> {
        let connected = || {
            let socket = TcpStream::connect_timeout(&address, remaining(deadline)?)?;
            socket.set_nodelay(true)?;
            let own = socket.try_clone()?;
            let stream: Box<dyn Stream> = match tls {
                None => Box::new(own),
                Some(config) => {
                    let connection = ClientConnection::new(config, address.ip().into()).map_err(io::Error::other)?;
                    Box::new(StreamOwned::new(connection, own))
                }
            };
            Ok(Limited { stream, socket, deadline })
        };
        let stream = connected().map_err(MongodError::io(format!("connecting to {address}")))?;
        let mut client = Self(BlockingClient::over(stream));
        client.run_command("admin", hello(APP_NAME), deadline)?;
        Ok(client)
    }

    /// Runs one command; after any error except [`MongodError::Command`] the connection is
    /// unusable.
    pub(super) fn run_command(
        &mut self,
        database: &str,
        command: Document,
        deadline: Instant,
    ) -> Result<Document, MongodError> {
        let name = command.keys().next().cloned().unwrap_or_default();
        self.0.stream().deadline = deadline;
        accepted(self.0.run(database, command).map_err(MongodError::io(format!("command {name}")))?)
    }
}

/// Returns the time until `deadline`; an error if there is none left.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
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
