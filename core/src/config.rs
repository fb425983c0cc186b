//! The one error of every option check.

use core::fmt;

/// An option is outside its range. Nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConfigError {
    option: &'static str,
    value: u64,
    rule: &'static str,
}

impl ConfigError {
    pub(crate) const fn new(option: &'static str, value: u64, rule: &'static str) -> Self {
        Self { option, value, rule }
    }

    /// The option's name in the specifications, such as `maxConnecting`.
    #[must_use]
    pub const fn option(&self) -> &'static str {
        self.option
    }

    /// The value that was given; milliseconds for options that end in `MS`.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// What the value must be.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.option, self.value, self.rule)
    }
}

impl core::error::Error for ConfigError {}
