//! Types of columns, of bind variables, and of the values in them.
//!
//! A server describes a type in one of two forms. The usual form is a number, followed by the types
//! that the type contains. Types without a number, such as vectors, and in versions 3 and 4 duration,
//! are described by the text of a class of the server's Java code, with parameters in parentheses.
//! Both forms are read where they are, without allocation.
//!
//! Read first: Native Protocol, "Rows" (`<option>`); the classes of `org.apache.cassandra.db.marshal`.

pub(super) mod class;
#[cfg(test)]
mod tests;

use super::TYPE_DEPTH_MAX;
use crate::error::CqlError;
use crate::notation::{Reader, field};
use class::{Parameters, Vector};
use core::fmt::{self, Write as _};

/// The maximum length in bytes of the text of a type; the rest is left out.
const TYPE_TEXT_BYTES_MAX: usize = 96;

/// The type of a column: its number, and the types and names that it contains. Its text is that of
/// CQL, such as `map<varchar, list<int>>`, up to 96 bytes.
///
/// These types of Rust have the values of a type of CQL, in rows
/// ([`Rows::deserialize`](crate::Rows::deserialize)) and as bind variables
/// ([`BoundValues`](crate::BoundValues)):
///
/// | CQL | Rust | untyped |
/// |---|---|---|
/// | ascii, varchar | string, char, `&str`; an enum without data by its name; bytes | string |
/// | boolean | bool | bool |
/// | tinyint, smallint, int, bigint, counter | any integer that has the value | integer |
/// | varint | [`Varint`](crate::Varint); any integer that has the value; its digits as a string, if it has at most 1,024 bytes | integer of up to 64 bits, or string |
/// | float, double | f32, f64, if they have exactly the value | number |
/// | decimal | [`Decimal`](crate::Decimal); string, as for varint | string |
/// | timestamp | [`Timestamp`](crate::Timestamp); string of RFC 3339; integer: milliseconds since 1970 | string |
/// | date | [`Date`](crate::Date); string `YYYY-MM-DD`; integer: days since 1970-01-01 | string |
/// | time | [`Time`](crate::Time); string `HH:MM:SS.fffffffff`; integer: nanoseconds since midnight | string |
/// | duration | [`Duration`](crate::Duration); string, such as `1y2mo3d` | string |
/// | uuid, timeuuid | [`Uuid`](crate::Uuid); string; bytes, or a list of `u8` | string |
/// | inet | `IpAddr`; string; bytes, or a list of `u8` | string |
/// | blob | bytes, or a list of `u8` | bytes |
/// | list, set | list, set; array or tuple of the same length | list |
/// | vector | list, array or tuple; its length is the dimension | list |
/// | map | map, struct | map |
/// | tuple | tuple; list, which may end after the first fields when it is read | list |
/// | user-defined type | struct, map; tuple or list in the order of the fields | map |
/// | custom types that are not known here | [`CustomValue`](crate::CustomValue); bytes | bytes |
///
/// "Untyped" is the value for targets that ask for none, such as `serde_json::Value`.
///
/// By serde, the strings are also the values of `uuid::Uuid`, of chrono's `DateTime<Utc>`,
/// `NaiveDate` and `NaiveTime`, and of `BigDecimal`. Features of this crate convert its types to those
/// of `uuid`, `chrono`, `time`, `num-bigint` and `bigdecimal`.
///
/// A value that the type of Rust does not have exactly is an error, in both directions, unless serde
/// converts it: see below. Only integers are read as integers, and only floats as floats. A list of
/// bytes is one of `u8` and no other type.
///
/// # What serde converts
///
/// With `#[serde(flatten)]`, `#[serde(untagged)]` and `#[serde(tag = ..)]`, serde reads values untyped
/// into a buffer and converts them itself. There, these rules do not hold:
/// - it reads a double as `f32` and a bigint as `f64`, and rounds them;
/// - an integer of 128 bits does not get a varint above 64 bits, which is a string there. A
///   [`Varint`](crate::Varint) does;
/// - what is null or missing is not read as an empty list or map;
/// - an empty value of another type than text or blob, a [`CustomValue`](crate::CustomValue), a list of
///   `u8`, and the integers of a timestamp, date or time are errors.
///
/// A target such as `BTreeMap` keeps the last of several values for one key: those of a map with a
/// repeated key, and those of a row with two columns of one name. A struct refuses them.
///
/// # Times of other crates
///
/// - `chrono::serde::ts_seconds` and `time::serde::timestamp` are integers of seconds, but those of a
///   timestamp are milliseconds. They fit without an error and are wrong by a factor of 1000. Use
///   `chrono::serde::ts_milliseconds` and `time::serde::timestamp::milliseconds`.
/// - A time with more than milliseconds, such as that of `Utc::now()`, is refused for a timestamp. Round
///   it before, or convert it with [`Timestamp::from`](crate::Timestamp), which rounds down.
/// - chrono's `NaiveDateTime` does not fit a timestamp: it has no offset from UTC.
/// - Types of the crate `time` have a string only with its feature `serde-human-readable`. That of
///   `OffsetDateTime` is not of RFC 3339 even then: use `time::serde::rfc3339`. Or convert the types of
///   this crate.
///
/// # Null and empty values
///
/// Null, an empty value and a value that is not set are different:
/// - null is `None`. A list, a set or a map that is null is also read as an empty one, because servers
///   do not distinguish them.
/// - a tuple or a user-defined type may lack its last fields, such as those that were added later. A
///   tuple or an array reads them as null; a list, a map and an untyped value do not have them. A struct
///   reads a missing list, set or map as null, and any other as serde does: `None` into an `Option`, else
///   an error, unless the field has `#[serde(default)]`. An `Option` with a function of its own, such as
///   `chrono::serde::ts_milliseconds_option`, needs that too.
/// - an empty value has no bytes. Only texts, blobs and values with elements or fields have one of
///   their own; servers store empty values of the other types too:
///   [`MaybeEmpty`](crate::MaybeEmpty).
/// - a bind variable that is not set leaves the value unchanged: [`MaybeUnset`](crate::MaybeUnset).
///
/// # Equality
///
/// Types are equal if they have the same number, dimension, names and contained types in the same
/// order, whichever form their descriptions have. Unknown custom types are equal if the texts of their
/// classes are.
#[derive(Clone, Copy)]
pub struct Type<'a> {
    id: u16,
    form: Form<'a>,
}

#[derive(Clone, Copy)]
enum Form<'a> {
    /// The bytes after the number.
    Numbered(Reader<'a>),
    /// The name of a class, possibly with parameters. It is known to be well-formed unless the type is
    /// custom.
    Class(&'a str),
}

impl<'a> Type<'a> {
    /// A type of the server's Java code: [`Type::class`]. Vectors are such types.
    pub const CUSTOM: u16 = 0x00;
    /// A list; like a set, it contains one type.
    pub const LIST: u16 = 0x20;
    /// A map, which contains the types of its keys and its values.
    pub const MAP: u16 = 0x21;
    /// A set.
    pub const SET: u16 = 0x22;
    /// A user-defined type.
    pub const UDT: u16 = 0x30;
    /// A tuple.
    pub const TUPLE: u16 = 0x31;

    /// Types are nested up to [`TYPE_DEPTH_MAX`] in the form with numbers, and as deep again in the text
    /// of a class.
    pub(super) fn read(reader: &mut Reader<'a>, depth: u32) -> Result<Self, CqlError> {
        let start = *reader;
        let id = reader.u16()?;
        let inner = *reader;
        if depth > TYPE_DEPTH_MAX {
            return Err(start.error(field("depth of a type", i64::from(depth))));
        }
        let contained = match id {
            Self::CUSTOM => return reader.string().map(class::read),
            Self::LIST | Self::SET => 1,
            Self::MAP => 2,
            Self::TUPLE => reader.u16()?,
            Self::UDT => {
                reader.string()?;
                reader.string()?;
                reader.u16()?
            }
            _ => 0,
        };
        for _ in 0..contained {
            if id == Self::UDT {
                reader.string()?;
            }
            Self::read(reader, depth + 1)?;
        }
        Ok(Self { id, form: Form::Numbered(inner) })
    }

    /// Its number in the protocol, such as 13 for varchar. A class that has the values of a type with a
    /// number has that number.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// The name of the class of a custom type, with its parameters; `None` for other types.
    #[must_use]
    pub const fn class(&self) -> Option<&'a str> {
        match self.form {
            Form::Class(text) if self.id == Self::CUSTOM => Some(text),
            Form::Class(_) | Form::Numbered(_) => None,
        }
    }

    /// The type of the elements of a list, of a set or of a vector, or of the keys of a map; `None` for
    /// other types.
    #[must_use]
    pub fn element(&self) -> Option<Self> {
        match self.id {
            Self::LIST | Self::SET | Self::MAP => self.contained().next().map(|(_, kind)| kind),
            Self::CUSTOM => self.vector().map(|vector| vector.element),
            _ => None,
        }
    }

    /// The type of the values of a map; `None` for other types.
    #[must_use]
    pub fn map_value(&self) -> Option<Self> {
        if self.id == Self::MAP { self.contained().nth(1).map(|(_, kind)| kind) } else { None }
    }

    /// The number of elements of a vector; `None` for other types.
    #[must_use]
    pub fn dimension(&self) -> Option<usize> {
        self.vector().map(|vector| vector.dimension)
    }

    pub(super) fn vector(&self) -> Option<Vector<'a>> {
        class::vector(self.class()?)
    }

    /// The keyspace and the name of a user-defined type; `None` for other types.
    #[must_use]
    pub fn udt_name(&self) -> Option<(&'a str, TypeName<'a>)> {
        match self.form {
            _ if self.id != Self::UDT => None,
            Form::Numbered(mut inner) => Some((inner.string().ok()?, TypeName::plain(inner.string().ok()?))),
            Form::Class(text) => Parameters::of(text).udt_name(),
        }
    }

    /// The names and the types of the fields of a user-defined type, or of a tuple: there the names are
    /// empty. None for other types.
    #[must_use]
    pub fn fields(&self) -> TypeFields<'a> {
        if matches!(self.id, Self::TUPLE | Self::UDT) { self.contained() } else { TypeFields::NONE }
    }

    /// The types that it contains. Those of a vector are not among them.
    pub(super) fn contained(&self) -> TypeFields<'a> {
        let is_named = self.id == Self::UDT;
        let left = match self.form {
            Form::Numbered(mut inner) => {
                let count = match self.id {
                    Self::LIST | Self::SET => Ok(1),
                    Self::MAP => Ok(2),
                    Self::TUPLE => inner.u16(),
                    // Texts that were checked when the type was read.
                    Self::UDT => inner.short_bytes().and_then(|_| inner.short_bytes()).and_then(|_| inner.u16()),
                    _ => Ok(0),
                };
                Left::Numbered { count: count.unwrap_or(0), inner }
            }
            Form::Class(text) => {
                let mut parameters = Parameters::of(text);
                if is_named {
                    parameters.udt_name();
                }
                Left::Class(parameters)
            }
        };
        TypeFields { is_named, left }
    }
}

impl PartialEq for Type<'_> {
    /// Cost: linear in the descriptions, times their depth, which is limited: [`TYPE_DEPTH_MAX`].
    fn eq(&self, other: &Self) -> bool {
        if self.id != other.id {
            return false;
        }
        match self.id {
            Self::CUSTOM => match (self.vector(), other.vector()) {
                (Some(one), Some(two)) => one.dimension == two.dimension && one.element == two.element,
                (None, None) => self.class() == other.class(),
                (Some(_), None) | (None, Some(_)) => false,
            },
            Self::LIST | Self::SET | Self::MAP | Self::TUPLE => self.contained().eq(other.contained()),
            Self::UDT => self.udt_name() == other.udt_name() && self.contained().eq(other.contained()),
            _ => true,
        }
    }
}

impl Eq for Type<'_> {}

impl fmt::Display for Type<'_> {
    /// Names are the server's texts: their control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described::fmt(self, f)
    }
}

impl fmt::Debug for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Type({self})")
    }
}

/// A type with what its text shows.
pub(super) trait Described<'a>: Sized {
    fn kind(&self) -> Type<'a>;

    /// The keyspace and the name of a user-defined type.
    fn name(&self) -> Option<(&'a str, TypeName<'a>)>;

    /// The element and the dimension of a vector.
    fn dimensioned(&self) -> Option<(Self, usize)>;

    /// The types that another type contains.
    fn parts(&self) -> impl Iterator<Item = Self>;

    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Limited { f, left: TYPE_TEXT_BYTES_MAX, is_full: false };
        match self.write(&mut out) {
            Err(_) if out.is_full => Ok(()),
            result => result,
        }
    }

    fn write(&self, out: &mut Limited<'_, '_>) -> fmt::Result {
        let kind = self.kind();
        let name = match kind.id {
            Type::LIST => "list",
            Type::MAP => "map",
            Type::SET => "set",
            Type::TUPLE => "tuple",
            Type::UDT => {
                let Some((keyspace, name)) = self.name() else { return Ok(()) };
                return write!(out, "{}.{name}", keyspace.escape_debug());
            }
            Type::CUSTOM => {
                let Some((element, dimension)) = self.dimensioned() else {
                    return write!(out, "{}", kind.class().unwrap_or_default().escape_debug());
                };
                out.write_str("vector<")?;
                element.write(out)?;
                return write!(out, ", {dimension}>");
            }
            id => match id::NAMES.iter().find(|(number, _)| *number == id) {
                Some((_, name)) => return out.write_str(name),
                None => return write!(out, "type {id:#06x}"),
            },
        };
        write!(out, "{name}<")?;
        for (place, part) in self.parts().enumerate() {
            if place > 0 {
                out.write_str(", ")?;
            }
            part.write(out)?;
        }
        out.write_str(">")
    }
}

impl<'a> Described<'a> for Type<'a> {
    fn kind(&self) -> Self {
        *self
    }

    fn name(&self) -> Option<(&'a str, TypeName<'a>)> {
        self.udt_name()
    }

    fn dimensioned(&self) -> Option<(Self, usize)> {
        self.vector().map(|vector| (vector.element, vector.dimension))
    }

    fn parts(&self) -> impl Iterator<Item = Self> {
        self.contained().map(|(_, kind)| kind)
    }
}

/// A text that is cut. After that, nothing more is written.
pub(super) struct Limited<'f, 'b> {
    f: &'f mut fmt::Formatter<'b>,
    left: usize,
    is_full: bool,
}

impl fmt::Write for Limited<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let head = cut(text, self.left);
        self.f.write_str(head)?;
        self.left -= head.len();
        if head.len() == text.len() {
            return Ok(());
        }
        self.is_full = true;
        self.f.write_str("..")?;
        Err(fmt::Error)
    }
}

/// The first characters of a text, of at most so many bytes.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The name of a user-defined type or of one of its fields. It compares as a text.
#[derive(Clone, Copy)]
pub struct TypeName<'a> {
    text: &'a str,
    /// Whether the text has the hexadecimal digits of the name, as in the parameters of classes. They
    /// are known to be well-formed.
    is_hex: bool,
}

impl<'a> TypeName<'a> {
    const fn plain(text: &'a str) -> Self {
        Self { text, is_hex: false }
    }

    /// The name as it is in the description; `None` if only the text of a class has it, encoded.
    #[must_use]
    pub const fn as_str(&self) -> Option<&'a str> {
        if self.is_hex { None } else { Some(self.text) }
    }

    /// Its characters.
    pub fn chars(&self) -> impl Iterator<Item = char> + use<'a> {
        let (plain, hex) = if self.is_hex { ("", self.text) } else { (self.text, "") };
        plain.chars().chain(class::hex_chars(hex).map_while(|one| one))
    }
}

impl PartialEq for TypeName<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chars().eq(other.chars())
    }
}

impl Eq for TypeName<'_> {}

impl PartialEq<str> for TypeName<'_> {
    fn eq(&self, other: &str) -> bool {
        self.chars().eq(other.chars())
    }
}

impl fmt::Display for TypeName<'_> {
    /// The name is the server's text: its control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars().flat_map(char::escape_debug).try_for_each(|one| f.write_char(one))
    }
}

impl fmt::Debug for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The fields of a type that are left: [`Type::fields`].
#[derive(Clone, Copy, Debug)]
pub struct TypeFields<'a> {
    is_named: bool,
    left: Left<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Left<'a> {
    Numbered { count: u16, inner: Reader<'a> },
    Class(Parameters<'a>),
}

impl TypeFields<'_> {
    const NONE: Self = Self { is_named: false, left: Left::Numbered { count: 0, inner: Reader::new(&[], 0) } };
}

impl<'a> Iterator for TypeFields<'a> {
    type Item = (TypeName<'a>, Type<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.left {
            Left::Numbered { count, inner } => {
                *count = count.checked_sub(1)?;
                let name = if self.is_named { inner.string().ok()? } else { "" };
                Some((TypeName::plain(name), Type::read(inner, 0).ok()?))
            }
            Left::Class(parameters) => parameters.next_field(self.is_named),
        }
    }
}

/// The numbers of the types without further types.
pub(super) mod id {
    pub(in crate::rows) const ASCII: u16 = 0x01;
    pub(in crate::rows) const BIGINT: u16 = 0x02;
    pub(in crate::rows) const BLOB: u16 = 0x03;
    pub(in crate::rows) const BOOLEAN: u16 = 0x04;
    pub(in crate::rows) const COUNTER: u16 = 0x05;
    pub(in crate::rows) const DECIMAL: u16 = 0x06;
    pub(in crate::rows) const DOUBLE: u16 = 0x07;
    pub(in crate::rows) const FLOAT: u16 = 0x08;
    pub(in crate::rows) const INT: u16 = 0x09;
    pub(in crate::rows) const TIMESTAMP: u16 = 0x0b;
    pub(in crate::rows) const UUID: u16 = 0x0c;
    pub(in crate::rows) const VARCHAR: u16 = 0x0d;
    pub(in crate::rows) const VARINT: u16 = 0x0e;
    pub(in crate::rows) const TIMEUUID: u16 = 0x0f;
    pub(in crate::rows) const INET: u16 = 0x10;
    pub(in crate::rows) const DATE: u16 = 0x11;
    pub(in crate::rows) const TIME: u16 = 0x12;
    pub(in crate::rows) const SMALLINT: u16 = 0x13;
    pub(in crate::rows) const TINYINT: u16 = 0x14;
    pub(in crate::rows) const DURATION: u16 = 0x15;

    /// Their names in CQL.
    pub(super) const NAMES: [(u16, &str); 20] = [
        (ASCII, "ascii"),
        (BIGINT, "bigint"),
        (BLOB, "blob"),
        (BOOLEAN, "boolean"),
        (COUNTER, "counter"),
        (DECIMAL, "decimal"),
        (DOUBLE, "double"),
        (FLOAT, "float"),
        (INT, "int"),
        (TIMESTAMP, "timestamp"),
        (UUID, "uuid"),
        (VARCHAR, "varchar"),
        (VARINT, "varint"),
        (TIMEUUID, "timeuuid"),
        (INET, "inet"),
        (DATE, "date"),
        (TIME, "time"),
        (SMALLINT, "smallint"),
        (TINYINT, "tinyint"),
        (DURATION, "duration"),
    ];
}
