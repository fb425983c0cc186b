//! Replies that are wrong, late, truncated or unrequested.

use super::net::{Net, run};
use super::support::{Rig, Small, document, eventually, options, refused, rig, server};
use core::time::Duration;
use poolhouse_embassy::poolhouse_core::pool::{CheckOutError, ClosedReason};
use poolhouse_embassy::poolhouse_core::{Cause, Reason, ServerType};
use poolhouse_embassy::poolhouse_wire::WireErrorKind;
use poolhouse_embassy::{ExchangeError, OperationError, Options, PoolOptions};
use poolhouse_tests::fake::{Cut, FakeServer, Fault, FaultRule};

/// A client with a pool of one established connection.
async fn with_one_connection(net: &Net, server: &FakeServer) -> Rig<Small> {
    net.open_to(server);
    let pool = PoolOptions { max_pool_size: 1, ..PoolOptions::DEFAULT };
    let rig = rig(net, Options { pool, ..options(server) });
    rig.ping().await.expect("a ping");
    rig.at_rest(server, 1).await;
    rig.log.clear();
    rig
}

/// Two commands with different replies, so a swapped reply is detected.
async fn gets_its_own_reply(rig: &Rig<Small>) {
    let mut buffer = [0; 2048];
    let reply = rig.client.run_command("admin", |it| it.int32("buildInfo", 1).map(drop), &mut buffer).await;
    assert!(document(reply.expect("a reply")).get_str("version").is_ok());
    let reply = rig.client.run_command("admin", |it| it.int32("ping", 1).map(drop), &mut buffer).await;
    assert!(document(reply.expect("a reply")).get("version").is_none());
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

const OK: &[u8] = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f";

/// Each breach fails its operation at once, closes its connection, and affects nothing else: the
/// server stays known, and the next operation is served.
#[test]
#[doc(alias = "CMAP-20")]
fn protocol_error_closes_only_its_connection() {
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
        (Fault::OpCodeLie(2012), |kind| matches!(kind, WireErrorKind::Compressed)),
        (Fault::WrongResponseTo, |kind| matches!(kind, WireErrorKind::ResponseTo { .. })),
        (Fault::BadChecksum, |kind| matches!(kind, WireErrorKind::Checksum { .. })),
        (Fault::MoreToComeLie, |kind| matches!(kind, WireErrorKind::MoreToCome)),
        (Fault::Oversized { bytes: 48_000_001 }, |kind| matches!(kind, WireErrorKind::MessageTooLong { .. })),
        (Fault::RawBody(vec![0; 4]), |kind| matches!(kind, WireErrorKind::MessageTooShort { length_bytes: 20 })),
        (Fault::RawBody(vec![0, 0, 0, 0, 9, 0, 0, 0, 0, 0]), |kind| {
            matches!(kind, WireErrorKind::SectionKind { kind: 9 })
        }),
        (Fault::RawBody(vec![0, 0, 0, 0, 0, 4, 0, 0, 0, 0]), |kind| {
            matches!(kind, WireErrorKind::DocumentLength { .. })
        }),
        (Fault::RawBody(raw(&[OK, b"\x02s\0\x02\0\0\0ab"])), |kind| matches!(kind, WireErrorKind::Terminator)),
        (Fault::RawBody(raw(&[OK, b"\x55b\0\x07"])), |kind| matches!(kind, WireErrorKind::ElementTag { tag: 0x55 })),
        (Fault::RawBody(raw(&[b"\x08b\0\x01"])), |kind| matches!(kind, WireErrorKind::FieldMissing { name: "ok" })),
        (Fault::RawBody(raw(&[b"\x02ok\0\x02\0\0\0y\0"])), |kind| matches!(kind, WireErrorKind::FieldType { .. })),
        (Fault::RawBody(raw(&[OK, b"\x02topologyVersion\0\x01\0\0\0\0"])), |kind| {
            matches!(kind, WireErrorKind::FieldType { .. })
        }),
    ];
    run(async |net| {
        let server = server();
        let rig = with_one_connection(net, &server).await;
        for (fault, check) in cases {
            let label = format!("{fault:?}");
            rig.log.clear();
            server.inject(FaultRule::once(fault).on_command("ping"));
            let error = refused(rig.ping().await);
            let OperationError::Exchange(ExchangeError::Wire(wire)) = error else { panic!("{label}: {error:?}") };
            assert!(check(&wire.kind()), "{label}: {wire:?}");
            assert!(!error.is_retryable(), "{label}");
            assert_eq!(rig.log.closed(), [ClosedReason::Error], "{label}");
            gets_its_own_reply(&rig).await;
            rig.at_rest(&server, 1).await;
            assert_eq!(rig.pool().generation, 0, "{label}: cleared");
            assert_eq!(rig.server_type(), ServerType::Standalone, "{label}");
        }
        rig.end(&[&server]).await;
    });
}

/// For every reason why a reply is missing, the operation ends at its deadline, its connection is
/// closed, and the pool is not cleared.
#[test]
#[doc(alias = "SDAM-71")]
fn late_reply_fails_its_operation_at_the_deadline() {
    let cases = [
        Fault::Silence,
        Fault::NeverFinished,
        Fault::Trickle { gap: Duration::from_millis(500) },
        Fault::Delay(Duration::from_secs(60)),
        Fault::LengthLie(1000),
    ];
    run(async |net| {
        let server = server();
        let rig = with_one_connection(net, &server).await;
        for fault in cases {
            let label = format!("{fault:?}");
            rig.log.clear();
            server.inject(FaultRule::once(fault).on_command("ping"));
            let before = server.count_of("ping");
            let sent = || server.count_of("ping") > before;
            let outcome = net.jumping(Duration::from_secs(60), sent, rig.ping()).await;
            println!("{label}: {outcome:?}");
            let error = refused(outcome);
            assert_eq!(error, OperationError::Timeout, "{label}");
            assert_eq!(rig.log.closed(), [ClosedReason::Error], "{label}");
            gets_its_own_reply(&rig).await;
            rig.at_rest(&server, 1).await;
        }
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

#[test]
fn reply_one_byte_at_a_time_is_read() {
    run(async |net| {
        let server = server();
        let rig = with_one_connection(net, &server).await;
        server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
        gets_its_own_reply(&rig).await;
        assert_eq!(server.accepted_count(), 2);
        rig.end(&[&server]).await;
    });
}

/// Bytes that arrive without a request are never taken for the next reply.
#[test]
fn unsolicited_bytes_are_never_the_next_reply() {
    let ping_reply = {
        let mut bytes = vec![38, 0, 0, 0, 9, 9, 0, 0, 2, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&[17, 0, 0, 0, 1, b'o', b'k', 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0]);
        bytes
    };
    let cases = [Fault::DuplicateReply, Fault::Unsolicited(vec![1]), Fault::Unsolicited(ping_reply)];
    run(async |net| {
        let server = server();
        let rig = with_one_connection(net, &server).await;
        for fault in cases {
            let label = format!("{fault:?}");
            rig.log.clear();
            server.inject(FaultRule::once(fault).on_command("ping"));
            // The rest arrived either together with the reply, or later.
            let first = rig.ping().await;
            if let Err(error) = &first {
                let unsolicited = matches!(error, OperationError::Exchange(ExchangeError::Wire(wire))
                    if matches!(wire.kind(), WireErrorKind::Unsolicited { .. }));
                assert!(unsolicited, "{label}: {error:?}");
            } else {
                let mut guard = rig.client.check_out().await.expect("a connection");
                let again = guard.run_command("admin", |it| it.int32("buildInfo", 1).map(drop));
                let before = server.count_of("buildInfo");
                let sent = || server.count_of("buildInfo") > before;
                let error = refused(net.jumping(Duration::from_secs(60), sent, again).await.map(drop));
                assert!(error.connection_cause().is_some(), "{label}: {error:?}");
            }
            assert_eq!(rig.log.closed(), [ClosedReason::Error], "{label}");
            gets_its_own_reply(&rig).await;
            rig.at_rest(&server, 1).await;
        }
        rig.end(&[&server]).await;
    });
}

/// A connection that the server ends while it is idle fails the next
/// operation on it, which clears the pool before the connection is checked in.
#[test]
#[doc(alias("CMAP-87", "SDAM-72", "SDAM-73"))]
fn connection_that_died_while_idle_fails_once() {
    run(async |net| {
        let server = server();
        for by in [Cut::Fin, Cut::Rst] {
            let rig = with_one_connection(net, &server).await;
            let pooled = server.look(|view| view.open().last().map(|info| info.id)).expect("open");
            let ends = net.server_ends();
            server.cut(pooled, by);
            eventually("the bridge knows", || net.server_ends() > ends).await;
            net.settled().await;
            let error = refused(rig.ping().await);
            assert_eq!(error, OperationError::Exchange(ExchangeError::Network(Reason::NONE)), "{by:?}");
            assert_eq!(rig.log.closed(), [ClosedReason::Error], "{by:?}");
            let names = rig.log.pool_names();
            let place = |name| names.iter().position(|each| *each == name);
            assert_eq!(rig.log.count("PoolCleared"), 1);
            assert!(place("PoolCleared") < place("ConnectionCheckedIn"), "{names:?}");
            net.skipping(Duration::from_secs(5), rig.ping()).await.expect("a ping");
            gets_its_own_reply(&rig).await;
            rig.end(&[&server]).await;
        }
    });
}

/// The reply to a ping is cut after each of its bytes, by an orderly end and by a reset.
#[test]
fn reply_cut_after_any_byte_fails_its_operation_only() {
    const REPLY_BYTES: usize = 38;
    run(async |net| {
        let server = server();
        let rig = with_one_connection(net, &server).await;
        for by in [Cut::Fin, Cut::Rst] {
            for bytes in 0..REPLY_BYTES {
                server.inject(FaultRule::once(Fault::TruncatedFrame { bytes, by }).on_command("ping"));
                let error = refused(rig.ping().await);
                assert_eq!(
                    error,
                    OperationError::Exchange(ExchangeError::Network(Reason::NONE)),
                    "{by:?} after {bytes}"
                );
                net.skipping(Duration::from_secs(5), rig.ping()).await.expect("a ping");
            }
        }
        rig.at_rest(&server, 1).await;
        rig.end(&[&server]).await;
    });
}

/// A truncated handshake is a sign of overload. Neither the server's
/// description nor the pool changes.
#[test]
#[doc(alias("CMAP-95", "MON-21", "SDAM-68"))]
fn handshake_cut_after_any_byte_fails_its_check_out_only() {
    run(async |net| {
        let server = server();
        net.open_to(&server);
        let pool = PoolOptions { max_connecting: 1, ..PoolOptions::DEFAULT };
        let rig: Rig<Small> = rig(net, Options { pool, ..options(&server) });
        rig.known().await;
        net.settled().await;
        for by in [Cut::Fin, Cut::Rst] {
            // The reply has some 300 bytes; for larger values only its last byte is cut.
            for bytes in (0..40).chain((40..340).step_by(7)) {
                server.inject(FaultRule::once(Fault::TruncatedFrame { bytes, by }));
                let error = refused(rig.ping().await);
                let expected = CheckOutError::EstablishFailed { cause: Cause::Network, overloaded: true };
                assert_eq!(error.check_out(), Some(&expected), "{by:?} after {bytes}");
                assert!(error.is_retryable());
            }
        }
        gets_its_own_reply(&rig).await;
        rig.at_rest(&server, 1).await;
        assert_eq!(rig.pool().generation, 0);
        rig.end(&[&server]).await;
    });
}

/// A handshake that breaks the protocol is not overload: the server is marked Unknown, and is known
/// again after the next check.
#[test]
fn handshake_that_breaks_the_protocol_is_no_overload() {
    run(async |net| {
        let server = server();
        for fault in [Fault::WrongResponseTo, Fault::Garbage(vec![0; 16]), Fault::RawBody(raw(&[b"\x08b\0\x01"]))] {
            net.open_to(&server);
            let rig: Rig<Small> = rig(net, options(&server));
            rig.known().await;
            net.settled().await;
            server.inject(FaultRule::once(fault));
            let error = refused(rig.ping().await);
            let expected = CheckOutError::EstablishFailed { cause: Cause::Protocol, overloaded: false };
            assert_eq!(error.check_out(), Some(&expected));
            net.skipping(Duration::from_secs(5), rig.ping()).await.expect("a ping");
            rig.end(&[&server]).await;
        }
    });
}
