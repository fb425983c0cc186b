//! Requests out, replies in, for one connection.

use super::codec::{Codec, lengthen};
use super::{COMPRESSED_HEADER_BYTES, Compressor, Compressors, OP_COMPRESSED};
use super::{decode_compressed, is_compressed, is_compressible};
use crate::Full;
use crate::error::{EncodeError, WireError};
use crate::message::{Decoded, HEADER_BYTES, Header, Limits};
use crate::read::saturate;
use alloc::vec::Vec;
use core::fmt;

/// Compresses what one connection sends and inflates what it receives, in buffers and contexts that are used again:
/// once they have the size of the largest message so far, nothing is allocated.
///
/// It stands between the bytes and whoever understands them ([`Handshake`](crate::handshake::Handshake),
/// [`Exchange`](crate::message::Exchange)). [`pack`](Self::pack) what is to be sent; [`unpack`](Self::unpack) what was
/// received, and hand on [`inflated`](Self::inflated) in its place.
///
/// Memory beyond the two buffers, from the first message that is compressed (and again, first inflated) with it:
/// snappy 2 KiB, and 32 KiB once a message exceeds a kilobyte; zlib some 320 KiB to compress and 43 KiB
/// to inflate; zstd, which takes it from C's allocator, from 70 KiB to 1.3 MiB by the largest request, and
/// 160 KiB to inflate.
pub struct Packer {
    /// What may arrive.
    accepted: Compressors,
    /// What is sent, once the server has agreed.
    sends: Option<Compressor>,
    codec: Codec,
    packed: Vec<u8>,
    packed_len: usize,
    inflated: Vec<u8>,
    inflated_len: usize,
}

/// What the front of the received bytes was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpacked {
    /// Not compressed, or too little to tell: to be decoded as it is.
    Plain,
    /// A compressed message that is not all there.
    NeedMore {
        /// How many more bytes it takes at least. As claimed by the peer: make room as bytes arrive.
        bytes_min: usize,
    },
    /// A compressed message. [`Packer::inflated`] is what is to be decoded in its place.
    Inflated {
        /// How many bytes of the input it is.
        length_bytes: usize,
    },
}

/// A compressed message cannot be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnpackError {
    /// The peer broke a rule; the connection is to be closed.
    Wire(WireError),
    /// No memory for it.
    Full,
}

impl fmt::Display for UnpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => error.fmt(f),
            Self::Full => f.write_str("no memory to inflate a message"),
        }
    }
}

impl core::error::Error for UnpackError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        if let Self::Wire(error) = self { Some(error) } else { None }
    }
}

impl From<WireError> for UnpackError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<Full> for UnpackError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl Packer {
    /// For a connection whose hello offers compressors and is not answered yet: nothing is compressed, and the answer may be.
    ///
    /// - `offered`: those that this build does not have are left out.
    /// - `zlib_level`: 0 (none) to 9 (best); `None` leaves it to zlib.
    ///
    /// Cost: no allocation.
    #[must_use]
    pub fn new(offered: Compressors, zlib_level: Option<u32>) -> Self {
        Self {
            accepted: offered.available(),
            sends: None,
            codec: Codec::new(zlib_level),
            packed: Vec::new(),
            packed_len: 0,
            inflated: Vec::new(),
            inflated_len: 0,
        }
    }

    /// Takes note of what [`Established`](crate::handshake::Established) says that both sides have. From now on everything
    /// that may be compressed is, by the first of them.
    pub fn agree(&mut self, agreed: Compressors) {
        self.accepted = agreed.available();
        self.sends = self.accepted.first();
    }

    /// Compresses a message that was encoded, and returns whether it did: [`packed`](Self::packed) is then to be sent in its place.
    ///
    /// Everything is compressed that may be, however short: the specification leaves no choice. Only a message that
    /// would thereby exceed the limit stays as it is, so that it can be sent at all.
    ///
    /// - `message`: one whole OP_MSG. - `limits`: the connection's.
    ///
    /// Cost: linear in the message; see [`Packer`] for memory.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`] when the allocator refuses.
    ///
    /// Source: Wire Compression, "Compressible messages" and "Messages not allowed to be compressed".
    pub fn pack(&mut self, message: &[u8], limits: &Limits) -> Result<bool, EncodeError> {
        self.packed_len = 0;
        let Some(compressor) = self.sends.filter(|_| is_compressible(message)) else { return Ok(false) };
        let Some((header, body)) = message.split_at_checked(HEADER_BYTES) else { return Ok(false) };
        lengthen(&mut self.packed, COMPRESSED_HEADER_BYTES)?;
        let len = self.codec.compress(compressor, body, &mut self.packed, COMPRESSED_HEADER_BYTES)?;
        let length_bytes = saturate(len);
        if length_bytes > limits.message_bytes_max.min(i32::MAX.unsigned_abs()) {
            return Ok(false);
        }
        let Some(front) = self.packed.first_chunk_mut::<COMPRESSED_HEADER_BYTES>() else { return Ok(false) };
        let outer = Header { length_bytes, request_id: 0, response_to: 0, opcode: OP_COMPRESSED }.to_bytes();
        // The ids are those of the message, and its opcode moves inside.
        let parts = [
            outer.get(..4),
            header.get(4..12),
            outer.get(12..),
            header.get(12..),
            Some(&saturate(body.len()).to_le_bytes()),
            Some(&[compressor.id()]),
        ];
        let bytes = parts.into_iter().flatten().flatten();
        for (place, byte) in front.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.packed_len = len;
        Ok(true)
    }

    /// The message that was compressed last; empty when [`pack`](Self::pack) left it as it was.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        self.packed.get(..self.packed_len).unwrap_or_default()
    }

    /// Inflates the message at the front of `input`, if it is compressed and all there.
    ///
    /// - `input`: everything that was received and not consumed. - `limits`: for the message as it is and inflated.
    ///
    /// Cost: O(1) until all of it is there, then linear in both sizes. Allocates what the message declares, which is within
    /// `limits`, and within what its bytes can inflate to.
    ///
    /// # Errors
    ///
    /// [`UnpackError::Wire`] with what [`decode_compressed`] finds, or [`WireErrorKind::InflatedSize`],
    /// [`WireErrorKind::InflatedTooLong`], [`WireErrorKind::CompressedData`], [`WireErrorKind::CompressedRest`];
    /// [`UnpackError::Full`].
    ///
    /// [`WireErrorKind::InflatedSize`]: crate::WireErrorKind::InflatedSize
    /// [`WireErrorKind::InflatedTooLong`]: crate::WireErrorKind::InflatedTooLong
    /// [`WireErrorKind::CompressedData`]: crate::WireErrorKind::CompressedData
    /// [`WireErrorKind::CompressedRest`]: crate::WireErrorKind::CompressedRest
    pub fn unpack(&mut self, input: &[u8], limits: &Limits) -> Result<Unpacked, UnpackError> {
        self.inflated_len = 0;
        if self.accepted.is_empty() || !is_compressed(input) {
            return Ok(Unpacked::Plain);
        }
        let (message, rest) = match decode_compressed(input, limits, self.accepted)? {
            Decoded::Done { value, rest } => (value, rest),
            Decoded::NeedMore { bytes_min } => return Ok(Unpacked::NeedMore { bytes_min }),
        };
        let header = message.header();
        let len = header.length_bytes as usize;
        lengthen(&mut self.inflated, len)?;
        let whole = self.inflated.get_mut(..len).ok_or(UnpackError::Full)?;
        let (front, body) = whole.split_at_mut_checked(HEADER_BYTES).ok_or(UnpackError::Full)?;
        front.copy_from_slice(&header.to_bytes());
        self.codec.inflate(&message, body)?;
        self.inflated_len = len;
        Ok(Unpacked::Inflated { length_bytes: input.len().saturating_sub(rest.len()) })
    }

    /// The message that was inflated last, with the header that it had before it was compressed; empty after anything else.
    #[must_use]
    pub fn inflated(&self) -> &[u8] {
        self.inflated.get(..self.inflated_len).unwrap_or_default()
    }

    /// Gives back the memory of buffers that a message made longer than `keep_bytes`, and forgets both messages.
    pub fn trim(&mut self, keep_bytes: usize) {
        (self.packed_len, self.inflated_len) = (0, 0);
        for buffer in [&mut self.packed, &mut self.inflated] {
            if buffer.len() > keep_bytes {
                *buffer = Vec::new();
            }
        }
    }

    /// Bytes that the two buffers take.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.packed.capacity() + self.inflated.capacity()
    }
}

impl fmt::Debug for Packer {
    /// Without a byte of any message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer")
            .field("accepted", &self.accepted)
            .field("sends", &self.sends)
            .field("buffer_bytes", &self.buffer_bytes())
            .finish_non_exhaustive()
    }
}
