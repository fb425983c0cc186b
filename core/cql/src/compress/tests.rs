use alloc::vec::Vec;

use super::*;
use crate::tests::{hex, long_query, noise};

/// [`long_query`] as the libraries of LZ4 and Snappy in C and C++ compress it.
const BODY_LZ4: &str = "00000054cf0000004d53454c454354206101002ba02046524f4d2074000100";
const BODY_SNAPPY: &str = "542c0000004d53454c4543542061f60100242046524f4d2074000100";

fn inflate(compression: Compression, data: &[u8], limit: usize) -> Result<Vec<u8>, (CqlErrorKind, u32)> {
    let mut buffer = Buffer::new(Vec::new());
    match compression.inflate_body(data, limit, &mut buffer) {
        Ok(()) => Ok(buffer.bytes().to_vec()),
        Err(error) => Err((error.kind(), error.offset())),
    }
}

fn available() -> impl Iterator<Item = Compression> {
    Compression::ALL.into_iter().filter(|compression| compression.is_available())
}

#[test]
fn each_has_its_name_and_its_versions() {
    assert_eq!(Compression::ALL.map(Compression::name), ["lz4", "snappy"]);
    let versions = [Version::V3, Version::V4, Version::V5];
    assert_eq!(versions.map(|version| Compression::Lz4.is_in(version)), [true; 3]);
    assert_eq!(versions.map(|version| Compression::Snappy.is_in(version)), [true, true, false]);
}

#[test]
fn bodies_of_other_implementations_are_inflated() {
    for compression in available() {
        let data = match compression {
            Compression::Lz4 => BODY_LZ4,
            Compression::Snappy => BODY_SNAPPY,
        };
        assert_eq!(inflate(compression, &hex(data), 84), Ok(long_query(Version::V4)), "{compression}");
        let (kind, _) = inflate(compression, &hex(data), 83).expect_err("beyond the limit");
        assert_eq!(kind, CqlErrorKind::InflatedSize { size_bytes: 84, max_bytes: 83 });
    }
}

#[test]
fn bodies_are_compressed_only_if_they_become_shorter() {
    for compression in available() {
        let mut deflater = Deflater::new();
        for length in [0, 1, 31, 32, 33, 200, 5_000, 70_000, 300_000] {
            let text: Vec<u8> = b"pool house ".iter().copied().cycle().take(length).collect();
            let mut sink = hex("aabb");
            let shorter = deflater.deflate(compression, true, &text, &mut sink).expect("it grows");
            assert_eq!(shorter, length >= 32, "{compression} of {length}");
            assert_eq!(sink[..2], [0xaa, 0xbb]);
            if shorter {
                assert!(sink.len() - 2 < length);
                assert_eq!(inflate(compression, &sink[2..], length), Ok(text));
            } else {
                assert_eq!(sink.len(), 2, "as it was");
            }
        }
        // Bytes without a pattern do not become shorter, and nothing is written.
        let noise = noise(10_000);
        let mut sink = Vec::new();
        assert_eq!(deflater.deflate(compression, true, &noise, &mut sink), Ok(false));
        assert!(sink.is_empty());
    }
}

#[test]
fn sink_without_room_is_left_as_it_was() {
    for compression in available() {
        let mut small = heapless::Vec::<u8, 100>::new();
        small.push(7).expect("room");
        assert_eq!(Deflater::new().deflate(compression, true, &[1; 200], &mut small), Err(Full));
        assert_eq!(small, [7]);
    }
}

#[test]
fn empty_bodies_are_compressed_by_some() {
    for (compression, data) in
        [(Compression::Lz4, "00000000"), (Compression::Lz4, "0000000000"), (Compression::Snappy, "00")]
    {
        if compression.is_available() {
            assert_eq!(inflate(compression, &hex(data), 100), Ok(Vec::new()), "{compression} of {data}");
        }
    }
}

#[test]
fn sizes_beyond_the_expansion_limit_are_refused() {
    for (compression, data, size_bytes, max_bytes) in [
        (Compression::Lz4, "0fffffff00112233", 0x0fff_ffff, 4 * 255),
        (Compression::Lz4, "ffffffff00112233", u32::MAX, 4 * 255),
        (Compression::Lz4, "00000001", 1, 0),
        (Compression::Snappy, "ffffff7f00", 0x0fff_ffff, 5 * 22),
        (Compression::Snappy, "ffffffff0f", u32::MAX, 5 * 22),
    ] {
        if compression.is_available() {
            let refused = inflate(compression, &hex(data), usize::MAX);
            assert_eq!(refused, Err((CqlErrorKind::InflatedSize { size_bytes, max_bytes }, 9)), "{compression} {data}");
        }
    }
}

#[test]
fn data_that_are_malformed_or_of_another_size_are_refused() {
    for compression in available() {
        let data = match compression {
            Compression::Lz4 => BODY_LZ4,
            Compression::Snappy => BODY_SNAPPY,
        };
        let data = hex(data);
        let malformed = CqlErrorKind::CompressedData { compression };
        for end in 0..data.len() {
            let (kind, _) = inflate(compression, &data[..end], 1000).expect_err("cut");
            assert!(kind == malformed || matches!(kind, CqlErrorKind::InflatedSize { .. }), "{kind} at {end}");
        }
        for size in [83, 85] {
            let mut other = data.clone();
            let at = if compression == Compression::Lz4 { 3 } else { 0 };
            other[at] = size;
            assert_eq!(inflate(compression, &other, 1000).map_err(|(kind, _)| kind), Err(malformed), "{size}");
        }
        let longer = [&data[..], &[0x11; 4]].concat();
        assert!(inflate(compression, &longer, 1000).is_err());
        assert!(inflate(compression, &[], 1000).is_err());
    }
    if Compression::Snappy.is_available() {
        let endless = inflate(Compression::Snappy, &[0xff; 10], 1000);
        assert_eq!(endless, Err((CqlErrorKind::CompressedData { compression: Compression::Snappy }, 9)));
    }
}

#[test]
fn lack_of_memory_is_an_error_of_this_side() {
    if Compression::Lz4.is_available() {
        let mut buffer = Buffer::new(heapless::Vec::<u8, 83>::new());
        let error = Compression::Lz4.inflate_body(&hex(BODY_LZ4), 100, &mut buffer).expect_err("83 bytes");
        assert_eq!(error.kind(), CqlErrorKind::NoMemory { needed_bytes: 84 });
        assert_eq!(poolhouse_wire::Cause::from(error), poolhouse_wire::Cause::Resources);
    }
}

#[test]
fn debug_of_a_deflater_shows_no_data() {
    let mut deflater = Deflater::new();
    for compression in available() {
        deflater.deflate(compression, false, &b"hunter2 ".repeat(9), &mut Vec::new()).expect("it grows");
    }
    assert_eq!(alloc::format!("{deflater:?}"), "Deflater");
}

/// Data that inflate to another size than the declared one are malformed, and so are empty data
/// with a declared size above zero.
#[test]
fn data_that_inflate_to_another_size_are_malformed() {
    for size in [0, 5, 83, 84, 85, 200] {
        let mut output = alloc::vec![0; size];
        let is_right = size == 84;
        if Compression::Lz4.is_available() {
            assert_eq!(inflate_block(&hex(BODY_LZ4)[4..], &mut output).is_ok(), is_right, "{size}");
            assert_eq!(inflate_block(&[], &mut output).is_ok(), size == 0, "{size} of nothing");
        }
        if Compression::Snappy.is_available() {
            assert_eq!(inflate_snappy(&hex(BODY_SNAPPY), &mut output).is_ok(), is_right, "{size}");
        }
    }
}
