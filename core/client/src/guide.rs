//! Guides: how the parts are used. This module contains text only.
//!
//! - [`adapter`]: the client on another runtime, with a heap or without, and how to prove it.
//! - [`observing`]: events, logs, metrics, snapshots; how to find a leak, and a pool without free
//!   connections.
//! - [`tuning`]: the options that matter, and what happens when they are wrong.
//! - [`forking`]: a client after a fork of its process.
//! - [`pool`]: a pool for your own protocol.
//! - [`migrating`]: from the official driver.
//! - [`migrating_pools`]: from deadpool, bb8 and r2d2.
//!
//! The guides for your own event loop (`embedding`) and for firmware (`firmware`) are in
//! `poolhouse-core`.

// The examples need an adapter, on which this crate does not depend, so the crates of the adapters
// compile and run them.

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

pub mod migrating_pools {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating_pools.md"))]
}
