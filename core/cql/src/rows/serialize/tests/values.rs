//! Values of all types, written and read again, and what is refused.

use super::{Bytes, bind, error, kept, one, returned, rows, string};
use crate::rows::RowError;
use crate::types::{
    CustomValue, Date, Decimal, Duration, MaybeEmpty, Time, Timestamp, Uuid, VARINT_DECIMAL_BYTES_MAX, Varint,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::net::IpAddr;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::{Value as Json, json};
use std::format;

/// The description of a class.
fn class(text: &str) -> Vec<u8> {
    [&[0, 0][..], &string(text)].concat()
}

fn value(bytes: Option<&[u8]>) -> Vec<u8> {
    bytes.map_or_else(|| vec![0xff; 4], |bytes| [&super::int(bytes.len()), bytes].concat())
}

/// Reads the only column of the only row.
fn cell<T: DeserializeOwned>(kind: &[u8], bytes: Option<&[u8]>) -> Result<T, RowError> {
    let body = [&super::described(&[("it", kind)])[..], &super::int(1), &value(bytes)].concat();
    let (one,) = rows(&body).deserialize::<(T,)>().next().expect("a row")?;
    Ok(one)
}

/// The text of the error of a cell.
fn refused<T: DeserializeOwned>(kind: &[u8], bytes: Option<&[u8]>) -> String {
    let Err(error) = cell::<T>(kind, bytes) else { panic!("{kind:?} {bytes:?} was read") };
    assert_eq!(error.column(), "it");
    error.to_string().strip_prefix("column it: ").expect("the column").to_string()
}

/// A value has these bytes, and is read from them.
fn is<T: Serialize + DeserializeOwned + PartialEq + Debug + Clone>(kind: &[u8], value: T, bytes: &[u8]) {
    assert_eq!(one(kind, value.clone()).as_deref(), Ok(bytes), "{value:?}");
    assert_eq!(cell(kind, Some(bytes)), Ok(value));
}

const BIGINT: &[u8] = &[0, 2];
const BLOB: &[u8] = &[0, 3];
const DECIMAL: &[u8] = &[0, 6];
const DOUBLE: &[u8] = &[0, 7];
const FLOAT: &[u8] = &[0, 8];
const INT: &[u8] = &[0, 9];
const TIMESTAMP: &[u8] = &[0, 0xb];
const UUID: &[u8] = &[0, 0xc];
const VARCHAR: &[u8] = &[0, 0xd];
const VARINT: &[u8] = &[0, 0xe];
const TIMEUUID: &[u8] = &[0, 0xf];
const INET: &[u8] = &[0, 0x10];
const DATE: &[u8] = &[0, 0x11];
const TIME: &[u8] = &[0, 0x12];
const DURATION: &[u8] = &[0, 0x15];
const LIST: &[u8] = &[0, 0x20, 0, 9];
const SET: &[u8] = &[0, 0x22, 0, 13];
const MAP: &[u8] = &[0, 0x21, 0, 13, 0, 9];
const TUPLE: &[u8] = &[0, 0x31, 0, 2, 0, 9, 0, 0x20, 0, 9];

#[test]
fn vectors_are_their_elements_and_nothing_else() {
    let float = class("org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType, 3)");
    let bytes = [1.0_f32, 2.5, -3.0].map(f32::to_be_bytes).concat();
    is(&float, vec![1.0_f32, 2.5, -3.0], &bytes);
    is(&float, [1.0_f32, 2.5, -3.0], &bytes);
    is(&float, (1.0_f64, 2.5_f64, -3.0_f64), &bytes);
    let int = class("VectorType(Int32Type,2)");
    is(&int, vec![7, 258], &[0, 0, 0, 7, 0, 0, 1, 2]);
    is(&class("VectorType(ByteType,4)"), vec![1_i8, 2, 3, 4], &[1, 1, 1, 2, 1, 3, 1, 4]);
    // The replayed report: bytes of vectors are not numbers, nor numbers bytes.
    assert_eq!(
        refused::<[f32; 2]>(&float, Some(&bytes)),
        "vector<float, 3> does not fit [f32; 2]: 3 values, expected 2"
    );
    assert_eq!(refused::<Vec<u8>>(&float, Some(&bytes)), "vector<float, 3> does not fit Vec<u8>: float, expected u8");
    assert_eq!(refused::<ByteBuf>(&float, Some(&bytes)), "vector<float, 3> does not fit ByteBuf");
    assert_eq!(
        error(&float, (1..=12).collect::<Vec<i32>>()),
        "Vec<i32> does not fit vector<float, 3>: an integer, expected float"
    );
    assert_eq!(error(&int, vec![1; 8]), "Vec<i32> does not fit vector<int, 2>: 8 values, expected 2");
    assert_eq!(error(&int, Bytes(&[0; 8])), "Bytes does not fit vector<int, 2>");
    assert_eq!(error(&int, [1]), "[i32; 1] does not fit vector<int, 2>: 1 values, expected 2");
    assert_eq!(error(&int, [Some(1), None]), "[Option<i32>; 2] does not fit vector<int, 2>: null in a collection");
    assert_eq!(error(&int, "secret"), "&str does not fit vector<int, 2>");
    let empty = "[MaybeEmpty<i32>; 2] does not fit vector<int, 2>: an element of 0 bytes, expected 4";
    assert_eq!(error(&int, [MaybeEmpty::<i32>::Empty; 2]), empty);
    for bytes in [&[0; 7][..], &[0; 9], &[0; 4], &[0; 12]] {
        let expected = format!("vector<int, 2> does not fit Vec<i32>: {} bytes are not 2 elements", bytes.len());
        assert_eq!(refused::<Vec<i32>>(&int, Some(bytes)), expected);
    }
    assert_eq!(refused::<Vec<i32>>(&int, None), "vector<int, 2> does not fit Vec<i32>: null");
    assert_eq!(cell::<Option<Vec<i32>>>(&int, None), Ok(None));
    let empty = "vector<int, 2> does not fit Vec<i32>: an empty value: read it as MaybeEmpty";
    assert_eq!(refused::<Vec<i32>>(&int, Some(&[])), empty);
    is(&int, MaybeEmpty::<Vec<i32>>::Empty, &[]);
}

#[test]
fn vectors_of_every_kind_of_element_return_as_they_were() {
    let text = |text: &str| String::from(text);
    is(&class("VectorType(UTF8Type,2)"), vec![text("a"), text("")], &[1, b'a', 0]);
    let long = text(&"x".repeat(300));
    is(&class("VectorType(UTF8Type,1)"), vec![long.clone()], &[&[0x81, 0x2c][..], long.as_bytes()].concat());
    is(&class("VectorType(BooleanType,2)"), vec![true, false], &[1, 0]);
    is(&class("VectorType(ShortType,1)"), vec![258_i16], &[2, 1, 2]);
    kept(&class("VectorType(LongType,2)"), vec![1_i64, -1]);
    kept(&class("VectorType(DoubleType,2)"), vec![0.1_f64, f64::MIN]);
    kept(&class("VectorType(TimestampType,2)"), vec![Timestamp::from_ms(1), Timestamp::from_ms(-1)]);
    kept(&class("VectorType(TimeUUIDType,1)"), vec![Uuid::from_bytes([7; 16])]);
    kept(&class("VectorType(IntegerType,2)"), vec![Varint::from(5), Varint::from(i128::MIN)]);
    kept(&class("VectorType(DecimalType,2)"), vec![Decimal::new(5, 1), Decimal::new(-5, -1)]);
    kept(&class("VectorType(DurationType,1)"), vec![Duration::new(1, 2, 3).expect("one sign")]);
    kept(&class("VectorType(InetAddressType,2)"), vec![IpAddr::from([1; 4]), IpAddr::from([1_u16; 8])]);
    kept(&class("VectorType(SimpleDateType,1)"), vec![Date::from_days(-5)]);
    kept(&class("VectorType(TimeType,1)"), vec![Time::from_ns(5).expect("a time")]);
    kept(&class("VectorType(VectorType(Int32Type,2),3)"), vec![[1, 2], [3, 4], [5, 6]]);
    kept(&class("VectorType(VectorType(VectorType(UTF8Type,1),1),2)"), vec![[[text("a")]], [[text("bc")]]]);
    kept(&class("VectorType(ListType(Int32Type),2)"), vec![vec![1, 2], vec![]]);
    kept(&class("VectorType(MapType(UTF8Type,Int32Type),1)"), vec![BTreeMap::from([(text("a"), 1)])]);
    kept(&class("VectorType(TupleType(Int32Type,UTF8Type),1)"), vec![(1, text("a"))]);
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Place {
        name: String,
        at: [f32; 2],
        tags: Vec<String>,
    }
    let place = Place { name: text("Rome"), at: [41.9, 12.5], tags: vec![] };
    let udt = "UserType(shop,706c616365,6e616d65:UTF8Type,6174:VectorType(FloatType,2),74616773:SetType(UTF8Type))";
    kept(&class(udt), place.clone());
    kept(&class(&format!("VectorType({udt},2)")), vec![place.clone(), place.clone()]);
    kept(&[&[0, 0x20][..], &class(udt)].concat(), vec![place]);
    let vectors = [&[0, 0x21, 0, 13][..], &class("VectorType(FloatType,2)")].concat();
    kept(&vectors, BTreeMap::from([(text("a"), [1.0_f32, 2.0]), (text("b"), [3.0, 4.0])]));
    let in_list = [&[0, 0x20][..], &class("VectorType(UTF8Type,1)")].concat();
    assert_eq!(cell(&in_list, Some(&one(&in_list, [["a"]]).expect("a list"))), Ok(json!([["a"]])));
    // Lengths that lie.
    let texts = class("VectorType(UTF8Type,2)");
    for bytes in [&[1, b'a'][..], &[1, b'a', 5], &[1, b'a', 0, 0], &[0xff; 9], &[0x80, 0x80], &[2, b'a', b'b']] {
        assert!(cell::<Vec<String>>(&texts, Some(bytes)).is_err(), "{bytes:?}");
        assert!(cell::<Json>(&texts, Some(bytes)).is_err(), "{bytes:?}");
    }
    let wide = class("VectorType(UTF8Type,2147483647)");
    assert!(cell::<Vec<String>>(&wide, Some(&[0; 1000])).is_err());
    assert!(error(&wide, vec!["a"]).ends_with("1 values, expected 2147483647"));
}

#[test]
fn own_types_have_exactly_their_types() {
    is(TIMESTAMP, Timestamp::from_ms(-2), &(-2_i64).to_be_bytes());
    is(DATE, Date::from_days(1), &[0x80, 0, 0, 1]);
    is(DATE, Date::from_days(i32::MIN), &[0; 4]);
    is(TIME, Time::from_ns(258).expect("a time"), &258_u64.to_be_bytes());
    is(DURATION, Duration::new(1, 2, 3).expect("one sign"), &[2, 4, 6]);
    is(&class("DurationType"), Duration::new(-1, -2, -3).expect("one sign"), &[1, 3, 5]);
    is(VARINT, Varint::from(u128::MAX), &[&[0][..], &[0xff; 16]].concat());
    is(DECIMAL, Decimal::new(-129, 2), &[0, 0, 0, 2, 0xff, 0x7f]);
    is(UUID, Uuid::from_bytes([7; 16]), &[7; 16]);
    is(TIMEUUID, Uuid::from_bytes([7; 16]), &[7; 16]);
    let unknown = class("of.some.Class(UTF8Type)");
    is(&unknown, CustomValue::new("of.some.Class(UTF8Type)", [1, 2]), &[1, 2]);
    is(&unknown, CustomValue::new("of.some.Class(UTF8Type)", []), &[]);
    let other = error(&unknown, CustomValue::new("of.some.Class", [1]));
    assert_eq!(other, "CustomValue does not fit of.some.Class(UTF8Type): a value of another class");
    // In lists and options too.
    kept(&[&[0, 0x20][..], DURATION].concat(), vec![Duration::default(); 2]);
    kept(DURATION, Some(Duration::default()));
    kept(DURATION, None::<Duration>);
    assert_eq!(refused::<Duration>(DURATION, None), "duration does not fit Duration: null");
    let ms = Timestamp::from_ms(5);
    assert_eq!(error(BIGINT, ms), "Timestamp does not fit bigint");
    assert_eq!(error(DATE, ms), "Timestamp does not fit date");
    assert_eq!(error(VARCHAR, ms), "Timestamp does not fit varchar");
    assert_eq!(error(&[0, 0x20, 0, 9], [ms]), "[Timestamp; 1] does not fit list<int>: Timestamp, expected int");
    assert_eq!(error(TIMESTAMP, Date::from_days(5)), "Date does not fit timestamp");
    assert_eq!(error(INT, Varint::from(5)), "Varint does not fit int");
    assert_eq!(error(BLOB, Uuid::default()), "Uuid does not fit blob");
    assert_eq!(error(BLOB, CustomValue::new("", [])), "CustomValue does not fit blob");
    assert_eq!(
        error(&class("VectorType(Int32Type,1)"), CustomValue::new("", [])),
        "CustomValue does not fit vector<int, 1>"
    );
    assert_eq!(refused::<Timestamp>(BIGINT, Some(&[0; 8])), "bigint does not fit Timestamp");
    assert_eq!(refused::<Date>(TIMESTAMP, Some(&[0; 8])), "timestamp does not fit Date");
    assert_eq!(refused::<Varint>(INT, Some(&[0; 4])), "int does not fit Varint");
    assert_eq!(refused::<Uuid>(BLOB, Some(&[0; 16])), "blob does not fit Uuid");
    assert_eq!(refused::<CustomValue>(BLOB, Some(&[])), "blob does not fit CustomValue");
    let list = one(LIST, [1]).expect("a list");
    assert_eq!(refused::<Vec<Date>>(LIST, Some(&list)), "list<int> does not fit Vec<Date>: int, expected a date");
    // Malformed cells.
    assert_eq!(refused::<Date>(DATE, Some(&[0; 3])), "date does not fit Date: malformed");
    assert_eq!(refused::<Time>(TIME, Some(&[0xff; 8])), "time does not fit Time: malformed");
    assert_eq!(refused::<Duration>(DURATION, Some(&[0])), "duration does not fit Duration: malformed");
    assert_eq!(refused::<Decimal>(DECIMAL, Some(&[0; 4])), "decimal does not fit Decimal: malformed");
    assert_eq!(refused::<String>(DECIMAL, Some(&[0; 4])), "decimal does not fit String: malformed");
    assert_eq!(refused::<String>(TIME, Some(&[0xff; 8])), "time does not fit String: malformed");
    let empty = "varint does not fit Varint: an empty value: read it as MaybeEmpty";
    assert_eq!(refused::<Varint>(VARINT, Some(&[])), empty);
}

#[test]
fn texts_are_values_where_nothing_is_lost() {
    for (kind, text) in [
        (TIMESTAMP, "2024-02-29T12:30:00.250Z"),
        (TIMESTAMP, "+292278994-08-17T07:12:55.807Z"),
        (DATE, "2024-02-29"),
        (DATE, "-5877641-06-23"),
        (TIME, "12:30:00.000000001"),
        (DURATION, "-1y2mo3d4h5m6s7ms8us9ns"),
        (DECIMAL, "-12.30"),
        (DECIMAL, "1.5E+300"),
        (VARINT, "-123456789012345678901234567890123456789012345678901234567890"),
        (VARINT, "12"),
        (UUID, "10111213-1415-1617-1819-1a1b1c1d1e1f"),
        (INET, "10.0.0.1"),
        (INET, "1:2:3::4"),
        (VARCHAR, "tea"),
    ] {
        kept(kind, String::from(text));
        let bytes = one(kind, text).expect(text);
        let is_number = kind == VARINT && text.len() < 20;
        assert_eq!(cell(kind, Some(&bytes)), Ok(if is_number { json!(12) } else { json!(text) }));
    }
    // A decimal number longer than the buffer on the stack.
    kept(DECIMAL, format!("1.{}", "3".repeat(500)));
    assert_eq!(
        error(TIMESTAMP, "2024-02-29T12:30:00.2501Z"),
        "&str does not fit timestamp: a timestamp with fractions of milliseconds"
    );
    assert!(one(TIMESTAMP, "2024-02-29T12:30:00.2500000Z").is_ok());
    assert_eq!(error(DATE, "secret"), "&str does not fit date: no date of the form 2024-02-29");
    assert_eq!(error(VARINT, "1.5"), "&str does not fit varint: no integer of decimal digits");
    assert_eq!(error(INT, "5"), "&str does not fit int");
    assert_eq!(error(DOUBLE, "5"), "&str does not fit double");
    for kind in
        [INT, BLOB, DOUBLE, &[0, 4], LIST, MAP, TUPLE, &class("of.some.Class"), &class("VectorType(Int32Type,1)")]
    {
        assert!(cell::<String>(kind, Some(b"text")).is_err(), "{kind:?}");
        assert!(cell::<char>(kind, Some(b"t")).is_err(), "{kind:?}");
    }
    assert_eq!(cell(VARCHAR, Some("ä".as_bytes())), Ok('ä'));
    assert_eq!(refused::<char>(VARCHAR, Some(b"tea")), "varchar does not fit char: a text that is not a character");
}

#[test]
fn types_of_other_crates_work_by_their_texts() {
    use ::bigdecimal::BigDecimal;
    use ::chrono::{DateTime, NaiveDate, NaiveTime, Utc};
    let time: DateTime<Utc> = "2024-02-29T12:30:00.250Z".parse().expect("a time");
    kept(TIMESTAMP, time);
    kept(TIMESTAMP, "-0044-03-15T00:00:00Z".parse::<DateTime<Utc>>().expect("a time"));
    let finer: DateTime<Utc> = "2024-02-29T12:30:00.250001Z".parse().expect("a time");
    assert_eq!(
        error(TIMESTAMP, finer),
        "DateTime<Utc> does not fit timestamp: a timestamp with fractions of milliseconds"
    );
    assert!(cell::<DateTime<Utc>>(TIMESTAMP, Some(&i64::MAX.to_be_bytes())).is_err());
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Ms(#[serde(with = "::chrono::serde::ts_milliseconds")] DateTime<Utc>);
    kept(TIMESTAMP, Ms(time));
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Rfc3339(#[serde(with = "::time::serde::rfc3339")] ::time::OffsetDateTime);
    kept(TIMESTAMP, Rfc3339(::time::OffsetDateTime::from_unix_timestamp(5).expect("a time")));
    kept(DATE, NaiveDate::from_ymd_opt(2024, 2, 29).expect("a date"));
    kept(DATE, NaiveDate::MAX);
    kept(DATE, NaiveDate::MIN);
    kept(TIME, NaiveTime::from_hms_nano_opt(12, 30, 0, 1).expect("a time"));
    for text in ["-12.30", "1.5E+300", "0", "7E-100"] {
        kept(DECIMAL, text.parse::<BigDecimal>().expect("a number"));
    }
    kept(UUID, ::uuid::Uuid::from_u128(7));
    kept(TIMEUUID, Some(::uuid::Uuid::from_u128(7)));
    kept(INET, IpAddr::from([1_u16; 8]));
    kept(BLOB, ByteBuf::from([1, 2]));
    kept(VARCHAR, ByteBuf::from(*b"tea"));
}

/// The warnings in the documentation of [`Type`](crate::Type).
#[test]
fn macros_and_modules_for_serde_may_convert_values_themselves() {
    use ::chrono::{DateTime, NaiveDateTime, Utc};
    #[derive(Debug, PartialEq, Deserialize)]
    struct Outer<T> {
        #[serde(flatten)]
        inner: Inner<T>,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    struct Inner<T> {
        it: T,
    }
    fn flat<T: DeserializeOwned>(kind: &[u8], bytes: Option<&[u8]>) -> Result<T, RowError> {
        let body = [&super::described(&[("it", kind)])[..], &super::int(1), &value(bytes)].concat();
        let outer: Outer<T> = rows(&body).deserialize().next().expect("a row")?;
        Ok(outer.inner.it)
    }
    #[allow(clippy::cast_possible_truncation, reason = "serde does the same")]
    let rounded = 0.1_f64 as f32;
    assert_eq!(flat(DOUBLE, Some(&0.1_f64.to_be_bytes())), Ok(rounded));
    assert_eq!(flat(BIGINT, Some(&i64::MAX.to_be_bytes())), Ok(9_223_372_036_854_775_807.0_f64));
    assert!(cell::<f32>(DOUBLE, Some(&0.1_f64.to_be_bytes())).is_err());
    assert!(cell::<f64>(BIGINT, Some(&i64::MAX.to_be_bytes())).is_err());
    assert!(flat::<i128>(VARINT, Some(&i128::MAX.to_be_bytes())).is_err());
    assert!(flat::<Vec<i32>>(LIST, None).is_err());
    // Seconds are taken for milliseconds.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Seconds(#[serde(with = "::chrono::serde::ts_seconds")] DateTime<Utc>);
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct OfTime(#[serde(with = "::time::serde::timestamp")] ::time::OffsetDateTime);
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Ms(#[serde(with = "::time::serde::timestamp::milliseconds")] ::time::OffsetDateTime);
    let time: DateTime<Utc> = "1970-01-01T00:00:05Z".parse().expect("a time");
    let of_time = ::time::OffsetDateTime::from_unix_timestamp(5).expect("a time");
    assert_eq!(one(TIMESTAMP, Seconds(time)), Ok(5_i64.to_be_bytes().to_vec()));
    assert_eq!(one(TIMESTAMP, OfTime(of_time)), Ok(5_i64.to_be_bytes().to_vec()));
    is(TIMESTAMP, Ms(of_time), &5_000_i64.to_be_bytes());
    // Types without an offset, and without a text.
    assert!(one(TIMESTAMP, time.naive_utc()).is_err());
    assert!(cell::<NaiveDateTime>(TIMESTAMP, Some(&[0; 8])).is_err());
    assert!(one(TIMESTAMP, of_time).is_err());
    assert!(cell::<::time::OffsetDateTime>(TIMESTAMP, Some(&[0; 8])).is_err());
}

#[test]
fn integers_and_floats_are_read_exactly() {
    for kind in [TIMESTAMP, TIME, BIGINT] {
        kept(kind, 5_i64);
        kept(kind, 5_u8);
    }
    kept(DATE, -5_i16);
    kept(VARINT, u128::MAX);
    kept(VARINT, i128::MIN);
    kept(VARINT, u64::MAX);
    assert_eq!(refused::<i64>(VARCHAR, Some(b"secret")), "varchar does not fit i64");
    assert_eq!(refused::<Option<i64>>(VARCHAR, Some(b"5")), "varchar does not fit Option<i64>");
    assert_eq!(refused::<u8>(INT, Some(&300_i32.to_be_bytes())), "int does not fit u8: out of range");
    assert_eq!(refused::<u64>(BIGINT, Some(&[0xff; 8])), "bigint does not fit u64: out of range");
    assert_eq!(refused::<i128>(VARINT, Some(&[1; 17])), "varint does not fit i128: out of range");
    let long = [b'a'; VARINT_DECIMAL_BYTES_MAX + 1];
    assert_eq!(refused::<String>(VARINT, Some(&long)), "varint does not fit String: out of range");
    let long = [&[0; 4][..], &long].concat();
    assert_eq!(refused::<String>(DECIMAL, Some(&long)), "decimal does not fit String: out of range");
    assert!(cell::<String>(DECIMAL, Some(&long[..4 + VARINT_DECIMAL_BYTES_MAX])).is_ok());
    assert_eq!(refused::<u128>(VARINT, Some(&[0xff; 18])), "varint does not fit u128: out of range");
    // Integers of more than 64 bits.
    let wide = one(VARINT, u128::MAX).expect("a number");
    assert_eq!(refused::<i128>(VARINT, Some(&wide)), "varint does not fit i128: out of range");
    assert_eq!(refused::<u128>(VARINT, Some(&i128::MIN.to_be_bytes())), "varint does not fit u128: out of range");
    for bytes in [&wide[..], &i128::MIN.to_be_bytes(), &i128::MAX.to_be_bytes(), &[1; 20]] {
        assert_eq!(refused::<i64>(VARINT, Some(bytes)), "varint does not fit i64: out of range");
        assert_eq!(refused::<u8>(VARINT, Some(bytes)), "varint does not fit u8: out of range");
        assert_eq!(refused::<Option<u64>>(VARINT, Some(bytes)), "varint does not fit Option<u64>: out of range");
    }
    assert_eq!(refused::<i64>(DOUBLE, Some(&5_f64.to_be_bytes())), "double does not fit i64");
    assert_eq!(refused::<i64>(&[0, 4], Some(&[1])), "boolean does not fit i64");
    assert_eq!(refused::<bool>(&[0, 0x14], Some(&[1])), "tinyint does not fit bool");
    let list = one(SET, ["5", "six"]).expect("a set");
    assert_eq!(refused::<Vec<i64>>(SET, Some(&list)), "set<varchar> does not fit Vec<i64>: varchar, expected i64");
    let list = one(LIST, [1, 300]).expect("a list");
    assert_eq!(refused::<Vec<String>>(LIST, Some(&list)), "list<int> does not fit Vec<String>: int, expected a string");
    assert_eq!(refused::<Vec<i8>>(LIST, Some(&list)), "list<int> does not fit Vec<i8>: out of range, expected i8");
    for kind in [INT, BIGINT, VARINT, DECIMAL, VARCHAR, TIMESTAMP] {
        assert!(cell::<f64>(kind, Some(&[0; 8][..if kind == INT { 4 } else { 8 }])).is_err(), "{kind:?}");
        assert!(cell::<f32>(kind, Some(&[0; 8][..if kind == INT { 4 } else { 8 }])).is_err(), "{kind:?}");
    }
    assert_eq!(refused::<f64>(INT, Some(&[0; 4])), "int does not fit f64");
    assert_eq!(cell(DOUBLE, Some(&0.5_f64.to_be_bytes())), Ok(0.5_f32));
    assert_eq!(cell(FLOAT, Some(&0.1_f32.to_be_bytes())), Ok(f64::from(0.1_f32)));
    assert_eq!(refused::<f32>(DOUBLE, Some(&0.1_f64.to_be_bytes())), "double does not fit f32: out of range");
    assert_eq!(refused::<f32>(DOUBLE, Some(&f64::MAX.to_be_bytes())), "double does not fit f32: out of range");
    assert_eq!(cell(DOUBLE, Some(&f64::INFINITY.to_be_bytes())), Ok(f32::INFINITY));
    assert!(cell::<f32>(DOUBLE, Some(&f64::NAN.to_be_bytes())).expect("not a number").is_nan());
    assert!(cell::<f64>(FLOAT, Some(&f32::NAN.to_be_bytes())).expect("not a number").is_nan());
    assert_eq!(cell(DOUBLE, Some(&(-0.0_f64).to_be_bytes())).map(f32::to_bits), Ok((-0.0_f32).to_bits()));
    #[derive(Debug, Deserialize)]
    struct Through {
        #[serde(deserialize_with = "through", rename = "it")]
        _it: i64,
    }
    fn through<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<i64, D::Error> {
        i64::deserialize(deserializer)
    }
    let body = [&super::described(&[("it", VARCHAR)])[..], &super::int(1), &value(Some(b"secret"))].concat();
    let error = rows(&body).deserialize::<Through>().next().expect("a row").expect_err("a text");
    assert_eq!(error.to_string(), "column it: varchar, expected i64", "a type of a macro is not named");
}

#[test]
fn bytes_are_those_of_types_without_another_meaning() {
    let uuid = [7_u8; 16];
    for (kind, bytes) in [(BLOB, &[1, 2][..]), (UUID, &uuid), (TIMEUUID, &uuid), (INET, &[1; 4])] {
        assert_eq!(cell(kind, Some(bytes)), Ok(bytes.to_vec()));
        assert_eq!(cell(kind, Some(bytes)), Ok(ByteBuf::from(bytes)));
        assert!(refused::<Vec<i32>>(kind, Some(bytes)).ends_with(" does not fit Vec<i32>"));
        assert!(cell::<Vec<f32>>(kind, Some(bytes)).is_err());
        assert!(cell::<Vec<Json>>(kind, Some(bytes)).is_err());
    }
    assert_eq!(cell(UUID, Some(&uuid)), Ok(uuid));
    #[derive(Debug, PartialEq, Deserialize)]
    struct Octet(u8);
    assert_eq!(cell(BLOB, Some(&[5])), Ok(vec![Octet(5)]));
    let custom = class("of.some.Class");
    assert_eq!(cell(&custom, Some(&[1, 2])), Ok(ByteBuf::from([1, 2])));
    assert_eq!(cell(&custom, Some(&[])), Ok(ByteBuf::new()));
    assert_eq!(cell(&[0, 0x7f], Some(&[1, 2])), Ok(ByteBuf::from([1, 2])));
    assert_eq!(refused::<Vec<u8>>(&custom, Some(&[1, 2])), "of.some.Class does not fit Vec<u8>");
    assert_eq!(refused::<String>(&custom, Some(b"text")), "of.some.Class does not fit String");
    for kind in [INT, BIGINT, DECIMAL, DURATION, VARINT, TIMESTAMP, DATE, TIME, FLOAT, LIST, MAP, TUPLE, &[0, 4]] {
        assert!(refused::<ByteBuf>(kind, Some(&[0; 8])).ends_with("does not fit ByteBuf"), "{kind:?}");
    }
}

#[test]
fn null_collections_are_empty_and_other_nulls_are_none() {
    assert_eq!(cell(LIST, None), Ok(Vec::<i32>::new()));
    assert_eq!(cell(SET, None), Ok(BTreeSet::<String>::new()));
    assert_eq!(cell(MAP, None), Ok(BTreeMap::<String, i32>::new()));
    assert_eq!(cell(LIST, None), Ok(None::<Vec<i32>>));
    assert_eq!(cell(MAP, None), Ok(None::<BTreeMap<String, i32>>));
    assert_eq!(cell(LIST, None), Ok(Json::Null));
    assert_eq!(cell(TUPLE, Some(&[value(Some(&[0, 0, 0, 7])), value(None)].concat())), Ok((7, Vec::<i32>::new())));
    assert_eq!(cell(TUPLE, Some(&value(Some(&[0, 0, 0, 7])))), Ok((7, Vec::<i32>::new())), "a field that is missing");
    assert_eq!(cell(TUPLE, Some(&[])), Ok((None::<i32>, Vec::<i32>::new())));
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Basket {
        id: i32,
        items: Vec<String>,
        sums: BTreeMap<String, i32>,
    }
    let basket = Basket { id: 7, items: vec![], sums: BTreeMap::new() };
    let columns: [(&str, &[u8]); 3] = [("id", INT), ("items", SET), ("sums", MAP)];
    let nulls = [value(Some(&[0, 0, 0, 7])), value(None), value(None)].concat();
    let body = [&super::described(&columns)[..], &super::int(1), &nulls].concat();
    assert_eq!(rows(&body).deserialize().next(), Some(Ok(basket.clone())));
    assert_eq!(returned(&columns, &basket), basket);
    let udt = class("UserType(k,62,6964:Int32Type,6974656d73:SetType(UTF8Type),73756d73:MapType(UTF8Type,Int32Type))");
    assert_eq!(cell(&udt, Some(&nulls)), Ok(basket.clone()));
    assert_eq!(cell(&udt, Some(&value(Some(&[0, 0, 0, 7])))), Ok(basket), "fields that were added later");
    assert_eq!(refused::<Basket>(&udt, Some(&[])), "k.b does not fit Basket: missing field `id`");
    assert_eq!(refused::<Basket>(&udt, None), "k.b does not fit Basket: null");
    assert_eq!(refused::<(i32, Vec<i32>)>(TUPLE, None), "tuple<int, list<int>> does not fit (i32, Vec<i32>): null");
    assert_eq!(refused::<[i32; 2]>(LIST, None), "list<int> does not fit [i32; 2]: null");
    assert_eq!(refused::<i32>(INT, None), "int does not fit i32: null");
    let list = [&super::int(1)[..], &value(None)].concat();
    assert_eq!(refused::<Vec<i32>>(LIST, Some(&list)), "list<int> does not fit Vec<i32>: null, expected i32");
}

#[test]
fn empty_values_are_neither_null_nor_values() {
    let empty = |kind: &str, rust: &str| format!("{kind} does not fit {rust}: an empty value: read it as MaybeEmpty");
    assert_eq!(refused::<i32>(INT, Some(&[])), empty("int", "i32"));
    assert_eq!(refused::<Option<i32>>(INT, Some(&[])), empty("int", "Option<i32>"));
    assert_eq!(refused::<Json>(UUID, Some(&[])), empty("uuid", "Value"));
    for kind in [INT, BIGINT, DOUBLE, TIMESTAMP, UUID, VARINT, INET, DATE, TIME, DECIMAL, DURATION, &[0, 4], &[0, 0x13]]
    {
        is(kind, MaybeEmpty::<String>::Empty, &[]);
        is(kind, Some(MaybeEmpty::<String>::Empty), &[]);
        assert_eq!(cell(kind, None), Ok(None::<MaybeEmpty<String>>));
    }
    is(INT, MaybeEmpty::Value(5), &[0, 0, 0, 5]);
    is(VARCHAR, MaybeEmpty::Value(String::new()), &[]);
    is(BLOB, MaybeEmpty::Value(ByteBuf::new()), &[]);
    is(DURATION, MaybeEmpty::Value(Duration::default()), &[0, 0, 0]);
    let list = [&super::int(2)[..], &value(Some(&[])), &value(Some(&[0, 0, 0, 5]))].concat();
    is(LIST, vec![MaybeEmpty::Empty, MaybeEmpty::Value(5)], &list);
    assert_eq!(refused::<Vec<i32>>(LIST, Some(&list)), empty("list<int>", "Vec<i32>"));
    assert_eq!(refused::<MaybeEmpty<i32>>(INT, None), "int does not fit MaybeEmpty<i32>: null");
    assert_eq!(error(VARCHAR, MaybeEmpty::<String>::Empty), "MaybeEmpty<String> does not fit varchar");
    assert_eq!(error(LIST, MaybeEmpty::<Vec<i32>>::Empty), "MaybeEmpty<Vec<i32>> does not fit list<int>");
    // Some servers store a collection without elements so.
    assert_eq!(cell(LIST, Some(&[])), Ok(Vec::<i32>::new()));
    assert_eq!(cell(MAP, Some(&[])), Ok(BTreeMap::<String, i32>::new()));
}

#[test]
fn untyped_targets_have_natural_values() {
    let natural = |kind: &[u8], bytes: &[u8]| cell::<Json>(kind, Some(bytes)).expect("a value");
    assert_eq!(natural(INT, &[0, 0, 0, 5]), json!(5));
    assert_eq!(natural(&[0, 4], &[1]), json!(true));
    assert_eq!(natural(DOUBLE, &0.5_f64.to_be_bytes()), json!(0.5));
    assert_eq!(natural(TIMESTAMP, &[0; 8]), json!("1970-01-01T00:00:00.000Z"));
    assert_eq!(natural(DATE, &[0x80, 0, 0, 0]), json!("1970-01-01"));
    assert_eq!(natural(TIME, &[0; 8]), json!("00:00:00.000000000"));
    assert_eq!(natural(DURATION, &[0, 0, 0]), json!("0s"));
    assert_eq!(natural(VARINT, &[0xff]), json!(-1));
    assert_eq!(natural(VARINT, &[1; 20]), json!(Varint::read(&[1; 20]).expect("a number").to_string()));
    for (number, is_text) in [
        (i128::from(u64::MAX), false),
        (i128::from(u64::MAX) + 1, true),
        (i128::from(i64::MIN), false),
        (i128::from(i64::MIN) - 1, true),
        (i128::MAX, true),
        (i128::MIN, true),
    ] {
        let json = natural(VARINT, &number.to_be_bytes());
        assert_eq!((json.is_string(), json.to_string().replace('"', "")), (is_text, number.to_string()));
    }
    assert_eq!(natural(LIST, &one(LIST, [1, 2]).expect("a list")), json!([1, 2]));
    assert_eq!(natural(MAP, &one(MAP, BTreeMap::from([("a", 1)])).expect("a map")), json!({"a": 1}));
    assert_eq!(natural(TUPLE, &one(TUPLE, (1, [2])).expect("a tuple")), json!([1, [2]]));
    assert_eq!(natural(super::UDT, &one(super::UDT, ("Rome", 1)).expect("a UDT")), json!({"city": "Rome", "zip": 1}));
    assert_eq!(natural(&class("VectorType(Int32Type,2)"), &[0, 0, 0, 1, 0, 0, 0, 2]), json!([1, 2]));
    assert!(cell::<Json>(BLOB, Some(&[1])).is_err());
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Any {
        Number(i64),
        Id(Uuid),
        At(Timestamp),
        Text(String),
    }
    assert_eq!(cell(INT, Some(&[0, 0, 0, 5])), Ok(Any::Number(5)));
    assert_eq!(cell(UUID, Some(&[7; 16])), Ok(Any::Id(Uuid::from_bytes([7; 16]))));
    assert_eq!(cell(TIMESTAMP, Some(&[0; 8])), Ok(Any::At(Timestamp::default())));
    assert_eq!(cell(VARCHAR, Some(b"tea")), Ok(Any::Text("tea".into())));
}

#[test]
fn varints_of_all_lengths_that_have_a_text_pass_through_the_buffers_of_serde() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        #[serde(flatten)]
        inner: Inner,
    }
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        it: Varint,
    }
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Any {
        Small(i64),
        Large(Varint),
    }
    let columns: [(&str, &[u8]); 1] = [("it", VARINT)];
    let longest: Varint = "-123456789012345678901234567890123456789012345678901234567890".parse().expect("a number");
    let numbers = [i128::MIN, i64::MIN.into(), -1, 0, i64::MAX.into(), u64::MAX.into(), 1 << 64, i128::MAX];
    let most = Varint::read(&[&[0x7f][..], &[0xff; VARINT_DECIMAL_BYTES_MAX - 1]].concat()).expect("a number");
    for it in numbers.map(Varint::from).into_iter().chain([u128::MAX.into(), longest, most]) {
        let outer = Outer { inner: Inner { it: it.clone() } };
        assert_eq!(returned(&columns, &outer), outer);
        let any = i64::try_from(&it).map_or_else(|_| Any::Large(it.clone()), Any::Small);
        assert_eq!(returned(&[("it", VARINT)], &(any.clone(),)), (any,));
    }
}

#[test]
fn own_types_are_texts_in_other_formats() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        timestamp: Timestamp,
        date: Date,
        time: Time,
        duration: Duration,
        varint: Varint,
        decimal: Decimal,
        uuid: Uuid,
        custom: CustomValue,
        empty: MaybeEmpty<i32>,
        full: MaybeEmpty<i32>,
    }
    let all = All {
        timestamp: Timestamp::from_ms(250),
        date: Date::from_days(1),
        time: Time::default(),
        duration: Duration::new(1, 0, 0).expect("one sign"),
        varint: Varint::from(u128::MAX),
        decimal: Decimal::new(-1230, 2),
        uuid: Uuid::from_bytes([0xab; 16]),
        custom: CustomValue::new("of.some.Class", [1, 2]),
        empty: MaybeEmpty::Empty,
        full: MaybeEmpty::Value(5),
    };
    let json = json!({
        "timestamp": "1970-01-01T00:00:00.250Z",
        "date": "1970-01-02",
        "time": "00:00:00.000000000",
        "duration": "1mo",
        "varint": "340282366920938463463374607431768211455",
        "decimal": "-12.30",
        "uuid": "abababab-abab-abab-abab-abababababab",
        "custom": {"of.some.Class": [1, 2]},
        "empty": null,
        "full": 5,
    });
    assert_eq!(serde_json::to_value(&all).expect("JSON"), json);
    assert_eq!(serde_json::from_value::<All>(json).expect("the same"), all);
    assert_eq!(serde_json::from_value::<Varint>(json!(5)).expect("a number"), Varint::from(5));
    let error = serde_json::from_value::<Date>(json!("secret")).expect_err("no date").to_string();
    assert!(error.contains("a date") && !error.contains("secret"), "{error}");
}

#[test]
fn names_of_own_types_do_not_break_the_frames_of_values() {
    /// Serializes under the name of an own type what that type would not.
    struct Odd<T>(&'static str, T);
    impl<T: Serialize> Serialize for Odd<T> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_newtype_struct(self.0, &self.1)
        }
    }
    let custom = class("of.some.Class");
    let columns: [(&str, &[u8]); 2] = [("custom", &custom), ("b", INT)];
    for name in ["\0poolhouse_cql::CustomValue", "\0poolhouse_cql::MaybeEmpty", "\0poolhouse_cql::Other", "\0Other"] {
        let values = [
            bind(&columns, &(Odd(name, BTreeMap::<String, u8>::new()), 1)),
            bind(&columns, &(Odd(name, BTreeMap::from([("of.some.Class", 1)])), 1)),
            bind(&columns, &(Odd(name, BTreeMap::from([("a", 1), ("b", 2)])), 1)),
            bind(&columns, &(Odd(name, None::<u8>), 1)),
            bind(&columns, &(Odd(name, (Bytes(&[1]), 5)), 1)),
            bind(&columns, &(Odd(name, Bytes(&[1])), 1)),
        ];
        for bound in values.into_iter().flatten() {
            assert_eq!(bound.values().len(), 2, "{name:?}");
        }
    }
}
