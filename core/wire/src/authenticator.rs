//! The interface between a handshake and an authentication mechanism.
//!
//! The mechanisms themselves are in the module `auth` (feature `auth`); a host may implement its
//! own.
//!
//! Read first: Authentication, "Authentication Handshake"; CMAP, "Establishing a Connection".

use core::fmt;

use super::bson::{DocumentWriter, RawDocument};
use super::error::EncodeError;
use super::hello::HelloReply;
use super::sink::Sink;

/// A conversation that authenticates this client to a server, in rounds that follow hello.
///
/// [`Handshake`](super::handshake::Handshake) requests the messages to send and passes in the
/// replies. The `write_*` methods do not change state and may be called again; the `handle_*`
/// methods advance the conversation. Replies are well-formed and have `ok: 1`: the handshake fails
/// on a server's refusal and does not pass it in.
pub trait Authenticator {
    /// Appends the authentication fields to the connection's first hello.
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    fn write_hello<S: Sink>(&self, hello: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError>;

    /// Handles the reply to hello.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed.
    fn handle_hello(&mut self, reply: &HelloReply<'_>) -> Result<Round, AuthError>;

    /// The database that the next command runs on.
    fn database(&self) -> &str;

    /// Writes the next command, without `$db`. Only called after [`Round::Another`].
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError>;

    /// Does a step of the work that [`Round::Work`] announced. Only called after that round.
    ///
    /// Cost: a small part of a second at most, so other tasks on the same thread are not blocked
    /// for long.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed. An authenticator that never returns
    /// [`Round::Work`] returns [`AuthError::Ended`].
    fn work(&mut self) -> Result<Round, AuthError> {
        Err(AuthError::Ended)
    }

    /// Handles the reply to the command.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection must be closed.
    fn handle_reply(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError>;
}

/// The next step of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// Another command must be sent.
    Another,
    /// Computation is needed first: each call of [`Authenticator::work`] does a part of it and
    /// returns the next step.
    Work,
    /// The server has authenticated this client, and has proved its own identity if the mechanism
    /// provides for that.
    Done,
}

/// An authenticator that sends nothing: for servers without access control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unauthenticated;

impl Authenticator for Unauthenticated {
    fn write_hello<S: Sink>(&self, _: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn handle_hello(&mut self, _: &HelloReply<'_>) -> Result<Round, AuthError> {
        Ok(Round::Done)
    }

    fn database(&self) -> &str {
        "admin"
    }

    fn write_command<S: Sink>(&self, _: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn handle_reply(&mut self, _: RawDocument<'_>) -> Result<Round, AuthError> {
        Ok(Round::Done)
    }
}

/// `None` behaves as [`Unauthenticated`].
impl<A: Authenticator> Authenticator for Option<A> {
    fn write_hello<S: Sink>(&self, hello: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        self.as_ref().map_or(Ok(()), |inner| inner.write_hello(hello))
    }

    fn handle_hello(&mut self, reply: &HelloReply<'_>) -> Result<Round, AuthError> {
        self.as_mut().map_or(Ok(Round::Done), |inner| inner.handle_hello(reply))
    }

    fn database(&self) -> &str {
        self.as_ref().map_or(Unauthenticated.database(), A::database)
    }

    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        self.as_ref().map_or(Ok(()), |inner| inner.write_command(command))
    }

    fn work(&mut self) -> Result<Round, AuthError> {
        self.as_mut().map_or(Err(AuthError::Ended), A::work)
    }

    fn handle_reply(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError> {
        self.as_mut().map_or(Ok(Round::Done), |inner| inner.handle_reply(reply))
    }
}

impl<A: Authenticator> Authenticator for &mut A {
    fn write_hello<S: Sink>(&self, hello: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        (**self).write_hello(hello)
    }

    fn handle_hello(&mut self, reply: &HelloReply<'_>) -> Result<Round, AuthError> {
        (**self).handle_hello(reply)
    }

    fn database(&self) -> &str {
        (**self).database()
    }

    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError> {
        (**self).write_command(command)
    }

    fn work(&mut self) -> Result<Round, AuthError> {
        (**self).work()
    }

    fn handle_reply(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError> {
        (**self).handle_reply(reply)
    }
}

/// Why an authentication failed, or cannot be attempted.
///
/// `Copy`, and free of text of the user or of the peer, so it cannot contain a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AuthError {
    /// The mechanism needs a user name.
    UsernameMissing,
    /// The user name contains a zero character.
    UsernameProhibited,
    /// The mechanism needs a password, and none or an empty one was given.
    PasswordMissing,
    /// The mechanism does not use a password, but one was given.
    PasswordUnexpected,
    /// The password contains characters that SASLprep prohibits, or a zero character.
    PasswordProhibited,
    /// The password is not ASCII, and this build has no tables for SASLprep (feature `std`).
    PasswordNotAscii,
    /// The mechanism supports only users of the database `$external`.
    SourceNotExternal,
    /// The mechanism is not supported by this build.
    MechanismUnsupported {
        /// Its name.
        name: &'static str,
    },
    /// PLAIN would send the password without encryption, or to a server with an unverified
    /// certificate.
    PlainWithoutTls,
    /// The nonce supplied is too short or too long, or contains characters that a nonce cannot
    /// have.
    NonceProhibited,
    /// The server refused with `ok: 0` and this code (0 if the reply has none).
    Refused {
        /// The numeric error code.
        code: i32,
    },
    /// The server refused with an error in its SCRAM message.
    ServerError,
    /// A required field of the reply is missing or has the wrong type.
    ReplyField {
        /// The field.
        name: &'static str,
    },
    /// The reply belongs to another conversation.
    ConversationId,
    /// An attribute is missing from its required position in a SCRAM message.
    AttributeMissing {
        /// The attribute.
        name: char,
    },
    /// A SCRAM attribute is malformed.
    AttributeMalformed {
        /// The attribute; `None` if even its name cannot be read.
        name: Option<char>,
    },
    /// A SCRAM attribute is repeated, or in a position where it is not allowed.
    AttributeMisplaced {
        /// The attribute.
        name: char,
    },
    /// The SCRAM message has a mandatory extension, which this side does not support.
    MandatoryExtension,
    /// The server's nonce does not begin with the client's.
    ServerNonce,
    /// The server's nonce is longer than the buffer for it.
    ServerNonceTooLong,
    /// The salt is longer than the buffer for it.
    SaltTooLong,
    /// The server's first SCRAM message is longer than the buffer for it.
    MessageTooLong,
    /// The iteration count is lower than the safe minimum.
    IterationsTooFew {
        /// The iteration count that the server requested.
        found: u32,
    },
    /// The iteration count is higher than this side's limit.
    IterationsTooMany {
        /// The limit.
        max: u32,
    },
    /// The server's signature is wrong: it did not prove that it knows the user's credentials.
    ServerSignature,
    /// The server ended the conversation too early.
    DoneTooEarly,
    /// The server continues a conversation that should have ended.
    NotDone,
    /// The server sent a payload where none is expected.
    PayloadUnexpected,
    /// A message arrived for a conversation that has ended.
    Ended,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::UsernameMissing => "the mechanism needs a user name",
            Self::UsernameProhibited => "the user name contains a zero character",
            Self::PasswordMissing => "the mechanism needs a password that is not empty",
            Self::PasswordUnexpected => "the mechanism does not use a password",
            Self::PasswordProhibited => "the password contains prohibited characters",
            Self::PasswordNotAscii => "the password is not ASCII, which this build does not support: enable the feature std",
            Self::SourceNotExternal => "the mechanism requires authSource=$external",
            Self::MechanismUnsupported { name } => return write!(f, "the mechanism {name} is not supported"),
            Self::PlainWithoutTls => {
                "PLAIN sends the password itself, so it needs TLS that verifies the server: set tls=true without tlsInsecure and \
                 tlsAllowInvalid.., or set allow_plain_without_tls"
            }
            Self::NonceProhibited => "the client's nonce is invalid",
            Self::Refused { code } => return write!(f, "the server refused with code {code}"),
            Self::ServerError => "the server refused with an error in its SCRAM message",
            Self::ReplyField { name } => return write!(f, "field `{name}` of the reply is missing or has the wrong type"),
            Self::ConversationId => "the reply belongs to another conversation",
            Self::AttributeMissing { name } => return write!(f, "attribute `{name}` is missing from its position"),
            Self::AttributeMalformed { name: Some(name) } => return write!(f, "attribute `{name}` is malformed"),
            Self::AttributeMalformed { name: None } => "malformed attribute",
            Self::AttributeMisplaced { name } => {
                return write!(f, "attribute `{name}` is repeated or misplaced");
            }
            Self::MandatoryExtension => "the SCRAM message has an unsupported mandatory extension",
            Self::ServerNonce => "the server's nonce does not begin with the client's",
            Self::ServerNonceTooLong => "the server's nonce is too long",
            Self::SaltTooLong => "the salt is too long",
            Self::MessageTooLong => "the server's first message is too long",
            Self::IterationsTooFew { found } => return write!(f, "only {found} iterations"),
            Self::IterationsTooMany { max } => return write!(f, "more than {max} iterations"),
            Self::ServerSignature => "the server's signature is wrong",
            Self::DoneTooEarly => "the server ended the conversation too early",
            Self::NotDone => "the server continues a conversation that should have ended",
            Self::PayloadUnexpected => "unexpected payload",
            Self::Ended => "the conversation has ended",
        })
    }
}

crate::debug_as_display!(AuthError);

impl core::error::Error for AuthError {}

impl From<AuthError> for crate::Cause {
    fn from(_: AuthError) -> Self {
        Self::Authentication
    }
}

const _: () = assert!(size_of::<AuthError>() <= 24);
