//! Writes with the write concern `w: 0` on a genuine server.

use super::{Outcome, PATIENCE, start};
use bson::{Document, doc};
use poolhouse_smol::poolhouse_wire::compress::{Compressor, Compressors};
use poolhouse_smol::{Client, ClientOptions};

const WRITES: i32 = 500;

/// All of them are executed, in order, and no reply of them is received: the next command on the
/// connection has its own.
pub(super) async fn writes_without_acknowledgement() -> Outcome {
    let mongod = start()?;
    let offers = Compressor::ALL.into_iter().map(|one| Compressors::NONE.with(one)).chain([Compressors::NONE]);
    for (number, offer) in offers.enumerate() {
        let mut options = ClientOptions::new(mongod.address().to_string()).max_pool_size(1);
        options.compressors = offer;
        options.timeout = Some(PATIENCE);
        let client = Client::with_options(options)?;
        let collection = format!("c{number}");
        let none = || doc! { "w": 0 };
        for id in 0..WRITES {
            let insert = doc! { "insert": &collection, "documents": [{ "_id": id }], "writeConcern": none() };
            assert_eq!(client.run_command("db", insert).await?, doc! { "ok": 1 });
            // Refused by the server: the id exists already.
            let again = doc! { "insert": &collection, "documents": [{ "_id": id }], "writeConcern": none() };
            client.run_command("db", again).await?;
        }
        let build = client.run_command("admin", doc! { "buildInfo": 1 }).await?;
        assert!(build.contains_key("version"), "{offer:?}: {build}");
        let update = doc! { "q": {}, "u": { "$set": { "seen": true } }, "multi": true };
        let update = doc! { "update": &collection, "updates": [update], "writeConcern": none() };
        client.run_command("db", update).await?;
        let delete = doc! { "q": { "_id": 0 }, "limit": 1 };
        let delete = doc! { "delete": &collection, "deletes": [delete], "writeConcern": none() };
        client.run_command("db", delete).await?;
        let count = doc! { "count": &collection, "query": { "seen": true } };
        assert_eq!(client.run_command("db", count).await?.get_i32("n")?, WRITES - 1, "{offer:?}");
        // It has a reply, although it is not acknowledged.
        let modify = doc! {
            "findAndModify": &collection, "query": { "_id": 1 }, "remove": true, "writeConcern": none()
        };
        let reply: Document = client.run_command("db", modify).await?;
        assert_eq!(reply.get_document("value")?.get_i32("_id")?, 1, "{offer:?}");
        let counts = client.servers()[0].pool.counts;
        assert_eq!((counts.available, counts.in_use), (1, 0));
        client.close().await;
    }
    Ok(())
}
