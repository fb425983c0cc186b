//! The control task of a session that discovers its hosts: one connection, on which the tables of
//! nodes and keyspaces are read, and the server's events arrive.
//!
//! [`Cluster`] decides what is sent and when. This task connects, sends, receives, and passes the
//! nodes to the session.

#[cfg(test)]
mod tests;

use super::link::{Established, INPUT_BYTES, establish, write_all};
use super::options::{CONNECT_TIMEOUT_DEFAULT, CqlHost, SessionOptions, socket_address};
use super::routing::Routes;
use super::status::{ClusterStatus, NodeStatus};
use super::{HostStatus, Shared};
use crate::net::Net;
use crate::{Platform, lock};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::pending;
use core::net::SocketAddr;
use embedded_io_async::Read as _;
use poolhouse_core::cluster::{
    Cluster, ClusterAction, ClusterEvent, ClusterQuery, LocalRow, NODES_MAX, Node, NodeRow, ServerEvent, Target,
};
use poolhouse_core::mux::Distance;
use poolhouse_core::{Cause, Instant, Observer as _};
use poolhouse_cql::{
    Cells, Consistency, EVENT_STREAM, Elements, Envelope, ErrorCode, Event, EventKind, Outgoing, Pairs, Parameters,
    RING_TOKENS_MAX, Replication, Request, Response, Rows, Token, read_inet,
};
use poolhouse_driver::{Publish as _, Runtime as _, Tap, yield_now};

/// The stream id of queries: only one is sent at a time.
const STREAM: i16 = 0;

/// The maximum number of rows of other nodes in an answer. Many of them may be surplus.
const ROWS_MAX: usize = 16 * NODES_MAX;

/// The maximum number of keyspaces that are routed by token.
const KEYSPACES_MAX: usize = 4096;

/// Nodes by address, and keyspaces with their replication.
type Published = (BTreeMap<SocketAddr, Node>, Vec<(String, Replication)>);

/// What the control task has found out.
pub(super) struct Discovery {
    cluster: Cluster,
    keyspaces: Vec<(String, Replication)>,
    /// Whether partitions have the tokens that this crate computes.
    has_known_tokens: bool,
    /// The nodes and keyspaces that the session has.
    published: Option<Published>,
}

impl Discovery {
    pub(super) fn new(now: Instant, options: &SessionOptions, seed: u64) -> Self {
        let cluster = Cluster::new(now, options.cluster, options.hosts.len().max(1), seed);
        Self { cluster, keyspaces: Vec::new(), has_known_tokens: false, published: None }
    }

    pub(super) fn status(&self, routed_keyspaces: usize) -> ClusterStatus {
        let nodes = self.cluster.nodes().iter().map(|(address, node)| NodeStatus {
            address: *address,
            data_center: node.data_center.clone(),
            rack: node.rack.clone(),
            token_count: node.tokens.len(),
            is_up: node.is_up,
        });
        ClusterStatus {
            name: self.cluster.name().map(String::from),
            is_connected: self.cluster.is_connected(),
            nodes: nodes.collect(),
            routed_keyspaces,
        }
    }
}

/// Runs the control task until the session is closed.
pub(super) async fn run<P: Platform>(shared: Arc<Shared<P>>) {
    // The task may have started again after a panic: its connection was dropped.
    shared.step_cluster(|cluster, now, tap| cluster.handle_failed(now, Cause::Cancelled, tap));
    let mut link = None;
    while shared.unless_closed(advance(&shared, &mut link)).await.is_some() {}
}

/// Executes the next action of the cluster, or waits for input or time.
async fn advance<P: Platform>(shared: &Shared<P>, link: &mut Option<Link<P>>) {
    let action = shared.step_cluster(|cluster, now, tap| {
        cluster.handle_timeout(now, tap);
        cluster.poll_action(now)
    });
    match action.flatten() {
        Some(ClusterAction::Connect(target)) => connect(shared, link, target).await,
        Some(ClusterAction::Send(query)) => {
            let Some(link) = link else { return };
            if let Err(cause) = link.send(shared, query).await {
                shared.step_cluster(|cluster, now, tap| cluster.handle_failed(now, cause, tap));
            }
        }
        Some(ClusterAction::Close) => *link = None,
        Some(ClusterAction::Publish) => publish(shared),
        None => {
            let until = shared.discovery.as_ref().and_then(|discovery| lock(discovery).cluster.poll_timeout());
            let received = match link {
                Some(link) => shared.until(until, link.receive(shared)).await,
                None => shared.until(until, pending()).await,
            };
            // More input may be available each time: the other tasks of the thread run first.
            if matches!(received, Some(Ok(()))) {
                yield_now().await;
            }
            if let Some(Err(cause)) = received {
                *link = None;
                shared.step_cluster(|cluster, now, tap| cluster.handle_failed(now, cause, tap));
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
    let limit = shared.options.connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT);
    let until = shared.now().saturating_add(limit);
    // It reads tables of the system only.
    let establishing = establish(shared, &address, None, shared.options.version, |_| ());
    let established = shared.until(Some(until), establishing).await;
    match established.unwrap_or(Err(Cause::NetworkTimeout.into())) {
        Ok(socket) => {
            *link = Some(Link { socket, asked: None, input: vec![0; INPUT_BYTES], envelopes: Vec::new() });
            let peer = socket_address(&address);
            shared.step_cluster(|cluster, now, tap| cluster.handle_connected(now, peer, tap));
        }
        Err(failure) => {
            shared.step_cluster(|cluster, now, tap| cluster.handle_failed(now, failure.cause, tap));
        }
    }
}

/// The control connection.
struct Link<P: Platform> {
    socket: Established<P>,
    /// The query without an answer.
    asked: Option<ClusterQuery>,
    input: Vec<u8>,
    envelopes: Vec<u8>,
}

impl<P: Platform> Link<P> {
    async fn send(&mut self, shared: &Shared<P>, query: ClusterQuery) -> Result<(), Cause> {
        let parameters = Parameters::new(Consistency::One);
        let request = match query {
            ClusterQuery::Register => Request::Register(&EventKind::ALL),
            ClusterQuery::Local => {
                Request::Query { text: "SELECT * FROM system.local WHERE key = 'local'", parameters }
            }
            ClusterQuery::Peers => Request::Query { text: "SELECT * FROM system.peers_v2", parameters },
            ClusterQuery::OldPeers => Request::Query { text: "SELECT * FROM system.peers", parameters },
            ClusterQuery::Keyspaces => {
                Request::Query { text: "SELECT keyspace_name, replication FROM system_schema.keyspaces", parameters }
            }
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
        let written = shared.until(until, write_all::<P>(&mut socket.stream, bytes)).await.unwrap_or(Ok(()));
        written.map_err(|failure| failure.cause)
    }

    /// Reads once, and processes the input.
    async fn receive(&mut self, shared: &Shared<P>) -> Result<(), Cause> {
        let leftover = core::mem::take(&mut self.socket.leftover);
        // Done even if it is empty: the decoder may hold envelopes of the last segment.
        self.take_in(shared, &leftover)?;
        let read = self.socket.stream.read(&mut self.input).await;
        let count = read.map_err(|error| Net::<P>::stream_cause(&error))?;
        let input = core::mem::take(&mut self.input);
        let taken = match input.get(..count) {
            Some(bytes) if count > 0 => self.take_in(shared, bytes),
            Some(_) | None => Err(Cause::Network),
        };
        self.input = input;
        taken
    }

    fn take_in(&mut self, shared: &Shared<P>, mut bytes: &[u8]) -> Result<(), Cause> {
        loop {
            let step = self.socket.decoder.decode(bytes)?;
            bytes = bytes.get(step.consumed_bytes..).unwrap_or_default();
            let Some(envelope) = step.envelope else { return Ok(()) };
            match envelope.header.stream {
                EVENT_STREAM => take_event(shared, &envelope),
                STREAM => {
                    let query = self.asked.take().ok_or(Cause::Protocol)?;
                    take_answer(shared, query, &envelope);
                }
                _ => return Err(Cause::Protocol),
            }
        }
    }
}

/// Takes an event of the server. Those that are malformed or unknown are ignored.
fn take_event<P: Platform>(shared: &Shared<P>, envelope: &Envelope<'_>) {
    let Ok(Response::Event(event)) = envelope.response() else { return };
    let event = match event {
        Event::Topology { .. } => ServerEvent::Topology,
        Event::Status { change: "UP", node } => ServerEvent::Status { node, is_up: true },
        Event::Status { change: "DOWN", node } => ServerEvent::Status { node, is_up: false },
        Event::Schema(_) => ServerEvent::Schema,
        Event::Status { .. } | Event::Other { .. } | _ => return,
    };
    shared.step_cluster(|cluster, now, tap| cluster.handle_event(now, event, tap));
    // The node may have left and returned so quickly that the cluster has it as available.
    if let ServerEvent::Status { node, is_up: true } = event {
        let (hosts, address) = (shared.hosts(), node.to_string());
        if let Some(host) = hosts.all().iter().find(|host| host.address == address) {
            shared.step(host, |change| change.handle_host_up());
        }
    }
}

/// An answer that a query cannot have, or the server's error.
struct Unusable {
    /// The server has no such table.
    is_invalid: bool,
}

fn take_answer<P: Platform>(shared: &Shared<P>, query: ClusterQuery, envelope: &Envelope<'_>) {
    let taken = match query {
        ClusterQuery::Register => match envelope.response() {
            Ok(Response::Ready) => {
                shared.step_cluster(|cluster, _, _| cluster.handle_registered());
                Ok(())
            }
            other => Err(unusable(other.ok())),
        },
        ClusterQuery::Local => rows_of(envelope).and_then(|rows| {
            let row = local_row(rows).ok_or(Unusable { is_invalid: false })?;
            if let Some(discovery) = &shared.discovery {
                lock(discovery).has_known_tokens = has_known_tokens(rows);
            }
            shared.step_cluster(|cluster, now, tap| cluster.handle_local(now, row, tap));
            Ok(())
        }),
        ClusterQuery::Peers | ClusterQuery::OldPeers => rows_of(envelope).and_then(|rows| {
            // Before the lock is taken, which the status of the cluster needs.
            let peers = peers(rows).ok_or(Unusable { is_invalid: false })?;
            shared.step_cluster(|cluster, now, tap| cluster.handle_peers(now, peers, tap));
            Ok(())
        }),
        ClusterQuery::Keyspaces => rows_of(envelope).map(|rows| {
            let found = keyspaces(rows);
            if let Some(discovery) = &shared.discovery {
                lock(discovery).keyspaces = found;
            }
            shared.step_cluster(|cluster, _, _| cluster.handle_keyspaces());
        }),
    };
    if let Err(Unusable { is_invalid }) = taken {
        shared.step_cluster(|cluster, now, tap| cluster.handle_query_failed(now, is_invalid, tap));
    }
}

fn unusable(response: Option<Response<'_>>) -> Unusable {
    let is_invalid = matches!(response, Some(Response::Error(failure)) if failure.code == ErrorCode::INVALID);
    Unusable { is_invalid }
}

fn rows_of<'a>(envelope: &Envelope<'a>) -> Result<Rows<'a>, Unusable> {
    match envelope.response() {
        Ok(Response::Result(outcome)) => outcome.rows().ok().flatten().ok_or(Unusable { is_invalid: false }),
        other => Err(unusable(other.ok())),
    }
}

/// Reads rows of nodes.
fn node_rows(rows: Rows<'_>) -> impl Iterator<Item = NodeRow> {
    // Once, because the description of one column may be longer than many rows.
    let names: Vec<&str> = rows.columns.map(|column| column.name).collect();
    // One more than a ring may have: such a cluster is not routed.
    let mut tokens_left = RING_TOKENS_MAX + 1;
    rows.map(move |cells| {
        let row = node_row(&names, cells, tokens_left);
        tokens_left -= row.tokens.len();
        row
    })
}

/// Reads a row of nodes. Cells that are null or malformed are missing.
fn node_row(names: &[&str], cells: Cells<'_>, tokens_max: usize) -> NodeRow {
    let mut row = NodeRow::default();
    for (name, cell) in names.iter().zip(cells) {
        let Some(cell) = cell else { continue };
        match *name {
            "rpc_address" | "native_address" => row.address = read_inet(cell),
            "rpc_port" | "native_port" => {
                row.port =
                    <[u8; 4]>::try_from(cell).ok().and_then(|bytes| u16::try_from(u32::from_be_bytes(bytes)).ok());
            }
            "data_center" => row.data_center = text(cell),
            "rack" => row.rack = text(cell),
            "tokens" => {
                let tokens = Elements::read(cell).into_iter().flatten().flatten();
                row.tokens = tokens
                    .filter_map(|token| Token::parse(core::str::from_utf8(token).ok()?))
                    .map(Token::number)
                    .take(tokens_max)
                    .collect();
            }
            _ => {}
        }
    }
    row
}

fn local_row(rows: Rows<'_>) -> Option<LocalRow> {
    let cluster_name = text(first_cell(rows, "cluster_name")?)?;
    let broadcast_address = first_cell(rows, "broadcast_address").and_then(read_inet);
    Some(LocalRow { cluster_name, broadcast_address, node: node_rows(rows).next()? })
}

/// Whether the partitioner is that of [`Token::of`].
fn has_known_tokens(rows: Rows<'_>) -> bool {
    first_cell(rows, "partitioner").is_some_and(|name| name.ends_with(b"Murmur3Partitioner"))
}

fn first_cell<'a>(mut rows: Rows<'a>, name: &str) -> Option<&'a [u8]> {
    let at = rows.columns.position(name)?;
    rows.next()?.nth(at)?
}

/// Reads the nodes besides that of the connection; `None` if there are too many rows.
fn peers(rows: Rows<'_>) -> Option<Vec<NodeRow>> {
    (rows.len() <= ROWS_MAX).then(|| node_rows(rows).collect())
}

/// Reads the keyspaces whose replicas are placed by token.
fn keyspaces(rows: Rows<'_>) -> Vec<(String, Replication)> {
    let (name, replication) = (rows.columns.position("keyspace_name"), rows.columns.position("replication"));
    let read = |cells: Cells<'_>| {
        let cell = |at: Option<usize>| cells.clone().nth(at?)?;
        let replication = Replication::read(Pairs::read(cell(replication)?).ok()?)?;
        Some((text(cell(name)?)?, replication))
    };
    rows.filter_map(read).take(KEYSPACES_MAX).collect()
}

fn text(cell: &[u8]) -> Option<String> {
    core::str::from_utf8(cell).ok().map(String::from)
}

/// The hosts of these nodes. Of each other data centre than the local one, as many nodes as
/// `remote_max` are remote, available ones first, and the others are ignored.
fn hosts_of(nodes: &BTreeMap<SocketAddr, Node>, local: Option<&str>, remote_max: usize) -> Vec<CqlHost> {
    let mut remote_counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (up, down) = (nodes.iter().filter(|(_, node)| node.is_up), nodes.iter().filter(|(_, node)| !node.is_up));
    let hosts = up.chain(down).map(|(address, node)| {
        let distance = if local.is_none_or(|local| local == node.data_center) {
            Distance::Local
        } else {
            let count = remote_counts.entry(&node.data_center).or_default();
            *count += 1;
            if *count <= remote_max { Distance::Remote } else { Distance::Ignored }
        };
        CqlHost { address: address.to_string(), distance }
    });
    hosts.collect()
}

/// Whether the nodes are the same, apart from their availability: then they have the same replicas.
fn have_same_places(known: &BTreeMap<SocketAddr, Node>, nodes: &BTreeMap<SocketAddr, Node>) -> bool {
    let mut pairs = known.iter().zip(nodes);
    known.len() == nodes.len()
        && pairs.all(|((address, node), (other_address, other))| {
            (address, &node.data_center, &node.rack, &node.tokens)
                == (other_address, &other.data_center, &other.rack, &other.tokens)
        })
}

/// Passes the nodes to the session, if they have changed.
fn publish<P: Platform>(shared: &Shared<P>) {
    let Some(discovery) = &shared.discovery else { return };
    let (nodes, keyspaces) = {
        let discovery = lock(discovery);
        let keyspaces = if discovery.has_known_tokens { discovery.keyspaces.clone() } else { Vec::new() };
        (discovery.cluster.nodes().clone(), keyspaces)
    };
    let options = &shared.options;
    let local = options.local_data_center.as_deref();
    let mut hosts = hosts_of(&nodes, local, options.remote_hosts);
    // A host that is no longer a node takes no new requests, and its pool stays until those in flight
    // have ended.
    let now = shared.now();
    let before = shared.hosts();
    let leaving = before.all().iter().filter(|host| {
        let is_node = host.address.parse().is_ok_and(|address: SocketAddr| nodes.contains_key(&address));
        !is_node && {
            let HostStatus { state, config, .. } = HostStatus::of(now, host);
            config.options().distance != Distance::Ignored || state.in_flight > 0
        }
    });
    let leaving = leaving.map(|host| CqlHost { address: host.address.clone(), distance: Distance::Ignored });
    let leaving: Vec<_> = leaving.collect();
    let (is_known, has_known_nodes, has_known_keyspaces) = match &lock(discovery).published {
        Some((known, routed)) => (*known == nodes, have_same_places(known, &nodes), *routed == keyspaces),
        None => (false, false, false),
    };
    if is_known && has_known_keyspaces && before.all().len() == hosts.len() + leaving.len() {
        return;
    }
    if !has_known_nodes && hosts.iter().all(|host| host.distance != Distance::Local) {
        shared.step_cluster(|_, now, tap| tap.on_event(now, &ClusterEvent::NoLocalNodes));
    }
    let routes = if has_known_nodes && has_known_keyspaces {
        before.routes().cloned()
    } else {
        Routes::new(&nodes, &keyspaces, local).ok().map(Arc::new)
    };
    hosts.extend(leaving);
    // The options were valid at the creation of the session.
    if shared.put_hosts(&hosts, routes).is_ok() {
        lock(discovery).published = Some((nodes, keyspaces));
    }
}

impl<P: Platform> Shared<P> {
    /// Changes the cluster under its lock. `None` without one.
    fn step_cluster<T>(
        &self,
        change: impl FnOnce(&mut Cluster, Instant, &mut Tap<'_, poolhouse_driver::Subscribers>) -> T,
    ) -> Option<T> {
        let discovery = self.discovery.as_ref()?;
        let result = {
            let (now, mut discovery) = (self.now(), lock(discovery));
            change(&mut discovery.cluster, now, &mut Tap::new(&self.events))
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
