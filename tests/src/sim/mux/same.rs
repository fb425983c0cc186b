//! Comparison of the events and the state of a multiplexed pool with its model, for all generators
//! that run both.

use crate::model::mux::{Acquired, Event, Model, Outcome, Place};
use poolhouse_core::Instant;
use poolhouse_core::mux::{Acquire, AcquireError, Mux, MuxClaim, MuxMemory, MuxWaiterId, Stream};

/// Compares and returns the events since the last call. The pool chooses the stream id of a
/// request, so the model takes it from the event. Waiters that time out in one call may do so in
/// any order.
pub(crate) fn assert_events(mut actual: Vec<(u64, Event)>, model: &mut Model) -> Vec<(u64, Event)> {
    let mut expected = core::mem::take(&mut model.events);
    for ((_, actual), (_, expected)) in actual.iter().zip(&mut expected) {
        if let (Event::Acquired(conn, id, _), Event::Acquired(same, request, _)) = (actual, expected) {
            if conn == same {
                model.name(*conn, *request, u16::try_from(*id).expect("an id of the pool"));
                *request = *id;
            }
        }
    }
    if actual != expected {
        in_any_order(&mut actual);
        in_any_order(&mut expected);
        assert_eq!(actual, expected, "events: the pool's left, the model's right");
    }
    actual
}

/// Sorts each run of timeouts by the length of the wait.
fn in_any_order(events: &mut [(u64, Event)]) {
    let is_timeout = |event: &Event| matches!(event, Event::Failed(AcquireError::TimedOut { .. }, _));
    for run in events.chunk_by_mut(|(_, one), (_, next)| is_timeout(one) && is_timeout(next)) {
        let mut waited: Vec<u64> =
            run.iter().map(|(_, event)| if let Event::Failed(_, waited) = event { *waited } else { 0 }).collect();
        waited.sort_unstable();
        for ((_, event), waited) in run.iter_mut().zip(waited) {
            if let Event::Failed(_, own) = event {
                *own = waited;
            }
        }
    }
}

/// Compares all observable state of a pool.
pub(crate) fn assert_state<M: MuxMemory>(mux: &Mux<M>, model: &Model) {
    mux.assert_invariants();
    assert_eq!(mux.state(), model.state(), "state");
    assert_eq!(mux.config().options(), model.options(), "options");
    assert_eq!(mux.poll_timeout().map(Instant::as_nanos), model.poll_timeout(), "poll_timeout");
    let mut actual = Vec::new();
    mux.for_each_conn(|conn, in_flight, open| actual.push((conn.number().get(), in_flight, open)));
    let expected = model.established().map(|conn| (conn.id, conn.in_flight(), conn.place == Place::Open));
    assert_eq!(actual, expected.collect::<Vec<_>>(), "connections, the oldest in each state first");
}

/// Compares the immediate result of a request: a new stream, a new waiter, or an error.
pub(crate) fn acquire(
    outcome: Result<Acquire, AcquireError>,
    expected: Acquired,
    streams: &mut Vec<(Stream, u64)>,
    waiters: &mut Vec<(MuxWaiterId, u64)>,
) {
    match (outcome, expected) {
        (Ok(Acquire::Granted(stream)), Acquired::Granted(conn, request)) => {
            assert_eq!(stream.conn().number().get(), conn, "the least busy connection takes it");
            streams.push((stream, request));
        }
        (Ok(Acquire::Queued(waiter)), Acquired::Queued(number)) => waiters.push((waiter, number)),
        (Err(error), Acquired::Failed(expected)) => assert_eq!(error, expected),
        (outcome, expected) => panic!("acquire: the pool returned {outcome:?}, the model {expected:?}"),
    }
}

/// Compares the result of a claim, which may add a stream. Returns whether the wait is over.
pub(crate) fn claim(outcome: MuxClaim, expected: Option<Outcome>, streams: &mut Vec<(Stream, u64)>) -> bool {
    match (outcome, expected) {
        (MuxClaim::Waiting, Some(Outcome::Waiting)) => return false,
        (MuxClaim::Granted(stream), Some(Outcome::Granted(conn, request))) => {
            assert_eq!(stream.conn().number().get(), conn, "the connection that was granted");
            streams.push((stream, request));
        }
        // Waiters that time out in one call may do so in any order.
        (
            MuxClaim::Failed(AcquireError::TimedOut { in_flight, .. }),
            Some(Outcome::Failed(AcquireError::TimedOut { in_flight: expected, .. })),
        ) => assert_eq!(in_flight, expected),
        (MuxClaim::Failed(error), Some(Outcome::Failed(expected))) => assert_eq!(error, expected),
        (outcome, expected) => panic!("claim: the pool returned {outcome:?}, the model {expected:?}"),
    }
    true
}
