//! A pool in fixed memory at the limits of its tables.

use super::*;
use alloc::string::ToString;

/// With a full waiter table the pool returns `Busy`, and stays usable
#[test]
fn a_full_waiter_table_refuses_as_busy_until_a_waiter_leaves() {
    let mut world = World::<Fixed<1, 3>>::new(DEFAULT);
    world.ready();
    let lease = world.lease();
    let waiters = [(); 3].map(|()| world.queue());
    world.events();
    let error = world.check_out(None).expect_err("no place");
    assert_eq!(error, CheckOutError::Busy { waiting: 3 });
    assert_eq!(error.to_string(), "Too many check-outs wait for a connection: 3");
    assert_eq!(failures(&world.events()), [(error, "connectionError")]);
    world.cancel(waiters[1]);
    let last = world.queue();
    world.give_back(lease);
    let lease = world.granted(waiters[0]);
    world.give_back(lease);
    let lease = world.granted(waiters[2]);
    world.give_back(lease);
    let _ = world.granted(last);
}

/// An outcome keeps its slot until it is claimed
#[test]
fn an_unclaimed_outcome_keeps_its_slot() {
    let mut world = World::<Fixed<1, 1>>::new(PoolOptions { wait_queue_timeout: Some(ms(5)), ..DEFAULT });
    world.ready();
    let _lease = world.lease();
    let waiter = world.queue();
    world.tick(5);
    assert_eq!(world.check_out(None), Err(CheckOutError::Busy { waiting: 0 }));
    let _ = world.failed(waiter);
    let _ = world.queue();
}

/// A full waiter table is no obstacle when a connection is available
#[test]
fn without_a_waiter_slot_an_available_connection_is_granted() {
    let mut world = World::<Fixed<2, 1>>::new(DEFAULT);
    world.ready();
    let one = world.lease();
    let _two = world.lease();
    let _waiter = world.queue();
    assert!(world.check_out(None).is_err());
    world.give_back(one);
    assert_eq!(world.counts(), [0, 0, 2, 0]);
}

/// CMAP-01: `maxPoolSize` is limited to the size of the table
#[test]
fn more_connections_than_slots_are_never_created() {
    let mut world = World::<Fixed<2, 4>>::new(PoolOptions { max_connecting: 8, ..DEFAULT });
    world.ready();
    for _ in 0..4 {
        world.queue();
    }
    assert_eq!(world.counts(), [2, 0, 0, 4]);
    world.tick(1);
    assert_eq!(world.counts(), [2, 0, 0, 4]);
}

/// A closed connection keeps its slot until its socket is released
#[test]
fn a_slot_is_free_after_the_close_was_polled() {
    let mut world = World::<Fixed<1, 2>>::new(DEFAULT);
    world.ready();
    let lease = world.lease();
    let conn = lease.conn();
    let waiter = world.queue();
    world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
    assert_eq!(world.counts(), [0, 0, 0, 1], "no place for another one yet");
    assert_eq!(world.pool.poll_timeout(), None);
    assert_eq!(world.actions(), [PoolAction::Close(conn)]);
    assert_eq!(world.pool.poll_timeout(), Some(world.now), "now there is");
    world.tick(0);
    assert_eq!(world.counts(), [1, 0, 0, 1]);
    assert_eq!(world.pool.poll_timeout(), None);
    world.establish();
    let _ = world.granted(waiter);
}

/// The slot of a connection that was being established is free once its interrupt was polled
#[test]
fn a_slot_is_free_after_the_interrupt_of_an_establishment_was_polled() {
    let mut world = World::<Fixed<1, 2>>::new(PoolOptions { min_pool_size: 1, ..DEFAULT });
    world.ready();
    let begun = world.begin();
    world.clear(INTERRUPT);
    world.ready();
    assert_eq!(world.counts(), [0; 4]);
    assert_eq!(world.actions(), [PoolAction::Interrupt(begun)]);
    assert_eq!(world.pool.poll_timeout(), Some(world.now));
    world.tick(0);
    assert_eq!(world.counts(), [1, 0, 0, 0], "the minimum is filled");
}

/// CMAP-90: no slot for another service
#[test]
fn a_service_without_a_slot_is_refused() {
    let options = PoolOptions { load_balanced: true, max_connecting: 4, ..DEFAULT };
    let mut world = World::<Fixed<4, 4, 1>>::new(options);
    world.ready();
    let waiters = [(); 3].map(|()| world.queue());
    let conns = [(); 3].map(|()| world.begin());
    let service = |world: &mut World<_>, conn: ConnId, id: u8| {
        world.act(|pool, _, _| pool.handle_service(conn, ObjectId([id; 12])))
    };
    assert_eq!(service(&mut world, conns[0], 1), Ok(Generation(0)));
    assert_eq!(service(&mut world, conns[1], 1), Ok(Generation(0)));
    assert_eq!(service(&mut world, conns[2], 2), Err(ServiceError::Full));
    let error = EstablishError { cause: Cause::Resources, overloaded: false, clear: None };
    world.establish_failed(conns[2], error).expect("pending");
    let _ = world.failed(waiters[2]);
    for conn in [conns[0], conns[1]] {
        world.establish_failed(conn, REFUSED).expect("pending");
    }
    assert_eq!(world.pool.service_count(), 0);
    world.queue();
    let conn = world.begin();
    assert_eq!(service(&mut world, conn, 2), Ok(Generation(0)), "the place is free again");
}

/// A pool without slots
#[test]
fn a_pool_without_slots_refuses_every_check_out() {
    let mut world = World::<Fixed<0, 0>>::new(PoolOptions { min_pool_size: 1, ..DEFAULT });
    world.ready();
    assert_eq!(world.check_out(None), Err(CheckOutError::Busy { waiting: 0 }));
    world.tick(1);
    assert_eq!((world.counts(), world.actions()), ([0; 4], Vec::new()));
}

/// Storage is reserved, and the size of a pool is that of its tables
#[test]
fn reserving_beyond_a_fixed_capacity_has_no_effect() {
    let mut world = World::<Fixed<1, 1>>::new(DEFAULT);
    assert_eq!(world.act(|pool, _, _| pool.reserve(1_000, 1_000)), Ok(()));
    let mut world = World::<OnHeap>::new(DEFAULT);
    assert_eq!(world.act(|pool, _, _| pool.reserve(10, 10)), Ok(()));
    world.ready();
    let lease = world.lease();
    world.give_back(lease);
}
