//! Why a server is Unknown, why a topology cannot be used, and why one could not be made.

use super::MAX_WIRE_VERSION;
use super::MIN_WIRE_VERSION;
use crate::{Cause, ObjectId};
use core::fmt;

/// An election and a configuration: what primaries are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionTuple {
    /// `electionId`; none is lower than any.
    pub election_id: Option<ObjectId>,
    /// `setVersion`; none is lower than any.
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

/// What a server said when its state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateChange {
    /// It is not the primary that accepts writes.
    NotWritablePrimary,
    /// It recovers, or changes its state.
    Recovering,
    /// It shuts down: a kind of recovering.
    ShuttingDown,
}

impl StateChange {
    /// What an error code says of the server's state, if it says anything.
    ///
    /// Source: SDAM, "Not writable primary and node is recovering" (SDAM-76).
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

/// What a reply had too much of, for the memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Hosts, passives and arbiters in one reply.
    Names,
    /// Bytes of a set name.
    SetName,
    /// Different addresses, set names and tags in the topology.
    Texts,
    /// Members of the topology.
    Servers,
}

/// The part of a reply in which an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Why a server is Unknown (SDAM-22). `Copy`, and without text of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerError {
    /// A check failed, or an application's connection did.
    Failed(Cause),
    /// An operation's error said that the server's state had changed.
    StateChange {
        /// What it said.
        change: StateChange,
        /// By this code; 0 when it had none and the message told.
        code: i32,
    },
    /// It says that it is primary, but its election or configuration is older than what is known (SDAM-23).
    StalePrimary {
        /// What it has.
        stale: ElectionTuple,
        /// What is known.
        known: ElectionTuple,
    },
    /// It was primary until a newer one was found (SDAM-24).
    NewerPrimary,
    /// Its set name is not the one that is wanted (SDAM-34).
    WrongSetName,
    /// Its reply holds an address that is none, or the path of a unix socket that is no seed.
    BadAddress {
        /// In which part.
        field: AddressField,
        /// At which place of a list, from 0.
        place: u16,
    },
    /// Its reply, with what is held already, is more than there is memory for.
    Beyond {
        /// Of what.
        limit: Limit,
        /// How many (for texts: places) there are.
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
            Self::WrongSetName => f.write_str("the server is not a member of the replica set that is wanted"),
            Self::BadAddress { field: field @ (AddressField::Me | AddressField::Primary), .. } => {
                write!(f, "the hello reply's {} is no address", field.name())
            }
            Self::BadAddress { field, place } => {
                write!(f, "the hello reply's {}[{place}] is no address", field.name())
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

/// A server that this client cannot speak to makes the whole topology unusable (SDAM-35). Its [`Display`](fmt::Display) is the prescribed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Incompatibility<'a> {
    pub(super) address: &'a str,
    pub(super) mismatch: WireMismatch,
}

/// Which side is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireMismatch {
    /// The server wants at least this version, which is newer than this client.
    ServerTooNew(i32),
    /// The server has at most this version, which is older than what this client speaks.
    ServerTooOld(i32),
}

impl<'a> Incompatibility<'a> {
    /// The server's address.
    #[must_use]
    pub const fn address(&self) -> &'a str {
        self.address
    }

    /// Which side is too old.
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

/// Options of a topology that contradict each other (SDAM-06). Nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// A seed is no address: the one at this place, from 0.
    BadSeed(usize),
}

impl fmt::Display for TopologyConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DirectWithManySeeds => "directConnection is true, but there is more than one host",
            Self::LoadBalancedWithManySeeds => "loadBalanced is true, but there is more than one host",
            Self::LoadBalancedAndDirect => "loadBalanced and directConnection are both true",
            Self::LoadBalancedWithReplicaSet => "loadBalanced is true, but replicaSet is set",
            Self::BadSeed(place) => return write!(f, "the host at place {place} is no address"),
        })
    }
}

impl core::error::Error for TopologyConfigError {}
