//! The fake server's description of itself in its hello reply, and the rules of that reply.
//!
//! Sections to read first: Server Discovery and Monitoring, "hello or legacy hello"; Server
//! Monitoring, "Streaming Protocol"; MongoDB Handshake, "Hello Command".

use super::auth::hash::MECHANISMS;
use super::compress::codec::DEFAULT;
use super::compress::{Algorithm, ReplyCompression, agree};
use bson::{DateTime, Document, Timestamp, doc, oid::ObjectId};

/// The role of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// A single server without replication.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// Primary of a replica set.
    Primary,
    /// Secondary of a replica set.
    Secondary,
    /// Member without data.
    Arbiter,
    /// Member that is neither primary nor secondary, for example while it recovers.
    Other,
    /// Started with a set name but not yet part of an initiated set.
    Ghost,
}

impl Role {
    /// Returns whether the server accepts writes.
    pub fn is_writable(self) -> bool {
        matches!(self, Self::Standalone | Self::Mongos | Self::Primary)
    }

    /// Returns whether the server belongs to a replica set, or will belong to one.
    pub fn is_replicated(self) -> bool {
        !matches!(self, Self::Standalone | Self::Mongos)
    }
}

/// The replication progress of a member: `lastWrite` of its hello reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastWrite {
    /// The term of the last write.
    pub term: i64,
    /// The last write that the member has, while it is disconnected from the primary; `None` = it
    /// follows the writes.
    pub stopped: Option<DateTime>,
}

impl LastWrite {
    /// Returns the document of the field; `written` is the time of the last write.
    fn document(self, written: DateTime) -> Document {
        let time = self.time(written);
        let date = DateTime::from_millis(self.seconds(written).saturating_mul(1000));
        doc! { "opTime": time.clone(), "lastWriteDate": date, "majorityOpTime": time, "majorityWriteDate": date }
    }

    /// Returns the time of the last write, which replies to writes also contain.
    pub(crate) fn time(self, written: DateTime) -> Document {
        let seconds = u32::try_from(self.seconds(written)).unwrap_or(u32::MAX);
        doc! { "ts": Timestamp { time: seconds, increment: 1 }, "t": self.term }
    }

    /// Rounds to whole seconds, as dates of writes are.
    fn seconds(self, written: DateTime) -> i64 {
        self.stopped.unwrap_or(written).timestamp_millis().max(0) / 1000
    }
}

/// The server's description of itself; see [`FakeServer::set_state`](super::FakeServer::set_state).
///
/// The default is a standalone like MongoDB 6.0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ServerState {
    /// The role of the server.
    pub role: Role,
    /// The release reported by `buildInfo`.
    pub version: String,
    /// Lowest wire version; `None` leaves the field out.
    pub wire_version_min: Option<i32>,
    /// Highest wire version; `None` leaves the field out.
    pub wire_version_max: Option<i32>,
    /// `maxBsonObjectSize`, bytes.
    pub document_bytes_max: i32,
    /// `maxMessageSizeBytes`, bytes.
    pub message_bytes_max: i32,
    /// `maxWriteBatchSize`, documents.
    pub batch_count_max: i32,
    /// `logicalSessionTimeoutMinutes`; `None` leaves the field out.
    pub session_timeout_minutes: Option<i32>,
    /// Whether replies carry `topologyVersion` and hello is awaitable; false = a server before 4.4.
    pub topology_version: bool,
    /// Whether the reply to clients that send `helloOk` contains it.
    pub hello_ok: bool,
    /// Mechanisms in the reply to `saslSupportedMechs`.
    pub sasl_mechanisms: Vec<String>,
    /// The supported compression algorithms.
    pub compressors: Vec<Algorithm>,
    /// Selects the replies that are compressed.
    pub reply_compression: ReplyCompression,
    /// Behind a load balancer: the services, assigned to connections in turn. Empty = no load
    /// balancer.
    pub service_ids: Vec<ObjectId>,
    /// `lastWrite` of the hello reply, if any.
    pub last_write: Option<LastWrite>,
    /// The cluster time of replies, as seconds and increment; `None` leaves it out.
    pub cluster_time: Option<(u32, u32)>,
    /// Further fields of the hello reply (`setName`, `hosts`, `me`, `tags`, ...). They replace
    /// fields of the same name.
    pub fields: Document,
}

impl Default for ServerState {
    fn default() -> Self {
        Self {
            role: Role::Standalone,
            version: "6.0.5".to_owned(),
            wire_version_min: Some(0),
            wire_version_max: Some(17),
            document_bytes_max: 16 * 1024 * 1024,
            message_bytes_max: 48_000_000,
            batch_count_max: 100_000,
            session_timeout_minutes: Some(30),
            topology_version: true,
            hello_ok: true,
            sasl_mechanisms: MECHANISMS.map(str::to_owned).to_vec(),
            compressors: DEFAULT.to_vec(),
            reply_compression: ReplyCompression::AsAsked,
            service_ids: Vec::new(),
            last_write: None,
            cluster_time: None,
            fields: Document::new(),
        }
    }
}

impl ServerState {
    /// A standalone like MongoDB 6.0.
    pub fn standalone() -> Self {
        Self::default()
    }

    /// A standalone like MongoDB 4.2: no `topologyVersion`, hello is not awaitable.
    pub fn without_topology_version() -> Self {
        Self {
            version: "4.2.24".to_owned(),
            wire_version_max: Some(8),
            topology_version: false,
            hello_ok: false,
            ..Self::default()
        }
    }

    /// A router behind a load balancer, for clients with `loadBalanced: true`.
    pub fn load_balanced(service_ids: Vec<ObjectId>) -> Self {
        Self { role: Role::Mongos, service_ids, ..Self::default() }
    }

    /// A member of the set `set_name` with the given role and members (`host:port`), which include
    /// `me`.
    pub fn member(role: Role, set_name: &str, hosts: &[&str], me: &str, primary: Option<&str>) -> Self {
        let mut fields = doc! { "setName": set_name, "setVersion": 1, "hosts": hosts.to_vec(), "me": me };
        if let Some(primary) = primary {
            fields.insert("primary", primary);
        }
        Self { role, fields, ..Self::default() }
    }
}

/// Id of the process and the count of its state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopologyVersion {
    /// Changes with every start of the process.
    pub process_id: ObjectId,
    /// Incremented by every state change.
    pub counter: i64,
}

impl TopologyVersion {
    /// Returns the document of the field.
    pub fn document(self) -> Document {
        doc! { "processId": self.process_id, "counter": self.counter }
    }
}

/// The inputs of one connection's hello reply, in addition to the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Greeting<'a> {
    pub(crate) legacy: bool,
    pub(crate) request: &'a Document,
    pub(crate) connection: u64,
    pub(crate) version: TopologyVersion,
    /// The time of the last write.
    pub(crate) written: DateTime,
}

/// Builds the reply to `hello` or its legacy forms.
pub(crate) fn hello_reply(state: &ServerState, greeting: Greeting<'_>) -> Document {
    let mut reply = Document::new();
    if state.hello_ok && truthy(greeting.request, "helloOk") {
        reply.insert("helloOk", true);
    }
    reply.insert(if greeting.legacy { "ismaster" } else { "isWritablePrimary" }, state.role.is_writable());
    match state.role {
        Role::Standalone => {}
        Role::Mongos => {
            reply.insert("msg", "isdbgrid");
        }
        Role::Primary | Role::Other => {
            reply.insert("secondary", false);
        }
        Role::Secondary => {
            reply.insert("secondary", true);
        }
        Role::Arbiter => {
            reply.insert("secondary", false);
            reply.insert("arbiterOnly", true);
        }
        Role::Ghost => {
            reply.insert("secondary", false);
            reply.insert("isreplicaset", true);
        }
    }
    if state.topology_version {
        reply.insert("topologyVersion", greeting.version.document());
    }
    reply.insert("maxBsonObjectSize", state.document_bytes_max);
    reply.insert("maxMessageSizeBytes", state.message_bytes_max);
    reply.insert("maxWriteBatchSize", state.batch_count_max);
    reply.insert("localTime", DateTime::now());
    if let Some(minutes) = state.session_timeout_minutes {
        reply.insert("logicalSessionTimeoutMinutes", minutes);
    }
    reply.insert("connectionId", i32::try_from(greeting.connection).unwrap_or(i32::MAX));
    if let Some(version) = state.wire_version_min {
        reply.insert("minWireVersion", version);
    }
    if let Some(version) = state.wire_version_max {
        reply.insert("maxWireVersion", version);
    }
    reply.insert("readOnly", false);
    if greeting.request.get_str("saslSupportedMechs").is_ok() {
        reply.insert("saslSupportedMechs", state.sasl_mechanisms.clone());
    }
    let compressors = agree(greeting.request, &state.compressors);
    if !compressors.is_empty() {
        reply.insert("compression", compressors.iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>());
    }
    let count = state.service_ids.len();
    if count > 0 && truthy(greeting.request, "loadBalanced") {
        let turn = usize::try_from(greeting.connection).unwrap_or(0) % count;
        reply.insert("serviceId", state.service_ids[turn]);
    }
    if let Some(last_write) = state.last_write {
        reply.insert("lastWrite", last_write.document(greeting.written));
    }
    for (name, value) in &state.fields {
        reply.insert(name.clone(), value.clone());
    }
    if !state.fields.contains_key("ok") {
        reply.insert("ok", 1.0);
    }
    reply
}

/// Returns the truth value by the rules of a server: `true`, or a number that is not 0.
pub(crate) fn truthy(document: &Document, name: &str) -> bool {
    document.get(name).is_some_and(|value| {
        value.as_bool().unwrap_or_else(|| super::errors::number(value).is_some_and(|number| number != 0.0))
    })
}
