//! Connecting: refused, unanswered, reset at once, and cancelled connects; and connect timeouts of
//! a client.

use super::alarm::Alarm;
use super::peer::{Hole, Peer, Sink, UnixPeer, reserved_port};
use super::{Client, Hosted, Shape, Subject, note_drop_point, run_case};
use crate::fake::{FakeOptions, FakeServer};
use crate::patience::{PATIENCE, eventually};
use crate::suite::Suite;
use alloc::sync::Arc;
use core::net::{Ipv6Addr, SocketAddr};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use embedded_io_async::{Read, Write};
use futures_lite::FutureExt;
use poolhouse_client::Platform;
use poolhouse_core::topology::ServerError;
use poolhouse_core::{Cause, HostAddress};
use poolhouse_driver::{BaseRuntime as _, ConnectError, OperationError, Runtime, SelectionRequest};
use std::net::TcpListener;

pub(super) fn add<S: Subject>(suite: Suite) -> Suite {
    suite
        .case("dialing::refused_is_a_network_error", || run_case::<S>(refused_is_a_network_error))
        .case("dialing::black_hole_is_waited_for_until_dropped", || {
            run_case::<S>(black_hole_is_waited_for_until_dropped)
        })
        .case("dialing::cut_at_once_ends", || run_case::<S>(cut_at_once_ends))
        .case("dialing::dropped_at_each_poll_leaves_no_connection", || {
            run_case::<S>(dropped_at_each_poll_leaves_no_connection)
        })
        .case("dialing::connect_timeout_of_the_default", || run_case::<S>(connect_timeout_of_the_default))
        .case("dialing::connect_timeout_of_1_ms_ends_at_a_black_hole", || {
            run_case::<S>(connect_timeout_of_1_ms_ends_at_a_black_hole)
        })
        .case("dialing::connect_timeout_of_none_is_no_limit", || run_case::<S>(connect_timeout_of_none_is_no_limit))
        .case("dialing::without_connect_timeout_it_waits_for_a_late_server", || {
            run_case::<S>(without_connect_timeout_it_waits_for_a_late_server)
        })
}

/// Adds the cases that need host names, or sockets of other families than IPv4.
pub(super) fn add_hosted<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = suite
        .case("dialing::unknown_host_is_a_dns_error", || run_case::<Hosted<P>>(unknown_host_is_a_dns_error))
        .case("dialing::known_host_is_found", || run_case::<Hosted<P>>(known_host_is_found))
        .case("dialing::black_hole_that_closes_refuses", || run_case::<Hosted<P>>(black_hole_that_closes_refuses));
    let suite = suite.case("dialing::unix_sockets_are_reached", || run_case::<Hosted<P>>(unix_sockets_are_reached));
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => suite.case("dialing::ipv6_is_reached", || run_case::<Hosted<P>>(ipv6_is_reached)),
        Err(error) => suite.missing("dialing::ipv6", error),
    }
}

/// Connects to an address, without a deadline.
pub(super) async fn dial<R: Runtime>(runtime: &R, address: SocketAddr) -> Result<R::Stream, ConnectError> {
    let host = address.ip().to_string();
    runtime.connect(&HostAddress::Tcp { host: &host, port: address.port() }, None).await
}

/// Exchanges one byte in each direction.
async fn exchange<R: Runtime>(runtime: &R, address: &HostAddress<'_>, peer: &Peer) {
    let mut stream = runtime.connect(address, None).await.expect("the peer listens");
    let line = peer.accept().await;
    assert_eq!(stream.write(b"?").await.expect("a connection"), 1);
    assert_eq!(line.read(1).await, b"?");
    line.write(b"!".to_vec(), 1).await;
    let mut byte = [0];
    assert_eq!((stream.read(&mut byte).await.expect("a connection"), byte), (1, *b"!"));
}

async fn refused_is_a_network_error<S: Subject>(subject: &S) {
    let (_held, address) = reserved_port();
    for _ in 0..3 {
        assert_eq!(dial(subject.runtime(), address).await.err(), Some(Cause::Network.into()));
    }
}

async fn black_hole_is_waited_for_until_dropped<S: Subject>(subject: &S) {
    let (runtime, hole) = (subject.runtime(), subject.black_hole().await);
    let given_up = runtime.now().saturating_add(Duration::from_millis(60));
    let connected = async {
        let outcome = dial(runtime, hole.address()).await.map(drop);
        panic!("the connect completed without an answer: {outcome:?}");
    };
    connected.or(runtime.sleep_until(given_up)).await;
    eventually("no socket is connecting any more", || hole.tried_by() == 0).await;
}

/// The peer resets the connection when it accepts it, or closes its listener without accepting. The
/// client must see an error or the end of the stream.
async fn cut_at_once_ends<S: Subject>(subject: &S) {
    for round in 0..24 {
        let peer = Peer::listen();
        subject.open_way_to(peer.address());
        let stream = if round % 2 == 0 {
            // The reset races with the connect.
            let cut = peer.reset_next();
            let stream = dial(subject.runtime(), peer.address()).await;
            cut.await;
            stream
        } else {
            let stream = dial(subject.runtime(), peer.address()).await;
            drop(peer);
            stream
        };
        let Ok(mut stream) = stream else { continue };
        let mut byte = [0];
        assert!(matches!(stream.read(&mut byte).await, Ok(0) | Err(_)), "nothing was sent");
        assert_fails::<S>(&mut stream).await;
    }
}

/// Asserts that writes fail after a reset, though the first ones may succeed.
pub(super) async fn assert_fails<S: Subject>(stream: &mut <S::Runtime as Runtime>::Stream) {
    for _ in 0..1_000 {
        match stream.write(&[0; 64]).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
    panic!("writes still succeed after a reset");
}

async fn dropped_at_each_poll_leaves_no_connection<S: Subject>(subject: &S) {
    let (runtime, sink) = (subject.runtime(), Sink::open());
    subject.open_way_to(sink.address());
    for polls in 0.. {
        let alarm = Arc::new(Alarm::default());
        let mut connect = pin!(dial(runtime, sink.address()));
        let mut connected = None;
        for _ in 0..polls {
            if let Poll::Ready(stream) = alarm.poll(connect.as_mut()) {
                connected = Some(stream.expect("it listens"));
                break;
            }
            alarm.rung().await;
        }
        let Some(mut stream) = connected else {
            note_drop_point();
            continue;
        };
        // Earlier connections were accepted first, so bytes of theirs would have been counted
        // already.
        assert_eq!(stream.write(b"!").await.expect("a connection"), 1);
        eventually("the byte arrives", || sink.bytes() == 1).await;
        drop(stream);
        break;
    }
    eventually("all connections are closed", || sink.open_count() == 0).await;
    assert_eq!(sink.bytes(), 1);
}

fn shape(server: SocketAddr, connect_timeout: Option<Duration>, server_selection_timeout: Duration) -> Shape {
    Shape { connect_timeout, server_selection_timeout, ..Shape::of(server) }
}

fn server<S: Subject>(subject: &S) -> FakeServer {
    let server = FakeServer::start(FakeOptions::default()).expect("the fake server starts");
    subject.open_way_to(server.address());
    server
}

async fn ping<C: Client>(client: &C) {
    let mut guard = client.core().check_out(&SelectionRequest::WRITE, None).await.expect("a connection");
    guard.run_command("admin", |command| command.int32("ping", 1).map(drop)).await.expect("an answer");
}

async fn connect_timeout_of_the_default<S: Subject>(subject: &S) {
    let server = server(subject);
    ping(&subject.client(&Shape::of(server.address()))).await;
    assert_eq!(server.accepted_count(), 2, "one is the monitor's");
}

/// Checks out from an address that does not answer. Returns the server's error after the selection
/// timeout; with a connect timeout, which is far shorter, check-outs are repeated until there is one: on
/// a loaded machine, each of the threads of a check may wait for a core for longer than a second.
async fn error_at_a_black_hole<S: Subject>(subject: &S, connect_timeout: Option<Duration>) -> Option<ServerError> {
    let hole = subject.black_hole().await;
    let selecting = Duration::from_secs(1);
    let client = subject.client(&shape(hole.address(), connect_timeout, selecting));
    let first = subject.runtime().now();
    let error = loop {
        let begun = subject.runtime().now();
        let Err(error) = client.core().check_out(&SelectionRequest::WRITE, None).await.map(drop) else {
            panic!("the check-out succeeded without an answer");
        };
        let now = subject.runtime().now();
        assert!(now.saturating_since(begun) >= selecting, "{error}");
        let OperationError::ServerSelection(report) = error else { panic!("another error: {error}") };
        let error = report.topology().servers().next().expect("there is one").error();
        if error.is_some() || connect_timeout.is_none() || now.saturating_since(first) >= PATIENCE {
            break error;
        }
    };
    drop(client);
    eventually("no socket is connecting any more", || hole.tried_by() == 0).await;
    error
}

async fn connect_timeout_of_1_ms_ends_at_a_black_hole<S: Subject>(subject: &S) {
    let error = error_at_a_black_hole(subject, Some(Duration::from_millis(1))).await;
    assert_eq!(error, Some(ServerError::Failed(Cause::NetworkTimeout)));
}

async fn connect_timeout_of_none_is_no_limit<S: Subject>(subject: &S) {
    assert_eq!(error_at_a_black_hole(subject, None).await, None, "its first check continues");
}

async fn without_connect_timeout_it_waits_for_a_late_server<S: Subject>(subject: &S) {
    let (runtime, server) = (subject.runtime(), server(subject));
    server.freeze();
    let client = subject.client(&shape(server.address(), None, Duration::from_secs(60)));
    let late = async {
        let thaw = runtime.now().saturating_add(Duration::from_millis(100));
        runtime.sleep_until(thaw).await;
        server.thaw();
        core::future::pending().await
    };
    ping(&client).or(late).await;
    assert_eq!(server.accepted_count(), 2, "the monitor has connected once");
}

async fn unknown_host_is_a_dns_error<P: Platform + Default>(subject: &Hosted<P>) {
    let runtime = subject.runtime();
    // The first name is reserved as never resolvable; the others are not valid names.
    for host in ["nobody.poolhouse.invalid", "not a host", &"a".repeat(64), "127.0.0.1.", "a\0b"] {
        // Name servers may not answer. The error is the same.
        let deadline = runtime.now().saturating_add(Duration::from_secs(2));
        let error = runtime.connect(&HostAddress::Tcp { host, port: 9 }, Some(deadline)).await.err();
        assert_eq!(error, Some(Cause::Dns.into()), "{host:?}");
    }
}

async fn known_host_is_found<P: Platform + Default>(subject: &Hosted<P>) {
    let found =
        subject.runtime().platform().resolve("localhost", 0).await.expect("localhost resolves on every machine");
    let peer = Peer::listen_on(found.first().expect("an address").ip()).expect("a free port");
    let port = peer.address().port();
    exchange(subject.runtime(), &HostAddress::Tcp { host: "localhost", port }, &peer).await;
}

/// The hole closes while a connect to it is in progress; the system's next retransmission is
/// refused.
async fn black_hole_that_closes_refuses<P: Platform + Default>(subject: &Hosted<P>) {
    let (runtime, mut hole) = (subject.runtime(), Hole::dig().await);
    let alarm = Arc::new(Alarm::default());
    let address = hole.address();
    let mut connect = pin!(dial(runtime, address));
    assert!(alarm.poll(connect.as_mut()).is_pending());
    hole.close();
    assert_eq!(connect.await.err(), Some(Cause::Network.into()));
}

async fn ipv6_is_reached<P: Platform + Default>(subject: &Hosted<P>) {
    let peer = Peer::listen_on(Ipv6Addr::LOCALHOST.into()).expect("a free port");
    exchange(subject.runtime(), &HostAddress::Tcp { host: "::1", port: peer.address().port() }, &peer).await;
}

async fn unix_sockets_are_reached<P: Platform + Default>(subject: &Hosted<P>) {
    let (runtime, peer) = (subject.runtime(), UnixPeer::listen());
    let path = peer.path().to_str().expect("a path of ours");
    let mut stream = runtime.connect(&HostAddress::Unix(path), None).await.expect("the peer listens");
    assert!(runtime.is_private(&stream));
    let line = peer.accept().await;
    assert_eq!(stream.write(b"?").await.expect("a connection"), 1);
    assert_eq!(line.read(1).await, b"?");
    line.write(b"!".to_vec(), 1).await;
    let mut byte = [0];
    assert_eq!((stream.read(&mut byte).await.expect("a connection"), byte), (1, *b"!"));
    drop(stream);
    assert_eq!(line.read_to_end().await, (Vec::new(), true), "the peer reads the end of the stream");
    let nobody = format!("{path}.nobody.sock");
    let error = runtime.connect(&HostAddress::Unix(&nobody), None).await.err();
    assert_eq!(error, Some(Cause::Network.into()));
}
