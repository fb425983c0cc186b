//! The order of reuse, retirement, and the start times of waiters.

use super::*;
use crate::pool::Reuse;

/// The serial numbers of three connections, in the order in which check-outs take them after they
/// were returned in the order 1, 2, 3.
fn order(reuse: Reuse, max_idle_time: Option<Duration>) -> Vec<u64> {
    let mut world = World::<OnHeap>::new(PoolOptions { reuse, max_idle_time, max_connecting: 3, ..DEFAULT });
    world.ready();
    for lease in world.leases::<3>() {
        world.give_back(lease);
    }
    (0..3).map(|_| world.take().conn().connection_id().get()).collect()
}

#[test]
fn newest_or_oldest_available_connection_is_reused() {
    for idle in [None, Some(ms(1000))] {
        assert_eq!(order(Reuse::Newest, idle), [3, 2, 1]);
        assert_eq!(order(Reuse::Oldest, idle), [1, 2, 3]);
    }
}

#[test]
fn perished_connections_are_closed_first_in_both_orders() {
    for reuse in [Reuse::Newest, Reuse::Oldest] {
        let options = PoolOptions { reuse, max_idle_time: Some(ms(10)), max_connecting: 3, ..DEFAULT };
        let mut world = World::<OnHeap>::new(options);
        world.ready();
        let [first, second, third] = world.leases::<3>();
        world.give_back(first);
        world.at(8);
        world.give_back(second);
        world.give_back(third);
        world.at(15);
        world.events();
        let next = world.take().conn().connection_id().get();
        assert_eq!(next, if reuse == Reuse::Newest { 3 } else { 2 });
        let perished = if reuse == Reuse::Newest { Vec::new() } else { Vec::from([(1, "idle")]) };
        assert_eq!(closed(&world.events()), perished);
        world.pool.assert_invariants();
    }
}

#[test]
fn retired_available_connection_is_closed_at_once_and_replaced() {
    let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 1, min_pool_size: 1, ..DEFAULT });
    world.ready();
    let lease = world.lease();
    let id = lease.conn();
    world.give_back(lease);
    world.events();
    world.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(world.names(), ["Closed", "Created"]);
    let actions = world.actions();
    assert!(
        matches!(actions[..], [PoolAction::Close(closed), PoolAction::Establish(_)] if closed == id),
        "{actions:?}"
    );
    world.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(world.names(), [""; 0], "an id that is no longer valid");
}

#[test]
fn retired_connection_in_use_is_closed_at_check_in() {
    let mut world = World::<OnHeap>::new(DEFAULT);
    world.ready();
    let lease = world.lease();
    let id = lease.conn();
    world.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(world.counts(), [0, 0, 1, 0]);
    world.events();
    world.give_back(lease);
    assert_eq!(closed(&world.events()), [(id.connection_id().get(), "stale")]);
    assert_eq!(world.counts(), [0, 0, 0, 0]);
}

#[test]
fn retired_connection_is_not_handed_to_a_waiter() {
    let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 1, ..DEFAULT });
    world.ready();
    let lease = world.lease();
    let (id, waiter) = (lease.conn(), world.queue());
    world.act(|pool, now, seen| pool.retire(now, id, seen));
    world.give_back(lease);
    let fresh = world.establish();
    assert_ne!(fresh, id);
    assert_eq!(world.granted(waiter).conn(), fresh);
}

#[test]
fn connection_that_is_being_established_is_not_retired() {
    let mut world = World::<OnHeap>::new(DEFAULT);
    world.ready();
    let waiter = world.queue();
    let id = world.begin();
    world.act(|pool, now, seen| pool.retire(now, id, seen));
    world.established(id).expect("it is still wanted");
    assert_eq!(world.granted(waiter).conn(), id);
}

#[test]
fn wait_limit_includes_establishing_with_limits_establishing() {
    for limits_establishing in [false, true] {
        let limit = Some(ms(10));
        let mut world = World::<OnHeap>::new(PoolOptions { limits_establishing, wait_queue_timeout: limit, ..DEFAULT });
        world.ready();
        let waiter = world.queue();
        world.begin();
        let expected = if limits_establishing { Some(at(10)) } else { None };
        assert_eq!(world.pool.poll_timeout(), expected);
        world.tick(10);
        let claim = world.claim(waiter);
        let failed = matches!(claim, Claim::Failed(CheckOutError::WaitQueueTimeout { .. }));
        assert_eq!(failed, limits_establishing, "{claim:?}");
    }
}

#[test]
fn start_times_of_waiters_are_in_the_order_of_the_queue() {
    let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 1, ..DEFAULT });
    world.ready();
    let _lease = world.lease();
    for millis in [5, 7, 9] {
        world.at(millis);
        world.queue();
    }
    assert_eq!(world.pool.waiting_since().collect::<Vec<_>>(), [at(5), at(7), at(9)]);
}
