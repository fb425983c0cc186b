//! Tests in real time: generous time limits, waits for events, and polling for states that no event announces.

use async_io::Timer;
use core::fmt::Debug;
use core::time::Duration;
use futures_lite::FutureExt;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_driver::{Event, Notice, Subscription};
#[cfg(feature = "contract")]
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// Time limit of waits; much longer than any needs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on this thread.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let limit = async {
        Timer::after(Duration::from_secs(240)).await;
        panic!("the test exceeded its time limit");
    };
    async_io::block_on(test.or(limit))
}

/// Waits for a state that no event announces, checked every millisecond.
pub async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(is_met(condition).await, "condition not met in time: {what}");
}

/// [`eventually`], with a state that a failure shows.
pub async fn eventually_showing(what: &str, condition: impl FnMut() -> bool, state: impl FnOnce() -> String) {
    assert!(is_met(condition).await, "condition not met in time: {what}: {}", state());
}

async fn is_met(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        Timer::after(Duration::from_millis(1)).await;
    }
    true
}

/// The next event that is wanted, and its time. A failure shows the events before it.
pub async fn next_event(
    events: &mut Subscription,
    limit: Duration,
    what: &str,
    mut wanted: impl FnMut(&Event) -> bool,
) -> (poolhouse_core::Instant, Event) {
    let mut seen = Vec::new();
    let begun = Instant::now();
    loop {
        let late = async {
            Timer::after(limit.saturating_sub(begun.elapsed())).await;
            None
        };
        match async { Some(events.next().await) }.or(late).await {
            Some(Some(Notice::Event { at, event })) => {
                if wanted(&event) {
                    return (at, event);
                }
                seen.push(event.to_string());
            }
            Some(Some(Notice::Lagged { count })) => panic!("{count} events were lost before {what}"),
            Some(None) => panic!("the subscription ended before {what}: {seen:#?}"),
            None => panic!("never seen: {what}: {seen:#?}"),
        }
    }
}

/// [`next_event`] for events of a cluster.
pub async fn cluster_event(
    events: &mut Subscription,
    limit: Duration,
    what: &str,
    wanted: impl Fn(ClusterEvent) -> bool,
) -> ClusterEvent {
    let is_wanted = |event: &Event| matches!(event, Event::Cluster(event) if wanted(*event));
    let (_, Event::Cluster(event)) = next_event(events, limit, what, is_wanted).await else {
        unreachable!("no other is wanted");
    };
    event
}

/// The processor time that this thread has used. Load of the machine adds nothing to it.
#[cfg(feature = "contract")]
#[must_use]
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Returns the error of an operation that must fail.
pub fn refused<T: Debug, E>(result: Result<T, E>) -> E {
    match result {
        Ok(value) => panic!("the operation succeeded: {value:?}"),
        Err(error) => error,
    }
}
