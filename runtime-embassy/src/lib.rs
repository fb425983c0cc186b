//! Poolhouse on [embassy](https://embassy.dev): a pool of any connections and a MongoDB client, in
//! static memory, without a heap.
//!
//! Most firmware needs only [`pool`], for its own protocol over embassy-net's sockets. The rest of
//! this page describes the client.
//!
//! The pool, the monitors, the topology and the wire protocol are those of `poolhouse-core`, on
//! the sockets of embassy-net or of another [`Network`], and on embassy-time's clock. Single servers, replica sets, SCRAM-SHA-256 and
//! TLS 1.3 behave as in the clients for hosted platforms. The types determine the memory use.
//! Invalid options and unusable sizes fail the build.
//!
//! Use this crate in firmware; on a platform with threads and a heap, use `poolhouse-smol`. Read
//! next: the guide [`firmware`](poolhouse_core::guide::firmware).
//!
//! ```
//! use embassy_net::Stack;
//! use poolhouse_embassy::{Buffers, Client, Config, OperationError, Options, PoolOptions, Resources, Runner, SetupError, Sizes};
//! use static_cell::{ConstStaticCell, StaticCell};
//!
//! // One server, four connections, eight tasks that wait for a connection.
//! type Db = Sizes<1, 4, 8>;
//!
//! // An invalid option fails the build.
//! static CONFIG: Config = Options {
//!     seeds: &["10.0.0.5:27017"],
//!     direct_connection: true,
//!     pool: PoolOptions { max_pool_size: 4, ..PoolOptions::DEFAULT },
//!     ..Options::DEFAULT
//! }
//! .build();
//!
//! // Once the network is up: creates a client, which any task may copy, and its runner.
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
//! // In any task: the command is written to the connection's buffer, the reply copied to `reply`.
//! async fn count(client: Client<Db>) -> Result<i64, OperationError> {
//!     let mut reply = [0; 512];
//!     let reply = client.run_command("shop", |command| command.str("count", "orders").map(drop), &mut reply).await?;
//!     Ok(reply.get("n").ok().flatten().and_then(|n| n.as_integer()).unwrap_or(0))
//! }
//! ```
//!
//! # Targets
//!
//! The tests run on emulated Cortex-M3 and Cortex-M4F. The crate also compiles, with all features, for
//! Cortex-M0+ (`thumbv6m-none-eabi`: RP2040), Cortex-M33 (`thumbv8m.main-none-eabihf`: RP2350) and
//! RISC-V without atomics (`riscv32imc-unknown-none-elf`: ESP32-C3), where it was not run.
//!
//! # Memory
//!
//! All memory is in statics; [`Sizes`] determines their size; nothing is allocated. A message
//! larger than a connection's buffers is an error: [`ExchangeError::Encode`] for a command, of
//! which nothing is sent, and [`ExchangeError::ReplyTooLarge`] for a reply, after which the
//! connection is closed and the next command uses another one. When a table is full, operations
//! fail with [`Busy`](poolhouse_core::pool::CheckOutError::Busy). Of the largest message that a
//! connection can send, about 100 bytes are overhead of the command and of the wire protocol.
//!
//! # Tasks
//!
//! A client and all its futures stay on the executor of its network stack, as embassy-net's own
//! handles do. The background work runs in [`Runner::run`], or in several tasks with
//! [`Runner::split`]; do not run it in the task of the network stack. Any future of a client may be
//! dropped at any await. The futures of runners must not be dropped: no other runner takes over
//! their work, and dropping one closes the client. Operations then fail at once with
//! [`OperationError::Abandoned`].
//!
//! Timers need no configuration in tasks of embassy's executor. If a combinator polls futures with
//! its own wakers, enable one of the features `generic-queue-N` of embassy-time.
//!
//! embassy-net wakes only one task when the network goes up or down, so a client does not wait for
//! the network: without a lease, connecting fails at once and monitors retry every half second. If
//! boot time matters, start the runner once the network is up.
//!
//! # Power loss
//!
//! Servers detect it; the client needs no cleanup.
//!
//! # Features
//!
//! | feature | | what it adds |
//! |---|---|---|
//! | `auth` | default | users and passwords: SCRAM-SHA-256. SCRAM-SHA-1 too if feature `scram-sha-1` of `poolhouse-auth` is enabled |
//! | `dns` | default | names of servers, resolved by embassy-net. Without it, servers must have IP addresses |
//! | `ipv6` | | IPv6 addresses of servers, with embassy-net |
//! | `tls` | | TLS 1.3 to servers with P-256 certificates |
//! | `rsa` | | TLS to servers with RSA certificates of 2,048, 3,072 or 4,096 bits, too |
//! | `p384` | | TLS to servers with P-384 certificates, too |
//! | `defmt` | | events as log messages of defmt; `defmt::Format` of events and errors |
//!
//! # Guide
//!
//! [`firmware`](poolhouse_core::guide::firmware): the choice of sizes, compile-time checks, TLS,
//! limits, figures.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(all(test, feature = "tls"))]
extern crate alloc;
#[cfg(all(test, feature = "tls"))]
extern crate std;

mod client;
mod clock;
mod close;
mod config;
mod embassy;
mod error;
mod layout;
mod lock;
#[cfg(feature = "defmt")]
mod log;
mod network;
pub mod pool;
mod queue;
mod ram;
mod run;
mod server_slot;
mod slot;
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_client;

pub use client::{Buffers, Client, Resources};
pub use config::{Config, Options, Random};
pub use embassy::Embassy;
pub use error::SetupError;
pub use layout::{ADDRESS_BYTES_MAX, Layout, Sizes};
pub use lock::ExecutorLock;
#[cfg(feature = "defmt")]
pub use log::DefmtEvents;
pub use network::{Nal, NalSocket, Network, StackSocket};
#[cfg(feature = "auth")]
pub use poolhouse_auth;
#[cfg(feature = "auth")]
pub use poolhouse_auth::{Credential, Mechanism};
pub use poolhouse_core;
pub use poolhouse_core::monitor::{MonitorEvent, MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::pool::{CheckOutError, PoolEvent, PoolOptions};
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use poolhouse_core::topology::{Direct, SdamEvent};
pub use poolhouse_core::{Cause, ConfigError, Instant};
pub use poolhouse_driver;
pub use poolhouse_driver::{
    CheckOutFailure, CommandOptions, EventKinds, EventRef, ExchangeError, LoginFailure, OperationError, Publish,
};
pub use poolhouse_wire;
pub use poolhouse_wire::bson::{DocumentWriter, RawDocument};
pub use queue::{PushError, QueueCounts, WhenFull, WriteQueue};
pub use ram::Ram;
pub use run::{CoreRunner, Runner, ServerRunner};
pub use server_slot::{ServerRef, ServerSlotRef};
pub use slot::{Buffer, Socket, StreamError};
pub use stream::Stream;
#[cfg(feature = "tls")]
pub use stream::TlsSocket;
#[cfg(feature = "tls")]
pub use tls::{MaxFragment, TlsConfig, TlsIdentity, TlsOptions};
#[cfg(feature = "tls")]
pub use tls_client::{TlsBuffers, TlsRunner, TlsSessions};

/// Compiles the examples of the guide as doc tests.
#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../../core/src/guide/firmware.md")]
struct Guide;
