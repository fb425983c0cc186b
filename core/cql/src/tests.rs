//! Helpers of the tests in this folder. Bytes in hexadecimal notation were produced by another
//! implementation of the protocol, in Python.

use alloc::vec::Vec;

use super::*;

/// Parses hexadecimal digits.
pub(super) fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "whole bytes");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// An envelope of these parts, valid or not.
pub(super) fn envelope(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = alloc::vec![version, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.push(opcode);
    bytes.extend_from_slice(&u32::try_from(body.len()).expect("short").to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A response of v4 on stream 7.
pub(super) fn response(opcode: Opcode, body: &[u8]) -> Vec<u8> {
    envelope(0x84, 0, 7, opcode.number(), body)
}

/// A `string`.
pub(super) fn string(text: &str) -> Vec<u8> {
    let mut bytes = u16::try_from(text.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// A `string multimap`.
pub(super) fn multimap(entries: &[(&str, &[&str])]) -> Vec<u8> {
    let mut bytes = u16::try_from(entries.len()).expect("few").to_be_bytes().to_vec();
    for (key, values) in entries {
        bytes.extend_from_slice(&string(key));
        bytes.extend_from_slice(&u16::try_from(values.len()).expect("few").to_be_bytes());
        for value in *values {
            bytes.extend_from_slice(&string(value));
        }
    }
    bytes
}

/// The body of a QUERY of 84 bytes (87 in v5), most of which are the same.
pub(super) fn long_query(version: Version) -> Vec<u8> {
    let text = alloc::format!("SELECT {} FROM t", "a".repeat(63));
    let flags: &[u8] = if version == Version::V5 { &[0; 4] } else { &[0] };
    [&[0, 0, 0, 77], text.as_bytes(), &[0, 1], flags].concat()
}

/// An OPTIONS of v5 on stream 7, and a QUERY on stream 8.
pub(super) fn two_requests() -> Vec<u8> {
    [envelope(5, 0, 7, 5, &[]), envelope(5, 0, 8, 7, &long_query(Version::V5))].concat()
}

/// Both in one segment.
pub(super) fn two_in_a_segment() -> Vec<u8> {
    [hex("6900025194a2"), two_requests(), hex("25ca73f4")].concat()
}

/// Both in one segment, compressed by the library of LZ4 in C.
pub(super) const TWO_BY_LZ4: &str = "3100d20004e8ad26ff0f0500000705000000000500000807000000570000004d53454c454354206101002bd02046524f4d207400010000000069a1c2a0";

/// Bytes that cannot be compressed, the same at each call.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let bytes = core::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    });
    bytes.take(length).collect()
}

/// A decoder of responses with memory that grows.
pub(super) fn decoder(version: Version) -> Decoder<Vec<u8>> {
    Decoder::new(version, Direction::Response, Limits::DEFAULT, Vec::new(), Vec::new())
}

/// The output of a decoder: the envelopes, and the error if one occurred.
pub(super) type Decoded = (Vec<(Header, Vec<u8>)>, Option<CqlError>);

/// Passes pieces that end at `ends` to a decoder. Returns the whole output.
pub(super) fn decode_in_pieces<S: poolhouse_wire::Sink>(
    decoder: &mut Decoder<S>,
    bytes: &[u8],
    ends: impl IntoIterator<Item = usize>,
) -> Decoded {
    let (mut start, mut envelopes) = (0, Vec::new());
    for end in ends {
        loop {
            match decoder.decode(&bytes[start..end]) {
                Ok(step) => {
                    start += step.consumed_bytes;
                    let Some(envelope) = step.envelope else { break };
                    assert_eq!(envelope.header.length_bytes as usize, envelope.body.len());
                    envelopes.push((envelope.header, envelope.body.to_vec()));
                }
                Err(error) => return (envelopes, Some(error)),
            }
        }
        assert_eq!(start, end, "without an envelope everything is consumed");
    }
    (envelopes, None)
}

/// Decodes the bytes whole, cut in two at every byte, or at some of very many, and byte by byte. The results must be equal.
pub(super) fn decode_all_ways(make: impl Fn() -> Decoder<Vec<u8>>, bytes: &[u8]) -> Decoded {
    let whole = decode_in_pieces(&mut make(), bytes, [bytes.len()]);
    let single = decode_in_pieces(&mut make(), bytes, 0..=bytes.len());
    assert_eq!(single, whole, "byte by byte");
    let cuts = (10_000_000 / (bytes.len() + 1)).clamp(20, 300);
    for cut in (0..bytes.len()).step_by(bytes.len() / cuts + 1) {
        assert_eq!(decode_in_pieces(&mut make(), bytes, [cut, bytes.len()]), whole, "cut at {cut}");
    }
    whole
}

#[test]
fn limits_are_those_of_the_protocol() {
    assert_eq!(Limits::default().body_bytes_max, 268_435_456);
    assert_eq!(Limits::HANDSHAKE.body_bytes_max, 1_048_576);
}
