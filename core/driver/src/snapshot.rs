//! An owned copy of the deployment's description.

use super::client_core::ClientCore;
use super::runtime::Runtime;
use poolhouse_core::topology::{OwnedTopologyDescription, Topology};

impl<R: Runtime> ClientCore<R> {
    /// Returns a copy of the deployment's description.
    ///
    /// Cost: O(servers) under the client core's lock; four allocations.
    pub fn topology(&self) -> OwnedTopologyDescription {
        let seen = self.look(|state| state.control.topology().description().to_owned());
        seen.unwrap_or_else(|| Topology::<R::Topology>::vacant().description().to_owned())
    }
}
