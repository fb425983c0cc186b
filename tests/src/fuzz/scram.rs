//! Arbitrary bytes as the server's part of an authentication.

use poolhouse_auth::{
    Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, ITERATIONS_PER_STEP, Mechanism, Nonce, Scram,
    ScramMechanism,
};
use poolhouse_wire::bson::RawDocument;
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::{AuthError, Authenticator, Round};

/// The nonce of all conversations.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

/// Maximum number of iterations for one input.
const ITERATIONS_MAX: u32 = 4096;

/// Passes `data` to SCRAM conversations as one message and as several (a byte 0xff ends one), with
/// each number of rounds that a server may claim, and as the documents of its replies. Checks that
/// nothing panics, that accepted messages are well-formed, that an error ends the conversation, and
/// that a server without the password is never accepted.
pub fn scram(data: &[u8]) {
    for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha1] {
        conversation(mechanism, data);
    }
    if let Ok(document) = RawDocument::new(data) {
        replies(document);
    }
    let length = i32::try_from(data.len() + 5).unwrap_or(i32::MAX);
    if let Ok(document) = RawDocument::new(&[&length.to_le_bytes()[..], data, &[0]].concat()) {
        replies(document);
    }
}

fn nonce() -> Nonce {
    Nonce::from_text(NONCE).expect("a nonce")
}

fn conversation(mechanism: ScramMechanism, data: &[u8]) {
    let scram = Scram::new(mechanism, "user", "a secret password", nonce()).expect("can be used");
    let mut scram = scram.with_iterations_max(ITERATIONS_MAX);
    let mut failed = false;
    for (index, message) in data.split(|byte| *byte == 0xff).enumerate() {
        let mut outcome = scram.handle_message(message, index % 3 == 2);
        while outcome == Ok(Round::Work) {
            outcome = scram.work();
        }
        let mut said = Vec::new();
        assert_eq!(scram.write_message(&mut said), Ok(()));
        match outcome {
            Ok(Round::Done) => panic!("a server without proof was accepted"),
            Ok(Round::Work) => unreachable!("it is done"),
            Ok(Round::Another) => {
                assert!(index == 0 && !failed, "only the first message can be accepted");
                assert!(message.starts_with(b"r=") && message.windows(6).any(|part| part == b"i=4096"));
                let nonce = message.split(|byte| *byte == b',').next().unwrap_or_default();
                assert!(nonce.len() > NONCE.len() + 2);
                assert!(said.starts_with(&[b"c=biws,", nonce, b",p="].concat()));
            }
            Err(error) => {
                assert!(!failed || error == AuthError::Ended, "{error}");
                assert!(said.is_empty());
                failed = true;
            }
        }
    }
}

/// The document as the reply in each position, for each mechanism.
fn replies(document: RawDocument<'_>) {
    if document.validate().is_err() {
        return;
    }
    let mut hello = HelloReply::OK;
    hello.ok = true;
    hello.speculative_authenticate = Some(document);
    let mechanisms = [None, Some(Mechanism::SCRAM_SHA_1), Some(Mechanism::SCRAM_SHA_256), Some(Mechanism::Plain)];
    for mechanism in mechanisms {
        for speculative in [false, true] {
            let credential = Credential { mechanism, ..Credential::new("user", "a secret password") };
            let options = AuthenticationOptions {
                nonce: nonce().with_second("a-second-one-that-is-not-known").expect("a nonce"),
                speculative,
                secure: true,
                iterations_max: ITERATIONS_MAX,
                ..AuthenticationOptions::new([0; ENTROPY_BYTES])
            };
            let mut authentication = Authentication::new(credential, options).expect("can be used");
            let outcome = authentication.handle_hello(&hello);
            let mut outcome = worked(&mut authentication, outcome);
            for _ in 0..3 {
                if outcome.is_err() {
                    break;
                }
                let round = authentication.handle_reply(document);
                outcome = worked(&mut authentication, round);
                if outcome == Ok(Round::Done) {
                    assert_eq!(mechanism, Some(Mechanism::Plain), "only PLAIN requires no proof of the server");
                    break;
                }
            }
            assert!(outcome != Ok(Round::Another), "the conversation does not end");
        }
    }
}

/// Executes the requested work, which must end.
fn worked(authentication: &mut Authentication<'_>, mut round: Result<Round, AuthError>) -> Result<Round, AuthError> {
    let mut steps = 0;
    while round == Ok(Round::Work) {
        round = authentication.work();
        steps += 1;
        assert!(steps <= ITERATIONS_MAX / ITERATIONS_PER_STEP, "the server requested more iterations than allowed");
    }
    round
}

/// Correct seed messages, alone and in documents.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let first = format!("r={NONCE}server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
    let last = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    let mut seeds = vec![
        first.clone().into_bytes(),
        last.as_bytes().to_vec(),
        b"e=other-error".to_vec(),
        [first.as_bytes(), last.as_bytes(), b""].join(&0xff),
        [first.as_bytes(), b"", b"", b""].join(&0xff),
        format!("{first},x=y").into_bytes(),
    ];
    for (payload, done) in [(first.as_bytes(), false), (last.as_bytes(), true), (b"", true)] {
        let payload = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: payload.to_vec() };
        let reply = bson::doc! { "conversationId": 1, "done": done, "payload": payload, "ok": 1.0 };
        seeds.push(reply.to_vec().unwrap_or_default());
    }
    seeds
}
