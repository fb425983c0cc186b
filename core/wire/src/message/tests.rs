use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::bson::{RawDocument, RawValue};
use crate::{EncodeError, WireError, WireErrorKind};

/// A message with these flags and these bytes after them, with the right length.
fn raw(request_id: i32, response_to: i32, flags: u32, sections: &[u8]) -> Vec<u8> {
    let length_bytes = u32::try_from(20 + sections.len()).expect("small");
    let header = Header { length_bytes, request_id, response_to, opcode: OP_MSG };
    [&header.to_bytes()[..], &flags.to_le_bytes(), sections].concat()
}

const EMPTY_BODY: &[u8] = &[0, 5, 0, 0, 0, 0];

/// A section of kind 1.
fn sequence(name: &[u8], documents: &[u8]) -> Vec<u8> {
    let length = i32::try_from(5 + name.len() + documents.len()).expect("small");
    [&[1], &length.to_le_bytes()[..], name, &[0], documents].concat()
}

fn decode(bytes: &[u8]) -> Result<Decoded<'_, Message<'_>>, WireError> {
    decode_message(bytes, &Limits::DEFAULT)
}

fn done(bytes: &[u8]) -> Message<'_> {
    match decode(bytes) {
        Ok(Decoded::Done { value, rest: [] }) => value,
        other => panic!("not decoded: {other:?}"),
    }
}

fn refused(bytes: &[u8]) -> (WireErrorKind, u32) {
    let error = decode(bytes).expect_err("malformed");
    (error.kind(), error.offset())
}

fn ping(flags: Flags) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing { request_id: 7, response_to: 3, flags };
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| {
        message.sequence("docs", |documents| {
            documents.document(|d| d.int32("x", 1).map(drop))?;
            documents.raw_document(RawDocument::EMPTY)
        })?;
        message.body(|d| d.int32("ping", 1)?.str("$db", "admin").map(drop))?;
        message.sequence("more", |_| Ok(()))
    })
    .expect("room");
    sink
}

#[test]
fn message_is_read_back_as_written_with_and_without_checksum() {
    for flags in [Flags::NONE, Flags::CHECKSUM_PRESENT, Flags::EXHAUST_ALLOWED, Flags::MORE_TO_COME] {
        let bytes = ping(flags);
        let message = done(&bytes);
        assert_eq!(message.header().length_bytes as usize, bytes.len());
        assert_eq!((message.header().request_id, message.header().response_to), (7, 3));
        assert_eq!(message.flags(), flags);
        assert_eq!(message.body().get("ping"), Ok(Some(RawValue::Int32(1))));
        assert_eq!(message.validate_structure(), Ok(()));
        let sequences: Vec<_> = message.sequences().collect();
        assert_eq!(sequences.iter().map(Sequence::identifier).collect::<Vec<_>>(), ["docs", "more"]);
        assert_eq!(sequences[0].documents().count(), 2);
        assert_eq!(sequences[1].documents().count(), 0);
    }
}

#[test]
fn command_is_written_with_its_database_last() {
    let mut sink = vec![0xee];
    let length =
        encode_command(&mut sink, Outgoing::request(5), &Limits::DEFAULT, "admin", |d| d.int32("ping", 1).map(drop));
    assert_eq!(length, Ok(sink.len() - 1));
    let expected = [
        &[51, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &[30, 0, 0, 0, 0x10],
        b"ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0",
    ]
    .concat();
    assert_eq!(&sink[1..], expected);
}

#[test]
fn checksum_is_crc32c_of_everything_before_it() {
    // The check value of the algorithm's catalog entry.
    assert_eq!(checksum::crc32c(b"123456789"), 0xe306_9283);
    let bytes = ping(Flags::CHECKSUM_PRESENT);
    for index in 20..bytes.len() {
        let mut broken = bytes.clone();
        broken[index] ^= 0x10;
        assert!(matches!(refused(&broken).0, WireErrorKind::Checksum { .. }), "byte {index}");
    }
    assert_eq!(
        refused(&raw(1, 0, 1, EMPTY_BODY)).0,
        WireErrorKind::Checksum {
            computed: checksum::crc32c(&raw(1, 0, 1, EMPTY_BODY)[..22]),
            found: u32::from_le_bytes([0, 0, 0, 0]),
        }
    );
}

#[test]
fn truncated_checksum_is_an_error() {
    // Long enough to be a message, but with only the checksum where the body should end.
    let mut bytes = raw(1, 0, 1, EMPTY_BODY);
    let at = bytes.len() - 4;
    let checksum = checksum::crc32c(&bytes[..at]).to_le_bytes();
    bytes[at..].copy_from_slice(&checksum);
    assert_eq!(refused(&bytes), (WireErrorKind::Truncated { needed_bytes: 4, found_bytes: 1 }, 21));
}

#[test]
fn header_is_checked_for_every_length_opcode_and_flags() {
    let body = EMPTY_BODY;
    let right = 26_i32;
    let max = 100_i32;
    let limits = Limits { message_bytes_max: 100, ..Limits::DEFAULT };
    let lengths = [i32::MIN, -1, 0, 1, 15, 16, 17, right - 1, right, right + 1, max, max + 1, i32::MAX];
    let flag_bits = (0..32).map(|bit| 1_u32 << bit).chain([0, u32::MAX]);
    for flags in flag_bits {
        for length in lengths {
            for opcode in [0, 1, 2004, 2012, OP_MSG, OP_MSG + 1, -1, i32::MIN, i32::MAX] {
                let mut bytes = raw(1, 0, flags, body);
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[12..16].copy_from_slice(&opcode.to_le_bytes());
                let result = decode_message(&bytes, &limits);
                let kind = result.err().map(WireError::kind);
                let required = flags & 0xffff & !3;
                if length < 16 {
                    assert_eq!(kind, Some(WireErrorKind::MessageTooShort { length_bytes: length }));
                } else if length > max {
                    assert_eq!(kind, Some(WireErrorKind::MessageTooLong { length_bytes: length, max_bytes: 100 }));
                } else if opcode == 2012 {
                    assert_eq!(kind, Some(WireErrorKind::Compressed));
                } else if opcode != OP_MSG {
                    assert_eq!(kind, Some(WireErrorKind::Opcode { opcode }));
                } else if length < right {
                    assert_eq!(kind, Some(WireErrorKind::MessageTooShort { length_bytes: length }));
                } else if length > right {
                    let bytes_min = usize::try_from(length - right).expect("positive");
                    assert_eq!(result, Ok(Decoded::NeedMore { bytes_min }));
                } else if required != 0 {
                    assert_eq!(kind, Some(WireErrorKind::Flags { flags }));
                } else if flags & 1 != 0 {
                    assert!(matches!(kind, Some(WireErrorKind::Checksum { .. })));
                } else {
                    assert_eq!(kind, None, "flags {flags:#x}");
                }
            }
        }
    }
}

#[test]
fn invalid_length_is_detected_after_four_bytes() {
    for length in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
        let bytes = length.to_le_bytes();
        assert!(decode(&bytes).is_err(), "{length}");
        assert_eq!(decode(&bytes[..3]), Ok(Decoded::NeedMore { bytes_min: 13 }));
    }
    assert_eq!(decode(&48_000_000_i32.to_le_bytes()), Ok(Decoded::NeedMore { bytes_min: 12 }));
    assert_eq!(decode(&[]), Ok(Decoded::NeedMore { bytes_min: 16 }));
}

#[test]
fn message_one_byte_at_a_time_needs_more_until_it_is_complete() {
    let bytes = [&ping(Flags::CHECKSUM_PRESENT)[..], b"next"].concat();
    let length = bytes.len() - 4;
    for end in 0..length {
        match decode(&bytes[..end]) {
            Ok(Decoded::NeedMore { bytes_min }) => {
                assert!((1..=length - end).contains(&bytes_min), "{bytes_min} at {end}");
            }
            other => panic!("at {end}: {other:?}"),
        }
    }
    assert!(matches!(decode(&bytes), Ok(Decoded::Done { rest: b"next", .. })));
}

#[test]
fn malformed_sections_are_refused_with_rule_and_offset() {
    let refused_sections = |sections: &[u8]| refused(&raw(1, 0, 0, sections));
    let none = sequence(b"a", &[5, 0, 0, 0, 0]);
    assert_eq!(refused_sections(&none), (WireErrorKind::BodyMissing, 20));
    assert_eq!(refused_sections(&[EMPTY_BODY, EMPTY_BODY].concat()), (WireErrorKind::BodyTwice, 26));
    assert_eq!(refused_sections(&[2, 5, 0, 0, 0, 0]), (WireErrorKind::SectionKind { kind: 2 }, 20));
    assert_eq!(refused_sections(&[EMPTY_BODY, &[0xff]].concat()), (WireErrorKind::SectionKind { kind: 0xff }, 26));
    let twice = [EMPTY_BODY, &sequence(b"a", &[]), &sequence(b"a", &[])].concat();
    assert_eq!(refused_sections(&twice), (WireErrorKind::SequenceTwice, 33));
    for length in [i32::MIN, -1, 0, 4, 9, i32::MAX] {
        let mut section = sequence(b"a", &[]);
        section[1..5].copy_from_slice(&length.to_le_bytes());
        let bytes = [EMPTY_BODY, &section, b"x"].concat();
        let kind = WireErrorKind::SectionLength { length_bytes: length };
        assert_eq!(refused_sections(&bytes), (kind, 27), "{length}");
    }
    let unnamed = [EMPTY_BODY, &[1, 6, 0, 0, 0, b'a', b'b']].concat();
    assert_eq!(refused_sections(&unnamed).0, WireErrorKind::Terminator);
    let misnamed = [EMPTY_BODY, &sequence(b"\xff", &[])].concat();
    assert_eq!(refused_sections(&misnamed), (WireErrorKind::Utf8, 31));
    let bad_document = [EMPTY_BODY, &sequence(b"a", &[6, 0, 0, 0, 0])].concat();
    assert_eq!(
        refused_sections(&bad_document),
        (WireErrorKind::DocumentLength { length_bytes: 6, found_bytes: 5 }, 33)
    );
    assert_eq!(
        refused_sections(&[0, 6, 0, 0, 0, 0]),
        (WireErrorKind::DocumentLength { length_bytes: 6, found_bytes: 5 }, 21)
    );
    // A second body is detected only when it is complete.
    let cut = WireErrorKind::Truncated { needed_bytes: 4, found_bytes: 0 };
    assert_eq!(refused_sections(&[EMPTY_BODY, &[0]].concat()), (cut, 27));
}

#[test]
fn sequences_are_limited_in_number() {
    let named = |count: u8| {
        let sections = (0..count).flat_map(|name| sequence(&[b'a' + name], &[])).collect::<Vec<_>>();
        raw(1, 0, 0, &[EMPTY_BODY, &sections].concat())
    };
    assert_eq!(done(&named(8)).sequences().count(), SEQUENCES_MAX);
    assert_eq!(refused(&named(9)).0, WireErrorKind::SequencesTooMany);

    let mut sink = Vec::new();
    let result = encode_message(&mut sink, Outgoing::request(1), &Limits::DEFAULT, |message| {
        (0..9).try_for_each(|_| message.sequence("a", |_| Ok(())))
    });
    assert_eq!((result, sink.len()), (Err(EncodeError::SequencesTooMany), 0));
}

#[test]
fn malformed_documents_pass_decode_and_fail_the_check_of_their_structure() {
    let document = [12, 0, 0, 0, 8, b'a', 0, 1, 0x55, b'b', 0, 0];
    let in_body = raw(1, 0, 0, &[&[0], &document[..]].concat());
    let error = done(&in_body).validate_structure().expect_err("a type of 0x55");
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::ElementTag { tag: 0x55 }, 29));
    let in_sequence = raw(1, 0, 0, &[EMPTY_BODY, &sequence(b"s", &document)].concat());
    let error = done(&in_sequence).validate_structure().expect_err("a type of 0x55");
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::ElementTag { tag: 0x55 }, 41));
}

/// A reply with a value of each kind that only a conversion refuses, before `{ ok: 1, n: 7 }`.
fn reply_that_conversions_refuse(value: &[u8]) -> Vec<u8> {
    let elements = [value, b"\x10ok\0\x01\0\0\0\x10n\0\x07\0\0\0\0"].concat();
    let length = i32::try_from(elements.len() + 4).expect("short").to_le_bytes();
    raw(2, 7, 0, &[&[0], &length[..], &elements[..]].concat())
}

#[test]
fn values_that_only_a_conversion_refuses_are_received_and_hide_no_others() {
    let values: [&[u8]; 9] = [
        b"\x02t\0\x03\0\0\0\xc3\xc3\0",
        b"\x0dt\0\x02\0\0\0\xff\0",
        b"\x0et\0\x02\0\0\0\xff\0",
        b"\x0bt\0\xff\0\xff\0",
        b"\x0ct\0\x02\0\0\0\xff\0aaaabbbbcccc",
        b"\x0ft\0\x0f\0\0\0\x02\0\0\0\xff\0\x05\0\0\0\0",
        b"\x0ak\xff\0",
        b"\x08b\0\x02",
        b"\x05o\0\x04\0\0\0\x02\x09\0\0\0",
    ];
    for value in values {
        let bytes = reply_that_conversions_refuse(value);
        let mut exchange = Exchange::IDLE;
        exchange.begin(7, Flags::NONE);
        let Ok(Decoded::Done { value: (message, Matched::Last), .. }) = exchange.decode_reply(&bytes, &Limits::DEFAULT)
        else {
            panic!("{value:?} is received");
        };
        assert!(message.body().validate().is_err(), "{value:?}");
        let elements: Vec<_> = message.body().iter().collect();
        assert_eq!(elements.len(), 3);
        assert!(elements[0].is_err(), "{value:?}");
        assert_eq!(elements[2].expect("after it").value, RawValue::Int32(7));
        assert!(crate::command::CommandReply::is_plain_success(message.body()));
        assert!(crate::command::CommandReply::parse(message.body()).expect("a reply").ok);
    }
}

#[test]
fn message_beyond_a_limit_is_refused_and_the_sink_unchanged() {
    let write = |limits: Limits, flags: Flags| {
        let mut sink = vec![1, 2, 3];
        let result = encode_message(&mut sink, Outgoing::request(1).with_flags(flags), &limits, |message| {
            message.body(|d| d.binary("b", 0, &[0; 100]).map(drop))
        });
        if result.is_err() {
            assert_eq!(sink, [1, 2, 3]);
        }
        result
    };
    let length = write(Limits::DEFAULT, Flags::NONE).expect("fits");
    let max = u32::try_from(length).expect("small");
    let exact = Limits { message_bytes_max: max, ..Limits::DEFAULT };
    assert_eq!(write(exact, Flags::NONE), Ok(length));
    let too_large = EncodeError::MessageTooLarge { length_bytes: max + 4, max_bytes: max };
    assert_eq!(write(exact, Flags::CHECKSUM_PRESENT), Err(too_large));
    let short = Limits { message_bytes_max: max - 1, ..Limits::DEFAULT };
    assert!(matches!(write(short, Flags::NONE), Err(EncodeError::MessageTooLarge { .. })));
}

#[test]
fn document_may_exceed_the_users_limit_by_the_overhead_of_a_command() {
    let limits = Limits { document_bytes_max: 100, ..Limits::DEFAULT };
    let max = 100 + DOCUMENT_OVERHEAD_BYTES;
    let write = |length: u32| {
        // A document with one binary value: 13 bytes around it.
        let bytes = vec![0; length as usize - 13];
        let mut sink = Vec::new();
        encode_message(&mut sink, Outgoing::request(1), &limits, |message| {
            message.body(|d| d.binary("b", 0, &bytes).map(drop))
        })
    };
    assert!(write(max).is_ok());
    assert_eq!(write(max + 1), Err(EncodeError::DocumentTooLarge { length_bytes: max + 1, max_bytes: max }));
}

#[test]
fn message_needs_exactly_one_body_and_names_without_zero_bytes() {
    let mut sink = Vec::new();
    let mut attempt = |write: fn(&mut MessageWriter<'_, Vec<u8>>) -> Result<(), EncodeError>| {
        let result = encode_message(&mut sink, Outgoing::request(1), &Limits::DEFAULT, write);
        assert!(sink.is_empty());
        result.expect_err("refused")
    };
    assert_eq!(attempt(|_| Ok(())), EncodeError::BodyMissing);
    assert_eq!(
        attempt(|message| {
            message.raw_body(RawDocument::EMPTY)?;
            message.raw_body(RawDocument::EMPTY)
        }),
        EncodeError::BodyTwice
    );
    assert_eq!(attempt(|message| message.sequence("a\0", |_| Ok(()))), EncodeError::InteriorNul);
}

fn header(request_id: i32, response_to: i32) -> Header {
    Header { length_bytes: 26, request_id, response_to, opcode: OP_MSG }
}

#[test]
fn ordinary_reply_answers_the_request_and_only_once() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::NONE);
    assert!(!exchange.is_idle());
    for wrong in [0, 4, 6, -5] {
        let error = exchange.handle_reply(header(50, wrong), Flags::NONE).expect_err("another's");
        assert_eq!(error.kind(), WireErrorKind::ResponseTo { expected: 5, found: wrong });
    }
    assert_eq!(exchange.handle_reply(header(50, 5), Flags::NONE), Ok(Matched::Last));
    assert!(exchange.is_idle());
    let error = exchange.handle_reply(header(51, 5), Flags::NONE).expect_err("nothing was due");
    assert_eq!(error.kind(), WireErrorKind::Unsolicited { count_bytes: 26 });
}

/// In a stream each reply is a response to the one before it.
#[test]
#[doc(alias = "MON-28")]
fn exhaust_replies_answer_the_reply_before_them() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::EXHAUST_ALLOWED);
    assert_eq!(exchange.handle_reply(header(50, 5), Flags::MORE_TO_COME), Ok(Matched::MoreComes));
    assert!(exchange.handle_reply(header(51, 5), Flags::MORE_TO_COME).is_err(), "answers the request again");
    assert_eq!(exchange.handle_reply(header(60, 50), Flags::MORE_TO_COME), Ok(Matched::MoreComes));
    assert_eq!(exchange.handle_reply(header(61, 60), Flags::NONE), Ok(Matched::Last));
    assert!(exchange.is_idle());
    exchange.begin(6, Flags::NONE);
    let error = exchange.handle_reply(header(62, 6), Flags::MORE_TO_COME).expect_err("not allowed any more");
    assert_eq!(error.kind(), WireErrorKind::MoreToCome);
}

#[test]
fn request_flags_in_a_reply_and_unexpected_more_to_come_are_errors() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::NONE);
    let error = exchange.handle_reply(header(1, 5), Flags::MORE_TO_COME).expect_err("not allowed");
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::MoreToCome, 16));
    let error = exchange.handle_reply(header(1, 5), Flags::EXHAUST_ALLOWED).expect_err("a request's flag");
    assert_eq!(error.kind(), WireErrorKind::Flags { flags: 1 << 16 });
}

#[test]
fn request_without_a_reply_leaves_the_exchange_idle() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::MORE_TO_COME);
    assert!(exchange.is_idle());
}

#[test]
#[should_panic(expected = "a request while a reply is due")]
fn second_request_while_a_reply_is_due_panics() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::NONE);
    exchange.begin(6, Flags::NONE);
}

#[test]
fn bytes_after_the_last_reply_and_while_idle_are_unsolicited() {
    let limits = Limits::DEFAULT;
    let mut exchange = Exchange::IDLE;
    assert_eq!(exchange.decode_reply(&[], &limits), Ok(Decoded::NeedMore { bytes_min: 16 }));
    let error = exchange.decode_reply(&[0], &limits).expect_err("nobody asked");
    assert_eq!(error.kind(), WireErrorKind::Unsolicited { count_bytes: 1 });

    exchange.begin(5, Flags::NONE);
    let reply = raw(9, 5, 0, EMPTY_BODY);
    let error = exchange.decode_reply(&[&reply[..], &[1, 2]].concat(), &limits).expect_err("too much");
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::Unsolicited { count_bytes: 2 }, 26));
    assert!(!exchange.is_idle(), "an error changes nothing");
    assert!(matches!(exchange.decode_reply(&reply, &limits), Ok(Decoded::Done { value: (_, Matched::Last), .. })));
    assert!(exchange.is_idle());
}

#[test]
fn coalesced_exhaust_replies_are_returned_one_by_one() {
    let stream = [raw(9, 5, 2, EMPTY_BODY), raw(10, 9, 2, EMPTY_BODY), raw(11, 10, 0, EMPTY_BODY)].concat();
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::EXHAUST_ALLOWED);
    let mut rest = &stream[..];
    for expected in [Matched::MoreComes, Matched::MoreComes, Matched::Last] {
        match exchange.decode_reply(rest, &Limits::DEFAULT) {
            Ok(Decoded::Done { value: (_, matched), rest: behind }) => {
                assert_eq!(matched, expected);
                rest = behind;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(rest.is_empty() && exchange.is_idle());
}

#[test]
fn reply_with_a_malformed_document_is_refused() {
    let mut exchange = Exchange::IDLE;
    exchange.begin(5, Flags::NONE);
    let reply = raw(9, 5, 0, &[0, 9, 0, 0, 0, 0x55, b'a', 0, 9, 0]);
    let error = exchange.decode_reply(&reply, &Limits::DEFAULT).expect_err("a type of 0x55");
    assert_eq!(error.kind(), WireErrorKind::ElementTag { tag: 0x55 });
}

#[test]
fn request_ids_wrap_around_and_are_never_zero() {
    let mut ids = RequestIds::new();
    assert_eq!((ids.next_id(), ids.next_id()), (1, 2));
    let mut ids = RequestIds::after(i32::MAX);
    assert_eq!(ids.next_id(), i32::MIN);
    let mut ids = RequestIds::after(-1);
    assert_eq!(ids.next_id(), 1);
}

#[test]
fn debug_shows_lengths_only() {
    use alloc::format;
    use alloc::string::String;
    let (mut outer, mut inner) = (String::new(), String::new());
    let mut sink = Vec::new();
    encode_message(&mut sink, Outgoing::request(1), &Limits::default(), |message| {
        message.body(|body| body.str("secret", "hunter2").map(drop))?;
        message.sequence("documents", |documents| {
            documents.document(|document| document.str("secret", "hunter2").map(drop))?;
            inner = format!("{documents:?}");
            Ok(())
        })?;
        outer = format!("{message:?}");
        Ok(())
    })
    .expect("room");
    assert_eq!(outer, format!("MessageWriter({} bytes, 1 sequences)", sink.len()));
    assert!(inner.starts_with("SequenceWriter("), "{inner}");
    let message = done(&sink);
    let shown = format!("{:?}", message.sequences().collect::<Vec<_>>());
    assert!(shown.contains("Sequence(documents: 25 bytes at"), "{shown}");
    for text in [outer, inner, shown, format!("{message:?}")] {
        assert!(!text.contains("hunter2") && !text.contains("104, 117"), "{text}");
    }
}

#[test]
fn flags_are_joined() {
    let both = Flags::CHECKSUM_PRESENT.union(Flags::MORE_TO_COME);
    assert!(both.contains(Flags::CHECKSUM_PRESENT) && both.contains(Flags::MORE_TO_COME));
    assert!(!Flags::CHECKSUM_PRESENT.contains(both));
    assert_eq!(Limits::default(), Limits::DEFAULT);
}

#[test]
fn flags_and_limits_are_those_of_the_protocol() {
    let bits = [Flags::NONE, Flags::CHECKSUM_PRESENT, Flags::MORE_TO_COME, Flags::EXHAUST_ALLOWED].map(Flags::bits);
    assert_eq!(bits, [0, 1, 2, 0x1_0000]);
    assert_eq!(Flags::MORE_TO_COME.union(Flags::EXHAUST_ALLOWED).bits(), 0x1_0002);
    let both = Flags::MORE_TO_COME.union(Flags::MORE_TO_COME);
    assert!(both == Flags::MORE_TO_COME && both.contains(Flags::MORE_TO_COME));
    for bit in 0..32 {
        let understood = matches!(bit, 0 | 1 | 16..);
        assert_eq!(Flags::from_bits(1 << bit).is_some(), understood, "bit {bit}");
    }
    let Limits { message_bytes_max, document_bytes_max } = Limits::DEFAULT;
    assert_eq!((message_bytes_max, document_bytes_max, DOCUMENT_OVERHEAD_BYTES), (48_000_000, 16_777_216, 16_384));
}
