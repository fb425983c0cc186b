//! The seam between machines and simulators: kinds of numbers in hashes, fault points, the number before the first.
//!
//! Without the feature `sim` this is nothing: no fault point fires, numbers begin at 0, and hashes take numbers as they are.

#[cfg(all(test, feature = "sim"))]
mod tests;

use core::hash::Hasher;

/// A kind of number that a search over states must distinguish from others.
///
/// Times, ids and generations rise for as long as a machine lives: no two of its states would ever be the same. With the feature
/// `sim` a number is written to a hasher with its kind, as one word of 128 bits, which nothing else writes: the hasher of a search
/// counts times from now and leaves serials out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A point in time, in nanoseconds and one more.
    Time,
    /// The number of a connection or a check-out: it distinguishes one owner of a slot from the next one.
    Serial,
    /// How often a pool, or a service, was cleared.
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

    /// The kind and the number of a word that was written to a hasher, if it has a kind.
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
    /// A table reuses another place that is free than the last one.
    OtherPlace,
    /// A stream id from elsewhere is taken: perhaps one that was just freed.
    OtherStream,
    /// Of those who time out in one call another one is first.
    OtherTimeout,
    /// A close or an interrupt is owed before a wake-up.
    OtherAction,
    /// Selectors are woken although no check has ended.
    WakeSelectors,
    /// A pool serves one of those who wait, and the rest when it is called next: at once.
    ServeOne,
    /// The next connection is established in the background a millisecond later.
    PopulateLater,
    /// The oldest available connection is taken, in place of the newest.
    OldestAvailable,
    /// There is no memory for one more check-out that waits.
    RefuseWaiter,
    /// There is no memory for one more request that waits.
    RefuseRequest,
    /// Of connections that are as busy the newest takes a request.
    NewestOfEqual,
    /// There is no memory for one more connection of a pool.
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

/// The number before the first one, of numbers that count in 32 bits.
#[cfg(feature = "sim")]
pub(crate) fn origin() -> u32 {
    ORIGIN.get()
}

/// The number before the first one, of numbers that count in 32 bits.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn origin() -> u32 {
    0
}

#[cfg(feature = "sim")]
std::thread_local! {
    /// What [`fires`] asks on this thread.
    pub(crate) static FIRES: core::cell::Cell<fn(Point) -> bool> = const { core::cell::Cell::new(|_| false) };
    /// What [`origin`] is on this thread.
    pub(crate) static ORIGIN: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}
