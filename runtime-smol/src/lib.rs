//! Poolhouse on [smol](https://docs.rs/smol): monitored MongoDB connection pools without tokio.
//!
//! A [`Client`] discovers the servers of a deployment, monitors them, and keeps a pool of
//! connections to each; it runs commands, which are BSON documents. A [`Session`](mux::Session)
//! does the same for the hosts of a Cassandra cluster, with many concurrent requests on each
//! connection. A [`Pool`] keeps connections of any other protocol. Any future may be dropped at any
//! await: no connection is lost, and no reply reaches another request.
//!
//! Use this crate in an application on smol. Read next: the [guides](#guides).
//!
//! ```
//! use poolhouse_smol::bson::doc;
//! use poolhouse_smol::{Client, Cursor, Error};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), Error> {
//!     # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//!     # let uri = server.uri();
//!     // let uri = "mongodb://127.0.0.1:27017";
//!     smol::block_on(async {
//!         let client = Client::new_with(&uri, |options| options.timeout(Duration::from_secs(5))).await?;
//!         let shop = client.database("shop");
//!         shop.run_command(doc! { "insert": "orders", "documents": [{ "_id": 1, "what": "tea" }] }).await?;
//!         let mut orders: Cursor = shop.run_cursor_command(doc! { "find": "orders" }).await?;
//!         while let Some(order) = orders.try_next().await? {
//!             println!("{order}");
//!         }
//!         client.close().await;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! [`Client`] is the [client](poolhouse_client::Client) of `poolhouse-client` on smol's sockets and
//! timers. Its background tasks run on smol's global executor; the environment variable
//! `SMOL_THREADS` sets the number of threads. Its futures are `Send`; any executor may poll them.
//!
//! # Options
//!
//! ```
//! use poolhouse_smol::{ClientOptions, DriverInfo, ReadMode, ReadPreferenceOptions};
//! use std::time::Duration;
//!
//! // Options of a connection string, and further options.
//! let options = ClientOptions::parse("mongodb://db1.example.com,db2.example.com/shop?replicaSet=rs0&maxPoolSize=20")?
//!     .app_name("till")
//!     .driver_info(DriverInfo::new("my-odm").version("1.2"))
//!     .min_pool_size(2)
//!     .timeout(Duration::from_secs(5))
//!     .read_preference(ReadPreferenceOptions {
//!         mode: ReadMode::Nearest,
//!         tag_sets: &[&[("dc", "ny")], &[]],
//!         max_staleness_seconds: Some(120),
//!     });
//! options.validate()?;
//! assert_eq!(options.default_database.as_deref(), Some("shop"));
//!
//! // An error names the option, its value and the rule.
//! let error = options.min_pool_size(21).validate().unwrap_err();
//! assert_eq!(error.to_string(), "minPoolSize is 21, but must be at most maxPoolSize");
//! # Ok::<(), poolhouse_smol::Error>(())
//! ```
//!
//! # Commands
//!
//! ```
//! use poolhouse_smol::bson::doc;
//! use poolhouse_smol::{Client, CommandOptions, ReadMode, ReadPreference};
//! use std::time::Duration;
//!
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri();
//! # smol::block_on(async {
//! let client = Client::new(&uri).await?;
//! // On a secondary if one is available, within two seconds; retried on other servers until then.
//! let options = CommandOptions::new()
//!     .read_preference(ReadPreference::of(ReadMode::SecondaryPreferred))
//!     .timeout(Duration::from_secs(2))
//!     .idempotent(true);
//! client.run_command_with("admin", doc! { "ping": 1 }, options).await?;
//! # Ok::<(), poolhouse_smol::Error>(())
//! # })?;
//! # Ok::<(), poolhouse_smol::Error>(())
//! ```
//!
//! # Errors
//!
//! ```
//! use poolhouse_smol::bson::doc;
//! use poolhouse_smol::{Client, Error};
//!
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri();
//! # smol::block_on(async {
//! let client = Client::new(&uri).await?;
//! match client.run_command("admin", doc! { "frobnicate": 1 }).await {
//!     Err(Error::Command(refusal)) => {
//!         assert_eq!(refusal.code, 59);
//!         assert_eq!(refusal.code_name.as_deref(), Some("CommandNotFound"));
//!     }
//!     Err(error) if error.is_timeout() => panic!("nobody answered in time: {error}"),
//!     other => panic!("{other:?}"),
//! }
//!
//! let error = Client::new("mongodb://ann:pass:word@localhost").await.unwrap_err();
//! assert_eq!(error.to_string(), "username and password must be percent-encoded (at byte 10)");
//! # Ok::<(), Error>(())
//! # })?;
//! # Ok::<(), Error>(())
//! ```
//!
//! # Events
//!
//! ```
//! use poolhouse_smol::bson::doc;
//! use poolhouse_smol::{Client, ClientOptions, EventKinds, Notice};
//!
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri();
//! # smol::block_on(async {
//! // Receives all events from the first one; `client.subscribe()` starts later.
//! let (client, mut events) = Client::new_subscribed(ClientOptions::parse(&uri)?)?;
//! let mut pools = client.subscribe_to(EventKinds::POOLS | EventKinds::CHECK_OUTS);
//! client.run_command("admin", doc! { "ping": 1 }).await?;
//! let Some(Notice::Event { at, event }) = events.next().await else { panic!("the client has begun") };
//! println!("{at:?} {event}");
//! client.close().await;
//! // Ends after the client has ended and all events have been read.
//! let mut names = Vec::new();
//! while let Some(notice) = pools.next().await {
//!     match notice {
//!         Notice::Event { event, .. } => names.push(event.to_string()),
//!         Notice::Lagged { count } => panic!("{count} events were not read in time"),
//!     }
//! }
//! assert!(names.iter().any(|name| name.starts_with("ConnectionCheckedOut")), "{names:?}");
//! # Ok::<(), poolhouse_smol::Error>(())
//! # })?;
//! # Ok::<(), poolhouse_smol::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | | what it adds |
//! |---|---|---|
//! | `auth` | default | users and passwords: SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, PLAIN |
//! | `tls` | default | TLS 1.2 and 1.3 by rustls. Without it a connection string that requires TLS is refused |
//! | `compression` | default | zlib and snappy for MongoDB, LZ4 and snappy for Cassandra, in pure Rust |
//! | `zstd` | | compression by zstd for MongoDB; requires a C compiler |
//! | `tracing` | | log messages of pools, topology and heartbeats |
//! | `metrics` | | metrics of pools with OpenTelemetry's names |
//! | `edge` | | the module `edge`: a platform with fewer system calls for each command |
//!
//! # Guides
//!
//! - [`mongodb`](poolhouse_client::guide::mongodb): options, commands, users, time limits
//! - [`order_service`](poolhouse_client::guide::order_service): a program over HTTP with
//!   transactions, and what happens at a failover
//! - [`cassandra`](poolhouse_client::guide::cassandra): a session with many requests at a time
//! - [`observing`](poolhouse_client::guide::observing): events, logs, metrics, snapshots; finding a
//!   leak or an exhausted pool
//! - [`tuning`](poolhouse_client::guide::tuning): the most important options, and the symptoms of
//!   wrong values
//! - [`forking`](poolhouse_client::guide::forking): fork before the first client
//! - [`pool`](poolhouse_client::guide::pool): a pool for a protocol of your own
//! - [`migrating`](poolhouse_client::guide::migrating): from the official driver
//! - [`migrating_pools`](poolhouse_client::guide::migrating_pools): from deadpool, bb8 and r2d2
//! - [`adapter`](poolhouse_client::guide::adapter): the same client on another runtime
//! - [`status`](poolhouse_client::guide::status): what is implemented, and what is not
//! - [`glossary`](poolhouse_client::poolhouse_core::guide::glossary): the terms of the
//!   specifications
#![forbid(unsafe_code)]

#[cfg(feature = "edge")]
extern crate alloc;

#[cfg(all(
    feature = "edge",
    any(
        target_os = "android",
        target_os = "dragonfly",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        target_os = "openbsd",
    )
))]
pub mod edge;
mod platform;

pub use platform::Smol;
pub use poolhouse_client;
#[doc(inline)]
pub use poolhouse_client::api::*;
#[cfg(feature = "auth")]
pub use poolhouse_client::poolhouse_auth;
pub use poolhouse_client::{poolhouse_core, poolhouse_cql, poolhouse_driver, poolhouse_uri, poolhouse_wire};

/// A MongoDB client on smol: see [`poolhouse_client::Client`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::bson::doc;
/// use poolhouse_smol::{Client, ClientOptions};
/// use std::time::Duration;
///
/// # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
/// # let uri = server.uri();
/// # smol::block_on(async {
/// let client = Client::with_options(ClientOptions::parse(&uri)?.max_pool_size(10).timeout(Duration::from_secs(5)))?;
/// // A handle: clones share the same client, and each task may own one.
/// let task = smol::spawn({
///     let client = client.clone();
///     async move { client.run_command("admin", doc! { "ping": 1 }).await }
/// });
/// assert_eq!(task.await?.get_f64("ok").ok(), Some(1.0));
///
/// for server in client.servers() {
///     println!("{}: {:?}, {} connections idle", server.address, server.server_type, server.pool.counts.available);
/// }
/// let topology = client.topology();
/// assert!(topology.has_writable_server());
/// client.close().await;
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
///
/// Fork a process before it creates its first client and before it uses smol in any other way: see
/// the guide [`forking`](poolhouse_client::guide::forking).
pub type Client = poolhouse_client::Client<Smol>;

/// A checked-out connection of a [`Client`]: see [`poolhouse_client::Connection`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::bson::doc;
/// use poolhouse_smol::Client;
///
/// # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
/// # let uri = server.uri();
/// # smol::block_on(async {
/// let client = Client::new(&uri).await?;
/// // The connection is always checked in, whatever the closure returns.
/// let id = client
///     .with_connection(async |connection| {
///         connection.run_command("admin", doc! { "ping": 1 }).await?;
///         connection.run_command("admin", doc! { "hello": 1 }).await?;
///         Ok::<_, poolhouse_smol::Error>(connection.connection_id())
///     })
///     .await?;
///
/// // Without a closure: dropping the connection checks it in.
/// let mut connection = client.check_out().await?;
/// assert_eq!(connection.connection_id(), id);
/// connection.run_command("admin", doc! { "ping": 1 }).await?;
/// # drop(connection);
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub type Connection<'c> = poolhouse_client::Connection<'c, Smol>;

/// A cursor of a [`Client`]: see [`poolhouse_client::Cursor`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::bson::{Document, doc};
/// use poolhouse_smol::{Client, Cursor};
///
/// # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
/// # let uri = server.uri();
/// # smol::block_on(async {
/// let shop = Client::new(&uri).await?.database("shop");
/// let orders: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
/// shop.run_command(doc! { "insert": "orders", "documents": orders }).await?;
///
/// let mut cursor: Cursor = shop.run_cursor_command(doc! { "find": "orders", "batchSize": 2 }).await?;
/// let mut count = 0;
/// while let Some(order) = cursor.try_next().await? {
///     assert_eq!(order.get_i32("_id").ok(), Some(count));
///     count += 1;
/// }
/// assert_eq!(count, 5);
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub type Cursor<T = bson::Document> = poolhouse_client::Cursor<Smol, T>;

/// A session of a [`Client`]: see [`poolhouse_client::ClientSession`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::bson::doc;
/// use poolhouse_smol::{Client, ClientSessionOptions};
///
/// # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
/// # let uri = server.uri();
/// # smol::block_on(async {
/// let client = Client::new(&uri).await?;
/// let mut session = client.start_session(ClientSessionOptions::new());
/// session.run_command("shop", doc! { "insert": "orders", "documents": [{ "_id": 1 }] }).await?;
/// let reply = session.run_command("shop", doc! { "find": "orders" }).await?;
/// assert_eq!(reply.get_f64("ok").ok(), Some(1.0));
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub type ClientSession = poolhouse_client::ClientSession<Smol>;

/// A cursor in a [`ClientSession`]: see [`poolhouse_client::SessionCursor`].
pub type SessionCursor<T = bson::Document> = poolhouse_client::SessionCursor<Smol, T>;

/// The attempts of a transaction: see [`poolhouse_client::TransactionAttempts`].
pub type TransactionAttempts<'s> = poolhouse_client::TransactionAttempts<'s, Smol>;

/// A pool of any connections on smol: see [`poolhouse_client::pool`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::{Manager, Pool};
/// use smol::io::{AsyncReadExt, AsyncWriteExt};
/// use smol::net::TcpStream;
///
/// /// Opens connections to a server that echoes.
/// struct Echo(std::net::SocketAddr);
///
/// impl Manager for Echo {
///     type Connection = TcpStream;
///     type Error = std::io::Error;
///
///     async fn connect(&self) -> std::io::Result<TcpStream> {
///         TcpStream::connect(self.0).await
///     }
/// }
///
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?;
/// # std::thread::spawn(move || {
/// #     let (stream, _) = listener.accept().unwrap();
/// #     std::io::copy(&mut &stream, &mut &stream).unwrap();
/// # });
/// # smol::block_on(async {
/// let pool = Pool::builder(Echo(address)).max_size(4).build()?;
/// let mut connection = pool.get().await?;
/// connection.write_all(b"tea").await?;
/// let mut echo = [0; 3];
/// connection.read_exact(&mut echo).await?;
/// assert_eq!(&echo, b"tea");
/// drop(connection);
/// assert_eq!(pool.status().counts.available, 1);
/// pool.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Pool<M> = poolhouse_client::Pool<M, Smol>;

/// A connection of a [`Pool`] that is checked out: see [`poolhouse_client::pool::Pooled`].
pub type Pooled<M> = poolhouse_client::pool::Pooled<M, Smol>;

/// The built-in resolver on smol: see [`poolhouse_client::DnsResolver`].
///
/// [`Client::new`] and [`Client::new_with`] use it for `mongodb+srv://` strings:
///
/// ```no_run
/// use poolhouse_smol::Client;
/// use std::time::Duration;
///
/// # smol::block_on(async {
/// let uri = "mongodb+srv://cluster0.example.com/shop";
/// let client = Client::new_with(uri, |options| options.timeout(Duration::from_secs(5))).await?;
/// # client.close().await;
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub type DnsResolver = poolhouse_client::DnsResolver<Smol>;

/// A database of a [`Client`]: see [`poolhouse_client::Database`].
///
/// # Example
///
/// ```
/// use poolhouse_smol::bson::{RawDocumentBuf, doc};
/// use poolhouse_smol::{Client, ClientOptions};
///
/// # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
/// # let uri = server.uri();
/// # smol::block_on(async {
/// let client = Client::with_options(ClientOptions::parse(&uri)?.default_database("shop"))?;
/// let shop = client.default_database().expect("the options name one");
/// shop.run_command(doc! { "insert": "orders", "documents": [{ "_id": 1 }] }).await?;
///
/// // The same with encoded documents.
/// let find = RawDocumentBuf::try_from(&doc! { "find": "orders" }).expect("a command");
/// let reply = shop.run_raw_command(&find).await?;
/// assert_eq!(reply.get_f64("ok").ok(), Some(1.0));
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub type Database = poolhouse_client::Database<Smol>;

/// Sessions: requests to the hosts of a Cassandra cluster over multiplexed pools. See
/// [`poolhouse_client::mux`].
///
/// A [`Session`](mux::Session) has a pool for each host. Each connection carries up to 32,767
/// requests in flight; replies arrive in any order. A [`Reply`](mux::Reply) is the envelope that the
/// server has sent; its rows are decoded on demand, as values of types with serde's `Deserialize` or as the
/// bytes of their cells.
///
/// ```
/// use poolhouse_smol::mux::{Session, SessionOptions};
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # smol::block_on(async {
/// // Its tasks run on smol's global executor. A handle: clones share the same session.
/// let session = Session::new(SessionOptions::new([host]))?;
/// let reply = session.query("SELECT release_version FROM system.local").send().await?;
/// if let Some((version,)) = reply.one::<(&str,)>()? {
///     println!("{version}"); // 5.0.7
/// }
///
/// // With values, and concurrently: requests share the connection, and are written together.
/// let ask = |text: &'static str| {
///     let session = session.clone();
///     smol::spawn(async move { session.query("echo ?").values((text,)).send().await })
/// };
/// let (one, other) = (ask("one"), ask("other"));
/// assert_eq!(one.await?.one()?, Some(("one",)));
/// assert_eq!(other.await?.one()?, Some(("other",)));
///
/// // Closes all connections and waits for all tasks.
/// session.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).expect("an answer");
/// ```
///
/// # Prepared statements
///
/// [`Session::prepare`](poolhouse_client::mux::Session::prepare) prepares a statement on one host. Other
/// hosts prepare it when they execute it first, or when they have forgotten it.
///
/// ```
/// use poolhouse_smol::mux::{Session, SessionOptions};
/// use smol::stream::StreamExt;
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # smol::block_on(async {
/// let session = Session::new(SessionOptions::new([host]))?;
/// let statement = session.prepare("echo ?").await?;
/// // Sent to another host if its connection fails before the reply.
/// let reply = session.execute(&statement, &("hello",)).idempotent(true).send().await?;
/// assert_eq!(reply.one()?, Some(("hello",)));
///
/// // A large result, 100 rows at a time.
/// let mut rows = session.execute(&statement, &("hello",)).page_size(100).rows::<(String,)>();
/// while let Some(row) = rows.next().await {
///     println!("{}", row?.0);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).expect("an answer");
/// ```
///
/// # Errors
///
/// A request that a host does not accept is sent to the next host of the query plan. If no host
/// accepts it, the error lists each host with its reason.
///
/// ```
/// use poolhouse_smol::mux::cql::ErrorCode;
/// use poolhouse_smol::mux::{RejectionReason, RequestError, Session, SessionOptions};
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # let gone = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # gone.refuse().expect("a socket");
/// # let nobody = gone.address().to_string();
/// # smol::block_on(async {
/// let session = Session::new(SessionOptions::new([&host, &nobody]))?;
/// match session.query("SELEC 1").send().await {
///     Err(RequestError::Server(error)) => assert_eq!(error.code, ErrorCode::SYNTAX_ERROR),
///     other => panic!("{other:?}"),
/// }
///
/// // A session whose only host is unreachable.
/// let session = Session::new(SessionOptions::new([&nobody]))?;
/// match session.query("SELECT now() FROM system.local").send().await {
///     Err(RequestError::NoHost(rejections)) => {
///         assert_eq!(rejections[0].address, nobody);
///         assert!(matches!(rejections[0].reason, RejectionReason::Pool(_)));
///         // 127.0.0.1:9042: no connection to the host is open: network error
///         println!("{}", rejections[0]);
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
///
/// [`RequestError::may_have_executed`](mux::RequestError::may_have_executed) returns whether a
/// failed request may have been executed nevertheless. Dropping the future of a request cancels it,
/// at any await; its stream id stays in use until the late reply arrives.
///
/// # Options and events
///
/// ```
/// use poolhouse_smol::mux::cql::{Compression, Version};
/// use poolhouse_smol::mux::{HostOptions, MuxEvent, MuxOptions, Session, SessionOptions};
/// use poolhouse_smol::{Event, Notice};
/// use std::time::Duration;
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # smol::block_on(async {
/// // One to four connections to a local host; the next is opened above 800 requests on the last.
/// let local = HostOptions { max_connections: 4, ..MuxOptions::DEFAULT.local };
/// let mux = MuxOptions { local, idle_timeout: Duration::from_secs(60), ..MuxOptions::DEFAULT };
/// let options = SessionOptions::new([host])
///     .remote_host("far.example.com")
///     .mux(mux)
///     .version(Version::V4)
///     .compressions([Compression::Lz4])
///     .credential("ada", "secret")
///     .request_timeout(Duration::from_secs(2));
/// // Receives all events from the first one; `session.subscribe()` starts later.
/// let (session, mut events) = Session::new_subscribed(options)?;
/// session.query("SELECT release_version FROM system.local").send().await.expect("an answer");
/// while let Some(notice) = events.next().await {
///     if let Notice::Event { event: Event::Mux(event @ MuxEvent::ConnectionReady { .. }), .. } = notice {
///         println!("{event}");
///         break;
///     }
/// }
/// for host in session.hosts() {
///     println!("{}: {} connections, {} requests in flight", host.address, host.state.open, host.state.in_flight);
/// }
/// // The options may be changed at any time, except the number of stream ids.
/// session.set_mux_options(MuxOptions { max_queue_size: 1000, ..mux })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_smol::Error>(())
/// ```
pub mod mux {
    #[doc(inline)]
    pub use poolhouse_client::mux::*;
    pub use poolhouse_client::poolhouse_cql as cql;

    /// A session with the hosts of a cluster: see [`poolhouse_client::mux::Session`].
    pub type Session = poolhouse_client::mux::Session<super::Smol>;
}
