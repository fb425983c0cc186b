//! Poolhouse on smol.
