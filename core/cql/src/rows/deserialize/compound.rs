//! Values that contain others: collections, tuples, user-defined types, and lists of bytes.

use super::{RowError, Value, deserialize_name};
use crate::notation::Reader;
use crate::rows::kind::id;
use crate::rows::shape::{Field, Inner, Shape, Udt, Vector};
use crate::rows::{Elements, Pairs};
use crate::types::vint;
use alloc::borrow::Cow;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

impl<'a> Value<'_, 'a> {
    /// Reads the value of a field of a tuple or of a user-defined type.
    fn of_field<S: DeserializeSeed<'a>>(
        (name, shape): &Field<'a>,
        bytes: Option<&'a [u8]>,
        seed: S,
    ) -> Result<S::Value, RowError> {
        Value { shape, bytes }.inside(seed).map_err(|error| error.in_field(name))
    }

    /// Visits the elements or fields.
    ///
    /// - `wanted`: whether the number of elements is fixed.
    pub(super) fn visit_elements<V: Visitor<'a>>(self, wanted: Length, visitor: V) -> Result<V::Value, RowError> {
        match (&self.shape.inner, self.content()?) {
            (Inner::Element(shape), Some(bytes)) => List::visit(shape, bytes, visitor),
            (Inner::Element(shape), None) if wanted == Length::Any => List::visit(shape, &[], visitor),
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
    pub(super) fn visit_entries<V: Visitor<'a>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        match (&self.shape.inner, self.content()?) {
            (Inner::Entry(shapes), bytes) => Map::visit(shapes, bytes.unwrap_or_default(), visitor),
            (Inner::Udt(udt), Some(bytes)) => NamedFields::visit(udt, bytes, names, visitor),
            _ => self.mismatch(visitor),
        }
    }
}

/// How many elements or fields the target takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// Those that there are. Fields that are missing are not made, because a few bytes would make
    /// thousands.
    Any,
    /// Always as many, such as those of a tuple.
    Fixed,
}

/// Returns the value that was read, if nothing is left: values of a fixed length do not look for more.
pub(super) fn whole<T>(value: T, left: usize, count: usize) -> Result<T, RowError> {
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

/// The elements of a list or a set that are left.
struct List<'c, 'a> {
    shape: &'c Shape<'a>,
    left: Elements<'a>,
}

impl<'c, 'a> List<'c, 'a> {
    fn visit<V: Visitor<'a>>(shape: &'c Shape<'a>, cell: &'a [u8], visitor: V) -> Result<V::Value, RowError> {
        // Servers store a list without elements as null.
        let left = if cell.is_empty() { Elements::EMPTY } else { Elements::read(cell)? };
        let count = left.len();
        let mut list = Self { shape, left };
        let value = visitor.visit_seq(&mut list)?;
        let value = whole(value, list.left.len(), count)?;
        ended(value, list.left.0.cells, LAST_ELEMENT)
    }
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

impl<'c, 'a> Map<'c, 'a> {
    fn visit<V: Visitor<'a>>(
        shapes: &'c (Shape<'a>, Shape<'a>),
        cell: &'a [u8],
        visitor: V,
    ) -> Result<V::Value, RowError> {
        let left = if cell.is_empty() { Pairs::EMPTY } else { Pairs::read(cell)? };
        let count = left.len();
        let mut map = Self { shapes, left, next: None };
        let value = visitor.visit_map(&mut map)?;
        let value = whole(value, map.left.len(), count)?;
        ended(value, map.left.0.cells, LAST_ELEMENT)
    }
}

impl<'a> MapAccess<'a> for Map<'_, 'a> {
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
        if !udt.has_collection(first) {
            return None;
        }
        self.missing = self.names.find_map(|name| udt.collection(name, first));
        self.missing.map(|(name, _)| name)
    }
}

impl<'a> MapAccess<'a> for NamedFields<'_, 'a> {
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
