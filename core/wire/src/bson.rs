//! BSON: a borrowing reader and an appending writer.
//!
//! Opening a document is O(1) and checks its length and its last byte. Elements are checked when
//! they are read; [`RawDocument::validate`] checks all of them, without recursion, and
//! [`RawDocument::validate_structure`] checks what every reader relies on: a document that was received
//! has passed it.
//!
//! Deliberately tolerated: array keys are ignored (only position counts), keys may repeat
//! ([`RawDocument::get`] returns the first), and option letters of regular expressions may be in
//! any order.
//!
//! Read first: the BSON specification, "Specification Version 1.1".

#[cfg(feature = "bson")]
mod convert;
mod document;
mod json;
#[cfg(feature = "alloc")]
mod lossy;
mod path;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use document::{DEPTH_MAX, Element, Elements, RawArray, RawDocument, Values};
pub use json::RelaxedJson;
pub use path::FieldPath;
pub(crate) use value::Raw;
pub use value::{Binary, ElementType, RawValue, Regex, Timestamp};
pub(crate) use write::patch_len;
pub use write::{ArrayWriter, DocumentWriter};
