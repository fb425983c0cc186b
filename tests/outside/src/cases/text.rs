//! Values that only a conversion refuses, above all text that is not UTF-8.

use super::{STACK_BYTES, cursor, find, first_in_session, read, refused};
use crate::Case;
use crate::server::{Server, batch, document, element, text};
use poolhouse_smol::bson::{Document, RawDocument, Utf8Lossy, doc, rawdoc};
use poolhouse_smol::{Client, Error};
use serde::Deserialize;
use std::sync::atomic::Ordering;

#[derive(Deserialize)]
struct Item {
    n: i32,
    name: Option<String>,
}

/// `{ n, items: [{}, { name: <bad> }] }`.
fn bad(n: i32) -> Vec<u8> {
    let items =
        document(&[&element(3, "0", &document(&[])), &element(3, "1", &document(&[&text("name", b"a\xff\xfeb")]))]);
    document(&[&number(n), &element(4, "items", &items)])
}

fn number(n: i32) -> Vec<u8> {
    element(0x10, "n", &n.to_le_bytes())
}

/// 1,001 documents: the first and the last are bad, and so is one in the middle.
fn documents() -> Vec<Vec<u8>> {
    (0..1001).map(|n| if matches!(n, 0 | 500 | 1000) { bad(n) } else { document(&[&number(n)]) }).collect()
}

/// A document for each value that the bson crate or its users may refuse.
fn odd() -> Vec<Vec<u8>> {
    let key = [&[0x0a], &b"k\xff"[..], &[0]].concat();
    let code = [&b"\x02\0\0\0\xff\0"[..], &document(&[&number(3)])].concat();
    let code = [&i32::try_from(code.len() + 4).expect("short").to_le_bytes()[..], &code].concat();
    let odd = [
        key,
        element(0x0b, "r", b"a\xff\0i\0"),
        element(0x0d, "c", b"\x02\0\0\0\xff\0"),
        element(0x0e, "s", b"\x02\0\0\0\xff\0"),
        element(0x0f, "w", &code),
        element(0x0c, "p", b"\x02\0\0\0\xff\0aaaabbbbcccc"),
        element(9, "d", &i64::MAX.to_le_bytes()),
        element(9, "d", &i64::MIN.to_le_bytes()),
        [number(1), number(2)].concat(),
        element(5, "b", b"\x01\0\0\0\x77x"),
        element(5, "b", b"\x01\0\0\0\x04x"),
        element(0x13, "x", &(0x1f_u128 << 122).to_le_bytes()),
        element(0x13, "x", &(0x1e_u128 << 122).to_le_bytes()),
        element(0x13, "x", &(0b11_u128 << 125 | 7).to_le_bytes()),
        element(1, "f", &f64::NAN.to_le_bytes()),
        element(8, "t", &[2]),
        element(5, "o", b"\x04\0\0\0\x02\x09\0\0\0"),
    ];
    odd.iter().map(|odd| document(&[odd])).chain([document(&[&number(99)])]).collect()
}

fn reply(name: &str, _: &RawDocument) -> Vec<u8> {
    let ok = element(0x10, "ok", &1_i32.to_le_bytes());
    match name {
        "find" => batch(&documents()),
        "aggregate" => batch(&odd()),
        "findAndModify" => document(&[&element(3, "value", &bad(7)), &ok]),
        "write" => {
            let error = document(&[&number(0), &element(0x10, "code", &[121, 0, 0, 0]), &text("errmsg", b"no \xff")]);
            document(&[&ok, &element(4, "writeErrors", &document(&[&element(3, "0", &error)]))])
        }
        "fails" => document(&[
            &element(0x10, "ok", &[0; 4]),
            &text("errmsg", b"no field \xff\xfe here"),
            &element(0x10, "code", &[112, 0, 0, 0]),
            &text("codeName", b"WriteConflict"),
            &element(4, "errorLabels", &document(&[&text("0", b"TransientTransactionError")])),
        ]),
        _ => document(&[&ok]),
    }
}

fn with_client(test: impl AsyncFnOnce(&Client, &Server)) {
    let server = Server::start(reply);
    smol::block_on(async {
        let client = Client::new(&server.uri).await.expect("a client");
        test(&client, &server).await;
        client.run_command("shop", doc! { "ping": 1 }).await.expect("the connection is usable");
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "one connection for all commands");
        client.close().await;
    });
}

fn is_bad(n: usize) -> bool {
    matches!(n, 0 | 500 | 1000)
}

const BAD: &str = "field items.1.name: invalid UTF-8";

pub(super) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, stack_bytes: STACK_BYTES, run };
    vec![
        case("text: a cursor goes on after each bad document, and the error names the field", || {
            with_client(async |client, _| {
                let results = read::<Document>(client).await;
                assert_eq!(results.len(), 1001);
                for (n, result) in results.into_iter().enumerate() {
                    match result {
                        Ok(document) => assert!(document.get_i32("n").ok() == Some(n as i32) && !is_bad(n)),
                        Err(Error::Bson(text)) => {
                            assert!(is_bad(n) && text.contains(BAD) && text.contains("shop.items"), "{text}")
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                let results = read::<Item>(client).await;
                assert!(results.iter().enumerate().all(|(n, item)| item.is_err() == is_bad(n)));
                assert!(refused(first_in_session::<Document>(client).await).contains(BAD));
            });
        }),
        case("text: next_raw returns the bytes of each document", || {
            with_client(async |client, _| {
                let mut cursor = cursor::<Document>(client).await.expect("a cursor");
                for expected in documents() {
                    let found = cursor.next_raw().await.expect("a document").expect("another");
                    assert_eq!(found.as_bytes(), expected);
                }
                assert!(cursor.next_raw().await.expect("the end").is_none());
                let reply = client.run_raw_command("shop", &rawdoc! { "find": "items" }).await.expect("a reply");
                assert_eq!(reply.as_bytes(), batch(&documents()));
            });
        }),
        case("text: Utf8Lossy replaces the bytes", || {
            with_client(async |client, _| {
                let documents = read::<Utf8Lossy<Document>>(client).await;
                assert_eq!(documents.len(), 1001);
                let first = &documents[0].as_ref().expect("a document").0;
                let items = first.get_array("items").expect("a list");
                assert_eq!(items[1].as_document().expect("a document"), &doc! { "name": "a\u{fffd}\u{fffd}b" });
                let items = read::<Utf8Lossy<Item>>(client).await;
                assert!(
                    items
                        .iter()
                        .enumerate()
                        .all(|(n, item)| item.as_ref().is_ok_and(|item| item.n == n as i32 && item.name.is_none()))
                );
                let reply: Utf8Lossy<Document> = client.run_command_as("shop", find()).await.expect("a reply");
                assert!(reply.to_string().contains("a\u{fffd}\u{fffd}b"));
                let first = first_in_session::<Utf8Lossy<Item>>(client).await.expect("a document").expect("the first");
                assert_eq!(first.n, 0);
            });
        }),
        case("text: a command that was executed is reported as executed, once", || {
            with_client(async |client, server| {
                let command = || doc! { "findAndModify": "items", "query": {}, "update": { "$inc": { "n": 1 } } };
                let mut session = client.start_session(Default::default());
                let errors = [
                    client.run_command("shop", command()).await.expect_err("no conversion"),
                    client.run_command_as::<Document>("shop", command()).await.expect_err("no conversion"),
                    session.run_command("shop", command()).await.expect_err("no conversion"),
                    client
                        .check_out()
                        .await
                        .expect("a connection")
                        .run_command("shop", command())
                        .await
                        .expect_err("no conversion"),
                ];
                for error in &errors {
                    let text = error.to_string();
                    assert!(
                        matches!(error, Error::Bson(_)) && !error.is_retryable() && !error.is_transient(),
                        "{text}"
                    );
                    assert!(
                        text.contains("the command was executed") && text.contains("field value.items.1.name"),
                        "{text}"
                    );
                }
                assert_eq!(server.commands.load(Ordering::SeqCst), errors.len());
                let reply: Utf8Lossy<Document> = client.run_command_as("shop", command()).await.expect("a reply");
                assert_eq!(reply.get_document("value").expect("a value").get_i32("n").ok(), Some(7));
            });
        }),
        case("text: an error of the server keeps its code, name and labels", || {
            with_client(async |client, _| {
                let Err(Error::Command(error)) = client.run_command("shop", doc! { "fails": 1 }).await else {
                    panic!("a refusal")
                };
                assert_eq!((error.code, error.code_name.as_deref()), (112, Some("WriteConflict")));
                assert_eq!(error.labels, ["TransientTransactionError"]);
                assert_eq!(error.message.as_deref(), Some("no field \u{fffd}\u{fffd} here"));
                let Err(Error::Write(error)) = client.run_command("shop", doc! { "write": 1 }).await else {
                    panic!("a failed write")
                };
                assert_eq!((error.code, error.message.as_deref()), (121, Some("no \u{fffd}")));
            });
        }),
        case("values: each odd value is read, or refused alone by the name of its field", || {
            with_client(async |client, _| {
                let command = || doc! { "aggregate": "items" };
                let database = client.database("shop");
                let mut raw = database.run_cursor_command::<Document>(command()).await.expect("a cursor");
                for expected in odd() {
                    assert_eq!(raw.next_raw().await.expect("a document").expect("another").as_bytes(), expected);
                }
                let mut strict = database.run_cursor_command::<Document>(command()).await.expect("a cursor");
                let mut fields = Vec::new();
                let mut count = 0;
                while let Some(result) = strict.try_next().await.transpose() {
                    count += 1;
                    if let Err(error) = result {
                        let text = error.to_string();
                        let field = text.split("field ").nth(1).and_then(|rest| rest.split(':').next());
                        fields.push(field.unwrap_or_else(|| panic!("{text}")).to_owned());
                    }
                }
                assert_eq!(count, odd().len());
                assert_eq!(fields, ["k\u{fffd}", "r", "c", "s", "w", "p", "t", "o"]);
                let mut lossy = database.run_cursor_command::<Utf8Lossy<Document>>(command()).await.expect("a cursor");
                let mut refused = 0;
                while let Some(result) = lossy.try_next().await.transpose() {
                    refused += usize::from(result.is_err());
                }
                // A boolean that is neither true nor false, and bytes whose two lengths differ, are no texts.
                assert_eq!(refused, 2);
            });
        }),
    ]
}
