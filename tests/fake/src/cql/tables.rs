//! The system tables that drivers read when they connect, and their rows.

use core::net::{IpAddr, SocketAddr};

use poolhouse_cql::{ErrorCode, OutcomeKind, Version};

use super::statement::{Answer, KEYSPACE};

/// The properties of the server as a node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) version: Version,
}

/// The value of a cell.
enum Cell {
    Text(String),
    Inet(IpAddr),
    Int(i32),
    Uuid([u8; 16]),
    Boolean(bool),
    Texts(Vec<String>),
    Map(Vec<(&'static str, &'static str)>),
}

/// Types of columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Varchar,
    Inet,
    Int,
    Uuid,
    Boolean,
    Set,
    List,
    Map,
}

type Row = Vec<(&'static str, Cell)>;

const RELEASE: &str = "4.1.0";
/// The schema never changes.
const SCHEMA: [u8; 16] = *b"\x70\x6f\x6f\x6c\x68\x6f\x45\x73\x85\x65\x00\x00\x00\x00\x00\x01";

/// A column has the same type in all tables.
fn type_of(column: &str) -> Type {
    match column {
        "broadcast_address" | "listen_address" | "native_address" | "peer" | "preferred_ip" | "rpc_address" => {
            Type::Inet
        }
        "broadcast_port" | "gossip_generation" | "listen_port" | "native_port" | "peer_port" | "position"
        | "rpc_port" => Type::Int,
        "host_id" | "schema_version" => Type::Uuid,
        "durable_writes" => Type::Boolean,
        "tokens" => Type::Set,
        "field_names" | "field_types" => Type::List,
        "replication" => Type::Map,
        _ => Type::Varchar,
    }
}

impl Node {
    /// The same for every server on the same port.
    fn host_id(&self) -> [u8; 16] {
        let mut id = *b"\x68\x6f\x73\x74\x00\x00\x40\x00\x80\x00\x00\x00\x00\x00\x00\x00";
        id[14..].copy_from_slice(&self.address.port().to_be_bytes());
        id
    }

    fn local(&self) -> Row {
        let ip = self.address.ip();
        let port = i32::from(self.address.port());
        vec![
            ("key", Cell::Text("local".to_owned())),
            ("bootstrapped", Cell::Text("COMPLETED".to_owned())),
            ("broadcast_address", Cell::Inet(ip)),
            ("broadcast_port", Cell::Int(7000)),
            ("cluster_name", Cell::Text("poolhouse".to_owned())),
            ("cql_version", Cell::Text(super::CQL_VERSION.to_owned())),
            ("data_center", Cell::Text("datacenter1".to_owned())),
            ("gossip_generation", Cell::Int(1)),
            ("host_id", Cell::Uuid(self.host_id())),
            ("listen_address", Cell::Inet(ip)),
            ("listen_port", Cell::Int(7000)),
            ("native_protocol_version", Cell::Text(self.version.to_string())),
            ("partitioner", Cell::Text("org.apache.cassandra.dht.Murmur3Partitioner".to_owned())),
            ("rack", Cell::Text("rack1".to_owned())),
            ("release_version", Cell::Text(RELEASE.to_owned())),
            ("rpc_address", Cell::Inet(ip)),
            ("rpc_port", Cell::Int(port)),
            ("schema_version", Cell::Uuid(SCHEMA)),
            ("tokens", Cell::Texts(vec![i64::from(port).to_string()])),
        ]
    }

    /// Returns the columns and rows of a table; `None` if there is no such table.
    fn table(&self, name: &str) -> Option<(Vec<&'static str>, Vec<Row>)> {
        let empty: &[&'static str] = match name {
            "system.local" => {
                let row = self.local();
                return Some((row.iter().map(|(name, _)| *name).collect(), vec![row]));
            }
            "system_schema.keyspaces" => {
                let rows = [KEYSPACE, "system", "system_schema"].map(keyspace);
                return Some((vec!["keyspace_name", "durable_writes", "replication"], rows.into()));
            }
            "system.peers" => &[
                "peer",
                "data_center",
                "host_id",
                "preferred_ip",
                "rack",
                "release_version",
                "rpc_address",
                "schema_version",
                "tokens",
            ],
            "system.peers_v2" => &[
                "peer",
                "peer_port",
                "data_center",
                "host_id",
                "native_address",
                "native_port",
                "rack",
                "release_version",
                "schema_version",
                "tokens",
            ],
            "system_schema.tables" | "system_virtual_schema.tables" => &["keyspace_name", "table_name"],
            "system_schema.columns" | "system_virtual_schema.columns" => {
                &["keyspace_name", "table_name", "column_name", "clustering_order", "kind", "position", "type"]
            }
            "system_schema.types" => &["keyspace_name", "type_name", "field_names", "field_types"],
            "system_schema.views" => &["keyspace_name", "view_name", "base_table_name"],
            "system_schema.functions" => &["keyspace_name", "function_name"],
            "system_schema.aggregates" => &["keyspace_name", "aggregate_name"],
            "system_schema.triggers" => &["keyspace_name", "table_name", "trigger_name"],
            "system_schema.indexes" => &["keyspace_name", "table_name", "index_name"],
            "system_virtual_schema.keyspaces" => &["keyspace_name"],
            _ => return None,
        };
        Some((empty.to_vec(), Vec::new()))
    }
}

fn keyspace(name: &str) -> Row {
    let replication = match name {
        KEYSPACE => vec![("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", "1")],
        _ => vec![("class", "org.apache.cassandra.locator.LocalStrategy")],
    };
    vec![
        ("keyspace_name", Cell::Text(name.to_owned())),
        ("durable_writes", Cell::Boolean(true)),
        ("replication", Cell::Map(replication)),
    ]
}

/// Writes the body of the RESULT of `SELECT columns FROM keyspace.table ..` or `USE keyspace`. The
/// text after the table is ignored.
pub(super) fn answer(text: &str, body: &mut Vec<u8>, node: &Node) -> Answer {
    let mut words = text.trim_end_matches(';').split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    if first.eq_ignore_ascii_case("use") {
        let name = words.next().unwrap_or_default().trim_matches('"');
        int(body, OutcomeKind::SetKeyspace.number());
        string(body, name);
        return Answer::Result;
    }
    if !first.eq_ignore_ascii_case("select") {
        let message = format!("unsupported statement: {first:?}");
        return Answer::Failed(ErrorCode::SYNTAX_ERROR, message);
    }
    let columns: Vec<&str> = words.by_ref().take_while(|word| !word.eq_ignore_ascii_case("from")).collect();
    let columns = columns.concat();
    let name = words.next().unwrap_or_default().to_ascii_lowercase();
    let Some((all, rows)) = node.table(&name) else {
        return Answer::Failed(ErrorCode::INVALID, format!("there is no table {name:?}"));
    };
    let mut wanted = Vec::new();
    for column in columns.split(',') {
        match all.iter().find(|one| **one == column) {
            _ if column == "*" => wanted.extend_from_slice(&all),
            Some(column) => wanted.push(*column),
            None => return Answer::Failed(ErrorCode::INVALID, format!("there is no column {column:?} in {name}")),
        }
    }
    write_rows(&name, &wanted, &rows, body);
    Answer::Result
}

fn write_rows(table: &str, columns: &[&str], rows: &[Row], body: &mut Vec<u8>) {
    let (keyspace, table) = table.split_once('.').unwrap_or_default();
    int(body, OutcomeKind::Rows.number());
    // One table for all columns.
    int(body, 1);
    count(body, columns.len());
    string(body, keyspace);
    string(body, table);
    for column in columns {
        string(body, column);
        let kinds: &[u16] = match type_of(column) {
            Type::Boolean => &[0x04],
            Type::Int => &[0x09],
            Type::Uuid => &[0x0c],
            Type::Varchar => &[0x0d],
            Type::Inet => &[0x10],
            Type::List => &[0x20, 0x0d],
            Type::Map => &[0x21, 0x0d, 0x0d],
            Type::Set => &[0x22, 0x0d],
        };
        for kind in kinds {
            body.extend_from_slice(&kind.to_be_bytes());
        }
    }
    count(body, rows.len());
    for row in rows {
        for column in columns {
            match row.iter().find(|(name, _)| name == column) {
                Some((_, cell)) => write_cell(cell, body),
                None => int(body, -1),
            }
        }
    }
}

fn write_cell(cell: &Cell, body: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    match cell {
        Cell::Text(text) => bytes.extend_from_slice(text.as_bytes()),
        Cell::Inet(IpAddr::V4(ip)) => bytes.extend_from_slice(&ip.octets()),
        Cell::Inet(IpAddr::V6(ip)) => bytes.extend_from_slice(&ip.octets()),
        Cell::Int(value) => int(&mut bytes, *value),
        Cell::Uuid(id) => bytes.extend_from_slice(id),
        Cell::Boolean(value) => bytes.push(u8::from(*value)),
        Cell::Texts(texts) => {
            count(&mut bytes, texts.len());
            for text in texts {
                long(&mut bytes, text.as_bytes());
            }
        }
        Cell::Map(entries) => {
            count(&mut bytes, entries.len());
            for (key, value) in entries {
                long(&mut bytes, key.as_bytes());
                long(&mut bytes, value.as_bytes());
            }
        }
    }
    long(body, &bytes);
}

fn int(body: &mut Vec<u8>, value: i32) {
    body.extend_from_slice(&value.to_be_bytes());
}

/// Only for lengths of data in this file, which always fit.
fn count(body: &mut Vec<u8>, value: usize) {
    int(body, i32::try_from(value).unwrap_or(i32::MAX));
}

fn string(body: &mut Vec<u8>, text: &str) {
    let text = text.get(..text.len().min(usize::from(u16::MAX))).unwrap_or_default();
    body.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend_from_slice(text.as_bytes());
}

fn long(body: &mut Vec<u8>, bytes: &[u8]) {
    count(body, bytes.len());
    body.extend_from_slice(bytes);
}
