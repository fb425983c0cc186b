//! Numbers that begin near their end.
//!
//! What counts in 32 bits may come to an end in a long life, and no simulator lives that long: the numbers of a topology's servers, the rounds in which it
//! marks its texts, the scans of a [`Scan`](crate::scan). What counts in 64 bits (connections, check-outs, generations, times) would take centuries, and stream ids
//! are as few as the options of a pool say.

#[cfg(all(test, feature = "sim"))]
mod tests;

/// How many numbers are left.
#[cfg(feature = "sim")]
const LEFT: u32 = 2;

#[cfg(feature = "sim")]
std::thread_local! {
    static NEAR_END: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Lets the numbers of machines that are made on this thread from now on begin near their end, or at their beginning again.
#[cfg(feature = "sim")]
pub fn begin_near_end(near: bool) {
    NEAR_END.set(near);
}

/// The number before the first.
#[inline]
pub(crate) fn origin() -> u32 {
    #[cfg(feature = "sim")]
    if NEAR_END.get() {
        return u32::MAX - LEFT;
    }
    0
}
