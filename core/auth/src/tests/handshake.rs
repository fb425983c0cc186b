//! Authentication as rounds of a handshake: the requests, and the effects of the replies.

use super::*;
use poolhouse_wire as wire;
use poolhouse_wire::bson::{DocumentWriter, RawDocument, RawValue};
use poolhouse_wire::handshake::{Established, Handled, Handshake, HandshakeError, Next};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, HelloReply, MetadataOptions, ServerApi};
use poolhouse_wire::message::{Limits, Message, Outgoing, decode_message, encode_message};
use poolhouse_wire::{Authenticator, Decoded, EncodeError, Labels, Phase, WireErrorKind};
use poolhouse_wire::{Cause, ServerType};

type Writer<'w> = DocumentWriter<'w, Vec<u8>>;
type Written = Result<(), EncodeError>;

fn client() -> ClientMetadata {
    let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
    ClientMetadata::new(&options).expect("short")
}

const SECOND_NONCE: &str = "the-second-nonce-of-the-client";

/// "user" with "pencil" and the nonce of the reference conversation.
fn authentication(mechanism: Option<Mechanism>, speculative: bool) -> Authentication<'static> {
    let credential = Credential { mechanism, ..Credential::new("user", "pencil") };
    let options = AuthenticationOptions {
        nonce: SHA_256.nonce().with_second(SECOND_NONCE).expect("a nonce"),
        speculative,
        secure: true,
        ..AuthenticationOptions::new([0; ENTROPY_BYTES])
    };
    Authentication::new(credential, options).expect("can be used")
}

/// A handshake and the number of its last request.
struct Talk<'a, A = Authentication<'a>> {
    handshake: Handshake<'a, A>,
    request_id: i32,
}

impl<'a, A: Authenticator> Talk<'a, A> {
    fn new(client: &'a ClientMetadata, authenticator: A) -> Self {
        let handshake = Handshake::with_authenticator(HandshakeHello::new(client), authenticator);
        Self { handshake, request_id: 0 }
    }

    /// Returns the body of the next request.
    fn sent(&mut self) -> Vec<u8> {
        let mut sink = Vec::new();
        assert_eq!(self.handshake.poll_transmit(&mut sink), Ok(true));
        assert_eq!(self.handshake.poll_transmit(&mut sink), Ok(false), "said once");
        let Ok(Decoded::Done { value, rest: [] }) = decode_message(&sink, &Limits::DEFAULT) else { panic!("one") };
        let message: Message<'_> = value;
        assert_eq!(message.validate_structure(), Ok(()));
        self.request_id += 1;
        assert_eq!(message.header().request_id, self.request_id);
        message.body().as_bytes().to_vec()
    }

    /// Passes a reply to the handshake, first each proper prefix of it, and does the work that it
    /// requires.
    fn told(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Written) -> Result<Next, HandshakeError> {
        let bytes = reply(self.request_id, write);
        for end in 0..bytes.len() {
            let handled = self.handshake.handle_input(&bytes[..end])?;
            assert!(matches!(handled, Handled { consumed_bytes: 0, hello: None, next: Next::Receive { .. } }), "{end}");
        }
        let handled = self.handshake.handle_input(&bytes)?;
        assert_eq!(handled.consumed_bytes, bytes.len());
        assert_eq!(handled.hello.is_some(), self.request_id == 1);
        let mut next = handled.next;
        while next == Next::Work {
            assert_eq!(self.handshake.poll_transmit(&mut Vec::new()), Ok(false), "nothing is to be sent before");
            assert_eq!(self.handshake.phase(), Phase::Authentication);
            // Input is not consumed while work is pending.
            let handled = self.handshake.handle_input(&bytes)?;
            assert_eq!((handled.consumed_bytes, handled.hello), (0, None));
            next = handled.next;
        }
        Ok(next)
    }
}

fn reply(response_to: i32, write: impl FnOnce(&mut Writer<'_>) -> Written) -> Vec<u8> {
    let mut sink = Vec::new();
    let outgoing = Outgoing::reply(900, response_to);
    encode_message(&mut sink, outgoing, &Limits::DEFAULT, |message| message.body(write)).expect("room");
    sink
}

fn hello(d: &mut Writer<'_>) -> Written {
    d.boolean("ismaster", true)?.boolean("helloOk", true)?.int32("maxWireVersion", 21)?.int32("connectionId", 7)?;
    d.double("ok", 1.0).map(drop)
}

fn sasl(d: &mut Writer<'_>, id: i32, payload: &str, done: bool) -> Written {
    d.int32("conversationId", id)?.boolean("done", done)?.binary("payload", 0, payload.as_bytes())?;
    d.double("ok", 1.0).map(drop)
}

/// Writes a reply to hello with this payload for the speculative authentication.
fn hello_with(d: &mut Writer<'_>, payload: &str) -> Written {
    hello(d)?;
    d.document("speculativeAuthenticate", |answer| {
        answer.int32("conversationId", 1)?.boolean("done", false)?.binary("payload", 0, payload.as_bytes()).map(drop)
    })
    .map(drop)
}

fn hello_with_mechanisms(d: &mut Writer<'_>, names: &[&str]) -> Written {
    hello(d)?;
    d.array("saslSupportedMechs", |list| names.iter().try_for_each(|name| list.str(name).map(drop))).map(drop)
}

/// Returns the value at a path in a document.
fn at<'d>(document: &'d [u8], path: &str) -> Option<RawValue<'d>> {
    let mut document = RawDocument::new(document).expect("well-formed");
    let mut keys = path.split('/').peekable();
    loop {
        let value = document.get(keys.next()?).expect("well-formed")?;
        if keys.peek().is_none() {
            return Some(value);
        }
        document = value.as_document()?;
    }
}

fn payload<'d>(document: &'d [u8], path: &str) -> &'d str {
    let binary = at(document, path).and_then(RawValue::as_binary).expect("bytes");
    assert_eq!(binary.subtype, 0);
    core::str::from_utf8(binary.bytes).expect("text")
}

fn keys(document: &[u8]) -> Vec<String> {
    let elements = RawDocument::new(document).expect("well-formed").iter();
    elements.map(|element| element.expect("well-formed").key.to_string()).collect()
}

fn established(next: Result<Next, HandshakeError>) -> Established {
    let Ok(Next::Established(established)) = next else { panic!("{next:?}") };
    established
}

/// Checks the parts that every authentication error has in common (CMAP-96: without labels).
fn assert_refused(result: Result<Next, HandshakeError>, error: AuthError) {
    let refused = result.expect_err("refused");
    assert_eq!((refused.authentication, refused.cause), (Some(error), Cause::Authentication));
    assert_eq!((refused.phase, refused.labels), (Phase::Authentication, Labels::NONE));
}

/// The connection is not established before the server has proved its identity. Every
/// reply is cut at every byte.
#[test]
#[doc(alias = "CMAP-17")]
fn speculative_authentication_takes_one_round_after_hello() {
    let client = client();
    let mut talk = Talk::new(&client, authentication(None, true));
    let request = talk.sent();
    assert_eq!(at(&request, "saslSupportedMechs"), Some(RawValue::String("admin.user")));
    assert_eq!(at(&request, "speculativeAuthenticate/saslStart"), Some(RawValue::Int32(1)));
    assert_eq!(at(&request, "speculativeAuthenticate/mechanism"), Some(RawValue::String("SCRAM-SHA-256")));
    assert_eq!(at(&request, "speculativeAuthenticate/db"), Some(RawValue::String("admin")));
    assert_eq!(at(&request, "speculativeAuthenticate/options/skipEmptyExchange"), Some(RawValue::Boolean(true)));
    let first = payload(&request, "speculativeAuthenticate/payload");
    assert_eq!(first, format!("n,,n=user,r={}", SHA_256.nonce));
    assert_eq!(talk.handshake.phase(), Phase::Hello);

    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    assert_eq!(talk.handshake.phase(), Phase::Authentication);
    let request = talk.sent();
    assert_eq!(keys(&request), ["saslContinue", "conversationId", "payload", "$db"]);
    assert_eq!(at(&request, "conversationId"), Some(RawValue::Int32(1)));
    assert_eq!(at(&request, "$db"), Some(RawValue::String("admin")));
    assert_eq!(payload(&request, "payload"), SHA_256.client_final);

    let mut established = established(talk.told(|d| sasl(d, 1, SHA_256.server_final, true)));
    assert_eq!((established.server_type, established.server_connection_id), (ServerType::Standalone, Some(7)));
    assert_eq!(established.request_ids.next_id(), 3, "ids go on behind those of the handshake");
    let keys = talk.handshake.authenticator().keys().expect("made");
    assert!(keys.fit(ScramMechanism::Sha256, keys.salt(), 4096));
}

#[test]
fn authentication_after_hello_takes_two_or_three_rounds() {
    let client = client();
    for long in [false, true] {
        let mut talk = Talk::new(&client, authentication(Some(Mechanism::SCRAM_SHA_256), false));
        let request = talk.sent();
        assert_eq!((at(&request, "saslSupportedMechs"), at(&request, "speculativeAuthenticate")), (None, None));
        assert_eq!(talk.told(hello), Ok(Next::Transmit));
        let request = talk.sent();
        assert_eq!(keys(&request), ["saslStart", "mechanism", "payload", "options", "$db"]);
        assert_eq!(payload(&request, "payload"), format!("n,,n=user,r={}", SHA_256.nonce));
        assert_eq!(talk.told(|d| sasl(d, 5, SHA_256.server_first, false)), Ok(Next::Transmit));
        assert_eq!(payload(&talk.sent(), "payload"), SHA_256.client_final);
        let mut next = talk.told(|d| sasl(d, 5, SHA_256.server_final, !long));
        if long {
            assert_eq!(next, Ok(Next::Transmit));
            let request = talk.sent();
            assert_eq!((payload(&request, "payload"), at(&request, "conversationId")), ("", Some(RawValue::Int32(5))));
            next = talk.told(|d| sasl(d, 5, "", true));
        }
        established(next);
    }
}

/// If the reply to hello has no answer to the speculative authentication, the authentication begins
/// again, with another nonce and with a mechanism that the server supports.
#[test]
fn unanswered_speculative_authentication_restarts_with_a_listed_mechanism() {
    let client = client();
    for (names, wanted) in [
        (&["SCRAM-SHA-1"][..], "SCRAM-SHA-1"),
        (&["SCRAM-SHA-1", "SCRAM-SHA-256"], "SCRAM-SHA-256"),
        (&[], "SCRAM-SHA-1"),
    ] {
        let mut talk = Talk::new(&client, authentication(None, true));
        talk.sent();
        assert_eq!(talk.told(|d| hello_with_mechanisms(d, names)), Ok(Next::Transmit));
        let request = talk.sent();
        assert_eq!(at(&request, "mechanism"), Some(RawValue::String(wanted)));
        let first = payload(&request, "payload");
        assert_eq!(first, format!("n,,n=user,r={SECOND_NONCE}"));
        assert_eq!(talk.handshake.authenticator().mechanism().map(Mechanism::name), Some(wanted));
    }
}

/// A speculative authentication may have to begin again, which requires a second nonce.
#[test]
fn without_a_second_nonce_hello_is_not_speculative() {
    let client = client();
    let options = || AuthenticationOptions { nonce: SHA_256.nonce(), ..AuthenticationOptions::new([0; ENTROPY_BYTES]) };
    let credential = Credential { mechanism: None, ..Credential::new("user", "pencil") };
    let mut talk = Talk::new(&client, Authentication::new(credential, options()).expect("can be used"));
    let request = talk.sent();
    assert_eq!(at(&request, "speculativeAuthenticate"), None);
    assert_eq!(at(&request, "saslSupportedMechs"), Some(RawValue::String("admin.user")));
    assert_eq!(talk.told(|d| hello_with_mechanisms(d, &["SCRAM-SHA-256"])), Ok(Next::Transmit));
    assert_eq!(payload(&talk.sent(), "payload"), format!("n,,n=user,r={}", SHA_256.nonce));
    // X.509 uses no nonce.
    let credential = Credential { username: None, password: None, mechanism: Some(Mechanism::X509), ..credential };
    let mut talk = Talk::new(&client, Authentication::new(credential, options()).expect("can be used"));
    assert!(at(&talk.sent(), "speculativeAuthenticate").is_some());
}

/// A mechanism that the user chose is never replaced by another one, and a failed authentication is
/// not repeated with a weaker mechanism.
#[test]
fn mechanism_is_not_weakened() {
    let client = client();
    for (mechanism, wanted) in [
        (Mechanism::SCRAM_SHA_256, "SCRAM-SHA-256"),
        (Mechanism::SCRAM_SHA_1, "SCRAM-SHA-1"),
        (Mechanism::Plain, "PLAIN"),
    ] {
        let mut talk = Talk::new(&client, authentication(Some(mechanism), true));
        assert_eq!(at(&talk.sent(), "saslSupportedMechs"), None);
        assert_eq!(talk.told(|d| hello_with_mechanisms(d, &["SCRAM-SHA-1", "PLAIN"])), Ok(Next::Transmit));
        assert_eq!(at(&talk.sent(), "mechanism"), Some(RawValue::String(wanted)));
    }
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    talk.sent();
    let bad = "v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_refused(talk.told(|d| sasl(d, 1, bad, true)), AuthError::ServerSignature);
    assert_eq!(talk.handshake.poll_transmit(&mut Vec::new()), Ok(false), "and nothing else is tried");
    assert_eq!(talk.handshake.phase(), Phase::Authentication);
}

#[test]
fn unrequested_speculative_reply_is_ignored() {
    let client = client();
    let mut talk = Talk::new(&client, authentication(None, false));
    assert_eq!(at(&talk.sent(), "speculativeAuthenticate"), None);
    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    assert_eq!(at(&talk.sent(), "saslStart"), Some(RawValue::Int32(1)));
}

#[test]
fn malformed_speculative_replies_are_refused() {
    let client = client();
    let refused = |payload: &str, error| {
        let mut talk = Talk::new(&client, authentication(None, true));
        talk.sent();
        assert_refused(talk.told(|d| hello_with(d, payload)), error);
        assert_eq!(talk.handshake.phase(), Phase::Authentication);
    };
    refused("", AuthError::AttributeMalformed { name: None });
    refused(&SHA_256.server_first.replacen("r=", "r=x", 1), AuthError::ServerNonce);
    refused(&SHA_256.server_first.replace("4096", "1024"), AuthError::IterationsTooFew { found: 1024 });
    refused(&SHA_256.server_first.replace("4096", "99999999"), AuthError::IterationsTooMany { max: ITERATIONS_MAX });
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    let nothing = |d: &mut Writer<'_>| {
        hello(d)?;
        d.document("speculativeAuthenticate", |_| Ok(())).map(drop)
    };
    assert_refused(talk.told(nothing), AuthError::ReplyField { name: "conversationId" });
}

#[test]
fn replies_without_their_fields_are_refused() {
    let client = client();
    let refused = |write: &dyn Fn(&mut Writer<'_>) -> Written, error| {
        let mut talk = Talk::new(&client, authentication(Some(Mechanism::SCRAM_SHA_256), true));
        talk.sent();
        assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
        talk.sent();
        assert_refused(talk.told(write), error);
    };
    let good = SHA_256.server_final;
    let field = |name| AuthError::ReplyField { name };
    refused(&|d| d.int32("ok", 1).map(drop), field("conversationId"));
    refused(&|d| d.int32("ok", 1)?.str("conversationId", "1").map(drop), field("conversationId"));
    refused(&|d| d.int32("ok", 1)?.int32("conversationId", 1).map(drop), field("payload"));
    let text = |d: &mut Writer<'_>| d.int32("ok", 1)?.int32("conversationId", 1)?.str("payload", good).map(drop);
    refused(&text, field("payload"));
    refused(
        &|d| d.int32("ok", 1)?.int32("conversationId", 1)?.binary("payload", 4, b"v=1").map(drop),
        field("payload"),
    );
    let without_done = |d: &mut Writer<'_>| {
        d.int32("ok", 1)?.int32("conversationId", 1)?.binary("payload", 0, good.as_bytes()).map(drop)
    };
    refused(&without_done, field("done"));
    refused(
        &|d| {
            without_done(d)?;
            d.str("done", "yes").map(drop)
        },
        field("done"),
    );
    refused(&|d| sasl(d, 2, good, true), AuthError::ConversationId);
    refused(&|d| sasl(d, 1, "e=invalid-proof", true), AuthError::ServerError);
}

/// The error of a refusal keeps the server's error labels. Only codes that concern credentials have
/// the cause `Authentication`.
#[test]
fn refusal_is_classified_by_its_code() {
    let client = client();
    for (code, cause) in [
        (18, Cause::Authentication),
        (11, Cause::Authentication),
        (334, Cause::Authentication),
        (91, Cause::Command { code: 91 }),
        (1, Cause::Command { code: 1 }),
        (0, Cause::Command { code: 0 }),
    ] {
        let mut talk = Talk::new(&client, authentication(None, true));
        talk.sent();
        assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
        talk.sent();
        let refusal = |d: &mut Writer<'_>| {
            d.int32("ok", 0)?.int32("code", code)?.str("errmsg", "user pencil")?;
            d.array("errorLabels", |labels| labels.str("RetryableError").map(drop)).map(drop)
        };
        let error = talk.told(refusal).expect_err("ok: 0");
        assert_eq!((error.cause, error.phase), (cause, Phase::Authentication));
        assert_eq!(error.authentication, Some(AuthError::Refused { code }));
        assert_eq!(error.labels, Labels::RETRYABLE_ERROR);
        assert!(!format!("{error} {error:?}").contains("pencil"));
    }
    // An error reply to hello is not an authentication error.
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    let error = talk.told(|d| d.int32("ok", 0)?.int32("code", 18).map(drop)).expect_err("ok: 0");
    assert_eq!((error.cause, error.phase, error.authentication), (Cause::Command { code: 18 }, Phase::Hello, None));
}

/// Errors have no labels once authentication has begun.
#[test]
#[doc(alias = "CMAP-96")]
fn socket_failure_after_hello_has_no_labels() {
    let client = client();
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    assert_ne!(talk.handshake.failed(Cause::Network).labels, Labels::NONE, "hello is not over");
    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    for _ in 0..2 {
        for cause in [Cause::Network, Cause::NetworkTimeout] {
            let error = talk.handshake.failed(cause);
            assert_eq!((error.cause, error.phase, error.labels), (cause, Phase::Authentication, Labels::NONE));
        }
        if talk.request_id == 1 {
            talk.sent();
        }
    }
    let error = talk.handshake.handle_input(&reply(1, hello)).expect_err("a reply to something else");
    assert_eq!((error.cause, error.phase), (Cause::Protocol, Phase::Authentication));
    assert!(matches!(error.wire.map(|wire| wire.kind()), Some(WireErrorKind::ResponseTo { .. })));
}

#[test]
fn x509_takes_one_round_or_none() {
    let client = client();
    let options = |speculative| AuthenticationOptions { speculative, ..AuthenticationOptions::new([0; ENTROPY_BYTES]) };
    for name in [None, Some("CN=us")] {
        let authentication =
            |speculative| Authentication::new(Credential::x509(name), options(speculative)).expect("can be used");
        let mut talk = Talk::new(&client, authentication(true));
        let request = talk.sent();
        assert_eq!(at(&request, "saslSupportedMechs"), None);
        assert_eq!(at(&request, "speculativeAuthenticate/authenticate"), Some(RawValue::Int32(1)));
        assert_eq!(at(&request, "speculativeAuthenticate/mechanism"), Some(RawValue::String("MONGODB-X509")));
        assert_eq!(at(&request, "speculativeAuthenticate/user"), name.map(RawValue::String));
        assert_eq!(at(&request, "speculativeAuthenticate/db"), Some(RawValue::String("$external")));
        let answer = |d: &mut Writer<'_>| {
            hello(d)?;
            d.document("speculativeAuthenticate", |a| a.str("user", "CN=us").map(drop)).map(drop)
        };
        established(talk.told(answer));

        for speculative in [true, false] {
            let mut talk = Talk::new(&client, authentication(speculative));
            talk.sent();
            assert_eq!(talk.told(hello), Ok(Next::Transmit));
            let request = talk.sent();
            let expected: &[&str] = match name {
                Some(_) => &["authenticate", "mechanism", "user", "$db"],
                None => &["authenticate", "mechanism", "$db"],
            };
            assert_eq!(keys(&request), expected);
            assert_eq!(at(&request, "$db"), Some(RawValue::String("$external")));
            established(talk.told(|d| d.str("user", "CN=us")?.int32("ok", 1).map(drop)));
        }
    }
}

#[test]
fn plain_takes_one_round_and_is_never_part_of_hello() {
    let client = client();
    let begun = || {
        let mut talk = Talk::new(&client, authentication(Some(Mechanism::Plain), true));
        let request = talk.sent();
        assert_eq!((at(&request, "speculativeAuthenticate"), at(&request, "saslSupportedMechs")), (None, None));
        assert_eq!(talk.told(hello), Ok(Next::Transmit));
        let request = talk.sent();
        assert_eq!(keys(&request), ["saslStart", "mechanism", "payload", "$db"]);
        assert_eq!(payload(&request, "payload"), "\0user\0pencil");
        assert_eq!(at(&request, "$db"), Some(RawValue::String("$external")));
        talk
    };
    established(begun().told(|d| sasl(d, 1, "", true)));
    assert_refused(begun().told(|d| sasl(d, 1, "", false)), AuthError::NotDone);
    assert_refused(begun().told(|d| sasl(d, 1, "x", true)), AuthError::PayloadUnexpected);
}

/// A password that only SCRAM-SHA-1 accepts is refused only after the server has listed its
/// mechanisms.
#[test]
#[cfg(feature = "std")]
fn password_for_sha_1_only_requires_the_list_of_mechanisms() {
    let client = client();
    let begun = |names: &[&str]| {
        let credential = Credential::new("user", "\u{7}");
        let options = AuthenticationOptions::new([0; ENTROPY_BYTES]);
        let mut talk = Talk::new(&client, Authentication::new(credential, options).expect("can be used"));
        let request = talk.sent();
        assert_eq!(at(&request, "saslSupportedMechs"), Some(RawValue::String("admin.user")));
        assert_eq!(at(&request, "speculativeAuthenticate"), None);
        talk.told(|d| hello_with_mechanisms(d, names))
    };
    assert_eq!(begun(&["SCRAM-SHA-1"]), Ok(Next::Transmit));
    assert_refused(begun(&["SCRAM-SHA-256"]), AuthError::PasswordProhibited);
    let credential = Credential::new("user", "\u{7}").mechanism(Mechanism::SCRAM_SHA_256);
    let refused = Authentication::new(credential, AuthenticationOptions::new([0; ENTROPY_BYTES]));
    assert_eq!(refused.err(), Some(AuthError::PasswordProhibited));
}

/// An arbiter stores no data and has no users, so the client does not authenticate to it.
#[test]
fn connection_to_an_arbiter_is_not_authenticated() {
    let client = client();
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    let arbiter = |d: &mut Writer<'_>| d.str("setName", "rs")?.boolean("arbiterOnly", true)?.int32("ok", 1).map(drop);
    assert_eq!(established(talk.told(arbiter)).server_type, ServerType::RsArbiter);
}

/// Any peer can claim to be an arbiter. The claim is ignored if arbiters are not exempt, and behind
/// a load balancer.
#[test]
fn connection_to_a_claimed_arbiter_is_authenticated_without_the_exemption() {
    let client = client();
    let arbiter = |d: &mut Writer<'_>| d.str("setName", "rs")?.boolean("arbiterOnly", true)?.int32("ok", 1).map(drop);
    let handshake = Handshake::with_authenticator(HandshakeHello::new(&client), authentication(None, true));
    let mut talk = Talk { handshake: handshake.with_arbiters_exempt(false), request_id: 0 };
    talk.sent();
    assert_eq!(talk.told(arbiter), Ok(Next::Transmit));
    assert_eq!(at(&talk.sent(), "saslStart"), Some(RawValue::Int32(1)));

    let balanced = HandshakeHello { load_balanced: true, ..HandshakeHello::new(&client) };
    let handshake = Handshake::with_authenticator(balanced, authentication(None, true));
    let mut talk = Talk { handshake, request_id: 0 };
    talk.sent();
    let behind_a_balancer = |d: &mut Writer<'_>| {
        arbiter(d)?;
        d.value("serviceId", RawValue::ObjectId(poolhouse_wire::ObjectId([1; 12]))).map(drop)
    };
    assert_eq!(talk.told(behind_a_balancer), Ok(Next::Transmit));
}

#[test]
fn stored_keys_replace_the_work_of_the_next_connection() {
    let client = client();
    let keys = ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", &[0; 3], 4096).expect("allowed");
    let options = AuthenticationOptions {
        nonce: SHA_256.nonce().with_second(SECOND_NONCE).expect("a nonce"),
        keys: Some(keys),
        ..AuthenticationOptions::new([0; ENTROPY_BYTES])
    };
    // These keys have another salt, so new keys are derived. The keys of the first pass do fit, and
    // a wrong password is not detected.
    let mut keys = None;
    for password in ["pencil", "wrong"] {
        let options = AuthenticationOptions { keys: keys.or(options.keys.clone()), ..options.clone() };
        let credential = Credential::new("user", password);
        let mut talk = Talk::new(&client, Authentication::new(credential, options).expect("can be used"));
        talk.sent();
        assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
        assert_eq!(payload(&talk.sent(), "payload"), SHA_256.client_final);
        keys = talk.handshake.authenticator().keys().cloned();
    }
    assert!(keys.is_some_and(|keys| keys.salt().len() == 16));
}

/// The Stable API's fields are part of every command, also of the commands of authentication.
#[test]
fn stable_api_is_part_of_every_round() {
    let client = client();
    let mut hello_first = HandshakeHello::new(&client);
    hello_first.server_api = Some(ServerApi { version: "1", strict: None, deprecation_errors: None });
    let mut talk =
        Talk { handshake: Handshake::with_authenticator(hello_first, authentication(None, true)), request_id: 0 };
    assert_eq!(at(&talk.sent(), "apiVersion"), Some(RawValue::String("1")));
    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    assert_eq!(at(&talk.sent(), "apiVersion"), Some(RawValue::String("1")));
}

/// The authenticator's fields replace those of hello, so no field is written twice.
#[test]
fn authenticator_alone_writes_the_authentication_fields_of_hello() {
    let client = client();
    let hello_first = HandshakeHello {
        sasl_supported_mechs: Some("x.y"),
        speculative_authenticate: Some(RawDocument::EMPTY),
        ..HandshakeHello::new(&client)
    };
    for authenticator in [None, Some(authentication(None, true))] {
        let count = usize::from(authenticator.is_some());
        let mut talk = Talk { handshake: Handshake::with_authenticator(hello_first, authenticator), request_id: 0 };
        let keys = keys(&talk.sent());
        for name in ["saslSupportedMechs", "speculativeAuthenticate"] {
            assert_eq!(keys.iter().filter(|key| *key == name).count(), count, "{name}");
        }
    }
}

#[test]
fn request_that_does_not_fit_can_be_written_later() {
    let client = client();
    let mut talk = Talk::new(&client, authentication(None, true));
    talk.sent();
    assert_eq!(talk.told(|d| hello_with(d, SHA_256.server_first)), Ok(Next::Transmit));
    let error = talk.handshake.poll_transmit(&mut heapless::Vec::<u8, 60>::new()).expect_err("too small");
    assert_eq!((error.cause, error.encode), (Cause::Resources, Some(EncodeError::Full)));
    assert_eq!(error.phase, Phase::Authentication);
    assert_eq!(payload(&talk.sent(), "payload"), SHA_256.client_final);
    established(talk.told(|d| sasl(d, 1, SHA_256.server_final, true)));
}

/// An authenticator that is `None` changes nothing.
#[test]
fn none_as_authenticator_does_not_authenticate() {
    let client = client();
    let mut none: Option<Authentication<'_>> = None;
    let mut lent = Talk::new(&client, &mut none);
    assert_eq!(at(&lent.sent(), "saslSupportedMechs"), None);
    established(lent.told(hello));
    assert_eq!(none.handle_hello(&HelloReply::OK), Ok(Round::Done));
}

/// Servers without access control need no authentication.
#[test]
fn unauthenticated_sends_no_command_and_has_no_work() {
    let mut nobody = wire::Unauthenticated;
    let mut body = Vec::new();
    DocumentWriter::write(&mut body, |writer| nobody.write_command(writer)).expect("room");
    assert_eq!(body, RawDocument::EMPTY.as_bytes());
    assert_eq!(nobody.work(), Err(AuthError::Ended));
    assert_eq!(nobody.handle_reply(RawDocument::EMPTY), Ok(Round::Done));
    assert_eq!(None::<wire::Unauthenticated>.work(), Err(AuthError::Ended));
}

/// Mechanisms without keys accept no offered keys, and do no work.
#[test]
fn only_scram_has_keys_and_work() {
    let keys = ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", b"salt-of-the-earth", 4096).expect("good");
    for mechanism in [Mechanism::X509, Mechanism::Plain] {
        let credential = match mechanism {
            Mechanism::Plain => Credential::new("user", "pencil").mechanism(mechanism),
            Mechanism::X509 | Mechanism::Scram(_) => {
                Credential { username: None, password: None, source: None, mechanism: Some(mechanism) }
            }
        };
        let options = AuthenticationOptions { secure: true, ..AuthenticationOptions::new([0; ENTROPY_BYTES]) };
        let mut authentication = Authentication::new(credential, options).expect("can be used");
        assert_eq!(authentication.mechanism(), Some(mechanism));
        assert!(!authentication.offer_keys(&keys));
        assert!(authentication.keys().is_none());
        assert_eq!(authentication.work(), Err(AuthError::Ended));
    }
}

/// While the mechanism is unknown, no command is written, and a reply is an error.
#[test]
fn authentication_with_an_undecided_mechanism_writes_no_command_and_accepts_no_reply() {
    let options = AuthenticationOptions::new([7; ENTROPY_BYTES]);
    let mut unsettled = Authentication::new(Credential::new("user", "\u{7}"), options).expect("SHA-1 may do");
    assert_eq!((unsettled.mechanism(), unsettled.keys().is_some()), (None, false));
    let written = |write: &dyn Fn(&mut Writer<'_>) -> Written| {
        let mut sink = Vec::new();
        DocumentWriter::write(&mut sink, write).expect("it grows");
        keys(&sink)
    };
    assert_eq!(written(&|d| unsettled.write_hello(d)), ["saslSupportedMechs"]);
    assert!(written(&|d| unsettled.write_command(d)).is_empty());
    let mut answer = Vec::new();
    DocumentWriter::write(&mut answer, |d| sasl(d, 1, "", true)).expect("it grows");
    let answer = RawDocument::new(&answer).expect("well-formed");
    assert_eq!(unsettled.handle_reply(answer), Err(AuthError::Ended));
    assert_eq!(unsettled.work(), Err(AuthError::Ended));
    let keys = ScramKeys::derive(ScramMechanism::Sha256, "user", "pencil", b"salt", 4096).expect("good");
    assert!(!unsettled.offer_keys(&keys));
}

/// The server chooses the conversation id. It is returned unchanged, as an int32 if it fits.
#[test]
fn conversation_id_of_the_server_is_returned_unchanged() {
    let client = client();
    for id in [-1, 7, i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::MIN] {
        let mut talk = Talk::new(&client, authentication(Some(Mechanism::SCRAM_SHA_256), false));
        talk.sent();
        assert_eq!(talk.told(hello), Ok(Next::Transmit));
        assert_eq!(keys(&talk.sent()).first().map(String::as_str), Some("saslStart"));
        let answer = |d: &mut Writer<'_>, id: i64, payload: &str, done| {
            d.int64("conversationId", id)?.boolean("done", done)?.binary("payload", 0, payload.as_bytes())?;
            d.double("ok", 1.0).map(drop)
        };
        assert_eq!(talk.told(|d| answer(d, id, SHA_256.server_first, false)), Ok(Next::Transmit));
        let sent = talk.sent();
        let number = i32::try_from(id).map_or(RawValue::Int64(id), RawValue::Int32);
        assert_eq!(at(&sent, "conversationId"), Some(number));
        assert_eq!(payload(&sent, "payload"), SHA_256.client_final);
        assert_refused(talk.told(|d| answer(d, id ^ 1, SHA_256.server_final, true)), AuthError::ConversationId);
    }
}
