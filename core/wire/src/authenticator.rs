//! What a handshake needs to know of authentication, and no more.
//!
//! The mechanisms themselves are in the module `auth` (feature `auth`); a host may bring its own.
//!
//! Read first: Authentication, "Authentication Handshake"; CMAP, "Establishing a Connection".

use core::fmt;

use super::bson::{DocumentWriter, RawDocument};
use super::error::EncodeError;
use super::hello::HelloReply;
use super::sink::Sink;

/// A conversation that proves to a server who is calling, as rounds after hello.
///
/// [`Handshake`](super::handshake::Handshake) asks for what is to be sent and hands in what came. What
/// writes changes nothing and may be called again; what handles moves on. The replies handed in are
/// well-formed, and their `ok` is 1: a server's refusal ends the handshake by itself.
pub trait Authenticator {
    /// Appends to the connection's first hello what it carries for authentication.
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    fn write_hello<S: Sink>(&self, hello: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError>;

    /// Takes the reply to hello.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed.
    fn handle_hello(&mut self, reply: &HelloReply<'_>) -> Result<Round, AuthError>;

    /// The database that the next command is for.
    fn database(&self) -> &str;

    /// Writes the next command, without `$db`. Only called after [`Round::Another`].
    ///
    /// # Errors
    ///
    /// [`EncodeError`].
    fn write_command<S: Sink>(&self, command: &mut DocumentWriter<'_, S>) -> Result<(), EncodeError>;

    /// Does a step of the work that [`Round::Work`] speaks of. Only called after it.
    ///
    /// Cost: a small part of a second at most, so that whoever shares the thread is not kept waiting.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed. [`AuthError::Ended`] is what an authenticator says that
    /// never has any.
    fn work(&mut self) -> Result<Round, AuthError> {
        Err(AuthError::Ended)
    }

    /// Takes the reply to the command.
    ///
    /// # Errors
    ///
    /// [`AuthError`]: the connection is to be closed.
    fn handle_reply(&mut self, reply: RawDocument<'_>) -> Result<Round, AuthError>;
}

/// How an authentication goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// Another command is to be sent.
    Another,
    /// There is work to do before: [`Authenticator::work`] does some of it, and tells how it goes on.
    Work,
    /// The server knows who is calling, and has proved what the mechanism lets it prove.
    Done,
}

/// Says nothing: for servers without access control.
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

/// `None` is [`Unauthenticated`].
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

/// Why an authentication failed, or cannot be tried.
///
/// `Copy`, and without a byte of anybody's text: no secret can be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthError {
    /// The mechanism needs a user name.
    UsernameMissing,
    /// A user name with a zero character.
    UsernameProhibited,
    /// The mechanism needs a password, and there is none or an empty one.
    PasswordMissing,
    /// The mechanism has no use for a password.
    PasswordUnexpected,
    /// The password has characters that SASLprep prohibits, or a zero character.
    PasswordProhibited,
    /// The password is not ASCII, and this build has no tables for SASLprep (feature `std`).
    PasswordNotAscii,
    /// The mechanism knows users of `$external` only.
    SourceNotExternal,
    /// A mechanism that is not known here.
    MechanismUnsupported {
        /// Its name.
        name: &'static str,
    },
    /// PLAIN would send the password without encryption, or to a server that was not verified.
    PlainWithoutTls,
    /// The nonce given is too short, too long, or has characters that a nonce cannot have.
    NonceProhibited,
    /// The server refused, by `ok: 0` with this code (0 when it gave none).
    Refused {
        /// The numeric error code.
        code: i32,
    },
    /// The server refused, by an error in its SCRAM message.
    ServerError,
    /// A reply without a field that it must have, or with one of a wrong type.
    ReplyField {
        /// The field.
        name: &'static str,
    },
    /// A reply of another conversation.
    ConversationId,
    /// A SCRAM message without an attribute where it must be.
    AttributeMissing {
        /// The attribute.
        name: char,
    },
    /// A SCRAM attribute that is not well-formed.
    AttributeMalformed {
        /// The attribute; `None` when not even its name can be told.
        name: Option<char>,
    },
    /// A SCRAM attribute twice, or where it has no business.
    AttributeMisplaced {
        /// The attribute.
        name: char,
    },
    /// An extension of SCRAM that must be understood and is not.
    MandatoryExtension,
    /// The server's nonce does not go on from ours.
    ServerNonce,
    /// The server's nonce is longer than is kept.
    ServerNonceTooLong,
    /// The salt is longer than is kept.
    SaltTooLong,
    /// The server's first message of SCRAM is longer than is kept.
    MessageTooLong,
    /// Fewer iterations than are safe.
    IterationsTooFew {
        /// The iterations asked for.
        found: u32,
    },
    /// More iterations than this side is willing to do.
    IterationsTooMany {
        /// The limit.
        max: u32,
    },
    /// The server could not prove that it knows the user.
    ServerSignature,
    /// The server ended the conversation before it was over.
    DoneTooEarly,
    /// The server goes on when the conversation is over.
    NotDone,
    /// The server says something where nothing is left to say.
    PayloadUnexpected,
    /// A message for a conversation that has ended.
    Ended,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::UsernameMissing => "the mechanism needs a user name",
            Self::UsernameProhibited => "the user name has a zero character",
            Self::PasswordMissing => "the mechanism needs a password that is not empty",
            Self::PasswordUnexpected => "the mechanism has no use for a password",
            Self::PasswordProhibited => "the password has characters that are prohibited",
            Self::PasswordNotAscii => "this build can only use ASCII passwords",
            Self::SourceNotExternal => "the mechanism needs the source $external",
            Self::MechanismUnsupported { name } => return write!(f, "the mechanism {name} is not supported"),
            Self::PlainWithoutTls => {
                "PLAIN sends the password itself, so it needs TLS that verifies the server: set tls=true without tlsInsecure and \
                 tlsAllowInvalid.., or set allow_plain_without_tls"
            }
            Self::NonceProhibited => "the client's nonce cannot be used",
            Self::Refused { code } => return write!(f, "the server refused with code {code}"),
            Self::ServerError => "the server refused within SCRAM",
            Self::ReplyField { name } => return write!(f, "field `{name}` of the reply is missing or of a wrong type"),
            Self::ConversationId => "reply of another conversation",
            Self::AttributeMissing { name } => return write!(f, "attribute `{name}` is not where it must be"),
            Self::AttributeMalformed { name: Some(name) } => return write!(f, "attribute `{name}` is malformed"),
            Self::AttributeMalformed { name: None } => "malformed attribute",
            Self::AttributeMisplaced { name } => {
                return write!(f, "attribute `{name}` is repeated or out of place");
            }
            Self::MandatoryExtension => "unknown mandatory extension",
            Self::ServerNonce => "the server's nonce does not extend the client's",
            Self::ServerNonceTooLong => "the server's nonce is too long",
            Self::SaltTooLong => "the salt is too long",
            Self::MessageTooLong => "the server's first message is too long",
            Self::IterationsTooFew { found } => return write!(f, "only {found} iterations"),
            Self::IterationsTooMany { max } => return write!(f, "more than {max} iterations"),
            Self::ServerSignature => "the server's signature is wrong",
            Self::DoneTooEarly => "the server ended the conversation too early",
            Self::NotDone => "the server does not end the conversation",
            Self::PayloadUnexpected => "unexpected payload",
            Self::Ended => "the conversation has ended",
        })
    }
}

impl core::error::Error for AuthError {}

impl From<AuthError> for crate::Cause {
    fn from(_: AuthError) -> Self {
        Self::Authentication
    }
}

const _: () = assert!(size_of::<AuthError>() <= 24);
