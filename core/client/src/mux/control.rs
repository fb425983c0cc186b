//! The control task of a session that discovers its hosts: one connection, on which the tables of
//! nodes and keyspaces are read, and the server's events arrive.
//!
//! [`Cluster`] decides what is sent and when. This task connects, sends, receives, and passes the
//! nodes to the session.

mod addresses;
mod tables;
#[cfg(test)]
mod tests;

use super::failure::LinkFailure;
use super::host::Host;
use super::link::{Established, INPUT_BYTES, KEEP_BYTES_MAX, Terms, closed, establish, write_all};
use super::options::{CONNECT_TIMEOUT_DEFAULT, CqlHost, SessionOptions, socket_address};
use super::plan::Hosts;
use super::routing::{Keyspaces, Routes};
use super::status::{ClusterStatus, NodeStatus};
use super::{Shared, UnknownDataCenter};
use crate::events::Events;
use crate::{Platform, lock};
use addresses::Addresses;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::pending;
use core::net::SocketAddr;
use core::sync::atomic::AtomicBool;
use embedded_io_async::Read as _;
use poolhouse_core::cluster::{Cluster, ClusterAction, ClusterEvent, ClusterQuery, Node, ServerEvent, Target};
use poolhouse_core::mux::{Distance, MuxOptions};
use poolhouse_core::observe::{EventContext, Within, contain};
use poolhouse_core::{Cause, Instant, Observer as _, Reason};
use poolhouse_cql::{
    Consistency, EVENT_STREAM, Envelope, ErrorCode, Event, EventKind, Limits, Outgoing, Parameters, Request, Response,
    Rows,
};
use poolhouse_driver::{Publish as _, Tap, yield_now};

/// The stream id of queries: only one is sent at a time.
const STREAM: i16 = 0;

/// The number of events that are taken before other tasks run.
const EVENTS_TURN: usize = 16;

/// The nodes by address.
type Nodes = BTreeMap<SocketAddr, Arc<Node>>;

/// What the control task has found out.
pub(super) struct Discovery {
    cluster: Cluster,
    keyspaces: Arc<Keyspaces>,
    /// Whether partitions have the tokens that this crate computes.
    has_known_tokens: bool,
    /// The nodes and keyspaces that the session has.
    published: Option<(Nodes, Arc<Keyspaces>)>,
}

impl Discovery {
    pub(super) fn new(now: Instant, options: &SessionOptions, seed: u64) -> Self {
        let cluster = Cluster::new(now, options.cluster, options.hosts.len().max(1), seed);
        Self { cluster, keyspaces: Arc::default(), has_known_tokens: false, published: None }
    }

    pub(super) fn status(&self, hosts: &Hosts) -> ClusterStatus {
        ClusterStatus {
            name: self.cluster.name().map(String::from),
            is_connected: self.cluster.is_connected(),
            nodes: self.cluster.nodes().iter().map(|(address, node)| NodeStatus::of(*address, node)).collect(),
            ignored_rows: self.cluster.ignored_rows(),
            routed_keyspaces: hosts.routes().map_or(0, |routes| routes.keyspace_count()),
            missing_data_center: hosts.missing().map(|missing| missing.data_center.clone()),
        }
    }
}

/// Runs the control task until the session is closed.
pub(super) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    // The task may have started again after a panic: its connection was dropped.
    shared.step_cluster(&EventContext::NONE, |cluster, now, tap| cluster.handle_failed(now, Cause::Cancelled, tap));
    let mut link = None;
    while shared.unless_closed(advance(&shared, &mut link)).await.is_some() {}
}

/// Executes the next action of the cluster, or waits for input or time.
async fn advance<P: Platform>(shared: &Shared<P>, link: &mut Option<Link<P>>) {
    let context = link.as_ref().map_or(EventContext::NONE, |link| link.source().context());
    let action = shared.step_cluster(&context, |cluster, now, tap| {
        cluster.handle_timeout(now, tap);
        cluster.poll_action(now)
    });
    match action.flatten() {
        Some(ClusterAction::Connect(target)) => connect(shared, link, target).await,
        Some(ClusterAction::Send(query)) => {
            let Some(link) = link else { return };
            if let Err(failure) = link.send(shared, query).await {
                fail(shared, &link.address, &failure);
            }
        }
        Some(ClusterAction::Close) => *link = None,
        Some(ClusterAction::Publish) => publish(shared).await,
        None => {
            let until = shared.discovery.as_ref().and_then(|discovery| lock(discovery).cluster.poll_timeout());
            let received = match link {
                // Only the wait for input has a limit of time: what was received is processed as a whole.
                Some(link) => match shared.until(until, link.read()).await {
                    Some(Ok(count)) => Some(link.take_in(shared, count).await),
                    Some(Err(failure)) => Some(Err(failure)),
                    None => None,
                },
                None => shared.until(until, pending()).await,
            };
            // More input may be available each time: the other tasks of the thread run first.
            if matches!(received, Some(Ok(()))) {
                yield_now().await;
            }
            if let Some(Err(failure)) = received {
                let address = link.take().map(|link| link.address).unwrap_or_default();
                fail(shared, &address, &failure);
            }
        }
    }
}

/// Opens the control connection.
async fn connect<P: Platform>(shared: &Shared<P>, link: &mut Option<Link<P>>, target: Target) {
    *link = None;
    let address = match target {
        Target::Contact(index) => shared.options.hosts.get(index).map(|host| host.address.clone()).unwrap_or_default(),
        Target::Node(node) => node.to_string(),
    };
    let timeout = Some(shared.options.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT));
    // It reads tables of the system only. A few compressed bytes could become many.
    let limits = Limits { body_bytes_max: shared.options.body_bytes_max.min(tables::BODY_BYTES_MAX) };
    let terms = Terms { keyspace: None, version: shared.options.version, compressions: &[], limits, timeout };
    match establish(shared, &address, terms, &AtomicBool::new(false), |_| ()).await {
        Ok(mut socket) => {
            let peer = socket_address(&address);
            let mut input = core::mem::take(&mut socket.leftover);
            let unread = input.len();
            input.resize(INPUT_BYTES.max(unread), 0);
            let context = EventContext::of_server(&address);
            shared.step_cluster(&context, |cluster, now, tap| cluster.handle_connected(now, peer, tap));
            let (unread, envelopes) = (Some(unread), Vec::new());
            *link = Some(Link { socket, address, peer, asked: None, input, unread, envelopes });
        }
        Err(failure) => fail(shared, &address, &failure),
    }
}

/// Reports that the control connection was not established, or has ended.
fn fail<P: Platform>(shared: &Shared<P>, address: &str, failure: &LinkFailure) {
    let context = EventContext::of_server(address).with_reason(&failure.reason);
    shared.step_cluster(&context, |cluster, now, tap| cluster.handle_failed(now, failure.cause, tap));
}

/// The control connection.
struct Link<P: Platform> {
    socket: Established<P>,
    /// The address of the contact point or node.
    address: String,
    /// The same, as the cluster has it.
    peer: Option<SocketAddr>,
    /// The query without an answer.
    asked: Option<ClusterQuery>,
    input: Vec<u8>,
    /// Number of bytes of the input that were received with the end of the handshake. They are processed even
    /// if there are none: the decoder may hold envelopes of the last segment.
    unread: Option<usize>,
    envelopes: Vec<u8>,
}

/// The node that has sent an envelope.
#[derive(Clone, Copy)]
struct Source<'a> {
    address: &'a str,
    peer: Option<SocketAddr>,
}

impl<'a> Source<'a> {
    const fn context(self) -> EventContext<'a> {
        EventContext::of_server(self.address)
    }
}

impl<P: Platform> Link<P> {
    const fn source(&self) -> Source<'_> {
        Source { address: self.address.as_str(), peer: self.peer }
    }

    async fn send(&mut self, shared: &Shared<P>, query: ClusterQuery) -> Result<(), LinkFailure> {
        let parameters = Parameters::new(Consistency::One);
        let request = match query {
            ClusterQuery::Register => Request::Register(&EventKind::ALL),
            ClusterQuery::Local => Request::Query { text: tables::LOCAL, parameters },
            ClusterQuery::OldLocal => Request::Query { text: tables::OLD_LOCAL, parameters },
            ClusterQuery::Peers => Request::Query { text: tables::PEERS, parameters },
            ClusterQuery::OldPeers => Request::Query { text: tables::OLD_PEERS, parameters },
            ClusterQuery::Keyspaces => Request::Query { text: tables::KEYSPACES, parameters },
        };
        let Self { socket, asked, envelopes, .. } = self;
        *asked = Some(query);
        envelopes.clear();
        request.encode(envelopes, Outgoing::new(socket.version, STREAM), &shared.options.limits())?;
        let mut segments = Vec::new();
        let bytes = if socket.encoder.is_plain() {
            &*envelopes
        } else {
            socket.encoder.encode(envelopes, &mut segments)?;
            &segments
        };
        let until = shared.discovery.as_ref().and_then(|discovery| lock(discovery).cluster.poll_timeout());
        // A write that does not end in time is a query without an answer.
        shared.until(until, write_all::<P>(&mut socket.stream, bytes)).await.unwrap_or(Ok(()))
    }

    /// Reads once. Dropping the future loses no byte.
    async fn read(&mut self) -> Result<usize, LinkFailure> {
        if let Some(unread) = self.unread.take() {
            return Ok(unread);
        }
        match self.socket.stream.read(&mut self.input).await {
            Ok(0) => Err(closed()),
            Ok(count) => Ok(count),
            Err(error) => Err(LinkFailure::of_stream::<P>(error)),
        }
    }

    /// Processes this number of bytes of the input, and gives memory back.
    async fn take_in(&mut self, shared: &Shared<P>, count: usize) -> Result<(), LinkFailure> {
        let Self { socket, address, peer, asked, input, .. } = self;
        let from = Source { address, peer: *peer };
        let mut bytes = input.get(..count).unwrap_or_default();
        let mut events = 0;
        loop {
            let step = socket.decoder.decode(bytes)?;
            bytes = bytes.get(step.consumed_bytes..).unwrap_or_default();
            let Some(envelope) = step.envelope else { break };
            match envelope.header.stream {
                EVENT_STREAM => {
                    take_event(shared, from, &envelope);
                    pause(events, EVENTS_TURN).await;
                    events += 1;
                }
                STREAM => {
                    let query = asked.take().ok_or(Cause::Protocol)?;
                    take_answer(shared, from, query, &envelope).await;
                }
                _ => return Err(Cause::Protocol.into()),
            }
        }
        for buffer in socket.decoder.idle_memory().into_iter().flatten() {
            buffer.shrink_to(KEEP_BYTES_MAX);
        }
        Ok(())
    }
}

/// Takes an event of the server. Those that are malformed or unknown are ignored.
fn take_event<P: Platform>(shared: &Shared<P>, from: Source<'_>, envelope: &Envelope<'_>) {
    let Ok(Response::Event(event)) = envelope.response() else { return };
    let status = |node: SocketAddr, is_up| {
        let node = Addresses::new(&shared.options, from.peer).of(node.ip(), Some(node.port()))?;
        Some(ServerEvent::Status { node, is_up })
    };
    let event = match event {
        Event::Topology { .. } => ServerEvent::Topology,
        Event::Status { change: change @ ("UP" | "DOWN"), node } => {
            let Some(event) = status(node, change == "UP") else { return };
            event
        }
        Event::Schema(_) => {
            shared.forget_statements();
            ServerEvent::Schema
        }
        Event::Status { .. } | Event::Other { .. } | _ => return,
    };
    shared.step_cluster(&from.context(), |cluster, now, tap| cluster.handle_event(now, event, tap));
    // The node may have left and returned so quickly that the cluster has it as available.
    if let ServerEvent::Status { node, is_up: true } = event {
        let hosts = shared.hosts();
        if let Some(host) = hosts.by_address(&node.to_string()) {
            shared.step(host, |change| change.handle_host_up());
        }
    }
}

/// An answer that a query cannot have, or the server's error.
struct Unusable {
    /// The server has no such table or column.
    is_invalid: bool,
}

async fn take_answer<P: Platform>(shared: &Shared<P>, from: Source<'_>, query: ClusterQuery, envelope: &Envelope<'_>) {
    if let Err(Unusable { is_invalid }) = try_answer(shared, from, query, envelope).await {
        shared.step_cluster(&from.context(), |cluster, now, tap| cluster.handle_query_failed(now, is_invalid, tap));
    }
}

async fn try_answer<P: Platform>(
    shared: &Shared<P>,
    from: Source<'_>,
    query: ClusterQuery,
    envelope: &Envelope<'_>,
) -> Result<(), Unusable> {
    let Some(discovery) = &shared.discovery else { return Ok(()) };
    let addresses = Addresses::new(&shared.options, from.peer);
    let context = from.context();
    match query {
        ClusterQuery::Register => match envelope.response() {
            Ok(Response::Ready) => {
                // Changes of the schema may have been missed until now.
                shared.forget_statements();
                shared.step_cluster(&context, |cluster, _, _| cluster.handle_registered());
            }
            other => return Err(unusable(other.ok())),
        },
        ClusterQuery::Local | ClusterQuery::OldLocal => {
            let rows = rows_of(envelope, 1)?;
            let row = tables::local_row(rows, &addresses).ok_or(Unusable { is_invalid: false })?;
            lock(discovery).has_known_tokens = tables::has_known_tokens(rows);
            shared.step_cluster(&context, |cluster, now, tap| cluster.handle_local(now, row, tap));
        }
        ClusterQuery::Peers | ClusterQuery::OldPeers => {
            let rows = rows_of(envelope, tables::ROWS_MAX)?;
            // Before the lock is taken, which the status of the cluster needs.
            let peers = tables::peers(rows, &addresses).await;
            shared.step_cluster(&context, |cluster, now, tap| cluster.handle_peers(now, peers, tap));
        }
        ClusterQuery::Keyspaces => {
            let rows = rows_of(envelope, tables::KEYSPACES_MAX)?;
            let found = tables::keyspaces(rows, shared.options.local_data_center.as_deref()).await;
            lock(discovery).keyspaces = Arc::new(found);
            shared.step_cluster(&context, |cluster, _, _| cluster.handle_keyspaces());
        }
    }
    Ok(())
}

fn unusable(response: Option<Response<'_>>) -> Unusable {
    let is_invalid = matches!(response, Some(Response::Error(failure)) if failure.code == ErrorCode::INVALID);
    Unusable { is_invalid }
}

/// The rows of an answer, if there are not too many.
fn rows_of<'a>(envelope: &Envelope<'a>, rows_max: usize) -> Result<Rows<'a>, Unusable> {
    match envelope.response() {
        Ok(Response::Result(outcome)) => {
            let rows = outcome.rows_within(tables::COLUMNS_MAX, rows_max);
            rows.ok().flatten().ok_or(Unusable { is_invalid: false })
        }
        other => Err(unusable(other.ok())),
    }
}

/// The maximum number of data centres that an error names.
const SHOWN_MAX: usize = 16;

impl UnknownDataCenter {
    /// `None` if a node is in the data centre, or no node is known.
    fn of(name: &str, nodes: &Nodes) -> Option<Self> {
        let found: BTreeSet<&str> = nodes.values().map(|node| node.data_center.as_str()).collect();
        if found.is_empty() || found.contains(name) {
            return None;
        }
        Some(Self { data_center: name.into(), found: found.into_iter().take(SHOWN_MAX).map(String::from).collect() })
    }
}

/// The hosts of these nodes, and the nodes that the application does not want. Of each other data centre than
/// the local one, as many nodes as `remote_hosts` are remote, available ones first, and the others are ignored.
async fn hosts_of(nodes: &Nodes, options: &SessionOptions) -> (Vec<CqlHost>, BTreeSet<SocketAddr>) {
    let (local, remote_max) = (options.local_data_center.as_deref(), options.remote_hosts);
    let mut remote_counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut hosts, mut unwanted) = (Vec::with_capacity(nodes.len()), BTreeSet::new());
    let (up, down) = (nodes.iter().filter(|(_, node)| node.is_up), nodes.iter().filter(|(_, node)| !node.is_up));
    for (number, (address, node)) in up.chain(down).enumerate() {
        let filter = options.host_filter.as_ref();
        let is_wanted =
            filter.is_none_or(|filter| contain(|| filter(&NodeStatus::of(*address, node))).unwrap_or(false));
        let distance = if !is_wanted {
            unwanted.insert(*address);
            Distance::Ignored
        } else if local.is_none_or(|local| local == node.data_center) {
            Distance::Local
        } else {
            let count = remote_counts.entry(&node.data_center).or_default();
            *count += 1;
            if *count <= remote_max { Distance::Remote } else { Distance::Ignored }
        };
        hosts.push(CqlHost { address: address.to_string(), distance });
        pause(number, NODES_TURN).await;
    }
    (hosts, unwanted)
}

/// The number of nodes that are looked at before other tasks run.
const NODES_TURN: usize = 256;

/// Lets the other tasks of the thread run after each `turn` of the parts of a long computation.
pub(super) async fn pause(number: usize, turn: usize) {
    if number % turn == turn - 1 {
        yield_now().await;
    }
}

/// Whether the nodes are the same, apart from their availability: then they have the same replicas.
fn have_same_places(known: &Nodes, nodes: &Nodes) -> bool {
    let mut pairs = known.iter().zip(nodes);
    known.len() == nodes.len()
        && pairs.all(|((address, node), (other_address, other))| {
            address == other_address
                && (Arc::ptr_eq(node, other)
                    || (&node.data_center, &node.rack, &node.tokens)
                        == (&other.data_center, &other.rack, &other.tokens))
        })
}

/// Creates the hosts that are new.
pub(super) async fn create_hosts<P: Platform>(
    shared: &Shared<P>,
    before: &Hosts,
    wanted: &[CqlHost],
) -> Vec<Arc<Host>> {
    let mux = *lock(&shared.mux);
    let mut created = Vec::new();
    for host in wanted.iter().filter(|host| before.by_address(&host.address).is_none()) {
        // They were valid with another distance.
        let Ok(config) = (MuxOptions { distance: host.distance, ..mux }).validate() else { break };
        created.push(shared.new_host(host, config));
        pause(created.len(), NODES_TURN).await;
    }
    created
}

/// Passes the nodes to the session, if they have changed.
async fn publish<P: Platform>(shared: &Shared<P>) {
    let Some(discovery) = &shared.discovery else { return };
    let (nodes, keyspaces, published) = {
        let discovery = lock(discovery);
        let keyspaces = if discovery.has_known_tokens { Arc::clone(&discovery.keyspaces) } else { Arc::default() };
        (discovery.cluster.nodes().clone(), keyspaces, discovery.published.clone())
    };
    yield_now().await;
    let options = &shared.options;
    let local = options.local_data_center.as_deref();
    let (mut hosts, unwanted) = hosts_of(&nodes, options).await;
    shared.step_cluster(&EventContext::NONE, |cluster, _, _| cluster.ignore(unwanted));
    // A host that is no longer a node takes no new requests, and its pool stays until those in flight
    // have ended.
    let before = shared.hosts();
    let mut leaving = Vec::new();
    for (number, host) in before.all().iter().enumerate() {
        pause(number, NODES_TURN).await;
        if host.address.parse().is_ok_and(|address: SocketAddr| nodes.contains_key(&address)) {
            continue;
        }
        let is_needed = host.look(shared.now(), |mux, _, _| {
            mux.config().options().distance != Distance::Ignored || mux.state().in_flight > 0
        });
        if is_needed {
            leaving.push(CqlHost { address: host.address.clone(), distance: Distance::Ignored });
        }
    }
    let (is_known, has_known_nodes, has_known_keyspaces) = match &published {
        Some((known, routed)) => (*known == nodes, have_same_places(known, &nodes), *routed == keyspaces),
        None => (false, false, false),
    };
    if is_known && has_known_keyspaces && before.all().len() == hosts.len() + leaving.len() {
        return;
    }
    let has_local = hosts.iter().any(|host| host.distance == Distance::Local);
    let missing = local.and_then(|name| UnknownDataCenter::of(name, &nodes)).map(Arc::new);
    let routes = if has_known_nodes && has_known_keyspaces {
        before.routes().cloned()
    } else {
        Routes::new(&nodes, &keyspaces, local).await.ok().map(Arc::new)
    };
    yield_now().await;
    hosts.extend(leaving);
    let created = create_hosts(shared, &before, &hosts).await;
    let complete = |hosts: Hosts| hosts.with_routes(routes).with_missing(missing);
    // The options were valid at the creation of the session.
    let Ok([hosts, removed]) = shared.replace_hosts(&hosts, &created, complete) else { return };
    // At once, because nobody else would close them if the session is closed meanwhile.
    shared.reconfigure(&[], &removed);
    for hosts in hosts.chunks(NODES_TURN) {
        yield_now().await;
        shared.reconfigure(hosts, &[]);
    }
    lock(discovery).published = Some((nodes, keyspaces));
    // After the hosts, so that a subscriber finds the names of the data centres in the status.
    if !has_known_nodes && !has_local {
        let is_missing = shared.hosts().missing().is_some();
        let reason = if is_missing { Reason::new(shared.no_host(false)) } else { Reason::NONE };
        let context = EventContext::NONE.with_reason(&reason);
        shared.step_cluster(&context, |_, now, tap| tap.on_event(now, &ClusterEvent::NoLocalNodes));
    }
}

impl<P: Platform> Shared<P> {
    /// Changes the cluster under its lock. `None` without one.
    ///
    /// - `context`: of the events.
    fn step_cluster<T>(
        &self,
        context: &EventContext<'_>,
        change: impl FnOnce(&mut Cluster, Instant, &mut Within<'_, Tap<'_, Events>>) -> T,
    ) -> Option<T> {
        let discovery = self.discovery.as_ref()?;
        let result = {
            let (now, mut discovery) = (self.now(), lock(discovery));
            change(&mut discovery.cluster, now, &mut Within::new(Tap::new(&self.events), *context))
        };
        self.events.deliver();
        Some(result)
    }

    /// Runs `work` until `at`. `None` if it has not ended then.
    pub(super) async fn until<T>(&self, at: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
        match at {
            Some(at) => crate::resolver::before(self.runtime.platform(), at, work).await,
            None => Some(work.await),
        }
    }
}
