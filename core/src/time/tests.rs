use super::*;
use core::fmt::Write as _;

/// Seconds, with at most three decimals.
#[test]
fn durations_are_displayed_in_seconds_with_at_most_three_decimals() {
    for (micros, expected) in [
        (0, "0 s"),
        (999, "0 s"),
        (1_000, "0.001 s"),
        (250_000, "0.25 s"),
        (3_000_000, "3 s"),
        (30_000_096, "30 s"),
        (30_001_999, "30.001 s"),
        (100_500_000, "100.5 s"),
    ] {
        let mut text = heapless::String::<32>::new();
        write!(text, "{}", Seconds(Duration::from_micros(micros))).expect("room");
        assert_eq!(text, expected);
    }
}
