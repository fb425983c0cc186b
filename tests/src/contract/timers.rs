//! The clock and its timers: never early, in order, as far away as there is, and gone when they are dropped.

use super::{Subject, run_case};
use crate::suite::Suite;
use core::time::Duration;
use poolhouse_core::shell::Runtime;

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite.case("timers::never_ring_early", || run_case::<S>(never_ring_early))
}

async fn never_ring_early<S: Subject>(subject: &S) {
    let runtime = subject.runtime();
    let at = runtime.now().saturating_add(Duration::from_millis(20));
    runtime.sleep_until(at).await;
    assert!(runtime.now() >= at);
}
