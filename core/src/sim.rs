//! For simulators and exhaustive searches only: not for use, and not stable.
//!
//! The feature `sim` makes this module. It changes nothing that a machine does unless a simulator [arms](chance::arm)
//! fault points.

pub mod chance;
#[cfg(test)]
mod tests;

use crate::hooks;
pub use crate::hooks::Word;

/// Lets the numbers of machines that are made on this thread from now on begin near their end, or at their beginning again.
///
/// What counts in 32 bits may come to an end in a long life, and no simulator lives that long: the numbers of a topology's servers, the rounds in
/// which it marks its texts, the scans of a [`Scan`](crate::scan). What counts in 64 bits (connections, check-outs, generations, times) would
/// take centuries, and stream ids are as few as the options of a pool say.
pub fn begin_near_end(near: bool) {
    hooks::ORIGIN.set(if near { u32::MAX - LEFT } else { 0 });
}

/// How many numbers are left.
const LEFT: u32 = 2;

static WITHOUT_METRICS: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Lets the clients of this process that are made from now on have no metrics, as without the feature `metrics`, which observes each event.
pub fn without_metrics() {
    WITHOUT_METRICS.store(true, core::sync::atomic::Ordering::Relaxed);
}

#[doc(hidden)]
pub fn is_without_metrics() -> bool {
    WITHOUT_METRICS.load(core::sync::atomic::Ordering::Relaxed)
}
