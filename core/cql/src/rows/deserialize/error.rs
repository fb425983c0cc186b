//! Why a row cannot be read, without its values.

use crate::error::CqlError;
use crate::rows::problem::{Problem, Subject};
use crate::rows::shape::Shape;
use alloc::boxed::Box;
use core::fmt;
use serde::de::{self, Expected, Unexpected};

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
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self(Box::new(Problem::new(text)))
    }

    #[cold]
    pub(super) fn out_of_range(expected: &dyn Expected) -> Self {
        Self(Box::new(Problem::value("out of range", expected)))
    }

    /// Notes that the value is inside that of the column.
    #[cold]
    pub(super) fn inside(self, shape: &Shape<'_>) -> Self {
        Self(Box::new(self.0.inside(Some(shape))))
    }

    /// Notes that the value is inside that of this field.
    #[cold]
    pub(super) fn in_field(self, name: &str) -> Self {
        Self(Box::new(self.0.in_field(name)))
    }

    /// - `rust`: the type of Rust that is wanted.
    #[cold]
    pub(super) fn in_column(self, name: &str, shape: &Shape<'_>, rust: &str) -> Self {
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

pub(super) const MALFORMED: &str = "malformed";
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
