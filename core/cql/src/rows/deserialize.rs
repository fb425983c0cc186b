//! Rows as values of types with serde's `Deserialize`.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

#[cfg(test)]
mod tests;

use super::kind::id;
use super::problem::{Problem, Subject};
use super::shape::{self, Field, Inner, Shape, TOO_LONG, Udt, Vector};
use super::{Cells, Elements, Pairs, Rows, read_inet};
use crate::error::CqlError;
use crate::notation::Reader;
use crate::types::pass::name;
use crate::types::{Date, Decimal, Duration, Time, Timestamp, Uuid, VARINT_DECIMAL_BYTES_MAX, Varint, varint, vint};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::any::type_name;
use core::fmt::{self, Write as _};
use serde::de::value::{BorrowedBytesDeserializer, BorrowedStrDeserializer, MapDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// The maximum length in bytes of the text of a value that is not a varint, a decimal number or a text
/// itself.
const LITERAL_BYTES_MAX: usize = 96;

/// Why a row is not a value of the wanted type. Has no values of the row, which may be secret, unless
/// the type's own `Deserialize` writes them into its errors.
#[derive(Clone, PartialEq, Eq)]
pub struct RowError(Box<Problem>);

impl RowError {
    /// The name of the column whose value is not of the wanted type; its first 48 bytes. Empty if the
    /// error is that of the row.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.0.name
    }

    #[cold]
    fn new(text: impl fmt::Display) -> Self {
        Self(Box::new(Problem::new(text)))
    }

    #[cold]
    fn out_of_range(expected: &dyn Expected) -> Self {
        Self(Box::new(Problem::value("out of range", expected)))
    }

    /// Notes that the value is inside that of the column.
    #[cold]
    fn inside(self, shape: &Shape<'_>) -> Self {
        Self(Box::new(self.0.inside(Some(shape))))
    }

    /// Notes that the value is inside that of this field.
    #[cold]
    fn in_field(self, name: &str) -> Self {
        Self(Box::new(self.0.in_field(name)))
    }

    /// - `rust`: the type of Rust that is wanted.
    #[cold]
    fn in_column(self, name: &str, shape: &Shape<'_>, rust: &str) -> Self {
        Self(Box::new(self.0.of(Subject::Column, name, shape, rust)))
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.column().is_empty() {
            // The name is the server's text.
            write!(f, "column {}: ", self.column().escape_debug())?;
        }
        self.0.fmt(f)
    }
}

poolhouse_wire::debug_as_display!(RowError);

impl core::error::Error for RowError {}

impl de::Error for RowError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text)
    }

    #[cold]
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        if matches!(found, Unexpected::Other(text) if is_wide_integer(text)) {
            return Self::out_of_range(expected);
        }
        let is_null = matches!(found, Unexpected::Unit | Unexpected::Option);
        let problem = if is_null { Problem::value } else { Problem::mismatch };
        Self(Box::new(problem(kind_of(found), expected)))
    }

    #[cold]
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        if matches!(found, Unexpected::Other(text) if is_wide_integer(text)) {
            return Self::out_of_range(expected);
        }
        match kind_of(found) {
            AN_INTEGER | A_FLOAT => Self::out_of_range(expected),
            BYTES => Self(Box::new(Problem::value(MALFORMED, expected))),
            found => Self::new(format_args!("{found} that is not {expected}")),
        }
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format_args!("a field that is not one of {expected:?}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format_args!("a text that is not one of {expected:?}"))
    }
}

const MALFORMED: &str = "malformed";
const AN_INTEGER: &str = "an integer";
const A_FLOAT: &str = "a floating-point number";
const BYTES: &str = "bytes";

/// The kind of a value, without the value.
const fn kind_of(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => AN_INTEGER,
        Unexpected::Float(_) => A_FLOAT,
        Unexpected::Char(_) | Unexpected::Str(_) => "a text",
        Unexpected::Bytes(_) => BYTES,
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

/// Whether serde means an integer of 128 bits by this. Its errors have no kind of their own for it.
fn is_wide_integer(text: &str) -> bool {
    matches!(text, "i128" | "u128" | "integer") || text.starts_with("integer `")
}

impl From<CqlError> for RowError {
    fn from(error: CqlError) -> Self {
        Self::new(error)
    }
}

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

    /// Reads the value of a field of a tuple or of a user-defined type.
    fn of_field<S: DeserializeSeed<'a>>(
        (name, shape): &Field<'a>,
        bytes: Option<&'a [u8]>,
        seed: S,
    ) -> Result<S::Value, RowError> {
        Value { shape, bytes }.inside(seed).map_err(|error| error.in_field(name))
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

    fn visit_list<V: Visitor<'a>>(self, shape: &Shape<'a>, cell: &'a [u8], visitor: V) -> Result<V::Value, RowError> {
        // Servers store a list without elements as null.
        let left = if cell.is_empty() { Elements::EMPTY } else { Elements::read(cell)? };
        let count = left.len();
        let mut list = List { shape, left };
        let value = visitor.visit_seq(&mut list)?;
        let value = whole(value, list.left.len(), count)?;
        ended(value, list.left.0.cells, LAST_ELEMENT)
    }

    fn visit_map_of<V: Visitor<'a>>(
        self,
        shapes: &(Shape<'a>, Shape<'a>),
        cell: &'a [u8],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        let left = if cell.is_empty() { Pairs::EMPTY } else { Pairs::read(cell)? };
        let count = left.len();
        let mut map = Map { shapes, left, next: None };
        let value = visitor.visit_map(&mut map)?;
        let value = whole(value, map.left.len(), count)?;
        ended(value, map.left.0.cells, LAST_ELEMENT)
    }

    /// Visits the elements or fields.
    ///
    /// - `wanted`: whether the number of elements is fixed.
    fn visit_elements<V: Visitor<'a>>(self, wanted: Length, visitor: V) -> Result<V::Value, RowError> {
        match (&self.shape.inner, self.content()?) {
            (Inner::Element(shape), Some(bytes)) => self.visit_list(shape, bytes, visitor),
            (Inner::Element(shape), None) if wanted == Length::Any => self.visit_list(shape, &[], visitor),
            (Inner::Vector(vector), Some(bytes)) => VectorElements::visit(vector, bytes, visitor),
            (Inner::Fields(fields), Some(bytes)) => {
                let (value, values) = Fields::new(fields, bytes, wanted).visit(visitor)?;
                ended(value, values, LAST_FIELD)
            }
            // There may be more fields than are described: those that were added later.
            (Inner::Udt(udt), Some(bytes)) => Ok(Fields::new(&udt.fields, bytes, wanted).visit(visitor)?.0),
            (Inner::None, Some(bytes)) if matches!(self.shape.id(), id::BLOB | id::UUID | id::TIMEUUID | id::INET) => {
                let mut all = Bytes(self.of_length(bytes)?.iter());
                let value = visitor.visit_seq(&mut all)?;
                whole(value, all.0.len(), bytes.len())
            }
            _ => self.mismatch(visitor),
        }
    }

    /// Visits the entries or the fields by their names.
    ///
    /// - `names`: of the fields that the target always has.
    fn visit_entries<V: Visitor<'a>>(self, names: &'static [&'static str], visitor: V) -> Result<V::Value, RowError> {
        match (&self.shape.inner, self.content()?) {
            (Inner::Entry(shapes), bytes) => self.visit_map_of(shapes, bytes.unwrap_or_default(), visitor),
            (Inner::Udt(udt), Some(bytes)) => NamedFields::visit(udt, bytes, names, visitor),
            _ => self.mismatch(visitor),
        }
    }
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

    fn deserialize_i8<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_i16<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_i32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_i64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_i128<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_u8<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_u16<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_u32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_u64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
    }

    fn deserialize_u128<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_integer(visitor)
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

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_text(visitor)
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_text(visitor)
    }

    fn deserialize_identifier<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        self.visit_text(visitor)
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

/// How many elements or fields the target takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    /// Those that there are. Fields that are missing are not made, because a few bytes would make
    /// thousands.
    Any,
    /// Always as many, such as those of a tuple.
    Fixed,
}

/// Returns the value that was read, if nothing is left: values of a fixed length do not look for more.
fn whole<T>(value: T, left: usize, count: usize) -> Result<T, RowError> {
    if left == 0 {
        return Ok(value);
    }
    Err(RowError::new(format_args!("{count} values, expected {}", count.saturating_sub(left))))
}

const LAST_ELEMENT: &str = "element";
const LAST_FIELD: &str = "field";

/// Returns the value that was read, if no bytes follow it.
///
/// - `last`: what they follow.
fn ended<T>(value: T, rest: Reader<'_>, last: &str) -> Result<T, RowError> {
    match rest.rest.len() {
        0 => Ok(value),
        count => Err(RowError::new(format_args!("{count} bytes after the last {last}"))),
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

/// The bytes of a blob that are left. Only targets that ask for `u8` have them.
struct Bytes<'a>(core::slice::Iter<'a, u8>);

impl<'a> SeqAccess<'a> for Bytes<'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        self.0.next().map(|byte| seed.deserialize(Byte(*byte))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Byte(u8);

impl<'a> Deserializer<'a> for Byte {
    type Error = RowError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        Err(de::Error::invalid_type(Unexpected::Other("byte"), &visitor))
    }

    fn deserialize_u8<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_u8(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value, RowError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The elements of a list or a set that are left.
struct List<'c, 'a> {
    shape: &'c Shape<'a>,
    left: Elements<'a>,
}

impl<'a> SeqAccess<'a> for List<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        self.left.next().map(|bytes| Value { shape: self.shape, bytes }.inside(seed)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The elements of a vector that are left.
struct VectorElements<'c, 'a> {
    vector: &'c Vector<'a>,
    left: usize,
    values: Reader<'a>,
}

impl<'c, 'a> VectorElements<'c, 'a> {
    fn visit<V: Visitor<'a>>(vector: &'c Vector<'a>, bytes: &'a [u8], visitor: V) -> Result<V::Value, RowError> {
        let is_length = match vector.element_bytes {
            Some(each) => each.checked_mul(vector.dimension) == Some(bytes.len()),
            // Each has a byte or more.
            None => bytes.len() >= vector.dimension,
        };
        if !is_length {
            return Err(RowError::new(format_args!("{} bytes are not {} elements", bytes.len(), vector.dimension)));
        }
        let mut elements = Self { vector, left: vector.dimension, values: Reader::new(bytes, 0) };
        let value = visitor.visit_seq(&mut elements)?;
        let value = whole(value, elements.left, vector.dimension)?;
        ended(value, elements.values, LAST_ELEMENT)
    }
}

impl<'a> SeqAccess<'a> for VectorElements<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let length = match self.vector.element_bytes {
            Some(length) => length,
            None => vint::read_unsigned(&mut self.values)
                .and_then(|length| usize::try_from(length).ok())
                .ok_or_else(|| RowError::new("a vector whose last elements are missing"))?,
        };
        let bytes = self.values.take(length)?;
        Value { shape: &self.vector.element, bytes: Some(bytes) }.inside(seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The entries of a map that are left.
struct Map<'c, 'a> {
    shapes: &'c (Shape<'a>, Shape<'a>),
    left: Pairs<'a>,
    /// The value of the key that was read.
    next: Option<&'a [u8]>,
}

impl<'a> MapAccess<'a> for &mut Map<'_, 'a> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        let Some((key, value)) = self.left.next() else { return Ok(None) };
        self.next = value;
        Value { shape: &self.shapes.0, bytes: key }.inside(seed).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        Value { shape: &self.shapes.1, bytes: self.next.take() }.inside(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The fields of a tuple or of a user-defined type that are left. Fields that were added to the type
/// later have no value.
struct Fields<'c, 'a> {
    fields: &'c [Field<'a>],
    values: Reader<'a>,
    /// Fields that are missing are null if the length is fixed.
    wanted: Length,
}

impl<'c, 'a> Fields<'c, 'a> {
    const fn new(fields: &'c [Field<'a>], bytes: &'a [u8], wanted: Length) -> Self {
        Self { fields, values: Reader::new(bytes, 0), wanted }
    }

    /// Whether the fields that are left are missing, and not to be made.
    fn is_end(&self) -> bool {
        self.wanted == Length::Any && self.values.rest.is_empty()
    }

    /// Visits the fields as a list. Returns also the bytes that follow them.
    fn visit<V: Visitor<'a>>(mut self, visitor: V) -> Result<(V::Value, Reader<'a>), RowError> {
        let count = self.fields.len();
        let value = visitor.visit_seq(&mut self)?;
        let value = whole(value, if self.is_end() { 0 } else { self.fields.len() }, count)?;
        Ok((value, self.values))
    }

    fn next_value<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, RowError> {
        let Some((field, left)) = self.fields.split_first().filter(|_| !self.is_end()) else { return Ok(None) };
        self.fields = left;
        let bytes = if self.values.rest.is_empty() { None } else { self.values.bytes()? };
        Value::of_field(field, bytes, seed).map(Some)
    }
}

impl<'a> SeqAccess<'a> for Fields<'_, 'a> {
    type Error = RowError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, RowError> {
        self.next_value(seed)
    }
}

/// The fields of a user-defined type that are left, with their names.
struct NamedFields<'c, 'a> {
    udt: &'c Udt<'a>,
    /// Those that the value has.
    there: Fields<'c, 'a>,
    /// The names of the target's fields that were not looked for yet among those that are missing. The
    /// missing fields themselves are not visited: there may be thousands for each value of a few bytes.
    names: core::slice::Iter<'static, &'static str>,
    /// The missing field whose name was read.
    missing: Option<&'c Field<'a>>,
}

impl<'c, 'a> NamedFields<'c, 'a> {
    /// - `names`: of the fields that the target always has.
    fn visit<V: Visitor<'a>>(
        udt: &'c Udt<'a>,
        bytes: &'a [u8],
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        let there = Fields::new(&udt.fields, bytes, Length::Any);
        let mut fields = Self { udt, there, names: names.iter(), missing: None };
        let value = visitor.visit_map(&mut fields)?;
        whole(value, if fields.there.is_end() { 0 } else { fields.there.fields.len() }, udt.fields.len())
    }

    /// Returns the name of the next field.
    fn next_name(&mut self) -> Option<&'c Cow<'a, str>> {
        if self.there.is_end() { self.next_missing() } else { self.there.fields.first().map(|(name, _)| name) }
    }

    /// Returns the name of the next field that is missing.
    fn next_missing(&mut self) -> Option<&'c Cow<'a, str>> {
        // A list that is missing is empty, as one that is null. Other fields are missing in the target too.
        let udt = self.udt;
        let first = udt.fields.len() - self.there.fields.len();
        self.missing = self.names.find_map(|name| udt.collection(name, first));
        self.missing.map(|(name, _)| name)
    }
}

impl<'a> MapAccess<'a> for &mut NamedFields<'_, 'a> {
    type Error = RowError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, RowError> {
        self.next_name().map(|name| deserialize_name(name, seed)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, RowError> {
        if let Some(field) = self.missing.take() {
            return Value::of_field(field, None, seed);
        }
        self.there.next_value(seed)?.ok_or_else(|| RowError::new("a value without a field"))
    }
}
