//! Every state with every input: a documented result, consistent counts, never a panic.

use super::*;

/// A state, and the function that reaches it.
type State<R> = (&'static str, fn(&mut World<OnHeap>) -> R);

/// The states of a connection, and how each is reached.
const STATES: [State<ConnId>; 8] = [
    ("owes establish", |world| {
        world.queue();
        newest(world)
    }),
    ("establishing", |world| {
        world.queue();
        world.begin()
    }),
    ("available", |world| {
        let lease = world.lease();
        let conn = lease.conn();
        world.give_back(lease);
        conn
    }),
    ("in use", |world| world.lease().conn()),
    ("owes interrupt", |world| {
        let conn = world.lease().conn();
        world.clear(INTERRUPT);
        conn
    }),
    ("owes abandon", |world| {
        world.queue();
        let conn = world.begin();
        world.clear(INTERRUPT);
        conn
    }),
    ("owes close", |world| {
        let lease = world.lease();
        let conn = lease.conn();
        world.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        conn
    }),
    ("gone", |world| {
        world.queue();
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        conn
    }),
];

fn newest(world: &World<OnHeap>) -> ConnId {
    ConnId(world.pool.conns.key(world.pool.conns.back(conn::OWES_ESTABLISH).expect("one is owed")))
}

/// Applies an input. Returns whether it was accepted.
type Input = fn(&mut World<OnHeap>, ConnId) -> bool;

/// The inputs of a host for a connection, and in which of the states above each is accepted.
const INPUTS: [(&str, Input, [bool; 8]); 6] = [
    (
        "established",
        |world, conn| world.established(conn).is_ok(),
        [true, true, false, false, false, false, false, false],
    ),
    (
        "failed",
        |world, conn| world.establish_failed(conn, REFUSED).is_ok(),
        [true, true, false, false, false, false, false, false],
    ),
    (
        "failed and cleared",
        |world, conn| world.establish_failed(conn, EstablishError { clear: Some(INTERRUPT), ..REFUSED }).is_ok(),
        [true, true, false, false, false, false, false, false],
    ),
    (
        "checked in",
        |world, conn| world.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Healthy).is_ok(),
        [false, false, false, true, true, false, false, false],
    ),
    (
        "checked in broken",
        |world, conn| world.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Broken(Cause::Network)).is_ok(),
        [false, false, false, true, true, false, false, false],
    ),
    (
        "pinned",
        |world, conn| {
            let lease = Lease { conn, pool: PoolId::new(7) };
            world.act(|pool, _, _| pool.pin(&lease, Pinned::Cursor)).is_ok()
        },
        [false, false, false, true, true, false, false, false],
    ),
];

fn prepared(state: fn(&mut World<OnHeap>) -> ConnId) -> (World<OnHeap>, ConnId) {
    let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
    world.ready();
    let conn = state(&mut world);
    world.events();
    (world, conn)
}

/// P5, P7, P41, P47; late results of a closed connection
#[test]
fn every_state_of_a_connection_handles_every_input() {
    for (place, (state, prepare)) in STATES.into_iter().enumerate() {
        for (input, act, accepted) in INPUTS {
            let (mut world, conn) = prepared(prepare);
            let before = world.counts();
            assert_eq!(act(&mut world, conn), accepted[place], "{state}: {input}");
            if !accepted[place] {
                assert_eq!((world.counts(), world.names()), (before, Vec::new()), "{state}: {input} changed something");
            }
            if input != "pinned" {
                assert!(!act(&mut world, conn), "{state}: {input} a second time");
            }
            world.actions();
            world.close();
            world.actions();
        }
    }
}

/// P47: commands also accept every state
#[test]
fn every_state_of_a_connection_survives_every_command() {
    let commands: [State<()>; 8] = [
        ("ready", |world| world.ready()),
        ("clear", |world| world.clear(ALL)),
        ("interrupt", |world| world.clear(INTERRUPT)),
        ("close", |world| world.close()),
        ("fork", |world| world.act(|pool, now, seen| pool.reset_after_fork(now, seen))),
        ("tick", |world| world.tick(1)),
        ("check out", |world| drop(world.check_out(None))),
        ("poll", |world| drop(world.actions())),
    ];
    for (_, prepare) in STATES {
        for (_, first) in commands {
            for (_, second) in commands {
                let (mut world, _) = prepared(prepare);
                first(&mut world);
                second(&mut world);
            }
        }
    }
}

/// P5: a connection ends exactly once, in whatever state the pool is closed
#[test]
fn a_connection_is_closed_exactly_once_in_every_state() {
    for (state, prepare) in STATES {
        let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        world.ready();
        world.events();
        let conn = prepare(&mut world);
        world.close();
        let _ = world.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Healthy);
        world.actions();
        let events = world.events();
        let of_it = closed(&events).into_iter().filter(|(id, _)| *id == conn.connection_id().get()).count();
        assert_eq!(of_it, 1, "{state}");
        assert_eq!(world.counts(), [0; 4], "{state}");
    }
}

/// A waiter in each of its states: unbound, bound, granted, failed, and used up.
const WAITERS: [State<WaiterId>; 5] = [
    ("unbound", |world| {
        let _leases: [Lease; 2] = world.leases();
        world.queue()
    }),
    ("bound", World::queue),
    ("granted", |world| {
        let waiter = world.queue();
        world.establish();
        waiter
    }),
    ("failed", |world| {
        let waiter = world.queue();
        let conn = world.begin();
        world.establish_failed(conn, REFUSED).expect("pending");
        waiter
    }),
    ("used up", |world| {
        let waiter = world.queue();
        world.cancel(waiter);
        waiter
    }),
];

/// P8, P11, P12, P13
#[test]
fn every_state_of_a_waiter_can_be_claimed_and_cancelled() {
    for (state, prepare) in WAITERS {
        let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        world.ready();
        let waiter = prepare(&mut world);
        let claim = world.claim(waiter);
        let expected = match state {
            "granted" => matches!(claim, Claim::Granted(_)),
            "failed" => matches!(claim, Claim::Failed(_)),
            "used up" => claim == Claim::Stale,
            _ => claim == Claim::Waiting,
        };
        assert!(expected, "{state}: {claim:?}");
        world.cancel(waiter);
        assert_eq!(world.claim(waiter), Claim::Stale, "{state}");
        world.cancel(waiter);

        let mut world = World::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        world.ready();
        let waiter = prepare(&mut world);
        world.cancel(waiter);
        assert_eq!(world.claim(waiter), Claim::Stale, "{state}");
        let started = world.seen.iter().filter(|(_, event)| event.name() == "ConnectionCheckOutStarted").count();
        let ended = world
            .seen
            .iter()
            .filter(|(_, event)| matches!(event.name(), "ConnectionCheckOutFailed" | "ConnectionCheckedOut"))
            .count();
        assert_eq!(started, ended, "{state}: each start has one end");
    }
}

/// P47: ids that this pool never issued
#[test]
fn ids_that_were_never_issued_are_stale() {
    let mut other = World::<OnHeap>::new(PoolOptions { max_connecting: 8, ..DEFAULT });
    other.ready();
    let waiters = [(); 5].map(|()| other.queue());
    let conns = [(); 5].map(|()| other.begin());
    on_each_memory!(DEFAULT, |world| {
        world.ready();
        world.events();
        assert_eq!(world.claim(waiters[4]), Claim::Stale);
        world.cancel(waiters[4]);
        assert_eq!(world.established(conns[4]), Err(Stale));
        assert_eq!(world.establish_failed(conns[4], REFUSED), Err(Stale));
        assert_eq!(world.pool.conn_generation(conns[4]), None);
        assert_eq!(world.pool.conn_service(conns[4]), None);
        assert_eq!((world.names(), world.counts()), (Vec::new(), [0; 4]));
    });
}
