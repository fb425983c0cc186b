//! Cursors over 100,000 documents of 1 KB on a real server: Poolhouse on smol and the official driver
//! on tokio, each with one task that reads all documents as bytes, as documents and as a struct.

use crate::allocator::counted;
use crate::clients::official;
use crate::measure::Rounds;
use crate::process::{RealServer, worker};
use crate::report::{Section, Table};
use crate::settings::Settings;
use core::net::SocketAddr;
use mongodb::bson::{Document, doc};
use poolhouse_smol::{Client, ClientOptions, CommandOptions, Cursor, CursorOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Instant;

const DATABASE: &str = "compare";
const COLLECTION: &str = "documents";
/// Bytes of the longest field; with the others, a document has 1 KB.
const TEXT_BYTES: usize = 930;
/// The number of documents of an insert.
const INSERT: usize = 1_000;

#[derive(Deserialize)]
struct Order {
    #[serde(rename = "_id")]
    id: i32,
    customer: String,
    total: f64,
    paid: bool,
    text: String,
}

/// How documents are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bytes,
    Document,
    Struct,
}

const FORMS: [(Form, &str); 3] =
    [(Form::Bytes, "as bytes"), (Form::Document, "as documents"), (Form::Struct, "as structs")];

/// Runs the whole section.
pub(crate) fn run(settings: &Settings) -> Section {
    let mut section = Section::new("cursors");
    match RealServer::mongod(None, &[]) {
        Ok(server) => section.append(worker("cursors", 1, Some(server.address), settings)),
        Err(why) => {
            let mut table = Table::new("a cursor over all documents", &["documents/s"]);
            table.skip("all clients", why);
            section.tables.push(table);
        }
    }
    section.note(
        "A real mongod in a process of its own. Batches have the server's size: 101 documents, then up to 16 MB.",
    );
    section.note("The peak is that of the memory allocated by the client's process during one cursor.");
    section
}

/// Runs a part of the section in a separate process.
pub(crate) fn part(name: &str, threads: usize, server: Option<SocketAddr>, settings: &Settings) -> Option<Section> {
    (name == "cursors").then(|| measure(threads, server.expect("an address"), settings))
}

fn measure(threads: usize, server: SocketAddr, settings: &Settings) -> Section {
    let count = settings.of(2_000, 100_000);
    let client = Client::with_options(ClientOptions::new(server.to_string())).expect("valid options");
    smol::block_on(fill(&client, count));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let driver = runtime.block_on(async { mongodb::Client::with_options(official(server)).expect("valid options") });
    let read = |case: usize, form: Form| {
        let (client, driver) = (client.clone(), driver.clone());
        let sum = match case {
            0 | 2 => smol::block_on(smol::spawn(async move {
                let read_ahead = case == 2;
                match form {
                    Form::Bytes => bytes(&client, read_ahead).await,
                    Form::Document => decoded(&client, read_ahead, id_of).await,
                    Form::Struct => decoded(&client, read_ahead, Order::sum).await,
                }
            })),
            _ => runtime
                .block_on(runtime.spawn(async move {
                    match form {
                        Form::Bytes => official_bytes(&driver).await,
                        Form::Document => official_decoded(&driver, id_of).await,
                        Form::Struct => official_decoded(&driver, Order::sum).await,
                    }
                }))
                .expect("no panic"),
        };
        assert_eq!(sum, (0..count as u64).sum::<u64>(), "each document is read once");
    };
    let mut section = Section::new("cursors");
    for (form, title) in FORMS {
        let columns = ["documents/s", "of the driver", "peak MB", "allocations/document"];
        let mut table = Table::new(format!("a cursor over {count} documents of 1 KB, {title}"), &columns);
        let rounds = Rounds::of(settings.rounds(), 3, |case| {
            let start = Instant::now();
            read(case, form);
            count as f64 / start.elapsed().as_secs_f64()
        });
        for (case, name) in ["poolhouse-smol", "mongodb on tokio", "poolhouse-smol, read_ahead"].into_iter().enumerate()
        {
            let ((), memory) = counted(|| read(case, form));
            let (peak, allocations) = (memory.peak_bytes as f64 / 1e6, memory.allocations as f64 / count as f64);
            table.row(name, &[rounds.median(case), rounds.ratio(case, 1), peak, allocations]);
        }
        section.tables.push(table);
    }
    section
}

/// Inserts the documents.
async fn fill(client: &Client, count: usize) {
    let text = "x".repeat(TEXT_BYTES);
    for first in (0..count).step_by(INSERT) {
        let documents: Vec<Document> = (first..count.min(first + INSERT))
            .map(|id| {
                let id = i32::try_from(id).expect("not many");
                doc! { "_id": id, "customer": "ann", "total": f64::from(id) / 4.0, "paid": id % 2 == 0, "text": &text }
            })
            .collect();
        client.run_command(DATABASE, doc! { "insert": COLLECTION, "documents": documents }).await.expect("inserted");
    }
}

async fn cursor<T>(client: &Client, read_ahead: bool) -> Cursor<T> {
    let (find, further) = (doc! { "find": COLLECTION }, CursorOptions::new().read_ahead(read_ahead));
    let cursor = client.database(DATABASE).run_cursor_command_with(find, CommandOptions::new(), further).await;
    cursor.expect("a cursor")
}

async fn bytes(client: &Client, read_ahead: bool) -> u64 {
    let (mut cursor, mut sum) = (cursor::<Document>(client, read_ahead).await, 0);
    while let Some(document) = cursor.next_raw().await.expect("a document") {
        sum += id_of_raw(document);
    }
    sum
}

async fn decoded<T: DeserializeOwned + Send>(client: &Client, read_ahead: bool, id: fn(&T) -> u64) -> u64 {
    let (mut cursor, mut sum) = (cursor::<T>(client, read_ahead).await, 0);
    while let Some(document) = cursor.try_next().await.expect("a document") {
        sum += id(&document);
    }
    sum
}

async fn official_bytes(driver: &mongodb::Client) -> u64 {
    let collection = driver.database(DATABASE).collection::<Document>(COLLECTION);
    let (mut cursor, mut sum) = (collection.find(doc! {}).await.expect("a cursor"), 0);
    while cursor.advance().await.expect("a document") {
        sum += id_of_raw(cursor.current());
    }
    sum
}

async fn official_decoded<T: DeserializeOwned + Send + Sync>(driver: &mongodb::Client, id: fn(&T) -> u64) -> u64 {
    let collection = driver.database(DATABASE).collection::<T>(COLLECTION);
    let (mut cursor, mut sum) = (collection.find(doc! {}).await.expect("a cursor"), 0);
    while cursor.advance().await.expect("a document") {
        sum += id(&cursor.deserialize_current().expect("a document of this type"));
    }
    sum
}

fn id_of_raw(document: &mongodb::bson::RawDocument) -> u64 {
    u64::try_from(document.get_i32("_id").expect("each has one")).expect("not negative")
}

fn id_of(document: &Document) -> u64 {
    u64::try_from(document.get_i32("_id").expect("each has one")).expect("not negative")
}

impl Order {
    /// Reads every field, and returns the id.
    fn sum(&self) -> u64 {
        let Self { id, customer, total, paid, text } = self;
        assert!(customer == "ann" && *total >= 0.0 && text.len() == TEXT_BYTES && *paid == (id % 2 == 0));
        u64::try_from(*id).expect("not negative")
    }
}
