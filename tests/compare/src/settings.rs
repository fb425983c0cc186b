//! How thoroughly it is measured.

use core::time::Duration;

/// How thoroughly it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Only to see that everything works.
    pub(crate) quick: bool,
}

impl Settings {
    /// Figures that a median is taken of.
    pub(crate) const fn rounds(&self) -> usize {
        self.of(1, 7)
    }

    /// One for a look, another one for a measurement.
    pub(crate) const fn of(&self, quick: usize, full: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// How long a case has its turn, where that is a time.
    pub(crate) const fn turn(&self) -> Duration {
        Duration::from_millis(if self.quick { 30 } else { 400 })
    }
}
