//! Bodies of the fuzz targets: ordinary functions of bytes, also run by `cargo test` from seeds.

pub mod monitor;
