//! How values of these types pass serde: as newtype structs, by whose names rows and bind variables
//! recognize them. Rows then return the bytes of the cell, and bind variables take these bytes, or an
//! integer. Other formats see the text, or if they are not human readable, an integer or bytes.

use super::{CustomValue, Date, Decimal, Duration, MaybeEmpty, Time, Timestamp, Uuid, Varint};
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// The names start with a character that no name in Rust has.
pub(crate) mod name {
    pub(crate) const TIMESTAMP: &str = "\0poolhouse_cql::Timestamp";
    pub(crate) const DATE: &str = "\0poolhouse_cql::Date";
    pub(crate) const TIME: &str = "\0poolhouse_cql::Time";
    pub(crate) const DURATION: &str = "\0poolhouse_cql::Duration";
    pub(crate) const VARINT: &str = "\0poolhouse_cql::Varint";
    pub(crate) const DECIMAL: &str = "\0poolhouse_cql::Decimal";
    pub(crate) const UUID: &str = "\0poolhouse_cql::Uuid";
    pub(crate) const CUSTOM: &str = "\0poolhouse_cql::CustomValue";
    pub(crate) const MAYBE_EMPTY: &str = "\0poolhouse_cql::MaybeEmpty";

    /// The name, if it is one of these.
    pub(crate) fn own(name: &'static str) -> Option<&'static str> {
        name.starts_with("\0poolhouse_cql::").then_some(name)
    }
}

/// A type that passes as described above.
trait Pass: FromStr + fmt::Display {
    const NAME: &'static str;
    /// For errors.
    const EXPECTED: &'static str;
    /// Whether the form that is not human readable is an integer.
    const IS_INTEGER: bool;

    fn read(cell: &[u8]) -> Option<Self>;

    fn from_integer(_: i128) -> Option<Self> {
        None
    }

    fn serialize_compact<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

struct Inner<'v, T>(&'v T);

impl<T: Pass> Serialize for Inner<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self.0)
        } else {
            self.0.serialize_compact(serializer)
        }
    }
}

struct PassVisitor<T>(PhantomData<T>);

impl<T: Pass> PassVisitor<T> {
    fn integer<E: serde::de::Error>(number: i128) -> Result<T, E> {
        T::from_integer(number).ok_or_else(|| E::invalid_value(Unexpected::Other("integer"), &T::EXPECTED))
    }
}

impl<'a, T: Pass> Visitor<'a> for PassVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_newtype_struct<D: Deserializer<'a>>(self, deserializer: D) -> Result<T, D::Error> {
        match (deserializer.is_human_readable(), T::IS_INTEGER) {
            (true, _) => deserializer.deserialize_any(self),
            (false, true) => deserializer.deserialize_i64(self),
            (false, false) => deserializer.deserialize_bytes(self),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        // The value may be secret.
        text.parse().map_err(|_| E::invalid_value(Unexpected::Other("text"), &T::EXPECTED))
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        T::read(bytes).ok_or_else(|| E::invalid_value(Unexpected::Bytes(&[]), &T::EXPECTED))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        Self::integer(number.into())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        Self::integer(number.into())
    }

    fn visit_i128<E: serde::de::Error>(self, number: i128) -> Result<T, E> {
        Self::integer(number)
    }
}

macro_rules! pass {
    ($type:ty, $name:ident, $expected:literal, $is_integer:literal, |$value:ident, $serializer:ident| $compact:expr,
     |$number:ident| $from_integer:expr) => {
        impl Pass for $type {
            const NAME: &'static str = name::$name;
            const EXPECTED: &'static str = $expected;
            const IS_INTEGER: bool = $is_integer;

            fn read(cell: &[u8]) -> Option<Self> {
                <$type>::read(cell)
            }

            fn from_integer($number: i128) -> Option<Self> {
                $from_integer
            }

            fn serialize_compact<S: Serializer>(&self, $serializer: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                $compact
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_newtype_struct(Self::NAME, &Inner(self))
            }
        }

        impl<'a> Deserialize<'a> for $type {
            fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_newtype_struct(Self::NAME, PassVisitor(PhantomData))
            }
        }
    };
}

pass!(Timestamp, TIMESTAMP, "a timestamp", true, |it, serializer| serializer.serialize_i64(it.ms()), |number| {
    i64::try_from(number).ok().map(Self::from_ms)
});
pass!(Date, DATE, "a date", true, |it, serializer| serializer.serialize_i64(it.days().into()), |number| {
    i32::try_from(number).ok().map(Self::from_days)
});
pass!(Time, TIME, "a time", true, |it, serializer| serializer.serialize_i64(it.ns().cast_signed()), |number| {
    u64::try_from(number).ok().and_then(Self::from_ns)
});
pass!(
    Duration,
    DURATION,
    "a duration",
    false,
    |it, serializer| serializer.serialize_bytes(&it.to_bytes()),
    |_number| None
);
pass!(Varint, VARINT, "a varint", false, |it, serializer| serializer.serialize_bytes(it.bytes()), |number| {
    Some(Self::from(number))
});
pass!(
    Decimal,
    DECIMAL,
    "a decimal number",
    false,
    |it, serializer| serializer.serialize_bytes(&it.to_bytes()),
    |number| Some(Self::new(number, 0))
);
pass!(Uuid, UUID, "a UUID", false, |it, serializer| serializer.serialize_bytes(&it.bytes()), |_number| None);

/// Bytes that serialize as such, which slices do not, and read from bytes or from a list.
struct Bytes<B>(B);

impl Serialize for Bytes<&[u8]> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'a> Deserialize<'a> for Bytes<Vec<u8>> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl<'a> Visitor<'a> for BytesVisitor {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }

            fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(BytesVisitor).map(Self)
    }
}

/// A map with one entry.
struct Entry<'v>(&'v CustomValue);

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.0.class(), &Bytes(self.0.bytes()))?;
        map.end()
    }
}

impl Serialize for CustomValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(name::CUSTOM, &Entry(self))
    }
}

impl<'a> Deserialize<'a> for CustomValue {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct CustomVisitor;
        impl<'a> Visitor<'a> for CustomVisitor {
            type Value = CustomValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a custom type")
            }

            fn visit_newtype_struct<D: Deserializer<'a>>(self, deserializer: D) -> Result<CustomValue, D::Error> {
                deserializer.deserialize_map(self)
            }

            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<CustomValue, A::Error> {
                let entry: Option<(alloc::string::String, Bytes<Vec<u8>>)> = map.next_entry()?;
                let (class, bytes) = entry.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                Ok(CustomValue::new(class, bytes.0))
            }
        }
        deserializer.deserialize_newtype_struct(name::CUSTOM, CustomVisitor)
    }
}

/// As an `Option`.
struct Optional<'v, T>(&'v MaybeEmpty<T>);

impl<T: Serialize> Serialize for Optional<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            MaybeEmpty::Empty => serializer.serialize_none(),
            MaybeEmpty::Value(value) => serializer.serialize_some(value),
        }
    }
}

impl<T: Serialize> Serialize for MaybeEmpty<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(name::MAYBE_EMPTY, &Optional(self))
    }
}

impl<'a, T: Deserialize<'a>> Deserialize<'a> for MaybeEmpty<T> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        /// Rows call `visit_none` and `visit_some`; other formats `visit_newtype_struct`.
        struct EmptyVisitor<T>(PhantomData<T>);
        impl<'a, T: Deserialize<'a>> Visitor<'a> for EmptyVisitor<T> {
            type Value = MaybeEmpty<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or an empty value")
            }

            fn visit_newtype_struct<D: Deserializer<'a>>(self, deserializer: D) -> Result<MaybeEmpty<T>, D::Error> {
                deserializer.deserialize_option(self)
            }

            fn visit_none<E: serde::de::Error>(self) -> Result<MaybeEmpty<T>, E> {
                Ok(MaybeEmpty::Empty)
            }

            fn visit_some<D: Deserializer<'a>>(self, deserializer: D) -> Result<MaybeEmpty<T>, D::Error> {
                T::deserialize(deserializer).map(MaybeEmpty::Value)
            }
        }
        deserializer.deserialize_newtype_struct(name::MAYBE_EMPTY, EmptyVisitor(PhantomData))
    }
}
