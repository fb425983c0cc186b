//! Harness of Poolhouse.

pub mod fuzz;
pub mod mongod;
pub mod spec;
pub mod suite;
