//! Poolhouse on [async-std](https://docs.rs/async-std): monitored MongoDB connection pools without
//! tokio.
//!
//! A [`Client`] discovers the servers of a deployment, monitors them, and keeps a pool of
//! connections to each; a [`Session`](mux::Session) does the same for a Cassandra cluster.
//! async-std is **discontinued** (RUSTSEC-2025-0052): this crate is for applications that still use
//! it. Its names and features are those of `poolhouse-smol`, so migrating to that crate only
//! changes the crate's name.
//!
//! ```
//! use poolhouse_async_std::bson::doc;
//! use poolhouse_async_std::{Client, ClientOptions, Error, EventKinds, Notice};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Error> {
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri(); // mongodb://127.0.0.1:27017
//! async_std::task::block_on(async {
//!     let client = Client::with_options(ClientOptions::parse(&uri)?.max_pool_size(10).timeout(Duration::from_secs(5)))?;
//!     let mut pools = client.subscribe_to(EventKinds::POOLS);
//!
//!     // A handle: clones share the same client, and each task may own one.
//!     let task = async_std::task::spawn({
//!         let client = client.clone();
//!         async move { client.run_command("admin", doc! { "ping": 1 }).await }
//!     });
//!     assert_eq!(task.await?.get_f64("ok").ok(), Some(1.0));
//!     let id = client.with_connection(async |connection| Ok::<_, Error>(connection.connection_id())).await?;
//!     assert_eq!(client.check_out().await?.connection_id(), id);
//!
//!     let Some(Notice::Event { at, event }) = pools.next().await else { panic!("the client has begun") };
//!     println!("{at:?} {event}");
//!     client.close().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! [`Client`] is the [client](poolhouse_client::Client) of `poolhouse-client` on async-std's
//! sockets and timers. Its background tasks run on async-std's executor, which has one thread for
//! each core, or the number in the environment variable `ASYNC_STD_THREAD_COUNT`. Its futures are
//! `Send`; any executor may poll them, and they may be dropped at any await.
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

mod platform;

pub use platform::{AsyncStd, Task};
pub use poolhouse_client;
#[doc(inline)]
pub use poolhouse_client::api::*;
#[cfg(feature = "auth")]
pub use poolhouse_client::poolhouse_auth;
pub use poolhouse_client::{poolhouse_core, poolhouse_cql, poolhouse_driver, poolhouse_uri, poolhouse_wire};

/// A MongoDB client on async-std: see [`poolhouse_client::Client`].
///
/// Fork a process before it creates its first client and before it uses async-std in any other way:
/// see the guide [`forking`](poolhouse_client::guide::forking).
pub type Client = poolhouse_client::Client<AsyncStd>;

/// A checked-out connection of a [`Client`]: see [`poolhouse_client::Connection`].
pub type Connection<'c> = poolhouse_client::Connection<'c, AsyncStd>;

/// A cursor of a [`Client`]: see [`poolhouse_client::Cursor`].
pub type Cursor<T = bson::Document> = poolhouse_client::Cursor<AsyncStd, T>;

/// A session of a [`Client`]: see [`poolhouse_client::ClientSession`].
pub type ClientSession = poolhouse_client::ClientSession<AsyncStd>;

/// A cursor in a [`ClientSession`]: see [`poolhouse_client::SessionCursor`].
pub type SessionCursor<T = bson::Document> = poolhouse_client::SessionCursor<AsyncStd, T>;

/// The attempts of a transaction: see [`poolhouse_client::TransactionAttempts`].
pub type TransactionAttempts<'s> = poolhouse_client::TransactionAttempts<'s, AsyncStd>;

/// A database of a [`Client`]: see [`poolhouse_client::Database`].
pub type Database = poolhouse_client::Database<AsyncStd>;

/// A pool of any connections on async-std: see [`poolhouse_client::pool`].
pub type Pool<M> = poolhouse_client::Pool<M, AsyncStd>;

/// A connection of a [`Pool`] that is checked out: see [`poolhouse_client::pool::Pooled`].
pub type Pooled<M> = poolhouse_client::pool::Pooled<M, AsyncStd>;

/// The built-in resolver on async-std: see [`poolhouse_client::DnsResolver`].
///
/// [`Client::new`] and [`Client::new_with`] use it for `mongodb+srv://` strings:
///
/// ```no_run
/// use poolhouse_async_std::Client;
/// use std::time::Duration;
///
/// # async_std::task::block_on(async {
/// let uri = "mongodb+srv://cluster0.example.com/shop";
/// let client = Client::new_with(uri, |options| options.timeout(Duration::from_secs(5))).await?;
/// # client.close().await;
/// # Ok::<(), poolhouse_async_std::Error>(())
/// # })?;
/// # Ok::<(), poolhouse_async_std::Error>(())
/// ```
pub type DnsResolver = poolhouse_client::DnsResolver<AsyncStd>;

/// Compiles the example of the README as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Sessions: requests to the hosts of a Cassandra cluster over multiplexed pools. See
/// [`poolhouse_client::mux`]. The documentation of `poolhouse_smol::mux` has more examples; they
/// also apply here, with the name of this crate.
///
/// ```
/// use poolhouse_async_std::mux::{RequestError, Session, SessionOptions};
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # async_std::task::block_on(async {
/// // Its tasks run on async-std's executor.
/// let session = Session::new(SessionOptions::new([host]))?;
/// let reply = session.query("SELECT release_version FROM system.local").send().await?;
/// if let Some((version,)) = reply.one::<(&str,)>()? {
///     println!("{version}"); // 5.0.7
/// }
/// match session.query("SELEC 1").send().await {
///     Err(RequestError::Server(error)) => println!("{error}"),
///     other => panic!("{other:?}"),
/// }
/// session.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).expect("an answer");
/// ```
pub mod mux {
    #[doc(inline)]
    pub use poolhouse_client::mux::*;
    pub use poolhouse_client::poolhouse_cql as cql;

    /// A session with the hosts of a cluster: see [`poolhouse_client::mux::Session`].
    pub type Session = poolhouse_client::mux::Session<super::AsyncStd>;
}
