//! Poolhouse on [smol](https://docs.rs/smol): monitored MongoDB connection pools without tokio.
//!
//! ```no_run
//! # fn main() -> Result<(), poolhouse_smol::Error> {
//! smol::block_on(async {
//!     let client = poolhouse_smol::Client::connect("mongodb://127.0.0.1:27017")?;
//!     let reply = client.run_command("admin", bson::doc! { "ping": 1 }).await?;
//!     println!("{reply}");
//!     client.close().await;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! A [`Client`] keeps a pool and a monitor for each server. It is the [client](poolhouse_core::client::Client) of `poolhouse-core`, on
//! smol's sockets and timers; its background tasks run on smol's global executor; start that
//! with more threads by the environment variable `SMOL_THREADS`. Dropping any future of a client is safe at any point.
#![forbid(unsafe_code)]

mod platform;

pub use platform::Smol;
pub use poolhouse_core;
pub use poolhouse_core::client::{
    ClientOptions, CommandError, CommandOptions, DriverInfo, Error, OptionError, OwnedReadPreference, ServerStatus,
    WriteConcern,
};
pub use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::pool::PoolOptions;
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use poolhouse_core::shell::{Event, EventRef, Notice, PoolSnapshot, Subscription};

/// A MongoDB client on smol: see [`poolhouse_core::client::Client`] for what it does.
pub type Client = poolhouse_core::client::Client<Smol>;

/// A connection of a [`Client`] that is checked out: see [`poolhouse_core::client::Connection`].
pub type Connection<'c> = poolhouse_core::client::Connection<'c, Smol>;

/// A database of a [`Client`]: see [`poolhouse_core::client::Database`].
pub type Database = poolhouse_core::client::Database<Smol>;
