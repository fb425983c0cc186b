//! Poolhouse on [embassy](https://embassy.dev): a MongoDB client in static memory, without a heap.
//!
//! The pool, the monitors, the topology and the wire are those of `poolhouse-core`, on embassy-net's sockets and embassy-time's clock.
#![no_std]
#![forbid(unsafe_code)]

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

pub use client::{Buffers, Client, Resources};
pub use config::{Config, Options};
pub use embassy::{ADDRESS_BYTES_MAX, Embassy, Random, Stream};
pub use error::SetupError;
pub use layout::{Layout, Sizes};
pub use lock::ExecutorLock;
#[cfg(feature = "defmt")]
pub use log::DefmtEvents;
pub use place::{PlaceRef, ServerRef};
pub use poolhouse_core;
#[cfg(feature = "auth")]
pub use poolhouse_core::auth::{Credential, Mechanism};
pub use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
pub use poolhouse_core::pool::PoolOptions;
pub use poolhouse_core::selection::{ReadMode, ReadPreference, ReadPreferenceOptions};
pub use poolhouse_core::shell::{CommandOptions, EventRef, ExchangeError, OperationError, Publish};
pub use poolhouse_core::wire::bson::{DocumentWriter, RawDocument};
pub use run::{HubRunner, Runner, ServerRunner};
pub use slot::{Buffer, Socket};
