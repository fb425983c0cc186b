//! Harness of Poolhouse: fake and real servers, runners of the official tests, reference models, the seeded simulator, fuzz bodies.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod choices;
pub mod cmap;
pub mod contract;
pub mod cql_server;
pub mod dns;
pub mod exchange;
pub mod fake;
pub mod firmware;
pub mod fuzz;
pub mod handshake;
pub mod invariants;
pub mod model;
pub mod mongod;
pub mod patience;
pub mod rng;
pub mod sdam;
pub mod seeds;
pub mod sim;
pub mod spec;
pub mod suite;
pub mod tls;
pub mod world;

/// The examples of the README, compiled and run like those of any documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
