//! The parameters of a run: options, faults, and their frequency.

use super::cassandra::KEYSPACES;
use super::nodes::LocalAddress;
use super::truth::{Deployment, HOSTS};
use crate::choices::{Choices, Decisions, Stream};
use crate::kind::Kind;
use core::time::Duration;
use poolhouse_core::cluster::ClusterOptions;
use poolhouse_core::monitor::{MonitorOptions, ServerMonitoringMode};
use poolhouse_core::mux::{HostOptions, MuxOptions};
use poolhouse_core::pool::{PoolOptions, Reuse};
use poolhouse_driver::pool::Options;

/// A millisecond in nanoseconds.
pub(super) const MS: u64 = 1_000_000;

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Streams of decisions, one for each part of the simulation.
#[derive(Debug)]
pub(super) struct Draws {
    /// Faults of members, and their times.
    pub(super) faults: Stream,
    /// Faults of connections and messages.
    pub(super) network: Stream,
    /// Actions of the application.
    pub(super) tasks: Stream,
    /// Faults of the host.
    pub(super) host: Stream,
    /// The order in which ready tasks are polled.
    pub(super) schedule: Stream,
    /// Unpredictable values, such as nonces.
    pub(super) entropy: Stream,
    /// Writes without an acknowledgement.
    pub(super) concerns: Stream,
    /// Changes of the keyspace of a session.
    pub(super) keyspaces: Stream,
    /// The tables and events of a Cassandra cluster, and the locations of requests.
    pub(super) nodes: Stream,
    /// The bad habits of the nodes of a Cassandra cluster.
    pub(super) habits: Stream,
}

impl Draws {
    pub(super) fn of(decisions: &Decisions) -> Self {
        Self {
            faults: decisions.stream("faults"),
            network: decisions.stream("network"),
            tasks: decisions.stream("tasks"),
            host: decisions.stream("host"),
            schedule: decisions.stream("schedule"),
            entropy: decisions.stream("entropy"),
            concerns: decisions.stream("concerns"),
            keyspaces: decisions.stream("keyspaces"),
            nodes: decisions.stream("nodes"),
            habits: decisions.stream("habits"),
        }
    }
}

/// The options of the pools of a session after the faults.
pub(super) const MUX_IN_PEACE: MuxOptions = MuxOptions {
    heartbeat_interval: Duration::from_secs(1),
    heartbeat_timeout: Duration::from_secs(1),
    ..MuxOptions::DEFAULT
};

/// Draws the options of pools.
pub(super) fn draw_pool(choices: &mut Stream) -> PoolOptions {
    let max_pool_size = choices.one_of(&[0, 1, 2, 3, 5, 8, 100]);
    let min_pool_size = choices.one_of(&[0, 0, 1, 2]);
    PoolOptions {
        max_pool_size,
        min_pool_size: if max_pool_size == 0 { min_pool_size } else { min_pool_size.min(max_pool_size) },
        max_idle_time: choices.one_of(&[None, None, Some(100), Some(3_000)]).map(Duration::from_millis),
        max_connecting: choices.one_of(&[1, 2, 3, 8]),
        wait_queue_timeout: choices.one_of(&[None, None, Some(20), Some(500)]).map(Duration::from_millis),
        ..PoolOptions::DEFAULT
    }
}

/// Draws the options of a pool of any connections.
fn draw_options(choices: &mut Stream) -> Options {
    let limit = |choices: &mut Stream, limits: &[Option<u64>]| choices.one_of(limits).map(Duration::from_millis);
    let max_size = choices.one_of(&[1, 2, 3, 8]);
    Options {
        max_size,
        min_size: choices.one_of(&[0, 0, 1, 2]).min(max_size),
        max_connecting: choices.one_of(&[2, 3, 1, 3]),
        wait_timeout: limit(choices, &[Some(5_000), None, Some(100)]),
        connect_timeout: limit(choices, &[Some(1_000), Some(200)]),
        idle_timeout: limit(choices, &[None, None, Some(100), Some(3_000)]),
        max_lifetime: limit(choices, &[None, Some(1_000)]),
        reuse: choices.one_of(&[Reuse::Newest, Reuse::Oldest]),
        check_before_reuse: !choices.one_in(3),
        max_backoff: Duration::from_millis(choices.one_of(&[5_000, 200])),
    }
}

/// Draws the options of the pools of a session. A lost connection is detected within seconds.
pub(super) fn draw_mux(choices: &mut Stream) -> MuxOptions {
    let max_connections = choices.one_of(&[1, 1, 2, 4]);
    let max_requests_per_connection = choices.one_of(&[1_024, 1, 2, 8]);
    let limits = HostOptions {
        core_connections: choices.below(max_connections) + 1,
        max_connections,
        max_requests_per_connection,
        new_connection_threshold: choices.below(max_requests_per_connection),
    };
    MuxOptions {
        local: limits,
        remote: limits,
        max_queue_size: choices.one_of(&[256, 0, 1, 4]),
        pool_timeout: Duration::from_millis(choices.one_of(&[5_000, 0, 100])),
        idle_timeout: Duration::from_millis(choices.one_of(&[120_000, 300])),
        shrink_interval: Duration::from_millis(choices.one_of(&[10_000, 100])),
        ..MUX_IN_PEACE
    }
}

/// How the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Close,
    /// The future of the close is dropped after its first poll.
    CloseDropped,
    /// The last handle of the client is dropped.
    Drop,
    /// The executor drops one of the client's tasks.
    TaskDropped,
}

/// The options of the client, except those of pools and monitors.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientPlan {
    pub(super) timeout: Option<Duration>,
    pub(super) socket_timeout: Option<Duration>,
    pub(super) server_selection_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) local_threshold: Duration,
    pub(super) retries: bool,
    pub(super) max_adaptive_retries: u32,
    pub(super) enable_overload_retargeting: bool,
}

impl ClientPlan {
    fn draw(choices: &mut Stream) -> Self {
        let limit = |choices: &mut Stream| choices.one_of(&[None, None, Some(300), Some(1_000), Some(5_000)]);
        Self {
            timeout: limit(choices).map(Duration::from_millis),
            socket_timeout: limit(choices).map(Duration::from_millis),
            server_selection_timeout: Duration::from_millis(choices.one_of(&[500, 5_000, 30_000])),
            drain_timeout: Duration::from_millis(choices.one_of(&[1_000, 0, 50, 1_000])),
            local_threshold: Duration::from_millis(choices.one_of(&[15, 0, 10_000])),
            retries: !choices.one_in(4),
            max_adaptive_retries: choices.one_of(&[2, 0, 5]),
            enable_overload_retargeting: choices.one_in(2),
        }
    }
}

/// The options of a Cassandra session, and the properties of its cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterPlan {
    /// The keyspace of the session's options.
    pub(super) keyspace: Option<&'static str>,
    /// Whether the application changes it.
    pub(super) changes_keyspace: bool,
    /// Whether the session finds its hosts. The number of members changes only then.
    pub(super) discovers: bool,
    /// Whether contact points are addresses instead of names.
    pub(super) has_addresses: bool,
    /// The number of contact points.
    contacts: usize,
    /// Whether the session has the name of the data centre.
    pub(super) is_local: bool,
    pub(super) options: ClusterOptions,
    /// Whether members have `system.peers` only, and no ports in `system.local`.
    pub(super) has_old_peers: bool,
    pub(super) local_address: LocalAddress,
    /// Whether nodes shut down slowly: they accept connections, and refuse requests on them.
    pub(super) shuts_down: bool,
    /// Whether nodes forget their prepared statements.
    pub(super) forgets: bool,
    /// Whether nodes answer on stream 0 to requests on other streams.
    pub(super) answers_on_zero: bool,
}

impl ClusterPlan {
    fn draw(choices: &mut Stream) -> Self {
        Self {
            keyspace: choices.one_of(&[None, None, Some(KEYSPACES[0])]),
            changes_keyspace: choices.one_of(&[false, true]),
            discovers: choices.one_of(&[false, true]),
            has_addresses: choices.one_of(&[false, true]),
            contacts: choices.index(3) + 1,
            is_local: choices.one_of(&[false, true]),
            options: ClusterOptions {
                debounce: Duration::from_millis(choices.one_of(&[1_000, 1, 100])),
                refresh_interval: Duration::from_millis(choices.one_of(&[30_000, 1_000, 5_000])),
                query_timeout: Duration::from_millis(choices.one_of(&[5_000, 500])),
                backoff_max: Duration::from_millis(choices.one_of(&[10_000, 500])),
                ..ClusterOptions::DEFAULT
            },
            has_old_peers: choices.one_of(&[false, false, true]),
            local_address: choices.one_of(&[LocalAddress::Own, LocalAddress::Any, LocalAddress::Null]),
            shuts_down: choices.one_of(&[false, true]),
            forgets: choices.one_of(&[false, true]),
            answers_on_zero: choices.one_of(&[false, true]),
        }
    }
}

/// All parameters that are drawn before a run begins.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) deployment: Deployment,
    /// The initial members of the set.
    pub(super) config: Vec<usize>,
    /// The seeds of the client.
    pub(super) seeds: Vec<usize>,
    /// The server of a direct connection.
    pub(super) direct: Option<usize>,
    /// Whether the client is configured with the name of the set.
    pub(super) named: bool,
    /// Whether members report their topologyVersion.
    pub(super) versioned: bool,
    /// Whether members stream replies where allowed (exhaust).
    pub(super) exhaust: bool,
    pub(super) wire: i32,
    pub(super) monitor: MonitorOptions,
    pub(super) pool: PoolOptions,
    /// The options of the pools of a Cassandra session.
    pub(super) mux: MuxOptions,
    pub(super) cluster: ClusterPlan,
    /// Whether connections authenticate.
    pub(super) login: bool,
    pub(super) heartbeat: u64,
    pub(super) connect: u64,
    pub(super) client: ClientPlan,
    /// Whether the events of the client are judged. Without a subscriber, the client emits none.
    pub(super) is_observed: bool,
    /// Whether the events of selections are judged. With a subscriber to them, each selection takes the
    /// path of those that wait.
    pub(super) observes_selections: bool,
    /// Whether the application changes the options of pools. The changes are no events, so those of
    /// pools are not judged then.
    pub(super) reconfigures: bool,
    /// Whether each host name has two addresses.
    pub(super) dual: bool,
    /// Weights of the kinds that are drawn; 0 is never.
    weights: [u32; Kind::COUNT],
    /// Percentage of faults that repeat the last kind.
    sticky: u32,
    /// Faulty messages in a thousand.
    trouble: u32,
    /// Number of faults of members.
    pub(super) faults: u32,
    /// Interval between these faults.
    pub(super) pause: u64,
    /// Mean interval between operations.
    pub(super) gap_ms: u32,
    /// The client is closed before the faults stop.
    pub(super) closes_early: bool,
    pub(super) closing: Closing,
    /// The options of a pool of any connections.
    pub(super) options: Options,
    /// A task reads the events of the client.
    pub(super) is_read: bool,
    /// The manager of a pool of any connections fails in streaks during the faults.
    pub(super) fails_often: bool,
    /// Fault points of core are armed.
    pub(super) chances: bool,
}

impl Plan {
    /// Draws all parameters: extremes are as likely as ordinary values. Some kinds never occur
    /// (swarm testing), or all kinds have equal weight, or the same kind repeats.
    ///
    /// - `cluster`: the parameters of a Cassandra session.
    pub(super) fn draw(choices: &mut Stream, cluster: &mut Stream) -> Self {
        let deployment = match choices.below(13) {
            0 => Deployment::Standalone,
            1 | 2 => Deployment::Sharded,
            3 | 4 => Deployment::Cluster,
            10..=12 => Deployment::Plain,
            _ => Deployment::Set,
        };
        let config: Vec<usize> = match deployment {
            Deployment::Standalone | Deployment::Plain => vec![0],
            Deployment::Sharded | Deployment::Cluster => (0..=choices.index(3)).collect(),
            Deployment::Set => (0..HOSTS.len()).filter(|&member| member == 0 || !choices.one_in(2)).collect(),
        };
        let mut cluster = ClusterPlan::draw(cluster);
        cluster.discovers &= deployment == Deployment::Cluster;
        let direct = (choices.one_in(10) && !matches!(deployment, Deployment::Cluster | Deployment::Plain))
            .then(|| config[choices.index(config.len())]);
        let seeds = match (direct, deployment) {
            (Some(member), _) => vec![member],
            // A set needs only one seed, the first member, which never leaves.
            (None, Deployment::Set) => (0..HOSTS.len()).filter(|&member| member == 0 || choices.one_in(3)).collect(),
            // The first member never leaves.
            (None, Deployment::Cluster) if cluster.discovers => config.iter().copied().take(cluster.contacts).collect(),
            (None, _) => config.clone(),
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
        let (faults, pause_ms) = (choices.below(40), choices.one_of(&[50_u32, 300, 2_000]));
        let span_ms = (faults + 1) * pause_ms;
        let shape = choices.below(4);
        let weights = core::array::from_fn(|place| match shape {
            _ if place >= Kind::Unacknowledged as usize => 0,
            0 => 10,
            _ if choices.one_in(4) => 0,
            _ => choices.below(100) + 1,
        });
        let (is_observed, reconfigures) = (choices.one_in(2), choices.one_in(3));
        let mut pool = draw_pool(choices);
        if is_observed && !reconfigures {
            // Time limits of operations replace it, and are no events.
            pool.wait_queue_timeout = None;
        }
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
            mux: draw_mux(choices),
            cluster,
            login: choices.one_in(3),
            heartbeat: heartbeat * MS,
            connect: connect * MS,
            client: ClientPlan::draw(choices),
            is_observed,
            reconfigures,
            dual: choices.one_in(3),
            weights,
            sticky: if shape == 1 { choices.one_of(&[50, 80, 95]) } else { 0 },
            trouble: choices.one_of(&[0, 5, 30, 100, 300]),
            faults,
            pause: u64::from(pause_ms) * MS,
            gap_ms: (span_ms
                / choices.one_of(if deployment == Deployment::Plain { &[40, 120, 400] } else { &[10, 40, 120] }))
            .max(1),
            closes_early: choices.one_in(if deployment == Deployment::Plain { 3 } else { 8 }),
            closing: choices.one_of(&[Closing::Close, Closing::CloseDropped, Closing::Drop, Closing::TaskDropped]),
            chances: choices.one_in(4),
            options: draw_options(choices),
            is_read: choices.one_in(2),
            fails_often: choices.one_in(2),
            observes_selections: is_observed && choices.one_in(2),
        }
    }

    /// A cluster of three nodes without faults.
    pub(super) fn calm_cluster(of: &Decisions) -> Self {
        let drawn = Self::draw(&mut of.stream("plan"), &mut of.stream("cluster"));
        let config = vec![0, 1, 2];
        Self {
            deployment: Deployment::Cluster,
            seeds: config.clone(),
            config,
            direct: None,
            named: false,
            cluster: ClusterPlan {
                keyspace: None,
                discovers: false,
                forgets: false,
                answers_on_zero: false,
                shuts_down: false,
                ..drawn.cluster
            },
            mux: MUX_IN_PEACE,
            client: ClientPlan { timeout: None, ..drawn.client },
            is_observed: false,
            observes_selections: false,
            dual: false,
            weights: [0; Kind::COUNT],
            sticky: 0,
            trouble: 0,
            faults: 0,
            chances: false,
            ..drawn
        }
    }

    /// Draws one of these kinds by its weight in this run, or repeats the last one; `None` when
    /// none of them can occur.
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

    /// The time in which a session that finds its hosts has found them after the faults, in addition to the
    /// time in which it connects to them.
    pub(super) fn discovery_time(&self) -> u64 {
        let ClusterOptions { refresh_interval, query_timeout, backoff_max, debounce, .. } = self.cluster.options;
        // A dead control connection is detected by the next reading. Then all nodes and contact points may
        // be tried. A host that is no longer a node is removed by the second reading.
        let attempts = 2 * HOSTS.len() as u64 + self.seeds.len() as u64;
        let of_attempts = attempts * (nanos(backoff_max) + self.connect);
        if self.cluster.discovers {
            3 * nanos(refresh_interval + debounce) + 2 * nanos(query_timeout) + of_attempts
        } else {
            0
        }
    }

    /// Whether a message is faulty. The first option of a decision is no fault, so a shrunk run has
    /// few.
    pub(super) fn is_trouble(&self, choices: &mut Stream) -> bool {
        self.trouble > 0 && choices.below(1_000) >= 1_000 - self.trouble
    }

    /// Whether a possible fault occurs now, by its weight, with a probability of at most one in
    /// four.
    pub(super) fn comes(&self, kind: Kind, choices: &mut Stream) -> bool {
        let weight = self.weights[kind as usize];
        weight > 0 && choices.below(400) >= 400 - weight
    }
}
