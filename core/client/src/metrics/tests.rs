use super::*;
use ::metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, with_local_recorder};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use poolhouse_core::Cause;
use poolhouse_core::pool::{CheckOut, Claim, Health, Lease, OnHeap, Pool, PoolId, WaiterId};
use std::sync::Mutex;

/// A recorder that keeps all values of each series.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    values: BTreeMap<String, Vec<f64>>,
    units: BTreeMap<String, Option<Unit>>,
    registered: usize,
}

struct Series {
    kept: Kept,
    name: String,
}

impl Series {
    fn with(&self, act: impl FnOnce(&mut Vec<f64>)) {
        act(self.kept.0.lock().expect("not poisoned").values.entry(self.name.clone()).or_default());
    }

    fn add(&self, value: f64) {
        self.with(|values| match values.last_mut() {
            Some(last) => *last += value,
            None => values.push(value),
        });
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(f64::from(u32::try_from(value).expect("small")));
    }

    fn absolute(&self, _: u64) {
        unreachable!("only incremented");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        unreachable!("several pools may share it");
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.with(|values| values.push(value));
    }
}

impl Kept {
    fn series(&self, key: &Key) -> Arc<Series> {
        self.0.lock().expect("not poisoned").registered += 1;
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Series { kept: self.clone(), name: format!("{}{{{}}}", key.name(), labels.join(",")) })
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        self.0.lock().expect("not poisoned").units.insert(name.as_str().to_string(), unit);
    }

    /// Returns the values of a series of the pool `a:1`.
    fn values(&self, name: &str, state: Option<&str>) -> Vec<f64> {
        let state = state.map(|state| format!(",db.client.connection.state={state}")).unwrap_or_default();
        let name = format!("db.client.connection.{name}{{db.client.connection.pool.name=a:1{state}}}");
        self.0.lock().expect("not poisoned").values.get(&name).cloned().unwrap_or_default()
    }

    fn value(&self, name: &str) -> f64 {
        self.values(name, None).last().copied().unwrap_or_default()
    }

    fn counts(&self) -> (f64, f64) {
        let of = |state| self.values("count", Some(state)).last().copied().unwrap_or_default();
        (of("idle"), of("used"))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&key, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

struct Rig {
    kept: Kept,
    metrics: PoolMetrics,
    pool: Pool<OnHeap>,
    now: Instant,
}

impl Rig {
    fn new(options: PoolOptions) -> Self {
        let kept = Kept::default();
        let (metrics, pool) = with_local_recorder(&kept, || {
            let mut metrics = PoolMetrics::new("a:1");
            let config = options.validate().expect("valid");
            let mut pool = Pool::new(Instant::ORIGIN, PoolId::new(1), config, &mut metrics);
            pool.ready(Instant::ORIGIN, &mut metrics);
            (metrics, pool)
        });
        Self { kept, metrics, pool, now: Instant::ORIGIN }
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
    }

    fn wait(&mut self, deadline: Option<Instant>) -> WaiterId {
        let queued = self.pool.check_out(self.now, deadline, &mut self.metrics);
        let Ok(CheckOut::Queued(waiter)) = queued else { panic!("none is free") };
        waiter
    }

    fn lease_new(&mut self) -> Lease {
        let waiter = self.wait(None);
        let conn = self.pool.poll_establish().expect("wanted");
        self.pass(250);
        self.pool.handle_established(self.now, conn, &mut self.metrics).expect("pending");
        let Claim::Granted(lease) = self.pool.claim(self.now, waiter) else { panic!("granted") };
        lease
    }

    fn check_in(&mut self, lease: Lease, health: Health) {
        self.pool.check_in(self.now, lease, health, &mut self.metrics).expect("ours");
    }
}

#[test]
fn connections_are_counted_as_idle_or_used() {
    let mut rig = Rig::new(PoolOptions::DEFAULT);
    let waiter = rig.wait(None);
    let conn = rig.pool.poll_establish().expect("wanted");
    assert_eq!(rig.kept.counts(), (0.0, 0.0), "one that is being established is neither");
    rig.pool.handle_established(rig.now, conn, &mut rig.metrics).expect("pending");
    let Claim::Granted(lease) = rig.pool.claim(rig.now, waiter) else { panic!("granted") };
    assert_eq!(rig.kept.counts(), (0.0, 1.0));
    rig.check_in(lease, Health::Healthy);
    assert_eq!(rig.kept.counts(), (1.0, 0.0));
    let Ok(CheckOut::Granted(lease)) = rig.pool.check_out(rig.now, None, &mut rig.metrics) else {
        panic!("one is there")
    };
    rig.check_in(lease, Health::Broken(Cause::Network));
    assert_eq!(rig.kept.counts(), (0.0, 0.0), "a broken one is closed");
}

#[test]
fn failed_establishment_is_never_counted() {
    let mut rig = Rig::new(PoolOptions::DEFAULT);
    let _ = rig.wait(None);
    let conn = rig.pool.poll_establish().expect("wanted");
    let error = poolhouse_core::pool::EstablishError { cause: Cause::Network, overloaded: false, clear: None };
    rig.pool.handle_establish_failed(rig.now, conn, error, &mut rig.metrics).expect("pending");
    assert_eq!(rig.kept.counts(), (0.0, 0.0));
    assert_eq!(rig.kept.value("pending_requests"), 0.0);
    assert_eq!(rig.kept.values("create_time", None), []);
    assert_eq!(rig.kept.value("timeouts"), 0.0, "it was no timeout");
}

#[test]
fn times_are_in_seconds() {
    let mut rig = Rig::new(PoolOptions::DEFAULT);
    let lease = rig.lease_new();
    rig.pass(1500);
    rig.check_in(lease, Health::Healthy);
    assert_eq!(rig.kept.values("create_time", None), [0.25]);
    assert_eq!(rig.kept.values("wait_time", None), [0.25]);
    assert_eq!(rig.kept.values("use_time", None), [1.5]);
    let units = rig.kept.0.lock().expect("not poisoned").units.clone();
    assert_eq!(units.len(), 9);
    for (name, unit) in units {
        let expected = if name.ends_with("_time") { Unit::Seconds } else { Unit::Count };
        assert_eq!(unit, Some(expected), "{name}");
    }
}

#[test]
fn waiting_check_outs_and_timeouts_are_counted() {
    let mut rig = Rig::new(PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT });
    let lease = rig.lease_new();
    let deadline = Some(rig.now.saturating_add(Duration::from_millis(5)));
    let _ = rig.wait(deadline);
    let _ = rig.wait(None);
    assert_eq!(rig.kept.value("pending_requests"), 2.0);
    rig.pass(5);
    rig.pool.handle_timeout(rig.now, &mut rig.metrics);
    assert_eq!((rig.kept.value("pending_requests"), rig.kept.value("timeouts")), (1.0, 1.0));
    rig.check_in(lease, Health::Healthy);
    assert_eq!((rig.kept.value("pending_requests"), rig.kept.counts()), (0.0, (0.0, 1.0)));
}

#[test]
fn gauges_of_limits_are_set_until_the_pool_is_closed() {
    let mut rig = Rig::new(PoolOptions { max_pool_size: 8, min_pool_size: 2, ..PoolOptions::DEFAULT });
    let of = |kept: &Kept| (kept.value("max"), kept.value("idle.max"), kept.value("idle.min"));
    assert_eq!(of(&rig.kept), (8.0, 8.0, 2.0));
    rig.pool.close(rig.now, &mut rig.metrics);
    assert_eq!(of(&rig.kept), (0.0, 0.0, 0.0));
    let unlimited = Rig::new(PoolOptions { max_pool_size: 0, ..PoolOptions::DEFAULT });
    assert_eq!(unlimited.kept.values("max", None), [], "no limit is no series");
}

#[test]
fn dropped_pool_is_subtracted_from_the_gauges() {
    let mut rig = Rig::new(PoolOptions::DEFAULT);
    let lease = rig.lease_new();
    let other = rig.lease_new();
    rig.check_in(lease, Health::Healthy);
    assert_eq!(rig.kept.counts(), (1.0, 1.0));
    let Rig { kept, metrics, pool, .. } = rig;
    drop((metrics, pool, other));
    assert_eq!((kept.counts(), kept.value("max")), ((0.0, 0.0), 0.0));
}

#[test]
fn series_are_registered_once() {
    let mut rig = Rig::new(PoolOptions::DEFAULT);
    let before = rig.kept.0.lock().expect("not poisoned").registered;
    assert_eq!(before, 10, "nine metrics, one of them for two states");
    for _ in 0..3 {
        let lease = rig.lease_new();
        rig.check_in(lease, Health::Broken(Cause::Network));
    }
    assert_eq!(rig.kept.0.lock().expect("not poisoned").registered, before);
}

/// A user's recorder that panics at every call.
mod panicking {
    use super::super::Metrics;
    use super::*;
    use poolhouse_driver::{EventKinds, EventRef, Publish};

    /// Panics when a series is registered, or when one is changed.
    struct Panicking {
        at_once: bool,
    }

    impl Panicking {
        fn register(&self) -> Arc<Self> {
            assert!(!self.at_once, "as the test wants it");
            Arc::new(Self { at_once: true })
        }
    }

    impl Recorder for Panicking {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.register())
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.register())
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.register())
        }
    }

    impl CounterFn for Panicking {
        fn increment(&self, _: u64) {
            panic!("as the test wants it");
        }

        fn absolute(&self, _: u64) {
            panic!("as the test wants it");
        }
    }

    impl GaugeFn for Panicking {
        fn increment(&self, _: f64) {
            panic!("as the test wants it");
        }

        fn decrement(&self, _: f64) {
            panic!("as the test wants it");
        }

        fn set(&self, _: f64) {
            panic!("as the test wants it");
        }
    }

    impl HistogramFn for Panicking {
        fn record(&self, _: f64) {
            panic!("as the test wants it");
        }
    }

    /// The recorder is not called again for this pool, and the panic does not reach the caller that
    /// changes the pool.
    #[test]
    fn panic_of_a_recorder_is_caught() {
        for at_once in [false, true] {
            ::metrics::with_local_recorder(&Panicking { at_once }, || {
                let metrics = Metrics::new().of_server("a:1");
                assert_eq!(metrics.kinds() != EventKinds::NONE, !at_once, "there is nothing to change");
                let pool = poolhouse_core::pool::PoolId::new(1);
                let options = PoolOptions::DEFAULT;
                for _ in 0..2 {
                    metrics.publish(Instant::ORIGIN, EventRef::Pool(&PoolEvent::PoolCreated { pool, options }));
                    metrics.publish(Instant::ORIGIN, EventRef::Pool(&PoolEvent::ConnectionCheckOutStarted { pool }));
                }
                drop(metrics);
            });
        }
    }
}

/// This occurs if the observer becomes active while a connection is checked out.
#[test]
fn check_in_without_an_observed_check_out_has_no_time_of_use() {
    let kept = Kept::default();
    let mut late = with_local_recorder(&kept, || PoolMetrics::new("a:1"));
    let conn = Rig::new(PoolOptions::DEFAULT).lease_new().conn();
    for _ in 0..2 {
        late.on_event(Instant::ORIGIN, &PoolEvent::ConnectionCheckedIn { pool: PoolId::new(1), conn });
        assert_eq!(kept.counts(), (1.0, 0.0), "it is there, and idle");
    }
    assert_eq!(kept.values("use_time", None), []);
    assert_eq!(format!("{late:?}"), "PoolMetrics { name: \"a:1\", .. }");
}
