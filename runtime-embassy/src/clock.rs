//! The clock and timers of embassy-time, in nanoseconds. Depends on no other module.

use embassy_time::{TICK_HZ, Timer};
use poolhouse_core::Instant;

/// The time since the start of the clock.
// Cores of 32 bits calculate it in many instructions: one copy serves all callers.
#[inline(never)]
pub(crate) fn now() -> Instant {
    Instant::from_nanos(nanos_of(embassy_time::Instant::now().as_ticks()))
}

/// Returns at the first tick of the clock that is not before `at`.
pub(crate) async fn sleep_until(at: Instant) {
    Timer::at(embassy_time::Instant::from_ticks(ticks_of(at.as_nanos()))).await;
}

/// Bits for choices among equals. Predictable: no secrets.
pub(crate) fn entropy() -> u32 {
    let ticks = embassy_time::Instant::now().as_ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [.., a, b, c, d] = ticks.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Converts ticks of the clock to nanoseconds, rounded down.
const fn nanos_of(ticks: u64) -> u64 {
    if NANOS_PER_SEC.is_multiple_of(TICK_HZ) {
        return ticks.saturating_mul(NANOS_PER_SEC / TICK_HZ);
    }
    let nanos = ticks as u128 * NANOS_PER_SEC as u128 / TICK_HZ as u128;
    saturate(nanos)
}

/// The first tick at or after this number of nanoseconds.
const fn ticks_of(nanos: u64) -> u64 {
    if NANOS_PER_SEC.is_multiple_of(TICK_HZ) {
        return nanos.div_ceil(NANOS_PER_SEC / TICK_HZ);
    }
    let ticks = (nanos as u128 * TICK_HZ as u128).div_ceil(NANOS_PER_SEC as u128);
    saturate(ticks)
}

#[allow(clippy::cast_possible_truncation, reason = "it was compared")]
const fn saturate(count: u128) -> u64 {
    if count > u64::MAX as u128 { u64::MAX } else { count as u64 }
}
