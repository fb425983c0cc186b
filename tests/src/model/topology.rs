//! A naive topology: names instead of numbers, a full copy for each update, and events from the
//! comparison of the two copies.
//!
//! Written from SDAM-01..84 and LOG-01..20. It has no capacity limits.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::reply::Lists;
use poolhouse_core::topology::{MAX_WIRE_VERSION, MIN_WIRE_VERSION, TopologyType};
use poolhouse_core::{Cause, CertificateFault, ObjectId, ServerType, TopologyVersion};
use poolhouse_wire::hello::HelloReply;

/// A reply to a hello that owns its texts. Addresses are in the normal form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// `isWritablePrimary`.
    pub writable: bool,
    /// `secondary`.
    pub secondary: bool,
    /// `arbiterOnly`.
    pub arbiter: bool,
    /// `hidden`.
    pub hidden: bool,
    /// `isreplicaset`.
    pub ghost: bool,
    /// `msg: isdbgrid`.
    pub mongos: bool,
    /// `setName`.
    pub set_name: Option<String>,
    /// `setVersion`.
    pub set_version: Option<i64>,
    /// `electionId`.
    pub election_id: Option<ObjectId>,
    /// `me`.
    pub me: Option<String>,
    /// `primary`.
    pub primary: Option<String>,
    /// `minWireVersion` and `maxWireVersion`.
    pub wire: (i32, i32),
    /// `logicalSessionTimeoutMinutes`.
    pub session_timeout: Option<i32>,
    /// `topologyVersion`.
    pub version: Option<TopologyVersion>,
    /// `hosts`.
    pub hosts: Vec<String>,
    /// `passives`.
    pub passives: Vec<String>,
    /// `arbiters`.
    pub arbiters: Vec<String>,
    /// `tags`.
    pub tags: Vec<(String, String)>,
}

impl Reply {
    /// The encoded bytes of its lists.
    #[must_use]
    pub fn lists(&self) -> Lists {
        Lists::new(&self.hosts, &self.passives, &self.arbiters, &self.tags)
    }

    /// The reply in the form that a topology accepts.
    #[must_use]
    pub fn hello<'a>(&'a self, lists: &'a Lists) -> HelloReply<'a> {
        lists.of(HelloReply {
            is_writable_primary: self.writable,
            secondary: self.secondary,
            arbiter_only: self.arbiter,
            hidden: self.hidden,
            is_replica_set: self.ghost,
            is_db_grid: self.mongos,
            set_name: self.set_name.as_deref(),
            set_version: self.set_version,
            election_id: self.election_id,
            me: self.me.as_deref(),
            primary: self.primary.as_deref(),
            min_wire_version: self.wire.0,
            max_wire_version: self.wire.1,
            logical_session_timeout_minutes: self.session_timeout,
            topology_version: self.version,
            ..HelloReply::OK
        })
    }

    /// SDAM-15..19.
    fn server_type(&self) -> ServerType {
        match self {
            Self { ghost: true, .. } => ServerType::RsGhost,
            Self { mongos: true, .. } => ServerType::Mongos,
            Self { set_name: None, .. } => ServerType::Standalone,
            Self { hidden: true, .. } => ServerType::RsOther,
            Self { writable: true, .. } => ServerType::RsPrimary,
            Self { secondary: true, .. } => ServerType::RsSecondary,
            Self { arbiter: true, .. } => ServerType::RsArbiter,
            _ => ServerType::RsOther,
        }
    }
}

/// The description of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its type.
    pub server_type: ServerType,
    /// Why it is Unknown.
    pub error: Option<String>,
    /// Its last reply; the default while Unknown.
    pub reply: Reply,
}

impl Server {
    fn unknown(error: Option<String>) -> Self {
        Self { server_type: ServerType::Unknown, error, reply: Reply::default() }
    }

    /// SDAM-32.
    fn equals(&self, other: &Self) -> bool {
        let plain = |server_type: ServerType| {
            if server_type == ServerType::PossiblePrimary { ServerType::Unknown } else { server_type }
        };
        let sets = |reply: &Reply| {
            let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
            let tags: BTreeSet<_> = reply.tags.iter().cloned().collect();
            (set(&reply.hosts), set(&reply.passives), set(&reply.arbiters), tags)
        };
        let rest = |reply: &Reply| Reply {
            hosts: Vec::new(),
            passives: Vec::new(),
            arbiters: Vec::new(),
            tags: Vec::new(),
            // The type contains the role.
            writable: false,
            secondary: false,
            arbiter: false,
            hidden: false,
            ghost: false,
            mongos: false,
            ..reply.clone()
        };
        plain(self.server_type) == plain(other.server_type)
            && self.error == other.error
            && sets(&self.reply) == sets(&other.reply)
            && rest(&self.reply) == rest(&other.reply)
    }
}

/// One state of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its type.
    pub topology_type: TopologyType,
    /// The name of the replica set.
    pub set_name: Option<String>,
    /// maxSetVersion.
    pub max_set_version: Option<i64>,
    /// maxElectionId.
    pub max_election_id: Option<ObjectId>,
    /// The servers by address.
    pub servers: BTreeMap<String, Server>,
}

impl State {
    /// SDAM-35.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.servers.values().all(|server| {
            let fits = server.reply.wire.0 <= MAX_WIRE_VERSION && server.reply.wire.1 >= MIN_WIRE_VERSION;
            !server.server_type.is_known() || server.server_type == ServerType::LoadBalancer || fits
        })
    }

    /// SDAM-61.
    #[must_use]
    pub fn session_timeout(&self) -> Option<i64> {
        let bearing = self.servers.values().filter(|server| server.server_type.is_data_bearing());
        let timeouts: Vec<_> = bearing.map(|server| server.reply.session_timeout.map(i64::from)).collect();
        if timeouts.contains(&None) { None } else { timeouts.into_iter().flatten().min() }
    }

    fn has_primary(&self) -> bool {
        self.servers.values().any(|server| server.server_type == ServerType::RsPrimary)
    }

    fn check_if_has_primary(&mut self) {
        self.topology_type =
            if self.has_primary() { TopologyType::ReplicaSetWithPrimary } else { TopologyType::ReplicaSetNoPrimary };
    }
}

/// An event, reduced to what the model predicts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelEvent {
    /// ServerDescriptionChanged, with the types.
    ServerChanged(String, &'static str, &'static str),
    /// ServerClosed.
    ServerClosed(String),
    /// ServerOpening.
    ServerOpening(String),
    /// TopologyDescriptionChanged, with the types.
    TopologyChanged(&'static str, &'static str),
}

/// An owed action, by address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelAction {
    /// A server was added.
    Added(String),
    /// Its pool is cleared, with or without interruption.
    Clear(String, bool),
    /// Its pool is marked ready.
    Ready(String),
    /// Its check is cancelled.
    Cancel(String),
    /// It is checked immediately.
    Check(String),
    /// A server was removed.
    Removed(String),
}

/// An application error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// Whether the generation of the connection is the current one.
    pub current: bool,
    /// Whether the connection was still being established.
    pub before: bool,
    /// Its kind.
    pub kind: ModelErrorKind,
    /// Whether it has the overload label.
    pub overloaded: bool,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// A network error.
    Network,
    /// A network timeout.
    Timeout,
    /// A reply with this code.
    Code(i32, Option<TopologyVersion>),
    /// A rejected certificate.
    Certificate,
}

/// Consequences of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelVerdict {
    /// The pool is cleared.
    pub clear: bool,
    /// The server becomes Unknown.
    pub unknown: bool,
    /// It is checked immediately.
    pub check: bool,
    /// Its check is cancelled.
    pub cancel: bool,
    /// A scan is due.
    pub scan: bool,
}

/// The naive topology.
#[derive(Clone, Debug)]
pub struct ModelTopology {
    /// The current state.
    pub state: State,
    seeds: usize,
    /// Seeds that are paths of Unix sockets.
    paths: Vec<String>,
    /// Events since they were taken.
    pub events: Vec<ModelEvent>,
    /// Actions since they were taken.
    pub actions: BTreeSet<ModelAction>,
}

impl ModelTopology {
    /// Creates a topology of these seeds, all different and in the normal form. Its opening events
    /// are left out.
    #[must_use]
    pub fn new(seeds: &[String], topology_type: TopologyType, set_name: Option<String>) -> Self {
        let servers = seeds.iter().map(|seed| (seed.clone(), Server::unknown(None))).collect();
        Self {
            state: State { topology_type, set_name, max_set_version: None, max_election_id: None, servers },
            seeds: seeds.len(),
            paths: seeds.iter().filter(|seed| seed.starts_with('/')).cloned().collect(),
            events: Vec::new(),
            actions: seeds.iter().cloned().map(ModelAction::Added).collect(),
        }
    }

    /// Applies a successful reply. Returns whether the server is known afterwards.
    pub fn hello(&mut self, address: &str, reply: &Reply) -> bool {
        let Some(known) = self.state.servers.get(address) else { return false };
        // SDAM-11
        if let (Some(new), Some(old)) = (reply.version, known.reply.version) {
            if new.process_id == old.process_id && new.counter < old.counter {
                return known.server_type.is_known();
            }
        }
        let server = match self.bad_address(reply) {
            Some(error) => Server::unknown(Some(error)),
            None => Server { server_type: reply.server_type(), error: None, reply: reply.clone() },
        };
        self.step(address, server);
        let Some(server) = self.state.servers.get(address) else { return false };
        let is_known = server.server_type.is_known();
        if server.server_type.is_data_bearing() || (is_known && self.state.topology_type == TopologyType::Single) {
            self.actions.insert(ModelAction::Ready(address.to_owned()));
        }
        is_known
    }

    /// The error for the first field of a reply that names the path of a Unix socket that is not a
    /// seed.
    fn bad_address(&self, reply: &Reply) -> Option<String> {
        let is_bad = |text: &String| text.starts_with('/') && !self.paths.contains(text);
        for (field, text) in [("me", &reply.me), ("primary", &reply.primary)] {
            if text.as_ref().is_some_and(is_bad) {
                return Some(format!("the hello reply's {field} is not a valid address"));
            }
        }
        let lists = [("hosts", &reply.hosts), ("passives", &reply.passives), ("arbiters", &reply.arbiters)];
        lists.into_iter().find_map(|(field, list)| {
            let place = list.iter().position(is_bad)?;
            Some(format!("the hello reply's {field}[{place}] is not a valid address"))
        })
    }

    /// A check failed.
    pub fn failed(&mut self, address: &str, cause: Cause) {
        if !self.state.servers.contains_key(address) {
            return;
        }
        self.step(address, Server::unknown(Some(cause.to_string())));
        let clears = [true, false].map(|interrupt| ModelAction::Clear(address.to_owned(), interrupt));
        let interrupt = cause == Cause::NetworkTimeout || self.actions.contains(&clears[0]);
        for clear in &clears {
            self.actions.remove(clear);
        }
        self.actions.insert(ModelAction::Clear(address.to_owned(), interrupt));
    }

    /// Replaces the seeds by these hosts, all different and in the normal form.
    pub fn seeds(&mut self, seeds: &[String]) {
        let is_open = [TopologyType::Unknown, TopologyType::Sharded].contains(&self.state.topology_type);
        if !is_open || seeds.is_empty() {
            return;
        }
        let before = self.state.clone();
        let mut after = before.clone();
        after.servers.retain(|name, _| seeds.contains(name));
        for seed in seeds {
            after.servers.entry(seed.clone()).or_insert_with(|| Server::unknown(None));
        }
        self.seeds = seeds.len();
        self.tell("", &before, &after);
        self.state = after;
    }

    /// Applies an application error.
    pub fn app_error(&mut self, address: &str, error: &ModelError) -> ModelVerdict {
        let nothing = ModelVerdict::default();
        let Some(server) = self.state.servers.get(address) else { return nothing };
        if !error.current || (error.overloaded && error.before) {
            return nothing;
        }
        let before = error.before;
        // Each error that ends an establishment cancels the check.
        let marked = |clear| ModelVerdict { clear, unknown: true, cancel: before, ..nothing };
        let (verdict, text, version) = match error.kind {
            ModelErrorKind::Network if error.overloaded => return nothing,
            ModelErrorKind::Network => {
                (ModelVerdict { cancel: true, ..marked(true) }, Cause::Network.to_string(), None)
            }
            ModelErrorKind::Timeout if before => (marked(true), Cause::NetworkTimeout.to_string(), None),
            ModelErrorKind::Certificate if before => {
                (marked(true), Cause::Certificate(CertificateFault::Expired).to_string(), None)
            }
            ModelErrorKind::Timeout | ModelErrorKind::Certificate => return nothing,
            ModelErrorKind::Code(code, version) => {
                let shutdown = [11_600, 91].contains(&code);
                let recovering = [11_602, 13_436, 189].contains(&code);
                let not_primary = [10_107, 13_435, 10_058].contains(&code);
                let text = if shutdown {
                    format!("the node is shutting down (code {code})")
                } else if recovering {
                    format!("the node is recovering (code {code})")
                } else if not_primary {
                    format!("the server is not the writable primary (code {code})")
                } else if before {
                    Cause::Command { code }.to_string()
                } else {
                    return nothing;
                };
                let changed = shutdown || recovering || not_primary;
                let verdict =
                    ModelVerdict { check: changed, scan: shutdown || not_primary, ..marked(before || shutdown) };
                (verdict, text, version)
            }
        };
        // SDAM-67
        if let (Some(new), Some(old)) = (version, server.reply.version) {
            if new.process_id == old.process_id && new.counter <= old.counter {
                return nothing;
            }
        }
        let mut unknown = Server::unknown(Some(text));
        unknown.reply.version = version;
        self.step(address, unknown);
        if verdict.check {
            self.actions.insert(ModelAction::Check(address.to_owned()));
        }
        if verdict.cancel {
            self.actions.insert(ModelAction::Cancel(address.to_owned()));
        }
        verdict
    }

    /// Applies one description, with its consequences.
    fn step(&mut self, address: &str, server: Server) {
        let before = self.state.clone();
        let mut after = before.clone();
        let mut deposed = Vec::new();
        after.servers.insert(address.to_owned(), server);
        apply(&mut after, address, self.seeds, &mut deposed);
        self.tell(address, &before, &after);
        for (name, server) in &after.servers {
            if !server.server_type.is_known() {
                self.actions.remove(&ModelAction::Ready(name.clone()));
            }
        }
        self.actions.extend(deposed.into_iter().map(ModelAction::Check));
        self.state = after;
    }

    /// Emits the events, additions and removals by comparison. LOG-05..07
    fn tell(&mut self, responder: &str, before: &State, after: &State) {
        let mut changed = Vec::new();
        for (name, old) in &before.servers {
            match after.servers.get(name) {
                Some(new) if !old.equals(new) => changed.push((name, old, new)),
                _ => {}
            }
        }
        changed.sort_by_key(|(name, ..)| name.as_str() != responder);
        let seen = self.events.len();
        for (name, old, new) in changed {
            let types = (old.server_type.name(), new.server_type.name());
            self.events.push(ModelEvent::ServerChanged(name.clone(), types.0, types.1));
        }
        for name in before.servers.keys().filter(|name| !after.servers.contains_key(*name)) {
            self.events.push(ModelEvent::ServerClosed(name.clone()));
            let was_told = !self.actions.contains(&ModelAction::Added(name.clone()));
            // The removal of an earlier server of this address may still be owed.
            self.actions.retain(|action| address_of(action) != name || matches!(action, ModelAction::Removed(_)));
            if was_told {
                self.actions.insert(ModelAction::Removed(name.clone()));
            }
        }
        for name in after.servers.keys().filter(|name| !before.servers.contains_key(*name)) {
            self.events.push(ModelEvent::ServerOpening(name.clone()));
            self.actions.insert(ModelAction::Added(name.clone()));
        }
        let fields = |state: &State| State { servers: BTreeMap::new(), ..state.clone() };
        // Compatibility and session timeout change only together with a server description, and
        // that change is reported.
        if self.events.len() > seen || fields(before) != fields(after) {
            let types = (before.topology_type.name(), after.topology_type.name());
            self.events.push(ModelEvent::TopologyChanged(types.0, types.1));
        }
    }
}

/// The address of an action.
#[must_use]
pub fn address_of(action: &ModelAction) -> &str {
    match action {
        ModelAction::Added(name)
        | ModelAction::Clear(name, _)
        | ModelAction::Ready(name)
        | ModelAction::Cancel(name)
        | ModelAction::Check(name)
        | ModelAction::Removed(name) => name,
    }
}

/// SDAM-33..58.
fn apply(state: &mut State, address: &str, seeds: usize, deposed: &mut Vec<String>) {
    use ServerType as S;
    use TopologyType as T;
    let server = state.servers[address].clone();
    let is_member = matches!(server.server_type, S::RsSecondary | S::RsArbiter | S::RsOther);
    let is_nothing = matches!(server.server_type, S::Unknown | S::PossiblePrimary | S::RsGhost);
    match state.topology_type {
        T::LoadBalanced => {}
        T::Single => {
            let is_wrong = state.set_name.is_some() && server.reply.set_name != state.set_name;
            if server.server_type.is_known() && is_wrong {
                let error = "the server is not a member of the expected replica set".to_owned();
                state.servers.insert(address.to_owned(), Server::unknown(Some(error)));
            }
        }
        T::Sharded => {
            if !matches!(server.server_type, S::Unknown | S::PossiblePrimary | S::Mongos) {
                state.servers.remove(address);
            }
        }
        _ if server.server_type == S::RsPrimary => from_primary(state, address, &server, deposed),
        T::Unknown | T::ReplicaSetNoPrimary if is_nothing => {}
        T::Unknown | T::ReplicaSetNoPrimary if is_member => without_primary(state, address, &server),
        T::Unknown if server.server_type == S::Mongos => state.topology_type = T::Sharded,
        T::Unknown if seeds == 1 => state.topology_type = T::Single,
        T::Unknown | T::ReplicaSetNoPrimary => {
            state.servers.remove(address);
        }
        T::ReplicaSetWithPrimary if is_nothing => state.check_if_has_primary(),
        T::ReplicaSetWithPrimary if is_member => {
            let misnamed = server.reply.me.as_deref().is_some_and(|me| me != address);
            if server.reply.set_name != state.set_name || misnamed {
                state.servers.remove(address);
                state.check_if_has_primary();
            } else if !state.has_primary() {
                state.topology_type = T::ReplicaSetNoPrimary;
                hint(state, &server.reply);
            }
        }
        T::ReplicaSetWithPrimary => {
            state.servers.remove(address);
            state.check_if_has_primary();
        }
    }
}

fn hosts_of(reply: &Reply) -> impl Iterator<Item = &String> {
    reply.hosts.iter().chain(&reply.passives).chain(&reply.arbiters)
}

fn hint(state: &mut State, reply: &Reply) {
    let named = reply.primary.as_ref().and_then(|primary| state.servers.get_mut(primary));
    if let Some(server) = named.filter(|server| server.server_type == ServerType::Unknown) {
        server.server_type = ServerType::PossiblePrimary;
    }
}

fn without_primary(state: &mut State, address: &str, server: &Server) {
    state.topology_type = TopologyType::ReplicaSetNoPrimary;
    if state.set_name.is_none() {
        state.set_name = server.reply.set_name.clone();
    }
    if state.set_name != server.reply.set_name {
        state.servers.remove(address);
        return;
    }
    for host in hosts_of(&server.reply) {
        state.servers.entry(host.clone()).or_insert_with(|| Server::unknown(None));
    }
    hint(state, &server.reply);
    if server.reply.me.as_deref().is_some_and(|me| me != address) {
        state.servers.remove(address);
    }
}

fn from_primary(state: &mut State, address: &str, server: &Server, deposed: &mut Vec<String>) {
    let reply = &server.reply;
    if state.set_name.is_none() {
        state.set_name = reply.set_name.clone();
    }
    if state.set_name != reply.set_name {
        state.servers.remove(address);
        state.check_if_has_primary();
        return;
    }
    let (max_version, max_election) = (state.max_set_version, state.max_election_id);
    let is_stale = if reply.wire.1 >= 17 {
        (reply.election_id, reply.set_version) < (max_election, max_version)
    } else {
        match (reply.set_version, reply.election_id, max_version, max_election) {
            (Some(version), Some(election), Some(max_version), Some(max_election)) => {
                max_version > version || (max_version == version && max_election > election)
            }
            _ => false,
        }
    };
    if is_stale {
        let text = |election: Option<ObjectId>, version: Option<i64>| {
            let election = election.map_or("null".to_owned(), |id| id.to_string());
            let version = version.map_or("null".to_owned(), |version| version.to_string());
            format!("({election}, {version})")
        };
        let error = format!(
            "primary marked stale due to electionId/setVersion mismatch, {} is stale compared to {}",
            text(reply.election_id, reply.set_version),
            text(max_election, max_version)
        );
        state.servers.insert(address.to_owned(), Server::unknown(Some(error)));
        state.check_if_has_primary();
        return;
    }
    if reply.wire.1 >= 17 {
        state.max_election_id = reply.election_id;
        state.max_set_version = reply.set_version;
    } else {
        if reply.set_version.is_some() && reply.election_id.is_some() {
            state.max_election_id = reply.election_id;
        }
        if reply.set_version > state.max_set_version {
            state.max_set_version = reply.set_version;
        }
    }
    for (name, other) in &mut state.servers {
        if name != address && other.server_type == ServerType::RsPrimary {
            let error = "primary marked stale due to discovery of newer primary".to_owned();
            *other = Server::unknown(Some(error));
            deposed.push(name.clone());
        }
    }
    let hosts: BTreeSet<_> = hosts_of(reply).cloned().collect();
    for host in &hosts {
        state.servers.entry(host.clone()).or_insert_with(|| Server::unknown(None));
    }
    state.servers.retain(|name, _| hosts.contains(name));
    deposed.retain(|name| hosts.contains(name));
    state.check_if_has_primary();
}
