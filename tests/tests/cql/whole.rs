//! Commands that affect the whole server.

use poolhouse_cql::Version;
use poolhouse_tests::cql_server::{Act, CqlClient, CqlServer, CqlServerOptions, Cut, Order, Rule};
use std::io;

use super::{PATIENCE, ask, connected, started};

#[test]
fn port_refuses_and_accepts_again() {
    let server = started();
    let mut client = connected(&server, Version::V4);
    for round in 0..3 {
        server.refuse().expect("a socket");
        server.refuse().expect("refusing twice has no effect");
        let error = CqlClient::open(server.address(), Version::V4, PATIENCE).expect_err("connections are refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // Existing connections stay.
        assert_eq!(ask(&mut client, 1, "echo me"), b"me");
        server.resume().expect("the port is reserved");
        let mut other = connected(&server, Version::V4);
        assert_eq!(ask(&mut other, 1, "echo you"), b"you");
        assert_eq!(server.counts().accepted, 2 + round);
    }
}

#[test]
fn killed_server_resets_its_connections_and_restarts() {
    let server = started();
    let mut clients: Vec<_> = (0..5).map(|_| connected(&server, Version::V5)).collect();
    server.kill().expect("a socket");
    assert_eq!(server.counts().open, 0);
    for client in &mut clients {
        let error = client.reply().expect_err("the connection has ended");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert!(CqlClient::open(server.address(), Version::V5, PATIENCE).is_err());
    server.resume().expect("the port is reserved");
    let mut client = connected(&server, Version::V5);
    assert_eq!(ask(&mut client, 1, "echo me"), b"me");
}

#[test]
fn connections_are_cut_one_by_one() {
    let server = started();
    let mut first = connected(&server, Version::V5);
    let mut second = connected(&server, Version::V5);
    server.cut(1, Cut::Close);
    assert_eq!(first.reply().expect_err("the connection has ended").kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(ask(&mut second, 1, "echo me"), b"me");
    server.cut_all(Cut::Reset);
    assert_eq!(second.reply().expect_err("the connection has ended").kind(), io::ErrorKind::ConnectionReset);
    assert!(server.wait_until(PATIENCE, |server| server.counts().open == 0));
}

#[test]
fn dropped_server_ends_in_any_state_of_its_connections() {
    let server = started();
    server.add(Rule::statements(Act::Delay(PATIENCE * 100)).text("echo late"));
    server.add(Rule::statements(Act::Hold { count: 9, order: Order::Kept }).text("echo held"));
    let mut client = connected(&server, Version::V4);
    client.query(1, "echo late").expect("connected");
    client.query(2, "echo held").expect("connected");
    assert!(server.wait_until(PATIENCE, |server| server.counts().waiting == 2));
    // The client does not read the server's replies.
    let mut stuck = connected(&server, Version::V4);
    for stream in 0..20 {
        stuck.query(stream, "bytes 4000000").expect("connected");
    }
    assert!(server.wait_until(PATIENCE, |server| server.counts().requests >= 5));
    let mut paused = connected(&server, Version::V4);
    server.pause_reading();
    paused.query(1, "echo me").expect("connected");
    drop(server);
    assert!(client.reply().is_err());
    assert!(paused.reply().is_err());
}

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
