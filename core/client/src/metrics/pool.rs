//! Metrics of one pool.

use super::{
    CLEARS, COUNT, CREATE_TIME, Counter, DOWN, ERRORS, ESTABLISHING, Gauge, Histogram, IDLE_MAX, IDLE_MIN, Label, MAX,
    PENDING_REQUESTS, POOL_NAME, STATE, Share, String, TIMEOUTS, ToString as _, USE_TIME, Vec, WAIT_TIME, counter,
    describe, gauge, histogram, of_pool, record,
};
use crate::liveness::Liveness;
use core::fmt;
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer;
use poolhouse_core::observe::contain;
use poolhouse_core::pool::{CheckOutFailedReason, ClosedReason, ConnId, PoolEvent, PoolOptions};

/// The metrics of one pool: an [`Observer`] that must receive all events of the pool.
pub struct PoolMetrics {
    name: String,
    idle: Gauge,
    used: Gauge,
    establishing: Gauge,
    pending_requests: Share,
    timeouts: Counter,
    errors: Counter,
    clears: Counter,
    create_time: Histogram,
    wait_time: Histogram,
    use_time: Histogram,
    /// Values of the pool's options, until the pool is closed.
    limits: [Share; 3],
    /// Whether the server is down. `None` if the topology knows it.
    liveness: Option<(Liveness, Share)>,
    /// State of each connection, by its index.
    conns: Vec<Conn>,
}

/// The state in which a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conn {
    None,
    Establishing,
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
        let pool = || of_pool(name);
        let count = |state: &'static str| {
            let label = Label::new(POOL_NAME, name.to_string());
            gauge!(COUNT, alloc::vec![label, Label::from_static_parts(STATE, state)])
        };
        Self {
            idle: count("idle"),
            used: count("used"),
            pending_requests: Share::new(gauge!(PENDING_REQUESTS, pool())),
            establishing: gauge!(ESTABLISHING, pool()),
            timeouts: counter!(TIMEOUTS, pool()),
            errors: counter!(ERRORS, pool()),
            clears: counter!(CLEARS, pool()),
            create_time: histogram!(CREATE_TIME, pool()),
            wait_time: histogram!(WAIT_TIME, pool()),
            use_time: histogram!(USE_TIME, pool()),
            limits: [const { Share::new(Gauge::noop()) }; 3],
            liveness: None,
            conns: Vec::new(),
            name: name.to_string(),
        }
    }

    /// Adds the gauge of servers that are down, for a pool whose server no topology knows.
    #[must_use]
    pub(super) fn with_liveness(mut self) -> Self {
        let down = Share::new(gauge!(DOWN, of_pool(&self.name)));
        self.liveness = Some((Liveness::default(), down));
        self
    }

    fn set_limits(&mut self, options: &PoolOptions) {
        let pool = || of_pool(&self.name);
        let has_max = options.max_pool_size > 0;
        let of_max = |name: &'static str| if has_max { gauge!(name, pool()) } else { Gauge::noop() };
        let gauges = [of_max(MAX), of_max(IDLE_MAX), gauge!(IDLE_MIN, pool())];
        let (max, min) = (f64::from(options.max_pool_size), f64::from(options.min_pool_size));
        self.end_limits();
        self.limits = gauges.map(Share::new);
        for (limit, value) in self.limits.iter_mut().zip([max, max, min]) {
            limit.set(value);
        }
    }

    fn end_limits(&mut self) {
        self.limits.iter_mut().for_each(|limit| limit.set(0.0));
    }

    /// Counts a connection in its new state. Returns its old state.
    #[inline]
    fn count(&mut self, conn: ConnId, now: Conn) -> Conn {
        let was = match self.conns.get_mut(conn.index() as usize) {
            Some(kept) => core::mem::replace(kept, now),
            None => self.push(conn, now),
        };
        if let Some(gauge) = self.gauge_of(was) {
            gauge.decrement(1.0);
        }
        if let Some(gauge) = self.gauge_of(now) {
            gauge.increment(1.0);
        }
        was
    }

    /// The gauge in which a connection is counted.
    #[inline]
    const fn gauge_of(&self, state: Conn) -> Option<&Gauge> {
        match state {
            Conn::None => None,
            Conn::Establishing => Some(&self.establishing),
            Conn::Idle => Some(&self.idle),
            Conn::UsedSince(_) => Some(&self.used),
        }
    }

    /// Adds an entry for a connection that is being created: an existing one has an entry.
    #[cold]
    fn push(&mut self, conn: ConnId, now: Conn) -> Conn {
        self.conns.resize(conn.index() as usize, Conn::None);
        self.conns.push(now);
        Conn::None
    }

    #[cold]
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event changes a metric")]
    fn on_rare_event(&mut self, event: &PoolEvent) {
        match *event {
            PoolEvent::PoolCreated { ref options, .. } => self.set_limits(options),
            PoolEvent::PoolCleared { .. } => self.clears.increment(1),
            PoolEvent::PoolClosed { .. } => self.end_limits(),
            PoolEvent::ConnectionCreated { conn, .. } => {
                self.count(conn, Conn::Establishing);
            }
            PoolEvent::ConnectionClosed { conn, reason, .. } => {
                self.count(conn, Conn::None);
                if reason == ClosedReason::Error {
                    self.errors.increment(1);
                }
            }
            PoolEvent::ConnectionReady { conn, duration, .. } => {
                self.count(conn, Conn::Idle);
                record(&self.create_time, duration);
            }
            _ => {}
        }
        if let Some((liveness, down)) = &mut self.liveness {
            let _turn = liveness.on_pool_event(event);
            down.set(f64::from(u8::from(liveness.is_down())));
        }
    }
}

impl Observer<PoolEvent> for PoolMetrics {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are rare")]
    fn on_event(&mut self, now: Instant, event: &PoolEvent) {
        match *event {
            PoolEvent::ConnectionCheckOutStarted { .. } => self.pending_requests.add(1.0),
            PoolEvent::ConnectionCheckOutFailed { reason, .. } => {
                self.pending_requests.add(-1.0);
                if reason == CheckOutFailedReason::Timeout {
                    self.timeouts.increment(1);
                }
            }
            PoolEvent::ConnectionCheckedOut { conn, duration, .. } => {
                self.pending_requests.add(-1.0);
                self.count(conn, Conn::UsedSince(now));
                record(&self.wait_time, duration);
            }
            PoolEvent::ConnectionCheckedIn { conn, .. } => {
                if let Conn::UsedSince(since) = self.count(conn, Conn::Idle) {
                    record(&self.use_time, now.saturating_since(since));
                }
            }
            _ => self.on_rare_event(event),
        }
    }
}

/// Subtracts what the pool has added to the gauges, because a dropped pool has nothing.
impl Drop for PoolMetrics {
    fn drop(&mut self) {
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = contain(|| {
            for conn in core::mem::take(&mut self.conns) {
                if let Some(gauge) = self.gauge_of(conn) {
                    gauge.decrement(1.0);
                }
            }
            let down = self.liveness.as_mut().map(|(_, down)| down);
            self.limits.iter_mut().chain([&mut self.pending_requests]).chain(down).for_each(|share| share.set(0.0));
        });
    }
}

impl fmt::Debug for PoolMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolMetrics").field("name", &self.name).finish_non_exhaustive()
    }
}
