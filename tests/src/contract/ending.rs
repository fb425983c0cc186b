//! The end of a client: it is closed, or its background work is dropped. Waiters fail at once;
//! operations that hold a connection may finish.

use super::rig::{Rig, find, find_by, ping, ping_by, within};
use super::{Client, Shape, Subject, run_case};
use crate::fake::{Fault, FaultRule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use async_executor::LocalExecutor;
use core::cell::Cell;
use core::time::Duration;
use poolhouse_core::pool::CheckOutError;
use poolhouse_driver::{BaseRuntime as _, OperationError, SelectionRequest};

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("ending::closed_under_load", || run_case::<S>(closed_under_load))
        .case("ending::closed_with_leases_out", || run_case::<S>(closed_with_leases_out))
        .case("ending::closed_while_everybody_waits", || {
            run_case::<S>(async |subject: &S| ended_while_operations_wait(subject, End::Closed).await);
        })
        .case("ending::runner_dropped_while_everybody_waits", || {
            run_case::<S>(async |subject: &S| ended_while_operations_wait(subject, End::Abandoned).await);
        })
        .case("ending::runner_dropped_with_leases_out", || run_case::<S>(abandoned_with_leases_out))
        .case("ending::runner_dropped_in_the_middle_of_nothing", || run_case::<S>(abandoned_while_idle))
        .case("ending::runner_dropped_under_load", || run_case::<S>(abandoned_under_load))
}

/// Time limit for operations to return after the end. It is real time, long enough for a slow
/// machine.
const AT_ONCE: Duration = PATIENCE;
/// The value of all timeouts: an operation that ends earlier did not end by a timeout.
const FAR: Duration = Duration::from_secs(100_000);

/// Sets all timeouts far in the future, so no timeout ends an operation.
fn patient(shape: &mut Shape) {
    shape.connect_timeout = Some(FAR);
    shape.server_selection_timeout = FAR;
    shape.wait_queue_timeout = Some(FAR);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Abandoned,
}

impl End {
    fn come_to<S: Subject>(self, rig: &Rig<S>) {
        match self {
            Self::Closed => rig.core().close(),
            Self::Abandoned => rig.client.drop_runner(),
        }
    }

    /// Whether this end causes this error of a waiting operation.
    fn is_reported_by(self, error: &OperationError) -> bool {
        match self {
            Self::Closed => *error == OperationError::Closed || error.check_out() == Some(&CheckOutError::PoolClosed),
            Self::Abandoned => *error == OperationError::Abandoned,
        }
    }
}

/// The resource that operations wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// The server. The client has no count of these waiters, so the test only waits long enough for
    /// all of them to start; correctness does not depend on it.
    Server,
    Connection,
}

/// Asserts that the server sees every connection closed, and that later operations fail with the
/// error of this end.
async fn is_over<S: Subject>(rig: &Rig<S>, end: End) {
    eventually("the server has no connection", || rig.server.open_count() == 0).await;
    let later = match end {
        End::Closed => OperationError::Closed,
        End::Abandoned => OperationError::Abandoned,
    };
    let core = rig.core();
    within(AT_ONCE, "later operations fail", async {
        assert_eq!(refused(core.check_out(&SelectionRequest::WRITE, None).await), later);
        assert_eq!(refused(core.select_server(&SelectionRequest::WRITE, None).await.map(drop)), later);
        assert_eq!(refused(core.warm_up(&SelectionRequest::WRITE, Some(1), None).await), later);
        assert_eq!(refused(find(core, "one").await), later);
    })
    .await;
    rig.end().await;
}

/// Runs operations in each task until one fails, and checks the error. The end is triggered after
/// `TURN` successes of all tasks together.
async fn load<S: Subject>(subject: &S, end: End) {
    const TURN: u32 = 300;
    let rig = Rig::new(subject, patient);
    let tasks = S::LIMITS.waiters.min(64);
    let successes = Cell::new(0);
    let executor = LocalExecutor::new();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (core, successes, name) = (rig.core(), &successes, if task % 2 == 0 { "one" } else { "other" });
            executor.spawn(async move {
                loop {
                    match find(core, name).await {
                        Ok(found) => assert_eq!(found, name),
                        Err(error) => return error,
                    }
                    successes.set(successes.get() + 1);
                }
            })
        })
        .collect();
    executor
        .run(async {
            eventually("operations succeed", || successes.get() >= TURN).await;
            end.come_to(&rig);
            within(AT_ONCE, "every operation ends", async {
                for task in running {
                    let error = task.await;
                    assert!(end.is_reported_by(&error), "{error:?}");
                }
            })
            .await;
            is_over(&rig, end).await;
        })
        .await;
}

async fn closed_under_load<S: Subject>(subject: &S) {
    load(subject, End::Closed).await;
}

async fn abandoned_under_load<S: Subject>(subject: &S) {
    load(subject, End::Abandoned).await;
}

/// Operations wait for a connection in use, for a connection that is being established, and for the
/// pool to be filled. Operations of another client wait for the server.
async fn ended_while_operations_wait<S: Subject>(subject: &S, end: End) {
    let single = |shape: &mut Shape| {
        patient(shape);
        shape.max_pool_size = 1;
    };
    // Operations that wait for the server.
    let mut rig = Rig::new(subject, single);
    rig.end().await;
    rig.server.freeze();
    rig.renew(subject, single);
    waiting_ends(&rig, end, Awaited::Server).await;
    rig.server.thaw();
    is_over(&rig, end).await;
    // Operations that wait for a connection that is being established.
    rig.renew(subject, single);
    rig.known().await;
    rig.server.freeze();
    waiting_ends(&rig, end, Awaited::Connection).await;
    rig.server.thaw();
    is_over(&rig, end).await;
    // Operations that wait for a connection in use; the operation that holds it may finish.
    rig.renew(subject, single);
    let mut guard = rig.check_out().await;
    waiting_ends(&rig, end, Awaited::Connection).await;
    assert_eq!(find_by(&mut guard, "one").await.expect("it may finish"), "one");
    drop(guard);
    is_over(&rig, end).await;
}

/// The maximum number of operations waits; then the end is triggered.
async fn waiting_ends<S: Subject>(rig: &Rig<S>, end: End, awaited: Awaited) {
    // One waiter slot is for the task that waits for the pool to be filled.
    let tasks = (S::LIMITS.waiters - 1).min(32);
    let executor = LocalExecutor::new();
    let core = rig.core();
    let mut waiting: Vec<_> = (0..tasks).map(|_| executor.spawn(async { refused(ping(core).await) })).collect();
    // With a connection in use, the pool has one connection, and warm-up would return at once.
    if rig.counts().in_use == 0 {
        waiting.push(executor.spawn(async { refused(core.warm_up(&SelectionRequest::WRITE, Some(1), None).await) }));
    }
    executor
        .run(async {
            match awaited {
                Awaited::Server => drop(async_io::Timer::after(Duration::from_millis(5)).await),
                Awaited::Connection => eventually("all wait", || rig.counts().waiting == tasks).await,
            }
            end.come_to(rig);
            within(AT_ONCE, "every operation ends", async {
                for task in waiting {
                    let error = task.await;
                    assert!(end.is_reported_by(&error), "{error:?}");
                }
            })
            .await;
        })
        .await;
}

/// Leases continue to work, and their connections are closed at check-in (CMAP-37).
async fn closed_with_leases_out<S: Subject>(subject: &S) {
    leases_out(subject, End::Closed).await;
}

async fn abandoned_with_leases_out<S: Subject>(subject: &S) {
    leases_out(subject, End::Abandoned).await;
}

async fn leases_out<S: Subject>(subject: &S, end: End) {
    let leases = S::LIMITS.connections.min(3);
    let rig = Rig::new(subject, |shape| {
        patient(shape);
        shape.max_pool_size = leases;
    });
    let mut guards = Vec::new();
    for _ in 0..leases {
        guards.push(rig.check_out().await);
    }
    // One lease is in the middle of a command.
    let trickle = Fault::Trickle { gap: Duration::from_micros(200) };
    rig.server.inject(FaultRule::always(trickle).on_command("find"));
    let mut busy = guards.pop().expect("there is one");
    {
        let mut finding = core::pin::pin!(find_by(&mut busy, "one"));
        assert_eq!(futures_lite::future::poll_once(finding.as_mut()).await, None);
        end.come_to(&rig);
        eventually("it is closed", || rig.core().is_closed()).await;
        assert_eq!(within(AT_ONCE, "the reply arrives", finding).await.expect("it continues"), "one");
    }
    rig.server.clear_faults();
    eventually("only the leased connections are left", || rig.server.open_count() == leases as usize).await;
    for guard in &mut guards {
        assert_eq!(find_by(guard, "other").await.expect("they continue"), "other");
    }
    // The background work has ended, so the guard itself must enforce its deadline.
    rig.server.freeze();
    busy.set_deadline(Some(rig.core().runtime().now().saturating_add(Duration::from_millis(50))));
    assert_eq!(refused(ping_by(&mut busy).await), OperationError::Timeout);
    rig.server.thaw();
    drop(busy);
    while let Some(guard) = guards.pop() {
        drop(guard);
        eventually("it is closed when it is returned", || rig.server.open_count() == guards.len()).await;
    }
    is_over(&rig, end).await;
}

/// The runner is dropped while no operation waits; later operations fail without waiting.
async fn abandoned_while_idle<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, patient);
    rig.all_is_well().await;
    End::Abandoned.come_to(&rig);
    eventually("it is closed", || rig.core().is_closed()).await;
    is_over(&rig, End::Abandoned).await;
    // The runner is dropped right at the start, before any work was done.
    let mut rig = rig;
    rig.renew(subject, patient);
    End::Abandoned.come_to(&rig);
    let error = within(AT_ONCE, "it ends", find(rig.core(), "one")).await;
    // An operation that had started may have succeeded.
    assert!(error.as_ref().is_ok_and(|found| found == "one") || error == Err(OperationError::Abandoned), "{error:?}");
    eventually("it is closed", || rig.core().is_closed()).await;
    is_over(&rig, End::Abandoned).await;
}
