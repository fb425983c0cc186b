use alloc::vec::Vec;

use super::*;
use crate::tests::{TWO_BY_LZ4, decode_all_ways, envelope, hex, noise, two_in_a_segment, two_requests};
use crate::{Decoder, Direction, Header, Limits};

fn encoded(version: Version, compression: Option<Compression>, envelopes: &[u8]) -> Vec<u8> {
    let mut sink = hex("aabb");
    Encoder::new(version, compression).encode(envelopes, &mut sink).expect("it grows");
    assert_eq!(sink[..2], [0xaa, 0xbb]);
    sink.split_off(2)
}

/// Decodes the bytes as a server does.
fn decoded(version: Version, compression: Option<Compression>, bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let make = || {
        let mut decoder = Decoder::new(version, Direction::Request, Limits::DEFAULT, Vec::new(), Vec::new());
        decoder.set_compression(compression);
        decoder.set_started();
        decoder
    };
    let (envelopes, error) = decode_all_ways(make, bytes);
    assert_eq!(error, None);
    envelopes
}

/// Returns the envelopes as they were before they were encoded.
fn plain(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let version = Version::from_number(bytes[0]).expect("a version");
    let make = || Decoder::new(version, Direction::Request, Limits::DEFAULT, Vec::new(), Vec::new());
    let (envelopes, error) = decode_all_ways(make, bytes);
    assert_eq!(error, None);
    envelopes
}

/// The usual CRC-32.
fn crc(bytes: &[u8]) -> u32 {
    crc::Crc::<u32, crc::Table<1>>::new(&crc::CRC_32_ISO_HDLC).checksum(bytes)
}

#[test]
fn small_envelopes_share_a_segment_as_in_another_implementation() {
    assert_eq!(encoded(Version::V5, None, &two_requests()), two_in_a_segment());
    assert_eq!(decoded(Version::V5, None, &two_in_a_segment()), plain(&two_requests()));
}

#[test]
fn large_envelopes_are_split_as_in_another_implementation() {
    let body = noise(200_000);
    let whole = envelope(0x85, 0, 3, 8, &body);
    let bytes = encoded(Version::V5, None, &whole);
    assert_eq!((bytes.len(), crc(&bytes)), (200_029, 1_764_946_867));
    let text = "x".repeat(300_000);
    let mut query = Vec::new();
    query.extend_from_slice(&300_000_u32.to_be_bytes());
    query.extend_from_slice(text.as_bytes());
    query.extend_from_slice(&hex("000100000000"));
    let query = envelope(5, 0, 1, 7, &query);
    let bytes = encoded(Version::V5, None, &query);
    assert_eq!(bytes.len(), 300_049);
    let headers: Vec<_> = [0, 131_081, 262_162].iter().map(|at| bytes[*at..at + 6].to_vec()).collect();
    assert_eq!(headers, ["ffff013891fe", "ffff013891fe", "f59300734c96"].map(hex));
    assert_eq!(decoded(Version::V5, None, &bytes), plain(&query));
}

#[test]
fn incompressible_envelopes_are_sent_as_in_another_implementation() {
    if !Compression::Lz4.is_available() {
        return;
    }
    let lz4 = Some(Compression::Lz4);
    let options = hex("050000070500000000");
    assert_eq!(encoded(Version::V5, lz4, &options), hex("0900000004c2b895050000070500000000a8b62d50"));
    let whole = envelope(0x85, 0, 3, 8, &noise(200_000));
    let bytes = encoded(Version::V5, lz4, &whole);
    assert_eq!((bytes.len(), crc(&bytes)), (200_033, 3_111_645_928));
}

#[test]
fn envelopes_fill_segments_up_to_their_last_byte() {
    for compression in [None, Some(Compression::Lz4)] {
        if compression.is_some_and(|compression| !compression.is_available()) {
            continue;
        }
        let header = if compression.is_some() { 8 } else { 6 };
        // Two that fill a segment exactly, and a byte more and less; one that fills a segment
        // alone, and a byte more.
        for (first, second, segments) in [
            (65_000, 131_071 - 18 - 65_000, 1),
            (65_000, 131_071 - 18 - 65_000 + 1, 2),
            (65_000, 131_071 - 18 - 65_000 - 1, 1),
            (131_071 - 9, 0, 2),
            (131_071 - 9 - 9, 0, 1),
            (131_071 - 8, 0, 3),
            (0, 131_071 - 8, 3),
            (300_000, 300_000, 6),
        ] {
            let bodies = noise(first + second);
            let envelopes = [envelope(5, 0, 1, 7, &bodies[..first]), envelope(5, 0, 2, 7, &bodies[first..])].concat();
            let bytes = encoded(Version::V5, compression, &envelopes);
            assert_eq!(bytes.len(), envelopes.len() + segments * (header + 4), "{first}, {second}");
            assert_eq!(decoded(Version::V5, compression, &bytes), plain(&envelopes), "{first}, {second}");
        }
    }
}

#[test]
fn compressed_segments_are_shorter_and_decoded() {
    if !Compression::Lz4.is_available() {
        return;
    }
    let lz4 = Some(Compression::Lz4);
    let two = two_requests();
    let bytes = encoded(Version::V5, lz4, &two);
    assert!(bytes.len() < two.len());
    assert_eq!(decoded(Version::V5, lz4, &bytes), plain(&two));
    assert_eq!(decoded(Version::V5, lz4, &hex(TWO_BY_LZ4)), plain(&two));
    let large = envelope(5, 0, 1, 7, &b"pool house ".repeat(40_000));
    let bytes = encoded(Version::V5, lz4, &[&two[..], &large, &two].concat());
    assert!(bytes.len() < large.len() / 50);
    assert_eq!(decoded(Version::V5, lz4, &bytes), plain(&[&two[..], &large, &two].concat()));
}

#[test]
fn older_versions_are_sent_unchanged_or_with_compressed_bodies() {
    for version in [Version::V3, Version::V4] {
        let number = version.number();
        let text = b"pool house ".repeat(100);
        let envelopes =
            [envelope(number, 2, 1, 7, &text), envelope(number, 0, 2, 5, &[]), envelope(number, 0, 3, 7, &noise(500))];
        let all = envelopes.concat();
        assert!(Encoder::new(version, None).is_plain());
        assert_eq!(encoded(version, None, &all), all);
        for compression in Compression::ALL {
            if !compression.is_available() {
                continue;
            }
            assert!(!Encoder::new(version, Some(compression)).is_plain());
            let bytes = encoded(version, Some(compression), &all);
            let flags = |at: usize| bytes[at + 1];
            assert_eq!(flags(0), 3, "the flag is set, and others are kept");
            let rest = &bytes[bytes.len() - envelopes[1].len() - envelopes[2].len()..];
            assert_eq!(rest, [&envelopes[1][..], &envelopes[2]].concat(), "what does not become shorter is left");
            assert_eq!(decoded(version, Some(compression), &bytes), plain(&all));
        }
    }
}

#[test]
fn snappy_is_not_in_version_5() {
    assert!(!Encoder::new(Version::V5, None).is_plain());
    let bytes = encoded(Version::V5, Some(Compression::Snappy), &two_requests());
    assert_eq!(bytes, encoded(Version::V5, None, &two_requests()));
}

#[test]
fn incomplete_envelopes_are_refused_and_nothing_is_written() {
    let two = two_requests();
    for (version, compression) in
        [(Version::V5, None), (Version::V5, Some(Compression::Lz4)), (Version::V4, Some(Compression::Lz4))]
    {
        let mut encoder = Encoder::new(version, compression);
        for end in 1..two.len() {
            let mut sink = hex("aa");
            let result = encoder.encode(&two[..end], &mut sink);
            assert_eq!(result, if end == 9 { Ok(()) } else { Err(CqlEncodeError::NotEnvelopes) }, "at {end}");
            assert!(end == 9 || sink == hex("aa"));
        }
        assert_eq!(encoder.encode(&[], &mut Vec::new()), Ok(()));
    }
}

#[test]
fn sink_that_is_full_at_any_byte_is_left_as_it_was() {
    let two = two_requests();
    let whole = encoded(Version::V5, None, &two).len();
    for room in 0..=whole {
        let mut buffer = alloc::vec![0; room];
        let mut sink = poolhouse_wire::SliceSink::new(&mut buffer);
        let result = Encoder::new(Version::V5, None).encode(&two, &mut sink);
        assert_eq!(result.is_ok(), room == whole, "room for {room}");
        assert_eq!(sink.into_written().len(), if room == whole { whole } else { 0 });
    }
}
