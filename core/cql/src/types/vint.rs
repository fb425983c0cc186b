//! Integers of variable length: the number of leading ones of the first byte is that of the bytes after
//! it.
//!
//! Source: `VIntCoding` of Cassandra.

use crate::notation::Reader;

/// The bytes of an integer.
#[derive(Clone, Copy)]
pub(crate) struct Vint {
    bytes: [u8; 9],
    length: usize,
}

impl Vint {
    pub(crate) const fn unsigned(number: u64) -> Self {
        // Each byte has seven bits of the number, but the ninth eight.
        let bits = 64 - (number | 1).leading_zeros() as usize;
        let extra = if bits > 56 { 8 } else { (bits - 1) / 7 };
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        let wide = [0, a, b, c, d, e, f, g, h];
        let mut bytes = [0; 9];
        let mut place = 0;
        while place <= extra {
            bytes[place] = wide[8 - extra + place];
            place += 1;
        }
        bytes[0] |= if extra == 8 { 0xff } else { !(0xff >> extra) };
        Self { bytes, length: extra + 1 }
    }

    /// Numbers of both signs that are near to zero become small ones.
    pub(crate) const fn signed(number: i64) -> Self {
        Self::unsigned((number << 1 ^ number >> 63).cast_unsigned())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

pub(crate) fn read_unsigned(reader: &mut Reader<'_>) -> Option<u64> {
    let first = reader.u8().ok()?;
    let extra = first.leading_ones();
    // A first byte of ones only has no bits of the number.
    let mut number = u64::from(first & 0xff_u8.checked_shr(extra).unwrap_or(0));
    for byte in reader.take(usize::try_from(extra).ok()?).ok()? {
        number = number << 8 | u64::from(*byte);
    }
    Some(number)
}

pub(crate) fn read_signed(reader: &mut Reader<'_>) -> Option<i64> {
    let number = read_unsigned(reader)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}
