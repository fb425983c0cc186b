//! A pool of connections to PostgreSQL: smol's sockets, and `postgres-protocol` for the messages.
//!
//! ```text
//! docker run --rm -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres
//! cargo run -p poolhouse-smol --example pool_postgres -- 127.0.0.1:5432 postgres secret
//! ```
//!
//! Sixteen tasks run 1,600 queries over at most four connections, each served by its own process.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use poolhouse_smol::{Manager, Pool};
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{ErrorFields, Message};
use postgres_protocol::message::frontend;
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::net::TcpStream;
use std::io;

/// The limit of one message, in bytes.
const MESSAGE_MAX: usize = 64 << 20;

/// Opens connections to a server, without TLS.
pub(crate) struct Postgres {
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
}

pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    /// Whether the server waits for a query, outside a transaction.
    is_idle: bool,
}

/// A row, with its values as text.
pub(crate) type Row = Vec<Option<String>>;

impl Manager for Postgres {
    type Connection = Connection;
    type Error = io::Error;

    async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream, received: BytesMut::new(), is_idle: false };
        connection.start(self).await?;
        Ok(connection)
    }

    async fn check(&self, connection: &mut Connection) -> io::Result<()> {
        connection.query("").await.map(drop)
    }

    /// True after a query that failed or was dropped in the middle, and in a transaction that was
    /// not ended.
    fn is_broken(&self, connection: &Connection) -> bool {
        !connection.is_idle
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other messages are of no interest here")]
impl Connection {
    /// Runs queries and returns all their rows. After an error of the server, which is of the kind
    /// `Other`, the connection stays usable.
    pub(crate) async fn query(&mut self, sql: &str) -> io::Result<Vec<Row>> {
        self.is_idle = false;
        self.send(|message| frontend::query(sql, message)).await?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            match self.message().await? {
                Message::DataRow(row) => {
                    let text = |range| String::from_utf8_lossy(&row.buffer()[range]).into_owned();
                    rows.push(row.ranges().map(|range| Ok(range.map(text))).collect()?);
                }
                Message::ErrorResponse(error) => refused = Some(refusal(error.fields())),
                Message::ReadyForQuery(ready) => {
                    self.is_idle = ready.status() == b'I';
                    return refused.map_or(Ok(rows), Err);
                }
                // The columns of rows, ends of commands, notices, parameters.
                _ => {}
            }
        }
    }

    async fn start(&mut self, to: &Postgres) -> io::Result<()> {
        let parameters = [("user", &*to.user), ("database", &*to.database), ("client_encoding", "UTF8")];
        self.send(|message| frontend::startup_message(parameters, message)).await?;
        let mut scram = ScramSha256::new(to.password.as_bytes(), ChannelBinding::unsupported());
        loop {
            match self.message().await? {
                Message::AuthenticationSasl(_) => {
                    let first =
                        |message: &mut _| frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), message);
                    self.send(first).await?;
                }
                Message::AuthenticationSaslContinue(body) => {
                    scram.update(body.data())?;
                    self.send(|message| frontend::sasl_response(scram.message(), message)).await?;
                }
                Message::AuthenticationSaslFinal(body) => scram.finish(body.data())?,
                Message::AuthenticationMd5Password(_) | Message::AuthenticationCleartextPassword => {
                    return Err(io::Error::other("this example authenticates by SCRAM-SHA-256 only"));
                }
                Message::ErrorResponse(error) => return Err(refusal(error.fields())),
                Message::ReadyForQuery(_) => {
                    self.is_idle = true;
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    async fn send(&mut self, write: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> io::Result<()> {
        let mut message = BytesMut::new();
        write(&mut message)?;
        self.stream.write_all(&message).await
    }

    async fn message(&mut self) -> io::Result<Message> {
        let mut buffer = [0; 8 << 10];
        loop {
            if let Some(message) = Message::parse(&mut self.received)? {
                return Ok(message);
            }
            match self.stream.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ if self.received.len() > MESSAGE_MAX => return Err(io::ErrorKind::InvalidData.into()),
                bytes => self.received.extend_from_slice(&buffer[..bytes]),
            }
        }
    }
}

/// The text of an error of the server, as `psql` writes it.
fn refusal(fields: ErrorFields<'_>) -> io::Error {
    let wanted = fields.filter(|field| Ok(matches!(field.type_(), b'S' | b'M' | b'C')));
    let texts = wanted.map(|field| Ok(String::from_utf8_lossy(field.value_bytes()).into_owned()));
    texts.collect::<Vec<_>>().map_or_else(|error| error, |texts| io::Error::other(texts.join(" ")))
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, user, password] = &*words else {
        let start = "docker run --rm -p 5432:5432 -e POSTGRES_PASSWORD=secret postgres";
        return Err(format!("usage: pool_postgres HOST:PORT USER PASSWORD; start a server: {start}").into());
    };
    let (address, user, password) = (address.clone(), user.clone(), password.clone());
    let manager = Postgres { address, database: user.clone(), user, password };
    smol::block_on(async {
        let pool = Pool::builder(manager).name("postgres").max_size(4).build()?;
        let mut tasks = Vec::new();
        for task in 0..16 {
            let pool = pool.clone();
            tasks.push(smol::spawn(async move {
                let mut row = None;
                for _ in 0..100 {
                    let sql = format!("SELECT 'task {task}', pg_backend_pid()");
                    row = pool.get().await.map_err(io::Error::other)?.query(&sql).await?.pop();
                }
                Ok::<_, io::Error>(row)
            }));
        }
        for task in tasks {
            println!("{:?}", task.await?);
        }
        println!("{:?}", pool.status());
        pool.close().await;
        Ok(())
    })
}
