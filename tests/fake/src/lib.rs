//! Fake servers for tests of clients: a MongoDB server or replica set ([`mongo`]) and nodes of a
//! Cassandra cluster ([`cql`]).
//!
//! They listen on loopback, keep small data in memory, and inject faults on request: cut
//! connections, late or malformed replies, elections. [`tls`] makes certificates of every kind for
//! them.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod choices;
#[cfg(feature = "cql")]
pub mod cql;
pub mod mongo;
pub mod rng;
#[cfg(feature = "tls")]
pub mod tls;
