//! Values of bind variables from types with serde's `Serialize`.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

mod compound;
#[cfg(test)]
mod tests;

use super::Columns;
use super::deserialize::narrowed;
use super::kind::id;
use super::problem::{Problem, Subject};
use super::shape::{self, Field, Shape, TOO_LONG};
use crate::Limits;
use crate::request::{NULL, UNSET as NOT_SET, Values};
use crate::types::pass::name;
use crate::types::{Date, Decimal, Duration, Time, Timestamp, Uuid, ValueError, Varint, varint};
use alloc::boxed::Box;
use alloc::vec::Vec;
use compound::{Entries, Items};
use core::fmt;
use core::net::IpAddr;
use serde::ser::{self, Impossible, Serialize, Serializer};

/// The name of the unit struct by which [`MaybeUnset::Unset`] is recognized.
const UNSET: &str = "\0poolhouse_cql::Unset";

/// The maximum length in bytes of all values: that of a body, in any session.
const VALUES_BYTES_MAX: usize = 256 * 1024 * 1024;
const _: () = assert!(VALUES_BYTES_MAX == Limits::DEFAULT.body_bytes_max as usize);

/// Bytes reserved for each value and its length.
const VALUE_BYTES: usize = 16;

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
pub struct BindError(Box<Problem>);

impl BindError {
    #[cold]
    fn new(text: impl fmt::Display) -> Self {
        Self(Box::new(Problem::new(text)))
    }

    /// The name of the bind variable that cannot have its value; its first 48 bytes. Empty if the
    /// error is that of all values together.
    #[must_use]
    pub fn variable(&self) -> &str {
        &self.0.name
    }

    /// Notes that the value is inside that of the variable.
    #[cold]
    fn inside(self) -> Self {
        Self(Box::new(self.0.inside(None)))
    }

    /// Notes that the value is that of this field.
    #[cold]
    fn in_field(self, name: &str) -> Self {
        Self(Box::new(self.0.in_field(name)))
    }

    #[cold]
    fn named(self, name: &str) -> Self {
        Self(Box::new(self.0.named(name)))
    }

    /// - `rust`: the type of Rust that the value has.
    #[cold]
    fn in_variable(self, (name, shape): &Field<'_>, rust: &str) -> Self {
        Self(Box::new(self.0.of(Subject::Variable, name, shape, rust)))
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variable().is_empty() {
            // The name is the server's text.
            write!(f, "variable {}: ", self.variable().escape_debug())?;
        }
        self.0.fmt(f)
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
    /// [`Type`](super::Type) has the table of types.
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
    /// collection contains null; a variable has no value; a value has no variable; or all values have
    /// more than 256 MiB. It names none if the description of the variables has more than 8,192 types or
    /// 1 MiB.
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
        let count = variables.len();
        // This limits their number, so it comes before anything is reserved for them.
        let variables = shape::fields(variables).ok_or_else(|| BindError::new(TOO_LONG))?;
        let mut bytes = Vec::with_capacity(count.saturating_mul(VALUE_BYTES));
        values.serialize(Writer::new(Target::Row(&variables), &mut bytes))?;
        Ok(Self { bytes, count })
    }

    /// The values, for [`Parameters::values`](crate::Parameters::values).
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        Values::Encoded { bytes: &self.bytes, count: self.count }
    }
}

impl fmt::Debug for BoundValues {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values().fmt(f)
    }
}

/// The form in which a value is written.
#[derive(Clone, Copy)]
enum Target<'c> {
    /// All variables.
    Row(&'c [Field<'c>]),
    /// The value of a variable, which may be not set.
    Variable(&'c Shape<'c>),
    /// A field of a tuple or of a user-defined type.
    Field(&'c Shape<'c>),
    /// An element, a key or a value of a collection, which must not be null.
    Element(&'c Shape<'c>),
    /// A byte, without its length.
    Byte,
    /// The name of a field or of a variable, without its length.
    Name,
}

impl<'c> Target<'c> {
    const fn shape(&self) -> Option<&'c Shape<'c>> {
        match self {
            Self::Variable(shape) | Self::Field(shape) | Self::Element(shape) => Some(shape),
            Self::Row(_) | Self::Byte | Self::Name => None,
        }
    }

    /// The number of its type.
    fn id(&self) -> Option<u16> {
        self.shape().map(Shape::id)
    }
}

impl fmt::Display for Target<'_> {
    /// The expected form, for an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(_) => f.write_str("a struct, a map or a tuple of the variables"),
            Self::Byte => f.write_str("u8"),
            Self::Name => f.write_str("the name of a field"),
            Self::Variable(shape) | Self::Field(shape) | Self::Element(shape) => shape.fmt(f),
        }
    }
}

/// How a value is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// By a type that knows nothing of CQL.
    Usual,
    /// By a type of this crate that has the type of the variable: as bytes of the protocol or an integer.
    Own,
    /// Possibly as an empty value: then as `None`.
    MaybeEmpty,
}

/// Writes one value.
struct Writer<'o, 'c> {
    target: Target<'c>,
    form: Form,
    out: &'o mut Vec<u8>,
}

impl<'o, 'c> Writer<'o, 'c> {
    const fn new(target: Target<'c>, out: &'o mut Vec<u8>) -> Self {
        Self { target, form: Form::Usual, out }
    }

    #[cold]
    fn mismatch(&self, found: &str) -> BindError {
        BindError(Box::new(Problem::mismatch(found, self.target)))
    }

    #[cold]
    fn wrong(&self, text: &str) -> BindError {
        BindError(Box::new(Problem::value(text, self.target)))
    }

    fn out_of_range(&self) -> BindError {
        self.wrong("out of range")
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
        macro_rules! fixed {
            ($number:expr, $type:ty) => {
                match <$type>::try_from($number) {
                    Ok(number) => self.put(&number.to_be_bytes()),
                    Err(_) => Err(self.out_of_range()),
                }
            };
        }
        match self.target.id() {
            Some(id::TINYINT) => fixed!(number, i8),
            Some(id::SMALLINT) => fixed!(number, i16),
            Some(id::INT) => fixed!(number, i32),
            Some(id::BIGINT | id::COUNTER | id::TIMESTAMP) => fixed!(number, i64),
            Some(id::TIME) => match u64::try_from(number).ok().and_then(Time::from_ns) {
                Some(time) => self.put(&time.ns().to_be_bytes()),
                None => Err(self.out_of_range()),
            },
            // Day 2^31 is 1970-01-01.
            Some(id::DATE) => fixed!(number.saturating_add(1 << 31), u32),
            Some(id::VARINT) => {
                let bytes = number.to_be_bytes();
                self.put(varint::shortest(&bytes))
            }
            _ => Err(self.mismatch("an integer")),
        }
    }

    fn put_text(self, text: &str) -> Result<(), BindError> {
        if matches!(self.target, Target::Name) {
            self.out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        let wrong = |error: ValueError| BindError::new(error);
        match self.target.id() {
            Some(id::VARCHAR) => self.put(text.as_bytes()),
            Some(id::ASCII) if text.is_ascii() => self.put(text.as_bytes()),
            Some(id::ASCII) => Err(self.wrong("a text that is not ASCII")),
            Some(id::UUID | id::TIMEUUID) => self.put(&text.parse::<Uuid>().map_err(wrong)?.bytes()),
            Some(id::INET) => match text.parse() {
                Ok(IpAddr::V4(address)) => self.put(&address.octets()),
                Ok(IpAddr::V6(address)) => self.put(&address.octets()),
                Err(_) => Err(self.wrong("a text that is no address")),
            },
            Some(id::TIMESTAMP) => self.put_integer(text.parse::<Timestamp>().map_err(wrong)?.ms().into()),
            Some(id::DATE) => self.put_integer(text.parse::<Date>().map_err(wrong)?.days().into()),
            Some(id::TIME) => self.put_integer(text.parse::<Time>().map_err(wrong)?.ns().into()),
            Some(id::DURATION) => self.put(&text.parse::<Duration>().map_err(wrong)?.to_bytes()),
            Some(id::DECIMAL) => self.put(&text.parse::<Decimal>().map_err(wrong)?.to_bytes()),
            Some(id::VARINT) => self.put(text.parse::<Varint>().map_err(wrong)?.bytes()),
            _ => Err(self.mismatch("a text")),
        }
    }
}

/// Reserves the length of a value, and returns where the value begins.
fn open(out: &mut Vec<u8>) -> usize {
    out.extend([0; 4]);
    out.len()
}

/// Writes the length of the value that begins here and is now complete.
///
/// Fails if all values together are too long to be sent. All that is longer than null ends here, so a
/// description in which one value has thousands of places cannot make more of it.
fn close(out: &mut [u8], start: usize) -> Result<(), BindError> {
    let length = out.len().saturating_sub(start);
    match i32::try_from(length) {
        Ok(length) if out.len() <= VALUES_BYTES_MAX => {
            write_int(out, start.saturating_sub(4), length);
            Ok(())
        }
        _ => Err(BindError::new("more than 256 MiB of values")),
    }
}

fn write_int(out: &mut [u8], at: usize, number: i32) {
    if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = number.to_be_bytes();
    }
}

impl<'o, 'c> Serializer for Writer<'o, 'c> {
    type Ok = ();
    type Error = BindError;
    type SerializeSeq = Items<'o, 'c>;
    type SerializeTuple = Items<'o, 'c>;
    type SerializeTupleStruct = Items<'o, 'c>;
    type SerializeTupleVariant = Impossible<(), BindError>;
    type SerializeMap = Entries<'o, 'c>;
    type SerializeStruct = Entries<'o, 'c>;
    type SerializeStructVariant = Impossible<(), BindError>;

    fn is_human_readable(&self) -> bool {
        self.form != Form::Own
    }

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
        if matches!(self.target, Target::Byte) {
            self.out.push(value);
            return Ok(());
        }
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
        match (i128::try_from(value), self.target.id()) {
            (Ok(value), _) => self.put_integer(value),
            (Err(_), Some(id::VARINT)) => self.put(Varint::from(value).bytes()),
            // It is out of the range of all others too.
            (Err(_), _) => self.put_integer(i128::MAX),
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
            Some(id::FLOAT) => match narrowed(value) {
                Some(value) => self.put(&value.to_be_bytes()),
                None => Err(self.out_of_range()),
            },
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
        let Some(shape) = self.target.shape() else { return Err(self.mismatch("bytes")) };
        if self.form == Form::Own || shape.is_bytes() {
            return self.put(value);
        }
        match (shape.id(), core::str::from_utf8(value)) {
            (id::ASCII | id::VARCHAR, Ok(text)) => self.put_text(text),
            (id::ASCII | id::VARCHAR, Err(_)) => Err(self.wrong("bytes that are not UTF-8")),
            (id::UUID | id::TIMEUUID | id::INET, _) if shape.is_length(value.len()) => self.put(value),
            (id::UUID | id::TIMEUUID | id::INET, _) => Err(self.wrong("bytes of another length")),
            _ => Err(self.mismatch("bytes")),
        }
    }

    fn serialize_none(self) -> Result<(), BindError> {
        match self.target.shape() {
            Some(shape) if self.form == Form::MaybeEmpty => {
                if shape.has_empty() {
                    Err(self.mismatch("an empty value"))
                } else {
                    self.put(&[])
                }
            }
            _ => self.put_null(),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), BindError> {
        value.serialize(Self { form: Form::Usual, ..self })
    }

    fn serialize_unit(self) -> Result<(), BindError> {
        // A statement without variables.
        let is_empty = matches!(self.target, Target::Row([]));
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

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), BindError> {
        let form = match (name::own(name), self.target.shape()) {
            (None, _) => return value.serialize(self),
            (Some(name::MAYBE_EMPTY), Some(_)) => Form::MaybeEmpty,
            (Some(own), Some(shape)) if shape.is_own(own) => Form::Own,
            (Some(own), _) => return Err(self.mismatch(own.rsplit("::").next().unwrap_or_default())),
        };
        value.serialize(Self { form, ..self })
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

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'o, 'c>, BindError> {
        self.begin_items("a list")
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'o, 'c>, BindError> {
        self.begin_items("a tuple")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'o, 'c>, BindError> {
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

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'o, 'c>, BindError> {
        self.begin_entries("a map")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'o, 'c>, BindError> {
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
