//! One falsified output of a multiplexed pool: an event, or a call that does not reach the model.

use super::Watched;
use crate::choices::Choices;
use crate::machines::mux::Event;
use crate::oracle::falsify::{Kind, at_another_time, change, missing, next, reversed, twice, verdicts};
use crate::oracle::mux::Bounded;
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::mux::{AcquireError, MuxClosed};
use poolhouse_core::{Cause, Instant};

pub(super) fn kinds<M: Bounded>() -> [Kind<Watched<M>>; 16] {
    [
        ("an event is missing", |it, rng| missing(&mut it.events, rng)),
        ("an event is emitted twice", |it, rng| twice(&mut it.events, rng)),
        ("events are in another order", |it, rng| reversed(&mut it.events, rng)),
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
            Some((_, Event::Ready(_, duration) | Event::Acquired(.., duration) | Event::Failed(_, duration))) => {
                change(duration, *duration + Duration::from_micros(1))
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
                Event::Failed(AcquireError::TimedOut { in_flight: 0, queued: 0 }, Duration::ZERO),
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
            it.mux.close(Instant::from_nanos(it.model.now()), &mut ());
            true
        }),
        ("an action is also polled", |it, _| it.mux.poll_action(Instant::from_nanos(it.model.now())).is_some()),
        ("the time of the pool also advances", |it, rng| {
            let later = it.model.now() + rng.one_of(&[1, 1_000_000, 1_000_000_000]);
            it.mux.handle_timeout(Instant::from_nanos(later), &mut ());
            true
        }),
    ]
}

#[test]
fn falsified_outputs_break_these_invariants() {
    expect![[r#"
        a connection also fails: P1 117
        a duration is wrong: M4 74, M5 22, P19 18, P32 11
        a number of requests is wrong: M4 54, M5 51, M6 7
        a reason is wrong: M4 94, P19 30
        a stream id is used twice: M1 63
        a stream is also acquired: P1 116
        an action is also polled: M6 90, P20 2, P8 13, nothing 15
        an event has another time: P25 125
        an event is added: M5 32, M6 66, P18 27
        an event is emitted twice: M4 57, M5 34, M6 29, P18 5
        an event is missing: M2 1, M3 1, M4 56, M5 33, M6 25, P19 8, P6 1
        an event is of another connection: M2 4, M4 18, M6 24, P32 47, P6 25
        an event is of another stream: M2 63, M3 11
        events are in another order: M2 7, M3 1, M4 1, M5 15, M6 77, P19 16, P6 1
        the pool is also closed: M6 8, P1 113, P20 3, nothing 1
        the time of the pool also advances: M4 1, M5 1, P1 17, P20 9, P25 72, P32 9, nothing 16
    "#]]
    .assert_eq(&verdicts(2_000, 400, crate::fuzz::mux));
}
