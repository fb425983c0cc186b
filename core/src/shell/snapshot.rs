//! The deployment at one instant, to be kept.

use super::hub::Hub;
use super::runtime::{Locked, Runtime};
use crate::topology::OwnedTopologyDescription;

impl<R: Runtime> Hub<R> {
    /// A copy of what is known of the deployment.
    ///
    /// Cost: O(servers) under the hub's lock; four allocations.
    pub fn topology(&self) -> OwnedTopologyDescription {
        self.state.with(|state| state.control.topology().description().to_owned())
    }
}
