//! Conversations of SCRAM with independently computed values: our own passwords and nonces by
//! Python's `hashlib` and `hmac`, in `scenarios/scram/vectors.json`, and those of a file in the
//! same form.
//!
//! `POOLHOUSE_SCRAM_VECTORS` is the path of that file; by default it is `scram_vectors.json` beside
//! the folder of the official tests, if it exists: a checkout of the specifications has none, which
//! is no failure. Each case runs on the bare conversation, and as rounds of a handshake, with its
//! replies split at every byte.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use poolhouse_auth::{
    AuthError, Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, Mechanism, Nonce, Round, Scram,
};
use poolhouse_tests::handshake::{client, with};
use poolhouse_tests::spec::{self, SkipReason};
use poolhouse_wire::EncodeError;
use poolhouse_wire::bson::{DocumentWriter, RawValue};
use poolhouse_wire::handshake::Next;
use poolhouse_wire::message::{Decoded, Limits, Outgoing, decode_message, encode_message};
use serde_json::Value;

/// The environment variable with the path of the file.
const VECTORS: &str = "POOLHOUSE_SCRAM_VECTORS";

type Write<'a> = &'a dyn Fn(&mut DocumentWriter<'_, Vec<u8>>) -> Result<(), EncodeError>;

struct Vector {
    mechanism: String,
    username: String,
    password: String,
    client_nonce: String,
    client_first: String,
    server_first: String,
    client_final: String,
    server_final: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/scram/vectors.json");
    add(&mut trials, "own::", &own);
    match others() {
        Ok(file) => add(&mut trials, "", &file),
        Err(reason) => {
            if !arguments.list {
                eprintln!("skipped: scram vectors of others: {reason}");
            }
            let reason = reason.to_string();
            trials.push(Trial::ignorable_test("vectors of others", move || Ok(Completion::ignored_with(reason))));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Adds a case for each vector of a file. A file that cannot be read, or has no vectors, is a case
/// that fails.
fn add(trials: &mut Vec<Trial>, prefix: &str, file: &Path) {
    match vectors(file) {
        Ok(vectors) => {
            for (index, vector) in vectors.into_iter().enumerate() {
                let name = format!("{prefix}{}_{index}", vector.mechanism);
                trials.push(Trial::test(name, move || {
                    vector.hold();
                    Ok(())
                }));
            }
        }
        Err(error) => trials.push(Trial::test(format!("{prefix}vectors"), move || Err(Failed::from(error)))),
    }
}

/// The file of vectors from other sources.
fn others() -> Result<PathBuf, SkipReason> {
    if let Some(file) = std::env::var_os(VECTORS).filter(|value| !value.is_empty()) {
        // An explicit path must be readable: if it is not, the case fails.
        return Ok(spec::resolve(Path::new(&file)));
    }
    let roots = spec::roots().map_err(|reason| SkipReason::new(format!("{VECTORS} is not set, and {reason}")))?;
    let file = roots.iter().map(|root| root.join("../scram_vectors.json")).find(|file| file.exists());
    file.ok_or_else(|| SkipReason::new(format!("{VECTORS} is not set, and no scram_vectors.json exists")))
}

fn vectors(path: &Path) -> Result<Vec<Vector>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let cases = json.as_array().filter(|cases| !cases.is_empty());
    let cases = cases.ok_or_else(|| format!("{}: no array of cases", path.display()))?;
    cases.iter().map(Vector::parse).collect()
}

/// Processes a message, and performs the resulting work.
fn tell(scram: &mut Scram<'_>, message: &[u8], done: bool) -> Result<Round, AuthError> {
    let mut round = scram.handle_message(message, done);
    while round == Ok(Round::Work) {
        round = scram.work();
    }
    round
}

impl Vector {
    fn parse(case: &Value) -> Result<Self, String> {
        let text = |key: &str| {
            let text = case.get(key).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| format!("{key} is missing in {case}"))
        };
        Ok(Self {
            mechanism: text("mechanism")?,
            username: text("username")?,
            password: text("password")?,
            client_nonce: text("client_nonce")?,
            client_first: text("client_first")?,
            server_first: text("server_first")?,
            client_final: text("client_final")?,
            server_final: text("server_final")?,
        })
    }

    fn nonce(&self) -> Nonce {
        Nonce::from_text(&self.client_nonce).expect("a nonce")
    }

    fn hold(&self) {
        let Some(Mechanism::Scram(mechanism)) = Mechanism::from_name(&self.mechanism) else {
            panic!("{} is not a SCRAM mechanism", self.mechanism)
        };
        for done in [true, false] {
            let mut scram = Scram::new(mechanism, &self.username, &self.password, self.nonce()).expect("can be used");
            let said = |scram: &Scram<'_>| {
                let mut sink = Vec::new();
                scram.write_message(&mut sink).expect("grows");
                String::from_utf8(sink).expect("text")
            };
            assert_eq!(said(&scram), self.client_first);
            assert_eq!(tell(&mut scram, self.server_first.as_bytes(), false), Ok(Round::Another));
            assert_eq!(said(&scram), self.client_final);
            let last = tell(&mut scram, self.server_final.as_bytes(), done);
            assert_eq!(last, Ok(if done { Round::Done } else { Round::Another }));
            if !done {
                assert_eq!(tell(&mut scram, b"", true), Ok(Round::Done));
            }
        }
        // With another password the proof differs, and the server's signature does not match.
        let mut scram = Scram::new(mechanism, &self.username, "another", self.nonce()).expect("can be used");
        assert_eq!(tell(&mut scram, self.server_first.as_bytes(), false), Ok(Round::Another));
        let last = tell(&mut scram, self.server_final.as_bytes(), true);
        assert_eq!(last, Err(AuthError::ServerSignature));
        self.hold_in_a_handshake();
    }

    fn hold_in_a_handshake(&self) {
        let client = client();
        let mechanism = Mechanism::from_name(&self.mechanism);
        let credential = Credential { mechanism, ..Credential::new(&self.username, &self.password) };
        // None of the known conversations needs the second nonce.
        let nonce = self.nonce().with_second("never-needed-here").expect("a nonce");
        let options = AuthenticationOptions { nonce, ..AuthenticationOptions::new([0; ENTROPY_BYTES]) };
        let mut handshake = with(&client, Authentication::new(credential, options).expect("can be used"));
        let payload = |text: &str, d: &mut DocumentWriter<'_, Vec<u8>>, done| {
            d.int32("conversationId", 1)?.boolean("done", done)?.binary("payload", 0, text.as_bytes()).map(drop)
        };
        let hello = |d: &mut DocumentWriter<'_, Vec<u8>>| {
            d.int32("ok", 1)?.int32("maxWireVersion", 21)?;
            d.document("speculativeAuthenticate", |d| payload(&self.server_first, d, false)).map(drop)
        };
        let last = |d: &mut DocumentWriter<'_, Vec<u8>>| {
            payload(&self.server_final, d, true)?;
            d.int32("ok", 1).map(drop)
        };
        let rounds: [(&str, Write<'_>); 2] = [(&self.client_first, &hello), (&self.client_final, &last)];
        let mut next = Next::Transmit;
        for (said, write) in rounds {
            assert_eq!(next, Next::Transmit);
            let mut request = Vec::new();
            assert_eq!(handshake.poll_transmit(&mut request), Ok(true));
            let Ok(Decoded::Done { value: message, .. }) = decode_message(&request, &Limits::DEFAULT) else {
                panic!("one message")
            };
            let body = message.body();
            let outer = body.get("speculativeAuthenticate").expect("well-formed").and_then(RawValue::as_document);
            let found = outer.unwrap_or(body).get("payload").expect("well-formed").and_then(RawValue::as_binary);
            assert_eq!(found.map(|binary| binary.bytes), Some(said.as_bytes()));

            let mut reply = Vec::new();
            let outgoing = Outgoing::reply(9, message.header().request_id);
            encode_message(&mut reply, outgoing, &Limits::DEFAULT, |message| message.body(write)).expect("grows");
            for end in 0..reply.len() {
                let handled = handshake.handle_input(&reply[..end]).expect("an incomplete reply is accepted");
                assert!(matches!(handled.next, Next::Receive { .. }), "{end}");
            }
            next = handshake.handle_input(&reply).expect("good").next;
            while next == Next::Work {
                next = handshake.handle_input(&[]).expect("worked out").next;
            }
        }
        assert!(matches!(next, Next::Established(_)), "{next:?}");
    }
}
