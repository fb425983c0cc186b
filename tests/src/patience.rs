//! Tests in real time: generous time limits, and polling for states that no event announces.

use async_io::Timer;
use core::fmt::Debug;
use core::time::Duration;
use futures_lite::FutureExt;
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
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "condition not met in time: {what}");
        Timer::after(Duration::from_millis(1)).await;
    }
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
