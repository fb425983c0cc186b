//! Compression against a real server, verified by the server's own counters.

use super::{Outcome, PATIENCE, start};
use bson::{Document, doc};
use poolhouse_smol::poolhouse_wire::compress::{Compressor, Compressors};
use poolhouse_smol::{Client, ClientOptions};
use poolhouse_tests::mongod::{Mongod, MongodError};

/// The server's counters of inflated and compressed bytes for each algorithm, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    received: i64,
    inflated: i64,
    compressed: i64,
    sent: i64,
}

fn counters(mongod: &Mongod, compressor: Compressor) -> Result<Counters, MongodError> {
    let status = mongod.run_command(doc! { "serverStatus": 1 })?;
    let by_name = |part: &str, field: &str| {
        let read = |document: &Document| -> Option<i64> {
            let entry = document.get_document("network").ok()?.get_document("compression").ok()?;
            let value = entry.get_document(compressor.name()).ok()?.get_document(part).ok()?.get(field)?;
            value.as_i64().or_else(|| value.as_i32().map(i64::from))
        };
        read(&status).unwrap_or(-1)
    };
    Ok(Counters {
        received: by_name("decompressor", "bytesIn"),
        inflated: by_name("decompressor", "bytesOut"),
        compressed: by_name("compressor", "bytesIn"),
        sent: by_name("compressor", "bytesOut"),
    })
}

/// Each compressor alone, then several in an order other than the server's: only the first is used,
/// and requests and replies are counted. Neither hello nor messages of a client that offers no
/// compressor are counted.
pub(super) async fn each_compressor_is_counted() -> Outcome {
    let mongod = start()?;
    let all = Compressor::ALL.into_iter();
    let reversed: Compressors = [Compressor::Zlib, Compressor::Zstd, Compressor::Snappy].into_iter().collect();
    let offers = all.map(|one| Compressors::NONE.with(one)).chain([reversed, Compressors::NONE]);
    for (number, offer) in offers.enumerate() {
        let mut options = ClientOptions::new(mongod.address().to_string());
        options.compressors = offer;
        options.zlib_compression_level = Some(9);
        options.timeout = Some(PATIENCE);
        let client = Client::with_options(options)?;
        client.run_command("admin", doc! { "ping": 1 }).await?;
        let before = Compressor::ALL.map(|one| counters(&mongod, one));
        talk(&client, &format!("c{number}")).await?;
        // An error reply is compressed like any other, and messages that must not be compressed are
        // accepted.
        for command in [doc! { "noSuchCommand": 1 }, doc! { "saslStart": 1, "mechanism": "none", "payload": "" }] {
            client.run_command("admin", command).await.expect_err("refused");
        }
        client.run_command("admin", doc! { "hello": 1 }).await?;
        let after = Compressor::ALL.map(|one| counters(&mongod, one));
        client.close().await;
        for ((one, before), after) in Compressor::ALL.into_iter().zip(before).zip(after) {
            let (before, after) = (before?, after?);
            if offer.first() != Some(one) {
                assert_eq!(before, after, "{one}, where {offer:?} was offered");
                continue;
            }
            let inflated = after.inflated - before.inflated;
            let received = after.received - before.received;
            let compressed = after.compressed - before.compressed;
            let sent = after.sent - before.sent;
            assert!(inflated > 500_000 && received > 0 && received < inflated / 4, "{one}: {before:?}, {after:?}");
            assert!(compressed > 500_000 && sent > 0 && sent < compressed / 4, "{one}: {before:?}, {after:?}");
        }
    }
    Ok(())
}

/// Writes and reads large and small documents.
async fn talk(client: &Client, collection: &str) -> Outcome {
    let texts = [500_000, 5_000, 1, 0].map(|length| "pool house ".chars().cycle().take(length).collect::<String>());
    let documents: Vec<_> = texts.iter().enumerate().map(|(id, text)| doc! { "_id": id as i64, "t": text }).collect();
    let inserted =
        client.run_command("compression", doc! { "insert": collection, "documents": documents.clone() }).await?;
    assert_eq!(inserted.get_i32("n")?, 4);
    let found = client.run_command("compression", doc! { "find": collection, "sort": { "_id": 1 } }).await?;
    let batch = found.get_document("cursor")?.get_array("firstBatch")?;
    assert_eq!(
        batch.iter().filter_map(|one| one.as_document()).collect::<Vec<_>>(),
        documents.iter().collect::<Vec<_>>()
    );
    Ok(())
}
