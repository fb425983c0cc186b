//! Reading what a server says of itself.

use crate::server::{ObjectId, Roles, ServerType, TopologyVersion};
use crate::wire::bson::{RawArray, RawDocument, RawValue};
use crate::wire::error::{WireError, WireErrorKind};
use crate::wire::fields::{Field, is_absent, put};
use crate::wire::message::Limits;

/// A reply to hello or legacy hello.
///
/// Null counts as absent; of a field that comes twice the first counts. What decides about servers must
/// have its type, or the reply is refused with the field's name: `ok`, the flags that make a
/// [`ServerType`] (`isWritablePrimary`, `ismaster`, `secondary`, `arbiterOnly`, `hidden`, `isreplicaset`; a number
/// will do), `setName`, `me`, `primary`, `hosts`, `passives`, `arbiters` (nothing but text inside),
/// `setVersion`, `electionId`, `topologyVersion`, `serviceId`, `minWireVersion` and `maxWireVersion` (not
/// negative, not the wrong way round). A wrong type of anything else counts as absence, and sizes that
/// make no sense are replaced by their defaults.
///
/// Host names are as the server wrote them: SDAM wants them in lower case (SDAM-28), which is done where
/// addresses are interned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HelloReply<'a> {
    /// Whether hello succeeded.
    pub ok: bool,
    /// `isWritablePrimary`, or `ismaster` in its absence (SDAM-13).
    pub is_writable_primary: bool,
    /// Whether `hello` may be called by its new name from now on.
    pub hello_ok: bool,
    /// `isdbgrid` from a mongos.
    pub msg: Option<&'a str>,
    /// The replica set's name.
    pub set_name: Option<&'a str>,
    /// A replica set member without configuration.
    pub is_replica_set: bool,
    /// A secondary.
    pub secondary: bool,
    /// A member that votes and holds no data.
    pub arbiter_only: bool,
    /// A member that clients should not see.
    pub hidden: bool,
    /// The address that the member has in its configuration.
    pub me: Option<&'a str>,
    /// The primary's address, as far as this member knows.
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
    /// The election that made it primary.
    pub election_id: Option<ObjectId>,
    /// What was written last.
    pub last_write: Option<LastWrite>,
    /// How long a session lives without being used.
    pub logical_session_timeout_minutes: Option<i32>,
    /// The oldest protocol version it speaks; 0 when it does not say.
    pub min_wire_version: i32,
    /// The newest protocol version it speaks; 0 when it does not say.
    pub max_wire_version: i32,
    /// Where its state stands.
    pub topology_version: Option<TopologyVersion>,
    /// The server's own number for the connection.
    pub connection_id: Option<i64>,
    /// The service behind a load balancer.
    pub service_id: Option<ObjectId>,
    /// How large things may be.
    pub sizes: Sizes,
    /// The compressors that both sides have.
    pub compression: RawArray<'a>,
    /// The SASL mechanisms of the user that was asked about.
    pub sasl_supported_mechs: Option<RawArray<'a>>,
    /// The reply to the authentication that was begun with hello.
    pub speculative_authenticate: Option<RawDocument<'a>>,
    /// An auxiliary process for encryption, no database.
    pub is_cryptd: bool,
}

/// What was written last on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LastWrite {
    /// Milliseconds since the Unix epoch, by the server's clock.
    pub date_ms: i64,
}

/// How large things may be on a connection.
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
    /// What applies when a server does not say.
    pub const DEFAULT: Self = Self {
        max_bson_object_bytes: Limits::DEFAULT.document_bytes_max,
        max_message_bytes: Limits::DEFAULT.message_bytes_max,
        max_write_batch_count: 100_000,
    };

    /// The limits on messages that follow.
    #[must_use]
    pub const fn limits(self) -> Limits {
        Limits { message_bytes_max: self.max_message_bytes, document_bytes_max: self.max_bson_object_bytes }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A size that makes sense, or none: zero, negative and non-numbers do not.
fn size(value: RawValue<'_>) -> Option<u32> {
    u32::try_from(value.as_integer()?).ok().filter(|size| (1..=i32::MAX.unsigned_abs()).contains(size))
}

/// Fields that are gathered before they are settled.
#[derive(Default)]
struct Gathered<'a> {
    ok: Option<bool>,
    is_writable_primary: Option<bool>,
    is_master: Option<bool>,
    is_replica_set: Option<bool>,
    secondary: Option<bool>,
    arbiter_only: Option<bool>,
    hidden: Option<bool>,
    hello_ok: Option<bool>,
    is_cryptd: Option<bool>,
    hosts: Option<RawArray<'a>>,
    passives: Option<RawArray<'a>>,
    arbiters: Option<RawArray<'a>>,
    compression: Option<RawArray<'a>>,
    tags: Option<RawDocument<'a>>,
    min_wire_version: Option<i32>,
    max_wire_version: Option<i32>,
    max_bson_object_bytes: Option<u32>,
    max_message_bytes: Option<u32>,
    max_write_batch_count: Option<u32>,
}

impl<'a> HelloReply<'a> {
    /// Reads a reply. Linear in its bytes, no allocation.
    ///
    /// # Errors
    ///
    /// [`WireErrorKind::FieldMissing`] (`ok`), [`WireErrorKind::FieldType`], [`WireErrorKind::FieldValue`], or
    /// whatever is malformed at the top level.
    ///
    /// Source: SDAM, "Parsing a hello or legacy hello response" (SDAM-13 to SDAM-30).
    pub fn parse(reply: RawDocument<'a>) -> Result<Self, WireError> {
        let mut gathered = Gathered::default();
        let mut this = Self::default();
        let mut wire_version_at = reply.offset();
        for element in reply {
            let element = element?;
            if is_absent(&element.value) {
                continue;
            }
            if element.key == "maxWireVersion" {
                wire_version_at = element.offset;
            }
            if !this.take_member(element.key, Field::new("", element))? {
                gathered.take(element.key, Field::new("", element))?;
            }
        }
        gathered.settle(this, reply.offset(), wire_version_at)
    }

    /// Takes a field that is kept as it comes.
    fn take_member(&mut self, key: &str, field: Field<'a>) -> Result<bool, WireError> {
        let named = |name| Field { name, ..field };
        let value = field.element.value;
        match key {
            "msg" => self.msg = self.msg.or(value.as_str()),
            "setName" => put(&mut self.set_name, named("setName").text()?),
            "me" => put(&mut self.me, named("me").text()?),
            "primary" => put(&mut self.primary, named("primary").text()?),
            "setVersion" => put(&mut self.set_version, named("setVersion").integer()?),
            "electionId" => put(&mut self.election_id, named("electionId").object_id()?),
            "serviceId" => put(&mut self.service_id, named("serviceId").object_id()?),
            "topologyVersion" => put(&mut self.topology_version, named("topologyVersion").topology_version()?),
            "connectionId" => self.connection_id = self.connection_id.or(value.as_integer()),
            "logicalSessionTimeoutMinutes" => {
                let minutes = field.count32().ok();
                self.logical_session_timeout_minutes = self.logical_session_timeout_minutes.or(minutes);
            }
            "lastWrite" => self.last_write = self.last_write.or(last_write(value)),
            "saslSupportedMechs" => self.sasl_supported_mechs = self.sasl_supported_mechs.or(value.as_array()),
            "speculativeAuthenticate" => {
                self.speculative_authenticate = self.speculative_authenticate.or(value.as_document());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What the server is.
    ///
    /// Source: SDAM, "type" under "Parsing a hello or legacy hello response" (SDAM-14 to SDAM-19).
    #[must_use]
    pub fn server_type(&self) -> ServerType {
        if !self.ok {
            return ServerType::Unknown;
        }
        Roles {
            is_replica_set: self.is_replica_set,
            is_db_grid: self.is_db_grid(),
            has_set_name: self.set_name.is_some(),
            hidden: self.hidden,
            is_writable_primary: self.is_writable_primary,
            secondary: self.secondary,
            arbiter_only: self.arbiter_only,
        }
        .server_type()
    }

    /// Whether it is a router of a sharded cluster.
    #[must_use]
    pub fn is_db_grid(&self) -> bool {
        self.msg == Some("isdbgrid")
    }
}

impl<'a> Gathered<'a> {
    fn take(&mut self, key: &str, field: Field<'a>) -> Result<(), WireError> {
        let named = |name| Field { name, ..field };
        let value = field.element.value;
        match key {
            "ok" => put(&mut self.ok, named("ok").ok()?),
            "isWritablePrimary" => put(&mut self.is_writable_primary, named("isWritablePrimary").flag()?),
            "ismaster" => put(&mut self.is_master, named("ismaster").flag()?),
            "isreplicaset" => put(&mut self.is_replica_set, named("isreplicaset").flag()?),
            "secondary" => put(&mut self.secondary, named("secondary").flag()?),
            "arbiterOnly" => put(&mut self.arbiter_only, named("arbiterOnly").flag()?),
            "hidden" => put(&mut self.hidden, named("hidden").flag()?),
            "helloOk" => self.hello_ok = self.hello_ok.or(value.as_flag()),
            "iscryptd" => self.is_cryptd = self.is_cryptd.or(value.as_flag()),
            "hosts" => put(&mut self.hosts, named("hosts").texts()?),
            "passives" => put(&mut self.passives, named("passives").texts()?),
            "arbiters" => put(&mut self.arbiters, named("arbiters").texts()?),
            "compression" => self.compression = self.compression.or(value.as_array()),
            "tags" => self.tags = self.tags.or(value.as_document()),
            "minWireVersion" => put(&mut self.min_wire_version, named("minWireVersion").count32()?),
            "maxWireVersion" => put(&mut self.max_wire_version, named("maxWireVersion").count32()?),
            "maxBsonObjectSize" => self.max_bson_object_bytes = self.max_bson_object_bytes.or(size(value)),
            "maxMessageSizeBytes" => self.max_message_bytes = self.max_message_bytes.or(size(value)),
            "maxWriteBatchSize" => self.max_write_batch_count = self.max_write_batch_count.or(size(value)),
            _ => {}
        }
        Ok(())
    }

    fn settle(self, members: HelloReply<'a>, reply_at: u32, wire_version_at: u32) -> Result<HelloReply<'a>, WireError> {
        let ok = self.ok.ok_or(WireError::new(WireErrorKind::FieldMissing { name: "ok" }, reply_at))?;
        let min_wire_version = self.min_wire_version.unwrap_or(0);
        let max_wire_version = self.max_wire_version.unwrap_or(0);
        if ok && max_wire_version < min_wire_version {
            let kind = WireErrorKind::FieldValue { name: "maxWireVersion", value: i64::from(max_wire_version) };
            return Err(WireError::new(kind, wire_version_at));
        }
        let defaults = Sizes::DEFAULT;
        Ok(HelloReply {
            ok,
            is_writable_primary: self.is_writable_primary.or(self.is_master).unwrap_or(false),
            hello_ok: self.hello_ok.unwrap_or(false),
            is_replica_set: self.is_replica_set.unwrap_or(false),
            secondary: self.secondary.unwrap_or(false),
            arbiter_only: self.arbiter_only.unwrap_or(false),
            hidden: self.hidden.unwrap_or(false),
            is_cryptd: self.is_cryptd.unwrap_or(false),
            hosts: self.hosts.unwrap_or_default(),
            passives: self.passives.unwrap_or_default(),
            arbiters: self.arbiters.unwrap_or_default(),
            compression: self.compression.unwrap_or_default(),
            tags: self.tags.unwrap_or_default(),
            min_wire_version,
            max_wire_version,
            sizes: Sizes {
                max_bson_object_bytes: self.max_bson_object_bytes.unwrap_or(defaults.max_bson_object_bytes),
                max_message_bytes: self.max_message_bytes.unwrap_or(defaults.max_message_bytes),
                max_write_batch_count: self.max_write_batch_count.unwrap_or(defaults.max_write_batch_count),
            },
            ..members
        })
    }
}

/// The date of the last write, if it is one.
fn last_write(value: RawValue<'_>) -> Option<LastWrite> {
    let date = value.as_document()?.get("lastWriteDate").ok()??;
    date.as_date_time_ms().map(|date_ms| LastWrite { date_ms })
}
