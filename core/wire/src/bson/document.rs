//! Documents and arrays, read in place.

use core::fmt;
use core::iter::FusedIterator;

use super::value::{ElementType, Raw, RawValue, next_raw, text};
use crate::error::{WireError, WireErrorKind};
use crate::read::{Reader, saturate};

/// The maximum nesting depth of documents: how many documents and arrays may be around a value, beside
/// the outermost document.
///
/// Servers store documents of up to 180 levels, or of up to 230 with the highest `maxBSONDepth`. Replies
/// add a few levels.
pub const DEPTH_MAX: usize = 256;

/// The fewest bytes of a nested document and its element: type, empty key, and the empty document.
const LEVEL_BYTES_MIN: usize = 7;

/// A document within borrowed bytes. Its length and its last byte are valid; its elements are not
/// checked yet.
///
/// Two documents are equal if their bytes are.
#[derive(Clone, Copy)]
pub struct RawDocument<'a> {
    bytes: &'a [u8],
    at: u32,
}

/// The bytes of an empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

impl<'a> RawDocument<'a> {
    /// The document without elements.
    pub const EMPTY: RawDocument<'static> = RawDocument { bytes: EMPTY, at: 0 };

    /// Opens the document that consists of all of `bytes`. O(1).
    ///
    /// # Errors
    ///
    /// [`WireErrorKind::DocumentLength`], [`WireErrorKind::Terminator`], [`WireErrorKind::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::open(Reader::new(bytes, 0))
    }

    /// Opens the document at the front of `input`, and returns the bytes after it. O(1).
    ///
    /// # Errors
    ///
    /// As [`RawDocument::new`].
    pub fn split_first(input: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let mut reader = Reader::new(input, 0);
        let document = Self::take(&mut reader)?;
        Ok((document, reader.rest))
    }

    /// Takes the document from the front of a reader.
    #[inline]
    pub(crate) fn take(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let length_bytes = reader.peek_i32()?;
        let at = reader.at;
        let found_bytes = saturate(reader.rest.len());
        let fits = usize::try_from(length_bytes).ok().filter(|len| *len <= reader.rest.len());
        let Some(len) = fits else {
            return Err(reader.error(WireErrorKind::DocumentLength { length_bytes, found_bytes }));
        };
        Self::open(Reader::new(reader.take(len)?, at))
    }

    /// Opens the document that consists of all bytes of a reader.
    #[inline]
    pub(super) fn open(reader: Reader<'a>) -> Result<Self, WireError> {
        let length_bytes = reader.peek_i32()?;
        let found = reader.rest.len();
        if found < EMPTY.len() || usize::try_from(length_bytes) != Ok(found) {
            let found_bytes = saturate(found);
            return Err(reader.error(WireErrorKind::DocumentLength { length_bytes, found_bytes }));
        }
        if reader.rest.last() != Some(&0) {
            let last = reader.at.saturating_add(saturate(found - 1));
            return Err(WireError::new(WireErrorKind::Terminator, last));
        }
        Ok(Self { bytes: reader.rest, at: reader.at })
    }

    /// All bytes, length and terminator included.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Its offset in the outermost message or document that was decoded.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.at
    }

    /// Whether it has no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes.len() <= EMPTY.len()
    }

    /// The elements: the bytes between length and terminator.
    #[inline]
    pub(super) fn interior(self) -> Reader<'a> {
        let interior = self.bytes.get(4..self.bytes.len().saturating_sub(1)).unwrap_or_default();
        Reader::new(interior, self.at.saturating_add(4))
    }

    /// The elements in order. An element that cannot be decoded is an error, and the next one follows;
    /// only after an error of the structure there is no next one.
    #[must_use]
    pub fn iter(self) -> Elements<'a> {
        Elements { rest: self.interior() }
    }

    /// The value of the first element with this key. Linear in the elements before it, no
    /// allocation; values of other elements are skipped, not decoded.
    ///
    /// # Errors
    ///
    /// If an element up to and including the matching one is malformed.
    pub fn get(self, key: &str) -> Result<Option<RawValue<'a>>, WireError> {
        let mut elements = self.interior();
        while let Some(raw) = next_raw(&mut elements)? {
            if raw.key == key.as_bytes() {
                return raw.decode().map(Some);
            }
        }
        Ok(None)
    }

    /// Whether `accept` returns `true` for key, type and value bytes of every element. Keys are not
    /// checked for UTF-8 and values are not decoded; returns `false` on a malformed element.
    #[inline]
    pub(crate) fn all_raw(self, mut accept: impl FnMut(&[u8], ElementType, &[u8]) -> bool) -> bool {
        let mut elements = self.interior();
        while let Ok(raw) = next_raw(&mut elements) {
            let Some(raw) = raw else { return true };
            if !accept(raw.key, raw.element_type, raw.value.rest) {
                return false;
            }
        }
        false
    }

    /// The elements in order, with keys and values that are not decoded. Ends after the first error.
    #[inline]
    pub(crate) fn raw_elements(self) -> impl Iterator<Item = Result<Raw<'a>, WireError>> {
        let mut elements = self.interior();
        core::iter::from_fn(move || {
            let raw = next_raw(&mut elements);
            if raw.is_err() {
                elements.rest = &[];
            }
            raw.transpose()
        })
    }

    /// Checks every element at every depth: types, lengths, terminators, UTF-8, booleans. Linear in
    /// the bytes, no allocation, no recursion.
    ///
    /// # Errors
    ///
    /// The first violation; [`WireErrorKind::TooDeep`] beyond [`DEPTH_MAX`].
    pub fn validate(self) -> Result<(), WireError> {
        self.walk(|raw, _| {
            text(raw.key, raw.key_at)?;
            raw.decode()?;
            raw.document()
        })
    }

    /// Checks the structure of every element at every depth: types, lengths, terminators. What only a
    /// conversion needs is not checked: UTF-8, the values of booleans, the second length of old binary
    /// values. Linear in the bytes, no allocation, no recursion.
    ///
    /// After this check, an error of one value does not hide the values after it.
    ///
    /// # Errors
    ///
    /// The first violation; [`WireErrorKind::TooDeep`] beyond [`DEPTH_MAX`].
    pub fn validate_structure(self) -> Result<(), WireError> {
        self.walk(|raw, _| raw.document())
    }

    /// Whether more than `levels` documents and arrays are nested in this one. Nested documents that
    /// are too short for that are not examined. No allocation, no recursion.
    #[must_use]
    pub fn is_deeper_than(self, levels: usize) -> bool {
        let room = |bytes: usize| bytes.saturating_sub(EMPTY.len()) / LEVEL_BYTES_MIN;
        if room(self.bytes.len()) <= levels {
            return false;
        }
        let found = self.walk(|raw, depth| {
            if depth + room(raw.value.rest.len()) <= levels {
                return Ok(None);
            }
            match raw.document()? {
                Some(_) if depth > levels => Err(raw.value.error(WireErrorKind::TooDeep)),
                inner => Ok(inner),
            }
        });
        found.is_err_and(|error| error.kind() == WireErrorKind::TooDeep)
    }

    /// Visits every element at every depth.
    ///
    /// - `enter`: checks an element; its second argument is 1 for the elements of this document, 2 for
    ///   those in a nested one, and so on. Returns the document in the value if it must be visited too.
    #[inline]
    fn walk(self, enter: impl Fn(Raw<'a>, usize) -> Result<Option<Self>, WireError>) -> Result<(), WireError> {
        let mut elements = self.interior();
        while let Some(raw) = next_raw(&mut elements)? {
            if let Some(inner) = enter(raw, 1)? {
                return self.walk_nested(elements, inner, enter);
            }
        }
        Ok(())
    }

    /// Visits the first nested document and the elements after it. A separate function, because
    /// flat documents are common and do not need the array of end offsets.
    #[inline(never)]
    fn walk_nested(
        self,
        behind: Reader<'a>,
        first: Self,
        enter: impl Fn(Raw<'a>, usize) -> Result<Option<Self>, WireError>,
    ) -> Result<(), WireError> {
        // `elements`: the elements being checked. `ends`: the end offsets of the documents around
        // them.
        let mut elements = first.interior();
        let mut ends = [0_u32; DEPTH_MAX];
        let mut depth = 1_usize;
        ends[0] = behind.at.saturating_add(saturate(behind.rest.len()));
        loop {
            let Some(raw) = next_raw(&mut elements)? else {
                let Some(outer) = depth.checked_sub(1) else { return Ok(()) };
                depth = outer;
                let resume = elements.at.saturating_add(1);
                let end = ends.get(depth).copied().unwrap_or_default();
                elements = self.part(resume, end);
                continue;
            };
            let Some(inner) = enter(raw, depth + 1)? else { continue };
            let Some(slot) = ends.get_mut(depth) else {
                return Err(raw.value.error(WireErrorKind::TooDeep));
            };
            *slot = elements.at.saturating_add(saturate(elements.rest.len()));
            depth += 1;
            elements = inner.interior();
        }
    }

    /// The bytes between two offsets, counted as in [`Self::offset`].
    pub(super) fn part(self, from: u32, to: u32) -> Reader<'a> {
        let index = |offset: u32| offset.saturating_sub(self.at) as usize;
        Reader::new(self.bytes.get(index(from)..index(to)).unwrap_or_default(), from)
    }
}

impl PartialEq for RawDocument<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for RawDocument<'_> {}

impl core::hash::Hash for RawDocument<'_> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Default for RawDocument<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for RawDocument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets: only length and offset are shown.
        write!(f, "RawDocument({} bytes at {})", self.bytes.len(), self.at)
    }
}

impl<'a> IntoIterator for RawDocument<'a> {
    type Item = Result<Element<'a>, WireError>;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: RawValue<'a>,
    /// The value's offset in the outermost message or document that was decoded.
    pub offset: u32,
}

/// The elements of a document. Made by [`RawDocument::iter`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match next_raw(&mut self.rest) {
            Ok(raw) => Some(raw?.element()),
            Err(error) => {
                self.rest.rest = &[];
                Some(Err(error))
            }
        }
    }
}

impl FusedIterator for Elements<'_> {}

/// An array within borrowed bytes, encoded as a document; the keys are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawArray<'a>(RawDocument<'a>);

impl<'a> RawArray<'a> {
    /// The array without elements.
    pub const EMPTY: RawArray<'static> = RawArray(RawDocument::EMPTY);

    /// The array of the document's values.
    #[must_use]
    pub const fn from_document(document: RawDocument<'a>) -> Self {
        Self(document)
    }

    /// The array as a document with numbered keys.
    #[must_use]
    pub const fn as_document(self) -> RawDocument<'a> {
        self.0
    }

    /// Whether it has no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The values in order, as in [`RawDocument::iter`].
    #[must_use]
    pub fn iter(self) -> Values<'a> {
        Values { elements: self.0.iter() }
    }

    /// The strings in order; values of other types and malformed values are skipped.
    pub fn strings(self) -> impl Iterator<Item = &'a str> + Clone {
        self.iter().filter_map(|value| value.ok().and_then(RawValue::as_str))
    }
}

impl<'a> IntoIterator for RawArray<'a> {
    type Item = Result<RawValue<'a>, WireError>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

/// The values of an array. Made by [`RawArray::iter`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    elements: Elements<'a>,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<RawValue<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.elements.next().map(|element| element.map(|element| element.value))
    }
}

impl FusedIterator for Values<'_> {}
