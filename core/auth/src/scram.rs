//! The client's side of SCRAM.
//!
//! Read first: RFC 5802, sections 3, 5 and 7; RFC 7677; Authentication, "SCRAM-SHA-1" and "SCRAM-SHA-256".

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

/// No channel binding, no other identity.
const GS2_HEADER: &[u8] = b"n,,";
/// The beginning of our last message: that header as base64, and what follows it.
const FINAL_FRONT: &[u8] = b"c=biws,r=";
/// What stands between nonce and proof.
const PROOF_FRONT: &[u8] = b",p=";
/// What the server's first message begins with.
const NONCE_FRONT: &[u8] = b"r=";
/// The longest first message of a server that is kept: the longest nonce, salt and number, and room for extensions.
const SERVER_FIRST_BYTES_MAX: usize = 512;
/// Base64 of the longest digest.
const PROOF_BYTES_MAX: usize = DIGEST_BYTES_MAX.div_ceil(3) * 4;

/// One conversation: messages out by [`write_message`](Self::write_message), in by
/// [`handle_message`](Self::handle_message), in turn.
///
/// First message, server's first, final message, server's final; after it an empty exchange if the server has
/// not said that it is done. Between the server's first and the final message there may be work to do, in steps:
/// [`work`](Self::work), unless [`offer_keys`](Self::offer_keys) spares it. After an error, or the end,
/// every message is refused.
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

/// What is to be said, and what is then expected.
#[expect(clippy::large_enum_variant, reason = "without a heap there is nowhere else to keep it")]
enum State {
    First,
    /// The server's first message, and the keys that it takes to answer it.
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
    /// A conversation that has not begun.
    ///
    /// - `password`: as the user types it. `nonce`: never used before.
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
        // Found out now, rather than when the server has spoken.
        prepare(mechanism, username, password)?;
        let (iterations_max, keys, state) = (ITERATIONS_MAX, None, State::First);
        Ok(Self { mechanism, username, password, nonce, iterations_max, keys, state })
    }

    /// With keys from an earlier conversation of the same user and password. Not used if the server asks for
    /// others.
    pub fn with_keys(mut self, keys: Option<ScramKeys>) -> Self {
        self.keys = keys;
        self
    }

    /// [`Scram::with_keys`] and [`Scram::with_iterations_max`] in its place.
    pub(super) fn set(&mut self, keys: Option<&ScramKeys>, iterations_max: u32) {
        self.keys = keys.cloned();
        self.iterations_max = iterations_max;
    }

    /// With another limit than [`ITERATIONS_MAX`]: the most work that a server can demand.
    pub const fn with_iterations_max(mut self, iterations: u32) -> Self {
        self.iterations_max = iterations;
        self
    }

    /// Takes a message of the server's.
    ///
    /// - `message`: the payload of its reply. `done`: what the reply says of the conversation.
    ///
    /// Cost: linear in `message`. [`Round::Work`] follows the server's first message unless the keys were given and fit.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the conversation has ended.
    ///
    /// Source: RFC 5802, section 5, "SCRAM Authentication Exchange"; Authentication, "SCRAM-SHA-1".
    pub fn handle_message(&mut self, message: &[u8], done: bool) -> Result<Round, AuthError> {
        match core::mem::replace(&mut self.state, State::Ended) {
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
            // A message that was not asked for.
            State::Stretching { .. } | State::Ended => Err(AuthError::Ended),
        }
    }

    /// Does a step of the work that [`Round::Work`] speaks of: [`ITERATIONS_PER_STEP`] iterations. The next message is
    /// due when it says [`Round::Another`].
    ///
    /// # Errors
    ///
    /// [`AuthError::Ended`] when there is none to do.
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

    /// Spares the work, if these are the keys that it would make; tells whether they are. The next message is due then.
    ///
    /// - `keys`: of the same user and password, from another conversation.
    pub fn offer_keys(&mut self, keys: &ScramKeys) -> bool {
        let fit = matches!(&self.state, State::Stretching { derivation, .. } if derivation.makes(keys));
        if fit {
            self.answer(keys.clone());
        }
        fit
    }

    /// Writes the message that is to be sent now at the end of `sink`: may be empty, and changes nothing.
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

    /// Whether there is work to do before the next message.
    #[must_use]
    pub const fn owes_work(&self) -> bool {
        matches!(self.state, State::Stretching { .. })
    }

    /// The mechanism.
    #[must_use]
    pub const fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// The keys: those that were given until the server's first message has come, then those that it asked for.
    #[must_use]
    pub const fn keys(&self) -> Option<&ScramKeys> {
        self.keys.as_ref()
    }

    /// Judges the server's first message.
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

    /// Makes the final message.
    fn answer(&mut self, keys: ScramKeys) {
        let State::Stretching { server_first, nonce_bytes, .. } = core::mem::replace(&mut self.state, State::Ended)
        else {
            return;
        };
        let nonce = server_first.get(NONCE_FRONT.len()..).and_then(|rest| rest.get(..nonce_bytes)).unwrap_or_default();
        let stored_key = hash(self.mechanism, keys.client_key.bytes());
        let client_signature = self.sign(stored_key.bytes(), &server_first, nonce);
        let server_signature = self.sign(keys.server_key.bytes(), &server_first, nonce);
        let proof = client_signature.xor(&keys.client_key);
        let nonce = heapless::Vec::from_slice(nonce).unwrap_or_default();
        self.keys = Some(keys);
        self.state = State::Final { nonce, proof, server_signature };
    }

    /// The MAC over everything that both sides have said, our last message up to its proof included.
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

    /// Our first message without its header, in pieces; comma and equals sign of the user name are escaped.
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
