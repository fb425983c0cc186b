use alloc::vec;
use alloc::vec::Vec;

use ::bson::{Bson, doc};

use super::*;
use crate::bson::{DocumentWriter, RawValue};

#[test]
fn documents_are_converted_to_the_bson_crate_and_back_without_a_copy() {
    let theirs = doc! { "ping": 1, "inner": { "list": [1_i64, "two", Bson::Null] }, "$db": "admin" };
    let bytes = theirs.to_vec().expect("small");
    let theirs_raw = TheirDocument::from_bytes(&bytes).expect("well-formed");

    let ours = RawDocument::try_from(theirs_raw).expect("well-formed");
    assert_eq!(ours.validate(), Ok(()));
    assert_eq!(ours.get("ping"), Ok(Some(RawValue::Int32(1))));
    assert_eq!(ours.as_bytes().as_ptr(), bytes.as_ptr());

    let back: &TheirDocument = ours.try_into().expect("well-formed");
    assert_eq!(back.as_bytes().as_ptr(), bytes.as_ptr());
    assert_eq!(Document::try_from(ours).expect("well-formed"), theirs);
}

#[test]
fn document_of_the_bson_crate_is_spliced_into_a_command() {
    let bytes = doc! { "a": true }.to_vec().expect("small");
    let theirs = TheirDocument::from_bytes(&bytes).expect("well-formed");
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, |command| {
        command.int32("insert", 1)?.extend(theirs.try_into().expect("well-formed")).map(drop)
    })
    .expect("room");
    let expected = doc! { "insert": 1, "a": true };
    assert_eq!(Document::try_from(RawDocument::new(&sink).expect("well-formed")).expect("well-formed"), expected);
}

#[test]
fn malformed_documents_do_not_become_documents_of_the_bson_crate() {
    let malformed = RawDocument::new(&[9, 0, 0, 0, 8, b'a', 0, 2, 0]).expect("opens");
    assert!(malformed.validate().is_err());
    assert!(Document::try_from(malformed).is_err());
}
