//! The pauses between the attempts of an operation, and the error that it returns.

use super::*;
use crate::{RetryPolicy, overload_pause};
use poolhouse_core::selection::SelectionCriteria;
use poolhouse_wire::Labels;

#[test]
fn pause_is_random_below_a_limit_that_doubles_up_to_ten_seconds() {
    let limits_ms = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000];
    for (retry, limit_ms) in (1..).zip(limits_ms) {
        let limit = Duration::from_millis(limit_ms);
        assert_eq!(overload_pause(retry, 0), Duration::ZERO);
        assert_eq!(overload_pause(retry, 1 << 31), limit / 2, "{retry}");
        let longest = overload_pause(retry, u32::MAX);
        assert!(longest < limit && limit - longest < Duration::from_micros(3), "{retry}: {longest:?}");
    }
    assert_eq!(overload_pause(u32::MAX, 1 << 31), Duration::from_secs(5));
    assert_eq!(overload_pause(0, 1 << 31), Duration::from_millis(50));
}

/// Retryable Writes, on `NoWritesPerformed`: the first attempt may have written.
#[test]
fn attempt_that_has_written_nothing_hides_no_earlier_error() {
    let (_, core, _) = open();
    let refused = |code, labels| OperationError::Command { code, labels };
    let none = Labels::NO_WRITES_PERFORMED;
    let overload = Labels::SYSTEM_OVERLOADED_ERROR.union(Labels::RETRYABLE_ERROR).union(none);
    let first = refused(91, Labels::NONE);
    let begin = |deadline| {
        let mut attempts = core.attempts(SelectionCriteria::write(), deadline, RetryPolicy::DEFAULT);
        attempts.failed_and(first.clone(), true).expect("a second attempt");
        attempts
    };
    // The last attempt, after one in between.
    let mut attempts = begin(None);
    attempts.failed_and(refused(462, overload), false).expect("a third attempt");
    assert_eq!(attempts.failed_and(refused(462, overload), false), Err(first.clone()));
    let mut attempts = begin(None);
    attempts.failed_and(refused(462, overload), false).expect("a third attempt");
    let last = refused(11_000, Labels::NONE);
    assert_eq!(attempts.failed_and(last.clone(), false), Err(last), "it may have written");
    // An attempt that has sent nothing. Its error alone would allow the application another attempt.
    let unsent = OperationError::check_out_of("", CheckOutError::PoolCleared { cause: Some(Cause::Network) });
    assert!(unsent.is_retryable());
    assert_eq!(begin(None).failed_and(unsent, true), Err(first.clone()));
    // The pause would end after the deadline, which has passed.
    let mut attempts = begin(Some(Instant::ORIGIN));
    assert_eq!(attempts.failed_and(refused(462, overload), false), Err(first.clone()));
}

/// The entropy of the test is zero.
#[test]
fn operation_without_an_end_pauses_between_attempts_that_fail_at_once() {
    let (bench, core, _) = open();
    let made = AtomicU32::new(0);
    let mut operation = Box::pin(async {
        let mut attempts = core.attempts(SelectionCriteria::write(), Some(Instant::MAX), RetryPolicy::DEFAULT);
        loop {
            attempts.pause().await;
            made.fetch_add(1, Ordering::Relaxed);
            let cause = Some(Cause::Network);
            let failed = OperationError::check_out_of("", CheckOutError::PoolCleared { cause });
            attempts.failed_and(failed, true).expect("another attempt");
        }
    });
    for expected in 2..100 {
        for _ in 0..3 {
            let _: Poll<Infallible> = poll(&mut operation);
            assert_eq!(made.load(Ordering::Relaxed), expected, "the first retry has no pause, the others 1 ms");
        }
        bench.now.fetch_add(1_000_000, Ordering::Relaxed);
    }
}
