//! Invalid input: the connection is closed, the server continues.

use std::io::{Read, Write};

use super::super::{BadInput, Ended};
use super::*;

fn frame(length: i32, op_code: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [length, 9, 0, op_code] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(rest);
    bytes
}

fn message(rest: &[u8]) -> Vec<u8> {
    frame(i32::try_from(16 + rest.len()).unwrap(), 2013, rest)
}

fn sections(flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut rest = flags.to_le_bytes().to_vec();
    for part in parts {
        rest.extend_from_slice(part);
    }
    message(&rest)
}

/// Sends the bytes and returns the reason for the end of the connection; there must be no reply.
fn reason_of(server: &FakeServer, bytes: &[u8]) -> BadInput {
    let id = server.accepted_count() + 1;
    let mut client = connect(server);
    client.stream().write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // The connection may end with a reset if bytes were unread.
    let _ = client.stream().read_to_end(&mut answer);
    assert!(answer.is_empty());
    server.wait_until(PATIENCE, |view| view.connection(id).is_some_and(|info| info.ended.is_some())).unwrap();
    let ended = server.look(|view| view.connection(id).unwrap().ended.clone());
    match ended {
        Some(Ended::BadInput(bad)) => bad,
        other => panic!("{other:?}"),
    }
}

/// Built without the encoder, which would need as much stack as a recursive decoder.
fn nested_bytes(depth: usize) -> Vec<u8> {
    (0..depth).fold(vec![5, 0, 0, 0, 0], |inner, _| {
        let mut outer = i32::try_from(inner.len() + 8).unwrap().to_le_bytes().to_vec();
        outer.extend_from_slice(b"\x03a\0");
        outer.extend_from_slice(&inner);
        outer.push(0);
        outer
    })
}

fn nested(depth: usize) -> Document {
    (0..depth).fold(doc! {}, |inner, _| doc! { "a": inner })
}

#[test]
fn malformed_messages_end_their_connection() {
    let server = start();
    let body = ping().to_vec().unwrap();
    let mut bad_body = body.clone();
    let last = bad_body.len() - 1;
    bad_body[last] = 7;
    let mut long_body = body.clone();
    long_body[0] += 1;
    let cases: Vec<(Vec<u8>, BadInput)> = vec![
        (frame(15, 2013, &[]), BadInput::Length(15)),
        (frame(-1, 2013, &[]), BadInput::Length(-1)),
        (i32::MIN.to_le_bytes().to_vec(), BadInput::Length(i32::MIN)),
        (frame(48_000_001, 2013, &[]), BadInput::Length(48_000_001)),
        (frame(1000, 2011, &[]), BadInput::OpCode(2011)),
        (frame(1000, 1, &[]), BadInput::OpCode(1)),
        (message(&[]), BadInput::Truncated("the flags")),
        (sections(4, &[&[0], &body]), BadInput::Flags(4)),
        (sections(1, &[&[0], &body, &[1, 2, 3, 4]]), BadInput::Checksum),
        (sections(1, &[]), BadInput::Truncated("the checksum")),
        (sections(0, &[]), BadInput::Sections("no section of kind 0")),
        (sections(0, &[&[2], &body]), BadInput::Sections("unknown kind")),
        (sections(0, &[&[0], &body, &[0], &body]), BadInput::Sections("two sections of kind 0")),
        (sections(0, &[&[0], &long_body]), BadInput::Truncated("a document")),
        (sections(0, &[&[0], &[4, 0, 0, 0, 0]]), BadInput::Bson(String::new())),
        (sections(0, &[&[0], &bad_body]), BadInput::Bson(String::new())),
        (sections(0, &[&[1], &[3, 0, 0, 0, b'a', 0], &[0], &body]), BadInput::Truncated("a sequence's size")),
        (sections(0, &[&[1], &[255, 255, 255, 255]]), BadInput::Sections("negative size of a sequence")),
        (sections(0, &[&[1], &[99, 0, 0, 0, b'a', 0]]), BadInput::Truncated("a sequence")),
        (sections(0, &[&[1], &[5, 0, 0, 0, b'a']]), BadInput::Truncated("a name")),
        (sections(0, &[&[1], &[6, 0, 0, 0, 0xff, 0]]), BadInput::Sections("a name that is not UTF-8")),
        (sections(0, &[&[0], &body, &[1], &[9, 0, 0, 0], b"ping\0"]), BadInput::Sections("identifier given twice")),
        (sections(0, &[&[0], &nested_bytes(5000)]), BadInput::TooDeep),
    ];
    for (bytes, expected) in cases {
        let found = reason_of(&server, &bytes);
        let alike = matches!((&found, &expected), (BadInput::Bson(_), BadInput::Bson(_))) || found == expected;
        assert!(alike, "expected {expected:?}, found {found:?}");
        assert!(!found.to_string().is_empty());
    }
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
}

#[test]
fn every_truncation_of_a_message_is_an_error() {
    let server = start();
    let body = ping().to_vec().unwrap();
    for cut in 0..body.len() {
        let found = reason_of(&server, &sections(0, &[&[0], &body[..cut]]));
        assert!(matches!(found, BadInput::Truncated(_) | BadInput::Bson(_)), "{found:?}");
    }
}

#[test]
fn nesting_up_to_the_limit_is_read() {
    let server = start();
    let mut asked = ping();
    asked.insert("deep", nested(198));
    assert!(is_ok(&connect(&server).run("admin", asked).unwrap()));
    let mut asked = ping();
    asked.insert("deep", nested(199));
    let found = reason_of(&server, &sections(0, &[&[0], &asked.to_vec().unwrap()]));
    assert_eq!(found, BadInput::TooDeep);
}

#[test]
fn messages_may_arrive_byte_by_byte() {
    let (_server, mut client) = connected();
    for byte in sections(0, &[&[0], &ping().to_vec().unwrap()]) {
        client.stream().write_all(&[byte]).unwrap();
    }
    let reply = client.read().unwrap();
    assert_eq!(reply.response_to, 9);
    assert!(is_ok(&reply.body));
}

#[test]
fn long_message_is_read_and_its_memory_is_freed() {
    let options = FakeOptions { buffer_bytes_max: 8 * 1024 * 1024, ..FakeOptions::default() };
    let server = FakeServer::start(options).unwrap();
    let mut client = connect(&server);
    for _ in 0..3 {
        let mut asked = ping();
        asked.insert("filler", "x".repeat(7 * 1024 * 1024));
        assert!(is_ok(&client.run("admin", asked).unwrap()));
    }
    drop(client);
    let mut half = frame(7 * 1024 * 1024, 2013, &[]);
    half.resize(6 * 1024 * 1024, 0);
    let mut hoarder = connect(&server);
    hoarder.stream().write_all(&half).unwrap();
    hoarder.stream().shutdown(std::net::Shutdown::Write).unwrap();
    server.wait_until(PATIENCE, |view| view.open_count() == 0).unwrap();
    let mut asked = ping();
    asked.insert("filler", "x".repeat(7 * 1024 * 1024));
    assert!(is_ok(&connect(&server).run("admin", asked).unwrap()));
}

#[test]
fn memory_is_bounded_over_all_connections() {
    let server = FakeServer::start(FakeOptions { buffer_bytes_max: 100_000, ..FakeOptions::default() }).unwrap();
    let mut claims = frame(40_000_000, 2013, &[]);
    // A length in a header does not allocate memory.
    let mut patient: Vec<BlockingClient> = (0..20).map(|_| connect(&server)).collect();
    for client in &mut patient {
        client.stream().write_all(&claims).unwrap();
    }
    claims.resize(300_000, 0);
    assert_eq!(reason_of_partly_read(&server, &claims), BadInput::Memory);
    assert_eq!(server.open_count(), 20);
    assert!(is_ok(&connect(&server).run("admin", ping()).unwrap()));
}

/// As [`reason_of`], for input of which the server may not read all bytes.
fn reason_of_partly_read(server: &FakeServer, bytes: &[u8]) -> BadInput {
    let mut client = connect(server);
    let _ = client.stream().write_all(bytes);
    server.wait_until(PATIENCE, |view| view.closed().next().is_some()).unwrap();
    match server.look(|view| view.closed().next().unwrap().ended.clone()) {
        Some(Ended::BadInput(bad)) => bad,
        other => panic!("{other:?}"),
    }
}

#[test]
fn long_and_many_command_names_are_bounded() {
    let (server, mut client) = connected();
    let mut long = Document::new();
    long.insert("x".repeat(10_000), 1);
    assert_eq!(code(&client.run("admin", long).unwrap()), 59);
    assert_eq!(server.count_of("(too long)"), 1);
    for n in 0..300 {
        let mut command = Document::new();
        command.insert(format!("name{n}"), 1);
        client.run("admin", command).unwrap();
    }
    assert_eq!(server.count_of("name0"), 1);
    assert!(server.count_of("(other)") > 0);
    assert!(server.log().iter().all(|received| received.name.len() <= 128));
}
