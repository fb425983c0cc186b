//! The deployments that a scenario runs on, and what the harness does to them without the client.

use crate::file::{Scenario, Topology};
use bson::{Bson, Document, doc};
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_tests::fake::replica_set::{FakeReplicaSet, FakeReplicaSetOptions};
use poolhouse_tests::fake::{BlockingClient, FakeOptions, FakeServer};
use poolhouse_tests::mongod::{Mongod, MongodOptions, MongodReplicaSet, MongodReplicaSetOptions};
use poolhouse_tests::patience::PATIENCE;

/// The application name of the clients under test. Fail points do not affect the harness.
pub(crate) const APP_NAME: &str = "scenarios";

/// Time limit until a set has a primary and all members have its last write.
const SETTLING: Duration = Duration::from_secs(60);

/// The genuine servers, started by the first scenario that needs them.
#[derive(Default)]
pub(crate) struct Genuine {
    set: Option<MongodReplicaSet>,
    standalone: Option<Mongod>,
}

pub(crate) enum Deployment<'a> {
    FakeSet(Box<FakeReplicaSet>),
    Fake(FakeServer),
    Set(&'a MongodReplicaSet),
    Standalone(&'a Mongod),
}

/// Returns the reply to a command of the harness, which must succeed.
fn run(address: SocketAddr, database: &str, command: Document) -> Result<Document, String> {
    let failed = |error| format!("the harness: {error}: {command}");
    let mut client = BlockingClient::connect(address, SETTLING).map_err(failed)?;
    let reply = client.run(database, command.clone()).map_err(failed)?;
    let is_ok = reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && !reply.contains_key("writeErrors");
    if is_ok { Ok(reply) } else { Err(format!("the harness: {reply}: {command}")) }
}

impl<'a> Deployment<'a> {
    /// Starts fake servers.
    pub(crate) fn fake(scenario: &Scenario) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let deployment = match scenario.topology {
            Topology::Set => {
                let set = FakeReplicaSet::start(FakeReplicaSetOptions::of(3).by_hand()).map_err(failed)?;
                Self::FakeSet(Box::new(set))
            }
            Topology::Standalone => Self::Fake(FakeServer::start(FakeOptions::default()).map_err(failed)?),
        };
        if let Self::FakeSet(set) = &deployment {
            for member in 0..3 {
                let server = set.server(member);
                let mut state = server.state();
                state.cluster_time = Some((50, 1));
                server.set_state(state);
            }
        }
        deployment.fill(scenario)?;
        Ok(deployment)
    }

    /// Starts the genuine servers if they do not run, and removes the traces of earlier scenarios.
    pub(crate) fn genuine(scenario: &Scenario, genuine: &'a mut Option<Genuine>) -> Result<Self, String> {
        let Genuine { set, standalone } = genuine.get_or_insert_default();
        let deployment = match scenario.topology {
            Topology::Set => Self::started_set(set)?,
            Topology::Standalone => {
                if standalone.is_none() {
                    *standalone = Some(Mongod::start(MongodOptions::default()).map_err(|error| error.to_string())?);
                }
                Self::Standalone(standalone.as_ref().ok_or("a server")?)
            }
        };
        for address in deployment.addresses()? {
            run(address, "admin", doc! { "configureFailPoint": "failCommand", "mode": "off" })?;
            run(address, "admin", doc! { "killAllSessions": [] })?;
        }
        run(deployment.primary()?, "db", doc! { "dropDatabase": 1, "writeConcern": { "w": "majority" } })?;
        deployment.fill(scenario)?;
        Ok(deployment)
    }

    /// Starts the genuine set if it does not run.
    pub(crate) fn genuine_set(genuine: &'a mut Option<Genuine>) -> Result<Self, String> {
        Self::started_set(&mut genuine.get_or_insert_default().set)
    }

    fn started_set(set: &'a mut Option<MongodReplicaSet>) -> Result<Self, String> {
        if set.is_none() {
            // A busy machine must not cause an election.
            let calm = Duration::from_secs(10);
            let options = MongodReplicaSetOptions {
                election_timeout: calm,
                heartbeat_timeout: calm,
                ..MongodReplicaSetOptions::default()
            };
            *set = Some(MongodReplicaSet::start_with(options).map_err(|error| error.to_string())?);
        }
        let set = set.as_ref().ok_or("a set")?;
        set.wait_for_primary(SETTLING).map_err(|error| error.to_string())?;
        Ok(Self::Set(set))
    }

    /// Writes the documents of the scenario.
    fn fill(&self, scenario: &Scenario) -> Result<(), String> {
        if scenario.data.is_empty() {
            return Ok(());
        }
        let majority = doc! { "w": "majority" };
        let insert = doc! { "insert": "c", "documents": scenario.data.clone(), "writeConcern": majority };
        run(self.primary()?, "db", insert).map(drop)
    }

    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        Ok(match self {
            Self::FakeSet(set) => (0..3).map(|member| set.server(member).address()).collect(),
            Self::Fake(server) => vec![server.address()],
            Self::Set(set) => (0..set.members_count()).map(|member| set.member(member).address()).collect(),
            Self::Standalone(server) => vec![server.address()],
        })
    }

    /// The server that accepts writes.
    pub(crate) fn primary(&self) -> Result<SocketAddr, String> {
        let index = match self {
            Self::FakeSet(set) => set.primary().ok_or("no primary")?,
            Self::Set(set) => set.wait_for_primary(SETTLING).map_err(|error| error.to_string())?,
            Self::Fake(_) | Self::Standalone(_) => 0,
        };
        Ok(self.addresses()?[index])
    }

    /// The connection string, with options.
    pub(crate) fn uri(&self, options: &Document) -> String {
        let mut uri = match self {
            Self::FakeSet(set) => set.uri(),
            Self::Set(set) => set.uri(),
            Self::Fake(server) => server.uri(),
            Self::Standalone(server) => server.uri() + "/",
        };
        uri.push(if uri.contains('?') { '&' } else { '?' });
        uri += &format!("appName={APP_NAME}&heartbeatFrequencyMS=500");
        for (name, value) in options {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            uri += &format!("&{name}={value}");
        }
        uri
    }

    pub(crate) fn set_fail_point(&self, data: &Document, times: i64) -> Result<(), String> {
        let mut data = data.clone();
        data.insert("appName", APP_NAME);
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        run(self.primary()?, "admin", point).map(drop)
    }

    /// The documents of `db.c`, without those of open transactions.
    pub(crate) fn documents(&self) -> Result<Vec<Bson>, String> {
        let reply = run(self.primary()?, "db", doc! { "find": "c", "batchSize": 1_000 })?;
        let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        batch.cloned().map_err(|error| format!("{error}: {reply}"))
    }

    /// Returns an error unless this holds within the time limit of waits.
    pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
        let begun = std::time::Instant::now();
        while !condition() {
            if begun.elapsed() > PATIENCE {
                return Err(format!("condition not met in time: {what}"));
            }
            smol::Timer::after(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}
