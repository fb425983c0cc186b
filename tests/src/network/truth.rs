//! The actual state of the deployment, and each member's view of it.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use poolhouse_core::ServerType;

/// All possible hosts.
pub(super) const HOSTS: [&str; 6] = ["n0:27017", "n1:27017", "n2:27017", "n3:27017", "n4:27017", "n5:27017"];
/// The name of the replica set.
pub(super) const SET: &str = "rs";
/// The arbiter.
const ARBITER: usize = 5;

/// The kind of deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    Set,
    Sharded,
    Standalone,
    /// A Cassandra cluster.
    Cluster,
    /// One server of a simple protocol, for a pool of any connections.
    Plain,
}

/// Faults of the path between the client and a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Messages to the member are lost.
    pub(super) lost_there: bool,
    /// Messages from the member are lost.
    pub(super) lost_back: bool,
    /// Connections are refused.
    pub(super) refused: bool,
    /// Messages are held back and not lost.
    pub(super) clogged: bool,
}

/// A member's view of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) server_type: ServerType,
    pub(super) primary: Option<usize>,
    pub(super) hosts: Vec<usize>,
    pub(super) version: i64,
    /// The election term in which it became primary.
    pub(super) election: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) up: bool,
    pub(super) frozen: bool,
    /// It ignores connection attempts instead of refusing them.
    pub(super) silent: bool,
    /// The code of the error with which a node that shuts down refuses requests.
    pub(super) refusal: Option<u32>,
    pub(super) way: Way,
    pub(super) process: u32,
    pub(super) counter: i64,
    pub(super) view: View,
}

impl Member {
    /// Whether it accepts writes.
    pub(super) const fn is_writable(&self) -> bool {
        matches!(self.view.server_type, ServerType::RsPrimary | ServerType::Standalone | ServerType::Mongos)
    }

    /// Whether it answers requests.
    pub(super) const fn is_running(&self) -> bool {
        self.up && !self.frozen
    }
}

/// An id that is ordered by its number.
pub(super) fn object_id(number: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[derive(Debug)]
pub(super) struct Truth {
    pub(super) deployment: Deployment,
    pub(super) members: Vec<Member>,
    /// The current members.
    pub(super) config: Vec<usize>,
    version: i64,
    term: u32,
    pub(super) primary: Option<usize>,
    /// `maxWireVersion` of all members.
    wire: i32,
    /// Whether members report their topologyVersion.
    versioned: bool,
    processes: u32,
}

impl Truth {
    pub(super) fn new(deployment: Deployment, config: Vec<usize>, wire: i32, versioned: bool) -> Self {
        let view = View { server_type: ServerType::RsGhost, primary: None, hosts: Vec::new(), version: 0, election: 0 };
        let members = (0..6_u32).map(|process| Member {
            up: true,
            frozen: false,
            silent: false,
            refusal: None,
            way: Way::default(),
            process,
            counter: 0,
            view: view.clone(),
        });
        let mut truth = Self {
            deployment,
            members: members.collect(),
            config,
            version: 1,
            term: 0,
            primary: None,
            wire,
            versioned,
            processes: 6,
        };
        if deployment == Deployment::Set {
            truth.elect(0);
        }
        for member in 0..HOSTS.len() {
            truth.sync(member);
        }
        truth
    }

    /// The up-to-date view of a member.
    pub(super) fn right_view(&self, member: usize) -> View {
        let nothing = |server_type| View { server_type, primary: None, hosts: Vec::new(), version: 0, election: 0 };
        match self.deployment {
            // The types of nodes of a cluster have no meaning.
            Deployment::Cluster => View { hosts: self.config.clone(), ..nothing(ServerType::Standalone) },
            Deployment::Standalone | Deployment::Plain => nothing(ServerType::Standalone),
            Deployment::Sharded => nothing(ServerType::Mongos),
            Deployment::Set if !self.config.contains(&member) => nothing(ServerType::RsGhost),
            Deployment::Set => {
                let is_primary = self.primary == Some(member);
                let server_type = match member {
                    _ if is_primary => ServerType::RsPrimary,
                    ARBITER => ServerType::RsArbiter,
                    _ => ServerType::RsSecondary,
                };
                let (hosts, version) = (self.config.clone(), self.version);
                let election = if is_primary { self.term } else { 0 };
                View { server_type, primary: self.primary, hosts, version, election }
            }
        }
    }

    /// Updates the view of a member. Returns whether it has changed.
    pub(super) fn sync(&mut self, member: usize) -> bool {
        let view = self.right_view(member);
        let known = &mut self.members[member];
        if !known.is_running() || known.view == view {
            return false;
        }
        known.view = view;
        known.counter += 1;
        true
    }

    /// Members that can be elected.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let can = |&&member: &&usize| member != ARBITER && self.members[member].is_running();
        self.config.iter().filter(can).copied().collect()
    }

    /// Elects a member in a new term.
    pub(super) fn elect(&mut self, member: usize) -> bool {
        self.term += 1;
        self.primary = Some(member);
        self.sync(member)
    }

    /// Changes the configuration. The primary is updated immediately.
    pub(super) fn reconfigure(&mut self, config: Vec<usize>) -> bool {
        self.config = config;
        self.version += 1;
        self.primary.is_some_and(|primary| self.sync(primary))
    }

    /// Restarts a member as a new process, which does not know its role yet.
    pub(super) fn restart(&mut self, member: usize) {
        let view = self.right_view(member);
        let server_type = if view.server_type == ServerType::RsPrimary || view.server_type == ServerType::RsSecondary {
            ServerType::RsOther
        } else {
            view.server_type
        };
        let known = &mut self.members[member];
        known.view = View { server_type, primary: None, election: 0, ..view };
        known.up = true;
        known.frozen = false;
        known.silent = false;
        known.refusal = None;
        known.process = self.processes;
        known.counter = 0;
        self.processes += 1;
    }

    /// The process and the counter of a member, if it reports them.
    pub(super) fn version(&self, member: usize) -> Option<Version> {
        let known = &self.members[member];
        self.versioned.then_some(Version { process: known.process, counter: known.counter })
    }

    /// The current hello reply of a member.
    ///
    /// - `legacy`: the request used the old command name.
    pub(super) fn hello(&self, member: usize, legacy: bool) -> Document {
        let view = &self.members[member].view;
        let is_primary = view.server_type == ServerType::RsPrimary;
        let is_single = matches!(view.server_type, ServerType::Standalone | ServerType::Mongos);
        let mut reply = doc! { "helloOk": true };
        reply.insert(if legacy { "ismaster" } else { "isWritablePrimary" }, is_primary || is_single);
        if let Some(version) = self.version(member) {
            reply.insert("topologyVersion", version.document());
        }
        match view.server_type {
            ServerType::Mongos => drop(reply.insert("msg", "isdbgrid")),
            ServerType::RsGhost => drop(reply.insert("isreplicaset", true)),
            ServerType::RsPrimary | ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther => {
                reply.insert("setName", SET);
                reply.insert("setVersion", i32::try_from(view.version).unwrap_or(i32::MAX));
                reply.insert("secondary", view.server_type == ServerType::RsSecondary);
                let named = |arbiters| {
                    let hosts = view.hosts.iter().filter(move |&&host| (host == ARBITER) == arbiters);
                    hosts.map(|&host| HOSTS[host]).collect::<Vec<_>>()
                };
                reply.insert("hosts", named(false));
                if view.hosts.contains(&ARBITER) {
                    reply.insert("arbiters", named(true));
                }
                if view.server_type == ServerType::RsArbiter {
                    reply.insert("arbiterOnly", true);
                }
                if let Some(primary) = view.primary {
                    reply.insert("primary", HOSTS[primary]);
                }
                reply.insert("me", HOSTS[member]);
                if is_primary {
                    reply.insert("electionId", object_id(view.election));
                }
                reply.insert("lastWrite", doc! { "lastWriteDate": DateTime::from_millis(1_000_000) });
            }
            ServerType::Standalone | ServerType::Unknown | ServerType::PossiblePrimary | ServerType::LoadBalancer => {}
        }
        reply.insert("maxBsonObjectSize", 16_777_216);
        reply.insert("maxMessageSizeBytes", 48_000_000);
        reply.insert("maxWriteBatchSize", 100_000);
        reply.insert("logicalSessionTimeoutMinutes", 30);
        reply.insert("minWireVersion", 0);
        reply.insert("maxWireVersion", self.wire);
        reply.insert("ok", 1.0);
        reply
    }
}

/// The topologyVersion of a member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) process: u32,
    pub(super) counter: i64,
}

impl Version {
    pub(super) fn document(self) -> Document {
        doc! { "processId": object_id(self.process), "counter": self.counter }
    }
}
