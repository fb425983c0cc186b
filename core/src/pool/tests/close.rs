//! Closing a pool.

use super::*;

#[test]
#[doc(alias("CMAP-36", "CMAP-40", "P42"))]
fn close_ends_connections_and_waiters_and_then_emits_its_event() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let leases: [Lease; 3] = rig.leases();
        let waiter = rig.queue();
        rig.events();
        rig.close();
        assert_eq!(rig.names(), ["CheckOutFailed", "PoolClosed"]);
        assert_eq!(rig.failed(waiter), CheckOutError::PoolClosed);
        for lease in leases {
            rig.give_back(lease);
        }
        assert_eq!(closed(&rig.events()), [(1, "poolClosed"), (2, "poolClosed"), (3, "poolClosed")]);
    });
}

#[test]
#[doc(alias = "CMAP-36")]
fn close_closes_available_connections_before_its_event() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<2>();
        rig.close();
        let events = rig.events();
        assert_eq!(closed(&events), [(1, "poolClosed"), (2, "poolClosed")]);
        assert_eq!(events.last().map(PoolEvent::name), Some("PoolClosed"));
        assert_eq!(rig.actions().len(), 2);
    });
}

#[test]
#[doc(alias = "CMAP-40")]
fn close_fails_waiters_whose_connection_is_being_established() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiters = [(); 4].map(|()| rig.queue());
        let begun = rig.begin();
        rig.events();
        rig.close();
        let events = rig.events();
        assert_eq!(failures(&events), [(CheckOutError::PoolClosed, "poolClosed"); 4]);
        assert_eq!(
            rig.prompt(),
            [
                PoolAction::Wake(waiters[0]),
                PoolAction::Wake(waiters[1]),
                PoolAction::Wake(waiters[2]),
                PoolAction::Wake(waiters[3]),
                PoolAction::Interrupt(begun),
            ]
        );
        assert_eq!(rig.established(begun), Err(Stale), "late news");
    });
}

#[test]
#[doc(alias("CMAP-37", "P33"))]
fn after_close_a_connection_in_use_is_closed_when_it_is_checked_in() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        rig.close();
        assert_eq!(rig.counts(), [0, 0, 1, 0]);
        rig.events();
        rig.give_back(lease);
        let events = rig.events();
        assert_eq!(closed(&events), [(1, "poolClosed")]);
        assert_eq!(events[0].name(), "ConnectionCheckedIn");
    });
}

#[test]
#[doc(alias = "CMAP-39")]
fn ready_after_close_is_a_no_op() {
    on_each_memory!(PoolOptions { min_pool_size: 2, ..DEFAULT }, |rig| {
        rig.close();
        rig.events();
        rig.ready();
        assert_eq!(rig.pool.state(), PoolState::Closed);
        assert_eq!(rig.names(), [""; 0]);
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolClosed));
    });
}

#[test]
#[doc(alias = "CMAP-39")]
fn closing_twice_emits_one_event() {
    on_each_memory!(DEFAULT, |rig| {
        rig.events();
        rig.close();
        rig.close();
        assert_eq!(rig.names(), ["PoolClosed"]);
    });
}

/// No call reopens the pool or changes it
#[test]
#[doc(alias("CMAP-39", "P33"))]
fn a_closed_pool_ignores_every_call() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.close();
        rig.events();
        rig.clear(ALL);
        rig.clear(INTERRUPT);
        rig.act(|pool, now, seen| pool.reset_after_fork(now, seen));
        rig.tick(1_000);
        assert_eq!((rig.names(), rig.pool.generation().get()), (Vec::new(), 0));
        assert_eq!(rig.pool.state(), PoolState::Closed);
    });
}

#[test]
#[doc(alias = "P43")]
fn a_closed_pool_is_empty_after_all_check_ins() {
    on_each_memory!(
        PoolOptions { min_pool_size: 2, max_idle_time: Some(ms(10)), wait_queue_timeout: Some(ms(10)), ..DEFAULT },
        |rig| {
            rig.ready();
            let leases: [Lease; 3] = rig.leases();
            let waiter = rig.queue();
            rig.close();
            for lease in leases {
                rig.give_back(lease);
            }
            rig.cancel(waiter);
            rig.actions();
            assert_eq!(rig.counts(), [0; 4]);
            assert_eq!(rig.pool.poll_timeout(), None);
            assert_eq!(rig.pool.conns.len(conn::OWES_CLOSE) + rig.pool.conns.len(conn::OWES_ABANDON), 0);
        }
    );
}

/// A pool that was never ready closes too
#[test]
#[doc(alias = "CMAP-36")]
fn a_paused_pool_can_be_closed() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<1>();
        rig.clear(ALL);
        rig.events();
        rig.close();
        assert_eq!(rig.names(), ["Closed", "PoolClosed"]);
    });
}
