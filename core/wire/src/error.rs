//! Errors of decoding and encoding: the violated rule and its position.

#[cfg(test)]
mod tests;

use core::fmt;

use super::bson::{DEPTH_MAX, ElementType};
use super::compress::Compressor;
use crate::Full;
use crate::cause::Cause;

/// A violation of the protocol in received bytes: the rule and the offset.
///
/// `Copy`, and without text of the peer. The offset counts from the first byte of the outermost
/// input: of the message for [`decode_message`](super::message::decode_message), of the document
/// for a document that was opened directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct WireError {
    kind: WireErrorKind,
    offset: u32,
}

/// The rule that the received bytes violate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum WireErrorKind {
    /// The claimed message length is less than header and flags.
    MessageTooShort {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The claimed message length exceeds the limit.
    MessageTooLong {
        /// The length claimed.
        length_bytes: i32,
        /// The limit.
        max_bytes: u32,
    },
    /// The opcode is not OP_MSG.
    Opcode {
        /// The opcode found.
        opcode: i32,
    },
    /// A compressed message, but no compressor was negotiated.
    Compressed,
    /// A compressed message inside a compressed message.
    CompressedTwice,
    /// A compressed message with another opcode than OP_MSG inside.
    CompressedOpcode {
        /// The opcode inside.
        opcode: i32,
    },
    /// The compressor id is unknown.
    CompressorUnknown {
        /// The id found.
        id: u8,
    },
    /// The compressor was not negotiated.
    CompressorNotNegotiated {
        /// The compressor found.
        compressor: Compressor,
    },
    /// The declared uncompressed size is impossible for a message, exceeds the limit, or exceeds
    /// the maximum to which the compressed bytes can inflate.
    UncompressedSize {
        /// The declared size, without the header.
        size_bytes: i32,
        /// The maximum possible size.
        max_bytes: u32,
    },
    /// The inflated size differs from the declared size.
    InflatedSize {
        /// The declared size, without the header.
        declared_bytes: u32,
        /// The size found.
        found_bytes: u32,
    },
    /// The inflated size exceeds the declared size. Inflating stops there, so the excess is
    /// unknown.
    InflatedTooLong {
        /// The declared size, without the header.
        declared_bytes: u32,
    },
    /// Compressed data are malformed for their compressor, or end too early.
    CompressedData {
        /// The compressor.
        compressor: Compressor,
    },
    /// Extra bytes after the end of the compressed data.
    CompressedRest {
        /// Number of extra bytes.
        count_bytes: u32,
    },
    /// A required flag is unknown, or a flag is not allowed in this direction.
    Flags {
        /// The flags found.
        flags: u32,
    },
    /// The CRC-32C of the message does not match.
    Checksum {
        /// As computed from the bytes.
        computed: u32,
        /// As found at the end of the message.
        found: u32,
    },
    /// The `responseTo` of a reply is not the expected id.
    ResponseTo {
        /// The id of the request (or, in an exhaust stream, of the previous reply) that the reply
        /// must answer.
        expected: i32,
        /// The id that the reply names.
        found: i32,
    },
    /// The flag `moreToCome` in a reply, although the request did not allow exhaust.
    MoreToCome,
    /// Bytes arrived while no reply was outstanding.
    Unsolicited {
        /// Number of bytes.
        count_bytes: u32,
    },
    /// A section of an unknown kind.
    SectionKind {
        /// The kind found.
        kind: u8,
    },
    /// The size of a document sequence is impossible in its message.
    SectionLength {
        /// The size claimed.
        length_bytes: i32,
    },
    /// The message has no section of kind 0.
    BodyMissing,
    /// The message has a second section of kind 0.
    BodyTwice,
    /// Two document sequences have the same name.
    SequenceTwice,
    /// More document sequences than [`SEQUENCES_MAX`](super::message::SEQUENCES_MAX).
    SequencesTooMany,
    /// The input ends in the middle of a value.
    Truncated {
        /// Bytes needed, counted from the offset.
        needed_bytes: u32,
        /// Bytes available.
        found_bytes: u32,
    },
    /// The length of a document is less than 5, or differs from the bytes that contain it.
    DocumentLength {
        /// The length claimed.
        length_bytes: i32,
        /// Bytes available.
        found_bytes: u32,
    },
    /// The zero byte at the end of a document, key or string is missing, or precedes the end.
    Terminator,
    /// The length of a string is less than 1, or exceeds the available bytes.
    StringLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The length of a binary value is negative, exceeds the available bytes, or contradicts its
    /// inner length.
    BinaryLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The length of a code-with-scope value contradicts its parts.
    ScopeLength {
        /// The length claimed.
        length_bytes: i32,
    },
    /// The element type is unknown.
    ElementTag {
        /// The type byte.
        tag: u8,
    },
    /// The byte of a boolean is neither 0 nor 1.
    Boolean {
        /// The byte found.
        value: u8,
    },
    /// A text is not UTF-8.
    Utf8,
    /// Documents nested deeper than [`DEPTH_MAX`](super::bson::DEPTH_MAX).
    TooDeep,
    /// A required field of a reply is missing.
    FieldMissing {
        /// The field.
        name: &'static str,
    },
    /// A field has a type that is not allowed.
    FieldType {
        /// The field.
        name: &'static str,
        /// The type found.
        found: ElementType,
    },
    /// A field has a value that is not allowed, at the offset of the error.
    FieldValue {
        /// The field.
        name: &'static str,
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

    /// The offset in bytes from the start of the decoded input.
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
            Self::Compressed => f.write_str("a message is compressed, but no compressor was negotiated"),
            Self::CompressedTwice => f.write_str("a compressed message inside a compressed one"),
            Self::CompressedOpcode { opcode } => write!(f, "opcode {opcode} inside a compressed message"),
            Self::CompressorUnknown { id } => write!(f, "unknown compressor {id}"),
            Self::CompressorNotNegotiated { compressor } => {
                write!(f, "compressor {compressor} was not negotiated")
            }
            Self::UncompressedSize { size_bytes, max_bytes } => {
                write!(f, "uncompressed size {size_bytes} is less than that of any message, or exceeds {max_bytes}")
            }
            Self::InflatedSize { declared_bytes, found_bytes } => {
                write!(f, "{found_bytes} bytes inflated, {declared_bytes} declared")
            }
            Self::InflatedTooLong { declared_bytes } => {
                write!(f, "the inflated data exceed the {declared_bytes} bytes declared")
            }
            Self::CompressedData { compressor } => write!(f, "malformed {compressor} data"),
            Self::CompressedRest { count_bytes } => write!(f, "{count_bytes} extra bytes follow the compressed data"),
            Self::Flags { flags } => write!(f, "flags {flags:#010x} are not allowed here"),
            Self::Checksum { computed, found } => {
                write!(f, "checksum is {found:#010x}, but {computed:#010x} was computed")
            }
            Self::ResponseTo { expected, found } => {
                write!(f, "the reply answers message {found}, expected {expected}")
            }
            Self::MoreToCome => f.write_str("the reply has the flag moreToCome, which the request did not allow"),
            Self::Unsolicited { count_bytes } => {
                write!(f, "{count_bytes} bytes arrived while no reply was outstanding")
            }
            Self::SectionKind { kind } => write!(f, "unknown section kind {kind}"),
            Self::SectionLength { length_bytes } => write!(f, "section length {length_bytes} does not fit"),
            Self::BodyMissing => f.write_str("no body section"),
            Self::BodyTwice => f.write_str("a second body section"),
            Self::SequenceTwice => f.write_str("two document sequences have the same name"),
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
            Self::TooDeep => write!(f, "documents nested too deep: more than {DEPTH_MAX} levels"),
            Self::FieldMissing { name } => write!(f, "field `{name}` is missing"),
            Self::FieldType { name, found } => write!(f, "field `{name}` cannot be of type {found}"),
            Self::FieldValue { name } => write!(f, "field `{name}` has a value that is not allowed"),
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

/// A value cannot be encoded. The sink is unchanged by the failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EncodeError {
    /// The sink has no room left, or its allocator refused.
    Full,
    /// A key, a regular expression or a name contains a zero byte.
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
    /// A message was given more document sequences than
    /// [`SEQUENCES_MAX`](super::message::SEQUENCES_MAX).
    SequencesTooMany,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Full => f.write_str("the buffer has no room for the message"),
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

// Every function that decodes returns one, and the copies take flash: at most two values of 32 bits,
// or one name.
const _: () = assert!(size_of::<WireError>() <= 4 * size_of::<usize>());

/// Implements `Debug` of errors as their `Display`: `fn main() -> Result<(), E>` and `unwrap` print
/// `Debug`, and the text names the operation, the reason and the remedy.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
