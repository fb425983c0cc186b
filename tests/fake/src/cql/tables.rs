//! The system tables that drivers read when they connect, and their rows.

use core::net::{IpAddr, SocketAddr};

use super::body::{bytes, count, int, short, short_bytes, string};
use super::kind::{code, result};
use super::statement::{Description, Failure, KEYSPACE};

/// The properties of the server as a node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) version: u8,
    /// See [`CqlServerOptions::keyspaces`](super::CqlServerOptions::keyspaces).
    pub(super) keyspaces: Option<Vec<String>>,
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

/// The keyspaces of the server.
const OWN_KEYSPACES: [&str; 3] = [KEYSPACE, "system", "system_schema"];

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

    fn has_keyspace(&self, name: &str) -> bool {
        OWN_KEYSPACES.contains(&name) || self.keyspaces.as_ref().is_none_or(|some| some.iter().any(|one| one == name))
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
                let rows = OWN_KEYSPACES.map(keyspace);
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

/// A statement on the server's own tables.
pub(super) enum Query<'a> {
    /// `USE keyspace`.
    Use(String),
    Rows(Rows<'a>),
}

/// `SELECT columns FROM keyspace.table ..`. Conditions are ignored.
pub(super) struct Rows<'a> {
    text: &'a str,
    keyspace: String,
    table: String,
    /// All columns of the table. The first one is its partition key.
    all: Vec<&'static str>,
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(text: &'a str, node: &Node) -> Result<Self, Failure> {
        let mut words = text.trim_end_matches(';').split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if first.eq_ignore_ascii_case("use") {
            let word = words.next().unwrap_or_default();
            // Without quotation marks, a name has lower case.
            let quoted = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let name = quoted.map_or_else(|| word.to_ascii_lowercase(), str::to_owned);
            if !node.has_keyspace(&name) {
                return Err(Failure(code::INVALID, format!("keyspace {name:?} does not exist")));
            }
            return Ok(Self::Use(name));
        }
        if !first.eq_ignore_ascii_case("select") {
            return Err(Failure(code::SYNTAX_ERROR, format!("unsupported statement: {first:?}")));
        }
        let names: Vec<&str> = words.by_ref().take_while(|word| !word.eq_ignore_ascii_case("from")).collect();
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        let Some((all, rows)) = node.table(&name) else {
            return Err(Failure(code::INVALID, format!("there is no table {name:?}")));
        };
        let mut columns = Vec::new();
        for column in names.concat().split(',') {
            match all.iter().find(|one| **one == column) {
                // Only alone: many of them would make a long reply.
                _ if column == "*" && columns.is_empty() => columns.extend_from_slice(&all),
                Some(column) => columns.push(*column),
                None => return Err(Failure(code::INVALID, format!("there is no column {column:?} in {name}"))),
            }
        }
        let (keyspace, table) = name.split_once('.').unwrap_or_default();
        let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
        Ok(Self::Rows(Rows { text, keyspace, table, all, columns, rows }))
    }

    /// Writes the body of the RESULT.
    pub(super) fn answer(&self, body: &mut Vec<u8>, description: Description<'_>) {
        match self {
            Self::Use(name) => {
                int(body, result::SET_KEYSPACE);
                string(body, name);
            }
            Self::Rows(rows) => rows.answer(body, description),
        }
    }
}

impl Rows<'_> {
    fn answer(&self, body: &mut Vec<u8>, description: Description<'_>) {
        // One table for all columns; no description; another description than the client has.
        const ONE_TABLE: i32 = 1;
        const NO_COLUMNS: i32 = 4;
        const NEW_ID: i32 = 8;
        int(body, result::ROWS);
        let more = match description {
            Description::Whole => 0,
            Description::Omitted => NO_COLUMNS,
            Description::New(_) => NEW_ID,
        };
        int(body, ONE_TABLE | more);
        count(body, self.columns.len());
        if let Description::New(id) = description {
            short_bytes(body, id);
        }
        if more != NO_COLUMNS {
            self.describe(&self.columns, body);
        }
        count(body, self.rows.len());
        for row in &self.rows {
            for column in &self.columns {
                match row.iter().find(|(name, _)| name == column) {
                    Some((_, cell)) => write_cell(cell, body),
                    None => int(body, -1),
                }
            }
        }
    }

    /// Writes the flags, the count and the description of columns.
    fn describe_counted(&self, columns: &[&str], body: &mut Vec<u8>, key: Option<&[u16]>) {
        int(body, i32::from(!columns.is_empty()));
        count(body, columns.len());
        if let Some(key) = key {
            count(body, key.len());
            key.iter().for_each(|position| short(body, *position));
        }
        if !columns.is_empty() {
            self.describe(columns, body);
        }
    }

    fn describe(&self, columns: &[&str], body: &mut Vec<u8>) {
        string(body, &self.keyspace);
        string(body, &self.table);
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
            kinds.iter().for_each(|kind| short(body, *kind));
        }
    }

    /// Writes the descriptions of the variables, each of which follows the name of its column, and of the
    /// columns.
    pub(super) fn describe_prepared(&self, version: u8, body: &mut Vec<u8>) -> Result<(), Failure> {
        let mut variables = Vec::new();
        let parts: Vec<&str> = self.text.split('?').collect();
        for part in &parts[..parts.len() - 1] {
            let part = part.trim_end().trim_end_matches(['=', '<', '>', '(']).trim_end();
            let name = part.rsplit([' ', ',', '(']).next().unwrap_or_default();
            let Some(column) = self.all.iter().find(|one| **one == name) else {
                return Err(Failure(code::INVALID, format!("a variable follows {name:?}, which is no column")));
            };
            variables.push(*column);
        }
        let position = variables.iter().position(|column| Some(column) == self.all.first());
        let key: Vec<u16> = position.and_then(|position| u16::try_from(position).ok()).into_iter().collect();
        self.describe_counted(&variables, body, (version > 3).then_some(&key[..]));
        self.describe_counted(&self.columns, body, None);
        Ok(())
    }
}

fn write_cell(cell: &Cell, body: &mut Vec<u8>) {
    let mut cell_bytes = Vec::new();
    match cell {
        Cell::Text(text) => cell_bytes.extend_from_slice(text.as_bytes()),
        Cell::Inet(IpAddr::V4(ip)) => cell_bytes.extend_from_slice(&ip.octets()),
        Cell::Inet(IpAddr::V6(ip)) => cell_bytes.extend_from_slice(&ip.octets()),
        Cell::Int(value) => int(&mut cell_bytes, *value),
        Cell::Uuid(id) => cell_bytes.extend_from_slice(id),
        Cell::Boolean(value) => cell_bytes.push(u8::from(*value)),
        Cell::Texts(texts) => {
            count(&mut cell_bytes, texts.len());
            for text in texts {
                bytes(&mut cell_bytes, text.as_bytes());
            }
        }
        Cell::Map(entries) => {
            count(&mut cell_bytes, entries.len());
            for (key, value) in entries {
                bytes(&mut cell_bytes, key.as_bytes());
                bytes(&mut cell_bytes, value.as_bytes());
            }
        }
    }
    bytes(body, &cell_bytes);
}
