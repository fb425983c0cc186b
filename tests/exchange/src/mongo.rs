//! Common code of platform benchmarks: `ping` as bare bytes over any socket, and by clients whose
//! connections are established.

use core::net::SocketAddr;
use core::time::Duration;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use poolhouse_client::{Client, ClientOptions, Platform};
use poolhouse_wire::message::{Limits, Outgoing, encode_command};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The bytes of one request, and the length of its reply.
#[derive(Debug)]
pub struct Exchange {
    request: Vec<u8>,
    reply_bytes: usize,
}

/// A bare socket and its buffer.
#[derive(Debug)]
pub struct Socket<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S> Socket<S> {
    /// Takes a connected socket.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; 4096] }
    }
}

impl Exchange {
    /// Prepares a `ping` of this server.
    #[must_use]
    pub fn with(server: SocketAddr) -> Self {
        let mut request = Vec::new();
        encode_command(&mut request, Outgoing::request(1), &Limits::DEFAULT, "admin", |body| {
            body.int32("ping", 1).map(drop)
        })
        .expect("a small command");
        let mut socket = connect(server);
        socket.stream.write_all(&request).expect("connected");
        // A short reply arrives in one segment; its length must match its header.
        let reply_bytes = socket.stream.read(&mut socket.buffer).expect("connected");
        let claimed = socket.buffer.first_chunk().map_or(0, |length| i32::from_le_bytes(*length));
        assert_eq!(usize::try_from(claimed), Ok(reply_bytes), "one whole reply");
        Self { request, reply_bytes }
    }

    /// Sends the request and waits for the whole reply.
    pub async fn once<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: &mut Socket<S>) {
        socket.stream.write_all(&self.request).await.expect("connected");
        let mut received = 0;
        while received < self.reply_bytes {
            let count = socket.stream.read(&mut socket.buffer[received..]).await.expect("connected");
            assert_ne!(count, 0, "the server closed a socket");
            received += count;
        }
        assert_eq!(received, self.reply_bytes);
    }

    /// The same as `once`, with a blocking socket.
    pub fn once_blocking(&self, socket: &mut Socket<TcpStream>) {
        socket.stream.write_all(&self.request).expect("connected");
        socket.stream.read_exact(&mut socket.buffer[..self.reply_bytes]).expect("answered");
    }
}

/// Connects a blocking socket.
#[must_use]
pub fn connect(server: SocketAddr) -> Socket<TcpStream> {
    let stream = TcpStream::connect(server).expect("a server that listens");
    stream.set_nodelay(true).expect("a TCP socket");
    Socket::new(stream)
}

/// Returns a client whose connections are all established.
pub async fn warm_client<P: Platform + Default>(
    mut options: ClientOptions,
    connections: u32,
    timeout: Option<Duration>,
) -> Client<P> {
    options.pool.max_pool_size = connections;
    options.pool.max_connecting = connections;
    options.timeout = timeout;
    let client = Client::with_options(options).expect("valid options");
    let mut guards = Vec::new();
    for _ in 0..connections {
        let mut guard = client.check_out().await.expect("a connection");
        guard.raw().run_command("admin", |body| body.int32("ping", 1).map(drop)).await.expect("answered");
        guards.push(guard);
    }
    drop(guards);
    client
}

/// Sends a `ping` by a client: check-out, command written and reply read in place, check-in.
pub async fn ping<P: Platform>(client: &Client<P>) {
    let mut guard = client.check_out().await.expect("a connection");
    let reply = guard.raw().run_command("admin", |body| body.int32("ping", 1).map(drop)).await;
    assert!(!reply.expect("answered").is_empty());
}

/// Returns the median.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
