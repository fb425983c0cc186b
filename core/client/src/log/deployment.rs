//! Lines for operators about changes of the deployment: one line for one fact, at levels that are
//! usually enabled.
//!
//! A fact is found by comparing a description with the previous one, so a server that stays down is
//! reported once. Consequences have no line: a server that is down also has a failed heartbeat and
//! a cleared pool.

use super::{DEPLOYMENT, Name, Shown, UNKNOWN, append};
use crate::liveness::{Turn, down, primary_of};
use core::fmt;
use poolhouse_core::cluster::ClusterEvent;
use poolhouse_core::mux::{HexCode, MuxClosed, MuxEvent};
use poolhouse_core::observe::EventContext;
use poolhouse_core::pool::PoolEvent;
use poolhouse_core::topology::{Incompatibility, ServerDescription, ServerError, TopologyDescription, TopologyType};
use poolhouse_core::{Cause, ObjectId, Reason};
use poolhouse_wire::bson::RawDocument;
use tracing::Level;

/// A fact about a deployment. `Display` is its line, without the [`reason`](Self::reason).
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
    /// No connection to a server is open, and the last one failed or was not established.
    Unreachable { address: Option<&'a str>, cause: Cause, reason: Option<&'a Reason> },
    /// A server was removed because it is no member of the replica set that the client looks for.
    WrongSet { address: &'a str, wanted: &'a str, found: Option<&'a str> },
    /// The client does not support the wire versions of a server.
    Incompatible(Incompatibility<'a>),
    /// An event of a cluster of Cassandra.
    Cluster { event: &'a ClusterEvent, address: Option<&'a str>, reason: Option<&'a Reason> },
    /// A session has read the tables of its cluster from a node.
    Discovered { address: Option<&'a str>, count: u32 },
    /// A server that was down is known again.
    ServerReconnected { address: &'a str },
    /// The connections of a pool, or of one service, became stale.
    PoolCleared { address: Option<&'a str>, service: Option<ObjectId>, cause: Option<Cause> },
    /// A connection was not established because it was not authenticated.
    AuthenticationFailed { address: Option<&'a str>, reason: Option<&'a Reason> },
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
                Some(Self::AuthenticationFailed { address, reason: context.reason })
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

    /// The fact that an event of a host of Cassandra reports, if any.
    pub(super) const fn of_host(event: &MuxEvent, context: &EventContext<'a>) -> Option<Self> {
        let is_refused =
            matches!(event, MuxEvent::ConnectionClosed { reason: MuxClosed::Error(Cause::Authentication), .. });
        if !is_refused {
            return None;
        }
        Some(Self::AuthenticationFailed { address: context.address, reason: context.reason })
    }

    /// The fact that the connections of a pool show.
    pub(super) fn of_turn(turn: Turn, context: &EventContext<'a>) -> Self {
        match turn {
            Turn::Down(cause) => Self::Unreachable { address: context.address, cause, reason: context.reason },
            Turn::Up => Self::ServerReconnected { address: context.address.unwrap_or(UNKNOWN) },
        }
    }

    /// Reports the facts in a change of a topology: of its primary first, then of the other
    /// servers.
    ///
    /// - `context`: has the reason of the failure that caused the change, or the reply.
    ///
    /// Cost: O(servers).
    pub(super) fn of_topology(
        previous: TopologyDescription<'a>,
        new: TopologyDescription<'a>,
        context: &EventContext<'a>,
        mut report: impl FnMut(&Self),
    ) {
        let reason = context.reason;
        if let Some(fact) = Self::of_other_set(&previous, &new, context.reply) {
            report(&fact);
        }
        if let Some(reason) = new.compatibility_error().filter(|_| previous.is_compatible()) {
            report(&Self::Incompatible(reason));
        }
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

    /// The server that the topology has removed because of this reply: it has another set's name.
    fn of_other_set(
        previous: &TopologyDescription<'a>,
        new: &TopologyDescription<'a>,
        reply: Option<RawDocument<'a>>,
    ) -> Option<Self> {
        let (wanted, reply) = (new.set_name()?, reply?);
        let found = reply.get("setName").ok()?.and_then(|name| name.as_str());
        let mut removed = previous.servers().filter(|server| new.server(server.server()).is_none());
        let address = removed.next().filter(|_| found != Some(wanted))?.address();
        Some(Self::WrongSet { address, wanted, found })
    }

    /// The reason at the end of the line. Its text may be made by the application, so not under a lock.
    pub(super) fn reason(&self) -> Option<&'a Reason> {
        let of = |error: ServerError, reason| if let ServerError::Failed(_) = error { reason } else { None };
        match *self {
            Self::PrimaryLost { now: Some(now), reason, .. } => of(now.error()?, reason),
            Self::ServerDown { error, reason, .. } => of(error, reason),
            Self::Unreachable { reason, .. }
            | Self::AuthenticationFailed { reason, .. }
            | Self::Cluster { event: ClusterEvent::ControlFailed { .. }, reason, .. } => reason,
            Self::PrimaryLost { now: None, .. }
            | Self::PrimaryFound { .. }
            | Self::WrongSet { .. }
            | Self::Incompatible(_)
            | Self::Cluster { .. }
            | Self::Discovered { .. }
            | Self::ServerReconnected { .. }
            | Self::PoolCleared { .. } => None,
        }
    }

    pub(super) const fn level(&self) -> Level {
        match self {
            Self::Cluster {
                event:
                    ClusterEvent::ControlFailed { .. }
                    | ClusterEvent::QueryFailed { .. }
                    | ClusterEvent::OtherCluster
                    | ClusterEvent::RowsIgnored { .. }
                    | ClusterEvent::NoLocalNodes,
                ..
            } => Level::WARN,
            Self::PrimaryFound { .. }
            | Self::ServerReconnected { .. }
            | Self::Cluster { .. }
            | Self::Discovered { .. } => Level::INFO,
            Self::PrimaryLost { .. }
            | Self::ServerDown { .. }
            | Self::Unreachable { .. }
            | Self::WrongSet { .. }
            | Self::Incompatible(_)
            | Self::PoolCleared { .. }
            | Self::AuthenticationFailed { .. } => Level::WARN,
        }
    }
}

const fn nodes(count: u32) -> &'static str {
    if count == 1 { "node" } else { "nodes" }
}

/// Emits a line, with its reason.
pub(super) fn emit(level: Level, line: impl fmt::Display, reason: Option<&Reason>) {
    let reason = Appended(reason);
    if level == Level::WARN {
        tracing::warn!(target: DEPLOYMENT, "{line}{reason}");
    } else {
        tracing::info!(target: DEPLOYMENT, "{line}{reason}");
    }
}

/// ": " and a reason, if there is one.
struct Appended<'a>(Option<&'a Reason>);

impl fmt::Display for Appended<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |reason| append(reason, f))
    }
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

impl fmt::Display for Fact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_set = |f: &mut fmt::Formatter<'_>, set: &Option<&str>| match set {
            Some(set) => write!(f, " of replica set {}", Name(set)),
            None => Ok(()),
        };
        let control_lost = |f: &mut fmt::Formatter<'_>, address: &Option<&str>| {
            f.write_str("control connection lost: ")?;
            address.map_or(Ok(()), |address| write!(f, "{}: ", Name(address)))
        };
        match self {
            Self::PrimaryLost { primary, set, now, .. } => {
                write!(f, "primary lost: {}", Name(primary.address()))?;
                of_set(f, set)?;
                match now {
                    None => f.write_str(": it left the set"),
                    Some(now) => match now.error() {
                        Some(error) => write!(f, ": {error}"),
                        None => write!(f, ": it is {} now", now.server_type()),
                    },
                }
            }
            Self::PrimaryFound { primary, set, before } => {
                write!(f, "primary found: {}", Name(primary.address()))?;
                of_set(f, set)?;
                before.map_or(Ok(()), |before| write!(f, ", before it was {}", Name(before.address())))
            }
            Self::ServerDown { address, error, .. } => write!(f, "server down: {}: {error}", Name(address)),
            Self::Unreachable { address, cause, reason } => {
                write!(f, "server down: {}", Name(address.unwrap_or(UNKNOWN)))?;
                let is_shown_by_reason = *cause == Cause::Other && reason.is_some_and(|reason| !reason.is_none());
                if is_shown_by_reason { Ok(()) } else { write!(f, ": {}", HexCode(*cause)) }
            }
            Self::WrongSet { address, wanted, found } => {
                write!(f, "wrong replica set: {} ", Name(address))?;
                match found {
                    Some(found) => write!(f, "is a member of \"{}\"", Name(found))?,
                    None => f.write_str("is not a member of one")?,
                }
                write!(f, ", and the client looks for \"{}\"", Name(wanted))
            }
            Self::Incompatible(reason) => write!(f, "incompatible server: {reason}"),
            Self::Discovered { address, count } => {
                f.write_str("control connection established: ")?;
                address.map_or(Ok(()), |address| write!(f, "{}, ", Name(address)))?;
                write!(f, "{count} {}", nodes(*count))
            }
            Self::Cluster { event, address, reason } => match event {
                ClusterEvent::ControlFailed { cause } => {
                    control_lost(f, address)?;
                    write!(f, "{}", HexCode(*cause))
                }
                ClusterEvent::QueryFailed { query } => {
                    control_lost(f, address)?;
                    write!(f, "the node has not answered the query {query:?} as it must")
                }
                ClusterEvent::OtherCluster => {
                    control_lost(f, address)?;
                    f.write_str("the node is of another cluster")
                }
                ClusterEvent::RowsIgnored { count } => {
                    let rows =
                        if *count == 1 { "row of the tables of nodes is" } else { "rows of the tables of nodes are" };
                    write!(
                        f,
                        "{count} {rows} ignored: each needs an address with a port that no other has, a data centre and a rack"
                    )
                }
                ClusterEvent::NodeAdded { node } => write!(f, "node added: {node}"),
                ClusterEvent::NodeRemoved { node } => write!(f, "node removed: {node}"),
                ClusterEvent::NodeUp { node } => write!(f, "node up: {node}"),
                ClusterEvent::NodeDown { node } => write!(f, "node down: {node}: the cluster reports it"),
                ClusterEvent::NoLocalNodes => match reason.filter(|reason| !reason.is_none()) {
                    Some(reason) => Shown(reason).fmt(f),
                    None => f.write_str("no node of the local data centre may be used: check host_filter"),
                },
                ClusterEvent::ControlConnected { .. }
                | ClusterEvent::NodeChanged { .. }
                | ClusterEvent::NodesRead { .. }
                | ClusterEvent::SchemaChanged
                | _ => event.fmt(f),
            },
            Self::ServerReconnected { address } => write!(f, "server reconnected: {}", Name(address)),
            Self::PoolCleared { address, service, cause } => {
                write!(f, "pool cleared: {}", Name(address.unwrap_or(UNKNOWN)))?;
                service.map_or(Ok(()), |service| write!(f, ", service {service}"))?;
                cause.map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Self::AuthenticationFailed { address, .. } => {
                write!(f, "authentication failed: {}", Name(address.unwrap_or(UNKNOWN)))
            }
        }
    }
}
