//! Values of types that are not known here.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A value of a custom type that is not known here: the class of the type, and the bytes of the value. As
/// a bind variable it must have the class that the server describes.
///
/// With formats other than CQL it is a map with one entry, from the class to the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CustomValue {
    class: String,
    bytes: Vec<u8>,
}

impl CustomValue {
    /// - `class`: as [`Type::class`](crate::Type::class) returns it.
    #[must_use]
    pub fn new(class: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { class: class.into(), bytes: bytes.into() }
    }

    /// The name of the class, with its parameters.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The bytes of the cell.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Display for CustomValue {
    /// The bytes as CQL's literal of a blob, such as `0x00ff`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
