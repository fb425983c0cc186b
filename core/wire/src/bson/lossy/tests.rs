use alloc::vec::Vec;

use crate::bson::{DEPTH_MAX, RawDocument, RawValue, Regex};

/// A document of these elements.
fn document(elements: &[u8]) -> Vec<u8> {
    let length = i32::try_from(elements.len() + 5).expect("short");
    [&length.to_le_bytes()[..], elements, &[0]].concat()
}

fn copy(bytes: &[u8]) -> Vec<u8> {
    RawDocument::new(bytes).and_then(RawDocument::to_utf8_lossy).expect("well-formed")
}

#[test]
fn all_text_of_a_lossy_copy_is_utf8_and_other_values_are_unchanged() {
    let scope = document(b"\x02s\xff\0\x02\0\0\0\xfe\0");
    let code = [&b"\x02\0\0\0\xff\0"[..], &scope].concat();
    let code = [&i32::try_from(code.len() + 4).expect("short").to_le_bytes()[..], &code].concat();
    let inner = document(&[&b"\x0fc\0"[..], &code, b"\x10n\0\x05\0\0\0"].concat());
    let bytes = document(
        &[
            b"\x02t\0\x04\0\0\0a\xffb\0\x0dj\0\x02\0\0\0\xff\0\x0ey\0\x02\0\0\0\xff\0\x0br\0p\xff\0i\xff\0",
            &b"\x0cd\0\x02\0\0\0\xff\0aaaabbbbcccc\x03i\0"[..],
            &inner,
            b"\x04l\0",
            &document(b"\x020\0\x02\0\0\0\xff\0"),
            b"\x05b\0\x02\0\0\0\x80\xff\xfe\x01f\0\xff\xff\xff\xff\xff\xff\xff\xff",
        ]
        .concat(),
    );
    let copied = copy(&bytes);
    let copied = RawDocument::new(&copied).expect("whole");
    assert_eq!(copied.validate(), Ok(()));
    let get =
        |document: RawDocument<'_>, key: &str| document.get(key).expect("valid").expect("it is there").element_type();
    assert_eq!(copied.get("t"), Ok(Some(RawValue::String("a\u{fffd}b"))));
    assert_eq!(copied.get("j"), Ok(Some(RawValue::JavaScript("\u{fffd}"))));
    assert_eq!(copied.get("y"), Ok(Some(RawValue::Symbol("\u{fffd}"))));
    assert_eq!(copied.get("r"), Ok(Some(RawValue::Regex(Regex { pattern: "p\u{fffd}", options: "i\u{fffd}" }))));
    let Ok(Some(RawValue::DbPointer { namespace, id })) = copied.get("d") else { panic!("a reference") };
    assert_eq!((namespace, &id.0), ("\u{fffd}", b"aaaabbbbcccc"));
    let inner = copied.get("i").expect("valid").and_then(RawValue::as_document).expect("a document");
    let Ok(Some(RawValue::JavaScriptWithScope { code, scope })) = inner.get("c") else { panic!("code with scope") };
    assert_eq!((code, scope.get("s\u{fffd}")), ("\u{fffd}", Ok(Some(RawValue::String("\u{fffd}")))));
    assert_eq!(inner.get("n"), Ok(Some(RawValue::Int32(5))));
    let list = copied.get("l").expect("valid").and_then(RawValue::as_array).expect("an array");
    assert_eq!(list.strings().collect::<Vec<_>>(), ["\u{fffd}"]);
    assert_eq!(copied.get("b").expect("valid").and_then(RawValue::as_binary).expect("bytes").bytes, [0xff, 0xfe]);
    assert_eq!(get(copied, "f"), crate::bson::ElementType::Double);
}

#[test]
fn a_valid_document_is_copied_unchanged_whatever_its_depth() {
    let mut bytes = document(b"\x02t\0\x02\0\0\0x\0");
    for _ in 0..DEPTH_MAX {
        bytes = document(&[&b"\x03d\0"[..], &bytes, b"\x0an\0"].concat());
    }
    assert_eq!(copy(&bytes), bytes);
}

#[test]
fn malformed_documents_have_no_lossy_copy() {
    for elements in [&b"\x55a\0"[..], b"\x02t\0\x02\0\0\0ab", b"\x0br\0p", b"\x03d\0\x05\0\0\0\x01"] {
        let bytes = document(elements);
        assert!(RawDocument::new(&bytes).and_then(RawDocument::to_utf8_lossy).is_err(), "{elements:?}");
    }
}
