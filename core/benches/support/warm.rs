//! A pool with two connections, and a loop of check-outs and check-ins, to count instructions.

use core::hint::black_box;
use poolhouse_core::pool::{CheckOut, Claim, Health, Lease, Memory, Pool, PoolEvent, PoolId, PoolOptions};
use poolhouse_core::{Instant, Observer};

/// A pool with two connections.
pub(crate) fn warm<M: Memory>() -> Pool<M> {
    let options = PoolOptions { max_pool_size: 2, ..PoolOptions::DEFAULT };
    let config = options.validate().expect("valid");
    let mut pool = Pool::new(Instant::ORIGIN, PoolId::new(1), config, &mut ());
    pool.ready(Instant::ORIGIN, &mut ());
    let leases = [(); 2].map(|()| {
        let Ok(CheckOut::Queued(waiter)) = pool.check_out(Instant::ORIGIN, None, &mut ()) else { unreachable!() };
        let conn = pool.poll_establish().expect("the limits allow it");
        pool.handle_established(Instant::ORIGIN, conn, &mut ()).expect("pending");
        let Claim::Granted(lease) = pool.claim(Instant::ORIGIN, waiter) else { unreachable!() };
        lease
    });
    for lease in leases {
        pool.check_in(Instant::ORIGIN, lease, Health::Healthy, &mut ()).expect("ours");
    }
    pool
}

/// The lease of a check-out that found a connection.
pub(crate) fn granted(result: CheckOut) -> Lease {
    let CheckOut::Granted(lease) = result else { unreachable!("a connection is available") };
    lease
}

/// Checks a connection out and in again.
pub(crate) fn cycle<M: Memory>(pool: &mut Pool<M>, observer: &mut impl Observer<PoolEvent>, times: u64) {
    let pool = black_box(pool);
    for time in 0..times {
        let now = Instant::from_nanos(time);
        let lease = granted(pool.check_out(now, None, observer).expect("ready"));
        pool.check_in(now, lease, Health::Healthy, observer).expect("ours");
    }
}
