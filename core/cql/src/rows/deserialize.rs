//! Rows as values of types with serde's `Deserialize`.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

#[cfg(test)]
mod tests;

use super::{Cells, Elements, Pairs, Rows, Type, id, read_inet, shortened};
use crate::error::CqlError;
use crate::notation::Reader;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

/// The maximum length in bytes of the name of a column in an error; the rest is left out.
const COLUMN_BYTES_MAX: usize = 48;
/// The maximum length in bytes of the text of an error; the rest is left out.
const TEXT_BYTES_MAX: usize = 96;

/// The maximum number of types in the description of a result. The description is read once for all
/// rows, and takes up to 64 bytes for each type.
const TYPES_MAX: usize = 65_536;

/// Why a row is not a value of the wanted type. Has no values of the row, which may be secret, unless
/// the type's own `Deserialize` writes them into its errors.
#[derive(Clone, PartialEq, Eq)]
pub struct RowError {
    /// Empty if the error is not that of one column.
    column: String,
    text: String,
}

impl RowError {
    /// The name of the column whose value is not of the wanted type; its first 48 bytes. Empty if the
    /// error is that of the row.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.column
    }

    fn in_column(mut self, name: &str) -> Self {
        if self.column.is_empty() {
            self.column = shortened(name, COLUMN_BYTES_MAX);
        }
        self
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.column.is_empty() {
            // The name is the server's text.
            write!(f, "column {}: ", self.column.escape_debug())?;
        }
        f.write_str(&self.text)
    }
}

poolhouse_wire::debug_as_display!(RowError);

impl core::error::Error for RowError {}

impl de::Error for RowError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { column: String::new(), text: shortened(&text.to_string(), TEXT_BYTES_MAX) }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{}, expected {expected}", kind_of(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{} that is not {expected}", kind_of(found)))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format_args!("a field that is not one of {expected:?}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format_args!("a text that is not one of {expected:?}"))
    }
}

/// The kind of a value, without the value.
const fn kind_of(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a floating-point number",
        Unexpected::Char(_) | Unexpected::Str(_) => "a text",
        Unexpected::Bytes(_) => "bytes",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "a map",
        Unexpected::NewtypeStruct
        | Unexpected::Enum
        | Unexpected::UnitVariant
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant
        | Unexpected::Other(_) => "another value",
    }
}

impl From<CqlError> for RowError {
    fn from(error: CqlError) -> Self {
        Self::custom(error)
    }
}

impl<'a> Rows<'a> {
    /// Decodes each row as a value of this type: a struct or a map with a field for each column, or a
    /// tuple or a list of the columns in their order. Text and bytes may be borrowed from the reply.
    ///
    /// | type of the column | serde |
    /// |---|---|
    /// | ascii, varchar | string; an enum without data by its name |
    /// | tinyint, smallint, int, bigint, counter, varint of at most 16 bytes | integer |
    /// | timestamp | integer: milliseconds since 1970 |
    /// | date | integer: days since 1970-01-01 |
    /// | time | integer: nanoseconds since midnight |
    /// | float, double; boolean | number; bool |
    /// | blob | bytes, or a list of bytes |
    /// | uuid, timeuuid; inet | string as `IpAddr` and the crate `uuid` read it; or its bytes |
    /// | list, set, tuple; map | list; map |
    /// | user-defined type | struct or map, or a list of the fields |
    /// | decimal, duration, custom types and vectors | bytes, as received |
    ///
    /// Null is `None` of an `Option`. So is an empty value of any type but text and bytes.
    ///
    /// Cost: linear in the rows. Allocates the description of the columns once, and what the type
    /// allocates.
    ///
    /// # Errors
    ///
    /// [`RowError`] names the column. The next row can be decoded nevertheless. If the reply does not
    /// describe its columns, or with more than 65,536 types, there is one error instead of all rows.
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
    fn described(&self) -> Result<Vec<(&'a str, Kind<'a>)>, RowError> {
        if self.columns.len() != self.column_count {
            return Err(RowError::custom("the columns are not described: send the request without skip_metadata"));
        }
        let mut left = TYPES_MAX;
        self.columns.map(|column| Ok((column.name, Kind::of(column.kind, &mut left)?))).collect()
    }
}

/// A type, with those that it contains.
enum Kind<'a> {
    /// The number of a type that contains no others.
    Simple(u16),
    /// A list or a set.
    Elements(Box<Self>),
    /// A map.
    Entries(Box<(Self, Self)>),
    /// A tuple, whose fields have no names.
    Tuple(Vec<(&'a str, Self)>),
    /// A user-defined type.
    Udt(Vec<(&'a str, Self)>),
}

impl<'a> Kind<'a> {
    /// - `left`: the number of types that may be read.
    fn of(kind: Type<'a>, left: &mut usize) -> Result<Self, RowError> {
        *left = left.checked_sub(1).ok_or_else(|| RowError::custom("more than 65,536 types in one result"))?;
        let mut inner = kind.inner;
        Ok(match kind.id {
            Type::LIST | Type::SET => Self::Elements(Box::new(Self::read(&mut inner, left)?)),
            Type::MAP => Self::Entries(Box::new((Self::read(&mut inner, left)?, Self::read(&mut inner, left)?))),
            Type::TUPLE => {
                let count = inner.u16()?;
                Self::Tuple(
                    (0..count).map(|_| Ok(("", Self::read(&mut inner, left)?))).collect::<Result<_, RowError>>()?,
                )
            }
            Type::UDT => {
                inner.string()?;
                inner.string()?;
                let count = inner.u16()?;
                let mut fields = (0..count).map(|_| Ok((inner.string()?, Self::read(&mut inner, left)?)));
                Self::Udt(fields.by_ref().collect::<Result<_, RowError>>()?)
            }
            id => Self::Simple(id),
        })
    }

    /// Its depth is limited, because the description was checked: see [`TYPE_DEPTH_MAX`](super::TYPE_DEPTH_MAX).
    fn read(reader: &mut Reader<'a>, left: &mut usize) -> Result<Self, RowError> {
        Self::of(Type::read(reader, 0)?, left)
    }
}

/// The columns and cells of a row that are left.
struct Row<'c, 'a> {
    columns: &'c [(&'a str, Kind<'a>)],
    cells: Cells<'a>,
}

impl<'a> Row<'_, 'a> {
    /// Reads the value of the next column, if there is one.
    fn next_value<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, RowError> {
        let Some(((name, kind), left)) = self.columns.split_first() else { return Ok(None) };
        self.columns = left;
        let value = Value { kind, bytes: self.cells.next().flatten() };
        seed.deserialize(value).map(Some).map_err(|error| error.in_column(name))
    }
}

impl<'a> Deserializer<'a> for Row<'_, 'a> {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_map(self)
    }

    fn deserialize_seq<V: Visitor<'a>>(mut self, visitor: V) -> Result<V::Value, RowError> {
        let value = visitor.visit_seq(&mut self)?;
        whole(value, self.columns.is_empty())
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
        let Some((name, _)) = self.columns.first() else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        self.next_value(seed)?.ok_or_else(|| RowError::custom("a value without a column"))
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

/// A cell, an element of a collection or a field, with its type.
#[derive(Clone, Copy)]
struct Value<'c, 'a> {
    kind: &'c Kind<'a>,
    bytes: Option<&'a [u8]>,
}

fn fixed<const BYTES: usize>(bytes: &[u8]) -> Result<[u8; BYTES], RowError> {
    let wrong = || RowError::custom(format_args!("a value of {} bytes, not {BYTES}", bytes.len()));
    bytes.try_into().map_err(|_| wrong())
}

fn text(bytes: &[u8]) -> Result<&str, RowError> {
    core::str::from_utf8(bytes).map_err(|_| RowError::custom("a text that is not valid UTF-8"))
}

/// The usual text of a UUID: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| digits.get(group).unwrap_or_default());
    groups.join("-")
}

impl<'a> Value<'_, 'a> {
    /// Returns its bytes. `None` for null, and for an empty value unless the type has one: servers
    /// store empty values of all types.
    fn content(self) -> Option<&'a [u8]> {
        let has_empty = matches!(self.kind, Kind::Simple(id::ASCII | id::VARCHAR | id::BLOB | Type::CUSTOM));
        self.bytes.filter(|bytes| has_empty || !bytes.is_empty())
    }

    /// The value of a varint, in two's complement.
    fn visit_varint<V: Visitor<'a>>(bytes: &'a [u8], visitor: V) -> Result<V::Value, RowError> {
        let is_negative = bytes.first().is_some_and(|first| *first >= 0x80);
        let mut wide = [if is_negative { 0xff } else { 0 }; 16];
        let Some(start) = wide.len().checked_sub(bytes.len()) else { return visitor.visit_borrowed_bytes(bytes) };
        wide[start..].copy_from_slice(bytes);
        let number = i128::from_be_bytes(wide);
        // The integers of serde take the narrower ones.
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => visitor.visit_i64(number),
            (_, Ok(number)) => visitor.visit_u64(number),
            _ => visitor.visit_i128(number),
        }
    }
}

impl<'a> Deserializer<'a> for Value<'_, 'a> {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        let Some(bytes) = self.content() else { return visitor.visit_unit() };
        let id = match self.kind {
            Kind::Simple(id) => *id,
            Kind::Elements(kind) => {
                let mut list = List { kind, left: Elements::read(bytes)? };
                let value = visitor.visit_seq(&mut list)?;
                return whole(value, list.left.len() == 0);
            }
            Kind::Entries(kinds) => return visitor.visit_map(Map { kinds, left: Pairs::read(bytes)?, next: None }),
            Kind::Tuple(fields) => return Fields::new(fields, bytes).visit(visitor, true),
            Kind::Udt(fields) => return visitor.visit_map(Fields::new(fields, bytes)),
        };
        match id {
            id::ASCII | id::VARCHAR => visitor.visit_borrowed_str(text(bytes)?),
            id::BIGINT | id::COUNTER | id::TIMESTAMP | id::TIME => visitor.visit_i64(i64::from_be_bytes(fixed(bytes)?)),
            id::BOOLEAN => visitor.visit_bool(fixed::<1>(bytes)? != [0]),
            id::DOUBLE => visitor.visit_f64(f64::from_be_bytes(fixed(bytes)?)),
            id::FLOAT => visitor.visit_f32(f32::from_be_bytes(fixed(bytes)?)),
            id::INT => visitor.visit_i32(i32::from_be_bytes(fixed(bytes)?)),
            id::SMALLINT => visitor.visit_i16(i16::from_be_bytes(fixed(bytes)?)),
            id::TINYINT => visitor.visit_i8(i8::from_be_bytes(fixed(bytes)?)),
            // Day 2^31 is 1970-01-01.
            id::DATE => visitor.visit_i64(i64::from(u32::from_be_bytes(fixed(bytes)?)) - (1 << 31)),
            id::VARINT => Self::visit_varint(bytes, visitor),
            id::UUID | id::TIMEUUID => visitor.visit_string(uuid_text(fixed(bytes)?)),
            id::INET => {
                let address = read_inet(bytes).ok_or_else(|| RowError::custom("a malformed address"))?;
                visitor.visit_string(address.to_string())
            }
            _ => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.content() {
            Some(_) => visitor.visit_some(self),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match self.bytes {
            Some(bytes) => visitor.visit_borrowed_bytes(bytes),
            None => visitor.visit_unit(),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        match (self.kind, self.content()) {
            (Kind::Simple(id::BLOB | id::UUID | id::TIMEUUID | id::INET | Type::CUSTOM), Some(bytes)) => {
                let mut all = SeqDeserializer::<_, RowError>::new(bytes.iter().copied());
                let value = visitor.visit_seq(&mut all)?;
                whole(value, all.end().is_ok())
            }
            (Kind::Udt(fields), Some(bytes)) => Fields::new(fields, bytes).visit(visitor, false),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, RowError> {
        match (self.kind, self.content()) {
            (Kind::Udt(fields), Some(bytes)) => Fields::new(fields, bytes).visit(visitor, true),
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, RowError> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        match (self.kind, self.content()) {
            (Kind::Simple(id::ASCII | id::VARCHAR), Some(bytes)) => {
                visitor.visit_enum(BorrowedStrDeserializer::new(text(bytes)?))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string unit unit_struct map struct identifier
    }
}

/// Returns the value that was read, if nothing is left: values of a fixed length do not look for more.
fn whole<T>(value: T, is_whole: bool) -> Result<T, RowError> {
    if is_whole { Ok(value) } else { Err(RowError::custom("more elements than expected")) }
}

/// The elements of a list or a set that are left.
struct List<'c, 'a> {
    kind: &'c Kind<'a>,
    left: Elements<'a>,
}

impl<'a> SeqAccess<'a> for List<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        let kind = self.kind;
        self.left.next().map(|bytes| seed.deserialize(Value { kind, bytes })).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The entries of a map that are left.
struct Map<'c, 'a> {
    kinds: &'c (Kind<'a>, Kind<'a>),
    left: Pairs<'a>,
    /// The value of the key that was read.
    next: Option<&'a [u8]>,
}

impl<'a> MapAccess<'a> for Map<'_, 'a> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        self.next = value;
        seed.deserialize(Value { kind: &self.kinds.0, bytes: key }).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        seed.deserialize(Value { kind: &self.kinds.1, bytes: self.next.take() })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The fields of a tuple or of a user-defined type that are left. Fields that were added to the type
/// later have no value.
struct Fields<'c, 'a> {
    fields: &'c [(&'a str, Kind<'a>)],
    values: Reader<'a>,
    /// Whether a field without a value is null, and not missing.
    is_padded: bool,
}

impl<'c, 'a> Fields<'c, 'a> {
    const fn new(fields: &'c [(&'a str, Kind<'a>)], bytes: &'a [u8]) -> Self {
        Self { fields, values: Reader::new(bytes, 0), is_padded: false }
    }

    /// Visits the fields as a list.
    fn visit<V: Visitor<'a>>(mut self, visitor: V, is_padded: bool) -> Result<V::Value, RowError> {
        self.is_padded = is_padded;
        let value = visitor.visit_seq(&mut self)?;
        whole(value, self.first().is_none())
    }

    /// Returns the next field.
    fn first(&self) -> Option<&'c (&'a str, Kind<'a>)> {
        if self.values.rest.is_empty() && !self.is_padded { None } else { self.fields.first() }
    }

    fn next_value<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, RowError> {
        let Some((_, kind)) = self.first() else { return Ok(None) };
        self.fields = self.fields.get(1..).unwrap_or_default();
        let bytes = if self.values.rest.is_empty() { None } else { self.values.bytes()? };
        seed.deserialize(Value { kind, bytes }).map(Some)
    }
}

impl<'a> SeqAccess<'a> for Fields<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        self.next_value(seed)
    }
}

impl<'a> MapAccess<'a> for Fields<'_, 'a> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        let Some((name, _)) = self.first() else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        self.next_value(seed)?.ok_or_else(|| RowError::custom("a value without a field"))
    }
}
