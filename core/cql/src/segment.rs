//! Segments, in which the envelopes of v5 are sent.
//!
//! Read first: Native Protocol v5, "Frame Format" with "Uncompressed Format" and "Compressed
//! Format". The specification calls a segment a frame.

#[cfg(test)]
mod tests;

use super::checksum::{CRC24_BYTES, CRC32_BYTES, crc24, crc32};
use super::error::{CqlError, CqlErrorKind};
use poolhouse_wire::Full;
use poolhouse_wire::Sink;
use poolhouse_wire::saturate;

/// Maximum length of a segment's payload in bytes.
pub const SEGMENT_PAYLOAD_BYTES_MAX: usize = (1 << LENGTH_BITS) - 1;

/// Length of the checksum after the payload in bytes.
pub(super) const TRAILER_BYTES: usize = CRC32_BYTES;

const LENGTH_BITS: u32 = 17;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// The format of a connection's segments. With compression the headers are longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Plain,
    Compressed,
}

impl Format {
    /// Length of the header in bytes, including its checksum.
    pub(super) const fn header_bytes(self) -> usize {
        self.front_bytes() + CRC24_BYTES
    }

    /// Length of the header in bytes, without its checksum.
    const fn front_bytes(self) -> usize {
        match self {
            Self::Plain => 3,
            Self::Compressed => 5,
        }
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Length of the payload in bytes.
    pub(super) payload_bytes: usize,
    /// The uncompressed length of the payload in bytes; `None` if it is not compressed.
    pub(super) inflated_bytes: Option<usize>,
    /// Whether the segment contains complete envelopes, instead of a part of one.
    pub(super) self_contained: bool,
}

/// Length of the longest header in bytes.
const HEADER_BYTES_MAX: usize = Format::Compressed.header_bytes();

impl SegmentHeader {
    /// Decodes the header that consists of all of `bytes`.
    pub(super) fn decode(bytes: &[u8], format: Format) -> Result<Self, CqlError> {
        let at = format.front_bytes();
        let (front, checksum) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
        let (computed, found) = (crc24(front), little_endian(checksum));
        if u64::from(computed) != found {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(CqlError::new(CqlErrorKind::SegmentHeaderChecksum { computed, found }, saturate(at)));
        }
        let bits = little_endian(front);
        let length = |bits: u64| usize::try_from(bits & LENGTH_MASK).unwrap_or(SEGMENT_PAYLOAD_BYTES_MAX);
        let (inflated_bytes, flags) = match format {
            Format::Plain => (None, bits >> LENGTH_BITS),
            // An uncompressed length of 0 means that the payload is not compressed.
            Format::Compressed => {
                (Some(length(bits >> LENGTH_BITS)).filter(|size| *size > 0), bits >> (2 * LENGTH_BITS))
            }
        };
        let payload_bytes = length(bits);
        if payload_bytes == 0 {
            return Err(CqlError::new(CqlErrorKind::SegmentEmpty, 0));
        }
        Ok(Self { payload_bytes, inflated_bytes, self_contained: flags & 1 == 1 })
    }

    /// The encoded header; only the first `format.header_bytes()` bytes are used.
    fn to_bytes(self, format: Format) -> [u8; HEADER_BYTES_MAX] {
        let bits = |count: usize| u64::try_from(count).unwrap_or(LENGTH_MASK) & LENGTH_MASK;
        let flag = u64::from(self.self_contained);
        let value = match format {
            Format::Plain => bits(self.payload_bytes) | flag << LENGTH_BITS,
            Format::Compressed => {
                let inflated = bits(self.inflated_bytes.unwrap_or(0));
                bits(self.payload_bytes) | inflated << LENGTH_BITS | flag << (2 * LENGTH_BITS)
            }
        };
        let mut bytes = value.to_le_bytes();
        let (front, rest) = bytes.split_at_mut(format.front_bytes());
        let checksum = crc24(front).to_le_bytes();
        for (place, byte) in rest.iter_mut().zip(checksum) {
            *place = byte;
        }
        bytes
    }
}

/// Checks the checksum after a payload.
///
/// - `at`: the offset of the checksum in the segment.
pub(super) fn check_payload(payload: &[u8], trailer: &[u8], at: usize) -> Result<(), CqlError> {
    let computed = crc32(payload);
    let found = u32::try_from(little_endian(trailer)).unwrap_or(u32::MAX);
    if computed == found {
        return Ok(());
    }
    Err(CqlError::new(CqlErrorKind::SegmentChecksum { computed, found }, saturate(at)))
}

/// Begins a segment at the end of `sink`: the bytes appended until [`end_segment`] are its payload.
pub(super) fn begin_segment<S: Sink>(sink: &mut S, format: Format) -> Result<(), Full> {
    let blank = [0; HEADER_BYTES_MAX];
    sink.append(blank.get(..format.header_bytes()).unwrap_or_default())
}

/// Ends the segment that began at `start`.
///
/// - `inflated_bytes`: the uncompressed length of its payload; `None` if it is not compressed.
pub(super) fn end_segment<S: Sink>(
    sink: &mut S,
    start: usize,
    format: Format,
    inflated_bytes: Option<usize>,
    self_contained: bool,
) -> Result<(), Full> {
    let segment = sink.written_mut().get_mut(start..).ok_or(Full)?;
    let (front, payload) = segment.split_at_mut_checked(format.header_bytes()).ok_or(Full)?;
    let header = SegmentHeader { payload_bytes: payload.len(), inflated_bytes, self_contained };
    debug_assert!(
        (1..=SEGMENT_PAYLOAD_BYTES_MAX).contains(&payload.len()),
        "a segment has a payload of at most 131071 bytes"
    );
    let checksum = crc32(payload);
    for (place, byte) in front.iter_mut().zip(header.to_bytes(format)) {
        *place = byte;
    }
    sink.append(&checksum.to_le_bytes())
}

/// Decodes up to eight bytes as a little-endian number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
