//! Traits for the data that selection needs of servers.

use crate::topology::{ServerDescription, TopologyDescription, TopologyType, WireMismatch};
use crate::{Instant, ServerId, ServerType};
use core::fmt;
use core::time::Duration;

/// A server that may be selected.
pub trait Candidate {
    /// The type of its id.
    type Id: Copy + PartialEq + fmt::Debug;

    /// Its id.
    fn id(&self) -> Self::Id;
    /// Its type.
    fn server_type(&self) -> ServerType;
    /// Its average round-trip time, if one was measured.
    fn round_trip_time(&self) -> Option<Duration>;
    /// `lastWrite.lastWriteDate`, in milliseconds since 1970.
    fn last_write_date_ms(&self) -> Option<i64>;
    /// When it was last updated.
    fn last_update_time(&self) -> Instant;
    /// Whether it has a tag of this name and value.
    fn has_tag(&self, name: &str, value: &str) -> bool;
}

/// The servers of a deployment, and its type. A borrowed value that is cheap to copy.
pub trait Candidates: Copy {
    /// One of the servers.
    type Server: Candidate;

    /// The type of the deployment.
    fn topology_type(&self) -> TopologyType;
    /// The wire version mismatch that makes the deployment unusable, if any.
    fn wire_mismatch(&self) -> Option<WireMismatch>;
    /// The servers, each once, always in the same order.
    fn candidates(&self) -> impl Iterator<Item = Self::Server> + Clone;
}

impl Candidate for ServerDescription<'_> {
    type Id = ServerId;

    fn id(&self) -> ServerId {
        self.server()
    }

    fn server_type(&self) -> ServerType {
        self.server_type()
    }

    fn round_trip_time(&self) -> Option<Duration> {
        self.round_trip_time()
    }

    fn last_write_date_ms(&self) -> Option<i64> {
        self.last_write_date_ms()
    }

    fn last_update_time(&self) -> Instant {
        self.last_update_time()
    }

    fn has_tag(&self, name: &str, value: &str) -> bool {
        self.tags().any(|tag| tag == (name, value))
    }
}

impl<'a> Candidates for TopologyDescription<'a> {
    type Server = ServerDescription<'a>;

    fn topology_type(&self) -> TopologyType {
        self.topology_type()
    }

    fn wire_mismatch(&self) -> Option<WireMismatch> {
        self.compatibility_error().map(|error| error.mismatch())
    }

    fn candidates(&self) -> impl Iterator<Item = Self::Server> + Clone {
        self.servers()
    }
}
