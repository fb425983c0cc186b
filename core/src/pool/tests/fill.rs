//! Filling the pool beyond `minPoolSize`, once.

use super::*;

impl<M: Memory> Rig<M> {
    fn fill_to(&mut self, count: u32) {
        self.act(|pool, now, seen| pool.set_fill_target(now, count, seen));
    }

    fn shrink(&mut self, max_pool_size: u32) {
        let config = PoolOptions { max_pool_size, ..DEFAULT }.validate().expect("valid options");
        self.act(|pool, now, seen| pool.reconfigure(now, config, seen));
    }
}

/// CMAP-54, and beyond it
#[test]
#[doc(alias = "CMAP-54")]
fn a_pool_is_filled_to_its_target_once_and_one_at_a_time() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_connecting: 4, ..DEFAULT }, |rig| {
        rig.fill_to(3);
        assert_eq!(rig.counts(), [0; 4], "not while it is paused");
        rig.ready();
        for there in 0..3 {
            assert_eq!(rig.counts(), [1, there, 0, 0]);
            assert_eq!(rig.pool.fill_target(), 3);
            assert!(!rig.pool.is_filled(3));
            rig.establish();
        }
        assert!(rig.pool.is_filled(3) && !rig.pool.is_filled(4));
        assert_eq!(rig.pool.fill_target(), 0);
        // Connections that are closed afterwards are not replaced.
        let lease = rig.take();
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.counts(), [0, 2, 0, 0]);
    });
}

#[test]
fn connections_in_use_count_for_the_target() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let _leases = rig.leases::<2>();
        rig.fill_to(2);
        assert_eq!(rig.pool.fill_target(), 0, "there already");
        rig.fill_to(3);
        rig.establish();
        assert_eq!(rig.counts(), [0, 1, 2, 0]);
        assert_eq!(rig.pool.fill_target(), 0);
    });
}

#[test]
#[doc(alias = "CMAP-01")]
fn a_target_is_limited_by_the_current_maximum() {
    on_each_memory!(PoolOptions { max_pool_size: 4, ..DEFAULT }, |rig| {
        rig.ready();
        rig.fill_to(100);
        rig.establish();
        rig.establish();
        assert_eq!(rig.pool.fill_target(), 100);
        rig.shrink(2);
        assert_eq!(rig.counts(), [1, 1, 0, 0]);
        rig.establish();
        assert_eq!(rig.pool.fill_target(), 0);
        assert!(rig.pool.is_filled(100));
        rig.shrink(5);
        assert!(!rig.pool.is_filled(100));
    });
}

#[test]
fn a_target_is_limited_by_the_capacity() {
    let mut rig = Rig::<Fixed<2, 2, 0>>::new(PoolOptions { max_pool_size: 0, ..DEFAULT });
    rig.ready();
    rig.fill_to(7);
    rig.establish();
    rig.establish();
    assert_eq!((rig.counts(), rig.pool.fill_target()), ([0, 2, 0, 0], 0));
}

/// Stale connections do not count, and those that are established afterwards do.
#[test]
#[doc(alias("CMAP-76", "CMAP-85"))]
fn a_target_survives_a_clear() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill_to(2);
        rig.establish();
        let stale = rig.begin();
        rig.clear(ALL);
        assert_eq!(rig.pool.fill_target(), 2);
        assert!(!rig.pool.is_filled(0), "paused");
        rig.ready();
        assert!(!rig.pool.is_filled(1), "the one that is there is stale");
        assert_eq!(rig.established(stale), Err(Stale));
        assert_eq!(rig.pool.poll_timeout(), Some(rig.now));
        rig.tick(0);
        assert_eq!(rig.pool.poll_timeout(), Some(at(1_000)), "two were opened in this second");
        rig.tick(1_000);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
        rig.establish();
        rig.establish();
        assert_eq!((rig.counts(), rig.pool.fill_target()), ([0, 2, 0, 0], 0));
    });
}

#[test]
fn a_target_can_be_removed_and_ends_with_the_pool() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill_to(3);
        rig.fill_to(0);
        rig.establish();
        assert_eq!(rig.counts(), [0, 1, 0, 0], "what was begun");
        rig.fill_to(3);
        rig.close();
        assert_eq!(rig.pool.fill_target(), 0);
        rig.fill_to(3);
        assert_eq!(rig.pool.fill_target(), 0);
    });
}

#[test]
#[doc(alias = "CMAP-53")]
fn a_failure_pauses_the_filling_unless_the_target_is_raised() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill_to(2);
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(rig.counts(), [0; 4]);
        assert_eq!(rig.pool.poll_timeout(), Some(at(100)));
        rig.fill_to(2);
        assert_eq!(rig.counts(), [0; 4], "the same as before");
        rig.fill_to(0);
        assert_eq!(rig.pool.poll_timeout(), None);
        rig.fill_to(2);
        assert_eq!(rig.counts(), [1, 0, 0, 0]);
    });
}

#[test]
#[doc(alias("CMAP-55", "CMAP-57"))]
fn a_pool_without_background_work_fills_itself_to_the_target() {
    on_each_memory!(PoolOptions { background: false, min_pool_size: 1, ..DEFAULT }, |rig| {
        rig.ready();
        assert_eq!(rig.counts(), [0; 4]);
        rig.fill_to(2);
        rig.establish();
        let stale = rig.begin();
        rig.clear(ALL);
        assert_eq!(rig.established(stale), Err(Stale));
        rig.ready();
        assert_eq!(rig.pool.poll_timeout(), Some(rig.now), "stale ones are sorted out");
        rig.tick(1_000);
        assert_eq!(closed(&rig.events()), [(2, "stale"), (1, "stale")]);
        rig.establish();
        rig.establish();
        assert_eq!((rig.counts(), rig.pool.fill_target()), ([0, 2, 0, 0], 0));
        rig.clear(ALL);
        rig.ready();
        assert_eq!(rig.pool.poll_timeout(), None);
    });
}

/// An operation takes the connection that the filling is establishing.
#[test]
#[doc(alias = "CMAP-61")]
fn a_check_out_comes_before_the_filling() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        rig.fill_to(2);
        let waiter = rig.queue();
        rig.establish();
        let lease = rig.granted(waiter);
        rig.give_back(lease);
        rig.establish();
        assert_eq!(rig.counts(), [0, 2, 0, 0]);
    });
}
