//! Decoding of envelopes and responses.
//!
//! Read first: Native Protocol, "Responses", and the parts that precede the message according to
//! the flags ("flags", "Messages").

#[cfg(test)]
mod tests;

use core::fmt;

use super::error::CqlError;
use super::event::{Event, SchemaChange};
use super::failure::Failure;
use super::header::{Direction, Flags, HEADER_BYTES, Header, OPCODE_AT, Opcode, Version};
use super::notation::{BytesMap, Multimap, Reader, Strings, field};
use crate::error::CqlErrorKind;

/// A complete envelope, with an uncompressed body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The header. If the envelope was compressed, `length_bytes` is the inflated length and the
    /// flag is cleared.
    pub header: Header,
    /// The body.
    pub body: &'a [u8],
}

impl fmt::Debug for Envelope<'_> {
    /// Omits the body, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, body } = self;
        f.debug_struct("Envelope").field("header", header).field("body_bytes", &body.len()).finish()
    }
}

/// The parts of a body: the optional fields before the message, and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The trace id, if tracing was requested.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings of the server.
    pub warnings: Strings<'a>,
    /// The custom payload.
    pub custom_payload: BytesMap<'a>,
    /// The rest of the body.
    message: Reader<'a>,
}

impl<'a> Parts<'a> {
    /// The message: the rest of the body after the optional fields.
    #[must_use]
    pub const fn message(&self) -> &'a [u8] {
        self.message.rest
    }
}

impl<'a> Envelope<'a> {
    /// Divides the body into the parts that its flags indicate, and the message.
    ///
    /// In v3 custom payload and warnings do not exist, and their flags have no meaning.
    ///
    /// Cost: linear in the parts before the message.
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

    /// Decodes the message of a response.
    ///
    /// Cost: linear in the body, except that the content of a RESULT is left to the caller. No
    /// allocation.
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

/// A message of a server. Bytes after the known fields of a message are ignored, so later versions
/// can extend it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response<'a> {
    /// A request failed.
    Error(Failure<'a>),
    /// The connection is ready, or a subscription to events was accepted.
    Ready,
    /// The server requires authentication; contains the name of its authenticator class.
    Authenticate(&'a str),
    /// The options that STARTUP supports.
    Supported(Supported<'a>),
    /// The result of a statement.
    Result(Outcome<'a>),
    /// A cluster event.
    Event(Event<'a>),
    /// The server's token of an authentication; `None` is null.
    AuthChallenge(Option<&'a [u8]>),
    /// The final token of an authentication; `None` is null.
    AuthSuccess(Option<&'a [u8]>),
}

impl fmt::Debug for Response<'_> {
    /// Omits tokens, which may be secret.
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

/// The options that STARTUP supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supported<'a>(Multimap<'a>);

impl<'a> Supported<'a> {
    /// All options with their values.
    #[must_use]
    pub const fn options(self) -> Multimap<'a> {
        self.0
    }

    /// All values of an option.
    pub fn values<'k>(self, option: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.0.values(option)
    }

    /// The protocol versions that the server supports, by number, and whether each is still in
    /// beta. Empty for servers before Cassandra 3.10 and for ScyllaDB. `None` for an entry that
    /// does not have the form `5/v5` or `6/v6-beta`.
    ///
    /// Source: Native Protocol v5, "SUPPORTED".
    pub fn protocol_versions(self) -> impl Iterator<Item = Option<(u8, bool)>> + use<'a> {
        self.values("PROTOCOL_VERSIONS").map(|entry| {
            // Searches bytes: the text search functions contain calls that can panic.
            let slash = entry.bytes().position(|byte| byte == b'/')?;
            let (number, description) = (entry.get(..slash)?, entry.get(slash + 1..)?);
            Some((number.parse().ok()?, description.as_bytes().windows(4).any(|window| window == b"beta")))
        })
    }
}

/// The result of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The kind of result.
    pub kind: OutcomeKind,
    /// The bytes after the kind.
    pub body: &'a [u8],
}

/// The kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// The statement was executed and returns no data.
    Void,
    /// Rows.
    Rows,
    /// The connection now uses another keyspace.
    SetKeyspace,
    /// The id of a prepared statement, and its description.
    Prepared,
    /// The schema was changed.
    SchemaChange,
}

impl OutcomeKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Void, Self::Rows, Self::SetKeyspace, Self::Prepared, Self::SchemaChange];

    /// The number of the kind.
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
    /// Omits the body, which may be secret.
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

    /// The keyspace that the connection uses from now on; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`]; their offsets count from the end of the
    /// kind.
    pub fn keyspace(&self) -> Result<Option<&'a str>, CqlError> {
        match self.kind {
            OutcomeKind::SetKeyspace => Reader::new(self.body, 0).string().map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::Prepared | OutcomeKind::SchemaChange => Ok(None),
        }
    }

    /// The id of the prepared statement; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`]; its offset counts from the end of the kind.
    pub fn prepared_id(&self) -> Result<Option<&'a [u8]>, CqlError> {
        match self.kind {
            OutcomeKind::Prepared => Reader::new(self.body, 0).short_bytes().map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::SetKeyspace | OutcomeKind::SchemaChange => Ok(None),
        }
    }

    /// The change of the schema; `None` for any other kind.
    ///
    /// # Errors
    ///
    /// [`CqlErrorKind::Truncated`], [`CqlErrorKind::Utf8`]; their offsets count from the end of the
    /// kind.
    pub fn schema_change(&self) -> Result<Option<SchemaChange<'a>>, CqlError> {
        match self.kind {
            OutcomeKind::SchemaChange => SchemaChange::read(&mut Reader::new(self.body, 0)).map(Some),
            OutcomeKind::Void | OutcomeKind::Rows | OutcomeKind::SetKeyspace | OutcomeKind::Prepared => Ok(None),
        }
    }
}
