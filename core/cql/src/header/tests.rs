use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::tests::envelope;

const LIMITS: Limits = Limits { body_bytes_max: 1000 };

fn decode(bytes: &[u8]) -> Result<Decoded<'_, Header>, CqlError> {
    decode_header(bytes, Some(Version::V4), Direction::Response, &LIMITS)
}

fn refused(bytes: &[u8]) -> (CqlErrorKind, u32) {
    let error = decode(bytes).expect_err("refused");
    (error.kind(), error.offset())
}

fn header(first: u8, stream: i16, opcode: u8, length: i32) -> Vec<u8> {
    let mut bytes = envelope(first, 0, stream, opcode, &[]);
    bytes[5..].copy_from_slice(&length.to_be_bytes());
    bytes
}

#[test]
fn header_of_every_kind_is_read_back_as_written() {
    for version in Version::ALL {
        for opcode in Opcode::ALL {
            let stream = if opcode == Opcode::Event { -1 } else { 32_767 };
            let (direction, flags) = (opcode.direction(), Flags::from_bits(0xff));
            let header = Header { version, direction, flags, stream, opcode, length_bytes: 1000 };
            let bytes = header.to_bytes();
            let decoded = decode_header(&bytes, Some(version), direction, &LIMITS);
            assert_eq!(decoded, Ok(Decoded::Done { value: header, rest: &[] }));
            assert_eq!(decode_header(&bytes, None, direction, &LIMITS), decoded);
        }
    }
}

#[test]
fn header_bytes_equal_those_of_another_implementation() {
    let header = Header {
        version: Version::V4,
        direction: Direction::Request,
        flags: Flags::NONE,
        stream: 0x1234,
        opcode: Opcode::Query,
        length_bytes: 0x34,
    };
    assert_eq!(header.to_bytes(), [4, 0, 0x12, 0x34, 7, 0, 0, 0, 0x34]);
    let all = [Flags::COMPRESSION, Flags::TRACING, Flags::CUSTOM_PAYLOAD, Flags::WARNING, Flags::USE_BETA];
    assert_eq!(all.map(Flags::bits), [1, 2, 4, 8, 16]);
    let twice = all.into_iter().chain(all).fold(Flags::NONE, Flags::union);
    assert_eq!(twice.bits(), 31);
}

#[test]
fn incomplete_header_needs_more_bytes() {
    let bytes = header(0x84, 5, 2, 0);
    for end in 0..HEADER_BYTES {
        assert_eq!(decode(&bytes[..end]), Ok(Decoded::NeedMore { bytes_min: HEADER_BYTES - end }), "at {end}");
    }
    assert!(matches!(decode(&bytes), Ok(Decoded::Done { rest: [], .. })));
}

#[test]
fn unsupported_version_is_detected_at_its_byte() {
    for number in [0_u8, 1, 2, 6, 65, 66, 127] {
        for bit in [0, 0x80] {
            let error = (CqlErrorKind::VersionUnknown { number }, 0);
            assert_eq!(refused(&[number | bit]), error);
            assert_eq!(refused(&header(number | bit, 0, 0xff, -1)), error);
        }
    }
}

#[test]
fn version_other_than_that_of_the_connection_is_refused() {
    for found in [Version::V3, Version::V5] {
        let error = (CqlErrorKind::VersionOther { expected: Version::V4, found }, 0);
        assert_eq!(refused(&[found.number() | 0x80]), error);
    }
}

#[test]
fn wrong_direction_is_refused() {
    assert_eq!(refused(&[4]), (CqlErrorKind::Direction, 0));
    let request = decode_header(&[0x84], Some(Version::V4), Direction::Request, &LIMITS);
    assert_eq!(request.map_err(CqlError::kind), Err(CqlErrorKind::Direction));
}

#[test]
fn opcode_is_checked_at_its_byte() {
    for opcode in [0x04, 0x11, 0x80, 0xff] {
        assert_eq!(refused(&header(0x84, 0, opcode, 0)[..5]), (CqlErrorKind::OpcodeUnknown { opcode }, 4));
    }
    let query = (CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Query }, 4);
    assert_eq!(refused(&header(0x84, 0, 7, 0)[..5]), query);
    let ready = decode_header(&[4, 0, 0, 0, 2], Some(Version::V4), Direction::Request, &LIMITS);
    assert_eq!(ready.map_err(CqlError::kind), Err(CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Ready }));
}

#[test]
fn negative_stream_id_is_for_events_only() {
    for stream in [i16::MIN, -2, -1] {
        assert_eq!(refused(&header(0x84, stream, 8, 0)[..5]), (CqlErrorKind::Stream { stream }, 2));
    }
    for stream in [i16::MIN, -2, 0, 1, i16::MAX] {
        assert_eq!(refused(&header(0x84, stream, 0x0c, 0)[..5]), (CqlErrorKind::Stream { stream }, 2));
    }
    assert!(decode(&header(0x84, -1, 0x0c, 0)).is_ok());
    assert!(decode(&header(0x84, i16::MAX, 8, 0)).is_ok());
}

#[test]
fn invalid_length_is_refused_before_the_body_arrives() {
    for length_bytes in [-1, i32::MIN, i32::MIN + 1] {
        assert_eq!(refused(&header(0x84, 0, 8, length_bytes)), (CqlErrorKind::LengthNegative { length_bytes }, 5));
    }
    for length_bytes in [1001, i32::MAX] {
        let error = (CqlErrorKind::TooLong { length_bytes, max_bytes: 1000 }, 5);
        assert_eq!(refused(&header(0x84, 0, 8, length_bytes)), error);
    }
    assert!(decode(&header(0x84, 0, 8, 1000)).is_ok());
}

/// Every value of every byte except the length's, compared with a second implementation of the
/// rules.
#[test]
fn every_incomplete_header_is_checked() {
    let opcodes = [0, 2, 3, 6, 8, 0x0c, 0x0e, 0x10];
    for first in 0..=u8::MAX {
        for opcode in 0..=u8::MAX {
            for stream in [i16::MIN, -1, 0, i16::MAX] {
                let good = first == 0x84 && opcodes.contains(&opcode) && (stream >= 0) != (opcode == 0x0c);
                let good = good && (opcode != 0x0c || stream == -1);
                let bytes = header(first, stream, opcode, 0);
                assert_eq!(decode(&bytes).is_ok(), good, "{first:#x} {stream} {opcode:#x}");
                assert_eq!(decode(&bytes[..5]).is_ok(), good, "{first:#x} {stream} {opcode:#x}");
            }
        }
    }
}

#[test]
fn unknown_flags_are_kept_and_ignored() {
    let flags = Flags::from_bits(0xe0);
    assert!(!flags.contains(Flags::TRACING));
    assert_eq!(flags.union(Flags::TRACING).without(Flags::TRACING), flags);
    assert_eq!(alloc::format!("{flags:?}"), "Flags(0xe0)");
}

#[test]
fn versions_and_opcodes_have_their_numbers() {
    for version in Version::ALL {
        assert_eq!(Version::from_number(version.number()), Some(version));
    }
    assert_eq!(
        [Version::V5, Version::V4, Version::V3].map(Version::older),
        [Some(Version::V4), Some(Version::V3), None]
    );
    for opcode in Opcode::ALL {
        assert_eq!(Opcode::from_number(opcode.number()), Some(opcode));
    }
    assert_eq!(Opcode::ALL.map(|opcode| opcode.number()).len(), 16);
    assert_eq!(Opcode::AuthSuccess.to_string(), "AUTH_SUCCESS");
}

#[test]
fn opcodes_have_the_names_of_the_specification() {
    let names = Opcode::ALL.map(|opcode| alloc::format!("{opcode}"));
    let expected = [
        "ERROR",
        "STARTUP",
        "READY",
        "AUTHENTICATE",
        "OPTIONS",
        "SUPPORTED",
        "QUERY",
        "RESULT",
        "PREPARE",
        "EXECUTE",
        "REGISTER",
        "EVENT",
        "BATCH",
        "AUTH_CHALLENGE",
        "AUTH_RESPONSE",
        "AUTH_SUCCESS",
    ];
    assert_eq!(names, expected);
}
