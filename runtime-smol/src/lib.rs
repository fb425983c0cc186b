//! Poolhouse on smol.
#![forbid(unsafe_code)]
