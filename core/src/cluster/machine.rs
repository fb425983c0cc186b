//! The machine of the control connection.

use super::event::{ClusterEvent, ClusterQuery};
use crate::machine::Observer;
use crate::{Cause, ConfigError, Instant};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// The maximum number of nodes. Further rows are ignored.
pub const NODES_MAX: usize = 4096;

/// Options of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterOptions {
    /// The time between an event of the server and the reading of tables that it causes. Events in
    /// this time cause no further reading. Default 1 s.
    pub debounce: Duration,
    /// The time between two readings of the tables of nodes without an event. It finds what events
    /// have missed, and control connections that are dead. Default 30 s.
    pub refresh_interval: Duration,
    /// Limit on the time of a query. Default 5 s.
    pub query_timeout: Duration,
    /// The pause before the third attempt to connect; the second follows at once. It doubles with each
    /// further attempt. Default 100 ms.
    pub backoff_min: Duration,
    /// The maximum of that pause. Default 10 s.
    pub backoff_max: Duration,
}

impl ClusterOptions {
    /// The default options.
    pub const DEFAULT: Self = Self {
        debounce: Duration::from_secs(1),
        refresh_interval: Duration::from_secs(30),
        query_timeout: Duration::from_secs(5),
        backoff_min: Duration::from_millis(100),
        backoff_max: Duration::from_secs(10),
    };

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: a time is 0, or `backoff_max` is less than `backoff_min`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (option, time) in [
            ("debounceMS", self.debounce),
            ("refreshIntervalMS", self.refresh_interval),
            ("queryTimeoutMS", self.query_timeout),
            ("backoffMinMS", self.backoff_min),
        ] {
            if time.is_zero() {
                return Err(ConfigError::new(option, 0, "be more than 0"));
            }
        }
        if self.backoff_max < self.backoff_min {
            let millis = u64::try_from(self.backoff_max.as_millis()).unwrap_or(u64::MAX);
            return Err(ConfigError::new("backoffMaxMS", millis, "be at least backoffMinMS"));
        }
        Ok(())
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Name of its data centre.
    pub data_center: String,
    /// Name of its rack.
    pub rack: String,
    /// Its tokens. Empty if they are unknown.
    pub tokens: Vec<i64>,
    /// Whether it is available, according to the last event about it. A new node is available.
    pub is_up: bool,
}

/// A row of `system.peers_v2` or `system.peers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRow {
    /// The address for clients; `None` if it is null or malformed.
    pub address: Option<IpAddr>,
    /// The port for clients; `None` if it is null or malformed, or if there is no such column: then
    /// it is that of the control connection.
    pub port: Option<u16>,
    /// Name of the data centre.
    pub data_center: Option<String>,
    /// Name of the rack.
    pub rack: Option<String>,
    /// The tokens; empty if they are null or malformed.
    pub tokens: Vec<i64>,
}

/// The row of `system.local`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocalRow {
    /// Name of the cluster.
    pub cluster_name: String,
    /// The address for other nodes, with the port for clients there; `None` if it is null or malformed.
    pub broadcast_address: Option<SocketAddr>,
    /// The columns that the rows of other nodes also have.
    pub node: NodeRow,
}

/// An event that a server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerEvent {
    /// A node joined, left or moved.
    Topology,
    /// A node became available or unavailable.
    Status {
        /// Its address for clients.
        node: SocketAddr,
        /// Whether it became available.
        is_up: bool,
    },
    /// The schema changed.
    Schema,
}

/// A peer for the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The contact point with this index.
    Contact(usize),
    /// A node.
    Node(SocketAddr),
}

/// What the host of a [`Cluster`] must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterAction {
    /// Open the control connection.
    Connect(Target),
    /// Send a query on the control connection.
    Send(ClusterQuery),
    /// Close the control connection.
    Close,
    /// The nodes, or the keyspaces, have been read, and may have changed.
    Publish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// No connection until then.
    Waiting(Instant),
    Connecting,
    Connected(Connection),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Connection {
    since: Instant,
    peer: Option<SocketAddr>,
    must_register: bool,
    /// When the nodes are read next. Events during a reading cause another one.
    nodes: Instant,
    /// Whether the local row was read, and the peers are next.
    must_read_peers: bool,
    has_old_local: bool,
    has_old_peers: bool,
    keyspaces: Option<Instant>,
    /// The query without an answer, and its deadline.
    asked: Option<(ClusterQuery, Instant)>,
}

/// The control connection and the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    options: ClusterOptions,
    contacts: usize,
    state: State,
    owes_close: bool,
    owes_publish: bool,
    /// Number of attempts since a connection lasted.
    attempts: u32,
    /// Changes with each attempt: the state of a pseudo-random sequence.
    random: u64,
    /// The first target of the attempts.
    first: u64,
    name: Option<String>,
    /// The node of the control connection, from the last row of `system.local`.
    local: Option<(SocketAddr, Arc<Node>)>,
    nodes: BTreeMap<SocketAddr, Arc<Node>>,
    /// Number of rows that the last reading has ignored.
    ignored_rows: u32,
    /// The nodes that are no peer of the control connection.
    ignored: BTreeSet<SocketAddr>,
}

impl Cluster {
    /// Creates a cluster without nodes. The first action is to connect to a contact point.
    ///
    /// - `contacts`: number of contact points, at least 1.
    /// - `seed`: for the choice of targets and the pauses.
    ///
    /// # Panics
    ///
    /// `contacts` is 0.
    #[must_use]
    pub fn new(now: Instant, options: ClusterOptions, contacts: usize, seed: u64) -> Self {
        assert!(contacts > 0, "a cluster needs a contact point");
        let mut cluster = Self {
            options,
            contacts,
            state: State::Waiting(now),
            owes_close: false,
            owes_publish: false,
            attempts: 0,
            random: seed | 1,
            first: 0,
            name: None,
            local: None,
            nodes: BTreeMap::new(),
            ignored_rows: 0,
            ignored: BTreeSet::new(),
        };
        // The upper half, because the lower bits of a seed may be the same for all clusters.
        cluster.first = cluster.next_random() >> 32;
        cluster
    }

    /// Reports that the control connection is established.
    ///
    /// `Connecting -> Connected`. Owes the queries.
    ///
    /// - `peer`: its address; `None` for a Unix socket. The IP address is unspecified if it is unknown: then the
    ///   event has none.
    pub fn handle_connected(
        &mut self,
        now: Instant,
        peer: Option<SocketAddr>,
        observer: &mut impl Observer<ClusterEvent>,
    ) {
        if self.state != State::Connecting {
            return;
        }
        let known = peer.filter(|peer| !peer.ip().is_unspecified());
        observer.on_event(now, &ClusterEvent::ControlConnected { peer: known });
        self.state = State::Connected(Connection {
            since: now,
            peer: peer.map(canonical),
            must_register: true,
            nodes: now,
            must_read_peers: false,
            has_old_local: false,
            has_old_peers: false,
            keyspaces: Some(now),
            asked: None,
        });
    }

    /// Reports that the control connection was not established, or has ended. No-op without a
    /// connection.
    ///
    /// `Connecting | Connected -> Waiting`.
    pub fn handle_failed(&mut self, now: Instant, cause: Cause, observer: &mut impl Observer<ClusterEvent>) {
        if matches!(self.state, State::Waiting(_)) {
            return;
        }
        observer.on_event(now, &ClusterEvent::ControlFailed { cause });
        self.wait(now);
    }

    /// Reports that the server answered [`ClusterQuery::Register`] by READY.
    pub fn handle_registered(&mut self) {
        self.answered(ClusterQuery::Register);
    }

    /// Takes the answer to [`ClusterQuery::Local`] or [`ClusterQuery::OldLocal`].
    ///
    /// The address is that of the connection if it is a known node's; else that of the row, if it
    /// is no wildcard; else that of the connection; else the one for other nodes. A node of another
    /// cluster than before closes the connection, and so does a row without an address, a data centre
    /// or a rack.
    pub fn handle_local(&mut self, now: Instant, row: LocalRow, observer: &mut impl Observer<ClusterEvent>) {
        let Some(connection) = self.answered(ClusterQuery::Local) else { return };
        let peer = connection.peer;
        let query = if connection.has_old_local { ClusterQuery::OldLocal } else { ClusterQuery::Local };
        connection.must_read_peers = true;
        if self.name.as_ref().is_some_and(|name| *name != row.cluster_name) {
            observer.on_event(now, &ClusterEvent::OtherCluster);
            self.close(now);
            return;
        }
        let mut node = row.node;
        if let Some(known) = peer.filter(|peer| self.nodes.contains_key(peer)) {
            (node.address, node.port) = (Some(known.ip()), Some(known.port()));
        }
        let candidates = [node.address, peer.map(|peer| peer.ip())];
        node.address = candidates.into_iter().flatten().map(|ip| ip.to_canonical()).find(|ip| !ip.is_unspecified());
        if let (None, Some(broadcast)) = (node.address, row.broadcast_address) {
            (node.address, node.port) = (Some(broadcast.ip()), Some(broadcast.port()));
        }
        let Some(local) = node_of(node, peer) else {
            observer.on_event(now, &ClusterEvent::QueryFailed { query });
            self.close(now);
            return;
        };
        self.name = Some(row.cluster_name);
        self.local = Some((local.0, Arc::new(local.1)));
    }

    /// Takes the answer to [`ClusterQuery::Peers`] or [`ClusterQuery::OldPeers`]. The nodes are
    /// these, and that of the control connection.
    ///
    /// Cost: O(n log n) for n rows and nodes, and their tokens.
    ///
    /// Events: `RowsIgnored`, `NodeAdded`, `NodeChanged` and `NodeRemoved` for each node, `NodesRead`.
    pub fn handle_peers(
        &mut self,
        now: Instant,
        rows: impl IntoIterator<Item = NodeRow>,
        observer: &mut impl Observer<ClusterEvent>,
    ) {
        let Some(connection) = self.answered(ClusterQuery::Peers) else { return };
        let peer = connection.peer;
        connection.must_read_peers = false;
        let Some((own, node)) = self.local.clone() else { return };
        let mut found = BTreeMap::from([(own, node)]);
        let mut count = 0_u32;
        for row in rows {
            let is_full = found.len() == NODES_MAX;
            match node_of(row, peer).map(|(address, node)| (found.entry(address), node)) {
                Some((Entry::Vacant(place), node)) if !is_full => drop(place.insert(Arc::new(node))),
                Some(_) | None => count = count.saturating_add(1),
            }
        }
        self.ignored_rows = count;
        if count > 0 {
            observer.on_event(now, &ClusterEvent::RowsIgnored { count });
        }
        self.replace_nodes(now, found, observer);
        observer.on_event(now, &ClusterEvent::NodesRead { count: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX) });
        self.owes_publish = true;
    }

    /// Reports that [`ClusterQuery::Keyspaces`] was answered.
    pub fn handle_keyspaces(&mut self) {
        if self.answered(ClusterQuery::Keyspaces).is_some() {
            self.owes_publish = true;
        }
    }

    /// Reports that a query was answered by an error, or by a malformed answer.
    ///
    /// A server without a column of [`ClusterQuery::Local`] is asked for [`ClusterQuery::OldLocal`], one without
    /// `system.peers_v2` for `system.peers`, and one without `system_schema.keyspaces` is not asked again.
    /// Any other error closes the connection.
    ///
    /// - `is_invalid`: the server has no such table or column.
    pub fn handle_query_failed(&mut self, now: Instant, is_invalid: bool, observer: &mut impl Observer<ClusterEvent>) {
        let State::Connected(connection) = &mut self.state else { return };
        let Some((query, _)) = connection.asked.take() else { return };
        match query {
            // At once: before the keyspaces, which would be published without nodes.
            ClusterQuery::Local if is_invalid => {
                (connection.has_old_local, connection.nodes) = (true, connection.since);
            }
            ClusterQuery::Peers if is_invalid => connection.has_old_peers = true,
            ClusterQuery::Keyspaces if is_invalid => {}
            ClusterQuery::Register
            | ClusterQuery::Local
            | ClusterQuery::OldLocal
            | ClusterQuery::Peers
            | ClusterQuery::OldPeers
            | ClusterQuery::Keyspaces => {
                observer.on_event(now, &ClusterEvent::QueryFailed { query });
                self.close(now);
            }
        }
    }

    /// Takes an event of the server. Events without a connection are ignored.
    pub fn handle_event(&mut self, now: Instant, event: ServerEvent, observer: &mut impl Observer<ClusterEvent>) {
        let State::Connected(connection) = &mut self.state else { return };
        let soon = now.saturating_add(self.options.debounce);
        match event {
            ServerEvent::Topology => connection.nodes = connection.nodes.min(soon),
            ServerEvent::Schema => {
                connection.keyspaces = Some(connection.keyspaces.map_or(soon, |due| due.min(soon)));
                observer.on_event(now, &ClusterEvent::SchemaChanged);
            }
            ServerEvent::Status { node, is_up } => match self.nodes.get_mut(&canonical(node)) {
                Some(known) if known.is_up != is_up => {
                    let node = canonical(node);
                    Arc::make_mut(known).is_up = is_up;
                    let event = if is_up { ClusterEvent::NodeUp { node } } else { ClusterEvent::NodeDown { node } };
                    observer.on_event(now, &event);
                }
                Some(_) => {}
                // A new node may become available before the event of its arrival.
                None if is_up => connection.nodes = connection.nodes.min(soon),
                None => {}
            },
        }
    }

    /// Closes the connection if the answer to a query is late.
    pub fn handle_timeout(&mut self, now: Instant, observer: &mut impl Observer<ClusterEvent>) {
        if let State::Connected(Connection { asked: Some((query, deadline)), .. }) = self.state {
            if deadline <= now {
                observer.on_event(now, &ClusterEvent::QueryFailed { query });
                self.close(now);
            }
        }
    }

    /// Returns the next action.
    pub fn poll_action(&mut self, now: Instant) -> Option<ClusterAction> {
        if core::mem::take(&mut self.owes_close) {
            return Some(ClusterAction::Close);
        }
        if core::mem::take(&mut self.owes_publish) {
            return Some(ClusterAction::Publish);
        }
        match &mut self.state {
            State::Waiting(until) if *until <= now => {
                self.state = State::Connecting;
                let target = self.target();
                self.attempts = self.attempts.saturating_add(1);
                Some(ClusterAction::Connect(target))
            }
            State::Connected(connection) if connection.asked.is_none() => {
                let (query, due) = connection.next();
                if due > now {
                    return None;
                }
                match query {
                    ClusterQuery::Register => connection.must_register = false,
                    ClusterQuery::Local | ClusterQuery::OldLocal => {
                        connection.nodes = now.saturating_add(self.options.refresh_interval)
                    }
                    ClusterQuery::Peers | ClusterQuery::OldPeers => {}
                    ClusterQuery::Keyspaces => connection.keyspaces = None,
                }
                connection.asked = Some((query, now.saturating_add(self.options.query_timeout)));
                Some(ClusterAction::Send(query))
            }
            State::Waiting(_) | State::Connecting | State::Connected(_) => None,
        }
    }

    /// Returns the instant of the next call, after all actions were taken.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting(until) => Some(*until),
            State::Connecting => None,
            State::Connected(Connection { asked: Some((_, deadline)), .. }) => Some(*deadline),
            State::Connected(connection) => Some(connection.next().1),
        }
    }

    /// Sets the nodes to which the control connection is not opened. Contact points are none of them.
    pub fn ignore(&mut self, nodes: BTreeSet<SocketAddr>) {
        self.ignored = nodes;
    }

    /// The nodes, by their address for clients, in ascending order.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<SocketAddr, Arc<Node>> {
        &self.nodes
    }

    /// The number of rows of nodes that the last reading has ignored.
    #[must_use]
    pub const fn ignored_rows(&self) -> u32 {
        self.ignored_rows
    }

    /// The name of the cluster, once it was read.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether there is a control connection.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Checks the machine's invariants. Cost: O(n).
    ///
    /// # Panics
    ///
    /// An invariant does not hold.
    pub fn assert_invariants(&self) {
        assert!(self.nodes.len() <= NODES_MAX, "the number of nodes has a limit");
        assert!(self.nodes.is_empty() || self.name.is_some(), "nodes are those of a named cluster");
        let is_used = matches!(self.state, State::Connected(_) | State::Connecting);
        assert!(!(is_used && self.owes_close), "a connection that must be closed is not used");
    }

    /// Ends the wait for the answer to a query, or to the query of the same table of an old server.
    fn answered(&mut self, query: ClusterQuery) -> Option<&mut Connection> {
        let State::Connected(connection) = &mut self.state else { return None };
        let asked = match connection.asked?.0 {
            ClusterQuery::OldLocal => ClusterQuery::Local,
            ClusterQuery::OldPeers => ClusterQuery::Peers,
            asked @ (ClusterQuery::Register | ClusterQuery::Local | ClusterQuery::Peers | ClusterQuery::Keyspaces) => {
                asked
            }
        };
        if asked != query {
            return None;
        }
        connection.asked = None;
        Some(connection)
    }

    fn close(&mut self, now: Instant) {
        self.owes_close = true;
        self.wait(now);
    }

    /// Waits before the next attempt to connect.
    fn wait(&mut self, now: Instant) {
        // A connection that ends soon counts as a failed attempt, or it would be opened again and
        // again.
        if let State::Connected(Connection { since, .. }) = self.state {
            if now.saturating_since(since) >= self.options.backoff_max {
                self.attempts = 0;
                self.first = self.next_random();
            }
        }
        let pause = match self.attempts {
            0 | 1 => Duration::ZERO,
            attempts => {
                let longest = self.options.backoff_min.saturating_mul(1 << (attempts - 2).min(16));
                let longest = longest.min(self.options.backoff_max);
                // Between a half and all of it, so that many clients do not connect at once.
                let per_mille = 500 + u32::try_from(self.next_random() % 501).unwrap_or(0);
                longest.saturating_mul(per_mille) / 1000
            }
        };
        self.state = State::Waiting(now.saturating_add(pause));
    }

    /// Chooses the peer of the next attempt: available nodes, then the other nodes, and a contact point
    /// after every second node, because all nodes may have other addresses now. Contact points that
    /// were not tried follow the nodes.
    fn target(&self) -> Target {
        let nodes = self.nodes.iter().filter(|(address, _)| !self.ignored.contains(address));
        let (up, down) = (nodes.clone().filter(|(_, node)| node.is_up), nodes.clone().filter(|(_, node)| !node.is_up));
        let (up_count, count) = (up.clone().count(), nodes.count());
        // No more than 8,192 targets.
        let all = count + self.contacts.max(count / 2);
        let attempt = usize::try_from(self.attempts).unwrap_or(0) % all;
        let nodes_tried = (attempt - attempt / 3).min(count);
        let first = |count: usize| usize::try_from(self.first % count.max(1) as u64).unwrap_or(0);
        let node = if attempt % 3 == 2 {
            None
        } else if nodes_tried < up_count {
            up.map(|(address, _)| *address).nth((first(up_count) + nodes_tried) % up_count)
        } else {
            down.map(|(address, _)| *address).nth(nodes_tried - up_count)
        };
        match node {
            Some(node) => Target::Node(node),
            None => Target::Contact((first(self.contacts) + attempt - nodes_tried) % self.contacts),
        }
    }

    /// The next number of xorshift64.
    const fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn replace_nodes(
        &mut self,
        now: Instant,
        mut found: BTreeMap<SocketAddr, Arc<Node>>,
        observer: &mut impl Observer<ClusterEvent>,
    ) {
        for (address, node) in &mut found {
            let node_event = match self.nodes.get(address) {
                Some(known) => {
                    if node.is_up != known.is_up {
                        Arc::make_mut(node).is_up = known.is_up;
                    }
                    if known == node {
                        *node = Arc::clone(known);
                        continue;
                    }
                    ClusterEvent::NodeChanged { node: *address }
                }
                None => ClusterEvent::NodeAdded { node: *address },
            };
            observer.on_event(now, &node_event);
        }
        for address in self.nodes.keys().filter(|address| !found.contains_key(address)) {
            observer.on_event(now, &ClusterEvent::NodeRemoved { node: *address });
        }
        self.nodes = found;
    }
}

impl Connection {
    /// The next query and the time at which it is sent, while none is unanswered.
    fn next(&self) -> (ClusterQuery, Instant) {
        let peers = if self.has_old_peers { ClusterQuery::OldPeers } else { ClusterQuery::Peers };
        match self.keyspaces {
            // Before the first reading, so that no event is missed.
            _ if self.must_register => (ClusterQuery::Register, self.since),
            _ if self.must_read_peers => (peers, self.since),
            Some(due) if due < self.nodes => (ClusterQuery::Keyspaces, due),
            Some(_) | None if self.has_old_local => (ClusterQuery::OldLocal, self.nodes),
            Some(_) | None => (ClusterQuery::Local, self.nodes),
        }
    }
}

/// The address by which a node is known: an IPv4 address is not written as an IPv6 one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Converts a row to a node, unless its location is unknown.
///
/// - `peer`: of the control connection.
fn node_of(row: NodeRow, peer: Option<SocketAddr>) -> Option<(SocketAddr, Node)> {
    let NodeRow { address, port, data_center, rack, mut tokens } = row;
    let address = address.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified())?;
    let port = port.or(peer.map(|peer| peer.port())).filter(|port| *port != 0)?;
    // The server's set has no order.
    tokens.sort_unstable();
    let node = Node { data_center: data_center?, rack: rack?, tokens, is_up: true };
    Some((SocketAddr::new(address, port), node))
}
