use alloc::string::ToString;

use super::*;

#[test]
fn errors_contain_rule_and_offset() {
    let error = CqlError::new(CqlErrorKind::TooLong { length_bytes: 9, max_bytes: 8 }, 5);
    assert_eq!(error.to_string(), "body length 9 exceeds the limit of 8 at byte 5");
    let (computed, found) = (0x00ab_cdef, 0x12);
    let checksum = CqlErrorKind::SegmentHeaderChecksum { computed, found };
    assert_eq!(checksum.to_string(), "checksum of the segment's header is 0x000012, but 0xabcdef was computed");
    let misplaced = CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Query };
    assert_eq!(misplaced.to_string(), "QUERY in the wrong direction");
    let other = CqlErrorKind::VersionOther { expected: Version::V5, found: Version::V4 };
    assert_eq!(other.to_string(), "protocol version 4 on a connection of version 5");
}

#[test]
fn only_a_lack_of_memory_is_no_protocol_error() {
    let kinds = [
        (CqlErrorKind::NoMemory { needed_bytes: 5 }, Cause::Resources),
        (CqlErrorKind::Direction, Cause::Protocol),
        (CqlErrorKind::SegmentEmpty, Cause::Protocol),
        (CqlErrorKind::CompressedData { compression: Compression::Lz4 }, Cause::Protocol),
    ];
    for (kind, cause) in kinds {
        assert_eq!(Cause::from(CqlError::new(kind, 0)), cause, "{kind}");
    }
    assert_eq!(Cause::from(CqlEncodeError::Full), Cause::Resources);
}

#[test]
fn each_violated_rule_has_a_text() {
    let texts = [
        (CqlErrorKind::VersionUnknown { number: 9 }, "protocol version 9 is not supported"),
        (CqlErrorKind::Direction, "the direction bit is wrong: it marks a message of this side"),
        (CqlErrorKind::OpcodeUnknown { opcode: 4 }, "unknown opcode 0x04"),
        (CqlErrorKind::Unexpected { opcode: Opcode::Ready }, "READY is not allowed in this state"),
        (CqlErrorKind::Unsolicited { count_bytes: 3 }, "3 bytes arrived while no response was outstanding"),
        (CqlErrorKind::Stream { stream: -2 }, "stream id -2 is not allowed for this message"),
        (CqlErrorKind::StreamOther { expected: 1, found: 2 }, "the response has stream id 2, expected 1"),
        (CqlErrorKind::LengthNegative { length_bytes: -1 }, "body length -1 is negative"),
        (CqlErrorKind::CompressionNotAgreed, "a body is compressed, but no compression was negotiated"),
        (
            CqlErrorKind::InflatedSize { size_bytes: 9, max_bytes: 8 },
            "the declared inflated size 9 exceeds the possible 8",
        ),
        (CqlErrorKind::CompressedData { compression: Compression::Snappy }, "malformed snappy data"),
        (
            CqlErrorKind::SegmentChecksum { computed: 0xabcd_ef01, found: 0x12 },
            "checksum of the segment is 0x00000012, but 0xabcdef01 was computed",
        ),
        (CqlErrorKind::SegmentEmpty, "a segment without payload"),
        (CqlErrorKind::SegmentTooShort { missing_bytes: 4 }, "an envelope ends at least 4 bytes beyond its segment"),
        (
            CqlErrorKind::SegmentTooLong { count_bytes: 4 },
            "4 extra bytes follow an envelope that was split into segments",
        ),
        (CqlErrorKind::SegmentInterrupts, "a self-contained segment arrived before a split envelope was complete"),
        (CqlErrorKind::Truncated { needed_bytes: 4, found_bytes: 2 }, "4 bytes needed, 2 there"),
        (CqlErrorKind::Utf8, "invalid UTF-8"),
        (CqlErrorKind::FieldValue { name: "flags", value: 9 }, "field `flags` cannot be 9"),
        (CqlErrorKind::NoMemory { needed_bytes: 5 }, "no memory for 5 received bytes"),
    ];
    for (kind, text) in texts {
        assert_eq!(kind.to_string(), text);
    }
}

#[test]
fn each_encode_error_has_a_text() {
    let texts = [
        (CqlEncodeError::from(Full), "the buffer has no room for the message"),
        (CqlEncodeError::BodyTooLarge { length_bytes: 9, max_bytes: 8 }, "body of 9 bytes exceeds the limit of 8"),
        (CqlEncodeError::StringTooLong { length_bytes: 65_536 }, "string of 65536 bytes is too long"),
        (CqlEncodeError::ListTooLong { count: 65_536 }, "list of 65536 entries is too long"),
        (CqlEncodeError::Stream { stream: -1 }, "stream id -1 is not allowed for this message"),
        (
            CqlEncodeError::VersionLacks { version: Version::V3, what: "unset values" },
            "protocol version 3 has no unset values",
        ),
        (CqlEncodeError::NotEnvelopes, "the bytes are not a sequence of complete envelopes"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}
