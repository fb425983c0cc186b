//! How a life is drawn: options, what goes wrong in it, and how often.

use super::kind::Kind;
use super::truth::{Deployment, HOSTS};
use crate::choices::{Choices, Decisions, Stream};
use core::time::Duration;
use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
use poolhouse_core::pool::PoolOptions;

/// A millisecond in nanoseconds.
pub(super) const MS: u64 = 1_000_000;

/// Streams of decisions, one for each part of the world.
#[derive(Debug)]
pub(super) struct Draws {
    /// What happens to members, and when.
    pub(super) faults: Stream,
    /// What becomes of connections and messages.
    pub(super) network: Stream,
    /// What the application does.
    pub(super) tasks: Stream,
    /// What the host does.
    pub(super) host: Stream,
    /// What nobody can predict.
    pub(super) entropy: Stream,
}

impl Draws {
    pub(super) fn of(decisions: &Decisions) -> Self {
        Self {
            faults: decisions.stream("faults"),
            network: decisions.stream("network"),
            tasks: decisions.stream("tasks"),
            host: decisions.stream("host"),
            entropy: decisions.stream("entropy"),
        }
    }
}

/// Where the pools keep their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Heap,
    /// In place, with room for 2 connections and 2 check-outs that wait.
    Fixed2,
}

/// Everything that is settled before a life begins.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) deployment: Deployment,
    /// Who belongs to it at first.
    pub(super) config: Vec<usize>,
    /// Whom the client is told of.
    pub(super) seeds: Vec<usize>,
    /// The one server of a direct connection.
    pub(super) direct: Option<usize>,
    /// The client is told the name of the set.
    pub(super) named: bool,
    /// Members say their topologyVersion.
    pub(super) versioned: bool,
    /// Members answer without being asked, where they may.
    pub(super) exhaust: bool,
    pub(super) wire: i32,
    pub(super) monitor: MonitorOptions,
    pub(super) pool: PoolOptions,
    pub(super) store: Store,
    /// Connections prove who is calling.
    pub(super) login: bool,
    pub(super) heartbeat: u64,
    pub(super) connect: u64,
    /// After so long an operation gives its reply up.
    pub(super) op_timeout: u64,
    /// Somebody waits for a primary.
    pub(super) selecting: bool,
    /// How often each kind comes, of those that are drawn; 0 is never.
    weights: [u32; Kind::COUNT],
    /// In how many of a hundred faults the last kind comes again.
    sticky: u32,
    /// In how many of a thousand messages something goes wrong.
    trouble: u32,
    /// How many times something happens to members.
    pub(super) faults: u32,
    /// Between one such time and the next.
    pub(super) pause: u64,
    /// Between one task and the next, in the mean.
    pub(super) task_gap_ms: u32,
    /// The client closes in the middle.
    pub(super) closes_early: bool,
    /// Core does what it hardly ever does.
    pub(super) chances: bool,
}

impl Plan {
    /// Draws everything: extremes are as likely as ordinary values, and some kinds never come (swarm testing), or all come alike, or the
    /// same comes again and again.
    pub(super) fn draw(choices: &mut Stream) -> Self {
        let deployment = match choices.below(8) {
            0 => Deployment::Standalone,
            1 | 2 => Deployment::Sharded,
            _ => Deployment::Set,
        };
        let config: Vec<usize> = match deployment {
            Deployment::Standalone => vec![0],
            Deployment::Sharded => (0..=choices.index(3)).collect(),
            Deployment::Set => (0..HOSTS.len()).filter(|&member| member == 0 || !choices.one_in(2)).collect(),
        };
        let direct = choices.one_in(10).then(|| config[choices.index(config.len())]);
        let seeds = match (direct, deployment) {
            (Some(member), _) => vec![member],
            // Of a set one is enough; it never leaves.
            (None, Deployment::Set) => (0..HOSTS.len()).filter(|&member| member == 0 || choices.one_in(3)).collect(),
            (None, Deployment::Sharded | Deployment::Standalone) => config.clone(),
        };
        let heartbeat = choices.one_of(&[500, 1_000, 10_000]);
        let connect = choices.one_of(&[200, 1_000, 10_000]);
        let modes = [ServerMonitoringMode::Auto, ServerMonitoringMode::Stream, ServerMonitoringMode::Poll];
        let monitor = MonitorOptions {
            heartbeat_frequency: Duration::from_millis(heartbeat),
            connect_timeout: Some(Duration::from_millis(connect)),
            server_monitoring_mode: choices.one_of(&modes),
            ..MonitorOptions::DEFAULT
        };
        let max_pool_size = choices.one_of(&[0, 1, 2, 3, 5, 8, 100]);
        let min_pool_size = choices.one_of(&[0, 0, 1, 2]);
        let pool = PoolOptions {
            max_pool_size,
            min_pool_size: if max_pool_size == 0 { min_pool_size } else { min_pool_size.min(max_pool_size) },
            max_idle_time: choices.one_of(&[None, None, Some(100), Some(3_000)]).map(Duration::from_millis),
            max_connecting: choices.one_of(&[1, 2, 3, 8]),
            wait_queue_timeout: choices.one_of(&[None, None, Some(20), Some(500)]).map(Duration::from_millis),
            ..PoolOptions::DEFAULT
        };
        let (faults, pause_ms) = (choices.below(40), choices.one_of(&[50_u32, 300, 2_000]));
        let span_ms = (faults + 1) * pause_ms;
        let shape = choices.below(4);
        let weights = core::array::from_fn(|_| match shape {
            0 => 10,
            _ if choices.one_in(4) => 0,
            _ => choices.below(100) + 1,
        });
        Self {
            deployment,
            config,
            seeds,
            direct,
            named: deployment == Deployment::Set && choices.one_in(2),
            versioned: !choices.one_in(4),
            exhaust: !choices.one_in(4),
            wire: choices.one_of(&[16, 17, 21, 25]),
            monitor,
            pool,
            store: choices.one_of(&[Store::Heap, Store::Heap, Store::Heap, Store::Fixed2]),
            login: choices.one_in(3),
            heartbeat: heartbeat * MS,
            connect: connect * MS,
            op_timeout: u64::from(choices.one_of(&[300_u32, 1_000, 5_000])) * MS,
            selecting: !choices.one_in(3),
            weights,
            sticky: if shape == 1 { choices.one_of(&[50, 80, 95]) } else { 0 },
            trouble: choices.one_of(&[0, 5, 30, 100, 300]),
            faults,
            pause: u64::from(pause_ms) * MS,
            task_gap_ms: (span_ms / choices.one_of(&[10, 40, 120])).max(1),
            closes_early: choices.one_in(8),
            chances: choices.one_in(4),
        }
    }

    /// One of these kinds, as likely as its weight in this life, or perhaps the last one again; `None` when none of them ever comes.
    pub(super) fn pick(&self, among: &[Kind], last: Option<Kind>, choices: &mut Stream) -> Option<Kind> {
        if let Some(last) =
            last.filter(|last| self.sticky > 0 && among.contains(last) && choices.below(100) < self.sticky)
        {
            return Some(last);
        }
        let sum: u32 = among.iter().map(|kind| self.weights[*kind as usize]).sum();
        if sum == 0 {
            return None;
        }
        let mut at = choices.below(sum);
        among.iter().copied().find(|kind| {
            let weight = self.weights[*kind as usize];
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        })
    }

    /// Whether something goes wrong with a message.
    pub(super) fn is_trouble(&self, choices: &mut Stream) -> bool {
        self.trouble > 0 && choices.below(1_000) < self.trouble
    }

    /// Whether a kind comes now that could come: more often the heavier it is, up to every fourth time.
    pub(super) fn comes(&self, kind: Kind, choices: &mut Stream) -> bool {
        let weight = self.weights[kind as usize];
        weight > 0 && choices.below(400) < weight
    }
}
