//! Guides: how the parts are put to use. Text only; there is nothing here to call.
//!
//! - [`embedding`]: a pool and a monitor in a loop of your own, with an example that runs.
#![cfg_attr(
    feature = "client",
    doc = "- [`adapter`]: the client on another runtime, with a heap or without, and how to prove it."
)]
#![cfg_attr(not(feature = "client"), doc = "- `adapter` (feature `client`): the client on another runtime.")]
//! - [`firmware`]: the client in static memory on a microcontroller.
#![cfg_attr(
    feature = "client",
    doc = "- [`observing`]: events, logs, metrics, snapshots; a leak, and a pool that starves."
)]
#![cfg_attr(feature = "client", doc = "- [`tuning`]: the options that matter, and what happens when they are wrong.")]
#![cfg_attr(feature = "client", doc = "- [`forking`]: what becomes of a client when its process forks.")]
#![cfg_attr(feature = "client", doc = "- [`migrating`]: from the official driver, from deadpool and from bb8.")]
#![cfg_attr(
    not(feature = "client"),
    doc = "- `observing`, `tuning`, `forking`, `migrating` (feature `client`): for applications."
)]
//!
//! Applications begin with the documentation of their adapter (`poolhouse-smol`, `poolhouse-async-std`, `poolhouse-embassy`) and come here
//! for `observing` and `tuning`. Who writes a driver on a runtime of their own begins with [`embedding`], which says how every machine of this crate is
//! driven.

pub mod embedding {
    // Its example has its pool on the heap.
    #![cfg_attr(any(not(doctest), feature = "std"), doc = include_str!("guide/embedding.md"))]
}

// The examples of those below want an adapter, which this crate does not know: they are compiled and run where one is.

#[cfg(feature = "client")]
pub mod adapter {
    #![cfg_attr(not(doctest), doc = include_str!("guide/adapter.md"))]
}

pub mod firmware {
    #![cfg_attr(not(doctest), doc = include_str!("guide/firmware.md"))]
}

#[cfg(feature = "client")]
pub mod observing {
    #![cfg_attr(not(doctest), doc = include_str!("guide/observing.md"))]
}

#[cfg(feature = "client")]
pub mod tuning {
    #![cfg_attr(not(doctest), doc = include_str!("guide/tuning.md"))]
}

#[cfg(feature = "client")]
pub mod forking {
    #![doc = include_str!("guide/forking.md")]
}

#[cfg(feature = "client")]
pub mod migrating {
    #![cfg_attr(not(doctest), doc = include_str!("guide/migrating.md"))]
}
