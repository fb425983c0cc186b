use alloc::string::ToString;

use super::*;

#[test]
fn errors_say_what_and_where() {
    let error = CqlError::new(CqlErrorKind::TooLong { length_bytes: 9, max_bytes: 8 }, 5);
    assert_eq!(error.to_string(), "body length 9 exceeds the limit of 8 at byte 5");
    let (computed, found) = (0x00ab_cdef, 0x12);
    let checksum = CqlErrorKind::SegmentHeaderChecksum { computed, found };
    assert_eq!(checksum.to_string(), "checksum of the segment's header is 0x000012, but the bytes give 0xabcdef");
    let misplaced = CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Query };
    assert_eq!(misplaced.to_string(), "QUERY in the wrong direction");
    let other = CqlErrorKind::VersionOther { expected: Version::V5, found: Version::V4 };
    assert_eq!(other.to_string(), "protocol version 4 on a connection of version 5");
}

#[test]
fn only_a_lack_of_memory_is_not_the_peers_fault() {
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
