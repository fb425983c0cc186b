//! OP_MSG: messages in and out, and which reply belongs to which request.
//!
//! OP_MSG is the only opcode spoken, also for the first hello of a connection (MON-06); compressed messages
//! ([`compress`](super::compress)) have it inside.
//!
//! Read first: OP_MSG, "Sections", "Flag Bits", "Exhaust"; MongoDB Wire Protocol, "Standard Message Header".

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

/// How many document sequences a message may have. No command takes more than a few.
pub const SEQUENCES_MAX: usize = 8;

/// What every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Bytes of the whole message, header included; at least [`HEADER_BYTES`].
    pub length_bytes: u32,
    /// The sender's name for this message.
    pub request_id: i32,
    /// The message that this one answers; 0 in a request.
    pub response_to: i32,
    /// What follows the header.
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

/// The flag bits of OP_MSG. Bits 0 to 15 must be understood, the others may be ignored.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The message ends with a CRC-32C of everything before it.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// Another message follows without being asked for.
    pub const MORE_TO_COME: Self = Self(1 << 1);
    /// In a request: the server may answer with many replies.
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    /// The bits that must be understood.
    const REQUIRED: u32 = 0xffff;
    /// Those of them that are.
    const UNDERSTOOD: u32 = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0;

    /// Flags of those bits, unless one that must be understood is not.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits & Self::REQUIRED & !Self::UNDERSTOOD == 0 { Some(Self(bits)) } else { None }
    }

    /// All bits, also those that were ignored.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
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

/// Limits on messages, in both directions. A connection's own are in
/// [`Established`](super::handshake::Established).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The longest message, header included.
    pub message_bytes_max: u32,
    /// The longest document of a user, `maxBsonObjectSize`. What is sent may exceed it by
    /// [`DOCUMENT_OVERHEAD_BYTES`], so that a command can carry a document of the full size.
    pub document_bytes_max: u32,
}

/// What a command may add around a document of the largest size.
pub const DOCUMENT_OVERHEAD_BYTES: u32 = 16 * 1024;

impl Limits {
    /// The limits where hello has no others: 48,000,000 bytes and 16 MiB.
    pub const DEFAULT: Self = Self { message_bytes_max: 48_000_000, document_bytes_max: 16 * 1024 * 1024 };
    /// The limits before the end of the handshake, and always on a monitor's connection: 1 MiB, compressed and inflated. Hello is far shorter, and the peer is not
    /// authenticated.
    pub const HANDSHAKE: Self = Self { message_bytes_max: 1024 * 1024, document_bytes_max: 1024 * 1024 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
