//! Poolhouse on [embassy](https://embassy.dev): a MongoDB client in static memory, without a heap.
//!
//! The pool, the monitors, the topology and the wire are those of `poolhouse-core`, on embassy-net's sockets and embassy-time's clock.
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
