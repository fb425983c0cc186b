//! Harness of Poolhouse.
pub mod fake;
