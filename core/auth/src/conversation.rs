//! Authentication of one connection, from hello to the last reply.
//!
//! Read first: Authentication, "Authentication Handshake", "Speculative Authentication", "Default
//! Authentication Methods".

use core::fmt;

use super::credential::Credential;
use super::keys::{ITERATIONS_MAX, ScramKeys};
use super::mechanism::{Mechanism, ScramMechanism};
use super::nonce::{ENTROPY_BYTES, Nonce};
use super::password::prepare;
use super::scram::Scram;
use poolhouse_wire::bson::{DocumentWriter, RawDocument};
use poolhouse_wire::hello::HelloReply;
use poolhouse_wire::{AuthError, Authenticator, EncodeError, Round, Sink};

/// Options of an authentication, apart from the credential.
#[derive(Clone, Debug)]
pub struct AuthenticationOptions {
    /// The client's nonce, unique to this conversation.
    pub nonce: Nonce,
    /// Whether the authentication begins with hello, which saves a round trip. On by default. With
    /// SCRAM, only if the nonce has a second one.
    pub speculative: bool,
    /// Whether the connection is private: TLS with a verified server, or a unix socket. Off by
    /// default.
    pub secure: bool,
    /// Whether PLAIN may send the password even if the connection is not private. Off by default.
    pub allow_plain_without_tls: bool,
    /// Maximum iteration count that a server may request of SCRAM; [`ITERATIONS_MAX`] by default.
    pub iterations_max: u32,
    /// Keys of an earlier connection with the same user and password, if available.
    pub keys: Option<ScramKeys>,
}

impl AuthenticationOptions {
    /// The defaults.
    ///
    /// - `entropy`: fresh bytes of an unpredictable generator, once per connection.
    #[must_use]
    pub fn new(entropy: [u8; ENTROPY_BYTES]) -> Self {
        Self {
            nonce: Nonce::from_entropy(entropy),
            speculative: true,
            secure: false,
            allow_plain_without_tls: false,
            iterations_max: ITERATIONS_MAX,
            keys: None,
        }
    }
}

/// Authenticates the client to a server, on one connection. `Debug` shows no secret.
#[must_use]
pub struct Authentication<'a> {
    credential: Credential<'a>,
    options: AuthenticationOptions,
    way: Way<'a>,
    /// The id that the server chose in its first reply.
    conversation_id: Option<i64>,
}

/// The mechanism in use.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per connection, on the way to being a Scram or not large at all"
)]
enum Way<'a> {
    /// To be chosen from the reply to hello; no message can be sent before.
    Undecided,
    Scram(Scram<'a>),
    X509,
    Plain,
}

impl<'a> Authentication<'a> {
    /// Creates an authentication that has not begun.
    ///
    /// # Errors
    ///
    /// Those of [`Credential::check`] and [`Scram::new`]; [`AuthError::PlainWithoutTls`].
    ///
    /// Source: Authentication, "MongoCredential", "PLAIN".
    pub fn new(credential: Credential<'a>, options: AuthenticationOptions) -> Result<Self, AuthError> {
        credential.check()?;
        let mut this = Self { credential, options, way: Way::Undecided, conversation_id: None };
        this.choose()?;
        Ok(this)
    }

    /// Whether [`Authentication::new`] would accept a credential on a private connection. Cheaper
    /// than creating an authentication.
    #[doc(hidden)]
    pub fn check(credential: &Credential<'_>) -> Result<(), AuthError> {
        credential.check()?;
        match credential.mechanism {
            Some(Mechanism::Scram(scram)) => {
                prepare(scram, credential.username.unwrap_or_default(), credential.password.unwrap_or_default())
                    .map(drop)
            }
            None | Some(Mechanism::X509 | Mechanism::Plain) => Ok(()),
        }
    }

    /// Chooses the initial mechanism. Separate from [`Authentication::new`] to limit stack use:
    /// otherwise the copies made while the value is moved into its slot are all on the stack at
    /// once.
    #[inline(never)]
    fn choose(&mut self) -> Result<(), AuthError> {
        match self.credential.mechanism {
            None => match self.begin_scram(ScramMechanism::Sha256) {
                Ok(()) => {}
                // A password that SHA-256 cannot use may be valid for SHA-1, if the user has that
                // mechanism.
                Err(_) => self.way = Way::Undecided,
            },
            Some(Mechanism::Scram(scram)) => self.begin_scram(scram)?,
            Some(Mechanism::X509) => self.way = Way::X509,
            Some(Mechanism::Plain) if self.options.secure || self.options.allow_plain_without_tls => {
                self.way = Way::Plain
            }
            Some(Mechanism::Plain) => return Err(AuthError::PlainWithoutTls),
        }
        Ok(())
    }

    /// The keys that SCRAM used, for [`AuthenticationOptions::keys`] of the next connection. Keep
    /// them only after the connection is established.
    #[must_use]
    pub const fn keys(&self) -> Option<&ScramKeys> {
        match &self.way {
            Way::Scram(scram) => scram.keys(),
            Way::Undecided | Way::X509 | Way::Plain => None,
        }
    }

    /// Supplies keys that replace the computation of [`Round::Work`]; returns whether they match.
    /// Call it after that round was returned: salt and iterations are unknown before. The next call
    /// of [`work`](Authenticator::work) then returns the next round without computation.
    ///
    /// - `keys`: keys of the same user and password, from another connection.
    pub fn offer_keys(&mut self, keys: &ScramKeys) -> bool {
        match &mut self.way {
            Way::Scram(scram) => scram.offer_keys(keys),
            Way::Undecided | Way::X509 | Way::Plain => false,
        }
    }

    /// The mechanism in use. Before the reply to hello, the one that is tried first; `None` if it
    /// depends on that reply.
    #[must_use]
    pub const fn mechanism(&self) -> Option<Mechanism> {
        match &self.way {
            Way::Undecided => None,
            Way::Scram(scram) => Some(Mechanism::Scram(scram.mechanism())),
            Way::X509 => Some(Mechanism::X509),
            Way::Plain => Some(Mechanism::Plain),
        }
    }

    #[inline(never)]
    fn begin_scram(&mut self, mechanism: ScramMechanism) -> Result<(), AuthError> {
        let Credential { username, password, .. } = self.credential;
        let (username, password) = (username.unwrap_or_default(), password.unwrap_or_default());
        self.way = Way::Scram(Scram::new(mechanism, username, password, self.options.nonce.clone())?);
        if let Way::Scram(scram) = &mut self.way {
            let keys = self.options.keys.as_ref().filter(|keys| keys.mechanism() == mechanism);
            scram.set(keys, self.options.iterations_max);
        }
        Ok(())
    }

    /// Whether hello includes the first message. If the server ignores it, SCRAM restarts with the
    /// second nonce.
    const fn speculates(&self) -> bool {
        let can = match self.way {
            Way::Scram(_) => self.options.nonce.has_second(),
            Way::X509 => true,
            Way::Undecided | Way::Plain => false,
        };
        self.options.speculative && can
    }

    /// Writes the fields that begin the conversation.
    fn write_start<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        let Credential { username, password, .. } = self.credential;
        match &self.way {
            Way::Undecided => Ok(()),
            Way::Scram(scram) => {
                command.int32("saslStart", 1)?.str("mechanism", scram.mechanism().name())?;
                command.binary_with("payload", |sink| scram.write_message(sink))?;
                command.document("options", |options| options.boolean("skipEmptyExchange", true).map(drop)).map(drop)
            }
            Way::Plain => {
                command.int32("saslStart", 1)?.str("mechanism", Mechanism::Plain.name())?;
                command
                    .binary_with("payload", |sink| {
                        for part in ["\0", username.unwrap_or_default(), "\0", password.unwrap_or_default()] {
                            sink.append(part.as_bytes())?;
                        }
                        Ok(())
                    })
                    .map(drop)
            }
            Way::X509 => {
                command.int32("authenticate", 1)?.str("mechanism", Mechanism::X509.name())?;
                username.map_or(Ok(()), |user| command.str("user", user).map(drop))
            }
        }
    }

    /// Handles the server's reply in a SASL conversation.
    fn handle_sasl(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError> {
        let SaslReply { conversation_id, payload, done } = SaslReply::parse(reply)?;
        if *self.conversation_id.get_or_insert(conversation_id) != conversation_id {
            return Err(AuthError::ConversationId);
        }
        match &mut self.way {
            Way::Scram(scram) => scram.handle_message(payload, done),
            Way::Plain if !payload.is_empty() => Err(AuthError::PayloadUnexpected),
            Way::Plain if !done => Err(AuthError::NotDone),
            Way::Plain => Ok(Round::Done),
            Way::Undecided | Way::X509 => Err(AuthError::Ended),
        }
    }
}

impl Authenticator for Authentication<'_> {
    fn write_hello<S: Sink>(&self, hello: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        let source = self.credential.source_database();
        if self.credential.mechanism.is_none() {
            let user = self.credential.username.unwrap_or_default();
            hello.str_parts("saslSupportedMechs", &[source, ".", user])?;
        }
        if !self.speculates() {
            return Ok(());
        }
        hello
            .document("speculativeAuthenticate", |first| {
                self.write_start(first)?;
                first.str("db", source).map(drop)
            })
            .map(drop)
    }

    /// Continues with the server's reply to the message in hello. Without such a reply, chooses the
    /// mechanism and restarts.
    ///
    /// A mechanism named by the credential is never replaced. A negotiated mechanism is SHA-256 if
    /// the server lists it for the user, or has replied to it; after a failure the weaker hash is
    /// not tried.
    fn handle_hello(&mut self, reply: &HelloReply<'_>) -> Result<Round, AuthError> {
        let speculated = self.speculates();
        if let (true, Some(answer)) = (speculated, reply.speculative_authenticate) {
            return match self.way {
                Way::X509 => Ok(Round::Done),
                Way::Scram(_) | Way::Plain | Way::Undecided => self.handle_sasl(answer),
            };
        }
        let wanted = match (self.credential.mechanism, &self.way) {
            (None, _) => ScramMechanism::negotiate(reply.sasl_supported_mechs),
            (Some(_), Way::Scram(scram)) => scram.mechanism(),
            (Some(_), Way::Undecided | Way::X509 | Way::Plain) => return Ok(Round::Another),
        };
        if let (true, Some(second)) = (speculated, self.options.nonce.second()) {
            // The first nonce was already sent.
            self.options.nonce = second;
        }
        self.begin_scram(wanted)?;
        Ok(Round::Another)
    }

    fn database(&self) -> &str {
        self.credential.source_database()
    }

    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        let (Some(id), Way::Scram(scram)) = (self.conversation_id, &self.way) else {
            return self.write_start(command);
        };
        command.int32("saslContinue", 1)?;
        match i32::try_from(id) {
            Ok(id) => command.int32("conversationId", id)?,
            Err(_) => command.int64("conversationId", id)?,
        };
        command.binary_with("payload", |sink| scram.write_message(sink)).map(drop)
    }

    fn work(&mut self) -> Result<Round, AuthError> {
        match &mut self.way {
            Way::Scram(scram) if scram.owes_work() => scram.work(),
            Way::Scram(_) => Ok(Round::Another),
            Way::Undecided | Way::X509 | Way::Plain => Err(AuthError::Ended),
        }
    }

    fn handle_reply(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError> {
        match self.way {
            // The reply's `ok: 1` is sufficient.
            Way::X509 => Ok(Round::Done),
            Way::Undecided | Way::Scram(_) | Way::Plain => self.handle_sasl(reply),
        }
    }
}

impl fmt::Debug for Authentication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication")
            .field("source", &self.credential.source_database())
            .field("mechanism", &self.mechanism())
            .field("begun", &self.conversation_id.is_some())
            .finish_non_exhaustive()
    }
}

/// The fields of a reply to saslStart and saslContinue.
struct SaslReply<'a> {
    conversation_id: i64,
    payload: &'a [u8],
    done: bool,
}

impl<'a> SaslReply<'a> {
    /// Parses a reply; all three fields are required. Linear in its bytes.
    fn parse(reply: RawDocument<'a>) -> Result<Self, AuthError> {
        let field = |name: &'static str| {
            let missing = AuthError::ReplyField { name };
            reply.get(name).ok().flatten().ok_or(missing).map(|value| (value, missing))
        };
        let (id, missing) = field("conversationId")?;
        let conversation_id = id.as_integer().ok_or(missing)?;
        let (payload, missing) = field("payload")?;
        let payload = payload.as_binary().filter(|binary| binary.subtype == 0).ok_or(missing)?.bytes;
        let (done, missing) = field("done")?;
        Ok(Self { conversation_id, payload, done: done.as_bool().ok_or(missing)? })
    }
}
