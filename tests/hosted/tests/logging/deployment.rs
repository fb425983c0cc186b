//! The fake deployment that a test runs on.

use bson::Document;
use core::time::Duration;
use poolhouse_tests::fake::mongoses::FakeMongoses;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{BlockingClient, FakeOptions, FakeServer};
use serde_json::Value;

/// Upper bound of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) enum Deployment {
    Single(FakeServer),
    Set(Box<FakeReplicaSet>),
    Sharded(FakeMongoses),
}

impl Deployment {
    /// The first available kind of deployment that the file requests; the reason if none is
    /// available.
    pub(crate) fn start(file: &Value, test: &Value) -> Result<Result<Self, String>, String> {
        let mut kinds: Vec<&str> = Vec::new();
        for requirement in [file, test].iter().filter_map(|part| part["runOnRequirements"].as_array()).flatten() {
            if requirement["auth"] == true {
                return Ok(Err("the test requires a server with authentication".into()));
            }
            kinds.extend(requirement["topologies"].as_array().into_iter().flatten().filter_map(Value::as_str));
        }
        if kinds.is_empty() {
            kinds.push("single");
        }
        for kind in &kinds {
            return match *kind {
                "single" => FakeServer::start(FakeOptions::default()).map(Self::Single),
                "replicaset" => {
                    FakeReplicaSet::start(FakeReplicaSetOptions::default()).map(|set| Self::Set(Box::new(set)))
                }
                "sharded" | "sharded-replicaset" => FakeMongoses::start(2).map(Self::Sharded),
                _ => continue,
            }
            .map(Ok)
            .map_err(|error| error.to_string());
        }
        Ok(Err(format!("no fake deployment of the kinds {kinds:?}")))
    }

    /// The connection string without options, to all routers or to one.
    pub(crate) fn uri(&self, all_routers: bool) -> String {
        match self {
            Self::Single(server) => server.uri(),
            Self::Set(set) => set.uri(),
            Self::Sharded(routers) if all_routers => routers.uri(),
            Self::Sharded(routers) => routers.server(0).uri(),
        }
    }

    /// Runs a command without the client: fail points.
    pub(crate) fn run(&self, command: Document) -> Result<(), String> {
        let address = match self {
            Self::Single(server) => server.address(),
            Self::Set(set) => set.address(set.wait_for_primary(PATIENCE).map_err(|error| error.to_string())?),
            Self::Sharded(routers) => routers.server(0).address(),
        };
        let mut client = BlockingClient::connect(address, PATIENCE).map_err(|error| error.to_string())?;
        let reply = client.run("admin", command).map_err(|error| error.to_string())?;
        if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) { Ok(()) } else { Err(format!("refused: {reply}")) }
    }
}
