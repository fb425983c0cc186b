//! A client of MongoDB and a replica set of three members.

use crate::chaos::Members;
use crate::detour::{DRIVER_NAME, Detour};
use crate::load::{DEADLINE, Database, Failed, Insert, Row};
use crate::soak::{Failure, Subject};
use bson::{Bson, Document, doc};
use core::net::SocketAddr;
use core::time::Duration;
use poolhouse_smol::poolhouse_client::Client;
use poolhouse_smol::poolhouse_driver::{OperationError, Subscribers};
use poolhouse_smol::{ClientOptions, CommandOptions, Error};
use poolhouse_tests::mongod::{Mongod, MongodError, MongodReplicaSet};

const DATABASE: &str = "soak";
const COLLECTION: &str = "documents";
/// Time limit for the set to recover from all incidents.
const SETTLING: Duration = Duration::from_secs(90);
const MAX_IDLE: Duration = Duration::from_secs(5);

impl Members for MongodReplicaSet {
    const HAS_FEW_CONNECTIONS: bool = false;

    fn settle(&self) -> Result<usize, Failure> {
        Ok(Self::settle(self, SETTLING)?)
    }

    fn leave(&mut self, _: usize) -> Result<(), Failure> {
        match self.step_down(3) {
            // The primary refuses while a secondary lags behind, and closes the connections of some
            // callers.
            Ok(_) | Err(MongodError::Command { .. } | MongodError::Io { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn kill(&mut self, member: usize) -> Result<(), Failure> {
        Ok(self.kill9(member)?)
    }

    fn stop(&mut self, member: usize) -> Result<(), Failure> {
        Ok(Self::stop(self, member)?)
    }

    fn cont(&mut self, member: usize) -> Result<(), Failure> {
        Ok(Self::cont(self, member)?)
    }

    fn restart(&mut self, member: usize) -> Result<(), Failure> {
        Ok(Self::restart(self, member)?)
    }
}

impl Subject for MongodReplicaSet {
    const NAME: &'static str = "set";
    /// A monitor has two connections to each server.
    const OTHER_CONNECTIONS: i64 = 6;
    /// Connections damaged by faults are used, or expire.
    const QUIET: Duration = Duration::from_secs(2 * MAX_IDLE.as_secs());
    type Client = Client<Detour>;

    fn start() -> Result<Self, Failure> {
        let set = Self::start(3)?;
        let primary = set.settle(SETTLING)?;
        let index = doc! { "key": { "task": 1, "number": 1 }, "name": "number" };
        let create = doc! { "createIndexes": COLLECTION, "indexes": [index] };
        set.member(primary).run_command_on(DATABASE, create)?;
        Ok(set)
    }

    fn addresses(&self) -> [SocketAddr; 3] {
        core::array::from_fn(|member| self.member(member).address())
    }

    fn client(&self, platform: Detour, events: Subscribers) -> Result<Self::Client, Failure> {
        let mut options = ClientOptions::parse(&self.uri())?;
        options.monitor.heartbeat_frequency = Duration::from_millis(500);
        options.monitor.connect_timeout = Some(Duration::from_secs(2));
        // Much longer than any operation: operations end only by their own deadline.
        options.server_selection_timeout = Duration::from_secs(600);
        options.pool.max_pool_size = 10;
        options.pool.min_pool_size = 2;
        options.pool.max_idle_time = Some(MAX_IDLE);
        Ok(Client::with_platform(platform, options, events)?)
    }

    fn pooled(client: &Self::Client) -> u32 {
        client.servers().iter().map(|server| server.pool.counts.total()).sum()
    }

    fn is_idle(client: &Self::Client) -> bool {
        client.servers().iter().map(|server| server.pool.counts).all(|it| it.in_use + it.pending + it.waiting == 0)
    }

    async fn close(client: &Self::Client) {
        client.close().await;
    }

    fn served(&self, _: i64) -> Option<i64> {
        (0..3).map(|member| clients_of(self.member(member))).sum()
    }

    fn term(&self) -> Option<i64> {
        let of = |member| self.member(member).run_command(doc! { "replSetGetStatus": 1 }).ok()?.get_i64("term").ok();
        (0..3).filter_map(of).max()
    }

    fn rows(&self, primary: usize) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let projection = doc! { "_id": 0, "task": 1, "number": 1 };
        let find = doc! { "find": COLLECTION, "projection": projection, "batchSize": 50_000 };
        let mut reply = self.member(primary).run_command_on(DATABASE, find)?;
        loop {
            let cursor = reply.get_document("cursor")?;
            rows.extend(batch(cursor)?);
            let id = cursor.get_i64("id")?;
            if id == 0 {
                return Ok(rows);
            }
            let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": 50_000 };
            reply = self.member(primary).run_command_on(DATABASE, more)?;
        }
    }
}

/// The rows of a batch.
fn batch(cursor: &Document) -> Result<Vec<Row>, bson::error::Error> {
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"))?;
    let row = |document: &Document| Ok((document.get_i64("task")?, document.get_i64("number")?));
    batch.iter().filter_map(Bson::as_document).map(row).collect()
}

/// Returns the number of the client's connections to a member, selected by driver name.
fn clients_of(member: &Mongod) -> Option<i64> {
    let ours = doc! { "clientMetadata.driver.name": DRIVER_NAME };
    let count = doc! {
        "aggregate": 1, "cursor": {}, "$readPreference": { "mode": "secondaryPreferred" },
        "pipeline": [
            { "$currentOp": { "allUsers": true, "idleConnections": true } }, { "$match": ours }, { "$count": "n" },
        ],
    };
    let reply = member.run_command(count).ok()?;
    let first = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let first = first.ok().and_then(|batch| batch.first()).and_then(Bson::as_document);
    Some(first.and_then(|it| it.get_i32("n").ok()).map_or(0, i64::from))
}

impl Database for Client<Detour> {
    /// Without an `_id`, so that a document that is sent twice is stored twice.
    async fn insert(&self, (task, number): Row) -> Result<Insert, Failed> {
        let insert = doc! {
            "insert": COLLECTION, "documents": [{ "task": task, "number": number }],
            "writeConcern": { "w": "majority" },
        };
        let reply = run(self, DATABASE, insert).await?;
        if reply.contains_key("writeErrors") {
            return if is_refused_by_state(&reply) {
                Ok(Insert::Unknown)
            } else {
                Err(Failed::Wrong(format!("an insert was refused: {reply}")))
            };
        }
        if reply.contains_key("writeConcernError") {
            return Ok(Insert::Unknown);
        }
        match reply.get_i32("n") {
            Ok(1) => Ok(Insert::Acknowledged),
            _ => Err(of_another(&reply)),
        }
    }

    async fn find(&self, (task, number): Row) -> Result<Vec<Row>, Failed> {
        let filter = doc! { "task": task, "number": number };
        let find = doc! { "find": COLLECTION, "filter": filter, "limit": 2, "singleBatch": true };
        let reply = run(self, DATABASE, find).await?;
        let rows = reply.get_document("cursor").ok().and_then(|cursor| batch(cursor).ok());
        rows.ok_or_else(|| of_another(&reply))
    }

    async fn ping(&self) -> Result<(), Failed> {
        run(self, "admin", doc! { "ping": 1 }).await.map(drop)
    }
}

fn of_another(reply: &Document) -> Failed {
    Failed::Wrong(format!("the reply to another command: {reply}"))
}

async fn run(client: &Client<Detour>, database: &str, command: Document) -> Result<Document, Failed> {
    let options = CommandOptions::new().timeout(DEADLINE);
    client.run_command_with(database, command, options).await.map_err(|error| Failed::Error {
        text: if let Error::Command(refusal) = &error {
            format!("command: {:?}", refusal.code_name)
        } else {
            format!("{error:?}")
        },
        timed_out: matches!(error, Error::Operation(OperationError::Timeout, _)),
        may_be_stored: !matches!(&error, Error::Operation(error, _) if error.is_retryable()),
    })
}

/// Returns whether a server that is no longer primary refused a write. If the write had begun, its
/// error is among `writeErrors`.
fn is_refused_by_state(reply: &Document) -> bool {
    /// PrimarySteppedDown, NotWritablePrimary, InterruptedAtShutdown,
    /// InterruptedDueToReplStateChange, ShutdownInProgress.
    const CODES: [i32; 5] = [189, 10107, 11600, 11602, 91];
    let is_of_state = |error: &Bson| {
        let code = error.as_document().map(|error| error.get_i32("code"));
        code.is_some_and(|code| code.is_ok_and(|code| CODES.contains(&code)))
    };
    reply.get_array("writeErrors").is_ok_and(|errors| !errors.is_empty() && errors.iter().all(is_of_state))
}
