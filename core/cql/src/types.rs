//! Values of CQL for which Rust has no type, or none without a dependency.
//!
//! `read` decodes the cell of a row. With serde, as fields of rows and of bind variables, these types
//! take exactly the values of their type of CQL. For other formats they are their text, or if the format
//! is not human readable, an integer or bytes.
//!
//! Read first: Native Protocol, "Data Type Serialization Formats".

mod calendar;
mod custom;
mod date;
mod decimal;
mod duration;
mod empty;
#[cfg(feature = "serde")]
pub(crate) mod pass;
#[cfg(test)]
mod tests;
mod time;
mod timestamp;
mod uuid;
pub(crate) mod varint;
pub(crate) mod vint;

pub use custom::CustomValue;
pub use date::Date;
pub use decimal::Decimal;
pub use duration::Duration;
pub use empty::MaybeEmpty;
pub use time::Time;
pub use timestamp::Timestamp;
pub use uuid::Uuid;
pub use varint::{VARINT_DECIMAL_BYTES_MAX, Varint};

use core::fmt;

/// Why a text or another value is not a value of a type of CQL. Has no part of the value, which may be
/// secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueError {
    text: &'static str,
}

impl ValueError {
    const fn new(text: &'static str) -> Self {
        Self { text }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

poolhouse_wire::debug_as_display!(ValueError);

impl core::error::Error for ValueError {}
