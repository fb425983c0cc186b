//! Checks the client's events: each operation that began has ended exactly once.

use poolhouse_smol::poolhouse_core::monitor::MonitorEvent;
use poolhouse_smol::poolhouse_core::pool::{ConnId, PoolEvent, PoolId};
use poolhouse_smol::{Event, Notice, Subscription};
use std::collections::{HashMap, HashSet};

/// Number of events that are buffered while the reader lags.
pub(crate) const KEPT: usize = 1 << 16;

/// State derived from the events received so far.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    pub(crate) events: u64,
    pub(crate) connections: u64,
    pub(crate) cleared: u64,
    pub(crate) heartbeats: u64,
    pub(crate) check_outs: u64,
    pools: HashSet<PoolId>,
    open: HashMap<(PoolId, ConnId), State>,
    /// Check-outs that began and have not ended.
    waiting: HashMap<PoolId, i64>,
    /// Checks that began and have not ended, by server and connection.
    checks: HashSet<(String, u64)>,
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
            Event::Sdam(_) | Event::Mux(_) | Event::Cluster(_) | Event::Command(_) | _ => {}
        }
    }

    fn note_pool(&mut self, event: &PoolEvent) {
        let pool = event.pool();
        let fits = match *event {
            PoolEvent::PoolCreated { .. } => self.pools.insert(pool),
            PoolEvent::PoolClosed { .. } => self.pools.remove(&pool),
            PoolEvent::PoolReady { .. } => self.pools.contains(&pool),
            PoolEvent::PoolCleared { .. } => {
                self.cleared += 1;
                self.pools.contains(&pool)
            }
            PoolEvent::ConnectionCreated { conn, .. } => {
                self.connections += 1;
                self.open.insert((pool, conn), State::Created).is_none()
            }
            PoolEvent::ConnectionReady { conn, .. } => self.turn(pool, conn, State::Created, State::Available),
            PoolEvent::ConnectionClosed { conn, .. } => {
                self.open.remove(&(pool, conn)).is_some_and(|state| state != State::InUse)
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => {
                self.check_outs += 1;
                *self.waiting.entry(pool).or_default() += 1;
                true
            }
            PoolEvent::ConnectionCheckOutFailed { .. } => self.end_check_out(pool),
            PoolEvent::ConnectionCheckedOut { conn, .. } => {
                self.turn(pool, conn, State::Available, State::InUse) && self.end_check_out(pool)
            }
            PoolEvent::ConnectionCheckedIn { conn, .. } => self.turn(pool, conn, State::InUse, State::Available),
            _ => true,
        };
        if !fits {
            self.wrong.push(format!("event {}: {event} is not allowed in this state", self.events));
        }
    }

    fn turn(&mut self, pool: PoolId, conn: ConnId, from: State, to: State) -> bool {
        self.open.insert((pool, conn), to) == Some(from)
    }

    fn end_check_out(&mut self, pool: PoolId) -> bool {
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
        if !fits {
            self.wrong.push(format!("event {}: {event} is not allowed in this state", self.events));
        }
    }
}
