use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::bson::{DocumentWriter, ElementType, RawDocument, RawValue};
use crate::compress::Compressor;
use crate::message::{Decoded, Flags, Limits, Matched, Message, Outgoing, decode_message, encode_message};
use crate::{EncodeError, SliceSink, WireError, WireErrorKind};
use crate::{server::ObjectId, server::ServerType, server::TopologyVersion};
use core::time::Duration;

type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

fn bytes(write: Write<'_>) -> Vec<u8> {
    let mut sink = Vec::new();
    DocumentWriter::write(&mut sink, write).expect("room");
    sink
}

fn parse(bytes: &[u8]) -> Result<HelloReply<'_>, WireError> {
    HelloReply::parse(RawDocument::new(bytes).expect("opens"))
}

fn message(bytes: &[u8]) -> Message<'_> {
    match decode_message(bytes, &Limits::DEFAULT) {
        Ok(Decoded::Done { value, rest: [] }) => value,
        other => panic!("one message, not {other:?}"),
    }
}

fn keys(document: RawDocument<'_>) -> Vec<&str> {
    document.iter().map(|element| element.expect("good").key).collect()
}

fn metadata() -> ClientMetadata {
    let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "Linux", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

fn handshake_hello(hello: &HandshakeHello<'_>) -> Vec<u8> {
    let mut sink = Vec::new();
    encode_hello(&mut sink, 1, HelloKind::Handshake { legacy: true }, hello).expect("room");
    sink
}

// Requests.

/// The first hello without Stable API has the old name, contains helloOk, and
/// backpressure is a string.
#[test]
#[doc(alias("MON-05", "MON-06"))]
fn handshake_uses_the_old_name_with_hello_ok() {
    let metadata = metadata();
    let sent = handshake_hello(&HandshakeHello::new(&metadata));
    let body = message(&sent).body();
    assert_eq!(keys(body), ["isMaster", "helloOk", "backpressure", "client", "compression", "$db"]);
    assert_eq!(body.get("helloOk"), Ok(Some(RawValue::Boolean(true))));
    assert_eq!(body.get("backpressure"), Ok(Some(RawValue::String("2"))));
    assert_eq!(body.get("$db"), Ok(Some(RawValue::String("admin"))));
    assert_eq!(body.get("client"), Ok(Some(RawValue::Document(metadata.document()))));
    assert_eq!(message(&sent).flags(), Flags::NONE);
    assert_eq!(message(&sent).validate_structure(), Ok(()));
}

/// With the Stable API the command is `hello`, and the API is declared.
#[test]
#[doc(alias = "MON-05")]
fn handshake_with_stable_api_uses_the_new_name() {
    let metadata = metadata();
    let api = ServerApi { version: "1", strict: Some(true), deprecation_errors: Some(false) };
    let sent = handshake_hello(&HandshakeHello { server_api: Some(api), ..HandshakeHello::new(&metadata) });
    let body = message(&sent).body();
    assert_eq!(
        keys(body),
        ["hello", "backpressure", "client", "compression", "apiVersion", "apiStrict", "apiDeprecationErrors", "$db"]
    );
    assert_eq!(body.get("apiStrict"), Ok(Some(RawValue::Boolean(true))));
    assert_eq!(body.get("apiDeprecationErrors"), Ok(Some(RawValue::Boolean(false))));
    let plain = ServerApi { version: "1", strict: None, deprecation_errors: None };
    let sent = handshake_hello(&HandshakeHello { server_api: Some(plain), ..HandshakeHello::new(&metadata) });
    assert_eq!(message(&sent).body().get("apiStrict"), Ok(None));
}

/// The load-balanced handshake uses `hello` and has the field `loadBalanced`.
#[test]
#[doc(alias = "CMAP-92")]
fn load_balanced_handshake_has_its_field() {
    let metadata = metadata();
    let sent = handshake_hello(&HandshakeHello { load_balanced: true, ..HandshakeHello::new(&metadata) });
    let body = message(&sent).body();
    assert_eq!(body.get("loadBalanced"), Ok(Some(RawValue::Boolean(true))));
    assert_eq!(body.get("hello"), Ok(Some(RawValue::Int32(1))));
    assert_eq!(body.get("isMaster"), Ok(None));
}

#[test]
fn handshake_offers_compressors_and_authentication() {
    let metadata = metadata();
    let first = bytes(&|d| d.int32("saslStart", 1).map(drop));
    let first = RawDocument::new(&first).expect("opens");
    let hello = HandshakeHello {
        compressors: [Compressor::Zstd, Compressor::Snappy].into_iter().collect(),
        sasl_supported_mechs: Some("admin.user"),
        speculative_authenticate: Some(first),
        ..HandshakeHello::new(&metadata)
    };
    let sent = handshake_hello(&hello);
    let body = message(&sent).body();
    let compression = body.get("compression").expect("good").and_then(RawValue::as_array).expect("there");
    assert_eq!(compression.strings().collect::<Vec<_>>(), ["zstd", "snappy"]);
    assert_eq!(body.get("saslSupportedMechs"), Ok(Some(RawValue::String("admin.user"))));
    assert_eq!(body.get("speculativeAuthenticate"), Ok(Some(RawValue::Document(first))));
}

/// Later hellos carry no handshake arguments; MON-05: nor do legacy ones.
#[test]
#[doc(alias("MON-05", "MON-06"))]
fn later_hello_has_no_handshake_arguments() {
    let client = metadata();
    let first = HandshakeHello::new(&client);
    for (legacy, key) in [(false, "hello"), (true, "isMaster")] {
        let mut sink = Vec::new();
        let (length, flags) = encode_hello(&mut sink, 9, HelloKind::Poll { legacy }, &first).expect("room");
        assert_eq!((length, flags), (sink.len(), Flags::NONE));
        assert_eq!(keys(message(&sink).body()), [key, "$db"]);
    }
    let server_api = Some(ServerApi { version: "1", strict: None, deprecation_errors: None });
    let mut sink = Vec::new();
    let poll = HelloKind::Poll { legacy: false };
    encode_hello(&mut sink, 9, poll, &HandshakeHello { server_api, ..first }).expect("room");
    assert_eq!(keys(message(&sink).body()), ["hello", "apiVersion", "$db"]);
}

/// An awaitable hello for changes after the topologyVersion with counter 8.
const AWAITABLE: HelloKind = HelloKind::Awaitable {
    legacy: false,
    topology_version: TopologyVersion { process_id: ObjectId([5; 12]), counter: 8 },
    max_await_time: Duration::from_secs(10),
};

/// An awaitable hello sends both fields, and allows a stream.
#[test]
#[doc(alias = "MON-28")]
fn awaitable_hello_sends_version_and_time_together() {
    let mut sink = Vec::new();
    let (_, flags) = encode_hello(&mut sink, 9, AWAITABLE, &HandshakeHello::new(&metadata())).expect("room");
    assert_eq!((flags, message(&sink).flags()), (Flags::EXHAUST_ALLOWED, Flags::EXHAUST_ALLOWED));
    let body = message(&sink).body();
    assert_eq!(body.get("maxAwaitTimeMS"), Ok(Some(RawValue::Int64(10_000))));
    let version = body.get("topologyVersion").expect("good").and_then(RawValue::as_document).expect("there");
    assert_eq!(version.get("processId"), Ok(Some(RawValue::ObjectId(ObjectId([5; 12])))));
    assert_eq!(version.get("counter"), Ok(Some(RawValue::Int64(8))));
}

/// A reply with this id to a message.
fn reply_to(response_to: i32, request_id: i32, flags: Flags, write: Write<'_>) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing::reply(request_id, response_to).with_flags(flags);
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| message.body(write)).expect("room");
    sink
}

/// The first hello, then an awaitable one with a second, streamed reply, then no
/// further reply.
#[test]
#[doc(alias("MON-28", "MON-32"))]
fn exchange_writes_hellos_and_reads_the_replies_of_a_stream() {
    let client = metadata();
    let first = HandshakeHello::new(&client);
    let mut exchange = HelloExchange::new();
    let mut sink = Vec::new();
    exchange.send_hello(HelloKind::Handshake { legacy: true }, &first, &mut sink).expect("room");
    assert_eq!(message(&sink).body().get("helloOk"), Ok(Some(RawValue::Boolean(true))));

    let mut input = reply_to(1, 70, Flags::NONE, &|d| d.int32("ok", 1)?.boolean("helloOk", true).map(drop));
    let Ok(Decoded::NeedMore { bytes_min }) = exchange.handle_input(&input[..20]) else {
        panic!("the body is missing")
    };
    assert!(bytes_min > 0 && bytes_min <= input.len() - 20);
    let Ok(Decoded::Done { value: (reply, matched), rest: [] }) = exchange.handle_input(&input) else {
        panic!("a whole reply")
    };
    assert_eq!((reply.ok, reply.hello_ok, matched), (true, true, Matched::Last));

    sink.clear();
    exchange.send_hello(AWAITABLE, &first, &mut sink).expect("room");
    assert_eq!(message(&sink).header().request_id, 2);
    input = reply_to(2, 71, Flags::MORE_TO_COME, &|d| d.int32("ok", 1).map(drop));
    input.extend(reply_to(71, 72, Flags::NONE, &|d| d.int32("ok", 0)?.int32("code", 91).map(drop)));
    let Ok(Decoded::Done { value: (reply, Matched::MoreComes), rest }) = exchange.handle_input(&input) else {
        panic!("the first reply of a stream")
    };
    assert!(reply.ok);
    let Ok(Decoded::Done { value: (reply, Matched::Last), rest: [] }) = exchange.handle_input(rest) else {
        panic!("the last reply of a stream")
    };
    assert_eq!((reply.ok, reply.code), (false, 91));
    let unsolicited = exchange.handle_input(&[0]).expect_err("no reply is due");
    assert_eq!(unsolicited.kind(), WireErrorKind::Unsolicited { count_bytes: 1 });
}

#[test]
fn exchange_is_unchanged_by_a_hello_that_has_no_room() {
    let client = metadata();
    let mut exchange = HelloExchange::new();
    let mut small = [0; 8];
    let kind = HelloKind::Handshake { legacy: true };
    assert!(exchange.send_hello(kind, &HandshakeHello::new(&client), &mut SliceSink::new(&mut small)).is_err());
    assert_eq!(exchange, HelloExchange::new());
}

/// The new name after helloOk, the old one otherwise, separately for each connection.
#[test]
#[doc(alias = "MON-05")]
fn name_of_hello_follows_hello_ok() {
    let api = ServerApi { version: "1", strict: None, deprecation_errors: None };
    assert_eq!(HelloCommand::first(None, false), HelloCommand::Legacy);
    assert_eq!(HelloCommand::first(Some(api), false), HelloCommand::Hello);
    assert_eq!(HelloCommand::first(None, true), HelloCommand::Hello);
    assert_eq!(HelloCommand::Legacy.after(true), HelloCommand::Hello);
    assert_eq!(HelloCommand::Legacy.after(false), HelloCommand::Legacy);
    assert_eq!(HelloCommand::Hello.after(false), HelloCommand::Hello);
}

// Client metadata and environment.

fn options<'a>(platform: &'a str, environment: Option<&'a Environment>) -> MetadataOptions<'a> {
    MetadataOptions {
        application_name: Some("app"),
        driver_name: "poolhouse",
        driver_version: "0.1.0",
        os_type: "Linux",
        os_name: Some("Debian"),
        os_architecture: Some("x86_64"),
        os_version: Some("12"),
        platform: Some(platform),
        environment,
    }
}

fn lambda() -> Environment {
    environment(&[
        ("AWS_LAMBDA_RUNTIME_API", "x"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
        ("KUBERNETES_SERVICE_HOST", "1.2.3.4"),
    ])
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::detect(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| String::from(*value)))
}

fn sub<'a>(document: RawDocument<'a>, key: &str) -> Option<RawDocument<'a>> {
    document.get(key).expect("good").and_then(RawValue::as_document)
}

#[test]
fn metadata_is_complete_if_it_fits() {
    let environment = lambda();
    let metadata = ClientMetadata::new(&options("rust", Some(&environment))).expect("fits");
    let document = metadata.document();
    assert_eq!(document.validate(), Ok(()));
    assert_eq!(keys(document), ["application", "driver", "os", "platform", "env"]);
    assert_eq!(sub(document, "application").expect("there").get("name"), Ok(Some(RawValue::String("app"))));
    assert_eq!(keys(sub(document, "driver").expect("there")), ["name", "version"]);
    assert_eq!(keys(sub(document, "os").expect("there")), ["type", "name", "architecture", "version"]);
    let env = sub(document, "env").expect("there");
    assert_eq!(keys(env), ["name", "memory_mb", "region", "container"]);
    assert_eq!(env.get("memory_mb"), Ok(Some(RawValue::Int32(1024))));
    assert_eq!(env.get("name"), Ok(Some(RawValue::String("aws.lambda"))));
    let container = sub(env, "container").expect("there");
    assert_eq!(container.get("orchestrator"), Ok(Some(RawValue::String("kubernetes"))));
}

#[test]
fn metadata_omits_fields_in_the_prescribed_order() {
    let environment = lambda();
    let mut seen = Vec::new();
    for length in 0..600 {
        let platform = "p".repeat(length);
        let metadata = ClientMetadata::new(&options(&platform, Some(&environment))).expect("fits");
        let document = metadata.document();
        assert!(document.as_bytes().len() <= METADATA_BYTES_MAX);
        assert_eq!(document.validate(), Ok(()));
        let os = keys(sub(document, "os").expect("there")).len();
        let env = sub(document, "env").map_or(0, |env| keys(env).len());
        let kept = document.get("platform").expect("good").and_then(RawValue::as_str).map_or(0, str::len);
        let shape = (env, os, kept == length);
        if seen.last() != Some(&shape) {
            seen.push(shape);
        }
    }
    // Steps: env reduced to its name, os reduced to its type, env removed, platform cut.
    assert_eq!(seen, [(4, 4, true), (1, 4, true), (1, 1, true), (0, 1, true), (0, 1, false)]);
}

#[test]
fn platform_is_cut_between_characters() {
    let platform = "ä".repeat(400);
    let metadata = ClientMetadata::new(&options(&platform, None)).expect("fits");
    let kept = metadata.document().get("platform").expect("good").and_then(RawValue::as_str).expect("there");
    assert!(platform.starts_with(kept) && kept.len() < platform.len());
    assert!(metadata.document().as_bytes().len() >= METADATA_BYTES_MAX - 1);
}

#[test]
fn application_name_has_at_most_128_bytes() {
    let name = "ä".repeat(64);
    let with = |name| ClientMetadata::new(&MetadataOptions { application_name: Some(name), ..options("", None) });
    assert!(with(&name).is_ok());
    let long = [&name[..], "x"].concat();
    assert_eq!(with(&long), Err(MetadataError::ApplicationNameTooLong { length_bytes: 129 }));
    assert_eq!(with("").expect("fits").document().get("application"), Ok(None));
}

#[test]
fn driver_name_that_does_not_fit_is_an_error() {
    let name = "d".repeat(500);
    let options = MetadataOptions { driver_name: &name, ..options("platform", None) };
    assert_eq!(ClientMetadata::new(&options), Err(MetadataError::TooLong));
}

#[test]
fn missing_os_type_is_unknown() {
    let metadata = ClientMetadata::new(&MetadataOptions::default()).expect("short");
    let os = sub(metadata.document(), "os").expect("there");
    assert_eq!(os.get("type"), Ok(Some(RawValue::String("unknown"))));
}

/// Function services are detected by their variables.
#[test]
#[doc(alias = "MON-04")]
fn environment_is_detected_by_its_variables() {
    let faas = |variables: &[(&str, &str)]| environment(variables).faas;
    assert_eq!(faas(&[]), None);
    assert_eq!(faas(&[("AWS_EXECUTION_ENV", "AWS_Lambda_java8")]), Some(Faas::AwsLambda));
    assert_eq!(faas(&[("AWS_EXECUTION_ENV", "EC2")]), None);
    assert_eq!(faas(&[("AWS_LAMBDA_RUNTIME_API", "x")]), Some(Faas::AwsLambda));
    assert_eq!(faas(&[("AWS_LAMBDA_RUNTIME_API", "")]), None);
    assert_eq!(faas(&[("FUNCTIONS_WORKER_RUNTIME", "node")]), Some(Faas::AzureFunctions));
    assert_eq!(faas(&[("K_SERVICE", "x")]), Some(Faas::GcpFunctions));
    assert_eq!(faas(&[("FUNCTION_NAME", "x")]), Some(Faas::GcpFunctions));
    assert_eq!(faas(&[("VERCEL", "1")]), Some(Faas::Vercel));
    assert_eq!(faas(&[("VERCEL", "1"), ("AWS_LAMBDA_RUNTIME_API", "x")]), Some(Faas::Vercel));
    assert_eq!(faas(&[("VERCEL", "1"), ("K_SERVICE", "x")]), None);
    assert_eq!(faas(&[("FUNCTIONS_WORKER_RUNTIME", "x"), ("K_SERVICE", "x")]), None);
    assert!(environment(&[("VERCEL", "1")]).is_faas());
    assert!(!environment(&[("KUBERNETES_SERVICE_HOST", "x")]).is_faas());
}

#[test]
fn environment_contains_the_variables_of_its_platform() {
    let gcp = environment(&[
        ("K_SERVICE", "x"),
        ("FUNCTION_MEMORY_MB", "512"),
        ("FUNCTION_TIMEOUT_SEC", "60"),
        ("FUNCTION_REGION", "europe"),
        ("AWS_REGION", "not mine"),
    ]);
    assert_eq!((gcp.memory_mb, gcp.timeout_sec, gcp.region.as_deref()), (Some(512), Some(60), Some("europe")));
    let vercel = environment(&[("VERCEL", "1"), ("VERCEL_REGION", "cdg1"), ("AWS_REGION", "not mine")]);
    assert_eq!(vercel.region.as_deref(), Some("cdg1"));
    let broken =
        environment(&[("AWS_LAMBDA_RUNTIME_API", "x"), ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big"), ("AWS_REGION", "")]);
    assert_eq!((broken.memory_mb, broken.region), (None, None));
    let long = "r".repeat(65);
    assert_eq!(environment(&[("VERCEL", "1"), ("VERCEL_REGION", &long)]).region, None);
}

#[test]
fn only_an_environment_without_properties_is_empty() {
    let docker = Environment { is_docker: true, ..Environment::default() };
    let kubernetes = Environment { is_kubernetes: true, ..Environment::default() };
    let function = Environment { faas: Some(Faas::Vercel), ..Environment::default() };
    assert_eq!([docker, kubernetes, function].map(|known| known.is_empty()), [false; 3]);
    assert!(Environment::default().is_empty());
}

#[test]
fn container_alone_is_sent_and_omitted_first() {
    let docker = Environment { is_docker: true, ..Environment::default() };
    let metadata = ClientMetadata::new(&options("", Some(&docker))).expect("fits");
    let env = sub(metadata.document(), "env").expect("there");
    assert_eq!(keys(env), ["container"]);
    let platform = "p".repeat(METADATA_BYTES_MAX - metadata.document().as_bytes().len());
    let metadata = ClientMetadata::new(&options(&platform, Some(&docker))).expect("fits");
    assert_eq!(metadata.document().get("env"), Ok(None));
    assert_eq!(keys(sub(metadata.document(), "os").expect("there")).len(), 4);
    let vercel = Environment { faas: Some(Faas::Vercel), ..Environment::default() };
    let metadata = ClientMetadata::new(&options("", Some(&vercel))).expect("fits");
    assert_eq!(keys(sub(metadata.document(), "env").expect("there")), ["name"], "no container, no word of one");
    let nowhere = ClientMetadata::new(&options("", Some(&Environment::default()))).expect("fits");
    assert_eq!(nowhere.document().get("env"), Ok(None));
}

// Replies.

fn server_type(write: Write<'_>) -> ServerType {
    let bytes = bytes(&|d| {
        write(d)?;
        d.int32("ok", 1).map(drop)
    });
    parse(&bytes).expect("well-formed").server_type()
}

/// SDAM-14.
#[test]
#[doc(alias = "SDAM-14")]
fn ok_other_than_one_is_unknown() {
    let reply = bytes(&|d| d.int32("ok", 0)?.boolean("isWritablePrimary", true)?.str("setName", "rs").map(drop));
    assert_eq!(parse(&reply).expect("well-formed").server_type(), ServerType::Unknown);
}

/// Each rule, and their precedence.
#[test]
#[doc(alias("SDAM-15", "SDAM-16", "SDAM-17", "SDAM-18", "SDAM-19"))]
fn server_type_follows_the_rules_in_their_order() {
    use ServerType as Type;
    assert_eq!(server_type(&|d| d.str("msg", "isdbgrid").map(drop)), Type::Mongos);
    assert_eq!(server_type(&|d| d.str("msg", "other").map(drop)), Type::Standalone);
    assert_eq!(server_type(&|d| d.boolean("isWritablePrimary", true).map(drop)), Type::Standalone);
    assert_eq!(server_type(&|d| d.boolean("isreplicaset", false).map(drop)), Type::Standalone);
    assert_eq!(server_type(&|d| d.boolean("isreplicaset", true)?.str("setName", "rs").map(drop)), Type::RsGhost);
    assert_eq!(
        server_type(&|d| d.boolean("hidden", true)?.boolean("secondary", true)?.str("setName", "rs").map(drop)),
        Type::RsOther
    );
    assert_eq!(server_type(&|d| d.str("setName", "rs")?.boolean("isWritablePrimary", true).map(drop)), Type::RsPrimary);
    assert_eq!(
        server_type(&|d| d.str("setName", "rs")?.boolean("secondary", true)?.boolean("hidden", false).map(drop)),
        Type::RsSecondary
    );
    assert_eq!(server_type(&|d| d.str("setName", "rs")?.boolean("arbiterOnly", true).map(drop)), Type::RsArbiter);
    assert_eq!(server_type(&|d| d.str("setName", "rs").map(drop)), Type::RsOther);
}

/// SDAM-13.
#[test]
#[doc(alias = "SDAM-13")]
fn is_writable_primary_takes_precedence_over_ismaster() {
    let primary = |write: Write<'_>| {
        let reply = bytes(&|d| {
            d.int32("ok", 1)?;
            write(d)
        });
        parse(&reply).expect("well-formed").is_writable_primary
    };
    assert!(primary(&|d| d.boolean("ismaster", true).map(drop)));
    assert!(!primary(&|d| d.boolean("ismaster", true)?.boolean("isWritablePrimary", false).map(drop)));
    assert!(!primary(&|d| d.boolean("isWritablePrimary", false)?.boolean("ismaster", true).map(drop)));
    assert!(primary(&|d| d.boolean("isWritablePrimary", true)?.boolean("ismaster", false).map(drop)));
    assert!(!primary(&|_| Ok(())));
}

#[test]
fn every_field_of_a_reply_is_read() {
    let reply = bytes(&|d| {
        d.boolean("helloOk", true)?.boolean("isWritablePrimary", true)?.str("setName", "rs")?.str("me", "A:1")?;
        d.str("primary", "A:1")?.int32("setVersion", 7)?.object_id("electionId", ObjectId([1; 12]))?;
        d.array("hosts", |v| v.str("A:1")?.str("B:2").map(drop))?.array("passives", |v| v.str("c:3").map(drop))?;
        d.array("arbiters", |v| v.str("d:4").map(drop))?.document("tags", |t| t.str("dc", "x").map(drop))?;
        d.document("lastWrite", |w| w.date_time("lastWriteDate", 123).map(drop))?;
        d.int32("logicalSessionTimeoutMinutes", 30)?.int32("minWireVersion", 6)?.int32("maxWireVersion", 21)?;
        d.document("topologyVersion", |v| v.object_id("processId", ObjectId([2; 12]))?.int64("counter", 6).map(drop))?;
        d.int64("connectionId", 8)?.object_id("serviceId", ObjectId([3; 12]))?.int32("maxBsonObjectSize", 10)?;
        d.int32("maxMessageSizeBytes", 20)?.int32("maxWriteBatchSize", 30)?.boolean("iscryptd", true)?;
        d.array("compression", |v| v.str("zstd").map(drop))?;
        d.array("saslSupportedMechs", |v| v.str("SCRAM-SHA-256").map(drop))?;
        d.document("speculativeAuthenticate", |s| s.boolean("done", true).map(drop))?.double("ok", 1.0).map(drop)
    });
    let reply = parse(&reply).expect("well-formed");
    assert!(reply.ok && reply.hello_ok && reply.is_writable_primary && reply.is_cryptd);
    assert_eq!((reply.set_name, reply.me, reply.primary), (Some("rs"), Some("A:1"), Some("A:1")));
    assert_eq!((reply.set_version, reply.election_id), (Some(7), Some(ObjectId([1; 12]))));
    assert_eq!(reply.hosts.strings().collect::<Vec<_>>(), ["A:1", "B:2"]);
    assert_eq!(reply.passives.strings().collect::<Vec<_>>(), ["c:3"]);
    assert_eq!(reply.arbiters.strings().collect::<Vec<_>>(), ["d:4"]);
    assert_eq!(reply.tags.get("dc"), Ok(Some(RawValue::String("x"))));
    assert_eq!(reply.last_write_date_ms, Some(123));
    assert_eq!(reply.logical_session_timeout_minutes, Some(30));
    assert_eq!((reply.min_wire_version, reply.max_wire_version), (6, 21));
    let version = TopologyVersion { process_id: ObjectId([2; 12]), counter: 6 };
    assert_eq!(reply.topology_version, Some(version));
    assert_eq!((reply.connection_id, reply.service_id), (Some(8), Some(ObjectId([3; 12]))));
    let sizes = Sizes { max_bson_object_bytes: 10, max_message_bytes: 20, max_write_batch_count: 30 };
    assert_eq!(reply.sizes, sizes);
    assert_eq!(reply.compression.strings().collect::<Vec<_>>(), ["zstd"]);
    assert_eq!(reply.sasl_supported_mechs.expect("there").strings().collect::<Vec<_>>(), ["SCRAM-SHA-256"]);
    let speculative = reply.speculative_authenticate.expect("there");
    assert_eq!(speculative.get("done"), Ok(Some(RawValue::Boolean(true))));
}

/// A null field counts as absent.
#[test]
#[doc(alias("SDAM-26", "SDAM-29"))]
fn null_counts_as_absent() {
    let names = [
        "setName",
        "me",
        "primary",
        "hosts",
        "setVersion",
        "electionId",
        "topologyVersion",
        "serviceId",
        "lastWrite",
        "logicalSessionTimeoutMinutes",
        "minWireVersion",
        "maxWireVersion",
        "isWritablePrimary",
        "tags",
        "connectionId",
    ];
    let null = bytes(&|d| {
        names.iter().try_for_each(|name| d.null(name).map(drop))?;
        d.int32("ok", 1).map(drop)
    });
    let absent = bytes(&|d| d.int32("ok", 1).map(drop));
    assert_eq!(parse(&null), parse(&absent));
    let reply = parse(&absent).expect("well-formed");
    assert_eq!((reply.last_write_date_ms, reply.logical_session_timeout_minutes), (None, None));
    assert_eq!((reply.min_wire_version, reply.max_wire_version, reply.sizes), (0, 0, Sizes::DEFAULT));
}

#[test]
fn critical_fields_of_a_wrong_type_are_errors_with_the_fields_name() {
    let names = [
        "ok",
        "isWritablePrimary",
        "ismaster",
        "secondary",
        "arbiterOnly",
        "hidden",
        "isreplicaset",
        "setName",
        "me",
        "primary",
        "hosts",
        "passives",
        "arbiters",
        "setVersion",
        "electionId",
        "topologyVersion",
        "serviceId",
        "minWireVersion",
        "maxWireVersion",
    ];
    let bad = RawValue::Binary(crate::bson::Binary { subtype: 0, bytes: b"" });
    for wrong in names {
        let reply = bytes(&|d| d.value(wrong, bad)?.int32("ok", 1).map(drop));
        let expected = (wrong, ElementType::Binary);
        let kind = parse(&reply).expect_err(wrong).kind();
        let WireErrorKind::FieldType { name, found } = kind else { panic!("{wrong}: {kind}") };
        assert_eq!((name, found), expected);
    }
    for list in ["hosts", "passives", "arbiters"] {
        let reply =
            bytes(&|d| d.int32("ok", 1)?.array(list, |v| v.str("a")?.value(RawValue::Int32(1)).map(drop)).map(drop));
        let found = ElementType::Int32;
        assert!(
            matches!(parse(&reply).expect_err(list).kind(), WireErrorKind::FieldType { found: f, .. } if f == found)
        );
    }
}

#[test]
fn other_fields_of_a_wrong_type_count_as_absent() {
    let names = [
        "helloOk",
        "msg",
        "tags",
        "lastWrite",
        "logicalSessionTimeoutMinutes",
        "connectionId",
        "maxBsonObjectSize",
        "maxMessageSizeBytes",
        "maxWriteBatchSize",
        "compression",
        "saslSupportedMechs",
        "speculativeAuthenticate",
        "iscryptd",
    ];
    let bad = RawValue::Binary(crate::bson::Binary { subtype: 0, bytes: b"" });
    let wrong = bytes(&|d| {
        names.iter().try_for_each(|name| d.value(name, bad).map(drop))?;
        d.int32("ok", 1).map(drop)
    });
    assert_eq!(parse(&wrong), parse(&bytes(&|d| d.int32("ok", 1).map(drop))));
    let date = bytes(&|d| d.int32("ok", 1)?.document("lastWrite", |w| w.int32("lastWriteDate", 1).map(drop)).map(drop));
    assert_eq!(parse(&date).expect("tolerated").last_write_date_ms, None);
}

#[test]
fn invalid_wire_versions_are_refused() {
    let kind = |min: i64, max: i64| {
        let reply = bytes(&|d| d.int32("ok", 1)?.int64("minWireVersion", min)?.int64("maxWireVersion", max).map(drop));
        parse(&reply).err().map(WireError::kind)
    };
    assert_eq!(kind(0, 0), None);
    assert_eq!(kind(6, 21), None);
    assert_eq!(kind(7, 6), Some(WireErrorKind::FieldValue { name: "maxWireVersion" }));
    assert_eq!(kind(-1, 6), Some(WireErrorKind::FieldValue { name: "minWireVersion" }));
    assert_eq!(kind(0, 1 << 32), Some(WireErrorKind::FieldValue { name: "maxWireVersion" }));
}

#[test]
fn invalid_sizes_are_replaced_by_defaults() {
    for size in [0, -1, i64::MIN, 1 << 31, i64::MAX] {
        let reply = bytes(&|d| {
            d.int64("maxBsonObjectSize", size)?.int64("maxMessageSizeBytes", size)?.int64("maxWriteBatchSize", size)?;
            d.int32("ok", 1).map(drop)
        });
        assert_eq!(parse(&reply).expect("tolerated").sizes, Sizes::DEFAULT, "{size}");
    }
    let largest = bytes(&|d| d.int32("ok", 1)?.int64("maxMessageSizeBytes", i64::from(i32::MAX)).map(drop));
    let sizes = parse(&largest).expect("well-formed").sizes;
    assert_eq!(sizes.max_message_bytes, 2_147_483_647);
    assert_eq!(sizes.limits(), Limits::DEFAULT, "it is told, and not believed");
    let smaller = Sizes { max_message_bytes: 47_999_999, ..Sizes::DEFAULT };
    assert_eq!(smaller.limits(), Limits { message_bytes_max: 47_999_999, ..Limits::DEFAULT });
}

#[test]
fn numbers_may_have_any_numeric_type() {
    let reply = bytes(&|d| {
        d.double("setVersion", 5.0)?.int64("maxWireVersion", 21)?.double("logicalSessionTimeoutMinutes", 30.0)?;
        d.double("connectionId", 3.0)?.int32("secondary", 1)?.boolean("ok", true).map(drop)
    });
    let reply = parse(&reply).expect("well-formed");
    assert_eq!((reply.set_version, reply.max_wire_version), (Some(5), 21));
    assert_eq!((reply.logical_session_timeout_minutes, reply.connection_id), (Some(30), Some(3)));
    assert!(reply.secondary);
}

#[test]
fn reply_without_ok_and_malformed_replies_are_errors() {
    let missing = parse(&bytes(&|d| d.str("setName", "rs").map(drop))).expect_err("no ok");
    assert_eq!(missing.kind(), WireErrorKind::FieldMissing { name: "ok" });
    let of_no_type = vec![8, 0, 0, 0, 0x55, b'a', 0, 0];
    assert_eq!(parse(&of_no_type).expect_err("malformed").kind(), WireErrorKind::ElementTag { tag: 0x55 });
    let not_utf8 = bytes(&|d| d.int32("ok", 1)?.str("setName", "r?").map(drop));
    assert!(parse(&not_utf8).is_ok());
    let not_utf8: Vec<u8> = not_utf8.iter().map(|byte| if *byte == b'?' { 0xff } else { *byte }).collect();
    assert_eq!(parse(&not_utf8).expect_err("a name that is no text").kind(), WireErrorKind::Utf8);
}

#[test]
fn fields_that_are_not_read_may_have_any_text() {
    let hello = bytes(&|d| {
        d.str("motd", "a?b")?.document("tags", |tags| tags.str("a", "?")?.str("b", "c").map(drop))?;
        d.int32("ok", 1)?.boolean("secondary", true)?.str("setName", "rs").map(drop)
    });
    let hello: Vec<u8> = hello.iter().map(|byte| if *byte == b'?' { 0xff } else { *byte }).collect();
    let reply = parse(&hello).expect("a reply");
    assert_eq!((reply.set_name, reply.secondary), (Some("rs"), true));
    assert_eq!(reply.tags().collect::<Vec<_>>(), [("b", "c")]);
}

#[test]
fn platforms_of_functions_have_the_names_of_the_specification() {
    let names = [Faas::AwsLambda, Faas::AzureFunctions, Faas::GcpFunctions, Faas::Vercel].map(Faas::name);
    assert_eq!(names, ["aws.lambda", "azure.func", "gcp.func", "vercel"]);
}
