//! OP_COMPRESSED: the compressors, the header of a compressed message, and (with one of the
//! features `snappy`, `zlib`, `zstd`) the `Packer` that compresses and inflates messages.
//!
//! The size of a received message is bounded before any byte is inflated: the declared size must be
//! within the message limit, and within the maximum to which the compressed bytes can inflate. The
//! inflated message must have exactly this size; otherwise the connection must be closed.
//!
//! Without any of the features no compressor is offered, and a compressed message is rejected with
//! [`WireErrorKind::Compressed`].
//!
//! Read first: Wire Compression, "MongoDB Handshake Amendment", "OP_COMPRESSED", "Compressor IDs",
//! "Messages not allowed to be compressed".

#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
mod codec;
mod command;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
mod packer;
#[cfg(test)]
mod tests;

use super::bson::RawArray;
use super::error::{WireError, WireErrorKind};
use super::message::{Decoded, HEADER_BYTES, Header, Limits, MESSAGE_BYTES_MIN, OP_MSG, decode_header};
use super::read::{Reader, saturate};
use core::fmt;

pub use super::message::OP_COMPRESSED;
pub use command::is_compressible;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
pub use packer::{Packer, UnpackError, Unpacked};

/// Bytes before the compressed data: a header, the original opcode, the uncompressed size, the
/// compressor id.
pub const COMPRESSED_HEADER_BYTES: usize = HEADER_BYTES + 9;

const OPCODE_AT: u32 = 16;
const SIZE_AT: u32 = 20;
const COMPRESSOR_AT: u32 = 24;

/// The id of the compressor "noop", which does not compress.
const NOOP_ID: u8 = 0;

/// The minimum length of a message without its header.
const BODY_BYTES_MIN: usize = MESSAGE_BYTES_MIN - HEADER_BYTES;

/// A compression algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Compressor {
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// All compressors.
    pub const ALL: [Self; 3] = [Self::Snappy, Self::Zlib, Self::Zstd];

    /// Its name in connection strings and handshakes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Its id in messages.
    ///
    /// Source: Wire Compression, "Compressor IDs".
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// Whether this build supports it: each compressor is a separate feature.
    #[must_use]
    pub const fn is_available(self) -> bool {
        match self {
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Zlib => cfg!(feature = "zlib"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// The maximum ratio of inflated to compressed size that the format allows.
    const fn expansion_max(self) -> usize {
        match self {
            // A copy element of 3 bytes yields 64.
            Self::Snappy => 22,
            // 2 bits yield 258 bytes.
            Self::Zlib => 1032,
            // A block of 4 bytes yields 128 KiB.
            Self::Zstd => 32 * 1024,
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compressors in order of preference, without duplicates.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Compressors([Option<Compressor>; Compressor::ALL.len()]);

impl Compressors {
    /// No compressors.
    pub const NONE: Self = Self([None; Compressor::ALL.len()]);

    /// Appends a compressor unless it is already included.
    #[must_use]
    pub fn with(mut self, compressor: Compressor) -> Self {
        if !self.contains(compressor) {
            // The array has a slot for each compressor.
            if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
                *place = Some(compressor);
            }
        }
        self
    }

    /// The compressors that this build supports, in the same order.
    #[must_use]
    pub fn available(self) -> Self {
        self.iter().filter(|compressor| compressor.is_available()).collect()
    }

    /// The compressors that a server's hello reply names too, in this side's order: messages are
    /// compressed with the first.
    ///
    /// Source: Wire Compression, "MongoDB Handshake Amendment".
    #[must_use]
    pub fn agreed(self, reply: RawArray<'_>) -> Self {
        self.iter().filter(|compressor| reply.strings().any(|name| name == compressor.name())).collect()
    }

    /// The preferred compressor.
    #[must_use]
    pub const fn first(self) -> Option<Compressor> {
        let [first, ..] = self.0;
        first
    }

    /// Whether the compressor is included.
    #[must_use]
    pub fn contains(self, compressor: Compressor) -> bool {
        self.iter().any(|one| one == compressor)
    }

    /// Whether there are no compressors.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.first().is_none()
    }

    /// All compressors, in order.
    pub fn iter(self) -> impl Iterator<Item = Compressor> {
        self.0.into_iter().flatten()
    }
}

impl FromIterator<Compressor> for Compressors {
    fn from_iter<I: IntoIterator<Item = Compressor>>(compressors: I) -> Self {
        compressors.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Compressors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Whether the header of the message at the front of `input` has opcode OP_COMPRESSED. `false` too
/// if the opcode has not arrived yet.
#[must_use]
pub fn is_compressed(input: &[u8]) -> bool {
    input.get(HEADER_BYTES - 4..HEADER_BYTES) == Some(&OP_COMPRESSED.to_le_bytes())
}

/// A compressed message that has arrived in full. Its header is valid; its data are not inflated
/// yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Compressed<'a> {
    header: Header,
    compressor: Option<Compressor>,
    data: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// The header of the message inside, as before compression.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The compressor; `None` for data that are not compressed ("noop").
    #[must_use]
    pub const fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// The compressed bytes.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The declared uncompressed size in bytes, without the header.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        (self.header.length_bytes as usize).saturating_sub(HEADER_BYTES)
    }
}

impl fmt::Debug for Compressed<'_> {
    /// Omits the data, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, compressor, data } = self;
        f.debug_struct("Compressed")
            .field("header", header)
            .field("compressor", compressor)
            .field("data_bytes", &data.len())
            .finish()
    }
}

/// Decodes the header of the compressed message at the front of `input`.
///
/// - `limits`: apply to the message both compressed and inflated.
/// - `accepted`: the compressors that both sides support; "noop" (id 0) is accepted if there is at
///   least one.
///
/// All checks are made as soon as [`COMPRESSED_HEADER_BYTES`] have arrived. Cost: O(1).
///
/// # Errors
///
/// Those of [`decode_header`]; [`WireErrorKind::Opcode`] for a message that is not compressed;
/// [`WireErrorKind::CompressedTwice`], [`WireErrorKind::CompressedOpcode`],
/// [`WireErrorKind::UncompressedSize`], [`WireErrorKind::CompressorUnknown`],
/// [`WireErrorKind::CompressorNotNegotiated`].
///
/// Source: Wire Compression, "OP_COMPRESSED".
pub fn decode_compressed<'a>(
    input: &'a [u8],
    limits: &Limits,
    accepted: Compressors,
) -> Result<Decoded<'a, Compressed<'a>>, WireError> {
    let outer = match decode_header(input, limits)? {
        Decoded::Done { value, .. } => value,
        Decoded::NeedMore { bytes_min } => return Ok(Decoded::NeedMore { bytes_min }),
    };
    if outer.opcode != OP_COMPRESSED {
        return Err(WireError::new(WireErrorKind::Opcode { opcode: outer.opcode }, 12));
    }
    let length = outer.length_bytes as usize;
    let Some(data_bytes) = length.checked_sub(COMPRESSED_HEADER_BYTES) else {
        let length_bytes = i32::from_le_bytes(outer.length_bytes.to_le_bytes());
        return Err(WireError::new(WireErrorKind::MessageTooShort { length_bytes }, 0));
    };
    if input.len() < COMPRESSED_HEADER_BYTES {
        return Ok(Decoded::NeedMore { bytes_min: COMPRESSED_HEADER_BYTES - input.len() });
    }
    let mut reader = Reader::new(input, 0);
    reader.take(HEADER_BYTES)?;
    let (opcode, size_bytes, id) = (reader.i32()?, reader.i32()?, reader.u8()?);
    match opcode {
        OP_MSG => {}
        OP_COMPRESSED => return Err(WireError::new(WireErrorKind::CompressedTwice, OPCODE_AT)),
        _ => return Err(WireError::new(WireErrorKind::CompressedOpcode { opcode }, OPCODE_AT)),
    }
    let compressor = compressor_of(id, accepted)?;
    let size = check_size(size_bytes, data_bytes, compressor, limits)?;
    let Some((data, rest)) = reader.rest.split_at_checked(data_bytes) else {
        return Ok(Decoded::NeedMore { bytes_min: data_bytes - reader.rest.len() });
    };
    let header = Header { length_bytes: saturate(HEADER_BYTES.saturating_add(size)), opcode, ..outer };
    Ok(Decoded::Done { value: Compressed { header, compressor, data }, rest })
}

/// The compressor with this id, if it is accepted. `None` for "noop".
fn compressor_of(id: u8, accepted: Compressors) -> Result<Option<Compressor>, WireError> {
    if id == NOOP_ID && !accepted.is_empty() {
        return Ok(None);
    }
    let kind = match Compressor::ALL.into_iter().find(|compressor| compressor.id() == id) {
        Some(compressor) if accepted.contains(compressor) => return Ok(Some(compressor)),
        Some(compressor) => WireErrorKind::CompressorNotNegotiated { compressor },
        None if id == NOOP_ID => WireErrorKind::Compressed,
        None => WireErrorKind::CompressorUnknown { id },
    };
    Err(WireError::new(kind, COMPRESSOR_AT))
}

/// The declared size, if a message can have it, the limit allows it, and the compressed bytes can
/// inflate to it.
fn check_size(
    size_bytes: i32,
    data_bytes: usize,
    compressor: Option<Compressor>,
    limits: &Limits,
) -> Result<usize, WireError> {
    let limit = (limits.message_bytes_max as usize).saturating_sub(HEADER_BYTES);
    let most = data_bytes.saturating_mul(compressor.map_or(1, Compressor::expansion_max)).min(limit);
    let size = usize::try_from(size_bytes).ok().filter(|size| (BODY_BYTES_MIN..=most).contains(size));
    size.ok_or_else(|| {
        let max_bytes = saturate(most);
        WireError::new(WireErrorKind::UncompressedSize { size_bytes, max_bytes }, SIZE_AT)
    })
}
