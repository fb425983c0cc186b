//! Filling the pool beyond `minPoolSize`, once.

use super::*;

impl<M: Memory> World<M> {
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
fn a_pool_is_filled_to_its_target_once_and_one_at_a_time() {
    on_each_memory!(PoolOptions { min_pool_size: 1, max_connecting: 4, ..DEFAULT }, |world| {
        world.fill_to(3);
        assert_eq!(world.counts(), [0; 4], "not while it is paused");
        world.ready();
        for there in 0..3 {
            assert_eq!(world.counts(), [1, there, 0, 0]);
            assert_eq!(world.pool.fill_target(), 3);
            assert!(!world.pool.is_filled(3));
            world.establish();
        }
        assert!(world.pool.is_filled(3) && !world.pool.is_filled(4));
        assert_eq!(world.pool.fill_target(), 0);
        // Connections that are closed afterwards are not replaced.
        let lease = world.take();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(world.counts(), [0, 2, 0, 0]);
    });
}

#[test]
fn connections_in_use_count_for_the_target() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        let _leases = world.leases::<2>();
        world.fill_to(2);
        assert_eq!(world.pool.fill_target(), 0, "there already");
        world.fill_to(3);
        world.establish();
        assert_eq!(world.counts(), [0, 1, 2, 0]);
        assert_eq!(world.pool.fill_target(), 0);
    });
}

/// CMAP-01
#[test]
fn a_target_is_limited_by_the_current_maximum() {
    on_each_memory!(PoolOptions { max_pool_size: 4, ..DEFAULT }, |world| {
        world.ready();
        world.fill_to(100);
        world.establish();
        world.establish();
        assert_eq!(world.pool.fill_target(), 100);
        world.shrink(2);
        assert_eq!(world.counts(), [1, 1, 0, 0]);
        world.establish();
        assert_eq!(world.pool.fill_target(), 0);
        assert!(world.pool.is_filled(100));
        world.shrink(5);
        assert!(!world.pool.is_filled(100));
    });
}

#[test]
fn a_target_is_limited_by_the_capacity() {
    let mut world = World::<Fixed<2, 2, 0>>::new(PoolOptions { max_pool_size: 0, ..DEFAULT });
    world.ready();
    world.fill_to(7);
    world.establish();
    world.establish();
    assert_eq!((world.counts(), world.pool.fill_target()), ([0, 2, 0, 0], 0));
}

/// CMAP-76, CMAP-85: stale connections do not count, and those that are established afterwards do.
#[test]
fn a_target_survives_a_clear() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill_to(2);
        world.establish();
        let stale = world.begin();
        world.clear(ALL);
        assert_eq!(world.pool.fill_target(), 2);
        assert!(!world.pool.is_filled(0), "paused");
        world.ready();
        assert!(!world.pool.is_filled(1), "the one that is there is stale");
        assert_eq!(world.established(stale), Err(Stale));
        assert_eq!(world.pool.poll_timeout(), Some(world.now));
        world.tick(0);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
        world.establish();
        world.establish();
        assert_eq!((world.counts(), world.pool.fill_target()), ([0, 2, 0, 0], 0));
    });
}

#[test]
fn a_target_can_be_removed_and_ends_with_the_pool() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill_to(3);
        world.fill_to(0);
        world.establish();
        assert_eq!(world.counts(), [0, 1, 0, 0], "what was begun");
        world.fill_to(3);
        world.close();
        assert_eq!(world.pool.fill_target(), 0);
        world.fill_to(3);
        assert_eq!(world.pool.fill_target(), 0);
    });
}

/// CMAP-53
#[test]
fn a_failure_pauses_the_filling_unless_the_target_is_raised() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.fill_to(2);
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        assert_eq!(world.counts(), [0; 4]);
        assert_eq!(world.pool.poll_timeout(), Some(at(100)));
        world.fill_to(2);
        assert_eq!(world.counts(), [0; 4], "the same as before");
        world.fill_to(0);
        assert_eq!(world.pool.poll_timeout(), None);
        world.fill_to(2);
        assert_eq!(world.counts(), [1, 0, 0, 0]);
    });
}

/// CMAP-55, CMAP-57
#[test]
fn a_pool_without_background_work_fills_itself_to_the_target() {
    on_each_memory!(PoolOptions { background: false, min_pool_size: 1, ..DEFAULT }, |world| {
        world.ready();
        assert_eq!(world.counts(), [0; 4]);
        world.fill_to(2);
        world.establish();
        let stale = world.begin();
        world.clear(ALL);
        assert_eq!(world.established(stale), Err(Stale));
        world.ready();
        assert_eq!(world.pool.poll_timeout(), Some(world.now), "stale ones are sorted out");
        world.tick(0);
        assert_eq!(closed(&world.events()), [(2, "stale"), (1, "stale")]);
        world.establish();
        world.establish();
        assert_eq!((world.counts(), world.pool.fill_target()), ([0, 2, 0, 0], 0));
        world.clear(ALL);
        world.ready();
        assert_eq!(world.pool.poll_timeout(), None);
    });
}

/// CMAP-61: an operation takes the connection that the filling is establishing.
#[test]
fn a_check_out_comes_before_the_filling() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        world.fill_to(2);
        let waiter = world.queue();
        world.establish();
        let lease = world.granted(waiter);
        world.give_back(lease);
        world.establish();
        assert_eq!(world.counts(), [0, 2, 0, 0]);
    });
}
