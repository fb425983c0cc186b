//! Compression from end to end: the client on smol against the fake server.

use core::future::Future;
use core::time::Duration;

use bson::{Document, doc};
use poolhouse_smol::poolhouse_core::Cause;
use poolhouse_smol::poolhouse_core::pool::CheckOutError;
use poolhouse_smol::poolhouse_driver::{ExchangeError, OperationError};
use poolhouse_smol::poolhouse_wire::compress::Compressor;
use poolhouse_smol::poolhouse_wire::{WireError, WireErrorKind};
use poolhouse_smol::{Client, ClientOptions, Error, ServerMonitoringMode};
use poolhouse_tests::fake::{
    Algorithm, Ended, FailPoint, FailPointMode, FakeOptions, FakeServer, Fault, FaultRule, ReplyCompression,
    ServerState, compressed, compressed_raw,
};
use smol::future::FutureExt;

/// Far longer than any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

const EACH: [(&str, Algorithm); 3] =
    [("snappy", Algorithm::Snappy), ("zlib", Algorithm::Zlib), ("zstd", Algorithm::Zstd)];

fn run(case: impl Future<Output = ()>) {
    let limit = async {
        smol::Timer::after(PATIENCE).await;
        panic!("it hangs");
    };
    smol::block_on(case.or(limit));
}

fn server() -> FakeServer {
    FakeServer::start(FakeOptions::default()).expect("a server")
}

fn server_with(change: impl FnOnce(&mut ServerState)) -> FakeServer {
    let mut state = ServerState::default();
    change(&mut state);
    FakeServer::start(FakeOptions::with_state(state)).expect("a server")
}

/// A client with at most one connection, which determines the connection of each command.
fn client(server: &FakeServer, compressors: &str) -> Client {
    let options = if compressors.is_empty() { String::new() } else { format!("&compressors={compressors}") };
    let uri = format!("{}&maxPoolSize=1{options}", server.uri());
    let mut options = ClientOptions::parse(&uri).expect("a valid connection string");
    options.timeout = Some(PATIENCE);
    Client::with_options(options).expect("valid options")
}

async fn ping(client: &Client) {
    client.run_command("admin", doc! { "ping": 1 }).await.expect("a ping");
}

/// One attempt, without the client's own retry.
async fn once(client: &Client, command: Document) -> Result<Document, Error> {
    client.check_out().await?.run_command("db", command).await
}

/// The rule that the peer broke, if that is the error.
fn wire_error(error: &Error) -> Option<WireError> {
    if let Error::Operation(OperationError::Exchange(ExchangeError::Wire(error)), _) = error {
        Some(*error)
    } else {
        None
    }
}

/// The algorithm of every command of this name, oldest first.
fn algorithms(server: &FakeServer, name: &str) -> Vec<Option<Algorithm>> {
    server.log().into_iter().filter(|received| received.name == name).map(|received| received.algorithm).collect()
}

#[test]
fn requests_and_replies_are_compressed_by_each_compressor() {
    for (name, algorithm) in EACH {
        run(async {
            let server = server();
            let client = client(&server, name);
            for length in [0, 10, 1_000, 100_000, 3_000_000, 7] {
                let text: String = "pool house ".chars().cycle().take(length).collect();
                let documents = vec![doc! { "_id": length as i64, "text": &text }];
                client
                    .run_command("db", doc! { "insert": "c", "documents": documents.clone() })
                    .await
                    .expect("inserted");
                let find = doc! { "find": "c", "filter": { "_id": length as i64 } };
                let found = client.run_command("db", find).await.expect("found");
                let batch = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
                assert_eq!(batch.expect("a batch")[0].as_document(), documents.first(), "{name} {length}");
            }
            assert_eq!(algorithms(&server, "insert"), [Some(algorithm); 6]);
            let counts = server.look(|view| view.compression(algorithm));
            assert_eq!((counts.received_count, counts.replied_count), (12, 12));
            assert!(counts.received_packed_bytes < counts.received_bytes / 4, "{counts:?}");
            assert!(counts.replied_packed_bytes < counts.replied_bytes / 4, "{counts:?}");
            for (_, other) in EACH.into_iter().filter(|(_, other)| *other != algorithm) {
                assert_eq!(server.look(|view| view.compression(other)).received_count, 0);
            }
            client.close().await;
        });
    }
}

/// Neither the pool's hello nor the monitors' is compressed; monitors do not offer compressors
/// either.
#[test]
fn hello_is_never_compressed_and_monitors_never_compress() {
    run(async {
        let server = server();
        let client = client(&server, "zstd,zlib,snappy");
        ping(&client).await;
        server.wait_until(PATIENCE, |view| view.exhausting_count() > 0).expect("a monitor that streams");
        server.update_state(|state| state.batch_count_max = 7);
        server.wait_until(PATIENCE, |view| view.log().filter(|one| one.name == "hello").count() >= 2).expect("hellos");
        let hellos: Vec<_> =
            server.log().into_iter().filter(|one| matches!(&*one.name, "hello" | "isMaster")).collect();
        assert!(hellos.iter().all(|hello| hello.algorithm.is_none()), "{hellos:?}");
        let offers: Vec<_> = hellos
            .iter()
            .filter_map(|hello| hello.body.as_ref()?.get_array("compression").ok())
            .map(|names| names.iter().filter_map(|name| name.as_str()).collect::<Vec<_>>())
            .collect();
        assert_eq!(
            offers.iter().filter(|offer| offer.as_slice() == ["zstd", "zlib", "snappy"]).count(),
            1,
            "{offers:?}"
        );
        assert!(offers.len() >= 2 && offers.iter().filter(|offer| offer.is_empty()).count() == offers.len() - 1);
        assert_eq!(algorithms(&server, "ping"), [Some(Algorithm::Zstd)]);
        client.close().await;
    });
}

/// Wire Compression, "Messages not allowed to be compressed": the fake server closes the connection
/// if one is compressed. The connection stays.
#[test]
fn forbidden_commands_are_sent_uncompressed_over_the_same_connection() {
    run(async {
        let server = server();
        let client = client(&server, "zlib");
        ping(&client).await;
        for name in [
            "saslStart",
            "saslContinue",
            "getnonce",
            "authenticate",
            "createUser",
            "updateUser",
            "copydbSaslStart",
            "copydbgetnonce",
            "copydb",
        ] {
            let refused =
                client.run_command("admin", doc! { name: 1 }).await.expect_err("the fake server does not support it");
            assert!(matches!(refused, Error::Command { .. }), "{refused}");
            assert_eq!(algorithms(&server, name), [None], "{name}");
        }
        client.run_command("admin", doc! { "hello": 1 }).await.expect("a greeting");
        ping(&client).await;
        let pings: Vec<_> = server.log().into_iter().filter(|one| one.name == "ping").collect();
        assert!(pings.iter().all(|one| one.algorithm == Some(Algorithm::Zlib)));
        assert!(pings.iter().all(|one| one.connection == pings[0].connection), "all pings used one connection");
        client.close().await;
    });
}

/// The client's order of compressors decides; the server's order does not matter, nor do names that
/// only one side knows.
#[test]
fn first_compressor_of_the_client_that_the_server_supports_is_used() {
    use Algorithm::{Snappy, Zlib, Zstd};
    let cases: [(&str, &[Algorithm], Option<Algorithm>); 8] = [
        ("zstd,snappy,zlib", &[Snappy, Zlib, Zstd], Some(Zstd)),
        ("zlib,zstd", &[Snappy, Zstd, Zlib], Some(Zlib)),
        ("zstd,snappy", &[Zlib, Snappy], Some(Snappy)),
        ("lz4,zlib", &[Snappy, Zlib], Some(Zlib)),
        ("snappy", &[Zlib, Zstd], None),
        ("zstd", &[], None),
        ("", &[Snappy, Zlib, Zstd], None),
        ("snappy,zlib", &[Algorithm::Noop, Zlib], Some(Zlib)),
    ];
    for (ours, theirs, expected) in cases {
        run(async {
            let server = server_with(|state| state.compressors = theirs.to_vec());
            let client = client(&server, ours);
            ping(&client).await;
            ping(&client).await;
            assert_eq!(algorithms(&server, "ping"), [expected; 2], "{ours} and {theirs:?}");
            client.close().await;
        });
    }
}

/// Servers may compress everything after the handshake, with any common compressor, or nothing.
#[test]
fn replies_may_be_compressed_or_not_regardless_of_the_request() {
    // All four: the handshake, two pings, and an error; the two with compressed requests; none.
    for (reply_compression, expected) in
        [(ReplyCompression::Always, 4), (ReplyCompression::AsAsked, 2), (ReplyCompression::Never, 0)]
    {
        for (name, algorithm) in EACH {
            run(async {
                let server = server_with(|state| state.reply_compression = reply_compression);
                let client = client(&server, name);
                ping(&client).await;
                client
                    .run_command("admin", doc! { "getnonce": 1 })
                    .await
                    .expect_err("the fake server does not support it");
                ping(&client).await;
                let replied = server.look(|view| view.compression(algorithm)).replied_count;
                assert_eq!(replied, expected, "{name} {reply_compression:?}");
                assert_eq!(server.look(|view| view.compression(algorithm)).received_count, 2);
                client.close().await;
            });
        }
    }
}

/// Each byte of the reply arrives separately.
#[test]
fn compressed_reply_that_trickles_is_one_reply() {
    for (name, _) in EACH {
        run(async {
            let server = server_with(|state| state.reply_compression = ReplyCompression::Always);
            server.inject(FaultRule::always(Fault::Trickle { gap: Duration::ZERO }));
            let client = client(&server, name);
            ping(&client).await;
            ping(&client).await;
            client.close().await;
        });
    }
}

/// An `ok: 0` in a compressed reply is an error of the command, and the connection stays.
#[test]
fn errors_of_commands_are_received_compressed() {
    run(async {
        let server = server();
        let client = client(&server, "snappy");
        server.set_fail_point(FailPoint::new(FailPointMode::Times(1), &["ping"]).error(20));
        let error = once(&client, doc! { "ping": 1 }).await.expect_err("the fail point");
        assert!(matches!(error, Error::Command { .. }), "{error}");
        ping(&client).await;
        let pings: Vec<_> = server.log().into_iter().filter(|one| one.name == "ping").collect();
        assert_eq!((pings.len(), pings[0].connection), (2, pings[1].connection));
        client.close().await;
    });
}

/// A compressed message is refused if no compressor was offered.
#[test]
fn compressed_reply_without_an_offered_compressor_is_rejected() {
    run(async {
        let server = server();
        let client = client(&server, "");
        let error = hostile(&server, &client, compressed(Algorithm::Zlib, &plain())).await;
        assert_eq!((error.kind(), error.offset()), (WireErrorKind::Compressed, 12));
        client.close().await;
    });
}

/// A message of 16 + 22 bytes, to be compressed. It is not the reply to any request.
fn plain() -> Vec<u8> {
    let mut message = Vec::new();
    for number in [38, 900, -5, 2013, 0_i32] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(&[0, 17, 0, 0, 0, 1, b'o', b'k', 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0]);
    message
}

/// The error of a command that receives these bytes as its reply. The client then closes the
/// connection, and the next command uses a new one.
async fn hostile(server: &FakeServer, client: &Client, bytes: Vec<u8>) -> WireError {
    ping(client).await;
    let pings = |server: &FakeServer| -> Vec<u64> {
        server.log().into_iter().filter(|one| one.name == "ping").map(|one| one.connection).collect()
    };
    let connection = *pings(server).last().expect("a ping");
    server.inject(FaultRule::once(Fault::Garbage(bytes)).on_command("find"));
    let error = once(client, doc! { "find": "c" }).await.expect_err("hostile");
    let closed = |view: poolhouse_tests::fake::View<'_>| {
        view.connection(connection).is_some_and(|info| info.ended == Some(Ended::ByClient))
    };
    server.wait_until(PATIENCE, closed).expect("the connection is closed");
    ping(client).await;
    assert_ne!(pings(server).last(), Some(&connection), "another connection");
    wire_error(&error).unwrap_or_else(|| panic!("no wire error: {error}"))
}

#[test]
fn hostile_messages_are_rejected_with_kind_and_offset() {
    run(async {
        let server = server_with(|state| state.compressors = vec![Algorithm::Zlib, Algorithm::Zstd]);
        let client = client(&server, "zlib,zstd");
        let plain = plain();
        let (header, body) = plain.split_at(16);
        let good = |algorithm: Algorithm| compressed(algorithm, &plain);
        let with = |size: i32, id: u8, data: &[u8]| {
            let mut bytes = compressed_raw(header, body.len(), id, data);
            bytes[20..24].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        let inside = |opcode: i32| {
            let mut bytes = good(Algorithm::Zlib);
            bytes[16..20].copy_from_slice(&opcode.to_le_bytes());
            bytes
        };
        let zlib = Algorithm::Zlib.compress(body);
        let zstd = Algorithm::Zstd.compress(body);
        let bomb = Algorithm::Zlib.compress(&vec![0; 40_000_000]);
        let declared_bytes = 22;
        let cases = [
            (good(Algorithm::Snappy), WireErrorKind::CompressorNotNegotiated { compressor: Compressor::Snappy }, 24),
            (with(22, 4, &zlib), WireErrorKind::CompressorUnknown { id: 4 }, 24),
            (with(22, 255, &zlib), WireErrorKind::CompressorUnknown { id: 255 }, 24),
            (inside(2012), WireErrorKind::CompressedTwice, 16),
            (compressed(Algorithm::Zlib, &good(Algorithm::Zlib)), WireErrorKind::CompressedTwice, 16),
            (inside(1), WireErrorKind::CompressedOpcode { opcode: 1 }, 16),
            (inside(2004), WireErrorKind::CompressedOpcode { opcode: 2004 }, 16),
            (with(23, 2, &zlib), WireErrorKind::InflatedSize { declared_bytes: 23, found_bytes: 22 }, 20),
            (with(21, 2, &zlib), WireErrorKind::InflatedTooLong { declared_bytes: 21 }, 20),
            (with(21, 3, &zstd), WireErrorKind::InflatedTooLong { declared_bytes: 21 }, 20),
            (with(22, 2, &bomb), WireErrorKind::InflatedTooLong { declared_bytes }, 20),
            (with(22, 2, &zlib[..zlib.len() - 1]), WireErrorKind::CompressedData { compressor: Compressor::Zlib }, 25),
            (with(22, 3, &[1; 30]), WireErrorKind::CompressedData { compressor: Compressor::Zstd }, 25),
            (with(22, 0, &body[..21]), WireErrorKind::UncompressedSize { size_bytes: 22, max_bytes: 21 }, 20),
            // Inflates correctly, and is the reply to another request.
            (good(Algorithm::Zstd), WireErrorKind::ResponseTo { expected: 0, found: -5 }, 8),
        ];
        for (bytes, kind, offset) in cases {
            let error = hostile(&server, &client, bytes).await;
            let expected = match (kind, error.kind()) {
                // The id of the request does not matter.
                (WireErrorKind::ResponseTo { found, .. }, WireErrorKind::ResponseTo { expected, .. }) => {
                    WireErrorKind::ResponseTo { expected, found }
                }
                (kind, _) => kind,
            };
            assert_eq!((error.kind(), error.offset()), (expected, offset));
        }
        for size in [0, -1, i32::MIN, 9, i32::MAX] {
            let error = hostile(&server, &client, with(size, 2, &zlib)).await;
            assert!(matches!(error.kind(), WireErrorKind::UncompressedSize { size_bytes, .. } if size_bytes == size));
        }
        client.close().await;
    });
}

/// Bytes after a compressed reply are refused like those after a plain one.
#[test]
fn bytes_after_a_compressed_reply_are_rejected() {
    run(async {
        let server = server();
        let client = client(&server, "zstd");
        ping(&client).await;
        server.inject(FaultRule::once(Fault::DuplicateReply).on_command("find"));
        // The replies may arrive together or one after the other; in the second case the next
        // command detects the surplus bytes.
        let first = once(&client, doc! { "find": "c" }).await.map(drop);
        let second = once(&client, doc! { "find": "c" }).await.map(drop);
        let error = first.err().or(second.err()).expect("one of the commands fails");
        let kind = wire_error(&error).expect("a wire error").kind();
        assert!(matches!(kind, WireErrorKind::Unsolicited { .. } | WireErrorKind::ResponseTo { .. }), "{kind}");
        client.close().await;
    });
}

/// The limit of the connection's own hello bounds the inflated size, not only the received size.
#[test]
fn reply_that_inflates_beyond_the_limit_is_refused() {
    for (name, _) in EACH {
        run(async {
            let server = server_with(|state| state.message_bytes_max = 20_000);
            let client = client(&server, name);
            let text = "x".repeat(9_000);
            for id in 0..3 {
                let documents = vec![doc! { "_id": id, "text": &text }];
                client.run_command("db", doc! { "insert": "c", "documents": documents }).await.expect("inserted");
            }
            client.run_command("db", doc! { "find": "c", "limit": 2 }).await.expect("below the limit");
            let error = once(&client, doc! { "find": "c" }).await.expect_err("beyond the limit");
            let kind = wire_error(&error).expect("a wire error").kind();
            assert!(matches!(kind, WireErrorKind::UncompressedSize { max_bytes: 19_984, .. }), "{kind}");
            ping(&client).await;
            client.close().await;
        });
    }
}

/// A malformed compressed reply to hello fails the establishment, as a fault of the peer.
#[test]
fn hostile_reply_to_hello_fails_the_establishment() {
    run(async {
        let server = server_with(|state| state.reply_compression = ReplyCompression::Always);
        let mut options = ClientOptions::parse(&format!("{}&compressors=zlib&appName=x", server.uri())).expect("good");
        options.timeout = Some(PATIENCE);
        // After the first check no other handshake of the client is due.
        options.monitor.server_monitoring_mode = ServerMonitoringMode::Poll;
        let client = Client::with_options(options).expect("valid options");
        let lie = compressed_raw(&plain()[..16], 22, 2, b"no zlib at all here");
        server.wait_until(PATIENCE, |view| view.replies_count() > 0).expect("monitored");
        server.inject(FaultRule::once(Fault::Garbage(lie)).on_command("isMaster"));
        let error = client.check_out().await.expect_err("no connection");
        let expected = CheckOutError::EstablishFailed { cause: Cause::Protocol, overloaded: false };
        assert_eq!(error.check_out(), Some(&expected), "{error:?}");
        ping(&client).await;
        client.close().await;
    });
}
