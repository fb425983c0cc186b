//! Harness of Poolhouse.
