//! Copies of documents whose text is UTF-8 throughout.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;

use super::document::RawDocument;
use super::value::{ElementType, Raw, next_raw, string_bytes};
use crate::error::WireError;
use crate::read::{Reader, saturate};

impl RawDocument<'_> {
    /// Copies the document, with U+FFFD in place of each sequence that is not UTF-8: in keys, strings,
    /// regular expressions, code, symbols and references, at every depth. Other values are copied as they
    /// are.
    ///
    /// Cost: linear in the bytes, no recursion. The copy has up to three times the length.
    ///
    /// # Errors
    ///
    /// The document is malformed in a way in which [`RawDocument::validate_structure`] would fail.
    pub fn to_utf8_lossy(self) -> Result<Vec<u8>, WireError> {
        let mut copy = Copy { bytes: Vec::with_capacity(self.as_bytes().len()), open: Vec::new() };
        copy.open(self.interior(), None);
        while let Some(place) = copy.open.last_mut() {
            match next_raw(&mut place.rest)? {
                Some(raw) => copy.element(raw)?,
                None => copy.close(),
            }
        }
        Ok(copy.bytes)
    }
}

struct Copy<'a> {
    bytes: Vec<u8>,
    /// The documents around the end of the copy, the outermost first.
    open: Vec<Open<'a>>,
}

/// A document whose copy is not complete.
struct Open<'a> {
    rest: Reader<'a>,
    /// The place of its length in the copy.
    start: usize,
    /// The place of the length of the code with scope whose scope it is.
    code_start: Option<usize>,
}

impl<'a> Copy<'a> {
    fn open(&mut self, rest: Reader<'a>, code_start: Option<usize>) {
        self.open.push(Open { rest, start: self.bytes.len(), code_start });
        self.bytes.extend([0; 4]);
    }

    fn close(&mut self) {
        let Some(Open { start, code_start, .. }) = self.open.pop() else { return };
        self.bytes.push(0);
        for start in code_start.into_iter().chain([start]) {
            self.patch(start, start);
        }
    }

    /// Writes the number of bytes since `start` at `place`.
    fn patch(&mut self, place: usize, start: usize) {
        let length = saturate(self.bytes.len() - start);
        if let Some(place) = self.bytes.get_mut(place..).and_then(<[u8]>::first_chunk_mut) {
            *place = length.to_le_bytes();
        }
    }

    fn element(&mut self, raw: Raw<'a>) -> Result<(), WireError> {
        let mut value = raw.value;
        self.bytes.push(raw.element_type.tag());
        self.cstring(raw.key);
        match raw.element_type {
            ElementType::String | ElementType::JavaScript | ElementType::Symbol => {
                self.string(string_bytes(&mut value)?);
            }
            ElementType::DbPointer => {
                self.string(string_bytes(&mut value)?);
                self.bytes.extend_from_slice(value.rest);
            }
            ElementType::Regex => {
                self.cstring(value.until_nul()?);
                self.cstring(value.until_nul()?);
            }
            ElementType::JavaScriptWithScope => {
                let (code, scope) = raw.code_and_scope()?;
                let start = self.bytes.len();
                self.bytes.extend([0; 4]);
                self.string(code);
                self.open(scope.interior(), Some(start));
            }
            ElementType::Document | ElementType::Array => {
                self.open(RawDocument::open(value)?.interior(), None);
            }
            ElementType::Double
            | ElementType::Binary
            | ElementType::Undefined
            | ElementType::ObjectId
            | ElementType::Boolean
            | ElementType::DateTime
            | ElementType::Null
            | ElementType::Int32
            | ElementType::Timestamp
            | ElementType::Int64
            | ElementType::Decimal128
            | ElementType::MinKey
            | ElementType::MaxKey => self.bytes.extend_from_slice(value.rest),
        }
        Ok(())
    }

    fn cstring(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
        self.bytes.push(0);
    }

    fn string(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.cstring(text);
        // A string does not count its own length.
        self.patch(start, start + 4);
    }
}
