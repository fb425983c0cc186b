//! The fake Cassandra server, with drivers of other projects as its clients. The suites of
//! sessions, which use each of its faults, are runtime-smol/tests/mux.rs and
//! tests/src/contract/hosted/mux.

extern crate alloc;

#[path = "cql/python_client.rs"]
mod python_client;
#[path = "cql/scylla_client.rs"]
mod scylla_client;

use poolhouse_tests::cql_server::{CqlServer, CqlServerOptions};
use std::io;

#[test]
fn server_requires_a_loopback_address_and_a_version() {
    let mut options = CqlServerOptions::default();
    options.ip = "0.0.0.0".parse().expect("an address");
    assert_eq!(CqlServer::start(options).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
    let options = CqlServerOptions::with_versions(&[]);
    assert_eq!(CqlServer::start(options).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn password_is_not_shown() {
    let shown = format!("{:?}", CqlServerOptions::default().with_credentials("ada", "pencil"));
    assert!(!shown.contains("pencil"), "{shown}");
}
