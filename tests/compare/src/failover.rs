//! Clients of a real Cassandra cluster of three nodes, of which each in turn is killed and started
//! again: failed operations, acknowledged writes that were lost, and the times without a success.
//!
//! Each client runs in a process of its own, at the same time as the others. The judge reads the table
//! after the end and compares it with the writes that each client has acknowledged.

mod stores;

use crate::process::{RealServer, lines, this};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use poolhouse_smol::mux::cql::{Consistency, Parameters};
use poolhouse_smol::mux::{Session, SessionOptions};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Instant;

pub(crate) use stores::run as run_store;

/// The clients by name. The last one is planted: the judge must find the write that it loses.
const CLIENTS: [(&str, &str); 3] = [
    ("poolhouse", "poolhouse-smol"),
    ("scylla", "scylla on tokio"),
    ("planted", "planted: acknowledges a write that it has not sent"),
];

const NODES: u8 = 3;
const TABLE: &str = "compare.writes";
/// How long a client may take to connect, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client may take to connect to a node that has returned.
const RETURN_LIMIT: Duration = Duration::from_secs(90);

/// What a client has done.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    acknowledged: Vec<i64>,
    reads: u64,
    failed_writes: u64,
    failed_reads: u64,
    /// Reads that did not find an acknowledged write.
    missing: u64,
    /// The longest time without a success of any task.
    gap_ms: f64,
    /// The longest time of an operation, also of one that has not ended.
    slowest_ms: f64,
    /// The first error.
    error: Option<String>,
}

/// A client's process. It ends with this value.
struct Client {
    name: &'static str,
    title: &'static str,
    child: Child,
    lines: Receiver<String>,
    /// Milliseconds from the return of each node to a connection of this client; NaN without one.
    returns: Vec<f64>,
}

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let mut section = Section::new("failover");
    let title = "Cassandra, three nodes, each killed for 5 s in turn, 64 tasks, QUORUM";
    let columns = [
        "writes",
        "reads",
        "failed writes",
        "failed reads",
        "lost",
        "not read",
        "longest gap, ms",
        "slowest, ms",
        "longest return, ms",
    ];
    let mut table = Table::new(title, &columns);
    if let Err(why) = measure(settings, &mut table, &mut section) {
        table.skip("all clients", why);
    }
    section.tables.push(table);
    section.note("Lost: acknowledged writes that the judge does not find in the end. Not read: reads at QUORUM that did not find a write that was acknowledged before.");
    section.note("A gap is a time without a success of any of the 64 tasks. A return is the time from a node listening again to an established connection of the client, found in the system's tables, which are read every 5 ms or more; the longest of the three.");
    section.note("All statements are prepared and marked as idempotent; other options are the defaults of the clients. The clients run at the same time, so they share the machine and the cluster, and their rates are no measurements.");
    section
}

/// No part of this section runs in a worker.
pub(crate) fn part(_: &str, _: usize, _: Option<SocketAddr>, _: &Settings) -> Option<Section> {
    None
}

fn measure(settings: &Settings, table: &mut Table, section: &mut Section) -> Result<(), String> {
    let mut nodes = RealServer::cassandra_cluster(NODES)?;
    let judge = Session::new(SessionOptions::contact_points([nodes[0].address.to_string()]));
    let judge = judge.map_err(|error| error.to_string())?;
    smol::block_on(create_table(&judge))?;
    let contact = nodes[1].address;
    let mut clients: Vec<Client> =
        CLIENTS.into_iter().map(|(name, title)| Client::start(name, title, contact)).collect::<Result<_, _>>()?;
    let pause = Duration::from_secs(settings.of(2, 15) as u64);
    for node in &mut nodes {
        std::thread::sleep(pause);
        node.kill();
        std::thread::sleep(Duration::from_secs(5));
        node.restart()?;
        let begun = Instant::now();
        let mut waiting: Vec<_> = clients.iter_mut().collect();
        while !waiting.is_empty() {
            waiting.retain_mut(|client| {
                let is_connected = client.is_connected_to(node.address);
                if is_connected {
                    client.returns.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                !is_connected
            });
            if begun.elapsed() > RETURN_LIMIT {
                waiting.drain(..).for_each(|client| client.returns.push(f64::NAN));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    std::thread::sleep(pause);
    let outcomes: Vec<_> = clients.iter_mut().map(Client::end).collect();
    for (client, outcome) in clients.iter().zip(outcomes) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => {
                table.skip(client.title, why);
                continue;
            }
        };
        let found = smol::block_on(found(&judge, client.name))?;
        let lost: Vec<i64> = outcome.acknowledged.iter().copied().filter(|id| !found.contains(id)).collect();
        if client.name == "planted" && !lost.contains(&stores::LOST) {
            return Err("the judge did not find the write that the planted client loses".to_owned());
        }
        let longest_return = client.returns.iter().copied().max_by(f64::total_cmp).unwrap_or(f64::NAN);
        let figures = [
            outcome.acknowledged.len() as f64,
            outcome.reads as f64,
            outcome.failed_writes as f64,
            outcome.failed_reads as f64,
            lost.len() as f64,
            outcome.missing as f64,
            outcome.gap_ms,
            outcome.slowest_ms,
            longest_return,
        ];
        table.row(client.title, &figures);
        let returns: Vec<String> = client.returns.iter().map(|ms| format!("{ms:.0} ms")).collect();
        section.note(format!("{}: returns of the nodes {}.", client.title, returns.join(", ")));
        if let Some(error) = outcome.error {
            section.note(format!("{}: the first error: {error}.", client.title));
        }
    }
    smol::block_on(judge.close());
    Ok(())
}

async fn create_table(judge: &Session) -> Result<(), String> {
    for text in [
        "CREATE KEYSPACE compare WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
        "CREATE TABLE compare.writes (client text, id bigint, PRIMARY KEY ((client, id)))",
    ] {
        judge.query(text, Consistency::All).await.map_err(|error| error.to_string())?;
        judge.schema_agreement(Duration::from_secs(30)).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the writes of a client that are in the table.
async fn found(judge: &Session, name: &str) -> Result<HashSet<i64>, String> {
    let mut pages =
        judge.pages(&*format!("SELECT client, id FROM {TABLE}"), Parameters::new(Consistency::Quorum), None);
    let mut found = HashSet::new();
    while let Some(page) = pages.next_page().await {
        let page = page.map_err(|error| error.to_string())?;
        let rows: Vec<(String, i64)> = page.rows_as().map_err(|error| error.to_string())?;
        found.extend(rows.into_iter().filter(|(client, _)| client == name).map(|(_, id)| id));
    }
    Ok(found)
}

impl Client {
    /// Starts a client, and waits until it is connected.
    fn start(name: &'static str, title: &'static str, contact: SocketAddr) -> Result<Self, String> {
        let mut command = this();
        command.args(["store", name, &contact.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let lines = lines(child.stdout.take().ok_or("no standard output")?);
        let client = Self { name, title, child, lines, returns: Vec::new() };
        let line = client.lines.recv_timeout(PATIENCE);
        if line.is_ok_and(|line| line == "ready") { Ok(client) } else { Err(format!("{title} did not connect")) }
    }

    /// Whether the process has an established connection to this address.
    fn is_connected_to(&self, server: SocketAddr) -> bool {
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).into_iter().flatten().flatten();
        let sockets = sockets.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let sockets: HashSet<String> = sockets.map(|link| link.display().to_string()).collect();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        let IpAddr::V4(ip) = server.ip() else { return false };
        // As the table has it: the bytes of the address from the last to the first.
        let remote = format!("{:08X}:{:04X}", u32::from_le_bytes(ip.octets()), server.port());
        table.lines().any(|line| {
            const ESTABLISHED: &str = "01";
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, address, ESTABLISHED, _, _, _, _, _, inode, ..] = fields[..] else { return false };
            address == remote && sockets.contains(&format!("socket:[{inode}]"))
        })
    }

    /// Ends the client. Returns what it has done.
    fn end(&mut self) -> Result<Outcome, String> {
        drop(self.child.stdin.take());
        let text = self.lines.recv_timeout(PATIENCE).map_err(|error| format!("no outcome: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("not an outcome: {error}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
