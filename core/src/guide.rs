//! Guides: how the parts are put to use. Text only; there is nothing here to call.
//!
//! - [`embedding`]: pools and monitors in a loop of your own, with a complete host.
//! - [`firmware`]: the client in static memory on a microcontroller.
//!
//! The guides for applications (`observing`, `tuning`, `forking`, `migrating`) and for other
//! runtimes (`adapter`) are in `poolhouse-client`.

pub mod embedding {
    // The example of this guide keeps its pool on the heap.
    #![cfg_attr(any(not(doctest), feature = "std"), doc = include_str!("guide/embedding.md"))]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = "```")]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = include_str!("../examples/blocking/client.rs"))]
    #![cfg_attr(any(not(doctest), feature = "std"), doc = "```")]
}

// The example of this guide needs an adapter, so the crates of the adapters compile and run it.
pub mod firmware {
    #![cfg_attr(not(doctest), doc = include_str!("guide/firmware.md"))]
}
