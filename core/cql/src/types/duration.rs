//! Durations.

use super::ValueError;
use super::calendar::Text;
use super::vint::{Vint, read_signed};
use crate::notation::Reader;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The part of a duration that a unit of a text counts, and how much of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Months,
    Days,
    Nanoseconds,
}

const HOUR_NS: u64 = 3_600_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The units of a text, in their order.
const UNITS: [(&str, Part, u64); 11] = [
    ("y", Part::Months, 12),
    ("mo", Part::Months, 1),
    ("w", Part::Days, 7),
    ("d", Part::Days, 1),
    ("h", Part::Nanoseconds, HOUR_NS),
    ("m", Part::Nanoseconds, MINUTE_NS),
    ("s", Part::Nanoseconds, SECOND_NS),
    ("ms", Part::Nanoseconds, 1_000_000),
    ("us", Part::Nanoseconds, 1_000),
    ("µs", Part::Nanoseconds, 1_000),
    ("ns", Part::Nanoseconds, 1),
];

/// A value of type duration: months, days and nanoseconds, which are not converted to each other,
/// because months and days have different lengths. All have the same sign.
///
/// Its text is that of CQL: numbers with the units y, mo, w, d, h, m, s, ms, us (or µs) and ns in this
/// order, after a sign if it is negative, such as `-1y2mo3d4h5m6s7ms8us9ns`. Weeks are read, and written
/// as days. Durations have no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Duration {
    months: i32,
    days: i32,
    nanoseconds: i64,
}

impl Duration {
    /// `None` if the numbers have different signs.
    #[must_use]
    pub const fn new(months: i32, days: i32, nanoseconds: i64) -> Option<Self> {
        let is_positive = months >= 0 && days >= 0 && nanoseconds >= 0;
        let is_negative = months <= 0 && days <= 0 && nanoseconds <= 0;
        if is_positive || is_negative { Some(Self { months, days, nanoseconds }) } else { None }
    }

    /// Its months.
    #[must_use]
    pub const fn months(self) -> i32 {
        self.months
    }

    /// Its days, in addition to the months.
    #[must_use]
    pub const fn days(self) -> i32 {
        self.days
    }

    /// Its nanoseconds, in addition to the days.
    #[must_use]
    pub const fn nanoseconds(self) -> i64 {
        self.nanoseconds
    }

    /// Decodes a cell of type duration; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(cell, 0);
        let [months, days] = [read_signed(&mut reader)?, read_signed(&mut reader)?];
        let nanoseconds = read_signed(&mut reader).filter(|_| reader.rest.is_empty())?;
        Self::new(i32::try_from(months).ok()?, i32::try_from(days).ok()?, nanoseconds)
    }

    /// The bytes of a cell.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let parts = [i64::from(self.months), i64::from(self.days), self.nanoseconds].map(Vint::signed);
        parts.each_ref().map(Vint::as_slice).concat()
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("0s");
        }
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            f.write_str("-")?;
        }
        let (mut months, mut ns) = (u64::from(self.months.unsigned_abs()), self.nanoseconds.unsigned_abs());
        let mut days = u64::from(self.days.unsigned_abs());
        for (unit, part, size) in UNITS.into_iter().filter(|(unit, ..)| !matches!(*unit, "w" | "µs")) {
            let left = match part {
                Part::Months => &mut months,
                Part::Days => &mut days,
                Part::Nanoseconds => &mut ns,
            };
            if *left >= size {
                write!(f, "{}{unit}", *left / size)?;
                *left %= size;
            }
        }
        Ok(())
    }
}

impl FromStr for Duration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const MALFORMED: ValueError = ValueError::new("no duration of the form 1y2mo3d4h5m6s7ms8us9ns");
        const RANGE: ValueError = ValueError::new("a duration out of range");
        let mut text = Text(text);
        let is_negative = text.one_of(&['-']).is_some();
        let (mut months, mut days, mut ns) = (0_u64, 0_u64, 0_u64);
        let mut units = UNITS.into_iter();
        if text.0.is_empty() {
            return Err(MALFORMED);
        }
        while !text.0.is_empty() {
            let digits = text.digits();
            let end = text.0.find(|one: char| one.is_ascii_digit()).unwrap_or(text.0.len());
            let (unit, rest) = text.0.split_at(end);
            text.0 = rest;
            // The units that are left follow the one that was found.
            let (_, part, size) = units
                .find(|(name, ..)| name.eq_ignore_ascii_case(unit))
                .filter(|_| !digits.is_empty())
                .ok_or(MALFORMED)?;
            let sum = match part {
                Part::Months => &mut months,
                Part::Days => &mut days,
                Part::Nanoseconds => &mut ns,
            };
            let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(size));
            *sum = number.and_then(|number| sum.checked_add(number)).ok_or(RANGE)?;
        }
        let signed = |number: u64| if is_negative { -i128::from(number) } else { i128::from(number) };
        let [months, days] = [months, days].map(|number| i32::try_from(signed(number)));
        match (months, days, i64::try_from(signed(ns))) {
            (Ok(months), Ok(days), Ok(nanoseconds)) => Ok(Self { months, days, nanoseconds }),
            _ => Err(RANGE),
        }
    }
}
