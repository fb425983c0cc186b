//! The clock of hosted platforms: the system's, which does not go back, since the process first asked.

use core::time::Duration;
use poolhouse_core::Instant;
use std::sync::LazyLock;

static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The time now. What [`Platform::now`](super::Platform::now) gives unless the platform has another clock.
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant::ORIGIN.saturating_add(ORIGIN.elapsed())
}

/// An instant of [`now`]'s as the standard library has it, for timers; `None` for one that is too late to be said, which is never.
#[must_use]
pub fn to_std(at: Instant) -> Option<std::time::Instant> {
    ORIGIN.checked_add(Duration::from_nanos(at.as_nanos()))
}
