//! Lateness of timers and wake-ups, compared with that of the machine itself.

use core::time::Duration;
use std::thread;
use std::time::Instant;

/// P19: the permitted median. On two cores with a load of 9 it is below a millisecond.
const P50_MAX: Duration = Duration::from_millis(5);

/// The permitted 99th percentile. On two cores with a load of 9 it is below 40 ms.
const P99_MAX: Duration = Duration::from_millis(150);

/// The factor by which the client may be later than the machine.
const FACTOR: u32 = 4;

/// How late something was, in many measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The median.
    pub p50: Duration,
    /// The average. Some delays of a busy machine are long and rare: each of several steps in a row may have one.
    pub mean: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl Lateness {
    /// Evaluates measurements, of which there must be at least a hundred.
    #[must_use]
    pub fn of(mut measured: Vec<Duration>) -> Self {
        assert!(measured.len() >= 100, "{} measurements", measured.len());
        measured.sort_unstable();
        let at = |percent| measured[(measured.len() - 1) * percent / 100];
        let count = u32::try_from(measured.len()).expect("it is less than a billion");
        Self { p50: at(50), mean: measured.iter().sum::<Duration>() / count, p99: at(99) }
    }

    /// The lateness of sleeps of the machine's threads until these times.
    #[must_use]
    pub fn of_machine(due: &[Instant]) -> Self {
        let mut due = due.to_vec();
        due.sort_unstable();
        let late = due.into_iter().map(|due| {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            Instant::now().saturating_duration_since(due)
        });
        Self::of(late.collect())
    }

    /// Checks both percentiles. The limit of the median grows with the average of the machine, the other with its 99th
    /// percentile.
    pub fn assert_small(self, what: &str, machine: Self) {
        println!("lateness of {what}: {self:?}; of the machine: {machine:?}");
        let small = self.p50 <= P50_MAX + machine.mean * FACTOR && self.p99 <= P99_MAX + machine.p99 * FACTOR;
        assert!(small, "lateness of {what}: {self:?}; of the machine: {machine:?}");
    }
}
