//! A relay in front of a mongod that looks like a router, or like a load balancer with routers: it
//! changes the replies to `hello`, and adds the recovery tokens of transactions.
//!
//! It is no router: a transaction on two of them is one on the same server.

use alloc::sync::Arc;
use bson::oid::ObjectId;
use bson::{Document, doc};
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use poolhouse_tests::fake::wire::{self, Form, HEADER_BYTES, Message};
use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The longest message: mongod's limit.
const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// The flag of a message that is not passed on: its checksum would be wrong.
const CHECKSUM_PRESENT: u32 = 1;

/// Fields of a member's `hello` that a router's has not.
const OF_MEMBERS: [&str; 16] = [
    "setName",
    "setVersion",
    "hosts",
    "passives",
    "arbiters",
    "primary",
    "me",
    "electionId",
    "secondary",
    "lastWrite",
    "arbiterOnly",
    "passive",
    "hidden",
    "tags",
    "isreplicaset",
    "isImplicitDefaultMajorityWC",
];

/// A running relay. Dropping it ends it; open connections end with their clients.
#[derive(Debug)]
pub(crate) struct Router {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    sent: Sent,
}

/// The commands that clients sent, with the ids of their requests.
type Sent = Arc<Mutex<Vec<(i32, Document)>>>;

impl Router {
    /// Starts a relay to `server`.
    ///
    /// - `services`: of a load balancer, the ids of the services, which connections get in turn; none
    ///   for a router.
    pub(crate) fn start(server: SocketAddr, services: Vec<ObjectId>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, ends) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (is_ended, sent) = (Arc::clone(&ends), Sent::default());
        let commands = Arc::clone(&sent);
        thread::spawn(move || {
            let next = AtomicUsize::new(0);
            for client in listener.incoming() {
                if is_ended.load(Ordering::Relaxed) {
                    break;
                }
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let service = (!services.is_empty()).then(|| services[turn % services.len()]);
                let Ok(client) = client else { continue };
                // If the server cannot be reached, the connection is closed.
                let _ = relay(&client, server, service, &commands);
            }
        });
        Ok(Self { address, ends, sent })
    }

    /// Takes the commands that clients have sent so far.
    pub(crate) fn take_sent(&self) -> Vec<(i32, Document)> {
        core::mem::take(&mut self.sent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// The ids of requests in transactions that have no reply yet.
type InTransaction = Arc<Mutex<HashSet<i32>>>;

fn relay(client: &TcpStream, server: SocketAddr, service: Option<ObjectId>, sent: &Sent) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let in_transaction = InTransaction::default();
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let (noted, sent) = (Arc::clone(&in_transaction), Arc::clone(sent));
    thread::spawn(move || carry(&from, &to, |frame| request(frame, &noted, &sent)));
    let (from, to) = (server, client.try_clone()?);
    thread::spawn(move || carry(&from, &to, |frame| reply(frame, service, &in_transaction)));
    Ok(())
}

/// Passes messages on until one side ends, and ends both.
fn carry(mut from: &TcpStream, mut to: &TcpStream, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    let mut pass = || -> io::Result<()> {
        let mut frame = vec![0; HEADER_BYTES];
        from.read_exact(&mut frame)?;
        let length = usize::try_from(wire::i32_at(&frame, 0)).unwrap_or_default();
        if !(HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        frame.resize(length, 0);
        from.read_exact(&mut frame[HEADER_BYTES..])?;
        to.write_all(&change(frame))
    };
    while pass().is_ok() {}
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn contains(frame: &[u8], name: &str) -> bool {
    frame.windows(name.len()).any(|part| part == name.as_bytes())
}

/// Notes a command, and removes what mongod does not know.
fn request(frame: Vec<u8>, in_transaction: &InTransaction, sent: &Sent) -> Vec<u8> {
    let mut message = match wire::decode(&frame) {
        Ok(message) => message,
        Err(error) => {
            // No event has it.
            let unread = doc! { "unread": format!("{error:?}") };
            sent.lock().unwrap_or_else(PoisonError::into_inner).push((wire::i32_at(&frame, 4), unread));
            return frame;
        }
    };
    let id = message.header.request_id;
    if message.body.contains_key("autocommit") {
        in_transaction.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }
    sent.lock().unwrap_or_else(PoisonError::into_inner).push((id, message.body.clone()));
    if !contains(&frame, "loadBalanced") && !contains(&frame, "recoveryToken") {
        return frame;
    }
    message.body.remove("loadBalanced");
    message.body.remove("recoveryToken");
    encoded(&message)
}

fn reply(frame: Vec<u8>, service: Option<ObjectId>, in_transaction: &InTransaction) -> Vec<u8> {
    let response_to = wire::i32_at(&frame, 8);
    let is_in_transaction = in_transaction.lock().unwrap_or_else(PoisonError::into_inner).remove(&response_to);
    if !is_in_transaction && !contains(&frame, "maxWireVersion") {
        return frame;
    }
    let Ok(mut message) = wire::decode(&frame) else { return frame };
    if is_in_transaction {
        message.body.insert("recoveryToken", doc! { "recoveryShardId": "shard0" });
    }
    if is_hello(&message.body) {
        as_router(&mut message.body, service);
    }
    encoded(&message)
}

fn is_hello(body: &Document) -> bool {
    body.contains_key("maxWireVersion") && (body.contains_key("isWritablePrimary") || body.contains_key("ismaster"))
}

fn as_router(hello: &mut Document, service: Option<ObjectId>) {
    for name in OF_MEMBERS {
        hello.remove(name);
    }
    let name = if hello.contains_key("ismaster") { "ismaster" } else { "isWritablePrimary" };
    hello.insert(name, true);
    hello.insert("msg", "isdbgrid");
    if let Some(service) = service {
        hello.insert("serviceId", service);
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let (header, mut out) = (message.header, Vec::new());
    match message.form {
        Form::Msg { flags } => {
            let flags = flags & !CHECKSUM_PRESENT;
            wire::encode_msg(&mut out, header.request_id, header.response_to, flags, &message.body);
        }
        Form::Query => wire::encode_query(&mut out, header.request_id, &message.collection, &message.body),
        Form::Reply => wire::encode_reply(&mut out, header.request_id, header.response_to, &message.body),
    }
    out
}
