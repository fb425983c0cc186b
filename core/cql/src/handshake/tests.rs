use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::*;
use crate::tests::{envelope, hex, multimap, string};
use crate::{BodyWriter, Encoder};

type Shake<'a, A> = CqlHandshake<'a, Vec<u8>, A>;

const V4: CqlHandshakeOptions<'_> = CqlHandshakeOptions { version: Version::V4, ..CqlHandshakeOptions::DEFAULT };
const V5: CqlHandshakeOptions<'_> = CqlHandshakeOptions::DEFAULT;
const BOTH: &[Compression] = &[Compression::Snappy, Compression::Lz4];
const ADA: Password<'_> = Password { username: "ada", password: "hunter2" };
const CLASS: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

use crate::Password;

fn new<A: CqlAuthenticator>(options: CqlHandshakeOptions<'_>, authenticator: A) -> Shake<'_, A> {
    CqlHandshake::new(options, authenticator, Vec::new(), Vec::new())
}

/// Returns the bytes that the handshake has to send.
fn said<A: CqlAuthenticator>(shake: &mut Shake<'_, A>) -> Vec<u8> {
    let mut sink = hex("aa");
    assert_eq!(shake.handle_input(&[]).map(|handled| handled.next), Ok(CqlNext::Transmit));
    assert_eq!(shake.poll_transmit(&mut sink), Ok(true));
    assert_eq!(shake.poll_transmit(&mut sink), Ok(false));
    assert_eq!(shake.handle_input(&[]).map(|handled| handled.next), Ok(CqlNext::Receive));
    sink.split_off(1)
}

/// Passes bytes to the handshake one at a time. Returns the last result.
fn told<A: CqlAuthenticator>(shake: &mut Shake<'_, A>, bytes: &[u8]) -> Result<CqlNext, CqlHandshakeError> {
    for byte in &bytes[..bytes.len() - 1] {
        let handled = shake.handle_input(&[*byte])?;
        assert_eq!(handled, CqlHandled { consumed_bytes: 1, next: CqlNext::Receive });
    }
    let handled = shake.handle_input(&bytes[bytes.len() - 1..])?;
    assert_eq!(handled.consumed_bytes, 1);
    Ok(handled.next)
}

fn reply(version: u8, opcode: Opcode, body: &[u8]) -> Vec<u8> {
    envelope(version | 0x80, 0, 0, opcode.number(), body)
}

fn supported(version: u8, entries: &[(&str, &[&str])]) -> Vec<u8> {
    reply(version, Opcode::Supported, &multimap(entries))
}

const CQL: (&str, &[&str]) = ("CQL_VERSION", &["3.4.6"]);

fn error(version: u8, code: ErrorCode, message: &str) -> Vec<u8> {
    reply(version, Opcode::Error, &[&code.number().to_be_bytes()[..], &string(message)].concat())
}

/// A handshake that waits for the answer to OPTIONS.
fn asked(options: CqlHandshakeOptions<'_>) -> Shake<'_, Unauthenticated> {
    let mut shake = new(options, Unauthenticated);
    said(&mut shake);
    shake
}

/// A handshake that waits for the answer to STARTUP.
fn started<A: CqlAuthenticator>(options: CqlHandshakeOptions<'_>, authenticator: A) -> Shake<'_, A> {
    let mut shake = new(CqlHandshakeOptions { ask_supported: false, ..options }, authenticator);
    said(&mut shake);
    shake
}

/// A handshake that waits for the answer to its token.
fn authenticating<A: CqlAuthenticator>(options: CqlHandshakeOptions<'_>, authenticator: A) -> Shake<'_, A> {
    let mut shake = started(options, authenticator);
    let wish = reply(options.version.number(), Opcode::Authenticate, &string(CLASS));
    assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
    said(&mut shake);
    shake
}

/// A response as it is sent after the answer to STARTUP.
fn framed(compression: Option<Compression>, response: &[u8]) -> Vec<u8> {
    let mut sink = Vec::new();
    Encoder::new(Version::V5, compression).encode(response, &mut sink).expect("it grows");
    sink
}

fn established(version: Version, compression: Option<Compression>, authenticated: bool) -> CqlNext {
    CqlNext::Established(CqlEstablished { version, compression, authenticated })
}

#[test]
fn server_without_authentication_is_ready_after_startup() {
    for (options, version) in [(V4, Version::V4), (V5, Version::V5)] {
        let options = CqlHandshakeOptions { driver_name: Some("pool"), ..options };
        let mut shake = new(options, Unauthenticated);
        let number = version.number();
        assert_eq!(said(&mut shake), envelope(number, 0, 0, 5, &[]));
        assert_eq!(told(&mut shake, &supported(number, &[CQL])), Ok(CqlNext::Transmit));
        let startup = "0002000b43514c5f56455253494f4e0005332e302e30000b4452495645525f4e414d450004706f6f6c";
        assert_eq!(said(&mut shake), envelope(number, 0, 0, 1, &hex(startup)));
        assert_eq!(told(&mut shake, &reply(number, Opcode::Ready, &[])), Ok(established(version, None, false)));
        assert_eq!(shake.handle_input(&[]), Err(CqlHandshakeError::Ended));
        assert_eq!(shake.poll_transmit(&mut Vec::new()), Ok(false));
        assert_eq!(shake.refusal(), "");
    }
}

#[test]
fn requested_password_is_sent_and_in_version_5_in_a_segment() {
    let token = [&[0, 0, 0, 12][..], b"\0ada\0hunter2"].concat();
    for version in [Version::V3, Version::V4] {
        let mut shake = started(CqlHandshakeOptions { version, ..V4 }, Some(ADA));
        let wish = reply(version.number(), Opcode::Authenticate, &string(CLASS));
        assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
        assert_eq!(said(&mut shake), envelope(version.number(), 0, 0, 0x0f, &token));
        let success = reply(version.number(), Opcode::AuthSuccess, &hex("ffffffff"));
        assert_eq!(told(&mut shake, &success), Ok(established(version, None, true)));
    }
    for compression in [None, Some(Compression::Lz4)] {
        if compression.is_some_and(|compression| !compression.is_available()) {
            continue;
        }
        let options = CqlHandshakeOptions { compressions: BOTH, ..V5 };
        let options = if compression.is_some() { options } else { V5 };
        let mut shake = started(options, ADA);
        let wish = reply(5, Opcode::Authenticate, &string(CLASS));
        assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
        let response = envelope(5, 0, 0, 0x0f, &token);
        // Secrets are too short for compression to make them shorter, so they are not compressed.
        assert_eq!(said(&mut shake), framed(compression, &response));
        let success = framed(compression, &reply(5, Opcode::AuthSuccess, &hex("00000000")));
        assert_eq!(told(&mut shake, &success), Ok(established(Version::V5, compression, true)));
    }
}

/// The frame of `USE "shop"` with consistency ONE, without parameters.
fn use_shop(version: Version) -> Vec<u8> {
    let flags: &[u8] = if version == Version::V5 { &[0; 4] } else { &[0] };
    let body = [&[0, 0, 0, 10][..], b"USE \"shop\"", &[0, 1], flags].concat();
    envelope(version.number(), 0, 0, 7, &body)
}

#[test]
fn keyspace_is_used_last() {
    for version in [Version::V3, Version::V4] {
        let mut shake = started(CqlHandshakeOptions { version, keyspace: Some("shop"), ..V4 }, Unauthenticated);
        let number = version.number();
        assert_eq!(told(&mut shake, &reply(number, Opcode::Ready, &[])), Ok(CqlNext::Transmit));
        assert_eq!(said(&mut shake), use_shop(version));
        let result = reply(number, Opcode::Result, &[&[0, 0, 0, 3][..], &string("shop")].concat());
        assert_eq!(told(&mut shake, &result), Ok(established(version, None, false)));
    }
    let options = CqlHandshakeOptions { keyspace: Some("shop"), ..V5 };
    let mut shake = authenticating(options, Some(ADA));
    let success = framed(None, &reply(5, Opcode::AuthSuccess, &[255; 4]));
    assert_eq!(told(&mut shake, &success), Ok(CqlNext::Transmit));
    assert_eq!(said(&mut shake), framed(None, &use_shop(Version::V5)));
    let result = framed(None, &reply(5, Opcode::Result, &[&[0, 0, 0, 3][..], &string("shop")].concat()));
    assert_eq!(told(&mut shake, &result), Ok(established(Version::V5, None, true)));
}

#[test]
fn keyspace_that_is_refused_or_impossible_ends_the_handshake() {
    let ready = |keyspace| {
        let mut shake = started(CqlHandshakeOptions { keyspace: Some(keyspace), ..V4 }, Unauthenticated);
        assert_eq!(told(&mut shake, &reply(4, Opcode::Ready, &[])), Ok(CqlNext::Transmit));
        shake
    };
    let mut shake = ready("shop");
    said(&mut shake);
    let refused = error(4, ErrorCode::INVALID, "Keyspace 'shop' does not exist");
    assert_eq!(told(&mut shake, &refused), Err(CqlHandshakeError::Refused { code: ErrorCode::INVALID }));
    assert_eq!(shake.refusal(), "Keyspace 'shop' does not exist");
    let mut shake = ready("shop");
    said(&mut shake);
    assert!(told(&mut shake, &reply(4, Opcode::Result, &[0, 0, 0, 1])).is_err(), "another result");
    let (longest, longer) = ("K".repeat(48), "k".repeat(49));
    for name in ["", "a\"b", "shop; DROP", "caf\u{e9}", &longer] {
        let mut sent = Vec::new();
        assert_eq!(ready(name).poll_transmit(&mut sent), Err(CqlHandshakeError::Keyspace), "{name}");
        assert!(sent.is_empty());
    }
    assert!(said(&mut ready(&longest)).ends_with(&[b"\"", &[0, 1, 0][..]].concat()));
}

#[test]
fn decoder_continues_after_the_handshake() {
    let event = envelope(0x85, 0, -1, 0x0c, &string("X"));
    let limits = Limits { body_bytes_max: 3 };
    let mut shake = started(CqlHandshakeOptions { limits, ..V5 }, Unauthenticated);
    let bytes = [reply(5, Opcode::Ready, &[]), framed(None, &event)].concat();
    let handled = shake.handle_input(&bytes).expect("ready");
    assert_eq!((handled.consumed_bytes, handled.next), (9, established(Version::V5, None, false)));
    let (mut decoder, Unauthenticated) = shake.into_parts();
    let step = decoder.decode(&bytes[9..]).expect("an event");
    assert_eq!(step.envelope.expect("there").header.stream, -1);
    let longer = framed(None, &envelope(0x85, 0, 1, 8, &[0; 4]));
    let kind = CqlErrorKind::TooLong { length_bytes: 4, max_bytes: 3 };
    assert_eq!(decoder.decode(&longer).map_err(CqlError::kind), Err(kind), "the connection's limits");
}

#[test]
fn preferred_common_compression_is_negotiated() {
    let lz4 = Compression::Lz4.is_available().then_some(Compression::Lz4);
    let snappy = Compression::Snappy.is_available().then_some(Compression::Snappy);
    for (version, theirs, expected) in [
        (Version::V4, &["lz4", "snappy"][..], snappy.or(lz4)),
        (Version::V4, &["lz4"], lz4),
        (Version::V5, &["snappy", "lz4"], lz4),
        (Version::V5, &["snappy"], None),
        (Version::V3, &["zstd", "LZ4"], None),
        (Version::V3, &[], None),
    ] {
        let options = CqlHandshakeOptions { version, compressions: BOTH, ..V4 };
        let mut shake = asked(options);
        let number = version.number();
        let answer = supported(number, &[CQL, ("COMPRESSION", theirs)]);
        assert_eq!(told(&mut shake, &answer), Ok(CqlNext::Transmit));
        let startup = said(&mut shake);
        let named =
            expected.is_some_and(|one| startup.ends_with(&[&string("COMPRESSION")[..], &string(one.name())].concat()));
        assert_eq!(named, expected.is_some(), "{version} and {theirs:?}");
        let ready = reply(number, Opcode::Ready, &[]);
        assert_eq!(told(&mut shake, &ready), Ok(established(version, expected, false)));
    }
}

#[cfg(feature = "lz4")]
#[test]
fn answers_may_be_compressed_as_soon_as_startup_was_sent() {
    let options = CqlHandshakeOptions { compressions: &[Compression::Lz4], ..V4 };
    let class = "a".repeat(100);
    let compress = |response: &[u8]| {
        let mut sink = Vec::new();
        Encoder::new(Version::V4, Some(Compression::Lz4)).encode(response, &mut sink).expect("it grows");
        assert!(sink.len() < response.len() && sink[1] == 1);
        sink
    };
    let mut shake = started(options, ADA);
    let wish = compress(&reply(4, Opcode::Authenticate, &string(&class)));
    assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
    said(&mut shake);
    let refused = compress(&error(4, ErrorCode::BAD_CREDENTIALS, &class));
    assert_eq!(told(&mut shake, &refused), Err(CqlHandshakeError::Refused { code: ErrorCode::BAD_CREDENTIALS }));
    assert_eq!(shake.refusal(), class);
    // Compression is refused before STARTUP.
    let options = compress(&supported(4, &[CQL, ("A", &[&class])]));
    let wire = CqlError::new(CqlErrorKind::CompressionNotAgreed, 1);
    assert_eq!(told(&mut asked(V4), &options), Err(CqlHandshakeError::Wire(wire)));
}

#[test]
fn newest_common_version_is_selected() {
    let at = |tried: Version, versions: &[&str]| {
        let mut shake = asked(CqlHandshakeOptions { version: tried, ..V4 });
        told(&mut shake, &supported(tried.number(), &[CQL, ("PROTOCOL_VERSIONS", versions)]))
    };
    let reconnect = |version| Ok(CqlNext::Reconnect { version });
    assert_eq!(at(Version::V5, &["3/v3", "4/v4", "5/v5", "6/v6-beta"]), Ok(CqlNext::Transmit));
    assert_eq!(at(Version::V4, &["3/v3", "4/v4", "5/v5"]), Ok(CqlNext::Transmit));
    assert_eq!(at(Version::V5, &["5/v5-beta", "3/v3", "4/v4"]), reconnect(Version::V4));
    assert_eq!(at(Version::V5, &["3/v3"]), reconnect(Version::V3));
    assert_eq!(at(Version::V5, &[]), Ok(CqlNext::Transmit), "it does not say, but it has answered");
    let none = |tried| Err(CqlHandshakeError::NoCommonVersion { tried });
    assert_eq!(at(Version::V5, &["2/v2", "65/dse-v1"]), none(Version::V5));
    assert_eq!(at(Version::V4, &["5/v5"]), none(Version::V4));
    for nonsense in ["", "v5", "5", "five/v5", "-5/v5", "256/v256"] {
        let refused = at(Version::V5, &["5/v5", nonsense]);
        assert_eq!(refused, Err(CqlHandshakeError::Supported { option: "PROTOCOL_VERSIONS" }), "{nonsense}");
    }
}

#[test]
fn malformed_supported_is_refused() {
    for entries in [&[][..], &[("COMPRESSION", &["lz4"][..])], &[("CQL_VERSION", &[])], &[("CQL_VERSION", &["2.0.0"])]]
    {
        let refused = told(&mut asked(V4), &supported(4, entries));
        assert_eq!(refused, Err(CqlHandshakeError::Supported { option: "CQL_VERSION" }));
    }
    let whole = multimap(&[CQL, ("COMPRESSION", &["lz4"])]);
    for end in 0..whole.len() {
        let refused = told(&mut asked(V4), &reply(4, Opcode::Supported, &whole[..end]));
        let Err(CqlHandshakeError::Wire(wire)) = refused else { panic!("{refused:?}") };
        assert!(matches!(wire.kind(), CqlErrorKind::Truncated { .. }), "{wire}");
    }
    let text = told(&mut asked(V4), &reply(4, Opcode::Supported, &hex("00010001ff0000")));
    assert_eq!(text, Err(CqlError::new(CqlErrorKind::Utf8, 13).into()));
}

#[test]
fn refused_version_is_followed_by_an_older_one() {
    let words = "Invalid or unsupported protocol version (5); the lowest supported version is 3 and the greatest is 4";
    let beta = "Beta version of the protocol used (5/v5-beta), but USE_BETA flag is unset";
    let after = |tried: Version, answered: u8, message: &str| {
        let answer = error(answered, ErrorCode::PROTOCOL_ERROR, message);
        let options = CqlHandshakeOptions { version: tried, ..V4 };
        let first = told(&mut asked(options), &answer);
        assert_eq!(told(&mut started(options, Unauthenticated), &answer), first, "to OPTIONS as to STARTUP");
        first
    };
    let reconnect = |version| Ok(CqlNext::Reconnect { version });
    // The version of the answer selects the next version.
    assert_eq!(after(Version::V5, 4, words), reconnect(Version::V4));
    assert_eq!(after(Version::V5, 3, ""), reconnect(Version::V3));
    assert_eq!(after(Version::V4, 3, words), reconnect(Version::V3));
    // If the answer has the version of the request, its text selects the next version.
    assert_eq!(after(Version::V5, 5, words), reconnect(Version::V4));
    assert_eq!(after(Version::V5, 5, beta), reconnect(Version::V4));
    assert_eq!(after(Version::V4, 4, &words.to_uppercase()), reconnect(Version::V3));
    // No lower version exists.
    let none = |tried| Err(CqlHandshakeError::NoCommonVersion { tried });
    assert_eq!(after(Version::V3, 3, words), none(Version::V3));
    assert_eq!(after(Version::V3, 4, words), none(Version::V3));
    assert_eq!(after(Version::V4, 5, words), none(Version::V4));
    let refused = Err(CqlHandshakeError::Refused { code: ErrorCode::PROTOCOL_ERROR });
    assert_eq!(after(Version::V5, 5, "unknown option"), refused);
    // For an unsupported version not even the format of the header is known.
    for number in [1, 2, 6, 65] {
        let wire = CqlError::new(CqlErrorKind::VersionUnknown { number }, 0);
        assert_eq!(after(Version::V5, number, words), Err(wire.into()));
    }
}

/// From the newest version, at most three attempts are made.
#[test]
fn number_of_attempts_is_bounded() {
    let mut options = V5;
    let mut count = 0;
    loop {
        count += 1;
        let number = options.version.number();
        let answer = error(number, ErrorCode::PROTOCOL_ERROR, "unsupported protocol version");
        match told(&mut asked(options), &answer) {
            Ok(CqlNext::Reconnect { version }) => options.version = version,
            other => break assert_eq!(other, Err(CqlHandshakeError::NoCommonVersion { tried: Version::V3 })),
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn error_ends_the_handshake_with_its_code_and_message() {
    for (code, cause) in [
        (ErrorCode::OVERLOADED, Cause::Command { code: 0x1001 }),
        (ErrorCode::IS_BOOTSTRAPPING, Cause::Command { code: 0x1002 }),
        (ErrorCode::BAD_CREDENTIALS, Cause::Authentication),
        (ErrorCode::new(-5), Cause::Command { code: -5 }),
    ] {
        let answer = error(4, code, "no");
        let refused = CqlHandshakeError::Refused { code };
        for shake in [&mut asked(V4), &mut started(V4, Unauthenticated)] {
            assert_eq!(told(shake, &answer), Err(refused));
            assert_eq!(shake.refusal(), "no");
            assert_eq!(shake.handle_input(&[]), Err(CqlHandshakeError::Ended));
        }
        assert_eq!(told(&mut authenticating(V4, ADA), &answer), Err(refused));
        assert_eq!(refused.cause(), cause);
    }
    // Once STARTUP was answered the version is fixed.
    let late = error(4, ErrorCode::PROTOCOL_ERROR, "unsupported protocol version");
    let refused = CqlHandshakeError::Refused { code: ErrorCode::PROTOCOL_ERROR };
    assert_eq!(told(&mut authenticating(V4, ADA), &late), Err(refused));
    let expected = Version::V4;
    let wire = CqlError::new(CqlErrorKind::VersionOther { expected, found: Version::V3 }, 0);
    let older = error(3, ErrorCode::PROTOCOL_ERROR, "unsupported protocol version");
    assert_eq!(told(&mut authenticating(V4, ADA), &older), Err(wire.into()));
    let long = "é".repeat(200);
    let mut shake = asked(V4);
    assert!(told(&mut shake, &error(4, ErrorCode::SERVER_ERROR, &long)).is_err());
    assert_eq!(shake.refusal(), "é".repeat(REFUSAL_BYTES_MAX / 2));
}

#[test]
fn unrequested_messages_are_refused() {
    let unexpected = |opcode| Err(CqlError::new(CqlErrorKind::Unexpected { opcode }, 4).into());
    let bodies = [
        (Opcode::Ready, Vec::new()),
        (Opcode::Authenticate, string("x")),
        (Opcode::Supported, multimap(&[CQL])),
        (Opcode::AuthChallenge, hex("ffffffff")),
        (Opcode::AuthSuccess, hex("ffffffff")),
        (Opcode::Result, hex("00000001")),
    ];
    for (opcode, body) in bodies {
        let answer = reply(4, opcode, &body);
        if opcode != Opcode::Supported {
            assert_eq!(told(&mut asked(V4), &answer), unexpected(opcode));
        }
        if !matches!(opcode, Opcode::Ready | Opcode::Authenticate) {
            assert_eq!(told(&mut started(V4, ADA), &answer), unexpected(opcode));
        }
        if !matches!(opcode, Opcode::AuthChallenge | Opcode::AuthSuccess) {
            assert_eq!(told(&mut authenticating(V4, ADA), &answer), unexpected(opcode));
        }
    }
    let event = envelope(0x84, 0, -1, 0x0c, &string("X"));
    assert_eq!(told(&mut started(V4, ADA), &event), unexpected(Opcode::Event));
    let other = envelope(0x84, 0, 1, 2, &[]);
    let wire = CqlError::new(CqlErrorKind::StreamOther { expected: 0, found: 1 }, 2);
    assert_eq!(told(&mut started(V4, ADA), &other), Err(wire.into()));
    let wire = CqlErrorKind::VersionOther { expected: Version::V4, found: Version::V5 };
    assert_eq!(told(&mut started(V4, ADA), &reply(5, Opcode::Ready, &[])), Err(CqlError::new(wire, 0).into()));
    let wire = CqlError::new(CqlErrorKind::Unsolicited { count_bytes: 2 }, 0);
    assert_eq!(new(V4, ADA).handle_input(&[0x84, 0]), Err(wire.into()));
    let mut huge = reply(4, Opcode::Ready, &[]);
    huge[5..9].copy_from_slice(&(1_048_577_u32).to_be_bytes());
    let kind = CqlErrorKind::TooLong { length_bytes: 1_048_577, max_bytes: 1_048_576 };
    assert_eq!(told(&mut started(V4, ADA), &huge), Err(CqlError::new(kind, 5).into()));
}

#[test]
fn authentication_request_without_credential_is_an_error() {
    let wish = reply(4, Opcode::Authenticate, &string(CLASS));
    let missing = CqlHandshakeError::Authentication(AuthError::UsernameMissing);
    assert_eq!(told(&mut started(V4, Unauthenticated), &wish), Err(missing));
    assert_eq!(told(&mut started(V4, None::<Password<'_>>), &wish), Err(missing));
    assert_eq!(missing.cause(), Cause::Authentication);
    for (username, password, error) in [
        ("", "x", AuthError::UsernameMissing),
        ("a\0b", "x", AuthError::UsernameProhibited),
        ("a", "x\0", AuthError::PasswordProhibited),
    ] {
        let password = Password { username, password };
        assert_eq!(told(&mut started(V4, password), &wish), Err(error.into()));
    }
    let challenge = reply(4, Opcode::AuthChallenge, &hex("00000000"));
    assert_eq!(told(&mut authenticating(V4, ADA), &challenge), Err(AuthError::NotDone.into()));
}

/// Sends as many tokens as the server asks for.
#[derive(Default)]
struct Patient {
    rounds: u32,
}

impl CqlAuthenticator for Patient {
    fn handle_authenticate(&mut self, class: &str) -> Result<(), AuthError> {
        assert_eq!(class, CLASS);
        Ok(())
    }

    fn handle_challenge(&mut self, token: Option<&[u8]>) -> Result<(), AuthError> {
        self.rounds += 1;
        assert_eq!(token, Some(&b"more"[..]));
        Ok(())
    }

    fn handle_success(&mut self, token: Option<&[u8]>) -> Result<(), AuthError> {
        if token.is_none() { Err(AuthError::ServerSignature) } else { Ok(()) }
    }

    fn write_token<S: Sink>(&self, token: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        token.raw(&self.rounds.to_be_bytes()).map(drop)
    }
}

#[test]
fn number_of_challenges_is_bounded() {
    let challenge = framed(None, &reply(5, Opcode::AuthChallenge, &[&hex("00000004")[..], b"more"].concat()));
    let mut shake = authenticating(V5, Patient::default());
    for round in 1..=16_u8 {
        assert_eq!(told(&mut shake, &challenge), Ok(CqlNext::Transmit));
        let token = envelope(5, 0, 0, 0x0f, &[0, 0, 0, 4, 0, 0, 0, round]);
        assert_eq!(said(&mut shake), framed(None, &token));
    }
    assert_eq!(told(&mut shake, &challenge), Err(AuthError::NotDone.into()));
    let success = |token: &str| framed(None, &reply(5, Opcode::AuthSuccess, &hex(token)));
    let shaken = told(&mut authenticating(V5, Patient::default()), &success("00000000"));
    assert_eq!(shaken, Ok(established(Version::V5, None, true)));
    let shaken = told(&mut authenticating(V5, Patient::default()), &success("ffffffff"));
    assert_eq!(shaken, Err(AuthError::ServerSignature.into()));
}

#[test]
fn message_that_does_not_fit_can_be_written_again() {
    for options in [V4, V5] {
        let mut shake = started(options, ADA);
        let wish = reply(options.version.number(), Opcode::Authenticate, &string(CLASS));
        assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
        for room in 0..25 {
            let mut buffer = alloc::vec![0; room];
            let mut sink = poolhouse_wire::SliceSink::new(&mut buffer);
            let full = CqlHandshakeError::Encode(CqlEncodeError::Full);
            assert_eq!(shake.poll_transmit(&mut sink), Err(full));
            assert!(sink.written().is_empty());
        }
        said(&mut shake);
    }
    let long = "x".repeat(131_072);
    let mut shake = started(V5, Password { username: "a", password: &long });
    let wish = reply(5, Opcode::Authenticate, &string(CLASS));
    assert_eq!(told(&mut shake, &wish), Ok(CqlNext::Transmit));
    let refused = shake.poll_transmit(&mut Vec::new()).expect_err("no segment is so long");
    assert!(matches!(refused, CqlHandshakeError::Encode(CqlEncodeError::BodyTooLarge { .. })), "{refused}");
    assert_eq!(refused.cause(), Cause::Resources);
}

#[test]
fn debug_and_errors_show_no_password() {
    let shake = authenticating(V4, Some(ADA));
    let shown = alloc::format!("{shake:?} {:?}", ADA);
    assert!(!shown.contains("hunter2") && !shown.contains("ada"), "{shown}");
}

#[test]
fn errors_say_what_went_wrong() {
    let refused = CqlHandshakeError::Refused { code: ErrorCode::OVERLOADED };
    assert_eq!(refused.to_string(), "the server refused: overloaded (0x1001)");
    let none = CqlHandshakeError::NoCommonVersion { tried: Version::V5 };
    assert!(none.to_string().contains("neither protocol version 5"), "{none}");
    let supported = CqlHandshakeError::Supported { option: "CQL_VERSION" };
    assert!(supported.to_string().contains("CQL_VERSION"));
    let wire = CqlHandshakeError::Wire(CqlError::new(CqlErrorKind::Direction, 0));
    assert!(wire.to_string().ends_with("at byte 0"), "{wire}");
    for (error, cause) in [
        (none, Cause::Protocol),
        (supported, Cause::Protocol),
        (wire, Cause::Protocol),
        (CqlHandshakeError::Ended, Cause::Closed),
    ] {
        assert_eq!(error.cause(), cause, "{error}");
    }
}

#[test]
fn each_handshake_error_has_a_text() {
    let wire = CqlError::new(CqlErrorKind::Utf8, 3);
    let texts = [
        (CqlHandshakeError::Wire(wire), "the server violated the protocol: invalid UTF-8 at byte 3"),
        (
            CqlHandshakeError::NoCommonVersion { tried: Version::V3 },
            "the server supports neither protocol version 3 nor an older one that this client supports",
        ),
        (
            CqlHandshakeError::Authentication(AuthError::UsernameMissing),
            "the server requires authentication: the mechanism needs a user name",
        ),
        (CqlHandshakeError::Encode(CqlEncodeError::Full), "the buffer has no room for the message"),
        (CqlHandshakeError::Ended, "the handshake has ended"),
        (
            CqlHandshakeError::Keyspace,
            "the name of the keyspace is not one to 48 ASCII letters, digits and underscores",
        ),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(CqlHandshakeOptions::default().version, CqlHandshakeOptions::DEFAULT.version);
}

/// Without a password, and with an authenticator that is `None`.
#[test]
fn unauthenticated_writes_no_token_and_accepts_none() {
    let mut nobody = Unauthenticated;
    assert_eq!(nobody.handle_authenticate(CLASS), Err(AuthError::UsernameMissing));
    assert_eq!(nobody.handle_challenge(None), Err(AuthError::Ended));
    assert_eq!(CqlAuthenticator::handle_success(&mut nobody, None), Err(AuthError::Ended));
    let mut none = None::<Password<'_>>;
    assert_eq!(none.handle_authenticate(CLASS), Err(AuthError::UsernameMissing));
    assert_eq!(none.handle_challenge(Some(b"x")), Err(AuthError::Ended));
    assert_eq!(CqlAuthenticator::handle_success(&mut none, None), Err(AuthError::Ended));
}

#[test]
fn unauthenticated_fails_on_every_request() {
    use crate::CqlAuthenticator;
    fn answers(mut of: impl CqlAuthenticator) -> [Result<(), AuthError>; 3] {
        [of.handle_authenticate(CLASS), of.handle_challenge(None), of.handle_success(None)]
    }
    let none = [Err(AuthError::UsernameMissing), Err(AuthError::Ended), Err(AuthError::Ended)];
    assert_eq!([answers(Unauthenticated), answers(None::<Password<'_>>)], [none, none]);
}

#[test]
fn refusal_has_neither_control_characters_nor_the_password() {
    let code = ErrorCode::BAD_CREDENTIALS;
    let refusal = |text: &str| {
        let mut shake = authenticating(V4, ADA);
        assert_eq!(told(&mut shake, &error(4, code, text)), Err(CqlHandshakeError::Refused { code }));
        String::from(shake.refusal())
    };
    assert_eq!(refusal("no\u{1b}[31m, ada\r\nERROR forged"), "no [31m, ada  ERROR forged");
    assert_eq!(refusal(&[ADA.password, " is wrong"].concat()), "");
    // The password is detected even after the part of the text that is kept.
    assert_eq!(refusal(&["x".repeat(300).as_str(), ADA.password].concat()), "");
    assert_eq!(refusal("wrong"), "wrong");
}
