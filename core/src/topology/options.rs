//! Options of a topology.

use super::{TopologyConfigError, TopologyType};
use crate::address::Address;

/// Topology options set by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyOptions<'a> {
    /// The initial hosts: `host`, `host:port`, `[IPv6]`, `[IPv6]:port`, or the path of a unix
    /// socket.
    pub seeds: &'a [&'a str],
    /// `replicaSet`: the expected set name.
    pub replica_set: Option<&'a str>,
    /// `directConnection`; default false.
    pub direct_connection: bool,
    /// `loadBalanced`.
    pub load_balanced: bool,
}

impl<'a> TopologyOptions<'a> {
    /// Checks the options.
    ///
    /// An empty list of seeds is valid; the topology then emits
    /// [`NoServers`](super::SdamEvent::NoServers).
    ///
    /// Cost: O(length of the seeds).
    ///
    /// # Errors
    ///
    /// [`TopologyConfigError`]: options that contradict each other, or a seed that is not a valid
    /// address.
    ///
    /// Source: SDAM, "Initial TopologyType" and "Allowed configuration combinations".
    pub fn validate(self) -> Result<TopologyConfig<'a>, TopologyConfigError> {
        let many = self.seeds.len() > 1;
        if self.load_balanced {
            if self.direct_connection {
                return Err(TopologyConfigError::LoadBalancedAndDirect);
            }
            if self.replica_set.is_some() {
                return Err(TopologyConfigError::LoadBalancedWithReplicaSet);
            }
            if many {
                return Err(TopologyConfigError::LoadBalancedWithManySeeds);
            }
        }
        if self.direct_connection && many {
            return Err(TopologyConfigError::DirectWithManySeeds);
        }
        match self.seeds.iter().position(|seed| Address::parse(seed).is_none()) {
            Some(index) => Err(TopologyConfigError::BadSeed(index)),
            None => Ok(TopologyConfig { options: self }),
        }
    }
}

/// Validated options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopologyConfig<'a> {
    options: TopologyOptions<'a>,
}

impl<'a> TopologyConfig<'a> {
    /// The options.
    #[must_use]
    pub const fn options(&self) -> &TopologyOptions<'a> {
        &self.options
    }

    /// The initial type of a topology with these options.
    #[must_use]
    pub const fn topology_type(&self) -> TopologyType {
        if self.options.load_balanced {
            TopologyType::LoadBalanced
        } else if self.options.direct_connection {
            TopologyType::Single
        } else if self.options.replica_set.is_some() {
            TopologyType::ReplicaSetNoPrimary
        } else {
            TopologyType::Unknown
        }
    }
}
