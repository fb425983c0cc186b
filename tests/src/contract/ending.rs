//! How a client ends: it is closed, or nobody does its background work any more. Whoever waits is told at once; whoever has a connection may finish.

use super::rig::{Rig, find, find_by, ping, ping_by, within};
use super::{Client, Shape, Subject, run_case};
use crate::fake::{Fault, FaultRule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use async_executor::LocalExecutor;
use core::cell::Cell;
use core::time::Duration;
use poolhouse_core::pool::CheckOutError;
use poolhouse_driver::{OperationError, Runtime as _, Wanted};

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("ending::closed_under_load", || run_case::<S>(closed_under_load))
        .case("ending::closed_with_leases_out", || run_case::<S>(closed_with_leases_out))
        .case("ending::closed_while_everybody_waits", || {
            run_case::<S>(async |subject: &S| ended_while_everybody_waits(subject, End::Closed).await);
        })
        .case("ending::runner_dropped_while_everybody_waits", || {
            run_case::<S>(async |subject: &S| ended_while_everybody_waits(subject, End::Abandoned).await);
        })
        .case("ending::runner_dropped_with_leases_out", || run_case::<S>(abandoned_with_leases_out))
        .case("ending::runner_dropped_in_the_middle_of_nothing", || run_case::<S>(abandoned_while_idle))
        .case("ending::runner_dropped_under_load", || run_case::<S>(abandoned_under_load))
}

/// How long it may take that operations hear of the end; real time, for a machine that is slow.
const AT_ONCE: Duration = PATIENCE;
/// All time limits: whoever ends before did not wait for one.
const FAR: Duration = Duration::from_secs(100_000);

/// No limit comes to anybody's help.
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
            Self::Closed => rig.hub().close(),
            Self::Abandoned => rig.client.drop_runner(),
        }
    }

    /// Whether this is how operations fail that waited.
    fn is_told_by(self, error: &OperationError) -> bool {
        match self {
            Self::Closed => *error == OperationError::Closed || error.check_out() == Some(&CheckOutError::PoolClosed),
            Self::Abandoned => *error == OperationError::Abandoned,
        }
    }
}

/// What operations wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// How many do is not told; there is time for all of them to begin, which nothing depends on.
    Server,
    Connection,
}

/// The server sees every connection closed, and later operations are told why.
async fn is_over<S: Subject>(rig: &Rig<S>, end: End) {
    eventually("the server has no connection", || rig.server.open_count() == 0).await;
    let later = match end {
        End::Closed => OperationError::Closed,
        End::Abandoned => OperationError::Abandoned,
    };
    let hub = rig.hub();
    within(AT_ONCE, "later operations fail", async {
        assert_eq!(refused(hub.check_out(&Wanted::WRITE, None).await), later);
        assert_eq!(refused(hub.select_server(&Wanted::WRITE, None).await.map(drop)), later);
        assert_eq!(refused(hub.warm_up(&Wanted::WRITE, Some(1), None).await), later);
        assert_eq!(refused(find(hub, "one").await), later);
    })
    .await;
    rig.end().await;
}

/// Operations that go on until one fails, and how it does. At `turn` successes in all the end comes.
async fn load<S: Subject>(subject: &S, end: End) {
    const TURN: u32 = 300;
    let rig = Rig::new(subject, patient);
    let tasks = S::LIMITS.waiters.min(64);
    let successes = Cell::new(0);
    let executor = LocalExecutor::new();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (hub, successes, name) = (rig.hub(), &successes, if task % 2 == 0 { "one" } else { "other" });
            executor.spawn(async move {
                loop {
                    match find(hub, name).await {
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
                    assert!(end.is_told_by(&error), "{error:?}");
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

/// Some wait for a connection in use, some for one that is established, some for the pool to be filled; and of another client, for the server.
async fn ended_while_everybody_waits<S: Subject>(subject: &S, end: End) {
    let single = |shape: &mut Shape| {
        patient(shape);
        shape.max_pool_size = 1;
    };
    // For the server.
    let mut rig = Rig::new(subject, single);
    rig.end().await;
    rig.server.freeze();
    rig.renew(subject, single);
    waiting_ends(&rig, end, Awaited::Server).await;
    rig.server.thaw();
    is_over(&rig, end).await;
    // For a connection that is established.
    rig.renew(subject, single);
    rig.known().await;
    rig.server.freeze();
    waiting_ends(&rig, end, Awaited::Connection).await;
    rig.server.thaw();
    is_over(&rig, end).await;
    // For one that is in use, which may finish.
    rig.renew(subject, single);
    let mut guard = rig.check_out().await;
    waiting_ends(&rig, end, Awaited::Connection).await;
    assert_eq!(find_by(&mut guard, "one").await.expect("it may finish"), "one");
    drop(guard);
    is_over(&rig, end).await;
}

/// As many operations as there can be wait, until the end comes.
async fn waiting_ends<S: Subject>(rig: &Rig<S>, end: End, awaited: Awaited) {
    // One place is for the pool to be filled.
    let tasks = (S::LIMITS.waiters - 1).min(32);
    let executor = LocalExecutor::new();
    let hub = rig.hub();
    let mut waiting: Vec<_> = (0..tasks).map(|_| executor.spawn(async { refused(ping(hub).await) })).collect();
    // Unless there is one already, of which somebody has the use.
    if rig.counts().in_use == 0 {
        waiting.push(executor.spawn(async { refused(hub.warm_up(&Wanted::WRITE, Some(1), None).await) }));
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
                    assert!(end.is_told_by(&error), "{error:?}");
                }
            })
            .await;
        })
        .await;
}

/// They go on, and are closed when they are returned (CMAP-37).
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
    // One is in the middle of a command.
    let trickle = Fault::Trickle { gap: Duration::from_micros(200) };
    rig.server.inject(FaultRule::always(trickle).on_command("find"));
    let mut busy = guards.pop().expect("there is one");
    {
        let mut finding = core::pin::pin!(find_by(&mut busy, "one"));
        assert_eq!(futures_lite::future::poll_once(finding.as_mut()).await, None);
        end.come_to(&rig);
        eventually("it is closed", || rig.hub().is_closed()).await;
        assert_eq!(within(AT_ONCE, "the reply comes", finding).await.expect("it goes on"), "one");
    }
    rig.server.clear_faults();
    eventually("the leases are left", || rig.server.open_count() == leases as usize).await;
    for guard in &mut guards {
        assert_eq!(find_by(guard, "other").await.expect("they go on"), "other");
    }
    // Nobody else watches its time any more.
    rig.server.freeze();
    busy.set_deadline(Some(rig.hub().runtime().now().saturating_add(Duration::from_millis(50))));
    assert_eq!(refused(ping_by(&mut busy).await), OperationError::Timeout);
    rig.server.thaw();
    drop(busy);
    while let Some(guard) = guards.pop() {
        drop(guard);
        eventually("it is closed when it is returned", || rig.server.open_count() == guards.len()).await;
    }
    is_over(&rig, end).await;
}

/// Nobody waits; those who come later do not either.
async fn abandoned_while_idle<S: Subject>(subject: &S) {
    let rig = Rig::new(subject, patient);
    rig.all_is_well().await;
    End::Abandoned.come_to(&rig);
    eventually("it is closed", || rig.hub().is_closed()).await;
    is_over(&rig, End::Abandoned).await;
    // At the very beginning, before anything was done.
    let mut rig = rig;
    rig.renew(subject, patient);
    End::Abandoned.come_to(&rig);
    let error = within(AT_ONCE, "it ends", find(rig.hub(), "one")).await;
    // What was begun may have been done.
    assert!(error.as_ref().is_ok_and(|found| found == "one") || error == Err(OperationError::Abandoned), "{error:?}");
    eventually("it is closed", || rig.hub().is_closed()).await;
    is_over(&rig, End::Abandoned).await;
}
