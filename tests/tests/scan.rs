//! A client of the scan machine against the fake server: no async, one thread, real sockets.

#[path = "scan/client.rs"]
mod client;

use core::time::Duration;
use std::time::Instant;

use client::{Client, Error};
use poolhouse_core::scan::ScanOptions;
use poolhouse_core::selection::{ReadMode, ReadPreference, SelectionCriteria, SelectionFailure};
use poolhouse_core::topology::{TopologyOptions, TopologyType};
use poolhouse_tests::fake::{FailPoint, FailPointMode, FakeOptions, FakeServer, Role, ServerState};
use poolhouse_tests::patience::Stopwatch;

const WRITE: SelectionCriteria<'_> = SelectionCriteria::write();
const SECONDARY: SelectionCriteria<'_> = SelectionCriteria::read(ReadPreference::of(ReadMode::Secondary));

fn ping(client: &mut Client, criteria: &SelectionCriteria<'_>) -> Result<String, Error> {
    client.run(criteria, "admin", |command| command.int32("ping", 1).map(drop))
}

/// A set of `count` members; the first one is primary.
fn set(count: usize) -> Vec<FakeServer> {
    let servers: Vec<FakeServer> =
        (0..count).map(|_| FakeServer::start(FakeOptions::default()).expect("loopback")).collect();
    elect(&servers, 0);
    servers
}

/// Makes one member the primary, and the others its secondaries.
fn elect(servers: &[FakeServer], primary: usize) {
    let hosts: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    for (place, server) in servers.iter().enumerate() {
        let role = if place == primary { Role::Primary } else { Role::Secondary };
        server.set_state(ServerState::member(role, "rs", &names, names[place], Some(names[primary])));
    }
}

fn address(server: &FakeServer) -> String {
    server.address().to_string()
}

#[test]
fn a_standalone_is_found_and_pinged_over_one_connection() {
    let server = FakeServer::start(FakeOptions::default()).expect("loopback");
    let mut client = Client::new(&[&address(&server)]).expect("valid");
    assert_eq!(server.accepted_count(), 0, "nothing is connected before the first operation");
    for _ in 0..10 {
        assert_eq!(ping(&mut client, &WRITE).expect("answered"), address(&server));
    }
    assert_eq!(client.topology().topology_type(), TopologyType::Single);
    assert_eq!((server.accepted_count(), server.count_of("ping")), (1, 10));
    client.close();
    server.wait_until(Duration::from_secs(10), |view| view.open_count() == 0).expect("closed");
    assert!(matches!(ping(&mut client, &WRITE), Err(Error::Selection(error))
        if error.error().failure() == SelectionFailure::Closed));
}

#[test]
fn a_set_is_discovered_from_one_secondary() {
    let servers = set(3);
    let mut client = Client::new(&[&address(&servers[2])]).expect("valid");
    assert_eq!(ping(&mut client, &WRITE).expect("answered"), address(&servers[0]));
    assert_eq!(client.topology().topology_type(), TopologyType::ReplicaSetWithPrimary);
    assert_eq!(client.topology().servers().count(), 3);
    assert_ne!(ping(&mut client, &SECONDARY).expect("answered"), address(&servers[0]));
}

/// The operation after a "not writable primary" begins with a scan, and finds the new
/// primary.
#[test]
#[doc(alias = "SDAM-82")]
fn a_new_primary_is_found_by_the_next_operation() {
    let servers = set(2);
    let mut client = Client::new(&[&address(&servers[0])]).expect("valid");
    assert_eq!(ping(&mut client, &WRITE).expect("answered"), address(&servers[0]));
    elect(&servers, 1);
    servers[0].set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(10_107));
    let error = ping(&mut client, &WRITE).expect_err("the primary steps down");
    assert!(matches!(error, Error::Command { code: 10_107, .. }), "{error}");
    assert_eq!(ping(&mut client, &WRITE).expect("answered"), address(&servers[1]));
    assert_eq!(ping(&mut client, &SECONDARY).expect("answered"), address(&servers[0]));
    assert_eq!(servers[0].accepted_count(), 1, "the connection is reused");
}

#[test]
fn server_is_used_again_after_its_restart() {
    let servers = set(1);
    let mut client = Client::new(&[&address(&servers[0])]).expect("valid");
    ping(&mut client, &WRITE).expect("answered");
    servers[0].kill().expect("killed");
    servers[0].restart().expect("restarted");
    let error = ping(&mut client, &WRITE).expect_err("the connection was closed");
    assert!(matches!(error, Error::Connection(_)), "{error}");
    ping(&mut client, &WRITE).expect("on a new connection");
}

/// With serverSelectionTryOnce selection fails as soon as one scan has failed, and the
/// error contains the result of the scan.
#[test]
#[doc(alias = "MON-60")]
fn set_without_servers_fails_at_once_with_the_reason() {
    let servers = set(2);
    let seeds = [address(&servers[0]), address(&servers[1])];
    for server in &servers {
        server.kill().expect("killed");
    }
    let mut client = Client::new(&[&seeds[0], &seeds[1]]).expect("valid");
    let begun = Stopwatch::start();
    let error = ping(&mut client, &WRITE).expect_err("no server is reachable");
    // Another scan would begin half a second later.
    begun.assert_below(Duration::from_millis(400));
    let text = error.to_string();
    for seed in &seeds {
        assert!(text.contains(&format!("{seed}: Unknown (network error)")), "{text}");
    }
}

/// A server that accepts connections and does not answer costs connectTimeoutMS, and no more.
#[test]
fn a_silent_server_costs_the_connect_timeout() {
    let server = FakeServer::start(FakeOptions::default()).expect("loopback");
    server.freeze();
    let limit = Duration::from_millis(200);
    let options = ScanOptions { connect_timeout: Some(limit), ..ScanOptions::DEFAULT };
    let seed = address(&server);
    let topology = TopologyOptions { seeds: &[&seed], ..TopologyOptions::default() };
    let mut client = Client::with_options(topology, options.validate().expect("valid")).expect("valid");
    let (begin, begun) = (Instant::now(), Stopwatch::start());
    let error = ping(&mut client, &WRITE).expect_err("the server does not answer");
    assert!(error.to_string().contains("network timeout"), "{error}");
    assert!(begin.elapsed() >= limit);
    begun.assert_below(limit * 2);
    server.thaw();
}
