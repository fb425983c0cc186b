//! Harness of Poolhouse.
#![forbid(unsafe_code)]

extern crate alloc;

pub mod fake;
pub mod fuzz;
pub mod model;
pub mod mongod;
pub mod sdam;
pub mod spec;
pub mod suite;
