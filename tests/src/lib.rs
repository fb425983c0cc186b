//! Harness of Poolhouse.

pub mod fuzz;
pub mod model;
