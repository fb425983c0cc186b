//! The nodes of a Cassandra cluster: the tables of a member with the nodes of its view, the events that
//! members send to connections that have registered, and the replicas of data.
//!
//! Some rows are not of nodes, and some events are late, lost, repeated or wrong.

use super::cassandra::{INVALID, KEYSPACES, frame, string};
use super::links::Event;
use super::plan::MS;
use super::state::State;
use super::truth::{HOSTS, Truth};
use crate::choices::Choices;
use crate::kind::Kind;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The port of each node.
const PORT: u16 = 27017;
/// The data centre of all nodes.
pub(super) const DATA_CENTER: &str = "dc1";
/// The number of tokens of a node.
const TOKENS: i64 = 4;

const EVENT: u8 = 0x0c;
/// The stream of events.
const NO_STREAM: u16 = 0xffff;
/// The kind of a result with rows.
const ROWS: u32 = 2;
/// All columns are of one table.
const GLOBAL_TABLE: u32 = 1;

/// Types of columns.
const INT: &[u16] = &[0x09];
const TEXT: &[u16] = &[0x0d];
const INET: &[u16] = &[0x10];
const MAP: &[u16] = &[0x21, 0x0d, 0x0d];
const SET: &[u16] = &[0x22, 0x0d];

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeChange {
    Up,
    Down,
    New,
    Removed,
}

/// A column: its name and its type.
type Column = (&'static str, &'static [u16]);
/// `None` is null.
type Cell = Option<Vec<u8>>;

/// The address of a node for clients.
pub(super) fn address_of(member: usize) -> SocketAddr {
    let number = u8::try_from(member + 1).expect("one of the hosts");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), PORT))
}

/// The member with this host name or address.
pub(super) fn member_of(address: &str) -> usize {
    let is_it = |&member: &usize| HOSTS[member] == address || address_of(member).to_string() == address;
    (0..HOSTS.len()).find(is_it).expect("one of the hosts")
}

/// The tokens of a member.
pub(super) fn tokens_of(member: usize) -> impl Iterator<Item = i64> {
    let first = i64::try_from(member).expect("one of the hosts") * TOKENS;
    // Far from each other, and in no order.
    (first..first + TOKENS).map(|number| (number + 1).wrapping_mul(0x1e37_79b9_7f4a_7c15))
}

fn text(text: &str) -> Cell {
    Some(text.as_bytes().to_vec())
}

fn ip(address: IpAddr) -> Cell {
    Some(match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

fn int(number: u32) -> Cell {
    Some(number.to_be_bytes().to_vec())
}

/// A set, or a map with its keys and values in turn.
fn texts(count: usize, texts: &[String]) -> Cell {
    let mut cell = length(count).to_vec();
    for text in texts {
        cell.extend(length(text.len()));
        cell.extend(text.bytes());
    }
    Some(cell)
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a short value").to_be_bytes()
}

/// Encodes rows of a table.
fn rows(keyspace: &str, table: &str, columns: &[Column], rows: &[Vec<Cell>]) -> Vec<u8> {
    let mut body = ROWS.to_be_bytes().to_vec();
    body.extend(GLOBAL_TABLE.to_be_bytes());
    body.extend(length(columns.len()));
    string(&mut body, keyspace);
    string(&mut body, table);
    for (name, kind) in columns {
        string(&mut body, name);
        body.extend(kind.iter().flat_map(|id| id.to_be_bytes()));
    }
    body.extend(length(rows.len()));
    for cell in rows.iter().flatten() {
        match cell {
            Some(bytes) => {
                body.extend(length(bytes.len()));
                body.extend(bytes);
            }
            None => body.extend((-1_i32).to_be_bytes()),
        }
    }
    body
}

/// The cells that describe a node: data centre, rack, tokens.
fn place(member: usize) -> [Cell; 3] {
    let tokens: Vec<String> = tokens_of(member).map(|token| token.to_string()).collect();
    [text(DATA_CENTER), text(&format!("rack{}", member % 2)), texts(tokens.len(), &tokens)]
}

/// A row of `system.peers_v2`, or of `system.peers`.
fn peer(member: usize, is_old: bool) -> Vec<Cell> {
    let address = address_of(member).ip();
    let mut row = vec![ip(address), ip(address)];
    row.extend((!is_old).then(|| int(PORT.into())));
    row.extend(place(member));
    row
}

impl Truth {
    /// The node that has a partition with this token, if each partition has one replica.
    pub(super) fn replica(&self, token: i64) -> usize {
        let mut ring: Vec<(i64, usize)> =
            self.config.iter().flat_map(|&member| tokens_of(member).map(move |own| (own, member))).collect();
        ring.sort_unstable();
        ring.iter().find(|(own, _)| *own >= token).unwrap_or(&ring[0]).1
    }
}

impl State {
    /// A member reads columns of a table of the system. Returns the rows, or the code of an error.
    pub(super) fn read_table(&mut self, member: usize, columns: &str, table: &str) -> Result<Vec<u8>, u32> {
        let is_old = self.plan.cluster.has_old_peers;
        match table {
            "system.local" if is_old && columns.contains("rpc_port") => Err(INVALID),
            "system.local" => Ok(self.local(member)),
            "system.peers_v2" if is_old => {
                self.counters.count(Kind::OldPeers);
                Err(INVALID)
            }
            "system.peers_v2" => Ok(self.peers(member, false)),
            "system.peers" => Ok(self.peers(member, true)),
            "system_schema.keyspaces" => Ok(keyspaces()),
            _ => panic!("the client reads the table {table}"),
        }
    }

    fn local(&self, member: usize) -> Vec<u8> {
        let is_old = self.plan.cluster.has_old_peers;
        let mut columns = vec![
            ("key", TEXT),
            ("broadcast_address", INET),
            ("cluster_name", TEXT),
            ("partitioner", TEXT),
            ("rpc_address", INET),
        ];
        columns.extend((!is_old).then_some(("rpc_port", INT)));
        columns.extend([("data_center", TEXT), ("rack", TEXT), ("tokens", SET)]);
        let own = address_of(member).ip();
        let rpc_address = match self.plan.cluster.local_address {
            LocalAddress::Own => ip(own),
            LocalAddress::Any => ip(Ipv4Addr::UNSPECIFIED.into()),
            LocalAddress::Null => None,
        };
        let mut row =
            vec![text("local"), ip(own), text("cluster"), text("org.example.Murmur3Partitioner"), rpc_address];
        row.extend((!is_old).then(|| int(PORT.into())));
        row.extend(place(member));
        rows("system", "local", &columns, &[row])
    }

    fn peers(&mut self, member: usize, is_old: bool) -> Vec<u8> {
        let (address, port) =
            if is_old { ("rpc_address", None) } else { ("native_address", Some(("native_port", INT))) };
        let mut columns = vec![("peer", INET), (address, INET)];
        columns.extend(port);
        columns.extend([("data_center", TEXT), ("rack", TEXT), ("tokens", SET)]);
        let view = &self.truth.members[member].view.hosts;
        let mut others: Vec<usize> = view.iter().copied().filter(|&other| other != member).collect();
        // It has restarted, and does not have all of them yet.
        if !self.peace && !others.is_empty() && self.draws.nodes.below(16) == 15 {
            self.counters.count(Kind::RowMissing);
            others.remove(self.draws.nodes.index(others.len()));
        }
        let mut found: Vec<Vec<Cell>> = others.iter().map(|&other| peer(other, is_old)).collect();
        if self.draws.nodes.below(4) == 3 {
            self.counters.count(Kind::RowLie);
            let mut lie = peer(self.draws.nodes.index(HOSTS.len()), is_old);
            let last = lie.len() - 1;
            match self.draws.nodes.below(4) {
                0 => lie[1] = None,
                1 => lie[1] = ip(Ipv4Addr::UNSPECIFIED.into()),
                2 => lie[last - 2] = None,
                // Of itself, or of a node that is listed already, with another rack.
                _ => {
                    lie = peer(others.first().copied().unwrap_or(member), is_old);
                    lie[last - 1] = text("elsewhere");
                }
            }
            found.push(lie);
        }
        rows("system", if is_old { "peers" } else { "peers_v2" }, &columns, &found)
    }

    /// A node has changed: the other members of the cluster send events of it, each at its own time.
    pub(super) fn schedule_node_events(&mut self, about: usize, change: NodeChange) {
        if !self.plan.cluster.discovers {
            return;
        }
        for sender in self.truth.config.clone() {
            if sender == about {
                continue;
            }
            let draws = &mut self.draws.nodes;
            let delay = u64::from(draws.below(2_000)) * MS;
            let (delay, kind, times) = match draws.below(8) {
                5 => (delay, Some(Kind::EventRepeated), 2),
                6 if !self.peace => (delay, Some(Kind::EventLost), 0),
                7 if !self.peace => (delay + u64::from(draws.below(20_000)) * MS, Some(Kind::EventLate), 1),
                _ => (delay, None, 1),
            };
            if let Some(kind) = kind {
                self.counters.count(kind);
            }
            for _ in 0..times {
                self.net.at(self.now + delay, Event::NodeChange(sender, about, change));
            }
        }
    }

    /// A member sends an event to the connections that have registered.
    pub(super) fn send_node_event(&mut self, sender: usize, about: usize, change: NodeChange) {
        let known = &self.truth.members[sender];
        if !known.is_running() {
            return;
        }
        let lies = !self.peace && self.draws.nodes.below(2) == 1;
        let registered = |id: &u64| self.net.links[id].far.is_registered;
        let links: Vec<u64> = self.net.of_member(sender).into_iter().filter(registered).collect();
        for id in links {
            self.counters.count(Kind::EventSent);
            let (kind, name) = match change {
                NodeChange::Up => ("STATUS_CHANGE", "UP"),
                NodeChange::Down => ("STATUS_CHANGE", "DOWN"),
                NodeChange::New => ("TOPOLOGY_CHANGE", "NEW_NODE"),
                NodeChange::Removed => ("TOPOLOGY_CHANGE", "REMOVED_NODE"),
            };
            self.send_event(id, kind, name, address_of(about));
            if lies {
                self.counters.count(Kind::EventLie);
                let stranger = SocketAddr::from((Ipv4Addr::new(10, 9, 9, 9), PORT));
                let changes = ["UP", "DOWN", "NEW_NODE", "REMOVED_NODE", "SIDEWAYS"];
                let kinds = ["STATUS_CHANGE", "TOPOLOGY_CHANGE", "WEATHER_CHANGE"];
                let (kind, name) = (self.draws.nodes.one_of(&kinds), self.draws.nodes.one_of(&changes));
                self.send_event(id, kind, name, stranger);
            }
        }
    }

    fn send_event(&mut self, id: u64, kind: &str, change: &str, node: SocketAddr) {
        let mut body = Vec::new();
        string(&mut body, kind);
        string(&mut body, change);
        let address = ip(node.ip()).unwrap_or_default();
        body.push(u8::try_from(address.len()).expect("an address"));
        body.extend(address);
        body.extend(u32::from(node.port()).to_be_bytes());
        let at = self.now + self.delay();
        self.net.at(at, Event::Answer(id, NO_STREAM, frame(NO_STREAM, EVENT, &body)));
    }
}

/// `system_schema.keyspaces`. Each partition of the application's keyspaces has one replica.
fn keyspaces() -> Vec<u8> {
    let columns = [("keyspace_name", TEXT), ("replication", MAP)];
    let replication = |class: &str, factor: Option<&str>| {
        let mut pairs = vec!["class".to_owned(), format!("org.apache.cassandra.locator.{class}")];
        pairs.extend(factor.into_iter().flat_map(|factor| ["replication_factor".to_owned(), factor.to_owned()]));
        texts(pairs.len() / 2, &pairs)
    };
    let own = KEYSPACES.map(|name| vec![text(name), replication("SimpleStrategy", Some("1"))]);
    let mut found = own.to_vec();
    found.push(vec![text("system"), replication("LocalStrategy", None)]);
    found.push(vec![text("unreadable"), None]);
    rows("system_schema", "keyspaces", &columns, &found)
}

/// `rpc_address` in a member's own row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalAddress {
    Own,
    /// It listens on all addresses.
    Any,
    Null,
}
