//! What is wrong with bytes, and where.

#[cfg(test)]
mod tests;

use core::fmt;

use super::bson::ElementType;
use super::compress::Compressor;
use crate::Full;
use crate::cause::Cause;

/// Received bytes break a rule: which one, and at which offset.
///
/// `Copy`, and without a byte of the peer's text. The offset counts from the first byte of the outermost
/// thing that was decoded: of the message for [`decode_message`](super::message::decode_message), of the
/// document for a document that was opened by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WireError {
    kind: WireErrorKind,
    offset: u32,
}

/// The rule that received bytes break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireErrorKind {
    /// The message claims to be shorter than its header and flags.
    MessageTooShort {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The message claims to be longer than the limit.
    MessageTooLong {
        /// The length claimed.
        length_bytes: i32,
        /// The limit.
        max_bytes: u32,
    },
    /// An opcode other than OP_MSG.
    Opcode {
        /// The opcode found.
        opcode: i32,
    },
    /// A compressed message, where no compressor was agreed on.
    Compressed,
    /// A compressed message inside a compressed message.
    CompressedTwice,
    /// A compressed message with something else than OP_MSG inside.
    CompressedOpcode {
        /// The opcode inside.
        opcode: i32,
    },
    /// A compressor that does not exist.
    CompressorUnknown {
        /// The number found.
        id: u8,
    },
    /// A compressor that was not agreed on.
    CompressorNotNegotiated {
        /// The one found.
        compressor: Compressor,
    },
    /// A compressed message that declares a size that a message cannot have, that exceeds the limit, or that its
    /// compressed bytes cannot inflate to.
    UncompressedSize {
        /// The size declared, without the header.
        size_bytes: i32,
        /// The largest that it could be.
        max_bytes: u32,
    },
    /// A compressed message of another size than it declares.
    InflatedSize {
        /// The size declared, without the header.
        declared_bytes: u32,
        /// The size found.
        found_bytes: u32,
    },
    /// A compressed message that is larger than it declares; how much larger nobody looked.
    InflatedTooLong {
        /// The size declared, without the header.
        declared_bytes: u32,
    },
    /// Compressed data that break the rules of their compressor, or end too early.
    CompressedData {
        /// The compressor.
        compressor: Compressor,
    },
    /// Bytes behind the end of the compressed data.
    CompressedRest {
        /// How many are there.
        count_bytes: u32,
    },
    /// A flag that must be understood and is not, or that has no business in this direction.
    Flags {
        /// The flags found.
        flags: u32,
    },
    /// The CRC-32C of the message is another one.
    Checksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found at the end of the message.
        found: u32,
    },
    /// A reply to something else than what was asked.
    ResponseTo {
        /// The request (or, in an exhaust stream, the previous reply) that was to be answered.
        expected: i32,
        /// The one that the reply names.
        found: i32,
    },
    /// The peer announces further replies that nobody allowed.
    MoreToCome,
    /// Bytes that nobody asked for.
    Unsolicited {
        /// How many are there.
        count_bytes: u32,
    },
    /// A section of an unknown kind.
    SectionKind {
        /// The kind found.
        kind: u8,
    },
    /// A document sequence whose size contradicts the message.
    SectionLength {
        /// The size claimed.
        length_bytes: i32,
    },
    /// No section of kind 0.
    BodyMissing,
    /// A second section of kind 0.
    BodyTwice,
    /// Two document sequences of the same name.
    SequenceTwice,
    /// More document sequences than [`SEQUENCES_MAX`](super::message::SEQUENCES_MAX).
    SequencesTooMany,
    /// Something ends before all of it is there.
    Truncated {
        /// Bytes needed from the offset on.
        needed_bytes: u32,
        /// Bytes there.
        found_bytes: u32,
    },
    /// A document whose length is less than 5, or not that of the bytes it is in.
    DocumentLength {
        /// The length claimed.
        length_bytes: i32,
        /// The bytes there.
        found_bytes: u32,
    },
    /// No zero byte where a document, a key or a string ends, or one before its end.
    Terminator,
    /// A string whose length is less than 1, or more than there is.
    StringLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// A binary value whose length is negative, or more than there is, or at odds with its inner length.
    BinaryLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// A code-with-scope value whose length is not that of its parts.
    ScopeLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// An element type that BSON does not have.
    ElementTag {
        /// The type byte.
        tag: u8,
    },
    /// A boolean that is neither 0 nor 1.
    Boolean {
        /// The byte found.
        value: u8,
    },
    /// Text that is not UTF-8.
    Utf8,
    /// Documents nested deeper than [`DEPTH_MAX`](super::bson::DEPTH_MAX).
    TooDeep,
    /// A reply without a field that it must have.
    FieldMissing {
        /// The field.
        name: &'static str,
    },
    /// A field of a type that it cannot have.
    FieldType {
        /// The field.
        name: &'static str,
        /// The type found.
        found: ElementType,
    },
    /// A field of a value that it cannot have.
    FieldValue {
        /// The field.
        name: &'static str,
        /// The value found.
        value: i64,
    },
}

impl WireError {
    #[doc(hidden)]
    pub const fn new(kind: WireErrorKind, offset: u32) -> Self {
        Self { kind, offset }
    }

    /// The rule that was broken.
    #[must_use]
    pub const fn kind(self) -> WireErrorKind {
        self.kind
    }

    /// Where: bytes from the start of what was decoded.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }
}

impl fmt::Display for WireErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MessageTooShort { length_bytes } => write!(f, "message length {length_bytes} is too small"),
            Self::MessageTooLong { length_bytes, max_bytes } => {
                write!(f, "message length {length_bytes} exceeds the limit of {max_bytes}")
            }
            Self::Opcode { opcode } => write!(f, "unknown opcode {opcode}"),
            Self::Compressed => f.write_str("a compressed message, where no compressor was agreed on"),
            Self::CompressedTwice => f.write_str("a compressed message inside a compressed one"),
            Self::CompressedOpcode { opcode } => write!(f, "opcode {opcode} inside a compressed message"),
            Self::CompressorUnknown { id } => write!(f, "unknown compressor {id}"),
            Self::CompressorNotNegotiated { compressor } => {
                write!(f, "compressor {compressor}, which was not agreed on")
            }
            Self::UncompressedSize { size_bytes, max_bytes } => {
                write!(f, "uncompressed size {size_bytes} is less than a message takes, or more than {max_bytes}")
            }
            Self::InflatedSize { declared_bytes, found_bytes } => {
                write!(f, "{found_bytes} bytes inflated, {declared_bytes} declared")
            }
            Self::InflatedTooLong { declared_bytes } => {
                write!(f, "more than the {declared_bytes} bytes declared inflated")
            }
            Self::CompressedData { compressor } => write!(f, "malformed {compressor} data"),
            Self::CompressedRest { count_bytes } => write!(f, "{count_bytes} bytes behind the compressed data"),
            Self::Flags { flags } => write!(f, "flags {flags:#010x} are not allowed here"),
            Self::Checksum { computed, found } => {
                write!(f, "checksum is {found:#010x}, but the bytes give {computed:#010x}")
            }
            Self::ResponseTo { expected, found } => {
                write!(f, "reply to message {found}, where one to {expected} was due")
            }
            Self::MoreToCome => f.write_str("moreToCome, which was not allowed"),
            Self::Unsolicited { count_bytes } => write!(f, "{count_bytes} bytes that nobody asked for"),
            Self::SectionKind { kind } => write!(f, "unknown section kind {kind}"),
            Self::SectionLength { length_bytes } => write!(f, "section length {length_bytes} does not fit"),
            Self::BodyMissing => f.write_str("no body section"),
            Self::BodyTwice => f.write_str("a second body section"),
            Self::SequenceTwice => f.write_str("two document sequences of one name"),
            Self::SequencesTooMany => f.write_str("too many document sequences"),
            Self::Truncated { needed_bytes, found_bytes } => {
                write!(f, "{needed_bytes} bytes needed, {found_bytes} there")
            }
            Self::DocumentLength { length_bytes, found_bytes } => {
                write!(f, "document length {length_bytes} does not fit {found_bytes} bytes")
            }
            Self::Terminator => f.write_str("terminating zero byte missing or too early"),
            Self::StringLength { length_bytes } => write!(f, "string length {length_bytes} does not fit"),
            Self::BinaryLength { length_bytes } => write!(f, "binary length {length_bytes} does not fit"),
            Self::ScopeLength { length_bytes } => write!(f, "code-with-scope length {length_bytes} does not fit"),
            Self::ElementTag { tag } => write!(f, "unknown element type {tag:#04x}"),
            Self::Boolean { value } => write!(f, "boolean of value {value}"),
            Self::Utf8 => f.write_str("invalid UTF-8"),
            Self::TooDeep => f.write_str("documents nested too deep"),
            Self::FieldMissing { name } => write!(f, "field `{name}` is missing"),
            Self::FieldType { name, found } => write!(f, "field `{name}` cannot be of type {found}"),
            Self::FieldValue { name, value } => write!(f, "field `{name}` cannot be {value}"),
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.offset)
    }
}

impl core::error::Error for WireError {}

impl From<WireError> for Cause {
    fn from(_: WireError) -> Self {
        Self::Protocol
    }
}

/// Something cannot be written. The sink is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncodeError {
    /// The sink has no room left, or its allocator refused.
    Full,
    /// A key, a regular expression or a name has a zero byte inside.
    InteriorNul,
    /// A document would exceed the limit.
    DocumentTooLarge {
        /// Its length.
        length_bytes: u32,
        /// The limit.
        max_bytes: u32,
    },
    /// The message would exceed the limit.
    MessageTooLarge {
        /// Its length.
        length_bytes: u32,
        /// The limit.
        max_bytes: u32,
    },
    /// A message was finished without a body.
    BodyMissing,
    /// A message was given two bodies.
    BodyTwice,
    /// A message was given more document sequences than [`SEQUENCES_MAX`](super::message::SEQUENCES_MAX).
    SequencesTooMany,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => f.write_str("no room left to write"),
            Self::InteriorNul => f.write_str("zero byte inside a key or a name"),
            Self::DocumentTooLarge { length_bytes, max_bytes } => {
                write!(f, "document of {length_bytes} bytes exceeds the limit of {max_bytes}")
            }
            Self::MessageTooLarge { length_bytes, max_bytes } => {
                write!(f, "message of {length_bytes} bytes exceeds the limit of {max_bytes}")
            }
            Self::BodyMissing => f.write_str("message without a body"),
            Self::BodyTwice => f.write_str("message with two bodies"),
            Self::SequencesTooMany => f.write_str("message with too many document sequences"),
        }
    }
}

impl core::error::Error for EncodeError {}

impl From<Full> for EncodeError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<EncodeError> for Cause {
    fn from(_: EncodeError) -> Self {
        Self::Resources
    }
}

const _: () = assert!(size_of::<WireError>() <= 40);
