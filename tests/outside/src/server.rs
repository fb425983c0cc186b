//! A server that replies with documents of any bytes.

use poolhouse_smol::bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A server on loopback. It lives as long as the process.
pub(crate) struct Server {
    pub(crate) uri: String,
    /// How many commands of applications it has received.
    pub(crate) commands: Arc<AtomicUsize>,
    /// How many connections have carried such a command.
    pub(crate) connections: Arc<AtomicUsize>,
}

/// The reply to a command of an application.
pub(crate) type Reply = fn(name: &str, command: &RawDocument) -> Vec<u8>;

impl Server {
    pub(crate) fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("bound");
        let (commands, connections) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (Arc::clone(&commands), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counts = counts.clone();
                thread::spawn(move || serve(stream, reply, &counts.0, &counts.1));
            }
        });
        Self { uri: format!("mongodb://{address}/?maxPoolSize=1"), commands, connections }
    }
}

/// Serves a connection until its end.
fn serve(mut stream: TcpStream, reply: Reply, commands: &AtomicUsize, connections: &AtomicUsize) {
    let mut is_counted = false;
    loop {
        let mut header = [0; 16];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let number = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let mut rest = vec![0; usize::try_from(number(0)).expect("positive") - header.len()];
        if stream.read_exact(&mut rest).is_err() {
            return;
        }
        let request_id = number(4);
        // Four bytes of flags, and the kind of the only section.
        let command = RawDocument::from_bytes(&rest[5..]).expect("one document");
        let (name, _) = command.iter().next().expect("a command").expect("well-formed");
        let body = match name.as_str() {
            "hello" | "isMaster" | "ismaster" => hello().into_bytes(),
            "endSessions" | "killCursors" => rawdoc! { "ok": 1 }.into_bytes(),
            name => {
                commands.fetch_add(1, Ordering::SeqCst);
                if !core::mem::replace(&mut is_counted, true) {
                    connections.fetch_add(1, Ordering::SeqCst);
                }
                reply(name, command)
            }
        };
        let length = i32::try_from(21 + body.len()).expect("short");
        let mut message = Vec::new();
        for number in [length, 1, request_id, 2013, 0] {
            message.extend(number.to_le_bytes());
        }
        message.push(0);
        message.extend(body);
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

fn hello() -> RawDocumentBuf {
    rawdoc! {
        "ok": 1,
        "isWritablePrimary": true,
        "helloOk": true,
        "msg": "isdbgrid",
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "logicalSessionTimeoutMinutes": 30,
    }
}

/// The bytes of a document of these elements.
pub(crate) fn document(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    let length = i32::try_from(elements.len() + 5).expect("short");
    [&length.to_le_bytes()[..], &elements, &[0]].concat()
}

/// An element of type, key and value.
pub(crate) fn element(tag: u8, key: &str, value: &[u8]) -> Vec<u8> {
    [&[tag], key.as_bytes(), &[0], value].concat()
}

/// An element that is a text of any bytes.
pub(crate) fn text(key: &str, text: &[u8]) -> Vec<u8> {
    let length = i32::try_from(text.len() + 1).expect("short");
    element(2, key, &[&length.to_le_bytes()[..], text, &[0]].concat())
}

/// `{ ok: 1, cursor: { id: 0, ns, firstBatch: documents } }`.
pub(crate) fn batch(documents: &[Vec<u8>]) -> Vec<u8> {
    let keyed = documents.iter().enumerate().map(|(place, document)| element(3, &place.to_string(), document));
    let elements = document(&[&keyed.collect::<Vec<_>>().concat()]);
    let cursor =
        document(&[&element(0x12, "id", &[0; 8]), &text("ns", b"shop.items"), &element(4, "firstBatch", &elements)]);
    document(&[&element(3, "cursor", &cursor), &element(0x10, "ok", &1_i32.to_le_bytes())])
}
