//! Compression of sent messages and inflation of received messages, for one connection.

use super::codec::{Codec, lengthen};
use super::{COMPRESSED_HEADER_BYTES, Compressor, Compressors, OP_COMPRESSED};
use super::{decode_compressed, is_compressed, is_compressible};
use crate::Full;
use crate::error::{EncodeError, WireError};
use crate::message::{Decoded, HEADER_BYTES, Header, Limits};
use crate::read::saturate;
use alloc::vec::Vec;
use core::fmt;

/// Compresses the messages that a connection sends and inflates those that it receives. Buffers and
/// contexts are reused: nothing is allocated unless a message is larger than all before.
///
/// It is used between the socket and the decoder ([`Handshake`](crate::handshake::Handshake),
/// [`Exchange`](crate::message::Exchange)). Call [`pack`](Self::pack) on each encoded message. Call
/// [`unpack`](Self::unpack) on received bytes, and if it inflates a message, pass
/// [`inflated`](Self::inflated) to the decoder instead of the received bytes.
///
/// Memory in addition to the two buffers, allocated at the first message that is compressed, and
/// separately at the first that is inflated: snappy 2 KiB, and 32 KiB once a message exceeds a
/// kilobyte; zlib some 320 KiB to compress and 43 KiB to inflate; zstd, which uses the C allocator,
/// from 70 KiB to 1.3 MiB depending on the largest request, and 160 KiB to inflate.
pub struct Packer {
    /// Compressors that received messages may use.
    accepted: Compressors,
    /// The compressor for sent messages; set after the server has agreed to it.
    sends: Option<Compressor>,
    codec: Codec,
    packed: Vec<u8>,
    packed_len: usize,
    inflated: Vec<u8>,
    inflated_len: usize,
}

/// The kind of message at the front of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpacked {
    /// Not compressed, or the opcode has not arrived yet: decode the bytes unchanged.
    Plain,
    /// A compressed message that has not arrived in full.
    NeedMore {
        /// Minimum number of further bytes needed. Claimed by the peer: grow the buffer as bytes
        /// arrive.
        bytes_min: usize,
    },
    /// A compressed message. Decode [`Packer::inflated`] instead of it.
    Inflated {
        /// Length in bytes of the compressed message in the input.
        length_bytes: usize,
    },
}

/// A compressed message cannot be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnpackError {
    /// The peer violated the protocol; the connection must be closed.
    Wire(WireError),
    /// Not enough memory.
    Full,
}

impl fmt::Display for UnpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => error.fmt(f),
            Self::Full => f.write_str("out of memory: the message was not inflated"),
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
    /// Creates a packer for a connection that has no reply to hello yet: sent messages are not
    /// compressed, received messages may be.
    ///
    /// - `offered`: compressors that this build does not support are left out.
    /// - `zlib_level`: 0 (none) to 9 (best); `None` uses the default of zlib.
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

    /// Sets the compressors that both sides support, from
    /// [`Established`](crate::handshake::Established). From now on sent messages are compressed
    /// with the first of them, if allowed.
    pub fn agree(&mut self, agreed: Compressors) {
        self.accepted = agreed.available();
        self.sends = self.accepted.first();
    }

    /// Compresses an encoded message and returns whether it did; if so, send
    /// [`packed`](Self::packed) instead of it.
    ///
    /// Every message that may be compressed is compressed, however short, as the specification
    /// requires. The exception is a message that would exceed the limit when compressed.
    ///
    /// - `message`: one complete OP_MSG.
    /// - `limits`: the connection's.
    ///
    /// Cost: linear in the message; see [`Packer`] for memory.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Full`] when the allocator refuses.
    ///
    /// Source: Wire Compression, "Compressible messages" and "Messages not allowed to be
    /// compressed".
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
        // Request id and response id are copied; the opcode moves into the compressed header.
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

    /// The message compressed last; empty if [`pack`](Self::pack) did not compress it.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        self.packed.get(..self.packed_len).unwrap_or_default()
    }

    /// Inflates the message at the front of `input`, if it is compressed and has arrived in full.
    ///
    /// - `input`: all bytes received and not consumed.
    /// - `limits`: apply to the message both compressed and inflated.
    ///
    /// Cost: O(1) until the whole message has arrived, then linear in both sizes. Allocates the
    /// declared size, which is within `limits` and within the maximum to which its bytes can
    /// inflate.
    ///
    /// # Errors
    ///
    /// [`UnpackError::Wire`] with an error of [`decode_compressed`], or
    /// [`WireErrorKind::InflatedSize`], [`WireErrorKind::InflatedTooLong`],
    /// [`WireErrorKind::CompressedData`], [`WireErrorKind::CompressedRest`]; [`UnpackError::Full`].
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

    /// The message inflated last, with its header as before compression; empty after any other
    /// result.
    #[must_use]
    pub fn inflated(&self) -> &[u8] {
        self.inflated.get(..self.inflated_len).unwrap_or_default()
    }

    /// Frees buffers longer than `keep_bytes`, and clears both messages.
    pub fn trim(&mut self, keep_bytes: usize) {
        (self.packed_len, self.inflated_len) = (0, 0);
        for buffer in [&mut self.packed, &mut self.inflated] {
            if buffer.len() > keep_bytes {
                *buffer = Vec::new();
            }
        }
    }

    /// Allocated size of the two buffers in bytes.
    #[must_use]
    pub const fn buffer_bytes(&self) -> usize {
        self.packed.capacity() + self.inflated.capacity()
    }
}

impl fmt::Debug for Packer {
    /// Omits the content of messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer")
            .field("accepted", &self.accepted)
            .field("sends", &self.sends)
            .field("buffer_bytes", &self.buffer_bytes())
            .finish_non_exhaustive()
    }
}
