//! Fault points: their effects stay within the documented behavior.
#![cfg(feature = "sim")]

use super::*;
use crate::sim::chance::Point;
use crate::sim::chance::tests::with;

fn ready(options: PoolOptions) -> Pool<Fixed<4, 4>> {
    let at = Instant::from_nanos(1_000);
    let mut pool = Pool::new(at, PoolId::new(1), options.validate().expect("valid"), &mut ());
    pool.ready(at, &mut ());
    pool
}

#[test]
fn unserved_waiters_are_served_in_the_next_call() {
    let at = Instant::from_nanos(1_000);
    with(Point::ServeOne, || {
        let mut pool = ready(PoolOptions { max_pool_size: 1, ..DEFAULT });
        for _ in 0..3 {
            let _waiter = pool.check_out(at, None, &mut ()).expect("ready");
        }
        let more = PoolOptions { max_pool_size: 3, max_connecting: 3, ..DEFAULT }.validate().expect("valid");
        pool.reconfigure(at, more, &mut ());
        pool.assert_invariants();
        if pool.counts().pending < 3 {
            assert_eq!(pool.poll_timeout(), Some(at), "the rest is owed");
            pool.handle_timeout(at, &mut ());
            assert_eq!(pool.poll_timeout(), None);
        }
        assert_eq!(pool.counts().pending, 3);
        pool.assert_invariants();
    });
}

#[test]
fn delayed_population_happens() {
    with(Point::PopulateLater, || {
        let mut pool = ready(PoolOptions { min_pool_size: 1, ..DEFAULT });
        if let Some(due) = pool.poll_timeout() {
            assert_eq!(due, Instant::from_nanos(1_001_000));
            pool.handle_timeout(due, &mut ());
        }
        assert_eq!(pool.counts().pending, 1);
        pool.assert_invariants();
    });
}

#[test]
fn the_oldest_available_connection_is_taken_and_the_order_kept() {
    let at = Instant::from_nanos(1_000);
    with(Point::OldestAvailable, || {
        let mut pool = ready(PoolOptions { max_connecting: 3, max_idle_time: Some(Duration::from_secs(1)), ..DEFAULT });
        let waiters = [0; 3].map(|_| pool.check_out(at, None, &mut ()).expect("ready"));
        while let Some(conn) = pool.poll_establish() {
            pool.handle_established(at, conn, &mut ()).expect("pending");
        }
        for (late, waiter) in (1..).zip(waiters) {
            let CheckOut::Queued(waiter) = waiter else { panic!("nothing was there") };
            pool.cancel(Instant::from_nanos(1_000 + late), waiter, &mut ());
        }
        let now = Instant::from_nanos(2_000);
        let Ok(CheckOut::Granted(lease)) = pool.check_out(now, None, &mut ()) else { panic!("three are available") };
        assert_eq!(pool.counts().available, 2);
        let oldest = if lease.conn().connection_id().get() == 1 { 1_002 } else { 1_001 };
        assert_eq!(pool.poll_timeout(), Some(Instant::from_nanos(oldest + 1_000_000_001)));
        pool.assert_invariants();
        assert_eq!(pool.check_in(now, lease, Health::Healthy, &mut ()), Ok(()));
    });
}

/// Found by seed 3146 of the simulated runs.
#[test]
fn check_out_that_closes_an_idle_connection_and_takes_another_refills() {
    let [start, later, due] = [1_000, 2_000, 1_000_002_000].map(Instant::from_nanos);
    with(Point::OldestAvailable, || {
        let idle = Duration::from_secs(1);
        let options =
            PoolOptions { min_pool_size: 2, max_connecting: 2, max_idle_time: Some(idle), background: true, ..DEFAULT };
        let mut pool = ready(options);
        for at in [start, later] {
            let conn = pool.poll_establish().expect("two are wanted");
            pool.handle_established(at, conn, &mut ()).expect("pending");
        }
        // The first connection has reached its maximum idle time, and the pool was not called
        // since.
        let Ok(CheckOut::Granted(lease)) = pool.check_out(due, None, &mut ()) else { panic!("one is available") };
        assert_eq!(lease.conn().connection_id().get(), 2);
        assert_eq!(pool.counts().total(), 2);
        pool.assert_invariants();
        assert_eq!(pool.check_in(due, lease, Health::Healthy, &mut ()), Ok(()));
    });
}

#[test]
fn a_check_out_without_a_waiter_slot_is_refused() {
    let at = Instant::from_nanos(1_000);
    with(Point::RefuseWaiter, || {
        let mut pool = ready(DEFAULT);
        match pool.check_out(at, None, &mut ()) {
            Ok(CheckOut::Queued(_)) => {}
            other => assert_eq!(other, Err(CheckOutError::Busy { waiting: 0 })),
        }
        pool.assert_invariants();
    });
}
