//! Errors of Cassandra's protocol: the violated rule and its position.

#[cfg(test)]
mod tests;

use core::fmt;

use super::compress::Compression;
use super::header::{Opcode, Version};
use poolhouse_wire::Cause;
use poolhouse_wire::Full;

/// A violation of the protocol in received bytes: the rule and the offset.
///
/// `Copy`, and without text of the peer. The offset counts from the first byte of the envelope, or
/// of the segment for errors of a segment. In a compressed envelope it counts from the first byte
/// of the uncompressed form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CqlError {
    kind: CqlErrorKind,
    offset: u32,
}

/// The rule that the received bytes violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CqlErrorKind {
    /// A protocol version that is not supported.
    VersionUnknown {
        /// The version number, without the direction bit.
        number: u8,
    },
    /// The version differs from that of the connection.
    VersionOther {
        /// The connection's version.
        expected: Version,
        /// The version found.
        found: Version,
    },
    /// A request instead of a response, or a response instead of a request.
    Direction,
    /// The opcode is unknown.
    OpcodeUnknown {
        /// The opcode found.
        opcode: u8,
    },
    /// The opcode belongs to the other direction.
    OpcodeMisplaced {
        /// The opcode.
        opcode: Opcode,
    },
    /// The message is not allowed in the current state.
    Unexpected {
        /// The opcode.
        opcode: Opcode,
    },
    /// Bytes arrived while no response was outstanding.
    Unsolicited {
        /// Number of bytes.
        count_bytes: u32,
    },
    /// A stream id that the message cannot have: a negative one, or for an event any except -1.
    Stream {
        /// The id found.
        stream: i16,
    },
    /// The stream id of a response differs from that of the request.
    StreamOther {
        /// The request's stream id.
        expected: i16,
        /// The stream id found.
        found: i16,
    },
    /// The claimed body length is negative.
    LengthNegative {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The claimed body length exceeds the limit.
    TooLong {
        /// The length claimed.
        length_bytes: i32,
        /// The limit.
        max_bytes: u32,
    },
    /// A compressed body, but no compression was negotiated.
    CompressionNotAgreed,
    /// Compressed data whose declared size exceeds the limit, or the maximum to which the
    /// compressed bytes can inflate.
    InflatedSize {
        /// The declared size.
        size_bytes: u32,
        /// The maximum possible size.
        max_bytes: u32,
    },
    /// Compressed data are malformed, end too early, or inflate to another size than declared.
    CompressedData {
        /// The compression.
        compression: Compression,
    },
    /// The CRC-24 of a segment's header does not match.
    SegmentHeaderChecksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found in the header.
        found: u32,
    },
    /// The CRC-32 of a segment's payload does not match.
    SegmentChecksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found after the payload.
        found: u32,
    },
    /// A segment has no payload.
    SegmentEmpty,
    /// An envelope extends beyond the end of its segment, although the segment is marked
    /// self-contained.
    SegmentTooShort {
        /// Minimum number of missing bytes.
        missing_bytes: u32,
    },
    /// Extra bytes after an envelope that was split into several segments.
    SegmentTooLong {
        /// Number of extra bytes.
        count_bytes: u32,
    },
    /// A self-contained segment arrived before an envelope that is split into segments was
    /// complete.
    SegmentInterrupts,
    /// The input ends in the middle of a value.
    Truncated {
        /// Bytes needed, counted from the offset.
        needed_bytes: u32,
        /// Bytes available.
        found_bytes: u32,
    },
    /// A text is not UTF-8.
    Utf8,
    /// A field has a value that is not allowed.
    FieldValue {
        /// The field.
        name: &'static str,
        /// The value found.
        value: i64,
    },
    /// This side's buffers for received bytes are full; the peer has not violated the protocol.
    NoMemory {
        /// Total bytes needed.
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

    /// The offset in bytes from the start of the envelope, or of the segment.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }
}

impl fmt::Display for CqlErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::VersionUnknown { number } => write!(f, "protocol version {number} is not supported"),
            Self::VersionOther { expected, found } => {
                write!(f, "protocol version {found} on a connection of version {expected}")
            }
            Self::Direction => f.write_str("the direction bit is wrong: it marks a message of this side"),
            Self::OpcodeUnknown { opcode } => write!(f, "unknown opcode {opcode:#04x}"),
            Self::OpcodeMisplaced { opcode } => write!(f, "{opcode} in the wrong direction"),
            Self::Unexpected { opcode } => write!(f, "{opcode} is not allowed in this state"),
            Self::Unsolicited { count_bytes } => {
                write!(f, "{count_bytes} bytes arrived while no response was outstanding")
            }
            Self::Stream { stream } => write!(f, "stream id {stream} is not allowed for this message"),
            Self::StreamOther { expected, found } => {
                write!(f, "the response has stream id {found}, expected {expected}")
            }
            Self::LengthNegative { length_bytes } => write!(f, "body length {length_bytes} is negative"),
            Self::TooLong { length_bytes, max_bytes } => {
                write!(f, "body length {length_bytes} exceeds the limit of {max_bytes}")
            }
            Self::CompressionNotAgreed => f.write_str("a body is compressed, but no compression was negotiated"),
            Self::InflatedSize { size_bytes, max_bytes } => {
                write!(f, "the declared inflated size {size_bytes} exceeds the possible {max_bytes}")
            }
            Self::CompressedData { compression } => write!(f, "malformed {compression} data"),
            Self::SegmentHeaderChecksum { computed, found } => {
                write!(f, "checksum of the segment's header is {found:#08x}, but {computed:#08x} was computed")
            }
            Self::SegmentChecksum { computed, found } => {
                write!(f, "checksum of the segment is {found:#010x}, but {computed:#010x} was computed")
            }
            Self::SegmentEmpty => f.write_str("a segment without payload"),
            Self::SegmentTooShort { missing_bytes } => {
                write!(f, "an envelope ends at least {missing_bytes} bytes beyond its segment")
            }
            Self::SegmentTooLong { count_bytes } => {
                write!(f, "{count_bytes} extra bytes follow an envelope that was split into segments")
            }
            Self::SegmentInterrupts => {
                f.write_str("a self-contained segment arrived before a split envelope was complete")
            }
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

poolhouse_wire::debug_as_display!(CqlError);

impl core::error::Error for CqlError {}

impl From<CqlError> for Cause {
    fn from(error: CqlError) -> Self {
        if matches!(error.kind, CqlErrorKind::NoMemory { .. }) { Self::Resources } else { Self::Protocol }
    }
}

/// A value cannot be encoded. The sink is unchanged by the failed call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
    /// A string or an id is longer than 65,535 bytes, the maximum of its length field.
    StringTooLong {
        /// Its length.
        length_bytes: u32,
    },
    /// A list is longer than 65,535 entries, the maximum of its length field.
    ListTooLong {
        /// Its length.
        count: u32,
    },
    /// The message cannot have this stream id.
    Stream {
        /// The id.
        stream: i16,
    },
    /// The version of the protocol does not support a feature.
    VersionLacks {
        /// The version.
        version: Version,
        /// The unsupported feature.
        what: &'static str,
    },
    /// The bytes to send are not a sequence of complete envelopes.
    NotEnvelopes,
}

impl fmt::Display for CqlEncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => f.write_str("the buffer has no room for the message"),
            Self::BodyTooLarge { length_bytes, max_bytes } => {
                write!(f, "body of {length_bytes} bytes exceeds the limit of {max_bytes}")
            }
            Self::StringTooLong { length_bytes } => write!(f, "string of {length_bytes} bytes is too long"),
            Self::ListTooLong { count } => write!(f, "list of {count} entries is too long"),
            Self::Stream { stream } => write!(f, "stream id {stream} is not allowed for this message"),
            Self::VersionLacks { version, what } => write!(f, "protocol version {version} has no {what}"),
            Self::NotEnvelopes => f.write_str("the bytes are not a sequence of complete envelopes"),
        }
    }
}

poolhouse_wire::debug_as_display!(CqlEncodeError);

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
