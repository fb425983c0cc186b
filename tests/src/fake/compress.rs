//! Compressed messages of the fake server: its own reading of OP_COMPRESSED, by other interfaces of the compression
//! libraries than poolhouse-core uses.
//!
//! Sections to read first: Wire Compression, "OP_COMPRESSED", "Compressor IDs", "Messages not allowed to be compressed".

use std::io::{Read, Write};

use bson::{Bson, Document};

use super::wire::{self, BadInput, HEADER_BYTES};

pub(crate) const OP_COMPRESSED: i32 = 2012;
/// Bytes in front of the compressed ones.
const FRONT_BYTES: usize = HEADER_BYTES + 9;
/// Longest message that is inflated.
const INFLATED_BYTES_MAX: usize = 48_000_000;

/// What a message can be compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Nothing: the bytes stay as they are. No server has it unless it is told to.
    Noop,
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Algorithm {
    /// Every one, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Noop, Self::Snappy, Self::Zlib, Self::Zstd];

    /// The name in greetings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The number in messages.
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
    /// Never: writing into memory does not fail.
    pub fn compress(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Noop => bytes.to_vec(),
            Self::Snappy => snap::raw::Encoder::new().compress_vec(bytes).expect("memory"),
            Self::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes).expect("memory");
                encoder.finish().expect("memory")
            }
            Self::Zstd => zstd::stream::encode_all(bytes, 1).expect("memory"),
        }
    }

    /// Inflates bytes to at most `size`; `None` for malformed ones.
    fn inflate(self, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        let limit = u64::try_from(size).ok()? + 1;
        let mut inflated = Vec::new();
        match self {
            Self::Noop => inflated.extend_from_slice(bytes),
            Self::Snappy => {
                if snap::raw::decompress_len(bytes).ok()? > size {
                    return None;
                }
                inflated = snap::raw::Decoder::new().decompress_vec(bytes).ok()?;
            }
            Self::Zlib => {
                flate2::read::ZlibDecoder::new(bytes).take(limit).read_to_end(&mut inflated).ok()?;
            }
            Self::Zstd => {
                zstd::stream::read::Decoder::new(bytes).ok()?.take(limit).read_to_end(&mut inflated).ok()?;
            }
        }
        Some(inflated)
    }
}

/// Which replies of a server are compressed, where the greeting agreed on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyCompression {
    /// Those to requests that were, by the same algorithm: as a server of 6.0 was seen to do.
    AsAsked,
    /// Every one, that to the greeting included, by the first that the client offered: as servers of 3.4 did.
    Always,
    /// None.
    Never,
}

/// The algorithms that a greeting offers and the server has, in the client's order.
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

/// Whether the command must not be compressed.
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

/// A message in the form of a compressed one.
///
/// # Panics
/// On bytes without a message's header.
pub fn compressed(algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
    let (header, body) = message.split_at(HEADER_BYTES);
    let data = algorithm.compress(body);
    compressed_raw(header, body.len(), algorithm.id(), &data)
}

/// A compressed message of these parts, true or not; `header` is that of the message inside.
///
/// # Panics
/// With a header of other than 16 bytes, or beyond 2 GiB.
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

/// The message inside a compressed one, whole.
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
