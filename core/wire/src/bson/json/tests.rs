use super::*;
use crate::bson::{Binary, DocumentWriter, RawValue, Regex, Timestamp};
use crate::server::ObjectId;
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
fn characters_that_forge_lines_or_direct_a_terminal_are_escaped() {
    let text = "a\u{7f}b\u{9b}c\u{85}d\u{2028}e\u{202e}f\u{2066}g\u{feff}h\u{61c}é😀";
    assert_eq!(json(RawValue::String(text)), r#""a\u007fb\u009bc\u0085d\u2028e\u202ef\u2066g\ufeffh\u061cé😀""#);
    // Also in names of fields.
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |writer| writer.value("\u{9b}2J\u{202e}", RawValue::Null).map(drop))
        .expect("room");
    let text = RawDocument::new(&bytes).expect("whole").relaxed_json().to_string();
    assert_eq!(text, r#"{"\u009b2J\u202e":null}"#);
}

#[test]
fn numbers_keep_their_type() {
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
    assert_eq!(date(951_793_445_000), r#"{"$date":"2000-02-29T03:04:05Z"}"#);
    assert_eq!(date(253_402_300_799_999), r#"{"$date":"9999-12-31T23:59:59.999Z"}"#);
    assert_eq!(date(253_402_300_800_000), r#"{"$date":{"$numberLong":"253402300800000"}}"#);
    assert_eq!(date(-1), r#"{"$date":{"$numberLong":"-1"}}"#);
}

#[test]
fn malformed_structure_ends_the_document() {
    // The length of a text exceeds the document.
    let bytes = [14, 0, 0, 0, 2, b'a', 0, 99, 0, 0, 0, b'x', 0, 0];
    assert_eq!(RawDocument::new(&bytes).expect("whole").relaxed_json().to_string(), "{<malformed>}");
}

#[test]
fn values_after_one_that_cannot_be_decoded_are_shown() {
    let bytes = b"\x21\0\0\0\x02t\0\x02\0\0\0\xff\0\x04l\0\x09\0\0\0\x080\0\x07\0\x10b\0\x05\0\0\0\0";
    let text = RawDocument::new(bytes).expect("whole").relaxed_json().to_string();
    assert_eq!(text, r#"{<malformed>,"l":[<malformed>],"b":5}"#);
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
    let expected = ["{\"a\":".repeat(DEPTH_MAX + 1), "<too deep>".into(), "}".repeat(DEPTH_MAX + 1)].concat();
    assert_eq!(text, expected);
}

#[test]
fn every_kind_of_value_has_its_notation() {
    let id = ObjectId([0x5a; 12]);
    let forms = [
        (RawValue::Undefined, r#"{"$undefined":true}"#),
        (RawValue::Null, "null"),
        (RawValue::Boolean(true), "true"),
        (RawValue::ObjectId(id), r#"{"$oid":"5a5a5a5a5a5a5a5a5a5a5a5a"}"#),
        (RawValue::JavaScript("f()"), r#"{"$code":"f()"}"#),
        (RawValue::Symbol("s\""), r#"{"$symbol":"s\""}"#),
        (
            RawValue::DbPointer { namespace: "a.b", id },
            r#"{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"5a5a5a5a5a5a5a5a5a5a5a5a"}}}"#,
        ),
        (
            RawValue::Regex(Regex { pattern: "^a", options: "i" }),
            r#"{"$regularExpression":{"pattern":"^a","options":"i"}}"#,
        ),
        (RawValue::Double(f64::INFINITY), r#"{"$numberDouble":"Infinity"}"#),
        (RawValue::MinKey, r#"{"$minKey":1}"#),
        (RawValue::MaxKey, r#"{"$maxKey":1}"#),
    ];
    for (value, form) in forms {
        assert_eq!(json(value), form);
    }
}

#[test]
fn arrays_and_scopes_are_followed() {
    let mut inner = Vec::new();
    DocumentWriter::write(&mut inner, |writer| {
        writer.int32("0", 1)?;
        writer.str("1", "x").map(drop)
    })
    .expect("room");
    let scope = RawDocument::new(&inner).expect("whole");
    assert_eq!(
        json(RawValue::JavaScriptWithScope { code: "f()", scope }),
        r#"{"$code":"f()","$scope":{"0":1,"1":"x"}}"#
    );
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |writer| {
        writer
            .array("v", |array| {
                array.value(RawValue::Int32(1))?;
                array.str("x").map(drop)
            })
            .map(drop)
    })
    .expect("room");
    assert_eq!(RawDocument::new(&bytes).expect("whole").relaxed_json().to_string(), r#"{"v":[1,"x"]}"#);
    // A boolean that is neither true nor false, in an array.
    let malformed = [17, 0, 0, 0, 4, b'v', 0, 9, 0, 0, 0, 8, b'0', 0, 7, 0, 0];
    let text = RawDocument::new(&malformed).expect("whole").relaxed_json().to_string();
    assert!(text.starts_with(r#"{"v":[<malformed>"#), "{text}");
}

#[test]
fn bytes_are_base64_with_their_subtype() {
    let forms: [(&[u8], &str); 5] =
        [(b"", ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (&[0xff, 0xee, 0xfb, 0xff], "/+77/w==")];
    for (bytes, text) in forms {
        let binary = RawValue::Binary(Binary { subtype: 0x80, bytes });
        assert_eq!(json(binary), alloc::format!(r#"{{"$binary":{{"base64":"{text}","subType":"80"}}}}"#));
    }
}

/// The examples of the specification of decimal128, and the encodings that it treats as zero.
#[test]
fn decimals_are_written_as_the_specification_of_decimal128_does() {
    let finite = |coefficient: u128, exponent: i32| {
        coefficient | u128::try_from(exponent + 6176).expect("within the range") << 113
    };
    const NEGATIVE: u128 = 1 << 127;
    let forms = [
        (finite(0, 0), "0"),
        (finite(12345, 0), "12345"),
        (finite(1, 0) | NEGATIVE, "-1"),
        (finite(12345, -3), "12.345"),
        (finite(12345, -5), "0.12345"),
        (finite(12345, -8), "0.00012345"),
        (finite(5, -6), "0.000005"),
        (finite(5, -7), "5E-7"),
        (finite(12345, -20), "1.2345E-16"),
        (finite(1, 3), "1E+3"),
        (finite(12, 3), "1.2E+4"),
        (finite(0, 2), "0E+2"),
        (finite(10_u128.pow(34) - 1, 6111), "9.999999999999999999999999999999999E+6144"),
        // A coefficient of more than 34 digits counts as zero, and so does one that begins with the
        // bits 100.
        (finite(10_u128.pow(34), 0), "0"),
        (0b11 << 125 | u128::from(6176_u16) << 111 | 7, "0"),
        (0x1e << 122, "Infinity"),
        (0x1e << 122 | NEGATIVE, "-Infinity"),
        (0x1f << 122, "NaN"),
        (0x1f << 122 | NEGATIVE, "NaN"),
    ];
    for (bits, text) in forms {
        let shown = json(RawValue::Decimal128(bits.to_le_bytes()));
        assert_eq!(shown, alloc::format!(r#"{{"$numberDecimal":"{text}"}}"#));
    }
}

#[test]
fn formatter_error_ends_the_output() {
    struct Few(usize);
    impl Write for Few {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |writer| writer.str("v", "a\nb").map(drop)).expect("room");
    let document = RawDocument::new(&bytes).expect("whole").relaxed_json();
    let length = document.to_string().len();
    for room in 0..length {
        assert!(write!(Few(room), "{document}").is_err(), "{room} of {length} bytes");
    }
    assert!(write!(Few(length), "{document}").is_ok());
}
