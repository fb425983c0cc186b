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
    for _ in 0..10 {
        tally.add(Ok(()), Duration::from_micros(5));
    }
    tally.add(Err("lost".to_owned()), Duration::from_secs(1));
    assert_eq!((tally.totals.failed, tally.last_succeeded, tally.last_error.as_deref()), (1, false, Some("lost")));
    let sample = tally.sample(Duration::from_millis(250));
    assert_eq!(sample, Sample { rate: 40, p50_us: 5, p99_us: 5, failover: false });
    assert_eq!(tally.sample(Duration::from_millis(250)), Sample::default());
}
