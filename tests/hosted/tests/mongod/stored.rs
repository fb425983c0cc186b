//! Stored documents that not every conversion accepts: deep ones, and text that is not UTF-8.

use super::{Outcome, refused, start};
use bson::{Document, RawDocumentBuf, Utf8Lossy, doc};
use poolhouse_smol::{Client, CommandOptions, Cursor, CursorOptions, Error};

/// The levels that a server stores by default.
const LEVELS: usize = 180;

pub(super) async fn deep_documents_are_read() -> Outcome {
    let mongod = start()?;
    let client = Client::new(&mongod.uri()).await?;
    // The document around it is one level, and `{ x: 1 }` another.
    let deep = (2..LEVELS).fold(doc! { "x": 1 }, |inner, _| doc! { "a": inner });
    client.run_command("db", doc! { "insert": "deep", "documents": [{ "_id": 1, "a": deep }] }).await?;
    let find = || doc! { "find": "deep" };
    let reply = client.run_command("db", find()).await?;
    let typed: Document = client.run_command_as("db", find()).await?;
    assert_eq!(typed.get_document("cursor")?, reply.get_document("cursor")?);
    let mut cursor: Cursor = cursor_of(&client, find()).await?;
    let found = cursor.try_next().await?.ok_or("a document")?;
    assert_eq!(reply.get_document("cursor")?.get_array("firstBatch")?[0].as_document(), Some(&found));
    drop(cursor);
    client.close().await;
    Ok(())
}

pub(super) async fn text_that_is_not_utf8_hides_no_other_document() -> Outcome {
    let mongod = start()?;
    let client = Client::new(&mongod.uri()).await?;
    client.run_command("db", doc! { "insert": "text", "documents": [{ "_id": 1 }, { "_id": 3 }] }).await?;
    let insert = doc! { "insert": "text", "documents": [{ "_id": 2, "items": [{ "name": "a??b" }] }] };
    let mut insert = insert.to_vec()?;
    insert.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    client.run_raw_command("db", &RawDocumentBuf::from_bytes(insert)?).await?;

    let find = || doc! { "find": "text", "sort": { "_id": 1 } };
    let mut cursor: Cursor = cursor_of(&client, find()).await?;
    assert_eq!(cursor.try_next().await?, Some(doc! { "_id": 1 }));
    let Error::Bson(text) = refused(cursor.try_next().await)? else {
        return Err("expected an error of conversion".into());
    };
    assert!(text.contains("items.0.name"), "{text}");
    assert_eq!(cursor.try_next().await?, Some(doc! { "_id": 3 }));
    assert_eq!(cursor.try_next().await?, None);

    let mut cursor: Cursor<Utf8Lossy<Document>> = cursor_of(&client, find()).await?;
    cursor.try_next().await?;
    let Utf8Lossy(lossy) = cursor.try_next().await?.ok_or("the second document")?;
    assert_eq!(lossy.get_array("items")?[0], doc! { "name": "a\u{fffd}\u{fffd}b" }.into());
    drop(cursor);

    let change = doc! { "findAndModify": "text", "query": { "_id": 2 }, "update": { "$inc": { "n": 1 } }, "new": true };
    let error = refused(client.run_command("db", change).await)?;
    assert!(matches!(error, Error::Bson(_)) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("was executed"), "{error}");
    let count = client.run_command("db", doc! { "count": "text", "query": { "n": 1 } }).await?;
    assert_eq!(count.get_i32("n")?, 1, "executed once");
    assert_eq!(client.servers()[0].pool.counts.total(), 1);
    client.close().await;
    Ok(())
}

async fn cursor_of<T>(client: &Client, command: Document) -> Result<Cursor<T>, Error> {
    client.run_cursor_command("db", command, CommandOptions::new(), CursorOptions::new()).await
}
