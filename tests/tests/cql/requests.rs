//! Statements, and their counters.

use poolhouse_cql::{
    Compression, Consistency, Envelope, ErrorCode, Limits, Opcode, Outcome, OutcomeKind, Outgoing, Parameters, Request,
    Response, Value, Version, encode_envelope,
};
use poolhouse_tests::cql_server::{CqlClient, CqlReply, CqlServer, CqlServerOptions, cell_of};
use std::collections::HashMap;

use super::{PATIENCE, VERSIONS, ask, connected, open, started};

fn outcome(reply: &CqlReply) -> Outcome<'_> {
    let envelope = Envelope { header: reply.header, body: &reply.body };
    match envelope.response() {
        Ok(Response::Result(outcome)) => outcome,
        other => panic!("not a RESULT: {other:?}"),
    }
}

/// The body of an EXECUTE.
fn execution(version: Version, id: &[u8], values: &[Value<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_envelope(&mut bytes, Outgoing::new(version, 0), Opcode::Execute, &Limits::DEFAULT, |body| {
        body.short_bytes(id)?;
        if version == Version::V5 {
            body.short_bytes(id)?;
        }
        Parameters::new(Consistency::One).values(values).write(body)
    })
    .expect("it is short");
    bytes.split_off(9)
}

fn long_string(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[test]
fn statements_are_answered_by_their_text() {
    let server = started();
    for version in VERSIONS {
        let mut client = connected(&server, version);
        assert_eq!(ask(&mut client, 1, "echo ein Häuschen"), "ein Häuschen".as_bytes());
        assert_eq!(ask(&mut client, 1, "echo"), b"");
        assert_eq!(ask(&mut client, 2, "echo "), b"");
        assert_eq!(ask(&mut client, 2, "bytes 0"), b"");
        assert_eq!(ask(&mut client, 2, "bytes 7 abc"), b"abcabca");
        assert_eq!(ask(&mut client, 2, "bytes 100000").len(), 100_000);
        for (text, kind) in
            [("void", OutcomeKind::Void), ("void 17", OutcomeKind::Void), ("USE letters", OutcomeKind::SetKeyspace)]
        {
            client.query(3, text).expect("connected");
            assert_eq!(outcome(&client.reply().expect("an answer")).kind, kind);
        }
        for (text, code) in [
            ("sing a song", ErrorCode::SYNTAX_ERROR),
            ("bytes many", ErrorCode::INVALID),
            ("bytes 67108865", ErrorCode::INVALID),
            ("SELECT * FROM letters.sent", ErrorCode::INVALID),
            ("SELECT weight FROM system.local", ErrorCode::INVALID),
        ] {
            client.query(4, text).expect("connected");
            let reply = client.reply().expect("an answer");
            assert_eq!((reply.error().expect(text).0, reply.stream()), (code, 4), "{text}");
        }
    }
}

#[test]
fn delay_in_the_text_delays_only_that_reply() {
    let server = started();
    let mut client = connected(&server, Version::V5);
    let begun = std::time::Instant::now();
    client.queue_query(1, "delay 2000 echo late").expect("connected");
    client.queue_query(2, "echo early").expect("connected");
    client.flush().expect("connected");
    assert_eq!(client.reply().expect("an answer").cell(), Some((2, &b"early"[..])));
    assert_eq!(client.reply().expect("an answer").cell(), Some((1, &b"late"[..])));
    assert!(begun.elapsed().as_millis() >= 2000);
}

#[test]
fn prepared_statements_replace_variables_by_values() {
    let server = started();
    for version in VERSIONS {
        let mut client = connected(&server, version);
        client.request(1, &Request::Prepare(&long_string("echo ? and ?"))).expect("connected");
        let reply = client.reply().expect("an answer");
        let id = outcome(&reply).prepared_id().expect("well-formed").expect("prepared").to_vec();
        // Also on another connection.
        let mut client = connected(&server, version);
        let body = execution(version, &id, &[Value::Bytes(b"one"), Value::Bytes(b"two?")]);
        client.request(2, &Request::Execute(&body)).expect("connected");
        assert_eq!(client.reply().expect("an answer").cell(), Some((2, &b"one and two?"[..])));
        let body = execution(version, &id, &[Value::Bytes(b"one")]);
        client.request(2, &Request::Execute(&body)).expect("connected");
        assert_eq!(client.reply().expect("an answer").error().expect("an error").0, ErrorCode::INVALID);
        // QUERY can have values as well.
        let values = [Value::Bytes(b"5"), Value::Null];
        let parameters = Parameters::new(Consistency::One).values(&values);
        client.request(3, &Request::Query { text: "bytes ? ab?", parameters }).expect("connected");
        assert_eq!(client.reply().expect("an answer").cell(), Some((3, &b"ababa"[..])));
        client.request(4, &Request::Batch(&[0, 0, 0, 0, 1, 0])).expect("connected");
        assert_eq!(outcome(&client.reply().expect("an answer")).kind, OutcomeKind::Void);
        // Until the prepared statements are removed.
        server.forget_prepared();
        let body = execution(version, &id, &[Value::Bytes(b"one"), Value::Bytes(b"two")]);
        client.request(5, &Request::Execute(&body)).expect("connected");
        assert_eq!(client.reply().expect("an answer").error().expect("an error").0, ErrorCode::UNPREPARED);
    }
}

#[test]
fn cell_of_other_results_is_none() {
    let server = started();
    let mut client = connected(&server, Version::V4);
    client.query(1, "SELECT key FROM system.local").expect("connected");
    let local = client.reply().expect("an answer");
    assert_eq!(cell_of(&local.body), None);
    client.query(1, "echo abc").expect("connected");
    let mut body = client.reply().expect("an answer").body;
    assert_eq!(cell_of(&body), Some(&b"abc"[..]));
    body.push(0);
    assert_eq!(cell_of(&body), None);
    assert_eq!(cell_of(&body[..20]), None);
}

/// Sends `count` requests by few writes, and reads the replies meanwhile.
fn pipelined(server: &CqlServer, version: Version, compression: Option<Compression>, count: i16) -> CqlClient {
    let mut client = open(server, version);
    client.startup(compression, None).expect("the server accepts the handshake");
    for stream in 0..count {
        client.queue_query(stream, &format!("echo number {stream}")).expect("connected");
    }
    client.flush().expect("connected");
    let mut waiting: HashMap<i16, String> = (0..count).map(|stream| (stream, format!("number {stream}"))).collect();
    while !waiting.is_empty() {
        let reply = client.reply().expect("an answer");
        let (stream, cell) = reply.cell().expect("a cell");
        assert_eq!(waiting.remove(&stream).map(String::into_bytes).as_deref(), Some(cell));
    }
    client
}

#[test]
fn every_id_can_be_in_flight_at_once_and_each_reply_is_that_of_its_request() {
    let server = CqlServer::start(CqlServerOptions::fast()).expect("loopback");
    for version in VERSIONS {
        for compression in [None, Some(Compression::Lz4)] {
            let _client = pipelined(&server, version, compression, 8_000);
        }
    }
    let _client = pipelined(&server, Version::V5, None, i16::MAX);
    let counts = server.counts();
    assert_eq!(counts.requests, 6 * 8_001 + 32_768);
    assert_eq!(counts.waiting, 0);
    // The requests arrive together, and are read and answered together.
    assert!(counts.reads < counts.requests / 20, "{counts:?}");
    assert!(counts.writes < counts.requests / 20, "{counts:?}");
    assert!(counts.waiting_max >= 20, "{counts:?}");
    assert!(server.log().is_empty());
}

#[test]
fn counts_and_log_contain_the_received_requests() {
    let server = started();
    let mut client = connected(&server, Version::V4);
    let _other = connected(&server, Version::V3);
    for stream in 0..5 {
        client.queue_query(stream, &format!("echo {stream}")).expect("connected");
    }
    client.flush().expect("connected");
    for _ in 0..5 {
        let _ = client.reply().expect("an answer");
    }
    let counts = server.counts();
    assert_eq!((counts.accepted, counts.open, counts.requests, counts.startups, counts.waiting), (2, 2, 7, 2, 0));
    // One read for each STARTUP, one for all the rest, which is short enough to arrive in one
    // piece.
    assert_eq!((counts.reads, counts.writes, counts.waiting_max), (3, 3, 5));
    let connections = server.connections();
    assert_eq!((connections[0].id, connections[0].requests, connections[0].waiting_max), (1, 6, 5));
    assert_eq!((connections[1].id, connections[1].requests, connections[1].version), (2, 1, Some(Version::V3)));
    let log = server.log();
    let texts: Vec<_> =
        log.iter().filter(|one| one.opcode == Opcode::Query).map(|one| (one.stream, &*one.text)).collect();
    assert_eq!(texts, [(0, "echo 0"), (1, "echo 1"), (2, "echo 2"), (3, "echo 3"), (4, "echo 4")]);
    assert_eq!((log[0].opcode, &*log[0].text), (Opcode::Startup, "CQL_VERSION=3.0.0"));
    drop(client);
    assert!(server.wait_until(PATIENCE, |server| server.counts().open == 1));
}

#[test]
fn log_keeps_the_newest() {
    let mut options = CqlServerOptions::default();
    options.log_max = 3;
    let server = CqlServer::start(options).expect("loopback");
    let mut client = connected(&server, Version::V5);
    for number in 0..10 {
        let _ = ask(&mut client, 0, &format!("echo {number}"));
    }
    let log = server.log();
    let texts: Vec<_> = log.iter().map(|one| &*one.text).collect();
    assert_eq!(texts, ["echo 7", "echo 8", "echo 9"]);
}

#[test]
fn bytes_that_violate_the_protocol_are_answered_by_an_error_and_closed() {
    let server = started();
    for version in VERSIONS {
        let mut client = connected(&server, version);
        client.send_raw(&[0x55; 64]).expect("connected");
        let reply = client.reply().expect("an answer");
        assert_eq!(reply.error().expect("an error").0, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(client.reply().expect_err("the end").kind(), std::io::ErrorKind::UnexpectedEof);
        // A body that ends too early leaves the connection as it is.
        let mut client = connected(&server, version);
        client.request(5, &Request::Prepare(&[0, 0, 1])).expect("connected");
        assert_eq!(client.reply().expect("an answer").error().expect("an error").0, ErrorCode::PROTOCOL_ERROR);
        assert_eq!(ask(&mut client, 1, "echo on"), b"on");
    }
}
