//! Harness of Poolhouse.

pub mod fuzz;
pub mod model;
pub mod mongod;
pub mod sdam;
pub mod spec;
pub mod suite;
