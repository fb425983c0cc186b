//! Tests in real time: generous time limits, waits for events, polling for states that no event announces, and
//! [`Stopwatch`] for upper bounds.

#[cfg(test)]
mod tests;

use async_io::Timer;
use core::fmt::Debug;
use core::time::Duration;
use futures_lite::FutureExt;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_driver::{Event, Notice, Subscription};
#[cfg(feature = "contract")]
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::thread;
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

/// The operating system's words for a connection that is refused.
#[cfg(feature = "contract")]
#[must_use]
pub fn connection_refused() -> String {
    std::io::Error::from(rustix::io::Errno::CONNREFUSED).to_string()
}

/// Returns the error of an operation that must fail.
pub fn refused<T: Debug, E>(result: Result<T, E>) -> E {
    match result {
        Ok(value) => panic!("the operation succeeded: {value:?}"),
        Err(error) => error,
    }
}

/// The time since a start, without the time in which the machine stalled this process.
///
/// A thread sleeps for 2 ms again and again. The machine has stalled while a sleep of it ended later than by
/// another tick.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Stopwatch {
    begun: Instant,
    stalled_before: Duration,
}

/// Longer than the lateness of a sleep on a machine with an idle processor.
const TICK: Duration = Duration::from_millis(2);

/// The stalls since the first stopwatch.
static STALLS: Mutex<Option<Stalls>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
struct Stalls {
    /// The end of the current sleep.
    due: Instant,
    /// The sum of the stalls before it.
    total: Duration,
}

impl Stalls {
    /// The sum with the current stall.
    fn until(self, now: Instant) -> Duration {
        let late = now.saturating_duration_since(self.due);
        self.total + if late > TICK { late } else { Duration::ZERO }
    }
}

/// The sum of the stalls until now.
fn stalled() -> Duration {
    let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    if stalls.is_none() {
        thread::spawn(measure_stalls);
    }
    stalls.get_or_insert(Stalls { due: now + TICK, total: Duration::ZERO }).until(now)
}

/// Measures for as long as the process lives.
fn measure_stalls() {
    loop {
        thread::sleep(TICK);
        if let Some(stalls) = &mut *STALLS.lock().unwrap_or_else(PoisonError::into_inner) {
            let now = Instant::now();
            *stalls = Stalls { due: now + TICK, total: stalls.until(now) };
        }
    }
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self { stalled_before: stalled(), begun: Instant::now() }
    }

    /// How long the machine has stalled since the start.
    #[must_use]
    pub fn stalled(&self) -> Duration {
        stalled().saturating_sub(self.stalled_before)
    }

    /// The time since the start without the stalls.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.stalled())
    }

    /// Checks that less than this time has passed.
    ///
    /// # Panics
    ///
    /// If as much has passed.
    #[track_caller]
    pub fn assert_below(&self, limit: Duration) {
        let (elapsed, stalled) = (self.elapsed(), self.stalled());
        assert!(elapsed < limit, "{elapsed:?}, and {stalled:?} in which the machine stalled; the limit is {limit:?}");
    }
}
