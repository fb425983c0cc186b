//! Medians of interleaved rounds, waiting times, fairness.

use core::time::Duration;
use std::time::Instant;

/// The median, the mean of the two middle figures if their number is even; NaN if there are no figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = |place: usize| figures.get(place).copied().unwrap_or(f64::NAN);
    f64::midpoint(middle(figures.len().saturating_sub(1) / 2), middle(figures.len() / 2))
}

/// The figures of some cases for each round.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    /// Indexed by case, then by round.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    /// Runs each case once in each round, after a warm-up that is not counted. Interleaving
    /// distributes a slow-down of the machine over all cases.
    pub(crate) fn of(rounds: usize, cases: usize, mut measured: impl FnMut(usize) -> f64) -> Self {
        for case in 0..cases {
            measured(case);
        }
        let mut figures = vec![Vec::new(); cases];
        for round in 0..rounds {
            for turn in 0..cases {
                // The order rotates, and its direction alternates, so none of three or more cases always
                // follows the same one.
                let place = if round % 2 == 0 { turn } else { cases - 1 - turn };
                let case = (place + round) % cases;
                figures[case].push(measured(case));
            }
        }
        Self { figures }
    }

    /// The median of a case.
    pub(crate) fn median(&self, case: usize) -> f64 {
        median(self.figures[case].clone())
    }

    /// The median of the ratios of a case to another one in each round.
    pub(crate) fn ratio(&self, case: usize, of: usize) -> f64 {
        median(self.figures[case].iter().zip(&self.figures[of]).map(|(one, other)| one / other).collect())
    }
}

/// Nanoseconds of one of `times` steps.
pub(crate) fn ns_each(times: u32, mut step: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        step();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

/// A quantile of some figures; sorts them.
pub(crate) fn quantile(figures: &mut [f64], share: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len().saturating_sub(1);
    figures.get(rounded(last as f64 * share)).copied().unwrap_or(f64::NAN)
}

#[allow(clippy::cast_possible_truncation, reason = "an index of a slice")]
const fn rounded(place: f64) -> usize {
    place.round() as usize
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one task has everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { f64::NAN }
}

/// Number of significant bits of a duration below the highest one: an error of at most 3 %.
const DETAIL_BITS: u32 = 5;
const BUCKETS: usize = (64 - DETAIL_BITS as usize + 1) << DETAIL_BITS;

/// A histogram of waiting times, in buckets that grow with the time.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    counts: Vec<u32>,
    pub(crate) total: u64,
    pub(crate) max_ns: u64,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_ns: 0 }
    }

    pub(crate) fn add(&mut self, waited: Duration) {
        let ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The waiting time in nanoseconds that this share of waits does not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> f64 {
        let wanted = self.total as f64 * share;
        let mut seen = 0.0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= wanted && seen > 0.0 {
                return floor_of(place + 1).min(self.max_ns as f64);
            }
        }
        self.max_ns as f64
    }
}

fn bucket(ns: u64) -> usize {
    let high = ns.checked_ilog2().unwrap_or(0);
    let shift = high.saturating_sub(DETAIL_BITS);
    let place = (u64::from(shift) << DETAIL_BITS) + (ns >> shift);
    usize::try_from(place).map_or(BUCKETS - 1, |place| place.min(BUCKETS - 1))
}

/// The smallest value of a bucket.
fn floor_of(place: usize) -> f64 {
    let exact = 1_usize << DETAIL_BITS;
    if place < 2 * exact {
        return place as f64;
    }
    let shift = place / exact - 1;
    (place - shift * exact) as f64 * 2_f64.powf(shift as f64)
}
