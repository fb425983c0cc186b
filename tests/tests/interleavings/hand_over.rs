//! Connections that are handed from one task to another.

use super::bench::{Bench, Client, ping};
use super::model::{Boxed, Depth, block_on, explore, join, poll, poll_once, task};
use alloc::sync::Arc;
use alloc::task::Wake;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use poolhouse_core::pool::PoolCounts;

/// Nothing is in use, and no waiter exists.
const AT_REST: PoolCounts = PoolCounts { pending: 0, available: 1, in_use: 0, waiting: 0 };

#[test]
#[doc(alias = "CMAP-29")]
fn two_tasks_share_the_one_connection() {
    explore("two tasks ping over one connection", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let tasks = [task(client.clone().ping()), task(client.clone().ping())];
        for task in tasks {
            assert_eq!(join(task), Ok(()));
        }
        assert_eq!(client.counts(), AT_REST);
        "both"
    });
}

/// A check-out that is started, polled once and dropped in any state.
async fn give_up(client: Client) -> &'static str {
    match poll_once(client.check_out()).await {
        Poll::Ready(granted) => {
            drop(granted.expect("a connection"));
            "granted at once"
        }
        Poll::Pending => "waited",
    }
}

#[test]
fn connection_is_handed_over_when_a_waiter_is_dropped() {
    let outcomes = explore("one of two waiters is dropped", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let (other, quitter) = (task(client.clone().ping()), task(give_up(client.clone())));
        assert_eq!(join(other), Ok(()));
        let outcome = join(quitter);
        assert_eq!(client.counts(), AT_REST);
        outcome
    });
    assert_eq!(outcomes, ["granted at once", "waited"]);
}

/// A connection that was granted to a dropped waiter is handed to the other task.
#[test]
fn connection_is_handed_over_when_a_waiter_is_dropped_during_the_return() {
    let outcomes =
        explore("one of two waiters is dropped while a third task returns the connection", Depth::AllInTime, || {
            let client = Client::new(Bench::new()).connected();
            let (other, quitter) = {
                let client = client.clone();
                block_on(async move {
                    let guard = client.check_out().await.expect("there");
                    let tasks = (task(client.clone().ping()), task(give_up(client.clone())));
                    drop(guard);
                    tasks
                })
            };
            assert_eq!(join(other), Ok(()));
            let outcome = join(quitter);
            assert_eq!(client.counts(), AT_REST);
            outcome
        });
    assert_eq!(outcomes, ["granted at once", "waited"]);
}

/// The waker of its first executor has no effect any more.
#[test]
fn connection_is_granted_to_a_task_that_has_moved() {
    explore("a task that waits moves to another executor", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        block_on(async move {
            let guard = client.check_out().await.expect("there");
            let waiting = client.clone();
            let mut waiting: Boxed<_> = Box::pin(async move { waiting.check_out().await.map(drop) });
            assert!(poll(&mut waiting).is_pending());
            let waiting = task(waiting);
            drop(guard);
            assert_eq!(join(waiting), Ok(()));
            assert_eq!(client.counts(), AT_REST);
        });
        "moved"
    });
}

/// A waker with a count of its clones.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Also if the connection is granted while the waker is cloned.
#[test]
fn wait_that_has_ended_leaves_no_waker() {
    let outcomes = explore("a task polls a check-out while another uses the connection", Depth::All, || {
        let client = Client::new(Bench::new()).connected();
        let (other, waiting) = (task(client.clone().ping()), client.clone());
        let mut waiting: Boxed<_> = Box::pin(async move { waiting.check_out().await.map(drop) });
        let counted = Arc::new(Counted);
        let waker = Waker::from(Arc::clone(&counted));
        let mut poll = || waiting.as_mut().poll(&mut Context::from_waker(&waker));
        let outcome = match poll() {
            Poll::Ready(_) => "granted at once",
            Poll::Pending if poll().is_ready() => "granted later",
            Poll::Pending => "dropped",
        };
        assert_eq!(join(other), Ok(()));
        drop(waiting);
        assert_eq!(Arc::strong_count(&counted), 2, "a waker is left");
        assert_eq!(client.counts(), AT_REST);
        outcome
    });
    assert_eq!(outcomes, ["dropped", "granted at once", "granted later"]);
}

/// The clock task takes over the connection, reads the late reply, and checks the connection in;
/// the waiter then receives it.
#[test]
fn connection_with_a_late_reply_is_granted_to_the_waiter() {
    explore("a late reply", Depth::Preemptions(4), || {
        let bench = Bench::new();
        let client = Client::with(bench.clone(), |config| config.drain_timeout = Duration::from_secs(1)).connected();
        bench.hold();
        let mut clock = client.pool_clock();
        assert!(poll(&mut clock).is_pending(), "the clock task reads late replies from now on");
        let clock = task(clock);
        let quitter = client.clone();
        let other = block_on(async move {
            let mut guard = quitter.check_out().await.expect("there");
            assert!(poll_once(ping(&mut guard)).await.is_pending());
            let other = quitter.clone();
            let other = task(async move { other.check_out().await.map(drop) });
            drop(guard);
            other
        });
        bench.release();
        assert_eq!(join(other), Ok(()));
        assert_eq!(client.counts(), AT_REST);
        client.core.close();
        join(clock);
        "kept"
    });
}
