//! The end of a client, and of a server, while operations are in flight.

use super::bench::{Bench, Client, ping};
use super::model::{Depth, block_on, explore, join, poll, task};
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, PoolCounts};
use poolhouse_driver::{BaseRuntime as _, OperationError};

fn is_closed(error: &OperationError) -> bool {
    *error == OperationError::Closed || error.check_out() == Some(&CheckOutError::PoolClosed)
}

#[test]
#[doc(alias = "CMAP-38")]
fn close_ends_a_task_that_waits() {
    explore("close, and a task that waits", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let waiting = client.clone();
        block_on(async move {
            let guard = waiting.check_out().await.expect("there");
            let task = task(waiting.clone().ping());
            waiting.core.close();
            let error = join(task).expect_err("the connection was never returned");
            assert!(is_closed(&error), "{error:?}");
            drop(guard);
        });
        assert_eq!(client.counts(), PoolCounts::default());
        "closed"
    });
}

#[test]
fn close_during_a_check_out() {
    let outcomes = explore("close, and a task that pings", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let task = task(client.clone().ping());
        client.core.close();
        let pinged = join(task);
        assert_eq!(client.counts(), PoolCounts::default());
        match pinged {
            Ok(()) => "answered",
            Err(error) => {
                assert!(is_closed(&error), "{error:?}");
                "closed"
            }
        }
    });
    assert_eq!(outcomes, ["answered", "closed"]);
}

#[test]
fn close_during_check_outs() {
    let outcomes = explore("close, and two tasks that ping", Depth::Preemptions(4), || {
        let client = Client::new(Bench::new()).connected();
        let tasks = [task(client.clone().ping()), task(client.clone().ping())];
        client.core.close();
        let mut answered = 0;
        for task in tasks {
            match join(task) {
                Ok(()) => answered += 1,
                Err(error) => assert!(is_closed(&error), "{error:?}"),
            }
        }
        assert_eq!(client.counts(), PoolCounts::default());
        ["both closed", "one answered", "both answered"][answered]
    });
    assert_eq!(outcomes, ["both answered", "both closed", "one answered"]);
}

#[test]
fn close_ends_the_tasks_of_a_server() {
    explore("close, a worker and the clock of a pool", Depth::Preemptions(4), || {
        let client = Client::new(Bench::new()).connected();
        let tasks = [task(client.worker()), task(client.pool_clock())];
        client.core.close();
        tasks.into_iter().for_each(join);
        "ended"
    });
    explore("close, a monitor and the clock of monitors", Depth::Preemptions(4), || {
        let (client, check) = Client::new(Bench::new()).checked();
        let tasks = [task(check), task(client.clock())];
        client.core.close();
        tasks.into_iter().for_each(join);
        "ended"
    });
}

/// After the end of the client, the operation has its own timer.
#[test]
fn operation_ends_in_time_after_its_client_is_closed() {
    let outcomes = explore("close, and an operation with a deadline", Depth::All, || {
        let bench = Bench::new();
        let client = Client::new(bench.clone()).connected();
        let deadline = Some(bench.now().saturating_add(Duration::from_secs(1)));
        bench.mute();
        bench.let_time_fly(Duration::from_secs(10));
        let operation = client.clone();
        let operation = task(async move {
            let mut guard = operation.core.check_out_of(operation.server.clone(), None, deadline).await?;
            ping(&mut guard).await
        });
        client.core.close();
        let error = join(operation).expect_err("the peer does not answer");
        assert_eq!(client.counts(), PoolCounts::default());
        if error == OperationError::Timeout {
            return "timeout";
        }
        assert!(is_closed(&error), "{error:?}");
        "closed"
    });
    assert_eq!(outcomes, ["closed", "timeout"]);
}

/// The monitor's check exceeds its limit, which interrupts connections in use.
#[test]
#[doc(alias("CMAP-83", "CMAP-84"))]
fn operation_is_interrupted_when_a_check_times_out() {
    let outcomes = explore("a check times out, and an operation", Depth::AllInTime, || {
        let bench = Bench::new();
        let (client, mut check) = Client::new(bench.clone()).connected_and_check();
        let mut clock = client.clock();
        bench.mute();
        bench.advance(Duration::from_secs(10));
        assert!(poll(&mut clock).is_pending(), "a check is due");
        assert!(poll(&mut check).is_pending(), "the check is not answered");
        bench.let_time_fly(Duration::from_secs(10));
        let operation = client.clone();
        let operation = task(async move {
            let mut guard = operation.check_out().await?;
            ping(&mut guard).await
        });
        let clock = task(clock);
        let error = join(operation).expect_err("the peer does not answer");
        client.core.close();
        join(clock);
        assert_eq!(client.counts(), PoolCounts::default());
        if matches!(error, OperationError::Interrupted(_)) {
            return "interrupted";
        }
        assert!(matches!(error, OperationError::CheckOut(_)), "{error:?}");
        "before it was sent"
    });
    assert_eq!(outcomes, ["before it was sent", "interrupted"]);
}
