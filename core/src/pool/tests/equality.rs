//! Copies of a pool.

use super::*;
use crate::pool::{Fixed, Memory, OnHeap};
use core::hash::{BuildHasher, BuildHasherDefault, Hash};

const T0: Instant = Instant::from_nanos(1_000);

fn copies_are_equal_and_go_their_own_ways<M: Memory + Clone + Eq + Hash>()
where
    Pool<M>: Clone + Eq + Hash,
{
    let build = BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let config = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT }.validate().expect("valid");
    let mut pool = Pool::<M>::new(T0, PoolId::new(1), config, &mut ());
    pool.ready(T0, &mut ());
    let Ok(CheckOut::Queued(waiter)) = pool.check_out(T0, None, &mut ()) else { panic!("nothing is there") };
    let conn = pool.poll_establish().expect("it owes one");
    let mut copy = pool.clone();
    assert!(pool == copy);
    assert_eq!(build.hash_one(&pool), build.hash_one(&copy));

    assert_eq!(copy.handle_established(T0, conn, &mut ()), Ok(()));
    assert!(pool != copy, "one has a connection");
    assert_eq!(pool.counts().pending, 1, "the other is still waiting for it");
    assert_eq!(pool.handle_established(T0, conn, &mut ()), Ok(()));
    assert!(pool == copy, "both have been through the same");
    assert_eq!(pool.claim(T0, waiter), copy.claim(T0, waiter), "ids are those of the original");

    let later = T0.saturating_add(core::time::Duration::from_nanos(1));
    copy.ready(later, &mut ());
    assert!(pool != copy, "the clocks differ");
    copy.assert_invariants();
}

#[test]
fn copies_in_fixed_memory_are_equal_and_independent() {
    copies_are_equal_and_go_their_own_ways::<Fixed<2, 2>>();
}

#[test]
fn copies_on_the_heap_are_equal_and_independent() {
    copies_are_equal_and_go_their_own_ways::<OnHeap>();
}

/// Found by review when the fault point was added: a check-out for which the allocator refused a
/// connection waited until the next check-out. It must fail at once.
#[cfg(feature = "sim")]
#[test]
fn check_out_without_memory_for_a_connection_fails() {
    use crate::sim::chance::{Point, arm, fired};
    let mut refused = 0;
    for seed in 0..400 {
        let config = PoolOptions { min_pool_size: 1, ..PoolOptions::DEFAULT }.validate().expect("valid");
        let mut pool = Pool::<OnHeap>::new(T0, PoolId::new(1), config, &mut ());
        pool.ready(T0, &mut ());
        let armed = arm(seed, &[Point::RefuseConn]);
        let before = fired()[Point::RefuseConn as usize];
        let outcome = pool.check_out(T0, None, &mut ());
        let is_refused = fired()[Point::RefuseConn as usize] > before;
        drop(armed);
        let Ok(CheckOut::Queued(waiter)) = outcome else { panic!("nothing is there") };
        let failed = CheckOutError::EstablishFailed { cause: Cause::Resources, overloaded: false };
        let expected = if is_refused { Claim::Failed(failed) } else { Claim::Waiting };
        assert_eq!(pool.claim(T0, waiter), expected);
        pool.assert_invariants();
        refused += u32::from(is_refused);
    }
    assert!(refused > 0, "memory was never refused");
}

/// In the background, another attempt is made after a pause, and not only at the next check-out.
#[cfg(feature = "sim")]
#[test]
fn population_without_memory_is_repeated_after_a_pause() {
    use crate::sim::chance::{Point, arm};
    let mut refused = 0;
    for seed in 0..400 {
        let config = PoolOptions { min_pool_size: 1, ..PoolOptions::DEFAULT }.validate().expect("valid");
        let mut pool = Pool::<OnHeap>::new(T0, PoolId::new(1), config, &mut ());
        let armed = arm(seed, &[Point::RefuseConn]);
        pool.ready(T0, &mut ());
        drop(armed);
        if !pool.owes_establish() {
            refused += 1;
            let due = T0.saturating_add(core::time::Duration::from_millis(100));
            assert_eq!(pool.poll_timeout(), Some(due));
            pool.handle_timeout(due, &mut ());
            assert!(pool.owes_establish());
        }
        pool.assert_invariants();
    }
    assert!(refused > 0, "memory was never refused");
}

/// A lease is returned to its pool, and the same lease to the pool's copy.
#[cfg(feature = "sim")]
#[test]
fn lease_can_be_returned_to_a_copy_once() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let same = lease.cloned();
    assert_eq!((&same, same.conn(), same.pool()), (&lease, lease.conn(), lease.pool()));
    let mut copy = rig.pool.clone();
    rig.give_back(lease);
    assert_eq!((rig.pool.counts().in_use, copy.counts().in_use), (0, 1));
    let again = same.cloned();
    assert_eq!(copy.check_in(rig.now, same, Health::Healthy, &mut ()), Ok(()));
    assert!(copy.check_in(rig.now, again, Health::Healthy, &mut ()).is_err(), "it is none any more");
    assert!(copy == rig.pool);
}
