mod failures;
mod rig;

use super::*;
use crate::ServerType;
use crate::monitor::ServerMonitoringMode;
use crate::pool::{PoolOptions, PoolState};
use crate::topology::TopologyOptions;
use alloc::string::ToString;
use alloc::vec::Vec;
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::{AuthError, Round};
use rig::{Answer, Rig, client, fixed, heap, machine, second};

/// A check-out that waits for its connection, a command, a check-in, and a check-out that finds the
/// connection.
fn one_operation<P: pool::Memory, T: topology::Memory>(mut rig: Rig<'_, P, T>) {
    let early = rig.server.check_out(rig.now, None, &mut rig.events);
    assert!(matches!(early, Err(CheckOutError::PoolCleared { cause: None })), "the server was not checked yet");
    rig.run();
    assert_eq!(rig.server.pool().state(), PoolState::Ready);
    let lease = rig.check_out().expect("established");
    assert_eq!(rig.server.established(&lease).expect("ready").server_type, ServerType::Standalone);
    assert_eq!(rig.ping(&lease), Ok(()));
    assert_eq!(rig.ping(&lease), Ok(()), "again on the same connection");
    rig.check_in(lease);
    let lease = rig.check_out().expect("available");
    assert_eq!(lease.conn().connection_id().get(), 1, "the same connection");
    rig.check_in(lease);
    assert_eq!((rig.server.pool().counts().available, rig.dials), (1, 2), "the monitor's and the pool's");
}

#[test]
fn a_connection_is_established_used_and_returned_on_the_heap() {
    one_operation(heap(&client()));
}

#[test]
fn a_connection_is_established_used_and_returned_in_fixed_memory() {
    one_operation(fixed(&client()));
}

/// Four connections, eight waiters, and a server in a set of up to twelve members.
#[test]
fn fixed_memory_is_at_most_six_kilobytes() {
    type Small<'a> = ServerMachine<'a, pool::Fixed<4, 8>, topology::Fixed<1, 16, 24, 512>>;
    assert!(size_of::<Small<'_>>() <= 6 * 1024, "{} bytes", size_of::<Small<'_>>());
}

#[test]
fn a_check_out_that_waits_is_woken_and_one_that_is_cancelled_leaves_the_queue() {
    let client = client();
    let mut rig = fixed(&client);
    rig.run();
    let leases = [rig.check_out().expect("first"), rig.check_out().expect("second")];
    let Ok(CheckOut::Queued(first)) = rig.server.check_out(rig.now, None, &mut rig.events) else { panic!() };
    let Ok(CheckOut::Queued(second)) = rig.server.check_out(rig.now, None, &mut rig.events) else { panic!() };
    rig.server.cancel(rig.now, first, &mut rig.events);
    assert_eq!(rig.server.claim(rig.now, first), Claim::Stale);
    leases.into_iter().for_each(|lease| rig.check_in(lease));
    assert_eq!(rig.woken.last(), Some(&second));
    assert!(!rig.woken.contains(&first));
    let Claim::Granted(lease) = rig.server.claim(rig.now, second) else { panic!("the one that waits") };
    rig.check_in(lease);
}

#[test]
fn requests_carry_the_stable_api_and_numbers_that_rise() {
    let client = client();
    let api = poolhouse_wire::hello::ServerApi { version: "1", strict: None, deprecation_errors: None };
    let hello = HandshakeHello { server_api: Some(api), ..HandshakeHello::new(&client) };
    let mut rig: Rig<'_, pool::OnHeap, topology::OnHeap> = Rig::new(machine(hello, PoolOptions::DEFAULT));
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.ping(&lease).expect("its reply");
    assert!(rig.requests.iter().all(|(_, name, api)| *api && name != "isMaster"), "{:?}", rig.requests);
    let ids: Vec<i32> = rig.requests.iter().filter(|(_, name, _)| name != "isMaster").map(|one| one.0).collect();
    assert_eq!(ids, [1, 1, 2], "the check, the handshake, the command");
    rig.check_in(lease);
}

#[test]
fn a_command_that_cannot_be_encoded_leaves_the_connection_usable() {
    let client = client();
    let mut rig = heap(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    let mut small = heapless::Vec::<u8, 16>::new();
    let sent = rig.server.write_command(&lease, None, "admin", &mut small, |body| body.int32("ping", 1).map(drop));
    assert_eq!(sent, Err(CommandNotSent::Encode(EncodeError::Full)));
    assert_eq!((small.len(), rig.server.failure(&lease)), (0, None));
    rig.ping(&lease).expect("its reply");
    rig.check_in(lease);
    assert_eq!(rig.server.pool().counts().available, 1);
}

/// Both replies of a stream arrive in one piece, and are handled without an action between them.
#[test]
fn replies_of_a_stream_may_arrive_together() {
    let client = client();
    let mut rig = heap(&client);
    rig.answer = Answer::Streams(1);
    rig.run();
    rig.advance(second(1));
    assert!(rig.server.control.monitor(rig.server.server).expect("its monitor").is_streaming());
    let checks = rig.count("ServerHeartbeatSucceeded");
    rig.stream(3);
    assert_eq!(rig.count("ServerHeartbeatSucceeded"), checks + 3);
    assert_eq!(rig.count("ServerHeartbeatFailed"), 0);
}

#[test]
fn a_load_balancer_is_not_checked_and_connections_belong_to_services() {
    let client = client();
    let options = PoolOptions { load_balanced: true, ..PoolOptions::DEFAULT };
    let mut rig: Rig<'_, pool::OnHeap, topology::OnHeap> = Rig::new(machine(HandshakeHello::new(&client), options));
    rig.answer = Answer::Service;
    rig.run();
    assert_eq!((rig.dials, rig.server.pool().state()), (0, PoolState::Ready));
    let lease = rig.check_out().expect("established");
    let service = rig.server.pool().conn_service(lease.conn()).expect("from its hello");
    assert_eq!(rig.server.established(&lease).expect("ready").server_type, ServerType::LoadBalancer);
    rig.answer = Answer::Command(91);
    assert_eq!(rig.ping(&lease), Err(Cause::Command { code: 91 }));
    assert_eq!(rig.server.pool().service_generation(service).get(), 1, "the service is shutting down");
    rig.check_in(lease);
    assert_eq!(rig.server.pool().counts().total(), 0);
}

/// One command after hello, and a computation in two steps before it.
#[derive(Default)]
struct Slow(u8);

impl Authenticator for Slow {
    fn write_hello<S: Sink>(&self, _: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn handle_hello(&mut self, _: &HelloReply<'_>) -> Result<Round, AuthError> {
        Ok(Round::Work)
    }

    fn database(&self) -> &str {
        "users"
    }

    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        command.int32("saslStart", 1).map(drop)
    }

    fn work(&mut self) -> Result<Round, AuthError> {
        self.0 += 1;
        Ok(if self.0 < 2 { Round::Work } else { Round::Another })
    }

    fn handle_reply(&mut self, _: RawDocument<'_>) -> Result<Round, AuthError> {
        Ok(Round::Done)
    }
}

#[test]
fn connections_authenticate_and_monitors_do_not() {
    let client = client();
    let server = machine(HandshakeHello::new(&client), PoolOptions::DEFAULT);
    let mut rig: Rig<'_, pool::OnHeap, topology::OnHeap, Slow> = Rig::new(server);
    rig.run();
    let lease = rig.check_out().expect("established");
    let names: Vec<&str> = rig.requests.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["isMaster", "isMaster", "saslStart"], "a check, and a handshake with one round");
    rig.check_in(lease);
    rig.answer = Answer::Command(18);
    let _first = rig.check_out().expect("available");
    let refused = rig.check_out().expect_err("the credentials are wrong");
    assert_eq!(refused, CheckOutError::EstablishFailed { cause: Cause::Authentication, overloaded: false });
    assert_eq!(rig.server.pool().generation().get(), 1, "the failed authentication clears the pool");
}

#[test]
fn closing_closes_every_socket_and_fails_check_outs() {
    let client = client();
    let mut rig = fixed(&client);
    rig.run();
    let lease = rig.check_out().expect("established");
    rig.answer = Answer::Silent;
    let Ok(CheckOut::Queued(waiter)) = rig.server.check_out(rig.now, None, &mut rig.events) else { panic!() };
    rig.run();
    rig.server.close(rig.now, &mut rig.events);
    rig.run();
    assert_eq!(rig.server.claim(rig.now, waiter), Claim::Failed(CheckOutError::PoolClosed));
    assert_eq!(rig.sockets.len(), 1, "the one in use");
    rig.check_in(lease);
    assert_eq!((rig.sockets.len(), rig.server.poll_timeout()), (0, None));
    let closed = rig.server.check_out(rig.now, None, &mut rig.events);
    assert_eq!(closed.expect_err("closed").to_string(), CheckOutError::PoolClosed.to_string());
}

#[test]
#[should_panic(expected = "has one server")]
fn a_topology_that_may_find_more_servers_is_refused() {
    let client = client();
    let topology = TopologyOptions { seeds: &["a:1"], ..TopologyOptions::default() }.validate().expect("valid");
    let monitor = MonitorOptions::DEFAULT.validate().expect("valid");
    let hello = HandshakeHello::new(&client);
    let _ = ServerOnHeap::<Unauthenticated>::new(
        Instant::ORIGIN,
        1,
        topology,
        PoolConfig::DEFAULT,
        monitor,
        hello,
        &mut (),
    );
}
