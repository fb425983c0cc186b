//! Dates of the Gregorian calendar, extended to all years, and times of day, as texts and as numbers.

/// Days from the first of March of year 0 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
/// The days of 400 years, after which the calendar repeats.
const CYCLE_DAYS: i64 = 146_097;
/// The nanoseconds of a day.
pub(super) const DAY_NS: u64 = 86_400_000_000_000;

/// Days from the first of March of year 0 to the first of March of this year.
const fn days_before(year: i64) -> i64 {
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400)
}

/// Days from the first of March to the first of the month that is so many months later: these have 31,
/// 30, 31, 30 and 31 days in turn.
const fn days_before_month(months: i64) -> i64 {
    (153 * months + 2) / 5
}

/// Days since 1970-01-01 of a date; `None` if there is no such date.
pub(super) fn days(year: i64, month: u8, day: u8) -> Option<i64> {
    // Years begin in March, so that a leap day is the last of its year.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month.checked_add(9)?) };
    let days = days_before(years) + days_before_month(i64::from(months)) + i64::from(day) - 1 - EPOCH_DAYS;
    (date(days) == (year, month, day)).then_some(days)
}

/// The date that is so many days after 1970-01-01.
pub(super) fn date(days: i64) -> (i64, u8, u8) {
    let days = days + EPOCH_DAYS;
    // An estimate, too small by at most one.
    let mut years = (days * 400).div_euclid(CYCLE_DAYS);
    if days_before(years + 1) <= days {
        years += 1;
    }
    let of_year = days - days_before(years);
    let months = (5 * of_year + 2) / 153;
    let day = of_year - days_before_month(months) + 1;
    let (year, month) = if months < 10 { (years, months + 3) } else { (years + 1, months - 9) };
    (year, u8::try_from(month).unwrap_or_default(), u8::try_from(day).unwrap_or_default())
}

/// The part of a text that is left.
pub(super) struct Text<'a>(pub(super) &'a str);

impl<'a> Text<'a> {
    /// Skips one of these characters and returns it.
    pub(super) fn one_of(&mut self, characters: &[char]) -> Option<char> {
        let rest = self.0.strip_prefix(characters)?;
        let one = self.0.chars().next();
        self.0 = rest;
        one
    }

    pub(super) fn digits(&mut self) -> &'a str {
        let end = self.0.find(|one: char| !one.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
    }

    fn two_digits(&mut self) -> Option<u8> {
        let (digits, rest) = self.0.split_at_checked(2)?;
        self.0 = rest;
        if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
    }

    /// Reads `YYYY-MM-DD`, and returns days since 1970-01-01. A year may have a sign, and up to nine
    /// digits.
    pub(super) fn date(&mut self) -> Option<i64> {
        let sign = self.one_of(&['+', '-']);
        let digits = self.digits();
        if !(4..=9).contains(&digits.len()) {
            return None;
        }
        let year = digits.parse::<i64>().ok()?;
        self.one_of(&['-'])?;
        let month = self.two_digits()?;
        self.one_of(&['-'])?;
        days(if sign == Some('-') { -year } else { year }, month, self.two_digits()?)
    }

    /// Reads `HH:MM:SS`, possibly with a fraction, and returns nanoseconds since midnight. Digits after
    /// the ninth of the fraction must be zeros.
    pub(super) fn time(&mut self) -> Option<u64> {
        let hours = self.two_digits()?;
        self.one_of(&[':'])?;
        let minutes = self.two_digits()?;
        self.one_of(&[':'])?;
        let seconds = self.two_digits()?;
        let mut nanoseconds = 0;
        if self.one_of(&['.']).is_some() {
            let digits = self.digits();
            let mut unit = 1_000_000_000;
            for digit in digits.bytes() {
                unit /= 10;
                if unit == 0 && digit != b'0' {
                    return None;
                }
                nanoseconds += unit * u64::from(digit - b'0');
            }
            if digits.is_empty() {
                return None;
            }
        }
        let is_time = hours < 24 && minutes < 60 && seconds < 60;
        let [hours, minutes, seconds] = [hours, minutes, seconds].map(u64::from);
        is_time.then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds)
    }

    /// Reads `Z`, or hours and minutes east of it, and returns minutes.
    pub(super) fn offset(&mut self) -> Option<i64> {
        let sign = self.one_of(&['Z', 'z', '+', '-'])?;
        if matches!(sign, 'Z' | 'z') {
            return Some(0);
        }
        let hours = self.two_digits()?;
        let _ = self.one_of(&[':']);
        let minutes = self.two_digits()?;
        let offset = i64::from(hours) * 60 + i64::from(minutes);
        (hours < 24 && minutes < 60).then_some(if sign == '-' { -offset } else { offset })
    }
}

/// Writes `YYYY-MM-DD`. Years before 0 and after 9999 have a sign.
pub(super) fn write_date(f: &mut core::fmt::Formatter<'_>, days: i64) -> core::fmt::Result {
    let (year, month, day) = date(days);
    match year {
        0..=9999 => write!(f, "{year:04}-{month:02}-{day:02}"),
        // The sign is one of the five characters.
        _ => write!(f, "{year:+05}-{month:02}-{day:02}"),
    }
}

/// Writes `HH:MM:SS`.
pub(super) fn write_seconds(f: &mut core::fmt::Formatter<'_>, seconds: u64) -> core::fmt::Result {
    write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
