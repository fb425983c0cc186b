//! Guides: how to use the clients. These modules contain only text.
//!
//! - [`mongodb`]: a MongoDB client: options, commands, users, time limits.
//! - [`cookbook`]: commands for writes, reads, change streams, transactions and collections.
//! - [`order_service`]: a program over HTTP with transactions, and what happens at a failover.
//! - [`cassandra`]: a Cassandra session.
//! - [`pool`]: a pool for a protocol of your own.
//! - [`observing`]: events, logs, metrics, snapshots; how to find a leak or an exhausted pool.
//! - [`tuning`]: the most important options, and the symptoms of wrong values.
//! - [`forking`]: a client in a process that forks.
//! - [`migrating`]: from the official driver.
//! - [`migrating_pymongo`]: from pymongo.
//! - [`migrating_datastax`]: from the DataStax drivers for Cassandra.
//! - [`migrating_pools`]: from deadpool, bb8 and r2d2.
//! - [`adapter`]: the client on another runtime, with a heap or without, and its contract.
//! - [`status`]: what is implemented, and what is not.
//!
//! `poolhouse_core::guide` has the guides for a loop of your own (`embedding`), for firmware
//! (`firmware`), and the `glossary`.

// Their examples need an adapter, which this crate does not depend on: `poolhouse-tests` runs them.

pub mod adapter {
    #![cfg_attr(not(doctest), doc = include_str!("guide/adapter.md"))]
}

pub mod observing {
    #![cfg_attr(not(doctest), doc = include_str!("guide/observing.md"))]
}

pub mod tuning {
    #![cfg_attr(not(doctest), doc = include_str!("guide/tuning.md"))]
}

pub mod forking {
    #![cfg_attr(not(doctest), doc = include_str!("guide/forking.md"))]
}

pub mod migrating {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating.md"))]
}

pub mod pool {
    #![cfg_attr(not(doctest), doc = include_str!("guide/pool.md"))]
}

pub mod migrating_pymongo {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating_pymongo.md"))]
}

// The target `scenarios` of `poolhouse-hosted` runs it.
pub mod cookbook {
    #![cfg_attr(not(doctest), doc = include_str!("guide/cookbook.md"))]
}

pub mod migrating_datastax {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating_datastax.md"))]
}

pub mod migrating_pools {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating_pools.md"))]
}

pub mod mongodb {
    #![cfg_attr(not(doctest), doc = include_str!("guide/mongodb.md"))]
}

pub mod order_service {
    #![cfg_attr(not(doctest), doc = include_str!("guide/order_service.md"))]
}

pub mod cassandra {
    #![cfg_attr(not(doctest), doc = include_str!("guide/cassandra.md"))]
}

pub mod status {
    #![cfg_attr(not(doctest), doc = include_str!("guide/status.md"))]
}
