//! One falsified output of a multiplexed pool: an event, or a call that does not reach the model.

use crate::choices::Choices;
use crate::machines::mux::Event;
use crate::oracle::mux::Bounded;
use crate::oracle::mux::watched::Watched;
use crate::oracle::tests::falsify::{Kind, at_another_time, change, missing, next, reversed, twice, verdicts};
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::mux::{AcquireError, MuxClosed};
use poolhouse_core::{Cause, Instant};

pub(in crate::oracle::mux) fn kinds<M: Bounded>() -> [Kind<Watched<M>>; 16] {
    [
        ("an event is missing", |it, rng| missing(&mut it.events, rng)),
        ("an event is emitted twice", |it, rng| twice(&mut it.events, rng)),
        ("events are in another order", |it, _| reversed(&mut it.events)),
        ("an event has another time", |it, rng| at_another_time(&mut it.events, rng)),
        ("an event is of another connection", |it, _| match it.events.last_mut() {
            Some((_, Event::Created(conn) | Event::Ready(conn, _) | Event::Closed(conn, ..))) => next(conn),
            Some((_, Event::Trashed(conn, _) | Event::Acquired(conn, ..) | Event::Reply(conn, _))) => next(conn),
            _ => false,
        }),
        ("an event is of another stream", |it, _| match it.events.last_mut() {
            Some((_, Event::Reply(_, id) | Event::Late(_, id) | Event::Orphaned(_, id, _))) => change(id, *id + 1),
            _ => false,
        }),
        ("a stream id is used twice", |it, _| match it.events.last_mut() {
            Some((_, Event::Acquired(conn, id, _))) => {
                let conn = it.model.conn(*conn);
                let used = conn.and_then(|conn| conn.requests.iter().find_map(|request| request.id));
                used.is_some_and(|used| change(id, u64::from(used)))
            }
            _ => false,
        }),
        ("a duration is wrong", |it, _| match it.events.last_mut() {
            Some((_, Event::Ready(_, duration))) => change(duration, *duration + Duration::from_micros(1)),
            Some((_, Event::Acquired(.., waited) | Event::Failed(_, waited))) => {
                change(waited, Some(waited.unwrap_or_default() + Duration::from_micros(1)))
            }
            _ => false,
        }),
        ("a reason is wrong", |it, rng| match it.events.last_mut() {
            Some((_, Event::Closed(_, reason, _))) => {
                change(reason, rng.one_of(&[MuxClosed::Idle, MuxClosed::PoolClosed]))
            }
            Some((_, Event::Failed(error, _))) => {
                let late = AcquireError::TimedOut { in_flight: 0, queued: 0 };
                change(error, rng.one_of(&[AcquireError::Closed, late]))
            }
            _ => false,
        }),
        ("a number of requests is wrong", |it, _| match it.events.last_mut() {
            Some((_, Event::Closed(.., count) | Event::Trashed(_, count) | Event::Queued(count))) => {
                change(count, *count + 1)
            }
            _ => false,
        }),
        ("an event is added", |it, rng| {
            let event = rng.one_of(&[
                Event::PoolClosed,
                Event::Created(it.conns.len() as u64 + 1),
                Event::Queued(1),
                Event::HeartbeatFailed(1),
                Event::Failed(AcquireError::TimedOut { in_flight: 0, queued: 0 }, None),
            ]);
            it.events.push((Instant::from_nanos(it.model.now()), event));
            true
        }),
        ("a stream is also acquired", |it, _| {
            it.mux.acquire(Instant::from_nanos(it.model.now()), None, &mut ()).is_ok()
        }),
        ("a connection also fails", |it, rng| {
            let now = Instant::from_nanos(it.model.now());
            let conn = it.conns.get(rng.index(it.conns.len().max(1))).copied();
            conn.is_some_and(|conn| it.mux.handle_failed(now, conn, Cause::Network, &mut ()).is_ok())
        }),
        ("the pool is also closed", |it, _| {
            let was_closed = it.mux.is_closed();
            it.mux.close(Instant::from_nanos(it.model.now()), &mut ());
            !was_closed
        }),
        ("an action is also polled", |it, _| it.mux.poll_action(Instant::from_nanos(it.model.now())).is_some()),
        ("the time of the pool also advances", |it, rng| {
            let later = it.model.now() + rng.one_of(&[1, 1_000_000, 1_000_000_000]);
            it.mux.handle_timeout(Instant::from_nanos(later), &mut ());
            true
        }),
    ]
}

/// Nothing notices some changes, in runs that end before these have an effect.
#[test]
fn each_kind_of_falsified_output_breaks_these_invariants() {
    expect![[r#"
        a connection also fails: P1 57
        a duration is wrong: M4 40, M5 8, P19 6, P32 9
        a number of requests is wrong: M4 27, M5 27, M6 1
        a reason is wrong: M4 49, P19 13
        a stream id is used twice: M1 35
        a stream is also acquired: P1 58
        an action is also polled: M6 50, P8 5, nothing 6
        an event has another time: P25 63
        an event is added: M5 13, M6 36, P18 13
        an event is emitted twice: M4 29, M5 16, M6 17, P18 1
        an event is missing: M2 1, M4 22, M5 21, M6 16, P19 3
        an event is of another connection: M2 1, M4 17, M6 12, P32 20, P6 11
        an event is of another stream: M2 37, M3 4
        events are in another order: M2 6, M5 7, M6 44, P19 6
        the pool is also closed: M6 4, P1 55, P20 2
        the time of the pool also advances: M4 1, P1 9, P20 3, P25 30, P32 6, nothing 13
    "#]]
    .assert_eq(&verdicts(1_000, 400, crate::fuzz::mux));
}
