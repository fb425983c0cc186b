use core::error::Error;

use super::*;
use poolhouse_wire as wire;
use poolhouse_wire::Cause;
use poolhouse_wire::handshake::{Handshake, HandshakeError};
use poolhouse_wire::hello::{ClientMetadata, HandshakeHello, MetadataOptions};
use poolhouse_wire::{Labels, Phase};

/// Enumerates the errors: returns the one that follows.
fn next(error: AuthError) -> Option<AuthError> {
    use AuthError::*;

    Some(match error {
        UsernameMissing => UsernameProhibited,
        UsernameProhibited => PasswordMissing,
        PasswordMissing => PasswordUnexpected,
        PasswordUnexpected => PasswordProhibited,
        PasswordProhibited => PasswordNotAscii,
        PasswordNotAscii => SourceNotExternal,
        SourceNotExternal => MechanismUnsupported { name: "GSSAPI" },
        MechanismUnsupported { .. } => PlainWithoutTls,
        PlainWithoutTls => NonceProhibited,
        NonceProhibited => Refused { code: 18 },
        Refused { .. } => ServerError,
        ServerError => ReplyField { name: "payload" },
        ReplyField { .. } => ConversationId,
        ConversationId => AttributeMissing { name: 'r' },
        AttributeMissing { .. } => AttributeMalformed { name: Some('r') },
        AttributeMalformed { .. } => AttributeMisplaced { name: 'r' },
        AttributeMisplaced { .. } => MandatoryExtension,
        MandatoryExtension => ServerNonce,
        ServerNonce => ServerNonceTooLong,
        ServerNonceTooLong => SaltTooLong,
        SaltTooLong => MessageTooLong,
        MessageTooLong => IterationsTooFew { found: 1 },
        IterationsTooFew { .. } => IterationsTooMany { max: 9 },
        IterationsTooMany { .. } => ServerSignature,
        ServerSignature => DoneTooEarly,
        DoneTooEarly => NotDone,
        NotDone => PayloadUnexpected,
        PayloadUnexpected => Ended,
        Ended => return None,
        _ => return None,
    })
}

/// User, password, nonces, salt, and the values derived from them, in every notation that a
/// formatter could use.
fn secrets(keys: &ScramKeys, proof: &str) -> Vec<String> {
    let mut secrets: Vec<String> =
        ["us3r", "p3ncil", SHA_256.nonce, "never-shown", "%hvYDpWUa2RaTCAfuxFIlj", "W22ZaJ0SNY7soEsUEjb6gQ"]
            .map(String::from)
            .to_vec();
    secrets.push(proof.to_string());
    for bytes in [keys.salt(), keys.client_key.bytes(), keys.server_key.bytes(), b"us3r", b"p3ncil"] {
        let front = &bytes[..4];
        secrets.push(squeezed(&format!("{front:?}")).trim_matches(['[', ']']).to_string());
        secrets.push(front.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    secrets
}

/// Removes white space, because the pretty form of `Debug` prints each number on its own line.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Formats each value with every formatter, and searches for secrets.
#[test]
fn no_secret_is_in_any_debug_or_display() {
    let credential = Credential::new("us3r", "p3ncil");
    let mut texts: Vec<String> = Vec::new();
    let mut debug = |thing: &dyn core::fmt::Debug| {
        texts.push(format!("{thing:?}"));
        texts.push(format!("{thing:#?}"));
    };
    debug(&credential);
    debug(&OwnedCredential::from(credential));
    debug(&SHA_256.nonce());
    debug(&Mechanism::SCRAM_SHA_256);

    let mut scram = Scram::new(ScramMechanism::Sha256, "us3r", "p3ncil", SHA_256.nonce()).expect("can be used");
    debug(&scram);
    assert_eq!(tell(&mut scram, SHA_256.server_first.as_bytes(), false), Ok(Round::Another));
    debug(&scram);
    let proof = said(&scram).rsplit("p=").next().expect("a proof").to_string();
    let keys = scram.keys().expect("made").clone();
    debug(&keys);
    debug(&Some(keys.clone()));

    let options = MetadataOptions { driver_name: "d", driver_version: "1", os_type: "x", ..Default::default() };
    let client = ClientMetadata::new(&options).expect("short");
    for mechanism in [None, Some(Mechanism::SCRAM_SHA_1), Some(Mechanism::SCRAM_SHA_256), Some(Mechanism::Plain)] {
        let credential = Credential { mechanism, ..credential };
        let options = AuthenticationOptions {
            nonce: SHA_256.nonce().with_second("never-sent-never-shown").expect("a nonce"),
            secure: true,
            keys: Some(keys.clone()),
            ..AuthenticationOptions::new([0; ENTROPY_BYTES])
        };
        debug(&options);
        let authentication = Authentication::new(credential, options).expect("can be used");
        debug(&authentication);
        let mut handshake = Handshake::with_authenticator(HandshakeHello::new(&client), authentication);
        debug(&handshake);
        let mut sink = Vec::new();
        assert_eq!(handshake.poll_transmit(&mut sink), Ok(true));
        debug(&handshake);
        debug(&handshake.failed(Cause::Network));
        let request = wire::message::decode_message(&sink, &wire::message::Limits::DEFAULT);
        debug(&request.expect("well-formed"));
        let len = sink.len();
        debug(&wire::SliceSink::new(&mut sink));
        let mut begun = wire::bson::DocumentWriter::begin(&mut sink).expect("grows");
        begun.str("password", "p3ncil").expect("grows");
        debug(&begun);
        assert!(begun.finish().expect("grows") < len);
    }
    let refused = HandshakeError::new(Phase::Authentication, Cause::Authentication);
    let errors: Vec<AuthError> =
        core::iter::successors(Some(AuthError::UsernameMissing), |error| next(*error)).collect();
    for &error in &errors {
        let failed = HandshakeError { authentication: Some(error), ..refused };
        assert_eq!(failed.labels, Labels::NONE);
        debug(&error);
        debug(&failed);
        debug(&Cause::from(error));
    }
    for &error in &errors {
        let failed = HandshakeError { authentication: Some(error), ..refused };
        let displayed: &dyn Error = &failed;
        let text = displayed.to_string();
        assert!(text.starts_with("authentication failed in authentication: ") && text.ends_with(&error.to_string()));
        assert_eq!(errors.iter().filter(|other| other.to_string() == error.to_string()).count(), 1, "{error}");
        texts.push(text);
    }
    for secret in secrets(&keys, &proof) {
        for text in &texts {
            assert!(!squeezed(text).contains(&secret), "{secret} in {text}");
        }
    }
}

/// The search itself finds a secret that is present.
#[test]
fn search_finds_a_secret_that_is_present() {
    let keys = ScramKeys::derive(ScramMechanism::Sha256, "us3r", "p3ncil", b"salt", ITERATIONS_MIN).expect("allowed");
    let secrets = secrets(&keys, "proof");
    let found = |text: &str| secrets.iter().any(|secret| squeezed(text).contains(secret));
    assert!(found("Credential(us3r)"));
    assert!(found(&format!("{:?}", keys.client_key.bytes())));
    assert!(found(&format!("{:#?}", keys.server_key.bytes())));
    assert!(found(&format!("{:?}", "p3ncil".as_bytes())));
    assert!(!found("Credential { source: None, .. }"));
}
