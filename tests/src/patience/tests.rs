use super::*;

#[test]
fn sleep_that_ends_late_is_a_stall() {
    let due = Instant::now();
    let stalls = Stalls { due, total: TICK };
    assert_eq!(stalls.until(due - TICK), TICK);
    assert_eq!(stalls.until(due + TICK), TICK, "as on a machine with an idle processor");
    assert_eq!(stalls.until(due + TICK * 5), TICK * 6);
}

#[test]
fn time_is_that_of_the_clock_without_the_stalls() {
    let (watch, begun) = (Stopwatch::start(), Instant::now());
    thread::sleep(Duration::from_millis(50));
    let stalled = watch.stalled();
    let elapsed = watch.elapsed();
    assert!(elapsed <= begun.elapsed(), "{elapsed:?}");
    assert!(elapsed + watch.stalled() >= Duration::from_millis(50), "{elapsed:?}, {stalled:?}");
    watch.assert_below(Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "the limit is 50ms")]
fn time_beyond_the_limit_is_refused() {
    let watch = Stopwatch::start();
    // As much time without a stall.
    while watch.elapsed() < Duration::from_millis(50) {
        thread::sleep(Duration::from_millis(1));
    }
    watch.assert_below(Duration::from_millis(50));
}
