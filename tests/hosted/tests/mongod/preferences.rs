//! Reads of a genuine set by connections that are checked out: a member that is not primary answers
//! only commands with a read preference that permits it.

use core::time::Duration;

use bson::doc;
use poolhouse_smol::{Client, ClientOptions, ReadMode, ReadPreference};
use poolhouse_tests::mongod::MongodReplicaSet;

use super::{Outcome, PATIENCE};

/// Timeout until the set is complete.
const SETTLING: Duration = Duration::from_secs(60);

pub(super) async fn connections_read_from_secondaries() -> Outcome {
    let set = MongodReplicaSet::start(2)?;
    let primary = set.settle(SETTLING)?;
    let secondary = set.member(1 - primary).address().to_string();
    let client = Client::with_options(ClientOptions::parse(&set.uri())?.timeout(PATIENCE))?;
    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 2 } };
    client.run_command("db", insert).await?;

    let mut connection = client.check_out_preferring(ReadPreference::of(ReadMode::Secondary)).await?;
    assert_eq!(connection.raw().server().address(), secondary);
    let reply = connection.run_command("db", doc! { "find": "c" }).await?;
    assert_eq!(reply.get_document("cursor")?.get_array("firstBatch")?.len(), 1, "{reply}");
    drop(connection);
    client.close().await;

    let direct = Client::with_options(ClientOptions::new(secondary).direct_connection(true).timeout(PATIENCE))?;
    let read = async |connection: &mut poolhouse_smol::Connection<'_>| {
        connection.run_command("db", doc! { "find": "c" }).await
    };
    let reply = direct.with_connection(read).await?;
    assert_eq!(reply.get_document("cursor")?.get_array("firstBatch")?.len(), 1, "{reply}");
    direct.close().await;
    Ok(())
}
