//! Harness of Poolhouse.
#![forbid(unsafe_code)]
