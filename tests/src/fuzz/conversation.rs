//! Arbitrary bytes as what a server does to the good replies of a whole conversation: hello, authentication, commands.
//!
//! The keys of the one password are made once, so that no input has to pay for them and the fuzzer gets past authentication.

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
const PASSWORD: &str = "nobody knows it";
/// What the server's random numbers are, and so its salts.
const RANDOM: u64 = 0x0706_0504_0302_0100;
/// Commands that follow the handshake.
const COMMANDS: i32 = 2;
/// The one connection.
const CONNECTION: u64 = 1;

/// What became of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The handshake failed.
    Refused(HandshakeError),
    /// The connection was established.
    Established {
        /// As what.
        with: Box<Established>,
        /// Commands that were answered.
        answered: i32,
        /// What ended them early.
        error: Option<WireError>,
    },
}

/// Who calls, and how.
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

    /// Whether the server has to prove that it knows the password.
    fn wants_proof(self) -> bool {
        !matches!(self.mechanism, Some(Mechanism::Plain | Mechanism::X509))
    }
}

/// The first byte of `data` says who calls. The others, up to each 0xfe, are what the server does to one good reply: see `Server::reply`.
///
/// Has the conversation with the replies whole and byte by byte; what comes of it must be the same, nobody is believed who has not proved that he
/// knows the password, and no error tells the password.
///
/// # Panics
///
/// When one of these does not hold.
pub fn conversation(data: &[u8]) {
    let whole = talk(data, usize::MAX);
    let cut = talk(data, 1);
    if !is_unsolicited(&whole) && !is_unsolicited(&cut) {
        assert_eq!(cut, whole, "byte by byte");
    }
}

/// Bytes behind the last reply are found out with it only if they are there already.
fn is_unsolicited(outcome: &Outcome) -> bool {
    let error = match outcome {
        Outcome::Refused(error) => error.wire,
        Outcome::Established { error, .. } => *error,
    };
    error.is_some_and(|error| matches!(error.kind(), WireErrorKind::Unsolicited { .. }))
}

/// Has the conversation, the replies coming in pieces of this length.
///
/// # Panics
///
/// As [`conversation`].
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
            assert!(!call.wants_proof() || exempt || server.has_proved(), "a server was believed");
            let (answered, error) = commands(&with, &mut server, piece);
            Outcome::Established { with: Box::new(with), answered, error }
        }
        Err(error) => {
            assert!(!format!("{error} {error:?}").contains(PASSWORD), "the password is told");
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
                assert!(received.is_empty(), "nothing is left over");
                return Ok(established);
            }
            Next::Receive { bytes_min } => {
                assert!(bytes_min > 0);
                if !server.say(&mut received, piece) {
                    return Err(handshake.failed(Cause::Network));
                }
            }
        }
    }
    panic!("a conversation has an end")
}

/// Commands on the established connection: how many were answered, and what was wrong.
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
        // A server may say that it takes no more than a few bytes.
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
                    if !server.say(&mut received, piece) {
                        return (answered, None);
                    }
                }
                Err(error) => return (answered, Some(error)),
            }
        }
    }
    (COMMANDS, None)
}

/// What was made once.
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

/// The server, which is honest but for what the bytes say.
struct Server<'a> {
    auth: Auth,
    call: Call,
    parts: Vec<&'a [u8]>,
    /// Was said, and has not arrived.
    under_way: Vec<u8>,
    /// The request that is to be answered.
    request_id: i32,
    /// Whether it has said a nonce of its own, or signed with another key.
    has_lied: bool,
}

impl<'a> Server<'a> {
    fn new(call: Call, data: &'a [u8]) -> Self {
        let mut parts: Vec<&[u8]> = data.split(|byte| *byte == 0xfe).collect();
        parts.reverse();
        Self { auth: known().auth.clone(), call, parts, under_way: Vec::new(), request_id: 0, has_lied: false }
    }

    /// Whether it has proved that it knows the password, in this conversation.
    fn has_proved(&self) -> bool {
        !self.auth.users_on(CONNECTION).is_empty() && !self.has_lied
    }

    /// Lies in its next message of SCRAM, as the bytes say.
    fn lie(&mut self, said: &[u8]) {
        let lie = match said.first().map_or(0, |byte| byte % 4) {
            0 => ScramLie::Nonce,
            1 => ScramLie::Iterations(said.get(1).map_or(0, |count| u32::from(*count) << 6)),
            2 => ScramLie::Signature,
            _ => ScramLie::Garbage,
        };
        self.auth.lie = Some(lie);
    }

    /// Takes a request, and answers it.
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
        // It does so only in the message that has the nonce, or the signature.
        let lied = [(ScramLie::Nonce, b'r'), (ScramLie::Signature, b'v')];
        self.has_lied |= lied.into_iter().any(|(lie, begin)| self.auth.lie == Some(lie) && front == Some(begin));
        let reply = reply.to_vec().expect("it can be written");
        let said = spoiled(self.request_id, &reply, part);
        self.under_way.extend_from_slice(&said);
    }

    /// The good reply.
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
            "saslContinue" => self.auth.go_on(CONNECTION, command),
            _ => Ok(doc! { "ok": 1 }),
        };
        answer.unwrap_or_else(|error| error.document(None))
    }

    /// What was taken for a reply is a message of this kind, answers the request, and is the only one.
    fn check(&self, taken: &[u8]) {
        if taken.is_empty() {
            return;
        }
        let word = |at: usize| i32::from_le_bytes([taken[at], taken[at + 1], taken[at + 2], taken[at + 3]]);
        assert_eq!(usize::try_from(word(0)), Ok(taken.len()), "the length of the message");
        assert_eq!(word(8), self.request_id, "the reply to another request");
        assert_eq!(word(12), OP_MSG, "another opcode");
        assert_eq!(word(16) & !0x1_0001 & 0xffff, 0, "flags that must be understood, or another reply to come");
    }

    /// Gives so many of the bytes that are under way; false when there are none.
    fn say(&mut self, received: &mut Vec<u8>, piece: usize) -> bool {
        let count = piece.min(self.under_way.len());
        received.extend(self.under_way.drain(..count));
        count > 0
    }
}

/// What the server says instead of `reply`. The first byte of `part` chooses: elements in front of the good ones, or behind them; only these elements; an
/// error of a code; the bytes as they are; another flag; a byte that is changed; a cut; bytes behind it; a lie in SCRAM. Without a part the reply is good.
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
        // It is the reply itself that lies.
        _ => message(request_id, 0, reply),
    }
}

fn message(response_to: i32, flags: u32, document: &[u8]) -> Vec<u8> {
    let length_bytes = u32::try_from(HEADER_BYTES + 5 + document.len()).unwrap_or(u32::MAX);
    let header = Header { length_bytes, request_id: 77, response_to, opcode: OP_MSG };
    [&header.to_bytes()[..], &flags.to_le_bytes(), &[0], document].concat()
}
