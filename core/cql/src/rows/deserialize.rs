//! Rows as values of types with serde's `Deserialize`.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

mod compound;
mod error;
#[cfg(test)]
mod tests;

pub use error::RowError;

use super::kind::id;
use super::shape::{self, Field, Inner, Shape, TOO_LONG};
use super::{Cells, Rows, read_inet};
use crate::types::pass::name;
use crate::types::{Date, Decimal, Duration, Time, Timestamp, Uuid, VARINT_DECIMAL_BYTES_MAX, Varint, varint};
use alloc::borrow::Cow;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use compound::{Length, whole};
use core::any::type_name;
use core::fmt::{self, Write as _};
use error::MALFORMED;
use serde::de::value::{BorrowedBytesDeserializer, BorrowedStrDeserializer, MapDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

/// The maximum length in bytes of the text of a value that is not a varint, a decimal number or a text
/// itself.
const LITERAL_BYTES_MAX: usize = 96;

impl<'a> Rows<'a> {
    /// Decodes each row as a value of this type: a struct or a map with a field for each column, or a
    /// tuple or a list of the columns in their order. Text and bytes may be borrowed from the reply.
    ///
    /// [`Type`](super::Type) has the table of types, and the meaning of null and of empty values.
    ///
    /// Cost: linear in the rows. Allocates the description of the columns once, and what the type
    /// allocates.
    ///
    /// # Errors
    ///
    /// [`RowError`] names the column. The next row can be decoded nevertheless. If the reply does not
    /// describe its columns, or with more than 8,192 types or 1 MiB, there is one error instead of all
    /// rows.
    ///
    /// # Example
    ///
    /// ```
    /// use poolhouse_cql::{RowError, Rows};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order<'a> {
    ///     id: i32,
    ///     customer: &'a str,
    ///     note: Option<&'a str>,
    /// }
    ///
    /// fn customers<'a>(rows: Rows<'a>) -> Result<Vec<&'a str>, RowError> {
    ///     rows.deserialize().map(|row| row.map(|order: Order<'a>| order.customer)).collect()
    /// }
    /// ```
    pub fn deserialize<T: Deserialize<'a>>(self) -> impl Iterator<Item = Result<T, RowError>> + use<'a, T> {
        let (columns, error) = match self.described() {
            Ok(columns) => (columns, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let rows = if error.is_some() { None } else { Some(self) };
        let values = rows.into_iter().flatten().map(move |cells| T::deserialize(Row { columns: &columns, cells }));
        error.map(Err).into_iter().chain(values)
    }

    /// Returns the names and the types of the columns.
    fn described(&self) -> Result<Vec<Field<'a>>, RowError> {
        if self.columns.len() != self.column_count {
            return Err(RowError::new("the columns are not described: send the request without skip_metadata"));
        }
        shape::fields(self.columns).ok_or_else(|| RowError::new(TOO_LONG))
    }
}

/// The columns and cells of a row that are left.
struct Row<'c, 'a> {
    columns: &'c [Field<'a>],
    cells: Cells<'a>,
}

impl<'a> Row<'_, 'a> {
    /// Reads the value of the next column, if there is one.
    fn next_value<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, RowError> {
        let Some(((name, shape), left)) = self.columns.split_first() else { return Ok(None) };
        self.columns = left;
        let value = Value { shape, bytes: self.cells.next().flatten() };
        let value = seed.deserialize(value).map(Some);
        value.map_err(|error| error.in_column(name, shape, type_name::<S::Value>()))
    }
}

impl<'a> Deserializer<'a> for Row<'_, 'a> {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'a>>(mut self, visitor: V) -> Result<V::Value, RowError> {
        let count = self.columns.len();
        let value = visitor.visit_map(&mut self)?;
        whole(value, self.columns.len(), count)
    }

    fn deserialize_seq<V: Visitor<'a>>(mut self, visitor: V) -> Result<V::Value, RowError> {
        let count = self.columns.len();
        let value = visitor.visit_seq(&mut self)?;
        whole(value, self.columns.len(), count)
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct map struct enum identifier ignored_any
    }
}

impl<'a> MapAccess<'a> for Row<'_, 'a> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        self.columns.first().map(|(name, _)| deserialize_name(name, seed)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        self.next_value(seed)?.ok_or_else(|| RowError::new("a value without a column"))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.columns.len())
    }
}

impl<'a> SeqAccess<'a> for Row<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        self.next_value(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.columns.len())
    }
}

/// The name of a column or of a field. Only the text of a class has names that cannot be borrowed.
fn deserialize_name<'a, K: DeserializeSeed<'a>>(name: &Cow<'a, str>, seed: K) -> Result<K::Value, RowError> {
    match name {
        Cow::Borrowed(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
        Cow::Owned(name) => seed.deserialize(name.as_str().into_deserializer()),
    }
}

/// A cell, an element of a collection or a field, with its type.
#[derive(Clone, Copy)]
struct Value<'c, 'a> {
    shape: &'c Shape<'a>,
    bytes: Option<&'a [u8]>,
}

fn fixed<const BYTES: usize>(bytes: &[u8]) -> Result<[u8; BYTES], RowError> {
    let wrong = || RowError::new(format_args!("a value of {} bytes, not {BYTES}", bytes.len()));
    bytes.try_into().map_err(|_| wrong())
}

fn text(bytes: &[u8]) -> Result<&str, RowError> {
    core::str::from_utf8(bytes).map_err(|_| RowError::new("a text that is not valid UTF-8"))
}

/// Visits the text of a value that was read.
fn visit_literal<'a, V: Visitor<'a>>(value: Option<impl fmt::Display>, visitor: V) -> Result<V::Value, RowError> {
    let value = value.ok_or_else(|| RowError::new(MALFORMED))?;
    let mut text = heapless::String::<LITERAL_BYTES_MAX>::new();
    match write!(text, "{value}") {
        Ok(()) => visitor.visit_str(&text),
        Err(_) => visitor.visit_string(value.to_string()),
    }
}

impl<'a> Value<'_, 'a> {
    /// Reads a value inside another one.
    fn inside<S: DeserializeSeed<'a>>(self, seed: S) -> Result<S::Value, RowError> {
        seed.deserialize(self).map_err(|error| error.inside(self.shape))
    }

    /// Returns its bytes; `None` if it is null.
    fn content(self) -> Result<Option<&'a [u8]>, RowError> {
        match self.bytes {
            Some([]) if !self.shape.has_empty() => Err(RowError::new("an empty value: read it as MaybeEmpty")),
            bytes => Ok(bytes),
        }
    }

    /// Returns the bytes of a UUID or of an address, if they can be one.
    fn of_length(self, bytes: &'a [u8]) -> Result<&'a [u8], RowError> {
        if self.shape.is_length(bytes.len()) { Ok(bytes) } else { Err(RowError::new(MALFORMED)) }
    }

    /// The error of a target that its type does not have. Null has every type.
    #[cold]
    fn mismatch<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        if self.bytes.is_none() {
            return visitor.visit_unit();
        }
        // The type of the value is added later.
        Err(de::Error::invalid_type(Unexpected::Other(""), &visitor))
    }

    fn visit_integer<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let Some(bytes) = self.content()? else { return visitor.visit_unit() };
        match self.shape.id() {
            id::INT => visitor.visit_i32(i32::from_be_bytes(fixed(bytes)?)),
            id::BIGINT | id::COUNTER | id::TIMESTAMP => visitor.visit_i64(i64::from_be_bytes(fixed(bytes)?)),
            id::TIME => match Time::read(bytes) {
                Some(time) => visitor.visit_u64(time.ns()),
                None => Err(RowError::new(MALFORMED)),
            },
            id::SMALLINT => visitor.visit_i16(i16::from_be_bytes(fixed(bytes)?)),
            id::TINYINT => visitor.visit_i8(i8::from_be_bytes(fixed(bytes)?)),
            // Day 2^31 is 1970-01-01.
            id::DATE => visitor.visit_i64(i64::from(u32::from_be_bytes(fixed(bytes)?)) - (1 << 31)),
            id::VARINT => match (varint::to_i128(bytes), varint::to_u128(bytes)) {
                // The integers of serde take the narrower ones.
                (Some(number), _) => match (i64::try_from(number), u64::try_from(number)) {
                    (Ok(number), _) => visitor.visit_i64(number),
                    (_, Ok(number)) => visitor.visit_u64(number),
                    _ => visitor.visit_i128(number),
                },
                (_, Some(number)) => visitor.visit_u128(number),
                _ => Err(RowError::out_of_range(&visitor)),
            },
            _ => self.mismatch(visitor),
        }
    }

    fn visit_text<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let Some(bytes) = self.content()? else { return visitor.visit_unit() };
        let digits = match self.shape.id() {
            id::VARINT => bytes,
            id::DECIMAL => bytes.get(4..).unwrap_or_default(), // after the scale
            _ => &[],
        };
        // Longer ones have no decimal digits as a text.
        if varint::shortest(digits).len() > VARINT_DECIMAL_BYTES_MAX {
            return Err(RowError::out_of_range(&visitor));
        }
        match self.shape.id() {
            id::ASCII | id::VARCHAR => visitor.visit_borrowed_str(text(bytes)?),
            id::UUID | id::TIMEUUID => visit_literal(Uuid::read(bytes), visitor),
            id::INET => visit_literal(read_inet(bytes), visitor),
            id::TIMESTAMP => visit_literal(Timestamp::read(bytes), visitor),
            id::DATE => visit_literal(Date::read(bytes), visitor),
            id::TIME => visit_literal(Time::read(bytes), visitor),
            id::DURATION => visit_literal(Duration::read(bytes), visitor),
            id::DECIMAL => visit_literal(Decimal::read(bytes), visitor),
            id::VARINT => visit_literal(Varint::read(bytes), visitor),
            _ => self.mismatch(visitor),
        }
    }
}

/// Methods that do what another one does.
macro_rules! forward {
    ($to:ident: $($method:ident)+) => {
        $(fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
            self.$to(visitor)
        })+
    };
}

impl<'a> Deserializer<'a> for Value<'_, 'a> {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let Some(bytes) = self.content()? else { return visitor.visit_unit() };
        match &self.shape.inner {
            Inner::None => {}
            Inner::Element(_) | Inner::Vector(_) | Inner::Fields(_) => {
                return self.visit_elements(Length::Any, visitor);
            }
            Inner::Entry(_) | Inner::Udt(_) => return self.visit_entries(&[], visitor),
        }
        match self.shape.id() {
            id::BOOLEAN => self.deserialize_bool(visitor),
            id::DOUBLE => visitor.visit_f64(f64::from_be_bytes(fixed(bytes)?)),
            id::FLOAT => visitor.visit_f32(f32::from_be_bytes(fixed(bytes)?)),
            id::INT | id::BIGINT | id::COUNTER | id::SMALLINT | id::TINYINT => self.visit_integer(visitor),
            // What keeps untyped values, as serde itself does, often has no wider integers.
            id::VARINT if varint::to_i128(bytes).is_some_and(is_narrow) => self.visit_integer(visitor),
            _ if self.shape.is_bytes() => visitor.visit_borrowed_bytes(bytes),
            _ => self.visit_text(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match (self.shape.id(), self.content()?) {
            (id::BOOLEAN, Some(bytes)) => visitor.visit_bool(fixed::<1>(bytes)? != [0]),
            _ => self.mismatch(visitor),
        }
    }

    forward! {
        visit_integer: deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
            deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    forward! {
        visit_text: deserialize_str deserialize_string deserialize_identifier
    }

    /// The visitors of serde round wider numbers, so only exact ones reach them.
    fn deserialize_f32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match (self.shape.id(), self.content()?) {
            (id::FLOAT, Some(bytes)) => visitor.visit_f32(f32::from_be_bytes(fixed(bytes)?)),
            (id::DOUBLE, Some(bytes)) => match narrowed(f64::from_be_bytes(fixed(bytes)?)) {
                Some(number) => visitor.visit_f32(number),
                None => Err(RowError::out_of_range(&visitor)),
            },
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match (self.shape.id(), self.content()?) {
            (id::FLOAT, Some(bytes)) => visitor.visit_f64(f32::from_be_bytes(fixed(bytes)?).into()),
            (id::DOUBLE, Some(bytes)) => visitor.visit_f64(f64::from_be_bytes(fixed(bytes)?)),
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_char<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.shape.id() {
            id::ASCII | id::VARCHAR => self.visit_text(visitor),
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let Some(bytes) = self.content()? else { return visitor.visit_unit() };
        match self.shape.id() {
            id::ASCII | id::VARCHAR => visitor.visit_borrowed_bytes(bytes),
            id::UUID | id::TIMEUUID | id::INET => visitor.visit_borrowed_bytes(self.of_length(bytes)?),
            _ if self.shape.is_bytes() => visitor.visit_borrowed_bytes(bytes),
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.bytes {
            Some(_) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, name: &'static str, visitor: V) -> Result<V::Value, RowError> {
        let Some(own) = name::own(name) else { return visitor.visit_newtype_struct(self) };
        if own == name::MAYBE_EMPTY {
            let is_empty = self.bytes.is_some_and(<[u8]>::is_empty) && !self.shape.has_empty();
            return if is_empty { visitor.visit_none() } else { visitor.visit_some(self) };
        }
        match self.content()? {
            Some(bytes) if self.shape.is_own(own) => visitor.visit_newtype_struct(Raw { shape: self.shape, bytes }),
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_elements(Length::Any, visitor)
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, RowError> {
        self.visit_elements(Length::Fixed, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_entries(&[], visitor)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.visit_entries(names, visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        match (self.shape.id(), self.bytes) {
            (id::ASCII | id::VARCHAR, Some(bytes)) => visitor.visit_enum(BorrowedStrDeserializer::new(text(bytes)?)),
            _ => self.mismatch(visitor),
        }
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.mismatch(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, RowError> {
        self.mismatch(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }
}

/// Whether an integer of 64 bits has the value.
fn is_narrow(number: i128) -> bool {
    i64::try_from(number).is_ok() || u64::try_from(number).is_ok()
}

/// The same number with less precision; `None` if there is none.
pub(super) fn narrowed(number: f64) -> Option<f32> {
    #[allow(clippy::cast_possible_truncation, reason = "a changed value is refused")]
    let narrow = number as f32;
    (f64::from(narrow).to_bits() == number.to_bits() || number.is_nan()).then_some(narrow)
}

/// The bytes of a cell for a type of this crate, whatever it asks for.
struct Raw<'c, 'a> {
    shape: &'c Shape<'a>,
    bytes: &'a [u8],
}

impl<'a> Deserializer<'a> for Raw<'_, 'a> {
    type Error = RowError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_borrowed_bytes(self.bytes)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let class = self.shape.kind.class().unwrap_or_default();
        let pair = (BorrowedStrDeserializer::new(class), BorrowedBytesDeserializer::new(self.bytes));
        visitor.visit_map(MapDeserializer::new(core::iter::once(pair)))
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct struct enum identifier ignored_any
    }
}
