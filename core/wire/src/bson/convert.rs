//! Conversions to and from the types of the `bson` crate.
//!
//! Raw documents are borrowed in both directions, because the bytes are the same. Both crates
//! reject a document of a wrong length when it is opened, and check its elements later.

#[cfg(test)]
mod tests;

use ::bson::{Document, RawDocument as TheirDocument};

use super::document::RawDocument;
use crate::error::WireError;

impl<'a> TryFrom<&'a TheirDocument> for RawDocument<'a> {
    type Error = WireError;

    fn try_from(document: &'a TheirDocument) -> Result<Self, WireError> {
        Self::new(document.as_bytes())
    }
}

impl<'a> TryFrom<RawDocument<'a>> for &'a TheirDocument {
    type Error = ::bson::error::Error;

    fn try_from(document: RawDocument<'a>) -> Result<Self, ::bson::error::Error> {
        TheirDocument::from_bytes(document.as_bytes())
    }
}

impl TryFrom<RawDocument<'_>> for Document {
    type Error = ::bson::error::Error;

    /// Copies the document. Fails if [`RawDocument::validate`] would fail.
    fn try_from(document: RawDocument<'_>) -> Result<Self, ::bson::error::Error> {
        let theirs: &TheirDocument = document.try_into()?;
        theirs.try_into()
    }
}
