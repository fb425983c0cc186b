//! The client's side of SCRAM.
//!
//! Read first: RFC 5802, sections 3, 5 and 7; RFC 7677; Authentication, "SCRAM-SHA-1" and
//! "SCRAM-SHA-256".

use core::convert::Infallible;
use core::fmt;

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::crypto::{DIGEST_BYTES_MAX, Digest, Mac, hash};
use super::keys::{Derivation, ITERATIONS_MAX, ITERATIONS_MIN, ITERATIONS_PER_STEP, ScramKeys};
use super::mechanism::ScramMechanism;
use super::message::{ServerFirst, server_final};
use super::nonce::{Nonce, SERVER_NONCE_BYTES_MAX};
use super::password::prepare;
use poolhouse_wire::{AuthError, EncodeError, Round, Sink};

/// Header without channel binding and without a separate authorization identity.
const GS2_HEADER: &[u8] = b"n,,";
/// The beginning of the client's final message: the header as base64, and the name of the nonce
/// attribute.
const FINAL_FRONT: &[u8] = b"c=biws,r=";
/// The text between nonce and proof.
const PROOF_FRONT: &[u8] = b",p=";
/// The beginning of the server's first message.
const NONCE_FRONT: &[u8] = b"r=";
/// Maximum length of the server's first message: the longest nonce, salt and number, and room for
/// extensions.
const SERVER_FIRST_BYTES_MAX: usize = 512;
/// Length of the longest digest as base64.
const PROOF_BYTES_MAX: usize = DIGEST_BYTES_MAX.div_ceil(3) * 4;

/// A SCRAM conversation: [`write_message`](Self::write_message) and
/// [`handle_message`](Self::handle_message) are called alternately.
///
/// The messages are: client first, server first, client final, server final; then an empty exchange
/// if the server has not reported `done`. Between server first and client final, the keys must be
/// computed in steps by [`work`](Self::work), unless [`offer_keys`](Self::offer_keys) supplies
/// them. After an error, or the end, every message is rejected.
#[must_use]
pub struct Scram<'a> {
    mechanism: ScramMechanism,
    username: &'a str,
    password: &'a str,
    nonce: Nonce,
    iterations_max: u32,
    keys: Option<ScramKeys>,
    state: State,
}

/// The next message to send, and the reply that is then expected.
#[expect(clippy::large_enum_variant, reason = "without a heap there is nowhere else to keep it")]
enum State {
    First,
    /// Deriving the keys that are needed to answer the server's first message.
    Stretching {
        server_first: heapless::Vec<u8, SERVER_FIRST_BYTES_MAX>,
        nonce_bytes: usize,
        derivation: Derivation,
    },
    Final {
        nonce: heapless::Vec<u8, SERVER_NONCE_BYTES_MAX>,
        proof: Digest,
        server_signature: Digest,
    },
    Empty,
    Ended,
}

impl<'a> Scram<'a> {
    /// Creates a conversation that has not begun.
    ///
    /// - `password`: as the user types it.
    /// - `nonce`: never used before.
    ///
    /// # Errors
    ///
    /// [`AuthError::UsernameMissing`], [`AuthError::UsernameProhibited`], [`AuthError::PasswordMissing`],
    /// [`AuthError::PasswordProhibited`], [`AuthError::PasswordNotAscii`].
    pub fn new(
        mechanism: ScramMechanism,
        username: &'a str,
        password: &'a str,
        nonce: Nonce,
    ) -> Result<Self, AuthError> {
        if username.is_empty() {
            return Err(AuthError::UsernameMissing);
        }
        if username.contains('\0') {
            return Err(AuthError::UsernameProhibited);
        }
        if password.contains('\0') {
            return Err(AuthError::PasswordProhibited);
        }
        // Called for its check: an unusable password is reported before the server has replied.
        prepare(mechanism, username, password)?;
        let (iterations_max, keys, state) = (ITERATIONS_MAX, None, State::First);
        Ok(Self { mechanism, username, password, nonce, iterations_max, keys, state })
    }

    /// Supplies keys of an earlier conversation with the same user and password. They are ignored
    /// if they do not match the salt and the iterations that the server requests.
    pub fn with_keys(mut self, keys: Option<ScramKeys>) -> Self {
        self.keys = keys;
        self
    }

    /// [`Scram::with_keys`] and [`Scram::with_iterations_max`] in place.
    pub(super) fn set(&mut self, keys: Option<&ScramKeys>, iterations_max: u32) {
        self.keys = keys.cloned();
        self.iterations_max = iterations_max;
    }

    /// Sets another limit than [`ITERATIONS_MAX`]: the maximum work that a server can request.
    pub const fn with_iterations_max(mut self, iterations: u32) -> Self {
        self.iterations_max = iterations;
        self
    }

    /// Handles a message of the server.
    ///
    /// - `message`: the payload of the server's reply.
    /// - `done`: the field of the same name in the reply.
    ///
    /// Cost: linear in `message`. [`Round::Work`] follows the server's first message unless
    /// matching keys were supplied.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the conversation has ended.
    ///
    /// Source: RFC 5802, section 5, "SCRAM Authentication Exchange"; Authentication, "SCRAM-SHA-1".
    pub fn handle_message(&mut self, message: &[u8], done: bool) -> Result<Round, AuthError> {
        let round = self.handle_due(message, done);
        if !matches!(round, Ok(Round::Another | Round::Work)) {
            self.state = State::Ended;
        }
        round
    }

    /// Handles a message. The caller ends the conversation after an error, and after its last message.
    fn handle_due(&mut self, message: &[u8], done: bool) -> Result<Round, AuthError> {
        match &self.state {
            State::First if done => Err(AuthError::DoneTooEarly),
            State::First => self.handle_first(message),
            State::Final { server_signature, .. } => {
                let mut buffer = [0; PROOF_BYTES_MAX];
                if !server_signature.is(server_final(message, &mut buffer)?) {
                    return Err(AuthError::ServerSignature);
                }
                if done {
                    return Ok(Round::Done);
                }
                self.state = State::Empty;
                Ok(Round::Another)
            }
            State::Empty if !message.is_empty() => Err(AuthError::PayloadUnexpected),
            State::Empty if !done => Err(AuthError::NotDone),
            State::Empty => Ok(Round::Done),
            // The server sent an unexpected message.
            State::Stretching { .. } | State::Ended => Err(AuthError::Ended),
        }
    }

    /// Performs a step of the computation that [`Round::Work`] announced: [`ITERATIONS_PER_STEP`]
    /// iterations. The next message is due when it returns [`Round::Another`].
    ///
    /// # Errors
    ///
    /// [`AuthError::Ended`] if no computation is pending.
    pub fn work(&mut self) -> Result<Round, AuthError> {
        let State::Stretching { derivation, .. } = &mut self.state else { return Err(AuthError::Ended) };
        match derivation.advance(ITERATIONS_PER_STEP) {
            Some(keys) => {
                self.answer(keys);
                Ok(Round::Another)
            }
            None => Ok(Round::Work),
        }
    }

    /// Supplies keys that replace the computation; returns whether they match. The next message is
    /// then due.
    ///
    /// - `keys`: keys of the same user and password, from another conversation.
    pub fn offer_keys(&mut self, keys: &ScramKeys) -> bool {
        let fit = matches!(&self.state, State::Stretching { derivation, .. } if derivation.makes(keys));
        if fit {
            self.answer(keys.clone());
        }
        fit
    }

    /// Writes the next message, possibly empty, at the end of `sink`. Does not change the state.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`].
    pub fn write_message<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        match &self.state {
            State::First => {
                sink.append(GS2_HEADER)?;
                self.first_bare(|piece| Ok(sink.append(piece)?))
            }
            State::Final { nonce, proof, .. } => {
                sink.append(FINAL_FRONT)?;
                sink.append(nonce)?;
                sink.append(PROOF_FRONT)?;
                let mut buffer = Zeroizing::new([0; PROOF_BYTES_MAX]);
                let text = Base64::encode(proof.bytes(), &mut buffer[..]).map_err(|_| EncodeError::Full)?;
                Ok(sink.append(text.as_bytes())?)
            }
            State::Stretching { .. } | State::Empty | State::Ended => Ok(()),
        }
    }

    /// Whether a computation must precede the next message.
    #[must_use]
    pub const fn owes_work(&self) -> bool {
        matches!(self.state, State::Stretching { .. })
    }

    /// The mechanism.
    #[must_use]
    pub const fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// The keys: before the server's first message those that were supplied, after it those that
    /// match its request.
    #[must_use]
    pub const fn keys(&self) -> Option<&ScramKeys> {
        self.keys.as_ref()
    }

    /// Checks the server's first message.
    fn handle_first(&mut self, message: &[u8]) -> Result<Round, AuthError> {
        let first = ServerFirst::parse(message)?;
        let extends = first.nonce.len() > self.nonce.as_bytes().len() && first.nonce.starts_with(self.nonce.as_bytes());
        if !extends {
            return Err(AuthError::ServerNonce);
        }
        let nonce_bytes = first.nonce.len();
        if nonce_bytes > SERVER_NONCE_BYTES_MAX {
            return Err(AuthError::ServerNonceTooLong);
        }
        let iterations = first.iterations;
        if iterations < ITERATIONS_MIN {
            return Err(AuthError::IterationsTooFew { found: iterations });
        }
        if iterations > self.iterations_max {
            return Err(AuthError::IterationsTooMany { max: self.iterations_max });
        }
        let server_first = heapless::Vec::from_slice(message).map_err(|_| AuthError::MessageTooLong)?;
        let derivation = Derivation::new(self.mechanism, self.username, self.password, first.salt, iterations)?;
        self.state = State::Stretching { server_first, nonce_bytes, derivation };
        let known = self.keys.take().is_some_and(|keys| self.offer_keys(&keys));
        Ok(if known { Round::Another } else { Round::Work })
    }

    /// Prepares the client's final message.
    fn answer(&mut self, keys: ScramKeys) {
        let State::Stretching { server_first, nonce_bytes, .. } = &self.state else { return };
        let nonce = server_first.get(NONCE_FRONT.len()..).and_then(|rest| rest.get(..*nonce_bytes)).unwrap_or_default();
        let stored_key = hash(self.mechanism, keys.client_key.bytes());
        let client_signature = self.sign(stored_key.bytes(), server_first, nonce);
        let server_signature = self.sign(keys.server_key.bytes(), server_first, nonce);
        let proof = client_signature.xor(&keys.client_key);
        let nonce = heapless::Vec::from_slice(nonce).unwrap_or_default();
        self.keys = Some(keys);
        self.state = State::Final { nonce, proof, server_signature };
    }

    /// The MAC over both first messages and the final message without its proof.
    fn sign(&self, key: &[u8], server_first: &[u8], nonce: &[u8]) -> Digest {
        let mut mac = Mac::new(self.mechanism, key);
        let written: Result<(), Infallible> = self.first_bare(|piece| {
            mac.update(piece);
            Ok(())
        });
        let Ok(()) = written;
        for piece in [b",", server_first, b",", FINAL_FRONT, nonce] {
            mac.update(piece);
        }
        mac.finish()
    }

    /// Writes the client's first message without its header, in pieces; comma and equals sign of
    /// the user name are escaped.
    fn first_bare<E>(&self, mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        put(b"n=")?;
        for piece in self.username.as_bytes().split_inclusive(|byte| matches!(byte, b'=' | b',')) {
            match piece {
                [plain @ .., b'='] => {
                    put(plain)?;
                    put(b"=3D")?;
                }
                [plain @ .., b','] => {
                    put(plain)?;
                    put(b"=2C")?;
                }
                plain => put(plain)?,
            }
        }
        put(b",r=")?;
        put(self.nonce.as_bytes())
    }
}

impl fmt::Debug for Scram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::First => "First",
            State::Stretching { .. } => "Stretching",
            State::Final { .. } => "Final",
            State::Empty => "Empty",
            State::Ended => "Ended",
        };
        f.debug_struct("Scram").field("mechanism", &self.mechanism).field("state", &state).finish_non_exhaustive()
    }
}
