//! A pool of connections to an HTTP/1.1 server, which are kept open between requests: smol's
//! sockets, and `httparse` for the heads of responses.
//!
//! ```text
//! python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 8080
//! cargo run -p poolhouse-smol --example pool_http -- 127.0.0.1:8080 /
//! ```
//!
//! Sixteen tasks request one path 320 times, over at most four connections.

use poolhouse_smol::{Manager, Pool};
use smol::future::poll_once;
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::net::TcpStream;
use std::io;

/// Limits of a response, in bytes.
const HEAD_MAX: usize = 64 << 10;
const BODY_MAX: usize = 64 << 20;

/// Opens connections to a server.
pub(crate) struct Http {
    /// `host:port`.
    pub(crate) address: String,
}

pub(crate) struct Connection {
    stream: TcpStream,
    host: String,
    /// Bytes that were received and not yet read.
    received: Vec<u8>,
    /// Whether the last response is complete and the server keeps the connection open.
    is_reusable: bool,
}

struct Head {
    bytes: usize,
    status: u16,
    body_bytes: usize,
    keeps_open: bool,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Manager for Http {
    type Connection = Connection;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, host: self.address.clone(), received: Vec::new(), is_reusable: true })
    }

    /// Checks that nothing was received between two requests: neither a response, nor the end of
    /// the stream, which a server sends when no request arrives for some time. This check costs no
    /// round trip.
    async fn check(&self, connection: &mut Connection) -> io::Result<()> {
        match poll_once(connection.stream.peek(&mut [0])).await {
            None => Ok(()),
            Some(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(Ok(_)) => Err(invalid("a response without a request")),
            Some(Err(error)) => Err(error),
        }
    }

    fn is_broken(&self, connection: &Connection) -> bool {
        !connection.is_reusable
    }
}

impl Connection {
    pub(crate) async fn get(&mut self, path: &str) -> io::Result<Response> {
        // Set before the first await, so it is also false if the future is dropped in the middle.
        self.is_reusable = false;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await?;
        let head = loop {
            if let Some(head) = parse_head(&self.received)? {
                break head;
            }
            if self.received.len() > HEAD_MAX {
                return Err(invalid("a head beyond the limit"));
            }
            self.receive().await?;
        };
        if head.body_bytes > BODY_MAX {
            return Err(invalid("a body beyond the limit"));
        }
        while self.received.len() < head.bytes + head.body_bytes {
            self.receive().await?;
        }
        let body = self.received.drain(..head.bytes + head.body_bytes).skip(head.bytes).collect();
        self.is_reusable = head.keeps_open && self.received.is_empty();
        Ok(Response { status: head.status, body })
    }

    async fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8 << 10];
        match self.stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => self.received.extend_from_slice(&buffer[..bytes]),
        }
        Ok(())
    }
}

/// Parses the head of a response; `None` if more bytes are needed.
fn parse_head(received: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(bytes) = response.parse(received).map_err(invalid)? else { return Ok(None) };
    let value = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        core::str::from_utf8(header.value).ok()
    };
    let (None, Some(length)) = (value("Transfer-Encoding"), value("Content-Length")) else {
        return Err(invalid("this example reads only bodies with a Content-Length"));
    };
    let closes = value("Connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
    Ok(Some(Head {
        bytes,
        status: response.code.unwrap_or_default(),
        body_bytes: length.parse().map_err(invalid)?,
        keeps_open: response.version == Some(1) && !closes,
    }))
}

fn invalid(reason: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut words = std::env::args().skip(1);
    let Some(address) = words.next() else {
        let start = "python3 -m http.server --protocol HTTP/1.1 --bind 127.0.0.1 8080";
        return Err(format!("usage: pool_http HOST:PORT [PATH]; start a server: {start}").into());
    };
    let path = words.next().unwrap_or_else(|| "/".to_owned());
    smol::block_on(async {
        let pool = Pool::builder(Http { address }).name("http").max_size(4).build()?;
        let mut tasks = Vec::new();
        for _ in 0..16 {
            let (pool, path) = (pool.clone(), path.clone());
            tasks.push(smol::spawn(async move {
                let mut last = None;
                for _ in 0..20 {
                    last = Some(pool.get().await.map_err(io::Error::other)?.get(&path).await?);
                }
                Ok::<_, io::Error>(last)
            }));
        }
        for task in tasks {
            let Some(Response { status, body }) = task.await? else { continue };
            println!("{status}, {} bytes", body.len());
        }
        println!("{:?}", pool.status());
        pool.close().await;
        Ok(())
    })
}
