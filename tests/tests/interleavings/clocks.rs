//! Deadlines that are set while a clock task goes to sleep. Time advances only by sleeping, so a
//! clock task that misses a deadline is detected.

use super::bench::{Bench, Client, ping};
use super::model::{Depth, block_on, explore, join, poll_once, task};
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use poolhouse_core::pool::{CheckOutError, PoolCounts, PoolOptions};
use poolhouse_driver::{BaseRuntime as _, OperationError};

const SECOND: Duration = Duration::from_secs(1);

#[test]
#[doc(alias = "CMAP-25")]
fn task_does_not_wait_for_a_connection_beyond_its_limit() {
    explore("the clock of a pool, and a task that waits", Depth::Preemptions(4), || {
        let bench = Bench::new();
        let options = PoolOptions { max_pool_size: 1, wait_queue_timeout: Some(SECOND), ..PoolOptions::DEFAULT };
        let client = Client::with(bench.clone(), |config| config.pool = options.validate().expect("valid")).connected();
        bench.let_time_fly(3 * SECOND);
        let held = client.clone();
        block_on(async move {
            let guard = held.check_out().await.expect("there");
            let begun = bench.now();
            let clock = task(held.pool_clock());
            let waiting = held.clone();
            let waiting = task(async move {
                // It is dropped at once, so the clock may be woken without need. Its limit may have
                // passed between its two locks.
                if let Poll::Ready(first) = poll_once(waiting.check_out()).await {
                    let error = first.map(drop).expect_err("the connection is in use");
                    assert!(matches!(error.check_out(), Some(CheckOutError::WaitQueueTimeout { .. })), "{error:?}");
                }
                waiting.check_out().await.map(drop)
            });
            let error = join(waiting).expect_err("the connection is not returned");
            assert!(matches!(error.check_out(), Some(CheckOutError::WaitQueueTimeout { .. })), "{error:?}");
            // The first one's limit may have passed before the second one began.
            let waited = bench.now().saturating_since(begun);
            assert!(waited == SECOND || waited == 2 * SECOND, "{waited:?}");
            drop(guard);
            held.core.close();
            join(clock);
        });
        "timeout"
    });
}

/// Neither the pool nor a stream enforces its limit, only the clock of the pool.
#[test]
fn operation_ends_at_its_limit() {
    explore("the clock of a pool, and an operation", Depth::Preemptions(4), || {
        let bench = Bench::new();
        let client = Client::new(bench.clone()).connected();
        bench.mute();
        bench.let_time_fly(SECOND);
        let deadline = bench.now().saturating_add(SECOND);
        let clock = task(client.pool_clock());
        let operation = client.clone();
        let operation = task(async move {
            let mut guard = operation.core.check_out_of(operation.server.clone(), None, Some(deadline)).await?;
            ping(&mut guard).await
        });
        assert_eq!(join(operation), Err(OperationError::Timeout));
        assert_eq!(bench.now(), deadline);
        assert_eq!(client.counts(), PoolCounts::default());
        client.core.close();
        join(clock);
        "timeout"
    });
}

/// A check is requested earlier than the clock's deadline, while the clock goes to sleep.
#[test]
#[doc(alias = "MON-15")]
fn server_is_checked_as_soon_as_requested() {
    explore("the clock of monitors, a monitor, and a task that requests a check", Depth::Preemptions(4), || {
        let bench = Bench::new();
        let (client, mut check) = Client::new(bench.clone()).checked();
        // Shorter than the time until the next scheduled check.
        bench.let_time_fly(SECOND);
        let clock = task(client.clock());
        let checks = bench.clone();
        let check = task(poll_fn(move |context| {
            assert!(check.as_mut().poll(context).is_pending(), "the monitor does not end");
            if checks.hello_count() < 2 { Poll::Pending } else { Poll::Ready(()) }
        }));
        client.core.request_check();
        join(check);
        client.core.close();
        join(clock);
        "checked"
    });
}
