//! Values of bind variables from types with serde's `Serialize`.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

mod compound;
#[cfg(test)]
mod tests;

use super::{Columns, Type, id, shortened};
use crate::request::Value;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use compound::{Entries, Items};
use core::fmt;
use core::net::IpAddr;
use serde::ser::{self, Impossible, Serialize, Serializer};

/// The maximum length in bytes of the name of a variable in an error; the rest is left out.
const VARIABLE_BYTES_MAX: usize = 48;
/// The maximum length in bytes of the text of an error; the rest is left out.
const TEXT_BYTES_MAX: usize = 128;

/// The name of the unit struct by which [`MaybeUnset::Unset`] is recognized.
const UNSET: &str = "\0poolhouse_cql::Unset";

/// The lengths that stand for null and for a value that is not set.
const NULL: i32 = -1;
const NOT_SET: i32 = -2;

/// Nanoseconds of a day.
const DAY_NS: i128 = 86_400_000_000_000;

/// A value for a bind variable, or none: then the statement leaves the existing value unchanged.
///
/// With serializers of other formats, `Unset` is a unit struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MaybeUnset<T> {
    /// The statement does not change the value. From v4 on.
    #[default]
    Unset,
    /// The value.
    Set(T),
}

impl<T: Serialize> Serialize for MaybeUnset<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unset => serializer.serialize_unit_struct(UNSET),
            Self::Set(value) => value.serialize(serializer),
        }
    }
}

/// Why a value cannot be bound to the variables of a statement. Has no values, which may be secret,
/// unless the type's own `Serialize` writes them into its errors.
#[derive(Clone, PartialEq, Eq)]
pub struct BindError {
    /// Empty if the error is not that of one variable.
    variable: String,
    text: String,
}

impl BindError {
    fn new(text: impl fmt::Display) -> Self {
        Self { variable: String::new(), text: shortened(&text.to_string(), TEXT_BYTES_MAX) }
    }

    /// The name of the bind variable that cannot have its value; its first 48 bytes. Empty if the
    /// error is that of all values together.
    #[must_use]
    pub fn variable(&self) -> &str {
        &self.variable
    }

    fn in_variable(mut self, name: &str) -> Self {
        if self.variable.is_empty() {
            self.variable = shortened(name, VARIABLE_BYTES_MAX);
        }
        self
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variable.is_empty() {
            // The name is the server's text.
            write!(f, "variable {}: ", self.variable.escape_debug())?;
        }
        f.write_str(&self.text)
    }
}

poolhouse_wire::debug_as_display!(BindError);

impl core::error::Error for BindError {}

impl ser::Error for BindError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text)
    }
}

/// The values of all bind variables of a statement, serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct BoundValues {
    /// The values in the protocol's notation: each has its length in front.
    bytes: Vec<u8>,
    count: usize,
}

impl BoundValues {
    /// Serializes a value for each of these variables: a struct or a map with a field for each name, or
    /// a tuple or a list of the values in their order. It is the opposite of
    /// [`Rows::deserialize`](super::Rows::deserialize).
    ///
    /// | serde | types of the variable |
    /// |---|---|
    /// | string, char | ascii, varchar; uuid and timeuuid in their usual text; inet |
    /// | variant of an enum without data | ascii, varchar: its name |
    /// | integer | tinyint, smallint, int, bigint, counter, varint |
    /// | integer | timestamp: milliseconds since 1970; date: days since 1970-01-01; time: nanoseconds since midnight |
    /// | number | double; float if it has the same value |
    /// | bool | boolean |
    /// | bytes, or a list of bytes | blob, uuid, timeuuid, inet; decimal, duration, custom types and vectors in the protocol's format |
    /// | bytes | varint in the protocol's format |
    /// | list or tuple | list, set, tuple; user-defined type in the order of its fields |
    /// | map or struct | map; user-defined type by the names of its fields |
    ///
    /// `None` and `()` are null. So are the fields of a user-defined type that a map or a struct does
    /// not have. A variable may be [`MaybeUnset`]. Variables with the same name have the same value
    /// if the value is a struct or a map.
    ///
    /// Cost: linear in the values, and in the fields times the variables. Allocates the values.
    ///
    /// # Errors
    ///
    /// [`BindError`] names the variable and its type: the value has another type or is out of range; a
    /// collection contains null; a variable has no value; or a value has no variable.
    ///
    /// # Example
    ///
    /// ```
    /// use poolhouse_cql::{BindError, BoundValues, Prepared};
    ///
    /// #[derive(serde::Serialize)]
    /// struct Order<'a> {
    ///     id: i32,
    ///     customer: &'a str,
    ///     note: Option<&'a str>,
    /// }
    ///
    /// fn bind(prepared: &Prepared<'_>) -> Result<BoundValues, BindError> {
    ///     BoundValues::new(prepared.variables, &Order { id: 7, customer: "ann", note: None })
    /// }
    /// ```
    pub fn new<T: Serialize + ?Sized>(variables: Columns<'_>, values: &T) -> Result<Self, BindError> {
        let mut bytes = Vec::new();
        let count = variables.len();
        values.serialize(Writer { target: Target::Row(variables), out: &mut bytes })?;
        Ok(Self { bytes, count })
    }

    /// The values for [`Parameters::values`](crate::Parameters::values). Allocates 16 bytes or more for
    /// each.
    #[must_use]
    pub fn values(&self) -> Vec<Value<'_>> {
        let mut left = self.bytes.as_slice();
        let mut values = Vec::with_capacity(self.count);
        while let Some((length, rest)) = left.split_first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let (bytes, rest) = rest.split_at_checked(usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            values.push(match length {
                NOT_SET => Value::Unset,
                NULL => Value::Null,
                _ => Value::Bytes(bytes),
            });
            left = rest;
        }
        debug_assert_eq!(values.len(), self.count, "each variable has a value");
        values
    }
}

impl fmt::Debug for BoundValues {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

/// What a value is written as.
#[derive(Clone, Copy)]
enum Target<'a> {
    /// All variables.
    Row(Columns<'a>),
    /// The value of a variable, which may be not set.
    Variable(Type<'a>),
    /// A field of a tuple or of a user-defined type.
    Field(Type<'a>),
    /// An element, a key or a value of a collection, which must not be null.
    Element(Type<'a>),
    /// A byte, without its length.
    Byte,
    /// The name of a field or of a variable, without its length.
    Name,
}

impl<'a> Target<'a> {
    const fn kind(&self) -> Option<Type<'a>> {
        match self {
            Self::Variable(kind) | Self::Field(kind) | Self::Element(kind) => Some(*kind),
            Self::Row(_) | Self::Byte | Self::Name => None,
        }
    }

    /// The number of its type.
    fn id(&self) -> Option<u16> {
        self.kind().map(|kind| kind.id())
    }

    /// Its name for an error.
    fn name(&self) -> &'static str {
        match self {
            Self::Row(_) => "a struct, a map or a tuple of the variables",
            Self::Byte => "a byte",
            Self::Name => "the name of a field",
            Self::Variable(kind) | Self::Field(kind) | Self::Element(kind) => type_name(kind.id()),
        }
    }
}

/// The name of a type in CQL.
const fn type_name(id: u16) -> &'static str {
    match id {
        Type::CUSTOM => "a custom type",
        id::ASCII => "ascii",
        id::BIGINT => "bigint",
        id::BLOB => "blob",
        id::BOOLEAN => "boolean",
        id::COUNTER => "counter",
        id::DECIMAL => "decimal",
        id::DOUBLE => "double",
        id::FLOAT => "float",
        id::INT => "int",
        id::TIMESTAMP => "timestamp",
        id::UUID => "uuid",
        id::VARCHAR => "varchar",
        id::VARINT => "varint",
        id::TIMEUUID => "timeuuid",
        id::INET => "inet",
        id::DATE => "date",
        id::TIME => "time",
        id::SMALLINT => "smallint",
        id::TINYINT => "tinyint",
        id::DURATION => "duration",
        Type::LIST => "list",
        Type::MAP => "map",
        Type::SET => "set",
        Type::UDT => "a user-defined type",
        Type::TUPLE => "tuple",
        _ => "an unknown type",
    }
}

/// Writes one value.
struct Writer<'o, 'a> {
    target: Target<'a>,
    out: &'o mut Vec<u8>,
}

impl<'o, 'a> Writer<'o, 'a> {
    fn mismatch(&self, found: &str) -> BindError {
        BindError::new(format_args!("{found}, expected {}", self.target.name()))
    }

    fn out_of_range(&self, found: &str) -> BindError {
        BindError::new(format_args!("{found} out of the range of {}", self.target.name()))
    }

    /// Writes the bytes of a value with their length.
    fn put(self, bytes: &[u8]) -> Result<(), BindError> {
        let start = open(self.out);
        self.out.extend_from_slice(bytes);
        close(self.out, start)
    }

    fn put_null(self) -> Result<(), BindError> {
        match self.target {
            Target::Variable(_) | Target::Field(_) => self.out.extend(NULL.to_be_bytes()),
            Target::Element(_) => return Err(BindError::new("null in a collection")),
            Target::Row(_) | Target::Byte | Target::Name => return Err(self.mismatch("null")),
        }
        Ok(())
    }

    fn put_integer(self, number: i128) -> Result<(), BindError> {
        let found = "an integer";
        if matches!(self.target, Target::Byte) {
            self.out.push(u8::try_from(number).map_err(|_| self.out_of_range(found))?);
            return Ok(());
        }
        macro_rules! fixed {
            ($number:expr, $type:ty) => {
                match <$type>::try_from($number) {
                    Ok(number) => self.put(&number.to_be_bytes()),
                    Err(_) => Err(self.out_of_range(found)),
                }
            };
        }
        match self.target.id() {
            Some(id::TINYINT) => fixed!(number, i8),
            Some(id::SMALLINT) => fixed!(number, i16),
            Some(id::INT) => fixed!(number, i32),
            Some(id::BIGINT | id::COUNTER | id::TIMESTAMP) => fixed!(number, i64),
            Some(id::TIME) if !(0..DAY_NS).contains(&number) => Err(self.out_of_range(found)),
            Some(id::TIME) => fixed!(number, i64),
            // Day 2^31 is 1970-01-01.
            Some(id::DATE) => fixed!(number.saturating_add(1 << 31), u32),
            Some(id::VARINT) => {
                let bytes = number.to_be_bytes();
                self.put(shortest(&bytes))
            }
            _ => Err(self.mismatch(found)),
        }
    }

    fn put_text(self, text: &str) -> Result<(), BindError> {
        if matches!(self.target, Target::Name) {
            self.out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        match self.target.id() {
            Some(id::VARCHAR) => self.put(text.as_bytes()),
            Some(id::ASCII) if text.is_ascii() => self.put(text.as_bytes()),
            Some(id::ASCII) => Err(self.out_of_range("a text")),
            Some(id::UUID | id::TIMEUUID) => match uuid_bytes(text) {
                Some(bytes) => self.put(&bytes),
                None => Err(self.mismatch("a text that is no UUID")),
            },
            Some(id::INET) => match text.parse() {
                Ok(IpAddr::V4(address)) => self.put(&address.octets()),
                Ok(IpAddr::V6(address)) => self.put(&address.octets()),
                Err(_) => Err(self.mismatch("a text that is no address")),
            },
            _ => Err(self.mismatch("a text")),
        }
    }
}

/// Whether values of this type may be bytes in the protocol's format.
const fn takes_bytes(id: u16) -> bool {
    !matches!(
        id,
        id::ASCII
            | id::VARCHAR
            | id::BIGINT
            | id::BOOLEAN
            | id::COUNTER
            | id::DOUBLE
            | id::FLOAT
            | id::INT
            | id::TIMESTAMP
            | id::DATE
            | id::TIME
            | id::SMALLINT
            | id::TINYINT
            | Type::LIST
            | Type::MAP
            | Type::SET
            | Type::UDT
            | Type::TUPLE
    )
}

/// Checks the length of a value of bytes.
const fn is_length(id: u16, length: usize) -> bool {
    match id {
        id::UUID | id::TIMEUUID => length == 16,
        id::INET => length == 4 || length == 16,
        id::VARINT => length > 0,
        _ => true,
    }
}

/// Reserves the length of a value, and returns where the value begins.
fn open(out: &mut Vec<u8>) -> usize {
    out.extend([0; 4]);
    out.len()
}

/// Writes the length of the value that begins here and is now complete.
fn close(out: &mut [u8], start: usize) -> Result<(), BindError> {
    let length = i32::try_from(out.len().saturating_sub(start)).map_err(|_| BindError::new("a value above 2 GiB"))?;
    write_int(out, start.saturating_sub(4), length);
    Ok(())
}

fn write_int(out: &mut [u8], at: usize, number: i32) {
    if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = number.to_be_bytes();
    }
}

/// The shortest bytes of the same number in two's complement.
fn shortest(mut bytes: &[u8]) -> &[u8] {
    while let [0x00, next @ 0..=0x7f, ..] | [0xff, next @ 0x80..=0xff, ..] = bytes {
        debug_assert_eq!(next >> 7, bytes[0] >> 7, "the sign is kept");
        bytes = bytes.get(1..).unwrap_or_default();
    }
    bytes
}

/// Reads a UUID of 32 hexadecimal digits, with the usual hyphens or without any.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let is_hyphen = |(place, byte): (usize, u8)| (byte == b'-') == matches!(place, 8 | 13 | 18 | 23);
    let is_grouped = text.len() == 36 && text.bytes().enumerate().all(is_hyphen);
    if !is_grouped && text.len() != 32 {
        return None;
    }
    let mut number = 0_u128;
    for digit in text.chars().filter(|one| !(is_grouped && *one == '-')) {
        number = number << 4 | u128::from(digit.to_digit(16)?);
    }
    Some(number.to_be_bytes())
}

impl<'o, 'a> Serializer for Writer<'o, 'a> {
    type Ok = ();
    type Error = BindError;
    type SerializeSeq = Items<'o, 'a>;
    type SerializeTuple = Items<'o, 'a>;
    type SerializeTupleStruct = Items<'o, 'a>;
    type SerializeTupleVariant = Impossible<(), BindError>;
    type SerializeMap = Entries<'o, 'a>;
    type SerializeStruct = Entries<'o, 'a>;
    type SerializeStructVariant = Impossible<(), BindError>;

    fn serialize_bool(self, value: bool) -> Result<(), BindError> {
        match self.target.id() {
            Some(id::BOOLEAN) => self.put(&[value.into()]),
            _ => Err(self.mismatch("a boolean")),
        }
    }

    fn serialize_i8(self, value: i8) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_i128(self, value: i128) -> Result<(), BindError> {
        self.put_integer(value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), BindError> {
        self.put_integer(value.into())
    }

    fn serialize_u128(self, value: u128) -> Result<(), BindError> {
        match i128::try_from(value) {
            Ok(value) => self.put_integer(value),
            Err(_) => Err(self.out_of_range("an integer")),
        }
    }

    fn serialize_f32(self, value: f32) -> Result<(), BindError> {
        match self.target.id() {
            Some(id::FLOAT) => self.put(&value.to_be_bytes()),
            Some(id::DOUBLE) => self.put(&f64::from(value).to_be_bytes()),
            _ => Err(self.mismatch("a floating-point number")),
        }
    }

    fn serialize_f64(self, value: f64) -> Result<(), BindError> {
        match self.target.id() {
            Some(id::DOUBLE) => self.put(&value.to_be_bytes()),
            Some(id::FLOAT) => {
                #[allow(clippy::cast_possible_truncation, reason = "a changed value is refused")]
                let narrow = value as f32;
                if f64::from(narrow).to_bits() != value.to_bits() && !value.is_nan() {
                    return Err(self.out_of_range("a floating-point number"));
                }
                self.put(&narrow.to_be_bytes())
            }
            _ => Err(self.mismatch("a floating-point number")),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), BindError> {
        self.put_text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), BindError> {
        self.put_text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), BindError> {
        match self.target.id() {
            Some(id) if !takes_bytes(id) => Err(self.mismatch("bytes")),
            Some(id) if !is_length(id, value.len()) => Err(self.out_of_range("bytes")),
            Some(_) => self.put(value),
            None => Err(self.mismatch("bytes")),
        }
    }

    fn serialize_none(self) -> Result<(), BindError> {
        self.put_null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), BindError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), BindError> {
        // A statement without variables.
        let is_empty = matches!(self.target, Target::Row(columns) if columns.len() == 0);
        if is_empty { Ok(()) } else { self.put_null() }
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), BindError> {
        if name != UNSET {
            return self.serialize_unit();
        }
        if !matches!(self.target, Target::Variable(_)) {
            return Err(self.mismatch("a value that is not set"));
        }
        self.out.extend(NOT_SET.to_be_bytes());
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), BindError> {
        match self.target.id() {
            Some(id::ASCII | id::VARCHAR) => self.put_text(variant),
            None if matches!(self.target, Target::Name) => self.put_text(variant),
            _ => Err(self.mismatch("a variant of an enum")),
        }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), BindError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), BindError> {
        Err(self.mismatch("a variant with data"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'o, 'a>, BindError> {
        self.begin_items("a list")
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'o, 'a>, BindError> {
        self.begin_items("a tuple")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'o, 'a>, BindError> {
        self.begin_items("a tuple")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), BindError>, BindError> {
        Err(self.mismatch("a variant with data"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'o, 'a>, BindError> {
        self.begin_entries("a map")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'o, 'a>, BindError> {
        self.begin_entries("a struct")
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), BindError>, BindError> {
        Err(self.mismatch("a variant with data"))
    }
}
