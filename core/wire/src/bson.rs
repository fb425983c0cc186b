//! BSON: a reader that borrows and a writer that appends.
//!
//! Opening a document is O(1) and checks its length and its last byte; elements are checked as they are
//! met, and [`RawDocument::validate`] checks everything at once, without recursion.
//!
//! What is tolerated deliberately: keys of arrays are not looked at (position counts), a key may come
//! twice ([`RawDocument::get`] finds the first), option letters of regular expressions may have any order.
//!
//! Read first: the BSON specification, "Specification Version 1.1".

#[cfg(feature = "bson")]
mod convert;
mod document;
mod json;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use document::{DEPTH_MAX, Element, Elements, RawArray, RawDocument, Values};
pub use json::RelaxedJson;
pub use value::{Binary, ElementType, RawValue, Regex, Timestamp};
pub(crate) use write::patch_len;
pub use write::{ArrayWriter, DocumentWriter};
