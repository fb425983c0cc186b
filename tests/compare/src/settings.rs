//! The extent of measurements.

use core::time::Duration;

/// The extent of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// A quick run, which only shows that everything works.
    pub(crate) quick: bool,
}

impl Settings {
    /// Number of figures of a median.
    pub(crate) const fn rounds(&self) -> usize {
        self.of(1, 7)
    }

    /// Selects the value for a quick run or for a measurement.
    pub(crate) const fn of(&self, quick: usize, full: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Duration of a case in each round, for cases that run for a time.
    pub(crate) const fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 30 } else { 400 })
    }
}
