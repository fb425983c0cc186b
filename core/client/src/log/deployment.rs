//! Lines for operators about changes of the deployment: one line for one fact, at levels that are
//! usually enabled.
//!
//! A fact is found by comparing a description with the previous one, so a server that stays down is
//! reported once. Consequences have no line: a server that is down also has a failed heartbeat and
//! a cleared pool.

use super::{DEPLOYMENT, Failure, Name, UNKNOWN};
use core::fmt;
use poolhouse_core::observe::EventContext;
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::{ServerDescription, ServerError, StateChange, TopologyDescription, TopologyType};
use poolhouse_core::{Cause, ObjectId, Reason, ServerType};
use tracing::Level;

/// A fact about a deployment. `Display` is its line.
pub(super) enum Fact<'a> {
    /// The set has no primary any more.
    PrimaryLost {
        /// Its description before the loss.
        primary: ServerDescription<'a>,
        set: Option<&'a str>,
        /// Its description now, unless it left the set.
        now: Option<ServerDescription<'a>>,
        reason: Option<&'a Reason>,
    },
    /// The set has a primary, or another one.
    PrimaryFound {
        primary: ServerDescription<'a>,
        set: Option<&'a str>,
        /// The primary of the previous description, if it had one.
        before: Option<ServerDescription<'a>>,
    },
    /// A server cannot be used any more, or was never reached.
    ServerDown { address: &'a str, error: ServerError, reason: Option<&'a Reason> },
    /// A server that was down is known again.
    ServerReconnected { address: &'a str },
    /// The connections of a pool, or of one service, became stale.
    PoolCleared { address: Option<&'a str>, service: Option<ObjectId>, cause: Option<Cause> },
    /// A connection was not established because it was not authenticated.
    AuthenticationFailed { address: Option<&'a str> },
}

impl<'a> Fact<'a> {
    /// Whether events of this kind can report a fact: not those of check-outs and check-ins, which
    /// are frequent.
    #[inline]
    pub(super) const fn may_be_in(event: &PoolEvent) -> bool {
        matches!(event, PoolEvent::PoolCleared { .. } | PoolEvent::ConnectionClosed { .. })
    }

    /// The fact that a pool's event reports, if any.
    pub(super) const fn of_pool(event: &PoolEvent, context: &EventContext<'a>) -> Option<Self> {
        let address = context.address;
        match *event {
            PoolEvent::PoolCleared { service_id, cause, .. } => {
                Some(Self::PoolCleared { address, service: service_id, cause })
            }
            PoolEvent::ConnectionClosed { cause: Some(Cause::Authentication), .. } => {
                Some(Self::AuthenticationFailed { address })
            }
            PoolEvent::PoolCreated { .. }
            | PoolEvent::PoolReady { .. }
            | PoolEvent::PoolClosed { .. }
            | PoolEvent::ConnectionCreated { .. }
            | PoolEvent::ConnectionReady { .. }
            | PoolEvent::ConnectionClosed { .. }
            | PoolEvent::ConnectionCheckOutStarted { .. }
            | PoolEvent::ConnectionCheckOutFailed { .. }
            | PoolEvent::ConnectionCheckedOut { .. }
            | PoolEvent::ConnectionCheckedIn { .. } => None,
            _ => None,
        }
    }

    /// Reports the facts in a change of a topology: of its primary first, then of the other
    /// servers.
    ///
    /// - `reason`: the reason of the failure that caused the change.
    ///
    /// Cost: O(servers).
    pub(super) fn of_topology(
        previous: TopologyDescription<'a>,
        new: TopologyDescription<'a>,
        reason: Option<&'a Reason>,
        mut report: impl FnMut(&Self),
    ) {
        let (before, after) = (primary_of(&previous), primary_of(&new));
        let mut reported = None;
        match (before, after) {
            (Some(primary), None) if is_open_set(&new) => {
                let now = new.server(primary.server());
                reported = Some(primary.server());
                // The pool reports a refused credential; the next check finds the primary again.
                if !now.is_some_and(|now| is_refused(&now)) {
                    report(&Self::PrimaryLost { primary, set: new.set_name(), now, reason });
                }
            }
            (before, Some(primary)) if before.map(|before| before.server()) != Some(primary.server()) => {
                reported = Some(primary.server());
                if !previous.server(primary.server()).is_some_and(|server| is_refused(&server)) {
                    report(&Self::PrimaryFound { primary, set: new.set_name(), before });
                }
            }
            _ => {}
        }
        for server in new.servers().filter(|server| Some(server.server()) != reported) {
            let was_down = previous.server(server.server()).is_some_and(|server| down(&server).is_some());
            let address = server.address();
            match down(&server) {
                Some(error) if !was_down => report(&Self::ServerDown { address, error, reason }),
                None if was_down && server.server_type().is_known() => report(&Self::ServerReconnected { address }),
                _ => {}
            }
        }
    }

    pub(super) const fn level(&self) -> Level {
        match self {
            Self::PrimaryFound { .. } | Self::ServerReconnected { .. } => Level::INFO,
            Self::PrimaryLost { .. }
            | Self::ServerDown { .. }
            | Self::PoolCleared { .. }
            | Self::AuthenticationFailed { .. } => Level::WARN,
        }
    }
}

/// Emits a line.
pub(super) fn emit(level: Level, line: impl fmt::Display) {
    if level == Level::WARN {
        tracing::warn!(target: DEPLOYMENT, "{line}");
    } else {
        tracing::info!(target: DEPLOYMENT, "{line}");
    }
}

fn primary_of<'a>(topology: &TopologyDescription<'a>) -> Option<ServerDescription<'a>> {
    // With a direct connection, a primary counts as any other server.
    let has_primary = topology.topology_type() == TopologyType::ReplicaSetWithPrimary;
    topology.servers().find(|server| has_primary && server.server_type() == ServerType::RsPrimary)
}

/// Whether a topology is a replica set without a primary. A closed topology has no type.
fn is_open_set(topology: &TopologyDescription<'_>) -> bool {
    topology.topology_type() == TopologyType::ReplicaSetNoPrimary
}

/// Whether a server is Unknown because it refused the credential. That lasts until the next check,
/// which needs no credential.
fn is_refused(server: &ServerDescription<'_>) -> bool {
    server.error() == Some(ServerError::Failed(Cause::Authentication))
}

/// Why a server is down. `None` for a server that answers but has lost an election or refuses a
/// credential.
fn down(server: &ServerDescription<'_>) -> Option<ServerError> {
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

/// A server's error, with the underlying reason if its connection failed.
struct Down<'a>(&'a ServerError, Option<&'a Reason>);

impl fmt::Display for Down<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ServerError::Failed(cause) = *self.0 { Failure(cause, self.1).fmt(f) } else { self.0.fmt(f) }
    }
}

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_set = |f: &mut fmt::Formatter<'_>, set: &Option<&str>| match set {
            Some(set) => write!(f, " of replica set {}", Name(set)),
            None => Ok(()),
        };
        match self {
            Self::PrimaryLost { primary, set, now, reason } => {
                write!(f, "primary lost: {}", Name(primary.address()))?;
                of_set(f, set)?;
                match now {
                    None => f.write_str(": it left the set"),
                    Some(now) => match now.error() {
                        Some(error) => write!(f, ": {}", Down(&error, *reason)),
                        None => write!(f, ": it is {} now", now.server_type()),
                    },
                }
            }
            Self::PrimaryFound { primary, set, before } => {
                write!(f, "primary found: {}", Name(primary.address()))?;
                of_set(f, set)?;
                before.map_or(Ok(()), |before| write!(f, ", before it was {}", Name(before.address())))
            }
            Self::ServerDown { address, error, reason } => {
                write!(f, "server down: {}: {}", Name(address), Down(error, *reason))
            }
            Self::ServerReconnected { address } => write!(f, "server reconnected: {}", Name(address)),
            Self::PoolCleared { address, service, cause } => {
                write!(f, "pool cleared: {}", Name(address.unwrap_or(UNKNOWN)))?;
                service.map_or(Ok(()), |service| write!(f, ", service {service}"))?;
                cause.map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Self::AuthenticationFailed { address } => {
                write!(f, "authentication failed: {}", Name(address.unwrap_or(UNKNOWN)))
            }
        }
    }
}
