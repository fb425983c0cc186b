//! Numbers that a search over states must tell from others.
//!
//! Times, ids and generations rise for as long as a machine lives, so that no two of its states would ever be the same. With the
//! feature `sim` these write to a hasher what kind of number they are, as one word of 128 bits, which nothing else does: a search
//! has a hasher that counts times from now and passes over what is only history. Any other hasher takes them as they are.

#[cfg(all(test, feature = "sim"))]
mod tests;

use crate::Instant;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;

/// A kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A point in time, in nanoseconds and one more.
    Time,
    /// The number of a connection, of a check-out, of a line: it tells one owner of a place from the next one.
    Serial,
    /// How often a pool, or a service, was cleared.
    Generation,
    /// What is only told, and decides nothing: when something began, how long it took.
    Past,
}

impl Word {
    #[inline]
    pub(crate) fn hash(self, number: u64, state: &mut impl Hasher) {
        if cfg!(feature = "sim") {
            state.write_u128((self as u128 + 1) << 64 | u128::from(number));
        } else {
            state.write_u64(number);
        }
    }

    /// The kind and the number of a word that was written to a hasher, if it has a kind.
    #[must_use]
    #[cfg(feature = "sim")]
    pub fn of(word: u128) -> Option<(Self, u64)> {
        let number = u64::try_from(word & u128::from(u64::MAX)).ok()?;
        let kinds = [Self::Time, Self::Serial, Self::Generation, Self::Past];
        let kind = usize::try_from(word >> 64).ok()?.checked_sub(1)?;
        Some((*kinds.get(kind)?, number))
    }
}

/// The number of an owner of a place; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial(pub(crate) u64);

impl Hash for Serial {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Serial.hash(self.0, state);
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is only told, and decides nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Past<T>(pub(crate) T);

impl Hash for Past<Instant> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Past.hash(self.0.as_nanos(), state);
    }
}

impl Hash for Past<(Duration, Duration)> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for time in [self.0.0, self.0.1] {
            Word::Past.hash(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), state);
        }
    }
}

impl Hash for Past<u64> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Word::Past.hash(self.0, state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Past<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
