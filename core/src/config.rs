//! What is wrong with an option.

use core::fmt;
use core::time::Duration;

/// An option is out of its range. Nothing was started.
///
/// Names the option by its specification's name, the value that was given, and the rule that it breaks:
/// `heartbeatFrequencyMS is 100, but must be at least 500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConfigError {
    option: &'static str,
    value: u64,
    rule: &'static str,
}

impl ConfigError {
    /// An error about `option` (the specification's name of it), which has `value` and breaks `rule`
    /// (a phrase that follows "must": `"be at least 500"`).
    #[must_use]
    pub const fn new(option: &'static str, value: u64, rule: &'static str) -> Self {
        Self { option, value, rule }
    }

    /// The specification's name of the option, such as `heartbeatFrequencyMS`.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }

    /// The value that was given, in the unit that the option's name says.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// What the value must satisfy: a phrase that follows "must".
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

impl core::error::Error for ConfigError {}

/// Whole milliseconds of a duration, saturating: how an error says the value of a duration.
#[doc(hidden)]
#[must_use]
pub const fn millis_of(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000).saturating_add(duration.subsec_millis() as u64)
}
