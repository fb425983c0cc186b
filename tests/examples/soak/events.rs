//! Checks the client's events: each operation that began has ended exactly once.

use core::fmt;
use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::mux::MuxEvent;
use poolhouse_smol::poolhouse_core::pool::PoolEvent;
use poolhouse_smol::{Event, Notice, Subscription};
use std::collections::{HashMap, HashSet};

/// Number of events that are buffered while the reader lags.
pub(crate) const KEPT: usize = 1 << 16;

/// State derived from the events received so far.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    pub(crate) events: u64,
    pub(crate) connections: u64,
    pub(crate) heartbeats: u64,
    pub(crate) check_outs: u64,
    /// A client has pools of one kind, which have different ids.
    pools: HashSet<u64>,
    /// Connections by pool and number.
    open: HashMap<(u64, u64), State>,
    /// Check-outs that began and have not ended.
    waiting: HashMap<u64, i64>,
    /// Checks and heartbeats that began and have not ended, by server and connection.
    checks: HashSet<(String, u64)>,
    /// Stream ids of requests without a reply, by pool and connection; whether the request was abandoned.
    streams: HashMap<(u64, u64, u16), bool>,
    wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Created,
    Available,
    InUse,
}

/// Reads events until the client is closed.
pub(crate) async fn read(mut subscription: Subscription) -> Balance {
    let mut balance = Balance::default();
    while let Some(notice) = subscription.next().await {
        match notice {
            Notice::Event { event, .. } => balance.note(&event),
            Notice::Lagged { count } => balance.wrong.push(format!("{count} events were lost")),
        }
    }
    balance
}

impl Balance {
    /// Returns the inconsistencies, after the client is closed.
    pub(crate) fn verdict(mut self) -> (Self, Vec<String>) {
        let left = [
            ("pools", self.pools.len()),
            ("connections", self.open.len()),
            ("checks", self.checks.len()),
            ("check-outs", self.waiting.values().filter(|count| **count != 0).count()),
        ];
        self.wrong.extend(
            left.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what} are left")),
        );
        let mut wrong = core::mem::take(&mut self.wrong);
        wrong.truncate(20);
        (self, wrong)
    }

    fn note(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Pool(event) => self.note_pool(event),
            Event::Heartbeat(event) => self.note_heartbeat(event),
            Event::Mux(event) => self.note_mux(event),
            Event::Sdam(_) | Event::Cluster(_) | Event::Command(_) | _ => {}
        }
    }

    fn note_pool(&mut self, event: &PoolEvent) {
        let pool = event.pool().get();
        let fits = match *event {
            PoolEvent::PoolCreated { .. } => self.pools.insert(pool),
            PoolEvent::PoolClosed { .. } => self.pools.remove(&pool),
            PoolEvent::PoolReady { .. } | PoolEvent::PoolCleared { .. } => self.pools.contains(&pool),
            PoolEvent::ConnectionCreated { conn, .. } => self.begin(pool, conn.connection_id().get()),
            PoolEvent::ConnectionReady { conn, .. } => {
                self.turn(pool, conn.connection_id().get(), State::Created, State::Available)
            }
            PoolEvent::ConnectionClosed { conn, .. } => {
                self.open.remove(&(pool, conn.connection_id().get())).is_some_and(|state| state != State::InUse)
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => {
                self.check_outs += 1;
                *self.waiting.entry(pool).or_default() += 1;
                true
            }
            PoolEvent::ConnectionCheckOutFailed { .. } => self.end_check_out(pool),
            PoolEvent::ConnectionCheckedOut { conn, .. } => {
                self.turn(pool, conn.connection_id().get(), State::Available, State::InUse) && self.end_check_out(pool)
            }
            PoolEvent::ConnectionCheckedIn { conn, .. } => {
                self.turn(pool, conn.connection_id().get(), State::InUse, State::Available)
            }
            _ => true,
        };
        self.judge(fits, event);
    }

    /// A request may end without an event, so only the replies are checked.
    fn note_mux(&mut self, event: &MuxEvent) {
        let pool = event.mux().get();
        let conn = event.conn().map_or(0, |conn| conn.number().get());
        let check = (format!("pool {pool}"), conn);
        let fits = match *event {
            MuxEvent::PoolCreated { .. } => self.pools.insert(pool),
            MuxEvent::PoolClosed { .. } => self.pools.remove(&pool),
            MuxEvent::ConnectionCreated { .. } => self.begin(pool, conn),
            MuxEvent::ConnectionReady { .. } => self.turn(pool, conn, State::Created, State::Available),
            MuxEvent::ConnectionTrashed { .. }
            | MuxEvent::ConnectionResurrected { .. }
            | MuxEvent::ConnectionRetired { .. } => self.open.get(&(pool, conn)) == Some(&State::Available),
            MuxEvent::ConnectionClosed { .. } => {
                // Its heartbeat and its requests end with it.
                self.checks.remove(&check);
                self.streams.retain(|stream, _| (stream.0, stream.1) != (pool, conn));
                self.open.remove(&(pool, conn)).is_some()
            }
            MuxEvent::HeartbeatStarted { .. } => {
                self.heartbeats += 1;
                self.checks.insert(check)
            }
            MuxEvent::HeartbeatSucceeded { .. } | MuxEvent::HeartbeatFailed { .. } => self.checks.remove(&check),
            MuxEvent::StreamAcquired { stream, .. } => {
                self.check_outs += 1;
                self.streams.insert((pool, conn, stream), false);
                self.open.get(&(pool, conn)) == Some(&State::Available)
            }
            MuxEvent::ReplyReceived { stream, .. } => self.streams.remove(&(pool, conn, stream)) == Some(false),
            MuxEvent::StreamOrphaned { stream, .. } => self.streams.insert((pool, conn, stream), true) == Some(false),
            MuxEvent::LateReply { stream, .. } => self.streams.remove(&(pool, conn, stream)) == Some(true),
            MuxEvent::PoolReconfigured { .. }
            | MuxEvent::RequestQueued { .. }
            | MuxEvent::AcquireFailed { .. }
            | MuxEvent::UnknownReply { .. }
            | _ => true,
        };
        self.judge(fits, event);
    }

    fn judge(&mut self, fits: bool, event: &dyn fmt::Display) {
        if !fits {
            self.wrong.push(format!("event {}: {event} is not allowed in this state", self.events));
        }
    }

    fn begin(&mut self, pool: u64, conn: u64) -> bool {
        self.connections += 1;
        self.open.insert((pool, conn), State::Created).is_none()
    }

    fn turn(&mut self, pool: u64, conn: u64, from: State, to: State) -> bool {
        self.open.insert((pool, conn), to) == Some(from)
    }

    fn end_check_out(&mut self, pool: u64) -> bool {
        let waiting = self.waiting.entry(pool).or_default();
        *waiting -= 1;
        *waiting >= 0
    }

    fn note_heartbeat(&mut self, event: &MonitorEvent) {
        let key = (format!("{:?}", event.id().server), event.id().connection);
        let fits = match event {
            MonitorEvent::HeartbeatStarted { .. } => {
                self.heartbeats += 1;
                self.checks.insert(key)
            }
            MonitorEvent::HeartbeatSucceeded { .. } | MonitorEvent::HeartbeatFailed { .. } => self.checks.remove(&key),
            _ => true,
        };
        self.judge(fits, event);
    }
}
