//! Metrics of the operations of a client or session, and of what its topology observes.

use super::{
    Counter, DOWN, ERROR_TYPE, Gauge, HEARTBEAT_DURATION, HEARTBEAT_FAILURES, Histogram, Label, OPERATION,
    OPERATION_ACTIVE, OPERATION_DURATION, OPERATION_RETRIES, OPERATION_SPECULATIVE, OPERATION_WAITING, PRIMARY_CHANGES,
    SYSTEM, Share, String, ToString as _, counter, describe, gauge, histogram, of_pool, record,
};
use crate::events::System;
use crate::liveness::{down, primary_of};
use crate::lock;
use alloc::borrow::ToOwned as _;
use core::fmt;
use core::time::Duration;
use hashbrown::{HashMap, HashSet};
use poolhouse_core::monitor::MonitorEvent;
use poolhouse_core::observe::contain;
use poolhouse_core::topology::SdamEvent;
use poolhouse_driver::{SelectionEvent, SelectionStage};
use std::hash::RandomState;
use std::sync::Mutex;

/// The maximum number of pairs of a name and an error: both may be chosen by the application or a server.
const PAIRS_MAX: usize = 256;

/// The maximum number of servers that have series of their own.
const NAMES_MAX: usize = 1024;

/// The name, error or host above a maximum.
const OTHER: &str = "_OTHER";

/// The metrics of one client or session.
pub(crate) struct ClientMetrics {
    system: System,
    active: Gauge,
    waiting: Gauge,
    retries: Counter,
    speculative: Counter,
    primary_changes: Counter,
    durations: Mutex<Durations>,
    /// The names of the servers that have had series.
    names: Mutex<HashSet<String, RandomState>>,
    /// Not of Cassandra.
    servers: Mutex<Servers>,
}

#[derive(Default)]
struct Servers {
    by_name: HashMap<String, OfServer, RandomState>,
    /// Whether a primary was known.
    had_primary: bool,
}

/// What the topology observes of a server.
struct OfServer {
    heartbeat_duration: Histogram,
    heartbeat_failures: Counter,
    /// The number of servers with this name that are down.
    down: Share,
    down_count: u32,
}

#[derive(Default)]
struct Durations {
    by_name: HashMap<String, OfName, RandomState>,
    pairs: usize,
}

#[derive(Default)]
struct OfName {
    success: Option<Histogram>,
    errors: HashMap<String, Histogram, RandomState>,
}

impl ClientMetrics {
    /// Registers the series of a client or session.
    pub(super) fn new(system: System) -> Self {
        describe();
        let labels = || alloc::vec![Label::from_static_parts(SYSTEM, system.name())];
        let is_cassandra = system == System::Cassandra;
        Self {
            system,
            active: gauge!(OPERATION_ACTIVE, labels()),
            waiting: gauge!(OPERATION_WAITING, labels()),
            retries: counter!(OPERATION_RETRIES, labels()),
            speculative: if is_cassandra { counter!(OPERATION_SPECULATIVE, labels()) } else { Counter::noop() },
            primary_changes: if is_cassandra { Counter::noop() } else { counter!(PRIMARY_CHANGES, labels()) },
            durations: Mutex::default(),
            names: Mutex::default(),
            servers: Mutex::default(),
        }
    }

    pub(crate) fn operations_begin(&self, count: usize) {
        self.active.increment(count as f64);
    }

    /// - `error`: its type; `None` after a success.
    pub(crate) fn operation_ended(&self, name: &str, error: Option<&str>, duration: Duration) {
        self.active.decrement(1.0);
        record(&self.histogram(name, error), duration);
    }

    pub(crate) fn retried(&self, count: u32) {
        self.retries.increment(count.into());
    }

    pub(crate) fn speculated(&self) {
        self.speculative.increment(1);
    }

    pub(super) fn waiting(&self, change: f64) {
        self.waiting.increment(change);
    }

    fn histogram(&self, name: &str, error: Option<&str>) -> Histogram {
        let known = lock(&self.durations).find(name, error).cloned();
        known.unwrap_or_else(|| self.new_histogram(name, error))
    }

    #[cold]
    fn new_histogram(&self, name: &str, error: Option<&str>) -> Histogram {
        let is_full = lock(&self.durations).pairs >= PAIRS_MAX;
        let (name, error) = if is_full { (OTHER, error.map(|_| OTHER)) } else { (name, error) };
        if let Some(known) = lock(&self.durations).find(name, error) {
            return known.clone();
        }
        let mut labels =
            alloc::vec![Label::from_static_parts(SYSTEM, self.system.name()), Label::new(OPERATION, name.to_string())];
        labels.extend(error.map(|error| Label::new(ERROR_TYPE, error.to_string())));
        // Without the lock: the recorder may run an operation.
        let histogram = histogram!(OPERATION_DURATION, labels);
        lock(&self.durations).put(name, error, &histogram);
        histogram
    }

    /// The name of a server in metrics. A server may name any number of addresses.
    pub(super) fn name_of<'a>(&self, address: &'a str) -> &'a str {
        let mut names = lock(&self.names);
        if !names.contains(address) {
            if names.len() >= NAMES_MAX {
                return OTHER;
            }
            names.insert(address.to_owned());
        }
        address
    }

    pub(super) fn on_selection(&self, event: &SelectionEvent<'_>) {
        match event.stage {
            SelectionStage::Waiting { .. } => self.waiting(1.0),
            SelectionStage::Waited { .. } => self.waiting(-1.0),
            SelectionStage::Started | SelectionStage::Succeeded { .. } | SelectionStage::Failed { .. } => {}
        }
    }

    /// Registers the series of a server that the topology observes. Returns its name in metrics.
    pub(super) fn add_server<'a>(&self, address: &'a str) -> &'a str {
        let name = self.name_of(address);
        lock(&self.servers).of(name);
        name
    }

    /// The duration of a heartbeat that waits for a change is that of the server's wait.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event has a duration")]
    pub(super) fn on_heartbeat(&self, event: &MonitorEvent, address: &str) {
        let servers = &mut *lock(&self.servers);
        match event {
            MonitorEvent::HeartbeatSucceeded { awaited: false, duration, .. } => {
                record(&servers.of(self.name_of(address)).heartbeat_duration, *duration);
            }
            MonitorEvent::HeartbeatFailed { .. } => {
                servers.of(self.name_of(address)).heartbeat_failures.increment(1);
            }
            _ => {}
        }
    }

    pub(super) fn on_sdam(&self, event: &SdamEvent<'_>) {
        if let SdamEvent::TopologyDescriptionChanged { previous, new, .. } = event {
            let servers = &mut *lock(&self.servers);
            let [before, after] = [previous, new].map(|topology| primary_of(topology).map(|server| server.address()));
            // The first primary is no change.
            if after.is_some() && before != after && core::mem::replace(&mut servers.had_primary, true) {
                self.primary_changes.increment(1);
            }
            for server in new.servers().filter(|server| down(server).is_some()) {
                servers.of(self.name_of(server.address())).down_count += 1;
            }
            servers.show_down();
        }
    }
}

impl Servers {
    fn of(&mut self, name: &str) -> &mut OfServer {
        self.by_name.entry_ref(name).or_insert_with(|| OfServer {
            heartbeat_duration: histogram!(HEARTBEAT_DURATION, of_pool(name)),
            heartbeat_failures: counter!(HEARTBEAT_FAILURES, of_pool(name)),
            down: Share::new(gauge!(DOWN, of_pool(name))),
            down_count: 0,
        })
    }

    /// Shows the servers that were counted as down, and begins to count again.
    fn show_down(&mut self) {
        for server in self.by_name.values_mut() {
            server.down.set(f64::from(core::mem::take(&mut server.down_count)));
        }
    }
}

impl Durations {
    fn find(&self, name: &str, error: Option<&str>) -> Option<&Histogram> {
        let of_name = self.by_name.get(name)?;
        match error {
            None => of_name.success.as_ref(),
            Some(error) => of_name.errors.get(error),
        }
    }

    fn put(&mut self, name: &str, error: Option<&str>, histogram: &Histogram) {
        let of_name = self.by_name.entry(name.to_owned()).or_default();
        let was_new = match error {
            None => of_name.success.replace(histogram.clone()).is_none(),
            Some(error) => of_name.errors.insert(error.to_owned(), histogram.clone()).is_none(),
        };
        self.pairs += usize::from(was_new);
    }
}

impl Drop for ClientMetrics {
    fn drop(&mut self) {
        // The drop may run during a panic, in which another panic aborts the process.
        let _ = contain(|| lock(&self.servers).show_down());
    }
}

impl fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientMetrics").field("system", &self.system).finish_non_exhaustive()
    }
}
