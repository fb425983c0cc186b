//! Integers of any size.

use super::ValueError;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

/// The maximum length in bytes of a [`Varint`] that has a decimal text. Such texts have up to 2,466 digits.
pub const VARINT_DECIMAL_BYTES_MAX: usize = 1024;
/// The digits of 2^8191, the largest number of that length.
const DIGITS_MAX: usize = 2466;
/// A limb of nine digits.
const NINE_DIGITS: u32 = 1_000_000_000;

/// A value of type varint: an integer of any size.
///
/// Its text is decimal. The time to convert it grows with the square of its length, so numbers of more
/// than [`VARINT_DECIMAL_BYTES_MAX`] bytes are shown in hexadecimal digits after `0x`, and longer texts
/// are not read.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Varint {
    /// The shortest bytes of the number in two's complement, at least one.
    bytes: Vec<u8>,
}

impl Varint {
    /// Decodes a cell of type varint: two's complement, its largest byte first; `None` if it is empty.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        if cell.is_empty() { None } else { Some(Self { bytes: shortest(cell).to_vec() }) }
    }

    /// The bytes of a cell, as few as possible.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it is less than 0.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        is_negative(&self.bytes)
    }

    fn from_magnitude(is_negative: bool, magnitude: &[u32]) -> Self {
        let mut bytes = vec![0];
        bytes.extend(magnitude.iter().rev().flat_map(|limb| limb.to_be_bytes()));
        if is_negative {
            negate(&mut bytes);
        }
        Self { bytes: shortest(&bytes).to_vec() }
    }

    /// The bytes of its absolute value.
    fn magnitude(&self) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&self.bytes);
        if self.is_negative() {
            bytes[0] = 0xff;
            negate(&mut bytes);
        }
        bytes
    }

    /// The decimal digits of its absolute value; `None` if they would be too many.
    pub(super) fn digits(&self) -> Option<String> {
        use core::fmt::Write as _;
        let mut digits = String::new();
        if let Some(number) = to_i128(&self.bytes) {
            let _ = write!(digits, "{}", number.unsigned_abs());
            return Some(digits);
        }
        if self.bytes.len() > VARINT_DECIMAL_BYTES_MAX {
            return None;
        }
        let bytes = self.magnitude();
        let mut limbs: Vec<u32> =
            bytes.rchunks(4).map(|limb| limb.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))).collect();
        let mut groups = Vec::new();
        while !limbs.is_empty() {
            let mut rest = 0_u64;
            for limb in limbs.iter_mut().rev() {
                let number = rest << 32 | u64::from(*limb);
                *limb = u32::try_from(number / u64::from(NINE_DIGITS)).unwrap_or_default();
                rest = number % u64::from(NINE_DIGITS);
            }
            groups.push(rest);
            while limbs.last() == Some(&0) {
                limbs.pop();
            }
        }
        for (place, group) in groups.iter().rev().enumerate() {
            let _ = if place == 0 { write!(digits, "{group}") } else { write!(digits, "{group:09}") };
        }
        Some(digits)
    }

    /// Writes the hexadecimal digits of its absolute value.
    pub(super) fn write_hex(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        let bytes = self.magnitude();
        let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
        bytes.iter().skip(start).try_for_each(|byte| write!(f, "{byte:02x}"))
    }

    /// Reads decimal digits.
    pub(super) fn from_digits(is_negative: bool, digits: &str) -> Result<Self, ValueError> {
        const TOO_LONG: ValueError = ValueError::new("a number of more than 1,024 bytes as a text");
        const MALFORMED: ValueError = ValueError::new("no integer of decimal digits");
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(MALFORMED);
        }
        let digits = digits.trim_start_matches('0');
        if digits.len() > DIGITS_MAX {
            return Err(TOO_LONG);
        }
        let mut limbs: Vec<u32> = Vec::new();
        let first = digits.len() % 9;
        let (head, tail) = digits.split_at_checked(first).unwrap_or_default();
        for group in core::iter::once(head.as_bytes()).chain(tail.as_bytes().chunks(9)) {
            let mut carry = group.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
            for limb in &mut limbs {
                let number = u64::from(*limb) * u64::from(NINE_DIGITS) + carry;
                *limb = (number & 0xffff_ffff).try_into().unwrap_or_default();
                carry = number >> 32;
            }
            if carry > 0 {
                limbs.push(carry.try_into().unwrap_or_default());
            }
        }
        let number = Self::from_magnitude(is_negative, &limbs);
        if number.bytes.len() > VARINT_DECIMAL_BYTES_MAX { Err(TOO_LONG) } else { Ok(number) }
    }
}

/// Replaces a number in two's complement by its negative. It has a bit to spare.
fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes.iter_mut().rev() {
        (*byte, carry) = (!*byte).overflowing_add(carry.into());
    }
}

const fn is_negative(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80..=0xff, ..])
}

/// The shortest bytes of the same number in two's complement.
pub(crate) fn shortest(mut bytes: &[u8]) -> &[u8] {
    while let [0x00, next @ 0..=0x7f, ..] | [0xff, next @ 0x80..=0xff, ..] = bytes {
        debug_assert_eq!(next >> 7, bytes[0] >> 7, "the sign is kept");
        bytes = bytes.get(1..).unwrap_or_default();
    }
    bytes
}

/// The number of these bytes in two's complement, if it has at most 128 bits.
pub(crate) fn to_i128(bytes: &[u8]) -> Option<i128> {
    let bytes = shortest(bytes);
    let mut wide = [if is_negative(bytes) { 0xff } else { 0 }; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide.get_mut(start..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// The same for numbers from 0 up to 128 bits.
pub(crate) fn to_u128(bytes: &[u8]) -> Option<u128> {
    match shortest(bytes) {
        [0, bytes @ ..] if bytes.len() == 16 => bytes.try_into().ok().map(u128::from_be_bytes),
        bytes => to_i128(bytes).and_then(|number| number.try_into().ok()),
    }
}

impl Default for Varint {
    fn default() -> Self {
        Self { bytes: vec![0] }
    }
}

impl Ord for Varint {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of numbers with the same sign and length, the bytes have the order of the numbers.
        let key = |number: &Self| {
            let length = i64::try_from(number.bytes.len()).unwrap_or(i64::MAX);
            if number.is_negative() { -length } else { length }
        };
        key(self).cmp(&key(other)).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for Varint {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Varint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negative() {
            f.write_str("-")?;
        }
        match self.digits() {
            Some(digits) => f.write_str(&digits),
            None => self.write_hex(f),
        }
    }
}

impl fmt::Debug for Varint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Varint({self})")
    }
}

impl FromStr for Varint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        Self::from_digits(text.starts_with('-'), digits)
    }
}

impl From<i128> for Varint {
    fn from(number: i128) -> Self {
        Self { bytes: shortest(&number.to_be_bytes()).to_vec() }
    }
}

impl From<u128> for Varint {
    fn from(number: u128) -> Self {
        let mut bytes = [0; 17];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        Self { bytes: shortest(&bytes).to_vec() }
    }
}

macro_rules! from_integer {
    ($($type:ty)*) => {$(
        impl From<$type> for Varint {
            fn from(number: $type) -> Self {
                Self::from(i128::from(number))
            }
        }
    )*};
}

macro_rules! to_integer {
    ($read:ident: $($type:ty)*) => {$(
        impl TryFrom<&Varint> for $type {
            type Error = ValueError;

            fn try_from(number: &Varint) -> Result<Self, ValueError> {
                let found = $read(&number.bytes).and_then(|number| number.try_into().ok());
                found.ok_or(ValueError::new(concat!("a varint out of the range of ", stringify!($type))))
            }
        }

        impl TryFrom<Varint> for $type {
            type Error = ValueError;

            fn try_from(number: Varint) -> Result<Self, ValueError> {
                Self::try_from(&number)
            }
        }
    )*};
}

from_integer!(i8 i16 i32 i64 u8 u16 u32 u64);
to_integer!(to_i128: i8 i16 i32 i64 i128 u8 u16 u32 u64);
to_integer!(to_u128: u128);

#[cfg(feature = "num-bigint")]
mod of_num_bigint {
    use super::{Varint, shortest};
    use ::num_bigint::BigInt;

    impl From<BigInt> for Varint {
        fn from(number: BigInt) -> Self {
            Self::from(&number)
        }
    }

    impl From<&BigInt> for Varint {
        fn from(number: &BigInt) -> Self {
            Self { bytes: shortest(&number.to_signed_bytes_be()).to_vec() }
        }
    }

    impl From<Varint> for BigInt {
        fn from(number: Varint) -> Self {
            Self::from(&number)
        }
    }

    impl From<&Varint> for BigInt {
        fn from(number: &Varint) -> Self {
            Self::from_signed_bytes_be(&number.bytes)
        }
    }
}
