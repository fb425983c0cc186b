use alloc::vec::Vec;

use super::*;
use crate::tests::hex;

fn encoded(request: &Request<'_>, version: Version, stream: i16) -> Result<Vec<u8>, CqlEncodeError> {
    let mut sink = Vec::new();
    let length = request.encode(&mut sink, Outgoing::new(version, stream), &Limits::DEFAULT)?;
    assert_eq!(length, sink.len());
    Ok(sink)
}

fn assert_bytes(request: &Request<'_>, version: Version, stream: i16, digits: &str) {
    assert_eq!(encoded(request, version, stream), Ok(hex(digits)), "{request:?} of version {version}");
}

#[test]
fn options_bytes_equal_those_of_another_implementation() {
    assert_bytes(&Request::Options, Version::V3, 0, "030000000500000000");
    assert_bytes(&Request::Options, Version::V4, 0, "040000000500000000");
    assert_bytes(&Request::Options, Version::V5, 0, "050000000500000000");
}

#[test]
fn startup_contains_the_options_that_are_set() {
    let startup = Startup { compression: Some(Compression::Lz4), driver_name: Some("pool"), ..Startup::default() };
    let body = "0003000b43514c5f56455253494f4e0005332e302e30000b434f4d5052455353494f4e00036c7a34000b4452495645525f4e414d450004706f6f6c";
    assert_bytes(&Request::Startup(startup), Version::V4, 1, &alloc::format!("04000001010000003b{body}"));
    let least = "0001000b43514c5f56455253494f4e0005332e302e30";
    assert_bytes(&Request::Startup(Startup::default()), Version::V5, 1, &alloc::format!("050000010100000016{least}"));
    let more = Startup { driver_version: Some("1"), options: &[("A", "b")], ..Startup::default() };
    let body = "0003000b43514c5f56455253494f4e0005332e302e30000e4452495645525f56455253494f4e000131000141000162";
    assert_bytes(&Request::Startup(more), Version::V3, 1, &alloc::format!("03000001010000002f{body}"));
}

#[test]
fn query_bytes_equal_those_of_another_implementation() {
    let parameters = Parameters {
        serial_consistency: Some(Consistency::LocalSerial),
        page_size: Some(5000),
        paging_state: Some(&[1, 2]),
        timestamp_us: Some(1_234_567_890_123_456),
        ..Parameters::new(Consistency::Quorum)
    };
    let query = Request::Query { text: "SELECT x FROM t WHERE k=?", parameters };
    let text = "0000001953454c45435420782046524f4d2074205748455245206b3d3f";
    let rest = "000013880000000201020009000462d53c8abac0";
    assert_bytes(&query, Version::V3, 0x1234, &alloc::format!("030012340700000034{text}00043c{rest}"));
    assert_bytes(&query, Version::V4, 0x1234, &alloc::format!("040012340700000034{text}00043c{rest}"));
    assert_bytes(&query, Version::V5, 0x1234, &alloc::format!("050012340700000037{text}00040000003c{rest}"));
    let query = Request::Query { text: "USE ks", parameters: Parameters::new(Consistency::One) };
    assert_bytes(&query, Version::V4, 32_767, "04007fff070000000d00000006555345206b73000100");
    assert_bytes(&query, Version::V5, 32_767, "05007fff070000001000000006555345206b73000100000000");
}

#[test]
fn values_are_bytes_or_null_or_left_as_they_are() {
    let values = [Value::Bytes(&[0, 0x2a]), Value::Null, Value::Unset];
    let query = |count| {
        let parameters = Parameters::new(Consistency::LocalOne).values(&values[..count]);
        Request::Query { text: "Q", parameters }
    };
    assert_bytes(&query(2), Version::V3, 2, "0300000207000000140000000151000a01000200000002002affffffff");
    assert_bytes(&query(3), Version::V4, 2, "0400000207000000180000000151000a01000300000002002afffffffffffffffe");
    let v5 = "05000002070000001b0000000151000a00000001000300000002002afffffffffffffffe";
    assert_bytes(&query(3), Version::V5, 2, v5);
    let lacking = CqlEncodeError::VersionLacks { version: Version::V3, what: "unset values" };
    assert_eq!(encoded(&query(3), Version::V3, 2), Err(lacking));
    let many = alloc::vec![Value::Null; 65_536];
    let parameters = Parameters::new(Consistency::One).values(&many);
    let query = Request::Query { text: "Q", parameters };
    assert_eq!(encoded(&query, Version::V4, 2), Err(CqlEncodeError::ListTooLong { count: 65_536 }));
}

/// The parts of EXECUTE, for callers that write its body themselves.
#[test]
fn parameters_are_encoded_in_execute_as_in_query() {
    let values = [Value::Bytes(b"v")];
    let parameters = Parameters { page_size: Some(7), ..Parameters::new(Consistency::Two).values(&values) };
    let execute = |version: Version| {
        let mut sink = Vec::new();
        encode_envelope(&mut sink, Outgoing::new(version, 3), Opcode::Execute, &Limits::DEFAULT, |body| {
            body.short_bytes(&[0xaa, 0xbb])?;
            if version == Version::V5 {
                body.short_bytes(&[0xcc])?;
            }
            parameters.write(body)
        })
        .expect("it grows");
        sink
    };
    assert_eq!(execute(Version::V4), hex("040000030a000000120002aabb0002050001000000017600000007"));
    assert_eq!(execute(Version::V5), hex("050000030a000000180002aabb0001cc0002000000050001000000017600000007"));
}

#[test]
fn metadata_is_skipped_by_its_bit() {
    let parameters = Parameters { skip_metadata: true, ..Parameters::new(Consistency::One) };
    assert_bytes(&Request::Query { text: "", parameters }, Version::V4, 0, "04000000070000000700000000000102");
}

#[test]
fn batch_bytes_equal_those_of_another_implementation() {
    let values = [Value::Bytes(b"v"), Value::Null];
    let text = BatchEntry { statement: BatchStatement::Text("A"), values: Values::NONE };
    let prepared = BatchEntry { statement: BatchStatement::Prepared(&[0xaa, 0xbb]), values: Values::List(&values) };
    let parameters = BatchParameters::new(BatchKind::Logged, Consistency::Two);
    let logged = Request::Batch { parameters, entries: &[text, prepared] };
    let body = "0000020000000001410000010002aabb00020000000176ffffffff0002";
    for version in [Version::V3, Version::V4] {
        assert_bytes(&logged, version, 7, &alloc::format!("0{version}0000070d0000001e{body}00"));
    }
    assert_bytes(&logged, Version::V5, 7, &alloc::format!("050000070d00000021{body}00000000"));
    let parameters = BatchParameters {
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp_us: Some(1_234_567_890_123_456),
        ..BatchParameters::new(BatchKind::Counter, Consistency::One)
    };
    let counter = Request::Batch { parameters, entries: &[text] };
    let (body, rest) = ("0200010000000001410000", "0009000462d53c8abac0");
    assert_bytes(&counter, Version::V4, 7, &alloc::format!("040000070d00000018{body}000130{rest}"));
    assert_bytes(&counter, Version::V5, 7, &alloc::format!("050000070d0000001b{body}000100000030{rest}"));
    let unset = BatchEntry { values: Values::List(&[Value::Unset]), ..text };
    let parameters = BatchParameters::new(BatchKind::Unlogged, Consistency::One);
    let lacking = CqlEncodeError::VersionLacks { version: Version::V3, what: "unset values" };
    assert_eq!(encoded(&Request::Batch { parameters, entries: &[unset] }, Version::V3, 7), Err(lacking));
    let many = alloc::vec![text; 65_536];
    let too_long = Err(CqlEncodeError::ListTooLong { count: 65_536 });
    assert_eq!(encoded(&Request::Batch { parameters, entries: &many }, Version::V4, 7), too_long);
}

#[test]
fn encoded_values_are_those_of_a_list() {
    let list = [Value::Bytes(b"v"), Value::Null, Value::Unset, Value::Bytes(b"")];
    let bytes = hex("0000000176fffffffffffffffe00000000");
    let values = Values::Encoded { bytes: &bytes, count: 4 };
    assert_eq!(values.iter().collect::<Vec<_>>(), list);
    let query =
        |values| Request::Query { text: "Q", parameters: Parameters { values, ..Parameters::new(Consistency::One) } };
    assert_eq!(encoded(&query(values), Version::V4, 2), encoded(&query(Values::List(&list)), Version::V4, 2));
    let lacking = CqlEncodeError::VersionLacks { version: Version::V3, what: "unset values" };
    assert_eq!(encoded(&query(values), Version::V3, 2), Err(lacking));
    // Lengths that lie end the list.
    for malformed in ["00000002ff", "fffffffd", "000001", ""] {
        let bytes = hex(malformed);
        assert_eq!(Values::Encoded { bytes: &bytes, count: 1 }.iter().count(), 0, "{malformed}");
    }
}

#[test]
fn prepared_statements_have_the_ids_of_their_version() {
    let prepare = Request::Prepare("SELECT 1");
    assert_bytes(&prepare, Version::V4, 6, "04000006090000000c0000000853454c4543542031");
    assert_bytes(&prepare, Version::V5, 6, "0500000609000000100000000853454c454354203100000000");
    let parameters = Parameters::new(Consistency::Two);
    let execute = |metadata_id| Request::Execute { id: &[0xaa, 0xbb], metadata_id, parameters };
    assert_bytes(&execute(Some(&[0xcc])), Version::V4, 3, "040000030a000000070002aabb000200");
    assert_bytes(&execute(Some(&[0xcc])), Version::V5, 3, "050000030a0000000d0002aabb0001cc000200000000");
    assert_bytes(&execute(None), Version::V5, 3, "050000030a0000000c0002aabb0000000200000000");
}

#[test]
fn register_names_the_events() {
    let body = "000f544f504f4c4f47595f4348414e4745000d5354415455535f4348414e4745000d534348454d415f4348414e4745";
    let digits = alloc::format!("040000040b000000310003{body}");
    assert_bytes(&Request::Register(&EventKind::ALL), Version::V4, 4, &digits);
    assert_bytes(&Request::Register(&[]), Version::V4, 4, "040000040b000000020000");
}

#[test]
fn token_may_be_null() {
    let token = b"\0cassandra\0secret";
    let digits = "040000050f00000015000000110063617373616e64726100736563726574";
    assert_bytes(&Request::AuthResponse(Some(token)), Version::V4, 5, digits);
    assert_bytes(&Request::AuthResponse(None), Version::V4, 5, "040000050f00000004ffffffff");
}

#[test]
fn consistencies_have_their_numbers() {
    for (consistency, number) in Consistency::ALL.into_iter().zip(0_u16..) {
        assert_eq!(consistency.number(), number);
        assert_eq!(Consistency::read(&mut Reader::new(&number.to_be_bytes(), 0)), Ok(consistency));
    }
    let unknown = Consistency::read(&mut Reader::new(&[0, 11], 5)).expect_err("there is none");
    assert_eq!((unknown.kind(), unknown.offset()), (field("consistency", 11), 5));
}

#[test]
fn debug_shows_no_secret() {
    let values = [Value::Bytes(b"hunter2")];
    let parameters = Parameters { paging_state: Some(b"hunter2"), ..Parameters::new(Consistency::One).values(&values) };
    let requests = [
        Request::Query { text: "INSERT hunter2", parameters },
        Request::AuthResponse(Some(b"hunter2")),
        Request::Prepare("hunter2"),
        Request::Execute { id: b"hunter2", metadata_id: Some(b"hunter2"), parameters },
        Request::Batch {
            parameters: BatchParameters::new(BatchKind::Logged, Consistency::One),
            entries: &[BatchEntry { statement: BatchStatement::Text("hunter2"), values: parameters.values }],
        },
    ];
    for request in requests {
        let shown = alloc::format!("{request:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    }
}

#[test]
fn debug_shows_everything_except_secrets() {
    use crate::EventKind;
    let values = [Value::Null, Value::Unset, Value::Bytes(b"abc")];
    assert_eq!(alloc::format!("{values:?}"), "[Null, Unset, Bytes(3)]");
    let startup = alloc::format!("{:?}", Request::Startup(Startup::default()));
    assert!(startup.starts_with("Startup(Startup"), "{startup}");
    let register = alloc::format!("{:?}", Request::Register(&[EventKind::Schema]));
    assert_eq!(register, "Register([Schema])");
    assert_eq!(alloc::format!("{:?}", Request::Options), "OPTIONS(..)");
}
