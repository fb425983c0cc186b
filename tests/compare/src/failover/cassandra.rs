//! Cassandra: a cluster, and clients that insert rows.

use super::Deployment;
use super::load::{self, Store};
use crate::process::RealServer;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_smol::mux::cql::Consistency;
use poolhouse_smol::mux::{MuxOptions, Reply, Session, SessionOptions, Statement};
use scylla::client::session::Session as ScyllaSession;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency as ScyllaConsistency;
use scylla::statement::prepared::PreparedStatement;
use std::collections::HashMap;
use std::time::Instant;

const NODES: u8 = 3;
/// The node that clients connect to first, and to which incidents happen.
const CONTACT: usize = 1;
const TABLE: &str = "compare.writes";
const SETTLING_LIMIT: Duration = Duration::from_secs(90);

struct Cluster {
    nodes: Vec<RealServer>,
    judge: Session,
}

/// Starts a cluster with an empty table.
pub(super) fn start() -> Result<Box<dyn Deployment>, String> {
    let nodes = RealServer::cassandra_cluster(NODES)?;
    let options = SessionOptions::contact_points([nodes[0].address.to_string()]);
    let judge = Session::new(options.schema_agreement(Duration::from_secs(30)));
    let judge = judge.map_err(|error| error.to_string())?;
    smol::block_on(create_table(&judge))?;
    Ok(Box::new(Cluster { nodes, judge }))
}

async fn create_table(judge: &Session) -> Result<(), String> {
    for text in [
        "CREATE KEYSPACE compare WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE TABLE compare.writes (client text, id bigint, at timeuuid, PRIMARY KEY ((client, id), at))",
    ] {
        judge.query(text).consistency(Consistency::All).send().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl Deployment for Cluster {
    fn servers(&mut self) -> &mut [RealServer] {
        &mut self.nodes
    }

    fn contact(&self) -> String {
        self.nodes[CONTACT].address.to_string()
    }

    fn victim(&mut self) -> Result<usize, String> {
        Ok(CONTACT)
    }

    fn successor(&mut self, _: usize) -> Result<Option<usize>, String> {
        Ok(None)
    }

    fn retire(&mut self, server: usize) -> Result<bool, String> {
        self.nodes[server].nodetool("drain").map(|()| true)
    }

    fn settle(&mut self) -> Result<(), String> {
        let until = Instant::now() + SETTLING_LIMIT;
        // The session sends each request to another node, which must count all others as up.
        let mut in_turn = 0;
        while in_turn < 2 * self.nodes.len() {
            let text = format!("SELECT id FROM {TABLE} WHERE client = 'judge' AND id = 0");
            match smol::block_on(self.judge.query(&text).consistency(Consistency::All).send()) {
                Ok(_) => in_turn += 1,
                Err(error) if Instant::now() > until => return Err(format!("the cluster has not settled: {error}")),
                Err(_) => {
                    in_turn = 0;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        Ok(())
    }

    fn stored(&mut self) -> Result<HashMap<(String, i64), u64>, String> {
        smol::block_on(async {
            let text = format!("SELECT client, id FROM {TABLE}");
            let mut rows = self.judge.query(&text).consistency(Consistency::Quorum).rows();
            let mut stored = HashMap::new();
            while let Some(write) = rows.next_row().await {
                *stored.entry(write.map_err(|error| error.to_string())?).or_default() += 1;
            }
            Ok(stored)
        })
    }
}

/// The main function of a client's process.
pub(super) fn run(name: &str, contact: &str) -> ! {
    let contact = contact.parse().expect("an address");
    let is_best = name.ends_with("-best");
    if name.starts_with("cql-scylla") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let store = runtime.block_on(Scylla::connect(name, contact, is_best));
        load::run(name, store, |work| drop(runtime.spawn(work)))
    } else {
        let store = smol::block_on(Poolhouse::connect(name, contact, is_best));
        load::run(name, store, |work| smol::spawn(work).detach())
    }
}

/// The best options, beside idempotent statements.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

fn texts() -> [String; 2] {
    [
        // Each execution adds a row.
        format!("INSERT INTO {TABLE} (client, id, at) VALUES (?, ?, now())"),
        format!("SELECT id FROM {TABLE} WHERE client = ? AND id = ? LIMIT 1"),
    ]
}

#[derive(Clone)]
struct Poolhouse {
    session: Session,
    name: String,
    write: Statement,
    read: Statement,
    idempotent: bool,
}

impl Poolhouse {
    async fn connect(name: &str, contact: SocketAddr, is_best: bool) -> Self {
        let mut options = SessionOptions::contact_points([contact.to_string()]);
        if is_best {
            let (heartbeat_interval, heartbeat_timeout) = (HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT);
            options = options.mux(MuxOptions { heartbeat_interval, heartbeat_timeout, ..MuxOptions::DEFAULT });
        }
        let session = Session::new(options).expect("valid options");
        let [write, read] = texts();
        let write = session.prepare(&write).await.expect("a statement");
        let read = session.prepare(&read).await.expect("a statement");
        Self { session, name: name.to_owned(), write, read, idempotent: is_best }
    }

    async fn execute(&self, statement: &Statement, id: i64) -> Result<Reply, String> {
        let call = self.session.execute(statement, &(&*self.name, id)).consistency(Consistency::Quorum);
        let reply = call.idempotent(self.idempotent).send().await;
        reply.map_err(|error| error.to_string())
    }
}

impl Store for Poolhouse {
    async fn write(&self, id: i64) -> Result<(), String> {
        self.execute(&self.write, id).await.map(drop)
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let reply = self.execute(&self.read, id).await?;
        let row: Option<(i64,)> = reply.one().map_err(|error| error.to_string())?;
        Ok(row == Some((id,)))
    }

    async fn sleep(&self, time: Duration) {
        smol::Timer::after(time).await;
    }
}

#[derive(Clone)]
struct Scylla {
    session: Arc<ScyllaSession>,
    name: String,
    write: PreparedStatement,
    read: PreparedStatement,
}

impl Scylla {
    async fn connect(name: &str, contact: SocketAddr, is_best: bool) -> Self {
        let mut building = SessionBuilder::new().known_node_addr(contact);
        if is_best {
            building = building.keepalive_interval(HEARTBEAT_INTERVAL).keepalive_timeout(HEARTBEAT_TIMEOUT);
        }
        let session = building.build().await.expect("a session");
        let [mut write, mut read] = texts().map(scylla::statement::Statement::new);
        for statement in [&mut write, &mut read] {
            statement.set_is_idempotent(is_best);
            statement.set_consistency(ScyllaConsistency::Quorum);
        }
        let write = session.prepare(write).await.expect("a statement");
        let read = session.prepare(read).await.expect("a statement");
        Self { session: Arc::new(session), name: name.to_owned(), write, read }
    }
}

impl Store for Scylla {
    async fn write(&self, id: i64) -> Result<(), String> {
        let reply = self.session.execute_unpaged(&self.write, (&*self.name, id)).await;
        reply.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let reply = self.session.execute_unpaged(&self.read, (&*self.name, id)).await;
        let rows = reply.map_err(|error| error.to_string())?.into_rows_result().map_err(|error| error.to_string())?;
        let row: Option<(i64,)> = rows.maybe_first_row().map_err(|error| error.to_string())?;
        Ok(row == Some((id,)))
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
