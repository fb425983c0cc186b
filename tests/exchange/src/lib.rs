//! Common code of benchmarks: [`mongo`] exchanges a `ping` with a MongoDB server, by a client or as
//! bare bytes; [`cql`] exchanges requests with a Cassandra node as bare bytes.

#![allow(clippy::missing_panics_doc, reason = "a panic ends a benchmark")]

pub mod cql;
pub mod mongo;
