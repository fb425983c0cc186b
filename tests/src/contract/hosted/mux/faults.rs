//! Peers that are silent, stop reading, cut connections, send replies in pieces or out of order, or
//! violate the protocol. Each request ends once, with its own reply or an error; requests on other
//! hosts are not affected.

use super::{CALM, FORMATS, Format, Rig, begun, echo_by, holding, long, run, server, speaking};
use crate::contract::Hole;
use crate::contract::rig::within;
use crate::cql_server::{Act, Cut, Order, Part, RequestKind, Rule};
use crate::patience::{PATIENCE, eventually, refused};
use crate::suite::Suite;
use core::time::Duration;
use poolhouse_client::Platform;
use poolhouse_client::mux::{AcquireError, MuxOptions, RejectionReason, RequestError};
use poolhouse_core::Cause;
use poolhouse_cql::Version;

/// The error code by which a node of Cassandra refuses requests.
const OVERLOADED: i32 = 0x1001;

pub(super) fn add<P: Platform + Default>(suite: Suite) -> Suite {
    let suite = suite
        .case("hosted::mux::faults::half_open_peer_is_found_by_a_heartbeat", || run::<P>(half_open::<P>))
        .case("hosted::mux::faults::peer_that_takes_nothing_holds_up_nobody_else", || run::<P>(full::<P>))
        .case("hosted::mux::faults::host_that_no_connection_is_made_to", || run::<P>(black_hole::<P>))
        .case("hosted::mux::faults::host_that_is_being_connected_delays_no_request", || run::<P>(connecting::<P>))
        .case("hosted::mux::faults::peer_that_never_ends_the_handshake", || run::<P>(no_handshake::<P>))
        .case("hosted::mux::faults::host_that_shuts_down_receives_no_request", || run::<P>(shutting_down::<P>))
        .case("hosted::mux::faults::replies_by_ids_that_nobody_has", || run::<P>(lies::<P>));
    let suite = FORMATS.into_iter().fold(suite, |suite, format| {
        let name = format.0;
        suite
            .case(format!("hosted::mux::faults::replies_byte_by_byte_and_out_of_order_{name}"), move || {
                run::<P>(async || in_pieces::<P>(format).await);
            })
            .case(format!("hosted::mux::faults::large_bodies_both_ways_at_once_{name}"), move || {
                run::<P>(async || both_ways::<P>(format).await);
            })
    });
    [("ended", Cut::Close), ("reset", Cut::Reset)].into_iter().fold(suite, |suite, (name, cut)| {
        suite
            .case(format!("hosted::mux::faults::connection_{name}_at_each_byte_of_its_handshake"), move || {
                run::<P>(async || cut_handshake::<P>(cut).await);
            })
            .case(format!("hosted::mux::faults::connection_{name}_at_each_byte_of_a_reply"), move || {
                run::<P>(async || cut_reply::<P>(cut).await);
            })
    })
}

/// The peer reads requests and sends no more replies. Requests in flight fail, and none waits for
/// the peer.
async fn half_open<P: Platform + Default>() {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    let silent = rig.server().add(Rule::any(Act::Mute));
    let waiting = begun(rig.echo("one")).await;
    eventually("it is silent", || rig.server().struck(silent) > 0).await;
    rig.server().remove(silent);
    let asking = MuxOptions {
        heartbeat_interval: Duration::from_millis(20),
        heartbeat_timeout: Duration::from_millis(500),
        ..CALM
    };
    rig.session.set_mux_options(asking).expect("valid options");
    let error = refused(within(PATIENCE, "it ends", waiting).await);
    assert!(matches!(error, RequestError::Lost { cause: Cause::NetworkTimeout, .. }), "{error:?}");
    rig.session.set_mux_options(CALM).expect("valid options");
    rig.works().await;
    assert!(rig.server().counts().accepted >= 2);
    rig.end().await;
}

/// The first host closes its connections. It would accept new ones and refuse their requests, as
/// Cassandra does while it shuts down. During the pause after a lost connection, no connection is made
/// to it, and the other host serves all requests, which are not retried.
async fn shutting_down<P: Platform + Default>() {
    const REQUESTS: usize = 1_000;
    let pause = Duration::from_secs(3600);
    let mux = MuxOptions { backoff_min: pause, backoff_max: pause, ..CALM };
    let rig = Rig::<P>::of(vec![server(), server()], |options| options.mux(mux));
    rig.works().await;
    let accepted = rig.server().counts().accepted;
    let refusal = rig.server().add(Rule::statements(Act::Error(OVERLOADED, "Server is shutting down".into())));
    rig.server().cut_all(Cut::Close);
    eventually("the connections are closed", || rig.state(0).open == 0).await;
    for number in 0..REQUESTS {
        let text = number.to_string();
        let found = within(PATIENCE, "it is answered", rig.echo(&text)).await;
        assert_eq!(found.expect("the other host replies"), text);
    }
    assert_eq!((rig.server().struck(refusal), rig.server().counts().accepted), (0, accepted));
    rig.end().await;
}

/// The first host stops reading. Its requests end at their deadlines; those of the other host are
/// answered. A heartbeat that cannot be sent causes its connection to be closed.
async fn full<P: Platform + Default>() {
    let rig = Rig::<P>::of(vec![server(), server()], |options| options);
    rig.works().await;
    let tasks = rig.platform.tasks_count();
    rig.server().pause_reading();
    let text = "x".repeat(1 << 20);
    let mut waiting = Vec::new();
    let begin = rig.session.now();
    let soon = Duration::from_millis(200);
    for _ in 0..24 {
        waiting.push(begun(echo_by(&rig.session, 0, &text, Some(soon))).await);
    }
    for _ in 0..10 {
        assert_eq!(rig.echo_of(1, "other").await.expect("requests on other hosts continue"), "other");
    }
    for request in waiting {
        let error = refused(within(PATIENCE, "its timeout has expired", request).await);
        assert!(matches!(error, RequestError::TimedOut { .. }), "{error:?}");
    }
    assert!(rig.session.now() >= begin.saturating_add(soon), "it ended before its deadline");
    let lost = begun(rig.echo_of(0, "lost")).await;
    let asking = MuxOptions {
        heartbeat_interval: Duration::from_millis(20),
        heartbeat_timeout: Duration::from_millis(500),
        ..CALM
    };
    rig.session.set_mux_options(asking).expect("valid options");
    let error = refused(within(PATIENCE, "it ends", lost).await);
    assert!(
        matches!(error, RequestError::Lost { cause: Cause::NetworkTimeout, .. } | RequestError::NoHost(_)),
        "{error:?}"
    );
    rig.session.set_mux_options(CALM).expect("valid options");
    // The task of the connection has ended, and a replacement is being established.
    eventually("it is closed", || rig.platform.tasks_count() == tasks && rig.state(0).establishing == 1).await;
    rig.server().resume_reading();
    rig.works().await;
    rig.end().await;
}

/// Requests that wait for this host move on to the next host after the connect timeout.
async fn black_hole<P: Platform + Default>() {
    const SOON: Duration = Duration::from_secs(2);
    let hole = Hole::dig().await;
    let address = hole.address().to_string();
    let rig = Rig::<P>::of(vec![server()], |options| {
        let mut options = options.connect_timeout(SOON);
        options.hosts.insert(0, poolhouse_client::mux::CqlHost::local(address));
        options
    });
    let begin = rig.session.now();
    let error = refused(within(PATIENCE, "it fails", rig.echo_of(0, "one")).await);
    assert!(rig.session.now() >= begin, "the clock advances");
    assert_down(&error, Cause::NetworkTimeout);
    // The other host has the same connect timeout, which a loaded machine may exceed: it is connected then
    // at another attempt.
    eventually("the other host is connected", || rig.state(1).open > 0).await;
    for _ in 0..4 {
        let found = within(PATIENCE, "another host answers", rig.echo("one")).await;
        assert_eq!(found.expect("it succeeds"), "one");
    }
    within(PATIENCE, "it is closed", rig.session.close()).await;
    rig.is_gone().await;
}

/// The first host is never connected: requests that may be sent to any host are sent to the other one, at
/// once.
async fn connecting<P: Platform + Default>() {
    let hole = Hole::dig().await;
    let address = hole.address().to_string();
    let rig = Rig::<P>::of(vec![server()], |options| {
        let mut options = options.connect_timeout(Duration::from_secs(3600));
        options.hosts.insert(0, poolhouse_client::mux::CqlHost::local(address));
        options
    });
    eventually("the other host is connected", || rig.state(1).open > 0).await;
    for _ in 0..4 {
        let found = within(PATIENCE, "another host answers", rig.echo("one")).await;
        assert_eq!(found.expect("it succeeds"), "one");
    }
    let state = rig.state(0);
    assert_eq!((state.establishing, state.queued), (1, 0), "{state:?}");
    within(PATIENCE, "it is closed", rig.session.close()).await;
    rig.is_gone().await;
}

fn assert_down(error: &RequestError, expected: Cause) {
    let RequestError::NoHost(hosts) = error else { panic!("{error:?}") };
    let reasons: Vec<_> = hosts.iter().map(|host| host.reason).collect();
    assert_eq!(reasons, [RejectionReason::Pool(AcquireError::Down { cause: expected })]);
}

/// The connect timeout also covers the handshake.
async fn no_handshake<P: Platform + Default>() {
    for kind in [RequestKind::Options, RequestKind::Startup] {
        let server = server();
        let silent = server.add(Rule::on(kind, Act::Lose));
        let rig = Rig::<P>::of(vec![server], |options| options.connect_timeout(Duration::from_secs(2)));
        let error = refused(within(PATIENCE, "it fails", rig.echo("one")).await);
        assert_down(&error, Cause::NetworkTimeout);
        assert!(rig.server().struck(silent) > 0);
        eventually("its connection is closed", || rig.server().counts().open == 0).await;
        rig.server().remove(silent);
        rig.works_again().await;
        rig.end().await;
    }
}

/// A connection whose peer violates the protocol is closed: each request ends once, with its own
/// reply or an error.
async fn lies<P: Platform + Default>() {
    let acts = [
        Act::Stream(999),
        Act::Stream(-1),
        Act::Stream(i16::MIN),
        Act::Twice,
        Act::Version(0x99),
        Act::Direction,
        Act::Length(-1),
        Act::Length(i32::MAX),
        Act::Checksum(Part::Header),
        Act::Checksum(Part::Payload),
        Act::Raw(vec![0xff; 100]),
    ];
    for act in acts {
        let rig = Rig::<P>::of(vec![server(), server()], |options| options);
        rig.works().await;
        rig.servers[1].add(holding("there"));
        let there = begun(rig.echo_of(1, "there")).await;
        rig.server().add(holding("held"));
        let texts: Vec<_> = (0..8).map(|number| format!("held {number}")).collect();
        let mut waiting = Vec::new();
        for text in &texts {
            waiting.push(begun(rig.echo_of(0, text)).await);
        }
        rig.held(0, texts.len()).await;
        let bad = rig.server().add(Rule::statements(act.clone()).text("echo bad").times(1));
        let outcome = within(PATIENCE, "it ends", rig.echo_of(0, "bad")).await;
        // A reply that is sent twice answers its request first.
        assert!(outcome.as_ref().map_or(true, |found| act == Act::Twice && found == "bad"), "{act:?}: {outcome:?}");
        for request in waiting {
            let error = refused(within(PATIENCE, "it ends", request).await);
            let RequestError::Lost { cause: Cause::Protocol, reason, .. } = &error else {
                panic!("{act:?}: {error:?}")
            };
            assert!(!reason.is_none(), "{act:?}: {error}");
            let has_stream = reason.to_string().contains("stream 999, on which no request waits");
            assert_eq!(has_stream, act == Act::Stream(999), "{act:?}: {error}");
        }
        assert_eq!(rig.server().struck(bad), 1, "{act:?}");
        rig.held(1, 1).await;
        rig.servers[1].release(Order::Kept);
        assert_eq!(within(PATIENCE, "it is answered", there).await.expect("another host's"), "there", "{act:?}");
        rig.works().await;
        assert_eq!(rig.servers.iter().map(|server| server.counts().accepted).collect::<Vec<_>>(), [2, 1], "{act:?}");
        rig.end().await;
    }
}

/// The server yields its processor after each byte. On a machine under load a yield takes milliseconds, so
/// few bytes are sent.
async fn in_pieces<P: Platform + Default>(format: Format) {
    const REQUESTS: usize = 12;
    let rig = Rig::<P>::new(|options| speaking(options, format));
    rig.server().set_piece_bytes(1);
    // The connection is established first: waiters for it would need additional polls.
    rig.works().await;
    let order = Order::Shuffled(7);
    rig.server().add(Rule::statements(Act::Hold { count: REQUESTS, order }).text("echo held"));
    let texts: Vec<_> = (0..REQUESTS).map(|number| format!("held {}", "x".repeat(number * 3))).collect();
    let mut waiting = Vec::new();
    for text in &texts {
        waiting.push(begun(rig.echo(text)).await);
    }
    for (request, text) in waiting.into_iter().zip(&texts) {
        let found = within(PATIENCE, "it is answered", request).await;
        assert_eq!(&found.expect("it succeeds"), text);
    }
    rig.nothing_is_held();
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1);
    rig.end().await;
}

/// The server writes the reply to a request before it reads the next one. A connection that does
/// not read while its write is blocked would deadlock.
async fn both_ways<P: Platform + Default>(format: Format) {
    const REQUESTS: usize = 16;
    let rig = Rig::<P>::new(|options| speaking(options, format));
    rig.works().await;
    let texts: Vec<_> = (0..REQUESTS).map(long).collect();
    let mut waiting = Vec::new();
    for text in &texts {
        waiting.push(begun(rig.echo(text)).await);
    }
    for (request, text) in waiting.into_iter().zip(&texts) {
        let found = within(PATIENCE, "it is answered", request).await;
        assert!(&found.expect("it succeeds") == text);
    }
    rig.works().await;
    assert_eq!(rig.server().counts().accepted, 1);
    rig.end().await;
}

/// The waiting request fails with the cause; the next session is not affected.
async fn cut_handshake<P: Platform + Default>(cut: Cut) {
    let mut rig = Rig::<P>::new(|options| options);
    let mut cuts = 0;
    for kind in [RequestKind::Options, RequestKind::Startup] {
        for bytes in 0.. {
            rig.end().await;
            // The rule applies to every connection: without it, a late request would find another
            // connection established.
            let number = rig.server().add(Rule::on(kind, Act::Truncate { bytes, cut }));
            rig.renew(|options| options);
            let outcome = within(PATIENCE, "it ends", rig.echo("one")).await;
            assert!(rig.server().struck(number) > 0);
            rig.server().remove(number);
            match outcome {
                // The cut followed the complete last reply of the handshake, so the connection was
                // established.
                Err(RequestError::NoHost(hosts))
                    if kind == RequestKind::Startup && matches!(hosts[0].reason, RejectionReason::Lost { .. }) =>
                {
                    break;
                }
                Err(RequestError::Lost { cause: Cause::Network, .. }) if kind == RequestKind::Startup => break,
                Err(error) => {
                    assert_down(&error, Cause::Network);
                    cuts += 1;
                }
                Ok(found) => panic!("after {bytes} bytes of {kind:?}: {found}"),
            }
            if kind == RequestKind::Options && bytes > 120 {
                break;
            }
        }
    }
    assert!(cuts > 50, "a handshake of {cuts} bytes");
    rig.end().await;
}

/// Requests in flight fail, once; another connection is established.
async fn cut_reply<P: Platform + Default>(cut: Cut) {
    for version in [Version::V3, Version::V5] {
        let rig = Rig::<P>::new(|options| options.version(version));
        rig.works().await;
        rig.server().add(holding("held"));
        let mut bytes = 0;
        loop {
            let accepted = rig.server().counts().accepted;
            let held = begun(rig.echo("held")).await;
            rig.held(0, 1).await;
            let number = rig.server().add(Rule::statements(Act::Truncate { bytes, cut }).text("echo one").times(1));
            let outcome = within(PATIENCE, "it ends", rig.echo("one")).await;
            assert_eq!(rig.server().struck(number), 1);
            rig.server().remove(number);
            let error = refused(within(PATIENCE, "it ends", held).await);
            let RequestError::Lost { cause: Cause::Network, reason, .. } = &error else {
                panic!("after {bytes} bytes: {error:?}")
            };
            let found = reason.get().expect("a reason");
            match (cut, found.downcast_ref::<std::io::Error>()) {
                (Cut::Close, None) => assert_eq!(found.to_string(), "the server closed the connection"),
                (Cut::Reset, Some(reset)) => assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
                (_, _) => panic!("after {bytes} bytes: {found:?}"),
            }
            rig.works().await;
            assert_eq!(rig.server().counts().accepted, accepted + 1);
            match outcome {
                Ok(found) => {
                    assert_eq!(found, "one");
                    break;
                }
                Err(RequestError::Lost { cause: Cause::Network, .. }) => bytes += 1,
                Err(error) => panic!("after {bytes} bytes: {error:?}"),
            }
        }
        assert!(bytes > 50, "a reply of {bytes} bytes");
        rig.end().await;
    }
}
