//! Metrics of the pool of one host of a Cassandra session.

use super::client::ClientMetrics;
use super::{
    COUNT, CREATE_TIME, Counter, DOWN, ERRORS, ESTABLISHING, HEARTBEAT_DURATION, HEARTBEAT_FAILURES, Histogram,
    IDLE_MIN, Label, MAX, ORPHANED, PENDING_REQUESTS, POOL_NAME, STATE, Share, TIMEOUTS, ToString as _, Vec, WAIT_TIME,
    counter, gauge, histogram, of_pool, record,
};
use crate::liveness::Liveness;
use alloc::sync::Arc;
use poolhouse_core::Instant;
use poolhouse_core::machine::Observer;
use poolhouse_core::mux::{AcquireError, Distance, MuxClosed, MuxConfig, MuxConnId, MuxEvent};
use poolhouse_core::observe::contain;

/// The metrics of one multiplexed pool: an [`Observer`] of its events, those of single requests apart.
pub(crate) struct MuxMetrics {
    open: Share,
    establishing: Share,
    max: Share,
    min: Share,
    queued: Share,
    orphaned: Share,
    down: Share,
    timeouts: Counter,
    errors: Counter,
    create_time: Histogram,
    wait_time: Histogram,
    heartbeat_duration: Histogram,
    heartbeat_failures: Counter,
    liveness: Liveness,
    /// Of each connection, by its index.
    conns: Vec<Conn>,
    client: Arc<ClientMetrics>,
}

#[derive(Clone, Copy, Default)]
struct Conn {
    is_establishing: bool,
    is_open: bool,
    /// Number of stream ids that are reserved for late replies.
    orphaned: u32,
}

impl MuxMetrics {
    /// Registers the series of a host's pool.
    pub(super) fn new(name: &str, client: Arc<ClientMetrics>) -> Self {
        let pool = || of_pool(name);
        let used = Label::from_static_parts(STATE, "used");
        Self {
            open: Share::new(gauge!(COUNT, alloc::vec![Label::new(POOL_NAME, name.to_string()), used])),
            establishing: Share::new(gauge!(ESTABLISHING, pool())),
            max: Share::new(gauge!(MAX, pool())),
            min: Share::new(gauge!(IDLE_MIN, pool())),
            queued: Share::new(gauge!(PENDING_REQUESTS, pool())),
            orphaned: Share::new(gauge!(ORPHANED, pool())),
            down: Share::new(gauge!(DOWN, pool())),
            timeouts: counter!(TIMEOUTS, pool()),
            errors: counter!(ERRORS, pool()),
            create_time: histogram!(CREATE_TIME, pool()),
            wait_time: histogram!(WAIT_TIME, pool()),
            heartbeat_duration: histogram!(HEARTBEAT_DURATION, pool()),
            heartbeat_failures: counter!(HEARTBEAT_FAILURES, pool()),
            liveness: Liveness::default(),
            conns: Vec::new(),
            client,
        }
    }

    fn set_limits(&mut self, config: &MuxConfig) {
        let options = config.options();
        let (min, max) = match options.distance {
            Distance::Local => (options.local.core_connections, options.local.max_connections),
            Distance::Remote => (options.remote.core_connections, options.remote.max_connections),
            Distance::Ignored => (0, 0),
        };
        self.max.set(f64::from(max));
        self.min.set(f64::from(min));
    }

    /// Counts a connection in its new state.
    fn count(&mut self, conn: MuxConnId, change: impl FnOnce(&mut Conn)) {
        let index = conn.index() as usize;
        if self.conns.len() <= index {
            self.conns.resize(index + 1, Conn::default());
        }
        let Some(kept) = self.conns.get_mut(index) else { return };
        let was = *kept;
        change(kept);
        let difference = |now: bool, was: bool| f64::from(i8::from(now) - i8::from(was));
        self.establishing.add(difference(kept.is_establishing, was.is_establishing));
        self.open.add(difference(kept.is_open, was.is_open));
        self.orphaned.add(f64::from(kept.orphaned) - f64::from(was.orphaned));
    }

    fn queue(&mut self, change: f64) {
        self.queued.add(change);
        self.client.waiting(change);
    }
}

impl Observer<MuxEvent> for MuxMetrics {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event changes a metric")]
    fn on_event(&mut self, _now: Instant, event: &MuxEvent) {
        match *event {
            MuxEvent::PoolCreated { ref config, .. } | MuxEvent::PoolReconfigured { ref config, .. } => {
                self.set_limits(config);
            }
            MuxEvent::PoolClosed { .. } => {
                self.max.set(0.0);
                self.min.set(0.0);
            }
            MuxEvent::ConnectionCreated { conn, .. } => {
                self.count(conn, |conn| conn.is_establishing = true);
            }
            MuxEvent::ConnectionReady { conn, duration, .. } => {
                self.count(conn, |conn| *conn = Conn { is_open: true, ..Conn::default() });
                record(&self.create_time, duration);
            }
            MuxEvent::ConnectionClosed { conn, reason, .. } => {
                self.count(conn, |conn| *conn = Conn::default());
                if matches!(reason, MuxClosed::Error(_)) {
                    self.errors.increment(1);
                }
            }
            MuxEvent::HeartbeatSucceeded { duration, .. } => record(&self.heartbeat_duration, duration),
            MuxEvent::HeartbeatFailed { .. } => self.heartbeat_failures.increment(1),
            MuxEvent::RequestQueued { .. } => self.queue(1.0),
            MuxEvent::StreamAcquired { waited: Some(waited), .. } => {
                self.queue(-1.0);
                record(&self.wait_time, waited);
            }
            MuxEvent::AcquireFailed { error, waited, .. } => {
                if waited.is_some() {
                    self.queue(-1.0);
                }
                if matches!(error, AcquireError::TimedOut { .. }) {
                    self.timeouts.increment(1);
                }
            }
            MuxEvent::StreamOrphaned { conn, .. } => self.count(conn, |conn| conn.orphaned += 1),
            MuxEvent::LateReply { conn, .. } => {
                self.count(conn, |conn| conn.orphaned = conn.orphaned.saturating_sub(1))
            }
            _ => {}
        }
        let _turn = self.liveness.on_mux_event(event);
        self.down.set(f64::from(u8::from(self.liveness.is_down())));
    }
}

/// Subtracts what the pool has added to the gauges, because a dropped pool has nothing.
impl Drop for MuxMetrics {
    fn drop(&mut self) {
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = contain(|| {
            self.client.waiting(-self.queued.added);
            let Self { open, establishing, max, min, queued, orphaned, down, .. } = &mut *self;
            [open, establishing, max, min, queued, orphaned, down].into_iter().for_each(|gauge| gauge.set(0.0));
        });
    }
}
