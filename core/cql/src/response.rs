//! Envelopes in: what servers say.
//!
//! Read first: Native Protocol, "Responses", with what comes before the message by the flags ("flags", "Messages").

#[cfg(test)]
mod tests;

use core::fmt;

use super::error::CqlError;
use super::event::{Event, SchemaChange};
use super::failure::Failure;
use super::header::{Direction, Flags, HEADER_BYTES, Header, OPCODE_AT, Opcode, Version};
use super::notation::{BytesMap, Multimap, Reader, Strings, field};
use crate::error::CqlErrorKind;

/// An envelope that is all there, with its body as it was before it was compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its header. What came compressed has the length that it has inflated, and not the flag.
    pub header: Header,
    /// Its body.
    pub body: &'a [u8],
}

impl fmt::Debug for Envelope<'_> {
    /// Without the body, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, body } = self;
        f.debug_struct("Envelope").field("header", header).field("body_bytes", &body.len()).finish()
    }
}

/// What comes before the message, and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The id of the trace that was asked for.
    pub tracing_id: Option<[u8; 16]>,
    /// What the server wants to be known.
    pub warnings: Strings<'a>,
    /// Bytes for programs on top of the protocol.
    pub custom_payload: BytesMap<'a>,
    /// What is left of the body.
    message: Reader<'a>,
}

impl<'a> Parts<'a> {
    /// The message: what is left of the body.
    #[must_use]
    pub const fn message(&self) -> &'a [u8] {
        self.message.rest
    }
}

impl<'a> Envelope<'a> {
    /// Divides the body into what its flags say, and the message.
    ///
    /// In v3 custom payload and warnings do not exist, and their flags mean nothing.
    ///
    /// Cost: linear in what comes before the message.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`].
    ///
    /// Source: Native Protocol, "flags".
    pub fn parts(&self) -> Result<Parts<'a>, CqlError> {
        let Header { flags, version, direction, .. } = self.header;
        let mut reader = Reader::new(self.body, 9);
        let has = |flag| flags.contains(flag);
        let answers = direction == Direction::Response;
        let tracing_id = if answers && has(Flags::TRACING) { Some(reader.array()?) } else { None };
        let newer = version > Version::V3;
        let warnings = if answers && newer && has(Flags::WARNING) { reader.strings()? } else { Strings::EMPTY };
        let custom_payload = if newer && has(Flags::CUSTOM_PAYLOAD) { reader.bytes_map()? } else { BytesMap::EMPTY };
        Ok(Parts { tracing_id, warnings, custom_payload, message: reader })
    }

    /// Reads the message of a response.
    ///
    /// Cost: linear in the body, but for that of a RESULT, which is left to the caller. No allocation.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::OpcodeMisplaced`] for a request; [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`], [`CqlErrorKind::FieldValue`].
    ///
    /// Source: Native Protocol, "Responses".
    pub fn response(&self) -> Result<Response<'a>, CqlError> {
        let mut reader = self.parts()?.message;
        let opcode = self.header.opcode;
        match opcode {
            Opcode::Error => Failure::read(&mut reader).map(Response::Error),
            Opcode::Ready => Ok(Response::Ready),
            Opcode::Authenticate => reader.string().map(Response::Authenticate),
            Opcode::Supported => reader.multimap().map(|options| Response::Supported(Supported(options))),
            Opcode::Result => Outcome::read(&mut reader).map(Response::Result),
            Opcode::Event => Event::read(&mut reader).map(Response::Event),
            Opcode::AuthChallenge => reader.bytes().map(Response::AuthChallenge),
            Opcode::AuthSuccess => reader.bytes().map(Response::AuthSuccess),
            Opcode::Startup
            | Opcode::Options
            | Opcode::Query
            | Opcode::Prepare
            | Opcode::Execute
            | Opcode::Register
            | Opcode::Batch
            | Opcode::AuthResponse => Err(CqlError::new(CqlErrorKind::OpcodeMisplaced { opcode }, OPCODE_AT)),
        }
    }
}

const _: () = assert!(HEADER_BYTES == 9);

/// What a server says. Whatever stands behind what is known of a message is passed over: that is how the protocol is extended.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response<'a> {
    /// A request failed.
    Error(Failure<'a>),
    /// The connection can be used; or events will be sent.
    Ready,
    /// The server wants to know who is calling: the name of what checks it.
    Authenticate(&'a str),
    /// What can be said in STARTUP.
    Supported(Supported<'a>),
    /// What came of a statement.
    Result(Outcome<'a>),
    /// Something happened in the cluster.
    Event(Event<'a>),
    /// The server's part of an authentication; `None` is null.
    AuthChallenge(Option<&'a [u8]>),
    /// The end of an authentication; `None` is null.
    AuthSuccess(Option<&'a [u8]>),
}

impl fmt::Debug for Response<'_> {
    /// Without tokens, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(failure) => f.debug_tuple("Error").field(failure).finish(),
            Self::Ready => f.write_str("Ready"),
            Self::Authenticate(name) => f.debug_tuple("Authenticate").field(name).finish(),
            Self::Supported(supported) => f.debug_tuple("Supported").field(&supported.options()).finish(),
            Self::Result(outcome) => f.debug_tuple("Result").field(outcome).finish(),
            Self::Event(event) => f.debug_tuple("Event").field(event).finish(),
            Self::AuthChallenge(_) => f.write_str("AuthChallenge(..)"),
            Self::AuthSuccess(_) => f.write_str("AuthSuccess(..)"),
        }
    }
}

/// What can be said in STARTUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported<'a>(Multimap<'a>);

impl<'a> Supported<'a> {
    /// Every option with its values.
    #[must_use]
    pub const fn options(self) -> Multimap<'a> {
        self.0
    }

    /// All values of an option.
    pub fn values<'k>(self, option: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.0.values(option)
    }

    /// The versions of the protocol that the server speaks, by number, and whether each is still in beta. Servers before Cassandra 3.10 and ScyllaDB name none.
    /// `None` for an entry that is not of the form `5/v5` or `6/v6-beta`.
    ///
    /// Source: Native Protocol v5, "SUPPORTED".
    pub fn protocol_versions(self) -> impl Iterator<Item = Option<(u8, bool)>> + use<'a> {
        self.values("PROTOCOL_VERSIONS").map(|entry| {
            // By bytes: what searches texts has calls of panics in it.
            let slash = entry.bytes().position(|byte| byte == b'/')?;
            let (number, description) = (entry.get(..slash)?, entry.get(slash + 1..)?);
            Some((number.parse().ok()?, description.as_bytes().windows(4).any(|window| window == b"beta")))
        })
    }
}

/// What came of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// What it is.
    pub kind: OutcomeKind,
    /// What follows the kind.
    pub body: &'a [u8],
}

/// What came of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// It was done.
    Void,
    /// Rows.
    Rows,
    /// The keyspace of the connection is now another one.
    SetKeyspace,
    /// The id of a prepared statement, and what is known of it.
    Prepared,
    /// The schema was changed.
    SchemaChange,
}

impl OutcomeKind {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Void, Self::Rows, Self::SetKeyspace, Self::Prepared, Self::SchemaChange];

    /// Its number.
    ///
    /// Source: Native Protocol, "RESULT".
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Void => 1,
            Self::Rows => 2,
            Self::SetKeyspace => 3,
            Self::Prepared => 4,
            Self::SchemaChange => 5,
        }
    }
}

impl fmt::Debug for Outcome<'_> {
    /// Without the body, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, body } = self;
        f.debug_struct("Outcome").field("kind", kind).field("body_bytes", &body.len()).finish()
    }
}

impl<'a> Outcome<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, CqlError> {
        let start = *reader;
        let number = reader.i32()?;
        let kind = OutcomeKind::ALL.into_iter().find(|kind| kind.number() == number);
        let kind = kind.ok_or(start.error(field("kind", i64::from(number))))?;
        Ok(Self { kind, body: reader.rest })
    }

    /// The keyspace that the connection is in from now on; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`]; their offsets count from where the kind ends.
    pub fn keyspace(&self) -> Result<Option<&'a str>, CqlError> {
        match self.kind {
            OutcomeKind::SetKeyspace => Reader::new(self.body, 0).string().map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::Prepared | OutcomeKind::SchemaChange => Ok(None),
        }
    }

    /// The id that a statement was prepared by; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`]; its offset counts from where the kind ends.
    pub fn prepared_id(&self) -> Result<Option<&'a [u8]>, CqlError> {
        match self.kind {
            OutcomeKind::Prepared => Reader::new(self.body, 0).short_bytes().map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::SetKeyspace | OutcomeKind::SchemaChange => Ok(None),
        }
    }

    /// What was changed of the schema; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`]; their offsets count from where the kind ends.
    pub fn schema_change(&self) -> Result<Option<SchemaChange<'a>>, CqlError> {
        match self.kind {
            OutcomeKind::SchemaChange => SchemaChange::read(&mut Reader::new(self.body, 0)).map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::SetKeyspace | OutcomeKind::Prepared => Ok(None),
        }
    }
}
