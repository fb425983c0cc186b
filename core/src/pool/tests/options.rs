//! Options and their limits.

use super::*;
use alloc::string::ToString;

#[test]
#[doc(alias("CMAP-01", "CMAP-03", "CMAP-04", "CMAP-05", "CMAP-06"))]
fn defaults_are_those_of_the_specification() {
    let PoolOptions {
        max_pool_size,
        min_pool_size,
        max_idle_time,
        max_connecting,
        wait_queue_timeout,
        limits_establishing,
        load_balanced,
        reuse,
        background: _,
    } = PoolOptions::default();
    assert_eq!((max_pool_size, min_pool_size, max_connecting), (100, 0, 2));
    assert_eq!((max_idle_time, wait_queue_timeout), (None, None));
    assert!(!limits_establishing && !load_balanced && reuse == Reuse::Newest);
    assert_eq!(*PoolConfig::default().options(), PoolOptions::DEFAULT);
}

#[test]
#[doc(alias = "CMAP-01")]
fn no_more_connections_than_max_pool_size() {
    on_each_memory!(PoolOptions { max_pool_size: 3, max_connecting: 8, ..DEFAULT }, |rig| {
        rig.ready();
        for _ in 0..5 {
            rig.queue();
        }
        assert_eq!(rig.counts(), [3, 0, 0, 5]);
    });
}

#[test]
#[doc(alias = "CMAP-02")]
fn max_pool_size_zero_is_no_limit() {
    let mut rig = Rig::<OnHeap>::new(PoolOptions { max_pool_size: 0, max_connecting: 1_000, ..DEFAULT });
    rig.ready();
    for _ in 0..500 {
        rig.queue();
    }
    assert_eq!(rig.counts(), [500, 0, 0, 500]);
}

#[test]
#[doc(alias("CMAP-02", "CMAP-03"))]
fn min_pool_size_may_be_anything_below_no_limit() {
    let options = PoolOptions { max_pool_size: 0, min_pool_size: 1_000_000, ..DEFAULT };
    assert!(options.validate().is_ok());
}

#[test]
#[doc(alias = "CMAP-03")]
fn min_pool_size_above_max_pool_size_is_refused_by_name_value_and_rule() {
    let error = PoolOptions { max_pool_size: 4, min_pool_size: 5, ..DEFAULT }.validate().expect_err("refused");
    assert_eq!((error.option(), error.value(), error.rule()), ("minPoolSize", 5, "be at most maxPoolSize"));
    assert_eq!(error.to_string(), "minPoolSize is 5, but must be at most maxPoolSize");
    assert!(PoolOptions { max_pool_size: 4, min_pool_size: 4, ..DEFAULT }.validate().is_ok());
}

#[test]
#[doc(alias = "CMAP-05")]
fn max_connecting_zero_is_refused_by_name_value_and_rule() {
    let error = PoolOptions { max_connecting: 0, ..DEFAULT }.validate().expect_err("refused");
    assert_eq!((error.option(), error.value(), error.rule()), ("maxConnecting", 0, "be at least 1"));
}

#[test]
#[doc(alias = "CMAP-03")]
fn a_bad_option_fails_a_constant_and_a_good_one_makes_a_config() {
    const CONFIG: Result<PoolConfig, crate::ConfigError> = PoolOptions { max_pool_size: 4, ..DEFAULT }.validate();
    assert_eq!(CONFIG.map(|config| config.options().max_pool_size), Ok(4));
}

#[test]
#[doc(alias = "CMAP-07")]
fn one_config_serves_every_pool_of_a_client() {
    let config = PoolOptions { max_pool_size: 4, ..DEFAULT }.validate().expect("valid");
    let one = Pool::<OnHeap>::new(Instant::ORIGIN, PoolId::new(1), config, &mut ());
    let other = Pool::<Fixed<4, 4>>::new(Instant::ORIGIN, PoolId::new(2), config, &mut ());
    assert_eq!(one.config(), other.config());
}

#[test]
#[doc(alias = "CMAP-102")]
fn options_that_differ_from_their_defaults_are_listed_and_no_other() {
    assert_eq!(DEFAULT.non_default().count(), 0);
    let some = PoolOptions { max_pool_size: 10, wait_queue_timeout: Some(ms(50)), ..DEFAULT };
    assert_eq!(some.non_default().collect::<Vec<_>>(), [("maxPoolSize", 10), ("waitQueueTimeoutMS", 50)]);
    let all = PoolOptions {
        max_pool_size: 0,
        min_pool_size: 1,
        max_idle_time: Some(ms(2)),
        max_connecting: 3,
        wait_queue_timeout: Some(ms(4)),
        ..DEFAULT
    };
    let all: Vec<_> = all.non_default().collect();
    let expected =
        [("maxPoolSize", 0), ("minPoolSize", 1), ("maxIdleTimeMS", 2), ("maxConnecting", 3), ("waitQueueTimeoutMS", 4)];
    assert_eq!(all, expected, "neither waitQueueSize nor waitQueueMultiple exists");
    let short = Duration::from_micros(500);
    let short = PoolOptions { max_idle_time: Some(short), wait_queue_timeout: Some(Duration::ZERO), ..DEFAULT };
    let short: Vec<_> = short.non_default().collect();
    assert_eq!(short, [("maxIdleTimeMS", 1)], "zero is no limit");
}

#[test]
#[doc(alias("CMAP-22", "CMAP-29"))]
fn a_pool_can_be_shared_behind_any_lock() {
    fn shareable<T: Send + Sync + 'static>() {}
    shareable::<Pool<OnHeap>>();
    shareable::<Pool<Fixed<8, 8, 4>>>();
    shareable::<Lease>();
}
