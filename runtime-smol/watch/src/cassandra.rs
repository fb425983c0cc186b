//! A Cassandra session, its rising and falling load, and its fake nodes.

use alloc::sync::Arc;
use core::f64::consts::PI;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{
    ClusterEvent, HostOptions, HostStatus, MuxClosed, MuxEvent, MuxOptions, NodeStatus, Session, SessionOptions,
};
use poolhouse_smol::poolhouse_wire::peer_text::is_unsafe;
use poolhouse_smol::{Event, EventRef};
use smol::future::FutureExt;
use smol::{Task, Timer};

use crate::command::Command;
use crate::load::{Tally, with};
use crate::nodes::Nodes;
use crate::program::{Watched, record};
use crate::state::{CASSANDRA, DemoState, Health, Kind, Resized, Server, State, Words};

/// The number of requests in flight at the peak of the load, unless the user sets it.
const TASKS: u32 = 120;
/// The period of the load.
const SWELL: Duration = Duration::from_secs(4);
/// Requests in flight on a connection.
const REQUESTS: u32 = 16;
/// The interval of cancelled requests, and the time after which each is cancelled.
const CANCEL: (Duration, Duration) = (Duration::from_millis(700), Duration::from_millis(5));
/// The pause of a task that the load does not need.
const IDLE: Duration = Duration::from_millis(20);
/// The pause of a task after a failure.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Cassandra {
    session: Session,
    nodes: Option<Nodes>,
    tasks: u32,
}

impl Cassandra {
    /// - `hosts`: contact points; none = fake nodes.
    /// - `credential`: user and password.
    ///
    /// # Errors
    /// The message for the user.
    pub(crate) fn open(
        hosts: &[String],
        credential: Option<&(String, String)>,
        tasks: Option<u32>,
    ) -> Result<Self, String> {
        let tasks = tasks.unwrap_or(TASKS);
        let nodes = match hosts {
            [] => Some(Nodes::start().map_err(|error| format!("fake nodes: {error}"))?),
            _ => None,
        };
        let options = match &nodes {
            // Each is a cluster of its own.
            Some(nodes) => SessionOptions::new(nodes.addresses()),
            None => SessionOptions::contact_points(hosts.iter().cloned()),
        };
        let options = options.mux(small_pools(tasks)).connect_timeout(Duration::from_secs(2));
        let options = match credential {
            Some((user, password)) => options.credential(user, password),
            None => options,
        };
        let session = Session::new(options.request_timeout(Duration::from_secs(30)));
        Ok(Self { session: session.map_err(|error| error.to_string())?, nodes, tasks })
    }
}

impl Watched for Cassandra {
    fn words(&self) -> &'static Words {
        &CASSANDRA
    }

    fn introduction(&self) -> Vec<String> {
        let fakes = "Three fake Cassandra nodes in this process; \"--help\" lists the options";
        let lines = "Each host: address, version and data centre, requests in flight/orphaned/queued, \
            connections open/being established/in the trash";
        self.nodes.iter().map(|_| fakes).chain([lines]).map(str::to_owned).collect()
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(&self, started: Instant, state: &Arc<Mutex<State>>, tally: &Arc<Mutex<Tally>>) -> Vec<Task<()>> {
        with(state, |state| state.resized = Some(Resized::default()));
        let events = self.session.subscribe_where(is_shown);
        let session = self.session.clone();
        let describe = move |event: &Event, state: &mut State| {
            let event = match event {
                Event::Mux(event) => event,
                Event::Cluster(event) => return Some(describe_cluster(event)),
                Event::Pool(_) | Event::Sdam(_) | Event::Heartbeat(_) | Event::Command(_) | _ => return None,
            };
            let host = session.hosts().into_iter().find(|host| host.id == event.mux());
            let connections = host.as_ref().map_or(0, |host| host.connections.len());
            count(event, connections, state.resized.get_or_insert_default());
            let address = host.map_or("a removed host".to_owned(), |host| host.address);
            Some((kind(event), format!("{address} {event}")))
        };
        let events = record(events, started, Arc::clone(state), describe);
        let statement =
            if self.nodes.is_some() { Nodes::STATEMENT } else { "SELECT release_version FROM system.local" };
        let load =
            Load { session: self.session.clone(), statement, started, peak: self.tasks, tally: Arc::clone(tally) };
        let tasks = (0..self.tasks).map(|number| smol::spawn(load.clone().request_repeatedly(number)));
        tasks.chain([smol::spawn(load.clone().cancel_periodically()), smol::spawn(events)]).collect()
    }

    fn servers(&self) -> Vec<Server> {
        let nodes = self.session.cluster().map_or(Vec::new(), |cluster| cluster.nodes);
        let nodes: HashMap<String, NodeStatus> =
            nodes.into_iter().map(|node| (node.address.to_string(), node)).collect();
        self.session.hosts().iter().map(|host| server(host, nodes.get(&host.address))).collect()
    }

    fn demo(&self) -> Option<DemoState> {
        self.nodes.as_ref().map(Nodes::state)
    }

    /// Only the user causes faults.
    fn handle_timeout(&mut self, _: Instant) -> Option<String> {
        None
    }

    fn obey(&mut self, _: Instant, command: Command) -> Option<String> {
        let nodes = self.nodes.as_mut()?;
        Some(if command == Command::Freeze { nodes.freeze() } else { nodes.kill() })
    }

    fn shortcoming(&self, tally: &Tally, state: &State) -> Option<&'static str> {
        let resized = state.resized.unwrap_or_default();
        let has_resized = resized.grown > 0 && resized.trashed > 0 && resized.resurrected > 0;
        if tally.totals.failed > 0 {
            return Some("requests failed");
        }
        let is_short = self.nodes.is_some() && !has_resized;
        is_short.then_some("the pools did not grow, trash and resurrect connections: more time or tasks are needed")
    }

    async fn close(&self) {
        self.session.close().await;
    }
}

/// Pools that change their size within seconds: 1 to 4 connections to a host, a check for surplus
/// ones every second, and a trashed one is closed after four. A frozen host is detected in six.
fn small_pools(tasks: u32) -> MuxOptions {
    let local = HostOptions {
        core_connections: 1,
        max_connections: 4,
        max_requests_per_connection: REQUESTS,
        new_connection_threshold: REQUESTS * 3 / 4,
    };
    MuxOptions {
        local,
        max_queue_size: tasks.saturating_add(1),
        idle_timeout: Duration::from_secs(4),
        shrink_interval: Duration::from_secs(1),
        heartbeat_interval: Duration::from_secs(1),
        heartbeat_timeout: Duration::from_secs(5),
        ..MuxOptions::DEFAULT
    }
}

/// A load that rises and falls; every second peak is half as high.
#[derive(Clone)]
struct Load {
    session: Session,
    statement: &'static str,
    started: Instant,
    peak: u32,
    tally: Arc<Mutex<Tally>>,
}

impl Load {
    /// The wanted number of requests in flight.
    fn wanted(&self) -> f64 {
        let swells = self.started.elapsed().as_secs_f64() / SWELL.as_secs_f64();
        let height = if swells % 2.0 < 1.0 { 1.0 } else { 0.5 };
        f64::from(self.peak) * height * (swells * PI).sin().powi(2)
    }

    /// Both statements only read, so they are sent again when a host fails.
    async fn request(&self) -> Result<(), String> {
        let call = self.session.query(self.statement).consistency(Consistency::One).idempotent(true);
        call.send().await.map(drop).map_err(|error| error.to_string())
    }

    /// Sends requests one after another, while the load needs this task.
    async fn request_repeatedly(self, number: u32) {
        loop {
            // The first task always runs.
            if number > 0 && f64::from(number) >= self.wanted() {
                Timer::after(IDLE).await;
                continue;
            }
            let started = Instant::now();
            let outcome = self.request().await;
            let failed = outcome.is_err();
            with(&self.tally, |tally| tally.add(outcome, started.elapsed()));
            if failed {
                Timer::after(PAUSE).await;
            }
        }
    }

    /// Cancels requests before their answers, so that their stream ids are orphaned.
    async fn cancel_periodically(self) {
        let (pause, patience) = CANCEL;
        loop {
            Timer::after(pause).await;
            let answered = async { drop(self.request().await) };
            let cancelled = async {
                Timer::after(patience).await;
                with(&self.tally, |tally| tally.totals.other += 1);
            };
            answered.or(cancelled).await;
        }
    }
}

/// Whether an event is shown: not those of single requests and of healthy connections, and not those that
/// another one follows.
fn is_shown(event: &EventRef<'_>) -> bool {
    match event {
        EventRef::Mux(event) => !matches!(
            event,
            MuxEvent::StreamAcquired { .. }
                | MuxEvent::ReplyReceived { .. }
                | MuxEvent::RequestQueued { .. }
                | MuxEvent::AcquireFailed { .. }
                | MuxEvent::LateReply { .. }
                | MuxEvent::ConnectionCreated { .. }
                | MuxEvent::HeartbeatStarted { .. }
                | MuxEvent::HeartbeatSucceeded { .. }
        ),
        EventRef::Cluster(_) => true,
        EventRef::Pool(_) | EventRef::Sdam(_) | EventRef::Heartbeat(_) | EventRef::Command(_) | _ => false,
    }
}

/// - `connections`: those of the host when the event is read, the ones in the trash included.
fn count(event: &MuxEvent, connections: usize, resized: &mut Resized) {
    if matches!(event, MuxEvent::ConnectionReady { .. }) {
        resized.opened += 1;
        resized.grown += u64::from(connections > 1);
    } else if matches!(event, MuxEvent::ConnectionTrashed { .. }) {
        resized.trashed += 1;
    } else if matches!(event, MuxEvent::ConnectionResurrected { .. }) {
        resized.resurrected += 1;
    }
}

fn kind(event: &MuxEvent) -> Kind {
    let failed = matches!(
        event,
        MuxEvent::ConnectionClosed { reason: MuxClosed::Error(_), .. }
            | MuxEvent::HeartbeatFailed { .. }
            | MuxEvent::UnknownReply { .. }
    );
    if failed { Kind::Failure } else { Kind::Other }
}

fn describe_cluster(event: &ClusterEvent) -> (Kind, String) {
    let failed = matches!(
        event,
        ClusterEvent::NodeDown { .. } | ClusterEvent::ControlFailed { .. } | ClusterEvent::OtherCluster
    );
    (if failed { Kind::Failure } else { Kind::Other }, event.to_string())
}

/// - `node`: what the session has found out about the host, if it finds its cluster.
fn server(host: &HostStatus, node: Option<&NodeStatus>) -> Server {
    let state = host.state;
    let is_down = state.open == 0 || node.is_some_and(|node| !node.is_up);
    let version = if is_down { "down".to_owned() } else { format!("v{}", host.version) };
    // Names from servers may have characters that would begin another line.
    let center = node.map(|node| format!(" {}", node.data_center.replace(is_unsafe, "?")));
    Server {
        address: host.address.clone(),
        kind: version + &center.unwrap_or_default(),
        health: if is_down { Health::Out } else { Health::Good },
        detail: None,
        counts: vec![state.in_flight, state.orphaned, state.queued, state.open, state.establishing, state.trashed],
        bar_max: state.capacity,
    }
}
