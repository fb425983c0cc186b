//! Guides: how the parts are put to use. Text only; there is nothing here to call.
//!
//! - [`adapter`]: the client on another runtime, with a heap or without, and how to prove it.
//! - [`observing`]: events, logs, metrics, snapshots; a leak, and a pool that starves.
//! - [`tuning`]: the options that matter, and what happens when they are wrong.
//! - [`forking`]: what becomes of a client when its process forks.
//! - [`pool`]: a pool for a protocol of your own.
//! - [`migrating`]: from the official driver.
//! - [`migrating_pools`]: from deadpool, bb8 and r2d2.
//!
//! The guides for a loop of your own (`embedding`) and for firmware (`firmware`) are in
//! `poolhouse-core`.

// Their examples need an adapter, which this crate does not depend on: they are compiled and run
// where one is.

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
