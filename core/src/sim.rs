//! For simulators and exhaustive searches only: not for use, and not stable.
//!
//! The feature `sim` makes this module public. It changes nothing that a machine does unless a simulator [arms](chance::arm)
//! fault points.

pub mod chance;
mod narrow;
mod word;

#[cfg(feature = "sim")]
pub use narrow::begin_near_end;
pub(crate) use narrow::origin;
pub use word::Word;
pub(crate) use word::{Past, Serial};

#[cfg(feature = "sim")]
static WITHOUT_METRICS: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Lets the clients of this process that are made from now on have no metrics, as without the feature `metrics`, which observes each event.
#[cfg(feature = "sim")]
pub fn without_metrics() {
    WITHOUT_METRICS.store(true, core::sync::atomic::Ordering::Relaxed);
}

#[cfg(all(feature = "sim", feature = "metrics"))]
pub(crate) fn is_without_metrics() -> bool {
    WITHOUT_METRICS.load(core::sync::atomic::Ordering::Relaxed)
}
