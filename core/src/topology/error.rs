//! Reasons why a server is Unknown, and why a topology is unusable or could not be created.

use super::MAX_WIRE_VERSION;
use super::MIN_WIRE_VERSION;
use crate::{Cause, ObjectId};
use core::fmt;

/// An election and a configuration: the ordering of primaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ElectionTuple {
    /// `electionId`; `None` is the lowest.
    pub election_id: Option<ObjectId>,
    /// `setVersion`; `None` is the lowest.
    pub set_version: Option<i64>,
}

impl fmt::Display for ElectionTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.election_id {
            Some(id) => write!(f, "({id}, ")?,
            None => f.write_str("(null, ")?,
        }
        match self.set_version {
            Some(version) => write!(f, "{version})"),
            None => f.write_str("null)"),
        }
    }
}

/// A state change that a server reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum StateChange {
    /// The server is not the writable primary.
    NotWritablePrimary,
    /// The server is recovering, or changing its state.
    Recovering,
    /// The server is shutting down: a kind of recovering.
    ShuttingDown,
}

impl StateChange {
    /// The state change of an error code; `None` for other codes.
    ///
    /// Source: SDAM, "Not writable primary and node is recovering".
    #[must_use]
    pub const fn of_code(code: i32) -> Option<Self> {
        match code {
            11_600 | 91 => Some(Self::ShuttingDown),
            11_602 | 13_436 | 189 => Some(Self::Recovering),
            10_107 | 13_435 | 10_058 => Some(Self::NotWritablePrimary),
            _ => None,
        }
    }
}

/// The memory limit that a reply exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Limit {
    /// Hosts, passives and arbiters in one reply.
    Names,
    /// Bytes of a set name.
    SetName,
    /// Distinct addresses, set names and tags in the topology.
    Texts,
    /// Members of the topology.
    Servers,
}

/// The field of a reply that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum AddressField {
    /// `hosts`.
    Hosts,
    /// `passives`.
    Passives,
    /// `arbiters`.
    Arbiters,
    /// `me`.
    Me,
    /// `primary`.
    Primary,
}

impl AddressField {
    /// The field's name in a hello reply.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Passives => "passives",
            Self::Arbiters => "arbiters",
            Self::Me => "me",
            Self::Primary => "primary",
        }
    }
}

/// The reason why a server is Unknown. `Copy`, and free of text from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ServerError {
    /// A check or an application's connection failed.
    Failed(Cause),
    /// An operation's error reported a change of the server's state.
    StateChange {
        /// The reported change.
        change: StateChange,
        /// The error code; 0 if the reply had none and the change was derived from the message.
        code: i32,
    },
    /// It reports to be primary, but its election or configuration is older than the newest one
    /// seen.
    StalePrimary {
        /// The tuple in its reply.
        stale: ElectionTuple,
        /// The newest tuple seen.
        known: ElectionTuple,
    },
    /// It was primary until a newer primary was found.
    NewerPrimary,
    /// Its set name is not the expected one.
    WrongSetName,
    /// Its reply contains an invalid address, or the path of a unix socket that is not a seed.
    BadAddress {
        /// The field.
        field: AddressField,
        /// The index in a list, from 0.
        place: u16,
    },
    /// Its reply, together with the data already stored, exceeds the memory.
    Beyond {
        /// The exceeded limit.
        limit: Limit,
        /// The value of the limit (for texts: the number of text slots).
        count: u32,
    },
}

impl From<Cause> for ServerError {
    fn from(cause: Cause) -> Self {
        Self::Failed(cause)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(cause) => cause.fmt(f),
            Self::StateChange { change, code } => {
                f.write_str(match change {
                    StateChange::NotWritablePrimary => "the server is not the writable primary",
                    StateChange::Recovering => "the node is recovering",
                    StateChange::ShuttingDown => "the node is shutting down",
                })?;
                if *code == 0 { Ok(()) } else { write!(f, " (code {code})") }
            }
            Self::StalePrimary { stale, known } => write!(
                f,
                "primary marked stale due to electionId/setVersion mismatch, {stale} is stale compared to {known}"
            ),
            Self::NewerPrimary => f.write_str("primary marked stale due to discovery of newer primary"),
            Self::WrongSetName => f.write_str("the server is not a member of the expected replica set"),
            Self::BadAddress { field: field @ (AddressField::Me | AddressField::Primary), .. } => {
                write!(f, "the hello reply's {} is not a valid address", field.name())
            }
            Self::BadAddress { field, place } => {
                write!(f, "the hello reply's {}[{place}] is not a valid address", field.name())
            }
            Self::Beyond { limit, count } => match limit {
                Limit::Names => write!(f, "the hello reply names more than {count} hosts"),
                Limit::SetName => write!(f, "the hello reply's setName has more than {count} bytes"),
                Limit::Texts => write!(f, "more than {count} different addresses and tags"),
                Limit::Servers => write!(f, "more than {count} members, or too many replaced at once"),
            },
        }
    }
}

impl core::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        if let Self::Failed(cause) = self { Some(cause) } else { None }
    }
}

/// A wire version mismatch of one server, which makes the whole topology unusable. Its
/// [`Display`](fmt::Display) is the prescribed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Incompatibility<'a> {
    pub(super) address: &'a str,
    pub(super) mismatch: WireMismatch,
}

/// The side whose wire version is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum WireMismatch {
    /// The server requires at least this version, which this client does not support.
    ServerTooNew(i32),
    /// The server supports at most this version, which is older than this client's minimum.
    ServerTooOld(i32),
}

impl<'a> Incompatibility<'a> {
    /// The server's address.
    #[must_use]
    pub const fn address(&self) -> &'a str {
        self.address
    }

    /// The side whose wire version is too old.
    #[must_use]
    pub const fn mismatch(&self) -> WireMismatch {
        self.mismatch
    }
}

impl fmt::Display for Incompatibility<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        match self.mismatch {
            WireMismatch::ServerTooNew(version) => write!(
                f,
                "Server at {address} requires wire version {version}, \
                 but this version of Poolhouse only supports up to {MAX_WIRE_VERSION}."
            ),
            WireMismatch::ServerTooOld(version) => write!(
                f,
                "Server at {address} reports wire version {version}, \
                 but this version of Poolhouse requires at least {MIN_WIRE_VERSION} (MongoDB {}).",
                super::MIN_SERVER_VERSION
            ),
        }
    }
}

impl core::error::Error for Incompatibility<'_> {}

/// Topology options that contradict each other. Nothing was started.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum TopologyConfigError {
    /// `directConnection=true` with several hosts.
    DirectWithManySeeds,
    /// `loadBalanced=true` with several hosts.
    LoadBalancedWithManySeeds,
    /// `loadBalanced=true` with `directConnection=true`.
    LoadBalancedAndDirect,
    /// `loadBalanced=true` with `replicaSet`.
    LoadBalancedWithReplicaSet,
    /// The seed at this index, from 0, is not a valid address.
    BadSeed(usize),
}

impl fmt::Display for TopologyConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DirectWithManySeeds => "directConnection is true, but there is more than one host",
            Self::LoadBalancedWithManySeeds => "loadBalanced is true, but there is more than one host",
            Self::LoadBalancedAndDirect => "loadBalanced and directConnection are both true",
            Self::LoadBalancedWithReplicaSet => "loadBalanced is true, but replicaSet is set",
            Self::BadSeed(place) => return write!(f, "the host at index {place} is not a valid address"),
        })
    }
}

poolhouse_wire::debug_as_display!(TopologyConfigError);

impl core::error::Error for TopologyConfigError {}
