//! The header of an envelope.
//!
//! Read first: Native Protocol v5, "Frame Payload" with "version", "flags", "stream", "opcode",
//! "length"; v3 and v4, "Frame header".

#[cfg(test)]
mod tests;

use core::fmt;

use super::Limits;
use super::error::{CqlError, CqlErrorKind};
use poolhouse_wire::message::Decoded;

/// Length of an envelope's header in bytes.
pub const HEADER_BYTES: usize = 9;

/// The stream id of events, which servers send without a request.
pub const EVENT_STREAM: i16 = -1;

const STREAM_AT: u32 = 2;
pub(super) const OPCODE_AT: u32 = 4;
pub(super) const LENGTH_AT: u32 = 5;

/// The bit of the version byte that marks a response.
const RESPONSE: u8 = 0x80;

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Cassandra 2.1 and later.
    V3,
    /// Cassandra 2.2 and later, and ScyllaDB.
    V4,
    /// Cassandra 4.0 and later: envelopes are sent in segments with checksums.
    V5,
}

impl Version {
    /// All versions, the newest first.
    pub const ALL: [Self; 3] = [Self::V5, Self::V4, Self::V3];
    /// The newest version.
    pub const NEWEST: Self = Self::V5;
    /// Number of stream ids of a connection, in every version: 0 to 32,767.
    pub const STREAMS: u32 = 32_768;

    /// The version number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V3 => 3,
            Self::V4 => 4,
            Self::V5 => 5,
        }
    }

    /// The version with this number, if it is supported.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }

    /// The next older version.
    #[must_use]
    pub const fn older(self) -> Option<Self> {
        match self {
            Self::V3 => None,
            Self::V4 => Some(Self::V3),
            Self::V5 => Some(Self::V4),
        }
    }

    /// Whether envelopes are sent in segments after STARTUP is answered.
    #[must_use]
    pub const fn has_segments(self) -> bool {
        matches!(self, Self::V5)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client.
    Request,
    /// From the server.
    Response,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A request failed.
    Error = 0x00,
    /// Begins the use of the connection.
    Startup = 0x01,
    /// The connection is ready, or a subscription to events was accepted.
    Ready = 0x02,
    /// The server requires authentication.
    Authenticate = 0x03,
    /// Asks for the options that STARTUP supports.
    Options = 0x05,
    /// The options that STARTUP supports.
    Supported = 0x06,
    /// A statement.
    Query = 0x07,
    /// The result of a statement.
    Result = 0x08,
    /// Prepares a statement for later execution.
    Prepare = 0x09,
    /// Executes a prepared statement.
    Execute = 0x0a,
    /// Subscribes to events.
    Register = 0x0b,
    /// A cluster event.
    Event = 0x0c,
    /// A batch of statements.
    Batch = 0x0d,
    /// The server's token of an authentication.
    AuthChallenge = 0x0e,
    /// The client's token of an authentication.
    AuthResponse = 0x0f,
    /// The end of an authentication.
    AuthSuccess = 0x10,
}

impl Opcode {
    /// All opcodes.
    pub const ALL: [Self; 16] = [
        Self::Error,
        Self::Startup,
        Self::Ready,
        Self::Authenticate,
        Self::Options,
        Self::Supported,
        Self::Query,
        Self::Result,
        Self::Prepare,
        Self::Execute,
        Self::Register,
        Self::Event,
        Self::Batch,
        Self::AuthChallenge,
        Self::AuthResponse,
        Self::AuthSuccess,
    ];

    /// The number of the opcode.
    ///
    /// Source: Native Protocol, "opcode".
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The opcode with this number.
    #[inline]
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x00 => Self::Error,
            0x01 => Self::Startup,
            0x02 => Self::Ready,
            0x03 => Self::Authenticate,
            0x05 => Self::Options,
            0x06 => Self::Supported,
            0x07 => Self::Query,
            0x08 => Self::Result,
            0x09 => Self::Prepare,
            0x0a => Self::Execute,
            0x0b => Self::Register,
            0x0c => Self::Event,
            0x0d => Self::Batch,
            0x0e => Self::AuthChallenge,
            0x0f => Self::AuthResponse,
            0x10 => Self::AuthSuccess,
            _ => return None,
        })
    }

    /// The name of the opcode.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Startup => "STARTUP",
            Self::Ready => "READY",
            Self::Authenticate => "AUTHENTICATE",
            Self::Options => "OPTIONS",
            Self::Supported => "SUPPORTED",
            Self::Query => "QUERY",
            Self::Result => "RESULT",
            Self::Prepare => "PREPARE",
            Self::Execute => "EXECUTE",
            Self::Register => "REGISTER",
            Self::Event => "EVENT",
            Self::Batch => "BATCH",
            Self::AuthChallenge => "AUTH_CHALLENGE",
            Self::AuthResponse => "AUTH_RESPONSE",
            Self::AuthSuccess => "AUTH_SUCCESS",
        }
    }

    /// The direction in which the message is sent.
    #[inline]
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Error
            | Self::Ready
            | Self::Authenticate
            | Self::Supported
            | Self::Result
            | Self::Event
            | Self::AuthChallenge
            | Self::AuthSuccess => Direction::Response,
            Self::Startup
            | Self::Options
            | Self::Query
            | Self::Prepare
            | Self::Execute
            | Self::Register
            | Self::Batch
            | Self::AuthResponse => Direction::Request,
        }
    }

    /// Whether a message of this kind can have this stream id.
    #[inline]
    pub(super) const fn can_have(self, stream: i16) -> bool {
        match self {
            Self::Event => stream == EVENT_STREAM,
            Self::Error
            | Self::Startup
            | Self::Ready
            | Self::Authenticate
            | Self::Options
            | Self::Supported
            | Self::Query
            | Self::Result
            | Self::Prepare
            | Self::Execute
            | Self::Register
            | Self::Batch
            | Self::AuthChallenge
            | Self::AuthResponse
            | Self::AuthSuccess => stream >= 0,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The flag bits of an envelope. Unknown flags are kept and have no effect.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The body is compressed. No meaning in v5, which compresses segments instead.
    pub const COMPRESSION: Self = Self(1);
    /// In a request: trace it. In a response: the body begins with the trace id.
    pub const TRACING: Self = Self(1 << 1);
    /// The body contains a custom payload. From v4 on.
    pub const CUSTOM_PAYLOAD: Self = Self(1 << 2);
    /// The body of a response contains warnings. From v4 on.
    pub const WARNING: Self = Self(1 << 3);
    /// The client accepts a version that is still in beta.
    pub const USE_BETA: Self = Self(1 << 4);

    /// The flags with these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// All bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#04x})", self.0)
    }
}

/// The header of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The protocol version, the same for all envelopes of a connection.
    pub version: Version,
    /// The direction.
    pub direction: Direction,
    /// The flags: parts that precede the message in the body, and compression.
    pub flags: Flags,
    /// Matches a response to its request: from 0 on. [`EVENT_STREAM`] for events.
    pub stream: i16,
    /// The kind of message.
    pub opcode: Opcode,
    /// Length of the body that follows, in bytes.
    pub length_bytes: u32,
}

impl Header {
    /// The header as its bytes.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let direction = match self.direction {
            Direction::Request => 0,
            Direction::Response => RESPONSE,
        };
        let [a, b] = self.stream.to_be_bytes();
        let [c, d, e, f] = self.length_bytes.to_be_bytes();
        [self.version.number() | direction, self.flags.bits(), a, b, self.opcode.number(), c, d, e, f]
    }
}

/// The restrictions on received envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// The connection's version; `None` for any until one is negotiated.
    pub(super) version: Option<Version>,
    pub(super) direction: Direction,
}

/// Decodes the header at the front of `input`. O(1).
///
/// Each field is checked as soon as its bytes have arrived, so an invalid one is rejected without
/// waiting for further bytes.
///
/// - `version`: the connection's; `None` for any supported one.
/// - `direction`: the direction of the received messages.
///
/// # Errors
///
/// [`CqlErrorKind::VersionUnknown`], [`CqlErrorKind::VersionOther`], [`CqlErrorKind::Direction`], [`CqlErrorKind::OpcodeUnknown`],
/// [`CqlErrorKind::OpcodeMisplaced`], [`CqlErrorKind::Stream`], [`CqlErrorKind::LengthNegative`], [`CqlErrorKind::TooLong`].
///
/// Source: Native Protocol, "Frame header".
pub fn decode_header<'a>(
    input: &'a [u8],
    version: Option<Version>,
    direction: Direction,
    limits: &Limits,
) -> Result<Decoded<'a, Header>, CqlError> {
    let expected = Expected { version, direction };
    let Some((bytes, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        check_front(input, expected)?;
        return Ok(Decoded::NeedMore { bytes_min: HEADER_BYTES - input.len() });
    };
    Ok(Decoded::Done { value: check_header(bytes, expected, limits)?, rest })
}

/// Checks a complete header.
#[inline]
pub(super) fn check_header(
    bytes: &[u8; HEADER_BYTES],
    expected: Expected,
    limits: &Limits,
) -> Result<Header, CqlError> {
    let [first, flags, s, t, opcode, l @ ..] = *bytes;
    let version = check_version(first, expected)?;
    let stream = i16::from_be_bytes([s, t]);
    let opcode = check_opcode(opcode, stream, expected)?;
    let length_bytes = i32::from_be_bytes(l);
    let Ok(length) = u32::try_from(length_bytes) else {
        return Err(CqlError::new(CqlErrorKind::LengthNegative { length_bytes }, LENGTH_AT));
    };
    let max_bytes = limits.body_bytes_max;
    if length > max_bytes {
        return Err(CqlError::new(CqlErrorKind::TooLong { length_bytes, max_bytes }, LENGTH_AT));
    }
    let (direction, flags) = (expected.direction, Flags::from_bits(flags));
    Ok(Header { version, direction, flags, stream, opcode, length_bytes: length })
}

/// Checks the fields that have arrived of an incomplete header.
pub(super) fn check_front(bytes: &[u8], expected: Expected) -> Result<(), CqlError> {
    if let [first, ..] = *bytes {
        check_version(first, expected)?;
    }
    if let [_, _, s, t, opcode, ..] = *bytes {
        check_opcode(opcode, i16::from_be_bytes([s, t]), expected)?;
    }
    Ok(())
}

#[inline]
fn check_version(byte: u8, expected: Expected) -> Result<Version, CqlError> {
    let number = byte & !RESPONSE;
    let Some(found) = Version::from_number(number) else {
        return Err(CqlError::new(CqlErrorKind::VersionUnknown { number }, 0));
    };
    let direction = if byte & RESPONSE == 0 { Direction::Request } else { Direction::Response };
    if direction != expected.direction {
        return Err(CqlError::new(CqlErrorKind::Direction, 0));
    }
    match expected.version {
        Some(expected) if expected != found => Err(CqlError::new(CqlErrorKind::VersionOther { expected, found }, 0)),
        Some(_) | None => Ok(found),
    }
}

#[inline]
fn check_opcode(number: u8, stream: i16, expected: Expected) -> Result<Opcode, CqlError> {
    let Some(opcode) = Opcode::from_number(number) else {
        return Err(CqlError::new(CqlErrorKind::OpcodeUnknown { opcode: number }, OPCODE_AT));
    };
    if opcode.direction() != expected.direction {
        return Err(CqlError::new(CqlErrorKind::OpcodeMisplaced { opcode }, OPCODE_AT));
    }
    if !opcode.can_have(stream) {
        return Err(CqlError::new(CqlErrorKind::Stream { stream }, STREAM_AT));
    }
    Ok(opcode)
}
