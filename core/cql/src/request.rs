//! Encoding of requests.
//!
//! Read first: Native Protocol, "Requests", with "STARTUP", "QUERY", "BATCH", "REGISTER", "AUTH_RESPONSE".

#[cfg(test)]
mod tests;

use core::fmt;

use super::Limits;
use super::compress::Compression;
use super::error::{CqlEncodeError, CqlError};
use super::event::EventKind;
use super::header::{Opcode, Version};
use super::notation::{Reader, field};
use super::write::{BodyWriter, Outgoing, encode_envelope};
use poolhouse_wire::Sink;

/// Consistency level: the number of replicas that must complete an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the protocol's names, whose meaning is Cassandra's")]
pub enum Consistency {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    Serial,
    LocalSerial,
    LocalOne,
}

impl Consistency {
    /// All levels, indexed by number.
    pub const ALL: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    /// The number of the level.
    ///
    /// Source: Native Protocol, "Notations".
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Any => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Quorum => 4,
            Self::All => 5,
            Self::LocalQuorum => 6,
            Self::EachQuorum => 7,
            Self::Serial => 8,
            Self::LocalSerial => 9,
            Self::LocalOne => 10,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, CqlError> {
        let start = *reader;
        let number = reader.u16()?;
        let found = Self::ALL.get(usize::from(number)).copied();
        found.ok_or(start.error(field("consistency", i64::from(number))))
    }
}

/// The options of STARTUP, which begins the use of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Startup<'a> {
    /// The compression in use from now on.
    pub compression: Option<Compression>,
    /// The driver's name.
    pub driver_name: Option<&'a str>,
    /// The driver's version.
    pub driver_version: Option<&'a str>,
    /// Other options, such as `APPLICATION_NAME` or `THROW_ON_OVERLOAD`.
    pub options: &'a [(&'a str, &'a str)],
}

/// The version of the CQL language. No other exists.
const CQL_VERSION: &str = "3.0.0";

impl Startup<'_> {
    fn write<S: Sink>(&self, body: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        let known = [
            ("CQL_VERSION", Some(CQL_VERSION)),
            ("COMPRESSION", self.compression.map(Compression::name)),
            ("DRIVER_NAME", self.driver_name),
            ("DRIVER_VERSION", self.driver_version),
        ];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
        body.count(known.clone().count().saturating_add(self.options.len()))?;
        for (name, value) in known.chain(self.options.iter().copied()) {
            body.string(name)?.string(value)?;
        }
        Ok(())
    }
}

/// A value for a bind variable of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The serialized value.
    Bytes(&'a [u8]),
    /// Null.
    Null,
    /// Leaves the existing value unchanged. From v4 on.
    Unset,
}

impl fmt::Debug for Value<'_> {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Null => f.write_str("Null"),
            Self::Unset => f.write_str("Unset"),
        }
    }
}

/// The values of the bind variables of a statement, in their order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Values<'a> {
    /// One after another.
    List(&'a [Value<'a>]),
    /// In the protocol's notation: before each value its length in four bytes; -1 is null, -2 is unset.
    /// `BoundValues::values` returns them so.
    Encoded {
        /// All values.
        bytes: &'a [u8],
        /// Their number.
        count: usize,
    },
}

/// The length of a value that stands for null.
pub(super) const NULL: i32 = -1;
/// The length of a value that stands for unset.
pub(super) const UNSET: i32 = -2;

impl<'a> Values<'a> {
    /// No values.
    pub const NONE: Self = Self::List(&[]);

    /// The number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Encoded { count, .. } => *count,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of all values in the protocol's notation, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::List(list) => {
                list.iter().map(|value| if let Value::Bytes(bytes) = value { 4 + bytes.len() } else { 4 }).sum()
            }
            Self::Encoded { bytes, .. } => bytes.len(),
        }
    }

    /// The values, one after another. Ends early if encoded values are malformed.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let (mut list, mut encoded) = match *self {
            Self::List(list) => (list.iter().copied(), Reader::new(&[], 0)),
            Self::Encoded { bytes, .. } => ([].iter().copied(), Reader::new(bytes, 0)),
        };
        core::iter::from_fn(move || list.next().or_else(|| read_value(&mut encoded)))
    }

    /// Writes the number of values, and the values.
    fn write<S: Sink>(&self, body: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        let version = body.version();
        if version == Version::V3 && self.iter().any(|value| value == Value::Unset) {
            return Err(CqlEncodeError::VersionLacks { version, what: "unset values" });
        }
        body.count(self.len())?;
        match self {
            Self::List(list) => {
                for value in *list {
                    match value {
                        Value::Bytes(bytes) => body.bytes(Some(bytes))?,
                        Value::Null => body.int(NULL)?,
                        Value::Unset => body.int(UNSET)?,
                    };
                }
                Ok(())
            }
            Self::Encoded { bytes, .. } => body.raw(bytes).map(drop),
        }
    }
}

fn read_value<'a>(encoded: &mut Reader<'a>) -> Option<Value<'a>> {
    match encoded.i32().ok()? {
        NULL => Some(Value::Null),
        UNSET => Some(Value::Unset),
        length => encoded.take(usize::try_from(length).ok()?).ok().map(Value::Bytes),
    }
}

impl<'a> From<&'a [Value<'a>]> for Values<'a> {
    fn from(list: &'a [Value<'a>]) -> Self {
        Self::List(list)
    }
}

impl fmt::Debug for Values<'_> {
    /// Omits the bytes, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Parameters of the execution of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The consistency level.
    pub consistency: Consistency,
    /// The values of the bind variables, in order.
    pub values: Values<'a>,
    /// Omits the description of the columns from the result.
    pub skip_metadata: bool,
    /// Number of rows in a page.
    pub page_size: Option<i32>,
    /// The position to continue from, from the previous page.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency level of the condition of a conditional statement: [`Consistency::Serial`], the
    /// default, or [`Consistency::LocalSerial`].
    pub serial_consistency: Option<Consistency>,
    /// Write timestamp in microseconds since 1970; if `None`, the server's time.
    pub timestamp_us: Option<i64>,
}

/// The bits that indicate which parameters are present.
mod flag {
    pub(super) const VALUES: u8 = 0x01;
    pub(super) const SKIP_METADATA: u8 = 0x02;
    pub(super) const PAGE_SIZE: u8 = 0x04;
    pub(super) const PAGING_STATE: u8 = 0x08;
    pub(super) const SERIAL_CONSISTENCY: u8 = 0x10;
    pub(super) const TIMESTAMP: u8 = 0x20;
}

impl<'a> Parameters<'a> {
    /// Parameters with only a consistency level.
    #[must_use]
    pub const fn new(consistency: Consistency) -> Self {
        Self {
            consistency,
            values: Values::NONE,
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp_us: None,
        }
    }

    /// Sets the values.
    #[must_use]
    pub const fn values(self, values: &'a [Value<'a>]) -> Self {
        Self { values: Values::List(values), ..self }
    }

    /// Writes the parameters in the form used by QUERY after the statement, and by EXECUTE after
    /// the id (in v5 after both ids).
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::ListTooLong`], [`CqlEncodeError::BodyTooLarge`], [`CqlEncodeError::VersionLacks`].
    ///
    /// Source: Native Protocol, "QUERY".
    #[inline(always)]
    pub fn write<S: Sink>(&self, body: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        let set = |bit: u8, there: bool| if there { bit } else { 0 };
        let flags = set(flag::VALUES, !self.values.is_empty())
            | set(flag::SKIP_METADATA, self.skip_metadata)
            | set(flag::PAGE_SIZE, self.page_size.is_some())
            | set(flag::PAGING_STATE, self.paging_state.is_some())
            | set(flag::SERIAL_CONSISTENCY, self.serial_consistency.is_some())
            | set(flag::TIMESTAMP, self.timestamp_us.is_some());
        let version = body.version();
        let [high, low] = self.consistency.number().to_be_bytes();
        match version {
            Version::V3 | Version::V4 => body.raw(&[high, low, flags])?,
            Version::V5 => body.raw(&[high, low, 0, 0, 0, flags])?,
        };
        if !self.values.is_empty() {
            self.values.write(body)?;
        }
        if let Some(page_size) = self.page_size {
            body.int(page_size)?;
        }
        if let Some(state) = self.paging_state {
            body.bytes(Some(state))?;
        }
        if let Some(consistency) = self.serial_consistency {
            body.short(consistency.number())?;
        }
        if let Some(timestamp_us) = self.timestamp_us {
            body.long(timestamp_us)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Parameters<'_> {
    /// Omits values, and the paging state, which contains values of the last row's key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consistency, values, skip_metadata, page_size, paging_state, serial_consistency, timestamp_us } =
            self;
        f.debug_struct("Parameters")
            .field("consistency", consistency)
            .field("values", values)
            .field("skip_metadata", skip_metadata)
            .field("page_size", page_size)
            .field("paging_state_bytes", &paging_state.map(<[u8]>::len))
            .field("serial_consistency", serial_consistency)
            .field("timestamp_us", timestamp_us)
            .finish()
    }
}

/// How the statements of a batch are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// All are executed, or none: the server stores them first.
    #[default]
    Logged,
    /// Some may be executed without the others, unless all are of one partition.
    Unlogged,
    /// All change counters, and some may be executed without the others.
    Counter,
}

impl BatchKind {
    const fn number(self) -> u8 {
        match self {
            Self::Logged => 0,
            Self::Unlogged => 1,
            Self::Counter => 2,
        }
    }
}

/// A statement of a batch: its text or its id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BatchStatement<'a> {
    /// A statement in CQL.
    Text(&'a str),
    /// The statement with this id.
    Prepared(&'a [u8]),
}

impl fmt::Debug for BatchStatement<'_> {
    /// Omits the text, which may contain any data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text(..)",
            Self::Prepared(_) => "Prepared(..)",
        })
    }
}

/// A statement of a batch, and the values of its bind variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// The statement.
    pub statement: BatchStatement<'a>,
    /// Its values.
    pub values: Values<'a>,
}

/// Parameters of the execution of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchParameters {
    /// How it is executed.
    pub kind: BatchKind,
    /// The consistency level.
    pub consistency: Consistency,
    /// Consistency level of the conditions: [`Consistency::Serial`], the default, or
    /// [`Consistency::LocalSerial`].
    pub serial_consistency: Option<Consistency>,
    /// Write timestamp in microseconds since 1970; if `None`, the server's time.
    pub timestamp_us: Option<i64>,
}

impl BatchParameters {
    /// Parameters with only a consistency level.
    #[must_use]
    pub const fn new(kind: BatchKind, consistency: Consistency) -> Self {
        Self { kind, consistency, serial_consistency: None, timestamp_us: None }
    }

    /// Writes the body of a batch with these statements.
    ///
    /// # Errors
    ///
    /// [`CqlEncodeError::Full`], [`CqlEncodeError::ListTooLong`], [`CqlEncodeError::StringTooLong`],
    /// [`CqlEncodeError::BodyTooLarge`], [`CqlEncodeError::VersionLacks`].
    ///
    /// Source: Native Protocol, "BATCH".
    pub fn write<'a, S: Sink>(
        &self,
        body: &mut BodyWriter<'_, S>,
        entries: impl ExactSizeIterator<Item = BatchEntry<'a>>,
    ) -> Result<(), CqlEncodeError> {
        body.byte(self.kind.number())?.count(entries.len())?;
        for BatchEntry { statement, values } in entries {
            match statement {
                BatchStatement::Text(text) => body.byte(0)?.long_string(text)?,
                BatchStatement::Prepared(id) => body.byte(1)?.short_bytes(id)?,
            };
            values.write(body)?;
        }
        let set = |bit: u8, there: bool| if there { bit } else { 0 };
        let flags = set(flag::SERIAL_CONSISTENCY, self.serial_consistency.is_some())
            | set(flag::TIMESTAMP, self.timestamp_us.is_some());
        body.short(self.consistency.number())?;
        match body.version() {
            Version::V3 | Version::V4 => body.byte(flags)?,
            Version::V5 => body.int(flags.into())?,
        };
        if let Some(consistency) = self.serial_consistency {
            body.short(consistency.number())?;
        }
        if let Some(timestamp_us) = self.timestamp_us {
            body.long(timestamp_us)?;
        }
        Ok(())
    }
}

/// A message of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Begins the use of the connection.
    Startup(Startup<'a>),
    /// Asks for the options that STARTUP supports. On an established connection it serves as a
    /// heartbeat.
    Options,
    /// A statement.
    Query {
        /// The statement in CQL.
        text: &'a str,
        /// The parameters of its execution.
        parameters: Parameters<'a>,
    },
    /// Prepares a statement in CQL for later execution.
    Prepare(&'a str),
    /// Executes a prepared statement.
    Execute {
        /// The id of the statement.
        id: &'a [u8],
        /// The id of the description of its result, from v5 on. With `None` or another id than the
        /// server's, the result contains the description and the new id.
        metadata_id: Option<&'a [u8]>,
        /// The parameters of its execution.
        parameters: Parameters<'a>,
    },
    /// A batch of statements.
    Batch {
        /// The parameters of its execution.
        parameters: BatchParameters,
        /// The statements.
        entries: &'a [BatchEntry<'a>],
    },
    /// Subscribes to events.
    Register(&'a [EventKind]),
    /// The client's token of an authentication; `None` is null.
    AuthResponse(Option<&'a [u8]>),
}

impl Request<'_> {
    /// The opcode of the request.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Startup(_) => Opcode::Startup,
            Self::Options => Opcode::Options,
            Self::Query { .. } => Opcode::Query,
            Self::Prepare(_) => Opcode::Prepare,
            Self::Execute { .. } => Opcode::Execute,
            Self::Batch { .. } => Opcode::Batch,
            Self::Register(_) => Opcode::Register,
            Self::AuthResponse(_) => Opcode::AuthResponse,
        }
    }

    /// Writes the request as an envelope at the end of `sink`, and returns its length in bytes; see
    /// [`encode_envelope`].
    ///
    /// # Errors
    ///
    /// Those of [`encode_envelope`], [`Parameters::write`] and [`BodyWriter::string`].
    pub fn encode<S: Sink>(&self, sink: &mut S, outgoing: Outgoing, limits: &Limits) -> Result<usize, CqlEncodeError> {
        encode_envelope(sink, outgoing, self.opcode(), limits, |body| self.write(body))
    }

    /// Writes the body of the request, in a closure of [`encode_envelope`]. A custom payload, if the
    /// flags of the envelope say that there is one, is written before it.
    ///
    /// # Errors
    ///
    /// Those of [`Parameters::write`] and [`BodyWriter::string`].
    #[inline(always)]
    pub fn write<S: Sink>(&self, body: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        let parameters = match self {
            Self::Query { text, parameters } => {
                body.long_string(text)?;
                parameters
            }
            Self::Execute { id, metadata_id, parameters } => {
                body.short_bytes(id)?;
                if body.version() == Version::V5 {
                    body.short_bytes(metadata_id.unwrap_or_default())?;
                }
                parameters
            }
            Self::Startup(startup) => return startup.write(body),
            Self::Options | Self::Prepare(_) | Self::Batch { .. } | Self::Register(_) | Self::AuthResponse(_) => {
                return self.write_other(body);
            }
        };
        parameters.write(body)
    }

    /// Writes the body of a request other than QUERY, EXECUTE and STARTUP. Separate, because the code of the others is
    /// faster without it.
    #[inline(never)]
    fn write_other<S: Sink>(&self, body: &mut BodyWriter<'_, S>) -> Result<(), CqlEncodeError> {
        match self {
            Self::Prepare(text) => {
                body.long_string(text)?;
                match body.version() {
                    Version::V3 | Version::V4 => Ok(()),
                    // The flags: none.
                    Version::V5 => body.int(0).map(drop),
                }
            }
            Self::Batch { parameters, entries } => parameters.write(body, entries.iter().copied()),
            Self::Register(events) => body.strings(events.iter().map(|event| event.name())).map(drop),
            Self::AuthResponse(token) => body.bytes(*token).map(drop),
            Self::Startup(_) | Self::Options | Self::Query { .. } | Self::Execute { .. } => Ok(()),
        }
    }
}

impl fmt::Debug for Request<'_> {
    /// Omits statements, values and tokens, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Startup(startup) => f.debug_tuple("Startup").field(startup).finish(),
            Self::Query { parameters, .. } => {
                f.debug_struct("Query").field("parameters", parameters).finish_non_exhaustive()
            }
            Self::Register(events) => f.debug_tuple("Register").field(events).finish(),
            Self::Execute { parameters, .. } => {
                f.debug_struct("Execute").field("parameters", parameters).finish_non_exhaustive()
            }
            Self::Batch { parameters, entries } => {
                f.debug_struct("Batch").field("parameters", parameters).field("statements", &entries.len()).finish()
            }
            Self::Options | Self::Prepare(_) | Self::AuthResponse(_) => {
                write!(f, "{}(..)", self.opcode())
            }
        }
    }
}
