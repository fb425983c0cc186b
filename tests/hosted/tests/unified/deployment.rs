//! The servers that tests run on, and what the runner does to them without the client.

use crate::matching;
use crate::router::Router;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_tests::fake::balancer::FakeBalancer;
use poolhouse_tests::fake::mongoses::FakeMongoses;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{BlockingClient, FakeOptions, FakeServer, FakeUser, Role};
use poolhouse_tests::mongod::{Mongod, MongodOptions, MongodReplicaSet, MongodReplicaSetOptions};
use std::sync::{Condvar, Mutex, PoisonError};

/// Time limit until a set has a primary.
const SETTLING: Duration = Duration::from_secs(60);

/// A kind of deployment, in the words of `runOnRequirements`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topology {
    Single,
    ReplicaSet,
    Sharded,
    LoadBalanced,
}

impl Topology {
    pub(crate) const ALL: [Self; 4] = [Self::Single, Self::ReplicaSet, Self::Sharded, Self::LoadBalanced];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::ReplicaSet => "replicaset",
            Self::Sharded => "sharded",
            Self::LoadBalanced => "load-balanced",
        }
    }

    pub(crate) fn is_named(self, name: &str) -> bool {
        self.name() == name || self == Self::Sharded && name == "sharded-replicaset"
    }
}

/// The user of every deployment, in a connection string. The servers accept clients without a user, too.
pub(crate) const USER: &str = "ada:pencil@";

/// Running servers. One test at a time uses them, because fail points are global to a server.
#[derive(Debug)]
pub(crate) struct Deployment {
    topology: Topology,
    servers: Servers,
    /// One of them and all of them, for routers and load balancers.
    routers: Vec<Router>,
    /// The server's release: `[6, 0, 5]`.
    pub(crate) version: Vec<i64>,
    /// The names of the fail points that tests have set.
    fail_points: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
enum Servers {
    One(Box<Mongod>),
    Set(MongodReplicaSet),
    Fake(Arc<FakeServer>),
    FakeSet(Box<FakeReplicaSet>),
    FakeRouters(FakeMongoses),
    FakeBalancer(FakeBalancer),
}

impl Deployment {
    /// Starts fake servers, for one test.
    pub(crate) fn start_fake(topology: Topology) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut options = FakeOptions::with_users(vec![FakeUser::new("ada", "pencil")]);
        options.auth_required = false;
        let servers = match topology {
            Topology::Single => Servers::Fake(Arc::new(FakeServer::start(options).map_err(failed)?)),
            Topology::ReplicaSet => {
                let mut set = FakeReplicaSetOptions::of(3).by_hand();
                set.server = options;
                Servers::FakeSet(Box::new(FakeReplicaSet::start(set).map_err(failed)?))
            }
            // One: a fail point of "the" router must be of that to which a session is pinned.
            Topology::Sharded => {
                options.state.role = Role::Mongos;
                Servers::FakeRouters(FakeMongoses::start_as(1, &options).map_err(failed)?)
            }
            Topology::LoadBalanced => Servers::FakeBalancer(FakeBalancer::start(1).map_err(failed)?),
        };
        let deployment = Self::of(topology, servers, vec![6, 0, 0]);
        if topology != Topology::Single {
            for server in deployment.fakes() {
                server.update_state(|state| state.cluster_time = Some((50, 1)));
            }
        }
        Ok(deployment)
    }

    const fn of(topology: Topology, servers: Servers, version: Vec<i64>) -> Self {
        Self { topology, servers, routers: Vec::new(), version, fail_points: Mutex::new(BTreeSet::new()) }
    }

    pub(crate) const fn is_fake(&self) -> bool {
        !matches!(self.servers, Servers::One(_) | Servers::Set(_))
    }

    fn fakes(&self) -> Vec<Arc<FakeServer>> {
        match &self.servers {
            Servers::FakeSet(set) => (0..set.servers_count()).map(|member| set.server(member)).collect(),
            Servers::FakeRouters(routers) => routers.servers().to_vec(),
            Servers::FakeBalancer(balancer) => balancer.backends().to_vec(),
            Servers::Fake(server) => vec![Arc::clone(server)],
            Servers::One(_) | Servers::Set(_) => Vec::new(),
        }
    }

    pub(crate) fn start(topology: Topology) -> Result<Self, String> {
        let failed = |error: &dyn core::fmt::Display| error.to_string();
        let members = if topology == Topology::ReplicaSet { 3 } else { 1 };
        let servers = if topology == Topology::Single {
            Servers::One(Box::new(Mongod::start(MongodOptions::default()).map_err(|error| failed(&error))?))
        } else {
            // A busy machine must not cause an election.
            let calm = Duration::from_secs(10);
            let options = MongodReplicaSetOptions {
                members,
                election_timeout: calm,
                heartbeat_timeout: calm,
                ..MongodReplicaSetOptions::default()
            };
            Servers::Set(MongodReplicaSet::start_with(options).map_err(|error| failed(&error))?)
        };
        let mut deployment = Self::of(topology, servers, Vec::new());
        let address = deployment.primary()?.address();
        let services: Vec<_> = (0..2).map(|_| ObjectId::new()).collect();
        let starts = match topology {
            Topology::Single | Topology::ReplicaSet => Vec::new(),
            Topology::Sharded => vec![Vec::new(), Vec::new()],
            Topology::LoadBalanced => vec![services[..1].to_vec(), services],
        };
        for services in starts {
            deployment.routers.push(Router::start(address, services).map_err(|error| failed(&error))?);
        }
        let user = doc! {
            "createUser": "ada", "pwd": "pencil", "roles": ["root"], "writeConcern": deployment.everywhere(),
        };
        deployment.run("admin", user)?;
        let info = deployment.run("admin", doc! { "buildInfo": 1 })?;
        let version = info.get_array("versionArray").map_err(|error| failed(&error))?;
        deployment.version = version.iter().filter_map(matching::integer).take(3).collect();
        Ok(deployment)
    }

    pub(crate) const fn topology(&self) -> Topology {
        self.topology
    }

    fn primary(&self) -> Result<&Mongod, String> {
        match &self.servers {
            Servers::One(server) => Ok(server),
            Servers::Set(set) => Ok(set.member(set.wait_for_primary(SETTLING).map_err(|error| error.to_string())?)),
            _ => Err("the servers are fake".to_owned()),
        }
    }

    /// The address of the fake server that accepts writes.
    fn fake_primary(&self) -> Result<SocketAddr, String> {
        Ok(match &self.servers {
            Servers::FakeSet(set) => set.address(set.primary().ok_or("no primary")?),
            _ => self.fakes().first().ok_or("no fake server")?.address(),
        })
    }

    fn members(&self) -> Vec<&Mongod> {
        match &self.servers {
            Servers::One(server) => vec![server],
            Servers::Set(set) => (0..set.members_count()).map(|member| set.member(member)).collect(),
            _ => Vec::new(),
        }
    }

    /// The addresses that clients may use.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let balancer =
            if let Servers::FakeBalancer(balancer) = &self.servers { Some(balancer.address()) } else { None };
        let members = self.members().into_iter().map(Mongod::address).chain(self.routers.iter().map(Router::address));
        members.chain(self.fakes().iter().map(|server| server.address())).chain(balancer).collect()
    }

    /// Whether the server has these values of its parameters.
    pub(crate) fn has_parameters(&self, wanted: &Document) -> bool {
        let mut get = doc! { "getParameter": 1 };
        get.extend(wanted.keys().map(|name| (name.clone(), Bson::Int32(1))));
        let found = self.run("admin", get).unwrap_or_default();
        wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| matching::is_same(value, found)))
    }

    /// Runs a command of the runner on the server that accepts writes.
    pub(crate) fn run(&self, database: &str, command: Document) -> Result<Document, String> {
        if !self.is_fake() {
            let reply = self.primary()?.run_command_on(database, command.clone());
            return reply.map_err(|error| format!("the runner: {error}: {command}"));
        }
        let failed = |error| format!("the runner: {error}: {command}");
        let mut client = BlockingClient::connect(self.fake_primary()?, SETTLING).map_err(failed)?;
        let reply = client.run(database, command.clone()).map_err(failed)?;
        if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) { Ok(reply) } else { Err(format!("the runner: {reply}")) }
    }

    /// The connection string. The number of routers or services matters to sharded and load-balanced
    /// deployments only.
    pub(crate) fn uri(&self, with_all_routers: bool) -> String {
        match (self.topology, &self.servers) {
            (_, Servers::Fake(server)) => format!("mongodb://{}/?", server.address()),
            (_, Servers::FakeSet(set)) => set.uri(),
            (_, Servers::FakeBalancer(balancer)) => balancer.uri(),
            (_, Servers::FakeRouters(routers)) => routers.uri() + "?",
            (Topology::Sharded, _) => {
                let count = if with_all_routers { 2 } else { 1 };
                let routers: Vec<_> = self.routers.iter().take(count).map(|it| it.address().to_string()).collect();
                format!("mongodb://{}/?", routers.join(","))
            }
            (Topology::LoadBalanced, _) => {
                let router = &self.routers[usize::from(with_all_routers)];
                format!("mongodb://{}/?loadBalanced=true", router.address())
            }
            (_, Servers::Set(set)) => set.uri(),
            (_, Servers::One(server)) => server.uri() + "/?",
        }
    }

    pub(crate) const fn has_relays(&self) -> bool {
        !self.routers.is_empty()
    }

    /// Takes the commands that the relays have seen.
    pub(crate) fn take_sent(&self) -> Vec<(i32, Document)> {
        self.routers.iter().flat_map(Router::take_sent).collect()
    }

    /// The connection string of the server that accepts writes.
    pub(crate) fn direct_uri(&self) -> Result<String, String> {
        if self.is_fake() {
            return Ok(format!("mongodb://{}/?", self.fake_primary()?));
        }
        Ok(self.primary()?.uri() + "/?")
    }

    /// Ends what an earlier test has left: fail points and open transactions.
    pub(crate) fn clean(&self) -> Result<(), String> {
        self.clean_fail_points()?;
        if self.is_fake() {
            return Ok(());
        }
        self.run("admin", doc! { "killAllSessions": [] }).map(drop)
    }

    pub(crate) fn clean_fail_points(&self) -> Result<(), String> {
        for server in self.fakes() {
            server.clear_fail_points();
        }
        let names = core::mem::take(&mut *self.fail_points.lock().unwrap_or_else(PoisonError::into_inner));
        for name in names {
            for member in self.members() {
                let off = doc! { "configureFailPoint": &name, "mode": "off" };
                member.run_command(off).map_err(|error| format!("the runner: {error}"))?;
            }
        }
        Ok(())
    }

    /// Notes that a test sets a fail point.
    pub(crate) fn note_fail_point(&self, point: &Document) {
        let name = point.get_str("configureFailPoint").unwrap_or_default().to_owned();
        self.fail_points.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    /// Removes a collection if it exists.
    pub(crate) fn remove(&self, database: &str, collection: &str) -> Result<(), String> {
        match self.run(database, doc! { "drop": collection, "writeConcern": self.everywhere() }) {
            Err(error) if !error.contains("ns not found") => Err(error),
            _ => Ok(()),
        }
    }

    /// The write concern of all members, and of their journals: a snapshot is of what a majority has there.
    fn everywhere(&self) -> Document {
        doc! { "w": i32::try_from(self.members().len()).unwrap_or(1).max(1), "j": true }
    }

    /// Replaces the collections that a test needs.
    pub(crate) fn fill(&self, data: &[Bson]) -> Result<(), String> {
        let everywhere = self.everywhere();
        for part in data.iter().filter_map(Bson::as_document) {
            let text = |name: &str| part.get_str(name).map_err(|error| format!("initialData: {error}"));
            let (collection, database) = (text("collectionName")?, text("databaseName")?);
            let documents = part.get_array("documents").cloned().unwrap_or_default();
            if !self.is_fake() {
                self.remove(database, collection)?;
            }
            if documents.is_empty() && !self.is_fake() || part.contains_key("createOptions") {
                let mut create = doc! { "create": collection };
                create.extend(part.get_document("createOptions").cloned().unwrap_or_default());
                create.insert("writeConcern", everywhere.clone());
                self.run(database, create)?;
            }
            if !documents.is_empty() {
                let insert = doc! { "insert": collection, "documents": documents, "writeConcern": everywhere.clone() };
                let reply = self.run(database, insert)?;
                if reply.contains_key("writeErrors") {
                    return Err(format!("the runner: {reply}"));
                }
            }
        }
        Ok(())
    }

    /// The documents of a collection, by `_id`.
    pub(crate) fn documents(&self, database: &str, collection: &str) -> Result<Vec<Bson>, String> {
        let mut find = doc! { "find": collection, "batchSize": 1_000, "readConcern": { "level": "local" } };
        if !self.is_fake() {
            find.insert("sort", doc! { "_id": 1 });
        }
        let reply = self.run(database, find)?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        batch.cloned().map_err(|error| format!("{error}: {reply}"))
    }
}

/// Deployments that several tests share, each used by one test at a time.
pub(crate) struct Shared {
    topology: Topology,
    /// Each test has fake servers of its own.
    pub(crate) is_fake: bool,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    idle: Vec<Arc<Deployment>>,
    /// How many more may be started.
    left: usize,
}

impl Shared {
    pub(crate) const fn new(topology: Topology, is_fake: bool, count: usize) -> Self {
        Self { topology, is_fake, state: Mutex::new(State { idle: Vec::new(), left: count }), freed: Condvar::new() }
    }

    /// Runs a test on a deployment that is free, or on one more.
    pub(crate) fn with<T>(&self, test: impl FnOnce(Arc<Deployment>) -> T) -> Result<T, String> {
        if self.is_fake {
            return Ok(test(Arc::new(Deployment::start_fake(self.topology)?)));
        }
        let deployment = match self.take() {
            Some(deployment) => deployment,
            None => Arc::new(Deployment::start(self.topology).inspect_err(|_| self.give_up())?),
        };
        let result = test(Arc::clone(&deployment));
        self.state.lock().unwrap_or_else(PoisonError::into_inner).idle.push(deployment);
        self.freed.notify_one();
        Ok(result)
    }

    /// Waits for a deployment that is free; `None` if one more may be started.
    fn take(&self) -> Option<Arc<Deployment>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(deployment) = state.idle.pop() {
                return Some(deployment);
            }
            if state.left > 0 {
                state.left -= 1;
                return None;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A deployment was not started. Another test may try again.
    fn give_up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).left += 1;
        self.freed.notify_one();
    }

    /// Ends the servers.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).idle.clear();
    }
}
