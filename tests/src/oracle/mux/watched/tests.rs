//! For each id, a difference between the pool and the model that breaks only that invariant.

pub(super) mod falsified;

use super::{Watched, difference};
use crate::machines::mux::Event;
use crate::model::mux::{Model, Room};
use crate::sim::caught;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{
    Acquire, AcquireError, HostOptions, MuxAction, MuxClosed, MuxConnId, MuxId, MuxOnHeap, MuxOptions, Written,
};

const NOW: Instant = Instant::from_nanos(1_000_000);

const HOST: HostOptions = HostOptions {
    core_connections: 1,
    max_connections: 1,
    max_requests_per_connection: 2,
    new_connection_threshold: 2,
};

fn options() -> MuxOptions {
    let pool_timeout = Duration::from_millis(10);
    MuxOptions { local: HOST, remote: HOST, streams_per_connection: 4, pool_timeout, ..MuxOptions::DEFAULT }
}

fn new() -> Watched<MuxOnHeap> {
    Watched::new(NOW, MuxId::new(1), options().validate().expect("valid options"), &mut ())
}

/// This connection accepts requests.
fn open() -> (Watched<MuxOnHeap>, MuxConnId) {
    let mut watched = new();
    let Some(MuxAction::Establish(conn)) = watched.poll_action(NOW) else { panic!("it is owed") };
    watched.handle_established(NOW, conn, &mut ()).expect("it is pending");
    (watched, conn)
}

/// Checks that this call panics with the id.
fn breaks<T>(id: &str, call: impl FnOnce() -> T) {
    let message = caught(|| {
        let _result = call();
    })
    .expect_err(id);
    assert!(message.starts_with(&format!("{id}: ")), "{id}: {message}");
}

#[test]
fn state_and_results_that_differ_break_their_invariants() {
    let (mut watched, _) = open();
    drop(watched.mux.acquire(NOW, None, &mut ()));
    breaks("P1", || watched.poll_action(NOW));
    let (mut watched, _) = open();
    let other = MuxOptions { heartbeat_interval: Duration::from_millis(1), ..options() };
    watched.mux.reconfigure(NOW, other.validate().expect("valid options"), &mut ());
    breaks("P20", || watched.poll_action(NOW));
    let (mut watched, conn) = open();
    drop(watched.mux.acquire(NOW, None, &mut ()));
    breaks("M2", || watched.handle_reply(NOW, conn, 0, &mut ()));
    let mut watched = new();
    let _establish = watched.mux.poll_action(NOW);
    breaks("M6", || watched.poll_action(NOW));
    let (mut watched, _) = open();
    watched.mux.close(NOW, &mut ());
    breaks("M5", || watched.acquire(NOW, None, &mut ()));
    let mut watched = new();
    let _waiting = watched.acquire(NOW, None, &mut ());
    let (waiter, _) = watched.waiters()[0];
    watched.mux.cancel(NOW, waiter, &mut ());
    breaks("M4", || watched.claim(NOW, waiter));
}

#[test]
fn requests_that_are_left_break_m5_and_m6() {
    let mut watched = new();
    let _waiting = watched.acquire(NOW, None, &mut ());
    breaks("M5", || watched.clone().assert_peace());
    watched.close(NOW, &mut ());
    breaks("M6", || watched.clone().assert_over());
    let (waiter, _) = watched.waiters()[0];
    let _closed = watched.claim(NOW, waiter);
    watched.assert_over();
    let (mut watched, _) = open();
    let Ok(Acquire::Granted(stream)) = watched.acquire(NOW, None, &mut ()) else { panic!("a connection is open") };
    watched.release(NOW, stream, Written::No, &mut ()).expect("its own");
    watched.assert_peace();
}

#[test]
fn events_that_differ_break_their_invariants() {
    let acquired = |conn| Event::Acquired(conn, 1, Duration::ZERO);
    let failed = |error| Event::Failed(error, Duration::ZERO);
    let late = failed(AcquireError::TimedOut { in_flight: 1, queued: 1 });
    let missing = [
        (Event::Reply(1, 1), "M2"),
        (Event::Late(1, 1), "M2"),
        (Event::Unknown(1, 1), "M2"),
        (Event::Orphaned(1, 1, 1), "M3"),
        (Event::Retired(1, 1), "M3"),
        (failed(AcquireError::Closed), "M4"),
        (acquired(1), "M5"),
        (Event::Queued(1), "M5"),
        (Event::Trashed(1, 1), "M6"),
        (Event::HeartbeatStarted(1), "M6"),
        (late, "P19"),
    ];
    let closed = |in_flight| Event::Closed(1, MuxClosed::Idle, in_flight);
    let different = [
        (acquired(1), acquired(2), "M6"),
        (closed(0), closed(1), "M4"),
        (Event::Created(2), Event::Created(3), "P6"),
        (Event::Ready(1, Duration::ZERO), Event::Ready(1, Duration::MAX), "P32"),
    ];
    let model = Model::new(0, options(), Room::ENDLESS);
    for (event, id) in missing {
        assert_eq!(difference(&[], &[(NOW, event)], &model).id, id, "{event:?} is missing");
    }
    assert_eq!(difference(&[(NOW, late)], &[], &model).id, "P18");
    for (actual, expected, id) in different {
        let found = difference(&[(NOW, actual)], &[(NOW, expected)], &model);
        assert_eq!(found.id, id, "{actual:?}, not {expected:?}");
    }
    assert_eq!(difference(&[(NOW, closed(0))], &[(Instant::ORIGIN, closed(0))], &model).id, "P25");
}
