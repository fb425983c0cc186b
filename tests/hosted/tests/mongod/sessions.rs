//! Sessions, transactions, cursors and retryable writes on genuine servers.

use super::sleep;
use bson::{Document, doc};
use core::time::Duration;
use poolhouse_smol::{
    Client, ClientOptions, ClientSession, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error, ReadMode,
    ReadPreference, SessionCursor, TimeoutMode, TransactionOptions, W,
};
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
            smol::spawn(async move {
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
    // One limit for all batches: `maxTimeMS` of the command is that of the cursor on the server too.
    let lifetime = CursorOptions::new().batch_size(90).timeout_mode(TimeoutMode::CursorLifetime);
    let limited = CommandOptions::new().timeout(PATIENCE);
    let mut cursor: Cursor = client.run_cursor_command("db", find(), limited, lifetime.clone()).await?;
    let mut count = 0;
    while cursor.next_raw().await?.is_some() {
        count += 1;
    }
    assert_eq!(count, DOCUMENTS);
    let limited = CommandOptions::new().timeout(Duration::from_millis(500));
    let mut cursor: Cursor = client.run_cursor_command("db", find(), limited, lifetime).await?;
    sleep(Duration::from_millis(550)).await;
    let mut count = 0;
    let error = loop {
        match cursor.next_raw().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return Err("the limit has passed".into()),
            Err(error) => break error,
        }
    };
    assert!(count == 7 && error.is_timeout(), "{count} documents, {error}");
    let mut result = Ok(());
    eventually("the cursor is closed after its limit", || {
        Ok(open_cursors(&mongod).map_err(|error| result = Err(error)).unwrap_or(0) == 0)
    })
    .await?;
    result?;
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

/// The number of documents of a collection that have been committed. The command `count` also counts
/// those of open transactions.
async fn committed(client: &Client, name: &str) -> Result<i32, Box<dyn core::error::Error>> {
    let majority = doc! { "level": "majority" };
    let find = doc! { "find": name, "batchSize": 1_000, "readConcern": majority };
    let batch = client.run_command("db", find).await?;
    Ok(i32::try_from(batch.get_document("cursor")?.get_array("firstBatch")?.len())?)
}

/// Adds 1 to the balance of the one account.
async fn increment(session: &mut ClientSession) -> Result<(), Error> {
    let account = session.run_command("db", doc! { "find": "account" }).await?;
    let batch = account.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let balance = batch.ok().and_then(|batch| batch.first()?.as_document()?.get_i32("balance").ok());
    // Written as read, so that lost updates would be seen.
    let set = doc! { "$set": { "balance": balance.unwrap_or(-1_000) + 1 } };
    let update = doc! { "update": "account", "updates": [{ "q": {}, "u": set }] };
    session.run_command("db", update).await.map(drop)
}

pub(super) async fn transactions_on_a_set() -> Outcome {
    let set = MongodReplicaSet::start_with(of_three(MongodOptions::default()))?;
    let primary = set.wait_for_primary(SETTLING)?;
    let mut options = ClientOptions::parse(&set.uri())?;
    options.timeout = Some(PATIENCE);
    options.app_name = Some("transactions".to_owned());
    options.write_concern.w = Some(W::Name("majority".to_owned()));
    let client = Client::with_options(options)?;
    fill(&client).await?;
    client.run_command("db", doc! { "create": "t", "writeConcern": { "w": "majority" } }).await?;
    let insert = || doc! { "insert": "t", "documents": [{}] };

    // Isolation and atomicity.
    let mut session = client.start_session(ClientSessionOptions::new());
    session.start_transaction(TransactionOptions::new().read_concern_level("snapshot"))?;
    for _ in 0..3 {
        session.run_command("db", insert()).await?;
    }
    assert_eq!(committed(&client, "t").await?, 0);
    session.commit_transaction().await?;
    assert_eq!(committed(&client, "t").await?, 3);
    session.commit_transaction().await?;
    session.start_transaction(TransactionOptions::new())?;
    session.run_command("db", insert()).await?;
    session.abort_transaction().await?;
    assert_eq!(committed(&client, "t").await?, 3);
    // The server would refuse a write concern in the command, and a transaction that is started twice.
    let find = doc! { "find": "c", "batchSize": 100 };
    session.start_transaction(TransactionOptions::new().max_commit_time(PATIENCE))?;
    session.run_command("db", insert()).await?;
    let further = CursorOptions::new().batch_size(100);
    let mut cursor: SessionCursor = session.run_cursor_command("db", find, CommandOptions::new(), further).await?;
    let mut count = 0;
    while cursor.next_raw(&mut session).await?.is_some() {
        count += 1;
        if count % 50 == 0 {
            session.run_command("db", doc! { "find": "t", "singleBatch": true }).await?;
        }
    }
    assert_eq!(count, DOCUMENTS);
    drop(cursor);
    session.commit_transaction_within(PATIENCE).await?;
    assert_eq!(committed(&client, "t").await?, 4);

    // Each fault would lose the transaction without a retry, or execute it twice.
    let faults = [
        doc! { "failCommands": ["commitTransaction"], "closeConnection": true },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 91, "errorLabels": ["RetryableWriteError"] },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 251, "errorLabels": ["TransientTransactionError"] },
        doc! { "failCommands": ["commitTransaction"], "writeConcernError": { "code": 64, "errmsg": "late" } },
        doc! { "failCommands": ["insert"], "errorCode": 112, "errorLabels": ["TransientTransactionError"] },
        doc! { "failCommands": ["insert"], "closeConnection": true },
    ];
    let mut expected = committed(&client, "t").await?;
    for mut data in faults {
        data.insert("appName", "transactions");
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        set.member(primary).run_command(point.clone())?;
        let work = async |session: &mut ClientSession| session.run_command("db", insert()).await.map(drop);
        let outcome = session.with_transaction(TransactionOptions::new(), work).await;
        outcome.map_err(|error| format!("{point}: {error:?}"))?;
        expected += 1;
        assert_eq!(committed(&client, "t").await?, expected, "{point}");
        set.member(primary).run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" })?;
    }

    // Transactions that conflict: no update is lost.
    let account = doc! { "insert": "account", "documents": [{ "balance": 0 }] };
    client.run_command("db", account).await?;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            smol::spawn(async move {
                let mut session = client.start_session(ClientSessionOptions::new());
                for _ in 0..10 {
                    session.with_transaction(TransactionOptions::new(), increment).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let found = client.run_command("db", doc! { "find": "account" }).await?;
    let balance = found.get_document("cursor")?.get_array("firstBatch")?[0].as_document().ok_or("an account")?;
    assert_eq!(balance.get_i32("balance")?, 80);

    // A session that is dropped releases its locks.
    session.start_transaction(TransactionOptions::new())?;
    increment(&mut session).await?;
    drop(session);
    client.start_session(ClientSessionOptions::new()).with_transaction(TransactionOptions::new(), increment).await?;

    // All reads of a snapshot session see the same data.
    let before = committed(&client, "t").await?;
    let mut snapshot = client.start_session(ClientSessionOptions::new().snapshot(true));
    let read = || doc! { "aggregate": "t", "pipeline": [{ "$count": "n" }], "cursor": {} };
    for _ in 0..3 {
        let found = snapshot.run_command("db", read()).await?;
        let batch = found.get_document("cursor")?.get_array("firstBatch")?;
        assert_eq!(batch[0].as_document().ok_or("a count")?.get_i32("n")?, before);
        client
            .run_command("db", doc! { "insert": "t", "documents": [{}], "writeConcern": { "w": "majority" } })
            .await?;
    }
    // Further batches of its cursors have the read concern. `killCursors` has none, because servers refuse it.
    let find = doc! { "find": "c", "batchSize": 100 };
    let further = CursorOptions::new().batch_size(100);
    let mut cursor: SessionCursor = snapshot.run_cursor_command("db", find, CommandOptions::new(), further).await?;
    for _ in 0..150 {
        assert!(cursor.next_raw(&mut snapshot).await?.is_some());
    }
    cursor.close(&mut snapshot).await?;
    let kill = doc! { "killCursors": "c", "cursors": [1_i64], "readConcern": { "level": "snapshot" } };
    let refusal = client.run_command("db", kill).await.expect_err("it reads nothing");
    assert_eq!(refusal.code(), Some(72), "{refusal}");
    drop(snapshot);
    client.close().await;
    Ok(())
}
