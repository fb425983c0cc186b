//! Replies that are wrong, late, truncated or unrequested.

use super::support::{
    PATIENCE, Watch, at_rest, client, count, eventually, operation, options, ping, pool_names, refused, run, server,
};
use core::time::Duration;
use poolhouse_smol::poolhouse_core::pool::{CheckOutError, ClosedReason, PoolEvent};
use poolhouse_smol::poolhouse_core::{Cause, Reason};
use poolhouse_smol::poolhouse_driver::{ExchangeError, OperationError};
use poolhouse_smol::poolhouse_wire::WireErrorKind;
use poolhouse_smol::{Client, Error};
use poolhouse_tests::fake::{Cut, FakeServer, Fault, FaultKind, FaultRule};
use poolhouse_tests::patience::Stopwatch;

/// A client with a pool of one established connection, and its further events.
async fn with_one_connection(server: &FakeServer) -> (Client, Watch) {
    let mut options = options(server);
    options.pool.max_pool_size = 1;
    // Late replies are tested separately.
    options.drain_timeout = Duration::ZERO;
    let client = client(options);
    ping(&client).await.expect("a ping");
    let watch = Watch::of(&client);
    (client, watch)
}

/// Two commands with different replies, so a swapped reply is detected.
async fn gets_its_own_reply(client: &Client) {
    let reply = client.run_command("admin", bson::doc! { "buildInfo": 1 }).await.expect("a reply");
    assert!(reply.get_str("version").is_ok(), "{reply}");
    let reply = client.run_command("admin", bson::doc! { "ping": 1 }).await.expect("a reply");
    assert!(reply.get("version").is_none(), "{reply}");
}

fn wire_error(error: &Error) -> WireErrorKind {
    let error = operation(error);
    let OperationError::Exchange(ExchangeError::Wire(error)) = error else { panic!("no error of the wire: {error:?}") };
    error.kind()
}

/// Each breach of protocol fails its operation at once, closes its connection as `error`, and
/// affects nothing else: the server is not marked Unknown, and the next operation is served.
#[test]
#[doc(alias = "CMAP-20")]
fn protocol_error_closes_its_connection_only() {
    type Check = fn(&WireErrorKind) -> bool;
    let cases: Vec<(Fault, Check)> = vec![
        (Fault::Garbage(vec![0; 16]), |kind| matches!(kind, WireErrorKind::MessageTooShort { length_bytes: 0 })),
        (Fault::Garbage(vec![0xff; 64]), |kind| matches!(kind, WireErrorKind::MessageTooShort { length_bytes: -1 })),
        (Fault::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), |kind| {
            matches!(kind, WireErrorKind::MessageTooLong { .. })
        }),
        (Fault::LengthLie(15), |kind| matches!(kind, WireErrorKind::MessageTooShort { length_bytes: 15 })),
        (Fault::LengthLie(37), |kind| !matches!(kind, WireErrorKind::ResponseTo { .. })),
        (Fault::LengthLie(i32::MAX), |kind| matches!(kind, WireErrorKind::MessageTooLong { .. })),
        (Fault::LengthLie(i32::MIN), |kind| matches!(kind, WireErrorKind::MessageTooShort { .. })),
        (Fault::OpCodeLie(2004), |kind| matches!(kind, WireErrorKind::Opcode { opcode: 2004 })),
        (Fault::WrongResponseTo, |kind| matches!(kind, WireErrorKind::ResponseTo { .. })),
        (Fault::BadChecksum, |kind| matches!(kind, WireErrorKind::Checksum { .. })),
        (Fault::MoreToComeLie, |kind| matches!(kind, WireErrorKind::MoreToCome)),
        (Fault::Oversized { bytes: 48_000_001 }, |kind| matches!(kind, WireErrorKind::MessageTooLong { .. })),
        // No section; an unknown one; no document.
        (Fault::RawBody(vec![0; 4]), |kind| matches!(kind, WireErrorKind::MessageTooShort { length_bytes: 20 })),
        (Fault::RawBody(vec![0, 0, 0, 0, 9, 0, 0, 0, 0, 0]), |kind| {
            matches!(kind, WireErrorKind::SectionKind { kind: 9 })
        }),
        (Fault::RawBody(vec![0, 0, 0, 0, 0, 4, 0, 0, 0, 0]), |kind| {
            matches!(kind, WireErrorKind::DocumentLength { .. })
        }),
        (Fault::RawBody(raw(&[b"\x01ok\0\0\0\0\0\0\0\xf0\x3f", b"\x02s\0\x02\0\0\0ab"])), |kind| {
            matches!(kind, WireErrorKind::Terminator)
        }),
        (Fault::RawBody(raw(&[b"\x01ok\0\0\0\0\0\0\0\xf0\x3f", b"\x55b\0\x07"])), |kind| {
            matches!(kind, WireErrorKind::ElementTag { tag: 0x55 })
        }),
        // Well-formed, but no reply: without ok, or with an ok that is not a number.
        (Fault::RawBody(raw(&[b"\x08b\0\x01"])), |kind| matches!(kind, WireErrorKind::FieldMissing { name: "ok" })),
        (Fault::RawBody(raw(&[b"\x02ok\0\x02\0\0\0y\0"])), |kind| matches!(kind, WireErrorKind::FieldType { .. })),
        (Fault::RawBody(raw(&[b"\x01ok\0\0\0\0\0\0\0\xf0\x3f", b"\x02topologyVersion\0\x01\0\0\0\0"])), |kind| {
            matches!(kind, WireErrorKind::FieldType { .. })
        }),
    ];
    run(async {
        let server = server();
        let (client, mut watch) = with_one_connection(&server).await;
        for (fault, check) in cases {
            let label = format!("{fault:?}");
            let begun = Stopwatch::start();
            let before = client.servers()[0].pool;
            server.inject(FaultRule::once(fault).on_command("ping"));
            let error = refused(ping(&client).await);
            let kind = wire_error(&error);
            assert!(check(&kind), "{label}: {kind:?}");
            assert!(!error.is_timeout() && !error.is_retryable(), "{label}");
            assert_eq!(watch.until_closed().await, ClosedReason::Error, "{label}");
            gets_its_own_reply(&client).await;
            at_rest(&server, &client, 1).await;
            begun.assert_below(PATIENCE / 2);
            let after = client.servers()[0].pool;
            assert_eq!(after.generation, before.generation, "{label}: cleared");
        }
        assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
        client.close().await;
    });
}

/// A reply with a value that only its conversion refuses is a reply: the error names the field, and the
/// connection stays.
#[test]
fn values_that_cannot_be_converted_close_no_connection() {
    const OK: &[u8] = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f";
    run(async {
        let server = server();
        let (client, mut watch) = with_one_connection(&server).await;
        for value in [&b"\x02s\0\x02\0\0\0\xff\0"[..], b"\x08s\0\x07", b"\x0bs\0\xff\0\0"] {
            let reply = || FaultRule::once(Fault::RawBody(raw(&[OK, value]))).on_command("ping");
            server.inject(reply());
            let error = refused(ping(&client).await);
            assert!(matches!(error, Error::Bson(_)) && !error.is_retryable(), "{value:?}: {error:?}");
            let text = error.to_string();
            assert!(text.contains("the command was executed") && text.contains("field s: "), "{text}");
            server.inject(reply());
            let raw = client.run_raw_command("admin", &bson::rawdoc! { "ping": 1 }).await.expect("bytes");
            assert!(raw.as_bytes().windows(value.len()).any(|part| part == value));
            gets_its_own_reply(&client).await;
        }
        let names = watch.pool_names();
        assert_eq!((count(&names, "ConnectionClosed"), count(&names, "PoolCleared")), (0, 0));
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

/// The body of a message of one document with these elements.
fn raw(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    let length = i32::try_from(elements.len() + 5).expect("short");
    let mut body = vec![0; 5];
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&elements);
    body.push(0);
    body
}

/// For every reason why a reply is missing, the operation ends at its deadline, its connection is
/// closed, the pool is not cleared, and memory stays bounded.
#[test]
#[doc(alias = "SDAM-71")]
fn missing_reply_fails_the_operation_at_its_deadline() {
    let cases = [
        Fault::Silence,
        Fault::NeverFinished,
        Fault::Trickle { gap: Duration::from_millis(500) },
        Fault::Delay(Duration::from_secs(60)),
        Fault::LengthLie(1000),
        Fault::LengthLie(40_000_000),
    ];
    run(async {
        let server = server();
        let (client, mut watch) = with_one_connection(&server).await;
        for fault in cases {
            let label = format!("{fault:?}");
            server.inject(FaultRule::once(fault).on_command("ping"));
            let limit = Duration::from_secs(1);
            let mut guard = client.check_out().await.expect("a connection");
            guard.raw().set_deadline(Some(client.now().saturating_add(limit)));
            let begun = Stopwatch::start();
            let error = refused(guard.run_command("admin", bson::doc! { "ping": 1 }).await);
            begun.assert_below(PATIENCE / 2);
            assert_eq!(operation(&error), OperationError::Timeout, "{label}");
            assert!(error.is_timeout());
            // The guard can no longer be used.
            let again = refused(guard.run_command("admin", bson::doc! { "ping": 1 }).await);
            assert_eq!(operation(&again), OperationError::Broken(Cause::NetworkTimeout), "{label}");
            drop(guard);
            assert_eq!(watch.until_closed().await, ClosedReason::Error, "{label}");
            gets_its_own_reply(&client).await;
            at_rest(&server, &client, 1).await;
        }
        assert_eq!(count(&watch.pool_names(), "PoolCleared"), 0);
        client.close().await;
    });
}

#[test]
fn reply_one_byte_at_a_time_is_read() {
    run(async {
        let server = server();
        let (client, _) = with_one_connection(&server).await;
        server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
        gets_its_own_reply(&client).await;
        assert_eq!(server.accepted_count(), 2);
        client.close().await;
    });
}

/// Bytes that arrive without a request are never taken for the next reply: the next operation
/// receives its own reply, or an error, after which a new connection is established.
#[test]
fn unsolicited_bytes_are_never_the_next_reply() {
    let ping_reply = {
        let mut bytes = vec![38, 0, 0, 0, 9, 9, 0, 0, 2, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[17, 0, 0, 0, 1, b'o', b'k', 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0]);
        bytes
    };
    let cases = [Fault::DuplicateReply, Fault::Unsolicited(vec![1]), Fault::Unsolicited(ping_reply)];
    run(async {
        let server = server();
        let (client, mut watch) = with_one_connection(&server).await;
        for fault in cases {
            let label = format!("{fault:?}");
            server.inject(FaultRule::once(fault).on_command("ping"));
            // The rest arrived either together with the reply, or later.
            let first = ping(&client).await;
            if let Err(error) = &first {
                assert!(matches!(wire_error(error), WireErrorKind::Unsolicited { .. }), "{label}: {error:?}");
            } else {
                let mut guard = client.check_out().await.expect("a connection");
                guard.raw().set_deadline(Some(client.now().saturating_add(Duration::from_secs(1))));
                match guard.run_command("admin", bson::doc! { "buildInfo": 1 }).await {
                    Ok(reply) => panic!("{label}: the connection was fit for use: {reply}"),
                    Err(error) => assert!(operation(&error).connection_cause().is_some(), "{label}: {error:?}"),
                }
            }
            assert_eq!(watch.until_closed().await, ClosedReason::Error, "{label}");
            gets_its_own_reply(&client).await;
            at_rest(&server, &client, 1).await;
        }
        client.close().await;
    });
}

/// A connection that the server ends while it is idle fails the next operation on it, which clears
/// the pool.
#[test]
#[doc(alias("CMAP-87", "SDAM-72", "SDAM-73"))]
fn connection_closed_while_idle_fails_one_operation() {
    run(async {
        let server = server();
        for by in [Cut::Fin, Cut::Rst] {
            let (client, mut watch) = with_one_connection(&server).await;
            let pooled = server.look(|view| view.open().last().map(|info| info.id)).expect("open");
            server.cut(pooled, by);
            server
                .wait_until(PATIENCE, |view| view.connection(pooled).is_some_and(|info| info.ended.is_some()))
                .expect("cut");
            let error = refused(ping(&client).await);
            assert_eq!(operation(&error), OperationError::Exchange(ExchangeError::Network(Reason::NONE)), "{by:?}");
            assert_eq!(watch.until_closed().await, ClosedReason::Error);
            gets_its_own_reply(&client).await;
            let names = watch.pool_names();
            assert_eq!(count(&names, "PoolCleared"), 1);
            // The pool is cleared before the connection is checked in (CMAP-87).
            let place = |name| names.iter().position(|each| *each == name);
            assert!(place("PoolCleared") < place("ConnectionCheckedIn"), "{names:?}");
            client.close().await;
        }
    });
}

/// The reply to a ping is cut after each of its bytes, by an orderly end and by a reset.
#[test]
fn reply_cut_after_any_byte_fails_its_operation_only() {
    const REPLY_BYTES: usize = 38;
    run(async {
        let server = server();
        let mut tasks = Vec::new();
        for by in [Cut::Fin, Cut::Rst] {
            for bytes in 0..REPLY_BYTES {
                let name = format!("{by:?} after {bytes}");
                let mut options = options(&server);
                options.app_name = Some(name.clone());
                options.pool.max_pool_size = 1;
                let client = client(options);
                server
                    .inject(FaultRule::once(Fault::TruncatedFrame { bytes, by }).on_command("ping").on_app_name(&name));
                tasks.push(smol::spawn(async move {
                    let mut watch = Watch::of(&client);
                    let error = refused(ping(&client).await);
                    assert_eq!(
                        operation(&error),
                        OperationError::Exchange(ExchangeError::Network(Reason::NONE)),
                        "{name}"
                    );
                    assert_eq!(watch.until_closed().await, ClosedReason::Error, "{name}");
                    gets_its_own_reply(&client).await;
                    let snapshot = client.servers()[0].pool;
                    assert_eq!((snapshot.generation, snapshot.counts.total()), (1, 1), "{name}");
                    client.close().await;
                }));
            }
        }
        for task in tasks {
            task.await;
        }
        server.wait_until(PATIENCE, |view| view.open_count() == 0).expect("all are closed");
        let struck = server.look(|view| view.fault_count(FaultKind::TruncatedFrame));
        assert_eq!(struck, 2 * REPLY_BYTES as u64);
    });
}

/// The reply to a handshake is cut after each of its bytes: the check-out fails with the
/// backpressure labels, and neither the server's description nor the pool changes (CMAP-95,
/// SDAM-68, MON-21).
#[test]
#[doc(alias("CMAP-95", "MON-21", "SDAM-68"))]
fn handshake_cut_after_any_byte_fails_its_check_out_only() {
    run(async {
        let server = server();
        let mut options = options(&server);
        options.pool.max_connecting = 1;
        let client = client(options);
        // The monitor has its connection: every later handshake is the pool's.
        eventually("the server is known", || {
            client
                .servers()
                .first()
                .is_some_and(|server| server.pool.state == poolhouse_smol::poolhouse_core::pool::PoolState::Ready)
        })
        .await;
        let mut watch = Watch::of(&client);
        let mut rounds: u32 = 0;
        for by in [Cut::Fin, Cut::Rst] {
            // The reply has some 300 bytes; for larger values only its last byte is cut.
            for bytes in 0..400 {
                server.inject(FaultRule::once(Fault::TruncatedFrame { bytes, by }));
                let error = refused(ping(&client).await);
                let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
                assert_eq!(error.check_out(), Some(&expected), "{by:?} after {bytes}");
                assert!(error.is_retryable());
                rounds += 1;
                watch.catch_up();
            }
        }
        gets_its_own_reply(&client).await;
        at_rest(&server, &client, 1).await;
        assert_eq!(server.accepted_count(), u64::from(rounds) + 2);
        let names = pool_names(watch.catch_up());
        assert_eq!(count(&names, "PoolCleared"), 0);
        assert_eq!(count(&names, "ConnectionClosed"), rounds as usize);
        for event in &watch.seen {
            if let poolhouse_smol::Event::Pool(PoolEvent::ConnectionClosed { reason, .. }) = event {
                assert_eq!(*reason, ClosedReason::Error);
            }
        }
        client.close().await;
    });
}

/// A handshake that breaks the protocol is not overload: the server is marked Unknown, and is known
/// again after the next check.
#[test]
fn handshake_that_breaks_the_protocol_is_no_overload() {
    run(async {
        let server = server();
        for fault in [Fault::WrongResponseTo, Fault::Garbage(vec![0; 16]), Fault::RawBody(raw(&[b"\x08b\0\x01"]))] {
            let client = client(options(&server));
            eventually("the server is known", || {
                client
                    .servers()
                    .first()
                    .is_some_and(|server| server.pool.state == poolhouse_smol::poolhouse_core::pool::PoolState::Ready)
            })
            .await;
            server.inject(FaultRule::once(fault));
            let error = refused(ping(&client).await);
            let expected = CheckOutError::EstablishFailed { cause: Cause::Protocol, overloaded: false };
            assert_eq!(error.check_out(), Some(&expected));
            gets_its_own_reply(&client).await;
            client.close().await;
        }
    });
}

/// The same guard, used again after its caller stopped waiting for a reply: an error, not a panic
/// and not the old reply.
#[test]
fn guard_is_unusable_after_a_dropped_command() {
    run(async {
        let server = server();
        let (client, mut watch) = with_one_connection(&server).await;
        let mut guard = client.check_out().await.expect("a connection");
        server.freeze();
        let dropped = super::support::poll_times(
            guard.run_command("admin", bson::doc! { "buildInfo": 1 }),
            1,
            super::support::DropIt::AtOnce,
        );
        assert!(dropped.is_none());
        server.thaw();
        let error = refused(guard.run_command("admin", bson::doc! { "ping": 1 }).await);
        assert_eq!(operation(&error), OperationError::Broken(Cause::Cancelled));
        drop(guard);
        assert_eq!(watch.until_closed().await, ClosedReason::Error);
        gets_its_own_reply(&client).await;
        client.close().await;
    });
}
