//! Harness of Poolhouse.

pub mod mongod;
pub mod spec;
pub mod suite;
pub mod fuzz;
pub mod model;
