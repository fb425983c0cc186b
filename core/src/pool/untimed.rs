//! The check-out and the check-in of a client without a subscriber and without `maxIdleTimeMS`, for simulators.
//!
//! Such a client does not read the clock for them, and they emit no event. They are private to the client; a simulator calls them here. Not stable.

use super::{Lease, Memory, Pool};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static CHECK_INS: AtomicU64 = AtomicU64::new(0);
static WITHOUT_METRICS: AtomicBool = AtomicBool::new(false);

/// Checks out the newest available connection, at the time of the pool's last call. `None`: a check-out that reads the clock is needed, and nothing has changed.
///
/// Cost: O(1), no allocation. Owes nothing. Events: none.
pub fn check_out<M: Memory>(pool: &mut Pool<M>) -> Option<Lease> {
    pool.check_out_untimed()
}

/// Returns a healthy connection, at the time of the pool's last call.
///
/// Cost: O(1), no allocation. Owes nothing. Events: none.
///
/// # Errors
///
/// The lease: a check-in that reads the clock is needed, and nothing has changed.
pub fn check_in<M: Memory>(pool: &mut Pool<M>, lease: Lease) -> Result<(), Lease> {
    if pool.check_in_untimed(&lease) { Ok(()) } else { Err(lease) }
}

/// The number of check-ins of this kind that pools have accepted in this process. Tests of clients compare it with zero, to show that the clients took this path.
#[must_use]
pub fn check_ins() -> u64 {
    CHECK_INS.load(Ordering::Relaxed)
}

pub(crate) fn count_check_in() {
    CHECK_INS.fetch_add(1, Ordering::Relaxed);
}

/// Lets the clients of this process that are made from now on have no metrics, as without the feature `metrics`, which observes each event.
pub fn without_metrics() {
    WITHOUT_METRICS.store(true, Ordering::Relaxed);
}

#[cfg(feature = "metrics")]
pub(crate) fn is_without_metrics() -> bool {
    WITHOUT_METRICS.load(Ordering::Relaxed)
}
