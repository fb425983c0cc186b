//! What the tests of the interface share.

use core::fmt::Debug;
use core::time::Duration;
use poolhouse_smol::{Client, ClientOptions, Error, ServerMonitoringMode};
use poolhouse_tests::fake::{FakeOptions, FakeServer};
use smol::future::FutureExt;

/// Runs a test, which fails when it hangs.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let limit = async {
        smol::Timer::after(Duration::from_secs(90)).await;
        panic!("the test hangs");
    };
    smol::block_on(test.or(limit))
}

pub(crate) fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("the fake server starts")
}

/// Options for the fake server, whose monitor polls so that what is sent is exact.
pub(crate) fn options(server: &FakeServer) -> ClientOptions {
    ClientOptions::new(server.address().to_string()).server_monitoring_mode(ServerMonitoringMode::Poll)
}

pub(crate) fn client(options: ClientOptions) -> Client {
    Client::new(options).expect("the options are right")
}

/// The commands of this name that a server was sent, each as it came.
pub(crate) fn sent(server: &FakeServer, name: &str) -> Vec<bson::Document> {
    let log = server.log().into_iter().filter(|received| received.name == name);
    log.map(|received| received.body.expect("a small command")).collect()
}

/// The error of something that must not succeed.
pub(crate) fn refused<T: Debug>(result: Result<T, Error>) -> Error {
    match result {
        Ok(value) => panic!("it succeeded: {value:?}"),
        Err(error) => error,
    }
}
