//! Options that change while the pool is open.

use super::*;

impl<M: Memory> World<M> {
    fn reconfigure(&mut self, options: PoolOptions) {
        let config = options.validate().expect("valid options");
        self.act(|pool, now, seen| pool.reconfigure(now, config, seen));
    }
}

/// CMAP-01
#[test]
fn connections_beyond_a_lower_maximum_are_closed_the_oldest_first() {
    on_each_memory!(PoolOptions { max_pool_size: 5, ..DEFAULT }, |world| {
        world.ready();
        world.fill::<4>();
        world.reconfigure(PoolOptions { max_pool_size: 2, ..DEFAULT });
        assert_eq!(closed(&world.events()), [(1, "idle"), (2, "idle")]);
        assert_eq!(world.counts(), [0, 2, 0, 0]);
        assert_eq!(world.prompt().len(), 2, "sockets to close");
        assert_eq!(world.pool.config().options().max_pool_size, 2);
    });
}

#[test]
fn connections_in_use_beyond_a_lower_maximum_are_closed_at_check_in() {
    on_each_memory!(PoolOptions { max_pool_size: 4, ..DEFAULT }, |world| {
        world.ready();
        let [one, two, three] = world.leases::<3>();
        world.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        assert_eq!(world.counts(), [0, 0, 3, 0]);
        let waiter = world.queue();
        world.events();
        // The waiter gets the first connection that the new maximum allows to stay.
        world.give_back(one);
        world.give_back(two);
        assert_eq!(closed(&world.events()), [(1, "idle"), (2, "idle")]);
        assert_eq!(world.counts(), [0, 0, 1, 1]);
        let conn = three.conn();
        world.give_back(three);
        let lease = world.granted(waiter);
        assert_eq!(lease.conn(), conn);
        world.give_back(lease);
        assert_eq!(world.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn surplus_connection_is_closed_when_established_without_a_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 2, ..DEFAULT }, |world| {
        world.ready();
        let one = world.lease();
        let waiter = world.queue();
        let conn = world.begin();
        world.cancel(waiter);
        world.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        world.events();
        world.established(conn).expect("pending");
        assert_eq!(closed(&world.events()), [(2, "idle")]);
        world.give_back(one);
        assert_eq!(world.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn waiters_are_served_when_a_limit_is_raised() {
    on_each_memory!(PoolOptions { max_pool_size: 1, max_connecting: 1, ..DEFAULT }, |world| {
        world.ready();
        let one = world.lease();
        let waiters = [world.queue(), world.queue(), world.queue()];
        assert_eq!(world.counts(), [0, 0, 1, 3]);
        world.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 1, ..DEFAULT });
        assert_eq!(world.counts(), [1, 0, 1, 3]);
        world.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 2, ..DEFAULT });
        assert_eq!(world.counts(), [2, 0, 1, 3]);
        // Fewer may be established at once: pending establishments continue, and no other begins.
        world.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 1, ..DEFAULT });
        assert_eq!(world.counts(), [2, 0, 1, 3]);
        world.establish();
        assert_eq!(world.counts(), [1, 0, 2, 2]);
        world.establish();
        assert_eq!(world.counts(), [1, 0, 3, 1]);
        world.establish();
        for waiter in waiters {
            let lease = world.granted(waiter);
            world.give_back(lease);
        }
        world.give_back(one);
        assert_eq!(world.counts(), [0, 4, 0, 0]);
    });
}

/// CMAP-54
#[test]
fn pool_is_filled_to_a_higher_minimum_and_a_lower_one_closes_nothing() {
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        assert_eq!(world.counts(), [0; 4]);
        world.reconfigure(PoolOptions { min_pool_size: 2, ..DEFAULT });
        world.establish();
        world.establish();
        assert_eq!(world.counts(), [0, 2, 0, 0]);
        world.reconfigure(DEFAULT);
        world.tick(1);
        assert_eq!(world.counts(), [0, 2, 0, 0]);
    });
}

/// CMAP-25
#[test]
fn queue_timeout_is_that_at_the_start_of_the_wait() {
    on_each_memory!(PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |world| {
        world.ready();
        let _lease = world.lease();
        let first = world.queue();
        world.reconfigure(PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(ms(5)), ..DEFAULT });
        let second = world.queue();
        world.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        let third = world.queue();
        world.tick(5);
        assert_eq!(world.failed(second), CheckOutError::WaitQueueTimeout { usage: None });
        assert_eq!(world.claim(first), Claim::Waiting);
        world.tick(10);
        assert_eq!(world.failed(first), CheckOutError::WaitQueueTimeout { usage: None });
        world.tick(1_000_000);
        assert_eq!(world.claim(third), Claim::Waiting);
    });
}

/// CMAP-19
#[test]
fn idle_time_counts_from_when_a_connection_became_available() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(100)), ..DEFAULT }, |world| {
        world.ready();
        world.fill::<1>();
        world.at(20);
        world.reconfigure(PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT });
        assert!(world.pool.poll_timeout().is_some_and(|due| due <= world.now), "it was idle for too long");
        world.tick(20);
        assert_eq!(closed(&world.events()), [(1, "idle")]);
    });
}

#[test]
fn mode_stays_and_a_closed_pool_does_nothing() {
    on_each_memory!(PoolOptions { background: false, ..DEFAULT }, |world| {
        world.ready();
        world.reconfigure(PoolOptions { load_balanced: true, min_pool_size: 3, ..DEFAULT });
        let options = *world.pool.config().options();
        assert_eq!((options.load_balanced, options.background, options.min_pool_size), (false, false, 3));
        assert_eq!(world.counts(), [0; 4], "without a background nothing is filled by itself");
        world.close();
        world.reconfigure(DEFAULT);
        assert_eq!(world.pool.config().options().min_pool_size, 3);
        assert_eq!(world.counts(), [0; 4]);
    });
}
