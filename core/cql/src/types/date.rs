//! Dates.

use super::ValueError;
use super::calendar::{self, Text};
use core::fmt;
use core::str::FromStr;

/// Day 2^31 of the protocol is 1970-01-01.
const EPOCH: u32 = 1 << 31;

/// A value of type date: a day of the Gregorian calendar, in days since 1970-01-01.
///
/// Its text is `YYYY-MM-DD`. Years before 0 and after 9999 have a sign and as many digits as needed, from
/// `-5877641-06-23` to `+5881580-07-11`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i32);

impl Date {
    /// - `days`: since 1970-01-01.
    #[must_use]
    pub const fn from_days(days: i32) -> Self {
        Self(days)
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub const fn days(self) -> i32 {
        self.0
    }

    /// The date of a year, of a month from 1 and of a day from 1; `None` if there is none, or if it is out
    /// of range. Year 0 is the one before year 1.
    #[must_use]
    pub fn from_ymd(year: i32, month: u8, day: u8) -> Option<Self> {
        calendar::days(year.into(), month, day).and_then(|days| i32::try_from(days).ok()).map(Self)
    }

    /// Its year, its month from 1 and its day from 1.
    #[must_use]
    pub fn ymd(self) -> (i32, u8, u8) {
        let (year, month, day) = calendar::date(self.0.into());
        (i32::try_from(year).unwrap_or_default(), month, day)
    }

    /// Decodes a cell of type date; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        let number = u32::from_be_bytes(cell.try_into().ok()?);
        Some(Self(number.wrapping_sub(EPOCH).cast_signed()))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        calendar::write_date(f, self.0.into())
    }
}

impl FromStr for Date {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut text = Text(text);
        let days =
            text.date().filter(|_| text.0.is_empty()).ok_or(ValueError::new("no date of the form 2024-02-29"))?;
        i32::try_from(days).map(Self).map_err(|_| ValueError::new("a date out of range"))
    }
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use super::{Date, ValueError};
    use ::chrono::{Datelike as _, NaiveDate};

    /// Days from the last day of the year before year 1 to 1970-01-01.
    const EPOCH_DAYS: i32 = 719_163;

    impl From<NaiveDate> for Date {
        fn from(date: NaiveDate) -> Self {
            Self(date.num_days_from_ce() - EPOCH_DAYS)
        }
    }

    impl TryFrom<Date> for NaiveDate {
        type Error = ValueError;

        fn try_from(date: Date) -> Result<Self, ValueError> {
            let days = date.0.checked_add(EPOCH_DAYS).and_then(Self::from_num_days_from_ce_opt);
            days.ok_or(ValueError::new("a date out of the range of NaiveDate"))
        }
    }
}

#[cfg(feature = "time")]
mod of_time {
    use super::{Date, ValueError};

    /// The Julian day of 1970-01-01.
    const EPOCH_DAYS: i32 = 2_440_588;

    impl From<::time::Date> for Date {
        fn from(date: ::time::Date) -> Self {
            Self(date.to_julian_day() - EPOCH_DAYS)
        }
    }

    impl TryFrom<Date> for ::time::Date {
        type Error = ValueError;

        fn try_from(date: Date) -> Result<Self, ValueError> {
            let days = date.0.checked_add(EPOCH_DAYS).and_then(|days| Self::from_julian_day(days).ok());
            days.ok_or(ValueError::new("a date out of the range of the crate time"))
        }
    }
}
