//! Poolhouse on [embassy](https://embassy.dev): a MongoDB client in static memory, without a heap.
//!
//! The pool, the monitors, the topology and the wire are those of `poolhouse-core`, on embassy-net's sockets and embassy-time's clock.
//!
//! ```
//! use embassy_net::Stack;
//! use poolhouse_embassy::{Client, Config, OperationError, Options, Resources, Runner, SetupError, Sizes};
//!
//! // One server, four connections, and eight tasks that may wait for them.
//! type Db = Sizes<1, 4, 8>;
//!
//! static CONFIG: Config = Options { seeds: &["10.0.0.5:27017"], direct_connection: true, ..Options::DEFAULT }.build();
//!
//! /// - `resources`: of a static, such as a `StaticCell<Resources<Db>>`.
//! fn begin(resources: &'static mut Resources<Db>, stack: Stack<'static>) -> Result<(Client<Db>, Runner<Db>), SetupError> {
//!     Client::new(resources, stack, &CONFIG)
//! }
//!
//! /// A task of its own, and not that of the network stack.
//! async fn run(runner: Runner<Db>) -> ! {
//!     runner.run().await
//! }
//!
//! /// Any other task.
//! async fn insert(client: Client<Db>, celsius: i32) -> Result<(), OperationError> {
//!     let mut reply = [0; 256];
//!     let reply = client
//!         .run_command(
//!             "telemetry",
//!             |command| {
//!                 command.str("insert", "readings")?.array("documents", |documents| {
//!                     documents.document(|document| document.int32("celsius", celsius).map(drop)).map(drop)
//!                 })?;
//!                 Ok(())
//!             },
//!             &mut reply,
//!         )
//!         .await?;
//!     assert!(reply.get("n").is_ok_and(|n| n.is_some()));
//!     Ok(())
//! }
//! ```
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
mod place;
mod run;
mod slot;
#[cfg(feature = "tls")]
mod tls;

pub use client::{Client, Resources};
pub use config::{Config, Options};
pub use embassy::{ADDRESS_BYTES_MAX, Embassy, Random, Stream, StreamError};
pub use error::SetupError;
pub use layout::{Layout, Sizes};
pub use lock::ExecutorLock;
pub use place::{PlaceRef, ServerRef};
pub use poolhouse_core;
#[cfg(feature = "auth")]
pub use poolhouse_core::auth::{Credential, Mechanism};
pub use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::pool::PoolOptions;
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use poolhouse_core::shell::{CommandOptions, EventRef, ExchangeError, OperationError, Publish};
pub use poolhouse_core::wire::bson::{DocumentWriter, RawDocument};
pub use run::Runner;
pub use slot::{Buffer, Socket};
#[cfg(feature = "tls")]
pub use tls::{MaxFragment, TlsConfig, TlsIdentity, TlsOptions, TlsResources, TlsRunner, TlsSocket};
