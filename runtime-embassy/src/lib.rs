//! Poolhouse on [embassy](https://embassy.dev): a MongoDB client in static memory, without a heap.
//!
//! The pool, the monitors, the topology and the wire are those of `poolhouse-core`, on embassy-net's sockets and embassy-time's clock. Single servers and replica sets,
//! SCRAM-SHA-256 and TLS 1.3 behave as they do on a server; what memory that takes, the types say. A bad option, and sizes that cannot work, fail the build.
//!
//! ```
//! use embassy_net::Stack;
//! use poolhouse_embassy::{Buffers, Client, Config, OperationError, Options, PoolOptions, Resources, Runner, SetupError, Sizes};
//! use static_cell::{ConstStaticCell, StaticCell};
//!
//! // One server, four connections, eight tasks that wait for one.
//! type Db = Sizes<1, 4, 8>;
//!
//! // A bad option fails the build.
//! static CONFIG: Config = Options {
//!     seeds: &["10.0.0.5:27017"],
//!     direct_connection: true,
//!     pool: PoolOptions { max_pool_size: 4, ..PoolOptions::DEFAULT },
//!     ..Options::DEFAULT
//! }
//! .build();
//!
//! // Once the network is up: a client, to be copied into any task, and what it does by itself, for a task of its own.
//! fn start(network: Stack<'static>) -> Result<(Client<Db>, Runner<Db>), SetupError> {
//!     static RESOURCES: StaticCell<Resources<Db>> = StaticCell::new();
//!     static BUFFERS: ConstStaticCell<Buffers<Db>> = ConstStaticCell::new(Buffers::new());
//!     Client::new(RESOURCES.init_with(Resources::new), BUFFERS.take(), network, &CONFIG)
//! }
//!
//! // #[embassy_executor::task]
//! async fn database(runner: Runner<Db>) -> ! {
//!     runner.run().await
//! }
//!
//! // In any task: what is written goes from the connection's buffer, what is read comes from `reply`.
//! async fn count(client: Client<Db>) -> Result<i64, OperationError> {
//!     let mut reply = [0; 512];
//!     let reply = client.run_command("shop", |command| command.str("count", "orders").map(drop), &mut reply).await?;
//!     Ok(reply.get("n").ok().flatten().and_then(|n| n.as_integer()).unwrap_or(0))
//! }
//! ```
//!
//! # Memory
//!
//! All of it is in statics whose size [`Sizes`] says; nothing is allocated. A message larger than a connection's buffers is an error:
//! [`ExchangeError::Encode`] on the way out, with nothing sent, and [`ExchangeError::ReplyTooLarge`] on the way in, after which the connection is closed and the next
//! command has another. A table that is full is [`Busy`](poolhouse_core::pool::CheckOutError::Busy). Of the largest message that a connection
//! can send, some 100 bytes are the command's and the wire's own.
//!
//! # Tasks
//!
//! A client and all its futures stay on the executor of the network that it was given, as embassy-net's own handles do. What it does by itself
//! runs in [`Runner::run`], or in several tasks by [`Runner::split`], never in the network's own task. Any future of a client may be dropped at any await. Those of runners are for ever: what one of
//! them does, no other does in its stead, and dropping one closes the client. Operations then fail at once with [`OperationError::Abandoned`].
//!
//! Timers want nothing special in tasks of embassy's executor. Where futures are polled by a combinator that brings wakers of its own, embassy-time
//! must have one of its features `generic-queue-N`.
//!
//! embassy-net wakes one task alone when the network goes up or down, so a client does not wait for that: without a lease connecting fails at once, and
//! monitors try again each half second. Start the runner when the network is up, if boot time matters.
//!
//! # Power loss
//!
//! Servers notice; nothing needs to be cleaned up here.
//!
//! # Features
//!
//! | feature | | what it adds |
//! |---|---|---|
//! | `auth` | default | users and passwords: SCRAM-SHA-256. SCRAM-SHA-1 too where feature `auth` of `poolhouse-core` is on |
//! | `dns` | default | names of servers, looked up by embassy-net. Without it servers have IPv4 addresses |
//! | `tls` | | TLS 1.3 to servers with P-256 certificates |
//! | `defmt` | | events as log messages of defmt |
//!
//! # Guide
//!
//! [`firmware`](poolhouse_core::guide::firmware): how to choose sizes, what fails the build, TLS, limits, figures.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(all(test, feature = "tls"))]
extern crate alloc;
#[cfg(all(test, feature = "tls"))]
extern crate std;

mod client;
mod config;
mod embassy;
mod error;
mod layout;
mod lock;
#[cfg(feature = "defmt")]
mod log;
mod place;
mod run;
mod slot;
#[cfg(feature = "tls")]
mod tls;

pub use client::{Buffers, Client, Resources};
pub use config::{Config, Options};
pub use embassy::{ADDRESS_BYTES_MAX, Embassy, Random, Stream, StreamError};
pub use error::SetupError;
pub use layout::{Layout, Sizes};
pub use lock::ExecutorLock;
#[cfg(feature = "defmt")]
pub use log::DefmtEvents;
pub use place::{PlaceRef, ServerRef};
#[cfg(feature = "auth")]
pub use poolhouse_auth;
#[cfg(feature = "auth")]
pub use poolhouse_auth::{Credential, Mechanism};
pub use poolhouse_core;
pub use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::pool::PoolOptions;
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use poolhouse_driver;
pub use poolhouse_driver::{CommandOptions, EventRef, ExchangeError, OperationError, Publish};
pub use poolhouse_wire;
pub use poolhouse_wire::bson::{DocumentWriter, RawDocument};
pub use run::{HubRunner, Runner, ServerRunner};
pub use slot::{Buffer, Socket};
#[cfg(feature = "tls")]
pub use tls::{MaxFragment, TlsBuffers, TlsConfig, TlsIdentity, TlsOptions, TlsRunner, TlsSessions, TlsSocket};

/// The guide's examples, compiled like those of any documentation.
#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../../core/src/guide/firmware.md")]
struct Guide;
