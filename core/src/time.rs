//! The clock type of the crate.

#[cfg(test)]
mod tests;

use crate::hooks::Word;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the host chooses.
///
/// Machines never read a clock; `now` is an argument of every call. Instants with different origins
/// must not be passed to the same machine. `Option<Instant>` is eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The origin itself: the earliest instant.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);
    /// The last instant that can be represented, some 584 years after the origin. As a deadline it
    /// means "never".
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The instant `nanos` nanoseconds after the origin, saturating at [`Instant::MAX`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// This instant moved later by `duration`, saturating at [`Instant::MAX`].
    // Devices without a heap have little room, and cores of 32 bits calculate this in many
    // instructions: one copy serves all callers.
    #[must_use]
    #[cfg_attr(not(feature = "alloc"), inline(never))]
    pub const fn saturating_add(self, duration: Duration) -> Self {
        self.saturating_add_nanos(nanos_of(duration))
    }

    /// This instant moved later, saturating at [`Instant::MAX`].
    #[inline]
    pub(crate) const fn saturating_add_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The time that passed from `earlier` to this instant; zero when `earlier` is later.
    // One copy, as of `saturating_add`.
    #[must_use]
    #[cfg_attr(not(feature = "alloc"), inline(never))]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// Whole nanoseconds of a duration, saturating.
pub(crate) const fn nanos_of(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// A time that is only reported and does not affect behaviour. It is left out of hashes, so states
/// that differ only in such times have the same hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past<T>(pub(crate) T);

impl<T> Hash for Past<T> {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl<T: fmt::Debug> fmt::Debug for Past<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A duration as text for users: `3 s`, `0.25 s`, `30.001 s`. Fractions of a millisecond are cut
/// off.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs())?;
        let mut decimals = self.0.subsec_millis();
        if decimals > 0 {
            let mut width = 3;
            while decimals.is_multiple_of(10) {
                decimals /= 10;
                width -= 1;
            }
            write!(f, ".{decimals:0width$}")?;
        }
        f.write_str(" s")
    }
}

impl Hash for Instant {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Time.hash(self.0.get(), state);
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        write!(f, "{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

const _: () = assert!(size_of::<Option<Instant>>() == 8);
