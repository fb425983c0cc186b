//! Read access to descriptions of servers and of the topology.
//!
//! Read first: SDAM, "ServerDescription", "TopologyDescription", "Server Description Equality".

use super::error::{Incompatibility, ServerError, WireMismatch};
use super::texts::{TextId, TextsRef};
use super::{TopologyId, TopologyType};
use crate::address::HostAddress;
use crate::time::Past;
use crate::{Instant, ObjectId, ServerId, ServerType, TopologyVersion};
use core::fmt;
use core::time::Duration;
use poolhouse_wire::peer_text::OneLine;

/// A server's description without its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Data {
    pub(super) server_type: ServerType,
    pub(super) error: Option<ServerError>,
    /// Average and minimum round-trip time.
    pub(super) round_trip: Option<Past<(Duration, Duration)>>,
    pub(super) wire: (i32, i32),
    pub(super) me: Option<TextId>,
    pub(super) primary: Option<TextId>,
    pub(super) set_name: Option<TextId>,
    pub(super) set_version: Option<i64>,
    pub(super) election_id: Option<ObjectId>,
    pub(super) last_write_date_ms: Option<i64>,
    pub(super) last_update: Instant,
    pub(super) session_timeout: Option<i64>,
    pub(super) topology_version: Option<TopologyVersion>,
    pub(super) is_cryptd: bool,
    /// The end indices of hosts, passives and arbiters in the list of names; tags follow.
    pub(super) ends: [u16; 3],
}

impl Data {
    /// The default description of an Unknown server, with this error.
    pub(super) const fn unknown(error: Option<ServerError>, now: Instant) -> Self {
        Self {
            server_type: ServerType::Unknown,
            error,
            round_trip: None,
            wire: (0, 0),
            me: None,
            primary: None,
            set_name: None,
            set_version: None,
            election_id: None,
            last_write_date_ms: None,
            last_update: now,
            session_timeout: None,
            topology_version: None,
            is_cryptd: false,
            ends: [0; 3],
        }
    }

    /// Whether both are equal, without their names and the fields that equality ignores.
    pub(super) fn is_equal(&self, other: &Self) -> bool {
        let same_type =
            self.server_type == other.server_type || (!self.server_type.is_known() && !other.server_type.is_known());
        same_type
            && self.error == other.error
            && self.wire == other.wire
            && self.me == other.me
            && self.primary == other.primary
            && self.set_name == other.set_name
            && self.set_version == other.set_version
            && self.election_id == other.election_id
            && self.session_timeout == other.session_timeout
            && self.topology_version == other.topology_version
            && self.is_cryptd == other.is_cryptd
            && self.ends == other.ends
    }

    /// Splits the names into hosts, passives, arbiters and tags.
    pub(super) fn parts<'n>(&self, names: &'n [TextId]) -> [&'n [TextId]; 4] {
        let [hosts, passives, arbiters] = self.ends.map(usize::from);
        [&names[..hosts], &names[hosts..passives], &names[passives..arbiters], &names[arbiters..]]
    }
}

/// A server's description, borrowed.
#[derive(Clone, Copy)]
pub struct ServerDescription<'a> {
    pub(super) server: ServerId,
    pub(super) address: TextId,
    pub(super) data: &'a Data,
    pub(super) names: &'a [TextId],
    pub(super) texts: TextsRef<'a>,
}

impl<'a> ServerDescription<'a> {
    /// The server.
    #[must_use]
    pub const fn server(&self) -> ServerId {
        self.server
    }

    /// Its address: `host:port` in lower case, IPv6 in brackets, or the path of a unix socket.
    #[must_use]
    pub fn address(&self) -> &'a str {
        self.texts.get(self.address)
    }

    /// The parts of its address.
    #[must_use]
    pub fn host_address(&self) -> HostAddress<'a> {
        HostAddress::parse(self.address()).unwrap_or(HostAddress::Unix(self.address()))
    }

    /// Its type.
    #[must_use]
    pub const fn server_type(&self) -> ServerType {
        self.data.server_type
    }

    /// The reason why it is Unknown, if an error occurred.
    #[must_use]
    pub const fn error(&self) -> Option<ServerError> {
        self.data.error
    }

    /// The average round-trip time; `None` while it is Unknown.
    #[must_use]
    pub fn round_trip_time(&self) -> Option<Duration> {
        self.data.round_trip.map(|times| times.0.0)
    }

    /// The minimum round-trip time of the last samples; zero while there are fewer than two, `None`
    /// while it is Unknown.
    #[must_use]
    pub fn min_round_trip_time(&self) -> Option<Duration> {
        self.data.round_trip.map(|times| times.0.1)
    }

    /// `minWireVersion`; `None` for a load balancer.
    #[must_use]
    pub fn min_wire_version(&self) -> Option<i32> {
        (self.data.server_type != ServerType::LoadBalancer).then_some(self.data.wire.0)
    }

    /// `maxWireVersion`; `None` for a load balancer.
    #[must_use]
    pub fn max_wire_version(&self) -> Option<i32> {
        (self.data.server_type != ServerType::LoadBalancer).then_some(self.data.wire.1)
    }

    /// `me`: its own address according to its reply.
    #[must_use]
    pub fn me(&self) -> Option<&'a str> {
        self.data.me.map(|me| self.texts.get(me))
    }

    /// `hosts`, in the order of the reply.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        self.part(0)
    }

    /// `passives`, in the order of the reply.
    pub fn passives(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        self.part(1)
    }

    /// `arbiters`, in the order of the reply.
    pub fn arbiters(&self) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        self.part(2)
    }

    /// `tags`, names and values.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.part(3).map(|pair| pair.split_once('\0').unwrap_or((pair, "")))
    }

    fn part(&self, part: usize) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        let texts = self.texts;
        self.data.parts(self.names)[part].iter().map(move |name| texts.get(*name))
    }

    /// `setName`.
    #[must_use]
    pub fn set_name(&self) -> Option<&'a str> {
        self.data.set_name.map(|name| self.texts.get(name))
    }

    /// `setVersion`.
    #[must_use]
    pub const fn set_version(&self) -> Option<i64> {
        self.data.set_version
    }

    /// `electionId`.
    #[must_use]
    pub const fn election_id(&self) -> Option<ObjectId> {
        self.data.election_id
    }

    /// `primary`: the address of the primary according to its reply.
    #[must_use]
    pub fn primary(&self) -> Option<&'a str> {
        self.data.primary.map(|primary| self.texts.get(primary))
    }

    /// `lastWrite.lastWriteDate`, in milliseconds since 1970.
    #[must_use]
    pub const fn last_write_date_ms(&self) -> Option<i64> {
        self.data.last_write_date_ms
    }

    /// The time of the last replacement of the description, by an equal one too.
    #[must_use]
    pub const fn last_update_time(&self) -> Instant {
        self.data.last_update
    }

    /// `logicalSessionTimeoutMinutes`.
    #[must_use]
    pub const fn logical_session_timeout_minutes(&self) -> Option<i64> {
        self.data.session_timeout
    }

    /// `topologyVersion`.
    #[must_use]
    pub const fn topology_version(&self) -> Option<TopologyVersion> {
        self.data.topology_version
    }

    /// `iscryptd`.
    #[must_use]
    pub const fn is_cryptd(&self) -> bool {
        self.data.is_cryptd
    }
}

impl fmt::Debug for ServerDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerDescription")
            .field("server", &self.server)
            .field("address", &self.address())
            .field("type", &self.data.server_type)
            .field("error", &self.data.error)
            .field("set_name", &self.set_name())
            .field("set_version", &self.data.set_version)
            .field("election_id", &self.data.election_id)
            .field("topology_version", &self.data.topology_version)
            .finish_non_exhaustive()
    }
}

/// `Server <address>: <type>`, with the error; used in the texts of selection errors.
impl fmt::Display for ServerDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address(), self.data.server_type)?;
        self.fmt_error(f)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for ServerDescription<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{=str}: {}", self.address(), self.server_type());
        if let Some(error) = self.error() {
            defmt::write!(f, " ({})", error);
        }
    }
}

impl ServerDescription<'_> {
    fn fmt_error(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.data.error {
            Some(error) => write!(f, " ({error})"),
            None => Ok(()),
        }
    }
}

/// The topology's own fields, without its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Meta {
    pub(super) topology_type: TopologyType,
    pub(super) set_name: Option<TextId>,
    pub(super) max_set_version: Option<i64>,
    pub(super) max_election_id: Option<ObjectId>,
    pub(super) incompatible: Option<(TextId, WireMismatch)>,
    pub(super) session_timeout: Option<i64>,
}

impl Meta {
    pub(super) const UNKNOWN: Self = Self {
        topology_type: TopologyType::Unknown,
        set_name: None,
        max_set_version: None,
        max_election_id: None,
        incompatible: None,
        session_timeout: None,
    };
}

/// The state of a topology that is read: the one before the update in progress, or the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Before,
    Now,
}

/// A container of servers: a topology, or a copy of one.
pub(super) trait Source {
    fn id(&self) -> TopologyId;
    fn meta(&self, side: Side) -> &Meta;
    fn texts(&self) -> TextsRef<'_>;
    /// The number of slots, in use or free.
    fn slot_count(&self) -> usize;
    fn server_at(&self, index: usize, side: Side) -> Option<ServerDescription<'_>>;
}

/// A deployment's description, borrowed.
#[derive(Clone, Copy)]
pub struct TopologyDescription<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) side: Side,
}

impl<'a> TopologyDescription<'a> {
    /// The topology.
    #[must_use]
    pub fn id(&self) -> TopologyId {
        self.source.id()
    }

    /// Its type.
    #[must_use]
    pub fn topology_type(&self) -> TopologyType {
        self.meta().topology_type
    }

    /// The name of the replica set: the expected one, or the one found.
    #[must_use]
    pub fn set_name(&self) -> Option<&'a str> {
        self.meta().set_name.map(|name| self.source.texts().get(name))
    }

    /// The largest `setVersion` of all primaries seen, or that of the latest primary.
    #[must_use]
    pub fn max_set_version(&self) -> Option<i64> {
        self.meta().max_set_version
    }

    /// The largest `electionId` of all primaries seen.
    #[must_use]
    pub fn max_election_id(&self) -> Option<ObjectId> {
        self.meta().max_election_id
    }

    /// Whether this client supports the wire versions of all known servers.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.meta().incompatible.is_none()
    }

    /// The reason why it is not compatible.
    #[must_use]
    pub fn compatibility_error(&self) -> Option<Incompatibility<'a>> {
        self.meta()
            .incompatible
            .map(|(address, mismatch)| Incompatibility { address: self.source.texts().get(address), mismatch })
    }

    /// The minimum session timeout of the data-bearing servers; `None` if one of them has none.
    #[must_use]
    pub fn logical_session_timeout_minutes(&self) -> Option<i64> {
        self.meta().session_timeout
    }

    /// The servers. Cost of the whole iteration: O(slots).
    pub fn servers(&self) -> impl Iterator<Item = ServerDescription<'a>> + Clone + use<'a> {
        let Self { source, side } = *self;
        (0..source.slot_count()).filter_map(move |index| source.server_at(index, side))
    }

    /// The server with this id. Cost: O(1).
    #[must_use]
    pub fn server(&self, server: ServerId) -> Option<ServerDescription<'a>> {
        let index = usize::try_from(server.index()).ok()?;
        let at = self.source.server_at(index, self.side);
        match at {
            Some(found) if found.server == server => Some(found),
            // A copy stores its servers without gaps, so its indices differ.
            _ => self.servers().find(|found| found.server == server),
        }
    }

    /// Whether a server is available for a read with the default read preference, primary.
    #[must_use]
    pub fn has_readable_server(&self) -> bool {
        self.has_readable_server_by(|server| server.server_type() == ServerType::RsPrimary)
    }

    /// Whether a server is available for a read. In a replica set, `suits` returns whether the read
    /// preference allows a server.
    pub fn has_readable_server_by(&self, suits: impl FnMut(&ServerDescription<'a>) -> bool) -> bool {
        match self.topology_type() {
            TopologyType::Unknown => false,
            TopologyType::Single | TopologyType::Sharded | TopologyType::LoadBalanced => self.has_known_server(),
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                let mut suits = suits;
                self.servers().any(|server| suits(&server))
            }
        }
    }

    /// Whether a server is available for a write.
    #[must_use]
    pub fn has_writable_server(&self) -> bool {
        match self.topology_type() {
            TopologyType::Unknown | TopologyType::ReplicaSetNoPrimary => false,
            TopologyType::ReplicaSetWithPrimary => true,
            TopologyType::Single | TopologyType::Sharded | TopologyType::LoadBalanced => self.has_known_server(),
        }
    }

    fn has_known_server(&self) -> bool {
        self.servers().any(|server| server.server_type().is_known())
    }

    fn meta(&self) -> &'a Meta {
        self.source.meta(self.side)
    }
}

impl fmt::Debug for TopologyDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = Servers(*self);
        f.debug_struct("TopologyDescription")
            .field("type", &self.topology_type())
            .field("set_name", &self.set_name())
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

/// `<type> <set name> [<server>, ..]`; used in the texts of selection errors.
impl fmt::Display for TopologyDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_with(f, |f, server| server.fmt_error(f))
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for TopologyDescription<'_> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{} [ ", self.topology_type());
        self.servers().for_each(|server| defmt::write!(f, "{} ", server));
        defmt::write!(f, "]");
    }
}

impl<'a> TopologyDescription<'a> {
    /// Like its [`Display`](fmt::Display), with other text after the type of each server.
    pub(crate) fn fmt_with(
        &self,
        f: &mut fmt::Formatter<'_>,
        mut fmt_error: impl FnMut(&mut fmt::Formatter<'_>, &ServerDescription<'a>) -> fmt::Result,
    ) -> fmt::Result {
        fmt::Display::fmt(&self.topology_type(), f)?;
        if let Some(name) = self.set_name() {
            write!(f, " {}", OneLine(name))?;
        }
        f.write_str(" [")?;
        for (index, server) in self.servers().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{}: {}", server.address(), server.server_type())?;
            fmt_error(f, &server)?;
        }
        f.write_str("]")
    }
}

struct Servers<'a>(TopologyDescription<'a>);

impl fmt::Debug for Servers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.servers()).finish()
    }
}
