//! UUIDs.

use super::{Timestamp, ValueError};
use core::fmt;
use core::str::FromStr;

/// Milliseconds from the start of the Gregorian calendar, 1582-10-15, to 1970.
const GREGORIAN_MS: i64 = 12_219_292_800_000;

/// A value of type uuid or timeuuid.
///
/// Its text has groups of 8, 4, 4, 4 and 12 hexadecimal digits. Read are also 32 digits without hyphens.
/// The order is that of the bytes, which is not that of the times of timeuuids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The UUID of these bytes, in the order of the text.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the order of the text.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Its version, such as 1 for the time-based ones, which timeuuids are, and 4 for random ones.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0[6] >> 4
    }

    /// The time of a UUID of version 1, rounded down to milliseconds; `None` for other versions.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        if self.version() != 1 {
            return None;
        }
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        // Units of 100 nanoseconds.
        let units = i64::from_be_bytes([g & 0x0f, h, e, f, a, b, c, d]);
        Some(Timestamp::from_ms(units / 10_000 - GREGORIAN_MS))
    }

    /// Decodes a cell of type uuid or timeuuid; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        cell.try_into().ok().map(Self)
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl From<Uuid> for [u8; 16] {
    fn from(uuid: Uuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        let mut places = (0..36).filter(|place| !is_hyphen(*place));
        for digit in self.0.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]) {
            let digit = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            if let Some(place) = places.next().and_then(|place| text.get_mut(place)) {
                *place = digit;
            }
        }
        f.write_str(core::str::from_utf8(&text).unwrap_or_default())
    }
}

const fn is_hyphen(place: usize) -> bool {
    matches!(place, 8 | 13 | 18 | 23)
}

impl FromStr for Uuid {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const MALFORMED: ValueError = ValueError::new("no UUID of 32 hexadecimal digits");
        let is_grouped = text.len() == 36 && text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == is_hyphen(at));
        if !is_grouped && text.len() != 32 {
            return Err(MALFORMED);
        }
        let mut number = 0_u128;
        for digit in text.chars().filter(|one| !(is_grouped && *one == '-')) {
            number = number << 4 | u128::from(digit.to_digit(16).ok_or(MALFORMED)?);
        }
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(feature = "uuid")]
impl From<::uuid::Uuid> for Uuid {
    fn from(uuid: ::uuid::Uuid) -> Self {
        Self(uuid.into_bytes())
    }
}

#[cfg(feature = "uuid")]
impl From<Uuid> for ::uuid::Uuid {
    fn from(uuid: Uuid) -> Self {
        Self::from_bytes(uuid.0)
    }
}
