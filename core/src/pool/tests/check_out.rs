//! Check-out.

use super::*;

#[test]
#[doc(alias("CMAP-11", "CMAP-32", "CMAP-33"))]
fn a_new_pool_is_paused_at_generation_zero_and_empty() {
    on_each_memory!(PoolOptions { min_pool_size: 3, ..DEFAULT }, |rig| {
        assert_eq!(rig.pool.state(), PoolState::Paused);
        assert_eq!(rig.pool.generation().get(), 0);
        assert_eq!(rig.counts(), [0; 4]);
        assert_eq!(rig.names(), ["PoolCreated"]);
        rig.tick(60_000);
        assert_eq!(rig.actions(), []);
        assert_eq!(rig.pool.poll_timeout(), None);
        assert_eq!(rig.names(), [""; 0]);
    });
}

#[test]
#[doc(alias = "CMAP-16")]
fn connection_ids_start_at_one_and_rise_by_one() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        for id in 1..=20 {
            let lease = rig.lease();
            assert_eq!(lease.conn().connection_id().get(), id);
            rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
            rig.actions();
        }
    });
}

#[test]
#[doc(alias("CMAP-17", "CMAP-44", "CMAP-45", "CMAP-61", "CMAP-63", "CMAP-69"))]
fn a_check_out_without_connection_waits_for_one_to_be_established() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.events();
        rig.at(5);
        let waiter = rig.queue();
        assert_eq!(rig.names(), ["CheckOutStarted", "Created"], "creating performs no I/O");
        assert_eq!(rig.counts(), [1, 0, 0, 1]);
        let actions = rig.actions();
        let [PoolAction::Establish(conn)] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(rig.claim(waiter), Claim::Waiting, "not before it is established");
        rig.at(25);
        rig.established(conn).expect("pending");
        let events = rig.events();
        let pool = PoolId::new(7);
        let duration = ms(20);
        let expected = [
            PoolEvent::ConnectionReady { pool, conn, duration },
            PoolEvent::ConnectionCheckedOut { pool, conn, duration },
        ];
        assert_eq!(events, expected);
        assert_eq!(rig.counts(), [0, 0, 1, 0]);
        assert_eq!(rig.actions(), [PoolAction::Wake(waiter)]);
        assert_eq!(rig.granted(waiter).conn(), conn);
    });
}

#[test]
#[doc(alias("CMAP-15", "CMAP-62"))]
fn the_newest_available_connection_is_taken_and_by_one_at_a_time() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.fill::<3>();
        let ids = [(); 3].map(|()| {
            let lease = rig.take();
            lease.conn().connection_id().get()
        });
        assert_eq!(ids, [3, 2, 1]);
        assert!(matches!(rig.check_out(None), Ok(CheckOut::Queued(_))));
    });
}

#[test]
#[doc(alias("CMAP-62", "P15"))]
fn perished_connections_are_closed_and_never_fail_a_check_out() {
    on_each_memory!(PoolOptions { max_idle_time: Some(ms(10)), background: false, ..DEFAULT }, |rig| {
        rig.ready();
        rig.fill::<3>();
        rig.at(11);
        let waiter = rig.queue();
        assert_eq!(closed(&rig.events()), [(3, "idle"), (2, "idle"), (1, "idle")]);
        rig.establish();
        assert_eq!(rig.granted(waiter).conn().connection_id().get(), 4);
    });
}

#[test]
#[doc(alias("CMAP-67", "P38"))]
fn a_paused_pool_refuses_with_a_retryable_error_at_once() {
    on_each_memory!(DEFAULT, |rig| {
        rig.events();
        let error = rig.check_out(None).expect_err("paused");
        assert_eq!(error, CheckOutError::PoolCleared { cause: None });
        assert!(error.is_retryable());
        assert_eq!(error.name(), "PoolClearedError");
        let events = rig.events();
        assert_eq!(failures(&events), [(error, "connectionError")]);
        assert_eq!(events.len(), 2, "and what was started");
        assert_eq!(rig.counts(), [0; 4]);
    });
}

#[test]
#[doc(alias("CMAP-67", "CMAP-80"))]
fn a_cleared_pool_names_the_cause_until_it_is_ready_again() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.clear(ALL);
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolCleared { cause: Some(Cause::Network) }));
        rig.ready();
        rig.act(|pool, now, seen| pool.clear(now, ALL, None, seen)).expect("not load-balanced");
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolCleared { cause: None }));
    });
}

#[test]
#[doc(alias = "CMAP-38")]
fn a_closed_pool_refuses_as_closed() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.close();
        rig.events();
        assert_eq!(rig.check_out(None), Err(CheckOutError::PoolClosed));
        let events = rig.events();
        assert_eq!(failures(&events), [(CheckOutError::PoolClosed, "poolClosed")]);
    });
}

#[test]
#[doc(alias("CMAP-51", "CMAP-68"))]
fn an_establishment_blocks_no_check_out() {
    on_each_memory!(PoolOptions { max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let lease = rig.lease();
        let waiter = rig.queue();
        let _black_hole = rig.begin();
        rig.give_back(lease);
        let lease = rig.granted(waiter);
        rig.give_back(lease);
        for _ in 0..10 {
            let lease = rig.take();
            rig.give_back(lease);
        }
        assert_eq!(rig.counts(), [1, 1, 0, 0]);
    });
}

#[test]
#[doc(alias("CMAP-35", "CMAP-64"))]
fn a_check_out_waits_for_either_limit_and_is_then_served() {
    on_each_memory!(PoolOptions { max_pool_size: 2, max_connecting: 1, ..DEFAULT }, |rig| {
        rig.ready();
        let waiters = [(); 3].map(|()| rig.queue());
        assert_eq!(rig.counts(), [1, 0, 0, 3], "maxConnecting");
        rig.establish();
        assert_eq!(rig.counts(), [1, 0, 1, 2]);
        rig.establish();
        assert_eq!(rig.counts(), [0, 0, 2, 1], "maxPoolSize");
        let lease = rig.granted(waiters[0]);
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        assert_eq!(rig.counts(), [1, 0, 1, 1], "its place is free");
        rig.actions();
        rig.pool.assert_invariants();
    });
}

#[test]
#[doc(alias("CMAP-13", "CMAP-31"))]
fn a_lease_names_its_pool_and_its_connection() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let lease = rig.lease();
        assert_eq!(lease.pool(), PoolId::new(7));
        assert_eq!(lease.pool().get(), rig.pool.id().get());
        assert_eq!(rig.pool.conn_generation(lease.conn()), Some(rig.pool.generation()));
    });
}

#[test]
#[doc(alias("CMAP-69", "P13"))]
fn a_grant_is_claimed_once() {
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        let waiter = rig.queue();
        rig.establish();
        let _lease = rig.granted(waiter);
        assert_eq!(rig.claim(waiter), Claim::Stale);
        rig.cancel(waiter);
        assert_eq!(rig.counts(), [0, 0, 1, 0], "the lease is still out");
        assert_eq!(rig.actions(), [], "a claimed outcome wakes nobody");
    });
}
