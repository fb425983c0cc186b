//! The tables of nodes and keyspaces that the control connection reads, and their limits.
//!
//! Only named columns are read, so that a server has no reason to send others. The columns are those of
//! Cassandra 4.0 and later; servers before, DataStax Enterprise and ScyllaDB have no `system.peers_v2` and no
//! ports. `broadcast_address` has been in `system.local` since Cassandra 2.1.8 (CASSANDRA-9436).

use super::addresses::Addresses;
use super::pause;
use crate::mux::routing::Keyspaces;
use alloc::string::String;
use alloc::vec::Vec;
use poolhouse_core::cluster::{LocalRow, NODES_MAX, NodeRow};
use poolhouse_cql::{Cells, Elements, Pairs, RING_TOKENS_MAX, Replication, Rows, Token, read_inet};

pub(super) const LOCAL: &str = "SELECT cluster_name, partitioner, broadcast_address, rpc_address, rpc_port, \
    data_center, rack, tokens FROM system.local WHERE key = 'local'";
pub(super) const OLD_LOCAL: &str = "SELECT cluster_name, partitioner, broadcast_address, rpc_address, data_center, \
    rack, tokens FROM system.local WHERE key = 'local'";
pub(super) const PEERS: &str = "SELECT native_address, native_port, data_center, rack, tokens FROM system.peers_v2";
pub(super) const OLD_PEERS: &str = "SELECT rpc_address, data_center, rack, tokens FROM system.peers";
pub(super) const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";

/// The maximum length of an answer in bytes. The nodes of a cluster of 1,000 with 256 tokens each are 6 MB.
pub(super) const BODY_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// The maximum number of columns of an answer. The queries name at most eight.
pub(super) const COLUMNS_MAX: usize = 64;
/// The maximum number of rows of other nodes in an answer. A node does not list itself.
pub(super) const ROWS_MAX: usize = NODES_MAX;
/// The maximum number of keyspaces. Cassandra warns above a few hundred tables.
pub(super) const KEYSPACES_MAX: usize = 4096;
/// The maximum length in bytes of the name of a cluster, a data centre, a rack or a keyspace, of which Cassandra
/// limits that of a keyspace, to 48. It is that of the name of a host.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// The maximum number of tokens of a node: Cassandra's own limit on `num_tokens`.
pub(super) const NODE_TOKENS_MAX: usize = 1536;
/// The maximum length in bytes of the tokens of a node: the number of them, and of each its length and at most 20
/// digits with a sign. It also limits the number of elements without a token.
pub(super) const TOKENS_BYTES_MAX: usize = 4 + NODE_TOKENS_MAX * (4 + 20);
/// The maximum length in bytes of the replication of a keyspace. Most have less than 200.
pub(super) const REPLICATION_BYTES_MAX: usize = 32 * 1024;
/// The number of rows that are read before other tasks run. Each may have the most tokens.
const ROWS_TURN: usize = 4;

/// The row of `system.local`.
pub(super) fn local_row(rows: Rows<'_>, addresses: &Addresses<'_>) -> Option<LocalRow> {
    let cluster_name = text(first_cell(rows, "cluster_name")?)?;
    let broadcast_address = first_cell(rows, "broadcast_address").and_then(read_inet);
    let port = first_cell(rows, "rpc_port").and_then(port);
    let broadcast_address = broadcast_address.and_then(|ip| addresses.of(ip, port));
    let mut rows = rows;
    let names: Vec<&str> = rows.columns.map(|column| column.name).collect();
    // One more than it may have, so that too many are seen.
    let node = node_row(&names, rows.next()?, addresses, NODE_TOKENS_MAX + 1);
    Some(LocalRow { cluster_name, broadcast_address, node })
}

/// Whether the partitioner is that of [`Token::of`].
pub(super) fn has_known_tokens(rows: Rows<'_>) -> bool {
    first_cell(rows, "partitioner").is_some_and(|name| name.ends_with(b"Murmur3Partitioner"))
}

fn first_cell<'a>(mut rows: Rows<'a>, name: &str) -> Option<&'a [u8]> {
    let at = rows.columns.position(name)?;
    rows.next()?.nth(at)?
}

/// Reads the rows of other nodes.
pub(super) async fn peers(rows: Rows<'_>, addresses: &Addresses<'_>) -> Vec<NodeRow> {
    let names: Vec<&str> = rows.columns.map(|column| column.name).collect();
    // One more than a ring may have: such a cluster is not routed.
    let mut tokens_left = RING_TOKENS_MAX + 1;
    let mut peers = Vec::with_capacity(rows.len());
    for (number, cells) in rows.enumerate() {
        let row = node_row(&names, cells, addresses, tokens_left);
        tokens_left -= row.tokens.len();
        peers.push(row);
        pause(number, ROWS_TURN).await;
    }
    peers
}

/// Reads a row of nodes. Cells that are null, malformed or beyond a limit are missing.
fn node_row(names: &[&str], cells: Cells<'_>, addresses: &Addresses<'_>, tokens_max: usize) -> NodeRow {
    // Of several columns with one name, only the first is read.
    let cell = |name: &str| cells.clone().nth(names.iter().position(|one| *one == name)?)?;
    let ip = cell("native_address").or_else(|| cell("rpc_address")).and_then(read_inet);
    let port = cell("native_port").or_else(|| cell("rpc_port")).and_then(port);
    let address = ip.and_then(|ip| addresses.of(ip, port));
    NodeRow {
        address: address.map(|address| address.ip()),
        port: address.map(|address| address.port()),
        data_center: cell("data_center").and_then(text),
        rack: cell("rack").and_then(text),
        tokens: cell("tokens").map_or_else(Vec::new, |cell| tokens(cell, tokens_max)),
    }
}

fn port(cell: &[u8]) -> Option<u16> {
    u16::try_from(u32::from_be_bytes(cell.try_into().ok()?)).ok()
}

/// Reads the tokens of a node, in ascending order. None if there are too many.
fn tokens(cell: &[u8], tokens_max: usize) -> Vec<i64> {
    if cell.len() > TOKENS_BYTES_MAX {
        return Vec::new();
    }
    let texts = Elements::read(cell).into_iter().flatten().flatten();
    let tokens = texts.filter_map(|token| Token::parse(core::str::from_utf8(token).ok()?)).map(Token::number);
    let mut tokens: Vec<i64> = tokens.take(tokens_max.min(NODE_TOKENS_MAX + 1)).collect();
    if tokens.len() > NODE_TOKENS_MAX {
        return Vec::new();
    }
    tokens.sort_unstable();
    tokens
}

/// Reads the keyspaces whose replicas are placed by token, apart from those of the server itself.
///
/// - `data_center`: that of local hosts; `None` if all are local.
pub(super) async fn keyspaces(rows: Rows<'_>, data_center: Option<&str>) -> Keyspaces {
    let (name, replication) = (rows.columns.position("keyspace_name"), rows.columns.position("replication"));
    let mut keyspaces = Keyspaces::default();
    for (number, cells) in rows.enumerate() {
        let cell = |at: Option<usize>| cells.clone().nth(at?)?;
        let short = || cell(replication).filter(|cell| cell.len() <= REPLICATION_BYTES_MAX);
        let replicated = || Replication::read(Pairs::read(short()?).ok()?);
        if let (Some(name), Some(replication)) = (cell(name).and_then(text), replicated()) {
            keyspaces.add(name, replication, data_center);
        }
        pause(number, ROWS_TURN).await;
    }
    keyspaces
}

/// Reads a name.
fn text(cell: &[u8]) -> Option<String> {
    (cell.len() <= NAME_BYTES_MAX).then(|| core::str::from_utf8(cell).ok().map(String::from))?
}
