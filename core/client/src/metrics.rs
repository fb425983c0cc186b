//! Metrics of pools by OpenTelemetry's names, for any recorder of the [`metrics`] crate (feature
//! `metrics`).
//!
//! Read first: OpenTelemetry's "Semantic conventions for database client metrics", "Connection
//! pools".
//!
//! | name | kind | unit | meaning |
//! |---|---|---|---|
//! | `db.client.connection.count` | gauge | connections | connections with `db.client.connection.state` = `idle` or `used`; those that are being established are not counted |
//! | `db.client.connection.max` | gauge | connections | `maxPoolSize`; absent without a limit |
//! | `db.client.connection.idle.max` | gauge | connections | `maxPoolSize` too: all connections may be idle |
//! | `db.client.connection.idle.min` | gauge | connections | `minPoolSize` |
//! | `db.client.connection.pending_requests` | gauge | requests | check-outs that wait for a connection |
//! | `db.client.connection.timeouts` | counter | timeouts | check-outs that timed out |
//! | `db.client.connection.create_time` | histogram | seconds | from the creation of a connection until it is ready |
//! | `db.client.connection.wait_time` | histogram | seconds | from the start of a check-out until it has a connection |
//! | `db.client.connection.use_time` | histogram | seconds | from the end of the check-out until the check-in |
//!
//! All have the label `db.client.connection.pool.name`, the server's address (`localhost:27017`, or
//! the path of a Unix domain socket). Pools of several clients with the same address share their
//! series, which then contain sums.
//!
//! Install the recorder first: a pool registers its series once, when it is created, with the
//! recorder that is installed then. The cost of an event is that of the recorder's handles; it
//! allocates nothing.

mod publish;
#[cfg(test)]
mod tests;

pub use publish::Metrics;

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer;
use poolhouse_core::observe::contain;
use poolhouse_core::pool::{CheckOutFailedReason, ConnId, PoolEvent, PoolOptions};

const COUNT: &str = "db.client.connection.count";
const MAX: &str = "db.client.connection.max";
const IDLE_MAX: &str = "db.client.connection.idle.max";
const IDLE_MIN: &str = "db.client.connection.idle.min";
const PENDING_REQUESTS: &str = "db.client.connection.pending_requests";
const TIMEOUTS: &str = "db.client.connection.timeouts";
const CREATE_TIME: &str = "db.client.connection.create_time";
const WAIT_TIME: &str = "db.client.connection.wait_time";
const USE_TIME: &str = "db.client.connection.use_time";
const POOL_NAME: &str = "db.client.connection.pool.name";
const STATE: &str = "db.client.connection.state";

/// The metrics of one pool: an [`Observer`] that must receive all events of the pool.
pub struct PoolMetrics {
    name: String,
    idle: Gauge,
    used: Gauge,
    pending_requests: Gauge,
    timeouts: Counter,
    create_time: Histogram,
    wait_time: Histogram,
    use_time: Histogram,
    /// Values of the pool's options in the gauges, until the pool is closed.
    limits: Option<Limits>,
    /// State of each connection, by its index.
    conns: Vec<Conn>,
}

/// Gauges of a pool's options, and the values that were added to them.
struct Limits {
    max: Gauge,
    idle_max: Gauge,
    idle_min: Gauge,
    connections_max: f64,
    connections_min: f64,
}

/// The state in which a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conn {
    /// No connection, or one that is being established.
    Uncounted,
    Idle,
    UsedSince(Instant),
}

impl PoolMetrics {
    /// Registers the series of a pool with the installed recorder.
    ///
    /// - `name`: the server's address.
    ///
    /// Cost: some allocations.
    #[must_use]
    pub fn new(name: &str) -> Self {
        describe();
        let pool = || Label::new(POOL_NAME, name.to_string());
        let count = |state: &'static str| gauge!(COUNT, alloc::vec![pool(), Label::from_static_parts(STATE, state)]);
        Self {
            idle: count("idle"),
            used: count("used"),
            pending_requests: gauge!(PENDING_REQUESTS, alloc::vec![pool()]),
            timeouts: counter!(TIMEOUTS, alloc::vec![pool()]),
            create_time: histogram!(CREATE_TIME, alloc::vec![pool()]),
            wait_time: histogram!(WAIT_TIME, alloc::vec![pool()]),
            use_time: histogram!(USE_TIME, alloc::vec![pool()]),
            limits: None,
            conns: Vec::new(),
            name: name.to_string(),
        }
    }

    fn begin(&mut self, options: &PoolOptions) {
        self.end();
        let pool = || alloc::vec![Label::new(POOL_NAME, self.name.clone())];
        let has_max = options.max_pool_size > 0;
        let limits = Limits {
            max: if has_max { gauge!(MAX, pool()) } else { Gauge::noop() },
            idle_max: if has_max { gauge!(IDLE_MAX, pool()) } else { Gauge::noop() },
            idle_min: gauge!(IDLE_MIN, pool()),
            connections_max: f64::from(options.max_pool_size),
            connections_min: f64::from(options.min_pool_size),
        };
        limits.max.increment(limits.connections_max);
        limits.idle_max.increment(limits.connections_max);
        limits.idle_min.increment(limits.connections_min);
        self.limits = Some(limits);
    }

    fn end(&mut self) {
        if let Some(limits) = self.limits.take() {
            limits.max.decrement(limits.connections_max);
            limits.idle_max.decrement(limits.connections_max);
            limits.idle_min.decrement(limits.connections_min);
        }
    }

    /// Counts a connection in its new state. Returns its old state.
    #[inline]
    fn count(&mut self, conn: ConnId, now: Conn) -> Conn {
        let was = match self.conns.get_mut(conn.index() as usize) {
            Some(kept) => core::mem::replace(kept, now),
            None => self.add(conn, now),
        };
        match was {
            Conn::Uncounted => {}
            Conn::Idle => self.idle.decrement(1.0),
            Conn::UsedSince(_) => self.used.decrement(1.0),
        }
        match now {
            Conn::Uncounted => {}
            Conn::Idle => self.idle.increment(1.0),
            Conn::UsedSince(_) => self.used.increment(1.0),
        }
        was
    }

    /// Adds an entry for a connection that is being created: an existing one has an entry.
    #[cold]
    fn add(&mut self, conn: ConnId, now: Conn) -> Conn {
        self.conns.resize(conn.index() as usize, Conn::Uncounted);
        self.conns.push(now);
        Conn::Uncounted
    }
}

impl Observer<PoolEvent> for PoolMetrics {
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        match *event {
            PoolEvent::PoolCreated { ref options, .. } => self.begin(options),
            PoolEvent::PoolReady { .. } | PoolEvent::PoolCleared { .. } => {}
            PoolEvent::PoolClosed { .. } => self.end(),
            PoolEvent::ConnectionCreated { conn, .. } | PoolEvent::ConnectionClosed { conn, .. } => {
                self.count(conn, Conn::Uncounted);
            }
            PoolEvent::ConnectionReady { conn, duration, .. } => {
                self.count(conn, Conn::Idle);
                record(&self.create_time, duration);
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => self.pending_requests.increment(1.0),
            PoolEvent::ConnectionCheckOutFailed { reason, .. } => {
                self.pending_requests.decrement(1.0);
                if reason == CheckOutFailedReason::Timeout {
                    self.timeouts.increment(1);
                }
            }
            PoolEvent::ConnectionCheckedOut { conn, duration, .. } => {
                self.pending_requests.decrement(1.0);
                self.count(conn, Conn::UsedSince(now));
                record(&self.wait_time, duration);
            }
            PoolEvent::ConnectionCheckedIn { conn, .. } => {
                if let Conn::UsedSince(since) = self.count(conn, Conn::Idle) {
                    record(&self.use_time, now.saturating_since(since));
                }
            }
            _ => {}
        }
    }
}

/// Subtracts the connections and the options of the pool from the gauges, because a dropped pool
/// has none.
impl Drop for PoolMetrics {
    fn drop(&mut self) {
        let conns = core::mem::take(&mut self.conns);
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = contain(|| {
            self.end();
            for conn in conns {
                match conn {
                    Conn::Uncounted => {}
                    Conn::Idle => self.idle.decrement(1.0),
                    Conn::UsedSince(_) => self.used.decrement(1.0),
                }
            }
        });
    }
}

impl fmt::Debug for PoolMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMetrics").field("name", &self.name).finish_non_exhaustive()
    }
}

fn record(histogram: &Histogram, duration: Duration) {
    histogram.record(duration.as_secs_f64());
}

fn describe() {
    describe_gauge!(COUNT, Unit::Count, "Connections in the state that the label names");
    describe_gauge!(MAX, Unit::Count, "The maximum number of connections");
    describe_gauge!(IDLE_MAX, Unit::Count, "The maximum number of idle connections");
    describe_gauge!(IDLE_MIN, Unit::Count, "The minimum number of connections");
    describe_gauge!(PENDING_REQUESTS, Unit::Count, "Check-outs that wait for a connection");
    describe_counter!(TIMEOUTS, Unit::Count, "Check-outs that timed out");
    describe_histogram!(CREATE_TIME, Unit::Seconds, "The time to establish a connection");
    describe_histogram!(WAIT_TIME, Unit::Seconds, "The time from the start of a check-out until it has a connection");
    describe_histogram!(USE_TIME, Unit::Seconds, "The time from a check-out to the check-in");
}
