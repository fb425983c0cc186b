//! Times of day.

use super::ValueError;
use super::calendar::{DAY_NS, Text, write_seconds};
use core::fmt;
use core::str::FromStr;

/// A value of type time: a time of day, in nanoseconds since midnight.
///
/// Its text is `HH:MM:SS.fffffffff`. Read are texts with fewer digits, or without the fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// `None` if the time is a day or more.
    ///
    /// - `ns`: nanoseconds since midnight.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Option<Self> {
        if ns < DAY_NS { Some(Self(ns)) } else { None }
    }

    /// Nanoseconds since midnight, less than those of a day.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Decodes a cell of type time; `None` if it is malformed.
    #[must_use]
    pub fn read(cell: &[u8]) -> Option<Self> {
        cell.try_into().ok().map(u64::from_be_bytes).and_then(Self::from_ns)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_seconds(f, self.0 / 1_000_000_000)?;
        write!(f, ".{:09}", self.0 % 1_000_000_000)
    }
}

impl FromStr for Time {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut text = Text(text);
        let ns = text.time().filter(|_| text.0.is_empty());
        ns.map(Self).ok_or(ValueError::new("no time of the form 12:30:00.250000000"))
    }
}

#[cfg(feature = "chrono")]
mod of_chrono {
    use super::{Time, ValueError};
    use ::chrono::{NaiveTime, Timelike as _};

    impl TryFrom<NaiveTime> for Time {
        type Error = ValueError;

        /// A leap second is refused.
        fn try_from(time: NaiveTime) -> Result<Self, ValueError> {
            let nanoseconds = u64::from(time.nanosecond());
            if nanoseconds >= 1_000_000_000 {
                return Err(ValueError::new("a leap second"));
            }
            Ok(Self(u64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + nanoseconds))
        }
    }

    impl From<Time> for NaiveTime {
        fn from(time: Time) -> Self {
            let [seconds, nanoseconds] =
                [time.0 / 1_000_000_000, time.0 % 1_000_000_000].map(|part| u32::try_from(part).unwrap_or_default());
            // It is less than a day.
            Self::from_num_seconds_from_midnight_opt(seconds, nanoseconds).unwrap_or_default()
        }
    }
}

#[cfg(feature = "time")]
mod of_time {
    use super::Time;

    impl From<::time::Time> for Time {
        fn from(time: ::time::Time) -> Self {
            let (hours, minutes, seconds, nanoseconds) = time.as_hms_nano();
            let seconds = (u64::from(hours) * 60 + u64::from(minutes)) * 60 + u64::from(seconds);
            Self(seconds * 1_000_000_000 + u64::from(nanoseconds))
        }
    }

    impl From<Time> for ::time::Time {
        fn from(time: Time) -> Self {
            // It is less than a day, so that nothing overflows.
            Self::MIDNIGHT + core::time::Duration::from_nanos(time.0)
        }
    }
}
