//! Every state with every input: a documented result, consistent counts, never a panic.

use super::*;

/// A state, and the function that reaches it.
type State<R> = (&'static str, fn(&mut Rig<OnHeap>) -> R);

/// The states of a connection, and how each is reached.
const STATES: [State<ConnId>; 8] = [
    ("owes establish", |rig| {
        rig.queue();
        newest(rig)
    }),
    ("establishing", |rig| {
        rig.queue();
        rig.begin()
    }),
    ("available", |rig| {
        let lease = rig.lease();
        let conn = lease.conn();
        rig.give_back(lease);
        conn
    }),
    ("in use", |rig| rig.lease().conn()),
    ("owes interrupt", |rig| {
        let conn = rig.lease().conn();
        rig.clear(INTERRUPT);
        conn
    }),
    ("owes abandon", |rig| {
        rig.queue();
        let conn = rig.begin();
        rig.clear(INTERRUPT);
        conn
    }),
    ("owes close", |rig| {
        let lease = rig.lease();
        let conn = lease.conn();
        rig.check_in(lease, Health::Broken(Cause::Network)).expect("ours");
        conn
    }),
    ("gone", |rig| {
        rig.queue();
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        conn
    }),
];

fn newest(rig: &Rig<OnHeap>) -> ConnId {
    ConnId(rig.pool.conns.key(rig.pool.conns.back(conn::OWES_ESTABLISH).expect("one is owed")))
}

/// Applies an input. Returns whether it was accepted.
type Input = fn(&mut Rig<OnHeap>, ConnId) -> bool;

/// The inputs of a host for a connection, and in which of the states above each is accepted.
const INPUTS: [(&str, Input, [bool; 8]); 6] = [
    ("established", |rig, conn| rig.established(conn).is_ok(), [true, true, false, false, false, false, false, false]),
    (
        "failed",
        |rig, conn| rig.establish_failed(conn, REFUSED).is_ok(),
        [true, true, false, false, false, false, false, false],
    ),
    (
        "failed and cleared",
        |rig, conn| rig.establish_failed(conn, EstablishError { clear: Some(INTERRUPT), ..REFUSED }).is_ok(),
        [true, true, false, false, false, false, false, false],
    ),
    (
        "checked in",
        |rig, conn| rig.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Healthy).is_ok(),
        [false, false, false, true, true, false, false, false],
    ),
    (
        "checked in broken",
        |rig, conn| rig.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Broken(Cause::Network)).is_ok(),
        [false, false, false, true, true, false, false, false],
    ),
    (
        "pinned",
        |rig, conn| {
            let lease = Lease { conn, pool: PoolId::new(7) };
            rig.act(|pool, _, _| pool.pin(&lease, Pinned::Cursor)).is_ok()
        },
        [false, false, false, true, true, false, false, false],
    ),
];

fn prepared(state: fn(&mut Rig<OnHeap>) -> ConnId) -> (Rig<OnHeap>, ConnId) {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
    rig.ready();
    let conn = state(&mut rig);
    rig.events();
    (rig, conn)
}

/// Late results of a closed connection
#[test]
#[doc(alias("P5", "P7", "P41", "P47"))]
fn every_state_of_a_connection_handles_every_input() {
    for (place, (state, prepare)) in STATES.into_iter().enumerate() {
        for (input, act, accepted) in INPUTS {
            let (mut rig, conn) = prepared(prepare);
            let before = rig.counts();
            assert_eq!(act(&mut rig, conn), accepted[place], "{state}: {input}");
            if !accepted[place] {
                assert_eq!((rig.counts(), rig.names()), (before, Vec::new()), "{state}: {input} changed something");
            }
            if input != "pinned" {
                assert!(!act(&mut rig, conn), "{state}: {input} a second time");
            }
            rig.actions();
            rig.close();
            rig.actions();
        }
    }
}

/// Commands also accept every state
#[test]
#[doc(alias = "P47")]
fn every_state_of_a_connection_survives_every_command() {
    let commands: [State<()>; 8] = [
        ("ready", |rig| rig.ready()),
        ("clear", |rig| rig.clear(ALL)),
        ("interrupt", |rig| rig.clear(INTERRUPT)),
        ("close", |rig| rig.close()),
        ("fork", |rig| rig.act(|pool, now, seen| pool.reset_after_fork(now, seen))),
        ("tick", |rig| rig.tick(1)),
        ("check out", |rig| drop(rig.check_out(None))),
        ("poll", |rig| drop(rig.actions())),
    ];
    for (_, prepare) in STATES {
        for (_, first) in commands {
            for (_, second) in commands {
                let (mut rig, _) = prepared(prepare);
                first(&mut rig);
                second(&mut rig);
            }
        }
    }
}

/// A connection ends exactly once, in whatever state the pool is closed
#[test]
#[doc(alias = "P5")]
fn a_connection_is_closed_exactly_once_in_every_state() {
    for (state, prepare) in STATES {
        let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        rig.ready();
        rig.events();
        let conn = prepare(&mut rig);
        rig.close();
        let _ = rig.check_in(Lease { conn, pool: PoolId::new(7) }, Health::Healthy);
        rig.actions();
        let events = rig.events();
        let of_it = closed(&events).into_iter().filter(|(id, _)| *id == conn.connection_id().get()).count();
        assert_eq!(of_it, 1, "{state}");
        assert_eq!(rig.counts(), [0; 4], "{state}");
    }
}

/// A waiter in each of its states: unbound, bound, granted, failed, and used up.
const WAITERS: [State<WaiterId>; 5] = [
    ("unbound", |rig| {
        let _leases: [Lease; 2] = rig.leases();
        rig.queue()
    }),
    ("bound", Rig::queue),
    ("granted", |rig| {
        let waiter = rig.queue();
        rig.establish();
        waiter
    }),
    ("failed", |rig| {
        let waiter = rig.queue();
        let conn = rig.begin();
        rig.establish_failed(conn, REFUSED).expect("pending");
        waiter
    }),
    ("used up", |rig| {
        let waiter = rig.queue();
        rig.cancel(waiter);
        waiter
    }),
];

#[test]
#[doc(alias("P8", "P11", "P12", "P13"))]
fn every_state_of_a_waiter_can_be_claimed_and_cancelled() {
    for (state, prepare) in WAITERS {
        let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        rig.ready();
        let waiter = prepare(&mut rig);
        let claim = rig.claim(waiter);
        let expected = match state {
            "granted" => matches!(claim, Claim::Granted(_)),
            "failed" => matches!(claim, Claim::Failed(_)),
            "used up" => claim == Claim::Stale,
            _ => claim == Claim::Waiting,
        };
        assert!(expected, "{state}: {claim:?}");
        rig.cancel(waiter);
        assert_eq!(rig.claim(waiter), Claim::Stale, "{state}");
        rig.cancel(waiter);

        let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 2, ..DEFAULT });
        rig.ready();
        let waiter = prepare(&mut rig);
        rig.cancel(waiter);
        assert_eq!(rig.claim(waiter), Claim::Stale, "{state}");
        let started = rig.seen.iter().filter(|(_, event)| event.name() == "ConnectionCheckOutStarted").count();
        let ended = rig
            .seen
            .iter()
            .filter(|(_, event)| matches!(event.name(), "ConnectionCheckOutFailed" | "ConnectionCheckedOut"))
            .count();
        assert_eq!(started, ended, "{state}: each start has one end");
    }
}

/// Ids that this pool never issued
#[test]
#[doc(alias = "P47")]
fn ids_that_were_never_issued_are_stale() {
    let mut other = Rig::<OnHeap>::new(PoolOptions { max_connecting: 8, ..DEFAULT });
    other.ready();
    let waiters = [(); 5].map(|()| other.queue());
    let conns = [(); 5].map(|()| other.begin());
    on_each_memory!(DEFAULT, |rig| {
        rig.ready();
        rig.events();
        assert_eq!(rig.claim(waiters[4]), Claim::Stale);
        rig.cancel(waiters[4]);
        assert_eq!(rig.established(conns[4]), Err(Stale));
        assert_eq!(rig.establish_failed(conns[4], REFUSED), Err(Stale));
        assert_eq!(rig.pool.conn_generation(conns[4]), None);
        assert_eq!(rig.pool.conn_service(conns[4]), None);
        assert_eq!((rig.names(), rig.counts()), (Vec::new(), [0; 4]));
    });
}
