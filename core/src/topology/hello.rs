//! What a topology takes from a reply to a hello.

use crate::{ObjectId, Roles, ServerType, TopologyVersion};
use core::time::Duration;

/// The parts of a hello reply that have a number of members, each read from its beginning at every call.
///
/// Implemented by whoever decodes replies, over its own borrowed bytes: nothing is collected on the way.
pub trait HelloLists {
    /// `hosts`: the members that hold data and can become primary.
    fn hosts(&self) -> impl Iterator<Item = &str>;
    /// `passives`: the members that hold data and cannot become primary.
    fn passives(&self) -> impl Iterator<Item = &str>;
    /// `arbiters`: the members that hold no data.
    fn arbiters(&self) -> impl Iterator<Item = &str>;
    /// `tags`: names and values.
    fn tags(&self) -> impl Iterator<Item = (&str, &str)>;
}

/// A reply without any list.
impl HelloLists for () {
    fn hosts(&self) -> impl Iterator<Item = &str> {
        core::iter::empty()
    }

    fn passives(&self) -> impl Iterator<Item = &str> {
        core::iter::empty()
    }

    fn arbiters(&self) -> impl Iterator<Item = &str> {
        core::iter::empty()
    }

    fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        core::iter::empty()
    }
}

impl<L: HelloLists + ?Sized> HelloLists for &L {
    fn hosts(&self) -> impl Iterator<Item = &str> {
        (**self).hosts()
    }

    fn passives(&self) -> impl Iterator<Item = &str> {
        (**self).passives()
    }

    fn arbiters(&self) -> impl Iterator<Item = &str> {
        (**self).arbiters()
    }

    fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        (**self).tags()
    }
}

/// A hello reply with `ok: 1`, decoded and borrowed. A reply that is not ok is a failed check instead.
///
/// Addresses are as the server wrote them: the topology makes them lower-case and adds the port.
#[derive(Clone, Copy, Debug, Default)]
pub struct HelloInfo<'a, L = ()> {
    /// `isWritablePrimary`, or `ismaster` in a reply that lacks it (SDAM-13).
    pub is_writable_primary: bool,
    /// `secondary`.
    pub secondary: bool,
    /// `arbiterOnly`.
    pub arbiter_only: bool,
    /// `hidden`.
    pub hidden: bool,
    /// `isreplicaset`: a member without a configuration.
    pub is_replica_set: bool,
    /// Whether `msg` is `isdbgrid`: a router.
    pub is_db_grid: bool,
    /// `iscryptd`.
    pub is_cryptd: bool,
    /// `setName`.
    pub set_name: Option<&'a str>,
    /// `setVersion`.
    pub set_version: Option<i64>,
    /// `electionId`.
    pub election_id: Option<ObjectId>,
    /// `me`: the address by which the server knows itself.
    pub me: Option<&'a str>,
    /// `primary`: the address of the primary that the server knows of.
    pub primary: Option<&'a str>,
    /// `minWireVersion`, 0 when the reply lacks it.
    pub min_wire_version: i32,
    /// `maxWireVersion`, 0 when the reply lacks it.
    pub max_wire_version: i32,
    /// `lastWrite.lastWriteDate`, in milliseconds since 1970.
    pub last_write_date_ms: Option<i64>,
    /// `logicalSessionTimeoutMinutes`.
    pub logical_session_timeout_minutes: Option<i64>,
    /// `topologyVersion`.
    pub topology_version: Option<TopologyVersion>,
    /// `hosts`, `passives`, `arbiters` and `tags`.
    pub lists: L,
}

impl<L> HelloInfo<'_, L> {
    /// What the server is, by its own words.
    ///
    /// Source: SDAM, "type" (SDAM-15..19). Contradictory roles: see [`Roles::server_type`].
    #[must_use]
    pub const fn server_type(&self) -> ServerType {
        Roles {
            is_replica_set: self.is_replica_set,
            is_db_grid: self.is_db_grid,
            has_set_name: self.set_name.is_some(),
            hidden: self.hidden,
            is_writable_primary: self.is_writable_primary,
            secondary: self.secondary,
            arbiter_only: self.arbiter_only,
        }
        .server_type()
    }
}

/// The round-trip times that a good check brings along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundTrip {
    /// The moving average.
    pub average: Duration,
    /// The minimum of the last samples; zero until there are two.
    pub minimum: Duration,
}
