//! Round-trip times: their moving average and their recent minimum.
//!
//! Read first: Server Selection, "Calculation of Average Round Trip Times"; Server Monitoring,
//! "Measuring RTT".

use core::hash::{Hash, Hasher};
use core::time::Duration;

/// The number of recent samples that the minimum covers.
const SAMPLES: usize = 10;
/// The number of samples below which no minimum is defined.
const SAMPLES_MIN: u8 = 2;
/// Femtoseconds per nanosecond: the average is stored in femtoseconds.
const FEMTOS: u64 = 1_000_000;
/// The longest sample, in nanoseconds: one hour. Five times its femtoseconds still fit into 64
/// bits.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// The round-trip time to a server: a moving average in which each new sample weighs 0.2, and the
/// minimum of the last ten samples.
///
/// The average is stored in whole femtoseconds, so rounding errors stay far below a nanosecond over
/// long runs, without floating point. A negative sample is not representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// In femtoseconds; meaningless while `count` is 0.
    average: u64,
    /// In nanoseconds; the first `count` are in use.
    recent: [u64; SAMPLES],
    /// The number of entries of `recent` in use.
    count: u8,
    /// The index of the next sample in `recent`.
    next: u8,
}

impl Rtt {
    /// Creates a value without samples.
    #[must_use]
    pub const fn new() -> Self {
        Self { average: 0, recent: [0; SAMPLES], count: 0, next: 0 }
    }

    /// Adds a sample.
    ///
    /// - `sample`: from sending a hello to its parsed reply; longer samples are capped at one hour.
    ///
    /// The first sample is the average; each later one has weight 0.2.
    ///
    /// Cost: O(1), no allocation.
    ///
    /// Source: Server Selection, "Calculation of Average Round Trip Times".
    pub fn add_sample(&mut self, sample: Duration) {
        let nanos = sample.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(sample.subsec_nanos()));
        let nanos = nanos.min(LONGEST_NANOS);
        let femtos = nanos * FEMTOS;
        self.average = if self.count == 0 { femtos } else { (femtos + 4 * self.average + 2) / 5 };
        let place = usize::from(self.next);
        self.recent[place] = nanos;
        self.next = if place + 1 == SAMPLES { 0 } else { self.next + 1 };
        if usize::from(self.count) < SAMPLES {
            self.count += 1;
        }
    }

    /// Discards all samples: the server has become unavailable.
    pub const fn reset(&mut self) {
        *self = Self::new();
    }

    /// The moving average, to the nearest nanosecond; `None` without a sample.
    #[must_use]
    pub const fn average(&self) -> Option<Duration> {
        match self.average_femtos() {
            Some(femtos) => Some(Duration::from_nanos((femtos + FEMTOS / 2) / FEMTOS)),
            None => None,
        }
    }

    /// The moving average as stored, in femtoseconds (a millionth of a nanosecond); `None` without
    /// a sample.
    #[must_use]
    pub const fn average_femtos(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.average) }
    }

    /// The minimum of the last ten samples; zero while there are fewer than two.
    #[must_use]
    pub fn minimum(&self) -> Duration {
        if self.count < SAMPLES_MIN {
            return Duration::ZERO;
        }
        let used = &self.recent[..usize::from(self.count)];
        Duration::from_nanos(used.iter().copied().min().unwrap_or(0))
    }

    /// The number of samples that the minimum covers: at most ten.
    #[must_use]
    pub const fn sample_count(&self) -> u8 {
        self.count
    }

    /// Checks that the counts and indices agree.
    pub(super) fn assert_invariants(&self) {
        assert!(usize::from(self.count) <= SAMPLES, "more samples than slots");
        assert!(usize::from(self.next) < SAMPLES, "the next slot is outside the ring");
        if usize::from(self.count) < SAMPLES {
            assert_eq!(self.count, self.next, "the ring is not filled from its start");
        }
        assert!(self.recent.iter().all(|sample| *sample <= LONGEST_NANOS), "samples are bounded");
        assert!(self.average <= LONGEST_NANOS * FEMTOS, "the average is no larger than the largest sample");
        assert!(self.count > 0 || self.average == 0, "an average without samples is kept");
    }
}

impl Hash for Rtt {
    /// Left out of hashes: round-trip times are only reported and do not affect a monitor's
    /// behaviour. See `Past`.
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Default for Rtt {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(LONGEST_NANOS.checked_mul(FEMTOS).is_some());
const _: () = assert!((LONGEST_NANOS * FEMTOS).checked_mul(5).is_some());
