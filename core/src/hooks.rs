//! Hooks for simulators in the machines: kinds of numbers in hashes, fault points, and the initial
//! value of 32-bit counters.
//!
//! Without the feature `sim` the hooks have no effect: no fault point fires, counters begin at 0,
//! and numbers are hashed as they are.

#[cfg(all(test, feature = "sim"))]
mod tests;

use core::hash::Hasher;

/// A kind of number that a state search must distinguish from others.
///
/// Times, ids and generations rise as long as a machine exists, so no two of its states would be
/// equal. With the feature `sim`, a number is hashed together with its kind, as one word of 128
/// bits. No other value is written with that width. The hasher of a search can therefore make times
/// relative to now and leave serials out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A point in time, in nanoseconds, plus one.
    Time,
    /// The serial number of a connection or a check-out. It distinguishes successive owners of a
    /// slot.
    Serial,
    /// The number of times a pool, or a service, was cleared.
    Generation,
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

    /// Splits a word that was written to a hasher into kind and number; `None` if it has no kind.
    #[must_use]
    #[cfg(feature = "sim")]
    pub fn of(word: u128) -> Option<(Self, u64)> {
        let number = u64::try_from(word & u128::from(u64::MAX)).ok()?;
        let kinds = [Self::Time, Self::Serial, Self::Generation];
        let kind = usize::try_from(word >> 64).ok()?.checked_sub(1)?;
        Some((*kinds.get(kind)?, number))
    }
}

/// A fault point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A table reuses a free slot that is not the most recently freed one.
    OtherPlace,
    /// A stream id is taken out of turn, perhaps one that was just freed.
    OtherStream,
    /// Of several timeouts in one call, one that is not the earliest is handled first.
    OtherTimeout,
    /// A close or an interrupt is owed before a wake-up.
    OtherAction,
    /// Selectors are woken although no server check has ended.
    WakeSelectors,
    /// A pool serves one waiter only, and the others in its next call, which is due at once.
    ServeOne,
    /// The next background establishment is a millisecond later.
    PopulateLater,
    /// The oldest available connection is taken instead of the newest.
    OldestAvailable,
    /// No memory for another check-out to wait.
    RefuseWaiter,
    /// No memory for another request to wait.
    RefuseRequest,
    /// Of equally busy connections, the newest takes a request.
    NewestOfEqual,
    /// No memory for another connection of a pool.
    RefuseConn,
}

/// Whether this point fires.
#[cfg(feature = "sim")]
pub(crate) fn fires(point: Point) -> bool {
    FIRES.get()(point)
}

/// Whether this point fires.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn fires(_point: Point) -> bool {
    false
}

/// The initial value of 32-bit counters: one less than the first number.
#[cfg(feature = "sim")]
pub(crate) fn origin() -> u32 {
    ORIGIN.get()
}

/// The initial value of 32-bit counters: one less than the first number.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn origin() -> u32 {
    0
}

#[cfg(feature = "sim")]
std::thread_local! {
    /// The function that [`fires`] calls on this thread.
    pub(crate) static FIRES: core::cell::Cell<fn(Point) -> bool> = const { core::cell::Cell::new(|_| false) };
    /// The value that [`origin`] returns on this thread.
    pub(crate) static ORIGIN: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}
