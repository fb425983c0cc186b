use poolhouse_smol::bson::{Bson, Document, doc};
use poolhouse_smol::{Client, ClientSession, ClientSessionOptions, CommandOptions, Cursor, CursorOptions, Error};
use poolhouse_smol::{ReadMode, ReadPreference, TransactionOptions};

type Outcome = Result<(), Box<dyn core::error::Error>>;

async fn writes(client: &Client) -> Outcome {
    let shop = client.database("shop");
    // insert_many
    let orders = vec![doc! { "_id": 1, "what": "tea" }, doc! { "_id": 2, "what": "cake" }];
    let reply = shop.run_command(doc! { "insert": "orders", "documents": orders }).await?;
    assert_eq!(reply.get_i32("n")?, 2);

    // insert_many(ordered=False): inserts the others after an error
    let orders = vec![doc! { "_id": 1 }, doc! { "_id": 3, "what": "tea" }];
    let insert = doc! { "insert": "orders", "documents": orders, "ordered": false };
    let error = shop.run_command(insert).await.expect_err("order 1 was inserted before");
    assert_eq!(error.code(), Some(11_000));

    // update_one
    let paid = doc! { "q": { "_id": 1 }, "u": { "$set": { "paid": true } } };
    let reply = shop.run_command(doc! { "update": "orders", "updates": [paid] }).await?;
    assert_eq!(reply.get_i32("nModified")?, 1);

    // replace_one
    let cake = doc! { "q": { "_id": 2 }, "u": { "what": "cake", "paid": false } };
    let reply = shop.run_command(doc! { "update": "orders", "updates": [cake] }).await?;
    assert_eq!(reply.get_i32("nModified")?, 1);

    // update_one(upsert=True)
    let count = doc! { "q": { "_id": 4 }, "u": { "$inc": { "count": 1 } }, "upsert": true };
    let reply = shop.run_command(doc! { "update": "orders", "updates": [count] }).await?;
    assert_eq!(reply.get_array("upserted")?.len(), 1);

    // update_many
    let all = doc! { "q": {}, "u": { "$set": { "old": true } }, "multi": true };
    let reply = shop.run_command(doc! { "update": "orders", "updates": [all] }).await?;
    assert_eq!(reply.get_i32("nModified")?, 4);

    // delete_one
    let one = doc! { "q": { "_id": 4 }, "limit": 1 };
    let reply = shop.run_command(doc! { "delete": "orders", "deletes": [one] }).await?;
    assert_eq!(reply.get_i32("n")?, 1);

    // delete_many
    let unknown = doc! { "q": { "what": "wine" }, "limit": 0 };
    let reply = shop.run_command(doc! { "delete": "orders", "deletes": [unknown] }).await?;
    assert_eq!(reply.get_i32("n")?, 0);

    // find_one_and_update(return_document=AFTER)
    let pay = doc! { "$set": { "paid": true } };
    let next = doc! { "findAndModify": "orders", "query": { "paid": false }, "update": pay, "new": true };
    let reply = shop.run_command(next).await?;
    assert_eq!(reply.get_document("value")?.get_i32("_id")?, 2);

    // WriteConcern("majority", wtimeout=5000)
    let durable = doc! { "w": "majority", "wtimeout": 5_000 };
    let insert = doc! { "insert": "orders", "documents": [{ "_id": 5, "what": "milk" }], "writeConcern": durable };
    let reply = shop.run_command(insert).await?;
    assert_eq!(reply.get_i32("n")?, 1);

    // WriteConcern(w=0): it is sent, and its errors are lost
    let unacknowledged = doc! { "insert": "drafts", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } };
    assert_eq!(shop.run_command(unacknowledged).await?, doc! { "ok": 1 });

    // client.bulk_write: servers since 8.0
    let ops = vec![doc! { "insert": 0, "document": { "_id": 6 } }, doc! { "delete": 0, "filter": { "_id": 6 } }];
    let bulk = doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": "shop.orders" }] };
    match client.run_command("admin", bulk).await {
        Err(error) if error.code() == Some(59) => println!("this server has no bulkWrite: {error}"),
        reply => assert_eq!(reply?.get_i32("nInserted")?, 1),
    }
    Ok(())
}

async fn reads(client: &Client) -> Outcome {
    let shop = client.database("shop");
    // find_one
    let find = doc! { "find": "orders", "filter": { "_id": 1 }, "limit": 1, "singleBatch": true };
    let reply = shop.run_command(find).await?;
    let found = reply.get_document("cursor")?.get_array("firstBatch")?.first().and_then(Bson::as_document);
    assert_eq!(found.ok_or("no order")?.get_str("what")?, "tea");

    // find(projection=..).sort("_id", -1).batch_size(2)
    let find = doc! { "find": "orders", "sort": { "_id": -1 }, "projection": { "what": 1 }, "batchSize": 2 };
    let mut orders: Cursor = shop.run_cursor_command(find).await?;
    let mut ids = Vec::new();
    while let Some(order) = orders.try_next().await? {
        ids.push(order.get_i32("_id")?);
    }
    assert_eq!(ids, [5, 3, 2, 1]);

    // aggregate
    let group = doc! { "$group": { "_id": "$what", "count": { "$sum": 1 } } };
    let pipeline = vec![group, doc! { "$sort": { "count": -1 } }];
    let groups = doc! { "aggregate": "orders", "pipeline": pipeline, "cursor": {} };
    let mut groups: Cursor = shop.run_cursor_command(groups).await?;
    assert_eq!(groups.try_next().await?, Some(doc! { "_id": "tea", "count": 2 }));
    groups.close().await?;

    // count_documents, estimated_document_count
    let reply = shop.run_command(doc! { "count": "orders", "query": { "paid": true } }).await?;
    assert_eq!(reply.get_i32("n")?, 2);

    // distinct
    let reply = shop.run_command(doc! { "distinct": "orders", "key": "what" }).await?;
    assert_eq!(reply.get_array("values")?.len(), 3);

    // explain
    let find = doc! { "find": "orders", "filter": { "what": "tea" } };
    let reply = shop.run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await?;
    assert!(reply.get_document("queryPlanner").is_ok());

    // A causal session sees its own writes, also on secondaries.
    let mut session = client.start_session(ClientSessionOptions::new());
    let durable = doc! { "w": "majority" };
    let insert = doc! { "insert": "log", "documents": [{ "_id": 1 }], "writeConcern": durable };
    session.run_command("shop", insert).await?;
    let secondary = CommandOptions::new().read_preference(ReadPreference::of(ReadMode::SecondaryPreferred));
    let find = doc! { "find": "log", "readConcern": { "level": "majority" } };
    let reply = session.run_command_with("shop", find, secondary).await?;
    assert_eq!(reply.get_document("cursor")?.get_array("firstBatch")?.len(), 1);
    Ok(())
}

async fn changes(client: &Client) -> Outcome {
    let shop = client.database("shop");
    // orders.watch(): a change stream has no end, so it has no time limit.
    let watch = doc! { "aggregate": "orders", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let endless = CommandOptions::new().timeout(core::time::Duration::MAX);
    let mut changes: Cursor = client.run_cursor_command("shop", watch, endless, CursorOptions::new()).await?;
    shop.run_command(doc! { "insert": "orders", "documents": [{ "_id": 7 }] }).await?;
    let change = changes.try_next().await?.ok_or("the stream has ended")?;
    assert_eq!(change.get_str("operationType")?, "insert");
    assert_eq!(change.get_document("documentKey")?, &doc! { "_id": 7 });
    // It continues after this token: { "$changeStream": { "resumeAfter": token } }
    let token: &Document = change.get_document("_id")?;
    assert!(!token.is_empty());
    changes.close().await?;
    Ok(())
}

async fn transactions(client: &Client) -> Outcome {
    let shop = client.database("shop");
    shop.run_command(doc! { "insert": "stock", "documents": [{ "_id": "tea", "left": 9 }] }).await?;
    // start_transaction, commit_transaction
    let mut session = client.start_session(ClientSessionOptions::new());
    session.start_transaction(TransactionOptions::new())?;
    session.run_command("shop", doc! { "insert": "orders", "documents": [{ "_id": 8 }] }).await?;
    session.commit_transaction().await?;

    // with_transaction: it is repeated after transient errors, such as conflicts
    let order = async |session: &mut ClientSession| {
        session.run_command("shop", doc! { "insert": "orders", "documents": [{ "_id": 9 }] }).await?;
        let take = doc! { "q": { "_id": "tea" }, "u": { "$inc": { "left": -1 } } };
        session.run_command("shop", doc! { "update": "stock", "updates": [take] }).await?;
        Ok::<_, Error>(())
    };
    session.with_transaction(TransactionOptions::new(), order).await?;
    let reply = shop.run_command(doc! { "count": "stock", "query": { "left": 8 } }).await?;
    assert_eq!(reply.get_i32("n")?, 1);
    Ok(())
}

async fn collections(client: &Client) -> Outcome {
    let shop = client.database("shop");
    // create_collection
    shop.run_command(doc! { "create": "recent", "capped": true, "size": 1_048_576 }).await?;

    // create_index
    let index = doc! { "key": { "what": 1 }, "name": "what_1" };
    let reply = shop.run_command(doc! { "createIndexes": "orders", "indexes": [index] }).await?;
    assert_eq!(reply.get_i32("numIndexesAfter")?, 2);

    // list_indexes
    let mut indexes: Cursor = shop.run_cursor_command(doc! { "listIndexes": "orders" }).await?;
    let mut names = Vec::new();
    while let Some(index) = indexes.try_next().await? {
        names.push(index.get_str("name")?.to_owned());
    }
    assert_eq!(names, ["_id_", "what_1"]);

    // drop_index
    let reply = shop.run_command(doc! { "dropIndexes": "orders", "index": "what_1" }).await?;
    assert_eq!(reply.get_i32("nIndexesWas")?, 2);

    // rename
    let rename = doc! { "renameCollection": "shop.recent", "to": "shop.latest" };
    client.run_command("admin", rename).await?;

    // list_collection_names
    let list = doc! { "listCollections": 1, "filter": { "name": "latest" }, "nameOnly": true };
    let mut collections: Cursor = shop.run_cursor_command(list).await?;
    let latest = collections.try_next().await?.ok_or("it was not renamed")?;
    assert_eq!(latest.get_str("type")?, "collection");

    // drop
    let reply = shop.run_command(doc! { "drop": "latest" }).await?;
    assert_eq!(reply.get_str("ns")?, "shop.latest");

    // drop_database
    shop.run_command(doc! { "dropDatabase": 1 }).await?;
    let list = doc! { "listDatabases": 1, "filter": { "name": "shop" } };
    let reply = client.run_command("admin", list).await?;
    assert!(reply.get_array("databases")?.is_empty());
    Ok(())
}

async fn server(client: &Client) -> Outcome {
    let admin = client.database("admin");
    admin.run_command(doc! { "ping": 1 }).await?;
    let build: Document = admin.run_command(doc! { "buildInfo": 1 }).await?;
    assert!(build.get_str("version").is_ok());
    let status = admin.run_command(doc! { "serverStatus": 1 }).await?;
    assert!(status.get_document("connections").is_ok());
    let databases = admin.run_command(doc! { "listDatabases": 1, "nameOnly": true }).await?;
    assert!(!databases.get_array("databases")?.is_empty());
    Ok(())
}

pub(crate) async fn all(client: &Client) -> Outcome {
    writes(client).await?;
    reads(client).await?;
    changes(client).await?;
    transactions(client).await?;
    collections(client).await?;
    server(client).await
}
