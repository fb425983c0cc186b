//! The blocking example's client against the fake server: no async, one thread, real sockets.

#[path = "../../core/examples/blocking/client.rs"]
mod client;

use client::Client;
use core::error::Error;
use core::time::Duration;
use poolhouse_core::Cause;
use poolhouse_core::pool::{CheckOutError, PoolState};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::hello::{ClientMetadata, MetadataOptions};
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);

fn metadata() -> ClientMetadata {
    let options = MetadataOptions { driver_name: "test", driver_version: "1", os_type: "none", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

fn start() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("loopback")
}

/// Sends a ping. Returns the code of the server's error, if it is one.
fn ping(client: &mut Client<'_>, limit: Duration) -> Result<Option<i32>, Box<dyn Error>> {
    let reply = client.run(limit, |command| command.int32("ping", 1).map(drop))?;
    let reply = CommandReply::parse(RawDocument::new(&reply)?)?;
    Ok(reply.code.filter(|_| !reply.ok))
}

#[test]
fn server_is_found_and_pinged_over_one_connection_in_addition_to_the_monitors() {
    let (server, metadata) = (start(), metadata());
    let mut client = Client::new(server.address(), &metadata, LIMIT).expect("valid");
    assert_eq!(server.accepted_count(), 0, "nothing is connected before the first operation");
    for _ in 0..10 {
        assert_eq!(ping(&mut client, LIMIT).expect("answered"), None);
    }
    assert_eq!((server.accepted_count(), server.count_of("ping")), (2, 10));
    assert!(client.server.topology().servers().all(|server| server.round_trip_time().is_some()));
    drop(client);
    server.wait_until(LIMIT, |view| view.open_count() == 0).expect("closed");
}

/// The server shuts down, says so, and is found again by the next check.
#[test]
fn a_reply_of_a_server_that_shuts_down_clears_the_pool() {
    let (server, metadata) = (start(), metadata());
    let mut client = Client::new(server.address(), &metadata, LIMIT).expect("valid");
    ping(&mut client, LIMIT).expect("answered");
    server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(91));
    assert_eq!(ping(&mut client, LIMIT).expect("answered"), Some(91));
    assert_eq!(client.server.pool().state(), PoolState::Paused);
    assert_eq!(ping(&mut client, LIMIT).expect("answered"), None);
    assert_eq!(client.server.pool().generation().get(), 1);
}

#[test]
fn server_is_used_again_after_its_restart() {
    let (server, metadata) = (start(), metadata());
    let mut client = Client::new(server.address(), &metadata, LIMIT).expect("valid");
    ping(&mut client, LIMIT).expect("answered");
    server.kill().expect("killed");
    server.restart().expect("restarted");
    let error = ping(&mut client, LIMIT).expect_err("the connection was closed");
    assert_eq!(error.downcast_ref::<Cause>(), Some(&Cause::Network), "{error}");
    assert_eq!(ping(&mut client, LIMIT).expect("on a new connection"), None);
}

#[test]
fn an_operation_fails_at_its_limit_while_the_server_refuses_connections() {
    let (server, metadata) = (start(), metadata());
    let mut client = Client::new(server.address(), &metadata, LIMIT).expect("valid");
    server.kill().expect("killed");
    let (begin, limit) = (Instant::now(), Duration::from_millis(700));
    let error = ping(&mut client, limit).expect_err("nothing listens");
    assert!(begin.elapsed() >= limit, "the server is checked until the limit");
    let cleared = CheckOutError::PoolCleared { cause: Some(Cause::Network) };
    assert_eq!(error.downcast_ref::<CheckOutError>(), Some(&cleared), "{error}");
}

/// A server that accepts connections and does not answer costs connectTimeoutMS in each check, and
/// a command its own limit.
#[test]
fn silent_server_costs_no_more_than_the_limits() {
    let (server, metadata) = (start(), metadata());
    let limit = Duration::from_millis(200);
    server.freeze();
    let mut client = Client::new(server.address(), &metadata, limit).expect("valid");
    let error = ping(&mut client, limit).expect_err("no hello");
    let cleared = CheckOutError::PoolCleared { cause: Some(Cause::NetworkTimeout) };
    assert_eq!(error.downcast_ref::<CheckOutError>(), Some(&cleared), "{error}");
    server.thaw();
    // The limit of a connection is short: on a busy machine the first one may fail.
    let begin = Instant::now();
    while let Err(error) = ping(&mut client, LIMIT) {
        assert!(error.is::<CheckOutError>() && begin.elapsed() < LIMIT, "{error}");
    }
    server.freeze();
    let begin = Instant::now();
    let error = ping(&mut client, limit).expect_err("no reply");
    assert_eq!(error.downcast_ref::<Cause>(), Some(&Cause::NetworkTimeout), "{error}");
    assert!(begin.elapsed() >= limit);
    server.thaw();
}
