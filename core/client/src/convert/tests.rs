use super::*;
use alloc::vec;
use bson::{JavaScriptCodeWithScope, doc};
use serde::Deserialize;

/// A document with as many others nested in it.
fn nested(levels: usize) -> bson::Document {
    (0..levels).fold(doc! {}, |inner, _| doc! { "d": inner })
}

/// A document `{ a: .., items: [{}, { name: <bytes> }] }`, whose text of two bytes is replaced.
fn not_utf8() -> Vec<u8> {
    let mut bytes = doc! { "a": 1, "items": [{}, { "name": "??" }] }.to_vec().expect("small");
    bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    bytes
}

fn raw(bytes: &[u8]) -> RawDocument<'_> {
    RawDocument::new(bytes).expect("opens")
}

fn text_of<T>(refused: Result<T, Error>) -> String {
    let Err(Error::Bson(text)) = refused else { panic!("it is refused as a document") };
    text
}

#[test]
fn a_document_at_the_limit_of_nesting_is_encoded_and_a_deeper_one_is_refused() {
    let deepest = nested(DEPTH_MAX);
    let bytes = into_encoded(deepest.clone()).expect("at the limit");
    assert_eq!(to_document(checked(&bytes).expect("at the limit")), Ok(deepest));
    for levels in [DEPTH_MAX + 1, 5_000] {
        assert!(text_of(into_encoded(nested(levels))).contains("more than 256 nested levels"));
    }
    let scope = |inner| JavaScriptCodeWithScope { code: String::new(), scope: inner };
    let list = |levels| (0..levels).fold(Bson::Null, |inner, _| Bson::Array(Vec::from([inner])));
    assert!(encoded(&doc! { "c": scope(nested(DEPTH_MAX - 1)), "l": list(DEPTH_MAX) }).is_ok());
    assert!(encoded(&doc! { "c": scope(nested(DEPTH_MAX)) }).is_err());
    assert!(encoded(&doc! { "l": list(DEPTH_MAX + 1) }).is_err());
}

#[test]
fn raw_commands_have_the_same_limit_of_nesting() {
    let around = |bytes: &[u8]| {
        let length = i32::try_from(bytes.len() + 8).expect("short").to_le_bytes();
        [&length[..], b"\x03d\0", bytes, &[0]].concat()
    };
    let mut bytes = into_encoded(nested(DEPTH_MAX)).expect("at the limit");
    assert!(checked(&bytes).is_ok());
    for _ in 0..2 {
        bytes = around(&bytes);
        assert!(text_of(checked(&bytes)).contains("more than 256 nested levels"));
    }
}

#[test]
fn deep_documents_are_decoded_on_a_thread_and_its_panics_are_the_callers() {
    #[derive(Debug)]
    struct Place(thread::ThreadId);

    impl<'de> Deserialize<'de> for Place {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let document = bson::Document::deserialize(deserializer)?;
            assert!(!document.contains_key("panic"), "of the application");
            Ok(Self(thread::current().id()))
        }
    }

    let place = |levels| to_value::<Place>(raw(&nested(levels).to_vec().expect("encodable"))).expect("a document").0;
    assert_eq!(place(INLINE_LEVELS_MAX), thread::current().id());
    assert_ne!(place(INLINE_LEVELS_MAX + 1), thread::current().id());
    assert_ne!(place(DEPTH_MAX), thread::current().id());

    let bytes = doc! { "panic": nested(INLINE_LEVELS_MAX + 1) }.to_vec().expect("encodable");
    let panic = std::panic::catch_unwind(|| to_value::<Place>(raw(&bytes))).expect_err("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the application"));
}

#[test]
fn fault_of_a_conversion_names_the_field_and_the_remedy() {
    let bytes = not_utf8();
    let expected = "field items.1.name: invalid UTF-8; read it as raw bytes, or as Utf8Lossy";
    assert_eq!(to_document(raw(&bytes)).expect_err("no text"), expected);
    assert_eq!(to_value::<bson::Document>(raw(&bytes)).expect_err("no text"), expected);
    assert_eq!(to_raw_document(raw(&bytes)).expect("bytes").as_bytes(), bytes);

    #[derive(Debug, Deserialize)]
    struct Wrong {
        #[expect(dead_code, reason = "it is not decoded")]
        a: bool,
    }
    let text = to_value::<Wrong>(raw(&bytes)).expect_err("a number");
    assert!(text.contains("invalid type"), "the first fault, which is no text: {text}");
}

#[test]
fn lossy_types_read_wrong_bytes_in_values_and_keys() {
    let bytes = not_utf8();
    let name = |document: &bson::Document| document.get_array("items").expect("a list")[1].clone();
    let expected = Bson::from(doc! { "name": "\u{fffd}\u{fffd}" });
    let lossy: Utf8Lossy<bson::Document> = to_value(raw(&bytes)).expect("lossy");
    assert_eq!(name(&lossy), expected);

    let mut keyed = doc! { "??": 1, "n": 2 }.to_vec().expect("small");
    keyed.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    let lossy: Utf8Lossy<bson::Document> = to_value(raw(&keyed)).expect("lossy");
    assert_eq!(lossy.0, doc! { "\u{fffd}\u{fffd}": 1, "n": 2 });

    #[derive(Deserialize)]
    struct Number {
        n: i32,
    }
    assert_eq!(to_value::<Utf8Lossy<Number>>(raw(&keyed)).expect("lossy").n, 2);
    assert!(to_value::<Number>(raw(&keyed)).is_err());
    assert!(is_lossy::<Utf8Lossy<Number>>() && !is_lossy::<Number>() && !is_lossy::<bson::Document>());
}

#[test]
fn reply_that_reports_an_error_keeps_what_can_be_converted() {
    let bytes = [
        b"\x39\0\0\0\x10ok\0\0\0\0\0\x08b\0\x07\x02errmsg\0\x03\0\0\0a\xff\0".as_slice(),
        b"\x10code\0\x70\0\0\0\x0b\xfer\0x\0\0\0",
    ];
    let mut bytes = bytes.concat();
    bytes[0] = u8::try_from(bytes.len()).expect("short");
    let document = to_document_lossy(raw(&bytes));
    assert_eq!(document.get_i32("code").ok(), Some(0x70));
    assert_eq!(document.get_str("errmsg").ok(), Some("a\u{fffd}"));
    assert!(document.get("b").is_none() && document.contains_key("\u{fffd}r"));
    assert_eq!(to_document_lossy(raw(&doc! { "ok": 0 }.to_vec().expect("small"))), doc! { "ok": 0 });
}
