//! One falsified output of a pool: an event, or a call that does not reach the model.

use crate::choices::Choices;
use crate::machines::pool::Event;
use crate::oracle::pool::Bounded;
use crate::oracle::pool::watched::Watched;
use crate::oracle::tests::falsify::{Kind, at_another_time, change, missing, reversed, twice, verdicts};
use core::time::Duration;
use expect_test::expect;
use poolhouse_core::pool::{CheckOutError, CheckOutFailedReason, Clear, ClosedReason, Pool};
use poolhouse_core::{Cause, Instant};

pub(in crate::oracle::pool) fn kinds<M: Bounded>() -> [Kind<Watched<M>>; 18] {
    [
        ("an event is missing", |it, rng| missing(&mut it.events, rng)),
        ("an event is emitted twice", |it, rng| twice(&mut it.events, rng)),
        ("events are in another order", |it, _| reversed(&mut it.events)),
        ("an event has another time", |it, rng| at_another_time(&mut it.events, rng)),
        ("an event is of another connection", |it, rng| match it.events.last_mut() {
            Some((_, Event::Created(conn) | Event::Ready(conn, _) | Event::Closed(conn, ..))) => {
                change(conn, rng.one_of(&[*conn + 1, conn.saturating_sub(1)]))
            }
            Some((_, Event::CheckedOut(conn, _) | Event::CheckedIn(conn))) => {
                change(conn, rng.one_of(&[*conn + 1, conn.saturating_sub(1)]))
            }
            _ => false,
        }),
        ("a duration is wrong", |it, _| match it.events.last_mut() {
            Some((_, Event::Ready(_, duration) | Event::CheckedOut(_, duration) | Event::Failed(.., duration))) => {
                change(duration, *duration + Duration::from_micros(1))
            }
            _ => false,
        }),
        ("a reason is wrong", |it, rng| match it.events.last_mut() {
            Some((_, Event::Closed(_, reason, _))) => {
                change(reason, rng.one_of(&[ClosedReason::Stale, ClosedReason::Idle, ClosedReason::Error]))
            }
            Some((_, Event::Failed(reason, ..))) => {
                change(reason, rng.one_of(&[CheckOutFailedReason::Timeout, CheckOutFailedReason::ConnectionError]))
            }
            _ => false,
        }),
        ("an error is wrong", |it, rng| match it.events.last_mut() {
            Some((_, Event::Failed(reason, error, _))) => {
                let (of, other) = rng.one_of(&[
                    (CheckOutFailedReason::Timeout, CheckOutError::WaitQueueTimeout { usage: None }),
                    (CheckOutFailedReason::ConnectionError, CheckOutError::PoolCleared { cause: None }),
                    (CheckOutFailedReason::ConnectionError, CheckOutError::Busy { waiting: 0 }),
                    (CheckOutFailedReason::ConnectionError, CheckOutError::Cancelled),
                    (CheckOutFailedReason::PoolClosed, CheckOutError::PoolClosed),
                ]);
                *reason = of;
                change(error, other)
            }
            _ => false,
        }),
        ("a cause is missing", |it, _| match it.events.first_mut() {
            Some((_, Event::Closed(.., cause) | Event::PoolCleared { cause, .. })) => cause.take().is_some(),
            _ => false,
        }),
        ("an event is added", |it, rng| {
            let interrupt = rng.one_in(2);
            let event = rng.one_of(&[
                Event::PoolReady,
                Event::PoolClosed,
                Event::Started,
                Event::Created(it.conns.len() as u64 + 1),
                Event::PoolCleared { service: None, interrupt, cause: None },
            ]);
            it.events.push((Instant::from_nanos(it.model.now()), event));
            true
        }),
        ("the pool is also made ready", |it, _| acts(it, |pool, now| pool.ready(now, &mut ()))),
        ("the pool is also cleared", |it, rng| {
            let clear = Clear::All { interrupt_in_use_connections: rng.one_in(2) };
            acts(it, |pool, now| {
                let _ = pool.clear(now, clear, Some(Cause::Network), &mut ());
            })
        }),
        ("the pool is also closed", |it, _| acts(it, |pool, now| pool.close(now, &mut ()))),
        ("the pool also has a fill target", |it, rng| {
            let count = rng.below(4);
            acts(it, |pool, now| pool.set_fill_target(now, count, &mut ()))
        }),
        ("a connection is also retired", |it, rng| {
            let conn = it.conns.get(rng.index(it.conns.len().max(1))).copied();
            conn.is_some_and(|conn| acts(it, |pool, now| pool.retire(now, conn, &mut ())))
        }),
        ("an action is also polled", |it, rng| {
            if rng.one_in(2) { it.pool.poll_establish().is_some() } else { it.pool.poll_prompt().is_some() }
        }),
        ("the time of the pool also advances", |it, rng| {
            let later = it.model.now() + rng.one_of(&[1, 1_000_000, 1_000_000_000]);
            it.pool.handle_timeout(Instant::from_nanos(later), &mut ());
            true
        }),
        ("the time of the model also advances", |it, _| {
            it.model.advance(it.model.now() + 1);
            true
        }),
    ]
}

/// Calls the pool, but not its model. Returns whether the call changed the pool.
fn acts<M: Bounded>(it: &mut Watched<M>, call: impl FnOnce(&mut Pool<M>, Instant)) -> bool {
    let before = it.pool.clone();
    call(&mut it.pool, Instant::from_nanos(it.model.now()));
    it.pool != before
}

/// Nothing notices some changes, in runs that end before these have an effect.
#[test]
fn each_kind_of_falsified_output_breaks_these_invariants() {
    expect![[r#"
        a cause is missing: P31 46
        a connection is also retired: P1 25, P14 1, P31 24, P35 1, an assertion 4, nothing 10
        a duration is wrong: P32 16, P8 63
        a reason is wrong: P26 3, P31 68, P33 7
        an action is also polled: P34 6, P5 53, P8 13, nothing 4
        an error is wrong: P31 72, P33 7
        an event has another time: P25 61, P8 23
        an event is added: P2 1, P28 15, P29 27, P3 1, P33 4, P37 4, P38 2, P4 7, P42 11, P50 8, P6 3
        an event is emitted twice: P11 3, P13 1, P18 1, P27 5, P28 37, P29 4, P33 2, P5 8, P6 9, P8 14
        an event is missing: P10 7, P11 1, P12 2, P19 1, P24 1, P27 2, P28 19, P29 8, P30 1, P31 1, P36 1, P37 4, P38 11, P42 1, P48 2, P5 1, P8 21
        an event is of another connection: P27 14, P5 5, P6 54
        events are in another order: P24 1, P27 6, P28 26, P3 2, P31 2, P36 3, P37 3, P38 2, P5 1, P6 1, P8 37
        the pool also has a fill target: P1 8, P20 1, P4 69
        the pool is also cleared: P1 22, P29 9, P34 36
        the pool is also closed: P1 30, P29 53
        the pool is also made ready: P1 15, P29 48
        the time of the model also advances: P19 2, P25 63, P31 4, nothing 14
        the time of the pool also advances: P1 7, P25 58, P31 4, nothing 14
    "#]].assert_eq(&verdicts(1_500, 400, crate::fuzz::pool));
}
