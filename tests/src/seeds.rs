//! The seeds of random tests.
//!
//! Every random test has a small number of seeds, which begin with 0. These variables change it, for all of
//! them alike:
//!
//! - `POOLHOUSE_EFFORT=n`: n times as many seeds;
//! - `POOLHOUSE_SEEDS=n`: this many, whatever the test has;
//! - `POOLHOUSE_SEEDS_FROM=n`: the first of them;
//! - `POOLHOUSE_SEED=n`: this one alone.

#[cfg(feature = "simulation")]
mod lives;
#[cfg(feature = "simulation")]
mod shrink;

#[cfg(feature = "simulation")]
pub use lives::{Bytes, Lives, Run, TWICE, run_traced, same_twice, shrunk, with_points};
#[cfg(feature = "simulation")]
pub use shrink::{Limits, Shrunk, head, shrink};

#[cfg(feature = "fuzz")]
use crate::choices::Choices as _;
use crate::effort;
#[cfg(feature = "fuzz")]
use crate::rng::Rng;
use core::ops::Range;
use core::panic::AssertUnwindSafe;
use std::env;
use std::panic::catch_unwind;

#[cfg(feature = "fuzz")]
/// Random bytes of seeds.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Number of seeds.
    pub seeds: u64,
    /// Number of bytes.
    pub lengths: Range<u32>,
}

/// Returns the number in an environment variable.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text:?}")))
}

/// Returns the seeds of a random test, which has this many without effort. See the [module](self).
#[must_use]
pub fn drawn(count: u64) -> Range<u64> {
    if let Some(only) = number("POOLHOUSE_SEED") {
        return only..only + 1;
    }
    let first = number("POOLHOUSE_SEEDS_FROM").unwrap_or(0);
    first..first + number("POOLHOUSE_SEEDS").unwrap_or_else(|| count * effort())
}

/// Returns the bytes that a test of every short input tries at one place: these, and with effort all.
#[must_use]
pub fn of_effort(significant: &[u8]) -> Vec<u8> {
    if effort() > 1 { (0..=u8::MAX).collect() } else { significant.to_vec() }
}

/// The variables that repeat a seed of one of several tests of a target.
#[cfg(feature = "simulation")]
fn again(seed: u64) -> String {
    format!("POOLHOUSE_SEEDS_FROM={seed} POOLHOUSE_SEEDS=1")
}

/// Runs a body and turns a panic into its message.
pub fn caught(body: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
    })
}

/// Calls a body with each of the [drawn] seeds, and returns their number.
///
/// # Panics
///
/// If the body panics: with its message and the seed.
pub fn each_seed(count: u64, mut body: impl FnMut(u64)) -> u64 {
    let seeds = drawn(count);
    for seed in seeds.clone() {
        caught(|| body(seed)).unwrap_or_else(|error| panic!("POOLHOUSE_SEED={seed}: {error}"));
    }
    seeds.end - seeds.start
}

#[cfg(feature = "fuzz")]
/// Calls a body with random bytes of each of the [drawn] seeds, and returns their number.
///
/// # Panics
///
/// As [`each_seed`].
pub fn bytes_of_seeds(inputs: &Inputs, mut body: impl FnMut(&[u8])) -> u64 {
    each_seed(inputs.seeds, |seed| body(&inputs.of_seed(seed)))
}

#[cfg(feature = "fuzz")]
impl Inputs {
    /// The bytes of a seed.
    #[must_use]
    pub fn of_seed(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::stream(seed, "bytes");
        let length = self.lengths.start + rng.below(self.lengths.end - self.lengths.start);
        (0..length).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
    }
}
