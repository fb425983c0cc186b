//! The order of reuse, retirement, and the start times of waiters.

use super::*;
use crate::pool::Reuse;

/// The serial numbers of three connections, in the order in which check-outs take them after they
/// were returned in the order 1, 2, 3.
fn order(reuse: Reuse, max_idle_time: Option<Duration>) -> Vec<u64> {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { reuse, max_idle_time, max_connecting: 3, ..DEFAULT });
    rig.ready();
    for lease in rig.leases::<3>() {
        rig.give_back(lease);
    }
    (0..3).map(|_| rig.take().conn().connection_id().get()).collect()
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
        let mut rig = Rig::<OnHeap>::new(options);
        rig.ready();
        let [first, second, third] = rig.leases::<3>();
        rig.give_back(first);
        rig.at(8);
        rig.give_back(second);
        rig.give_back(third);
        rig.at(15);
        rig.events();
        let next = rig.take().conn().connection_id().get();
        assert_eq!(next, if reuse == Reuse::Newest { 3 } else { 2 });
        let perished = if reuse == Reuse::Newest { Vec::new() } else { Vec::from([(1, "idle")]) };
        assert_eq!(closed(&rig.events()), perished);
        rig.pool.assert_invariants();
    }
}

#[test]
fn retired_available_connection_is_closed_at_once_and_replaced() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 1, min_pool_size: 1, ..DEFAULT });
    rig.ready();
    let lease = rig.lease();
    let id = lease.conn();
    rig.give_back(lease);
    rig.events();
    rig.at(1_000);
    rig.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(rig.names(), ["Closed", "Created"]);
    let actions = rig.actions();
    assert!(
        matches!(actions[..], [PoolAction::Close(closed), PoolAction::Establish(_)] if closed == id),
        "{actions:?}"
    );
    rig.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(rig.names(), [""; 0], "an id that is no longer valid");
}

#[test]
fn retired_connection_in_use_is_closed_at_check_in() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let id = lease.conn();
    rig.act(|pool, now, seen| pool.retire(now, id, seen));
    assert_eq!(rig.counts(), [0, 0, 1, 0]);
    rig.events();
    rig.give_back(lease);
    assert_eq!(closed(&rig.events()), [(id.connection_id().get(), "stale")]);
    assert_eq!(rig.counts(), [0, 0, 0, 0]);
}

#[test]
fn retired_connection_is_not_handed_to_a_waiter() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 1, ..DEFAULT });
    rig.ready();
    let lease = rig.lease();
    let (id, waiter) = (lease.conn(), rig.queue());
    rig.act(|pool, now, seen| pool.retire(now, id, seen));
    rig.give_back(lease);
    let fresh = rig.establish();
    assert_ne!(fresh, id);
    assert_eq!(rig.granted(waiter).conn(), fresh);
}

#[test]
fn connection_that_is_being_established_is_not_retired() {
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    rig.ready();
    let waiter = rig.queue();
    let id = rig.begin();
    rig.act(|pool, now, seen| pool.retire(now, id, seen));
    rig.established(id).expect("it is still wanted");
    assert_eq!(rig.granted(waiter).conn(), id);
}

#[test]
fn wait_limit_includes_establishing_with_limits_establishing() {
    for limits_establishing in [false, true] {
        let limit = Some(ms(10));
        let mut rig = Rig::<OnHeap>::new(PoolOptions { limits_establishing, wait_queue_timeout: limit, ..DEFAULT });
        rig.ready();
        let waiter = rig.queue();
        rig.begin();
        let expected = if limits_establishing { Some(at(10)) } else { None };
        assert_eq!(rig.pool.poll_timeout(), expected);
        rig.tick(10);
        let claim = rig.claim(waiter);
        let failed = matches!(claim, Claim::Failed(CheckOutError::WaitQueueTimeout { .. }));
        assert_eq!(failed, limits_establishing, "{claim:?}");
    }
}

#[test]
fn start_times_of_waiters_are_in_the_order_of_the_queue() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 1, ..DEFAULT });
    rig.ready();
    let _lease = rig.lease();
    for millis in [5, 7, 9] {
        rig.at(millis);
        rig.queue();
    }
    assert_eq!(rig.pool.waiting_since().collect::<Vec<_>>(), [at(5), at(7), at(9)]);
}
