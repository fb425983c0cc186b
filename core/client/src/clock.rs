//! The default clock of hosted platforms: the system's monotonic clock. Its origin is the first
//! time that this process reads it.

use core::time::Duration;
use poolhouse_core::Instant;
use std::sync::LazyLock;

static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Returns the current time. This is the default implementation of
/// [`Platform::now`](super::Platform::now).
#[inline]
#[must_use]
pub fn now() -> Instant {
    Instant::ORIGIN.saturating_add(ORIGIN.elapsed())
}

/// Converts an instant of [`now`] to one of the standard library, for timers. `None` if the
/// standard library cannot represent it.
#[must_use]
pub fn to_std(at: Instant) -> Option<std::time::Instant> {
    ORIGIN.checked_add(Duration::from_nanos(at.as_nanos()))
}
