//! Effects of rules on replies.

use core::time::Duration;
use poolhouse_cql::{Compression, CqlErrorKind, ErrorCode, Opcode, Request, Version};
use poolhouse_tests::cql_server::{Act, CqlClient, CqlServer, Cut, Order, Part, Rule, broken_by};
use std::io;
use std::time::Instant;

use super::{PATIENCE, SILENCE, VERSIONS, ask, connected, open, started};

/// A server with one rule for statements, and a client on it.
fn with(version: Version, act: Act) -> (CqlServer, CqlClient) {
    let server = started();
    server.add(Rule::statements(act));
    let client = connected(&server, version);
    (server, client)
}

fn queue(client: &mut CqlClient, count: i16) {
    for stream in 0..count {
        client.queue_query(stream, &format!("echo {stream}")).expect("connected");
    }
    client.flush().expect("connected");
}

fn replies(client: &mut CqlClient, count: usize) -> Vec<i16> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let reply = client.reply().expect("an answer");
        let (stream, cell) = reply.cell().expect("a cell");
        assert_eq!(cell, stream.to_string().as_bytes());
        streams.push(stream);
    }
    streams
}

fn error_of(client: &mut CqlClient) -> io::Error {
    client.query(11, "echo me").expect("connected");
    client.reply().expect_err("the connection is broken")
}

#[test]
fn delayed_replies_are_sent_late_and_together() {
    for version in VERSIONS {
        // Long enough that all requests have arrived when the first is answered.
        let late = SILENCE * 40;
        let (server, mut client) = with(version, Act::Delay(late));
        let begun = Instant::now();
        queue(&mut client, 50);
        assert_eq!(replies(&mut client, 50), (0..50).collect::<Vec<_>>());
        assert!(begun.elapsed() >= late);
        assert_eq!(server.counts().waiting_max, 50);
    }
}

#[test]
fn lost_replies_wait_until_their_connection_ends() {
    let server = started();
    let number = server.add(Rule::statements(Act::Lose).text("echo 1"));
    let mut client = connected(&server, Version::V5);
    queue(&mut client, 3);
    assert_eq!(replies(&mut client, 2), [0, 2]);
    assert!(client.is_silent_for(SILENCE).expect("connected"));
    assert_eq!((server.counts().waiting, server.struck(number)), (1, 1));
    drop(client);
    assert!(server.wait_until(PATIENCE, |server| server.counts().open == 0));
    assert_eq!(server.counts().waiting, 0);
}

#[test]
fn held_replies_are_sent_in_the_requested_order() {
    for version in VERSIONS {
        let (_server, mut client) = with(version, Act::Hold { count: 8, order: Order::Reversed });
        queue(&mut client, 16);
        let reversed: Vec<i16> = (0..8).rev().chain((8..16).rev()).collect();
        assert_eq!(replies(&mut client, 16), reversed);

        let shuffled = |seed| {
            let (_server, mut client) = with(version, Act::Hold { count: 30, order: Order::Shuffled(seed) });
            queue(&mut client, 30);
            replies(&mut client, 30)
        };
        let one = shuffled(1);
        assert_eq!(one, shuffled(1));
        assert_ne!(one, shuffled(2));
        let mut sorted = one.clone();
        sorted.sort_unstable();
        assert_ne!(one, sorted);
        assert_eq!(sorted, (0..30).collect::<Vec<_>>());
    }
}

#[test]
fn held_replies_are_released() {
    let (server, mut client) = with(Version::V4, Act::Hold { count: usize::MAX, order: Order::Kept });
    queue(&mut client, 5);
    assert!(server.wait_until(PATIENCE, |server| server.held_count() == 5));
    assert!(client.is_silent_for(SILENCE).expect("connected"));
    assert_eq!(server.counts().waiting, 5);
    assert_eq!(server.release(Order::Reversed), 5);
    assert_eq!(replies(&mut client, 5), [4, 3, 2, 1, 0]);
    assert_eq!((server.held_count(), server.counts().waiting), (0, 0));
}

#[test]
fn reply_can_have_an_unused_id() {
    for version in VERSIONS {
        let (_server, mut client) = with(version, Act::Stream(4_711));
        client.query(11, "echo me").expect("connected");
        assert_eq!(client.reply().expect("an answer").cell(), Some((4_711, &b"me"[..])));
    }
}

#[test]
fn reply_can_have_a_negative_id() {
    for version in VERSIONS {
        let (_server, mut client) = with(version, Act::Stream(-2));
        assert_eq!(broken_by(&error_of(&mut client)), Some(CqlErrorKind::Stream { stream: -2 }));
    }
}

#[test]
fn reply_can_come_twice() {
    for version in VERSIONS {
        let (server, mut client) = with(version, Act::Twice);
        queue(&mut client, 2);
        assert_eq!(replies(&mut client, 4), [0, 0, 1, 1]);
        assert_eq!(server.counts().waiting, 0);
    }
}

#[test]
fn reply_can_be_of_another_version_or_no_reply() {
    for version in VERSIONS {
        let (_server, mut client) = with(version, Act::Version(7));
        assert_eq!(broken_by(&error_of(&mut client)), Some(CqlErrorKind::VersionUnknown { number: 7 }));
        let (_server, mut client) = with(version, Act::Direction);
        assert_eq!(broken_by(&error_of(&mut client)), Some(CqlErrorKind::Direction));
    }
}

#[test]
fn checksums_can_be_wrong() {
    for compression in [None, Some(Compression::Lz4)] {
        for part in [Part::Header, Part::Payload] {
            let server = started();
            server.add(Rule::statements(Act::Checksum(part)));
            let mut client = open(&server, Version::V5);
            client.startup(compression, None).expect("the server accepts the handshake");
            let kind = broken_by(&error_of(&mut client)).expect("not the end");
            match part {
                Part::Header => assert!(matches!(kind, CqlErrorKind::SegmentHeaderChecksum { .. }), "{kind:?}"),
                Part::Payload => assert!(matches!(kind, CqlErrorKind::SegmentChecksum { .. }), "{kind:?}"),
            }
        }
    }
    let (_server, mut client) = with(Version::V4, Act::Checksum(Part::Payload));
    assert_eq!(ask(&mut client, 1, "echo me"), b"me");
}

#[test]
fn length_can_be_too_large_or_negative() {
    for version in VERSIONS {
        for compression in [None, Some(Compression::Lz4)] {
            for length_bytes in [300 << 20, i32::MAX, -1, i32::MIN] {
                let server = started();
                server.add(Rule::statements(Act::Length(length_bytes)));
                let mut client = open(&server, version);
                client.startup(compression, None).expect("the server accepts the handshake");
                let kind = broken_by(&error_of(&mut client)).expect("not the end");
                let (CqlErrorKind::TooLong { length_bytes: found, .. }
                | CqlErrorKind::LengthNegative { length_bytes: found }) = kind
                else {
                    panic!("{kind:?}");
                };
                assert_eq!(found, length_bytes);
            }
        }
    }
}

#[test]
fn connection_can_end_inside_a_reply() {
    for version in VERSIONS {
        for (cut, kind) in [(Cut::Close, io::ErrorKind::UnexpectedEof), (Cut::Reset, io::ErrorKind::ConnectionReset)] {
            let (server, mut client) = with(version, Act::Truncate { bytes: 12, cut });
            assert_eq!(error_of(&mut client).kind(), kind);
            assert!(server.wait_until(PATIENCE, |server| server.counts().open == 0));
        }
        let (_server, mut client) = with(version, Act::Truncate { bytes: usize::MAX, cut: Cut::Close });
        assert_eq!(ask(&mut client, 1, "echo whole"), b"whole");
        assert_eq!(client.reply().expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn connection_can_end_after_a_number_of_requests() {
    for (cut, kind) in [(Cut::Close, io::ErrorKind::UnexpectedEof), (Cut::Reset, io::ErrorKind::ConnectionReset)] {
        let server = started();
        server.add(Rule::statements(Act::Close(cut)).connection(1).statement(4));
        let mut client = connected(&server, Version::V5);
        let mut other = connected(&server, Version::V5);
        queue(&mut client, 3);
        assert_eq!(replies(&mut client, 3), [0, 1, 2]);
        // Requests that drivers make for themselves are not statements.
        client.query(9, "SELECT * FROM system.local").expect("connected");
        assert_eq!(client.reply().expect("an answer").header.opcode, Opcode::Result);
        assert_eq!(error_of(&mut client).kind(), kind);
        queue(&mut other, 9);
        assert_eq!(replies(&mut other, 9).len(), 9);
    }
}

#[test]
fn errors_are_sent_the_requested_number_of_times() {
    let server = started();
    server.add(Rule::statements(Act::Error(ErrorCode::OVERLOADED, "too much".into())).skip(1).times(2));
    server.add(Rule::statements(Act::Error(ErrorCode::IS_BOOTSTRAPPING, "too early".into())).text("echo 9"));
    let mut client = connected(&server, Version::V4);
    let mut seen = Vec::new();
    for number in [0, 1, 2, 3, 9] {
        client.query(1, &format!("echo {number}")).expect("connected");
        let reply = client.reply().expect("an answer");
        seen.push(reply.error().map(|(code, message)| (code, message.to_owned())));
    }
    let too_much = Some((ErrorCode::OVERLOADED, "too much".to_owned()));
    let too_early = Some((ErrorCode::IS_BOOTSTRAPPING, "too early".to_owned()));
    assert_eq!(seen, [None, too_much.clone(), too_much, None, too_early]);
}

#[test]
fn any_bytes_can_be_a_reply_or_unsolicited() {
    let (server, mut client) = with(Version::V4, Act::Raw(vec![0x84, 0, 0, 3, 2, 0, 0, 0, 0]));
    client.query(1, "echo me").expect("connected");
    let reply = client.reply().expect("an answer");
    assert_eq!((reply.header.opcode, reply.stream()), (Opcode::Ready, 3));
    server.send_raw(1, &[0x84, 0, 0, 4, 2, 0, 0, 0, 0]);
    assert_eq!(client.reply().expect("bytes").stream(), 4);
}

#[test]
fn rules_apply_from_their_addition_to_their_removal() {
    let server = started();
    let mut client = connected(&server, Version::V5);
    assert_eq!(ask(&mut client, 1, "echo me"), b"me");
    let rule = server.add(Rule::statements(Act::Stream(7)));
    client.query(1, "echo me").expect("connected");
    assert_eq!(client.reply().expect("an answer").stream(), 7);
    server.remove(rule);
    assert_eq!(ask(&mut client, 1, "echo me"), b"me");
    server.add(Rule::on(Opcode::Options, Act::Stream(8)));
    server.clear_rules();
    client.request(2, &Request::Options).expect("connected");
    assert_eq!(client.reply().expect("an answer").stream(), 2);
    assert_eq!(server.struck(rule), 1);
}

#[test]
fn replies_are_sent_in_pieces() {
    for version in VERSIONS {
        for compression in [None, Some(Compression::Lz4)] {
            let server = started();
            server.set_piece_bytes(1);
            let mut client = open(&server, version);
            client.startup(compression, None).expect("the server accepts the handshake");
            queue(&mut client, 20);
            assert_eq!(replies(&mut client, 20), (0..20).collect::<Vec<_>>());
            let expected: Vec<u8> = b"0123456789abcdef".iter().copied().cycle().take(2_000).collect();
            assert_eq!(ask(&mut client, 1, "bytes 2000"), expected);
            assert!(server.counts().writes > 100, "{:?}", server.counts());
        }
    }
}

#[test]
fn server_that_stops_reading_blocks_writes_of_the_client() {
    for is_one in [false, true] {
        let server = started();
        server.add(Rule::statements(Act::StopReading).text("void stop"));
        let mut client = connected(&server, Version::V4);
        if is_one {
            client.query(1, "void stop").expect("connected");
            assert_eq!(client.reply().expect("an answer").header.opcode, Opcode::Result);
        } else {
            server.pause_reading();
        }
        let before = server.counts().requests;
        let text = format!("echo {}", "x".repeat(60_000));
        client.stream().set_write_timeout(Some(Duration::from_millis(200))).expect("a time");
        let mut sent = 0;
        let stopped = loop {
            match client.query(1, &text) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 5_000, "the socket buffers do not hold 300 MB");
        };
        assert!(matches!(stopped.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{stopped}");
        assert_eq!(server.counts().requests, before, "the server read no request");
        server.resume_reading();
        assert!(server.wait_until(PATIENCE, |server| server.counts().requests > before));
    }
}

#[test]
fn mute_server_reads_and_sends_nothing() {
    let server = started();
    let rule = server.add(Rule::any(Act::Mute));
    let mut client = open(&server, Version::V5);
    client.request(1, &Request::Options).expect("connected");
    assert!(server.wait_until(PATIENCE, |server| server.counts().waiting == 1));
    assert!(client.is_silent_for(SILENCE).expect("connected"));
    // Permanently.
    server.remove(rule);
    client.request(2, &Request::Options).expect("connected");
    assert!(server.wait_until(PATIENCE, |server| server.counts().waiting == 2));
    assert!(client.is_silent_for(SILENCE).expect("connected"));
    assert_eq!((server.counts().requests, server.counts().waiting), (2, 2));
    let mut other = connected(&server, Version::V5);
    assert_eq!(ask(&mut other, 1, "echo me"), b"me");
}
