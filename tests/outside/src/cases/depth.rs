//! Documents of many levels.

use super::{SMALL_STACK_BYTES, STACK_BYTES, cursor, find, first_in_session, read, refused};
use crate::Case;
use crate::server::{Server, batch, document, element};
use poolhouse_smol::bson::{Bson, Document, RawDocument, RawDocumentBuf, Utf8Lossy, doc, rawdoc};
use poolhouse_smol::{Client, CommandOptions, CursorOptions, Error};
use serde::Deserialize;
use std::sync::atomic::Ordering;

/// The levels that a server stores.
const STORED: usize = 180;
/// The levels that a server can be configured to store.
const STORED_MAX: usize = 230;
/// The limit of the library.
const LIMIT: usize = 256;

/// A type of as many levels as the document has.
#[derive(Deserialize)]
struct Node {
    d: Option<Box<Node>>,
}

/// A type for which serde keeps the whole document in memory, at each level.
#[derive(Deserialize)]
#[serde(untagged)]
enum Any {
    Node { d: Box<Any> },
    Leaf {},
}

/// A type that needs much of the stack at each level.
#[derive(Deserialize)]
#[expect(dead_code, reason = "their size matters, not their values")]
struct Wide {
    d: Option<Box<Wide>>,
    f0: Option<Bson>,
    f1: Option<Bson>,
    f2: Option<Bson>,
    f3: Option<Bson>,
    f4: Option<Bson>,
    f5: Option<Bson>,
    f6: Option<Bson>,
    f7: Option<Bson>,
    f8: Option<Bson>,
    f9: Option<Bson>,
    f10: Option<Bson>,
    f11: Option<Bson>,
    f12: Option<Bson>,
    f13: Option<Bson>,
    f14: Option<Bson>,
    f15: Option<Bson>,
    f16: Option<Bson>,
    f17: Option<Bson>,
    f18: Option<Bson>,
    f19: Option<Bson>,
    f20: Option<Bson>,
    f21: Option<Bson>,
    f22: Option<Bson>,
    f23: Option<Bson>,
    f24: Option<Bson>,
    f25: Option<Bson>,
    f26: Option<Bson>,
    f27: Option<Bson>,
    f28: Option<Bson>,
    f29: Option<Bson>,
    f30: Option<Bson>,
    f31: Option<Bson>,
    f32: Option<Bson>,
    f33: Option<Bson>,
    f34: Option<Bson>,
    f35: Option<Bson>,
    f36: Option<Bson>,
    f37: Option<Bson>,
    f38: Option<Bson>,
    f39: Option<Bson>,
}

#[derive(Deserialize)]
struct Value<T> {
    value: T,
}

/// A document with as many others nested in it.
fn nested(levels: usize) -> Vec<u8> {
    (0..levels).fold(document(&[]), |inner, _| document(&[&element(3, "d", &inner)]))
}

/// The same, of arrays.
fn nested_arrays(levels: usize) -> Vec<u8> {
    (0..levels).fold(document(&[]), |inner, _| document(&[&element(4, "0", &inner)]))
}

fn nested_document(levels: usize) -> Document {
    (0..levels).fold(Document::new(), |inner, _| doc! { "d": inner })
}

/// Replies with documents of as many levels as the name of the command says.
fn reply(name: &str, _: &RawDocument) -> Vec<u8> {
    let ok = element(0x10, "ok", &1_i32.to_le_bytes());
    match name {
        "find" => batch(&[nested(STORED), nested_arrays(STORED), nested(1)]),
        "most" => document(&[&element(3, "value", &nested(STORED_MAX)), &ok]),
        "limit" => document(&[&element(3, "value", &nested(LIMIT - 1)), &ok]),
        "limit_and_fails" => document(&[
            &element(3, "value", &nested(LIMIT - 1)),
            &element(0x10, "ok", &[0; 4]),
            &element(0x10, "code", &[2, 0, 0, 0]),
        ]),
        "few" => document(&[&element(3, "value", &nested(24)), &ok]),
        "deeper" => document(&[&element(3, "value", &nested(LIMIT)), &ok]),
        "hostile" => document(&[&element(4, "value", &nested_arrays(10_000)), &ok]),
        "fails" => document(&[
            &element(3, "value", &nested(STORED)),
            &element(0x10, "ok", &[0; 4]),
            &element(0x10, "code", &[2, 0, 0, 0]),
        ]),
        _ => document(&[&element(3, "value", &nested(STORED)), &ok]),
    }
}

fn with_client(test: impl AsyncFnOnce(Client, Server)) {
    let server = Server::start(reply);
    smol::block_on(async {
        let client = Client::new(&server.uri).await.expect("a client");
        test(client.clone(), server).await;
        client.close().await;
    });
}

fn stored() -> Document {
    doc! { "get": 1 }
}

/// The levels of a document.
fn levels(document: &Document) -> usize {
    let mut document = document;
    let mut count = 0;
    while let Ok(inner) = document.get_document("d") {
        (document, count) = (inner, count + 1);
    }
    count
}

fn value(reply: &Document) -> usize {
    levels(reply.get_document("value").expect("a value"))
}

fn raw_value(reply: &RawDocument) -> usize {
    reply.get_document("value").expect("a value").as_bytes().len()
}

pub(super) fn cases() -> Vec<Case> {
    let typed = |name, run| Case { name, stack_bytes: STACK_BYTES, run };
    let raw = |name, run| Case { name, stack_bytes: SMALL_STACK_BYTES, run };
    let narrow = |name, run| Case { name, stack_bytes: STACK_BYTES / 2, run };
    vec![
        typed("180 levels: run_command", || {
            with_client(async |client, _| {
                assert_eq!(value(&client.run_command("shop", stored()).await.expect("a reply")), STORED);
            });
        }),
        typed("230 levels: run_command", || {
            with_client(async |client, _| {
                assert_eq!(value(&client.run_command("shop", doc! { "most": 1 }).await.expect("a reply")), STORED_MAX);
            });
        }),
        typed("180 levels: run_command_as::<Document>", || {
            with_client(async |client, _| {
                let reply: Document = client.run_command_as("shop", stored()).await.expect("a reply");
                assert_eq!(value(&reply), STORED);
            });
        }),
        typed("230 levels: run_command_as::<Document>", || {
            with_client(async |client, _| {
                let reply: Document = client.run_command_as("shop", doc! { "most": 1 }).await.expect("a reply");
                assert_eq!(value(&reply), STORED_MAX);
            });
        }),
        narrow("256 levels: run_command, and with an error of the server", || {
            with_client(async |client, _| {
                let reply = client.run_command("shop", doc! { "limit": 1 }).await.expect("a reply");
                assert_eq!(value(&reply), LIMIT - 1);
                let Err(Error::Command(error)) = client.run_command("shop", doc! { "limit_and_fails": 1 }).await else {
                    panic!("a refusal")
                };
                assert_eq!((error.code, value(&error.reply)), (2, LIMIT - 1));
            });
        }),
        narrow("256 levels: run_command_as::<Document>, and of Utf8Lossy", || {
            with_client(async |client, _| {
                let reply: Document = client.run_command_as("shop", doc! { "limit": 1 }).await.expect("a reply");
                assert_eq!(value(&reply), LIMIT - 1);
                let reply: Utf8Lossy<Document> =
                    client.run_command_as("shop", doc! { "limit": 1 }).await.expect("a reply");
                assert_eq!(value(&reply.0), LIMIT - 1);
            });
        }),
        typed("24 and 256 levels: run_command_as, a type with many fields", || {
            with_client(async |client, _| {
                for command in ["few", "limit"] {
                    let reply: Value<Wide> = client.run_command_as("shop", doc! { command: 1 }).await.expect("a reply");
                    assert!(reply.value.d.is_some());
                }
            });
        }),
        typed("180 levels: run_command_as::<Utf8Lossy<Document>>", || {
            with_client(async |client, _| {
                let reply: Utf8Lossy<Document> = client.run_command_as("shop", stored()).await.expect("a reply");
                assert_eq!(value(&reply.0), STORED);
            });
        }),
        typed("180 levels: run_command_as, a type of the application", || {
            with_client(async |client, _| {
                let reply: Value<Node> = client.run_command_as("shop", stored()).await.expect("a reply");
                assert!(reply.value.d.is_some());
            });
        }),
        typed("180 levels: run_command_as, an untagged type", || {
            with_client(async |client, _| {
                let reply: Value<Any> = client.run_command_as("shop", stored()).await.expect("a reply");
                let mut value = &reply.value;
                let mut count = 0;
                while let Any::Node { d } = value {
                    (value, count) = (d, count + 1);
                }
                assert!(matches!(value, Any::Leaf {}) && count == STORED);
            });
        }),
        typed("180 levels: run_command and run_command_as of a connection", || {
            with_client(async |client, _| {
                let mut connection = client.check_out().await.expect("a connection");
                assert_eq!(value(&connection.run_command("shop", stored()).await.expect("a reply")), STORED);
                let reply: Document = connection.run_command_as("shop", stored()).await.expect("a reply");
                assert_eq!(value(&reply), STORED);
            });
        }),
        typed("180 levels: run_command and run_command_as of a session", || {
            with_client(async |client, _| {
                let mut session = client.start_session(Default::default());
                assert_eq!(value(&session.run_command("shop", stored()).await.expect("a reply")), STORED);
                let reply: Document = session.run_command_as("shop", stored()).await.expect("a reply");
                assert_eq!(value(&reply), STORED);
            });
        }),
        typed("180 levels: cursor of documents", || {
            with_client(async |client, _| {
                let documents = read::<Document>(&client).await;
                let counts: Vec<_> = documents.iter().map(|it| levels(it.as_ref().expect("a document"))).collect();
                assert_eq!(counts, [STORED, 0, 1]);
            });
        }),
        typed("180 levels: cursor of a type of the application", || {
            with_client(async |client, _| {
                let found = read::<Node>(&client).await;
                assert!(found.iter().all(Result::is_ok) && found.len() == 3);
            });
        }),
        typed("180 levels: cursor of a session", || {
            with_client(async |client, _| {
                let first = first_in_session::<Document>(&client).await.expect("a document").expect("the first");
                assert_eq!(levels(&first), STORED);
                assert!(first_in_session::<Node>(&client).await.expect("a document").is_some());
            });
        }),
        typed("180 levels: the error of a command, its text, and the Debug of its reply", || {
            with_client(async |client, _| {
                let Err(Error::Command(error)) = client.run_command("shop", doc! { "fails": 1 }).await else {
                    panic!("a refusal")
                };
                assert_eq!(error.code, 2);
                assert!(!format!("{error:?} {error:#?} {}", error.clone()).is_empty());
                assert!(format!("{:?}", error.reply).len() > STORED);
            });
        }),
        raw("180 levels: run_raw_command", || {
            with_client(async |client, _| {
                let reply = client.run_raw_command("shop", &rawdoc! { "get": 1 }).await.expect("a reply");
                assert_eq!(raw_value(&reply), nested(STORED).len());
                let mut connection = client.check_out().await.expect("a connection");
                let reply = connection.run_raw_command("shop", &rawdoc! { "get": 1 }).await.expect("a reply");
                assert_eq!(raw_value(&reply), nested(STORED).len());
            });
        }),
        raw("180 levels: next_raw", || {
            with_client(async |client, _| {
                let mut cursor = cursor::<Document>(&client).await.expect("a cursor");
                let first = cursor.next_raw().await.expect("a document").expect("the first");
                assert_eq!(first.as_bytes(), nested(STORED));
            });
        }),
        raw("180 levels: next_raw of a session", || {
            with_client(async |client, _| {
                let mut session = client.start_session(Default::default());
                let options = (CommandOptions::new(), CursorOptions::new());
                let cursor = session.run_cursor_command::<Document>("shop", find(), options.0, options.1).await;
                let mut cursor = cursor.expect("a cursor");
                let first = cursor.next_raw(&mut session).await.expect("a document").expect("the first");
                assert_eq!(first.as_bytes(), nested(STORED));
            });
        }),
        raw("257 and 10,000 levels: refused by the limit's name", || {
            with_client(async |client, _| {
                for command in ["deeper", "hostile"] {
                    let raw = RawDocumentBuf::try_from(&doc! { command: 1 }).expect("encodable");
                    let refusals = [
                        refused(client.run_raw_command("shop", &raw).await),
                        refused(client.run_command("shop", doc! { command: 1 }).await),
                        refused(client.run_command_as::<Document>("shop", doc! { command: 1 }).await),
                    ];
                    for text in refusals {
                        assert!(text.contains("more than 256"), "{text}");
                    }
                }
            });
        }),
        raw("text of a document of 250 levels", || {
            let bytes = nested(250);
            let document = poolhouse_smol::poolhouse_wire::bson::RawDocument::new(&bytes).expect("opens");
            assert!(document.relaxed_json().to_string().len() > 250);
        }),
        narrow("200 and 256 levels: sent", || {
            with_client(async |client, server| {
                for levels in [200, LIMIT] {
                    let command = doc! { "put": nested_document(levels - 1) };
                    client.run_command("shop", command).await.expect("it is sent");
                }
                assert_eq!(server.commands.load(Ordering::SeqCst), 2);
            });
        }),
        typed("257, 700 and 5,000 levels: not sent", || {
            with_client(async |client, server| {
                for levels in [LIMIT + 1, 700, 5_000] {
                    let command = || doc! { "put": nested_document(levels - 1) };
                    let arrays = (1..levels).fold(Bson::Null, |inner, _| Bson::Array(vec![inner]));
                    let commented = CursorOptions::new().comment(nested_document(levels));
                    let mut session = client.start_session(Default::default());
                    let mut connection = client.check_out().await.expect("a connection");
                    let refusals: Vec<Error> = vec![
                        client.run_command("shop", command()).await.err(),
                        client.run_command("shop", doc! { "put": [arrays] }).await.err(),
                        client.run_command_as::<Document>("shop", command()).await.err(),
                        client
                            .run_raw_command("shop", &RawDocumentBuf::from_bytes(nested(levels)).expect("opens"))
                            .await
                            .err(),
                        connection.run_command("shop", command()).await.err(),
                        session.run_command("shop", command()).await.err(),
                        client.database("shop").run_cursor_command::<Document>(command()).await.err(),
                        client
                            .database("shop")
                            .run_cursor_command_with::<Document>(find(), CommandOptions::new(), commented)
                            .await
                            .err(),
                    ]
                    .into_iter()
                    .map(|error| error.expect("it is refused"))
                    .collect();
                    for error in refusals {
                        let text = error.to_string();
                        assert!(
                            matches!(error, Error::Bson(_)) && text.contains("more than 256 nested levels"),
                            "{text}"
                        );
                    }
                }
                assert_eq!(server.commands.load(Ordering::SeqCst), 0);
            });
        }),
    ]
}
