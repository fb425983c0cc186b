use super::*;
use crate::bson::RawDocument;

fn decode(input: &[u8], accepted: Compressors) -> Result<Decoded<'_, Compressed<'_>>, WireError> {
    decode_compressed(input, &Limits { message_bytes_max: 1000, ..Limits::DEFAULT }, accepted)
}

fn all() -> Compressors {
    Compressor::ALL.into_iter().collect()
}

fn kind_and_offset(input: &[u8], accepted: Compressors) -> (WireErrorKind, u32) {
    let error = decode(input, accepted).expect_err("refused");
    (error.kind(), error.offset())
}

#[test]
fn compressors_keep_their_order_without_duplicates() {
    use Compressor::{Snappy, Zlib, Zstd};
    let list: Compressors = [Zstd, Snappy, Zstd, Zlib, Snappy].into_iter().collect();
    assert_eq!(list.iter().collect::<Vec<_>>(), [Zstd, Snappy, Zlib]);
    assert_eq!((list.first(), list.is_empty(), list.contains(Zlib)), (Some(Zstd), false, true));
    assert_eq!((Compressors::NONE.first(), Compressors::default().is_empty()), (None, true));
    assert_eq!(alloc::format!("{list:?}"), "[Zstd, Snappy, Zlib]");
    assert!(Compressor::ALL.into_iter().all(|one| list.available().contains(one) == one.is_available()));
}

/// The client's order applies, not the server's. Compressors that were not offered and unknown
/// names are ignored.
#[test]
fn first_offered_compressor_that_the_server_names_is_negotiated() {
    use Compressor::{Snappy, Zlib, Zstd};
    let cases: [(&[Compressor], &[&str], &[Compressor]); 7] = [
        (&[Zstd, Snappy, Zlib], &["snappy", "zlib"], &[Snappy, Zlib]),
        (&[Zlib, Snappy], &["snappy", "zlib", "zstd"], &[Zlib, Snappy]),
        (&[Zlib], &["snappy", "zstd"], &[]),
        (&[Snappy], &["noop", "lz4", "", "snappy"], &[Snappy]),
        (&[], &["snappy"], &[]),
        (&[Zstd], &[], &[]),
        (&[Zlib, Zstd], &["zstd", "zstd"], &[Zstd]),
    ];
    for (ours, theirs, agreed) in cases {
        let mut bytes = Vec::new();
        DocumentWriter::write(&mut bytes, |d| {
            d.array("c", |names| {
                names.document(|d| d.int32("n", 5).map(drop))?;
                theirs.iter().try_for_each(|name| names.str(name).map(drop))
            })
            .map(drop)
        })
        .expect("room");
        let reply = RawDocument::new(&bytes).expect("opens").get("c").expect("good").and_then(|v| v.as_array());
        let ours: Compressors = ours.iter().copied().collect();
        assert_eq!(ours.agreed(reply.expect("there")).iter().collect::<Vec<_>>(), agreed, "{ours:?} and {theirs:?}");
    }
}

#[test]
fn header_contains_the_inner_message() {
    for compressor in Compressor::ALL {
        let bytes = compressed(OP_MSG, 12, compressor.id(), b"datadata...!");
        let Ok(Decoded::Done { value, rest: b"" }) = decode(&bytes, all()) else { panic!("one message") };
        let header = Header { length_bytes: 28, request_id: 70, response_to: 7, opcode: OP_MSG };
        assert_eq!((value.header(), value.size_bytes()), (header, 12));
        assert_eq!((value.compressor(), value.data()), (Some(compressor), &b"datadata...!"[..]));
        assert!(!alloc::format!("{value:?}").contains("100"), "no byte of the data");
    }
}

/// Every cut requests the bytes for the next step, and never more than the message.
#[test]
fn incomplete_message_needs_more_bytes() {
    let bytes = compressed(OP_MSG, 12, 2, b"datadata...!");
    for end in 0..bytes.len() {
        let Ok(Decoded::NeedMore { bytes_min }) = decode(&bytes[..end], all()) else { panic!("more at {end}") };
        let goal = [16, 25, bytes.len()].into_iter().find(|goal| *goal > end).expect("before its end");
        assert_eq!(end + bytes_min, goal, "at {end}");
    }
    let twice = [bytes.as_slice(), b"next"].concat();
    assert!(matches!(decode(&twice, all()), Ok(Decoded::Done { rest: b"next", .. })));
}

#[test]
fn length_is_checked_first_against_the_limit() {
    for length in [i32::MIN, -1, 0, 15, 16, 24] {
        let mut bytes = compressed(OP_MSG, 12, 2, b"datadata...!");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(kind_and_offset(&bytes, all()), (WireErrorKind::MessageTooShort { length_bytes: length }, 0));
    }
    let mut bytes = compressed(OP_MSG, 12, 2, b"");
    bytes[..4].copy_from_slice(&1001_i32.to_le_bytes());
    assert_eq!(
        kind_and_offset(&bytes[..4], all()),
        (WireErrorKind::MessageTooLong { length_bytes: 1001, max_bytes: 1000 }, 0)
    );
    let plain = request("ping", Flags::NONE, "");
    assert_eq!(kind_and_offset(&plain, all()), (WireErrorKind::Opcode { opcode: OP_MSG }, 12));
}

/// The check happens before the data have arrived.
#[test]
fn nested_compression_and_other_opcodes_are_refused() {
    for (opcode, kind) in [
        (OP_COMPRESSED, WireErrorKind::CompressedTwice),
        (1, WireErrorKind::CompressedOpcode { opcode: 1 }),
        (2004, WireErrorKind::CompressedOpcode { opcode: 2004 }),
        (-1, WireErrorKind::CompressedOpcode { opcode: -1 }),
    ] {
        let bytes = compressed(opcode, 12, 2, b"datadata...!");
        assert_eq!(kind_and_offset(&bytes[..COMPRESSED_HEADER_BYTES], all()), (kind, 16));
    }
}

#[test]
fn unknown_and_unnegotiated_compressors_are_refused() {
    for id in 4..=u8::MAX {
        let bytes = compressed(OP_MSG, 12, id, b"datadata...!");
        assert_eq!(kind_and_offset(&bytes, all()), (WireErrorKind::CompressorUnknown { id }, 24));
    }
    for compressor in Compressor::ALL {
        let bytes = compressed(OP_MSG, 12, compressor.id(), b"datadata...!");
        let others = Compressor::ALL.into_iter().filter(|other| *other != compressor).collect();
        let kind = WireErrorKind::CompressorNotNegotiated { compressor };
        assert_eq!(kind_and_offset(&bytes, others), (kind, 24));
        assert_eq!(kind_and_offset(&bytes, Compressors::NONE), (kind, 24));
    }
    let noop = compressed(OP_MSG, 12, 0, b"datadata...!");
    assert_eq!(kind_and_offset(&noop, Compressors::NONE), (WireErrorKind::Compressed, 24));
    assert!(decode(&noop, Compressors::NONE.with(Compressor::Snappy)).is_ok());
}

/// If the declared size is impossible, the data are neither awaited nor inflated.
#[test]
fn declared_size_is_checked_before_the_data_arrive() {
    let refused = |size: i32, id: u8, data: &[u8], max_bytes: u32| {
        let bytes = compressed(OP_MSG, size, id, data);
        let kind = WireErrorKind::UncompressedSize { size_bytes: size, max_bytes };
        assert_eq!(kind_and_offset(&bytes[..COMPRESSED_HEADER_BYTES], all()), (kind, 20), "{size}");
    };
    for id in 1..=3 {
        for size in [i32::MIN, -1, 0, 1, 9, 985, i32::MAX] {
            // The limit is 1000, minus the header.
            refused(size, id, &[0; 60], 984);
        }
        for size in [10, 984] {
            assert!(decode(&compressed(OP_MSG, size, id, &[0; 60]), all()).is_ok(), "{size}");
        }
    }
    // Sizes that so few bytes cannot inflate to, and sizes that they can.
    refused(23, 1, &[0], 22);
    assert!(decode(&compressed(OP_MSG, 22, 1, &[0]), all()).is_ok());
    refused(13, 0, &[0; 12], 12);
    refused(10, 2, &[], 0);
    let wide = |size, id, data: &[u8]| {
        let bytes = compressed(OP_MSG, size, id, data);
        decode_compressed(&bytes, &Limits::DEFAULT, all()).map(drop).map_err(WireError::kind)
    };
    for (id, most) in [(2, 3 * 1032), (3, 3 * 32 * 1024)] {
        assert_eq!(wide(most, id, &[0; 3]), Ok(()));
        let (size_bytes, max_bytes) = (most + 1, most.unsigned_abs());
        assert_eq!(wide(most + 1, id, &[0; 3]), Err(WireErrorKind::UncompressedSize { size_bytes, max_bytes }));
    }
    assert_eq!(wide(47_999_984, 3, &[0; 4000]), Ok(()));
    assert!(wide(47_999_985, 3, &[0; 4000]).is_err());
}
