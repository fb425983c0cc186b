//! Connection pools and server monitors as pure state machines: events in, actions out.
//!
//! Nothing in this crate performs I/O or reads a clock. A host (one of the `poolhouse-*` adapters, or
//! your own loop) tells a machine what happened and when, takes the actions that it owes, and calls
//! again when the instant of `poll_timeout` has come.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "scram-sha-256")]
pub mod auth;
mod cause;
#[cfg(feature = "client")]
pub mod client;
mod config;
pub mod control;
pub mod convert;
#[cfg(feature = "dns")]
pub mod dns;
pub mod machine;
pub mod monitor;
pub mod mux;
pub mod observe;
pub mod pool;
pub mod scan;
pub mod selection;
mod server;
#[cfg(feature = "async")]
pub mod shell;
pub mod storage;
mod time;
#[cfg(feature = "tls")]
pub mod tls;
pub mod topology;
#[cfg(feature = "alloc")]
pub mod uri;
pub mod wire;

pub use cause::{Cause, CertificateFault};
pub use config::ConfigError;
pub use machine::{Machine, Observer, Stale};
pub use server::{ObjectId, Roles, ServerId, ServerType, TopologyVersion};
pub use time::Instant;
