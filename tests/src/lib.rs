//! Harness of Poolhouse.

pub mod mongod;
pub mod spec;
pub mod suite;
