//! The extent of measurements.

use core::time::Duration;

/// The extent of measurements.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// A quick run, which only shows that everything works.
    pub(crate) quick: bool,
    /// The words that the title of an incident of `failover` has; all incidents, if there are none.
    pub(crate) only: Vec<String>,
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

    /// Whether an incident with this title is chosen.
    pub(crate) fn is_chosen(&self, title: &str) -> bool {
        self.only.iter().all(|word| title.contains(word))
    }

    /// Duration of a case in each round, for cases that run for a time.
    pub(crate) const fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 30 } else { 400 })
    }
}
