//! A pool of connections to Redis: smol's sockets, and Redis' protocol (RESP 2).
//!
//! ```text
//! redis-server --port 6379
//! cargo run -p poolhouse-smol --example pool_redis -- 127.0.0.1:6379
//! ```
//!
//! Sixteen tasks increment one counter of the server up to 16,000, over at most four connections.

use poolhouse_smol::{Manager, Pool};
use smol::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use smol::net::TcpStream;
use std::io;

/// Limits of a reply, in bytes: a line, and a value (that of Redis).
const LINE_MAX: u64 = 64 << 10;
const VALUE_MAX: u64 = 512 << 20;

/// Opens connections to a server.
pub(crate) struct Redis {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) password: Option<String>,
}

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// Whether a request was begun whose reply has not arrived.
    is_waiting: bool,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Status(String),
    Integer(i64),
    Value(Vec<u8>),
    Nil,
}

impl Manager for Redis {
    type Connection = Connection;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream: BufReader::new(stream), is_waiting: false };
        match &self.password {
            Some(password) => drop(connection.command(&["AUTH", password]).await?),
            // A server that is loading its data refuses this command.
            None => self.check(&mut connection).await?,
        }
        Ok(connection)
    }

    async fn check(&self, connection: &mut Connection) -> io::Result<()> {
        let reply = connection.command(&["PING"]).await?;
        let is_pong = matches!(&reply, Reply::Status(text) if text == "PONG");
        if is_pong { Ok(()) } else { Err(invalid(format!("the reply to PING is {reply:?}"))) }
    }

    /// A request that failed or was dropped in the middle leaves an outstanding reply, which the
    /// next user of the connection would receive.
    fn is_broken(&self, connection: &Connection) -> bool {
        connection.is_waiting
    }
}

impl Connection {
    /// Sends a command and returns its reply. An error reply is an error of the kind `Other`; the
    /// connection stays usable after it.
    pub(crate) async fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.is_waiting = true;
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let line = self.line().await?;
        let (kind, text) = line.split_at_checked(1).ok_or_else(|| invalid("an empty line"))?;
        let reply = match kind {
            "+" => Ok(Reply::Status(text.to_owned())),
            "-" => Err(io::Error::other(text)),
            ":" => Ok(Reply::Integer(text.parse().map_err(invalid)?)),
            "$" if text == "-1" => Ok(Reply::Nil),
            "$" => Ok(Reply::Value(self.value(text.parse().map_err(invalid)?).await?)),
            _ => return Err(invalid(format!("this example does not read arrays: {line}"))),
        };
        self.is_waiting = false;
        reply
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_MAX).read_line(&mut line).await?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn value(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        if bytes > VALUE_MAX {
            return Err(invalid(format!("a value of {bytes} bytes")));
        }
        let (mut value, mut end) = (Vec::new(), [0; 2]);
        (&mut self.stream).take(bytes).read_to_end(&mut value).await?;
        self.stream.read_exact(&mut end).await?;
        if end == *b"\r\n" { Ok(value) } else { Err(invalid("a value without its end")) }
    }
}

fn invalid(reason: impl Into<Box<dyn core::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let mut words = std::env::args().skip(1);
    let Some(address) = words.next() else {
        return Err("usage: pool_redis HOST:PORT [PASSWORD]; start a server: redis-server --port 6379".into());
    };
    let manager = Redis { address, password: words.next() };
    smol::block_on(async {
        let pool = Pool::builder(manager).name("redis").max_size(4).build()?;
        let key = "poolhouse:example";
        pool.get().await?.command(&["DEL", key]).await?;
        let mut tasks = Vec::new();
        for _ in 0..16 {
            let pool = pool.clone();
            tasks.push(smol::spawn(async move {
                let mut last = Reply::Nil;
                for _ in 0..1000 {
                    last = pool.get().await.map_err(io::Error::other)?.command(&["INCR", key]).await?;
                }
                Ok::<_, io::Error>(last)
            }));
        }
        for task in tasks {
            if let Reply::Integer(count) = task.await? {
                println!("a task has counted to {count}");
            }
        }
        if let Reply::Value(count) = pool.get().await?.command(&["GET", key]).await? {
            println!("{key} is {}", String::from_utf8_lossy(&count));
        }
        println!("{:?}", pool.status());
        pool.close().await;
        Ok(())
    })
}
