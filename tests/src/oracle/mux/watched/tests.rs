//! What is left at the end, and runs with one falsified output.

pub(super) mod falsified;

use super::Watched;
use crate::seeds::caught;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::mux::{Acquire, HostOptions, MuxAction, MuxConnId, MuxId, MuxOnHeap, MuxOptions, Written};

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
