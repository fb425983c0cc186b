//! Everything before the first statement.

use core::net::SocketAddr;
use poolhouse_cql::{
    Compression, CqlEstablished, CqlHandshake, CqlHandshakeOptions, CqlNext, Envelope, ErrorCode, EventKind, Opcode,
    Password, Request, Response, Version,
};
use poolhouse_tests::cql_server::{Act, CqlServer, CqlServerOptions, Rule};
use poolhouse_tests::patience::refused;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::{PATIENCE, SILENCE, VERSIONS, ask, open, started};

fn compressions(version: Version) -> impl Iterator<Item = Option<Compression>> {
    let some = Compression::ALL.into_iter().filter(move |one| one.is_in(version)).map(Some);
    core::iter::once(None).chain(some)
}

#[test]
fn every_version_and_compression_works_with_and_without_a_password() {
    for version in VERSIONS {
        for compression in compressions(version) {
            for credentials in [None, Some(("ada", "pencil"))] {
                let mut options = CqlServerOptions::default();
                if let Some((user, password)) = credentials {
                    options = options.with_credentials(user, password);
                }
                let server = CqlServer::start(options).expect("loopback");
                let mut client = open(&server, version);
                client.startup(compression, credentials).expect("the server accepts the handshake");
                assert_eq!(ask(&mut client, 5, "echo short"), b"short");
                // Many segments, and much to compress.
                let expected: Vec<u8> = b"ab".iter().copied().cycle().take(300_001).collect();
                assert_eq!(ask(&mut client, 32_767, "bytes 300001 ab"), expected);
                let long = "x".repeat(200_000);
                assert_eq!(ask(&mut client, 0, &format!("echo {long}")), long.as_bytes());
                assert_eq!(server.connections()[0].version, Some(version));
                assert_eq!(server.counts().startups, 1);
            }
        }
    }
}

/// Core's own handshake, once.
fn perform_handshake(server: SocketAddr, version: Version) -> CqlNext {
    let options = CqlHandshakeOptions { version, compressions: &[Compression::Lz4], ..CqlHandshakeOptions::DEFAULT };
    let password = Password { username: "ada", password: "pencil" };
    let mut handshake = CqlHandshake::new(options, password, Vec::new(), Vec::new());
    let mut socket = TcpStream::connect(server).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut buffer = [0; 4096];
    loop {
        let mut request = Vec::new();
        if handshake.poll_transmit(&mut request).expect("a vector has room") {
            socket.write_all(&request).expect("connected");
        }
        let count = socket.read(&mut buffer).expect("an answer");
        assert!(count > 0, "the server answers before it closes");
        let handled = handshake.handle_input(&buffer[..count]).expect("the reply is valid");
        assert!(handled.consumed_bytes == count, "one message at a time");
        if matches!(handled.next, CqlNext::Established(_) | CqlNext::Reconnect { .. }) {
            return handled.next;
        }
    }
}

#[test]
fn handshake_downgrades_to_the_supported_version() {
    for spoken in VERSIONS {
        let options = CqlServerOptions::with_versions(&[spoken]).with_credentials("ada", "pencil");
        let server = CqlServer::start(options).expect("loopback");
        let mut asked = Version::NEWEST;
        let established = loop {
            match perform_handshake(server.address(), asked) {
                CqlNext::Reconnect { version } => asked = version,
                CqlNext::Established(established) => break established,
                next @ (CqlNext::Transmit | CqlNext::Receive) => panic!("the handshake has not ended: {next:?}"),
            }
        };
        let CqlEstablished { version, compression, authenticated, .. } = established;
        assert_eq!((version, compression, authenticated), (spoken, Some(Compression::Lz4), true));
    }
}

#[test]
fn unsupported_version_is_answered_by_a_protocol_error_and_closed() {
    let server = CqlServer::start(CqlServerOptions::with_versions(&[Version::V3, Version::V4])).expect("loopback");
    // A client of v4, which can decode the answer, sends a v5 header.
    let mut client = open(&server, Version::V4);
    client.send_raw(&[5, 0, 0, 9, 5, 0, 0, 0, 0]).expect("connected");
    let reply = client.reply().expect("an answer");
    let (code, message) = reply.error().expect("an error");
    assert_eq!((code, reply.stream()), (ErrorCode::PROTOCOL_ERROR, 9));
    assert!(message.contains("version (5)") && message.contains("3/v3, 4/v4"), "{message}");
    assert_eq!(refused(client.reply()).kind(), io::ErrorKind::UnexpectedEof);
    // The oldest versions have headers of eight bytes; the last version does not exist.
    for front in [&[1, 0, 0, 5, 0, 0, 0, 0][..], &[2, 0, 0, 5, 0, 0, 0, 0], &[66, 0, 0, 1, 5, 0, 0, 0, 0]] {
        let mut client = open(&server, Version::V4);
        client.send_raw(front).expect("connected");
        assert_eq!(client.reply().expect("an answer").error().expect("an error").0, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn options_are_answered_before_and_after_startup() {
    let server = started();
    let mut client = open(&server, Version::V5);
    for stream in [3, 4] {
        client.request(stream, &Request::Options).expect("connected");
        let reply = client.reply().expect("an answer");
        let envelope = Envelope { header: reply.header, body: &reply.body };
        let Ok(Response::Supported(supported)) = envelope.response() else { panic!("{envelope:?}") };
        let mut versions: Vec<_> = supported.protocol_versions().collect();
        versions.sort();
        assert_eq!(versions, [Some((3, false)), Some((4, false)), Some((5, false))]);
        assert_eq!(supported.values("COMPRESSION").collect::<Vec<_>>(), ["lz4", "snappy"]);
        if stream == 3 {
            client.startup(Some(Compression::Lz4), None).expect("the server accepts the handshake");
        }
    }
}

#[test]
fn wrong_password_is_refused_and_the_right_one_may_follow() {
    for version in VERSIONS {
        let options = CqlServerOptions::default().with_credentials("ada", "pencil");
        let server = CqlServer::start(options).expect("loopback");
        let mut client = open(&server, version);
        let error = refused(client.startup(None, Some(("ada", "pen"))));
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("bad credentials"), "{error}");
        client.query(1, "echo me").expect("connected");
        let early = client.reply().expect("an answer");
        assert_eq!(early.error().expect("an error").0, ErrorCode::PROTOCOL_ERROR);
        let token = b"\0ada\0pencil";
        client.request(2, &Request::AuthResponse(Some(token))).expect("connected");
        assert_eq!(client.reply().expect("an answer").header.opcode, Opcode::AuthSuccess);
        assert_eq!(ask(&mut client, 3, "echo me"), b"me");
    }
}

#[test]
fn statement_before_startup_and_unknown_compressions_are_protocol_errors() {
    let server = started();
    let mut client = open(&server, Version::V5);
    client.query(1, "echo me").expect("connected");
    assert_eq!(client.reply().expect("an answer").error().expect("an error").0, ErrorCode::PROTOCOL_ERROR);
    let error = refused(client.startup(Some(Compression::Snappy), None));
    assert!(error.to_string().contains("snappy"), "v5 does not support snappy: {error}");
    // The connection is unchanged.
    client.startup(None, None).expect("the server accepts the handshake");
    assert_eq!(ask(&mut client, 3, "echo me"), b"me");

    let mut options = CqlServerOptions::default();
    options.compressions = vec![Compression::Snappy];
    let server = CqlServer::start(options).expect("loopback");
    let error = refused(open(&server, Version::V4).startup(Some(Compression::Lz4), None));
    assert!(error.to_string().contains("lz4"), "{error}");
}

#[test]
fn startup_can_be_repeated_after_a_refusal_or_without_an_answer() {
    for version in VERSIONS {
        let server = started();
        server.add(Rule::on(Opcode::Startup, Act::Error(ErrorCode::IS_BOOTSTRAPPING, "not yet".into())).times(1));
        let lost = server.add(Rule::on(Opcode::Startup, Act::Lose).times(1));
        let mut client = open(&server, version);
        let error = refused(client.startup(None, None));
        assert!(error.to_string().contains("is bootstrapping") && error.to_string().contains("not yet"), "{error}");
        let startup = poolhouse_cql::Startup::default();
        client.request(6, &Request::Startup(startup)).expect("connected");
        assert!(server.wait_until(PATIENCE, |server| server.struck(lost) == 1));
        assert!(client.is_silent_for(SILENCE).expect("connected"));
        client.startup(None, None).expect("the server accepts the handshake");
        assert_eq!(ask(&mut client, 1, "echo me"), b"me");
        assert_eq!((server.counts().startups, server.counts().waiting), (3, 1));
    }
}

#[test]
fn late_ready_is_not_framed() {
    for version in VERSIONS {
        let server = started();
        server.add(Rule::on(Opcode::Startup, Act::Delay(SILENCE)));
        let mut client = open(&server, version);
        let begun = std::time::Instant::now();
        client.startup(Some(Compression::Lz4), None).expect("the server accepts the handshake");
        assert!(begun.elapsed() >= SILENCE);
        assert_eq!(ask(&mut client, 1, "echo me"), b"me");
    }
}

#[test]
fn supported_can_be_malformed() {
    let server = started();
    server.add(Rule::on(Opcode::Options, Act::Answer { opcode: Opcode::Supported, body: vec![0, 9, 1] }));
    let mut client = open(&server, Version::V4);
    client.request(3, &Request::Options).expect("connected");
    let reply = client.reply().expect("an answer");
    assert_eq!((reply.header.opcode, reply.stream(), &reply.body[..]), (Opcode::Supported, 3, &[0, 9, 1][..]));
}

#[test]
fn events_are_sent_to_registered_connections() {
    use poolhouse_cql::{EVENT_STREAM, Event};
    use poolhouse_tests::cql_server::Push;

    for version in VERSIONS {
        let server = started();
        let mut deaf = super::connected(&server, version);
        let mut client = super::connected(&server, version);
        client.request(1, &Request::Register(&EventKind::ALL)).expect("connected");
        assert_eq!(client.reply().expect("an answer").header.opcode, Opcode::Ready);
        let node: SocketAddr = "127.0.0.7:9042".parse().expect("an address");
        let pushes = [
            Push::Topology("NEW_NODE".into(), node),
            Push::Status("DOWN".into(), node),
            Push::Keyspace("CREATED".into(), "letters".into()),
        ];
        for push in pushes {
            assert_eq!(server.push(&push), 1);
            let reply = client.reply().expect("an event");
            assert_eq!(reply.stream(), EVENT_STREAM);
            let envelope = Envelope { header: reply.header, body: &reply.body };
            let Ok(Response::Event(event)) = envelope.response() else { panic!("{envelope:?}") };
            match (push, event) {
                (Push::Topology(change, node), Event::Topology { change: c, node: n })
                | (Push::Status(change, node), Event::Status { change: c, node: n }) => {
                    assert_eq!((c, n), (&*change, node))
                }
                (Push::Keyspace(change, keyspace), Event::Schema(schema)) => {
                    assert_eq!((schema.change, schema.target, schema.keyspace), (&*change, "KEYSPACE", &*keyspace));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(deaf.is_silent_for(SILENCE).expect("connected"));
    }
}
