//! What a server is and says of itself: the few values that machines and wire share.
//!
//! Read first: SDAM, "ServerType" and "TopologyVersion".

use core::fmt;

/// Twelve raw bytes that name an election, a process or a service. Compared byte by byte (SDAM-52).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 12]);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

/// How far a server process has come in its own history of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopologyVersion {
    /// The process; another one has a history of its own.
    pub process_id: ObjectId,
    /// Rises with each change of the server's state.
    pub counter: i64,
}

/// What a server was at its last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerType {
    /// Not checked yet, or the last check failed.
    #[default]
    Unknown,
    /// Unknown, but a member named it as the primary.
    PossiblePrimary,
    /// A server on its own.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a replica set.
    RsPrimary,
    /// A secondary of a replica set.
    RsSecondary,
    /// A member that votes and holds no data.
    RsArbiter,
    /// A member that is neither of these: hidden, starting up, recovering.
    RsOther,
    /// A member that has no configuration yet.
    RsGhost,
    /// Whatever answers behind a load balancer.
    LoadBalancer,
}

impl ServerType {
    /// Whether the last check of the server succeeded.
    #[must_use]
    pub const fn is_known(self) -> bool {
        !matches!(self, Self::Unknown | Self::PossiblePrimary)
    }

    /// Whether operations can be sent to it: everything but unknown servers, arbiters, ghosts and other members.
    #[must_use]
    pub const fn is_data_bearing(self) -> bool {
        matches!(self, Self::Standalone | Self::Mongos | Self::RsPrimary | Self::RsSecondary | Self::LoadBalancer)
    }

    /// The name that the specifications give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::PossiblePrimary => "PossiblePrimary",
            Self::Standalone => "Standalone",
            Self::Mongos => "Mongos",
            Self::RsPrimary => "RSPrimary",
            Self::RsSecondary => "RSSecondary",
            Self::RsArbiter => "RSArbiter",
            Self::RsOther => "RSOther",
            Self::RsGhost => "RSGhost",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
