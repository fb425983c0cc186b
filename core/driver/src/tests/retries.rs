//! The pauses between the attempts of an operation.

use crate::overload_pause;
use core::time::Duration;

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
