use alloc::string::ToString;

use super::*;

#[test]
fn wire_error_contains_rule_and_offset_and_is_a_protocol_error() {
    let error = WireError::new(WireErrorKind::ResponseTo { expected: 7, found: 9 }, 8);
    assert_eq!(error.to_string(), "the reply answers message 9, expected 7 at byte 8");
    assert_eq!((error.offset(), Cause::from(error)), (8, Cause::Protocol));
}

#[test]
fn every_kind_has_a_text_with_its_numbers() {
    use WireErrorKind as Kind;
    let kinds = [
        (Kind::MessageTooShort { length_bytes: -5 }, "-5"),
        (Kind::MessageTooLong { length_bytes: 9, max_bytes: 8 }, "limit of 8"),
        (Kind::Opcode { opcode: 2004 }, "2004"),
        (Kind::Compressed, "no compressor was negotiated"),
        (Kind::CompressedTwice, "inside a compressed one"),
        (Kind::CompressedOpcode { opcode: 2004 }, "opcode 2004 inside"),
        (Kind::CompressorUnknown { id: 9 }, "compressor 9"),
        (Kind::CompressorNotNegotiated { compressor: Compressor::Zstd }, "zstd was not negotiated"),
        (Kind::UncompressedSize { size_bytes: -1, max_bytes: 8 }, "size -1 is less"),
        (Kind::InflatedSize { declared_bytes: 8, found_bytes: 7 }, "7 bytes inflated, 8"),
        (Kind::InflatedTooLong { declared_bytes: 8 }, "the 8 bytes declared"),
        (Kind::CompressedData { compressor: Compressor::Zlib }, "malformed zlib"),
        (Kind::CompressedRest { count_bytes: 3 }, "3 extra bytes"),
        (Kind::Flags { flags: 4 }, "0x00000004"),
        (Kind::Checksum { computed: 1, found: 2 }, "0x00000002"),
        (Kind::ResponseTo { expected: 1, found: 2 }, "message 2"),
        (Kind::MoreToCome, "moreToCome"),
        (Kind::Unsolicited { count_bytes: 3 }, "3 bytes"),
        (Kind::SectionKind { kind: 2 }, "kind 2"),
        (Kind::SectionLength { length_bytes: 4 }, "section length 4"),
        (Kind::BodyMissing, "no body"),
        (Kind::BodyTwice, "second body"),
        (Kind::SequenceTwice, "the same name"),
        (Kind::SequencesTooMany, "too many"),
        (Kind::Truncated { needed_bytes: 4, found_bytes: 3 }, "4 bytes needed, 3"),
        (Kind::DocumentLength { length_bytes: 4, found_bytes: 3 }, "document length 4"),
        (Kind::Terminator, "zero byte"),
        (Kind::StringLength { length_bytes: 0 }, "string length 0"),
        (Kind::BinaryLength { length_bytes: -1 }, "binary length -1"),
        (Kind::ScopeLength { length_bytes: 13 }, "scope length 13"),
        (Kind::ElementTag { tag: 0x80 }, "0x80"),
        (Kind::Boolean { value: 2 }, "value 2"),
        (Kind::Utf8, "UTF-8"),
        (Kind::TooDeep, "too deep"),
        (Kind::FieldMissing { name: "ok" }, "`ok` is missing"),
        (Kind::FieldType { name: "ok", found: ElementType::String }, "`ok` cannot be of type string"),
        (Kind::FieldValue { name: "maxWireVersion" }, "`maxWireVersion` has a value"),
    ];
    for (kind, part) in kinds {
        assert!(kind.to_string().contains(part), "{kind} lacks {part}");
    }
}

#[test]
fn encode_errors_have_the_cause_resources() {
    assert_eq!(EncodeError::from(Full), EncodeError::Full);
    assert_eq!(Cause::from(EncodeError::Full), Cause::Resources);
    let errors = [
        (EncodeError::InteriorNul, "zero byte"),
        (EncodeError::DocumentTooLarge { length_bytes: 5, max_bytes: 4 }, "document of 5 bytes exceeds the limit of 4"),
        (EncodeError::MessageTooLarge { length_bytes: 5, max_bytes: 4 }, "message of 5 bytes exceeds the limit of 4"),
        (EncodeError::BodyMissing, "without a body"),
        (EncodeError::BodyTwice, "two bodies"),
        (EncodeError::SequencesTooMany, "too many"),
        (EncodeError::Full, "no room"),
    ];
    for (error, part) in errors {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}
