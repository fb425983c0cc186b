//! Bodies of the fuzz targets: ordinary functions of bytes.

pub mod pool;
