//! Checks of the events of a session about its cluster (P62): a node is added before any other event of
//! it, is up then, is reported up and down alternately, and is removed once, all while there is a
//! control connection, which is one at a time.

use crate::oracle::{Checks, Violation};
use alloc::collections::BTreeMap;
use core::net::SocketAddr;
use poolhouse_core::cluster::ClusterEvent;

/// The nodes that the events have added and not removed, and whether they are up.
#[derive(Debug, Default)]
pub(super) struct ClusterTrace {
    pub(super) nodes: BTreeMap<SocketAddr, bool>,
    is_connected: bool,
}

impl ClusterTrace {
    pub(super) fn event(&mut self, event: &ClusterEvent, checks: &mut Checks) -> Result<(), Violation> {
        let known = |node: &SocketAddr| self.nodes.get(node).copied();
        let is_right = match event {
            ClusterEvent::ControlConnected { .. } => !self.is_connected,
            ClusterEvent::OtherCluster | ClusterEvent::QueryFailed { .. } => self.is_connected,
            ClusterEvent::NodesRead { count } => self.is_connected && self.nodes.len() == *count as usize,
            ClusterEvent::NodeAdded { node } => self.is_connected && known(node).is_none(),
            ClusterEvent::NodeRemoved { node } | ClusterEvent::NodeChanged { node } => {
                self.is_connected && known(node).is_some()
            }
            ClusterEvent::NodeUp { node } => self.is_connected && known(node) == Some(false),
            ClusterEvent::NodeDown { node } => self.is_connected && known(node) == Some(true),
            _ => true,
        };
        checks.check("P62", is_right, || format!("{event}, but the nodes are {:?}", self.nodes))?;
        match event {
            ClusterEvent::ControlConnected { .. } => self.is_connected = true,
            ClusterEvent::ControlFailed { .. } | ClusterEvent::OtherCluster | ClusterEvent::QueryFailed { .. } => {
                self.is_connected = false;
            }
            ClusterEvent::NodeAdded { node } | ClusterEvent::NodeUp { node } => drop(self.nodes.insert(*node, true)),
            ClusterEvent::NodeDown { node } => drop(self.nodes.insert(*node, false)),
            ClusterEvent::NodeRemoved { node } => drop(self.nodes.remove(node)),
            _ => {}
        }
        Ok(())
    }
}
