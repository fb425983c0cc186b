//! The compression libraries.

use std::io::{Read, Write};

use super::Algorithm;

/// The algorithms that a server supports by default.
pub(in crate::mongo) const DEFAULT: &[Algorithm] = &[Algorithm::Snappy, Algorithm::Zstd, Algorithm::Zlib];

pub(super) fn compress(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Noop => bytes.to_vec(),
        Algorithm::Snappy => snap::raw::Encoder::new().compress_vec(bytes).expect("memory"),
        Algorithm::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        Algorithm::Zstd => zstd::stream::encode_all(bytes, 1).expect("memory"),
    }
}

/// Decompresses bytes to at most one byte more than `size`; `None` for malformed ones.
pub(super) fn inflate(algorithm: Algorithm, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let limit = u64::try_from(size).ok()? + 1;
    let mut inflated = Vec::new();
    match algorithm {
        Algorithm::Noop => inflated.extend_from_slice(bytes),
        Algorithm::Snappy => {
            if snap::raw::decompress_len(bytes).ok()? > size {
                return None;
            }
            inflated = snap::raw::Decoder::new().decompress_vec(bytes).ok()?;
        }
        Algorithm::Zlib => {
            flate2::read::ZlibDecoder::new(bytes).take(limit).read_to_end(&mut inflated).ok()?;
        }
        Algorithm::Zstd => {
            zstd::stream::read::Decoder::new(bytes).ok()?.take(limit).read_to_end(&mut inflated).ok()?;
        }
    }
    Some(inflated)
}
