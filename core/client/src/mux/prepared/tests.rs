use super::*;
use alloc::string::ToString;
use alloc::vec;
use poolhouse_cql::{Direction, Flags, Header, MaybeUnset, Opcode};

#[test]
fn partition_key_of_several_columns_has_lengths() {
    let values = [Value::Bytes(b"tea"), Value::Null, Value::Bytes(b""), Value::Unset];
    let key = |positions: &[usize]| partition_key(positions, Values::List(&values)).map(Cow::into_owned);
    assert_eq!(key(&[0]), Some(b"tea".to_vec()));
    assert_eq!(key(&[2, 0]), Some(vec![0, 0, 0, 0, 3, b't', b'e', b'a', 0]));
    for incomplete in [&[][..], &[1], &[3], &[9], &[0, 1], &[0, 9]] {
        assert_eq!(key(incomplete), None, "{incomplete:?}");
    }
    let long = vec![0; 65_536];
    assert_eq!(partition_key(&[0, 1], Values::List(&[Value::Bytes(&long), Value::Bytes(b"")])), None);
}

/// A statement with the variables `id int`, which is the partition key, and `what text`, as version 4
/// describes it.
fn statement() -> Statement {
    let body = [
        &b"\x00\x00\x00\x04\x00\x01i\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00"[..],
        b"\x00\x04shop\x00\x04teas\x00\x02id\x00\x09\x00\x04what\x00\x0d",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
    ]
    .concat();
    let header = Header {
        version: Version::V4,
        direction: Direction::Response,
        flags: Flags::NONE,
        stream: 1,
        opcode: Opcode::Result,
        length_bytes: u32::try_from(body.len()).expect("short"),
    };
    let reply = Reply { host: MuxId::new(1), header, body: body.into() };
    Statement::read("INSERT INTO shop.teas (id, what) VALUES (?, ?)", &reply).expect("well-formed").expect("prepared")
}

#[derive(Serialize)]
struct Tea<'a> {
    what: Option<&'a str>,
    id: i64,
}

#[test]
fn statement_binds_values_by_the_types_of_the_server() {
    let statement = statement();
    assert_eq!((statement.variable_count(), statement.key_positions()), (2, &[0][..]));
    let bound = statement.bind(&Tea { what: None, id: 7 }).expect("values that fit");
    assert_eq!(bound.values().iter().collect::<Vec<_>>(), [Value::Bytes(&[0, 0, 0, 7]), Value::Null]);
    assert!(statement.routing(bound.values()).is_some(), "the values have the key");
    let bound = statement.bind(&(7, MaybeUnset::<&str>::Unset)).expect("values that fit");
    assert_eq!(bound.values().iter().collect::<Vec<_>>(), [Value::Bytes(&[0, 0, 0, 7]), Value::Unset]);
}

#[test]
fn value_that_does_not_fit_is_an_error_before_anything_is_sent() {
    let error = statement().bind(&Tea { what: Some("secret"), id: 1 << 31 }).expect_err("too large");
    assert_eq!(error.to_string(), "variable id: i64 does not fit int: out of range");
    assert!(!error.may_have_executed() && !error.is_timeout());
    let RequestError::Bind(error) = error else { panic!("{error:?}") };
    assert_eq!(error.variable(), "id");
    assert!(statement().bind(&("secret",)).is_err());
}

/// A server may describe a statement by many megabytes.
#[test]
fn statement_with_a_long_description_is_not_kept() {
    let is_kept = |bytes: usize| {
        let (mut statements, mut statement) = (Statements::new(), statement());
        Arc::get_mut(&mut statement.inner).expect("it is alone").description.resize(bytes, 0);
        let text = String::from(statement.text());
        statements.insert(statement, 0, 10);
        statements.get(&text).is_some()
    };
    assert!(is_kept(DESCRIPTION_BYTES_MAX));
    assert!(!is_kept(DESCRIPTION_BYTES_MAX + 1));
}
