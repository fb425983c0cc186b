//! The deployment as it is, and what each member says of it.

use poolhouse_core::topology::{HelloInfo, HelloLists};
use poolhouse_core::{ObjectId, ServerType, TopologyVersion};

/// Every host that there may be.
pub(super) const HOSTS: [&str; 6] = ["n0:27017", "n1:27017", "n2:27017", "n3:27017", "n4:27017", "n5:27017"];
/// The one that holds no data.
const ARBITER: usize = 5;

/// What is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    Set,
    Sharded,
    Standalone,
}

/// Whether the client reaches a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Open,
    /// Messages are lost, either way.
    Lost,
    /// Connections are refused.
    Refused,
}

/// What a member knows of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) server_type: ServerType,
    pub(super) primary: Option<usize>,
    pub(super) hosts: Vec<usize>,
    pub(super) version: i64,
    /// The term that made it primary.
    pub(super) election: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) up: bool,
    pub(super) frozen: bool,
    pub(super) reach: Reach,
    pub(super) process: u32,
    pub(super) counter: i64,
    pub(super) view: View,
}

impl Member {
    /// Whether it answers whom it hears.
    pub(super) const fn is_running(&self) -> bool {
        self.up && !self.frozen
    }
}

/// A hello reply, as it was when it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) member: usize,
    pub(super) view: View,
    pub(super) topology_version: Option<TopologyVersion>,
    wire: i32,
    pub(super) more_to_come: bool,
    pub(super) ok: bool,
}

impl Snapshot {
    pub(super) fn info(&self) -> HelloInfo<'_, &View> {
        let view = &self.view;
        let in_set = matches!(
            view.server_type,
            ServerType::RsPrimary | ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther
        );
        let is_primary = view.server_type == ServerType::RsPrimary;
        HelloInfo {
            is_writable_primary: is_primary,
            secondary: view.server_type == ServerType::RsSecondary,
            arbiter_only: view.server_type == ServerType::RsArbiter,
            hidden: false,
            is_replica_set: view.server_type == ServerType::RsGhost,
            is_db_grid: view.server_type == ServerType::Mongos,
            is_cryptd: false,
            set_name: in_set.then_some("rs"),
            set_version: in_set.then_some(view.version),
            election_id: is_primary.then(|| object_id(view.election)),
            me: in_set.then_some(HOSTS[self.member]),
            primary: view.primary.filter(|_| in_set).map(|primary| HOSTS[primary]),
            min_wire_version: 0,
            max_wire_version: self.wire,
            last_write_date_ms: None,
            logical_session_timeout_minutes: Some(30),
            topology_version: self.topology_version,
            lists: view,
        }
    }
}

impl HelloLists for View {
    fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().filter(|&&host| host != ARBITER).map(|&host| HOSTS[host])
    }

    fn passives(&self) -> impl Iterator<Item = &str> {
        core::iter::empty()
    }

    fn arbiters(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().filter(|&&host| host == ARBITER).map(|&host| HOSTS[host])
    }

    fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        core::iter::empty()
    }
}

/// Rises byte by byte with its number.
fn object_id(number: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    ObjectId(bytes)
}

pub(super) struct Truth {
    pub(super) deployment: Deployment,
    pub(super) members: Vec<Member>,
    /// Who belongs to it.
    pub(super) config: Vec<usize>,
    version: i64,
    term: u32,
    pub(super) primary: Option<usize>,
    /// `maxWireVersion` of all.
    wire: i32,
    /// Whether members say their topologyVersion.
    versioned: bool,
    processes: u32,
}

impl Truth {
    pub(super) fn new(deployment: Deployment, config: Vec<usize>, wire: i32, versioned: bool) -> Self {
        let view = View { server_type: ServerType::RsGhost, primary: None, hosts: Vec::new(), version: 0, election: 0 };
        let members = (0..6_u32).map(|process| Member {
            up: true,
            frozen: false,
            reach: Reach::Open,
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

    /// What a member ought to say.
    pub(super) fn right_view(&self, member: usize) -> View {
        let nothing = |server_type| View { server_type, primary: None, hosts: Vec::new(), version: 0, election: 0 };
        match self.deployment {
            Deployment::Standalone => nothing(ServerType::Standalone),
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

    /// A member learns how things are. Whether that is new to it.
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

    /// Whoever could become primary.
    pub(super) fn candidates(&self) -> Vec<usize> {
        let can = |&&member: &&usize| member != ARBITER && self.members[member].is_running();
        self.config.iter().filter(can).copied().collect()
    }

    /// Makes a member primary, in a new term.
    pub(super) fn elect(&mut self, member: usize) -> bool {
        self.term += 1;
        self.primary = Some(member);
        self.sync(member)
    }

    /// Changes the configuration. The primary knows at once.
    pub(super) fn reconfigure(&mut self, config: Vec<usize>) -> bool {
        self.config = config;
        self.version += 1;
        self.primary.is_some_and(|primary| self.sync(primary))
    }

    /// A member starts as a new process, and has to find its place.
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
        known.process = self.processes;
        known.counter = 0;
        self.processes += 1;
    }

    pub(super) fn topology_version(&self, member: usize) -> Option<TopologyVersion> {
        let known = &self.members[member];
        self.versioned.then(|| TopologyVersion { process_id: object_id(known.process), counter: known.counter })
    }

    /// What a member says now.
    pub(super) fn snapshot(&self, member: usize) -> Snapshot {
        let topology_version = self.topology_version(member);
        let view = self.members[member].view.clone();
        Snapshot { member, view, topology_version, wire: self.wire, more_to_come: false, ok: true }
    }
}
