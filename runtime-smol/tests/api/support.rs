//! Shared by the tests of the interface.

use poolhouse_smol::{Client, ClientOptions, ServerMonitoringMode};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
pub(crate) use poolhouse_tests::patience::{refused, run};

pub(crate) fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

/// Options for the fake server. The monitor polls, which makes the sent commands exact.
pub(crate) fn options(server: &FakeServer) -> ClientOptions {
    ClientOptions::new(server.address().to_string()).server_monitoring_mode(ServerMonitoringMode::Poll)
}

pub(crate) fn client(options: ClientOptions) -> Client {
    Client::with_options(options).expect("the options are right")
}

/// The commands of this name that a server received, unchanged.
pub(crate) fn sent(server: &FakeServer, name: &str) -> Vec<bson::Document> {
    let log = server.log().into_iter().filter(|received| received.name == name);
    log.map(|received| received.body.expect("a small command")).collect()
}
