//! Test harness of Poolhouse: fake and real servers, runners of the official tests, reference
//! models, the seeded simulator, fuzz bodies.
#![forbid(unsafe_code)]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "every check panics, and errors are texts or those of the machine"
)]

extern crate alloc;

#[cfg(feature = "fuzz")]
pub mod canon;
#[cfg(feature = "contract")]
pub mod cassandra;
#[cfg(feature = "simulation")]
pub mod cmap;
#[cfg(feature = "contract")]
pub mod contract;
pub mod datastax;
pub mod dns;
#[cfg(feature = "contract")]
pub mod firmware;
pub mod flood;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod handshake;
#[cfg(feature = "simulation")]
pub mod hunt;
pub mod invariants;
#[cfg(feature = "fuzz")]
pub mod kind;
pub mod lateness;
pub mod machines;
#[cfg(feature = "fuzz")]
pub mod model;
#[cfg(feature = "contract")]
pub mod mongod;
#[cfg(feature = "simulation")]
pub mod network;
pub mod oracle;
pub mod patience;
#[cfg(feature = "contract")]
mod process;
#[cfg(feature = "contract")]
pub mod proxy;
pub mod reply;
#[cfg(feature = "contract")]
pub mod sdam;
#[cfg(feature = "simulation")]
pub mod search;
pub mod seeds;
#[cfg(feature = "fuzz")]
pub mod sim;
pub mod spec;
#[cfg(feature = "contract")]
pub mod suite;
#[cfg(feature = "contract")]
#[cfg(test)]
mod tls_tests;

#[cfg(feature = "contract")]
pub use poolhouse_fake::tls;
pub use poolhouse_fake::{choices, cql as cql_server, mongo as fake, rng};

/// `POOLHOUSE_EFFORT`: by how much more a random test tries than by default.
#[must_use]
pub fn effort() -> u64 {
    std::env::var("POOLHOUSE_EFFORT").map_or(1, |effort| effort.parse().expect("POOLHOUSE_EFFORT is a number"))
}

/// The examples of the README, compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The examples of front pages that need a platform, likewise.
#[cfg(doctest)]
mod front {
    #[doc = include_str!("../../core/client/src/example.md")]
    struct Client;
    #[doc = include_str!("../../core/driver/src/example.md")]
    struct Driver;
}

/// The examples of the guides that need a platform, likewise.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../core/client/src/guide/adapter.md")]
    struct Adapter;
    #[doc = include_str!("../../core/client/src/guide/cassandra.md")]
    struct Cassandra;
    #[doc = include_str!("../../core/client/src/guide/forking.md")]
    struct Forking;
    #[doc = include_str!("../../core/client/src/guide/migrating.md")]
    struct Migrating;
    #[doc = include_str!("../../core/client/src/guide/migrating_pools.md")]
    struct MigratingPools;
    #[doc = include_str!("../../core/client/src/guide/migrating_datastax.md")]
    struct MigratingDatastax;
    #[doc = include_str!("../../core/client/src/guide/migrating_pymongo.md")]
    struct MigratingPymongo;
    #[doc = include_str!("../../core/client/src/guide/mongodb.md")]
    struct Mongodb;
    #[doc = include_str!("../../core/client/src/guide/observing.md")]
    struct Observing;
    #[doc = include_str!("../../core/client/src/guide/order_service.md")]
    struct OrderService;
    #[doc = include_str!("../../core/client/src/guide/pool.md")]
    struct Pool;
    #[doc = include_str!("../../core/client/src/guide/status.md")]
    struct Status;
    #[doc = include_str!("../../core/client/src/guide/tuning.md")]
    struct Tuning;
}
