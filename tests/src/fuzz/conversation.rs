//! Arbitrary bytes as changes of a server's correct replies in a complete conversation: hello,
//! authentication, commands.
//!
//! The keys of the password are derived once, so inputs are fast and the fuzzer gets past
//! authentication.

use std::sync::OnceLock;

use bson::{Document, doc};
use poolhouse_auth::{
    Authentication, AuthenticationOptions, Credential, ENTROPY_BYTES, ITERATIONS_MIN, Mechanism, Nonce, ScramKeys,
    ScramMechanism,
};
use poolhouse_core::{Cause, ServerType};
use poolhouse_wire::command::CommandReply;
use poolhouse_wire::handshake::{Established, Handshake, HandshakeError, Next};
use poolhouse_wire::hello::HandshakeHello;
use poolhouse_wire::message::{
    Decoded, Exchange, Flags, HEADER_BYTES, Header, Limits, OP_MSG, Outgoing, decode_message, encode_command,
};
use poolhouse_wire::{WireError, WireErrorKind};

use super::wire::framed;
use crate::fake::auth::Auth;
use crate::fake::{FakeUser, ScramLie};
use crate::handshake::client;

#[cfg(test)]
mod tests;

const USER: &str = "ann";
const PASSWORD: &str = "a secret password";
/// The server's random number, which determines its salts.
const RANDOM: u64 = 0x0706_0504_0302_0100;
/// Number of commands after the handshake.
const COMMANDS: i32 = 2;
/// The number of the connection.
const CONNECTION: u64 = 1;

/// The result of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The handshake failed.
    Refused(HandshakeError),
    /// The connection was established.
    Established {
        /// The result of the handshake.
        with: Box<Established>,
        /// Number of answered commands.
        answered: i32,
        /// The error that ended the commands early.
        error: Option<WireError>,
    },
}

/// The authentication method and options of the client.
#[derive(Clone, Copy, Debug)]
struct Call {
    mechanism: Option<Mechanism>,
    speculative: bool,
    load_balanced: bool,
    exempt: bool,
}

impl Call {
    const fn of(choice: u8) -> Self {
        let mechanism = match choice % 5 {
            0 => None,
            1 => Some(Mechanism::SCRAM_SHA_256),
            2 => Some(Mechanism::SCRAM_SHA_1),
            3 => Some(Mechanism::Plain),
            _ => Some(Mechanism::X509),
        };
        let bits = choice / 5;
        Self { mechanism, speculative: bits & 1 == 0, load_balanced: bits & 2 != 0, exempt: bits & 4 != 0 }
    }

    /// Whether the server must prove knowledge of the password.
    fn wants_proof(self) -> bool {
        !matches!(self.mechanism, Some(Mechanism::Plain | Mechanism::X509))
    }
}

/// The first byte of `data` chooses the client's method. The rest is split at each byte 0xfe, and
/// each part changes one correct reply: see `spoiled`.
///
/// Runs the conversation with whole replies and byte by byte, and checks that the result is the
/// same, that no server is accepted without proof of the password, and that no error contains the
/// password.
pub fn conversation(data: &[u8]) {
    let whole = talk(data, usize::MAX);
    let cut = talk(data, 1);
    if !is_unsolicited(&whole) && !is_unsolicited(&cut) {
        assert_eq!(cut, whole, "byte by byte");
    }
}

/// Bytes after the last reply are detected with it only if they have already arrived.
fn is_unsolicited(outcome: &Outcome) -> bool {
    let error = match outcome {
        Outcome::Refused(error) => error.wire,
        Outcome::Established { error, .. } => *error,
    };
    error.is_some_and(|error| matches!(error.kind(), WireErrorKind::Unsolicited { .. }))
}

/// Runs the conversation with replies in pieces of this length.
pub fn talk(data: &[u8], piece: usize) -> Outcome {
    let (choice, rest) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    let call = Call::of(choice);
    let mut server = Server::new(call, rest);
    let client = client();
    let hello = HandshakeHello { load_balanced: call.load_balanced, ..HandshakeHello::new(&client) };
    let credential = match call.mechanism {
        Some(Mechanism::X509) => Credential::x509(None),
        mechanism => Credential { mechanism, ..Credential::new(USER, PASSWORD) },
    };
    let nonce = Nonce::from_text("rOprNGfwEbeRWgbNEkqO").expect("a nonce");
    let keys = match call.mechanism {
        Some(Mechanism::Scram(ScramMechanism::Sha1)) => &known().sha_1,
        _ => &known().sha_256,
    };
    let options = AuthenticationOptions {
        nonce: nonce.with_second("3rfcNHYJY1ZVvWVs7j8g").expect("a nonce"),
        speculative: call.speculative,
        secure: true,
        iterations_max: ITERATIONS_MIN,
        keys: Some(keys.clone()),
        ..AuthenticationOptions::new([0; ENTROPY_BYTES])
    };
    let authentication = Authentication::new(credential, options).expect("can be used");
    let handshake = Handshake::with_authenticator(hello, authentication).with_arbiters_exempt(call.exempt);
    match shake(handshake, &mut server, piece) {
        Ok(with) => {
            let exempt = call.exempt && with.server_type == ServerType::RsArbiter;
            assert!(!call.wants_proof() || exempt || server.has_proved(), "a server without proof was accepted");
            let (answered, error) = commands(&with, &mut server, piece);
            Outcome::Established { with: Box::new(with), answered, error }
        }
        Err(error) => {
            assert!(!format!("{error} {error:?}").contains(PASSWORD), "the error contains the password");
            Outcome::Refused(error)
        }
    }
}

fn shake(
    mut handshake: Handshake<'_, Authentication<'_>>,
    server: &mut Server<'_>,
    piece: usize,
) -> Result<Established, HandshakeError> {
    let mut received = Vec::new();
    // A round is a request, a reply and some work.
    for _ in 0..100_000 {
        let mut sent = Vec::new();
        if handshake.poll_transmit(&mut sent)? {
            server.take(&sent);
        }
        let handled = handshake.handle_input(&received)?;
        let (consumed, next) = (handled.consumed_bytes, handled.next);
        server.check(&received[..consumed]);
        received.drain(..consumed);
        match next {
            Next::Transmit | Next::Work => {}
            Next::Established(established) => {
                assert!(received.is_empty(), "all received bytes were read");
                return Ok(established);
            }
            Next::Receive { bytes_min } => {
                assert!(bytes_min > 0);
                if !server.deliver(&mut received, piece) {
                    return Err(handshake.failed(Cause::Network));
                }
            }
        }
    }
    panic!("the conversation does not end")
}

/// Sends commands on the established connection. Returns the number of answers, and the error.
fn commands(with: &Established, server: &mut Server<'_>, piece: usize) -> (i32, Option<WireError>) {
    let mut ids = with.request_ids;
    let limits = with.sizes.limits();
    let mut exchange = Exchange::IDLE;
    let mut received = Vec::new();
    for answered in 0..COMMANDS {
        let id = ids.next_id();
        let mut sent = Vec::new();
        let written = encode_command(&mut sent, Outgoing::request(id), &limits, "db", |command| {
            command.int32("ping", 1).map(drop)
        });
        // The server may report a message size limit of only a few bytes.
        if written.is_err() {
            return (answered, None);
        }
        exchange.begin(id, Flags::NONE);
        server.take(&sent);
        while !exchange.is_idle() {
            match exchange.decode_reply(&received, &Limits::DEFAULT) {
                Ok(Decoded::Done { value: (message, _), rest }) => {
                    if let Ok(reply) = CommandReply::parse(message.body()) {
                        let _ = (reply.labels(), reply.cause());
                    }
                    let consumed = received.len() - rest.len();
                    server.check(&received[..consumed]);
                    received.drain(..consumed);
                }
                Ok(Decoded::NeedMore { .. }) => {
                    if !server.deliver(&mut received, piece) {
                        return (answered, None);
                    }
                }
                Err(error) => return (answered, Some(error)),
            }
        }
    }
    (COMMANDS, None)
}

/// Values that are computed once.
struct Known {
    auth: Auth,
    sha_1: ScramKeys,
    sha_256: ScramKeys,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let user = FakeUser::new(USER, PASSWORD);
        let plain = user.clone().with_source("$external").with_mechanisms(&["PLAIN"]);
        let salt = RANDOM.to_le_bytes().repeat(4);
        let keys = |mechanism, bytes| {
            ScramKeys::derive(mechanism, USER, PASSWORD, &salt[..bytes], ITERATIONS_MIN).expect("can be made")
        };
        Known {
            sha_1: keys(ScramMechanism::Sha1, 16),
            sha_256: keys(ScramMechanism::Sha256, 28),
            auth: Auth::new(&[user, plain], false, None, || RANDOM),
        }
    })
}

/// The server. It is honest, except for the changes in the bytes.
struct Server<'a> {
    auth: Auth,
    call: Call,
    parts: Vec<&'a [u8]>,
    /// Sent bytes that have not arrived.
    under_way: Vec<u8>,
    /// The request to answer.
    request_id: i32,
    /// Whether it has sent a wrong nonce, or a signature with a wrong key.
    has_lied: bool,
}

impl<'a> Server<'a> {
    fn new(call: Call, data: &'a [u8]) -> Self {
        let mut parts: Vec<&[u8]> = data.split(|byte| *byte == 0xfe).collect();
        parts.reverse();
        Self { auth: known().auth.clone(), call, parts, under_way: Vec::new(), request_id: 0, has_lied: false }
    }

    /// Whether it has proved knowledge of the password in this conversation.
    fn has_proved(&self) -> bool {
        !self.auth.users_on(CONNECTION).is_empty() && !self.has_lied
    }

    /// Makes its next SCRAM message wrong, as chosen by the bytes.
    fn lie(&mut self, said: &[u8]) {
        let lie = match said.first().map_or(0, |byte| byte % 4) {
            0 => ScramLie::Nonce,
            1 => ScramLie::Iterations(said.get(1).map_or(0, |count| u32::from(*count) << 6)),
            2 => ScramLie::Signature,
            _ => ScramLie::Garbage,
        };
        self.auth.lie = Some(lie);
    }

    /// Receives a request, and answers it.
    fn take(&mut self, request: &[u8]) {
        let Ok(Decoded::Done { value: message, rest: [] }) = decode_message(request, &Limits::DEFAULT) else {
            panic!("a request is a message");
        };
        let command = Document::try_from(message.body()).expect("a request is a document");
        self.request_id = message.header().request_id;
        let part = self.parts.pop().unwrap_or_default();
        self.auth.lie = None;
        if let Some((_, said)) = part.split_first().filter(|(choice, _)| **choice % 10 == 9) {
            self.lie(said);
        }
        let reply = self.reply(&command);
        let answer = reply.get_document("speculativeAuthenticate").unwrap_or(&reply);
        let front = answer.get_binary_generic("payload").ok().and_then(|payload| payload.first().copied());
        // Only the message that contains the nonce, or the signature, becomes wrong.
        let lied = [(ScramLie::Nonce, b'r'), (ScramLie::Signature, b'v')];
        self.has_lied |= lied.into_iter().any(|(lie, begin)| self.auth.lie == Some(lie) && front == Some(begin));
        let reply = reply.to_vec().expect("it can be written");
        let said = spoiled(self.request_id, &reply, part);
        self.under_way.extend_from_slice(&said);
    }

    /// The correct reply.
    fn reply(&mut self, command: &Document) -> Document {
        let name = command.keys().next().map_or("", String::as_str);
        let answer = match name {
            "hello" | "isMaster" | "ismaster" => {
                let mut reply = doc! { "isWritablePrimary": true, "maxWireVersion": 25, "minWireVersion": 0, "ok": 1 };
                if self.call.load_balanced {
                    reply.insert("serviceId", bson::oid::ObjectId::from_bytes([3; 12]));
                }
                self.auth.greet(CONNECTION, command, &mut reply, [RANDOM; 3]);
                if matches!(self.call.mechanism, Some(Mechanism::X509))
                    && command.contains_key("speculativeAuthenticate")
                {
                    reply.insert("speculativeAuthenticate", doc! { "ok": 1 });
                }
                Ok(reply)
            }
            "saslStart" => {
                let db = command.get_str("$db").unwrap_or_default().to_owned();
                self.auth.start(CONNECTION, &db, command, [RANDOM; 3])
            }
            "saslContinue" => self.auth.continue_conversation(CONNECTION, command),
            _ => Ok(doc! { "ok": 1 }),
        };
        answer.unwrap_or_else(|error| error.document(None))
    }

    /// Checks that accepted bytes are a message of this kind, answer the request, and contain no
    /// second reply.
    fn check(&self, taken: &[u8]) {
        if taken.is_empty() {
            return;
        }
        let word = |at: usize| i32::from_le_bytes([taken[at], taken[at + 1], taken[at + 2], taken[at + 3]]);
        assert_eq!(usize::try_from(word(0)), Ok(taken.len()), "the length of the message");
        assert_eq!(word(8), self.request_id, "the reply to another request");
        assert_eq!(word(12), OP_MSG, "another opcode");
        assert_eq!(word(16) & !0x1_0001 & 0xffff, 0, "unknown required flags, or moreToCome");
    }

    /// Delivers this number of the bytes in transit. Returns false when there are none.
    fn deliver(&mut self, received: &mut Vec<u8>, piece: usize) -> bool {
        let count = piece.min(self.under_way.len());
        received.extend(self.under_way.drain(..count));
        count > 0
    }
}

/// The bytes of the server instead of `reply`. The first byte of `part` chooses: elements before or
/// after the correct ones; only these elements; an error with a code; the bytes unchanged; another
/// flag; a changed byte; a truncation; trailing bytes; a wrong SCRAM message. Without a part the
/// reply is correct.
fn spoiled(request_id: i32, reply: &[u8], part: &[u8]) -> Vec<u8> {
    let Some((choice, rest)) = part.split_first() else { return message(request_id, 0, reply) };
    let elements = &reply[4..reply.len() - 1];
    let place = |length: usize| rest.first().map_or(0, |byte| usize::from(*byte) % length);
    match choice % 10 {
        0 => message(request_id, 0, &framed(&[elements, rest].concat())),
        1 => message(request_id, 0, &framed(&[rest, elements].concat())),
        2 => message(request_id, 0, &framed(rest)),
        3 => {
            let code = rest.first().map_or(18, |code| i32::from(*code));
            message(request_id, 0, &doc! { "ok": 0, "code": code, "errmsg": "no" }.to_vec().unwrap_or_default())
        }
        4 => rest.to_vec(),
        5 => message(request_id, 1 << place(32), reply),
        6 => {
            let mut bytes = message(request_id, 0, reply);
            let at = place(bytes.len());
            bytes[at] ^= rest.get(1).copied().unwrap_or(1);
            bytes
        }
        7 => {
            let mut bytes = message(request_id, 0, reply);
            bytes.truncate(place(bytes.len()));
            bytes
        }
        8 => [&message(request_id, 0, reply)[..], rest].concat(),
        // The reply itself is already wrong.
        _ => message(request_id, 0, reply),
    }
}

fn message(response_to: i32, flags: u32, document: &[u8]) -> Vec<u8> {
    let length_bytes = u32::try_from(HEADER_BYTES + 5 + document.len()).unwrap_or(u32::MAX);
    let header = Header { length_bytes, request_id: 77, response_to, opcode: OP_MSG };
    [&header.to_bytes()[..], &flags.to_le_bytes(), &[0], document].concat()
}
