//! The same bytes are sent to the fake node and to a real one, and the replies must have the same shape.
//!
//! The shape of a reply: its opcode, version, stream and flags; the code of an error and the length of its
//! further fields; the kind of a result, the names and types of its columns, and which cells are null. Texts
//! and values are not compared. After the replies to an input, OPTIONS shows whether the connection is open.

use alloc::collections::BTreeSet;
use core::fmt::Write as _;
use core::net::SocketAddr;
use poolhouse_tests::cassandra::Cassandra;
use poolhouse_tests::cql_server::codec::{COMPRESSED, Compression, Decoder, Encoder, Envelope, Framing, Header};
use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions};
use poolhouse_tests::patience::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

const ERROR: u8 = 0x00;
const STARTUP: u8 = 0x01;
const READY: u8 = 0x02;
const OPTIONS: u8 = 0x05;
const SUPPORTED: u8 = 0x06;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const REGISTER: u8 = 0x0b;
const BATCH: u8 = 0x0d;
const AUTH_RESPONSE: u8 = 0x0f;

/// The flag of a header that asks for a trace.
const TRACING: u8 = 0x02;
/// The flag of parameters that omits the description of columns.
const SKIP_METADATA: u8 = 0x02;

/// The stream of each request.
const STREAM: i16 = 258;

/// Longer than a reply to any input.
const LENGTH_MAX: usize = 1 << 20;

/// The columns that a session reads, of all tables.
const READ_BY_SESSIONS: [&str; 14] = [
    "broadcast_address",
    "cluster_name",
    "data_center",
    "host_id",
    "keyspace_name",
    "native_address",
    "native_port",
    "partitioner",
    "rack",
    "replication",
    "rpc_address",
    "rpc_port",
    "schema_version",
    "tokens",
];

/// The versions and compressions of connections.
const FORMATS: [(u8, Option<Compression>); 6] = [
    (3, None),
    (3, Some(Compression::Lz4)),
    (4, None),
    (4, Some(Compression::Lz4)),
    (5, None),
    (5, Some(Compression::Lz4)),
];

/// An input, and what it does on a new connection.
type Input = (&'static str, fn(&mut Client));

/// Inputs before STARTUP.
const FIRST: &[Input] = &[
    ("OPTIONS", |client| client.ask(OPTIONS, &[])),
    ("STARTUP with an unknown version of CQL", |client| client.ask(STARTUP, &map(&[("CQL_VERSION", "9.9.9")]))),
    ("STARTUP with an unknown version of CQL, then a right one in a segment", |client| {
        client.ask(STARTUP, &map(&[("CQL_VERSION", "9.9.9")]));
        if client.version >= 5 {
            client.set_framing(Framing::of(client.version, None));
        }
        client.ask(STARTUP, &map(&[("CQL_VERSION", "3.0.0")]));
    }),
    ("STARTUP with an old version of CQL", |client| client.ask(STARTUP, &map(&[("CQL_VERSION", "2.0.0")]))),
    ("STARTUP with a malformed version of CQL", |client| client.ask(STARTUP, &map(&[("CQL_VERSION", "tea")]))),
    ("STARTUP without a version of CQL", |client| client.ask(STARTUP, &map(&[("DRIVER_NAME", "tea")]))),
    ("STARTUP with an unknown compression", |client| {
        client.ask(STARTUP, &map(&[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "tea")]));
    }),
    ("STARTUP with snappy", |client| {
        if client.version < 5 {
            client.start(Some(Compression::Snappy));
        } else {
            client.ask(STARTUP, &map(&[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "snappy")]));
        }
    }),
    ("STARTUP with a part of a map", |client| client.ask(STARTUP, &[0, 1, 0, 11, b'C'])),
    ("QUERY before STARTUP", |client| client.query("SELECT key FROM system.local")),
    ("REGISTER before STARTUP", |client| client.ask(REGISTER, &list(&["STATUS_CHANGE"]))),
    ("AUTH_RESPONSE before STARTUP", |client| client.ask(AUTH_RESPONSE, &long(b"\0ada\0pencil"))),
];

/// Inputs after STARTUP.
const STARTED: &[Input] = &[
    ("STARTUP, then OPTIONS", |client| client.ask(OPTIONS, &[])),
    ("STARTUP again", |client| client.ask(STARTUP, &map(&[("CQL_VERSION", "3.0.0")]))),
    ("AUTH_RESPONSE without AUTHENTICATE", |client| client.ask(AUTH_RESPONSE, &long(b"\0ada\0pencil"))),
    ("REGISTER", |client| {
        client.ask(REGISTER, &list(&["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"]));
    }),
    ("REGISTER for an unknown event", |client| client.ask(REGISTER, &list(&["TEA_CHANGE"]))),
    ("the node", |client| client.query("SELECT * FROM system.local WHERE key = 'local'")),
    ("columns of the node", |client| {
        client.query("SELECT cluster_name, host_id, rpc_port, tokens FROM system.local WHERE key='local'");
    }),
    ("version of the schema", |client| client.query("SELECT schema_version FROM system.local WHERE key = 'local'")),
    ("peers", |client| client.query("SELECT * FROM system.peers_v2")),
    ("peers of old servers", |client| client.query("SELECT * FROM system.peers")),
    ("keyspaces", |client| client.query("SELECT keyspace_name, replication FROM system_schema.keyspaces")),
    ("rows without a description", |client| {
        client.ask(QUERY, &client.parameters(&long(b"SELECT key FROM system.local"), SKIP_METADATA, &[]));
    }),
    ("USE of a keyspace", |client| client.query("USE system")),
    ("USE of a keyspace in quotation marks", |client| client.query("USE \"system\"")),
    ("USE of an absent keyspace", |client| client.query("USE absent")),
    ("syntax error", |client| client.query("SELEC key FROM system.local")),
    ("empty statement", |client| client.query("")),
    ("absent table", |client| client.query("SELECT key FROM system.absent")),
    ("absent keyspace", |client| client.query("SELECT key FROM absent.local")),
    ("absent column", |client| client.query("SELECT absent FROM system.local")),
    ("PREPARE and EXECUTE", |client| client.prepare_and_execute("SELECT key FROM system.local", &[], None)),
    ("PREPARE and EXECUTE with a value", |client| {
        client.prepare_and_execute("SELECT rack FROM system.local WHERE key = ?", &[b"local"], None);
    }),
    ("EXECUTE without its value", |client| {
        client.prepare_and_execute("SELECT rack FROM system.local WHERE key = ?", &[], None);
    }),
    ("EXECUTE with the id of other columns", |client| {
        client.prepare_and_execute("SELECT key FROM system.local", &[], Some(b"sixteen bytes ..."));
    }),
    ("PREPARE of a syntax error", |client| client.ask(PREPARE, &client.prepared("SELEC key FROM system.local"))),
    ("EXECUTE of an unknown id", |client| client.execute(b"sixteen bytes of", b"sixteen bytes of", &[])),
    ("BATCH without statements", |client| {
        let flags = if client.version < 5 { &[0][..] } else { &[0; 4] };
        client.ask(BATCH, &[&[0, 0, 0, 0, 1], flags].concat());
    }),
    ("QUERY with a part of a text", |client| client.ask(QUERY, &[0, 0, 1, 0, b'S'])),
    ("QUERY without a body", |client| client.ask(QUERY, &[])),
    ("EXECUTE with a part of an id", |client| client.ask(EXECUTE, &[0, 16, 1, 2])),
    ("opcode of a result", |client| client.ask(RESULT, &[0, 0, 0, 1])),
    ("opcode of an error", |client| client.ask(ERROR, &[0, 0, 0, 0, 0, 0])),
    ("unknown opcode", |client| client.ask(0x44, &[])),
    ("direction of a reply", |client| {
        let version = client.version | 0x80;
        client.send(Header { version, flags: 0, stream: STREAM, opcode: OPTIONS }, &[]);
        client.receive();
    }),
    ("another version", |client| {
        let version = if client.version == 3 { 4 } else { client.version - 1 };
        client.send(Header { version, flags: 0, stream: STREAM, opcode: OPTIONS }, &[]);
        client.receive();
    }),
    ("negative stream", |client| {
        client.send(Header { version: client.version, flags: 0, stream: -2, opcode: OPTIONS }, &[]);
        client.receive();
    }),
    ("negative length", |client| {
        let header = Header { version: client.version, flags: 0, stream: STREAM, opcode: OPTIONS };
        client.send_parts(&header.bytes(-1));
        // Without segments nothing is sent, and the node waits.
        client.end();
    }),
    ("two requests in one write", |client| {
        let header = Header { version: client.version, flags: 0, stream: STREAM, opcode: OPTIONS };
        let mut wire = Vec::new();
        client.encoder.encode(&[header.envelope(&[]), header.envelope(&[])].concat(), &mut wire);
        client.write(&wire);
        client.receive();
        client.receive();
    }),
    ("part of a header, then the end", |client| {
        client.send_parts(&[client.version, 0, 0, 1, OPTIONS]);
        client.end();
    }),
    ("part of a body, then the end", |client| {
        let header = Header { version: client.version, flags: 0, stream: STREAM, opcode: QUERY };
        client.send_parts(&[&header.bytes(100)[..], b"SELECT"].concat());
        client.end();
    }),
    ("damaged header of a segment", |client| client.damaged(0)),
    ("damaged payload of a segment", |client| client.damaged(usize::MAX)),
    ("trace", |client| {
        let body = client.parameters(&long(b"SELECT key FROM system.local"), 0, &[]);
        client.send(Header { version: client.version, flags: TRACING, stream: STREAM, opcode: QUERY }, &body);
        client.receive();
    }),
];

/// Inputs with intended differences: what the documentation of the fake node says that it does not support.
const DIFFERENT: [&str; 1] = ["trace"];

/// Statements that change data or the schema: the fake node refuses them.
const REFUSED_BY_THE_FAKE: [&str; 8] = [
    "CREATE KEYSPACE recorded WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE recorded.teas (id int PRIMARY KEY, name text)",
    "ALTER TABLE recorded.teas ADD price int",
    "INSERT INTO recorded.teas (id, name) VALUES (1, 'green')",
    "UPDATE recorded.teas SET name = 'black' WHERE id = 1",
    "DELETE FROM recorded.teas WHERE id = 1",
    "TRUNCATE recorded.teas",
    "DROP KEYSPACE recorded",
];

/// The statements of the fake node alone.
const REFUSED_BY_THE_REAL: [&str; 4] = ["echo tea", "bytes 3", "void", "delay 1 void"];

/// Versions that no node of this test accepts.
const UNSUPPORTED: [u8; 5] = [1, 2, 6, 7, 66];

/// A connection that records the shapes of replies.
struct Client {
    stream: TcpStream,
    version: u8,
    /// That of the last [`Client::start`].
    compression: Option<Compression>,
    encoder: Encoder,
    decoder: Decoder,
    shapes: Vec<String>,
    is_open: bool,
}

impl Client {
    fn new(address: SocketAddr, version: u8) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let (encoder, decoder) = (Encoder::default(), Decoder::new(LENGTH_MAX));
        Self { stream, version, compression: None, encoder, decoder, shapes: Vec::new(), is_open: true }
    }

    /// Performs the handshake, whose shape is recorded too.
    fn start(&mut self, compression: Option<Compression>) {
        let mut options = vec![("CQL_VERSION", "3.0.0")];
        options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
        if self.version < 5 {
            // The body of the answer may be compressed, too.
            self.decoder.set_framing(Framing::of(self.version, compression));
        }
        self.compression = compression;
        self.ask(STARTUP, &map(&options));
    }

    fn ask(&mut self, opcode: u8, body: &[u8]) {
        self.send(Header { version: self.version, flags: 0, stream: STREAM, opcode }, body);
        let reply = self.receive();
        if opcode == STARTUP && reply.is_some_and(|(opcode, _)| opcode == READY) {
            self.set_framing(Framing::of(self.version, self.compression));
        }
    }

    fn set_framing(&mut self, framing: Framing) {
        self.encoder = Encoder::new(framing);
        self.decoder.set_framing(framing);
    }

    fn query(&mut self, text: &str) {
        self.ask(QUERY, &self.parameters(&long(text.as_bytes()), 0, &[]));
    }

    /// A text or an id with consistency ONE, flags and values.
    fn parameters(&self, front: &[u8], flags: u8, values: &[&[u8]]) -> Vec<u8> {
        let mut body = [front, &[0, 1]].concat();
        body.extend(if self.version < 5 { &[][..] } else { &[0; 3] });
        body.push(flags | u8::from(!values.is_empty()));
        if !values.is_empty() {
            body.extend(count(values.len()));
            values.iter().for_each(|value| body.extend(long(value)));
        }
        body
    }

    fn prepared(&self, text: &str) -> Vec<u8> {
        let flags = if self.version < 5 { &[][..] } else { &[0; 4] };
        [&long(text.as_bytes()), flags].concat()
    }

    fn execute(&mut self, id: &[u8], columns_id: &[u8], values: &[&[u8]]) {
        let mut front = short(id);
        if self.version >= 5 {
            front.extend(short(columns_id));
        }
        // As sessions that keep the description of a statement do.
        self.ask(EXECUTE, &self.parameters(&front, SKIP_METADATA, values));
    }

    fn prepare_and_execute(&mut self, text: &str, values: &[&[u8]], columns_id: Option<&[u8]>) {
        let body = self.prepared(text);
        self.send(Header { version: self.version, flags: 0, stream: STREAM, opcode: PREPARE }, &body);
        let Some((opcode, body)) = self.receive() else { return };
        assert_eq!(opcode, RESULT, "{text}: {:?}", self.shapes);
        let mut rest = Rest(&body[4..]);
        let id = rest.short_bytes();
        let columns = if self.version >= 5 { rest.short_bytes() } else { &[] };
        self.execute(id, columns_id.unwrap_or(columns), values);
    }

    fn send(&mut self, header: Header, body: &[u8]) {
        let mut wire = Vec::new();
        self.encoder.encode(&header.envelope(body), &mut wire);
        self.write(&wire);
    }

    /// Sends bytes that are no whole envelope.
    fn send_parts(&mut self, bytes: &[u8]) {
        if self.encoder.framing().has_segments {
            let mut wire = Vec::new();
            self.encoder.encode_segment(bytes, true, &mut wire);
            self.write(&wire);
        } else {
            self.write(bytes);
        }
    }

    /// Sends a request in a segment, one byte of which is changed; without segments it is intact.
    fn damaged(&mut self, place: usize) {
        let header = Header { version: self.version, flags: 0, stream: STREAM, opcode: OPTIONS };
        let mut wire = Vec::new();
        self.encoder.encode(&header.envelope(&[]), &mut wire);
        if self.encoder.framing().has_segments {
            let place = place.min(wire.len() - 1);
            wire[place] ^= 0x80;
        }
        self.write(&wire);
        self.receive();
    }

    fn write(&mut self, wire: &[u8]) {
        // A connection that the node has closed is noticed by the next read.
        let _ = self.stream.write_all(wire);
    }

    /// Sends no more bytes, and records all replies.
    fn end(&mut self) {
        // The node may have closed it already.
        let _ = self.stream.shutdown(Shutdown::Write);
        while self.receive().is_some() {}
    }

    /// Records one reply, or the end of the connection. Returns the opcode and the body of a reply.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut buffer = [0; 4096];
        while self.is_open {
            match self.decoder.envelope() {
                Ok(Some(envelope)) => {
                    let shape = shape(envelope, self.version);
                    self.shapes.push(shape);
                    return Some((envelope.header.opcode, envelope.body.to_vec()));
                }
                // For example in segments although STARTUP has failed.
                Err(_) => {
                    self.shapes.push("unreadable".to_owned());
                    self.is_open = false;
                    return None;
                }
                Ok(None) => {}
            }
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.decoder.push(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("no reply: {:?}", self.shapes)
                }
                // The end of the stream, or a reset.
                Ok(_) | Err(_) => self.is_open = false,
            }
        }
        self.shapes.push("closed".to_owned());
        None
    }

    /// Returns what was recorded, and whether the connection is open.
    fn finish(mut self) -> Vec<String> {
        if self.is_open {
            self.ask(OPTIONS, &[]);
        }
        self.shapes
    }
}

/// The unread rest of a body.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at_checked(count).expect("the body is long enough");
        self.0 = tail;
        head
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().expect("two bytes"))
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn short_bytes(&mut self) -> &'a [u8] {
        let count = self.short();
        self.take(usize::from(count))
    }

    fn string(&mut self) -> &'a str {
        core::str::from_utf8(self.short_bytes()).expect("UTF-8")
    }

    /// `None` is null.
    fn long_bytes(&mut self) -> Option<&'a [u8]> {
        usize::try_from(self.int()).ok().map(|count| self.take(count))
    }

    /// The type of a column, as hexadecimal numbers.
    fn kind(&mut self) -> String {
        let kind = self.short();
        match kind {
            0x20 | 0x22 => format!("{kind:x}<{}>", self.kind()),
            0x21 => format!("{kind:x}<{}, {}>", self.kind(), self.kind()),
            _ => format!("{kind:x}"),
        }
    }

    /// The description of columns: their names and types, and whether the description has further parts.
    fn columns(&mut self, key: bool) -> (i32, usize, Vec<(String, String)>, String) {
        let (flags, number) = (self.int(), usize::try_from(self.int()).expect("a count"));
        let mut more = String::new();
        if key {
            let key: Vec<_> = (0..self.int()).map(|_| self.short()).collect();
            let _ = write!(more, " key {key:?}");
        }
        if flags & 2 != 0 {
            let _ = write!(more, " paging state {}", self.long_bytes().is_some());
        }
        if flags & 8 != 0 {
            let _ = write!(more, " new id of {} bytes", self.short_bytes().len());
        }
        if flags & 4 != 0 {
            return (flags, number, Vec::new(), more);
        }
        let global = if flags & 1 != 0 { format!("{}.{}", self.string(), self.string()) } else { String::new() };
        let one = |rest: &mut Self| {
            let table = if flags & 1 != 0 { global.clone() } else { format!("{}.{}", rest.string(), rest.string()) };
            let name = rest.string();
            (name.to_owned(), format!("{table}.{name} {}", rest.kind()))
        };
        (flags, number, (0..number).map(|_| one(self)).collect(), more)
    }
}

fn shape(envelope: Envelope<'_>, version: u8) -> String {
    let Envelope { header, body } = envelope;
    let mut rest = Rest(body);
    // Whether a body is worth its compression is the server's decision.
    let flags = header.flags & !COMPRESSED;
    let mut extra = String::new();
    if flags & TRACING != 0 {
        let _ = write!(extra, " trace of {} bytes", rest.take(16).len());
    }
    let what = match header.opcode {
        ERROR => {
            let code = rest.int();
            rest.string();
            format!("ERROR {code:#06x} and {} bytes", core::mem::take(&mut rest.0).len())
        }
        READY => "READY".to_owned(),
        SUPPORTED => {
            let mut options = Vec::new();
            for _ in 0..rest.short() {
                let name = rest.string();
                let mut values: Vec<_> = (0..rest.short()).map(|_| rest.string()).collect();
                values.sort_unstable();
                options.push(if name == "COMPRESSION" { format!("{name} {values:?}") } else { name.to_owned() });
            }
            options.sort();
            format!("SUPPORTED {options:?}")
        }
        RESULT => result(&mut rest, version),
        other => format!("opcode {other:#04x} of {} bytes", core::mem::take(&mut rest.0).len()),
    };
    let left = if rest.0.is_empty() { String::new() } else { format!(", {} bytes left", rest.0.len()) };
    format!("{what}{left}; version {:#04x} stream {} flags {flags:#04x}{extra}", header.version, header.stream)
}

fn result(rest: &mut Rest<'_>, version: u8) -> String {
    match rest.int() {
        1 => "VOID".to_owned(),
        2 => {
            let (flags, number, columns, more) = rest.columns(false);
            let rows: Vec<Vec<bool>> =
                (0..rest.int()).map(|_| (0..number).map(|_| rest.long_bytes().is_some()).collect()).collect();
            // Of `SELECT *` the columns that sessions read: a node may have more.
            let is_all = number > 5;
            let mut shown: Vec<_> = columns
                .iter()
                .enumerate()
                .filter(|(_, (name, _))| !is_all || READ_BY_SESSIONS.contains(&name.as_str()))
                .map(|(place, (_, text))| format!("{text} {:?}", rows.first().map(|row| row[place])))
                .collect();
            if is_all {
                shown.sort();
            }
            let number = if is_all { "all".to_owned() } else { number.to_string() };
            format!("ROWS flags {flags} {number} columns{more} {shown:?} any {}", !rows.is_empty())
        }
        3 => {
            rest.string();
            "SET_KEYSPACE".to_owned()
        }
        4 => {
            let id = rest.short_bytes().len();
            let columns_id = if version >= 5 { rest.short_bytes().len() } else { 0 };
            let variables = rest.columns(version >= 4);
            format!("PREPARED id {id} {columns_id} variables {variables:?} columns {:?}", rest.columns(false))
        }
        5 => format!("SCHEMA_CHANGE of {} bytes", core::mem::take(&mut rest.0).len()),
        other => format!("kind {other}"),
    }
}

fn count(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("a small number").to_be_bytes()
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&count(bytes.len()), bytes].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("a small number").to_be_bytes(), bytes].concat()
}

fn list(texts: &[&str]) -> Vec<u8> {
    let mut bytes = count(texts.len()).to_vec();
    texts.iter().for_each(|text| bytes.extend(short(text.as_bytes())));
    bytes
}

fn map(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = count(entries.len()).to_vec();
    for (key, value) in entries {
        bytes.extend(short(key.as_bytes()));
        bytes.extend(short(value.as_bytes()));
    }
    bytes
}

/// The shapes of the replies to an input on a new connection.
fn record(
    address: SocketAddr,
    (version, compression): (u8, Option<Compression>),
    is_started: bool,
    input: Input,
) -> Vec<String> {
    let mut client = Client::new(address, version);
    if is_started {
        client.start(compression);
    }
    input.1(&mut client);
    client.finish()
}

/// The first shape of the replies to a statement.
fn answer(address: SocketAddr, text: &str) -> String {
    let mut client = Client::new(address, 4);
    client.start(None);
    client.query(text);
    client.shapes.swap_remove(1)
}

/// The replies to two requests in a version that a node does not support.
fn refusal(address: SocketAddr, version: u8) -> Vec<String> {
    let mut client = Client::new(address, version);
    let header = Header { version, flags: 0, stream: STREAM, opcode: OPTIONS };
    if version < 3 {
        // The oldest versions have one byte for the stream, and a header of eight.
        client.write(&header.bytes(0));
        let mut first = [0; 8];
        client.stream.read_exact(&mut first).expect("a reply");
        return vec![format!("{:?}", &first[..4])];
    }
    client.ask(OPTIONS, &[]);
    client.finish()
}

pub(crate) fn fake_node_replies_as_the_real_one(node: &Cassandra) {
    let mut options = CqlServerOptions::default();
    options.keyspaces = Some(Vec::new());
    let fake = CqlServer::start(options).expect("it starts");
    let addresses = [fake.address(), node.address()];
    let (mut compared, mut different) = (0, BTreeSet::new());
    for format in FORMATS {
        for (is_started, inputs) in [(false, FIRST), (true, STARTED)] {
            // Before STARTUP there is no compression.
            if !is_started && format.1.is_some() {
                continue;
            }
            for input in inputs {
                let [of_fake, of_real] = addresses.map(|address| record(address, format, is_started, *input));
                compared += 1;
                if of_fake != of_real {
                    println!("{format:?} {}\n  fake: {of_fake:#?}\n  real: {of_real:#?}", input.0);
                    different.insert(input.0);
                }
            }
        }
    }
    for version in UNSUPPORTED {
        let [of_fake, of_real] = addresses.map(|address| refusal(address, version));
        assert_eq!(of_fake, of_real, "version {version}");
    }
    println!("{compared} inputs have replies of the same shape, except {different:?}");
    assert!(different.into_iter().eq(DIFFERENT), "the differences above");
    for text in REFUSED_BY_THE_FAKE {
        let [of_fake, of_real] = addresses.map(|address| answer(address, text));
        assert!(of_fake.starts_with("ERROR 0x2000"), "{text}: {of_fake}");
        assert!(of_real.starts_with("VOID") || of_real.starts_with("SCHEMA_CHANGE"), "{text}: {of_real}");
    }
    for text in REFUSED_BY_THE_REAL {
        let [of_fake, of_real] = addresses.map(|address| answer(address, text));
        assert!(of_fake.starts_with("ROWS") || of_fake.starts_with("VOID"), "{text}: {of_fake}");
        assert!(of_real.starts_with("ERROR 0x2000"), "{text}: {of_real}");
    }
}
