//! OP_COMPRESSED: which compressors there are, what a compressed message says of itself, and (with one of the
//! features `snappy`, `zlib`, `zstd`) the `Packer` that makes compressed messages and undoes them.
//!
//! What arrives is bounded before a byte of it is inflated: the size that it declares must be within the
//! limit on messages, and within what so many compressed bytes can inflate to at all. The inflated message has that
//! size exactly, or the connection is to be closed.
//!
//! Without any of the features nothing compressed is offered or understood, and a peer that sends it all
//! the same gets [`WireErrorKind::Compressed`].
//!
//! Read first: Wire Compression, "MongoDB Handshake Amendment", "OP_COMPRESSED", "Compressor IDs", "Messages not
//! allowed to be compressed".

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

pub use command::is_compressible;
#[cfg(any(feature = "snappy", feature = "zlib", feature = "zstd"))]
pub use packer::{Packer, UnpackError, Unpacked};

/// The opcode of OP_COMPRESSED.
pub const OP_COMPRESSED: i32 = 2012;

/// Bytes in front of the compressed ones: a header, the opcode inside, the size inside, the compressor.
pub const COMPRESSED_HEADER_BYTES: usize = HEADER_BYTES + 9;

const OPCODE_AT: u32 = 16;
const SIZE_AT: u32 = 20;
const COMPRESSOR_AT: u32 = 24;

/// The id of the compressor that leaves everything as it is.
const NOOP_ID: u8 = 0;

/// The fewest bytes of a message behind its header.
const BODY_BYTES_MIN: usize = MESSAGE_BYTES_MIN - HEADER_BYTES;

/// An algorithm that messages can be compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Snappy, Self::Zlib, Self::Zstd];

    /// The name that connection strings and handshakes give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The number that messages give it.
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

    /// Whether this build has it: each is a feature of its own.
    #[must_use]
    pub const fn is_available(self) -> bool {
        match self {
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Zlib => cfg!(feature = "zlib"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// How many times as long as its compressed form anything can be at most, by the format.
    const fn expansion_max(self) -> usize {
        match self {
            // 64 bytes from a copy of three.
            Self::Snappy => 22,
            // 258 bytes from two bits.
            Self::Zlib => 1032,
            // A block of 128 KiB from four bytes.
            Self::Zstd => 32 * 1024,
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compressors in order of preference, each once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Compressors([Option<Compressor>; Compressor::ALL.len()]);

impl Compressors {
    /// None at all.
    pub const NONE: Self = Self([None; Compressor::ALL.len()]);

    /// Adds one behind the others, unless it is among them.
    #[must_use]
    pub fn with(mut self, compressor: Compressor) -> Self {
        if !self.contains(compressor) {
            // There are as many places as compressors.
            if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
                *place = Some(compressor);
            }
        }
        self
    }

    /// Those of them that this build has, in the same order.
    #[must_use]
    pub fn available(self) -> Self {
        self.iter().filter(|compressor| compressor.is_available()).collect()
    }

    /// Those of them that a server names in its reply to hello, in this side's order: the first is the one to
    /// compress with.
    ///
    /// Source: Wire Compression, "MongoDB Handshake Amendment".
    #[must_use]
    pub fn agreed(self, reply: RawArray<'_>) -> Self {
        self.iter().filter(|compressor| reply.strings().any(|name| name == compressor.name())).collect()
    }

    /// The one that is preferred.
    #[must_use]
    pub const fn first(self) -> Option<Compressor> {
        let [first, ..] = self.0;
        first
    }

    /// Whether it is among them.
    #[must_use]
    pub fn contains(self, compressor: Compressor) -> bool {
        self.iter().any(|one| one == compressor)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.first().is_none()
    }

    /// All of them, in order.
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

/// Whether the message at the front of `input` says that it is compressed. `false` also while its opcode is not there.
#[must_use]
pub fn is_compressed(input: &[u8]) -> bool {
    input.get(HEADER_BYTES - 4..HEADER_BYTES) == Some(&OP_COMPRESSED.to_le_bytes())
}

/// A compressed message that is all there. What it says of itself is allowed; its data are not looked at yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Compressed<'a> {
    header: Header,
    compressor: Option<Compressor>,
    data: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// The header of the message inside, as it was before it was compressed.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// What undoes it; `None` where nothing was done ("noop").
    #[must_use]
    pub const fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// The compressed bytes.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// How many bytes they declare to inflate to: all but the header of the message inside.
    #[must_use]
    pub const fn size_bytes(&self) -> usize {
        (self.header.length_bytes as usize).saturating_sub(HEADER_BYTES)
    }
}

impl fmt::Debug for Compressed<'_> {
    /// Without the data, which may hold anything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, compressor, data } = self;
        f.debug_struct("Compressed")
            .field("header", header)
            .field("compressor", compressor)
            .field("data_bytes", &data.len())
            .finish()
    }
}

/// Decodes what the compressed message at the front of `input` says of itself.
///
/// - `limits`: for the message as it is and for the one inside alike.
/// - `accepted`: the compressors that both sides have; what leaves everything as it is (id 0) is accepted as soon as there is one.
///
/// Everything is judged as soon as its [`COMPRESSED_HEADER_BYTES`] are there. Cost: O(1).
///
/// # Errors
///
/// Those of [`decode_header`]; [`WireErrorKind::Opcode`] for a message that is not compressed;
/// [`WireErrorKind::CompressedTwice`], [`WireErrorKind::CompressedOpcode`], [`WireErrorKind::UncompressedSize`],
/// [`WireErrorKind::CompressorUnknown`], [`WireErrorKind::CompressorNotNegotiated`].
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

/// The compressor of an id, if it may be used.
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

/// The declared size, if a message can have it, the limit allows it, and so many bytes can inflate to as much.
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
