//! Sessions, cursors and retryable writes on genuine servers.

use crate::runtime::{Client, ClientOptions, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error};
use crate::runtime::{ReadMode, ReadPreference};
use bson::{Document, doc};
use poolhouse_tests::mongod::{Mongod, MongodOptions, MongodReplicaSet};

use super::replica_set::{SETTLING, of_three};
use super::{Outcome, PATIENCE, eventually, refused, start};

const DOCUMENTS: i32 = 1_000;

/// Writes the documents of the collection `c`.
async fn fill(client: &Client) -> Result<(), Error> {
    let documents: Vec<_> = (0..DOCUMENTS).map(|id| doc! { "_id": id }).collect();
    let majority = doc! { "w": "majority" };
    let insert = doc! { "insert": "c", "documents": documents, "writeConcern": majority };
    client.run_command("db", insert).await.map(drop)
}

/// The number of open cursors of a server.
fn open_cursors(mongod: &Mongod) -> Result<i64, Box<dyn core::error::Error>> {
    let status = mongod.run_command(doc! { "serverStatus": 1 })?;
    Ok(status.get_document("metrics")?.get_document("cursor")?.get_document("open")?.get_i64("total")?)
}

pub(super) async fn cursor_is_read_in_batches() -> Outcome {
    let mongod = start()?;
    let client = Client::new(&mongod.uri()).await?;
    fill(&client).await?;
    let find = || doc! { "find": "c", "sort": { "_id": 1 }, "batchSize": 7 };
    let options = CursorOptions::new().batch_size(90).comment("all of them");
    let mut cursor: Cursor =
        client.database("db").run_cursor_command_with(find(), CommandOptions::new(), options).await?;
    for id in 0..DOCUMENTS {
        let document = cursor.try_next().await?.ok_or("a document")?;
        assert_eq!(document.get_i32("_id")?, id);
    }
    assert!(cursor.try_next().await?.is_none());
    assert_eq!(open_cursors(&mongod)?, 0);
    // More tasks than connections: each keeps its own cursor and session.
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            crate::runtime::spawn(async move {
                let mut cursor: Cursor = client.database("db").run_cursor_command(find()).await?;
                let mut count = 0;
                while let Some(document) = cursor.next_raw().await? {
                    assert_eq!(document.get_i32("_id").ok(), Some(count));
                    count += 1;
                }
                Ok::<_, Error>(count)
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await?, DOCUMENTS);
    }
    let cursor: Cursor = client.database("db").run_cursor_command(find()).await?;
    assert_eq!(open_cursors(&mongod)?, 1);
    drop(cursor);
    let mut result = Ok(());
    eventually("the dropped cursor is closed", || {
        Ok(open_cursors(&mongod).map_err(|error| result = Err(error)).unwrap_or(0) == 0)
    })
    .await?;
    result?;
    client.close().await;
    Ok(())
}

/// The number of sessions of the deployment, as its members store it from time to time.
fn sessions(primary: &Mongod) -> Result<i32, Box<dyn core::error::Error>> {
    primary.run_command(doc! { "refreshLogicalSessionCacheNow": 1 })?;
    Ok(primary.run_command_on("config", doc! { "count": "system.sessions" })?.get_i32("n")?)
}

pub(super) async fn sessions_and_retries_on_a_set() -> Outcome {
    let set = MongodReplicaSet::start_with(of_three(MongodOptions::default()))?;
    let primary = set.wait_for_primary(SETTLING)?;
    let mut options = ClientOptions::parse(&set.uri())?;
    options.timeout = Some(PATIENCE);
    options.app_name = Some("retries".to_owned());
    let client = Client::with_options(options)?;
    fill(&client).await?;

    // Each fault would lose a write without a retry, or repeat it without its number.
    let faults = [
        doc! { "closeConnection": true },
        doc! { "errorCode": 10_107 },
        doc! { "errorCode": 91 },
        doc! { "writeConcernError": { "code": 91, "errmsg": "shut down" }, "errorLabels": ["RetryableWriteError"] },
    ];
    for (id, mut data) in (0..).zip(faults) {
        data.insert("failCommands", ["insert", "find"]);
        data.insert("appName", "retries");
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        set.member(primary).run_command(point.clone())?;
        let insert = doc! { "insert": "once", "documents": [{ "n": id }] };
        client.run_command("db", insert).await.map_err(|error| format!("{point}: {error}"))?;
        set.member(primary).run_command(point.clone())?;
        let find = doc! { "find": "once", "filter": { "n": id } };
        let found: Document = client.run_command_as("db", find).await.map_err(|error| format!("{point}: {error}"))?;
        let count = found.get_document("cursor")?.get_array("firstBatch")?.len();
        assert_eq!(count, 1, "{point}");
        set.member(primary).run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" })?;
    }

    // Each read of the session sees the write before it, on secondaries.
    let majority = doc! { "w": "majority" };
    let secondary = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::Secondary));
    let mut session = client.start_session(ClientSessionOptions::new());
    for id in 0..50 {
        let insert = doc! { "insert": "seen", "documents": [{ "_id": id }], "writeConcern": majority.clone() };
        session.run_command("db", insert).await?;
        let find = doc! { "find": "seen", "filter": { "_id": id }, "readConcern": { "level": "majority" } };
        let found = session.run_command_with("db", find, secondary).await?;
        assert_eq!(found.get_document("cursor")?.get_array("firstBatch")?.len(), 1, "document {id}");
    }
    assert!(session.operation_time().is_some());
    let own = doc! { "ping": 1, "lsid": {} };
    assert!(matches!(refused(session.run_command("db", own).await)?, Error::Session(_)));
    drop(session);

    // A cursor on a secondary.
    let find = doc! { "find": "c", "batchSize": 100 };
    let mut cursor: Cursor =
        client.database("db").run_cursor_command_with(find, secondary, CursorOptions::new().batch_size(100)).await?;
    let mut count = 0;
    while cursor.next_raw().await?.is_some() {
        count += 1;
    }
    assert_eq!(count, DOCUMENTS);

    let before = sessions(set.member(primary))?;
    client.close().await;
    let after = sessions(set.member(primary))?;
    println!("{before} sessions, and {after} after the close of the client");
    assert!(after < before, "{after} of {before} sessions are left");
    Ok(())
}
