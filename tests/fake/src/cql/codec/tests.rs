use super::*;

/// More than a request of a test has.
const LENGTH_MAX: usize = 1 << 20;

const FRAMINGS: [Framing; 5] = [
    Framing::of(4, None),
    Framing::of(4, Some(Compression::Lz4)),
    Framing::of(3, Some(Compression::Snappy)),
    Framing::of(5, None),
    Framing::of(5, Some(Compression::Lz4)),
];

fn envelope(stream: i16, body: &[u8]) -> Vec<u8> {
    Header { version: 4, flags: 0, stream, opcode: 7 }.envelope(body)
}

/// The size before a compressed body.
fn size(length: usize) -> Vec<u8> {
    u32::try_from(length).expect("a small length").to_be_bytes().to_vec()
}

/// Bodies of every kind: none, short, one that can be compressed, and one longer than a segment.
fn bodies() -> Vec<Vec<u8>> {
    let noise = (0..300_000_u32).map(|place| place.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    vec![Vec::new(), b"tea".to_vec(), vec![b'a'; 5000], noise]
}

fn decode_all(decoder: &mut Decoder) -> Vec<(i16, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(envelope) = decoder.envelope().expect("well-formed") {
        found.push((envelope.header.stream, envelope.body.to_vec()));
    }
    found
}

#[test]
fn envelopes_in_pieces_of_any_length_are_decoded_as_they_were_encoded() {
    for framing in FRAMINGS {
        let mut wire = Vec::new();
        let sent: Vec<_> = (0..).zip(bodies()).collect();
        let envelopes: Vec<_> = sent.iter().flat_map(|(stream, body)| envelope(*stream, body)).collect();
        Encoder::new(framing).encode(&envelopes, &mut wire);
        for piece in [1, 7, 4096, wire.len()] {
            let mut decoder = Decoder::new(LENGTH_MAX);
            decoder.set_framing(framing);
            let mut found = Vec::new();
            for bytes in wire.chunks(piece) {
                decoder.push(bytes);
                found.extend(decode_all(&mut decoder));
            }
            assert!(found == sent, "{framing:?}, pieces of {piece}");
        }
    }
}

#[test]
fn framing_that_changes_after_an_envelope_applies_to_bytes_that_arrived_with_it() {
    let framing = Framing::of(5, None);
    let mut wire = envelope(1, b"startup");
    Encoder::new(framing).encode(&envelope(2, b"query"), &mut wire);
    let mut decoder = Decoder::new(LENGTH_MAX);
    decoder.push(&wire);
    assert_eq!(decoder.envelope().expect("well-formed").expect("it is complete").header.stream, 1);
    decoder.set_framing(framing);
    assert_eq!(decode_all(&mut decoder), [(2, b"query".to_vec())]);
}

/// CRC-24 as PyPI's `cassandra-driver` computes it (`cassandra.segment.compute_crc24`), and CRC-32 as Python
/// does: `zlib.crc32(b"\xfa\x2d\x55\xca123456789")`.
#[test]
fn checksums_are_those_of_other_programs() {
    assert_eq!((crc24(&[0, 0, 0]), crc24(&[1, 2, 3])), (0x7d_e777, 0xe9_1acc));
    assert_eq!(crc32(b"123456789"), 0xe2a2_61a7);
}

#[test]
fn changed_bit_of_a_segment_is_detected() {
    for framing in [Framing::of(5, None), Framing::of(5, Some(Compression::Lz4))] {
        let mut wire = Vec::new();
        Encoder::new(framing).encode(&envelope(1, &[b'a'; 100]), &mut wire);
        for bit in 0..wire.len() * 8 {
            let mut changed = wire.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = Decoder::new(LENGTH_MAX);
            decoder.set_framing(framing);
            decoder.push(&changed);
            let Reason::Other(reason) = decoder.envelope().expect_err("it is malformed").reason else {
                panic!("bit {bit}")
            };
            assert!(reason.contains("checksum"), "bit {bit}");
        }
    }
}

#[test]
fn declared_lengths_beyond_the_limit_are_malformed_and_reserve_nothing() {
    let header = Header { version: 4, flags: COMPRESSED, stream: 3, opcode: 7 };
    for length in [-1, i32::MIN, i32::MAX, 1 << 21] {
        let mut decoder = Decoder::new(LENGTH_MAX);
        decoder.push(&header.bytes(length));
        let error = decoder.envelope().expect_err("it is malformed");
        assert_eq!(error, Malformed { stream: 3, reason: Reason::Length(length) });
    }
    // A body that claims to become longer than the limit, and one that claims more than it can become.
    let snappy = [vec![0xff, 0xff, 0x7f], vec![0x80, 0x80, 0x10]];
    for (length, snappy) in [LENGTH_MAX + 1, LENGTH_MAX].into_iter().zip(snappy) {
        for (compression, size) in [(Compression::Lz4, size(length)), (Compression::Snappy, snappy)] {
            let mut decoder = Decoder::new(LENGTH_MAX);
            decoder.set_framing(Framing::of(4, Some(compression)));
            decoder.push(&header.envelope(&[&size[..], &[0; 16]].concat()));
            let error = decoder.envelope().expect_err("it is malformed");
            assert_eq!(error, Malformed { stream: 3, reason: Reason::Other("a compressed body is malformed") });
        }
    }
    let mut decoder = Decoder::new(LENGTH_MAX);
    decoder.push(&header.envelope(b"tea"));
    let agreed = Reason::Other("no compression was agreed on");
    assert_eq!(decoder.envelope().expect_err("it is malformed").reason, agreed);
}

#[test]
fn part_of_an_envelope_in_a_segment_of_whole_ones_is_malformed() {
    let framing = Framing::of(5, None);
    let mut wire = Vec::new();
    let envelopes = [envelope(1, b"tea"), envelope(2, b"tea")].concat();
    Encoder::new(framing).encode_segment(&envelopes[..envelopes.len() - 1], true, &mut wire);
    let mut decoder = Decoder::new(LENGTH_MAX);
    decoder.set_framing(framing);
    decoder.push(&wire);
    assert_eq!(decoder.envelope(), Err(Malformed { stream: 0, reason: Reason::Incomplete }));
}
