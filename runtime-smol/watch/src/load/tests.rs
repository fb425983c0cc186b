use super::*;

#[test]
fn quantiles_are_values_that_were_measured() {
    let mut values: Vec<u64> = (1..=200).rev().collect();
    assert_eq!((quantile(&mut values, 50), quantile(&mut values, 99)), (100, 198));
    assert_eq!((quantile(&mut [7], 50), quantile(&mut [7], 99), quantile(&mut [], 99)), (7, 7, 0));
}

#[test]
fn sample_has_the_operations_since_the_last_one() {
    let mut tally = Tally::default();
    tally.totals.succeeded = 10;
    tally.latencies_us = vec![5; 10];
    let sample = tally.sample(Duration::from_millis(250));
    assert_eq!(sample, Sample { rate: 40, p50_us: 5, p99_us: 5, failover: false });
    assert_eq!(tally.sample(Duration::from_millis(250)), Sample::default());
}
