//! Types that are described by the text of a class, such as `VectorType(FloatType, 3)`.
//!
//! A text that is not understood in whole is an unknown custom type: only a class at its end, or one
//! whose values have lengths of their own, may be unknown. Reading is linear in the text, and its depth
//! is limited.

use super::{Form, Type, TypeName, id};
use crate::rows::TYPE_DEPTH_MAX;

/// The package of the server's own classes. Descriptions may omit it.
const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// The largest number of bytes that a value can have: its length is an `int`.
const VALUE_BYTES_MAX: usize = 0x7fff_ffff;

/// The classes without parameters, with the numbers of their types, and with the length of each value
/// if it is the same for all. In vectors such values have no length in front, and all others have one:
/// also those of some types with a fixed length, such as smallint.
///
/// Source: `valueLengthIfFixed` of these classes.
const CLASSES: [(&str, u16, Option<usize>); 22] = [
    ("AsciiType", id::ASCII, None),
    ("BooleanType", id::BOOLEAN, Some(1)),
    ("ByteType", id::TINYINT, None),
    ("BytesType", id::BLOB, None),
    ("CounterColumnType", id::COUNTER, None),
    ("DateType", id::TIMESTAMP, Some(8)),
    ("DecimalType", id::DECIMAL, None),
    ("DoubleType", id::DOUBLE, Some(8)),
    ("DurationType", id::DURATION, None),
    ("FloatType", id::FLOAT, Some(4)),
    ("InetAddressType", id::INET, None),
    ("Int32Type", id::INT, Some(4)),
    ("IntegerType", id::VARINT, None),
    ("LexicalUUIDType", id::UUID, Some(16)),
    ("LongType", id::BIGINT, Some(8)),
    ("ShortType", id::SMALLINT, None),
    ("SimpleDateType", id::DATE, None),
    ("TimeType", id::TIME, None),
    ("TimeUUIDType", id::TIMEUUID, Some(16)),
    ("TimestampType", id::TIMESTAMP, Some(8)),
    ("UTF8Type", id::VARCHAR, None),
    ("UUIDType", id::UUID, Some(16)),
];

/// The type of this text.
pub(super) fn read(text: &str) -> Type<'_> {
    let mut all = Parameters { rest: text };
    match all.class(0) {
        Some(class) if all.is_end() => class.kind,
        _ => Type { id: Type::CUSTOM, form: Form::Class(text) },
    }
}

/// A vector: the type and the number of its elements.
#[derive(Clone, Copy)]
pub(in crate::rows) struct Vector<'a> {
    pub(in crate::rows) element: Type<'a>,
    pub(in crate::rows) dimension: usize,
    /// The length of each element in bytes; `None` if each has its own length in front.
    pub(in crate::rows) element_bytes: Option<usize>,
}

/// The vector that this text describes, if it is one.
pub(super) fn vector(text: &str) -> Option<Vector<'_>> {
    let mut all = Parameters { rest: text };
    if all.name()? != "VectorType" {
        return None;
    }
    let vector = all.vector(0)?;
    all.is_end().then_some(vector)
}

/// The part of a text that is left. Methods return `None` where it is not as expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters<'a> {
    rest: &'a str,
}

/// A class that was read.
struct Class<'a> {
    kind: Type<'a>,
    /// See [`CLASSES`].
    value_bytes: Option<usize>,
}

impl<'a> Parameters<'a> {
    /// The parameters of a class that is known to be well-formed.
    pub(super) fn of(text: &'a str) -> Self {
        let mut all = Self { rest: text };
        let _ = (all.name(), all.skip('('));
        all
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn is_end(mut self) -> bool {
        self.blanks();
        self.rest.is_empty()
    }

    /// Skips this character, if it is the next.
    fn skip(&mut self, one: char) -> Option<()> {
        self.blanks();
        self.rest = self.rest.strip_prefix(one)?;
        Some(())
    }

    /// Reads a word: the name of a class or of a keyspace, a number, or hexadecimal digits.
    fn word(&mut self) -> Option<&'a str> {
        self.blanks();
        let is_other = |one: char| !one.is_ascii_alphanumeric() && !matches!(one, '.' | '_' | '-' | '+' | '&' | '$');
        let (word, rest) = self.rest.split_at_checked(self.rest.find(is_other).unwrap_or(self.rest.len()))?;
        self.rest = rest;
        if word.is_empty() { None } else { Some(word) }
    }

    /// Reads the name of a class. Classes of the server have no package; the names of all others are
    /// not known.
    fn name(&mut self) -> Option<&'a str> {
        self.word().map(|word| word.strip_prefix(PACKAGE).unwrap_or(word))
    }

    fn class(&mut self, depth: u32) -> Option<Class<'a>> {
        if depth > TYPE_DEPTH_MAX {
            return None;
        }
        self.blanks();
        let start = self.rest;
        let mut value_bytes = None;
        let name = self.name()?;
        let id = match name {
            // Values are the same, whether a type is frozen, and in which order it is sorted.
            "FrozenType" | "ReversedType" => {
                self.skip('(')?;
                let class = self.class(depth + 1)?;
                self.skip(')')?;
                return Some(class);
            }
            "ListType" => self.types(1, depth).map(|()| Type::LIST)?,
            "SetType" => self.types(1, depth).map(|()| Type::SET)?,
            "MapType" => self.types(2, depth).map(|()| Type::MAP)?,
            "TupleType" => {
                self.skip('(')?;
                self.class(depth + 1)?;
                self.more(depth, false)?;
                Type::TUPLE
            }
            "UserType" => {
                self.skip('(')?;
                self.udt_name()?;
                self.more(depth, true)?;
                Type::UDT
            }
            "VectorType" => {
                let vector = self.vector(depth)?;
                // At most `VALUE_BYTES_MAX`.
                value_bytes = vector.element_bytes.map(|bytes| bytes * vector.dimension);
                Type::CUSTOM
            }
            _ => match CLASSES.iter().find(|(class, ..)| *class == name) {
                Some((_, id, bytes)) => {
                    value_bytes = *bytes;
                    *id
                }
                None => {
                    self.skip_unknown()?;
                    Type::CUSTOM
                }
            },
        };
        let text = start.get(..start.len() - self.rest.len())?;
        Some(Class { kind: Type { id, form: Form::Class(text) }, value_bytes })
    }

    /// Reads this many types in parentheses.
    fn types(&mut self, count: u32, depth: u32) -> Option<()> {
        for place in 0..count {
            self.skip(if place == 0 { '(' } else { ',' })?;
            self.class(depth + 1)?;
        }
        self.skip(')')
    }

    /// Reads the fields that are left, up to the closing parenthesis.
    fn more(&mut self, depth: u32, is_named: bool) -> Option<()> {
        while self.skip(')').is_none() {
            self.skip(',')?;
            if is_named {
                self.hex_name()?;
                self.skip(':')?;
            }
            self.class(depth + 1)?;
        }
        Some(())
    }

    /// Reads the element and the dimension in parentheses.
    fn vector(&mut self, depth: u32) -> Option<Vector<'a>> {
        self.skip('(')?;
        let Class { kind: element, value_bytes: element_bytes } = self.class(depth + 1)?;
        // The elements of an unknown class may or may not have lengths.
        let is_unknown = element.id == Type::CUSTOM && !element.class().is_some_and(is_vector);
        self.skip(',')?;
        let dimension = self.word()?.parse::<usize>().ok()?;
        self.skip(')')?;
        // Each element has a byte or more.
        let is_possible = (1..=VALUE_BYTES_MAX / element_bytes.unwrap_or(1)).contains(&dimension);
        (is_possible && !is_unknown).then_some(Vector { element, dimension, element_bytes })
    }

    /// Reads the keyspace and the name, the first parameters of a user-defined type.
    pub(super) fn udt_name(&mut self) -> Option<(&'a str, TypeName<'a>)> {
        let keyspace = self.word()?;
        self.skip(',')?;
        Some((keyspace, self.hex_name()?))
    }

    fn hex_name(&mut self) -> Option<TypeName<'a>> {
        let text = self.word()?;
        let is_name = text.len() % 2 == 0 && hex_chars(text).all(|one| one.is_some());
        is_name.then_some(TypeName { text, is_hex: true })
    }

    /// Reads the next field of a tuple or of a user-defined type that is known to be well-formed.
    pub(super) fn next_field(&mut self, is_named: bool) -> Option<(TypeName<'a>, Type<'a>)> {
        let _ = self.skip(',');
        let name = if is_named { self.hex_name()? } else { TypeName::plain("") };
        let _ = self.skip(':');
        self.class(0).map(|class| (name, class.kind))
    }

    /// Skips the parameters of a class that is not known: anything with as many opening as closing
    /// parentheses.
    fn skip_unknown(&mut self) -> Option<()> {
        if !self.rest.trim_ascii_start().starts_with('(') {
            return Some(());
        }
        let mut open = 0_usize;
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                b'(' => open += 1,
                b')' => open = open.checked_sub(1)?,
                _ => {}
            }
            if byte == b')' && open == 0 {
                self.rest = self.rest.get(at + 1..)?;
                return Some(());
            }
        }
        None
    }
}

/// Whether the text of a class that was read is that of a vector.
fn is_vector(text: &str) -> bool {
    Parameters { rest: text }.name() == Some("VectorType")
}

/// The characters of a name in hexadecimal digits of UTF-8; `None` in place of one that is malformed.
pub(super) fn hex_chars(digits: &str) -> impl Iterator<Item = Option<char>> + '_ {
    let mut bytes = digits.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => {
            let digit = |one: u8| char::from(one).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            Some(digit(high)? << 4 | digit(low)?)
        }
        _ => None,
    });
    core::iter::from_fn(move || {
        let first = bytes.next()?;
        let mut buffer = [first.unwrap_or(0xff), 0, 0, 0];
        let length = match buffer[0] {
            0..=0x7f => 1,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        for place in &mut buffer[1..length] {
            *place = bytes.next().flatten().unwrap_or(0xff);
        }
        Some(core::str::from_utf8(&buffer[..length]).ok().and_then(|text| text.chars().next()))
    })
}
