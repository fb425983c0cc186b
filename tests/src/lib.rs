//! Harness of Poolhouse.

extern crate alloc;

pub mod fake;
