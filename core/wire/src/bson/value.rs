//! The types of BSON: lengths and validation of their values.

use core::fmt;
use core::str::Utf8Error;

use super::document::{Element, RawArray, RawDocument};
use crate::error::{WireError, WireErrorKind};
use crate::read::{Reader, saturate};
use crate::server::ObjectId;

/// The type byte of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum ElementType {
    /// 64-bit binary floating point.
    Double = 0x01,
    /// UTF-8 text.
    String = 0x02,
    /// A document within a document.
    Document = 0x03,
    /// An array.
    Array = 0x04,
    /// Bytes with a subtype.
    Binary = 0x05,
    /// Undefined (deprecated).
    Undefined = 0x06,
    /// A 12-byte identifier.
    ObjectId = 0x07,
    /// True or false.
    Boolean = 0x08,
    /// Milliseconds since the Unix epoch.
    DateTime = 0x09,
    /// No value.
    Null = 0x0a,
    /// A regular expression.
    Regex = 0x0b,
    /// A reference to another collection (deprecated).
    DbPointer = 0x0c,
    /// JavaScript code.
    JavaScript = 0x0d,
    /// A symbol (deprecated).
    Symbol = 0x0e,
    /// JavaScript code with a scope (deprecated).
    JavaScriptWithScope = 0x0f,
    /// 32-bit integer.
    Int32 = 0x10,
    /// A server-internal time stamp.
    Timestamp = 0x11,
    /// 64-bit integer.
    Int64 = 0x12,
    /// 128-bit decimal floating point.
    Decimal128 = 0x13,
    /// Sorts before all other values.
    MinKey = 0xff,
    /// Sorts after all other values.
    MaxKey = 0x7f,
}

impl ElementType {
    /// The type for this type byte; `None` if BSON has none.
    #[must_use]
    pub const fn from_tag(tag: u8) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Boolean,
            0x09 => Self::DateTime,
            0x0a => Self::Null,
            0x0b => Self::Regex,
            0x0c => Self::DbPointer,
            0x0d => Self::JavaScript,
            0x0e => Self::Symbol,
            0x0f => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0xff => Self::MinKey,
            0x7f => Self::MaxKey,
            _ => return None,
        })
    }

    /// The type byte.
    #[must_use]
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The name in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::Document => "document",
            Self::Array => "array",
            Self::Binary => "binary",
            Self::Undefined => "undefined",
            Self::ObjectId => "ObjectId",
            Self::Boolean => "boolean",
            Self::DateTime => "datetime",
            Self::Null => "null",
            Self::Regex => "regular expression",
            Self::DbPointer => "DBPointer",
            Self::JavaScript => "JavaScript",
            Self::Symbol => "symbol",
            Self::JavaScriptWithScope => "JavaScript with scope",
            Self::Int32 => "int32",
            Self::Timestamp => "timestamp",
            Self::Int64 => "int64",
            Self::Decimal128 => "decimal128",
            Self::MinKey => "min key",
            Self::MaxKey => "max key",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes with a subtype. For the old subtype 2 these are the inner bytes, without the inner length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binary<'a> {
    /// The meaning of the bytes: 0 generic, 2 generic (old), 4 UUID, and so on.
    pub subtype: u8,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A regular expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Regex<'a> {
    /// The pattern.
    pub pattern: &'a str,
    /// The option letters.
    pub options: &'a str,
}

/// A server-internal time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the Unix epoch.
    pub time_s: u32,
    /// Ordinal within the second.
    pub increment: u32,
}

/// A value, borrowed from its document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RawValue<'a> {
    /// 64-bit binary floating point.
    Double(f64),
    /// UTF-8 text.
    String(&'a str),
    /// A document.
    Document(RawDocument<'a>),
    /// An array.
    Array(RawArray<'a>),
    /// Bytes with a subtype.
    Binary(Binary<'a>),
    /// Undefined (deprecated).
    Undefined,
    /// A 12-byte identifier.
    ObjectId(ObjectId),
    /// True or false.
    Boolean(bool),
    /// Milliseconds since the Unix epoch.
    DateTime(i64),
    /// No value.
    Null,
    /// A regular expression.
    Regex(Regex<'a>),
    /// A reference to another collection (deprecated).
    DbPointer {
        /// The collection.
        namespace: &'a str,
        /// The document in it.
        id: ObjectId,
    },
    /// JavaScript code.
    JavaScript(&'a str),
    /// A symbol (deprecated).
    Symbol(&'a str),
    /// JavaScript code with a scope (deprecated).
    JavaScriptWithScope {
        /// The code.
        code: &'a str,
        /// Its variables.
        scope: RawDocument<'a>,
    },
    /// 32-bit integer.
    Int32(i32),
    /// A server-internal time stamp.
    Timestamp(Timestamp),
    /// 64-bit integer.
    Int64(i64),
    /// 128-bit decimal floating point, as its sixteen bytes.
    Decimal128([u8; 16]),
    /// Sorts before all other values.
    MinKey,
    /// Sorts after all other values.
    MaxKey,
}

impl<'a> RawValue<'a> {
    /// The type.
    #[must_use]
    pub const fn element_type(&self) -> ElementType {
        match self {
            Self::Double(_) => ElementType::Double,
            Self::String(_) => ElementType::String,
            Self::Document(_) => ElementType::Document,
            Self::Array(_) => ElementType::Array,
            Self::Binary(_) => ElementType::Binary,
            Self::Undefined => ElementType::Undefined,
            Self::ObjectId(_) => ElementType::ObjectId,
            Self::Boolean(_) => ElementType::Boolean,
            Self::DateTime(_) => ElementType::DateTime,
            Self::Null => ElementType::Null,
            Self::Regex(_) => ElementType::Regex,
            Self::DbPointer { .. } => ElementType::DbPointer,
            Self::JavaScript(_) => ElementType::JavaScript,
            Self::Symbol(_) => ElementType::Symbol,
            Self::JavaScriptWithScope { .. } => ElementType::JavaScriptWithScope,
            Self::Int32(_) => ElementType::Int32,
            Self::Timestamp(_) => ElementType::Timestamp,
            Self::Int64(_) => ElementType::Int64,
            Self::Decimal128(_) => ElementType::Decimal128,
            Self::MinKey => ElementType::MinKey,
            Self::MaxKey => ElementType::MaxKey,
        }
    }

    /// The text if this is a string.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The document if this is a document.
    #[must_use]
    pub fn as_document(self) -> Option<RawDocument<'a>> {
        if let Self::Document(document) = self { Some(document) } else { None }
    }

    /// The array if this is an array.
    #[must_use]
    pub fn as_array(self) -> Option<RawArray<'a>> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }

    /// Bytes and subtype if this is a binary.
    #[must_use]
    pub fn as_binary(self) -> Option<Binary<'a>> {
        if let Self::Binary(binary) = self { Some(binary) } else { None }
    }

    /// The id if this is an `ObjectId`.
    #[must_use]
    pub fn as_object_id(self) -> Option<ObjectId> {
        if let Self::ObjectId(id) = self { Some(id) } else { None }
    }

    /// The boolean if this is a boolean.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(value) } else { None }
    }

    /// Milliseconds since the Unix epoch if this is a datetime.
    #[must_use]
    pub fn as_date_time_ms(self) -> Option<i64> {
        if let Self::DateTime(ms) = self { Some(ms) } else { None }
    }

    /// The number if this is an int32, an int64, or a double without a fraction.
    #[must_use]
    pub fn as_integer(self) -> Option<i64> {
        if let Self::Int32(value) = self {
            Some(i64::from(value))
        } else if let Self::Int64(value) = self {
            Some(value)
        } else if let Self::Double(value) = self {
            whole(value)
        } else {
            None
        }
    }

    /// The boolean, or whether a number is not zero (true for NaN).
    #[must_use]
    pub fn as_flag(self) -> Option<bool> {
        if let Self::Boolean(value) = self {
            Some(value)
        } else if let Self::Int32(value) = self {
            Some(value != 0)
        } else if let Self::Int64(value) = self {
            Some(value != 0)
        } else if let Self::Double(value) = self {
            // Neither +0 nor -0.
            Some(value.to_bits() << 1 != 0)
        } else {
            None
        }
    }
}

/// A double as an integer, if it has no fraction and fits.
fn whole(value: f64) -> Option<i64> {
    const FRACTION_BITS: u32 = 52;
    const EXPONENT_BIAS: u32 = 1023;
    let bits = value.to_bits();
    if bits << 1 == 0 {
        return Some(0);
    }
    // Uses integer operations only: many microcontrollers have no floating-point unit, and would
    // need emulation code.
    let exponent = u32::try_from(bits >> FRACTION_BITS & 0x7ff).ok()?.checked_sub(EXPONENT_BIAS)?;
    let digits = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
    let is_negative = bits >> 63 != 0;
    let magnitude = match FRACTION_BITS.checked_sub(exponent) {
        Some(below) if digits.trailing_zeros() < below => return None,
        Some(below) => digits >> below,
        None if exponent < 63 => digits << (exponent - FRACTION_BITS),
        // The only valid number with exponent 63: `i64::MIN`.
        None if exponent == 63 && is_negative && digits == 1 << FRACTION_BITS => return Some(i64::MIN),
        None => return None,
    };
    let magnitude = magnitude.cast_signed();
    Some(if is_negative { -magnitude } else { magnitude })
}

/// An element of known length, with a value that is not decoded yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(super) element_type: ElementType,
    pub(crate) key: &'a [u8],
    pub(super) key_at: u32,
    pub(super) value: Reader<'a>,
}

/// Takes the next element from the front of `elements`; `None` at the end.
#[inline(always)]
pub(super) fn next_raw<'a>(elements: &mut Reader<'a>) -> Result<Option<Raw<'a>>, WireError> {
    if elements.rest.is_empty() { Ok(None) } else { take_raw(elements).map(Some) }
}

#[inline]
fn take_raw<'a>(elements: &mut Reader<'a>) -> Result<Raw<'a>, WireError> {
    let start = *elements;
    let tag = elements.u8()?;
    let Some(element_type) = ElementType::from_tag(tag) else {
        return Err(start.error(match tag {
            0 => WireErrorKind::Terminator,
            _ => WireErrorKind::ElementTag { tag },
        }));
    };
    let key_at = elements.at;
    let key = elements.until_nul()?;
    let len = value_len(element_type, *elements)?;
    let at = elements.at;
    let value = Reader::new(elements.take(len)?, at);
    Ok(Raw { element_type, key, key_at, value })
}

/// The claimed length in bytes of the value at the front of `rest`.
#[inline]
fn value_len(element_type: ElementType, mut rest: Reader<'_>) -> Result<usize, WireError> {
    Ok(match element_type {
        ElementType::Undefined | ElementType::Null | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::Boolean => 1,
        ElementType::Int32 => 4,
        ElementType::Double | ElementType::DateTime | ElementType::Timestamp | ElementType::Int64 => 8,
        ElementType::ObjectId => 12,
        ElementType::Decimal128 => 16,
        ElementType::String | ElementType::JavaScript | ElementType::Symbol => string_len(rest)?,
        ElementType::DbPointer => string_len(rest)?.saturating_add(12),
        ElementType::Document | ElementType::Array => {
            let length_bytes = rest.peek_i32()?;
            let found_bytes = saturate(rest.rest.len());
            claimed(length_bytes, 5, rest)
                .ok_or_else(|| rest.error(WireErrorKind::DocumentLength { length_bytes, found_bytes }))?
        }
        ElementType::JavaScriptWithScope => {
            let length_bytes = rest.peek_i32()?;
            claimed(length_bytes, 14, rest).ok_or_else(|| rest.error(WireErrorKind::ScopeLength { length_bytes }))?
        }
        ElementType::Binary => {
            let length_bytes = rest.peek_i32()?;
            let inner = claimed(length_bytes, 0, rest)
                .ok_or_else(|| rest.error(WireErrorKind::BinaryLength { length_bytes }))?;
            inner.saturating_add(5)
        }
        ElementType::Regex => {
            let before = rest.rest.len();
            rest.until_nul()?;
            rest.until_nul()?;
            before.saturating_sub(rest.rest.len())
        }
    })
}

/// A claimed length as `usize`, if it is at least `min` and at most the bytes available.
#[inline]
fn claimed(length_bytes: i32, min: usize, rest: Reader<'_>) -> Option<usize> {
    usize::try_from(length_bytes).ok().filter(|len| (min..=rest.rest.len()).contains(len))
}

/// The length of a string in bytes, including its length prefix.
#[inline]
fn string_len(rest: Reader<'_>) -> Result<usize, WireError> {
    let length_bytes = rest.peek_i32()?;
    let text =
        claimed(length_bytes, 1, rest).ok_or_else(|| rest.error(WireErrorKind::StringLength { length_bytes }))?;
    Ok(text.saturating_add(4))
}

/// Checks that bytes are UTF-8. `at`: their offset, for the error.
#[inline]
pub(super) fn text(bytes: &[u8], at: u32) -> Result<&str, WireError> {
    core::str::from_utf8(bytes)
        .map_err(|error| WireError::new(WireErrorKind::Utf8, at.saturating_add(saturate(error.valid_up_to()))))
}

/// Takes the bytes of a length-prefixed string.
#[inline]
pub(super) fn string_bytes<'a>(value: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let len = string_len(*value)?;
    value.take(4)?;
    match value.take(len.saturating_sub(4))?.split_last() {
        Some((0, head)) => Ok(head),
        Some(_) | None => Err(value.error(WireErrorKind::Terminator)),
    }
}

/// Takes a length-prefixed string.
fn string<'a>(value: &mut Reader<'a>) -> Result<&'a str, WireError> {
    let at = value.at.saturating_add(4);
    text(string_bytes(value)?, at)
}

/// Takes a zero-terminated string.
fn cstring<'a>(value: &mut Reader<'a>) -> Result<&'a str, WireError> {
    let at = value.at;
    text(value.until_nul()?, at)
}

impl<'a> Raw<'a> {
    /// Decodes the value. O(1), except for the UTF-8 check of text.
    #[inline]
    pub(crate) fn decode(self) -> Result<RawValue<'a>, WireError> {
        let mut value = self.value;
        Ok(match self.element_type {
            ElementType::Double => RawValue::Double(f64::from_le_bytes(value.array()?)),
            ElementType::String => RawValue::String(string(&mut value)?),
            ElementType::Document => RawValue::Document(RawDocument::open(value)?),
            ElementType::Array => RawValue::Array(RawArray::from_document(RawDocument::open(value)?)),
            ElementType::Binary => RawValue::Binary(binary(value)?),
            ElementType::Undefined => RawValue::Undefined,
            ElementType::ObjectId => RawValue::ObjectId(ObjectId(value.array()?)),
            ElementType::Boolean => match value.u8()? {
                0 => RawValue::Boolean(false),
                1 => RawValue::Boolean(true),
                other => return Err(self.value.error(WireErrorKind::Boolean { value: other })),
            },
            ElementType::DateTime => RawValue::DateTime(i64::from_le_bytes(value.array()?)),
            ElementType::Null => RawValue::Null,
            ElementType::Regex => {
                let pattern = cstring(&mut value)?;
                RawValue::Regex(Regex { pattern, options: cstring(&mut value)? })
            }
            ElementType::DbPointer => {
                let namespace = string(&mut value)?;
                RawValue::DbPointer { namespace, id: ObjectId(value.array()?) }
            }
            ElementType::JavaScript => RawValue::JavaScript(string(&mut value)?),
            ElementType::Symbol => RawValue::Symbol(string(&mut value)?),
            ElementType::JavaScriptWithScope => {
                let (code, scope) = self.code_and_scope()?;
                RawValue::JavaScriptWithScope { code: text(code, self.value.at.saturating_add(8))?, scope }
            }
            ElementType::Int32 => RawValue::Int32(value.i32()?),
            ElementType::Timestamp => {
                let increment = u32::from_le_bytes(value.array()?);
                RawValue::Timestamp(Timestamp { time_s: u32::from_le_bytes(value.array()?), increment })
            }
            ElementType::Int64 => RawValue::Int64(i64::from_le_bytes(value.array()?)),
            ElementType::Decimal128 => RawValue::Decimal128(value.array()?),
            ElementType::MinKey => RawValue::MinKey,
            ElementType::MaxKey => RawValue::MaxKey,
        })
    }

    /// The parts of JavaScript code with a scope.
    pub(super) fn code_and_scope(self) -> Result<(&'a [u8], RawDocument<'a>), WireError> {
        let mut value = self.value;
        let length_bytes = value.i32()?;
        let code = string_bytes(&mut value)?;
        let scope =
            RawDocument::open(value).map_err(|_| self.value.error(WireErrorKind::ScopeLength { length_bytes }))?;
        Ok((code, scope))
    }

    /// The document in the value (of code with scope: the scope). Of other values, the lengths and
    /// terminators are checked, and nothing that only a conversion needs.
    #[inline]
    pub(super) fn document(self) -> Result<Option<RawDocument<'a>>, WireError> {
        match self.element_type {
            ElementType::Document | ElementType::Array => RawDocument::open(self.value).map(Some),
            ElementType::JavaScriptWithScope => self.code_and_scope().map(|(_, scope)| Some(scope)),
            ElementType::String | ElementType::DbPointer | ElementType::JavaScript | ElementType::Symbol => {
                let mut value = self.value;
                string_bytes(&mut value).map(|_| None)
            }
            ElementType::Double
            | ElementType::Binary
            | ElementType::Undefined
            | ElementType::ObjectId
            | ElementType::Boolean
            | ElementType::DateTime
            | ElementType::Null
            | ElementType::Regex
            | ElementType::Int32
            | ElementType::Timestamp
            | ElementType::Int64
            | ElementType::Decimal128
            | ElementType::MinKey
            | ElementType::MaxKey => Ok(None),
        }
    }

    /// The text if this is a string: the part of it that is UTF-8.
    pub(crate) fn text_front(self) -> Option<&'a str> {
        let mut value = self.value;
        let bytes = string_bytes(&mut value).ok().filter(|_| self.element_type == ElementType::String)?;
        let front = |error: Utf8Error| str::from_utf8(bytes.get(..error.valid_up_to()).unwrap_or_default());
        str::from_utf8(bytes).or_else(front).ok()
    }

    /// The offset after the value.
    pub(super) fn end(self) -> u32 {
        self.value.at.saturating_add(saturate(self.value.rest.len()))
    }

    /// The element, with its value decoded.
    #[inline]
    pub(crate) fn element(self) -> Result<Element<'a>, WireError> {
        self.element_of(text(self.key, self.key_at)?)
    }

    /// The element, with its value decoded and a key that is known to be its own.
    pub(crate) fn element_of(self, key: &'a str) -> Result<Element<'a>, WireError> {
        Ok(Element { key, value: self.decode()?, offset: self.value.at })
    }
}

/// The old generic subtype; its bytes begin with a second length.
pub(super) const SUBTYPE_OLD: u8 = 2;

fn binary(mut value: Reader<'_>) -> Result<Binary<'_>, WireError> {
    value.take(4)?;
    let subtype = value.u8()?;
    if subtype == SUBTYPE_OLD {
        let inner = value;
        let length_bytes = value.i32()?;
        if usize::try_from(length_bytes) != Ok(value.rest.len()) {
            return Err(inner.error(WireErrorKind::BinaryLength { length_bytes }));
        }
    }
    Ok(Binary { subtype, bytes: value.rest })
}
