//! Whether a server can be reached, as the connections of its pool show it.
//!
//! The topology of a MongoDB deployment knows this from its monitors. A generic pool and the pool of a host
//! of Cassandra have no monitor.

use alloc::vec::Vec;
use poolhouse_core::mux::{Distance, MuxClosed, MuxEvent};
use poolhouse_core::pool::{ClosedReason, PoolEvent};
use poolhouse_core::topology::{ServerDescription, ServerError, StateChange, TopologyDescription, TopologyType};
use poolhouse_core::{Cause, ServerType};

/// Counts the open connections of a pool.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// The state of each connection, by its index.
    open: Vec<bool>,
    open_count: usize,
    is_down: bool,
    /// Whether the pool is closed, or its host ignored: the end of a connection says nothing then.
    is_unused: bool,
}

/// A change that a connection shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No connection is open, and the last one failed or was not established, for this cause.
    Down(Cause),
    /// A connection is open again, or the server has answered: it refuses the credential.
    Up,
}

impl Liveness {
    #[cfg(any(feature = "metrics", test))]
    pub(crate) const fn is_down(&self) -> bool {
        self.is_down
    }

    /// Handles an event of a generic pool. An open connection that its manager finds broken does not show
    /// that the server is down: the attempt to open the next one does.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is of a connection's begin or end")]
    pub(crate) fn on_pool_event(&mut self, event: &PoolEvent) -> Option<Turn> {
        match *event {
            PoolEvent::PoolClosed { .. } => self.set_unused(true),
            PoolEvent::ConnectionReady { conn, .. } => self.opened(conn.index()),
            PoolEvent::ConnectionClosed { conn, reason: ClosedReason::Error, cause: Some(cause), .. } => {
                if self.closed(conn.index()) { None } else { self.failed(cause) }
            }
            PoolEvent::ConnectionClosed { conn, .. } => {
                self.closed(conn.index());
                None
            }
            _ => None,
        }
    }

    /// Handles an event of a multiplexed pool, whose connections a heartbeat checks.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is of a connection's begin or end")]
    pub(crate) fn on_mux_event(&mut self, event: &MuxEvent) -> Option<Turn> {
        match *event {
            MuxEvent::PoolClosed { .. } => self.set_unused(true),
            MuxEvent::PoolReconfigured { ref config, .. } => {
                self.set_unused(config.options().distance == Distance::Ignored)
            }
            MuxEvent::ConnectionReady { conn, .. } => self.opened(conn.index()),
            MuxEvent::ConnectionClosed { conn, reason, .. } => {
                self.closed(conn.index());
                if let MuxClosed::Error(cause) = reason { self.failed(cause) } else { None }
            }
            _ => None,
        }
    }

    fn set_unused(&mut self, is_unused: bool) -> Option<Turn> {
        if is_unused {
            *self = Self::default();
        }
        self.is_unused = is_unused;
        None
    }

    fn opened(&mut self, index: u32) -> Option<Turn> {
        let index = index as usize;
        if self.open.len() <= index {
            self.open.resize(index + 1, false);
        }
        let was_open = core::mem::replace(self.open.get_mut(index)?, true);
        self.open_count += usize::from(!was_open);
        core::mem::take(&mut self.is_down).then_some(Turn::Up)
    }

    /// Returns whether the connection was open.
    fn closed(&mut self, index: u32) -> bool {
        let was_open = self.open.get_mut(index as usize).is_some_and(core::mem::take);
        self.open_count -= usize::from(was_open);
        was_open
    }

    fn failed(&mut self, cause: Cause) -> Option<Turn> {
        if cause == Cause::Authentication {
            return core::mem::take(&mut self.is_down).then_some(Turn::Up);
        }
        // The pool gave the attempt up.
        let is_own = matches!(cause, Cause::Cancelled | Cause::Closed | Cause::Resources);
        if self.is_unused || is_own || self.open_count > 0 {
            return None;
        }
        let was_down = core::mem::replace(&mut self.is_down, true);
        (!was_down).then_some(Turn::Down(cause))
    }
}

/// Why a server of a topology is down. `None` for a server that answers but has lost an election or
/// refuses a credential.
pub(crate) fn down(server: &ServerDescription<'_>) -> Option<ServerError> {
    let error = server.error()?;
    let is_up = matches!(
        error,
        ServerError::Failed(Cause::Authentication)
            | ServerError::StateChange { change: StateChange::NotWritablePrimary, .. }
            | ServerError::StalePrimary { .. }
            | ServerError::NewerPrimary
    );
    (!is_up).then_some(error)
}

/// The primary of a replica set.
pub(crate) fn primary_of<'a>(topology: &TopologyDescription<'a>) -> Option<ServerDescription<'a>> {
    // With a direct connection, a primary counts as any other server.
    let has_primary = topology.topology_type() == TopologyType::ReplicaSetWithPrimary;
    topology.servers().find(|server| has_primary && server.server_type() == ServerType::RsPrimary)
}

#[cfg(test)]
pub(crate) mod tests;
