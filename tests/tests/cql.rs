//! The fake Cassandra server: its specified behaviour and faults, and drivers of other projects as
//! its clients.

extern crate alloc;

#[path = "cql/faults.rs"]
mod faults;
#[path = "cql/handshake.rs"]
mod handshake;
#[path = "cql/python_client.rs"]
mod python_client;
#[path = "cql/requests.rs"]
mod requests;
#[path = "cql/scylla_client.rs"]
mod scylla_client;
#[path = "cql/whole.rs"]
mod whole;

use core::time::Duration;

use poolhouse_cql::Version;
use poolhouse_tests::cql_server::{CqlClient, CqlServer, CqlServerOptions};
pub use poolhouse_tests::patience::PATIENCE;

/// All versions, the oldest first.
const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];
/// The time for which nothing may happen.
const SILENCE: Duration = Duration::from_millis(50);

fn started() -> CqlServer {
    CqlServer::start(CqlServerOptions::default()).expect("loopback")
}

fn open(server: &CqlServer, version: Version) -> CqlClient {
    CqlClient::open(server.address(), version, PATIENCE).expect("it listens")
}

fn connected(server: &CqlServer, version: Version) -> CqlClient {
    let mut client = open(server, version);
    client.startup(None, None).expect("the server requires no password");
    client
}

/// Sends one request, and takes the next reply for its answer.
fn ask(client: &mut CqlClient, stream: i16, text: &str) -> Vec<u8> {
    client.query(stream, text).expect("connected");
    let reply = client.reply().expect("an answer");
    let (to, cell) = reply.cell().expect("a cell");
    assert_eq!(to, stream);
    cell.to_vec()
}
