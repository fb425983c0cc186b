//! Support for simulators and exhaustive searches. Not for applications, and not stable.
//!
//! The feature `sim` enables this module. It does not change the behaviour of a machine unless a
//! simulator [arms](chance::arm) fault points.

pub mod chance;
#[cfg(test)]
mod tests;

use crate::hooks;
pub use crate::hooks::Word;

/// Sets the initial value of the 32-bit counters of machines that are created on this thread from
/// now on: near the counter's maximum if `near` is true, else 0.
///
/// Counters of 32 bits may overflow in a run that is longer than any simulation: the numbers of a
/// topology's servers, the rounds in which it marks its texts, the scans of a
/// [`Scan`](crate::scan). Counters of 64 bits (connections, check-outs, generations, times) would
/// need centuries, and the number of stream ids is set by the options of a pool.
pub fn begin_near_end(near: bool) {
    hooks::ORIGIN.set(if near { u32::MAX - LEFT } else { 0 });
}

/// The number of values between the initial value and the overflow.
const LEFT: u32 = 2;
