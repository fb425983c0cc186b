//! The check-out and the check-in of a client without a subscriber and without `maxIdleTimeMS`.
//!
//! Such a client does not read the clock for them, and they emit no event. They are private to the client; a simulator calls them here.

use crate::pool::{Lease, Memory, Pool};

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
