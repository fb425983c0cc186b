//! Tests of the fake server through a blocking client.

mod bad_input;
mod commands;
#[cfg(feature = "compression")]
mod compression;
mod fail_points;
mod faults;
mod greeting;
mod lifecycle;

use core::time::Duration;
use std::io::{ErrorKind, Read};

use bson::{Document, doc};

use super::wire::EXHAUST_ALLOWED;
use super::{BlockingClient, FakeOptions, FakeServer, ServerState};

/// Much longer than any step of these tests; expires only in failing tests.
const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> FakeServer {
    FakeServer::start(FakeOptions::default()).unwrap()
}

fn start_as(state: ServerState) -> FakeServer {
    FakeServer::start(FakeOptions::with_state(state)).unwrap()
}

fn connect(server: &FakeServer) -> BlockingClient {
    BlockingClient::connect(server.address(), PATIENCE).unwrap()
}

/// A server, and a client of it.
fn connected() -> (FakeServer, BlockingClient) {
    let server = start();
    let client = connect(&server);
    (server, client)
}

/// A server, a client of it, and the reply to the client's first hello.
fn greeted() -> (FakeServer, BlockingClient, Document) {
    let (server, mut client) = connected();
    let reply = client.hello("app").unwrap();
    (server, client, reply)
}

fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

/// An awaitable hello with the topologyVersion of `reply`.
fn awaitable(reply: &Document, time_ms: i64) -> Document {
    let version = reply.get_document("topologyVersion").unwrap().clone();
    doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": time_ms, "$db": "admin" }
}

fn counter(reply: &Document) -> i64 {
    reply.get_document("topologyVersion").unwrap().get_i64("counter").unwrap()
}

fn code(reply: &Document) -> i32 {
    assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
    reply.get_i32("code").unwrap()
}

/// Returns whether no bytes arrive for a while.
pub(super) fn is_silent(client: &mut BlockingClient) -> bool {
    client.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    // Unlike `read` it continues after a signal, such as SIGCONT.
    let read = client.stream().read_exact(&mut [0; 1]);
    client.stream().set_read_timeout(Some(PATIENCE)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn is_ok(reply: &Document) -> bool {
    reply.get_f64("ok").unwrap() == 1.0
}
