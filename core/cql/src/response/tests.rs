use alloc::format;
use alloc::vec::Vec;

use super::*;
use crate::ErrorCode;
use crate::tests::{envelope, hex, multimap, response, string};

/// Parses an envelope that is known to be whole.
fn open(bytes: &[u8]) -> Envelope<'_> {
    let limits = crate::Limits::DEFAULT;
    match crate::decode_header(bytes, None, Direction::Response, &limits) {
        Ok(poolhouse_wire::message::Decoded::Done { value, rest }) => Envelope { header: value, body: rest },
        other => panic!("{other:?}"),
    }
}

/// Checks that the whole body is accepted, and that each cut of it is truncated.
fn assert_cuts_are_truncated(opcode: Opcode, body: &[u8]) {
    let whole = response(opcode, body);
    assert!(open(&whole).response().is_ok());
    for end in 0..body.len() {
        let cut = response(opcode, &body[..end]);
        let error = open(&cut).response().expect_err("cut");
        assert!(matches!(error.kind(), CqlErrorKind::Truncated { .. }), "{error}");
        assert!(error.offset() as usize <= cut.len() && error.offset() >= 9, "{error}");
    }
    // Bytes after the body are ignored.
    let longer = response(opcode, &[body, &[0xff; 3]].concat());
    assert_eq!(format!("{:?}", open(&longer).response().map(drop)), "Ok(())");
}

#[test]
fn messages_of_a_handshake_are_read() {
    assert_eq!(open(&response(Opcode::Ready, &[])).response(), Ok(Response::Ready));
    let class = "org.apache.cassandra.auth.PasswordAuthenticator";
    let body = string(class);
    assert_eq!(open(&response(Opcode::Authenticate, &body)).response(), Ok(Response::Authenticate(class)));
    assert_cuts_are_truncated(Opcode::Authenticate, &body);
    for (opcode, make) in [
        (Opcode::AuthChallenge, Response::AuthChallenge as fn(Option<&'static [u8]>) -> Response<'static>),
        (Opcode::AuthSuccess, Response::AuthSuccess),
    ] {
        assert_eq!(open(&response(opcode, &hex("ffffffff"))).response(), Ok(make(None)));
        assert_eq!(open(&response(opcode, &hex("00000002abcd"))).response(), Ok(make(Some(&[0xab, 0xcd]))));
        assert_cuts_are_truncated(opcode, &hex("00000002abcd"));
    }
}

#[test]
fn supported_lists_options_and_versions() {
    let body = multimap(&[
        ("CQL_VERSION", &["3.4.6"]),
        ("PROTOCOL_VERSIONS", &["3/v3", "4/v4", "5/v5", "6/v6-beta", "65/dse-v1", "five", "300/v300", "/v4"]),
        ("COMPRESSION", &["snappy", "lz4"]),
    ]);
    let whole = response(Opcode::Supported, &body);
    let Ok(Response::Supported(supported)) = open(&whole).response() else { panic!("supported") };
    assert_eq!(supported.values("COMPRESSION").collect::<Vec<_>>(), ["snappy", "lz4"]);
    assert_eq!(supported.values("compression").count(), 0);
    assert_eq!(supported.options().len(), 3);
    let versions: Vec<_> = supported.protocol_versions().collect();
    let known = [(3, false), (4, false), (5, false), (6, true), (65, false)].map(Some);
    assert_eq!(versions, [&known[..], &[None; 3]].concat());
    assert_cuts_are_truncated(Opcode::Supported, &body);
    assert_eq!(format!("{:?}", open(&response(Opcode::Supported, &[0, 0])).response()), "Ok(Supported({}))");
}

#[test]
fn result_is_its_kind_and_bytes() {
    for kind in OutcomeKind::ALL {
        let body = [&kind.number().to_be_bytes()[..], b"whatever"].concat();
        let whole = response(Opcode::Result, &body);
        let outcome = Outcome { kind, body: b"whatever" };
        assert_eq!(open(&whole).response(), Ok(Response::Result(outcome)));
        assert!(!format!("{outcome:?}").contains("whatever"));
    }
    for number in [0, 6, -1, i32::MIN] {
        let whole = response(Opcode::Result, &i32::to_be_bytes(number));
        let error = open(&whole).response().expect_err("no such kind");
        assert_eq!((error.kind(), error.offset()), (field("kind", i64::from(number)), 9));
    }
    assert_cuts_are_truncated(Opcode::Result, &hex("00000001"));
}

#[test]
fn outcome_contains_keyspace_id_and_schema_change() {
    let set = Outcome { kind: OutcomeKind::SetKeyspace, body: &string("ks") };
    assert_eq!((set.keyspace(), set.prepared_id(), set.schema_change()), (Ok(Some("ks")), Ok(None), Ok(None)));
    let prepared = Outcome { kind: OutcomeKind::Prepared, body: &hex("0002abcd00") };
    assert_eq!((prepared.keyspace(), prepared.prepared_id()), (Ok(None), Ok(Some(&[0xab, 0xcd][..]))));
    let body = ["CREATED", "TABLE", "ks", "t"].map(string).concat();
    let change = Outcome { kind: OutcomeKind::SchemaChange, body: &body };
    let found = change.schema_change().expect("well-formed").expect("there");
    assert_eq!((found.change, found.target, found.keyspace, found.name), ("CREATED", "TABLE", "ks", Some("t")));
    assert_eq!(found.arguments.len(), 0);
    assert!(Outcome { kind: OutcomeKind::SetKeyspace, body: &[0] }.keyspace().is_err());
    assert!(Outcome { kind: OutcomeKind::Prepared, body: &[0, 1] }.prepared_id().is_err());
    assert!(Outcome { kind: OutcomeKind::SchemaChange, body: &[] }.schema_change().is_err());
}

/// Every combination of the parts before the message.
#[test]
fn trace_warnings_and_payload_are_skipped_by_their_flags() {
    let trace = [7; 16];
    let warnings = [&[0, 2][..], &string("careful"), &string("slow")].concat();
    let payload = [&[0, 1][..], &string("key"), &[0, 0, 0, 1, 9]].concat();
    for bits in 0..8_u8 {
        let (tracing, warning, custom) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let parts = [(tracing, &trace[..]), (warning, &warnings), (custom, &payload)];
        let front: Vec<u8> = parts.iter().filter(|(there, _)| *there).flat_map(|(_, bytes)| bytes.to_vec()).collect();
        let flags = [(tracing, 2), (warning, 8), (custom, 4)];
        let flags = flags.iter().filter(|(there, _)| *there).map(|(_, bit)| bit).sum::<u8>();
        for version in [0x84, 0x85] {
            // The flag of compression describes the body as it was received, and unknown flags have
            // no meaning.
            let bytes = envelope(version, flags | 0xe0, 3, 8, &[&front[..], &hex("0000000100")].concat());
            let parts = open(&bytes).parts().expect("well-formed");
            assert_eq!(parts.tracing_id, tracing.then_some(trace));
            let expected: &[&str] = if warning { &["careful", "slow"] } else { &[] };
            assert_eq!(parts.warnings.collect::<Vec<_>>(), expected);
            assert_eq!(parts.custom_payload.len(), usize::from(custom));
            assert_eq!(parts.message(), hex("0000000100"));
            let void = Outcome { kind: OutcomeKind::Void, body: &[0] };
            assert_eq!(open(&bytes).response(), Ok(Response::Result(void)));
            for end in 0..front.len() {
                let cut = envelope(version, flags, 3, 8, &front[..end]);
                let error = open(&cut).parts().expect_err("cut");
                assert!(matches!(error.kind(), CqlErrorKind::Truncated { .. }), "{error}");
            }
        }
    }
}

/// v3 has neither warnings nor payloads: the bits are among those without a meaning.
#[test]
fn version_3_supports_only_the_trace() {
    let body = [&[7; 16][..], &hex("00000001")].concat();
    let bytes = envelope(0x83, 0x0e, 3, 8, &body);
    let parts = open(&bytes).parts().expect("well-formed");
    assert_eq!((parts.tracing_id, parts.message()), (Some([7; 16]), &hex("00000001")[..]));
    assert_eq!((parts.warnings.len(), parts.custom_payload.len()), (0, 0));
}

#[test]
fn requests_have_neither_trace_nor_response() {
    let header = Header {
        version: Version::V4,
        direction: Direction::Request,
        flags: Flags::TRACING.union(Flags::CUSTOM_PAYLOAD),
        stream: 1,
        opcode: Opcode::Query,
        length_bytes: 3,
    };
    let envelope = Envelope { header, body: &[0, 0, 5] };
    assert_eq!(envelope.parts().map(|parts| (parts.tracing_id, parts.message())), Ok((None, &[5][..])));
    let kind = CqlErrorKind::OpcodeMisplaced { opcode: Opcode::Query };
    assert_eq!(envelope.response(), Err(CqlError::new(kind, 4)));
}

#[test]
fn debug_shows_no_body_and_no_token() {
    let whole = response(Opcode::AuthChallenge, &[&hex("00000007")[..], b"hunter2"].concat());
    let envelope = open(&whole);
    for shown in [format!("{envelope:?}"), format!("{:?}", envelope.response()), format!("{:?}", envelope.parts())] {
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }
    let error = [&hex("00001001")[..], &string("busy")].concat();
    let whole = response(Opcode::Error, &error);
    let Ok(Response::Error(failure)) = open(&whole).response() else { panic!("an error") };
    assert_eq!((failure.code, failure.message), (ErrorCode::OVERLOADED, "busy"));
    assert_cuts_are_truncated(Opcode::Error, &error);
}

#[test]
fn debug_shows_the_kind_and_no_token() {
    let class = string("org.example.Auth");
    let token = hex("0000000468756e74");
    for (opcode, body, shown) in [
        (Opcode::Ready, &[][..], "Ready"),
        (Opcode::Authenticate, &class[..], "Authenticate(\"org.example.Auth\")"),
        (Opcode::AuthChallenge, &token[..], "AuthChallenge(..)"),
        (Opcode::AuthSuccess, &token[..], "AuthSuccess(..)"),
    ] {
        assert_eq!(format!("{:?}", open(&response(opcode, body)).response().expect("whole")), shown);
    }
    let failure = [&ErrorCode::OVERLOADED.number().to_be_bytes()[..], &string("busy")].concat();
    let shown = format!("{:?}", open(&response(Opcode::Error, &failure)).response().expect("whole"));
    assert!(shown.starts_with("Error(Failure"), "{shown}");
    let outcome = [&[0, 0, 0, 1][..], b"hunter2"].concat();
    let shown = format!("{:?}", open(&response(Opcode::Result, &outcome)).response().expect("whole"));
    assert!(shown.starts_with("Result(Outcome") && !shown.contains("104"), "{shown}");
}

#[test]
fn event_is_decoded_as_a_response() {
    let body = [string("STATUS_CHANGE"), string("UP"), hex("047f00000100002352")].concat();
    let bytes = envelope(0x84, 0, -1, Opcode::Event.number(), &body);
    let Ok(Response::Event(event)) = open(&bytes).response() else { panic!("an event") };
    let node = "127.0.0.1:9042".parse().expect("an address");
    assert_eq!(event, crate::Event::Status { change: "UP", node });
    assert!(format!("{:?}", Response::Event(event)).starts_with("Event(Status"));
}
