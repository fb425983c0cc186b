//! Options that change while the pool is open.

use super::*;

impl<M: Memory> Rig<M> {
    fn reconfigure(&mut self, options: PoolOptions) {
        let config = options.validate().expect("valid options");
        self.act(|pool, now, seen| pool.reconfigure(now, config, seen));
    }
}

#[test]
#[doc(alias = "CMAP-01")]
fn connections_beyond_a_lower_maximum_are_closed_the_oldest_first() {
    on_each_memory!(PoolOptions { max_pool_size: 5, ..DEFAULT }, |rig| {
        rig.ready();
        rig.fill::<4>();
        rig.reconfigure(PoolOptions { max_pool_size: 2, ..DEFAULT });
        assert_eq!(closed(&rig.events()), [(1, "idle"), (2, "idle")]);
        assert_eq!(rig.counts(), [0, 2, 0, 0]);
        assert_eq!(rig.prompt().len(), 2, "sockets to close");
        assert_eq!(rig.pool.config().options().max_pool_size, 2);
    });
}

#[test]
fn connections_in_use_beyond_a_lower_maximum_are_closed_at_check_in() {
    on_each_memory!(PoolOptions { max_pool_size: 4, ..DEFAULT }, |rig| {
        rig.ready();
        let [one, two, three] = rig.leases::<3>();
        rig.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        assert_eq!(rig.counts(), [0, 0, 3, 0]);
        let waiter = rig.queue();
        rig.events();
        // The waiter gets the first connection that the new maximum allows to stay.
        rig.give_back(one);
        rig.give_back(two);
        assert_eq!(closed(&rig.events()), [(1, "idle"), (2, "idle")]);
        assert_eq!(rig.counts(), [0, 0, 1, 1]);
        let conn = three.conn();
        rig.give_back(three);
        let lease = rig.granted(waiter);
        assert_eq!(lease.conn(), conn);
        rig.give_back(lease);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn surplus_connection_is_closed_when_established_without_a_waiter() {
    on_each_memory!(PoolOptions { max_pool_size: 2, ..DEFAULT }, |rig| {
        rig.ready();
        let one = rig.lease();
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.cancel(waiter);
        rig.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        rig.events();
        rig.established(conn).expect("pending");
        assert_eq!(closed(&rig.events()), [(2, "idle")]);
        rig.give_back(one);
        assert_eq!(rig.counts(), [0, 1, 0, 0]);
    });
}

#[test]
fn waiters_are_served_when_a_limit_is_raised() {
    on_each_memory!(PoolOptions { max_pool_size: 1, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let one = rig.lease();
        let waiters = [rig.queue(), rig.queue(), rig.queue()];
        assert_eq!(rig.counts(), [0, 0, 1, 3]);
        rig.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 1, ..DEFAULT });
        assert_eq!(rig.counts(), [1, 0, 1, 3]);
        rig.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 2, ..DEFAULT });
        assert_eq!(rig.counts(), [2, 0, 1, 3]);
        // Fewer may be established at once: pending establishments continue, and no other begins.
        rig.reconfigure(PoolOptions { max_pool_size: 4, max_connecting: 1, ..DEFAULT });
        assert_eq!(rig.counts(), [2, 0, 1, 3]);
        rig.establish();
        assert_eq!(rig.counts(), [1, 0, 2, 2]);
        rig.establish();
        assert_eq!(rig.counts(), [1, 0, 3, 1]);
        rig.establish();
        for waiter in waiters {
            let lease = rig.granted(waiter);
            rig.give_back(lease);
        }
        rig.give_back(one);
        assert_eq!(rig.counts(), [0, 4, 0, 0]);
    });
}

#[test]
#[doc(alias = "CMAP-54")]
fn pool_is_filled_to_a_higher_minimum_and_a_lower_one_closes_nothing() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        assert_eq!(rig.counts(), [0; 4]);
        rig.reconfigure(PoolOptions { min_pool_size: 2, ..DEFAULT });
        rig.establish();
        rig.establish();
        assert_eq!(rig.counts(), [0, 2, 0, 0]);
        rig.reconfigure(DEFAULT);
        rig.tick(1);
        assert_eq!(rig.counts(), [0, 2, 0, 0]);
    });
}

#[test]
#[doc(alias = "CMAP-25")]
fn queue_timeout_is_that_at_the_start_of_the_wait() {
    on_each_memory!(PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(ms(10)), ..DEFAULT }, |rig| {
        rig.ready();
        let _lease = rig.lease();
        let first = rig.queue();
        rig.reconfigure(PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(ms(5)), ..DEFAULT });
        let second = rig.queue();
        rig.reconfigure(PoolOptions { max_pool_size: 1, ..DEFAULT });
        let third = rig.queue();
        rig.tick(5);
        assert_eq!(rig.failed(second), CheckOutError::WaitQueueTimeout { usage: None });
        assert_eq!(rig.claim(first), Claim::Waiting);
        rig.tick(10);
        assert_eq!(rig.failed(first), CheckOutError::WaitQueueTimeout { usage: None });
        rig.tick(1_000_000);
        assert_eq!(rig.claim(third), Claim::Waiting);
    });
}

#[test]
#[doc(alias = "CMAP-19")]
fn idle_time_counts_from_when_a_connection_became_available() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(100)), ..DEFAULT }, |rig| {
        rig.ready();
        rig.fill::<1>();
        rig.at(20);
        rig.reconfigure(PoolOptions { max_idle_time: Some(ms(10)), ..DEFAULT });
        assert!(rig.pool.poll_timeout().is_some_and(|due| due <= rig.now), "it was idle for too long");
        rig.tick(20);
        assert_eq!(closed(&rig.events()), [(1, "idle")]);
    });
}

#[test]
fn mode_stays_and_a_closed_pool_does_nothing() {
    on_each_memory!(PoolOptions { background: false, ..DEFAULT }, |rig| {
        rig.ready();
        rig.reconfigure(PoolOptions { load_balanced: true, min_pool_size: 3, ..DEFAULT });
        let options = *rig.pool.config().options();
        assert_eq!((options.load_balanced, options.background, options.min_pool_size), (false, false, 3));
        assert_eq!(rig.counts(), [0; 4], "without a background nothing is filled by itself");
        rig.close();
        rig.reconfigure(DEFAULT);
        assert_eq!(rig.pool.config().options().min_pool_size, 3);
        assert_eq!(rig.counts(), [0; 4]);
    });
}
