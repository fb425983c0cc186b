use alloc::vec::Vec;

use super::*;
use crate::segment::{begin_segment, end_segment};
#[cfg(feature = "lz4")]
use crate::tests::TWO_BY_LZ4;
use crate::tests::{decode_all_ways, decode_in_pieces, decoder, envelope, hex, long_query, two_in_a_segment};
use crate::{Encoder, Opcode};
use poolhouse_wire::SliceSink;

/// A decoder of v5 after the answer to STARTUP.
fn framed() -> Decoder<Vec<u8>> {
    let mut decoder = decoder(Version::V5);
    decoder.set_started();
    decoder
}

#[cfg(feature = "lz4")]
fn packed() -> Decoder<Vec<u8>> {
    let mut decoder = framed();
    decoder.set_compression(Some(Compression::Lz4));
    decoder
}

fn segment(payload: &[u8], self_contained: bool) -> Vec<u8> {
    let mut sink = Vec::new();
    begin_segment(&mut sink, Format::Plain).expect("it grows");
    sink.extend_from_slice(payload);
    end_segment(&mut sink, 0, Format::Plain, None, self_contained).expect("it grows");
    sink
}

#[cfg(feature = "lz4")]
fn packed_segment(payload: &[u8], inflated: Option<usize>, self_contained: bool) -> Vec<u8> {
    let mut sink = Vec::new();
    begin_segment(&mut sink, Format::Compressed).expect("it grows");
    sink.extend_from_slice(payload);
    end_segment(&mut sink, 0, Format::Compressed, inflated, self_contained).expect("it grows");
    sink
}

/// A RESULT of v5 on that stream.
fn result(stream: i16, body: &[u8]) -> Vec<u8> {
    envelope(0x85, 0, stream, 8, body)
}

fn streams(envelopes: &[(Header, Vec<u8>)]) -> Vec<i16> {
    envelopes.iter().map(|(header, _)| header.stream).collect()
}

/// Returns the number of envelopes before the error, and the error, which must be the same however
/// the bytes are cut.
fn refused(make: impl Fn() -> Decoder<Vec<u8>>, bytes: &[u8]) -> (usize, CqlErrorKind, u32) {
    let (envelopes, error) = decode_all_ways(make, bytes);
    let error = error.expect("refused");
    (envelopes.len(), error.kind(), error.offset())
}

#[test]
fn envelopes_of_older_versions_are_decoded_in_order() {
    for version in [Version::V3, Version::V4, Version::V5] {
        let first = version.number() | 0x80;
        let bytes = [
            envelope(first, 0xe0, 7, 2, &[]),
            envelope(first, 0, -1, 0x0c, b"something happened"),
            envelope(first, 2, i16::MAX, 8, &[5; 300]),
        ];
        let (envelopes, error) = decode_all_ways(|| decoder(version), &bytes.concat());
        assert_eq!((streams(&envelopes), error), ([7, -1, i16::MAX].to_vec(), None));
        let (header, body) = &envelopes[2];
        let expected = Header {
            version,
            direction: Direction::Response,
            flags: Flags::TRACING,
            stream: i16::MAX,
            opcode: Opcode::Result,
            length_bytes: 300,
        };
        assert_eq!((header, body), (&expected, &alloc::vec![5; 300]));
        assert_eq!(envelopes[0].0.flags, Flags::from_bits(0xe0));
        assert_eq!(envelopes[1].1, b"something happened");
    }
}

#[test]
fn whole_envelope_is_borrowed_from_the_input() {
    let bytes = [result(1, &[1; 50]), result(2, &[2; 50])].concat();
    for (mut decoder, bytes) in [(decoder(Version::V5), bytes.clone()), (framed(), segment(&bytes, true))] {
        let mut rest = &bytes[..];
        for _ in 0..2 {
            let step = decoder.decode(rest).expect("good");
            let body = step.envelope.expect("there").body;
            assert!(bytes.as_ptr_range().contains(&body.as_ptr()));
            rest = &rest[step.consumed_bytes..];
        }
        assert_eq!(decoder.decode(rest), Ok(Step { consumed_bytes: 0, envelope: None }));
        assert!(rest.is_empty() && decoder.is_between());
        assert_eq!(decoder.memory().map(Vec::capacity), [0, 0]);
    }
}

#[test]
fn segments_of_other_implementations_are_decoded() {
    let make = || {
        let mut decoder = Decoder::new(Version::V5, Direction::Request, Limits::DEFAULT, Vec::new(), Vec::new());
        decoder.set_started();
        decoder
    };
    let bytes = two_in_a_segment();
    let (envelopes, error) = decode_all_ways(make, &[&bytes[..], &bytes].concat());
    assert_eq!((streams(&envelopes), error), ([7, 8, 7, 8].to_vec(), None));
    assert_eq!(envelopes[1].1, long_query(Version::V5));
    #[cfg(feature = "lz4")]
    {
        let make = || {
            let mut decoder = make();
            decoder.set_compression(Some(Compression::Lz4));
            decoder
        };
        let bytes = hex(TWO_BY_LZ4);
        let raw = hex("0900000004c2b895050000070500000000a8b62d50");
        let (envelopes, error) = decode_all_ways(make, &[&raw[..], &bytes, &raw, &bytes].concat());
        assert_eq!((streams(&envelopes), error), ([7, 7, 8, 7, 7, 8].to_vec(), None));
        assert_eq!(envelopes[2].1, long_query(Version::V5));
    }
}

#[test]
fn envelope_in_parts_is_assembled_however_it_is_cut() {
    let whole = result(9, &(0..=255).cycle().take(700).collect::<Vec<u8>>());
    for size in [1, 2, 8, 9, 10, 300, whole.len() - 1, whole.len()] {
        let parts: Vec<u8> = whole.chunks(size).flat_map(|part| segment(part, false)).collect();
        // The bytes that follow are decoded normally.
        let bytes = [&parts[..], &segment(&[&whole[..], &result(10, &[])].concat(), true), &parts].concat();
        let (envelopes, error) = decode_all_ways(framed, &bytes);
        assert_eq!((streams(&envelopes), error), ([9, 9, 10, 9].to_vec(), None), "in parts of {size}");
        assert_eq!(envelopes[0].1, whole[9..]);
        assert_eq!(envelopes[3].1, whole[9..]);
    }
}

/// Version 5 as it is on a connection: unframed until STARTUP is answered, then framed.
#[test]
fn segments_begin_when_startup_is_answered() {
    let ready = envelope(0x85, 0, 0, 2, &[]);
    let bytes = [&ready[..], &segment(&result(1, &[]), true)].concat();
    for cut in 0..=bytes.len() {
        let mut decoder = decoder(Version::V5);
        let (mut start, mut seen) = (0, Vec::new());
        for end in [cut, bytes.len()] {
            loop {
                let step = decoder.decode(&bytes[start..end]).expect("good");
                start += step.consumed_bytes;
                let Some(envelope) = step.envelope else { break };
                seen.push(envelope.header.opcode);
                if seen.len() == 1 {
                    decoder.set_started();
                }
            }
        }
        assert_eq!(seen, [Opcode::Ready, Opcode::Result], "cut at {cut}");
    }
    let mut old = decoder(Version::V4);
    old.set_started();
    let ready = envelope(0x84, 0, 0, 2, &[]);
    assert_eq!(decode_in_pieces(&mut old, &ready, [9]).0.len(), 1, "older versions have none");
}

#[test]
fn invalid_header_is_detected_at_its_byte() {
    let good = envelope(0x84, 0, 1, 8, &[1]);
    for (bytes, kind, offset) in [
        (hex("85"), CqlErrorKind::VersionOther { expected: Version::V4, found: Version::V5 }, 0),
        (hex("04"), CqlErrorKind::Direction, 0),
        (hex("48545450"), CqlErrorKind::VersionUnknown { number: 0x48 }, 0),
        (hex("8400000004"), CqlErrorKind::OpcodeUnknown { opcode: 4 }, 4),
        (hex("8400ffff08"), CqlErrorKind::Stream { stream: -1 }, 2),
        (hex("840000000880000000"), CqlErrorKind::LengthNegative { length_bytes: i32::MIN }, 5),
        (hex("840000000810000001"), CqlErrorKind::TooLong { length_bytes: 0x1000_0001, max_bytes: 0x1000_0000 }, 5),
    ] {
        let expected = (1, kind, offset);
        assert_eq!(refused(|| decoder(Version::V4), &[&good[..], &bytes].concat()), expected);
        let rest = [&good[..], &bytes, &[0xff; 40]].concat();
        assert_eq!(refused(|| decoder(Version::V4), &rest), expected);
    }
}

#[test]
fn header_in_a_segment_is_checked_in_the_same_way() {
    for (bytes, kind, offset) in [
        (hex("840000000200000000"), CqlErrorKind::VersionOther { expected: Version::V5, found: Version::V4 }, 0),
        (hex("850000000700000000"), CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Query }, 4),
        (hex("8500ffff08ffffffff"), CqlErrorKind::Stream { stream: -1 }, 2),
        (hex("8500000008ffffffff"), CqlErrorKind::LengthNegative { length_bytes: -1 }, 5),
        (hex("8500000008100000010000"), CqlErrorKind::TooLong { length_bytes: 0x1000_0001, max_bytes: 1 << 28 }, 5),
    ] {
        let contained = segment(&[&result(1, &[])[..], &bytes].concat(), true);
        assert_eq!(refused(framed, &contained), (1, kind, offset));
        assert_eq!(refused(framed, &segment(&bytes, false)), (0, kind, offset));
    }
}

#[test]
fn invalid_segment_is_refused() {
    let good = segment(&result(1, &[1; 20]), true);
    let mut wrong = good.clone();
    wrong[0] ^= 1;
    let (count, kind, offset) = refused(framed, &[&good[..], &wrong].concat());
    assert!(matches!(kind, CqlErrorKind::SegmentHeaderChecksum { .. }), "{kind}");
    assert_eq!((count, offset), (1, 3));
    // Every byte of the payload and of its checksum.
    for at in 6..good.len() {
        let mut wrong = good.clone();
        wrong[at] ^= 0x10;
        let (count, kind, offset) = refused(framed, &wrong);
        assert!(matches!(kind, CqlErrorKind::SegmentChecksum { .. }), "{kind}");
        assert_eq!((count, offset), (0, 6 + 29));
    }
    let two = [result(1, &[]), result(2, &[1; 20])].concat();
    let short = segment(&two[..two.len() - 3], true);
    assert_eq!(refused(framed, &short), (1, CqlErrorKind::SegmentTooShort { missing_bytes: 3 }, 26));
    let short = segment(&two[..9 + 4], true);
    assert_eq!(refused(framed, &short), (1, CqlErrorKind::SegmentTooShort { missing_bytes: 5 }, 4));
    let interrupted = [segment(&two[..9 + 12], false), good.clone()].concat();
    assert_eq!(refused(framed, &interrupted).1, CqlErrorKind::SegmentTooLong { count_bytes: 12 });
    let part = segment(&two[9..20], false);
    assert_eq!(refused(framed, &[&part[..], &good].concat()), (0, CqlErrorKind::SegmentInterrupts, 0));
    let over = [&part[..], &segment(&[&two[20..], &[7; 5]].concat(), false)].concat();
    assert_eq!(refused(framed, &over), (0, CqlErrorKind::SegmentTooLong { count_bytes: 5 }, 6));
}

/// A part of a header is enough to detect the error.
#[test]
fn front_of_a_header_in_a_segment_is_checked() {
    let other = CqlErrorKind::VersionOther { expected: Version::V5, found: Version::V4 };
    assert_eq!(refused(framed, &segment(&[0x84], true)), (0, other, 0));
    assert_eq!(refused(framed, &segment(&[0x84], false)), (0, other, 0));
    let (good, bytes) = (result(1, &[]), hex("8500000004"));
    let unknown = CqlErrorKind::OpcodeUnknown { opcode: 4 };
    assert_eq!(refused(framed, &segment(&[&good[..], &bytes].concat(), true)), (1, unknown, 4));
    let parts = [segment(&bytes[..3], false), segment(&bytes[3..], false)].concat();
    assert_eq!(refused(framed, &parts), (0, unknown, 4));
}

#[test]
fn error_is_returned_again() {
    let good = envelope(0x84, 0, 1, 2, &[]);
    for bad in [hex("04"), envelope(0x84, 1, 1, 8, &[1; 10])] {
        let mut decoder = decoder(Version::V4);
        let error = decoder.decode(&bad).expect_err("a request, or compressed");
        assert_eq!(decoder.decode(&good), Err(error));
        assert_eq!(decoder.decode(&[]), Err(error));
    }
}

#[test]
fn limit_applies_to_received_and_to_inflated_bytes() {
    let limits = Limits { body_bytes_max: 50 };
    let make = || Decoder::new(Version::V4, Direction::Response, limits, Vec::new(), Vec::new());
    assert_eq!(decode_all_ways(make, &envelope(0x84, 0, 1, 8, &[1; 50])).1, None);
    let kind = CqlErrorKind::TooLong { length_bytes: 51, max_bytes: 50 };
    assert_eq!(refused(make, &envelope(0x84, 0, 1, 8, &[1; 51])), (0, kind, 5));
    #[cfg(feature = "lz4")]
    {
        let make = || {
            let mut decoder = make();
            decoder.set_compression(Some(Compression::Lz4));
            decoder
        };
        for (length, good) in [(50, true), (51, false)] {
            let mut bytes = Vec::new();
            let plain = envelope(0x84, 0, 1, 8, &alloc::vec![7; length]);
            Encoder::new(Version::V4, Some(Compression::Lz4)).encode(&plain, &mut bytes).expect("it grows");
            assert_eq!(decode_all_ways(make, &bytes).1.is_none(), good);
        }
    }
}

#[test]
fn compressed_body_without_negotiation_is_refused() {
    let bytes = envelope(0x84, 1, 1, 8, &[0; 12]);
    assert_eq!(refused(|| decoder(Version::V4), &bytes), (0, CqlErrorKind::CompressionNotAgreed, 1));
    // In v5 the flag has no meaning, in a segment or before segments are used.
    let bytes = envelope(0x85, 1, 1, 8, &[3; 12]);
    for (make, bytes) in [(decoder as fn(Version) -> _, bytes.clone()), (|_| framed(), segment(&bytes, true))] {
        let (envelopes, error) = decode_all_ways(|| make(Version::V5), &bytes);
        assert_eq!((envelopes[0].1.as_slice(), error), (&[3; 12][..], None));
        assert_eq!(envelopes[0].0.flags, Flags::COMPRESSION);
    }
}

#[cfg(all(feature = "lz4", feature = "snappy"))]
#[test]
fn compressed_bodies_of_other_implementations_are_inflated() {
    let lz4 = hex("04010009070000001f00000054cf0000004d53454c454354206101002ba02046524f4d2074000100");
    let snappy = hex("03010009070000001c542c0000004d53454c4543542061f60100242046524f4d2074000100");
    for (version, compression, bytes) in
        [(Version::V4, Compression::Lz4, lz4), (Version::V3, Compression::Snappy, snappy)]
    {
        let make = || {
            let mut decoder = Decoder::new(version, Direction::Request, Limits::DEFAULT, Vec::new(), Vec::new());
            decoder.set_compression(Some(compression));
            decoder
        };
        let plain = envelope(version.number(), 2, 5, 7, &[1; 40]);
        let (envelopes, error) = decode_all_ways(make, &[&bytes[..], &plain, &bytes].concat());
        assert_eq!((streams(&envelopes), error), ([9, 5, 9].to_vec(), None));
        let (header, body) = &envelopes[0];
        assert_eq!((header.flags, header.length_bytes, body.len()), (Flags::NONE, 84, 84));
        assert!(body.starts_with(b"\0\0\0\x4dSELECT aaaa"));
        // A cut body is too short, which is not an error of its compression.
        let short = [&bytes[..5], &(u32::try_from(bytes.len() - 10).expect("short")).to_be_bytes()[..]].concat();
        let short = [&short[..], &bytes[9..bytes.len() - 1]].concat();
        assert_eq!(refused(make, &short).1, CqlErrorKind::CompressedData { compression });
    }
}

#[cfg(feature = "lz4")]
#[test]
fn invalid_compressed_segments_are_refused() {
    let whole = result(1, &[7; 400]);
    let bytes = {
        let mut sink = Vec::new();
        Encoder::new(Version::V5, Some(Compression::Lz4)).encode(&whole, &mut sink).expect("it grows");
        sink
    };
    assert_eq!(decode_all_ways(packed, &bytes).1, None);
    let block = bytes[8..bytes.len() - 4].to_vec();
    let malformed = CqlErrorKind::CompressedData { compression: Compression::Lz4 };
    for size in [1, 408, 410] {
        assert_eq!(refused(packed, &packed_segment(&block, Some(size), true)), (0, malformed, 8), "{size}");
    }
    let most = u32::try_from(block.len() * 255).expect("short");
    let size_bytes = most + 1;
    let bomb = packed_segment(&block, Some(most as usize + 1), true);
    assert_eq!(refused(packed, &bomb), (0, CqlErrorKind::InflatedSize { size_bytes, max_bytes: most }, 0));
    assert_eq!(refused(packed, &packed_segment(&[0xff; 30], Some(409), true)), (0, malformed, 8));
    // An envelope with compressed and uncompressed parts.
    let (front, back) = whole.split_at(200);
    let mut parts = packed_segment(front, None, false);
    let deflated = {
        let mut sink = Vec::new();
        let mut deflater = crate::compress::Deflater::new();
        assert_eq!(deflater.deflate(Compression::Lz4, false, back, &mut sink), Ok(true));
        sink
    };
    parts.extend_from_slice(&packed_segment(&deflated, Some(back.len()), false));
    let (envelopes, error) = decode_all_ways(packed, &[&parts[..], &bytes].concat());
    assert_eq!((streams(&envelopes), error), ([1, 1].to_vec(), None));
    assert_eq!(envelopes[0].1, whole[9..]);
}

#[test]
fn compression_that_the_version_does_not_have_is_not_accepted() {
    let mut decoder = framed();
    decoder.set_compression(Some(Compression::Snappy));
    let bytes = segment(&result(1, &[]), true);
    assert_eq!(decode_in_pieces(&mut decoder, &bytes, [bytes.len()]).0.len(), 1);
}

#[test]
fn memory_of_fixed_size_limits_data_in_pieces() {
    let bytes = envelope(0x84, 0, 1, 8, &[1; 91]);
    let mut room = [0; 100];
    let mut none = [0; 0];
    for (size, good) in [(100, true), (99, false)] {
        let memory = SliceSink::new(&mut room[..size]);
        let mut decoder =
            Decoder::new(Version::V4, Direction::Response, Limits::DEFAULT, memory, SliceSink::new(&mut none));
        let (envelopes, error) = decode_in_pieces(&mut decoder, &bytes, 0..=bytes.len());
        assert_eq!(envelopes.len(), usize::from(good));
        let kind = error.map(CqlError::kind);
        assert_eq!(kind, (!good).then_some(CqlErrorKind::NoMemory { needed_bytes: 100 }));
        // An envelope that arrives whole needs no memory.
        let memory = SliceSink::new(&mut none);
        let mut decoder =
            Decoder::new(Version::V4, Direction::Response, Limits::DEFAULT, memory, SliceSink::new(&mut []));
        assert_eq!(decode_in_pieces(&mut decoder, &bytes, [100]).1, None);
    }
    let parts: Vec<u8> = result(1, &[1; 91]).chunks(40).flat_map(|part| segment(part, false)).collect();
    let (mut first, mut second) = ([0; 0], [0; 99]);
    let mut decoder = Decoder::new(
        Version::V5,
        Direction::Response,
        Limits::DEFAULT,
        SliceSink::new(&mut first),
        SliceSink::new(&mut second),
    );
    decoder.set_started();
    let (_, error) = decode_in_pieces(&mut decoder, &parts, [parts.len()]);
    assert_eq!(error.map(CqlError::kind), Some(CqlErrorKind::NoMemory { needed_bytes: 100 }));
}

#[test]
fn memory_grows_with_received_bytes_and_not_with_declared_lengths() {
    let mut plain = decoder(Version::V4);
    let mut claim = envelope(0x84, 0, 1, 8, &[1; 100]);
    claim[5..9].copy_from_slice(&(1_u32 << 28).to_be_bytes());
    assert_eq!(decode_in_pieces(&mut plain, &claim, 0..=claim.len()), (Vec::new(), None));
    let mut parts = framed();
    claim[0] = 0x85;
    let bytes = segment(&claim, false);
    assert_eq!(decode_in_pieces(&mut parts, &bytes, 0..=bytes.len()), (Vec::new(), None));
    for decoder in [&plain, &parts] {
        assert!(!decoder.is_between());
        assert!(decoder.memory().iter().all(|memory| memory.capacity() <= 512), "{decoder:?}");
    }
}

#[test]
fn memory_can_be_made_smaller_between_envelopes() {
    let mut decoder = framed();
    let whole = result(1, &[1; 5000]);
    let parts: Vec<u8> = whole.chunks(3000).flat_map(|part| segment(part, false)).collect();
    let half = &parts[..4000];
    assert_eq!(decode_in_pieces(&mut decoder, half, [100, 4000]).0.len(), 0);
    assert!(decoder.idle_memory().is_none());
    assert_eq!(decode_in_pieces(&mut decoder, &parts[4000..], [parts.len() - 4000]).0.len(), 1);
    assert!(decoder.is_between());
    for memory in decoder.idle_memory().expect("nothing is kept") {
        assert!(memory.capacity() >= 2000);
        *memory = Vec::new();
    }
    assert_eq!(decode_in_pieces(&mut decoder, &parts, 0..=parts.len()).0.len(), 1);
}

#[test]
#[should_panic(expected = "the input does not continue where the last call stopped")]
fn input_that_does_not_continue_panics() {
    let bytes = segment(&[result(1, &[]), result(2, &[1; 20])].concat(), true);
    let mut decoder = framed();
    let consumed = decoder.decode(&bytes).expect("good").consumed_bytes;
    let _ = decoder.decode(&bytes[consumed..consumed + 5]);
}

/// An envelope that was collected and lent is no longer kept, and the caller can take the memory
/// between two envelopes.
#[test]
fn decoder_stores_nothing_after_a_collected_envelope_was_returned() {
    let bytes = envelope(0x84, 0, 7, 8, b"body");
    let mut decoder = decoder(Version::V4);
    assert!(decoder.is_between());
    assert_eq!(decoder.decode(&bytes[..3]).map(|step| step.consumed_bytes), Ok(3));
    assert!(!decoder.is_between() && decoder.idle_memory().is_none());
    let step = decoder.decode(&bytes[3..]).expect("good");
    assert_eq!(step.envelope.map(|envelope| envelope.body), Some(&b"body"[..]));
    assert!(decoder.is_between(), "it ends where the bytes do");
    assert_eq!(decoder.memory().map(Vec::len), [bytes.len(), 0]);
    assert_eq!(decoder.idle_memory().expect("not needed").map(|memory| memory.len()), [0, 0]);
    let step = decoder.decode(&bytes).expect("good");
    assert_eq!(step.consumed_bytes, bytes.len());
}

/// A decoder that accepts any version uses no segments, and accepts every available compression.
#[test]
fn segments_require_a_known_version() {
    let ready = envelope(0x85, 0, 0, 2, &[]);
    for (version, is_framed) in [(None, false), (Some(Version::V4), false), (Some(Version::V5), true)] {
        let mut decoder = decoder(Version::V4);
        decoder.expect(version);
        decoder.set_started();
        decoder.set_compression(Some(Compression::Snappy));
        let kept = decoder.compression;
        assert_eq!((decoder.framed, kept.is_some()), (is_framed, Compression::Snappy.is_available() && !is_framed));
        let result = decoder.decode(&ready).map(|step| step.envelope.is_some());
        match version {
            None => assert_eq!(result, Ok(true)),
            Some(Version::V5) => assert_ne!(result, Ok(true), "an envelope is no segment"),
            Some(_) => assert!(result.is_err(), "of another version"),
        }
    }
}

#[test]
fn header_of_less_than_a_header_is_truncated() {
    let decoder = decoder(Version::V4);
    let bytes = envelope(0x84, 0, 7, 8, b"body");
    for end in 0..HEADER_BYTES {
        let error = decoder.header_of(&bytes[..end]).expect_err("too short");
        let found_bytes = u32::try_from(end).expect("short");
        assert_eq!((error.kind(), error.offset()), (CqlErrorKind::Truncated { needed_bytes: 9, found_bytes }, 0));
    }
    assert_eq!(decoder.header_of(&bytes).map(|header| (header.stream, header.length_bytes)), Ok((7, 4)));
}
