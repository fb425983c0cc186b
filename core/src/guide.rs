//! Guides: how to use the crates. These modules contain only text.
//!
//! - [`embedding`]: pools and monitors in a loop of your own, with a complete host.
//! - [`firmware`]: a pool and a client in static memory on a microcontroller.
//! - [`glossary`]: the terms of the specifications.
//!
//! `poolhouse_client::guide` has the guides for applications (`mongodb`, `cassandra`, `pool`,
//! `observing`, `tuning`, `forking`, `migrating`, `status`) and for other runtimes (`adapter`).

pub mod embedding {
    // The example of this guide keeps its pool on the heap.
    #![cfg_attr(any(not(doctest), feature = "std"), doc = include_str!("guide/embedding.md"))]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = "```")]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = include_str!("../examples/blocking/client.rs"))]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = "```")]
}

// The examples need an adapter: `poolhouse-embassy` runs them.
pub mod firmware {
    #![cfg_attr(not(doctest), doc = include_str!("guide/firmware.md"))]
}

pub mod glossary {
    #![doc = include_str!("guide/glossary.md")]
}
