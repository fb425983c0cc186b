//! The system's allocator with counters that are active only on request.
//!
//! While counting is off, a call costs one load of a flag that is not written, so that the counters
//! do not distort the times of allocation-heavy peers.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use poolhouse_allocator::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting(note);

static COUNTS: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

/// The memory operations of all threads during a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Number of allocations.
    pub(crate) allocations: u64,
    /// Change of the number of allocated bytes.
    pub(crate) bytes: i64,
    /// The most allocated bytes, beyond those at the start.
    pub(crate) peak_bytes: i64,
}

/// Runs a closure and counts memory operations meanwhile.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, Counted) {
    let (asked, live) = (ASKED.load(Ordering::Relaxed), LIVE_BYTES.load(Ordering::Relaxed));
    PEAK_BYTES.store(live, Ordering::Relaxed);
    COUNTS.store(true, Ordering::SeqCst);
    let result = work();
    COUNTS.store(false, Ordering::SeqCst);
    let allocations = ASKED.load(Ordering::Relaxed) - asked;
    let [bytes, peak_bytes] = [&LIVE_BYTES, &PEAK_BYTES].map(|count| count.load(Ordering::Relaxed) - live);
    (result, Counted { allocations, bytes, peak_bytes })
}

fn note(taken: usize, given: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        ASKED.fetch_add(u64::from(taken > 0), Ordering::Relaxed);
        // A block is smaller than half of the address space.
        let change = taken as i64 - given as i64;
        let live = LIVE_BYTES.fetch_add(change, Ordering::Relaxed) + change;
        PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
    }
}
