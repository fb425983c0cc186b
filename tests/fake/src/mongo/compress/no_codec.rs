//! No compression library: without the feature `compression` a server supports no algorithm.

use super::Algorithm;

/// The algorithms that a server supports by default.
pub(in crate::mongo) const DEFAULT: &[Algorithm] = &[];

pub(super) fn compress(algorithm: Algorithm, _bytes: &[u8]) -> Vec<u8> {
    panic!("{} needs the feature `compression`", algorithm.name())
}

pub(super) fn inflate(_algorithm: Algorithm, _bytes: &[u8], _size: usize) -> Option<Vec<u8>> {
    None
}
