//! The load: tasks that ping the primary, and what they measure.

use alloc::sync::Arc;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use poolhouse_smol::bson::doc;
use poolhouse_smol::{Client, Error};
use smol::{Task, Timer};

use crate::state::{Sample, Totals};

/// The largest number of latencies of one period; further operations are counted only.
const LATENCIES_MAX: usize = 1 << 20;
/// The pause of a task after a failure.
const PAUSE: Duration = Duration::from_millis(50);

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

/// Starts the tasks; they end when they are dropped.
pub(crate) fn start(client: &Client, tally: &Arc<Mutex<Tally>>, tasks: u32) -> Vec<Task<()>> {
    (0..tasks).map(|_| smol::spawn(work(client.clone(), Arc::clone(tally)))).collect()
}

/// Pings the primary repeatedly. A transient failure is retried once, as an application would.
async fn work(client: Client, tally: Arc<Mutex<Tally>>) {
    loop {
        let started = Instant::now();
        let mut outcome = ping(&client).await;
        if outcome.as_ref().is_err_and(|error| error.is_retryable() || error.is_transient()) {
            with(&tally, |tally| tally.totals.retried += 1);
            outcome = ping(&client).await;
        }
        let latency_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let failed = outcome.is_err();
        with(&tally, |tally| {
            tally.last_succeeded = !failed;
            match outcome {
                Ok(()) => {
                    tally.totals.succeeded += 1;
                    if tally.latencies_us.len() < LATENCIES_MAX {
                        tally.latencies_us.push(latency_us);
                    }
                }
                Err(error) => {
                    tally.totals.failed += 1;
                    tally.last_error = Some(error.to_string());
                }
            }
        });
        if failed {
            Timer::after(PAUSE).await;
        }
    }
}

async fn ping(client: &Client) -> Result<(), Error> {
    client.check_out().await?.run_command("admin", doc! { "ping": 1 }).await.map(drop)
}

#[cfg(test)]
mod tests;
