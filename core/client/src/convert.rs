//! Conversions between documents and bytes.
//!
//! The bson crate recurses into nested documents. In a build without optimizations, a level takes some 4 KiB
//! of the stack to encode, 8 KiB to decode, and by serde 30 KiB or more, depending on the type. So what is
//! deep is converted on a thread of its own, with a stack for its depth.

#[cfg(test)]
mod tests;

use super::Error;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use bson::error::ErrorKind;
use bson::{Bson, Utf8Lossy};
use core::fmt;
use poolhouse_wire::WireErrorKind;
use poolhouse_wire::bson::{DEPTH_MAX, RawDocument, Timestamp};
use serde::de::{Deserialize as _, DeserializeOwned, Deserializer, Visitor};
use std::thread;

/// Deeper documents are converted on a thread of their own.
const INLINE_LEVELS_MAX: usize = if cfg!(debug_assertions) { 8 } else { 24 };

/// The stack of that thread for each level: enough for a type with a hundred fields of the bson crate,
/// without optimizations. The operating system provides only the pages that are used.
const LEVEL_STACK_BYTES: usize = 256 * 1024;

/// Converts a time of a server.
pub(super) const fn to_timestamp(time: Timestamp) -> bson::Timestamp {
    bson::Timestamp { time: time.time_s, increment: time.increment }
}

/// Checks that a value is not too deep to be encoded or copied.
pub(super) fn check_depth(value: &Bson) -> Result<(), Error> {
    if is_deeper_than(value, DEPTH_MAX) { Err(too_deep()) } else { Ok(()) }
}

/// Encodes a document that was measured first, because the encoder recurses.
pub(super) fn encoded(document: &bson::Document) -> Result<Vec<u8>, Error> {
    document.values().try_for_each(check_depth)?;
    let encode = || document.to_vec().map_err(|error| error.to_string());
    let is_deep = document.values().any(|value| is_deeper_than(value, INLINE_LEVELS_MAX));
    if is_deep { on_thread(DEPTH_MAX, encode) } else { encode() }.map_err(Error::Bson)
}

/// Encodes a document as [`encoded`] does, and drops it: without recursion if it is too deep.
pub(super) fn into_encoded(document: bson::Document) -> Result<Vec<u8>, Error> {
    let bytes = encoded(&document);
    if bytes.is_err() {
        drop_flat(document);
    }
    bytes
}

/// Checks that the bytes are a BSON document that is not empty and not too deep, and returns them as a
/// command.
pub(super) fn checked(command: &[u8]) -> Result<RawDocument<'_>, Error> {
    let command = RawDocument::new(command).map_err(|error| Error::Bson(error.to_string()))?;
    if command.is_empty() {
        return Err(Error::Bson("a command must not be empty".into()));
    }
    if command.is_deeper_than(DEPTH_MAX) {
        return Err(too_deep());
    }
    Ok(command)
}

fn too_deep() -> Error {
    Error::Bson(format!(
        "the document to send has more than {DEPTH_MAX} nested levels, which is the limit; nothing was sent"
    ))
}

/// Whether more than `levels` documents and arrays are around a value in `value`. The recursion ends at
/// that level.
fn is_deeper_than(value: &Bson, levels: usize) -> bool {
    let Some(inner) = levels.checked_sub(1) else {
        return matches!(value, Bson::Document(_) | Bson::Array(_) | Bson::JavaScriptCodeWithScope(_));
    };
    if let Bson::Document(document) = value {
        document.values().any(|value| is_deeper_than(value, inner))
    } else if let Bson::Array(values) = value {
        values.iter().any(|value| is_deeper_than(value, inner))
    } else if let Bson::JavaScriptCodeWithScope(code) = value {
        code.scope.values().any(|value| is_deeper_than(value, inner))
    } else {
        false
    }
}

/// Drops a document level by level.
#[cold]
fn drop_flat(document: bson::Document) {
    let mut rest: Vec<Bson> = Vec::from([Bson::Document(document)]);
    while let Some(value) = rest.pop() {
        if let Bson::Document(document) = value {
            rest.extend(document.into_iter().map(|(_, value)| value));
        } else if let Bson::Array(values) = value {
            rest.extend(values);
        } else if let Bson::JavaScriptCodeWithScope(code) = value {
            rest.push(Bson::Document(code.scope));
        }
    }
}

/// Why a received document was not converted: a text for [`Error::Bson`].
pub(super) type Fault = String;

/// A conversion of a reply.
pub(super) type Read<T> = fn(RawDocument<'_>) -> Result<T, Fault>;

pub(super) fn to_document(document: RawDocument<'_>) -> Result<bson::Document, Fault> {
    with_stack(document, || document.try_into().map_err(|error| fault(document, &error)))
}

pub(super) fn to_raw_document(document: RawDocument<'_>) -> Result<bson::RawDocumentBuf, Fault> {
    bson::RawDocumentBuf::from_bytes(document.as_bytes().to_vec()).map_err(|error| error.to_string())
}

/// Decodes a document by serde.
pub(super) fn to_value<T: DeserializeOwned + Send>(document: RawDocument<'_>) -> Result<T, Fault> {
    with_stack(document, || decode(document))
}

/// Runs a conversion of a document with a stack for its depth.
fn with_stack<T: Send>(
    document: RawDocument<'_>,
    convert: impl FnOnce() -> Result<T, Fault> + Send,
) -> Result<T, Fault> {
    if !document.is_deeper_than(INLINE_LEVELS_MAX) {
        return convert();
    }
    // That is checked when a reply is received, and again here, because the stack depends on it.
    if document.is_deeper_than(DEPTH_MAX) {
        return Err(format!("the document has more than {DEPTH_MAX} nested levels, which is the limit"));
    }
    let levels = [16, 32, 64, 128].into_iter().find(|levels| !document.is_deeper_than(*levels));
    on_thread(levels.unwrap_or(DEPTH_MAX), convert)
}

/// Runs a conversion on a thread with a stack for this many levels. Its panics are the caller's.
#[cold]
fn on_thread<T: Send>(levels: usize, convert: impl FnOnce() -> Result<T, Fault> + Send) -> Result<T, Fault> {
    let builder = thread::Builder::new().name("poolhouse-convert".to_owned()).stack_size(levels * LEVEL_STACK_BYTES);
    thread::scope(|scope| match builder.spawn_scoped(scope, convert) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(error) => Err(format!(
            "a document of more than {INLINE_LEVELS_MAX} nested levels is converted on a thread of its own, which was not started: {error}"
        )),
    })
}

fn decode<T: DeserializeOwned>(document: RawDocument<'_>) -> Result<T, Fault> {
    bson::deserialize_from_slice(document.as_bytes()).or_else(|error| {
        if is_lossy::<T>() {
            // The bson crate replaces wrong bytes in strings, but not in keys and regular expressions.
            let copy = document.to_utf8_lossy().map_err(|error| error.to_string())?;
            let copy = RawDocument::new(&copy).map_err(|error| error.to_string())?;
            return bson::deserialize_from_slice(copy.as_bytes()).map_err(|error| fault(copy, &error));
        }
        Err(fault(document, &error))
    })
}

/// The text of an error of the bson crate. It names the field if the value of a field is the cause.
#[cold]
fn fault(document: RawDocument<'_>, error: &bson::error::Error) -> Fault {
    let is_of_bytes = matches!(error.kind, ErrorKind::Utf8Encoding { .. } | ErrorKind::MalformedBytes { .. });
    let Some(found) = document.validate().err().filter(|_| is_of_bytes) else { return error.to_string() };
    let (path, kind) = (document.path_at(found.offset()), found.kind());
    let remedy = if kind == WireErrorKind::Utf8 { "; read it as raw bytes, or as Utf8Lossy" } else { "" };
    format!("field {path}: {kind}{remedy}")
}

/// Converts a reply that reports an error. What cannot be converted is left out: the other fields of the
/// error count.
pub(super) fn to_document_lossy(reply: RawDocument<'_>) -> bson::Document {
    let convert = || {
        Ok(reply.try_into().unwrap_or_else(|_: bson::error::Error| {
            let copy = reply.to_utf8_lossy().unwrap_or_default();
            let Ok(copy) = bson::RawDocument::from_bytes(&copy) else { return bson::Document::new() };
            let elements = copy.iter_elements().filter_map(Result::ok);
            elements.filter_map(|element| Some((element.key().to_string(), element.try_into().ok()?))).collect()
        }))
    };
    with_stack(reply, convert).unwrap_or_default()
}

/// Whether a type is a [`Utf8Lossy`]: it asks serde for the same newtype.
fn is_lossy<T: DeserializeOwned>() -> bool {
    let asked = T::deserialize(Asked).err().and_then(|asked| asked.0);
    asked.is_some() && asked == Utf8Lossy::<()>::deserialize(Asked).err().and_then(|asked| asked.0)
}

/// A deserializer that has no value: its error is the name of the newtype that was asked for, if one was.
struct Asked;

#[derive(Debug)]
struct AskedFor(Option<&'static str>);

impl fmt::Display for AskedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value")
    }
}

impl core::error::Error for AskedFor {}

impl serde::de::Error for AskedFor {
    fn custom<M: fmt::Display>(_: M) -> Self {
        Self(None)
    }
}

impl<'de> Deserializer<'de> for Asked {
    type Error = AskedFor;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, AskedFor> {
        Err(AskedFor(None))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, _: V) -> Result<V::Value, AskedFor> {
        Err(AskedFor(Some(name)))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
