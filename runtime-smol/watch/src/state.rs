//! What is shown: by the screen, by the page and by the lines.

use alloc::collections::VecDeque;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use poolhouse_smol::{PoolCounts, ServerStatus, ServerType};

/// The number of samples that are kept: the longest chart.
pub(crate) const SAMPLES_MAX: usize = 120;
/// The number of events that are kept: the longest list.
pub(crate) const EVENTS_MAX: usize = 50;

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Since the start.
    pub(crate) time: Duration,
    /// Warnings about the connection string.
    pub(crate) warnings: Vec<String>,
    /// The page's address.
    pub(crate) page: Option<String>,
    /// The state of the fake replica set; `None` = the servers are not in this process.
    pub(crate) demo: Option<DemoState>,
    pub(crate) totals: Totals,
    /// Oldest first.
    pub(crate) samples: VecDeque<Sample>,
    pub(crate) servers: Vec<Server>,
    /// Oldest first.
    pub(crate) events: VecDeque<Event>,
    /// Whether the primary has changed since the last sample.
    pub(crate) primary_changed: bool,
    /// Whether any server was primary since the start.
    pub(crate) has_had_primary: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DemoState {
    /// The address of the frozen member.
    pub(crate) frozen: Option<String>,
}

/// Operations since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) succeeded: u64,
    pub(crate) retried: u64,
    pub(crate) failed: u64,
}

/// Measurements of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Operations a second.
    pub(crate) rate: u64,
    /// Quantiles of the operations' latency, with the wait for a connection; 0 without operations.
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// Whether the primary changed.
    pub(crate) failover: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) server_type: ServerType,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) counts: PoolCounts,
    /// The limit of its connections; 0 = none.
    pub(crate) connections_max: u32,
}

impl Server {
    pub(crate) fn new(status: ServerStatus, connections_max: u32) -> Self {
        Self {
            address: status.address,
            server_type: status.server_type,
            round_trip: status.round_trip_average,
            counts: status.pool.counts,
            connections_max,
        }
    }
}

/// The meaning of an event, which sets its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The user or the program did this to the fake set.
    Done,
    /// A server became primary.
    Primary,
    Failure,
    Other,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Primary => "primary",
            Self::Failure => "failure",
            Self::Other => "other",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Since the start.
    pub(crate) at: Duration,
    /// Since the Unix epoch.
    pub(crate) unix_ms: u64,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl State {
    pub(crate) fn add_sample(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        let failover = core::mem::take(&mut self.primary_changed);
        self.samples.push_back(Sample { failover, ..sample });
    }

    /// The latest sample.
    pub(crate) fn sample(&self) -> Sample {
        self.samples.back().copied().unwrap_or_default()
    }

    /// - `at`: since the start; what the event caused may have been added before it.
    pub(crate) fn add_event(&mut self, at: Duration, kind: Kind, text: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        if kind == Kind::Primary {
            // The first primary is found, and does not replace another one.
            self.primary_changed |= self.has_had_primary;
            self.has_had_primary = true;
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let index = self.events.partition_point(|event| event.at <= at);
        self.events.insert(index, Event { at, unix_ms, kind, text });
    }

    /// The state on one line.
    pub(crate) fn line(&self) -> String {
        let (sample, totals) = (self.sample(), self.totals);
        let mut line = format!(
            "{:6.1} s  {} operations/s, p50 {} us, p99 {} us; succeeded {}, retried {}, failed {}",
            self.time.as_secs_f64(),
            sample.rate,
            sample.p50_us,
            sample.p99_us,
            totals.succeeded,
            totals.retried,
            totals.failed
        );
        for Server { address, server_type, counts, .. } in &self.servers {
            line.push_str(&format!(
                " | {address} {} {}/{}/{}/{}",
                server_type.name(),
                counts.in_use,
                counts.available,
                counts.pending,
                counts.waiting
            ));
        }
        line
    }
}
