//! Timestamps.

use super::ValueError;
use super::calendar::{Text, write_date, write_seconds};
use core::fmt;
use core::str::FromStr;

/// The milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A value of type timestamp: an instant, in milliseconds since 1970-01-01 00:00 UTC.
///
/// Its text is that of RFC 3339, in UTC and with milliseconds: `2024-02-29T12:30:00.250Z`. All of its
/// range has a text: years before 0 and after 9999 have a sign and as many digits as needed, as in ISO
/// 8601, up to `+292278994-08-17T07:12:55.807Z`. Read are texts with any offset from UTC, but not
/// without one, and with a `T` or a space between date and time. Fractions of milliseconds are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// - `ms`: milliseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970-01-01 00:00 UTC.
    #[must_use]
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Decodes a cell of type timestamp; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        cell.try_into().ok().map(i64::from_be_bytes).map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date(f, self.0.div_euclid(DAY_MS))?;
        f.write_str("T")?;
        let of_day = self.0.rem_euclid(DAY_MS).unsigned_abs();
        write_seconds(f, of_day / 1000)?;
        write!(f, ".{:03}Z", of_day % 1000)
    }
}

impl FromStr for Timestamp {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const MALFORMED: ValueError = ValueError::new("no timestamp of the form 2024-02-29T12:30:00.250Z");
        let mut text = Text(text);
        let days = text.date().ok_or(MALFORMED)?;
        text.one_of(&['T', 't', ' ']).ok_or(MALFORMED)?;
        let ns = text.time().ok_or(MALFORMED)?;
        let offset_minutes = text.offset().filter(|_| text.0.is_empty()).ok_or(MALFORMED)?;
        if ns % 1_000_000 != 0 {
            return Err(ValueError::new("a timestamp with fractions of milliseconds"));
        }
        let of_day = i128::from(ns / 1_000_000) - i128::from(offset_minutes * 60_000);
        let ms = i128::from(days) * i128::from(DAY_MS) + of_day;
        i64::try_from(ms).map(Self).map_err(|_| ValueError::new("a timestamp out of range"))
    }
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use super::{Timestamp, ValueError};
    use ::chrono::{DateTime, Utc};

    impl From<DateTime<Utc>> for Timestamp {
        /// Rounds down to milliseconds.
        fn from(time: DateTime<Utc>) -> Self {
            Self(time.timestamp_millis())
        }
    }

    impl TryFrom<Timestamp> for DateTime<Utc> {
        type Error = ValueError;

        fn try_from(time: Timestamp) -> Result<Self, ValueError> {
            Self::from_timestamp_millis(time.0).ok_or(ValueError::new("a timestamp out of the range of DateTime"))
        }
    }
}

#[cfg(feature = "time")]
mod of_time {
    use super::{Timestamp, ValueError};
    use ::time::{OffsetDateTime, UtcDateTime};

    const RANGE: ValueError = ValueError::new("a timestamp out of the range of the crate time");

    impl From<UtcDateTime> for Timestamp {
        /// Rounds down to milliseconds.
        fn from(time: UtcDateTime) -> Self {
            Self(time.unix_timestamp() * 1000 + i64::from(time.millisecond()))
        }
    }

    impl From<OffsetDateTime> for Timestamp {
        /// Rounds down to milliseconds.
        fn from(time: OffsetDateTime) -> Self {
            Self(time.unix_timestamp() * 1000 + i64::from(time.millisecond()))
        }
    }

    impl TryFrom<Timestamp> for UtcDateTime {
        type Error = ValueError;

        fn try_from(time: Timestamp) -> Result<Self, ValueError> {
            Self::from_unix_timestamp_nanos(i128::from(time.0) * 1_000_000).map_err(|_| RANGE)
        }
    }

    impl TryFrom<Timestamp> for OffsetDateTime {
        type Error = ValueError;

        /// In UTC.
        fn try_from(time: Timestamp) -> Result<Self, ValueError> {
            Self::from_unix_timestamp_nanos(i128::from(time.0) * 1_000_000).map_err(|_| RANGE)
        }
    }
}
