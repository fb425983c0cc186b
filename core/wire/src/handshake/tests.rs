use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::WireErrorKind;
use crate::bson::{DocumentWriter, RawDocument, RawValue};
use crate::hello::{ClientMetadata, MetadataOptions};
use crate::message::{Message, Outgoing, decode_message, encode_message};

fn metadata() -> ClientMetadata {
    let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

fn reply(
    response_to: i32,
    flags: Flags,
    write: impl FnOnce(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>,
) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing::reply(900, response_to).with_flags(flags);
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| message.body(write)).expect("room");
    sink
}

/// A handshake that has sent its hello.
fn begun(metadata: &ClientMetadata, load_balanced: bool) -> Handshake<'_> {
    let mut handshake = Handshake::new(HandshakeHello { load_balanced, ..HandshakeHello::new(metadata) });
    assert_eq!(handshake.poll_transmit(&mut Vec::new()), Ok(true));
    handshake
}

fn good(d: &mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError> {
    d.boolean("ismaster", true)?.boolean("helloOk", true)?.int32("maxWireVersion", 21)?.int32("minWireVersion", 6)?;
    d.int32("connectionId", 77)?.int32("maxBsonObjectSize", 1000)?.int32("maxMessageSizeBytes", 2000)?;
    d.int32("maxWriteBatchSize", 30)?.double("ok", 1.0).map(drop)
}

#[test]
fn hello_and_its_reply_establish_a_connection() {
    let metadata = metadata();
    let mut handshake = Handshake::new(HandshakeHello::new(&metadata));
    assert_eq!(handshake.handle_input(&[]).expect("nothing yet").next, Next::Transmit);
    let mut sent = Vec::new();
    assert_eq!(handshake.poll_transmit(&mut sent), Ok(true));
    assert_eq!(handshake.poll_transmit(&mut sent), Ok(false));
    let Ok(Decoded::Done { value, rest: [] }) = decode_message(&sent, &Limits::DEFAULT) else { panic!("one message") };
    let request: Message<'_> = value;
    assert_eq!(request.body().get("isMaster"), Ok(Some(RawValue::Int32(1))));

    let reply = reply(request.header().request_id, Flags::NONE, good);
    for end in 0..reply.len() {
        let handled = handshake.handle_input(&reply[..end]).expect("incomplete");
        assert!(matches!(handled.next, Next::Receive { bytes_min: 1.. }), "at {end}");
        assert_eq!((handled.consumed_bytes, handled.hello), (0, None));
    }
    let handled = handshake.handle_input(&reply).expect("complete");
    assert_eq!(handled.consumed_bytes, reply.len());
    assert!(handled.hello.expect("there").is_writable_primary);
    let Next::Established(mut established) = handled.next else { panic!("established") };
    assert_eq!(established.request_ids.next_id(), 2);
    assert_eq!(established.server_type, ServerType::Standalone);
    assert_eq!((established.service_id, established.server_connection_id), (None, Some(77)));
    assert_eq!((established.min_wire_version, established.max_wire_version), (6, 21));
    assert_eq!(established.hello_command, HelloCommand::Hello);
    let sizes = Sizes { max_bson_object_bytes: 1000, max_message_bytes: 2000, max_write_batch_count: 30 };
    assert_eq!(established.sizes, sizes);
    assert_eq!(sizes.limits(), Limits { message_bytes_max: 2000, document_bytes_max: 1000 });
}

/// The reply must name a service behind a load balancer.
#[test]
#[doc(alias = "CMAP-92")]
fn load_balanced_reply_without_service_id_is_an_error() {
    let metadata = metadata();
    let error = begun(&metadata, true).handle_input(&reply(1, Flags::NONE, good)).expect_err("no serviceId");
    assert_eq!((error.cause, error.labels, error.phase), (Cause::MissingServiceId, Labels::NONE, Phase::Hello));
    assert!(error.to_string().contains("load balancing mode"), "{error}");
}

/// And if it does, the connection belongs to that service.
#[test]
#[doc(alias = "CMAP-92")]
fn load_balanced_reply_with_service_id_establishes() {
    let metadata = metadata();
    let mut handshake = begun(&metadata, true);
    let bytes = reply(1, Flags::NONE, |d| {
        good(d)?;
        d.object_id("serviceId", ObjectId([4; 12])).map(drop)
    });
    let Next::Established(established) = handshake.handle_input(&bytes).expect("good").next else { panic!("done") };
    assert_eq!(established.service_id, Some(ObjectId([4; 12])));
    assert_eq!(established.server_type, ServerType::LoadBalancer);
}

#[test]
fn command_error_contains_code_labels_and_topology_version_of_the_reply() {
    let metadata = metadata();
    let bytes = reply(1, Flags::NONE, |d| {
        d.int32("ok", 0)?.int32("code", 91)?;
        d.array("errorLabels", |labels| labels.str("SystemOverloadedError").map(drop))?;
        d.document("topologyVersion", |v| v.object_id("processId", ObjectId([1; 12]))?.int64("counter", 4).map(drop))
            .map(drop)
    });
    let error = begun(&metadata, false).handle_input(&bytes).expect_err("ok: 0");
    assert_eq!(error.cause, Cause::Command { code: 91 });
    assert_eq!(error.labels, Labels::SYSTEM_OVERLOADED_ERROR);
    assert_eq!(error.topology_version, Some(TopologyVersion { process_id: ObjectId([1; 12]), counter: 4 }));
}

/// A command error has no labels if the reply has none (cmap/pool-create-min-size-error relies on
/// it).
#[test]
fn command_error_without_labels_has_none() {
    let metadata = metadata();
    let bytes = reply(1, Flags::NONE, |d| d.int32("ok", 0)?.int32("code", 91).map(drop));
    assert_eq!(begun(&metadata, false).handle_input(&bytes).expect_err("ok: 0").labels, Labels::NONE);
}

#[test]
fn protocol_errors_end_the_handshake_with_rule_and_offset() {
    let metadata = metadata();
    let refused = |bytes: &[u8]| begun(&metadata, false).handle_input(bytes).expect_err("refused");
    let wrong = refused(&reply(2, Flags::NONE, good));
    assert_eq!((wrong.cause, wrong.labels), (Cause::Protocol, Labels::NONE));
    assert_eq!(wrong.wire.map(WireError::kind), Some(WireErrorKind::ResponseTo { expected: 1, found: 2 }));
    assert!(wrong.to_string().ends_with("at byte 8"), "{wrong}");
    let more = refused(&reply(1, Flags::MORE_TO_COME, good));
    assert_eq!(more.wire.map(WireError::kind), Some(WireErrorKind::MoreToCome));
    let tail = [reply(1, Flags::NONE, good), [0; 3].to_vec()].concat();
    assert_eq!(refused(&tail).wire.map(WireError::kind), Some(WireErrorKind::Unsolicited { count_bytes: 3 }));
    let typed = refused(&reply(1, Flags::NONE, |d| d.int32("ok", 1)?.int32("setName", 1).map(drop)));
    assert!(matches!(typed.wire.map(WireError::kind), Some(WireErrorKind::FieldType { name: "setName", .. })));
    assert_eq!(refused(&[0xff; 16]).cause, Cause::Protocol);
}

#[test]
fn bytes_before_hello_was_sent_are_unsolicited() {
    let metadata = metadata();
    let mut handshake = Handshake::new(HandshakeHello::new(&metadata));
    let error = handshake.handle_input(&[1]).expect_err("nobody asked");
    assert_eq!(error.wire.map(WireError::kind), Some(WireErrorKind::Unsolicited { count_bytes: 1 }));
}

/// A socket that fails while hello is under way.
#[test]
#[doc(alias = "CMAP-95")]
fn network_failures_during_hello_have_both_labels() {
    let metadata = metadata();
    let handshake = begun(&metadata, false);
    let both = Labels::SYSTEM_OVERLOADED_ERROR | Labels::RETRYABLE_ERROR;
    for cause in [Cause::Network, Cause::NetworkTimeout] {
        let error = handshake.failed(cause);
        assert_eq!((error.cause, error.labels, error.phase), (cause, both, Phase::Hello));
    }
    assert_eq!(handshake.failed(Cause::Interrupted).labels, Labels::NONE);
}

#[test]
fn hello_that_does_not_fit_is_an_error_of_this_side() {
    let metadata = metadata();
    let mut handshake = Handshake::new(HandshakeHello::new(&metadata));
    let mut small = heapless::Vec::<u8, 40>::new();
    let error = handshake.poll_transmit(&mut small).expect_err("too small");
    assert_eq!((error.cause, error.encode, error.labels), (Cause::Resources, Some(EncodeError::Full), Labels::NONE));
    assert!(small.is_empty());
    assert_eq!(handshake.poll_transmit(&mut Vec::new()), Ok(true));
}

#[test]
fn errors_contain_the_phase() {
    let phases = [
        (Phase::Connect, "connecting"),
        (Phase::Proxy, "handshake with the proxy"),
        (Phase::Tls, "the TLS handshake"),
        (Phase::Hello, "hello"),
        (Phase::Authentication, "authentication"),
    ];
    for (phase, name) in phases {
        let error = HandshakeError::new(phase, Cause::Network);
        assert_eq!(error.to_string(), alloc::format!("network error in {name}"));
    }
    let refused = HandshakeError {
        authentication: Some(AuthError::Refused { code: 18 }),
        ..HandshakeError::new(Phase::Authentication, Cause::Authentication)
    };
    assert_eq!(refused.to_string(), "authentication failed in authentication: the server refused with code 18");
    let full =
        HandshakeError { encode: Some(EncodeError::Full), ..HandshakeError::new(Phase::Hello, Cause::Resources) };
    assert_eq!(full.to_string(), alloc::format!("out of local resources in hello: {}", EncodeError::Full));
}

/// An authenticator writes these fields itself.
#[test]
fn authentication_fields_of_hello_are_ignored_with_an_authenticator() {
    let metadata = metadata();
    let plain = HandshakeHello::new(&metadata);
    let speculative_authenticate = Some(RawDocument::new(&[5, 0, 0, 0, 0]).expect("an empty document"));
    let hello = HandshakeHello { sasl_supported_mechs: Some("admin.user"), speculative_authenticate, ..plain };
    let [mut expected, mut found] = [Vec::new(), Vec::new()];
    assert_eq!(Handshake::new(plain).poll_transmit(&mut expected), Ok(true));
    assert_eq!(Handshake::with_authenticator(hello, Unauthenticated).poll_transmit(&mut found), Ok(true));
    assert_eq!(found, expected);
}

#[test]
fn default_database_of_authenticators_is_admin() {
    fn database(authenticator: impl Authenticator) -> alloc::string::String {
        authenticator.database().to_string()
    }
    let all = [database(Unauthenticated), database(None::<Unauthenticated>), database(&mut Unauthenticated)];
    assert_eq!(all, ["admin"; 3]);
    struct Elsewhere;
    impl Authenticator for Elsewhere {
        fn write_hello<S: Sink>(&self, _: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
            Ok(())
        }

        fn handle_hello(&mut self, _: &HelloReply<'_>) -> Result<Round, AuthError> {
            Ok(Round::Done)
        }

        fn database(&self) -> &str {
            "elsewhere"
        }

        fn write_command<S: Sink>(&self, _: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
            Ok(())
        }

        fn handle_reply(&mut self, _: RawDocument<'_>) -> Result<Round, AuthError> {
            Ok(Round::Done)
        }
    }
    assert_eq!([database(Some(Elsewhere)), database(&mut Elsewhere)], ["elsewhere"; 2]);
}
