//! The error for options out of range.

use core::fmt;
use core::time::Duration;

/// An option is out of its range. Nothing was started.
///
/// Contains the specification's name of the option, the value, and the rule that the value breaks:
/// `heartbeatFrequencyMS is 100, but must be at least 500`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ConfigError {
    option: &'static str,
    value: u64,
    rule: &'static str,
}

impl ConfigError {
    /// Creates an error about `option` (the specification's name), with its `value` and the `rule`
    /// that it breaks (a phrase that follows "must": `"be at least 500"`).
    #[must_use]
    pub const fn new(option: &'static str, value: u64, rule: &'static str) -> Self {
        Self { option, value, rule }
    }

    /// The specification's name of the option, such as `heartbeatFrequencyMS`.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }

    /// The value of the option, in the unit of the option's name.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// The rule that the value must satisfy: a phrase that follows "must".
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must {}", self.option, self.value, self.rule)
    }
}

poolhouse_wire::debug_as_display!(ConfigError);

impl core::error::Error for ConfigError {}

/// A time limit as given in an option: zero is no limit, as in connection strings.
pub(crate) const fn limit(given: Option<Duration>) -> Option<Duration> {
    match given {
        Some(Duration::ZERO) => None,
        given => given,
    }
}

/// Whole milliseconds of a duration, saturating: the value of a duration in an error.
#[doc(hidden)]
#[must_use]
pub const fn millis_of(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000).saturating_add(duration.subsec_millis() as u64)
}
