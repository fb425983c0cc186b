//! Time limits of operations. The clock task of the server's pool keeps them: while it runs, no
//! operation has a separate timer.

extern crate alloc;

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use poolhouse_smol::poolhouse_driver::OperationError;
use poolhouse_smol::{Client, ClientOptions, Connection, Error, ServerMonitoringMode};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer};
use poolhouse_tests::lateness::Lateness;
use poolhouse_tests::patience::eventually;
use smol::Task;
use smol::future::FutureExt;
use std::thread;
use std::time::Instant;

/// Longer than any limit of these tests, and longer than any of them may take.
const BLOCKED: Duration = Duration::from_secs(60);

fn run<T>(test: impl Future<Output = T>) -> T {
    let limit = async {
        smol::Timer::after(BLOCKED / 2).await;
        panic!("the test hangs");
    };
    smol::block_on(test.or(limit))
}

/// A server that delays its answers to pings for long.
fn silent_server() -> FakeServer {
    let server = FakeServer::start(FakeOptions::default()).expect("the fake server starts");
    server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(BLOCKED));
    server
}

fn client(server: &FakeServer) -> Client {
    let mut options = ClientOptions::new(server.address().to_string());
    options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
    Client::with_options(options).expect("the options are right")
}

/// Establishes connections beforehand: a check-out under test that waits would arm the clock.
async fn warm(client: &Client, connections: usize) {
    let mut guards = Vec::new();
    for _ in 0..connections {
        guards.push(client.check_out_timeout(None).await.expect("a connection"));
    }
}

async fn check_out(client: &Client, limit: Duration) -> Connection<'_> {
    client.check_out_timeout(Some(limit)).await.expect("a connection")
}

/// Pings until the guard's limit. Returns the error, if any, and its time.
async fn ping(guard: &mut Connection<'_>) -> (Option<OperationError>, Instant) {
    let error = guard.run_command("admin", bson::doc! { "ping": 1 }).await.err();
    let error = error.map(|error| {
        let Error::Operation(error, _) = error else { panic!("another error: {error}") };
        error
    });
    (error, Instant::now())
}

/// Spawns a task with an operation that ends at its limit. The task returns the time at which the
/// operation was due to end, and the time at which it ended.
fn time_out_after(client: &Client, limit: Duration) -> Task<(Instant, Instant)> {
    let client = client.clone();
    smol::spawn(async move {
        let begun = Instant::now();
        let mut guard = check_out(&client, limit).await;
        let (error, ended) = ping(&mut guard).await;
        assert_eq!(error, Some(OperationError::Timeout));
        assert!(ended - begun >= limit, "{:?} of {limit:?}", ended - begun);
        (begun + limit, ended)
    })
}

/// B1: operations end in the order of their limits. A timer of the bare runtime is due between each
/// limit and the next one. If it fired in time, the machine did not stall, and the operation with
/// the shorter limit must have ended first.
#[test]
fn each_operation_ends_at_its_own_limit_in_any_order() {
    const GAP: Duration = Duration::from_millis(200);
    const ROUNDS_MAX: u32 = 10;
    let server = silent_server();
    let client = client(&server);
    run(async {
        // The clock first sleeps until the longest limit, and must wake for each shorter one. Each
        // operation begins after the previous one is at the server.
        let order: [u32; 5] = [5, 3, 1, 2, 4];
        let mut judged = BTreeSet::new();
        let mut rounds = 0;
        'rounds: while judged.len() < 4 {
            rounds += 1;
            assert!(rounds <= ROUNDS_MAX, "the machine stalled in each round; judged: {judged:?}");
            warm(&client, order.len()).await;
            let begun = Instant::now();
            let due = |place: u32| begun + GAP * (place + 1);
            let alive: Vec<_> = (1..5)
                .map(|place| {
                    let timer = smol::Timer::at(due(place) + GAP / 2);
                    let next = due(place + 1);
                    smol::spawn(async move { (timer.await, Instant::now()).1 < next })
                })
                .collect();
            let pings = || server.look(|view| view.count_of("ping"));
            let (mut tasks, mut expected) = (BTreeMap::new(), pings());
            for place in order {
                let limit = due(place).saturating_duration_since(Instant::now());
                if limit < GAP {
                    continue 'rounds;
                }
                let task = time_out_after(&client, limit);
                expected += 1;
                eventually("the operation reaches the server", || task.is_finished() || pings() >= expected).await;
                // On a machine that stalls, the limit may pass before the ping is sent.
                if task.is_finished() {
                    task.await;
                    continue 'rounds;
                }
                tasks.insert(place, task);
            }
            let mut ends = Vec::new();
            for (_, task) in tasks {
                ends.push(task.await);
            }
            for ((place, alive), pair) in (1_u32..).zip(alive).zip(ends.windows(2)) {
                let [(due, ended), (due_next, ended_next)] = pair else { unreachable!("two at a time") };
                // Each operation begins in a separate task. A stalled machine may have started that
                // task late.
                if alive.await && *due + GAP / 2 < *due_next {
                    assert!(
                        ended < ended_next,
                        "the operation with limit {place} of 5 ended after the next one: {ends:?}"
                    );
                    judged.insert(place);
                }
            }
        }
    });
}

/// P19, B1: the lateness of operations after their limits is bounded, in the median and in the 99th
/// percentile.
#[test]
fn operations_end_soon_after_their_limits() {
    // As many as a pool holds by default.
    const COUNT: usize = 100;
    let server = silent_server();
    let client = client(&server);
    run(async {
        warm(&client, COUNT).await;
        // The limits are neither in ascending nor in descending order.
        let limits: Vec<_> = (0..COUNT).map(|n| Duration::from_millis(200 + (n * 37 % COUNT) as u64 * 5)).collect();
        let begun = Instant::now();
        let operations: Vec<_> = limits.iter().map(|limit| time_out_after(&client, *limit)).collect();
        let due: Vec<_> = limits.iter().map(|limit| begun + *limit).collect();
        let machine = thread::spawn(move || Lateness::of_machine(&due));
        let mut late = Vec::new();
        for operation in operations {
            let (due, ended) = operation.await;
            late.push(ended.saturating_duration_since(due));
        }
        let machine = machine.join().expect("the machine is measured");
        Lateness::of(late).assert_small("operations", machine);
    });
}

#[test]
fn a_long_limit_does_not_delay_a_short_one() {
    let server = silent_server();
    let client = client(&server);
    run(async {
        warm(&client, 2).await;
        let mut long = check_out(&client, BLOCKED).await;
        let mut short = check_out(&client, Duration::from_millis(100)).await;
        let patient = async {
            ping(&mut long).await;
            panic!("it has all the time");
        };
        let (error, _) = patient.or(ping(&mut short)).await;
        assert_eq!(error, Some(OperationError::Timeout));
    });
}

/// Connections in use outlive the pool; the pool's clock does not.
#[test]
#[doc(alias = "CMAP-37")]
fn operation_ends_at_its_limit_also_after_the_client_was_closed() {
    let server = silent_server();
    let client = client(&server);
    run(async {
        warm(&client, 1).await;
        let limit = Duration::from_secs(5);
        let begun = Instant::now();
        // A separate task, which only the operation wakes.
        let operation = smol::spawn({
            let client = client.clone();
            async move { ping(&mut check_out(&client, limit).await).await }
        });
        server.wait_until(BLOCKED / 2, |view| view.count_of("ping") == 1).expect("it is sent");
        client.close().await;
        let closed = Instant::now();
        let (error, ended) = operation.await;
        assert_eq!(error, Some(OperationError::Timeout));
        assert!(ended - begun >= limit);
        assert!(closed < ended, "closing waits for no operation");
    });
}

#[test]
fn operation_that_begins_after_the_client_was_closed_has_its_limit() {
    let server = silent_server();
    let client = client(&server);
    run(async {
        let limit = Duration::from_millis(300);
        warm(&client, 1).await;
        let begun = Instant::now();
        let mut guard = check_out(&client, limit).await;
        client.close().await;
        let (error, ended) = ping(&mut guard).await;
        assert_eq!(error, Some(OperationError::Timeout));
        assert!(ended - begun >= limit);
    });
}

#[test]
fn limit_that_passed_between_commands_does_not_affect_the_next() {
    let server = silent_server();
    let client = client(&server);
    server.set_fail_point(FailPoint::new(FailPointMode::Off, &["ping"]));
    run(async {
        let limit = Duration::from_millis(800);
        warm(&client, 1).await;
        let mut guard = check_out(&client, limit).await;
        // The clock is armed for this limit, which passes while no operation is in flight.
        assert_eq!(ping(&mut guard).await.0, None);
        smol::Timer::after(limit * 2).await;
        let again = client.now().saturating_add(BLOCKED);
        guard.raw().set_deadline(Some(again));
        assert_eq!(ping(&mut guard).await.0, None);
        guard.raw().set_deadline(Some(client.now().saturating_add(limit)));
        server.set_fail_point(FailPoint::new(FailPointMode::AlwaysOn, &["ping"]).block(BLOCKED));
        assert_eq!(ping(&mut guard).await.0, Some(OperationError::Timeout));
    });
}
