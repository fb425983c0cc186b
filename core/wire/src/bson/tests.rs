use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::server::ObjectId;
use crate::{EncodeError, Sink, SliceSink, WireError, WireErrorKind};

/// A document of the given elements, with the right length.
fn document(elements: &[u8]) -> Vec<u8> {
    let length = i32::try_from(elements.len() + 5).expect("small");
    [&length.to_le_bytes()[..], elements, &[0]].concat()
}

fn refused(bytes: &[u8]) -> WireError {
    RawDocument::new(bytes).and_then(RawDocument::validate).expect_err("malformed")
}

fn kind(elements: &[u8]) -> (WireErrorKind, u32) {
    let error = refused(&document(elements));
    (error.kind(), error.offset())
}

#[test]
fn document_of_wrong_length_is_refused() {
    for length in [i32::MIN, -1, 0, 1, 4, 5, 6, 7, 9, i32::MAX] {
        let mut bytes = vec![0; 8];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let expected = WireErrorKind::DocumentLength { length_bytes: length, found_bytes: 8 };
        assert_eq!(refused(&bytes).kind(), expected);
    }
    assert_eq!(refused(&[4, 0, 0, 0]).kind(), WireErrorKind::DocumentLength { length_bytes: 4, found_bytes: 4 });
    assert_eq!(refused(&[5, 0, 0]).kind(), WireErrorKind::Truncated { needed_bytes: 4, found_bytes: 3 });
    assert_eq!(refused(&[]).kind(), WireErrorKind::Truncated { needed_bytes: 4, found_bytes: 0 });
    assert_eq!((refused(&[5, 0, 0, 0, 1]).kind(), refused(&[5, 0, 0, 0, 1]).offset()), (WireErrorKind::Terminator, 4));
}

#[test]
fn malformed_elements_are_refused_with_rule_and_offset() {
    let truncated = |needed_bytes, found_bytes| WireErrorKind::Truncated { needed_bytes, found_bytes };
    assert_eq!(kind(b"\x80a\0"), (WireErrorKind::ElementTag { tag: 0x80 }, 4));
    assert_eq!(kind(b"\x14a\0"), (WireErrorKind::ElementTag { tag: 0x14 }, 4));
    assert_eq!(kind(b"\0"), (WireErrorKind::Terminator, 4));
    assert_eq!(kind(b"\x0aabc"), (WireErrorKind::Terminator, 5));
    assert_eq!(kind(b"\x0a\xff\0"), (WireErrorKind::Utf8, 5));
    assert_eq!(kind(b"\x10a\0\x01\0\0"), (truncated(4, 3), 7));
    assert_eq!(kind(b"\x08a\0"), (truncated(1, 0), 7));
    assert_eq!(kind(b"\x08a\0\x02"), (WireErrorKind::Boolean { value: 2 }, 7));
    assert_eq!(kind(b"\x02a\0\0\0\0\0"), (WireErrorKind::StringLength { length_bytes: 0 }, 7));
    assert_eq!(kind(b"\x02a\0\xff\xff\xff\xff"), (WireErrorKind::StringLength { length_bytes: -1 }, 7));
    assert_eq!(kind(b"\x02a\0\x02\0\0\0bc"), (WireErrorKind::Terminator, 13));
    assert_eq!(kind(b"\x02a\0\x04\0\0\0ab\xc3\0"), (WireErrorKind::Utf8, 13));
    assert_eq!(kind(b"\x05a\0\xff\xff\xff\xff\0"), (WireErrorKind::BinaryLength { length_bytes: -1 }, 7));
    assert_eq!(kind(b"\x05a\0\x05\0\0\0\x02\x02\0\0\0a"), (WireErrorKind::BinaryLength { length_bytes: 2 }, 12));
    assert_eq!(kind(b"\x05a\0\x01\0\0\0\0"), (truncated(6, 5), 7));
    assert_eq!(kind(b"\x05a\0\x03\0\0\0\x02\0\0\0"), (truncated(4, 3), 12));
    assert_eq!(kind(b"\x0ba\0abc\0i"), (WireErrorKind::Terminator, 11));
    assert_eq!(
        kind(b"\x0fa\0\x0d\0\0\0\x01\0\0\0\0\x05\0\0\0\0"),
        (WireErrorKind::ScopeLength { length_bytes: 13 }, 7)
    );
    assert_eq!(
        kind(b"\x0fa\0\x0e\0\0\0\x01\0\0\0\0\x04\0\0\0\0"),
        (WireErrorKind::ScopeLength { length_bytes: 14 }, 7)
    );
    assert_eq!(kind(b"\x03a\0\x04\0\0\0\0"), (WireErrorKind::DocumentLength { length_bytes: 4, found_bytes: 5 }, 7));
}

#[test]
fn errors_in_nested_documents_name_the_offset_in_the_outermost() {
    let inner = document(b"\x08x\0\x07");
    let outer = document(&[b"\x0an\0\x03d\0", &inner[..]].concat());
    let error = refused(&outer);
    assert_eq!((error.kind(), error.offset()), (WireErrorKind::Boolean { value: 7 }, 17));
    assert_eq!(outer[17], 7);
}

/// `depth` nested arrays.
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = document(&[]);
    for _ in 0..depth {
        bytes = document(&[b"\x040\0", &bytes[..]].concat());
    }
    bytes
}

#[test]
fn nesting_is_limited_and_uses_no_stack() {
    let deepest = nested(DEPTH_MAX);
    assert_eq!(RawDocument::new(&deepest).and_then(RawDocument::validate), Ok(()));
    assert_eq!(refused(&nested(DEPTH_MAX + 1)).kind(), WireErrorKind::TooDeep);
    assert_eq!(refused(&nested(10_000)).kind(), WireErrorKind::TooDeep);
}

#[test]
fn structure_is_checked_at_every_depth_and_with_the_same_limit() {
    let structure = |bytes: &[u8]| RawDocument::new(bytes).and_then(RawDocument::validate_structure);
    assert_eq!(structure(&nested(DEPTH_MAX)), Ok(()));
    assert_eq!(structure(&nested(DEPTH_MAX + 1)).expect_err("deep").kind(), WireErrorKind::TooDeep);
    for tag in [3, 4] {
        let around = |inner: &[u8]| document(&[&[tag, b'd', 0], &document(inner)[..]].concat());
        assert_eq!(structure(&around(b"\x02t\0\x02\0\0\0\xff\0")), Ok(()));
        for (kind, inner) in [
            (WireErrorKind::ElementTag { tag: 0x55 }, &b"\x55t\0"[..]),
            (WireErrorKind::StringLength { length_bytes: 9 }, b"\x02t\0\x09\0\0\0\xff\0"),
            (WireErrorKind::Terminator, b"\x02t\0\x02\0\0\0ab"),
            (WireErrorKind::Terminator, b"\x0dt\0\x02\0\0\0ab"),
            (WireErrorKind::Terminator, b"\x0ct\0\x02\0\0\0abaaaabbbbcccc"),
            (WireErrorKind::ScopeLength { length_bytes: 14 }, b"\x0fs\0\x0e\0\0\0\x01\0\0\0\0\x04\0\0\0\0"),
        ] {
            assert_eq!(structure(&around(inner)).expect_err("malformed").kind(), kind, "{inner:?}");
        }
    }
}

#[test]
fn depth_is_measured_without_a_stack() {
    let is_deeper = |bytes: &[u8], levels| RawDocument::new(bytes).expect("opens").is_deeper_than(levels);
    for levels in [0, 1, 2, 31, 32, 199, DEPTH_MAX] {
        assert!(!is_deeper(&nested(levels), levels), "{levels}");
        assert!(is_deeper(&nested(levels + 1), levels), "{levels}");
    }
    assert!(is_deeper(&nested(10_000), DEPTH_MAX));
    // Behind wide siblings, which are not deep themselves.
    let wide = document(&[b"\x05b\0\x00\x10\0\0\0", &[0; 4096][..], b"\x03d\0", &nested(40)[..]].concat());
    assert!(is_deeper(&wide, 40) && !is_deeper(&wide, 41));
    let beside = document(&[&b"\x03d\0"[..], &wide[..], b"\x040\0", &nested(60)[..]].concat());
    assert!(is_deeper(&beside, 60) && !is_deeper(&beside, 61));
    let scopes = document(
        &[
            &b"\x0fs\0"[..],
            &i32::to_le_bytes(9 + i32::try_from(nested(9).len()).expect("short")),
            b"\x01\0\0\0\0",
            &nested(9),
        ]
        .concat(),
    );
    assert!(is_deeper(&scopes, 9) && !is_deeper(&scopes, 10));
}

#[test]
fn siblings_after_nested_documents_are_validated_too() {
    let inner = document(b"\x08x\0\x01");
    for tag in [3, 4] {
        let good = document(&[&[tag, b'd', 0], &inner[..], b"\x08y\0\x01"].concat());
        assert_eq!(RawDocument::new(&good).and_then(RawDocument::validate), Ok(()));
        let bad = document(&[&[tag, b'd', 0], &inner[..], b"\x08y\0\x03"].concat());
        assert_eq!(refused(&bad).kind(), WireErrorKind::Boolean { value: 3 });
    }
    // Four bytes of length, four and two of code, eight of scope.
    let scope = document(&[b"\x0fs\0\x12\0\0\0\x02\0\0\0c\0", &document(b"\x0ax\0")[..], b"\x08y\0\x03"].concat());
    assert_eq!(refused(&scope).kind(), WireErrorKind::Boolean { value: 3 });
}

#[test]
fn elements_end_after_the_first_error() {
    let bytes = document(b"\x0aa\0\x80b\0\x0ac\0");
    let mut elements = RawDocument::new(&bytes).expect("opens").iter();
    assert_eq!(elements.next().expect("first").expect("good").key, "a");
    assert!(elements.next().expect("second").is_err());
    assert_eq!(elements.next(), None);
}

#[test]
fn get_finds_the_first_element_of_a_key_and_skips_other_values() {
    // The value of `s` is not UTF-8, which only matters when it is read.
    let bytes = document(b"\x02s\0\x02\0\0\0\xff\0\x08b\0\x01\x08b\0\0");
    let document = RawDocument::new(&bytes).expect("opens");
    assert_eq!(document.get("b"), Ok(Some(RawValue::Boolean(true))));
    assert_eq!(document.get("c"), Ok(None));
    assert_eq!(document.get("s").expect_err("bad text").kind(), WireErrorKind::Utf8);
    assert!(document.validate().is_err());
}

#[test]
fn split_first_returns_the_rest() {
    let bytes = [&document(b"\x0aa\0")[..], b"tail"].concat();
    let (first, rest) = RawDocument::split_first(&bytes).expect("opens");
    assert_eq!((first.as_bytes().len(), rest), (8, &b"tail"[..]));
    assert!(RawDocument::split_first(&bytes[..7]).is_err());
    assert!(RawDocument::split_first(&[0xff; 8]).is_err());
}

/// One value of each type.
fn every_value<'a>(scope: RawDocument<'a>) -> [RawValue<'a>; 21] {
    [
        RawValue::Double(1.5),
        RawValue::String("täxt"),
        RawValue::Document(scope),
        RawValue::Array(RawArray::from_document(scope)),
        RawValue::Binary(Binary { subtype: 0, bytes: b"bin" }),
        RawValue::Binary(Binary { subtype: 2, bytes: b"old" }),
        RawValue::Undefined,
        RawValue::ObjectId(ObjectId([7; 12])),
        RawValue::Boolean(true),
        RawValue::DateTime(-1),
        RawValue::Null,
        RawValue::Regex(Regex { pattern: "a+", options: "im" }),
        RawValue::DbPointer { namespace: "db.c", id: ObjectId([8; 12]) },
        RawValue::JavaScript("f()"),
        RawValue::Symbol("sym"),
        RawValue::JavaScriptWithScope { code: "g()", scope },
        RawValue::Int32(i32::MIN),
        RawValue::Timestamp(Timestamp { time_s: 1, increment: 2 }),
        RawValue::Int64(i64::MAX),
        RawValue::Decimal128([9; 16]),
        RawValue::MaxKey,
    ]
}

#[test]
fn every_type_is_read_back_as_written() {
    let scope_bytes = document(b"\x0ax\0");
    let scope = RawDocument::new(&scope_bytes).expect("opens");
    let mut sink = Vec::new();
    let written = DocumentWriter::write(&mut sink, |writer| {
        for (index, value) in every_value(scope).into_iter().enumerate() {
            writer.value(&format!("k{index}"), value)?;
        }
        writer.value("min", RawValue::MinKey).map(drop)
    });
    assert_eq!(written, Ok(sink.len()));
    let read = RawDocument::new(&sink).expect("opens");
    assert_eq!(read.validate(), Ok(()));
    for (index, value) in every_value(scope).into_iter().enumerate() {
        assert_eq!(read.get(&format!("k{index}")), Ok(Some(value)));
        assert_eq!(ElementType::from_tag(value.element_type().tag()), Some(value.element_type()));
    }
    assert_eq!(read.get("min"), Ok(Some(RawValue::MinKey)));
}

#[test]
fn typed_methods_write_what_value_writes() {
    let empty = RawDocument::EMPTY;
    let mut typed = Vec::new();
    DocumentWriter::write(&mut typed, |d| {
        d.double("a", 2.5)?.str("b", "s")?.raw_document("c", empty)?.raw_array("d", RawArray::default())?;
        d.binary("e", 4, &[1; 16])?.object_id("f", ObjectId([1; 12]))?.boolean("g", false)?.date_time("h", 5)?;
        d.null("i")?.int32("j", 6)?.int64("k", 7).map(drop)
    })
    .expect("room");
    let mut general = Vec::new();
    DocumentWriter::write(&mut general, |d| {
        d.value("a", RawValue::Double(2.5))?.value("b", RawValue::String("s"))?;
        d.value("c", RawValue::Document(empty))?.value("d", RawValue::Array(RawArray::default()))?;
        d.value("e", RawValue::Binary(Binary { subtype: 4, bytes: &[1; 16] }))?;
        d.value("f", RawValue::ObjectId(ObjectId([1; 12])))?.value("g", RawValue::Boolean(false))?;
        d.value("h", RawValue::DateTime(5))?.value("i", RawValue::Null)?;
        d.value("j", RawValue::Int32(6))?.value("k", RawValue::Int64(7)).map(drop)
    })
    .expect("room");
    assert_eq!(typed, general);
}

#[test]
fn nested_documents_and_arrays_get_their_lengths_and_keys() {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |d| {
        d.array("a", |values| {
            for _ in 0..12 {
                values.value(RawValue::Null)?;
            }
            values.document(|d| d.int32("x", 1).map(drop))?.array(|inner| inner.str("s").map(drop))?;
            assert_eq!(values.count(), 14);
            Ok(())
        })
        .map(drop)
    })
    .expect("room");
    let read = RawDocument::new(&sink).expect("opens");
    assert_eq!(read.validate(), Ok(()));
    let array = read.get("a").expect("good").and_then(RawValue::as_array).expect("there");
    let keys: Vec<_> = array.as_document().iter().map(|element| String::from(element.expect("good").key)).collect();
    assert_eq!(keys, (0..14).map(|key| format!("{key}")).collect::<Vec<_>>());
    let last = array.iter().last().expect("some").expect("good").as_array().expect("an array");
    assert_eq!(last.strings().collect::<Vec<_>>(), ["s"]);
}

#[test]
fn full_sink_at_every_size_is_unchanged() {
    let fill = |sink: &mut SliceSink<'_>| {
        DocumentWriter::write(sink, |d| {
            d.str("a", "text")?.document("b", |d| d.int32("c", 1).map(drop))?;
            d.array("d", |values| values.str("e").map(drop)).map(drop)
        })
    };
    let mut large = [0; 128];
    let mut sink = SliceSink::new(&mut large);
    sink.append(b"before").expect("room");
    let needed = 6 + fill(&mut sink).expect("room");
    assert_eq!(sink.into_written().len(), needed);
    for size in 6..needed {
        let mut small = vec![0; size];
        let mut sink = SliceSink::new(&mut small);
        sink.append(b"before").expect("room");
        assert_eq!(fill(&mut sink), Err(EncodeError::Full));
        assert_eq!(sink.written(), b"before");
    }
    let mut exact = vec![0; needed];
    let mut sink = SliceSink::new(&mut exact);
    sink.append(b"before").expect("room");
    assert!(fill(&mut sink).is_ok());
}

#[test]
fn failed_element_is_removed_and_the_document_continues() {
    let mut sink = heapless::Vec::<u8, 24>::new();
    let mut writer = DocumentWriter::begin(&mut sink).expect("room");
    writer.int32("a", 1).expect("room");
    assert_eq!(writer.str("b", "much too long for what is left").err(), Some(EncodeError::Full));
    assert_eq!(writer.null("nul\0key").err(), Some(EncodeError::InteriorNul));
    let regex = RawValue::Regex(Regex { pattern: "a\0", options: "" });
    assert_eq!(writer.value("r", regex).err(), Some(EncodeError::InteriorNul));
    let failed = writer.document("d", |d| d.null("x").map(drop).and(Err(EncodeError::BodyMissing)));
    assert_eq!(failed.err(), Some(EncodeError::BodyMissing));
    assert_eq!(writer.len_bytes(), 11);
    writer.boolean("c", true).expect("room");
    assert_eq!(writer.finish(), Ok(16));
    let read = RawDocument::new(&sink).expect("opens");
    assert_eq!(read.iter().count(), 2);
    assert_eq!(read.validate(), Ok(()));
}

#[test]
fn extend_copies_every_element() {
    let other = document(b"\x0aa\0\x08b\0\x01");
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |d| {
        d.extend(RawDocument::new(&other).expect("opens"))?.extend(RawDocument::EMPTY).map(drop)
    })
    .expect("room");
    assert_eq!(sink, other);
}

#[test]
fn numbers_are_integers_only_when_they_are_whole_and_in_range() {
    let cases = [
        (RawValue::Int32(-3), Some(-3)),
        (RawValue::Int64(i64::MIN), Some(i64::MIN)),
        (RawValue::Double(3.0), Some(3)),
        (RawValue::Double(-0.0), Some(0)),
        (RawValue::Double(3.5), None),
        (RawValue::Double(f64::NAN), None),
        (RawValue::Double(f64::INFINITY), None),
        (RawValue::Double(9_223_372_036_854_775_808.0), None),
        (RawValue::Double(-9_223_372_036_854_775_808.0), Some(i64::MIN)),
        (RawValue::Double(-9_223_372_036_854_777_856.0), None),
        (RawValue::Double(-3.0), Some(-3)),
        (RawValue::Double(1.0), Some(1)),
        (RawValue::Double(0.5), None),
        (RawValue::Double(4_503_599_627_370_497.0), Some((1 << 52) + 1)),
        (RawValue::Double(9_007_199_254_740_994.0), Some((1 << 53) + 2)),
        (RawValue::Double(-9_223_372_036_854_774_784.0), Some(i64::MIN + 1_024)),
        (RawValue::Boolean(true), None),
        (RawValue::String("3"), None),
    ];
    for (value, expected) in cases {
        assert_eq!(value.as_integer(), expected, "{value:?}");
    }
    assert_eq!(RawValue::Double(0.0).as_flag(), Some(false));
    assert_eq!(RawValue::Double(-0.0).as_flag(), Some(false));
    assert_eq!(RawValue::Double(f64::NAN).as_flag(), Some(true));
    assert_eq!(RawValue::Int64(2).as_flag(), Some(true));
    assert_eq!(RawValue::Int32(0).as_flag(), Some(false));
    assert_eq!(RawValue::Boolean(true).as_flag(), Some(true));
    assert_eq!(RawValue::Null.as_flag(), None);
}

#[test]
fn debug_of_a_document_shows_no_content() {
    let bytes = document(b"\x02password\0\x02\0\0\0x\0");
    let shown = format!("{:?}", RawDocument::new(&bytes).expect("opens"));
    assert!(!shown.contains("password"), "{shown}");
}

#[test]
fn text_in_parts_equals_text_written_at_once() {
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    DocumentWriter::write(&mut parts, |d| {
        d.str_parts("s", &["a", "", "\u{e9}"])?.str_parts("e", &[])?;
        d.binary_with("b", |sink| Ok(Sink::append(sink, b"xyz")?))?.binary_with("n", |_| Ok(())).map(drop)
    })
    .expect("grows");
    DocumentWriter::write(&mut whole, |d| {
        d.str("s", "a\u{e9}")?.str("e", "")?.binary("b", 0, b"xyz")?.binary("n", 0, b"").map(drop)
    })
    .expect("grows");
    assert_eq!(parts, whole);

    let mut small = heapless::Vec::<u8, 20>::new();
    let mut begun = DocumentWriter::begin(&mut small).expect("room");
    begun.int32("i", 1).expect("room");
    let before = begun.len_bytes();
    assert_eq!(begun.str_parts("s", &["long", "longer"]).err(), Some(EncodeError::Full));
    assert_eq!(begun.binary_with("b", |sink| Ok(Sink::append(sink, &[0; 9])?)).err(), Some(EncodeError::Full));
    assert_eq!(begun.len_bytes(), before, "what does not fit leaves nothing behind");
}

#[test]
fn types_have_unique_bytes_and_names() {
    let types: Vec<_> = (0..=u8::MAX).filter_map(ElementType::from_tag).collect();
    assert_eq!(types.len(), 21);
    assert!(types.iter().all(|each| ElementType::from_tag(each.tag()) == Some(*each)));
    let mut names: Vec<_> = types.iter().map(|each| format!("{each}")).collect();
    assert_eq!((names[0].as_str(), names[20].as_str()), ("double", "min key"));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 21);
}

/// Numbers that clients and servers encode as doubles, up to the limits of 64 bits.
#[test]
fn doubles_that_are_whole_are_integers() {
    let integer = |value: f64| RawValue::Double(value).as_integer();
    let edge = 9_223_372_036_854_775_808.0;
    for (value, whole) in [
        (0.0, Some(0)),
        (-0.0, Some(0)),
        (1.0, Some(1)),
        (-3.0, Some(-3)),
        (4_503_599_627_370_496.0, Some(1 << 52)),
        (9_007_199_254_740_994.0, Some((1 << 53) + 2)),
        (-1_152_921_504_606_846_976.0, Some(-(1 << 60))),
        (-edge, Some(i64::MIN)),
        (edge, None),
        (-edge * 2.0, None),
        (0.5, None),
        (1.5, None),
        (f64::INFINITY, None),
        (f64::NAN, None),
    ] {
        assert_eq!(integer(value), whole, "{value}");
    }
}

#[test]
fn empty_documents_and_arrays_are_reported_as_empty() {
    let (nothing, something) = (document(b""), document(b"\x0aa\0"));
    let open = |bytes| RawDocument::new(bytes).expect("whole");
    assert!(open(&nothing).is_empty() && !open(&something).is_empty());
    let holder = document(&[b"\x04v\0", &something[..]].concat());
    let Ok(Some(RawValue::Array(array))) = open(&holder).get("v") else { panic!("an array") };
    assert!(!array.is_empty());
    assert_eq!(array.into_iter().collect::<Vec<_>>(), [Ok(RawValue::Null)]);
}

#[test]
fn sink_by_reference_is_the_sink() {
    fn fill<S: Sink>(mut sink: S) {
        sink.append(b"abc").expect("room");
        sink.written_mut()[0] = b'x';
        sink.truncate(2);
        assert_eq!(sink.written(), b"xb");
    }
    let mut bytes = Vec::new();
    fill(&mut bytes);
    assert_eq!(bytes, b"xb");
    let mut room = [0; 4];
    fill(&mut SliceSink::new(&mut room));
}

#[test]
fn documents_without_elements_are_empty() {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |d| {
        d.document("none", |_| Ok(()))?
            .array("nothing", |_| Ok(()))?
            .array("one", |a| a.value(RawValue::Null).map(drop))
            .map(drop)
    })
    .expect("grows");
    let document = RawDocument::new(&bytes).expect("well-formed");
    assert!(!document.is_empty() && RawDocument::default().is_empty());
    assert!(document != RawDocument::default() && document == RawDocument::new(&bytes).expect("well-formed"));
    let get = |key| document.get(key).expect("well-formed").expect("there");
    assert_eq!((document.offset(), get("none").as_document().map(RawDocument::offset)), (0, Some(10)));
    assert!(get("none").as_document().expect("a document").is_empty());
    assert!(get("nothing").as_array().expect("an array").is_empty());
    assert!(!get("one").as_array().expect("an array").is_empty());
}

#[test]
fn reference_to_a_sink_writes_to_it() {
    fn write(mut sink: impl Sink) {
        sink.append(b"abc").expect("grows");
        sink.written_mut()[0] = b'x';
        assert_eq!(sink.written(), b"xbc");
        sink.truncate(2);
    }
    let mut bytes = Vec::new();
    write(&mut bytes);
    assert_eq!(bytes, b"xb");
}

#[test]
fn equal_documents_have_equal_hashes_and_debug_shows_no_content() {
    use core::hash::{BuildHasher, BuildHasherDefault, Hash};
    fn hash(of: &impl Hash) -> u64 {
        BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(of)
    }
    let [one, same, other] = [1, 1, 2].map(|value| document(&[b'\x10', b'n', 0, value, 0, 0, 0]));
    let [one, same, other] = [&one, &same, &other].map(|bytes| RawDocument::new(bytes).expect("opens"));
    assert_eq!((one, hash(&one)), (same, hash(&same)));
    assert_ne!((one, hash(&one)), (other, hash(&other)));
    let arrays = [one, same, other].map(|document| hash(&RawArray::from_document(document)));
    assert_eq!((arrays[0] == arrays[1], arrays[0] == arrays[2]), (true, false));

    let mut elements = one.iter();
    assert_eq!(format!("{elements:?}"), "Elements { rest: Reader(7 bytes at 4) }");
    elements.next().expect("one").expect("well-formed");
    assert_eq!(format!("{elements:?}"), "Elements { rest: Reader(0 bytes at 11) }");
}
