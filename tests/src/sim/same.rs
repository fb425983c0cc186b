//! Comparison of the events and the state of a pool with its model, for all generators that run
//! both.

use crate::model::pool::{CheckedOut, Event, Model, Outcome};
use poolhouse_core::ObjectId;
use poolhouse_core::pool::{
    CheckOut, CheckOutError, CheckOutFailedReason, Claim, ConnId, Lease, Memory, Pool, WaiterId,
};

/// Compares the events since the last call. Check-outs that time out in one call may do so in any
/// order.
pub(crate) fn assert_events(mut actual: Vec<(u64, Event)>, mut expected: Vec<(u64, Event)>) {
    if actual != expected {
        in_any_order(&mut actual);
        in_any_order(&mut expected);
        assert_eq!(actual, expected, "events: the pool's left, the model's right");
    }
}

/// Sorts each run of timeouts by the length of the wait.
fn in_any_order(events: &mut [(u64, Event)]) {
    let is_timeout = |event: &Event| matches!(event, Event::Failed(CheckOutFailedReason::Timeout, ..));
    for run in events.chunk_by_mut(|(_, one), (_, next)| is_timeout(one) && is_timeout(next)) {
        run.sort_by_key(|(_, event)| if let Event::Failed(.., duration) = event { *duration } else { 0 });
    }
}

/// Compares all observable state of a pool except its connections. Returns the next deadline;
/// overdue deadlines count as now.
pub(crate) fn assert_state<M: Memory>(pool: &Pool<M>, model: &Model, services: &[ObjectId]) -> Option<u64> {
    pool.assert_invariants();
    let counts = pool.counts();
    let [pending, available, in_use] = model.counts();
    let actual = [counts.pending, counts.available, counts.in_use, counts.waiting].map(|count| count as usize);
    assert_eq!(actual, [pending, available, in_use, model.waiting()], "pending, available, in use, waiting");
    assert_eq!(pool.state(), model.state(), "state");
    assert_eq!(pool.generation().get(), model.generation(), "generation");
    assert_eq!(pool.fill_target(), model.fill_target(), "fill target");
    for count in [0, 1, 2, 5] {
        assert_eq!(pool.is_filled(count), model.is_filled(count), "whether {count} connections are established");
    }
    assert_eq!(pool.service_count() as usize, model.service_count(), "services");
    for service in services {
        let generation = pool.service_generation(*service).get();
        assert_eq!(generation, model.service_generation(*service), "generation of {service}");
    }
    let due = pool.poll_timeout().map(|at| at.as_nanos().max(model.now()));
    assert_eq!(due, model.poll_timeout().map(|at| at.max(model.now())), "P20: poll_timeout");
    due
}

/// Compares the observable state of a connection. Returns whether it exists.
pub(crate) fn assert_conn<M: Memory>(pool: &Pool<M>, model: &Model, conn: ConnId) -> bool {
    let expected = model.conn(conn.connection_id().get());
    let generation = pool.conn_generation(conn).map(|generation| generation.get());
    assert_eq!(generation, expected.map(|conn| conn.generation), "generation of {conn:?}");
    assert_eq!(pool.conn_service(conn), expected.and_then(|conn| conn.service), "service of {conn:?}");
    expected.is_some()
}

/// Compares the immediate result of a check-out: a new lease, a new waiter, or an error.
pub(crate) fn check_out(
    outcome: Result<CheckOut, CheckOutError>,
    expected: CheckedOut,
    leases: &mut Vec<Lease>,
    waiters: &mut Vec<(WaiterId, u64)>,
) -> Option<CheckOutError> {
    match (outcome, expected) {
        (Ok(CheckOut::Granted(lease)), CheckedOut::Granted(id)) => {
            assert_eq!(lease.conn().connection_id().get(), id, "the newest connection is taken");
            leases.push(lease);
        }
        (Ok(CheckOut::Queued(waiter)), CheckedOut::Queued(number)) => waiters.push((waiter, number)),
        (Err(error), CheckedOut::Failed(expected)) => {
            assert_eq!(error, expected);
            return Some(error);
        }
        (outcome, expected) => panic!("check_out: the pool returned {outcome:?}, the model {expected:?}"),
    }
    None
}

/// Compares the result of a claim, which may add a lease. Returns whether the check-out is over.
pub(crate) fn claim(outcome: Claim, expected: Option<Outcome>, leases: &mut Vec<Lease>) -> bool {
    match (outcome, expected) {
        (Claim::Waiting, Some(Outcome::Waiting)) => return false,
        (Claim::Granted(lease), Some(Outcome::Granted(id))) => {
            assert_eq!(lease.conn().connection_id().get(), id, "the connection that was granted");
            leases.push(lease);
        }
        (Claim::Failed(error), Some(Outcome::Failed(expected))) => assert_eq!(error, expected),
        (outcome, expected) => panic!("claim: the pool returned {outcome:?}, the model {expected:?}"),
    }
    true
}
