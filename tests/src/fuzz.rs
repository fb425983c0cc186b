//! Bodies of fuzz targets: ordinary functions of bytes, which tests run as well.

pub mod topology;
