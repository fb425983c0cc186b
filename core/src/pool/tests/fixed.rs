//! A pool in fixed memory at the limits of its tables.

use super::*;
use alloc::string::ToString;

/// With a full waiter table the pool returns `Busy`, and stays usable
#[test]
fn a_full_waiter_table_refuses_as_busy_until_a_waiter_leaves() {
    let mut rig = Rig::<Fixed<1, 3>>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let waiters = [(); 3].map(|()| rig.queue());
    rig.events();
    let error = rig.check_out(None).expect_err("no place");
    assert_eq!(error, CheckOutError::Busy { waiting: 3 });
    assert_eq!(error.to_string(), "Too many check-outs wait for a connection: 3");
    assert_eq!(failures(&rig.events()), [(error, "connectionError")]);
    rig.cancel(waiters[1]);
    let last = rig.queue();
    rig.give_back(lease);
    let lease = rig.granted(waiters[0]);
    rig.give_back(lease);
    let lease = rig.granted(waiters[2]);
    rig.give_back(lease);
    let _ = rig.granted(last);
}

/// An outcome keeps its slot until it is claimed
#[test]
fn an_unclaimed_outcome_keeps_its_slot() {
    let mut rig = Rig::<Fixed<1, 1>>::new(PoolOptions { wait_queue_timeout: Some(ms(5)), ..DEFAULT });
    rig.ready();
    let _lease = rig.lease();
    let waiter = rig.queue();
    rig.tick(5);
    assert_eq!(rig.check_out(None), Err(CheckOutError::Busy { waiting: 0 }));
    let _ = rig.failed(waiter);
    let _ = rig.queue();
}

/// A full waiter table is no obstacle when a connection is available
#[test]
fn without_a_waiter_slot_an_available_connection_is_granted() {
    let mut rig = Rig::<Fixed<2, 1>>::new(DEFAULT);
    rig.ready();
    let one = rig.lease();
    let _two = rig.lease();
    let _waiter = rig.queue();
    assert!(rig.check_out(None).is_err());
    rig.give_back(one);
    assert_eq!(rig.counts(), [0, 0, 2, 0]);
}

/// `maxPoolSize` is limited to the size of the table
#[test]
#[doc(alias = "CMAP-01")]
fn more_connections_than_slots_are_never_created() {
    let mut rig = Rig::<Fixed<2, 4>>::new(PoolOptions { max_connecting: 8, ..DEFAULT });
    rig.ready();
    for _ in 0..4 {
        rig.queue();
    }
    assert_eq!(rig.counts(), [2, 0, 0, 4]);
    rig.tick(1);
    assert_eq!(rig.counts(), [2, 0, 0, 4]);
}

/// A closed connection keeps its slot until its socket is released
#[test]
fn a_slot_is_free_after_the_close_was_polled() {
    let mut rig = Rig::<Fixed<1, 2>>::new(DEFAULT);
    rig.ready();
    let lease = rig.lease();
    let conn = lease.conn();
    let waiter = rig.queue();
    rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
    assert_eq!(rig.counts(), [0, 0, 0, 1], "no place for another one yet");
    assert_eq!(rig.pool.poll_timeout(), None);
    assert_eq!(rig.actions(), [PoolAction::Close(conn)]);
    assert_eq!(rig.pool.poll_timeout(), Some(rig.now), "now there is");
    rig.tick(0);
    assert_eq!(rig.counts(), [1, 0, 0, 1]);
    assert_eq!(rig.pool.poll_timeout(), None);
    rig.establish();
    let _ = rig.granted(waiter);
}

/// The slot of a connection that was being established is free once its interrupt was polled
#[test]
fn a_slot_is_free_after_the_interrupt_of_an_establishment_was_polled() {
    let mut rig = Rig::<Fixed<1, 2>>::new(PoolOptions { min_pool_size: 1, ..DEFAULT });
    rig.ready();
    let begun = rig.begin();
    rig.clear(INTERRUPT);
    rig.ready();
    assert_eq!(rig.counts(), [0; 4]);
    assert_eq!(rig.actions(), [PoolAction::Interrupt(begun)]);
    assert_eq!(rig.pool.poll_timeout(), Some(rig.now));
    rig.tick(0);
    assert_eq!(rig.counts(), [1, 0, 0, 0], "the minimum is filled");
}

/// No slot for another service
#[test]
#[doc(alias = "CMAP-90")]
fn a_service_without_a_slot_is_refused() {
    let options = PoolOptions { load_balanced: true, max_connecting: 4, ..DEFAULT };
    let mut rig = Rig::<Fixed<4, 4, 1>>::new(options);
    rig.ready();
    let waiters = [(); 3].map(|()| rig.queue());
    let conns = [(); 3].map(|()| rig.begin());
    let service =
        |rig: &mut Rig<_>, conn: ConnId, id: u8| rig.act(|pool, _, _| pool.handle_service(conn, ObjectId([id; 12])));
    assert_eq!(service(&mut rig, conns[0], 1), Ok(Generation(0)));
    assert_eq!(service(&mut rig, conns[1], 1), Ok(Generation(0)));
    assert_eq!(service(&mut rig, conns[2], 2), Err(ServiceError::Full));
    let error = EstablishError { cause: Cause::Resources, overloaded: false, clear: None };
    rig.establish_failed(conns[2], error).expect("pending");
    let _ = rig.failed(waiters[2]);
    for conn in [conns[0], conns[1]] {
        rig.establish_failed(conn, REFUSED).expect("pending");
    }
    assert_eq!(rig.pool.service_count(), 0);
    rig.queue();
    let conn = rig.begin();
    assert_eq!(service(&mut rig, conn, 2), Ok(Generation(0)), "the place is free again");
}

/// A pool without slots
#[test]
fn a_pool_without_slots_refuses_every_check_out() {
    let mut rig = Rig::<Fixed<0, 0>>::new(PoolOptions { min_pool_size: 1, ..DEFAULT });
    rig.ready();
    assert_eq!(rig.check_out(None), Err(CheckOutError::Busy { waiting: 0 }));
    rig.tick(1);
    assert_eq!((rig.counts(), rig.actions()), ([0; 4], Vec::new()));
}

/// Storage is reserved, and the size of a pool is that of its tables
#[test]
fn reserving_beyond_a_fixed_capacity_has_no_effect() {
    let mut rig = Rig::<Fixed<1, 1>>::new(DEFAULT);
    assert_eq!(rig.act(|pool, _, _| pool.reserve(1_000, 1_000)), Ok(()));
    let mut rig = Rig::<OnHeap>::new(DEFAULT);
    assert_eq!(rig.act(|pool, _, _| pool.reserve(10, 10)), Ok(()));
    rig.ready();
    let lease = rig.lease();
    rig.give_back(lease);
}

#[test]
#[should_panic(expected = "a load-balanced pool has slots for services")]
fn a_load_balanced_pool_without_slots_for_services_panics() {
    let _ = Rig::<Fixed<1, 1>>::new(PoolOptions { load_balanced: true, ..DEFAULT });
}
