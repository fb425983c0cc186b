//! What is wrong with bytes of Cassandra's protocol, and where.

#[cfg(test)]
mod tests;

use core::fmt;

use super::compress::Compression;
use super::header::{Opcode, Version};
use poolhouse_wire::Cause;
use poolhouse_wire::Full;

/// Received bytes break a rule: which one, and at which offset.
///
/// `Copy`, and without a byte of the peer's text. The offset counts from the first byte of the envelope, or, for what is wrong with a
/// segment, of that; in an envelope that came compressed from its first byte as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CqlError {
    kind: CqlErrorKind,
    offset: u32,
}

/// The rule that received bytes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CqlErrorKind {
    /// A version of the protocol that is not spoken here.
    VersionUnknown {
        /// The number found, without the bit of the direction.
        number: u8,
    },
    /// Another version than that of the connection.
    VersionOther {
        /// The connection's.
        expected: Version,
        /// The one found.
        found: Version,
    },
    /// A request where a response was due, or the other way round.
    Direction,
    /// An opcode that does not exist.
    OpcodeUnknown {
        /// The opcode found.
        opcode: u8,
    },
    /// A message that only the other side may send.
    OpcodeMisplaced {
        /// What it is.
        opcode: Opcode,
    },
    /// A message that has no business where it came.
    Unexpected {
        /// What it is.
        opcode: Opcode,
    },
    /// Bytes that nobody asked for.
    Unsolicited {
        /// How many are there.
        count_bytes: u32,
    },
    /// A stream id that such a message cannot have: a negative one, or for an event any but -1.
    Stream {
        /// The id found.
        stream: i16,
    },
    /// A response by another stream id than that of the request.
    StreamOther {
        /// The request's.
        expected: i16,
        /// The one found.
        found: i16,
    },
    /// The body claims to be shorter than nothing.
    LengthNegative {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The body claims to be longer than the limit.
    TooLong {
        /// The length claimed.
        length_bytes: i32,
        /// The limit.
        max_bytes: u32,
    },
    /// A compressed body, where no compression was agreed on.
    CompressionNotAgreed,
    /// Compressed data that declare a size that exceeds the limit, or that so few bytes cannot inflate to.
    InflatedSize {
        /// The size declared.
        size_bytes: u32,
        /// The largest that it could be.
        max_bytes: u32,
    },
    /// Compressed data that break the rules of their compression, end too early, or inflate to another size than they declare.
    CompressedData {
        /// The compression.
        compression: Compression,
    },
    /// The CRC-24 of a segment's header is another one.
    SegmentHeaderChecksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found.
        found: u32,
    },
    /// The CRC-32 of a segment's payload is another one.
    SegmentChecksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found behind them.
        found: u32,
    },
    /// A segment with nothing in it.
    SegmentEmpty,
    /// An envelope goes on beyond the end of the segment, which says that it is self-contained.
    SegmentTooShort {
        /// Bytes that are missing at least.
        missing_bytes: u32,
    },
    /// Bytes behind the end of an envelope that has its segments for itself.
    SegmentTooLong {
        /// How many are there.
        count_bytes: u32,
    },
    /// A self-contained segment while an envelope that came in parts is not complete.
    SegmentInterrupts,
    /// Something ends before all of it is there.
    Truncated {
        /// Bytes needed from the offset on.
        needed_bytes: u32,
        /// Bytes there.
        found_bytes: u32,
    },
    /// Text that is not UTF-8.
    Utf8,
    /// A field of a value that it cannot have.
    FieldValue {
        /// The field.
        name: &'static str,
        /// The value found.
        value: i64,
    },
    /// The peer has broken no rule, but this side's memory for received bytes is at its end.
    NoMemory {
        /// Bytes needed in all.
        needed_bytes: u32,
    },
}

impl CqlError {
    pub(super) const fn new(kind: CqlErrorKind, offset: u32) -> Self {
        Self { kind, offset }
    }

    /// The rule that was broken.
    #[must_use]
    pub const fn kind(self) -> CqlErrorKind {
        self.kind
    }

    /// Where: bytes from the start of the envelope, or of the segment.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }
}

impl fmt::Display for CqlErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::VersionUnknown { number } => write!(f, "protocol version {number} is not spoken here"),
            Self::VersionOther { expected, found } => {
                write!(f, "protocol version {found} on a connection of version {expected}")
            }
            Self::Direction => f.write_str("the direction bit is that of this side"),
            Self::OpcodeUnknown { opcode } => write!(f, "unknown opcode {opcode:#04x}"),
            Self::OpcodeMisplaced { opcode } => write!(f, "{opcode} in the wrong direction"),
            Self::Unexpected { opcode } => write!(f, "{opcode} where something else was due"),
            Self::Unsolicited { count_bytes } => write!(f, "{count_bytes} bytes that nobody asked for"),
            Self::Stream { stream } => write!(f, "stream id {stream} is not possible here"),
            Self::StreamOther { expected, found } => {
                write!(f, "response by stream id {found}, where one by {expected} was due")
            }
            Self::LengthNegative { length_bytes } => write!(f, "body length {length_bytes} is negative"),
            Self::TooLong { length_bytes, max_bytes } => {
                write!(f, "body length {length_bytes} exceeds the limit of {max_bytes}")
            }
            Self::CompressionNotAgreed => f.write_str("a compressed body, where no compression was agreed on"),
            Self::InflatedSize { size_bytes, max_bytes } => {
                write!(f, "an inflated size of {size_bytes}, where at most {max_bytes} is possible")
            }
            Self::CompressedData { compression } => write!(f, "malformed {compression} data"),
            Self::SegmentHeaderChecksum { computed, found } => {
                write!(f, "checksum of the segment's header is {found:#08x}, but the bytes give {computed:#08x}")
            }
            Self::SegmentChecksum { computed, found } => {
                write!(f, "checksum of the segment is {found:#010x}, but the bytes give {computed:#010x}")
            }
            Self::SegmentEmpty => f.write_str("a segment without payload"),
            Self::SegmentTooShort { missing_bytes } => {
                write!(f, "an envelope ends at least {missing_bytes} bytes beyond its segment")
            }
            Self::SegmentTooLong { count_bytes } => {
                write!(f, "{count_bytes} bytes behind an envelope that has its segments for itself")
            }
            Self::SegmentInterrupts => f.write_str("a self-contained segment in the midst of an envelope"),
            Self::Truncated { needed_bytes, found_bytes } => {
                write!(f, "{needed_bytes} bytes needed, {found_bytes} there")
            }
            Self::Utf8 => f.write_str("invalid UTF-8"),
            Self::FieldValue { name, value } => write!(f, "field `{name}` cannot be {value}"),
            Self::NoMemory { needed_bytes } => write!(f, "no memory for {needed_bytes} received bytes"),
        }
    }
}

impl fmt::Display for CqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl core::error::Error for CqlError {}

impl From<CqlError> for Cause {
    fn from(error: CqlError) -> Self {
        if matches!(error.kind, CqlErrorKind::NoMemory { .. }) { Self::Resources } else { Self::Protocol }
    }
}

/// Something cannot be written. The sink is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CqlEncodeError {
    /// The sink has no room left, or its allocator refused.
    Full,
    /// The body would exceed the limit.
    BodyTooLarge {
        /// Its length.
        length_bytes: u32,
        /// The limit.
        max_bytes: u32,
    },
    /// A string or an id is longer than the 65,535 bytes that can be said.
    StringTooLong {
        /// Its length.
        length_bytes: u32,
    },
    /// A list is longer than the 65,535 entries that can be said.
    ListTooLong {
        /// Its length.
        count: u32,
    },
    /// A stream id that such a message cannot have.
    Stream {
        /// The id.
        stream: i16,
    },
    /// The version of the protocol does not have it.
    VersionLacks {
        /// The version.
        version: Version,
        /// What it does not have.
        what: &'static str,
    },
    /// What is to be put on the wire is not a sequence of envelopes.
    NotEnvelopes,
}

impl fmt::Display for CqlEncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => f.write_str("no room left to write"),
            Self::BodyTooLarge { length_bytes, max_bytes } => {
                write!(f, "body of {length_bytes} bytes exceeds the limit of {max_bytes}")
            }
            Self::StringTooLong { length_bytes } => write!(f, "string of {length_bytes} bytes is too long"),
            Self::ListTooLong { count } => write!(f, "list of {count} entries is too long"),
            Self::Stream { stream } => write!(f, "stream id {stream} is not possible here"),
            Self::VersionLacks { version, what } => write!(f, "protocol version {version} has no {what}"),
            Self::NotEnvelopes => f.write_str("bytes that are no envelopes"),
        }
    }
}

impl core::error::Error for CqlEncodeError {}

impl From<Full> for CqlEncodeError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<CqlEncodeError> for Cause {
    fn from(_: CqlEncodeError) -> Self {
        Self::Resources
    }
}

const _: () = assert!(size_of::<CqlError>() <= 40);
