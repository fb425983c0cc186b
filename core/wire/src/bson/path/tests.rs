use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::bson::{DocumentWriter, RawValue};

/// `{ a: 1, items: [{ name: "x" }, { name: <text> }], <key>: 2 }`, and the bytes of text and key replaced.
fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |document| {
        document.int32("a", 1)?.array("items", |items| {
            for name in ["x", "two"] {
                items.document(|item| item.str("name", name).map(drop))?;
            }
            Ok(())
        })?;
        document.int32("key", 2).map(drop)
    })
    .expect("room");
    bytes
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes.windows(from.len()).position(|part| part == from).expect("it is there");
    bytes[at..at + to.len()].copy_from_slice(to);
}

fn fault(bytes: &[u8]) -> alloc::string::String {
    let document = RawDocument::new(bytes).expect("opens");
    let error = document.validate().expect_err("a fault");
    document.path_at(error.offset()).to_string()
}

#[test]
fn path_names_the_field_of_a_fault_at_any_depth() {
    let mut nested = bytes();
    replace(&mut nested, b"two", b"t\xffo");
    assert_eq!(fault(&nested), "items.1.name");

    let mut of_key = bytes();
    replace(&mut of_key, b"key", b"k\xffy");
    assert_eq!(fault(&of_key), "k\u{fffd}y");
}

#[test]
fn keys_in_a_path_cannot_forge_lines_and_are_shortened() {
    let mut forged = bytes();
    replace(&mut forged, b"key", b"k\n\xff");
    assert_eq!(fault(&forged), "k \u{fffd}");

    let long = "k".repeat(1000);
    let mut bytes = Vec::new();
    DocumentWriter::write(&mut bytes, |document| document.value(&long, RawValue::Null).map(drop)).expect("room");
    let path = RawDocument::new(&bytes).expect("opens").path_at(10);
    assert_eq!(format!("{path}").len(), PEER_TEXT_BYTES_MAX);

    let around = |inner: &[u8]| {
        let length = i32::try_from(4 + 102 + inner.len() + 1).expect("short").to_le_bytes();
        [&length[..], b"\x03", &[b'k'; 100], b"\0", inner, b"\0"].concat()
    };
    let nested = (0..200).fold(Vec::from(RawDocument::EMPTY.as_bytes()), |inner, _| around(&inner));
    let document = RawDocument::new(&nested).expect("opens");
    let innermost = u32::try_from(106 * 200 - 1).expect("short");
    assert_eq!(document.path_at(innermost).to_string().len(), PEER_TEXT_BYTES_MAX + 2, "two dots");
}

#[test]
fn an_offset_outside_of_all_fields_has_an_empty_path() {
    let bytes = bytes();
    let document = RawDocument::new(&bytes).expect("opens");
    assert_eq!(document.path_at(u32::MAX).to_string(), "");
    assert_eq!(RawDocument::EMPTY.path_at(0).to_string(), "");
}
