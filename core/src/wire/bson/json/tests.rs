use super::*;
use crate::wire::bson::{DocumentWriter, RawValue, Timestamp};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

fn json(value: RawValue<'_>) -> String {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |writer| writer.value("v", value).map(drop)).expect("room");
    let text = RawDocument::new(&bytes).expect("whole").relaxed_json().to_string();
    text.strip_prefix("{\"v\":").and_then(|text| text.strip_suffix('}')).expect("one element").to_string()
}

#[test]
fn texts_are_escaped() {
    assert_eq!(json(RawValue::String("a\"b\\c\n\r\t\u{1}é😀")), r#""a\"b\\c\n\r\t\u0001é😀""#);
}

#[test]
fn numbers_stay_what_they_are() {
    assert_eq!(json(RawValue::Int32(-5)), "-5");
    assert_eq!(json(RawValue::Int64(i64::MIN)), "-9223372036854775808");
    assert_eq!(json(RawValue::Double(1.0)), "1.0");
    assert_eq!(json(RawValue::Double(f64::NAN)), r#"{"$numberDouble":"NaN"}"#);
    assert_eq!(json(RawValue::Double(f64::NEG_INFINITY)), r#"{"$numberDouble":"-Infinity"}"#);
    assert_eq!(json(RawValue::Timestamp(Timestamp { time_s: 7, increment: 2 })), r#"{"$timestamp":{"t":7,"i":2}}"#);
}

#[test]
fn dates_are_readable_up_to_the_year_9999() {
    let date = |millis| json(RawValue::DateTime(millis));
    assert_eq!(date(0), r#"{"$date":"1970-01-01T00:00:00Z"}"#);
    assert_eq!(date(951_782_400_001), r#"{"$date":"2000-02-29T00:00:00.001Z"}"#);
    assert_eq!(date(253_402_300_799_999), r#"{"$date":"9999-12-31T23:59:59.999Z"}"#);
    assert_eq!(date(253_402_300_800_000), r#"{"$date":{"$numberLong":"253402300800000"}}"#);
    assert_eq!(date(-1), r#"{"$date":{"$numberLong":"-1"}}"#);
}

#[test]
fn malformed_bytes_end_the_text() {
    // A text whose length is beyond the document.
    let bytes = [14, 0, 0, 0, 2, b'a', 0, 99, 0, 0, 0, b'x', 0, 0];
    assert_eq!(RawDocument::new(&bytes).expect("whole").relaxed_json().to_string(), "{<malformed>");
}

#[test]
fn nesting_beyond_the_limit_is_not_followed() {
    let mut bytes = Vec::from([5, 0, 0, 0, 0]);
    for _ in 0..5_000 {
        let inner = bytes;
        bytes = Vec::new();
        let length = i32::try_from(inner.len() + 8).expect("small");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&[3, b'a', 0]);
        bytes.extend_from_slice(&inner);
        bytes.push(0);
    }
    let text = RawDocument::new(&bytes).expect("whole").relaxed_json().to_string();
    assert!(text.contains("<too deep>"), "{text}");
}
