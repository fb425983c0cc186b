//! Compressed messages of the fake server: an implementation of OP_COMPRESSED that is independent
//! of poolhouse-wire's. It uses other interfaces of the compression libraries.
//!
//! Sections to read first: Wire Compression, "OP_COMPRESSED", "Compressor IDs", "Messages not
//! allowed to be compressed".

#[cfg_attr(not(feature = "compression"), path = "compress/no_codec.rs")]
pub(super) mod codec;

use bson::{Bson, Document};

use super::wire::{self, BadInput, HEADER_BYTES};

pub(crate) const OP_COMPRESSED: i32 = 2012;
/// Bytes before the compressed data.
const FRONT_BYTES: usize = HEADER_BYTES + 9;
/// Longest message that is decompressed.
const INFLATED_BYTES_MAX: usize = 48_000_000;

/// Compression algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// No compression: the bytes are unchanged. Not supported by any server by default.
    Noop,
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Algorithm {
    /// All algorithms, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Noop, Self::Snappy, Self::Zlib, Self::Zstd];

    /// Returns the name in hellos and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the number in messages.
    pub const fn id(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// Compresses bytes.
    ///
    /// # Panics
    /// Without the feature `compression`, for any algorithm but `Noop`.
    pub fn compress(self, bytes: &[u8]) -> Vec<u8> {
        if self == Self::Noop { bytes.to_vec() } else { codec::compress(self, bytes) }
    }

    /// Decompresses bytes to at most `size`; `None` for malformed ones.
    fn inflate(self, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        if self == Self::Noop { Some(bytes.to_vec()) } else { codec::inflate(self, bytes, size) }
    }
}

/// Selects the replies that a server compresses, if an algorithm was negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyCompression {
    /// Replies to compressed requests, by the same algorithm: as observed on a server of 6.0.
    AsAsked,
    /// All replies, including that to the hello, by the first algorithm that the client offered: as
    /// servers of 3.4 did.
    Always,
    /// No replies.
    Never,
}

/// Returns the algorithms that a hello offers and the server supports, in the client's order.
pub(crate) fn agree(offered: &Document, supported: &[Algorithm]) -> Vec<Algorithm> {
    let Ok(names) = offered.get_array("compression") else { return Vec::new() };
    let mut agreed = Vec::new();
    for name in names.iter().filter_map(Bson::as_str) {
        if let Some(&algorithm) = supported.iter().find(|algorithm| algorithm.name() == name) {
            if !agreed.contains(&algorithm) {
                agreed.push(algorithm);
            }
        }
    }
    agreed
}

/// Returns whether the command must not be compressed.
pub(crate) fn is_forbidden(name: &str) -> bool {
    matches!(
        name,
        "hello"
            | "isMaster"
            | "ismaster"
            | "saslStart"
            | "saslContinue"
            | "getnonce"
            | "authenticate"
            | "createUser"
            | "updateUser"
            | "copydbSaslStart"
            | "copydbgetnonce"
            | "copydb"
    )
}

/// Returns a message in compressed form.
///
/// # Panics
/// On bytes without a message's header.
pub fn compressed(algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
    let (header, body) = message.split_at(HEADER_BYTES);
    let data = algorithm.compress(body);
    compressed_raw(header, body.len(), algorithm.id(), &data)
}

/// Builds a compressed message from these parts, valid or not; `header` is that of the message
/// inside.
///
/// # Panics
/// If the header does not have 16 bytes, or the message exceeds 2 GiB.
pub fn compressed_raw(header: &[u8], size: usize, id: u8, data: &[u8]) -> Vec<u8> {
    assert_eq!(header.len(), HEADER_BYTES, "a header");
    let mut out = Vec::with_capacity(FRONT_BYTES + data.len());
    out.extend_from_slice(&i32::try_from(FRONT_BYTES + data.len()).expect("below 2 GiB").to_le_bytes());
    out.extend_from_slice(&header[4..12]);
    out.extend_from_slice(&OP_COMPRESSED.to_le_bytes());
    out.extend_from_slice(&header[12..]);
    out.extend_from_slice(&i32::try_from(size).expect("below 2 GiB").to_le_bytes());
    out.push(id);
    out.extend_from_slice(data);
    out
}

/// Returns the complete message inside a compressed one.
pub(crate) fn inflated(frame: &[u8]) -> Result<(Algorithm, Vec<u8>), BadInput> {
    const BAD: fn(&'static str) -> BadInput = BadInput::Compressed;
    if frame.len() < FRONT_BYTES {
        return Err(BAD("too short"));
    }
    let (op_code, size) = (wire::i32_at(frame, 16), wire::i32_at(frame, 20));
    if !matches!(op_code, wire::OP_MSG | wire::OP_QUERY | wire::OP_REPLY) {
        return Err(BAD("another opcode inside"));
    }
    let size = usize::try_from(size).ok().filter(|size| *size <= INFLATED_BYTES_MAX).ok_or(BAD("the size"))?;
    let id = frame[FRONT_BYTES - 1];
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.id() == id).ok_or(BAD("the compressor"))?;
    let body = algorithm.inflate(&frame[FRONT_BYTES..], size).ok_or(BAD("the data"))?;
    if body.len() != size {
        return Err(BAD("another size"));
    }
    let mut message = Vec::with_capacity(HEADER_BYTES + size);
    message.extend_from_slice(&i32::try_from(HEADER_BYTES + size).unwrap_or(i32::MAX).to_le_bytes());
    message.extend_from_slice(&frame[4..12]);
    message.extend_from_slice(&frame[16..20]);
    message.extend_from_slice(&body);
    Ok((algorithm, message))
}
