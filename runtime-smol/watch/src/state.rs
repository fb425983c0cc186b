//! What is shown: by the screen, by the page and by the lines.

use alloc::collections::VecDeque;
use core::fmt;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of samples that are kept: the longest chart.
pub(crate) const SAMPLES_MAX: usize = 120;
/// The number of events that are kept: the longest list.
pub(crate) const EVENTS_MAX: usize = 50;

/// The words for the servers of a database and their values, on the screen, on the page and in the lines.
#[derive(Debug)]
pub(crate) struct Words {
    /// The fake servers.
    pub(crate) fakes: &'static str,
    /// The operations of [`Totals::other`].
    pub(crate) other: &'static str,
    /// The title of [`Server::kind`], and its columns on a screen, with a space after it.
    pub(crate) kind: (&'static str, usize),
    /// The title of [`Server::detail`]; `None` = servers have none.
    pub(crate) detail: Option<&'static str>,
    pub(crate) bar: &'static str,
    /// The titles of [`Server::counts`], on a screen and on the page.
    pub(crate) counts: &'static [(&'static str, &'static str)],
    /// The place of the count of those who wait for a connection.
    pub(crate) waiting: usize,
}

/// The words for MongoDB.
pub(crate) const MONGODB: Words = Words {
    fakes: "fake replica set in this process",
    other: "retried",
    kind: ("type", 13),
    detail: Some("RTT"),
    bar: "pool",
    counts: &[("use", "in use"), ("idle", "idle"), ("new", "establishing"), ("wait", "waiting")],
    waiting: 3,
};

/// The words for Cassandra.
pub(crate) const CASSANDRA: Words = Words {
    fakes: "fake Cassandra nodes in this process",
    other: "cancelled",
    kind: ("version, DC", 15),
    detail: None,
    bar: "load",
    counts: &[
        ("sent", "in flight"),
        ("late", "orphaned"),
        ("queue", "queued"),
        ("open", "connections"),
        ("new", "establishing"),
        ("trash", "in the trash"),
    ],
    waiting: 2,
};

impl Default for &Words {
    fn default() -> Self {
        &MONGODB
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) words: &'static Words,
    /// Since the start.
    pub(crate) time: Duration,
    /// Warnings about the connection string.
    pub(crate) warnings: Vec<String>,
    /// The page's address.
    pub(crate) page: Option<String>,
    /// The state of the fake servers; `None` = the servers are not in this process.
    pub(crate) demo: Option<DemoState>,
    pub(crate) totals: Totals,
    /// How the pools of a session have changed their size.
    pub(crate) resized: Option<Resized>,
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
    /// The address of the frozen server.
    pub(crate) frozen: Option<String>,
    /// What the commands `FailOver` and `Freeze` do next.
    pub(crate) commands: [String; 2],
}

/// Operations since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) succeeded: u64,
    /// MongoDB: retried once. Cassandra: cancelled before the answer, on purpose.
    pub(crate) other: u64,
    pub(crate) failed: u64,
}

/// Connections of a session since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resized {
    pub(crate) opened: u64,
    /// Of the opened ones, those to hosts that had another one.
    pub(crate) grown: u64,
    pub(crate) trashed: u64,
    pub(crate) resurrected: u64,
}

impl fmt::Display for Resized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { opened, grown, trashed, resurrected } = self;
        write!(f, "{opened} opened, {grown} of them for load; {trashed} trashed, {resurrected} resurrected")
    }
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

/// The condition of a server, which sets its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    Plain,
    Out,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    /// MongoDB: its type. Cassandra: its protocol version, or that it is down, and its data centre.
    pub(crate) kind: String,
    pub(crate) health: Health,
    pub(crate) detail: Option<String>,
    /// With the titles of [`Words::counts`]. The first three are drawn as a bar.
    pub(crate) counts: Vec<u32>,
    /// The length of the bar, unless the counts are more.
    pub(crate) bar_max: u32,
}

/// The meaning of an event, which sets its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The user or the program did this to the fake servers.
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
            "{:6.1} s  {} operations/s, p50 {} us, p99 {} us; succeeded {}, {} {}, failed {}",
            self.time.as_secs_f64(),
            sample.rate,
            sample.p50_us,
            sample.p99_us,
            totals.succeeded,
            self.words.other,
            totals.other,
            totals.failed
        );
        if let Some(resized) = self.resized {
            line.push_str(&format!("; connections: {resized}"));
        }
        for Server { address, kind, counts, .. } in &self.servers {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            line.push_str(&format!(" | {address} {kind} {}", counts.join("/")));
        }
        line
    }
}
