//! What the tasks of a load measure.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use crate::state::{Sample, Totals};

/// The largest number of latencies of one period; further operations are counted only.
const LATENCIES_MAX: usize = 1 << 20;

/// Measurements of the tasks.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) totals: Totals,
    pub(crate) last_error: Option<String>,
    pub(crate) last_succeeded: bool,
    /// Since the last sample.
    latencies_us: Vec<u64>,
    /// Succeeded operations at the last sample.
    sampled: u64,
}

impl Tally {
    /// - `latency`: from the start of the operation, with the wait for a connection.
    pub(crate) fn add(&mut self, outcome: Result<(), String>, latency: Duration) {
        self.last_succeeded = outcome.is_ok();
        match outcome {
            Ok(()) => {
                self.totals.succeeded += 1;
                if self.latencies_us.len() < LATENCIES_MAX {
                    self.latencies_us.push(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
                }
            }
            Err(error) => {
                self.totals.failed += 1;
                self.last_error = Some(error);
            }
        }
    }

    /// Ends a period of this length.
    pub(crate) fn sample(&mut self, period: Duration) -> Sample {
        let count = self.totals.succeeded - self.sampled;
        self.sampled = self.totals.succeeded;
        let us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
        let [p50_us, p99_us] = [50, 99].map(|percent| quantile(&mut self.latencies_us, percent));
        self.latencies_us.clear();
        Sample { rate: count.saturating_mul(1_000_000) / us, p50_us, p99_us, failover: false }
    }
}

/// The smallest value that so many percent of the values do not exceed; 0 without values.
fn quantile(values: &mut [u64], percent: usize) -> u64 {
    let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
    if values.is_empty() { 0 } else { *values.select_nth_unstable(index).1 }
}

pub(crate) fn with<T, R>(shared: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    f(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests;
