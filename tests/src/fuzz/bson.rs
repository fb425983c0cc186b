//! Arbitrary bytes as documents, compared with the bson crate value by value.

use bson::RawBsonRef;
use poolhouse_wire::bson::{DEPTH_MAX, RawDocument, RawValue};

use super::wire::{document, framed};

/// Reads `data` as a document and as the elements of one. Checks the same properties as
/// [`wire`](super::wire()), and that each value equals that of the bson crate.
pub fn bson(data: &[u8]) {
    one(data);
    one(&framed(data));
}

fn one(bytes: &[u8]) {
    document(bytes);
    let Ok(document) = RawDocument::new(bytes) else { return };
    // Only the well-formed prefix is read.
    let read = document.iter().take_while(Result::is_ok).count();
    assert!(read * 2 <= bytes.len());
    if document.validate().is_err() {
        return;
    }
    let theirs: &bson::RawDocument = document.try_into().expect("opened by both");
    assert!(same(document, theirs) <= DEPTH_MAX);
}

/// Compares both documents. Returns their depth.
fn same(ours: RawDocument<'_>, theirs: &bson::RawDocument) -> usize {
    let mut depth = 0;
    let mut count = 0;
    for (ours, theirs) in ours.iter().zip(theirs) {
        let (ours, (key, value)) = (ours.expect("validated"), theirs.expect("accepted"));
        assert_eq!(ours.key, key.as_str());
        depth = depth.max(same_value(ours.value, value));
        count += 1;
    }
    assert_eq!(count, theirs.iter().count());
    depth + 1
}

fn same_value(ours: RawValue<'_>, theirs: RawBsonRef<'_>) -> usize {
    let same_is = match (ours, theirs) {
        (RawValue::Document(ours), RawBsonRef::Document(theirs)) => return same(ours, theirs),
        (RawValue::Array(ours), RawBsonRef::Array(theirs)) => {
            let mut depth = 0;
            let mut count = 0;
            for (ours, theirs) in ours.iter().zip(theirs) {
                depth = depth.max(same_value(ours.expect("validated"), theirs.expect("accepted")));
                count += 1;
            }
            assert_eq!(ours.iter().count(), count);
            return depth + 1;
        }
        (RawValue::JavaScriptWithScope { code, scope }, RawBsonRef::JavaScriptCodeWithScope(theirs)) => {
            assert_eq!(code, theirs.code);
            return same(scope, theirs.scope);
        }
        (RawValue::Double(ours), RawBsonRef::Double(theirs)) => ours.to_bits() == theirs.to_bits(),
        (RawValue::String(ours), RawBsonRef::String(theirs))
        | (RawValue::JavaScript(ours), RawBsonRef::JavaScriptCode(theirs))
        | (RawValue::Symbol(ours), RawBsonRef::Symbol(theirs)) => ours == theirs,
        (RawValue::Binary(ours), RawBsonRef::Binary(theirs)) => {
            ours.bytes == theirs.bytes && ours.subtype == u8::from(theirs.subtype)
        }
        (RawValue::ObjectId(ours), RawBsonRef::ObjectId(theirs)) => ours.0 == theirs.bytes(),
        (RawValue::Boolean(ours), RawBsonRef::Boolean(theirs)) => ours == theirs,
        (RawValue::DateTime(ours), RawBsonRef::DateTime(theirs)) => ours == theirs.timestamp_millis(),
        (RawValue::Regex(ours), RawBsonRef::RegularExpression(theirs)) => {
            ours.pattern == theirs.pattern.as_str() && ours.options == theirs.options.as_str()
        }
        (RawValue::Int32(ours), RawBsonRef::Int32(theirs)) => ours == theirs,
        (RawValue::Int64(ours), RawBsonRef::Int64(theirs)) => ours == theirs,
        (RawValue::Timestamp(ours), RawBsonRef::Timestamp(theirs)) => {
            (ours.time_s, ours.increment) == (theirs.time, theirs.increment)
        }
        (RawValue::Decimal128(ours), RawBsonRef::Decimal128(theirs)) => ours == theirs.bytes(),
        (RawValue::DbPointer { .. }, RawBsonRef::DbPointer(_))
        | (RawValue::Undefined, RawBsonRef::Undefined)
        | (RawValue::Null, RawBsonRef::Null)
        | (RawValue::MinKey, RawBsonRef::MinKey)
        | (RawValue::MaxKey, RawBsonRef::MaxKey) => true,
        (_, _) => false,
    };
    assert!(same_is, "{ours:?}, {theirs:?}");
    0
}
