//! Events of a topology.
//!
//! Read first: SDAM Logging and Monitoring, "Events API" and "Order of events".

use super::{ServerDescription, TopologyDescription, TopologyId};
use crate::{Observer, ServerId};
use core::fmt;

/// The six events of a topology, and one warning. Descriptions are borrowed, without copying; to
/// store an event, copy it with `SdamEvent::to_owned` (feature `alloc`).
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SdamEvent<'a> {
    /// The topology was opened. This is the first event.
    TopologyOpening {
        /// The topology.
        topology: TopologyId,
    },
    /// The topology's description changed; follows the events of its servers.
    TopologyDescriptionChanged {
        /// The topology.
        topology: TopologyId,
        /// The description before the change.
        previous: TopologyDescription<'a>,
        /// The description after the change.
        new: TopologyDescription<'a>,
    },
    /// A server became a member. It is Unknown, and no data has been sent to it.
    ServerOpening {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: &'a str,
    },
    /// A server's description changed, compared by the specification's equality rules.
    ServerDescriptionChanged {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: &'a str,
        /// The description before the change.
        previous: ServerDescription<'a>,
        /// The description after the change.
        new: ServerDescription<'a>,
    },
    /// A server is no longer a member.
    ServerClosed {
        /// The topology.
        topology: TopologyId,
        /// The server.
        server: ServerId,
        /// Its address.
        address: &'a str,
    },
    /// The topology was closed. This is the last event.
    TopologyClosed {
        /// The topology.
        topology: TopologyId,
    },
    /// A warning that is not an event of the specification: the topology has no servers, or none
    /// any more, and will never find one.
    NoServers {
        /// The topology.
        topology: TopologyId,
    },
}

impl SdamEvent<'_> {
    /// The topology of the event.
    #[must_use]
    pub const fn topology(&self) -> TopologyId {
        match *self {
            Self::TopologyOpening { topology }
            | Self::TopologyDescriptionChanged { topology, .. }
            | Self::ServerOpening { topology, .. }
            | Self::ServerDescriptionChanged { topology, .. }
            | Self::ServerClosed { topology, .. }
            | Self::TopologyClosed { topology }
            | Self::NoServers { topology } => topology,
        }
    }

    /// The event's name in the specification.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TopologyOpening { .. } => "TopologyOpening",
            Self::TopologyDescriptionChanged { .. } => "TopologyDescriptionChanged",
            Self::ServerOpening { .. } => "ServerOpening",
            Self::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            Self::ServerClosed { .. } => "ServerClosed",
            Self::TopologyClosed { .. } => "TopologyClosed",
            Self::NoServers { .. } => "NoServers",
        }
    }
}

impl fmt::Display for SdamEvent<'_> {
    /// Writes the event's name and fields on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::TopologyOpening { .. } | Self::TopologyClosed { .. } | Self::NoServers { .. } => Ok(()),
            Self::TopologyDescriptionChanged { previous, new, .. } => {
                write!(f, " {} -> {new}", previous.topology_type().name())
            }
            Self::ServerOpening { address, .. } | Self::ServerClosed { address, .. } => write!(f, " {address}"),
            Self::ServerDescriptionChanged { address, previous, new, .. } => {
                write!(f, " {address} {} -> {}", previous.server_type(), new.server_type())?;
                new.error().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
        }
    }
}

/// An observer of a topology: an [`Observer`] of [`SdamEvent`]s of any lifetime. `()` ignores all
/// events.
pub trait SdamObserver: for<'e> Observer<SdamEvent<'e>> {}

impl<O: for<'e> Observer<SdamEvent<'e>> + ?Sized> SdamObserver for O {}
