//! The fuzz body of the wire on seeds, on mutations of them, and exhaustively on tiny inputs; and
//! tests of several modules of the wire together.

use poolhouse_tests::fuzz::{self, mutate::mutated};
use poolhouse_tests::rng::Rng;
use poolhouse_tests::seeds::{each_seed, of_effort};
use poolhouse_wire::Decoded;
use poolhouse_wire::WireErrorKind;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};
use poolhouse_wire::message::{Exchange, Flags, Limits, Matched, Outgoing, decode_message, encode_message};

/// Values that the format distinguishes.
const SIGNIFICANT: [u8; 12] = [0, 1, 2, 3, 4, 5, 0x0f, 0x10, 0x7f, 0x80, 0xfe, 0xff];

#[test]
fn fuzz_body_holds_on_seeds() {
    for seed in fuzz::wire::seeds() {
        fuzz::wire(&seed);
    }
}

#[test]
fn fuzz_body_holds_on_mutations_of_seeds() {
    let seeds = fuzz::wire::seeds();
    each_seed(200, |seed| fuzz::wire(&mutated(&seeds, &SIGNIFICANT, &mut Rng::new(seed))));
}

/// Every string of up to two bytes (without effort, the second is significant), and of three to five bytes from those with a meaning in BSON.
#[test]
fn fuzz_body_holds_on_every_tiny_input() {
    let all: Vec<u8> = (0..=255).collect();
    for length in 0..=1 {
        every(&all, length, &mut Vec::new());
    }
    for first in 0..=255 {
        every(&of_effort(&SIGNIFICANT), 1, &mut vec![first]);
    }
    for length in 3..=5 {
        every(&[0, 1, 2, 5, 8, 0xff], length, &mut Vec::new());
    }
}

fn every(alphabet: &[u8], length: usize, prefix: &mut Vec<u8>) {
    if length == 0 {
        fuzz::wire(prefix);
        return;
    }
    for &byte in alphabet {
        prefix.push(byte);
        every(alphabet, length - 1, prefix);
        prefix.pop();
    }
}

fn reply(request_id: i32, response_to: i32, flags: Flags) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing::reply(request_id, response_to).with_flags(flags);
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| {
        message.body(|d| d.int32("n", request_id)?.double("ok", 1.0).map(drop))
    })
    .expect("grows");
    sink
}

/// An exhaust stream that is split into two at every position, and into single bytes.
#[test]
#[doc(alias = "MON-28")]
fn exhaust_stream_does_not_depend_on_its_pieces() {
    let checked = Flags::MORE_TO_COME.union(Flags::CHECKSUM_PRESENT);
    let stream = [reply(10, 1, Flags::MORE_TO_COME), reply(20, 10, checked), reply(30, 20, Flags::NONE)].concat();
    let receive = |ends: &[usize]| {
        let mut exchange = Exchange::IDLE;
        exchange.begin(1, Flags::EXHAUST_ALLOWED);
        let (mut start, mut seen) = (0, Vec::new());
        for &end in ends {
            while let Decoded::Done { value: (message, matched), rest } =
                exchange.decode_reply(&stream[start..end], &Limits::DEFAULT).expect("well-formed")
            {
                seen.push((message.body().get("n").expect("well-formed"), matched));
                start = end - rest.len();
            }
        }
        assert!(exchange.is_idle());
        seen
    };
    let expected = [
        (Some(RawValue::Int32(10)), Matched::MoreComes),
        (Some(RawValue::Int32(20)), Matched::MoreComes),
        (Some(RawValue::Int32(30)), Matched::Last),
    ];
    for cut in 0..=stream.len() {
        assert_eq!(receive(&[cut, stream.len()]), expected, "cut at {cut}");
    }
    assert_eq!(receive(&(0..=stream.len()).collect::<Vec<_>>()), expected);
}

/// Quadratic work would take minutes here.
#[test]
fn hostile_shapes_of_full_size_take_linear_time() {
    // Many short keys in one document; nested documents, beyond the permitted depth.
    let flat = [0x0a, b'k', 0].repeat(1_000_000);
    let length = i32::try_from(flat.len() + 5).expect("small");
    let flat = [&length.to_le_bytes()[..], &flat, &[0]].concat();
    let document = RawDocument::new(&flat).expect("opens");
    assert_eq!(document.validate(), Ok(()));
    assert_eq!(document.get("absent"), Ok(None));

    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |d| {
        d.array("a", |values| (0..300_000).try_for_each(|_| values.value(RawValue::Null).map(drop))).map(drop)
    })
    .expect("grows");
    assert_eq!(RawDocument::new(&sink).and_then(RawDocument::validate), Ok(()));
}

/// A message with this claimed length, opcode and flags, followed by a correct body and, if
/// required, the checksum.
fn claimed(length: i32, opcode: i32, flags: u32) -> Vec<u8> {
    let body = [0, 5, 0, 0, 0, 0];
    let mut bytes = [length.to_le_bytes(), 1_i32.to_le_bytes(), 7_i32.to_le_bytes(), opcode.to_le_bytes()].concat();
    bytes.extend(flags.to_le_bytes());
    bytes.extend(body);
    if flags & 1 == 1 {
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    }
    bytes
}

/// Every header with a length, opcode and flags from the relevant values: accepted, or refused for
/// its first fault, whole and byte by byte.
#[test]
fn every_header_is_accepted_or_rejected_by_length_opcode_and_flags() {
    let limits = Limits { message_bytes_max: 1_000, ..Limits::DEFAULT };
    let max = 1_000;
    let mut seen = [0_u32; 6];
    let flags: Vec<u32> =
        [0, 0x8000_0000].into_iter().chain((0..32).map(|bit| 1 << bit)).chain([3, u32::MAX]).collect();
    for opcode in [i32::MIN, -1, 0, 1, 2001, 2004, 2010, 2011, 2012, 2013, 2014, i32::MAX] {
        for &flags in &flags {
            let whole = i32::try_from(claimed(0, opcode, flags).len()).expect("short");
            let lengths = [
                i32::MIN,
                -1,
                0,
                1,
                15,
                16,
                17,
                20,
                21,
                whole - 1,
                whole,
                whole + 1,
                max,
                max + 1,
                48_000_001,
                i32::MAX,
            ];
            for length in lengths {
                let bytes = claimed(length, opcode, flags);
                let reported = decode_message(&bytes, &limits).map_err(|error| error.kind());
                let is_flag = |bit: u32| flags & bit != 0;
                let case = format!("length {length} of {whole}, opcode {opcode}, flags {flags:#x}: {reported:?}");
                let outcome = match reported {
                    Err(WireErrorKind::MessageTooLong { length_bytes, max_bytes: 1_000 }) => {
                        assert!(length_bytes == length && length > max, "{case}");
                        0
                    }
                    Err(WireErrorKind::Compressed) => {
                        assert!((16..=max).contains(&length) && opcode == 2012, "{case}");
                        1
                    }
                    Err(WireErrorKind::Opcode { opcode: refused }) => {
                        assert!(refused == opcode && (16..=max).contains(&length) && opcode != 2013, "{case}");
                        1
                    }
                    Err(WireErrorKind::MessageTooShort { length_bytes }) => {
                        assert!(length_bytes == length && (length < 16 || length <= whole && opcode == 2013), "{case}");
                        2
                    }
                    Ok(Decoded::NeedMore { bytes_min }) => {
                        assert!(opcode == 2013 && (whole + 1..=max).contains(&length), "{case}");
                        assert_eq!(i32::try_from(bytes_min), Ok(length - whole), "{case}");
                        3
                    }
                    Ok(Decoded::Done { value, rest }) => {
                        assert!(opcode == 2013 && length == whole && flags & 0xfffc == 0, "{case}");
                        assert!(rest.is_empty() && value.flags().bits() == flags, "{case}");
                        4
                    }
                    // A truncated message lacks some of its body or its checksum; or a flag is
                    // unknown.
                    Err(_) => {
                        assert!(opcode == 2013 && (17..=whole).contains(&length), "{case}");
                        assert!(length < whole || is_flag(0xfffc), "{case}");
                        5
                    }
                };
                seen[outcome] += 1;
                byte_by_byte(&bytes, &limits, &case);
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// As the bytes arrive, the first verdict is final: a message that is refused or accepted stays so.
fn byte_by_byte(bytes: &[u8], limits: &Limits, case: &str) {
    let last = decode_message(bytes, limits);
    for end in 0..bytes.len() {
        match decode_message(&bytes[..end], limits) {
            Ok(Decoded::NeedMore { bytes_min }) => assert!(bytes_min > 0, "{case}, {end} bytes"),
            early => {
                // Bytes after a message belong to the next one.
                let same = match (early, last) {
                    (Ok(Decoded::Done { value: one, .. }), Ok(Decoded::Done { value: other, .. })) => one == other,
                    (Err(one), Err(other)) => one == other,
                    _ => false,
                };
                assert!(same, "{case}: {early:?} after {end} bytes");
            }
        }
    }
}
