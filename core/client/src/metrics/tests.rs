use super::*;
use crate::events::System;
use ::metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, with_local_recorder};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use poolhouse_core::Cause;
use poolhouse_core::Instant;
use poolhouse_core::ServerId;
use poolhouse_core::machine::Observer;
use poolhouse_core::monitor::{HeartbeatId, MonitorEvent};
use poolhouse_core::mux::{AcquireError, Distance, Mux, MuxClosed, MuxConfig, MuxEvent, MuxId, MuxOnHeap, MuxOptions};
use poolhouse_core::observe::EventContext;
use poolhouse_core::pool::ClosedReason;
use poolhouse_core::pool::{CheckOut, Claim, Health, Lease, OnHeap, Pool, PoolEvent, PoolId, PoolOptions, WaiterId};
use poolhouse_driver::{EventKinds, EventRef, Publish as _};
use std::sync::Mutex;

/// A recorder that keeps all values of each series.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<State>>);

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
    assert_eq!(units.len(), 22, "each metric has a unit");
    for (name, unit) in units {
        let expected = if name.ends_with("_time") || name.ends_with(".duration") { Unit::Seconds } else { Unit::Count };
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
    assert_eq!(before, 13, "twelve metrics, one of them for two states");
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
                let events = crate::events::Events::of_test();
                events.operations_begin(1);
                events.operation_ended("QUERY", None, Duration::ZERO);
                events.retried(1);
                events.speculated();
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

impl Kept {
    /// Returns the number of values of a histogram with these labels.
    pub(crate) fn count(&self, series: &str) -> usize {
        self.0.lock().expect("not poisoned").values.get(series).map_or(0, Vec::len)
    }

    /// Returns the last value of a series with these labels.
    pub(crate) fn last(&self, series: &str) -> Option<f64> {
        self.0.lock().expect("not poisoned").values.get(series).and_then(|values| values.last().copied())
    }
}

#[test]
fn operations_are_measured_by_name_and_error_up_to_a_number_of_pairs() {
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        let metrics = Metrics::of(System::Mongodb);
        let client = metrics.client().expect("there is a recorder");
        client.operations_begin(3);
        client.operation_ended("find", None, Duration::from_millis(1500));
        client.operation_ended("find", Some("11600"), Duration::from_millis(250));
        client.retried(2);
        let active = "poolhouse.operation.active{db.system.name=mongodb}";
        assert_eq!(kept.last(active), Some(1.0));
        assert_eq!(kept.last("poolhouse.operation.retries{db.system.name=mongodb}"), Some(2.0));
        let of_find = "db.client.operation.duration{db.system.name=mongodb,db.operation.name=find";
        assert_eq!(kept.last(&format!("{of_find}}}")), Some(1.5));
        assert_eq!(kept.last(&format!("{of_find},error.type=11600}}")), Some(0.25));
        client.operations_begin(300);
        for number in 0..300 {
            client.operation_ended(&format!("command{number}"), Some("timeout"), Duration::ZERO);
        }
        let other = "db.client.operation.duration{db.system.name=mongodb,db.operation.name=_OTHER,error.type=_OTHER}";
        assert_eq!(kept.last(other), Some(0.0));
        let state = kept.0.lock().expect("not poisoned");
        let series = state.values.keys().filter(|name| name.starts_with("db.client.operation.duration")).count();
        assert_eq!(series, 257, "256 pairs and the rest");
    });
}

#[test]
fn without_a_recorder_nothing_is_measured() {
    for system in [System::Mongodb, System::Cassandra, System::Generic] {
        let metrics = Metrics::of(system);
        assert!(metrics.client().is_none());
        assert!(metrics.kinds() == EventKinds::NONE && metrics.of_server("a").kinds() == EventKinds::NONE);
    }
}

#[test]
fn host_of_cassandra_has_the_metrics_of_a_pool() {
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        let metrics = Metrics::of(System::Cassandra).of_server("a:1");
        let now = Instant::ORIGIN;
        let mut events: Vec<(Instant, MuxEvent)> = Vec::new();
        let mut mux = Mux::<MuxOnHeap>::new(now, MuxId::new(1), MuxConfig::DEFAULT, &mut events);
        mux.reconfigure(now, MuxConfig::DEFAULT, &mut events);
        let created =
            |event: &MuxEvent| if let MuxEvent::ConnectionCreated { conn, .. } = event { Some(*conn) } else { None };
        let conn = events.iter().find_map(|(_, event)| created(event));
        let (mux, conn) = (MuxId::new(1), conn.expect("a connection is being created"));
        let publish = |event| metrics.publish(now, EventRef::Mux(&event));
        let pool = |name: &str| kept.last(&format!("{name}{{db.client.connection.pool.name=a:1}}")).unwrap_or_default();
        let used = || {
            let count =
                "db.client.connection.count{db.client.connection.pool.name=a:1,db.client.connection.state=used}";
            kept.last(count).unwrap_or_default()
        };
        publish(events[0].1);
        assert_eq!((pool(MAX), pool(IDLE_MIN)), (1.0, 1.0));
        publish(MuxEvent::ConnectionCreated { mux, conn });
        assert_eq!((pool(ESTABLISHING), used()), (1.0, 0.0));
        publish(MuxEvent::RequestQueued { mux, queued: 1 });
        publish(MuxEvent::RequestQueued { mux, queued: 2 });
        let waiting = || kept.last("poolhouse.operation.waiting{db.system.name=cassandra}");
        assert_eq!((pool(PENDING_REQUESTS), waiting()), (2.0, Some(2.0)));
        publish(MuxEvent::ConnectionReady { mux, conn, duration: Duration::from_millis(500) });
        assert_eq!((pool(ESTABLISHING), used(), pool(CREATE_TIME)), (0.0, 1.0, 0.5));
        publish(MuxEvent::StreamAcquired { mux, conn, stream: 1, waited: Some(Duration::from_millis(250)) });
        let error = AcquireError::TimedOut { in_flight: 1, queued: 1 };
        publish(MuxEvent::AcquireFailed { mux, error, waited: Some(Duration::from_secs(1)) });
        assert_eq!((pool(PENDING_REQUESTS), waiting()), (0.0, Some(0.0)));
        assert_eq!((pool(TIMEOUTS), pool(WAIT_TIME)), (1.0, 0.25));
        publish(MuxEvent::StreamOrphaned { mux, conn, stream: 1, orphaned: 1 });
        assert_eq!(pool(ORPHANED), 1.0);
        publish(MuxEvent::HeartbeatFailed { mux, conn });
        let reason = MuxClosed::Error(Cause::NetworkTimeout);
        publish(MuxEvent::ConnectionClosed { mux, conn, reason, in_flight: 0 });
        assert_eq!((pool(ORPHANED), used(), pool(ERRORS)), (0.0, 0.0, 1.0), "its ids are gone");
        assert_eq!((pool(HEARTBEAT_FAILURES), pool(DOWN)), (1.0, 1.0));
        drop(metrics);
        assert_eq!((pool(DOWN), pool(MAX)), (0.0, 0.0), "a dropped host is not down");
    });
}

/// A node of a cluster may name thousands of others.
#[test]
fn host_that_is_ignored_has_no_series_and_used_ones_a_limited_number() {
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        let metrics = Metrics::of(System::Cassandra);
        let before = kept.0.lock().expect("not poisoned").registered;
        let created = |distance| {
            let config = MuxOptions { distance, ..MuxOptions::DEFAULT }.validate().expect("valid options");
            MuxEvent::PoolCreated { mux: MuxId::new(1), config }
        };
        let hosts: Vec<_> = (0..1100).map(|number| metrics.of_server(&format!("host{number}"))).collect();
        let publish = |distance| {
            hosts.iter().for_each(|host| host.publish(Instant::ORIGIN, EventRef::Mux(&created(distance))));
        };
        publish(Distance::Ignored);
        assert_eq!(kept.0.lock().expect("not poisoned").registered, before);
        publish(Distance::Local);
        let series = kept.0.lock().expect("not poisoned").values.keys().filter(|name| name.starts_with(MAX)).count();
        assert_eq!(series, 1025);
        let others = "db.client.connection.max{db.client.connection.pool.name=_OTHER}";
        assert_eq!(kept.last(others), Some(76.0), "their sum");
    });
}

/// A member of a replica set may name new hosts without end.
#[test]
fn servers_of_a_client_have_a_limited_number_of_series() {
    let kept = Kept::default();
    with_local_recorder(&kept, || {
        let metrics = Metrics::of(System::Mongodb);
        let id = HeartbeatId { server: ServerId::new(1), connection: 1, server_connection: None };
        for number in 0..1100 {
            let address = format!("host{number}");
            let (pool, options) = (PoolId::new(number), PoolOptions::DEFAULT);
            let of_server = metrics.of_server(&address);
            of_server.publish(Instant::ORIGIN, EventRef::Pool(&PoolEvent::PoolCreated { pool, options }));
            let failed =
                MonitorEvent::HeartbeatFailed { id, awaited: false, duration: Duration::ZERO, cause: Cause::Network };
            let context = EventContext::of_server(&address);
            metrics.publish_in(Instant::ORIGIN, EventRef::Heartbeat(&failed), &context);
        }
        for name in [MAX, HEARTBEAT_FAILURES] {
            let state = kept.0.lock().expect("not poisoned");
            assert_eq!(state.values.keys().filter(|series| series.starts_with(name)).count(), 1025, "{name}");
        }
        let others = "poolhouse.heartbeat.failures{db.client.connection.pool.name=_OTHER}";
        assert_eq!(kept.last(others), Some(76.0), "their sum");
    });
}

#[test]
fn generic_pool_whose_server_is_gone_is_down_until_the_next_connection() {
    let kept = Kept::default();
    let (conn, pool) = (Rig::new(PoolOptions::DEFAULT).lease_new().conn(), PoolId::new(1));
    with_local_recorder(&kept, || {
        let metrics = Metrics::of(System::Generic).of_server("cache");
        let down = || kept.last("poolhouse.server.down{db.client.connection.pool.name=cache}").unwrap_or_default();
        let publish = |event| metrics.publish(Instant::ORIGIN, EventRef::Pool(&event));
        let (reason, cause) = (ClosedReason::Error, Some(Cause::Other));
        publish(PoolEvent::ConnectionReady { pool, conn, duration: Duration::ZERO });
        publish(PoolEvent::ConnectionClosed { pool, conn, reason, cause });
        assert_eq!(down(), 0.0, "one connection is broken");
        publish(PoolEvent::ConnectionClosed { pool, conn, reason, cause });
        assert_eq!(down(), 1.0, "the next one cannot be opened");
        publish(PoolEvent::ConnectionReady { pool, conn, duration: Duration::ZERO });
        assert_eq!(down(), 0.0);
    });
}
