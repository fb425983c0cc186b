//! Writing documents at the end of a sink.

use core::fmt;

use super::document::{RawArray, RawDocument};
use super::value::{Binary, ElementType, RawValue, Regex, SUBTYPE_OLD, Timestamp};
use crate::error::EncodeError;
use crate::read::saturate;
use crate::server::ObjectId;
use crate::sink::Sink;

#[cfg(test)]
mod tests;

/// Writes one document, element by element, at the end of a sink.
///
/// A call that fails leaves the document unchanged. Keys are not checked for duplicates: the caller
/// must avoid them. A document that is dropped without [`finish`](Self::finish) has no valid
/// length: prefer [`DocumentWriter::write`] unless the borrow checker rejects it.
#[must_use = "a document is complete only after `finish`"]
pub struct DocumentWriter<'s, S: Sink> {
    sink: &'s mut S,
    start: usize,
}

/// The result of an appending method: the writer, for chaining.
type Appended<'w, W> = Result<&'w mut W, EncodeError>;

impl<S: Sink> fmt::Debug for DocumentWriter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The content may be secret: only length and offset are shown.
        write!(f, "DocumentWriter({} bytes at {})", self.len_bytes(), self.start)
    }
}

impl<'s, S: Sink> DocumentWriter<'s, S> {
    /// Writes a whole document at the end of `sink`, and returns its length in bytes.
    ///
    /// # Errors
    ///
    /// [`EncodeError`]; the sink is unchanged.
    pub fn write(
        sink: &'s mut S,
        body: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Result<usize, EncodeError> {
        let start = sink.written().len();
        let mut inner = DocumentWriter { sink: &mut *sink, start };
        let result = inner.sink.append(&[0; 4]).map_err(EncodeError::from).and_then(|()| body(&mut inner));
        let result = result.and_then(|()| inner.finish());
        if result.is_err() {
            sink.truncate(start);
        }
        result
    }

    /// Begins a document at the end of `sink`.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn begin(sink: &'s mut S) -> Result<Self, EncodeError> {
        let start = sink.written().len();
        sink.append(&[0; 4])?;
        Ok(Self { sink, start })
    }

    /// Ends the document: writes its terminator and its length, and returns the length in bytes.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`]; [`EncodeError::DocumentTooLarge`] beyond 2³¹ - 1 bytes.
    pub fn finish(self) -> Result<usize, EncodeError> {
        self.sink.append(&[0])?;
        let len = self.sink.written().len().saturating_sub(self.start);
        patch_len(self.sink, self.start, len)?;
        Ok(len)
    }

    /// Bytes written so far, without the terminator.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.sink.written().len().saturating_sub(self.start)
    }

    /// Appends an element with the concatenation of `parts` as its value.
    fn parts(&mut self, element_type: ElementType, key: &str, parts: &[&[u8]]) -> Appended<'_, Self> {
        append_element(self.sink, element_type, key, parts)?;
        Ok(self)
    }

    /// Writes type and key, then calls `value`. Removes all of the element if `value` fails.
    fn element(
        &mut self,
        element_type: ElementType,
        key: &str,
        value: impl FnOnce(&mut S) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        let start = self.sink.written().len();
        let result = write_key(self.sink, element_type, key).and_then(|()| value(self.sink));
        if let Err(error) = result {
            self.sink.truncate(start);
            return Err(error);
        }
        Ok(self)
    }

    /// Appends a double.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`], [`EncodeError::InteriorNul`]; the same for every other type.
    pub fn double(&mut self, key: &str, value: f64) -> Appended<'_, Self> {
        self.parts(ElementType::Double, key, &[&value.to_le_bytes()])
    }

    /// Appends text.
    ///
    /// # Errors
    ///
    /// As [`Self::double`]; [`EncodeError::DocumentTooLarge`] beyond 2³¹ - 2 bytes.
    pub fn str(&mut self, key: &str, value: &str) -> Appended<'_, Self> {
        self.parts(ElementType::String, key, &[&length(value.len().saturating_add(1))?, value.as_bytes(), &[0]])
    }

    /// Appends the concatenation of `parts` as text.
    ///
    /// # Errors
    ///
    /// As [`Self::str`].
    pub fn str_parts(&mut self, key: &str, parts: &[&str]) -> Appended<'_, Self> {
        self.element(ElementType::String, key, |sink| {
            let len = parts.iter().fold(1_usize, |len, part| len.saturating_add(part.len()));
            sink.append(&length(len)?)?;
            for part in parts {
                sink.append(part.as_bytes())?;
            }
            Ok(sink.append(&[0])?)
        })
    }

    /// Appends a document that `body` writes.
    ///
    /// # Errors
    ///
    /// As [`Self::double`], and errors of `body`.
    pub fn document(
        &mut self,
        key: &str,
        body: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        self.element(ElementType::Document, key, |sink| DocumentWriter::write(sink, body).map(drop))
    }

    /// Appends an existing document.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn raw_document(&mut self, key: &str, value: RawDocument<'_>) -> Appended<'_, Self> {
        self.parts(ElementType::Document, key, &[value.as_bytes()])
    }

    /// Appends an array that `body` writes.
    ///
    /// # Errors
    ///
    /// As [`Self::double`], and errors of `body`.
    pub fn array(
        &mut self,
        key: &str,
        body: impl FnOnce(&mut ArrayWriter<'_, '_, S>) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        self.element(ElementType::Array, key, |sink| write_array(sink, body))
    }

    /// Appends an existing array.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn raw_array(&mut self, key: &str, value: RawArray<'_>) -> Appended<'_, Self> {
        self.parts(ElementType::Array, key, &[value.as_document().as_bytes()])
    }

    /// Appends bytes with a subtype.
    ///
    /// # Errors
    ///
    /// As [`Self::str`].
    pub fn binary(&mut self, key: &str, subtype: u8, bytes: &[u8]) -> Appended<'_, Self> {
        self.element(ElementType::Binary, key, |sink| write_binary(sink, Binary { subtype, bytes }))
    }

    /// Appends the bytes that `write` appends to the sink, as a binary of the generic subtype 0.
    ///
    /// # Errors
    ///
    /// As [`Self::str`], and errors of `write`.
    pub fn binary_with(
        &mut self,
        key: &str,
        write: impl FnOnce(&mut S) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        self.element(ElementType::Binary, key, |sink| {
            let start = sink.written().len();
            sink.append(&[0; 5])?;
            write(sink)?;
            let len = sink.written().len().saturating_sub(start).saturating_sub(5);
            patch_len(sink, start, len)
        })
    }

    /// Appends an `ObjectId`.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn object_id(&mut self, key: &str, value: ObjectId) -> Appended<'_, Self> {
        self.parts(ElementType::ObjectId, key, &[&value.0])
    }

    /// Appends a boolean.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn boolean(&mut self, key: &str, value: bool) -> Appended<'_, Self> {
        self.parts(ElementType::Boolean, key, &[&[u8::from(value)]])
    }

    /// Appends a time: milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn date_time(&mut self, key: &str, ms: i64) -> Appended<'_, Self> {
        self.parts(ElementType::DateTime, key, &[&ms.to_le_bytes()])
    }

    /// Appends null.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn null(&mut self, key: &str) -> Appended<'_, Self> {
        self.parts(ElementType::Null, key, &[])
    }

    /// Appends a 32-bit integer.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn int32(&mut self, key: &str, value: i32) -> Appended<'_, Self> {
        self.parts(ElementType::Int32, key, &[&value.to_le_bytes()])
    }

    /// Appends a 64-bit integer.
    ///
    /// # Errors
    ///
    /// As [`Self::double`].
    pub fn int64(&mut self, key: &str, value: i64) -> Appended<'_, Self> {
        self.parts(ElementType::Int64, key, &[&value.to_le_bytes()])
    }

    /// Appends a value of any type.
    ///
    /// # Errors
    ///
    /// As [`Self::str`].
    pub fn value(&mut self, key: &str, value: RawValue<'_>) -> Appended<'_, Self> {
        self.element(value.element_type(), key, |sink| write_value(sink, value))
    }

    /// Appends all elements of another document, as unchanged bytes.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn extend(&mut self, other: RawDocument<'_>) -> Appended<'_, Self> {
        self.sink.append(other.interior().rest)?;
        Ok(self)
    }
}

/// Writes the values of an array. Passed to the closure of [`DocumentWriter::array`].
#[derive(Debug)]
pub struct ArrayWriter<'w, 's, S: Sink> {
    document: &'w mut DocumentWriter<'s, S>,
    count: u32,
}

impl<S: Sink> ArrayWriter<'_, '_, S> {
    /// Appends text.
    ///
    /// # Errors
    ///
    /// As [`DocumentWriter::str`].
    pub fn str(&mut self, value: &str) -> Appended<'_, Self> {
        self.push(|document, key| document.str(key, value).map(drop))
    }

    /// Appends a value of any type.
    ///
    /// # Errors
    ///
    /// As [`DocumentWriter::value`].
    pub fn value(&mut self, value: RawValue<'_>) -> Appended<'_, Self> {
        self.push(|document, key| document.value(key, value).map(drop))
    }

    /// Appends a document that `body` writes.
    ///
    /// # Errors
    ///
    /// As [`DocumentWriter::document`].
    pub fn document(
        &mut self,
        body: impl FnOnce(&mut DocumentWriter<'_, S>) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        self.push(|document, key| document.document(key, body).map(drop))
    }

    /// Appends an array that `body` writes.
    ///
    /// # Errors
    ///
    /// As [`DocumentWriter::array`].
    pub fn array(
        &mut self,
        body: impl FnOnce(&mut ArrayWriter<'_, '_, S>) -> Result<(), EncodeError>,
    ) -> Appended<'_, Self> {
        self.push(|document, key| document.array(key, body).map(drop))
    }

    /// Values written so far.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    fn push<'d>(
        &'d mut self,
        write: impl FnOnce(&mut DocumentWriter<'_, S>, &str) -> Result<(), EncodeError>,
    ) -> Appended<'d, Self> {
        let mut buffer = [0; 10];
        let mut inner = DocumentWriter { sink: &mut *self.document.sink, start: self.document.start };
        write(&mut inner, decimal(self.count, &mut buffer))?;
        self.count = self.count.saturating_add(1);
        Ok(self)
    }
}

/// Formats a number in decimal digits.
fn decimal(mut value: u32, buffer: &mut [u8; 10]) -> &str {
    let mut start = buffer.len();
    for (index, place) in buffer.iter_mut().enumerate().rev() {
        let [digit, ..] = (value % 10).to_le_bytes();
        *place = b'0' | digit;
        start = index;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    buffer.get(start..).and_then(|digits| core::str::from_utf8(digits).ok()).unwrap_or_default()
}

/// Overwrites the four bytes at `at` with a length.
pub(crate) fn patch_len<S: Sink>(sink: &mut S, at: usize, len: usize) -> Result<(), EncodeError> {
    const MAX: u32 = i32::MAX.unsigned_abs();
    let length_bytes = saturate(len);
    if length_bytes > MAX {
        return Err(EncodeError::DocumentTooLarge { length_bytes, max_bytes: MAX });
    }
    let place = sink.written_mut().get_mut(at..).and_then(|tail| tail.first_chunk_mut::<4>());
    *place.ok_or(EncodeError::Full)? = length_bytes.to_le_bytes();
    Ok(())
}

fn append_element<S: Sink>(
    sink: &mut S,
    element_type: ElementType,
    key: &str,
    parts: &[&[u8]],
) -> Result<(), EncodeError> {
    let start = sink.written().len();
    let mut result = write_key(sink, element_type, key);
    for part in parts {
        if result.is_ok() {
            result = sink.append(part).map_err(EncodeError::from);
        }
    }
    if result.is_err() {
        sink.truncate(start);
    }
    result
}

fn write_key<S: Sink>(sink: &mut S, element_type: ElementType, key: &str) -> Result<(), EncodeError> {
    sink.append(&[element_type.tag()])?;
    write_cstring(sink, key)
}

fn write_cstring<S: Sink>(sink: &mut S, text: &str) -> Result<(), EncodeError> {
    if text.as_bytes().contains(&0) {
        return Err(EncodeError::InteriorNul);
    }
    sink.append(text.as_bytes())?;
    Ok(sink.append(&[0])?)
}

/// A length in its four-byte encoding.
fn length(len: usize) -> Result<[u8; 4], EncodeError> {
    match i32::try_from(len) {
        Ok(length) => Ok(length.to_le_bytes()),
        Err(_) => {
            Err(EncodeError::DocumentTooLarge { length_bytes: saturate(len), max_bytes: i32::MAX.unsigned_abs() })
        }
    }
}

fn write_string<S: Sink>(sink: &mut S, text: &str) -> Result<(), EncodeError> {
    sink.append(&length(text.len().saturating_add(1))?)?;
    sink.append(text.as_bytes())?;
    Ok(sink.append(&[0])?)
}

fn write_binary<S: Sink>(sink: &mut S, binary: Binary<'_>) -> Result<(), EncodeError> {
    if binary.subtype == SUBTYPE_OLD {
        sink.append(&length(binary.bytes.len().saturating_add(4))?)?;
        sink.append(&[binary.subtype])?;
        sink.append(&length(binary.bytes.len())?)?;
    } else {
        sink.append(&length(binary.bytes.len())?)?;
        sink.append(&[binary.subtype])?;
    }
    Ok(sink.append(binary.bytes)?)
}

fn write_array<S: Sink>(
    sink: &mut S,
    body: impl FnOnce(&mut ArrayWriter<'_, '_, S>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    DocumentWriter::write(sink, |document| {
        // Borrows the document only for this call.
        body(&mut ArrayWriter { document, count: 0 })
    })
    .map(drop)
}

fn write_value<S: Sink>(sink: &mut S, value: RawValue<'_>) -> Result<(), EncodeError> {
    match value {
        RawValue::Double(value) => sink.append(&value.to_le_bytes())?,
        RawValue::String(text) | RawValue::JavaScript(text) | RawValue::Symbol(text) => write_string(sink, text)?,
        RawValue::Document(document) => sink.append(document.as_bytes())?,
        RawValue::Array(array) => sink.append(array.as_document().as_bytes())?,
        RawValue::Binary(binary) => write_binary(sink, binary)?,
        RawValue::Undefined | RawValue::Null | RawValue::MinKey | RawValue::MaxKey => {}
        RawValue::ObjectId(id) => sink.append(&id.0)?,
        RawValue::Boolean(value) => sink.append(&[u8::from(value)])?,
        RawValue::DateTime(value) | RawValue::Int64(value) => sink.append(&value.to_le_bytes())?,
        RawValue::Regex(Regex { pattern, options }) => {
            write_cstring(sink, pattern)?;
            write_cstring(sink, options)?;
        }
        RawValue::DbPointer { namespace, id } => {
            write_string(sink, namespace)?;
            sink.append(&id.0)?;
        }
        RawValue::JavaScriptWithScope { code, scope } => {
            let total = code.len().saturating_add(scope.as_bytes().len()).saturating_add(9);
            sink.append(&length(total)?)?;
            write_string(sink, code)?;
            sink.append(scope.as_bytes())?;
        }
        RawValue::Int32(value) => sink.append(&value.to_le_bytes())?,
        RawValue::Timestamp(Timestamp { time_s, increment }) => {
            sink.append(&increment.to_le_bytes())?;
            sink.append(&time_s.to_le_bytes())?;
        }
        RawValue::Decimal128(bytes) => sink.append(&bytes)?,
    }
    Ok(())
}
