//! Parsing of hello replies.

use crate::bson::{RawArray, RawDocument, RawValue};
use crate::command::CommandReply;
use crate::error::{WireError, WireErrorKind};
use crate::fields::{Field, put};
use crate::labels::Labels;
use crate::message::Limits;
use crate::{server::ObjectId, server::ServerType, server::TopologyVersion};

/// A reply to hello or legacy hello: the input of monitors and topologies.
///
/// If a reply is not ok, only `ok`, `code`, `labels` and `topologyVersion` are read.
///
/// Null counts as absent; if a field is repeated, the first one is used. Fields that determine the
/// server's description must have the right type, otherwise parsing fails with the field's name:
/// `ok`, the flags that determine the [`ServerType`] (`isWritablePrimary`, `ismaster`, `secondary`,
/// `arbiterOnly`, `hidden`, `isreplicaset`; a number is accepted), `setName`, `me`, `primary`,
/// `hosts`, `passives`, `arbiters` (strings only), `setVersion`, `electionId`, `topologyVersion`,
/// `serviceId`, `minWireVersion` and `maxWireVersion` (not negative, minimum not above maximum).
/// Any other field of a wrong type counts as absent, and invalid sizes are replaced by their
/// defaults. Fields that are not read may have any text.
///
/// Host names are kept as the server sent them. SDAM requires lower case; the topology
/// converts them when it interns addresses.
///
/// A host that decodes replies itself should complete its literal with `..HelloReply::OK`, because
/// later versions may add fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HelloReply<'a> {
    /// Whether hello succeeded.
    pub ok: bool,
    /// The error code of a reply that is not ok; 0 if it has none.
    pub code: i32,
    /// The known error labels of a reply that is not ok.
    pub labels: Labels,
    /// `isWritablePrimary`, or `ismaster` in its absence.
    pub is_writable_primary: bool,
    /// Whether the server accepts the command name `hello`; use it from now on.
    pub hello_ok: bool,
    /// Whether `msg` is `isdbgrid`: a router of a sharded cluster.
    pub is_db_grid: bool,
    /// The replica set's name.
    pub set_name: Option<&'a str>,
    /// Whether the member has no replica set configuration yet.
    pub is_replica_set: bool,
    /// Whether the member is a secondary.
    pub secondary: bool,
    /// Whether the member votes and stores no data.
    pub arbiter_only: bool,
    /// Whether the member is hidden from clients.
    pub hidden: bool,
    /// The address that the member has in its configuration.
    pub me: Option<&'a str>,
    /// The primary's address, if this member knows it.
    pub primary: Option<&'a str>,
    /// The members' addresses: text only.
    pub hosts: RawArray<'a>,
    /// Addresses of members that cannot become primary: text only.
    pub passives: RawArray<'a>,
    /// Addresses of arbiters: text only.
    pub arbiters: RawArray<'a>,
    /// The member's tags.
    pub tags: RawDocument<'a>,
    /// The version of the replica set's configuration.
    pub set_version: Option<i64>,
    /// The id of the election in which the server became primary.
    pub election_id: Option<ObjectId>,
    /// `lastWrite.lastWriteDate`, in milliseconds since 1970 by the server's clock.
    pub last_write_date_ms: Option<i64>,
    /// The time after which an unused session expires.
    pub logical_session_timeout_minutes: Option<i32>,
    /// The oldest wire version that the server supports; 0 if absent.
    pub min_wire_version: i32,
    /// The newest wire version that the server supports; 0 if absent.
    pub max_wire_version: i32,
    /// The server's topology version.
    pub topology_version: Option<TopologyVersion>,
    /// The server's id of the connection.
    pub connection_id: Option<i64>,
    /// The service behind a load balancer.
    pub service_id: Option<ObjectId>,
    /// The size limits.
    pub sizes: Sizes,
    /// The compressors that both sides support.
    pub compression: RawArray<'a>,
    /// The SASL mechanisms of the user named in the request.
    pub sasl_supported_mechs: Option<RawArray<'a>>,
    /// The reply to the speculative authentication that was sent with hello.
    pub speculative_authenticate: Option<RawDocument<'a>>,
    /// Whether the server is an auxiliary process for encryption, not a database.
    pub is_cryptd: bool,
}

/// The size limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Bytes of a user's document.
    pub max_bson_object_bytes: u32,
    /// Bytes of a message.
    pub max_message_bytes: u32,
    /// Writes in a batch.
    pub max_write_batch_count: u32,
}

impl Sizes {
    /// The limits that apply if a server sends none.
    pub const DEFAULT: Self = Self {
        max_bson_object_bytes: Limits::DEFAULT.document_bytes_max,
        max_message_bytes: Limits::DEFAULT.message_bytes_max,
        max_write_batch_count: 100_000,
    };

    /// The limits on later messages, in both directions: the server's values, except that the
    /// message size is at most that of [`Limits::DEFAULT`], the limit of real servers. Hello is not
    /// authenticated, so it must not cause the client to allocate gigabytes.
    #[must_use]
    pub const fn limits(self) -> Limits {
        let most = Limits::DEFAULT.message_bytes_max;
        let message_bytes_max = if self.max_message_bytes < most { self.max_message_bytes } else { most };
        Limits { message_bytes_max, document_bytes_max: self.max_bson_object_bytes }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A valid size; `None` for zero, negative and non-numeric values.
fn size(value: RawValue<'_>) -> Option<u32> {
    u32::try_from(value.as_integer()?).ok().filter(|size| (1..=i32::MAX.unsigned_abs()).contains(size))
}

/// The fields, and how each is parsed. A table with a parser for each type needs less flash than
/// code for each field.
static FIELDS: [(&str, Kind); 30] = [
    ("isWritablePrimary", Kind::Flag(Flag::IsWritablePrimary)),
    ("ismaster", Kind::Flag(Flag::IsMaster)),
    ("isreplicaset", Kind::Flag(Flag::IsReplicaSet)),
    ("secondary", Kind::Flag(Flag::Secondary)),
    ("arbiterOnly", Kind::Flag(Flag::ArbiterOnly)),
    ("hidden", Kind::Flag(Flag::Hidden)),
    ("helloOk", Kind::LenientFlag(Flag::HelloOk)),
    ("iscryptd", Kind::LenientFlag(Flag::IsCryptd)),
    ("setName", Kind::Text(Text::SetName)),
    ("me", Kind::Text(Text::Me)),
    ("primary", Kind::Text(Text::Primary)),
    ("hosts", Kind::Texts(List::Hosts)),
    ("passives", Kind::Texts(List::Passives)),
    ("arbiters", Kind::Texts(List::Arbiters)),
    ("compression", Kind::LenientList(List::Compression)),
    ("saslSupportedMechs", Kind::LenientList(List::Mechanisms)),
    ("tags", Kind::Document(Inner::Tags)),
    ("speculativeAuthenticate", Kind::Document(Inner::Speculative)),
    ("electionId", Kind::ObjectId(Id::Election)),
    ("serviceId", Kind::ObjectId(Id::Service)),
    ("minWireVersion", Kind::Version(Version::Min)),
    ("maxWireVersion", Kind::Version(Version::Max)),
    ("maxBsonObjectSize", Kind::Size(Size::BsonObject)),
    ("maxMessageSizeBytes", Kind::Size(Size::Message)),
    ("maxWriteBatchSize", Kind::Size(Size::WriteBatch)),
    ("setVersion", Kind::SetVersion),
    ("connectionId", Kind::ConnectionId),
    ("logicalSessionTimeoutMinutes", Kind::SessionTimeout),
    ("lastWrite", Kind::LastWrite),
    ("msg", Kind::Message),
];

/// How a field is parsed, and its index among fields of that kind. A lenient field of a wrong type
/// counts as absent.
#[derive(Clone, Copy)]
enum Kind {
    Flag(Flag),
    LenientFlag(Flag),
    Text(Text),
    Texts(List),
    LenientList(List),
    Document(Inner),
    ObjectId(Id),
    Version(Version),
    Size(Size),
    SetVersion,
    ConnectionId,
    SessionTimeout,
    LastWrite,
    Message,
}

#[derive(Clone, Copy)]
enum Flag {
    IsWritablePrimary,
    IsMaster,
    IsReplicaSet,
    Secondary,
    ArbiterOnly,
    Hidden,
    HelloOk,
    IsCryptd,
}

#[derive(Clone, Copy)]
enum Text {
    SetName,
    Me,
    Primary,
}

#[derive(Clone, Copy)]
enum List {
    Hosts,
    Passives,
    Arbiters,
    Compression,
    Mechanisms,
}

#[derive(Clone, Copy)]
enum Inner {
    Tags,
    Speculative,
}

#[derive(Clone, Copy)]
enum Id {
    Election,
    Service,
}

#[derive(Clone, Copy)]
enum Version {
    Min,
    Max,
}

#[derive(Clone, Copy)]
enum Size {
    BsonObject,
    Message,
    WriteBatch,
}

/// The parsed fields before validation, indexed by the enum of their kind.
#[derive(Default)]
struct Gathered<'a> {
    flags: [Option<bool>; 8],
    texts: [Option<&'a str>; 3],
    lists: [Option<RawArray<'a>>; 5],
    documents: [Option<RawDocument<'a>>; 2],
    ids: [Option<ObjectId>; 2],
    versions: [Option<i32>; 2],
    sizes: [Option<u32>; 3],
    set_version: Option<i64>,
    connection_id: Option<i64>,
    session_timeout: Option<i32>,
    last_write_date_ms: Option<i64>,
    message: Option<&'a str>,
}

/// Stores a value unless the slot has one: the first value of a repeated field is used.
fn keep<T>(slots: &mut [Option<T>], place: usize, value: Option<T>) {
    if let (Some(place @ None), Some(_)) = (slots.get_mut(place), &value) {
        *place = value;
    }
}

impl<'a> HelloReply<'a> {
    /// A reply that is ok and has no other field.
    pub const OK: Self = Self {
        ok: true,
        code: 0,
        labels: Labels::NONE,
        is_writable_primary: false,
        hello_ok: false,
        is_db_grid: false,
        set_name: None,
        is_replica_set: false,
        secondary: false,
        arbiter_only: false,
        hidden: false,
        me: None,
        primary: None,
        hosts: RawArray::EMPTY,
        passives: RawArray::EMPTY,
        arbiters: RawArray::EMPTY,
        tags: RawDocument::EMPTY,
        set_version: None,
        election_id: None,
        last_write_date_ms: None,
        logical_session_timeout_minutes: None,
        min_wire_version: 0,
        max_wire_version: 0,
        topology_version: None,
        connection_id: None,
        service_id: None,
        sizes: Sizes::DEFAULT,
        compression: RawArray::EMPTY,
        sasl_supported_mechs: None,
        speculative_authenticate: None,
        is_cryptd: false,
    };

    /// Reads a reply. Linear in its bytes, no allocation.
    ///
    /// # Errors
    ///
    /// [`WireErrorKind::FieldMissing`] (`ok`), [`WireErrorKind::FieldType`],
    /// [`WireErrorKind::FieldValue`], or the error of the structure at the top level, or of one of these
    /// fields.
    ///
    /// Source: SDAM, "Parsing a hello or legacy hello response".
    pub fn parse(reply: RawDocument<'a>) -> Result<Self, WireError> {
        let common = CommandReply::parse(reply)?;
        if !common.ok {
            let (code, labels) = (common.code.unwrap_or(0), common.labels());
            return Ok(Self { ok: false, code, labels, topology_version: common.topology_version, ..Self::OK });
        }
        let mut gathered = Gathered::default();
        let mut wire_version_at = reply.offset();
        for raw in reply.raw_elements() {
            let raw = raw?;
            let Some((name, kind)) = FIELDS.iter().find(|(name, _)| name.as_bytes() == raw.key) else { continue };
            let Some(field) = Field::read(name, raw)? else { continue };
            if matches!(kind, Kind::Version(Version::Max)) {
                wire_version_at = field.element.offset;
            }
            gathered.take(*kind, &field)?;
        }
        gathered.into_reply(&common, wire_version_at)
    }

    /// The type of the server. If several roles apply, the first of this order is returned: ghost,
    /// router, standalone, hidden, primary, secondary, arbiter.
    ///
    /// Source: SDAM, "type" under "Parsing a hello or legacy hello response".
    #[must_use]
    pub const fn server_type(&self) -> ServerType {
        if !self.ok {
            ServerType::Unknown
        } else if self.is_replica_set {
            ServerType::RsGhost
        } else if self.is_db_grid {
            ServerType::Mongos
        } else if self.set_name.is_none() {
            ServerType::Standalone
        } else if self.hidden {
            ServerType::RsOther
        } else if self.is_writable_primary {
            ServerType::RsPrimary
        } else if self.secondary {
            ServerType::RsSecondary
        } else if self.arbiter_only {
            ServerType::RsArbiter
        } else {
            ServerType::RsOther
        }
    }

    /// The member's tags; tags that are not strings are skipped.
    pub fn tags(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.tags.iter().flatten().filter_map(|tag| Some((tag.key, tag.value.as_str()?)))
    }
}

impl<'a> Gathered<'a> {
    fn take(&mut self, kind: Kind, field: &Field<'a>) -> Result<(), WireError> {
        let value = field.element.value;
        match kind {
            Kind::Flag(flag) => keep(&mut self.flags, flag as usize, Some(field.flag()?)),
            Kind::LenientFlag(flag) => keep(&mut self.flags, flag as usize, value.as_flag()),
            Kind::Text(text) => keep(&mut self.texts, text as usize, Some(field.text()?)),
            Kind::Texts(list) => keep(&mut self.lists, list as usize, Some(field.texts()?)),
            Kind::LenientList(list) => keep(&mut self.lists, list as usize, value.as_array()),
            Kind::Document(inner) => keep(&mut self.documents, inner as usize, value.as_document()),
            Kind::ObjectId(id) => keep(&mut self.ids, id as usize, Some(field.object_id()?)),
            Kind::Version(version) => keep(&mut self.versions, version as usize, Some(field.count32()?)),
            Kind::Size(one) => keep(&mut self.sizes, one as usize, size(value)),
            Kind::SetVersion => put(&mut self.set_version, field.integer()?),
            Kind::ConnectionId => self.connection_id = self.connection_id.or(value.as_integer()),
            Kind::SessionTimeout => self.session_timeout = self.session_timeout.or(field.count32().ok()),
            Kind::LastWrite => self.last_write_date_ms = self.last_write_date_ms.or(last_write_date_ms(value)),
            Kind::Message => self.message = self.message.or(value.as_str()),
        }
        Ok(())
    }

    fn into_reply(self, common: &CommandReply<'_>, wire_version_at: u32) -> Result<HelloReply<'a>, WireError> {
        let [min_wire_version, max_wire_version] = self.versions.map(Option::unwrap_or_default);
        if max_wire_version < min_wire_version {
            let kind = WireErrorKind::FieldValue { name: "maxWireVersion" };
            return Err(WireError::new(kind, wire_version_at));
        }
        let [is_writable_primary, is_master, is_replica_set, secondary, arbiter_only, hidden, hello_ok, is_cryptd] =
            self.flags;
        let [set_name, me, primary] = self.texts;
        let [hosts, passives, arbiters, compression, sasl_supported_mechs] = self.lists;
        let [tags, speculative_authenticate] = self.documents;
        let [election_id, service_id] = self.ids;
        let [bson_object, message, write_batch] = self.sizes;
        let defaults = Sizes::DEFAULT;
        Ok(HelloReply {
            is_writable_primary: is_writable_primary.or(is_master).unwrap_or(false),
            hello_ok: hello_ok.unwrap_or(false),
            is_db_grid: self.message == Some("isdbgrid"),
            set_name,
            is_replica_set: is_replica_set.unwrap_or(false),
            secondary: secondary.unwrap_or(false),
            arbiter_only: arbiter_only.unwrap_or(false),
            hidden: hidden.unwrap_or(false),
            me,
            primary,
            hosts: hosts.unwrap_or_default(),
            passives: passives.unwrap_or_default(),
            arbiters: arbiters.unwrap_or_default(),
            tags: tags.unwrap_or_default(),
            set_version: self.set_version,
            election_id,
            last_write_date_ms: self.last_write_date_ms,
            logical_session_timeout_minutes: self.session_timeout,
            min_wire_version,
            max_wire_version,
            topology_version: common.topology_version,
            connection_id: self.connection_id,
            service_id,
            sizes: Sizes {
                max_bson_object_bytes: bson_object.unwrap_or(defaults.max_bson_object_bytes),
                max_message_bytes: message.unwrap_or(defaults.max_message_bytes),
                max_write_batch_count: write_batch.unwrap_or(defaults.max_write_batch_count),
            },
            compression: compression.unwrap_or_default(),
            sasl_supported_mechs,
            speculative_authenticate,
            is_cryptd: is_cryptd.unwrap_or(false),
            ..HelloReply::OK
        })
    }
}

/// The date of the last write, if it is present and valid.
fn last_write_date_ms(value: RawValue<'_>) -> Option<i64> {
    value.as_document()?.get("lastWriteDate").ok()??.as_date_time_ms()
}
