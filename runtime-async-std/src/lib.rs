//! Poolhouse on [async-std](https://docs.rs/async-std): monitored MongoDB connection pools without tokio.
//!
//! A [`Client`] finds the servers of a deployment, watches each, and keeps a pool of connections to it; a [`Session`](mux::Session) does the like for a Cassandra cluster.
//! async-std is **discontinued** (RUSTSEC-2025-0052): this crate is for applications that still run it, and has the names and the features of
//! `poolhouse-smol`, so that they move there by changing the name of the crate.
//!
//! ```
//! use poolhouse_async_std::bson::doc;
//! use poolhouse_async_std::{Client, ClientOptions, Error, EventRef, Notice};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Error> {
//! # let server = poolhouse_tests::fake::FakeServer::start(Default::default()).expect("a server");
//! # let uri = server.uri(); // mongodb://127.0.0.1:27017
//! async_std::task::block_on(async {
//!     let client = Client::with_options(ClientOptions::parse(&uri)?.max_pool_size(10).timeout(Duration::from_secs(5)))?;
//!     let mut pools = client.subscribe_where(|event| matches!(event, EventRef::Pool(_)));
//!
//!     // A handle: clones are of the same client, and tasks may have their own.
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
//! A client is the [client](poolhouse_client::Client) of `poolhouse-client`, on
//! async-std's sockets and timers; its background tasks run on async-std's executor, which has a thread for each core, or as many as the
//! environment variable `ASYNC_STD_THREAD_COUNT` says. Its futures are `Send` and may be run by any executor. Dropping one is safe at any
//! point.
//!
//! # Features
//!
//! | feature | | what it adds |
//! |---|---|---|
//! | `auth` | default | users and passwords: SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509, PLAIN |
//! | `tls` | default | TLS 1.2 and 1.3 by rustls. Without it a connection string that asks for TLS is refused |
//! | `encrypted-keys` | default | private keys of clients that are encrypted with a password |
//! | `zlib` | default | compression by zlib, Rust throughout |
//! | `snappy`, `zstd` | | compression by these; zstd wants a C compiler |
//! | `lz4` | | compression of Cassandra's protocol |
//! | `webpki-roots` | | Mozilla's roots, compiled in, where the platform has none |
//! | `tracing` | | log messages of pools, topology and heartbeats |
//! | `metrics` | | metrics of pools by OpenTelemetry's names |
//!
//! # Guides
//!
//! - [`observing`](poolhouse_client::guide::observing): events, logs, metrics, snapshots; how to find a leak or a pool that starves
//! - [`tuning`](poolhouse_client::guide::tuning): the options that matter, and what happens when they are wrong
//! - [`forking`](poolhouse_client::guide::forking): fork before the first client
//! - [`migrating`](poolhouse_client::guide::migrating): from the official driver, from deadpool and bb8
//! - [`adapter`](poolhouse_client::guide::adapter): the same client on a runtime of your own
#![forbid(unsafe_code)]

mod platform;

pub use platform::{AsyncStd, Task};
pub use poolhouse_client;
#[doc(inline)]
pub use poolhouse_client::api::*;
#[cfg(feature = "auth")]
pub use poolhouse_client::poolhouse_auth;
pub use poolhouse_client::{poolhouse_core, poolhouse_cql, poolhouse_driver, poolhouse_uri, poolhouse_wire};

/// A MongoDB client on async-std: see [`poolhouse_client::Client`] for what it does.
///
/// A process forks before its first client, and before it uses anything else of async-std: see the guide [`forking`](poolhouse_client::guide::forking).
pub type Client = poolhouse_client::Client<AsyncStd>;

/// A connection of a [`Client`] that is checked out: see [`poolhouse_client::Connection`].
pub type Connection<'c> = poolhouse_client::Connection<'c, AsyncStd>;

/// A database of a [`Client`]: see [`poolhouse_client::Database`].
pub type Database = poolhouse_client::Database<AsyncStd>;

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

/// The example of the README, compiled like those of any documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Sessions: requests to the hosts of a Cassandra cluster over multiplexed pools. See [`poolhouse_client::mux`]; the documentation of `poolhouse_smol::mux` has
/// more examples, which differ in the name of the crate.
///
/// ```
/// use poolhouse_async_std::mux::cql::{Consistency, OutcomeKind, Response};
/// use poolhouse_async_std::mux::{RequestError, Session, SessionOptions};
///
/// # let server = poolhouse_tests::cql_server::CqlServer::start(Default::default()).expect("a server");
/// # let host = server.address().to_string();
/// # async_std::task::block_on(async {
/// // Its tasks run on async-std's executor.
/// let session = Session::new(SessionOptions::new([host]))?;
/// let reply = session.query("SELECT release_version FROM system.local", Consistency::One).await?;
/// let Response::Result(outcome) = reply.response()? else { panic!("{reply:?}") };
/// assert_eq!(outcome.kind, OutcomeKind::Rows);
/// match session.query("SELEC 1", Consistency::One).await {
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
