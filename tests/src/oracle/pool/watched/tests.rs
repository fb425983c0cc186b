//! For each id, a difference between the pool and the model that breaks only that invariant.

pub(super) mod falsified;

use super::{Call, Watched, difference, number};
use crate::machines::pool::Event;
use crate::model::pool::{Model, Outcome};
use crate::seeds::caught;
use core::time::Duration;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, CheckOutFailedReason, Clear, ClosedReason, ConnId, EstablishError, Health, Lease, OnHeap,
    PoolAction, PoolId, PoolOptions, PoolState,
};
use poolhouse_core::{Cause, Instant, ObjectId};

/// A call of the pool that does not reach the model.
type Change = fn(&mut Watched<OnHeap>);

const NOW: Instant = Instant::from_nanos(1_000_000);
const INTERRUPT: Clear = Clear::All { interrupt_in_use_connections: true };
const ERROR: EstablishError = EstablishError { cause: Cause::Network, overloaded: false, clear: None };
const SERVICE: ObjectId = ObjectId([1; 12]);

fn new(options: PoolOptions) -> Watched<OnHeap> {
    Watched::new(NOW, PoolId::new(1), options.validate().expect("valid"), &mut ())
}

fn ready() -> Watched<OnHeap> {
    let mut watched = new(PoolOptions::DEFAULT);
    watched.ready(NOW, &mut ());
    watched
}

/// A check-out waits for this connection.
fn pending() -> (Watched<OnHeap>, ConnId) {
    let mut watched = ready();
    let _waiting = watched.check_out(NOW, None, &mut ());
    let conn = watched.poll_establish().expect("it is owed");
    (watched, conn)
}

fn in_use() -> (Watched<OnHeap>, Lease) {
    let (mut watched, conn) = pending();
    let (waiter, _) = watched.waiters()[0];
    watched.cancel(NOW, waiter, &mut ());
    watched.handle_established(NOW, conn, &mut ()).expect("it is pending");
    let Ok(CheckOut::Granted(lease)) = watched.check_out(NOW, None, &mut ()) else { panic!("one is available") };
    (watched, lease)
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
fn state_that_differs_breaks_its_invariant() {
    let paused = || new(PoolOptions::DEFAULT);
    // These calls reach only the pool; the next call of both finds the difference.
    let only_pool: [(&str, Watched<OnHeap>, Change); 5] = [
        ("P1", ready(), |it| {
            drop(it.pool.check_out(NOW, None, &mut ()));
            it.pool.poll_establish();
        }),
        ("P4", paused(), |it| it.pool.set_fill_target(NOW, 3, &mut ())),
        ("P29", paused(), |it| it.pool.ready(NOW, &mut ())),
        ("P34", paused(), |it| it.pool.clear(NOW, INTERRUPT, None, &mut ()).expect("its mode")),
        ("P45", balanced(), |it| {
            it.pool.handle_service(it.conns[0], SERVICE).expect("it is pending");
        }),
    ];
    for (id, mut watched, call) in only_pool {
        call(&mut watched);
        breaks(id, || watched.poll_prompt());
    }
    let until = Some(Instant::from_nanos(9_000_000));
    let (mut watched, _) = pending();
    drop(watched.pool.check_out(NOW, until, &mut ()));
    watched.model.check_out(NOW.as_nanos(), None);
    watched.model.events.clear();
    breaks("P20", || watched.poll_prompt());
}

/// A connection of a load-balanced pool is being established.
fn balanced() -> Watched<OnHeap> {
    let mut watched = new(PoolOptions { load_balanced: true, ..PoolOptions::DEFAULT });
    watched.ready(NOW, &mut ());
    let _waiting = watched.check_out(NOW, None, &mut ());
    watched.poll_establish().expect("it is owed");
    watched
}

#[test]
fn results_that_differ_break_their_invariants() {
    let (mut watched, conn) = pending();
    watched.model.took_establish(number(conn));
    watched.pool.handle_established(NOW, conn, &mut ()).expect("it is pending");
    breaks("P24", || watched.handle_establish_failed(NOW, conn, ERROR, &mut ()));
    let (mut watched, conn) = pending();
    watched.model.close(NOW.as_nanos());
    watched.model.events.clear();
    breaks("P36", || watched.handle_established(NOW, conn, &mut ()));
    let (mut watched, lease) = in_use();
    watched.pool.close(NOW, &mut ());
    breaks("P42", || watched.check_in(NOW, lease, Health::Healthy, &mut ()));
    let (mut watched, _) = pending();
    let (waiter, _) = watched.waiters()[0];
    watched.pool.cancel(NOW, waiter, &mut ());
    breaks("P8", || watched.claim(NOW, waiter));
    let (mut watched, lease) = in_use();
    drop(watched.pool.check_in(NOW, lease, Health::Healthy, &mut ()));
    drop(watched.pool.check_out(NOW, None, &mut ()));
    watched.pool.clear(NOW, INTERRUPT, None, &mut ()).expect("its mode");
    breaks("P40", || watched.poll_prompt());
}

#[test]
fn actions_that_are_not_owed_or_not_polled_break_their_invariants() {
    let (used, lease) = in_use();
    let conn = lease.conn();
    let mut waiting = ready();
    let _waiting = waiting.check_out(NOW, None, &mut ());
    let (new, (waiter, _)) = (waiting.conns[0], waiting.waiters()[0]);
    let mut granted = waiting.clone();
    let _establish = granted.poll_establish();
    granted.handle_established(NOW, new, &mut ()).expect("it is pending");
    let mut interrupted = used.clone();
    interrupted.clear(NOW, INTERRUPT, None, &mut ()).expect("its mode");
    let mut broken = used.clone();
    broken.check_in(NOW, lease, Health::Broken(Cause::Network), &mut ()).expect("its own");
    // Whether establishments and other actions were polled, the action, and the id.
    let wrong = [
        (&used, true, true, Some(PoolAction::Close(conn)), "P5"),
        (&used, true, true, Some(PoolAction::Interrupt(conn)), "P40"),
        (&used, true, true, Some(PoolAction::Establish(conn)), "P5"),
        (&used, true, true, Some(PoolAction::Wake(waiter)), "P8"),
        (&waiting, false, true, Some(PoolAction::Establish(new)), "P5"),
        (&waiting, true, false, None, "P5"),
        (&granted, true, false, Some(PoolAction::Wake(waiter)), "P8"),
        (&granted, false, true, None, "P8"),
        (&interrupted, true, false, Some(PoolAction::Interrupt(conn)), "P40"),
        (&interrupted, false, true, None, "P40"),
        (&broken, true, false, Some(PoolAction::Close(conn)), "P5"),
        (&broken, false, true, None, "P5"),
    ];
    for (watched, establish, prompt, action, id) in wrong {
        breaks(id, || watched.clone().polled(establish, prompt, action));
    }
    waiting.polled(false, true, None);
    broken.polled(true, false, None);
}

#[test]
fn events_that_differ_break_their_invariants() {
    let (other, check_out) = (Call::Other, Call::CheckOut { was: PoolState::Ready });
    let (late, early) = (Call::Timeout { was_due: true }, Call::Timeout { was_due: false });
    let cancelled = Call::Cancel { was: Some(Outcome::Waiting) };
    let returned = Call::Cancel { was: Some(Outcome::Granted(1)) };
    let closed = |reason| Event::Closed(1, reason, None);
    let taken = |conn| Event::CheckedOut(conn, Duration::ZERO);
    let failed = |error| Event::Failed(CheckOutFailedReason::ConnectionError, error, Duration::ZERO);
    let timeout = CheckOutError::WaitQueueTimeout { usage: None };
    let timeout = Event::Failed(CheckOutFailedReason::Timeout, timeout, Duration::ZERO);
    let refused = Event::Failed(CheckOutFailedReason::PoolClosed, CheckOutError::PoolClosed, Duration::ZERO);
    let cleared = failed(CheckOutError::PoolCleared { cause: None });
    let network = |overloaded| failed(CheckOutError::EstablishFailed { cause: Cause::Network, overloaded });
    let created = Event::Created(1);
    // The missing event, and the id.
    let missing = [
        (other, created, "P4"),
        (other, taken(1), "P10"),
        (cancelled, taken(1), "P11"),
        (Call::Established { was_pending: true }, taken(1), "P12"),
        (returned, Event::CheckedIn(1), "P13"),
        (Call::CheckIn { is_own: true }, taken(1), "P14"),
        (check_out, closed(ClosedReason::Stale), "P15"),
        (Call::CheckIn { is_own: true }, Event::CheckedIn(1), "P16"),
        (late, timeout, "P19"),
        (late, taken(1), "P23"),
        (Call::EstablishFailed { was_pending: true }, network(true), "P24"),
        (late, closed(ClosedReason::Idle), "P26"),
        (check_out, Event::Started, "P28"),
        (other, Event::PoolReady, "P29"),
        (Call::Clear { interrupts: true }, closed(ClosedReason::Stale), "P30"),
        (Call::EstablishFailed { was_pending: true }, closed(ClosedReason::Error), "P24"),
        (Call::CheckIn { is_own: true }, closed(ClosedReason::Error), "P31"),
        (Call::Clear { interrupts: false }, closed(ClosedReason::Stale), "P35"),
        (Call::Established { was_pending: true }, closed(ClosedReason::Stale), "P36"),
        (other, Event::PoolCreated(PoolOptions::DEFAULT), "P37"),
        (check_out, cleared, "P38"),
        (other, cleared, "P39"),
        (other, refused, "P42"),
        (other, closed(ClosedReason::PoolClosed), "P42"),
        (late, closed(ClosedReason::Stale), "P44"),
        (check_out, failed(CheckOutError::Busy { waiting: 0 }), "P48"),
    ];
    // The surplus event, and the id.
    let surplus = [(other, timeout, "P18"), (other, taken(1), "P21"), (early, created, "P50"), (other, created, "P4")];
    // The event of the pool, that of the model, and the id.
    let different = [
        (taken(1), taken(2), "P9"),
        (network(false), network(true), "P46"),
        (closed(ClosedReason::Idle), closed(ClosedReason::Stale), "P31"),
    ];
    let model = Model::new(0, PoolOptions::DEFAULT, crate::model::pool::Room::ENDLESS);
    let name = |call, actual: &[Event], expected: &[Event]| {
        let at = |events: &[Event]| events.iter().map(|event| (NOW, *event)).collect::<Vec<_>>();
        difference(call, &at(actual), &at(expected), &model).id
    };
    for (call, event, id) in missing {
        assert_eq!(name(call, &[], &[event]), id, "{event:?} is missing in {call:?}");
    }
    for (call, event, id) in surplus {
        assert_eq!(name(call, &[event], &[]), id, "{event:?} in {call:?}");
    }
    for (actual, expected, id) in different {
        assert_eq!(name(other, &[actual], &[expected]), id, "{actual:?}, not {expected:?}");
    }
    let later = difference(other, &[(NOW, created)], &[(Instant::ORIGIN, created)], &model);
    assert_eq!(later.id, "P25");
}

#[test]
fn waiter_that_is_left_without_faults_breaks_p51_or_p52() {
    let (mut watched, _) = pending();
    watched.assert_peace(true);
    breaks("P51", || watched.assert_peace(false));
    let mut watched = ready();
    let _waiting = watched.check_out(NOW, Some(Instant::from_nanos(2_000_000)), &mut ());
    watched.assert_peace(true);
    assert_eq!(watched.model().last_limit(), Some(2_000_000));
    watched.model.advance(2_000_000);
    breaks("P52", || watched.assert_peace(true));
}

#[test]
fn remains_after_the_close_break_p43() {
    let (mut watched, lease) = in_use();
    breaks("P43", || watched.clone().assert_over());
    watched.close(NOW, &mut ());
    breaks("P43", || watched.clone().assert_over());
    watched.check_in(NOW, lease, Health::Healthy, &mut ()).expect("its own");
    breaks("P43", || watched.clone().assert_over());
    assert!(matches!(watched.poll_prompt(), Some(PoolAction::Close(_))));
    watched.assert_over();
}
