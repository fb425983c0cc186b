//! Decimal numbers.

use super::{ValueError, Varint};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The smallest exponent of a text without one: zeros after the point would otherwise be unlimited.
const EXPONENT_MIN: i64 = -6;

/// A value of type decimal: an integer divided by a power of ten.
///
/// Numbers with another scale are not equal, such as 1.0 and 1.00, because the server keeps the scale. So
/// does the text: `-12.30`, or with an exponent `1.23E+5`, if the scale is negative or the number very
/// small. A number whose integer has no decimal text, as it is that long
/// ([`VARINT_DECIMAL_BYTES_MAX`](super::VARINT_DECIMAL_BYTES_MAX)), is shown as `0x1f*10^-2`, which is not
/// read.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Decimal {
    unscaled: Varint,
    scale: i32,
}

impl Decimal {
    /// The number `unscaled` / 10^`scale`.
    #[must_use]
    pub fn new(unscaled: impl Into<Varint>, scale: i32) -> Self {
        Self { unscaled: unscaled.into(), scale }
    }

    /// The integer of all its digits.
    #[must_use]
    pub const fn unscaled(&self) -> &Varint {
        &self.unscaled
    }

    /// The number of digits after the point; if negative, that of zeros after all digits.
    #[must_use]
    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// Decodes a cell of type decimal; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        let (scale, unscaled) = cell.split_first_chunk()?;
        Some(Self { unscaled: Varint::read(unscaled)?, scale: i32::from_be_bytes(*scale) })
    }

    /// The bytes of a cell.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.scale.to_be_bytes(), self.unscaled.bytes()].concat()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unscaled.is_negative() {
            f.write_str("-")?;
        }
        let exponent = -i64::from(self.scale);
        let Some(digits) = self.unscaled.digits() else {
            self.unscaled.write_hex(f)?;
            return write!(f, "*10^{exponent}");
        };
        // The exponent if one digit is before the point.
        let one_digit = exponent.saturating_add(i64::try_from(digits.len()).unwrap_or(i64::MAX) - 1);
        if exponent == 0 {
            return f.write_str(&digits);
        }
        if exponent > 0 || one_digit < EXPONENT_MIN {
            let (first, others) = digits.split_at_checked(1).unwrap_or_default();
            let point = if others.is_empty() { "" } else { "." };
            return write!(f, "{first}{point}{others}E{one_digit:+}");
        }
        let fraction = usize::try_from(-exponent).unwrap_or(usize::MAX);
        match digits.len().checked_sub(fraction).filter(|whole| *whole > 0) {
            Some(whole) => {
                let (whole, others) = digits.split_at_checked(whole).unwrap_or_default();
                write!(f, "{whole}.{others}")
            }
            None => write!(f, "0.{digits:0>fraction$}"),
        }
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({self})")
    }
}

impl FromStr for Decimal {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const MALFORMED: ValueError = ValueError::new("no decimal number of the form -12.30 or 1.23E+5");
        const SCALE: ValueError = ValueError::new("a decimal number with an exponent out of range");
        let number = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (number, exponent) = match number.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i64>().map_err(|_| MALFORMED)?),
            None => (number, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // "1." and ".5" are numbers, "." is none.
        let digits = [whole, fraction].concat();
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) || digits.is_empty() {
            return Err(MALFORMED);
        }
        let scale = i64::try_from(fraction.len()).ok().and_then(|digits| digits.checked_sub(exponent));
        let scale = scale.and_then(|scale| i32::try_from(scale).ok()).ok_or(SCALE)?;
        Ok(Self { unscaled: Varint::from_digits(text.starts_with('-'), &digits)?, scale })
    }
}

impl From<Varint> for Decimal {
    fn from(number: Varint) -> Self {
        Self::new(number, 0)
    }
}

#[cfg(feature = "bigdecimal")]
mod of_bigdecimal {
    use super::{Decimal, ValueError};
    use ::bigdecimal::BigDecimal;

    impl TryFrom<BigDecimal> for Decimal {
        type Error = ValueError;

        /// The scale must fit into 32 bits.
        fn try_from(number: BigDecimal) -> Result<Self, ValueError> {
            let (unscaled, scale) = number.into_bigint_and_scale();
            let scale = i32::try_from(scale).map_err(|_| ValueError::new("a scale out of the range of decimal"))?;
            Ok(Self::new(&unscaled, scale))
        }
    }

    impl From<Decimal> for BigDecimal {
        fn from(number: Decimal) -> Self {
            Self::new((&number.unscaled).into(), number.scale.into())
        }
    }
}
