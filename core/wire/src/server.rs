//! Basic properties of servers, shared by the wire code and the state machines.
//!
//! Read first: SDAM, "ServerType" and "TopologyVersion".

use core::fmt;

/// A 12-byte identifier of an election, a process or a service. Compared byte by byte.
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

#[cfg(feature = "defmt")]
impl defmt::Format for ObjectId {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "ObjectId({=[u8]:02x})", self.0);
    }
}

/// A server's topology version: its process and the number of state changes in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TopologyVersion {
    /// The process; counters of different processes cannot be compared.
    pub process_id: ObjectId,
    /// Increases with each change of the server's state.
    pub counter: i64,
}

/// The type of a server as of its last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ServerType {
    /// Not checked yet, or the last check failed.
    #[default]
    Unknown,
    /// Unknown, but a member named it as the primary.
    PossiblePrimary,
    /// A standalone server.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a replica set.
    RsPrimary,
    /// A secondary of a replica set.
    RsSecondary,
    /// A member that votes and holds no data.
    RsArbiter,
    /// A member of another state: hidden, starting up, recovering.
    RsOther,
    /// A member that has no configuration yet.
    RsGhost,
    /// A service behind a load balancer.
    LoadBalancer,
}

impl ServerType {
    /// Whether the last check of the server succeeded.
    #[must_use]
    pub const fn is_known(self) -> bool {
        !matches!(self, Self::Unknown | Self::PossiblePrimary)
    }

    /// Whether operations can be sent to it: false for unknown servers, arbiters, ghosts and other
    /// members.
    #[must_use]
    pub const fn is_data_bearing(self) -> bool {
        matches!(self, Self::Standalone | Self::Mongos | Self::RsPrimary | Self::RsSecondary | Self::LoadBalancer)
    }

    /// Its name in the specifications.
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
