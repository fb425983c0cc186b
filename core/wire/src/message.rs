//! OP_MSG: encoding and decoding of messages, and matching of replies to requests.
//!
//! OP_MSG is the only opcode used, also for the first hello of a connection; compressed
//! messages ([`compress`](super::compress)) contain it.
//!
//! Read first: OP_MSG, "Sections", "Flag Bits", "Exhaust"; MongoDB Wire Protocol, "Standard Message
//! Header".

mod checksum;
mod decode;
mod encode;
mod exchange;
#[cfg(test)]
mod tests;

use core::fmt;

pub(crate) use decode::MESSAGE_BYTES_MIN;
pub use decode::{Decoded, Documents, Message, Sequence, Sequences, decode_header, decode_message};
pub use encode::{MessageWriter, Outgoing, SequenceWriter, encode_command, encode_message};
pub use exchange::{Exchange, Matched, RequestIds};

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;

/// The opcode of OP_MSG.
pub const OP_MSG: i32 = 2013;

/// The opcode of OP_COMPRESSED.
pub const OP_COMPRESSED: i32 = 2012;

/// Maximum number of document sequences in a message. No command uses more than a few.
pub const SEQUENCES_MAX: usize = 8;

/// The header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Bytes of the whole message, header included; at least [`HEADER_BYTES`].
    pub length_bytes: u32,
    /// The sender's id of this message.
    pub request_id: i32,
    /// The id of the message that this one answers; 0 in a request.
    pub response_to: i32,
    /// The kind of the message.
    pub opcode: i32,
}

impl Header {
    /// The header as its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [a, b, c, d] = self.length_bytes.to_le_bytes();
        let [e, f, g, h] = self.request_id.to_le_bytes();
        let [i, j, k, l] = self.response_to.to_le_bytes();
        let [m, n, o, p] = self.opcode.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

/// The flag bits of OP_MSG. Unknown bits from 0 to 15 are an error, others are ignored.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The message ends with a CRC-32C of everything before it.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// Another message follows without a further request.
    pub const MORE_TO_COME: Self = Self(1 << 1);
    /// In a request: the server may answer with many replies.
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    /// The required bits: unknown ones among them are an error.
    const REQUIRED: u32 = 0xffff;
    /// The required bits that this crate supports.
    const UNDERSTOOD: u32 = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0;

    /// The flags with these bits; `None` if an unsupported required bit is set.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & Self::REQUIRED & !Self::UNDERSTOOD == 0 { Some(Self(bits)) } else { None }
    }

    /// All bits, including ignored ones.
    #[must_use]
    pub const fn bits(self) -> u32 {
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
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#010x})", self.0)
    }
}

/// Limits on messages, in both directions. [`Established`](super::handshake::Established) has the
/// limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The longest message, header included.
    pub message_bytes_max: u32,
    /// Maximum length of a user's document, `maxBsonObjectSize`. Documents sent may exceed it by
    /// [`DOCUMENT_OVERHEAD_BYTES`], so a command can carry a document of the full size.
    pub document_bytes_max: u32,
}

/// The overhead that a command may add to a document of the maximum size.
pub const DOCUMENT_OVERHEAD_BYTES: u32 = 16 * 1024;

impl Limits {
    /// The default limits, used unless hello specifies others: 48,000,000 bytes and 16 MiB.
    pub const DEFAULT: Self = Self { message_bytes_max: 48_000_000, document_bytes_max: 16 * 1024 * 1024 };
    /// The limits before the end of the handshake, and always on a monitor connection: 1 MiB,
    /// compressed and inflated. Hello is far shorter, and the peer is not authenticated.
    pub const HANDSHAKE: Self = Self { message_bytes_max: 1024 * 1024, document_bytes_max: 1024 * 1024 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
