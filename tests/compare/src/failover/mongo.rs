//! MongoDB: a replica set, and clients that insert documents.

use super::Deployment;
use super::load::{self, Store};
use crate::process::RealServer;
use core::time::Duration;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions as DriverOptions;
use poolhouse_smol::{Client, ClientOptions, Cursor, Error};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Instant;

const SET: &str = "rs0";
const DATABASE: &str = "compare";
const COLLECTION: &str = "writes";
/// The limit of a command of the harness.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
const ELECTION_LIMIT: Duration = Duration::from_secs(60);
const SETTLING_LIMIT: Duration = Duration::from_secs(90);

struct ReplicaSet {
    servers: Vec<RealServer>,
    /// A client of each member.
    members: Vec<Client>,
}

/// Starts a replica set with an empty collection.
pub(super) fn start() -> Result<Box<dyn Deployment>, String> {
    let servers = RealServer::mongod_set(SET, 3)?;
    let member = |server: &RealServer| {
        let options = ClientOptions::new(server.address.to_string()).direct_connection(true).timeout(COMMAND_LIMIT);
        Client::with_options(options).map_err(|error| error.to_string())
    };
    let members = servers.iter().map(member).collect::<Result<_, _>>()?;
    let mut set = ReplicaSet { servers, members };
    let hosts = set.servers.iter().zip(0..).map(|(server, id)| doc! { "_id": id, "host": server.address.to_string() });
    let settings = doc! { "electionTimeoutMillis": 5_000, "heartbeatIntervalMillis": 500, "heartbeatTimeoutSecs": 2 };
    let config = doc! { "_id": SET, "members": hosts.collect::<Vec<_>>(), "settings": settings };
    set.run(0, doc! { "replSetInitiate": config })?;
    set.settle()?;
    let primary = set.victim()?;
    let index = doc! { "key": { "client": 1, "id": 1 }, "name": "write" };
    let indexes = doc! { "createIndexes": COLLECTION, "indexes": [index], "writeConcern": { "w": "majority" } };
    let reply = smol::block_on(set.members[primary].run_command(DATABASE, indexes));
    reply.map_err(|error| error.to_string())?;
    Ok(Box::new(set))
}

impl ReplicaSet {
    fn run(&self, member: usize, command: Document) -> Result<Document, String> {
        let reply = smol::block_on(self.members[member].run_command("admin", command));
        reply.map_err(|error| format!("{}: {error}", self.servers[member].address))
    }

    fn is(&self, member: usize, field: &str) -> bool {
        let reply = self.run(member, doc! { "hello": 1 });
        reply.is_ok_and(|reply| reply.get_bool(field).unwrap_or(false))
    }

    /// Waits until one of these members is primary.
    fn primary_of(&self, members: &[usize]) -> Result<usize, String> {
        wait(ELECTION_LIMIT, "no member is primary", || {
            members.iter().copied().find(|&member| self.is(member, "isWritablePrimary"))
        })
    }

    /// Returns whether one member is primary, and the others have all of its writes and can be elected.
    fn is_settled(&self) -> Result<(), String> {
        let primary = self.primary_of(&[0, 1, 2])?;
        for member in (0..3).filter(|&member| member != primary) {
            if !self.is(member, "secondary") {
                return Err(format!("member {member} is not a secondary"));
            }
            self.run(member, doc! { "replSetFreeze": 0 })?;
        }
        let everywhere = doc! { "w": 3, "wtimeout": 4_000 };
        let note = doc! { "appendOplogNote": 1, "data": { "settled": 1 }, "writeConcern": everywhere };
        self.run(primary, note).map(drop)
    }
}

fn wait<T>(limit: Duration, what: &str, mut found: impl FnMut() -> Option<T>) -> Result<T, String> {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = found() {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(format!("{what} after {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Deployment for ReplicaSet {
    fn servers(&mut self) -> &mut [RealServer] {
        &mut self.servers
    }

    fn contact(&self) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|server| server.address.to_string()).collect();
        format!("mongodb://{}/?replicaSet={SET}&w=majority&readConcernLevel=majority", hosts.join(","))
    }

    fn victim(&mut self) -> Result<usize, String> {
        self.primary_of(&[0, 1, 2])
    }

    fn successor(&mut self, of: usize) -> Result<Option<usize>, String> {
        let others: Vec<usize> = (0..3).filter(|&member| member != of).collect();
        self.primary_of(&others).map(Some)
    }

    fn retire(&mut self, server: usize) -> Result<bool, String> {
        let command = doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 8 };
        self.run(server, command).map(|_| false)
    }

    fn settle(&mut self) -> Result<(), String> {
        let mut why = String::new();
        let settled = wait(SETTLING_LIMIT, "the set has not settled", || match self.is_settled() {
            Ok(()) => Some(()),
            Err(error) => {
                why = error;
                None
            }
        });
        settled.map_err(|error| format!("{error}: {why}"))
    }

    fn stored(&mut self) -> Result<HashMap<(String, i64), u64>, String> {
        let primary = self.victim()?;
        smol::block_on(stored(&self.members[primary])).map_err(|error| error.to_string())
    }
}

async fn stored(primary: &Client) -> Result<HashMap<(String, i64), u64>, Error> {
    let find = doc! {
        "find": COLLECTION, "projection": { "_id": 0, "client": 1, "id": 1 }, "readConcern": { "level": "majority" },
    };
    let mut writes: Cursor<Write> = primary.database(DATABASE).run_cursor_command(find).await?;
    let mut stored = HashMap::new();
    while let Some(Write { client, id }) = writes.try_next().await? {
        *stored.entry((client, id)).or_default() += 1;
    }
    Ok(stored)
}

/// A stored write.
#[derive(Deserialize, Serialize)]
struct Write {
    client: String,
    id: i64,
}

/// The main function of a client's process.
pub(super) fn run(name: &str, uri: &str) -> ! {
    let is_best = name.ends_with("-best");
    if name.starts_with("mongo-official") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let store = runtime.block_on(Official::connect(name, uri, is_best));
        load::run(name, store, |work| drop(runtime.spawn(work)))
    } else {
        let store = smol::block_on(Poolhouse::connect(name, uri, is_best));
        load::run(name, store, |work| smol::spawn(work).detach())
    }
}

/// The best options: see the notes of the section.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct Poolhouse {
    client: Client,
    name: String,
}

impl Poolhouse {
    async fn connect(name: &str, uri: &str, is_best: bool) -> Self {
        let mut options = ClientOptions::parse(uri).expect("a connection string");
        if is_best {
            options =
                options.heartbeat_frequency(HEARTBEAT_FREQUENCY).connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT);
        }
        let client = Client::with_options(options).expect("valid options");
        client.warm_up(TIMEOUT).await.expect("a primary");
        Self { client, name: name.to_owned() }
    }
}

impl Store for Poolhouse {
    async fn write(&self, id: i64) -> Result<(), String> {
        let write = doc! { "client": &*self.name, "id": id };
        let concern = self.client.options().write_concern.to_document();
        let insert = doc! { "insert": COLLECTION, "documents": [write], "writeConcern": concern };
        self.client.run_command(DATABASE, insert).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let write = doc! { "client": &*self.name, "id": id };
        let concern = doc! { "level": "majority" };
        let find =
            doc! { "find": COLLECTION, "filter": write, "limit": 1, "singleBatch": true, "readConcern": concern };
        let reply = self.client.run_command(DATABASE, find).await.map_err(|error| error.to_string())?;
        let found = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        found.map(|found| !found.is_empty()).map_err(|error| error.to_string())
    }

    async fn sleep(&self, time: Duration) {
        smol::Timer::after(time).await;
    }
}

#[derive(Clone)]
struct Official {
    writes: Collection<Write>,
    name: String,
}

impl Official {
    async fn connect(name: &str, uri: &str, is_best: bool) -> Self {
        let mut options = DriverOptions::parse(uri).await.expect("a connection string");
        if is_best {
            options.heartbeat_freq = Some(HEARTBEAT_FREQUENCY);
            options.connect_timeout = Some(CONNECT_TIMEOUT);
            options.server_selection_timeout = Some(TIMEOUT);
        }
        let client = mongodb::Client::with_options(options).expect("valid options");
        client.database("admin").run_command(doc! { "ping": 1 }).await.expect("a primary");
        Self { writes: client.database(DATABASE).collection(COLLECTION), name: name.to_owned() }
    }
}

impl Store for Official {
    async fn write(&self, id: i64) -> Result<(), String> {
        let write = Write { client: self.name.clone(), id };
        self.writes.insert_one(write).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, id: i64) -> Result<bool, String> {
        let write = doc! { "client": &*self.name, "id": id };
        let found = self.writes.find_one(write).await;
        found.map(|found| found.is_some()).map_err(|error| error.to_string())
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
